"""Patients grouped at their first record with a target code, and what becomes of the groups.

The embedding of a patient is E[y | x] of eq. (EHR_model) at the first record with the target, which
itself is left out of x.  k-means groups the embeddings; the outcome has no part in it.  The longest
embeddings are shortened first, unlike in the paper: standardised codes are large where they are
rare, and one patient with such codes would be a cluster.  Everything in the answer but `labels` is
aggregate, and says nothing about fewer than `floor` patients.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from daniel.checks import is_whole, shown
from daniel.data.outcomes import first_records
from daniel.errors import InputError, ParameterError
from daniel.estimator import Daniel
from daniel.evaluate.spelling import spelled
from daniel.evaluate.survival import (
    FLOOR,
    check_survival,
    guarded,
    in_tens,
    kaplan_meier,
    logrank,
    median_on_lines,
    released,
    rounded,
    step_of,
)
from daniel.matrix import CodeMatrix, listed

MOST_CLUSTERS = 8
ALL_ALIKE = "All these patients have the same vector: there are no groups to find."
TOP_CODES = 10
APART = ["cluster", "code", "inside", "inside_is", "outside", "outside_is", "difference"]
RESTARTS = 10
SMALL_STEP = 0.05  # of the shares of fewer than 100 patients
LONGEST = 0.95  # quantile of the lengths to which longer embeddings are shortened
SILHOUETTE_PATIENTS = 4_000  # its cost is their square


@dataclass(frozen=True)
class Clusters:
    """Clusters are numbered from 1, the largest first.

    sizes      cluster, patients (in tens, rounded down), events
    curves     cluster, time, survival, lo, hi, at_risk, events, censored (`survival.released`)
    medians    cluster, median, lo, hi in days, where the curve comes down to 1/2; else infinite if
               it has all outcomes, and missing if others may have come after its end
    top_codes  cluster, code, inside, inside_is, outside, outside_is, difference: shares of patients
               with the code, in steps (`_in_steps`), and whether a share is told ("=") or at most
               ("≤") or at least ("≥") so large, since few have the code or lack it; a small one of
               more than two clusters is left out of all of them (`too_small`)
    silhouette k, silhouette, enough (every cluster has `floor` patients); empty if k was given; of
               many patients it is that of a sample, and a k is missing if all these are in one
    chi2, p_value: of the log-rank test among the clusters in `sizes` that have `floor` patients;
    a smaller one is in no other table, nor in the test.
    without_outcome: patients with the target whom the survival table does not name, in tens.
    labels     patient -> cluster: about single patients, and only for use at the site
    """

    target: str
    k: int
    floor: int
    sizes: pd.DataFrame
    curves: pd.DataFrame
    medians: pd.DataFrame
    top_codes: pd.DataFrame
    silhouette: pd.DataFrame
    chi2: float
    p_value: float
    without_outcome: int | str
    labels: pd.Series = field(repr=False)


def cluster_patients(
    model: Daniel,
    matrix: CodeMatrix,
    target: str,
    survival: pd.DataFrame,
    *,
    k: int | None = None,
    without: Sequence[str] = (),
    floor: int = FLOOR,
    random_state: int = 0,
) -> Clusters:
    """Cluster the patients who have `target`, and follow them to their outcome.

    Parameters
    ----------
    model : fitted on the codes of `matrix`, or on some of them.
    matrix : records with patients and windows; its patients are those of `survival`.
    target : the code whose first record starts a patient's time.
    survival : patient, time (days), event (0/1), one row a patient.
    k : number of clusters; of 2 to 8 the one with the largest silhouette unless given.
    without : further codes to leave out of the records, such as the outcome's own, however they
        are spelled.
    """
    _check_whole("floor", floor, 1)
    if k is not None:
        _check_whole("k", k, 2)
    follow_up = check_survival(survival).set_index("patient")
    known = records_for(model, matrix)
    patients, rows = first_records(known, target)
    here = np.isin(patients, follow_up.index.to_numpy())
    unknown = int((~here).sum())
    patients, rows = patients[here], rows[here]
    _check_patients(patients.size, floor)
    follow_up = follow_up.loc[patients]
    if not follow_up["event"].any():
        raise InputError("Nobody with the target has the outcome: there is no survival to compare.")
    hidden = [own for code in without for own in spelled(code, known.codes)]
    Z = _blanked(known, rows, [target, *hidden])
    Y = _shortened(model.transform(Z))
    with threadpool_limits(1):  # small sums: threads would only wait for each other
        labels, table = _group(Y, k, floor, random_state)
    large = [c for c in np.unique(labels) if (labels == c).sum() >= floor]
    tested = np.isin(labels, large)
    if len(large) < 2:
        raise InputError(
            f"Only one cluster has {floor} patients or more, so there is none to compare it with: "
            "try another k, or give more patients."
        )
    time, event = follow_up["time"].to_numpy(), follow_up["event"].to_numpy()
    if not event[tested].any():
        raise InputError(
            f"No cluster of {floor} patients or more has the outcome, so there is nothing to "
            "compare: try a smaller k, or give more patients."
        )
    test = logrank(time[tested], event[tested], labels[tested])
    curves = {
        c: released(kaplan_meier(time[labels == c], event[labels == c]), floor=floor) for c in large
    }
    sizes = _sizes(labels, event, curves, floor)
    total = sizes.set_index("cluster")["events"]
    return Clusters(
        target=target,
        k=int(labels.max()),
        floor=floor,
        sizes=sizes,
        curves=pd.concat([t.assign(cluster=c) for c, t in curves.items()], ignore_index=True)[
            ["cluster", "time", "survival", "lo", "hi", "at_risk", "events", "censored"]
        ],
        medians=pd.DataFrame(
            [(c, *_medians(t, total[c])) for c, t in curves.items()],
            columns=["cluster", "median", "lo", "hi"],
        ),
        top_codes=_top_codes(Z[tested], labels[tested], known.codes, floor),
        silhouette=table,
        chi2=test.chi2,
        p_value=test.p_value,
        without_outcome=in_tens(unknown, floor),
        labels=pd.Series(labels, index=patients, name="cluster"),
    )


def records_for(model: Daniel, matrix: CodeMatrix) -> CodeMatrix:
    """The records with the model's columns, in its order; a study may have dropped rare codes."""
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    place = {code: j for j, code in enumerate(matrix.codes)}
    missing = [name for name in names if name not in place]
    if missing or not names:
        raise InputError(
            f"The records lack {len(missing)} of the model's {len(names)} codes, such as "
            f"{listed(missing[:2])}: they are of another study."
            if names
            else "The model does not know the names of its codes: fit it to a CodeMatrix."
        )
    columns = np.array([place[name] for name in names])
    absent = None if matrix.absent is None else matrix.absent[columns]
    return CodeMatrix(
        sp.csr_array(matrix.Z[:, columns]), tuple(names), matrix.patients, matrix.windows, absent
    )


