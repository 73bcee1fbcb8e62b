"""Public data: labels, windows and survival by plain reading; what is missing is named."""

import csv
import gzip
from collections import defaultdict
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from benchmarks.problems import available, data_root
from daniel.data import public
from daniel.errors import InputError, ParameterError

needs_data = pytest.mark.skipif(
    not available(), reason="the data folder is absent (set DANIEL_DATA)"
)
SAMPLE = 3


@pytest.fixture(scope="module")
def visits():
    return public.read_visits(data_root(), flags=("chron_ALZHD",))


@pytest.fixture(scope="module")
def medicare():
    return public.read_medicare(data_root(), sites="state")


def rows(path):
    with gzip.open(data_root() / path, "rt", encoding="utf-8-sig") as file:
        yield from csv.DictReader(file)


def summaries(year, sample=SAMPLE):
    return rows(f"ehr/desynpuf/DE1_0_{year}_Beneficiary_Summary_File_Sample_{sample}.csv.gz")


def day(text):
    return datetime.strptime(text, "%Y%m%d")


@pytest.fixture(scope="module")
def admissions():
    """Days of admission of each beneficiary of one sample."""
    days = defaultdict(list)
    for row in rows(f"ehr/desynpuf/DE1_0_2008_to_2010_Inpatient_Claims_Sample_{SAMPLE}.csv.gz"):
        days[row["DESYNPUF_ID"]].append(day(row["CLM_ADMSN_DT"]))
    return days


@needs_data
def test_dementia_of_visits_is_the_survey_flag(visits):
    column = visits.matrix.Z[:, [visits.matrix.codes.index("FLAG:chron_ALZHD")]].toarray().ravel()
    np.testing.assert_array_equal(visits.labels["chron_ALZHD"], column == 1)
    in_file = sum(
        row["chron_ALZHD"] == "1" for row in rows("ehr/nchs/nhamcs_ed_2018_2019_2020.csv.gz")
    )
    assert 0.9 * in_file < visits.labels["chron_ALZHD"].sum() <= in_file
    assert len(visits.labels) == len(visits.sites) == visits.matrix.shape[0]
    assert len(set(visits.sites)) == 12
    assert visits.survival is None


@needs_data
def test_windows_of_medicare_by_hand(medicare, admissions):
    """Every record of a sample's beneficiaries is a half-year with an admission."""
    found = defaultdict(set)
    for patient, window in zip(medicare.matrix.patients, medicare.matrix.windows, strict=True):
        found[patient].add(int(window))
    here = [patient for patient in admissions if patient in found]
    assert len(here) > 1_500
    for patient in here:
        first = min(admissions[patient])
        by_hand = {(d - first).days // 183 for d in admissions[patient]}
        assert found[patient] <= by_hand


@needs_data
def test_flag_of_medicare_is_that_of_the_records_first_year(medicare, admissions):
    flagged = {
        (row["DESYNPUF_ID"], year)
        for year in (2008, 2009, 2010)
        for row in summaries(year)
        if row["SP_ALZHDMTA"] == "1"
    }
    matrix, checked = medicare.matrix, 0
    labels = medicare.labels["SP_ALZHDMTA"].to_numpy()
    for patient, window, label in zip(matrix.patients, matrix.windows, labels, strict=True):
        if patient not in admissions:
            continue
        days = admissions[patient]
        inside = [d for d in days if (d - min(days)).days // 183 == window]
        year = max(min(inside).year, 2008)
        assert label == ((patient, year) in flagged)
        checked += 1
    assert checked > 3_000


@needs_data
def test_dementia_code_is_the_column(medicare):
    column = medicare.matrix.Z[:, [medicare.matrix.codes.index("PheCode:290.1")]]
    np.testing.assert_array_equal(medicare.labels["PheCode:290.1"], column.toarray().ravel() == 1)


@needs_data
def test_survival_by_hand(medicare, admissions):
    deaths = {}
    for year in (2008, 2009, 2010):
        for row in summaries(year):
            if row["BENE_DEATH_DT"]:
                deaths[row["DESYNPUF_ID"]] = day(row["BENE_DEATH_DT"])
    ill = medicare.labels["PheCode:290.1"].to_numpy()
    first_ill = {}
    who, window = medicare.matrix.patients[ill], medicare.matrix.windows[ill]
    for patient, k in zip(who, window, strict=True):
        first_ill[patient] = min(int(k), first_ill.get(patient, int(k)))
    assert set(medicare.survival["patient"]) == set(first_ill)
    checked = 0
    for row in medicare.survival.itertuples():
        if row.patient not in admissions:
            continue
        start = min(admissions[row.patient]) + timedelta(days=183 * first_ill[row.patient])
        end = deaths.get(row.patient, datetime(2010, 12, 31))
        assert row.event == (row.patient in deaths)
        assert row.days == max(0, (end - start).days)
        checked += 1
    assert checked > 100


@needs_data
def test_states_are_sites(medicare):
    states = {row["DESYNPUF_ID"]: f"state-{row['SP_STATE_CODE']}" for row in summaries(2008)}
    pairs = zip(medicare.matrix.patients, medicare.sites, strict=True)
    here = [(states[patient], site) for patient, site in pairs if patient in states]
    assert len(here) > 3_000
    assert all(a == b for a, b in here)
    assert len(set(medicare.sites)) > 40


# --- what is missing is named ---------------------------------------------------------------------


def test_a_missing_file_is_named_with_its_folder(tmp_path):
    with pytest.raises(InputError, match=r"no ehr/nchs/.*csv\.gz in the data folder .*DANIEL_DATA"):
        public.read_visits(tmp_path)
    with pytest.raises(InputError, match=r"Inpatient_Claims_Sample_1\.csv\.gz"):
        public.read_medicare(tmp_path)
    with pytest.raises(InputError, match=r"gold/keser/known_pairs\.csv\.gz"):
        public.known_pairs(["CCS:1"], tmp_path)


def test_without_a_folder_the_setting_is_named(monkeypatch):
    monkeypatch.delenv("DANIEL_DATA", raising=False)
    with pytest.raises(InputError, match="DANIEL_DATA is not set"):
        public.read_visits()


def test_the_setting_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("DANIEL_DATA", str(tmp_path))
    with pytest.raises(InputError, match=tmp_path.name):
        public.read_visits()


def test_another_edition_is_noticed(tmp_path):
    folder = tmp_path / "ehr" / "nchs"
    folder.mkdir(parents=True)
    table = pd.DataFrame({"year": ["2018"], "region": ["1"]})
    table.to_csv(folder / "nhamcs_ed_2018_2019_2020.csv.gz", index=False)
    with pytest.raises(InputError, match="has no column 'icd10_4char', 'drugid'"):
        public.read_visits(tmp_path)


def test_unknown_sites_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="'sample' or 'state'"):
        public.read_medicare(tmp_path, sites="planet")


@needs_data
def test_too_high_a_floor_is_one_sentence():
    with pytest.raises(InputError, match="lower min_records"):
        public.read_visits(data_root(), 10**6)
