"""What became of a site's patients: a table patient, time, event that fits its records.

    patient   pseudonym, as the records of the site folder have it
    time      days, above 0, from the first day of the first window with the target code, or from
              the first day after that window (landmark)
    event     1 if the outcome was seen at that time, 0 if the patient was last seen then

It holds one row a patient, so it stays at the site like the records themselves.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from daniel.data import prepare, tables
from daniel.data.engine import Engine, engine, text
from daniel.data.events import Source
from daniel.data.sitefolder import PATIENTS, read_info, read_site
from daniel.data.sources import open_source
from daniel.data.summary import Facts
from daniel.data.windows import date_of
from daniel.errors import FormatError, InputError, ParameterError
from daniel.matrix import CodeMatrix
from daniel.study import Omop, Study, Window

DEATH = ("DEATH", "MEDS_DEATH")  # these words ask for the deaths that the source knows
STRANGE = 0.1  # share of a file's rows that may be of others than the target's patients here


def read_outcome(
    site: str | Path,
    source: str | Path,
    *,
    target: str | None = None,
    code: str | None = None,
    landmark: bool = False,
    memory: str = "2GB",
    timezone: str = "UTC",
) -> pd.DataFrame:
    """The survival table of a site folder's patients: patient, time, event.

    source: without `code`, a file with the columns patient (the source's id), time (days from the
    first record with the target) and event (0 or 1).  With `code`, what `daniel prepare` read, in
    which the first event with this code is the outcome; "death" asks for deaths.  A code is
    written as VOCABULARY:code, or as the source has it.

    target: a code.  A file with more than a tenth of its rows of patients who do not have it here
    is refused; without a target, one with so many rows of patients who are unknown here.  With
    `code`, the patients who have the target are followed.  Time starts on the first day of their
    first window with it, so the outcome may come before the target, and codes of that record after
    the outcome.  landmark: time starts after that window instead, and neither can happen.  Whoever
    has an earlier outcome, or is not seen any more, is left out; one who has the outcome on the
    first day gets half a day.  A site may have nobody with the outcome.
    """
    site = Path(site)
    patients = _patients(site)
    with (
        TemporaryDirectory(dir=site, prefix=".work.") as work,  # patients' data: among their own
        engine(Path(work), memory, timezone, None) as db,
    ):
        if code is None:
            return _from_file(db, site, Path(source), patients, target)
        if target is None:
            raise ParameterError("An outcome code needs a target, whose first record starts time.")
        study = _study(site)
        starts = _starts(patients, read_site(site), target)
        found = open_source(db, str(source), study, Path(work))
        return _from_source(db, found, study.window, starts, code, landmark=landmark)


def is_death(code: str) -> bool:
    return code.upper() in DEATH


def may_be_translated(site: str | Path, source: str | Path, code: str, *, named: bool) -> bool:
    """Whether the records of a site may have other codes in place of this one of its source.

    Maps do so with the vocabularies that they read, and a MEDS source with codes that have parents,
    unless the study names their vocabulary (named).  Folders of earlier versions do not say what
    their maps read, which may then be anything.
    """
    anything = [""]
    for m in read_info(site)["facts"]["maps"]:
        if any(_letters(code).startswith(_letters(v)) for v in m.get("source", anything)):
            return True
    return not named and (Path(source) / "metadata" / "codes.parquet").is_file()


def first_records(matrix: CodeMatrix, target: str) -> tuple[np.ndarray, np.ndarray]:
    """(patients, rows): everyone who has the target, and the row of the first record with it."""
    if target not in matrix.codes:
        raise InputError(
            f"The records have no code {target!r}: give one of their {len(matrix.codes):,} codes, "
            "such as " + ", ".join(map(repr, matrix.codes[:2])) + "."
        )
    if matrix.patients is None or matrix.windows is None:
        raise InputError("The records have no patients and windows, so none of them is the first.")
    rows = np.flatnonzero(matrix.Z[:, [matrix.codes.index(target)]].toarray().ravel())
    rows = rows[np.argsort(matrix.windows[rows], kind="stable")]
    patients, place = np.unique(matrix.patients[rows], return_index=True)
    return patients, rows[place]


def _patients(site: Path) -> pd.DataFrame:
    """pseudonym, patient (the source's id) and first date."""
    try:
        columns = ["pseudonym", "patient", "first"]
        return pq.read_table(site / PATIENTS, columns=columns).to_pandas()
    except (OSError, pa.ArrowException, KeyError, ValueError):
        raise FormatError(
            f"{site} is no site folder, or it is damaged: `daniel prepare` makes one."
        ) from None


def _study(site: Path) -> Study:
    """Windows and tables with which the folder was made."""
    try:
        made = json.loads((site / "study.json").read_bytes())
        return Study(window=Window(**made["window"]), omop=Omop(**made["omop"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise FormatError(f"{site} is damaged: make it again with `daniel prepare`.") from None


def _from_file(
    db: Engine, site: Path, path: Path, patients: pd.DataFrame, target: str | None
) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(f"There is no outcome file {path}: give one, or a source with its code.")
    found = tables.relation(db, [path], path.name)
    columns = ", ".join(
        f"CAST({found.need(name)} AS VARCHAR) AS {name}" for name in ("patient", "time", "event")
    )
    rows = db.table(f"SELECT {columns} FROM {found.sql}").to_pandas()
    number = patients.set_index("patient")["pseudonym"]
    rows = rows.assign(patient=rows["patient"].str.strip())
    here = rows["patient"].isin(number.index)
    if not here.any():
        raise InputError(
            f"No patient of {path.name} is in the site folder: expected the ids that the source of "
            "the folder has."
        )
    _check_of_this_site(site, path, rows["patient"], number, target)
    rows = rows[here]
    values: dict[str, Any] = {
        name: pd.to_numeric(rows[name].replace({"true": "1", "false": "0"}), errors="coerce")
        for name in ("time", "event")
    }
    if values["time"].isna().any() or not values["event"].isin([0, 1]).all():
        raise InputError(f"{path.name} must hold days as `time`, and 0 or 1 as `event`.")
    pseudonyms = number.loc[rows["patient"]]  # 63 bits: never as a float
    return _table(pseudonyms, values["time"], values["event"])


def _check_of_this_site(
    site: Path, path: Path, ids: pd.Series, number: pd.Series, target: str | None
) -> None:
    """Refuse a file of other patients, who are often numbered alike; number: pseudonyms by id.

    Time starts with the target, so a row is of a patient who has it here.
    """
    if target is not None:
        number = number[number.isin(first_records(read_site(site), target)[0])]
    if (~ids.isin(number.index)).mean() > STRANGE:
        lacking = "" if target is None else f" or have no record with {target}"
        raise InputError(
            f"{path.name} is not of this site ({read_info(site)['site']}): more than a tenth of "
            f"its rows are of patients who are unknown here{lacking}; give the site's own file, "
            "with its patients who have the target."
        )


def _starts(patients: pd.DataFrame, matrix: CodeMatrix, target: str) -> pd.DataFrame:
    """pseudonym, patient, first, and the number of the first window with the target."""
    who, rows = first_records(matrix, target)
    if matrix.windows is None or not who.size:
        raise InputError(f"No record has the code {target!r}, so no time starts.")
    first = pd.DataFrame({"pseudonym": who, "start": matrix.windows[rows]})
    return first.merge(patients, on="pseudonym")


def _from_source(
    db: Engine, source: Source, window: Window, starts: pd.DataFrame, code: str, *, landmark: bool
) -> pd.DataFrame:
    """First outcome of each patient, or the last day on which the source has seen one.

    Numbers of patients are often the same elsewhere, so their first days are compared too; another
    time zone may move them by one.
    """
    prepare._read_events(db, source, Facts())  # the same patients and days as in the records
    db.load("starts", pa.Table.from_pandas(starts, preserve_index=False))
    later = 1 if landmark else 0
    zero = _first_day(window, f"(s.start + {later})")
    rows = db.table(
        f"""
        WITH e AS (
            SELECT CAST(patient AS VARCHAR) AS patient, date, {_is_outcome(code)} AS hit
            FROM events WHERE date IS NOT NULL {_deaths(db, source, code)}
        ), s AS (
            SELECT pseudonym, patient, CAST(first AS DATE) AS first, CAST({zero} AS DATE) AS zero
            FROM starts s
        )
        SELECT pseudonym, min(date) FILTER (hit) - zero AS outcome, max(date) - zero AS last,
            abs(min(date) - first) <= 1 AS same
        FROM s JOIN e USING (patient) GROUP BY pseudonym, first, zero ORDER BY pseudonym
        """
    ).to_pandas()
    if 2 * rows["same"].sum() < len(starts):
        raise InputError(
            f"The patients of {source.label} are not those of the site folder: expected the source "
            "that the folder was made of, with the same ids and first days."
        )
    event = rows["outcome"].notna()
    time = rows["outcome"].where(event, rows["last"])
    at_risk = time.ge(0) & (event | time.gt(0))
    return _table(rows["pseudonym"][at_risk], time[at_risk].clip(lower=0.5), event[at_risk])


def _letters(text: str) -> str:
    """Letters and digits alone, in capitals."""
    return "".join(filter(str.isalnum, text)).upper()


def _is_outcome(code: str) -> str:
    """SQL: whether an event has the code, however its vocabulary is set apart."""
    if is_death(code):
        return "false"
    written = "coalesce(nullif(vocabulary, '') || ':', '') || code"
    return f"upper(tidy(replace({written}, '//', ':'))) = upper(replace({text(code)}, '//', ':'))"


def _deaths(db: Engine, source: Source, code: str) -> str:
    """SQL: deaths as further events: the last that is seen of a patient, or the outcome."""
    hit = is_death(code)
    if source.deaths is None:
        if hit:
            raise InputError(f"{source.label} knows no deaths: name another outcome.")
        return ""
    kinds = {row[0]: row[1] for row in db.rows(f"DESCRIBE {source.deaths}", about=source.label)}
    day = date_of("time", kinds["time"])
    return (
        f"UNION ALL SELECT CAST(patient AS VARCHAR), {day} AS date, {str(hit).lower()} "
        f"FROM ({source.deaths}) WHERE {day} IS NOT NULL"
    )


def _first_day(window: Window, number: str) -> str:
    """SQL: the first day of a window, the inverse of `windows.window_of`."""
    months = f"CAST({number} * {window.months} AS INTEGER)"
    if window.start == "calendar":
        return f"make_date({months} // 12, {months} % 12 + 1, 1)"
    return f"s.first + to_months({months})"


def _table(patient: Any, time: Any, event: Any) -> pd.DataFrame:
    columns = {
        "patient": np.asarray(patient, dtype=np.int64),
        "time": np.asarray(time, dtype=np.float64),
        "event": np.asarray(event, dtype=np.int64),
    }
    return pd.DataFrame(columns).sort_values("patient", ignore_index=True)
