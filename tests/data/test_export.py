"""AnnData export: what goes in comes out, and a missing package is one sentence."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from daniel.data.export import to_anndata
from daniel.errors import MissingDependencyError
from daniel.matrix import CodeMatrix

Z = sp.csr_array(np.array([[1, 0, 0], [1, 1, 0]], dtype=np.float32))
CODES = ("PheCode:290.1", "RXNORM:7", "local")


def test_records_and_codes_keep_their_places():
    pytest.importorskip("anndata", reason="the extra 'anndata' is not installed")
    matrix = CodeMatrix(
        Z, CODES, np.array(["a", "a"]), np.array([0, 3]), np.array([False, False, True])
    )
    data = to_anndata(matrix)
    assert data.shape == (2, 3)
    np.testing.assert_array_equal(data.X.toarray(), Z.toarray())
    assert list(data.var_names) == list(CODES)
    assert list(data.var["vocabulary"]) == ["PheCode", "RXNORM", ""]
    assert list(data.var["absent"]) == [False, False, True]
    assert list(data.obs["patient"]) == ["a", "a"]
    assert list(data.obs["window"]) == [0, 3]


def test_a_bare_matrix_has_no_patients(tmp_path):
    anndata = pytest.importorskip("anndata", reason="the extra 'anndata' is not installed")
    to_anndata(CodeMatrix(Z, CODES)).write_h5ad(tmp_path / "records.h5ad")
    again = anndata.read_h5ad(tmp_path / "records.h5ad")
    assert list(again.obs.columns) == []
    assert again.X.sum() == 3


def test_without_the_package_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'daniel\[anndata\]'"):
        to_anndata(CodeMatrix(Z, CODES))
