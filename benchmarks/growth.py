"""How time grows with records n, codes p and rank d, with fitted exponents.

    python -m benchmarks.growth                 writes results/growth.json and growth.txt

Three things are timed at each point, one size varied at a time:

sweep      one gradient of a factored fit: three GEMMs, 6 n p d flops, and n p logistic functions
answer     a site's derivative (p, p): passes of 2 n p d flops, one for the logits and a few for the
           intercepts, n p logistic functions, and the residuals of each row added up at each of
           its present codes (dense records would need 2 n p^2 flops for that), and the (p, p)
           array, filled and made symmetric
exchange   start, two answers and finish with at most STEPS iterations each

Records have CODES_PER_RECORD codes whatever p is, as in practice.  The cost model of docs/scale.md
is fitted to the first two: seconds for each flop, each entry of the residual (n, p), and each of
the derivative (p, p).  `benchmarks.page_commands` holds it against whole commands.
Seconds on a shared machine say little: run it when the machine is idle.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls

from benchmarks.race import ROOT, commit, machine, versions, write
from daniel.core import natural
from daniel.core.coordinates import natural_coordinates
from daniel.core.exchange import Start
from daniel.core.intercepts import prior_intercepts
from daniel.core.ising import sweep
from daniel.core.records import Records, records_from

OUT = ROOT / "results" / "growth.json"
N = (20_000, 40_000, 80_000, 160_000)
P = (500, 1_000, 2_000, 4_000)
D = (100, 200, 400)
BASE = 1  # place in each list that the others are varied around
TOPICS, CODES_PER_RECORD, STEPS = 40, 16, 20
LONG = 5.0  # seconds
PAUSE = 0.1  # seconds in which the threads of the last measurement go to sleep
Work = dict[str, Callable[[float, float, float], float]]
# What each step costs, in units whose seconds are fitted: columns of (n, p, d).
MODEL: dict[str, Work] = {
    "sweep": {
        "flop of the three products, 6npd": lambda n, p, d: 6 * n * p * d,
        "entry of the residual, np": lambda n, p, d: n * p,
    },
    "answer": {
        "flop of one pass of logits, 2npd": lambda n, p, d: 2 * n * p * d,
        "entry of the residual and its sums, np": lambda n, p, d: n * p,
        "entry of the derivative, p²": lambda n, p, d: p * p,
    },
}


def make_records(n: int, p: int, seed: int) -> Records:
    """Records of half-topical codes, so that there are components to find; rows stay unmerged."""
    rng = np.random.default_rng(seed)
    half = CODES_PER_RECORD // 2
    codes = (p * rng.random((n, CODES_PER_RECORD)) ** 2).astype(int)
    own = rng.integers(TOPICS, size=(n, 1))
    codes[:, :half] -= (codes[:, :half] - own) % TOPICS  # the nearest code below of the own topic
    rows = np.repeat(np.arange(n), CODES_PER_RECORD)
    Z = sp.csr_array((np.ones(rows.size), (rows, np.abs(codes).ravel())), shape=(n, p))
    return records_from(Z, merge=False)


def steps(n: int, p: int, d: int) -> dict[str, Callable[[], object]]:
    """What is timed at one point."""
    hub, other = make_records(n, p, 0), make_records(n, p, 1)
    coords = natural_coordinates(hub.counts(), hub.total)
    rng = np.random.default_rng(2)
    U = (0.2 * rng.standard_normal((p, d)) / np.sqrt(p)).astype(np.float32)
    start = Start(coords, U, np.ones(d), prior_intercepts(hub))
    options = natural.Options(n_components=d, max_iter=STEPS, tol=0.0)

    def exchange() -> natural.Fit:
        rng = np.random.default_rng(3)
        begun = natural.make_start(hub, options, rng)
        mean = natural.mean_answer(natural.answer(site, begun, options) for site in (hub, other))
        return natural.finish(hub, begun, mean, options, rng)

    return {
        "sweep": lambda: sweep(hub, coords, U, U, start.b),
        "answer": lambda: natural.answer(hub, start, options),
        "exchange": exchange,
    }


def least_seconds(run: Callable[[], object], repeats: int) -> float:
    """Of so many runs, since others only ever add time; a long one is sure enough by itself."""
    seconds: list[float] = []
    while len(seconds) < repeats and max(seconds, default=0) < LONG:
        time.sleep(PAUSE)
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def points(sizes: dict[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """One size varied at a time around the base; each point once."""
    base = {name: values[BASE] for name, values in sizes.items()}
    found = [base | {name: value} for name, values in sizes.items() for value in values]
    return [point for i, point in enumerate(found) if point not in found[:i]]


def exponent(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope of log y on log x, and its standard error."""
    X = np.column_stack([np.ones(x.size), np.log(x)])
    beta, *_ = np.linalg.lstsq(X, np.log(y), rcond=None)
    rest = np.log(y) - X @ beta
    variance = float(rest @ rest) / (x.size - 2) if x.size > 2 else float("nan")
    return float(beta[1]), float(np.sqrt(variance * np.linalg.inv(X.T @ X)[1, 1]))


