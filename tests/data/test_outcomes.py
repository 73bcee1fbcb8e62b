"""Survival tables of a site's patients, against plain pandas and dates counted by hand."""

import numpy as np
import pandas as pd
import pytest
from dateutil.relativedelta import relativedelta

from daniel.data import read_site
from daniel.data.outcomes import read_outcome
from daniel.data.prepare import prepare
from daniel.errors import FormatError, InputError, ParameterError
from daniel.study import Codes, Omop, Study, Window

TARGET, OUTCOME = "PheCode:290.1", "NURSING_HOME_ADMISSION"
STUDY = Study(codes=Codes(names=(TARGET, "PheCode:401", "CCS:47")))


def made_up(seed=0, n=80):
    """Patients with the target at times, an outcome before, after or never, and other codes."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(n):
        first = pd.Timestamp("2012-08-31") + pd.Timedelta(days=int(rng.integers(0, 400)))
        days = np.sort(rng.integers(0, 2500, rng.integers(3, 15)))
        days[0] = 0
        codes = rng.choice([TARGET, "PheCode:401", "CCS:47"], days.size, p=[0.3, 0.4, 0.3])
        dates = [first + pd.Timedelta(days=int(d)) for d in days]
        rows += [(f"p{patient}", date, c) for date, c in zip(dates, codes, strict=True)]
        for _ in range(rng.integers(0, 3)):
            after = int(rng.integers(0, 2600))
            rows.append((f"p{patient}", first + pd.Timedelta(days=after), OUTCOME))
    return pd.DataFrame(rows, columns=["patient", "time", "code"])


def by_hand(events, months=6, landmark=False):
    """{patient: (days, event)}, patient by patient, with relativedelta."""
    table = {}
    for patient, own in events.groupby("patient"):
        dates = own["time"].dt.date
        target = dates[own["code"] == TARGET]
        if target.empty:
            continue
        first, k = dates.min(), 0
        while first + relativedelta(months=months * (k + 1)) <= target.min():
            k += 1
        zero = first + relativedelta(months=months * (k + landmark))
        outcome = dates[own["code"] == OUTCOME]
        end = dates.max() if outcome.empty else outcome.min()
        days = (end - zero).days
        if days > 0 or (days == 0 and len(outcome)):
            table[patient] = (max(days, 0.5), int(len(outcome) > 0))
    return table


def with_ids(site, table):
    """{source's id: (time, event)} of a survival table."""
    own = pd.read_parquet(site / "patients.parquet").set_index("pseudonym")["patient"]
    rows = table.itertuples(index=False)
    return {own[patient]: (time, event) for patient, time, event in rows}


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outcomes")
    events = made_up()
    events.to_csv(folder / "events.csv", index=False)
    prepare(folder / "events.csv", STUDY, "north", folder / "site", random_state=0)
    return folder, events


@pytest.mark.parametrize("landmark", [False, True])
def test_a_code_of_flat_events(flat, landmark):
    folder, events = flat
    found = read_outcome(
        folder / "site", folder / "events.csv", target=TARGET, code=OUTCOME, landmark=landmark
    )
    expected = by_hand(events, landmark=landmark)
    assert with_ids(folder / "site", found) == expected
    assert 10 < found["event"].sum() < len(found)
    assert len(expected) < events["patient"].nunique()  # some have no target, some come too late
    assert (found["time"] > 0).all() and found["patient"].is_unique
    assert set(found["patient"]) <= set(read_site(folder / "site").patients)
    assert not list((folder / "site").glob(".work*"))


@pytest.mark.parametrize("ids", ["others", "the same"])
def test_a_source_of_other_patients_is_refused(flat, tmp_path, ids):
    """Sources that were swapped; patients are often numbered alike everywhere."""
    other = made_up(seed=1)
    if ids == "others":
        other["patient"] = "x" + other["patient"]
    other.to_csv(tmp_path / "south.csv", index=False)
    with pytest.raises(InputError, match=r"The patients of south.csv are not those of the site"):
        read_outcome(flat[0] / "site", tmp_path / "south.csv", target=TARGET, code=OUTCOME)


def test_a_later_state_of_the_source_is_no_other_source(flat, tmp_path):
    folder, events = flat
    later = events.assign(time=events["time"] + pd.Timedelta(days=3000))
    pd.concat([events, later]).to_csv(tmp_path / "later.csv", index=False)
    found = read_outcome(folder / "site", tmp_path / "later.csv", target=TARGET, code=OUTCOME)
    assert found["event"].sum() > 10


def test_a_site_may_have_nobody_with_the_outcome(flat):
    folder, events = flat
    found = read_outcome(folder / "site", folder / "events.csv", target=TARGET, code="NEVER")
    never = by_hand(events.replace({"code": {OUTCOME: "CCS:47"}}))
    assert with_ids(folder / "site", found) == never and not found["event"].any()


def test_a_meds_folder_with_deaths(flat, tmp_path):
    _, events = flat
    events = events.assign(subject_id=events["patient"].str[1:].astype(int)).drop(columns="patient")
    last = events.groupby("subject_id")["time"].max() + pd.Timedelta(days=90)
    died = last.iloc[::3].reset_index().assign(code="MEDS_DEATH")
    source = tmp_path / "meds"
    (source / "data").mkdir(parents=True)
    pd.concat([events, died]).to_parquet(source / "data" / "0.parquet", index=False)
    prepare(source, STUDY, "north", tmp_path / "site", random_state=0)
    by_patient = events.rename(columns={"subject_id": "patient"})
    both = pd.concat([by_patient, died.rename(columns={"subject_id": "patient"})])
    both["patient"] = both["patient"].astype(str)
    found = read_outcome(tmp_path / "site", source, target=TARGET, code=OUTCOME)
    assert with_ids(tmp_path / "site", found) == by_hand(both)  # death is the last that is seen
    found = read_outcome(tmp_path / "site", source, target=TARGET, code="death")
    as_outcome = both.assign(
        code=both["code"].replace({OUTCOME: "CCS:47"}).replace({"MEDS_DEATH": OUTCOME})
    )
    assert with_ids(tmp_path / "site", found) == by_hand(as_outcome)
    assert found["event"].sum() > 10


def test_calendar_windows_start_in_january_and_july(tmp_path):
    rows = [("a", "2020-03-05", "CCS:47"), ("a", "2021-02-20", TARGET), ("a", "2022-01-11", "X")]
    frame = pd.DataFrame(rows, columns=["patient", "time", "code"])
    frame.to_csv(tmp_path / "events.csv", index=False)
    study = Study(codes=STUDY.codes, window=Window(months=6, start="calendar"))
    prepare(tmp_path / "events.csv", study, "north", tmp_path / "site")
    found = read_outcome(tmp_path / "site", tmp_path / "events.csv", target=TARGET, code="X")
    assert found[["time", "event"]].to_numpy().tolist() == [[375.0, 1.0]]  # 1 January 2021 on


@pytest.mark.parametrize("written", ["ICD10CM:Z59.3", "ICD10CM//Z59.3", "icd10cm:z59.3"])
def test_omop_conditions_can_be_outcomes(tmp_path, written):
    tables = tmp_path / "omop"
    tables.mkdir()
    concepts = [(1, "PheCode", "290.1"), (2, "ICD10CM", "Z59.3")]
    pd.DataFrame(concepts, columns=["concept_id", "vocabulary_id", "concept_code"]).assign(
        concept_name="n", concept_class_id="c"
    ).to_csv(tables / "concept.csv", index=False)
    rows = [(7, 1, "2020-01-10"), (7, 2, "2021-01-09"), (8, 1, "2020-02-01"), (8, 1, "2020-05-01")]
    columns = ["person_id", "condition_concept_id", "condition_start_date"]
    pd.DataFrame(rows, columns=columns).to_csv(tables / "condition_occurrence.csv", index=False)
    study = Study(codes=Codes(names=(TARGET,)), omop=Omop(procedure="no", drug="no"))
    prepare(tables, study, "north", tmp_path / "site")
    found = read_outcome(tmp_path / "site", tables, target=TARGET, code=written)
    assert with_ids(tmp_path / "site", found) == {"7": (365.0, 1), "8": (90.0, 0)}


@pytest.mark.parametrize("name", ["outcome.csv", "outcome.tsv", "outcome.parquet"])
def test_a_file_of_times(flat, tmp_path, name):
    folder, _ = flat
    table = pd.DataFrame({"patient": ["p3", "p1"], "time": [12.5, 400], "event": [1, 0]})
    if name.endswith("parquet"):
        table.to_parquet(tmp_path / name, index=False)
    else:
        table.to_csv(tmp_path / name, index=False, sep="\t" if name.endswith("tsv") else ",")
    found = read_outcome(folder / "site", tmp_path / name)
    assert with_ids(folder / "site", found) == {"p3": (12.5, 1), "p1": (400.0, 0)}
    assert found.dtypes.astype(str).tolist() == ["int64", "float64", "int64"]


@pytest.mark.parametrize("target", [None, TARGET])
def test_a_file_of_another_site_is_refused(flat, tmp_path, target):
    """Its patients are numbered alike; a tenth of the rows may be of others."""
    folder, events = flat
    known = events["patient"] if target is None else events["patient"][events["code"] == TARGET]
    others = ["x1", "x2"] if target is None else sorted({*events["patient"]} - {*known})[:1]
    ids = [*dict.fromkeys(known)][: 9 * len(others)]
    for patients, refused in ((ids + others, False), (ids[1:] + others, True)):
        table = pd.DataFrame({"patient": patients, "time": 5.0, "event": 1})
        table.to_csv(tmp_path / "south.csv", index=False)
        if not refused:
            found = read_outcome(folder / "site", tmp_path / "south.csv", target=target)
            assert set(ids) <= set(with_ids(folder / "site", found))
            continue
        with pytest.raises(InputError) as error:
            read_outcome(folder / "site", tmp_path / "south.csv", target=target)
        text = str(error.value)
        assert text.startswith("south.csv is not of this site (north): more than a tenth of its")
        assert (f"no record with {TARGET}" in text) == (target is not None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("patient,time\np1,3\n", "no column event"),
        ("patient,time,event\nzz,3,1\n", "No patient of outcome.csv"),
        ("patient,time,event\np1,soon,1\n", "days as `time`"),
        ("patient,time,event\np1,3,2\n", "0 or 1 as `event`"),
    ],
)
def test_wrong_files_are_one_sentence(flat, tmp_path, content, says):
    (tmp_path / "outcome.csv").write_text(content)
    with pytest.raises(InputError, match=says) as error:
        read_outcome(flat[0] / "site", tmp_path / "outcome.csv")
    assert "p1" not in str(error.value) and "zz" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"code": OUTCOME, "target": "PheCode:1"}, InputError, "no code 'PheCode:1'"),
        ({"code": OUTCOME}, ParameterError, "needs a target"),
        ({"code": "death", "target": TARGET}, InputError, "knows no deaths"),
    ],
)
def test_wrong_codes_are_one_sentence(flat, options, error, says):
    folder, _ = flat
    with pytest.raises(error, match=says):
        read_outcome(folder / "site", folder / "events.csv", **options)


def test_missing_places_are_named(flat, tmp_path):
    folder, _ = flat
    with pytest.raises(InputError, match="no outcome file"):
        read_outcome(folder / "site", tmp_path / "none.csv")
    with pytest.raises(FormatError, match="no site folder"):
        read_outcome(tmp_path, folder / "events.csv")
