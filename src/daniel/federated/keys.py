"""A site's keys: Ed25519 to sign, X25519 to agree on masks and to open sealed files.

The private file stays at the site, readable by its owner alone; the public halves stand in the
study's roster.  The release log of the site lies beside the private file.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from daniel.errors import FormatError, InputError, ReleaseError
from daniel.federated.files import read_file, write_file
from daniel.study import Site, Study, check_site_name

KIND, FORMAT = "daniel key", 1


@dataclass(frozen=True)
class SiteKey:
    """The private keys of one site."""

    name: str
    signing: Ed25519PrivateKey
    masking: X25519PrivateKey

    def public(self, role: str = "site") -> Site:
        """The site's entry in the roster."""
        return Site(
            self.name,
            role,  # type: ignore[arg-type]
            self.signing.public_key().public_bytes_raw().hex(),
            self.masking.public_key().public_bytes_raw().hex(),
        )


def make_key(name: str) -> SiteKey:
    """New keys from the operating system's random numbers."""
    return SiteKey(name, Ed25519PrivateKey.generate(), X25519PrivateKey.generate())


def write_key(key: SiteKey, folder: Path) -> Path:
    """NAME.key in the folder, for its owner's eyes only; an existing one stays."""
    check_site_name(key.name)
    path = folder / f"{key.name}.key"
    if path.exists():
        raise InputError(f"{path} exists already: keys are made once for a site.")
    content = {
        "kind": KIND,
        "format": FORMAT,
        "name": key.name,
        "signing": key.signing.private_bytes_raw().hex(),
        "masking": key.masking.private_bytes_raw().hex(),
    }
    write_file(path, json.dumps(content, indent=1).encode() + b"\n", mode=0o600)
    return path


def read_key(path: Path) -> SiteKey:
    """The keys of a file that `write_key` wrote."""
    data = read_file(path, 10_000)
    if path.stat().st_mode & 0o077:
        raise ReleaseError(
            f"{path} can be read by others than its owner: run `chmod 600 {path.name}`, and make "
            "new keys if others had access."
        )
    try:
        content = json.loads(data)
        if (content["kind"], content["format"]) != (KIND, FORMAT):
            raise ValueError
        return SiteKey(
            str(content["name"]),
            Ed25519PrivateKey.from_private_bytes(bytes.fromhex(content["signing"])),
            X25519PrivateKey.from_private_bytes(bytes.fromhex(content["masking"])),
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FormatError(f"{path} is not a key file of daniel, or it is damaged.") from None


def roster_entry(key: SiteKey, role: str = "site") -> str:
    """The public half as TOML, to paste into the study file."""
    site = key.public(role)
    values = {
        "name": site.name,
        "role": site.role,
        "signing_key": site.signing_key,
        "masking_key": site.masking_key,
    }
    return "\n".join(["[[sites]]", *(f"{k} = {json.dumps(v)}" for k, v in values.items())])


def check_key(key: SiteKey, study: Study) -> Site:
    """The roster's entry of this key; the keys must be those that the study names."""
    if not study.sites:
        raise InputError("The study has no roster: add each site's public keys (`daniel keys`).")
    site = study.site(key.name)
    own = key.public(site.role)
    if (site.signing_key, site.masking_key) != (own.signing_key, own.masking_key):
        raise ReleaseError(
            f"The study's roster has other keys for {key.name!r} than this key file: put the "
            "entry that `daniel keys` printed into the study, at every site."
        )
    return site
