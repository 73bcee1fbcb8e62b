"""The law of a record, and the Markov chain that keeps it.

A record z in {0,1}^p and a latent patient y in R^d have the joint law
``p(z, y) ∝ exp(y'W'z - y'y/2 + c'z)`` for z ≠ 0, eq. (EHR_model) with W = 2U and z = (x + 1)/2:
``y | z ~ N(W'z, I)``, and given y the codes are independent with log-odds ``c_j + w_j'y``.  Its
margin is the Ising model ``θ_jk = u_j'u_k``, ``θ_jj = c_j/2 + u_j'U'1``, eq. (def_X), given that
the record holds a code.

Arrays are (p, n), one column a record: a sparse W then makes every number the same whatever the
number of columns beside it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

GRID = 160  # points of one latent axis
POOL = 512  # chains from whose states patients start
SWEEPS = 200  # of the pool
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Couplings:
    """W (p, d), sparse: loadings of the codes on the latent axes."""

    W: sp.csr_array

    @cached_property
    def transposed(self) -> sp.csr_array:
        return sp.csr_array(self.W.T)

    @property
    def U(self) -> np.ndarray:
        """(p, d) factor of Θ in the paper's coordinates."""
        return self.W.toarray() / 2

    def theta_diagonal(self, c: np.ndarray) -> np.ndarray:
        """θ_jj of intercepts c (..., p)."""
        U = self.U
        diagonal: np.ndarray = c / 2 + U @ U.sum(axis=0)
        return diagonal


class Chain:
    """n chains, each a record z and its latent patient y.

    c (p, n) float32 intercepts, which the caller may change; Z (p, n) float32 zeros and ones.
    Drawing y, then z, leaves the law unchanged, also when y moves only part of the way and when
    codes keep their value with a chance of their own: given the other half, both are exact
    partial updates of independent parts.  A draw without codes is refused as a whole.
    """

    def __init__(
        self, couplings: Couplings, c: np.ndarray, Z: np.ndarray, rng: np.random.Generator
    ) -> None:
        self.couplings = couplings
        self.c = c
        self.Z = Z
        self.rng = rng
        self.Y = np.zeros((couplings.W.shape[1], Z.shape[1]), np.float32)

    def draw_latent(self, memory: float = 0.0) -> None:
        """y <- mean + memory (y - mean) + noise, where mean = W'z: keeps N(W'z, I)."""
        mean = self.couplings.transposed @ self.Z
        noise = self.rng.standard_normal(mean.shape, np.float32)
        if memory:
            noise *= np.float32(np.sqrt(1 - memory**2))
            noise += np.float32(memory) * (self.Y - mean)
        self.Y = mean + noise

    def probabilities(self) -> np.ndarray:
        """(p, n) chance of each code given y."""
        out = self.couplings.W @ self.Y
        out += self.c
        np.negative(out, out=out)
        np.exp(out, out=out)
        out += 1
        return np.reciprocal(out, out=out)

    def draw_codes(
        self,
        keep: np.ndarray | None = None,
        *,
        absent: tuple[int, np.ndarray] | None = None,
        present: tuple[int, np.ndarray] | None = None,
    ) -> np.ndarray:
        """New codes given y; returns their probabilities.

        keep (p, 1): chance of each code to stay as it is.  absent, present: a code and the columns
        in which it is held so, which is the law given that value.
        """
        chance = self.probabilities()
        drawn = self.rng.random(chance.shape, np.float32)
        if keep is None:
            Z = (drawn < chance).astype(np.float32)
        else:
            Z = np.where(drawn < keep, self.Z, drawn < keep + (1 - keep) * chance)
        for held, value in ((absent, 0), (present, 1)):
            if held is not None:
                Z[held[0], held[1]] = value
        empty = Z.max(axis=0) == 0
        Z[:, empty] = self.Z[:, empty]
        self.Z = Z
        return chance

    def keep_only(self, columns: np.ndarray) -> None:
        """Drop all other chains."""
        self.c, self.Z, self.Y = (
            np.ascontiguousarray(a[:, columns]) for a in (self.c, self.Z, self.Y)
        )


def axis_intercepts(w: np.ndarray, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Intercepts that give the codes of one axis the prevalences mu, as if it were the only one.

    The axis has density ``φ(y) Π_j (1 + exp(c_j + w_j y))``, which is summed on a grid.  Returns c,
    the grid, and the log density on it.
    """
    y = np.linspace(-5, w.sum() + 5, GRID)
    c = logit(mu) - w**2 / 2 - w * (w @ mu - w * mu)
    for _ in range(100):
        odds = c[:, None] + w[:, None] * y
        density = -(y**2) / 2 + np.logaddexp(0, odds).sum(axis=0)
        weight = np.exp(density - density.max())
        error = np.log(mu / (expit(odds) @ weight * (1 / weight.sum())))
        c += np.clip(error / 2, -0.5, 0.5)
        if np.abs(error).max() < TOLERANCE:
            break
    return c, y, density


def barrier(density: np.ndarray) -> float:
    """Depth of the deepest valley of a log density: what a chain must cross to mix."""
    left = np.maximum.accumulate(density)
    right = np.maximum.accumulate(density[::-1])[::-1]
    return float((np.minimum(left, right) - density).max())


def calibrate(
    couplings: Couplings, mu: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Intercepts c (p,) at which codes have about the prevalences mu, and a pool (p, POOL) of
    records near equilibrium.

    Chains that must meet a rare condition to know its share would need too long, so each axis is
    integrated by itself; a code on several axes gets the sum of their corrections.
    """
    c = _intercepts(couplings, mu)
    Z = (rng.random((mu.size, POOL)) < mu[:, None]).astype(np.float32)
    chain = Chain(couplings, np.repeat(c[:, None], POOL, axis=1), Z, rng)
    for _ in range(SWEEPS):
        chain.draw_latent()
        chain.draw_codes()
    return c, chain.Z.astype(np.uint8)


def _intercepts(couplings: Couplings, mu: np.ndarray) -> np.ndarray:
    c = logit(mu)
    columns = couplings.transposed
    for k in range(columns.shape[0]):
        here = slice(columns.indptr[k], columns.indptr[k + 1])
        codes = columns.indices[here]
        if codes.size:
            own, _, _ = axis_intercepts(columns.data[here].astype(float), mu[codes])
            c[codes] += own - logit(mu[codes])
    first: np.ndarray = c.astype(np.float32)
    return first
