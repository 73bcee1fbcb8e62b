"""Which records a phenotyping tells apart, and how patients are put into folds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from daniel.checks import check_choice, is_whole, read_sites, shown
from daniel.errors import InputError, ParameterError
from daniel.matrix import CodeMatrix, codes_like

__all__ = ["Cases", "Chosen", "fold_of_patients", "patients_of", "small_sites"]

RULES = ("auto", "onset", "code", "labels")


@dataclass(frozen=True)
class Chosen:
    """Records to be told apart: rows (k,) of the matrix, positive (k,), and the rule's name."""

    rows: np.ndarray
    positive: np.ndarray
    rule: str

    @property
    def kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the positives, and of the negatives."""
        return self.rows[self.positive], self.rows[~self.positive]


@dataclass(frozen=True)
class Cases:
    """How positives and negatives are chosen.

    rule
        "onset", the paper's: of each patient who ever has the target, the earliest records, before
        the first one with it, are negatives, and as many records after that one, drawn at random,
        are positives.  "code": records with the target against records without.  "labels": records
        labelled yes against records labelled no.  "auto": labels where they are given, else onset
        where the records have patients and windows and some patient records before and after, else
        code.
    per_patient
        Rule onset: at most so many records of each kind from a patient.  The paper's numbers of
        records are below its numbers of patients, hence 1.
    first
        Rule onset: whether the first record with the target counts as a positive.  The paper says
        "after the first recorded".
    equal
        Other rules: draw as many of the commoner kind as there are of the rarer one, at each site
        by itself where sites are given.  Without this, a code that one hospital uses more than
        another could be told by the hospital alone.
    """

    rule: str = "auto"
    per_patient: int = 1
    first: bool = False
    equal: bool = True

    def choose(
        self,
        matrix: CodeMatrix,
        target: str,
        *,
        labels: ArrayLike | None = None,
        sites: ArrayLike | None = None,
        random_state: int = 0,
    ) -> Chosen:
        """The records of `matrix` that stand for or against `target`; sites (n,): of each."""
        check_choice("rule", self.rule, RULES)
        if not is_whole(self.per_patient) or self.per_patient < 1:
            found = shown(self.per_patient)
            raise ParameterError(f"per_patient is {found}; expected a whole number >= 1.")
        present = has_code(matrix, target)
        site = read_sites(sites, len(present))[1]
        rule = self._rule(matrix, labels)
        told = _read_labels(labels, len(present)) if rule == "labels" else present
        rows, positive = np.array([], dtype=int), np.array([], dtype=bool)
        if rule == "onset":
            rows, positive = self._onset(matrix, present, np.random.default_rng(random_state))
            if self.rule == "auto" and not rows.size:
                rule = "code"
        if rule != "onset":
            rows, positive = self._by_label(told, site, random_state)
        if positive.all() or not positive.any():
            raise InputError(
                f"{_lacking(told, rule)} {target} by the rule {rule!r}: give labels, another "
                "rule or more records."
            )
        return Chosen(rows, positive, rule)

    def _rule(self, matrix: CodeMatrix, labels: ArrayLike | None) -> str:
        timed = matrix.patients is not None and matrix.windows is not None
        if self.rule == "auto":
            return "labels" if labels is not None else "onset" if timed else "code"
        if self.rule == "onset" and not timed:
            raise InputError("The rule 'onset' needs the patient and the window of each record.")
        if self.rule == "labels" and labels is None:
            raise ParameterError("The rule is 'labels', and no labels were given: give labels.")
        if self.rule != "labels" and labels is not None:
            raise ParameterError(
                f"Labels were given, and the rule {self.rule!r} would not use them: drop either."
            )
        return self.rule

    def _onset(
        self, matrix: CodeMatrix, present: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        records = pd.DataFrame(
            {
                "patient": matrix.patients,
                "window": matrix.windows,
                "chance": rng.random(len(present)),
            }
        )
        onset = records["window"].where(present).groupby(records["patient"]).transform("min")
        before = records["window"] < onset
        after = records["window"] >= onset if self.first else records["window"] > onset
        early = records[before].sort_values(["patient", "window"], kind="stable")
        late = records[after].sort_values("chance")
        number = np.minimum(early.groupby("patient").size(), late.groupby("patient").size())
        number = number.dropna().clip(upper=self.per_patient)
        most = [part["patient"].map(number).fillna(0).astype(int) for part in (early, late)]
        kept = [
            part.index[part.groupby("patient").cumcount() < limit]
            for part, limit in zip((early, late), most, strict=True)
        ]
        rows = np.concatenate([index.to_numpy() for index in kept])
        order = np.argsort(rows)
        return rows[order], np.repeat([False, True], [len(index) for index in kept])[order]

    def _by_label(
        self, told: np.ndarray, site: np.ndarray, random_state: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each site's records are drawn from the seed alone, whichever other sites there are.

        Sites with few patients are left out after a first choice: a second one, without them, must
        find the same records of the others, or one of these could be too small all of a sudden.
        """
        rows = np.arange(told.size)
        if self.equal:
            drawn = [np.array([], dtype=int)]
            for one in np.unique(site):
                here = site == one
                kinds = [np.flatnonzero(told & here), np.flatnonzero(~told & here)]
                number = min(len(kind) for kind in kinds)
                rng = np.random.default_rng(random_state)
                drawn += [rng.choice(kind, number, replace=False) for kind in kinds]
            rows = np.sort(np.concatenate(drawn))
        return rows, told[rows]


