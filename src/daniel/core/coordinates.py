"""Coordinates: how a record enters the model, and how parameters translate to the paper's.

Every recipe of this package is one family,

    logit P(z_j = 1 | rest) = b_j + gain_j * sum_{k != j} phi_kj xt_k,   xt = (z - center) / scale,

with Phi = U V'.  The paper's eq. (conditional_dist) has ``xt = x = 2z - 1`` and ``gain = 2``;
natural coordinates standardise every code, so that near independence the Hessian in Phi is the
identity.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Coordinates:
    """Centre, scale and gain of each code, (p,) each.

    `tie` (p,) holds the intercepts at the diagonal, ``b_j = tie_j * phi_jj`` (the paper's
    theta_jj = (UV')_jj); None leaves them free.
    """

    center: np.ndarray
    scale: np.ndarray
    gain: np.ndarray
    tie: np.ndarray | None = None

    @property
    def p(self) -> int:
        return self.center.size

    @property
    def tied(self) -> bool:
        return self.tie is not None

    @cached_property
    def to_theta(self) -> np.ndarray:
        """(p, p) factors with theta_kj = to_theta_kj * phi_kj off the diagonal."""
        return self.gain[None, :] / (4 * self.scale[:, None])


def paper_coordinates(p: int) -> Coordinates:
    """x in {-1, +1}, Theta itself, intercept tied to the diagonal."""
    half = np.full(p, 0.5)
    return Coordinates(half, half, np.full(p, 2.0), tie=np.full(p, 2.0))


# Codes seen in fewer records, or a smaller share of them, have their scale raised: the correlation
# of two rare codes is dominated by single records, which the loss in natural units would otherwise
# chase, and among very many records their logits would run into the hundreds.
RARE_RECORDS = 10.0
RARE_SHARE = 1 / 4000


def natural_coordinates(counts: np.ndarray, total: float, *, tied: bool = False) -> Coordinates:
    """Standardised codes: theta_jk = phi_jk / (4 sigma_j sigma_k).

    The prevalence is ``(counts + 1/2) / (total + 1)``, never 0 or 1, and ``sigma^2 = mean (1 -
    mean) + max(RARE_RECORDS / (total + 1), RARE_SHARE)``: a code that is never seen has one too.
    With `tied` the records stay uncentred, because theta_jj = (UV')_jj is a statement about ±1.
    """
    mean = smoothed_mean(counts, total)
    rare = max(RARE_RECORDS / (total + 1.0), RARE_SHARE)
    sigma = np.sqrt(mean * (1 - mean) + rare)
    if tied:
        return Coordinates(np.full(mean.size, 0.5), sigma, 1 / sigma, tie=1 / (2 * sigma**2))
    return Coordinates(mean, sigma, 1 / sigma)


def smoothed_mean(counts: np.ndarray, total: float) -> np.ndarray:
    """Prevalence with one pseudo-record: never 0 or 1."""
    return (counts + 0.5) / (total + 1.0)


def theta_from(coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The paper's (p, p) Theta: couplings off the diagonal, ±1 intercepts on it.

    ``2 theta_jj = b_j + gain_j sum_{k != j} phi_kj (1/2 - center_k) / scale_k``.
    """
    theta = (U @ V.T).astype(np.float64)
    if coords.tied:
        b = coords.tie * np.diag(theta)
    theta *= coords.to_theta
    np.fill_diagonal(theta, 0)
    # 4 theta_kj (1/2 - center_k) is what code k adds to the logit of j when x_k = 0.
    np.fill_diagonal(theta, b / 2 + 2 * ((0.5 - coords.center) @ theta))
    return theta


def theta_diagonal(coords: Coordinates, U: np.ndarray, V: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(p,) diagonal of `theta_from` for free intercepts b (p,), without a (p, p) array."""
    from_half = (0.5 - coords.center) / coords.scale
    through_others = (from_half @ U) @ V.T - from_half * np.einsum("jc,jc->j", U, V)
    diagonal: np.ndarray = (b + coords.gain * through_others) / 2
    return diagonal
