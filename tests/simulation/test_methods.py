"""What is fitted, and how a fit is measured."""

import numpy as np
import pytest

from daniel.errors import DivergenceError, ParameterError
from daniel.estimator import Daniel
from daniel.simulation import METHODS, Cell, draw, measure
from daniel.simulation.methods import read_methods


def test_methods_have_the_papers_settings():
    made = {name: method.make(5, 0.25, 7) for name, method in METHODS.items()}
    paper = made["paper"].get_params()
    assert (paper["recipe"], paper["n_components"]) == ("paper", 5)
    for name in ("paper", "SV-Soft", "SV-Hard", "SV-Topd", "PSD-Cvx"):
        given = made[name].get_params()
        assert (given["step_size"], given["max_iter"], given["tol"]) == (0.25, 50, 1e-5)
        assert METHODS[name].uses_step
    for name in ("SV-Soft", "SV-Hard"):
        assert made[name].threshold == 1e-3
    assert made["SV-Topd"].n_components == 5


def test_the_default_is_never_told_the_rank():
    for name in ("default", "pooled"):
        expected = Daniel(intercept="tied", random_state=7).get_params()
        assert METHODS[name].make(5, 0.25, 7).get_params() == expected
    assert METHODS["free"].make(5, 0.25, 7).get_params() == Daniel(random_state=7).get_params()


def test_error_is_the_frobenius_distance_to_the_truth():
    cell = Cell(300, 10, 1, 0.5)
    drawn = draw(cell, 0, 0)
    model = Daniel(1, recipe="paper", step_size=0.2, max_iter=50)
    model.fit(drawn.Z, sites=np.arange(300) * 17 // 300)
    expected = np.sqrt(((model.theta_ - drawn.theta) ** 2).sum())
    result = measure("paper", cell, drawn, 0.2)
    assert result.error == pytest.approx(expected, rel=1e-6)
    assert result.n_iter == model.n_iter_
    assert result.seconds > 0


def test_zero_has_the_norm_of_the_truth():
    drawn = draw(Cell(50, 10, 1, 0.0), 0, 0)
    result = measure("zero", Cell(50, 10, 1, 0.0), drawn, 0.1)
    assert result.error == pytest.approx(np.sqrt((drawn.theta**2).sum()))


def test_pooled_does_not_see_the_sites():
    drawn = draw(Cell(300, 10, 1, 0.0), 0, 0)
    pooled = measure("pooled", Cell(300, 10, 1, 0.5), drawn, 0.1)
    alone = measure("default", Cell(300, 10, 1, 0.0), drawn, 0.1)
    assert pooled.error == alone.error


def test_divergence_is_recorded_and_never_nan():
    drawn = draw(Cell(100, 10, 1, 0.5), 0, 0)
    with pytest.raises(DivergenceError):  # so that the next lines test what they should
        METHODS["paper"].make(1, 1e6, 0).fit(drawn.Z)
    result = measure("paper", Cell(100, 10, 1, 0.0), drawn, 1e6)
    assert result.error is None
    assert result.reason == "DivergenceError"


def test_names_of_methods():
    assert read_methods(None) == tuple(METHODS)
    assert read_methods(["ZERO", "psd-cvx", "paper"]) == ("paper", "PSD-Cvx", "zero")
    with pytest.raises(ParameterError, match=r"'lasso'.*SV-Topd"):
        read_methods(["default", "lasso"])
