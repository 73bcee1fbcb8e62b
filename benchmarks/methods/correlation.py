"""Correlation matrix, eigenvalues soft-thresholded (`daniel.evaluate.rivals`)."""

import numpy as np

from benchmarks.methods.result import Result, pooled
from benchmarks.problems import Problem
from daniel.evaluate.rivals import CorrelationSVT


def run(problem: Problem, rng: np.random.Generator, *, d: int) -> Result:
    model = CorrelationSVT(n_components=min(d, problem.Z.shape[1])).fit(problem.Z)
    return pooled(problem, embedding=model.embedding_)
