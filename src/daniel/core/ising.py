"""Loss, conditional probabilities and gradients of the Ising pseudo-likelihood.

Two implementations of the same quantities: a plain NumPy reference in the paper's ±1 coordinates
(small, dense, float64), and the fast sweep over sparse records in any `Coordinates`.

With logits ``M`` and residual ``R = weight * (sigmoid(M) - z) / n`` the derivative for a free Phi
is ``G_kj = sum xt_k R_j gain_j`` (k != j), so that ``dL/dU = G V`` and ``dL/dV = G' U``.  The
paper's W (eq. B_star) is the derivative for a symmetric Theta: ``W = G + G'`` off the diagonal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from scipy.special import expit

from daniel.core import kernels
from daniel.core.coordinates import Coordinates
from daniel.core.records import DENSE_ABOVE, Records
from daniel.core.threads import n_threads, run_parts

BLOCK_BYTES = 16 << 20  # logits of one block; two or three blocks fit in a shared cache
SMALL_WORK = 1 << 18  # below this many logits, starting threads costs more than it gains
STRIPE = 1024  # codes of one stripe of a (p, p) derivative
FLUSH = 16  # blocks added up in the working precision before they go to float64

T = TypeVar("T")


# --- reference ------------------------------------------------------------------------------------


def reference_logits(theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """(n, p) values M_j = theta_jj + sum_{k != j} theta_kj x_k, for X in {-1, +1}."""
    diagonal = np.diag(theta)
    return X @ theta + diagonal * (1 - X)


def reference_conditional(theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """(n, p) probabilities P(X_j = +1 | rest) = sigmoid(2 M_j), eq. (conditional_dist)."""
    return expit(2 * reference_logits(theta, X))


def reference_loss(theta: np.ndarray, X: np.ndarray) -> float:
    """(1/n) sum_l sum_j log(1 + exp(-2 x_j M_j)), eq. (objective)."""
    return float(np.logaddexp(0, -2 * X * reference_logits(theta, X)).sum() / X.shape[0])


def reference_gradient(theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """(p, p) derivative for a free Theta: mean 2 x_k x_j B_j, mean 2 x_j B_j on the diagonal."""
    XB = X * -expit(-2 * X * reference_logits(theta, X))
    G = 2 * X.T @ XB / X.shape[0]
    np.fill_diagonal(G, 2 * XB.mean(axis=0))
    return G


def symmetric_gradient(G: np.ndarray) -> np.ndarray:
    """The paper's W, eq. (B_star), from the free derivative: W = G + G', diagonal counted once."""
    W = G + G.T
    np.fill_diagonal(W, np.diag(G))
    return W


# --- the fast sweep -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """Loss and its derivatives; `U`, `V` (p, d), `b` (sites, p)."""

    loss: float
    U: np.ndarray
    V: np.ndarray
    b: np.ndarray


@dataclass(frozen=True)
class FullSweep:
    """Loss, free derivative `G` (p, p) and intercept derivative `b` (sites, p)."""

    loss: float
    G: np.ndarray
    b: np.ndarray


class _Block:
    """Some consecutive rows: products with Z, sparse or dense, whichever is faster."""

    def __init__(self, records: Records, rows: slice, dtype: np.dtype) -> None:
        self.indptr = records.indptr[rows.start : rows.stop + 1]
        self.indices = records.indices
        self.site = records.site[rows]
        self.weight = records.weight[rows].astype(dtype)
        self.rows = rows.stop - rows.start
        self.dense = None
        if records.density > DENSE_ABOVE:
            self.dense = np.zeros((self.rows, records.p), dtype=dtype)
            kernels.unpack(self.indptr, self.indices, self.dense)

    def times(self, S: np.ndarray, offset: np.ndarray, out: np.ndarray) -> np.ndarray:
        """out <- Z S + offset."""
        if self.dense is None:
            kernels.gather(self.indptr, self.indices, S, offset, out)
        else:
            np.matmul(self.dense, S, out=out)
            out += offset
        return out

    def add_transpose_times(self, Q: np.ndarray, out: np.ndarray) -> None:
        """out += Z' Q."""
        if self.dense is None:
            kernels.scatter(self.indptr, self.indices, Q, out)
        else:
            out += self.dense.T @ Q


