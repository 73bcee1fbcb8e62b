"""Compiled loops of the sweep: free functions on arrays, results written to `out` arguments.

All are single-threaded and release the GIL: `daniel.core.couplings` runs one stripe of codes per
thread, `daniel.core.ising` one block of rows, each with single-threaded BLAS, so that compiled
loops and BLAS never compete for the same core.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # not "nnan": a NaN must stay visible in the loss

_ONE = np.float32(1)
_HALF = np.float32(0.5)
_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693145751953125)
_LN2_LOW = np.float32(1.42860682030941723e-6)
_LOWEST = np.float32(-87)

# Chebyshev fits: exp(r) on |r| <= ln(2)/2 (relative error 1e-7) and log1p(e)/e on [0, 1] (3e-8).
_E0, _E1, _E2, _E3, _E4, _E5 = (
    np.float32(c) for c in (1.00000008, 1.00000004, 0.49998869, 0.16666415, 0.04191753, 0.00837513)
)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (
    np.float32(c)
    for c in (
        *(0.99999997, -0.49999502, 0.33319271, -0.2484437, 0.19111431),
        *(-0.1367477, 0.07836167, -0.02958851, 0.00525346),
    )
)


@intrinsic
def _truncate(_typing, x):
    """x rounded towards zero."""

    def codegen(_context, builder, _signature, args):
        return builder.call(builder.module.declare_intrinsic("llvm.trunc", [args[0].type]), args)

    return types.float32(types.float32), codegen


@intrinsic
def _power_of_two(_typing, k):
    """2^k for a whole number k, by writing k + 127 into the exponent's bits."""

    def codegen(_context, builder, _signature, args):
        i32 = ir.IntType(32)
        exponent = builder.add(builder.fptosi(args[0], i32), ir.Constant(i32, 127))
        return builder.bitcast(builder.shl(exponent, ir.Constant(i32, 23)), ir.FloatType())

    return types.float32(types.float32), codegen


def _exp(x):
    """exp(x) for x <= 0; compiled code only."""
    raise NotImplementedError


def _log1p(e):
    """log(1 + e) for 0 <= e <= 1; compiled code only."""
    raise NotImplementedError


@overload(_exp, inline="always")
def _exp_overload(x):
    # Branch-free polynomials in single precision: LLVM vectorises them, but no calls of libm.
    if x == types.float32:

        def single(x):
            x = max(x, _LOWEST)
            k = _truncate(x * _LOG2E - _HALF)  # to nearest, because x <= 0
            r = (x - k * _LN2_HIGH) - k * _LN2_LOW
            e = _E0 + r * (_E1 + r * (_E2 + r * (_E3 + r * (_E4 + r * _E5))))
            return e * _power_of_two(k)

        return single
    return lambda x: math.exp(x)


@overload(_log1p, inline="always")
def _log1p_overload(e):
    if e == types.float32:

        def single(e):
            s = _L5 + e * (_L6 + e * (_L7 + e * _L8))
            return e * (_L0 + e * (_L1 + e * (_L2 + e * (_L3 + e * (_L4 + e * s)))))

        return single
    return lambda e: math.log1p(e)


def _compiled(**options: Any) -> Callable[[Callable], Callable]:
    """`njit`, kept on disk for the next process; where there is no room, it compiles again."""

    def compiled(function: Callable) -> Callable:
        try:
            kernel = njit(cache=True, error_model="numpy", **options)(function)
        except RuntimeError:  # neither beside the package nor at the user's home can be written
            return njit(error_model="numpy", **options)(function)
        save = kernel._cache.save_overload

        def save_if_possible(*about: Any) -> None:
            with suppress(OSError):
                save(*about)

        kernel._cache.save_overload = save_if_possible
        return kernel

    return compiled


# Rows are named by their number, not cut out: a slice counts its references, in which threads meet.


