"""docs/benchmarks.md, made from stored results alone.

    python -m benchmarks.page

What was asked of this software stands first, then races (results/races), growth
(results/growth.json) and single measurements (SINGLE), a section each.  What has not been measured
is left out, with the command that would measure it.  Results that another core made than that of
the page are told; the page names its own core, so that it can be made again when that has changed.
"""

import argparse
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import large, page_asked, page_commands, page_dask, page_growth, page_races, source
from benchmarks.race import OUT as RACES
from benchmarks.race import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Made by `python -m benchmarks.page` from what is stored in [results](../results); every number
here is copied from there. What a table means for a network of hospitals: [scale.md](scale.md).
The present core, when this page was made: `{core}`.
"""
OTHER = "Made with other code than the present core"
# File in results -> title, and the command that writes it.
SINGLE = {
    "papersize.json": ("The paper's size on one machine", "python -m benchmarks.papersize"),
    "large.md": ("Very many codes", "python -m benchmarks.large"),
    "dask.txt": ("A cluster of processes", "make dask"),
    "federation/sketch.md": ("What sketched answers cost", "python -m benchmarks.sketch"),
    "sweep.txt": ("One gradient sweep", "make bench"),
    "solver.txt": ("The solver against the paper's descent", "make solver"),
}
DASK = "dask.txt"
TOLD = ("growth.json", "papersize.json", "large.md", DASK, "sweep.txt", "solver.txt")


def missing(title: str, command: str) -> list[str]:
    return [f"## {title}", "", f"Not measured yet: `{command}`.", ""]


def cores(path: Path) -> Iterable[str | None]:
    """Fingerprints of the core that made a result; None where one is not stored."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return [json.loads(text).get(source.CORE)]
    if path.name == "large.md":  # each run has its own
        return [made.core for made in large.runs(text)]
    return [source.told_core(text)]


def other_code(path: Path, core: str) -> list[str]:
    """A line where a result was not made by this core, or does not tell."""
    made = set(cores(path)) if path.exists() and path.name in TOLD else {core}
    if made == {core}:
        return []
    return [f"{OTHER}{', or not known' if None in made else ''}.", ""]


def all_other(results: Path, core: str) -> list[str]:
    """The results that `other_code` tells of, in one line."""
    names = [name for name in TOLD if other_code(results / name, core)]
    return [f"{OTHER}, or not known: {', '.join(names)}.", ""] if names else []


def single(title: str, command: str, path: Path, core: str) -> list[str]:
    """A file as it is, or the table of its facts."""
    text = path.read_text(encoding="utf-8")
    lines = [f"## {title}", "", *other_code(path, core)]
    if path.suffix == ".md":  # its text says which command wrote it
        _heading, _, body = text.partition("\n\n")
        return [*lines, body.rstrip(), ""]
    lines += [f"`{command}`", ""]
    if path.suffix == ".json":
        return lines + facts(json.loads(text))
    return [
        *lines,
        "```",
        text.rstrip(),
        "```",
        "",
        *(page_dask.verdict(text) if path.name == DASK else []),
    ]


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


def told_core(text: str) -> str | None:
    """The core that a page was made with."""
    said = re.search(r"The present core, when this page was made: `(\w+)`", text)
    return None if said is None else said[1]


def page(results: Path, core: str | None = None) -> str:
    """The whole page, for a folder of results; core: the present one, if not told."""
    core = core or source.core()
    races = [
        json.loads(path.read_text("utf-8")) for path in sorted((results / "races").glob("*.json"))
    ]
    lines = [HEAD.format(core=core), *page_asked.section(results, page_races.counted(races))]
    lines += all_other(results, core)
    if races:
        lines += page_races.section(races)
    else:
        lines += missing("Races", "python -m benchmarks.race")
    growth = results / "growth.json"
    if growth.exists():
        points = json.loads(growth.read_text("utf-8"))
        found = page_growth.section(points, page_commands.stored(results))
        lines += [*found[:2], *other_code(growth, core), *found[2:]]
    else:
        lines += missing("Growth", "python -m benchmarks.growth")
    for name, (title, command) in SINGLE.items():
        path = results / name
        lines += single(title, command, path, core) if path.exists() else missing(title, command)
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
