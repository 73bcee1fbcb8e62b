"""Starts: correlations and their eigenvalues, spectral and convex Theta0."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh

from daniel.core.coordinates import Coordinates
from daniel.core.records import Records
from daniel.core.threads import one_blas_thread


def correlation(records: Records, coords: Coordinates, dtype: type = np.float64) -> np.ndarray:
    """(p, p) mean of xt xt' about the site means, with a zero diagonal.

    In natural coordinates this is the correlation matrix within sites, and minus the gradient at
    independence.
    """
    Z = records.csr()
    second = (Z.T @ (Z * records.weight[:, None]).tocsr()).astype(dtype).toarray()
    totals = records.site_totals()
    counts = records.site_counts()
    used = totals > 0
    second -= (counts[used] / totals[used, None]).T @ counts[used]
    second *= (1 / (records.total * coords.scale))[:, None]
    second /= coords.scale[None, :]
    np.fill_diagonal(second, 0)
    return second


def extreme_eigenpairs(matrix: np.ndarray, k: int, end: str) -> tuple[np.ndarray, np.ndarray]:
    """The k largest (end "LA") or smallest ("SA") eigenvalues, outermost first, and vectors."""
    p = matrix.shape[0]
    k = min(k, p)
    if k == 0 or not matrix.any():  # Lanczos cannot start on a zero matrix
        return np.zeros(k), np.eye(p, k)
    few = p > 400 and k < p // 4
    value, vector = _lanczos(matrix, k, end) if few else _dense_eigenpairs(matrix, k, end)
    order = np.argsort(value)[::-1] if end == "LA" else np.argsort(value)
    return value[order], vector[:, order]


def _lanczos(matrix: np.ndarray, k: int, end: str) -> tuple[np.ndarray, np.ndarray]:
    p = matrix.shape[0]
    with one_blas_thread():
        try:
            return eigsh(matrix, k=k, which=end, v0=np.ones(p) / np.sqrt(p), tol=1e-5)
        except ArpackError:  # equal eigenvalues at the edge, as repeated columns make them
            return _dense_eigenpairs(matrix, k, end)


def _dense_eigenpairs(matrix: np.ndarray, k: int, end: str) -> tuple[np.ndarray, np.ndarray]:
    p = matrix.shape[0]
    return eigh(matrix, subset_by_index=(p - k, p - 1) if end == "LA" else (0, k - 1))


def spectral_start(
    matrix: np.ndarray, signs: np.ndarray, penalty: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """U (p, d) from the eigenpairs of a correlation matrix, for factors U diag(signs) U'.

    Eigenvalues are lowered by the penalty and, because couplings are partial and correlations are
    not, squeezed as s / (1 + s).  A little noise lets columns that start at zero, a saddle, grow.
    """
    p = matrix.shape[0]
    U = np.zeros((p, signs.size))
    for end, side in (("LA", signs > 0), ("SA", signs < 0)):
        value, vector = extreme_eigenpairs(matrix, int(side.sum()), end)
        s = np.maximum(np.abs(value) - penalty[side], 0)
        U[:, side] = vector * np.sqrt(s / (1 + s))
    return U + rng.standard_normal(U.shape) * (0.03 / np.sqrt(p))


def count_above(matrix: np.ndarray, threshold: float, most: int) -> int:
    """Number of eigenvalues above the threshold, or `most` if there are more."""
    p = matrix.shape[0]
    k = min(p, 32)
    while True:
        value, _ = extreme_eigenpairs(matrix, k, "LA")
        above = int((value > threshold).sum())
        if above < k or k >= min(p, most):
            return min(above, most)
        k = min(p, most, 2 * k)


def convex_start(
    gradient: Callable[[np.ndarray], np.ndarray],
    p: int,
    *,
    step_size: float,
    penalty: float = 0.0,
    radius: float = np.inf,
    steps: int = 5,
) -> np.ndarray:
    """Proximal gradient steps from zero on eq. (question), inside the ball.

    `gradient(theta)` is the symmetric derivative W.  Penalty 0 and 5 steps are the paper's start;
    it need not converge (Theorem 2).
    """
    theta = np.zeros((p, p))
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
