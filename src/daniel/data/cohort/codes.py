"""The synthetic vocabulary: PheCode-like families, procedures, and drugs in classes.

Names come from the structure alone.  Drug numbers lie above every number that RxNorm has given out,
and ATC has no group Z, so that only diagnoses and procedures look like real ones.
"""

from dataclasses import dataclass

import numpy as np

from daniel.errors import ParameterError

PHECODE, CCS, RXNORM = "PheCode", "CCS", "RXNORM"
DEMENTIA = "PheCode:290.1"
DEMENTIA_FAMILY = 290
FAMILY_SIZE, CLASS_SIZE = 6, 7  # means
FIRST_FAMILY, LAST_FAMILY = 8, 999
FIRST_DRUG = 9_000_001
FEWEST, MOST = 40, 5_000
LARGEST_GROUP = 10


@dataclass(frozen=True)
class CodeBook:
    """The codes of a study.

    names: p of them, "PheCode:290.1", "CCS:12", "RXNORM:9000007"; vocabulary (p,).
    group (p,): family of a diagnosis (numbers 0 to n_families - 1), class of a drug; a procedure
    has a group of its own.  parents: the code or class above, or "".
    """

    names: tuple[str, ...]
    vocabulary: np.ndarray
    group: np.ndarray
    parents: tuple[str, ...]
    descriptions: tuple[str, ...]
    n_families: int

    @property
    def dementia(self) -> int:
        """Column of PheCode:290.1."""
        return self.names.index(DEMENTIA)

    def members(self, group: int) -> np.ndarray:
        """Columns of a group."""
        return np.flatnonzero(self.group == group)


def check_numbers(n_phecode: int, n_ccs: int, n_rxnorm: int) -> None:
    """Refuse numbers of codes that cannot be named, or that leave a vocabulary out."""
    total = n_phecode + n_ccs + n_rxnorm
    if not FEWEST <= total <= MOST or min(n_phecode, n_ccs, n_rxnorm) < 2:
        raise ParameterError(
            f"The cohort was asked for {total:,} codes: give it {FEWEST} to {MOST:,}, "
            "and at least two of each vocabulary."
        )


def make_codebook(n_phecode: int, n_ccs: int, n_rxnorm: int, rng: np.random.Generator) -> CodeBook:
    """Families, procedures and classes of random sizes; family 0 is 290, which holds dementia."""
    families = group_sizes(n_phecode, FAMILY_SIZE, rng)
    classes = group_sizes(n_rxnorm, CLASS_SIZE, rng)
    rows = [
        *_diagnoses(families, rng),
        *((f"{CCS}:{k + 1}", "", f"procedure {k + 1}") for k in range(n_ccs)),
        *_drugs(classes),
    ]
    names, parents, descriptions = zip(*rows, strict=True)
    sizes = [*families, *[1] * n_ccs, *classes]
    return CodeBook(
        names,
        np.repeat([PHECODE, CCS, RXNORM], [n_phecode, n_ccs, n_rxnorm]),
        np.repeat(np.arange(len(sizes)), sizes),
        parents,
        descriptions,
        len(families),
    )


def group_sizes(n: int, mean: int, rng: np.random.Generator) -> list[int]:
    """Sizes from 2 on with a long tail and about this mean, that sum to n; the last may be 1."""
    sizes: list[int] = []
    while (left := n - sum(sizes)) > 0:
        drawn = min(2 + rng.poisson(rng.exponential(mean - 2)), LARGEST_GROUP)
        sizes.append(int(min(max(drawn, 4) if not sizes else drawn, left)))
    return sizes


def _diagnoses(families: list[int], rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """(name, parent, description): N, N.1, N.11, N.12, N.13, N.2, N.21, ... of each family N."""
    numbers = np.setdiff1d(np.arange(FIRST_FAMILY, LAST_FAMILY + 1), DEMENTIA_FAMILY)
    chosen = np.sort(rng.choice(numbers, len(families) - 1, replace=False))
    rows = []
    for number, size in zip([DEMENTIA_FAMILY, *chosen], families, strict=True):
        for suffix in _suffixes(size):
            name = f"{PHECODE}:{number}{suffix}"
            above = "" if not suffix else name[:-1].rstrip(".")
            what = "dementia" if name == DEMENTIA else f"condition {number}"
            rows.append((name, above, what if not suffix else f"{what}, form {suffix}"))
    return rows


def _suffixes(size: int) -> list[str]:
    below = [s for k in range(1, 10) for s in (f".{k}", f".{k}1", f".{k}2", f".{k}3")]
    return ["", *below][:size]


def _drugs(classes: list[int]) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for number, size in enumerate(classes):
        for k in range(size):
            name = f"{RXNORM}:{FIRST_DRUG + len(rows)}"
            rows.append((name, f"ATC:Z{number:02d}", f"drug {k + 1} of class Z{number:02d}"))
    return rows
