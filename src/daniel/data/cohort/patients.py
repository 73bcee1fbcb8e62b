"""The patients of a hospital: how many records each has, and what stands in them.

A patient's records are successive states of one chain of law.py, so each of them has the law of the
hospital and of the patient's care.  Care comes in six intensities, which differ in intercepts
alone; codes per record get their long tail from it.

Dementia divides a patient's records into stages.  Before onset PheCode:290.1 is held absent; each
later record is the first with it at a hazard that grows with the latent patient; afterwards its
intercept and those of its signs are raised, and the couplings raise the codes of its condition.  In
each stage the chain keeps the Ising law of that stage, but the hazard selects patients, and the
records right after onset are still on their way to the new law.
"""

from dataclasses import dataclass

import numpy as np

from daniel.data.cohort.law import Chain, calibrate
from daniel.data.cohort.truth import Truth, in_care, prevalences
from daniel.errors import ParameterError

MAX_WINDOWS = 22  # half-years of 2011 to 2021
EVENNESS = 3.0  # smaller: patients differ more in their numbers of records
UNIT = 256  # patients that are drawn together, with a random stream of their own
CARE = np.array([0.35, 0.6, 0.95, 1.5, 2.3, 3.5])  # codes in a record, light to intensive
CARE_SHARE = np.array([0.2, 0.27, 0.23, 0.16, 0.09, 0.05])  # of patients
BURN_IN = 30
MEMORY = 0.7  # of the latent patient, from one record to the next
ONSET_RATE = 0.06  # per record, at the mean risk
ONSET_SLOPE = 0.7  # log hazard per standard deviation of the latent axis of dementia
AFTER_ONSET = 0.6  # chance of PheCode:290.1 in a later record, without its condition's other codes
LAW, HISTORY, CHAIN = 2, 3, 4  # streams of random numbers


@dataclass(frozen=True)
class HospitalLaw:
    """c (care, p) intercepts, mu (care, p) the prevalences they aim at, pools of records (p, m)."""

    number: int
    c: np.ndarray
    mu: np.ndarray
    pools: tuple[np.ndarray, ...]
    pure: bool


@dataclass(frozen=True)
class Histories:
    """counts (n,) records of each patient, care (n,) intensity."""

    counts: np.ndarray
    care: np.ndarray


@dataclass(frozen=True)
class UnitRecords:
    """What a unit of patients has: one entry a code in a record, sorted by patient and record.

    patient (m,) in the unit, record (m,) of the patient, code (m,); onset (n,) record with the
    first dementia code or -1, risk (n,) mean latent frailty up to then.
    """

    patient: np.ndarray
    record: np.ndarray
    code: np.ndarray
    onset: np.ndarray
    risk: np.ndarray


def care_levels(pure: bool) -> tuple[np.ndarray, np.ndarray]:
    """Codes in a record relative to the mean, and shares of patients, of each intensity."""
    if pure:
        return np.ones(1), np.ones(1)
    return CARE / (CARE @ CARE_SHARE), CARE_SHARE


def make_law(truth: Truth, number: int, codes_per_record: float, *, pure: bool) -> HospitalLaw:
    """Intercepts of a hospital at each intensity of care."""
    base = prevalences(truth.hospital_rates(number), codes_per_record)
    found = []
    for level, factor in enumerate(care_levels(pure)[0]):
        mu = in_care(base, truth.everyday, factor)
        rng = _stream(truth.seed, LAW, number, level)
        found.append((mu, *calibrate(truth.couplings, mu, rng)))
    mu, c, pools = zip(*found, strict=True)
    return HospitalLaw(number, np.stack(c), np.stack(mu), pools, pure)


def check_total(patients: int, records: int) -> None:
    """Refuse a number of records that the patients cannot have."""
    if not patients <= records <= patients * MAX_WINDOWS:
        raise ParameterError(
            f"{records:,} records of {patients:,} patients cannot be: a patient has 1 to "
            f"{MAX_WINDOWS} half-years."
        )


def make_histories(patients: int, records: int, seed: int, number: int, *, pure: bool) -> Histories:
    """Numbers of records that sum to `records`, 1 to MAX_WINDOWS each, and care."""
    rng = _stream(seed, HISTORY, number, 0)
    share = (records / patients - 1) / (MAX_WINDOWS - 1)
    chance = rng.beta(EVENNESS * share + 1e-9, EVENNESS * (1 - share) + 1e-9, patients)
    counts = 1 + rng.binomial(MAX_WINDOWS - 1, chance)
    while missing := records - counts.sum():
        room = np.flatnonzero(counts < MAX_WINDOWS if missing > 0 else counts > 1)
        chosen = rng.permutation(room)[: abs(missing)]
        counts[chosen] += np.sign(missing)
    levels = care_levels(pure)[1]
    return Histories(counts, rng.choice(levels.size, patients, p=levels))


