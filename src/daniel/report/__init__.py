"""One self-contained HTML file about a model: the study, its evaluation, and every code."""

from daniel.report.build import build_report
from daniel.report.parts import Figure, ReportParts, Section, Table, parts_of

__all__ = ["Figure", "ReportParts", "Section", "Table", "build_report", "parts_of"]
