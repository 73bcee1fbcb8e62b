"""A model folder, records of several sites as one matrix of its codes, and words for the codes.

Records are read where they lie, and the patients of all sites are numbered anew.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from daniel.data.frames import read_text
from daniel.data.outcomes import is_death, may_be_translated, read_outcome
from daniel.data.sitefolder import CODES, read_info, read_site
from daniel.errors import FormatError, InputError
from daniel.estimator import Daniel
from daniel.evaluate.cases import Cases, has_code, small_sites
from daniel.evaluate.clusters import records_for
from daniel.evaluate.spelling import spelled
from daniel.evaluate.survival import check_survival
from daniel.federated.folder import REPORT, read_model, read_report
from daniel.federated.release import without_rare
from daniel.federated.report import Report
from daniel.matrix import CodeMatrix, listed
from daniel.report.explorer import Progress
from daniel.study import Window


def open_model(folder: Path) -> tuple[Report, Daniel]:
    """What a model folder says about its model, and the model."""
    if not (folder / REPORT).is_file():
        raise FormatError(
            f"{folder} is no model folder: `daniel finish` and `daniel fit` make one."
        )
    return read_report(folder), read_model(folder)


def site_floor(report: Report) -> int:
    """The fewest patients of a site with a code for the site's answer to tell of it; 1: no floor.

    Masked answers have a floor on the total alone, which the model's codes are above already, and
    noise needs none.
    """
    return report.floor if report.release == "open" and report.epsilon is None else 1


@dataclass(frozen=True)
class Outcome:
    """What is followed at each site, in the order of the sites, and how the report calls it.

    sources: files patient, time, event; or, with `code`, what `daniel prepare` read.  landmark:
    with `code`, time starts after the window of the first diagnosis, else on its first day.
    """

    sources: Sequence[Path]
    code: str | None = None
    name: str = "outcome"
    landmark: bool = True

    def check_hidden(self, folders: Sequence[Path], codes: Sequence[str]) -> None:
        """Refuse times that start with the record where the outcome cannot be kept out of it.

        Its own code is left out of the records; what it was translated to is not known.
        """
        if self.code is None or self.landmark or is_death(self.code):
            return
        named = bool(spelled(self.code, codes))
        for folder, source in zip(folders, self.sources, strict=True):
            if may_be_translated(folder, source, self.code, named=named):
                raise InputError(
                    f"The outcome {self.code!r} may be in the records under another code, by a map "
                    "or a parent, and would shape the groups: use the landmark, so that records "
                    "end before time starts."
                )

    @property
    def zero(self) -> str:
        """A sentence: where time starts."""
        if self.code is None:
            return (
                "Times are the outcome files' own; the record's codes may come after the outcome."
            )
        if self.landmark:
            return "Time runs from the end of that record's window."
        return (
            "Time runs from the first day of that record's window; the window's codes may come "
            "after the outcome."
        )


@dataclass(frozen=True)
class Records:
    """Records of all sites with the model's codes; patients are numbered from 0 over all sites.

    site (n,): name of each record's site.  names: of all sites that were read, some of which may
    have no record here.  pseudonyms: of each of these sites' patients, sorted; the first patient of
    a site has the number of all patients of the sites before.
    """

    matrix: CodeMatrix
    site: np.ndarray
    names: tuple[str, ...]
    pseudonyms: list[np.ndarray]

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sites of which no record is here."""
        return tuple(name for name in self.names if name not in set(self.site))

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

    def fitting(self, floor: int, rare: int) -> dict[str, CodeMatrix]:
        """Each site's records as a fit may see them.

        A site with fewer patients than `floor` is left out, and at each of the others the codes of
        fewer patients than `rare`: what `site_floor` tells, so that these fits see what the model's
        own did.
        """
        own = {str(name): self.rows(self.site == name).matrix for name in dict.fromkeys(self.site)}
        large = {k: m for k, m in own.items() if np.unique(np.asarray(m.patients)).size >= floor}
        if not large:
            raise InputError(f"No site has {floor} patients: too few to fit anything to.")
        return {name: without_rare(matrix, rare) for name, matrix in large.items()}

    def large(self, groups: Sequence[np.ndarray], floor: int, who: str) -> "Records":
        """Records of the sites that bring `floor` patients to each group of rows.

        who: what those patients have, for a sentence where no site has enough.
        """
        small = small_sites(self.site, np.asarray(self.matrix.patients), groups, floor)
        kept = ~np.isin(self.site, small)
        if not kept.any():
            raise InputError(f"No site has {floor} patients with {who}: too few to tell.")
        return self.rows(kept)

    def for_target(
        self,
        target: str,
        floor: int,
        folders: Sequence[Path] = (),
        outcome: Outcome | None = None,
    ) -> "Cohort":
        """Records of the sites with enough patients for everything that is told about a target.

        A site brings `floor` patients with the target, to either kind of phenotyping's cases, and
        with a survival time if they are followed.  One that was in some of the numbers only could
        be told from what they differ by.
        """
        with_target = np.flatnonzero(has_code(self.matrix, target))
        cases, kinds = self._cases(target, with_target, floor)
        who = f"{target}, and {floor} with records that lack it"
        own = self.large([with_target, *kinds], floor, who)
        if outcome is None:
            return Cohort(own, cases)
        survival = own.survival(folders, outcome, target)
        followed = np.isin(np.asarray(own.matrix.patients), survival["patient"])
        rows = np.flatnonzero(followed & has_code(own.matrix, target))
        own = own.large([rows], floor, f"{target} and a survival time")
        survival = survival[survival["patient"].isin(np.asarray(own.matrix.patients))]
        if outcome.code is not None and not survival["event"].any():
            raise InputError(
                f"No patient with {target} has the outcome {outcome.code!r} after time starts: "
                "check how the sources write it, VOCABULARY:code or the code alone."
            )
        return Cohort(own, cases, survival)

    def _cases(
        self, target: str, with_target: np.ndarray, floor: int
    ) -> tuple[Cases, tuple[np.ndarray, np.ndarray]]:
        """How a target's cases are chosen, and their rows: by onset, where a site has enough so."""
        patients = np.asarray(self.matrix.patients)
        cases = Cases()
        chosen = cases.choose(self.matrix, target, sites=self.site)
        groups = [with_target, *chosen.kinds]
        if len(small_sites(self.site, patients, groups, floor)) == np.unique(self.site).size:
            cases = Cases("code")
            chosen = cases.choose(self.matrix, target, sites=self.site)
        return replace(cases, rule=chosen.rule), chosen.kinds

    def survival(self, folders: Sequence[Path], outcome: Outcome, target: str) -> pd.DataFrame:
        """patient, time, event of the sites with records here, checked; others are not read."""
        tables, first = [], 0
        for name, folder, source, known in zip(
            self.names, folders, outcome.sources, self.pseudonyms, strict=True
        ):
            if name not in self.left_out:
                table = read_outcome(
                    folder, source, target=target, code=outcome.code, landmark=outcome.landmark
                )
                table = table[table["patient"].isin(known)]
                number = first + np.searchsorted(known, table["patient"].to_numpy())
                tables.append(table.assign(patient=number))
            first += known.size
        return check_survival(pd.concat(tables, ignore_index=True))


