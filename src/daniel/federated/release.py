"""The gate: the only way out of a site, in this order.

    1. enough patients and records                      or nothing leaves
    2. no patient's share above `clip`                  if the study says so
    3. Gaussian noise for (epsilon, delta)              if the study says so
    4. masked: only the sum over all sites can be read  (three sites or more), or
       open: codes of fewer than `floor` patients here leave as absent
    5. signature, and a line in the release log         once for a study, epoch and round

What comes out of 1 to 4 is a `Parcel`, which a person can read before saying yes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from daniel.core import natural
from daniel.core.records import records_from
from daniel.errors import MissingDependencyError, ReleaseError
from daniel.federated import messages
from daniel.federated.container import canonical
from daniel.federated.directions import directions as strong_directions
from daniel.federated.directions import noise_along, triangle_of
from daniel.federated.keys import SiteKey, check_key
from daniel.federated.ledger import Ledger
from daniel.federated.masks import add_masks, derive, encode, stream
from daniel.federated.messages import Manifest, rounded
from daniel.federated.sums import (
    COUNT_CLIP,
    RECORD_WEIGHT,
    Sums,
    patient_norms,
    patient_numbers,
    patients_with,
    site_sums,
    triangle_of_scales,
)
from daniel.matrix import CodeMatrix
from daniel.study import Study


@dataclass(frozen=True)
class Parcel:
    """What would leave: a manifest without signature, the arrays, and how they came about."""

    manifest: Manifest
    arrays: Mapping[str, np.ndarray]
    left_out: int = 0  # codes that leave as absent

    def send(
        self, key: SiteKey, *, approved_by: str, ledger: Ledger | None, out: Path | None = None
    ) -> bytes:
        """Sign and log: the bytes that may leave."""
        if not approved_by.strip():
            raise ReleaseError("Nothing leaves without a name: say who approves (--approve NAME).")
        if ledger is not None:
            ledger.approve(self.manifest, messages.payload(self.arrays), approved_by, out)
        return messages.write(self.manifest, self.arrays, key)


def check_size(matrix: CodeMatrix, study: Study, site: str) -> None:
    """Refuse a site with fewer patients or records than the study asks for; no number is told."""
    d = study.disclosure
    patients = int(patient_numbers(matrix).max(initial=-1)) + 1  # none where there is no record
    for found, least, what in (
        (patients, d.minimum_patients, "patients"),
        (matrix.shape[0], d.minimum_records, "records"),
    ):
        if found < least:
            raise ReleaseError(
                f"The site {site!r} has fewer {what} than the {least} that the study asks for: "
                "nothing leaves, and it cannot take part."
            )


def without_rare(matrix: CodeMatrix, floor: int) -> CodeMatrix:
    """The matrix with the codes of fewer than `floor` patients made absent."""
    rare = patients_with(matrix, patient_numbers(matrix)) < floor
    absent = rare if matrix.absent is None else rare | matrix.absent
    Z = matrix.Z
    stays = ~rare[Z.indices]
    if not stays.all():
        indptr = np.concatenate([[0], np.cumsum(stays, dtype=Z.indptr.dtype)])[Z.indptr]
        Z = sp.csr_array((Z.data[stays], Z.indices[stays], indptr), shape=Z.shape)
    return replace(matrix, Z=Z, absent=absent)


def prepare(
    matrix: CodeMatrix,
    study: Study,
    start: natural.Start,
    options: natural.Options,
    key: SiteKey,
    about: Mapping[str, Any],
    directions: np.ndarray | None = None,
) -> Parcel:
    """Steps 1 to 4.  about: start (its SHA-256), round and clip, for the manifest.

    directions (p, k): those of the start, along which a sketch is made.
    """
    check_size(matrix, study, key.name)
    d = study.disclosure
    private = d.epsilon is not None
    if d.release == "open" and not private:
        matrix = without_rare(matrix, d.floor)
    Q = strong_directions(start) if private else None
    sums = site_sums(
        matrix,
        start,
        options,
        clip=about["clip"],
        with_counts=private,
        Q=Q,
        directions=directions,
    )
    absent = np.zeros(sums.counts.size, dtype=bool)
    if not private:  # which codes a site lacks is a fact about its patients, and has no noise
        absent = sums.patients == 0
    noise = noise_of(study, about["clip"])
    if private:
        digest = sha256(sums.vector().tobytes()).hexdigest()
        secret = _noise_key(key, [*_context(study, about), digest])
        sums = with_noise(sums, noise, start.coords.scale, secret, Q)
    arrays: dict[str, np.ndarray] = {"absent": absent.astype(np.uint8)}
    # A masked site adds only its part of the noise, so its own number of records is not told.
    told = 0.0 if private and d.release == "masked" else float(sums.totals[0])
    manifest = manifest_of(study, key, messages.ANSWER, told, about, noise)
    if d.release == "masked":
        words = encode(sums.vector(), len(study.sites))
        add_masks(words, key, study.sites, _context(study, about))
        arrays["masked"] = words
    else:
        arrays |= {name: getattr(sums, name) for name in (*messages.VECTORS, "totals")}
        name = messages.derivative_name(manifest)
        shape = messages.layout(manifest)[name][1]
        arrays[name] = sums.derivative.astype(np.float32).reshape(shape)
    return Parcel(manifest, arrays, int(absent.sum()))


def manifest_of(
    study: Study,
    key: SiteKey,
    kind: str,
    records: float,
    about: Mapping[str, Any],
    noise: float = 0.0,
) -> Manifest:
    """What a message of this site says about itself."""
    d = study.disclosure
    site = check_key(key, study)
    answer = kind == messages.ANSWER
    return Manifest(
        kind=kind,
        study=study.hash,
        study_name=study.name,
        epoch=study.epoch,
        round=about["round"],
        start=about.get("start", ""),
        site=site.name,
        role=site.role,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        daniel=version("daniel"),
        codes=len(study.codes.names),
        release=d.release,
        records=rounded(records),
        minimum_patients=d.minimum_patients,
        minimum_records=d.minimum_records,
        floor=d.floor,
        clip=about.get("clip"),
        epsilon=d.epsilon if answer else None,
        delta=d.delta if answer and d.epsilon is not None else None,
        noise=noise,
        sketch=messages.columns_of(study),
    )


def _context(study: Study, about: Mapping[str, Any]) -> list[Any]:
    """What masks and noise are for: another study, epoch, round or start has others."""
    return [study.hash, study.epoch, about["round"], about["start"]]


def usual_norm(matrix: CodeMatrix, study: Study, start: natural.Start) -> float:
    """The clip that a hub proposes: twice the median norm of its patients' shares, to two digits.

    Cutting many patients bends the derivative, and a wide clip needs much noise; docs/privacy.md.
    """
    Q = None if study.disclosure.epsilon is None else strong_directions(start)
    records = records_from(matrix.Z, merge=False)
    norms, _ = patient_norms(records, patient_numbers(matrix), start, start.b, Q)
    return float(f"{2 * np.median(norms):.2g}")


# --- noise ----------------------------------------------------------------------------------------


def noise_of(study: Study, clip: float | None) -> float:
    """Standard deviation of the noise that each site adds, in units of `clip`'s norm; 0 without.

    Open answers each carry all of it.  Masked ones are seen as a sum only, and m - 1 sites bring
    it together: the one that is left over may be the hub, which knows its own.
    """
    d = study.disclosure
    if d.epsilon is None or clip is None:
        return 0.0
    sites = max(1, len(study.sites) - 1) if d.release == "masked" else 1
    sensitivity = clip * float(np.hypot(1, COUNT_CLIP))  # of derivatives and counts together
    return sensitivity * noise_multiplier(d.epsilon, d.delta, study.rounds) / float(np.sqrt(sites))


def noise_multiplier(epsilon: float, delta: float, rounds: int = 1) -> float:
    """Standard deviation of the Gaussian mechanism for sensitivity 1, over all rounds together."""
    try:
        from dp_accounting.pld.common import DifferentialPrivacyParameters
        from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
    except ImportError:
        raise MissingDependencyError.of(
            "dp-accounting", extra="privacy", purpose="Differential privacy"
        ) from None
    terms = DifferentialPrivacyParameters(epsilon, delta)
    loss = GaussianPrivacyLoss.from_privacy_guarantee(terms, sensitivity=float(np.sqrt(rounds)))
    return float(loss.standard_deviation)


def with_noise(
    sums: Sums, noise: float, scale: np.ndarray, secret: bytes, Q: np.ndarray | None = None
) -> Sums:
    """Gaussian noise on everything that leaves, in the units in which patients were clipped.

    The patients with each code are told by the noisy counts.  Q (p, d): the directions along which
    the derivative is told, and has noise.
    """
    p = scale.size
    d = 0 if Q is None else Q.shape[1]
    derivative = messages.size_of_triangle(p) if Q is None else (d + p) * d
    edges = np.cumsum([p, p, 1])
    b, c, n, rest = np.split(normal(secret, 2 * p + 1 + derivative), edges)
    counts = sums.counts + noise * scale * c
    if Q is None:  # off the diagonal the norm counts an entry twice: less noise by sqrt(2)
        shares = triangle_of_scales(scale) * rest / np.sqrt(2)
    else:
        shares = triangle_of(noise_along(rest.reshape(d + p, d), Q), Q, scale)
    triangle = sums.derivative + noise * shares
    triangle[np.cumsum([0, *range(p, 1, -1)])] = 0  # the diagonal says nothing
    records = float(sums.totals[0] + noise / RECORD_WEIGHT * n[0])
    return Sums(triangle, sums.b + noise * scale * b, counts, counts, np.full(2, max(records, 1.0)))


def _noise_key(key: SiteKey, context: list[Any]) -> bytes:
    """The site's secret for this noise: the same release always carries the same noise, so that
    asking again cannot average it away; other sums carry other noise, so that their difference
    stays hidden."""
    return derive(key.masking.private_bytes_raw(), canonical(["daniel noise 1", context]))


def normal(secret: bytes, size: int) -> np.ndarray:
    """Standard normal numbers from the AES-256-CTR stream of a key."""
    out = np.empty(size)
    for first, words in stream(secret, size):
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        out[first : first + words.size] = ndtri(uniform)
    return out
