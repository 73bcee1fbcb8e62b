"""Work on threads: in order, bounded, and never waiting for itself."""

import threading
import time

import pytest
from threadpoolctl import threadpool_info

from daniel.core import threads
from daniel.core.threads import n_threads, run_in_turn, run_parts


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """A pool of two, however many cores there are."""
    monkeypatch.setenv("DANIEL_NUM_THREADS", "2")
    threads._cores.cache_clear()
    threads._pool.cache_clear()
    yield
    monkeypatch.undo()
    threads._cores.cache_clear()
    threads._pool.cache_clear()


@pytest.fixture
def one_thread_asked(monkeypatch):
    monkeypatch.setenv("DANIEL_NUM_THREADS", "1")
    threads._cores.cache_clear()
    threads._pool.cache_clear()


def blas_threads(_=None):
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_who_asks_for_one_thread_has_one_of_blas_too(one_thread_asked):
    assert [*run_in_turn(blas_threads, [0], n_threads())] == [{1}]
    assert [*run_parts(blas_threads, n_threads())] == [{1}]


@pytest.fixture
def shared_machine(monkeypatch):
    """A container that may use one core of the machine."""
    monkeypatch.delenv("DANIEL_NUM_THREADS")
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # where a share of time would be read, too
    before = threads._controller().info()
    for made in (threads._cores, threads._pool, threads._controller):
        made.cache_clear()
    yield
    threads._controller.cache_clear()
    for pool in before:
        if pool["user_api"] == "blas":
            threads._controller().limit(limits=pool["num_threads"], user_api="blas")


def test_a_container_has_as_many_threads_as_its_share(shared_machine):
    assert n_threads() == 1
    with threads.decomposing(threads.FEW_ROWS + 1):
        assert blas_threads() == {1}
    threads._controller()
    assert blas_threads() == {1}


def slow_if_even(item):
    time.sleep(0.01 * (item % 2 == 0))
    return item


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_results_come_in_order(at_once):
    assert [*run_in_turn(slow_if_even, range(9), at_once)] == list(range(9))


def test_items_are_made_when_their_turn_comes():
    made = []

    def items():
        for item in range(20):
            made.append(item)
            yield item

    results = run_in_turn(slow_if_even, items(), 2)
    assert next(results) == 0
    assert len(made) <= 4
    results.close()
    assert len(made) <= 4


def test_work_that_shares_out_work_itself_does_not_wait_for_ever():
    """Both threads of the pool are taken; what they share out they do alone."""

    def outer(item):
        assert n_threads() == 1
        return sum(run_in_turn(slow_if_even, range(item), n_threads()))

    done = []
    worker = threading.Thread(
        target=lambda: done.append([*run_in_turn(outer, [3, 4, 5, 6], 2)]), daemon=True
    )
    worker.start()
    worker.join(10)
    assert done == [[3, 6, 10, 15]]
    assert n_threads() == 2
    assert [*run_parts(lambda t: n_threads(), 2)] == [1, 1]


def test_an_error_comes_through_after_the_others_have_ended():
    running = []

    def work(item):
        if item == 0:
            raise ValueError("no")
        running.append(item)
        time.sleep(0.05)
        running.remove(item)

    with pytest.raises(ValueError, match="no"):
        [*run_in_turn(work, range(3), 2)]
    assert not running
