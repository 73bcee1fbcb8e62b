"""Loss, conditionals, gradients: by enumeration, by finite differences, fast against plain."""

import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chi2

from daniel.core import blocks, couplings, ising
from daniel.core import records as records_module
from daniel.core.coordinates import natural_coordinates, paper_coordinates
from daniel.core.ising import (
    conditional,
    full_sweep,
    hessian_product,
    logit_moments,
    reference_conditional,
    reference_gradient,
    reference_logits,
    reference_loss,
    sweep,
    symmetric_gradient,
)
from daniel.core.records import records_from
from daniel.core.sample import enumerate_states, gibbs, gibbs_factor

KINDS = ["paper", "natural", "tied"]
kinds = pytest.mark.parametrize("kind", KINDS)


def make_coords(kind, Z):
    if kind == "paper":
        return paper_coordinates(Z.shape[1])
    return natural_coordinates(Z.sum(axis=0), float(Z.shape[0]), tied=kind == "tied")


class Problem:
    """Random records and parameters: U, V (p, d), b (sites, p) or None when tied."""

    def __init__(self, plain, rng, kind, *, n=120, p=7, d=3, density=0.35, sites=1, size=0.4):
        self.Z = plain.binary(n, p, density, rng)
        self.site = rng.integers(0, sites, n)
        self.coords = make_coords(kind, self.Z)
        # The same size of logits whatever the scale of the codes.
        unit = np.sqrt(self.coords.scale / self.coords.gain / d)[:, None]
        self.U, self.V = size * unit * rng.normal(size=(2, p, d))
        self.b = None if self.coords.tied else rng.normal(size=(sites, p)) - 1
        self.sites = sites

    @property
    def phi(self):
        return self.U @ self.V.T

    def records(self, *, merge=True):
        return records_from(self.Z, site=self.site, n_sites=self.sites, merge=merge)


# --- (a) enumeration ------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_conditional_of_the_joint_is_the_reference_conditional(p, rng, plain):
    theta = plain.symmetric_theta(p, rng)
    X, weight = enumerate_states(theta)
    index = {tuple(x): i for i, x in enumerate(X)}
    wanted = np.empty_like(X)
    for i, x in enumerate(X):
        for j in range(p):
            up, down = list(x), list(x)
            up[j], down[j] = 1.0, -1.0
            a, b = weight[index[tuple(up)]], weight[index[tuple(down)]]
            wanted[i, j] = a / (a + b)
    np.testing.assert_allclose(reference_conditional(theta, X), wanted, rtol=1e-10)


def expected_gradient(theta, X, weight):
    """Gradient of the population loss: each state alone, weighted by its probability."""
    return sum(w * reference_gradient(theta, x[None, :]) for x, w in zip(X, weight, strict=True))


def test_population_loss_is_stationary_and_lowest_at_the_truth(rng, plain):
    theta = plain.symmetric_theta(6, rng)
    X, weight = enumerate_states(theta)
    np.testing.assert_allclose(expected_gradient(theta, X, weight), 0, atol=1e-14)

    def population_loss(t):
        return sum(w * reference_loss(t, x[None, :]) for x, w in zip(X, weight, strict=True))

    best = population_loss(theta)
    for size in (1e-2, 0.3):
        for _ in range(5):
            other = theta + size * rng.normal(size=(6, 6))
            assert population_loss(other) > best
            assert np.abs(expected_gradient(other, X, weight)).max() > 1e-4


def test_the_three_readings_agree_and_the_ordered_pair_reading_does_not(rng, plain):
    """Joint, sampler and conditional likelihood say the same.

    Read over ordered pairs the joint doubles every coupling, and neither the conditional nor the
    stationary point of the loss fits it any more.
    """
    theta = plain.symmetric_theta(6, rng)
    doubled = 2 * theta - np.diag(np.diag(theta))
    X, weight = enumerate_states(theta)
    _, other = enumerate_states(doubled)

    np.testing.assert_allclose(expected_gradient(theta, X, weight), 0, atol=1e-14)
    assert np.abs(expected_gradient(theta, X, other)).max() > 0.01

    draws = gibbs(gibbs_factor(theta), np.diag(theta), 20_000, np.random.default_rng(3))
    state = draws.astype(int) @ (1 << np.arange(6)[::-1])
    share = np.bincount(state, minlength=64) / 20_000
    assert np.abs(share - weight).sum() / 2 < 0.03
    assert np.abs(share - other).sum() / 2 > 0.1


