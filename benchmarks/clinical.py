"""The paper's application table on data that anyone can have: relations and phenotyping.

    python -m benchmarks.clinical                        visits and Medicare, every method
    python -m benchmarks.clinical --only ppmi text       some methods
    python -m benchmarks.clinical --problems cohort --cohort DIR
                                                         the paper's size, made in DIR if need be

*Relations*: the AUC of known pairs.  Methods that `benchmarks.relations` has fitted to all records
are read from its results; the others are fitted here.

*Phenotyping*: a share of the patients is held out.  Methods are fitted to the records of the
others; the held-out patients' records are then told apart, unsupervised, and by classifiers in 10
folds of the held-out patients.  So no method has seen a record that it is asked about.  (The paper
fits every method ten times instead.)  Each site has as many records of either kind, so that none
wins by telling the hospital.

Results go to results/clinical/: auc.csv, one line per number, written as each fit ends (a run goes
on where it stopped; after a change of code remove the lines it outdates), and table.md.
"""

import argparse
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from benchmarks import problems, relations
from benchmarks.descriptions import descriptions
from benchmarks.problems_made import Hospitals, hospitals
from daniel import CodeMatrix, Daniel
from daniel.baselines import PSDCvx, SVHard, SVTopd
from daniel.data import public
from daniel.data.cohort import read_options
from daniel.errors import DivergenceError, MissingDependencyError
from daniel.evaluate.cases import Cases, patients_of
from daniel.evaluate.compare import (
    AS_COMMON,
    Comparison,
    Entry,
    phenotype_rows,
)
from daniel.evaluate.rivals import PPMISVD, RBM, CorrelationSVT, LogisticPCA, Word2Vec
from daniel.evaluate.text import TextEncoder, TokenTable, bundled_encoder

OUT = Path(__file__).parent.parent / "results" / "clinical"
SEED, DRAWS = 0, 20
HELD_OUT = {"visits": 0.3, "medicare": 0.3, "cohort": 0.1}
STEPS, ITERATIONS, THRESHOLD, RANK = (0.01, 0.1), 200, 1e-4, 200  # the paper's, and a longer step
FLAG = f"FLAG:{public.VISIT_DEMENTIA}"
ALONE = "Daniel, one site alone: "
TRUTH = "the planted truth"
ASIDE = (relations.POOLED, TRUTH)  # no rivals: all records in one place, and the answer
# Table 2 and 3 of the paper: its own hospitals, other codes and other pairs.
PUBLISHED = (
    "published: .889 PheCode hierarchy, .735 RxNorm hierarchy, .743 related to, .820 mapped "
)
PUBLISHED += "to, .759 classifies; phenotyping .834 unsupervised, .891 supervised (tree)"


@dataclass(frozen=True)
class Target:
    """A diagnosis to tell: its column's name, its code, labels (n,) if better than the code."""

    name: str
    code: str
    labels: np.ndarray | None = None
    cases: Cases | None = None


@dataclass(frozen=True)
class Task:
    """One problem: records, sites (n,), known pairs, targets, and who is held out (n,)."""

    name: str
    matrix: CodeMatrix
    sites: np.ndarray
    pairs: pd.DataFrame
    targets: tuple[Target, ...]
    held: np.ndarray
    truth: np.ndarray | None = None  # (p, d) planted vectors

    def part(self, rows: np.ndarray) -> CodeMatrix:
        """The records of some rows, with their patients and windows."""
        m = self.matrix
        return CodeMatrix(
            sp.csr_array(m.Z[rows]),
            m.codes,
            None if m.patients is None else m.patients[rows],
            None if m.windows is None else m.windows[rows],
        )


@dataclass(frozen=True)
class Method:
    """A row of the table: fit(records, sites) makes a model with `embedding_`."""

    name: str
    setting: str
    fit: Callable[[CodeMatrix, np.ndarray], Any]
    only: str | None = None  # "relations" or "phenotyping"


# --- problems -------------------------------------------------------------------------------------


