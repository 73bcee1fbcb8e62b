"""What the hub minimises, eq. (surrogate_obj), as a function of one flat vector.

    f(U, V, b) = L_1(UV', b) + <D, UV'> + <c, b>                  hub loss, gradient correction
               + (lambda/2) (||U||^2 + ||V||^2)                    nuclear norm of UV'
               + (alpha/2) ||UV' - U0 V0'||^2                      damping
               + (1/4) ||U'U - V'V||^2                             embedding balancer

Without corrections this is the centralised objective.  The positive semidefinite form has V = U,
which is balanced by itself.
"""

from dataclasses import dataclass, replace

import numpy as np

from daniel.core.coordinates import Coordinates
from daniel.core.ising import sweep
from daniel.core.records import Records


@dataclass(frozen=True)
class Factors:
    """U, V (p, d) and intercepts b (sites, p); V is U itself in the positive semidefinite form."""

    U: np.ndarray
    V: np.ndarray
    b: np.ndarray | None


@dataclass(frozen=True)
class Surrogate:
    """The objective.  `correction` (p, p) is D, `intercept_correction` (sites, p) is c, `anchor`
    the factors (U0, V0) that `damping` pulls to, `prior` (sites, p) the intercepts that a
    pseudo-record keeps finite when a code is never or always present."""

    records: Records
    coords: Coordinates
    prior: np.ndarray | None
    psd: bool = True
    penalty: float = 0.0
    correction: np.ndarray | None = None
    intercept_correction: np.ndarray | None = None
    damping: float = 0.0
    anchor: tuple[np.ndarray, np.ndarray] | None = None
    balance: float = 0.0

    def on(self, records: Records) -> "Surrogate":
        """The same objective with the loss of other records."""
        return replace(self, records=records)

    # The vector holds b * unit: a step of one in it changes the loss about as a step of one in Phi.
    @property
    def _unit(self) -> np.ndarray:
        share = self.records.site_totals() / self.records.total
        if self.prior is not None and self.prior.shape[0] == 1:
            share = np.ones(1)
        return np.sqrt(np.maximum(share, 1e-6))[:, None] * self.coords.scale

    def pack(self, factors: Factors) -> np.ndarray:
        parts = [factors.U.ravel()]
        if not self.psd:
            parts.append(factors.V.ravel())
        if self.prior is not None:
            assert factors.b is not None
            parts.append((factors.b * self._unit).ravel().astype(factors.U.dtype))
        return np.concatenate(parts)

    def unpack(self, x: np.ndarray) -> Factors:
        p = self.coords.p
        free = 0 if self.prior is None else self.prior.size
        body, tail = x[: x.size - free], x[x.size - free :]
        b = None if self.prior is None else tail.reshape(self.prior.shape) / self._unit
        if self.psd:
            U = body.reshape(p, -1)
            return Factors(U, U, b)
        U, V = body.reshape(2, p, -1)
        return Factors(U, V, b)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at the packed vector x."""
        f = self.unpack(x)
        out = sweep(self.records, self.coords, f.U, f.V, f.b)
        value, gU, gV, gb = out.loss, out.U, out.V, out.b
        if self.correction is not None:
            DV, DU = self.correction @ f.V, self.correction.T @ f.U
            value += float(np.vdot(f.U, DV))
            gU, gV = gU + DV, gV + DU
        if self.penalty:
            value += self.penalty / 2 * float(np.vdot(f.U, f.U) + np.vdot(f.V, f.V))
            gU, gV = gU + self.penalty * f.U, gV + self.penalty * f.V
        if self.damping and self.anchor is not None:
            extra, dU, dV = _squared_distance(f.U, f.V, *self.anchor)
            value += self.damping / 2 * extra
            gU, gV = gU + self.damping * dU, gV + self.damping * dV
        if self.balance and not self.psd:
            gap = f.U.T @ f.U - f.V.T @ f.V
            value += self.balance * float(np.vdot(gap, gap))
            gU, gV = gU + 4 * self.balance * f.U @ gap, gV - 4 * self.balance * f.V @ gap
        if self.prior is not None:
            if self.intercept_correction is not None:
                value += float(np.vdot(self.intercept_correction, f.b))  # type: ignore[arg-type]
                gb = gb + self.intercept_correction
            # One pseudo-record: a code that is never present would send its intercept to -infinity.
            pull = self._unit**2 / self.records.total
            off = f.b - self.prior
            value += float((pull * off**2).sum()) / 2
            gb = (gb + pull * off) / self._unit
        parts = [(gU + gV).ravel()] if self.psd else [gU.ravel(), gV.ravel()]
        if self.prior is not None:
            parts.append(gb.ravel())
        return value, np.concatenate(parts).astype(x.dtype, copy=False)


def _squared_distance(
    U: np.ndarray, V: np.ndarray, U0: np.ndarray, V0: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """||UV' - U0V0'||^2 and half its derivatives, through d x d products alone."""
    VV, V0V, UU, U0U = V.T @ V, V0.T @ V, U.T @ U, U0.T @ U
    value = np.vdot(UU, VV) - 2 * np.vdot(U0U, V0V) + np.vdot(U0.T @ U0, V0.T @ V0)
    return float(value), U @ VV - U0 @ V0V, V @ UU - V0 @ U0U
