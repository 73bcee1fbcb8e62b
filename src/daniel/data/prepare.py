"""From a hospital's tables to a site folder: one pipeline for every source.

    source -> events -> raw codes, patients -> wanted columns -> cells -> records -> folder

Nothing loops over events in Python.  Patients and codes become numbers early, and the distinct
(patient, window, code) are distinct whole numbers, which DuckDB sorts outside memory if it must.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from daniel.data import records, sitefolder, summary, vocabulary, windows
from daniel.data.engine import Engine, Progress, engine
from daniel.data.events import Source
from daniel.data.lookup import MACROS
from daniel.data.maps import apply_map
from daniel.data.records import RecordArrays
from daniel.data.sources import open_source
from daniel.data.summary import Facts
from daniel.errors import InputError
from daniel.study import CodeMap, Study, check_site_name

TOP_UNMAPPED = 10
PSEUDONYMS = 2**63


def prepare(
    source: str | Path,
    study: Study,
    site: str,
    out: str | Path,
    *,
    memory: str = "2GB",
    timezone: str = "UTC",
    maps: Sequence[CodeMap] = (),
    random_state: int | None = None,
    progress: Progress | None = None,
) -> str:
    """Make a site folder from a source, and return its summary.

    source: a DuckDB file or folder of OMOP tables, a postgresql URL, a MEDS folder, or CSV or
    Parquet events.  memory: the limit of DuckDB.  timezone: the site's clock, on which times that
    carry a zone get their day.  maps: the site's own, applied before those of the study.
    random_state: of the pseudonyms, other ones at every site; fresh ones unless given.
    """
    study.site(site)
    check_site_name(site)
    facts = Facts()
    with sitefolder.new(Path(out)) as folder:
        work = folder / "work"
        work.mkdir()
        with engine(work, memory, timezone, progress) as db:
            found = open_source(db, str(source), study, work)
            facts.source, facts.label = found.kind, found.label
            _read_events(db, found, facts)
            _number_patients(db, facts)
            translated = replace(study, maps=(*maps, *study.maps))
            names = _choose_codes(db, translated, found, facts)
            cells = _records(db, study, len(names))
            names, cells, held = _keep_codes(db, study, names, cells, facts)
            patients = _pseudonyms(db, cells, site, random_state)
            codes = _codes(db, found, names, held, cells)
            db.tell("writing", 0.0)
        shutil.rmtree(work)
        text = summary.render(facts, study, site)
        sitefolder.fill(folder, study, site, facts, codes, cells, patients, text)
        db.tell("writing")
    return text


def _read_events(db: Engine, source: Source, facts: Facts) -> None:
    """events(patient, timed, date, vocabulary, code), raw codes with their number of events."""
    db.run(MACROS)
    kinds = {row[0]: row[1] for row in db.rows(f"DESCRIBE {source.events}", about=source.label)}
    text = kinds["time"] == "VARCHAR"
    timed = "coalesce(trim(time), '') <> ''" if text else "time IS NOT NULL"
    patient = {
        "VARCHAR": "NULLIF(trim(patient), '')",
        "DOUBLE": "CASE WHEN NOT isnan(patient) THEN patient END",
    }.get(kinds["patient"], "patient")
    # A file that is slow to parse is parsed once.
    db.run(
        f"CREATE {'VIEW' if source.fast else 'TABLE'} events AS SELECT {patient} AS patient, "
        f"{timed} AS timed, {windows.date_of('time', kinds['time'])} AS date, vocabulary, code "
        f"FROM ({source.events})",
        "reading events",
        about=source.label,
    )
    db.run(
        "CREATE TABLE raw AS SELECT row_number() OVER (ORDER BY vocabulary, code) AS id, *, "
        "coalesce(tidy(code), '') = '' AS blank FROM ("
        "SELECT vocabulary, code, count(*) AS events, count(*) FILTER (patient IS NULL) AS nobody, "
        "count(*) FILTER (timed) AS timed, count(date) AS dated FROM events GROUP BY ALL)",
        "reading events",
        about=source.label,
    )
    _count_events(db, source, facts)
    _count_after_death(db, source, facts)
    db.tell("reading events", note=f"{summary.shown(facts.events['read'])} events")


def _count_events(db: Engine, source: Source, facts: Facts) -> None:
    """All events, and those that cannot be used, by reason."""
    row = db.rows(
        "SELECT sum(events), sum(nobody), sum(timed), sum(dated), sum(events) FILTER (blank) "
        "FROM raw"
    )[0]
    total, nobody, timed, dated, blank = (int(n or 0) for n in row)
    if timed and not dated:
        raise InputError(
            f"{source.label}: no time can be read as a date; expected 2020-01-31, 20200131 or "
            "2020-01-31T12:00:00, with or without a zone."
        )
    facts.events = {
        "read": total,
        "without a patient": nobody,
        "without a date": total - timed,
        "with an unreadable date": timed - dated,
        "without a code": blank,
    }
    for what, query in source.left_out.items():
        facts.events[what] = db.value(query)


def _count_after_death(db: Engine, source: Source, facts: Facts) -> None:
    """Events dated after the patient's death: kept, since either date may be wrong, and counted."""
    if source.deaths is None:
        return
    kinds = {row[0]: row[1] for row in db.rows(f"DESCRIBE {source.deaths}", about=source.label)}
    date = windows.date_of("time", kinds["time"])
    facts.events["after the patient's death"] = db.value(
        "SELECT count(*) FROM events e JOIN (SELECT patient, min(death) AS death FROM "
        f"(SELECT patient, {date} AS death FROM ({source.deaths})) GROUP BY patient) d "
        "ON d.patient = e.patient AND e.date > d.death"
    )


