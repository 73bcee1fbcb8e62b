"""Daniel in a few exchanges: the start of a round is the fit of the round before."""

from dataclasses import replace

import numpy as np

from benchmarks.methods.daniel_one_shot import bytes_of
from benchmarks.methods.result import Result, hub_rows
from benchmarks.problems import Problem
from daniel.core.components import principal_axes
from daniel.core.coordinates import theta_from
from daniel.core.exchange import Start
from daniel.core.natural import Options, answer, finish, make_start, mean_answer
from daniel.core.records import records_from
from daniel.federated.terms import LATER_DAMPING
from daniel.matrix import kinds


def run(problem: Problem, rng: np.random.Generator, *, rounds: int) -> Result:
    names, site = np.unique(problem.sites, return_inverse=True)
    tied = problem.theta is not None
    options = Options(intercept="tied" if tied else "site")
    sites = records_from(problem.Z, site=site, n_sites=len(names)).by_site()
    hub = sites[site[np.argmax(hub_rows(problem))]]
    start = make_start(hub, options, rng)
    p, sent = problem.Z.shape[1], 0
    for _ in range(rounds):
        sent += bytes_of(p, start.U.shape[1])
        mean = mean_answer(answer(records, start, options) for records in sites)
        fitted = finish(hub, start, mean, options, rng)
        U, signs = principal_axes(fitted.U, fitted.signs)
        start = Start(fitted.coords, U, signs, fitted.b)
        options = replace(options, damping=LATER_DAMPING)
    theta = theta_from(fitted.coords, U, U * signs.astype(U.dtype), fitted.b[0]) if tied else None
    kind = kinds(None if tied else problem.codes, p)
    return Result(fitted.embedding(U, signs, kind), theta, sent, rounds)
