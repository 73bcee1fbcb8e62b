"""Plain dense NumPy versions of what daniel.core computes: slow, obvious, and written on their own.

Nothing here calls daniel's numerics; a test compares the package with these.
"""

from types import SimpleNamespace

import numpy as np
import pytest


def sigmoid(m):
    return 1 / (1 + np.exp(-m))


def standardised(coords, Z):
    """(n, p) records as the model sees them: (z - center) / scale."""
    return (Z - coords.center) / coords.scale


def logits(coords, phi, b, Z, site=None):
    """(n, p) logits b_j + gain_j sum_{k != j} phi_kj xt_k, the sum with a hole at k = j."""
    off = phi * (1 - np.eye(phi.shape[0]))
    if coords.tie is not None:
        b = (coords.tie * np.diag(phi))[None, :]
    rows = np.zeros(Z.shape[0], dtype=int) if site is None or b.shape[0] == 1 else site
    return b[rows] + standardised(coords, Z) @ off * coords.gain


def loss(coords, phi, b, Z, *, site=None, weight=None):
    """Weighted mean over records of minus the log of the conditional probabilities."""
    weight = np.ones(Z.shape[0]) if weight is None else weight
    M = logits(coords, phi, b, Z, site)
    return float(weight @ (np.logaddexp(0, M) - Z * M).sum(axis=1) / weight.sum())


def gradients(coords, phi, b, Z, *, site=None, weight=None):
    """Free derivative in Phi (p, p), and in the intercepts (sites, p)."""
    weight = np.ones(Z.shape[0]) if weight is None else weight
    R = weight[:, None] * (sigmoid(logits(coords, phi, b, Z, site)) - Z) / weight.sum()
    G = (standardised(coords, Z).T @ R) * coords.gain
    np.fill_diagonal(G, 0 if coords.tie is None else coords.tie * R.sum(axis=0))
    sites = 1 if b is None else b.shape[0]
    rows = np.zeros(Z.shape[0], dtype=int) if site is None or sites == 1 else site
    gb = np.stack([R[rows == s].sum(axis=0) for s in range(sites)])
    return G, gb


def paper_loss(theta, X):
    """Eq. (objective), term by term."""
    n, p = X.shape
    total = 0.0
    for x in X:
        for j in range(p):
            M = theta[j, j] + sum(theta[k, j] * x[k] for k in range(p) if k != j)
            total += np.log1p(np.exp(-2 * x[j] * M))
    return total / n


def paper_W(theta, X):
    """Eq. (B_star): mean of W_ij = 2 x_i x_j (B_i + B_j), W_ii = 2 x_i B_i; theta symmetric."""
    p = theta.shape[0]
    M = np.diag(theta) + X @ (theta * (1 - np.eye(p)))
    B = -1 / (1 + np.exp(2 * X * M))
    W = np.zeros((p, p))
    for x, B_row in zip(X, B, strict=True):
        W += 2 * np.outer(x, x) * (B_row[:, None] + B_row[None, :])
    W /= X.shape[0]
    np.fill_diagonal(W, (2 * X * B).mean(axis=0))
    return W


def finite_difference(f, x, step=1e-6):
    """Central differences of a scalar function, entry by entry, in the shape of x."""
    out = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        out[index] = (f(up) - f(down)) / (2 * step)
    return out


def relative_error(found, wanted):
    """Norm of the difference over the norm of what is wanted."""
    return np.linalg.norm(np.asarray(found) - wanted) / np.linalg.norm(wanted)


def symmetric_theta(p, rng, size=0.3):
    """A dense symmetric matrix, neither positive nor negative, with uneven intercepts."""
    theta = rng.normal(size=(p, p)) * size
    return (theta + theta.T) / 2


def binary(n, p, density, rng):
    """(n, p) 0/1 float records whose codes differ in prevalence around `density`."""
    chance = np.clip(density * rng.uniform(0.5, 1.5, size=p), 0, 0.95)
    return (rng.random((n, p)) < chance).astype(float)


@pytest.fixture(scope="session")
def plain():
    return SimpleNamespace(
        sigmoid=sigmoid,
        standardised=standardised,
        logits=logits,
        loss=loss,
        gradients=gradients,
        paper_loss=paper_loss,
        paper_W=paper_W,
        finite_difference=finite_difference,
        relative_error=relative_error,
        symmetric_theta=symmetric_theta,
        binary=binary,
    )


@pytest.fixture
def rng():
    return np.random.default_rng(20240)