def _number_patients(db: Engine, facts: Facts) -> None:
    """patients(patient, first, last, number), in an order that says nothing about their ids."""
    db.run(
        "CREATE TABLE patients AS SELECT *, "
        "row_number() OVER (ORDER BY md5(CAST(patient AS VARCHAR))) - 1 AS number FROM "
        "(SELECT patient, min(date) AS first, max(date) AS last FROM events "
        "WHERE date IS NOT NULL AND patient IS NOT NULL GROUP BY patient)",
        "patients",
    )
    facts.patients_seen = db.value("SELECT count(*) FROM patients")
    db.tell("patients", note=f"{summary.shown(facts.patients_seen)} patients")


def _choose_codes(db: Engine, study: Study, source: Source, facts: Facts) -> list[str]:
    """The columns, before rare ones are dropped."""
    db.tell("codes", 0.0)
    vocabulary.name_codes(db, study, source.parents)
    facts.maps = [apply_map(db, study, m) for m in study.maps]
    names = vocabulary.choose_columns(db, study)
    outside = db.value(
        "SELECT count(*) FROM (SELECT DISTINCT vkey, code FROM named WHERE NOT missed) "
        "ANTI JOIN chosen USING (vkey, code)"
    )
    facts.codes = {"outside the study": outside}
    db.tell("codes", note=f"{len(names):,} columns")
    return names


def _cover(db: Engine, facts: Facts) -> None:
    """How well the vocabularies of the site are covered, and the codes that no map knows.

    A vocabulary that the study names is spelled as there.
    """
    columns = ("vocabulary", "codes", "events", "kept", "unmapped", "outside")
    rows = db.rows(
        "WITH ours AS (SELECT vkey, min(v) AS v FROM known WHERE ours GROUP BY vkey) "
        "SELECT coalesce(min(v), min(origin)), count(*), sum(events), "
        "coalesce(sum(events) FILTER (kept), 0), "
        "coalesce(sum(events) FILTER (missed AND NOT kept), 0), "
        "coalesce(sum(events) FILTER (NOT missed AND NOT kept), 0) "
        "FROM raw JOIN status USING (id) LEFT JOIN ours ON vkey = key_of(origin) "
        "WHERE NOT blank GROUP BY key_of(origin) ORDER BY 1"
    )
    facts.coverage = [dict(zip(columns, (r[0], *map(int, r[1:])), strict=True)) for r in rows]
    facts.unmapped = db.rows(
        f"""
        WITH top AS (
            SELECT r.vocabulary, r.code, origin FROM raw r JOIN status USING (id)
            WHERE missed AND NOT kept ORDER BY events DESC, id LIMIT {TOP_UNMAPPED}
        )
        SELECT any_value(origin), code, count(DISTINCT patient) AS n
        FROM events JOIN top USING (vocabulary, code) GROUP BY vocabulary, code
        ORDER BY n DESC, code
        """
    )


