"""The paper's size on one machine: `daniel start`, `answer`, `finish` in units of bare products.

    python -m benchmarks.papersize                     writes results/papersize.json
    python -m benchmarks.papersize --folder DIR        keeps or reuses cohort and sites there
    python -m benchmarks.papersize --converged         also runs the objective to its end, an hour;
                                                       what it found is kept by later runs
                                                       until daniel.core changes

906,530 records of 2,142 codes at two hospitals (`daniel cohort --paper`), 200 components.  Every
step is the command in a process of its own.  One unit is a bare three-product sweep over the hub's
records, measured on a slice right before and after, in the same run; so is a full sweep of the
solver, with all that it does beside the products, in which the plan of docs/scale.md counts.  The
paper's dense way is timed on a slice as well, in double precision, as plain NumPy or R runs it, and
in single precision, and its 200 iterations are extrapolated.
"""

import argparse
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exchange import Cost, measured
from benchmarks.problems import PROJECT_ROOT
from benchmarks.race import commit, machine
from benchmarks.source import CORE, core
from daniel.core import natural
from daniel.core.coordinates import natural_coordinates
from daniel.core.intercepts import prior_intercepts
from daniel.core.ising import sweep as full_sweep
from daniel.core.records import records_from
from daniel.data.sitefolder import read_site
from daniel.federated import protocol
from daniel.federated.folder import read_model
from daniel.federated.keys import make_key, write_key
from daniel.federated.terms import options_of
from daniel.study import Codes, Disclosure, Model, Study

OUT = PROJECT_ROOT / "results" / "papersize.json"
HUB, SITE = "site-1", "site-2"
COMPONENTS = 200
SLICE = 8_192  # records of the bare products
SWEPT = 65_536  # records of a sweep of the solver, whose work on codes is the same for all records
DENSE_ITERATIONS = 200
CONVERGED_TOL = 1e-7
DENSE = "hub time / 200 iterations of the dense way, extrapolated,"
STEPS, LOSS = "iterations of the finish", "loss"
UNIT = "seconds of a bare sweep over the hub (unit)"
FULL = "seconds of a full sweep over the hub"
UNITS = "hub time in units (at most 60)"
DOUBLE = f"{DENSE} in double precision (at most 0.025)"
SINGLE = f"{DENSE} in single precision"
PRODUCT = "answer / bare product X'R over its records (at most 1)"
MEMORY = "largest memory, MB (at most 3,000)"
ABOVE = "percent above (at most 0.5)"
RUN_ON = "the loss against that of the same finish, run to its end"


def make_sites(folder: Path) -> None:
    """A cohort, its two site folders, a study and keys, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "cohort").is_dir():
        measured(folder, "cohort", "--paper", "--out", "cohort")
    names = [line.split("\t")[0] for line in _lines(folder / "cohort" / "truth" / "codes.tsv")]
    keys = {name: make_key(name) for name in (HUB, SITE)}
    for name, key in keys.items():
        (folder / f"{name}.key").unlink(missing_ok=True)
        write_key(key, folder)
    (folder / "study.toml").unlink(missing_ok=True)
    roster = tuple(key.public("hub" if name == HUB else "site") for name, key in keys.items())
    Study(
        name="paper size",
        codes=Codes(names=tuple(names[1:])),
        model=Model(n_components=COMPONENTS),
        disclosure=Disclosure(release="open"),  # two sites cannot mask each other
        sites=roster,
    ).write(folder / "study.toml")
    for number, name in enumerate((HUB, SITE), 1):
        source = f"cohort/hospital-{number}"
        shutil.rmtree(folder / name, ignore_errors=True)
        measured(folder, "prepare", source, "--study", "study.toml", "--site", name, "--out", name)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """The median time of a piece of work."""
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return float(np.median(took))


def bare(p: int) -> tuple[float, float]:
    """Seconds a record of three bare products with COMPONENTS columns, and of one X'R."""
    rng = np.random.default_rng(0)
    X, R = (rng.standard_normal((SLICE, p), dtype=np.float32) for _ in range(2))
    U = rng.standard_normal((p, COMPONENTS), dtype=np.float32)

    def sweep() -> None:
        A = X @ U
        M = A @ U.T
        M.T @ A

    return seconds(sweep) / SLICE, seconds(lambda: X.T @ R) / SLICE


def full(site: Path) -> float:
    """Seconds a record of one sweep of the solver with COMPONENTS columns, on a slice of a site.

    The site is read here, and let go: commands count the memory of this process in their own.
    """
    Z = read_site(site).Z
    rows = np.unique(np.linspace(0, Z.shape[0] - 1, SWEPT).astype(int))
    records = records_from(Z[rows], merge=False)
    coords, b = natural_coordinates(records.counts(), records.total), prior_intercepts(records)
    rng = np.random.default_rng(0)
    U = rng.standard_normal((records.p, COMPONENTS), dtype=np.float32) / records.p
    full_sweep(records, coords, U, U, b)  # compiled
    return seconds(lambda: full_sweep(records, coords, U, U, b)) / records.n


