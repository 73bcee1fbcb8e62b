"""Times and peak memory of a whole exchange by files: start, answers and finish of three sites.

    python -m benchmarks.exchange              writes results/federation/exchange.md

Every step is the command that people run, as a process of its own.  Records are drawn from topics
of codes and are few, so that the tables show what the number of codes costs: at p = 10,000 a masked
answer has 400 MB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.problems import PROJECT_ROOT
from benchmarks.source import made_by
from daniel.federated.keys import make_key, write_key
from daniel.study import Codes, Study

OUT = PROJECT_ROOT / "results" / "federation" / "exchange.md"
COMMAND = Path(sys.executable).with_name("daniel")
SITES = ("north", "south", "east")  # the first is the hub
P = (2142, 10_000)
RECORDS, CODES_PER_RECORD, TOPICS = 6_000, 20, 40


@dataclass(frozen=True)
class Cost:
    """What one command took."""

    seconds: float
    processor: float  # seconds of all cores together
    memory: float  # peak, MB

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s ({self.processor:.0f} s), {self.memory:,.0f} MB"


def measured(folder: Path, *arguments: str) -> Cost:
    """Run `daniel` with these arguments in a folder."""
    begin = time.monotonic()
    child = subprocess.Popen(
        [COMMAND, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert child.stderr is not None
    said = child.stderr.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"daniel {' '.join(arguments)}: {said}")
    processor = used.ru_utime + used.ru_stime
    return Cost(time.monotonic() - begin, processor, used.ru_maxrss / 1024)


def events(p: int, seed: int, records: int = RECORDS) -> pd.DataFrame:
    """One record a patient: half of its codes from one topic, the others from all."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, p + 1) ** 0.7
    topic = np.arange(p) % TOPICS
    shares = np.array([share * (topic == t) for t in range(TOPICS)])
    shares /= shares.sum(axis=1, keepdims=True)
    own = rng.integers(TOPICS, size=records)
    half = CODES_PER_RECORD // 2
    within = [rng.choice(p, half, p=shares[t]) for t in own]
    codes = np.hstack([within, rng.choice(p, (records, half), p=share / share.sum())])
    patient = np.repeat(np.arange(records), CODES_PER_RECORD)
    names = np.array([f"CODE:{j}" for j in range(p)])
    return pd.DataFrame({"patient": patient, "date": "2020-01-01", "code": names[codes.ravel()]})


def make_sites(folder: Path, p: int) -> None:
    """A study file, keys, and a prepared folder for each site."""
    names = tuple(f"CODE:{j}" for j in range(p))
    keys = {name: make_key(name) for name in SITES}
    roster = tuple(key.public("hub" if name == SITES[0] else "site") for name, key in keys.items())
    Study(name="benchmark", codes=Codes(names=names), sites=roster).write(folder / "study.toml")
    for seed, (name, key) in enumerate(keys.items()):
        write_key(key, folder)
        events(p, seed).to_parquet(folder / f"{name}.parquet")
        measured(folder, "prepare", f"{name}.parquet", "--site", name, "--out", name)


def measure(p: int) -> list[str]:
    """One exchange: a row of the table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_sites(folder, p)
        start = measured(folder, "start", SITES[0])
        files = [f"{name}.daniel" for name in SITES]
        answers = [
            measured(folder, "answer", name, "start.daniel", "--approve", "me", "--out", file)
            for name, file in zip(SITES, files, strict=True)
        ]
        finish = measured(folder, "finish", SITES[0], "start.daniel", *files)
        size = (folder / files[0]).stat().st_size
    slowest = max(answers, key=lambda cost: cost.seconds)
    return [f"{p:,}", f"{size / 1e6:.0f} MB", str(start), str(slowest), str(finish)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--p", type=int, nargs="*", default=P)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    heads = ("codes", "size of an answer", "start", "answer", "finish")
    rows = [list(heads), ["---"] * len(heads)]
    for p in arguments.p:
        rows.append(measure(p))
        print(*rows[-1], sep="  ", flush=True)
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = f"""# One exchange by files

Three sites of {RECORDS:,} records each, masked, on one machine with {os.cpu_count()} cores, written
by `python -m benchmarks.exchange`. Each step is the command in a process of its own: time, in
brackets the time of all cores together, and peak memory. Of the three answers the slowest counts.

{table}

{made_by()}.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
