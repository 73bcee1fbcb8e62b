"""daniel.diagnose: its numbers against plain numpy, whom it trusts, what it keeps to itself."""

import re
from dataclasses import FrozenInstanceError
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import daniel
from benchmarks import diagnose as page
from daniel import Daniel, InputError, ParameterError, diagnose, diagnosis
from daniel.baselines import SVSoft
from daniel.core.paper import make_start
from daniel.core.records import records_from
from daniel.core.sample import gibbs

P = 20
N = 4000
NAMES = [f"code{j}" for j in range(P)]
PAPER = {"recipe": "paper", "n_components": 2, "step_size": 0.2, "max_iter": 2000, "tol": 1e-4}
RECIPES = {"natural": {"random_state": 0}, "paper": PAPER}
each_recipe = pytest.mark.parametrize("recipe", RECIPES)


def draw(n=N, p=P, seed=0):
    """0/1 records of a positive semidefinite Theta of rank 2 with intercepts near zero."""
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(p, 2)) / np.sqrt(p)
    return gibbs(U, np.zeros(p), n, rng)


Z = draw()
SITES = np.array(["hub", "second", "third"])[np.arange(N) % 4 % 3]


def fit(recipe, sites=SITES, hub="hub", **options):
    return Daniel(**RECIPES[recipe] | options).fit(Z, sites=sites, hub=hub)


@pytest.fixture(scope="module")
def fitted():
    return {recipe: fit(recipe) for recipe in RECIPES}


@pytest.fixture(scope="module")
def tiny():
    """m = n^0.6 sites: a hub of 28 records."""
    sites = np.arange(N) % int(N**0.6)
    return {r: fit(r, sites, 0, step_size=0.02, max_iter=300) for r in RECIPES}, sites


def cells(found, start):
    """Found, wanted and holds of the row whose condition begins so."""
    rows = found.table[found.table["condition"].str.startswith(start)]
    assert len(rows) == 1
    return rows.iloc[0][["found", "wanted", "holds"]].tolist()


def number(text):
    return float(re.search(r"-?[\d.,]+(e[+-]?\d+)?", text)[0].replace(",", ""))


# --- numbers --------------------------------------------------------------------------------------


def dense_extremes(theta, X):
    """Extreme eigenvalues of the Hessian of eq. (objective) over symmetric matrices of norm 1."""
    n, p = X.shape
    M = np.diag(theta) + X @ (theta - np.diag(np.diag(theta)))
    A = 1 / (2 * np.cosh(M)) ** 2  # sigmoid(2M) sigmoid(-2M)
    directions = []
    for j, k in [*combinations(range(p), 2), *((j, j) for j in range(p))]:
        change = np.zeros((n, p))  # of the logits 2 M
        if j == k:
            change[:, j] = 2
        else:
            change[:, j], change[:, k] = np.sqrt(2) * X[:, k], np.sqrt(2) * X[:, j]
        directions.append((np.sqrt(A / n) * change).ravel())
    D = np.array(directions)
    return np.linalg.eigvalsh(D @ D.T)[[0, -1]]


def test_curvatures_and_step_bound_of_a_paper_fit(fitted):
    model, hub = fitted["paper"], Z[SITES == "hub"]
    found = diagnose(model, hub)
    low, high = dense_extremes(model.theta_, 2 * hub - 1.0)
    np.testing.assert_allclose(found.values["kappa_min"], low, rtol=1e-2)
    np.testing.assert_allclose(found.values["kappa_max"], high, rtol=1e-2)
    start = make_start(records_from(hub), 2, step_size=PAPER["step_size"])
    norm = np.linalg.svd(np.vstack([start.U, start.V]), compute_uv=False)[0]
    bound = min(1 / (low + high), 1) / (12 * norm**2)
    np.testing.assert_allclose(found.values["step_bound"], bound, rtol=1e-2)
    step, wanted, holds = cells(found, "Step size")
    assert step == "0.2"
    assert number(wanted) == pytest.approx(bound, rel=1e-2)
    assert holds == ("yes" if bound >= 0.2 else "no")
    gone = np.linalg.norm(start.U @ start.V.T - model.theta_) / np.linalg.norm(model.theta_)
    np.testing.assert_allclose(found.values["start_ratio"], gone, rtol=1e-6)
    assert number(cells(found, "Start near")[0]) == pytest.approx(gone, rel=0.05)


