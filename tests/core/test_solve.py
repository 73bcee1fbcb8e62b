"""The loop and its solvers, on functions whose minimum is known."""

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from daniel.core.solve import (
    LBFGS,
    FixedStep,
    Point,
    Stage,
    minimise,
    minimise_in_stages,
    small_falls,
)
from daniel.errors import DivergenceError


def never(_old, _new):
    return False


def gradient_below(size):
    return lambda _old, new: bool(np.linalg.norm(new.gradient) < size)


@pytest.fixture
def quadratic(rng):
    """Convex, condition number 1000; returns objective and minimum."""
    Q, _ = np.linalg.qr(rng.normal(size=(20, 20)))
    A = (Q * np.logspace(-1, 2, 20)) @ Q.T
    best = rng.normal(size=20)

    def objective(x):
        return float((x - best) @ A @ (x - best) / 2), A @ (x - best)

    return objective, best


def rosenbrock(x):
    return float(rosen(x)), rosen_der(x)


# --- L-BFGS ---------------------------------------------------------------------------------------


def test_lbfgs_on_a_quadratic(quadratic):
    objective, best = quadratic
    found = minimise(
        objective, np.zeros(20), solver=LBFGS(), max_iter=500, stop=gradient_below(1e-9)
    )
    assert found.converged
    np.testing.assert_allclose(found.x, best, atol=1e-6)
    assert found.value == objective(found.x)[0]


