"""The compiled loops against scipy.special and scipy.sparse."""

import errno

import numpy as np
import pytest
import scipy.sparse as sp
from numba.core import caching
from scipy.special import expit

from daniel.core import kernels

EDGES = [0.0, -0.0, 1e-30, -1e-30, 0.3466, -0.3466, 87.0, -87.0, 87.5, -87.5, 88.8, -88.8]
FAR = [1e4, -1e4, 3e4, -3e4]
LOGITS = np.concatenate([np.linspace(-100, 100, 20_001), EDGES, FAR])
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def run_residual(M, *, Z=None, b=None, site=None, weight=None, diagonal=None, first=0):
    """Residuals, loss, column and present sums of `kernels.residual`, on copies.

    Z (rows, codes) may have more codes than M has columns, which are those from `first` on.
    """
    rows, width = M.shape
    dtype = M.dtype
    Z = sp.csr_array(np.zeros((rows, width)) if Z is None else Z)
    b = np.zeros((1, width), dtype) if b is None else b.astype(dtype)
    R = M.copy()
    column, present = np.zeros(b.shape, dtype), np.zeros(width, dtype)
    loss = kernels.residual(
        R,
        first,
        b,
        np.zeros(rows, np.int32) if site is None else site.astype(np.int32),
        np.ones(rows, dtype) if weight is None else weight.astype(dtype),
        Z.indptr.astype(np.int64),
        Z.indices.astype(np.int32),
        np.zeros(width, dtype) if diagonal is None else diagonal.astype(dtype),
        column,
        present,
    )
    return R, loss, column, present


def one_by_one(logits, present):
    """Loss of each logit alone: a record of one code, present or absent."""
    Z = np.full((1, 1), float(present))
    return np.array([run_residual(m.reshape(1, 1), Z=Z)[1] for m in logits])


# float32 values are exact as float64, so the oracle sees the very same logits.


@pytest.mark.parametrize("present", [False, True], ids=["absent", "present"])
def test_single_precision_residual_is_within_1e_6_of_expit(present):
    logits = LOGITS.astype(np.float32)
    Z = np.full((1, logits.size), float(present))
    R, _, column, _ = run_residual(logits[None, :], Z=Z)
    wanted = expit(logits.astype(np.float64)) - present
    assert np.isfinite(R).all()
    assert np.abs(R[0] - wanted).max() <= 1e-6
    assert np.abs(column[0] - wanted).max() <= 1e-6


def test_single_precision_probability_keeps_its_relative_precision_for_rare_codes():
    logits = np.linspace(-80, 0, 4001, dtype=np.float32)
    R, *_ = run_residual(logits[None, :])
    np.testing.assert_allclose(R[0], expit(logits.astype(np.float64)), rtol=1e-6)


def test_single_precision_loss_of_absent_codes_is_within_1e_6_relative():
    logits = LOGITS.astype(np.float32)
    wanted = np.logaddexp(0, logits.astype(np.float64))
    found = one_by_one(logits, present=False)
    assert np.isfinite(found).all()
    # Below -87 both are nothing: the smallest normal single is about 1e-38.
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=2e-38)


def test_single_precision_loss_of_present_codes_is_within_1e_6_of_the_logits_size():
    logits = LOGITS.astype(np.float32)
    wanted = np.logaddexp(0, -logits.astype(np.float64))
    found = one_by_one(logits, present=True)
    assert np.isfinite(found).all()
    size = np.maximum(1, np.abs(logits))
    assert (np.abs(found - wanted) / size).max() <= 1e-6


def test_single_precision_loss_of_a_long_row_is_within_1e_6_relative(rng):
    logits = rng.normal(-3, 2, size=(20, 5000)).astype(np.float32)
    Z = rng.random(logits.shape) < expit(logits)
    exact = logits.astype(np.float64)
    wanted = (np.logaddexp(0, exact) - Z * exact).sum()
    _, loss, *_ = run_residual(logits, Z=Z.astype(float))
    assert abs(loss - wanted) <= 1e-6 * wanted


def test_double_precision_is_exact():
    R, loss, *_ = run_residual(LOGITS[None, :])
    np.testing.assert_allclose(R[0], expit(LOGITS), rtol=1e-14, atol=0)
    np.testing.assert_allclose(loss, np.logaddexp(0, LOGITS).sum(), rtol=1e-14)


@dtypes
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_logit_that_is_no_number_shows_in_the_loss(dtype, bad):
    M = np.zeros((3, 40), dtype)
    M[1, 17] = bad
    _, loss, *_ = run_residual(M)
    assert not np.isfinite(loss)


@dtypes
def test_residual_with_everything_at_once(dtype, rng):
    """Intercepts of three sites, weights, own terms, and a stripe in the middle of the codes."""
    rows, codes, first, width = 40, 30, 7, 11
    Z = (rng.random((rows, codes)) < 0.4).astype(float)
    stripe = Z[:, first : first + width]
    M = rng.normal(size=(rows, width)).astype(dtype)
    b = rng.normal(size=(3, width))
    site, weight = rng.integers(0, 3, rows), rng.integers(1, 5, rows).astype(float)
    diagonal = rng.normal(size=width)
    R, loss, column, present = run_residual(
        M, Z=Z, b=b, site=site, weight=weight, diagonal=diagonal, first=first
    )
    logit = M - stripe * diagonal + b[site]
    wanted = weight[:, None] * (expit(logit) - stripe)
    close = {"rtol": 1e-13, "atol": 1e-13} if dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(R, wanted, **close)
    np.testing.assert_allclose(
        column, np.stack([wanted[site == s].sum(axis=0) for s in range(3)]), **close
    )
    np.testing.assert_allclose(present, (wanted * stripe).sum(axis=0), **close)
    terms = weight[:, None] * (np.logaddexp(0, logit) - stripe * logit)
    np.testing.assert_allclose(loss, terms.sum(), rtol=close["rtol"])


