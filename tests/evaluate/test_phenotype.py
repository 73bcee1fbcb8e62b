"""Phenotyping: scores against plain formulas, no leak between patients, sites, and intervals."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

from daniel import Daniel
from daniel.core.sample import gibbs
from daniel.errors import InputError, ParameterError
from daniel.evaluate.cases import Cases, fold_of_patients
from daniel.evaluate.gold import kin
from daniel.evaluate.phenotype import CLASSIFIERS, fold_auc, phenotype
from daniel.evaluate.scores import target_score
from daniel.matrix import CodeMatrix

P = 12
CODES = tuple(f"PheCode:{k}" for k in range(P))
TARGET = CODES[3]
LOGISTIC = {"logistic": CLASSIFIERS["logistic"]}
COLUMNS = ["method", "site_train", "site_test", "auc", "lo", "hi", "n_pos", "n_neg", "folds"]


def sparse(Z):
    return sp.csr_array(np.asarray(Z, dtype=np.float32))


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    U = 0.5 * np.repeat(np.eye(3), 4, axis=0)
    return CodeMatrix(sparse(gibbs(U, np.full(P, -0.1), 3000, rng)), CODES)


@pytest.fixture(scope="module")
def model(matrix):
    return Daniel(random_state=0).fit(matrix)


def embedding(d=4, seed=1):
    E = np.random.default_rng(seed).standard_normal((P, d))
    return SimpleNamespace(embedding_=E, codes=list(CODES))


# --- scores ---------------------------------------------------------------------------------------


def flipped(matrix):
    Z = matrix.Z.toarray()
    Z[:, 3] = 1 - Z[:, 3]
    return CodeMatrix(sparse(Z), CODES)


def test_daniel_s_score_is_the_conditional_of_the_paper(model, matrix):
    """sigma(2 M_t), M_t = theta_tt + sum over k of theta_kt x_k, with x of ±1: conditional_dist."""
    x = 2 * matrix.Z.toarray() - 1
    theta = np.asarray(model.theta_, dtype=float)
    M = theta[3, 3] + np.delete(x, 3, axis=1) @ np.delete(theta[:, 3], 3)
    scored = target_score(model, matrix, TARGET)
    assert scored.score == pytest.approx(1 / (1 + np.exp(-2 * M)), rel=2e-4)
    assert "probability" in scored.meaning


def test_theta_alone_ranks_as_the_conditional(model, matrix):
    plain = SimpleNamespace(embedding_=model.embedding_, theta_=model.theta_, codes=CODES)
    scored = target_score(plain, matrix, TARGET)
    x = np.delete(2 * matrix.Z.toarray() - 1, 3, axis=1)
    M = x @ np.delete(np.asarray(model.theta_, dtype=float)[:, 3], 3)
    assert 2 * scored.score + (M - 2 * scored.score).mean() == pytest.approx(M, abs=1e-6)
    assert "log-odds" in scored.meaning


@pytest.mark.parametrize("score", ["cosine", "inner"])
def test_a_plain_embedding_is_scored_by_the_sum_of_rows(matrix, score):
    E = embedding().embedding_
    Z = matrix.Z.toarray()
    Z[:, 3] = 0
    sums = np.array([sum((E[k] for k in np.flatnonzero(z)), np.zeros(4)) for z in Z])
    expected = sums @ E[3]
    if score == "cosine":
        norms = np.linalg.norm(sums, axis=1) * np.linalg.norm(E[3])
        expected = np.where(norms > 0, expected / np.where(norms > 0, norms, 1), 0)
    scored = target_score(embedding(), matrix, TARGET, score=score)
    assert scored.score == pytest.approx(expected, abs=1e-6)
    assert scored.vectors == pytest.approx(sums, abs=1e-6)
    assert score in scored.meaning


def test_what_records_say_of_the_target_does_not_matter(model, matrix):
    theta = SimpleNamespace(embedding_=model.embedding_, theta_=model.theta_)
    for any_model in (model, theta, embedding()):
        one, two = (target_score(any_model, m, TARGET) for m in (matrix, flipped(matrix)))
        assert np.array_equal(one.score, two.score)
        assert np.array_equal(one.vectors, two.vectors)


def test_codes_are_matched_by_name(model, matrix):
    order = np.random.default_rng(0).permutation(P)
    turned = CodeMatrix(sp.csr_array(matrix.Z[:, order]), tuple(CODES[k] for k in order))
    for any_model in (model, embedding()):
        one, two = (target_score(any_model, m, TARGET) for m in (matrix, turned))
        assert one.score == pytest.approx(two.score, abs=1e-5)
        assert one.vectors == pytest.approx(two.vectors, abs=1e-4)


def test_the_score_as_a_column_is_log_odds_of_a_probability_and_else_as_it_is(model, matrix):
    scored = target_score(model, matrix, TARGET)
    columns = scored.with_score
    assert 1 / (1 + np.exp(-columns[:, 0])) == pytest.approx(scored.score, rel=1e-6)
    assert np.array_equal(columns[:, 1:], scored.vectors)
    plain = target_score(embedding(), matrix, TARGET)
    assert np.array_equal(plain.with_score[:, 0], plain.score)
    certain = replace(scored, score=np.array([0.0, 1.0]), vectors=np.zeros((2, 3)))
    assert np.isfinite(certain.with_score).all()


# --- the measure ----------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [4, 10_000])
def test_fold_auc_is_scikit_learn_s_within_folds(levels):
    rng = np.random.default_rng(levels)
    score, y = rng.integers(0, levels, 300), rng.random(300) < 0.4
    fold, weight = rng.integers(0, 5, 300), rng.integers(0, 4, (3, 300))
    for w, found in zip(weight, fold_auc(score, y, fold, weight), strict=True):
        above = pairs = 0.0
        for f in range(5):
            own = fold == f
            n = w[own & y].sum() * w[own & ~y].sum()
            above += n * roc_auc_score(y[own], score[own], sample_weight=w[own])
            pairs += n
        assert found == pytest.approx(above / pairs, abs=1e-12)
    assert fold_auc(score, y, np.zeros(300))[0] == pytest.approx(roc_auc_score(y, score))


def test_a_fold_of_one_kind_says_nothing():
    assert fold_auc([1, 2, 3, 4], [0, 1, 1, 1], [0, 0, 1, 1])[0] == 1
    assert np.isnan(fold_auc([1, 2], [1, 1], [0, 0])[0])


@pytest.mark.parametrize(("n", "asked", "used"), [(11, 60, 2), (19, 10, 3), (50, 10, 10)])
def test_folds_are_as_few_as_it_takes_to_have_pairs(n, asked, used):
    """n patients of each kind, and one code that tells them."""
    Z = np.random.default_rng(n).random((2 * n, 6)) < 0.5
    Z[:, 0] = Z[:, 1] = np.arange(2 * n) % 2
    matrix = CodeMatrix(sparse(Z), CODES[:6])
    model = SimpleNamespace(embedding_=np.eye(6))
    found = phenotype(model, matrix, CODES[0], folds=asked, classifiers=LOGISTIC)
    table = found.table.set_index("method")
    assert table["folds"].to_dict() == {"unsupervised": 1, "logistic": used}
    assert table["auc"]["logistic"] > 0.9
    assert table["lo"].isna().all() == table["hi"].isna().all() == (n < 20)


def test_a_small_site_sets_the_folds_and_has_no_interval():
    matrix, _, model = two_sites()
    sites = np.where(np.arange(1200) < 30, "small", "large")
    found = phenotype(model, matrix, "PheCode:0", sites=sites, classifiers=LOGISTIC)
    table = found.table[found.table["method"] == "logistic"]
    fewest = table[["n_pos", "n_neg"]].min(axis=None)
    assert 11 <= fewest < 20 and (table["folds"] == fewest // 5).all()
    assert (table["lo"].isna() == (table["site_test"] == "small")).all()


def test_a_classifier_that_learns_nothing_has_no_auc():
    """Equal scores would read as a measured 0.500 with an interval of no width."""
    rng = np.random.default_rng(0)
    Z = np.c_[np.arange(80) % 2, rng.random((80, 5)) < 0.5]
    stumps = {"stump": lambda seed: DummyClassifier(), "logistic": CLASSIFIERS["logistic"]}
    model = SimpleNamespace(embedding_=np.eye(6))
    matrix = CodeMatrix(sparse(Z), CODES[:6])
    table = phenotype(model, matrix, CODES[0], classifiers=stumps).table.set_index("method")
    assert table.loc["stump", ["auc", "lo", "hi"]].isna().all()
    assert table.loc["logistic", ["auc", "lo", "hi"]].notna().all()


# --- phenotyping ----------------------------------------------------------------------------------


def test_one_row_for_each_method_and_the_auc_of_scikit_learn(model, matrix):
    found = phenotype(model, matrix, TARGET, folds=3, cases=Cases("code", equal=False))
    assert list(found.table.columns) == COLUMNS
    assert list(found.table["method"]) == ["unsupervised", *CLASSIFIERS]
    present = matrix.Z.toarray()[:, 3] > 0
    expected = roc_auc_score(present, target_score(model, matrix, TARGET).score)
    assert found.auc() == pytest.approx(expected, abs=1e-12)
    assert found.rule == "code"
    table = found.table
    assert ((table["lo"] < table["auc"]) & (table["auc"] < table["hi"])).all()
    assert (table["n_pos"] == present.sum()).all()
    assert (table["n_neg"] == (~present).sum()).all()
    assert all(found.auc(name) > 0.6 for name in ("unsupervised", *CLASSIFIERS))


def test_a_classifiers_auc_is_that_of_plain_folds(model, matrix):
    """The same folds of patients run by hand, with scikit-learn alone."""

    def plain(seed):
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))

    y = matrix.Z.toarray()[:, 3] > 0
    fold = fold_of_patients(np.arange(3000), 1 + y, 5, 0)
    vectors = target_score(model, matrix, TARGET).vectors
    above = pairs = 0.0
    for f in range(5):
        test = fold == f
        p = plain(0).fit(vectors[~test], y[~test]).predict_proba(vectors[test])[:, 1]
        n = y[test].sum() * (~y[test]).sum()
        above, pairs = above + n * roc_auc_score(y[test], p), pairs + n
    found = phenotype(
        model, matrix, TARGET, folds=5, cases=Cases("code", equal=False), classifiers={"it": plain}
    )
    assert found.auc("it") == pytest.approx(above / pairs, abs=1e-9)


def test_a_classifier_that_asks_for_it_is_told_the_patients(model, matrix):
    told = []

    class Watching(DummyClassifier):
        by_patient = True

        def fit(self, X, y, patients):
            told.append((len(X), np.asarray(patients)))
            return super().fit(X, y)

    own = replace(matrix, patients=np.arange(matrix.shape[0]) // 3)
    cases = Cases(rule="code")
    classifiers = {"none": lambda seed: Watching()}
    phenotype(model, own, TARGET, folds=2, cases=cases, classifiers=classifiers)
    (n, first), (m, second) = told
    assert (first.size, second.size) == (n, m)
    assert not set(first) & set(second)  # of two folds


def test_classifiers_learn_on_one_thread(model, matrix):
    """Of few cases: threads of OpenMP that share a busy core wait, and take many times as long."""
    seen = []

    class Watching(DummyClassifier):
        def fit(self, X, y):
            seen.extend(pool["num_threads"] for pool in threadpool_info())
            return super().fit(X, y)

    before = [pool["num_threads"] for pool in threadpool_info()]
    phenotype(model, matrix, TARGET, folds=2, classifiers={"none": lambda seed: Watching()})
    assert set(seen) == {1}
    assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_a_classifier_that_asks_for_it_has_the_model_s_score_first(model, matrix):
    seen = {}

    class Watching(DummyClassifier):
        def __init__(self, name="", score_first=False):
            super().__init__(strategy="prior")
            self.name, self.score_first = name, score_first

        def fit(self, X, y):
            seen[self.name] = X
            return super().fit(X, y)

    both = {"plain": lambda _: Watching("plain"), "asks": lambda _: Watching("asks", True)}
    phenotype(model, matrix, TARGET, folds=2, classifiers=both)
    assert np.array_equal(seen["asks"][:, 1:], seen["plain"])
    scores = target_score(model, matrix, TARGET).with_score[:, 0]
    assert np.isin(seen["asks"][:, 0], scores).all()
    assert CLASSIFIERS["logistic"](0).score_first


def test_a_code_that_one_hospital_uses_more_is_not_told_by_the_hospital():
    """The target goes with nothing but the site, which the other codes tell."""
    rng = np.random.default_rng(0)
    site = rng.random(4000) < 0.5
    share = np.where(site[:, None], [0.5, 0.6, 0.6], [0.1, 0.1, 0.1])
    matrix = CodeMatrix(sparse(rng.random((4000, 3)) < share), CODES[:3])
    model = SimpleNamespace(embedding_=np.array([[1.0, 0], [1, 0.1], [1, -0.1]]))
    common = {"score": "inner", "classifiers": LOGISTIC, "by_site": False}
    blind = phenotype(model, matrix, CODES[0], **common)
    fair = phenotype(model, matrix, CODES[0], sites=site, **common)
    for method in ("unsupervised", "logistic"):
        assert blind.auc(method) > 0.6
        assert abs(fair.auc(method) - 0.5) < 0.05


def test_kin_of_the_target_tell_it_unless_they_are_hidden():
    """Only an ancestor of the target knows of it: nothing is left to tell it by."""
    rng = np.random.default_rng(0)
    Z = (rng.random((2000, P)) < 0.2).astype(np.float32)
    Z[:, 0] = Z[:, 3]
    matrix = CodeMatrix(sparse(Z), ("PheCode:3.1", *CODES[1:3], "PheCode:3.11", *CODES[4:]))
    model = Daniel(random_state=0).fit(matrix)
    seen, hidden = (
        phenotype(model, matrix, "PheCode:3.11", without=without, classifiers=LOGISTIC)
        for without in ((), kin(matrix.codes, "PheCode:3.11"))
    )
    assert min(seen.auc(), seen.auc("logistic")) > 0.95
    assert max(abs(hidden.auc() - 0.5), abs(hidden.auc("logistic") - 0.5)) < 0.1
    with pytest.raises(InputError, match="without has 'X:1'"):
        phenotype(model, matrix, "PheCode:3.11", without=["X:1"])


def repeated(n_patients=150, times=4, seed=0):
    """Patients whose records are all alike, with labels by chance: only a leak can tell them."""
    rng = np.random.default_rng(seed)
    Z = (rng.random((n_patients, 40)) < 0.4).repeat(times, axis=0)
    labels = (rng.random(n_patients) < 0.5).repeat(times)
    codes = ("PheCode:t", *(f"CCS:{k}" for k in range(39)))
    matrix = CodeMatrix(sparse(Z), codes, np.arange(n_patients).repeat(times))
    return matrix, labels, SimpleNamespace(embedding_=rng.standard_normal((40, 20)))


def test_a_patient_is_never_in_training_and_test():
    matrix, labels, model = repeated()
    few = {"boosting": lambda seed: HistGradientBoostingClassifier(max_iter=20, random_state=seed)}
    found = phenotype(model, matrix, "PheCode:t", labels=labels, classifiers=few, folds=4)
    assert 0.35 < found.auc("boosting") < 0.65
    alone = CodeMatrix(matrix.Z, matrix.codes)  # the same records, as if of 600 patients
    leaking = phenotype(model, alone, "PheCode:t", labels=labels, classifiers=few, folds=4)
    assert leaking.auc("boosting") > 0.9


def test_the_interval_resamples_patients():
    """Four equal records of a patient are no more evidence than one."""
    widths = []
    for times in (1, 4):
        matrix, labels, model = repeated(times=times)
        table = phenotype(model, matrix, "PheCode:t", labels=labels, classifiers={}).table
        widths.append((table["hi"] - table["lo"]).item())
    assert widths[1] == pytest.approx(widths[0], rel=0.15)
    alone = CodeMatrix(matrix.Z, matrix.codes)
    table = phenotype(model, alone, "PheCode:t", labels=labels, classifiers={}).table
    assert (table["hi"] - table["lo"]).item() < 0.7 * widths[0]


def two_sites():
    """One code speaks for the target at north and against it at south."""
    rng = np.random.default_rng(0)
    n = 1200
    south = np.arange(n) % 2 == 1
    Z = rng.random((n, 6)) < 0.5
    Z[:, 0] = np.where(rng.random(n) < 0.8, Z[:, 1] ^ south, rng.random(n) < 0.5)
    matrix = CodeMatrix(sparse(Z), tuple(f"PheCode:{k}" for k in range(6)))
    return matrix, np.where(south, "south", "north"), SimpleNamespace(embedding_=np.eye(6))


def test_trained_at_one_site_and_tested_at_another():
    matrix, sites, model = two_sites()
    found = phenotype(model, matrix, "PheCode:0", sites=sites, classifiers=LOGISTIC)
    table = found.table.set_index(["method", "site_train", "site_test"])["auc"]
    assert len(table) == 3 + 9
    for here, there in (("north", "south"), ("south", "north")):
        assert table["logistic", here, here] > 0.8
        assert table["logistic", here, there] < 0.2
    assert 0.4 < table["logistic", "all", "all"] < 0.6
    whole = phenotype(
        model, matrix, "PheCode:0", sites=sites, classifiers=LOGISTIC, by_site=False
    ).table
    assert whole.equals(
        found.table.query("site_train == site_test == 'all'").reset_index(drop=True)
    )
    counts = found.table.groupby("site_test")[["n_pos", "n_neg"]].first()
    assert (counts.loc["north"] + counts.loc["south"] == counts.loc["all"]).all()


def test_a_small_site_is_left_out_and_named():
    matrix, sites, model = two_sites()
    sites = sites.copy()
    sites[:15] = "tiny"
    found = phenotype(model, matrix, "PheCode:0", sites=sites, classifiers={})
    assert found.left_out == ("tiny",)
    assert set(found.table["site_test"]) == {"all", "north", "south"}
    counts = found.table.set_index("site_test")["n_pos"]
    assert counts["all"] == counts["north"] + counts["south"]
    with pytest.raises(InputError, match="No site has 11 patients"):
        phenotype(model, CodeMatrix(matrix.Z[:18], matrix.codes), "PheCode:0")


class Memory(BaseEstimator):
    """Remembers the labels of the records it was fitted to, each of which has a code of its own."""

    sizes: list = []  # noqa: RUF012

    def fit(self, X, y=None, *, sites=None):
        Z = X.Z.toarray()
        self.sizes.append((len(Z), None if sites is None else len(sites)))
        self.embedding_ = np.zeros((Z.shape[1], 1))
        self.embedding_[0] = 1
        self.embedding_[1:, 0] = (2 * Z[:, 0] - 1) @ Z[:, 1:]
        return self


def test_a_fit_for_each_fold_has_not_seen_its_patients():
    rng = np.random.default_rng(0)
    n = 200
    Z = np.c_[rng.random(n) < 0.5, np.eye(n)]
    matrix = CodeMatrix(sparse(Z), ("PheCode:t", *(f"CCS:{k}" for k in range(n))))
    own = {"cases": Cases(equal=False), "classifiers": {}, "score": "inner"}
    seen = phenotype(Memory().fit(matrix), matrix, "PheCode:t", **own)
    assert seen.auc() == 1
    Memory.sizes.clear()
    sites = {"sites": ["a", "b"] * 100, "by_site": False}
    fresh = phenotype(Memory(), matrix, "PheCode:t", refit=True, **sites, **own)
    assert fresh.auc() == 0.5
    assert Memory.sizes == [(180, 180)] * 10
    assert (fresh.table["folds"] == 10).all()
    assert (seen.table["folds"] == 1).all()


def test_the_same_seed_gives_the_same_table(model, matrix):
    tables = [
        phenotype(model, matrix, TARGET, random_state=s, classifiers=LOGISTIC).table
        for s in (0, 0, 1)
    ]
    assert tables[0].equals(tables[1])
    assert not tables[0].equals(tables[2])


def test_wrong_input_is_one_sentence(model, matrix):
    with pytest.raises(InputError, match="no code 'PheCode:999'"):
        phenotype(model, matrix, "PheCode:999")
    other = CodeMatrix(matrix.Z, tuple(f"CCS:{k}" for k in range(P)))
    with pytest.raises(InputError, match="another study"):
        phenotype(model, other, "CCS:0")
    with pytest.raises(InputError, match="5 codes and the records have 12"):
        phenotype(SimpleNamespace(embedding_=np.eye(5)), matrix, TARGET)
    with pytest.raises(InputError, match="fit it first"):
        phenotype(Daniel(), matrix, TARGET)
    with pytest.raises(InputError, match="not finite"):
        phenotype(SimpleNamespace(embedding_=np.full((P, 2), np.nan)), matrix, TARGET)
    with pytest.raises(ParameterError, match="refit needs an estimator"):
        phenotype(embedding(), matrix, TARGET, refit=True)
    with pytest.raises(ParameterError, match="score is 'dot'"):
        phenotype(embedding(), matrix, TARGET, score="dot")
    with pytest.raises(InputError, match="called 'all'"):
        phenotype(model, matrix, TARGET, sites=["all"] * 3000)