@_compiled(fastmath=_FAST)
def _sigmoid_row(M, i, b, s, w, column_sum):
    """In place M_i <- w * sigmoid(M_i + b_s), added to column_sum_s; returns sum softplus."""
    zero = M.dtype.type(0)
    one = M.dtype.type(1)
    total = zero
    for j in range(M.shape[1]):
        m = M[i, j] + b[s, j]
        e = _exp(-abs(m))
        total += max(m, zero) + _log1p(e)
        r = w * ((one if m >= zero else e) / (one + e))
        M[i, j] = r
        column_sum[s, j] += r
    return total


@_compiled()
def _residual_row(M, i, first, b, s, w, indices, begin, end, diagonal, column_sum):
    """In place logits -> residuals of a record with the codes indices[begin:end]; its loss.

    Of present codes the sign is turned: their loss is softplus(-m), their residual -sigmoid(-m),
    and neither is the small difference of large numbers.
    """
    width = M.shape[1]
    for k in range(begin, end):
        j = indices[k] - first
        if 0 <= j < width:
            M[i, j] = diagonal[j] - M[i, j] - 2 * b[s, j]
    softplus = _sigmoid_row(M, i, b, s, w, column_sum)
    for k in range(begin, end):
        j = indices[k] - first
        if 0 <= j < width:
            column_sum[s, j] -= 2 * M[i, j]
            M[i, j] = -M[i, j]
    return np.float64(w) * softplus


@_compiled(nogil=True)
def residual(M, first, b, site, weight, indptr, indices, diagonal, column_sum, present_sum):
    """Turn logits into residuals, in place; returns the weighted loss.

    M (rows, width): logits of the codes first .. first + width - 1, without intercept and with the
    diagonal term still in; becomes ``weight * (sigmoid(logit) - z)``.  b (sites, width) intercepts,
    diagonal (width,) what a present code wrongly adds to its own logit.  Adds to column_sum
    (sites, width) the residuals and to present_sum (width,) those of present codes.
    """
    loss = 0.0
    width = M.shape[1]
    for i in range(M.shape[0]):
        begin, end = indptr[i], indptr[i + 1]
        about = (first, b, site[i], weight[i], indices, begin, end, diagonal, column_sum)
        loss += _residual_row(M, i, *about)
        for k in range(begin, end):
            j = indices[k] - first
            if 0 <= j < width:
                present_sum[j] += M[i, j]
    return loss


@_compiled(fastmath=_FAST)
def _sigmoid_moments(M, i, b, s, w, mean, variance):
    zero = M.dtype.type(0)
    one = M.dtype.type(1)
    for j in range(M.shape[1]):
        m = M[i, j] + b[s, j]
        e = _exp(-abs(m))
        inverse = one / (one + e)
        mean[s, j] += w * (inverse if m >= zero else e * inverse)
        variance[s, j] += w * (e * inverse * inverse)


@_compiled()
def _moments_row(M, i, first, b, s, w, indices, begin, end, diagonal, mean, variance):
    for k in range(begin, end):
        j = indices[k] - first
        if 0 <= j < M.shape[1]:
            M[i, j] -= diagonal[j]
    _sigmoid_moments(M, i, b, s, w, mean, variance)


@_compiled(nogil=True)
def moments(M, b, site, weight, indptr, indices, diagonal, mean, variance):
    """Add sigmoid and sigmoid * (1 - sigmoid) of each logit to mean, variance (sites, p)."""
    for i in range(M.shape[0]):
        begin, end = indptr[i], indptr[i + 1]
        about = (0, b, site[i], weight[i], indices, begin, end, diagonal, mean, variance)
        _moments_row(M, i, *about)