def test_natural_start_is_compared_in_its_own_coordinates(fitted, monkeypatch):
    from daniel.core import natural

    kept = {}
    finish = natural.finish
    monkeypatch.setattr(
        natural, "finish", lambda *args, **more: kept.setdefault("fit", finish(*args, **more))
    )
    model = fit("natural")
    found = diagnose(model, Z, sites=SITES)
    own = kept["fit"]
    phi, start = own.U @ np.diag(own.signs) @ own.U.T, own.start.U @ own.start.V.T
    outside = ~np.eye(P, dtype=bool)
    gone = np.linalg.norm((phi - start)[outside]) / np.linalg.norm(phi[outside])
    np.testing.assert_allclose(found.values["start_ratio"], gone, rtol=1e-2)
    assert cells(found, "Step size") == ["line search", "no bound needed", "yes"]


@each_recipe
def test_sizes_and_couplings_are_those_of_the_fit(fitted, recipe):
    model = fitted[recipe]
    found = diagnose(model, Z, sites=SITES)
    assert cells(found, "Few sites") == ["3", f"at most {np.sqrt(N):.3g}", "yes"]
    records, wanted, holds = cells(found, "Many records")
    assert (records, holds) == (f"{N:,}", "no")
    d = model.rank_
    assert number(wanted) == pytest.approx(d**2 * P**4 * np.log(P), rel=0.05)
    assert number(cells(found, "Records of the hub")[0]) == (SITES == "hub").sum() / P
    pairs = model.theta_[np.triu_indices(P, 1)]
    low, high = (float(t) for t in cells(found, "Proposition 1 (1)")[0].split(" to "))
    assert (low, high) == pytest.approx((pairs.min(), pairs.max()), rel=1e-2)
    assert cells(found, "Proposition 1 (1)")[2] == "no"
    sizes = np.abs(model.theta_ - np.diag(np.diag(model.theta_)))
    degree = max(sum(s > 1e-3 * sizes.max() for s in row) for row in sizes)
    assert cells(found, "Proposition 1 (2)")[0] == f"{degree} of {P - 1}"
    strength = degree * np.tanh(pairs.max())
    assert number(cells(found, "Proposition 1 (3)")[0]) == pytest.approx(strength, rel=1e-2)
    row = max(sizes.sum(axis=1))
    C, most, holds = cells(found, "Proposition 1: C")
    assert number(C) == pytest.approx(P * row, rel=1e-2)
    assert number(most) == pytest.approx(1 / (2 * np.sqrt(degree) * (1 + np.exp(2 * row))), rel=0.1)
    assert holds == "no"
    assert 2 < found.values["gradient_moment"] < 16
    assert cells(found, "Gradients")[2] == "yes"


def test_couplings_that_satisfy_proposition_1(fitted):
    """Two codes with a coupling so small that every condition holds."""
    model = clone(fitted["natural"]).fit(Z)
    theta = np.diag(np.diag(model.theta_))
    theta[0, 1] = theta[1, 0] = 1e-4
    model.theta_ = theta
    found = diagnose(model, Z)
    rows = found.table[found.table["condition"].str.startswith("Proposition 1")]
    assert rows["holds"].tolist() == ["yes"] * 4


def test_rare_codes_are_counted(fitted):
    X = Z[SITES == "hub"].copy()
    X[29:, 3] = 0
    X[:, 4] = 1
    assert cells(diagnose(fitted["natural"], X), "Codes in fewer")[0] == "2 of 20"


# --- trust ----------------------------------------------------------------------------------------


@each_recipe
def test_a_well_behaved_study_is_trusted(fitted, recipe):
    found = diagnose(fitted[recipe], Z[SITES == "hub"])
    assert found.trust
    assert found.warnings == []
    for row in ("Few sites", "Records of the hub", "Least curv", "Start near", "Descent conv"):
        assert cells(found, row)[2] == "yes"
    assert "No reason against this fit." in str(found)


@each_recipe
def test_many_sites_with_a_tiny_hub_are_not(tiny, recipe):
    models, sites = tiny
    found = diagnose(models[recipe], Z, sites=sites)
    assert not found.trust
    told = " ".join(found.warnings)
    assert f"{sites.max() + 1} sites, more than √n = 63.2" in told
    assert "The hub has 1.4 records for each code, and 5 are wanted" in told
    assert "larger hub" in told and "second round" in told
    assert ("nearly flat" in told) == (recipe == "paper")  # damping holds the natural recipe
    assert ("held by damping" in cells(found, "Least curvature")[0]) == (recipe == "natural")
    for text in found.warnings:
        assert text.endswith(".") and "\n" not in text
        assert f"- {text}" in str(found)


