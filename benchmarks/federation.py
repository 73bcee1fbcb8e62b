"""What the gate costs: known-pair AUC of 12 sites of emergency visits under each control.

    python -m benchmarks.federation              about ten minutes on two cores
    python -m benchmarks.federation --only masked open11

Each row is a whole exchange between the sites (start, answers through the gate, finish).  A code
that is dropped has no vector: its pairs count as undecided (AUC 0.5).  Results go to
results/federation/: one CSV line per row, run and relation, written as it ends (a run goes on where
it stopped), and price.md.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import problems
from benchmarks.problems import Problem
from benchmarks.rounds import sites_of
from benchmarks.source import made_by
from daniel import CodeMatrix, Daniel, Study
from daniel.data.groups import grouped, wider
from daniel.evaluate.relations import relation_auc
from daniel.federated import protocol
from daniel.study import Codes, Disclosure

OUT = Path(__file__).parent.parent / "results" / "federation"
SEED, DRAWS = 0, 20
REPEATS = 3  # of rows with noise
GROUP = 3  # a group of codes has so many times the floor's patients at the hub
Row = tuple[str, Callable[[Problem], Daniel]]


def _pooled(problem: Problem) -> Daniel:
    return Daniel(random_state=SEED).fit(CodeMatrix(problem.Z, tuple(problem.codes)))


def _hub(problem: Problem) -> Daniel:
    names, counts = np.unique(problem.sites, return_counts=True)
    own = problem.Z[problem.sites == names[np.argmax(counts)]]
    return Daniel(random_state=SEED).fit(CodeMatrix(own, tuple(problem.codes)))


def _plain(problem: Problem) -> Daniel:
    records = CodeMatrix(problem.Z, tuple(problem.codes))
    return Daniel(random_state=SEED).fit(records, sites=problem.sites)


def _gate(*, wide: bool = False, **terms: object) -> Callable[[Problem], Daniel]:
    """A whole exchange under these terms of disclosure; wide: rare PheCodes under their parents."""
    disclosure = replace(Disclosure(), **terms)  # type: ignore[arg-type]

    def run(problem: Problem) -> Daniel:
        sites = sites_of(problem)
        groups = list(problem.codes)
        if wide:
            hub = max(sites.values(), key=lambda m: m.shape[0])
            groups = wider(hub, parents(problem.codes), GROUP * disclosure.floor)
            sites = {name: grouped(m, groups) for name, m in sites.items()}
        codes = next(iter(sites.values())).codes
        study = Study(name=problem.name, codes=Codes(names=codes), disclosure=disclosure)
        model = protocol.fit(sites, study)[0]
        return _with_groups(model, problem.codes, groups)

    return run


def parents(codes: list[str]) -> dict[str, str]:
    """PheCode:290.11 -> PheCode:290.1 -> PheCode:290, as the vocabulary numbers them."""
    out = {}
    for code in codes:
        while code.startswith("PheCode:") and "." in code:
            out[code] = code[:-1].removesuffix(".")
            code = out[code]
    return out


def _with_groups(model: Daniel, codes: list[str], groups: list[str]) -> Daniel:
    """The model with a row of vectors for each code whose group it has."""
    row = {name: i for i, name in enumerate(model.feature_names_in_)}
    kept = [j for j, group in enumerate(groups) if group in row]
    model.embedding_ = model.embedding_[[row[groups[j]] for j in kept]]
    model.feature_names_in_ = np.array([codes[j] for j in kept], dtype=object)
    return model


ROWS: dict[str, Row] = {
    "pooled": ("all records in one place", _pooled),
    "hub": ("the hub alone", _hub),
    "plain": ("one shot, no gate", _plain),
    "masked": ("masked, floor 11 on the total (default)", _gate()),
    "open3": ("open, floor 3 at each site", _gate(release="open", floor=3)),
    "open5": ("open, floor 5 at each site", _gate(release="open", floor=5)),
    "open11": ("open, floor 11 at each site", _gate(release="open", floor=11)),
    "wide5": (
        "open, floor 5, rare PheCodes under their parents",
        _gate(release="open", floor=5, wide=True),
    ),
    "wide11": (
        "open, floor 11, rare PheCodes under their parents",
        _gate(release="open", floor=11, wide=True),
    ),
} | {
    f"eps{epsilon}": (
        f"masked, epsilon {epsilon}, automatic clip",
        _gate(epsilon=float(epsilon), clip="auto"),
    )
    for epsilon in (8, 4, 2, 1)
}


def scores(model: Daniel, codes: list[str]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Cosines of pairs of codes; a pair of which the model dropped a code is undecided: median."""
    position = {code: j for j, code in enumerate(codes)}
    kept = np.array([position[code] for code in model.feature_names_in_])
    norm = np.linalg.norm(model.embedding_, axis=1, keepdims=True)
    unit = model.embedding_ / np.where(norm > 0, norm, 1)
    cosine = unit @ unit.T
    out = np.full((len(codes), len(codes)), np.median(cosine[np.triu_indices(kept.size, 1)]))
    out[np.ix_(kept, kept)] = cosine
    return lambda i, j: out[i, j]


