"""Known pairs of codes: from a file, from the PheCode and ATC hierarchies, from the UMLS.

Every source gives the same table, one row an unordered pair: code1, code2, relation.  Codes are
named with their vocabulary, such as "PheCode:290.1"; code1 is the smaller name of the two.

The UMLS files are licensed to each user by the US National Library of Medicine and are read where
they lie.  Nothing of them is part of this package.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from csv import QUOTE_MINIMAL, QUOTE_NONE
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from daniel.errors import FormatError, InputError, ParameterError
from daniel.matrix import listed, vocabulary_of

__all__ = [
    "UMLS_RELATIONS",
    "Coverage",
    "Unknown",
    "kin",
    "phecode_pairs",
    "read_pairs",
    "read_text",
    "rxnorm_atc_pairs",
    "split_known",
    "umls_pairs",
]

ENDS = ["code1", "code2"]
COLUMNS = [*ENDS, "relation"]
NAMED = 10  # unknown codes that a message names
ATC_LENGTH = {1: 1, 2: 3, 3: 4, 4: 5}  # level -> characters of the class
# Relation -> the values of RELA that state it, from either side.
UMLS_RELATIONS: Mapping[str, tuple[str, ...]] = {
    "related to": ("related_to",),
    "mapped to": ("mapped_to", "mapped_from"),
    "classifies": ("classifies", "classified_as"),
}
# Rich Release Format: a bar after every field, the last one too.
MRREL = "CUI1|AUI1|STYPE1|REL|CUI2|AUI2|STYPE2|RELA|RUI|SRUI|SAB|SL|RG|DIR|SUPPRESS|CVF|"
SABS = {  # of OMOP's names in capitals, where the UMLS has others
    "SNOMED": "SNOMEDCT_US",
    "LOINC": "LNC",
    "CPT4": "CPT",
    "ICD9PROC": "ICD9CM",
    "MESH": "MSH",
    "MEDDRA": "MDR",
    "NCIT": "NCI",
}
MRCONSO = "CUI|LAT|TS|LUI|STT|SUI|ISPREF|AUI|SAUI|SCUI|SDUI|SAB|TTY|CODE|STR|SRL|SUPPRESS|CVF|"

Table: TypeAlias = pd.DataFrame | str | Path


@dataclass(frozen=True)
class Unknown:
    """Codes of known pairs that a study does not have; its text is one sentence.

    pairs: number of pairs left out; codes: the unknown codes in order; total: all pairs given.
    """

    pairs: int
    codes: tuple[str, ...]
    total: int

    def __len__(self) -> int:
        return len(self.codes)

    def __str__(self) -> str:
        if not self.pairs:
            return "Every known pair has both codes in the study."
        names = ", ".join(self.codes[:NAMED])
        more = f" and {len(self.codes) - NAMED:,} more" if len(self.codes) > NAMED else ""
        return (
            f"{self.pairs:,} of {self.total:,} known pairs are left out, since the study does not "
            f"have {len(self.codes):,} of their codes: {names}{more}."
        )


@dataclass(frozen=True)
class Coverage:
    """How many codes of each vocabulary of a study have a UMLS concept; its text is one sentence.

    found, total: vocabulary -> codes with a concept, and all codes.
    """

    found: Mapping[str, int]
    total: Mapping[str, int]

    @property
    def complete(self) -> bool:
        return all(self.found.get(name, 0) == n for name, n in self.total.items())

    def __str__(self) -> str:
        if self.complete:
            return "Every code of the study has a UMLS concept."
        shares = [
            f"{name or 'no vocabulary'} {self.found.get(name, 0):,} of {n:,}"
            for name, n in self.total.items()
        ]
        more = f" and {len(shares) - NAMED:,} more vocabularies" if len(shares) > NAMED else ""
        return (
            f"So many codes of the study have a UMLS concept: {', '.join(shares[:NAMED])}{more}; "
            "the others are in no pair of the UMLS."
        )


def read_pairs(path: str | Path) -> pd.DataFrame:
    """Known pairs of a .tsv, .csv (both also .gz) or .parquet file with code1, code2, relation.

    Other columns are dropped, as are repeated pairs and pairs of a code with itself.
    """
    table = _read(path, COLUMNS)[COLUMNS]
    cells = table.astype(str).apply(lambda column: column.str.strip())
    if (table.isna() | cells.eq("")).any(axis=None):
        raise InputError(
            f"{Path(path).name} has rows without a code or a relation: fill them in or remove them."
        )
    pairs = _tidy(*(cells[column] for column in COLUMNS))
    if pairs.empty:
        raise InputError(f"{Path(path).name} holds no pair of two different codes.")
    return pairs


def split_known(pairs: pd.DataFrame, codes: Sequence[str]) -> tuple[pd.DataFrame, Unknown]:
    """The pairs with both codes in `codes`, and what is left out.

    Vocabularies may be spelled otherwise: RXNORM:1191 finds RxNorm:1191.
    """
    ends = pairs[ENDS].map(_spelling(codes))
    pairs = pairs.assign(**ends)
    known = ends.isin(set(codes))
    inside = known.all(axis=1)
    strange = sorted(set(ends.to_numpy()[~known.to_numpy()]))
    unknown = Unknown(int((~inside).sum()), tuple(map(str, strange)), len(pairs))
    return pairs[inside].reset_index(drop=True), unknown


def _spelling(codes: Iterable[str]) -> Callable[[str], str]:
    """What turns a code into the study's spelling of it; one that the study lacks stays."""
    ours = {_key(code): code for code in codes} | {code: code for code in codes}
    return lambda code: ours.get(code, ours.get(_key(code), code))


