"""Daniel: the scikit-learn face of both recipes."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from daniel import modelfile
from daniel.axes import simple_axes
from daniel.checks import check_choice, is_auto, is_real, is_whole, read_hub, read_sites, shown
from daniel.core import natural, paper
from daniel.core.components import principal_axes
from daniel.core.conditions import distance, stacked_norm
from daniel.core.coordinates import Coordinates, paper_coordinates, theta_from
from daniel.core.ising import conditional, sweep
from daniel.core.records import Records, records_from
from daniel.core.sample import gibbs, gibbs_factor
from daniel.errors import InputError, ParameterError
from daniel.matrix import align, codes_like, kinds, listed, read_records

CHOICES = {
    "recipe": ("natural", "paper"),
    "intercept": ("site", "shared", "tied"),
    "surrogate": ("hub", "model"),
}

SMALLEST_COUNT = 11  # fewer records than this are nowhere told exactly


class Daniel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """One low-rank Ising model of binary records, from one site or many, in one exchange.

    Parameters
    ----------
    n_components : int or "auto"
        Columns of U; "auto" takes what the spectrum holds above the penalty (natural recipe), or
        p/10 as in the paper's designs (paper recipe).  Of a number given to the natural recipe a
        third may hold negative components, which are no part of the latent patient: that many
        columns of `transform` are zero.
    recipe : {"natural", "paper"}
        "natural" standardises every code, leaves intercepts free, penalises the nuclear norm and
        damps the one-shot correction.  "paper" is Algorithm 1: ±1 records, intercepts tied to the
        diagonal, 5 start steps, fixed step, no penalty.
    penalty : float or "auto"
        Weight of the nuclear norm, in units of the gradient's operator norm (natural recipe).
        "auto" takes it from the noise level of column-permuted records.  The hub's start always
        has its own.
    intercept : {"site", "shared", "tied"}
        Natural recipe: each site's own intercepts, which it fits and keeps (the hub's stand in the
        start); one vector for all; or the paper's theta_jj = (UV')_jj.
    surrogate : {"hub", "model"}
        Natural recipe: whose curvature the hub uses, its own records' or that of synthetic records
        drawn from the start.  A hub with few records for its codes (2.5 or less each) always uses
        the latter.
    damping : float or "auto"
        Natural recipe: how strongly the one-shot fit is held to the start where the hub hardly sees
        a code, and more so, by the square of what it lacks, where others have a code more often.
    step_size : float
        The paper recipe's fixed step eta.
    max_iter, tol : int, float
        At most so many iterations.  Natural: stop when two steps each lower the objective by less
        than this share, or, in large fits of rare codes, raise the log-likelihood of all records
        by less than 1000 `tol` for each number that is fitted.  Paper: stop when Theta moves less
        than `tol` in Frobenius norm.
    random_state : int, RandomState or None
        Start noise, permutations and synthetic records.

    Attributes
    ----------
    embedding_ : (p, d)
        One row a code; the cosine of two rows says how related the codes are: by attracting the
        same codes and, within one vocabulary ("RxNorm:1191"), as substitutes that exclude each
        other.  Principal axes, largest first.
    U_, V_ : (p, d)
        Factors of the couplings: theta_ = U_ V_' off the diagonal; V_ = U_ up to signs of columns.
    axes_ : (p, k)
        The axes of `transform`, those of U_ that are positive, turned so that each gathers few
        codes (varimax) and has a meaning of its own; the largest first.
    theta_ : (p, p)
        Couplings in the paper's ±1 coordinates, intercepts on the diagonal; made when asked for.
    intercept_ : (p,)
        Log-odds of each code when all others stand at their centre.
    penalty_, rank_, n_iter_, converged_, loss_curve_, n_features_in_, feature_names_in_
        As the names say.  hub_ names the hub, sites_ the sites, of a fit with sites.

    Examples
    --------
    >>> model = Daniel(random_state=0).fit(X, sites=hospital)        # doctest: +SKIP
    >>> model.similar("PheCode:290.1")                               # doctest: +SKIP
    """

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        recipe: str = "natural",
        penalty: float | Literal["auto"] = "auto",
        intercept: str = "site",
        surrogate: str = "hub",
        damping: float | Literal["auto"] = "auto",
        step_size: float = 0.1,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.recipe = recipe
        self.penalty = penalty
        self.intercept = intercept
        self.surrogate = surrogate
        self.damping = damping
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    # --- fitting ----------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, sites: ArrayLike | None = None, hub: Any = None
    ) -> Self:
        """Fit to records X (n, p), pooled, or in one exchange between the sites.

        sites: a label per record; with it, only what the protocol sends crosses between them.  hub:
        the label of the site that minimises; the one with most records unless named.
        """
        Z, names = read_records(X)
        n, p = Z.shape
        self._check_parameters(p)
        labels, site = read_sites(sites, n)
        hub_index = read_hub(hub, labels, site)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        records = records_from(Z, site=site, n_sites=len(labels))
        by_site = records.by_site()
        self._forget()
        if self.recipe == "paper":
            self._fit_paper(by_site, hub_index)
        else:
            self._fit_natural(by_site, hub_index, kinds(names, p), rng)
        self.n_features_in_ = p
        if names is not None:
            self.feature_names_in_ = names
        if sites is not None:
            self.sites_, self.hub_ = labels, labels[hub_index]
        self._origin |= {
            "sites": len(by_site),
            "records": _guarded(records.total),
            "hub_records": _guarded(by_site[hub_index].total),
        }
        return self

    def _fit_natural(
        self, sites: Sequence[Records], hub: int, kind: np.ndarray, rng: np.random.Generator
    ) -> None:
        options = self._options()
        if len(sites) == 1:
            fitted = natural.fit(sites[0], options, rng)
        else:
            start = natural.make_start(sites[hub], options, rng)
            answers = (natural.answer(records, start, options) for records in sites)
            fitted = natural.finish(sites[hub], start, natural.mean_answer(answers), options, rng)
        self._adopt(fitted, kind)

    def _options(self) -> natural.Options:
        """The natural recipe's options that the parameters say."""
        return natural.Options(
            n_components=None if self.n_components == "auto" else int(self.n_components),
            penalty=None if self.penalty == "auto" else float(self.penalty),
            intercept=self.intercept,  # type: ignore[arg-type]
            surrogate=self.surrogate,  # type: ignore[arg-type]
            damping=None if self.damping == "auto" else float(self.damping),
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def _adopt(self, fitted: natural.Fit, kind: np.ndarray) -> None:
        """Fitted state of the natural recipe; kind (p,): the vocabulary of each code."""
        U, signs = principal_axes(fitted.U, fitted.signs)
        if self.n_components == "auto":
            kept = max(1, _rank(U))
            U, signs = U[:, :kept], signs[:kept]
        self._remember(fitted.coords, U, U * signs.astype(U.dtype), fitted.b, fitted)
        self.axes_ = self._latent_axes()
        self.penalty_ = fitted.penalty
        d = None if self.n_components == "auto" else int(self.n_components)
        related = fitted.embedding(U, signs, kind, d)
        kept = max(1, _rank(related)) if d is None else d
        self.embedding_ = np.ascontiguousarray(related[:, :kept])

    def _fit_paper(self, sites: Sequence[Records], hub: int) -> None:
        p = sites[0].p
        d = max(1, p // 10) if self.n_components == "auto" else int(self.n_components)
        start = paper.make_start(sites[hub], d, step_size=self.step_size)
        answers = [paper.answer(records, start) for records in sites]
        fitted = paper.finish(
            sites[hub],
            start,
            answers,
            step_size=self.step_size,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        coords = paper_coordinates(p)
        b = 2 * np.einsum("jc,jc->j", fitted.U, fitted.V)[None, :]
        self._remember(coords, fitted.U, fitted.V, b, fitted)
        self.axes_ = self._U
        self.penalty_ = 0.0
        self.embedding_ = self.U_

    def _remember(
        self,
        coords: Coordinates,
        U: np.ndarray,
        V: np.ndarray,
        b: np.ndarray,
        fitted: natural.Fit | paper.Fit,
    ) -> None:
        """Fitted state: factors in the recipe's own coordinates, and the public names."""
        self._coords = coords
        self._U, self._V, self._b = map(np.ascontiguousarray, (U, V, b))  # as a file holds them
        unit = (2 * coords.scale[:, None]).astype(U.dtype)  # theta = phi / (4 scale scale')
        self.U_, self.V_ = self._U / unit, self._V / unit
        self.intercept_ = b[0].copy()
        self.rank_ = _rank(U)
        solution, start = fitted.solution, fitted.start
        self.n_iter_ = solution.n_iter
        self.converged_ = solution.converged
        self.loss_curve_ = list(solution.curve)
        self._origin: dict[str, float] = {  # what daniel.diagnose asks for
            "start_distance": distance(U, V, start.U, start.V, diagonal=coords.tied),
            "start_norm": stacked_norm(start.U, start.V),
        }

    def _forget(self) -> None:
        """Back to unfitted: a fit that fails leaves no mixture of two models behind."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    # --- what a fit knows -------------------------------------------------------------------------

    @cached_property
    def theta_(self) -> np.ndarray:
        """(p, p) couplings in ±1 coordinates, intercepts on the diagonal."""
        check_is_fitted(self)
        return theta_from(self._coords, self._U, self._V, self._b[0])

    def transform(self, X: Any) -> np.ndarray:
        """(n, d) patient embeddings: ``U'x`` (paper), ``U'(z - mean)/scale`` (natural).

        The latter is E[y | x] of the latent model eq. (EHR_model), centred on the study's mean, on
        the axes of `axes_`.
        """
        Z = self._read(X)
        S = self.axes_ / self._coords.scale[:, None]
        return np.asarray(Z @ S - self._coords.center @ S, dtype=S.dtype)

    def _latent_axes(self) -> np.ndarray:
        """`axes_` of the natural recipe; a negative component is no part of the latent patient."""
        positive = (self._U == self._V).all(axis=0)  # they stand first
        if self.n_components == "auto":
            return simple_axes(self._U[:, : max(1, int(positive.sum()))])
        return simple_axes(self._U * positive)

    def conditional_proba(self, X: Any, features: Sequence[Any] | None = None) -> np.ndarray:
        """(n, len(features)) probabilities of each code given the record's other codes.

        eq. (conditional_dist); features: names or column numbers, all codes if None.  What a record
        says of the code itself is not used.
        """
        records = records_from(self._read(X), merge=False)
        columns = self._columns(features)
        return conditional(records, self._coords, self._U, self._V, self._b, columns)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean pseudo-log-likelihood of a record, minus eq. (objective); higher is better."""
        records = records_from(self._read(X))
        return -sweep(records, self._coords, self._U, self._V, self._b).loss

    def similar(self, code: Any, n: int = 10) -> Any:
        """The n codes nearest to `code` by cosine, as a table of code and similarity."""
        import pandas as pd

        check_is_fitted(self)
        if not is_whole(n) or n < 1:
            raise ParameterError(f"n is {shown(n)}: ask for at least one code.")
        (column,) = self._columns([code])
        norms = np.linalg.norm(self.embedding_, axis=1)
        unit = self.embedding_ / np.where(norms > 0, norms, 1)[:, None]
        cosine = unit @ unit[column]
        order = np.argsort(-cosine, kind="stable")
        order = order[order != column][:n]
        return pd.DataFrame({"code": self._names[order], "similarity": cosine[order]})

    def sample(self, n: int, *, sweeps: int = 200, random_state: Any = None) -> np.ndarray:
        """n new 0/1 records (n, p) from the fitted model, by the latent block Gibbs sampler."""
        check_is_fitted(self)
        if not is_whole(n) or n < 1:
            raise ParameterError(f"n is {shown(n)}: ask for at least one record.")
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        intercept = np.diag(self.theta_)
        if np.array_equal(self.U_, self.V_):
            return gibbs(self.U_, intercept, n, rng, sweeps)
        return gibbs(gibbs_factor((self.theta_ + self.theta_.T) / 2), intercept, n, rng, sweeps)

    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file: arrays, and everything else as JSON."""
        check_is_fitted(self)
        modelfile.write(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote, or that of a model folder."""
        return modelfile.read(path, cls())

    # --- reading and checking ---------------------------------------------------------------------

    @property
    def _names(self) -> np.ndarray:
        names = getattr(self, "feature_names_in_", None)
        return np.arange(self.n_features_in_) if names is None else names

    @property
    def _n_features_out(self) -> int:
        return self.axes_.shape[1]

    def _read(self, X: Any) -> sp.csr_array:
        check_is_fitted(self)
        Z, names = read_records(X)
        fitted = getattr(self, "feature_names_in_", None)
        by_name = names is not None and fitted is not None
        if not by_name and Z.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {Z.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return align(Z, names, fitted)

    def _columns(self, features: Sequence[Any] | None) -> np.ndarray:
        if features is None:
            return np.arange(self.n_features_in_)
        if isinstance(features, str) or is_whole(features):
            features = [features]
        position = {name: i for i, name in enumerate(self._names.tolist())}
        numbers = range(self.n_features_in_)
        unknown = [f for f in features if f not in position and not (is_whole(f) and f in numbers)]
        if unknown:
            raise InputError(
                f"The model has no code {listed(unknown)}; it knows {self.n_features_in_} codes, "
                f"such as {codes_like(unknown[0], [str(name) for name in position])}."
            )
        return np.array([position[f] if f in position else int(f) for f in features], dtype=int)

    def _check_parameters(self, p: int) -> None:
        for name, allowed in CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        d: Any = self.n_components
        if not is_auto(d):
            if not is_whole(d) or d < 1:
                raise ParameterError(
                    f'n_components is {shown(d)}; expected "auto" or a whole number >= 1.'
                )
            if d > p:
                raise ParameterError(
                    f"n_components is {d}, but X has only {p} codes; use at most {p}."
                )
        for name in ("penalty", "damping"):
            value = getattr(self, name)
            if not is_auto(value) and not (is_real(value) and value >= 0):
                raise ParameterError(f'{name} is {shown(value)}; expected "auto" or a number >= 0.')
        if not (is_real(self.step_size) and self.step_size > 0):
            raise ParameterError(f"step_size is {shown(self.step_size)}; expected a number > 0.")
        if not (is_whole(self.max_iter) and self.max_iter >= 1):
            found = shown(self.max_iter)
            raise ParameterError(f"max_iter is {found}; expected a whole number >= 1.")
        if not (is_real(self.tol) and self.tol >= 0):
            raise ParameterError(f"tol is {shown(self.tol)}; expected a number >= 0.")


def _rank(U: np.ndarray) -> int:
    return int(np.any(U != 0, axis=0).sum())


def _guarded(count: float) -> int:
    """A number of records to keep with a model, which travels: the small ones are not told."""
    return max(round(count), SMALLEST_COUNT - 1)
