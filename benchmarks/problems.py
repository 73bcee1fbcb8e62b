"""The real problems on which methods are compared: records × codes, with known relations.

Two problems, each one call of :func:`load`:

``visits``
    US emergency visits (NHAMCS 2018-2020), real. One visit is one record; a site is a region in
    a year (12 sites). Diagnoses become PheCodes without their parents, drugs become RxNorm
    ingredients; the 13 % of drugs (mostly combinations) whose name RxNorm lacks are dropped.
``medicare``
    Synthetic Medicare inpatient claims (DE-SynPUF, 10 samples), 2008-2010. One beneficiary in one
    six-month window is one record; a site is a sample (10 sites). Diagnoses become PheCodes,
    procedures become CCS categories.

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

PROJECT_ROOT = Path(__file__).resolve().parents[1]
# Least number of records in which a code is seen, for it to be kept.
MIN_RECORDS = {"visits": 20, "medicare": 20}
# A relation with fewer pairs than this says too little to be reported.
MIN_PAIRS = 30
WINDOW_DAYS = 183
FOLDERS = (
    "ehr/nchs",
    "ehr/desynpuf",
    "gold/keser",
    "vocab/phecode",
    "vocab/ccs",
    "vocab/rxnorm_atc",
)
REGIONS = {"1": "Northeast", "2": "Midwest", "3": "South", "4": "West"}
SAMPLES = range(1, 11)
# (pair, type) of the reference file -> name of the relation. Its pairs of kind "CUI-CUI" are a
# mixture (side effects, contraindications, differential diagnoses) and are left out.
RELATIONS = {
    ("PheCode-PheCode", "similarity"): "PheCode similar",
    ("RXNORM-RXNORM", "similarity"): "RxNorm similar",
    ("PheCode-PheCode", "related"): "PheCode-PheCode",
    ("PheCode-RXNORM", "related"): "PheCode-RxNorm",
    ("PheCode-CCS", "related"): "PheCode-CCS",
    ("RXNORM-RXNORM", "related"): "RxNorm-RxNorm",
}


@dataclass(frozen=True)
class Problem:
    """Records, codes and known relations.

    name : "visits" or "medicare".
    Z : (n, p) CSR of float32 zeros and ones, one row a record; no row is empty.
    codes : p names with their vocabulary, such as "PheCode:290.1", "RXNORM:1191", "CCS:47".
    sites : (n,) name of the site of each record.
    patients : (n,) patient of each record, or None where a record is a patient of its own.
    pairs : known relations, columns code1, code2, relation; both codes are in `codes`.
    """

    name: str
    Z: sparse.csr_matrix
    codes: list[str]
    sites: np.ndarray
    patients: np.ndarray | None
    pairs: pd.DataFrame


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
    if not available():
        raise FileNotFoundError(
            f"The data folder {data_root()} is missing or incomplete: set DANIEL_DATA to it."
        )
    events, records = _read_visits(flags) if name == "visits" else _read_medicare()
    least = MIN_RECORDS[name] if min_records is None else min_records
    return _assemble(name, events, records, least)


# --- from events to a problem ---------------------------------------------------------------------


def _assemble(name: str, events: pd.DataFrame, records: pd.DataFrame, min_records: int) -> Problem:
    """Events (record, code) and records (site[, patient]) -> Problem."""
    events = events.dropna().drop_duplicates()
    is_flag = events["code"].str.startswith("FLAG:")
    seen = events["code"].value_counts()
    events = events[is_flag | (events["code"].map(seen) >= min_records)]
    # A record must have something other than a flag, so that flags leave the rows as they are.
    rows = np.unique(events.loc[~events["code"].str.startswith("FLAG:"), "record"])
    events = events[events["record"].isin(rows)]
    codes, column = np.unique(events["code"].to_numpy(dtype=str), return_inverse=True)
    row = np.searchsorted(rows, events["record"])
    Z = sparse.csr_matrix(
        (np.ones(len(events), dtype=np.float32), (row, column)), shape=(len(rows), len(codes))
    )
    kept = records.loc[rows]
    patients = kept["patient"].to_numpy(dtype=str) if "patient" in kept else None
    names = codes.tolist()
    return Problem(name, Z, names, kept["site"].to_numpy(dtype=str), patients, _known_pairs(names))


def _known_pairs(codes: Sequence[str]) -> pd.DataFrame:
    """Known relations between the given codes: unordered, without self-pairs and repeats."""
    known = pd.read_csv(
        data_root() / "gold/keser/known_pairs.csv.gz", usecols=["code1", "code2", "type", "pair"]
    )
    relation = pd.Series(list(zip(known["pair"], known["type"], strict=True))).map(RELATIONS)
    first = known[["code1", "code2"]].min(axis=1)
    second = known[["code1", "code2"]].max(axis=1)
    pairs = pd.DataFrame({"code1": first, "code2": second, "relation": relation})
    inside = pairs["code1"].isin(codes) & pairs["code2"].isin(codes)
    pairs = pairs[inside & (first != second)].dropna().drop_duplicates()
    enough = pairs["relation"].map(pairs["relation"].value_counts()) >= MIN_PAIRS
    order = list(RELATIONS.values())
    return pairs[enough].sort_values(
        "relation", key=lambda names: names.map(order.index), kind="stable", ignore_index=True
    )


# --- emergency visits -----------------------------------------------------------------------------


def _read_visits(flags: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events and records of the emergency visits; the record is the row number of the file."""
    visits = pd.read_csv(
        data_root() / "ehr/nchs/nhamcs_ed_2018_2019_2020.csv.gz",
        usecols=["year", "region", "icd10_4char", "drugid", *flags],
        dtype=str,
    )
    diagnoses = _split(visits["icd10_4char"])
    drugs = _split(visits["drugid"])
    events = [
        _events(diagnoses, "PheCode:" + _icd10_to_phecode(diagnoses)),
        _events(drugs, _drugid_to_rxnorm(drugs)),
    ]
    for flag in flags:
        present = visits.index[visits[flag] == "1"]
        events.append(pd.DataFrame({"record": present, "code": f"FLAG:{flag}"}))
    sites = visits["region"].map(REGIONS) + "-" + visits["year"]
    return pd.concat(events, ignore_index=True), pd.DataFrame({"site": sites})


