"""Sums over records through Phi itself, a stripe of its columns at a time.

A record has few codes.  Its logits are the sum of their rows of Phi, and its residuals are added to
the same rows of the derivative: k + k additions for each logit of a record with k codes, where
products with d columns take 6 d operations.  The rows of a stripe stay in a core's cache, stripes
are shared among threads, and beside them no (p, p) array is needed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np

from daniel.core import kernels
from daniel.core.blocks import Block, Factored, own_and_intercept, row_blocks, site_rows
from daniel.core.coordinates import Coordinates
from daniel.core.records import DENSE_ABOVE, Records, split
from daniel.core.threads import n_threads, run_in_turn

STRIPE = 640  # codes of one stripe at most: wide enough for the processor to read ahead
WIDE = 1024  # the same where logits are products of factors
LANES = 32  # numbers that a compiled loop takes at once: others are taken one by one
STRIPES = 2  # their number is a multiple of it, to share among threads
TASKS = 16  # stripes times pieces of the records: as many, if a piece has so many records a code:
PIECE = 32
CACHED = 1 << 20  # bytes of residuals that are read again soon
LOAD = 1 << 26  # bytes of a derivative that one trip brings, unless a stripe has more
AT_ONCE = 1 << 30  # bytes of all that are made at once, if they are more than two
CODES_PER_COLUMN = 0.4  # present codes that cost as much as a column of the factors
CODES_AS_RECORDS = 2.0  # a code's own work, on rows of Phi and the derivative, in that of records
NEAR = 2_500  # codes whose rows a cache holds; of more, each present code costs so much more
FAR = 3.7  # columns of the factors that it costs in a whole derivative for every NEAR codes beyond

Phi = np.ndarray | tuple[np.ndarray, np.ndarray]


def pays(records: Records, d: float = np.inf) -> bool:
    """Whether sums through Phi cost less than products with factors of d columns.

    Phi itself is such a product, of its codes instead of the records.
    """
    p = records.p
    codes = records.density * p * max(1.0, p / NEAR)
    spared = d * (1 - CODES_AS_RECORDS * p / max(records.n, 1))
    return records.density <= DENSE_ABOVE and codes < CODES_PER_COLUMN * spared


def pays_whole(records: Records, phi: Phi) -> bool:
    """Whether they do for a whole derivative.

    Residuals are added to its rows in any case: what counts is how far away the rows of Phi are.
    """
    d = phi[0].shape[1] if isinstance(phi, tuple) else np.inf
    codes = records.density * records.p * FAR * max(0.0, records.p / NEAR - 1)
    return pays(records) and codes <= d


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
    def of(
        cls,
        records: Records,
        coords: Coordinates,
        phi: Phi | Factored,
        b: np.ndarray | None,
        *,
        summed: bool,
    ) -> "Columns":
        stripes = _stripes(records, STRIPE if summed else WIDE)
        if isinstance(phi, tuple):
            phi = Factored.of(coords, *phi, b)
        if isinstance(phi, Factored):
            return cls(coords, phi, phi.own, phi.intercept, summed, stripes)
        own, intercept = own_and_intercept(coords, np.diag(phi), b)
        own, intercept = own.astype(phi.dtype), intercept.astype(phi.dtype)
        return cls(coords, phi, own, intercept, summed, stripes)

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


def _stripes(records: Records, width: int) -> tuple[slice, ...]:
    p, several = records.p, STRIPES if len(records.chunks) > 1 else 1
    count = several * -(-p // (several * width))
    units = split(slice(0, -(-p // LANES)), count)
    return tuple(slice(s.start * LANES, min(p, s.stop * LANES)) for s in units if s.stop > s.start)


@dataclass(frozen=True)
class _Task:
    """A stripe of columns over a piece of the records; `last`: it is the last piece."""

    stripe: slice
    weights: "_Weights"
    chunks: Sequence[slice]
    last: bool


class _Weights:
    """S (p, codes) and b (sites, codes) of a stripe, made by the first of its tasks."""

    def __init__(self, c: Columns, stripe: slice) -> None:
        self._columns, self._stripe, self._lock = c, stripe, Lock()
        self._made: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self) -> tuple[np.ndarray, np.ndarray]:
        with self._lock:
            if self._made is None:
                S, offset = self._columns.weights(self._stripe)
                self._made = S, self._columns.intercept[:, self._stripe] + offset
            return self._made


def _tasks(records: Records, c: Columns, stripes: Sequence[slice]) -> Iterator[_Task]:
    """Like stripes, pieces are cut by the shape of the records alone."""
    chunks = records.chunks
    worth = max(1, records.n // (PIECE * records.p))
    pieces = split(slice(0, len(chunks)), min(-(-TASKS // len(stripes)), worth, len(chunks)))
    for stripe in stripes:
        weights = _Weights(c, stripe)
        for piece in pieces:
            yield _Task(stripe, weights, chunks[piece], piece is pieces[-1])


def _summed(
    work: Callable[[_Task], tuple], records: Records, c: Columns, stripes: Sequence[slice]
) -> Iterator[tuple]:
    """For each stripe in turn what `work` says of its tasks, added up in order."""
    sums: tuple = ()
    tasks = _tasks(records, c, stripes)
    for last, more in run_in_turn(
        lambda t: (t.last, work(t)), tasks, _at_once(records, c, stripes)
    ):
        sums = tuple(a + b for a, b in zip(sums, more, strict=True)) if sums else more
        if last:
            yield sums
            sums = ()


def _at_once(records: Records, c: Columns, stripes: Sequence[slice]) -> int:
    widest = max(stripe.stop - stripe.start for stripe in stripes)
    bytes_each = (8 + 2 * c.own.itemsize) * records.p * widest
    return min(n_threads(), max(2, AT_ONCE // bytes_each))


def sums_of_stripes(records: Records, c: Columns, stripes: Sequence[slice]) -> Iterator[tuple]:
    """Loss, Z'R and sums of R of each stripe in turn, in float64; so many at once as threads."""
    if c.summed:
        return _summed(partial(_derivative, records, c), records, c, stripes)
    by_blocks = partial(_sums_by_blocks, records, c)
    return run_in_turn(by_blocks, stripes, _at_once(records, c, stripes))


