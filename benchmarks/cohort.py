"""`daniel cohort --paper`: time, memory, and a figure of what it makes beside what it aims at.

    python -m benchmarks.cohort               writes results/cohort/
    python -m benchmarks.cohort --keep DIR    keeps the cohort, 170 MB

Counts of codes at two health systems are drawn beside the prevalences where the data folder is
there.  The figures are read back from the written files by SQL, not taken from the generator.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import matplotlib
import numpy as np
import pandas as pd
import scipy.sparse as sp

from benchmarks import prevalences, problems
from daniel import Daniel
from daniel.data.cohort.make import PAPER_CODES, PAPER_PATIENTS, PAPER_RECORDS
from daniel.data.cohort.truth import LAWS
from daniel.evaluate.relations import relation_auc
from daniel.evaluate.rivals import PPMISVD

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent.parent / "results" / "cohort"
COMMAND = Path(sys.executable).with_name("daniel")
COLORS = ("tab:blue", "tab:orange")
SMALL = ("--patients", "3000", "--codes", "640", "--codes-per-record", "12")
DIMENSION = 100


def make(out: Path, *options: str) -> tuple[float, float]:
    """Run the command; seconds, and the largest memory in MB of any child so far."""
    begin = time.perf_counter()
    subprocess.run([COMMAND, "cohort", "--out", out, *options], check=True)
    seconds = time.perf_counter() - begin
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def read(folder: Path) -> tuple[sp.csr_array, pd.DataFrame, list[str]]:
    """Records × codes of all hospitals, with hospital and patient of each record, and the codes.

    Windows of 183 days from the first event, which is not how the package cuts them.
    """
    codes = pd.read_csv(folder / "truth" / "codes.tsv", sep="\t", keep_default_na=False)["code"]
    known = pd.DataFrame({"code": codes, "place": np.arange(len(codes))})
    with duckdb.connect() as base:
        base.register("known", known)
        cells = base.sql(
            f"""
            WITH event AS (
                SELECT subject_id AS patient, CAST(time AS DATE) AS day, place
                FROM '{folder}/hospital-*/data/*.parquet' JOIN known USING (code)
            ), first AS (SELECT patient, min(day) AS start FROM event GROUP BY patient)
            SELECT DISTINCT patient, (day - start) // 183 AS half, place
            FROM event JOIN first USING (patient)
            """
        ).df()
    rows, row = np.unique(cells["patient"] * 100 + cells["half"], return_inverse=True)
    shape = (rows.size, len(codes))
    Z = sp.csr_array((np.ones(len(cells), np.float32), (row, cells["place"])), shape=shape)
    patient = rows // 100
    return Z, pd.DataFrame({"hospital": patient // 10**8, "patient": patient}), list(codes)


def draw(Z: sp.csr_array, records: pd.DataFrame, codes: list[str], path: Path) -> None:
    """Prevalences, differences between hospitals, records per patient, codes per record."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    hospitals = sorted(set(records["hospital"]))
    share = [Z[(records["hospital"] == h).to_numpy()].mean(axis=0) for h in hospitals]
    counts = prevalences.read_counts() if problems.available() else None
    for axis, name in zip(axes[0], LAWS, strict=True):
        draw_prevalences(axis, name, share, codes, counts)
    draw_spread(axes[1, 0], share, codes, counts)
    for k, h in enumerate(hospitals):
        here = (records["hospital"] == h).to_numpy()
        per_patient = records[here].groupby("patient").size()
        bins = np.arange(0.5, 23.5)
        axes[1, 1].hist(per_patient, bins, histtype="step", color=COLORS[k], label=f"hospital-{h}")
        mean = PAPER_RECORDS[k] / PAPER_PATIENTS[k]
        axes[1, 1].axvline(mean, color=COLORS[k], ls=":", label=f"published mean {mean:.1f}")
        size = np.diff(Z[here].indptr)
        label = f"hospital-{h}, mean {size.mean():.1f}"
        axes[1, 2].hist(size, np.arange(0.5, 110), histtype="step", color=COLORS[k], label=label)
    axes[1, 1].set(xlabel="half-years with a record", ylabel="patients")
    axes[1, 2].set(xlabel="codes in a record", ylabel="records", yscale="log")
    for axis in axes[1, 1:]:
        axis.legend(fontsize=8)
    for suffix in ("png", "svg"):
        figure.savefig(path / f"cohort.{suffix}", dpi=110)


def draw_prevalences(
    axis: Any, name: str, share: list[np.ndarray], codes: list[str], counts: pd.DataFrame | None
) -> None:
    """Shares of records by rank; the systems' counts on the same scale of medians."""
    here = np.array([code.startswith(f"{name}:") for code in codes])
    rank = np.arange(1, here.sum() + 1)
    for k, values in enumerate(share):
        ordered = np.sort(values[here])[::-1]
        axis.loglog(rank, ordered, color=COLORS[k], label=f"hospital-{k + 1}")
    if counts is not None:
        shares, _ = prevalences.study_codes(counts, name)
        for system, style in zip(prevalences.SYSTEMS, ("--", ":"), strict=True):
            ordered = np.exp(np.sort(shares[system])[::-1])
            ordered *= np.median(share[0][here]) / np.median(ordered)
            label = f"counts of {system.rpartition('_')[2]}, scaled"
            axis.loglog(rank, ordered, "k", ls=style, lw=1, label=label)
    axis.set(title=name, xlabel="rank of the code", ylabel="share of records", ylim=(1e-5, 3))
    axis.legend(fontsize=8)


