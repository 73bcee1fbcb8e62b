"""Daniel on the hub's own records: what a site has without the others."""

from dataclasses import replace

import numpy as np

from benchmarks.methods.daniel_pooled import fitted
from benchmarks.methods.result import Result, hub_rows
from benchmarks.problems import Problem


def run(problem: Problem, rng: np.random.Generator) -> Result:
    rows = hub_rows(problem)
    model = fitted(replace(problem, Z=problem.Z[rows], sites=problem.sites[rows]), rng)
    theta = None if problem.theta is None else model.theta_
    return Result(model.embedding_, theta, rounds=0)
