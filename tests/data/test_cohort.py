"""`daniel cohort`: files, plans, hazards and bad input, checked by plain pandas."""

import errno
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from benchmarks import prepare as benchmark
from daniel.cli import app
from daniel.data.cohort import Options, files, make, make_cohort, plan, read_options
from daniel.data.cohort.codes import make_codebook
from daniel.data.cohort.patients import MAX_WINDOWS, make_histories
from daniel.data.cohort.truth import LAWS, known_pairs, make_truth, prevalences
from daniel.errors import InputError, ParameterError

SMALL = Options((300, 200), (2_400, 1_600), (75, 10, 35), 4.0, seed=3)
ADMISSION, DEATH, DEMENTIA = "NURSING_HOME_ADMISSION", "MEDS_DEATH", "PheCode:290.1"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort") / "small"
    return folder, make_cohort(SMALL, folder, workers=2)


@pytest.fixture(scope="module")
def events(cohort):
    return {k: read_events(cohort[0], k) for k in (1, 2)}


@pytest.fixture(scope="module")
def patients(cohort):
    return pd.read_parquet(cohort[0] / "truth" / "patients.parquet").set_index("subject_id")


def read_events(folder, hospital):
    shards = sorted((folder / f"hospital-{hospital}" / "data").glob("*.parquet"))
    return pd.concat([pd.read_parquet(shard) for shard in shards], ignore_index=True)


def cells(events, window_of):
    """Distinct (subject, window, code) of the codes of the study."""
    events = events[events["code"].str.contains(":")]
    first = events.groupby("subject_id")["time"].transform("min")
    table = events.assign(window=window_of(events["time"].dt.normalize(), first.dt.normalize()))
    return table[["subject_id", "window", "code"]].drop_duplicates()


def months(time, first):
    """Six calendar months from the first event, as pandas adds months."""
    window = pd.Series(0, index=time.index)
    for k in range(1, MAX_WINDOWS + 1):
        window += time >= first + pd.DateOffset(months=6 * k)
    return window


WINDOWS = {
    "months": months,
    "182 days": lambda time, first: (time - first).dt.days // 182,
    "183 days": lambda time, first: (time - first).dt.days // 183,
}


# --- files ----------------------------------------------------------------------------------------


def test_data_have_the_meds_schema(cohort):
    folder, _ = cohort
    for path in folder.glob("hospital-*/data/*.parquet"):
        schema = pq.read_schema(path)
        assert schema.names == ["subject_id", "time", "code", "numeric_value"]
        types = [pa.int64(), pa.timestamp("us"), pa.string(), pa.float32()]
        assert schema.types == types
    schema = pq.read_schema(folder / "hospital-1" / "metadata" / "codes.parquet")
    assert schema.names == ["code", "description", "parent_codes"]
    assert schema.types == [pa.string(), pa.string(), pa.list_(pa.string())]
    about = json.loads((folder / "hospital-1" / "metadata" / "dataset.json").read_text())
    assert about["etl_name"] == "daniel cohort"
    assert all(isinstance(value, str) for value in about.values())


def test_every_code_is_described_and_parents_come_from_the_name(cohort, events):
    about = pd.read_parquet(cohort[0] / "hospital-1" / "metadata" / "codes.parquet")
    about = about.set_index("code")
    assert set(events[1]["code"]) | set(events[2]["code"]) <= set(about.index)
    assert list(about.loc["PheCode:290.1", "parent_codes"]) == ["PheCode:290"]
    assert list(about.loc["PheCode:290", "parent_codes"]) == []
    drugs = about[about.index.str.startswith("RXNORM:")]
    assert drugs["parent_codes"].map(lambda p: p[0].startswith("ATC:Z")).all()


