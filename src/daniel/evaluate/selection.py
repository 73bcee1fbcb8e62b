"""How many components? By known relations, as the paper chose, or without any labels.

Each rank is fitted to the same part of the patients.  The AUC of known pairs asks whether related
codes came out related; the pseudo-likelihood, minus eq. (objective), of the patients held out asks
whether codes can be foretold from the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone

from daniel.checks import check_choice, is_real, is_whole, read_sites, shown
from daniel.errors import ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.cases import patients_of
from daniel.evaluate.relations import relation_auc, theta_pairs
from daniel.matrix import CodeMatrix

__all__ = ["Selection", "select_rank"]


@dataclass(frozen=True)
class Selection:
    """Fits of several ranks.

    table: one row a rank: n_components, rank (found), auc (mean over the relations), one column
    "auc <relation>" for each, log_likelihood (held out, mean of a record).
    by_auc, by_likelihood: the best n_components in either column, the smallest if several are; None
    without pairs, or without patients held out.
    """

    table: pd.DataFrame
    by_auc: int | None
    by_likelihood: int | None

    @property
    def choice(self) -> int:
        """By known relations where they were given, else by likelihood."""
        found = self.by_auc if self.by_auc is not None else self.by_likelihood
        assert found is not None  # select_rank refuses to run without either
        return found


def select_rank(
    matrix: CodeMatrix,
    ranks: Sequence[int],
    *,
    pairs: pd.DataFrame | None = None,
    sites: ArrayLike | None = None,
    held_out: float = 0.2,
    model: Any = None,
    score: str = "theta",
    draws: int = 10,
    random_state: int = 0,
) -> Selection:
    """Fit the model with each number of components, and say which one does best.

    Parameters
    ----------
    matrix : records × codes.
    ranks : values of `n_components` to try.
    pairs : known pairs (code1, code2, relation), for the choice by AUC.
    sites : (n,) site of each record, for a one-shot fit.
    held_out : share of the patients that no fit sees, for the choice by likelihood; 0 for none.
    model : estimator with `n_components`, `fit` and `score`; Daniel with its defaults if None.
    score : of known pairs, "theta" as in the paper, or "cosine" of the embedding.
    draws, random_state : of the random pairs, the patients held out, and Daniel.
    """
    ranks = _checked(ranks, held_out, pairs)
    check_choice("score", score, ("theta", "cosine"))
    base = Daniel(random_state=random_state) if model is None else model
    if sites is not None:
        read_sites(sites, matrix.shape[0])
    test = _held_out(patients_of(matrix), held_out, random_state, needed=pairs is None)
    train = CodeMatrix(matrix.Z[~test], matrix.codes)
    own = {} if sites is None else {"sites": np.asarray(sites)[~test]}
    rows = []
    for rank in ranks:
        fitted = clone(base).set_params(n_components=rank).fit(train, **own)
        row: dict[str, float] = {"n_components": rank, "rank": int(getattr(fitted, "rank_", rank))}
        if pairs is not None:
            row |= _auc_columns(fitted, matrix.codes, pairs, score, draws, random_state)
        if test.any():
            row["log_likelihood"] = fitted.score(CodeMatrix(matrix.Z[test], matrix.codes))
        rows.append(row)
    table = pd.DataFrame(rows)
    return Selection(table, _best(table, "auc"), _best(table, "log_likelihood"))


def _auc_columns(
    fitted: Any,
    codes: Sequence[str],
    pairs: pd.DataFrame,
    score: str,
    draws: int,
    random_state: int,
) -> dict[str, float]:
    scores = theta_pairs(fitted) if score == "theta" else fitted.embedding_
    auc = relation_auc(scores, codes, pairs, score=score, draws=draws, random_state=random_state)[
        "auc"
    ]
    return {"auc": float(auc.mean())} | {f"auc {name}": float(v) for name, v in auc.items()}


def _best(table: pd.DataFrame, column: str) -> int | None:
    if column not in table:
        return None
    return int(table.loc[table[column].idxmax(), "n_components"])


def _held_out(patients: np.ndarray, share: float, random_state: int, *, needed: bool) -> np.ndarray:
    """(n,) records of a random share of the patients; needed: of one at least."""
    number = int(patients.max()) + 1
    held = round(share * number)
    if held == number or (needed and held == 0):
        whom = "all of them are" if held else "nobody is"
        raise ParameterError(
            f"held_out is {shown(share)} and the number of patients {number:,}, so {whom} held "
            "out and no fits can be compared: give another share, or more patients."
        )
    return np.isin(patients, np.random.default_rng(random_state).permutation(number)[:held])


def _checked(ranks: Sequence[int], held_out: float, pairs: pd.DataFrame | None) -> list[int]:
    wrong = [rank for rank in ranks if not is_whole(rank) or rank < 1]
    if wrong or not len(ranks):
        found = shown(wrong[0]) if wrong else "nothing"
        raise ParameterError(f"ranks holds {found}; expected whole numbers >= 1.")
    if not is_real(held_out) or not 0 <= held_out < 1:
        raise ParameterError(f"held_out is {shown(held_out)}; expected a share from 0 to below 1.")
    if held_out == 0 and pairs is None:
        raise ParameterError(
            "Nothing can be compared: give known pairs, or a share of patients to hold out."
        )
    return sorted({int(rank) for rank in ranks})
