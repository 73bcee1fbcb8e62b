"""The sketched derivative: along k directions instead of for every pair of codes.

A site tells ``Y = G Q`` (p, k) of its symmetric derivative G (p, p) at the start.  Sketches add up
as derivatives do.  Of their sum the hub knows

    T(G) = G - (I - QQ') G (I - QQ'),

how every code stands to the directions, and nothing of how codes stand to each other besides.

The directions Q (p, k) are the outermost eigenvectors of the hub's own correlations.  Random ones,
from which a matrix of low rank could be rebuilt (Tropp, Yurtsever, Udell and Cevher 2017), will not
do: most of G is noise of full rank, which they fold into what is rebuilt
(results/federation/sketch.md).
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator

from daniel.core.coordinates import natural_coordinates
from daniel.core.exchange import Start
from daniel.core.ising import stripes
from daniel.core.records import Records
from daniel.core.start import correlation_operator

POWERS = 8  # products that turn random columns into the outermost eigenvectors
SPARE = 16  # columns beyond those asked for, which make the others surer
WEAK = 1e-3  # share of the largest singular value below which a direction counts as none
ROWS = 1024  # of a (p, p) array that are made at once


def directions(
    records: Records, k: int, rng: np.random.Generator, U: np.ndarray | None = None
) -> np.ndarray:
    """(p, k) float32 columns: where the hub sees most, eigenvectors by the size of the eigenvalue.

    A code that no record has is zero in all of them: what sites tell of other codes then does not
    depend on it.  With more columns than codes that vary, single codes are the directions.  U
    (p, d): components of an earlier fit, which come first; a code that they have is not zero.
    """
    counts, total = records.counts(), records.total
    varies = (counts > 0) & (counts < total)
    known = varies if U is None else varies | U.any(axis=1)
    if k >= varies.sum():
        order = np.argsort(~varies, kind="stable")[:k]
        single: np.ndarray = np.zeros((records.p, order.size), dtype=np.float32)
        single[order, np.arange(order.size)] = 1
        return single
    first = np.zeros((records.p, 0)) if U is None else _basis(U)[:, :k]
    C = correlation_operator(records, natural_coordinates(counts, total))
    found = _outermost(C, k - first.shape[1], varies, rng)
    both, _ = np.linalg.qr(np.hstack([first, found]))
    both[~known] = 0  # zero but for rounding
    return np.ascontiguousarray(both, dtype=np.float32)


def _basis(U: np.ndarray) -> np.ndarray:
    """Orthonormal columns, strongest first, without those that are next to nothing."""
    left, size, _ = np.linalg.svd(U.astype(np.float64), full_matrices=False)
    return left[:, size > WEAK * max(float(size[0]), 1e-300)]


def _outermost(
    C: LinearOperator, k: int, varies: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(p, k) about the eigenvectors of the k eigenvalues of largest size: block power iteration.

    They need not be exact: a space close to theirs serves as well, and Lanczos is slow where
    eigenvalues lie close together.
    """
    width = min(k + SPARE, int(varies.sum()))
    Q: np.ndarray = rng.standard_normal((varies.size, width)) * varies[:, None]
    for _ in range(POWERS):
        Q, _ = np.linalg.qr(C @ Q)
    value, vector = np.linalg.eigh(Q.T @ (C @ Q))
    return Q @ vector[:, np.argsort(-np.abs(value))[:k]]


def along(
    records: Records, start: Start, b: np.ndarray | None, Q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """G Q (p, k) of the symmetric derivative at the start, and the derivative in b (sites, p).

    2 p^2 k multiplications beside those of the derivative, and no (p, p) array.
    """
    Q = Q.astype(start.U.dtype)
    Y, of_b = np.zeros(Q.shape), []
    for some in stripes(records, start.coords, (start.U, start.V), b):
        G = some.G.astype(Q.dtype)
        Y += G @ Q[some.codes] / 2
        Y[some.codes] += G.T @ Q / 2
        of_b.append(some.b)
    return Y, np.hstack(of_b)


def rebuilt(Y: np.ndarray, Q: np.ndarray, dtype: type = np.float32) -> np.ndarray:
    """(p, p) T(G) from Y = G Q; Q need not be orthonormal.

    With W an orthonormal basis of Q: ``T(G) = B W' + W B'``, ``B = G W - W (W' G W) / 2``.
    """
    left, size, right = np.linalg.svd(Q.astype(np.float64), full_matrices=False)
    strong = size > WEAK * size[0]
    W = left[:, strong]
    GW = (Y.astype(np.float64) @ right[strong].T) / size[strong]
    inner = W.T @ GW
    B = GW - W @ (inner + inner.T) / 4
    W, B = W.astype(dtype), B.astype(dtype)
    p = W.shape[0]
    G: np.ndarray = np.empty((p, p), dtype=dtype)
    for first in range(0, p, ROWS):
        rows = slice(first, first + ROWS)
        G[rows] = B[rows] @ W.T + W[rows] @ B.T
    return G
