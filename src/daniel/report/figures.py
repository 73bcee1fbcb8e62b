"""Figures of the report as SVG text; the same table gives the same text."""

from collections.abc import Mapping
from io import StringIO
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from daniel.plots import COLOURS, MARKERS, NARROW, SETTINGS


def svg(figure: Figure) -> str:
    """A figure as SVG, without the date and the element names that would differ each time."""
    text = StringIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def auc_intervals(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """AUCs with their intervals, one line a row; tables: name -> auc, lo, hi by what was told.

    Drawn with three digits: coordinates with more would tell how many cases there are.
    """
    tables = {name: table[["auc", "lo", "hi"]].round(3) for name, table in tables.items()}
    rows = list(dict.fromkeys(name for table in tables.values() for name in table.index))
    with matplotlib.rc_context(SETTINGS):
        height = 0.9 + 0.42 * len(rows) + 0.25 * (len(tables) > 1)
        figure = Figure(figsize=(NARROW, height), layout="constrained")
        axes = figure.subplots()
        for place, (name, table) in enumerate(tables.items()):
            shift = 0.24 * (place - (len(tables) - 1) / 2)
            y = [rows.index(row) + shift for row in table.index]
            error = [table["auc"] - table["lo"], table["hi"] - table["auc"]]
            style: dict[str, Any] = {
                "fmt": MARKERS[place],
                "color": COLOURS[place],
                "ms": 5,
                "lw": 1.4,
            }
            axes.errorbar(table["auc"], y, xerr=error, label=name, **style)
        axes.axvline(0.5, color="#555555", ls=":", lw=1)
        axes.set_yticks(range(len(rows)), [row.replace("$", r"\$") for row in map(str, rows)])
        low = min([0.48, *(table["lo"].min() - 0.02 for table in tables.values())])
        axes.xaxis.set_major_locator(MultipleLocator(0.1 if low > 0.25 else 0.25))  # chance too
        axes.set(xlim=(low, 1.0), ylim=(len(rows) - 0.5, -0.5), xlabel="AUC; 0.5 is chance")
        axes.grid(axis="y", visible=False)
        if len(tables) > 1:
            figure.legend(frameon=False, fontsize=8, loc="outside upper right", ncols=len(tables))
    return figure