def _check_whole(name: str, value: int, least: int) -> None:
    if not is_whole(value) or value < least:
        raise ParameterError(f"{name} is {shown(value)}: expected a whole number >= {least}.")


def _check_patients(n: int, floor: int) -> None:
    if n == 0:
        raise InputError(
            "No patient with the target is in the survival table: expected the patients of the "
            "records, by their pseudonyms."
        )
    if n < 2 * floor:
        raise InputError(
            f"Fewer than {2 * floor} patients with the target have a survival time: too few for "
            "two clusters that may be described."
        )


def _blanked(matrix: CodeMatrix, rows: np.ndarray, codes: Sequence[str]) -> sp.csr_array:
    """Some records, with these codes absent from all of them."""
    keep = np.ones(len(matrix.codes), dtype=np.float32)
    keep[[matrix.codes.index(code) for code in codes]] = 0
    Z = sp.csr_array(matrix.Z[rows] @ sp.diags_array(keep, format="csr"))
    Z.eliminate_zeros()
    return Z


def _shortened(Y: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(Y, axis=1)
    most = np.quantile(length, LONGEST)
    return Y * (most / np.maximum(length, max(most, np.finfo(Y.dtype).tiny)))[:, None]


def _group(
    Y: np.ndarray, k: int | None, floor: int, random_state: int
) -> tuple[np.ndarray, pd.DataFrame]:
    """Cluster of each patient, and the silhouettes if they decided."""
    if k is not None:
        if k * floor > len(Y):
            raise ParameterError(f"k is {k}: expected 2 or more, with {floor} patients for each.")
        return _k_means(Y, k, random_state), pd.DataFrame(
            columns=["k", "silhouette", "enough"]
        ).astype({"k": int, "silhouette": float, "enough": bool})
    if len(Y) < 3:
        raise InputError(
            "Too few patients to choose the number of clusters by the silhouette: give k, or more "
            "patients."
        )
    found, rows = {}, []
    some = check_random_state(random_state).permutation(len(Y))[:SILHOUETTE_PATIENTS]
    # A silhouette needs fewer clusters than patients.
    for size in range(2, min(MOST_CLUSTERS, len(Y) // floor, len(Y) - 1) + 1):
        try:
            found[size] = _k_means(Y, size, random_state)
        except InputError:  # fewer different patients than clusters
            break
        enough = bool(np.bincount(found[size])[1:].min() >= floor)
        drawn = found[size][some]
        if np.unique(drawn).size > 1:  # the sample may miss all clusters but one
            rows.append((size, float(silhouette_score(Y[some], drawn)), enough))
    table = pd.DataFrame(rows, columns=["k", "silhouette", "enough"])
    usable = table[table["enough"].astype(bool)]
    if not found:
        raise InputError(ALL_ALIKE)
    if usable.empty:
        raise InputError(
            f"No number of clusters from 2 to {MOST_CLUSTERS} leaves each of them {floor} "
            "patients: give k, and smaller clusters are left out."
        )
    best = int(usable.loc[usable["silhouette"].idxmax(), "k"])
    return found[best], table


def _k_means(Y: np.ndarray, k: int, random_state: int) -> np.ndarray:
    """Clusters 1 to k, the largest first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told below
        drawn = KMeans(k, n_init=RESTARTS, random_state=random_state).fit(Y)
    sizes = np.bincount(drawn.labels_, minlength=k)
    if np.count_nonzero(sizes) == 1 < k:
        raise InputError(ALL_ALIKE)
    if sizes.min() == 0:
        raise InputError(
            f"k-means filled only {np.count_nonzero(sizes)} of {k} clusters, for too many patients "
            "have equal records: ask for fewer clusters."
        )
    rank = np.empty(k, dtype=int)
    rank[np.lexsort((drawn.cluster_centers_[:, 0], -sizes))] = np.arange(1, k + 1)
    labels: np.ndarray = rank[drawn.labels_]
    return labels


def _sizes(
    labels: np.ndarray, event: np.ndarray, curves: Mapping[int, pd.DataFrame], floor: int
) -> pd.DataFrame:
    """Patients and outcomes of each cluster, none of which tells of few, beside its curve or alone.

    Patients are told in tens, and outcomes by what follows from these: whether their number is told
    says nothing more about how many patients there are.  The curve counts outcomes up to its last
    row; a total must not tell the few after it.  Beside a curve every total that is not told has
    the same words, for two of them would tell some apart.
    """
    rows = []
    for c in np.unique(labels):
        n, had = int((labels == c).sum()), int(event[labels == c].sum())
        told = guarded(n if n < floor else had, floor)
        if n >= floor:
            least = rounded(n, floor)
            counted, lost = (int(curves[c][name].sum()) for name in ("events", "censored"))
            few = [
                _may_be_few(least - had, floor),  # those without the outcome
                0 < had - counted < floor,
                _may_be_few(least - had - lost, floor),
            ]
            if counted and any(few):
                told = f"≥{counted}"
            elif few[0]:
                told = f">{least - floor}"
        rows.append((int(c), in_tens(n, floor), told))
    return pd.DataFrame(rows, columns=["cluster", "patients", "events"])


def _may_be_few(least: int, floor: int) -> bool:
    """Whether a number that is `least`, or more by what rounding took, can be 1 to floor - 1.

    Below zero it would tell what rounding took, and counts as one that can.
    """
    return least < floor and (step_of(floor) > 1 or least > 0)


def _medians(curve: pd.DataFrame, total: int | str) -> np.ndarray:
    """median, lo, hi of a released curve; total: its cluster's outcomes, as they are told.

    A curve that ends above 1/2 says that the median is not reached only if no outcome is missing in
    it, for which the told numbers alone are asked.
    """
    found = np.array(median_on_lines(curve))
    return found if total == curve["events"].sum() else np.where(np.isinf(found), np.nan, found)


def too_small(patients: int | str, clusters: int, floor: int) -> bool:
    """Whether a cluster is left out of shares of patients with a code, as one and as others.

    patients: in tens, as they are told.  Of fewer than twice the floor few have a code, or few lack
    it, so that among more than two clusters no code could be told of any.
    """
    return clusters > 2 and (isinstance(patients, str) or patients < 2 * floor)


def _top_codes(
    Z: sp.csr_array, labels: np.ndarray, codes: tuple[str, ...], floor: int
) -> pd.DataFrame:
    """The codes whose share of patients differs most between a cluster and the others.

    Numbers of patients with a code, and without it, that are below the floor count as floor - 1, so
    that a share tells no small number (`_share`).  A code whose difference this would overstate is
    passed over, as is one that fewer than `floor` patients have.  Of three clusters, two shares
    would tell the third: there a code with a small number in any of them is passed over.
    """
    names, size = np.unique(labels, return_counts=True)
    told_size = [in_tens(int(n), floor) for n in size]
    kept = [c for c, n in zip(names, told_size, strict=True) if not too_small(n, len(names), floor)]
    if len(kept) < 2:
        return pd.DataFrame(columns=APART)
    Z, labels = Z[np.isin(labels, kept)], labels[np.isin(labels, kept)]
    total = np.asarray(Z.sum(axis=0)).ravel()
    names, size = np.unique(labels, return_counts=True)
    counts = np.array([np.asarray(Z[labels == c].sum(axis=0)).ravel() for c in names])
    least = np.minimum(counts, size[:, None] - counts)
    told = total >= floor
    if len(names) > 2:
        told &= ~((least > 0) & (least < floor)).any(axis=0)
    parts = []
    for c, inside in zip(names, counts, strict=True):
        own = labels == c
        sides = ((inside, int(own.sum())), (total - inside, int((~own).sum())))
        exact = inside / sides[0][1] - (total - inside) / sides[1][1]
        shares, signs = zip(*(_share(count, n, floor) for count, n in sides), strict=True)
        difference = shares[0] - shares[1]
        honest = (difference * exact > 0) & (np.abs(difference) <= np.abs(exact) + 1e-12)
        told_in, told_out = (
            _in_steps(share, sign, n, floor)
            for share, sign, (_, n) in zip(shares, signs, sides, strict=True)
        )
        shown = told_in - told_out  # steps may take all of a difference, or turn it round
        shown = np.where(honest & told & (shown * np.sign(exact) > 1e-9), shown, 0)
        order = np.argsort(-np.abs(shown), kind="stable")[:TOP_CODES]
        order = order[shown[order] != 0]
        parts.append(
            pd.DataFrame(
                {
                    "cluster": c,
                    "code": [codes[j] for j in order],
                    "inside": told_in[order],
                    "inside_is": signs[0][order],
                    "outside": told_out[order],
                    "outside_is": signs[1][order],
                    "difference": shown[order],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)[APART]


def _share(count: np.ndarray, n: int, floor: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares of n patients, and "=", or "≤" and "≥" where few have a code or lack it.

    Bounds follow from n in tens, and do not tell it more finely.
    """
    few, most = count < floor, count > n - floor
    bound = (floor - 1) / rounded(n, floor)
    told = np.select([few, most], [bound, 1 - bound], count / n)
    return told, np.select([few, most], ["≤", "≥"], "=")


def _in_steps(share: np.ndarray, sign: np.ndarray, n: int, floor: int) -> np.ndarray:
    """Shares in steps no finer than one patient of n; bounds stay as they are.

    Whatever n is, some number of patients then fits each share: together they do not tell n.
    """
    step = 0.01 if rounded(n, floor) >= 100 else SMALL_STEP
    return np.where(sign == "=", np.round(share / step) * step, share)
