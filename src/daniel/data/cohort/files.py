"""The folder of a cohort: one MEDS dataset for each hospital, and the truth beside them.

hospital-1/data/0000.parquet       subject_id, time, code, numeric_value
hospital-1/metadata/codes.parquet  code, description, parent_codes
hospital-1/metadata/dataset.json
truth/embedding.safetensors        U (p, d), intercept and prevalence (hospital, care, p)
truth/codes.tsv, truth/pairs.tsv   codes and planted relations
truth/patients.parquet             care, risk, onset, admission and death of every patient
cohort.json                        options, seed, counts
"""

import json
from collections.abc import Iterable
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save

from daniel.data.cohort.events import ADMISSION, DEATH, UnitEvents
from daniel.data.cohort.patients import HospitalLaw
from daniel.data.cohort.truth import Truth, known_pairs

MEDS_VERSION = "0.4.1"
ADMISSION_CODE, DEATH_CODE = "NURSING_HOME_ADMISSION", "MEDS_DEATH"
FORMAT = 1
SHARD = 16  # units in a file
DATA = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us")),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
    ]
)
CODES = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("description", pa.string()),
        pa.field("parent_codes", pa.list_(pa.string())),
    ]
)


def subject_ids(hospital: int, patients: np.ndarray) -> np.ndarray:
    """Numbers of patients, different at every hospital."""
    ids: np.ndarray = hospital * 100_000_000 + 1 + patients.astype(np.int64)
    return ids


def write_data(
    folder: Path, hospital: int, names: tuple[str, ...], units: Iterable[tuple[int, UnitEvents]]
) -> int:
    """Events of a hospital, SHARD units in a file, a patient's together; how many they are.

    units: number of the unit's first patient, and its events.
    """
    (folder / "data").mkdir(parents=True)
    words = pa.array([*names, ADMISSION_CODE, DEATH_CODE])
    total = 0
    for shard, group in groupby(enumerate(units), key=lambda item: item[0] // SHARD):
        path = folder / "data" / f"{shard:04d}.parquet"
        with pq.ParquetWriter(path, DATA, compression="zstd") as writer:
            for _, (first, events) in group:
                ids = subject_ids(hospital, first + events.patient)
                writer.write_table(_table(ids, events, words, len(names)))
                total += events.code.size
    return total


def _table(ids: np.ndarray, events: UnitEvents, words: pa.Array, p: int) -> pa.Table:
    place = np.select([events.code == ADMISSION, events.code == DEATH], [p, p + 1], events.code)
    codes = pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), words)
    return pa.table(
        [
            pa.array(ids),
            pa.array(events.time).cast(pa.timestamp("us")),
            codes.cast(pa.string()),
            pa.nulls(place.size, pa.float32()),
        ],
        schema=DATA,
    )


def write_metadata(folder: Path, truth: Truth, name: str) -> None:
    """Codes with descriptions and parents, and what the dataset is."""
    book = truth.book
    (folder / "metadata").mkdir(parents=True)
    extra = {ADMISSION_CODE: "admission to a nursing home", DEATH_CODE: "death"}
    table = pa.table(
        [
            pa.array([*book.names, *extra]),
            pa.array([*book.descriptions, *extra.values()]),
            pa.array([[p] if p else [] for p in book.parents] + [[], []], pa.list_(pa.string())),
        ],
        schema=CODES,
    )
    pq.write_table(table, folder / "metadata" / "codes.parquet")
    about = {
        "dataset_name": f"synthetic cohort, {name}",
        "dataset_version": str(truth.seed),
        "etl_name": "daniel cohort",
        "etl_version": version("daniel"),
        "meds_version": MEDS_VERSION,
    }
    _write_json(folder / "metadata" / "dataset.json", about)


def write_truth(folder: Path, truth: Truth, laws: list[HospitalLaw]) -> None:
    """Everything but the patients."""
    folder.mkdir(parents=True)
    U = truth.couplings.U
    c = np.stack([law.c for law in laws]).astype(np.float64)
    prevalence = np.stack([law.mu for law in laws])
    arrays = {
        "U": U.astype(np.float32),
        "intercept": truth.couplings.theta_diagonal(c),
        "prevalence": prevalence,
        "frailty": truth.frailty,
        "keep": truth.keep,
        "lift": truth.lift,
    }
    header = json.dumps({"format": FORMAT, "codes": truth.book.names})  # one key: always one order
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    (folder / "embedding.safetensors").write_bytes(save(plain, metadata={"daniel": header}))
    book = truth.book
    codes = pd.DataFrame(
        {
            "code": book.names,
            "vocabulary": book.vocabulary,
            "description": book.descriptions,
            "parent": book.parents,
            "group": book.group,
            "coupled": (np.abs(U).sum(axis=1) > 0).astype(int),
        }
    )
    _write_table(codes, folder / "codes.tsv")
    _write_table(known_pairs(truth), folder / "pairs.tsv")


def write_patients(folder: Path, columns: dict[str, np.ndarray]) -> None:
    """truth/patients.parquet; a time that was not seen is null."""
    none = np.iinfo(np.int64).min
    arrays = {}
    for name, values in columns.items():
        if name.endswith("_time"):
            arrays[name] = pa.array(values, mask=values == none).cast(pa.timestamp("us"))
        elif name in {"onset_record", "onset_window", "years"}:
            arrays[name] = pa.array(values, mask=columns["onset_record"] < 0)
        else:
            arrays[name] = pa.array(values)
    pq.write_table(pa.table(arrays), folder / "patients.parquet", compression="zstd")


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """cohort.json."""
    _write_json(folder / "cohort.json", {"format": FORMAT, "daniel": version("daniel"), **about})


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def _write_table(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, sep="\t", index=False, lineterminator="\n")
