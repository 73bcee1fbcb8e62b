"""Hard inputs: each gives a fit with finite numbers everywhere, or one clear sentence."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from daniel import Daniel
from daniel.errors import DivergenceError

N, P = 200, 8


def base(n=N, p=P, density=0.3, seed=0):
    return (np.random.default_rng(seed).random((n, p)) < density).astype(float)


def changed(rows, columns, value, X=None):
    X = base() if X is None else X
    X[rows, columns] = value
    return X


def disjoint():
    """Two sites, each with codes of its own."""
    X = base()
    X[: N // 2, : P // 2] = 0
    X[N // 2 :, P // 2 :] = 0
    return X, np.arange(N) < N // 2


def one_record_at_a_site():
    return base(), np.where(np.arange(N) == 7, "tiny", "hub")


EVERYTHING = slice(None)
CASES = {
    "never present": (changed(EVERYTHING, 0, 0), np.arange(N) % 2),
    "always present": (changed(EVERYTHING, 0, 1), np.arange(N) % 2),
    "both": (changed(EVERYTHING, 1, 0, changed(EVERYTHING, 0, 1)), np.arange(N) % 2),
    "twice the same column": (np.hstack([base(), base()]), np.arange(N) % 2),
    "column and its complement": (np.hstack([base(), 1 - base()]), np.arange(N) % 2),
    "seen once": (changed(3, 0, 1, changed(EVERYTHING, 0, 0)), np.arange(N) % 2),
    "absent once": (changed(3, 0, 0, changed(EVERYTHING, 0, 1)), np.arange(N) % 2),
    "never at the hub": (
        changed(np.arange(0, N, 2), 0, 0),
        np.where(np.arange(N) % 2, "other", "hub"),
    ),
    "all-zero record": (changed(5, EVERYTHING, 0), np.arange(N) % 2),
    "identical records": (np.tile(base(1), (50, 1)), np.arange(50) % 2),
    "more codes than records": (base(10, 60, 0.2), np.arange(10) % 2),
    "two records": (base(2, 5, 0.5), [0, 1]),
    "one record": (base(1, 5, 0.5), None),
    "one record, one code": (np.ones((1, 1)), None),
    "one column": (base(p=1), np.arange(N) % 2),
    "two columns": (base(p=2), np.arange(N) % 2),
    "one record at a site": one_record_at_a_site(),
    "all zero": (np.zeros((50, 6)), np.arange(50) % 2),
    "all one": (np.ones((50, 6)), np.arange(50) % 2),
    "disjoint codes": disjoint(),
    "30 tiny sites": (base(60), np.arange(60) % 30),
    "every record a site": (base(40), np.arange(40)),
    "strong couplings": (np.repeat(base(400, 1, 0.5), 10, axis=1), np.arange(400) % 4),
}
RECIPES = {
    "natural": {},
    "unpenalised": {"penalty": 0.0},
    "shared": {"intercept": "shared"},
    "tied": {"intercept": "tied"},
    "model": {"surrogate": "model"},
    "undamped": {"damping": 0.0},
    "all components": {"n_components": None},  # stands for p
    "paper": {"recipe": "paper"},
    "paper, all components": {"recipe": "paper", "n_components": None},
}
each_recipe = pytest.mark.parametrize("recipe", RECIPES)
each_case = pytest.mark.parametrize("case", CASES)


def estimator(recipe, p):
    options = dict(RECIPES[recipe])
    if options.get("n_components", 0) is None:
        options["n_components"] = p
    return Daniel(random_state=0, **options)


def check_finite(model, X, rows=1000):
    """Everything a user can ask of the model is a finite number."""
    head = X[:rows]
    p = X.shape[1]
    probability, score = model.conditional_proba(head), model.score(X)
    for name, found in {
        "U_": model.U_,
        "V_": model.V_,
        "embedding_": model.embedding_,
        "theta_": model.theta_,
        "intercept_": model.intercept_,
        "penalty_": model.penalty_,
        "loss_curve_": model.loss_curve_,
        "conditional_proba": probability,
        "transform": model.transform(head),
        "score": score,
        "similarity": model.similar(0)["similarity"] if p > 1 else 0.0,
    }.items():
        assert np.isfinite(found).all(), name
    assert probability.shape == head.shape
    assert (probability >= 0).all() and (probability <= 1).all()
    assert score < 1e-3  # a log-probability; logits in the thousands are rounded in float32
    assert model.theta_.shape == (p, p)


def fit_as_told(model, X, sites):
    """Fit; where the paper's fixed step diverges, with smaller ones, as the error says."""
    for _ in range(10):
        try:
            return model.fit(X, sites=sites)
        except DivergenceError as error:
            assert model.recipe == "paper"  # a line search does not diverge
            assert f"eta = {model.step_size:.3g};" in str(error) and "eta_ineq" in str(error)
            assert str(error).endswith("use a smaller step_size.") and "\n" not in str(error)
            assert error.bound > 0
            model.set_params(step_size=min(error.bound, model.step_size / 2))
    raise AssertionError("the advised steps lead nowhere")


