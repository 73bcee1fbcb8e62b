"""Daniel from records to answers: exact identities, recovery of planted models, files."""

import json
import os
import pickle
import warnings
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file
from scipy.special import expit

from daniel import CodeMatrix, Daniel, FormatError, InputError, ParameterError, modelfile
from daniel.core.ising import reference_conditional, reference_loss
from daniel.errors import DivergenceError

P = 12
NAMES = [f"code{j:02d}" for j in range(P)]
N = 12_000


def two_blocks(p=P, weight=0.12, intercept=-0.3):
    """Theta whose codes of one half go together."""
    half = np.arange(p) < p // 2
    theta = np.where(half[:, None] == half, weight, 0.0)
    np.fill_diagonal(theta, intercept)
    return theta


def states(theta):
    """All x in {-1, 1}^p and their probabilities: sum over unordered pairs, plus intercepts."""
    X = np.array(list(product((-1.0, 1.0), repeat=len(theta))))
    energy = np.einsum("ij,jk,ik->i", X, np.triu(theta, 1), X) + X @ np.diag(theta)
    weight = np.exp(energy - energy.max())
    return X, weight / weight.sum()


def draw(theta, n, seed=0):
    """Independent ±1 records of the exact law."""
    X, probability = states(theta)
    return X[np.random.default_rng(seed).choice(len(X), n, p=probability)]


def off(theta):
    return theta - np.diag(np.diag(theta))


def distance(found, wanted):
    """Relative distance of couplings."""
    return np.linalg.norm(off(found) - off(wanted)) / np.linalg.norm(off(wanted))


RECORDS = draw(two_blocks(), N)  # ±1
SITES = np.random.default_rng(1).choice(["s0", "s1", "s2", "s3"], N, p=[0.4, 0.3, 0.2, 0.1])


@pytest.fixture
def X():
    """±1 records of two blocks."""
    return RECORDS.copy()


@pytest.fixture
def sites():
    """Four sites, "s0" the largest, in random order of records."""
    return SITES.copy()


@pytest.fixture
def pooled():
    return fitted("natural")


@pytest.fixture
def one_shot():
    return fitted("natural", many=True)


TIED = {"tied", "paper"}  # theta_jj = (UV')_jj
RECIPES = {
    "natural": {},
    "given width": {"n_components": 5},
    "shared": {"intercept": "shared"},
    "tied": {"intercept": "tied"},
    "model": {"surrogate": "model"},
    "paper": {"recipe": "paper", "n_components": 3},
}
each_recipe = pytest.mark.parametrize("recipe", RECIPES)
with_and_without_sites = pytest.mark.parametrize("many", [False, True], ids=["pooled", "sites"])


@cache
def fitted(recipe, many=False, *, names=False):
    """One fit of each kind for all tests that only look at it."""
    table = pd.DataFrame(RECORDS, columns=NAMES) if names else RECORDS
    return Daniel(random_state=0, **RECIPES[recipe]).fit(table, sites=SITES if many else None)


# --- what a fit holds -----------------------------------------------------------------------------


@each_recipe
@with_and_without_sites
def test_fitted_attributes(X, many, recipe):
    model = fitted(recipe, many)
    d = RECIPES[recipe].get("n_components")
    width = model.U_.shape[1]
    assert model.U_.shape == model.V_.shape == (P, width)
    assert model.embedding_.shape == (P, d if d else model.embedding_.shape[1])
    assert 1 <= model.embedding_.shape[1] <= 2 * width
    assert model.theta_.shape == (P, P)
    assert model.intercept_.shape == (P,)
    assert model.n_features_in_ == P
    assert isinstance(model.rank_, int) and 1 <= model.rank_ <= width
    assert isinstance(model.converged_, bool)
    assert 1 <= model.n_iter_ <= model.max_iter
    assert len(model.loss_curve_) == model.n_iter_ + 1
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert (model.penalty_ == 0) == (recipe == "paper")
    assert model.transform(X[:5]).shape == (5, d or model.transform(X).shape[1])
    assert 1 <= model.transform(X).shape[1] <= width
    assert hasattr(model, "sites_") == hasattr(model, "hub_") == many
    assert not hasattr(model, "feature_names_in_")


@each_recipe
@with_and_without_sites
def test_theta_is_factored_and_symmetric(many, recipe):
    model = fitted(recipe, many)
    theta = model.theta_
    np.testing.assert_allclose(off(model.U_ @ model.V_.T), off(theta), atol=1e-6)
    np.testing.assert_allclose(theta, theta.T, atol=1e-12)
    signs = np.sign((model.U_ * model.V_).sum(axis=0))  # Remark 1: V = U D
    np.testing.assert_allclose(model.V_, model.U_ * np.where(signs < 0, -1, 1), atol=1e-9)
    same = np.allclose(np.diag(model.U_ @ model.V_.T), np.diag(theta), atol=1e-6)
    assert same == (recipe in TIED)