def _records(db: Engine, study: Study, n_codes: int) -> RecordArrays:
    """All cells of the site, sorted, as records."""
    window = study.window
    low, high = db.rows(
        f"SELECT coalesce(min({windows.window_of(window, 'first', 'first')}), 0), "
        f"coalesce(max({windows.window_of(window, 'last', 'first')}), 0) FROM patients"
    )[0]
    n_windows = high - low + 1
    number = f"{windows.window_of(window, 'e.date', 'p.first')} - {low}"
    cells = (
        f"SELECT DISTINCT (p.number * {n_windows} + {number}) * {max(1, n_codes)} + w.col AS cell "
        "FROM events e JOIN patients p ON p.patient = e.patient "
        "JOIN wanted w ON w.code = e.code AND w.vocabulary = e.vocabulary "
        "WHERE e.date IS NOT NULL ORDER BY cell"
    )
    found = records.from_cells(
        db.batches(cells, "records"),
        n_codes=max(1, n_codes),
        n_windows=n_windows,
        first_window=low,
    )
    db.tell("records", note=f"{summary.shown(found.n)} records")
    return found


def _keep_codes(
    db: Engine, study: Study, names: list[str], cells: RecordArrays, facts: Facts
) -> tuple[list[str], RecordArrays, np.ndarray]:
    """Apply the rule where there is no list; names, records, and patients with each code."""
    patients = cells.patients_with(len(names))
    if not study.has_list:
        kept = patients >= study.codes.minimum_patients
        facts.codes["of too few patients"] = int((~kept).sum())
        names = [name for name, keep in zip(names, kept, strict=True) if keep]
        cells, patients = cells.keep(kept), patients[kept]
        vocabulary.drop_columns(db, np.flatnonzero(~kept))
    _cover(db, facts)
    if not cells.n:
        raise InputError(summary.nothing_left(facts, study))
    absent = int((patients == 0).sum())
    facts.codes |= {"kept": len(names) - absent, "absent": absent}
    facts.records, facts.cells = cells.n, cells.indices.size
    facts.patients = np.unique(cells.patient).size
    return names, cells, patients


def _pseudonyms(db: Engine, cells: RecordArrays, site: str, random_state: int | None) -> pa.Table:
    """number, pseudonym and id of each patient who has a record."""
    have = np.unique(cells.patient)
    seed = None if random_state is None else [random_state, *site.encode()]  # sites differ
    rng = np.random.default_rng(seed)
    drawn = rng.integers(PSEUDONYMS, size=have.size)
    while np.unique(drawn).size < have.size:
        drawn = rng.integers(PSEUDONYMS, size=have.size)
    db.load("pseudonyms", pa.table({"number": have, "pseudonym": drawn}))
    return db.table(
        "SELECT number, pseudonym, CAST(patient AS VARCHAR) AS patient, first "
        "FROM pseudonyms JOIN patients USING (number) ORDER BY number"
    )


def _codes(
    db: Engine, source: Source, names: list[str], patients: np.ndarray, cells: RecordArrays
) -> pa.Table:
    """code, description, patients, records and absent of each column."""
    n_records = np.bincount(cells.indices, minlength=len(names))
    table = pa.table(
        {"col": range(len(names)), "code": names, "patients": patients, "records": n_records}
    )
    db.load("columns", table)
    known = source.names or "SELECT '' AS vocabulary, '' AS code, '' AS description WHERE false"
    # A vocabulary has millions of codes: those of other sites are passed over.
    return db.table(
        f"""
        WITH split AS (
            SELECT *, cut('', code) AS o FROM columns
        ), names AS (
            SELECT key_of(o.v) AS vkey, o.c AS code, min(tidy(description)) AS description
            FROM (SELECT cut(coalesce(vocabulary, ''), code) AS o, description FROM ({known})
                  WHERE code IN (SELECT code FROM raw UNION ALL SELECT o.c FROM split))
            GROUP BY ALL
        )
        SELECT s.code, description, patients, records, patients = 0 AS absent
        FROM split s LEFT JOIN names n ON n.vkey = key_of(s.o.v) AND n.code = s.o.c ORDER BY col
        """
    )