def loads(records: Records, c: Columns) -> list[slice]:
    """All columns, by as many neighbouring stripes as one trip should bring `stripe_sums` of."""
    most = LOAD // (8 * records.p)
    first, out = 0, []
    for stripe, after in zip(c.stripes, [*c.stripes[1:], None], strict=True):
        if after is None or after.stop - first > most:
            out.append(slice(first, stripe.stop))
            first = stripe.stop
    return out


def stripe_sums(records: Records, c: Columns, codes: slice) -> tuple:
    """Loss of some stripes' codes, Z'R (p, codes), and sums of R over each site (sites, codes)."""
    some = [s for s in c.stripes if codes.start <= s.start and s.stop <= codes.stop]
    found = sums_of_stripes(records, c, some)
    if len(some) == 1:
        return next(iter(found))
    loss, ZR, columns = zip(*found, strict=True)
    return sum(loss), np.hstack(ZR), np.hstack(columns)


def _derivative(records: Records, c: Columns, task: _Task) -> tuple:
    (S, b), own = task.weights(), c.own[task.stripe]
    loss, columns, ZR = 0.0, np.zeros(b.shape), np.zeros(S.shape)
    part = np.empty_like(S)  # of a chunk, in the working precision
    block = max(16, CACHED // (S.shape[1] * S.itemsize))
    for rows in task.chunks:
        part[:] = 0
        column = np.zeros_like(b)
        loss += kernels.derivative(
            *(S, task.stripe.start, b, *_about(records, rows, b)), own, block, column, part
        )
        columns += column
        ZR += part
    return loss, ZR, columns


def _moments(records: Records, c: Columns, task: _Task) -> tuple:
    (S, b), own = task.weights(), c.own[task.stripe]
    sums = np.zeros((2, *b.shape))
    for rows in task.chunks:
        mean, variance = np.zeros((2, *b.shape), b.dtype)
        kernels.summed_moments(
            *(S, task.stripe.start, b, *_about(records, rows, b)), own, mean, variance
        )
        sums += mean, variance
    return (sums,)


def _about(records: Records, rows: slice, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """Site, weight, indptr and indices of some records, for the kernels."""
    site = records.site[rows] if b.shape[0] > 1 else np.zeros(rows.stop - rows.start, np.int32)
    indptr = records.indptr[rows.start : rows.stop + 1]
    return site, records.weight[rows].astype(b.dtype), indptr, records.indices


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

    def work(task: _Task) -> tuple:
        loss, ZR, columns = _derivative(records, c, task)
        RA = ZR.T @ S + np.outer(columns.sum(axis=0), f.offset)
        present = np.diagonal(ZR, -task.stripe.start).copy()
        return loss, ZR @ Vg[task.stripe], RA, columns, present

    loss, ZQ, of_stripes = 0.0, np.zeros(f.S.shape), []
    for more, product, *others in _summed(work, records, c, c.stripes):
        loss += more
        ZQ += product
        of_stripes.append(others)
    RA, columns, present = zip(*of_stripes, strict=True)
    return loss, ZQ, np.concatenate(RA), np.hstack(columns), np.concatenate(present)


def moment_sums(records: Records, c: Columns, _: None) -> tuple:
    """Sums over each site's records of sigmoid and sigmoid(1 - sigmoid), (sites, p) each."""
    sums = _summed(partial(_moments, records, c), records, c, c.stripes)
    mean, variance = np.concatenate([both for (both,) in sums], axis=2)
    return mean, variance
