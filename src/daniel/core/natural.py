"""The natural recipe: standardised codes, free intercepts, nuclear-norm penalty, damped one shot.

    pooled:    fit(records)                                  the centralised fit
    one shot:  start = make_start(hub)                       at the hub
               answer(records, start)                        once at every site
               finish(hub, start, answers)                   at the hub

Phi = U diag(signs) U' is symmetric by construction (Remark 1); core/components.py tells how many
components there are, and how they are penalised.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from daniel.core.components import Components, first_components
from daniel.core.coordinates import Coordinates, natural_coordinates, smoothed_mean, theta_from
from daniel.core.ising import full_sweep, logit_moments
from daniel.core.noise import excess_noise, expected_together, noise_level, rarity
from daniel.core.records import Records, records_from
from daniel.core.sample import gibbs
from daniel.core.solve import Solution, minimise_in_stages
from daniel.core.start import correlation, extreme_eigenpairs
from daniel.core.surrogate import Anchor, Factors, Surrogate

Intercept = Literal["site", "shared", "tied"]

START_EASE = 0.8  # of its own penalty at the start: what the hub overdoes, the answers correct
SMALL_HUB = 2.5  # records per code up to which a hub starts from independence
COMMON = 0.02  # rarity below which it does not matter how the records differ
VISIBLE = 1.25  # a hub sees a component that is so many times the noise
INDEPENDENCE_DAMPING = 4.0  # at couplings of 1 and more, after a start from independence
DAMPING = 2.0
SEEN_TOGETHER = 6.0  # a pair that chance brings together once at the hub is damped by 1/(1 + this)
SYNTHETIC_RECORDS = (2_000, 10_000)  # at least and at most, and between them
SYNTHETIC_PER_CODE = 40
SYNTHETIC_SWEEPS = 50
CALIBRATION_ROUNDS = 8
LARGE = 1 << 28  # records * codes above which the solver starts on a part of the records
PROGRESSIVE = (1 / 16, 1 / 4)


@dataclass(frozen=True)
class Options:
    """What all sites of a study agree on."""

    n_components: int | None = None  # None: from the spectrum
    penalty: float | None = None  # None: from the noise level
    intercept: Intercept = "site"
    surrogate: Literal["hub", "model"] = "hub"
    damping: float | None = None  # None: DAMPING times the share of records outside the hub, or
    # by the strength of the couplings after a start from independence
    max_iter: int = 200
    tol: float = 1e-5
    dtype: type = np.float32
    noise: float = 0.0  # norm of the noise that was added to the mean derivative of the answers
    progress: Callable[[int, float], None] | None = None


@dataclass(frozen=True)
class Start:
    """What the hub sends: coordinates, Phi0 = U diag(signs) U', and its intercepts (1, p)."""

    coords: Coordinates
    U: np.ndarray
    signs: np.ndarray
    b: np.ndarray

    @property
    def V(self) -> np.ndarray:
        return self.U * self.signs.astype(self.U.dtype)


@dataclass(frozen=True)
class Answer:
    """What a site returns: derivatives at the start, number of records, records with each code."""

    G: np.ndarray
    b: np.ndarray
    n: float
    counts: np.ndarray


@dataclass(frozen=True)
class Fit:
    """A finished model in natural coordinates."""

    coords: Coordinates
    U: np.ndarray
    signs: np.ndarray
    b: np.ndarray  # (1, p)
    penalty: float
    solution: Solution
    start: Start


@dataclass(frozen=True)
class _Survey:
    """What a look at the records shows before a fit: correlations (p, p), and their noise."""

    records: Records
    coords: Coordinates
    matrix: np.ndarray
    noise: float
    excess: float


def fit(records: Records, options: Options, rng: np.random.Generator) -> Fit:
    """The centralised fit: all records in one place, one intercept vector."""
    return _fit(_survey(records, options, rng), options, rng)


