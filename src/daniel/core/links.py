"""How firmly to take noise off, by what it does for links that other records show.

A penalty below the noise level keeps weak components.  In some records they are relations, in
others cliques of a few records with many rare codes, and the spectrum does not tell which.  Other
records do: components of one half of the records either bring together the codes that are linked
in the other half, or they do not.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from daniel.core.coordinates import natural_coordinates
from daniel.core.noise import FIRM, LEAST, noise_level
from daniel.core.records import Records
from daniel.core.start import correlation
from daniel.core.threads import decomposing, n_threads, run_in_turn

MOST_CODES = 2_200  # of more, so many are drawn: the eigenvectors cost their number to the third
MOST_RECORDS = 400_000  # of more that are distinct, so many are drawn
MOST_LINKS = 20_000
FEWEST_LINKS = 100  # with fewer, nothing can be told
TOGETHER = 3  # records that a link is seen in, at least
SURPRISE = 4.0  # standard deviations by which they exceed chance
CHANCE = 0.3  # records, at least, that chance is taken to bring
GROUPS = 10  # of links, whose spread says how sure the difference is
MARGIN = 0.003  # area by which the firm penalty must be better, to be worth what it removes
SURE = (-4.0, -2.0)  # standard errors by which it falls short of that: surely, perhaps


def firmness(records: Records, rng: np.random.Generator) -> float:
    """0 where the firm penalty surely finds links of other records no better by MARGIN; 1 else.

    Records of one site.  Each half of them, drawn at random, is held against the links of the
    other.  Too few links to tell count as 1.
    """
    records = _some(records, rng)
    half = rng.binomial(np.round(records.weight).astype(int), 0.5).astype(float)
    parts = [replace(records, weight=half), replace(records, weight=records.weight - half)]
    if min(part.total for part in parts) < 1:
        return 1.0
    halves = zip((parts, parts[::-1]), rng.spawn(2), strict=True)
    found = np.concatenate([*run_in_turn(_gains, halves, n_threads())])
    if found.size == 0:
        return 1.0
    error = found.std(ddof=1) / np.sqrt(found.size)
    gain = found.mean() - MARGIN
    surprise = gain / error if error > 0 else np.sign(gain) * np.inf
    return float(np.interp(surprise, SURE, (0.0, 1.0)))


def _some(records: Records, rng: np.random.Generator) -> Records:
    """At most MOST_RECORDS of the records, with at most MOST_CODES of their codes."""
    if records.n > MOST_RECORDS:
        records = records.drawn(MOST_RECORDS / records.total, rng)
    if records.p <= MOST_CODES:
        return records
    kept = np.sort(rng.choice(records.p, MOST_CODES, replace=False))
    Z = sp.csr_array(records.csr(np.float32)[:, kept])
    return Records(Z.indptr, Z.indices, MOST_CODES, records.weight, records.site, records.n_sites)


def _links(records: Records, rng: np.random.Generator) -> np.ndarray:
    """(2, m) pairs of codes that meet far more often than chance brings them together."""
    Z = records.csr()
    together = sp.triu(Z.T @ (Z * records.weight[:, None]).tocsr(), 1).tocoo()
    counts = records.counts()
    expected = counts[together.row] * counts[together.col] / records.total
    surprise = (together.data - expected) / np.sqrt(np.maximum(expected, CHANCE))
    found = np.flatnonzero((together.data >= TOGETHER) & (surprise > SURPRISE))
    if found.size > MOST_LINKS:
        found = rng.choice(found, MOST_LINKS, replace=False)
    return np.array([together.row[found], together.col[found]])


def _gains(half: tuple[Sequence[Records], np.random.Generator]) -> np.ndarray:
    """(GROUPS,) by how much the firm penalty tells links better from the same codes in new pairs.

    half: records, others whose links are told, and a generator.  In areas under the ROC curve, of
    cosines of the soft-thresholded components.
    """
    (records, others), rng = half
    links = _links(others, rng)
    if links.shape[1] < FEWEST_LINKS:
        return np.zeros(0)
    counts, total = records.counts(), records.total
    coords = natural_coordinates(counts, total)
    noise = noise_level(counts, total, coords.scale, rng, draws=1)
    matrix = correlation(records, coords).astype(np.float32)
    with decomposing(records.p):
        value, vector = eigh(matrix, subset_by_value=(LEAST * noise, np.inf), overwrite_a=True)
    first, second = links[:, rng.permutation(links.shape[1])]
    other = rng.permutation(second)
    areas = []
    for penalty in (LEAST * noise, FIRM * noise):
        size = np.maximum(value - penalty, 0)
        rows = vector * np.sqrt(size / (1 + size))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        pairs = [np.einsum("ic,ic->i", rows[first], rows[end]) for end in (second, other)]
        groups = zip(*(np.array_split(scores, GROUPS) for scores in pairs), strict=True)
        areas.append([_area(linked, random) for linked, random in groups])
    return np.subtract(areas[1], areas[0])


def _area(linked: np.ndarray, random: np.ndarray) -> float:
    """Area under the ROC curve; ties count half."""
    order = np.sort(random)
    below = np.searchsorted(order, linked, "left") + np.searchsorted(order, linked, "right")
    return float(below.mean()) / (2 * order.size)