@each_recipe
@with_and_without_sites
def test_probabilities_and_score_are_those_of_theta(X, many, recipe):
    """Whatever its own coordinates, a fit is the model of its theta_."""
    model = fitted(recipe, many)
    records = X[:300]
    wanted = reference_conditional(model.theta_, records)
    np.testing.assert_allclose(model.conditional_proba(records), wanted, atol=2e-6)
    assert model.score(X) == pytest.approx(-reference_loss(model.theta_, X), rel=1e-6)
    assert model.score(records) == pytest.approx(-reference_loss(model.theta_, records), rel=1e-6)


@each_recipe
def test_intercepts_are_log_odds_at_the_centre(X, recipe):
    """With every other code at its centre, a logit is the intercept: theta_ says the same."""
    model = fitted(recipe)
    center = np.zeros(P) if recipe in TIED else 2 * ((X > 0).sum(axis=0) + 0.5) / (N + 1) - 1
    logit = 2 * (np.diag(model.theta_) + center @ off(model.theta_))
    np.testing.assert_allclose(model.intercept_, logit, atol=1e-4)


def test_conditional_of_some_features(X, pooled):
    named = fitted("natural", names=True)
    everything = named.conditional_proba(X[:50])
    for features in (
        ["code07", "code02"],
        np.array(["code07", "code02"]),
        [7, 2],
        [np.int64(7), 2],
    ):
        some = named.conditional_proba(X[:50], features)
        np.testing.assert_allclose(some, everything[:, [7, 2]], atol=1e-6)
    np.testing.assert_array_equal(named.conditional_proba(X[:50], ["code07", 2]), some)
    np.testing.assert_allclose(
        named.conditional_proba(X[:50], "code07"), everything[:, [7]], atol=1e-6
    )
    np.testing.assert_allclose(
        pooled.conditional_proba(X[:50], [7]), pooled.conditional_proba(X[:50])[:, [7]], atol=1e-6
    )
    assert named.conditional_proba(X[:50], []).shape == (50, 0)


@each_recipe
def test_conditional_does_not_see_the_code_itself(X, recipe):
    model = fitted(recipe)
    records = X[:40]
    for j in range(P):
        with_code, without = records.copy(), records.copy()
        with_code[:, j], without[:, j] = 1, -1
        np.testing.assert_allclose(
            model.conditional_proba(with_code, [j]),
            model.conditional_proba(without, [j]),
            atol=1e-6,
        )
        others = np.delete(np.arange(P), j)  # but what it says of the others changes
        changed = model.conditional_proba(with_code, others) - model.conditional_proba(
            without, others
        )
        assert np.abs(changed).max() > 1e-3


def _distances(Y):
    return np.linalg.norm(Y[:, None] - Y, axis=2)


def test_transform_is_the_latent_mean(X, pooled):
    """U'x (paper); U'(z - mean)/scale (natural), the same up to a shift and the unit of U."""
    paper = Daniel(3, recipe="paper").fit(X)
    np.testing.assert_allclose(paper.transform(X[:20]), X[:20] @ paper.U_, atol=1e-12)
    found = pooled.transform(X[:20])
    positive = pooled.U_[:, : found.shape[1]]
    wanted = X[:20] @ positive  # on other axes: distances are the same
    np.testing.assert_allclose(_distances(found), _distances(wanted), atol=1e-4)
    np.testing.assert_allclose(pooled.transform(X).mean(axis=0), 0, atol=1e-3)


@pytest.mark.parametrize("weight", [0.15, -0.25], ids=["latent", "excluding"])
def test_samples_have_the_moments_of_the_model(weight):
    """At p = 6 the fitted law can be enumerated; codes that exclude each other are no UU'."""
    theta = np.full((6, 6), weight)
    np.fill_diagonal(theta, np.linspace(-0.4, 0.2, 6))
    d = 2 if weight > 0 else 4  # a fourth column may be negative
    model = Daniel(d, penalty=0, random_state=0).fit(draw(theta, 20_000, seed=4))
    assert np.array_equal(model.U_, model.V_) == (weight > 0)
    assert distance(model.theta_, theta) < 0.2
    all_states, probability = states(model.theta_)
    n = 30_000
    sample = 2.0 * model.sample(n, sweeps=40, random_state=1) - 1
    np.testing.assert_allclose(sample.mean(axis=0), probability @ all_states, atol=5 / np.sqrt(n))
    second = (all_states * probability[:, None]).T @ all_states
    np.testing.assert_allclose(sample.T @ sample / n, second, atol=5 / np.sqrt(n))


