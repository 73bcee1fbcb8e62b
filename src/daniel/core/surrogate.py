"""What the hub minimises, eq. (surrogate_obj), as a function of one flat vector.

    f(U, V, b) = L_1(UV', b) + <D, UV'> + <c, b>           hub loss and gradient corrections
               + (1/2) sum_i lambda_i (|u_i|^2 + |v_i|^2)   nuclear norm of UV'
               + (1/2) sum_j w_j E_j M E_j'                 damping, E = UV' - U0 V0'
               + beta ||U'U - V'V||^2                       embedding balancer, beta = 1/4

Without corrections and damping this is the centralised objective.  `signs` (d,) fixes V = U
diag(signs), the form that a symmetric Theta keeps (Remark 1): it halves the unknowns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from daniel.core.coordinates import Coordinates
from daniel.core.ising import full_sweep, sweep
from daniel.core.records import Records, split
from daniel.core.solve import Product
from daniel.core.threads import n_threads, run_parts

WEAK = 0.05  # of the mean curvature of columns: none is steered by rounding alone
FLAT = 0.1  # curvature along the intercept of the rarest code
MANY_CODES = 1_000  # above which threads share products with the correction
INTERCEPT_EASE = 10.0  # an intercept's loss is so much flatter than that of an entry of Phi


@dataclass(frozen=True)
class Factors:
    """U, V (p, d) and intercepts b (sites, p); b is None when it is tied to the diagonal."""

    U: np.ndarray
    V: np.ndarray
    b: np.ndarray | None


@dataclass(frozen=True)
class Anchor:
    """Damping: half the squared distance of UV' to U0 V0', row j weighted by w_j.

    Distances are E_j M E_j' of the rows of E = UV' - U0 V0', with ``M = I + L'L``: a loss is
    steeper along what its records vary most in.  L (k, p); None: M = I.
    """

    U: np.ndarray
    V: np.ndarray
    weight: np.ndarray  # (p,)
    L: np.ndarray | None = None

    def __call__(self, U: np.ndarray, V: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Value and derivatives in U and V, through products of factors alone."""
        wU0, MV0, square = self._start
        wU, MV = self.weight[:, None] * U, self._times_M(V)
        VV, V0V, UU, U0U = V.T @ MV, MV0.T @ V, U.T @ wU, wU0.T @ U
        value = _dot(UU, VV) - 2 * _dot(U0U, V0V) + square
        return value / 2, wU @ VV - wU0 @ V0V, MV @ UU - MV0 @ U0U

    @cached_property
    def _start(self) -> tuple[np.ndarray, np.ndarray, float]:
        """w U0, M V0 and the squared length of U0 V0'."""
        wU0, MV0 = self.weight[:, None] * self.U, self._times_M(self.V)
        return wU0, MV0, _dot(self.U.T @ wU0, self.V.T @ MV0)

    def _times_M(self, V: np.ndarray) -> np.ndarray:
        return V if self.L is None else V + self.L.T @ (self.L @ V)


