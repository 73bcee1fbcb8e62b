"""The data behind the explorer: nearest codes, couplings and the map, packed for the browser."""

import base64
import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daniel.matrix import vocabulary_of
from daniel.report.layout import map_coordinates, unit_rows
from daniel.report.parts import ReportParts, least_prevalence

NEIGHBOURS = 30
BUDGET = 4_000_000  # bytes of all neighbours before base64; more codes get fewer neighbours
NARROW = 65536  # codes whose positions fit into two bytes; beyond, they take four
CELLS = 1 << 24  # cosines held at once
PAIRS = 1_000_000  # random pairs that stand for all
LEVELS = 120  # points of the distribution of all pairs
DEEPEST = 5.0  # the last of them is 1e-5 from the top
LARGEST = 9_900_000  # bytes of the whole file
LONGEST = 160  # characters of a description
COLOURS = 7  # vocabularies with a colour and a shape of their own; the rest share one

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Nearest:
    """Nearest codes of every code: index, cosine (p, k) and, if known, theta (p, k)."""

    index: np.ndarray
    cosine: np.ndarray
    theta: np.ndarray | None


def neighbours(p: int) -> int:
    """How many nearest codes the page holds of each of p codes."""
    each = 8 if p > NARROW else 6  # bytes
    return min(NEIGHBOURS, max(5, BUDGET // (each * p)), p - 1)


def nearest(parts: ReportParts, k: int, progress: Progress = lambda *_: None) -> Nearest:
    """The k codes with the largest cosine to each code, itself left out; ties by position.

    theta_ij = (U_i'V_j + U_j'V_i) / 2.
    """
    unit = unit_rows(parts.embedding)
    p = len(unit)
    k = min(k, p - 1)
    index = np.empty((p, k), dtype=np.intp)
    cosine = np.empty((p, k), dtype=np.float32)
    step = max(1, CELLS // p)
    for row in range(0, p, step):
        block = unit[row : row + step] @ unit.T
        rows = np.arange(len(block))
        block[rows, row + rows] = -np.inf
        top = np.sort(np.argpartition(-block, max(k - 1, 0), axis=1)[:, :k], axis=1)
        values = np.take_along_axis(block, top, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        index[row : row + step] = np.take_along_axis(top, order, axis=1)
        cosine[row : row + step] = np.take_along_axis(values, order, axis=1)
        progress("nearest codes", (row + len(block)) / p)
    theta = None if parts.couplings is None else _theta(parts.couplings, index)
    return Nearest(index, np.clip(cosine, -1, 1), theta)


def _theta(couplings: tuple[np.ndarray, np.ndarray], index: np.ndarray) -> np.ndarray:
    U, V = (np.asarray(factor, dtype=np.float32) for factor in couplings)
    out = np.empty(index.shape, dtype=np.float32)
    for j in range(index.shape[1]):  # one neighbour at a time: never (p, k, d) in memory
        i = index[:, j]
        out[:, j] = (np.einsum("pd,pd->p", U, V[i]) + np.einsum("pd,pd->p", V, U[i])) / 2
    return out


def all_pairs(parts: ReportParts) -> tuple[np.ndarray, np.ndarray | None]:
    """Upper quantiles of cosine and theta over pairs of different codes, (LEVELS,) each.

    The level of entry i is 1 - 10^(-DEEPEST i / (LEVELS - 1)).  All pairs where there are at most
    PAIRS, otherwise that many at random.
    """
    p = len(parts.codes)
    if p < 2:
        return np.zeros(LEVELS), None
    if p * (p - 1) // 2 <= PAIRS:
        i, j = np.triu_indices(p, 1)
    else:
        rng = np.random.default_rng(0)
        i, j = rng.integers(p, size=PAIRS), rng.integers(p - 1, size=PAIRS)
        j = j + (j >= i)
    levels = 1 - 10.0 ** -np.linspace(0, DEEPEST, LEVELS)
    unit = unit_rows(parts.embedding)
    cosine = np.quantile(_products(unit, unit, i, j), levels)
    if parts.couplings is None:
        return cosine, None
    U, V = (np.asarray(factor, dtype=np.float32) for factor in parts.couplings)
    theta = (_products(U, V, i, j) + _products(V, U, i, j)) / 2
    return cosine, np.quantile(theta, levels)


def _products(A: np.ndarray, B: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """A_i'B_j of each pair, in blocks."""
    out = np.empty(i.size, dtype=np.float32)
    for row in range(0, i.size, 1 << 16):
        part = slice(row, row + (1 << 16))
        out[part] = np.einsum("nd,nd->n", A[i[part]], B[j[part]])
    return out


# --- packing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One data block of the page: its name, its type ("json", "u2", "i2", "f4"), and its text."""

    name: str
    type: str
    text: str


def blocks(
    parts: ReportParts, progress: Progress = lambda *_: None, room: int = LARGEST
) -> list[Block]:
    """Everything that the explorer reads, as text that is safe inside a script element.

    room: bytes for all of it.  Descriptions are cut until it is enough, or none is left.
    """
    p = len(parts.codes)
    near = nearest(parts, neighbours(p), progress)
    progress("map", 0.0)
    position = map_coordinates(parts.embedding)
    progress("map", 1.0)
    vocabularies, vocabulary = _vocabularies(parts.codes)
    cosines, thetas = all_pairs(parts)
    scale = 1.0 if near.theta is None else float(np.abs(near.theta).max(initial=0)) or 1.0
    facts = {
        "codes": p,
        "neighbours": near.index.shape[1],
        "vocabularies": vocabularies,
        "focus": _focus(parts),
        "theta": near.theta is not None,
        "thetaScale": scale / 32767,
        "least": None if parts.prevalence is None else least_prevalence(parts.report),
        "deepest": DEEPEST,
        "pairs": {"cosine": _plain(cosines), "theta": None if thetas is None else _plain(thetas)},
    }
    found = [
        Block("facts", "json", _json(facts)),
        _numbers("vocabulary", vocabulary, "u1"),
        _numbers("map", np.round(position * 32767), "i2"),
        _numbers("index", near.index, "u4" if p > NARROW else "u2"),
        _numbers("cosine", np.round(near.cosine * 32767), "i2"),
    ]
    if near.theta is not None:
        found.append(_numbers("theta", np.round(near.theta * (32767 / scale)), "i2"))
    if parts.prevalence is not None:
        found.append(_numbers("prevalence", parts.prevalence, "f4"))
    return [*found, _names(parts, room - sum(len(block.text.encode()) for block in found))]


def _names(parts: ReportParts, room: int) -> Block:
    """Codes and descriptions, the longest of which are cut to what fits into `room` bytes."""
    texts = [" ".join(str(parts.descriptions.get(code, "")).split()) for code in parts.codes]
    texts = [text if len(text) <= LONGEST else text[: LONGEST - 1] + "…" for text in texts]

    def packed(most: int) -> str:
        return _json({"codes": parts.codes, "texts": [_cut(text, most) for text in texts]})

    caps = range(max(len(text.encode()) for text in texts) + 1)
    fitting = bisect_right(caps, room, key=lambda most: len(packed(most).encode()))
    return Block("names", "json", packed(max(fitting - 1, 0)))


def _cut(text: str, most: int) -> str:
    """The text in at most so many bytes of UTF-8, with an ellipsis (three bytes) if it was cut."""
    data = text.encode()
    if len(data) <= most:
        return text
    return data[: most - 3].decode(errors="ignore") + "…" if most > 3 else ""


def _focus(parts: ReportParts) -> int:
    if parts.focus is not None:
        return parts.codes.index(parts.focus)
    return 0 if parts.prevalence is None else int(np.argmax(parts.prevalence))


def _vocabularies(codes: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """Names, the largest first, and the number of each code's; too many share the last."""
    of = np.array([vocabulary_of(code) or "codes" for code in codes])
    names, number, counts = np.unique(of, return_inverse=True, return_counts=True)
    order = np.lexsort((names, -counts))
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    shown = [str(names[i]) for i in order]
    if len(shown) > COLOURS + 1:
        shown = [*shown[:COLOURS], f"{len(shown) - COLOURS} other vocabularies"]
    return shown, np.minimum(rank[number], COLOURS)


def _numbers(name: str, values: np.ndarray, type: str) -> Block:
    """Little-endian numbers in base64, row by row."""
    data = np.ascontiguousarray(values).astype(f"<{type}" if type != "u1" else "u1").tobytes()
    return Block(name, type, base64.b64encode(data).decode("ascii"))


def _json(value: object) -> str:
    """JSON in which nothing can end or open an HTML element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def _plain(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
