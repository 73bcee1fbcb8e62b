"""The paper's recipe, Algorithm 1 (al:Divide_conquer), in plain NumPy as one would write it.

Dense ±1 records, float64, the gradient of eq. (B_star), gradient descent with a fixed step: nothing
here calls daniel.
"""

import time

import numpy as np

from benchmarks.methods import limit
from benchmarks.methods.result import Result, hub_rows
from benchmarks.methods.settings import Settings, papers
from benchmarks.problems import Problem
from daniel.errors import DivergenceError

START_UPDATES = 5
TOLERANCE = 1e-5


def gradient(X: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """(p, p) mean over records of W, eq. (B_star); X (n, p) in {-1, +1}.

    ``Q_q = 2 x_q (theta_qq + sum_{j != q} theta_jq x_j)``, ``B = -1 / (1 + exp(Q))``.
    """
    diagonal = np.diag(theta)
    Q = 2 * X * (X @ theta + diagonal - diagonal * X)
    XB = X * (-1 / (1 + np.exp(Q)))
    G = 2 * X.T @ XB / X.shape[0]
    W = G + G.T
    np.fill_diagonal(W, 2 * XB.mean(axis=0))
    return W


def start(X: np.ndarray, d: int, eta: float) -> tuple[np.ndarray, np.ndarray]:
    """U0, V0 (p, d): rank-d SVD after 5 updates from zero, eq. (question) with lambda = 0."""
    theta = np.zeros((X.shape[1], X.shape[1]))
    for _ in range(START_UPDATES):
        theta -= eta * gradient(X, theta)
    left, values, right = np.linalg.svd(theta)
    root = np.sqrt(values[:d])
    return left[:, :d] * root, right[:d].T * root


def descend(
    hub: np.ndarray, U: np.ndarray, V: np.ndarray, correction: np.ndarray, eta: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient descent on eq. (surrogate_obj), both factors updated from the old pair."""
    theta = U @ V.T
    for _ in range(steps):
        D = gradient(hub, theta) + correction
        gap = U.T @ U - V.T @ V  # the balancer's gradients are U gap and -V gap
        U, V = U - eta * (D @ V + U @ gap), V - eta * (D.T @ U - V @ gap)
        old, theta = theta, U @ V.T
        if not np.isfinite(theta).all():
            raise DivergenceError(f"Gradient descent diverged with step size eta = {eta}.")
        if np.linalg.norm(theta - old) < TOLERANCE:
            break
    return U, V


def dense(problem: Problem, rows: np.ndarray) -> np.ndarray:
    return 2.0 * problem.Z[rows].toarray().astype(np.float64) - 1.0


def one_shot(problem: Problem, said: Settings, eta: float) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1: start at the hub, one gradient of every site, descent at the hub."""
    own = hub_rows(problem)
    hub = dense(problem, own)
    U, V = start(hub, said.rank, eta)
    theta = U @ V.T
    mine = gradient(hub, theta)
    mean = own.mean() * mine
    for site in np.unique(problem.sites[~own]):
        rows = problem.sites == site
        mean = mean + rows.mean() * gradient(dense(problem, rows), theta)
    return descend(hub, U, V, mean - mine, eta, said.iterations)


def run(problem: Problem, rng: np.random.Generator) -> Result:
    """The largest of a few steps that does not diverge; time and limit are of this step alone."""
    said = papers(problem)
    for eta in said.steps:
        limit.anew()
        begin = time.perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                U, V = one_shot(problem, said, eta)
        except (DivergenceError, np.linalg.LinAlgError):
            continue
        p, d = U.shape
        sent = 8 * (2 * p * d + p * (p + 1) // 2)  # a derivative is symmetric
        return Result(U, U @ V.T, sent, seconds=time.perf_counter() - begin)
    raise DivergenceError(f"Gradient descent diverged with every step size of {said.steps}.")
