"""Daniel without its fit: the thresholded correlations that it begins with, as its vectors.

What the fit adds to them is the lead of "Daniel, pooled" over this.
"""

import numpy as np

from benchmarks.methods.fedavg import columns
from benchmarks.methods.result import Result, pooled
from benchmarks.problems import Problem
from daniel.core.components import principal_axes, relatedness
from daniel.core.records import records_from
from daniel.matrix import kinds


def run(problem: Problem, rng: np.random.Generator) -> Result:
    simulated = problem.theta is not None
    first = columns(records_from(problem.Z), rng, tied=simulated)
    U, signs = principal_axes(first.U, first.signs)
    kind = kinds(None if simulated else problem.codes, problem.Z.shape[1])
    return pooled(problem, embedding=relatedness(U, signs, kind))
