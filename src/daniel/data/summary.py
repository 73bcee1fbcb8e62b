"""The summary of a site folder, for people: it may be mailed, so small counts are not in it.

Counts of events, records and patients from 1 to 10 appear as "<11", larger ones are rounded down to
tens, so that no small count follows from a difference.  The exact counts stand in site.json.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daniel.matrix import listed
from daniel.study import Study

if TYPE_CHECKING:
    from daniel.data.maps import MapReport

FLOOR = 11
ROWS = 30  # of the table of vocabularies


@dataclass
class Facts:
    """What was found and what became of it; exact, so it stays at the site."""

    source: str = ""
    label: str = ""
    events: dict[str, int] = field(default_factory=dict)
    coverage: list[dict[str, Any]] = field(default_factory=list)
    maps: list["MapReport"] = field(default_factory=list)
    unmapped: list[tuple[str, str, int]] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    patients_seen: int = 0
    patients: int = 0
    records: int = 0
    cells: int = 0


def shown(n: int) -> str:
    """A count that may leave: 0, <11, 11-19, or rounded down to tens."""
    if n < FLOOR:
        return f"<{FLOOR}" if n else "0"
    return f"{n // 10 * 10:,}" if n >= 20 else f"{FLOOR}-19"


def render(facts: Facts, study: Study, site: str) -> str:
    """The summary as text."""
    window = f"{study.window.months} months, from " + (
        "the patient's first event" if study.window.start == "patient" else "the calendar"
    )
    parts = [
        f"Site {site} of the study {study.name!r}",
        "Counts are rounded down to tens; 1 to 10 appear as <11.",
        "",
        _lines(
            {
                "study hash": study.hash,
                "source": f"{facts.source}, {facts.label}",
                "windows": window,
                "records": shown(facts.records),
                "patients with a record": shown(facts.patients),
                "patients with an event": shown(facts.patients_seen),
                "codes per record": _average(facts),
            }
        ),
        "Events",
        _lines({what: shown(n) for what, n in facts.events.items()}),
        "Codes",
        _lines(_codes(facts, study)),
        "Coverage, in events",
        _coverage(facts),
        *_maps(facts),
        *_unmapped(facts),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _average(facts: Facts) -> str:
    return (
        f"{facts.cells / facts.records:.1f} on average" if facts.records >= FLOOR else "not shown"
    )


def nothing_left(facts: Facts, study: Study) -> str:
    """Why there is no record: one sentence."""
    codes = (
        f"the study's list of {len(study.codes.names)} codes"
        if study.has_list
        else f"codes of at least {study.codes.minimum_patients} patients"
    )
    vocabularies = listed([row["vocabulary"] or "(none)" for row in facts.coverage]) or "nothing"
    undated = ", ".join(
        f"{shown(facts.events[why])} {why}" for why in ("without a date", "with an unreadable date")
    )
    return (
        f"No record is left of {shown(facts.events['read'])} events ({undated}): the study keeps "
        f"{codes}, and the source has codes of {vocabularies}. Check vocabularies, maps and "
        "thresholds."
    )


def _codes(facts: Facts, study: Study) -> dict[str, str]:
    """Numbers of codes, not of patients: exact."""
    out = {"kept": f"{facts.codes['kept']:,}"}
    if study.has_list:
        out["in the study, absent here"] = f"{facts.codes['absent']:,}"
    else:
        least = study.codes.minimum_patients
        out[f"dropped, fewer than {least} patients"] = f"{facts.codes['of too few patients']:,}"
    out["outside the study"] = f"{facts.codes['outside the study']:,}"
    return out


def _coverage(facts: Facts) -> str:
    heads = ["vocabulary", "events", "kept", "unmapped", "outside", "codes"]
    rows = [heads]
    for row in sorted(facts.coverage, key=lambda row: -row["events"])[:ROWS]:
        counts = [shown(row[c]) for c in ("events", "kept", "unmapped", "outside")]
        rows.append([row["vocabulary"] or "(none)", *counts, f"{row['codes']:,}"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = [
        "  ".join(
            [r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))]
        )
        for r in rows
    ]
    if len(facts.coverage) > ROWS:
        lines.append(f"and {len(facts.coverage) - ROWS} more vocabularies")
    lines.append(
        "kept: has a code of the study. unmapped: a map has no target. outside: any other, such as "
        "codes of too few patients."
    )
    return "\n".join(f"  {line}" for line in lines) + "\n"


def _maps(facts: Facts) -> list[str]:
    out = ["Maps"] if facts.maps else []
    for report in facts.maps:
        rule = "all are kept" if report.many == "all" else "the first in alphabetical order is kept"
        repaired = ", ".join(f"{n:,} by {way}" for way, n in report.repaired.items()) or "none"
        out.append(
            _lines(
                {
                    "file": f"{report.file}, to {report.target}",
                    "hash": report.sha256,
                    "codes in it": f"{report.codes:,}",
                    "with several targets": f"{report.several:,}; {rule}",
                    "codes found": f"{report.found:,}, {report.found_several:,} to several targets",
                    "found after repair": repaired,
                    "ambiguous": f"{report.ambiguous:,}, left unmapped",
                }
            )
        )
    return out


def _unmapped(facts: Facts) -> list[str]:
    """The most frequent codes without a target, unless few patients have them."""
    rows = {f"{v}:{code}": shown(n) for v, code, n in facts.unmapped if n >= FLOOR}
    return ["Most frequent unmapped codes, in patients", _lines(rows)] if rows else []


def _lines(rows: dict[str, str]) -> str:
    width = max(map(len, rows), default=0)
    return "\n".join(f"  {name.ljust(width)}  {value}" for name, value in rows.items()) + "\n"
