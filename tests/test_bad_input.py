"""Bad input: one sentence that names the column or parameter, and never a value of the data."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from daniel import CodeMatrix, Daniel, InputError, ParameterError
from daniel.baselines import SVSoft, SVTopd
from daniel.errors import DanielError

P = 6
NAMES = ["age", "flu", "asthma", "cough", "fever", "rash"]
SECRETS = (7.25, 40417)  # a patient's value and id: no message may hold them


def records(n=40, p=P, seed=0):
    return (np.random.default_rng(seed).random((n, p)) < 0.4).astype(float)


def frame(values=None):
    return pd.DataFrame(records() if values is None else values, columns=NAMES)


def with_value(value, row=3, column=2, dtype=float):
    X = records().astype(dtype)
    X[row, column] = value
    return X


@pytest.fixture(scope="module")
def unnamed():
    return Daniel(random_state=0).fit(records())


@pytest.fixture(scope="module")
def named():
    return Daniel(random_state=0).fit(frame())


def message_of(call, *args, error=InputError, **options):
    """The sentence that the call is refused with."""
    with pytest.raises(error) as caught:
        call(*args, **options)
    message = str(caught.value)
    assert isinstance(caught.value, DanielError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in message and message.endswith(".")
    assert not re.search(r"nan\b|7\.25|725|40417", message), message
    context = caught.value.__context__  # a log shows it too, unless it is suppressed
    assert context is None or caught.value.__suppress_context__
    return message


def readers(model):
    """Every method that reads records, and fit."""
    return [Daniel().fit, model.transform, model.conditional_proba, model.score]


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [*SECRETS, 2, -2, 0.5, 1e-9, -1])
def test_third_value(unnamed, named, value):
    X = with_value(value)
    for call in readers(unnamed):
        message = message_of(call, X)
        assert message.startswith("Values other than two (0 and 1) found in column 2;")
    for call in readers(named):
        for table in (frame(X), pl.DataFrame(X, schema=NAMES)):
            message = message_of(call, table)
            assert message.startswith("Values other than two (0 and 1) found in column 'asthma';")


@pytest.mark.parametrize("value", [*SECRETS, 2, 0.5, 1e-9])
@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array, sp.lil_array])
def test_third_value_among_stored_ones(unnamed, named, value, form):
    """Counts are refused in every form, with the way out."""
    X = with_value(value)
    for call in readers(unnamed):
        message = message_of(call, form(X))
        assert message == message_of(call, X)
        assert message.startswith("Values other than two (0 and 1) found in column 2;")
        assert message.endswith("X > 0 of counts.")
    message = message_of(named.transform, CodeMatrix(sp.csr_array(X), tuple(NAMES)))
    assert message.startswith("Values other than two (0 and 1) found in column 'asthma';")
    Daniel(max_iter=1, random_state=0).fit(form(X) > 0)


@pytest.mark.parametrize("value", [*SECRETS, 0, 0.5])
def test_third_value_among_signs(unnamed, value):
    X = 2 * records() - 1
    X[3, 2] = value
    for call in readers(unnamed):
        message = message_of(call, X)
        assert message.startswith("Values other than two (-1 and 1) found in column 2;")


def test_several_wrong_columns():
    X = records()
    X[0, 1] = X[5, 3] = X[7, 3] = 7.25
    assert "column 'flu' and 1 more columns;" in message_of(Daniel().fit, frame(X))
    assert "column 1 and 1 more columns;" in message_of(Daniel().fit, sp.csr_array(X))


def test_integers_are_checked_too():
    assert "column 2" in message_of(Daniel().fit, with_value(40417, dtype=int))
    assert "column 2" in message_of(Daniel().fit, with_value(200, dtype=np.uint8))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_and_infinite(unnamed, named, value):
    X = with_value(value)
    for call in readers(unnamed):
        assert message_of(call, X).startswith("Input contains NaN or infinity found in column 2;")
        stored = sp.csr_array(X)
        assert "NaN or infinity in column 2;" in message_of(call, stored)
    for call in readers(named):
        assert "column 'asthma'" in message_of(call, frame(X))
        assert "column 'asthma'" in message_of(call, CodeMatrix(sp.csr_array(X), tuple(NAMES)))


@pytest.mark.parametrize("missing", [None, pd.NA, np.nan, pd.NaT])
def test_missing_objects(missing):
    message = message_of(Daniel().fit, with_value(missing, dtype=object))
    assert "NaN or infinity found in column 2;" in message


def test_missing_in_nullable_columns():
    for kind in ("boolean", "Int64", "Float64"):
        table = frame().astype(kind)
        table.loc[3, "asthma"] = pd.NA
        assert "NaN or infinity found in column 'asthma';" in message_of(Daniel().fit, table)
    for kind in (pl.Boolean, pl.Int8, pl.Float32):
        table = pl.DataFrame(records(), schema=NAMES).cast(kind)
        table[3, "asthma"] = None
        assert "NaN or infinity found in column 'asthma';" in message_of(Daniel().fit, table)


@pytest.mark.parametrize(
    "value", ["yes", "7.25 mg", "patient 40417", b"no", "", {"id": 40417}, [1]]
)
def test_text_and_objects(unnamed, named, value):
    X = records().astype(object)
    X[3, 2] = value
    for call in readers(unnamed):
        assert message_of(call, X).startswith("Column 2 holds text or other objects;")
    for call in readers(named):
        assert message_of(call, frame(X)).startswith("Column 'asthma' holds text or other objects;")
    with pytest.raises(TypeError):  # what Python users expect of text
        Daniel().fit(X)


def test_text_arrays():
    X = np.where(records() > 0, "present", "absent")
    assert message_of(Daniel().fit, X).startswith("Column 0 holds text")
    table = pl.DataFrame(X, schema=NAMES)
    assert message_of(Daniel().fit, table).startswith("Column 'age' holds text")


def test_dates_are_no_records():
    table = frame().astype({"flu": object})
    table["flu"] = pd.Timestamp("1970-01-01")
    assert "'flu' holds text or other objects" in message_of(Daniel().fit, table)


def test_complex_numbers():
    assert "Complex" in message_of(Daniel().fit, records() + 0j)
    assert "Sparse records" in message_of(Daniel().fit, sp.csr_array(records() + 0j))


@pytest.mark.parametrize("value", [-1.0, -7.25])
@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array])
def test_negative_sparse_values(unnamed, named, value, form):
    X = with_value(value)
    for call in readers(unnamed):
        message = message_of(call, form(X))
        assert "negative value in column 2:" in message
    message = message_of(named.transform, CodeMatrix(sp.csr_array(X), tuple(NAMES)))
    assert "negative value in column 'asthma':" in message


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("X", [records()[0], records()[None], 1.0, [], None, [7.25]])
def test_not_two_dimensional(unnamed, X):
    for call in readers(unnamed):
        assert "Expected 2D array" in message_of(call, X)


def test_one_dimensional_sparse(unnamed):
    for call in readers(unnamed):
        assert "got 1D array" in message_of(call, sp.coo_array(records()[0]))


def test_ragged_records(unnamed):
    for call in readers(unnamed):
        assert "different numbers of codes" in message_of(call, [[0, 1], [7.25]])


@pytest.mark.parametrize(
    ("shape", "what"), [((0, P), "0 sample"), ((4, 0), "0 feature"), ((0, 0), "0 sample")]
)
def test_empty(unnamed, shape, what):
    for form in (np.zeros, lambda shape: sp.csr_array(shape), lambda s: pd.DataFrame(np.zeros(s))):
        assert what in message_of(Daniel().fit, form(shape))
    if shape[0] == 0:
        assert what in message_of(unnamed.transform, np.zeros(shape))


@pytest.mark.parametrize("p", [1, P - 1, P + 1])
def test_another_number_of_columns(unnamed, named, p):
    for model in (unnamed, named):
        for call in readers(model)[1:]:
            for X in (records(p=p), sp.csr_array(records(p=p))):
                message = message_of(call, X)
                assert f"X has {p} features, but Daniel is expecting {P} features" in message


# --- names ----------------------------------------------------------------------------------------


def test_missing_columns(named):
    for call in readers(named)[1:]:
        message = message_of(call, frame().drop(columns=["rash", "flu"]))
        assert "columns missing: 'flu', 'rash'" in message
        assert "does not know" not in message


def test_unknown_columns(named):
    for call in readers(named)[1:]:
        message = message_of(call, frame().assign(gout=1.0))
        assert "columns the model does not know: 'gout'" in message
        assert "missing" not in message


def test_renamed_column(named):
    message = message_of(named.transform, frame().rename(columns={"flu": "influenza"}))
    assert "columns missing: 'flu'" in message
    assert "does not know: 'influenza'" in message


def test_many_missing_columns_are_counted():
    codes = [f"c{j}" for j in range(20)]
    model = Daniel(random_state=0).fit(pd.DataFrame(records(p=20), columns=codes))
    message = message_of(model.transform, pd.DataFrame(records(p=3), columns=codes[:3]))
    assert "'c3', 'c4', 'c5', 'c6', 'c7' and 12 more" in message


def test_reordered_columns_are_aligned(named):
    X = frame()
    np.testing.assert_array_equal(named.transform(X[NAMES[::-1]]), named.transform(X))


def test_repeated_names():
    X = pd.DataFrame(records(), columns=["age", "flu", "age", "cough", "flu", "rash"])
    assert "more than once: 'age', 'flu'" in message_of(Daniel().fit, X)
    message = message_of(CodeMatrix, sp.csr_array(records()), tuple(X.columns))
    assert "more than once: 'age', 'flu'" in message


@pytest.mark.parametrize(
    "labels", [[290, 401, 250, 8, 9, 10], [5, 4, 3, 2, 1, 0], ["a", 1, 2, 3, 4, 5]]
)
def test_names_that_are_no_text(named, labels):
    """A number could be a name or a position: guessing would exchange codes in silence."""
    for call in readers(named):
        message = message_of(call, pd.DataFrame(records(), columns=labels))
        assert "Column names must be text" in message


@pytest.mark.parametrize("features", [["flue"], ["flu", "gout"], [P], [-1], [1.5], "flue", [None]])
def test_unknown_features(named, features):
    message = message_of(named.conditional_proba, frame(), features)
    assert "The model has no code" in message
    assert "knows 6 codes" in message


def test_code_matrix_that_does_not_fit_together():
    Z = sp.csr_array(records())
    assert "6 columns and 2 code names" in message_of(CodeMatrix, Z, ("a", "b"))
    message = message_of(CodeMatrix, Z, tuple(NAMES), patients=np.full(3, 40417))
    assert "40 records and 3 patients" in message
    message = message_of(CodeMatrix, Z, tuple(NAMES), windows=np.zeros(41))
    assert "40 records and 41 windows" in message


# --- parameters -----------------------------------------------------------------------------------

WRONG = {
    "n_components": [0, -3, P + 1, 2.0, 2.5, "all", None, True],
    "recipe": ["fast", "Natural", None, 1],
    "intercept": ["none", None, True],
    "surrogate": ["site", None],
    "penalty": [-0.1, "big", None, np.inf, np.nan],
    "damping": [-1, "strong", None, np.nan],
    "step_size": [0, -0.1, "auto", None, np.inf, np.nan],
    "max_iter": [0, -1, 10.0, "many", None],
    "tol": [-1e-5, "small", None, np.nan],
}


@pytest.mark.parametrize("recipe", ["natural", "paper"])
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_wrong_parameter(name, value, recipe):
    model = Daniel(**{"recipe": recipe, name: value})
    with pytest.raises(ParameterError) as caught:
        model.fit(records())
    message = str(caught.value)
    assert message.startswith(f"{name} is {value!r}")
    assert message.endswith(".")
    assert not hasattr(model, "n_features_in_")


NUMBERS = ["n_components", "penalty", "damping", "step_size", "max_iter", "tol"]
WORDS = ["recipe", "intercept", "surrogate"]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False, np.True_, 1j, np.complex64(1)], ids=repr)
def test_truth_values_and_complex_numbers_are_no_numbers(name, value):
    message = message_of(Daniel(**{name: value}).fit, records(), error=ParameterError)
    assert message.startswith(f"{name} is {value!r}; expected ")


@pytest.mark.parametrize("name", NUMBERS + WORDS)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.array([0.5, 7.25]), "ndarray"),
        (np.array("natural"), "ndarray"),
        ([1], "list"),
        (("auto",), "tuple"),
        ({"site": 40417}, "dict"),
        (pd.Series([7.25]), "Series"),
        ("x" * 100, "str"),
        (pd.NA, "NAType"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arrays_and_objects_are_no_parameters(name, value, kind):
    message = message_of(Daniel(**{name: value}).fit, records(), error=ParameterError)
    assert message.startswith(f"{name} is an object of type {kind}; expected ")


@pytest.mark.parametrize("name", ["threshold", "step_size", "max_iter", "tol", "radius"])
@pytest.mark.parametrize(
    "value", [True, 1j, np.ones(2), [1]], ids=["bool", "complex", "array", "list"]
)
def test_odd_parameters_of_baselines(name, value):
    message = message_of(SVSoft(**{name: value}).fit, records(), error=ParameterError)
    assert message.startswith(f"{name} is ")
    message = message_of(SVTopd(value).fit, records(), error=ParameterError)
    assert message.startswith("n_components is ")


@pytest.mark.parametrize("n", [True, 2.0, np.ones(2), [3]], ids=["bool", "float", "array", "list"])
def test_odd_numbers_of_codes_and_records(unnamed, n):
    for call in (lambda: unnamed.similar(0, n=n), lambda: unnamed.sample(n)):
        assert message_of(call, error=ParameterError).startswith("n is ")


def test_message_says_what_would_work():
    cases = {
        "n_components": (P + 1, f"X has only {P} codes; use at most {P}."),
        "recipe": ("fast", "expected 'natural' or 'paper'."),
        "intercept": ("free", "expected 'site' or 'shared' or 'tied'."),
        "surrogate": ("site", "expected 'hub' or 'model'."),
        "penalty": (-1, 'expected "auto" or a number >= 0.'),
    }
    for name, (value, ending) in cases.items():
        message = message_of(Daniel(**{name: value}).fit, records(), error=ParameterError)
        assert message.endswith(ending)


def test_parameters_at_the_edge_work():
    for options in (
        {"n_components": 1},
        {"n_components": P},
        {"n_components": np.int64(2)},
        {"penalty": 0},
        {"penalty": np.float32(0.1)},
        {"damping": 0},
        {"max_iter": 1},
        {"tol": 0},
        {"recipe": "paper", "step_size": 1e-9},
    ):
        model = Daniel(random_state=0, **options).fit(records(), sites=np.arange(40) % 2)
        assert np.isfinite(model.theta_).all()


# --- sites ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 39, 41])
def test_wrong_number_of_sites(n):
    message = message_of(Daniel().fit, records(), sites=["a"] * n)
    assert f"sites has {n} labels, and X has 40 records" in message


@pytest.mark.parametrize(
    "sites", ["north", np.zeros((40, 1)), [("a", 1)] * 40], ids=["text", "2D", "tuples"]
)
def test_sites_of_another_shape(sites):
    assert "one label per record" in message_of(Daniel().fit, records(), sites=sites)


@pytest.mark.parametrize(
    "sites",
    [[["a"], ["a", "b"]] * 20, [[40417]] + [[1, 2]] * 39, ["a"] * 39 + [["a"]]],
    ids=["lists", "numbers", "one list"],
)
def test_ragged_sites(sites):
    for model in (Daniel(), SVSoft()):
        message = message_of(model.fit, records(), sites=sites)
        assert message == "sites is ragged, and X has 40 records; give one label per record."


@pytest.mark.parametrize(
    "sites",
    [
        ["a", None] * 20,
        [1.0, np.nan] * 20,
        ["a", np.nan] * 20,
        ["a", pd.NA] * 20,
        pd.Series(["a", None] * 20),
        pd.Series([1, pd.NA] * 20, dtype="Int64"),
        pd.Categorical(["a", None] * 20),
        pl.Series(["a", None] * 20),
        np.array(["2020-01-01", "NaT"] * 20, dtype="datetime64[D]"),
    ],
    ids=lambda sites: f"{type(sites).__module__}-{getattr(sites, 'dtype', type(sites[1]))}",
)
def test_missing_sites(sites):
    assert "sites holds missing labels" in message_of(Daniel().fit, records(), sites=sites)


def test_unknown_hub():
    sites = np.repeat(["north", "south"], 20)
    message = message_of(Daniel().fit, records(), sites=sites, hub="west", error=ParameterError)
    assert message == "hub is 'west', which is not among the 2 sites."


@pytest.mark.parametrize("hub", [["north"], np.array(["north", "south"]), pd.NA, 7.5, True])
def test_odd_hub(hub):
    sites = np.repeat(["north", "south"], 20)
    message = message_of(Daniel().fit, records(), sites=sites, hub=hub, error=ParameterError)
    assert message.startswith("hub is ") and message.endswith("not among the 2 sites.")


@pytest.mark.parametrize(
    ("labels", "hub"), [([1.0, 2.0], 2), ([1, 2], "2"), (["1", "2"], 2), ([True, False], True)]
)
def test_hub_is_found_by_value_or_by_text(labels, hub):
    sites = np.repeat(labels, 20)
    model = Daniel(random_state=0, max_iter=1).fit(records(), sites=sites, hub=hub)
    assert str(model.hub_) in {str(hub), "2.0"}


def test_hub_without_sites():
    message = message_of(Daniel().fit, records(), hub="north", error=ParameterError)
    assert "hub names a site, but no sites were given" in message


# --- before fitting -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.transform(records()),
        lambda model: model.conditional_proba(records()),
        lambda model: model.score(records()),
        lambda model: model.similar(0),
        lambda model: model.sample(3),
        lambda model: model.theta_,
        lambda model: model.get_feature_names_out(),
        lambda model: model.save("model"),
    ],
    ids=["transform", "conditional_proba", "score", "similar", "sample", "theta_", "names", "save"],
)
def test_unfitted(use):
    with pytest.raises(NotFittedError, match="This Daniel instance is not fitted yet"):
        use(Daniel())
