"""Curves and tests of survival: by hand, by plain NumPy, by R, and what others may see of them."""

import shutil
import subprocess
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2 as chi2_law
from scipy.stats import norm

from daniel.errors import InputError, ParameterError
from daniel.evaluate.clusters import _sizes
from daniel.evaluate.survival import (
    _counted,
    check_survival,
    guarded,
    in_tens,
    kaplan_meier,
    logrank,
    median_on_lines,
    median_time,
    released,
    rounded,
)

RSCRIPT = shutil.which("Rscript")
HAS_SURVIVAL = (
    RSCRIPT is not None
    and subprocess.run([RSCRIPT, "-e", "library(survival)"], capture_output=True).returncode == 0
)
R_FIT = """
library(survival)
d <- read.csv("{folder}/in.csv")
f <- survfit(Surv(time, event) ~ 1, data = d, conf.type = "log-log")
out <- data.frame(time = f$time, surv = f$surv, lo = f$lower, hi = f$upper, risk = f$n.risk)
write.csv(format(out, digits = 17), "{folder}/curve.csv", row.names = FALSE, quote = FALSE)
t <- survdiff(Surv(time, event) ~ group, data = d)
m <- summary(f)$table[c("median", "0.95LCL", "0.95UCL")]
p <- pchisq(t$chisq, sum(t$exp > 0) - 1, lower.tail = FALSE)  # as print.survdiff
cat(format(c(t$chisq, p, m), digits = 17), sep = "\\n", file = "{folder}/test.txt")
"""


def problem(seed, n=400, groups=3):
    """Whole days, so many ties, also of events with censorings; hazards differ a little."""
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=n)
    time = np.ceil(rng.exponential(300 / (1 + 0.3 * group)))
    last = np.ceil(rng.uniform(30, 900, n))
    return np.minimum(time, last), (time <= last).astype(int), group


def logrank_by_hand(time, event, group):
    """O - E and its covariance, summed over the days with an event."""
    names = np.unique(group)
    gap, cov = np.zeros(names.size), np.zeros((names.size, names.size))
    for day in np.unique(time[event == 1]):
        at_risk = np.array([((time >= day) & (group == g)).sum() for g in names], float)
        died = np.array([((time == day) & (event == 1) & (group == g)).sum() for g in names])
        n, d = at_risk.sum(), died.sum()
        gap += died - d * at_risk / n
        if n > 1:
            share = at_risk / n
            cov += d * (n - d) / (n - 1) * (np.diag(share) - np.outer(share, share))
    z, C = gap[:-1], cov[:-1, :-1]
    return z @ np.linalg.solve(C, z)


def test_a_curve_by_hand():
    """Six patients: events at 1, 3, 3, 5; censored at 2 and 3."""
    curve = kaplan_meier([1, 2, 3, 3, 3, 5], [1, 0, 1, 1, 0, 1])
    assert curve["time"].tolist() == [0, 1, 2, 3, 5]
    np.testing.assert_allclose(curve["survival"], [1, 5 / 6, 5 / 6, 5 / 12, 0], atol=1e-12)
    assert curve["at_risk"].tolist() == [6, 6, 5, 4, 1]
    assert curve["events"].tolist() == [0, 1, 0, 2, 1]
    assert curve["censored"].tolist() == [0, 0, 1, 1, 0]
    # log-log: S^exp(±z s), s² = Greenwood's sum / log(S)²
    greenwood = 1 / (6 * 5) + 2 / (4 * 2)
    s = np.sqrt(greenwood) / abs(np.log(5 / 12)) * norm.ppf(0.975)
    np.testing.assert_allclose(curve["lo"][3], (5 / 12) ** np.exp(s), atol=1e-12)
    np.testing.assert_allclose(curve["hi"][3], (5 / 12) ** np.exp(-s), atol=1e-12)
    assert curve["lo"][4] == 0 and curve["hi"][4] == curve["hi"][3]
    assert median_time(curve)[0] == 3


def test_a_log_rank_test_by_hand():
    """Two groups of three, all with the outcome: 1, 2, 3 against 4, 5, 6 days."""
    found = logrank([1, 2, 3, 4, 5, 6], [1] * 6, list("aaabbb"))
    expected = 3 / 6 + 2 / 5 + 1 / 4
    variance = 3 * 3 / 36 + 2 * 3 / 25 + 1 * 3 / 16
    assert found.chi2 == pytest.approx((3 - expected) ** 2 / variance, abs=1e-12)
    assert found.dof == 1
    assert found.p_value == pytest.approx(chi2_law.sf(found.chi2, 1), abs=1e-12)