def _key(code: str) -> str:
    """A code with its vocabulary in capitals, without signs."""
    vocabulary, colon, rest = str(code).partition(":")
    return _capitals(vocabulary) + colon + rest


def _capitals(vocabulary: str) -> str:
    return re.sub(r"[\W_]", "", vocabulary).upper()


def spelled(code: str, codes: Sequence[str]) -> list[str]:
    """Those of `codes` that `code` may mean, as `daniel prepare` would find them.

    In any letter case, and only if there is none, without regard to signs and leading zeros too.
    """
    for key in (lambda text: _key(text.replace("//", ":")).upper(), _loose_key):
        found = [own for own in codes if key(own) == key(code)]
        if found:
            return found
    return []


def _loose_key(code: str) -> tuple[str, str]:
    """Vocabulary and code in capitals, without signs, and the code without leading zeros."""
    *vocabulary, rest = re.split("[:/]+", code.upper())
    return re.sub(r"[\W_]", "", "".join(vocabulary)), re.sub(r"[\W_]", "", rest).lstrip("0")


def phecode_pairs(
    codes: Sequence[str],
    table: Table | None = None,
    *,
    family: bool = False,
    relation: str = "PheCode similar",
) -> pd.DataFrame:
    """PheCodes that stand close in their hierarchy: a code and its parent, and siblings.

    The number tells: 290.11 is below 290.1, which is below 290.  A parent need not be among
    `codes` to make siblings.  table: PheCode definitions with a column phecode; a number that it
    lacks is no parent, and the next shorter one is.  family: all codes with one number before the
    dot, as in the reference pairs of the paper.
    """
    own = _numbers(codes, "PHECODE")
    number = {code: _phecode(text) for code, text in own.items()}
    if family:
        return _within({code: [n.partition(".")[0]] for code, n in number.items()}, relation)
    known = None
    if table is not None:
        known = set(_read(table, ["phecode"])["phecode"].dropna().astype(str).map(_phecode))
    groups: dict[str, list[str]] = {}
    pairs = []
    of_number = {n: code for code, n in number.items()}
    for code, n in number.items():
        parent = next((a for a in _ancestors(n) if known is None or a in known), None)
        if parent is None:
            continue
        groups[code] = [parent]
        if parent in of_number:
            pairs.append((code, of_number[parent]))
    siblings = _within(groups, relation)
    return _join([siblings, _tidy(*_columns(pairs), relation)])


