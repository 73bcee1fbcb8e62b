"""Fit the law of prevalences that `daniel cohort` uses to the code counts of two health systems.

    python -m benchmarks.prevalences

The counts (gold/keser of the data folder) stay outside the repository: the package holds the
fitted parameters alone.  For each vocabulary the mean log count of the two systems, of the codes
that the paper's study keeps, is fitted by quantiles, and the spread between the systems by the
interquartile range of their difference.
"""

import numpy as np
import pandas as pd
from scipy.special import ndtri

from benchmarks.problems import data_root
from daniel.data.cohort.make import PAPER_CODES
from daniel.data.cohort.truth import LAWS, PrevalenceLaw

SYSTEMS = ["freq_single_RPDR", "freq_single_VA"]
NORMAL_QUARTILES = 1.349  # interquartile range of N(0, 1)


def read_counts() -> pd.DataFrame:
    """Log shares of codes in all counts of each system, with the vocabulary; 0 counts as 1/2."""
    table = pd.read_csv(data_root() / "gold/keser/dict_combine_uniform.csv.gz")
    table["vocabulary"] = table["feature_id"].str.partition(":")[0]
    table = table[table["vocabulary"].isin(LAWS)].reset_index(drop=True)
    counts = table[SYSTEMS]
    table[SYSTEMS] = np.log(counts.clip(lower=0.5) / counts.sum())
    return table


def study_codes(table: pd.DataFrame, vocabulary: str) -> tuple[pd.DataFrame, float]:
    """The commonest codes of a vocabulary, as many as the study keeps, and their share of all."""
    kept = dict(zip(LAWS, PAPER_CODES, strict=True))[vocabulary]
    here = table[table["vocabulary"] == vocabulary]
    best = here[SYSTEMS].mean(axis=1).nlargest(kept).index
    return here.loc[best, SYSTEMS], kept / len(here)


def fit(shares: pd.DataFrame, kept: float) -> PrevalenceLaw:
    """Least squares of the sorted means on 1, z, z² at the quantiles of a truncated normal."""
    mean = np.sort(shares.mean(axis=1))
    z = ndtri(1 - kept * (1 - (np.arange(mean.size) + 0.5) / mean.size))
    center, slope, bend = np.linalg.lstsq(np.vander(z, 3, increasing=True), mean, rcond=None)[0]
    difference = shares[SYSTEMS[0]] - shares[SYSTEMS[1]]
    quartiles = difference.quantile([0.25, 0.75])
    spread = (quartiles[0.75] - quartiles[0.25]) / NORMAL_QUARTILES / np.sqrt(2)
    shape = [round(float(value), 3) for value in (center, slope, bend)]
    return PrevalenceLaw(round(kept, 4), *shape, round(float(spread), 2))


def main() -> None:
    table = read_counts()
    for name in LAWS:
        shares, kept = study_codes(table, name)
        law = fit(shares, kept)
        error = law.quantiles(len(shares)) - np.sort(shares.mean(axis=1))
        print(f"{name}: {law}")
        print(f"  root mean square error of log quantiles {np.sqrt(np.mean(error**2)):.3f}")
        print(f"  the package has {'the same' if law == LAWS[name] else LAWS[name]}")


if __name__ == "__main__":
    main()
