"""Whether weak components are relations: what links of other records say."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from daniel.core import links
from daniel.core.links import firmness
from daniel.core.records import Records, records_from


def latent(rng, n, p, axes=30):
    """Rare codes that follow many weak axes of a latent patient."""
    logs = rng.normal(size=(n, axes)) @ rng.normal(size=(axes, p)) * 2.5 / np.sqrt(axes)
    return (rng.random((n, p)) < np.exp(np.minimum(logs - 6, -0.1))).astype(float)


def cliques(rng, n, p):
    """Independent rare codes, and a few records that hold very many of them."""
    size = np.where(rng.random((n, 1)) < 0.003, 15.0, 0.7)
    return (rng.random((n, p)) < 0.02 * size).astype(float)


def test_relations_want_a_soft_penalty_and_cliques_a_firm_one():
    rng = np.random.default_rng(0)
    assert firmness(records_from(latent(rng, 8000, 200)), rng) < 0.3
    assert firmness(records_from(cliques(rng, 6000, 200)), rng) > 0.9


def test_too_few_links_count_as_firm(rng):
    assert firmness(records_from((rng.random((50, 5)) < 0.3).astype(float)), rng) == 1
    assert firmness(records_from(np.zeros((1, 4))), rng) == 1


def test_it_is_reproducible_and_very_many_codes_and_records_are_sampled(monkeypatch):
    records = records_from(latent(np.random.default_rng(1), 8000, 200))
    first, again = (firmness(records, np.random.default_rng(5)) for _ in range(2))
    assert first == again
    monkeypatch.setattr(links, "MOST_CODES", 120)
    monkeypatch.setattr(links, "MOST_RECORDS", 3000)
    some = links._some(records, np.random.default_rng(0))
    assert some.p == 120 and abs(some.total - 3000) < 200
    assert 0 <= firmness(records, np.random.default_rng(5)) <= 1


def test_links_are_pairs_seen_more_often_than_chance(rng):
    Z = latent(rng, 3000, 40)
    records = records_from(Z)
    found = {tuple(pair) for pair in links._links(records, rng).T}
    together, counts = Z.T @ Z, Z.sum(axis=0)
    wanted = set()
    for j in range(40):
        for k in range(j + 1, 40):
            chance = counts[j] * counts[k] / 3000
            surprise = (together[j, k] - chance) / np.sqrt(max(chance, links.CHANCE))
            if together[j, k] >= links.TOGETHER and surprise > links.SURPRISE:
                wanted.add((j, k))
    assert found == wanted
    assert wanted


def test_weights_count_as_copies(rng):
    Z = latent(rng, 800, 40)
    thrice = records_from(np.vstack([Z, Z, Z]), merge=False)
    weighted = records_from(Z, merge=False)
    weighted = Records(weighted.indptr, weighted.indices, 40, 3 * weighted.weight, weighted.site, 1)
    one, other = (
        {tuple(pair) for pair in links._links(records, rng).T} for records in (thrice, weighted)
    )
    assert one == other


@pytest.mark.parametrize("decimals", [8, 1], ids=["no ties", "ties"])
def test_area_is_that_of_scikit_learn(rng, decimals):
    linked, random = rng.normal(0.5, 1, 60).round(decimals), rng.normal(size=60).round(decimals)
    wanted = roc_auc_score(np.repeat([1, 0], 60), np.concatenate([linked, random]))
    assert links._area(linked, random) == pytest.approx(wanted)
