"""`daniel simulate`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import typer

from daniel.cli.app import app
from daniel.errors import ParameterError

T = TypeVar("T", int, float)


@app.command()
def simulate(
    design: str = typer.Option("all", help="main, dimension, theory, or all."),
    reps: int | None = typer.Option(
        None, help="Repetitions of every cell; 50 at p = 50 and 20 elsewhere unless given."
    ),
    jobs: int | None = typer.Option(
        None, help="Processes, one thread each; as many as there are cores unless given."
    ),
    seed: int = typer.Option(0, help="Seed of the whole study."),
    n: str = typer.Option("", help="Records, as 1000,5000; the design's own unless given."),
    p: str = typer.Option("", help="Codes, as 50,100."),
    x: str = typer.Option("", help="Distributedness, as 0,0.3: floor(n^x) sites."),
    d: int | None = typer.Option(None, help="Rank of the truth; p/10 unless given."),
    methods: str = typer.Option("", help="Methods, as default,paper; all unless given."),
    out: Path | None = typer.Option(None, help="Folder; results/simulation unless given."),
    quick: bool = typer.Option(False, "--quick", help="A small study in under two minutes."),
) -> None:
    """The paper's simulation study: run it, or go on with it, and write its tables and figures."""
    from daniel.simulation.whole import study

    with _bars() as progress:
        written = study(
            design,
            reps=reps,
            jobs=jobs,
            seed=seed,
            n=_numbers("n", n, int),
            p=_numbers("p", p, int),
            x=_numbers("x", x, float),
            d=d,
            methods=[name.strip() for name in methods.split(",") if name.strip()],
            out=out,
            quick=quick,
            progress=progress,
        )
    for path in written:
        typer.echo(path)


def _numbers(name: str, text: str, kind: Callable[[str], T]) -> list[T]:
    """The numbers of a list with commas."""
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ParameterError(f"--{name} is {text!r}; expected numbers with commas.") from None


@contextmanager
def _bars() -> Iterator[Callable[[str, float, float], None]]:
    """One bar for each part of the study, with the time left, on stderr."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), speed_estimate_period=600)
    tasks: dict[str, TaskID] = {}

    def show(part: str, done: float, total: float) -> None:
        if part not in tasks:
            bar.start()  # not before there is something to show: an error stands alone
            tasks[part] = bar.add_task(part, total=total)
        bar.update(tasks[part], completed=done, total=total)

    try:
        yield show
    finally:
        if tasks:
            bar.stop()
