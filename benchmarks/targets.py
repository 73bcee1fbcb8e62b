"""Phenotyping of many diagnoses: a single one tells little, its AUC moves by hundredths.

    python -m benchmarks.targets                         visits and Medicare, every method
    python -m benchmarks.targets --only daniel ppmi      some methods
    python -m benchmarks.targets --problems cohort --cohort DIR
                                                         the paper's size, made in DIR if need be

TARGETS diagnoses of each problem are drawn once among those that enough held-out patients have, and
told much as in `benchmarks.clinical`: methods are fitted to the records of other patients; records
with the code stand against as many without at each site (rule "code"), so that a method does not
win by telling the hospital; codes above and below the target are hidden too.

Results go to results/clinical/: targets.csv, one line per number, written as each fit ends (a run
goes on where it stopped; after a change of code remove the lines it outdates), and targets.md.
"""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from benchmarks import relations
from benchmarks.clinical import METHODS, SEED, Method, Task, load, read_arguments, stored
from daniel.errors import DivergenceError, MissingDependencyError
from daniel.evaluate.cases import Cases, patients_of
from daniel.evaluate.compare import Entry, phenotype_rows
from daniel.evaluate.gold import kin

TARGETS = 30
PATIENTS = 50, 1500  # held-out patients with a target: at least, fewer than
SETTINGS = ("", "auto", "d=25", "d=50", "d=100")
LEFT_OUT = ("truth", "alone", "paper")  # no rivals, or a fit of many minutes


def drawn(task: Task) -> list[str]:
    """The targets, in the order of the codes."""
    asked = task.part(task.held)
    own = patients_of(asked)
    whose = sp.csr_array((np.ones(own.size), (own, np.arange(own.size))))
    number = np.asarray((whose @ asked.Z > 0).sum(axis=0)).ravel()
    least, most = PATIENTS
    able = [
        j
        for j, code in enumerate(task.matrix.codes)
        if code.startswith("PheCode:") and least <= number[j] < most
    ]
    chosen = np.random.default_rng(SEED).choice(able, min(TARGETS, len(able)), replace=False)
    return [task.matrix.codes[j] for j in np.sort(chosen)]


def score(task: Task, method: Method, targets: list[str]) -> pd.DataFrame:
    """The AUCs of the targets by one fit."""
    rows = ~task.held
    model = method.fit(task.part(rows), task.sites[rows])
    asked = task.part(task.held)
    tables = [
        phenotype_rows(
            Entry(method.name, model, method.setting),
            asked,
            target,
            sites=task.sites[task.held],
            cases=Cases(rule="code"),
            random_state=SEED,
            without=kin(task.matrix.codes, target),
        ).assign(target=target)
        for target in targets
    ]
    table = pd.concat(tables, ignore_index=True)
    return table.assign(problem=task.name, asked=method.setting)


def run(task: Task, methods: Iterator[Method], store: Path) -> None:
    """Fit and score what the file does not hold yet."""
    done, targets = stored(store), drawn(task)
    for method in methods:
        if method.only == "relations" or method.setting not in SETTINGS:
            continue
        if (task.name, method.name, method.setting, "") in done:
            continue
        try:
            table = score(task, method, targets)
        except (MissingDependencyError, DivergenceError) as error:
            print(f"  {method.name} {method.setting} left out: {error}")
            continue
        store.parent.mkdir(parents=True, exist_ok=True)
        table.round(4).to_csv(store, mode="a", header=not store.exists(), index=False)
        means = table.groupby("column", sort=False)["auc"].mean().round(3)
        print(f"  {method.name} {method.setting}  {means.to_dict()}", flush=True)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Method, column, its best setting there, mean AUC, and one shot's lead over it.

    lead, error: mean of the differences of the targets, and the standard error of that mean.
    ahead, behind: targets in which one shot is higher, and lower.
    """
    rows = []
    ours = table[table["method"] == relations.ONE_SHOT].set_index(["column", "target"])["auc"]
    for (method, column), own in table.groupby(["method", "column"], sort=False):
        best = own.groupby("setting")["auc"].mean().idxmax()
        auc = own[own["setting"] == best].set_index("target")["auc"]
        lead = (ours.get(column, pd.Series(dtype=float)) - auc).dropna()
        rows.append(
            {
                "method": method,
                "column": column,
                "setting": best,
                "auc": auc.mean(),
                "lead": lead.mean(),
                "error": lead.std() / np.sqrt(lead.size),
                "ahead": int((lead > 0).sum()),
                "behind": int((lead < 0).sum()),
            }
        )
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    least, most = PATIENTS
    lines = [
        "# Phenotyping of many diagnoses: mean area under the ROC curve",
        "",
        f"`python -m benchmarks.targets`, daniel {version('daniel')}, seed {SEED}. PheCodes drawn "
        f"among those that {least} to {most - 1:,} held-out patients have; codes above and below "
        "are hidden too, and each site has as many records with the target as without. Rivals show "
        "the dimension of 25, 50 and 100 with the best mean in each column by itself (the RBM has "
        "50 alone), Daniel runs with its defaults. In brackets: by how much one shot is ahead, and "
        "its standard error over the targets, and in how many targets it is ahead and behind. "
        "Every number: [targets.csv](targets.csv).",
    ]
    for name, block in table.groupby("problem", sort=False):
        targets = block["target"].nunique()
        lines += ["", f"## {name}, {targets} diagnoses", "", *leads(summary(block))]
    return "\n".join(lines) + "\n"


def leads(found: pd.DataFrame, *, down: str = "method", across: str = "column") -> list[str]:
    """A summary as a table: mean AUCs, and in brackets by how much one shot is ahead."""
    names = list(dict.fromkeys(found[across]))
    lines = [f"| {down} | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for name, rows in found.groupby(down, sort=False):
        cells = rows.set_index(across)
        ours = [relations.ONE_SHOT in (name, other) for other in names]
        texts = [_cell(cells.loc[other], own) for other, own in zip(names, ours, strict=True)]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return lines


def _cell(row: pd.Series, ours: bool) -> str:
    if ours:
        return f"{row['auc']:.3f}"
    lead = f"{row['lead']:+.3f} ± {row['error']:.3f}, {row['ahead']} : {row['behind']}"
    return f"{row['auc']:.3f} ({lead})"


def main() -> None:
    arguments = read_arguments(__doc__, [key for key in METHODS if key not in LEFT_OUT])
    store = arguments.out / "targets.csv"
    for name in arguments.problems if arguments.only else []:
        task = load(name, arguments.cohort)
        print(name, flush=True)
        for method in arguments.only:
            run(task, METHODS[method](task), store)
    content = markdown(pd.read_csv(store, keep_default_na=False, na_values={"auc": [""]}))
    (arguments.out / "targets.md").write_text(content, encoding="utf-8")
    print(f"\n{content}\nwritten to {arguments.out}")


if __name__ == "__main__":
    main()
