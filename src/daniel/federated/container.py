"""The container of a message: a safetensors file with exactly one valid form.

    8 bytes      length N of the header, little endian
    N bytes      header: canonical JSON, filled with blanks to a multiple of 8
    the rest     the tensors, sorted by name, little endian, without gaps

Any safetensors library reads it.  The reader here accepts only the bytes that `pack` would write
for the same content: sizes are checked before anything is allocated, and nothing is executed.
"""

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from daniel.errors import FormatError

MAX_HEADER = 1 << 20
MAX_TENSORS = 16
DTYPES = {"F32": "<f4", "F64": "<f8", "U64": "<u8", "U8": "|u1"}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}
META = "__metadata__"


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, without blanks, ASCII only: equal content gives equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def pack(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a container; arrays have one of the DTYPES."""
    shapes = {name: (NAMES[a.dtype.newbyteorder("<")], a.shape) for name, a in arrays.items()}
    header = _header(shapes, metadata)
    parts: list[bytes | memoryview] = [len(header).to_bytes(8, "little"), header]
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], dtype=DTYPES[shapes[name][0]])
        parts.append(array.reshape(-1).view(np.uint8).data)  # no copy but that of the join
    return b"".join(parts)


def _header(
    shapes: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> bytes:
    """Canonical header of tensors name -> (dtype, shape)."""
    header: dict[str, Any] = {META: dict(metadata)}
    offset = 0
    for name in sorted(shapes):
        dtype, shape = shapes[name]
        end = offset + _size(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = canonical(header)
    return text + b" " * (-len(text) % 8)


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    return np.dtype(DTYPES[dtype]).itemsize * prod(shape)


def unpack(data: bytes) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and arrays, which are views of `data`."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(MAX_HEADER, len(data) - 8):
        raise _damaged()
    text = data[8 : 8 + length]
    metadata, shapes = _read_header(text)
    if sum(_size(*shape) for shape in shapes.values()) != len(data) - 8 - length:
        raise _damaged()
    if _header(shapes, metadata) != text:
        raise _damaged()
    arrays, offset = {}, 8 + length
    for name in sorted(shapes):
        dtype, shape = shapes[name]
        arrays[name] = np.frombuffer(data, DTYPES[dtype], prod(shape), offset).reshape(shape)
        offset += _size(dtype, shape)
    return metadata, arrays


def _read_header(text: bytes) -> tuple[dict[str, str], dict[str, tuple[str, tuple[int, ...]]]]:
    try:
        header = json.loads(text)
        metadata = header.pop(META)
        if len(header) > MAX_TENSORS or not all(type(v) is str for v in metadata.values()):
            raise _damaged()
        return dict(metadata), {name: _read_entry(entry) for name, entry in header.items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise _damaged() from None


def _read_entry(entry: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    dtype, shape = entry["dtype"], entry["shape"]
    sizes = all(type(k) is int and 0 <= k < 1 << 40 for k in shape)
    if dtype not in DTYPES or len(shape) > 2 or not sizes:
        raise _damaged()
    return dtype, tuple(shape)


def _damaged() -> FormatError:
    return FormatError("This is not a daniel message, or it is damaged: ask for it again.")