def test_without_damping_a_flat_loss_is_a_reason(tiny):
    _, sites = tiny
    model = Daniel(random_state=0, damping=0, max_iter=3).fit(Z, sites=sites)
    told = " ".join(diagnose(model, Z, sites=sites).warnings)
    assert "nearly flat" in told and "damping" in told


@each_recipe
def test_a_start_far_away_is_a_reason(fitted, recipe):
    model = clone(fitted[recipe]).fit(Z, sites=SITES)
    norm = model._origin["start_distance"] / diagnose(model, Z, sites=SITES).values["start_ratio"]
    for ratio, trusted in ((1.2, True), (1.3, False)):
        model._origin["start_distance"] = ratio * norm
        found = diagnose(model, Z, sites=SITES)
        assert found.trust == trusted
        assert cells(found, "Start near") == [
            f"{ratio}",
            "at most 1.25",
            "yes" if trusted else "no",
        ]
    (text,) = found.warnings
    assert "far from the fit" in text and "second round" in text and "damping" in text


def test_an_early_stop_is_a_reason():
    found = diagnose(fit("natural", max_iter=1), Z, sites=SITES)
    assert cells(found, "Descent converged") == ["not after 1 iterations", "before max_iter", "no"]
    assert ["max_iter = 1" in text for text in found.warnings] == [True]


def test_one_site_needs_no_start():
    model = Daniel(random_state=0).fit(Z)
    model._origin["start_distance"] = 1e3
    found = diagnose(model, Z)
    assert found.trust
    assert cells(found, "Few sites")[::2] == ["1", "yes"]
    assert cells(found, "Start near")[1:] == ["no bound needed with one site", "yes"]
    assert cells(found, "Records of the fit")[2] == "yes"


def test_a_pooled_fit_of_few_records_is_not_trusted():
    found = diagnose(Daniel(random_state=0).fit(Z[:60]), Z[:60])
    assert ["The fit has 3 records for each code" in text for text in found.warnings] == [True]
    assert "hub" not in found.warnings[0]


def test_a_fit_of_zero_has_a_distance_in_words():
    model = Daniel(random_state=0).fit(np.zeros((60, 3)), sites=np.arange(60) % 2)
    assert not model.embedding_.any()
    model._origin["start_distance"] = 1.0
    found = diagnose(model, np.zeros((60, 3)), sites=np.arange(60) % 2)
    assert cells(found, "Start near")[::2] == ["the fit is zero", "no"]
    assert all(np.isfinite(value) for value in found.values.values())
    assert not re.search(r"\b(nan|inf)\b", str(found))


# --- the result -----------------------------------------------------------------------------------


def test_result_is_text_and_does_not_change(fitted):
    found = diagnose(fitted["natural"], Z, sites=SITES)
    assert found.table.columns.tolist() == ["condition", "found", "wanted", "holds"]
    assert all(isinstance(cell, str) for cell in found.table.to_numpy().ravel())
    assert set(found.table["holds"]) <= {"yes", "no", "not known"}
    with pytest.raises(FrozenInstanceError):
        found.table = None
    pd.testing.assert_frame_equal(diagnose(fitted["natural"], Z, sites=SITES).table, found.table)
    lines = str(found).splitlines()
    for line, cell in zip(lines[1:], found.table["condition"], strict=False):
        assert line.startswith(cell)


def test_hub_records_alone_say_the_same_as_all_with_labels(fitted):
    whole = diagnose(fitted["natural"], Z, sites=SITES)
    alone = diagnose(fitted["natural"], Z[SITES == "hub"])
    pd.testing.assert_frame_equal(alone.table, whole.table)
    other = diagnose(fitted["natural"], Z)
    assert "not the hub's" in cells(other, "Least curvature")[0]
    assert "not the hub's" not in str(whole)


def test_an_estimate_on_a_part_is_called_so(fitted, monkeypatch):
    whole = diagnose(fitted["natural"], Z, sites=SITES)
    monkeypatch.setattr(diagnosis.conditions.part_of, "__defaults__", (700 * P,))
    part = diagnose(fitted["natural"], Z, sites=SITES)
    assert "part of the records" in cells(part, "Least curvature")[0]
    assert "part of the records" not in str(whole)
    assert part.values["kappa_max"] == pytest.approx(whole.values["kappa_max"], rel=0.3)