def test_sample_is_binary_and_reproducible(pooled):
    first = pooled.sample(50, random_state=3)
    assert first.shape == (50, P)
    assert set(np.unique(first)) <= {0, 1}
    np.testing.assert_array_equal(first, pooled.sample(50, random_state=3))
    assert not np.array_equal(first, pooled.sample(50, random_state=4))
    for n in (0, -1, 2.5, "2"):
        with pytest.raises(ParameterError, match="n is"):
            pooled.sample(n)


# --- recovery -------------------------------------------------------------------------------------


def test_pooled_fit_recovers_the_planted_model(pooled):
    assert distance(pooled.theta_, two_blocks()) < 0.15
    np.testing.assert_allclose(np.diag(pooled.theta_), -0.3, atol=0.1)
    assert pooled.converged_


@pytest.mark.parametrize("surrogate", ["hub", "model"])
@pytest.mark.parametrize("intercept", ["site", "shared"])
def test_one_shot_fit_recovers_the_planted_model(X, sites, pooled, surrogate, intercept):
    model = Daniel(surrogate=surrogate, intercept=intercept, random_state=0).fit(X, sites=sites)
    assert distance(model.theta_, two_blocks()) < 0.15
    assert distance(model.theta_, pooled.theta_) < 0.02
    np.testing.assert_allclose(np.diag(model.theta_), -0.3, atol=0.1)
    smallest = Daniel(surrogate=surrogate, intercept=intercept, random_state=0).fit(
        X, sites=sites, hub="s3"
    )
    alone = Daniel(intercept=intercept, random_state=0).fit(X[sites == "s3"])
    assert distance(smallest.theta_, two_blocks()) < 0.5 * distance(alone.theta_, two_blocks())


@pytest.mark.parametrize(
    "options",
    [{"intercept": "tied"}, {"recipe": "paper", "n_components": 2, "max_iter": 400}],
    ids=["tied", "paper"],
)
def test_tied_fits_recover_a_tied_model(sites, options):
    """The paper's theta_jj = (UV')_jj: a planted rank-2 Theta, diagonal and all."""
    theta = two_blocks(intercept=0.12)
    X = draw(theta, N, seed=2)
    for labels, most in ((None, 0.1), (sites, 0.15)):
        model = Daniel(random_state=0, **options).fit(X, sites=labels)
        assert np.linalg.norm(model.theta_ - theta) / np.linalg.norm(theta) < most


def test_embedding_shows_the_blocks(pooled, one_shot):
    half = np.arange(P) < P // 2
    for model in (pooled, one_shot):
        unit = model.embedding_ / np.linalg.norm(model.embedding_, axis=1, keepdims=True)
        cosine = unit @ unit.T
        assert off(cosine)[half[:, None] == half][: P - 1].min() >= 0
        within = cosine[(half[:, None] == half) & ~np.eye(P, dtype=bool)]
        between = cosine[half[:, None] != half]
        assert within.min() > between.max() + 0.3


def test_negative_components_stay_out_of_the_embedding():
    """Six codes that exclude each other are one negative component, which relates nothing."""
    theta = np.zeros((8, 8))
    theta[:6, :6] = -0.25
    np.fill_diagonal(theta, -0.1)
    model = Daniel(8, random_state=0).fit(draw(theta, 10_000))
    assert distance(model.theta_, theta) < 0.25
    negative = (model.V_ == -model.U_).all(axis=0) & model.U_.any(axis=0)
    assert negative.sum() == 1
    assert model.embedding_.shape == (8, 8)
    rows = model.embedding_[:6] / np.linalg.norm(model.embedding_[:6], axis=1, keepdims=True)
    assert (rows @ rows.T)[np.triu_indices(6, 1)].max() < 0


def test_site_intercepts_take_up_different_prevalence():
    """Independent codes, rare at the hub and common elsewhere: shared intercepts must explain that
    by couplings, a site's own ones need none, and the model still has the study's prevalences."""
    rng = np.random.default_rng(0)
    sites = np.repeat(["hub", "other"], [3500, 2500])
    X = rng.random((6000, 8)) < np.where(sites == "hub", 0.1, 0.5)[:, None]
    own = Daniel(random_state=0).fit(X, sites=sites)
    shared = Daniel(intercept="shared", random_state=0).fit(X, sites=sites)
    no_sites = Daniel(random_state=0).fit(X)
    for other in (shared, no_sites):
        assert np.linalg.norm(off(own.theta_)) < 0.25 * np.linalg.norm(off(other.theta_))
    assert own.hub_ == "hub"
    np.testing.assert_allclose(own.conditional_proba(X).mean(axis=0), X.mean(axis=0), atol=0.03)


