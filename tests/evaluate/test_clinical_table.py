"""The benchmark behind results/clinical: who is held out, what sites count as, words for codes."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from benchmarks import clinical, problems, relations
from benchmarks.descriptions import descriptions
from daniel import CodeMatrix

NEEDS_DATA = pytest.mark.skipif(
    not problems.available(), reason="the shared data folder is not here (DANIEL_DATA)"
)


def test_patients_are_held_out_whole():
    patients = np.repeat(np.arange(2000), 3)
    Z = sp.csr_array(np.ones((6000, 1), dtype=np.float32))
    held = clinical._held_out("visits", CodeMatrix(Z, ("A:1",), patients))
    of_patient = held.reshape(2000, 3)
    assert (of_patient.all(axis=1) | ~of_patient.any(axis=1)).all()
    assert 0.26 < held.mean() < 0.34  # 30 %, within four standard errors


def test_many_sites_become_the_best_and_the_median():
    names = [clinical.ALONE + site for site in "abcd"] + [relations.HUB, relations.ONE_SHOT]
    auc = [0.5, 0.6, 0.9, 0.7, 0.8, 0.95]
    table = pd.DataFrame({"method": names, "auc": auc})
    table = table.assign(column="r", setting="auto", n=5, lo=0.0, hi=1.0)
    found = clinical.sites_summed(table).set_index("method")["auc"]
    assert found.to_dict() == {
        relations.HUB: 0.8,
        relations.ONE_SHOT: 0.95,
        "Daniel, best site alone": 0.9,
        "Daniel, median site alone": 0.7,
    }
    few = table[table["method"].isin(names[:1] + names[4:])]
    pd.testing.assert_frame_equal(clinical.sites_summed(few), few)


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """What the store holds is not fitted again; what another benchmark holds neither."""
    Z = sp.csr_array(np.eye(4, dtype=np.float32))
    matrix = CodeMatrix(Z, ("A:1", "A:2", "A:3", "A:4"))
    sites = np.array(["x"] * 4)
    task = clinical.Task("visits", matrix, sites, pd.DataFrame(), (), sites == "y")
    asked = []

    def score(task, method, kind):
        asked.append((method.name, kind))
        row = {"problem": task.name, "method": method.name, "setting": "d=1, cosine"}
        numbers = {"column": "r", "n": 9, "auc": 0.6, "lo": 0.5, "hi": 0.7}
        return pd.DataFrame([row | numbers]).assign(asked=method.setting, fit=kind, seconds=1.0)

    monkeypatch.setattr(clinical, "score", score)
    monkeypatch.setattr(relations, "OUT", tmp_path)
    pd.DataFrame(
        {"problem": ["visits"], "method": ["old"], "setting": ["d=9"], "relation": ["r"]}
    ).to_csv(tmp_path / "auc.csv", index=False)
    methods = [clinical.Method(name, "d=1", lambda X, sites: None) for name in ("new", "old")]
    store = tmp_path / "out" / "auc.csv"
    for _ in range(2):
        clinical.run(task, iter(methods), store)
    assert asked == [("new", "relations"), ("new", "phenotyping"), ("old", "phenotyping")]


@NEEDS_DATA
def test_codes_have_words():
    words = {
        "PheCode:290.1": "Dementias",
        "CCS:10": "Thyroidectomy; partial or complete",
        "RXNORM:9997": "Spironolactone",
    }
    assert descriptions([*words, "Nothing:1"]) == words