def test_a_patient_is_in_one_place_and_in_order(events):
    for table in events.values():
        changes = (table["subject_id"].diff() != 0).sum()
        assert changes == table["subject_id"].nunique()
        assert (table.groupby("subject_id")["time"].diff().dropna() >= pd.Timedelta(0)).all()
        assert table["time"].min() >= pd.Timestamp("2011-01-01")
        assert table["time"].max() < pd.Timestamp("2022-01-01")
    assert not set(events[1]["subject_id"]) & set(events[2]["subject_id"])


@pytest.mark.parametrize("rule", WINDOWS)
def test_windows_find_the_intended_records(cohort, events, rule):
    for k, found in enumerate(cohort[1]["hospitals"]):
        table = cells(events[k + 1], WINDOWS[rule])
        records = table[["subject_id", "window"]].drop_duplicates()
        assert len(records) == SMALL.records[k] == found["records"]
        assert records["subject_id"].nunique() == SMALL.patients[k] == found["patients"]
        assert len(table) == found["codes_in_records"]
        assert found["events"] == len(events[k + 1])


def test_records_hold_about_the_codes_asked_for(cohort):
    for found in cohort[1]["hospitals"]:
        mean = found["codes_in_records"] / found["records"]
        assert mean == pytest.approx(SMALL.codes_per_record, rel=0.2)


def test_prevalences_are_those_of_the_truth(cohort, events):
    """Common codes are as common as the law aims at, but for dementia and its signs."""
    folder, _ = cohort
    truth = load_file(folder / "truth" / "embedding.safetensors")
    codes = pd.read_csv(folder / "truth" / "codes.tsv", sep="\t", keep_default_na=False)
    care = pd.read_parquet(folder / "truth" / "patients.parquet")
    records = care.groupby(["hospital", "care"])["records"].sum()
    for k in (1, 2):
        weights = records[f"hospital-{k}"].reindex(range(6), fill_value=0)
        aimed = np.average(truth["prevalence"][k - 1], axis=0, weights=weights)
        table = cells(events[k], WINDOWS["months"])
        seen = table["code"].value_counts().reindex(codes["code"], fill_value=0)
        share = seen.to_numpy() / SMALL.records[k - 1]
        common = (aimed > 0.03) & (codes["group"] > 0).to_numpy() & (truth["lift"] == 0)
        assert common.sum() > 20
        error = np.log(share[common] / aimed[common])
        assert np.abs(error.mean()) < 0.1
        assert error.std() < 0.25


def test_signs_of_dementia_are_more_frequent_after_onset(cohort, events, patients):
    folder, _ = cohort
    codes = pd.read_csv(folder / "truth" / "codes.tsv", sep="\t", keep_default_na=False)["code"]
    lift = load_file(folder / "truth" / "embedding.safetensors")["lift"]
    assert 0 < (lift > 0).sum() <= 28
    table = cells(events[1], WINDOWS["months"])
    onset = table["subject_id"].map(patients["onset_window"])
    later, earlier = table[table["window"] > onset], table[onset.isna()]

    def share(part):
        records = part[["subject_id", "window"]].drop_duplicates().shape[0]
        return part["code"].value_counts().reindex(codes, fill_value=0).to_numpy() / records

    ratio = (share(later) + 1e-3) / (share(earlier) + 1e-3)
    assert np.median(ratio[lift > 0]) > 2
    assert 0.7 < np.median(ratio[lift == 0]) < 1.5


def test_the_law_is_written_in_the_papers_coordinates(cohort):
    truth = load_file(cohort[0] / "truth" / "embedding.safetensors")
    p, d = truth["U"].shape
    assert truth["intercept"].shape == truth["prevalence"].shape == (2, 6, p)
    made = make_truth(*SMALL.codes, SMALL.codes_per_record, SMALL.seed)
    np.testing.assert_allclose(truth["U"], made.couplings.W.toarray() / 2, rtol=1e-6)
    assert d == made.book.n_families
    assert all(np.isfinite(values).all() for values in truth.values())


