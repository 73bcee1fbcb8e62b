"""A problem as a file, so that a race reads records alone and not the tables they came from.

    python -m benchmarks.problems_file visits build/problems

writes visits.npz, and visits.json: what the problem is, with a hash of its records.
"""

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from benchmarks import problems, problems_made
from benchmarks.catalogue import PROBLEMS
from benchmarks.problems import Problem
from daniel.errors import InputError

PAIRS = ["code1", "code2", "relation"]


def make(name: str) -> Problem:
    """Any problem by its name."""
    if name.startswith("cohort-"):
        return problems_made.cohort(name)
    if name.startswith("simulation-"):
        return problems_made.simulation(name)
    return problems.load(name)


def facts(problem: Problem) -> dict[str, Any]:
    """Sizes of a problem, and a hash that changes with its records, codes, sites or pairs."""
    Z = problem.Z
    digest = hashlib.sha256()
    for array in (Z.indptr.astype(np.int64), Z.indices.astype(np.int32)):
        digest.update(array.tobytes())
    for text in (problem.codes, problem.sites, problem.pairs[PAIRS].to_numpy().ravel()):
        digest.update("\n".join(map(str, text)).encode())
    return {
        "records": Z.shape[0],
        "codes": Z.shape[1],
        "sites": len(set(problem.sites)),
        "codes_per_record": round(Z.nnz / Z.shape[0], 2),
        "pairs": len(problem.pairs),
        "sha256": digest.hexdigest()[:16],
    }


def write(problem: Problem, folder: Path) -> None:
    """The two files; the second is written last, and says that the first is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "indptr": problem.Z.indptr,
        "indices": problem.Z.indices,
        "codes": np.array(problem.codes, dtype=str),
        "sites": np.asarray(problem.sites).astype(str),
    }
    arrays |= {name: problem.pairs[name].to_numpy().astype(str) for name in PAIRS}
    if problem.theta is not None:
        arrays["theta"] = problem.theta
    part = folder / f"{problem.name}.{os.getpid()}.part"
    with part.open("wb") as file:
        np.savez(file, **arrays)
    os.replace(part, folder / f"{problem.name}.npz")
    part.write_text(json.dumps(facts(problem)))
    os.replace(part, folder / f"{problem.name}.json")


def read(path: Path) -> Problem:
    """What `write` wrote, without the patients."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        shape = (arrays["indptr"].size - 1, arrays["codes"].size)
        ones = np.ones(arrays["indices"].size, dtype=np.float32)
        Z = sparse.csr_matrix((ones, arrays["indices"], arrays["indptr"]), shape=shape)
        pairs = pd.DataFrame({name: arrays[name] for name in PAIRS})
    except (OSError, KeyError, ValueError):
        raise InputError(
            f"{path} is not a problem of the races: remove it, and run again."
        ) from None
    codes, sites = arrays["codes"].tolist(), arrays["sites"]
    return Problem(path.stem, Z, codes, sites, None, pairs, theta=arrays.get("theta"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(PROBLEMS))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write(make(arguments.name), arguments.folder)


if __name__ == "__main__":
    main()
