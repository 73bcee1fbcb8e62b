"""AUC of known relations: against scikit-learn, and the rules of the negatives."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import cosine_similarity

from daniel.errors import InputError, ParameterError
from daniel.evaluate.relations import (
    _interval,
    cosine_pairs,
    negatives,
    rank_auc,
    relation_auc,
)

CODES = [f"PheCode:{k}" for k in range(30)] + [f"RXNORM:{k}" for k in range(20)]


def known_pairs(seed=0, size=40):
    """Random known pairs of two relations, disease-disease and disease-drug."""
    rng = np.random.default_rng(seed)
    disease = [tuple(sorted(rng.choice(30, 2, replace=False))) for _ in range(size)]
    drug = list(zip(rng.integers(0, 30, size), rng.integers(30, 50, size), strict=True))
    rows = [(*pair, "similar") for pair in disease] + [(*pair, "treats") for pair in drug]
    return pd.DataFrame(
        [(CODES[i], CODES[j], relation) for i, j, relation in rows],
        columns=["code1", "code2", "relation"],
    ).drop_duplicates(ignore_index=True)


def embedding(seed=0):
    return np.random.default_rng(seed).standard_normal((len(CODES), 6))


def positions(pairs):
    index = {code: k for k, code in enumerate(CODES)}
    return pairs["code1"].map(index).to_numpy(), pairs["code2"].map(index).to_numpy()


@pytest.mark.parametrize("levels", [5, 10_000])
def test_rank_auc_is_that_of_scikit_learn(levels):
    rng = np.random.default_rng(levels)  # few levels: many ties
    positive, negative = rng.integers(1, levels, 70), rng.integers(0, levels - 1, 90)
    truth = np.r_[np.ones(70), np.zeros(90)]
    expected = roc_auc_score(truth, np.r_[positive, negative])
    assert rank_auc(positive, negative) == pytest.approx(expected, abs=1e-12)


def test_relation_auc_is_the_mean_of_scikit_learn_over_the_draws():
    pairs, E = known_pairs(), embedding()
    table = relation_auc(E, CODES, pairs, draws=4, random_state=3)
    drawn = negatives(CODES, pairs, draws=4, random_state=3)
    cosine = cosine_similarity(E)
    for relation, group in pairs.groupby("relation"):
        positive = cosine[positions(group)]
        truth = np.r_[np.ones(len(group)), np.zeros(len(group))]
        aucs = [
            roc_auc_score(truth, np.r_[positive, cosine[i, j]])
            for i, j in zip(*drawn[relation], strict=True)
        ]
        assert table.loc[relation, "auc"] == pytest.approx(np.mean(aucs), abs=1e-12)
        assert table.loc[relation, "n_pairs"] == len(group)


def test_cosine_is_that_of_scikit_learn_and_zero_for_zero_rows():
    E = embedding()
    E[3] = 0
    i, j = np.arange(10), np.arange(10) + 20
    assert cosine_pairs(E, i, j) == pytest.approx(cosine_similarity(E)[i, j], abs=1e-12)
    assert cosine_pairs(E, [3, 3], [3, 4]).tolist() == [0, 0]
    assert cosine_pairs(E, np.zeros((2, 5), int), np.ones((2, 5), int)).shape == (2, 5)


def test_negatives_have_the_types_of_the_positives_and_are_unknown():
    pairs = known_pairs()
    known = {frozenset(pair) for pair in zip(*positions(pairs), strict=True)}
    drawn = negatives(CODES, pairs, draws=7)
    for relation, group in pairs.groupby("relation"):
        i, j = drawn[relation]
        assert i.shape == j.shape == (7, len(group))
        assert (i != j).all()
        assert not known & {frozenset(pair) for pair in zip(i.flat, j.flat, strict=True)}
        assert (i < 30).all()
        assert ((j < 30) if relation == "similar" else (j >= 30)).all()


def test_negatives_cover_the_unknown_pairs_evenly():
    codes = [f"A:{k}" for k in range(4)]
    pairs = pd.DataFrame({"code1": ["A:0"], "code2": ["A:1"], "relation": ["r"]})
    i, j = negatives(codes, pairs, draws=6000)["r"]
    keys, counts = np.unique(np.sort(np.c_[i, j], axis=1), axis=0, return_counts=True)
    assert keys.tolist() == [[0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert counts == pytest.approx(1200, abs=5 * np.sqrt(1200))


def test_negatives_are_seeded_and_a_relation_does_not_move_another():
    pairs = known_pairs()
    first, again = (negatives(CODES, pairs, random_state=1) for _ in range(2))
    other = negatives(CODES, pairs, random_state=2)
    assert all(np.array_equal(first[r], again[r]) for r in first)
    assert not any(np.array_equal(first[r], other[r]) for r in first)
    reordered = negatives(CODES, pairs.sort_values("relation", ascending=False), random_state=1)
    assert all(np.array_equal(first[r], reordered[r]) for r in first)


def test_rotation_and_scale_of_the_embedding_change_nothing():
    pairs, E = known_pairs(), embedding()
    rotation, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))
    pd.testing.assert_frame_equal(
        relation_auc(E, CODES, pairs), relation_auc(3 * E @ rotation, CODES, pairs)
    )


def test_planted_pairs_are_found_and_zeros_give_one_half():
    pairs = pd.DataFrame({"code1": CODES[:15], "code2": CODES[15:30], "relation": "similar"})
    E = embedding()
    E[15:30] = E[:15]
    found = relation_auc(E, CODES, pairs).loc["similar"]
    assert found["auc"] > 0.99
    nothing = relation_auc(np.zeros((50, 3)), CODES, pairs).loc["similar"]
    assert nothing["auc"] == 0.5
    assert nothing[["lo", "hi"]].isna().all()  # nothing was told: there is no interval


def test_interval_covers_the_truth_about_as_often_as_it_says():
    """Random embedding: the true AUC is 1/2, and about 95 of 100 intervals must hold it."""
    pairs = pd.DataFrame(
        {"code1": CODES[:15] * 2, "code2": CODES[15:30] + CODES[30:45], "relation": "r"}
    )
    tables = [relation_auc(embedding(s), CODES, pairs, random_state=s) for s in range(150)]
    covered = [(t["lo"].item() <= 0.5 <= t["hi"].item()) for t in tables]
    assert 0.85 <= np.mean(covered) <= 0.995


@pytest.mark.parametrize("effect", [1.0, 0.0], ids=["codes differ", "codes alike"])
@pytest.mark.parametrize("size", [6, 2], ids=["families of six", "no common codes"])
def test_the_interval_knows_that_pairs_share_codes(size, effect):
    """Scores that hang on the codes: resampling pairs covered the truth in 80 of 100 families.

    Resampling codes would cover it nearly always where no two pairs share one.
    """
    codes = [f"A:{k}" for k in range(120)]
    family = np.arange(48) // size
    i, j = np.where(np.triu(family[:, None] == family, 1))
    names = np.array(codes)
    pairs = pd.DataFrame({"code1": names[i], "code2": names[j], "relation": "r"})
    covered, lengths, aucs = [], [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        e = effect * rng.standard_normal(120)
        theta = e[:, None] + e + rng.standard_normal((120, 120))
        row = relation_auc(theta, codes, pairs, score="theta", draws=10, random_state=seed).loc["r"]
        covered.append(row["lo"] <= 0.5 <= row["hi"])
        lengths.append(row["hi"] - row["lo"])
        aucs.append(row["auc"])
    assert 0.9 <= np.mean(covered) <= 0.99
    assert 0.9 <= np.mean(lengths) / (2 * 1.96 * np.std(aucs)) <= 1.35


def test_the_interval_is_that_of_pairs_one_by_one():
    """The variance by hand: products of the terms of every two pairs with a common code."""
    rng = np.random.default_rng(0)
    p, known, drawn = 40, rng.integers(40, size=(2, 15)), rng.integers(40, size=(2, 1, 30))
    positive, negative = rng.normal(0.5, 1, 15), rng.normal(0, 1, (1, 30))
    auc = rank_auc(positive, negative)
    below = positive[:, None] > negative[0]
    term = np.r_[(below.mean(axis=1) - auc) / 15, (below.mean(axis=0) - auc) / 30]
    ends = np.c_[known, drawn[:, 0]]
    inside = (ends[:, None, :] == np.arange(p)[:, None]).sum(axis=0)  # codes × pairs
    of_code = inside @ term / (1 - inside[:, :15].mean(axis=1))
    variance = (of_code**2).sum() - (term**2).sum()
    codes = (of_code**2).sum() ** 2 / (of_code**4).sum()
    lo, hi = _interval(auc, positive, negative, tuple(known), tuple(drawn), p)
    logit = np.log([lo / (1 - lo), auc / (1 - auc), hi / (1 - hi)])
    half = student.ppf(0.975, codes) * np.sqrt(variance) / (auc * (1 - auc))
    assert np.diff(logit) == pytest.approx([half, half], rel=1e-9)


def test_negatives_as_common_have_the_vocabulary_and_about_the_count_of_their_code():
    """Of 200 codes with counts 0..199 each stays within 1/40 of them, and nearer at both ends."""
    codes = [f"A:{k}" for k in range(200)] + [f"B:{k}" for k in range(15)]
    counts = np.r_[np.random.default_rng(0).permutation(200), np.zeros(15)]
    pairs = pd.DataFrame({"code1": codes[:200], "code2": np.resize(codes[200:], 200)})
    drawn = negatives(codes, pairs.assign(relation="r"), counts=counts, draws=200)
    ((a, b),) = drawn.values()
    assert a.shape == (200, 200) and a.max() < 200 <= b.min()
    away = np.abs(counts[a] - counts[:200]).max(axis=0)
    end = np.minimum(counts[:200], 199 - counts[:200])
    np.testing.assert_array_equal(away, np.clip(end, 2, 5))
    assert np.unique(b).size == 15  # equally common, in random order


def test_codes_as_common_that_are_all_known_let_others_in():
    codes = [f"A:{k}" for k in range(60)]
    i, j = np.triu_indices(30, 1)  # the thirty rarest are all known to belong together
    names = np.array(codes)
    pairs = pd.DataFrame({"code1": names[i], "code2": names[j], "relation": "r"})
    (a, b), *_ = negatives(codes, pairs, counts=np.arange(60), draws=2).values()
    assert (np.maximum(a, b) >= 30).all() and (a != b).all()


@pytest.mark.parametrize(("p", "most"), [(20, 0.6), (40, 0.57), (100, 0.55), (500, 0.53)])
def test_a_score_of_how_common_codes_are_is_near_chance_against_codes_as_common(p, most):
    """Codes as common as words are, and known pairs among the commonest."""
    rng = np.random.default_rng(0)
    counts = 10_000 / np.arange(1, p + 1)
    score = np.log(counts)[:, None] + np.log(counts)
    codes = [f"A:{k}" for k in range(p)]
    found = []
    i, j = np.triu_indices(p, 1)
    weight = counts[i] * counts[j]
    for _ in range(8):
        known = rng.choice(i.size, p, replace=False, p=weight / weight.sum())
        pairs = pd.DataFrame({"code1": i[known], "code2": j[known]}).map(lambda k: codes[k])
        given = {"codes": codes, "pairs": pairs.assign(relation="r"), "score": "theta", "draws": 20}
        found.append([relation_auc(score, counts=c, **given)["auc"].item() for c in (None, counts)])
    plain, common = np.mean(found, axis=0)
    assert plain > 0.65 and abs(common - 0.5) < most - 0.5


@pytest.mark.parametrize(
    ("counts", "said"),
    [([1.0], "one number for each of 50"), (["x"] * 50, "no numbers"), ([np.nan] * 50, "finite")],
)
def test_wrong_counts_are_told(counts, said):
    with pytest.raises(InputError, match=said):
        relation_auc(embedding(), CODES, known_pairs(), counts=counts)


def test_pairs_outside_the_codes_are_left_out():
    pairs = known_pairs()
    more = pd.DataFrame({"code1": ["PheCode:999"], "code2": [CODES[0]], "relation": ["similar"]})
    pd.testing.assert_frame_equal(
        relation_auc(embedding(), CODES, pairs),
        relation_auc(embedding(), CODES, pd.concat([pairs, more])),
    )


def test_a_relation_without_negatives_is_left_out_and_named():
    """The only two A codes are a known pair: the relation of the B codes is as without them."""
    codes = ["A:0", "A:1", *(f"B:{k}" for k in range(20))]
    E = np.random.default_rng(0).standard_normal((22, 3))
    full = pd.DataFrame({"code1": ["A:0"], "code2": ["A:1"], "relation": ["r"]})
    rest = pd.DataFrame({"code1": codes[2:12], "code2": codes[12:], "relation": "s"})
    table = relation_auc(E, codes, pd.concat([full, rest]))
    expected = relation_auc(E, codes, rest)
    assert (table.attrs["left_out"], expected.attrs["left_out"]) == (["r"], [])
    pd.testing.assert_frame_equal(table, expected)


def test_repeated_turned_and_own_pairs_count_for_nothing():
    pairs = known_pairs()
    turned = pairs.rename(columns={"code1": "code2", "code2": "code1"})
    own = pd.DataFrame({"code1": CODES[:9], "code2": CODES[:9], "relation": "similar"})
    pd.testing.assert_frame_equal(
        relation_auc(embedding(), CODES, pairs),
        relation_auc(embedding(), CODES, pd.concat([pairs, pairs, turned, own])),
    )


def test_wrong_input_is_named():
    pairs, E = known_pairs(), embedding()
    with pytest.raises(InputError, match="one row for each code"):
        relation_auc(E[:-1], CODES, pairs)
    with pytest.raises(InputError, match="not finite"):
        relation_auc(np.full_like(E, np.nan), CODES, pairs)
    with pytest.raises(InputError, match="relation"):
        relation_auc(E, CODES, pairs.drop(columns="relation"))
    for column in pairs:
        holes = pairs.assign(**{column: pairs[column].where(pairs.index > 0)})
        with pytest.raises(InputError, match="rows without a code or a relation"):
            relation_auc(E, CODES, holes)
    with pytest.raises(InputError, match="both of its codes"):
        relation_auc(E, [code + "x" for code in CODES], pairs)
    with pytest.raises(InputError, match="repeated"):
        relation_auc(E, [CODES[0]] * 50, pairs)
    with pytest.raises(ParameterError, match="draws"):
        relation_auc(E, CODES, pairs, draws=0)
    full = pd.DataFrame({"code1": ["A:0"], "code2": ["A:1"], "relation": ["r"]})
    with pytest.raises(InputError, match="no negatives can be drawn"):
        negatives(["A:0", "A:1"], full)


def test_few_pairs_get_more_random_ones():
    """10 draws of 4 pairs are 40 random pairs, by whose chance an AUC moved by hundredths."""
    few = known_pairs().groupby("relation").head(4)
    i, _ = negatives(CODES, few)["similar"]
    assert i.shape == (500, 4)
    i, _ = negatives(CODES, known_pairs())["similar"]
    assert i.size >= 5000 > i.size - i.shape[1]
    with pytest.raises(ParameterError, match=r"draws is 2\.5"):
        negatives(CODES, few, draws=2.5)
