"""Very many codes on one machine: time and peak memory of each step, plain and sketched.

    python -m benchmarks.large                      p = 20,000; writes results/large.md
    python -m benchmarks.large --records 60000      adds its rows to the table
    python -m benchmarks.large --p 2000 --records 5000 --components 30 --out small.md

Two sites of equal size, an open study.  Every step is the command in a process of its own.
Records are drawn from topics of codes.  A run replaces the rows of as many records in its table.
"""

import argparse
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks import tables
from benchmarks.exchange import Cost, events, measured
from benchmarks.problems import PROJECT_ROOT
from benchmarks.race import machine
from benchmarks.source import core, made_by
from daniel.core.natural import SMALL_HUB
from daniel.federated import messages
from daniel.federated.keys import make_key, write_key
from daniel.study import Codes, Disclosure, Model, Study

OUT = PROJECT_ROOT / "results" / "large.md"
HUB, SITE = "north", "south"
P, RECORDS, COMPONENTS = 20_000, 50_000, 100
TIMES = 3  # directions of a sketch, in components
INDEPENDENCE, FITTED = "independence", "fitted"
# A table without these columns is of one run.
ONE_RUN = {"records": f"{RECORDS:,}", "start": INDEPENDENCE}
UNKNOWN = {"processor": "not stored", "core": "not stored"}  # of rows from before they were told


@dataclass(frozen=True)
class Size:
    p: int
    records: int
    components: int


@dataclass(frozen=True)
class Run:
    """A run of the table: whether its start was fitted, and seconds[answers][step].

    processor, core: None where they are not stored; memory: GB, of answers and step as seconds.
    """

    size: Size
    fitted: bool
    seconds: dict[str, dict[str, float]]
    memory: dict[str, dict[str, float]]
    processor: str | None = None
    core: str | None = None


def make_sites(folder: Path, size: Size) -> None:
    """Keys, two studies that differ in their answers, and a prepared folder for each site."""
    keys = {name: make_key(name) for name in (HUB, SITE)}
    roster = tuple(key.public("hub" if name == HUB else "site") for name, key in keys.items())
    for name, k in (("plain", None), ("sketched", TIMES * size.components)):
        Study(
            name=name,
            codes=Codes(names=tuple(f"CODE:{j}" for j in range(size.p))),
            model=Model(n_components=size.components),
            disclosure=Disclosure(release="open", sketch=k),
            sites=roster,
        ).write(folder / f"{name}.toml")
    for seed, (name, key) in enumerate(keys.items()):
        write_key(key, folder)
        events(size.p, seed, size.records).to_parquet(folder / f"{name}.parquet")
        study = ("--study", "plain.toml")
        measured(folder, "prepare", f"{name}.parquet", *study, "--site", name, "--out", name)


def exchange(folder: Path, name: str, size: Size) -> list[dict[str, str]]:
    """One exchange: a row of the table for each step."""
    start, answer, model = f"{name}-start.daniel", f"{name}-answer.daniel", f"{name}-model"
    study = ("--study", f"{name}.toml")
    steps = {
        "start": (("start", HUB, *study, "--out", start), start),
        "answer": (("answer", SITE, start, *study, "--approve", "me", "--out", answer), answer),
        "finish": (
            ("finish", HUB, start, answer, *study, "--out", model),
            f"{model}/model.safetensors",
        ),
    }
    rows = []
    for step, (arguments, file) in steps.items():
        cost = measured(folder, *arguments)
        began = messages.read((folder / start).read_bytes()).arrays["U"]
        head = {
            "records": f"{size.records:,}",
            "start": FITTED if began.any() else INDEPENDENCE,
            "answers": name,
            "step": step,
        }
        code = {"processor": machine()["processor"], "core": core()}
        rows.append(head | cells(cost, (folder / file).stat().st_size) | code)
        print(*rows[-1].values(), sep="  ", flush=True)
    return rows


def cells(cost: Cost, written: int) -> dict[str, str]:
    """What a step took, and the size of the file that it wrote."""
    return {
        "time": f"{cost.seconds:,.0f} s",
        "of all cores": f"{cost.processor:,.0f} s",
        "peak memory": f"{cost.memory / 1024:.1f} GB",
        "file": f"{written / 1e6:,.0f} MB",
    }


def rows_of(text: str) -> list[dict[str, str]]:
    return [
        ONE_RUN | row | {k: row.get(k, v) for k, v in UNKNOWN.items()} for row in tables.read(text)
    ]


def runs(text: str) -> Iterator[Run]:
    """The runs whose rows stand in a table."""
    said = re.search(r"([\d,]+) codes,.*?([\d,]+) components", text)
    assert said is not None
    p, components = (int(number.replace(",", "")) for number in said.groups())
    for (records, start), group in groupby(
        rows_of(text), key=lambda row: (row["records"], row["start"])
    ):
        rows = list(group)
        size = Size(p, int(tables.number(records)), components)
        about = {key: _one(row[key] for row in rows) for key in UNKNOWN}
        seconds, memory = (_by_step(rows, column) for column in ("time", "peak memory"))
        yield Run(size, start == FITTED, seconds, memory, **about)


def _by_step(rows: list[dict[str, str]], column: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in [row for row in rows if column in row]:
        found.setdefault(row["answers"], {})[row["step"]] = tables.number(row[column])
    return found


def _one(values: Iterable[str]) -> str | None:
    """What all rows tell, if they tell the same."""
    told = set(values)
    return told.pop() if len(told) == 1 and "not stored" not in told else None


def others(path: Path, size: Size) -> list[dict[str, str]]:
    """Rows that stand in a table of the same codes and components, of other numbers of records."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    old = {(run.size.p, run.size.components) for run in runs(text)}
    if old != {(size.p, size.components)}:
        return []
    return [row for row in rows_of(text) if row["records"] != f"{size.records:,}"]


def markdown(size: Size, rows: list[dict[str, str]]) -> str:
    rows = sorted(rows, key=lambda row: tables.number(row["records"]))
    few = int(SMALL_HUB * size.p)
    k = TIMES * size.components
    return f"""# Very many codes

{size.p:,} codes, {size.components} components, two sites with as many records each, on \
one machine;
written by `python -m benchmarks.large`. Each step is the command in a process of its own. A \
(p, p) array in single
precision has {4e-9 * size.p**2:.2g} GB. Sketches have {k} directions; a site that makes one holds \
no (p, p) array. The solver
of the finish holds one; the peak is that of the whole command, which also reads and adds up \
answers and takes a spectrum.

The records are synthetic. A hub with at most {SMALL_HUB:g} records a code, here {few:,}, or that \
sees no component above
chance, starts at independence: the start is then no fit, the answer multiplies no factors, and \
the finish goes the
whole way by itself, on synthetic records (docs/method.md).

{tables.made(rows)}

Last run: {made_by()}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--p", type=int, default=P)
    parser.add_argument("--records", type=int, default=RECORDS, help="of each site")
    parser.add_argument("--components", type=int, default=COMPONENTS)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    size = Size(arguments.p, arguments.records, arguments.components)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_sites(folder, size)
        rows = [row for name in ("plain", "sketched") for row in exchange(folder, name, size)]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    text = markdown(size, [*others(arguments.out, size), *rows])
    arguments.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
