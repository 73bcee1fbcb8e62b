"""Held-out likelihood: the loss that is told, on records small enough to sum by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from benchmarks import likelihood
from benchmarks.problems import Problem
from daniel.core.coordinates import natural_coordinates
from daniel.core.exchange import Start
from daniel.core.intercepts import prior_intercepts
from daniel.core.records import records_from


def draw(rng, n, p=12):
    """Records of three groups of codes."""
    chosen = rng.random((n, 3)) < 0.3
    return ((rng.random((n, p)) < 0.8) & chosen[:, np.arange(p) % 3]) * 1.0


def test_independence_is_told_with_the_prevalences_of_each_site():
    rng = np.random.default_rng(0)
    learned = [draw(rng, 400), 1 - draw(rng, 600)]
    asked = [draw(rng, 50), 1 - draw(rng, 150)]
    whole = records_from(np.vstack(learned))
    coords = natural_coordinates(whole.counts(), whole.total)
    nothing = np.zeros((whole.p, 1), np.float32)
    model = Start(coords, nothing, np.ones(1), prior_intercepts(whole))
    told = likelihood.loss(model, *(list(map(records_from, part)) for part in (learned, asked)))
    wanted = 0.0
    for own, other in zip(learned, asked, strict=True):
        share = own.mean(axis=0)
        wanted -= (other * np.log(share) + (1 - other) * np.log(1 - share)).sum() / 200
    assert told == pytest.approx(wanted, rel=2e-3)  # a pseudo-record beside each site's own


def test_a_row_tells_how_far_one_shot_comes(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setitem(likelihood.PROBLEMS, "made", "made")
    Z = draw(rng, 3_000)
    codes = [f"A:{j}" for j in range(12)]
    groups = {"code1": codes[:9], "code2": codes[3:], "relation": "group"}
    sites = rng.choice(["north", "south"], 3_000)
    Z = sparse.csr_matrix(Z.astype(np.float32))
    found = likelihood.row(Problem("made", Z, codes, sites, None, pd.DataFrame(groups)))
    assert float(found["independence"]) > float(found["hub alone"]) >= float(found["pooled"])
    assert found["sites"] == "2" and -100 < float(found["gap closed"].strip("%")) < 200
    assert float(found["pairs, one shot"]) > 0.9