def make_start(hub: Records, options: Options, rng: np.random.Generator) -> Start:
    """Phi0 from the hub's own records: its penalised fit, or independence when it sees too little.

    With hardly more records than codes, or no component clearly above chance, the hub's fit is
    mostly noise, and starting from it costs more than it brings; docs/method.md.
    """
    if hub.total > SMALL_HUB * hub.p:
        own = replace(options, penalty=None)
        survey = _survey(hub, own, rng)
        if _strength(survey.matrix) > VISIBLE * survey.noise:
            fitted = _fit(survey, own, rng, ease=START_EASE)
            return Start(fitted.coords, fitted.U, fitted.signs, fitted.b)
    coords = natural_coordinates(hub.counts(), hub.total, tied=options.intercept == "tied")
    nothing: np.ndarray = np.zeros((hub.p, 1), dtype=options.dtype)
    return Start(coords, nothing, np.ones(1), prior_intercepts(hub))


def _survey(records: Records, options: Options, rng: np.random.Generator) -> _Survey:
    records = _one_site(records)
    counts, total = records.counts(), records.total
    coords = natural_coordinates(counts, total, tied=options.intercept == "tied")
    noise = noise_level(counts, total, coords.scale, rng)
    excess = _excess(records, rarity(counts, total), rng)
    return _Survey(records, coords, correlation(records, coords), noise, excess)


def _fit(survey: _Survey, options: Options, rng: np.random.Generator, *, ease: float = 1.0) -> Fit:
    """Minimise the loss of the surveyed records; ease: share of the penalty that is applied."""
    records, coords = survey.records, survey.coords
    rare = rarity(records.counts(), records.total)
    first = _first(survey.matrix, survey.noise, rare, survey.excess, options, rng, ease)
    start = Start(coords, first.U, first.signs, prior_intercepts(records))
    objective = Surrogate(records, coords, _prior(start, options), first.signs, first.penalties)
    return _solved(objective, start, first.penalty, options, rng)


def _first(
    matrix: np.ndarray,
    noise: float,
    rare: float,
    excess: float,
    options: Options,
    rng: np.random.Generator,
    ease: float = 1.0,
) -> Components:
    return first_components(
        matrix,
        noise,
        rare,
        excess,
        rng,
        n_components=options.n_components,
        penalty=options.penalty,
        ease=ease,
        dtype=options.dtype,
    )


def _strength(matrix: np.ndarray) -> float:
    """The largest eigenvalue: how strong the strongest component is, chance included."""
    return float(extreme_eigenpairs(matrix, 1, "LA")[0][0])


def answer(records: Records, start: Start, options: Options) -> Answer:
    """A site's derivative at Phi0; with site intercepts, after fitting its own at Phi0.

    Those intercepts stay at the site: with them the derivative in b vanishes, and what is returned
    does not depend on the centre of the coordinates.
    """
    records = _one_site(records)
    b = None if start.coords.tied else start.b
    if options.intercept == "site":
        b = site_intercepts(records, start)
    out = full_sweep(records, start.coords, (start.U, start.V), b)
    return Answer(out.G, out.b, records.total, records.counts())