def test_gibbs_draws_pass_a_chi_square_test_against_enumeration(rng, plain):
    p, n = 5, 50_000
    theta = plain.symmetric_theta(p, rng)
    _, weight = enumerate_states(theta)
    draws = gibbs(gibbs_factor(theta), np.diag(theta), n, np.random.default_rng(4))
    observed = np.bincount(draws.astype(int) @ (1 << np.arange(p)[::-1]), minlength=2**p)
    assert (n * weight).min() > 5
    statistic = ((observed - n * weight) ** 2 / (n * weight)).sum()
    assert statistic < chi2.ppf(0.999, 2**p - 1)


# --- the reference against loops, and (b) finite differences --------------------------------------


def test_reference_loss_is_eq_objective_by_loops(rng, plain):
    theta = rng.normal(size=(5, 5)) * 0.4  # not symmetric
    X = 2 * plain.binary(30, 5, 0.4, rng) - 1
    np.testing.assert_allclose(reference_loss(theta, X), plain.paper_loss(theta, X), rtol=1e-13)


def test_reference_logits_by_loops(rng, plain):
    theta = rng.normal(size=(4, 4))
    X = 2 * plain.binary(10, 4, 0.5, rng) - 1
    found = reference_logits(theta, X)
    for row, x in zip(found, X, strict=True):
        for j in range(4):
            wanted = theta[j, j] + sum(theta[k, j] * x[k] for k in range(4) if k != j)
            np.testing.assert_allclose(row[j], wanted, atol=1e-13)


def test_reference_gradient_by_finite_differences(rng, plain):
    theta = rng.normal(size=(5, 5)) * 0.4
    X = 2 * plain.binary(40, 5, 0.4, rng) - 1
    wanted = plain.finite_difference(lambda t: plain.paper_loss(t, X), theta)
    np.testing.assert_allclose(reference_gradient(theta, X), wanted, atol=1e-8)


def test_symmetric_gradient_is_the_derivative_along_symmetric_directions(rng, plain):
    """W_jk is the derivative when theta_jk and theta_kj move together, W_jj when theta_jj moves."""
    theta = plain.symmetric_theta(5, rng)
    X = 2 * plain.binary(40, 5, 0.4, rng) - 1
    W = symmetric_gradient(reference_gradient(theta, X))
    np.testing.assert_allclose(W, W.T, atol=1e-15)
    for j in range(5):
        for k in range(j, 5):
            direction = np.zeros((5, 5))
            direction[j, k] = direction[k, j] = 1
            up, down = (plain.paper_loss(theta + t * direction, X) for t in (1e-6, -1e-6))
            np.testing.assert_allclose(W[j, k], (up - down) / 2e-6, atol=1e-8)


def test_symmetric_gradient_is_eq_B_star(rng, plain):
    theta = plain.symmetric_theta(6, rng)
    X = 2 * plain.binary(50, 6, 0.3, rng) - 1
    W = symmetric_gradient(reference_gradient(theta, X))
    np.testing.assert_allclose(W, plain.paper_W(theta, X), atol=1e-14)


@kinds
@pytest.mark.parametrize("sites", [1, 3])
def test_sweep_by_finite_differences_of_the_plain_loss(kind, sites, rng, plain):
    q = Problem(plain, rng, kind, sites=sites)

    def loss(U, V, b):
        return plain.loss(q.coords, U @ V.T, b, q.Z, site=q.site)

    out = sweep(q.records(), q.coords, q.U, q.V, q.b)
    np.testing.assert_allclose(out.loss, loss(q.U, q.V, q.b), rtol=1e-12)
    dU = plain.finite_difference(lambda U: loss(U, q.V, q.b), q.U)
    dV = plain.finite_difference(lambda V: loss(q.U, V, q.b), q.V)
    np.testing.assert_allclose(out.U, dU, atol=2e-7 * np.abs(dU).max())
    np.testing.assert_allclose(out.V, dV, atol=2e-7 * np.abs(dV).max())
    if q.b is not None:
        db = plain.finite_difference(lambda b: loss(q.U, q.V, b), q.b)
        np.testing.assert_allclose(out.b, db, atol=2e-7 * np.abs(db).max())