def load(name: str, cohort: Path | None) -> Task:
    if name == "cohort":
        return _cohort(cohort or OUT.parent / "paper-cohort")
    root = problems.data_root()
    if name == "visits":
        found = public.read_visits(root, flags=(public.VISIT_DEMENTIA,))
        targets = (Target("dementia flag", FLAG),)
    else:
        found = public.read_medicare(root)
        code, flag = public.DEMENTIA_CODE, public.DEMENTIA_FLAG
        # Stays with dementia against stays without: 92 patients have one before and one after.
        windows = Target(code, code, cases=Cases(rule="code"))
        targets = (windows, Target(flag, code, found.labels[flag].to_numpy()))
    pairs = public.known_pairs(found.matrix.codes, root)
    held = held_out(found.matrix, HELD_OUT[name])
    return Task(name, found.matrix, found.sites, pairs, targets, held)


def held_out(matrix: CodeMatrix, share: float) -> np.ndarray:
    """(n,) records of a share of the patients."""
    patients = patients_of(matrix)
    chance = np.random.default_rng(SEED).random(int(patients.max()) + 1)
    held: np.ndarray = (chance < share)[patients]
    return held


def _cohort(folder: Path) -> Task:
    """The two synthetic hospitals of the paper's size, in a folder."""
    return cohort_task(hospitals(read_options(paper=True), folder), HELD_OUT["cohort"])


def cohort_task(made: Hospitals, share: float) -> Task:
    """Dementia and the planted pairs of synthetic hospitals; a share of the patients held out."""
    targets = (Target(public.DEMENTIA_CODE, public.DEMENTIA_CODE),)
    held = held_out(made.matrix, share)
    return Task("cohort", made.matrix, made.sites, made.pairs, targets, held, made.planted)


# --- methods --------------------------------------------------------------------------------------


def _one_shot(X: CodeMatrix, sites: np.ndarray) -> Any:
    return Daniel(random_state=SEED).fit(X, sites=sites)


def _pooled(make: Callable[[], Any], X: CodeMatrix, sites: np.ndarray) -> Any:
    return make().fit(X)


def _alone(site: str, X: CodeMatrix, sites: np.ndarray) -> Any:
    own = sp.csr_array(X.Z[sites == site])
    return Daniel(random_state=SEED).fit(CodeMatrix(own, X.codes))


def _baseline(make: Callable[[], Any], X: CodeMatrix, sites: np.ndarray) -> Any:
    return make().fit(X, sites=sites)


def daniel(task: Task) -> Iterator[Method]:
    yield Method(relations.ONE_SHOT, "auto", _one_shot)
    yield Method(relations.POOLED, "auto", partial(_pooled, partial(Daniel, random_state=SEED)))


def alone(task: Task) -> Iterator[Method]:
    names, counts = np.unique(task.sites, return_counts=True)
    for site in names:
        hub = site == names[np.argmax(counts)]
        name = relations.HUB if hub else ALONE + str(site)
        yield Method(name, "auto", partial(_alone, site))


def truth(task: Task) -> Iterator[Method]:
    """What the planted couplings themselves would reach."""
    if task.truth is not None:
        U = task.truth
        planted = SimpleNamespace(embedding_=U, theta_=U @ U.T)
        yield Method(TRUTH, "", lambda X, sites: planted)


def paper_baselines(task: Task) -> Iterator[Method]:
    rank = min(RANK, task.matrix.shape[1])
    makes: dict[str, Callable[..., Any]] = {
        "SV-Hard": partial(SVHard, threshold=THRESHOLD),
        "SV-Topd": partial(SVTopd, rank),
        "PSD-Cvx": PSDCvx,
    }
    for step in STEPS:
        for name, make in makes.items():
            stepped = partial(make, step_size=step, max_iter=ITERATIONS, dtype="float32")
            yield Method(name, f"step={step}", partial(_baseline, stepped))


def rival(name: str, make: Callable[[int], Any], dimensions: tuple[int, ...], task: Task) -> Any:
    for d in dimensions:
        yield Method(name, f"d={d}", partial(_pooled, partial(make, d)))


def tuned_ppmi(task: Task) -> Iterator[Method]:
    """Phenotyping with the options that known relations like best; there with all of them."""
    make = partial(PPMISVD, shift=1.0, context_smoothing=0.5, positive_only=True)
    yield from rival(relations.TUNED, make, relations.DIMENSIONS, task)
    for d, options in relations.ppmi_options():
        fit = partial(_pooled, partial(PPMISVD, d, **options))
        yield Method(relations.TUNED, relations.told(d, options), fit, only="relations")


