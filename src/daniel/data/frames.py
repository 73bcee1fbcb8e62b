"""Tables of text as data frames: .tsv, .csv, both also .gz, and .parquet."""

from csv import QUOTE_MINIMAL, QUOTE_NONE
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from daniel.errors import FormatError, InputError
from daniel.matrix import listed

Table: TypeAlias = pd.DataFrame | str | Path


def frame(table: Table, needed: list[str]) -> pd.DataFrame:
    """A data frame, or a file by the end of its name."""
    name = "The table"
    if not isinstance(table, pd.DataFrame):
        name = Path(table).name
        table = _read_file(Path(table))
    missing = [column for column in needed if column not in table]
    if missing:
        raise InputError(
            f"{name} has no column {listed(missing)}: it has {listed(table.columns) or 'none'}."
        )
    return table


def _read_file(path: Path) -> pd.DataFrame:
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    try:
        if kind == "parquet":
            return pd.read_parquet(path)
        if kind in ("tsv", "csv"):
            return read_text(path, "\t" if kind == "tsv" else ",")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError):  # pandas and Arrow derive theirs from it
        raise FormatError(f"{path.name} cannot be read as {kind}.") from None
    raise InputError(f"{path.name} is of no known kind: expected .tsv, .csv or .parquet.")


def read_text(path: Path, separator: str) -> pd.DataFrame:
    """A table of text.  Only empty cells are missing: "None" and "NA" are words, or codes.

    Between tabs a quotation mark is part of a cell, as in the files of daniel and of Athena, unless
    the names of the columns are quoted too, as R does.
    """
    options: dict[str, Any] = {"sep": separator, "quoting": QUOTE_NONE}
    if separator == "," or str(pd.read_csv(path, nrows=0, **options).columns[0]).startswith('"'):
        options["quoting"] = QUOTE_MINIMAL
    return pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""], **options)
