"""Daniel in one exchange: start at the hub, one answer of every site, finish at the hub.

The sites work one after another here; at home they would at the same time.
"""

import numpy as np

from benchmarks.methods.result import Result, records_of, seed
from benchmarks.problems import Problem
from daniel import Daniel


def bytes_of(p: int, d: int) -> int:
    """An open start of rank d and the answer to it (docs/format.md), without their headers."""
    start = 4 * p * d + 4 * d + 3 * 8 * p
    answer = 4 * p * (p + 1) // 2 + 3 * 8 * p + p + 2 * 8
    return start + answer


def run(problem: Problem, rng: np.random.Generator) -> Result:
    tied = {} if problem.theta is None else {"intercept": "tied"}
    model = Daniel(random_state=seed(rng), **tied)
    model.fit(records_of(problem), sites=problem.sites)
    theta = None if problem.theta is None else model.theta_
    rank = model.U_.shape[1]  # about that of the start, which the model does not keep
    return Result(model.embedding_, theta, bytes_of(problem.Z.shape[1], rank))
