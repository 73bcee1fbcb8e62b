"""Starts: correlations, spectral and convex Theta0."""

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import LinearOperator

from daniel.core.coordinates import Coordinates, smoothed_mean
from daniel.core.exchange import Answer, Start
from daniel.core.place import add_up
from daniel.core.records import Records, split
from daniel.core.spectrum import WHOLE, Spectrum

MOMENT_ROWS = 1 << 16  # records of which copies are made at once


def correlation(records: Records, coords: Coordinates, dtype: type = np.float64) -> np.ndarray:
    """(p, p) mean of xt xt' about the site means, with a zero diagonal.

    In natural coordinates this is the correlation matrix within sites, and minus the gradient at
    independence.
    """
    (second,) = add_up(_second_moments, records, dtype)
    totals = records.site_totals()
    counts = records.site_counts()
    used = totals > 0
    second -= (counts[used] / totals[used, None]).T @ counts[used]
    second *= (1 / (records.total * coords.scale))[:, None]
    second /= coords.scale[None, :]
    np.fill_diagonal(second, 0)
    return second


def _second_moments(records: Records, dtype: type, _: None) -> tuple[np.ndarray]:
    """(p, p) weighted number of records with each two codes."""
    second: np.ndarray = np.zeros((records.p, records.p), dtype=dtype)
    for rows in split(slice(0, records.n), max(1, -(-records.n // MOMENT_ROWS))):
        part = records.rows(rows)
        Z = part.csr()
        second += (Z.T @ (Z * part.weight[:, None]).tocsr()).toarray()
    return (second,)


def correlation_operator(records: Records, coords: Coordinates) -> LinearOperator:
    """`correlation` of the records of one site, as a product with vectors."""
    Z = records.csr(np.float32)  # the only copy; products are in the precision of v
    total, counts, scale = records.total, records.counts(), coords.scale
    center = counts / (total * scale)
    own = counts * (1 - counts / total) / (total * scale**2)
    weight = records.weight / total

    def apply(v: np.ndarray) -> np.ndarray:  # (p,) or (p, k)
        seen = Z @ (v.T / scale).T
        product: np.ndarray = ((Z.T @ (seen.T * weight).T).T / scale - own * v.T).T
        product -= np.tensordot(center, center @ v, axes=0)
        return product

    return LinearOperator((records.p, records.p), matvec=apply, matmat=apply, dtype=np.float64)


def proximal(G: np.ndarray, mean: Answer, start: Start) -> np.ndarray | LinearOperator:
    """(p, p) Phi0 minus the symmetric derivative G, without what tied intercepts cannot fit.

    That part shows in G and is not a relation; the descent starts without it.
    """
    coords, U, V = start.coords, start.U, start.V
    p = coords.p
    off_centre = (smoothed_mean(mean.counts, mean.n) - coords.center) / coords.scale
    column = coords.gain * mean.b[0]
    if p <= WHOLE:
        relations = G - (np.outer(off_centre, column) + np.outer(column, off_centre)) / 2
        np.fill_diagonal(relations, 0)
        return (U @ V.T).astype(np.float64) - relations

    own = np.diag(G) - off_centre * column

    def apply(v: np.ndarray) -> np.ndarray:  # (p,) or (p, k)
        product: np.ndarray = U @ (V.T @ v) - G @ v.astype(G.dtype) + (own * v.T).T
        product += np.tensordot(off_centre, column @ v, axes=0) / 2
        product += np.tensordot(column, off_centre @ v, axes=0) / 2
        return product

    return LinearOperator((p, p), matvec=apply, matmat=apply, dtype=np.float64)


def corrected_correlation(
    reference: Records, coords: Coordinates, correction: np.ndarray
) -> np.ndarray | LinearOperator:
    """(p, p) correlations of all records, as far as reference and correction tell them.

    Correlations are minus the derivative at independence, and those of all records are the
    reference's, corrected by how the derivatives differ at the start: exactly so at a start from
    independence, and else as far as the curvatures of reference and study are the same.
    """
    if coords.p <= WHOLE:
        both = correlation(reference, coords) - (correction + correction.T) / 2
        np.fill_diagonal(both, 0)
        return both
    own, diagonal = correlation_operator(reference, coords), np.diag(correction).copy()

    def apply(v: np.ndarray) -> np.ndarray:  # (p,) or (p, k)
        w = v.astype(correction.dtype)
        product: np.ndarray = own @ v - (correction @ w + correction.T @ w) / 2
        return product + (diagonal * v.T).T

    return LinearOperator(own.shape, matvec=apply, matmat=apply, dtype=np.float64)


def spectral_start(
    matrix: Spectrum, signs: np.ndarray, penalty: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """U (p, d) from the eigenpairs of a correlation matrix, for factors U diag(signs) U'.

    Eigenvalues are lowered by the penalty and, because couplings are partial and correlations are
    not, squeezed as s / (1 + s).  A little noise lets columns that start at zero, a saddle, grow.
    """
    U = np.zeros((matrix.p, signs.size))
    for end, side in (("LA", signs > 0), ("SA", signs < 0)):
        value, vector = matrix.ends(int(side.sum()), end)
        s = np.maximum(np.abs(value) - penalty[side], 0)
        U[:, side] = vector * np.sqrt(s / (1 + s))
    return U + rng.standard_normal(U.shape) * (0.03 / np.sqrt(matrix.p))


def convex_start(
    gradient: Callable[[np.ndarray], np.ndarray],
    p: int,
    *,
    step_size: float,
    penalty: float = 0.0,
    radius: float = np.inf,
    steps: int = 5,
    dtype: str = "float64",
) -> np.ndarray:
    """Proximal gradient steps from zero on eq. (question), inside the ball.

    `gradient(theta)` is the symmetric derivative W.  Penalty 0 and 5 steps are the paper's start;
    it need not converge (Theorem 2).
    """
    theta: np.ndarray = np.zeros((p, p), dtype=dtype)
    for _ in range(steps):
        theta = theta - step_size * gradient(theta)
        if penalty > 0:
            theta = soft_threshold(theta, step_size * penalty)
        theta = in_ball(theta, radius)
    return theta


def soft_threshold(theta: np.ndarray, threshold: float) -> np.ndarray:
    """Singular values lowered by `threshold`: the proximal map of the nuclear norm."""
    left, value, right = np.linalg.svd(theta)
    return (left * np.maximum(value - threshold, 0)) @ right


def in_ball(theta: np.ndarray, radius: float) -> np.ndarray:
    """Projection on the Frobenius ball of eq. (question)."""
    norm = np.linalg.norm(theta)
    return theta if norm <= radius else theta * (radius / norm)


def signed_factor(theta: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """U (p, d) and signs (d,) with U diag(signs) U' the rank-d SVD of a symmetric theta.

    Eigenvectors rather than singular vectors, because V = U D (Remark 1) is then exact.
    """
    value, vector = np.linalg.eigh((theta + theta.T) / 2)
    order = np.argsort(-np.abs(value), kind="stable")[:d]
    signs = np.where(value[order] < 0, -1.0, 1.0)
    return vector[:, order] * np.sqrt(np.abs(value[order])), signs