def dense(p: int, dtype: str) -> float:
    """Seconds a record of one gradient in the paper's dense way: ±1 records times all of Theta.

    What is done once for all records, W + W', is left out.
    """
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (SLICE // 4, p)).astype(dtype)
    theta = (rng.standard_normal((p, p)) / p).astype(dtype)

    def gradient() -> None:
        M = X @ theta
        B = -1 / (1 + np.exp(2 * X * M))
        X.T @ (X * B)

    return seconds(gradient, 3) / len(X)


def measure(folder: Path) -> dict[str, Any]:
    """Times of the three commands, what they are held against, and memory."""
    hub, site = (read_site(folder / name).shape[0] for name in (HUB, SITE))
    p = read_site(folder / HUB).shape[1]
    before = (*bare(p), full(folder / HUB))
    costs = {
        "start": measured(folder, "start", HUB),
        "own answer": _answer(folder, HUB),
        "answer": _answer(folder, SITE),
        "finish": _finish(folder),
    }
    sweep, product, whole = np.mean([before, (*bare(p), full(folder / HUB))], axis=0)
    model = read_model(folder / "model")
    unit = sweep * hub
    took = sum(costs[step].seconds for step in ("start", "own answer", "finish"))
    double, single = (dense(p, t) * hub * DENSE_ITERATIONS for t in ("float64", "float32"))
    rows = [
        {"step": step, "seconds": cost.seconds, "units": cost.seconds / unit, "MB": cost.memory}
        for step, cost in costs.items()
    ]
    return {
        "records at the hub": hub,
        "records at the other site": site,
        "codes": p,
        "components": COMPONENTS,
        UNIT: unit,
        FULL: whole * hub,
        UNITS: took / unit,
        DOUBLE: took / double,
        SINGLE: took / single,
        PRODUCT: costs["answer"].seconds / (product * site),
        MEMORY: max(cost.memory for cost in costs.values()),
        STEPS: model.n_iter_,
        LOSS: model.loss_curve_[-1],
        CORE: core(),
        "steps": rows,
        "machine": about(),
    }


def about() -> dict[str, Any]:
    """Machine and versions, in a line of the page."""
    found = machine()
    return {
        "processor": found["processor"],
        "cores": found["cores"],
        "memory, GB": found["memory_gb"],
        **{name: value for name, value in found["threads"].items() if value},
        "Python": platform.python_version(),
        "numpy": version("numpy"),
        "daniel": version("daniel"),
        "commit": commit(),
    }


def converged(folder: Path, loss: float) -> dict[str, Any]:
    """How far a loss is above what the same solver reaches when it does not stop early."""
    natural.GAIN = 0.0
    protocol.options_of = lambda *about: replace(options_of(*about), tol=CONVERGED_TOL)
    study = Study.load(folder / "study.toml")
    start, *answers = ((folder / f"{name}.daniel").read_bytes() for name in ("start", HUB, SITE))
    model, _ = protocol.finish(read_site(folder / HUB), study, start, answers)
    least = model.loss_curve_[-1]
    return {
        "loss": loss,
        "at its end": least,
        "iterations to its end": model.n_iter_,
        ABOVE: 100 * (loss / least - 1),
        CORE: core(),
        "commit": commit(),
    }


def _answer(folder: Path, name: str) -> Cost:
    out = folder / f"{name}.daniel"
    out.unlink(missing_ok=True)
    (folder / f"{name}.log").unlink(missing_ok=True)  # a site answers once in an epoch
    return measured(
        folder, "answer", name, "start.daniel", "--approve", "benchmark", "--out", out.name
    )


def _finish(folder: Path, model: str = "model") -> Cost:
    shutil.rmtree(folder / model, ignore_errors=True)
    answers = [f"{name}.daniel" for name in (HUB, SITE)]
    return measured(folder, "finish", HUB, "start.daniel", *answers, "--out", model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--converged", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.folder or Path(place)
        make_sites(folder)
        found = measure(folder)
        print(json.dumps(found, indent=1), flush=True)
        old = json.loads(arguments.out.read_text("utf-8")) if arguments.out.exists() else {}
        if arguments.converged:
            found[RUN_ON] = converged(folder, found[LOSS])
        elif old.get(RUN_ON, {}).get(CORE) == found[CORE]:
            found[RUN_ON] = old[RUN_ON]
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
