"""Messages: a start from the hub, an answer from a site.

A message is a container (safetensors) whose metadata hold a manifest in canonical JSON and an
Ed25519 signature of it.  The manifest says who made it, when, for which study and start, under
which thresholds, and holds the SHA-256 of the tensors, so that the signature covers everything.
docs/format.md describes it for readers in other languages.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import prod
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from daniel.errors import FormatError
from daniel.federated.container import MAX_HEADER, NAMES, canonical, pack, unpack
from daniel.federated.keys import SiteKey
from daniel.study import Site, Study

FORMAT, SKETCHED = 1, 2  # format of a message; SKETCHED where the study asks for sketches
MANIFEST, SIGNATURE = "daniel", "signature"
DOMAIN = b"daniel message\n"
START, ANSWER = "start", "answer"
VECTORS = ("b", "counts", "patients")  # of an answer, (p,) each
TOTALS = 2  # of an answer: records, patients


@dataclass(frozen=True)
class Manifest:
    """Everything about a message but its numbers."""

    kind: str  # start or answer
    study: str  # SHA-256 of the study's content
    study_name: str
    epoch: int
    round: int
    start: str  # SHA-256 of the start that is answered; empty in a start
    site: str
    role: str
    created: str  # UTC
    daniel: str  # version of the package
    codes: int  # p
    release: str  # masked or open
    records: int  # rounded to two digits; 0: not told
    minimum_patients: int
    minimum_records: int
    floor: int
    clip: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise: float = 0.0  # standard deviation, in the units of clip
    payload: str = ""  # SHA-256 of the tensors
    sketch: int = 0  # directions of a sketch; 0, and not in the file: there is none

    @property
    def format(self) -> int:
        return SKETCHED if self.sketch else FORMAT

    def content(self) -> dict[str, Any]:
        """What the file says."""
        known = asdict(self) | {"format": self.format}
        return known if self.sketch else {k: v for k, v in known.items() if k != "sketch"}


@dataclass(frozen=True)
class Message:
    """A manifest with its arrays; sha256 and signature are those of the whole file."""

    manifest: Manifest
    arrays: Mapping[str, np.ndarray]
    sha256: str
    signature: bytes


def size_of_triangle(p: int) -> int:
    return p * (p + 1) // 2


Layout = dict[str, tuple[str, tuple[int, ...]]]


def layout(manifest: Manifest, d: int = 0) -> Layout:
    """Names, types and shapes of the tensors; d: columns of a start's U."""
    p, k = manifest.codes, manifest.sketch
    if manifest.kind == START:
        vectors: Layout = dict.fromkeys(("center", "scale", "b"), ("F64", (p,)))
        factors: Layout = {"U": ("F32", (p, d)), "signs": ("F32", (d,))}
        return vectors | factors | ({"directions": ("F32", (p, k))} if k else {})
    absent: Layout = {"absent": ("U8", (p,))}
    derivative = (p, k) if k else (size_of_triangle(p),)
    if manifest.release == "masked":
        return absent | {"masked": ("U64", (prod(derivative) + len(VECTORS) * p + TOTALS,))}
    shapes: Layout = dict.fromkeys(VECTORS, ("F64", (p,)))
    name = derivative_name(manifest)
    return absent | shapes | {name: ("F32", derivative), "totals": ("F64", (TOTALS,))}


def derivative_name(manifest: Manifest) -> str:
    """The tensor of an open answer that holds its derivative."""
    return "sketch" if manifest.sketch else "triangle"


def columns_of(study: Study) -> int:
    """Directions of the study's sketches; 0 where answers tell every pair of codes."""
    return min(study.disclosure.sketch or 0, len(study.codes.names))


def largest(p: int, k: int = 0) -> int:
    """Bytes that a message of p codes has at most; k: directions of a sketch."""
    words = max(size_of_triangle(p), p * k) + (len(VECTORS) + 1) * p + TOTALS
    return MAX_HEADER + 8 * max(words, (600 + k) * p)


# --- writing --------------------------------------------------------------------------------------


def write(manifest: Manifest, arrays: Mapping[str, np.ndarray], key: SiteKey) -> bytes:
    """The signed bytes of a message."""
    content = manifest.content() | {"payload": payload(arrays)}
    text = canonical(content)
    signature = key.signing.sign(DOMAIN + text)
    return pack(arrays, {MANIFEST: text.decode(), SIGNATURE: signature.hex()})


