"""Results -> cells -> the paper's three tables, its published figures beside ours.

A cell holds the repetitions of one (n, p, x, method).  A fit without an answer (it diverged) is
counted as missing and enters no mean.
"""

from collections.abc import Iterable
from importlib.resources import files
from io import StringIO

import pandas as pd

from daniel.simulation.methods import BASELINES, METHODS
from daniel.simulation.store import PILOT, chosen_steps
from daniel.simulation.write import markdown_line

PAPER = "DANIEL"  # the paper's name of its own method
ERROR, TIME, BY_P = "fig:app_simu_tab_err", "fig:app_simu_tab_time", "tab:app_simu_EvP"
# Our method -> the published one it stands beside.
BESIDE = {"paper": PAPER, "default": PAPER, "free": PAPER, **{name: name for name in BASELINES}}
NOTE = (
    "mean±sd over repetitions; in brackets the ratio to the paper's figure, for every DANIEL to "
    "the paper's DANIEL. †k: k repetitions diverged and are not in the mean."
)


def published() -> pd.DataFrame:
    """The paper's figures: table (its label), n, p, x, method, mean, sd."""
    text = files("daniel.simulation").joinpath("published.csv").read_text("utf-8")
    return pd.read_csv(StringIO(text))


def make_cells(results: pd.DataFrame) -> pd.DataFrame:
    """One row for each (n, p, x, method): repetitions, missing ones, error and time.

    Methods that do not know the sites are repeated at every x of their (n, p).
    """
    study = results[results["method"] != PILOT]
    grouped = study.groupby(["n", "p", "x", "m", "method"], sort=True)
    table = grouped.agg(
        reps=("rep", "size"),
        missing=("error", lambda e: int(e.isna().sum())),
        error=("error", "mean"),
        error_sd=("error", "std"),
        error_max=("error", "max"),
        seconds=("seconds", "mean"),
        seconds_sd=("seconds", "std"),
        seconds_median=("seconds", "median"),
    ).reset_index()
    return _at_every_x(table)


def _at_every_x(table: pd.DataFrame) -> pd.DataFrame:
    siteless = [name for name, method in METHODS.items() if not method.uses_sites]
    with_sites = table[~table["method"].isin(siteless)]
    if with_sites.empty:
        return table
    places = with_sites[["n", "p", "x", "m"]].drop_duplicates()
    once = table[table["method"].isin(siteless)].drop(columns=["x", "m"])
    both = pd.concat([with_sites, places.merge(once, on=["n", "p"])])
    order = {name: i for i, name in enumerate(METHODS)}
    return both.sort_values(
        ["n", "p", "x", "method"], key=lambda c: c.map(order) if c.name == "method" else c
    ).reset_index(drop=True)


def with_published(table: pd.DataFrame, label: str, value: str) -> pd.DataFrame:
    """The cells of one published table: mean, sd, missing, published and published_sd, ratio.

    value: "error" or "seconds".  Cells that the paper does not have are left out.
    """
    source = published()
    source = source[source["table"] == label]
    places = source[["n", "p", "x"]].drop_duplicates()
    own = table.merge(places, on=["n", "p", "x"])
    own = own.assign(beside=own["method"].map(BESIDE))
    there = source.rename(columns={"method": "beside", "mean": "published", "sd": "published_sd"})
    own = own.merge(there.drop(columns="table"), on=["n", "p", "x", "beside"], how="left")
    own = own.rename(columns={value: "mean", f"{value}_sd": "sd"})
    own["ratio"] = own["mean"] / own["published"]
    columns = ["n", "p", "x", "m", "method", "reps", "missing", "mean", "sd"]
    return own[[*columns, "published", "published_sd", "ratio"]]


def table_markdown(table: pd.DataFrame, across: str, *, digits: int = 2) -> str:
    """The table as the paper prints it: methods down, `across` ("x" or "p") to the right."""
    values = sorted(table[across].unique())
    lines = [markdown_line("n", "method", *(f"{across} = {v:g}" for v in values))]
    lines.append("|" + "---|" * (len(values) + 2))
    for n, block in table.groupby("n"):
        for name, rows in _rows(block, values, across, digits):
            lines.append(markdown_line(f"{n:,}", name, *rows))
    return "\n".join([*lines, "", NOTE]) + "\n"


def _rows(
    block: pd.DataFrame, values: Iterable[float], across: str, digits: int
) -> Iterable[tuple[str, list[str]]]:
    """(name, figures): each published method in italics, then ours that stand beside it."""
    shown = ""
    for name in (m for m in METHODS if m in set(block["method"])):
        own = block[block["method"] == name].set_index(across)
        beside = BESIDE.get(name, "")
        if beside and beside != shown:
            shown = beside
            yield (
                f"*{beside}, published*",
                [_figure(own, v, "published", "published_sd", digits) for v in values],
            )
        label = METHODS[name].label
        yield label, [_figure(own, v, "mean", "sd", digits) for v in values]


def _figure(rows: pd.DataFrame, at: float, mean: str, sd: str, digits: int) -> str:
    if at not in rows.index or pd.isna(rows.loc[at, mean]):
        missing = rows.loc[at, "missing"] if at in rows.index and mean == "mean" else 0
        return f"–†{missing}" if missing else "–"
    row = rows.loc[at]
    spread = "" if pd.isna(row[sd]) else f"±{row[sd]:.{digits}f}"
    text = f"{row[mean]:.{digits}f}{spread}"
    if mean == "mean" and not pd.isna(row["ratio"]):
        text += f" ({row['ratio']:.2f})"
    return text + (f" †{row['missing']}" if mean == "mean" and row["missing"] else "")


def steps_table(results: pd.DataFrame) -> pd.DataFrame:
    """The pilot: mean error of the paper's recipe at x = 0 for each step, and the one chosen."""
    pilot = results[results["method"] == PILOT]
    table = pilot.pivot_table(
        index=["n", "p"], columns="eta", values="error", aggfunc=lambda e: e.mean(skipna=False)
    )
    table.columns = [f"eta={eta:g}" for eta in table.columns]
    chosen = chosen_steps(results)
    table["chosen"] = [chosen.get(pair) for pair in table.index]
    return table.reset_index()
