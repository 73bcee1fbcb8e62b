"""PPMI-SVD with the options that did best on the labels of the emergency visits."""

import numpy as np

from benchmarks.methods.result import Result, pooled, seed
from benchmarks.problems import Problem
from daniel.evaluate.rivals import PPMISVD


def run(problem: Problem, rng: np.random.Generator, *, d: int) -> Result:
    model = PPMISVD(
        min(d, problem.Z.shape[1]),
        shift=2.0,
        context_smoothing=0.5,
        eigen_power=1.0,
        positive_only=True,
        random_state=seed(rng),
    )
    return pooled(problem, embedding=model.fit(problem.Z).embedding_)
