"""The checks of the theory: their arithmetic, and one small run."""

import numpy as np
import pandas as pd
import pytest

from daniel import simulation
from daniel.errors import FormatError
from daniel.simulation.theory import QUICK_SCALE, Scale, largest_step, measure_theory, read_theory
from daniel.simulation.theorytables import lines_against_n, slope, theory_markdown

TINY = Scale(
    reps=2,
    n=(200, 400),
    many=(0.0, 0.3),
    many_n=400,
    step_n=300,
    step_x=(0.0, 0.3),
    start_n=200,
    start_x=(0.0,),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    measure_theory(out, scale=TINY)
    return out


def test_slope_of_a_power_law():
    n = [100, 200, 400, 800]
    index = pd.MultiIndex.from_product([[0, 1], n], names=["rep", "n"])
    size = index.get_level_values("n").to_numpy(float)
    other = np.where(index.get_level_values("rep") == 0, 1.0, 3.0) * size**-1.25
    fitted = slope(pd.DataFrame({"root": 2 * size**-0.5, "other": other}, index=index))
    assert fitted.loc["slope"].to_dict() == pytest.approx({"root": -0.5, "other": -1.25})
    assert fitted.loc["se"].abs().max() < 1e-9


def test_slope_has_the_spread_of_its_repetitions():
    index = pd.MultiIndex.from_product([[0, 1], [10, 1000]], names=["rep", "n"])
    fitted = slope(pd.DataFrame({"a": [1.0, 0.1, 1.0, 0.01]}, index=index))  # -1/2 and -1
    assert fitted.loc["slope", "a"] == pytest.approx(-0.75)
    assert fitted.loc["se", "a"] == pytest.approx(0.25)


@pytest.mark.parametrize("edge", [0.02, 0.7, 30.0])
def test_largest_step_is_found(edge):
    found = largest_step(lambda eta: eta <= edge, 0.01)
    assert found <= edge < 1.03 * found


def test_every_check_is_measured(tiny):
    results = read_theory(tiny / "theory.csv")
    sizes = results.groupby("check").size().to_dict()
    assert sizes == {"rate": 2 * 2 * 2 * 2, "sites": 2 * 2 * 2, "step": 2 * 2, "start": 2 * 12}
    pooled = results[results["check"].isin(["rate", "sites"]) & (results["x"] == 0)]
    assert pooled["gap"].eq(0).all()
    split = results[results["check"].isin(["rate", "sites"]) & (results["x"] > 0)]
    assert (split["gap"].dropna() > 0).all()


def test_error_is_that_of_a_fit_to_the_first_records(tiny):
    results = read_theory(tiny / "theory.csv")
    row = results[
        (results["check"] == "rate")
        & (results["method"] == "paper")
        & (results["n"] == 200)
        & (results["x"] == 0)
        & (results["rep"] == 1)
    ]
    drawn = simulation.draw(simulation.Cell(400, 20, 2, 0.0), 0, 1)
    model = simulation.METHODS["paper"].make(2, 0.2, 0).set_params(max_iter=300)
    theta = model.fit(drawn.Z.toarray()[:200]).theta_
    assert row["error"].item() == pytest.approx(np.linalg.norm(theta - drawn.theta), rel=1e-4)


def test_step_bound_is_below_what_descends(tiny):
    results = read_theory(tiny / "theory.csv")
    step = results[results["check"] == "step"]
    assert (step["bound"] > 0).all()
    assert (step["limit"] >= step["bound"]).all()
    assert (step["limit"] < 49).all()  # some step does diverge


def test_paragraphs_and_lines(tiny):
    results = read_theory(tiny / "theory.csv")
    text = theory_markdown(results)
    for word in ("Theorem 1", "Theorem 3", "√n", "(eta_ineq)", "Remark 1", "slope"):
        assert word in text
    assert "nan" not in text.lower()
    lines = lines_against_n(results)
    assert list(lines["gap"].columns) == ["default, x = 0.3", "paper's recipe, x = 0.3"]
    own = results[(results["check"] == "rate") & (results["n"] == 400) & (results["x"] == 0.3)]
    gap = own[own["method"] == "default"]["gap"].mean()
    assert lines["gap"].groupby("n").mean().loc[400, "default, x = 0.3"] == pytest.approx(gap)


def test_theory_is_written_and_drawn(tiny):
    assert [path.name for path in simulation.tables(tiny)] == ["theory.csv", "theory.md"]
    drawn = simulation.figures(tiny)
    assert [path.name for path in drawn] == ["figure_theory.png", "figure_theory.svg"]
    assert "slope −1/2" in drawn[1].read_text("utf-8")


def test_the_same_study_is_not_measured_twice_and_another_seed_is_refused(tiny):
    path = tiny / "theory.csv"
    before, when = path.read_bytes(), path.stat().st_mtime_ns
    measure_theory(tiny, scale=TINY)
    assert path.stat().st_mtime_ns == when
    with pytest.raises(FormatError, match="seed is 0 there and 1 now"):
        measure_theory(tiny, scale=TINY, seed=1)
    assert path.read_bytes() == before


def test_quick_is_smaller():
    full = Scale()
    assert QUICK_SCALE.reps < full.reps
    assert max(QUICK_SCALE.n) < max(full.n)