def finish(
    hub: Records,
    start: Start,
    answers: Sequence[Answer],
    options: Options,
    rng: np.random.Generator,
) -> Fit:
    """The hub minimises its loss, corrected by the mean derivative of all sites.

    Coordinates and penalty are those of all records: the answers carry the counts.  The hub's own
    records must be among the answers.
    """
    hub = _one_site(hub)
    total = sum(a.n for a in answers)
    counts = np.sum([a.counts for a in answers], axis=0)
    independent = not start.U.any()
    synthetic = independent or options.surrogate == "model"
    reference = _synthetic(start, counts, total, rng) if synthetic else hub
    coords = natural_coordinates(counts, total, tied=options.intercept == "tied")
    mean = _in_coordinates(_mean_answer(answers, total), start.coords, coords)
    own = _in_coordinates(answer(reference, start, options), start.coords, coords)
    U0 = (start.U * (coords.scale / start.coords.scale)[:, None]).astype(options.dtype)
    moved = replace(start, coords=coords, U=U0, b=_intercepts_in(coords, start))

    # All records show components that the hub alone could not; they stand in a proximal step from
    # the start.
    target = (U0 @ moved.V.T).astype(np.float64) - _relations(mean, coords, counts, total)
    noise = float(np.hypot(noise_level(counts, total, coords.scale, rng), options.noise))
    rare = rarity(counts, total)
    first = _first(target, noise, rare, _excess(hub, rare, rng), options, rng)
    if independent and options.damping is None:
        anchor: Anchor | None = _hold_to(first, _strength(target), options)
    else:
        anchor = _anchor(options, hub, reference, total, moved)
    del target  # (p, p): not beside the ones the solver needs
    objective = Surrogate(
        reference,
        coords,
        _prior(replace(moved, b=prior_intercepts(reference)), options),
        first.signs,
        first.penalties,
        correction=(mean.G - own.G).astype(options.dtype),
        intercept_correction=mean.b - own.b if options.intercept == "shared" else None,
        anchor=anchor,
    )
    begin = replace(moved, U=first.U, signs=first.signs)
    fitted = replace(_solved(objective, begin, first.penalty, options, rng), start=moved)
    if options.intercept != "site":
        return fitted
    # The hub's prevalences are not the study's: move the intercepts by the difference in log-odds.
    shift = _logit(smoothed_mean(counts, total)) - prior_intercepts(reference)
    return replace(fitted, b=fitted.b + shift)


def _excess(hub: Records, rare: float, rng: np.random.Generator) -> float:
    """How much noisier than chance the records are: the hub's stand for all."""
    if rare < COMMON:
        return 0.0
    coords = natural_coordinates(hub.counts(), hub.total)
    noise = noise_level(hub.counts(), hub.total, coords.scale, rng)
    return excess_noise(hub, coords, noise, rng)


def prior_intercepts(records: Records) -> np.ndarray:
    """(1, p) log-odds of each code's smoothed prevalence."""
    return _logit(smoothed_mean(records.counts(), records.total))[None, :]


def site_intercepts(records: Records, start: Start, max_iter: int = 20) -> np.ndarray:
    """(1, p) best intercepts at a fixed Phi0: p one-dimensional convex problems, Newton steps.

    One pseudo-record at the site's own prevalence keeps codes that are never present finite.
    """
    prior = prior_intercepts(records)
    counts = records.counts()
    b = prior.copy()
    pull = start.coords.scale**2
    for _ in range(max_iter):
        mean, variance = logit_moments(records, start.coords, start.U, start.V, b)
        step = (counts - mean - pull * (b - prior)) / (variance + pull)
        b = b + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-4:
            break
    return b


def _solved(
    objective: Surrogate, start: Start, penalty: float, options: Options, rng: np.random.Generator
) -> Fit:
    """Minimise from the start; first on parts of the records when there are very many."""
    x = objective.pack(Factors(start.U, start.V, objective.prior))
    records = objective.records
    stages = [objective]
    if records.n * records.p > LARGE:
        order = rng.permutation(records.n)
        parts = [np.sort(order[: int(share * records.n)]) for share in PROGRESSIVE]
        stages = [*(objective.on(records.take(rows)) for rows in parts), objective]
    solution = minimise_in_stages(
        stages, x, max_iter=options.max_iter, tol=options.tol, progress=options.progress
    )
    f = objective.unpack(solution.x)
    b = f.b
    if b is None:  # tied: b_j = tie_j phi_jj
        assert objective.coords.tie is not None
        b = (objective.coords.tie * np.einsum("jc,jc->j", f.U, f.V))[None, :]
    return Fit(objective.coords, f.U, start.signs, b, penalty, solution, start)


def _one_site(records: Records) -> Records:
    return replace(records, site=np.zeros(records.n, dtype=np.int32), n_sites=1)


def _prior(start: Start, options: Options) -> np.ndarray | None:
    return None if options.intercept == "tied" else start.b


def _intercepts_in(coords: Coordinates, start: Start) -> np.ndarray:
    """(1, p) intercepts of the start when its codes are centred as in `coords`."""
    old = start.coords
    shift = (coords.center - old.center) / old.scale
    through_others = (shift @ start.U) @ start.V.T - shift * np.einsum("jc,jc->j", start.U, start.V)
    return start.b + old.gain * through_others


