"""The quality table: how well do embeddings tell known relations from random pairs?

    python -m benchmarks.relations               both problems, every method, about 20 minutes
    python -m benchmarks.relations --only daniel ppmi correlation

Every rival is tuned over its dimension on the very pairs it is scored on, for each relation by
itself, which favours the rivals; Daniel runs with its defaults.  Results go to results/relations/:
one CSV line per fit, written as it ends (a run that is interrupted goes on where it stopped; after
a change of code remove the lines it outdates), and the table in Markdown.
"""

import argparse
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import problems
from benchmarks.problems import Problem
from daniel import CodeMatrix, Daniel
from daniel.errors import DivergenceError, MissingDependencyError
from daniel.evaluate.compare import AS_COMMON, Entry, relation_rows
from daniel.evaluate.rivals import PPMISVD, RBM, CorrelationSVT, LogisticPCA, Word2Vec

OUT = Path(__file__).parent.parent / "results" / "relations"
DIMENSIONS = (10, 25, 50, 100, 200)
DRAWS = 20
SEED = 0
ONE_SHOT, POOLED, HUB = "Daniel, one shot", "Daniel, pooled", "Daniel, hub alone"
PAPER = "Daniel, paper's recipe"
COMMON = "how common the codes are"
TUNED = "PPMI-SVD, all options tuned"
PAPER_STEPS = (0.01, 0.003, 0.001)


@dataclass(frozen=True)
class Trial:
    """One fit: method as it stands in the table, its setting, and how to get the embedding."""

    method: str
    setting: str
    embed: Callable[[Problem], np.ndarray]


def daniel_trials() -> Iterator[Trial]:
    yield Trial(POOLED, "auto", _pooled)
    yield Trial(ONE_SHOT, "auto", _one_shot)
    yield Trial(HUB, "auto", _hub_alone)


def _records(problem: Problem) -> CodeMatrix:
    return CodeMatrix(problem.Z, tuple(problem.codes))


def _pooled(problem: Problem) -> np.ndarray:
    return Daniel(random_state=SEED).fit(_records(problem)).embedding_


def _one_shot(problem: Problem) -> np.ndarray:
    return Daniel(random_state=SEED).fit(_records(problem), sites=problem.sites).embedding_


def common_trials() -> Iterator[Trial]:
    yield Trial(COMMON, "auto", _how_common)


def _how_common(problem: Problem) -> np.ndarray:
    """Vectors whose cosines are products of the logarithms of two counts, and know nothing else."""
    size = np.log1p(_counts(problem.Z))
    size /= size.max()
    return np.column_stack([size, np.diag(np.sqrt(1 - size**2))])


def paper_trials() -> Iterator[Trial]:
    yield Trial(PAPER, "d=50", _papers_recipe)


def _hub_alone(problem: Problem) -> np.ndarray:
    names, counts = np.unique(problem.sites, return_counts=True)
    hub = problem.sites == names[np.argmax(counts)]
    own = CodeMatrix(problem.Z[hub], tuple(problem.codes))
    return Daniel(random_state=SEED).fit(own).embedding_


def _papers_recipe(problem: Problem) -> np.ndarray:
    """Algorithm 1 with the largest of a few steps that does not diverge; the paper's is .01."""
    for step in PAPER_STEPS:
        try:
            model = Daniel(50, recipe="paper", step_size=step, max_iter=200).fit(problem.Z)
        except DivergenceError as error:
            print(f"  {error}")
        else:
            return model.embedding_
    raise SystemExit("Every step size of the paper's recipe diverged.")


def rival_trials(name: str, make: Callable[[int], Any]) -> Iterator[Trial]:
    for d in DIMENSIONS:
        yield Trial(name, f"d={d}", lambda q, d=d: make(d).fit(q.Z).embedding_)


