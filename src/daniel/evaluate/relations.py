"""Known relations: does a score of two codes tell known pairs from random ones?

For each relation (such as disease-drug) the known pairs are the positives. The negatives are as
many random pairs of the same code types, none of them known. The score of a pair is the cosine of
its two embedding rows, or its coupling theta_jk as in the paper. The measures are the area under
the ROC curve (AUC), and the share of known pairs found (TPR) at a few rates of false alarms (FPR).

Known relations are often about common codes, and then a score that tells nothing but how common two
codes are is better than chance.  Negatives of codes about as common as those of the known pairs
take most of this away.

Negatives depend on the codes, the pairs and the seed, and on how common codes are if that is given,
never on the embedding: all methods are scored on identical draws.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from daniel.checks import check_choice, is_auto, is_whole, shown
from daniel.errors import InputError, ParameterError
from daniel.evaluate.pairs import NAMED, outside, tidy
from daniel.matrix import vocabulary_of

__all__ = ["cosine_pairs", "negatives", "rank_auc", "relation_auc", "theta_pairs"]

FEWEST_PAIRS = 10  # of a relation with an interval
# A redraw leaves only the pairs that clashed with a known one, so few are ever needed.
MAX_REDRAWS = 1000
# draws="auto": so many random pairs of a relation, in at least and at most so many draws.
ENOUGH, FEWEST_DRAWS, MOST_DRAWS = 5_000, 10, 500
MOST_SHARE = 0.5  # of the known pairs, that a code counts as having at most
LEAST_OF_OWN = 0.5  # of the variance that pairs without common codes would have
TINY = 1e-20  # a variance that is none
BEYOND = 0.025  # chance beyond either bound
# Codes about as common: so many on either side, 1/40 of a vocabulary, within these limits.
FEWEST_BESIDE, MOST_BESIDE, BESIDE = 2, 10, 40
PATIENCE = 20  # redraws among them, before twice as many are let in
RATES = {"tpr_01": 0.01, "tpr_05": 0.05, "tpr_10": 0.10}  # column -> rate of false alarms

Indices = NDArray[np.intp]
Floats = NDArray[np.float64]
Draws = int | str  # a number, or "auto"
PairScore = Callable[[Indices, Indices], ArrayLike]
# Random codes in place of the given ones, after so many redraws.
Like = Callable[[Indices, int, np.random.Generator], Indices]


def relation_auc(
    embedding: ArrayLike | PairScore,
    codes: Sequence[str],
    pairs: pd.DataFrame,
    *,
    score: str = "cosine",
    counts: ArrayLike | None = None,
    draws: Draws = "auto",
    random_state: int = 0,
) -> pd.DataFrame:
    """AUC of a score of pairs for each relation, with a 95 % interval.

    Parameters
    ----------
    embedding : (p, d) one row a code, for score="cosine"; (p, p) couplings, for score="theta"; or
        for either any function of positions (i, j), such as :func:`theta_pairs` of a model.
    codes : p names with their vocabulary before a colon, such as "PheCode:290.1"; those without a
        colon are of one vocabulary.
    pairs : columns code1, code2, relation. Pairs with a code outside `codes` are left out.
    score : "cosine" of two embedding rows, or "theta", the mean of theta_jk and theta_kj.
    counts : (p,) how many records, or which share of them, have each code: negatives are then of
        codes about as common as those of the known pairs. None: of any codes of their types.
    draws : number of independent sets of negatives, each as large as the positives; "auto": 10, and
        more where pairs are few, so that chance in the negatives moves the AUC by little.
    random_state : seed of the negatives.

    Returns
    -------
    One row a relation, in order of first appearance: n_pairs, auc (mean over the draws), the
    interval lo, hi, and tpr_01, tpr_05, tpr_10: the largest share of positive pairs above a
    threshold that at most 1, 5 or 10 % of all drawn negatives reach. The interval knows that pairs
    with a common code are alike (`_interval`). Fewer than FEWEST_PAIRS say nothing: their interval
    is 0 to 1. Where all scores are equal there is no interval: lo and hi are NaN.

    Relations of code types of which nearly every pair is known have no negatives. They are left
    out, and named in the table's attrs["left_out"]. attrs["unknown_pairs"] is how many pairs have a
    code outside `codes`, attrs["unknown_codes"] these codes, ten at most, and
    attrs["unknown_relations"] the relations that lost all of their pairs so.
    """
    score_of = _pair_score(embedding, len(codes), score)
    drawn = negatives(codes, pairs, counts=counts, draws=draws, random_state=random_state)
    rows, left_out = {}, []
    for relation, i, j in _positives(codes, pairs):
        if relation not in drawn:
            left_out.append(relation)
            continue
        positive = _finite(score_of(i, j))
        negative = _finite(score_of(*drawn[relation]))
        auc = float(_placements(positive, negative).mean())
        lo, hi = _interval(auc, positive, negative, (i, j), drawn[relation], len(codes))
        rows[relation] = {"n_pairs": len(i), "auc": auc, "lo": lo, "hi": hi}
        for name, rate in RATES.items():
            rows[relation][name] = _found_at(positive, negative.ravel(), rate)
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("relation")
    table.attrs.update(left_out=left_out, **_unknown(codes, pairs))
    return table


def cosine_pairs(embedding: ArrayLike, i: ArrayLike, j: ArrayLike) -> Floats:
    """Cosines of the rows i and j of an embedding; 0 where a row is zero.

    embedding : (p, d); i, j : integer arrays of one shape, which is that of the answer.
    """
    vectors = np.asarray(embedding, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    cosines: Floats = np.einsum("...d,...d->...", unit[np.asarray(i)], unit[np.asarray(j)])
    return cosines


def theta_pairs(model: Any) -> PairScore:
    """Scores of pairs (i, j) by the couplings of a fitted model, without the (p, p) matrix.

    From the factors, theta_jk = (U V')_jk, where the model has them, else from its `theta_`.
    """
    if not (hasattr(model, "U_") and hasattr(model, "V_")):
        return _matrix_entries(np.asarray(model.theta_))
    U, V = np.asarray(model.U_, dtype=np.float64), np.asarray(model.V_, dtype=np.float64)

    def score(i: Indices, j: Indices) -> Floats:
        forward: Floats = np.einsum("...d,...d->...", U[i], V[j])
        return (forward + np.einsum("...d,...d->...", U[j], V[i])) / 2

    return score


def negatives(
    codes: Sequence[str],
    pairs: pd.DataFrame,
    *,
    counts: ArrayLike | None = None,
    draws: Draws = "auto",
    random_state: int = 0,
) -> dict[str, tuple[Indices, Indices]]:
    """Random pairs to set against the known ones.

    For each positive pair, a pair of codes of the same two vocabularies, drawn uniformly, that is
    neither a known pair of any relation nor a code with itself.  With counts (p,), each code is one
    of a few that are next to its own by how common they are, as many below as above where there
    are; of more, where nearly all pairs of those are known.

    Returns relation -> (i, j), integer arrays (draws, n_pairs) of positions in `codes`, without
    the relations for which none can be drawn.
    """
    if not is_auto(draws) and (not is_whole(draws) or int(draws) < 1):
        raise ParameterError(f"draws is {shown(draws)}: expected 'auto' or at least 1.")
    vocabulary = np.array([vocabulary_of(code) for code in codes])
    like = _of_kind(vocabulary)
    if counts is not None:
        like = _as_common(vocabulary, _counts(counts, len(codes)), _generator(random_state, ""))
    positives = list(_positives(codes, pairs))
    known = np.unique(np.concatenate([_key(i, j, len(codes)) for _, i, j in positives]))
    drawn = {}
    for relation, i, j in positives:
        number = _enough(len(i)) if is_auto(draws) else int(draws)
        at = np.tile(i, number), np.tile(j, number)
        found = _draw(*at, like, known, len(codes), _generator(random_state, relation))
        if found is not None:
            drawn[relation] = found[0].reshape(number, -1), found[1].reshape(number, -1)
    if not drawn:
        raise InputError(
            "nearly every pair of these code types is a known pair, so no negatives can be drawn: "
            "give fewer pairs or more codes."
        )
    return drawn


def rank_auc(positive: ArrayLike, negative: ArrayLike) -> float:
    """P(positive > negative) + P(equal)/2 for two samples of scores."""
    return float(_placements(np.asarray(positive), np.atleast_2d(negative)).mean())


def _pair_score(given: ArrayLike | PairScore, p: int, score: str) -> PairScore:
    """What turns positions (i, j) into scores."""
    check_choice("score", score, ("cosine", "theta"))
    if callable(given):
        return given
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 2 or len(values) != p:
        raise InputError(
            f"embedding has shape {values.shape} but there are {p} codes: "
            "expected one row for each code."
        )
    if score == "theta" and values.shape != (p, p):
        raise InputError(
            f"theta has shape {values.shape} but there are {p} codes: expected {(p, p)}, "
            "or score='cosine' for an embedding."
        )
    if not np.isfinite(values).all():
        raise InputError("embedding has values that are not finite: fit it again or drop them.")
    if score == "theta":
        return _matrix_entries(values)
    return lambda i, j: cosine_pairs(values, i, j)


def _matrix_entries(theta: NDArray[Any]) -> PairScore:
    return lambda i, j: (theta[i, j] + theta[j, i]) / 2


def _finite(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError("the score of a pair is not finite: check the model or the function.")
    return values


def _positives(codes: Sequence[str], pairs: pd.DataFrame) -> Iterator[tuple[str, Indices, Indices]]:
    """(relation, i, j) with positions in `codes`, one relation at a time.

    A pair counts once, whichever way round it stands; a code with itself is none.
    """
    missing = {"code1", "code2", "relation"} - set(pairs.columns)
    if missing:
        raise InputError(f"pairs lacks the columns {sorted(missing)}.")
    if pairs[["code1", "code2", "relation"]].isna().any(axis=None):
        raise InputError(
            "pairs has rows without a code or a relation: fill them in or remove them."
        )
    index = pd.Index(codes)
    if not index.is_unique:
        raise InputError("codes has repeated names: each code must stand once.")
    i, j = index.get_indexer(pairs["code1"]), index.get_indexer(pairs["code2"])
    inside = (i >= 0) & (j >= 0) & (i != j)
    if not inside.any():
        raise InputError("no pair has both of its codes in the embedding: check the code names.")
    relation = pairs["relation"].to_numpy()
    for name in pd.unique(relation[inside]):
        chosen = np.flatnonzero(inside & (relation == name))
        once = np.unique(_key(i[chosen], j[chosen], len(codes)), return_index=True)[1]
        chosen = chosen[np.sort(once)]
        yield str(name), i[chosen], j[chosen]


def _unknown(codes: Sequence[str], pairs: pd.DataFrame) -> dict[str, Any]:
    """What is left out for a code outside `codes`, each pair counted once."""
    pairs = pairs.astype(str).reset_index(drop=True)
    found = outside(tidy(pairs["code1"], pairs["code2"], pairs["relation"]), codes)
    return {
        "unknown_pairs": found.pairs,
        "unknown_codes": list(found.codes[:NAMED]),
        "unknown_relations": list(found.lost),
    }


def _key(i: Indices, j: Indices, p: int) -> Indices:
    """One number for each unordered pair."""
    keys: Indices = np.minimum(i, j) * p + np.maximum(i, j)
    return keys


def _generator(random_state: int, label: str) -> np.random.Generator:
    """A stream for each relation, so that one relation does not move the draws of another."""
    return np.random.default_rng([random_state, crc32(label.encode())])


def _draw(
    i: Indices, j: Indices, like: Like, known: Indices, p: int, rng: np.random.Generator
) -> tuple[Indices, Indices] | None:
    """Pairs of codes like those of the pairs (i, j), by rejection.

    None where nearly every such pair is known.
    """
    a, b = np.empty_like(i), np.empty_like(j)
    open_ = np.arange(i.size)
    for redraws in range(MAX_REDRAWS):
        a[open_] = like(i[open_], redraws, rng)
        b[open_] = like(j[open_], redraws, rng)
        keys = _key(a[open_], b[open_], p)
        open_ = open_[(a[open_] == b[open_]) | np.isin(keys, known)]
        if open_.size == 0:
            return a, b
    return None


def _enough(k: int) -> int:
    """Draws of negatives for k known pairs."""
    return min(MOST_DRAWS, max(FEWEST_DRAWS, -(-ENOUGH // k)))


def _of_kind(vocabulary: NDArray[np.str_]) -> Like:
    """Random codes of the same vocabulary."""

    def like(at: Indices, _: int, rng: np.random.Generator) -> Indices:
        wanted, drawn = vocabulary[at], np.empty_like(at)
        for name in np.unique(wanted):
            here = wanted == name
            drawn[here] = rng.choice(np.flatnonzero(vocabulary == name), size=here.sum())
        return drawn

    return like


def _as_common(vocabulary: NDArray[np.str_], counts: Floats, rng: np.random.Generator) -> Like:
    """Random codes among those of the same vocabulary that are about as common.

    rng: the order of codes that are equally common.
    """
    kind = np.unique(vocabulary, return_inverse=True)[1]
    order = np.lexsort((rng.random(counts.size), counts, kind))
    place = np.argsort(order)
    size = np.bincount(kind)
    end = np.cumsum(size)
    below, above = place - (end - size)[kind], end[kind] - 1 - place
    beside = np.clip(size // BESIDE, FEWEST_BESIDE, MOST_BESIDE)[kind]
    beside = np.maximum(np.minimum(beside, np.minimum(below, above)), FEWEST_BESIDE)

    def like(at: Indices, redraws: int, rng: np.random.Generator) -> Indices:
        most = beside[at] << (redraws // PATIENCE)
        first, last = -np.minimum(most, below[at]), np.minimum(most, above[at])
        drawn: Indices = order[place[at] + rng.integers(first, last, endpoint=True)]
        return drawn

    return like


def _counts(given: ArrayLike, p: int) -> Floats:
    try:
        counts = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"counts are no numbers: expected one for each of {p} codes.") from None
    if counts.shape != (p,):
        raise InputError(
            f"counts has shape {counts.shape}: expected one number for each of {p} codes."
        )
    if not np.isfinite(counts).all():
        raise InputError("counts has values that are not finite: give 0 for a code nobody has.")
    return counts


def _placements(positive: Floats, negative: Floats) -> Floats:
    """Share of each draw's negatives below each positive, ties counting half.

    positive : (k,); negative : (draws, l). Returns (draws, k); a row's mean is that draw's AUC.
    """
    placements = np.empty((len(negative), len(positive)))
    for row, scores in zip(placements, np.sort(negative, axis=1), strict=True):
        below = np.searchsorted(scores, positive, side="left")
        not_above = np.searchsorted(scores, positive, side="right")
        row[:] = (below + not_above) / (2 * len(scores))
    return placements


def _found_at(positive: Floats, negative: Floats, rate: float) -> float:
    """Largest share of positives above a threshold that at most `rate` of the negatives reach."""
    ordered = np.sort(negative)[::-1]
    allowed = int(np.floor(rate * ordered.size + 1e-9))  # .05 * 20 must be 1
    if allowed >= ordered.size:
        return 1.0
    return float((positive > ordered[allowed]).mean())


def _interval(
    auc: float,
    positive: Floats,
    negative: Floats,
    known: tuple[Indices, Indices],
    drawn: tuple[Indices, Indices],
    p: int,
) -> tuple[float, float]:
    """95 % interval of an AUC whose pairs, known (k,) and drawn (draws, k), share codes.

    An AUC is nearly a sum with one term for each pair. Terms of pairs with a common code go
    together, so its variance is the sum of their products over all such two pairs, and of the
    squares. This is what resampling codes would tell, but that one counts a pair twice, once for
    each of its codes, and is far too wide where pairs share none. As in regressions with clusters,
    a code in many of the known pairs weighs more, and few codes make the interval wider by
    Student's t. It is symmetric for the logit of the AUC.

    Scores that are all equal have none. Where every pair is told, or none, the variance is 0 and
    tells nothing: see `_least_of_perfect`.
    """
    if len(positive) < FEWEST_PAIRS:
        return 0.0, 1.0
    scores = negative.ravel()
    if min(positive.min(), scores.min()) == max(positive.max(), scores.max()):
        return np.nan, np.nan
    terms = [
        (_placements(positive, scores[None])[0] - auc) / positive.size,
        (1 - auc - _placements(scores, positive[None])[0]) / scores.size,
    ]
    ends = [known, (drawn[0].ravel(), drawn[1].ravel())]
    of_code = sum(
        np.bincount(end, term, p) for term, pair in zip(terms, ends, strict=True) for end in pair
    )
    share = sum(np.bincount(end, minlength=p) for end in known) / positive.size
    squares = (of_code / (1 - np.minimum(share, MOST_SHARE))) ** 2
    own = sum(float(term @ term) for term in terms)
    variance = max(squares.sum() - own, LEAST_OF_OWN * own)
    if variance < TINY or not 0 < auc < 1:
        least = _least_of_perfect(ends)
        return (min(least, auc), 1.0) if auc > 0.5 else (0.0, max(1 - least, auc))
    codes = squares.sum() ** 2 / (squares**2).sum()  # as many as would tell as much, all alike
    half = student.ppf(1 - BEYOND, codes) * np.sqrt(variance) / (auc * (1 - auc))
    odds = np.log(auc / (1 - auc)) + np.array([-half, half])
    lo, hi = 1 / (1 + np.exp(-odds))
    return float(lo), float(hi)


def _least_of_perfect(ends: Sequence[tuple[Indices, Indices]]) -> float:
    """Lower bound of an AUC of 1, as of a share of n among n (Clopper and Pearson).

    ends : codes of the known and of the random pairs. n is the number of pairs without common codes
    that would tell as much, if pairs with a common code are all alike; the smaller of the two.
    """
    alone = (i.size**2 / ((np.bincount(np.r_[i, j]) ** 2).sum() - i.size) for i, j in ends)
    return float(BEYOND ** (1 / min(alone)))
