"""What travels between the hub and the sites."""

from dataclasses import dataclass

import numpy as np

from daniel.core.coordinates import Coordinates


@dataclass(frozen=True)
class Start:
    """What the hub sends: coordinates, Phi0 = U diag(signs) U', and its intercepts (1, p)."""

    coords: Coordinates
    U: np.ndarray
    signs: np.ndarray
    b: np.ndarray

    @property
    def V(self) -> np.ndarray:
        return self.U * self.signs.astype(self.U.dtype)


@dataclass(frozen=True)
class Answer:
    """What a site returns: derivatives at the start, number of records, records with each code."""

    G: np.ndarray
    b: np.ndarray
    n: float
    counts: np.ndarray
