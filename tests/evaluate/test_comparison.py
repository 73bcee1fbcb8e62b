"""The comparison table: known numbers in, the right cells, leaders and sentences out."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from daniel import CodeMatrix, Daniel
from daniel.errors import InputError
from daniel.evaluate.compare import (
    Comparison,
    Entry,
    comparison,
    phenotype_rows,
    relation_rows,
    sites_alone,
)
from daniel.evaluate.phenotype import phenotype
from daniel.evaluate.relations import relation_auc
from daniel.evaluate.rivals import PPMISVD

CODES = tuple(f"A:{j}" for j in range(12))
GROUPS = np.repeat(np.arange(4), 3)


@pytest.fixture(scope="module")
def matrix():
    """600 records of 300 patients: one of four groups of codes each, with a little noise."""
    rng = np.random.default_rng(0)
    group = rng.integers(4, size=600)
    chance = np.where(group[:, None] == GROUPS, 0.7, 0.08)
    Z = (rng.random(chance.shape) < chance).astype(np.float32)
    return CodeMatrix(sp.csr_array(Z), CODES, np.repeat(np.arange(300), 2))


@pytest.fixture(scope="module")
def pairs():
    i, j = np.where(np.triu(GROUPS[:, None] == GROUPS, 1))
    names = np.array(CODES)
    return pd.DataFrame({"code1": names[i], "code2": names[j], "relation": "similar"})


@pytest.fixture(scope="module")
def model(matrix):
    return Daniel(random_state=0).fit(matrix)


def table(rows):
    columns = ["method", "setting", "column", "auc"]
    return Comparison(pd.DataFrame(rows, columns=columns).assign(n=9, lo=0.0, hi=1.0))


FOUND = table(
    [
        ("ours", "", "r", 0.8),
        ("ours", "", "s", 0.7),
        ("rival", "d=1", "r", 0.6),
        ("rival", "d=2", "r", 0.7),
        ("rival", "d=1", "s", 0.75),
        ("rival", "d=2", "s", 0.7),
        ("text", "", "r", 0.5),
    ]
)


def test_a_method_shows_its_best_setting_in_each_column():
    best = FOUND.best().set_index(["method", "column"])["setting"]
    assert best["rival", "r"] == "d=2"
    assert best["rival", "s"] == "d=1"
    expected = pd.DataFrame(
        {"r": [0.8, 0.7, 0.5], "s": [0.7, 0.75, np.nan]}, index=["ours", "rival", "text"]
    )
    pd.testing.assert_frame_equal(FOUND.wide(), expected, check_names=False)


def test_margins_name_the_best_other_method():
    margins = FOUND.margins("ours")
    assert margins["rival"].to_dict() == {"r": "rival", "s": "rival"}
    np.testing.assert_allclose(margins["margin"], [0.1, -0.05])
    other = FOUND.margins("ours", aside=["rival", "not there"])
    assert other["rival"].to_dict() == {"r": "text"}
    with pytest.raises(InputError, match="no method 'nobody'"):
        FOUND.margins("nobody")


def test_the_statement_says_where_and_by_how_much():
    assert FOUND.statement("ours") == (
        "ours is first in 1 of 2 columns; behind in 1: s (0.700, 0.050 behind rival)."
    )
    alone = table([("ours", "", "r", 0.8), ("rival", "", "r", 0.7)])
    assert alone.statement("ours") == "ours is first in 1 of 1 columns."
    aside = FOUND.statement("ours", aside=["rival", "not in the table"])
    assert "columns, leaving rival aside" in aside


def test_what_the_shown_digits_do_not_tell_apart_is_level():
    """Ties, and losses that rounding hides, were counted as first."""
    ours = {"tie": 0.7, "hidden loss": 0.8101, "hidden lead": 0.8104, "lead": 0.9, "loss": 0.6}
    best = {"tie": 0.7, "hidden loss": 0.8104, "hidden lead": 0.8101, "lead": 0.8, "loss": 0.601}
    rows = [("ours", "", *of) for of in ours.items()] + [("it", "", *of) for of in best.items()]
    assert table(rows).statement("ours") == (
        "ours is first in 1 of 5 columns; level with the best in 3: tie (0.700, with it), hidden "
        "loss (0.810, with it), hidden lead (0.810, with it); behind in 1: loss (0.600, 0.001 "
        "behind it)."
    )
    few = pd.DataFrame(rows[:1] + rows[5:6], columns=["method", "setting", "column", "auc"])
    few = few.assign(auc=[0.7049, 0.7001], n=25, lo=0.0, hi=1.0, kind="target")
    assert "level with the best in 1: tie (0.70, with it)." in Comparison(few).statement("ours")


def test_relations_of_few_pairs_are_not_counted_and_named():
    """A method was first by a relation that the report itself calls one that says nothing."""
    rows = FOUND.table.assign(kind="relation", n=10)
    assert Comparison(rows).statement("ours") == FOUND.statement("ours")
    few = Comparison(rows.assign(n=rows["column"].map({"r": 9, "s": 10})))
    assert few.statement("ours") == (
        "ours is first in 0 of 1 columns; behind in 1: s (0.700, 0.050 behind rival); not counted, "
        "since fewer than 10 pairs say nothing about a relation: r."
    )
    assert list(few.margins("ours").index) == ["r", "s"]
    assert Comparison(rows.assign(n=9)).statement("ours") == (
        "No column tells where ours stands; not counted, since fewer than 10 pairs say nothing "
        "about a relation: r, s."
    )
    cases = Comparison(rows.assign(n=9, kind="target"))  # of these others decide
    assert cases.statement("ours").startswith("ours is first in 1 of 2 columns")


def test_what_is_left_out_stays_with_the_table(matrix, pairs, model):
    """A relation without random pairs, and one without known codes, were gone without a word."""
    codes = (*CODES, "B:0", "B:1")
    more = [("B:0", "B:1", "full"), ("A:0", "X:1", "lost"), ("A:1", "X:1", "similar")]
    known = pd.concat([pairs, pd.DataFrame(more, columns=pairs.columns)])
    E = np.random.default_rng(0).standard_normal((14, 3))
    entry = Entry("it", SimpleNamespace(embedding_=E, theta_=E @ E.T))
    told = {"unknown_pairs": 2, "unknown_codes": ["X:1"], "unknown_relations": ["lost"]}
    assert relation_rows(entry, codes, known).attrs == {"left_out": ["full"], **told}
    twice = relation_rows(entry, codes, known, counts=np.arange(14)).attrs
    assert twice["left_out"] == ["full", "full, as common"]
    wider = CodeMatrix(sp.hstack([matrix.Z, matrix.Z[:, :2]], format="csr"), codes, matrix.patients)
    found = comparison([entry, entry], wider, known, target="A:0", folds=3).coarse()
    assert found.table.attrs == {"left_out": ["full"], **told}
    assert comparison([Entry("d", model)], matrix, target="A:0", folds=3).table.attrs == {}


def test_markdown_marks_the_leader_of_each_column():
    lines = FOUND.markdown("ours").splitlines()
    assert lines[0] == "| method | r | s |"
    assert lines[2:5] == [
        "| ours | **0.800** | 0.700 |",
        "| rival | 0.700 | **0.750** |",
        "| text | 0.500 | – |",
    ]
    assert lines[6] == FOUND.statement("ours")


def test_relations_are_those_of_relation_auc(matrix, pairs, model):
    found = relation_rows(Entry("Daniel", model), CODES, pairs, draws=5).iloc[0]
    expected = relation_auc(model.embedding_, CODES, pairs, draws=5).iloc[0]
    assert (found["auc"], found["lo"], found["n"]) == tuple(expected[["auc", "lo", "n_pairs"]])
    assert found["setting"] == ""


def test_random_pairs_are_those_of_relation_auc_unless_said_otherwise(pairs):
    """A report has both: the same method had two AUCs of one relation."""
    weak = np.random.default_rng(1).standard_normal((len(CODES), 3))
    found = relation_rows(Entry("weak", SimpleNamespace(embedding_=weak)), CODES, pairs)
    assert found["auc"].tolist() == relation_auc(weak, CODES, pairs)["auc"].tolist()


def test_relations_have_a_second_row_against_codes_as_common(pairs):
    weak = np.random.default_rng(1).standard_normal((len(CODES), 3))
    counts = np.arange(len(CODES))
    entry = Entry("weak", SimpleNamespace(embedding_=weak))
    found = relation_rows(entry, CODES, pairs, counts=counts)
    both = relation_auc(weak, CODES, pairs), relation_auc(weak, CODES, pairs, counts=counts)
    assert found["auc"].tolist() == [auc for table in both for auc in table["auc"]]
    names = both[0].index.tolist()
    assert found["column"].tolist() == names + [f"{name}, as common" for name in names]


def test_couplings_of_a_rival_are_scored_too(pairs):
    """Vectors that say nothing and couplings that say all: only the latter find the pairs."""
    blind = SimpleNamespace(
        embedding_=np.ones((12, 2)), theta_=(GROUPS[:, None] == GROUPS).astype(float)
    )
    rows = relation_rows(Entry("rival", blind, "d=2"), CODES, pairs).set_index("setting")
    assert rows.loc["d=2, cosine", "auc"] == 0.5
    assert rows.loc["d=2, theta", "auc"] == 1.0


def test_codes_in_another_order_are_found_by_name(matrix, pairs):
    """Groups that alternate: by position, none of the known pairs would be one."""
    order = np.arange(12).reshape(4, 3).T.ravel()
    near = (GROUPS[:, None] == GROUPS).astype(float)
    plain = SimpleNamespace(embedding_=near, theta_=near)
    turned = SimpleNamespace(
        embedding_=near[order], theta_=near[order][:, order], codes_=np.array(CODES)[order]
    )
    found, expected = (
        relation_rows(Entry("rival", given), CODES, pairs) for given in (turned, plain)
    )
    pd.testing.assert_frame_equal(found, expected)
    assert (found["auc"] == 1.0).all()
    names = tuple(CODES[k] for k in order)
    fitted = Daniel(random_state=0).fit(CodeMatrix(sp.csr_array(matrix.Z[:, order]), names))
    assert comparison([Entry("Daniel", fitted)], matrix, pairs).table["auc"].item() > 0.95


def test_a_model_of_other_codes_is_refused(pairs):
    E = np.eye(12)
    other = SimpleNamespace(embedding_=E, codes_=[*CODES[:11], "B:1"])
    with pytest.raises(InputError, match=r"do not share 2 codes, such as 'A:11', 'B:1'\."):
        relation_rows(Entry("other", other), CODES, pairs)
    with pytest.raises(InputError, match="11 codes and the records have 12"):
        relation_rows(Entry("short", SimpleNamespace(embedding_=E[:11])), CODES, pairs)


def test_phenotyping_is_that_of_phenotype(matrix, model):
    options = {"folds": 3, "random_state": 1}
    found = phenotype_rows(Entry("Daniel", model), matrix, "A:0", name="it", **options)
    expected = phenotype(model, matrix, "A:0", **options)
    by_column = found.set_index("column")["auc"]
    assert list(by_column.index) == ["it unsupervised", "it tree", "it logistic"]
    assert by_column["it unsupervised"] == expected.auc()
    assert by_column["it tree"] == expected.auc("tree")


def test_a_plain_embedding_has_two_unsupervised_scores(matrix):
    rival = PPMISVD(4).fit(matrix)
    found = phenotype_rows(Entry("PPMI", rival, "d=4"), matrix, "A:0", folds=3)
    scores = found[found["column"] == "unsupervised"].set_index("setting")["auc"]
    for way in ("cosine", "inner"):
        expected = phenotype(rival, matrix, "A:0", folds=3, score=way, classifiers={}).auc()
        assert scores[f"d=4, {way}"] == expected
    assert (found["column"] == "tree").sum() == 1


def test_one_table_of_everything(matrix, pairs, model):
    rng = np.random.default_rng(0)
    entries = [
        Entry("Daniel", model),
        Entry("random", SimpleNamespace(embedding_=rng.standard_normal((12, 3))), "a"),
        Entry("random", SimpleNamespace(embedding_=rng.standard_normal((12, 3))), "b"),
    ]
    found = comparison(entries, matrix, pairs, target="A:0", folds=3)
    wide = found.wide()
    assert list(wide.columns) == ["similar", "unsupervised", "tree", "logistic"]
    assert wide.loc["Daniel", "similar"] > 0.95
    assert (found.margins("Daniel")["margin"][["similar", "unsupervised"]] > 0).all()


def test_nothing_to_compare_is_said(matrix, pairs, model):
    with pytest.raises(InputError, match="give known pairs, a target, or both"):
        comparison([Entry("Daniel", model)], matrix)
    with pytest.raises(InputError, match="No method was given"):
        comparison([], matrix, pairs)


def test_sites_alone_see_their_own_records(matrix):
    sites = np.repeat(["south", "north"], [200, 400])
    found = sites_alone(PPMISVD(3), matrix, sites)
    assert list(found) == ["north", "south"]  # largest first
    own = PPMISVD(3).fit(CodeMatrix(matrix.Z[:200], CODES))
    np.testing.assert_allclose(found["south"].embedding_, own.embedding_)


def test_a_relation_named_as_a_column_of_phenotyping_stays_apart(matrix, pairs, model):
    named = pairs.assign(relation="tree")
    options = {"target": "A:0", "folds": 3}
    found = comparison([Entry("Daniel", model)], matrix, named, **options)
    plain = comparison([Entry("Daniel", model)], matrix, pairs, **options)
    wide, apart = found.wide().loc["Daniel"], plain.wide().loc["Daniel"]
    assert list(wide.index) == ["tree (relation)", "unsupervised", "tree (target)", "logistic"]
    assert wide["tree (relation)"] == apart["similar"]
    assert wide["tree (target)"] == apart["tree"] != apart["similar"]
    assert found.markdown("Daniel").count("tree (relation)") == 1
