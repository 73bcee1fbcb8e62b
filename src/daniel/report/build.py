"""Parts -> one HTML file."""

from pathlib import Path

from daniel.federated.files import write_file
from daniel.report.explorer import LARGEST, Progress, blocks
from daniel.report.page import render
from daniel.report.parts import ReportParts


def build_report(
    parts: ReportParts, out: str | Path, *, progress: Progress = lambda *_: None
) -> Path:
    """Write the report to `out`, whole or not at all; the same parts give the same file.

    Descriptions are cut where the file would otherwise have more than ten megabytes.
    progress: called with the name of a stage and the share of it that is done.
    """
    out = Path(out)
    room = LARGEST - len(render(parts, []).encode())
    html = render(parts, blocks(parts, progress, room))
    write_file(out, html.encode())
    return out
