"""Parts -> HTML.  Every word that is not our own is escaped here, and nowhere else."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
import pandas as pd

from daniel.federated.report import Report
from daniel.report.explorer import Block, neighbours
from daniel.report.parts import Figure, ReportParts, Section, Table, shown_floor

SCRIPTS = ("data.js", "search.js", "graph.js", "map.js", "explorer.js")
NOTHING = "–"
MARKS = (b'<meta name="generator" content="daniel ',)  # by which a report is known


@dataclass(frozen=True)
class Folded(Table):
    """A table that stands behind its title, until this is chosen."""


def render(parts: ReportParts, blocks: Iterable[Block]) -> str:
    """The whole page."""
    style, script = _source("style.css"), _script()
    sections = {f"section-{i}": section for i, section in enumerate(parts.sections, start=1)}
    return Template(_source("page.html")).substitute(
        policy=escape(_policy(style, script)),
        title=escape(parts.report.study_name),
        style=style,
        script=script,
        lead=escape(_lead(parts.report)),
        navigation="".join(
            f'<li><a href="#{id}">{escape(section.title)}</a></li>'
            for id, section in sections.items()
        ),
        promise=escape(_promise(parts.report)),
        drawn=_drawn(len(parts.codes)),
        facts=_facts(parts.report, parts.embedding.shape[1]),
        sites=table(_sites(parts.report)),
        terms="".join(
            f"<li>{escape(text)}</li>" for text in (*parts.report.terms(), *parts.report.notes)
        ),
        marks=_listed(_marks(parts.report), "marks"),
        sections="".join(_section(id, section) for id, section in sections.items()),
        version=escape(parts.report.daniel),
        data="\n".join(
            f'<script type="{"application/json" if b.type == "json" else "text/plain"}" '
            f'id="data-{b.name}" data-type="{b.type}">{b.text}</script>'
            for b in blocks
        ),
    )


def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _script() -> str:
    """All scripts as one, in a function of their own: no name of theirs is global."""
    return "\n".join(['(() => {\n"use strict";', *map(_source, SCRIPTS), "})();"])


def _policy(style: str, script: str) -> str:
    """The browser runs and applies exactly these two texts, and loads nothing."""
    return (
        f"default-src 'none'; script-src '{_sha(script)}'; style-src '{_sha(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _sha(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# --- the study ------------------------------------------------------------------------------------


def _lead(report: Report) -> str:
    used = _contributors(report)
    sites = "one site" if used == 1 else f"{used} sites"
    return (
        f"How {report.codes:,} medical codes relate to each other, learned from about "
        f"{report.records:,} records of {sites}."
    )


def _contributors(report: Report) -> int:
    """Sites that the model has learned from; the hub's own records need no answer."""
    return sum(site.state in ("used", "own records") for site in report.sites)


def _promise(report: Report) -> str:
    """A sentence: of what the file's numbers tell."""
    codes = "codes" if report.epsilon is None else "codes, which are protected by noise,"
    return f"Numbers about {codes} and about groups of at least {shown_floor(report):,} patients."


def _drawn(p: int) -> str:
    """A sentence on which pairs the explorer's graph draws; nothing where it knows all of them."""
    k = neighbours(p)
    if k >= p - 1:
        return ""
    return (
        f"Only pairs are drawn of which one code is among the {k} most similar to the other: "
        "others may be as strong, above all by θ."
    )


def _facts(report: Report, dimensions: int) -> str:
    """Tiles; dimensions are those of a code's vector, which need not be the rank of the fit."""
    used = _contributors(report)
    facts = {
        "codes": f"{report.codes:,}",
        "records, about": f"{report.records:,}",
        "sites that contributed": f"{used} of {len(report.sites)}",
        "dimensions of a code": f"{dimensions:,}",
        "patients behind a code, at least": f"{report.floor:,}",
        "answers": "masked" if report.release == "masked" else report.release,
    }
    if report.epsilon is not None:
        del facts["patients behind a code, at least"]  # noise stands in for the floor
        facts["differential privacy"] = f"ε = {report.epsilon:g}"
    return _listed(facts, "facts")


def _marks(report: Report) -> dict[str, str]:
    fit = "converged" if report.converged else "stopped before it converged"
    return {
        "study": report.study,
        "epoch and round": f"{report.epoch}, {report.round}",
        "start": report.start,
        "fit": f"penalty {report.penalty:.4g}, {fit}",
        "software": f"daniel {report.daniel}",
    }


