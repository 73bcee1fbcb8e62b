"""The methods that the study compares, and how one fit is measured.

Daniel twice (the paper's recipe and the default), the paper's four baselines, the pooled oracle,
and "zero", which answers Theta = 0 whatever the records say.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daniel.baselines import PSDCvx, SVHard, SVSoft, SVTopd
from daniel.errors import DanielError, ParameterError
from daniel.estimator import Daniel
from daniel.simulation.design import Cell, Draw

STOP: dict[str, Any] = {"max_iter": 50, "tol": 1e-5}  # appendix app:hyperparam_sim
THRESHOLD = 1e-3  # tau of SV-Soft and SV-Hard
STEPS = (0.10, 0.15, 0.20, 0.25, 0.30)  # the grid of eta
PILOTS = 3  # repetitions that choose eta for each (n, p)


class Zero:
    """Answers Theta = 0: what any estimate must beat."""

    n_iter_ = 0

    def fit(self, X: Any, *, sites: Any = None) -> Self:
        self.theta_ = np.zeros((X.shape[1], X.shape[1]))
        return self


@dataclass(frozen=True)
class Method:
    """label: as in tables and figures; make(d, eta, random_state): the estimator, not fitted.

    uses_sites: False for a method that does not know the sites and is fitted once for all x.
    uses_step: whether eta matters to it.
    """

    label: str
    make: Callable[[int, float, int], Any]
    uses_sites: bool = True
    uses_step: bool = False


def _default(d: int, eta: float, random_state: int) -> Daniel:
    """Never told the rank; intercepts tied, because the simulated truth has them so."""
    return Daniel(intercept="tied", random_state=random_state)


METHODS = {
    "paper": Method(
        "DANIEL, paper's recipe",
        lambda d, eta, seed: Daniel(d, recipe="paper", step_size=eta, **STOP),
        uses_step=True,
    ),
    "default": Method("DANIEL, default", _default),
    "free": Method("DANIEL, site intercepts", lambda d, eta, seed: Daniel(random_state=seed)),
    "SV-Soft": Method(
        "SV-Soft",
        lambda d, eta, seed: SVSoft(threshold=THRESHOLD, step_size=eta, **STOP),
        uses_step=True,
    ),
    "SV-Hard": Method(
        "SV-Hard",
        lambda d, eta, seed: SVHard(threshold=THRESHOLD, step_size=eta, **STOP),
        uses_step=True,
    ),
    "SV-Topd": Method(
        "SV-Topd",
        lambda d, eta, seed: SVTopd(d, step_size=eta, **STOP),
        uses_step=True,
    ),
    "PSD-Cvx": Method(
        "PSD-Cvx",
        lambda d, eta, seed: PSDCvx(step_size=eta, **STOP),
        uses_step=True,
    ),
    "pooled": Method("all records pooled", _default, uses_sites=False),
    "zero": Method("zero", lambda d, eta, seed: Zero(), uses_sites=False),
}
BASELINES = ("SV-Soft", "SV-Hard", "SV-Topd", "PSD-Cvx")


def read_methods(names: Sequence[str] | None) -> tuple[str, ...]:
    """The methods named, in the order of METHODS; letter case does not matter."""
    if not names:
        return tuple(METHODS)
    known = {name.lower(): name for name in METHODS}
    for name in names:
        if name.lower() not in known:
            raise ParameterError(f"There is no method {name!r}; choose from {', '.join(METHODS)}.")
    wanted = {known[name.lower()] for name in names}
    return tuple(name for name in METHODS if name in wanted)


@dataclass(frozen=True)
class Outcome:
    """One fit.  error: ||Theta - Theta*||_F, or None with the reason why there is none."""

    error: float | None
    seconds: float
    n_iter: int | None
    reason: str = ""


def measure(name: str, cell: Cell, drawn: Draw, eta: float) -> Outcome:
    """Fit one method to one repetition.  The clock runs during `fit` alone."""
    method = METHODS[name]
    model = method.make(cell.d, eta, drawn.random_state)
    sites = cell.sites() if method.uses_sites else None
    begin = time.perf_counter()
    try:
        model.fit(drawn.Z, sites=sites)
    except DanielError as problem:
        return Outcome(None, time.perf_counter() - begin, None, type(problem).__name__)
    seconds = time.perf_counter() - begin
    error = float(np.linalg.norm(model.theta_ - drawn.theta))
    if not np.isfinite(error):
        return Outcome(None, seconds, model.n_iter_, "not a finite number")
    return Outcome(error, seconds, model.n_iter_)