def test_small_hub_falls_back_on_the_model_surrogate():
    """With hardly more records than codes at the hub, its curvature is not used."""
    X = draw(two_blocks(), 240, seed=5)
    sites = np.arange(240) % 24  # 10 records a site, 12 codes
    hub, model = (
        Daniel(surrogate=surrogate, random_state=0).fit(X, sites=sites)
        for surrogate in ("hub", "model")
    )
    np.testing.assert_array_equal(hub.theta_, model.theta_)
    large = np.arange(240) % 2
    hub, model = (
        Daniel(surrogate=surrogate, random_state=0).fit(X, sites=large)
        for surrogate in ("hub", "model")
    )
    assert not np.array_equal(hub.theta_, model.theta_)


def test_damping_holds_to_the_start(X, sites):
    """Strong damping leaves the hub's own start, none of it follows the other sites."""
    loose, tight = (
        Daniel(damping=damping, random_state=0).fit(X, sites=sites, hub="s3").theta_
        for damping in (0.0, 1e6)
    )
    alone = Daniel(random_state=0).fit(X[sites == "s3"]).theta_
    assert distance(tight, alone) < 0.5 * distance(loose, alone)


def test_penalty_shrinks(X):
    norms = [
        np.linalg.norm(off(Daniel(penalty=penalty, random_state=0).fit(X).theta_))
        for penalty in (0, 0.05, 0.2, 10)
    ]
    assert norms[0] > norms[1] > norms[2] > norms[3]
    assert norms[3] < 1e-3 * norms[0]
    model = Daniel(penalty=0.2, random_state=0).fit(X)
    assert model.penalty_ == 0.2


# --- the paper's recipe ---------------------------------------------------------------------------


def plain_W(theta, X):
    """Eq. (B_star), record by record."""
    p = len(theta)
    W = np.zeros((p, p))
    for x in X:
        M = np.array(
            [theta[j, j] + sum(theta[k, j] * x[k] for k in range(p) if k != j) for j in range(p)]
        )
        B = -expit(-2 * x * M)
        W += np.where(np.eye(p), np.diag(2 * x * B), 2 * np.outer(x, x) * (B[:, None] + B))
    return W / len(X)


def algorithm_1(hub, others, d, eta, max_iter, tol):
    """The paper's Algorithm 1 with whole matrices and singular vectors, n_i-weighted."""
    p = hub.shape[1]
    theta = np.zeros((p, p))
    for _ in range(5):
        theta = theta - eta * plain_W(theta, hub)
    left, value, right = np.linalg.svd(theta)
    U, V = left[:, :d] * np.sqrt(value[:d]), right[:d].T * np.sqrt(value[:d])
    start = U @ V.T
    sizes = np.array([len(x) for x in (hub, *others)])
    all_W = [plain_W(start, x) for x in (hub, *others)]
    correction = np.tensordot(sizes / sizes.sum(), all_W, 1) - all_W[0]
    iteration, moved = 0, np.inf
    while iteration < max_iter and moved >= tol:
        iteration += 1
        W = plain_W(U @ V.T, hub) + correction
        gap = U.T @ U - V.T @ V
        U_new, V_new = U - eta * (W @ V + U @ gap), V - eta * (W.T @ U - V @ gap)
        moved = np.linalg.norm(U_new @ V_new.T - U @ V.T)
        U, V = U_new, V_new
    return U @ V.T, iteration


@pytest.mark.parametrize(
    "sizes", [[80], [40, 40, 40], [50, 30, 9]], ids=["one", "equal", "unequal"]
)
def test_paper_recipe_is_algorithm_1(sizes):
    p, d, eta = 7, 2, 0.1
    rng = np.random.default_rng(3)
    theta = (A := rng.normal(size=(p, 2)) * 0.4) @ A.T
    X = draw(theta, sum(sizes), seed=7)
    sites = np.repeat(np.arange(len(sizes)), sizes)
    hub, *others = (X[sites == i] for i in range(len(sizes)))
    wanted, iterations = algorithm_1(hub, others, d, eta, 60, 1e-5)
    model = Daniel(d, recipe="paper", step_size=eta, max_iter=60, tol=1e-5)
    model.fit(X, sites=sites if others else None)
    assert np.linalg.norm(model.theta_ - wanted) < 1e-8 * np.linalg.norm(wanted)
    assert model.n_iter_ == iterations
    assert model.U_.dtype == np.float64


def test_paper_recipe_names_step_and_bound_when_it_diverges(X):
    with pytest.raises(DivergenceError, match=r"eta = 50.*eta_ineq\) allows at most \d") as caught:
        Daniel(2, recipe="paper", step_size=50.0).fit(X)
    assert caught.value.eta == 50
    assert 0 < caught.value.bound < 1


