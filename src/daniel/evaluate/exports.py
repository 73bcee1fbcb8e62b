"""Code vectors for other people's software."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from daniel.checks import check_choice
from daniel.errors import InputError, MissingDependencyError
from daniel.estimator import Daniel
from daniel.federated.files import new_folder
from daniel.federated.folder import read_model
from daniel.matrix import vocabulary_of

FORMATS = ("projector", "word2vec", "parquet", "anndata")
DEFAULT = FORMATS[:3]
MARK = "metadata.tsv"
VECTORS, WORD2VEC = "vectors.tsv", "embedding.word2vec"
PARQUET, ANNDATA = "embedding.parquet", "embedding.h5ad"
OWN = (MARK, VECTORS, WORD2VEC, PARQUET, ANNDATA)  # all that an export holds
SIGNIFICANT = 7  # digits: all that single precision has


def export_embedding(
    model: Daniel | str | Path,
    out: str | Path,
    *,
    formats: Sequence[str] = DEFAULT,
    descriptions: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the code vectors of a model, a model file or a model folder to the folder `out`.

    metadata.tsv          code, vocabulary, description of each row
    vectors.tsv           projector: upload both at projector.tensorflow.org
    embedding.word2vec    word2vec text; gensim: ``KeyedVectors.load_word2vec_format(path)``
    embedding.parquet     code, vocabulary, description, d1, d2, ...
    embedding.h5ad        AnnData, with the extra `anndata`: codes are observations

    A blank in a code is written as "_" in word2vec text, where blanks separate.
    """
    for name in formats:
        check_choice("formats", name, FORMATS)
    if not isinstance(model, Daniel):
        model = read_model(Path(model))
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InputError("The model does not know the names of its codes: fit it to a CodeMatrix.")
    vectors = np.asarray(model.embedding_, dtype=np.float32)
    about = _about([str(name) for name in names], descriptions or {})
    writers = {
        "projector": _projector,
        "word2vec": _word2vec,
        "parquet": _parquet,
        "anndata": _anndata,
    }
    out = Path(out)
    with new_folder(out, MARK, OWN) as folder:
        about.to_csv(folder / MARK, sep="\t", index=False, lineterminator="\n", quoting=3)
        for name in formats:
            writers[name](folder, vectors, about)
        written = sorted(path.name for path in folder.iterdir())
    return [out / name for name in written]


def _about(codes: list[str], descriptions: Mapping[str, str]) -> pd.DataFrame:
    """code, vocabulary and description, each on one line without tabs."""
    return pd.DataFrame(
        {
            "code": [_one_line(code) for code in codes],
            "vocabulary": [_one_line(vocabulary_of(code)) for code in codes],
            "description": [_one_line(descriptions.get(code) or "") for code in codes],
        }
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _projector(folder: Path, vectors: np.ndarray, about: pd.DataFrame) -> None:
    np.savetxt(folder / VECTORS, vectors, fmt=f"%.{SIGNIFICANT}g", delimiter="\t")


def _word2vec(folder: Path, vectors: np.ndarray, about: pd.DataFrame) -> None:
    words = ["_".join(code.split()) for code in about["code"]]
    if len(set(words)) < len(words) or not all(words):
        raise InputError(
            "Two codes differ only by blanks, which word2vec text cannot hold: leave it out of "
            "the formats."
        )
    with (folder / WORD2VEC).open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{vectors.shape[0]} {vectors.shape[1]}\n")
        for word, row in zip(words, vectors, strict=True):
            file.write(f"{word} {' '.join(f'{v:.{SIGNIFICANT}g}' for v in row)}\n")


def _parquet(folder: Path, vectors: np.ndarray, about: pd.DataFrame) -> None:
    columns: dict[str, Any] = {name: pa.array(about[name].tolist()) for name in about.columns}
    columns |= {f"d{i + 1}": pa.array(column) for i, column in enumerate(vectors.T)}
    pq.write_table(pa.table(columns), folder / PARQUET)


def _anndata(folder: Path, vectors: np.ndarray, about: pd.DataFrame) -> None:
    try:
        from anndata import AnnData
    except ImportError:
        raise MissingDependencyError.of(
            "anndata", extra="anndata", purpose="The export to AnnData"
        ) from None
    var = pd.DataFrame(index=[f"d{i + 1}" for i in range(vectors.shape[1])])
    obs = about.set_index("code").rename_axis(None)
    AnnData(X=vectors, obs=obs, var=var).write_h5ad(folder / ANNDATA)
