"""A classification tree that grows and prunes as R's rpart does by default.

Not scikit-learn's: its ``ccp_alpha`` prunes on the Gini impurity, rpart on the misclassification
risk, which leaves another tree; and where two features split equally well, as happens in small
nodes, scikit-learn takes one at random and rpart the first.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from daniel.errors import InputError

__all__ = ["RpartTree"]

MIN_SPLIT, MIN_BUCKET, MAX_DEPTH = 20, 7, 30  # rpart.control
EQUAL = 1e-12  # impurities that differ by this share are equal but for rounding


class RpartTree(ClassifierMixin, BaseEstimator):
    """Decision tree of two classes with the defaults of rpart (Therneau & Atkinson).

    A node of at least 20 records is split where the Gini impurity falls most, with at least 7
    records on either side.  With R(t) the records that node t as a leaf would misclassify, R(T_t)
    those of the tree below it, and s the splits of that tree, the split of t is kept if

        (R(t) - R(T_t)) / s > cp R(root),

    T_t being what is left when the splits below t that are worth less have fallen.  Where the
    textbook (Breiman et al. 1984) would keep splits that fall before a son of t but are worth more
    than t's own, rpart does not; and it does not grow a right son once the left one shows that t
    cannot be worth its price.  Both are followed here, since now and then they change the tree.
    Surrogate splits do not arise: no value may be missing.

    Parameters
    ----------
    cp : complexity parameter, as a share of the root's risk.
    """

    def __init__(self, cp: float = 0.01) -> None:
        self.cp = cp

    def fit(self, X: Any, y: Any) -> Self:
        """Grow on X (n, d) and two classes y (n,)."""
        values = np.asarray(X, dtype=np.float64)
        self.classes_, label = np.unique(y, return_inverse=True)
        if self.classes_.size != 2:
            raise InputError(f"The labels have {self.classes_.size} classes: expected two.")
        if values.ndim != 2 or len(values) != label.size or not np.isfinite(values).all():
            raise InputError("Expected one row of finite numbers for each label.")
        self.n_features_in_ = values.shape[1]
        self.root_ = _Growth(values, label.astype(bool), self.cp).root
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, 2) shares of the classes in each record's leaf."""
        values = np.asarray(X, dtype=np.float64)
        share = np.empty(len(values))
        open_: list[tuple[_Node, np.ndarray]] = [(self.root_, np.arange(len(values)))]
        while open_:
            node, rows = open_.pop()
            if node.sons is None:
                share[rows] = node.positive / node.size
                continue
            low = values[rows, node.feature] < node.threshold
            open_ += [(node.sons[0], rows[low]), (node.sons[1], rows[~low])]
        return np.column_stack([1 - share, share])

    def predict(self, X: Any) -> np.ndarray:
        """(n,) the commoner class of each record's leaf."""
        return np.asarray(self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)])


@dataclass
class _Node:
    """Records of a node, of them positive; sons: below and from the threshold, None in a leaf."""

    size: int
    positive: int
    feature: int = -1
    threshold: float = np.nan
    sons: "tuple[_Node, _Node] | None" = None

    @property
    def risk(self) -> float:
        return float(min(self.positive, self.size - self.positive))


@dataclass(frozen=True)
class _Branch:
    """What hangs below a node, up to the price at which the node's own split falls.

    risk: records misclassified; splits: number of them; price: gain per split, alpha for a leaf.
    """

    risk: float
    splits: int
    price: float


class _Growth:
    """One tree on X (n, d), y (n,) of booleans."""

    def __init__(self, X: np.ndarray, y: np.ndarray, cp: float) -> None:
        self.X, self.y = np.ascontiguousarray(X.T), y
        self.root = _Node(y.size, int(y.sum()))
        self.alpha = cp * self.root.risk
        self._grow(self.root, np.argsort(self.X, axis=1, kind="stable"), self.root.risk, 0)

    def _grow(self, node: _Node, order: np.ndarray, most: float, depth: int) -> _Branch:
        """Split a node and what is below it, as far as it pays.

        order (d, size): the node's records sorted by each feature.  most: what a split of the node
        can gain at best.
        """
        promise = min(node.risk, most)
        small = node.size < MIN_SPLIT or depth == MAX_DEPTH
        if small or promise <= self.alpha or not self._split(node, order):
            return _Branch(node.risk, 0, self.alpha)
        assert node.sons is not None
        low = np.zeros(self.y.size, dtype=bool)
        low[order[node.feature, : node.sons[0].size]] = True
        below = low[order]
        # rpart goes first to the son with fewer positives, whichever side of the threshold it is.
        poor_is_low = node.sons[0].positive * node.sons[1].size < (
            node.sons[1].positive * node.sons[0].size
        )
        poor, rich = node.sons if poor_is_low else node.sons[::-1]
        of_poor, of_rich = (below, ~below) if poor_is_low else (~below, below)
        one = self._grow(
            poor, order[of_poor].reshape(len(order), -1), promise - self.alpha, depth + 1
        )
        promise = max((node.risk - one.risk) / (one.splits + 1), node.risk - poor.risk)
        two = self._grow(
            rich,
            order[of_rich].reshape(len(order), -1),
            min(promise, most) - self.alpha,
            depth + 1,
        )
        first = (poor, one), (rich, two)
        return self._weigh(node, *(first if two.price > one.price else first[::-1]))

    def _split(self, node: _Node, order: np.ndarray) -> bool:
        """Give the node the sons of its best split; False if none gains anything."""
        x = np.take_along_axis(self.X, order, axis=1)
        left = np.arange(1, node.size)
        right = node.size - left
        positive = np.cumsum(self.y[order], axis=1)[:, :-1]
        rest = node.positive - positive
        impurity = positive * (left - positive) / left + rest * (right - rest) / right
        allowed = (x[:, 1:] > x[:, :-1]) & (left >= MIN_BUCKET) & (right >= MIN_BUCKET)
        impurity = np.where(allowed, impurity, np.inf)
        best = impurity.min()
        if not best * (1 + EQUAL) < node.positive * (node.size - node.positive) / node.size:
            return False
        feature, cut = np.unravel_index(np.argmax(impurity <= best * (1 + EQUAL)), impurity.shape)
        node.feature = int(feature)
        node.threshold = float(x[feature, cut] + x[feature, cut + 1]) / 2
        number = int(positive[feature, cut])
        low = _Node(int(cut) + 1, number)
        node.sons = low, _Node(node.size - low.size, node.positive - number)
        return True

    def _weigh(
        self, node: _Node, weak: tuple[_Node, _Branch], strong: tuple[_Node, _Branch]
    ) -> _Branch:
        """The node's branch after those sons' splits have fallen that are cheaper than its own."""
        (a, first), (b, second) = weak, strong
        price = _price(node, first, second)
        if price > first.price:
            first = _Branch(a.risk, 0, first.price)
            price = _price(node, first, second)
            if price > second.price:
                second = _Branch(b.risk, 0, second.price)
                price = _price(node, first, second)
        if price <= self.alpha:
            node.sons = None
            return _Branch(node.risk, 0, price)
        return _Branch(first.risk + second.risk, first.splits + second.splits + 1, price)


def _price(node: _Node, one: _Branch, two: _Branch) -> float:
    return (node.risk - one.risk - two.risk) / (one.splits + two.splits + 1)
