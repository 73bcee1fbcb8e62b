"""The paper's convex baselines as estimators: SVSoft, SVHard, SVTopd, PSDCvx.

With no sites each is centralised.  With sites, the hub starts from 5 gradient updates on its own
records, every site returns its derivative there once, and the hub descends the corrected loss.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from daniel.core import baselines, paper
from daniel.core.baselines import Spectrum
from daniel.core.records import records_from
from daniel.core.start import convex_start, signed_factor
from daniel.errors import ParameterError
from daniel.estimator import _read_hub, _read_sites
from daniel.matrix import read_records

__all__ = ["PSDCvx", "SVHard", "SVSoft", "SVTopd"]

START_STEPS = 5


class _Baseline(BaseEstimator):
    """Gradient updates of the whole Theta, each followed by one of its spectrum.

    Fitted: theta_ (p, p), embedding_ (p, p or d; eigenvectors of theta_ by the root of positive
    eigenvalues), n_iter_, converged_, n_features_in_.
    """

    step_size: float
    max_iter: int
    tol: float
    radius: float

    def fit(
        self, X: Any, y: Any = None, *, sites: ArrayLike | None = None, hub: Any = None
    ) -> Self:
        """Fit to binary records X (n, p), pooled, or distributed over sites."""
        Z, names = read_records(X)
        spectrum = self._spectrum(Z.shape[1])
        labels, site = _read_sites(sites, Z.shape[0])
        hub_index = _read_hub(hub, labels, site)
        records = records_from(Z, site=site, n_sites=len(labels))
        own = records if len(labels) == 1 else records.of_site(hub_index)
        start = correction = None
        if len(labels) > 1:
            start = convex_start(
                lambda theta: paper.symmetric_derivative(own, theta),
                own.p,
                step_size=self.step_size,
                radius=self.radius,
                steps=START_STEPS,
            )
            answers = [
                paper.Answer(paper.symmetric_derivative(part, start), part.total)
                for part in map(records.of_site, range(len(labels)))
            ]
            correction = paper.mean_derivative(answers) - answers[hub_index].W
        fitted = baselines.projected_descent(
            own,
            spectrum,
            step_size=self.step_size,
            max_iter=self.max_iter,
            tol=self.tol,
            radius=self.radius,
            start=start,
            correction=correction,
        )
        self.n_features_in_ = own.p
        if names is not None:
            self.feature_names_in_ = names
        self.theta_ = fitted.theta
        self.n_iter_, self.converged_ = fitted.n_iter, fitted.converged
        U, signs = signed_factor(self.theta_, own.p)
        self.embedding_ = U[:, (signs > 0) & np.any(U != 0, axis=0)]
        return self

    def _spectrum(self, p: int) -> Spectrum:
        raise NotImplementedError


class _Thresholded(_Baseline):
    def __init__(
        self,
        *,
        threshold: float = 1e-3,
        step_size: float = 0.1,
        max_iter: int = 50,
        tol: float = 1e-5,
        radius: float = 8.0,
    ) -> None:
        self.threshold = threshold
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.radius = radius


class SVSoft(_Thresholded):
    """Singular values lowered by `threshold` after each update (the paper's SV-Soft)."""

    def _spectrum(self, p: int) -> Spectrum:
        return baselines.soft(self.threshold)


class SVHard(_Thresholded):
    """Singular values up to `threshold` set to zero after each update (SV-Hard)."""

    def _spectrum(self, p: int) -> Spectrum:
        return baselines.hard(self.threshold)


class SVTopd(_Baseline):
    """Only the n_components largest singular values kept after each update (SV-Topd)."""

    def __init__(
        self,
        n_components: int = 5,
        *,
        step_size: float = 0.1,
        max_iter: int = 50,
        tol: float = 1e-5,
        radius: float = 8.0,
    ) -> None:
        self.n_components = n_components
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.radius = radius

    def _spectrum(self, p: int) -> Spectrum:
        if not 1 <= self.n_components <= p:
            raise ParameterError(f"n_components is {self.n_components}; expected 1 to {p}.")
        return baselines.top(self.n_components)


class PSDCvx(_Baseline):
    """Negative eigenvalues set to zero after each update (PSD-Cvx)."""

    def __init__(
        self,
        *,
        step_size: float = 0.1,
        max_iter: int = 50,
        tol: float = 1e-5,
        radius: float = 8.0,
    ) -> None:
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.radius = radius

    def _spectrum(self, p: int) -> Spectrum:
        return baselines.positive
