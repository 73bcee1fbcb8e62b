"""The contract of every source: one relation events(patient, time, vocabulary, code).

A reader (omop, meds, flat, postgres) turns a source into SQL for that relation; everything after it
knows no source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Source:
    """Events in SQL, and what is known beside them.

    events: a query for patient, time, vocabulary, code; vocabulary '' where the source has none.
    fast: whether scanning it three times is cheaper than keeping a copy.
    deaths: a query for patient, time.  names: one for vocabulary, code, description.
    parents: one for code, parent, both written as vocabulary/code.
    left_out: what -> a query for its number of rows.
    """

    kind: str
    label: str
    events: str
    fast: bool = False
    deaths: str | None = None
    names: str | None = None
    parents: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