@dtypes
def test_moments_are_sums_of_sigmoid_and_its_slope(dtype, rng):
    rows, p = 60, 9
    Z = sp.csr_array((rng.random((rows, p)) < 0.3).astype(float))
    M = rng.normal(scale=4, size=(rows, p)).astype(dtype)
    b, diagonal = rng.normal(size=(2, p)), rng.normal(size=p)
    site, weight = rng.integers(0, 2, rows), rng.integers(1, 4, rows).astype(float)
    mean, variance = np.zeros((2, 2, p), dtype)
    kernels.moments(
        *(M.copy(), b.astype(dtype), site.astype(np.int32), weight.astype(dtype)),
        *(Z.indptr.astype(np.int64), Z.indices.astype(np.int32), diagonal.astype(dtype)),
        *(mean, variance),
    )
    s = expit(M - Z.toarray() * diagonal + b[site])
    rtol = 1e-13 if dtype == np.float64 else 1e-5
    for i in range(2):
        own = weight[site == i] @ s[site == i], weight[site == i] @ (s * (1 - s))[site == i]
        np.testing.assert_allclose(mean[i], own[0], rtol=rtol)
        np.testing.assert_allclose(variance[i], own[1], rtol=rtol)


@dtypes
@pytest.mark.parametrize("density", [0.0, 0.05, 0.9])
def test_gather_and_scatter_are_sparse_products(dtype, density, rng):
    rows, p, d = 50, 23, 7
    Z = sp.csr_array((rng.random((rows, p)) < density).astype(float))
    indptr, indices = Z.indptr.astype(np.int64), Z.indices.astype(np.int32)
    S, offset = rng.normal(size=(p, d)).astype(dtype), rng.normal(size=d).astype(dtype)
    Q, before = rng.normal(size=(rows, d)).astype(dtype), rng.normal(size=(p, d)).astype(dtype)
    A = np.full((rows, d), np.nan, dtype)  # whatever was there must go
    kernels.gather(indptr, indices, S, offset, A)
    out = before.copy()  # what was there must stay
    kernels.scatter(indptr, indices, Q, out)
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(A, Z @ S.astype(float) + offset, **close)
    np.testing.assert_allclose(out, before + Z.T @ Q.astype(float), **close)


def test_gather_reads_rows_of_a_block_in_place(rng):
    """A block is a slice of indptr beside all indices: offsets do not start at zero."""
    Z = sp.csr_array((rng.random((30, 8)) < 0.5).astype(float))
    S = rng.normal(size=(8, 3))
    out = np.empty((10, 3))
    kernels.gather(
        Z.indptr[12:23].astype(np.int64), Z.indices.astype(np.int32), S, np.zeros(3), out
    )
    np.testing.assert_allclose(out, Z.toarray()[12:22] @ S, atol=1e-14)


def test_a_full_disk_costs_the_cache_and_nothing_else(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    @kernels._compiled(nogil=True)
    def twice(x):
        return 2 * x

    monkeypatch.setattr(twice._cache, "_save_overload", full, raising=True)
    assert twice(21) == 42


def test_no_place_for_the_cache_costs_the_cache_and_nothing_else(monkeypatch):
    """As for a service without a home, of a package that is read-only."""

    def nowhere(*_):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(caching.FunctionCache, "__init__", nowhere)

    @kernels._compiled(nogil=True)
    def twice(x):
        return 2 * x

    assert twice(21) == 42


@dtypes
@pytest.mark.parametrize("present", [0, 1, 3, 4, 11], ids=lambda k: f"{k} codes")
@pytest.mark.parametrize("block", [1, 7, 30, 99])
def test_the_derivative_is_gather_residual_and_scatter_at_once(dtype, present, block, rng):
    rows, p, first, width = 30, 40, 9, 17
    Z = np.zeros((rows, p))
    for row in Z:
        row[rng.permutation(p)[:present]] = 1
    Z = sp.csr_array(Z)
    indptr, indices = Z.indptr.astype(np.int64), Z.indices.astype(np.int32)
    S, own = rng.normal(size=(p, width)).astype(dtype), rng.normal(size=width).astype(dtype)
    b, site = rng.normal(size=(2, width)).astype(dtype), rng.integers(0, 2, rows).astype(np.int32)
    weight = rng.integers(1, 4, rows).astype(dtype)
    M = np.empty((rows, width), dtype)
    kernels.gather(indptr, indices, S, np.zeros(width, dtype), M)
    column, wanted, found = np.zeros((2, width), dtype), np.zeros((p, width)), np.ones((p, width))
    R, loss, wanted_column, _ = run_residual(
        M, Z=Z, b=b, site=site, weight=weight, diagonal=own, first=first
    )
    kernels.scatter(indptr, indices, R, wanted)
    about = (S, first, b, site, weight, indptr, indices, own)
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-5}
    told = kernels.derivative(*about, block, column, found)
    np.testing.assert_allclose(told, loss, rtol=close["rtol"])
    np.testing.assert_allclose(column, wanted_column, **close)
    np.testing.assert_allclose(found - 1, wanted, **close)  # what was there stays

    mean, variance = np.zeros((2, 2, width), dtype)
    kernels.summed_moments(*about, mean, variance)
    s = expit(M - Z.toarray()[:, first : first + width] * own + b[site])
    for i in range(2):
        w = weight[site == i].astype(float)
        np.testing.assert_allclose(mean[i], w @ s[site == i], **close)
        np.testing.assert_allclose(variance[i], w @ (s * (1 - s))[site == i], **close)