@dataclass(frozen=True)
class Surrogate:
    """The objective; call it with a packed vector for value and gradient.

    prior (sites, p): intercepts that one pseudo-record pulls to, so that a code which is never or
    always present keeps a finite one; None when the coordinates tie the intercept.  penalty: a
    number, or one for each column.  correction (p, p) is D, intercept_correction (sites, p) is c.
    """

    records: Records
    coords: Coordinates
    prior: np.ndarray | None
    signs: np.ndarray | None
    penalty: float | np.ndarray = 0.0
    correction: np.ndarray | None = None
    intercept_correction: np.ndarray | None = None
    anchors: Sequence[Anchor] = ()
    balance: float = 0.0

    def on(self, records: Records) -> "Surrogate":
        """The same objective with the loss of other records."""
        return replace(self, records=records)

    def corrected_on(self, records: Records, x: np.ndarray) -> "Surrogate":
        """`on` other records, whose loss is corrected to have the derivatives of these at x.

        To all records a part of them is what the hub is to all sites: eq. (surrogate_obj) again.
        """
        f = self.unpack(x)
        at = (self.coords, (f.U, f.V), f.b)
        here = full_sweep(self.records, *at)
        there = full_sweep(records, *at, subtract_from=here.G)  # here.G: now the difference
        change = {"correction": here.G, "intercept_correction": here.b - there.b}
        for name, more in change.items():
            if getattr(self, name) is not None:
                more += getattr(self, name)
        return replace(self, records=records, **change)

    @property
    def _unit(self) -> np.ndarray:
        """The vector holds b * unit: a step of one there changes the loss as one in Phi does."""
        assert self.prior is not None
        share = np.ones(1)
        if self.prior.shape[0] > 1:
            share = np.maximum(self.records.site_totals() / self.records.total, 1e-6)
        return np.sqrt(share)[:, None] * self.coords.scale

    def pack(self, factors: Factors) -> np.ndarray:
        parts = [factors.U] if self.signs is not None else [factors.U, factors.V]
        if self.prior is not None:
            assert factors.b is not None
            parts.append(factors.b * self._unit)
        return np.concatenate([part.ravel() for part in parts]).astype(factors.U.dtype)

    def unpack(self, x: np.ndarray) -> Factors:
        free = 0 if self.prior is None else self.prior.size
        body, tail = x[: x.size - free], x[x.size - free :]
        b = None if self.prior is None else tail.reshape(self.prior.shape) / self._unit
        p = self.coords.p
        if self.signs is None:
            U, V = body.reshape(2, p, -1)
            return Factors(U, V, b)
        U = body.reshape(p, -1)
        return Factors(U, U * self.signs.astype(U.dtype), b)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at the packed vector x."""
        f = self.unpack(x)
        U, V = f.U, f.V
        out = sweep(self.records, self.coords, U, V, f.b)
        value, gU, gV = out.loss, out.U.astype(np.float64), out.V.astype(np.float64)
        if self.correction is not None:
            DV, DU = _products(self.correction, U, V)
            value += float(np.vdot(U, DV))
            gU += DV
            gV += DU
        if np.any(self.penalty):
            value += 0.5 * float(np.sum(self.penalty * ((U**2).sum(axis=0) + (V**2).sum(axis=0))))
            gU += self.penalty * U
            gV += self.penalty * V
        for anchor in self.anchors:
            extra, aU, aV = anchor(U, V)
            value += extra
            gU += aU
            gV += aV
        if self.balance:
            gap = U.T @ U - V.T @ V
            value += self.balance * float(np.vdot(gap, gap))
            gU += 4 * self.balance * U @ gap
            gV -= 4 * self.balance * V @ gap
        parts = [gU, gV] if self.signs is None else [gU + self.signs * gV]
        if f.b is not None:
            extra, gb = self._intercepts(f.b, out.b)
            value += extra
            parts.append(gb)
        return value, np.concatenate([part.ravel() for part in parts]).astype(x.dtype)

    def _intercepts(self, b: np.ndarray, gb: np.ndarray) -> tuple[float, np.ndarray]:
        """What pseudo-record and correction add to the value, and the derivative in b * unit."""
        pull = self._unit**2 / self.records.total
        value = float((pull * (b - self.prior) ** 2).sum()) / 2
        gb = gb + pull * (b - self.prior)
        if self.intercept_correction is not None:
            value += float(np.vdot(self.intercept_correction, b))
            gb = gb + self.intercept_correction
        return value, gb / self._unit

    def guess(self) -> Callable[[np.ndarray], Product]:
        """guess(x): the inverse Hessian near x, roughly and but for a factor; needs signs.

        Phi = U V' moves with U as strongly as V is, so in U the loss curves as ``V'V``: scaled
        gradient descent (Tong, Ma and Chi, JMLR 2021).  The penalty adds its own curvature, rows
        curve by the damping on top, and intercepts as their codes vary.
        """
        assert self.signs is not None
        p, d = self.coords.p, self.signs.size
        penalty = np.diag(np.full(d, self.penalty, dtype=np.float64))
        damping = sum((anchor.weight for anchor in self.anchors), np.zeros(p))
        rows = 1 / (1 + damping[:, None])
        share = self.records.counts() / self.records.total
        flatness = INTERCEPT_EASE / (FLAT + share * (1 - share) / self.coords.scale**2)

        def guess(x: np.ndarray) -> Product:
            V = self.unpack(x).V
            squares = (V.T @ V).astype(np.float64) + penalty
            size = max(np.trace(squares) / d, 1e-6)
            columns = np.linalg.inv(squares / size + WEAK * np.eye(d)).astype(x.dtype)
            row = rows.astype(x.dtype)
            free = np.resize(size * flatness, x.size - V.size).astype(x.dtype)

            def product(q: np.ndarray) -> np.ndarray:
                body, tail = q[: V.size].reshape(p, d), q[V.size :]
                return np.concatenate([(row * (body @ columns)).ravel(), free * tail])

            return product

        return guess


def _dot(A: np.ndarray, B: np.ndarray) -> float:
    """Sum of A * B in float64: what is left of it may be small."""
    return float(np.vdot(A.astype(np.float64), B.astype(np.float64)))


def _products(D: np.ndarray, U: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """D V and D'U; each thread takes some rows and the columns of the same numbers."""
    parts = split(slice(0, len(D)), n_threads() if len(D) > MANY_CODES else 1)
    found = run_parts(lambda t: (D[parts[t]] @ V, D[:, parts[t]].T @ U), len(parts))
    DV, DU = zip(*found, strict=True)
    return np.concatenate(DV), np.concatenate(DU)
