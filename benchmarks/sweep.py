"""One gradient sweep against the three matrix products that a factored one would take.

    python -m benchmarks.sweep          n=16,384, p=2142, d=200, density 1 %

With few records for each code the sweep takes these products; with more it sums over the codes of
each record instead (`daniel.core.couplings`).

Everything is timed in one run, in turns, and reported as a ratio of medians: seconds on a shared
machine say little.  A pause before each measurement lets the threads of the one before go to sleep.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from benchmarks.source import made_by
from daniel.core.coordinates import natural_coordinates
from daniel.core.ising import sweep
from daniel.core.records import Records, records_from

PAUSE = 0.1


def make_records(n: int, p: int, density: float, seed: int = 0) -> Records:
    """Random records, unmerged: the sweep gets no help from repeated rows."""
    Z = sp.random_array((n, p), density=density, format="csr", rng=seed, dtype=np.float32)
    return records_from(Z, merge=False)


def bare_products(n: int, p: int, d: int) -> Callable[[], None]:
    """The three float32 GEMMs of a sweep: A V', R V, R'A."""
    rng = np.random.default_rng(0)
    A, V = rng.random((n, d), dtype=np.float32), rng.random((p, d), dtype=np.float32)
    M, Q, R = (
        np.empty((n, p), np.float32),
        np.empty((n, d), np.float32),
        np.empty((p, d), np.float32),
    )

    def run() -> None:
        np.matmul(A, V.T, out=M)
        np.matmul(M, V, out=Q)
        np.matmul(M.T, A, out=R)

    return run


def dense_way(records: Records, U: np.ndarray) -> Callable[[], None]:
    """The paper's gradient as one would write it: all of X, Theta and W in float64."""
    X = 2 * records.csr().toarray() - 1
    n = records.n
    U64 = U.astype(np.float64)

    def run() -> None:
        theta = U64 @ U64.T
        M = X @ theta + np.diag(theta) * (1 - X)
        B = -1 / (1 + np.exp(2 * X * M))
        np.logaddexp(0, -2 * X * M).sum()
        XB = X * B
        W = 2 * (X.T @ XB + XB.T @ X) / n
        np.fill_diagonal(W, 2 * XB.mean(axis=0))
        W @ U64

    return run


def our_sweep(records: Records, U: np.ndarray) -> Callable[[], None]:
    coords = natural_coordinates(records.counts(), records.total)
    mean = coords.center
    b = np.log(mean / (1 - mean))[None, :]
    return lambda: sweep(records, coords, U, U, b) and None


def medians(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median seconds of each, measured in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # compiled, and its pages touched
    for _ in range(repeats):
        for name, run in runs.items():
            time.sleep(PAUSE)
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def peak_extra(run: Callable[[], None]) -> int:
    """Bytes that a run holds at most beyond what was there before."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=16_384)
    parser.add_argument("-p", type=int, default=2142)
    parser.add_argument("-d", type=int, default=200)
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    n, p, d = arguments.n, arguments.p, arguments.d
    U = (np.random.default_rng(1).standard_normal((p, d)) * 0.05 / np.sqrt(d)).astype(np.float32)
    records = make_records(n, p, arguments.density)

    print(made_by())
    print(
        f"n={n:,}  p={p:,}  d={d}  density {arguments.density:.1%}  median of {arguments.repeats}"
    )
    found = medians(
        {
            "three bare float32 GEMMs": bare_products(n, p, d),
            "one full sweep": our_sweep(records, U),
        },
        arguments.repeats,
    )
    bare, ours = found.values()
    print(f"  three bare float32 GEMMs   {bare:8.3f} s")
    print(f"  one full sweep             {ours:8.3f} s   {ours / bare:.2f} x the GEMMs")
    dense = medians({"dense": dense_way(records, U), "sweep": our_sweep(records, U)}, 3)
    print(
        f"  the paper's dense way      {dense['dense']:8.3f} s   "
        f"the sweep takes 1/{dense['dense'] / dense['sweep']:.0f} of it"
    )
    print(f"  peak extra memory          {peak_extra(our_sweep(records, U)) / 2**20:8.0f} MB")

    print("cost against n, and against the GEMMs of as many records:")
    sizes = {k: make_records(k * n, p, arguments.density) for k in (1, 2, 4)}
    runs = {f"{k}n": our_sweep(r, U) for k, r in sizes.items()}
    growth = medians(runs | {"GEMMs": bare_products(n, p, d)}, 3)
    bare = growth.pop("GEMMs")
    for k, (name, seconds) in zip(sizes, growth.items(), strict=True):
        ratios = f"{seconds / growth['1n']:.2f} x   {seconds / (k * bare):.2f} x the GEMMs"
        print(f"  {name:3s} {seconds:8.3f} s   {ratios}")


if __name__ == "__main__":
    main()
