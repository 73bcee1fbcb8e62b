"""The paper's recipe against p: from the rank-d SVD, and from the d largest eigenvalues.

Algorithm 1 starts from the rank-d SVD, which keeps eigenvalues of either sign; a descent cannot
change their signs.  Here the same descent also starts from the d largest eigenvalues.

    python -m benchmarks.paperstart > results/simulation/start.txt
"""

import numpy as np

from daniel.core import paper
from daniel.core.records import Records, records_from
from daniel.simulation.design import Cell, draw

CODES = (20, 40, 60, 80, 100)
STEP_SIZES = (0.05, 0.1)  # the pilot chose 0.1, the smallest of the paper's range, at each p
REPS, STEPS, SEED = 20, 50, 0


def starts(hub: Records, d: int, eta: float) -> dict[str, paper.Start]:
    """The same Theta0, cut to rank d in two ways."""
    whole = paper.make_start(hub, hub.p, step_size=eta)
    sizes = (whole.U**2).sum(axis=0) * whole.signs
    top = np.argsort(-sizes)[:d]
    positive = paper.Start(whole.U[:, top] * (sizes[top] > 0), np.ones(d))
    return {"signed": paper.make_start(hub, d, step_size=eta), "positive": positive}


def errors(cell: Cell, rep: int) -> dict[tuple[float, str], float]:
    drawn = draw(cell, SEED, rep)
    sites = records_from(drawn.Z, site=cell.sites(), n_sites=cell.m).by_site()
    found = {}
    for eta in STEP_SIZES:
        for name, start in starts(sites[0], cell.d, eta).items():
            answers = [paper.answer(records, start) for records in sites]
            fit = paper.finish(sites[0], start, answers, step_size=eta, max_iter=STEPS, tol=1e-5)
            found[eta, name] = float(np.linalg.norm(fit.U @ fit.V.T - drawn.theta))
    return found


def main() -> None:
    print(f"mean error of the paper's recipe, n = 10,000, m = 15, {REPS} repetitions, seed {SEED}")
    keys = [(eta, name) for eta in STEP_SIZES for name in ("signed", "positive")]
    print("  p  " + "".join(f"{f'eta={eta}, {name}':>22}" for eta, name in keys))
    for p in CODES:
        cell = Cell(10_000, p, p // 10, 0.3)
        rows = [errors(cell, rep) for rep in range(REPS)]
        print(f"{p:4} " + "".join(f"{np.mean([r[key] for r in rows]):22.3f}" for key in keys))


if __name__ == "__main__":
    main()
