"""The whole study in one call: run what is missing, then write every table and figure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from daniel.core.threads import n_threads
from daniel.errors import ParameterError
from daniel.simulation.claims import check_claims, claims_markdown
from daniel.simulation.compare import (
    BY_P,
    ERROR,
    PAPER,
    TIME,
    make_cells,
    published,
    steps_table,
    table_markdown,
    with_published,
)
from daniel.simulation.design import DESIGNS, Design, make_design
from daniel.simulation.methods import METHODS, read_methods
from daniel.simulation.runner import check_numbers, run
from daniel.simulation.store import check_design, make_header, read_header, read_results
from daniel.simulation.theory import QUICK_SCALE, Scale, measure_theory, read_theory
from daniel.simulation.theorytables import lines_against_n, theory_markdown
from daniel.simulation.write import write_table, write_text

PARTS = (*DESIGNS, "theory")
OUT, QUICK_OUT = Path("results/simulation"), Path("results/simulation-quick")
QUICK_REPS = 2
QUICK: dict[str, dict[str, tuple[int, ...]]] = {  # what --quick takes where nothing is said
    "main": {"n": (1000, 5000), "p": (50,)},
    "dimension": {"p": (20, 40, 60)},
}
Progress = Callable[[str, float, float], None]  # (part, work done, all work)
LABELS = {name: method.label for name, method in METHODS.items()}
# Name of the file -> label of the published table, what it shows, and what stands to the right.
TABLES = {
    "main": {
        "error": (ERROR, "error", "x", "Error ‖Θ − Θ*‖_F at p = 50"),
        "time": (TIME, "seconds", "x", "Time of a fit in seconds at p = 50"),
    },
    "dimension": {"dimension": (BY_P, "error", "p", "Error ‖Θ − Θ*‖_F against p, m = 15 sites")},
}


def study(
    part: str = "all",
    *,
    reps: int | None = None,
    jobs: int | None = None,
    seed: int = 0,
    n: Sequence[int] = (),
    p: Sequence[int] = (),
    x: Sequence[float] = (),
    d: int | None = None,
    methods: Sequence[str] = (),
    out: str | Path | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Run "main", "dimension", "theory" or "all"; return the files with results, tables, figures.

    Everything given is checked before anything runs.  jobs: processes, as many as there are cores
    unless given.  quick: few repetitions of few cells, in a folder of their own.
    """
    jobs = n_threads() if jobs is None else jobs
    if part not in (*PARTS, "all"):
        raise ParameterError(f"design is {part!r}; expected {', '.join(PARTS)} or all.")
    parts = PARTS if part == "all" else (part,)
    folder = Path(out) if out is not None else QUICK_OUT if quick else OUT
    if quick and reps is None:
        reps = QUICK_REPS
    read_methods(methods)
    check_numbers(reps, jobs, seed)
    designs = [
        # In "all" the other design has the n and x that it always has.
        _design(name, n, p, x, d, quick)
        if name == "main" or part != "all"
        else _design(name, (), p, (), d, quick)
        for name in parts
        if name in DESIGNS
    ]
    for design in designs:
        if (folder / f"{design.name}.csv").exists():
            check_design(folder / f"{design.name}.csv", make_header(design, seed))
    for design in designs:
        report = None if progress is None else partial(progress, design.name)
        run(design, reps=reps, jobs=jobs, seed=seed, methods=methods, out=folder, progress=report)
    if "theory" in parts:
        scale = QUICK_SCALE if quick else Scale()
        scale = scale if reps is None else replace(scale, reps=reps)
        report = None if progress is None else partial(progress, "theory")
        measure_theory(folder, scale=scale, jobs=jobs, seed=seed, progress=report)
    return tables(folder) + figures(folder)


def tables(folder: str | Path = OUT) -> list[Path]:
    """Write the tables of all results in the folder, as Markdown and CSV; return the files."""
    folder = Path(folder)
    paths = _results(folder)
    written, cells = [], {}
    for name, path in paths.items():
        results = read_results(path)
        cells[name] = make_cells(results)
        written += [path, *write_table(folder / f"{name}_cells", cells[name])]
        for stem, (label, value, across, title) in TABLES[name].items():
            table = with_published(cells[name], label, value)
            text = _title(title, path, cells=table) + table_markdown(table, across)
            written += write_table(folder / f"table_{stem}", table, text)
        written += write_table(folder / f"{name}_steps", steps_table(results))
    if cells:
        table = check_claims(cells.get("main"), cells.get("dimension"))
        text = _title("What the study must show", *paths.values(), cells=pd.concat(cells.values()))
        written += write_table(folder / "claims", table, text + claims_markdown(table))
    theory = folder / "theory.csv"
    if theory.is_file():
        title = _title("What the theory promises, measured", theory)
        text = title + theory_markdown(read_theory(theory))
        written += [theory, write_text(folder / "theory.md", text)]
    return written


def figures(folder: str | Path = OUT) -> list[Path]:
    """Draw the figures of all results in the folder, as PNG and SVG; return the files."""
    # Here, because the processes of a run need no figures and start sooner without.
    from daniel.plots import error_against, error_and_time, log_log, save

    folder = Path(folder)
    paths = _results(folder)
    source = published()
    source["method"] = source["method"].replace(PAPER, "paper")
    there = {label: rows for label, rows in source.groupby("table")}
    written = []
    if "main" in paths:
        for n, rows in make_cells(read_results(paths["main"])).groupby("n"):
            known = {"error": there[ERROR], "seconds": there[TIME]}
            known = {value: t[t["n"] == n] for value, t in known.items()}
            written += save(error_and_time(rows, LABELS, known), folder / f"figure_n{n}")
    if "dimension" in paths:
        rows = make_cells(read_results(paths["dimension"]))
        figure = error_against(rows, "p", LABELS, there[BY_P])
        written += save(figure, folder / "figure_dimension")
    if (folder / "theory.csv").is_file():
        lines = lines_against_n(read_theory(folder / "theory.csv"))
        panels = [
            ("error  ‖Θ − Θ*‖", lines["error"].groupby("n").mean()),
            ("gap  ‖Θ − Θ pooled‖", lines["gap"].groupby("n").mean()),
        ]
        written += save(
            log_log(panels, xlabel="n", ylabel="Frobenius norm"), folder / "figure_theory"
        )
    return written


def _design(
    name: str,
    n: Sequence[int],
    p: Sequence[int],
    x: Sequence[float],
    d: int | None,
    quick: bool,
) -> Design:
    few = QUICK[name] if quick else {}
    return make_design(name, n=n or few.get("n"), p=p or few.get("p"), x=x, d=d)


def _results(folder: Path) -> dict[str, Path]:
    paths = {name: folder / f"{name}.csv" for name in DESIGNS}
    return {name: path for name, path in paths.items() if path.is_file()}


def _title(title: str, *sources: Path, cells: pd.DataFrame | None = None) -> str:
    """Heading, and what made the figures: command, seed, version, repetitions."""
    made = []
    for path in sources:
        head = read_header(path)
        command = f"daniel simulate --design {head['design']} --seed {head['seed']}"
        made.append(f"`{command}`, daniel {head['daniel']}, Python {head['python']}")
    if cells is not None and len(cells):
        least, most = cells["reps"].min(), cells["reps"].max()
        made.append(f"{least} repetitions" if least == most else f"{least} to {most} repetitions")
    return f"# {title}\n\n{'; '.join(made)}.\n\n"