def test_lbfgs_on_rosenbrock_reaches_what_scipy_reaches():
    x = np.array([-1.2, 1.0, -0.5, 0.8])
    found = minimise(rosenbrock, x, solver=LBFGS(), max_iter=500, stop=gradient_below(1e-8))
    rival = minimize(rosenbrock, x, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    assert found.converged
    assert found.value <= rival.fun + 1e-12
    np.testing.assert_allclose(found.x, 1, atol=1e-6)
    assert found.n_iter < 5 * rival.nit


@pytest.mark.parametrize("memory", [1, 3, 10])
def test_lbfgs_value_never_increases(memory, quadratic):
    for objective, size in ((quadratic[0], 20), (rosenbrock, 6)):
        x = np.full(size, -1.5)
        found = minimise(objective, x, solver=LBFGS(pairs=memory), max_iter=60, stop=never)
        curve = np.array(found.curve)
        assert curve[0] == objective(x)[0]
        assert curve[-1] == found.value
        assert (np.diff(curve) < 0).all()


@pytest.mark.parametrize("guessed", [False, True])
def test_lbfgs_directions_are_those_of_the_dense_formula(guessed, rng):
    """Two-loop recursion against the BFGS update of a whole inverse Hessian."""
    A = np.eye(6)
    if guessed:
        half = rng.normal(size=(6, 6))
        A += half @ half.T
    solver = LBFGS(pairs=5)
    pairs = []
    for _ in range(3):
        s = rng.normal(size=6)
        y = s + 0.3 * rng.normal(size=6)
        assert s @ y > 0
        solver._remember(s, y)
        pairs.append((s, y))
    s, y = pairs[-1]
    H = A * (s @ y) / (y @ A @ y)
    for s, y in pairs:
        left = np.eye(6) - np.outer(s, y) / (s @ y)
        H = left @ H @ left.T + np.outer(s, s) / (s @ y)
    gradient = rng.normal(size=6)
    found = solver._direction(gradient, lambda q: A @ q)
    np.testing.assert_allclose(found, -H @ gradient, rtol=1e-10)


def test_lbfgs_with_the_right_guess_needs_a_step_or_two(quadratic):
    objective, best = quadratic
    A = np.array([objective(best + e)[1] for e in np.eye(20)])
    inverse = np.linalg.inv(A)
    plain, guided = (
        minimise(objective, np.zeros(20), solver=solver, max_iter=500, stop=gradient_below(1e-9))
        for solver in (LBFGS(), LBFGS(lambda _x: lambda q: inverse @ q))
    )
    np.testing.assert_allclose(guided.x, best, atol=1e-9)
    assert guided.n_iter <= 4 < plain.n_iter / 4


def test_lbfgs_asks_for_the_guess_at_every_point():
    """1/2 x^4 has a second derivative that moves; Newton's steps need it where they are."""
    found = minimise(
        lambda x: (float((x**4).sum()) / 2, 2 * x**3),
        np.array([4.0, 1.0]),
        solver=LBFGS(lambda x: lambda q: q / (6 * x**2 + 1e-12), pairs=1),
        max_iter=60,
        stop=gradient_below(1e-9),
    )
    assert found.converged
    assert found.n_iter < 40


def test_lbfgs_skips_pairs_without_curvature():
    solver = LBFGS()
    solver._remember(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    assert solver.memory == []


@pytest.mark.parametrize("outside", [np.nan, np.inf, -np.inf])
def test_lbfgs_backs_away_from_where_the_objective_is_no_number(outside):
    """sqrt-like domain x > 0: the first full step leads outside, so do some later ones."""
    seen = []

    def objective(x):
        if (x <= 0).any():
            seen.append(outside)
            return outside, np.full(x.size, outside)
        return float((x - np.log(x)).sum()), 1 - 1 / x

    found = minimise(
        objective, np.array([5.0, 40.0]), solver=LBFGS(), max_iter=200, stop=gradient_below(1e-8)
    )
    np.testing.assert_allclose(found.x, 1, atol=1e-6)
    assert np.isfinite(found.curve).all()
    assert seen, "the region was never tried, so this test shows nothing"


def test_lbfgs_refuses_a_finite_value_with_a_broken_gradient():
    def objective(x):
        if x[0] < 0.5:
            return -1.0, np.array([np.nan])
        return float(x[0] ** 2), 2 * x

    found = minimise(objective, np.array([3.0]), solver=LBFGS(), max_iter=50, stop=never)
    assert np.isfinite(found.x).all()
    assert 0.5 <= found.x[0] < 3
    assert found.value == found.x[0] ** 2


def test_lbfgs_backs_away_from_single_precision_overflow():
    """A gradient whose square overflows float32 is no point to keep, and no warning either."""

    def objective(x):
        steep = x[0] < 0
        gradient = np.full(1, 1e30 if steep else 2 * (x[0] - 0.1), dtype=np.float32)
        return (-1.0 if steep else float((x[0] - 0.1) ** 2)), gradient

    start = np.array([2.0], dtype=np.float32)
    found = minimise(objective, start, solver=LBFGS(), max_iter=50, stop=gradient_below(1e-3))
    np.testing.assert_allclose(found.x, 0.1, atol=1e-3)
    assert found.x.dtype == np.float32


def test_lbfgs_stands_still_at_the_minimum():
    found = minimise(
        lambda x: (float(x @ x), 2 * x), np.zeros(3), solver=LBFGS(), max_iter=10, stop=never
    )
    assert (found.n_iter, found.converged, found.value) == (0, True, 0.0)


def test_lbfgs_with_a_wrong_gradient_stops_rather_than_climbs():
    """An uphill "gradient": no step helps, and the start is returned."""
    found = minimise(
        lambda x: (float(x @ x), -2 * x), np.ones(3), solver=LBFGS(), max_iter=10, stop=never
    )
    np.testing.assert_array_equal(found.x, 1)


def test_lbfgs_from_start_of_no_number_is_an_error():
    with pytest.raises(DivergenceError, match="starting point is not a finite number"):
        minimise(
            lambda x: (np.nan, x), np.ones(2), solver=LBFGS(), max_iter=5, stop=gradient_below(1)
        )


def test_a_solver_that_goes_on_uses_the_curvature_it_has_seen(quadratic):
    objective, _ = quadratic
    solver = LBFGS()
    first, second = (
        minimise(objective, np.zeros(20), solver=solver, max_iter=5, stop=never) for _ in range(2)
    )
    assert second.value < first.value / 2


# --- the loop -------------------------------------------------------------------------------------


def test_too_few_iterations_is_not_converged():
    found = minimise(rosenbrock, np.full(4, -1.0), solver=LBFGS(), max_iter=3, stop=never)
    assert (found.converged, found.n_iter, len(found.curve)) == (False, 3, 4)


def test_no_iterations_returns_the_start():
    x = np.full(4, -1.0)
    found = minimise(rosenbrock, x, solver=LBFGS(), max_iter=0, stop=never)
    np.testing.assert_array_equal(found.x, x)
    assert (found.converged, found.n_iter) == (False, 0)


def test_progress_hears_every_step():
    heard = []
    found = minimise(
        *(rosenbrock, np.full(4, -1.0)),
        solver=LBFGS(),
        max_iter=5,
        stop=never,
        progress=lambda i, v: heard.append((i, v)),
    )
    assert heard == list(enumerate(found.curve))[1:]


def test_progress_of_stages_hears_which_fall_is_enough():
    heard = []
    minimise_in_stages(
        *([], rosenbrock, np.full(4, -1.0)),
        max_iter=5,
        tol=1e-3,
        least=0.1,
        progress=lambda *told: heard.append(told),
    )
    assert [step for step, _, _ in heard] == [1, 2, 3, 4, 5]
    assert all(fall == max(0.1, 1e-3 * max(1.0, loss)) for _, loss, fall in heard)


def test_a_fall_below_the_least_is_small_whatever_the_value():
    stop = small_falls(1e-6, least=0.5)
    x = np.ones(1)
    falls = [stop(Point(x, old, x), Point(x, new, x)) for old, new in [(9, 8), (8, 7.6), (7.6, 7)]]
    assert falls == [False, False, False]
    assert stop(Point(x, 7, x), Point(x, 6.7, x)) is False
    assert stop(Point(x, 6.7, x), Point(x, 6.3, x)) is True


def test_small_falls_needs_two_small_steps_in_a_row():
    values = iter([10.0, 5.0, 5.0 - 1e-9, 4.0, 4.0 - 1e-9, 4.0 - 2e-9, 3.0])

    class Scripted:
        def start(self):
            pass

        def step(self, objective, point):
            return type(point)(point.x, next(values), point.gradient)

    found = minimise(
        lambda x: (20.0, x),
        np.ones(1),
        solver=Scripted(),
        max_iter=99,
        stop=small_falls(1e-6),
    )
    assert (found.n_iter, found.converged) == (6, True)


# --- fixed step -----------------------------------------------------------------------------------


def test_fixed_step_is_gradient_descent():
    target = np.array([1.0, -2.0])

    def objective(x):
        return float(((x - target) ** 2).sum()), 2 * (x - target)

    found = minimise(
        *(objective, np.zeros(2)),
        solver=FixedStep(0.1, bound=lambda: 0.0),
        max_iter=7,
        stop=never,
    )
    np.testing.assert_allclose(found.x, target * (1 - 0.8**7), rtol=1e-13)
    assert (found.n_iter, found.converged) == (7, False)


@pytest.mark.parametrize("power", [2, 4])
def test_a_diverging_fixed_step_names_eta_and_the_bound(power):
    """x^2 grows step by step; x^4 leaves the finite numbers at once."""

    def objective(x):
        return float((x**power).sum()), power * x ** (power - 1)

    asked = []

    def bound():
        asked.append(1)
        return 0.0625

    with pytest.raises(DivergenceError) as caught:
        minimise(
            *(objective, np.full(2, 3.0)),
            solver=FixedStep(12.5, bound=bound),
            max_iter=1000,
            stop=never,
        )
    assert caught.value.eta == 12.5
    assert caught.value.bound == 0.0625
    assert "eta = 12.5" in str(caught.value)
    assert "(eta_ineq) allows at most 0.0625" in str(caught.value)
    assert asked == [1]  # the bound costs a Lanczos run: only for the message


def test_a_fixed_step_may_climb_a_little():
    """The paper's descent is not monotone; only growth without end is an error."""
    values = iter([(1.0, -1.0), (5.0, -1.0), (0.5, -1.0)])

    def objective(x):
        value, slope = next(values)
        return value, np.array([slope])

    found = minimise(
        objective, np.zeros(1), solver=FixedStep(1.0, bound=lambda: 1.0), max_iter=2, stop=never
    )
    assert found.curve == [1.0, 5.0, 0.5]


# --- stages ---------------------------------------------------------------------------------------


def logistic_loss(A, y):
    def objective(x):
        m = A @ x
        s = 1 / (1 + np.exp(-m))
        value = np.mean(np.logaddexp(0, m) - y * m) + 0.01 * x @ x
        return float(value), A.T @ (s - y) / y.size + 0.02 * x

    return objective


def test_stages_end_at_the_same_minimum_as_the_direct_way(rng):
    A = rng.normal(size=(2000, 8))
    y = (rng.random(2000) < 1 / (1 + np.exp(-A @ rng.normal(size=8)))).astype(float)
    *parts, whole = (logistic_loss(A[:n], y[:n]) for n in (100, 400, 2000))
    counted = []

    def counting(x):
        counted.append(1)
        return whole(x)

    exact = {"max_iter": 200, "tol": 1e-14}
    direct = minimise_in_stages([], counting, np.zeros(8), **exact)
    evaluations = len(counted)
    counted.clear()
    staged = minimise_in_stages([*map(Stage.on, parts)], counting, np.zeros(8), **exact)
    assert direct.converged
    assert staged.converged
    np.testing.assert_allclose(staged.x, direct.x, atol=1e-6)
    np.testing.assert_allclose(staged.value, direct.value, rtol=1e-12)
    assert staged.curve[0] < direct.curve[0]  # the whole starts where the parts ended
    assert len(counted) <= evaluations
    # The parts alone have another minimum: the whole did decide.
    part = minimise_in_stages([], parts[0], np.zeros(8), **exact)
    assert np.linalg.norm(part.x - direct.x) > 0.05


def test_a_stage_is_made_where_it_begins_and_has_its_own_steps():
    """A shifted bowl; every stage moves the bottom to one side of where it begins."""
    begun, heard = [], []

    def at(x):
        begun.append(x)
        return lambda y: (float((y - x - 1) @ (y - x - 1)), 2 * (y - x - 1))

    stages = [Stage(at, 50), Stage(at, 50), Stage(at, 0)]
    found = minimise_in_stages(
        stages,
        lambda y: (float(y @ y), 2 * y),
        np.zeros(2),
        max_iter=50,
        tol=1e-12,
        progress=lambda *told: heard.append(told),
    )
    np.testing.assert_allclose(begun, [[0, 0], [1, 1], [2, 2]], atol=1e-4)
    np.testing.assert_allclose(found.x, 0, atol=1e-4)
    last = [step for step, _, fall in heard if fall is not None]
    assert last == list(range(1, found.n_iter + 1))  # parts do not tell which fall is enough
    assert len(heard) > len(last)


def test_a_rough_solution_ends_with_the_parts(rng):
    A = rng.normal(size=(2000, 8))
    y = (rng.random(2000) < 1 / (1 + np.exp(-A @ rng.normal(size=8)))).astype(float)
    part, whole = (logistic_loss(A[:n], y[:n]) for n in (500, 2000))
    exact = {"max_iter": 200, "tol": 1e-14}
    own = minimise_in_stages([], part, np.zeros(8), **exact).x
    rough = minimise_in_stages([Stage.on(part)], whole, np.zeros(8), rough=True, **exact).x
    np.testing.assert_allclose(rough, own, atol=1e-3)
    without = minimise_in_stages([], whole, np.zeros(8), rough=True, **exact)
    assert np.linalg.norm(without.x - rough) > 1e-2  # there are no parts to end with
