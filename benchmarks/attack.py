"""The reconstruction attack: records read back from an answer as cliques of its pattern.

    python -m benchmarks.attack

A raw answer tells how many records have both codes of a pair: at a start near independence the sum
is S_jk = c_j c_k / n - c_jk, c the counts.  The pairs that occur form a graph, each record is a
clique in it, and a maximal clique that is not there by chance is a record.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
import scipy.sparse as sp

from daniel import CodeMatrix, Study
from daniel.federated import messages, protocol
from daniel.federated.keys import make_key
from daniel.federated.sums import Sums, symmetric
from daniel.federated.totals import add_up
from daniel.study import Codes, Disclosure

CODES, PER_RECORD = 300, 12
SITES = ("north", "south", "east")
HUB = 700  # records of the hub
MOST = 10_000  # cliques to look at before giving up


def records(n: int, rng: np.random.Generator) -> CodeMatrix:
    """n records of PER_RECORD codes, some codes more common than others."""
    share = rng.dirichlet(np.full(CODES, 5.0))
    Z = np.zeros((n, CODES), dtype=np.float32)
    for row in Z:
        row[rng.choice(CODES, PER_RECORD, replace=False, p=share)] = 1
    return CodeMatrix(sp.csr_array(Z), tuple(f"code:{j}" for j in range(CODES)))


def cliques(adjacent: np.ndarray) -> list[frozenset[int]]:
    """Maximal cliques of a graph (Bron and Kerbosch with pivots), at most MOST of them."""
    neighbours = [set(np.flatnonzero(row)) for row in adjacent]
    found: list[frozenset[int]] = []
    todo = [(frozenset(), set(range(len(neighbours))), set())]
    while todo and len(found) < MOST:
        clique, candidates, done = todo.pop()
        if not candidates and not done:
            found.append(clique)
            continue
        if not candidates:
            continue
        pivot = max(candidates | done, key=lambda v: len(neighbours[v] & candidates))
        for v in list(candidates - neighbours[pivot]):
            near = neighbours[v]
            todo.append((clique | {v}, candidates & near, done & near))
            candidates = candidates - {v}
            done = done | {v}
    return found


def attack(sums: Sums) -> list[frozenset[int]]:
    """Guesses at records from the sums of an answer."""
    together = np.outer(sums.counts, sums.counts) / sums.totals[0] - symmetric(
        sums.derivative, CODES
    )
    adjacent = together > 0.5
    np.fill_diagonal(adjacent, False)
    return [clique for clique in cliques(adjacent) if len(clique) >= 3]


def recovered(matrix: CodeMatrix, guesses: list[frozenset[int]]) -> int:
    """Records that are among the guesses, code by code."""
    made = set(guesses)
    rows = np.split(matrix.Z.indices, matrix.Z.indptr[1:-1])
    return sum(frozenset(row.tolist()) in made for row in rows)


def views(n: int = 50, seed: int = 0) -> tuple[CodeMatrix, dict[str, Sums]]:
    """A site of n records, and the sums that a hub sees of it: raw, masked, open."""
    rng = np.random.default_rng(seed)
    sites = {name: records(HUB if name == "north" else n, rng) for name in SITES}
    keys = {name: make_key(name) for name in SITES}
    roster = tuple(keys[name].public("hub" if name == "north" else "site") for name in SITES)
    study = Study(codes=Codes(names=sites["north"].codes), sites=roster)
    target = sites["south"]

    def answer(release: Literal["masked", "open"], floor: int) -> Sums:
        own = replace(study, disclosure=Disclosure(release=release, floor=floor))
        start = protocol.start(sites["north"], own, keys["north"])
        data = protocol.answer(target, own, start, keys["south"], approved_by="x", ledger=None)
        return add_up([messages.read(data)], CODES)

    return target, {
        "raw": answer("open", 1),
        "masked": answer("masked", 11),
        "open": answer("open", 11),
    }


def main() -> None:
    target, seen = views()
    for kind, sums in seen.items():
        print(f"{kind:7s} {recovered(target, attack(sums))} of {target.shape[0]} records read back")


if __name__ == "__main__":
    main()
