"""Folders -> parts: the model, its evaluation on the records of this machine, and words for codes.

Records are read where they lie; what comes out is aggregate, and speaks of no group of fewer
patients than the floor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from daniel.data.outcomes import read_outcome
from daniel.data.sitefolder import CODES, read_info, read_site
from daniel.errors import FormatError, InputError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.clusters import cluster_patients, records_for
from daniel.evaluate.compare import comparison, usual_entries
from daniel.evaluate.gold import read_pairs, split_known, umls_pairs
from daniel.evaluate.graph import code_graph
from daniel.evaluate.phenotype import phenotype
from daniel.evaluate.relations import relation_auc, theta_pairs
from daniel.evaluate.survival import FLOOR
from daniel.federated.folder import REPORT, read_model, read_report
from daniel.federated.release import without_rare
from daniel.federated.report import Report
from daniel.matrix import CodeMatrix
from daniel.report import sections
from daniel.report.explorer import Progress
from daniel.report.parts import ReportParts, Section, parts_of


@dataclass(frozen=True)
class Outcome:
    """What is followed at each site, in the order of the sites, and how the report calls it.

    sources: files patient, time, event; or, with `code`, what `daniel prepare` read.  landmark:
    time then starts after the window of the first diagnosis.
    """

    sources: Sequence[Path]
    code: str | None = None
    name: str = "outcome"
    landmark: bool = False


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
    silhouette.  quantile: of all couplings theta, above which a graph has edges.  umls: more known
    relations.
    """

    compare: bool = False
    clusters: int | None = None
    quantile: float = 0.95
    umls: Umls | None = None


def assemble(
    model_folder: Path,
    sites: Sequence[Path] = (),
    *,
    pairs: Path | None = None,
    target: str | None = None,
    outcome: Outcome | None = None,
    descriptions: Path | None = None,
    choices: Choices = Choices(),  # noqa: B008 (frozen)
    progress: Progress = lambda *_: None,
) -> ReportParts:
    """Read a model folder and evaluate it as far as what is given allows.

    pairs: known relations.  target: a code; with sites, phenotyping and the cohort's graph; with an
    outcome too, clusters.  Without sites, the graph around the target.
    """
    _check(sites, target, outcome)
    if choices.compare and not (sites and (pairs or target or choices.umls)):
        raise ParameterError(
            "A comparison fits the records of the sites, and tells known pairs or a target: give "
            "site folders, and pairs or a target."
        )
    if not (model_folder / REPORT).is_file():
        raise FormatError(
            f"{model_folder} is no model folder: `daniel finish` and `daniel fit` make one."
        )
    report, model = read_report(model_folder), read_model(model_folder)
    words = _words(sites) | ({} if descriptions is None else read_descriptions(descriptions))
    parts = parts_of(model, report, descriptions=words, focus=target)
    found: list[Section] = []
    known = None
    if pairs is not None or choices.umls is not None:
        progress("relations", 0.0)
        known, left_out = _known_pairs(parts.codes, pairs, choices.umls)
        found.append(_relations(model, parts.codes, known, left_out))
        progress("relations", 1.0)
    records = _read_sites(model, report, sites, progress) if sites else None
    floor = max(FLOOR, report.floor)
    too_small: tuple[str, ...] = ()
    if target is not None:
        about, too_small = _about(
            model, records, target, outcome, sites, words, floor, choices, progress
        )
        found += about
    if choices.compare and records is not None:
        progress("comparison", 0.0)
        large = records.rows(~np.isin(records.site, too_small))
        found.append(_compared(model, large, known, target, floor))
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
    codes: tuple[str, ...], path: Path | None, umls: Umls | None
) -> tuple[pd.DataFrame, str]:
    """Pairs with both codes in the study, and a sentence about those that have not."""
    known, left_out = [], ""
    if path is not None:
        inside, unknown = split_known(read_pairs(path), codes)
        if inside.empty:
            raise InputError(f"No pair of {path.name} has both codes in the study. {unknown}")
        known.append(inside)
        left_out = str(unknown) if unknown.pairs else ""
    if umls is not None:
        known.append(umls.pairs(codes))
        if known[-1].empty:
            raise InputError(f"{umls.folder} relates no two codes of the study.")
    return pd.concat(known, ignore_index=True), left_out


