"""Model files: one safetensors file, with everything that is not an array as JSON in its header.

No pickle: reading a model executes nothing.  FORMAT rises when the layout changes; files of another
format, and files whose content is not what was written, are refused with a sentence.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from daniel.core.coordinates import Coordinates
from daniel.errors import FormatError, InputError

if TYPE_CHECKING:
    from daniel.estimator import Daniel

Model = TypeVar("Model", bound="Daniel")

FORMAT = 2
HEADER = "daniel"
DIGEST = "sha256"
IN_FOLDER = "model.safetensors"  # the model of a model folder
ARRAYS = ("U_", "V_", "embedding_", "axes_", "intercept_", "_U", "_V", "_b")
FACTS = ("penalty_", "rank_", "n_iter_", "converged_", "loss_curve_", "n_features_in_")
SITES = ("sites_", "hub_")


def write(path: str | Path, model: "Daniel") -> None:
    """Write to a temporary name beside the target, then rename: never half a model."""
    path = Path(path)
    coords: Coordinates = model._coords
    arrays = {name: np.ascontiguousarray(getattr(model, name)) for name in ARRAYS}
    for name in ("center", "scale", "gain", "tie"):
        values = getattr(coords, name)
        if values is not None:
            arrays[f"coords.{name}"] = np.ascontiguousarray(values)
    header = {
        "format": FORMAT,
        "params": {k: _plain(v) for k, v in model.get_params().items()},
        "facts": {name: _plain(getattr(model, name)) for name in FACTS},
        "sites": {name: _plain(getattr(model, name)) for name in SITES if hasattr(model, name)},
        "codes": _plain(getattr(model, "feature_names_in_", None)),
    }
    if hasattr(model, "_origin"):  # optional, so that files without it stay readable
        header["origin"] = {name: _plain(value) for name, value in model._origin.items()}
    header[DIGEST] = _digest(header, arrays)
    data = save(arrays, metadata={HEADER: json.dumps(header, sort_keys=True)})
    if not path.parent.is_dir():
        raise InputError(f"The folder {path.parent} does not exist; make it first.")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read(path: str | Path, model: Model) -> Model:
    """Fill an unfitted model from a file, or from the one of a model folder."""
    path = Path(path)
    if path.is_dir():
        path /= IN_FOLDER
    if not path.is_file():
        raise FormatError(f"There is no model file at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[HEADER])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        version = header["format"]
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise FormatError(f"{path} is not a model that daniel wrote, or it is damaged.") from None
    if version != FORMAT:
        raise FormatError(
            f"{path} has model format {version}, and this version of daniel reads format {FORMAT}; "
            "install the version that wrote it, or fit again."
        )
    if header.pop(DIGEST, None) != _digest(header, arrays):
        raise FormatError(f"{path} is damaged: its content is not what daniel wrote.")
    try:
        _fill(model, header, arrays)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError(f"{path} is incomplete: parts of the model are missing.") from None
    return model


def _digest(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of header, names, types, shapes and numbers: a flipped bit is damage too."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
        digest.update(values.data)
    return digest.hexdigest()


def _fill(model: "Daniel", header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    model.set_params(**header["params"])
    for name in ARRAYS:
        setattr(model, name, arrays[name])
    for name in FACTS:
        setattr(model, name, header["facts"][name])
    for name, value in header["sites"].items():
        if name in SITES:
            setattr(model, name, value)
    if "origin" in header:
        model._origin = dict(header["origin"])
    if header["codes"] is not None:
        model.feature_names_in_ = np.array(header["codes"], dtype=object)
    model._coords = Coordinates(
        arrays["coords.center"],
        arrays["coords.scale"],
        arrays["coords.gain"],
        arrays.get("coords.tie"),
    )


def _plain(value: Any) -> Any:
    """JSON's own types; a random state that is not a number is not part of a model."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return None