def text(task: Task) -> Iterator[Method]:
    """Encoders read the codes' descriptions.  Those of a cohort are made up, and name the truth."""
    if task.truth is not None:
        return
    encoders: dict[str, Callable[[], Any]] = {
        "text: all-MiniLM-L6-v2": lambda: TextEncoder(bundled_encoder()),
        "text: wordllama": TokenTable.bundled,
    }
    words = descriptions(task.matrix.codes)
    for name, make in encoders.items():
        yield Method(name, "", lambda X, sites, make=make: make().fit(X.codes, words))


FEW = (50,)  # dimensions of the slow rivals
METHODS: dict[str, Callable[[Task], Iterator[Method]]] = {
    "truth": truth,
    "text": text,
    "correlation": partial(
        rival,
        "correlation SVT",
        lambda d: CorrelationSVT(n_components=d),
        relations.DIMENSIONS,
    ),
    "ppmi": partial(rival, "PPMI-SVD", PPMISVD, relations.DIMENSIONS),
    "ppmi-tuned": tuned_ppmi,
    "daniel": daniel,
    "alone": alone,
    "paper": paper_baselines,
    "word2vec": partial(rival, "word2vec", Word2Vec, FEW),
    "logisticpca": partial(rival, "logistic PCA", LogisticPCA, FEW),
    "rbm": partial(rival, "BernoulliRBM", RBM, FEW),
}


# --- the run --------------------------------------------------------------------------------------


def run(task: Task, methods: Iterator[Method], store: Path) -> None:
    """Fit and score what the file does not hold yet; append as each fit ends.

    A large problem has one fit a method, for relations as well as for phenotyping.
    """
    done = stored(store)
    elsewhere = stored(relations.OUT / "auc.csv")
    kinds = ["both"] if task.truth is not None else ["relations", "phenotyping"]
    for method in methods:
        for kind in [method.only] if method.only else kinds:
            key = (task.name, method.name, method.setting)
            known = kind == "relations" and (task.name, method.name) in {k[:2] for k in elsewhere}
            if (*key, kind) in done or known:
                continue
            try:
                table = score(task, method, kind)
            except MissingDependencyError as error:
                print(f"  {method.name} left out: {error}")
                return
            except DivergenceError as error:
                print(f"  {method.name} {method.setting} left out: {error}")
                break
            store.parent.mkdir(parents=True, exist_ok=True)
            table.round(4).to_csv(store, mode="a", header=not store.exists(), index=False)
            scores = "  ".join(f"{r.column} {r.auc:.3f}" for r in table.itertuples())
            print(f"  {method.name} {method.setting} {table['seconds'][0]:.0f} s  {scores}")


def stored(store: Path) -> set[tuple[str, ...]]:
    """Problem, method, setting and kind of the fits that a file of results holds."""
    if not store.exists():
        return set()
    old = pd.read_csv(store, keep_default_na=False)
    fit = old.get("fit", "")
    settings = old["asked"] if "asked" in old else old["setting"]
    columns = old.assign(fit=fit, settings=settings)[["problem", "method", "settings", "fit"]]
    return set(columns.itertuples(index=False, name=None))


def score(task: Task, method: Method, kind: str) -> pd.DataFrame:
    """One fit, and the numbers that it gives."""
    rows = np.ones(len(task.held), dtype=bool) if kind == "relations" else ~task.held
    begin = time.perf_counter()
    model = method.fit(task.part(rows), task.sites[rows])
    seconds = time.perf_counter() - begin
    entry = Entry(method.name, model, method.setting)
    tables = []
    if kind != "phenotyping":
        tables.append(relations.scored(entry, task.matrix.Z, task.matrix.codes, task.pairs))
    if kind != "relations":
        asked = task.part(task.held)
        for target in task.targets:
            labels = None if target.labels is None else target.labels[task.held]
            tables.append(
                phenotype_rows(
                    entry,
                    asked,
                    target.code,
                    labels=labels,
                    sites=task.sites[task.held],
                    cases=target.cases,
                    random_state=SEED,
                    name=target.name,
                )
            )
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "problem", task.name)
    return table.assign(asked=method.setting, fit=kind, seconds=round(seconds, 1))