def _relations(mean: Answer, coords: Coordinates, counts: np.ndarray, total: float) -> np.ndarray:
    """(p, p) symmetric derivative of all records, without what tied intercepts cannot fit.

    That part shows in G and is not a relation; the descent starts without it.
    """
    off_centre = (smoothed_mean(counts, total) - coords.center) / coords.scale
    G = mean.G - np.outer(off_centre, coords.gain * mean.b[0])
    np.fill_diagonal(G, 0)
    return (G + G.T) / 2


def _anchor(
    options: Options, hub: Records, reference: Records, total: float, start: Start
) -> Anchor | None:
    """Damping by coverage: where the reference hardly sees a pair of codes its loss is flat, and
    the linear correction would run away."""
    damping = options.damping
    if damping is None:
        damping = DAMPING * (1 - hub.total / total)
    if damping == 0:
        return None
    together = 1 / (1 + SEEN_TOGETHER * expected_together(reference.counts(), reference.total))
    weight = np.sqrt(damping * together.mean(axis=1))
    return Anchor(start.U, start.V, weight.astype(options.dtype))


def _hold_to(first: Components, strength: float, options: Options) -> Anchor:
    """After a start from independence: damping to the spectral solution of all sites' records.

    Far from independence the reference's curvature says nothing, and its loss can fall without end;
    what it gets wrong is of second order in the strength of the couplings.
    """
    damping = INDEPENDENCE_DAMPING * min(1.0, strength**2)
    weight: np.ndarray = np.full(first.U.shape[0], np.sqrt(damping), dtype=options.dtype)
    return Anchor(first.U, first.U * first.signs.astype(options.dtype), weight)


def _mean_answer(answers: Sequence[Answer], total: float) -> Answer:
    """The answer that all records together would give."""
    G = np.zeros_like(answers[0].G, dtype=np.float64)
    for a in answers:
        G += (a.n / total) * a.G
    b = np.sum([(a.n / total) * a.b for a in answers], axis=0)
    return Answer(G, b, total, np.sum([a.counts for a in answers], axis=0))


def _in_coordinates(given: Answer, old: Coordinates, new: Coordinates) -> Answer:
    """The same derivative in other natural coordinates.

    ``G_kj = gain_j / scale_k sum R_j (z_k - center_k)``, and the derivative in b is ``sum R_j``.
    """
    shift = np.outer((old.center - new.center) / old.scale, old.gain * given.b[0])
    np.fill_diagonal(shift, 0)  # no code enters its own logit
    ratio = new.scale / old.scale
    return replace(given, G=(given.G + shift) / np.outer(ratio, ratio))


def _synthetic(start: Start, counts: np.ndarray, total: float, rng: np.random.Generator) -> Records:
    """Records drawn from the positive part of the model at Phi0, at the study's prevalences.

    Only their curvature is used: the correction makes their derivative at Phi0 that of all sites.
    A few rounds of stochastic approximation move the intercepts until the prevalences fit.
    """
    side = start.signs > 0
    U = start.U[:, side] / (2 * start.coords.scale[:, None])
    target = _logit(smoothed_mean(counts, total))
    free = replace(start.coords, tie=None)
    b = np.diag(theta_from(free, start.U[:, side], start.U[:, side], target)).copy()
    n = int(np.clip(SYNTHETIC_PER_CODE * b.size, *SYNTHETIC_RECORDS))
    for _ in range(CALIBRATION_ROUNDS if U.any() else 0):
        Z = gibbs(U, b, n // 4, rng, SYNTHETIC_SWEEPS // 2)
        b += (target - _logit(smoothed_mean(Z.sum(axis=0), n // 4))) / 4
    return records_from(gibbs(U, b, n, rng, SYNTHETIC_SWEEPS), merge=False)


def _logit(mean: np.ndarray) -> np.ndarray:
    return np.log(mean) - np.log1p(-mean)
