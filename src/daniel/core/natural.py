"""The natural recipe: standardised codes, free intercepts, nuclear-norm penalty, damped one shot.

    pooled:    fit(records)                                  the centralised fit
    one shot:  start = make_start(hub)                       at the hub
               answer(records, start)                        once at every site
               finish(hub, start, answers)                   at the hub

Phi = U diag(signs) U' is symmetric by construction (Remark 1).  Positive components are the latent
patient of eq. (EHR_model); negative ones hold codes that exclude each other, and are admitted only
when they stand clearly above the noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from daniel.core.coordinates import Coordinates, natural_coordinates, smoothed_mean, theta_from
from daniel.core.ising import full_sweep, logit_moments
from daniel.core.records import Records, records_from
from daniel.core.sample import gibbs
from daniel.core.solve import Solution, minimise_in_stages
from daniel.core.start import (
    correlation,
    count_above,
    noise_level,
    penalty_factor,
    spectral_start,
)
from daniel.core.surrogate import Anchor, Factors, Surrogate

Intercept = Literal["site", "shared", "tied"]

NEGATIVE_FACTOR = 1.1  # penalty of negative components, in units of the noise level
NEGATIVE_SHARE = 3  # one column in so many may hold a negative component
MAX_AUTO_COMPONENTS = 256  # positive ones
SPARE_COMPONENTS = 4  # beyond those that the spectrum of the start asks for
NEGLIGIBLE = 1e-3  # components below this share of the largest count as zero
START_EASE = 0.8  # of its own penalty at the start: what the hub overdoes, the answers correct
SMALL_HUB = 2.5  # records per code up to which a hub starts from independence
SMALL_HUB_DAMPING = 4.0
DAMPING = 3.0
SPARSE_AT_HUB = 30.0  # hub records with a code at which its damping has fallen by half
SYNTHETIC_RECORDS = 10_000
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
    # SMALL_HUB_DAMPING when the hub is small
    max_iter: int = 200
    tol: float = 1e-5
    dtype: type = np.float32
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


def fit(records: Records, options: Options, rng: np.random.Generator, *, ease: float = 1.0) -> Fit:
    """The centralised fit: all records in one place, one intercept vector.

    ease: share of the penalty that is applied.
    """
    records = _one_site(records)
    total, counts = records.total, records.counts()
    coords = natural_coordinates(counts, total, tied=options.intercept == "tied")
    penalty, negative = _penalties(options, counts, total, coords.scale, rng)
    penalty *= ease
    matrix = correlation(records, coords)
    signs = _signs(options, matrix, penalty)
    columns = np.where(signs > 0, penalty, negative)
    U: np.ndarray = spectral_start(matrix, signs, columns, rng).astype(options.dtype)
    del matrix  # (p, p): not beside the ones the solver needs
    start = Start(coords, U, signs, prior_intercepts(records))
    objective = Surrogate(records, coords, _prior(start, options), signs, columns)
    return _solved(objective, start, penalty, options, rng)


def make_start(hub: Records, options: Options, rng: np.random.Generator) -> Start:
    """Phi0 from the hub's own records: its penalised fit, or independence when it has too few.

    With hardly more records than codes the hub's fit is mostly chance, and starting from it costs
    more than it brings; docs/method.md.
    """
    hub = _one_site(hub)
    if not _small(hub):
        own = fit(hub, replace(options, penalty=None), rng, ease=START_EASE)
        return Start(own.coords, own.U, own.signs, own.b)
    coords = natural_coordinates(hub.counts(), hub.total, tied=options.intercept == "tied")
    nothing: np.ndarray = np.zeros((hub.p, 1), dtype=options.dtype)
    return Start(coords, nothing, np.ones(1), prior_intercepts(hub))


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
    model = options.surrogate == "model" or _small(hub)
    reference = _synthetic(start, counts, total, rng) if model else hub
    coords = natural_coordinates(counts, total, tied=options.intercept == "tied")
    mean = _in_coordinates(_mean_answer(answers, total), start.coords, coords)
    own = _in_coordinates(answer(reference, start, options), start.coords, coords)
    U0 = (start.U * (coords.scale / start.coords.scale)[:, None]).astype(options.dtype)
    moved = replace(start, coords=coords, U=U0, b=_intercepts_in(coords, start))

    penalty, negative = _penalties(options, counts, total, coords.scale, rng)
    # What tied intercepts cannot fit shows in G, and is not a relation: the descent starts without.
    off_centre = (smoothed_mean(counts, total) - coords.center) / coords.scale
    related = mean.G - np.outer(off_centre, coords.gain * mean.b[0])
    np.fill_diagonal(related, 0)
    signs, U = _widened(moved, related, options, penalty, negative, rng)
    anchor = _anchor(options, hub, reference, total, U0, moved.V)
    if _small(hub) and options.damping is None:
        # Far from independence its curvature says nothing, and its loss can fall without end: hold
        # to the spectral solution of all sites' correlations.
        weight: np.ndarray = np.full(hub.p, np.sqrt(SMALL_HUB_DAMPING), dtype=options.dtype)
        anchor = Anchor(U, U * signs.astype(U.dtype), weight)
    objective = Surrogate(
        reference,
        coords,
        _prior(replace(moved, b=prior_intercepts(reference)), options),
        signs,
        np.where(signs > 0, penalty, negative),
        correction=(mean.G - own.G).astype(options.dtype),
        intercept_correction=mean.b - own.b if options.intercept == "shared" else None,
        anchor=anchor,
    )
    fitted = _solved(objective, replace(moved, U=U, signs=signs), penalty, options, rng)
    fitted = replace(fitted, start=moved)
    if options.intercept != "site":
        return fitted
    # The hub's prevalences are not the study's: move the intercepts by the difference in log-odds.
    shift = _logit(smoothed_mean(counts, total)) - prior_intercepts(reference)
    return replace(fitted, b=fitted.b + shift)


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


def principal_axes(U: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same Phi on principal axes: positive columns by size, then negative ones, then zeros.

    Columns that the penalty has all but removed become zero.  The sign of a column is fixed by its
    largest entry, so that equal fits give equal numbers.
    """
    columns, side, size = [], [], []
    for sign in (1.0, -1.0):
        left, value, _ = np.linalg.svd(U[:, signs == sign], full_matrices=False)
        if value.size:
            left = left * np.sign(left[np.abs(left).argmax(axis=0), np.arange(value.size)])
        columns.append(left * value)
        side.append(np.full(value.size, sign))
        size.append(value**2)
    all_columns, all_sides, all_sizes = np.hstack(columns), np.hstack(side), np.hstack(size)
    # The start's noise, where there is nothing to fit, leaves sizes of about 1e-6.
    real = all_sizes > NEGLIGIBLE * max(float(all_sizes.max(initial=0)), 0.1)
    order = np.lexsort((-all_sizes, all_sides < 0, ~real))
    out = np.zeros_like(U)
    out[:, : order.size] = np.where(real, all_columns, 0)[:, order]
    out_signs = np.ones(signs.size)
    out_signs[: order.size] = np.where(real, all_sides, 1.0)[order]
    return out, out_signs


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


