"""Simple axes: of all rotations of an embedding, the one whose axes each gather few codes.

U and UR give the same model, distances and cosines; what differs is what a single axis means.  On
principal axes it means nothing much, on these a group of codes that go together: a person can name
it, and a decision tree can split on it.
"""

import numpy as np

from daniel.core.threads import decomposing

STEPS = 100
TOLERANCE = 1e-5  # relative growth of the criterion in one step at which it has converged


def simple_axes(U: np.ndarray) -> np.ndarray:
    """U (p, d) on its varimax axes, largest first; the largest entry of an axis is positive.

    Kaiser (1958), rows brought to length one so that rare and common codes count alike.  Axes that
    are zero in U come last and stay zero.
    """
    used = U.any(axis=0)
    own = U[:, used].astype(np.float64)
    if own.shape[1] > 1:
        rows = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-30)
        own = own @ varimax(rows.astype(U.dtype))
    own = own[:, np.argsort(-(own**2).sum(axis=0), kind="stable")]
    own = own * np.sign(own[np.abs(own).argmax(axis=0), np.arange(own.shape[1])])
    out = np.zeros_like(U)
    out[:, : own.shape[1]] = own
    return out


def varimax(L: np.ndarray) -> np.ndarray:
    """(d, d) rotation R for which the squares of each column of LR vary most.

    Products with L are in its precision.
    """
    p, d = L.shape
    R, reached = np.eye(d), 0.0
    with decomposing(d):
        for _ in range(STEPS):
            B = L @ R.astype(L.dtype)
            square = B * B
            M = L.T @ (B * (square - square.sum(axis=0) / p))
            R, criterion = _nearest_rotation(M.astype(np.float64))
            if criterion < reached * (1 + TOLERANCE):
                break
            reached = criterion
        left, _, right = np.linalg.svd(R)  # orthogonal to the last digit
    return left @ right


def _nearest_rotation(M: np.ndarray) -> tuple[np.ndarray, float]:
    """M (M'M)^(-1/2), and the sum of M's singular values; several times faster than by an SVD."""
    square, vector = np.linalg.eigh(M.T @ M)
    size = np.sqrt(np.maximum(square, np.finfo(float).eps * max(float(square[-1]), 1e-300)))
    return M @ (vector / size) @ vector.T, float(size.sum())
