"""Do clusters of patients split a planted hazard, and leave an independent one alone?

    python -m benchmarks.clusters             writes results/clusters/; goes on where it stopped

Each seed is a cohort of two hospitals, made twice: admission to a nursing home follows the latent
patient, or does not (`--independent-hazard`).  Records are prepared, fitted in one exchange, and
clustered (k = 2) at the first record with PheCode:290.1.  The seeds and sizes were fixed before the
first run, and every run is in the table.  Rows of another generator or fit (column `source`) are
made again: the table never mixes two.
"""

import argparse
import hashlib
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.stats import kstest

import daniel
from daniel import CodeMatrix, Daniel, Study, plots
from daniel.data import read_site
from daniel.data.cohort import make_cohort, read_options
from daniel.data.outcomes import read_outcome
from daniel.data.prepare import prepare
from daniel.evaluate.clusters import Clusters, cluster_patients
from daniel.study import Codes

OUT = Path(__file__).parent.parent / "results" / "clusters"
TARGET, OUTCOME = "PheCode:290.1", "NURSING_HOME_ADMISSION"
SIZES = (100, 200, 400)  # patients of a hospital
SEEDS = range(12)
FIGURE = (400, 0)  # size and seed that are drawn
HAZARDS = ("planted", "independent")
PLANTED = 1e-4


def fingerprint() -> str:
    """Fingerprint of the code that makes cohorts, fits them, and follows the clusters."""
    digest = hashlib.sha256()
    root = Path(daniel.__file__).parent
    evaluate = [root / "evaluate" / f"{name}.py" for name in ("clusters", "survival")]
    fit = [root / "axes.py", root / "estimator.py", *(root / "core").glob("*.py")]
    for path in sorted([*fit, *evaluate, *(root / "data").rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def one(patients: int, seed: int, hazard: str, folder: Path) -> tuple[Clusters, dict[str, object]]:
    """Clusters of one cohort, and its row of the table."""
    options = read_options(
        patients=[patients], seed=seed, independent_hazard=hazard == "independent"
    )
    cohort = folder / "cohort"
    make_cohort(options, cohort)
    names = pd.read_csv(cohort / "truth" / "codes.tsv", sep="\t")["code"]
    study = Study(codes=Codes(names=tuple(names)))
    sites, outcomes = [], []
    for number in (1, 2):
        source, site = cohort / f"hospital-{number}", folder / f"site-{number}"
        prepare(source, study, f"hospital-{number}", site, random_state=2 * seed + number)
        sites.append(read_site(site))
        outcomes.append(read_outcome(site, source, target=TARGET, code=OUTCOME))
    matrix = stacked(sites)
    label = np.repeat([1, 2], [site.shape[0] for site in sites])
    model = Daniel(random_state=0).fit(matrix, sites=label)
    survival = pd.concat(outcomes)
    found = cluster_patients(model, matrix, TARGET, survival, k=2, without=[OUTCOME])
    row = {
        "patients": patients,
        "seed": seed,
        "hazard": hazard,
        "with_target": len(survival),
        "events": int(survival["event"].sum()),
        "smaller_cluster": found.sizes["patients"].iloc[-1],
        "chi2": round(found.chi2, 4),
        "p_value": found.p_value,
        "source": fingerprint(),
    }
    return found, row


def stacked(sites: Sequence[CodeMatrix]) -> CodeMatrix:
    """The records of all sites, as only a simulation may have them."""
    return CodeMatrix(
        sp.csr_array(sp.vstack([site.Z for site in sites])),
        sites[0].codes,
        np.concatenate([site.patients for site in sites]),
        np.concatenate([site.windows for site in sites]),
    )


def summary(rows: pd.DataFrame) -> str:
    """The table of results/clusters/clusters.md."""
    lines = [
        "# Clusters against a planted and an independent hazard",
        "",
        f"`python -m benchmarks.clusters`, daniel {version('daniel')}. Two hospitals, 600 codes, "
        f"k = 2, {len(SEEDS)} seeds a size. Every run: [pvalues.csv](pvalues.csv), made by the "
        f"source {rows['source'].iloc[0]}.",
        "",
        "| patients of a hospital | with the target, median | outcomes, median | planted: "
        f"p < {PLANTED:g} | planted: median p, largest p | independent: p < 0.05 | independent: "
        "smallest p | uniform? Kolmogorov-Smirnov p |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size, own in [*rows.groupby("patients"), ("all", rows)]:
        planted, free = (own.loc[own["hazard"] == h, "p_value"] for h in HAZARDS)
        lines.append(
            f"| {size} | {own['with_target'].median():.0f} | {own['events'].median():.0f} | "
            f"{(planted < PLANTED).sum()} of {len(planted)} | {planted.median():.1e}, "
            f"{planted.max():.1e} | {(free < 0.05).sum()} of {len(free)} | {free.min():.2g} | "
            f"{kstest(free, 'uniform').pvalue:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    store = OUT / "pvalues.csv"
    old = pd.read_csv(store, dtype={"source": str}) if store.is_file() else None
    rows = [] if old is None else old[old["source"] == fingerprint()].to_dict("records")
    done = {(row["patients"], row["seed"], row["hazard"]) for row in rows}
    for patients in SIZES:
        for seed in SEEDS:
            for hazard in HAZARDS:
                if (patients, seed, hazard) in done:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    found, row = one(patients, seed, hazard, Path(folder))
                rows.append(row)
                pd.DataFrame(rows).to_csv(store, index=False)
                print(row, flush=True)
                if (patients, seed) == FIGURE:
                    figure = plots.survival_curves(
                        found.curves, p_value=found.p_value, outcome="nursing-home admission"
                    )
                    plots.save(figure, OUT / hazard)
    text = summary(pd.DataFrame(rows))
    (OUT / "clusters.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
