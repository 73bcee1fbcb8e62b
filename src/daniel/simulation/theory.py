"""What the paper's theorems promise, measured on simulated records.

rate    error against n: Theorem 1 promises sqrt(d p log p / n), a slope of -1/2
gap     distance between one-shot and pooled estimate: of lower order than the error (Theorem 3)
sites   more sites than sqrt(n), where the theory ends
step    the bound eq. (eta_ineq) against the largest step that really descends
symmetry  Theta stays symmetric through the descent (Remark 1)
start   what the signs of the start cost the paper's recipe at n = 1000

The first three use p = 20, d = 2, where the signal stands well above the noise; all n of a
repetition are first parts of the same records.
"""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from daniel.core import paper
from daniel.core.records import Records, records_from
from daniel.errors import DivergenceError, FormatError
from daniel.estimator import Daniel
from daniel.simulation.design import Cell, Draw, draw
from daniel.simulation.processes import workers
from daniel.simulation.store import COMPARED, MARK, facts, read_header
from daniel.simulation.write import write_text

COLUMNS = [
    *("check", "n", "p", "x", "m", "method", "rep", "eta", "iterations"),
    *("error", "gap", "asymmetry", "bound", "limit"),
]
Row = dict[str, Any]
Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Scale:
    """How much is measured.  n: of the rate; x: the sites of rate and gap; many: of `sites`."""

    reps: int = 10
    n: tuple[int, ...] = (2000, 4000, 8000, 16_000, 32_000, 64_000)
    x: float = 0.3
    many: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    many_n: int = 16_000
    step_n: int = 5000
    step_x: tuple[float, ...] = (0.0, 0.3, 0.5, 0.6)
    start_n: int = 1000
    start_x: tuple[float, ...] = (0.0, 0.4)


QUICK_SCALE = Scale(
    reps=2,
    n=(1000, 2000, 4000, 8000),
    many=(0.0, 0.3, 0.6),
    many_n=4000,
    step_n=1000,
    step_x=(0.0, 0.3),
)
# Theorems speak of the minimum: both descents are run to their end.
ETA, MANY_STEPS, TIGHT = 0.2, 300, 1e-8
SMALL_P, SMALL_D, P, D = 20, 2, 50, 5
START_ETAS, START_ITERATIONS = (0.05, 0.1, 0.3), (10, 50)
LARGEST_STEP = 50.0


