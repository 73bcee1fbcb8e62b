"""Readers: OMOP from every kind of store, MEDS, flat files, and what real exports do to them."""

import gzip
import shutil

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omop_tables import TABLES

from daniel.errors import FormatError, InputError

BASE = "version = 1\n[codes]\nminimum_patients = 1\n"

STANDARD = {
    ("1", 0, "SNOMED:44054006"),
    ("1", 1, "SNOMED:59621000"),
    ("2", 0, "SNOMED:59621000"),
    ("2", 0, "SNOMED:63697000"),
    ("1", 0, "RxNorm:83367"),
    ("1", 0, "RxNorm:17767"),
    ("2", 0, "RxNorm:83367"),
    ("3", 0, "CVX:141"),
}


def csv_folder(folder, **options):
    folder.mkdir()
    for name, frame in TABLES.items():
        frame.to_csv(folder / f"{name}.csv", index=False, **options)
    return folder


def shouting_gzip(folder):
    """Upper-case names of files and columns, compressed."""
    folder.mkdir()
    for name, frame in TABLES.items():
        frame.rename(columns=str.upper).to_csv(
            folder / f"{name.upper()}.CSV.GZ", index=False, compression="gzip"
        )
    return folder


def parquet_parts(folder):
    """One folder of Parquet parts a table, dates as dates, ids as floats where some are missing."""
    for name, frame in TABLES.items():
        (folder / name).mkdir(parents=True)
        typed = frame.copy()
        for column in frame.columns[frame.columns.str.endswith("_date")]:
            typed[column] = pd.to_datetime(frame[column]).dt.date
        for column in frame.columns[frame.columns.str.endswith("source_concept_id")]:
            typed[column] = frame[column].astype(float)
        typed.iloc[:1].to_parquet(folder / name / "part-0.parquet")
        typed.iloc[1:].to_parquet(folder / name / "part-1.parquet")
    return folder


def athena(folder):
    """Vocabularies as Athena ships them: tab-separated, never quoted, with quotes inside."""
    csv_folder(folder)
    for name in ("concept", "concept_ancestor"):
        rows = [TABLES[name].columns, *TABLES[name].itertuples(index=False)]
        text = "\n".join("\t".join(map(str, row)) for row in rows) + "\n"
        (folder / f"{name}.csv").unlink()
        (folder / f"{name.upper()}.csv").write_text(text)
    return folder


def duckdb_file(path, schema="Main_CDM"):
    path = path.with_suffix(".duckdb")
    con = duckdb.connect(str(path))
    con.execute(f'CREATE SCHEMA "{schema}"')
    for name, frame in TABLES.items():
        columns = ", ".join(
            f'CAST({c} AS DATE) AS "{c.upper()}"' if c.endswith("_date") else f'"{c}"'
            for c in frame.columns
        )
        con.execute(f'CREATE TABLE "{schema}"."{name.upper()}" AS SELECT {columns} FROM frame')
    con.close()
    return path


STORES = [csv_folder, shouting_gzip, parquet_parts, athena, duckdb_file]


@pytest.mark.parametrize("store", STORES)
def test_omop_from_every_kind_of_store(run, tmp_path, store):
    result = run(store(tmp_path / "cdm"), BASE)
    assert result.cells == STANDARD
    counts = result.info["facts"]["events"]
    assert counts["read"] == 10  # the combination counts once for each ingredient
    assert counts["without a date"] == 1
    assert counts["without a code"] == 1
    assert counts["after the patient's death"] == 1
    names = pd.read_parquet(result.folder / "codes.parquet").set_index("code")["description"]
    assert names["SNOMED:59621000"] == 'Essential "benign" hypertension'


def test_omop_source_codes(run, tmp_path):
    toml = BASE + '[omop]\ncondition = "source"\nprocedure = "source"\ndrug = "source"\n'
    assert run(csv_folder(tmp_path / "cdm"), toml).cells == {
        ("1", 0, "ICD10CM:E11.9"),
        ("1", 1, "condition_source_value:I10"),
        ("2", 0, "ICD9CM:401.9"),
        ("3", 0, "condition_source_value:mystery"),
        ("2", 0, "ICD9Proc:39.61"),
        ("1", 0, "drug_source_value:caduet"),
        ("2", 0, "drug_source_value:lipitor"),
        ("3", 0, "drug_source_value:shot"),
    }


