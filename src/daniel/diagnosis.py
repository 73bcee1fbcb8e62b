"""Does the theory cover this fit?  `diagnose` puts its conditions into one table, in plain words.

Each row is one condition: what was found, what is wanted, whether it holds.  The theorems ask for
far more than is needed, so most rows only inform; those that measurements tie to a bad one-shot fit
(docs/diagnose.md) also give a warning, and a fit without warnings is trusted.

Nothing of a patient gets out: numbers of records below SMALLEST_COUNT are shown as "<11", and from
so few records nothing else is computed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import expit

from daniel.checks import read_hub, read_sites
from daniel.core import conditions
from daniel.core.conditions import Curvature
from daniel.core.paper import eta_bound
from daniel.core.records import Records, records_from
from daniel.errors import InputError, ParameterError
from daniel.estimator import SMALLEST_COUNT, Daniel

__all__ = ["Diagnosis", "diagnose"]

# From the errors of one-shot and pooled fits on the paper's design: docs/diagnose.md.
FEW_RECORDS = 5.0  # at the hub, for each code
FAR_START = 1.25  # distance of the start, in units of the fit's norm
FLAT = 0.1  # kappa_min, in units of kappa_max
RARE = 30  # records of the hub with a code, or without it
MOMENT = 16.0  # W has entries up to 4, so that uncorrelated ones give || mean WW' || <= 16 p
UNKNOWN = "not known"


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The result of `diagnose`: print it, or let a notebook show it.

    table: condition, found, wanted, holds ("yes", "no" or "not known"), all text.  warnings: one
    sentence for each reason not to trust the fit, with what would help.  values: the computed
    numbers behind the table, by name; what is not known is left out.
    """

    table: pd.DataFrame
    warnings: list[str]
    values: dict[str, float]

    @property
    def trust(self) -> bool:
        """True when there is no warning."""
        return not self.warnings

    @property
    def _verdict(self) -> str:
        return "No reason against this fit." if self.trust else "Do not trust this fit as it is:"

    def __str__(self) -> str:
        columns = [[name, *self.table[name]] for name in self.table.columns]
        widths = [max(map(len, column)) for column in columns]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in zip(*columns, strict=True)
        )
        return "\n".join([*lines, "", self._verdict, *(f"- {text}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(text)}</li>" for text in self.warnings)
        return f"{self.table.to_html(index=False)}<p>{escape(self._verdict)}</p><ul>{items}</ul>"


def diagnose(model: Daniel, X: Any, *, sites: ArrayLike | None = None) -> Diagnosis:
    """The conditions of the theory for a fitted model, from the records of the site that asks.

    X: the hub's records (all records, if the fit had no sites).  sites: a label per record, when X
    holds the records of all sites; the hub's are then taken from it.  What the other sites hold is
    not needed: the model remembers the numbers of sites and records, and how far its start was.

    The curvatures are those of the model's own coordinates (Theta in the paper recipe, the
    standardised Phi in the natural one); see `core.conditions.curvature`.  With many records and
    codes they are estimated on a random part of the records, and the table says so.
    """
    case = _read(model, X, sites)
    rows = [
        *_size_rows(case),
        *_curvature_rows(case),
        _step_row(case),
        *_proposition_rows(case),
        _gradient_row(case),
        _start_row(case),
        _convergence_row(case),
    ]
    names = ("condition", "found", "wanted", "holds")
    table = pd.DataFrame([[getattr(row, name) for name in names] for row in rows], columns=names)
    table["holds"] = [{True: "yes", False: "no", None: UNKNOWN}[row.holds] for row in rows]
    values = {k: v for k, v in case.values.items() if v is not None and np.isfinite(v)}
    return Diagnosis(table, [row.warning for row in rows if row.warning], values)


@dataclass(frozen=True)
class _Row:
    condition: str
    found: str
    wanted: str
    holds: bool | None
    warning: str = ""


@dataclass(frozen=True)
class _Case:
    """A fit and what is known of its study; `records` and `n` are None where they are not."""

    model: Daniel
    hub: Records  # the records given
    n_hub: int
    n: int | None
    m: int
    records: Records | None  # what curvatures are computed from: the hub's, or a part of them
    curvature: Curvature | None
    moment: float | None
    couplings: conditions.Couplings
    start_ratio: float | None

    @property
    def p(self) -> int:
        return self.hub.p

    @property
    def one_shot(self) -> bool:
        return self.m > 1

    @property
    def damped(self) -> bool:
        return self.model.recipe == "natural" and self.one_shot and self.model.damping != 0

    @property
    def step_bound(self) -> float | None:
        norm = _origin(self.model).get("start_norm")
        if norm is None or self.curvature is None:
            return None
        return eta_bound(norm, self.curvature.smallest, self.curvature.largest)

    @property
    def values(self) -> dict[str, float | None]:
        kappa = self.curvature
        return {
            "kappa_min": None if kappa is None else kappa.smallest,
            "kappa_max": None if kappa is None else kappa.largest,
            "step_bound": self.step_bound if self.model.recipe == "paper" else None,
            "start_ratio": self.start_ratio,
            "gradient_moment": self.moment,
            "coupling_min": self.couplings.lowest,
            "coupling_max": self.couplings.highest,
            "row_sum": self.couplings.row_sum,
        }


def _origin(model: Daniel) -> dict[str, float]:
    """What the fit remembered; nothing in models that were saved before it did."""
    return getattr(model, "_origin", {})


def _read(model: Daniel, X: Any, sites: ArrayLike | None) -> _Case:
    if not isinstance(model, Daniel):
        raise InputError(f"model is a {type(model).__name__}; expected a fitted Daniel.")
    Z = model._read(X)
    origin = _origin(model)
    m = int(origin.get("sites", len(getattr(model, "sites_", [None]))))
    n = origin.get("records", Z.shape[0] if m == 1 or sites is not None else None)
    if sites is not None:
        if not hasattr(model, "hub_"):
            raise ParameterError("The model was fitted without sites; leave sites out.")
        labels, site = read_sites(sites, Z.shape[0])
        Z = Z[site == read_hub(model.hub_, labels, site)]
    hub = records_from(Z)
    enough = Z.shape[0] >= SMALLEST_COUNT
    records = conditions.part_of(hub) if enough else None
    b = None if model._coords.tied else model._b
    curvature = moment = None
    if records is not None:
        phi = model._U.astype(np.float64) @ model._V.T
        curvature = conditions.curvature(records, model._coords, phi, b)
        moment = conditions.gradient_moment(records, model._coords, model._U, model._V, model._b)
    return _Case(
        model=model,
        hub=hub,
        n_hub=int(origin.get("hub_records", Z.shape[0])),
        n=None if n is None else int(n),
        m=m,
        records=records,
        curvature=curvature,
        moment=moment,
        couplings=conditions.couplings(model.theta_),
        start_ratio=_start_ratio(model),
    )


def _start_ratio(model: Daniel) -> float | None:
    """||Theta0 - Theta|| / ||Theta||, in the recipe's coordinates; infinite for a fit of zero."""
    gone = _origin(model).get("start_distance")
    if gone is None:
        return None
    nothing = np.zeros((model.n_features_in_, 1))
    norm = conditions.distance(model._U, model._V, nothing, nothing, diagonal=model._coords.tied)
    if norm == 0:
        return 0.0 if gone == 0 else float("inf")
    return gone / norm


# --- rows -----------------------------------------------------------------------------------------


def _size_rows(case: _Case) -> Iterator[_Row]:
    n, m, p, d = case.n, case.m, case.p, max(case.model.rank_, 1)
    condition = "Few sites: m against √n"
    if n is None:
        yield _Row(condition, f"{m}", "at most √n, which is not known", None)
    else:
        most = np.sqrt(n)
        few = m <= max(most, 1)
        warning = (
            f"There are {m} sites, more than √n = {most:.3g}: what one round cannot correct is no "
            "longer small; merge sites, take a larger hub, or make a second round from this fit."
        )
        yield _Row(condition, f"{m}", f"at most {most:.3g}", few, "" if few else warning)
    wanted = d**2 * p**4 * np.log(p)
    found = UNKNOWN if n is None else _count(n)
    holds = None if n is None else n >= wanted
    yield _Row("Many records: n against d²p⁴ log p", found, f"at least {wanted:.2g}", holds)
    yield _hub_row(case)
    yield _rare_row(case)


def _hub_row(case: _Case) -> _Row:
    small = case.n_hub < SMALLEST_COUNT
    each = SMALLEST_COUNT / case.p if small else case.n_hub / case.p
    found = f"{'<' if small else ''}{each:.3g}"
    holds = case.n_hub >= FEW_RECORDS * case.p
    who, more = ("hub", "take a larger hub") if case.one_shot else ("fit", "add records")
    warning = (
        f"The {who} has {found} records for each code, and {FEW_RECORDS:g} are wanted: its own "
        f"loss is mostly chance; {more}, or leave out rare codes."
    )
    condition = f"Records of the {who} for each code"
    return _Row(condition, found, f"at least {FEW_RECORDS:g}", holds, "" if holds else warning)


def _rare_row(case: _Case) -> _Row:
    condition = f"Codes in fewer than {RARE} of these records"
    if case.records is None:
        return _Row(condition, UNKNOWN, "none", None)
    counts = case.hub.counts()
    rare = int((np.minimum(counts, case.hub.total - counts) < RARE).sum())
    return _Row(condition, f"{rare} of {case.p}", "none", rare == 0)


def _curvature_rows(case: _Case) -> Iterator[_Row]:
    space = "Θ" if case.model.recipe == "paper" else "Φ"
    least = f"Least curvature κ_min of the loss in {space}"
    most = f"Largest curvature κ_max of the loss in {space}"
    kappa = case.curvature
    if kappa is None:
        yield _Row(least, UNKNOWN, "well above 0", None)
        yield _Row(most, UNKNOWN, "finite", None)
        return
    note = _note(case)
    flat = kappa.smallest < FLAT * kappa.largest or kappa.largest == 0
    bound = "at most " if kappa.smallest < 10 * conditions.TOLERANCE * kappa.largest else ""
    held = ", held by damping" if flat and case.damped else ""
    found = f"{bound}{kappa.smallest:.3g}{held}{note}"
    wanted = f"at least {FLAT * kappa.largest:.3g} (κ_max / {1 / FLAT:g})"
    penalised = case.model.recipe == "natural" and not case.one_shot
    help_ = "damping (recipe natural), a larger hub" if case.one_shot else "the natural recipe"
    warning = (
        f"The loss is nearly flat in some direction (κ_min is {bound}{kappa.smallest:.2g}, κ_max "
        f"{kappa.largest:.2g}): nothing there holds the fit back; use {help_}, or leave out rare "
        "codes."
    )
    silent = not flat or case.damped or penalised
    yield _Row(least, found, wanted, not flat, "" if silent else warning)
    yield _Row(most, f"{kappa.largest:.3g}{note}", "finite", True)


def _note(case: _Case) -> str:
    """What a number in the table was computed from, where it was not the hub's records."""
    if case.hub.total != case.n_hub and case.n_hub >= SMALLEST_COUNT:
        return " (of the records given, not the hub's)"
    return "" if case.records is case.hub else " (estimated on a part of the records)"


def _step_row(case: _Case) -> _Row:
    condition = "Step size η, eq. (eta_ineq)"
    if case.model.recipe != "paper":
        return _Row(condition, "line search", "no bound needed", True)
    step, bound = case.model.step_size, case.step_bound
    if bound is None:
        return _Row(condition, f"{step:.3g}", UNKNOWN, None)
    return _Row(condition, f"{step:.3g}", f"at most {bound:.3g}", step <= bound)


def _proposition_rows(case: _Case) -> Iterator[_Row]:
    """Both sides of each condition of Proposition 1, with the fit in the place of the truth.

    τ = o(p) and C say nothing of a single p: √p stands for the one, and for C the constant with
    which the proof's last inequality, 32 C² p τ <= 8 p / (1 + exp(2 ‖Θ‖))², holds.
    """
    c, p = case.couplings, case.p
    scale = conditions.NEGLIGIBLE * max(c.highest, -c.lowest)
    yield _Row(
        "Proposition 1 (1): no negative coupling",
        f"{c.lowest:.3g} to {c.highest:.3g}",
        "at least 0",
        c.lowest >= -scale,
    )
    most = np.sqrt(p)
    yield _Row(
        "Proposition 1 (2): most neighbours τ of a code",
        f"{c.degree} of {p - 1}",
        f"at most {most:.3g} (√p)",
        c.degree <= most,
    )
    strength = c.degree * np.tanh(max(c.highest, 0.0))
    yield _Row(
        "Proposition 1 (3): τ tanh(θ_max)", f"{strength:.3g}", "at most 0.5", strength <= 0.5
    )
    wanted = expit(-2 * c.row_sum) / (2 * np.sqrt(max(c.degree, 1)))
    found = p * c.row_sum
    yield _Row(
        "Proposition 1: C = p ‖Θ‖₁,∞", f"{found:.3g}", f"at most {wanted:.2g}", found <= wanted
    )


def _gradient_row(case: _Case) -> _Row:
    condition = "Gradients: ‖mean WW'‖ / p, which Proposition 1 bounds"
    if case.moment is None:
        return _Row(condition, UNKNOWN, f"at most {MOMENT:g}", None)
    found = f"{case.moment:.3g}{_note(case)}"
    return _Row(condition, found, f"at most {MOMENT:g}", case.moment <= MOMENT)


def _start_row(case: _Case) -> _Row:
    name = "Θ" if case.model.recipe == "paper" else "Φ"
    condition = f"Start near the fit: ‖{name}₀ − {name}‖ / ‖{name}‖"
    wanted = f"at most {FAR_START:g}" if case.one_shot else "no bound needed with one site"
    ratio = case.start_ratio
    if ratio is None:
        return _Row(condition, UNKNOWN, wanted, None)
    near = not case.one_shot or ratio <= FAR_START
    found = f"{ratio:.2g}" if np.isfinite(ratio) else "the fit is zero"
    warning = (
        "The start was far from the fit (" + condition.partition(": ")[2] + f" is {found}): the "
        "answers of one round hold near the start only; make a second round from this fit, take a "
        "larger hub, or raise damping."
    )
    return _Row(condition, found, wanted, near, "" if near else warning)


def _convergence_row(case: _Case) -> _Row:
    model = case.model
    done = bool(model.converged_)
    warning = (
        f"The descent stopped at max_iter = {model.max_iter} before it converged; raise max_iter"
        + (", or change step_size." if model.recipe == "paper" else ".")
    )
    found = f"{'after' if done else 'not after'} {model.n_iter_} iterations"
    return _Row("Descent converged", found, "before max_iter", done, "" if done else warning)


def _count(number: int) -> str:
    return f"<{SMALLEST_COUNT}" if number < SMALLEST_COUNT else f"{number:,}"