@pytest.mark.parametrize("size", [6, 9])
def test_small_counts_are_not_told(size):
    sites = np.where(np.arange(N) < size, "hub", "other")
    model = fit("natural", sites)
    assert model._origin["hub_records"] == 10  # whatever is below 11
    found = diagnose(model, Z, sites=sites)
    assert cells(found, "Records of the hub")[0] == "<0.55"
    for row in ("Least curv", "Largest curv", "Gradients", "Codes in fewer"):
        assert cells(found, row)[::2] == ["not known", "not known"]
    text = re.sub(r"after \d+ iterations", "", str(found).replace("⁴", ""))
    told = re.findall(r"\d+(?:\.\d+)?", text)
    assert not {str(size), f"{size / P:.2g}"} & set(told)
    assert not {"kappa_min", "kappa_max", "gradient_moment"} & set(found.values)
    assert not found.trust


def test_few_records_in_all_and_html():
    X = Z[:8]
    found = diagnose(Daniel(random_state=0).fit(X), X)
    assert cells(found, "Many records")[0] == "<11"
    html = found._repr_html_()
    assert "&lt;11" in html and "<11" not in html
    assert html.count("<li>") == len(found.warnings) > 0


@each_recipe
@pytest.mark.parametrize("many", [True, False], ids=["sites", "pooled"])
def test_a_saved_model_has_the_same_diagnosis(tmp_path, recipe, many):
    model = fit(recipe, SITES if many else None, "hub" if many else None)
    model.save(tmp_path / "model")
    hub = Z[SITES == "hub"] if many else Z
    ours, theirs = (diagnose(m, hub) for m in (model, Daniel.load(tmp_path / "model")))
    pd.testing.assert_frame_equal(theirs.table, ours.table)
    assert (theirs.warnings, theirs.values) == (ours.warnings, ours.values)


@each_recipe
@pytest.mark.parametrize("labels", [True, False], ids=["labels", "hub alone"])
def test_a_model_that_remembers_nothing_is_diagnosed(tmp_path, recipe, labels):
    model = fit(recipe)
    full = diagnose(model, Z, sites=SITES)
    del model._origin
    model.save(tmp_path / "old")
    old = Daniel.load(tmp_path / "old")
    assert not hasattr(old, "_origin")
    X, sites = (Z, SITES) if labels else (Z[SITES == "hub"], None)
    found = diagnose(old, X, sites=sites)
    unknown = found.table[found.table["holds"] == "not known"]["condition"].str[:10].tolist()
    wanted = ["Start near"] if recipe == "natural" else ["Step size ", "Start near"]
    if not labels:
        wanted = ["Few sites:", "Many recor", *wanted]
    assert unknown == wanted
    same = ~full.table["condition"].str[:10].isin(wanted)
    pd.testing.assert_frame_equal(found.table[same], full.table[same])
    assert found.trust


# --- bad input ------------------------------------------------------------------------------------


def refused(error, *args, **options):
    with pytest.raises(error) as caught:
        diagnose(*args, **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".")
    return message


def test_bad_input(fitted):
    model = fitted["natural"]
    named = Daniel(random_state=0).fit(pd.DataFrame(Z[:200], columns=NAMES))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        diagnose(Daniel(), Z)
    assert "a SVSoft; expected a fitted Daniel" in refused(InputError, SVSoft().fit(Z[:200]), Z)
    assert "X has 3 features" in refused(InputError, model, Z[:, :3])
    table = pd.DataFrame(Z[:200], columns=[*NAMES[1:], "gout"])
    message = refused(InputError, named, table)
    assert "missing: 'code0'" in message and "does not know: 'gout'" in message
    assert "without sites" in refused(ParameterError, named, Z[:200], sites=np.arange(200))
    assert "not among the 2 sites" in refused(ParameterError, model, Z, sites=np.arange(N) % 2)
    assert "one label per record" in refused(InputError, model, Z, sites=SITES[:5])


def test_public_name_is_the_function():
    """A module of the same name would take its place after the first use."""
    for _ in range(2):
        assert daniel.diagnose is diagnosis.diagnose
    assert daniel.Diagnosis is diagnosis.Diagnosis


def test_the_page_shows_what_its_example_prints():
    """Words, not digits: those may differ between machines."""
    before, now = page.example()
    words = [" ".join(re.sub(r"[-<]?\d[\d.,e+-]*", "#", text).split()) for text in (before, now)]
    assert words[0] == words[1], "run python -m benchmarks.diagnose example"
