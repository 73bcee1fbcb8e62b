"""Flat events: CSV or Parquet files with a patient, a time, a code and perhaps a vocabulary."""

from collections.abc import Sequence
from pathlib import Path

from daniel.data import tables
from daniel.data.engine import Engine
from daniel.data.events import Source
from daniel.errors import InputError

PATIENT = ("patient", "patient_id", "person_id", "subject_id")
TIME = ("time", "date", "datetime", "timestamp", "start", "start_date")
CODE = ("code",)
VOCABULARY = ("vocabulary", "vocabulary_id", "system", "coding_system")


def read(engine: Engine, path: Path, files: Sequence[Path]) -> Source:
    """The events of one file, or of all files of a folder."""
    kinds = {tables.stem(file)[1] for file in files}
    if not files or "" in kinds:
        found = tables.listing(sorted(p.name for p in path.iterdir())) if path.is_dir() else ""
        raise InputError(
            f"{path.name} is no source that daniel knows{f' (it holds {found})' if found else ''}: "
            "expected OMOP tables such as condition_occurrence.csv, a MEDS folder with "
            "data/*.parquet, a CSV or Parquet file of events, or a DuckDB file."
        )
    relation = tables.relation(engine, files, path.name)
    vocabulary = relation.find(*VOCABULARY)
    columns = {
        "patient": relation.need(*PATIENT),
        "time": relation.need(*TIME),
        "vocabulary": f"coalesce(trim(CAST({vocabulary} AS VARCHAR)), '')" if vocabulary else "''",
        "code": f"CAST({relation.need(*CODE)} AS VARCHAR)",
    }
    selected = ", ".join(f"{sql} AS {column}" for column, sql in columns.items())
    events = f"SELECT {selected} FROM {relation.sql}"
    return Source("flat", path.name, events, fast=kinds == {".parquet"})