def has_code(matrix: CodeMatrix, target: str) -> np.ndarray:
    """(n,) whether each record has the target code."""
    if target not in matrix.codes:
        raise InputError(
            f"The study has no code {target!r}: choose one of its {len(matrix.codes):,} codes, "
            f"such as {codes_like(target, matrix.codes)}."
        )
    column = matrix.codes.index(target)
    if matrix.absent is not None and matrix.absent[column]:
        raise InputError(f"The code {target!r} is not kept at this site, so it says nothing there.")
    present: np.ndarray = matrix.Z[:, [column]].toarray().ravel() > 0
    return present


def patients_of(matrix: CodeMatrix) -> np.ndarray:
    """(n,) number of each record's patient; a record without one is a patient of its own."""
    if matrix.patients is None:
        return np.arange(matrix.shape[0])
    return np.unique(matrix.patients, return_inverse=True)[1].ravel()


def small_sites(
    site: np.ndarray, patients: np.ndarray, groups: Sequence[np.ndarray], floor: int
) -> list[Any]:
    """Sites that bring fewer than `floor` patients to one of the groups, or more of them.

    site, patients (n,): of each record; groups: rows of records.
    """
    return [
        name
        for name in np.unique(site)
        if any(np.unique(patients[rows[site[rows] == name]]).size < floor for rows in groups)
    ]


def check_folds(folds: Any) -> None:
    if not is_whole(folds) or folds < 2:
        raise ParameterError(f"folds is {shown(folds)}; expected a whole number >= 2.")


def fold_of_patients(
    patients: np.ndarray, stratum: np.ndarray, folds: int, random_state: int
) -> np.ndarray:
    """(n,) fold of each record: patients at random, all records of one in the same fold.

    patients (n,): numbers from 0; stratum (n,): 0, 1, ...; a patient counts by the largest, and
    each stratum is spread evenly over the folds.
    """
    check_folds(folds)
    kind = np.zeros(int(patients.max()) + 1, dtype=int)
    np.maximum.at(kind, patients, stratum)
    shuffled = np.random.default_rng(random_state).permutation(kind.size)
    shuffled = shuffled[np.argsort(kind[shuffled], kind="stable")]
    fold = np.empty(kind.size, dtype=int)
    fold[shuffled] = np.arange(kind.size) % folds
    return fold[patients]


def _lacking(told: np.ndarray, rule: str) -> str:
    """How a sentence begins that says why there is nothing to tell apart."""
    if told.any() and not told.all():
        return f"No {'patient' if rule == 'onset' else 'site'} has records for and against"
    return f"No records stand {'against' if told.any() else 'for'}"


def _read_labels(labels: Any, n: int) -> np.ndarray:
    values = np.asarray(labels)
    if values.shape != (n,):
        raise InputError(
            f"labels has shape {values.shape}, and there are {n} records: give one for each."
        )
    if pd.isna(values).any() or not np.isin(values, (0, 1)).all():
        raise InputError("labels holds other values than yes and no (1 and 0, or booleans).")
    return values.astype(bool)
