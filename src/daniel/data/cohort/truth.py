"""What is true in a synthetic study: how common codes are, and how they depend on each other.

Every family of diagnoses is a condition, one latent axis.  Up to three of its codes are its core:
they have the largest loadings and tend to come together.  The others of the family, a class of
drugs, some procedures and some diagnoses of other families hang on the core more loosely, each
with its own chance when the core is present.  A share of these listed links is empty: what a
reference calls related does not always show in records.

Dementia has signs besides: rather common codes that become more frequent after onset, whatever the
couplings say, as falls or a feeding tube would.  They are what tells its records where the code
itself is hidden.

Loadings are positive, so strong ones could make a whole axis jump between all codes and none.  Each
axis is weakened until the chain of law.py crosses from one side to the other within a few steps.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import logit, ndtri

from daniel.data.cohort.codes import CCS, PHECODE, RXNORM, CodeBook, make_codebook
from daniel.data.cohort.law import Couplings, axis_intercepts, barrier


@dataclass(frozen=True)
class PrevalenceLaw:
    """Log rate of the most common codes of a vocabulary, and how hospitals differ.

    With z the normal quantile at ``1 - share (1 - u)`` the u-quantile is
    ``center + slope z + bend z²``; share is that of all codes which the study keeps.  A hospital's
    log rates differ from it by normal deviations of size spread.
    """

    share: float
    center: float
    slope: float
    bend: float
    spread: float

    def quantiles(self, k: int) -> np.ndarray:
        """Log rates of k codes, evenly spread over the law."""
        z = ndtri(1 - self.share * (1 - (np.arange(k) + 0.5) / k))
        rates: np.ndarray = self.center + self.slope * z + self.bend * z**2
        return rates


# Fitted to the code counts of two health systems by `python -m benchmarks.prevalences`.
LAWS = {
    PHECODE: PrevalenceLaw(0.7157, -10.292, 2.007, -0.060, 0.76),
    CCS: PrevalenceLaw(0.7172, -10.406, 2.407, 0.228, 0.67),
    RXNORM: PrevalenceLaw(0.2824, -14.348, 5.333, -0.803, 1.02),
}
SIBLINGS = 0.6  # spread of a group's codes, where groups have spread 1
MOST_COMMON = 0.7  # no code stands in a larger share of records
CORE = 3  # most codes in the core of a condition
TOGETHER = (0.2, 0.6)  # share of a core code's records that hold the whole core
ALONE = 4.0  # squared loading of a core of one code
IN_FAMILY = (0.08, 0.45)  # chance of another code of the family when the core is present
LINKED = (0.05, 0.3)  # the same for drugs, procedures and other diagnoses
EMPTY = 0.15  # share of listed links without a coupling
LEAST = 1.0  # a complete core lifts the log-odds of a code by at least this
GUESTS = 1.0  # diagnoses from other families in a condition
SECOND_USE = 0.2  # drugs and procedures of another condition in a condition
SIGNS = (28, 0.07)  # codes that are signs of dementia: at most so many, and this share of all
SIGNS_RANK = (0.5, 0.9)  # of how common they are in their vocabulary
SIGN = (0.08, 0.32)  # chance of a sign after onset
EVERYDAY = 0.15  # share of codes that intensive care makes more common
CONDITIONS_IN_CARE = 0.2  # growth of the others, as a power of that of the codes in a record
SPREAD = (0.5, 1.0, 2.0)  # axes are checked at so many times the prevalence
DEEPEST = 1.0  # deepest barrier of an axis
KEEP = {PHECODE: (0.2, 0.7), CCS: (0.0, 0.2), RXNORM: (0.4, 0.8)}  # chance to last a window
TRUTH, HOSPITAL, DEMENTIA_SIGNS = 0, 1, 5  # streams of random numbers


@dataclass(frozen=True)
class Truth:
    """Codes and couplings of a study; hospitals differ from each other only in intercepts.

    couplings: W (p, d).  listed (p, d): codes of each condition, also those whose link is empty.
    log_rate (p,): how common codes are, up to a constant; everyday (p,): the most common ones.
    keep (p,): chance of a code to stay as it is from one window to the next.  frailty (d,):
    direction of the risk of admission.  lift (p,): what the onset of dementia adds to intercepts.
    """

    book: CodeBook
    couplings: Couplings
    listed: np.ndarray
    log_rate: np.ndarray
    everyday: np.ndarray
    keep: np.ndarray
    frailty: np.ndarray
    lift: np.ndarray
    seed: int

    def hospital_rates(self, hospital: int) -> np.ndarray:
        """(p,) log rates of a hospital, the same whatever hospitals stand beside it."""
        rng = np.random.default_rng([self.seed, HOSPITAL, hospital])
        spread = np.array([LAWS[v].spread for v in self.book.vocabulary])
        rates: np.ndarray = self.log_rate + spread * rng.standard_normal(spread.size)
        return rates


def make_truth(
    n_phecode: int, n_ccs: int, n_rxnorm: int, codes_per_record: float, seed: int
) -> Truth:
    """Draw a truth; it depends on the codes, on their mean number in a record, and on the seed."""
    rng = np.random.default_rng([seed, TRUTH])
    book = make_codebook(n_phecode, n_ccs, n_rxnorm, rng)
    log_rate = _log_rates(book, rng)
    mu = prevalences(log_rate, codes_per_record)
    core = _cores(book, rng)
    listed = _list_links(book, core, rng)
    W = np.zeros(listed.shape)
    for k in range(listed.shape[1]):
        codes = np.flatnonzero(listed[:, k])
        family = book.group[codes] == k
        w = _loadings(mu[codes], family, core[codes] & family, rng)
        W[codes, k] = _tame(w, mu[codes])
    everyday = log_rate > np.quantile(log_rate, 1 - EVERYDAY)
    couplings = Couplings(sp.csr_array(W.astype(np.float32)))
    variance = np.array([_variance(w[w > 0], mu[w > 0]) - 1 for w in couplings.W.toarray().T])
    keep = np.empty(len(book.names))
    for name, (low, high) in KEEP.items():
        here = book.vocabulary == name
        keep[here] = rng.uniform(low, high, here.sum())
    frailty = variance / np.linalg.norm(variance)
    lift = _lifts_of_signs(book, log_rate, mu, np.random.default_rng([seed, DEMENTIA_SIGNS]))
    return Truth(book, couplings, listed, log_rate, everyday, keep, frailty, lift, seed)


def prevalences(log_rate: np.ndarray, codes_per_record: float) -> np.ndarray:
    """Prevalences 1 - exp(-rate), at most MOST_COMMON, that sum to codes_per_record."""
    low, high = -log_rate.max() - 50, -log_rate.min() + 50
    for _ in range(80):
        middle = (low + high) / 2
        mu = np.minimum(-np.expm1(-np.exp(np.minimum(log_rate + middle, 5))), MOST_COMMON)
        low, high = (middle, high) if mu.sum() < codes_per_record else (low, middle)
    return np.maximum(mu, 1e-7)


def in_care(mu: np.ndarray, everyday: np.ndarray, factor: float) -> np.ndarray:
    """Prevalences in care of another intensity: `factor` times as many codes in a record.

    Conditions are hardly more common there: what differs is the everyday codes.
    """
    rare = mu * factor**CONDITIONS_IN_CARE
    left = mu.sum() * factor - rare[~everyday].sum()
    rates = np.log(-np.log1p(-mu[everyday]))
    out: np.ndarray = rare
    out[everyday] = prevalences(rates, max(left, 0.05 * mu.sum() * factor))
    return out


def known_pairs(truth: Truth) -> pd.DataFrame:
    """Planted relations: code1, code2, relation, and the coupling θ_jk behind each.

    Similar: one family of diagnoses, or one class of drugs.  Related: a diagnosis of the family of
    a condition, and another code that is listed for it.
    """
    book, U = truth.book, truth.couplings.U
    pairs = {name: _similar(book, v) for name, v in _SIMILAR.items()}
    pairs |= {name: _related(truth, v) for name, v in _RELATED.items()}
    tables = []
    for relation, found in pairs.items():
        i, j = np.unique(np.sort(found, axis=1), axis=0).T
        table = pd.DataFrame({"code1": i, "code2": j, "relation": relation})
        tables.append(table.assign(coupling=np.einsum("kd,kd->k", U[i], U[j]).round(5)))
    names = np.array(book.names)
    table = pd.concat(tables, ignore_index=True).drop_duplicates(["code1", "code2"])
    return table.assign(code1=names[table["code1"]], code2=names[table["code2"]])


_SIMILAR = {"PheCode similar": PHECODE, "RxNorm similar": RXNORM}
_RELATED = {"PheCode-PheCode": PHECODE, "PheCode-RxNorm": RXNORM, "PheCode-CCS": CCS}


def _similar(book: CodeBook, vocabulary: str) -> np.ndarray:
    """(m, 2) columns of codes of one group."""
    here = book.vocabulary == vocabulary
    same = (book.group[:, None] == book.group) & here[:, None]
    return np.argwhere(np.triu(same, 1))


def _related(truth: Truth, vocabulary: str) -> np.ndarray:
    """(m, 2) columns: a code of the family of a condition, and one listed from outside."""
    book = truth.book
    found = []
    for k in range(truth.listed.shape[1]):
        codes = np.flatnonzero(truth.listed[:, k])
        inside = book.group[codes] == k
        others = codes[~inside & (book.vocabulary[codes] == vocabulary)]
        grid = np.meshgrid(codes[inside], others, indexing="ij")
        found.append(np.stack(grid, axis=-1).reshape(-1, 2))
    return np.concatenate(found)


def _log_rates(book: CodeBook, rng: np.random.Generator) -> np.ndarray:
    """The laws' quantiles in random order, but dementia and its family among the common ones."""
    rates = np.empty(len(book.names))
    key = rng.standard_normal(book.group.max() + 1)[book.group]
    key += SIBLINGS * rng.standard_normal(key.size)
    for name, law in LAWS.items():
        here = np.flatnonzero(book.vocabulary == name)
        rates[here[np.argsort(key[here])]] = np.sort(law.quantiles(here.size))
    order = np.argsort(rates[book.vocabulary == PHECODE])  # diagnoses are the first columns
    family = book.members(0)
    ranks = np.linspace(0.7, 0.9, family.size)
    ranks[family == book.dementia] = 0.95
    for code, rank in zip(family, ranks, strict=True):
        other = order[int(rank * order.size)]
        rates[[code, other]] = rates[[other, code]]
        order = np.argsort(rates[book.vocabulary == PHECODE])
    return rates


