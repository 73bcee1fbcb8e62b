"""Text files, each whole or not at all."""

import os
from pathlib import Path

import pandas as pd


def write_text(target: Path, text: str) -> Path:
    """Write to a temporary name beside the target, then rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def write_table(stem: Path, table: pd.DataFrame, markdown: str | None = None) -> list[Path]:
    """The table as <stem>.csv and, when given, its Markdown as <stem>.md."""
    text = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    written = [write_text(stem.with_name(f"{stem.name}.csv"), text)]
    if markdown is not None:
        written.append(write_text(stem.with_name(f"{stem.name}.md"), markdown))
    return written


def markdown_line(*values: object) -> str:
    return f"| {' | '.join(map(str, values))} |"
