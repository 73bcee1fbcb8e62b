"""Dates and windows in SQL.

A window is a span of whole months.  Windows of a patient start at the first event: window k holds
the dates from first + k·months on, and before first + (k+1)·months, where a day that a month does
not have is its last one (31 August + 6 months = 28 or 29 February).  Calendar windows are counted
from January of year 0, so that their numbers mean the same at every site.
"""

from daniel.study import Window

ISO = "[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}"
OFFSET = r"[0-9](Z|z| ?UTC|[+-][0-9]{2}(:?[0-9]{2})?)$"


def date_of(column: str, kind: str) -> str:
    """The calendar day of a column of DuckDB type `kind`, NULL where it holds none.

    A time with a zone is an instant: its day is that of the engine's time zone, the site's clock.
    Databases know a date 'infinity', which is in no window.
    """
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return f"CASE WHEN isfinite({column}) THEN CAST({column} AS DATE) END"
    if kind != "VARCHAR":
        return _day_of_text(f"CAST({column} AS VARCHAR)")
    return _day_of_text(column)


def _day_of_text(column: str) -> str:
    """ISO dates and times, with or without offset, and 20200131."""
    trimmed = f"trim({column})"
    day = f"split_part(split_part({trimmed}, ' ', 1), 'T', 1)"
    return (
        f"CASE WHEN regexp_full_match({day}, '[0-9]{{8}}') "
        f"THEN CAST(try_strptime({day}, '%Y%m%d') AS DATE) "
        f"WHEN NOT regexp_full_match({day}, '{ISO}') THEN NULL "
        f"WHEN length({trimmed}) > 10 AND regexp_matches({trimmed}, '{OFFSET}') "
        f"THEN CAST(TRY_CAST({trimmed} AS TIMESTAMPTZ) AS DATE) "
        f"ELSE TRY_CAST({day} AS DATE) END"
    )


def window_of(window: Window, date: str, first: str) -> str:
    """Number of the window that holds a date of a patient with a first event."""
    if window.start == "calendar":
        return f"(year({date}) * 12 + month({date}) - 1) // {window.months}"
    apart = f"(year({date}) - year({first})) * 12 + month({date}) - month({first})"
    not_yet = f"CAST(day({date}) < least(day({first}), day(last_day({date}))) AS INTEGER)"
    return f"({apart} - {not_yet}) // {window.months}"
