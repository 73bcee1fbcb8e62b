"""A change of variables in which very large fits need half the steps.

The loss curves along Phi as the correlations C of the codes do, and Phi = U diag(signs) U' moves
with U as strong as U is.  In W, with ``U = (C + I)^-1/2 W (U0'U0 + small)^-1/2``, both are even.
"""

from dataclasses import dataclass

import numpy as np

from daniel.core.coordinates import Coordinates
from daniel.core.records import Records
from daniel.core.spectrum import WHOLE
from daniel.core.start import correlation

WEAK = 0.02  # added to the squared sizes of columns: those that are still zero must be able to grow


@dataclass(frozen=True)
class Scaling:
    """U = left W right, with inverses; left is None where a second (p, p) array is too much."""

    left: np.ndarray | None
    left_inverse: np.ndarray | None
    right: np.ndarray
    right_inverse: np.ndarray

    @classmethod
    def of(
        cls, records: Records, coords: Coordinates, U: np.ndarray, signs: np.ndarray
    ) -> "Scaling":
        """For a fit that starts at U; a part of its records will do."""
        left = left_inverse = None
        if records.p <= WHOLE:
            value, vector = np.linalg.eigh(correlation(records, coords))
            root = np.sqrt(np.maximum(value + 1, 0) + 1)  # the correlations have a zero diagonal
            left = ((vector / root) @ vector.T).astype(U.dtype)
            left_inverse = ((vector * root) @ vector.T).astype(U.dtype)
        right, right_inverse = np.zeros((2, signs.size, signs.size))
        for sign in (1.0, -1.0):
            own = np.flatnonzero(signs == sign)
            value, vector = np.linalg.eigh((U[:, own].T @ U[:, own]).astype(np.float64))
            root = np.sqrt(np.maximum(value, 0) + WEAK)
            right[np.ix_(own, own)] = (vector / root) @ vector.T
            right_inverse[np.ix_(own, own)] = (vector * root) @ vector.T
        size = np.sqrt((right**2).mean() * signs.size)  # steps of about the usual length
        return cls(
            left,
            left_inverse,
            (right / size).astype(U.dtype),
            (right_inverse * size).astype(U.dtype),
        )

    def to_U(self, W: np.ndarray) -> np.ndarray:
        """Also the gradient in W of a gradient in U: both matrices are symmetric."""
        U: np.ndarray = W @ self.right
        return U if self.left is None else self.left @ U

    def to_W(self, U: np.ndarray) -> np.ndarray:
        W: np.ndarray = U @ self.right_inverse
        return W if self.left_inverse is None else self.left_inverse @ W