def test_omop_measurements_if_asked_for(run, tmp_path):
    toml = BASE + '[omop]\nmeasurement = "standard"\ndrug = "standard"\n'
    cells = run(csv_folder(tmp_path / "cdm"), toml).cells
    assert ("1", 0, "LOINC:4548-4") in cells
    assert ("1", 0, "RxNorm:404013") in cells


def test_omop_without_vocabularies(run, tmp_path):
    folder = csv_folder(tmp_path / "cdm")
    (folder / "concept.csv").unlink()
    toml = BASE + '[omop]\nprocedure = "source"\ndrug = "standard"\n'
    cells = run(folder, toml).cells
    assert ("1", 0, "OMOP:201826") in cells
    assert ("2", 0, "procedure_source_value:39.61") in cells
    with pytest.raises(InputError, match=r"no table concept.*'ingredient' needs"):
        run(folder, BASE)


def test_omop_tables_without_rows(run, tmp_path):
    folder = csv_folder(tmp_path / "cdm")
    for name in ("procedure_occurrence", "drug_exposure", "death"):
        TABLES[name].iloc[:0].to_csv(folder / f"{name}.csv", index=False)
    assert run(folder, BASE).cells == {
        c for c in STANDARD if c[2].startswith("SNOMED:") and c[2] != "SNOMED:63697000"
    }
    parquet = parquet_parts(tmp_path / "parquet")
    shutil.rmtree(parquet / "drug_exposure")
    TABLES["drug_exposure"].iloc[:0].to_parquet(parquet / "drug_exposure.parquet")
    assert not any("RxNorm" in c for *_, c in run(parquet, BASE).cells)


def test_omop_ids_that_an_export_has_turned_into_decimals(run, tmp_path):
    """A table with a missing id comes out of pandas with 1.0 for 1: the same patient."""
    folder = csv_folder(tmp_path / "cdm")
    expected = run(folder, BASE).cells
    for name in ("condition_occurrence", "death"):
        table = TABLES[name]
        table = table.assign(person_id=table["person_id"].astype(float))
        table.to_csv(folder / f"{name}.csv", index=False)
    assert (folder / "condition_occurrence.csv").read_text().split("\n")[1].startswith("1.0,")
    assert run(folder, BASE).cells == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda f: (f / "condition_occurrence.csv").unlink(),
            ["no table condition_occurrence", "drug_exposure", "procedure_occurrence"],
        ),
        (
            lambda f: TABLES["concept"].drop(columns="concept_code").to_csv(f / "concept.csv"),
            ["concept", "no column concept_code", "concept_name"],
        ),
        (
            lambda f: TABLES["death"].drop(columns="death_date").to_csv(f / "death.csv"),
            ["death", "no column death_date", "person_id"],
        ),
        (lambda f: shutil.copy(f / "death.csv", f / "DEATH.tsv"), ["death more than once"]),
    ],
)
def test_omop_with_something_missing(run, tmp_path, change, words):
    folder = csv_folder(tmp_path / "cdm")
    change(folder)
    with pytest.raises(InputError) as error:
        run(folder, BASE)
    for word in words:
        assert word in str(error.value)


def test_a_table_in_two_schemas_is_refused(run, tmp_path):
    path = duckdb_file(tmp_path / "cdm")
    con = duckdb.connect(str(path))
    con.execute('CREATE SCHEMA other; CREATE TABLE other.concept AS FROM "Main_CDM".concept')
    con.close()
    with pytest.raises(InputError, match=r"concept more than once.*Main_CDM, other"):
        run(path, BASE)


# --- MEDS -----------------------------------------------------------------------------------------