def test_a_group_that_left_before_the_first_outcome_is_no_degree_of_freedom():
    early = logrank([1, 2, 3, 4, 5, 6, 0.1, 0.2], [1] * 6 + [0, 0], list("aaabbbcc"))
    assert early == logrank([1, 2, 3, 4, 5, 6], [1] * 6, list("aaabbb"))
    with pytest.raises(InputError, match="before the first outcome"):
        logrank([1, 2, 3, 0.1, 0.2], [1, 1, 1, 0, 0], list("aaacc"))


@pytest.mark.parametrize("seed", range(3))
def test_plain_numpy_agrees(seed):
    time, event, group = problem(seed)
    found = logrank(time, event, group)
    assert found.chi2 == pytest.approx(logrank_by_hand(time, event, group), rel=1e-9)
    assert found.p_value == pytest.approx(chi2_law.sf(found.chi2, 2), rel=1e-9)
    curve = kaplan_meier(time, event)
    share = 1.0
    for day, survival in zip(curve["time"], curve["survival"], strict=True):
        share *= 1 - ((time == day) & (event == 1)).sum() / (time >= day).sum()
        assert survival == pytest.approx(share, abs=1e-12)


@pytest.mark.skipif(not HAS_SURVIVAL, reason="R with the package survival is not installed")
@pytest.mark.parametrize("early", [False, True], ids=["all stay", "a group leaves early"])
@pytest.mark.parametrize("seed", range(3))
def test_r_agrees(seed, early, tmp_path):
    time, event, group = problem(seed)
    if early:
        gone = group == group[0]
        time, event = np.where(gone, 0.5, time + 1), np.where(gone, 0, event)
    pd.DataFrame({"time": time, "event": event, "group": group}).to_csv(tmp_path / "in.csv")
    script = R_FIT.format(folder=tmp_path.as_posix())
    subprocess.run([RSCRIPT, "-e", script], check=True, capture_output=True)
    of_r = pd.read_csv(tmp_path / "curve.csv", skipinitialspace=True)
    ours = kaplan_meier(time, event).iloc[1:].reset_index(drop=True)
    np.testing.assert_array_equal(ours["time"], of_r["time"])
    np.testing.assert_array_equal(ours["at_risk"], of_r["risk"])
    np.testing.assert_allclose(ours["survival"], of_r["surv"], atol=1e-8, rtol=0)
    inside = (ours["survival"] > 0) & (ours["survival"] < 1)  # R has no log-log band elsewhere
    assert inside.sum() > 50
    for name in ("lo", "hi"):
        np.testing.assert_allclose(ours[name][inside], of_r[name][inside], atol=1e-8, rtol=0)
    chi2, p, *median = np.loadtxt(tmp_path / "test.txt")
    found = logrank(time, event, group)
    assert found.chi2 == pytest.approx(chi2, abs=1e-8)
    assert found.p_value == pytest.approx(p, abs=1e-8)
    assert median_time(kaplan_meier(time, event)) == tuple(median)


@pytest.mark.parametrize("floor", [5, 11])
@pytest.mark.parametrize("seed", range(5))
def test_what_others_see_is_never_about_few(seed, floor):
    time, event, _ = problem(seed, n=[63, 205, 409, 1007, 3000][seed])
    exact = kaplan_meier(time, event)
    seen = released(exact, floor=floor)
    assert seen["time"].iloc[0] == 0 and seen["survival"].iloc[0] == 1
    assert seen["at_risk"].iloc[0] == rounded(time.size, floor) <= time.size
    assert seen["at_risk"].min() >= floor
    assert (seen["time"] % 30 == 0).all() and (np.diff(seen["time"]) > 0).all()
    assert seen.notna().all(axis=None)
    assert seen["events"].iloc[-1] > 0
    for count in (*seen["events"], *seen["censored"], *-np.diff(seen["at_risk"])):
        assert count == 0 or count >= floor
    for day, *told in (
        seen[["time", "events", "censored"]].cumsum().assign(time=seen["time"]).values
    ):
        for kind, count in zip((1, 0), told, strict=True):
            assert 0 <= ((time <= day) & (event == kind)).sum() - count < floor


def early_leavers(seed, n=73):
    """One in nine has the outcome in a year, and four in ten are last seen."""
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(9 * 365, n))
    last = np.ceil(rng.exponential(2.5 * 365, n).clip(max=5 * 365))
    return np.minimum(time, last), (time <= last).astype(int)


@pytest.mark.parametrize("n", [73, 150, 159, 300, 309])
@pytest.mark.parametrize("seed", range(8))
def test_numbers_at_risk_are_close_though_most_leave_early(seed, n):
    """They were counted with the next eleven outcomes, and were up to 53 too large.

    Of 309 patients nine are not told, so numbers may be nine less than otherwise.
    """
    time, event = early_leavers(seed, n)
    exact = kaplan_meier(time, event)
    seen = released(exact)
    days = np.arange(0, seen["time"].iloc[-1] + 1, 30)
    told = seen["at_risk"].to_numpy()[np.searchsorted(seen["time"], days, side="right") - 1]
    truth = (time > days[:, None]).sum(axis=1)
    assert (told - truth <= 10).all() and (truth - told <= 10 + n % 10).all()
    assert gap(exact, seen) < 0.08