def ppmi_options() -> Iterator[tuple[int, dict[str, Any]]]:
    """Every dimension with every choice of the other options of PPMI-SVD."""
    for d, smoothing, power, shift in product(DIMENSIONS, (0.5, 0.75), (0.5, 1.0), (1.0, 2.0)):
        yield (
            d,
            {
                "shift": shift,
                "context_smoothing": smoothing,
                "eigen_power": power,
                "positive_only": True,
            },
        )


def told(d: int, options: dict[str, Any]) -> str:
    smoothing, power, shift = (
        options[name] for name in ("context_smoothing", "eigen_power", "shift")
    )
    return f"d={d}, smoothing={smoothing}, power={power}, shift={shift}"


def tuned_ppmi() -> Iterator[Trial]:
    """Every option of PPMI-SVD tuned on the labels, not its dimension alone."""
    for d, options in ppmi_options():
        yield Trial(
            TUNED,
            told(d, options),
            lambda q, d=d, o=options: PPMISVD(d, **o).fit(q.Z).embedding_,
        )


METHODS: dict[str, Callable[[], Iterator[Trial]]] = {
    "common": common_trials,
    "daniel": daniel_trials,
    "correlation": lambda: rival_trials(
        "correlation SVT", lambda d: CorrelationSVT(n_components=d)
    ),
    "ppmi": lambda: rival_trials("PPMI-SVD", PPMISVD),
    "word2vec": lambda: rival_trials("word2vec", Word2Vec),
    "rbm": lambda: rival_trials("BernoulliRBM", RBM),
    "logisticpca": lambda: rival_trials("logistic PCA", LogisticPCA),
    "ppmi-tuned": tuned_ppmi,
    "paper": paper_trials,
}


def run(problem: Problem, trials: Iterator[Trial], path: Path) -> None:
    """Score every trial that the file does not hold yet; append each as it ends."""
    done = set()
    if path.exists():
        old = pd.read_csv(path)
        done = set(zip(old["problem"], old["method"], old["setting"], strict=True))
    for trial in trials:
        if (problem.name, trial.method, trial.setting) in done:
            continue
        begin = time.perf_counter()
        try:
            embedding = trial.embed(problem)
        except MissingDependencyError as error:
            print(f"  {trial.method} left out: {error}")
            return
        seconds = time.perf_counter() - begin
        entry = Entry(trial.method, SimpleNamespace(embedding_=embedding), trial.setting)
        table = scored(entry, problem.Z, problem.codes, problem.pairs)
        table = table.rename(columns={"column": "relation", "n": "n_pairs"})
        table.insert(0, "problem", problem.name)
        table["seconds"] = round(seconds, 2)
        table.round(4).to_csv(path, mode="a", header=not path.exists(), index=False)
        scores = "  ".join(f"{r.relation} {r.auc:.3f}" for r in table.itertuples())
        print(f"  {trial.method:28s} {trial.setting:12s} {seconds:6.1f} s   {scores}", flush=True)


def scored(entry: Entry, Z: Any, codes: Sequence[str], pairs: pd.DataFrame) -> pd.DataFrame:
    """AUCs of a fit against random pairs of any codes, and of codes as common in the records Z."""
    given = {"counts": _counts(Z), "draws": DRAWS, "random_state": SEED}
    return relation_rows(entry, tuple(codes), pairs, **given)


def _counts(Z: Any) -> np.ndarray:
    return np.asarray(Z.sum(axis=0)).ravel()


def best_by_relation(results: pd.DataFrame) -> pd.DataFrame:
    """For each problem, relation and method the setting with the highest AUC."""
    best = results.groupby(["problem", "relation", "method"])["auc"].idxmax()
    return results.loc[best]


