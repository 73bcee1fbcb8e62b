"""`daniel cohort`: options, the plan of a cohort, and its making."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from daniel.data import sitefolder
from daniel.data.cohort.codes import check_numbers
from daniel.data.cohort.events import ADMISSION_RATE, ADMISSION_SLOPE, UnitEvents, date_unit
from daniel.data.cohort.files import (
    subject_ids,
    write_about,
    write_data,
    write_metadata,
    write_patients,
    write_truth,
)
from daniel.data.cohort.patients import (
    AFTER_ONSET,
    ONSET_RATE,
    ONSET_SLOPE,
    UNIT,
    Histories,
    HospitalLaw,
    UnitRecords,
    check_total,
    draw_unit,
    make_histories,
    make_law,
)
from daniel.data.cohort.truth import Truth, make_truth
from daniel.errors import ParameterError

Progress = Callable[[str, float], None]
Columns = dict[str, np.ndarray]
Item = TypeVar("Item")

PAPER_CODES = (1_339, 175, 628)  # PheCode, CCS, RxNorm
PAPER_PATIENTS = (28_955, 29_293)
PAPER_RECORDS = (400_904, 505_626)
CODES_PER_RECORD = 15.0
REPEATS = 1.3  # events of a code in a window, unless a number of events is asked for
LEAST_REPEATS = 1.1  # a number of events must leave room for codes beyond the mean
MOST_PATIENTS = 10_000_000  # of a hospital: their ids have eight digits
MOST_EVENTS = 10_000_000_000
HAZARDS = {
    "onset_rate": ONSET_RATE,
    "onset_slope": ONSET_SLOPE,
    "dementia_code_after_onset": AFTER_ONSET,
    "admission_rate": ADMISSION_RATE,
    "admission_slope": ADMISSION_SLOPE,
}
DATES = 5  # stream of random numbers
AHEAD = 8  # units that wait for their turn


@dataclass(frozen=True)
class Options:
    """What to make.

    patients, records: one number for each hospital.  codes: numbers of PheCodes, CCS and RxNorm
    codes.  events: dated codes of all hospitals together, by repeating codes within their window.
    pure: no care intensities, no dementia stages and no hazards, so that every record of a hospital
    has one Ising law.  independent_hazard: admission and death do not depend on the latent patient.
    """

    patients: tuple[int, ...]
    records: tuple[int, ...]
    codes: tuple[int, int, int]
    codes_per_record: float
    events: int | None = None
    pure: bool = False
    independent_hazard: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.patients or min(self.patients) < 1:
            raise ParameterError("A hospital without patients was asked for: give each at least 1.")
        for name, value, most in (
            ("patients", max(self.patients), MOST_PATIENTS),
            ("events", self.events or 0, MOST_EVENTS),
        ):
            if value > most:
                raise ParameterError(f"{name} is {value:,}: expected at most {most:,}.")
        if len(self.records) != len(self.patients):
            raise ParameterError("records and patients must have one number for each hospital.")
        for n, total in zip(self.patients, self.records, strict=True):
            check_total(n, total)
        check_numbers(*self.codes)
        if not 1 <= self.codes_per_record <= sum(self.codes) / 25:
            raise ParameterError(
                f"codes_per_record is {self.codes_per_record:g}: expected 1 to a 25th of the "
                f"{sum(self.codes):,} codes."
            )
        if self.seed < 0:
            raise ParameterError(f"seed is {self.seed}: expected 0 or more.")
        if self.pure and self.independent_hazard:
            raise ParameterError("pure has no hazards, so independent_hazard does not go with it.")
        least = LEAST_REPEATS * self.codes_per_record * sum(self.records)
        if self.events is not None and self.events < least:
            raise ParameterError(
                f"events is {self.events:,}, but the records alone hold about "
                f"{least / LEAST_REPEATS:,.0f} codes: ask for at least {least:,.0f}."
            )


def read_options(
    *,
    paper: bool = False,
    hospitals: int | None = None,
    patients: Sequence[int] = (),
    records_per_patient: float | None = None,
    codes: int | None = None,
    codes_per_record: float | None = None,
    events: float | None = None,
    **others: Any,
) -> Options:
    """Options from what a user says; `paper` takes the size of the paper's study.

    The paper's sizes are n_1 and n_2 of its section on the EHR data; its appendix has other numbers
    of records (505,626 and 101,093).
    """
    for name, value in (("records_per_patient", records_per_patient), ("events", events)):
        if value is not None and not np.isfinite(value):
            raise ParameterError(f"{name} is {value}: expected a number.")
    events = None if events is None else round(events)
    if paper:
        given = (hospitals, patients or None, records_per_patient, codes, codes_per_record)
        if any(value is not None for value in given):
            raise ParameterError(
                "--paper fixes hospitals, patients, records and codes: leave those options out."
            )
        return Options(
            PAPER_PATIENTS, PAPER_RECORDS, PAPER_CODES, CODES_PER_RECORD, events, **others
        )
    n = tuple(patients) or (2_000,)
    if hospitals is None:
        hospitals = max(2, len(n))
    if hospitals < 1:
        raise ParameterError(f"hospitals is {hospitals}: expected at least 1.")
    if len(n) == 1:
        n *= hospitals
    if len(n) != hospitals:
        raise ParameterError(
            f"{len(n)} numbers of patients were given for {hospitals} hospitals: "
            "give one for all of them, or one for each."
        )
    mean = 12.0 if records_per_patient is None else records_per_patient
    total = 600 if codes is None else codes
    if codes_per_record is None:
        codes_per_record = min(CODES_PER_RECORD, total / 40)
    records = tuple(round(k * mean) for k in n)
    return Options(n, records, split_codes(total), codes_per_record, events, **others)


def split_codes(total: int) -> tuple[int, int, int]:
    """A number of codes in the proportions of the paper's vocabularies."""
    phecode, ccs = (round(total * k / sum(PAPER_CODES)) for k in PAPER_CODES[:2])
    return phecode, max(2, ccs), total - phecode - max(2, ccs)


