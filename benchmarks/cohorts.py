"""Several synthetic cohorts, each with a truth of its own: is a lead more than one draw's luck?

    python -m benchmarks.cohorts                   SEEDS cohorts of a tenth of the paper's patients
    python -m benchmarks.cohorts --seeds 7 8       other ones
    python -m benchmarks.cohorts --paper           PAPER_SEEDS cohorts of the paper's size, beside
                                                   the one of `benchmarks.clinical`

Each cohort has two hospitals; a share of the patients is held out, and methods are fitted to the
records of the others.  Known pairs and dementia are told as in `benchmarks.clinical`.

Results go to results/clinical/: cohorts.csv, one line per number, written as each fit ends (a run
goes on where it stopped; after a change of code remove the lines it outdates), and cohorts.md; of
the paper's size paper-cohorts.csv and .md.
"""

import argparse
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from benchmarks import clinical, targets
from benchmarks.clinical import OUT, Method
from benchmarks.problems_made import hospitals, paper_share

SEEDS, PAPER_SEEDS = (1, 2, 3), (1, 2)
ONLY = ("daniel", "correlation", "ppmi", "rbm")  # of the methods that the paper's size has
SETTINGS = ("auto", "d=50", "d=200")


@dataclass(frozen=True)
class Size:
    """Cohorts with one in `share` of the paper's patients, and where their results go."""

    share: int
    held_out: float
    name: str

    @property
    def told(self) -> str:
        some = f"with one in {self.share} of the paper's patients"
        return "of the paper's size" if self.share == 1 else some


TENTH = Size(10, 0.3, "cohorts")
PAPER = Size(1, clinical.HELD_OUT["cohort"], "paper-cohorts")


def methods() -> list[Method]:
    """None of these asks what the problem is."""
    found = [method for name in ONLY for method in clinical.METHODS[name](None)]
    return [method for method in found if method.setting in SETTINGS]


def run(seed: int, size: Size, store: Path) -> None:
    """Make one cohort, fit and score what the file does not hold yet."""
    name = f"seed {seed}"
    done = clinical.stored(store)
    left = [m for m in methods() if (name, m.name, m.setting, "both") not in done]
    if not left:
        return
    with TemporaryDirectory() as folder:
        made = hospitals(replace(paper_share(size.share), seed=seed), Path(folder))
    task = replace(clinical.cohort_task(made, size.held_out), name=name)
    for method in left:
        table = clinical.score(task, method, "both")
        store.parent.mkdir(parents=True, exist_ok=True)
        table.round(4).to_csv(store, mode="a", header=not store.exists(), index=False)
        scores = "  ".join(f"{r.column} {r.auc:.3f}" for r in table.itertuples())
        print(f"{name} {method.name} {method.setting}: {scores}", flush=True)


def told(store: Path, size: Size) -> pd.DataFrame:
    """The stored lines; of the paper's size also those of the one cohort with every method."""
    read = partial(pd.read_csv, keep_default_na=False, na_values={"auc": [""]})
    table = read(store)
    if size != PAPER:
        return table
    names = [method.name for method in methods()]
    first = read(store.with_name("auc.csv"))
    first = first[(first["problem"] == "cohort") & first["method"].isin(names)]
    first = first[first["asked"].isin(SETTINGS)].assign(problem=f"seed {clinical.SEED}")
    return pd.concat([first, table], ignore_index=True)


def markdown(table: pd.DataFrame, size: Size) -> str:
    found = table.assign(target=table["problem"])
    number = found["target"].nunique()
    command = "python -m benchmarks.cohorts" + (" --paper" if size == PAPER else "")
    lines = [
        "# Several cohorts: mean area under the ROC curve",
        "",
        f"`{command}`, daniel {version('daniel')}. {number} cohorts {size.told}, "
        f"{size.held_out:.0%} of the patients held out. Rivals show the dimension and score with "
        "the best mean in each column by itself, Daniel runs with its defaults. In brackets: by "
        "how much one shot is ahead, with the standard error over the cohorts, and in how many "
        f"cohorts it is ahead and behind. Every number: [{size.name}.csv]({size.name}.csv)"
        + (f"; seed {clinical.SEED} in auc.csv." if size == PAPER else "."),
        "",
    ]
    leads = targets.leads(targets.summary(found), down="column", across="method")
    return "\n".join([*lines, *leads]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="*")
    parser.add_argument("--paper", action="store_true", help="of the paper's size")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    size, seeds = (PAPER, PAPER_SEEDS) if arguments.paper else (TENTH, SEEDS)
    store = arguments.out / f"{size.name}.csv"
    for seed in seeds if arguments.seeds is None else arguments.seeds:
        run(seed, size, store)
    content = markdown(told(store, size), size)
    store.with_suffix(".md").write_text(content, encoding="utf-8")
    print(f"\n{content}\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