def payload(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and bytes of the tensors, sorted by name."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(canonical([name, NAMES[array.dtype], array.shape]))
        digest.update(array.data)
    return digest.hexdigest()


def rounded(count: float) -> int:
    """A number of records or patients that may be told: two digits, below 100 in tens."""
    step = max(10, 10 ** (len(str(int(max(count, 0)))) - 2))
    return int(max(count, 0)) // step * step


# --- reading --------------------------------------------------------------------------------------


def read(data: bytes) -> Message:
    """A message whose form and hash are right; whose it is, `verify` tells."""
    metadata, arrays = unpack(data)
    text = metadata.get(MANIFEST, "")
    manifest = _manifest(text)
    if manifest.payload != payload(arrays):
        raise FormatError("The message is damaged: its numbers are not those it was made with.")
    try:
        signature = bytes.fromhex(metadata[SIGNATURE])
        canonical_form = len(metadata) == 2 and signature.hex() == metadata[SIGNATURE]
    except (KeyError, ValueError):
        canonical_form = False
    if not canonical_form or canonical(manifest.content()) != text.encode():
        raise FormatError("The message's manifest is damaged: ask for the file again.")
    _check_arrays(manifest, arrays)
    return Message(manifest, arrays, hashlib.sha256(data).hexdigest(), signature)


def _manifest(text: str) -> Manifest:
    try:
        content = json.loads(text)
        version = content["format"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FormatError("This file is not a message of daniel, or it is damaged.") from None
    if type(version) is not int or version not in (FORMAT, SKETCHED):
        shown = version if type(version) is int and 0 <= version < 10**6 else "unknown"
        raise FormatError(
            f"The message has format {shown}, and this daniel reads formats {FORMAT} and "
            f"{SKETCHED}: use the same version of daniel at every site."
        )
    del content["format"]
    known = {f.name: f.type for f in fields(Manifest) if f.name != "sketch" or version == SKETCHED}
    if set(content) != set(known) or not all(_fits(content[k], t) for k, t in known.items()):
        raise FormatError("The message's manifest lacks what it must say, or says more.")
    return Manifest(**content)


def _fits(value: Any, hint: Any) -> bool:
    if hint is int:
        return type(value) is int and 0 <= value < 1 << 53
    if hint is str:
        return type(value) is str and len(value) <= 500 and value.isprintable()  # it is shown
    number = type(value) in (int, float) and 0 <= value < float("inf")
    return number or (hint is not float and value is None)


def _check_arrays(manifest: Manifest, arrays: Mapping[str, np.ndarray]) -> None:
    """The tensors that this kind of message must have, and numbers that can be used."""
    if manifest.kind not in (START, ANSWER) or manifest.release not in ("masked", "open"):
        raise FormatError("The message is neither a start nor an answer.")
    U = arrays.get("U")
    d = U.shape[1] if U is not None and U.ndim == 2 else 0
    found = {name: (NAMES[a.dtype], a.shape) for name, a in arrays.items()}
    if found != layout(manifest, d):
        raise FormatError(
            f"The message does not hold what a {manifest.kind} of {manifest.codes} codes must hold."
        )
    numbers = [a for a in arrays.values() if a.dtype.kind == "f"]
    wrong = not all(np.isfinite(a).all() for a in numbers)
    if manifest.kind == START:
        sane = (arrays["scale"] > 0).all() and (np.abs(arrays["signs"]) == 1).all()
        sane = sane and (np.abs(arrays.get("directions", 0)) <= 1.001).all()  # of norm 1
        wrong = wrong or not sane or d < 1
    else:
        wrong = wrong or bool((arrays["absent"] > 1).any())
    if wrong:
        raise FormatError("The message holds numbers that cannot be: ask its sender for another.")


# --- whose it is ----------------------------------------------------------------------------------


def verify(message: Message, study: Study, kind: str) -> Site:
    """Check that this is a message of the study, made by the site it names; that roster entry."""
    m = message.manifest
    if m.kind != kind:
        raise FormatError(f"This is {_a(m.kind)} of {m.site!r}, and {_a(kind)} was expected.")
    if m.study != study.hash:
        epoch = f", epoch {m.epoch}" if m.epoch != study.epoch else ""
        raise FormatError(
            f"The {kind} of {m.site!r} belongs to another study or another version of it "
            f"({m.study_name!r}{epoch}, {m.study[:8]}); this is {study.name!r}, epoch "
            f"{study.epoch}, {study.hash[:8]}: all sites must hold the same study file."
        )
    site = study.site(m.site)
    _check_signature(message, site)
    if m.role != site.role or (kind == START and site.role != "hub"):
        raise FormatError(
            f"The {kind} of {m.site!r} was made in the role {m.role!r}, and the roster gives it "
            f"the role {site.role!r}; only the hub makes a start."
        )
    _check_terms(m, study)
    return site


def _check_signature(message: Message, site: Site) -> None:
    if site.signing_key is None:
        raise FormatError(f"The study's roster has no signing key of {site.name!r}: add it.")
    text = canonical(message.manifest.content())
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(site.signing_key))
        public.verify(message.signature, DOMAIN + text)
    except (InvalidSignature, ValueError):
        raise FormatError(
            f"The message says that it is from {site.name!r}, but its signature is not: it was "
            "changed on its way, or made with another key."
        ) from None


def _check_terms(m: Manifest, study: Study) -> None:
    """What the study's hash implies; a sender that says otherwise runs other software."""
    d = study.disclosure
    agreed = (
        m.study_name == study.name
        and m.epoch == study.epoch
        and 1 <= m.round <= study.rounds
        and m.codes == len(study.codes.names)
        and m.release == d.release
        and (m.minimum_patients, m.minimum_records) == (d.minimum_patients, d.minimum_records)
        and m.floor == d.floor
        and m.sketch == columns_of(study)
        and _clip_agrees(m, d.clip)
        and (m.kind == START or m.epsilon == d.epsilon)
    )
    if not agreed:
        raise FormatError(
            f"The {m.kind} of {m.site!r} was made under other terms than the study's (codes, "
            "round, thresholds): it cannot be used."
        )


def _clip_agrees(m: Manifest, clip: float | str | None) -> bool:
    """A start tells its clip where the study leaves it to the hub; an answer always does."""
    if clip == "auto":
        return m.clip is not None and m.clip > 0
    return m.clip == (None if m.kind == START else clip)


def _a(kind: str) -> str:
    return "an answer" if kind == ANSWER else f"a {kind}"
