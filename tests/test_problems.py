"""The benchmark problems: shapes, and counts of single codes by plain reading of the files."""

import csv
import gzip
from collections import Counter, defaultdict
from datetime import datetime

import numpy as np
import pytest

from benchmarks import problems

needs_data = pytest.mark.skipif(
    not problems.available(), reason="the data folder is absent (set DANIEL_DATA)"
)


@pytest.fixture(scope="module")
def visits():
    return problems.load("visits")


@pytest.fixture(scope="module")
def medicare():
    return problems.load("medicare")


def rows(path):
    path = problems.data_root() / path
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig") as file:
        yield from csv.DictReader(file)


def count(problem, code):
    return int(problem.Z[:, problem.codes.index(code)].sum())


def check(problem, n_sites):
    n, p = problem.Z.shape
    assert problem.Z.dtype == np.float32
    assert (problem.Z.data == 1).all()
    assert problem.Z.has_canonical_format
    assert len(problem.codes) == len(set(problem.codes)) == p
    assert len(problem.sites) == n
    assert len(set(problem.sites)) == n_sites
    assert problem.Z.sum(axis=0).min() >= problems.MIN_RECORDS[problem.name]
    assert problem.Z.sum(axis=1).min() >= 1
    pairs = problem.pairs
    assert set(pairs["code1"]) | set(pairs["code2"]) <= set(problem.codes)
    assert (pairs["code1"] < pairs["code2"]).all()
    assert not pairs.duplicated().any()
    assert pairs["relation"].value_counts().min() >= problems.MIN_PAIRS


@needs_data
def test_visits(visits):
    check(visits, 12)
    assert visits.patients is None
    assert {code.partition(":")[0] for code in visits.codes} == {"PheCode", "RXNORM"}
    assert set(visits.pairs["relation"]) == {
        "PheCode similar",
        "RxNorm similar",
        "PheCode-PheCode",
        "PheCode-RxNorm",
    }
    assert 53_000 < visits.Z.shape[0] < 54_632
    assert 750 < visits.Z.shape[1] < 900


@needs_data
def test_medicare(medicare):
    check(medicare, 10)
    assert len(medicare.patients) == medicare.Z.shape[0]
    assert len(set(medicare.patients)) < medicare.Z.shape[0]  # some have several windows
    assert {code.partition(":")[0] for code in medicare.codes} == {"PheCode", "CCS"}
    assert set(medicare.pairs["relation"]) == {"PheCode similar", "PheCode-PheCode", "PheCode-CCS"}
    sites_of = defaultdict(set)
    for patient, site in zip(medicare.patients, medicare.sites, strict=True):
        sites_of[patient].add(site)
    assert all(len(sites) == 1 for sites in sites_of.values())


@needs_data
def test_visits_drug_count_by_hand(visits):
    names = {
        row["DRUGID"]: row["generic_name"].lower() for row in rows("ehr/nchs/drugid_names.csv")
    }
    ketorolac = {drug for drug, name in names.items() if name == "ketorolac"}
    (code,) = {
        row["feature_id"]
        for row in rows("gold/keser/dict_combine_uniform.csv.gz")
        if row["feature_desc"].lower() == "ketorolac" and row["feature_id"].startswith("RXNORM")
    }
    by_hand = sum(
        bool(ketorolac & set(row["drugid"].split(";")))
        for row in rows("ehr/nchs/nhamcs_ed_2018_2019_2020.csv.gz")
    )
    assert by_hand > 1000
    assert count(visits, code) == by_hand


@needs_data
def test_visits_diagnosis_count_by_hand(visits):
    """Atrial fibrillation, 427.21: I48 with a fourth character, so cut codes need the majority."""
    below = defaultdict(Counter)
    for row in rows("vocab/phecode/phecode_map.csv.gz"):
        if row["vocabulary_id"] == "ICD10CM":
            below[row["code"].replace(".", "")[:4]][row["phecode"]] += 1
    chosen = {
        stem
        for stem, phecodes in below.items()
        if min(phecodes, key=lambda c: (-phecodes[c], len(c), c)) == "427.21"
    }
    assert "I489" in chosen
    by_hand = {site: 0 for site in set(visits.sites)}
    for row in rows("ehr/nchs/nhamcs_ed_2018_2019_2020.csv.gz"):
        stems = {code.rstrip("-") for code in row["icd10_4char"].split(";")}
        by_hand[f"{problems.REGIONS[row['region']]}-{row['year']}"] += bool(stems & chosen)
    column = visits.Z[:, visits.codes.index("PheCode:427.21")].toarray().ravel()
    assert sum(by_hand.values()) > 300
    assert {site: column[visits.sites == site].sum() for site in by_hand} == by_hand


@needs_data
def test_medicare_procedure_count_by_hand(medicare):
    """Knee replacement, CCS 152, in distinct six-month windows of beneficiaries."""
    knee = {
        row["ICD-9-CM CODE"].strip()
        for row in rows("vocab/ccs/icd9_procedure_to_ccs_prref_2015.csv")
        if row["CCS CATEGORY"].strip() == "152"
    }
    first, hits = {}, []
    diagnoses, procedures = Counter(), Counter()
    for sample in range(1, 11):
        for row in rows(f"ehr/desynpuf/DE1_0_2008_to_2010_Inpatient_Claims_Sample_{sample}.csv.gz"):
            who = row["DESYNPUF_ID"]
            day = datetime.strptime(row["CLM_ADMSN_DT"], "%Y%m%d")
            first[who] = min(day, first.get(who, day))
            diagnoses.update(row[f"ICD9_DGNS_CD_{k}"] for k in range(1, 11))
            values = [row[f"ICD9_PRCDR_CD_{k}"] for k in range(1, 7)]
            procedures.update(values)
            hits += [(who, day, value) for value in values if value in knee]
    windows = {
        (who, (day - first[who]).days // 183)
        for who, day, value in hits
        if procedures[value] > diagnoses[value]
    }
    assert len(windows) > 1000
    assert count(medicare, "CCS:152") == len(windows)


@needs_data
def test_diagnoses_in_procedure_fields_are_not_procedures(medicare):
    """401.9, hypertension, often stands in a procedure field; 40.19 would be CCS 67."""
    assert count(medicare, "PheCode:401.1") > 10_000
    assert count(medicare, "CCS:67") < 500


@needs_data
def test_flags_add_columns_and_leave_the_rows(visits):
    flagged = problems.load("visits", flags=("chron_ALZHD",))
    assert flagged.codes == ["FLAG:chron_ALZHD", *visits.codes]
    assert (flagged.Z[:, 1:] != visits.Z).nnz == 0
    in_file = sum(
        row["chron_ALZHD"] == "1" for row in rows("ehr/nchs/nhamcs_ed_2018_2019_2020.csv.gz")
    )
    assert 0.9 * in_file < count(flagged, "FLAG:chron_ALZHD") <= in_file


@needs_data
def test_min_records_keeps_the_common_codes(visits):
    fewer = problems.load("visits", min_records=200)
    frequent = visits.Z.sum(axis=0).A1 >= 200
    assert fewer.codes == [c for c, keep in zip(visits.codes, frequent, strict=True) if keep]


def test_wrong_requests_are_named(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="expected one of"):
        problems.load("genomes")
    with pytest.raises(ValueError, match="Only 'visits' has flags"):
        problems.load("medicare", flags=("chron_ALZHD",))
    monkeypatch.setenv("DANIEL_DATA", str(tmp_path))
    assert not problems.available()
    with pytest.raises(FileNotFoundError, match="DANIEL_DATA"):
        problems.load("visits")