def meds_folder(folder, **metadata):
    day = pd.Timestamp
    shards = {
        "train/0": [
            (1, None, "GENDER//F"),
            (1, day("1950-05-05"), "MEDS_BIRTH"),
            (1, day("2020-01-31 23:00"), "ICD10CM//E11.9"),
            (1, day("2020-07-31 01:00"), "ICD10CM//I10"),
            (1, day("2020-07-31 02:00"), "ICD10CM//I10"),
            (1, day("2021-01-01"), "MEDS_DEATH"),
            (1, day("2021-01-02"), "LAB//GLUCOSE//mg"),
        ],
        "train/1": [(2, day("2020-01-01"), "RxNorm/83367"), (2, day("2020-01-01"), "PheCode:8.5")],
        "held_out/0": [(-3, day("2020-01-01"), "DIAGNOSIS//ICD//9//4019"), (-3, None, None)],
    }
    for name, rows in shards.items():
        path = folder / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows, columns=["subject_id", "time", "code"]).to_parquet(path)
    if metadata:
        (folder / "metadata").mkdir()
        pd.DataFrame(metadata).to_parquet(folder / "metadata" / "codes.parquet")
    return folder


def test_meds(run, tmp_path):
    toml = BASE + 'vocabularies = ["RxNorm", "PheCode", "ICD10CM", "LAB//GLUCOSE"]\n'
    result = run(meds_folder(tmp_path / "meds"), toml)
    assert result.cells == {
        ("1", 0, "ICD10CM:E11.9"),
        ("1", 1, "ICD10CM:I10"),
        ("1", 1, "LAB//GLUCOSE:mg"),
        ("2", 0, "RxNorm:83367"),
        ("2", 0, "PheCode:8.5"),
    }
    counts = result.info["facts"]["events"]
    assert counts["MEDS_BIRTH"] == counts["MEDS_DEATH"] == 1
    assert counts["without a date"] == 2
    assert counts["without a code"] == 1
    assert counts["after the patient's death"] == 1
    assert result.info["facts"]["patients_seen"] == 3
    every = run(tmp_path / "meds")
    assert {"PheCode", "RxNorm"} <= {row["vocabulary"] for row in every.info["facts"]["coverage"]}
    assert ("-3", 0, "DIAGNOSIS:ICD//9//4019") in every.cells
    mapped = BASE + '[[maps]]\nsource = ["DIAGNOSIS//ICD//9"]\ntarget = "P"\nfile = "m.csv"\n'
    (tmp_path / "m.csv").write_text("icd,p\n401.9,1\n")
    assert ("-3", 0, "P:1") in run(tmp_path / "meds", mapped).cells


def test_meds_metadata(run, tmp_path):
    """Parents in a vocabulary of the study stand for codes that the study does not know."""
    folder = meds_folder(
        tmp_path / "meds",
        code=["DIAGNOSIS//ICD//9//4019", "ICD10CM//I10"],
        description=["Hypertension", "Essential hypertension"],
        parent_codes=[["ICD9CM/401.9", "OTHER/1"], ["ICD9CM/401.9"]],
    )
    toml = BASE + 'vocabularies = ["ICD9CM", "ICD10CM"]\n'
    result = run(folder, toml)
    assert ("-3", 0, "ICD9CM:401.9") in result.cells
    assert {c for p, _, c in result.cells if p == "1"} == {"ICD10CM:E11.9", "ICD10CM:I10"}
    codes = pd.read_parquet(result.folder / "codes.parquet").set_index("code")
    assert codes["description"]["ICD10CM:I10"] == "Essential hypertension"


def test_meds_without_a_column(run, tmp_path):
    folder = tmp_path / "meds"
    (folder / "data").mkdir(parents=True)
    pd.DataFrame({"patient_id": [1], "time": [None], "code": ["x"]}).to_parquet(
        folder / "data" / "0.parquet"
    )
    with pytest.raises(InputError, match="no column subject_id; it has patient_id, time, code"):
        run(folder, BASE)