def _relations(
    model: Daniel, codes: tuple[str, ...], known: pd.DataFrame, left_out: str
) -> Section:
    return sections.relations_section(
        relation_auc(model.embedding_, codes, known),
        relation_auc(theta_pairs(model), codes, known, score="theta"),
        left_out,
    )


def _about(
    model: Daniel,
    records: "Records | None",
    target: str,
    outcome: Outcome | None,
    folders: Sequence[Path],
    words: Mapping[str, str],
    floor: int,
    choices: Choices,
    progress: Progress,
) -> tuple[list[Section], tuple[str, ...]]:
    """The sections about a target, and the sites with too few of its patients."""
    if records is None:
        graph = code_graph(model, around=target, quantile=choices.quantile, descriptions=words)
        text = f"The codes with the largest coupling θ to {words.get(target, target)}."
        return [sections.graph_section(graph, "Knowledge graph", text)], ()
    # Before the long work: what is wrong with an outcome is then said at once.
    survival = None if outcome is None else records.survival(folders, outcome, target)
    progress("phenotyping", 0.0)
    told = phenotype(
        model,
        records.matrix,
        target,
        sites=records.site if len(folders) > 1 else None,
        floor=floor,
    )
    found = [sections.phenotype_section(told, words)]
    progress("phenotyping", 1.0)
    if outcome is not None and survival is not None:
        progress("clusters", 0.0)
        groups = cluster_patients(
            model,
            records.matrix,
            target,
            survival,
            k=choices.clusters,
            without=[outcome.code] if outcome.code else [],
            floor=floor,
        )
        found.append(
            sections.clusters_section(
                groups, words, outcome=outcome.name, landmark=outcome.landmark
            )
        )
        progress("clusters", 1.0)
    graph = code_graph(
        model,
        around=target,
        cohort=records.matrix,
        quantile=choices.quantile,
        descriptions=words,
        floor=floor,
    )
    text = f"The most frequent codes of the patients who have {words.get(target, target)}."
    return [*found, sections.graph_section(graph, "Knowledge graph", text)], told.left_out


def _compared(
    model: Daniel, records: "Records", known: pd.DataFrame | None, target: str | None, floor: int
) -> Section:
    """Fits of the sites that are large enough, without codes that few of a site's patients have."""
    own = [records.rows(records.site == name) for name in dict.fromkeys(records.site)]
    own = [site for site in own if np.unique(site.matrix.patients).size >= floor]  # type: ignore[arg-type]
    if not own:
        raise InputError(f"No site has {floor} patients: too few for a comparison.")
    names = [str(site.site[0]) for site in own]
    asked = records.rows(np.isin(records.site, names))
    common = sp.vstack([without_rare(site.matrix, floor).Z for site in own], format="csr")
    fitted = CodeMatrix(sp.csr_array(common), asked.matrix.codes)
    entries = usual_entries(model, fitted, np.concatenate([site.site for site in own]))
    found = comparison(entries, asked.matrix, known, target=target)
    return sections.comparison_section(found, names, target is not None)


# --- records of several sites ---------------------------------------------------------------------


