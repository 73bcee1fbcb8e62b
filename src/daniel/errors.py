"""All exceptions of daniel.

::

    DanielError(Exception)
    ├── InputError(DanielError, ValueError)              the data are not what they should be
    ├── ParameterError(DanielError, ValueError)          a parameter has a value that cannot work
    ├── DivergenceError(DanielError, ArithmeticError)    a solver left the finite numbers
    ├── FormatError(DanielError, ValueError)             a file is unreadable, or of another version
    ├── ReleaseError(DanielError, PermissionError)       the gate of a site lets nothing out
    ├── NetworkError(DanielError, ConnectionError)       a network, a cluster, or a member is silent
    └── MissingDependencyError(DanielError, ImportError) an optional package is not installed

Each also is the built-in exception a reader would expect, so ``except ValueError`` keeps working.

A message says what was found, what was expected, and what to do. It may name a column, a parameter,
a shape or a file; it never holds a patient id, a row or a value of the data: logs leave hospitals.
"""

__all__ = [
    "DanielError",
    "DivergenceError",
    "FormatError",
    "InputError",
    "MissingDependencyError",
    "NetworkError",
    "ParameterError",
    "ReleaseError",
]


class DanielError(Exception):
    """Anything daniel raises on purpose. The command line shows it as one sentence."""


class InputError(DanielError, ValueError):
    """The data are not what they should be: not two-valued, missing, of another shape or codes."""


class ParameterError(DanielError, ValueError):
    """A parameter has a value that cannot work, alone or beside another one."""


class DivergenceError(DanielError, ArithmeticError):
    """A solver left the finite numbers, or its loss only grew.

    Parameters
    ----------
    message : str
        Used as it stands when given; otherwise it is written from the other two.
    eta : float, optional
        The step size that was used.
    bound : float, optional
        The largest step that eq. (eta_ineq) of the paper allows at this start.
    """

    def __init__(
        self, message: str = "", *, eta: float | None = None, bound: float | None = None
    ) -> None:
        self.eta = eta
        self.bound = bound
        super().__init__(message or _describe_divergence(eta, bound))


class FormatError(DanielError, ValueError):
    """A file cannot be read: damaged, of another kind, or written by another format version."""


class ReleaseError(DanielError, PermissionError):
    """The gate of a site lets nothing out: too few patients, no approval, or released before."""


class NetworkError(DanielError, ConnectionError):
    """The network or cluster does not answer, or an answer of a site is missing."""


class MissingDependencyError(DanielError, ImportError):
    """An optional package is not installed.

    ``MissingDependencyError.of("gensim", extra="rivals", purpose="the word2vec rival")`` writes
    the sentence, so that every such message names the same way out.
    """

    @classmethod
    def of(cls, package: str, *, extra: str, purpose: str) -> "MissingDependencyError":
        """The error for a package of one of the extras in pyproject.toml."""
        return cls(
            f"{purpose} needs the package {package!r}, which is not installed: "
            f"run pip install 'daniel[{extra}]'.",
            name=package,
        )


def _describe_divergence(eta: float | None, bound: float | None) -> str:
    step = "the chosen step size" if eta is None else f"step size eta = {eta:.3g}"
    limit = ""
    if bound is not None:
        limit = f"; eq. (eta_ineq) allows at most {bound:.3g} at this start"
        if eta is not None and eta <= bound:
            limit += ", but promises nothing far from the truth"
    return f"gradient descent diverged with {step}{limit}: use a smaller step_size."