def test_paper_recipe_takes_a_tenth_of_the_codes():
    X = np.random.default_rng(0).random((300, 30)) < 0.5
    assert Daniel(recipe="paper").fit(X).embedding_.shape == (30, 3)
    assert Daniel(recipe="paper").fit(X[:, :5]).embedding_.shape == (5, 1)


# --- input of every kind --------------------------------------------------------------------------


def all_kinds(Z):
    """The same records in every form that `fit` takes."""
    unsorted = sp.csr_array(Z[:, ::-1])
    unsorted.indices = P - 1 - unsorted.indices  # rows of falling column numbers
    unsorted.has_sorted_indices = False
    coo = sp.coo_array(Z)
    twice = sp.coo_array(
        (np.tile(coo.data, 2), (np.tile(coo.row, 2), np.tile(coo.col, 2))), shape=Z.shape
    )
    often = np.repeat(np.arange(coo.nnz), 256)  # as often as makes a byte of ones zero
    many = sp.coo_array(
        (np.ones(often.size, np.uint8), (coo.row[often], coo.col[often])), shape=Z.shape
    )
    repeats = sp.csr_array(
        (np.ones(2 * coo.nnz), np.repeat(sp.csr_array(Z).indices, 2), 2 * sp.csr_array(Z).indptr),
        shape=Z.shape,
    )
    nulls = sp.csr_array(np.ones_like(Z))
    nulls.data[:] = Z.ravel()  # absent codes stored as zeros
    return {
        "int": Z.astype(int),
        "uint8": Z.astype(np.uint8),
        "float32": Z.astype(np.float32),
        "signed": 2 * Z - 1,
        "signed int8": (2 * Z - 1).astype(np.int8),
        "bool": Z.astype(bool),
        "object": Z.astype(int).astype(object),
        "list": Z.astype(int).tolist(),
        "fortran": np.asfortranarray(Z),
        "csr": sp.csr_array(Z),
        "csr matrix": sp.csr_matrix(Z),
        "csc": sp.csc_array(Z),
        "coo": coo,
        "lil": sp.lil_array(Z),
        "bool csr": sp.csr_array(Z.astype(bool)),
        "unsorted csr": unsorted,
        "coo with repeats": twice,
        "coo with very many repeats": many,
        "csr with repeats": repeats,
        "stored zeros": nulls,
        "pandas": pd.DataFrame(Z, columns=NAMES),
        "pandas bool": pd.DataFrame(Z.astype(bool), columns=NAMES),
        "pandas nullable": pd.DataFrame(Z.astype(bool), columns=NAMES).astype("boolean"),
        "pandas signed": pd.DataFrame(2 * Z - 1, columns=NAMES),
        "pandas numbered": pd.DataFrame(Z),
        "polars": pl.DataFrame(Z, schema=NAMES),
        "polars bool": pl.DataFrame(Z.astype(bool), schema=NAMES),
        "CodeMatrix": CodeMatrix(sp.csr_array(Z), tuple(NAMES)),
    }


Z_SMALL = (draw(two_blocks(), 400, seed=9) > 0).astype(float)
KINDS = all_kinds(Z_SMALL)


@pytest.fixture(scope="module")
def small():
    return Daniel(random_state=0).fit(Z_SMALL)


@pytest.mark.parametrize("kind", KINDS)
def test_input_kinds_give_one_result(kind, small):
    X = KINDS[kind]
    model = Daniel(random_state=0).fit(X)
    np.testing.assert_array_equal(model.theta_, small.theta_)
    np.testing.assert_array_equal(model.transform(X), small.transform(Z_SMALL))
    np.testing.assert_array_equal(small.conditional_proba(X), small.conditional_proba(Z_SMALL))
    assert model.score(X) == small.score(Z_SMALL)
    named = kind.startswith("pandas") or kind.startswith("polars") or kind == "CodeMatrix"
    if named and kind != "pandas numbered":
        assert model.feature_names_in_.tolist() == NAMES
    else:
        assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("kind", ["unsorted csr", "csr with repeats", "stored zeros", "fortran"])
def test_input_stays_as_it_was(kind):
    X = all_kinds(Z_SMALL)[kind]
    before = X.copy()
    Daniel(random_state=0).fit(X).transform(X)
    assert abs(X - before).sum() == 0
    if kind in ("unsorted csr", "csr with repeats"):
        np.testing.assert_array_equal(X.indices, before.indices)
        np.testing.assert_array_equal(X.indptr, before.indptr)


