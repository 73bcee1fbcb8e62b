"""The natural recipe: standardised codes, free intercepts, nuclear-norm penalty, damped one shot.

    pooled:    fit(records)                                  the centralised fit
    one shot:  start = make_start(hub)                       at the hub
               answer(records, start)                        once at every site
               finish(hub, start, mean_answer(answers))      at the hub

Phi = U diag(signs) U' is symmetric by construction (Remark 1); core/components.py tells how many
components there are, and how they are penalised.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from daniel.core import damping
from daniel.core.components import (
    Chance,
    Components,
    coupled,
    first_components,
    positive_part,
    relatedness,
)
from daniel.core.coordinates import Coordinates, natural_coordinates, smoothed_mean
from daniel.core.exchange import Answer, Start
from daniel.core.intercepts import (
    LARGE,
    intercepts_in,
    log_odds,
    prior_intercepts,
    site_intercepts,
)
from daniel.core.ising import full_sweep
from daniel.core.links import firmness
from daniel.core.noise import noise_level, rarity
from daniel.core.place import once
from daniel.core.records import Records
from daniel.core.solve import Keeper, Progress, Solution, Stage, minimise_in_stages
from daniel.core.spectrum import WHOLE, Spectrum
from daniel.core.start import (
    corrected_correlation,
    correlation,
    correlation_operator,
    proximal,
)
from daniel.core.surrogate import Factors, Surrogate
from daniel.core.synthetic import synthetic_records
from daniel.core.threads import one_blas_thread

Intercept = Literal["site", "shared", "tied"]

START_EASE = 0.8  # of its own penalty at the start: what the hub overdoes, the answers correct
SMALL_HUB = 2.5  # records per code up to which a hub starts from independence
COMMON = 0.02  # rarity below which it does not matter how the records differ
VISIBLE = 1.25  # a hub sees a component that is so many times the noise
PROGRESSIVE = (1 / 16, 1 / 4)  # parts of very many records on which the solver starts
CORRECTED_STEPS = 30  # on the last of them, once its derivative is that of all records
BEGIN = 0.6  # of the spectrum's U, where a fit of rare codes begins: with more its loss is higher
GAIN = 1000.0  # times tol: log-likelihood of all records, for each number fitted, that is not worth
# a step (0.01 by default; chance alone brings 0.5)
CORRELATED = 0.5  # share of the correlations in an embedding where weak components are relations
ROWS = 1024  # of a (p, p) array that are changed at once


@dataclass(frozen=True)
class Options:
    """What all sites of a study agree on."""

    n_components: int | None = None  # None: from the spectrum
    penalty: float | None = None  # None: from the noise level
    intercept: Intercept = "site"
    surrogate: Literal["hub", "model"] = "hub"
    damping: float | None = None  # None: DAMPING, for pairs times the share of records outside the
    # hub; or by the strength of the couplings after a start from independence
    max_iter: int = 200
    tol: float = 1e-5
    dtype: type = np.float32
    noise: float = 0.0  # norm of the noise that was added to the mean derivative of the answers
    progress: Progress | None = None
    keeper: Keeper | None = None  # of the last fit's state: an interrupted one goes on


@dataclass(frozen=True)
class Fit:
    """A finished model in natural coordinates.

    also: components that an embedding takes in beside those of Phi, U and signs; common: whether
    it is that of common codes, `coupled`.
    """

    coords: Coordinates
    U: np.ndarray
    signs: np.ndarray
    b: np.ndarray  # (1, p)
    penalty: float
    solution: Solution
    start: Start
    also: tuple[np.ndarray, np.ndarray] | None = None
    common: bool = False

    def embedding(
        self, U: np.ndarray, signs: np.ndarray, kind: np.ndarray, d: int | None = None
    ) -> np.ndarray:
        """(p, d) rows whose cosines relate codes; U, signs: of this fit, on principal axes.

        kind (p,): of each code, -1 when not known.
        """
        if self.common and self.also is not None:
            return coupled(U, signs, self.also[0], d)
        return relatedness(U, signs, kind, d, also=self.also)


@dataclass(frozen=True)
class _Survey:
    """What a look at the records shows before a fit: correlations (p, p), and their noise."""

    records: Records
    coords: Coordinates
    matrix: Spectrum
    chance: Chance


def fit(records: Records, options: Options, rng: np.random.Generator) -> Fit:
    """The centralised fit: all records in one place, one intercept vector."""
    survey = _survey(records, options, rng)
    return _fit(survey, options, rng, per_code=records.total / records.p)


def make_start(hub: Records, options: Options, rng: np.random.Generator) -> Start:
    """Phi0 from the hub's own records: its penalised fit, or independence when it sees too little.

    With hardly more records than codes, or no component clearly above chance, the hub's fit is
    mostly noise, and starting from it costs more than it brings; docs/method.md.
    """
    if hub.total > SMALL_HUB * hub.p:
        own = replace(options, penalty=None)
        survey = _survey(hub, own, rng)
        if survey.matrix.largest() > VISIBLE * survey.chance.noise:
            fitted = _fit(survey, own, rng, ease=START_EASE, rough=True)
            return Start(fitted.coords, fitted.U, fitted.signs, fitted.b)
    coords = natural_coordinates(hub.counts(), hub.total, tied=options.intercept == "tied")
    nothing: np.ndarray = np.zeros((hub.p, 1), dtype=options.dtype)
    return Start(coords, nothing, np.ones(1), prior_intercepts(hub))


def _survey(records: Records, options: Options, rng: np.random.Generator) -> _Survey:
    records = _one_site(records)
    counts, total = records.counts(), records.total
    coords = natural_coordinates(counts, total, tied=options.intercept == "tied")
    noise = noise_level(counts, total, coords.scale, rng)
    rare = rarity(counts, total)
    chance = Chance(noise, rare, _firmness(records, rare, rng), total)
    whole = records.p <= WHOLE
    matrix = correlation(records, coords) if whole else correlation_operator(records, coords)
    return _Survey(records, coords, Spectrum(matrix, options.dtype), chance)


def _fit(
    survey: _Survey,
    options: Options,
    rng: np.random.Generator,
    *,
    ease: float = 1.0,
    per_code: float = np.inf,
    rough: bool = False,
) -> Fit:
    """Minimise the loss of the surveyed records; ease: share of the penalty that is applied."""
    records, coords, chance = survey.records, survey.coords, survey.chance
    first = _first(survey.matrix, chance, options, rng, ease, per_code)
    start = Start(coords, first.U, first.signs, prior_intercepts(records))
    objective = Surrogate(records, coords, _prior(start, options), first.signs, first.penalties)
    fitted = _solved(objective, start, first.penalty, chance, options, rng, rough=rough)
    return replace(fitted, also=_also(survey.matrix, first, chance), common=chance.rare < COMMON)


def _first(
    matrix: Spectrum,
    chance: Chance,
    options: Options,
    rng: np.random.Generator,
    ease: float = 1.0,
    per_code: float = np.inf,
) -> Components:
    return first_components(
        matrix,
        chance,
        rng,
        n_components=options.n_components,
        penalty=options.penalty,
        ease=ease,
        per_code=per_code if chance.rare < COMMON else np.inf,
        dtype=options.dtype,
    )


def answer(records: Records, start: Start, options: Options) -> Answer:
    """A site's derivative at Phi0; with site intercepts, after fitting its own at Phi0.

    Those intercepts stay at the site: with them the derivative in b vanishes, and what is returned
    does not depend on the centre of the coordinates.
    """
    records = _one_site(records)
    with once(records):
        b = _answering_intercepts(records, start, options)
        out = full_sweep(records, start.coords, (start.U, start.V), b)
    return Answer(out.G, out.b, records.total, records.counts())


def _answering_intercepts(records: Records, start: Start, options: Options) -> np.ndarray | None:
    """(1, p) intercepts of the records at Phi0; None when they are tied."""
    if options.intercept == "site":
        return site_intercepts(records, start)
    return None if start.coords.tied else start.b


def mean_answer(answers: Iterable[Answer]) -> Answer:
    """The answer that all records together would give; answers may come one by one."""
    mean = None
    for a in answers:
        if mean is None:
            p = a.counts.size
            G: np.ndarray = np.zeros((p, p), dtype=np.float64 if p <= WHOLE else np.float32)
            mean = Answer(G, np.zeros_like(a.b, dtype=np.float64), 0.0, np.zeros(p))
        n = mean.n + a.n
        for first in range(0, p, ROWS):
            rows = slice(first, first + ROWS)
            G[rows] += (a.n / n) * (a.G[rows] - G[rows])
        b = mean.b + (a.n / n) * (a.b - mean.b)
        mean = Answer(G, b, n, mean.counts + a.counts)
    assert mean is not None, "there is no answer"
    return mean


def finish(
    hub: Records, start: Start, mean: Answer, options: Options, rng: np.random.Generator
) -> Fit:
    """The hub minimises its loss, corrected by the mean derivative of all sites, its own included.

    Coordinates and penalty are those of all records: the answer carries the counts.  ``mean.G`` is
    overwritten: it is the only (p, p) array there is.
    """
    hub = _one_site(hub)
    total, counts = mean.n, mean.counts
    independent = not start.U.any()
    synthetic = independent or options.surrogate == "model"
    reference = synthetic_records(start, counts, total, rng) if synthetic else hub
    coords = natural_coordinates(counts, total, tied=options.intercept == "tied")
    G = _symmetric_in_coordinates(mean, start.coords, coords)
    own_b = _answering_intercepts(reference, start, options)
    U0 = (start.U * (coords.scale / start.coords.scale)[:, None]).astype(options.dtype)
    moved = replace(start, coords=coords, U=U0, b=intercepts_in(coords, start, start.b))

    # All records show components that the hub alone could not; they stand in a proximal step from
    # the start.
    target = Spectrum(proximal(G, mean, moved), options.dtype)
    noise = float(np.hypot(noise_level(counts, total, coords.scale, rng), options.noise))
    rare = rarity(counts, total)
    chance = Chance(noise, rare, _firmness(hub, rare, rng), total)
    per_code = total / coords.p
    first = _first(target, chance, options, rng, per_code=per_code)
    also, strength = _also(target, first, chance), target.largest()
    del target
    at = None if own_b is None else intercepts_in(coords, start, own_b)
    own = full_sweep(reference, coords, (U0, moved.V), at, subtract_from=G)
    correction: np.ndarray = G.astype(options.dtype, copy=False)
    del G
    common = rare < COMMON
    if independent and options.damping is None:
        anchors = [damping.to_spectrum(first, strength, options.dtype)]
    else:
        steep: np.ndarray | None = None
        weights = damping.weights(options.damping, hub.total / mean.n)
        relate = also is not None and not common and not independent
        # With tied intercepts the correction holds what they cannot fit.
        if options.intercept != "tied" and (relate or any(weights)):
            seen = Spectrum(corrected_correlation(reference, coords, correction), options.dtype)
            if relate:
                also = _also(seen, _first(seen, chance, options, rng, per_code=per_code), chance)
            steep = damping.steep(seen, noise).astype(options.dtype)
            del seen
        anchors = damping.by_coverage(weights, reference, mean, moved, steep)
    if options.intercept == "tied" and not common:
        also = None
    objective = Surrogate(
        reference,
        coords,
        _prior(replace(moved, b=prior_intercepts(reference)), options),
        first.signs,
        first.penalties,
        correction=correction,
        intercept_correction=mean.b - own.b if options.intercept == "shared" else None,
        anchors=anchors,
    )
    begin = replace(moved, U=first.U, signs=first.signs)
    fitted = _solved(objective, begin, first.penalty, chance, options, rng)
    fitted = replace(fitted, start=moved, also=also, common=common)
    if options.intercept != "site":
        return fitted
    # The hub's prevalences are not the study's: move the intercepts by the difference in log-odds.
    shift = log_odds(smoothed_mean(counts, total)) - prior_intercepts(reference)
    return replace(fitted, b=fitted.b + shift)


def _firmness(hub: Records, rare: float, rng: np.random.Generator) -> float:
    """How firm the penalty should be: the hub's records tell for all."""
    return 0.0 if rare < COMMON else firmness(hub, rng)


