"""Skip-gram with negative samples, by gensim (`daniel.evaluate.rivals`)."""

import numpy as np

from benchmarks.methods.result import Result, pooled, seed
from benchmarks.problems import Problem
from daniel.evaluate.rivals import Word2Vec


def run(problem: Problem, rng: np.random.Generator, *, d: int) -> Result:
    model = Word2Vec(min(d, problem.Z.shape[1]), random_state=seed(rng)).fit(problem.Z)
    return pooled(problem, embedding=model.embedding_)
