"""One loop for every solver: a solver proposes the next point, the loop watches over it.

    minimise(objective, start, solver=LBFGS(), ...) -> Solution

An objective is a function of a flat vector that returns value and gradient.  A solver holds no
data but the memory of its last moves; `step` makes one.  The loop records the curve, stops at
convergence, and never lets a number that is not finite out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from daniel.errors import DivergenceError

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
Stop = Callable[["Point", "Point"], bool]
Product = Callable[[np.ndarray], np.ndarray]
# Step, loss, and the fall of it that is enough; None on a part of the records: more is to come.
Progress = Callable[[int, float, float | None], None]

PART_STEPS = 8  # on a part of the records: what its own minimum adds is its noise


@dataclass(frozen=True)
class Point:
    """A place, the objective there, and its gradient."""

    x: np.ndarray
    value: float
    gradient: np.ndarray


@dataclass(frozen=True)
class Solution:
    x: np.ndarray
    value: float
    n_iter: int
    converged: bool
    curve: list[float] = field(repr=False)


Memory = list[tuple[np.ndarray, np.ndarray, float]]


@dataclass(frozen=True)
class Stage:
    """So many steps at most on an objective that is made where they begin."""

    at: Callable[[np.ndarray], Objective]
    steps: int

    @classmethod
    def on(cls, objective: Objective, steps: int = PART_STEPS) -> "Stage":
        """Wherever they begin."""
        return cls(lambda _: objective, steps)


@dataclass(frozen=True)
class State:
    """All that a run needs to go on: its stage, its point, the solver's memory, and the curve.

    begin: where the stage began.
    """

    stage: int
    point: Point
    memory: Memory
    curve: list[float]
    begin: np.ndarray
    converged: bool | None = None  # None: the run is not over


class Keeper(Protocol):
    """Where states outlive an interruption."""

    def load(self) -> State | None: ...

    def save(self, state: State) -> None: ...


class Solver(Protocol):
    memory: Memory

    def step(self, objective: Objective, point: Point) -> Point | None:
        """The next point, or None when no better one can be found."""
        ...


def minimise(
    objective: Objective,
    x: np.ndarray,
    *,
    solver: Solver,
    max_iter: int,
    stop: Stop,
    progress: Callable[[int, float], None] | None = None,
    keep: Callable[[Point, Memory, list[float]], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Run `solver` from x until `stop(previous, current)`, or `max_iter` steps.

    keep: is shown every new point, with what is needed to go on from it; state: go on from there.
    """
    if state is None:
        point = _evaluate(objective, x)
        curve = [point.value]
    else:
        point, curve = state.point, list(state.curve)
        if state.converged is not None:
            return Solution(point.x, point.value, len(curve) - 1, state.converged, curve)
        solver.memory = list(state.memory)
        for old, new in pairwise(curve):
            stop(Point(x, old, x), Point(x, new, x))
    if not _finite(point):
        raise DivergenceError(
            "The loss at the starting point is not a finite number; check the start and the scale "
            "of the penalty."
        )
    for iteration in range(len(curve), max_iter + 1):
        following = solver.step(objective, point)
        if following is None:  # the precision of the arithmetic is reached
            return Solution(point.x, point.value, iteration - 1, True, curve)
        curve.append(following.value)
        if progress is not None:
            progress(iteration, following.value)
        done = stop(point, following)
        point = following
        if done:
            return Solution(point.x, point.value, iteration, True, curve)
        if keep is not None:
            keep(point, solver.memory, curve)
    return Solution(point.x, point.value, max_iter, False, curve)


def minimise_in_stages(
    parts: Sequence[Stage],
    whole: Objective,
    x: np.ndarray,
    *,
    max_iter: int,
    tol: float,
    least: float = 0.0,
    guess: Callable[[np.ndarray], Product] | None = None,
    rough: bool = False,
    progress: Progress | None = None,
    keeper: Keeper | None = None,
) -> Solution:
    """Some steps of L-BFGS on each part in turn, then on the whole until it converges.

    With the loss of ever larger random parts of the records this is the progressive solver: most
    of the way is made on a few percent of the data, and the whole decides.  The curvature that the
    solver has seen on a part serves on the next.  A rough solution ends with the parts, if there
    are any.  tol, least: of `small_falls`; guess: as of LBFGS.  With a keeper an interrupted run
    goes on to the same end.
    """
    stages = [*parts] if rough and parts else [*parts, Stage.on(whole, max_iter)]
    solver = LBFGS(guess)
    state = _fitting(None if keeper is None else keeper.load(), x, len(stages))
    for number, stage in enumerate(stages):
        if state is not None and number < state.stage:
            continue
        resumed = state if state is not None and number == state.stage else None
        begin = x if resumed is None else resumed.begin

        def keep(
            point: Point,
            memory: Memory,
            curve: list[float],
            number: int = number,
            begin: np.ndarray = begin,
        ) -> None:
            if keeper is not None:
                keeper.save(State(number, point, memory, curve, begin))

        def show(step: int, loss: float, last: bool = number == len(stages) - 1) -> None:
            if progress is not None:
                progress(step, loss, enough(loss, tol, least) if last else None)

        solution = minimise(
            stage.at(begin),
            begin,
            solver=solver,
            max_iter=min(max_iter, stage.steps),
            stop=small_falls(tol, least),
            progress=show,
            keep=keep,
            state=resumed,
        )
        x = solution.x
    over = state is not None and state.converged is not None
    if keeper is not None and not over:  # what comes after may fail too, as on a full disk
        end = Point(x, solution.value, np.empty(0, dtype=x.dtype))
        keeper.save(State(len(stages) - 1, end, [], solution.curve, x, solution.converged))
    return solution