def kin(codes: Iterable[str], target: str) -> tuple[str, ...]:
    """Ancestors and descendants of a PheCode among the codes: 290 and 290.11 of 290.1.

    A record that shows one of them all but shows the target.  Other vocabularies have none here:
    their numbers do not tell who is above whom.
    """
    number = {code: _phecode(text) for code, text in _numbers([*codes, target], "PHECODE").items()}
    own = number.pop(target, "")
    near = set(_ancestors(own))
    return tuple(code for code, n in number.items() if n in near or own in _ancestors(n))


def rxnorm_atc_pairs(
    codes: Sequence[str],
    atc: Table,
    names: Mapping[str, str] | None = None,
    *,
    level: int = 4,
    relation: str = "RxNorm similar",
) -> pd.DataFrame:
    """Drugs of one ATC class: RxNorm ingredients that share the first characters of an ATC code.

    atc: a table with a column atc_code and either code ("RXNORM:1191") or atc_name; in the latter
    case a drug is found by its name, which `names` gives (code -> name), in any letter case.
    level: 4 is the chemical subgroup, five characters; a drug may be in several classes.
    """
    if level not in ATC_LENGTH:
        raise ParameterError(f"level is {level!r}: expected 1, 2, 3 or 4.")
    drugs = _numbers(codes, "RXNORM")
    table = _read(atc, ["atc_code"]).dropna(subset="atc_code")
    if "code" in table:
        key = table["code"].astype(str).map(_spelling(drugs))
        of_drug = {code: code for code in drugs}
    elif "atc_name" in table and names is not None:
        key = table["atc_name"].astype(str).str.lower()
        of_drug = {code: str(names[code]).lower() for code in drugs if code in names}
    else:
        raise InputError(
            "The ATC table has no column code: give it one, or give atc_name and the drugs' names."
        )
    whole = table["atc_code"].astype(str).str.len() > ATC_LENGTH[level]  # a drug, not a heading
    classes = table["atc_code"].astype(str).str[: ATC_LENGTH[level]]
    by_key = classes[whole].groupby(key[whole]).unique()
    groups = {code: list(by_key[k]) for code, k in of_drug.items() if k in by_key.index}
    return _within(groups, relation)


def umls_pairs(
    codes: Sequence[str],
    mrrel: str | Path,
    mrconso: str | Path | None = None,
    *,
    cuis: Table | None = None,
    through: Table | None = None,
    relations: Mapping[str, tuple[str, ...]] = UMLS_RELATIONS,
) -> pd.DataFrame:
    """Pairs of codes whose concepts stand in a relation of the UMLS Metathesaurus.

    mrrel, mrconso: the files MRREL.RRF and MRCONSO.RRF of the user's own release; suppressed rows
    are not used.  A code finds its concepts (CUI) in MRCONSO, its vocabulary being the source
    (SAB), or in `cuis`, a table code, cui.  Vocabularies that the UMLS does not have, such as
    PheCode, need `cuis`, or `through`: a table source, target from codes that it has
    ("ICD10CM:F00") to those of the study ("PheCode:290.11").  relations: name -> values of RELA.

    attrs["coverage"] of the result: the `Coverage` of the codes by concepts.
    """
    concepts = _concepts(codes, mrconso, cuis, through)
    if concepts.empty:
        raise InputError(
            "No code of the study has a UMLS concept: give mrconso, and a table that leads from "
            "its codes to those of the study (through)."
        )
    rela = pa.array([value for values in relations.values() for value in values])
    known = pa.array(pd.unique(concepts["cui"]))

    def wanted(rows: pa.Table) -> pa.Array:
        ends = pc.and_(
            pc.is_in(rows["CUI1"], value_set=known), pc.is_in(rows["CUI2"], value_set=known)
        )
        return pc.and_(ends, pc.is_in(rows["RELA"], value_set=rela))

    rows = _read_rrf(mrrel, MRREL, ["CUI1", "CUI2", "RELA"], wanted)
    name = {value: name for name, values in relations.items() for value in values}
    first = rows.merge(concepts, left_on="CUI1", right_on="cui")
    both = first.merge(concepts, left_on="CUI2", right_on="cui", suffixes=("1", "2"))
    pairs = _tidy(both["code1"], both["code2"], both["RELA"].map(name))
    pairs.attrs["coverage"] = Coverage(*map(_by_vocabulary, (concepts["code"].unique(), codes)))
    return pairs


