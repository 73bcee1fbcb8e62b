"""What a model of any kind says of a target code in a record that does not show it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logit

from daniel.checks import check_choice
from daniel.errors import InputError
from daniel.matrix import CodeMatrix, listed

__all__ = ["Scored", "positions", "target_score"]

SCORES = ("auto", "cosine", "inner")
PROBABILITY = "probability of the target given the other codes"
LOG_ODDS = "log-odds of the target given the other codes"
TINY = 1e-9  # probabilities are kept so far from 0 and 1, that they have log-odds
OF_SUM = "of the target's vector with the sum of the record's vectors"


@dataclass(frozen=True)
class Scored:
    """Records by one model: score (n,) of the target, what it means, and patient vectors (n, d)."""

    score: np.ndarray
    meaning: str
    vectors: np.ndarray

    @cached_property
    def with_score(self) -> np.ndarray:
        """(n, 1 + d) the score, of a probability its log-odds, and the vectors."""
        score = np.asarray(self.score, dtype=np.float64)
        if self.meaning == PROBABILITY:
            score = logit(np.clip(score, TINY, 1 - TINY))
        return np.column_stack([score, self.vectors])


def target_score(
    model: Any,
    matrix: CodeMatrix,
    target: str,
    *,
    score: str = "auto",
    without: Iterable[str] = (),
) -> Scored:
    """Unsupervised score of the target and patient vectors; the target is left out of both.

    without: codes that are left out beside it, for they would tell it.

    With `conditional_proba` (Daniel): P(target | the other codes), eq. (conditional_dist), and
    `transform`.  With `theta_`: sum_k theta_kt x_k over x of ±1, the same up to a monotone
    function.  With `embedding_` E alone: the cosine, or the inner product, of the target's row with
    the record's sum of rows.  Vectors of the latter two: E_{-t}'z_{-t}; x of ±1 in place of z would
    stretch and shift them all alike, which tells a classifier nothing.
    """
    check_choice("score", score, SCORES)
    where, t = positions(model, matrix.codes), matrix.codes.index(target)
    hidden = _hidden(matrix, [t, *(matrix.codes.index(code) for code in without)])
    if hasattr(model, "conditional_proba"):
        probability = model.conditional_proba(hidden, [int(where[t])])[:, 0]
        return Scored(probability, PROBABILITY, model.transform(hidden))
    E = np.asarray(model.embedding_, dtype=np.float64)[where]
    if not np.isfinite(E).all():
        raise InputError("The embedding has values that are not finite: fit it again.")
    vectors = np.asarray(hidden.Z @ E)
    if hasattr(model, "theta_") and score == "auto":
        theta = np.asarray(model.theta_[:, where[t]], dtype=np.float64)[where]
        return Scored(hidden.Z @ theta, LOG_ODDS, vectors)
    inner = vectors @ E[t]
    if score == "inner":
        return Scored(inner, f"inner product {OF_SUM}", vectors)
    norm = np.linalg.norm(vectors, axis=1) * np.linalg.norm(E[t])
    cosine = np.divide(inner, norm, out=np.zeros_like(inner), where=norm > 0)
    return Scored(cosine, f"cosine {OF_SUM}", vectors)


def _hidden(matrix: CodeMatrix, columns: Sequence[int]) -> CodeMatrix:
    """The same records with these columns empty: what they say of the target cannot matter."""
    kept = np.ones(matrix.shape[1], dtype=np.float32)
    kept[list(columns)] = 0
    Z = sp.csr_array(matrix.Z @ sp.diags_array(kept))
    Z.eliminate_zeros()
    return CodeMatrix(Z, matrix.codes)


def positions(model: Any, codes: Sequence[str]) -> NDArray[np.intp]:
    """Where a model has each of the codes: by name, or in their order where it names none."""
    names = _names_of(model)
    if names is None:
        if not hasattr(model, "embedding_"):
            raise InputError("The model has no embedding_: fit it first.")
        if len(model.embedding_) != len(codes):
            raise InputError(
                f"The model has {len(model.embedding_):,} codes and the records have "
                f"{len(codes):,}: give a model of the same study."
            )
        return np.arange(len(codes))
    strange = sorted(set(codes) ^ set(names))
    if strange:
        raise InputError(
            "The model is of another study: it and the records do not share "
            f"{len(strange):,} codes, such as {listed(strange[:2])}."
        )
    place = {name: k for k, name in enumerate(names)}
    return np.array([place[code] for code in codes], dtype=np.intp)


def _names_of(model: Any) -> list[str] | None:
    """The names of a model's codes in its own order, None if it has none."""
    for name in ("feature_names_in_", "codes_", "codes"):
        found = getattr(model, name, None)
        if found is not None:
            return [str(code) for code in found]
    return None
