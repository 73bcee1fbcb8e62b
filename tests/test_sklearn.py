"""Daniel as a scikit-learn estimator: its own checks, and what users do with one."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

from daniel import Daniel
from daniel.errors import InputError

NON_BINARY = "feeds non-binary data"
EXPECTED_FAILURES = dict.fromkeys(
    [
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_dtype_object",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimator_sparse_tag",
        "check_estimators_dtypes",
        "check_estimators_fit_returns_self",
        "check_estimators_nan_inf",
        "check_estimators_overwrite_params",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_fit2d_predict1d",
        "check_fit_check_is_fitted",
        "check_fit_idempotent",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_n_features_in",
        "check_n_features_in_after_fitting",
        "check_pipeline_consistency",
        "check_positive_only_tag_during_fit",
        "check_readonly_memmap_input",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_n_iter",
    ],
    NON_BINARY,
)


def binary(X):
    """The checks' numbers as 0/1: whether the quarter a value lies in is an odd one.

    A fixed function of the value, so that neither order nor choice of rows matters, which gives
    both values for uniform as for normal data.  What is not a table of finite numbers stays as it
    is.
    """
    if sp.issparse(X):
        if X.dtype.kind != "f":
            return X
        odd = X.tocsr(copy=True)
        odd.data = np.floor(4 * odd.data) % 2
        return odd.asformat(X.format)
    table = np.asarray(X)
    try:
        numbers = table.astype(float, casting="unsafe" if table.dtype == object else "same_kind")
    except (TypeError, ValueError):  # text, objects, complex numbers
        return X
    if not np.isfinite(numbers).all():
        return X
    odd = np.floor(4 * numbers) % 2
    return pd.DataFrame(odd, X.index, X.columns) if isinstance(X, pd.DataFrame) else odd


class Binarised(Daniel):
    """Daniel behind a step that makes the checks' data binary."""

    def fit(self, X, y=None, *, sites=None, hub=None):
        return super().fit(binary(X), y, sites=sites, hub=hub)

    def transform(self, X):
        return super().transform(binary(X))

    def conditional_proba(self, X, features=None):
        return super().conditional_proba(binary(X), features)

    def score(self, X, y=None):
        return super().score(binary(X), y)


def results(estimator, expected=None):
    return check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)