def test_columns_are_aligned_by_name():
    frame = pd.DataFrame(Z_SMALL, columns=NAMES)
    model = Daniel(random_state=0).fit(frame)
    order = np.random.default_rng(0).permutation(P)
    for other in (
        frame.iloc[:, order],
        pl.DataFrame(Z_SMALL[:, order], schema=[NAMES[j] for j in order]),
        CodeMatrix(sp.csr_array(Z_SMALL[:, order]), tuple(NAMES[j] for j in order)),
    ):
        np.testing.assert_allclose(model.transform(other), model.transform(frame), atol=1e-6)
        np.testing.assert_array_equal(
            model.conditional_proba(other, ["code03"]), model.conditional_proba(frame, ["code03"])
        )
        assert model.score(other) == model.score(frame)
    swapped = frame.to_numpy()[:, order]  # without names the order must be that of the fit
    assert not np.allclose(model.transform(swapped), model.transform(frame))


def test_order_of_records_does_not_matter(X, sites, one_shot):
    order = np.random.default_rng(8).permutation(N)
    model = Daniel(random_state=0).fit(X[order], sites=sites[order])
    assert distance(model.theta_, one_shot.theta_) < 1e-4


def test_order_and_type_of_site_labels_do_not_matter(X, sites, one_shot):
    number = np.array([int(s[1]) for s in sites])
    for labels in (
        number,
        number.astype(float),
        number.astype(str).tolist(),
        number.astype(object),
        pd.Series(sites, index=np.arange(N)[::-1]),
        pd.Categorical(sites),
        pl.Series(sites.tolist()),
        np.datetime64("2020-01-01") + number,
    ):
        model = Daniel(random_state=0).fit(X, sites=labels)
        np.testing.assert_array_equal(model.theta_, one_shot.theta_)
    renamed = np.array(["x", "d", "c", "b"])[number]  # sorted the other way round
    model = Daniel(random_state=0).fit(X, sites=renamed)
    assert distance(model.theta_, one_shot.theta_) < 1e-4
    assert (model.sites_, model.hub_) == (["b", "c", "d", "x"], "x")


def test_hub_is_the_largest_site_unless_named(X, sites, one_shot):
    assert (one_shot.sites_, one_shot.hub_) == (["s0", "s1", "s2", "s3"], "s0")
    named = Daniel(random_state=0).fit(X, sites=sites, hub="s0")
    np.testing.assert_array_equal(named.theta_, one_shot.theta_)
    other = Daniel(random_state=0).fit(X, sites=sites, hub="s2")
    assert other.hub_ == "s2"
    assert not np.array_equal(other.theta_, one_shot.theta_)
    number = np.array([int(s[1]) for s in sites])
    for hub in (2, np.int64(2), "2"):
        np.testing.assert_array_equal(
            Daniel(random_state=0).fit(X, sites=number, hub=hub).theta_, other.theta_
        )


def test_one_site_is_the_pooled_fit(X, pooled):
    model = Daniel(random_state=0).fit(X, sites=["only"] * N)
    np.testing.assert_array_equal(model.theta_, pooled.theta_)
    assert (model.sites_, model.hub_) == (["only"], "only")


# --- seeds and refits -----------------------------------------------------------------------------


@with_and_without_sites
@pytest.mark.parametrize("surrogate", ["hub", "model"])
def test_seeds(X, sites, many, surrogate):
    def theta(seed):
        model = Daniel(surrogate=surrogate, random_state=seed)
        return model.fit(X, sites=sites if many else None).theta_

    first = fitted("natural" if surrogate == "hub" else "model", many).theta_
    np.testing.assert_array_equal(theta(0), first)
    np.testing.assert_array_equal(theta(np.random.RandomState(0)), first)
    assert 0 < distance(theta(1), first) < 0.03


def test_paper_recipe_has_no_chance(X):
    models = [Daniel(2, recipe="paper", random_state=seed).fit(X) for seed in (0, 1)]
    np.testing.assert_array_equal(models[0].theta_, models[1].theta_)


def test_refit_forgets(X, sites):
    frame = pd.DataFrame(X, columns=NAMES)
    model = Daniel(random_state=0).fit(frame, sites=sites)
    assert {"sites_", "hub_", "feature_names_in_"} <= set(vars(model))
    old = model.theta_
    smaller = X[:500, :5]
    model.fit(smaller)
    fresh = Daniel(random_state=0).fit(smaller)
    assert set(vars(model)) == set(vars(fresh))
    assert model.theta_.shape == (5, 5) != old.shape
    np.testing.assert_array_equal(model.theta_, fresh.theta_)
    assert model.similar(0)["code"].tolist() == fresh.similar(0)["code"].tolist()


def test_failed_refit_leaves_no_mixture(X):
    model = Daniel(2, recipe="paper").fit(X)
    before = model.theta_
    with pytest.raises(InputError):
        model.fit(X + 1)
    np.testing.assert_array_equal(model.theta_, before)  # nothing was begun
    with pytest.raises(DivergenceError):
        model.set_params(step_size=50.0).fit(X[:, :6])
    with pytest.raises(Exception, match="not fitted"):
        model.transform(X)
    with pytest.raises(Exception, match="not fitted"):
        model.conditional_proba(X[:, :6])


