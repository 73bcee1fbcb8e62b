"""Signed components of Phi = U diag(signs) U': how many, how penalised, from where, on which axes.

Positive components are the latent patient of eq. (EHR_model); negative ones hold codes that exclude
each other, and are admitted only when they stand clearly above the noise.
"""

from dataclasses import dataclass

import numpy as np

from daniel.core.noise import least_risk, penalty_factor, relief
from daniel.core.spectrum import Spectrum, leading_eigenpairs
from daniel.core.start import spectral_start
from daniel.core.threads import decomposing

NEGATIVE_FACTOR = 1.1  # penalty of negative components, in units of the noise level
NEGATIVE_SHARE = 3  # one column in so many may hold a negative component
MAX_AUTO_COMPONENTS = 256  # positive ones
SPARE_COMPONENTS = 4  # beyond those that the spectrum of the start asks for
ATTRACTION_POWER = 1.2  # weak attractions are mostly noise
LEAST_DEGREE = 0.05  # of a code, as a share of the mean: codes of almost no attraction stay small
SPECTRUM_POWER = 0.9  # 0.5: codes that attract each other; 1: codes that attract the same codes
EXCLUSION = 0.75  # share of the exclusion between codes of two kinds that counts
SUBSTITUTES = 0.15  # share of the attraction within a kind that its exclusions count for
COLUMNS = 2  # of an embedding for each positive component, but not more than one for so many codes:
CODES_PER_COLUMN = 8
COUPLED_POWER = 0.75  # of the spectrum of common codes: between couplings and their second order
ROWS = 1024  # of a (p, p) array that are made at once
TINY = 1e-12
NEGLIGIBLE = 1e-3  # components below this share of the largest count as zero


@dataclass(frozen=True)
class Components:
    """Columns to fit: first U (p, d), signs (d,), penalties (d,); `penalty` of a positive one."""

    U: np.ndarray
    signs: np.ndarray
    penalties: np.ndarray
    penalty: float


@dataclass(frozen=True)
class Chance:
    """What chance does in some records: how strong it is, and how it shows.

    noise: what it puts into their correlations (`noise_level`); rare, firm: `rarity` and
    `firmness` of the records; total: how many they are.
    """

    noise: float
    rare: float
    firm: float
    total: float = np.inf


def first_components(
    matrix: Spectrum,
    chance: Chance,
    rng: np.random.Generator,
    *,
    n_components: int | None = None,
    penalty: float | None = None,
    ease: float = 1.0,
    per_code: float = np.inf,
    dtype: type = np.float32,
) -> Components:
    """The components that a correlation matrix asks for, soft-thresholded at their penalties.

    per_code: records per code.  A penalty given by number holds for all; otherwise it follows the
    noise, clear components bear less of it where noise is Gaussian (`relief`), and `ease` is the
    share of it that is applied.
    """
    noise = chance.noise
    if penalty is not None:
        signs = _signs(matrix, penalty, n_components)
        penalties = np.full(signs.size, float(penalty))
    else:
        least = least_risk(matrix.values(), noise)
        penalty = ease * noise * penalty_factor(chance.rare, chance.firm, least, per_code)
        signs = _signs(matrix, penalty, n_components)
        penalties = np.full(signs.size, NEGATIVE_FACTOR * noise)
        values, _ = matrix.ends(int((signs > 0).sum()), "LA")
        penalties[signs > 0] = penalty * relief(values, noise, chance.rare)
    U: np.ndarray = spectral_start(matrix, signs, penalties, rng).astype(dtype)
    return Components(U, signs, penalties, float(penalty))


