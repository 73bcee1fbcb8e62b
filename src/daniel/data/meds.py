"""MEDS folders: data/**/*.parquet with subject_id, time, code; metadata/codes.parquet beside them.

A code is written VOCABULARY//code.  Events without a time are static, and in no window.  MEDS_BIRTH
and MEDS_DEATH are facts about a patient, not events: a birth would otherwise start the windows.
"""

from pathlib import Path

from daniel.data import tables
from daniel.data.engine import Engine
from daniel.data.events import Source

BIRTH, DEATH = "MEDS_BIRTH", "MEDS_DEATH"


def is_meds(folder: Path) -> bool:
    return any((folder / "data").rglob("*.parquet"))


def read(engine: Engine, folder: Path) -> Source:
    """The events of all shards."""
    shards = sorted((folder / "data").rglob("*.parquet"))
    data = tables.relation(engine, shards, f"The data of {folder.name}")
    patient, time, code = (data.need(c) for c in ("subject_id", "time", "code"))
    marks = f"FROM {data.sql} WHERE {code}"
    metadata = folder / "metadata" / "codes.parquet"
    names = parents = None
    if metadata.is_file():
        about = tables.relation(engine, [metadata], f"metadata/codes.parquet of {folder.name}")
        names, parents = _metadata(about)
    return Source(
        "MEDS",
        folder.name,
        f"SELECT {patient} AS patient, {time} AS time, '' AS vocabulary, {code} AS code {marks} "
        f"NOT IN ('{BIRTH}', '{DEATH}') OR {code} IS NULL",
        fast=True,
        deaths=f"SELECT {patient} AS patient, {time} AS time {marks} = '{DEATH}'",
        names=names,
        parents=parents,
        left_out={mark: f"SELECT count(*) {marks} = '{mark}'" for mark in (BIRTH, DEATH)},
    )


def _metadata(about: tables.Relation) -> tuple[str | None, str | None]:
    """Queries for descriptions and for parents, where the columns are there."""
    code = about.need("code")
    description, parents = about.find("description"), about.find("parent_codes")
    return (
        description
        and f"SELECT '' AS vocabulary, {code} AS code, {description} AS description "
        f"FROM {about.sql}",
        parents and f"SELECT {code} AS code, unnest({parents}) AS parent FROM {about.sql}",
    )
