"""Sealed files: a message that only one site's private key opens.

"daniel sealed 1\\n"   16 bytes
ephemeral X25519 key  32 bytes
AES-256-GCM           ciphertext and tag; the key is HKDF-SHA256 of the shared secret, with both
                      public keys as info; nonce of zeros, because the key is used once
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from daniel.errors import FormatError, ParameterError
from daniel.federated.keys import SiteKey
from daniel.federated.masks import derive
from daniel.study import Site

MAGIC = b"daniel sealed 1\n"
HEAD = len(MAGIC) + 32
NONCE = bytes(12)


def seal(data: bytes, site: Site) -> bytes:
    """Encrypt to a site of the roster."""
    if site.masking_key is None:
        raise ParameterError(f"The study's roster has no masking key of {site.name!r}: add it.")
    public = bytes.fromhex(site.masking_key)
    once = X25519PrivateKey.generate()
    own = once.public_key().public_bytes_raw()
    secret = once.exchange(X25519PublicKey.from_public_bytes(public))
    return MAGIC + own + AESGCM(derive(secret, MAGIC + own + public)).encrypt(NONCE, data, MAGIC)


def is_sealed(data: bytes) -> bool:
    return data.startswith(MAGIC)


def unseal(data: bytes, key: SiteKey) -> bytes:
    """Decrypt with the site's own key; a plain message comes back as it is."""
    if not is_sealed(data):
        return data
    own, public = data[len(MAGIC) : HEAD], key.masking.public_key().public_bytes_raw()
    try:
        secret = key.masking.exchange(X25519PublicKey.from_public_bytes(own))
        return AESGCM(derive(secret, MAGIC + own + public)).decrypt(NONCE, data[HEAD:], MAGIC)
    except (InvalidTag, ValueError):
        raise FormatError(
            f"The sealed file cannot be opened with the key of {key.name!r}: it was sealed for "
            "another site, or it is damaged."
        ) from None