@kinds
@pytest.mark.parametrize("factored", [False, True], ids=["whole", "factored"])
def test_full_sweep_by_finite_differences_of_the_plain_loss(kind, factored, rng, plain):
    q = Problem(plain, rng, kind, sites=1 if kind != "natural" else 2)
    out = full_sweep(q.records(), q.coords, (q.U, q.V) if factored else q.phi, q.b)
    wanted = plain.finite_difference(
        lambda t: plain.loss(q.coords, t, q.b, q.Z, site=q.site), q.phi
    )
    np.testing.assert_allclose(out.G, wanted, atol=2e-7 * np.abs(wanted).max())
    np.testing.assert_allclose(out.loss, plain.loss(q.coords, q.phi, q.b, q.Z, site=q.site))


@kinds
def test_hessian_product_by_finite_differences_of_the_gradient(kind, rng, plain):
    q = Problem(plain, rng, kind, sites=1 if kind != "natural" else 2)
    direction = rng.normal(size=q.phi.shape) * q.coords.scale[:, None] / q.coords.gain

    def gradient(t):
        return plain.gradients(q.coords, q.phi + t * direction, q.b, q.Z, site=q.site)[0]

    wanted = (gradient(1e-5) - gradient(-1e-5)) / 2e-5
    found = hessian_product(q.records(), q.coords, q.phi, q.b, direction)
    np.testing.assert_allclose(found, wanted, atol=1e-7 * np.abs(wanted).max())


@kinds
def test_hessian_product_is_linear_symmetric_and_positive(kind, rng, plain):
    q = Problem(plain, rng, kind)
    A, B = rng.normal(size=(2, *q.phi.shape))

    def H(D):
        return hessian_product(q.records(), q.coords, q.phi, q.b, D)

    np.testing.assert_allclose(H(2 * A - B), 2 * H(A) - H(B), atol=1e-11 * np.abs(H(A)).max())
    np.testing.assert_allclose(np.vdot(A, H(B)), np.vdot(B, H(A)), rtol=1e-11)
    assert np.vdot(A, H(A)) > 0


