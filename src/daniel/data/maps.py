"""Maps between vocabularies: two-column files, with parents, applied to the named codes."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from daniel.data import tables
from daniel.data.engine import Engine, text
from daniel.data.lookup import WAYS, find
from daniel.errors import FormatError, InputError
from daniel.study import CodeMap, Study


@dataclass(frozen=True)
class MapReport:
    """What a map did."""

    file: str
    source: tuple[str, ...]
    target: str
    sha256: str
    many: str  # which targets of a code with several are kept
    codes: int  # in the file
    several: int  # of them with more than one target
    found: int  # codes of the site that it translated
    found_several: int  # of them with more than one target
    ambiguous: int  # codes of the site that fit several of its codes, with other targets
    repaired: dict[str, int]  # way of finding -> codes of the site


def apply_map(engine: Engine, study: Study, m: CodeMap) -> MapReport:
    """Replace named codes of the map's sources by their targets; the others become missed."""
    sha256 = _load(engine, study, m)
    if m.sha256 not in {None, sha256}:
        raise InputError(
            f"The map {Path(m.file).name} is not the one that the study pins: its content has the "
            f"hash {sha256}. Get the file that the study means, or change maps.sha256."
        )
    find(engine, "SELECT DISTINCT vkey, code FROM named SEMI JOIN sources USING (vkey)", "loaded")
    engine.run(
        f"""
        CREATE OR REPLACE TABLE named AS
        SELECT id, vocabulary, vkey, code, origin,
            missed OR vkey IN (SELECT vkey FROM sources) AS missed
        FROM named ANTI JOIN (FROM found WHERE agree) f USING (vkey, code)
        UNION SELECT n.id, {text(m.target)}, key_of({text(m.target)}), tidy(t), n.origin, false
        FROM named n JOIN (SELECT vkey, code, unnest(value) AS t FROM found WHERE agree) f
        USING (vkey, code)
        """
    )
    return _report(engine, m, sha256)


def _load(engine: Engine, study: Study, m: CodeMap) -> str:
    """loaded(vkey, code, n, value): n targets of each code, and what they become; the hash."""
    sources = ", ".join(f"key_of({text(v)})" for v in m.source)
    engine.run(f"CREATE OR REPLACE TABLE sources AS SELECT unnest([{sources}]) AS vkey")
    _load_pairs(engine, study.path(m.file), m)
    _load_parents(engine, None if m.parents is None else study.path(m.parents))
    first = "[1:1]" if m.many == "first" else ""
    engine.run(
        f"""
        CREATE OR REPLACE TABLE loaded AS
        WITH pair AS (
            SELECT DISTINCT s.vkey, code, target FROM pairs
            JOIN sources s ON v = '' OR v = s.vkey
        ), itself AS (  -- a target stays what it is: products and ingredients are both RxNorm
            SELECT DISTINCT key_of({text(m.target)}) AS vkey, target AS code, target FROM pairs
            WHERE key_of({text(m.target)}) IN (SELECT vkey FROM sources)
        ), targets AS (
            SELECT vkey, code, list(DISTINCT target ORDER BY target) AS several
            FROM (FROM pair UNION FROM itself ANTI JOIN pair USING (vkey, code))
            GROUP BY vkey, code
        ), target AS (
            SELECT vkey, code, len(several) AS n, unnest(several{first}) AS t FROM targets
        ), raised AS (
            SELECT vkey, target.code, n, coalesce(ancestor, t) AS t
            FROM target LEFT JOIN up ON up.code = t
        )
        SELECT vkey, code, any_value(n) AS n, list(DISTINCT t ORDER BY t) AS value
        FROM raised GROUP BY vkey, code
        """
    )
    return _hash(engine)


