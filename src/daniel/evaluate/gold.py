"""Known pairs of codes: from a file, from the PheCode and ATC hierarchies, from the UMLS.

Every source gives the same table (`daniel.evaluate.pairs`).
"""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from daniel.data.frames import Table, frame
from daniel.errors import InputError, ParameterError
from daniel.evaluate.pairs import ENDS, Unknown, joined, read_pairs, split_known, within
from daniel.evaluate.spelling import capitals, spelling
from daniel.evaluate.umls import UMLS_RELATIONS, Coverage, umls_pairs

__all__ = [
    "UMLS_RELATIONS",
    "Coverage",
    "Unknown",
    "kin",
    "phecode_pairs",
    "read_pairs",
    "rxnorm_atc_pairs",
    "split_known",
    "umls_pairs",
]

ATC_LENGTH = {1: 1, 2: 3, 3: 4, 4: 5}  # level -> characters of the class


def phecode_pairs(
    codes: Sequence[str],
    table: Table | None = None,
    *,
    family: bool = False,
    relation: str = "PheCode similar",
) -> pd.DataFrame:
    """PheCodes that stand close in their hierarchy: a code and its parent, and siblings.

    The number tells: 290.11 is below 290.1, which is below 290.  A parent need not be among
    `codes` to make siblings.  table: PheCode definitions with a column phecode; a number that it
    lacks is no parent, and the next shorter one is.  family: all codes with one number before the
    dot, as in the reference pairs of the paper.
    """
    own = _numbers(codes, "PHECODE")
    number = {code: _phecode(text) for code, text in own.items()}
    if family:
        return within({code: [n.partition(".")[0]] for code, n in number.items()}, relation)
    known = None
    if table is not None:
        known = set(frame(table, ["phecode"])["phecode"].dropna().astype(str).map(_phecode))
    groups: dict[str, list[str]] = {}
    pairs = []
    of_number = {n: code for code, n in number.items()}
    for code, n in number.items():
        parent = next((a for a in _ancestors(n) if known is None or a in known), None)
        if parent is None:
            continue
        groups[code] = [parent]
        if parent in of_number:
            pairs.append((code, of_number[parent]))
    above = pd.DataFrame(pairs, columns=ENDS, dtype=str).assign(relation=relation)
    return joined([within(groups, relation), above])


def kin(codes: Iterable[str], target: str) -> tuple[str, ...]:
    """Ancestors and descendants of a PheCode among the codes: 290 and 290.11 of 290.1.

    A record that shows one of them all but shows the target.  Other vocabularies have none here:
    their numbers do not tell who is above whom.
    """
    number = {code: _phecode(text) for code, text in _numbers([*codes, target], "PHECODE").items()}
    own = number.pop(target, "")
    near = set(_ancestors(own))
    return tuple(code for code, n in number.items() if n in near or own in _ancestors(n))


def rxnorm_atc_pairs(
    codes: Sequence[str],
    atc: Table,
    names: Mapping[str, str] | None = None,
    *,
    level: int = 4,
    relation: str = "RxNorm similar",
) -> pd.DataFrame:
    """Drugs of one ATC class: RxNorm ingredients that share the first characters of an ATC code.

    atc: a table with a column atc_code and either code ("RXNORM:1191") or atc_name; in the latter
    case a drug is found by its name, which `names` gives (code -> name), in any letter case; names
    of fewer than two drugs can relate none, and are an error.
    level: 4 is the chemical subgroup, five characters; a drug may be in several classes.
    """
    if level not in ATC_LENGTH:
        raise ParameterError(f"level is {level!r}: expected 1, 2, 3 or 4.")
    drugs = _numbers(codes, "RXNORM")
    table = frame(atc, ["atc_code"]).dropna(subset="atc_code")
    if "code" in table:
        key = table["code"].astype(str).map(spelling(drugs))
        of_drug = {code: code for code in drugs}
    elif "atc_name" in table and names is not None:
        key = table["atc_name"].astype(str).str.lower()
        of_drug = {code: str(names[code]).lower() for code in drugs if code in names}
        if len(of_drug) < 2 <= len(drugs):
            raise InputError(
                "The ATC table gives drugs by name, and fewer than two drugs of the study have a "
                "name: give names (`--descriptions`), or a table with a column code."
            )
    else:
        raise InputError(
            "The ATC table has no column code: give it one, or give atc_name and the drugs' names."
        )
    whole = table["atc_code"].astype(str).str.len() > ATC_LENGTH[level]  # a drug, not a heading
    classes = table["atc_code"].astype(str).str[: ATC_LENGTH[level]]
    by_key = classes[whole].groupby(key[whole]).unique()
    groups = {code: list(by_key[k]) for code, k in of_drug.items() if k in by_key.index}
    return within(groups, relation)


def _numbers(codes: Sequence[str], vocabulary: str) -> dict[str, str]:
    """Code -> what stands after the colon, for the codes of a vocabulary in any spelling."""
    cut = ((code, *code.partition(":")) for code in codes)
    return {code: number for code, kind, _, number in cut if capitals(kind) == vocabulary}


def _phecode(text: str) -> str:
    """A PheCode with three digits before the dot: 8.5 is 008.5.

    No PheCode ends in a zero after the dot; a table of numbers has them, and 290.0 is 290.
    """
    whole, _, rest = text.partition(".")
    rest = rest.rstrip("0")
    return whole.zfill(3) + (f".{rest}" if rest else "")


def _ancestors(number: str) -> list[str]:
    """290.11 -> 290.1, 290."""
    whole, _, rest = number.partition(".")
    return [f"{whole}.{rest[:k]}" for k in range(len(rest) - 1, 0, -1)] + [whole] * bool(rest)
