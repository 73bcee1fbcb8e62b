"""How time grows with records n, codes p and rank d, with fitted exponents.

    python -m benchmarks.growth                 writes results/growth.json and growth.txt

Six things are timed at each point, one size varied at a time:

sweep       one gradient of a factored fit: n p logistic functions, and the logits and residuals as
            sums over the codes of each record, with 6 p^2 d flops for Phi and its derivative in
            the factors
dense       the same for records with a share of DENSE of all codes, as simulations have: three
            products of 6 n p d flops
pass        one Newton step of a site's intercepts: logits and n p logistic functions
derivative  a site's derivative (p, p) at its intercepts: the same, the residuals of each row added
            up at each of its present codes (dense records would need 2 n p^2 flops for that), and
            the (p, p) array, filled and made symmetric
answer      as many passes as the intercepts take, and the derivative
exchange    start, two answers and finish with at most STEPS iterations each

Other records have CODES_PER_RECORD codes whatever p is, as in practice.  The site that answers has
other prevalences than the hub: it lacks some records of each code.  How many passes it takes is
counted at each point, at one of very many records (there most are on a part), and after a start at
independence.  The cost model of docs/scale.md is fitted to the first four: seconds for each flop of
products with records or with Phi, each entry of the residual (n, p), whose additions are as many at
every size here, and each of the derivative (p, p); an answer is the counted passes and a
derivative.  `benchmarks.page_commands` holds it against whole commands.
Seconds on a shared machine say little: run it when the machine is idle.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls

from benchmarks.race import ROOT, commit, machine, versions, write
from benchmarks.source import CORE, core
from daniel.core import intercepts, natural
from daniel.core.exchange import Start
from daniel.core.intercepts import LARGE, prior_intercepts
from daniel.core.ising import full_sweep, logit_moments, sweep
from daniel.core.records import Records, records_from

OUT = ROOT / "results" / "growth.json"
N = (30_000, 60_000, 120_000, 240_000)  # with P below LARGE: above, passes are on a part
P = (500, 1_000, 2_000, 4_000)
D = (100, 200, 400)
BASE = 1  # place in each list that the others are varied around
MANY = {"n": 125_000, "p": 2_200, "d": 20}  # more records * codes than LARGE; passes are counted
TOPICS, CODES_PER_RECORD, STEPS = 40, 16, 20
DENSE, DRAWN_ROWS = 0.25, 10_000
KEPT = 0.2, 1.0  # shares of the records of a code that a site with other prevalences keeps
LONG = 5.0  # seconds
PAUSE = 0.1  # seconds in which the threads of the last measurement go to sleep
TIMED = ("sweep", "dense", "pass", "derivative", "answer", "exchange")
POWERS = ("sweep", "dense", "answer", "exchange")  # whose exponents are told
Work = dict[str, Callable[[float, float, float], float]]
# What each step costs, in units whose seconds are fitted: columns of (n, p, d).
MODEL: dict[str, Work] = {
    "sweep": {
        "flop of the three products, 6npd": lambda n, p, d: 6 * n * p * d,
        "entry of the residual and its sums, np": lambda n, p, d: n * p,
        "flop of Phi and its derivative, 6p²d": lambda n, p, d: 6 * p * p * d,
    },
    "dense": {
        "flop of the three products, 6npd": lambda n, p, d: 6 * n * p * d,
        "entry of the residual, np": lambda n, p, d: n * p,
    },
    "pass": {
        "flop of the logits, 2npd": lambda n, p, d: 2 * n * p * d,
        "entry of the moments, np": lambda n, p, d: n * p,
        "flop of Phi, 2p²d": lambda n, p, d: 2 * p * p * d,
    },
    "derivative": {
        "flop of the logits, 2npd": lambda n, p, d: 2 * n * p * d,
        "entry of the residual and its sums, np": lambda n, p, d: n * p,
        "entry of the derivative, p²": lambda n, p, d: p * p,
    },
}
# Results from before passes were timed: the hub's own answer, which takes two.
OLD_MODEL: dict[str, Work] = {
    "sweep": MODEL["sweep"],
    "answer": {
        "flop of one pass of logits, 2npd": lambda n, p, d: 2 * n * p * d,
        "entry of the residual and its sums, np": lambda n, p, d: n * p,
        "entry of the derivative, p²": lambda n, p, d: p * p,
    },
}


def make_records(n: int, p: int, seed: int, *, thinned: bool = False) -> Records:
    """Records of half-topical codes, so that there are components to find; rows stay unmerged.

    thinned: each code keeps a share of its records, so that prevalences are those of another site.
    """
    rng = np.random.default_rng(seed)
    half = CODES_PER_RECORD // 2
    codes = (p * rng.random((n, CODES_PER_RECORD)) ** 2).astype(int)
    own = rng.integers(TOPICS, size=(n, 1))
    codes[:, :half] -= (codes[:, :half] - own) % TOPICS  # the nearest code below of the own topic
    rows, columns = np.repeat(np.arange(n), CODES_PER_RECORD), np.abs(codes).ravel()
    if thinned:
        kept = rng.random(rows.size) < rng.uniform(*KEPT, p)[columns]
        rows, columns = rows[kept], columns[kept]
    Z = sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, p))
    return records_from(Z, merge=False)


def make_dense(n: int, p: int, seed: int) -> Records:
    """Records of independent codes, each present in a share of DENSE; rows stay unmerged."""
    rng = np.random.default_rng(seed)
    parts = [
        sp.csr_array(rng.random((min(DRAWN_ROWS, n - first), p), dtype=np.float32) < DENSE)
        for first in range(0, n, DRAWN_ROWS)
    ]
    return records_from(sp.csr_array(sp.vstack(parts)), merge=False)


@dataclass(frozen=True)
class Place:
    """A hub with its fitted start, and a site with other prevalences that answers."""

    hub: Records
    dense: Records
    site: Records
    start: Start
    options: natural.Options


def make_place(n: int, p: int, d: int) -> Place:
    hub, site = make_records(n, p, 0), make_records(n, p, 1, thinned=True)
    options = natural.Options(n_components=d, max_iter=STEPS, tol=0.0)
    start = natural.make_start(hub, options, np.random.default_rng(3))
    return Place(hub, make_dense(n, p, 2), site, start, options)


def steps(place: Place) -> dict[str, Callable[[], object]]:
    """What is timed at one point."""
    hub, site, start, options = place.hub, place.site, place.start, place.options
    coords, U, V, b = start.coords, start.U, start.V, prior_intercepts(site)

    def exchange() -> natural.Fit:
        rng = np.random.default_rng(3)
        begun = natural.make_start(hub, options, rng)
        mean = natural.mean_answer(natural.answer(s, begun, options) for s in (hub, site))
        return natural.finish(hub, begun, mean, options, rng)

    return {
        "sweep": lambda: sweep(hub, coords, U, V, start.b),
        "dense": lambda: sweep(place.dense, coords, U, V, start.b),
        "pass": lambda: logit_moments(site, coords, U, V, b),
        "derivative": lambda: full_sweep(site, coords, (U, V), b),
        "answer": lambda: natural.answer(site, start, options),
        "exchange": exchange,
    }


def passes(site: Records, start: Start) -> float:
    """Passes over a site's records that its intercepts take; one over a part counts as that."""
    shares: list[float] = []

    def counted(records: Records, *about: Any) -> tuple[np.ndarray, np.ndarray]:
        shares.append(records.n / site.n)
        return logit_moments(records, *about)

    with patch.object(intercepts, "logit_moments", counted):
        intercepts.site_intercepts(site, start)
    return sum(shares)


