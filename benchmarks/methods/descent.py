"""The paper's convex baselines, pooled or over the sites, with the paper's settings."""

from typing import Any

import numpy as np

from benchmarks.methods.result import Result, bytes_of_theta
from benchmarks.methods.result import pooled as pooled_result
from benchmarks.methods.settings import papers
from benchmarks.problems import Problem


def run(
    problem: Problem, make: Any, *, pooled: bool, step: float | None = None, **options: Any
) -> Result:
    """Fit one of `daniel.baselines` with a step, by default the paper's first.

    Their ball keeps every step finite, so none gives way to a smaller one.
    """
    said = papers(problem)
    model = make(
        step_size=said.steps[0] if step is None else step, max_iter=said.iterations, **options
    )
    model.fit(problem.Z, sites=None if pooled else problem.sites)
    embedding = model.embedding_ if model.embedding_.size else np.zeros((problem.Z.shape[1], 1))
    if pooled:
        return pooled_result(problem, embedding=embedding, theta=model.theta_)
    return Result(embedding, model.theta_, bytes_of_theta(problem.Z.shape[1]))
