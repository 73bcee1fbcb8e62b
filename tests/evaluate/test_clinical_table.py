"""The benchmarks behind results/clinical: who is held out, what sites and targets count as."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from benchmarks import clinical, cohorts, problems, relations, targets
from benchmarks.descriptions import descriptions
from daniel import CodeMatrix

NEEDS_DATA = pytest.mark.skipif(
    not problems.available(), reason="the shared data folder is not here (DANIEL_DATA)"
)


def test_patients_are_held_out_whole():
    patients = np.repeat(np.arange(2000), 3)
    Z = sp.csr_array(np.ones((6000, 1), dtype=np.float32))
    held = clinical.held_out(CodeMatrix(Z, ("A:1",), patients), 0.3)
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


def rows(method, **aucs):
    columns = {"r": "r", "common": "r, as common", "told": "x unsupervised"}
    table = pd.DataFrame({"column": [columns[name] for name in aucs], "auc": list(aucs.values())})
    return table.assign(problem="visits", method=method, setting="d=1", n=20, lo=0.4, hi=0.9)


def test_relations_against_codes_as_common_are_a_table_of_their_own():
    """Methods that were run before there was one are named, and the others not measured by them."""
    table = pd.concat(
        [
            rows(relations.ONE_SHOT, r=0.7, told=0.8, common=0.6),
            rows("new", r=0.6, told=0.7, common=0.65),
            rows("old", r=0.8, told=0.6),
            rows("no relations", told=0.5),
        ],
        ignore_index=True,
    )
    text = clinical.markdown(table)
    first, second = text.split("## visits")[1].split("| method | r, as common |")
    assert "| method | r | x unsupervised |" in first and "| old | **0.800** | 0.600 |" in first
    assert "behind in 1: r (0.700, 0.100 behind old)" in first
    assert "| new | **0.650** |" in second and "(0.600, 0.050 behind new)" in second
    assert "Not scored against pairs as common: old; their intervals" in second
    only_new = clinical.markdown(table[table["method"] != relations.ONE_SHOT])
    assert "| new | **0.650** |" in only_new
    table = table.rename(columns={"column": "relation"}).assign(seconds=1.0)
    known = relations.markdown(table[table["relation"] != "x unsupervised"])
    assert "Against random pairs of codes as common:" in known
    assert "Not scored against pairs as common: old; their intervals" in known


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


def test_a_method_is_measured_by_its_best_setting_over_all_targets():
    aucs = {
        (relations.ONE_SHOT, "auto"): [0.8, 0.7, 0.6],
        ("rival", "d=1"): [0.9, 0.5, 0.6],
        ("rival", "d=2"): [0.7, 0.6, 0.5],
    }
    table = pd.DataFrame(
        [
            {"method": method, "setting": setting, "target": target, "auc": auc, "column": column}
            for (method, setting), own in aucs.items()
            for target, auc in zip("abc", own, strict=True)
            for column in ("unsupervised", "tree", "logistic")
        ]
    )
    found = targets.summary(table).set_index(["method", "column"])
    rival = found.loc["rival", "tree"]
    assert rival["setting"] == "d=1" and rival["auc"] == pytest.approx(2 / 3)
    assert rival["lead"] == pytest.approx(0.1 / 3)
    assert rival["error"] == pytest.approx(np.std([-0.1, 0.2, 0], ddof=1) / np.sqrt(3))
    assert (rival["ahead"], rival["behind"]) == (1, 1)
    text = targets.markdown(table.assign(problem="visits"))
    assert "## visits, 3 diagnoses" in text
    assert f"| {relations.ONE_SHOT} | 0.700 | 0.700 | 0.700 |" in text
    assert "| rival | 0.667 (+0.033 ± 0.088, 1 : 1) |" in text


def test_targets_are_diagnoses_that_enough_held_out_patients_have():
    rng = np.random.default_rng(0)
    codes = [*(f"PheCode:{k}" for k in range(1, 6)), "RxNorm:1"]
    Z = rng.random((2000, 6)) < [0.01, 0.1, 0.2, 0.95, 0, 0.3]
    Z[:300, 4] = True
    patients = np.r_[np.zeros(300, dtype=int), np.arange(1, 1701)]  # one has 300 records
    matrix = CodeMatrix(sp.csr_array(Z.astype(np.float32)), tuple(codes), patients)
    sites = np.array(["x"] * 2000)
    held = np.arange(2000) < 1900
    task = clinical.Task("visits", matrix, sites, pd.DataFrame(), (), held)
    assert targets.drawn(task) == ["PheCode:2", "PheCode:3"]


@NEEDS_DATA
def test_codes_have_words():
    words = {
        "PheCode:290.1": "Dementias",
        "CCS:10": "Thyroidectomy; partial or complete",
        "RXNORM:9997": "Spironolactone",
    }
    assert descriptions([*words, "Nothing:1"]) == words


def test_leads_of_several_cohorts_are_told_with_their_errors():
    """The rival shows its better dimension; a lead is the mean over cohorts of the same column."""
    told = []
    for seed, ours, theirs in ((1, 0.90, 0.85), (2, 0.80, 0.83), (3, 0.85, 0.81)):
        about = {"problem": f"seed {seed}", "column": "r"}
        told += [
            about | {"method": relations.ONE_SHOT, "setting": "auto", "auc": ours},
            about | {"method": "rival", "setting": "d=50", "auc": theirs},
            about | {"method": "rival", "setting": "d=200", "auc": theirs - 0.1},
        ]
    text = cohorts.markdown(pd.DataFrame(told), cohorts.TENTH)
    assert "3 cohorts with one in 10 of the paper's patients" in text
    assert f"| column | {relations.ONE_SHOT} | rival |" in text
    error = np.std([0.05, -0.03, 0.04], ddof=1) / np.sqrt(3)
    assert f"| r | 0.850 | 0.830 (+0.020 ± {error:.3f}, 2 : 1) |" in text


def test_the_one_cohort_with_every_method_counts_among_those_of_the_papers_size(tmp_path):
    line = {"problem": "cohort", "method": relations.ONE_SHOT, "asked": "auto", "setting": "auto"}
    elsewhere = [
        line | {"column": "r", "auc": 0.9},
        line | {"column": "r", "auc": 0.7, "problem": "visits"},
        line | {"column": "r", "auc": 0.6, "method": "word2vec"},
        line | {"column": "r", "auc": 0.5, "method": "PPMI-SVD", "asked": "d=25"},
    ]
    pd.DataFrame(elsewhere).to_csv(tmp_path / "auc.csv", index=False)
    store = tmp_path / "paper-cohorts.csv"
    pd.DataFrame([line | {"column": "r", "auc": 0.8, "problem": "seed 1"}]).to_csv(
        store, index=False
    )
    found = cohorts.told(store, cohorts.PAPER)
    assert dict(zip(found["problem"], found["auc"], strict=True)) == {"seed 0": 0.9, "seed 1": 0.8}
    assert "| r | 0.850 |" in cohorts.markdown(found, cohorts.PAPER)
    assert cohorts.told(store, cohorts.TENTH)["problem"].tolist() == ["seed 1"]
