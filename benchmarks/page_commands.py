"""Commands in stored runs against the cost model, and what a command costs beside the model.

The model is that of steps in a process that holds its records (`benchmarks.growth`).  A command
also starts Python, reads a site folder, and writes a file: those seconds are fitted to the answers
of results/papersize.json, large.md and federation/exchange.md, as far as they ran on the processor
of the model.  Whether reading costs by the record or by the record and code the rows do not tell:
both are fitted (BESIDE), and what they say is told as a range.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exchange, large, papersize, tables
from benchmarks.growth import Work, cost, fit_units, predicted
from benchmarks.source import told_processor
from daniel.core.spectrum import WHOLE
from daniel.core.synthetic import NUMBER

Model = dict[str, Any]
Row = dict[str, Any]
Variant = tuple[Work, Model]
ONCE: Work = {"command": lambda n, p, d: 1.0}
FILES: Work = {"entry of the arrays and files of a command, p²": lambda n, p, d: p * p}
BESIDE: tuple[Work, ...] = (
    {**ONCE, "record that is read, n": lambda n, p, d: n, **FILES},
    {**ONCE, "record and code, np": lambda n, p, d: n * p, **FILES},
)
COMMANDS = {
    "papersize": "python -m benchmarks.papersize",
    "large": "python -m benchmarks.large",
    "exchange": "python -m benchmarks.exchange",
}
AUTOMATIC = 50  # columns of an automatic start, about: with few records they hardly matter
EXPLANATION = """The points above are small, and run in one process. These are whole commands in
stored runs of the same processor, most of them far outside. *Step*: what the model says of the step
alone. *Command*: with the seconds of a command beside it, fitted to these rows, once by the record
and once by the record and code. *From the others*: the same fitted without the row, which fails
where the row alone tells a term. Rank 1 is a start at independence. Answers of masked studies also
expand masks, which the model leaves out."""
HUB = """*Hub*: start, own answer and finish. *Model*: {sweeps:.0f} full sweeps, which is what the
hub took at the paper's size in sweeps of its own. Above {most:,} codes the solver has no stage on a
part of the records with the derivative of all: this number does not apply, and there is no figure.
*Records*: those that are swept; after a start at independence they are {synthetic:,} synthetic
ones."""


@dataclass(frozen=True)
class Stored:
    """answers: rows with run, n, p, d, seconds, processor; hubs: the same.

    sweeps: full sweeps of a whole fit at the hub, None where the full sweep is not stored;
    processor: of the run at the paper's size, None where it is not there or not told.
    """

    answers: list[Row]
    hubs: list[Row]
    sweeps: float | None
    processor: str | None = None

    def on(self, processor: str) -> "Stored":
        """What ran on this processor."""
        answers, hubs = (
            [row for row in rows if row["processor"] == processor]
            for rows in (self.answers, self.hubs)
        )
        return replace(self, answers=answers, hubs=hubs)


def _row(run: str, processor: str | None, n: float, p: float, d: float, seconds: float) -> Row:
    return {"run": run, "n": n, "p": p, "d": d, "seconds": seconds, "processor": processor}


def stored(results: Path) -> Stored:
    """What the runs in a folder of results took; those that are not there are left out."""
    answers: list[Row] = []
    hubs: list[Row] = []
    sweeps = processor = None
    if (path := results / "papersize.json").exists():
        found = json.loads(path.read_text("utf-8"))
        took = {row["step"]: row["seconds"] for row in found["steps"]}
        hub, site = found["records at the hub"], found["records at the other site"]
        size = found["codes"], found["components"]
        processor = found.get("machine", {}).get("processor")
        answers.append(_row("papersize, hub", processor, hub, *size, took["own answer"]))
        answers.append(_row("papersize, site", processor, site, *size, took["answer"]))
        spent = sum(took.values()) - took["answer"]
        hubs.append(_row("papersize", processor, hub, *size, spent))
        sweeps = spent / found[papersize.FULL] if papersize.FULL in found else None
    if (path := results / "large.md").exists():
        for made in large.runs(path.read_text("utf-8")):
            size = made.size.records, made.size.p
            took = made.seconds["plain"]
            d = made.size.components if made.fitted else 1
            answers.append(_row("large", made.processor, *size, d, took["answer"]))
            swept = made.size.records if made.fitted else NUMBER[1]
            spent = took["start"] + took["finish"]
            size = swept, made.size.p
            hubs.append(_row("large", made.processor, *size, made.size.components, spent))
    if (path := results / "federation" / "exchange.md").exists():
        text = path.read_text("utf-8")
        for row in tables.read(text):
            n, p = exchange.RECORDS, tables.number(row["codes"])
            d = AUTOMATIC if n > large.SMALL_HUB * p else 1
            spent, where = tables.number(row["answer"]), told_processor(text)
            answers.append(_row("exchange, masked", where, n, p, d, spent))
    return Stored(answers, hubs, sweeps, processor)


def beside(model: Model, rows: list[Row]) -> list[Variant]:
    """Fitted seconds of a command beside the step, by each of BESIDE; none with too few rows."""
    if model["passes"] is None or len(rows) < len(BESIDE[0]):
        return []
    known = np.array([predicted(model, "answer", r["n"], r["p"], r["d"]) for r in rows])
    return [(units, fit_units(units, rows, "seconds", known)) for units in BESIDE]


def answer(model: Model, fitted: list[Variant]) -> Callable[[float, float, float], list[float]]:
    """(n, p, d) -> least and most seconds of an answer; of the step alone without variants."""

    def seconds(n: float, p: float, d: float) -> list[float]:
        more = [cost(units, found, n, p, d) for units, found in fitted] or [0.0]
        step = predicted(model, "answer", n, p, d)
        return [step + min(more), step + max(more)]

    return seconds


def elsewhere(found: Stored, processor: str) -> list[str]:
    """Runs that say nothing beside a model of this processor, and how to run them again."""
    away = {
        row["run"].split(",")[0]: row["processor"]
        for row in found.answers
        if row["processor"] != processor
    }
    if not away:
        return []
    said = "; ".join(
        f"{run} ({where or 'processor not stored'}), `{COMMANDS[run]}`"
        for run, where in away.items()
    )
    return [f"Not held against the model, which is of {processor}: {said}.", ""]


def section(model: Model, found: Stored, processor: str) -> list[str]:
    """Tables of what the model says of the stored commands."""
    if not found.answers:
        return []
    here = found.on(processor)
    rows, away = here.answers, elsewhere(found, processor)
    lines = ["### The model against whole commands", ""]
    if model["passes"] is None or not rows:
        lines += away
        if model["passes"] is None:
            lines += [
                "The stored growth has no passes, without which there is no model of an answer "
                "of a site: `python -m benchmarks.growth`.",
                "",
            ]
        return lines
    lines += [EXPLANATION, "", *away]
    lines += [tables.made([_answer_cells(model, rows, i) for i in range(len(rows))]), ""]
    if here.sweeps is not None and found.processor == processor:
        lines += [HUB.format(sweeps=here.sweeps, most=WHOLE, synthetic=NUMBER[1]), ""]
        lines += [tables.made([_hub_cells(model, row, here.sweeps) for row in here.hubs]), ""]
    return lines


def _size(row: Row) -> dict[str, str]:
    names = {"records": row["n"], "codes": row["p"], "rank": row["d"]}
    return {"run": row["run"]} | {name: f"{round(value):,}" for name, value in names.items()}


def _told(seconds: list[float], measured: float) -> str:
    """Seconds and their ratio, each as a range where it is one."""
    said = list(dict.fromkeys(f"{s:.1f}" for s in seconds))
    ratios = list(dict.fromkeys(f"{s / measured:.2f}" for s in seconds))
    return f"{' to '.join(said)} s ({' to '.join(ratios)} ×)"


def _answer_cells(model: Model, rows: list[Row], i: int) -> dict[str, str]:
    size, measured = (rows[i]["n"], rows[i]["p"], rows[i]["d"]), rows[i]["seconds"]
    fitted, others = (beside(model, some) for some in (rows, rows[:i] + rows[i + 1 :]))
    return _size(rows[i]) | {
        "answer, measured": f"{measured:.1f} s",
        "step": _told(answer(model, [])(*size), measured),
        "command": _told(answer(model, fitted)(*size), measured) if fitted else "–",
        "from the others": _told(answer(model, others)(*size), measured) if others else "–",
    }


def _hub_cells(model: Model, row: Row, sweeps: float) -> dict[str, str]:
    said = sweeps * predicted(model, "sweep", row["n"], row["p"], row["d"])
    return _size(row) | {
        "hub, measured": f"{row['seconds']:.0f} s",
        "model": _told([said], row["seconds"]) if row["p"] <= WHOLE else "–",
    }