def _split(column: pd.Series) -> pd.Series:
    """Values of a ``;``-separated column, indexed by record."""
    values = column.str.split(";").explode().dropna()
    return values[values != ""]


def _events(values: pd.Series, codes: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"record": values.index, "code": codes.to_numpy()})


def _icd10_to_phecode(cut: pd.Series) -> pd.Series:
    """PheCodes of ICD-10-CM codes that were cut to four characters (``-`` padded).

    First rule that applies: the PheCode most common among the ICD-10-CM codes that begin with
    the four characters; the PheCode of the WHO code; both again for the first three characters.
    PheCodes that are equally common are decided for the shorter one, the parent.
    """
    phecode = data_root() / "vocab/phecode"
    cm = pd.read_csv(phecode / "phecode_map.csv.gz", dtype=str)
    tables = [
        cm[cm["vocabulary_id"] == "ICD10CM"],
        pd.read_csv(phecode / "phecode_map_icd10.csv.gz", dtype=str),
    ]
    stem = cut.str.rstrip("-")
    found = pd.Series(pd.NA, index=cut.index, dtype="str")
    for length in (4, 3):
        for table in tables:
            found = found.fillna(stem.str[:length].map(_commonest_phecode(table, length)))
    return found


def _commonest_phecode(table: pd.DataFrame, length: int | None = None) -> pd.Series:
    """ICD code without dot, cut to `length` characters -> its most common PheCode."""
    icd = table["code"].str.replace(".", "", regex=False).str[:length]
    counts = table.groupby([icd, "phecode"]).size().rename("count").reset_index()
    counts["characters"] = counts["phecode"].str.len()
    order = ["code", "count", "characters", "phecode"]
    counts = counts.sort_values(order, ascending=[True, False, True, True])
    return counts.drop_duplicates("code").set_index("code")["phecode"]


def _drugid_to_rxnorm(drugs: pd.Series) -> pd.Series:
    """RxNorm codes of drug ids, by the exact lower-case generic name; missing where none fits."""
    names = pd.read_csv(data_root() / "ehr/nchs/drugid_names.csv").set_index("DRUGID")
    return drugs.map(names["generic_name"].str.lower()).map(_rxnorm_names())