def _by_vocabulary(codes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(map(vocabulary_of, codes)).items()))


# --- tables of pairs ------------------------------------------------------------------------------


def _tidy(one: pd.Series, two: pd.Series, relation: pd.Series | str) -> pd.DataFrame:
    """Unordered pairs, each once a relation, none of a code with itself."""
    pairs = pd.DataFrame({"code1": one, "code2": two}, dtype=str)
    turned = pairs["code1"] > pairs["code2"]
    pairs.loc[turned, ["code1", "code2"]] = pairs.loc[turned, ["code2", "code1"]].to_numpy()
    pairs["relation"] = relation
    pairs = pairs[pairs["code1"] != pairs["code2"]].drop_duplicates()
    return pairs.sort_values(["relation", "code1", "code2"], ignore_index=True)


def _within(groups: Mapping[str, Iterable[str]], relation: str) -> pd.DataFrame:
    """All pairs of codes that share a group."""
    rows = [(code, group) for code, own in groups.items() for group in own]
    table = pd.DataFrame(rows, columns=["code", "group"])
    both = table.merge(table, on="group", suffixes=("1", "2"))
    return _tidy(both["code1"], both["code2"], relation)


def _columns(pairs: list[tuple[str, str]]) -> tuple[pd.Series, pd.Series]:
    table = pd.DataFrame(pairs, columns=["code1", "code2"], dtype=str)
    return table["code1"], table["code2"]


def _join(tables: list[pd.DataFrame]) -> pd.DataFrame:
    whole = pd.concat(tables, ignore_index=True)
    return _tidy(whole["code1"], whole["code2"], whole["relation"])


def _numbers(codes: Sequence[str], vocabulary: str) -> dict[str, str]:
    """Code -> what stands after the colon, for the codes of a vocabulary in any spelling."""
    cut = ((code, *code.partition(":")) for code in codes)
    return {code: number for code, kind, _, number in cut if _capitals(kind) == vocabulary}


def _phecode(text: str) -> str:
    """A PheCode with three digits before the dot: 8.5 is 008.5.

    No PheCode ends in a zero after the dot; a table of numbers has them, and 290.0 is 290.
    """
    whole, _, rest = text.partition(".")
    rest = rest.rstrip("0")
    return whole.zfill(3) + (f".{rest}" if rest else "")


def _ancestors(number: str) -> list[str]:
    """290.11 -> 290.1, 290."""
    whole, _, rest = number.partition(".")
    return [f"{whole}.{rest[:k]}" for k in range(len(rest) - 1, 0, -1)] + [whole] * bool(rest)


# --- UMLS -----------------------------------------------------------------------------------------


def _concepts(
    codes: Sequence[str], mrconso: str | Path | None, cuis: Table | None, through: Table | None
) -> pd.DataFrame:
    """Columns code, cui of the study's codes."""
    steps = pd.DataFrame({"source": list(codes), "target": list(codes)}, dtype=str)
    if through is not None:
        table = _read(through, ["source", "target"])[["source", "target"]].dropna().astype(str)
        table["target"] = table["target"].map(_spelling(codes))
        steps = pd.concat([steps, table[table["target"].isin(set(codes))]], ignore_index=True)
    found = []
    if cuis is not None:
        table = _read(cuis, ["code", "cui"])[["code", "cui"]].astype(str)
        found.append(table.assign(code=table["code"].map(_spelling(steps["source"]))))
    if mrconso is not None:
        found.append(_atoms(mrconso, steps["source"]))
    if not found:
        raise ParameterError("Neither mrconso nor cuis was given: one must say which concepts.")
    known = pd.concat(found, ignore_index=True).rename(columns={"code": "source"})
    concepts = steps.merge(known, on="source")[["target", "cui"]].drop_duplicates()
    return concepts.rename(columns={"target": "code"})


