"""Folders -> one knowledge graph, for tools that draw graphs themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from daniel.checks import check_choice
from daniel.errors import InputError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.cases import has_code
from daniel.evaluate.graph import OVER, check_refits, check_top, code_graph, edge_stability
from daniel.federated.files import check_file
from daniel.federated.report import Report
from daniel.report.explorer import Progress
from daniel.report.parts import shown_floor, shown_prevalence
from daniel.report.records import (
    Records,
    open_model,
    read_descriptions,
    read_sites,
    site_floor,
    words_of,
)

ENDINGS = (".graphml", ".cyjs", ".png", ".svg")
MARKS = (b"<graphml", b'attr.name="quantile_of"')  # by which the GraphML of a graph is known


def stem_of(out: Path) -> Path:
    """What the names of a graph's files begin with; an ending of theirs may be given too."""
    if out.name in ("", ".."):
        raise InputError(
            f"{out} is a folder, and no name for the files: give one such as {out / 'graph'}."
        )
    return out.with_suffix("") if out.suffix.lower() in ENDINGS else out


def check_files(stem: Path) -> None:
    """Refuse a stem whose files are not those of an earlier graph, which its GraphML tells."""
    marked, *others = (stem.with_name(stem.name + ending) for ending in ENDINGS)
    check_file(marked, MARKS)
    earlier = marked.exists() and marked.stat().st_size > 0
    for path in others:
        check_file(path, () if earlier else MARKS)


def graph_of(
    model_folder: Path,
    sites: Sequence[Path] = (),
    *,
    around: str | None = None,
    top: int = 30,
    quantile: float = 0.95,
    stability: int = 0,
    over: str = "patients",
    descriptions: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Any:
    """The graph of `code_graph` from a model folder, with `edge_stability` where refits are wanted.

    sites: their patients, or those who have `around`, choose the codes; without sites the codes
    are the neighbours of `around`.  A site with too few of these patients is `left_out`, and named
    so in the graph.
    """
    check_top(top)
    check_choice("over", over, OVER)
    if stability and not sites:
        raise ParameterError(
            "Stability refits the records of the sites: give their folders, or no stability."
        )
    if stability:
        check_refits(stability, over, len(sites))
    report, model = open_model(model_folder)
    words = words_of(sites) | ({} if descriptions is None else read_descriptions(descriptions))
    records = read_sites(model, report, sites, progress) if sites else None
    if records is not None:
        records = _large(records, around, shown_floor(report))
    graph = drawn_graph(
        model,
        report,
        records,
        words,
        around=around,
        top=top,
        quantile=quantile,
        stability=stability,
        over=over,
        progress=progress,
    )
    if records is not None and records.left_out:
        graph.graph["left_out"] = ", ".join(records.left_out)
    return graph


def _large(records: Records, around: str | None, floor: int) -> Records:
    """Records of the sites that have `floor` patients with the code, or at all."""
    here = np.ones(records.site.size, bool)
    if around is not None:
        here = has_code(records.matrix, around)
    return records.large([np.flatnonzero(here)], floor, around or "records")


def drawn_graph(
    model: Daniel,
    report: Report,
    records: Records | None,
    words: Mapping[str, str],
    *,
    around: str | None,
    top: int = 30,
    quantile: float = 0.95,
    stability: int = 0,
    over: str = "patients",
    progress: Progress = lambda *_: None,
) -> Any:
    """`graph_of` what was read already."""
    floor, rare = shown_floor(report), site_floor(report)
    graph = code_graph(
        model,
        around=around,
        cohort=None if records is None else records.matrix,
        top=top,
        quantile=quantile,
        descriptions=words,
        floor=floor,
    )
    if records is None:
        for about in graph.nodes.values():
            if "prevalence" in about:
                about["prevalence"] = float(shown_prevalence(about["prevalence"], report))
    if records is None or not stability:
        return graph
    return edge_stability(
        graph,
        model,
        records.fitting(floor, rare),
        over=over,
        n_boot=stability,
        floor=rare,
        progress=lambda share: progress("refits", share),
    )
