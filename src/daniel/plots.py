"""Tables -> figures, without a display; the same table gives the same file, byte by byte."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

RED = "#c1272d"
# Method -> colour and marker.  DANIEL is red as in the paper; the others have colours that
# colour-blind readers can tell apart (Okabe and Ito).
STYLES: dict[str, tuple[str, str]] = {
    "default": (RED, "o"),
    "free": ("#e6878b", "o"),
    "paper": ("#e69f00", "D"),
    "SV-Soft": ("#0072b2", "s"),
    "SV-Hard": ("#56b4e9", "^"),
    "SV-Topd": ("#009e73", "v"),
    "PSD-Cvx": ("#cc79a7", "P"),
    "pooled": ("#000000", ""),
    "zero": ("#999999", ""),
}
DASHES = {"pooled": "--", "zero": ":"}
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "daniel",  # element names from the content alone
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
UNITS = {"error": "error  ‖Θ − Θ*‖", "seconds": "time, seconds"}


def error_and_time(
    cells: pd.DataFrame, labels: Mapping[str, str], published: Mapping[str, pd.DataFrame]
) -> Figure:
    """Error above, time below, against x; one column of panels for each p.

    cells: p, x, method, error, seconds of one n.  labels: method -> its name.  published: "error"
    and "seconds" -> p, x, method, mean; drawn as hollow markers.
    """
    dimensions = sorted(cells["p"].unique())
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(max(5.6, 2.9 * len(dimensions)), 5.6), layout="constrained")
        panels = figure.subplots(2, len(dimensions), squeeze=False, sharex=True, sharey="row")
        for row, value in zip(panels, ("error", "seconds"), strict=True):
            for axes, p in zip(row, dimensions, strict=True):
                own = cells[cells["p"] == p]
                if value == "seconds":  # these two are no rivals in time
                    own = own[~own["method"].isin(["pooled", "zero"])]
                there = published[value]
                _lines(axes, own, "x", value, there[there["p"] == p])
            row[0].set_ylabel(UNITS[value])
        for axes, p in zip(panels[0], dimensions, strict=True):
            axes.set_title(f"p = {p}")
        for axes in panels[1]:
            axes.set_xlabel("x  (m = nˣ sites)")
        _legend(figure, panels[0][0], labels)
    return figure


def error_against(
    cells: pd.DataFrame, across: str, labels: Mapping[str, str], published: pd.DataFrame
) -> Figure:
    """Error against one column of the cells, all methods in one panel."""
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(5.6, 4.4), layout="constrained")
        axes = figure.subplots()
        _lines(axes, cells, across, "error", published)
        axes.set_xlabel(across)
        axes.set_ylabel(UNITS["error"])
        _legend(figure, axes, labels)
    return figure


def log_log(panels: Sequence[tuple[str, pd.DataFrame]], *, xlabel: str, ylabel: str) -> Figure:
    """Lines on log-log axes, one panel each: (title, table with x as index, a column a line).

    Columns named "a" and "a, ..." share a colour; the latter are dashed.  A dotted line has the
    slope -1/2.
    """
    families = list(dict.fromkeys(c.split(",")[0] for _, table in panels for c in table.columns))
    colours = dict(zip(families, (RED, "#e69f00", "#0072b2", "#009e73"), strict=False))
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(4.2 * len(panels), 3.8), layout="constrained")
        every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (title, table) in zip(every, panels, strict=True):
            for name in table.columns:
                style = "o--" if "," in name else "o-"
                colour = colours[name.split(",")[0]]
                axes.plot(table.index, table[name], style, color=colour, label=name, ms=4)
            guide = table.iloc[0].min() * (table.index / table.index[0]) ** -0.5
            axes.plot(table.index, guide, ":", color="#555555", label="slope −1/2")
            axes.set(xscale="log", yscale="log", title=title, xlabel=xlabel)
            axes.set_xticks(table.index, [f"{value:,}" for value in table.index], fontsize=7)
            axes.set_xticks([], minor=True)
            _plain_numbers(axes)
            axes.legend(frameon=False, fontsize=7)
        every[0].set_ylabel(ylabel)
    return figure


def save(figure: Figure, stem: str | Path) -> list[Path]:
    """Write the figure as PNG and SVG beside each other, each whole or not at all."""
    stem = Path(stem)
    written = []
    for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
        target = stem.with_name(stem.name + suffix)
        temporary = target.with_name(f".{target.name}.part")
        try:
            with matplotlib.rc_context(SETTINGS):
                figure.savefig(temporary, format=suffix[1:], dpi=150, metadata=metadata)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        written.append(target)
    return written


def _lines(
    axes: Axes, cells: pd.DataFrame, across: str, value: str, published: pd.DataFrame
) -> None:
    for name, (colour, marker) in STYLES.items():
        own = cells[(cells["method"] == name) & cells[value].notna()].sort_values(across)
        if len(own):
            style: dict[str, Any] = {"color": colour, "lw": 2.2 if name == "default" else 1.2}
            axes.plot(
                own[across],
                own[value],
                DASHES.get(name, "-"),
                marker=marker,
                ms=4,
                label=name,
                zorder={"default": 4, "pooled": 5}.get(name, 3),
                **style,
            )
        there = published[published["method"] == name]
        hollow: dict[str, Any] = {"mfc": "none", "mec": colour, "ms": 7, "mew": 0.9}
        axes.plot(there[across], there["mean"], marker or ".", ls="", zorder=2, **hollow)
    axes.set_yscale("log")
    _plain_numbers(axes)


def _plain_numbers(axes: Axes) -> None:
    """0.1, 0.2, 0.5, 1 ... on a logarithmic axis, not powers of ten."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, axes: Axes, labels: Mapping[str, str]) -> None:
    handles, names = axes.get_legend_handles_labels()
    hollow = axes.plot([], [], "o", mfc="none", mec="#555555", ms=7, ls="")
    figure.legend(
        [*handles, *hollow],
        [*(labels.get(name, name) for name in names), "hollow: published"],
        loc="outside lower center",
        ncols=max(2, int(figure.get_figwidth() / 1.9)),
        frameon=False,
        fontsize=8,
    )
