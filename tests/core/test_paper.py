"""The paper's recipe against a plain implementation of Algorithm 1, written here on its own."""

import numpy as np
import pytest

from daniel.core.paper import (
    START_STEPS,
    _theta_distance,
    answer,
    finish,
    largest_curvature,
    make_start,
    mean_derivative,
    step_bound,
    symmetric_derivative,
)
from daniel.core.records import records_from
from daniel.core.sample import gibbs, gibbs_factor
from daniel.errors import DivergenceError

P, D, ETA = 12, 3, 0.1


def draw_sites(sizes, seed=0, p=P):
    """Dense 0/1 records of sites with one law: indefinite couplings, uneven intercepts."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, p, 2)) * 0.35
    theta = A @ A.T - B @ B.T
    np.fill_diagonal(theta, rng.normal(size=p) * 0.4)
    Z = gibbs(gibbs_factor(theta), np.diag(theta), sum(sizes), rng, sweeps=30)
    return np.split(Z.astype(float), np.cumsum(sizes)[:-1])


def algorithm_1(sites, d, eta, max_iter, tol, W):
    """Algorithm 1 as it is printed: singular vectors, all sites of one size, whole matrices."""
    X = [2 * Z - 1 for Z in sites]
    hub = X[0]
    theta = np.zeros((hub.shape[1], hub.shape[1]))
    for _ in range(5):
        theta = theta - eta * W(theta, hub)
    left, value, right = np.linalg.svd(theta)
    U = left[:, :d] * np.sqrt(value[:d])
    V = right[:d].T * np.sqrt(value[:d])
    theta0 = U @ V.T
    correction = sum(W(theta0, x) for x in X) / len(X) - W(theta0, hub)
    for iteration in range(1, max_iter + 1):
        theta = U @ V.T
        gradient = W(theta, hub) + correction
        gap = U.T @ U - V.T @ V
        new_U = U - eta * (gradient @ V + U @ gap)
        new_V = V - eta * (gradient.T @ U - V @ gap)
        moved = np.linalg.norm(new_U @ new_V.T - theta)
        U, V = new_U, new_V
        if moved < tol:
            return U, V, theta0, iteration, True
    return U, V, theta0, max_iter, False


def run(sites, *, d=D, eta=ETA, max_iter=50, tol=1e-5):
    """The package, from records to fit."""
    records = [records_from(Z) for Z in sites]
    start = make_start(records[0], d, step_size=eta)
    answers = [answer(r, start) for r in records]
    return finish(records[0], start, answers, step_size=eta, max_iter=max_iter, tol=tol)


@pytest.fixture(scope="module")
def equal_sites():
    return draw_sites([300] * 4)


@pytest.mark.parametrize("max_iter", [1, 2, 50])
def test_algorithm_1_is_reproduced(equal_sites, max_iter, plain):
    U, V, theta0, iterations, converged = algorithm_1(
        equal_sites, D, ETA, max_iter, 1e-5, plain.paper_W
    )
    found = run(equal_sites, max_iter=max_iter)
    np.testing.assert_allclose(found.start.U @ found.start.V.T, theta0, atol=1e-12)
    wanted = U @ V.T
    assert plain.relative_error(found.U @ found.V.T, wanted) < 1e-8
    # The factors too, up to the sign of each pair of columns, which the SVD leaves open.
    flip = np.sign((found.U * U).sum(axis=0))
    assert plain.relative_error(found.U * flip, U) < 1e-8
    assert plain.relative_error(found.V * flip, V) < 1e-8
    assert (found.solution.n_iter, found.solution.converged) == (iterations, converged)


@pytest.mark.parametrize("tol", [3e-2, 1e-3])
def test_the_stopping_rule_stops_at_the_same_iteration(equal_sites, tol, plain):
    U, V, _, iterations, converged = algorithm_1(equal_sites, D, ETA, 500, tol, plain.paper_W)
    assert converged
    assert 2 < iterations < 500, "another tolerance would say more"
    found = run(equal_sites, max_iter=500, tol=tol)
    assert found.solution.converged
    assert found.solution.n_iter == iterations
    assert plain.relative_error(found.U @ found.V.T, U @ V.T) < 1e-8


def test_both_factors_move_from_the_old_pair(equal_sites, plain):
    """With V updated from the new U the first iterate differs visibly: the test above can fail."""
    U, V, *_ = algorithm_1(equal_sites, D, ETA, 0, 0.0, plain.paper_W)
    X = [2 * Z - 1 for Z in equal_sites]
    W = sum(plain.paper_W(U @ V.T, x) for x in X) / 4
    new_U = U - ETA * W @ V
    found = run(equal_sites, max_iter=1)
    old_pair, new_pair = (new_U @ (V - ETA * W.T @ u).T for u in (U, new_U))
    assert plain.relative_error(found.U @ found.V.T, old_pair) < 1e-8
    assert plain.relative_error(found.U @ found.V.T, new_pair) > 1e-4


def test_the_first_value_is_eq_surrogate_obj(equal_sites, plain):
    """L_1(Theta0) + <correction, Theta0>; the balancer is zero at the start."""
    found = run(equal_sites, max_iter=3)
    X = [2 * Z - 1 for Z in equal_sites]
    theta0 = found.start.U @ found.start.V.T
    correction = sum(plain.paper_W(theta0, x) for x in X) / 4 - plain.paper_W(theta0, X[0])
    wanted = plain.paper_loss(theta0, X[0]) + np.vdot(correction, theta0)
    np.testing.assert_allclose(found.solution.curve[0], wanted, rtol=1e-12)


# --- Remark 1 -------------------------------------------------------------------------------------


def test_symmetry_is_kept_with_an_indefinite_start(equal_sites):
    found = run(equal_sites, d=6, max_iter=200, tol=0.0)
    assert set(found.start.signs) == {-1.0, 1.0}, "Theta0 must be indefinite for this to say much"
    np.testing.assert_allclose(found.V, found.U * found.start.signs, atol=1e-12)
    theta = found.U @ found.V.T
    np.testing.assert_allclose(theta, theta.T, atol=1e-12)
    assert np.linalg.eigvalsh(theta)[0] < -1e-3


# --- sites ----------------------------------------------------------------------------------------


def test_one_site_is_the_centralised_descent(plain):
    """The correction is zero: the answer of the only site is the hub's own."""
    (Z,) = draw_sites([600])
    found = run([Z], max_iter=50)
    X = 2 * Z - 1
    U, V = found.start.U, found.start.V
    for _ in range(found.solution.n_iter):
        W, gap = plain.paper_W(U @ V.T, X), U.T @ U - V.T @ V
        U, V = U - ETA * (W @ V + U @ gap), V - ETA * (W @ U - V @ gap)
    assert plain.relative_error(found.U @ found.V.T, U @ V.T) < 1e-8
    np.testing.assert_allclose(
        found.solution.curve[0], plain.paper_loss(found.start.U @ found.start.V.T, X), rtol=1e-12
    )


