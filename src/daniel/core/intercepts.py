"""Intercepts: their prior, their best values at a fixed Phi, and their change with the centre."""

from collections.abc import Callable

import numpy as np

from daniel.core.coordinates import Coordinates, smoothed_mean
from daniel.core.exchange import Start
from daniel.core.ising import logit_moments
from daniel.core.place import once
from daniel.core.records import Records

LARGE = 1 << 28  # records * codes above which work starts on a part of the records
PART = 16  # one record in so many
NEWTON_STEPS = 30
LONGEST_STEP = 8.0  # the first
TINY, EPSILON = 1e-30, 1e-15
LAST_STEP = 1e-4
LAST_ERROR = 0.2  # of very many records, in standard errors of an intercept


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
    b = start.b + prior - log_odds(np.clip(start.coords.center, TINY, 1 - EPSILON))
    if records.n * records.p <= LARGE:
        return _newton(records, share, start, prior, b, _short)
    part = records.take(np.arange(0, records.n, PART))
    with once(part):
        b = _newton(part, share, start, prior, b, _leads_near)
    return _newton(records, share, start, prior, b, _leads_near)


def _short(step: np.ndarray, variance: np.ndarray) -> bool:
    return bool(np.abs(step).max() < LAST_STEP)


def _leads_near(step: np.ndarray, variance: np.ndarray) -> bool:
    """Newton's error is about the square of the step; among very many records a pass is dear."""
    return bool((step**2 * np.sqrt(variance)).max() < LAST_ERROR)


def _newton(
    records: Records,
    share: np.ndarray,
    start: Start,
    prior: np.ndarray,
    b: np.ndarray,
    last: Callable[[np.ndarray, np.ndarray], bool],
) -> np.ndarray:
    """Newton steps from b until one is the last: `last(step, variance)`; share (p,): to be fitted.

    Steps are those of the logarithms of both sides of "expected = observed": the expectation of a
    rare code is nearly exponential in b.  It grows with b, so that every step narrows where the
    solution is; a step that leads out of there is halved back into it.  The longest step doubles:
    so even intercepts that are far off are found.
    """
    pull = start.coords.scale**2
    counts = share * records.total
    low, high = np.full_like(b, -np.inf), np.full_like(b, np.inf)
    for number in range(NEWTON_STEPS):
        mean, variance = logit_moments(records, start.coords, start.U, start.V, b)
        mean = np.maximum(mean, TINY)
        wanted = np.maximum(counts - pull * (b - prior), TINY)
        pulled = np.where(wanted > TINY, pull / wanted, 0)
        step = np.log(wanted / mean) / np.maximum(variance / mean + pulled, TINY)
        low, high = np.where(step > 0, b, low), np.where(step < 0, b, high)
        longest = LONGEST_STEP * 2**number
        old, b = b, b + np.clip(step, -longest, longest)
        out = ((b <= low) | (b >= high)) & (b != old)
        b[out] = (low[out] + high[out]) / 2
        if last(b - old, variance):
            break
    return b


def intercepts_in(coords: Coordinates, start: Start, b: np.ndarray) -> np.ndarray:
    """(1, p) the intercepts b beside a start's Phi0 when codes are centred as in `coords`."""
    old = start.coords
    shift = (coords.center - old.center) / old.scale
    through_others = (shift @ start.U) @ start.V.T - shift * np.einsum("jc,jc->j", start.U, start.V)
    return b + old.gain * through_others