def _listed(facts: dict[str, str], kind: str) -> str:
    items = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="{kind}">{"".join(items)}</dl>'


def _sites(report: Report) -> Table:
    frame = pd.DataFrame(
        [
            {
                "site": s.site,
                "role": s.role,
                "state": s.state,
                "records, about": f"{s.records:,}" if s.records else NOTHING,
                "answer made": (s.created or NOTHING)[:10],
            }
            for s in report.sites
        ],
        columns=["site", "role", "state", "records, about", "answer made"],
    )
    return Table(
        frame.set_index("site"),
        "Each used site sent one answer, made from its own records; record counts are rounded "
        "down to two digits, and a dash stands where the hub was not told.",
        "Who contributed",
    )


# --- sections -------------------------------------------------------------------------------------


def _section(id: str, section: Section) -> str:
    body = [
        *(figure(item, section.title) for item in section.figures),
        *(folded(item) if isinstance(item, Folded) else table(item) for item in section.tables),
    ]
    text = "".join(f"<p>{escape(part)}</p>" for part in section.text.split("\n\n") if part)
    return (
        f'<section id="{id}" aria-labelledby="{id}-title"><h2 id="{id}-title">'
        f"{escape(section.title)}</h2>{text}{''.join(body)}</section>"
    )


def figure(item: Figure, title: str = "") -> str:
    """An SVG as an image: nothing inside it can run, load or change the page.

    title: of its section, by which what may be scrolled is known from others.
    """
    data = base64.b64encode(item.svg.encode()).decode("ascii")
    kind = "drawing wide" if item.wide else "drawing"
    label = f"Figure: {title}" if title else "Figure"
    return (
        f'<figure class="{kind}"><div class="scroll" role="region" tabindex="0" '
        f'aria-label="{escape(label)}"><img src="data:image/svg+xml;base64,{data}" '
        f'alt="{escape(item.alt or item.caption)}"></div>'
        f"<figcaption>{escape(item.caption)}</figcaption></figure>"
    )


def folded(item: Folded) -> str:
    """A table behind its title; a printed page shows it (explorer.js)."""
    return f"<details><summary>{escape(item.title)}</summary>{table(item)}</details>"


def table(item: Table) -> str:
    """A data frame as a table; a named index is its first column."""
    frame = item.frame
    if frame.index.names != [None]:
        frame = frame.reset_index(allow_duplicates=True)
    numeric = [_is_numeric(frame.iloc[:, i]) for i in range(frame.shape[1])]
    kinds = [' class="number"' if n and i else "" for i, n in enumerate(numeric)]
    heads = "".join(
        f'<th scope="col"{kind}>{escape(str(name))}</th>'
        for name, kind in zip(frame.columns, kinds, strict=True)
    )
    rows = "".join(_row(row, kinds) for row in frame.itertuples(index=False, name=None))
    title = escape(item.title or "Table")
    caption = f"<caption>{title}</caption>" if item.title and not isinstance(item, Folded) else ""
    return (
        f'<div class="tablebox"><div class="scroll" role="region" tabindex="0" '
        f'aria-label="{title}"><table>{caption}<thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f'<p class="meaning">{escape(item.meaning)}</p></div>'
    )


def _row(values: Sequence[Any], kinds: Sequence[str]) -> str:
    cells = []
    for i, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        tag, scope = ("th", ' scope="row"') if i == 0 else ("td", "")
        cells.append(f"<{tag}{scope}{kind}>{escape(shown(value))}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"


def _is_numeric(column: pd.Series) -> bool:
    """Numbers, or text that is mostly figures: both stand on the right."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return True
    texts = [str(value) for value in column if str(value) != NOTHING]
    return bool(texts) and all(text.lstrip("<≤>≥ −-+.")[:1].isdigit() for text in texts)


def shown(value: Any) -> str:
    """A cell as text: three decimals, thousands with commas, a dash for nothing."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        value = float(value)
        if not np.isfinite(value):
            return NOTHING
        if value != 0 and abs(value) < 0.0005:
            return f"{value:.1e}"
        return f"{value:,.3f}"
    return NOTHING if value is None or value is pd.NA or value is pd.NaT else str(value)
