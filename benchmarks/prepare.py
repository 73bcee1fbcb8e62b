"""How far `daniel prepare` is from the one query it cannot do without.

    python -m benchmarks.prepare                       50 million random events
    python -m benchmarks.prepare --source FOLDER       a MEDS folder, such as `daniel cohort` writes

The bare query is DuckDB's SELECT DISTINCT patient, window, code over the same Parquet files, with
windows of six months from the first event.  Each runs in a process of its own, in turns; time is
that of the work without imports, memory the peak of the process.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CODES = 2142
EVENTS_PER_PATIENT = 250
DAYS = 4000
SHARD = 5_000_000
BARE = """
SELECT count(*) FROM (
    SELECT DISTINCT e.subject_id, datesub('month', f.first, e.time) // 6 AS w, e.code
    FROM read_parquet('{data}') e JOIN (
        SELECT subject_id, min(time) AS first FROM read_parquet('{data}') GROUP BY subject_id
    ) f ON f.subject_id = e.subject_id
)
"""


def make_events(folder: Path, n: int, seed: int = 0) -> None:
    """Random events as MEDS: Zipf codes, sorted by patient and time, in shards."""
    rng = np.random.default_rng(seed)
    (folder / "data").mkdir(parents=True)
    weight = np.arange(1, CODES + 1) ** -0.9
    chance = np.cumsum(weight / weight.sum())
    names = pa.array([f"PheCode//{j:04d}" for j in range(CODES)])
    for shard, start in enumerate(range(0, n, SHARD)):
        m = min(SHARD, n - start)
        patients = max(1, m // EVENTS_PER_PATIENT)
        patient = rng.integers(0, patients, m)
        day = rng.integers(10_000, 14_000, patients)[patient] + rng.integers(0, DAYS, m)
        order = np.lexsort((day, patient))
        code = np.minimum(np.searchsorted(chance, rng.random(m)), CODES - 1).astype(np.int32)
        table = pa.table(
            {
                "subject_id": patient[order] + shard * SHARD,
                "time": pa.array(day[order].astype("datetime64[D]").astype("datetime64[us]")),
                "code": pa.DictionaryArray.from_arrays(code, names).cast(pa.string()),
            }
        )
        pq.write_table(table, folder / "data" / f"{shard}.parquet")


def run_bare(source: Path, work: Path) -> int:
    import duckdb

    con = duckdb.connect(config={"temp_directory": str(work)})
    con.execute("SET enable_progress_bar = false")
    return int(con.execute(BARE.format(data=source / "data" / "**" / "*.parquet")).fetchone()[0])


def run_prepare(source: Path, work: Path) -> int:
    from daniel.data.prepare import prepare
    from daniel.data.sitefolder import read_info
    from daniel.study import Study

    prepare(source, Study(), "bench", work / "site")
    return int(read_info(work / "site")["facts"]["cells"])


RUNS = {"bare query": run_bare, "daniel prepare": run_prepare}


def child(name: str, source: Path) -> None:
    """One run; prints seconds, peak megabytes and cells as JSON."""
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        cells = RUNS[name](source, Path(work))
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "cells": cells}))


def measure(name: str, source: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.prepare", "--child", name, "--source", str(source)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(out))


def report(source: Path, repeats: int) -> None:
    n = sum(pq.read_metadata(p).num_rows for p in (source / "data").rglob("*.parquet"))
    runs = {name: [] for name in RUNS}
    for _ in range(repeats):
        for name in RUNS:
            runs[name].append(measure(name, source))
    print(f"{n:,} events, median of {repeats} runs in turns\n")
    print(f"{'':16}{'seconds':>9}{'events/s':>12}{'peak GB':>9}{'cells':>14}{'ratio':>7}")
    base = float(np.median([r["seconds"] for r in runs["bare query"]]))
    for name, found in runs.items():
        seconds = float(np.median([r["seconds"] for r in found]))
        peak = max(r["peak"] for r in found) / 1024
        print(
            f"{name:16}{seconds:9.1f}{n / seconds:12,.0f}{peak:9.2f}{found[0]['cells']:14,}"
            f"{seconds / base:7.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=float, default=50e6)
    parser.add_argument("--source", type=Path, help="a MEDS folder; otherwise one is made")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--child", choices=list(RUNS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.source)
    elif options.source:
        report(options.source, options.repeats)
    else:
        with tempfile.TemporaryDirectory() as folder:
            make_events(Path(folder) / "meds", int(options.events))
            report(Path(folder) / "meds", options.repeats)


if __name__ == "__main__":
    main()
