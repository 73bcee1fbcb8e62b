"""A small OMOP database: three patients, with everything that needs a decision."""

import pandas as pd

TABLES = {
    "condition_occurrence": pd.DataFrame(
        {
            "person_id": [1, 1, 2, 3, 3],
            "condition_concept_id": [201826, 320128, 320128, 0, 999],
            "condition_start_date": ["2020-01-01", "2020-08-01", "2020-01-05", "2020-01-01", None],
            "condition_source_value": ["E11.9 ", "I10", "401.9", "mystery", "x"],
            "condition_source_concept_id": [45595797, 0, 44821949, 0, 0],
        }
    ),
    "procedure_occurrence": pd.DataFrame(
        {
            "person_id": [2],
            "procedure_concept_id": [4000001],
            "procedure_date": ["2020-03-01"],
            "procedure_source_value": ["39.61"],
            "procedure_source_concept_id": [2000001],
        }
    ),
    "drug_exposure": pd.DataFrame(
        {
            "person_id": [1, 2, 3],
            "drug_concept_id": [19000001, 1545958, 700],
            "drug_exposure_start_date": ["2020-02-01", "2020-02-01", "2020-02-01"],
            "drug_source_value": ["caduet", "lipitor", "shot"],
            "drug_source_concept_id": [0, 0, 0],
        }
    ),
    "measurement": pd.DataFrame(
        {
            "person_id": [1],
            "measurement_concept_id": [3004410],
            "measurement_date": ["2020-02-01"],
            "measurement_source_value": ["hba1c"],
            "measurement_source_concept_id": [0],
        }
    ),
    "death": pd.DataFrame({"person_id": [1, 3], "death_date": ["2020-05-01", "2021-01-01"]}),
    "concept": pd.DataFrame(
        [
            (0, "No matching concept", "None", "No matching concept", "Undefined"),
            (201826, "Type 2 diabetes", "SNOMED", "44054006", "Disorder"),
            (320128, 'Essential "benign" hypertension', "SNOMED", "59621000", "Disorder"),
            (45595797, "Diabetes", "ICD10CM", "E11.9", "Code"),
            (44821949, "Hypertension", "ICD9CM", "401.9", "Code"),
            (4000001, "Bypass", "SNOMED", "63697000", "Procedure"),
            (2000001, "Extracorporeal circulation", "ICD9Proc", "39.61", "Code"),
            (19000001, "Caduet", "RxNorm", "404013", "Branded Drug"),
            (1545958, "atorvastatin", "RxNorm", "83367", "Ingredient"),
            (1332418, "amlodipine", "RxNorm", "17767", "Ingredient"),
            (700, "Influenza vaccine", "CVX", "141", "CVX"),
            (3004410, "HbA1c", "LOINC", "4548-4", "Lab Test"),
        ],
        columns=["concept_id", "concept_name", "vocabulary_id", "concept_code", "concept_class_id"],
    ),
    "concept_ancestor": pd.DataFrame(
        [(1545958, 19000001), (1332418, 19000001), (1545958, 1545958), (201826, 201826)],
        columns=["ancestor_concept_id", "descendant_concept_id"],
    ),
}
