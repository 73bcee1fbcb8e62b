"""The paper's convex baselines against plain loops over whole matrices."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone

from daniel import InputError, ParameterError
from daniel.baselines import PSDCvx, SVHard, SVSoft, SVTopd

P = 8
ETA, STEPS = 0.1, 30


def draw(n=240, p=P, seed=0):
    """0/1 records with a latent factor, positive and negative couplings."""
    rng = np.random.default_rng(seed)
    loading = np.where(np.arange(p) % 3 == 0, -1.2, 1.0)
    return (rng.random((n, p)) < expit(rng.normal(size=(n, 1)) * loading - 0.4)).astype(float)


def W(theta, X):
    """Eq. (B_star) for ±1 records: mean of 2 x_i x_j (B_i + B_j), and 2 x_i B_i."""
    p = len(theta)
    M = np.diag(theta) + X @ (theta * (1 - np.eye(p)))
    B = -1 / (1 + np.exp(2 * X * M))
    total = np.zeros((p, p))
    for x, b in zip(X, B, strict=True):
        total += np.where(np.eye(p), np.diag(2 * x * b), 2 * np.outer(x, x) * (b[:, None] + b))
    return total / len(X)


def in_ball(theta, radius):
    return theta * min(1, radius / max(np.linalg.norm(theta), 1e-300))


def soft(theta):
    left, value, right = np.linalg.svd(theta)
    return left @ np.diag(np.maximum(value - 0.05, 0)) @ right


def hard(theta):
    left, value, right = np.linalg.svd(theta)
    return left @ np.diag(np.where(value > 0.2, value, 0)) @ right


def top(theta):
    left, value, right = np.linalg.svd(theta)
    return left[:, :2] @ np.diag(value[:2]) @ right[:2]


def positive(theta):
    value, vector = np.linalg.eigh(theta)
    return sum(max(v, 0) * np.outer(u, u) for v, u in zip(value, vector.T, strict=True))


def plain(hub, project, *, others=None, eta=ETA, steps=STEPS, tol=1e-5, radius=8.0, start=None):
    """Centralised, or with sites: 5 hub steps, one exchange of W, then the corrected descent."""
    X = 2 * hub - 1
    theta = np.zeros((X.shape[1], X.shape[1])) if start is None else start
    correction = 0.0
    if others is not None:
        for _ in range(5):
            theta = in_ball(theta - eta * W(theta, X), radius)
        everyone = [hub, *others]
        n = sum(len(part) for part in everyone)
        mean = sum(len(part) / n * W(theta, 2 * part - 1) for part in everyone)
        correction = mean - W(theta, X)
    for iteration in range(1, steps + 1):
        following = in_ball(project(theta - eta * (W(theta, X) + correction)), radius)
        moved = np.linalg.norm(following - theta)
        theta = following
        if moved < tol:
            return theta, iteration, True
    return theta, steps, False


METHODS = {
    "soft": (SVSoft(threshold=0.05, step_size=ETA, max_iter=STEPS), soft),
    "hard": (SVHard(threshold=0.2, step_size=ETA, max_iter=STEPS), hard),
    "top": (SVTopd(2, step_size=ETA, max_iter=STEPS), top),
    "psd": (PSDCvx(step_size=ETA, max_iter=STEPS), positive),
}
each_method = pytest.mark.parametrize(("model", "project"), METHODS.values(), ids=METHODS)
each_class = pytest.mark.parametrize("kind", [SVSoft, SVHard, SVTopd, PSDCvx])


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, atol=1e-9)


@each_method
def test_centralised(model, project):
    Z = draw()
    fitted = clone(model).fit(Z)
    theta, iterations, converged = plain(Z, project)
    close(fitted.theta_, theta)
    assert (fitted.n_iter_, fitted.converged_) == (iterations, converged)
    assert np.linalg.norm(theta) > 0.3  # the projection has left something


@each_method
@pytest.mark.parametrize("sizes", [[80, 80, 80], [120, 90, 30]], ids=["equal", "unequal"])
def test_distributed(model, project, sizes):
    Z = draw()
    sites = np.repeat(["a", "b", "c"], sizes)
    fitted = clone(model).fit(Z, sites=sites)
    theta, _, _ = plain(Z[sites == "a"], project, others=[Z[sites == "b"], Z[sites == "c"]])
    close(fitted.theta_, theta)
    assert np.linalg.norm(fitted.theta_ - clone(model).fit(Z[sites == "a"]).theta_) > 1e-3


@each_method
def test_named_hub(model, project):
    Z = draw()
    sites = np.repeat([0, 1, 2], 80)
    fitted = clone(model).fit(Z, sites=sites, hub=2)
    theta, _, _ = plain(Z[sites == 2], project, others=[Z[sites == 0], Z[sites == 1]])
    close(fitted.theta_, theta)


@each_method
def test_sites_like_the_hub_change_nothing(model, project):
    """With equal records everywhere the correction is zero: the hub's own descent."""
    Z = draw(90)
    sites = np.repeat([0, 1, 2], 90)
    fitted = clone(model).fit(np.tile(Z, (3, 1)), sites=sites)
    start = np.zeros((P, P))
    for _ in range(5):
        start = start - ETA * W(start, 2 * Z - 1)
    theta, _, _ = plain(Z, project, start=start)
    close(fitted.theta_, theta)


