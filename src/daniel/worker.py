"""What runs on the workers of a Dask cluster: sums over a part of the records.

Dask writes the arguments of failed tasks to its logs.  Everything that is sent is therefore
`Hidden`, and an exception of a worker comes back as its name and line alone.
"""

import traceback
from dataclasses import dataclass, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from daniel.core.place import Work
from daniel.core.threads import one_thread
from daniel.fingerprint import fingerprint

CORE = fingerprint("daniel.core")  # of what is imported, here and on a worker


@dataclass(frozen=True, repr=False)
class Hidden:
    """A value that shows nothing of itself but its type and size."""

    value: Any

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__}, {self.__sizeof__()} bytes>"

    def __sizeof__(self) -> int:
        """Dask asks for it, to know what it keeps and what a move costs."""
        return _bytes(self.value)


def _bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if is_dataclass(value) and not isinstance(value, type):
        value = tuple(vars(value).values())
    return 64 + (sum(map(_bytes, value)) if isinstance(value, tuple) else 0)


class WorkFailed(Exception):
    """An exception of a worker, by its name and line alone: its text could hold data."""


def _named(error: Exception) -> str:
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} ({Path(line.filename).name}, line {line.lineno})"


def run(work: Work, part: Hidden, shared: Hidden, item: Any, core: str) -> Hidden:
    """`work` on one part, on the calling thread alone: Dask runs as many as there are threads.

    core: the code that is expected.  A part may have moved to a worker that nobody has asked yet.
    """
    if core != CORE:
        raise WorkFailed("other code")
    try:
        with one_thread():
            return Hidden(work(part.value, shared.value, item))
    except Exception as error:
        name = _named(error)
    raise WorkFailed(name)


def add(a: Hidden, b: Hidden) -> Hidden:
    try:
        return Hidden(tuple(x + y for x, y in zip(a.value, b.value, strict=True)))
    except Exception as error:
        name = _named(error)
    raise WorkFailed(name)


def version_and_core() -> str:
    return f"{version('daniel')} (core {CORE})"
