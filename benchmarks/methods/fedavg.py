"""FedAvg (McMahan et al., 2017) on Daniel's own loss: many rounds, averaged factors.

Sites agree on coordinates from their counts; columns and penalties are those of Daniel's pooled
fit, a gift that is not counted in the time.  Then, in each round, every site takes a few steps of
L-BFGS on its own penalised loss from the common factor U (p, d), and the hub averages the factors
by the number of records.  Intercepts stay at their sites.
"""

import time

import numpy as np

from benchmarks.methods.result import Result
from benchmarks.problems import Problem
from daniel.core import natural
from daniel.core.components import Components, principal_axes, relatedness
from daniel.core.coordinates import natural_coordinates, theta_from
from daniel.core.intercepts import prior_intercepts
from daniel.core.records import Records, records_from
from daniel.core.solve import LBFGS, minimise, small_falls
from daniel.core.surrogate import Factors, Surrogate
from daniel.matrix import kinds

FIRST_SIZE = 0.1  # of a column of the random first U


def columns(records: Records, rng: np.random.Generator, *, tied: bool) -> Components:
    """Signs and penalties of the columns that Daniel fits to all records together."""
    options = natural.Options(intercept="tied" if tied else "site")
    survey = natural._survey(records, options, rng)
    per_code = records.total / records.p
    return natural._first(survey.matrix, survey.chance, options, rng, per_code=per_code)


def objectives(sites: list[Records], like: Components, *, tied: bool) -> list[Surrogate]:
    """The loss of each site in common coordinates, with the penalties of these columns."""
    counts = np.sum([records.counts() for records in sites], axis=0)
    total = sum(records.total for records in sites)
    coords = natural_coordinates(counts, total, tied=tied)
    return [
        Surrogate(
            records,
            coords,
            None if tied else prior_intercepts(records),
            like.signs,
            like.penalties,
        )
        for records in sites
    ]


def average(
    sites: list[Surrogate], rounds: int, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """U (p, d) after some rounds, with so many local steps in each."""
    signs = sites[0].signs
    assert signs is not None
    p, d = sites[0].coords.p, signs.size
    U = (FIRST_SIZE * rng.standard_normal((p, d)) / np.sqrt(p)).astype(np.float32)
    intercepts = [site.prior for site in sites]
    guesses = [site.guess() for site in sites]  # of the curvature, as Daniel's own solver has it
    weights = np.array([site.records.total for site in sites])
    weights /= weights.sum()
    for _ in range(rounds):
        total = np.zeros((p, d))
        for i, site in enumerate(sites):
            x = site.pack(Factors(U, U, intercepts[i]))
            stop = small_falls(1e-5)
            x = minimise(site, x, solver=LBFGS(guesses[i]), max_iter=steps, stop=stop).x
            found = site.unpack(x)
            intercepts[i] = found.b
            total += weights[i] * found.U
        U = total.astype(np.float32)
    return U


def run(problem: Problem, rng: np.random.Generator, *, rounds: int, local_steps: int) -> Result:
    names, site = np.unique(problem.sites, return_inverse=True)
    p = problem.Z.shape[1]
    tied = problem.theta is not None
    records = records_from(problem.Z, site=site, n_sites=len(names))
    like = columns(records, rng, tied=tied)
    begin = time.perf_counter()
    sites = objectives(records.by_site(), like, tied=tied)
    U, signs = principal_axes(average(sites, rounds, local_steps, rng), like.signs)
    theta = None
    if tied:
        theta = theta_from(
            sites[0].coords, U, U * signs.astype(U.dtype), np.zeros(p)
        )  # b is the diagonal's
    kind = kinds(None if tied else problem.codes, p)
    sent = rounds * 2 * p * signs.size * 4 + 8 * (p + 1)
    embedding = relatedness(U, signs, kind)
    return Result(embedding, theta, sent, rounds, time.perf_counter() - begin)