def test_copies_of_the_hub_change_nothing(plain):
    (Z,) = draw_sites([300])
    one, three = run([Z], max_iter=30), run([Z, Z, Z], max_iter=30)
    assert plain.relative_error(three.U @ three.V.T, one.U @ one.V.T) < 1e-12


def test_unequal_sites_are_weighted_by_their_records(plain):
    sites = draw_sites([200, 500, 37, 1])
    records = [records_from(Z) for Z in sites]
    start = make_start(records[0], D, step_size=ETA)
    answers = [answer(r, start) for r in records]
    assert [a.n for a in answers] == [200, 500, 37, 1]
    theta0 = start.U @ start.V.T
    pooled = plain.paper_W(theta0, 2 * np.vstack(sites) - 1)
    np.testing.assert_allclose(mean_derivative(answers), pooled, atol=1e-12)
    equal = sum(a.W for a in answers) / 4
    assert plain.relative_error(equal, pooled) > 0.05
    # and one descent step follows the pooled derivative
    found = finish(records[0], start, answers, step_size=ETA, max_iter=1, tol=0.0)
    np.testing.assert_allclose(found.U, start.U - ETA * pooled @ start.V, atol=1e-12)


def test_order_of_sites_does_not_matter(equal_sites, plain):
    records = [records_from(Z) for Z in equal_sites]
    start = make_start(records[0], D, step_size=ETA)
    answers = [answer(r, start) for r in records]
    one, two = (
        finish(records[0], start, a, step_size=ETA, max_iter=20, tol=0.0)
        for a in (answers, answers[::-1])
    )
    np.testing.assert_allclose(two.U, one.U, atol=1e-12)