def measure_theory(
    out: str | Path,
    *,
    scale: Scale | None = None,
    jobs: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """All checks; measured, or from ``<out>/theory.csv`` when it holds the very same study."""
    scale = scale or Scale()
    path = Path(out) / "theory.csv"
    settings = repr((astuple(scale), ETA, MANY_STEPS, TIGHT, START_ETAS, START_ITERATIONS))
    head = facts("theory", seed, settings)
    if path.exists() and _same(path, head):
        return read_theory(path)
    tasks = [(kind, seed, rep, scale) for rep in range(scale.reps) for kind in CHECKS]
    rows: list[Row] = []
    with workers(jobs) as work:
        for done, found in enumerate(work(_check, tasks), start=1):
            rows += found
            if progress is not None:
                progress(done, len(tasks))
    table = pd.DataFrame(rows, columns=COLUMNS).sort_values(
        ["check", "rep", "method", "n", "x", "eta", "iterations"], kind="stable"
    )
    body = table.to_csv(index=False, float_format="%.7g", lineterminator="\n")
    write_text(path, f"{MARK}{json.dumps(head)}\n{body}")
    return read_theory(path)


def read_theory(path: str | Path) -> pd.DataFrame:
    lines = Path(path).read_text("utf-8").split("\n", 1)
    return pd.read_csv(io.StringIO(lines[1]))


def _same(path: Path, head: dict[str, Any]) -> bool:
    """Whether the file is this very study; another seed's is not ours to replace."""
    found = read_header(path)
    if found.get("seed") != head["seed"] or found.get("design") != "theory":
        raise FormatError(
            f"{path} holds results of another study: seed is {found.get('seed')!r} there and "
            f"{head['seed']!r} now; choose another --out, or remove the file to start over."
        )
    return all(found.get(key) == head.get(key) for key in COMPARED)


def _check(task: tuple[str, int, int, Scale]) -> list[Row]:
    kind, seed, rep, scale = task
    return [{"check": kind, "rep": rep, **row} for row in CHECKS[kind](seed, rep, scale)]


# --- rate, gap, sites, symmetry -------------------------------------------------------------------


def _rate(seed: int, rep: int, scale: Scale) -> list[Row]:
    largest = draw(Cell(max(scale.n), SMALL_P, SMALL_D, 0.0), seed, rep)
    return [row for n in scale.n for row in _against_pooled(largest, n, (0.0, scale.x))]


def _sites(seed: int, rep: int, scale: Scale) -> list[Row]:
    drawn = draw(Cell(scale.many_n, SMALL_P, SMALL_D, 0.0), seed, rep)
    return _against_pooled(drawn, scale.many_n, scale.many)


def _against_pooled(drawn: Draw, n: int, xs: tuple[float, ...]) -> list[Row]:
    """Error, distance to the same recipe on pooled records, and asymmetry; the first x is 0."""
    drawn = replace(drawn, Z=drawn.Z[:n])
    models = {
        "default": Daniel(
            intercept="tied", random_state=drawn.random_state, tol=TIGHT, max_iter=1000
        ),
        "paper": Daniel(SMALL_D, recipe="paper", step_size=ETA, max_iter=MANY_STEPS),
    }
    rows = []
    for name, model in models.items():
        pooled = None
        for x in xs:
            cell = Cell(n, SMALL_P, SMALL_D, x)
            row = _place(cell, name)
            try:
                theta = model.fit(drawn.Z, sites=cell.sites()).theta_
            except DivergenceError:
                rows.append(row)
                continue
            pooled = theta if x == 0 else pooled
            row["error"] = np.linalg.norm(theta - drawn.theta)
            row["gap"] = None if pooled is None else np.linalg.norm(theta - pooled)
            row["asymmetry"] = np.abs(theta - theta.T).max() / np.abs(theta).max()
            rows.append(row)
    return rows


# --- step and start -------------------------------------------------------------------------------


def _step(seed: int, rep: int, scale: Scale) -> list[Row]:
    """The bound eq. (eta_ineq) at the start, and the largest step from which the value falls."""
    rows = []
    for cell, _, parts in _split(scale.step_n, scale.step_x, seed, rep):
        start = paper.make_start(parts[0], D, step_size=0.1)
        answers = [paper.answer(part, start) for part in parts]
        bound = paper.step_bound(parts[0], start)

        def descends(eta: float, hub: Any = parts[0], start: Any = start, a: Any = answers) -> bool:
            try:
                fit = paper.finish(hub, start, a, step_size=eta, max_iter=50, tol=1e-5)
            except DivergenceError:
                return False
            return fit.solution.curve[-1] <= fit.solution.curve[0]

        limit = largest_step(descends, bound)
        rows.append({**_place(cell, "paper"), "bound": bound, "limit": limit})
    return rows


def _split(
    n: int, xs: tuple[float, ...], seed: int, rep: int
) -> Iterator[tuple[Cell, Draw, list[Records]]]:
    """A repetition of the main design at p = 50: for each x its cell and the records by site."""
    drawn = draw(Cell(n, P, D, 0.0), seed, rep)
    for x in xs:
        cell = Cell(n, P, D, x)
        site = np.zeros(n, dtype=int) if cell.m == 1 else cell.sites()
        records = records_from(drawn.Z, site=site, n_sites=cell.m)
        yield cell, drawn, [records.of_site(i) for i in range(cell.m)]


def _place(cell: Cell, method: str) -> Row:
    return {"n": cell.n, "p": cell.p, "x": cell.x, "m": cell.m, "method": method}


def largest_step(descends: Callable[[float], bool], low: float) -> float:
    """The largest step that descends, to 3 %, between `low` and LARGEST_STEP, by bisection."""
    high = LARGEST_STEP
    while high / low > 1.03:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if descends(middle) else (low, middle)
    return low


def _start(seed: int, rep: int, scale: Scale) -> list[Row]:
    """Algorithm 1 from the rank-d SVD, as written, and from the d largest eigenvalues."""
    rows = []
    for cell, drawn, parts in _split(scale.start_n, scale.start_x, seed, rep):
        for eta in START_ETAS:
            for name, start in _both_starts(parts[0], eta).items():
                answers = [paper.answer(part, start) for part in parts]
                for steps in START_ITERATIONS:
                    row = {**_place(cell, name), "eta": eta, "iterations": steps}
                    try:
                        fit = paper.finish(
                            parts[0], start, answers, step_size=eta, max_iter=steps, tol=1e-5
                        )
                        row["error"] = np.linalg.norm(fit.U @ fit.V.T - drawn.theta)
                    except DivergenceError:
                        row["error"] = None
                    rows.append(row)
    return rows


def _both_starts(hub: Records, eta: float) -> dict[str, paper.Start]:
    signed = paper.make_start(hub, D, step_size=eta)
    full = paper.make_start(hub, P, step_size=eta)  # all eigenvalues of the same matrix
    sizes = (full.U**2).sum(axis=0) * full.signs
    top = np.argsort(-sizes)[:D]
    positive = full.U[:, top] * (sizes[top] > 0)
    return {"signed": signed, "positive": paper.Start(positive, np.ones(D))}


CHECKS: dict[str, Callable[[int, int, Scale], list[Row]]] = {
    "rate": _rate,
    "sites": _sites,
    "step": _step,
    "start": _start,
}