@each_case
@each_recipe
def test_hard_input(case, recipe):
    X, sites = CASES[case]
    model = estimator(recipe, X.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for labels in (None,) if sites is None else (None, sites):
            fit_as_told(model, X, labels)
            check_finite(model, X)


@each_case
def test_hard_input_as_sparse(case):
    X, sites = CASES[case]
    dense = Daniel(random_state=0).fit(X, sites=sites)
    sparse = Daniel(random_state=0).fit(sp.csr_array(X), sites=sites)
    np.testing.assert_array_equal(sparse.theta_, dense.theta_)


# --- that the answers make sense ------------------------------------------------------------------


def test_constant_codes_keep_their_prevalence():
    """One pseudo-record: never present is rare, always present is common, and nothing couples."""
    for value in (0, 1):
        model = Daniel(random_state=0).fit(changed(EVERYTHING, 0, value))
        probability = model.conditional_proba(base())[:, 0]
        assert (np.abs(probability - value) < 0.02).all()
        assert (probability != value).all()
        others = model.theta_[1:, 0]
        assert np.abs(others).max() < 0.05


def test_constant_column_leaves_the_others_alone():
    X = base()
    X[:, 1] = np.where(np.random.default_rng(1).random(N) < 0.8, X[:, 2], X[:, 1])  # a real pair
    alone = Daniel(penalty=0.1, random_state=0).fit(X)
    beside = Daniel(penalty=0.1, random_state=0).fit(np.hstack([X, np.zeros((N, 1))]))
    off = ~np.eye(P, dtype=bool)
    np.testing.assert_allclose(beside.theta_[:P, :P][off], alone.theta_[off], atol=0.02)
    assert alone.theta_[1, 2] > 0.3


def test_duplicate_columns_are_each_others_nearest():
    model = Daniel(random_state=0).fit(np.hstack([base(), base()]))
    for j in range(P):
        assert model.similar(j, n=1)["code"][0] == j + P
        assert model.conditional_proba(np.eye(2 * P)[[j]], [j + P]) > 0.5


def test_independent_codes_do_not_couple():
    model = Daniel(random_state=0).fit(base(5000, 10))
    assert np.abs(model.theta_[~np.eye(10, dtype=bool)]).max() < 0.05


def test_all_zero_matrix_has_no_couplings():
    model = Daniel(random_state=0).fit(np.zeros((50, 6)))
    assert np.abs(model.theta_[~np.eye(6, dtype=bool)]).max() < 1e-3
    assert (model.conditional_proba(np.zeros((1, 6))) < 0.02).all()


def test_site_with_one_record_changes_little():
    X, sites = one_record_at_a_site()
    with_it = Daniel(penalty=0.1, random_state=0).fit(X, sites=sites)
    without = Daniel(penalty=0.1, random_state=0).fit(X[sites == "hub"])
    np.testing.assert_allclose(with_it.theta_, without.theta_, atol=0.1)


# --- large inputs ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "many"),
    [("natural", False), ("natural", True), ("paper", False)],
    ids=["pooled", "sites", "paper"],
)
def test_a_million_records_of_twenty_codes(recipe, many):
    """Identical records are merged, so a sweep costs what the few different ones cost."""
    n, p = 1_000_000, 20
    rng = np.random.default_rng(0)
    sick = rng.random((n, 1), dtype=np.float32) < 0.1
    X = rng.random((n, p), dtype=np.float32) < np.where(sick & (np.arange(p) < 10), 0.3, 0.03)
    begin = time.perf_counter()
    model = Daniel(recipe=recipe, random_state=0).fit(X, sites=np.arange(n) % 4 if many else None)
    assert time.perf_counter() - begin < 60  # 3 s on two idle cores
    check_finite(model, X)
    together = model.theta_[:10, :10][~np.eye(10, dtype=bool)]
    assert recipe == "paper" or together.min() > 0.1 > np.abs(model.theta_[:10, 10:]).max()


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("density", [0, 0.1, 1])
def test_hardly_any_records_of_many_codes(n, density):
    """Above some hundred codes spectra are found by iteration, also that of a zero matrix."""
    X = base(n, 500, density)
    check_finite(Daniel(random_state=0).fit(X), X)


@pytest.mark.slow
@pytest.mark.parametrize("p", [5000, 400], ids=["pooled", "sites"])
def test_fifty_records_of_thousands_of_codes(p):
    X = base(50, p, 0.02)
    model = Daniel(random_state=0).fit(X, sites=np.arange(50) % 3 if p == 400 else None)
    check_finite(model, X)
