"""CodeMatrix, the hinge between data and numbers, and the reading of any binary table.

A record is a row of present and absent codes.  Users hold them as 0/1, ±1 or boolean arrays, sparse
matrices, data frames, or a CodeMatrix; `read_records` makes one sparse 0/1 matrix of each.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import scipy.sparse as sp

from daniel.errors import InputError

SHOWN = 5  # names listed in a message before "and n more"
OTHER_VALUES = "Values other than two ({} and 1)"
BINARY = "records are binary: use 0/1, ±1 or booleans, such as X > 0 of counts"
MISSING = "records are binary: use 0/1, ±1 or booleans, and impute or drop missing values first"


class _NotNumbers(InputError, TypeError):
    """Text or other objects where numbers should be: to Python this is a TypeError as well."""


@dataclass(frozen=True)
class CodeMatrix:
    """Records × codes with the names of the codes, and whose window each record is.

    Z (n, p) sparse 0/1; codes p names; patients, windows (n,) pseudonyms and window numbers, or
    None where there are none.  absent (p,) marks codes that this site does not have: their zeros
    say nothing.  None marks none.
    """

    Z: sp.csr_array
    codes: tuple[str, ...]
    patients: np.ndarray | None = None
    windows: np.ndarray | None = None
    absent: np.ndarray | None = None

    def __post_init__(self) -> None:
        n, p = self.Z.shape
        if len(self.codes) != p:
            raise InputError(f"The matrix has {p} columns and {len(self.codes)} code names.")
        _refuse_repeated(self.codes)
        for name in ("patients", "windows"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise InputError(f"The matrix has {n} records and {len(values)} {name}.")
        self._check_absent(p)

    def _check_absent(self, p: int) -> None:
        if self.absent is None:
            return
        if self.absent.shape != (p,) or self.absent.dtype != bool:
            raise InputError(f"absent must hold True or False for each of the {p} codes.")
        wrong = np.flatnonzero(self.absent & (np.asarray(self.Z.sum(axis=0)).ravel() > 0))
        if wrong.size:
            names = listed([self.codes[j] for j in wrong])
            raise InputError(f"Codes marked absent have records: {names}.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.Z.shape


def read_records(X: Any) -> tuple[sp.csr_array, np.ndarray | None]:
    """Any binary table as sparse 0/1 (n, p), float32, and its column names if it has them."""
    if sp.issparse(X):
        return _from_sparse(X, None), None
    names = None
    if isinstance(X, CodeMatrix):
        names = np.array(X.codes, dtype=object)
        return _from_sparse(X.Z, names), names
    if hasattr(X, "columns"):
        names = _column_names(X.columns)
    return _from_dense(_as_array(X, names), names), names


def align(Z: sp.csr_array, names: np.ndarray | None, fitted: np.ndarray | None) -> sp.csr_array:
    """Columns of Z in the order of the fit, by name where both have names."""
    if names is None or fitted is None:
        return Z
    position = {c: i for i, c in enumerate(names)}
    known = set(fitted)
    missing = [c for c in fitted if c not in position]
    unknown = [c for c in names if c not in known]
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
    order = np.array([position[c] for c in fitted])
    if np.array_equal(order, np.arange(order.size)):
        return Z
    Z = sp.csr_array(Z[:, order])
    Z.sort_indices()  # sums in one order give equal numbers
    return Z


def vocabulary_of(code: str) -> str:
    """What a code's name has before a colon, such as "PheCode" of "PheCode:290.1"; "" without."""
    return code.partition(":")[0] if ":" in code else ""


def kinds(names: Sequence[Any] | np.ndarray | None, p: int) -> np.ndarray:
    """(p,) number of each code's vocabulary, which its name has before a colon; -1 without one."""
    if names is None:
        return np.full(p, -1)
    vocabulary = [vocabulary_of(str(name)) for name in names]
    known = sorted(set(vocabulary) - {""})
    return np.array([known.index(v) if v else -1 for v in vocabulary], dtype=int)


def codes_like(code: object, codes: Sequence[str]) -> str:
    """Two that may have been meant: of that name in a vocabulary, else near, else the first."""
    own = str(code).rpartition(":")[2].casefold()
    same = [name for name in codes if name.rpartition(":")[2].casefold() == own]
    return listed((same or get_close_matches(str(code), codes, n=2) or codes)[:2])


