"""Do clusters of patients split a planted hazard, and leave an independent one alone?

    python -m benchmarks.clusters                writes results/clusters/; goes on where it stopped
    python -m benchmarks.clusters --paper DIR    and hospitals of the paper's size, kept in DIR

Each seed is a cohort of two hospitals, made twice: admission to a nursing home follows the latent
patient, or does not (`--independent-hazard`).  Records are prepared, fitted in one exchange, and
clustered (k = 2) at the first record with PheCode:290.1; time starts after its window, so that no
code of the record comes after the outcome.  The seeds and sizes were fixed before the
first run, and every run is in the table.  Rows of another generator or fit (column `source`) are
made again: the table never mixes two.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.metadata import version
from itertools import product
from pathlib import Path

import pandas as pd
from scipy.stats import kstest

from benchmarks.problems_made import hospitals
from benchmarks.source import fingerprint
from daniel import Daniel, plots
from daniel.data.cohort import Options, read_options
from daniel.data.outcomes import read_outcome
from daniel.evaluate.clusters import Clusters, cluster_patients

OUT = Path(__file__).parent.parent / "results" / "clusters"
TARGET, OUTCOME = "PheCode:290.1", "NURSING_HOME_ADMISSION"
SIZES = (100, 200, 400)  # patients of a hospital
SEEDS = range(12)
FIGURE = (400, 0)  # size and seed that are drawn
HAZARDS = ("planted", "independent")
PLANTED = 1e-4
# What makes cohorts, fits them, and follows the clusters.
CODE = (
    "axes.py",
    "estimator.py",
    "core/*.py",
    "data/**/*.py",
    "evaluate/clusters.py",
    "evaluate/survival.py",
)


def one(options: Options, folder: Path) -> tuple[Clusters, dict[str, object]]:
    """Clusters of one cohort, and its row of the table."""
    made = hospitals(options, folder)
    model = Daniel(random_state=0).fit(made.matrix, sites=made.sites)
    survival = pd.concat(
        read_outcome(
            folder / f"site-{number}",
            folder / "cohort" / f"hospital-{number}",
            target=TARGET,
            code=OUTCOME,
            landmark=True,
        )
        for number in (1, 2)
    )
    found = cluster_patients(  # made-up patients need no floor
        model, made.matrix, TARGET, survival, k=2, without=[OUTCOME], floor=1
    )
    return found, {
        "patients": max(options.patients),
        "seed": options.seed,
        "hazard": HAZARDS[options.independent_hazard],
        "with_target": len(survival),
        "events": int(survival["event"].sum()),
        "smaller_cluster": found.sizes["patients"].iloc[-1],
        "chi2": round(found.chi2, 4),
        "p_value": found.p_value,
        "source": fingerprint(*CODE),
    }


def summary(rows: pd.DataFrame) -> str:
    """The table of results/clusters/clusters.md."""
    lines = [
        "# Clusters against a planted and an independent hazard",
        "",
        f"`python -m benchmarks.clusters`, daniel {version('daniel')}. Two hospitals, 600 codes "
        "(the paper's 2,142 in the largest), k = 2. Every run: [pvalues.csv](pvalues.csv), made by "
        f"the source {rows['source'].iloc[0]}.",
        "",
        "| patients of a hospital | with the target, median | outcomes, median | planted: "
        f"p < {PLANTED:g} | planted: median p, largest p | independent: p < 0.05 | independent: "
        "smallest p | uniform? Kolmogorov-Smirnov p |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size, own in [*rows.groupby("patients"), ("all", rows)]:
        planted, free = (own.loc[own["hazard"] == h, "p_value"] for h in HAZARDS)
        control = "– | – | –"
        if len(free):
            uniform = kstest(free, "uniform").pvalue
            control = f"{(free < 0.05).sum()} of {len(free)} | {free.min():.2g} | {uniform:.2f}"
        lines.append(
            f"| {size} | {own['with_target'].median():.0f} | {own['events'].median():.0f} | "
            f"{(planted < PLANTED).sum()} of {len(planted)} | {planted.median():.1e}, "
            f"{planted.max():.1e} | {control} |"
        )
    return "\n".join(lines) + "\n"


def wanted(paper: Path | None) -> Iterator[tuple[Options, Path | None]]:
    """The cohorts, and where they are kept."""
    for hazard in HAZARDS:
        independent = hazard == "independent"
        for patients, seed in product(SIZES, SEEDS):
            yield read_options(patients=[patients], seed=seed, independent_hazard=independent), None
        if paper is not None:
            yield read_options(paper=True, independent_hazard=independent), paper / hazard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paper", type=Path, help="folder of the cohorts of the paper's size")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    store = OUT / "pvalues.csv"
    old = pd.read_csv(store, dtype={"source": str}) if store.is_file() else None
    rows = [] if old is None else old[old["source"] == fingerprint(*CODE)].to_dict("records")
    done = {(row["patients"], row["seed"], row["hazard"]) for row in rows}
    for options, kept in wanted(arguments.paper):
        size, hazard = max(options.patients), HAZARDS[options.independent_hazard]
        if (size, options.seed, hazard) in done:
            continue
        with nullcontext(kept) if kept else tempfile.TemporaryDirectory() as folder:
            found, row = one(options, Path(folder))
        rows.append(row)
        pd.DataFrame(rows).to_csv(store, index=False)
        print(row, flush=True)
        if (size, options.seed) == FIGURE:
            figure = plots.survival_curves(
                found.curves, p_value=found.p_value, outcome="nursing-home admission"
            )
            plots.save(figure, OUT / hazard)
    text = summary(pd.DataFrame(rows))
    (OUT / "clusters.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
