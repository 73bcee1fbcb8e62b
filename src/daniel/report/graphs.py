"""Folders -> one knowledge graph, for tools that draw graphs themselves."""

from collections.abc import Sequence
from pathlib import Path

import networkx as nx

from daniel.errors import ParameterError
from daniel.evaluate.graph import code_graph, edge_stability
from daniel.evaluate.survival import FLOOR
from daniel.federated.folder import read_model, read_report
from daniel.report.explorer import Progress
from daniel.report.records import read_descriptions, read_sites, words_of


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
) -> nx.Graph:
    """The graph of `code_graph` from a model folder, with `edge_stability` where refits are wanted.

    sites: their patients, or those who have `around`, choose the codes; without sites the codes
    are the neighbours of `around`.
    """
    if stability and not sites:
        raise ParameterError(
            "Stability refits the records of the sites: give their folders, or no stability."
        )
    report, model = read_report(model_folder), read_model(model_folder)
    floor = max(FLOOR, report.floor)
    words = words_of(sites) | ({} if descriptions is None else read_descriptions(descriptions))
    records = read_sites(model, report, sites, progress) if sites else None
    graph = code_graph(
        model,
        around=around,
        cohort=None if records is None else records.matrix,
        top=top,
        quantile=quantile,
        descriptions=words,
        floor=floor,
    )
    if not stability or records is None:
        return graph
    return edge_stability(
        graph,
        model,
        list(records.fitting(floor).values()),
        over=over,
        n_boot=stability,
        progress=lambda share: progress("refits", share),
    )
