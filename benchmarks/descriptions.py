"""Words for the codes of the benchmark problems, from the vocabulary tables of the data folder.

PheCodes by their phenotype string, CCS categories by their label, RxNorm by its name.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks import problems

PHECODE = "vocab/phecode/phecode_definitions1.2.csv"
CCS = ("vocab/ccs/prmlabel10.csv", "vocab/ccs/icd9_procedure_to_ccs_prref_2015.csv")
RXNORM = "vocab/rxnorm_atc/RXNORM_bioportal.csv.gz"
NAMES = "gold/keser/dict_combine_uniform.csv.gz"
FLAGS = {"FLAG:chron_ALZHD": "Alzheimer's disease or dementia"}


def descriptions(codes: Sequence[str], root: Path | None = None) -> dict[str, str]:
    """Code -> description, for the codes that have one."""
    root = root or problems.data_root()
    full, short = _ccs(root)
    tables = [_phecodes(root), full, _rxnorm(root), _other_names(root), short]
    words = pd.concat([*tables, pd.Series(FLAGS)])
    words = words[~words.index.duplicated()].dropna()
    return {code: str(words[code]) for code in codes if code in words.index}


def _phecodes(root: Path) -> pd.Series:
    table = pd.read_csv(root / PHECODE, dtype=str)
    return table.set_index("PheCode:" + table["phecode"])["phenotype"]


def _ccs(root: Path) -> tuple[pd.Series, pd.Series]:
    """Labels in full where a category has its own ("Thyroidectomy [10.]"), and abbreviations."""
    long = pd.read_csv(root / CCS[0], dtype=str, quotechar="'").iloc[:, 1]
    found = long.str.extract(r"^(?P<label>.*\S)\s*\[(?P<number>\d+)\.?\]$").dropna()
    short = pd.read_csv(root / CCS[1], dtype=str)
    number = short["CCS CATEGORY"].str.strip()
    return (
        found.set_index("CCS:" + found["number"])["label"],
        short.set_index("CCS:" + number)["CCS CATEGORY DESCRIPTION"].str.strip(),
    )


def _rxnorm(root: Path) -> pd.Series:
    table = pd.read_csv(root / RXNORM, usecols=["Class ID", "Preferred Label"], dtype=str)
    number = table["Class ID"].str.rsplit("/", n=1).str[-1]
    return table.set_index("RXNORM:" + number)["Preferred Label"]


def _other_names(root: Path) -> pd.Series:
    table = pd.read_csv(root / NAMES, usecols=["feature_id", "feature_desc"], dtype=str)
    return table.set_index("feature_id")["feature_desc"]
