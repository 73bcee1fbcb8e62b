"""The outer eigenvalues of a symmetric matrix, and its whole spectrum where that is affordable."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from daniel.core.threads import decomposing, one_blas_thread

FEW_ROWS = 400  # up to here a dense solver is at once as fast as anything
WHOLE = 3_000  # rows up to which the whole spectrum is affordable
BLOCK = 32  # vectors at once, for more rows than that
KRYLOV = 3  # dimensions of the space for each eigenpair


class Spectrum:
    """Eigenpairs of a symmetric matrix (p, p), given whole or as a product with vectors.

    What was computed is kept: asking again costs nothing.  dtype: precision of a whole
    decomposition, half the work in float32.
    """

    def __init__(
        self, matrix: np.ndarray | LinearOperator, dtype: npt.DTypeLike = np.float64
    ) -> None:
        self.p: int = matrix.shape[0]
        self._matrix = matrix
        self._dtype = dtype
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def ends(self, k: int, end: str) -> tuple[np.ndarray, np.ndarray]:
        """The k largest (end "LA") or smallest ("SA") eigenvalues, outermost first, and vectors."""
        k = min(k, self.p)
        if isinstance(self._matrix, np.ndarray) and self.p <= FEW_ROWS:
            return extreme_eigenpairs(self._matrix, k, end)
        if end not in self._known or self._known[end][0].size < k:
            self._compute(k, end)
        value, vector = self._known[end]
        return value[:k], vector[:, :k]

    def _compute(self, k: int, end: str) -> None:
        if isinstance(self._matrix, np.ndarray) and self.p <= WHOLE:
            with decomposing(self.p):
                own = self._matrix.astype(self._dtype)  # NumPy's is no faster in float32
                value, vector = eigh(own, driver="evd", overwrite_a=True)
            self._known = {"SA": (value, vector), "LA": (value[::-1], vector[:, ::-1])}
        elif self.p > WHOLE and k < self.p // 4:
            self._known = _both_ends(self._matrix, k)
        else:
            self._known[end] = extreme_eigenpairs(self._matrix, k, end)

    def values(self) -> np.ndarray | None:
        """All eigenvalues, or None where they would cost more than the fit."""
        if not isinstance(self._matrix, np.ndarray) or self.p > WHOLE:
            return None
        if self.p <= FEW_ROWS:
            with decomposing(self.p):
                return np.linalg.eigvalsh(self._matrix)
        return self.ends(self.p, "SA")[0]

    def largest(self) -> float:
        return float(self.ends(1, "LA")[0][0])

    def count_above(self, threshold: float, most: int) -> int:
        """Number of eigenvalues above the threshold, or `most` if there are more."""
        k = min(self.p, 32)
        while True:
            value, _ = self.ends(k, "LA")
            above = int((value > threshold).sum())
            if above < k or k >= min(self.p, most):
                return min(above, most)
            k = min(self.p, most, 2 * k)


def leading_eigenpairs(matrix: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues, largest first, and vectors; in the matrix's precision."""
    p = matrix.shape[0]
    if k == 0 or p > WHOLE or not matrix.any():
        return Spectrum(matrix).ends(k, "LA")
    value, vector = _dense_eigenpairs(matrix, min(k, p), "LA")
    return value[::-1], vector[:, ::-1]


def extreme_eigenpairs(
    matrix: np.ndarray | LinearOperator, k: int, end: str
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest (end "LA") or smallest ("SA") eigenvalues, outermost first, and vectors."""
    p = matrix.shape[0]
    k = min(k, p)
    if k == 0 or _is_zero(matrix):  # Lanczos cannot start on a zero matrix
        return np.zeros(k), np.eye(p, k)
    few = p > FEW_ROWS and k < p // 4
    value, vector = _lanczos(matrix, k, end) if few else _dense_eigenpairs(matrix, k, end)
    order = np.argsort(value)[::-1] if end == "LA" else np.argsort(value)
    return value[order], vector[:, order]


def _is_zero(matrix: np.ndarray | LinearOperator) -> bool:
    if isinstance(matrix, np.ndarray):
        return not matrix.any()
    return not (matrix @ np.random.default_rng(0).standard_normal(matrix.shape[0])).any()


def _lanczos(
    matrix: np.ndarray | LinearOperator, k: int, end: str
) -> tuple[np.ndarray, np.ndarray]:
    p = matrix.shape[0]
    with one_blas_thread():
        try:
            return eigsh(matrix, k=k, which=end, v0=np.ones(p) / np.sqrt(p), tol=1e-5)
        except ArpackError:  # equal eigenvalues at the edge, as repeated columns make them
            return _dense_eigenpairs(matrix, k, end)


def _both_ends(
    matrix: np.ndarray | LinearOperator, k: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """About k outer eigenpairs of either end, by Rayleigh-Ritz on a block Krylov space.

    Products with BLOCK vectors at once run at the speed of matrix products, and there are no
    restarts: eigenvalues inside a bulk of noise, which Lanczos waits for, are not sharp anyway.
    """
    p = matrix.shape[0]
    if _is_zero(matrix):
        return {end: (np.zeros(k), np.eye(p, k)) for end in ("LA", "SA")}
    steps = -(-KRYLOV * k // BLOCK) + 4
    basis = np.empty((p, 0))
    image = np.empty((p, 0))
    block = np.random.default_rng(0).standard_normal((p, BLOCK))
    for _ in range(steps):
        for _ in range(2):  # once more, for what rounding has left
            block -= basis @ (basis.T @ block)
            block = np.linalg.qr(block)[0]
        basis = np.hstack([basis, block])
        # In the matrix's precision: NumPy would else make a copy of it in the block's.
        block = np.asarray(matrix @ block.astype(matrix.dtype), dtype=np.float64)
        image = np.hstack([image, block])
    value, inner = np.linalg.eigh((basis.T @ image + image.T @ basis) / 2)
    low, high = inner[:, :k], inner[:, ::-1][:, :k]
    return {"SA": (value[:k], basis @ low), "LA": (value[::-1][:k], basis @ high)}


def _dense_eigenpairs(
    matrix: np.ndarray | LinearOperator, k: int, end: str
) -> tuple[np.ndarray, np.ndarray]:
    p = matrix.shape[0]
    whole = matrix if isinstance(matrix, np.ndarray) else matrix @ np.eye(p)
    with decomposing(p):
        return eigh(whole, subset_by_index=(p - k, p - 1) if end == "LA" else (0, k - 1))
