"""Folders -> parts: the model, its evaluation on the records of this machine, and words for codes.

Records are read where they lie; what comes out is aggregate, and speaks of no group of fewer
patients than the floor.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from daniel.errors import InputError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.cases import Cases
from daniel.evaluate.clusters import cluster_patients
from daniel.evaluate.compare import comparison, usual_entries
from daniel.evaluate.gold import (
    kin,
    phecode_pairs,
    read_pairs,
    rxnorm_atc_pairs,
    split_known,
    umls_pairs,
)
from daniel.evaluate.graph import check_refits
from daniel.evaluate.phenotype import Phenotyping, phenotype
from daniel.evaluate.relations import relation_auc, theta_pairs
from daniel.federated.report import Report
from daniel.matrix import CodeMatrix
from daniel.report import sections
from daniel.report.explorer import Progress
from daniel.report.followed import clusters_section
from daniel.report.graphs import drawn_graph
from daniel.report.parts import ReportParts, Section, parts_of, shown_floor
from daniel.report.records import (
    Cohort,
    Outcome,
    Records,
    open_model,
    read_descriptions,
    read_sites,
    site_floor,
    words_of,
)


@dataclass(frozen=True)
class Umls:
    """The user's own release: the folder of MRREL.RRF and MRCONSO.RRF.

    through: a table source, target, from codes that the UMLS has to those of the study.
    """

    folder: Path
    through: Path | None = None

    def pairs(self, codes: tuple[str, ...]) -> pd.DataFrame:
        return umls_pairs(
            codes, self.folder / "MRREL.RRF", self.folder / "MRCONSO.RRF", through=self.through
        )


@dataclass(frozen=True)
class Choices:
    """What the user may choose about a report.

    compare: also fit each site alone and the usual rivals.  clusters: their number, None by the
    silhouette.  quantile: of all couplings theta, above which a graph has edges.  stability: refits
    to patients drawn anew, which say how sure an edge is.  umls, phecodes, atc: known relations of
    a UMLS release, of the PheCodes' own hierarchy, and of drugs in one class of an ATC table.
    """

    compare: bool = False
    clusters: int | None = None
    quantile: float = 0.95
    stability: int = 0
    umls: Umls | None = None
    phecodes: bool = False
    atc: Path | None = None

    @property
    def relations(self) -> bool:
        """Whether known relations are to be found elsewhere than in a file of pairs."""
        return self.umls is not None or self.phecodes or self.atc is not None

    def pairs(
        self, codes: tuple[str, ...], words: Mapping[str, str]
    ) -> Iterator[tuple[str, pd.DataFrame]]:
        """Where known pairs come from, and the pairs."""
        if self.umls is not None:
            yield str(self.umls.folder), self.umls.pairs(codes)
        if self.phecodes:
            yield "The hierarchy of PheCodes", phecode_pairs(codes)
        if self.atc is not None:
            yield self.atc.name, rxnorm_atc_pairs(codes, self.atc, words)


def assemble(
    model_folder: Path,
    sites: Sequence[Path] = (),
    *,
    pairs: Path | None = None,
    target: str | None = None,
    outcome: Outcome | None = None,
    descriptions: Path | None = None,
    choices: Choices = Choices(),
    progress: Progress = lambda *_: None,
) -> ReportParts:
    """Read a model folder and evaluate it as far as what is given allows.

    pairs: known relations.  target: a code; with sites, phenotyping and the cohort's graph; with an
    outcome too, clusters.  Without sites, the graph around the target.
    """
    _check(sites, target, outcome)
    if choices.stability and not (sites and target):
        raise ParameterError(
            "Stability refits the records of the sites and tells of a target's graph: give site "
            "folders and a target."
        )
    if choices.compare and not (sites and (pairs or target or choices.relations)):
        raise ParameterError(
            "A comparison fits the records of the sites, and tells known pairs or a target: give "
            "site folders, and pairs or a target."
        )
    if choices.stability:
        check_refits(choices.stability, "patients", len(sites))
    report, model = open_model(model_folder)
    words = words_of(sites) | ({} if descriptions is None else read_descriptions(descriptions))
    parts = parts_of(model, report, descriptions=words, focus=target)
    if outcome is not None:
        outcome.check_hidden(sites, parts.codes)
    found: list[Section] = []
    known = None
    if pairs is not None or choices.relations:
        progress("relations", 0.0)
        known, left_out = _known_pairs(parts.codes, pairs, choices, words)
        found.append(_relations(model, parts, known, left_out))
        progress("relations", 1.0)
    records = read_sites(model, report, sites, progress) if sites else None
    floor = shown_floor(report)
    cohort, told = None, None
    if target is not None:
        if records is not None:
            if outcome is not None:
                progress("clusters", 0.0)
            cohort = records.for_target(target, floor, sites, outcome)
            records = cohort.records
        about, told = _about(
            model, report, cohort, target, outcome, words, floor, choices, progress
        )
        found += about
    if choices.compare and records is not None:
        progress("comparison", 0.0)
        fitting = records.fitting(floor, site_floor(report))
        cases = None if cohort is None else cohort.cases
        found.append(_compared(model, records, fitting, known, told, cases))
        progress("comparison", 1.0)
    return replace(parts, sections=found)


def _check(sites: Sequence[Path], target: str | None, outcome: Outcome | None) -> None:
    if outcome is None:
        return
    if target is None:
        raise ParameterError("An outcome needs a target, whose first record starts time.")
    if len(outcome.sources) != len(sites):
        raise ParameterError(
            f"There are {len(sites)} sites and {len(outcome.sources)} outcomes: give one for each "
            "site, in the same order."
        )


# --- evaluations ----------------------------------------------------------------------------------


def _known_pairs(
    codes: tuple[str, ...], path: Path | None, choices: Choices, words: Mapping[str, str]
) -> tuple[pd.DataFrame, str]:
    """Pairs with both codes in the study, and sentences about codes that can have none."""
    known, notes = [], []
    if path is not None:
        inside, unknown = split_known(read_pairs(path), codes)
        if inside.empty:
            raise InputError(f"No pair of {path.name} has both codes in the study. {unknown}")
        known.append(inside)
        if unknown.pairs:
            notes.append(str(unknown))
    for source, pairs in choices.pairs(codes, words):
        coverage = pairs.attrs.get("coverage")
        partly = coverage is not None and not coverage.complete
        if pairs.empty:
            more = f" {coverage}" if partly else ""
            raise InputError(f"{source} relates no two codes of the study.{more}")
        if partly:
            notes.append(str(coverage))
        known.append(pairs)
    return pd.concat(known, ignore_index=True).drop_duplicates(), " ".join(notes)


def _relations(model: Daniel, parts: ReportParts, known: pd.DataFrame, left_out: str) -> Section:
    def scored(way: str, given: Any) -> pd.DataFrame:
        score = partial(relation_auc, given, parts.codes, known, score=way)
        table = score()
        if parts.prevalence is not None:
            with suppress(InputError):  # nearly all pairs of codes as common are known
                table["auc_as_common"] = score(counts=parts.prevalence)["auc"]
        return table

    cosine, theta = scored("cosine", model.embedding_), scored("theta", theta_pairs(model))
    return sections.relations_section(cosine, theta, left_out)


def _about(
    model: Daniel,
    report: Report,
    cohort: Cohort | None,
    target: str,
    outcome: Outcome | None,
    words: Mapping[str, str],
    floor: int,
    choices: Choices,
    progress: Progress,
) -> tuple[list[Section], Phenotyping | None]:
    """The sections about a target, and its phenotyping, if there are records."""
    found: list[Section] = []
    told = None
    text = f"The codes with the largest coupling θ to {words.get(target, target)}."
    if cohort is not None:
        # Clusters first: what is wrong with an outcome is then said before the long work.
        groups = []
        if outcome is not None:
            groups = [_clusters(model, cohort, target, outcome, words, floor, choices)]
            progress("clusters", 1.0)
        progress("phenotyping", 0.0)
        told = _phenotyping(model, cohort, target, floor)
        found = [_phenotype_section(told, cohort, words), *groups]
        progress("phenotyping", 1.0)
        text = f"The most frequent codes of the patients who have {words.get(target, target)}."
    graph = drawn_graph(
        model,
        report,
        None if cohort is None else cohort.records,
        words,
        around=target,
        quantile=choices.quantile,
        stability=choices.stability,
        progress=progress,
    )
    return [*found, sections.graph_section(graph, "Knowledge graph", text)], told


def _phenotyping(model: Daniel, cohort: Cohort, target: str, floor: int) -> Phenotyping:
    records = cohort.records
    told = phenotype(
        model,
        records.matrix,
        target,
        sites=records.site if np.unique(records.site).size > 1 else None,
        cases=cohort.cases,
        floor=floor,
        without=kin(records.matrix.codes, target),
    )
    return replace(told, left_out=records.left_out)


def _phenotype_section(told: Phenotyping, cohort: Cohort, words: Mapping[str, str]) -> Section:
    one, *others = np.unique(cohort.records.site)
    if told.rule == "code":  # records here have patients and windows
        told = replace(told, rule=sections.FALLBACK)
    hidden = kin(cohort.records.matrix.codes, told.target)
    return sections.phenotype_section(told, words, None if others else str(one), hidden)


def _clusters(
    model: Daniel,
    cohort: Cohort,
    target: str,
    outcome: Outcome,
    words: Mapping[str, str],
    floor: int,
    choices: Choices,
) -> Section:
    groups = cluster_patients(
        model,
        cohort.records.matrix,
        target,
        cohort.survival,
        k=choices.clusters,
        without=[outcome.code] if outcome.code else [],
        floor=floor,
    )
    return clusters_section(groups, words, outcome=outcome.name, zero=outcome.zero)


def _compared(
    model: Daniel,
    records: Records,
    sites: Mapping[str, CodeMatrix],
    known: pd.DataFrame | None,
    told: Phenotyping | None,
    cases: Cases | None,
) -> Section:
    """Fits to what the sites may show, asked about all that these sites recorded.

    told, cases: the phenotyping whose cases and folds are those of the comparison.
    """
    asked = records.rows(np.isin(records.site, list(sites)))
    fitted = CodeMatrix(
        sp.csr_array(sp.vstack([own.Z for own in sites.values()], format="csr")),
        asked.matrix.codes,
    )
    whose = np.repeat(list(sites), [own.shape[0] for own in sites.values()])
    entries = usual_entries(model, fitted, whose)
    about: dict[str, Any] = {}
    if told is not None:
        hidden = kin(asked.matrix.codes, told.target)
        about = {"target": told.target, "folds": told.folds, "cases": cases, "without": hidden}
    found = comparison(entries, asked.matrix, known, sites=asked.site, **about)
    return sections.comparison_section(found, list(sites), told is not None)
