"""The tree of rpart: golden values of R, R itself, and the rule that every split is worth it."""

import shutil
import subprocess

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from daniel.errors import InputError
from daniel.evaluate.tree import RpartTree

RSCRIPT = shutil.which("Rscript")
HAS_RPART = (
    RSCRIPT is not None
    and subprocess.run([RSCRIPT, "-e", "library(rpart)"], capture_output=True).returncode == 0
)
R_FITS = """
library(rpart)
for (k in 0:{last}) {{
  d <- read.csv(file.path("{folder}", paste0(k, ".csv")))
  fit <- rpart(factor(y) ~ ., data = d[d$train == 1, names(d) != "train"], method = "class")
  p <- predict(fit, d[d$train == 0, ])[, 2]
  write.table(p, file.path("{folder}", paste0(k, ".txt")), row.names = FALSE, col.names = FALSE)
}}
"""
# Seed -> leaves, and AUC of the test half; R 4.2.2, rpart 4.1.19.
OF_R = {1: (13, 0.673759), 2: (17, 0.667039), 5: (14, 0.664053), 15: (4, 0.692174)}


def problem(seed):
    """Half to train, half to test; a smooth rule, a wave, and noise; some features with ties."""
    rng = np.random.default_rng(seed)
    n, d = [200, 400, 800, 1600][seed % 4], [3, 6, 12][seed % 3]
    X = rng.standard_normal((2 * n, d))
    w = rng.standard_normal(d)
    if seed % 5 == 0:
        X = np.round(4 * X) / 4
    y = X @ w / np.sqrt(d) + np.sin(2 * X[:, 0]) + 0.7 * rng.logistic(size=2 * n) > 0
    return X, y.astype(int), np.arange(2 * n) < n


def fitted(seed):
    X, y, train = problem(seed)
    tree = RpartTree().fit(X[train], y[train])
    return tree, tree.predict_proba(X[~train])[:, 1], y[~train]


def n_leaves(node):
    return 1 if node.sons is None else sum(map(n_leaves, node.sons))


@pytest.mark.parametrize("seed", OF_R)
def test_golden_values_of_r(seed):
    tree, p, y = fitted(seed)
    leaves, auc = OF_R[seed]
    assert n_leaves(tree.root_) == leaves
    assert roc_auc_score(y, p) == pytest.approx(auc, abs=5e-7)


@pytest.mark.skipif(not HAS_RPART, reason="Rscript with the package rpart is not installed")
def test_is_the_tree_of_rpart_in_r(tmp_path):
    seeds = range(12)
    for k in seeds:
        X, y, train = problem(k)
        names = ",".join([*(f"x{j}" for j in range(X.shape[1])), "y", "train"])
        table = np.column_stack([X, y, train])
        np.savetxt(tmp_path / f"{k}.csv", table, "%.17g", ",", header=names, comments="")
    script = tmp_path / "fits.R"
    script.write_text(R_FITS.format(last=max(seeds), folder=tmp_path))
    subprocess.run([RSCRIPT, script], check=True, capture_output=True)
    for k in seeds:
        _, ours, y = fitted(k)
        theirs = np.loadtxt(tmp_path / f"{k}.txt")
        assert roc_auc_score(y, ours) == pytest.approx(roc_auc_score(y, theirs), abs=0.005)
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_every_kept_split_is_worth_its_price():
    """By the definition, with counts from the records and not from the tree."""
    X, y, train = problem(14)
    X, y = X[train], y[train]
    root = RpartTree().fit(X, y).root_
    alpha = 0.01 * min(y.sum(), (1 - y).sum())

    def walk(node, members):
        """(risk, splits) of what is below a node; checks each split on the way."""
        positive = int(y[members].sum())
        assert (node.size, node.positive) == (members.sum(), positive)
        risk = min(positive, node.size - positive)
        if node.sons is None:
            assert node.size >= 7
            return risk, 0
        assert node.size >= 20
        low = X[:, node.feature] < node.threshold
        below = [walk(node.sons[0], members & low), walk(node.sons[1], members & ~low)]
        beneath, splits = np.sum(below, axis=0)
        assert (risk - beneath) / (splits + 1) > alpha
        return beneath, splits + 1

    _, splits = walk(root, np.ones(y.size, dtype=bool))
    assert splits >= 5


def test_what_cannot_be_told_is_one_leaf():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 4)), np.arange(400) < 20  # 5 %: no split pays
    tree = RpartTree().fit(X, y)
    assert np.unique(tree.predict_proba(X), axis=0) == pytest.approx(np.array([[0.95, 0.05]]))
    assert not tree.predict(X).any()


def test_a_larger_price_leaves_fewer_leaves():
    X, y, _ = problem(2)
    sizes = [n_leaves(RpartTree(cp).fit(X, y).root_) for cp in (0.001, 0.01, 0.05, 1.0)]
    assert sizes[0] > sizes[1] > sizes[2] > sizes[3] == 1


def test_wrong_input_is_named():
    X = np.zeros((4, 2))
    with pytest.raises(InputError, match="1 classes"):
        RpartTree().fit(X, np.zeros(4))
    with pytest.raises(InputError, match="finite"):
        RpartTree().fit(X * np.nan, [0, 1, 0, 1])
