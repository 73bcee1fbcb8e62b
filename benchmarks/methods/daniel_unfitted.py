"""Daniel without its fit: the correlations above the noise, through its embedding step.

"Daniel, pooled" has the couplings in their place, or beside half of them (docs/method.md).
"""

from types import SimpleNamespace

import numpy as np

from benchmarks.methods.result import Result, pooled
from benchmarks.problems import Problem
from daniel.core import natural
from daniel.core.components import principal_axes, relatedness
from daniel.core.records import records_from
from daniel.core.start import spectral_start
from daniel.matrix import kinds

STILL = SimpleNamespace(standard_normal=np.zeros)  # a start without what lets columns grow


def run(problem: Problem, rng: np.random.Generator) -> Result:
    records, options = records_from(problem.Z), natural.Options()
    survey = natural._survey(records, options, rng)
    first = natural._first(survey.matrix, survey.chance, options, rng)
    U = spectral_start(survey.matrix, first.signs, first.penalties, STILL)  # type: ignore[arg-type]
    U, signs = principal_axes(U.astype(options.dtype), first.signs)
    kind = kinds(problem.codes, problem.Z.shape[1])
    return pooled(problem, embedding=relatedness(U, signs, kind))
