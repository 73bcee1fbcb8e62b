"""Records: 0/1 rows in compressed form, with a weight and a site each."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from daniel.errors import InputError

DENSE_ABOVE = 0.12  # share of present codes above which a BLAS product beats the sparse loop
SMALL_WORK = 1 << 18  # below so many logits, starting threads costs more than it gains
CHUNKS = (48, 12, 4, 2)  # at least so many in many records; most numbers of threads divide them
CHUNK_ROWS = (512, 8192)  # in one of more than two, at least and at most
SPARSE_ROWS = (2048, 16384)  # the same of sparse records: sums of a chunk may be (p, p) arrays
MANY = 1 << 22  # present codes above which a copy of them must be worth it:
MERGE_WORTH = 0.02  # share of rows that must then be alike
MERGE_ROWS = 1 << 16  # whose keys are summed at once
COUNT_ROWS = 1 << 18  # whose codes are counted at once


@dataclass(frozen=True, repr=False)
class Records:
    """n weighted 0/1 records of p codes.

    indptr (n+1,), indices (nnz,): present codes of each record; weight (n,): how many original
    records a row stands for; site (n,): index of the row's intercept vector.
    """

    indptr: np.ndarray
    indices: np.ndarray
    p: int
    weight: np.ndarray
    site: np.ndarray
    n_sites: int = 1

    def __repr__(self) -> str:
        """The shape alone: logs leave hospitals."""
        return f"{type(self).__name__}({self.n} x {self.p})"

    @property
    def n(self) -> int:
        return self.indptr.size - 1

    @property
    def total(self) -> float:
        """Number of original records."""
        return float(self.weight.sum())

    @property
    def density(self) -> float:
        return self.indices.size / max(1, self.n * self.p)

    @property
    def chunks(self) -> list[slice]:
        """Consecutive rows, split by the shape of the records alone.

        A sweep sums each in its working precision and adds these sums in float64: so it gives the
        same numbers on any number of threads or machines.
        """
        least, most = CHUNK_ROWS
        if self.density <= DENSE_ABOVE:
            least, most = SPARSE_ROWS
        worth = [k for k in CHUNKS if self.n * self.p > (k - 1) * SMALL_WORK]
        fewest = next((k for k in worth if k == 2 or self.n >= k * least), 1)
        count = fewest * max(1, -(-self.n // (fewest * most)))
        return split(slice(0, self.n), min(count, max(1, self.n)))

    def part(self, chunks: slice) -> "Part":
        """Some consecutive chunks, as records of their own."""
        refuse_cut(self.indices)
        own = self.chunks[chunks]
        first, last = own[0].start, own[-1].stop
        indptr = self.indptr[first : last + 1]
        return Part(
            indptr - indptr[0],
            self.indices[indptr[0] : indptr[-1]],
            self.p,
            self.weight[first:last],
            self.site[first:last],
            self.n_sites,
            edges=tuple(rows.start - first for rows in own),
            whole_density=self.density,
        )

    def csr(self, dtype: type = np.float64) -> sp.csr_array:
        refuse_cut(self.indices)
        data: np.ndarray = np.ones(self.indices.size, dtype=dtype)
        indptr = self.indptr
        if data.size < np.iinfo(self.indices.dtype).max:  # else SciPy copies the indices
            indptr = indptr.astype(self.indices.dtype)
        return sp.csr_array((data, self.indices, indptr), shape=(self.n, self.p))

    def counts(self) -> np.ndarray:
        """(p,) weighted number of records with each code; by blocks of rows."""
        refuse_cut(self.indices)
        counts = np.zeros(self.p)
        for rows in split(slice(0, self.n), max(1, -(-self.n // COUNT_ROWS))):
            indptr = self.indptr[rows.start : rows.stop + 1]
            row_weight = np.repeat(self.weight[rows], np.diff(indptr))
            codes = self.indices[indptr[0] : indptr[-1]]
            counts += np.bincount(codes, weights=row_weight, minlength=self.p)
        return counts

    def site_totals(self) -> np.ndarray:
        """(n_sites,) number of original records at each site."""
        return np.bincount(self.site, weights=self.weight, minlength=self.n_sites)

    def site_counts(self) -> np.ndarray:
        """(n_sites, p) weighted number of records with each code at each site."""
        refuse_cut(self.indices)
        row = np.repeat(np.arange(self.n), np.diff(self.indptr))
        cell = self.site[row].astype(np.int64) * self.p + self.indices
        counts = np.bincount(cell, weights=self.weight[row], minlength=self.n_sites * self.p)
        return counts.reshape(self.n_sites, self.p)

    def take(self, rows: np.ndarray) -> "Records":
        refuse_cut(self.indices)
        first = self.indptr[rows]
        length = self.indptr[rows + 1] - first
        indptr = np.concatenate([[0], np.cumsum(length)])
        place = np.repeat(first - indptr[:-1], length) + np.arange(indptr[-1])
        return replace(
            self,
            indptr=indptr,
            indices=self.indices[place],
            weight=self.weight[rows],
            site=self.site[rows],
        )

    def drawn(self, share: float, rng: np.random.Generator) -> "Records":
        """A random part of the original records: of a row that stands for many, some of them."""
        if (self.weight == 1).all():
            return self.take(np.sort(rng.permutation(self.n)[: int(share * self.n)]))
        weight = rng.binomial(np.round(self.weight).astype(np.int64), min(share, 1.0))
        rows = np.flatnonzero(weight)
        return replace(self.take(rows), weight=weight[rows].astype(float))

    def of_site(self, i: int) -> "Records":
        """The records of one site, as a study of its own."""
        own = self.take(np.flatnonzero(self.site == i))
        return replace(own, site=np.zeros(own.n, dtype=np.int32), n_sites=1)

    def by_site(self) -> list["Records"]:
        """`of_site` of every site, in one pass."""
        if self.n_sites == 1:
            return [self]
        sorted_rows = self.take(np.argsort(self.site, kind="stable"))
        edges = np.searchsorted(sorted_rows.site, np.arange(self.n_sites + 1))
        return [sorted_rows.rows(slice(*edge)) for edge in pairwise(edges.tolist())]

    def rows(self, rows: slice) -> "Records":
        """Consecutive records, as those of one site; nothing is copied but where rows begin."""
        first, last = rows.start, rows.stop
        indptr = self.indptr[first : last + 1]
        return Records(
            indptr - indptr[0],
            self.indices[indptr[0] : indptr[-1]],
            self.p,
            self.weight[first:last],
            np.zeros(last - first, dtype=np.int32),
        )


@dataclass(frozen=True, repr=False)
class Part(Records):
    """A part of other records that is swept as those would be: edges, where its chunks begin."""

    edges: tuple[int, ...] = (0,)
    whole_density: float = 0.0

    @property
    def density(self) -> float:
        return self.whole_density

    @property
    def chunks(self) -> list[slice]:
        return [slice(*edge) for edge in pairwise((*self.edges, self.n))]


def refuse_cut(indices: np.ndarray) -> None:
    """Codes mapped from a file that became shorter: to read them would end the process.

    A slice of a map has the whole map as its base, and only the whole one has the file.
    """
    mapped: Any = indices
    while isinstance(mapped.base, np.ndarray):
        mapped = mapped.base
    file: Any = mapped.base
    if not isinstance(mapped, np.memmap) or file is None:  # in memory; None: a copy of a map
        return
    if file.size() < mapped.offset + mapped.nbytes:
        raise InputError(
            "The file of the records became shorter while it was in use: make the site folder "
            "again with `daniel prepare`, and leave it as it is during a fit."
        )


def split(rows: slice, count: int) -> list[slice]:
    """Consecutive rows in so many slices of nearly equal size."""
    n = rows.stop - rows.start
    edges = [rows.start + i * n // count for i in range(count + 1)]
    return [slice(*edge) for edge in pairwise(edges)]


def records_from(
    Z: sp.sparray | sp.spmatrix | np.ndarray,
    *,
    site: np.ndarray | None = None,
    n_sites: int = 1,
    merge: bool = True,
) -> Records:
    """Records from a (n, p) 0/1 matrix; identical rows of a site are merged with weights.

    Rows of a matrix in good order are taken as they are, without a copy.
    """
    Z = _in_order(Z)
    site = np.zeros(Z.shape[0], dtype=np.int32) if site is None else site.astype(np.int32)
    indices = Z.indices.astype(np.int32, copy=False)
    indptr = Z.indptr.astype(np.int64)
    records = Records(indptr, indices, Z.shape[1], np.ones(Z.shape[0]), site, n_sites)
    return _merged(records) if merge else records


def _in_order(Z: sp.sparray | sp.spmatrix | np.ndarray) -> sp.csr_array:
    """The same matrix as CSR, with sorted columns, each once, and no zero that is stored."""
    Z = sp.csr_array(Z)
    refuse_cut(Z.indices)
    if Z.has_canonical_format and Z.data.all():
        return Z
    Z = Z.copy()
    Z.sum_duplicates()
    Z.eliminate_zeros()
    return Z


def _merged(records: Records) -> Records:
    """One row for each distinct (site, record), in order of first appearance.

    Rows are compared by two independent 64-bit sums of random code keys: two different records
    collide with probability about n^2 / 2^128.  Where hardly any of very many are alike all stay.
    """
    if records.n < 2:
        return records
    fingerprint = _fingerprints(records)
    order = np.lexsort((np.arange(records.n), fingerprint[:, 1], fingerprint[:, 0]))
    new = np.ones(records.n, dtype=bool)
    new[1:] = np.any(fingerprint[order[1:]] != fingerprint[order[:-1]], axis=1)
    first = order[new]  # the earliest row of each group, because lexsort ends with the row number
    worth = MERGE_WORTH * records.n if records.indices.size > MANY else 1
    if records.n - first.size < worth:
        return records
    weight = np.bincount(np.cumsum(new) - 1, weights=records.weight[order])
    appearance = np.argsort(first)
    return replace(records.take(first[appearance]), weight=weight[appearance])


def _fingerprints(records: Records) -> np.ndarray:
    """(n, 2) sums of random keys, modulo 2^64, of each row's site and codes; by blocks of rows."""
    keys = np.random.default_rng(0).integers(0, 2**64, size=(records.p + 1, 2), dtype=np.uint64)
    out = keys[-1] * (records.site[:, None].astype(np.uint64) + np.uint64(1))
    for rows in split(slice(0, records.n), -(-records.n // MERGE_ROWS)):
        indptr = records.indptr[rows.start : rows.stop + 1]
        cells = keys[records.indices[indptr[0] : indptr[-1]]]
        cumulative = np.zeros((cells.shape[0] + 1, 2), dtype=np.uint64)
        np.cumsum(cells, axis=0, out=cumulative[1:])
        inside = cumulative[indptr - indptr[0]]
        out[rows] += inside[1:] - inside[:-1]
    return out
