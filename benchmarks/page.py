"""docs/benchmarks.md, made from stored results alone.

    python -m benchmarks.page

Races (results/races), growth (results/growth.json) and single measurements (SINGLE) each give a
section.  What has not been measured is left out, with the command that would measure it.
"""

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

from benchmarks import page_commands, page_growth, page_races
from benchmarks.race import OUT as RACES
from benchmarks.race import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Made by `python -m benchmarks.page` from what is stored in [results](../results); every number
here is copied from there. What a table means for a network of hospitals: [scale.md](scale.md).
"""
# File in results -> title, and the command that writes it.
SINGLE = {
    "papersize.json": ("The paper's size on one machine", "python -m benchmarks.papersize"),
    "large.md": ("Very many codes", "python -m benchmarks.large"),
    "dask.txt": ("A cluster of processes", "make dask"),
    "federation/sketch.md": ("What sketched answers cost", "python -m benchmarks.sketch"),
    "sweep.txt": ("One gradient sweep", "make bench"),
    "solver.txt": ("The solver against the paper's descent", "make solver"),
}
DASK, BOUND = "dask.txt", 1.25  # times the local time that a fit on a cluster may take
DASK_ROW = re.compile(r"( +)(.+?) +[\d.]+ s +[\d.]+ s +([\d.]+) x ")


def missing(title: str, command: str) -> list[str]:
    return [f"## {title}", "", f"Not measured yet: `{command}`.", ""]


def single(title: str, command: str, path: Path) -> list[str]:
    """A file as it is, or the table of its facts."""
    text = path.read_text(encoding="utf-8")
    lines = [f"## {title}", ""]
    if path.suffix == ".md":  # its text says which command wrote it
        _heading, _, body = text.partition("\n\n")
        return [*lines, body.rstrip(), ""]
    lines += [f"`{command}`", ""]
    if path.suffix == ".json":
        return lines + facts(json.loads(text))
    return [*lines, "```", text.rstrip(), "```", "", *(verdict(text) if path.name == DASK else [])]


def verdict(text: str) -> list[str]:
    """What the rows of a cluster say about the bound of a fit."""
    ratios: dict[str, float] = {}
    above = ""  # the row that a further indented one belongs to
    for indent, name, ratio in DASK_ROW.findall(text):
        above, name = (name, name) if len(indent) == 2 else (above, f"{above}, {name}")
        ratios[name] = float(ratio)
    if not ratios:
        return []

    def listed(fits: bool, over: bool) -> str:
        some = {k: v for k, v in ratios.items() if k.startswith("fit") == fits}
        return "; ".join(f"{k} ({v:.2f} ×)" for k, v in some.items() if (v > BOUND) == over)

    said = [f"A fit may take {BOUND} × the local time."]
    for words, rows in (
        ("Within it", listed(True, False)),
        ("**Above it**", listed(True, True)),
        ("Other rows above it", listed(False, True)),
    ):
        said += [f"{words}: {rows}."] if rows else []
    return [" ".join(said), ""]


def facts(found: dict[str, Any]) -> list[str]:
    """A table of names and values; lists of like rows become tables of their own."""
    rows = {k: v for k, v in found.items() if not isinstance(v, dict | list)}
    lines = []
    if rows:
        lines += ["| | |", "|---|---|", *(f"| {k} | {shown(v)} |" for k, v in rows.items()), ""]
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [f"**{name}**: {'; '.join(f'{k} {shown(v)}' for k, v in value.items())}", ""]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            heads = list(value[0])
            lines += [f"**{name}**", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
            lines += [f"| {' | '.join(shown(row.get(h, '')) for h in heads)} |" for row in value]
            lines.append("")
        elif isinstance(value, list):
            lines += [f"**{name}**: {', '.join(map(shown, value))}", ""]
    return lines


def shown(value: Any) -> str:
    """A number with three digits that count, or in full when it is whole; else text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or value == round(value) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.3g}"


def page(results: Path) -> str:
    """The whole page, for a folder of results."""
    lines = [HEAD]
    races = [
        json.loads(path.read_text("utf-8")) for path in sorted((results / "races").glob("*.json"))
    ]
    if races:
        lines += page_races.section(races)
    else:
        lines += missing("Races", "python -m benchmarks.race")
    growth = results / "growth.json"
    if growth.exists():
        points = json.loads(growth.read_text("utf-8"))
        lines += page_growth.section(points, page_commands.stored(results))
    else:
        lines += missing("Growth", "python -m benchmarks.growth")
    for name, (title, command) in SINGLE.items():
        path = results / name
        lines += single(title, command, path) if path.exists() else missing(title, command)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RACES.parent)
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    part = arguments.out.with_name(f"{arguments.out.name}.{os.getpid()}.part")
    part.write_text(page(arguments.results), encoding="utf-8")
    os.replace(part, arguments.out)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
