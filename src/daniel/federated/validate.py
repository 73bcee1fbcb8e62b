"""How a finished model fits another site's records: aggregate numbers, through the same gate.

Half of the patients, drawn at random, is for what is fitted here; the losses are of the other half.

    loss          of a record, eq. (objective): the model as it is, the model with intercepts
                  fitted here, prevalences alone, and a fit to this site alone
    calibration   observed against predicted probability, in groups of predicted probability
    relation      correlation of the model's code cosines with those of the fit to this site
"""

import json
from dataclasses import asdict, dataclass, replace

import numpy as np
import scipy.sparse as sp

from daniel.core import natural
from daniel.core.ising import sweep
from daniel.core.records import Records, records_from
from daniel.errors import InputError, ReleaseError
from daniel.estimator import Daniel
from daniel.federated.messages import rounded
from daniel.federated.sums import patient_numbers, patients_with
from daniel.matrix import CodeMatrix

EDGES = (0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
CELLS = 1 << 22  # probabilities held at once
PAIRS = 200_000
DIGITS = 4
MARKS = (b'"loss": {', b'"calibration": [')  # by which the JSON of a validation is known
ADAPTED, ALONE = "the model, intercepts fitted here", "a fit to this site alone"


@dataclass(frozen=True)
class Group:
    """Cells whose predicted probability lies between two edges."""

    low: float
    high: float
    ratio: float  # observed / predicted


@dataclass(frozen=True)
class Validation:
    """Aggregate numbers of a model at a site; what too few patients stand behind is left out."""

    records: int  # rounded
    codes: int  # of the model, seen in enough patients here
    loss: dict[str, float]
    calibration: list[Group]
    relation: float | None

    def to_text(self) -> str:
        lines = [f"About {self.records:,} records, {self.codes:,} codes in enough patients.", ""]
        lines.append("Loss of a record (lower is better):")
        lines += [f"  {name:38s} {value:.3f}" for name, value in self.loss.items()]
        lines += ["", self._verdict(), "", "Observed / predicted, by predicted probability:"]
        lines += [f"  {g.low:g} to {g.high:g}: {g.ratio:.2f}" for g in self.calibration]
        if self.relation is not None:
            lines += ["", f"Correlation of code cosines with the local fit: {self.relation:.2f}"]
        return "\n".join(lines)

    def _verdict(self) -> str:
        ahead = self.loss[ALONE] - self.loss[ADAPTED]
        model = "With intercepts fitted here the model is"
        if ahead >= 0:
            return f"{model} {ahead:.3f} better than a fit to this site alone."
        return (
            f"{model} {-ahead:.3f} worse than a fit to this site alone: its patients or its coding "
            "may differ from those of the study."
        )

    def to_json(self) -> str:
        """The same numbers with DIGITS decimals: all digits of a sum could tell its parts."""
        loss = {name: round(value, DIGITS) for name, value in self.loss.items()}
        groups = [replace(g, ratio=round(g.ratio, DIGITS)) for g in self.calibration]
        relation = None if self.relation is None else round(self.relation, DIGITS)
        shown = replace(self, loss=loss, calibration=groups, relation=relation)
        return json.dumps(asdict(shown), indent=1) + "\n"


def validate(model: Daniel, matrix: CodeMatrix, floor: int, *, seed: int = 0) -> Validation:
    """Score a model on a site's records; fewer than 4 `floor` patients say too little."""
    matrix = _columns(model, matrix)
    patient = patient_numbers(matrix)
    n_patients = int(patient.max()) + 1
    if n_patients < 4 * floor:
        raise ReleaseError(
            f"This site has fewer than {4 * floor} patients, too few to score a model without "
            "telling about single ones: nothing is written."
        )
    rng = np.random.default_rng(seed)
    first = (rng.permutation(n_patients) < n_patients // 2)[patient]
    here, test = records_from(matrix.Z[first]), records_from(matrix.Z[~first])
    local = Daniel(random_state=seed).fit(CodeMatrix(matrix.Z[first], matrix.codes))
    enough = patients_with(matrix, patient) >= floor
    own = natural.site_intercepts(here, _as_start(model))
    return Validation(
        records=rounded(matrix.shape[0]),
        codes=int(enough.sum()),
        loss={
            "the model": _loss(model, test, model._b),
            ADAPTED: _loss(model, test, own),
            "prevalences of this site alone": _independent(here, test),
            ALONE: _loss(local, test, local._b),
        },
        calibration=_calibration(model, matrix.Z[~first], patient[~first], floor),
        relation=_relation(model, local, enough, rng),
    )


def _columns(model: Daniel, matrix: CodeMatrix) -> CodeMatrix:
    """The site's records with the model's codes, by name; a code it lacks is absent."""
    names = [str(code) for code in model._names]
    position = {code: j for j, code in enumerate(matrix.codes)}
    known = [(position[code], j) for j, code in enumerate(names) if code in position]
    if len(known) < 2:
        raise InputError("The site has hardly a code of the model: the vocabularies differ.")
    source, target = np.array(known).T
    pick = sp.csr_array(
        (np.ones(len(known), np.float32), (source, target)), shape=(matrix.shape[1], len(names))
    )
    Z = sp.csr_array(matrix.Z @ pick)
    return CodeMatrix(Z, tuple(names), matrix.patients, matrix.windows)


def _as_start(model: Daniel) -> natural.Start:
    signs = np.where((model._U == model._V).all(axis=0), 1.0, -1.0)
    return natural.Start(model._coords, model._U, signs, model._b)


def _loss(model: Daniel, test: Records, b: np.ndarray) -> float:
    return float(sweep(test, model._coords, model._U, model._V, b).loss)


def _independent(here: Records, test: Records) -> float:
    """Loss of prevalences: sum_j log(1 + exp(b_j)) - b_j z_j with the log-odds b of a half."""
    b = natural.prior_intercepts(here)[0]
    return float(np.logaddexp(0, b).sum() - b @ (test.counts() / test.total))


def _calibration(model: Daniel, Z: sp.csr_array, patient: np.ndarray, floor: int) -> list[Group]:
    """Observed over predicted in each group with enough patients who have such a code, or not."""
    groups = len(EDGES) - 1
    sums = np.zeros((2, groups))  # observed, predicted
    seen = np.zeros((2, int(patient.max()) + 1, groups), dtype=bool)  # who has cells of 0, of 1
    step = max(1, CELLS // Z.shape[1])
    for row in range(0, Z.shape[0], step):
        part = Z[row : row + step]
        predicted = model.conditional_proba(CodeMatrix(part, tuple(map(str, model._names)))).ravel()
        group = np.clip(np.searchsorted(EDGES, predicted, "right") - 1, 0, groups - 1)
        observed = part.toarray().ravel()
        for i, weight in enumerate((observed, predicted)):
            sums[i] += np.bincount(group, weights=weight, minlength=groups)
        seen[observed.astype(int), np.repeat(patient[row : row + step], Z.shape[1]), group] = True
    enough = seen.sum(axis=1).min(axis=0) >= floor
    return [
        Group(EDGES[i], EDGES[i + 1], float(sums[0, i] / sums[1, i]))
        for i in np.flatnonzero(enough)
    ]


def _relation(
    model: Daniel, local: Daniel, enough: np.ndarray, rng: np.random.Generator
) -> float | None:
    """Correlation over random pairs of codes; None where one of the fits has no relation."""
    columns = np.flatnonzero(enough)
    if columns.size < 10:
        return None
    i, j = rng.choice(columns, (2, PAIRS))
    ours, theirs = (_cosine(fit.embedding_, i[i != j], j[i != j]) for fit in (model, local))
    if ours.std() == 0 or theirs.std() == 0:
        return None
    return float(np.corrcoef(ours, theirs)[0, 1])


def _cosine(E: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(E, axis=1, keepdims=True)
    unit = E / np.where(norm > 0, norm, 1)
    return np.einsum("ij,ij->i", unit[i], unit[j])
