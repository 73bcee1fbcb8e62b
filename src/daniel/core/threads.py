"""Blocks of rows over threads, with BLAS held to one thread inside each."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from daniel.errors import ParameterError

T = TypeVar("T")


@cache
def n_threads() -> int:
    """Usable cores; the environment variable DANIEL_NUM_THREADS overrides."""
    wanted = os.environ.get("DANIEL_NUM_THREADS")
    if wanted:
        if not wanted.isdigit() or wanted == "0":
            raise ParameterError(
                f"DANIEL_NUM_THREADS is {wanted!r}; give a whole number of threads, at least 1."
            )
        return int(wanted)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads(), thread_name_prefix="daniel")


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """For many small products: waking a second thread costs more than each of them."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


def run_parts(work: Callable[[int], T], parts: int) -> Sequence[T]:
    """[work(0), ..., work(parts - 1)], one thread each; results in order, so sums reproduce."""
    if parts == 1:
        return [work(0)]
    with one_blas_thread():
        return list(_pool().map(work, range(parts)))
