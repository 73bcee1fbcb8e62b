"""What the study must show, each claim with the cells that hold it and the worst of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from daniel.simulation.compare import BY_P, ERROR, with_published
from daniel.simulation.methods import BASELINES, METHODS

PLACE = ["n", "p", "x"]
COLUMNS = ["claim", "limit", "cells", "hold", "worst", "worst_cell"]


@dataclass(frozen=True)
class Claim:
    """text; values: a ratio for each cell (n, p, x, value); it holds where value <= limit."""

    text: str
    limit: float
    values: pd.DataFrame


def check_claims(main: pd.DataFrame | None, dimension: pd.DataFrame | None) -> pd.DataFrame:
    """claim, limit, cells, hold, worst, worst_cell; from the cells of both designs.

    A missing design, or one without the methods of a claim, leaves the claim with 0 cells.
    """
    rows = [_row(claim) for claim in _all(_or_empty(main), _or_empty(dimension))]
    return pd.DataFrame(rows, columns=COLUMNS)


def _all(main: pd.DataFrame, dimension: pd.DataFrame) -> Iterator[Claim]:
    both = (main, dimension)
    yield Claim(
        "default / the paper's DANIEL, error table at p = 50",
        0.6,
        _to_published(main, ERROR, "default"),
    )
    yield Claim(
        "default / the paper's DANIEL, error against p",
        0.85,
        _to_published(dimension, BY_P, "default"),
    )
    yield Claim("default / pooled", 1.1, _ratio(both, "default", "pooled"))
    yield Claim("default / zero", 1.02, _ratio(both, "default", "zero"))
    for x, limit in ((0.5, 1.15), (0.6, 1.3)):
        yield Claim(f"default at x = {x} / at x = 0, n >= 5,000", limit, _flatness(main, x))
    yield Claim("share of default fits without an answer", 0.0, _failures(both))
    paper = [_to_published(main, ERROR, "paper"), _to_published(dimension, BY_P, "paper")]
    early = pd.concat(paper, ignore_index=True)
    yield Claim(
        "paper's recipe / the paper's DANIEL, x <= 0.4", 1.0, early[early["x"] <= 0.4 + 1e-9]
    )
    for name in BASELINES:
        yield Claim(
            f"median time, default / {METHODS[name].label}",
            1.0,
            _ratio(both, "default", name, "seconds_median"),
        )


def _row(claim: Claim) -> tuple[str, float, int, int, float | None, str]:
    values = claim.values.dropna(subset="value").reset_index(drop=True)
    if values.empty:
        return claim.text, claim.limit, 0, 0, None, ""
    worst = values.loc[values["value"].idxmax()]
    cell = f"n = {int(worst['n']):,}, p = {int(worst['p'])}, x = {worst['x']:g}"
    holds = int((values["value"] <= claim.limit).sum())
    return claim.text, claim.limit, len(values), holds, float(worst["value"]), cell


def claims_markdown(table: pd.DataFrame) -> str:
    lines = [
        "| claim | limit | cells | hold | worst | where |",
        "|---|---|---|---|---|---|",
    ]
    for row in table.itertuples(index=False):
        worst = "–" if pd.isna(row.worst) else f"{row.worst:.3f}"
        hold = "not measured" if row.cells == 0 else f"{row.hold}"
        lines.append(
            f"| {row.claim} | {row.limit:g} | {row.cells} | {hold} | {worst} | {row.worst_cell} |"
        )
    return "\n".join(lines) + "\n"


def _or_empty(table: pd.DataFrame | None) -> pd.DataFrame:
    if table is not None:
        return table
    columns = [*PLACE, "m", "method", "reps", "missing", "error", "error_sd", "seconds_median"]
    return pd.DataFrame(columns=columns)


def _to_published(table: pd.DataFrame, label: str, method: str) -> pd.DataFrame:
    own = with_published(table, label, "error")
    own = own[own["method"] == method]
    return own[PLACE].assign(value=own["ratio"])


def _ratio(
    tables: Sequence[pd.DataFrame], method: str, other: str, value: str = "error"
) -> pd.DataFrame:
    """method / other in every cell of every table that has both."""
    found = []
    for table in tables:
        left, right = (table[table["method"] == name] for name in (method, other))
        both = left.merge(right, on=PLACE, suffixes=("", "_other"))
        found.append(both[PLACE].assign(value=both[value] / both[f"{value}_other"]))
    return pd.concat(found, ignore_index=True)


def _flatness(table: pd.DataFrame, x: float) -> pd.DataFrame:
    own = table[(table["method"] == "default") & (table["n"] >= 5000)]
    both = own[own["x"] == x].merge(own[own["x"] == 0], on=["n", "p"], suffixes=("", "_0"))
    return both[PLACE].assign(value=both["error"] / both["error_0"])


def _failures(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    table = pd.concat(tables, ignore_index=True)
    own = table[table["method"] == "default"]
    return own[PLACE].assign(value=own["missing"] / own["reps"])
