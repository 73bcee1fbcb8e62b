"""CodeMatrix, the hinge between data and numbers, and the reading of any binary table.

A record is a row of present and absent codes.  Users hold them as 0/1, ±1 or boolean arrays, sparse
matrices, data frames, or a CodeMatrix; `read_records` makes one sparse 0/1 matrix of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from daniel.errors import InputError

SHOWN = 5  # names listed in a message before "and n more"


@dataclass(frozen=True)
class CodeMatrix:
    """Records × codes with the names of the codes, and whose window each record is.

    Z (n, p) sparse 0/1; codes p names; patients, windows (n,) pseudonyms and window numbers, or
    None where there are none.
    """

    Z: sp.csr_array
    codes: tuple[str, ...]
    patients: np.ndarray | None = None
    windows: np.ndarray | None = None

    def __post_init__(self) -> None:
        n, p = self.Z.shape
        if len(self.codes) != p:
            raise InputError(f"The matrix has {p} columns and {len(self.codes)} code names.")
        if len(set(self.codes)) != p:
            raise InputError("Two columns have the same code name; give each code one column.")
        for name in ("patients", "windows"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise InputError(f"The matrix has {n} records and {len(values)} {name}.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.Z.shape


def read_records(X: Any) -> tuple[sp.csr_array, np.ndarray | None]:
    """Any binary table as sparse 0/1 (n, p), float32, and its column names if it has them."""
    if isinstance(X, CodeMatrix):
        return _from_sparse(X.Z), np.array(X.codes, dtype=object)
    if sp.issparse(X):
        return _from_sparse(X), None
    columns = getattr(X, "columns", None)
    names = None
    if columns is not None and all(isinstance(c, str) for c in columns):
        names = np.array(list(columns), dtype=object)
        repeated = [c for c in dict.fromkeys(names) if (names == c).sum() > 1]
        if repeated:
            raise InputError(f"Columns appear more than once: {listed(repeated)}.")
    return _from_dense(_as_array(X), names), names


def align(Z: sp.csr_array, names: np.ndarray | None, fitted: np.ndarray | None) -> sp.csr_array:
    """Columns of Z in the order of the fit, by name where both have names."""
    if names is None or fitted is None:
        return Z
    missing = [c for c in fitted if c not in set(names)]
    unknown = [c for c in names if c not in set(fitted)]
    if missing or unknown:
        parts = []
        if missing:
            parts.append(f"columns missing: {listed(missing)}")
        if unknown:
            parts.append(f"columns the model does not know: {listed(unknown)}")
        raise InputError(
            f"The columns are not those of the fit ({'; '.join(parts)}). Give the {len(fitted)} "
            "columns of the fit, in any order."
        )
    position = {c: i for i, c in enumerate(names)}
    order = np.array([position[c] for c in fitted])
    return Z if np.array_equal(order, np.arange(order.size)) else sp.csr_array(Z[:, order])


def listed(names: Sequence[Any]) -> str:
    """The first names, quoted, and how many more there are."""
    shown = ", ".join(repr(str(n)) for n in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _from_sparse(X: Any) -> sp.csr_array:
    Z = sp.csr_array(X)
    if Z.data.dtype == object or Z.data.dtype.kind == "c":
        raise InputError("Complex data not supported: sparse records are 0/1, stored = present.")
    if Z.data.dtype.kind == "f" and not np.isfinite(Z.data).all():
        raise InputError(
            f"Input contains NaN or infinity in column {_column_of(Z, ~np.isfinite(Z.data))}; "
            "records are 0/1, so store present codes only."
        )
    if Z.data.dtype.kind not in "bu" and (Z.data < 0).any():
        raise InputError(
            f"Sparse records hold a negative value in column {_column_of(Z, Z.data < 0)}: "
            "stored means present. For ±1 records use a dense array."
        )
    Z = sp.csr_array((Z.data != 0, Z.indices, Z.indptr), shape=Z.shape).astype(np.float32)
    Z.sum_duplicates()
    Z.eliminate_zeros()
    Z.data[:] = 1
    return _not_empty(Z)


def _column_of(Z: sp.csr_array, wrong: np.ndarray) -> int:
    return int(Z.indices[np.flatnonzero(wrong)[0]])


def _as_array(X: Any) -> np.ndarray:
    array = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    if array.ndim != 2:
        raise InputError(
            f"Expected 2D array of records × codes, got {array.ndim}D array instead. Reshape your "
            "data: one row a record, one column a code."
        )
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: records are 0/1, ±1 or boolean.")
    if array.dtype.kind not in "biuf":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                "Records must be numbers or booleans; a column holds text or other objects. "
                "argument must be a string or a number"
                if isinstance(error, TypeError)
                else "Records must be numbers or booleans; a column holds text."
            ) from None
    return array


def _from_dense(array: np.ndarray, names: np.ndarray | None) -> sp.csr_array:
    if array.dtype.kind == "f":
        _refuse(~np.isfinite(array), names, "Input contains NaN or infinity")
    if array.dtype.kind != "b":
        negative = array == -1
        if negative.any():
            _refuse(~(negative | (array == 1)), names, "Values other than -1 and 1")
        else:
            _refuse(~((array == 0) | (array == 1)), names, "Values other than two (0 and 1)")
    return _not_empty(sp.csr_array(array > 0).astype(np.float32))


def _refuse(wrong: np.ndarray, names: np.ndarray | None, what: str) -> None:
    """One sentence that names the first wrong column, and never a value."""
    if not wrong.any():
        return
    columns = np.flatnonzero(wrong.any(axis=0))
    first = repr(str(names[columns[0]])) if names is not None else str(columns[0])
    more = f" and {columns.size - 1} more columns" if columns.size > 1 else ""
    raise InputError(
        f"{what} found in column {first}{more}; records are binary: use 0/1, ±1 or booleans, and "
        "impute or drop missing values first."
    )


def _not_empty(Z: sp.csr_array) -> sp.csr_array:
    n, p = Z.shape
    if n == 0:
        raise InputError(f"Found array with 0 sample(s) (shape=({n}, {p})): at least one record.")
    if p == 0:
        raise InputError(
            f"Found array with 0 feature(s) (shape=({n}, {p})) while a minimum of 1 is required."
        )
    return Z
