"""One method on one problem, in a process of its own (see `benchmarks.race`).

    python -m benchmarks.race_one PROBLEM.npz MODULE '{"d": 50}' OUT.json --limit 600 --memory 12

The method first runs on a tiny problem, so that compiling and importing cost nothing; the clock
runs afterwards.  When the limit passes the kernel ends this process (`benchmarks.methods.limit`).
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from benchmarks import problems_file
from benchmarks.methods.limit import begin, end
from benchmarks.methods.result import Result
from benchmarks.problems import Problem
from daniel.evaluate.relations import relation_auc

SEED, DRAWS = 0, 20
SHORT, REPEATS = 2.0, 3  # a run below so many seconds is repeated
GB = 1 << 30


def tiny(*, truth: bool) -> Problem:
    """120 random records of 20 codes at 2 sites."""
    Z = sparse.random_array((120, 20), density=0.3, format="csr", rng=1, dtype=np.float32)
    Z.data[:] = 1
    codes = [f"T:{j}" for j in range(20)]
    pairs = pd.DataFrame({"code1": codes[:3], "code2": codes[3:6], "relation": "r"})
    sites = np.repeat(["a", "b"], 60)
    theta = np.zeros((20, 20)) if truth else None
    return Problem("tiny", sparse.csr_matrix(Z), codes, sites, None, pairs, theta=theta)


def score(problem: Problem, result: Result) -> dict[str, Any]:
    """Known-pair AUC, mean and per relation, and the error to the truth where it is known.

    A method that gives couplings is scored by cosine and by coupling; the better mean counts.
    """
    ways = {"cosine": result.embedding, "theta": result.theta}
    tables = {
        way: relation_auc(
            values, problem.codes, problem.pairs, score=way, draws=DRAWS, random_state=SEED
        )
        for way, values in ways.items()
        if values is not None
    }
    way = max(tables, key=lambda name: tables[name]["auc"].mean())
    table = tables[way][["n_pairs", "auc", "lo", "hi"]].round(5)
    found: dict[str, Any] = {
        "auc": float(tables[way]["auc"].mean()),
        "relations": {str(k): row for k, row in table.to_dict("index").items()},
        "score": way,
    }
    if problem.theta is not None and result.theta is not None:
        found["error"] = float(np.linalg.norm(result.theta - problem.theta))
        found["error_of_none"] = float(np.linalg.norm(problem.theta))
    return found


def fresh() -> np.random.Generator:
    return np.random.default_rng(SEED)


def timed(run: Callable[[], Result]) -> tuple[Result, float, float]:
    """A result, with seconds and processor seconds; medians of REPEATS runs when one is short."""
    seconds: list[float] = []
    processor: list[float] = []
    while not seconds or (seconds[0] < SHORT and len(seconds) < REPEATS):
        begin, used = time.perf_counter(), time.process_time()
        result = run()
        took = time.perf_counter() - begin
        seconds.append(took if result.seconds is None else result.seconds)
        processor.append(time.process_time() - used)
    return result, float(np.median(seconds)), float(np.median(processor))


def measure(
    run: Callable[..., Result], problem: Problem, options: dict[str, Any], limit: float
) -> dict[str, Any]:
    """Run, time and score one method; a failure is told, not raised."""
    try:
        run(tiny(truth=problem.theta is not None), fresh(), **options)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin(limit)
        result, seconds, processor = timed(lambda: run(problem, fresh(), **options))
        end()
        found = score(problem, result)
    except MemoryError:
        end()
        return {"status": "failed", "reason": "needs more memory than allowed"}
    except Exception as error:  # whatever another package raises is a row of the table
        end()
        lines = str(error).splitlines() or [""]
        return {"status": "failed", "reason": f"{type(error).__name__}: {lines[0]}"[:300]}
    return {
        "status": "done",
        "seconds": seconds,
        "processor_seconds": processor,
        "base_memory_mb": round(before / 1024),
        "bytes_sent": result.bytes_sent,
        "rounds": result.rounds,
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("module")
    parser.add_argument("options", type=json.loads)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--memory", type=float, required=True)
    arguments = parser.parse_args()
    most = round(arguments.memory * GB)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    run = import_module(arguments.module).run
    found = measure(run, problems_file.read(arguments.problem), arguments.options, arguments.limit)
    part = arguments.out.with_name(f"{arguments.out.name}.{os.getpid()}.part")
    part.write_text(json.dumps(found))
    os.replace(part, arguments.out)


if __name__ == "__main__":
    main()