def test_logit_moments_against_numpy(rng, plain):
    q = Problem(plain, rng, "natural", sites=3)
    mean, variance = logit_moments(q.records(), q.coords, q.U, q.V, q.b)
    s = plain.sigmoid(plain.logits(q.coords, q.phi, q.b, q.Z, q.site))
    for i in range(3):
        np.testing.assert_allclose(mean[i], s[q.site == i].sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(variance[i], (s * (1 - s))[q.site == i].sum(axis=0), rtol=1e-12)


@kinds
def test_conditional_against_numpy_in_blocks(kind, rng, plain, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    q = Problem(plain, rng, kind, sites=2 if kind == "natural" else 1)
    features = np.array([6, 2, 2, 0])
    found = conditional(q.records(merge=False), q.coords, q.U, q.V, q.b, features)
    wanted = plain.sigmoid(plain.logits(q.coords, q.phi, q.b, q.Z, q.site))[:, features]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


# --- (c) sweep = reference, whatever the layout ---------------------------------------------------


def on_threads(monkeypatch, number):
    for module in (ising, couplings):
        monkeypatch.setattr(module, "n_threads", lambda: number)


def many_chunks(monkeypatch):
    monkeypatch.setattr(records_module, "SMALL_WORK", 0)
    monkeypatch.setattr(records_module, "CHUNK_ROWS", (1, 8192))
    monkeypatch.setattr(records_module, "SPARSE_ROWS", (1, 8192))


def small_blocks(monkeypatch):
    """Blocks of at most 16 rows on 3 threads, stripes of 5 codes."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    many_chunks(monkeypatch)
    for name, width in {"STRIPE": 5, "WIDE": 5, "LANES": 1}.items():
        monkeypatch.setattr(couplings, name, width)
    on_threads(monkeypatch, 3)


def one_block(monkeypatch):
    monkeypatch.setattr(records_module, "SMALL_WORK", 1 << 60)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 30)


def more_threads_than_blocks(monkeypatch):
    many_chunks(monkeypatch)
    on_threads(monkeypatch, 5)


layouts = pytest.mark.parametrize("layout", [small_blocks, one_block, more_threads_than_blocks])
densities = pytest.mark.parametrize("density", [0.01, 0.5], ids=["sparse", "dense"])


@pytest.fixture(params=["sums", "products"])
def way(request, monkeypatch):
    """Logits as sums of rows of Phi, where records are sparse, or as products with factors."""
    monkeypatch.setattr(couplings, "CODES_PER_COLUMN", 1e9 if request.param == "sums" else 0.0)
    monkeypatch.setattr(couplings, "CODES_AS_RECORDS", 0.0)
    return request.param


precisions = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-5)], ids=["float64", "float32"]
)


@layouts
@densities
@precisions
@kinds
@pytest.mark.usefixtures("way")
def test_sweep_is_the_reference(kind, layout, density, dtype, tolerance, rng, plain, monkeypatch):
    layout(monkeypatch)
    sites = 3 if kind == "natural" else 1
    q = Problem(plain, rng, kind, n=501, p=43, d=6, density=density, sites=sites)
    U, V = q.U.astype(dtype), q.V.astype(dtype)
    # The oracle sees the rounded parameters, so that only the arithmetic is judged.
    phi = U.astype(float) @ V.astype(float).T
    G, gb = plain.gradients(q.coords, phi, q.b, q.Z, site=q.site)
    wanted_loss = plain.loss(q.coords, phi, q.b, q.Z, site=q.site)
    for merge in (True, False):
        out = sweep(q.records(merge=merge), q.coords, U, V, q.b)
        assert abs(out.loss - wanted_loss) <= tolerance * wanted_loss
        assert plain.relative_error(out.U, G @ V) <= tolerance
        assert plain.relative_error(out.V, G.T @ U) <= tolerance
        assert plain.relative_error(out.b, gb) <= tolerance
        assert out.U.dtype == out.V.dtype == dtype


@layouts
@densities
@precisions
@pytest.mark.parametrize("factored", [False, True], ids=["whole", "factored"])
@kinds
@pytest.mark.usefixtures("way")
def test_full_sweep_is_the_reference(
    kind, factored, layout, density, dtype, tolerance, rng, plain, monkeypatch
):
    layout(monkeypatch)
    sites = 3 if kind == "natural" else 1
    q = Problem(plain, rng, kind, n=301, p=43, d=6, density=density, sites=sites)
    U, V = q.U.astype(dtype), q.V.astype(dtype)
    phi = U.astype(float) @ V.astype(float).T
    given = (U, V) if factored else phi.astype(dtype)
    if not factored:
        phi = given.astype(float)
    G, gb = plain.gradients(q.coords, phi, q.b, q.Z, site=q.site)
    out = full_sweep(q.records(), q.coords, given, q.b)
    wanted_loss = plain.loss(q.coords, phi, q.b, q.Z, site=q.site)
    assert abs(out.loss - wanted_loss) <= tolerance * wanted_loss
    assert plain.relative_error(out.G, G) <= tolerance
    assert plain.relative_error(out.b, gb) <= tolerance
    assert out.G.dtype == dtype


@layouts
@densities
@pytest.mark.usefixtures("way")
def test_hessian_product_and_moments_in_every_layout(layout, density, rng, plain, monkeypatch):
    layout(monkeypatch)
    q = Problem(plain, rng, "natural", n=301, p=23, density=density, sites=2)
    D = rng.normal(size=q.phi.shape)
    s = plain.sigmoid(plain.logits(q.coords, q.phi, q.b, q.Z, q.site))
    x = plain.standardised(q.coords, q.Z)
    change = x @ (D * (1 - np.eye(23))) * q.coords.gain
    wanted = x.T @ (s * (1 - s) * change) * q.coords.gain / 301
    np.fill_diagonal(wanted, 0)
    found = hessian_product(q.records(), q.coords, q.phi, q.b, D)
    assert plain.relative_error(found, wanted) < 1e-10
    mean, variance = logit_moments(q.records(), q.coords, q.U, q.V, q.b)
    per_site = [(s[q.site == i].sum(axis=0), (s - s**2)[q.site == i].sum(axis=0)) for i in (0, 1)]
    assert plain.relative_error(mean, np.stack([m for m, _ in per_site])) < 1e-10
    assert plain.relative_error(variance, np.stack([v for _, v in per_site])) < 1e-10


def test_paper_sweep_is_the_reference_of_this_package(rng, plain):
    """The two implementations side by side: eq. (objective) and its derivative at UV'."""
    q = Problem(plain, rng, "paper", n=200, p=30)
    X = 2 * q.Z - 1
    G = reference_gradient(q.phi, X)
    out = sweep(q.records(), q.coords, q.U, q.V, None)
    assert abs(out.loss - reference_loss(q.phi, X)) < 1e-10 * out.loss
    assert plain.relative_error(out.U, G @ q.V) < 1e-10
    assert plain.relative_error(out.V, G.T @ q.U) < 1e-10
    assert plain.relative_error(full_sweep(q.records(), q.coords, q.phi, None).G, G) < 1e-10


@kinds
def test_weights_count_records(kind, rng, plain):
    q = Problem(plain, rng, kind)
    weight = rng.integers(1, 6, q.Z.shape[0]).astype(float)
    weighted = replace(q.records(merge=False), weight=weight)
    repeated = np.repeat(np.arange(q.Z.shape[0]), weight.astype(int))
    out = sweep(weighted, q.coords, q.U, q.V, q.b)
    G, gb = plain.gradients(q.coords, q.phi, q.b, q.Z[repeated])
    assert plain.relative_error(out.U, G @ q.V) < 1e-12
    assert plain.relative_error(out.V, G.T @ q.U) < 1e-12
    assert plain.relative_error(out.b, gb) < 1e-12
    np.testing.assert_allclose(out.loss, plain.loss(q.coords, q.phi, q.b, q.Z[repeated]))


@pytest.mark.parametrize("Z", [np.zeros((4, 3)), np.ones((4, 3)), np.eye(3)[:1]])
def test_constant_columns_and_one_record(Z, rng, plain):
    coords = natural_coordinates(Z.sum(axis=0), float(Z.shape[0]))
    U, V, b = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.normal(size=(1, 3))
    out = sweep(records_from(Z), coords, U, V, b)
    G, gb = plain.gradients(coords, U @ V.T, b, Z)
    np.testing.assert_allclose(out.loss, plain.loss(coords, U @ V.T, b, Z), rtol=1e-12)
    np.testing.assert_allclose(out.U, G @ V, atol=1e-12)
    np.testing.assert_allclose(out.b, gb, atol=1e-12)


# --- (d) sites ------------------------------------------------------------------------------------


@kinds
def test_weighted_site_gradients_are_the_pooled_gradient(kind, rng, plain):
    q = Problem(plain, rng, kind, n=400, p=12)
    q.site, q.sites = np.repeat(np.arange(4), [250, 100, 49, 1]), 4
    pooled = full_sweep(records_from(q.Z), q.coords, (q.U, q.V), q.b)
    parts = [q.records().of_site(i) for i in range(4)]
    answers = [(r.total / 400, full_sweep(r, q.coords, (q.U, q.V), q.b)) for r in parts]
    for name in ("loss", "G", "b"):
        mean = sum(share * getattr(a, name) for share, a in answers)
        wanted = getattr(pooled, name)
        np.testing.assert_allclose(mean, wanted, atol=1e-12 * np.abs(wanted).max())
    # and in factored form, with all sites in one object
    together = sweep(q.records(), q.coords, q.U, q.V, q.b)
    for name in ("loss", "U", "V"):
        mean = sum(r.total / 400 * getattr(sweep(r, q.coords, q.U, q.V, q.b), name) for r in parts)
        wanted = getattr(together, name)
        np.testing.assert_allclose(mean, wanted, atol=1e-12 * np.abs(wanted).max())


def test_site_intercepts_act_on_their_own_site_alone(rng, plain):
    q = Problem(plain, rng, "natural", n=300, sites=3)
    together = sweep(q.records(), q.coords, q.U, q.V, q.b)
    for i in range(3):
        own = q.records().of_site(i)
        alone = sweep(own, q.coords, q.U, q.V, q.b[[i]])
        np.testing.assert_allclose(together.b[i], alone.b[0] * own.total / 300, atol=1e-14)


# --- (e) invariances ------------------------------------------------------------------------------


@kinds
def test_order_of_rows_and_sites_does_not_matter(kind, rng, plain):
    q = Problem(plain, rng, kind, n=300, sites=3 if kind == "natural" else 1)
    before = sweep(q.records(), q.coords, q.U, q.V, q.b)
    order = rng.permutation(300)
    rename = rng.permutation(q.sites)
    shuffled = records_from(q.Z[order], site=rename[q.site[order]], n_sites=q.sites)
    b = None if q.b is None else q.b[np.argsort(rename)]
    after = sweep(shuffled, q.coords, q.U, q.V, b)
    np.testing.assert_allclose(after.loss, before.loss, rtol=1e-13)
    np.testing.assert_allclose(after.U, before.U, atol=1e-13)
    np.testing.assert_allclose(after.V, before.V, atol=1e-13)
    np.testing.assert_allclose(after.b[rename], before.b, atol=1e-13)


@kinds
def test_a_permutation_of_codes_permutes_the_answer(kind, rng, plain):
    q = Problem(plain, rng, kind)
    order = rng.permutation(7)
    before = sweep(q.records(), q.coords, q.U, q.V, q.b)
    full = full_sweep(q.records(), q.coords, q.phi, q.b)
    coords = make_coords(kind, q.Z[:, order])
    b = None if q.b is None else q.b[:, order]
    records = records_from(q.Z[:, order])
    after = sweep(records, coords, q.U[order], q.V[order], b)
    np.testing.assert_allclose(after.loss, before.loss, rtol=1e-13)
    np.testing.assert_allclose(after.U, before.U[order], atol=1e-13)
    np.testing.assert_allclose(after.V, before.V[order], atol=1e-13)
    np.testing.assert_allclose(after.b, before.b[:, order], atol=1e-13)
    G = full_sweep(records, coords, q.phi[np.ix_(order, order)], b).G
    np.testing.assert_allclose(G, full.G[np.ix_(order, order)], atol=1e-13)


@kinds
def test_a_rotation_of_both_factors_rotates_the_gradients(kind, rng, plain):
    q = Problem(plain, rng, kind)
    R, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    before = sweep(q.records(), q.coords, q.U, q.V, q.b)
    after = sweep(q.records(), q.coords, q.U @ R, q.V @ R, q.b)
    np.testing.assert_allclose(after.loss, before.loss, rtol=1e-13)
    np.testing.assert_allclose(after.U, before.U @ R, atol=1e-13)
    np.testing.assert_allclose(after.V, before.V @ R, atol=1e-13)


def test_the_diagonal_of_phi_does_not_matter_when_intercepts_are_free(rng, plain):
    q = Problem(plain, rng, "natural")
    other = q.phi + np.diag(rng.normal(size=7))
    a, b = (full_sweep(q.records(), q.coords, phi, q.b) for phi in (q.phi, other))
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-13)
    np.testing.assert_allclose(a.G, b.G, atol=1e-13)


# --- (f) memory -----------------------------------------------------------------------------------


def peak_bytes(f):
    f()  # compile, start threads
    tracemalloc.start()
    try:
        f()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def sparse_records(n, p, rng, present=10):
    rows = np.repeat(np.arange(n), present)
    codes = rng.integers(0, p, n * present)
    Z = sp.csr_array((np.ones(n * present), (rows, codes)), shape=(n, p))
    return records_from(Z, merge=False)


def sweep_peaks(n, p, rng):
    """Peak memory of each pass over n records of p codes, beside its arguments."""
    U = rng.normal(size=(p, 10)).astype(np.float32) / 10
    b = np.full((1, p), -3.0)
    whole = U @ U.T
    records = sparse_records(n, p, rng)
    coords = natural_coordinates(records.counts(), records.total)
    return {
        "sweep": peak_bytes(lambda: sweep(records, coords, U, U, b)),
        "moments": peak_bytes(lambda: logit_moments(records, coords, U, U, b)),
        "factored": peak_bytes(lambda: full_sweep(records, coords, (U, U), b)),
        "whole": peak_bytes(lambda: full_sweep(records, coords, whole, b)),
    }


@pytest.mark.usefixtures("way")
def test_no_array_of_records_by_codes(rng, monkeypatch):
    n, p = 40_000, 500
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 20)
    on_threads(monkeypatch, 2)
    peaks = sweep_peaks(n, p, rng)
    dense = n * p * 4
    assert peaks["sweep"] < dense / 8
    assert peaks["moments"] < dense / 8
    assert peaks["factored"] < dense / 4  # of which G and its float64 sums are p x p
    assert peaks["whole"] < dense / 4