def listed(names: Sequence[Any]) -> str:
    """The first names, quoted, and how many more there are."""
    shown = ", ".join(repr(str(n)) for n in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _column_names(columns: Iterable[Any]) -> np.ndarray | None:
    """Names of a data frame's columns, None if it only numbers them.

    Other labels than text are refused: a number could be a code's name or its position.
    """
    labels = list(columns)
    if labels == list(range(len(labels))):
        return None
    if not all(isinstance(label, str) for label in labels):
        raise InputError(
            "Column names must be text, so that codes can be matched by name; "
            "use X.columns = X.columns.map(str)."
        )
    _refuse_repeated(labels)
    return np.array(labels, dtype=object)


def _refuse_repeated(names: Iterable[str]) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(
            f"Columns appear more than once: {listed(repeated)}; give each code one column."
        )


def _name(names: np.ndarray | None, column: int) -> str:
    """A column in a message: its name, or its number where columns have no names."""
    return str(column) if names is None else repr(str(names[column]))


def _from_sparse(X: Any, names: np.ndarray | None) -> sp.csr_array:
    if X.ndim != 2:
        raise _not_a_table(X.ndim)
    if X.dtype.kind not in "biuf":
        raise InputError("Sparse records must hold numbers or booleans: stored means present.")
    if X.format == "coo":  # as a csr it adds up what is stored twice
        _refuse_stored(X.data, X.col, names)
        X = sp.coo_array((X.data != 0, (X.row, X.col)), shape=X.shape)
    Z = sp.csr_array(X)
    _refuse_stored(Z.data, Z.indices, names)
    Z = sp.csr_array((Z.data != 0, Z.indices, Z.indptr), shape=Z.shape).astype(np.float32)
    Z.sum_duplicates()
    Z.eliminate_zeros()
    Z.data[:] = 1
    return _not_empty(Z)


def _refuse_stored(values: np.ndarray, columns: np.ndarray, names: np.ndarray | None) -> None:
    """Refuse stored values other than 0 and 1; a code stored twice is one that is present."""
    wrong = (values != 0) & (values != 1)
    if not wrong.any():
        return
    values, columns = values[wrong], columns[wrong]
    infinite, negative = ~np.isfinite(values), values < 0
    if infinite.any():
        raise InputError(
            f"Input contains NaN or infinity in column {_name(names, columns[infinite].min())}; "
            "records are 0/1, so store present codes only."
        )
    if negative.any():
        raise InputError(
            f"Sparse records hold a negative value in column "
            f"{_name(names, columns[negative].min())}: stored means present. For ±1 records use "
            "a dense array."
        )
    raise InputError(f"{OTHER_VALUES.format(0)} {_places(np.unique(columns), names)}; {BINARY}.")


def _as_array(X: Any, names: np.ndarray | None) -> np.ndarray:
    try:
        array = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    except ValueError:  # NumPy's own words may quote what it could not read
        raise InputError("X is not a table: its records have different numbers of codes.") from None
    if array.ndim != 2:
        raise _not_a_table(array.ndim)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: records are 0/1, ±1 or boolean.")
    return array if array.dtype.kind in "biuf" else _as_numbers(array, names)


def _not_a_table(ndim: int) -> InputError:
    return InputError(
        f"Expected 2D array of records × codes, got {ndim}D array instead. Reshape your data: one "
        "row a record, one column a code."
    )


def _as_numbers(array: np.ndarray, names: np.ndarray | None) -> np.ndarray:
    """A table of objects as numbers, column by column so that a message can name the wrong one."""
    import pandas as pd  # its NA is no number; only tables of objects need it

    out = np.empty(array.shape)
    for j, column in enumerate(array.astype(object).T):
        try:
            out[:, j] = np.where(pd.isna(column), np.nan, column)
        except (TypeError, ValueError):
            raise _NotNumbers(
                f"Column {_name(names, j)} holds text or other objects; the argument must be "
                "booleans, numbers or strings that read as numbers."
            ) from None
    return out


def _from_dense(array: np.ndarray, names: np.ndarray | None) -> sp.csr_array:
    if array.dtype.kind == "f":
        _refuse(~np.isfinite(array), names, "Input contains NaN or infinity", MISSING)
    if array.dtype.kind != "b":
        minus, zero = array == -1, array == 0
        signed = np.count_nonzero(minus) > np.count_nonzero(zero)  # the rarer one is out of place
        wrong = ~((minus if signed else zero) | (array == 1))
        _refuse(wrong, names, OTHER_VALUES.format(-1 if signed else 0), BINARY)
    return _not_empty(sp.csr_array(array > 0).astype(np.float32))


def _refuse(wrong: np.ndarray, names: np.ndarray | None, what: str, help: str) -> None:
    """One sentence that names the first wrong column, and never a value."""
    if wrong.any():
        raise InputError(f"{what} {_places(np.flatnonzero(wrong.any(axis=0)), names)}; {help}.")


def _places(columns: np.ndarray, names: np.ndarray | None) -> str:
    """Where something was found: the first of the columns, and how many more there are."""
    more = f" and {columns.size - 1} more columns" if columns.size > 1 else ""
    return f"found in column {_name(names, columns[0])}{more}"


def _not_empty(Z: sp.csr_array) -> sp.csr_array:
    n, p = Z.shape
    if n == 0 or p == 0:
        what = "0 sample(s)" if n == 0 else "0 feature(s)"
        raise InputError(
            f"Found array with {what} (shape=({n}, {p})) while a minimum of 1 is required."
        )
    return Z