def _atoms(mrconso: str | Path, names: pd.Series) -> pd.DataFrame:
    """code, cui of the names that MRCONSO has as SAB and CODE.

    SAB is in capitals there; some have signs of their own (SNOMEDCT_US), others lack the study's.
    """
    parts = names.str.partition(":")
    asked = pd.concat(
        pd.DataFrame({"code": names, "SAB": sab.replace(SABS), "CODE": parts[2]})
        for sab in (parts[0].str.upper(), parts[0].map(_capitals))
    ).drop_duplicates()
    sources, numbers = pa.array(pd.unique(asked["SAB"])), pa.array(pd.unique(asked["CODE"]))

    def wanted(rows: pa.Table) -> pa.Array:
        return pc.and_(
            pc.is_in(rows["SAB"], value_set=sources), pc.is_in(rows["CODE"], value_set=numbers)
        )

    rows = _read_rrf(mrconso, MRCONSO, ["CUI", "SAB", "CODE"], wanted)
    return asked.merge(rows, on=["SAB", "CODE"])[["code", "CUI"]].rename(columns={"CUI": "cui"})


def _read_rrf(
    path: str | Path,
    fields: str,
    kept: list[str],
    wanted: Callable[[pa.Table], pa.Array],
) -> pd.DataFrame:
    """Rows of an RRF file that are wanted and not suppressed; read in blocks, for it is large."""
    asked = [*kept, "SUPPRESS"]
    try:
        blocks = csv.open_csv(
            Path(path),
            read_options=csv.ReadOptions(column_names=fields.split("|"), block_size=1 << 25),
            parse_options=csv.ParseOptions(delimiter="|", quote_char=False),
            convert_options=csv.ConvertOptions(
                include_columns=asked,
                column_types=dict.fromkeys(asked, pa.string()),
                strings_can_be_null=False,
            ),
        )
        parts = []
        for batch in blocks:
            rows = pa.Table.from_batches([batch])
            rows = rows.filter(pc.and_(pc.equal(rows["SUPPRESS"], "N"), wanted(rows)))
            parts.append(rows.select(kept).to_pandas())
        if not parts:
            raise pa.ArrowInvalid("blank lines alone")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, pa.ArrowInvalid):
        raise FormatError(
            f"{Path(path).name} is not in the Rich Release Format of the UMLS: expected "
            f"{fields.count('|')} fields, each ended by a bar."
        ) from None
    return pd.concat(parts, ignore_index=True).drop_duplicates()


def _read(table: Table, needed: list[str]) -> pd.DataFrame:
    """A data frame, or a file by the end of its name."""
    name = "The table"
    if not isinstance(table, pd.DataFrame):
        name = Path(table).name
        table = _read_file(Path(table))
    missing = [column for column in needed if column not in table]
    if missing:
        raise InputError(f"{name} has no column {listed(missing)}: it has {_some(table)}.")
    return table


def _read_file(path: Path) -> pd.DataFrame:
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    try:
        if kind == "parquet":
            return pd.read_parquet(path)
        if kind in ("tsv", "csv"):
            return read_text(path, "\t" if kind == "tsv" else ",")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError):  # pandas and Arrow derive theirs from it
        raise FormatError(f"{path.name} cannot be read as {kind}.") from None
    raise InputError(f"{path.name} is of no known kind: expected .tsv, .csv or .parquet.")


def read_text(path: Path, separator: str) -> pd.DataFrame:
    """A table of text.  Only empty cells are missing: "None" and "NA" are words, or codes.

    Between tabs a quotation mark is part of a cell, as in the files of daniel and of Athena, unless
    the names of the columns are quoted too, as R does.
    """
    options: dict[str, Any] = {"sep": separator, "quoting": QUOTE_NONE}
    if separator == "," or str(pd.read_csv(path, nrows=0, **options).columns[0]).startswith('"'):
        options["quoting"] = QUOTE_MINIMAL
    return pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""], **options)


def _some(table: pd.DataFrame) -> str:
    return listed([str(column) for column in table.columns]) or "none"
