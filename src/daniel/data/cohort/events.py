"""From records to dated events: half-years from a patient's first event, and what befalls patients.

Any rule that cuts a history into windows of 182 to 183 days or of six months from the first event
finds exactly the intended records: events keep three days away from every such border.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from daniel.data.cohort.patients import MAX_WINDOWS, UnitRecords

FIRST_DAY = np.datetime64("2011-01-01")
LAST_DAY = np.datetime64("2021-12-31")
DAY = 1440  # minutes
YEAR = 365.25 * DAY
GAPS = 0.15  # half-years without a record, for each with one
ADMISSION_RATE = 0.15  # a year after onset, at the mean risk
ADMISSION_SLOPE = 0.6  # log hazard per standard deviation of the risk
DEATH_ODDS, DEATH_SLOPE = -1.0, 0.5  # of dying when the records end
ADMISSION, DEATH = -1, -2  # stand for a code in UnitEvents


@dataclass(frozen=True)
class UnitEvents:
    """Events of a unit, sorted by patient and time, and what became of its patients.

    patient, code (m,), time (m,) in microseconds; code is a column, ADMISSION or DEATH.
    outcome: patient-level columns of truth/patients.parquet.
    """

    patient: np.ndarray
    time: np.ndarray
    code: np.ndarray
    outcome: dict[str, np.ndarray]


def date_unit(
    records: UnitRecords,
    counts: np.ndarray,
    risk: np.ndarray | None,
    n_events: int,
    dementia: int,
    rng: np.random.Generator,
) -> UnitEvents:
    """Give a unit's records dates and repeat codes within their window until there are n_events.

    counts (n,) records of each patient; risk (n,) standardised, of admission and
    death; None: neither is seen.
    """
    first, windows = _windows(counts, rng)
    row = np.cumsum(counts) - counts
    window = windows[row[records.patient] + records.record]
    repeats = rng.integers(0, window.size, max(0, n_events - window.size))
    entry = np.concatenate([np.arange(window.size), np.sort(repeats)])
    since = _minutes(window[entry], rng)
    since[np.unique(records.patient, return_index=True)[1]] = 0  # the first event starts the grid
    patient, code = records.patient[entry], records.code[entry]
    onset = _onset_minutes(records, entry, since, dementia)
    last = np.zeros(counts.size, dtype=np.int64)
    np.maximum.at(last, patient, since)
    times = _fates(onset, last, risk, rng)
    for mark, at in ((ADMISSION, times["admission"]), (DEATH, times["death"])):
        who = np.flatnonzero(at >= 0)
        patient, since = np.append(patient, who), np.append(since, at[who])
        code = np.append(code, np.full(who.size, mark))
    order = np.lexsort((since, patient))
    patient, since, code = patient[order], since[order], code[order]
    outcome = _outcome(counts, windows[row + np.maximum(records.onset, 0)], records, times, first)
    return UnitEvents(patient, _stamp(first[patient] + since), code, outcome)


def _windows(counts: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Minute of each patient's first event after FIRST_DAY, and the window of every record."""
    span = np.minimum(counts + rng.poisson(GAPS * counts), MAX_WINDOWS)
    key = rng.random((counts.size, MAX_WINDOWS))
    key[np.arange(MAX_WINDOWS) >= span[:, None]] = 2
    key[:, 0] = -1
    chosen = key.argsort(axis=1).argsort(axis=1) < counts[:, None]
    days = (LAST_DAY - FIRST_DAY).astype(int) - 182 * span
    return rng.integers(0, days * DAY), np.nonzero(chosen)[1]


def _minutes(window: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A minute after the patient's first event, well inside each window."""
    low = np.where(window == 0, 0, 183 * window + 3) * DAY
    return rng.integers(low, (182 * (window + 1) - 3) * DAY)


def _onset_minutes(
    records: UnitRecords, entry: np.ndarray, since: np.ndarray, dementia: int
) -> np.ndarray:
    """(n,) minute of the first dementia code, or -1."""
    here = records.code[entry] == dementia
    none = np.iinfo(np.int64).max
    onset = np.full(records.onset.size, none)
    np.minimum.at(onset, records.patient[entry][here], since[here])
    return np.where((records.onset >= 0) & (onset < none), onset, -1)


def _fates(
    onset: np.ndarray, last: np.ndarray, risk: np.ndarray | None, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Minutes of onset, admission, death (-1: not seen) and the end of observation.

    Admission has the hazard ``ADMISSION_RATE exp(ADMISSION_SLOPE risk)`` from onset on, and is seen
    if it comes before the patient's last record ends.
    """
    if risk is None:
        never = np.full(onset.size, -1)
        return {"onset": onset, "admission": never, "death": never, "end": last}
    rate = ADMISSION_RATE * np.exp(ADMISSION_SLOPE * risk)
    wait = rng.exponential(1 / rate) * YEAR
    seen = (onset >= 0) & (onset + wait < last)
    dies = rng.random(risk.size) < expit(DEATH_ODDS + DEATH_SLOPE * risk)
    after = rng.integers(60, 2 * DAY, risk.size)
    return {
        "onset": onset,
        "admission": np.where(seen, onset + wait, -1).astype(np.int64),
        "death": np.where(dies, last + after, -1),
        "end": last,
    }


def _outcome(
    counts: np.ndarray,
    onset_window: np.ndarray,
    records: UnitRecords,
    times: dict[str, np.ndarray],
    first: np.ndarray,
) -> dict[str, np.ndarray]:
    """Patient-level columns; years run from onset to admission or to the end of observation."""
    admitted = times["admission"] >= 0
    ill = times["onset"] >= 0
    until = np.where(admitted, times["admission"], times["end"])
    stamps = {
        name: np.where(times[name] >= 0, _stamp(first + times[name]), np.iinfo(np.int64).min)
        for name in ("onset", "admission", "death")
    }
    return {
        "records": counts,
        "onset_record": records.onset,
        "onset_window": np.where(records.onset >= 0, onset_window, -1),
        "onset_time": stamps["onset"],
        "admitted": admitted,
        "admission_time": stamps["admission"],
        "years": np.where(ill, (until - times["onset"]) / YEAR, -1.0),
        "death_time": stamps["death"],
    }


def _stamp(minutes: np.ndarray) -> np.ndarray:
    """Microseconds since 1970 of minutes since FIRST_DAY."""
    start = FIRST_DAY.astype("datetime64[us]").astype(np.int64)
    stamps: np.ndarray = start + minutes.astype(np.int64) * 60_000_000
    return stamps
