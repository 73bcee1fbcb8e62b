"""The same fit here and on a Dask cluster of this machine, and with a worker killed on the way.

    python -m benchmarks.workers             50,000 made-up records of 2,142 codes, 2 workers
    python -m benchmarks.workers --large 0   without a fit of so many that it goes by stages, and
                                             an answer of so many that it goes to the cluster

Local and cluster runs take turns, on as many cores: a local run has a thread for each worker.
Times are medians, and ratios of them are what counts on a shared machine.  What a sweep on the
cluster costs beyond the local one hardly grows with the records: the sweeps show it.  Sums over
too few records for the way, and an answer to more, are made here in any case: such rows say so.
Of very many records the solver starts on parts: one such fit, of few columns and steps, is timed
once.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp
from distributed import Client, LocalCluster

from benchmarks.page_dask import STAYS
from benchmarks.source import made_by
from daniel.cluster import distributed
from daniel.core import natural, place
from daniel.core.coordinates import natural_coordinates
from daniel.core.intercepts import prior_intercepts
from daniel.core.ising import full_sweep, sweep
from daniel.core.records import Records, records_from
from daniel.core.solve import Progress

KILL_AT = 3  # the step after which a worker is killed
ROWS = 5_000  # drawn at once
GROUPS = 40
START_STEPS = 5  # of the start that is answered
LARGE, LARGE_D, LARGE_STEPS = 130_000, 40, 10  # records of the fit by stages, its rank and steps
ANSWERED = 2  # times as many are answered


def made_up(n: int, p: int) -> Records:
    """Records with some of 40 groups each, whose codes they have more often than others."""
    rng = np.random.default_rng(0)
    usual = rng.uniform(0.003, 0.03, p)
    group = rng.integers(0, GROUPS, p)
    blocks = []
    for first in range(0, n, ROWS):
        rows = min(ROWS, n - first)
        active = rng.random((rows, GROUPS)) < 0.08
        chance = usual * np.where(active[:, group], 8, 0.7)
        blocks.append(sp.csr_array(rng.random((rows, p)) < chance))
    return records_from(sp.vstack(blocks, format="csr").astype(np.float32))


def fit(
    records: Records, d: int, progress: Progress | None = None, steps: int | None = None
) -> natural.Fit:
    """steps: at most so many in each stage."""
    options = natural.Options(n_components=d, progress=progress)
    options = options if steps is None else replace(options, max_iter=steps)
    return natural.fit(records, options, np.random.default_rng(0))


def phi(fitted: natural.Fit) -> np.ndarray:
    return (fitted.U * fitted.signs) @ fitted.U.T


def distance(found: natural.Fit, wanted: natural.Fit) -> float:
    """||Phi - Phi_local|| / ||Phi_local||."""
    return float(np.linalg.norm(phi(found) - phi(wanted)) / np.linalg.norm(phi(wanted)))


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def in_turns(client: Client, run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds here and on the cluster, rows already sent."""
    here, there = [], []
    run()  # compiled
    for _ in range(repeats):
        here.append(seconds(run))
        with distributed(client):
            run()  # sends the rows
            there.append(seconds(run))
    return float(np.median(here)), float(np.median(there))


def show(name: str, here: float, there: float, *, stays: bool = False) -> None:
    """stays: both were made here."""
    ratio, more = there / here, 1000 * (there - here)
    row = f"  {name:32s} {here:8.3f} s {there:8.3f} s  {ratio:5.2f} x  {more:+8.0f} ms"
    print(row + f"  {STAYS}" * stays, flush=True)


def sweeps(client: Client, records: Records, d: int, repeats: int) -> None:
    coords, b = natural_coordinates(records.counts(), records.total), prior_intercepts(records)
    U = np.random.default_rng(1).standard_normal((records.p, d)) * 0.05 / np.sqrt(d)
    U = U.astype(np.float32)
    stays = records.n * records.p < place.WORTH
    once = partial(sweep, records, coords, U, U, b)
    show(f"one sweep, {records.n:,} records", *in_turns(client, once, 3 * repeats), stays=stays)
    full = partial(full_sweep, records, coords, (U, U), b)
    show("  its full derivative (p x p)", *in_turns(client, full, repeats), stays=stays)