def causes(error):
    """The error and all that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.fixture(scope="module")
def on_daniel():
    return results(Daniel(), EXPECTED_FAILURES)


def test_undeclared_checks_pass(on_daniel):
    failed = {r["check_name"]: r["exception"] for r in on_daniel if r["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in on_daniel if r["status"] == "skipped"} <= {
        "check_array_api_input"  # needs SCIPY_ARRAY_API in the environment
    }
    assert sum(r["status"] == "passed" for r in on_daniel) >= 15


def test_declared_checks_fail(on_daniel):
    """A declared check that passes must leave the list."""
    declared = [r for r in on_daniel if r["expected_to_fail"]]
    assert {r["check_name"] for r in declared} == set(EXPECTED_FAILURES)
    assert [r["check_name"] for r in declared if r["status"] != "xfail"] == []


def test_declared_checks_fail_for_the_declared_reason(on_daniel):
    for result in on_daniel:
        if result["status"] == "xfail":
            assert result["expected_to_fail_reason"] == NON_BINARY
            found = [e for e in causes(result["exception"]) if isinstance(e, InputError)]
            assert found, result["check_name"]
            assert str(found[-1]).startswith("Values other than two"), result["check_name"]


@pytest.mark.parametrize(
    "estimator",
    [
        Binarised(),
        Binarised(n_components=1, intercept="tied"),
        Binarised(n_components=1, recipe="paper"),
    ],
    ids=["natural", "tied", "paper"],
)
def test_every_check_passes_on_binary_data(estimator):
    found = results(estimator)
    assert {r["check_name"] for r in found} >= set(EXPECTED_FAILURES)
    assert {r["check_name"]: r["exception"] for r in found if r["status"] == "failed"} == {}


@pytest.mark.parametrize(
    "check",
    [
        "check_transformer_get_feature_names_out",
        "check_transformer_get_feature_names_out_pandas",
        "check_set_output_transform",
        "check_set_output_transform_pandas",
        "check_global_output_transform_pandas",
        "check_set_output_transform_polars",
        "check_global_set_output_transform_polars",
    ],
)
def test_output_checks_pass_on_binary_data(check):
    """Checks that scikit-learn runs on its own transformers, outside `check_estimator`."""
    getattr(estimator_checks, check)("Binarised", Binarised())


# --- what users do --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    """Two kinds of records, with the codes of one block each."""
    rng = np.random.default_rng(0)
    kind = rng.random(400) < 0.5
    chance = np.where(np.arange(8) < 4, kind[:, None], ~kind[:, None]) * 0.5 + 0.1
    records = (rng.random((400, 8)) < chance).astype(int)
    return pd.DataFrame(records, columns=[f"code{j}" for j in range(8)]), kind.astype(int)


PARAMETERS = {
    "n_components": 3,
    "recipe": "paper",
    "penalty": 0.2,
    "intercept": "tied",
    "surrogate": "model",
    "damping": 1.5,
    "step_size": 0.05,
    "max_iter": 7,
    "tol": 1e-3,
    "random_state": 11,
}


def test_parameters_go_in_and_out():
    model = Daniel()
    assert set(model.get_params()) == set(PARAMETERS)
    assert all(model.get_params()[name] != value for name, value in PARAMETERS.items())
    assert model.set_params(**PARAMETERS) is model
    assert model.get_params() == PARAMETERS == Daniel(**PARAMETERS).get_params()
    with pytest.raises(ValueError, match="rank"):
        model.set_params(rank=3)


def test_clone_keeps_parameters_and_drops_the_fit(table):
    X, _ = table
    model = Daniel(n_components=2, penalty=0.1, random_state=3).fit(X)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "embedding_")
    np.testing.assert_array_equal(twin.fit(X).embedding_, model.embedding_)


@pytest.mark.parametrize("recipe", ["natural", "paper"])
def test_pickle_of_a_fitted_model(table, recipe):
    X, _ = table
    sites = np.where(np.arange(len(X)) % 3, "a", "b")
    model = Daniel(2, recipe=recipe, random_state=0).fit(X, sites=sites)
    for asked in (False, True):  # before and after theta_ has been asked for
        twin = pickle.loads(pickle.dumps(model))
        assert twin.get_params() == model.get_params()
        np.testing.assert_array_equal(twin.transform(X), model.transform(X))
        np.testing.assert_array_equal(twin.conditional_proba(X), model.conditional_proba(X))
        assert twin.score(X) == model.score(X)
        assert twin.hub_ == model.hub_ == "a"
        if not asked:
            assert "theta_" not in vars(twin)
            np.testing.assert_array_equal(twin.theta_, model.theta_)


def test_pipeline_predicts_the_kind(table):
    """The patient embedding of a pipeline holds what the blocks say."""
    X, kind = table
    pipeline = make_pipeline(Daniel(2, random_state=0), LogisticRegression())
    assert cross_val_score(pipeline, X, kind, cv=4).mean() > 0.85
    names = pipeline.fit(X, kind)[:-1].get_feature_names_out()
    assert names.tolist() == ["daniel0", "daniel1"]


def test_grid_search_uses_the_score(table):
    X, _ = table
    search = GridSearchCV(Daniel(2, random_state=0), {"penalty": [0.05, 50.0]}, cv=3).fit(X)
    assert search.best_params_ == {"penalty": 0.05}  # 50 removes every coupling
    np.testing.assert_allclose(
        search.best_score_, search.cv_results_["mean_test_score"].max(), rtol=1e-12
    )


def test_feature_names(table):
    X, _ = table
    model = Daniel(3, random_state=0).fit(X)
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.get_feature_names_out().tolist() == ["daniel0", "daniel1", "daniel2"]
    frame = model.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == ["daniel0", "daniel1", "daniel2"]
    np.testing.assert_array_equal(frame.index, X.index)
    plain = Daniel(3, random_state=0).fit(X.to_numpy())
    assert not hasattr(plain, "feature_names_in_")
    np.testing.assert_array_equal(frame.to_numpy(), plain.transform(X.to_numpy()))


def test_auto_width_is_that_of_the_names(table):
    X, _ = table
    model = Daniel(random_state=0).fit(X)
    assert len(model.get_feature_names_out()) == model.transform(X).shape[1]