def _solved(
    objective: Surrogate,
    start: Start,
    penalty: float,
    chance: Chance,
    options: Options,
    rng: np.random.Generator,
    *,
    rough: bool = False,
) -> Fit:
    """Minimise from the start; first on parts of the records when there are very many.

    rough: on those parts alone.
    """
    begin = np.array(BEGIN if chance.rare >= COMMON else 1.0, dtype=start.U.dtype)
    x = objective.pack(Factors(begin * start.U, begin * start.V, objective.prior))
    with one_blas_thread():  # others would still spin when the next sweep begins
        solution = minimise_in_stages(
            _parts(objective, rng, rough=rough),
            objective,
            x,
            max_iter=options.max_iter,
            tol=options.tol,
            least=_least(options.tol, x.size, chance, objective.coords.p),
            guess=objective.guess(),
            rough=rough,
            progress=options.progress,
            keeper=None if rough else options.keeper,
        )
    f = objective.unpack(solution.x)
    b = f.b
    if b is None:  # tied: b_j = tie_j phi_jj
        assert objective.coords.tie is not None
        b = (objective.coords.tie * np.einsum("jc,jc->j", f.U, f.V))[None, :]
    return Fit(objective.coords, f.U, start.signs, b, penalty, solution, start)


def _parts(objective: Surrogate, rng: np.random.Generator, *, rough: bool) -> list[Stage]:
    """Stages on parts of very many records; the last part once more with the derivative of all.

    Its own derivative is only good for a rough solution: what it has too much of, a fit follows.
    """
    records = objective.records
    if records.n * records.p <= LARGE:
        return []
    parts = [records.drawn(share, rng) for share in PROGRESSIVE]
    stages = [Stage.on(objective.on(part)) for part in parts]
    if not rough and records.p <= WHOLE:  # a correction is one more (p, p) array
        stages.append(Stage(partial(objective.corrected_on, parts[-1]), CORRECTED_STEPS))
    return stages


