"""The real problems on which methods are compared: records × codes, with known relations.

``visits``, real emergency visits, and ``medicare``, synthetic claims, are read by
:mod:`daniel.data.public`, which says what their records, codes and sites are.

The data stay outside the repository: the environment variable ``DANIEL_DATA`` names the folder,
which is ``../shared/data`` beside the project otherwise.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from daniel.data import public
from daniel.data.public import MIN_PAIRS, REGIONS

__all__ = ["MIN_PAIRS", "MIN_RECORDS", "REGIONS", "Problem", "available", "data_root", "load"]

PROJECT_ROOT = Path(__file__).resolve().parents[1]
# Least number of records in which a code is seen, for it to be kept.
MIN_RECORDS = {"visits": public.MIN_RECORDS, "medicare": public.MIN_RECORDS}
FOLDERS = (
    "ehr/nchs",
    "ehr/desynpuf",
    "gold/keser",
    "vocab/phecode",
    "vocab/ccs",
    "vocab/rxnorm_atc",
)


@dataclass(frozen=True)
class Problem:
    """Records, codes and known relations.

    name : "visits", "medicare", or one of `benchmarks.problems_made`.
    Z : (n, p) CSR of float32 zeros and ones, one row a record; no row is empty.
    codes : p names with their vocabulary, such as "PheCode:290.1", "RXNORM:1191", "CCS:47".
    sites : (n,) name of the site of each record.
    patients : (n,) patient of each record, or None where a record is a patient of its own.
    pairs : known relations, columns code1, code2, relation; both codes are in `codes`.
    theta : (p, p) the couplings that records were drawn from, in ±1 coordinates, where known.
    """

    name: str
    Z: sparse.csr_matrix
    codes: list[str]
    sites: np.ndarray
    patients: np.ndarray | None
    pairs: pd.DataFrame
    theta: np.ndarray | None = None


def data_root() -> Path:
    """The data folder: DANIEL_DATA, else ``../shared/data`` beside the project."""
    return Path(os.environ.get("DANIEL_DATA") or PROJECT_ROOT.parent / "shared" / "data")


def available() -> bool:
    """Whether the data folder is there, with all that :func:`load` reads."""
    return all((data_root() / folder).is_dir() for folder in FOLDERS)


def load(name: str, min_records: int | None = None, *, flags: Sequence[str] = ()) -> Problem:
    """Read one problem.

    Parameters
    ----------
    name : "visits" or "medicare".
    min_records : keep the codes seen in at least this many records (default: MIN_RECORDS[name]).
    flags : for "visits" only, yes/no columns of the survey to add as codes, for example
        ``("chron_ALZHD",)``, which becomes the code "FLAG:chron_ALZHD". Flags are kept however
        rare they are, and change no row: a record must have a code beside its flags.
    """
    if name not in MIN_RECORDS:
        raise ValueError(f"Unknown problem {name!r}: expected one of {sorted(MIN_RECORDS)}.")
    if flags and name != "visits":
        raise ValueError(f"Only 'visits' has flags; {name!r} was asked for {list(flags)}.")
    root = data_root()
    if not available():
        raise FileNotFoundError(
            f"The data folder {root} is missing or incomplete: set DANIEL_DATA to it."
        )
    least = MIN_RECORDS[name] if min_records is None else min_records
    if name == "visits":
        found = public.read_visits(root, least, flags=flags)
    else:
        found = public.read_medicare(root, least)
    matrix = found.matrix
    codes = list(matrix.codes)
    Z = sparse.csr_matrix(matrix.Z)
    return Problem(name, Z, codes, found.sites, matrix.patients, public.known_pairs(codes, root))
