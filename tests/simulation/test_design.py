"""The designs, and what a repetition draws."""

import numpy as np
import pytest

from daniel.core.sample import enumerate_states
from daniel.errors import ParameterError
from daniel.simulation import Cell, draw, make_design
from daniel.simulation.design import DESIGNS


def test_main_design_is_the_papers():
    main = DESIGNS["main"]
    assert main.n == (1000, 5000, 10_000, 20_000)
    assert main.p == (50, 100, 150, 200)
    assert main.x == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert [main.rank(p) for p in main.p] == [5, 10, 15, 20]
    assert (main.reps(50, None), main.reps(100, None), main.reps(100, 3)) == (50, 20, 3)


def test_dimension_design_has_15_sites():
    dimension = DESIGNS["dimension"]
    assert dimension.p == tuple(range(20, 201, 20))
    cells = [dimension.cell(n, p, x) for n in dimension.n for p in dimension.p for x in dimension.x]
    assert {(cell.n, cell.m) for cell in cells} == {(10_000, 15)}


@pytest.mark.parametrize(
    ("n", "x", "m"),
    [(1000, 0, 1), (1000, 0.1, 1), (1000, 1 / 3, 10), (1000, 0.6, 63), (10_000, 0.5, 100)],
)
def test_number_of_sites(n, x, m):
    assert Cell(n, 50, 5, x).m == m


@pytest.mark.parametrize(("n", "x"), [(1000, 0.5), (1000, 0.6), (20_000, 0.3)])
def test_split_is_even_and_the_hub_not_smaller(n, x):
    cell = Cell(n, 50, 5, x)
    sizes = np.bincount(cell.sites())
    assert sizes.size == cell.m
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1
    assert sizes[0] == sizes.max()


def test_one_site_has_no_labels():
    assert Cell(1000, 50, 5, 0.0).sites() is None


def test_a_repetition_is_the_same_for_every_x_and_another_for_the_rest():
    base = draw(Cell(100, 10, 1, 0.0), seed=3, rep=2)
    split = draw(Cell(100, 10, 1, 0.5), seed=3, rep=2)
    np.testing.assert_array_equal(base.theta, split.theta)
    np.testing.assert_array_equal(base.Z.toarray(), split.Z.toarray())
    assert base.random_state == split.random_state
    others = [
        draw(Cell(100, 10, 1, 0.0), seed=3, rep=3),
        draw(Cell(100, 10, 1, 0.0), seed=4, rep=2),
        draw(Cell(100, 10, 1, 0.0), seed=3, rep=2, pilot=True),
        draw(Cell(101, 10, 1, 0.0), seed=3, rep=2),
    ]
    for other in others:
        assert not np.allclose(other.theta, base.theta)


def test_truth_is_low_rank_with_the_papers_variance():
    p, d = 200, 20
    thetas = [draw(Cell(10, p, d, 0.0), seed=0, rep=rep).theta for rep in range(3)]
    for theta in thetas:
        np.testing.assert_allclose(theta, theta.T)
        assert np.linalg.matrix_rank(theta) == d
        # The trace of UU' is the sum of pd squares of N(0, 1/(dp)): mean 1, sd sqrt(2/(pd)).
        assert abs(np.trace(theta) - 1) < 5 * np.sqrt(2 / (p * d))


def test_records_come_from_the_ising_model_with_the_diagonal_as_intercept():
    n = 40_000
    drawn = draw(Cell(n, 10, 1, 0.0), seed=0, rep=0)
    states, probability = enumerate_states(drawn.theta)
    X = 2.0 * drawn.Z.toarray() - 1
    expected_mean = probability @ states
    expected_pairs = np.einsum("s,sj,sk->jk", probability, states, states)
    assert np.abs(X.mean(axis=0) - expected_mean).max() < 5 / np.sqrt(n)
    assert np.abs(X.T @ X / n - expected_pairs).max() < 5 / np.sqrt(n)
    assert np.abs(expected_mean).max() > 10 / np.sqrt(n)  # else the intercepts are not tested


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": [1.0]}, ["x is 1", "0 <= x < 1"]),
        ({"x": [-0.1]}, ["x is -0.1"]),
        ({"p": [45], "d": 5}, ["p is 45", "d is 5", "p >= 50", "d <= 4"]),
        ({"p": [9]}, ["p is 9", "p >= 10"]),
        ({"d": 0}, ["d is 0"]),
        ({"n": [5]}, ["n is 5"]),
    ],
)
def test_what_cannot_work_is_said(options, words):
    with pytest.raises(ParameterError) as caught:
        make_design("main", **options)
    for word in words:
        assert word in str(caught.value)


def test_other_designs_are_refused():
    with pytest.raises(ParameterError, match="'main' or 'dimension'"):
        make_design("mane")
    with pytest.raises(ParameterError, match=r"n = 10,000 and x = 0\.3"):
        make_design("dimension", n=[1000])
