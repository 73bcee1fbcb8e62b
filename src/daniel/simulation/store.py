"""The result file: one CSV that grows by whole repetitions and survives an interruption.

Line 1 is ``# daniel simulation`` and JSON: what all rows have in common.  Line 2 names the columns.
Rows are appended and flushed to the disk before the next are computed.  A last line that a crash
tore is dropped when the run goes on.  A file of another design is never touched.

Rows of method "pilot" chose the step size: the paper's recipe at x = 0, one row for each step.
"""

import hashlib
import io
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from daniel import __version__
from daniel.errors import FormatError, InputError
from daniel.simulation.design import SWEEPS, Design
from daniel.simulation.methods import PILOTS, STEPS, STOP, THRESHOLD

FORMAT = 1
MARK = "# daniel simulation "
COLUMNS = [
    *("n", "p", "d", "x", "m", "method", "rep", "eta"),
    *("error", "seconds", "n_iter", "reason"),
]
COMPARED = ("format", "design", "seed", "d", "settings", "daniel")
KEY = ["n", "p", "x", "method", "rep", "eta"]
PILOT = "pilot"


def make_header(design: Design, seed: int) -> dict[str, Any]:
    """What every row of a file has in common.  n, p, x and methods may grow, so are not in it."""
    settings = repr((SWEEPS, STEPS, PILOTS, sorted(STOP.items()), THRESHOLD))
    rank = "p/10" if design.d is None else design.d
    return {**facts(design.name, seed, settings), "d": rank}


def facts(design: str, seed: int, settings: str) -> dict[str, Any]:
    """The first line of a file: what made it, with the settings as a short hash."""
    return {
        **{"format": FORMAT, "design": design, "seed": seed},
        "settings": hashlib.sha256(settings.encode()).hexdigest()[:12],
        **{"daniel": __version__, "python": platform.python_version()},
    }


def open_results(path: Path, head: Mapping[str, Any]) -> None:
    """Make an empty file; one that is there must have the same header, and loses a torn line."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
        temporary.write_text(f"{MARK}{json.dumps(head)}\n{','.join(COLUMNS)}\n", encoding="utf-8")
        os.replace(temporary, path)
        return
    check_design(path, head)
    with path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rindex(b"\n") + 1)


def check_design(path: Path, head: Mapping[str, Any], *, adding: bool = False) -> None:
    """Raise unless the file's rows and those of a run with this header belong together.

    adding: also refuse what another version of daniel wrote, which may be read but not added to.
    """
    found = read_header(path)
    for key in COMPARED:
        wanted = head.get(key)
        if found.get(key) != wanted and (adding or key != "daniel"):
            raise FormatError(
                f"{path} holds results of another study: {key} is {found.get(key)!r} there and "
                f"{wanted!r} now; choose another --out, or remove the file to start over."
            )


def read_header(path: Path) -> dict[str, Any]:
    """The facts in the first line of a result file."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        line = first.decode()
        if not line.startswith(MARK):
            raise ValueError
        return dict(json.loads(line.removeprefix(MARK)))
    except ValueError:
        raise FormatError(
            f"{path} is not a result file of the simulation study; choose another --out."
        ) from None


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as whole lines, and wait until the disk has them."""
    text = pd.DataFrame(list(rows), columns=COLUMNS).to_csv(
        index=False, header=False, float_format="%.7g", lineterminator="\n"
    )
    with path.open("ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def read_results(path: str | Path) -> pd.DataFrame:
    """All rows of a result file, each once; a torn last line is left out."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no result file at {path}; run daniel simulate first.")
    read_header(path)
    content = path.read_bytes()
    whole = content[: content.rindex(b"\n") + 1]
    try:
        frame = pd.read_csv(
            io.BytesIO(whole),
            skiprows=1,
            dtype={"reason": str},
            keep_default_na=False,
            na_values={name: [""] for name in ("error", "n_iter", "eta")},
        )
        frame = frame.astype({"n": int, "p": int, "d": int, "x": float, "m": int, "rep": int})
        frame = frame.astype({"error": float, "seconds": float, "eta": float, "n_iter": "Int64"})
    except (ValueError, TypeError):
        raise FormatError(
            f"{path} is damaged: a line is not what daniel wrote; remove that line and run again."
        ) from None
    return frame.drop_duplicates(KEY, ignore_index=True)


def chosen_steps(results: pd.DataFrame) -> dict[tuple[int, int], float]:
    """(n, p) -> eta with the smallest mean error over the pilot repetitions.

    A step that diverged in any of them is out.  Only (n, p) with a complete pilot are answered.
    """
    chosen = {}
    pilots = results[results["method"] == PILOT]
    for (n, p), rows in pilots.groupby(["n", "p"]):
        if len(rows) < len(STEPS) * PILOTS:
            continue
        mean = rows.groupby("eta")["error"].agg(lambda e: e.mean(skipna=False)).dropna()
        chosen[int(n), int(p)] = float(mean.idxmin()) if len(mean) else STEPS[0]
    return chosen
