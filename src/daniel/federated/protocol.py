"""The exchange as three pure functions: bytes in, bytes out.

    start(matrix, study, key)                        at the hub:     the start
    answer(matrix, study, start, key, ...)           at every site:  its answer
    finish(matrix, study, start, answers, key)       at the hub:     the model and a report

The same bytes travel in memory, as files (`daniel.federated.folder`) and over a network.  Every
site, the hub included, answers; an open study may do without the hub's own answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from daniel.core import natural, sketch
from daniel.core.checkpoint import Checkpoint
from daniel.core.coordinates import Coordinates, natural_coordinates
from daniel.core.records import Records, records_from
from daniel.errors import FormatError, InputError, ParameterError, ReleaseError
from daniel.estimator import Daniel
from daniel.federated import denoise, messages, release, totals
from daniel.federated.directions import directions
from daniel.federated.keys import SiteKey, check_key, make_key
from daniel.federated.ledger import Ledger
from daniel.federated.messages import ANSWER, START, Message, rounded
from daniel.federated.release import Parcel
from daniel.federated.report import Report, report_of
from daniel.federated.sealed import seal, unseal
from daniel.federated.sums import Sums, site_sums
from daniel.federated.terms import (
    check_part,
    clip_of,
    generator,
    hub_of,
    options_of,
    with_keys,
)
from daniel.matrix import CodeMatrix, kinds
from daniel.study import Study

Progress = Callable[[int, float], None]  # step and loss


def start(
    matrix: CodeMatrix,
    study: Study,
    key: SiteKey,
    *,
    previous: Daniel | None = None,
    round: int = 1,
    progress: Progress | None = None,
) -> bytes:
    """The hub's start: Phi0 from its own records, or from the model of the round before.

    Codes of fewer than `floor` patients at the hub are absent in it: a start leaves the hub too.
    """
    check_part(matrix, study)
    if check_key(key, study).role != "hub":
        raise InputError(f"{key.name!r} is not the hub of this study: only the hub makes a start.")
    if (previous is None) != (round == 1) or not 1 <= round <= study.rounds:
        raise ParameterError(
            f"Round {round} of {study.rounds} was asked for; round 1 starts from records, and "
            "every later one from the model of the round before."
        )
    release.check_size(matrix, study)
    gated = release.without_rare(matrix, study.disclosure.floor)
    if gated.absent is not None and (~gated.absent).sum() < 2:
        raise ReleaseError(
            f"The hub has hardly a code of {study.disclosure.floor} patients or more, so that its "
            "start would say nothing: choose a larger hub."
        )
    options = replace(options_of(study), progress=progress)
    records = records_from(gated.Z)
    if previous is None:
        made = natural.make_start(records, options, generator(study, round, 0))
    else:
        made = _start_of(previous, study, records, options)
    arrays = {
        "center": made.coords.center,
        "scale": made.coords.scale,
        "b": made.b[0],
        "U": np.ascontiguousarray(made.U, dtype=np.float32),
        "signs": made.signs.astype(np.float32),
    }
    arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
    k = messages.columns_of(study)
    if k:
        known = None if previous is None else made.U
        arrays["directions"] = sketch.directions(records, k, generator(study, round, 2), known)
    about: dict[str, Any] = {"round": round}
    if study.disclosure.clip == "auto":
        about["clip"] = release.usual_norm(gated, study, made)
    manifest = release.manifest_of(study, key, START, records.total, about)
    return messages.write(manifest, arrays, key)


def preview(matrix: CodeMatrix, study: Study, start: bytes, key: SiteKey) -> Parcel:
    """What the site would answer, before anybody has approved it."""
    check_part(matrix, study)
    check_key(key, study)
    message = read_start(start, study)
    clip = clip_of(study, message.manifest)
    about = {"round": message.manifest.round, "start": message.sha256, "clip": clip}
    options = options_of(study)
    made = _natural_start(message, options)
    along = message.arrays.get("directions")
    return release.prepare(matrix, study, made, options, key, about, along)


def answer(
    matrix: CodeMatrix,
    study: Study,
    start: bytes,
    key: SiteKey,
    *,
    approved_by: str,
    ledger: Ledger | None,
    sealed: bool = False,
) -> bytes:
    """A site's answer, through its gate.

    approved_by: the person who lets it leave; ledger: the site's release log (None only where
    nothing leaves, as in `fit`); sealed: encrypt it to the hub.
    """
    parcel = preview(matrix, study, start, key)
    data = parcel.send(key, approved_by=approved_by, ledger=ledger)
    return seal(data, hub_of(study)) if sealed else data


def finish(
    matrix: CodeMatrix,
    study: Study,
    start: bytes,
    answers: Sequence[bytes],
    key: SiteKey | None = None,
    *,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> tuple[Daniel, Report]:
    """The hub's model from the start and the answers, in any order.

    key: the hub's, where answers are sealed.  Repeated files count once.  An open study may be
    finished with some sites missing, and again when they have come; a masked one needs them all.
    checkpoint: a file for the solver's state, from which an interrupted finish goes on.
    """
    check_part(matrix, study)
    opening = read_start(start, study)
    options = options_of(study, opening.manifest.round)
    made = _natural_start(opening, options)
    used = read_answers(answers, study, opening, key)
    clip = clip_of(study, opening.manifest)
    along = opening.arrays.get("directions")
    sums, sites = _collect(matrix, study, made, options, used, clip, along)
    kept = _kept(sums, study)
    d = study.disclosure
    left_out = d.floor if d.release == "open" else 1
    tied, scale = made.coords.tied, made.coords.scale
    mean = totals.mean_answer(sums, sites, scale, kept, left_out, directions=along, tied=tied)
    total = float(sums.totals[0])
    del sums  # with very many codes as large as what is made of it
    hub = records_from(matrix.Z if kept.size == matrix.shape[1] else matrix.Z[:, kept])
    begin = _part(made, kept)
    rng = generator(study, opening.manifest.round, 1)
    mean, options = denoise.read(mean, _told(study, used), hub, begin, options, rng)
    keeper = None if checkpoint is None else Checkpoint(checkpoint, _fit_key(study, opening, used))
    options = replace(options, progress=progress, keeper=keeper)
    fitted = natural.finish(hub, begin, mean, options, rng)
    if keeper is not None:
        keeper.clear()
    model = _model(study, fitted, kept, hub, mean, _contributors(study, used))
    return model, report_of(study, opening, used, model, total)


def _fit_key(study: Study, opening: Message, used: Mapping[str, Message]) -> str:
    """What makes one finish the same as another: its study, start, answers and program."""
    parts = [study.hash, opening.sha256, *sorted(m.sha256 for m in used.values())]
    return " ".join([*parts, version("daniel")])


def fit(
    matrices: Mapping[str, CodeMatrix],
    study: Study,
    *,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> tuple[Daniel, Report]:
    """All of it on one machine: the same messages, with keys that are made for this run.

    Without a roster the site with most records is the hub.
    """
    keys = {name: make_key(name) for name in matrices}
    study = with_keys(study, keys, {name: m.shape[0] for name, m in matrices.items()})
    hub = hub_of(study).name
    model: Daniel | None = None
    for number in range(1, study.rounds + 1):
        opening = start(
            matrices[hub], study, keys[hub], previous=model, round=number, progress=progress
        )
        files = [
            answer(m, study, opening, keys[name], approved_by="one machine", ledger=None)
            for name, m in matrices.items()
        ]
        model, report = finish(
            matrices[hub], study, opening, files, progress=progress, checkpoint=checkpoint
        )
    assert model is not None
    return model, report


# --- the start ------------------------------------------------------------------------------------


def read_start(data: bytes, study: Study) -> Message:
    """A start of this study, signed by its hub."""
    message = messages.read(data)
    messages.verify(message, study, START)
    return message


def _natural_start(message: Message, options: natural.Options) -> natural.Start:
    a = message.arrays
    scale = a["scale"]
    tie = 1 / (2 * scale**2) if options.intercept == "tied" else None
    coords = Coordinates(a["center"], scale, 1 / scale, tie)
    return natural.Start(coords, a["U"], a["signs"].astype(np.float64), a["b"][None, :])


def _start_of(
    model: Daniel, study: Study, records: Records, options: natural.Options
) -> natural.Start:
    """The model of a round as the start of the next; a code that it dropped stands at zero."""
    names = model.feature_names_in_.tolist()
    position = {code: j for j, code in enumerate(study.codes.names)}
    unknown = [code for code in names if code not in position]
    if unknown:
        raise InputError("The model has codes that are not in the study: it is of another study.")
    own = np.array([position[code] for code in names])
    p = len(position)
    tied = options.intercept == "tied"
    coords = natural_coordinates(np.zeros(p), records.total, tied=tied)
    center, scale = coords.center.copy(), coords.scale.copy()
    center[own], scale[own] = model._coords.center, model._coords.scale
    b = np.log(center / (1 - center))
    b[own] = model._b[0]
    U = np.zeros((p, model._U.shape[1]), dtype=np.float32)
    U[own] = model._U
    signs = np.where((model._U == model._V).all(axis=0), 1.0, -1.0)
    return natural.Start(Coordinates(center, scale, 1 / scale), U, signs, b[None, :])


def _part(made: natural.Start, kept: np.ndarray) -> natural.Start:
    c = made.coords
    tie = None if c.tie is None else c.tie[kept]
    coords = Coordinates(c.center[kept], c.scale[kept], c.gain[kept], tie)
    return natural.Start(coords, made.U[kept], made.signs, made.b[:, kept])


# --- the answers ----------------------------------------------------------------------------------


def read_answers(
    answers: Sequence[bytes], study: Study, opening: Message, key: SiteKey | None = None
) -> dict[str, Message]:
    """Verified answers by site; the same file twice counts once, anything else is refused."""
    found: dict[str, Message] = {}
    for data in answers:
        message = read_answer(data, study, opening, key)
        name = message.manifest.site
        if name in found and found[name].manifest.payload != message.manifest.payload:
            raise FormatError(
                f"There are two different answers of {name!r}: ask the site which one is right, "
                "and leave the other out."
            )
        for other in found.values():
            same = other.manifest.payload == message.manifest.payload
            if same and other.manifest.site != name:
                raise FormatError(
                    f"{other.manifest.site!r} and {name!r} sent the same numbers: one of them has "
                    "answered with the other's records."
                )
        found[name] = message
    order = [site.name for site in study.sites if site.name in found]
    return {name: found[name] for name in order}


def read_answer(data: bytes, study: Study, opening: Message, key: SiteKey | None = None) -> Message:
    """An answer to this start, signed by a site of the roster."""
    message = messages.read(data if key is None else unseal(data, key))
    site = messages.verify(message, study, ANSWER)
    if message.manifest.start != opening.sha256:
        raise FormatError(
            f"The answer of {site.name!r} is to another start ({message.manifest.start[:8]}, round "
            f"{message.manifest.round}) than this one ({opening.sha256[:8]}): send this start to "
            "the site, which answers it if it has not released an answer in this round."
        )
    if message.manifest.clip != clip_of(study, opening.manifest):
        raise FormatError(
            f"The answer of {site.name!r} has another clip than the start: it cannot be used."
        )
    return message


def _collect(
    matrix: CodeMatrix,
    study: Study,
    made: natural.Start,
    options: natural.Options,
    used: Mapping[str, Message],
    clip: float | None,
    along: np.ndarray | None = None,
) -> tuple[Sums, list[totals.Site]]:
    """The sums over all sites, and what is known of each."""
    missing = [site.name for site in study.sites if site.name not in used]
    if study.disclosure.release == "masked" and missing:
        raise InputError(
            f"The answer of {', '.join(missing)} is missing, and masks cancel only in the sum over "
            f"all {len(study.sites)} sites: wait for it and finish again with all answers; if it "
            "never comes, take the site off the roster, raise the study's epoch, and let every "
            "site answer a new start."
        )
    p = len(study.codes.names)
    told = _told(study, used)
    sites = [totals.of_message(message) for message in told]
    parts = [totals.add_up(told, p)] if told else []
    if study.disclosure.release == "open":  # the hub's own records stay, and need no gate
        Q = None if study.disclosure.epsilon is None else directions(made)
        own = site_sums(matrix, made, options, clip=clip, Q=Q, directions=along)
        parts.append(own)
        sites.append(totals.Site(float(own.totals[0]), own.patients == 0))
    return totals.sum_of(parts), sites


def _told(study: Study, used: Mapping[str, Message]) -> list[Message]:
    """The answers that count: in an open study the hub's records stand for its own."""
    hub, masked = hub_of(study).name, study.disclosure.release == "masked"
    return [message for name, message in used.items() if masked or name != hub]