def exponents(rows: list[dict[str, Any]], sizes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """step -> size -> exponent and standard error, over the points where this size varies."""
    out: dict[str, Any] = {}
    for step in ("sweep", "answer", "exchange"):
        out[step] = {}
        for name in sizes:
            others = {k: v[BASE] for k, v in sizes.items() if k != name}
            line = [row for row in rows if all(row[k] == v for k, v in others.items())]
            x, y = (np.array([row[key] for row in line], dtype=float) for key in (name, step))
            slope, error = exponent(x, y)
            out[step][name] = {"exponent": slope, "error": error, "points": len(line)}
    return out


def fit_units(
    units: Work, rows: list[dict[str, Any]], step: str, known: np.ndarray | float = 0.0
) -> dict[str, Any]:
    """Seconds of each unit beside those known, by non-negative least squares of relative errors."""
    seconds = np.array([row[step] for row in rows])
    work = np.array(
        [[unit(row["n"], row["p"], row["d"]) for unit in units.values()] for row in rows]
    )
    found, _ = nnls(work / seconds[:, None], (seconds - known) / seconds)
    worst = float(np.abs((work @ found + known) / seconds - 1).max())
    return {"seconds": dict(zip(units, found.tolist(), strict=True)), "worst": worst}


def cost_model(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """step -> seconds of each unit of MODEL, and the worst relative error."""
    return {step: fit_units(units, rows, step) for step, units in MODEL.items()}


def cost(units: Work, fitted: dict[str, Any], n: float, p: float, d: float) -> float:
    """Seconds that fitted units come to."""
    return float(sum(fitted["seconds"][name] * unit(n, p, d) for name, unit in units.items()))


def predicted(model: dict[str, Any], step: str, n: float, p: float, d: float) -> float:
    """Seconds that the fitted model expects of a step in a process."""
    return cost(MODEL[step], model[step], n, p, d)


def text(found: dict[str, Any]) -> str:
    """The measurements as a plain table."""
    lines = ["       n      p    d     sweep    answer  exchange"]
    for row in found["points"]:
        cells = "".join(f"{row[step]:9.3f}s" for step in ("sweep", "answer", "exchange"))
        lines.append(f"{row['n']:8,} {row['p']:6,} {row['d']:4} {cells}")
    for step, fits in found["exponents"].items():
        said = ", ".join(
            f"{name}^{fit['exponent']:.2f} ± {fit['error']:.2f}" for name, fit in fits.items()
        )
        lines.append(f"{step}: {said}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=N)
    parser.add_argument("--p", type=int, nargs="+", default=P)
    parser.add_argument("--d", type=int, nargs="+", default=D)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    sizes = {name: tuple(getattr(arguments, name)) for name in ("n", "p", "d")}
    for run in steps(2_000, 100, 10).values():
        run()  # compiled
    rows: list[dict[str, Any]] = []
    for point in points(sizes):
        runs = steps(**point)
        rows.append(
            point | {name: least_seconds(run, arguments.repeats) for name, run in runs.items()}
        )
        print(rows[-1], flush=True)
    found = {
        "points": rows,
        "exponents": exponents(rows, sizes),
        "repeats": arguments.repeats,
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
    }
    write(arguments.out, found)
    arguments.out.with_suffix(".txt").write_text(text(found), encoding="utf-8")
    print(text(found))


if __name__ == "__main__":
    main()
