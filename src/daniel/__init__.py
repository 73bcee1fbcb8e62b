"""daniel: federated low-rank Ising embeddings of medical codes."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

# Public name -> the module it lives in. Loaded at first use, so that `import daniel` stays light.
_HOME = {
    "CodeMatrix": "daniel.matrix",
    "Daniel": "daniel.estimator",
    "DanielError": "daniel.errors",
    "Diagnosis": "daniel.diagnosis",
    "DivergenceError": "daniel.errors",
    "FormatError": "daniel.errors",
    "InputError": "daniel.errors",
    "MissingDependencyError": "daniel.errors",
    "NetworkError": "daniel.errors",
    "ParameterError": "daniel.errors",
    "ReleaseError": "daniel.errors",
    "Study": "daniel.study",
    "diagnose": "daniel.diagnosis",
    "distributed": "daniel.cluster",
}

__version__ = version("daniel")
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'daniel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
