"""What long work shows: a bar for each stage; step, loss, steps and time left, memory of a fit; how
long other work has taken.

Elsewhere than on a terminal, as in the log of a batch job, it is a line now and then.
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from math import log
from threading import Event, Thread
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from daniel.core.solve import Progress

LOOK_BACK = (2, 5)  # steps over which the decrease is judged: at least, and at most
PAUSE = 30.0  # seconds between two lines of a log
SECOND = 1.0  # between two looks at the clock


class Show(Protocol):
    """Says which share of a stage is done."""

    def __call__(self, stage: str, share: float, note: str = "") -> None: ...


@contextmanager
def stages() -> Iterator[Show]:
    """One bar a stage on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        log = _Log(console)
        yield lambda stage, share, note="": log(f"{stage}: {share:.0%} {note}".rstrip())
        return
    columns = (
        TextColumn("{task.description:20}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, share: float, note: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=1.0, note="")
            bars.update(tasks[stage], completed=share, note=note)

        yield show


@contextmanager
def watched(what: str) -> Iterator[Progress]:
    """A progress line of a fit on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Line(what, _Log(console))
        return
    with console.status(f"{what} ...") as status:
        yield _Line(what, status.update)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A clock beside what is done, for work that tells nothing on its way."""
    begin, over = time.monotonic(), Event()

    def tick() -> None:
        while not over.wait(SECOND):
            line(f"{what}: {time.monotonic() - begin:.0f} s, {memory():,.0f} MB")

    console = Console(stderr=True)
    status = console.status(f"{what} ...") if console.is_terminal else None
    line = _Log(console) if status is None else status.update
    clock = Thread(target=tick, daemon=True)
    with status or nullcontext():
        clock.start()
        try:
            yield
        finally:
            over.set()
            clock.join()


class _Log:
    """Prints what it is told, at most once in PAUSE seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = time.monotonic()

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if now - self.last >= PAUSE:
            self.last = now
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)


class _Line:
    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self.what = what
        self.say = say
        self.losses: list[float] = []
        self.times: list[float] = []

    def __call__(self, step: int, loss: float, enough: float | None) -> None:
        if step == 1:  # a new part, or a new fit
            self.losses, self.times = [], []
        self.losses.append(loss)
        self.times.append(time.monotonic())
        left = ""
        steps = None if enough is None else steps_left(self.losses, enough)
        if steps is not None and len(self.times) > 1:
            each = (self.times[-1] - self.times[0]) / (len(self.times) - 1)
            left = f", about {steps} steps ({steps * each:.0f} s) left"
        where = " on a part of the records" if enough is None else ""
        self.say(f"{self.what}{where}: step {step}, loss {loss:.4f}{left}, {memory():,.0f} MB")


def steps_left(losses: list[float], enough: float) -> int | None:
    """Steps until the loss falls by less than is enough, if it goes on falling as it did."""
    falls = [old - new for old, new in pairwise(losses)]
    least, most = LOOK_BACK
    back = min(len(falls) - 1, most)
    if back < least or min(*falls, enough) <= 0 or falls[-1] >= falls[-1 - back]:
        return None
    rate = log(falls[-1 - back] / falls[-1]) / back
    return max(1, round(log(max(1.0, falls[-1] / enough)) / rate))


def memory() -> float:
    """Peak memory of this process in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
