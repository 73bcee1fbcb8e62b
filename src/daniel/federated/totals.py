"""From the answers of all sites to one: sums, and for each pair of codes whose records count."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from scipy.special import gammaincc  # of a Poisson number: the probability of fewer

from daniel.core import natural
from daniel.core.natural import ROWS
from daniel.core.sketch import rebuilt
from daniel.core.spectrum import WHOLE
from daniel.federated import masks
from daniel.federated.messages import VECTORS, Message, derivative_name
from daniel.federated.sums import Sums, symmetric

CHANCE = 0.01  # absence that is less likely than this means "not recorded here"


@dataclass(frozen=True)
class Site:
    """What is known of one site beside the sums: about how many records, and which codes lack."""

    records: float
    absent: np.ndarray  # (p,) bool


def of_message(message: Message) -> Site:
    return Site(float(message.manifest.records), message.arrays["absent"].astype(bool))


def add_up(answers: Iterable[Message], p: int) -> Sums:
    """The sum of all answers, which may come one by one.

    Masked ones are added modulo 2^64, where their masks cancel.
    """
    answers = iter(answers)
    first = next(answers)
    if first.manifest.release != "masked":
        return sum_of(map(open_sums, chain([first], answers)))
    words = first.arrays["masked"].copy()
    del first  # its numbers may go
    for answer in answers:
        words += answer.arrays["masked"]
    return Sums.of_vector(masks.decode(words), p)


def open_sums(answer: Message) -> Sums:
    names = (derivative_name(answer.manifest), *VECTORS, "totals")
    return Sums(*(answer.arrays[name].ravel() for name in names))


def sum_of(parts: Iterable[Sums]) -> Sums:
    """The sum over sites in float64; they may come one by one."""
    sums: dict[str, np.ndarray] = {}
    for part in parts:
        for name in ("derivative", *VECTORS, "totals"):
            values = getattr(part, name)
            if name in sums:
                sums[name] += values
            else:
                sums[name] = np.array(values, dtype=np.float64)
    return Sums(**sums)


def presence(sites: Sequence[Site], counts: np.ndarray, floor: int = 1) -> np.ndarray:
    """(m, p) 1 where a site's records count for a code, 0 where the site does not record it.

    A site without a rare code may have missed it by chance, or left it out below its `floor`: its
    zeros are data.  Absence means that the site lacks the code only where the prevalence among all
    sites would bring fewer than `floor` records with a probability below CHANCE; a pair then counts
    at the sites that have both codes.
    """
    absent = np.array([site.absent for site in sites])
    records = np.array([site.records for site in sites])
    expected = np.outer(records, counts / max(records.sum(), 1))
    return np.where(absent & (gammaincc(floor, expected) < CHANCE), 0.0, 1.0)


def mean_answer(
    sums: Sums,
    sites: Sequence[Site],
    scale: np.ndarray,
    kept: np.ndarray,
    floor: int = 1,
    *,
    directions: np.ndarray | None = None,
    tied: bool = False,
) -> natural.Answer:
    """The answer that all records together would give, for the codes `kept`.

    Entry by entry over the sites that have both codes: ``G_jk = S_jk / (n_jk sigma_j sigma_k)``,
    n_jk the records of those sites.  The exact n is that of the sum; the sites' rounded numbers of
    records only tell which share of it counts.  Counts are scaled up to all n records.  floor: that
    of an open study, below which sites leave codes out; 1 in a masked one.  directions (p, k): of
    sketches, of which S holds what they tell; tied: whether the diagonal is that of b.
    """
    n = float(sums.totals[0])
    records = np.array([site.records for site in sites])
    counts = np.clip(sums.counts, 0, n)
    P = presence(sites, counts, floor)[:, kept]
    G = _scaled(sums, scale, directions, tied)
    if kept.size < scale.size:
        G = G[np.ix_(kept, kept)]
    G /= n
    of_code = np.ones(kept.size)
    if not P.all():
        weighted = P.T * (records / records.sum())
        of_code = (weighted * P.T).sum(axis=1)
        of_code[of_code == 0] = 1
        for first in range(0, kept.size, ROWS):
            rows = slice(first, first + ROWS)
            both = weighted[rows] @ P
            G[rows] /= np.where(both > 0, both, 1)
    b = sums.b[kept] / (n * of_code)
    scaled = np.minimum(counts[kept] / of_code, n)
    return natural.Answer(G.astype(np.float32, copy=False), b[None, :], n, scaled)


def _scaled(sums: Sums, scale: np.ndarray, directions: np.ndarray | None, tied: bool) -> np.ndarray:
    """(p, p) S_jk / (sigma_j sigma_k); in single precision where it is large."""
    p = scale.size
    dtype = np.float64 if p <= WHOLE else np.float32
    if directions is None:
        S = symmetric(sums.derivative, p, dtype)
        for first in range(0, p, ROWS):
            rows = slice(first, first + ROWS)
            S[rows] /= np.outer(scale[rows], scale)
        return S
    S = rebuilt(sums.derivative.reshape(p, -1) / scale[:, None], directions, dtype)
    np.fill_diagonal(S, sums.b / (2 * scale**2) if tied else 0)
    return S
