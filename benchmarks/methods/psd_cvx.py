"""PSD-Cvx: gradient updates of the whole Theta, negative eigenvalues set to zero."""

import numpy as np

from benchmarks.methods import descent
from benchmarks.methods.result import Result
from benchmarks.problems import Problem
from daniel.baselines import PSDCvx


def run(
    problem: Problem, rng: np.random.Generator, *, pooled: bool = False, step: float | None = None
) -> Result:
    return descent.run(problem, PSDCvx, pooled=pooled, step=step)