@pytest.mark.usefixtures("way")
def test_memory_does_not_grow_with_the_records(rng, monkeypatch):
    """Beside 16 bytes a record and a block more or less full; on one thread, because the peaks of
    two need not coincide."""
    n, p = 10_000, 300
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 20)
    on_threads(monkeypatch, 1)
    once, twice = sweep_peaks(n, p, rng), sweep_peaks(2 * n, p, rng)
    for name, peak in once.items():
        assert twice[name] < peak + 16 * n + blocks.BLOCK_BYTES, name  # n x p would be 12 blocks


def test_memory_with_the_blocks_as_they_are(rng, monkeypatch):
    on_threads(monkeypatch, 2)
    n, p = 20_000, 500
    records = sparse_records(n, p, rng)
    coords = natural_coordinates(records.counts(), records.total)
    U = np.full((p, 10), 0.1, dtype=np.float32)
    b = np.zeros((1, p))
    assert peak_bytes(lambda: sweep(records, coords, U, U, b)) < n * p * 4 / 1.8


# --- (g) threads ----------------------------------------------------------------------------------

THREADED = """
import sys
import numpy as np
from daniel.core import ising
from daniel.core.coordinates import natural_coordinates
from daniel.core.records import SMALL_WORK, records_from
from daniel.core.threads import n_threads

rng = np.random.default_rng(0)
Z = (rng.random((3000, 120)) < 0.05).astype(float)  # more than SMALL_WORK logits
assert Z.size > SMALL_WORK
records = records_from(Z, merge=False)
coords = natural_coordinates(Z.sum(axis=0), 3000.0)
U, V, b = rng.normal(size=(120, 4)), rng.normal(size=(120, 4)), rng.normal(size=(1, 120))
out = ising.sweep(records, coords, U, V, b)
full = ising.full_sweep(records, coords, (U, V), b)
np.savez(sys.argv[1], threads=n_threads(), loss=out.loss, U=out.U, V=out.V, b=out.b, G=full.G)
"""


