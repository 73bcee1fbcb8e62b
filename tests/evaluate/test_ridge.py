"""Logistic regression with a ridge: against scikit-learn alone, and against none in few records."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from daniel.evaluate.ridge import FOLDS, STRENGTHS, RidgeLogistic


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def draw(n, d, rng, strength=1.0, axes=3):
    """Vectors whose later axes are weaker, and labels that follow the first few."""
    X = rng.standard_normal((n, d)) / np.sqrt(1 + np.arange(d))
    return X, X[:, :axes].sum(axis=1) * strength + rng.logistic(size=n) > 0


@pytest.mark.parametrize("score_first", [False, True])
@pytest.mark.parametrize(("n", "d"), [(80, 40), (3000, 5)])
def test_the_ridge_is_the_one_that_a_grid_search_finds(n, d, score_first, rng):
    X, y = draw(n, d, rng)
    scaled = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean())
    if score_first:
        score = rng.standard_normal(n) + y
        X = np.c_[score, X]
        scaled = np.c_[np.sqrt(d) * (score - score.mean()) / score.std(), scaled]
    found = RidgeLogistic(score_first).fit(X, y)
    search = GridSearchCV(
        LogisticRegression(max_iter=1000, tol=1e-8),
        {"C": STRENGTHS},
        scoring=lambda model, U, v: -log_loss(v, model.predict_proba(U)) * len(v),
        cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0),
    ).fit(scaled, y)
    assert found.strength_ == search.best_params_["C"]
    np.testing.assert_allclose(found.predict_proba(X), search.predict_proba(scaled), atol=1e-4)
    assert (found.predict(X) == search.predict(scaled)).all()


def test_few_records_with_many_axes_are_told_better_than_without(rng):
    X, y = draw(160, 60, rng, strength=2.0)
    new, truth = draw(4000, 60, rng, strength=2.0)
    with_ridge, plain = (
        roc_auc_score(truth, model.fit(X, y).predict_proba(new)[:, 1])
        for model in (RidgeLogistic(), LogisticRegression(C=np.inf, max_iter=5000))
    )
    assert with_ridge > plain + 0.05


def test_what_a_model_says_by_itself_is_not_lost_in_few_records(rng):
    """Thirty of either kind cannot weigh sixty axes, but need not spoil a score that has."""
    weight = rng.standard_normal(60) / np.sqrt(20)
    X, new = rng.standard_normal((60, 60)), rng.standard_normal((4000, 60))
    told = [np.c_[A @ weight, A] for A in (X, new)]
    y, truth = (A[:, 0] + rng.logistic(size=len(A)) > 0 for A in told)
    alone = roc_auc_score(truth, told[1][:, 0])
    plain, first = (
        roc_auc_score(truth, RidgeLogistic(own).fit(A, y).predict_proba(B)[:, 1])
        for own, A, B in [(False, X, new), (True, *told)]
    )
    assert plain < alone - 0.05
    assert alone - first < (alone - plain) / 2


def test_more_records_mend_a_model_s_score(rng):
    """The score knows one axis of three; what it lacks is learned."""
    X, y = draw(2000, 10, rng, strength=2.0)
    told = np.c_[X[:, 0], X]
    found = RidgeLogistic(score_first=True).fit(told[:1000], y[:1000])
    auc = roc_auc_score(y[1000:], found.predict_proba(told[1000:])[:, 1])
    assert auc > roc_auc_score(y[1000:], X[1000:, 0]) + 0.05


@pytest.mark.parametrize("score_first", [False, True])
def test_the_scale_of_the_vectors_does_not_matter(score_first, rng):
    X, y = draw(300, 10, rng)
    one, two = (RidgeLogistic(score_first).fit(s * X, y).predict_proba(s * X) for s in (1.0, 1e-4))
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_two_of_a_kind_and_vectors_that_are_all_alike_are_survived():
    y = np.array([True, True, False, False, False, False])
    few = RidgeLogistic().fit(np.arange(6.0)[:, None], y)
    assert few.strength_ == STRENGTHS[0]
    lone = RidgeLogistic(score_first=True).fit(np.arange(6.0)[:, None], y)
    assert lone.centre_ == pytest.approx(2.5)
    assert lone.scale_ == pytest.approx(np.arange(6.0).std())
    for score_first in (False, True):
        alike = RidgeLogistic(score_first).fit(np.ones((6, 2)), y).predict_proba(np.ones((2, 2)))
        np.testing.assert_allclose(alike[:, 1], 1 / 3, atol=1e-3)
    clipped = np.full((6, 2), 0.1 + 0.2)
    model = RidgeLogistic(score_first=True).fit(clipped, y)
    assert np.ptp(model.predict_proba(clipped + [[0.01, 0]] * 6)[:, 1]) == 0
    assert model.predict_proba([[0.31, 0.3]])[0, 1] == pytest.approx(1 / 3, abs=1e-2)


def test_a_ridge_is_chosen_on_other_patients(rng):
    """Labels are the patients', and say nothing of their vectors: knowing a patient is no skill."""
    patients = np.repeat(np.arange(120), 6)
    X = rng.standard_normal((120, 30))[patients] + 0.05 * rng.standard_normal((720, 30))
    y = (rng.random(120) < 0.5)[patients]
    assert RidgeLogistic().fit(X, y).strength_ > STRENGTHS[0]
    assert RidgeLogistic().fit(X, y, patients).strength_ == STRENGTHS[0]


def test_patients_with_one_record_each_change_nothing(rng):
    X, y = draw(300, 10, rng)
    one, two = RidgeLogistic().fit(X, y), RidgeLogistic().fit(X, y, rng.permutation(300))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_few_patients_with_many_records_are_survived(rng):
    X, y = draw(60, 5, rng)
    y = np.r_[np.zeros(40, bool), np.ones(20, bool)]
    for patients in (np.r_[np.arange(40), np.full(20, 40)], y.astype(int)):
        found = RidgeLogistic().fit(X, y, patients)
        assert found.strength_ == STRENGTHS[0]
        assert np.isfinite(found.predict_proba(X)).all()