def _rxnorm_names() -> pd.Series:
    """Lower-case name -> RxNorm code; the code space of the known pairs comes first."""
    root = data_root()
    ours = pd.read_csv(root / "gold/keser/dict_combine_uniform.csv.gz")
    ours = ours.assign(seen=ours["freq_single_RPDR"] + ours["freq_single_VA"])
    ours = ours.sort_values("seen", ascending=False, kind="stable")
    other = pd.read_csv(root / "gold/keser/OurDict.csv.gz")
    rxnorm = pd.read_csv(
        root / "vocab/rxnorm_atc/RXNORM_bioportal.csv.gz", usecols=["Class ID", "Preferred Label"]
    )
    table = pd.DataFrame(
        {
            "code": pd.concat(
                [
                    ours["feature_id"],
                    other["code"],
                    "RXNORM:" + rxnorm["Class ID"].str.rsplit("/", n=1).str[-1],
                ]
            ),
            "name": pd.concat(
                [ours["feature_desc"], other["desc"], rxnorm["Preferred Label"]]
            ).str.lower(),
        }
    )
    table = table[table["code"].str.startswith("RXNORM:")].dropna()
    return table.drop_duplicates("name").set_index("name")["code"]


# --- Medicare claims ------------------------------------------------------------------------------


def _read_medicare() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events and records of the inpatient claims; the record is (beneficiary, window)."""
    claims = _read_claims()
    record, records = _windows(claims)
    diagnoses = _fields(claims, "ICD9_DGNS_CD_", record)
    procedures = _fields(claims, "ICD9_PRCDR_CD_", record)
    events = [
        _events(diagnoses, "PheCode:" + diagnoses.map(_icd9_to_phecode())),
        _events(procedures, "CCS:" + _only_procedures(procedures, diagnoses).map(_icd9_to_ccs())),
    ]
    return pd.concat(events, ignore_index=True), records


def _read_claims() -> pd.DataFrame:
    """All claims of the samples, with the number of the sample."""
    folder = data_root() / "ehr/desynpuf"
    wanted = ("DESYNPUF_ID", "CLM_ADMSN_DT", "ICD9_DGNS_CD_", "ICD9_PRCDR_CD_")
    samples = [
        pd.read_csv(
            folder / f"DE1_0_2008_to_2010_Inpatient_Claims_Sample_{k}.csv.gz",
            usecols=lambda column: column.startswith(wanted),
            dtype=str,
        ).assign(sample=k)
        for k in SAMPLES
    ]
    return pd.concat(samples, ignore_index=True)


def _windows(claims: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """Record number of each claim, and the records with site and patient.

    Windows of WINDOW_DAYS days are counted for each beneficiary from the first admission.
    """
    admitted = pd.to_datetime(claims["CLM_ADMSN_DT"], format="%Y%m%d")
    since = admitted - admitted.groupby(claims["DESYNPUF_ID"]).transform("min")
    window = since.dt.days // WINDOW_DAYS
    keys = pd.DataFrame(
        {
            "patient": claims["DESYNPUF_ID"],
            "window": window,
            "site": "sample-" + claims["sample"].astype(str).str.zfill(2),
        }
    )
    record = keys.groupby(["site", "patient", "window"]).ngroup()
    records = keys.groupby(record).first()[["site", "patient"]]
    return record.to_numpy(), records


def _fields(claims: pd.DataFrame, prefix: str, record: np.ndarray) -> pd.Series:
    """Values of the numbered columns that begin with `prefix`, indexed by record."""
    columns = [claims[name] for name in claims.columns if name.startswith(prefix)]
    values = pd.concat(columns, ignore_index=True)
    values.index = np.tile(record, len(columns))
    return values.dropna()


def _only_procedures(procedures: pd.Series, diagnoses: pd.Series) -> pd.Series:
    """The procedure fields, blank where the value is a diagnosis put into the wrong field.

    Half of these fields hold diagnoses, and some of those look like procedures: 401.9 is
    hypertension, 40.19 a biopsy. A value that the diagnosis fields hold more often than the
    procedure fields is taken for a diagnosis.
    """
    as_procedure = procedures.map(procedures.value_counts())
    as_diagnosis = procedures.map(diagnoses.value_counts()).fillna(0)
    return procedures.where(as_procedure > as_diagnosis)


def _icd9_to_phecode() -> pd.Series:
    """ICD-9-CM diagnosis without dot -> PheCode."""
    table = pd.read_csv(data_root() / "vocab/phecode/phecode_map.csv.gz", dtype=str)
    return _commonest_phecode(table[table["vocabulary_id"] == "ICD9CM"])


def _icd9_to_ccs() -> pd.Series:
    """ICD-9-CM procedure without dot -> CCS category."""
    table = pd.read_csv(data_root() / "vocab/ccs/icd9_procedure_to_ccs_prref_2015.csv", dtype=str)
    table = table.dropna(subset="ICD-9-CM CODE")
    return table.set_index(table["ICD-9-CM CODE"].str.strip())["CCS CATEGORY"].str.strip()