def draw_spread(
    axis: Any, share: list[np.ndarray], codes: list[str], counts: pd.DataFrame | None
) -> None:
    """How much the log prevalence of a code differs between two hospitals, against the systems."""
    bins = np.linspace(-5, 5, 60)
    seen = (share[0] > 0) & (share[1] > 0)
    groups = {"hospital-1 against hospital-2": np.log(share[0][seen] / share[1][seen])}
    if counts is not None:
        tables = [prevalences.study_codes(counts, name)[0] for name in LAWS]
        apart = [t[prevalences.SYSTEMS[0]] - t[prevalences.SYSTEMS[1]] for t in tables]
        groups["the two systems"] = np.concatenate([a - a.median() for a in apart])
    for (label, values), color in zip(groups.items(), ("tab:blue", "black"), strict=False):
        axis.hist(values, bins, density=True, histtype="step", color=color, label=label)
    axis.set(xlabel="difference of log prevalences", ylabel="density of codes")
    axis.legend(fontsize=8)


def markdown(facts: dict[str, Any]) -> str:
    lines = [
        "# The cohort of the paper's size",
        "",
        f"`python -m benchmarks.cohort`, daniel {version('daniel')}, Python "
        f"{platform.python_version()}, numpy {version('numpy')}, {os.cpu_count()} cores.",
        "",
        f"`daniel cohort --paper` took {facts['seconds']:.0f} s and {facts['memory']:.0f} MB.",
        "",
        "| | published | hospital-1 | published | hospital-2 |",
        "|---|---|---|---|---|",
    ]
    rows = {
        "patients": (PAPER_PATIENTS, facts["patients"]),
        "six-month records": (PAPER_RECORDS, facts["records"]),
        "codes": ((sum(PAPER_CODES),) * 2, facts["codes"]),
    }
    for name, (published, found) in rows.items():
        cells = [f"{value:,}" for pair in zip(published, found, strict=True) for value in pair]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for name in ("mean codes in a record", "99 % of records have at most", "largest record"):
        first, second = facts[name]
        lines.append(f"| {name} | – | {first:g} | – | {second:g} |")
    lines += [
        "",
        "![prevalences, records per patient, codes per record](cohort.png)",
        "",
        "Known relations planted in the truth, AUC of the cosine against random pairs "
        f"(PPMI-SVD with {DIMENSION} dimensions, Daniel with its defaults):",
        "",
        "| records | method | " + " | ".join(facts["relations"]["PPMI-SVD"].index) + " |",
        "|---|---|" + "---|" * len(facts["relations"]["PPMI-SVD"]),
    ]
    for method, table in facts["relations"].items():
        size = facts["small" if "small" in method else "total"]
        scores = " | ".join(f"{value:.3f}" for value in table["auc"])
        lines.append(f"| {size:,} | {method.removesuffix(', small')} | {scores} |")
    return "\n".join(lines) + "\n"


def score(folder: Path, Z: sp.csr_array, codes: list[str], model: Any) -> pd.DataFrame:
    pairs = pd.read_csv(folder / "truth" / "pairs.tsv", sep="\t")
    return relation_auc(model.fit(Z).embedding_, codes, pairs)


def measure(folder: Path, small: Path) -> dict[str, Any]:
    """Make the cohort, read it back, draw it, and score the relations planted in it."""
    seconds, memory = make(folder, "--paper")
    Z, records, codes = read(folder)
    draw(Z, records, codes, OUT)
    by_hospital = records.groupby("hospital")
    sizes = [np.diff(Z[rows].indptr) for rows in by_hospital.indices.values()]
    facts: dict[str, Any] = {
        "seconds": seconds,
        "memory": memory,
        "patients": by_hospital["patient"].nunique().tolist(),
        "records": by_hospital.size().tolist(),
        "codes": [int((Z[rows].sum(axis=0) > 0).sum()) for rows in by_hospital.indices.values()],
        "mean codes in a record": [round(size.mean(), 2) for size in sizes],
        "99 % of records have at most": [np.quantile(size, 0.99) for size in sizes],
        "largest record": [size.max() for size in sizes],
        "total": Z.shape[0],
        "relations": {"PPMI-SVD": score(folder, Z, codes, PPMISVD(DIMENSION))},
    }
    make(small, *SMALL)
    Z, _, codes = read(small)
    facts["small"] = Z.shape[0]
    for name, model in (("PPMI-SVD", PPMISVD(DIMENSION)), ("Daniel", Daniel(random_state=0))):
        facts["relations"][f"{name}, small"] = score(small, Z, codes, model)
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="folder for the cohort; a temporary one if none")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        facts = measure(arguments.keep or Path(temporary) / "cohort", Path(temporary) / "small")
    text = markdown(facts)
    (OUT / "cohort.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
