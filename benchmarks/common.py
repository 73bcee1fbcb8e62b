"""Common codes: which vectors tell the strongest couplings of the paper's simulation?

    python -m benchmarks.common                  writes results/common.md

Areas under the ROC curve of the strongest twentieth of the couplings against all other pairs, mean
over draws: by the fitted couplings Φ, by cosines of vectors of Φ alone (`relatedness`, those of
rare codes), and by cosines of Daniel's vectors, which take in all that records show (`coupled`).
Draws other than those of the races.
"""

from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import cosine_similarity

from benchmarks import tables
from benchmarks.problems_made import STRONGEST
from benchmarks.race import commit
from daniel import Daniel
from daniel.core.components import relatedness
from daniel.simulation.design import Cell, Draw, draw

OUT = Path(__file__).parent.parent / "results" / "common.md"
SIZES = ((20_000, 200), (10_000, 200), (10_000, 100), (10_000, 50), (5_000, 50), (1_000, 50))
SITES = 0.3  # n to this power
SEEDS = range(1, 6)  # repetition 0 is that of the races


def scores(drawn: Draw, sites: np.ndarray | None) -> list[float]:
    """Areas by Phi, by its own vectors, and by Daniel's."""
    model = Daniel(intercept="tied", random_state=0).fit(drawn.Z, sites=sites)
    pairs = np.triu_indices(drawn.theta.shape[0], 1)
    truth = drawn.theta[pairs]
    strong = truth > np.quantile(truth, 1 - STRONGEST)
    signs = np.where((model.U_ == model.V_).all(axis=0), 1.0, -1.0)
    unit = 2 * model._coords.scale[:, None]  # of the coordinates in which it was fitted
    plain = relatedness(model.U_ * unit, signs, np.full(len(unit), -1))
    plain = np.hstack([plain, np.zeros_like(unit)])  # it may have no column at all
    ranked = (model.theta_, cosine_similarity(plain), cosine_similarity(model.embedding_))
    return [float(roc_auc_score(strong, values[pairs])) for values in ranked]


def row(n: int, p: int) -> dict[str, str]:
    cell = Cell(n, p, p // 10, SITES)
    found = {"records": f"{n:,}", "codes": f"{p}", "sites": f"{cell.m}"}
    for name, sites in (("pooled", None), ("one shot", cell.sites())):
        runs = np.array([scores(draw(cell, 0, repetition), sites) for repetition in SEEDS])
        for way, own in zip(("Φ", "vectors of Φ", "vectors"), runs.T, strict=True):
            found[f"{name}: {way}"] = f"{own.mean():.3f}"
        better = int((runs[:, 2] > runs[:, 1]).sum())
        found[f"{name}: better than those of Φ"] = f"{better} of {len(runs)}"
    print(found, flush=True)
    return found


def main() -> None:
    told = " ".join(__doc__.split("\n\n")[2].split())
    text = tables.made([row(n, p) for n, p in SIZES])
    OUT.write_text(
        f"# Vectors of common codes\n\n`python -m benchmarks.common`, commit {commit()}. {told}\n\n"
        f"{text}\n",
        "utf-8",
    )


if __name__ == "__main__":
    main()
