"""The command `daniel` itself: its group, its version, and how it shows an error.

An error of daniel's own appears as one sentence on stderr with exit code 2, without a traceback;
so does a machine that has no room left.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from daniel import __version__
from daniel.errors import DanielError, ParameterError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class OneSentence(TyperGroup):
    """A command group that shows an error it has a sentence for as that, and nothing else."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            told = _sentence(error)
            if told is None:
                raise
            typer.echo(f"daniel: {' '.join(told.split())}", err=True)
            raise typer.Exit(2) from error


def _sentence(error: Exception) -> str | None:
    if isinstance(error, DanielError):
        return str(error)
    if isinstance(error, MemoryError):
        return "The memory of this machine is used up: use a larger one, or fewer codes."
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        why = error.strerror
        return f"A disk cannot be written ({why}): make room on it, or choose another place."
    return None


@contextmanager
def named(**options: str) -> Iterator[None]:
    """Parameters in a message by the names of their options: `k is 60` as `--clusters is 60`."""
    try:
        yield
    except ParameterError as error:
        name, _, rest = str(error).partition(" is ")
        if name not in options:
            raise
        raise ParameterError(f"{options[name]} is {rest}") from error


app = typer.Typer(
    name="daniel",
    cls=OneSentence,
    help="Federated low-rank Ising embeddings of medical codes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals hold records, and logs leave hospitals
)


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"daniel {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Federated low-rank Ising embeddings of medical codes."""