@_compiled(fastmath=_FAST)
def _add_rows(S, indices, begin, end, out, i):
    """out_i += the rows indices[begin:end] of S, four at a time."""
    width = S.shape[1]
    k = begin
    while k + 4 <= end:
        r, s, t, u = indices[k], indices[k + 1], indices[k + 2], indices[k + 3]
        for j in range(width):
            out[i, j] += (S[r, j] + S[s, j]) + (S[t, j] + S[u, j])
        k += 4
    while k < end:
        r = indices[k]
        for j in range(width):
            out[i, j] += S[r, j]
        k += 1


@_compiled()
def _logits(S, indptr, indices, first, last, M):
    """M (rows, width) <- Z S of the records first .. last - 1."""
    for i in range(last - first):
        for j in range(M.shape[1]):
            M[i, j] = 0
        _add_rows(S, indices, indptr[first + i], indptr[first + i + 1], M, i)


@_compiled()
def _transpose(indptr, indices, first, last, begin, rows):
    """Which of the records first .. last - 1 have code r: rows[begin[r] : begin[r + 1]]."""
    p = begin.size - 2
    begin[:] = 0
    for k in range(indptr[first], indptr[last]):
        begin[indices[k] + 2] += 1
    for r in range(p):
        begin[r + 2] += begin[r + 1]
    for i in range(last - first):
        for k in range(indptr[first + i], indptr[first + i + 1]):
            r = indices[k] + 1
            rows[begin[r]] = i
            begin[r] += 1


@_compiled(nogil=True)
def derivative(S, first, b, site, weight, indptr, indices, diagonal, block, column_sum, ZR):
    """Logits, residuals and their products with the records at once; returns the weighted loss.

    S (p, width): what each code adds to the logits of the codes first .. first + width - 1.  Adds
    the residuals R to column_sum (sites, width), and Z'R to ZR (p, width); see `residual`.

    So many records make a `block`: each sums the rows of S of its codes, and then each code sums
    the residuals of its records, which are still in the cache.
    """
    loss = 0.0
    n, p = indptr.size - 1, S.shape[0]
    M = np.empty((min(block, n), S.shape[1]), S.dtype)
    begin = np.empty(p + 2, np.int64)
    for start in range(0, n, block):
        stop = min(start + block, n)
        _logits(S, indptr, indices, start, stop, M)
        for i in range(start, stop):
            about = (site[i], weight[i], indices, indptr[i], indptr[i + 1], diagonal, column_sum)
            loss += _residual_row(M, i - start, first, b, *about)
        rows = np.empty(indptr[stop] - indptr[start], np.int32)
        _transpose(indptr, indices, start, stop, begin, rows)
        for r in range(p):
            _add_rows(M, rows, begin[r], begin[r + 1], ZR, r)
    return loss


@_compiled(nogil=True)
def summed_moments(S, first, b, site, weight, indptr, indices, diagonal, mean, variance):
    """`moments` of the logits that rows of S add up to, as in `derivative`."""
    M = np.empty((1, S.shape[1]), S.dtype)
    for i in range(indptr.size - 1):
        _logits(S, indptr, indices, i, i + 1, M)
        about = (site[i], weight[i], indices, indptr[i], indptr[i + 1], diagonal)
        _moments_row(M, 0, first, b, *about, mean, variance)


@_compiled(nogil=True, fastmath=_FAST)
def gather(indptr, indices, S, offset, out):
    """out (rows, d) <- Z S + offset, with Z the 0/1 rows in compressed form."""
    rows, d = out.shape
    for i in range(rows):
        for c in range(d):
            out[i, c] = offset[c]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            for c in range(d):
                out[i, c] += S[j, c]


@_compiled(nogil=True, fastmath=_FAST)
def scatter(indptr, indices, Q, out):
    """out (p, d) += Z' Q, with Z the 0/1 rows in compressed form."""
    rows, d = Q.shape
    for i in range(rows):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            for c in range(d):
                out[j, c] += Q[i, c]


@_compiled(nogil=True)
def unpack(indptr, indices, out):
    """out (rows, p) <- the records as dense 0/1; out is zero on entry."""
    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            out[i, indices[e]] = 1