def gap(exact, seen):
    """The largest difference of the lines from the exact curve, on any day."""
    days = np.arange(seen["time"].iloc[-1] + 1)
    there = exact.iloc[exact["time"].searchsorted(days, side="right") - 1]
    lines = np.interp(days, seen["time"], seen["survival"])
    return np.abs(lines - there["survival"].to_numpy()).max()


@pytest.mark.parametrize(("n", "far"), [(60, 0.14), (200, 0.05), (1000, 0.02), (3000, 0.012)])
@pytest.mark.parametrize("more", [0, 5, 9])
@pytest.mark.parametrize("seed", range(5))
def test_what_others_see_is_close_to_the_exact_curve(n, far, more, seed):
    """Whatever rounding to tens takes off."""
    time, event, _ = problem(seed, n=n + more)
    exact = kaplan_meier(time, event)
    seen = released(exact)
    assert gap(exact, seen) < far
    there = exact.iloc[exact["time"].searchsorted(seen["time"], side="right") - 1]
    for name in ("lo", "hi"):
        np.testing.assert_allclose(seen[name], there[name], atol=far, rtol=0)
    if n >= 200:
        within = 0.15 if n == 200 else 0.05
        assert median_on_lines(seen)[0] == pytest.approx(median_time(exact)[0], rel=within)


def bunched(seed, n, kind):
    """Outcomes, and leaving, of which either comes in bunches."""
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(1000, n))
    last = {
        "one year or three": np.where(np.arange(n) % 2, 1095, 365),
        "most one year": np.where(np.arange(n) % 5, 365, 1095),
        "whole years": 365 * rng.integers(1, 4, n) - rng.integers(0, 30, n),
        "late outcomes": np.full(n, 1500),
    }[kind]
    if kind == "late outcomes":
        time = 700 + np.ceil(rng.exponential(400, n))
    return np.minimum(time, last).astype(float), (time <= last).astype(int)


@pytest.mark.parametrize("n", [1000, 3000])
@pytest.mark.parametrize(
    "kind", ["one year or three", "most one year", "whole years", "late outcomes"]
)
@pytest.mark.parametrize("seed", range(3))
def test_many_who_leave_at_once_do_not_bend_the_curve(seed, kind, n):
    """They were spread over all the time since such were counted, up to .17 off."""
    exact = kaplan_meier(*bunched(seed, n, kind))
    seen = released(exact)
    assert gap(exact, seen) < 0.04
    assert median_on_lines(seen)[0] == pytest.approx(median_time(exact)[0], rel=0.05)


def test_a_curve_keeps_high_until_a_step_before_outcomes_come():
    """400 of 1,000 at a check-up after a year: the line ran down from the first day."""
    time = np.repeat([370.0, 800.0], [400, 600])
    seen = released(kaplan_meier(time, time == 370)).set_index("time")
    assert seen.index.tolist() == [0, 360, 390]
    assert seen["survival"].tolist() == [1, 0.99, 0.602]  # as of 1,004 patients
    assert seen["events"].tolist() == [0, 0, 400] and seen["at_risk"].tolist() == [1000, 1000, 600]


def test_nothing_follows_from_all_that_is_told():
    """Of every history of few patients: those that look alike differ in each small number.

    Numbers are those of any time between two rows of the grid: who had the outcome, was last seen,
    or either, and who is left; told are the rows, the rounded number of patients, and the total.
    """
    floor, steps = 3, 3
    spans = list(combinations(range(steps + 1), 2))

    @cache
    def total(n, had, events, censored):
        curve = pd.DataFrame({"events": [events], "censored": [censored]})
        sizes = _sizes(np.ones(n, int), np.arange(n) < had, {1: curve}, floor)
        return sizes["patients"].item(), sizes["events"].item()

    alike: dict[object, list[np.ndarray]] = {}
    for n in (8, 9, 10, 11):
        for bars in combinations(range(n + 2 * steps - 1), 2 * steps - 1):
            parts = np.diff([-1, *bars, n + 2 * steps - 1]) - 1
            sums = np.pad(parts.reshape(2, steps).cumsum(axis=1), ((0, 0), (1, 0)))
            rows = _counted(rounded(n, floor), *sums[:, 1:], floor)
            told = rows.tobytes(), total(n, sums[0, -1], *rows[-1, 1:3])
            both = np.vstack([sums, sums.sum(axis=0)])
            numbers = [both[:, j] - both[:, i] for i, j in spans] + [n - both[2], [n]]
            alike.setdefault(told, []).append(np.concatenate(numbers))
    assert len(alike) > 20
    for numbers in map(np.array, alike.values()):
        known = numbers[0][(numbers == numbers[0]).all(axis=0)]
        assert not ((known > 0) & (known < floor)).any()


