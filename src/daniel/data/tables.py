"""Files as relations: CSV and Parquet, any letter case, .gz, one file or a folder of parts."""

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from daniel.data.engine import Engine, name, text
from daniel.errors import FormatError, InputError
from daniel.matrix import SHOWN

TEXT = (".csv", ".tsv", ".txt")
DELIMITERS = ",\t;|"
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Relation:
    """Something to select from: what messages call it, its SQL, and its columns.

    columns: lower-case name -> SQL.  number: how an id becomes a whole number in this database.
    """

    label: str
    sql: str
    columns: Mapping[str, str]
    number: str = "TRY_CAST(TRY_CAST({} AS DOUBLE) AS BIGINT)"  # exports write 12.0 for 12

    def find(self, *names: str) -> str | None:
        """SQL of the first of these columns that is there."""
        return next((self.columns[n] for n in names if n in self.columns), None)

    def need(self, *names: str) -> str:
        """The same; a sentence when none is there."""
        found = self.find(*names)
        if found is None:
            raise InputError(
                f"{self.label} has no column {' or '.join(names)}; it has "
                f"{listing(list(self.columns))}."
            )
        return found

    def id(self, column: str) -> str:
        """A column of concept ids as whole numbers."""
        return self.number.format(self.need(column))


def listing(names: Sequence[str], shown: int = 6 * SHOWN) -> str:
    """Names in a message, not without end."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return (", ".join(names[:shown]) + more) or "nothing"


def stem(path: Path) -> tuple[str, str]:
    """(lower-case table name, kind) of a file: 'person', '.csv' of PERSON.csv.gz; '' if neither."""
    parts = path.name.lower().removesuffix(".gz")
    for suffix in (*TEXT, ".parquet"):
        if parts.endswith(suffix):
            return parts.removesuffix(suffix), ".parquet" if suffix == ".parquet" else ".csv"
    return path.name.lower(), ""


def in_folder(folder: Path) -> dict[str, list[Path]]:
    """Table name -> its files: name.csv, NAME.parquet, name.csv.gz, or name/part-0.parquet ..."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            files = [p for p in sorted(path.iterdir()) if stem(p)[1] and p.is_file()]
            table = path.name.lower()
        else:
            files, table = ([path] if stem(path)[1] else []), stem(path)[0]
        if not files:
            continue
        if table in found:
            raise InputError(
                f"{folder.name} holds the table {table} more than once ({found[table][0].name}, "
                f"{path.name}): keep one of them."
            )
        found[table] = files
    return found


def relation(engine: Engine, files: Sequence[Path], label: str) -> Relation:
    """One relation of files of one kind."""
    kinds = {stem(path)[1] for path in files}
    if len(kinds) > 1:
        raise InputError(f"{label} has CSV and Parquet files: keep one kind.")
    return _parquet(engine, files, label) if kinds == {".parquet"} else _csv(files, label)


def _parquet(engine: Engine, files: Sequence[Path], label: str) -> Relation:
    paths = ", ".join(text(str(path)) for path in files)
    sql = f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
    found = engine.rows(f"DESCRIBE SELECT * FROM {sql}", about=label)
    return Relation(label, sql, _by_lower_case([row[0] for row in found], label))


def _csv(files: Sequence[Path], label: str) -> Relation:
    """Everything as text: what a value means is decided once, further on."""
    heads = [_head(path, label) for path in files]
    for path, head in zip(files, heads, strict=True):
        if head != heads[0]:
            raise InputError(
                f"{label}: {files[0].name} has the columns {listing(heads[0][0])}, and {path.name} "
                f"has {listing(head[0])}: expected the same columns and separator in all of them."
            )
    columns, delimiter, zipped = heads[0]
    types = ", ".join(f"{text(c)}: 'VARCHAR'" for c in columns)
    # Tab-separated vocabularies (Athena) are not quoted, and hold quotes.
    quote = "quote = '', escape = ''" if delimiter == "\t" else "quote = '\"', escape = '\"'"
    sql = (
        f"read_csv([{', '.join(text(str(path)) for path in files)}], header = true, "
        f"auto_detect = false, columns = {{{types}}}, delim = {text(delimiter)}, {quote}, "
        f"compression = {text('gzip' if zipped else 'none')})"
    )
    return Relation(label, sql, _by_lower_case(columns, label))


def _head(path: Path, label: str) -> tuple[list[str], str, bool]:
    """Column names, delimiter, and whether the file is compressed."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == GZIP
        opener = gzip.open if zipped else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            line = lines.readline()
    except (OSError, EOFError, UnicodeDecodeError):
        raise FormatError(
            f"{label} cannot be read: it is damaged, not UTF-8 text, or not open to this user."
        ) from None
    if not line.strip():
        raise FormatError(f"{label} is empty: expected a first line with the names of columns.")
    delimiter = max(DELIMITERS, key=line.count)
    quoted = {} if delimiter != "\t" else {"quoting": csv.QUOTE_NONE}
    names = next(csv.reader([line], delimiter=delimiter, **quoted))  # type: ignore[arg-type]
    names = [n.strip() or f"column {i}" for i, n in enumerate(names)]  # pandas' index has no name
    return names, delimiter, zipped


def _by_lower_case(columns: Sequence[str], label: str) -> dict[str, str]:
    out = {c.lower().strip("'\""): name(c) for c in columns}
    if len(out) < len(columns):
        raise InputError(f"{label} has two columns of the same name: rename one of them.")
    return out


def from_catalogue(
    rows: list[tuple[str, str, str]], *, label: str, prefix: str = "", **options: str
) -> dict[str, Relation]:
    """Relations of a database from rows of (schema, table, column).

    A table in two schemas is refused: which one is meant cannot be known.
    """
    columns: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    for schema, table, column in rows:
        places = columns.setdefault(table.lower(), {})
        places.setdefault((schema, table), {})[column.lower()] = name(column)
    relations = {}
    for table, places in columns.items():
        if len(places) > 1:
            schemas = ", ".join(sorted(schema for schema, _ in places))
            raise InputError(
                f"{label} holds the table {table} more than once (schemas {schemas}): give a user "
                "or a database that sees one of them."
            )
        ((schema, found), of_table) = next(iter(places.items()))
        sql = f"{prefix}{name(schema)}.{name(found)}"
        relations[table] = Relation(f"The table {table} of {label}", sql, of_table, **options)
    return relations