def answers(client: Client, hub: Records, site: Records, d: int, repeats: int) -> None:
    """A site's whole answer: its intercepts, and the derivative there."""
    options = natural.Options(n_components=d, max_iter=START_STEPS)
    start = natural.make_start(hub, options, np.random.default_rng(0))
    once = partial(natural.answer, site, start, options)
    stays = site.n * site.p < place.WORTH_ONCE
    show(f"answer, {site.n:,} records", *in_turns(client, once, repeats), stays=stays)


def fits(client: Client, records: Records, d: int, repeats: int) -> tuple[float, natural.Fit]:
    """Shows both; seconds here, and the fit."""
    here, there = [], []
    wanted = fit(records, d)
    for _ in range(repeats):
        here.append(seconds(partial(fit, records, d)))
        begin = time.perf_counter()
        with distributed(client):
            found = fit(records, d)
        there.append(time.perf_counter() - begin)
    median = float(np.median(here))
    stays = records.n * records.p < place.WORTH
    show(f"fit, {wanted.solution.n_iter} steps", median, float(np.median(there)), stays=stays)
    print(f"    relative difference of Phi {distance(found, wanted):.1e}")
    return median, wanted


def staged(client: Client, records: Records, d: int) -> None:
    """A fit of very many records, which goes by stages: once here, once on the cluster."""
    assert records.n * records.p > natural.LARGE, "so few records are fitted without stages"
    found: list[natural.Fit] = []

    def run() -> None:
        found.append(fit(records, d, steps=LARGE_STEPS))

    here = seconds(run)
    with distributed(client):
        there = seconds(run)
    show(f"fit by stages, {records.n:,} records", here, there)
    print(f"    relative difference of Phi {distance(found[1], found[0]):.1e}")


def killed(client: Client, records: Records, d: int) -> tuple[float, natural.Fit]:
    """Seconds and fit when one worker dies after KILL_AT steps."""
    victim = next(iter(client.run(os.getpid).values()))

    def progress(step: int, loss: float, enough: float) -> None:
        if step == KILL_AT:
            os.kill(victim, signal.SIGKILL)

    found: list[natural.Fit] = []
    with distributed(client):
        elapsed = seconds(lambda: found.append(fit(records, d, progress)))
    return elapsed, found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=50_000)
    parser.add_argument("-p", type=int, default=2142)
    parser.add_argument("-d", type=int, default=100)
    parser.add_argument("--large", type=int, default=LARGE, help="records of the fit by stages")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    os.environ["DANIEL_NUM_THREADS"] = str(a.workers)  # here as there
    options = {"n_workers": a.workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options, silence_logs="CRITICAL") as cluster, Client(cluster) as client:
        print(made_by())
        print(
            f"{a.p:,} codes, rank {a.d}; {a.workers} threads here, {a.workers} Dask workers of one "
            f"thread; medians of {a.repeats} (sweeps: {3 * a.repeats}; the fit by stages: one run, "
            f"rank {LARGE_D}, at most {LARGE_STEPS} steps a stage)"
        )
        print(f"  {'':32s} {'here':>10s} {'Dask':>10s}")
        few, records = made_up(a.n // 8, a.p), made_up(a.n, a.p)
        for some in (few, records):
            sweeps(client, some, a.d, a.repeats)
            answers(client, few, some, a.d, a.repeats)
        here, wanted = fits(client, records, a.d, a.repeats)
        if a.large:
            answers(client, few, made_up(ANSWERED * a.large, a.p), a.d, a.repeats)
            staged(client, made_up(a.large, a.p), LARGE_D)
        elapsed, survivor = killed(client, records, a.d)
        show(f"fit, a worker killed at step {KILL_AT}", here, elapsed)
        print(f"    relative difference of Phi {distance(survivor, wanted):.1e}")


if __name__ == "__main__":
    main()
