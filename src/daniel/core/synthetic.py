"""Synthetic records in place of the hub's, for their curvature."""

import numpy as np

from daniel.core.coordinates import smoothed_mean, theta_diagonal
from daniel.core.exchange import Start
from daniel.core.intercepts import log_odds
from daniel.core.records import Records, records_from
from daniel.core.sample import gibbs

NUMBER = (2_000, 10_000)  # at least and at most, and between them
PER_CODE = 40
SWEEPS = 50
CALIBRATION_ROUNDS = 8


def synthetic_records(
    start: Start, counts: np.ndarray, total: float, rng: np.random.Generator
) -> Records:
    """Records drawn from the positive part of the model at Phi0, at the study's prevalences.

    Only their curvature is used: the correction makes their derivative at Phi0 that of all sites.
    A few rounds of stochastic approximation move the intercepts until the prevalences fit.
    """
    side = start.signs > 0
    U = start.U[:, side] / (2 * start.coords.scale[:, None])
    target = log_odds(smoothed_mean(counts, total))
    b = theta_diagonal(start.coords, start.U[:, side], start.U[:, side], target)
    n = int(np.clip(PER_CODE * b.size, *NUMBER))
    for _ in range(CALIBRATION_ROUNDS if U.any() else 0):
        Z = gibbs(U, b, n // 4, rng, SWEEPS // 2)
        b += (target - log_odds(smoothed_mean(Z.sum(axis=0), n // 4))) / 4
    return records_from(gibbs(U, b, n, rng, SWEEPS), merge=False)