# --- the start, with penalty and ball -------------------------------------------------------------


def test_start_with_penalty_and_ball_by_loops(equal_sites, plain):
    X = 2 * equal_sites[0] - 1
    theta = np.zeros((P, P))
    for _ in range(START_STEPS):
        left, value, right = np.linalg.svd(theta - ETA * plain.paper_W(theta, X))
        theta = (left * np.maximum(value - ETA * 0.3, 0)) @ right
        theta *= min(1, 0.4 / np.linalg.norm(theta))
    found = make_start(records_from(equal_sites[0]), P, step_size=ETA, penalty=0.3, radius=0.4)
    assert START_STEPS == 5
    np.testing.assert_allclose(found.U @ found.V.T, theta, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(theta), 0.4)


def test_symmetric_derivative_is_eq_B_star(equal_sites, rng, plain):
    theta = plain.symmetric_theta(P, rng)
    found = symmetric_derivative(records_from(equal_sites[0]), theta)
    np.testing.assert_allclose(found, plain.paper_W(theta, 2 * equal_sites[0] - 1), atol=1e-13)


def test_theta_distance_is_the_frobenius_norm(rng):
    old, new = rng.normal(size=(2, 2, 9, 3))
    wanted = np.linalg.norm(new[0] @ new[1].T - old[0] @ old[1].T)
    np.testing.assert_allclose(_theta_distance(old, new), wanted, rtol=1e-12)
    near = old + 1e-7 * new
    wanted = np.linalg.norm(near[0] @ near[1].T - old[0] @ old[1].T)
    np.testing.assert_allclose(_theta_distance(old, near), wanted, rtol=1e-6)


# --- the step bound -------------------------------------------------------------------------------


def dense_hessian(theta, X):
    """(p^2, p^2) second derivative of eq. (objective) for a free theta.

    The logit 2 M_j has the derivative 2 in theta_jj and 2 x_k in theta_kj.
    """
    n, p = X.shape
    M = np.diag(theta) + X @ (theta * (1 - np.eye(p)))
    s = 1 / (1 + np.exp(-2 * M))
    H = np.zeros((p, p, p, p))
    for i in range(n):
        for j in range(p):
            x = X[i].copy()
            x[j] = 1
            H[:, j, :, j] += 4 * s[i, j] * (1 - s[i, j]) * np.outer(x, x) / n
    return H.reshape(p * p, p * p)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_step_bound_is_the_formula_with_dense_eigenvalues(p):
    (Z,) = draw_sites([200], seed=2, p=p)
    records = records_from(Z)
    start = make_start(records, min(p, 2), step_size=ETA)
    theta0 = start.U @ start.V.T
    kappa = np.linalg.eigvalsh(dense_hessian(theta0, 2 * Z - 1))[-1]
    norm = np.linalg.svd(np.vstack([start.U, start.V]), compute_uv=False)[0]
    np.testing.assert_allclose(largest_curvature(records, theta0), kappa, rtol=1e-2)
    np.testing.assert_allclose(
        step_bound(records, start), min(1 / kappa, 1) / (12 * norm**2), rtol=1e-2
    )


def test_a_step_that_is_too_long_is_an_error_that_names_the_bound(equal_sites):
    records = [records_from(Z) for Z in equal_sites]
    start = make_start(records[0], D, step_size=ETA)
    answers = [answer(r, start) for r in records]
    with pytest.raises(DivergenceError, match=r"eta = 50; eq\. \(eta_ineq\) allows at most") as e:
        finish(records[0], start, answers, step_size=50.0, max_iter=500, tol=1e-5)
    np.testing.assert_allclose(e.value.bound, step_bound(records[0], start))
    assert 0 < e.value.bound < 1


def test_a_step_within_the_bound_descends(equal_sites):
    records = [records_from(Z) for Z in equal_sites]
    start = make_start(records[0], D, step_size=ETA)
    answers = [answer(r, start) for r in records]
    eta = step_bound(records[0], start)
    found = finish(records[0], start, answers, step_size=eta, max_iter=40, tol=0.0)
    assert (np.diff(found.solution.curve) < 0).all()
