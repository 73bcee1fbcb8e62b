"""Scores of pairs other than the cosine, and the share found at few false alarms."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta
from sklearn.metrics import roc_auc_score, roc_curve

from daniel.errors import InputError, ParameterError
from daniel.evaluate.relations import (
    _least_of_perfect,
    cosine_pairs,
    negatives,
    relation_auc,
    theta_pairs,
)

CODES = [f"A:{k}" for k in range(40)]
RNG = np.random.default_rng(0)
PAIRS = pd.DataFrame({"code1": CODES[:20], "code2": CODES[20:], "relation": ["r"] * 12 + ["s"] * 8})
U = RNG.standard_normal((40, 5))
V = U * np.array([1, 1, -1, 1, -1])


def scored(matrix, relation, draws=6):
    """Scores and truth of all positives and negatives of a relation."""
    i, j = negatives(CODES, PAIRS, draws=draws)[relation]
    own = PAIRS[PAIRS["relation"] == relation].index
    values = np.r_[matrix[own, own + 20], matrix[i, j].ravel()]
    return values, np.r_[np.ones(len(own)), np.zeros(i.size)]


@pytest.mark.parametrize("levels", [3, 1000])
def test_theta_is_scored_as_by_scikit_learn(levels):
    theta = np.round(U @ V.T * levels) / levels  # few levels: many ties
    table = relation_auc(theta, CODES, PAIRS, score="theta", draws=6)
    for relation in ("r", "s"):
        values, truth = scored((theta + theta.T) / 2, relation)
        row = table.loc[relation]
        assert row["auc"] == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
        false, true, _ = roc_curve(truth, values, drop_intermediate=False)
        for name, rate in (("tpr_01", 0.01), ("tpr_05", 0.05), ("tpr_10", 0.1)):
            assert row[name] == pytest.approx(true[false <= rate + 1e-9].max(), abs=1e-12)


def test_factors_matrix_and_function_are_one_score():
    theta = U @ RNG.standard_normal((5, 40))
    model = SimpleNamespace(U_=U, V_=V, theta_=U @ V.T)
    by_matrix = relation_auc(model.theta_, CODES, PAIRS, score="theta")
    pd.testing.assert_frame_equal(relation_auc(theta_pairs(model), CODES, PAIRS), by_matrix)
    other = SimpleNamespace(theta_=theta)  # not symmetric
    pd.testing.assert_frame_equal(
        relation_auc(theta_pairs(other), CODES, PAIRS),
        relation_auc((theta + theta.T) / 2, CODES, PAIRS, score="theta"),
    )
    pd.testing.assert_frame_equal(
        relation_auc(lambda i, j: cosine_pairs(U, i, j), CODES, PAIRS),
        relation_auc(U, CODES, PAIRS),
    )


def test_certain_and_hopeless_scores():
    best = np.zeros((40, 40))
    best[np.arange(20), np.arange(20) + 20] = 1
    table = relation_auc(best + best.T, CODES, PAIRS, score="theta")
    assert (table[["auc", "tpr_01", "tpr_05", "tpr_10"]] == 1).all(axis=None)
    nothing = relation_auc(np.zeros((40, 40)), CODES, PAIRS, score="theta")
    assert (nothing[["tpr_01", "tpr_05", "tpr_10"]] == 0).all(axis=None)


def test_codes_without_a_colon_are_of_one_vocabulary():
    bare = [code.replace(":", "") for code in CODES]
    plain = PAIRS.assign(code1=bare[:20], code2=bare[20:])
    pd.testing.assert_frame_equal(relation_auc(U, bare, plain), relation_auc(U, CODES, PAIRS))


def test_fewer_than_ten_pairs_have_no_interval():
    table = relation_auc(U, CODES, PAIRS)
    assert table.loc["s", ["lo", "hi"]].tolist() == [0.0, 1.0]
    assert 0 < table.loc["r", "lo"] < table.loc["r", "auc"] < table.loc["r", "hi"] < 1


def test_wrong_scores_are_named():
    with pytest.raises(InputError, match=r"expected \(40, 40\)"):
        relation_auc(U, CODES, PAIRS, score="theta")
    with pytest.raises(ParameterError, match="score is 'dot'"):
        relation_auc(U, CODES, PAIRS, score="dot")
    with pytest.raises(InputError, match="not finite"):
        relation_auc(lambda i, j: np.full(np.shape(i), np.nan), CODES, PAIRS)


def certain(k, told):
    """k pairs without common codes, of which all or none score above every other pair."""
    codes = [f"A:{j}" for j in range(2 * k)]
    pairs = pd.DataFrame({"code1": codes[:k], "code2": codes[k:], "relation": "r"})
    theta = told * (np.eye(2 * k, k=k) + np.eye(2 * k, k=-k))
    return relation_auc(theta, codes, pairs, score="theta", draws=10).loc["r"]


@pytest.mark.parametrize("told", [-1.0, 1.0], ids=["none found", "all found"])
def test_no_bound_lies_beyond_the_auc(told):
    """Weights are fractions: of equal placements their mean is off by the last digit."""
    for k in range(10, 120):
        row = certain(k, told)
        assert row["lo"] <= row["auc"] <= row["hi"]


def test_perfect_pairs_have_an_interval_that_more_pairs_make_shorter():
    """Of no width, it said that ten pairs are as sure as a thousand."""
    lo = [certain(k, 1.0)["lo"] for k in (10, 40, 160)]
    assert 0.4 < lo[0] < 0.8 and (np.diff(lo) > 0).all() and 0.9 < lo[-1] < 1
    for k in (10, 40):
        best, worst = certain(k, 1.0), certain(k, -1.0)
        assert (best["auc"], best["hi"], worst["auc"], worst["lo"]) == (1, 1, 0, 0)
        assert 0 < worst["hi"] < 0.6


def test_perfect_pairs_that_share_a_code_are_less_sure():
    """Thirty pairs of one code: all are told by what is special about that code."""
    codes = [f"A:{j}" for j in range(61)]
    spread = pd.DataFrame({"code1": codes[:30], "code2": codes[30:60], "relation": "r"})
    one = pd.DataFrame({"code1": codes[60], "code2": codes[:30], "relation": "r"})
    lo = []
    for pairs in (spread, one):
        i, j = (pairs[end].map(codes.index) for end in ("code1", "code2"))
        theta = np.zeros((61, 61))
        theta[i, j] = theta[j, i] = 1
        row = relation_auc(theta, codes, pairs, score="theta").loc["r"]
        assert row["auc"] == 1
        lo.append(row["lo"])
    assert lo[1] < 0.1 < 0.7 < lo[0]


def test_the_least_that_perfect_pairs_may_mean_is_as_sure_as_it_says():
    """A pair is told by chance A: at the bound, all of them are in 1 of 40 tries."""
    i = np.arange(20)
    lo = _least_of_perfect([(i, i + 20), (np.arange(99), np.arange(99) + 99)])
    assert lo == pytest.approx(beta.ppf(0.025, 20, 1), rel=1e-12)


def test_scores_that_are_all_equal_have_no_interval():
    """It had no width, as of an AUC that is sure."""
    row = certain(20, 0.0)
    assert row["auc"] == 0.5 and np.isnan([row["lo"], row["hi"]]).all()
    assert certain(9, 0.0)[["lo", "hi"]].tolist() == [0, 1]


def test_pairs_with_unknown_codes_are_counted_and_ten_codes_named():
    more = [(f"X:{k:02d}", "A:0", "lost") for k in range(12)]
    more += [("A:0", "X:00", "lost"), ("A:1", "X:03", "r"), ("A:1", "A:1", "own")]
    pairs = pd.concat([PAIRS, pd.DataFrame(more, columns=PAIRS.columns)])
    table = relation_auc(U, CODES, pairs)
    pd.testing.assert_frame_equal(table, relation_auc(U, CODES, PAIRS))
    assert table.attrs == {
        "left_out": [],
        "unknown_pairs": 13,  # once, whichever way round
        "unknown_codes": [f"X:{k:02d}" for k in range(10)],
        "unknown_relations": ["lost"],
    }
    nothing = relation_auc(U, CODES, PAIRS).attrs
    assert (nothing["unknown_pairs"], nothing["unknown_codes"]) == (0, [])
