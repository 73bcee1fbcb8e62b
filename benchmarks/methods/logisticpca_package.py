"""Logistic PCA by the package `logisticpca` (PyPI), as it comes: dense arrays."""

import numpy as np

from benchmarks.methods.result import Result, pooled
from benchmarks.problems import Problem
from daniel.errors import MissingDependencyError


def run(problem: Problem, rng: np.random.Generator, *, d: int) -> Result:
    try:
        from logisticpca import LogisticPCA
    except ImportError as error:
        raise MissingDependencyError.of(
            "logisticpca", extra="rivals", purpose="this rival"
        ) from error
    model = LogisticPCA(min(d, problem.Z.shape[1])).fit(problem.Z.toarray())
    return pooled(problem, embedding=model.U_ * model.scores_.std(axis=0))