# --- flat files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "patient,time,code\na,2020-01-01,x\na,2020-07-01,x\n",
        "patient;time;code\na;2020-01-01;x\na;2020-07-01;x\n",
        "PERSON_ID\tDATE\tCODE\na\t20200101\tx\na\t20200701\tx\n",
        "\ufeffPatient,Time,Code\r\na,2020-01-01,x\r\na,2020-07-01,x\r\n",
        ',code,"subject_id",start_date\n0,x,a,2020-01-01\n1,x,a,2020-07-01\n',
        'patient,time,code,note\na,2020-01-01,"x","a ""quoted"", note"\na,2020-07-01,x,\n',
        "patient,time,code\na,2020-01-01,x\na,2020-07-01,x",
        "patient,time,code\na,2020-01-01,x\na,2020-01-01,x\na,2020-01-02,x\na,2020-07-01, x \n",
    ],
)
def test_csv_as_people_write_it(run, tmp_path, text):
    path = tmp_path / "events.csv"
    path.write_bytes(text.encode())
    assert run(path).cells == {("a", 0, "x"), ("a", 1, "x")}
    zipped = tmp_path / "zipped.CSV.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert run(zipped).cells == {("a", 0, "x"), ("a", 1, "x")}


def test_events_that_cannot_be_used_are_counted(run):
    result = run(
        "patient,time,code\na,2020-01-01,x\n,2020-01-01,x\na,,x\na,never,x\na,2020-01-01,\n"
        "b,,x\nc,2020-01-01,x\nc,2020-01-01,  \n"
    )
    assert result.cells == {("a", 0, "x"), ("c", 0, "x")}  # one event each
    counts = result.info["facts"]["events"]
    assert counts["read"] == 8
    assert counts["without a patient"] == 1
    assert counts["without a date"] == 2
    assert counts["with an unreadable date"] == 1
    assert counts["without a code"] == 2


def test_a_number_that_is_none_is_no_patient(run, tmp_path):
    patient = pa.array([1.0, float("nan")])  # not null
    table = pa.table({"patient": patient, "time": ["2020-01-01"] * 2, "code": ["x", "x"]})
    pq.write_table(table, tmp_path / "events.parquet")
    result = run(tmp_path / "events.parquet")
    assert result.matrix.shape == (1, 1)
    assert result.info["facts"]["events"]["without a patient"] == 1


def test_meds_with_a_column_of_another_type(run, tmp_path):
    folder = meds_folder(tmp_path / "meds", parent_codes=["text"] * 2, code=["a", "b"])
    with pytest.raises(FormatError, match="BinderException"):
        run(folder)


def test_a_url_is_not_repeated(run):
    for url in ("postgresql+psycopg://me:secret@host/db", "Postgres://me:secret@host/db"):
        with pytest.raises(InputError, match="URL that daniel does not know") as error:
            run(url)
        assert "secret" not in str(error.value)


def test_the_folder_in_which_one_stands_has_a_name(run, tmp_path, monkeypatch):
    folder = tmp_path / "flat"
    folder.mkdir()
    (folder / "a.csv").write_text("patient,time,code\n1,2020-01-01,x\n")
    monkeypatch.chdir(folder)
    assert run(".").info["facts"]["label"] == "flat"


def test_a_folder_of_different_tables_is_described(run, tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "a.csv").write_text("patient,time,code\n1,2020-01-01,x\n")
    (folder / "b.csv").write_text("subject,born\n1,1950\n")
    with pytest.raises(InputError) as error:
        run(folder)
    for words in ("dump: a.csv has the columns patient, time, code", "b.csv has subject, born"):
        assert words in str(error.value)


def test_a_path_that_cannot_be_looked_at(run):
    with pytest.raises(InputError, match="cannot be opened"):
        run("x" * 300)


def test_a_folder_of_flat_files(run, tmp_path):
    folder = tmp_path / "flat"
    folder.mkdir()
    for i in range(3):
        (folder / f"part{i}.csv").write_text(f"patient,time,code\np{i},2020-01-01,x\n")
    assert {p for p, *_ in run(folder).cells} == {"p0", "p1", "p2"}
    (folder / "part3.csv").write_text("patient,code,time\np3,x,2020-01-01\n")
    with pytest.raises(InputError, match="expected the same columns"):
        run(folder)
