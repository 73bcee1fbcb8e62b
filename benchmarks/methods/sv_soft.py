"""SV-Soft: gradient updates of the whole Theta, singular values lowered by a threshold."""

import numpy as np

from benchmarks.methods import descent
from benchmarks.methods.result import Result
from benchmarks.methods.settings import papers
from benchmarks.problems import Problem
from daniel.baselines import SVSoft


def run(
    problem: Problem, rng: np.random.Generator, *, pooled: bool = False, step: float | None = None
) -> Result:
    return descent.run(
        problem, SVSoft, pooled=pooled, step=step, threshold=papers(problem).threshold
    )