def draw_unit(truth: Truth, law: HospitalLaw, histories: Histories, unit: int) -> UnitRecords:
    """The records of the patients of one unit."""
    return _Unit(truth, law, histories, unit).run()


class _Unit:
    """Chains of the patients of one unit that still have records to come."""

    def __init__(self, truth: Truth, law: HospitalLaw, histories: Histories, unit: int) -> None:
        here = slice(unit * UNIT, (unit + 1) * UNIT)
        self.truth, self.law = truth, law
        self.counts, care = histories.counts[here], histories.care[here]
        self.rng = _stream(truth.seed, CHAIN, law.number, unit)
        self.dementia = truth.book.dementia
        Z = np.stack([self._start(law.pools[k]) for k in care], axis=1).astype(np.float32)
        self.chain = Chain(truth.couplings, np.ascontiguousarray(law.c.T[:, care]), Z, self.rng)
        self.n = self.counts.size
        self.alive = np.arange(self.n)
        self.onset = np.full(self.n, -1)
        self.frailty, self.seen = np.zeros(self.n), np.zeros(self.n)
        self.keep = truth.keep[:, None].astype(np.float32)

    def _start(self, pool: np.ndarray) -> np.ndarray:
        """A record of the pool, before onset one without dementia: a refused draw keeps it."""
        fits = np.ones(pool.shape[1], bool) if self.law.pure else pool[self.dementia] == 0
        return pool[:, self.rng.choice(np.flatnonzero(fits))]

    def run(self) -> UnitRecords:
        for _ in range(BURN_IN):
            self._step(0, memory=0.0, keep=None)
        found = []
        for record in range(self.counts.max()):
            self._forget_finished(record)
            if record:
                self._step(record, memory=MEMORY, keep=self.keep)
            self._measure()
            column, code = np.nonzero(self.chain.Z.T)
            patient = self.alive[column]
            found.append((patient, np.full(patient.size, record), code))
        patient, record_of, code = (np.concatenate(a) for a in zip(*found, strict=True))
        order = np.argsort(patient, kind="stable")
        return UnitRecords(
            patient[order].astype(np.int32),
            record_of[order].astype(np.int32),
            code[order].astype(np.int32),
            self.onset,
            self.frailty / self.seen,
        )

    def _step(self, record: int, *, memory: float, keep: np.ndarray | None) -> None:
        self.chain.draw_latent(memory)
        if self.law.pure:
            self.chain.draw_codes(keep)
            return
        before = self.onset[self.alive] < 0
        starts = np.zeros_like(before)
        if record:
            starts = before & (self.rng.random(before.size) < self._hazard())
            self.onset[self.alive[starts]] = record
            self._raise_dementia(starts)
        self.chain.draw_codes(
            keep,
            absent=(self.dementia, before & ~starts),
            present=(self.dementia, starts),
        )

    def _hazard(self) -> np.ndarray:
        """Chance of onset in this record; the latent axis of dementia is near N(0, 1) before it."""
        rate: np.ndarray = ONSET_RATE * np.exp(np.minimum(ONSET_SLOPE * self.chain.Y[0], 3.0))
        return -np.expm1(-rate)

    def _raise_dementia(self, columns: np.ndarray) -> None:
        self.chain.c[:, columns] += self.truth.lift[:, None].astype(np.float32)
        self.chain.c[self.dementia, columns] = np.log(AFTER_ONSET / (1 - AFTER_ONSET))

    def _measure(self) -> None:
        """Add up frailty until onset."""
        until = (self.onset[self.alive] < 0) | (self.seen[self.alive] <= self.onset[self.alive])
        who = self.alive[until]
        self.frailty[who] += self.truth.frailty @ self.chain.Y[:, until]
        self.seen[who] += 1

    def _forget_finished(self, record: int) -> None:
        goes_on = self.counts[self.alive] > record
        if not goes_on.all():
            self.alive = self.alive[goes_on]
            self.chain.keep_only(goes_on)


def _stream(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(list(key)))
