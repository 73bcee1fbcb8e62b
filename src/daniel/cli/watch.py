"""What long work shows: a bar for each stage; step, loss, steps and time left, memory of a fit."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import log
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.status import Status

from daniel.core.solve import Progress

LOOK_BACK = 5  # steps over which the decrease is judged


class Show(Protocol):
    """Says which share of a stage is done."""

    def __call__(self, stage: str, share: float, note: str = "") -> None: ...


@contextmanager
def stages() -> Iterator[Show]:
    """One bar a stage on a terminal, nothing elsewhere."""
    columns = (
        TextColumn("{task.description:20}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, share: float, note: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=1.0, note="")
            bars.update(tasks[stage], completed=share, note=note)

        yield show


@contextmanager
def watched(what: str) -> Iterator[Progress]:
    """A progress line on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step, loss, enough: None
        return
    with console.status(f"{what} ...") as status:
        yield _Line(what, status)


class _Line:
    def __init__(self, what: str, status: Status) -> None:
        self.what = what
        self.status = status
        self.losses: list[float] = []
        self.times: list[float] = []

    def __call__(self, step: int, loss: float, enough: float) -> None:
        if step == 1:  # a new part, or a new fit
            self.losses, self.times = [], []
        self.losses.append(loss)
        self.times.append(time.monotonic())
        left = ""
        steps = steps_left(self.losses, enough)
        if steps is not None and len(self.times) > 1:
            each = (self.times[-1] - self.times[0]) / (len(self.times) - 1)
            left = f", about {steps} steps ({steps * each:.0f} s) left"
        self.status.update(f"{self.what}: step {step}, loss {loss:.4f}{left}, {memory():,.0f} MB")


def steps_left(losses: list[float], enough: float) -> int | None:
    """Steps until the loss falls by less than is enough, if it goes on falling as it did."""
    falls = [old - new for old, new in pairwise(losses)]
    if len(falls) <= LOOK_BACK or min(*falls, enough) <= 0 or falls[-1] >= falls[-1 - LOOK_BACK]:
        return None
    rate = log(falls[-1 - LOOK_BACK] / falls[-1]) / LOOK_BACK
    return max(1, round(log(max(1.0, falls[-1] / enough)) / rate))


def memory() -> float:
    """Peak memory of this process in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
