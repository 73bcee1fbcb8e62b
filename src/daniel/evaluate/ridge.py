"""Logistic regression on patient vectors, as firmly penalised as the records ask for."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import PredefinedSplit, StratifiedKFold, cross_val_predict

from daniel.core.threads import one_blas_thread
from daniel.evaluate.cases import fold_of_patients

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)  # C of scikit-learn; the smallest where nothing can be told
FOLDS = 3
Splits = list[tuple[np.ndarray, np.ndarray]]


class RidgeLogistic(ClassifierMixin, BaseEstimator):
    """Logistic regression with a ridge that cross-validation chooses, on axes of one scale.

    A few hundred patients have hardly more positives than a vector has axes: without a ridge the
    regression learns their noise.  The axes of an embedding have a scale that means something, weak
    ones are small; so all are divided by one number, and strong axes bear less of the penalty.

    Parameters
    ----------
    score_first : the first column is what a model says of the class by itself.  It is made as wide
        as all axes together, so that the ridge spares it and shrinks what the labels would add.
    """

    by_patient = True  # `fit` can be told whose the rows are

    def __init__(self, score_first: bool = False) -> None:
        self.score_first = score_first

    def fit(self, X: Any, y: ArrayLike, patients: ArrayLike | None = None) -> Self:
        """X (n, d) and two classes y (n,); takes the ridge with the least loss in FOLDS parts.

        patients (n,): rows of one are in one part, or too weak a ridge would know them again.
        """
        values, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
        self.classes_ = np.unique(labels)
        self.centre_ = values.mean(axis=0)
        least = np.finfo(np.float64).eps * np.abs(values).max(axis=0)  # of rounding
        self.scale_ = self._scale(np.where(values.std(axis=0) > 4 * least, values.var(axis=0), 0))
        scaled = self._scaled(values)
        self.strength_ = STRENGTHS[0]
        with one_blas_thread():  # small products: threads would only wait for each other
            splits = self._splits(labels, patients)
            if splits:
                self.strength_ = min(STRENGTHS, key=lambda C: self._loss(C, scaled, labels, splits))
            self.regression_ = self._regression(self.strength_).fit(scaled, labels)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, 2) probabilities of the classes."""
        return np.asarray(self.regression_.predict_proba(self._scaled(np.asarray(X))))

    def predict(self, X: Any) -> np.ndarray:
        """(n,) the likelier class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _scale(self, variance: np.ndarray) -> np.ndarray:
        """(d,) what each column is divided by."""
        axes = variance[self.score_first :]
        scale = np.full(variance.size, np.sqrt(axes.mean()) if axes.any() else 1.0)
        if self.score_first:
            scale[0] = np.sqrt(variance[0] / max(axes.size, 1)) or 1.0
        return scale

    def _scaled(self, values: np.ndarray) -> np.ndarray:
        return (values - self.centre_) / self.scale_

    def _splits(self, labels: np.ndarray, patients: ArrayLike | None) -> Splits:
        """Rows to learn from and to ask, of each part; none where some part would lack a class."""
        if np.unique(labels, return_counts=True)[1].min() < FOLDS:
            return []
        whose = np.unique(
            np.arange(labels.size) if patients is None else patients, return_inverse=True
        )[1]
        if whose.max() + 1 == labels.size:
            parts = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(labels, labels)
        else:
            second = (labels == self.classes_[-1]).astype(int)
            parts = PredefinedSplit(fold_of_patients(whose, second, FOLDS, 0)).split()
        splits = list(parts)
        whole = all(np.unique(labels[learned]).size == self.classes_.size for learned, _ in splits)
        return splits if whole and len(splits) == FOLDS else []

    def _loss(self, C: float, scaled: np.ndarray, labels: np.ndarray, splits: Splits) -> float:
        told = cross_val_predict(
            self._regression(C), scaled, labels, cv=splits, method="predict_proba"
        )
        return float(log_loss(labels, told))

    @staticmethod
    def _regression(C: float) -> LogisticRegression:
        # A score much wider than the axes takes L-BFGS many steps, and Newton's method a few.
        return LogisticRegression(C=C, max_iter=1000, solver="newton-cholesky", tol=1e-6)
