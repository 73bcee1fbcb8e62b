"""What estimators check before they fit: kinds of parameters, labels of sites, the hub.

Every refusal is one sentence.  A parameter may be anything a user can type, so nothing is compared
or converted before its type is known: an array has no truth value, and True is no penalty.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daniel.errors import InputError, ParameterError


def is_whole(value: Any) -> bool:
    """A whole number; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """A finite real number; True, False and complex numbers are none."""
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and bool(np.isfinite(value))


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def shown(value: Any) -> str:
    """A wrong value in a message: as typed if it is short and plain, else its type."""
    if value is None or isinstance(value, str | bool | int | float | complex | np.generic):
        text = repr(value)
        if len(text) <= 60:
            return text
    return f"an object of type {type(value).__name__}"


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the words."""
    if not isinstance(value, str) or value not in allowed:
        wanted = " or ".join(repr(a) for a in allowed)
        raise ParameterError(f"{name} is {shown(value)}; expected {wanted}.")


def read_sites(sites: ArrayLike | None, n: int) -> tuple[list[Any], np.ndarray]:
    """Labels in sorted order, and the index of each record's label."""
    if sites is None:
        return [None], np.zeros(n, dtype=np.int32)
    import pandas as pd  # slow to load; knows every kind of missing label

    try:
        labels = np.asarray(sites)
    except ValueError:  # NumPy's own words may quote a label
        raise InputError(
            f"sites is ragged, and X has {n} records; give one label per record."
        ) from None
    if labels.ndim != 1 or labels.size != n:
        found = f"{labels.size} labels" if labels.ndim == 1 else f"an array of shape {labels.shape}"
        raise InputError(f"sites has {found}, and X has {n} records; give one label per record.")
    if pd.isna(np.asarray(sites, dtype=object)).any():  # beside text, NumPy writes NaN as text
        raise InputError("sites holds missing labels; every record must belong to a site.")
    if labels.dtype.kind not in "biufU":
        labels = labels.astype(str)
    known, index = np.unique(labels, return_inverse=True)
    return known.tolist(), index.astype(np.int32)


def read_hub(hub: Any, labels: list[Any], site: np.ndarray) -> int:
    """Index of the hub's label; the site with most records if none is named."""
    if hub is None:
        return int(np.argmax(np.bincount(site)))
    if labels == [None]:
        raise ParameterError("hub names a site, but no sites were given; pass sites= as well.")
    plain = isinstance(hub, str | int | float | np.generic)  # 1 is the site 1.0
    for i, label in enumerate(labels):
        if str(label) == str(hub) or (plain and label == hub):
            return i
    raise ParameterError(f"hub is {shown(hub)}, which is not among the {len(labels)} sites.")
