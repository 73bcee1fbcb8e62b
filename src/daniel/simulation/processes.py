"""Jobs over processes of one thread each, whose results come back as they end."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from threadpoolctl import threadpool_limits

from daniel.errors import DanielError
from daniel.simulation.design import Cell, draw
from daniel.simulation.methods import METHODS, measure


@contextmanager
def workers(jobs: int) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]]:
    """``work(function, items)`` over so many processes: each result as soon as it is there.

    Every process has a single thread, so that times and the last digits of results do not depend on
    how many there are.  They end when this end of a pipe closes, also when this process is killed.
    """
    context = get_context("spawn")  # a fork would copy the state of running threads
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, context, initializer=_prepare, initargs=(theirs,))

    def work(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for future in as_completed([pool.submit(function, item) for item in items]):
            yield future.result()

    try:
        yield work
        pool.shutdown()
    except BrokenProcessPool as error:
        raise DanielError(
            "A process of the study ended by itself, often for want of memory; run the same "
            "command with fewer --jobs: it goes on where this one stopped."
        ) from error
    finally:
        ours.close()
        pool.shutdown(wait=False, cancel_futures=True)


def _prepare(parent: Connection) -> None:
    """In a new process: one thread, no own reaction to Ctrl-C, compiled kernels loaded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.environ["DANIEL_NUM_THREADS"] = "1"
    threadpool_limits(1)
    for x in (0.0, 0.2, 0.6):  # one site, a hub of some size, and a small one
        cell = Cell(400, 20, 2, x)
        drawn = draw(cell, 0, 0)
        for name in METHODS:
            measure(name, cell, drawn, 0.1)


def _end_with(parent: Connection) -> None:
    try:
        parent.recv()
    except (EOFError, OSError):
        os._exit(1)
