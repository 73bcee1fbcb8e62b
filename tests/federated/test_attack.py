"""The reconstruction attack: it reads a raw answer, and no answer that the gate lets out.

What it reads of a sum of few records is a limit that docs/privacy.md tells.
"""

from dataclasses import fields, replace

import numpy as np
import pytest

from benchmarks.attack import CODES, HUB, SITES, attack, cliques, records, recovered, views
from daniel import Study
from daniel.federated import messages, protocol
from daniel.federated.directions import directions
from daniel.federated.keys import make_key
from daniel.federated.sums import Sums, site_sums
from daniel.federated.terms import clip_of, options_of
from daniel.federated.totals import add_up
from daniel.study import Codes, Disclosure


@pytest.fixture(scope="module")
def seen():
    return views(n=50, seed=3)


def test_records_are_read_back_from_a_raw_answer(seen):
    target, views = seen
    assert recovered(target, attack(views["raw"])) >= 45


@pytest.mark.parametrize("kind", ["masked", "open"])
def test_none_is_read_back_through_the_gate(seen, kind):
    target, views = seen
    assert recovered(target, attack(views[kind])) == 0


def others(disclosure: Disclosure):
    """Two sites of 50 records, and their sum: what all masked answers tell less the hub's own."""
    rng = np.random.default_rng(3)
    sites = {name: records(HUB if name == "north" else 50, rng) for name in SITES}
    keys = {name: make_key(name) for name in SITES}
    roster = tuple(keys[name].public("hub" if name == "north" else "site") for name in SITES)
    codes = Codes(names=sites["north"].codes)
    study = Study(codes=codes, sites=roster, disclosure=disclosure)
    start = protocol.start(sites["north"], study, keys["north"])
    answers = [
        protocol.answer(sites[name], study, start, keys[name], approved_by="x", ledger=None)
        for name in SITES
    ]
    total = add_up([messages.read(answer) for answer in answers], CODES)
    opening, options = messages.read(start), options_of(study)
    made = protocol._natural_start(opening, options)
    Q = directions(made) if disclosure.epsilon else None
    own = site_sums(sites["north"], made, options, clip=clip_of(study, opening.manifest), Q=Q)
    rest = Sums(*(getattr(total, f.name) - getattr(own, f.name) for f in fields(Sums)))
    return [sites[name] for name in SITES[1:]], rest


def test_the_sum_of_few_records_is_read_unless_it_has_noise():
    """Masks hide whose a record is, and not what is in a sum of 100 records."""
    sites, rest = others(Disclosure())
    guesses = attack(rest)
    assert all(recovered(site, guesses) >= 45 for site in sites)
    pytest.importorskip("dp_accounting")
    sites, rest = others(Disclosure(clip="auto", epsilon=8.0))
    guesses = attack(replace(rest, totals=np.maximum(rest.totals, 1)))
    assert sum(recovered(site, guesses) for site in sites) == 0


def test_cliques_by_hand():
    """Two triangles that share an edge, and a pair."""
    A = np.zeros((6, 6), dtype=bool)
    for i, j in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (4, 5)]:
        A[i, j] = A[j, i] = True
    assert set(cliques(A)) == {frozenset({0, 1, 2}), frozenset({1, 2, 3}), frozenset({4, 5})}
