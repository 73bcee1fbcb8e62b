"""Where answers with noise look: along the strong components of the start.

Q (p, d) spans them.  A symmetric S is told as ``T(S) = S - (I - QQ') S (I - QQ')``: how every code
stands to the components, and nothing of how two codes stand to each other besides.  A patient then
moves far fewer numbers, far less noise hides the patient, and noise of p d numbers is weaker
than noise of p^2.  Everything here is written as ``T = B Q' + Q B'`` with B (p, d).
"""

import numpy as np

from daniel.core import natural

STRONG = 0.25  # share of the largest component's size from which on one is strong


def directions(start: natural.Start) -> np.ndarray | None:
    """(p, d) orthonormal basis of the start's strong components; None at independence."""
    left, size, _ = np.linalg.svd(start.U.astype(np.float64), full_matrices=False)
    if size[0] == 0:
        return None
    return left[:, size**2 >= STRONG * size[0] ** 2]


def along(S: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """B (p, d) of a symmetric S (p, p): ``S Q - Q (Q' S Q) / 2``."""
    SQ = S @ Q
    return SQ - Q @ (Q.T @ SQ) / 2


def matrix_of(B: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """(p, p) ``B Q' + Q B'`` without its diagonal, which says nothing."""
    half = B @ Q.T
    out = half + half.T
    np.fill_diagonal(out, 0)
    return out


def triangle_of(B: np.ndarray, Q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Upper triangle of scale scale' (B Q' + Q B'), row by row, with a zero diagonal."""
    p = scale.size
    out = np.empty(p * (p + 1) // 2)
    first = 0
    for j in range(p):
        row = Q[j:] @ B[j] + B[j:] @ Q[j]
        out[first : first + p - j] = row * scale[j] * scale[j:]
        out[first] = 0
        first += p - j
    return out


def squared_norms(x: np.ndarray, y: np.ndarray, runs: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """(patients,) squared norms of T(S), S = sym(sum_r x_r y_r') without its diagonal.

    x, y (records, p); a patient's records begin at each of `runs`.  ``|T(S)|^2 = 2 |S Q|^2 -
    |Q' S Q|^2``.
    """
    xQ, yQ = x @ Q, y @ Q
    edges = np.append(runs, x.shape[0])
    out = np.empty(runs.size)
    for i in range(runs.size):
        r = slice(edges[i], edges[i + 1])
        SQ = (x[r].T @ yQ[r] + y[r].T @ xQ[r]) / 2 - (x[r] * y[r]).sum(axis=0)[:, None] * Q
        out[i] = 2 * np.vdot(SQ, SQ) - ((Q.T @ SQ) ** 2).sum()
    return out


def noise_along(draws: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """B of noise with standard deviation 1 in every direction of the space of all T(S).

    draws (d + p, d): standard normal numbers.
    """
    d = Q.shape[1]
    within, across = draws[:d], draws[d:]
    return Q @ (within + within.T) / 4 + (across - Q @ (Q.T @ across)) / np.sqrt(2)


def norm_of_noise(p: int, d: int) -> float:
    """About the norm of that noise: ``(sqrt(p) + sqrt(d)) / sqrt(2)``; d = p without directions."""
    return float((np.sqrt(p) + np.sqrt(d)) / np.sqrt(2))
