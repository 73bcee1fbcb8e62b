"""Tables of known pairs: one row an unordered pair, code1, code2, relation.

Codes are named with their vocabulary, such as "PheCode:290.1"; code1 is the smaller of the names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from daniel.data.frames import frame
from daniel.errors import InputError
from daniel.evaluate.spelling import spelling

ENDS = ["code1", "code2"]
COLUMNS = [*ENDS, "relation"]
NAMED = 10  # unknown codes that a message names


@dataclass(frozen=True)
class Unknown:
    """Codes of known pairs that a study does not have; its text is one sentence.

    pairs: number of pairs left out; codes: the unknown codes in order; total: all pairs given;
    lost: relations that no pair is left of.
    """

    pairs: int
    codes: tuple[str, ...]
    total: int
    lost: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.codes)

    def __str__(self) -> str:
        if not self.pairs:
            return "Every known pair has both codes in the study."
        names = ", ".join(self.codes[:NAMED])
        more = f" and {len(self.codes) - NAMED:,} more" if len(self.codes) > NAMED else ""
        return (
            f"{self.pairs:,} of {self.total:,} known pairs are left out, since the study does not "
            f"have {len(self.codes):,} of their codes: {names}{more}{self._lost()}."
        )

    def _lost(self) -> str:
        return f"; no pair is left of {', '.join(self.lost)}" if self.lost else ""


def read_pairs(path: str | Path) -> pd.DataFrame:
    """Known pairs of a .tsv, .csv (both also .gz) or .parquet file with code1, code2, relation.

    Other columns are dropped, as are repeated pairs and pairs of a code with itself.
    """
    table = frame(path, COLUMNS)[COLUMNS]
    cells = table.astype(str).apply(lambda column: column.str.strip())
    if (table.isna() | cells.eq("")).any(axis=None):
        raise InputError(
            f"{Path(path).name} has rows without a code or a relation: fill them in or remove them."
        )
    pairs = tidy(*(cells[column] for column in COLUMNS))
    if pairs.empty:
        raise InputError(f"{Path(path).name} holds no pair of two different codes.")
    return pairs


def split_known(pairs: pd.DataFrame, codes: Sequence[str]) -> tuple[pd.DataFrame, Unknown]:
    """The pairs with both codes in `codes`, and what is left out.

    Vocabularies may be spelled otherwise: RXNORM:1191 finds RxNorm:1191.
    """
    ends = pairs[ENDS].map(spelling(codes))
    pairs = pairs.assign(**ends)
    inside = ends.isin(set(codes)).all(axis=1)
    return pairs[inside].reset_index(drop=True), outside(pairs, codes)


def outside(pairs: pd.DataFrame, codes: Sequence[str]) -> Unknown:
    """What has a code that is not in `codes`, spelled as there."""
    known = pairs[ENDS].isin(set(codes)).to_numpy()
    inside = known.all(axis=1)
    strange = sorted(set(map(str, pairs[ENDS].to_numpy()[~known])))
    relation = pairs["relation"].astype(str)
    left = set(relation[inside])
    lost = [name for name in relation.unique() if name not in left]
    return Unknown(int((~inside).sum()), tuple(strange), len(pairs), tuple(lost))


def tidy(one: pd.Series, two: pd.Series, relation: pd.Series | str) -> pd.DataFrame:
    """Unordered pairs, each once a relation, none of a code with itself."""
    pairs = pd.DataFrame({"code1": one, "code2": two}, dtype=str)
    turned = pairs["code1"] > pairs["code2"]
    pairs.loc[turned, ["code1", "code2"]] = pairs.loc[turned, ["code2", "code1"]].to_numpy()
    pairs["relation"] = relation
    pairs = pairs[pairs["code1"] != pairs["code2"]].drop_duplicates()
    return pairs.sort_values(["relation", "code1", "code2"], ignore_index=True)


def within(groups: Mapping[str, Iterable[str]], relation: str) -> pd.DataFrame:
    """All pairs of codes that share a group."""
    rows = [(code, group) for code, own in groups.items() for group in own]
    table = pd.DataFrame(rows, columns=["code", "group"])
    both = table.merge(table, on="group", suffixes=("1", "2"))
    return tidy(both["code1"], both["code2"], relation)


def joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    whole = pd.concat(tables, ignore_index=True)
    return tidy(whole["code1"], whole["code2"], whole["relation"])
