"""How far `daniel prepare` is from the one query it cannot do without.

    python -m benchmarks.prepare                     of `daniel cohort --paper --events 50e6`
    python -m benchmarks.prepare --source FOLDER     of such a cohort, or of a MEDS folder

The bare query is DuckDB's SELECT DISTINCT patient, window, code over the same Parquet files, with
windows of six months from the first event.  All hospitals of a cohort are one source.  Each runs in
a process of its own, in turns; time is that of the work without imports, memory the peak of the
process.  `make prepare` keeps the table in results/prepare.txt.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq

BARE = """
SELECT count(*) FROM (
    SELECT DISTINCT e.subject_id, datesub('month', f.first, e.time) // 6 AS w, e.code
    FROM read_parquet('{data}') e JOIN (
        SELECT subject_id, min(time) AS first FROM read_parquet('{data}') GROUP BY subject_id
    ) f ON f.subject_id = e.subject_id
)
"""


def make_events(folder: Path, n: int) -> None:
    """The paper's two hospitals with n events."""
    from daniel.data.cohort import make_cohort, read_options

    make_cohort(read_options(paper=True, events=n), folder)


def shards(source: Path) -> list[Path]:
    """The data files of a MEDS folder, or of all hospitals of a cohort."""
    found = sorted(source.glob("data/**/*.parquet")) or sorted(source.glob("*/data/**/*.parquet"))
    if not found:
        sys.exit(f"{source} has no data/*.parquet, and no folder in it has: give a cohort or MEDS.")
    return found


def gather(files: list[Path], folder: Path) -> Path:
    """One MEDS folder of links to the files: patients of different hospitals have different ids."""
    (folder / "data").mkdir(parents=True)
    for i, path in enumerate(files):
        (folder / "data" / f"{i:04d}.parquet").symlink_to(path.resolve())
    return folder


def run_bare(source: Path, work: Path) -> int:
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


def report(source: Path, repeats: int) -> str:
    """The table, of medians over runs in turns."""
    files = shards(source)
    n = sum(pq.read_metadata(p).num_rows for p in files)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory() as folder:
        meds = gather(files, Path(folder) / "meds")
        for _ in range(repeats):
            for name in RUNS:
                runs[name].append(measure(name, meds))
    lines = [
        f"{n:,} events in {len(files)} Parquet files, median of {repeats} runs in turns, "
        f"{os.cpu_count()} cores, DuckDB {duckdb.__version__}",
        "",
        f"{'':16}{'seconds':>9}{'events/s':>12}{'peak GB':>9}{'cells':>14}{'ratio':>7}",
    ]
    base = float(np.median([r["seconds"] for r in runs["bare query"]]))
    for name, found in runs.items():
        seconds = float(np.median([r["seconds"] for r in found]))
        peak = max(r["peak"] for r in found) / 1024
        lines.append(
            f"{name:16}{seconds:9.1f}{n / seconds:12,.0f}{peak:9.2f}{found[0]['cells']:14,}"
            f"{seconds / base:7.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=float, default=50e6)
    parser.add_argument("--source", type=Path, help="a cohort or MEDS folder; else one is made")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--child", choices=list(RUNS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.source)
    elif options.source:
        print(report(options.source, options.repeats))
    else:
        with tempfile.TemporaryDirectory() as folder:
            make_events(Path(folder) / "cohort", int(options.events))
            print(report(Path(folder) / "cohort", options.repeats))


if __name__ == "__main__":
    main()