def _contributors(study: Study, used: Mapping[str, Message]) -> list[str]:
    """The sites whose records are in the model; in an open study the hub is always one."""
    own = hub_of(study).name if study.disclosure.release == "open" else None
    return [site.name for site in study.sites if site.name in used or site.name == own]


def _kept(sums: Sums, study: Study) -> np.ndarray:
    """The codes that may be shown: those of at least `floor` patients in all sites together.

    Noise protects without a floor, and to drop codes by noisy counts would only lose some.
    """
    if study.disclosure.epsilon is not None:
        return np.arange(sums.patients.size)
    kept = np.flatnonzero(sums.patients > study.disclosure.floor - 0.5)
    if kept.size < 2:
        raise InputError(
            f"Fewer than two codes have {study.disclosure.floor} patients or more: there is "
            "nothing to fit."
        )
    return kept


# --- the model ------------------------------------------------------------------------------------


def _model(
    study: Study,
    fitted: natural.Fit,
    kept: np.ndarray,
    hub: Records,
    mean: natural.Answer,
    sites: list[str],
) -> Daniel:
    model = Daniel(**asdict(study.model))
    names = [study.codes.names[j] for j in kept]
    model._adopt(fitted, kinds(names, len(names)))
    model.n_features_in_ = len(names)
    model.feature_names_in_ = np.array(names, dtype=object)
    model.sites_, model.hub_ = sites, hub_of(study).name
    model._origin |= {
        "sites": len(sites),
        "records": rounded(mean.n),
        "hub_records": rounded(hub.total),
    }
    return model
