"""Problems whose truth is known: synthetic hospitals, and the paper's simulation.

Hospitals come from `daniel cohort`'s generator with the paper's codes and a share of its patients;
the known pairs are those planted in the truth.  Simulated records come from one couplings matrix
Theta* (p, p); the known pairs are its strongest couplings.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from safetensors.numpy import load_file
from scipy import sparse

from benchmarks.problems import Problem
from daniel import CodeMatrix
from daniel.data.cohort import Options, make_cohort
from daniel.data.cohort.make import (
    CODES_PER_RECORD,
    PAPER_CODES,
    PAPER_PATIENTS,
    PAPER_RECORDS,
)
from daniel.data.prepare import prepare
from daniel.data.sitefolder import read_site
from daniel.simulation.design import Cell, draw
from daniel.study import Codes, Study

SEED = 0
STRONGEST = 0.05  # share of the simulated couplings that count as known pairs
CELLS = {
    "simulation-50": Cell(10_000, 50, 5, 0.3),
    "simulation-200": Cell(20_000, 200, 20, 0.3),
}


@dataclass(frozen=True)
class Hospitals:
    """All records of a cohort, the hospital of each, planted pairs and vectors (p, d)."""

    matrix: CodeMatrix
    sites: np.ndarray
    pairs: pd.DataFrame
    planted: np.ndarray


def paper_share(share: int) -> Options:
    """The paper's hospitals with one in `share` of their patients."""
    patients = tuple(round(n / share) for n in PAPER_PATIENTS)
    records = tuple(round(n / share) for n in PAPER_RECORDS)
    return Options(patients, records, PAPER_CODES, CODES_PER_RECORD, seed=SEED)


def hospitals(options: Options, folder: Path) -> Hospitals:
    """Make a cohort in a folder, or read what is there: cohort/, and site-1/, site-2/, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "cohort").is_dir():
        make_cohort(options, folder / "cohort")
    truth = folder / "cohort" / "truth"
    codes = pd.read_csv(truth / "codes.tsv", sep="\t", keep_default_na=False)["code"]
    study = Study(name="cohort", codes=Codes(names=tuple(codes)))
    names = [f"site-{k}" for k in range(1, len(options.patients) + 1)]
    for k, name in enumerate(names, 1):
        if not (folder / name).is_dir():
            source = folder / "cohort" / f"hospital-{k}"
            prepare(source, study, name, folder / name, random_state=SEED)
    parts = [read_site(folder / name) for name in names]
    matrix = CodeMatrix(
        sparse.csr_array(sparse.vstack([part.Z for part in parts])),
        parts[0].codes,
        np.concatenate([part.patients for part in parts]),
        np.concatenate([part.windows for part in parts]),
    )
    return Hospitals(
        matrix,
        np.repeat(names, [part.shape[0] for part in parts]),
        pd.read_csv(truth / "pairs.tsv", sep="\t"),
        load_file(truth / "embedding.safetensors")["U"],
    )


def cohort(name: str) -> Problem:
    """Such as "cohort-50th": synthetic hospitals with a share of the paper's patients."""
    share = int(name.removeprefix("cohort-").removesuffix("th"))
    with TemporaryDirectory() as folder:
        made = hospitals(paper_share(share), Path(folder))
    Z = sparse.csr_matrix(made.matrix.Z, dtype=np.float32)
    return Problem(name, Z, list(made.matrix.codes), made.sites, made.matrix.patients, made.pairs)


def simulation(name: str, cell: Cell | None = None) -> Problem:
    """Records of one draw of the paper's design, and the couplings they were drawn from."""
    cell = cell or CELLS[name]
    drawn = draw(cell, SEED, 0)
    codes = [f"SIM:{j}" for j in range(cell.p)]
    j, k = np.triu_indices(cell.p, 1)
    strongest = np.argsort(-drawn.theta[j, k])[: round(STRONGEST * j.size)]
    pairs = pd.DataFrame(
        {
            "code1": [codes[i] for i in j[strongest]],
            "code2": [codes[i] for i in k[strongest]],
            "relation": "strongest couplings",
        }
    )
    sites = cell.sites()
    sites = np.zeros(cell.n, dtype=int) if sites is None else sites
    Z = sparse.csr_matrix(drawn.Z, dtype=np.float32)
    return Problem(name, Z, codes, sites.astype(str), None, pairs, theta=drawn.theta)