def _fitting(state: State | None, x: np.ndarray, stages: int) -> State | None:
    """The state, unless it is of a run of another size: that one cannot be gone on with."""
    if state is None:
        return None
    found = state.point.x
    same = found.shape == x.shape and found.dtype == x.dtype and state.stage < stages
    return state if same else None


def _evaluate(objective: Objective, x: np.ndarray) -> Point:
    return Point(x, *objective(x))


def _finite(point: Point) -> bool:
    return bool(np.isfinite(point.value) and np.isfinite(point.gradient @ point.gradient))


def enough(value: float, tol: float, least: float = 0.0) -> float:
    """The fall of a value that is too small to go on for: `tol` of its size, or `least`."""
    return max(least, tol * max(1.0, abs(value)))


def small_falls(tol: float, least: float = 0.0, times: int = 2) -> Stop:
    """Stop when so many steps in a row each lower the value by less than is `enough`."""
    small = 0

    def stop(old: Point, new: Point) -> bool:
        nonlocal small
        small = small + 1 if old.value - new.value <= enough(new.value, tol, least) else 0
        return small >= times

    return stop


@dataclass
class FixedStep:
    """Gradient descent x <- x - eta * gradient, Algorithm 1.

    Stops with an error that names eta when the value is no longer finite or has grown `patience`
    times its start; `bound` computes the bound of eq. (eta_ineq) for the message.
    """

    eta: float
    bound: Callable[[], float]
    patience: float = 1e3
    memory: Memory = field(default_factory=list, init=False)  # stays empty
    _first: float | None = field(default=None, init=False)

    def step(self, objective: Objective, point: Point) -> Point:
        if self._first is None:
            self._first = abs(point.value) + 1
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            following = _evaluate(objective, point.x - self.eta * point.gradient)
        if not _finite(following) or following.value > self.patience * self._first:
            raise DivergenceError(eta=self.eta, bound=self.bound())
        return following


@dataclass
class LBFGS:
    """Limited-memory BFGS; Nocedal & Wright, Numerical Optimization (2006), algorithms 7.4, 7.5.

    Step lengths by backtracking with quadratic interpolation to the Armijo condition (eq. 3.4);
    pairs with too little curvature are skipped (section 7.2): the inverse Hessian stays positive.
    guess(x): a positive definite product, the inverse Hessian near x but for a factor, that is
    known before any step; None: the identity.
    """

    guess: Callable[[np.ndarray], Product] | None = None
    pairs: int = 10
    armijo: float = 1e-4
    max_backtracks: int = 20
    memory: Memory = field(default_factory=list, init=False)

    def step(self, objective: Objective, point: Point) -> Point | None:
        guess = _identity if self.guess is None else self.guess(point.x)
        direction = self._direction(point.gradient, guess)
        slope = float(direction @ point.gradient)
        if slope >= 0:  # rounding: forget the past and go downhill
            self.memory.clear()
            direction = -guess(point.gradient)
            slope = float(direction @ point.gradient)
        length = 1.0 if self.memory else min(1.0, 1.0 / max(np.sqrt(-slope), 1e-30))
        following = self._search(objective, point, direction, slope, length)
        if following is None:
            if not self.memory:
                return None
            self.memory.clear()
            return self.step(objective, point)
        self._remember(following.x - point.x, following.gradient - point.gradient)
        return following

    def _search(
        self, objective: Objective, point: Point, direction: np.ndarray, slope: float, length: float
    ) -> Point | None:
        for _ in range(self.max_backtracks):
            trial = _evaluate(objective, point.x + point.x.dtype.type(length) * direction)
            if _finite(trial) and trial.value <= point.value + self.armijo * length * slope:
                return trial if trial.value < point.value else None
            length *= _shrink(point.value, slope, length, trial.value)
        return None

    def _direction(self, gradient: np.ndarray, guess: Product) -> np.ndarray:
        """-H gradient by the two-loop recursion, algorithm 7.4."""
        q = gradient.copy()
        alphas = []
        for s, y, rho in reversed(self.memory):
            alpha = rho * float(s @ q)
            alphas.append(alpha)
            q -= q.dtype.type(alpha) * y
        q = guess(q)
        if self.memory:
            _, y, rho = self.memory[-1]
            q *= q.dtype.type(1 / (rho * float(y @ guess(y))))  # eq. (7.20) in the guess's metric
        for (s, y, rho), alpha in zip(self.memory, reversed(alphas), strict=True):
            q += q.dtype.type(alpha - rho * float(y @ q)) * s
        return -q

    def _remember(self, s: np.ndarray, y: np.ndarray) -> None:
        curvature = float(s @ y)
        if curvature > 1e-8 * float(y @ y):
            self.memory.append((s, y, 1 / curvature))
            del self.memory[: -self.pairs]


def _identity(q: np.ndarray) -> np.ndarray:
    return q.copy()


def _shrink(value: float, slope: float, length: float, trial: float) -> float:
    """Factor to the minimiser of the parabola through both values, kept in [0.1, 0.5]."""
    rise = trial - value - slope * length
    if not np.isfinite(rise) or rise <= 0:
        return 0.1
    return float(np.clip(-slope * length / (2 * rise), 0.1, 0.5))
