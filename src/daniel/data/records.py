"""Sorted cells -> records: the arrays of a sparse matrix, built from batches.

A cell is one number, (patient · windows + window) · codes + code: one column to sort and compare.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class RecordArrays:
    """Records in CSR form, ordered by patient and window.

    indptr (n+1,), indices (nnz,) columns of each record; patient, window (n,).
    """

    indptr: np.ndarray
    indices: np.ndarray
    patient: np.ndarray
    window: np.ndarray

    @property
    def n(self) -> int:
        return self.patient.size

    def patients_with(self, p: int) -> np.ndarray:
        """(p,) patients that have each code."""
        owner = np.repeat(self.patient, np.diff(self.indptr))
        by_column = sp.csr_array((owner, self.indices, self.indptr), shape=(self.n, p)).tocsc()
        # Patients ascend within a column: count where they change.
        change = np.ones(owner.size + 1, dtype=bool)
        change[1:-1] = by_column.data[1:] != by_column.data[:-1]
        change[by_column.indptr] = True
        return np.array([change[a:b].sum() for a, b in pairwise(by_column.indptr)], dtype=np.int64)

    def keep(self, columns: np.ndarray) -> Self:
        """Only the columns marked in a (p,) mask, renumbered; records without any are left out."""
        if columns.all():
            return self
        kept = columns[self.indices]
        ends = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        stays = np.diff(ends) > 0
        number = np.cumsum(columns) - 1
        return replace(
            self,
            indptr=np.concatenate([[0], ends[1:][stays]]),
            indices=number[self.indices[kept]].astype(np.int32),
            patient=self.patient[stays],
            window=self.window[stays],
        )


def from_cells(
    batches: Iterable[Any], *, n_codes: int, n_windows: int, first_window: int
) -> RecordArrays:
    """Records from Arrow batches of ascending cell numbers."""
    indices, keys, starts = [], [], []
    last, seen = -1, 0
    for batch in batches:
        key, column = np.divmod(batch.column(0).to_numpy(), n_codes)
        new = np.flatnonzero(np.diff(key, prepend=last))
        indices.append(column.astype(np.int32))
        keys.append(key[new])
        starts.append(new + seen)
        last, seen = key[-1] if key.size else last, seen + key.size
    nothing = np.empty(0, dtype=np.int64)
    patient, window = np.divmod(np.concatenate([nothing, *keys]), n_windows)
    return RecordArrays(
        indptr=np.concatenate([nothing, *starts, [seen]]),
        indices=np.concatenate([nothing.astype(np.int32), *indices]),
        patient=patient.astype(np.int32),
        window=(window + first_window).astype(np.int32),
    )
