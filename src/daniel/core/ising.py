"""Loss, conditional probabilities and gradients of the Ising pseudo-likelihood.

Two implementations of the same quantities: a plain NumPy reference in the paper's ±1 coordinates
(small, dense, float64), and the fast sweep over sparse records in any `Coordinates`.

With logits ``M`` and residual ``R = weight * (sigmoid(M) - z) / n`` the derivative for a free Phi
is ``G_kj = sum xt_k R_j gain_j`` (k != j), so that ``dL/dU = G V`` and ``dL/dV = G' U``.  The
paper's W (eq. B_star) is the derivative for a symmetric Theta: ``W = G + G'`` off the diagonal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import expit

from daniel.core import kernels
from daniel.core.blocks import Block, Factored, row_blocks, site_rows
from daniel.core.coordinates import Coordinates
from daniel.core.couplings import (
    Columns,
    Phi,
    loads,
    moment_sums,
    pays,
    pays_whole,
    stripe_sums,
    sums_of_stripes,
    sweep_sums,
)
from daniel.core.place import add_up, elsewhere
from daniel.core.records import Records
from daniel.core.threads import n_threads, run_parts

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


def _each_part(records: Records, work: Callable[[Sequence[slice]], T]) -> Sequence[T]:
    """Run `work` on the chunks of each thread."""
    chunks = records.chunks
    parts = min(n_threads(), len(chunks))
    return run_parts(lambda t: work(chunks[t::parts]), parts)


def _sum_parts(parts: Sequence[tuple]) -> tuple:
    return tuple(sum(values[1:], values[0]) for values in zip(*parts, strict=True))


def sweep(
    records: Records, coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray | None
) -> Sweep:
    """Loss at Phi = UV' and its true derivatives in U, V and b.

    Sums over the few codes of each record (`daniel.core.couplings`), or three products of n p d.
    Runs in the dtype of U; loss and column sums are added up in float64.  b (sites, p); None when
    the coordinates tie the intercept to the diagonal.
    """
    dtype = U.dtype
    f = Factored.of(coords, U, V, b)
    if pays(records, U.shape[1]):
        sums = add_up(sweep_sums, records, Columns.of(records, coords, f, b, summed=True))
    else:
        sums = add_up(_sweep_sums, records, f)
    loss, ZQ, RA, columns, present = sums
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


def _sweep_sums(records: Records, f: Factored, _: None) -> tuple:
    """Loss, Z'RVg and R'A (p, d), sums of R over each site (sites, p) and where present (p,)."""
    dtype = f.S.dtype
    p, d = f.S.shape
    site_of = site_rows(records, f.intercept)

    def work(chunks: Sequence[slice]) -> tuple:
        rows = max(s.stop - s.start for s in row_blocks(chunks, p, dtype.itemsize))
        M, A, Q = (np.empty((rows, width), dtype=dtype) for width in (p, d, d))
        RA, ZQ, product = (np.empty((p, d), dtype=dtype) for _ in range(3))
        sums = np.zeros((2, p, d))
        loss, columns, present = 0.0, np.zeros(f.intercept.shape), np.zeros(p)
        for chunk in chunks:
            RA[:] = ZQ[:] = 0
            for s in row_blocks([chunk], p, dtype.itemsize):
                block = Block(records, s, dtype)
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
            sums += ZQ, RA
        return loss, *sums, columns, present

    return _sum_parts(_each_part(records, work))


def full_sweep(
    records: Records,
    coords: Coordinates,
    phi: Phi,
    b: np.ndarray | None,
    *,
    subtract_from: np.ndarray | None = None,
) -> FullSweep:
    """Loss and free derivative G (p, p) at Phi, given whole or as factors (U, V).

    Works on stripes of codes, so that beside G itself no (p, p) array is needed.
    subtract_from (p, p): becomes itself minus the derivative, and is the G that is returned.
    """
    p, dtype = coords.p, phi.dtype if isinstance(phi, np.ndarray) else phi[0].dtype
    G = np.zeros((p, p), dtype=dtype) if subtract_from is None else subtract_from
    loss, of_b = 0.0, []
    for some in stripes(records, coords, phi, b):
        if subtract_from is None:
            G[:, some.codes] = some.G
        else:
            G[:, some.codes] -= some.G
        loss += some.loss
        of_b.append(some.b)
    return FullSweep(loss, G, np.hstack(of_b))


@dataclass(frozen=True)
class Stripe:
    """Some columns of a `FullSweep`: their part of the loss, G (p, codes) and b (sites, codes)."""

    codes: slice
    loss: float
    G: np.ndarray
    b: np.ndarray


def stripes(
    records: Records, coords: Coordinates, phi: Phi, b: np.ndarray | None
) -> Iterator[Stripe]:
    """The columns of the free derivative from the first to the last, so many at once as threads."""
    c = Columns.of(records, coords, phi, b, summed=pays_whole(records, phi))
    total, place = records.total, elsewhere(records)
    codes = c.stripes if place is None else loads(records, c)
    if place is None:
        all_sums = sums_of_stripes(records, c, codes)
    else:
        all_sums = place.sums(stripe_sums, records, c, codes)
    for some, (loss, G, columns) in zip(codes, all_sums, strict=True):
        column = columns.sum(axis=0)
        G -= np.outer(coords.center, column)
        G *= coords.gain[some] / (coords.scale[:, None] * total)
        np.fill_diagonal(G[some], 0 if coords.tie is None else coords.tie[some] * column / total)
        yield Stripe(some, loss / total, G, columns / total)


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
    site_of = site_rows(records, offset)

    def work(chunks: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
        ZQ, column = np.zeros((p, p)), np.zeros(p)
        zero = np.zeros(p)
        for s in row_blocks(chunks, p, 8):
            block = Block(records, s, np.dtype(np.float64))
            M, Q = np.empty((block.rows, p)), np.empty((block.rows, p))
            probability = expit(block.times(S, zero, M) + offset[site_of[s]])
            block.times(D, change[0], Q)
            Q *= probability * (1 - probability) * block.weight[:, None]
            block.add_transpose_times(Q, ZQ)
            column += Q.sum(axis=0)
        return ZQ, column

    ZQ, column = _sum_parts(_each_part(records, work))
    H = (ZQ - np.outer(coords.center, column)) * coords.gain / coords.scale[:, None]
    np.fill_diagonal(H, 0 if coords.tie is None else coords.tie * column)
    return H / records.total


def logit_moments(
    records: Records, coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums over each site's records of sigmoid and sigmoid(1 - sigmoid), (sites, p) each."""
    f = Factored.of(coords, U, V, b)
    if pays(records, U.shape[1]):
        c = Columns.of(records, coords, f, b, summed=True)
        mean, variance = add_up(moment_sums, records, c)
    else:
        mean, variance = add_up(_moment_sums, records, f)
    return mean, variance


