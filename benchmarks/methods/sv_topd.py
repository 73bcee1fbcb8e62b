"""SV-Topd: gradient updates of the whole Theta, the d largest singular values kept."""

import numpy as np

from benchmarks.methods import descent
from benchmarks.methods.result import Result
from benchmarks.methods.settings import papers
from benchmarks.problems import Problem
from daniel.baselines import SVTopd


def run(
    problem: Problem, rng: np.random.Generator, *, pooled: bool = False, step: float | None = None
) -> Result:
    return descent.run(problem, SVTopd, pooled=pooled, step=step, n_components=papers(problem).rank)
