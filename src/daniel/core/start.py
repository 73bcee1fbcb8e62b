"""Starts and scales: spectral and convex Theta0, the noise level, the automatic penalty."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, eigsh

from daniel.core.coordinates import Coordinates
from daniel.core.ising import full_sweep, symmetric_gradient
from daniel.core.records import Records


def smoothed_mean(counts: np.ndarray, total: float) -> np.ndarray:
    """Prevalence (counts + 1/2) / (total + 1): never 0 or 1, so that rare codes keep a scale."""
    return (counts + 0.5) / (total + 1.0)


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


def top_eigenpairs(matrix: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues, descending, and their vectors (p, k); deterministic."""
    p = matrix.shape[0]
    k = min(k, p)
    if p > 400 and k < p // 4:
        value, vector = eigsh(matrix, k=k, which="LA", v0=np.ones(p) / np.sqrt(p), tol=1e-6)
    else:
        value, vector = eigh(matrix, subset_by_index=(p - k, p - 1))
    order = np.argsort(value)[::-1]
    return value[order], vector[:, order]


def spectral_factor(matrix: np.ndarray, d: int, threshold: float) -> np.ndarray:
    """U (p, d) with UU' the best positive semidefinite fit under a nuclear-norm threshold."""
    value, vector = top_eigenpairs(matrix, d)
    return vector * np.sqrt(np.maximum(value - threshold, 0))


def noise_level(
    counts: np.ndarray, total: float, rng: np.random.Generator, draws: int = 3
) -> float:
    """Operator norm of the natural gradient when every column is permuted, averaged over draws.

    Permuted columns keep each code's number of records and lose every relation, so this is what
    chance alone puts into (G + G')/2; about 2 sqrt(p/n), more when many codes are rare.
    """
    n = int(round(total))
    counts = np.round(counts).astype(int)
    kept = counts[(counts > 0) & (counts < n)]
    if kept.size < 2:
        return 0.0
    return float(np.mean([_permuted_norm(kept, n, rng) for _ in range(draws)]))


def _permuted_norm(counts: np.ndarray, n: int, rng: np.random.Generator) -> float:
    p = counts.size
    rows = np.concatenate([rng.choice(n, c, replace=False, shuffle=False) for c in counts])
    columns = np.repeat(np.arange(p), counts)
    Z = sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, p))
    mean = counts / n
    sigma = np.sqrt(mean * (1 - mean))
    scaled = sp.csr_array(Z / sigma[None, :])
    center = mean / sigma

    def apply(v: np.ndarray) -> np.ndarray:
        v = v.ravel()
        return scaled.T @ (scaled @ v) / n - center * (center @ v) - v

    operator = LinearOperator((p, p), matvec=apply, dtype=np.float64)
    if p < 10:
        return float(np.linalg.norm(operator @ np.eye(p), 2))
    top = eigsh(operator, k=1, which="LA", v0=rng.standard_normal(p), tol=1e-3)[0]
    return float(top[0])


def convex_start(
    gradient: Callable[[np.ndarray], np.ndarray],
    p: int,
    *,
    step_size: float,
    penalty: float = 0.0,
    radius: float = np.inf,
    steps: int = 5,
) -> np.ndarray:
    """Proximal gradient steps from zero on eq. (question): loss + penalty * nuclear norm, in a ball.

    `gradient(theta)` is the symmetric derivative W.  Penalty 0 and 5 steps are the paper's start; it
    need not converge (Theorem 2).
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


def hub_gradient(records: Records, coords: Coordinates) -> Callable[[np.ndarray], np.ndarray]:
    """theta -> W(theta), eq. (B_star), in the paper's coordinates."""
    return lambda theta: symmetric_gradient(full_sweep(records, coords, theta, None).G)


def balanced_factors(theta: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """U = L sqrt(S), V = R sqrt(S) of the rank-d SVD; a symmetric theta gives V = U D (Remark 1).

    For a symmetric theta the eigenvectors are used, which makes V = U D exact: singular vectors of
    equal singular values need not agree in sign.
    """
    if np.array_equal(theta, theta.T):
        value, vector = np.linalg.eigh(theta)
        order = np.argsort(-np.abs(value))[:d]
        U = vector[:, order] * np.sqrt(np.abs(value[order]))
        return U, U * np.where(value[order] < 0, -1.0, 1.0)
    left, value, right = np.linalg.svd(theta)
    root = np.sqrt(value[:d])
    return left[:, :d] * root, right[:d].T * root