def _signs(matrix: Spectrum, penalty: float, n_components: int | None) -> np.ndarray:
    """Signs of the columns; their number is given, or what of the spectrum the penalty leaves."""
    d = n_components
    if d is None:
        positive = matrix.count_above(penalty, MAX_AUTO_COMPONENTS) + SPARE_COMPONENTS
        d = min(matrix.p, positive + positive // (NEGATIVE_SHARE - 1))
    return np.where(np.arange(d) < d - d // NEGATIVE_SHARE, 1.0, -1.0)


def principal_axes(U: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same Phi on principal axes: positive columns by size, then negative ones, then zeros.

    Columns that the penalty has all but removed become zero.  The sign of a column is fixed by its
    largest entry, so that equal fits give equal numbers.
    """
    columns, side, size = [], [], []
    for sign in (1.0, -1.0):
        with decomposing(U.shape[1]):
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


def relatedness(
    U: np.ndarray,
    signs: np.ndarray,
    kind: np.ndarray,
    d: int | None = None,
    *,
    also: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """(p, d) rows whose cosines say how related two codes are; largest axes first.

    U, signs: on principal axes; kind (p,): of each code, -1 when not known.  The attractions are
    ``M_jk = max(A_jk, 0)^ATTRACTION_POWER``, j != k: that two codes avoid a third does not relate
    them.  With g the row sums of M in units of their mean, the rows are the leading eigenvectors of
    ``M_jk / sqrt(g_j g_k)``, in which codes that attract everything weigh less, times their
    eigenvalues to the SPECTRUM_POWER.  d None: by their number.

    A is the positive part of Phi, less EXCLUSION of its negative part, save between codes of one
    kind, say two drugs.  There exclusion is mostly competition for a place in the record, and is
    left out; but codes that exclude each other and not the rest of their kind stand in for each
    other, and are alike.

    also: U (p, c) and signs (c,) of components that are added to Phi.
    """
    positive, negative = U[:, signs > 0], U[:, signs < 0]
    found = np.count_nonzero(positive.any(axis=0))
    if d is None:
        most = max(found + SPARE_COMPONENTS, U.shape[0] // CODES_PER_COLUMN)
        d = min(COLUMNS * found, most, U.shape[0])
    elif d <= found:  # f components tell f + 1 groups apart, whose attractions need f + 1 columns
        return np.ascontiguousarray(positive[:, :d])
    if also is not None:
        more, side = also
        positive = np.hstack([positive, more[:, side > 0]])
        negative = np.hstack([negative, more[:, side < 0]])
    alike = _substitutes(positive, negative, kind)
    attraction: np.ndarray = np.empty((U.shape[0], U.shape[0]), dtype=U.dtype)
    for first in range(0, U.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        own = (kind[rows, None] == kind) & (kind[rows, None] >= 0)
        away = EXCLUSION * (negative[rows] @ negative.T)
        block = positive[rows] @ positive.T + np.where(own, alike[rows] @ alike.T, -away)
        attraction[rows] = np.maximum(block, 0) ** ATTRACTION_POWER
    np.fill_diagonal(attraction, 0)
    degree = attraction.sum(axis=1)
    degree = np.sqrt(np.maximum(degree / max(float(degree.mean()), TINY), LEAST_DEGREE))
    attraction /= degree[:, None]
    attraction /= degree
    return _leading(attraction, d, SPECTRUM_POWER)


def positive_part(matrix: Spectrum) -> np.ndarray:
    """(p, c) rows whose products are those of the positive components, noise and all."""
    value, vector = matrix.ends(MAX_AUTO_COMPONENTS, "LA")
    above = value > 0
    return vector[:, above] * np.sqrt(value[above])


def coupled(U: np.ndarray, signs: np.ndarray, also: np.ndarray, d: int | None = None) -> np.ndarray:
    """(p, d) rows whose cosines say how strongly common codes are coupled; largest axes first.

    U, signs: on principal axes.  ``A = Phi + also also'``, without Phi's diagonal; also (p, c):
    what the records show before anything is taken off.  The rows are the eigenvectors of A times
    its positive eigenvalues to the COUPLED_POWER; d None: all of them.

    Common codes have Gaussian noise, which spreads evenly over all components.  What it hides of a
    component it does not hide of the order of the couplings: a penalty that leaves little of weak
    signals, as it must for a small error, would leave little of that order.
    """
    positive = U[:, signs > 0]
    found = np.count_nonzero(positive.any(axis=0))
    if d is None:
        d = min(U.shape[0], max(found, also.shape[1]))
    elif d <= found:
        return np.ascontiguousarray(positive[:, :d])
    A: np.ndarray = np.empty((U.shape[0], U.shape[0]), dtype=U.dtype)
    for first in range(0, U.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        A[rows] = (U[rows] * signs.astype(U.dtype)) @ U.T + also[rows] @ also.T
    np.fill_diagonal(A, np.einsum("jc,jc->j", also, also))
    return _leading(A, d, COUPLED_POWER)


def _leading(matrix: np.ndarray, d: int, power: float) -> np.ndarray:
    """(p, d) leading eigenvectors times their eigenvalues, if positive, to the power."""
    value, vector = leading_eigenpairs(matrix, d)
    vector = vector * np.sign(vector[np.abs(vector).argmax(axis=0), np.arange(value.size)])
    return np.ascontiguousarray(vector * np.maximum(value, 0) ** power, dtype=matrix.dtype)


def _substitutes(positive: np.ndarray, negative: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """(p, negatives) rows whose products say how far codes of one kind stand in for each other."""
    out = np.zeros_like(negative)
    for one in np.unique(kind[kind >= 0]):
        own = kind == one
        excluding = _without_mean_direction(negative[own])
        attraction, exclusion = map(_norm_off_diagonal, (positive[own], excluding))
        if exclusion > 0:
            out[own] = excluding * np.sqrt(min(1.0, SUBSTITUTES * attraction / exclusion))
    return out


def _without_mean_direction(F: np.ndarray) -> np.ndarray:
    """Rows with their part along the mean row taken out."""
    mean = F.mean(axis=0)
    norm = float(np.linalg.norm(mean))
    return F - np.outer(F @ (mean / norm), mean / norm) if norm > 0 else F


def _norm_off_diagonal(F: np.ndarray) -> float:
    """||F F'||_F without its diagonal, through d x d products."""
    whole = float(((F.T @ F) ** 2).sum())
    return float(np.sqrt(max(0.0, whole - float(((F**2).sum(axis=1) ** 2).sum()))))
