"""Blocks of rows, or stripes of codes, over threads, with BLAS held to one thread inside each.

A thread of the pool knows nothing of its caller's context: what it does, it does here and alone.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from threading import Lock
from typing import TypeVar

import joblib
from threadpoolctl import ThreadpoolController

from daniel.errors import ParameterError

S = TypeVar("S")
T = TypeVar("T")
FEW_ROWS = 2_500  # of a matrix whose decomposition hardly gains by a second thread

_alone: ContextVar[bool] = ContextVar("alone", default=False)


def n_threads() -> int:
    """Cores that this process may use: a container's share, or the environment variable
    DANIEL_NUM_THREADS.  1 in `one_thread`.
    """
    return 1 if _alone.get() else _cores()


@cache
def _cores() -> int:
    wanted = os.environ.get("DANIEL_NUM_THREADS")
    if wanted:
        if not wanted.isdigit() or wanted == "0":
            raise ParameterError(
                f"DANIEL_NUM_THREADS is {wanted!r}; give a whole number of threads, at least 1."
            )
        return int(wanted)
    return int(joblib.cpu_count())


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_cores(), thread_name_prefix="daniel")


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


@cache
def _controller() -> ThreadpoolController:
    """BLAS counts the cores of the machine: from now on it has no more threads than we."""
    found = ThreadpoolController()
    if any(pool["num_threads"] > _cores() for pool in found.select(user_api="blas").info()):
        found.limit(limits=_cores(), user_api="blas")
    return found


class _OneBlasThread:
    """BLAS at one thread while anybody needs it so: the limit is the process's, not a thread's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._limit = _controller().limit(limits=1, user_api="blas")
            self._holders += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._limit.restore_original_limits()


_one_blas_thread = _OneBlasThread()


def one_blas_thread() -> _OneBlasThread:
    """For many small products: waking a second thread costs more than each of them."""
    return _one_blas_thread


def decomposing(rows: int) -> AbstractContextManager[None]:
    """For a dense decomposition of so many rows: one BLAS thread, unless more are sure to gain.

    It is thousands of small products.  On a busy machine threads wait for each other at each of
    them, and a second of work becomes a minute.
    """
    if rows <= FEW_ROWS or n_threads() == 1:
        return one_blas_thread()
    _controller()
    return nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Kernels and BLAS on the calling thread alone: others beside it do the same work."""
    token = _alone.set(True)
    try:
        with _one_blas_thread:
            yield
    finally:
        _alone.reset(token)


def _held() -> AbstractContextManager[object]:
    """For work on the calling thread: BLAS has more of them only where the user allows it."""
    return one_blas_thread() if _cores() == 1 else nullcontext()


def _alone_at(work: Callable[[S], T], item: S) -> T:
    """``work(item)`` on this thread of the pool: to wait there for others would be for ever."""
    token = _alone.set(True)
    try:
        return work(item)
    finally:
        _alone.reset(token)


def run_in_turn(work: Callable[[S], T], items: Iterable[S], at_once: int) -> Iterator[T]:
    """``work(item)`` of each, in order, so many at once; one more may wait to be taken."""
    if at_once == 1:
        with _held():
            yield from map(work, items)
        return
    waiting: deque[Future[T]] = deque()
    with one_blas_thread():
        try:
            for item in items:
                waiting.append(_pool().submit(_alone_at, work, item))
                if len(waiting) > at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for task in waiting:
                task.cancel()
            wait(waiting)  # those that run read what the caller may change


def run_parts(work: Callable[[int], T], parts: int) -> Sequence[T]:
    """[work(0), ..., work(parts - 1)], one thread each; results in order, so sums reproduce."""
    if parts == 1:
        with _held():
            return [work(0)]
    with one_blas_thread():
        return list(_pool().map(partial(_alone_at, work), range(parts)))