def _small(hub: Records) -> bool:
    return hub.total <= SMALL_HUB * hub.p


def _one_site(records: Records) -> Records:
    return replace(records, site=np.zeros(records.n, dtype=np.int32), n_sites=1)


def _prior(start: Start, options: Options) -> np.ndarray | None:
    return None if options.intercept == "tied" else start.b


def _penalties(
    options: Options,
    counts: np.ndarray,
    total: float,
    scale: np.ndarray,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Penalty of positive and of negative components; one given by number holds for both."""
    if options.penalty is not None:
        return float(options.penalty), float(options.penalty)
    noise = noise_level(counts, total, scale, rng)
    return penalty_factor(counts, total) * noise, NEGATIVE_FACTOR * noise


def _split_signs(d: int) -> np.ndarray:
    return np.where(np.arange(d) < d - d // NEGATIVE_SHARE, 1.0, -1.0)


def _signs(options: Options, matrix: np.ndarray, penalty: float) -> np.ndarray:
    """Signs of the columns; their number is given, or what of the spectrum the penalty leaves."""
    if options.n_components is not None:
        return _split_signs(options.n_components)
    above = count_above(matrix, penalty, MAX_AUTO_COMPONENTS)
    positive = above + SPARE_COMPONENTS
    return _split_signs(min(matrix.shape[0], positive + positive // (NEGATIVE_SHARE - 1)))


def _intercepts_in(coords: Coordinates, start: Start) -> np.ndarray:
    """(1, p) intercepts of the start when its codes are centred as in `coords`."""
    old = start.coords
    shift = (coords.center - old.center) / old.scale
    through_others = (shift @ start.U) @ start.V.T - shift * np.einsum("jc,jc->j", start.U, start.V)
    return start.b + old.gain * through_others


def _widened(
    start: Start,
    G: np.ndarray,
    options: Options,
    penalty: float,
    negative: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Signs and first U for the hub's descent: the start and what the correction asks for.

    All records show components that the hub alone could not; they stand in Phi0 minus the mean
    derivative, a proximal step from the start.
    """
    target = (start.U @ start.V.T).astype(np.float64) - (G + G.T) / 2
    signs = _signs(options, target, penalty)
    columns = np.where(signs > 0, penalty, negative)
    return signs, spectral_start(target, signs, columns, rng).astype(options.dtype)


def _anchor(
    options: Options,
    hub: Records,
    reference: Records,
    total: float,
    U0: np.ndarray,
    V0: np.ndarray,
) -> Anchor | None:
    """Damping by coverage: where the reference hardly sees a code its loss is flat, and the linear
    correction would run away."""
    damping = options.damping
    if damping is None:
        damping = DAMPING * (1 - hub.total / total)
    if damping == 0:
        return None
    counts = reference.counts()
    seen = np.minimum(counts, reference.total - counts)
    weight = np.sqrt(damping * SPARSE_AT_HUB / (SPARSE_AT_HUB + seen))
    return Anchor(U0, V0, weight.astype(options.dtype))


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
    n = SYNTHETIC_RECORDS if U.any() else 0
    for _ in range(CALIBRATION_ROUNDS if n else 0):
        Z = gibbs(U, b, n // 4, rng, SYNTHETIC_SWEEPS // 2)
        b += (target - _logit(smoothed_mean(Z.sum(axis=0), n // 4))) / 4
    return records_from(gibbs(U, b, SYNTHETIC_RECORDS, rng, SYNTHETIC_SWEEPS))


def _logit(mean: np.ndarray) -> np.ndarray:
    return np.log(mean) - np.log1p(-mean)