def _moment_sums(records: Records, f: Factored, _: None) -> tuple:
    dtype = f.S.dtype
    p, d = f.S.shape
    site_of = site_rows(records, f.intercept)

    def work(chunks: Sequence[slice]) -> tuple:
        sums = np.zeros((2, *f.intercept.shape))
        for s in row_blocks(chunks, p, dtype.itemsize):
            block = Block(records, s, dtype)
            A = block.times(f.S, f.offset, np.empty((block.rows, d), dtype=dtype))
            mean, variance = np.zeros((2, *f.intercept.shape), dtype=dtype)
            kernels.moments(
                *(A @ f.Vg.T, f.intercept, site_of[s], block.weight),
                *(block.indptr, block.indices, f.own, mean, variance),
            )
            sums += mean, variance
        return sums[0], sums[1]

    return _sum_parts(_each_part(records, work))


def conditional(
    records: Records,
    coords: Coordinates,
    U: np.ndarray,
    V: np.ndarray,
    b: np.ndarray | None,
    features: np.ndarray,
) -> np.ndarray:
    """(n, len(features)) probabilities P(z_j = 1 | the record's other codes)."""
    f = Factored.of(coords, U, V, b)
    out = np.empty((records.n, features.size), dtype=U.dtype)
    site_of = site_rows(records, f.intercept)
    Z = records.csr(np.float32)
    width = max(features.size, U.shape[1])
    for s in row_blocks([slice(0, records.n)], width, U.dtype.itemsize):
        block = Block(records, s, U.dtype)
        A = block.times(f.S, f.offset, np.empty((block.rows, U.shape[1]), dtype=U.dtype))
        present = Z[s][:, features].toarray()
        logit = A @ f.Vg[features].T + f.intercept[site_of[s]][:, features]
        out[s] = expit(logit - present * f.own[features])
    return out
