"""Sums over records through Phi itself, a stripe of its columns at a time.

A record has few codes.  Its logits are the sum of their rows of Phi, and its residuals are added to
the same rows of the derivative: k + k additions for each logit of a record with k codes, where
products with d columns take 6 d operations.  The rows of a stripe stay in a core's cache, stripes
are shared among threads, and beside them no (p, p) array is needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from daniel.core import kernels
from daniel.core.blocks import Block, Factored, own_and_intercept, row_blocks, site_rows
from daniel.core.coordinates import Coordinates
from daniel.core.records import DENSE_ABOVE, Records, split
from daniel.core.threads import n_threads, run_in_turn

STRIPE = 512  # codes of one stripe at most
LANES = 32  # numbers that a compiled loop takes at once: others are taken one by one
WIDE = 1024  # the same where logits are products of factors
STRIPES = 4  # their number is a multiple of it, to share among threads
STRIPES_BYTES = 1 << 30  # of all that are made at once, if they are more than two
CODES_PER_COLUMN = 0.2  # present codes that cost as much as a column of the factors

T = TypeVar("T")
Phi = np.ndarray | tuple[np.ndarray, np.ndarray]


def pays(records: Records, d: float) -> bool:
    """Whether sums through Phi cost less than products with factors of d columns.

    Phi itself is such a product, of its codes instead of the records.
    """
    present = records.density * records.p
    spared = d * (1 - records.p / max(records.n, 1))
    return records.density <= DENSE_ABOVE and present < CODES_PER_COLUMN * spared


@dataclass(frozen=True)
class Columns:
    """What the logits of some columns need: ``xt Phi * gain`` whole, or through factors.

    summed: logits are sums of rows of Phi.  stripes: all columns, cut by the shape of the records
    alone, so that numbers do not depend on threads.
    """

    coords: Coordinates
    phi: np.ndarray | Factored
    own: np.ndarray
    intercept: np.ndarray
    summed: bool
    stripes: tuple[slice, ...]

    @classmethod
    def of(cls, records: Records, coords: Coordinates, phi: Phi, b: np.ndarray | None) -> "Columns":
        if isinstance(phi, tuple):
            f = Factored.of(coords, *phi, b)
            summed = pays(records, f.S.shape[1])
            return cls(coords, f, f.own, f.intercept, summed, _stripes(records, summed))
        own, intercept = own_and_intercept(coords, np.diag(phi), b)
        own, intercept = own.astype(phi.dtype), intercept.astype(phi.dtype)
        summed = pays(records, np.inf)
        return cls(coords, phi, own, intercept, summed, _stripes(records, summed))

    def weights(self, stripe: slice) -> tuple[np.ndarray, np.ndarray]:
        """S (p, codes), offset (codes,): the logits are ``Z S + offset``, intercepts left out."""
        dtype, phi = self.own.dtype, self.phi
        if isinstance(phi, Factored):
            Vg = phi.Vg[stripe].T
            return phi.S @ Vg, phi.offset @ Vg
        S = phi[:, stripe] * self.coords.gain[stripe] / self.coords.scale[:, None]
        return S.astype(dtype), -(self.coords.center @ S).astype(dtype)

    def logits(self, stripe: slice) -> Callable[[Block], np.ndarray]:
        """A function from blocks to their (rows, codes) logits, intercepts left out."""
        dtype, phi = self.own.dtype, self.phi
        if isinstance(phi, Factored):
            f, Vg = phi, phi.Vg[stripe].T
            d = f.S.shape[1]
            return lambda k: k.times(f.S, f.offset, np.empty((k.rows, d), dtype)) @ Vg
        S, offset = self.weights(stripe)
        return lambda k: k.times(S, offset, np.empty((k.rows, S.shape[1]), dtype))


def _stripes(records: Records, summed: bool) -> tuple[slice, ...]:
    p, several = records.p, STRIPES if len(records.chunks) > 1 else 1
    count = several * -(-p // (several * (STRIPE if summed else WIDE)))
    units = split(slice(0, -(-p // LANES)), count)
    return tuple(slice(s.start * LANES, min(p, s.stop * LANES)) for s in units if s.stop > s.start)


def each_stripe(work: Callable[[slice], T], codes: Sequence[slice], p: int) -> Iterator[T]:
    """``work(stripe)`` of each in turn, so many at once as threads."""
    widest = max((some.stop - some.start for some in codes), default=1)
    return run_in_turn(work, codes, min(n_threads(), max(2, STRIPES_BYTES // (16 * p * widest))))


def stripe_sums(records: Records, c: Columns, stripe: slice) -> tuple:
    """Loss of the stripe's codes, Z'R (p, codes), and sums of R over each site (sites, codes)."""
    if not c.summed:
        return _sums_by_blocks(records, c, stripe)
    own, intercept = c.own[stripe], c.intercept[:, stripe]
    S, offset = c.weights(stripe)
    b = intercept + offset
    site_of, dtype = site_rows(records, intercept), own.dtype
    loss, columns, ZR = 0.0, np.zeros(b.shape), np.zeros(S.shape)
    part = np.empty_like(S)
    for rows in records.chunks:
        part[:] = 0
        column = np.zeros(b.shape, dtype)
        indptr, weight = records.indptr[rows.start : rows.stop + 1], records.weight[rows]
        loss += kernels.derivative(
            *(S, stripe.start, b, site_of[rows], weight.astype(dtype)),
            *(indptr, records.indices, own, column, part),
        )
        columns += column
        ZR += part
    return loss, ZR, columns


def _sums_by_blocks(records: Records, c: Columns, stripe: slice) -> tuple:
    """The same by products, with factors or with dense records."""
    own, intercept = c.own[stripe], np.ascontiguousarray(c.intercept[:, stripe])
    dtype, logits = own.dtype, c.logits(stripe)
    site_of = site_rows(records, intercept)
    loss, columns, ZR = 0.0, np.zeros(intercept.shape), np.zeros((records.p, own.size))
    for s in row_blocks(records.chunks, own.size, dtype.itemsize):
        block = Block(records, s, dtype)
        M = logits(block)
        column, own_sum = np.zeros(intercept.shape, dtype), np.zeros(own.size, dtype)
        loss += kernels.residual(
            *(M, stripe.start, intercept, site_of[s], block.weight),
            *(block.indptr, block.indices, own, column, own_sum),
        )
        columns += column
        block.add_transpose_times(M, ZR)
    return loss, ZR, columns


def sweep_sums(records: Records, c: Columns, _: None) -> tuple:
    """Loss, Z'RVg and R'A (p, d), sums of R over each site (sites, p) and where present (p,)."""
    f = c.phi
    assert isinstance(f, Factored)
    S, Vg = f.S.astype(np.float64), f.Vg.astype(np.float64)

    def work(stripe: slice) -> tuple:
        loss, ZR, columns = stripe_sums(records, c, stripe)
        RA = ZR.T @ S + np.outer(columns.sum(axis=0), f.offset)
        return loss, ZR @ Vg[stripe], RA, columns, np.diagonal(ZR, -stripe.start).copy()

    loss, ZQ, of_stripes = 0.0, np.zeros(f.S.shape), []
    for more, product, *others in each_stripe(work, c.stripes, records.p):
        loss += more
        ZQ += product
        of_stripes.append(others)
    RA, columns, present = zip(*of_stripes, strict=True)
    return loss, ZQ, np.concatenate(RA), np.hstack(columns), np.concatenate(present)


def moment_sums(records: Records, c: Columns, _: None) -> tuple:
    """Sums over each site's records of sigmoid and sigmoid(1 - sigmoid), (sites, p) each."""
    site_of, dtype = site_rows(records, c.intercept), c.own.dtype

    def work(stripe: slice) -> np.ndarray:
        S, offset = c.weights(stripe)
        b = c.intercept[:, stripe] + offset
        sums = np.zeros((2, *b.shape))
        for rows in records.chunks:
            mean, variance = np.zeros((2, *b.shape), dtype)
            indptr, weight = records.indptr[rows.start : rows.stop + 1], records.weight[rows]
            kernels.summed_moments(
                *(S, stripe.start, b, site_of[rows], weight.astype(dtype)),
                *(indptr, records.indices, c.own[stripe], mean, variance),
            )
            sums += mean, variance
        return sums

    mean, variance = np.concatenate([*each_stripe(work, c.stripes, records.p)], axis=2)
    return mean, variance
