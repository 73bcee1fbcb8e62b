"""Kaplan-Meier curves and the log-rank test, exact for those at the site, coarse for others.

Bands are 95 % of the log-log kind (exponential Greenwood), which stay between 0 and 1: lifelines'
own, and those of R's ``survfit(conf.type = "log-log")``; R's default is "log".
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from lifelines import KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test
from numpy.typing import ArrayLike

from daniel.errors import InputError, ParameterError

FLOOR = 11  # fewer patients than this are nowhere told exactly
STEP = 10  # sizes are told in tens
GRID_DAYS = 30
DIGITS = 3  # of a share that others see
MOST_DAYS = 150 * 365.25  # of a time; longer ones are of another unit
Z95 = 1.959964  # half the width of a 95 % band, in standard errors

Knots = tuple[np.ndarray, np.ndarray]  # steps, and numbers of patients


@dataclass(frozen=True)
class LogRank:
    """chi2 of the k-group log-rank test, its k - 1 degrees of freedom, and p."""

    chi2: float
    dof: int
    p_value: float


def check_survival(table: pd.DataFrame) -> pd.DataFrame:
    """The columns patient, time, event, one row a patient; a sentence where they are not that."""
    missing = [name for name in ("patient", "time", "event") if name not in table.columns]
    if missing:
        raise InputError(
            f"The survival table lacks {', '.join(missing)}: expected patient, time (days) and "
            "event (0 or 1)."
        )
    table = table[["patient", "time", "event"]]
    if table["patient"].duplicated().any():
        raise InputError("The survival table names a patient twice: expected one row a patient.")
    time = pd.to_numeric(table["time"], errors="coerce").to_numpy(dtype=float)
    if not (np.isfinite(time) & (time > 0)).all():
        raise InputError("The survival table has times that are missing or not above 0 days.")
    _check_days(time)
    if not table["event"].isin([0, 1]).all():
        raise InputError("The survival table has other events than 0 (last seen) and 1 (outcome).")
    return table.assign(time=time, event=table["event"].astype(int))


def _check_days(time: np.ndarray) -> None:
    if time.size and time.max() > MOST_DAYS:
        raise InputError("The survival table has times above 150 years: expected days.")


def kaplan_meier(time: ArrayLike, event: ArrayLike) -> pd.DataFrame:
    """The exact curve: time, survival, lo, hi, at_risk, events, censored; a row a distinct time.

    ``S(t) = Π_{t_i <= t} (1 - d_i / n_i)``.  at_risk is n_i, those still there just before the
    time, and the first row is time 0.  Where the band is not defined (S is 0) it reaches from 0 to
    the bound before.
    """
    with np.errstate():  # lifelines silences numpy for the whole process, and would leave it so
        fitted = KaplanMeierFitter().fit(np.asarray(time, float), np.asarray(event, int))
    steps = fitted.event_table
    survival = fitted.survival_function_.to_numpy().ravel()
    lo, hi = fitted.confidence_interval_.to_numpy().T
    return pd.DataFrame(
        {
            "time": steps.index.to_numpy(float),
            "survival": survival,
            "lo": np.where(survival > 0, lo, 0.0),
            "hi": pd.Series(np.where(survival > 0, hi, np.nan)).ffill().to_numpy(),
            "at_risk": steps["at_risk"].to_numpy(int),
            "events": steps["observed"].to_numpy(int),
            "censored": steps["censored"].to_numpy(int),
        }
    )


def logrank(time: ArrayLike, event: ArrayLike, group: ArrayLike) -> LogRank:
    """Test of equal hazards in all groups, as R's ``survdiff``.

    A group that nobody is left of at the first outcome says nothing, and counts for no degree of
    freedom.
    """
    time, event, group = np.asarray(time, float), np.asarray(event, bool), np.asarray(group)
    if np.unique(group).size < 2:
        raise InputError("The log-rank test needs two groups, and there is one.")
    if not event.any():
        raise InputError("Nobody has the outcome, so there is nothing to compare: check `event`.")
    asked = time >= time[event].min()
    n_groups = np.unique(group[asked]).size
    if n_groups < 2:
        raise InputError(
            "All groups but one had left before the first outcome, so there is nothing to compare."
        )
    found = multivariate_logrank_test(time[asked], group[asked], event[asked])
    return LogRank(float(found.test_statistic), n_groups - 1, float(found.p_value))


def median_time(curve: pd.DataFrame) -> tuple[float, float, float]:
    """(median, lo, hi): first times at which S, and the ends of its band, are at most 1/2.

    Infinite where the curve ends before.  Where S is exactly 1/2 for a while, R gives the middle of
    that span and this its beginning.
    """
    found = []
    for column in ("survival", "lo", "hi"):
        below = curve["time"][curve[column] <= 0.5]
        found.append(float(below.min()) if len(below) else float("inf"))
    return found[0], found[1], found[2]


def median_on_lines(curve: pd.DataFrame) -> tuple[float, float, float]:
    """(median, lo, hi) of a released curve: the days on which its lines come down to 1/2.

    Infinite where they end before.  A row counts what has happened since the one before, so the
    first row below 1/2 would be late.
    """
    found = []
    for column in ("survival", "lo", "hi"):
        share = curve[column].to_numpy()
        below = np.flatnonzero(share <= 0.5)[:1]
        ends = np.append(below, below - 1)
        at = np.interp(0.5, share[ends], curve["time"].to_numpy()[ends]) if below.size else np.inf
        found.append(float(np.round(at)))
    return found[0], found[1], found[2]


def released(curve: pd.DataFrame, *, floor: int = FLOOR, grid: int = GRID_DAYS) -> pd.DataFrame:
    """What of an exact curve others may see: time, survival, lo, hi, at_risk, events, censored.

    Rows are at multiples of `grid` days.  events and censored count those since they were counted
    last, in a row where at least `floor` have come together of a kind, and are 0 in the others.
    The number of patients is rounded down (`rounded`), and nothing here depends on what that takes
    off: curves of two outcomes would tell by how few patients they differ.  at_risk starts from it,
    and is at most floor - 1 larger than the number still followed, and floor + 8 smaller
    (`_counted`).  The last row is one that counts events: how the curve goes on after it is not
    told.

    Survival is the life-table estimate from these counts alone: an exact share would tell, through
    the number that it is a share of, how few were censored.  Of the sizes that are told alike it
    takes the middle one.  Between rows it is a straight line.
    Before a row that counts events stands one without a count, a step of the grid earlier: what the
    counts say of that day (`_knots`).
    """
    if grid < GRID_DAYS:
        raise ParameterError(f"The grid is {grid} days: expected at least {GRID_DAYS}.")
    _check_days(curve["time"].to_numpy())
    days = np.arange(grid, curve["time"].max() + grid, grid)
    here = curve["time"].searchsorted(days, side="right") - 1
    had, lost = (curve[name].cumsum().to_numpy()[here] for name in ("events", "censored"))
    n = rounded(int(curve["at_risk"][0]), floor)
    step, had, lost, left = _counted(n, had, lost, floor).T
    told = _knots(step, had, floor), _knots(step, lost, floor)
    steps = np.union1d(step, told[0][0])
    shares = _life_table(n + (step_of(floor) - 1) // 2, steps, *told)
    out = pd.DataFrame({"time": float(grid) * steps} | shares).round(DIGITS)
    row = np.searchsorted(step, steps, side="right") - 1
    events, censored = (np.diff(count[row], prepend=0) for count in (had, lost))
    return out.assign(at_risk=left[row], events=events, censored=censored)


def _counted(n: int, events: np.ndarray, censored: np.ndarray, floor: int) -> np.ndarray:
    """Rows (step, events, censored, at risk) of n patients, from sums up to each step of the grid.

    Events and censorings are counted apart, each as soon as `floor` have come together: no count
    of one kind says anything about the other.  So of either up to floor - 1 are not counted, and
    together twice as many.  Whether these are `floor` or more is told too, by a lower number at
    risk.  That number keeps or falls by at least `floor`, so that no two of them differ by few; it
    may then be too small, as by up to floor - 1 it may be too large.

    The last row is told, not true, to leave `floor` patients: an end where few are really left
    would tell how many are not counted.  Nor are rows told while so few are left that what n was
    rounded by would bend the curve.
    """
    rows = [(0, 0, 0, n)]
    for step, (e, c) in enumerate(zip(events.tolist(), censored.tolist(), strict=True), 1):
        _, had, lost, left = rows[-1]
        had, lost = (e if e - had >= floor else had), (c if c - lost >= floor else lost)
        most = n - had - lost - (floor if e - had + c - lost >= floor else 0)
        if most < 2 * floor - 2 + step_of(floor):
            break
        if most < left:
            left = min(most, left - floor)
        if (had, lost, left) != rows[-1][1:]:
            rows.append((step, had, lost, left))
    out = np.array(rows)
    return out[: np.searchsorted(out[:, 1], out[-1, 1]) + 1]


def _knots(step: np.ndarray, told: np.ndarray, floor: int) -> Knots:
    """Steps, and how many are taken to have come by then, from rows that count them.

    They come evenly from one count to the next.  But fewer than `floor` had come a step before each
    count, or that step would have counted them: so many who come at once are not spread over all
    the time before.
    """
    rows = np.flatnonzero(np.diff(told, prepend=-1))
    at, number = step[rows], told[rows].astype(float)
    span, more = np.diff(at), np.diff(number)
    wide = span > 1
    early = number[:-1] + np.minimum(floor - 1, more * (span - 1) / span)
    at, number = np.append(at, at[1:][wide] - 1), np.append(number, early[wide])
    order = np.argsort(at)
    return at[order], number[order]


def _life_table(n: int, steps: np.ndarray, had: Knots, lost: Knots) -> dict[str, np.ndarray]:
    """survival, lo, hi at these steps of n patients; had, lost: `_knots` of outcomes and leaving.

    Between two knots outcomes come evenly, and are divided by the mean number at risk.
    """
    at, number = had
    both = np.union1d(at, lost[0])
    gone = np.interp(both, *lost)
    spent = np.append(0, np.cumsum(np.diff(both) * (gone[1:] + gone[:-1]) / 2))
    mean = np.diff(spent[np.searchsorted(both, at)]) / np.diff(at)
    events = np.diff(number)
    exposed = n - number[:-1] - mean
    survival = np.append(1, np.cumprod(1 - events / exposed))
    error = np.sqrt(np.append(0, np.cumsum(events / (exposed * (exposed - events)))))
    log = np.where(survival < 1, np.log(survival), -1.0)
    lo, hi = (survival ** np.exp(sign * Z95 * error / log) for sign in (-1, 1))
    found = {"survival": survival, "lo": lo, "hi": hi}
    return {name: np.interp(steps, at, value) for name, value in found.items()}


def guarded(count: int, floor: int = FLOOR) -> int | str:
    """A number of patients as it may be shown: "<11" for 1 to 10."""
    return f"<{floor}" if 0 < count < floor else int(count)


def rounded(count: int, floor: int = FLOOR) -> int:
    """A number of patients rounded down to tens, or to the floor where that is more."""
    step = step_of(floor)
    return max(min(count, floor), count // step * step)


def in_tens(count: int, floor: int = FLOOR) -> int | str:
    """A number of patients in tens, as it may be shown: 0, "<11", "11-19", 20, 30 ..."""
    down, step = rounded(count, floor), step_of(floor)
    if not 0 < down < floor and down % step == 0:
        return down
    return guarded(count, floor) if count < floor else f"{down}-{down // step * step + step - 1}"


def step_of(floor: int) -> int:
    """What sizes are rounded to: tens, less with a floor below eleven, and with 1 not at all."""
    return min(STEP, max(1, floor - 1))
