"""The numbers behind logistic PCA: saturated natural parameters, projected by majorisation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

Floats = NDArray[np.float64]
# Rows of a dense block: n × p is never held at once.
BLOCK_ROWS = 4096

# The deviance has curvature at most 1/4, so a step of 4 never goes up.
SAFE_STEP = 4.0


@dataclass(frozen=True)
class State:
    """A point (mu, U) of logistic PCA and what the next step needs.

    With P = σ(θ): scores (n, d), deviance per record, sum_p (p,) = P'1, and zp (p, p) = Z'P.
    """

    mu: Floats
    U: Floats
    scores: Floats
    deviance: float
    sum_p: Floats
    zp: Floats


class Projection:
    """Deviance of logistic PCA and the minimiser of its quadratic bound.

    The saturated parameters T = m(2Z - 1) are never formed: their products follow from those
    of the sparse Z. An evaluation costs n·p·d for θ and nnz·p for Z'P, in blocks of rows.
    """

    def __init__(self, Z: sparse.csr_array, saturation: float) -> None:
        self.Z, self.m = Z, saturation
        self.n, self.p = Z.shape
        self.sum_z = np.asarray(Z.sum(axis=0)).ravel()
        self.zz = (Z.T @ Z).toarray()
        self.sum_t = self.m * (2 * self.sum_z - self.n)
        self.tt = self._times_t(self.m * (2 * self.zz - self.sum_z[:, None]), self.sum_t)

    def _times_t(self, z_times: Floats, sums: Floats) -> Floats:
        """T'B from Z'B and the column sums of B."""
        return self.m * (2 * z_times - sums)

    def start(self, d: int) -> tuple[Floats, Floats]:
        """Log-odds of each code, and the principal components of the records."""
        covariance = self.zz - np.outer(self.sum_z, self.sum_z) / self.n
        return log_odds(self.sum_z, self.n), _leading(covariance, d)

    def evaluate(self, mu: Floats, U: Floats) -> State:
        """Scores, deviance and the sums over σ(θ) at (mu, U)."""
        ZU = self.Z @ U
        scores = 2 * self.m * ZU - (self.m + mu) @ U
        # Single precision is plenty for σ, and halves the time of a block.
        A, B, shift = scores.astype(np.float32), U.T.astype(np.float32), mu.astype(np.float32)
        softplus, sum_p, zp = 0.0, np.zeros(self.p), np.zeros((self.p, self.p))
        for start in range(0, self.n, BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            theta = A[rows] @ B
            theta += shift
            decay = np.exp(-np.abs(theta))
            softplus += float((np.maximum(theta, 0) + np.log1p(decay)).sum(dtype=np.float64))
            P = np.where(theta >= 0, 1, decay) / (1 + decay)
            sum_p += P.sum(axis=0, dtype=np.float64)
            zp += self.Z[rows].T @ P
        fit = float(self.sum_z @ mu + np.vdot(scores, ZU))
        return State(mu, U, scores, 2 * (softplus - fit) / self.n, sum_p, zp)

    def minimise_bound(self, state: State, step: float) -> tuple[Floats, Floats]:
        """(mu, U) that fit Y = θ + step (Z - P) best in least squares, mu first.

        mu = mean(Y - T U U'); then U = leading eigenvectors of S + S' - T_c'T_c with
        S = T_c'Y_c, where c means that mu is subtracted from every row.
        """
        n, mu, U = self.n, state.mu, state.U
        sum_y = n * mu + U @ state.scores.sum(axis=0) + step * (self.sum_z - state.sum_p)
        zy = np.outer(self.sum_z, mu) + (self.Z.T @ state.scores) @ U.T
        zy += step * (self.zz - state.zp)
        ty = self._times_t(zy, sum_y)
        mu = (sum_y - U @ (U.T @ self.sum_t)) / n
        S = ty - np.outer(self.sum_t, mu) - np.outer(mu, sum_y) + n * np.outer(mu, mu)
        T = self.tt - np.outer(self.sum_t, mu) - np.outer(mu, self.sum_t) + n * np.outer(mu, mu)
        return mu, _leading(S + S.T - T, U.shape[1])


def _leading(S: Floats, d: int) -> Floats:
    """Eigenvectors (p, d) of the d largest eigenvalues of a symmetric matrix."""
    p = len(S)
    return np.asarray(eigh(S, subset_by_index=[p - d, p - 1])[1][:, ::-1])


def log_odds(counts: Floats, n: int) -> Floats:
    """Log-odds of codes seen in `counts` of n records; half a record more keeps them finite."""
    return np.asarray(np.log((counts + 0.5) / (n - counts + 0.5)))
