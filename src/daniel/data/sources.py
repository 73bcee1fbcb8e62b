"""Which reader a path or URL needs."""

import os
from collections.abc import Mapping
from pathlib import Path

from daniel.data import flat, meds, omop, postgres, tables
from daniel.data.engine import Engine, text
from daniel.data.events import Source
from daniel.data.tables import Relation
from daniel.errors import InputError
from daniel.study import Study

URLS = ("postgresql://", "postgres://")
DUCKDB_MAGIC = b"DUCK"  # at byte 8 of a DuckDB file


def open_source(engine: Engine, source: str, study: Study, folder: Path) -> Source:
    """The reader for a path or URL.  folder: where a copy of a remote source may stand."""
    if source.startswith(URLS):
        return postgres.read(engine, source, study, folder)
    if "://" in source:
        # It may hold a password: not repeated.
        raise InputError(
            "The source is a URL that daniel does not know: give postgresql://user@host/database."
        )
    path = Path(os.path.abspath(Path(source).expanduser()))  # '.' has no name
    try:
        return _opened(engine, source, path, study)
    except OSError:
        raise InputError(f"{path.name} cannot be opened by this user.") from None


def _opened(engine: Engine, source: str, path: Path, study: Study) -> Source:
    if not path.exists():
        raise InputError(
            f"There is no source {source}: give a file, a folder, or a postgresql URL."
        )
    if path.is_dir():
        if meds.is_meds(path):
            return meds.read(engine, path)
        found = tables.in_folder(path)
        if omop.is_omop(found):
            return omop.read(_relations(engine, found), study, label=path.name)
        return flat.read(engine, path, [f for files in found.values() for f in files])
    if _is_duckdb(path):
        return omop.read(_attached(engine, path), study, label=path.name)
    return flat.read(engine, path, [path])


def _relations(engine: Engine, found: Mapping[str, list[Path]]) -> dict[str, Relation]:
    return {
        table: tables.relation(engine, files, f"The table {table} ({files[0].name})")
        for table, files in found.items()
        if table in omop.KNOWN
    }


def _is_duckdb(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(12)[8:] == DUCKDB_MAGIC


def _attached(engine: Engine, path: Path) -> dict[str, Relation]:
    """The tables of a DuckDB file, opened for reading only."""
    engine.run(f"ATTACH {text(str(path))} AS source (READ_ONLY)", about=path.name)
    rows = engine.rows(
        "SELECT schema_name, table_name, column_name FROM duckdb_columns() "
        "WHERE database_name = 'source' AND NOT internal ORDER BY ALL"
    )
    return tables.from_catalogue(rows, label=path.name, prefix="source.")
