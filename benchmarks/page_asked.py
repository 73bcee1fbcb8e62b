"""What was asked of this software, what the stored results show, and whether it is met."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import growth, large, page_dask, page_growth, page_races, papersize, tables
from benchmarks.catalogue import OURS, PROBLEMS
from benchmarks.page_races import Run

NOT_STORED = "not stored"
SAME = 1e-5  # relative difference of two fits that are the same
EXPLANATION = """## What was asked, and what was found

Each line is read from the stored results below. *Not stored*: nothing there tells."""
SIZES = {"n": "records", "p": "codes", "d": "rank"}
INTERRUPTED = (
    "an interrupted run resumes to the same result; a full disk, a file that vanished or a dead "
    "scheduler end in one clear sentence"
)
TESTS = "the test suite checks it (tests/federated/test_resume.py, tests/cluster)"


@dataclass(frozen=True)
class Line:
    asked: str
    found: str = NOT_STORED
    met: str = NOT_STORED

    def cells(self) -> dict[str, str]:
        return {"asked": self.asked, "found": self.found, "met": self.met}


def section(results: Path, races: list[Run]) -> list[str]:
    """The table; races: the runs that count."""
    found = [
        *paper_size(_json(results / "papersize.json")),
        *exponents(_json(results / "growth.json")),
        *cluster(_text(results / "dask.txt")),
        many_codes(_text(results / "large.md")),
        together(races),
        *[line for name in PROBLEMS for line in raced(name, races)],
        Line(INTERRUPTED, f"{NOT_STORED}; {TESTS}"),
    ]
    return [EXPLANATION, "", tables.made([line.cells() for line in found]), ""]


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(_text(path) or "{}"))


def at_most(
    asked: str, value: float | None, bound: float, show: Callable[[float], str], beside: str = ""
) -> Line:
    """A number that must not pass a bound."""
    if value is None:
        return Line(asked)
    over = f"no, {value / bound:.2f} times what was asked"
    return Line(asked, show(value) + beside, "yes" if value <= bound else over)


# --- the lines ------------------------------------------------------------------------------------


def paper_size(found: dict[str, Any]) -> list[Line]:
    single = found.get(papersize.SINGLE)
    beside = "" if single is None else f" (in single precision {_part(single)})"
    above = found.get(papersize.RUN_ON, {}).get(papersize.ABOVE)
    memory = found.get(papersize.MEMORY)
    head = "paper's size, "
    return [
        at_most(
            head + "hub: at most 60 bare sweeps over its records",
            found.get(papersize.UNITS),
            60,
            lambda x: f"{x:.1f}",
        ),
        at_most(
            head + "hub: at most 1/40 of 200 iterations of the dense way, extrapolated, in double "
            "precision",
            found.get(papersize.DOUBLE),
            1 / 40,
            _part,
            beside,
        ),
        at_most(
            head + "memory of every step: at most 3 GB",
            None if memory is None else memory / 1000,
            3,
            lambda x: f"{x:.2f} GB",
        ),
        at_most(
            head + "a site's answer: at most 1 × the bare product X'R",
            found.get(papersize.PRODUCT),
            1,
            lambda x: f"{x:.2f} ×",
        ),
        at_most(
            head + "loss: at most 0.5 % above the end of the same objective",
            above,
            0.5,
            lambda x: f"{x:.2f} % above",
        ),
    ]


def _part(share: float) -> str:
    return f"1/{1 / share:.0f}"


def exponents(found: dict[str, Any]) -> list[Line]:
    """Time of each step against each size."""
    lines = []
    for step in growth.POWERS:
        for name, (low, high) in page_growth.EXPECTED.items():
            asked = f"{step}: time grows with {SIZES[name]} as {name}^{low} to {name}^{high}"
            fit = found.get("exponents", {}).get(step, {}).get(name)
            lines.append(Line(asked) if fit is None else _power(asked, fit, low, high))
    return lines


def _power(asked: str, fit: dict[str, Any], low: float, high: float) -> Line:
    value = round(fit["exponent"], 2)
    slower = f"no, it grows more slowly: {low - value:.2f} below"
    out = slower if value < low else f"no, {value - high:.2f} above"
    met = "yes" if low <= value <= high else out
    return Line(asked, f"{value:.2f} ± {fit['error']:.2f}", met)


def cluster(text: str) -> list[Line]:
    """What commands do on two workers, fits and answers, and a fit of which one is killed."""
    bound = f"at most {page_dask.BOUND} × the time here"
    rows, apart = page_dask.ratios(text), page_dask.differences(text)
    remark = page_dask.remarks(text)
    fits = {
        k: v for k, v in rows.items() if k.startswith(page_dask.FIT) and page_dask.KILLED not in k
    }
    answers = {k: v for k, v in rows.items() if k.startswith(page_dask.ANSWER)}

    def lines(what: str, some: dict[str, float]) -> list[Line]:
        found = [
            at_most(
                *(f"{what}: {bound}", v, page_dask.BOUND, lambda x: f"{x:.2f} ×"),
                f" ({_short(k)}{remark[k]})",
            )
            for k, v in some.items()
        ]
        return found or [Line(f"{what}: {bound}")]

    killed = next((v for k, v in apart.items() if page_dask.KILLED in k), None)
    same = at_most(
        "two Dask workers, one killed on the way: the same answer, to 0.001 %",
        killed,
        SAME,
        lambda x: f"relative difference {x:.1e}",
    )
    return [
        *lines("two Dask workers, a fit", fits),
        *lines("two Dask workers, an answer", answers),
        same,
    ]


def _short(name: str) -> str:
    """A row of a cluster without what the line says already."""
    return name.removeprefix("answer, ")


def many_codes(text: str) -> Line:
    size = large.Size(large.P, large.RECORDS, large.COMPONENTS)
    asked = (
        f"{size.p:,} codes, {size.records:,} records, rank {size.components}: start, answer, plain "
        "and sketched, and finish complete"
    )
    made = next((r for r in (large.runs(text) if text else ()) if r.size == size), None)
    if made is None:
        return Line(asked)
    steps = {"start", "answer", "finish"}
    absent = [a for a in ("plain", "sketched") if set(made.seconds.get(a, {})) != steps]
    said = "; ".join(_steps(made, answers) for answers in made.seconds)
    return Line(asked, said, f"no, not all of {', '.join(absent)}" if absent else "yes")


def _steps(made: large.Run, answers: str) -> str:
    took = ", ".join(f"{step} {s:.0f} s" for step, s in made.seconds[answers].items())
    memory = made.memory.get(answers, {})
    return f"{answers}: {took}" + (f", {max(memory.values()):.1f} GB at most" if memory else "")


def together(races: list[Run]) -> Line:
    """Quality on all hospitals, each method in one setting; in one shot Daniel has seen least."""
    asked = "all hospitals together, one setting for all of them: ahead of every other method"
    rows = page_races.fixed(races)
    mine = next((row for row in rows if row.run["label"] == OURS["stay"]), None)
    other = next((row for row in rows if row.run["label"] not in OURS.values()), None)
    if mine is None or other is None:
        return Line(asked)
    found = f"mean AUC {mine.mean:.3f} in one shot, {other.run['label']} {other.mean:.3f}"
    lead = mine.mean - other.mean
    return Line(
        asked, found, "yes, of those that finished" if lead > 0 else f"no, {-lead:.3f} behind"
    )


def raced(problem: str, races: list[Run]) -> list[Line]:
    """Quality and time on one problem."""
    runs = [r for r in races if r["problem"] == problem]
    quality = f"{PROBLEMS[problem]}: ahead of every other method in quality"
    time = f"{PROBLEMS[problem]}: less time than every method that fits a model of pairs"
    if not runs or any(page_races.ours(runs, r) is None for r in runs):
        return [Line(quality), Line(time)]
    away = [r for r in page_races.best(runs) if r["status"] != "done"]
    end = f"; not finished: {len(away)}" if away else ""
    return [_quality(quality, runs, end), _time(time, runs, end)]


def _quality(asked: str, runs: list[Run], end: str) -> Line:
    losses = page_races.quality_losses(runs)
    worst: dict[str, page_races.Loss] = {}
    for loss in losses:
        if loss.column not in worst or loss.by > worst[loss.column].by:
            worst[loss.column] = loss
    mine = next(r for r in runs if r["label"] == OURS["pooled"])
    columns = len(page_races.columns(mine))
    behind = ", ".join(f"{v.by:.2g} in {k} ({v.label})" for k, v in worst.items())
    said = f"first in {columns - len(worst)} of {columns} columns{end}"
    return Line(asked, said, f"no, behind by {behind}" if worst else _among("yes", end))


def _time(asked: str, runs: list[Run], end: str) -> Line:
    labels = {r["label"] for r in page_races.peers(runs) if r["pairs"]}
    losses = page_races.time_losses(runs)
    slower = len(labels - {loss.label for loss in losses})
    open_ = "" if page_races.all_compared(runs) else "; not all times can be compared"
    said = f"{slower} of {len(labels)} took longer{open_}{end}"
    behind = "; ".join(
        f"{loss.label} less time, {loss.column}"
        if loss.by is None
        else f"{loss.label} {page_races.times(loss.by)}" + (f" {loss.column}" * bool(loss.column))
        for loss in losses
    )
    return Line(asked, said, f"no: {behind}" if losses else _among("yes", open_ + end))


def _among(met: str, rest: str) -> str:
    """Met as far as there is something to compare with."""
    return f"{met}, of those compared" if rest else met
