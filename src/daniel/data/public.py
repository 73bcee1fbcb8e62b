"""Public data sets as records: US emergency visits, and synthetic Medicare claims.

    visits = read_visits("data")         one visit is one record; 12 sites, region × year
    medicare = read_medicare("data")     a beneficiary's half-year; 10 sites, or a site a state
    pairs = known_pairs(visits.matrix.codes, "data")

The data are not part of the package.  The folder, or DANIEL_DATA where none is given, holds

    ehr/nchs/         NHAMCS emergency visits 2018-2020, and the names of their drugs
    ehr/desynpuf/     DE-SynPUF inpatient claims and yearly summaries, 2008-2010
    gold/keser/       known relations and code names
    vocab/            PheCode, CCS and RxNorm tables
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from daniel.errors import InputError, ParameterError
from daniel.matrix import CodeMatrix, listed

MIN_RECORDS = 20  # codes seen in fewer records are left out
MIN_PAIRS = 30  # a relation with fewer pairs says too little
WINDOW_DAYS = 183
REGIONS = {"1": "Northeast", "2": "Midwest", "3": "South", "4": "West"}
SAMPLES = range(1, 11)
YEARS = (2008, 2009, 2010)
LAST_DAY = pd.Timestamp("2010-12-31")
DEMENTIA_FLAG, DEMENTIA_CODE = "SP_ALZHDMTA", "PheCode:290.1"
VISIT_DEMENTIA = "chron_ALZHD"
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

Reader = Callable[..., pd.DataFrame]


@dataclass(frozen=True)
class PublicRecords:
    """Records of a public data set.

    matrix: records × codes; patients and windows where the data have them.
    sites (n,): name of each record's site.
    labels: one row a record, yes or no: chron_ALZHD of a visit; SP_ALZHDMTA of the beneficiary in
    the record's first year, and PheCode:290.1 in the record itself.
    survival: one row a patient with dementia: patient, site, days, event.  Days run from the start
    of the first half-year with PheCode:290.1 to death (event) or to the end of 2010.
    """

    matrix: CodeMatrix
    sites: np.ndarray
    labels: pd.DataFrame
    survival: pd.DataFrame | None = None


def read_visits(
    root: str | Path | None = None,
    min_records: int = MIN_RECORDS,
    *,
    flags: Sequence[str] = (),
) -> PublicRecords:
    """US emergency visits (NHAMCS 2018-2020), real; a site is a region in a year.

    Diagnoses become PheCodes without their parents, drugs become RxNorm ingredients; the 13 % of
    drugs (mostly combinations) whose name RxNorm lacks are dropped.  flags: yes/no columns of the
    survey to add as codes, ``("chron_ALZHD",)`` as "FLAG:chron_ALZHD"; they are kept however rare,
    and change no row.
    """
    read = _reader(root)
    columns = ["year", "region", "icd10_4char", "drugid", *{VISIT_DEMENTIA, *flags}]
    visits = read("ehr/nchs/nhamcs_ed_2018_2019_2020.csv.gz", usecols=columns, dtype=str)
    diagnoses, drugs = _split(visits["icd10_4char"]), _split(visits["drugid"])
    events = [
        _events(diagnoses, "PheCode:" + _icd10_to_phecode(diagnoses, read)),
        _events(drugs, _drugid_to_rxnorm(drugs, read)),
    ]
    for flag in flags:
        present = visits.index[visits[flag] == "1"]
        events.append(pd.DataFrame({"record": present, "code": f"FLAG:{flag}"}))
    Z, codes, rows = _assemble(pd.concat(events, ignore_index=True), min_records)
    kept = visits.loc[rows]
    labels = pd.DataFrame({VISIT_DEMENTIA: (kept[VISIT_DEMENTIA] == "1").to_numpy()})
    sites = (kept["region"].map(REGIONS) + "-" + kept["year"]).to_numpy(dtype=str)
    return PublicRecords(CodeMatrix(Z, codes), sites, labels)


def read_medicare(
    root: str | Path | None = None, min_records: int = MIN_RECORDS, *, sites: str = "sample"
) -> PublicRecords:
    """Synthetic Medicare inpatient claims (DE-SynPUF, 10 samples), 2008-2010.

    A beneficiary's 183 days, counted from the first admission, are one record; a site is a sample
    or a state (`sites`).  Diagnoses become PheCodes, procedures become CCS categories.
    """
    if sites not in ("sample", "state"):
        raise ParameterError(f"sites is {sites!r}; expected 'sample' or 'state'.")
    read = _reader(root)
    claims = _read_claims(read)
    record, records = _windows(claims)
    diagnoses = _fields(claims, "ICD9_DGNS_CD_", record)
    procedures = _only_procedures(_fields(claims, "ICD9_PRCDR_CD_", record), diagnoses)
    phecodes = "PheCode:" + diagnoses.map(_icd9_to_phecode(read))
    ccs = "CCS:" + procedures.map(_icd9_to_ccs(read))
    events = [_events(diagnoses, phecodes), _events(procedures, ccs)]
    Z, codes, rows = _assemble(pd.concat(events, ignore_index=True), min_records)
    people = _read_people(read)
    ill = np.unique(phecodes.index[phecodes == DEMENTIA_CODE])
    site = records["patient"].map(people["state"]) if sites == "state" else records["sample"]
    records = records.assign(site=site, ill=records.index.isin(ill))
    kept = records.loc[rows]
    matrix = CodeMatrix(
        Z, codes, kept["patient"].to_numpy(dtype=str), kept["window"].to_numpy(dtype=np.int64)
    )
    labels = pd.DataFrame({DEMENTIA_FLAG: _flagged(kept, people), DEMENTIA_CODE: kept["ill"].array})
    where = kept["site"].to_numpy(dtype=str)
    return PublicRecords(matrix, where, labels, _survival(kept, people))


def known_pairs(codes: Sequence[str], root: str | Path | None = None) -> pd.DataFrame:
    """Known relations between the given codes: code1, code2, relation.

    Unordered, without self-pairs and repeats; relations with fewer than MIN_PAIRS pairs are left
    out.
    """
    columns = ["code1", "code2", "type", "pair"]
    known = _reader(root)("gold/keser/known_pairs.csv.gz", usecols=columns)
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


# --- files and records ----------------------------------------------------------------------------


def _reader(root: str | Path | None) -> Reader:
    """What reads a table of the data folder, and says what is missing."""
    folder = root if root is not None else os.environ.get("DANIEL_DATA")
    if not folder:
        raise InputError(
            "No data folder was given, and DANIEL_DATA is not set: name the folder with ehr/, "
            "gold/ and vocab/."
        )

    def read(path: str, *, usecols: Any = None, **options: Any) -> pd.DataFrame:
        file = Path(folder) / path
        if not file.is_file():
            raise InputError(
                f"There is no {path} in the data folder {folder}: give the folder that holds it, "
                "or set DANIEL_DATA to it."
            )
        found = pd.read_csv(file, nrows=0).columns
        missing = [c for c in usecols if c not in found] if isinstance(usecols, list) else []
        if missing:
            raise InputError(f"{path} has no column {listed(missing)}: is it another edition?")
        return pd.read_csv(file, usecols=usecols, **options)

    return read


def _assemble(
    events: pd.DataFrame, min_records: int
) -> tuple[sp.csr_array, tuple[str, ...], np.ndarray]:
    """Events (record, code) -> 0/1 matrix, its codes in order, and the records of its rows.

    A row has something other than a flag, so that flags leave the rows as they are.
    """
    events = events.dropna().drop_duplicates()
    is_flag = events["code"].str.startswith("FLAG:")
    seen = events["code"].value_counts()
    events = events[is_flag | (events["code"].map(seen) >= min_records)]
    rows = np.unique(events.loc[~events["code"].str.startswith("FLAG:"), "record"])
    if rows.size == 0:
        raise InputError(f"No code stands in {min_records:,} records: lower min_records.")
    events = events[events["record"].isin(rows)]
    codes, column = np.unique(events["code"].to_numpy(dtype=str), return_inverse=True)
    row = np.searchsorted(rows, events["record"])
    place = (row.astype(np.int32), column.astype(np.int32))
    Z = sp.csr_array((np.ones(len(events), dtype=np.float32), place), shape=(rows.size, codes.size))
    return Z, tuple(codes.tolist()), rows


def _split(column: pd.Series) -> pd.Series:
    """Values of a ``;``-separated column, indexed by record."""
    values = column.str.split(";").explode().dropna()
    return values[values != ""]


def _events(values: pd.Series, codes: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"record": values.index, "code": codes.to_numpy()})


# --- emergency visits -----------------------------------------------------------------------------


def _icd10_to_phecode(cut: pd.Series, read: Reader) -> pd.Series:
    """PheCodes of ICD-10-CM codes that were cut to four characters (``-`` padded).

    First rule that applies: the PheCode most common among the ICD-10-CM codes that begin with
    the four characters; the PheCode of the WHO code; both again for the first three characters.
    PheCodes that are equally common are decided for the shorter one, the parent.
    """
    cm = read("vocab/phecode/phecode_map.csv.gz", dtype=str)
    tables = [
        cm[cm["vocabulary_id"] == "ICD10CM"],
        read("vocab/phecode/phecode_map_icd10.csv.gz", dtype=str),
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


def _drugid_to_rxnorm(drugs: pd.Series, read: Reader) -> pd.Series:
    """RxNorm codes of drug ids, by the exact lower-case generic name; missing where none fits."""
    names = read("ehr/nchs/drugid_names.csv").set_index("DRUGID")
    return drugs.map(names["generic_name"].str.lower()).map(_rxnorm_names(read))


def _rxnorm_names(read: Reader) -> pd.Series:
    """Lower-case name -> RxNorm code; the code space of the known pairs comes first."""
    ours = read("gold/keser/dict_combine_uniform.csv.gz")
    ours = ours.assign(seen=ours["freq_single_RPDR"] + ours["freq_single_VA"])
    ours = ours.sort_values("seen", ascending=False, kind="stable")
    other = read("gold/keser/OurDict.csv.gz")
    rxnorm = read(
        "vocab/rxnorm_atc/RXNORM_bioportal.csv.gz", usecols=["Class ID", "Preferred Label"]
    )
    number = "RXNORM:" + rxnorm["Class ID"].str.rsplit("/", n=1).str[-1]
    names = [ours["feature_desc"], other["desc"], rxnorm["Preferred Label"]]
    table = pd.DataFrame(
        {
            "code": pd.concat([ours["feature_id"], other["code"], number]),
            "name": pd.concat(names).str.lower(),
        }
    )
    table = table[table["code"].str.startswith("RXNORM:")].dropna()
    return table.drop_duplicates("name").set_index("name")["code"]


# --- Medicare claims ------------------------------------------------------------------------------


def _read_claims(read: Reader) -> pd.DataFrame:
    """All claims of the samples, with the number of the sample."""
    wanted = ("DESYNPUF_ID", "CLM_ADMSN_DT", "ICD9_DGNS_CD_", "ICD9_PRCDR_CD_")
    samples = [
        read(
            f"ehr/desynpuf/DE1_0_2008_to_2010_Inpatient_Claims_Sample_{k}.csv.gz",
            usecols=lambda column: column.startswith(wanted),
            dtype=str,
        ).assign(sample=k)
        for k in SAMPLES
    ]
    return pd.concat(samples, ignore_index=True)


def _read_people(read: Reader) -> pd.DataFrame:
    """Beneficiaries: state, day of death, and the dementia flag of each year."""
    columns = ["DESYNPUF_ID", "BENE_DEATH_DT", "SP_STATE_CODE", DEMENTIA_FLAG]
    tables = [
        read(
            f"ehr/desynpuf/DE1_0_{year}_Beneficiary_Summary_File_Sample_{k}.csv.gz",
            usecols=columns,
            dtype=str,
        ).assign(year=year)
        for year in YEARS
        for k in SAMPLES
    ]
    rows = pd.concat(tables, ignore_index=True)
    people = rows.groupby("DESYNPUF_ID").agg(state=("SP_STATE_CODE", "first"))
    died = rows.dropna(subset="BENE_DEATH_DT").groupby("DESYNPUF_ID")["BENE_DEATH_DT"].min()
    people["death"] = pd.to_datetime(died, format="%Y%m%d").reindex(people.index)
    for year, table in rows.groupby("year"):
        flagged = table.loc[table[DEMENTIA_FLAG] == "1", "DESYNPUF_ID"]
        people[year] = people.index.isin(flagged)
    return people.assign(state="state-" + people["state"])


def _windows(claims: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """Record number of each claim, and the records: sample, patient, window, start, first year.

    Windows of WINDOW_DAYS days are counted for each beneficiary from the first admission.
    """
    admitted = pd.to_datetime(claims["CLM_ADMSN_DT"], format="%Y%m%d")
    first = admitted.groupby(claims["DESYNPUF_ID"]).transform("min")
    window = (admitted - first).dt.days // WINDOW_DAYS
    keys = pd.DataFrame(
        {
            "sample": "sample-" + claims["sample"].astype(str).str.zfill(2),
            "patient": claims["DESYNPUF_ID"],
            "window": window,
            "start": first + pd.to_timedelta(window * WINDOW_DAYS, unit="D"),
            "year": admitted.dt.year,
        }
    )
    record = keys.groupby(["sample", "patient", "window"]).ngroup()
    rows = keys.groupby(record)
    return record.to_numpy(), rows.first().assign(year=rows["year"].min())


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


def _icd9_to_phecode(read: Reader) -> pd.Series:
    """ICD-9-CM diagnosis without dot -> PheCode."""
    table = read("vocab/phecode/phecode_map.csv.gz", dtype=str)
    return _commonest_phecode(table[table["vocabulary_id"] == "ICD9CM"])


def _icd9_to_ccs(read: Reader) -> pd.Series:
    """ICD-9-CM procedure without dot -> CCS category."""
    table = read("vocab/ccs/icd9_procedure_to_ccs_prref_2015.csv", dtype=str)
    table = table.dropna(subset="ICD-9-CM CODE")
    return table.set_index(table["ICD-9-CM CODE"].str.strip())["CCS CATEGORY"].str.strip()


def _flagged(records: pd.DataFrame, people: pd.DataFrame) -> np.ndarray:
    """Whether the summary of a record's first year flags dementia."""
    flags = people[list(YEARS)].reindex(records["patient"]).to_numpy(dtype=bool)
    column = np.clip(records["year"].to_numpy() - YEARS[0], 0, len(YEARS) - 1)
    marked: np.ndarray = flags[np.arange(len(records)), column]
    return marked


def _survival(records: pd.DataFrame, people: pd.DataFrame) -> pd.DataFrame:
    """Days from each patient's first record with dementia to death or the end of 2010."""
    ill = records[records["ill"]].sort_values("start").drop_duplicates("patient")
    death = ill["patient"].map(people["death"])
    event = death.notna() & (death <= LAST_DAY)
    days = (death.where(event, LAST_DAY) - ill["start"]).dt.days.clip(lower=0)
    table = {"patient": ill["patient"], "site": ill["site"], "days": days, "event": event}
    return pd.DataFrame(table).sort_values("patient", ignore_index=True)