def _least(tol: float, size: int, chance: Chance, p: int) -> float:
    """The fall of the loss of a record that is not worth a step, for so many numbers fitted.

    Small fits cost little, and go on further.
    """
    if chance.rare < COMMON:
        return 0.0
    return tol * GAIN * size * min(1 / chance.total, p / LARGE)


def _also(
    matrix: Spectrum, shown: Components, chance: Chance
) -> tuple[np.ndarray, np.ndarray] | None:
    """The components that the spectrum showed, with their weight in an embedding.

    There are none where cliques make them.  Couplings of codes that hardly ever meet are unsure:
    what the likelihood takes off their correlations is partly noise.  Both together relate codes
    better than either.  Of common codes all positive components count, as they stand in the matrix:
    correlations, or in one shot the step from the start that all answers ask for.
    """
    if chance.rare < COMMON:
        rows = positive_part(matrix)
        return rows.astype(shown.U.dtype), np.ones(rows.shape[1])
    share = CORRELATED * (1 - chance.firm)
    return (np.sqrt(share).astype(shown.U.dtype) * shown.U, shown.signs) if share else None


def _one_site(records: Records) -> Records:
    return replace(records, site=np.zeros(records.n, dtype=np.int32), n_sites=1)


def _prior(start: Start, options: Options) -> np.ndarray | None:
    return None if options.intercept == "tied" else start.b


def _symmetric_in_coordinates(mean: Answer, old: Coordinates, new: Coordinates) -> np.ndarray:
    """The symmetric part of a derivative, in other natural coordinates; overwrites ``mean.G``.

    ``G_kj = gain_j / scale_k sum R_j (z_k - center_k)``, and the derivative in b is ``sum R_j``.
    Only the symmetric part matters to a symmetric Phi.
    """
    G = mean.G
    p = G.shape[0]
    shift = (old.center - new.center) / old.scale
    column = old.gain * mean.b[0]
    ratio = new.scale / old.scale
    diagonal = np.diag(G) / ratio**2  # no code enters its own logit
    for first in range(0, p, ROWS):
        rows, rest = slice(first, min(first + ROWS, p)), slice(first, p)
        block = (G[rows, rest] + G[rest, rows].T) / 2
        block += (np.outer(shift[rows], column[rest]) + np.outer(column[rows], shift[rest])) / 2
        block /= np.outer(ratio[rows], ratio[rest])
        G[rows, rest], G[rest, rows] = block, block.T
    np.fill_diagonal(G, diagonal)
    return G