def test_without_censoring_what_others_see_is_exact():
    """Of 504 patients, whom sizes from 500 to 509 stand for."""
    time = problem(0, n=504)[0]
    exact = kaplan_meier(time, np.ones_like(time))
    seen = released(exact)
    seen = seen[seen["events"] > 0]
    there = exact.iloc[exact["time"].searchsorted(seen["time"], side="right") - 1]
    for name in ("survival", "lo", "hi"):
        np.testing.assert_allclose(seen[name], there[name], atol=6e-4, rtol=0)


def test_shares_do_not_tell_how_few_were_censored():
    """11 / (1 - S) would be the number that was left when eleven had the outcome."""

    def seen(censored):
        time = np.repeat([1, 15, 400], [censored, 11, 29 - censored])
        return released(kaplan_meier(time, time == 15))

    for censored in range(1, 11):
        pd.testing.assert_frame_equal(seen(censored), seen(0))


def test_nothing_tells_what_rounding_took_off():
    """Of 201 and of 207 the curves and numbers at risk were other ones, and so told the six."""

    def seen(n):
        time = np.repeat([15, 400, 2000], [60, 40, n - 100])
        return released(kaplan_meier(time, time < 2000))

    for n in range(201, 210):
        pd.testing.assert_frame_equal(seen(n), seen(200))
    assert seen(210)["at_risk"].iloc[0] == 210


def test_enough_patients_show_a_curve():
    """The rules do not hide everything: thousands of patients give dozens of rows."""
    time, event, _ = problem(0, n=3000)
    assert len(released(kaplan_meier(time, event))) >= 15
    few = slice(29)
    assert len(released(kaplan_meier(time[few], event[few]))) == 1  # time 0 alone


def test_a_finer_grid_is_refused():
    with pytest.raises(ParameterError, match="at least 30"):
        released(kaplan_meier([1, 2], [1, 1]), grid=7)


def test_the_median_that_is_not_reached_is_infinite():
    for median in (median_time, median_on_lines):
        assert median(kaplan_meier([5, 6, 7], [0, 0, 0])) == (float("inf"),) * 3


def test_small_numbers_are_guarded():
    assert [guarded(n) for n in (0, 1, 10, 11, 500)] == [0, "<11", "<11", 11, 500]


def test_sizes_are_told_in_tens():
    told = {0: 0, 1: "<11", 10: "<11", 11: "11-19", 19: "11-19", 20: 20, 29: 20, 509: 500}
    assert {n: in_tens(n) for n in told} == told
    assert [in_tens(n, 25) for n in (24, 25, 29, 30)] == ["<25", "25-29", "25-29", 30]
    assert [in_tens(n, 1) for n in (0, 1, 57)] == [0, 1, 57]  # nothing to protect


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"time": [1.0, 0.0]}, "not above 0"),
        ({"time": [1.0, float("nan")]}, "missing"),
        ({"time": ["1", "x"]}, "missing"),
        ({"time": [1.0, 3e15]}, "above 150 years"),
        ({"event": [0, 2]}, "0 .last seen. and 1"),
        ({"patient": [7, 7]}, "twice"),
        ({"patient": None}, "lacks patient"),
    ],
)
def test_wrong_tables_are_refused_without_a_patient(change, says):
    table = pd.DataFrame({"patient": [71, 72], "time": [1.0, 2.0], "event": [0, 1]}).assign(
        **change
    )
    if change.get("patient", ...) is None:
        table = table.drop(columns="patient")
    with pytest.raises(InputError, match=says) as error:
        check_survival(table)
    assert "7" not in str(error.value)


def test_times_of_another_unit_do_not_fill_the_memory():
    with pytest.raises(InputError, match="above 150 years"):
        released(kaplan_meier([1e15, 2e15], [1, 1]))


def test_nothing_to_compare_is_said():
    with pytest.raises(InputError, match="two groups"):
        logrank([1, 2], [1, 1], [0, 0])
    with pytest.raises(InputError, match="Nobody has the outcome"):
        logrank([1, 2], [0, 0], [0, 1])


def test_numpy_warns_after_a_curve_as_before():
    """lifelines turns its warnings off, for the whole process."""
    with np.errstate(divide="warn", invalid="raise"):
        before = np.geterr()
        kaplan_meier([1, 2, 3], [1, 0, 1])
        assert np.geterr() == before
