"""The convex baselines against a plain loop with singular values."""

import numpy as np
import pytest

from daniel.core.baselines import hard, positive, projected_descent, soft, top
from daniel.core.paper import symmetric_derivative
from daniel.core.records import records_from

P, ETA = 9, 0.15


@pytest.fixture(scope="module")
def X():
    """±1 records of two kinds of patients, with codes of different prevalence."""
    rng = np.random.default_rng(3)
    kind = rng.random((500, 1)) < 0.5
    chance = np.where(kind, np.linspace(0.9, 0.2, P), np.linspace(0.2, 0.6, P))
    return 2.0 * (rng.random((500, P)) < chance) - 1


def records(X):
    return records_from((X + 1) / 2)


def svd_soft(theta, level=0.05):
    left, value, right = np.linalg.svd(theta)
    return (left * np.maximum(value - level, 0)) @ right


def svd_hard(theta, level=0.2):
    left, value, right = np.linalg.svd(theta)
    return (left * np.where(value > level, value, 0)) @ right


def svd_top(theta, d=2):
    left, value, right = np.linalg.svd(theta)
    return (left[:, :d] * value[:d]) @ right[:d]


def psd_part(theta):
    """Nearest positive semidefinite matrix, by Higham's formula with the polar factor."""
    _, value, right = np.linalg.svd(theta)
    return (theta + (right.T * value) @ right) / 2


METHODS = {
    "soft": (soft(0.05), svd_soft),
    "hard": (hard(0.2), svd_hard),
    "top": (top(2), svd_top),
    "psd": (positive, psd_part),
}
methods = pytest.mark.parametrize(("spectrum", "project"), METHODS.values(), ids=METHODS)


def plain_descent(W, project, *, radius, max_iter, tol, start=None):
    theta = np.zeros((P, P)) if start is None else start
    for iteration in range(1, max_iter + 1):
        following = project(theta - ETA * W(theta))
        following *= min(1, radius / max(np.linalg.norm(following), 1e-300))
        moved = np.linalg.norm(following - theta)
        theta = following
        if moved < tol:
            return theta, iteration, True
    return theta, max_iter, False


@methods
@pytest.mark.parametrize("radius", [8.0, 0.5])
@pytest.mark.parametrize("max_iter", [1, 60])
def test_descent_is_the_plain_loop(spectrum, project, radius, max_iter, X, plain):
    wanted, iterations, converged = plain_descent(
        lambda t: plain.paper_W(t, X), project, radius=radius, max_iter=max_iter, tol=1e-3
    )
    found = projected_descent(
        records(X), spectrum, step_size=ETA, max_iter=max_iter, tol=1e-3, radius=radius
    )
    np.testing.assert_allclose(found.theta, wanted, atol=1e-10)
    assert (found.n_iter, found.converged) == (iterations, converged)
    assert np.linalg.norm(found.theta) <= radius * (1 + 1e-12)


@methods
def test_the_projections_do_something_here(spectrum, project, X, plain):
    """Each spectrum changes the plain step, so the test above tells them apart."""
    step = -ETA * plain.paper_W(np.zeros((P, P)), X)
    value, vector = np.linalg.eigh(step)
    np.testing.assert_allclose((vector * spectrum(value)) @ vector.T, project(step), atol=1e-12)
    assert np.linalg.norm(project(step) - step) > 1e-3


@methods
def test_distributed_descent_follows_the_corrected_derivative(spectrum, project, X, plain):
    """A hub of 100 of the 500 records: its W, plus all records' at Theta0, minus its own there."""
    hub = X[:100]
    rng = np.random.default_rng(0)
    theta0 = plain.symmetric_theta(P, rng, size=0.1)
    correction = plain.paper_W(theta0, X) - plain.paper_W(theta0, hub)
    assert np.linalg.norm(correction) > 0.1
    wanted, *_ = plain_descent(
        lambda t: plain.paper_W(t, hub) + correction,
        project,
        radius=8.0,
        max_iter=40,
        tol=0.0,
        start=theta0,
    )
    found = projected_descent(
        records(hub),
        spectrum,
        step_size=ETA,
        max_iter=40,
        tol=0.0,
        radius=8.0,
        start=theta0,
        correction=correction,
    )
    np.testing.assert_allclose(found.theta, wanted, atol=1e-10)
    alone = projected_descent(
        records(hub), spectrum, step_size=ETA, max_iter=40, tol=0.0, radius=8.0, start=theta0
    )
    assert np.linalg.norm(alone.theta - found.theta) > 1e-2


def test_the_first_distributed_step_is_the_centralised_one(X, plain):
    theta0 = plain.symmetric_theta(P, np.random.default_rng(1), size=0.1)
    hub = records(X[:100])
    correction = symmetric_derivative(records(X), theta0) - symmetric_derivative(hub, theta0)
    one, all_records = (
        projected_descent(
            who, soft(0.05), step_size=ETA, max_iter=1, tol=0.0, radius=8.0, start=theta0, **extra
        )
        for who, extra in ((hub, {"correction": correction}), (records(X), {}))
    )
    np.testing.assert_allclose(one.theta, all_records.theta, atol=1e-12)


def test_a_step_that_is_too_long_ends_on_the_ball_and_stays_finite(X):
    found = projected_descent(
        records(X), hard(0.0), step_size=50.0, max_iter=100, tol=1e-5, radius=8.0
    )
    assert np.isfinite(found.theta).all()
    np.testing.assert_allclose(np.linalg.norm(found.theta), 8.0)
    assert not found.converged


def test_ranks_are_what_the_names_say(X):
    def rank(spectrum):
        found = projected_descent(
            records(X), spectrum, step_size=ETA, max_iter=30, tol=0.0, radius=8.0
        )
        np.testing.assert_allclose(found.theta, found.theta.T, atol=1e-12)
        return np.linalg.matrix_rank(found.theta, tol=1e-9), np.linalg.eigvalsh(found.theta)[0]

    assert rank(top(2))[0] == 2
    assert rank(top(P))[0] == P
    assert 0 < rank(soft(0.05))[0] < P
    assert rank(positive)[1] > -1e-12


def test_spectra_keep_the_sign_of_an_eigenvalue():
    value = np.array([-3.0, -0.5, 0.0, 0.2, 2.0])
    np.testing.assert_allclose(soft(1.0)(value), [-2, 0, 0, 0, 1])
    np.testing.assert_allclose(hard(0.5)(value), [-3, 0, 0, 0, 2])
    np.testing.assert_allclose(top(2)(value), [-3, 0, 0, 0, 2])
    np.testing.assert_allclose(top(3)(value), [-3, -0.5, 0, 0, 2])
    np.testing.assert_allclose(positive(value), [0, 0, 0, 0.2, 2])


def test_descent_leaves_the_start_alone(X, plain):
    theta0 = plain.symmetric_theta(P, np.random.default_rng(1), size=0.1)
    before = theta0.copy()
    projected_descent(
        records(X), soft(0.05), step_size=ETA, max_iter=3, tol=0.0, radius=0.1, start=theta0
    )
    np.testing.assert_array_equal(theta0, before)
