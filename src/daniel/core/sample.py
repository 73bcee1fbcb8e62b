"""Ground truth: exact enumeration of small models, and the latent block Gibbs sampler."""

from itertools import product

import numpy as np
from scipy.special import expit, logsumexp

from daniel.errors import ParameterError

MAX_ENUMERATED = 20


def enumerate_states(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All 2^p states X in {-1, +1} (2^p, p) and their probabilities, eq. (def_X).

    The sum of eq. (def_X) is read over unordered pairs, the only reading that agrees with the
    conditional eq. (conditional_dist).
    """
    p = theta.shape[0]
    if p > MAX_ENUMERATED:
        raise ParameterError(
            f"Enumeration needs 2^p states and p is {p}; use at most {MAX_ENUMERATED} codes, "
            "or the Gibbs sampler."
        )
    X = np.array(list(product((-1.0, 1.0), repeat=p)))
    pairs = theta - np.diag(np.diag(theta))
    energy = 0.5 * np.einsum("ij,jk,ik->i", X, (pairs + pairs.T) / 2, X) + X @ np.diag(theta)
    return X, np.exp(energy - logsumexp(energy))


def gibbs(
    U: np.ndarray, b: np.ndarray, n: int, rng: np.random.Generator, sweeps: int = 100
) -> np.ndarray:
    """n independent 0/1 records (n, p), uint8, from the model with Theta = UU' and intercepts b.

    Alternates the two halves of ``p(x, y) ∝ exp(y'U'x - y'y/2 + b'x)``, eq. (EHR_model), for n
    chains at once: ``y | x ~ N(U'x, I)``, then x_j | y with log-odds ``2((Uy)_j + b_j)``.
    """
    U = np.asarray(U, dtype=np.float32)
    b = np.asarray(b, dtype=np.float32)
    Z = (rng.random((n, b.size), dtype=np.float32) < expit(2 * b)).astype(np.float32)
    if not U.any():  # independent codes: the first draw is exact
        return Z.astype(np.uint8)
    constant = U.sum(axis=0)
    for _ in range(sweeps):
        Y = 2 * (Z @ U) - constant
        Y += rng.standard_normal(Y.shape, dtype=np.float32)
        odds = Y @ (2 * U.T)
        odds += 2 * b
        np.less(rng.random(odds.shape, dtype=np.float32), expit(odds, out=odds), out=Z)
    return Z.astype(np.uint8)


def gibbs_factor(theta: np.ndarray) -> np.ndarray:
    """U with UU' = Theta off the diagonal, for any symmetric Theta.

    The diagonal of UU' does not enter the model (x_j^2 = 1), so it is raised until Theta is
    positive semidefinite.
    """
    pairs = theta - np.diag(np.diag(theta))
    value, vector = np.linalg.eigh(pairs)
    return vector * np.sqrt(value - value[0])
