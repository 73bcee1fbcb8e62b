"""Blocks of rows as a sweep sees them: products with Z, and what it needs of Phi."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daniel.core import kernels
from daniel.core.coordinates import Coordinates
from daniel.core.records import DENSE_ABOVE, Records, split

BLOCK_BYTES = 16 << 20  # logits of one block; two or three blocks fit in a shared cache


def row_blocks(chunks: Sequence[slice], width: int, itemsize: int) -> list[slice]:
    """Blocks of nearly equal size whose logits, of so many codes, fit in BLOCK_BYTES."""
    most = max(16, BLOCK_BYTES // (width * itemsize))
    sizes = [(rows, -(-(rows.stop - rows.start) // most)) for rows in chunks]
    return [block for rows, count in sizes for block in split(rows, max(1, count))]


class Block:
    """Some consecutive rows: products with Z, sparse or dense, whichever is faster."""

    def __init__(self, records: Records, rows: slice, dtype: np.dtype) -> None:
        self.indptr = records.indptr[rows.start : rows.stop + 1]
        self.indices = records.indices
        self.site = records.site[rows]
        self.weight = records.weight[rows].astype(dtype)
        self.rows = rows.stop - rows.start
        self.dense = None
        if records.density > DENSE_ABOVE:
            self.dense = np.zeros((self.rows, records.p), dtype=dtype)
            kernels.unpack(self.indptr, self.indices, self.dense)

    def times(self, S: np.ndarray, offset: np.ndarray, out: np.ndarray) -> np.ndarray:
        """out <- Z S + offset."""
        if self.dense is None:
            kernels.gather(self.indptr, self.indices, S, offset, out)
        else:
            np.matmul(self.dense, S, out=out)
            out += offset
        return out

    def add_transpose_times(self, Q: np.ndarray, out: np.ndarray) -> None:
        """out += Z' Q."""
        if self.dense is None:
            kernels.scatter(self.indptr, self.indices, Q, out)
        else:
            out += self.dense.T @ Q


@dataclass(frozen=True)
class Factored:
    """What a sweep needs of Phi = UV', computed once, in the working dtype.

    A logit computed as ``gain_j sum_k phi_kj xt_k`` wrongly holds the term k = j: its constant
    part, ``-gain_j phi_jj center_j / scale_j``, is taken out of `intercept` (sites, p); what a
    present code adds to itself, `own` (p,), is taken out by the kernel.
    """

    S: np.ndarray  # (p, d)  U / scale:  A = Z S + offset = xt U
    offset: np.ndarray  # (d,)
    Vg: np.ndarray  # (p, d)  V * gain:  logits = A Vg'
    intercept: np.ndarray
    own: np.ndarray

    @classmethod
    def of(
        cls, coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray | None
    ) -> "Factored":
        dtype = U.dtype
        own, intercept = own_and_intercept(coords, np.einsum("jc,jc->j", U, V), b)
        S = (U / coords.scale[:, None]).astype(dtype)
        return cls(
            S=S,
            offset=-(coords.center @ S).astype(dtype),
            Vg=(V * coords.gain[:, None]).astype(dtype),
            intercept=intercept.astype(dtype),
            own=own.astype(dtype),
        )


def own_and_intercept(
    coords: Coordinates, diagonal_phi: np.ndarray, b: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """`own` (p,) and `intercept` (sites, p) of `Factored`, in float64."""
    own = coords.gain * diagonal_phi / coords.scale
    if coords.tie is not None:
        b = (coords.tie * diagonal_phi)[None, :]
    assert b is not None, "free intercepts need a value"
    return own, b + own * coords.center


def site_rows(records: Records, intercept: np.ndarray) -> np.ndarray:
    """(n,) row of `intercept` that each record uses: its site's, or the one shared by all."""
    return records.site if intercept.shape[0] > 1 else np.zeros(records.n, dtype=np.int32)
