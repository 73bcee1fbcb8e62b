"""Noise and penalty: what chance puts into correlations, and how much of it to take off.

noise_level      the norm of the correlations of permuted columns: even records, no relation
least_risk       the threshold with the smallest error that Stein's estimate promises
penalty_factor   the penalty, in units of the noise level
relief           what of it clear components are spared
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from daniel.core.coordinates import smoothed_mean
from daniel.core.records import DENSE_ABOVE
from daniel.core.threads import n_threads, run_in_turn

DENSE_CODES = 300  # at most so many, and so often present, are drawn as a dense array
DENSE_ROWS = 100
MANY_PRESENT = 2_000_000  # present codes of one draw at most, which is as sure as three of fewer
RELIEF = 0.3  # of what Gaussian noise would allow: one-shot fits need some penalty as a rein
LEAST = 0.7  # penalty of clear signals in Gaussian noise, in units of the noise level
FIRM = 1.0  # penalty where codes are rare and records uneven
CROWDED = (10.0, 20.0)  # records per code up to which the noise outweighs what a component may hold
TINY = 1e-9  # of a gap between eigenvalues
FREE_DIAGONAL = 1.25  # the fit's diagonal is free and takes in noise that the estimate leaves out


def noise_level(
    counts: np.ndarray, total: float, scale: np.ndarray, rng: np.random.Generator, draws: int = 3
) -> float:
    """Largest eigenvalue of -(G + G')/2 when every column is permuted, averaged over draws.

    Permuted columns keep each code's number of records and lose every relation, so this is what
    chance alone puts into the gradient at independence; about 2 sqrt(p/n), which is the answer when
    fewer than two codes vary.
    """
    n = round(total)
    whole = np.round(counts).astype(int)
    kept = (whole > 0) & (whole < n)
    if kept.sum() < 2:
        return 2 * float(np.sqrt(counts.size / max(n, 1)))
    dense = kept.sum() <= DENSE_CODES and whole[kept].sum() > DENSE_ABOVE * n * kept.sum()
    norm = _dense_norm if dense else _permuted_norm
    draws = 1 if whole[kept].sum() > MANY_PRESENT else draws
    norm_of = partial(norm, whole[kept], n, scale[kept])
    return float(np.mean([*run_in_turn(norm_of, rng.spawn(draws), n_threads())]))


def _dense_norm(counts: np.ndarray, n: int, scale: np.ndarray, rng: np.random.Generator) -> float:
    """The norm for independent codes of these prevalences.

    Of very many records DENSE_ROWS a code are drawn.
    """
    p = counts.size
    rows = min(n, DENSE_ROWS * p)
    mean = counts / n
    Z = (rng.random((rows, p), dtype=np.float32) < mean.astype(np.float32)).astype(np.float32)
    found = Z.mean(axis=0, dtype=np.float64)
    # Permuted columns keep their counts; drawn ones must be brought back to that variance.
    spread = np.sqrt(mean * (1 - mean) / np.maximum(found * (1 - found), 1 / rows)) / scale
    second = ((Z.T @ Z) / rows - np.outer(found, found)) * np.outer(spread, spread)
    np.fill_diagonal(second, 0)
    return float(np.linalg.eigvalsh(second)[-1]) * _edge(p, n) / _edge(p, rows)


def _edge(p: int, n: int) -> float:
    """How the norm of the correlations of independent codes goes with the records."""
    return 2 * float(np.sqrt(p / n)) + p / n


def _permuted_norm(
    counts: np.ndarray, n: int, scale: np.ndarray, rng: np.random.Generator
) -> float:
    """The norm for permuted columns; of very many records for a share of them."""
    p, whole = counts.size, n
    share = MANY_PRESENT / counts.sum()
    if share < 1:
        n = round(share * n)
        drawn = np.floor(share * counts + rng.random(p)).astype(int)  # to either side, by chance
        counts = np.minimum(drawn, n)
    rows = np.concatenate([rng.choice(n, c, replace=False, shuffle=False) for c in counts])
    columns = np.repeat(np.arange(p), counts)
    scaled = sp.csr_array((1 / scale[columns], (rows, columns)), shape=(n, p))
    mean = counts / n
    center = mean / scale
    own = mean * (1 - mean) / scale**2

    def apply(v: np.ndarray) -> np.ndarray:
        v = v.ravel()
        return scaled.T @ (scaled @ v) / n - center * (center @ v) - own * v

    return _largest(apply, p, rng) * _edge(p, whole) / _edge(p, n)


def _largest(apply: Callable[[np.ndarray], np.ndarray], p: int, rng: np.random.Generator) -> float:
    """The largest eigenvalue of a symmetric map."""
    if p < 10:
        return float(np.linalg.eigvalsh(np.column_stack([apply(e) for e in np.eye(p)]))[-1])
    operator = LinearOperator((p, p), matvec=apply, dtype=np.float64)
    try:
        return float(eigsh(operator, k=1, which="LA", v0=rng.standard_normal(p), tol=1e-3)[0][0])
    except ArpackError:  # Lanczos cannot start on a zero matrix
        return 0.0


def expected_together(counts: np.ndarray, total: float) -> np.ndarray:
    """(len(counts), 128) records in which chance alone would show a code beside a typical other.

    The typical others are quantiles.  A code that is nearly always present is as rare as one that
    is nearly always absent.
    """
    mean = smoothed_mean(counts, total)
    mean = np.minimum(mean, 1 - mean)
    return total * np.outer(mean, np.quantile(mean, np.linspace(0, 1, 128)))


def rarity(counts: np.ndarray, total: float) -> float:
    """How rarely codes meet, from 0 to 1: mean over pairs of ``1 / (1 + expected)``.

    Pairs that chance alone brings together in many records have Gaussian noise.  Where it expects
    less than one such record, a few records with many rare codes make cliques far above the noise.
    """
    typical = np.quantile(counts, np.linspace(0, 1, 128))
    return float(np.mean(1 / (1 + expected_together(typical, total))))


def penalty_factor(rare: float, firm: float, least: float = 0.0, per_code: float = np.inf) -> float:
    """Penalty in units of the noise level: 0.7 to 1.1 as a rule, 1.0 at least for uneven records.

    With Gaussian noise a penalty below its norm gives the smallest error, unless the signal is
    weaker than the noise: `least` (`least_risk`) tells, and with few records per code it is taken
    for granted.  Where codes are rare (`rarity`) cliques of single records may stand above the
    norm, as they do in real records: `firm` (`firmness`) tells.  Both ends were measured
    (docs/method.md).
    """
    common = float(np.clip(FREE_DIAGONAL * least, LEAST, 1.1))
    common = max(common, float(np.interp(per_code, CROWDED, (1.15, LEAST))))
    return max(common, LEAST + (FIRM - LEAST) * firm * min(1.0, 1.6 * rare))


def relief(values: np.ndarray, noise: float, rare: float) -> np.ndarray:
    """Share of the penalty that components with these eigenvalues bear.

    An eigenvalue y above Gaussian noise is best lowered to ``sqrt(y^2 - noise^2)``: by less, the
    clearer it stands out.  Among rare codes what stands out most is not the surest, and all bear
    the same.
    """
    y = np.maximum(values / noise, 1) if noise > 0 else np.ones(values.size)
    lowered = y - np.sqrt(y**2 - 1)
    gaussian = RELIEF * max(0.0, 1 - 2 * rare)
    return 1 - gaussian * (1 - lowered)


def least_risk(values: np.ndarray | None, noise: float) -> float:
    """The soft threshold of a symmetric matrix's eigenvalues that promises the least error.

    In units of `noise`, the norm 2 sigma sqrt(p) of its Gaussian noise with variance sigma^2 an
    entry.  Stein's unbiased estimate for f(y) = (y - threshold)_+ is, up to a constant,

        sum_i (f_i - y_i)^2 + 4 sigma^2 (sum_i f'_i + sum_{i<j} (f_i - f_j) / (y_i - y_j)).

    0 where the whole spectrum is not known (None).
    """
    if values is None or noise == 0:
        return 0.0
    y = values / noise
    factors = np.arange(0.4, 1.3, 0.05)
    return float(factors[int(np.argmin([_risk(y, factor) for factor in factors]))])


def _risk(y: np.ndarray, threshold: float) -> float:
    """Stein's estimate for eigenvalues in units of the noise, where 4 sigma^2 = 1/p.

    Of two eigenvalues above the threshold the slope is 1, of two below it is 0.
    """
    above, below = y[y > threshold], y[y <= threshold]
    f = above - threshold
    slopes = f[:, None] / np.maximum(np.subtract.outer(above, below), TINY)
    spread = f.size * (f.size + 1) / 2 + slopes.sum()
    return float(f.size * threshold**2 + (below**2).sum() + spread / y.size)