def markdown(results: pd.DataFrame) -> str:
    """The table: one block a problem, one row a method, one column a relation."""
    best = best_by_relation(results)
    lines = [
        "# Known relations: area under the ROC curve",
        "",
        f"`python -m benchmarks.relations`, daniel {version('daniel')}, Python "
        f"{platform.python_version()}, numpy {version('numpy')}; {DRAWS} draws of random pairs, "
        f"seed {SEED}. In brackets the 95 % interval; rivals with the best of their settings for "
        "each relation by itself, Daniel with its defaults.",
    ]
    for name, block in best.groupby("problem", sort=False):
        lines += ["", f"## {name}"]
        common = block["relation"].str.endswith(AS_COMMON)
        names = list(dict.fromkeys(results[results["problem"] == name]["relation"]))
        for told, part in (("any codes", block[~common]), ("codes as common", block[common])):
            relations = [r for r in names if r in set(part["relation"])]
            if relations:
                lines += ["", f"Against random pairs of {told}:", "", *_table(part, relations)]
        lines += not_scored(block["method"], block[common]["method"])
    return "\n".join(lines) + "\n"


def not_scored(methods: pd.Series, of_these: pd.Series) -> list[str]:
    """About methods that were run before pairs as common were drawn, and codes were resampled."""
    without = [name for name in dict.fromkeys(methods) if name not in set(of_these)]
    if not without:
        return []
    narrow = "their intervals do not count that pairs share codes, and are too narrow"
    return ["", f"Not scored against pairs as common: {', '.join(without)}; {narrow}."]


def _table(block: pd.DataFrame, relations: list[str]) -> list[str]:
    """Lines of one table, best method first, and its margins."""
    lines = [
        "| method | " + " | ".join(relations) + " | s |",
        "|---|" + "---|" * (len(relations) + 1),
    ]
    for method in block.groupby("method")["auc"].mean().sort_values(ascending=False).index:
        rows = block[block["method"] == method].set_index("relation")
        cells = [_cell(rows.loc[r]) for r in relations]
        lines.append(f"| {method} | {' | '.join(cells)} | {rows['seconds'].median():.1f} |")
    return [*lines, "", _margins(block, relations)]


def _cell(row: pd.Series) -> str:
    setting = f" {row['setting'].split(',')[0]}" if row["setting"].startswith("d=") else ""
    return f"{row['auc']:.3f} [{row['lo']:.3f}, {row['hi']:.3f}]{setting}"


def _margins(block: pd.DataFrame, relations: list[str]) -> str:
    """In words: pooled against the best rival, one shot against pooled and against the hub."""
    auc = block.pivot(index="method", columns="relation", values="auc")
    rivals = auc.drop(index=[m for m in auc.index if m.startswith("Daniel")])
    tuned = rivals.loc[[m for m in rivals.index if m == TUNED]]
    rivals = rivals.drop(index=TUNED, errors="ignore")
    lines = []
    for relation in relations:
        parts = []
        if POOLED in auc.index and len(rivals):
            best = rivals[relation].idxmax()
            gap = auc.loc[POOLED, relation] - rivals.loc[best, relation]
            parts.append(f"pooled {gap:+.3f} against the best dimension-tuned rival ({best})")
            for value in tuned[relation]:
                gap = auc.loc[POOLED, relation] - value
                parts.append(f"{gap:+.3f} against PPMI-SVD with all options tuned")
        if {POOLED, ONE_SHOT, HUB} <= set(auc.index):
            one = auc.loc[ONE_SHOT, relation]
            parts.append(f"one shot {one - auc.loc[POOLED, relation]:+.3f} against pooled")
            parts.append(f"{one - auc.loc[HUB, relation]:+.3f} against the hub alone")
        lines.append(f"- {relation}: {', '.join(parts)}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--problems", nargs="+", default=["visits", "medicare"])
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if not problems.available():
        raise SystemExit("The data folder was not found: set DANIEL_DATA to where it lies.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "auc.csv"
    for name in arguments.problems:
        problem = problems.load(name)
        n, p = problem.Z.shape
        print(f"{name}: {n:,} records, {p:,} codes, {len(set(problem.sites))} sites")
        for method in arguments.only:
            run(problem, METHODS[method](), path)
    text = markdown(pd.read_csv(path))
    (arguments.out / "table.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
