"""From the codes of a site to the columns of the study, on tables of distinct codes.

    raw(id, vocabulary, code, events, blank)              as the source has them
    named(id, vocabulary, vkey, code, origin, missed)     split, and translated by the maps
    chosen(vkey, code, col)                               named codes that are columns
    wanted(vocabulary, code, col)                         raw codes -> columns: joins with events
    status(id, origin, kept, missed)                      what became of each raw code

A raw code may have several rows in named and wanted: a drug has several ingredients.
"""

import re

import numpy as np
import pyarrow as pa

from daniel.data.engine import Engine, text
from daniel.data.lookup import find
from daniel.errors import InputError
from daniel.study import Study

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # what `tidy` makes a blank of
WELL_KNOWN = (
    *("ATC", "CCS", "CPT4", "CVX", "HCPCS", "ICD9CM", "ICD9Proc", "ICD10", "ICD10CM", "ICD10PCS"),
    *("LOINC", "NDC", "PheCode", "RxNorm", "SNOMED"),
)

CUT = """
CREATE MACRO cut(v, c) AS CASE
    WHEN v <> '' THEN {'v': v, 'c': tidy(c)}
    WHEN key_of(regexp_extract(c, '^(.*)//', 1)) IN (SELECT vkey FROM known)
        THEN {'v': regexp_extract(c, '^(.*)//', 1), 'c': tidy(regexp_extract(c, '^.*//(.*)$', 1))}
    WHEN contains(c, '//')
        THEN {'v': regexp_extract(c, '^(.*?)//', 1), 'c': tidy(regexp_extract(c, '//(.*)$', 1))}
    WHEN key_of(regexp_extract(c, '^([^:/]+)[:/]', 1)) IN (SELECT vkey FROM known)
        THEN {'v': regexp_extract(c, '^([^:/]+)[:/]', 1),
              'c': tidy(regexp_extract(c, '^[^:/]+[:/](.*)$', 1))}
    ELSE {'v': '', 'c': tidy(c)} END
"""


def name_codes(engine: Engine, study: Study, parents: str | None) -> None:
    """raw -> named.

    A code that holds its vocabulary is split: ICD10CM//E11.9, and for a vocabulary that is well
    known, or that the study or the source names, also ICD10CM:E11.9 and ICD10CM/E11.9.
    DIAGNOSIS//ICD//9//4019 is a code of DIAGNOSIS//ICD//9 if that is named, else of DIAGNOSIS.  A
    code of another vocabulary counts as its parents(code, parent) that the study names, where the
    source knows such.
    """
    ours, others = (
        ", ".join(text(v) for v in sorted(names)) for names in (vocabularies(study), WELL_KNOWN)
    )
    engine.run(
        f"CREATE TABLE known AS SELECT DISTINCT v, key_of(v) AS vkey, ours FROM "
        f"(SELECT unnest(CAST([{ours}] AS VARCHAR[])) AS v, true AS ours "
        f"UNION ALL SELECT unnest([{others}]), false "
        "UNION ALL SELECT DISTINCT vocabulary, false FROM raw) WHERE key_of(v) <> ''"
    )
    engine.run(CUT)
    nothing = "SELECT '' AS code, '' AS parent WHERE false"
    engine.run(
        f"""
        CREATE TABLE named AS
        WITH own AS (
            SELECT id, code AS whole, cut(vocabulary, code) AS o FROM raw WHERE NOT blank
        ), ours AS (
            SELECT vkey FROM known WHERE ours
        ), higher AS (
            SELECT id, own.o.v AS origin, cut('', parent) AS o
            FROM own JOIN ({parents or nothing}) p ON p.code = own.whole
            WHERE key_of(own.o.v) NOT IN (FROM ours)
        ), better AS (
            FROM higher WHERE key_of(o.v) IN (FROM ours)
        ), all_rows AS (
            SELECT id, origin, o FROM better
            UNION ALL SELECT id, o.v, o FROM own ANTI JOIN better USING (id)
        )
        SELECT DISTINCT id, o.v AS vocabulary, key_of(o.v) AS vkey, o.c AS code, origin,
            false AS missed
        FROM all_rows WHERE o.c <> ''
        """
    )