def test_one_and_two_threads_from_the_environment_give_the_same(tmp_path):
    found = []
    for threads in (1, 2):
        path = tmp_path / f"{threads}.npz"
        env = {**os.environ, "DANIEL_NUM_THREADS": str(threads)}
        subprocess.run([sys.executable, "-c", THREADED, str(path)], env=env, check=True)
        found.append(np.load(path))
    one, two = found
    assert (int(one["threads"]), int(two["threads"])) == (1, 2)
    for name in ("loss", "U", "V", "b", "G"):
        np.testing.assert_allclose(one[name], two[name], atol=1e-12 * np.abs(one[name]).max())


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.usefixtures("way")
def test_the_number_of_threads_does_not_change_a_single_precision_fit(
    threads, rng, plain, monkeypatch
):
    q = Problem(plain, rng, "natural", n=500, p=60, density=0.05)
    U, V = q.U.astype(np.float32), q.V.astype(np.float32)
    many_chunks(monkeypatch)
    on_threads(monkeypatch, 1)
    one = sweep(q.records(), q.coords, U, V, q.b)
    on_threads(monkeypatch, threads)
    many = sweep(q.records(), q.coords, U, V, q.b)
    again = sweep(q.records(), q.coords, U, V, q.b)
    assert plain.relative_error(many.U, one.U) < 1e-8  # but for the order of sums in float64
    assert plain.relative_error(many.V, one.V) < 1e-8
    assert many.loss == again.loss  # the order of sums is fixed
    np.testing.assert_array_equal(many.U, again.U)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.usefixtures("way")