def _row_blocks(records: Records, width: int, itemsize: int, multiple: int = 1) -> list[slice]:
    """Blocks of nearly equal size, as many as a multiple of the number of threads."""
    most = max(16, BLOCK_BYTES // (width * itemsize))
    count = -(-records.n // (most * multiple)) * multiple
    edges = np.linspace(0, records.n, count + 1).astype(int).tolist()
    return [slice(*edge) for edge in pairwise(edges)]


def _each_part(
    records: Records, dtype: np.dtype, work: Callable[[Sequence[slice]], T]
) -> Sequence[T]:
    """Run `work` on the row blocks of each thread; the split depends on the shape alone."""
    parts = n_threads() if records.n * records.p > SMALL_WORK else 1
    blocks = _row_blocks(records, records.p, dtype.itemsize, parts)
    return run_parts(lambda t: work(blocks[t::parts]), parts)


def _sum_parts(parts: Sequence[tuple]) -> list:
    return [sum(values[1:], values[0]) for values in zip(*parts, strict=True)]


@dataclass(frozen=True)
class _Factored:
    """What a sweep needs of Phi = UV', computed once, in the working dtype.

    A logit computed as ``gain_j sum_k phi_kj xt_k`` wrongly holds the term k = j: its constant
    part, ``-gain_j phi_jj center_j / scale_j``, is taken out of `intercept` (sites, p); what a
    present code adds to itself, `own` (p,), is taken out by the kernel.
    """

    S: np.ndarray  # (p, d)  U / scale:  A = Z S + offset = xt U
    offset: np.ndarray  # (d,)
    Vg: np.ndarray  # (p, d)  V * gain:  logits = A Vg'
    intercept: np.ndarray
    own: np.ndarray

    @classmethod
    def of(
        cls, coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray | None
    ) -> "_Factored":
        dtype = U.dtype
        own, intercept = _own_and_intercept(coords, np.einsum("jc,jc->j", U, V), b)
        S = (U / coords.scale[:, None]).astype(dtype)
        return cls(
            S=S,
            offset=-(coords.center @ S).astype(dtype),
            Vg=(V * coords.gain[:, None]).astype(dtype),
            intercept=intercept.astype(dtype),
            own=own.astype(dtype),
        )


def _own_and_intercept(
    coords: Coordinates, diagonal_phi: np.ndarray, b: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    own = coords.gain * diagonal_phi / coords.scale
    if coords.tie is not None:
        b = (coords.tie * diagonal_phi)[None, :]
    assert b is not None, "free intercepts need a value"
    return own, b + own * coords.center


def sweep(
    records: Records, coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray | None
) -> Sweep:
    """Loss at Phi = UV' and its true derivatives in U, V and b: three GEMMs of n p d.

    Runs in the dtype of U; loss and column sums are added up in float64.  b (sites, p); None when
    the coordinates tie the intercept to the diagonal.
    """
    dtype = U.dtype
    p, d = U.shape
    f = _Factored.of(coords, U, V, b)
    site_of = _site_rows(records, f.intercept)

    def work(blocks: Sequence[slice]) -> tuple:
        rows = max(s.stop - s.start for s in blocks)
        M, A, Q = (np.empty((rows, width), dtype=dtype) for width in (p, d, d))
        RA, ZQ, product = (np.zeros((p, d), dtype=dtype) for _ in range(3))
        loss, columns, present = 0.0, np.zeros(f.intercept.shape), np.zeros(p)
        for s in blocks:
            block = _Block(records, s, dtype)
            m, a, q = M[: block.rows], A[: block.rows], Q[: block.rows]
            block.times(f.S, f.offset, a)
            np.matmul(a, f.Vg.T, out=m)
            column, own_sum = np.zeros(f.intercept.shape, dtype), np.zeros(p, dtype)
            loss += kernels.residual(
                *(m, 0, f.intercept, site_of[s], block.weight),
                *(block.indptr, block.indices, f.own, column, own_sum),
            )
            columns += column
            present += own_sum
            np.matmul(m, f.Vg, out=q)
            RA += np.matmul(m.T, a, out=product)
            block.add_transpose_times(q, ZQ)
        return loss, ZQ.astype(np.float64), RA.astype(np.float64), columns, present

    loss, ZQ, RA, columns, present = _sum_parts(_each_part(records, dtype, work))
    total = records.total
    column = columns.sum(axis=0)
    # dL/dU = (xt' R gain) V, where the centre of xt needs only the column sums of R.
    grad_U = (ZQ - np.outer(coords.center, column @ f.Vg)) / coords.scale[:, None]
    grad_V = RA * coords.gain[:, None]
    diagonal = -coords.gain * (present - coords.center * column) / coords.scale
    if coords.tie is not None:
        diagonal += coords.tie * column
    grad_U += diagonal[:, None] * V
    grad_V += diagonal[:, None] * U
    return Sweep(
        loss / total,
        (grad_U / total).astype(dtype),
        (grad_V / total).astype(dtype),
        columns / total,
    )


def _site_rows(records: Records, intercept: np.ndarray) -> np.ndarray:
    """(n,) row of `intercept` that each record uses: its site's, or the one shared by all."""
    return records.site if intercept.shape[0] > 1 else np.zeros(records.n, dtype=np.int32)


Phi = np.ndarray | tuple[np.ndarray, np.ndarray]


def full_sweep(
    records: Records,
    coords: Coordinates,
    phi: Phi,
    b: np.ndarray | None,
    *,
    subtract_from: np.ndarray | None = None,
) -> FullSweep:
    """Loss and free derivative G (p, p) at Phi, given whole or as factors (U, V).

    Works on stripes of codes, one thread each, so that beside G itself no (p, p) array is needed.
    subtract_from (p, p): becomes itself minus the derivative, and is the G that is returned.
    """
    whole = isinstance(phi, np.ndarray)
    dtype = phi.dtype if isinstance(phi, np.ndarray) else phi[0].dtype
    p = coords.p
    if isinstance(phi, np.ndarray):
        own, intercept = _own_and_intercept(coords, np.diag(phi), b)
        own, intercept = own.astype(dtype), intercept.astype(dtype)
    else:
        f = _Factored.of(coords, *phi, b)
        own, intercept = f.own, f.intercept
    site_of = _site_rows(records, intercept)
    parts = n_threads() if records.n * p > SMALL_WORK else 1
    width = max(1, min(STRIPE, -(-p // parts)))
    stripes = [slice(j, min(j + width, p)) for j in range(0, p, width)]
    blocks = _row_blocks(records, width, dtype.itemsize)
    G = np.zeros((p, p), dtype=dtype) if subtract_from is None else subtract_from
    sign = 1 if subtract_from is None else -1
    columns = np.zeros(intercept.shape)

    def work(t: int) -> float:
        loss = 0.0
        for stripe in stripes[t::parts]:
            own_t, b_t = own[stripe], np.ascontiguousarray(intercept[:, stripe])
            gain = coords.gain[stripe]
            if whole:
                S = (phi[:, stripe] * gain / coords.scale[:, None]).astype(dtype)  # type: ignore[call-overload]
                offset = -(coords.center @ S).astype(dtype)
            ZR = np.zeros((p, own_t.size))
            part = np.zeros((p, own_t.size), dtype=dtype)
            for number, s in enumerate(blocks):
                block = _Block(records, s, dtype)
                M = np.empty((block.rows, own_t.size), dtype=dtype)
                if whole:
                    block.times(S, offset, M)
                else:
                    A = np.empty((block.rows, f.S.shape[1]), dtype=dtype)
                    np.matmul(block.times(f.S, f.offset, A), f.Vg[stripe].T, out=M)
                column, own_sum = np.zeros(b_t.shape, dtype), np.zeros(own_t.size, dtype)
                loss += kernels.residual(
                    *(M, stripe.start, b_t, site_of[s], block.weight),
                    *(block.indptr, block.indices, own_t, column, own_sum),
                )
                columns[:, stripe] += column
                block.add_transpose_times(M, part)
                if number % FLUSH == FLUSH - 1 or s.stop == records.n:
                    ZR += part
                    part[:] = 0
            R_sum = columns[:, stripe].sum(axis=0)
            ZR -= np.outer(coords.center, R_sum)
            ZR *= gain / (coords.scale[:, None] * records.total)
            np.fill_diagonal(ZR[stripe], 0)
            G[:, stripe] += sign * ZR
        return loss

    loss = sum(run_parts(work, parts))
    column = columns.sum(axis=0) / records.total
    if coords.tie is not None:
        G.flat[:: p + 1] += sign * coords.tie * column
    return FullSweep(loss / records.total, G, columns / records.total)


def hessian_product(
    records: Records, coords: Coordinates, phi: np.ndarray, b: np.ndarray | None, delta: np.ndarray
) -> np.ndarray:
    """(p, p) second derivative of the loss at Phi applied to a direction, intercepts held.

    ``H[D]_kj = mean xt_k gain_j s_j (1 - s_j) m_j`` with ``m_j = gain_j sum_{k != j} D_kj xt_k``
    the change of the logit; float64, for diagnostics.
    """

    def logit_weights(matrix: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        off = matrix - np.diag(np.diag(matrix))
        S = off * coords.gain / coords.scale[:, None]
        own = free if coords.tie is None else (coords.tie * np.diag(matrix))[None, :]
        return S, own - coords.center @ S

    p = coords.p
    S, offset = logit_weights(phi.astype(np.float64), np.zeros((1, p)) if b is None else b)
    D, change = logit_weights(delta.astype(np.float64), np.zeros((1, p)))
    site_of = _site_rows(records, offset)

    def work(blocks: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
        ZQ, column = np.zeros((p, p)), np.zeros(p)
        zero = np.zeros(p)
        for s in blocks:
            block = _Block(records, s, np.dtype(np.float64))
            M, Q = np.empty((block.rows, p)), np.empty((block.rows, p))
            probability = expit(block.times(S, zero, M) + offset[site_of[s]])
            block.times(D, change[0], Q)
            Q *= probability * (1 - probability) * block.weight[:, None]
            block.add_transpose_times(Q, ZQ)
            column += Q.sum(axis=0)
        return ZQ, column

    ZQ, column = _sum_parts(_each_part(records, np.dtype(np.float64), work))
    H = (ZQ - np.outer(coords.center, column)) * coords.gain / coords.scale[:, None]
    np.fill_diagonal(H, 0 if coords.tie is None else coords.tie * column)
    return H / records.total


def logit_moments(
    records: Records, coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums over each site's records of sigmoid and sigmoid(1 - sigmoid), (sites, p) each."""
    dtype = U.dtype
    f = _Factored.of(coords, U, V, b)
    site_of = _site_rows(records, f.intercept)

    def work(blocks: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
        sums = np.zeros((2, *f.intercept.shape))
        for s in blocks:
            block = _Block(records, s, dtype)
            A = block.times(f.S, f.offset, np.empty((block.rows, U.shape[1]), dtype=dtype))
            mean, variance = np.zeros((2, *f.intercept.shape), dtype=dtype)
            kernels.moments(
                *(A @ f.Vg.T, f.intercept, site_of[s], block.weight),
                *(block.indptr, block.indices, f.own, mean, variance),
            )
            sums += mean, variance
        return sums[0], sums[1]

    mean, variance = _sum_parts(_each_part(records, dtype, work))
    return mean, variance


def conditional(
    records: Records,
    coords: Coordinates,
    U: np.ndarray,
    V: np.ndarray,
    b: np.ndarray | None,
    features: np.ndarray,
) -> np.ndarray:
    """(n, len(features)) probabilities P(z_j = 1 | the record's other codes)."""
    f = _Factored.of(coords, U, V, b)
    out = np.empty((records.n, features.size), dtype=U.dtype)
    site_of = _site_rows(records, f.intercept)
    Z = records.csr(np.float32)
    for s in _row_blocks(records, max(features.size, U.shape[1]), U.dtype.itemsize):
        block = _Block(records, s, U.dtype)
        A = block.times(f.S, f.offset, np.empty((block.rows, U.shape[1]), dtype=U.dtype))
        present = Z[s][:, features].toarray()
        logit = A @ f.Vg[features].T + f.intercept[site_of[s]][:, features]
        out[s] = expit(logit - present * f.own[features])
    return out
