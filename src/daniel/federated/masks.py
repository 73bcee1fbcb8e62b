"""Pairwise masks: the hub learns the sum of all answers, and nothing of a single one.

Two sites i < j (by name) share a secret (X25519) and from it a stream of random words r_ij; i sends
``v_i + sum_j r_ij`` and j sends ``v_j - sum_i r_ij``, modulo 2^64, so that the masks cancel in the
sum over *all* sites of the roster.  (Bonawitz et al. 2017, without recovery of dropped sites.)

Numbers are fixed point: ``round(v 2^32)`` in Z_2^64.  The values are sums over records of numbers
between -1 and 1, so that a study of fewer than 2^31 records cannot overflow.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from daniel.errors import ParameterError
from daniel.federated.container import canonical
from daniel.federated.keys import SiteKey
from daniel.study import Site

SCALE = 2.0**32
LARGEST = 2.0**31  # of a sum over all sites
CHUNK = 1 << 17  # words of one step: the stream is never in memory as a whole


def encode(values: np.ndarray, m: int) -> np.ndarray:
    """uint64 fixed point of finite values whose sum over m sites stays below 2^31."""
    if not np.all(np.abs(values) < LARGEST / m):  # also where a value is not a number
        raise ParameterError(
            f"An answer holds a number beyond ±{LARGEST / m:.3g}, which {m} masked answers cannot "
            "hold: the site has too many records for one masked study, or the noise is too large."
        )
    return np.rint(values * SCALE).astype(np.int64).view(np.uint64)


def decode(words: np.ndarray) -> np.ndarray:
    """float64 values of an unmasked sum."""
    return words.view(np.int64) / SCALE


def add_masks(words: np.ndarray, key: SiteKey, roster: Sequence[Site], context: object) -> None:
    """Add this site's masks to `words` in place.

    context: what the masks are for (study, epoch, round, start), as JSON can hold it; other
    contexts give unrelated masks.
    """
    for peer in roster:
        if peer.name == key.name:
            continue
        low, high = sorted((key.name, peer.name))
        secret = shared_key(key, peer, canonical(["daniel mask 1", context, low, high]))
        _add_stream(words, secret, subtract=key.name == high)


def shared_key(key: SiteKey, peer: Site, info: bytes) -> bytes:
    """32 bytes that only the two sites know: X25519, then HKDF-SHA256 with `info`."""
    if peer.masking_key is None:
        raise ParameterError(f"The study's roster has no masking key of {peer.name!r}.")
    try:
        public = X25519PublicKey.from_public_bytes(bytes.fromhex(peer.masking_key))
        secret = key.masking.exchange(public)
    except ValueError:
        raise ParameterError(
            f"The masking key of {peer.name!r} in the roster is not a key."
        ) from None
    return derive(secret, info)


def derive(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 without salt, 32 bytes."""
    return HKDF(SHA256(), 32, None, info).derive(secret)


def _add_stream(words: np.ndarray, secret: bytes, *, subtract: bool) -> None:
    """words ± the AES-256-CTR stream of the key, modulo 2^64."""
    for start, part in stream(secret, words.size):
        if subtract:
            words[start : start + part.size] -= part
        else:
            words[start : start + part.size] += part


def stream(secret: bytes, size: int) -> Iterator[tuple[int, np.ndarray]]:
    """(first index, uint64 words) of the AES-256-CTR stream, in chunks."""
    cipher = Cipher(algorithms.AES256(secret), modes.CTR(bytes(16))).encryptor()
    zeros = bytes(8 * CHUNK)
    for start in range(0, size, CHUNK):
        count = min(CHUNK, size - start)
        yield start, np.frombuffer(cipher.update(zeros[: 8 * count]), "<u8")
