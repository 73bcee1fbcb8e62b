"""Alternating least squares of implicit feedback (PyPI `implicit`): records rate codes."""

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.methods.result import Result, pooled, seed
from benchmarks.problems import Problem
from daniel.errors import MissingDependencyError


def run(problem: Problem, rng: np.random.Generator, *, d: int) -> Result:
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError as error:
        raise MissingDependencyError.of("implicit", extra="rivals", purpose="this rival") from error
    model = AlternatingLeastSquares(factors=min(d, problem.Z.shape[1]), random_state=seed(rng))
    with threadpool_limits(1, "blas"):  # as the package asks for: its own threads do the work
        model.fit(problem.Z, show_progress=False)
    return pooled(problem, embedding=np.asarray(model.item_factors))
