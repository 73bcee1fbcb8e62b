"""Several synthetic cohorts, each with a truth of its own: is a lead more than one draw's luck?

    python -m benchmarks.cohorts                   SEEDS cohorts, every method
    python -m benchmarks.cohorts --seeds 7 8       other ones

Each cohort has a tenth of the paper's patients at two hospitals; HELD_OUT of them are held out, and
methods are fitted to the records of the others.  Known pairs and dementia are told as in
`benchmarks.clinical`, where one cohort of the paper's whole size is told.

Results go to results/clinical/: cohorts.csv, one line per number, written as each fit ends (a run
goes on where it stopped; after a change of code remove the lines it outdates), and cohorts.md.
"""

import argparse
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from benchmarks import clinical, targets
from benchmarks.clinical import OUT, Method, Task
from benchmarks.problems_made import hospitals, paper_share

SEEDS = (1, 2, 3)
SHARE = 10
HELD_OUT = 0.3
ONLY = ("daniel", "correlation", "ppmi", "rbm")  # of the methods that the paper's size has
SETTINGS = ("auto", "d=50", "d=200")


def methods(task: Task) -> list[Method]:
    found = [method for name in ONLY for method in clinical.METHODS[name](task)]
    return [method for method in found if method.setting in SETTINGS]


def run(seed: int, store: Path) -> None:
    """Make one cohort, fit and score what the file does not hold yet."""
    name = f"seed {seed}"
    done = clinical.stored(store)
    with TemporaryDirectory() as folder:
        made = hospitals(replace(paper_share(SHARE), seed=seed), Path(folder))
    task = clinical.cohort_task(made, HELD_OUT)
    for method in methods(task):
        if (name, method.name, method.setting, "both") in done:
            continue
        table = clinical.score(replace(task, name=name), method, "both")
        store.parent.mkdir(parents=True, exist_ok=True)
        table.round(4).to_csv(store, mode="a", header=not store.exists(), index=False)
        scores = "  ".join(f"{r.column} {r.auc:.3f}" for r in table.itertuples())
        print(f"{name} {method.name} {method.setting}: {scores}", flush=True)


def markdown(table: pd.DataFrame) -> str:
    found = table.assign(target=table["problem"])
    number = found["target"].nunique()
    lines = [
        "# Several cohorts: mean area under the ROC curve",
        "",
        f"`python -m benchmarks.cohorts`, daniel {version('daniel')}. {number} cohorts with one in "
        f"{SHARE} of the paper's patients, {HELD_OUT:.0%} of them held out. Rivals show the "
        "dimension and score with the best mean in each column by itself, Daniel runs with its "
        "defaults. In brackets: by how much one shot is ahead, with the standard error over the "
        "cohorts, and in how many cohorts it is ahead and behind. Every number: "
        "[cohorts.csv](cohorts.csv).",
        "",
    ]
    told = targets.leads(targets.summary(found), down="column", across="method")
    return "\n".join([*lines, *told]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    store = arguments.out / "cohorts.csv"
    for seed in arguments.seeds:
        run(seed, store)
    content = markdown(pd.read_csv(store, keep_default_na=False, na_values={"auc": [""]}))
    (arguments.out / "cohorts.md").write_text(content, encoding="utf-8")
    print(f"\n{content}\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