def test_pairs_are_planted_couplings(cohort):
    folder, _ = cohort
    U = load_file(folder / "truth" / "embedding.safetensors")["U"]
    codes = pd.read_csv(folder / "truth" / "codes.tsv", sep="\t", keep_default_na=False)
    place = {code: j for j, code in enumerate(codes["code"])}
    pairs = pd.read_csv(folder / "truth" / "pairs.tsv", sep="\t")
    assert not pairs.duplicated(["code1", "code2"]).any()
    i, j = pairs["code1"].map(place), pairs["code2"].map(place)
    assert (i < j).all()
    np.testing.assert_allclose((U @ U.T)[i, j], pairs["coupling"], atol=2e-5)
    same = codes["group"].to_numpy()[i] == codes["group"].to_numpy()[j]
    assert (same == pairs["relation"].str.endswith("similar")).all()
    assert set(pairs["relation"]) == {
        "PheCode similar",
        "RxNorm similar",
        "PheCode-PheCode",
        "PheCode-RxNorm",
        "PheCode-CCS",
    }


def test_unlisted_pairs_are_not_coupled_across_families():
    """A diagnosis and a drug that no condition lists together have θ = 0."""
    truth = make_truth(150, 20, 80, 6.0, seed=1)
    theta = truth.couplings.U @ truth.couplings.U.T
    together = (truth.listed.astype(int) @ truth.listed.T.astype(int)) > 0
    assert (theta[~together] == 0).all()
    pairs = known_pairs(truth)
    related = pairs[~pairs["relation"].str.endswith("similar")]
    assert 0.02 < (related["coupling"] == 0).mean() < 0.5  # some listed links are empty


# --- reproducibility ------------------------------------------------------------------------------


