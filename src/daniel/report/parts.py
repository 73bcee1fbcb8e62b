"""What a report is made of: frozen dataclasses that know neither HTML nor files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from daniel.errors import InputError
from daniel.estimator import Daniel
from daniel.evaluate.survival import FLOOR
from daniel.federated.report import Report
from daniel.matrix import codes_like

DIGITS = 2  # of a prevalence


@dataclass(frozen=True)
class Table:
    """A table and the one sentence that says what its numbers mean; the title stands above."""

    frame: pd.DataFrame
    meaning: str
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """An SVG drawing; `alt` tells its content to those who cannot see it.

    wide: its words are too small for a phone's width, so it scrolls there.
    """

    svg: str
    caption: str
    alt: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """One evaluation: a title, a paragraph, and what belongs to it."""

    title: str
    text: str
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class ReportParts:
    """The content of a report.

    report: study facts and contributors.  codes: p names with their vocabulary before the first
    colon.  embedding (p, d): one row a code, compared by cosine.  couplings: factors U, V (p, k)
    with theta = U V' off the diagonal, or None.  prevalence (p,): share of records with each code,
    or None.  descriptions: words for codes, of which some may be missing.  sections: evaluations,
    in order.  focus: the code that the explorer opens with; else the most frequent one.
    """

    report: Report
    codes: tuple[str, ...]
    embedding: np.ndarray
    couplings: tuple[np.ndarray, np.ndarray] | None = None
    prevalence: np.ndarray | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    focus: str | None = None

    def __post_init__(self) -> None:
        p = len(self.codes)
        if p == 0:
            raise InputError("The model has no codes: there is nothing to report.")
        factors = dict(zip(("U", "V"), self.couplings or (), strict=False))
        for name, array in {"embedding": self.embedding, **factors}.items():
            if array.ndim != 2 or len(array) != p:
                raise InputError(f"{name} has shape {array.shape}, and there are {p} codes.")
            if not np.isfinite(array).all():
                raise InputError(f"{name} has values that are not finite: fit the model again.")
        if self.prevalence is not None and self.prevalence.shape != (p,):
            raise InputError(
                f"prevalence has shape {self.prevalence.shape}, and there are {p} codes."
            )
        if self.focus is not None and self.focus not in self.codes:
            raise InputError(
                f"The study has no code {self.focus!r}: choose one of its {p:,} codes, such as "
                f"{codes_like(self.focus, self.codes)}."
            )


def parts_of(
    model: Daniel,
    report: Report,
    *,
    descriptions: Mapping[str, str] | None = None,
    sections: Sequence[Section] = (),
    focus: str | None = None,
) -> ReportParts:
    """The parts of a fitted model.

    The prevalence of a code is the centre of its natural coordinate; a recipe that does not centre
    its records does not know it.
    """
    coords = model._coords
    return ReportParts(
        report=report,
        codes=tuple(str(code) for code in model._names),
        embedding=model.embedding_,
        couplings=(model.U_, model.V_),
        prevalence=None if coords.tied else shown_prevalence(coords.center, report),
        descriptions=descriptions or {},
        sections=sections,
        focus=focus,
    )


def shown_prevalence(share: np.ndarray, report: Report) -> np.ndarray:
    """Prevalences as people may see them: two digits, and none that tells of fewer than the floor.

    The least that is told is floor / records; a smaller one appears as that, with "less than".  So
    does one of which fewer records lack the code, at the upper end.
    """
    least = least_prevalence(report)
    most = max(least, 1 - least)
    share = np.clip(np.asarray(share, dtype=np.float64), least, most)
    unit = 10.0 ** (np.floor(np.log10(share)) - (DIGITS - 1))
    return np.clip(np.round(share / unit) * unit, least, most)


def least_prevalence(report: Report) -> float:
    """The share of records below which nothing is told: that of as many records as the floor."""
    return min(1.0, shown_floor(report) / max(report.records, 1))


def shown_floor(report: Report) -> int:
    """The fewest patients of whom a report tells: the study's floor, and never below eleven.

    A study may set a lower one for what its sites tell each other; a report may go to anybody.
    """
    return max(FLOOR, report.floor)
