"""The theory's quantities against dense oracles: enumeration, finite differences, plain loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from daniel.core import conditions
from daniel.core.conditions import couplings, curvature, distance, gradient_moment, part_of
from daniel.core.coordinates import natural_coordinates, paper_coordinates, theta_from
from daniel.core.ising import hessian_product
from daniel.core.records import records_from

kinds = pytest.mark.parametrize("kind", ["paper", "natural", "tied"])


def setting(kind, Z, rng, d=2, size=0.4):
    """Coordinates, symmetric factors and intercepts of a model that is not at independence."""
    p = Z.shape[1]
    coords = paper_coordinates(p)
    if kind != "paper":
        coords = natural_coordinates(Z.sum(axis=0), float(len(Z)), tied=kind == "tied")
    U = size * np.sqrt(coords.scale / coords.gain / d)[:, None] * rng.normal(size=(p, d))
    b = None if coords.tied else rng.normal(size=(1, p)) - 0.5
    return coords, U, U * np.array([1.0, -1.0])[:d], b


def symmetric_basis(p, diagonal):
    """Orthonormal matrices that span the symmetric ones, with or without a diagonal."""
    out = []
    for j, k in product(range(p), repeat=2):
        E = np.zeros((p, p))
        if j == k and diagonal:
            E[j, j] = 1
        elif j < k:
            E[j, k] = E[k, j] = 1 / np.sqrt(2)
        if E.any():
            out.append(E)
    return out


def second_derivatives(f, x, basis, step=1e-3):
    """Central second differences of f at x along every pair of directions."""
    H = np.zeros((len(basis), len(basis)))
    for a, A in enumerate(basis):
        for c, C in enumerate(basis[: a + 1]):
            corners = [s * t * f(x + step * (s * A + t * C)) for s in (1, -1) for t in (1, -1)]
            H[a, c] = H[c, a] = sum(corners) / (4 * step**2)
    return H


@kinds
@pytest.mark.parametrize("p", [3, 8])  # formed whole, and by Lanczos
def test_extremes_are_those_of_the_dense_hessian(p, kind, rng, plain):
    Z = plain.binary(300, p, 0.4, rng)
    coords, U, V, b = setting(kind, Z, rng)
    phi = U @ V.T
    H = second_derivatives(
        lambda t: plain.loss(coords, t, b, Z), phi, symmetric_basis(p, coords.tied)
    )
    value = np.linalg.eigvalsh(H)
    found = curvature(records_from(Z), coords, phi, b)
    np.testing.assert_allclose(found.largest, value[-1], rtol=2e-3)
    np.testing.assert_allclose(found.smallest, value[0], rtol=2e-2, atol=1e-3 * value[-1])
    assert value[0] > 0.01 * value[-1]  # or the line above says nothing


def test_population_curvature_by_enumeration(rng, plain):
    """Every state, weighted with its probability: H itself, not its estimate, eq. (hess_mat)."""
    p = 8
    theta = plain.symmetric_theta(p, rng, 0.15)
    X = np.array(list(product((-1.0, 1.0), repeat=p)))
    weight = np.exp(np.einsum("ij,jk,ik->i", X, np.triu(theta, 1), X) + X @ np.diag(theta))
    H = np.zeros((p, p, p, p))
    M = np.diag(theta) + X @ (theta - np.diag(np.diag(theta)))
    A = plain.sigmoid(2 * M) * plain.sigmoid(-2 * M) * (weight / weight.sum())[:, None]
    for r in range(p):
        y = 2 * X.copy()
        y[:, r] = 2
        H[:, r, :, r] += (A[:, r, None] * y).T @ y
    B = np.stack([E.ravel() for E in symmetric_basis(p, True)])
    value = np.linalg.eigvalsh(B @ H.reshape(p * p, p * p) @ B.T)
    records = replace(records_from((X + 1) / 2, merge=False), weight=1e4 * weight)
    found = curvature(records, paper_coordinates(p), theta, None)
    np.testing.assert_allclose([found.smallest, found.largest], value[[0, -1]], rtol=2e-3)


def test_the_papers_form_of_the_hessian(rng, plain):
    """eq. (hess_mat) is four times the second derivative, or nothing, as the docstring says."""
    n, p = 60, 5
    X = 2 * plain.binary(n, p, 0.5, rng) - 1
    theta = plain.symmetric_theta(p, rng)
    records, coords = records_from((X + 1) / 2), paper_coordinates(p)

    def form(D):
        total = 0.0
        M = np.diag(theta) + X @ (theta - np.diag(np.diag(theta)))
        for x, m in zip(X, M, strict=True):
            for r in range(p):
                Y = np.zeros((p, p))
                y = 2 * x.copy()
                y[r] = 2
                Y[:, r] = Y[r] = y
                A = plain.sigmoid(2 * x[r] * m[r]) * plain.sigmoid(-2 * x[r] * m[r])
                total += A * np.vdot(Y, D) ** 2 / n
        return total

    D = plain.symmetric_theta(p, rng)
    np.fill_diagonal(D, 0)
    second = np.vdot(D, hessian_product(records, coords, theta, None, D))
    np.testing.assert_allclose(form(D), 4 * second)
    turned = np.triu(D) - np.tril(D)
    assert form(turned) < 1e-20 < second
    assert np.vdot(turned, hessian_product(records, coords, theta, None, turned)) > 0


def test_no_curvature_where_every_probability_is_sure(rng, plain):
    Z = plain.binary(50, 7, 0.4, rng)
    found = curvature(records_from(Z), paper_coordinates(7), 800 * np.eye(7), None)
    assert (found.smallest, found.largest) == (0, 0)


def test_lanczos_that_does_not_converge_gives_no_number(rng, plain, monkeypatch):
    Z = plain.binary(40, 12, 0.2, rng)
    coords, U, V, b = setting("natural", Z, rng)
    assert curvature(records_from(Z), coords, U @ V.T, b) is not None
    monkeypatch.setattr(conditions, "MOST_RESTARTS", 1)
    monkeypatch.setattr(conditions, "TOLERANCE", 1e-12)
    assert curvature(records_from(Z), coords, U @ V.T, b) is None


def test_one_code_without_a_diagonal_has_no_direction():
    coords = natural_coordinates(np.array([4.0]), 9.0)
    Z = (np.arange(9) < 4)[:, None].astype(float)
    assert curvature(records_from(Z), coords, np.zeros((1, 1)), np.zeros((1, 1))) is None


def test_a_part_of_the_records_is_small_and_repeatable(rng, plain):
    records = records_from(plain.binary(4000, 10, 0.5, rng), merge=False)
    assert part_of(records) is records
    part = part_of(records, 10_000)
    assert part.n == 1000
    np.testing.assert_array_equal(part.indices, part_of(records, 10_000).indices)
    coords, theta = paper_coordinates(10), plain.symmetric_theta(10, rng, 0.1)
    whole, some = (curvature(r, coords, theta, None) for r in (records, part))
    np.testing.assert_allclose(some.largest, whole.largest, rtol=0.2)
    np.testing.assert_allclose(some.smallest, whole.smallest, rtol=0.2)


@kinds
def test_gradient_moment_is_the_mean_of_every_records_square(kind, rng, plain):
    n, p = 40, 6
    Z = plain.binary(n, p, 0.4, rng)
    Z[20:] = Z[:20]  # merged rows have weight 2
    coords, U, V, b = setting(kind, Z, rng)
    if b is None:
        b = (coords.tie * np.diag(U @ V.T))[None, :]
    theta = theta_from(coords, U, V, b[0])
    W = [plain.paper_W(theta, 2 * z[None, :] - 1) for z in Z]
    wanted = np.linalg.norm(sum(w @ w.T for w in W) / n, 2) / p
    found = gradient_moment(records_from(Z), coords, U, V, b)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_gradient_moment_of_identical_and_of_fair_records(rng):
    """Fair coins at Theta = 0 give about 4; records that are all alike give about 4 p."""
    p, zero, b = 20, np.zeros((20, 1)), np.zeros((1, 20))
    fair = records_from(rng.integers(0, 2, (5000, p)))
    assert 3.5 < gradient_moment(fair, paper_coordinates(p), zero, zero, b) < 5.5
    alike = records_from(np.ones((50, p)))
    assert 3.5 * p < gradient_moment(alike, paper_coordinates(p), zero, zero, b) < 4.5 * p


def test_couplings():
    theta = np.array(
        [
            [9.0, 0.5, 0.0, -0.1],
            [0.5, -7.0, 0.2, 0.0],
            [0.0, 0.2, 0.0, 1e-5],
            [-0.1, 0.0, 1e-5, 3.0],
        ]
    )
    found = couplings(theta)
    assert (found.lowest, found.highest, found.degree) == (-0.1, 0.5, 2)
    assert found.row_sum == pytest.approx(0.7)
    assert couplings(np.array([[2.0]])) == conditions.Couplings(0.0, 0.0, 0, 0.0)
    positive = couplings(np.array([[0.0, 0.3], [0.3, 0.0]]))
    assert (positive.lowest, positive.highest) == (0.3, 0.3)


@pytest.mark.parametrize("diagonal", [True, False])
def test_distance_and_norm_are_those_of_dense_matrices(diagonal, rng):
    U, V = rng.normal(size=(2, 9, 3)).astype(np.float32)
    U0, V0 = rng.normal(size=(2, 9, 5)).astype(np.float32)
    gap = U.astype(float) @ V.T - U0.astype(float) @ V0.T
    if not diagonal:
        np.fill_diagonal(gap, 0)
    wanted = np.linalg.norm(gap)
    np.testing.assert_allclose(distance(U, V, U0, V0, diagonal=diagonal), wanted, rtol=1e-6)
    assert distance(U, V, U, V, diagonal=diagonal) < 1e-6
    np.testing.assert_allclose(
        conditions.stacked_norm(U0, V0), np.linalg.norm(np.vstack([U0, V0]), 2), rtol=1e-6
    )