def test_an_answer_is_the_same_to_the_last_bit_on_any_number_of_threads(
    threads, dtype, rng, monkeypatch
):
    """A site may send its answer again from another machine; other numbers would be refused."""
    records = sparse_records(5000, 203, rng)
    coords = natural_coordinates(records.counts(), records.total)
    U = rng.normal(size=(203, 5)).astype(dtype)
    b = rng.normal(size=(1, 203))
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 18)
    monkeypatch.setattr(records_module, "SPARSE_ROWS", (50, 100))
    monkeypatch.setattr(couplings, "PIECE", 1)
    found = []
    for number in (1, threads):
        on_threads(monkeypatch, number)
        found.append(full_sweep(records, coords, (U, U), b))
    np.testing.assert_array_equal(found[1].G, found[0].G)
    np.testing.assert_array_equal(found[1].b, found[0].b)


@pytest.mark.parametrize(
    ("p", "d", "sums"),
    [(2000, 1, True), (20_000, 1, False), (20_000, 20, False), (20_000, 50, True)],
)
def test_a_whole_derivative_of_many_codes_goes_through_the_factors(p, d, sums):
    one_code = sp.csr_array(sp.vstack([sp.eye_array(p)] * 4))
    records = records_from(one_code, merge=False)
    U = np.zeros((p, d), np.float32)
    assert couplings.pays_whole(records, (U, U)) == sums
    assert couplings.pays_whole(records, U)  # all columns, but no factors
