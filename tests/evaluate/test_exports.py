"""Exports of code vectors: what other software reads is what the model holds."""

import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from daniel.cli import app
from daniel.core.sample import gibbs
from daniel.errors import InputError, MissingDependencyError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.exports import export_embedding

CODES = ["PheCode:290.1", "RxNorm:7", "local code", *(f"CCS:{j}" for j in range(5))]
TEXTS = {"PheCode:290.1": 'dementia,\t"senile"\nor not', "RxNorm:7": "Ränder"}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    U = 0.6 * np.repeat(np.eye(2), 4, axis=0)
    Z = gibbs(U, np.full(8, -0.5), 800, rng)
    return Daniel(random_state=0).fit(pd.DataFrame(Z, columns=CODES))


def test_the_projector_gets_two_tables(model, tmp_path):
    export_embedding(model, tmp_path / "out", formats=["projector"], descriptions=TEXTS)
    vectors = np.loadtxt(tmp_path / "out" / "vectors.tsv", delimiter="\t", ndmin=2)
    np.testing.assert_allclose(vectors, model.embedding_, rtol=1e-6, atol=1e-9)
    lines = (tmp_path / "out" / "metadata.tsv").read_text("utf-8").split("\n")
    assert lines[0] == "code\tvocabulary\tdescription" and lines[-1] == ""
    assert lines[1] == 'PheCode:290.1\tPheCode\tdementia, "senile" or not'
    assert lines[2:4] == ["RxNorm:7\tRxNorm\tRänder", "local code\t\t"]
    assert len(lines) == len(CODES) + 2


def test_word2vec_text_by_its_definition(model, tmp_path):
    export_embedding(model, tmp_path / "out", formats=["word2vec"])
    lines = (tmp_path / "out" / "embedding.word2vec").read_text("utf-8").splitlines()
    n, d = map(int, lines[0].split(" "))
    assert (n, d) == model.embedding_.shape and len(lines) == n + 1
    rows = [line.split(" ") for line in lines[1:]]
    assert [row[0] for row in rows] == ["PheCode:290.1", "RxNorm:7", "local_code", *CODES[3:]]
    found = np.array([[float(v) for v in row[1:]] for row in rows])
    np.testing.assert_allclose(found, model.embedding_, rtol=1e-6, atol=1e-9)


def test_gensim_reads_it(model, tmp_path):
    models = pytest.importorskip("gensim.models", reason="the extra 'rivals' is not installed")
    export_embedding(model, tmp_path / "out", formats=["word2vec"])
    read = models.KeyedVectors.load_word2vec_format(tmp_path / "out" / "embedding.word2vec")
    np.testing.assert_allclose(read["RxNorm:7"], model.embedding_[1], rtol=1e-6, atol=1e-9)
    near = [code for code, _ in read.most_similar("PheCode:290.1", topn=3)]
    ours = [code.replace(" ", "_") for code in model.similar("PheCode:290.1", n=3)["code"]]
    assert near == ours


def test_parquet_keeps_every_bit(model, tmp_path):
    export_embedding(model, tmp_path / "out", formats=["parquet"], descriptions=TEXTS)
    table = pd.read_parquet(tmp_path / "out" / "embedding.parquet")
    assert table["code"].tolist() == CODES and table["description"][1] == "Ränder"
    vectors = table.filter(regex=r"^d\d+$").to_numpy()
    np.testing.assert_array_equal(vectors, model.embedding_.astype(np.float32))


def test_anndata_has_codes_as_observations(model, tmp_path):
    anndata = pytest.importorskip("anndata", reason="the extra 'anndata' is not installed")
    export_embedding(model, tmp_path / "out", formats=["anndata"], descriptions=TEXTS)
    read = anndata.read_h5ad(tmp_path / "out" / "embedding.h5ad")
    assert list(read.obs_names) == CODES and list(read.obs["vocabulary"])[1] == "RxNorm"
    np.testing.assert_array_equal(read.X, model.embedding_.astype(np.float32))


def test_without_anndata_nothing_is_written(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(MissingDependencyError, match=r"daniel\[anndata\]"):
        export_embedding(model, tmp_path / "out", formats=["parquet", "anndata"])
    assert list(tmp_path.iterdir()) == []


def test_the_command_exports_a_model_file_and_again(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    out = tmp_path / "out"
    for _ in range(2):  # an older export is replaced
        arguments = ["export", str(tmp_path / "model.safetensors"), "--out", str(out)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    names = ["embedding.parquet", "embedding.word2vec", "metadata.tsv", "vectors.tsv"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert result.stdout.count("Wrote ") == 4


def test_bad_input_is_one_sentence(model, tmp_path):
    with pytest.raises(ParameterError, match="formats"):
        export_embedding(model, tmp_path / "out", formats=["excel"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="something else"):
        export_embedding(model, tmp_path / "full")
    nameless = Daniel(random_state=0).fit(np.eye(4).repeat(30, axis=0))
    with pytest.raises(InputError, match="names of its codes"):
        export_embedding(nameless, tmp_path / "out")
    twins = Daniel(random_state=0)
    twins.__dict__.update(model.__dict__)
    twins.feature_names_in_ = np.array([*CODES[:-1], "local_code"], dtype=object)
    with pytest.raises(InputError, match="differ only by blanks"):
        export_embedding(twins, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_anything_else_is_not_replaced(model, tmp_path, monkeypatch):
    """metadata.tsv is a common name: it took a whole folder with it."""
    out = tmp_path / "out"
    (out / "thesis").mkdir(parents=True)
    (out / "metadata.tsv").write_text("mine")
    for name in ("thesis/chapter.txt", "notes.txt"):
        (out / name).write_text("mine")
        with pytest.raises(InputError, match=r"out holds (notes.txt|thesis), which would be lost"):
            export_embedding(model, out)
        assert (out / name).read_text() == (out / "metadata.tsv").read_text() == "mine"
    export_embedding(model, tmp_path / "own")
    export_embedding(model, tmp_path / "own", formats=["parquet"])
    monkeypatch.chdir(tmp_path / "own")
    for current in (".", tmp_path / "own", tmp_path / "own" / "..", ".."):
        with pytest.raises(InputError):
            export_embedding(model, current)
    with pytest.raises(InputError, match="is the current folder or holds it"):
        export_embedding(model, ".")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "own"]
