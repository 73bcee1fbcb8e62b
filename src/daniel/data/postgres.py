"""OMOP in a PostgreSQL server: the same SQL runs there, and its rows are copied here.

The password belongs in the URL, in PGPASSWORD or in ~/.pgpass; no message and no file repeats it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daniel.data import omop, tables
from daniel.data.engine import Engine
from daniel.data.events import Source
from daniel.errors import InputError, MissingDependencyError
from daniel.study import Study

CATALOGUE = """
SELECT table_schema, table_name, column_name FROM information_schema.columns
WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, ordinal_position
"""


def read(engine: Engine, url: str, study: Study, folder: Path) -> Source:
    """Copy the events to a file in the folder, from one snapshot of the database."""
    with _connected(url) as con:
        label = f"The database {con.info.dbname}"
        con.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        con.execute("SET LOCAL DateStyle = 'ISO'")
        rows = [row for row in con.execute(CATALOGUE) if row[1].lower() in omop.KNOWN]
        relations = tables.from_catalogue(rows, label=label, number="CAST({} AS BIGINT)")
        remote = omop.read(relations, study, label=label)
        names = remote.names and _used(remote.names, remote.events)
        return Source(
            "OMOP (PostgreSQL)",
            label,
            _copied(engine, con, remote.events, folder / "events.csv"),
            deaths=remote.deaths and _copied(engine, con, remote.deaths, folder / "deaths.csv"),
            names=names and _copied(engine, con, names, folder / "names.csv"),
        )


def _used(names: str, events: str) -> str:
    """The descriptions of codes that occur: a vocabulary has millions of others."""
    return (
        f"SELECT n.* FROM ({names}) n JOIN (SELECT DISTINCT vocabulary, code FROM ({events}) e) u "
        "ON u.vocabulary = n.vocabulary AND u.code = n.code"
    )


def _copied(engine: Engine, con: Any, sql: str, path: Path) -> str:
    """Stream the rows of a query into a file; the query for that file."""
    command = f"COPY ({sql}) TO STDOUT (FORMAT csv, HEADER)"
    with path.open("wb") as file, con.cursor() as cursor, cursor.copy(command) as rows:
        for block in rows:
            file.write(block)
    return f"SELECT * FROM {tables.relation(engine, [path], path.name).sql}"


@contextmanager
def _connected(url: str) -> Iterator[Any]:
    try:
        import psycopg
    except ImportError:
        raise MissingDependencyError.of(
            "psycopg", extra="postgres", purpose="Reading PostgreSQL"
        ) from None
    try:
        with psycopg.connect(url) as con:
            yield con
    except psycopg.errors.InsufficientPrivilege as error:
        raise InputError(f"PostgreSQL refuses: {error.diag.message_primary}.") from None
    except psycopg.OperationalError:
        # libpq's own words may repeat parts of the URL.
        raise InputError(
            "The PostgreSQL server cannot be reached or refuses the user: check host, port, "
            "database, user and password of the URL."
        ) from None
    except psycopg.Error as error:
        raise InputError(f"PostgreSQL stopped the query ({type(error).__name__}).") from None
