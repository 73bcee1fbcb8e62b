"""The in-process DuckDB in which events become records: bounded memory, safe messages, progress.

DuckDB quotes the offending row in its messages.  Logs leave hospitals, so only the number of the
line is taken over.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from daniel.errors import FormatError, InputError, ParameterError

Progress = Callable[[str, float, str], None]  # stage, share done, what came out
POLL_SECONDS = 0.2
BATCH = 1 << 20
UNWRITTEN = ("No space left", "Could not write", "Failed to commit")  # words of DuckDB


class Engine:
    """A connection that shows progress and raises errors of daniel."""

    def __init__(self, con: duckdb.DuckDBPyConnection, progress: Progress | None) -> None:
        self.con = con
        self.progress = progress

    def tell(self, stage: str, share: float = 1.0, note: str = "") -> None:
        """Report how far a stage is, and at its end what came out."""
        if self.progress:
            self.progress(stage, share, note)

    def run(self, sql: str, stage: str = "", *, about: str = "The source") -> None:
        """Execute a statement; about names what it reads, for a message."""
        with self._watched(stage), _told(about):
            self.con.execute(sql)

    def rows(self, sql: str, *, about: str = "The source") -> list[tuple[Any, ...]]:
        """All rows of a small result."""
        with _told(about):
            return self.con.execute(sql).fetchall()

    def value(self, sql: str) -> Any:
        """The one value of a result."""
        return self.rows(sql)[0][0]

    def table(self, sql: str) -> Any:
        """A small result as an Arrow table."""
        with _told("The source"):
            return self.con.sql(sql).to_arrow_table()

    def load(self, table: str, rows: Any) -> None:
        """A small Arrow table as a table of the engine."""
        self.con.register("arrow_rows", rows)
        self.run(f"CREATE TABLE {table} AS FROM arrow_rows")
        self.con.unregister("arrow_rows")

    def batches(self, sql: str, stage: str = "") -> Iterator[Any]:
        """A large result as Arrow batches, never whole in memory."""
        with self._watched(stage), _told("The source"):
            yield from self.con.sql(sql).to_arrow_reader(BATCH)

    @contextmanager
    def _watched(self, stage: str) -> Iterator[None]:
        """Report the share of the running query until the block ends."""
        if self.progress is None or not stage:
            yield
            return
        done = threading.Event()

        def poll() -> None:
            while not done.wait(POLL_SECONDS):
                self.tell(stage, max(0.0, min(self.con.query_progress() / 100, 1.0)))

        self.tell(stage, 0.0)
        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def engine(folder: Path, memory: str, timezone: str, progress: Progress | None) -> Iterator[Engine]:
    """A DuckDB whose tables and spill stand in the folder."""
    with _told("The work file"):
        con = duckdb.connect(
            str(folder / "work.duckdb"),
            config={"temp_directory": str(folder / "spill"), "preserve_insertion_order": "false"},
        )
    try:
        con.execute("SET enable_progress_bar = false")
        _set(con, "memory_limit", memory, "Give a size such as '2GB'")
        _set(con, "TimeZone", timezone, "Give a name such as 'Europe/Berlin'")
        yield Engine(con, progress)
    finally:
        con.close()


def _set(con: duckdb.DuckDBPyConnection, name: str, value: str, hint: str) -> None:
    try:
        con.execute(f"SET {name} = {text(value)}")
    except duckdb.Error:
        raise ParameterError(f"{value!r} is no {name} that DuckDB knows. {hint}.") from None


@contextmanager
def _told(about: str) -> Iterator[None]:
    """DuckDB's errors as sentences without a row of data."""
    try:
        yield
    except RuntimeError as error:  # DuckDB's word for Ctrl-C
        if "interrupted" in str(error):
            raise KeyboardInterrupt from None
        raise
    except duckdb.OutOfMemoryException:
        raise InputError(
            "The memory limit or the disk is too small for this source: raise --memory, or free "
            "space beside the output folder."
        ) from None
    except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
        line = re.search(r"Line: (\d+)", str(error))
        where = f" near line {line[1]}" if line else ""
        raise FormatError(
            f"{about} cannot be read{where}: expected UTF-8 text with the same columns in every "
            "line, or an undamaged file."
        ) from None
    except duckdb.Error as error:
        if any(words in str(error) for words in UNWRITTEN):
            raise InputError(
                "The disk of the output folder is full, or cannot be written to: free some space, "
                "or choose another place."
            ) from None
        if isinstance(error, duckdb.IOException):
            raise FormatError(
                f"{about} cannot be read: it is damaged, not of its kind, in use by another "
                "program, or not open to this user."
            ) from None
        raise FormatError(
            f"{about} cannot be used: DuckDB stopped with {type(error).__name__}. Check that its "
            "columns hold what their names say."
        ) from None


def text(value: str) -> str:
    """An SQL string."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """An SQL identifier."""
    return '"' + value.replace('"', '""') + '"'
