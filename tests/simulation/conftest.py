"""A study of seconds: two n, ten codes, five methods."""

import pytest

from daniel import simulation

METHODS = ["default", "paper", "SV-Topd", "pooled", "zero"]


@pytest.fixture(scope="session")
def small():
    return simulation.make_design("main", n=[100, 200], p=[10], x=[0, 0.5])


@pytest.fixture(scope="session")
def folder(small, tmp_path_factory):
    """The folder of three repetitions, made by two processes."""
    out = tmp_path_factory.mktemp("study")
    simulation.run(small, reps=3, jobs=2, methods=METHODS, out=out)
    return out


@pytest.fixture(scope="session")
def results(folder):
    return simulation.read_results(folder / "main.csv")


@pytest.fixture(scope="session")
def methods():
    return METHODS


@pytest.fixture(scope="session")
def without_times():
    """What must not depend on who computed the rows, in which order, or how fast."""
    key = ["n", "p", "x", "method", "rep", "eta"]
    return lambda rows: rows.drop(columns="seconds").sort_values(key).reset_index(drop=True)
