"""Commands in stored runs against the cost model, and what a command costs beside the model.

The model is that of steps in a process that holds its records (`benchmarks.growth`).  A command
also starts Python, reads a site folder, and writes a file: those seconds are fitted to the answers
of results/papersize.json, large.md and federation/exchange.md.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exchange, large, tables
from benchmarks.growth import Work, cost, fit_units, predicted
from daniel.core.synthetic import NUMBER

Model = dict[str, Any]
Row = dict[str, Any]
BESIDE: Work = {
    "command": lambda n, p, d: 1.0,
    "record that is read, n": lambda n, p, d: n,
    "entry of the arrays and files of a command, p²": lambda n, p, d: p * p,
}
AUTOMATIC = 50  # columns of an automatic start, about: with few records they hardly matter
EXPLANATION = """The points above are small, and run in one process. These are whole commands in
stored runs, most of them far outside. *Step*: what the model says of the step alone. *Command*:
with the seconds of a command beside it, fitted to these rows. *From the others*: the same fitted
without the row, which fails where the row alone tells a term. Rank 1 is a start at independence.
Answers of masked studies also expand masks, which the model leaves out."""
HUB = """*Hub*: start, own answer and finish. *Model*: {units:.0f} sweeps, which is what the first
row took in bare sweeps of its own. *Records*: those that are swept; after a start at independence
they are {synthetic:,} synthetic ones, and what else the finish of very many codes does, its spectra
most of all, is outside the model."""


@dataclass(frozen=True)
class Stored:
    """answers: rows with run, n, p, d, seconds; hubs: the same; units: sweeps of a whole fit."""

    answers: list[Row]
    hubs: list[Row]
    units: float | None


def _row(run: str, n: float, p: float, d: float, seconds: float) -> Row:
    return {"run": run, "n": n, "p": p, "d": d, "seconds": seconds}


def stored(results: Path) -> Stored:
    """What the runs in a folder of results took; those that are not there are left out."""
    answers: list[Row] = []
    hubs: list[Row] = []
    units = None
    if (path := results / "papersize.json").exists():
        found = json.loads(path.read_text("utf-8"))
        took = {row["step"]: row["seconds"] for row in found["steps"]}
        hub, site = found["records at the hub"], found["records at the other site"]
        size = found["codes"], found["components"]
        answers.append(_row("papersize, hub", hub, *size, took["own answer"]))
        answers.append(_row("papersize, site", site, *size, took["answer"]))
        hubs.append(_row("papersize", hub, *size, sum(took.values()) - took["answer"]))
        units = hubs[0]["seconds"] / found["seconds of a bare sweep over the hub (unit)"]
    if (path := results / "large.md").exists():
        for made in large.runs(path.read_text("utf-8")):
            size = made.size.records, made.size.p
            took = made.seconds["plain"]
            d = made.size.components if made.fitted else 1
            answers.append(_row("large", *size, d, took["answer"]))
            swept = made.size.records if made.fitted else NUMBER[1]
            spent = took["start"] + took["finish"]
            hubs.append(_row("large", swept, made.size.p, made.size.components, spent))
    if (path := results / "federation" / "exchange.md").exists():
        for row in tables.read(path.read_text("utf-8")):
            n, p = exchange.RECORDS, tables.number(row["codes"])
            d = AUTOMATIC if n > large.SMALL_HUB * p else 1
            answers.append(_row("exchange, masked", n, p, d, tables.number(row["answer"])))
    return Stored(answers, hubs, units)


def beside(model: Model, rows: list[Row]) -> Model | None:
    """Fitted seconds of a command beside the step; None with fewer rows than units."""
    if len(rows) < len(BESIDE):
        return None
    known = np.array([predicted(model, "answer", r["n"], r["p"], r["d"]) for r in rows])
    return fit_units(BESIDE, rows, "seconds", known)


def answer(model: Model, fitted: Model | None) -> Callable[[float, float, float], float]:
    """(n, p, d) -> seconds of an answer: the command where it is fitted, else the step alone."""

    def seconds(n: float, p: float, d: float) -> float:
        more = 0.0 if fitted is None else cost(BESIDE, fitted, n, p, d)
        return predicted(model, "answer", n, p, d) + more

    return seconds


def section(model: Model, found: Stored) -> list[str]:
    """Tables of what the model says of the stored commands."""
    fitted = beside(model, found.answers)
    if fitted is None:
        return []
    lines = ["### The model against whole commands", "", EXPLANATION, ""]
    rows = found.answers
    lines += [tables.made([_answer_cells(model, rows, i) for i in range(len(rows))]), ""]
    if found.units is not None:
        lines += [HUB.format(units=found.units, synthetic=NUMBER[1]), ""]
        lines += [tables.made([_hub_cells(model, row, found.units) for row in found.hubs]), ""]
    return lines


def _size(row: Row) -> dict[str, str]:
    names = {"records": row["n"], "codes": row["p"], "rank": row["d"]}
    return {"run": row["run"]} | {name: f"{round(value):,}" for name, value in names.items()}


def _told(seconds: float, measured: float) -> str:
    return f"{seconds:.1f} s ({seconds / measured:.2f} ×)"


def _answer_cells(model: Model, rows: list[Row], i: int) -> dict[str, str]:
    size, measured = (rows[i]["n"], rows[i]["p"], rows[i]["d"]), rows[i]["seconds"]
    others = beside(model, rows[:i] + rows[i + 1 :])
    return _size(rows[i]) | {
        "answer, measured": f"{measured:.1f} s",
        "step": _told(answer(model, None)(*size), measured),
        "command": _told(answer(model, beside(model, rows))(*size), measured),
        "from the others": "–" if others is None else _told(answer(model, others)(*size), measured),
    }


def _hub_cells(model: Model, row: Row, units: float) -> dict[str, str]:
    said = units * predicted(model, "sweep", row["n"], row["p"], row["d"])
    return _size(row) | {
        "hub, measured": f"{row['seconds']:.0f} s",
        "model": _told(said, row["seconds"]),
    }
