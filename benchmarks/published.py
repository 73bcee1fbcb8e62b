"""The paper's published simulation tables, from its LaTeX source to the package's CSV.

    python -m benchmarks.published [daniel.tex]

Writes src/daniel/simulation/published.csv: table (its label), n, p, x, method, mean, sd.
"""

import re
import sys
from pathlib import Path

import pandas as pd

from benchmarks.problems import PROJECT_ROOT, data_root

TARGET = PROJECT_ROOT / "src" / "daniel" / "simulation" / "published.csv"
BY_X = ("fig:app_simu_tab_err", "fig:app_simu_tab_time")  # p = 50, one block for each n
BY_P = "tab:app_simu_EvP"  # n = 10,000 and m = 15, which is x = 0.3
FIGURE = re.compile(r"([\d.]+)±([\d.]+)")


def source() -> Path:
    """The paper's source, beside the data."""
    return data_root().parent / "paper" / "daniel.tex"


def parse(tex: str) -> pd.DataFrame:
    """All figures of the three appendix tables, in their order in the paper."""
    rows = []
    for block in re.findall(r"\\begin\{table\}.*?\\end\{table\}", tex, flags=re.S):
        label = re.search(r"\\label\{([^}]+)\}", block)
        if label is not None and label[1] in (*BY_X, BY_P):
            rows += _rows(label[1], block)
    return pd.DataFrame(rows, columns=["table", "n", "p", "x", "method", "mean", "sd"])


def _rows(label: str, block: str) -> list[tuple[str, int, int, float, str, float, float]]:
    lines = [_plain(line) for line in block.splitlines() if line.rstrip().endswith(r"\\")]
    head, *body = lines
    columns = head[head.index("method") + 1 :]
    rows, n = [], 10_000
    for line in body:
        *before, method = line[: -len(columns)]
        n = int(before[0]) if before and before[0] else n  # stands beside its first method only
        for column, text in zip(columns, line[-len(columns) :], strict=True):
            figure = FIGURE.fullmatch(text)
            assert figure, f"{label}: {text!r} is not mean±sd"
            p, x = (int(column), 0.3) if label == BY_P else (50, float(column))
            rows.append((label, n, p, x, method, float(figure[1]), float(figure[2])))
    return rows


def _plain(line: str) -> list[str]:
    """The cells of a line of a LaTeX table, without their dress."""
    text = re.sub(r"\\(?:textbf|multirow\{5\}\*)\{([^}]*)\}", r"\1", line.rstrip()[:-2])
    return [cell.strip() for cell in text.split("&")]


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else source()
    if not path.is_file():
        raise SystemExit("The paper's source was not found: give its path.")
    table = parse(path.read_text("utf-8"))
    table.to_csv(TARGET, index=False, lineterminator="\n")
    print(f"{len(table)} figures of {table['table'].nunique()} tables")


if __name__ == "__main__":
    main()
