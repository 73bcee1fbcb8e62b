"""OMOP CDM 5.4: events from the clinical tables, in SQL that DuckDB and PostgreSQL both read.

A code is that of its concept, with the concept's vocabulary.  A concept that the table `concept`
does not hold keeps its id as a code of the vocabulary OMOP; a source value without a concept is a
code of a vocabulary that is called as its column.  Events with concept 0 have no code.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daniel.data.events import Source
from daniel.data.tables import Relation, listing
from daniel.errors import InputError
from daniel.study import Omop, Study


@dataclass(frozen=True)
class Table:
    """One clinical table: its name, its date, and what its columns of codes start with."""

    name: str
    date: str
    stem: str


TABLES = {
    "condition": Table("condition_occurrence", "condition_start_date", "condition"),
    "procedure": Table("procedure_occurrence", "procedure_date", "procedure"),
    "drug": Table("drug_exposure", "drug_exposure_start_date", "drug"),
    "era": Table("drug_era", "drug_era_start_date", "drug"),
    "measurement": Table("measurement", "measurement_date", "measurement"),
    "observation": Table("observation", "observation_date", "observation"),
}
KNOWN = {t.name for t in TABLES.values()} | {"concept", "concept_ancestor", "death"}


def is_omop(names: Iterable[str]) -> bool:
    return not {t.name for t in TABLES.values()}.isdisjoint(names)


def read(relations: Mapping[str, Relation], study: Study, *, label: str) -> Source:
    """The events of the tables that the study asks for."""
    parts = [_part(relations, TABLES[t], how, label) for t, how in _asked(study.omop)]
    if not parts:
        raise InputError("The study asks for no OMOP table: set one of omop.condition ... .")
    death, concept = relations.get("death"), relations.get("concept")
    return Source(
        "OMOP",
        label,
        "\nUNION ALL\n".join(parts),
        deaths=_deaths(death) if death else None,
        names=_names(concept) if concept else None,
    )


def _asked(omop: Omop) -> Iterable[tuple[str, str]]:
    """(table, which codes) in a fixed order; an era's concepts are ingredients already."""
    for table in ("condition", "procedure", "drug", "measurement", "observation"):
        how = getattr(omop, table)
        if how == "era":
            yield "era", "standard"
        elif how != "no":
            yield table, how


def _deaths(death: Relation) -> str:
    patient, time = death.need("person_id"), death.need("death_date")
    return f"SELECT {_person(patient)} AS patient, {time} AS time FROM {death.sql}"


def _person(column: str) -> str:
    """An id as text; exports of one table may write 12.0 where another has 12."""
    return f"REGEXP_REPLACE(CAST({column} AS VARCHAR), '^([0-9]+)[.]0+$', '\\1')"


def _names(concept: Relation) -> str | None:
    columns = [concept.find(c) for c in ("vocabulary_id", "concept_code", "concept_name")]
    if None in columns:
        return None
    vocabulary, code, description = columns
    return (
        f"SELECT {vocabulary} AS vocabulary, {code} AS code, {description} AS description "
        f"FROM {concept.sql}"
    )


def _part(relations: Mapping[str, Relation], table: Table, how: str, label: str) -> str:
    """SELECT patient, time, vocabulary, code of one clinical table."""
    e = _table(relations, table.name, label)
    if how == "source":
        inner, vocabulary, code = _source(e, table, relations.get("concept"))
    else:
        inner, vocabulary, code = _standard(e, table, relations.get("concept"))
    if how == "ingredient":
        inner, vocabulary, code = _rolled_up(relations, label, inner, vocabulary, code)
    # An event without a code is counted under the name of its table.
    return (
        f"SELECT patient, time, CASE WHEN {code} IS NULL THEN '{table.name}' "
        f"ELSE {vocabulary} END AS vocabulary, {code} AS code\nFROM {inner}"
    )


def _table(relations: Mapping[str, Relation], table: str, label: str) -> Relation:
    if table not in relations:
        raise InputError(
            f"{label} has no table {table}; it has {listing(sorted(relations))}. Add the table, or "
            "take it out of the study's [omop]."
        )
    return relations[table]


def _columns(e: Relation, table: Table, extra: str) -> str:
    patient, date = e.need("person_id"), e.need(table.date)
    return f"(SELECT {_person(patient)} AS patient, {date} AS time, {extra} FROM {e.sql}) e"


def _standard(e: Relation, table: Table, concept: Relation | None) -> tuple[str, str, str]:
    inner = _columns(e, table, f"NULLIF({e.id(f'{table.stem}_concept_id')}, 0) AS id")
    if concept is None:
        return inner, "'OMOP'", "CAST(id AS VARCHAR)"
    inner += f"\nLEFT JOIN {_concepts(concept)} c ON c.concept = e.id"
    return inner, "COALESCE(c.v, 'OMOP')", "COALESCE(c.k, CAST(e.id AS VARCHAR))"


def _source(e: Relation, table: Table, concept: Relation | None) -> tuple[str, str, str]:
    number, value = f"{table.stem}_source_concept_id", f"{table.stem}_source_value"
    if e.find(number) is None or concept is None:
        e.need(value)
    written = e.find(value) or "NULL"
    id_sql = f"NULLIF({e.id(number)}, 0)" if e.find(number) else "CAST(NULL AS BIGINT)"
    extra = f"{id_sql} AS id, NULLIF(TRIM(CAST({written} AS VARCHAR)), '') AS written"
    inner = _columns(e, table, extra)
    if concept is None:
        return inner, f"'{value}'", "written"
    inner += f"\nLEFT JOIN {_concepts(concept)} c ON c.concept = e.id"
    return inner, f"COALESCE(c.v, '{value}')", "COALESCE(c.k, written)"


def _concepts(concept: Relation, where: str = "") -> str:
    vocabulary, code = concept.need("vocabulary_id"), concept.need("concept_code")
    return (
        f"(SELECT {concept.id('concept_id')} AS concept, {vocabulary} AS v, {code} AS k "
        f"FROM {concept.sql}{where})"
    )


def _rolled_up(
    relations: Mapping[str, Relation], label: str, inner: str, vocabulary: str, code: str
) -> tuple[str, str, str]:
    """Ingredients of a drug by concept_ancestor; what has none keeps its own code."""
    missing = {"concept", "concept_ancestor"} - set(relations)
    if missing:
        raise InputError(
            f"{label} has no table {' and no table '.join(sorted(missing))}, which omop.drug = "
            f"'ingredient' needs; it has {listing(sorted(relations))}. Add it, use 'era', or use "
            "'standard' with a map to ingredients."
        )
    concept, ancestor = relations["concept"], relations["concept_ancestor"]
    kind, vocab = concept.need("concept_class_id"), concept.need("vocabulary_id")
    ingredients = _concepts(
        concept, f" WHERE {kind} = 'Ingredient' AND {vocab} IN ('RxNorm', 'RxNorm Extension')"
    )
    above = (
        f"(SELECT {ancestor.id('descendant_concept_id')} AS below, i.v, i.k FROM {ancestor.sql} "
        f"JOIN {ingredients} i ON i.concept = {ancestor.id('ancestor_concept_id')})"
    )
    inner += f"\nLEFT JOIN {above} r ON r.below = e.id"
    return inner, f"COALESCE(r.v, {vocabulary})", f"COALESCE(r.k, {code})"