# --- neighbours -----------------------------------------------------------------------------------


def test_similar():
    model = fitted("natural", names=True)
    found = model.similar("code00")
    assert list(found.columns) == ["code", "similarity"]
    assert len(found) == 10
    assert set(found["code"][:5]) == set(NAMES[1:6])
    E = model.embedding_.astype(float)
    cosine = E @ E[0] / np.linalg.norm(E, axis=1) / np.linalg.norm(E[0])
    order = 1 + np.argsort(-cosine[1:])
    assert found["code"].tolist() == [NAMES[j] for j in order[:10]]
    np.testing.assert_allclose(found["similarity"], cosine[order[:10]], atol=1e-6)
    assert model.similar("code00", n=3).equals(found[:3])
    assert model.similar(0).equals(found)
    assert len(model.similar("code00", n=100)) == P - 1


def test_similar_without_names(pooled):
    assert set(pooled.similar(P - 1, n=5)["code"]) == set(range(P // 2, P - 1))


def test_similar_refuses(pooled):
    named = fitted("natural", names=True)
    for code in ("code99", P, -1, 1.0, None, True):
        with pytest.raises(InputError, match=f"no code '{code}'.*knows {P} codes, such as 'code"):
            named.similar(code)
    for n in (0, -3, 2.0, "5"):
        with pytest.raises(ParameterError, match="n is"):
            pooled.similar(0, n=n)


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    model = fitted("given width", many=True, names=True)
    path = tmp_path / "model.safetensors"
    model.save(path)
    return model, path


@each_recipe
@with_and_without_sites
@pytest.mark.parametrize("names", [True, False], ids=["named", "unnamed"])
def test_saved_model_is_the_model(tmp_path, X, many, recipe, names):
    table = pd.DataFrame(X, columns=NAMES) if names else X
    model = fitted(recipe, many, names=names)
    path = tmp_path / "model"
    model.save(path)
    twin = Daniel.load(path)
    assert type(twin) is Daniel
    assert twin.get_params() == model.get_params()
    public = {name for name in vars(model) if name.endswith("_")}
    assert {name for name in vars(twin) if name.endswith("_")} == public
    for name in public | {"theta_"}:
        ours, theirs = getattr(model, name), getattr(twin, name)
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(theirs, ours)
        assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
    np.testing.assert_array_equal(twin.transform(table[:50]), model.transform(table[:50]))
    np.testing.assert_array_equal(
        twin.conditional_proba(table[:50], [1, 4]), model.conditional_proba(table[:50], [1, 4])
    )
    assert twin.score(table) == model.score(table)
    assert twin.similar(0).equals(model.similar(0))
    np.testing.assert_array_equal(twin.sample(20, random_state=0), model.sample(20, random_state=0))
    again = tmp_path / "again"
    twin.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_subclass_loads_as_itself(saved):
    class Own(Daniel):
        pass

    assert type(Own.load(saved[1])) is Own


def test_a_model_folder_loads_as_its_model(saved, tmp_path):
    model, path = saved
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(path.read_bytes())
    np.testing.assert_array_equal(Daniel.load(folder).theta_, model.theta_)


def test_random_state_that_is_no_number_is_not_saved(tmp_path, X):
    Daniel(2, random_state=np.random.RandomState(0)).fit(X).save(tmp_path / "model")
    assert Daniel.load(tmp_path / "model").random_state is None


def test_file_holds_no_pickle(saved, monkeypatch):
    model, path = saved

    def refuse(*args, **kwargs):
        raise AssertionError("a model file was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    np.testing.assert_array_equal(Daniel.load(path).theta_, model.theta_)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert header.pop("__metadata__").keys() == {"daniel"}
    assert {entry["dtype"] for entry in header.values()} <= {"F32", "F64"}
    assert len(raw) == 8 + length + max(entry["data_offsets"][1] for entry in header.values())


def test_file_holds_no_record(tmp_path, sites):
    """Twice the records, a file of the same size."""
    X = draw(two_blocks(), 2000, seed=1)
    sizes = []
    for records in (X, np.tile(X, (2, 1))):
        Daniel(2, random_state=0, max_iter=1, tol=0).fit(records).save(tmp_path / "model")
        sizes.append((tmp_path / "model").stat().st_size)
    assert abs(sizes[0] - sizes[1]) < 64


def rewrite(path, change_header=None, change_arrays=None, sign=True):
    """The same file with a changed header or arrays, with a digest that fits if `sign`."""
    raw = path.read_bytes()
    metadata = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    header, arrays = json.loads(metadata["daniel"]), load_file(path)
    if change_header:
        change_header(header)
    if change_arrays:
        change_arrays(arrays)
    if sign:
        del header["sha256"]
        header["sha256"] = modelfile._digest(header, arrays)
    save_file(arrays, path, metadata={"daniel": json.dumps(header)})


def refused(path):
    with pytest.raises(FormatError) as caught:
        Daniel.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert message.endswith(".") and "\n" not in message
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__  # one sentence, no traceback
    return message


@pytest.mark.parametrize("share", [0, 1e-4, 0.01, 0.3, 0.6, 0.999])
def test_truncated_file(saved, share):
    path = saved[1]
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    assert "damaged" in refused(path)


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_flipped_bit(saved, place):
    """Anywhere: in the lengths, in the header, in the numbers."""
    path = saved[1]
    raw = bytearray(path.read_bytes())
    raw[int(place * len(raw))] ^= 1
    path.write_bytes(raw)
    assert "damaged" in refused(path)


def test_every_header_byte_matters(saved):
    path = saved[1]
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    for place in range(0, 8 + len(raw[8 : 8 + length].rstrip()), 37):
        damaged = bytearray(raw)
        damaged[place] ^= 2
        path.write_bytes(damaged)
        refused(path)


def test_files_of_another_kind(saved, tmp_path):
    other = tmp_path / "other"
    for content in (b"", b"code,count\nA,3\n", pickle.dumps({"a": 1}), b"PK\x03\x04" + bytes(100)):
        other.write_bytes(content)
        assert "not a model that daniel wrote" in refused(other)
    save_file({"weight": np.zeros(3)}, other)
    assert "not a model that daniel wrote" in refused(other)
    save_file({"weight": np.zeros(3)}, other, metadata={"daniel": "[]"})
    assert "not a model that daniel wrote" in refused(other)
    save_file({"weight": np.zeros(3)}, other, metadata={"daniel": '{"format": 2}'})
    assert "damaged" in refused(other)
    assert "no model file" in refused(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert "no model file" in refused(tmp_path / "empty")


@pytest.mark.parametrize("version", [0, 1, 99, "2", None])
def test_file_of_another_version(saved, version):
    rewrite(saved[1], lambda header: header.update(format=version), sign=False)
    assert f"format {version}" in refused(saved[1])


@pytest.mark.parametrize("part", ["params", "facts", "sites", "codes"])
def test_file_without_a_part(saved, part):
    rewrite(saved[1], lambda header: header.pop(part))
    assert "incomplete" in refused(saved[1])


@pytest.mark.parametrize("array", ["U_", "_V", "_b", "embedding_", "coords.center", "coords.gain"])
def test_file_without_an_array(saved, array):
    rewrite(saved[1], change_arrays=lambda arrays: arrays.pop(array))
    assert "incomplete" in refused(saved[1])


def test_file_with_unknown_parameter(saved):
    rewrite(saved[1], lambda header: header["params"].update(rank=3))
    assert "incomplete" in refused(saved[1])


def test_rewritten_file_is_read(saved):
    """The tests above fail for their reason: an honest rewrite loads."""
    rewrite(saved[1])
    np.testing.assert_array_equal(Daniel.load(saved[1]).theta_, saved[0].theta_)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_interrupted_save_leaves_the_old_file(saved, X, monkeypatch, error):
    _, path = saved
    old = path.read_bytes()
    model = Daniel(2, random_state=1).fit(X)

    def write_half(file, data):
        with open(file, "wb") as out:
            out.write(data[: len(data) // 2])
        raise error

    def interrupt(*args, **kwargs):
        raise error

    for target, name, broken in ((Path, "write_bytes", write_half), (os, "replace", interrupt)):
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(target, name, broken)
            model.save(path)
        assert path.read_bytes() == old
        assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_save_replaces(saved, X):
    _, path = saved
    Daniel(2, random_state=1).fit(X).save(str(path))
    assert Daniel.load(str(path)).n_components == 2
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_saved_file_follows_the_umask(saved):
    """A model holds no records: colleagues may read it where they may read other files."""
    _, path = saved
    (path.parent / "other").write_bytes(b"")
    assert path.stat().st_mode == (path.parent / "other").stat().st_mode


def test_save_into_a_missing_folder(saved, tmp_path):
    with pytest.raises(InputError, match=r"folder .*nowhere does not exist"):
        saved[0].save(tmp_path / "nowhere" / "model")
    assert not (tmp_path / "nowhere").exists()


def test_save_of_an_unfitted_model(tmp_path):
    with pytest.raises(Exception, match="not fitted"):
        Daniel().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_fit_is_silent(X, sites, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Daniel(random_state=0).fit(X, sites=sites)
    assert capsys.readouterr() == ("", "")