# --- the table ------------------------------------------------------------------------------------


def collect(store: Path, names: list[str]) -> pd.DataFrame:
    """Our numbers and those of `benchmarks.relations`, one line each."""
    found = pd.read_csv(store, keep_default_na=False, na_values={"auc": [""]})
    other = pd.read_csv(relations.OUT / "auc.csv", keep_default_na=False)
    other = other.rename(columns={"relation": "column", "n_pairs": "n"})
    both = pd.concat([other, found], ignore_index=True)
    return both[both["problem"].isin(names)]


def sites_summed(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of single sites as two methods: the best one of each column, and the median."""
    single = table["method"].str.startswith(ALONE)
    if table.loc[single, "method"].nunique() <= 2:
        return table
    by_column = table[single | (table["method"] == relations.HUB)].groupby("column", sort=False)
    best = table.loc[by_column["auc"].idxmax()].assign(method="Daniel, best site alone")
    middle = by_column[["n", "auc", "lo", "hi"]].median().reset_index()
    middle = middle.assign(method="Daniel, median site alone", setting="")
    return pd.concat([table[~single], best, middle], ignore_index=True)


def markdown(table: pd.DataFrame) -> str:
    lines = [
        "# Relations and phenotyping: area under the ROC curve",
        "",
        f"`python -m benchmarks.clinical`, daniel {version('daniel')}, Python "
        f"{platform.python_version()}, numpy {version('numpy')}; {DRAWS} draws of random pairs, "
        f"seed {SEED}. Rivals show the best of their settings and scores in each column by itself; "
        "Daniel runs with its defaults. *As common*: random pairs are of codes about as common as "
        "those of the known pairs. Intervals and settings are in auc.csv. What the "
        "columns mean: docs/clinical.md.",
    ]
    for name, block in table.groupby("problem", sort=False):
        counts = block.groupby("column")["n"].nunique()
        if (counts > 1).any():
            raise SystemExit(
                f"{name}: methods were asked about different records in "
                f"{', '.join(counts.index[counts > 1])}; remove the older lines of auc.csv."
            )
        found = sites_summed(block)
        common = found["column"].str.endswith(AS_COMMON)
        lines += ["", f"## {name}", "", _part(found[~common])]
        if name == "cohort":
            lines += ["", f"The paper's own table, for other data, has {PUBLISHED}."]
        if common.any():
            lines += ["", _part(found[common])]
            plain = (found["column"] + AS_COMMON).isin(found["column"])
            lines += relations.not_scored(found[plain]["method"], found[common]["method"])
    return "\n".join(lines) + "\n"


def _part(rows: pd.DataFrame) -> str:
    """The table of some columns, and where Daniel stands in it."""
    ours = relations.ONE_SHOT if (rows["method"] == relations.ONE_SHOT).any() else None
    return Comparison(rows.reset_index(drop=True)).markdown(ours, aside=ASIDE)


def read_arguments(about: str, methods: Iterable[str]) -> argparse.Namespace:
    """Which of these methods on which problems, and where results go; about: of the command."""
    every = list(methods)
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=every, default=every)
    parser.add_argument("--problems", nargs="+", default=["visits", "medicare"])
    parser.add_argument("--cohort", type=Path, help="folder of the paper-size cohort")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if not problems.available():
        raise SystemExit("The data folder was not found: set DANIEL_DATA to where it lies.")
    return arguments


def main() -> None:
    arguments = read_arguments(__doc__, METHODS)
    store = arguments.out / "auc.csv"
    for name in arguments.problems if arguments.only else []:
        task = load(name, arguments.cohort)
        n, p = task.matrix.shape
        print(f"{name}: {n:,} records, {p:,} codes, {len(set(task.sites))} sites", flush=True)
        for method in arguments.only:
            run(task, METHODS[method](task), store)
    names = ["visits", "medicare", "cohort"]
    content = markdown(collect(store, names))
    (arguments.out / "table.md").write_text(content, encoding="utf-8")
    print(f"\n{content}\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
