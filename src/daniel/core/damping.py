"""What holds a one-shot fit where the hub's own loss is flat: anchors of the surrogate.

by_coverage    pairs and codes that the hub lacks are held to the start
to_spectrum    after a start from independence all is held to what the answers ask for
"""

import numpy as np
import numpy.typing as npt

from daniel.core.components import Components
from daniel.core.coordinates import smoothed_mean
from daniel.core.exchange import Answer, Start
from daniel.core.noise import expected_together
from daniel.core.records import Records
from daniel.core.spectrum import Spectrum
from daniel.core.surrogate import Anchor

DAMPING = 4.0
LACKING = 3.0  # times the damping of pairs: that of codes whose variance the hub lacks
STEEP = 64  # directions of the study's records along which those are held more
SEEN_TOGETHER = 200.0  # chance brings a pair together once at the hub: damped by 1/(1 + this)
AT_INDEPENDENCE = 4.0  # at couplings of 1 and more, after a start from independence


def weights(damping: float | None, share: float) -> tuple[float, float]:
    """Of pairs that the hub lacks, and of codes; share: of all records that are the hub's."""
    if damping is not None:
        return damping, damping * LACKING
    return DAMPING * (1 - share), DAMPING * LACKING if share < 1 else 0.0


def by_coverage(
    weights: tuple[float, float],
    reference: Records,
    mean: Answer,
    start: Start,
    steep: np.ndarray | None,
) -> list[Anchor]:
    """Where the reference hardly sees a pair of codes its loss is flat, and the linear correction
    would run away.

    So it would for a code that is much rarer at the reference than in the study: its loss curves as
    its variance, and what share of that the reference lacks, the damping replaces, along `steep`
    (k, p) more than elsewhere.  Squared, small shares count little: they are chance.
    """
    if not any(weights):
        return []
    pairs, codes = weights
    together = 1 / (1 + SEEN_TOGETHER * expected_together(reference.counts(), reference.total))
    here = smoothed_mean(reference.counts(), reference.total)
    there = smoothed_mean(mean.counts, mean.n)
    lacking = np.maximum(0, 1 - here * (1 - here) / (there * (1 - there))) ** 2
    return [
        Anchor(start.U, start.V, weight.astype(start.U.dtype), L)
        for weight, L in ((pairs * together.mean(axis=1), None), (codes * lacking, steep))
    ]


def steep(seen: Spectrum, noise: float) -> np.ndarray:
    """L (k, p): near independence the loss curves as I + L'L, correlations above their noise."""
    value, vector = seen.ends(STEEP, "LA")
    L: np.ndarray = np.sqrt(np.maximum(value - noise, 0))[:, None] * vector.T
    return L


def to_spectrum(first: Components, strength: float, dtype: npt.DTypeLike) -> Anchor:
    """After a start from independence: held to the spectral solution of all sites' records.

    Far from independence the reference's curvature says nothing, and its loss can fall without end;
    what it gets wrong is of second order in the strength of the couplings.
    """
    weight: np.ndarray = np.full(len(first.U), AT_INDEPENDENCE * min(1.0, strength**2), dtype)
    return Anchor(first.U, first.U * first.signs.astype(dtype), weight)
