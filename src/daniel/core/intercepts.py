"""Intercepts: their prior, their best values at a fixed Phi, and their change with the centre."""

import numpy as np

from daniel.core.coordinates import Coordinates, smoothed_mean
from daniel.core.exchange import Start
from daniel.core.ising import logit_moments
from daniel.core.records import Records

LARGE = 1 << 28  # records * codes above which work starts on a part of the records
PART = 16  # one record in so many
NEWTON_STEPS = 20
LONGEST_STEP = 2.0
REACH = 8.0  # from the prior: a few records with enormous logits must not drive it on and on
LAST_STEP = 1e-4
LAST_LARGE_STEP = 1e-2  # Newton's error is about the square of the step


def log_odds(mean: np.ndarray) -> np.ndarray:
    return np.log(mean) - np.log1p(-mean)


def prior_intercepts(records: Records) -> np.ndarray:
    """(1, p) log-odds of each code's smoothed prevalence."""
    return log_odds(smoothed_mean(records.counts(), records.total))[None, :]


def site_intercepts(records: Records, start: Start) -> np.ndarray:
    """(1, p) best intercepts at a fixed Phi0: p one-dimensional convex problems, Newton steps.

    One pseudo-record at the site's own prevalence keeps codes that are never present finite.  Of
    very many records a part shows nearly where they are: it must have the prevalences of all.
    """
    prior = prior_intercepts(records)
    share = records.counts() / records.total
    if records.n * records.p <= LARGE:
        return _newton(records, share, start, prior, prior, LAST_STEP)
    part = records.take(np.arange(0, records.n, PART))
    b = _newton(part, share, start, prior, prior, LAST_LARGE_STEP)
    return _newton(records, share, start, prior, b, LAST_LARGE_STEP)


def _newton(
    records: Records,
    share: np.ndarray,
    start: Start,
    prior: np.ndarray,
    b: np.ndarray,
    last: float,
) -> np.ndarray:
    """Newton steps from b until one is shorter than `last`; share (p,): prevalences to fit."""
    pull = start.coords.scale**2
    counts = share * records.total
    for _ in range(NEWTON_STEPS):
        mean, variance = logit_moments(records, start.coords, start.U, start.V, b)
        step = (counts - mean - pull * (b - prior)) / (variance + pull)
        old, b = b, b + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
        b = np.clip(b, prior - REACH, prior + REACH)
        if np.abs(b - old).max() < last:
            break
    return b


def intercepts_in(coords: Coordinates, start: Start, b: np.ndarray) -> np.ndarray:
    """(1, p) the intercepts b beside a start's Phi0 when codes are centred as in `coords`."""
    old = start.coords
    shift = (coords.center - old.center) / old.scale
    through_others = (shift @ start.U) @ start.V.T - shift * np.einsum("jc,jc->j", start.U, start.V)
    return b + old.gain * through_others
