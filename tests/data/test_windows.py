"""Dates and windows: the SQL against dateutil, and the cases that go wrong."""

from bisect import bisect_right
from datetime import date, timedelta

import duckdb
import numpy as np
import pandas as pd
import pytest
from dateutil.relativedelta import relativedelta

from daniel.data.windows import date_of, window_of
from daniel.study import Window


def windows(window, pairs):
    """window_of for (first, date) pairs, by the package's SQL."""
    rows = ", ".join(f"(DATE '{first}', DATE '{day}')" for first, day in pairs)
    sql = f"SELECT {window_of(window, 'd', 'f')} FROM (VALUES {rows}) t(f, d)"
    return [row[0] for row in duckdb.sql(sql).fetchall()]


@pytest.mark.parametrize(
    ("first", "day", "expected"),
    [
        ("2020-08-31", "2021-02-27", 0),
        ("2020-08-31", "2021-02-28", 1),  # 31 August + 6 months in a common year
        ("2019-08-31", "2020-02-28", 0),
        ("2019-08-31", "2020-02-29", 1),  # ... and in a leap year
        ("2020-08-31", "2021-08-30", 1),  # counted from the first event, not from 28 February
        ("2020-08-31", "2021-08-31", 2),
        ("2020-02-29", "2020-08-28", 0),
        ("2020-02-29", "2020-08-29", 1),
        ("2020-02-29", "2021-02-27", 1),
        ("2020-02-29", "2021-02-28", 2),
        ("2020-01-15", "2020-01-15", 0),
        ("2020-01-15", "2020-07-14", 0),
        ("2020-01-15", "2020-07-15", 1),
        ("1899-12-31", "2000-06-30", 201),
    ],
)
def test_boundaries(first, day, expected):
    assert windows(Window(), [(first, day)]) == [expected]


@pytest.mark.parametrize("months", [1, 5, 6, 18])
def test_every_day_is_where_dateutil_puts_it(months):
    rng = np.random.default_rng(months)
    first = [date(1996, 1, 1) + timedelta(int(d)) for d in rng.integers(0, 3000, 300)]
    first += [date(2019, 8, d) for d in range(28, 32)] * 10 + [date(2020, 2, 29)] * 20
    days = rng.integers(0, 2500, len(first))
    day = [f + timedelta(int(d)) for f, d in zip(first, days, strict=True)]
    expected = [
        bisect_right([f + relativedelta(months=months * k) for k in range(90)], d) - 1
        for f, d in zip(first, day, strict=True)
    ]
    assert windows(Window(months=months), list(zip(first, day, strict=True))) == expected


def test_calendar_windows_are_the_same_for_everyone(run):
    result = run(
        "patient,time,code\na,2020-06-30,x\na,2020-07-01,x\nb,2020-12-31,x\nb,2021-01-01,x\n",
        "version = 1\n[codes]\nminimum_patients = 1\n[window]\nstart = 'calendar'\n",
    )
    assert {(p, w - 4040) for p, w, _ in result.cells} == {("a", 0), ("a", 1), ("b", 1), ("b", 2)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-03-01", "2020-03-01"),
        (" 2020-03-01 ", "2020-03-01"),
        ("20200301", "2020-03-01"),
        ("2020-03-01 23:59:59", "2020-03-01"),
        ("2020-03-01T23:59:59.999", "2020-03-01"),
        ("2020-03-01T00:30:00Z", "2020-03-01"),
        ("2020-03-01T00:30:00+02:00", "2020-02-29"),
        ("2020-03-01 00:30:00+02", "2020-02-29"),
        ("2020-02-29T22:30:00-0500", "2020-03-01"),
        ("2020-02-29", "2020-02-29"),
        ("2021-02-29", None),
        ("2020-13-01", None),
        ("01/03/2020", None),
        ("2020-03", None),
        ("yesterday", None),
        ("1/2/20", None),
        ("2020/03/01", "2020-03-01"),
        ("", None),
    ],
)
def test_days_of_texts(text, expected):
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    sql = f"SELECT CAST({date_of('t', 'VARCHAR')} AS VARCHAR) FROM (SELECT ? AS t)"
    assert con.execute(sql, [text]).fetchone() == (expected,)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ"])
def test_infinity_is_no_day(run, tmp_path, kind):
    times = f"unnest(['infinity', '-infinity', '2020-01-01'])::{kind} AS time"
    path = tmp_path / "events.parquet"
    duckdb.sql(f"SELECT 1 AS patient, {times}, 'x' AS code").write_parquet(str(path))
    result = run(path)
    assert result.cells == {("1", 0, "x")}
    assert result.info["facts"]["events"]["with an unreadable date"] == 2


def test_an_instant_has_the_day_of_the_sites_clock(run, tmp_path):
    """The same instants as text and as Parquet, in two zones; times without a zone stay."""
    instants = pd.to_datetime(["2020-01-31T12:00Z", "2020-07-30T23:30Z"], utc=True)
    frame = pd.DataFrame({"patient": [1, 1], "time": instants, "code": ["x", "y"]})
    frame.to_parquet(tmp_path / "instants.parquet")
    frame.to_csv(tmp_path / "instants.csv", index=False)
    for name in ("instants.parquet", "instants.csv"):
        utc = run(tmp_path / name).cells
        assert utc == {("1", 0, "x"), ("1", 0, "y")}  # 30 July: the last day of the window
        berlin = run(tmp_path / name, timezone="Europe/Berlin").cells
        assert berlin == {("1", 0, "x"), ("1", 1, "y")}  # 31 July
    frame["time"] = frame["time"].dt.tz_localize(None)
    frame.to_parquet(tmp_path / "local.parquet")
    assert run(tmp_path / "local.parquet", timezone="Europe/Berlin").cells == utc