@each_method
def test_one_site_is_centralised(model, project):
    Z = draw()
    one = clone(model).fit(Z, sites=["only"] * len(Z))
    np.testing.assert_array_equal(one.theta_, clone(model).fit(Z).theta_)


@each_method
def test_until_it_stands_still(model, project):
    fitted = clone(model).set_params(max_iter=5000, tol=1e-7, step_size=0.05).fit(draw())
    assert fitted.converged_ and fitted.n_iter_ < 5000
    moved = project(fitted.theta_ - 0.05 * W(fitted.theta_, 2 * draw() - 1)) - fitted.theta_
    assert np.linalg.norm(moved) < 1e-7
    short = clone(model).set_params(max_iter=3).fit(draw())
    assert (short.n_iter_, short.converged_) == (3, False)


@each_method
def test_theta_has_the_promised_spectrum(model, project):
    theta = clone(model).fit(draw(), sites=np.arange(240) % 3).theta_
    np.testing.assert_allclose(theta, theta.T, atol=1e-12)
    value = np.linalg.eigvalsh(theta)
    size = np.sort(np.abs(value))
    if isinstance(model, SVTopd):
        assert np.linalg.matrix_rank(theta, tol=1e-10) == 2
        assert value.min() < -0.05  # largest in absolute value, of either sign
    if isinstance(model, PSDCvx):
        assert value.min() > -1e-12
        assert (value > 1e-3).sum() > 2
    if isinstance(model, SVHard):
        assert ((size < 1e-12) | (size > 0.2)).all()
        assert (size < 1e-12).any()
    if isinstance(model, SVSoft):
        assert (size < 1e-12).any()


@each_method
def test_embedding_is_the_positive_part(model, project):
    fitted = clone(model).fit(draw())
    value, vector = np.linalg.eigh(fitted.theta_)
    wanted = (vector * np.maximum(value, 0)) @ vector.T
    close(fitted.embedding_ @ fitted.embedding_.T, wanted)
    assert fitted.embedding_.shape == (P, (value > 1e-8).sum())


@each_method
@pytest.mark.parametrize("sites", [None, np.arange(240) % 3], ids=["pooled", "sites"])
def test_single_precision(model, project, sites):
    whole = clone(model).fit(draw(), sites=sites)
    fast = clone(model).set_params(dtype="float32").fit(draw(), sites=sites)
    assert fast.theta_.dtype == fast.embedding_.dtype == np.float32
    np.testing.assert_allclose(fast.theta_, whole.theta_, atol=1e-4)
    assert fast.embedding_.shape == whole.embedding_.shape


