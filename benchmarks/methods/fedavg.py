"""FedAvg (McMahan et al., 2017) on Daniel's own loss: many rounds, averaged factors.

Sites agree on coordinates and penalty from their counts; then, in each round, every site takes a
few steps of L-BFGS on its own penalised loss from the common factor U (p, d), and the hub averages
the factors by the number of records.  Intercepts stay at their sites.
"""

import numpy as np

from benchmarks.methods.result import Result
from benchmarks.problems import Problem
from daniel.core.components import NEGATIVE_FACTOR, NEGATIVE_SHARE, principal_axes, relatedness
from daniel.core.coordinates import natural_coordinates, theta_from
from daniel.core.intercepts import prior_intercepts
from daniel.core.links import firmness
from daniel.core.natural import COMMON
from daniel.core.noise import noise_level, penalty_factor, rarity
from daniel.core.records import Records, records_from
from daniel.core.solve import LBFGS, minimise, small_falls
from daniel.core.surrogate import Factors, Surrogate
from daniel.matrix import kinds

DIMENSION = 50
FIRST_SIZE = 0.1  # of a column of the random first U


def objectives(
    sites: list[Records], d: int, rng: np.random.Generator, *, tied: bool
) -> list[Surrogate]:
    """The loss of each site in common coordinates, with Daniel's penalty."""
    counts = np.sum([records.counts() for records in sites], axis=0)
    total = sum(records.total for records in sites)
    coords = natural_coordinates(counts, total, tied=tied)
    noise = noise_level(counts, total, coords.scale, rng)
    rare = rarity(counts, total)
    largest = max(sites, key=lambda records: records.total)
    factor = penalty_factor(rare, firmness(largest, rng) if rare > COMMON else 0.0)
    signs = np.where(np.arange(d) < d - d // NEGATIVE_SHARE, 1.0, -1.0)
    penalties = noise * np.where(signs > 0, factor, NEGATIVE_FACTOR)
    return [
        Surrogate(records, coords, None if tied else prior_intercepts(records), signs, penalties)
        for records in sites
    ]


def average(
    sites: list[Surrogate], d: int, rounds: int, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """U (p, d) after some rounds, with so many local steps in each."""
    p = sites[0].coords.p
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
    d = min(DIMENSION, p)
    tied = problem.theta is not None
    parts = records_from(problem.Z, site=site, n_sites=len(names)).by_site()
    sites = objectives(parts, d, rng, tied=tied)
    coords, signs = sites[0].coords, sites[0].signs
    assert signs is not None
    U, signs = principal_axes(average(sites, d, rounds, local_steps, rng), signs)
    theta = None
    if tied:
        theta = theta_from(coords, U, U * signs.astype(U.dtype), np.zeros(p))  # b is the diagonal's
    kind = kinds(None if tied else problem.codes, p)
    sent = rounds * 2 * p * d * 4 + 8 * (p + 1)
    return Result(relatedness(U, signs, kind), theta, sent, rounds)
