"""Known pairs from the UMLS Metathesaurus.

Its files are licensed to each user by the US National Library of Medicine and are read where they
lie.  Nothing of them is part of this package.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from daniel.data.frames import Table, frame
from daniel.errors import FormatError, InputError, ParameterError
from daniel.evaluate.pairs import NAMED, tidy
from daniel.evaluate.spelling import capitals, spelling
from daniel.matrix import vocabulary_of

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
    pairs = tidy(both["code1"], both["code2"], both["RELA"].map(name))
    pairs.attrs["coverage"] = Coverage(*map(_by_vocabulary, (concepts["code"].unique(), codes)))
    return pairs


def _by_vocabulary(codes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(map(vocabulary_of, codes)).items()))


def _concepts(
    codes: Sequence[str], mrconso: str | Path | None, cuis: Table | None, through: Table | None
) -> pd.DataFrame:
    """Columns code, cui of the study's codes."""
    steps = pd.DataFrame({"source": list(codes), "target": list(codes)}, dtype=str)
    if through is not None:
        table = frame(through, ["source", "target"])[["source", "target"]].dropna().astype(str)
        table["target"] = table["target"].map(spelling(codes))
        steps = pd.concat([steps, table[table["target"].isin(set(codes))]], ignore_index=True)
    found = []
    if cuis is not None:
        table = frame(cuis, ["code", "cui"])[["code", "cui"]].astype(str)
        found.append(table.assign(code=table["code"].map(spelling(steps["source"]))))
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
        for sab in (parts[0].str.upper(), parts[0].map(capitals))
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
