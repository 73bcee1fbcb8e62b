"""What sketched answers cost: AUC and bytes against the number of directions, and other sketches.

    python -m benchmarks.sketch                  results/federation/sketch.csv and sketch.md

12 sites of emergency visits, masked; every row is a whole exchange.  d is the number of columns of
the start.  With the largest hub other sketches are shown too: random directions with the same
reading, and random directions from which a matrix of low rank is rebuilt (Tropp, Yurtsever, Udell
and Cevher 2017, symmetric).
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd

from benchmarks import problems
from benchmarks.problems import Problem
from benchmarks.rounds import sites_of
from benchmarks.source import made_by
from daniel import Daniel, Study
from daniel.core.records import Records
from daniel.evaluate.relations import relation_auc
from daniel.federated import messages, protocol, totals
from daniel.federated.keys import make_key
from daniel.study import Codes, Disclosure

OUT = Path(__file__).parent.parent / "results" / "federation"
SEED, DRAWS = 0, 20
TIMES = (1, 2, 3, 5)  # directions, in columns of the start
SHIPPED = "directions of the hub"
Directions = Callable[..., np.ndarray]


# --- other sketches -------------------------------------------------------------------------------


def random_directions(records: Records, k: int, rng: np.random.Generator, *_: object) -> np.ndarray:
    """(p, k) orthonormal columns in no particular direction."""
    Q, _r = np.linalg.qr(rng.standard_normal((records.p, k)))
    return Q.astype(np.float32)


def low_rank(Y: np.ndarray, Q: np.ndarray, dtype: type = np.float32) -> np.ndarray:
    """(p, p) matrix of low rank from Y = G Q: half of the columns for its range, all for the rest.

    With W a basis of that range, ``G = W X``, ``X = (Q'W)^+ Y'``, and the symmetric part of it.
    """
    W, _ = np.linalg.qr(Y[:, : Q.shape[1] // 2])
    half = W @ (np.linalg.pinv(Q.T @ W) @ Y.T)
    return ((half + half.T) / 2).astype(dtype)


OTHERS = {
    "random directions, the same reading": [(protocol.sketch, "directions", random_directions)],
    "random directions, low rank rebuilt": [
        (protocol.sketch, "directions", random_directions),
        (totals, "rebuilt", low_rank),
    ],
}


# --- one exchange ---------------------------------------------------------------------------------


class Exchange:
    """The sites of a problem with one of them as hub."""

    def __init__(self, problem: Problem, hub: str) -> None:
        self.problem, self.hub, self.sites = problem, hub, sites_of(problem)
        self.keys = {name: make_key(name) for name in self.sites}

    def run(self, k: int | None, other: str | None = None) -> dict[str, object]:
        """Bytes of a start and an answer, columns of the start, and the scores of the model."""
        keys, hub = self.keys, self.hub
        roster = tuple(key.public("hub" if name == hub else "site") for name, key in keys.items())
        codes = Codes(names=tuple(self.problem.codes))
        study = Study("sketch", codes=codes, disclosure=Disclosure(sketch=k), sites=roster)
        with ExitStack() as stack:
            for module, name, function in OTHERS.get(other or "", []):
                stack.enter_context(patch.object(module, name, function))
            start = protocol.start(self.sites[hub], study, keys[hub])
            answers = [
                protocol.answer(m, study, start, keys[name], approved_by="x", ledger=None)
                for name, m in self.sites.items()
            ]
            model, _ = protocol.finish(self.sites[hub], study, start, answers)
        d = messages.read(start).arrays["U"].shape[1]
        return {"d": d, "start": len(start), "answer": len(answers[0])} | scores(
            self.problem, model
        )

    def alone(self) -> dict[str, object]:
        """The hub's own fit."""
        model = Daniel(random_state=SEED).fit(self.sites[self.hub])
        return {"d": 0, "start": 0, "answer": 0} | scores(self.problem, model)


def scores(problem: Problem, model: Daniel) -> dict[str, object]:
    """AUC of each relation and their mean; a code that was dropped has no vector."""
    names = getattr(model, "feature_names_in_", problem.codes)
    row = {code: j for j, code in enumerate(names)}
    own = np.array([row.get(code, -1) for code in problem.codes])
    E = np.where((own >= 0)[:, None], model.embedding_[own], 0)
    table = relation_auc(E, problem.codes, problem.pairs, draws=DRAWS, random_state=SEED)
    return table["auc"].round(4).to_dict() | {"mean": round(float(table["auc"].mean()), 4)}


def rows(problem: Problem, hub: str, label: str, *, others: bool) -> list[dict[str, object]]:
    exchange = Exchange(problem, hub)
    records = exchange.sites[hub].shape[0]
    out: list[dict[str, object]] = []

    def add(method: str, k: int, times: int, found: dict[str, object]) -> None:
        about = {"hub": label, "records": records, "method": method, "k": k, "times": times}
        out.append(about | found)
        print(out[-1], flush=True)

    add("the hub alone", 0, 0, exchange.alone())
    plain = exchange.run(None)
    add("every pair of codes", 0, 0, plain)
    d = int(str(plain["d"]))
    for times in TIMES:
        add(SHIPPED, times * d, times, exchange.run(times * d))
        for other in OTHERS if others else []:
            add(other, times * d, times, exchange.run(times * d, other))
    return out


# --- the page -------------------------------------------------------------------------------------


def markdown(table: pd.DataFrame, p: int) -> str:
    relations = [c for c in table.columns if "Code" in c or "RxNorm" in c]
    lines = [
        "# What sketched answers cost",
        "",
        f"`python -m benchmarks.sketch`: 12 sites of emergency visits, {p} codes, masked. k: "
        "directions, in brackets in columns of the start. An answer has about 8·p·k bytes instead "
        "of 4·p². AUC of known pairs.",
        "",
        "| hub | answers | k | bytes of an answer | " + " | ".join(relations) + " | mean |",
        "|---|---|---|---|" + "---|" * (len(relations) + 1),
    ]
    for row in table.to_dict("records"):
        aucs = " | ".join(f"{row[r]:.3f}" for r in [*relations, "mean"])
        k = f"{row['k']} ({row['times']} d)" if row["k"] else "–"
        size = f"{row['answer'] / 1e6:.2f} MB" if row["answer"] else "–"
        name = f"{row['hub']}, {row['records']:,} records"
        lines.append(f"| {name} | {row['method']} | {k} | {size} | {aucs} |")
    return "\n".join(lines) + "\n\n" + WHY.format(price=_price(table))


WHY = """The derivative of few records is mostly noise of full rank. Random directions keep a \
share k/p of the signal, and a
low rank that is rebuilt from them folds the noise into it. The hub's own correlations show where \
the signal is: what
lies outside of their leading directions is left out, and most of it is noise. With 3 d directions \
this costs {price} of the mean
AUC with the largest and the smallest hub.
"""


def _price(table: pd.DataFrame) -> str:
    """What 3 d directions of the hub cost, for each hub."""
    costs = []
    for _, own in table.groupby("hub"):
        mean = own.set_index(["method", "times"])["mean"]
        costs.append(f"{mean['every pair of codes', 0] - mean[SHIPPED, 3]:.3f}")
    return " and ".join(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if not problems.available():
        raise SystemExit("The data folder was not found: set DANIEL_DATA to where it lies.")
    problem = problems.load("visits")
    names, counts = np.unique(problem.sites, return_counts=True)
    table = pd.DataFrame(
        rows(problem, str(names[counts.argmax()]), "largest site", others=True)
        + rows(problem, str(names[counts.argmin()]), "smallest site", others=False)
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    table.to_csv(arguments.out / "sketch.csv", index=False)
    text = f"{markdown(table, len(problem.codes))}\n{made_by()}\n"
    (arguments.out / "sketch.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
