"""Rank selection: the mechanics with a made-up estimator, and Daniel on records of known rank."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from daniel import Daniel
from daniel.core.sample import gibbs
from daniel.errors import ParameterError
from daniel.evaluate.relations import relation_auc
from daniel.evaluate.selection import select_rank
from daniel.matrix import CodeMatrix

GROUPS, SIZE = 4, 5
P = GROUPS * SIZE
CODES = tuple(f"A:{k}" for k in range(P))


def planted(n=3000):
    U = 0.45 * np.repeat(np.eye(GROUPS), SIZE, axis=0)
    Z = gibbs(U, np.full(P, -0.4), n, np.random.default_rng(0))
    return CodeMatrix(sp.csr_array(Z.astype(np.float32)), CODES, np.arange(n) // 3)


def pairs():
    rows = [(CODES[i], CODES[j], "group") for i in range(P) for j in range(i) if i // 5 == j // 5]
    return pd.DataFrame(rows, columns=["code1", "code2", "relation"])


class Scripted(BaseEstimator):
    """Likelihood by a rule; remembers whom it saw."""

    seen: list = []  # noqa: RUF012

    def __init__(self, n_components=1, best=3):
        self.n_components = n_components
        self.best = best

    def fit(self, X, *, sites=None):
        self.theta_ = np.random.default_rng(self.n_components).standard_normal((P, P))
        self.seen.append((X.Z.toarray(), sites))
        return self

    def score(self, X):
        self.seen.append((X.Z.toarray(), None))
        return -abs(min(self.n_components, 5) - self.best)


def test_daniel_finds_the_planted_rank_both_ways():
    found = select_rank(planted(), [1, 2, 6], pairs=pairs(), draws=5)
    table = found.table.set_index("n_components")
    assert list(table.columns) == ["rank", "auc", "auc group", "log_likelihood"]
    assert (table["auc"].diff()[1:] > 0).all()  # 6 columns: 4 positive components
    assert (table["log_likelihood"].diff()[1:] > 0).all()
    assert found.by_auc == found.by_likelihood == found.choice == 6


def test_figures_are_those_of_a_fit_by_hand():
    matrix = planted(900)
    found = select_rank(matrix, [3], pairs=pairs(), held_out=0, random_state=4, draws=3)
    model = Daniel(3, random_state=4).fit(CodeMatrix(matrix.Z, CODES))
    theta = model.U_.astype(float) @ model.V_.T.astype(float)
    expected = relation_auc(theta, CODES, pairs(), score="theta", draws=3, random_state=4)
    assert found.table["auc"].item() == pytest.approx(expected["auc"].item(), abs=1e-12)
    assert found.by_likelihood is None
    assert found.choice == 3


def test_patients_held_out_are_seen_by_no_fit():
    n = 60
    Z = sp.csr_array(np.eye(n, P + n, P)[:, : P + n].astype(np.float32))  # a code for each record
    matrix = CodeMatrix(Z, tuple(f"A:{k}" for k in range(P + n)), np.arange(n) // 4)
    Scripted.seen.clear()
    found = select_rank(matrix, [2, 9, 3, 7], held_out=0.2, model=Scripted(), sites=["x"] * n)
    assert found.by_likelihood == 3
    assert found.by_auc is None
    assert list(found.table["n_components"]) == [2, 3, 7, 9]
    trained, tested = (
        {int(k) // 4 for k in np.flatnonzero(part.any(axis=0)) - P}
        for part in (Scripted.seen[0][0], Scripted.seen[1][0])
    )
    assert trained | tested == set(range(15))
    assert not trained & tested
    assert len(tested) == 3
    assert len(Scripted.seen[0][1]) == len(Scripted.seen[0][0])


def test_too_few_patients_to_hold_out_are_compared_by_known_pairs():
    matrix = planted(6)
    found = select_rank(matrix, [2, 3], pairs=pairs(), model=Scripted(), draws=2)
    assert found.by_likelihood is None
    assert found.choice == found.by_auc


def test_equal_ranks_go_to_the_smallest():
    assert select_rank(planted(30), [9, 5, 7], model=Scripted(best=5)).choice == 5


def test_wrong_requests_are_named():
    matrix = planted(30)
    with pytest.raises(ParameterError, match="ranks holds 0"):
        select_rank(matrix, [0, 2])
    with pytest.raises(ParameterError, match="ranks holds nothing"):
        select_rank(matrix, [])
    with pytest.raises(ParameterError, match="held_out is 1"):
        select_rank(matrix, [2], held_out=1)
    with pytest.raises(ParameterError, match="Nothing can be compared"):
        select_rank(matrix, [2], held_out=0)
    two = CodeMatrix(matrix.Z[:6], CODES, matrix.patients[:6])
    with pytest.raises(ParameterError, match=r"held_out is 0\.2 .* patients 2, so nobody is held"):
        select_rank(two, [2])
    with pytest.raises(ParameterError, match=r"patients 2, so all of them are held out"):
        select_rank(two, [2], held_out=0.9, pairs=pairs())
    with pytest.raises(ParameterError, match="score is 'dot'"):
        select_rank(matrix, [2], score="dot")