def _cores(book: CodeBook, rng: np.random.Generator) -> np.ndarray:
    """(p,) whether a code is in the core of its family; dementia is."""
    core = np.zeros(len(book.names), dtype=bool)
    for k in range(book.n_families):
        core[rng.permutation(book.members(k))[:CORE]] = True
    core[book.dementia] = True
    return core


def _list_links(book: CodeBook, core: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(p, d): the codes of each condition.

    Few codes belong to two conditions, and none by the core: conditions that hold each other up
    would come all together or not at all.
    """
    d = book.n_families
    listed = book.group[:, None] == np.arange(d)
    free = rng.permutation(np.flatnonzero((book.vocabulary == PHECODE) & ~core))
    guests = free[: min(free.size, round(GUESTS * d))]
    listed[guests, _spread(guests.size, d, rng)] = True
    procedures = np.flatnonzero(book.vocabulary == CCS)
    listed[procedures, _spread(procedures.size, d, rng)] = True
    classes = np.unique(book.group[book.vocabulary == RXNORM])
    for group, condition in zip(classes, _spread(classes.size, d, rng), strict=True):
        listed[book.members(group), condition] = True
    shared = rng.permutation(np.flatnonzero(book.vocabulary != PHECODE))[: round(SECOND_USE * d)]
    listed[shared, _spread(shared.size, d, rng)] = True
    return listed


def _lifts_of_signs(
    book: CodeBook, log_rate: np.ndarray, mu: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(p,) log-odds that onset adds: to the signs what brings each to its chance, else 0."""
    most, share = SIGNS
    rank = np.empty(mu.size)
    for name in LAWS:
        here = np.flatnonzero(book.vocabulary == name)
        rank[here[np.argsort(log_rate[here])]] = (np.arange(here.size) + 0.5) / here.size
    free = np.flatnonzero((rank > SIGNS_RANK[0]) & (rank < SIGNS_RANK[1]) & (book.group != 0))
    signs = rng.permutation(free)[: min(most, round(share * mu.size))]
    lift = np.zeros(mu.size)
    lift[signs] = np.maximum(logit(_log_uniform(SIGN, signs.size, rng)) - logit(mu[signs]), LEAST)
    return lift


def _spread(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """n of d conditions, none used again before all were."""
    rounds = [rng.permutation(d) for _ in range(-(-n // d))]
    return np.concatenate(rounds)[:n]


def _loadings(
    mu: np.ndarray, family: np.ndarray, core: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Loadings of the codes of one condition, before it is tamed.

    A core of k codes of mean log-odds -L, in which every pair has coupling a, is complete in about
    a share f of a code's records if ``a k(k-1)/2 = k (L - log(1-f)) - L + log f``.  Another code,
    of log-odds -L_j, gets the loading at which a complete core lifts it to its chance.
    """
    L = -logit(np.minimum(mu, 0.3))
    w = np.zeros(mu.size)
    f = rng.uniform(*TOGETHER)
    k, mean = core.sum(), L[core].mean()
    pairs = k * (k - 1) / 2
    a = (k * (mean - np.log1p(-f)) - mean + np.log(f)) / pairs if k > 1 else ALONE
    w[core] = np.sqrt(max(a, 0.2) * L[core] / mean)
    inside, outside = (_log_uniform(ends, mu.size, rng) for ends in (IN_FAMILY, LINKED))
    chance = np.where(family, inside, outside)
    lifted = np.maximum(logit(chance) + L, LEAST) / w[core].sum()
    lifted *= family | (rng.random(mu.size) >= EMPTY)
    return np.where(core, w, lifted)


def _log_uniform(ends: tuple[float, float], n: int, rng: np.random.Generator) -> np.ndarray:
    low, high = np.log(ends)
    return np.exp(rng.uniform(low, high, n))


def _tame(w: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """Weaken an axis until its barrier is low, also where its codes are rarer or more common."""
    used = w > 0
    for _ in range(40):
        depths = [
            barrier(axis_intercepts(w[used], np.minimum(mu[used] * m, MOST_COMMON))[2])
            for m in SPREAD
        ]
        if max(depths) <= DEEPEST:
            break
        w = w * 0.97
    return w


def _variance(w: np.ndarray, mu: np.ndarray) -> float:
    """Variance of the latent axis at the prevalences mu; 1 is that of an axis without codes."""
    _, y, density = axis_intercepts(w, mu)
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    return float(weight @ y**2 - (weight @ y) ** 2)
