"""Very many codes on one machine: time and peak memory of each step, plain and sketched.

    python -m benchmarks.large                   p = 20,000; writes results/large.md
    python -m benchmarks.large --p 2000 --records 5000 --components 30 --out small.md

Two sites of equal size, an open study.  Every step is the command in a process of its own.
Records are drawn from topics of codes.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.exchange import Cost, events, measured
from benchmarks.problems import PROJECT_ROOT
from daniel.federated.keys import make_key, write_key
from daniel.study import Codes, Disclosure, Model, Study

OUT = PROJECT_ROOT / "results" / "large.md"
HUB, SITE = "north", "south"
P, RECORDS, COMPONENTS = 20_000, 50_000, 100
TIMES = 3  # directions of a sketch, in components


@dataclass(frozen=True)
class Size:
    p: int
    records: int
    components: int


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


def exchange(folder: Path, name: str) -> dict[str, tuple[Cost, int]]:
    """Cost of each step of one exchange, and the size of the file that it writes."""
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
    out = {}
    for step, (arguments, file) in steps.items():
        cost = measured(folder, *arguments)
        out[step] = cost, (folder / file).stat().st_size
        print(name, step, cost, f"{out[step][1] / 1e6:,.1f} MB", flush=True)
    return out


def markdown(size: Size, costs: dict[str, dict[str, tuple[Cost, int]]]) -> str:
    lines = [
        "| answers | step | time | of all cores | peak memory | file |",
        "|---|---|---|---|---|---|",
    ]
    for name, steps in costs.items():
        for step, (cost, written) in steps.items():
            times = f"{cost.seconds:,.0f} s | {cost.processor:,.0f} s"
            memory = f"{cost.memory / 1024:.1f} GB"
            lines.append(f"| {name} | {step} | {times} | {memory} | {written / 1e6:,.0f} MB |")
    table = "\n".join(lines)
    k = TIMES * size.components
    return f"""# Very many codes

{size.p:,} codes, {size.records:,} records at each of two sites, {size.components} components, on \
one machine with {os.cpu_count()} cores;
written by `python -m benchmarks.large`. Each step is the command in a process of its own. A \
(p, p) array in single
precision has {4e-9 * size.p**2:.2g} GB. Sketches have {k} directions; a site that makes one holds \
no (p, p) array. The hub
holds one when it finishes, for its own derivative.

{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--p", type=int, default=P)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--components", type=int, default=COMPONENTS)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    size = Size(arguments.p, arguments.records, arguments.components)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_sites(folder, size)
        costs = {name: exchange(folder, name) for name in ("plain", "sketched")}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(markdown(size, costs), "utf-8")


if __name__ == "__main__":
    main()
