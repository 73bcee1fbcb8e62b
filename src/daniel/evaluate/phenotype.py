"""Phenotyping: can records with a diagnosis be told from records without, by their other codes?

The target code is left out of every record.  Two ways to tell:

*unsupervised*  the model's probability of the target given the other codes, eq. (conditional_dist)
*supervised*    a classifier on the patient vector U_{-i}'x_{-i}: a decision tree as in the paper,
                logistic regression with a ridge that starts from the unsupervised score, gradient
                boosting; tested on the patients of the held-out fold

The measure is the area under the ROC curve (AUC).  Only pairs of records of one fold are compared,
since each fold has a classifier of its own; the interval resamples patients.  Few patients in many
folds leave hardly a pair, so folds are as few as it takes, and of few patients there is no
interval: resampling them would make it too narrow.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from daniel.checks import read_sites
from daniel.errors import InputError, ParameterError
from daniel.evaluate.cases import (
    Cases,
    Chosen,
    check_folds,
    fold_of_patients,
    patients_of,
    small_sites,
)
from daniel.evaluate.ridge import RidgeLogistic
from daniel.evaluate.scores import Scored, target_score
from daniel.evaluate.tree import RpartTree
from daniel.matrix import CodeMatrix, listed

__all__ = ["CLASSIFIERS", "Cases", "Phenotyping", "fold_auc", "phenotype"]

BOOTSTRAPS = 1000
FOLD_PATIENTS = 5  # of either kind, on average, that a fold must have
FEWEST_PATIENTS = 20  # of either kind, for an interval
FEW_CASES = 30  # of a kind; AUCs of fewer are shown with two digits
CHUNK = 4_000_000  # resampled weights held at once
UNSUPERVISED, ALL = "unsupervised", "all"

Classifier = Callable[[int], Any]
CLASSIFIERS: Mapping[str, Classifier] = {
    "tree": lambda seed: RpartTree(),
    "logistic": lambda seed: RidgeLogistic(score_first=True),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
}


@dataclass(frozen=True)
class Phenotyping:
    """What a phenotyping found; nothing in it is about a single record.

    table: method, site_train, site_test, auc, lo, hi (95 %), n_pos, n_neg, folds.  "all" stands for
    all sites; the unsupervised score has no site of training of its own.  auc is NaN where no fold
    has both kinds, or a classifier learned nothing and scores all records of a fold alike; lo and
    hi also where the site of test has few patients of a kind.
    rule: how the cases were chosen.  score: what the unsupervised score is.
    left_out: sites with too few patients of either kind; no record of theirs is used.
    """

    target: str
    rule: str
    score: str
    table: pd.DataFrame
    left_out: tuple[str, ...] = ()

    @property
    def folds(self) -> int:
        """Into how many parts the patients were put."""
        return int(self.table["folds"].max())

    def auc(self, method: str = UNSUPERVISED) -> float:
        """The AUC of a method over all sites."""
        rows = self.table
        whole = (rows["site_train"] == ALL) & (rows["site_test"] == ALL)
        return float(rows.loc[whole & (rows["method"] == method), "auc"].item())


def phenotype(
    model: Any,
    matrix: CodeMatrix,
    target: str,
    *,
    sites: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    folds: int = 10,
    random_state: int = 0,
    cases: Cases | None = None,
    score: str = "auto",
    refit: bool = False,
    classifiers: Mapping[str, Classifier] = CLASSIFIERS,
    by_site: bool = True,
    floor: int = 11,
    without: Collection[str] = (),
) -> Phenotyping:
    """AUC of telling records with the target from records without, by the model's vectors.

    Parameters
    ----------
    model : a fitted Daniel, or anything with `embedding_` (p, d), and `theta_` (p, p) if it has
        one, of the matrix's codes; :func:`daniel.evaluate.scores.target_score` tells how each of
        them scores a record.
    matrix : records × codes of all sites.
    target : the code to be told, such as "PheCode:290.1".
    sites : (n,) site of each record, for a row for each site of training and of test, for one-shot
        fits, and for as many positives as negatives at each site.
    labels : (n,) yes or no for each record, where something better than the code is known.
    folds : number of parts of the patients; fewer where a site would have fewer than five patients
        of a kind in each, but at least two.
    cases : how positives and negatives are chosen; the paper's way where the records allow it.
    score : unsupervised score of a plain embedding, "cosine" or "inner".
    refit : fit a copy of the model for each fold to the records of the other folds' patients, as
        the paper does; otherwise the model is taken as it is, and what it has learned of the
        target it may have learned from the very records it is tested on.
    classifiers : name -> function of a seed that makes a scikit-learn classifier; one that has
        `score_first` True is given the unsupervised score as a first column before the vectors, and
        the `fit` of one that has `by_patient` True is told `patients`, the number of each row's.
    by_site : whether sites get rows of their own.
    floor : sites with fewer patients of either kind are left out and named; without rows for
        sites, all of them count as one.
    without : codes that are hidden beside the target, such as its `kin` in the hierarchy of codes,
        which all but name it.
    """
    check_folds(folds)
    _check_codes(without, matrix.codes)
    chosen = (cases or Cases()).choose(
        matrix, target, labels=labels, sites=sites, random_state=random_state
    )
    names, site = read_sites(sites if by_site else None, matrix.shape[0])
    if ALL in map(str, names):
        raise InputError("A site is called 'all', which here means all sites: rename it.")
    patients = patients_of(matrix)
    chosen, left_out = _large_sites(chosen, names, site, patients, floor)
    rows = chosen.rows
    parts = {ALL: np.ones(rows.size, dtype=bool)}
    if sites is not None and by_site:
        parts |= {str(names[k]): site[rows] == k for k in np.unique(site[rows])}
    least = min(_fewest(chosen.positive[part], patients[rows[part]]) for part in parts.values())
    folds = min(folds, max(2, least // FOLD_PATIENTS))
    stratum = np.zeros(matrix.shape[0], dtype=int)
    stratum[rows] = 1 + chosen.positive
    fold = fold_of_patients(patients, stratum, folds, random_state)
    run = _Run(chosen.positive, fold[rows], patients[rows], parts, classifiers, random_state)
    where = None if sites is None else np.asarray(sites)
    score_of = partial(target_score, target=target, score=score, without=without)
    views = _views(model, matrix, rows, fold, where, score_of, refit=refit)
    told, meaning = run.collect(views, folds)
    return Phenotyping(target, chosen.rule, meaning, run.table(told, folds, refit), left_out)


def auc_digits(cases: int) -> int:
    """Digits of an AUC that others may see, by the cases of the rarer kind.

    An AUC is a whole number of half pairs over their number.  Of few cases three digits, or several
    AUCs, would leave one number of cases only, which is told in tens.
    """
    return 2 if cases < FEW_CASES else 3


def fold_auc(
    score: ArrayLike, positive: ArrayLike, fold: ArrayLike, weight: ArrayLike | None = None
) -> np.ndarray:
    """Share of pairs (positive, negative) of one fold in which the positive scores higher.

    Ties count half.  weight (b, n): an AUC for each row of weights; the answer is (b,), or (1,)
    without weights.  Folds of one size give the mean of their AUCs.  Without a pair it is NaN.
    """
    s, y, f = np.asarray(score), np.asarray(positive, dtype=bool), np.asarray(fold)
    w = np.ones((1, s.size)) if weight is None else np.asarray(weight, dtype=np.float64)
    order = np.lexsort((s, f))
    s, y, f, w = s[order], y[order], f[order], w[:, order]
    new_fold = np.r_[True, f[1:] != f[:-1]]
    first = np.flatnonzero(new_fold | np.r_[True, s[1:] != s[:-1]])  # of each group of ties
    plus = np.add.reduceat(w * y, first, axis=1)
    minus = np.add.reduceat(w * ~y, first, axis=1)
    fold_start = np.flatnonzero(new_fold[first])
    size = np.diff(np.r_[fold_start, first.size])
    in_fold = np.add.reduceat(minus, fold_start, axis=1)
    before = np.repeat(np.cumsum(in_fold, axis=1) - in_fold, size, axis=1)
    below = np.cumsum(minus, axis=1) - before - minus / 2
    pairs = (np.add.reduceat(plus, fold_start, axis=1) * in_fold).sum(axis=1)
    concordant = (plus * below).sum(axis=1)
    return np.divide(concordant, pairs, out=np.full(len(w), np.nan), where=pairs > 0)


# --- the work -------------------------------------------------------------------------------------

View = tuple[int | None, Scored]  # the fold that the model has not seen, None: all are scored
Told = dict[tuple[str, str], np.ndarray]  # (method, site of training) -> scores (k,)


@dataclass(frozen=True)
class _Run:
    """Cases of one phenotyping, and what is computed from them; arrays are (k,)."""

    positive: np.ndarray
    fold: np.ndarray
    patients: np.ndarray
    parts: Mapping[str, np.ndarray]
    classifiers: Mapping[str, Classifier]
    random_state: int

    def collect(self, views: Iterator[View], folds: int) -> tuple[Told, str]:
        """Scores of all cases, each by what has not seen its patient; the unsupervised's meaning.

        A classifier trained at one site is tested at the others on the same held-out patients.
        """
        told: Told = {(UNSUPERVISED, ALL): np.zeros(self.fold.size)}
        meaning = ""
        for only, scored in views:
            meaning = scored.meaning
            for f in range(folds) if only is None else [only]:
                here = self.fold == f
                told[UNSUPERVISED, ALL][here] = scored.score[here]
                for place, part in self.parts.items():
                    with threadpool_limits(1):  # few cases: threads would only wait for each other
                        self._train(told, place, part & ~here, here, scored)
        return told, meaning

    def _train(
        self, told: Told, place: str, train: np.ndarray, test: np.ndarray, scored: Scored
    ) -> None:
        two = np.unique(self.positive[train]).size == 2  # else nothing is learned: equal scores
        for name, make in self.classifiers.items():
            scores = told.setdefault((name, place), np.zeros(self.fold.size))
            if two and test.any():
                classifier = make(self.random_state)
                first = getattr(classifier, "score_first", False)
                values = scored.with_score if first else scored.vectors
                whose = getattr(classifier, "by_patient", False)
                more = {"patients": self.patients[train]} if whose else {}
                classifier.fit(values[train], self.positive[train], **more)
                scores[test] = classifier.predict_proba(values[test])[:, 1]

    def table(self, told: Told, folds: int, refit: bool) -> pd.DataFrame:
        rows = []
        for (method, place), score in told.items():
            one_score = method == UNSUPERVISED and not refit
            fold = np.zeros_like(self.fold) if one_score else self.fold
            if method != UNSUPERVISED and not _tells(score, fold):
                score = np.full_like(score, np.nan)
            for test, part in self.parts.items():
                auc, lo, hi = self._measure(score[part], fold[part], part)
                rows.append(
                    {
                        "method": method,
                        "site_train": place,
                        "site_test": test,
                        "auc": auc,
                        "lo": lo,
                        "hi": hi,
                        "n_pos": int(self.positive[part].sum()),
                        "n_neg": int((~self.positive[part]).sum()),
                        "folds": 1 if one_score else folds,
                    }
                )
        return pd.DataFrame(rows)

    def _measure(
        self, score: np.ndarray, fold: np.ndarray, part: np.ndarray
    ) -> tuple[float, float, float]:
        """AUC and its 95 % percentile interval over resampled patients, NaN if these are few."""
        positive = self.positive[part]
        if np.isnan(score).any():
            return np.nan, np.nan, np.nan
        auc = float(fold_auc(score, positive, fold)[0])
        if _fewest(positive, self.patients[part]) < FEWEST_PATIENTS:
            return auc, np.nan, np.nan
        patient = np.unique(self.patients[part], return_inverse=True)[1].ravel()
        rng = np.random.default_rng(self.random_state)
        number = int(patient.max()) + 1
        chunk = max(1, CHUNK // number)
        drawn = []
        for start in range(0, BOOTSTRAPS, chunk):
            b = min(chunk, BOOTSTRAPS - start)
            picks = rng.integers(number, size=(b, number)) + number * np.arange(b)[:, None]
            times = np.bincount(picks.ravel(), minlength=b * number).reshape(b, number)
            drawn.append(fold_auc(score, positive, fold, times[:, patient]))
        lo, hi = np.nanquantile(np.concatenate(drawn), [0.025, 0.975])
        return auc, float(lo), float(hi)


def _tells(score: np.ndarray, fold: np.ndarray) -> bool:
    """Whether some fold has two different scores."""
    return len(np.unique(np.c_[fold, score], axis=0)) > np.unique(fold).size


def _fewest(positive: np.ndarray, patients: np.ndarray) -> int:
    """Patients of the rarer kind; one who has records of both counts in both."""
    return min(np.unique(patients[kind]).size for kind in (positive, ~positive))


def _views(
    model: Any,
    matrix: CodeMatrix,
    rows: np.ndarray,
    fold: np.ndarray,
    sites: np.ndarray | None,
    score_of: Callable[[Any, CodeMatrix], Scored],
    *,
    refit: bool,
) -> Iterator[View]:
    """Scores and vectors of the cases: by the model, or for each fold by a copy that missed it."""
    asked = CodeMatrix(matrix.Z[rows], matrix.codes)
    if not refit:
        yield None, score_of(model, asked)
        return
    if not isinstance(model, BaseEstimator):
        raise ParameterError("refit needs an estimator that can be fitted again, such as Daniel.")
    for f in np.unique(fold[rows]):
        seen = fold != f
        own = {} if sites is None else {"sites": sites[seen]}
        fitted = clone(model).fit(CodeMatrix(matrix.Z[seen], matrix.codes), **own)
        yield int(f), score_of(fitted, asked)


def _check_codes(codes: Collection[str], known: tuple[str, ...]) -> None:
    strange = sorted(set(codes) - set(known))
    if strange:
        raise InputError(
            f"without has {listed(strange[:3])}, which the records do not: name codes of the study."
        )


def _large_sites(
    chosen: Chosen, names: list[Any], site: np.ndarray, patients: np.ndarray, floor: int
) -> tuple[Chosen, tuple[str, ...]]:
    """Cases of the sites that have `floor` patients of either kind, and the other sites' names."""
    small = small_sites(site, patients, chosen.kinds, floor)
    if len(small) == len(names):
        raise InputError(
            f"No site has {floor} patients with and {floor} without the target: too few to tell."
        )
    kept = ~np.isin(site[chosen.rows], small)
    left_out = tuple(str(names[k]) for k in small)
    return Chosen(chosen.rows[kept], chosen.positive[kept], chosen.rule), left_out