def digest(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(cohort, tmp_path):
    make_cohort(SMALL, tmp_path / "again", workers=1)
    assert digest(tmp_path / "again") == digest(cohort[0])


def test_shards_do_not_matter(cohort, events, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SHARD", 1)
    monkeypatch.setattr(make, "AHEAD", 1)
    make_cohort(SMALL, tmp_path / "shards", workers=3)
    assert len(list((tmp_path / "shards" / "hospital-1" / "data").iterdir())) == 2
    pd.testing.assert_frame_equal(read_events(tmp_path / "shards", 1), events[1])


def test_a_hospital_does_not_depend_on_those_beside_it(events, tmp_path):
    alone = Options((300,), (2_400,), SMALL.codes, 4.0, seed=3)
    make_cohort(alone, tmp_path / "alone")
    pd.testing.assert_frame_equal(read_events(tmp_path / "alone", 1), events[1])


def test_another_seed_gives_another_cohort():
    first, second = (make_truth(*SMALL.codes, 4.0, seed) for seed in (0, 1))
    assert first.couplings.W.shape != second.couplings.W.shape or (
        (first.couplings.W != second.couplings.W).nnz > 0
    )


# --- plans ----------------------------------------------------------------------------------------


def test_the_paper_plan_has_the_published_numbers():
    options = read_options(paper=True)
    histories = plan(options)
    assert [h.counts.size for h in histories] == [28_955, 29_293]
    assert [h.counts.sum() for h in histories] == [400_904, 505_626]
    assert all(h.counts.min() >= 1 and h.counts.max() <= 22 for h in histories)
    assert options.codes == (1_339, 175, 628)
    book = make_codebook(*options.codes, np.random.default_rng(0))
    assert len(set(book.names)) == 2_142
    assert DEMENTIA in book.names


@pytest.mark.parametrize(("patients", "records"), [(50, 50), (50, 1_100), (1, 7), (97, 1_000)])
def test_records_of_patients_add_up(patients, records):
    counts = make_histories(patients, records, 0, 1, pure=False).counts
    assert counts.size == patients
    assert counts.sum() == records
    assert counts.min() >= 1 and counts.max() <= MAX_WINDOWS


def test_prevalences_sum_to_the_codes_of_a_record():
    rates = LAWS["PheCode"].quantiles(500)
    assert (np.diff(rates) > 0).all()
    for codes_per_record in (2.0, 12.0, 60.0):
        mu = prevalences(rates, codes_per_record)
        assert mu.sum() == pytest.approx(codes_per_record, rel=1e-6)
        assert mu.max() <= 0.7


def test_events_are_as_many_as_asked_for(tmp_path):
    options = Options((40, 60), (200, 300), SMALL.codes, 4.0, events=12_345, seed=1)
    make_cohort(options, tmp_path / "many")
    codes = pd.concat([read_events(tmp_path / "many", k)["code"] for k in (1, 2)])
    assert codes.str.contains(":").sum() == 12_345


# --- dementia, admission, death -------------------------------------------------------------------


def test_truth_of_patients_is_what_the_events_say(events, patients):
    table = pd.concat(events.values())
    first = {
        code: table[table["code"] == code].groupby("subject_id")["time"].min()
        for code in (DEMENTIA, ADMISSION, DEATH)
    }
    for code, column in ((DEMENTIA, "onset"), (ADMISSION, "admission"), (DEATH, "death")):
        told = patients[f"{column}_time"]
        pd.testing.assert_series_equal(
            told.dropna().sort_index(), first[code].sort_index(), check_names=False
        )
    assert (table["code"] == ADMISSION).sum() == patients["admitted"].sum()
    counts = table[table["code"].str.contains(":")].groupby("subject_id").size()
    assert set(counts.index) == set(patients.index)


def test_admission_follows_onset_and_death_comes_last(events, patients):
    table = pd.concat(events.values())
    last = table[table["code"] != DEATH].groupby("subject_id")["time"].max()
    admitted = patients[patients["admitted"]]
    assert len(admitted) > 20
    assert (admitted["admission_time"] > admitted["onset_time"]).all()
    waited = (admitted["admission_time"] - admitted["onset_time"]) / pd.Timedelta(days=365.25)
    np.testing.assert_allclose(waited, admitted["years"], atol=1e-5)
    dead = patients["death_time"].dropna()
    assert (dead > last[dead.index]).all()
    assert patients.loc[patients["onset_time"].isna(), "years"].isna().all()


def test_dementia_is_frequent_after_onset_and_absent_before(events, patients):
    table = pd.concat([cells(e, WINDOWS["months"]) for e in events.values()])
    ill = set(map(tuple, table.loc[table["code"] == DEMENTIA, ["subject_id", "window"]].to_numpy()))
    records = table[["subject_id", "window"]].drop_duplicates()
    onset = records["subject_id"].map(patients["onset_window"])
    has = pd.Series([tuple(row) in ill for row in records.to_numpy()], index=records.index)
    assert not has[onset.isna() | (records["window"] < onset)].any()
    assert has[records["window"] == onset].all()
    assert 0.5 < has[records["window"] > onset].mean() < 0.9


@pytest.fixture(scope="module", params=[False, True], ids=["latent", "independent"])
def hazards(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hazards") / "cohort"
    options = Options(
        (3_000,), (36_000,), (30, 4, 14), 1.9, independent_hazard=request.param, seed=2
    )
    make_cohort(options, folder)
    table = pd.read_parquet(folder / "truth" / "patients.parquet")
    return request.param, table[table["onset_time"].notna()]


def test_admission_depends_on_the_latent_patient_unless_told_otherwise(hazards):
    """Admissions per patient-year of the upper and lower half of the risk."""
    independent, ill = hazards
    assert len(ill) > 1_000
    upper = ill["risk"] > ill["risk"].median()
    rate = [
        ill.loc[half, "admitted"].sum() / ill.loc[half, "years"].sum() for half in (upper, ~upper)
    ]
    error = np.sqrt(sum(1 / ill.loc[half, "admitted"].sum() for half in (upper, ~upper)))
    z = np.log(rate[0] / rate[1]) / error
    assert abs(z) < 3 if independent else z > 6


def test_pure_hospitals_have_no_stages(tmp_path):
    options = Options((200,), (1_000,), SMALL.codes, 4.0, pure=True, seed=3)
    about = make_cohort(options, tmp_path / "pure")
    patients = pd.read_parquet(tmp_path / "pure" / "truth" / "patients.parquet")
    assert patients[["onset_time", "admission_time", "death_time", "years"]].isna().all().all()
    assert not patients["admitted"].any()
    assert set(patients["care"]) == {0}
    assert about["hazards"] is None
    assert DEMENTIA in set(read_events(tmp_path / "pure", 1)["code"])


# --- the command, and bad input -------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, ["cohort", *map(str, arguments)])


def test_the_command_makes_a_cohort(tmp_path):
    out = tmp_path / "made"
    result = run("--out", out, "--patients", 30, "--patients", 20, "--codes", 60)
    assert result.exit_code == 0, result.stderr
    assert "hospital-2: 20 patients, 240 records" in result.stdout
    assert sorted(p.name for p in out.iterdir()) == [
        "cohort.json",
        "hospital-1",
        "hospital-2",
        "truth",
    ]
    assert json.loads((out / "cohort.json").read_text())["options"]["patients"] == [30, 20]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--hospitals", "0"], "hospitals is 0"),
        (["--patients", "0"], "without patients"),
        (["--patients", "-4"], "without patients"),
        (["--hospitals", "3", "--patients", "10", "--patients", "20"], "3 hospitals"),
        (["--paper", "--codes", "500"], "--paper fixes"),
        (["--paper", "--hospitals", "2"], "--paper fixes"),
        (["--pure", "--independent-hazard"], "no hazards"),
        (["--codes", "10"], "40 to 5,000"),
        (["--codes", "9000"], "40 to 5,000"),
        (["--codes-per-record", "200"], "25th"),
        (["--codes-per-record", "nan"], "25th"),
        (["--records-per-patient", "30"], "half-years"),
        (["--records-per-patient", "0.5"], "half-years"),
        (["--records-per-patient", "nan"], "expected a number"),
        (["--events", "1000"], "at least"),
        (["--events", "inf"], "expected a number"),
        (["--events", "1e30"], "at most 10,000,000,000"),
        (["--patients", "100000000"], "at most 10,000,000"),
        (["--seed", "-1"], "seed is -1"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(tmp_path, arguments, word):
    result = run("--out", tmp_path / "bad", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("daniel: ")
    assert result.stderr.count("\n") == 1
    assert word in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "note").write_text("mine")
    result = run("--out", tmp_path / "there", "--patients", 5, "--codes", 60)
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert [p.name for p in tmp_path.rglob("*")] == ["there", "note"]


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(make, "write_patients", fail)
    with pytest.raises(InputError, match=r"half cannot be written \(No space left"):
        make_cohort(Options((20,), (60,), (40, 5, 20), 2.0), tmp_path / "half")
    assert list(tmp_path.iterdir()) == []


def test_the_benchmark_reads_all_hospitals_of_a_cohort(cohort, events):
    """Its first line has the events; a row has seconds, rate, memory, cells and ratio."""
    first, _, head, bare, prepared = benchmark.report(cohort[0], 1).split("\n")
    every = pd.concat(events.values(), ignore_index=True)
    assert first.startswith(f"{len(every):,} events in 2 Parquet files")
    assert head.split() == ["seconds", "events/s", "peak", "GB", "cells", "ratio"]
    assert bare.split()[-1] == "1.00"
    _, _, peak, found, ratio = prepared.removeprefix("daniel prepare").split()
    assert 0.01 < float(peak) < 4
    assert float(ratio) > 0
    every = every[every["code"] != DEATH].assign(code="V:" + every["code"])
    table = cells(every, months)
    kept = table.groupby("code")["subject_id"].transform("nunique") >= 11
    assert int(found.replace(",", "")) == kept.sum()


def test_options_must_name_every_hospital():
    with pytest.raises(ParameterError, match="one number for each hospital"):
        Options((10, 20), (100,), (40, 5, 20), 2.0)