def _load_pairs(engine: Engine, path: Path, m: CodeMap) -> None:
    """pairs(v, code, target) as the file has them."""
    relation = _file(engine, path)
    columns = m.columns or tuple(relation.columns)
    if len(columns) != 2:
        raise InputError(
            f"{relation.label} has {len(columns)} columns ({tables.listing(columns)}): name the "
            "two to use in maps.columns, code and target."
        )
    code, target = (_clean(relation.need(c.lower())) for c in columns)
    vocabulary = _clean(relation.need(m.vocabulary.lower())) if m.vocabulary else "''"
    engine.run(
        f"CREATE OR REPLACE TABLE pairs AS SELECT DISTINCT key_of({vocabulary}) AS v, "
        f"{code} AS code, {target} AS target FROM {relation.sql} "
        f"WHERE {code} <> '' AND {target} <> ''",
        about=relation.label,
    )
    if not engine.value("SELECT count(*) FROM pairs"):
        raise FormatError(f"{relation.label} holds no pair of code and target.")


def _load_parents(engine: Engine, path: Path | None) -> None:
    """up(code, ancestor): every ancestor of a code, and the code itself."""
    if path is None:
        engine.run("CREATE OR REPLACE TABLE up (code VARCHAR, ancestor VARCHAR)")
        return
    relation = _file(engine, path)
    if len(relation.columns) != 2:
        raise InputError(
            f"{relation.label} has the columns {tables.listing(list(relation.columns))}: expected "
            "two, a code and its parent."
        )
    code, parent = (_clean(c) for c in relation.columns.values())
    engine.run(
        f"""
        CREATE OR REPLACE TABLE up AS
        WITH RECURSIVE edge AS (
            SELECT DISTINCT {code} AS code, {parent} AS parent FROM {relation.sql}
            WHERE {code} <> '' AND {parent} <> ''
        ), above AS (
            SELECT code, code AS ancestor FROM edge
            UNION SELECT above.code, edge.parent FROM above JOIN edge ON edge.code = ancestor
        )
        FROM above
        """,
        about=relation.label,
    )


def _hash(engine: Engine) -> str:
    """SHA-256 of pairs and parents in order: the same for any order, format and compression."""
    rows = engine.rows("SELECT v, code, target FROM pairs ORDER BY ALL")
    rows += engine.rows("SELECT '', code, ancestor FROM up ORDER BY ALL")
    return hashlib.sha256("\n".join("\t".join(row) for row in rows).encode()).hexdigest()


def _file(engine: Engine, path: Path) -> tables.Relation:
    label = f"The map {path.name}"
    if not os.path.isfile(path):  # Path.is_file raises in a folder that is closed
        raise InputError(f"{label}, which the study names, is not in the folder {path.parent}.")
    return tables.relation(engine, [path], label)


def _clean(column: str) -> str:
    """Text without outer blanks and quotes, '' for nothing."""
    return f"coalesce(trim(CAST({column} AS VARCHAR), ' ''\"'), '')"


def _report(engine: Engine, m: CodeMap, sha256: str) -> MapReport:
    codes, several = engine.rows(
        "SELECT count(*), count(*) FILTER (n > 1) FROM (SELECT count(*) AS n FROM pairs "
        "WHERE v = '' OR v IN (SELECT vkey FROM sources) GROUP BY v, code)"
    )[0]
    found, ambiguous, found_several = engine.rows(
        "SELECT count(*) FILTER (agree), count(*) FILTER (NOT agree), "
        "count(*) FILTER (agree AND l.n > 1) "
        "FROM found f JOIN loaded l ON l.vkey = f.vkey AND l.code = f.entry"
    )[0]
    ways = engine.rows(
        "SELECT way, count(*) FROM found WHERE agree AND way > 0 GROUP BY way ORDER BY way"
    )
    return MapReport(
        file=Path(m.file).name,
        source=m.source,
        target=m.target,
        sha256=sha256,
        many=m.many,
        codes=codes,
        several=several,
        found=found,
        found_several=found_several,
        ambiguous=ambiguous,
        repaired={WAYS[way]: n for way, n in ways},
    )
