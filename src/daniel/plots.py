"""Tables -> figures, without a display; the same table gives the same file, byte by byte."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

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
# For groups and kinds: colours after Okabe and Ito, each with a line and a marker of its own.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")
BLACK = "#000000"
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), "-")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
YEAR = 365.25
NARROW = 4.8  # inches: words stay legible when a phone shrinks the figure to its width
LABEL = 26  # characters of a node's name
SIDES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)])
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


def survival_curves(
    curves: pd.DataFrame, *, p_value: float | None = None, outcome: str = "outcome"
) -> Figure:
    """Life-table curves with bands, censor marks, and the number at risk below.

    curves: cluster, time (days), survival, lo, hi, at_risk, events, censored, as
    `evaluate.survival` releases them.  Rows count what happened since such were counted before, so
    between them run straight lines.  A mark stands where a row counts censored patients; the number
    at risk at a tick is that of the last row up to it.
    """
    groups = [(int(c), t.sort_values("time")) for c, t in curves.groupby("cluster")]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(NARROW, 3.6 + 0.2 * len(groups)), layout="constrained")
        heights = [3.6, 0.35 + 0.2 * len(groups)]
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
        for place, (cluster, table) in enumerate(groups):
            _survival(axes, place, cluster, table)
        axes.set(ylim=(0, 1.02), xlim=(0, None), ylabel=f"without {outcome}".replace("$", r"\$"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        axes.legend(frameon=False, loc="lower left", fontsize=8)
        if p_value is not None:
            axes.set_title(f"log-rank {p_text(p_value)}", loc="right", fontsize=9)
        _at_risk(below, groups, axes.get_xlim()[1])
    return figure


def p_text(p_value: float) -> str:
    """p = 0.0123, or p < 0.0001."""
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


def code_network(graph: Any) -> Figure:
    """A graph of `evaluate.graph.code_graph`: width by theta, size by prevalence, colour and marker
    by vocabulary; edges that come back in fewer than half of the refits are dashed, where known.
    """
    nodes = dict(graph.nodes(data=True))
    known = filter(None, graph.graph.get("vocabularies", "").split(", "))
    place_of = {kind: place for place, kind in enumerate(known)}
    for kind in sorted({about["vocabulary"] for about in nodes.values()}):
        place_of.setdefault(kind, len(place_of))
    share = np.array([about.get("prevalence", 0.0) for about in nodes.values()])
    sizes = 30 + 370 * share / max(float(share.max()), 1e-9)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(8, 7), layout="constrained")
        axes = figure.subplots()
        _edges(axes, graph, nodes)
        for kind, place in place_of.items():
            own = [i for i, about in enumerate(nodes.values()) if about["vocabulary"] == kind]
            if not own:
                continue
            at = [list(nodes.values())[i] for i in own]
            axes.scatter(
                [about["x"] for about in at],
                [about["y"] for about in at],
                s=sizes[own],
                c=COLOURS[place % len(COLOURS)],
                marker=_marker(place),
                edgecolors="white",
                linewidths=0.8,
                zorder=3,
            )
            style: dict[str, Any] = {"ls": "", "ms": 6, "marker": _marker(place)}
            colour = COLOURS[place % len(COLOURS)]
            axes.plot([], [], color=colour, label=kind or "no vocabulary", **style)
        axes.set_axis_off()
        axes.margins(0.12)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        _node_labels(figure, axes, list(nodes.values()), sizes)
    return figure


def _marker(place: int) -> str:
    """Of the vocabulary at a place; from the ninth on colours repeat, so markers are moved on."""
    return MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]


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


def _survival(axes: Axes, place: int, cluster: int, table: pd.DataFrame) -> None:
    colour = COLOURS[place % len(COLOURS)]
    years = table["time"] / YEAR
    n = f"{table['at_risk'].iloc[0]:,}"
    axes.fill_between(years, table["lo"], table["hi"], color=colour, alpha=0.15, lw=0)
    axes.plot(
        years,
        table["survival"],
        color=colour,
        ls=LINES[place % len(LINES)],
        lw=1.6,
        label=f"cluster {cluster} ({n} patients)",
    )
    censored = table["censored"] > 0
    axes.plot(years[censored], table["survival"][censored], "|", color=colour, ms=7, mew=1)


def _at_risk(axes: Axes, groups: Sequence[tuple[int, pd.DataFrame]], last: float) -> None:
    """Rows of numbers below the ticks, as far as the curves go; a coloured tick tells whose."""
    ticks = np.array(MaxNLocator(12, steps=[1, 2, 5, 10]).tick_values(0, last))
    ticks = ticks[ticks <= last]
    for place, (_, table) in enumerate(groups):
        years = table["time"].to_numpy() / YEAR
        for tick in ticks[ticks <= years[-1]]:
            row = np.searchsorted(years, tick, side="right") - 1
            axes.text(
                tick,
                -place,
                f"{table['at_risk'].iloc[row]:,}",
                ha="center",
                va="center",
                fontsize=7.5,
                color=BLACK,
            )
    axes.set(ylim=(-len(groups) + 0.4, 0.6), xlabel="years", xticks=ticks)
    axes.spines["left"].set(position=("outward", 14), visible=False)
    axes.tick_params(axis="y", length=9)
    axes.set_yticks(-np.arange(len(groups)), [f"cluster {c}" for c, _ in groups], fontsize=7.5)
    axes.set_title("number at risk", loc="left", fontsize=8)
    axes.grid(False)
    for place, tick in enumerate(axes.yaxis.get_major_ticks()):  # as text, colours are too pale
        tick.tick1line.set(mec=COLOURS[place % len(COLOURS)], mew=2.5)


def _edges(axes: Axes, graph: Any, nodes: Mapping[str, Any]) -> None:
    edges = sorted(graph.edges(data=True), key=lambda e: e[2]["weight"])
    if not edges:
        return
    ends = [[(nodes[end]["x"], nodes[end]["y"]) for end in edge[:2]] for edge in edges]
    weight = np.array([edge[2]["weight"] for edge in edges])
    width = 0.3 + 3.7 * np.sqrt(weight / weight.max())
    dashed = [edge[2].get("stability", 1.0) < 0.5 for edge in edges]
    axes.add_collection(
        LineCollection(
            ends,
            linewidths=list(width),
            linestyles=["--" if d else "-" for d in dashed],
            colors="#777777",
            alpha=0.45,
            zorder=1,
        )
    )


def _node_labels(
    figure: Figure, axes: Axes, nodes: Sequence[Mapping[str, Any]], sizes: np.ndarray
) -> None:
    """A name at each node, on the side where it covers least of other names and nodes."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # places the axes
    point = renderer.points_to_pixels(1.0)
    radius = point * np.sqrt(sizes) / 2
    centre = axes.transData.transform([(about["x"], about["y"]) for about in nodes])
    taken = [_box(c - r, c + r) for c, r in zip(centre, radius, strict=True)]
    for i in np.argsort(-sizes, kind="stable"):
        name = nodes[i]["label"]
        text = axes.annotate(
            name if len(name) <= LABEL else name[: LABEL - 1].rstrip() + "…",
            (nodes[i]["x"], nodes[i]["y"]),
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=6.5,
            zorder=4,
            parse_math=False,  # a "$" in a description is no formula
        )
        half = np.array([*text.get_window_extent(renderer).size]) / 2
        away = (radius[i] + 2 * point + half) * SIDES
        boxes = [_box(centre[i] + shift - half, centre[i] + shift + half) for shift in away]
        covered = [sum(_overlap(box, other) for other in taken) for box in boxes]
        best = int(np.argmin(covered))
        text.set_position(away[best] / point)
        taken.append(boxes[best])


def _box(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.array([low, high])


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Area that two boxes share."""
    width, height = np.minimum(one[1], other[1]) - np.maximum(one[0], other[0])
    return max(0.0, float(width)) * max(0.0, float(height))


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
