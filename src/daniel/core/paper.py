"""The paper's recipe, Algorithm 1, kept exactly: ±1 records, tied intercept, W, fixed step.

start = make_start(hub)       5 gradient updates from zero, rank-d SVD
answer(records, start)        the site's W at Theta0, and its number of records
finish(hub, start, answers)   gradient descent on eq. (surrogate_obj)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from daniel.core.coordinates import paper_coordinates
from daniel.core.ising import full_sweep, hessian_product, sweep, symmetric_gradient
from daniel.core.records import Records
from daniel.core.solve import FixedStep, Point, Solution, minimise
from daniel.core.start import convex_start, signed_factor

START_STEPS = 5
BALANCE = 0.25


@dataclass(frozen=True)
class Start:
    """Theta0 = U diag(signs) U'; a symmetric Theta0 has V0 = U0 D0 (Remark 1)."""

    U: np.ndarray
    signs: np.ndarray

    @property
    def V(self) -> np.ndarray:
        return self.U * self.signs


@dataclass(frozen=True)
class Answer:
    """A site's symmetric derivative W at Theta0, and its number of records."""

    W: np.ndarray
    n: float


@dataclass(frozen=True)
class Fit:
    U: np.ndarray
    V: np.ndarray
    solution: Solution
    start: Start


def make_start(
    hub: Records,
    d: int,
    *,
    step_size: float,
    penalty: float = 0.0,
    radius: float = np.inf,
    steps: int = START_STEPS,
) -> Start:
    """Rank-d SVD of a few (proximal) gradient updates from zero, eq. (question)."""
    theta = convex_start(
        lambda t: symmetric_derivative(hub, t),
        hub.p,
        step_size=step_size,
        penalty=penalty,
        radius=radius,
        steps=steps,
    )
    return Start(*signed_factor(theta, d))


def answer(records: Records, start: Start) -> Answer:
    """W of the site's own loss at Theta0, eq. (B_star)."""
    return Answer(symmetric_derivative(records, start.U @ start.V.T), records.total)


def mean_derivative(answers: Sequence[Answer]) -> np.ndarray:
    """The mean of all records' W, from the sites' means."""
    total = sum(a.n for a in answers)
    return np.sum([(a.n / total) * a.W for a in answers], axis=0)


def finish(
    hub: Records,
    start: Start,
    answers: Sequence[Answer],
    *,
    step_size: float,
    max_iter: int,
    tol: float,
    progress: Callable[[int, float], None] | None = None,
) -> Fit:
    """Descend the surrogate, both factors from the old pair, until Theta moves less than `tol`."""
    correction = mean_derivative(answers) - answer(hub, start).W
    p, d = start.U.shape
    coords = paper_coordinates(p)
    D = start.signs

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value of eq. (surrogate_obj), and the paper's direction, which takes W for the loss.

        ``W V = G V + G' V - diag(G) V``; Remark 1 keeps V = U D, so ``G' V = (G' U) D``.
        """
        U, V = x.reshape(2, p, d)
        out = sweep(hub, coords, U, V, None)
        diagonal = (2 * out.b[0])[:, None]  # of G
        gap = U.T @ U - V.T @ V
        gU = out.U + out.V * D - diagonal * V + correction @ V + U @ gap
        gV = out.V + out.U * D - diagonal * U + correction @ U - V @ gap
        value = out.loss + np.vdot(U, correction @ V) + BALANCE * np.vdot(gap, gap)
        return float(value), np.concatenate([gU.ravel(), gV.ravel()]).astype(x.dtype, copy=False)

    def stop(old: Point, new: Point) -> bool:
        return _theta_distance(old.x.reshape(2, p, d), new.x.reshape(2, p, d)) < tol

    solution = minimise(
        objective,
        np.concatenate([start.U.ravel(), start.V.ravel()]),
        solver=FixedStep(step_size, bound=lambda: step_bound(hub, start)),
        max_iter=max_iter,
        stop=stop,
        progress=progress,
    )
    U, V = solution.x.reshape(2, p, d)
    return Fit(U, V, solution, start)


def symmetric_derivative(records: Records, theta: np.ndarray) -> np.ndarray:
    """W(theta) of the mean loss of these records, eq. (B_star)."""
    return symmetric_gradient(full_sweep(records, paper_coordinates(records.p), theta, None).G)


def largest_curvature(records: Records, theta: np.ndarray) -> float:
    """kappa_max of the loss at theta: the largest eigenvalue of its Hessian, by Lanczos."""
    p = records.p
    coords = paper_coordinates(p)

    def apply(v: np.ndarray) -> np.ndarray:
        return hessian_product(records, coords, theta, None, v.reshape(p, p)).ravel()

    if p < 3:
        return float(np.linalg.norm(np.column_stack([apply(e) for e in np.eye(p * p)]), 2))
    operator = LinearOperator((p * p, p * p), matvec=apply, dtype=np.float64)
    try:
        return float(eigsh(operator, k=1, v0=np.ones(p * p), tol=1e-2)[0][0])
    except ArpackError:  # every probability is 0 or 1: no curvature at all
        return 0.0


def step_bound(records: Records, start: Start) -> float:
    """The bound eq. (eta_ineq) on the step size, with kappa_min taken as 0 (it is nearly so).

    ``1 / (12 ||Z0||^2) * min(1 / (kappa_min + kappa_max), 1)``, Z0 = [U0; V0].  The curvature is
    that of a free Theta, as in the paper's assumption; along W it is up to twice as large.
    """
    norm = float(np.linalg.norm(np.vstack([start.U, start.V]), 2))
    return eta_bound(norm, 0.0, largest_curvature(records, start.U @ start.V.T))


def eta_bound(norm: float, kappa_min: float, kappa_max: float) -> float:
    """The right side of eq. (eta_ineq), for norm = ||Z0||_op; no bound for a start at zero."""
    return 1 / (12 * norm**2 * max(kappa_min + kappa_max, 1.0)) if norm > 0 else float("inf")


def _theta_distance(old: np.ndarray, new: np.ndarray) -> float:
    """||U_new V_new' - U_old V_old'||, by the change of both factors: no p x p array.

    With dU, dV the changes, the difference is dU V_new' + U_old dV'.
    """
    (U0, V0), (U1, V1) = old, new
    dU, dV = U1 - U0, V1 - V0
    square = (
        np.vdot(dU.T @ dU, V1.T @ V1)
        + np.vdot(U0.T @ U0, dV.T @ dV)
        + 2 * np.vdot(dU.T @ U0, V1.T @ dV)
    )
    return float(np.sqrt(max(square, 0.0)))
