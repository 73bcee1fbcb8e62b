"""The paper's convex baselines as estimators: SVSoft, SVHard, SVTopd, PSDCvx.

With no sites each is centralised.  With sites, the hub starts from 5 gradient updates on its own
records, every site returns its derivative there once, and the hub descends the corrected loss.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from daniel.checks import is_real, is_whole, read_hub, read_sites, shown
from daniel.core import baselines, paper
from daniel.core.baselines import Spectrum
from daniel.core.records import records_from
from daniel.core.start import convex_start, signed_factor
from daniel.errors import ParameterError
from daniel.matrix import read_records

__all__ = ["PSDCvx", "SVHard", "SVSoft", "SVTopd"]


class _Baseline(BaseEstimator):
    """Gradient updates of the whole Theta, each followed by one of its spectrum.

    dtype: "float32" is several times faster where codes are many; Theta then stands still to about
    1e-6 of its size.

    Fitted: theta_ (p, p), embedding_ (p, number of positive eigenvalues of theta_; eigenvectors by
    their roots), n_iter_, converged_, n_features_in_, feature_names_in_.
    """

    step_size: float
    max_iter: int
    tol: float
    radius: float
    dtype: str

    def fit(
        self, X: Any, y: Any = None, *, sites: ArrayLike | None = None, hub: Any = None
    ) -> Self:
        """Fit to binary records X (n, p), pooled, or distributed over sites."""
        Z, names = read_records(X)
        self._check_parameters()
        spectrum = self._spectrum(Z.shape[1])
        labels, site = read_sites(sites, Z.shape[0])
        hub_index = read_hub(hub, labels, site)
        records = records_from(Z, site=site, n_sites=len(labels))
        own = records if len(labels) == 1 else records.of_site(hub_index)
        start: np.ndarray = np.zeros((own.p, own.p), dtype=self.dtype)
        correction = None
        if len(labels) > 1:
            start = convex_start(
                lambda theta: paper.symmetric_derivative(own, theta),
                own.p,
                step_size=self.step_size,
                radius=self.radius,
                steps=paper.START_STEPS,
                dtype=self.dtype,
            )
            answers = [
                paper.Answer(paper.symmetric_derivative(part, start), part.total)
                for part in records.by_site()
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
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_
        self.theta_ = fitted.theta
        self.n_iter_, self.converged_ = fitted.n_iter, fitted.converged
        U, signs = signed_factor(self.theta_, own.p)
        size = (U**2).sum(axis=0)
        rounding = own.p * np.finfo(U.dtype).eps  # of a rank-deficient theta's zero eigenvalues
        self.embedding_ = U[:, (signs > 0) & (size > rounding * size.max())]
        return self

    def _check_parameters(self) -> None:
        for name in ("step_size", "radius"):
            value = getattr(self, name)
            if not (is_real(value) and value > 0):
                raise ParameterError(f"{name} is {shown(value)}; expected a number > 0.")
        for name in ("threshold", "tol"):
            value = getattr(self, name, 0.0)
            if not (is_real(value) and value >= 0):
                raise ParameterError(f"{name} is {shown(value)}; expected a number >= 0.")
        if self.dtype not in ("float32", "float64"):
            found = shown(self.dtype)
            raise ParameterError(f'dtype is {found}; expected "float32" or "float64".')
        if not (is_whole(self.max_iter) and self.max_iter >= 1):
            found = shown(self.max_iter)
            raise ParameterError(f"max_iter is {found}; expected a whole number >= 1.")

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
        dtype: str = "float64",
    ) -> None:
        self.threshold = threshold
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.radius = radius
        self.dtype = dtype


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
        dtype: str = "float64",
    ) -> None:
        self.n_components = n_components
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.radius = radius
        self.dtype = dtype

    def _spectrum(self, p: int) -> Spectrum:
        if not (is_whole(self.n_components) and 1 <= self.n_components <= p):
            found = shown(self.n_components)
            raise ParameterError(f"n_components is {found}; expected a whole number from 1 to {p}.")
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
        dtype: str = "float64",
    ) -> None:
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.radius = radius
        self.dtype = dtype

    def _spectrum(self, p: int) -> Spectrum:
        return baselines.positive
