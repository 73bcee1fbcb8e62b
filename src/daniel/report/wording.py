"""Codes, numbers and intervals in the words of a report."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from daniel.report.page import NOTHING

Descriptions = Mapping[str, str]

NOT_REACHED = "not reached"


def named(code: str, descriptions: Descriptions) -> str:
    return joined(code, descriptions.get(code) or code)


def joined(code: str, label: str) -> str:
    return code if label == code else f"{label} ({code})"


def number(value: float, digits: int = 3) -> str:
    return NOTHING if pd.isna(value) else f"{value:.{digits}f}"


def interval(row: pd.Series, digits: int = 3) -> str:
    if pd.isna(row["lo"]):
        return NOTHING
    return f"{number(row['lo'], digits)} to {number(row['hi'], digits)}"


def count(n: int | str) -> str:
    return n if isinstance(n, str) else f"{n:,}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def bound(share: float, sign: str) -> str:
    """Percents; a bound as the next whole number that is beyond it for certain."""
    whole = round(100 * share, 6)
    if sign == "≤":
        return f"<{math.floor(whole) + 1} %"
    return f">{math.ceil(whole) - 1} %" if sign == "≥" else percent(share)


def days(time: float) -> str:
    if pd.isna(time):
        return "not shown"
    return f"{time:,.0f}" if np.isfinite(time) else NOT_REACHED


def span(lo: float, hi: float) -> str:
    """An interval in days; one that does not begin before the curve ends is none."""
    if pd.isna(lo) or np.isinf(lo):
        return days(lo)
    return f"{days(lo)} to {days(hi)}" if np.isfinite(hi) else f"{days(lo)} or more"
