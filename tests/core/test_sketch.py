"""Sketches of the derivative against dense NumPy."""

import tracemalloc

import numpy as np
import pytest

from daniel.core import couplings
from daniel.core.coordinates import natural_coordinates
from daniel.core.exchange import Start
from daniel.core.records import records_from
from daniel.core.sketch import along, directions, rebuilt


@pytest.fixture
def case(rng, plain):
    """(Z, records, start): 12 codes, and factors of both signs."""
    p = 12
    Z = plain.binary(400, p, 0.3, rng)
    coords = natural_coordinates(Z.sum(axis=0), len(Z))
    U = 0.4 * rng.standard_normal((p, 3))
    return Z, records_from(Z), Start(coords, U, np.array([1.0, 1, -1]), rng.normal(-1, 1, (1, p)))


def projected(G, Q):
    """G without what two codes have in common outside of the space of Q."""
    W, _ = np.linalg.qr(Q)
    outside = np.eye(len(G)) - W @ W.T
    return G - outside @ G @ outside


def symmetric_normal(p, rng):
    A = rng.standard_normal((p, p))
    return (A + A.T) / 2


@pytest.mark.parametrize("tied", [False, True])
def test_a_sketch_is_the_derivative_times_the_directions(case, rng, plain, tied):
    Z, records, start = case
    coords = natural_coordinates(Z.sum(axis=0), len(Z), tied=tied)
    start = Start(coords, start.U, start.signs, start.b)
    b = None if tied else start.b
    Q = rng.standard_normal((12, 4))
    Y, of_b = along(records, start, b, Q)
    G, gb = plain.gradients(coords, start.U @ start.V.T, b, Z)
    np.testing.assert_allclose(Y, (G + G.T) / 2 @ Q, atol=1e-12)
    np.testing.assert_allclose(of_b, gb, atol=1e-12)


def test_sketches_add_up_as_derivatives_do(case, rng):
    Z, records, start = case
    Q = rng.standard_normal((12, 5))
    parts = [
        (len(part), along(records_from(part), start, start.b, Q)[0]) for part in (Z[:90], Z[90:])
    ]
    mean = sum(n * Y for n, Y in parts) / len(Z)
    np.testing.assert_allclose(mean, along(records, start, start.b, Q)[0], atol=1e-12)


def test_what_a_sketch_tells_is_rebuilt(rng):
    G, Q = symmetric_normal(15, rng), rng.standard_normal((15, 4))
    np.testing.assert_allclose(rebuilt(G @ Q, Q, np.float64), projected(G, Q), atol=1e-12)
    twice = np.hstack([Q, Q @ rng.standard_normal((4, 3))])  # the same space, said at length
    np.testing.assert_allclose(rebuilt(G @ twice, twice, np.float64), projected(G, Q), atol=1e-10)


def test_nothing_is_lost_along_the_directions_or_with_all_of_them(rng):
    Q = np.linalg.qr(rng.standard_normal((15, 5)))[0]
    low = Q @ symmetric_normal(5, rng) @ Q.T
    across = rng.standard_normal((15, 5)) @ Q.T  # rank 10: from the directions to any code
    for G in (low, low + across + across.T):
        np.testing.assert_allclose(rebuilt(G @ Q, Q, np.float64), G, atol=1e-12)
    full, square = symmetric_normal(15, rng), rng.standard_normal((15, 15))
    np.testing.assert_allclose(rebuilt(full @ square, square, np.float64), full, atol=1e-8)


def test_directions_are_where_the_correlations_are_largest(rng):
    """Three groups of codes that go together, and a pair that excludes each other."""
    n, p = 4000, 30
    Z = (rng.random((n, p)) < 0.2).astype(float)
    for first, last in ((0, 8), (8, 14), (14, 18)):
        ill = rng.random(n) < 0.3
        Z[:, first:last] = np.where(
            ill[:, None], rng.random((n, last - first)) < 0.6, Z[:, first:last]
        )
    Z[:, 20] = np.where(Z[:, 19] > 0, 0, rng.random(n) < 0.8)
    Z[:, 25] = 0  # nobody has it
    Q = directions(records_from(Z), 4, rng)
    s = natural_coordinates(Z.sum(axis=0), n).scale
    C = np.cov(Z.T, bias=True) / np.outer(s, s)
    np.fill_diagonal(C, 0)
    value, vector = np.linalg.eigh(C)
    outermost = vector[:, np.argsort(-np.abs(value))[:4]]
    assert value[0] < -0.3  # so that a negative one is among them
    assert np.linalg.svd(outermost.T @ Q, compute_uv=False).min() > 0.999
    np.testing.assert_allclose(Q.T @ Q, np.eye(4), atol=1e-6)
    assert not Q[25].any() and Q.dtype == np.float32


def test_components_of_an_earlier_fit_come_first(case, rng):
    Z = case[0].copy()
    Z[:, [3, 7]] = 0
    U = np.zeros((12, 3))
    U[:, :2] = rng.standard_normal((12, 2))
    U[7] = 0
    Q = directions(records_from(Z), 6, rng, U).astype(float)
    assert Q.shape == (12, 6)
    np.testing.assert_allclose(Q @ (Q.T @ U), U, atol=1e-5)
    np.testing.assert_array_equal(Q.any(axis=1), np.arange(12) != 7)


def test_single_codes_where_there_are_directions_enough(rng, plain):
    Z = plain.binary(200, 10, 0.3, rng)
    Z[:, [2, 5]] = 0
    records = records_from(Z)
    Q = directions(records, 9, rng)
    assert Q.shape == (10, 9)
    assert sorted(Q.argmax(axis=0)) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    np.testing.assert_array_equal(np.sort(directions(records, 99, rng).sum(axis=1)), np.ones(10))


def test_a_sketch_needs_no_square_array(rng, monkeypatch):
    monkeypatch.setattr(couplings, "WIDE", 64)
    p = 3000
    Z = (rng.random((60, p)) < 0.005).astype(np.float32)
    coords = natural_coordinates(Z.sum(axis=0), len(Z))
    U = 0.01 * rng.standard_normal((p, 2)).astype(np.float32)
    records, start = records_from(Z), Start(coords, U, np.ones(2), np.full((1, p), -4.0))
    along(records, start, start.b, directions(records, 6, rng))  # compiled
    tracemalloc.start()
    along(records, start, start.b, directions(records, 6, rng))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * p * p  # three eighths of a square array; a stripe more may wait
