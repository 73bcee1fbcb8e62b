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
GRID_DAYS = 30
DIGITS = 3  # of a share that others see
Z95 = 1.959964  # half the width of a 95 % band, in standard errors


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
    if not table["event"].isin([0, 1]).all():
        raise InputError("The survival table has other events than 0 (last seen) and 1 (outcome).")
    return table.assign(time=time, event=table["event"].astype(int))


def kaplan_meier(time: ArrayLike, event: ArrayLike) -> pd.DataFrame:
    """The exact curve: time, survival, lo, hi, at_risk, events, censored; a row a distinct time.

    ``S(t) = Π_{t_i <= t} (1 - d_i / n_i)``.  at_risk is n_i, those still there just before the
    time, and the first row is time 0.  Where the band is not defined (S is 0) it reaches from 0 to
    the bound before.
    """
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
    """Test of equal hazards in all groups, as R's ``survdiff``."""
    group = np.asarray(group)
    n_groups = np.unique(group).size
    if n_groups < 2:
        raise InputError("The log-rank test needs two groups, and there is one.")
    if not np.asarray(event, int).any():
        raise InputError("Nobody has the outcome, so there is nothing to compare: check `event`.")
    found = multivariate_logrank_test(np.asarray(time, float), group, np.asarray(event, int))
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


def released(curve: pd.DataFrame, *, floor: int = FLOOR, grid: int = GRID_DAYS) -> pd.DataFrame:
    """What of an exact curve others may see: time, survival, lo, hi, at_risk, censored.

    Rows are at multiples of `grid` days, where since the row before at least `floor` patients had
    the outcome, or none had it and at least `floor` were censored; the curve ends where fewer than
    `floor` are left.  censored counts those since the row before; fewer than `floor` are counted
    with a later row, so at_risk, which is who of the first row has not been counted yet, may be too
    large by up to floor - 1.

    Survival is the life-table estimate from these counts alone: an exact share would tell, through
    the number that it is a share of, how few were censored.  Those that a row counts are taken to
    have left evenly since censored ones were counted before.
    """
    if grid < GRID_DAYS:
        raise ParameterError(f"The grid is {grid} days: expected at least {GRID_DAYS}.")
    days = np.arange(grid, curve["time"].max() + grid, grid)
    events, censored = (curve[name].cumsum().to_numpy() for name in ("events", "censored"))
    n = int(curve["at_risk"][0])
    rows = [(0.0, 0, 0)]  # time, and how many had the outcome or were censored, as far as counted
    for day, here in zip(days, curve["time"].searchsorted(days, side="right") - 1, strict=True):
        if n - events[here] - censored[here] < floor:
            break
        _, had, lost = rows[-1]
        more, gone = int(events[here]) - had, int(censored[here]) - lost
        if more >= floor or (more == 0 and gone >= floor):
            rows.append((float(day), had + more, lost + (gone if gone >= floor else 0)))
    time, had, lost = np.array(rows).T
    out = pd.DataFrame({"time": time} | _life_table(n, time, had, lost)).round(DIGITS)
    told = np.diff(lost, prepend=0).astype(int)
    return out.assign(at_risk=(n - had - lost).astype(int), censored=told)


def _life_table(
    n: int, time: np.ndarray, had: np.ndarray, lost: np.ndarray
) -> dict[str, np.ndarray]:
    """survival, lo, hi of n patients of whom, up to each time, so many had the outcome or left."""
    counted = np.flatnonzero(np.diff(lost, prepend=-1))
    gone = np.interp(time, time[counted], lost[counted])
    events = np.diff(had, prepend=0)
    exposed = n - (had - events) - (gone + np.append(0, gone[:-1])) / 2
    survival = np.cumprod(1 - events / exposed)
    error = np.sqrt(np.cumsum(events / (exposed * (exposed - events))))
    log = np.where(survival < 1, np.log(survival), -1.0)
    lo, hi = (survival ** np.exp(sign * Z95 * error / log) for sign in (-1, 1))
    return {"survival": survival, "lo": lo, "hi": hi}


def guarded(count: int, floor: int = FLOOR) -> int | str:
    """A number of patients as it may be shown: "<11" for 1 to 10."""
    return f"<{floor}" if 0 < count < floor else int(count)