@dataclass(frozen=True)
class Records:
    """Records of all sites with the model's codes; patients are numbered from 0 over all sites.

    site (n,): name of each record's site.  pseudonyms: of each site's patients, sorted; the first
    patient of a site has the number of all patients of the sites before.
    """

    matrix: CodeMatrix
    site: np.ndarray
    pseudonyms: list[np.ndarray]

    def rows(self, chosen: np.ndarray) -> "Records":
        """Some records (n,), of the same patients."""
        m = self.matrix
        matrix = CodeMatrix(
            sp.csr_array(m.Z[chosen]),
            m.codes,
            np.asarray(m.patients)[chosen],
            np.asarray(m.windows)[chosen],
        )
        return replace(self, matrix=matrix, site=self.site[chosen])

    def survival(self, folders: Sequence[Path], outcome: Outcome, target: str) -> pd.DataFrame:
        """patient, time, event of all sites; who has no record is left out."""
        tables, first = [], 0
        for folder, source, known in zip(folders, outcome.sources, self.pseudonyms, strict=True):
            table = read_outcome(
                folder, source, target=target, code=outcome.code, landmark=outcome.landmark
            )
            table = table[table["patient"].isin(known)]
            number = first + np.searchsorted(known, table["patient"].to_numpy())
            tables.append(table.assign(patient=number))
            first += known.size
        return pd.concat(tables, ignore_index=True)


def _read_sites(
    model: Daniel, report: Report, folders: Sequence[Path], progress: Progress
) -> Records:
    blocks, patients, windows, names, pseudonyms = [], [], [], [], []
    first = 0
    for i, folder in enumerate(folders):
        progress("records", i / len(folders))
        matrix = _of_this_study(model, report, folder)
        known, number = np.unique(np.asarray(matrix.patients), return_inverse=True)
        blocks.append(matrix.Z)
        patients.append(first + number)
        windows.append(np.asarray(matrix.windows))
        names.append(np.full(matrix.shape[0], read_info(folder)["site"], dtype=object))
        pseudonyms.append(known)
        first += known.size
    if len({str(own[0]) for own in names if own.size}) < len(folders):
        raise InputError("Two of the folders are of the same site: give each site once.")
    whole = CodeMatrix(
        sp.csr_array(sp.vstack(blocks, format="csr")),
        matrix.codes,
        np.concatenate(patients),
        np.concatenate(windows),
    )
    progress("records", 1.0)
    return Records(whole, np.concatenate(names), pseudonyms)


def _of_this_study(model: Daniel, report: Report, folder: Path) -> CodeMatrix:
    """The records of a site folder, of the model's study.

    The hash of a study changes when a site joins it; its name and its codes do not.
    """
    info = read_info(folder)
    matrix = read_site(folder)
    lacking = set(map(str, model._names)) - set(matrix.codes)
    if info["study"] != report.study and (info["study_name"] != report.study_name or lacking):
        raise InputError(
            f"{folder} is of the study {info['study_name']!r} (epoch {info['epoch']}), and the "
            f"model of {report.study_name!r} (epoch {report.epoch}): give folders that were "
            "prepared for the model's study."
        )
    return records_for(model, matrix)


# --- words for codes ------------------------------------------------------------------------------


def _words(sites: Sequence[Path]) -> dict[str, str]:
    """Descriptions that the sites' folders hold; the first site's words stand."""
    words: dict[str, str] = {}
    for folder in reversed(sites):
        read_info(folder)  # says so where it is no site folder
        try:
            table = pq.read_table(folder / CODES, columns=["code", "description"])
        except (OSError, pa.ArrowException, KeyError, ValueError):
            raise FormatError(f"{folder} is damaged: make it again.") from None
        rows = zip(table["code"].to_pylist(), table["description"].to_pylist(), strict=True)
        words |= {code: text for code, text in rows if text}
    return words


def read_descriptions(path: Path) -> dict[str, str]:
    """Code -> words, from a .tsv, .csv or .parquet file with the columns code and description."""
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            separator = "\t" if ".tsv" in path.suffixes or ".txt" in path.suffixes else ","
            table = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)
    except (ValueError, OSError, pa.ArrowException):
        raise FormatError(f"{path.name} is no table: expected .tsv, .csv or .parquet.") from None
    missing = [name for name in ("code", "description") if name not in table.columns]
    if missing:
        raise InputError(
            f"{path.name} lacks the column {' and '.join(missing)}: expected code and description."
        )
    rows = table[["code", "description"]].dropna().astype(str)
    return {code: text for code, text in rows.itertuples(index=False) if text}
