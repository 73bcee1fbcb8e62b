"""The comparison table, as the paper's: methods by known relations and by phenotyping.

    entries = [Entry("Daniel", model), Entry("PPMI-SVD", rival, "d=50")]
    found = comparison(entries, matrix, pairs, target="PheCode:290.1")
    print(found.markdown("Daniel"))

A method may stand in several entries, one a setting.  Every column then shows its best setting,
chosen on the very numbers that are shown, which flatters methods with many of them.  The same
holds for scores: where a method leaves it open how a pair or a record is scored, all ways are
tried.  Daniel and every method with a single setting and score gains nothing from this.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone

from daniel.errors import InputError
from daniel.evaluate.cases import Cases
from daniel.evaluate.phenotype import CLASSIFIERS, UNSUPERVISED, Classifier, auc_digits, phenotype
from daniel.evaluate.relations import FEWEST_PAIRS, Draws, relation_auc, theta_pairs
from daniel.evaluate.rivals import PPMISVD, CorrelationSVT
from daniel.evaluate.scores import positions
from daniel.matrix import CodeMatrix

__all__ = [
    "Comparison",
    "Entry",
    "comparison",
    "phenotype_rows",
    "relation_rows",
    "sites_alone",
    "usual_entries",
]

COLUMNS = ["method", "setting", "column", "n", "auc", "lo", "hi"]
RELATION, TARGET = "relation", "target"  # kinds of columns
AS_COMMON = ", as common"  # after a relation: its random pairs are of codes as common as the known
FEDERATED, POOLED = "Daniel, federated", "Daniel, pooled"
RIVALS = {"PPMI-SVD": PPMISVD, "correlations": CorrelationSVT}
RIVAL_DIMENSIONS = (10, 25, 50, 100)


@dataclass(frozen=True)
class Entry:
    """A fitted method: its name, a model with `embedding_`, and the setting it was fitted with."""

    method: str
    model: Any
    setting: str = ""


@dataclass(frozen=True)
class Comparison:
    """table: method, setting, column, n, auc, lo, hi (95 %), one row a score of an entry.

    Also kind, "relation" or "target", if it is known: a relation may have the name of a column of
    phenotyping, and then both names tell their kind.  With relations, its attrs tell what was left
    out: left_out, unknown_pairs, unknown_codes, unknown_relations, as of `relation_auc`.
    """

    table: pd.DataFrame

    def best(self) -> pd.DataFrame:
        """For each method and column the row with the highest AUC; order of first appearance."""
        table = self.table.assign(column=self._names())
        told = table[table["auc"].notna()]
        kept = told.groupby(["method", "column"], sort=False)["auc"].idxmax()
        return table.loc[kept].reset_index(drop=True)

    def digits(self) -> pd.Series:
        """Of each column: how many digits of its AUCs may be seen, fewer of few cases."""
        names = self._names()
        found = pd.Series(3, index=names.unique())
        if "kind" in self.table:
            cases = self.table["n"][self.table["kind"] == TARGET]
            for name, n in cases.groupby(names).min().items():
                found[name] = auc_digits(n)
        return found

    def coarse(self) -> "Comparison":
        """The same with two digits in the columns of few cases; others are as they were."""
        few = self._names().map(self.digits()) < 3
        parts = {name: self.table[name] for name in ("auc", "lo", "hi")}
        return Comparison(
            self.table.assign(**{name: v.mask(few, v.round(2)) for name, v in parts.items()})
        )

    def _names(self) -> pd.Series:
        """The name of each row's column."""
        name = self.table["column"]
        if "kind" not in self.table:
            return name
        kind = self.table["kind"]
        return name.mask(kind.groupby(name).transform("nunique") > 1, name + " (" + kind + ")")

    def _silent(self) -> list[str]:
        """Columns of relations with too few pairs to say anything."""
        if "kind" not in self.table:
            return []
        pairs = self.table["n"][self.table["kind"] == RELATION]
        fewest = pairs.groupby(self._names(), sort=False).min()
        return list(fewest.index[fewest < FEWEST_PAIRS])

    def wide(self) -> pd.DataFrame:
        """AUCs, one row a method and one column a relation or target."""
        best = self.best()
        wide = best.pivot(index="method", columns="column", values="auc")
        return wide.loc[best["method"].unique(), best["column"].unique()]

    def margins(self, method: str, *, aside: Collection[str] = ()) -> pd.DataFrame:
        """For each column: the method's AUC, the best other method, and by how much it leads.

        aside : methods that are no rivals, such as a fit to all records in one place.
        """
        wide = self.wide()
        wide = wide.drop(index=[name for name in aside if name in wide.index])
        if method not in wide.index:
            raise InputError(f"The table has no method {method!r}: it has {list(wide.index)}.")
        own = wide.loc[method].dropna()
        others = wide.drop(index=method)[own.index].dropna(axis="columns", how="all")
        rival = others.idxmax()
        return pd.DataFrame(
            {"auc": own[rival.index], "rival": rival, "rival_auc": others.max()}
        ).assign(margin=lambda t: t["auc"] - t["rival_auc"])

    def markdown(self, method: str | None = None, *, aside: Collection[str] = ()) -> str:
        """The table, best of each column bold; with a method, a sentence where it is not first."""
        wide, digits = self.coarse().wide(), self.digits()
        top = wide.round(3).max()
        lines = ["| method | " + " | ".join(wide.columns) + " |", "|---" * (len(top) + 1) + "|"]
        for name, row in wide.iterrows():
            cells = [_cell(value, top[column], digits[column]) for column, value in row.items()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        if method is not None:
            lines += ["", self.statement(method, aside=aside)]
        return "\n".join(lines) + "\n"

    def statement(self, method: str, *, aside: Collection[str] = ()) -> str:
        """In words: where the method is first, level with the best, or behind, whom, by how much.

        By the digits that the table shows: what they do not tell apart is level.  Relations with
        too few pairs to say anything are not counted, and named.
        """
        margins, digits = self.coarse().margins(method, aside=aside), self.digits()
        silent = [name for name in self._silent() if name in margins.index]
        margins = margins.drop(index=silent)
        left = [name for name in aside if name in set(self.table["method"])]
        besides = f", leaving {' and '.join(left)} aside" if left else ""
        level, behind = [], []
        for column, row in margins.iterrows():
            d = digits[column]
            own, best = (f"{row[name]:.{d}f}" for name in ("auc", "rival_auc"))
            gap = float(best) - float(own)
            if own == best:
                level.append(f"{column} ({own}, with {row['rival']})")
            elif gap > 0:
                behind.append(f"{column} ({own}, {gap:.{d}f} behind {row['rival']})")
        first = len(margins) - len(level) - len(behind)
        parts = [f"{method} is first in {first} of {len(margins)} columns{besides}"]
        if silent and margins.empty:
            parts = [f"No column tells where {method} stands{besides}"]
        if level:
            parts.append(f"level with the best in {len(level)}: {', '.join(level)}")
        if behind:
            parts.append(f"behind in {len(behind)}: {', '.join(behind)}")
        if silent:
            why = f"since fewer than {FEWEST_PAIRS} pairs say nothing about a relation"
            parts.append(f"not counted, {why}: {', '.join(silent)}")
        return "; ".join(parts) + "."


def comparison(
    entries: Iterable[Entry],
    matrix: CodeMatrix,
    pairs: pd.DataFrame | None = None,
    *,
    target: str | None = None,
    labels: ArrayLike | None = None,
    sites: ArrayLike | None = None,
    folds: int = 10,
    draws: Draws = "auto",
    random_state: int = 0,
    cases: Cases | None = None,
    classifiers: Mapping[str, Classifier] | None = None,
    without: Collection[str] = (),
) -> Comparison:
    """Score fitted methods on known relations, on a phenotype, or on both.

    Parameters
    ----------
    entries : fitted methods; each has the codes of `matrix` in their order, or names them.
    matrix : records that tell the target; for an honest unsupervised AUC of patients that no
        method was fitted to.  Only its codes matter for relations.
    pairs : known relations, code1, code2, relation; the table's attrs say which are left out.
    target, labels, sites, folds, cases, classifiers, without : see
        :func:`daniel.evaluate.phenotype.phenotype`; the classifiers are the paper's tree and
        logistic regression unless given.
    draws : sets of random pairs for each relation; see `relation_auc`.
    random_state : the same random pairs, cases and folds for every method.
    """
    if pairs is None and target is None:
        raise InputError("Nothing to compare by: give known pairs, a target, or both.")
    tables = []
    for entry in entries:
        if pairs is not None:
            rows = relation_rows(entry, matrix.codes, pairs, draws=draws, random_state=random_state)
            tables.append(rows.assign(kind=RELATION))
        if target is not None:
            rows = phenotype_rows(
                entry,
                matrix,
                target,
                labels=labels,
                sites=sites,
                folds=folds,
                random_state=random_state,
                cases=cases,
                classifiers=classifiers,
                without=without,
            )
            tables.append(rows.assign(kind=TARGET))
    if not tables:
        raise InputError("No method was given to compare.")
    table = pd.concat(tables, ignore_index=True)
    table.attrs = tables[0].attrs  # the relations', which are the same for every entry
    return Comparison(table)


def relation_rows(
    entry: Entry,
    codes: tuple[str, ...],
    pairs: pd.DataFrame,
    *,
    counts: ArrayLike | None = None,
    draws: Draws = "auto",
    random_state: int = 0,
) -> pd.DataFrame:
    """AUC of one entry for each relation, by the cosine of its rows.

    counts (p,): of the records with each code; then each relation has a second row, with AS_COMMON
    after its name.  What `relation_auc` leaves out is told in the same attrs.

    A method that is not Daniel and has couplings `theta_` is scored by them too, as the paper does
    with its baselines.  A model that names its codes may have them in another order.
    """
    where = positions(entry.model, codes)
    ways: dict[str, Any] = {"cosine": np.asarray(entry.model.embedding_)[where]}
    if hasattr(entry.model, "theta_") and not _is_daniel(entry.model):
        theta = theta_pairs(entry.model)
        ways["theta"] = lambda i, j: theta(where[i], where[j])
    tables = []
    attrs: dict[str, Any] = {}
    without: list[str] = []
    against = {"": None} if counts is None else {"": None, AS_COMMON: counts}
    for (way, given), (name, common) in product(ways.items(), against.items()):
        found = relation_auc(
            given, codes, pairs, score=way, counts=common, draws=draws, random_state=random_state
        )
        attrs = found.attrs
        without += [relation + name for relation in attrs["left_out"]]
        found = found.rename(index=lambda relation, name=name: relation + name).reset_index()
        found = found.rename(columns={"relation": "column", "n_pairs": "n"})
        setting = _joined(entry.setting, way if len(ways) > 1 else "")
        tables.append(found.assign(method=entry.method, setting=setting)[COLUMNS])
    table = pd.concat(tables, ignore_index=True)
    table.attrs = attrs | {"left_out": list(dict.fromkeys(without))}
    return table


def phenotype_rows(
    entry: Entry,
    matrix: CodeMatrix,
    target: str,
    *,
    labels: ArrayLike | None = None,
    sites: ArrayLike | None = None,
    folds: int = 10,
    random_state: int = 0,
    cases: Cases | None = None,
    classifiers: Mapping[str, Classifier] | None = None,
    name: str = "",
    without: Collection[str] = (),
) -> pd.DataFrame:
    """AUC of one entry in telling the target, unsupervised and by each classifier.

    A plain embedding is scored by the cosine and by the inner product with the target's row;
    a regression that starts from the score has the cosine.
    name : what the columns call the target, before "unsupervised" and so on.
    """
    if classifiers is None:
        classifiers = {way: CLASSIFIERS[way] for way in ("tree", "logistic")}
    model = entry.model
    told = hasattr(model, "conditional_proba") or hasattr(model, "theta_")
    tables: list[pd.DataFrame] = []
    for way in ("auto",) if told else ("cosine", "inner"):
        found = phenotype(
            model,
            matrix,
            target,
            labels=labels,
            sites=sites,
            by_site=False,
            folds=folds,
            random_state=random_state,
            cases=cases,
            score=way,
            classifiers=classifiers if not tables else {},
            without=without,
        ).table
        setting = np.where(found["method"] == UNSUPERVISED, "" if told else way, "")
        found["setting"] = [_joined(entry.setting, extra) for extra in setting]
        found["column"] = [f"{name} {method}".strip() for method in found["method"]]
        found["n"] = np.minimum(found["n_pos"], found["n_neg"])
        tables.append(found.assign(method=entry.method)[COLUMNS])
    return pd.concat(tables, ignore_index=True)


def sites_alone(model: Any, matrix: CodeMatrix, sites: ArrayLike) -> dict[str, Any]:
    """Site -> a copy of the model fitted to that site's records alone, largest site first."""
    where = np.asarray(sites)
    names, counts = np.unique(where, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {
        str(name): clone(model).fit(CodeMatrix(matrix.Z[where == name], matrix.codes))
        for name in names[order]
    }


def usual_entries(model: Any, matrix: CodeMatrix, sites: ArrayLike) -> Iterator[Entry]:
    """The model, and what else its users could do: each site alone, and pooling all records.

    model : fitted, with the codes of `matrix`, the records of the sites; sites (n,): of each.
    """
    yield Entry(FEDERATED, model)
    alone = sites_alone(model, matrix, sites)
    for site, own in alone.items():
        yield Entry(f"Daniel, {site} alone", own)
    together = f"{next(iter(alone))} alone"
    records = CodeMatrix(matrix.Z, matrix.codes)
    if len(alone) > 1:
        together = "pooled"
        yield Entry(POOLED, clone(model).fit(records))
    for name, rival in RIVALS.items():
        for d in sorted({min(d, len(matrix.codes)) for d in RIVAL_DIMENSIONS}):
            yield Entry(f"{name}, {together}", rival(n_components=d).fit(records.Z), f"d={d}")


def _is_daniel(model: Any) -> bool:
    """Whether the embedding is made for cosines: couplings are then no second try."""
    return hasattr(model, "conditional_proba")


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _cell(value: float, top: float, digits: int) -> str:
    if np.isnan(value):
        return "–"
    text = f"{value:.{digits}f}"
    return f"**{text}**" if round(value, 3) >= top else text
