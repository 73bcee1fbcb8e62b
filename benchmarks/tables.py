"""Tables of Markdown as rows of text."""


def read(text: str) -> list[dict[str, str]]:
    """The rows of the first table, by the names of its columns."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def number(text: str) -> float:
    """The first number of a cell: '1,263 MB' is 1263."""
    return float(text.split()[0].replace(",", ""))


def made(rows: list[dict[str, str]]) -> str:
    """A table of like rows."""
    heads = list(rows[0])
    lines = [heads, ["---"] * len(heads), *([row[head] for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
