"""The paper's convex baselines: a gradient update of the whole Theta, then one of its spectrum.

Each iteration is ``Theta <- P(Theta - eta W(Theta))``, where P changes the singular values only:
SV-Soft, SV-Hard, SV-Topd, or PSD-Cvx (appendix app:hyperparam_base).  Distributed, W is that of the
surrogate without balancer: the hub's W plus the correction at Theta0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daniel.core.paper import symmetric_derivative
from daniel.core.records import Records
from daniel.core.start import in_ball
from daniel.core.threads import decomposing

Spectrum = Callable[[np.ndarray], np.ndarray]


def soft(threshold: float) -> Spectrum:
    """(sigma - threshold)_+ of every singular value."""
    return lambda value: np.sign(value) * np.maximum(np.abs(value) - threshold, 0)


def hard(threshold: float) -> Spectrum:
    """Singular values up to the threshold become 0."""
    return lambda value: np.where(np.abs(value) > threshold, value, 0)


def top(d: int) -> Spectrum:
    """All but the d largest singular values become 0."""

    def keep(value: np.ndarray) -> np.ndarray:
        out = np.zeros_like(value)
        order = np.argsort(-np.abs(value), kind="stable")[:d]
        out[order] = value[order]
        return out

    return keep


def positive(value: np.ndarray) -> np.ndarray:
    """The positive semidefinite part: negative eigenvalues become 0."""
    return np.maximum(value, 0)


@dataclass(frozen=True)
class Projected:
    """Theta (p, p), iterations used, and whether Theta stood still at the end."""

    theta: np.ndarray
    n_iter: int
    converged: bool


def projected_descent(
    hub: Records,
    spectrum: Spectrum,
    *,
    step_size: float,
    max_iter: int,
    tol: float,
    radius: float,
    start: np.ndarray | None = None,
    correction: np.ndarray | None = None,
) -> Projected:
    """Iterate from `start` (zero if None), in its dtype, until Theta moves less than `tol`.

    Theta stays symmetric, so eigenvalues stand for singular values with a sign.  The ball keeps
    every iterate finite; the paper's distributed baselines end on it (radius 8).
    """
    theta = np.zeros((hub.p, hub.p)) if start is None else start
    for iteration in range(1, max_iter + 1):
        W = symmetric_derivative(hub, theta)
        if correction is not None:
            W = W + correction
        with decomposing(hub.p):
            value, vector = np.linalg.eigh(theta - step_size * W)
        following = in_ball((vector * spectrum(value)) @ vector.T, radius)
        moved = np.linalg.norm(following - theta)
        theta = following
        if moved < tol:
            return Projected(theta, iteration, True)
    return Projected(theta, max_iter, False)
