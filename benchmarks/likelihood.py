"""How likely are records that no fit has seen: independence, the hub alone, one shot, pooled.

    python -m benchmarks.likelihood              writes results/likelihood.md

HELD_OUT of the records of each problem of the races are held out; others of the same patients are
not.  Minus the pseudo-log-likelihood of such a record, eq. (objective), in nats, with the
intercepts that each site fits to its other records; less is better.  *Gap closed*: how far one shot
comes from the hub's fit to the pooled one.  Known pairs are of vectors, as in the races, of the
same fits.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import problems_file, race, source, tables
from benchmarks.catalogue import PROBLEMS
from benchmarks.page_races import HOSPITALS
from benchmarks.problems import Problem
from daniel.core import natural
from daniel.core.components import principal_axes
from daniel.core.exchange import Start
from daniel.core.intercepts import prior_intercepts, site_intercepts
from daniel.core.ising import sweep
from daniel.core.natural import Fit, Options
from daniel.core.records import Records, records_from
from daniel.evaluate.relations import relation_auc
from daniel.matrix import kinds

OUT = Path(__file__).parent.parent / "results" / "likelihood.md"
HELD_OUT, SEED = 0.2, 0


def loss(model: Start, learned: Sequence[Records], asked: Sequence[Records]) -> float:
    """Of a record that is asked about, with the intercepts of its site's learned ones."""
    total = sum(records.total for records in asked)
    found = 0.0
    for own, other in zip(learned, asked, strict=True):
        if other.total == 0:
            continue
        b = site_intercepts(own, model).astype(model.U.dtype)
        found += sweep(other, model.coords, model.U, model.V, b).loss * other.total
    return found / total


def one_shot(sites: Sequence[Records], hub: int, options: Options) -> Fit:
    rng = np.random.default_rng(SEED)
    start = natural.make_start(sites[hub], options, rng)
    mean = natural.mean_answer(natural.answer(records, start, options) for records in sites)
    return natural.finish(sites[hub], start, mean, options, rng)


def pairs_auc(problem: Problem, fitted: Fit) -> float:
    kind = kinds(problem.codes, problem.Z.shape[1])
    vectors = fitted.embedding(*principal_axes(fitted.U, fitted.signs), kind)
    return float(relation_auc(vectors, problem.codes, problem.pairs, draws=20)["auc"].mean())


def row(problem: Problem) -> dict[str, str]:
    names, site = np.unique(problem.sites, return_inverse=True)
    held = np.random.default_rng(SEED).random(len(site)) < HELD_OUT
    learned, asked = (
        [records_from(problem.Z[part & (site == s)]) for s in range(len(names))]
        for part in (~held, held)
    )
    whole = records_from(problem.Z[~held])
    hub = int(np.argmax([records.total for records in learned]))
    options, nothing = Options(), np.zeros((whole.p, 1), np.float32)

    def pooled(records: Records) -> Fit:
        return natural.fit(records, options, np.random.default_rng(SEED))

    fits = {
        "hub alone": pooled(learned[hub]),
        "one shot": one_shot(learned, hub, options),
        "pooled": pooled(whole),
    }
    coords = fits["pooled"].coords
    models = {"independence": Start(coords, nothing, np.ones(1), prior_intercepts(whole))}
    models |= {name: Start(f.coords, f.U, f.signs, f.b) for name, f in fits.items()}
    losses = {name: loss(model, learned, asked) for name, model in models.items()}
    closed = (losses["hub alone"] - losses["one shot"]) / (losses["hub alone"] - losses["pooled"])
    found = {"problem": PROBLEMS[problem.name], "sites": f"{len(names)}"}
    found |= {name: f"{value:.2f}" for name, value in losses.items()}
    found["gap closed"] = f"{closed:.0%}"
    found |= {
        f"pairs, {name}": f"{pairs_auc(problem, fitted):.3f}" for name, fitted in fits.items()
    }
    print(found, flush=True)
    return found


def main() -> None:
    rows = []
    for name in HOSPITALS:
        if race.prepare(name, race.PROBLEM_FILES) is not None:
            rows.append(row(problems_file.read(race.PROBLEM_FILES / f"{name}.npz")))
    told = " ".join(__doc__.split("\n\n")[2].replace("HELD_OUT", f"{HELD_OUT:.0%}").split())
    OUT.write_text(
        "# How likely are records that no fit has seen\n\n"
        f"`python -m benchmarks.likelihood`. {told}\n\n{tables.made(rows)}\n\n{source.made_by()}\n",
        "utf-8",
    )


if __name__ == "__main__":
    main()