def vocabularies(study: Study) -> set[str]:
    """Every vocabulary that the study names."""
    of_maps = {v for m in study.maps for v in (*m.source, m.target)}
    of_list = {n.partition(":")[0] for n in study.codes.names if ":" in n}
    return of_maps | of_list | set(study.codes.vocabularies)


def choose_columns(engine: Engine, study: Study) -> list[str]:
    """named -> chosen, wanted and status; the names of the columns."""
    names = _from_list(engine, study) if study.has_list else _from_rule(engine, study)
    engine.run(
        """
        CREATE TABLE wanted AS SELECT DISTINCT r.vocabulary, r.code, col
        FROM raw r JOIN named n USING (id) JOIN chosen c ON c.vkey = n.vkey AND c.code = n.code
        """
    )
    engine.run(
        """
        CREATE TABLE status AS
        SELECT r.id, coalesce(any_value(n.origin), any_value(r.vocabulary)) AS origin,
            count(col) > 0 AS kept, coalesce(bool_and(n.missed), false) AS missed
        FROM raw r LEFT JOIN named n USING (id)
        LEFT JOIN chosen c ON c.vkey = n.vkey AND c.code = n.code GROUP BY r.id
        """
    )
    return names


def drop_columns(engine: Engine, dropped: np.ndarray) -> None:
    """Raw codes that had only these columns are no longer kept."""
    engine.load("dropped", pa.table({"col": dropped}))
    engine.run(
        """
        UPDATE status SET kept = id IN (
            SELECT r.id FROM raw r JOIN (FROM wanted ANTI JOIN dropped USING (col)) w
            ON w.vocabulary = r.vocabulary AND w.code = r.code
        ) WHERE kept
        """
    )


def _from_list(engine: Engine, study: Study) -> list[str]:
    """The study's list fixes the columns; names stand in lines of files, between tabs."""
    names = list(study.codes.names)
    if strange := [name for name in names if CONTROL.search(name)]:
        raise InputError(
            f"The study's code {strange[0]!r} has a tab, a line break or another control character "
            "in it: write a blank in its place, or take the code off the list."
        )
    cut = [name.partition(":") if ":" in name else ("", "", name) for name in names]
    engine.load(
        "listed",
        pa.table({"v": [c[0] for c in cut], "code": [c[2] for c in cut], "value": range(len(cut))}),
    )
    engine.run("CREATE TABLE reference AS SELECT key_of(v) AS vkey, code, value FROM listed")
    find(engine, "SELECT DISTINCT vkey, code FROM named", "reference")
    engine.run("CREATE TABLE chosen AS SELECT vkey, code, value AS col FROM found WHERE agree")
    return names


def _from_rule(engine: Engine, study: Study) -> list[str]:
    """Every code of the study's vocabularies; without any, every code that no map has missed."""
    listed = ", ".join(f"key_of({text(v)})" for v in study.codes.vocabularies)
    engine.run(
        f"""
        CREATE TABLE chosen AS
        WITH shown AS (  -- one spelling of each vocabulary, the study's own if it has one
            SELECT vkey, tidy(coalesce(min(v) FILTER (ours), min(v))) AS v FROM (
                FROM known WHERE ours UNION ALL SELECT vocabulary, vkey, false FROM named
            ) GROUP BY vkey
        ), code AS (
            SELECT DISTINCT vkey, code FROM named
            WHERE {f"vkey IN ({listed})" if listed else "NOT missed"}
        )
        SELECT vkey, code, CASE WHEN v = '' THEN code ELSE v || ':' || code END AS name,
            row_number() OVER (ORDER BY name) - 1 AS col
        FROM code JOIN shown USING (vkey)
        """
    )
    return [row[0] for row in engine.rows("SELECT name FROM chosen ORDER BY col")]