def test_wide_steps_end_on_the_ball():
    """The paper's diverging baselines saturate at the radius, and stay finite."""
    Z, sites = draw(40), np.arange(40) % 10
    for radius in (8.0, 2.5):
        for model in (SVSoft, SVHard, SVTopd, PSDCvx):
            fitted = model(step_size=50.0, radius=radius).fit(Z, sites=sites)
            assert np.linalg.norm(fitted.theta_) == pytest.approx(radius, rel=1e-9)
    assert SVSoft().radius == SVHard().radius == SVTopd().radius == PSDCvx().radius == 8


def test_ball_is_part_of_every_step():
    Z = draw()
    fitted = PSDCvx(step_size=ETA, max_iter=STEPS, radius=0.4).fit(Z)
    close(fitted.theta_, plain(Z, positive, radius=0.4)[0])
    sites = np.arange(240) % 3
    others = [Z[sites == 1], Z[sites == 2]]
    fitted = SVTopd(2, step_size=ETA, max_iter=STEPS, radius=0.4).fit(Z, sites=sites)
    close(fitted.theta_, plain(Z[sites == 0], top, others=others, radius=0.4)[0])


@each_class
def test_names_and_refit(kind):
    Z = draw()
    model = kind().fit(pd.DataFrame(Z, columns=list("abcdefgh")))
    assert model.feature_names_in_.tolist() == list("abcdefgh")
    model.fit(Z[:, :6])
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 6
    assert model.theta_.shape == (6, 6)


@each_class
@pytest.mark.parametrize(
    ("name", "values"),
    {
        "step_size": [0, -0.1, np.nan, np.inf, "big", None],
        "radius": [0, -8.0, np.nan, np.inf, None],
        "tol": [-1e-5, np.nan, None],
        "max_iter": [0, -1, 10.0, None],
        "dtype": ["float16", None, 64],
    }.items(),
)
def test_bad_parameters(kind, name, values):
    for value in values:
        with pytest.raises(ParameterError, match=f"^{name} is {value!r}; expected"):
            kind(**{name: value}).fit(draw())


@pytest.mark.parametrize("kind", [SVSoft, SVHard])
def test_bad_threshold(kind):
    for value in (-1e-3, np.nan, "auto", None):
        with pytest.raises(ParameterError, match=f"^threshold is {value!r}; expected"):
            kind(threshold=value).fit(draw())
    assert np.linalg.matrix_rank(kind(threshold=0).fit(draw()).theta_, tol=1e-6) == P


@pytest.mark.parametrize("value", [0, -1, P + 1, 2.0, "all", None])
def test_bad_number_of_components(value):
    with pytest.raises(ParameterError, match=f"^n_components is {value!r}; .* 1 to {P}"):
        SVTopd(value).fit(draw())


@each_class
def test_bad_records_and_sites(kind):
    Z = draw()
    with pytest.raises(InputError, match="column 2"):
        kind().fit(np.where(np.arange(P) == 2, 3.0, Z))
    with pytest.raises(InputError, match="239 labels"):
        kind().fit(Z, sites=["a"] * 239)
    with pytest.raises(ParameterError, match="'west'"):
        kind().fit(Z, sites=["a", "b"] * 120, hub="west")
    with pytest.raises(ParameterError, match="no sites"):
        kind().fit(Z, hub="a")


@each_class
def test_hard_inputs_stay_finite(kind):
    for Z, sites in (
        (np.zeros((10, 5)), None),
        (np.ones((10, 5)), np.arange(10) % 2),
        (draw(3), [0, 0, 1]),
        (draw(1), None),
        (draw(20, 1), np.arange(20)),
    ):
        model = kind(**({"n_components": 1} if kind is SVTopd else {})).fit(Z, sites=sites)
        assert np.isfinite(model.theta_).all() and np.isfinite(model.embedding_).all()
