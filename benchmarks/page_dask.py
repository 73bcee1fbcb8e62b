"""What the rows of a cluster (results/dask.txt) say about their bound."""

import re
from collections.abc import Iterator

BOUND = 1.25  # times the local time that a fit or an answer may take on a cluster
ROW = re.compile(r"^( +)(\S.+?) +[\d.]+ s +[\d.]+ s +([\d.]+) x ")
DIFFERENCE = re.compile(r"relative difference of Phi (\S+)")
STAYS = "(stays here)"  # the end of a row whose sums are made here with a cluster too
FIT, ANSWER, KILLED = "fit", "answer", "killed"  # rows of what commands do, and of one that died


def _rows(text: str) -> Iterator[tuple[str, float, bool]]:
    """Row, time on the cluster / time here, whether it stays here.

    A further indented row has its parent's name too.
    """
    above = ""
    for line in text.splitlines():
        if said := ROW.match(line):
            indent, name, ratio = said.groups()
            above, name = (name, name) if len(indent) == 2 else (above, f"{above}, {name}")
            yield name, float(ratio), line.endswith(STAYS)


def ratios(text: str) -> dict[str, float]:
    """Row -> time on the cluster / time here."""
    return {name: ratio for name, ratio, _ in _rows(text)}


def remarks(text: str) -> dict[str, str]:
    """What to say after a ratio: rows whose sums stay here tell nothing of the cluster."""
    return {name: ", made here in both cases" if stays else "" for name, _, stays in _rows(text)}


def differences(text: str) -> dict[str, float]:
    """Row of a fit -> how far its couplings are from those of the fit here."""
    found: dict[str, float] = {}
    above = ""
    for line in text.splitlines():
        if said := ROW.match(line):
            above = said[2]
        elif said := DIFFERENCE.search(line):
            found[above] = float(said[1])
    return found


def verdict(text: str) -> list[str]:
    """Which rows are within the bound, and which are not."""
    rows, remark = ratios(text), remarks(text)
    if not rows:
        return []

    def listed(bound: bool, over: bool) -> str:
        some = {k: v for k, v in rows.items() if k.startswith((FIT, ANSWER)) == bound}
        chosen = {k: v for k, v in some.items() if (v > BOUND) == over}
        return "; ".join(f"{k} ({v:.2f} ×{remark[k]})" for k, v in chosen.items())

    said = [f"A fit or an answer may take {BOUND} × the local time."]
    for words, names in (
        ("Within it", listed(True, False)),
        ("**Above it**", listed(True, True)),
        ("Other rows above it", listed(False, True)),
    ):
        said += [f"{words}: {names}."] if names else []
    return [" ".join(said), ""]
