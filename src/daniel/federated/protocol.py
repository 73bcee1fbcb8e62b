"""The exchange as three pure functions: bytes in, bytes out.

    start(matrix, study, key)                        at the hub:     the start
    answer(matrix, study, start, key, ...)           at every site:  its answer
    finish(matrix, study, start, answers, key)       at the hub:     the model and a report

The same bytes travel in memory, as files (`daniel.federated.folder`) and over a network.  Every
site, the hub included, answers; an open study may do without the hub's own answer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from daniel.core import natural, sketch
from daniel.core.checkpoint import Checkpoint
from daniel.core.coordinates import Coordinates, natural_coordinates
from daniel.core.records import Records, records_from
from daniel.core.solve import Progress
from daniel.errors import InputError, ParameterError, ReleaseError
from daniel.estimator import Daniel
from daniel.federated import denoise, messages, release, totals
from daniel.federated.answers import (
    Answers,
    check_complete,
    contributors,
    counting,
    read_again,
    read_answers,
)
from daniel.federated.directions import directions
from daniel.federated.keys import SiteKey, check_key, make_key
from daniel.federated.ledger import Ledger
from daniel.federated.messages import START, Message, rounded
from daniel.federated.release import Parcel
from daniel.federated.report import Report, report_of
from daniel.federated.resume import key_of_finish, key_of_fit
from daniel.federated.sealed import seal
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
    release.check_size(matrix, study, key.name)
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
    answers: Answers,
    key: SiteKey | None = None,
    *,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    run: str | None = None,
) -> tuple[Daniel, Report]:
    """The hub's model from the start and the answers, in any order.

    key: the hub's, where answers are sealed.  Repeated files count once.  An open study may be
    finished with some sites missing, and again when they have come; a masked one needs them all.
    checkpoint: a file for the solver's state, from which an interrupted finish goes on; it stays,
    and its owner removes it when the model is safe.  run: what tells this run from others, where
    start and answers are made anew each time.
    """
    check_part(matrix, study)
    opening = read_start(start, study)
    options = options_of(study, opening.manifest.round)
    made = _natural_start(opening, options)
    used = read_answers(answers, study, opening, key)
    check_complete(study, used)
    told = counting(study, used)
    clip = clip_of(study, opening.manifest)
    along = opening.arrays.get("directions")
    whole = read_again(told, answers, key)
    sums, own = _collect(matrix, study, made, options, whole, clip, along)
    sites = [*map(totals.of_message, told), *([] if own is None else [own])]
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
    mean, options = denoise.read(mean, told, hub, begin, options, rng)
    keeper = None
    if checkpoint is not None:
        keeper = Checkpoint(checkpoint, run or key_of_finish(matrix, study, opening, used))
    options = replace(options, progress=progress, keeper=keeper)
    fitted, records = natural.finish(hub, begin, mean, options, rng), mean.n
    del mean  # an embedding of very many codes needs the room
    model = _model(study, fitted, kept, hub, records, contributors(study, used))
    return model, report_of(study, opening, used, model, total)


def fit(
    matrices: Mapping[str, CodeMatrix],
    study: Study,
    *,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> tuple[Daniel, Report]:
    """All of it on one machine: the same messages, with keys that are made for this run.

    Without a roster the site with most records is the hub.  The report names the study as given,
    without those keys.  checkpoint: as of `finish`, one for each round (`checkpoint_of`).
    """
    given = study.hash
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
        run = None if checkpoint is None else key_of_fit(matrices, study, number)
        state = None if checkpoint is None or run is None else checkpoint_of(checkpoint, number)
        model, report = finish(
            matrices[hub], study, opening, files, progress=progress, checkpoint=state, run=run
        )
    assert model is not None
    return model, replace(report, study=given)


def checkpoint_of(checkpoint: Path, round: int) -> Path:
    """The file of one round of `fit`."""
    return checkpoint.with_name(f"{checkpoint.name}.{round}")


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


def _collect(
    matrix: CodeMatrix,
    study: Study,
    made: natural.Start,
    options: natural.Options,
    told: Iterable[Message],
    clip: float | None,
    along: np.ndarray | None = None,
) -> tuple[Sums, totals.Site | None]:
    """The sums over all sites, and in an open study what is known of the hub itself."""
    if study.disclosure.release == "masked":
        return totals.add_up(told, len(study.codes.names)), None
    # The hub's own records stay, and need no gate.
    Q = None if study.disclosure.epsilon is None else directions(made)
    own = site_sums(matrix, made, options, clip=clip, Q=Q, directions=along)
    sums = totals.sum_of(chain(map(totals.open_sums, told), [own]))
    return sums, totals.Site(float(own.totals[0]), own.patients == 0)


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
    records: float,
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
        "records": rounded(records),
        "hub_records": rounded(hub.total),
    }
    return model