def run(problem: Problem, names: list[str], path: Path) -> None:
    """Score the rows that the file does not hold yet; append each as it ends."""
    done = set()
    if path.exists():
        done = set(pd.read_csv(path)[["row", "run"]].itertuples(index=False, name=None))
    for name in names:
        for number in range(REPEATS if name.startswith("eps") else 1):
            if (name, number) not in done:
                _append(problem, name, number, path)


def _append(problem: Problem, name: str, number: int, path: Path) -> None:
    begin = time.perf_counter()
    model = ROWS[name][1](problem)
    seconds = time.perf_counter() - begin
    pairs = scores(model, problem.codes)
    table = relation_auc(
        pairs, problem.codes, problem.pairs, draws=DRAWS, random_state=SEED
    ).reset_index()
    table.insert(0, "row", name)
    table.insert(1, "run", number)
    table["codes"], table["seconds"] = len(model.feature_names_in_), round(seconds, 1)
    table.round(4).to_csv(path, mode="a", header=not path.exists(), index=False)
    areas = "  ".join(f"{r.relation} {r.auc:.3f}" for r in table.itertuples())
    print(f"{ROWS[name][0]:50s} {seconds:6.1f} s  {areas}", flush=True)


def markdown(results: pd.DataFrame, problem: Problem) -> str:
    """The table: one row a control, one column a relation."""
    auc = results.pivot_table(index="row", columns="relation", values="auc")  # means over runs
    auc = auc[list(dict.fromkeys(results["relation"]))]
    codes = results.groupby("row")["codes"].first()
    lines = [
        "# What the gate costs",
        "",
        "`python -m benchmarks.federation`. Area under the ROC curve of known relations, "
        f"{len(set(problem.sites))} sites of emergency visits, {problem.Z.shape[0]:,} records, "
        f"{problem.Z.shape[1]:,} codes. A dropped code has no vector, and its pairs count as "
        "undecided (0.5). With rare PheCodes under their parents a code has the vector of its "
        "group, and two codes of one group count as alike, which flatters PheCode similar. Noise "
        "comes from the sites' secret keys: rows with epsilon are means over "
        f"{REPEATS} runs.",
        "",
        "| release | " + " | ".join(auc.columns) + " | codes kept |",
        "|---|" + "---|" * (auc.shape[1] + 1),
    ]
    for name, (label, _) in ROWS.items():
        if name in auc.index:
            cells = " | ".join(f"{value:.3f}" for value in auc.loc[name])
            lines.append(f"| {label} | {cells} | {codes[name]} |")
    if {"plain", "masked"} <= set(auc.index):
        cost = (auc.loc["plain"] - auc.loc["masked"]).max()
        lines += ["", f"The default gate costs at most {cost:.3f} against one shot without a gate."]
    noisy = results[results["row"].str.startswith("eps")].groupby(["row", "relation"])["auc"]
    if len(noisy):
        spread = (noisy.max() - noisy.min()).max()
        lines += [f"Two runs of a row with epsilon differ by at most {spread:.3f} here."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if not problems.available():
        raise SystemExit("The data folder was not found: set DANIEL_DATA to where it lies.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    problem = problems.load("visits")
    path = arguments.out / "price.csv"
    run(problem, arguments.only, path)
    text = f"{markdown(pd.read_csv(path), problem)}\n{made_by()}\n"
    (arguments.out / "price.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
