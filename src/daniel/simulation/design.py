"""The designs of the paper's simulation study, and what one repetition draws.

Truth: ``U* ~ N(0, 1/(dp))`` entry by entry, ``Theta* = U*U*'`` with its diagonal as the intercept,
d = p/10; n records by the block Gibbs sampler; split evenly over ``m = floor(n^x)`` sites.

All random numbers of a repetition come from (seed, n, p, repetition): every x and every method of
a repetition sees the same truth and the same records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor

import numpy as np
import scipy.sparse as sp

from daniel.core.sample import gibbs
from daniel.errors import ParameterError

SWEEPS = 100  # of the Gibbs sampler
MANY_REPS, FEW_REPS = 50, 20  # at p = 50, whose cells the paper tabulates, and elsewhere


@dataclass(frozen=True)
class Cell:
    """One setting: n records of p codes with a truth of rank d, split over floor(n^x) sites."""

    n: int
    p: int
    d: int
    x: float

    @property
    def m(self) -> int:
        return floor(self.n**self.x + 1e-9)  # 1000^(1/3) is 9.999...

    def sites(self) -> np.ndarray | None:
        """(n,) site of each record, sizes even to one record, the hub (0) never smaller; or None
        when there is one site only."""
        return None if self.m == 1 else np.arange(self.n) * self.m // self.n


@dataclass(frozen=True)
class Design:
    """All combinations of n, p and x.  d: the rank of every truth, or None for p/10."""

    name: str
    n: tuple[int, ...]
    p: tuple[int, ...]
    x: tuple[float, ...]
    d: int | None = None

    def rank(self, p: int) -> int:
        return p // 10 if self.d is None else self.d

    def cell(self, n: int, p: int, x: float) -> Cell:
        return Cell(n, p, self.rank(p), x)

    def reps(self, p: int, asked: int | None) -> int:
        """Repetitions at p: what was asked for, or the study's own number."""
        if asked is not None:
            return asked
        return MANY_REPS if self.name == "main" and p == 50 else FEW_REPS


X_GRID = tuple(round(0.1 * i, 1) for i in range(7))
DESIGNS = {
    "main": Design("main", (1000, 5000, 10_000, 20_000), (50, 100, 150, 200), X_GRID),
    # m = 15 is floor(10,000^0.3)
    "dimension": Design("dimension", (10_000,), tuple(range(20, 201, 20)), (0.3,)),
}


def make_design(
    name: str,
    *,
    n: Sequence[int] | None = None,
    p: Sequence[int] | None = None,
    x: Sequence[float] | None = None,
    d: int | None = None,
) -> Design:
    """The named design, with other values where given; a ParameterError when they cannot work."""
    if name not in DESIGNS:
        raise ParameterError(f"design is {name!r}; expected {' or '.join(map(repr, DESIGNS))}.")
    if name == "dimension" and (n or x):
        raise ParameterError(
            "The dimension design has n = 10,000 and x = 0.3; use the main design for others."
        )
    given = {
        key: tuple(dict.fromkeys(values))
        for key, values in (("n", n), ("p", p), ("x", x))
        if values is not None and len(values)
    }
    design = replace(DESIGNS[name], d=d, **given)  # type: ignore[arg-type]
    _check(design)
    return design


def _check(design: Design) -> None:
    for n in design.n:
        if n < 10:
            raise ParameterError(f"n is {n}; a simulated study needs at least 10 records.")
    for x in design.x:
        if not 0 <= x < 1:
            raise ParameterError(
                f"x is {x:g}; expected 0 <= x < 1, because n^x sites must share n records."
            )
    if design.d is not None and design.d < 1:
        raise ParameterError(f"d is {design.d}; the truth needs a rank of at least 1.")
    for p in design.p:
        d = max(1, design.rank(p))
        if p < 10 * d:
            raise ParameterError(
                f"p is {p} and d is {d}; the study's truth needs p >= 10 d: "
                f"use p >= {10 * d}" + (f" or d <= {p // 10}." if p >= 10 else ".")
            )


@dataclass(frozen=True)
class Draw:
    """Theta* (p, p), records Z (n, p), and the seed that estimators get."""

    theta: np.ndarray
    Z: sp.csr_array
    random_state: int


def draw(cell: Cell, seed: int, rep: int, *, pilot: bool = False) -> Draw:
    """Truth and records of one repetition, the same for every x.

    pilot: from a stream of its own, so that step sizes are not chosen on the study's records.
    """
    sequence = np.random.SeedSequence([seed, cell.n, cell.p, rep, *([1] if pilot else [])])
    truth, records, fits = sequence.spawn(3)
    U = draw_factor(cell.p, cell.d, np.random.default_rng(truth))
    theta = U @ U.T
    Z = gibbs(U, np.diag(theta), cell.n, np.random.default_rng(records), SWEEPS)
    return Draw(theta, sp.csr_array(Z), int(fits.generate_state(1)[0] >> 1))


def draw_factor(p: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """U* (p, d) with independent N(0, 1/(dp)) entries."""
    return rng.normal(0.0, (d * p) ** -0.5, (p, d))