@dataclass(frozen=True)
class Cohort:
    """Records that a target is told of, how phenotyping chooses its cases among them, and what
    became of their patients, where it is followed.
    """

    records: Records
    cases: Cases
    survival: pd.DataFrame | None = None


def read_sites(
    model: Daniel, report: Report, folders: Sequence[Path], progress: Progress
) -> Records:
    """The records of site folders of the model's study, each site once."""
    about = [read_info(folder) for folder in folders]
    names = [str(info["site"]) for info in about]
    if len(set(names)) < len(names):
        raise InputError("Two of the folders are of the same site: give each site once.")
    _check_windows(report, folders)
    blocks, patients, windows, pseudonyms = [], [], [], []
    first = 0
    for i, (folder, info) in enumerate(zip(folders, about, strict=True)):
        progress("records", i / len(folders))
        matrix = _of_this_study(model, report, folder, info)
        known, number = np.unique(np.asarray(matrix.patients), return_inverse=True)
        blocks.append(matrix.Z)
        patients.append(first + number)
        windows.append(np.asarray(matrix.windows))
        pseudonyms.append(known)
        first += known.size
    whole = CodeMatrix(
        sp.csr_array(sp.vstack(blocks, format="csr")),
        matrix.codes,
        np.concatenate(patients),
        np.concatenate(windows),
    )
    progress("records", 1.0)
    site = np.repeat(np.array(names, dtype=object), [block.shape[0] for block in blocks])
    return Records(whole, site, tuple(names), pseudonyms)


def _of_this_study(
    model: Daniel, report: Report, folder: Path, info: Mapping[str, Any]
) -> CodeMatrix:
    """The records of a site folder, of the model's study.

    The hash of a study changes when a site joins it; its name and its codes do not.
    """
    matrix = read_site(folder)
    lacking = sorted(set(map(str, model._names)) - set(matrix.codes))
    if info["study"] != report.study and (info["study_name"] != report.study_name or lacking):
        why = f", of whose codes it lacks {listed(lacking)}" if lacking else ""
        raise InputError(
            f"{folder} is of the study {info['study_name']!r} (epoch {info['epoch']}), and the "
            f"model of {report.study_name!r} (epoch {report.epoch}){why}: give folders that were "
            "prepared for the model's study."
        )
    return records_for(model, matrix)


def _check_windows(report: Report, folders: Sequence[Path]) -> None:
    """Refuse folders whose records have other windows than the model's, or than each other."""
    wanted = report.window or _window(folders[0])
    for folder in folders:
        window = _window(folder)
        if window != wanted:
            raise InputError(
                f"{folder} has other windows ({window}) than the model ({wanted}): give folders "
                "that were prepared for the model's study."
            )


def _window(folder: Path) -> str:
    """How long the windows of a site folder are, and where they start."""
    try:
        return str(Window(**json.loads((folder / "study.json").read_bytes())["window"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise FormatError(f"{folder} is damaged: make it again with `daniel prepare`.") from None


# --- words for codes ------------------------------------------------------------------------------


def words_of(sites: Sequence[Path]) -> dict[str, str]:
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
            table = read_text(path, "\t" if {".tsv", ".txt"} & set(path.suffixes) else ",")
    except (ValueError, OSError, pa.ArrowException):
        raise FormatError(f"{path.name} is no table: expected .tsv, .csv or .parquet.") from None
    missing = [name for name in ("code", "description") if name not in table.columns]
    if missing:
        raise InputError(
            f"{path.name} lacks the column {' and '.join(missing)}: expected code and description."
        )
    rows = table[["code", "description"]].dropna().astype(str)
    return {code: text for code, text in rows.itertuples(index=False) if text}