def plan(options: Options) -> list[Histories]:
    """Patients and records of every hospital, without drawing a code."""
    return [
        make_histories(n, total, options.seed, number, pure=options.pure)
        for number, (n, total) in enumerate(zip(options.patients, options.records, strict=True), 1)
    ]


def make_cohort(
    options: Options, out: str | Path, *, progress: Progress | None = None, workers: int = 0
) -> dict[str, Any]:
    """Draw a cohort and write it to the new folder `out`; returns what cohort.json holds.

    The same options give the same numbers, whatever the number of workers (0: one a core).
    """
    histories = plan(options)
    tell = progress or (lambda stage, share: None)
    with (
        sitefolder.new(Path(out)) as part,
        ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool,
    ):
        part.chmod(0o755)  # a synthetic cohort holds nobody's data
        return _Maker(options, part, pool, tell).run(histories)


class _Maker:
    """One run: the truth, then hospital by hospital its law, records and files."""

    def __init__(
        self, options: Options, out: Path, pool: ThreadPoolExecutor, tell: Progress
    ) -> None:
        self.options, self.out, self.pool, self.tell = options, out, pool, tell

    def run(self, histories: list[Histories]) -> dict[str, Any]:
        options = self.options
        self.tell("truth", 0)
        truth = make_truth(*options.codes, options.codes_per_record, options.seed)
        self.tell("truth", 1)
        laws = list(
            self._each(
                "prevalences",
                lambda k: make_law(truth, k + 1, options.codes_per_record, pure=options.pure),
                len(histories),
            )
        )
        write_truth(self.out / "truth", truth, laws)
        hospitals, outcomes = zip(
            *map(partial(self._hospital, truth), laws, histories), strict=True
        )
        write_patients(self.out / "truth", _joined(outcomes))
        about = {
            "options": asdict(options),
            "hospitals": list(hospitals),
            "hazards": None if options.pure else HAZARDS,
        }
        write_about(self.out, about)
        return about

    def _hospital(
        self, truth: Truth, law: HospitalLaw, history: Histories
    ) -> tuple[dict[str, Any], Columns]:
        """Draw and write one hospital: its counts, and what became of its patients."""
        name = f"hospital-{law.number}"
        n = history.counts.size
        n_units = -(-n // UNIT)
        drawn = list(
            self._each(f"{name} records", lambda k: draw_unit(truth, law, history, k), n_units)
        )
        risk = np.concatenate([unit.risk for unit in drawn])
        risk = (risk - risk.mean()) / max(risk.std(), 1e-9)
        dating = _Dating(self.options, law.number, truth.book.dementia, history, drawn, risk)
        outcomes: list[Columns] = []

        def units() -> Iterator[tuple[int, UnitEvents]]:
            for k, events in enumerate(self._each(f"{name} files", dating.unit, n_units)):
                outcomes.append(events.outcome)
                yield k * UNIT, events

        n_events = write_data(self.out / name, law.number, truth.book.names, units())
        write_metadata(self.out / name, truth, name)
        found = {
            "name": name,
            "patients": n,
            "records": int(history.counts.sum()),
            "codes_in_records": sum(unit.code.size for unit in drawn),
            "events": n_events,
        }
        who = {
            "hospital": np.full(n, name),
            "subject_id": subject_ids(law.number, np.arange(n)),
            "care": history.care,
            "risk": risk,
        }
        return found, who | _joined(outcomes)

    def _each(self, stage: str, make: Callable[[int], Item], n: int) -> Iterator[Item]:
        """make(0), make(1), ... in order, a few ahead of the one that is asked for."""
        ahead: deque[Future[Item]] = deque()
        for k in range(n):
            ahead.append(self.pool.submit(make, k))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
                self.tell(stage, (k + 1 - len(ahead)) / n)
        for future in ahead:
            yield future.result()
        self.tell(stage, 1)


@dataclass(frozen=True)
class _Dating:
    """What turns the records of a hospital's units into events."""

    options: Options
    number: int
    dementia: int
    history: Histories
    drawn: list[UnitRecords]
    risk: np.ndarray

    def unit(self, k: int) -> UnitEvents:
        here = slice(k * UNIT, (k + 1) * UNIT)
        rng = np.random.default_rng([self.options.seed, DATES, self.number, k])
        risk: np.ndarray | None = self.risk[here]
        if self.options.independent_hazard:
            risk = rng.standard_normal(self.risk[here].size)
        return date_unit(
            self.drawn[k],
            self.history.counts[here],
            None if self.options.pure else risk,
            self.quota[k],
            self.dementia,
            rng,
        )

    @cached_property
    def quota(self) -> np.ndarray:
        """Events of each unit: the hospital's share of all, in proportion to codes in records."""
        codes = np.array([unit.code.size for unit in self.drawn])
        if self.options.events is None:
            return np.rint(REPEATS * codes).astype(int)
        part = np.cumsum(self.options.records) / sum(self.options.records)
        ends = np.rint(self.options.events * np.append(0, part)).astype(int)
        wanted = ends[self.number] - ends[self.number - 1]
        return np.diff(np.rint(wanted * np.append(0, np.cumsum(codes) / codes.sum())).astype(int))


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
