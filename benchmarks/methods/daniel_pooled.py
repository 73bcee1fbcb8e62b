"""Daniel with all records in one place, by its defaults."""

import numpy as np

from benchmarks.methods.result import Result, pooled, records_of, seed
from benchmarks.problems import Problem
from daniel import Daniel


def fitted(problem: Problem, rng: np.random.Generator) -> Daniel:
    """As `daniel.simulation` has it: simulated truths tie the intercepts to the diagonal."""
    tied = {} if problem.theta is None else {"intercept": "tied"}
    return Daniel(random_state=seed(rng), **tied).fit(records_of(problem))


def run(problem: Problem, rng: np.random.Generator) -> Result:
    model = fitted(problem, rng)
    theta = None if problem.theta is None else model.theta_
    return pooled(problem, embedding=model.embedding_, theta=theta)
