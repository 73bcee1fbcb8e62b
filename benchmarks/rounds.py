"""What more rounds bring, and what they cost: AUC, distance to the pooled fit, bytes of a site.

    python -m benchmarks.rounds                  results/federation/rounds.csv and rounds.md

12 sites of emergency visits, masked, with the largest site as hub and with the smallest.  The start
of a round is the model of the round before.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from benchmarks import problems
from benchmarks.problems import Problem
from benchmarks.source import made_by
from daniel import CodeMatrix, Daniel, Study
from daniel.evaluate.relations import relation_auc
from daniel.federated import protocol
from daniel.federated.keys import make_key
from daniel.study import Codes

OUT = Path(__file__).parent.parent / "results" / "federation"
SEED, DRAWS, ROUNDS = 0, 20, 3


def sites_of(problem: Problem) -> dict[str, CodeMatrix]:
    """The records of each site."""
    codes = tuple(problem.codes)
    return {
        str(name): CodeMatrix(sp.csr_array(problem.Z[problem.sites == name]), codes)
        for name in np.unique(problem.sites)
    }


def rows(problem: Problem, hub: str, label: str, pooled: Daniel) -> list[dict[str, object]]:
    """One row a round: how good its model is, and what a site has sent and received so far."""
    sites = sites_of(problem)
    keys = {name: make_key(name) for name in sites}
    roster = tuple(key.public("hub" if name == hub else "site") for name, key in keys.items())
    study = Study(name="rounds", codes=Codes(names=tuple(problem.codes)), sites=roster)
    study = replace(study, rounds=ROUNDS)
    model, sent, received, out = None, 0, 0, []
    for number in range(1, ROUNDS + 1):
        start = protocol.start(sites[hub], study, keys[hub], previous=model, round=number)
        answers = [
            protocol.answer(m, study, start, keys[name], approved_by="x", ledger=None)
            for name, m in sites.items()
        ]
        model, _ = protocol.finish(sites[hub], study, start, answers)
        sent, received = sent + len(answers[0]), received + len(start)
        about = {"hub": label, "records": sites[hub].shape[0], "round": number}
        out.append(about | {"sent": sent, "received": received} | scores(problem, model, pooled))
        print(out[-1], flush=True)
    return out


def scores(problem: Problem, model: Daniel, pooled: Daniel) -> dict[str, object]:
    """AUC of each relation, distance of Phi to the pooled one, loss of a record beyond its loss."""
    table = relation_auc(
        model.embedding_, problem.codes, problem.pairs, draws=DRAWS, random_state=SEED
    )
    phi, best = (_phi(m) for m in (model, pooled))
    records = CodeMatrix(problem.Z, tuple(problem.codes))
    return table["auc"].round(4).to_dict() | {
        "distance": round(float(np.linalg.norm(phi - best) / np.linalg.norm(best)), 3),
        "loss": round(pooled.score(records) - model.score(records), 3),
    }


def _phi(model: Daniel) -> np.ndarray:
    """(p, p) couplings in units of the codes' standard deviations, without the diagonal."""
    theta = 4 * model.theta_ * np.outer(model._coords.scale, model._coords.scale)
    np.fill_diagonal(theta, 0)
    return theta


def markdown(table: pd.DataFrame) -> str:
    relations = [c for c in table.columns if "Code" in c or "RxNorm" in c]
    lines = [
        "# What more rounds bring",
        "",
        "`python -m benchmarks.rounds`: 12 sites of emergency visits, masked. Bytes are those of "
        "one site in all rounds so far. Distance: of the couplings to those of the pooled fit, "
        "relative to their norm. Loss: of a record, beyond that of the pooled fit.",
        "",
        "| hub | round | sent | received | " + " | ".join(relations) + " | distance | loss |",
        "|---|" + "---|" * (len(relations) + 5),
    ]
    for row in table.to_dict("records"):
        aucs = " | ".join(f"{row[r]:.3f}" for r in relations)
        sizes = f"{row['sent'] / 1e6:.1f} MB | {row['received'] / 1e6:.1f} MB"
        name = f"{row['hub']}, {row['records']:,} records"
        lines.append(
            f"| {name} | {row['round']} | {sizes} | {aucs} | {row['distance']:.2f} | "
            f"{row['loss']:+.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if not problems.available():
        raise SystemExit("The data folder was not found: set DANIEL_DATA to where it lies.")
    problem = problems.load("visits")
    names, counts = np.unique(problem.sites, return_counts=True)
    records = CodeMatrix(problem.Z, tuple(problem.codes))
    pooled = Daniel(random_state=SEED).fit(records)
    table = pd.DataFrame(
        rows(problem, str(names[counts.argmin()]), "smallest site", pooled)
        + rows(problem, str(names[counts.argmax()]), "largest site", pooled)
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    table.to_csv(arguments.out / "rounds.csv", index=False)
    (arguments.out / "rounds.md").write_text(f"{markdown(table)}\n{made_by()}\n", "utf-8")


if __name__ == "__main__":
    main()