def all_passes(rows: list[dict[str, Any]], many: dict[str, int]) -> dict[str, Any]:
    """Passes of the points, the mean; of very many records; and after a start at independence."""
    large = make_place(**many)
    nothing = replace(large.start, U=np.zeros_like(large.start.U), b=prior_intercepts(large.hub))
    return {
        "few": float(np.mean([row["passes"] for row in rows])),
        "many": passes(large.site, large.start),
        "independence": passes(large.site, nothing),
        "size of many": many,
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
    for step in POWERS:
        if step not in rows[0]:
            continue  # of results from before it was timed
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


def cost_model(rows: list[dict[str, Any]], counted: dict[str, Any] | None = None) -> dict[str, Any]:
    """step -> seconds of each unit of work, and the worst relative error.

    counted: of `all_passes`; None for results from before passes were timed.
    """
    units = OLD_MODEL if counted is None else MODEL
    timed = [step for step in units if step in rows[0]]
    model: dict[str, Any] = {step: fit_units(units[step], rows, step) for step in timed}
    return model | {"passes": counted}


def cost(units: Work, fitted: dict[str, Any], n: float, p: float, d: float) -> float:
    """Seconds that fitted units come to."""
    return float(sum(fitted["seconds"][name] * unit(n, p, d) for name, unit in units.items()))


def passes_of(counted: dict[str, Any], n: float, p: float, d: float) -> float:
    """As many passes as were counted at such a size; rank 1 is a start at independence."""
    if d <= 1:
        return float(counted["independence"])
    return float(counted["many" if n * p > LARGE else "few"])


def predicted(model: dict[str, Any], step: str, n: float, p: float, d: float) -> float:
    """Seconds that the fitted model expects of a step in a process."""
    size = n, p, d
    if model["passes"] is None:
        return cost(OLD_MODEL[step], model[step], *size)
    if step == "answer":
        number = passes_of(model["passes"], *size)
        return number * predicted(model, "pass", *size) + predicted(model, "derivative", *size)
    return cost(MODEL[step], model[step], *size)


def text(found: dict[str, Any]) -> str:
    """The measurements as a plain table."""
    names = [name for name in TIMED if name in found["points"][0]]
    lines = ["       n      p    d" + "".join(f"{name:>12s}" for name in names) + "  passes"]
    for row in found["points"]:
        cells = "".join(f"{row[name]:11.3f}s" for name in names)
        lines.append(f"{row['n']:8,} {row['p']:6,} {row['d']:4}{cells}  {row['passes']:.2f}")
    for step, fits in found["exponents"].items():
        said = ", ".join(
            f"{name}^{fit['exponent']:.2f} ± {fit['error']:.2f}" for name, fit in fits.items()
        )
        lines.append(f"{step}: {said}")
    counted = ", ".join(f"{k} {v:.2f}" for k, v in found["passes"].items() if k != "size of many")
    return "\n".join([*lines, f"passes: {counted}"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=N)
    parser.add_argument("--p", type=int, nargs="+", default=P)
    parser.add_argument("--d", type=int, nargs="+", default=D)
    many = parser.add_argument("--many", type=int, nargs=3, default=tuple(MANY.values()))
    many.help, many.metavar = "where passes over very many records are counted", ("N", "P", "D")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    sizes = {name: tuple(getattr(arguments, name)) for name in ("n", "p", "d")}
    for run in steps(make_place(2_000, 100, 10)).values():
        run()  # compiled
    rows: list[dict[str, Any]] = []
    for point in points(sizes):
        place = make_place(**point)
        counted = {"passes": passes(place.site, place.start)}
        runs = steps(place)
        took = {name: least_seconds(run, arguments.repeats) for name, run in runs.items()}
        rows.append(point | took | counted)
        print(rows[-1], flush=True)
    found = {
        "points": rows,
        "exponents": exponents(rows, sizes),
        "passes": all_passes(rows, dict(zip("npd", arguments.many, strict=True))),
        "repeats": arguments.repeats,
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        CORE: core(),
    }
    write(arguments.out, found)
    arguments.out.with_suffix(".txt").write_text(text(found), encoding="utf-8")
    print(text(found))


if __name__ == "__main__":
    main()
