"""The runner: many repetitions over processes, written one by one, resumed where it stopped.

One job is one repetition at one (n, p): it draws truth and records once and fits every method at
every x.  Each process works with a single thread, so that times do not depend on the neighbours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from daniel.errors import ParameterError
from daniel.simulation.design import Cell, Design, draw, make_design
from daniel.simulation.methods import METHODS, PILOTS, STEPS, measure, read_methods
from daniel.simulation.processes import workers
from daniel.simulation.store import (
    PILOT,
    append_rows,
    check_design,
    chosen_steps,
    make_header,
    open_results,
    read_results,
)

Progress = Callable[[float, float], None]  # (work done, all work)
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Fits of one repetition: (cell, method, eta) each; all cells share n, p and d."""

    fits: tuple[tuple[Cell, str, float], ...]
    seed: int
    rep: int
    pilot: bool = False

    @property
    def cost(self) -> float:
        """Rough time, for the share of work that is done."""
        return sum((cell.n / cell.m + 500) * cell.p**1.5 for cell, _, _ in self.fits)


def run(
    design: str | Design = "main",
    *,
    reps: int | None = None,
    jobs: int = 1,
    seed: int = 0,
    methods: Sequence[str] | None = None,
    out: str | Path = "results/simulation",
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Run a design, or what of it is missing in ``<out>/<design>.csv``, and return all results.

    design: "main", "dimension", or one of make_design.  reps: repetitions of every cell; by default
    50 for the main design at p = 50 and 20 elsewhere.  More can be added by a later run.  As with
    every use of processes, a script calls this under ``if __name__ == "__main__":``.

    >>> from daniel import simulation
    >>> small = simulation.make_design("main", n=[1000], p=[50], x=[0, 0.3])
    >>> results = simulation.run(small, reps=2, out="trial")             # doctest: +SKIP
    """
    design = make_design(design) if isinstance(design, str) else design
    names = read_methods(methods)
    check_numbers(reps, jobs, seed)
    path = Path(out) / f"{design.name}.csv"
    head = make_header(design, seed)
    open_results(path, head)
    pilots = _pilot_jobs(design, names, seed, read_results(path))
    # Steps are not known before the pilots: any number stands for them while counting the work.
    ahead = sum(job.cost for job in _study_jobs(design, names, seed, reps, path, default=STEPS[0]))
    total = ahead + sum(job.cost for job in pilots)
    if not total:
        return read_results(path)
    check_design(path, head, adding=True)
    done = 0.0
    with workers(jobs) as work:
        for stage in (pilots, None):
            todo = stage if stage is not None else _study_jobs(design, names, seed, reps, path)
            for cost, rows in work(run_job, todo):
                append_rows(path, rows)
                done += cost
                if progress is not None:
                    progress(done, total)
    return read_results(path)


def run_job(job: Job) -> tuple[float, list[Row]]:
    """All fits of one job, as rows of the result file."""
    drawn = draw(job.fits[0][0], job.seed, job.rep, pilot=job.pilot)
    rows = []
    for cell, name, eta in job.fits:
        result = measure("paper" if name == PILOT else name, cell, drawn, eta)
        rows.append(
            {
                **{"n": cell.n, "p": cell.p, "d": cell.d, "x": cell.x, "m": cell.m},
                **{"method": name, "rep": job.rep, "eta": eta if _uses_step(name) else None},
                **vars(result),
            }
        )
    return job.cost, rows


def _uses_step(name: str) -> bool:
    return name == PILOT or METHODS[name].uses_step


def _pilot_jobs(
    design: Design, names: Sequence[str], seed: int, results: pd.DataFrame
) -> list[Job]:
    """The fits that choose eta for each (n, p) which has no choice yet."""
    if not any(METHODS[name].uses_step for name in names):
        return []
    rows = results[results["method"] == PILOT]
    there = set(zip(rows["n"], rows["p"], rows["rep"], rows["eta"], strict=True))
    jobs = []
    for rep in range(PILOTS):
        for cell in _largest_first(design):
            fits = tuple(
                (cell, PILOT, eta) for eta in STEPS if (cell.n, cell.p, rep, eta) not in there
            )
            if fits:
                jobs.append(Job(fits, seed, rep, pilot=True))
    return jobs


def _study_jobs(
    design: Design,
    names: Sequence[str],
    seed: int,
    reps: int | None,
    path: Path,
    default: float | None = None,
) -> list[Job]:
    """What is missing, repetition by repetition, so that an early end leaves all cells alike."""
    results = read_results(path)
    steps = chosen_steps(results)
    key = [results[c] for c in ("n", "p", "x", "method", "rep")]
    there = set(zip(*key, strict=True))
    jobs = []
    most = max(design.reps(p, reps) for p in design.p)
    for rep in range(most):
        for base in _largest_first(design):
            if rep >= design.reps(base.p, reps):
                continue
            eta = steps.get((base.n, base.p), default or 0.0)
            fits = tuple(
                (cell, name, eta)
                for cell, name in _fits(design, base, names)
                if (cell.n, cell.p, cell.x, name, rep) not in there
            )
            if fits:
                jobs.append(Job(fits, seed, rep))
    return jobs


def _largest_first(design: Design) -> Iterator[Cell]:
    """One cell at x = 0 for each (n, p); long jobs first keep all processes busy to the end."""
    pairs = sorted(((n, p) for n in design.n for p in design.p), key=lambda q: -q[0] * q[1])
    return (design.cell(n, p, 0.0) for n, p in pairs)


def _fits(design: Design, base: Cell, names: Sequence[str]) -> Iterator[tuple[Cell, str]]:
    """Every method at every x; those that do not know the sites once, at x = 0."""
    for x in design.x:
        for name in names:
            if METHODS[name].uses_sites:
                yield design.cell(base.n, base.p, x), name
    for name in names:
        if not METHODS[name].uses_sites:
            yield base, name


def check_numbers(reps: int | None, jobs: int, seed: int) -> None:
    """Raise a ParameterError for a number that cannot work."""
    for name, value, least in (("reps", reps, 1), ("jobs", jobs, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise ParameterError(f"{name} is {value}; expected a whole number >= {least}.")
