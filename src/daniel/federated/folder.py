"""The exchange as files: site folders and keys in; starts, answers and model folders out.

A model folder holds model.safetensors, codes.tsv, embedding.tsv, embedding.parquet, report.json and
report.md, and is replaced only if it holds nothing else.  Everything appears whole or not at all.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from daniel.core.solve import Progress
from daniel.data.sitefolder import read_info, read_site
from daniel.errors import DanielError, FormatError, InputError
from daniel.estimator import Daniel
from daniel.federated import messages, protocol
from daniel.federated.answers import read_answer
from daniel.federated.files import check_folder, check_parent, new_folder, read_file, write_file
from daniel.federated.keys import SiteKey, read_key
from daniel.federated.ledger import Ledger, manifest_in
from daniel.federated.messages import Message
from daniel.federated.release import Parcel
from daniel.federated.report import Report
from daniel.federated.sealed import HEAD, is_sealed, seal, unseal
from daniel.federated.terms import hub_of
from daniel.matrix import CodeMatrix
from daniel.modelfile import IN_FOLDER as MODEL
from daniel.study import Site, Study

REPORT = "report.json"
OWN = (MODEL, "codes.tsv", "embedding.tsv", "embedding.parquet", REPORT, "report.md")
LINES = 1024  # of embedding.tsv, written at once
RECORDS = ("window", "omop")  # parts of a study that make records; codes and maps beside them


@dataclass(frozen=True)
class SiteFiles:
    """What a site keeps: its name, its records, its keys and the log beside them."""

    name: str
    matrix: CodeMatrix
    key: SiteKey
    ledger: Ledger


def open_site(folder: Path, study: Study, key: Path | None) -> SiteFiles:
    """Read a site folder and its key file, NAME.key in the working folder unless given."""
    name = site_name(folder, study)
    path = _key_file(name, key)
    return SiteFiles(name, read_site(folder), _key_of(name, path), Ledger.beside(path))


def _key_file(name: str, key: Path | None) -> Path:
    return Path(f"{name}.key") if key is None else key


def _key_of(name: str, path: Path) -> SiteKey:
    if not path.exists():
        raise InputError(f"There is no key file {path}: name it with --key, or run `daniel keys`.")
    keys = read_key(path)
    if keys.name != name:
        raise InputError(f"{path} holds the keys of {keys.name!r}, and the records are {name!r}'s.")
    return keys


def site_name(folder: Path, study: Study) -> str:
    """The site of a folder whose records were made as the study says."""
    info = read_info(folder)
    try:
        made = json.loads((folder / "study.json").read_bytes())
        now = json.loads(study.canonical)
        same = all(made[part] == now[part] for part in RECORDS)
        same = same and [m["target"] for m in made["maps"]] == [m["target"] for m in now["maps"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise FormatError(f"{folder} is damaged: make it again with `daniel prepare`.") from None
    if not same:
        raise InputError(
            f"The records of {folder} were made with other windows, tables or maps than this "
            "study's: run `daniel prepare` again with this study."
        )
    return str(info["site"])


# --- the three steps ------------------------------------------------------------------------------


def write_start(
    folder: Path,
    study: Study,
    out: Path,
    *,
    key: Path | None = None,
    model: Path | None = None,
    round: int = 1,
    progress: Progress | None = None,
) -> Message:
    """`protocol.start` to a file; model: the folder of the round before."""
    site = open_site(folder, study, key)
    _check_free(out, messages.START)
    previous = None if model is None else _previous(model, study, round)
    data = protocol.start(
        site.matrix, study, site.key, previous=previous, round=round, progress=progress
    )
    message = messages.read(data)
    write_file(out, data)
    site.ledger.written(message.manifest, message.manifest.payload, message.sha256)
    return message


def preview(folder: Path, study: Study, start: Path, *, key: Path | None = None) -> Parcel:
    """What `write_answer` would let out."""
    site = open_site(folder, study, key)
    return protocol.preview(site.matrix, study, read_file(start, _limit(study)), site.key)


def write_answer(
    folder: Path,
    study: Study,
    start: Path,
    out: Path,
    *,
    approved_by: str,
    key: Path | None = None,
    sealed: bool = False,
) -> Message:
    """`protocol.answer` to a file; the log knows of it before and after it has its name."""
    site = open_site(folder, study, key)
    _check_free(out, messages.ANSWER)
    opening = read_file(start, _limit(study))
    parcel = protocol.preview(site.matrix, study, opening, site.key)
    data = parcel.send(site.key, approved_by=approved_by, ledger=site.ledger, out=out)
    message = messages.read(data)
    if sealed:
        data = seal(data, hub_of(study))
    write_file(out, data)
    digest = hashlib.sha256(data).hexdigest()
    site.ledger.written(message.manifest, message.manifest.payload, digest)
    return replace(message, sha256=digest)


def _check_free(out: Path, kind: str) -> None:
    """A message may take the place of one of its kind, and of nothing else: a key, a start."""
    check_parent(out)
    if not out.exists():
        return
    with suppress(OSError):
        with out.open("rb") as file:
            sealed = is_sealed(file.read(HEAD)) and kind == messages.ANSWER
        if sealed or manifest_in(out).get("kind") == kind:
            return
    raise InputError(f"{out} exists already and is no {kind} of daniel: choose another name.")


def _previous(model: Path, study: Study, round: int) -> Daniel:
    """The model of the round before; a model folder says whether it is that."""
    if round > 1 and (model / REPORT).is_file():
        report = read_report(model)
        if (report.study, report.round) != (study.hash, round - 1):
            raise InputError(
                f"{model} is the model of round {report.round} of {report.study_name!r} "
                f"({report.study[:8]}), and that of round {round - 1} of this study "
                f"({study.hash[:8]}) was expected."
            )
    return read_model(model)


def write_model(
    folder: Path,
    study: Study,
    start: Path,
    answers: Sequence[Path],
    out: Path,
    *,
    key: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """`protocol.finish` to a model folder; an older model folder there is replaced.

    Interrupted, it goes on from the state that it leaves beside the folder.
    """
    name = site_name(folder, study)
    if study.site(name).role != "hub":
        raise InputError(f"{name!r} is not the hub of this study: only the hub finishes.")
    _check_model_folder(out)
    limit = _limit(study)
    opening = read_file(start, limit)
    files = _Files(answers, limit, name, _key_file(name, key))
    state = _checkpoint(out)
    model, report = protocol.finish(
        read_site(folder), study, opening, files, progress=progress, checkpoint=state
    )
    save_model(model, report, out)
    state.unlink(missing_ok=True)
    return report


@dataclass(frozen=True)
class _Files:
    """Answers that are read when they are asked for; sealed ones are opened with the hub's key."""

    paths: Sequence[Path]
    limit: int
    hub: str
    key: Path

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int, /) -> bytes:
        data = read_file(self.paths[place], self.limit)
        return unseal(data, _key_of(self.hub, self.key)) if is_sealed(data) else data


def _checkpoint(out: Path) -> Path:
    return out.absolute().with_name(f".{out.name}.state")


def fit(
    folders: Sequence[Path], study: Study, out: Path, *, progress: Progress | None = None
) -> Report:
    """`protocol.fit` of several site folders on this machine; interrupted, it goes on too."""
    names = [site_name(folder, study) for folder in folders]
    if len(set(names)) < len(names):
        raise InputError("Two of the folders are of the same site: give each site once.")
    _check_model_folder(out)
    matrices = {name: read_site(folder) for name, folder in zip(names, folders, strict=True)}
    state = _checkpoint(out)
    model, report = protocol.fit(matrices, study, progress=progress, checkpoint=state)
    save_model(model, report, out)
    for number in range(1, study.rounds + 1):
        protocol.checkpoint_of(state, number).unlink(missing_ok=True)
    return report


def _limit(study: Study) -> int:
    return messages.largest(len(study.codes.names), messages.columns_of(study)) + HEAD + 16


# --- model folders --------------------------------------------------------------------------------


def _check_model_folder(out: Path) -> None:
    """Refuse a place that holds more than an older model folder, or a report of others."""
    check_folder(out, REPORT, OWN)
    if not (out / REPORT).exists():
        return
    try:
        read_report(out)
    except FormatError:
        raise InputError(
            f"{out / REPORT} is no report that this daniel knows, and would be lost: choose "
            "another name, or remove it."
        ) from None


def save_model(model: Daniel, report: Report, out: Path) -> None:
    """Write a model folder."""
    codes = [str(code) for code in model.feature_names_in_]
    columns = {f"d{i + 1}": pa.array(c) for i, c in enumerate(model.embedding_.T)}
    table = pa.table({"code": pa.array(codes, pa.string()), **columns})
    _check_model_folder(out)
    with new_folder(out, REPORT, OWN) as folder:
        model.save(folder / MODEL)
        lines = "".join(f"{code}\n" for code in codes)
        (folder / "codes.tsv").write_text("code\n" + lines, "utf-8")
        pq.write_table(table, folder / "embedding.parquet")
        _write_tsv(table, folder / "embedding.tsv")
        (folder / "report.md").write_text(report.to_markdown(), "utf-8")
        (folder / REPORT).write_text(report.to_json(), "utf-8")


def _write_tsv(table: pa.Table, path: Path) -> None:
    """Names of columns, then a code and its numbers a line; nothing is quoted.

    Arrow refuses quotes in a text that it shall not quote, so it writes the numbers alone.
    """
    style = pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with path.open("wb") as file:
        file.write("\t".join(table.column_names).encode() + b"\n")
        for first in range(0, table.num_rows, LINES):
            part = table.slice(first, LINES)
            empty = pa.nulls(part.num_rows, pa.string())  # a line begins with a tab
            numbers = pa.BufferOutputStream()
            pacsv.write_csv(part.set_column(0, "code", empty), numbers, style)
            lines = numbers.getvalue().to_pybytes().splitlines(keepends=True)
            codes = part["code"].to_pylist()
            file.writelines(c.encode() + line for c, line in zip(codes, lines, strict=True))


def read_model(folder: Path) -> Daniel:
    """The model of a model folder, or of a model file."""
    return Daniel.load(folder)


def read_report(folder: Path) -> Report:
    return Report.from_json(read_file(folder / REPORT, 1 << 20).decode("utf-8", "replace"))


def of_another_study(model: Path, site: Path) -> str:
    """A sentence where model folder and site folder are of studies with other names."""
    if not (model / REPORT).is_file():
        return ""
    ours, theirs = read_report(model).study_name, read_info(site)["study_name"]
    if ours == theirs:
        return ""
    return f"The records are of the study {theirs!r}, the model of {ours!r}: windows may differ."


# --- status ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """A site of the roster, or a file that belongs to none: what is here of it."""

    site: str
    role: str
    state: str  # valid, used, late, missing, own, again, refused
    file: str
    note: str = ""


def status(folder: Path, study: Study, *, key: Path | None = None) -> list[State]:
    """Roster and files of a folder: whose answers are here, valid, late or refused."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    keys = None if key is None else read_key(key)
    files = sorted(folder.rglob("*.daniel"))
    opening, others = _find_start(files, study)
    if opening is None:
        rows = [State("–", "–", "missing", "–", "there is no valid start here")]
        return rows + [State(s.name, s.role, "missing", "–") for s in study.sites]
    used = _used(folder, opening)
    found: dict[str, State] = {}
    refused: list[State] = []
    for path in others:
        row = _state(path, study, opening, keys, used)
        if row.state == "refused" or row.site in found:
            again = row.state != "refused"
            refused.append(State(row.site, row.role, "again", row.file) if again else row)
        else:
            found[row.site] = row
    gone = [_without_answer(s, study) for s in study.sites if s.name not in found]
    order = [site.name for site in study.sites]
    rows = sorted([*found.values(), *gone], key=lambda row: order.index(row.site))
    return rows + refused


def _without_answer(site: Site, study: Study) -> State:
    """Open studies use the hub's records themselves, and need no answer of it."""
    own = site.role == "hub" and study.disclosure.release == "open"
    note = "its own records stand for its answer" if own else ""
    return State(site.name, site.role, "own" if own else "missing", "–", note)


def _find_start(files: Sequence[Path], study: Study) -> tuple[Message | None, list[Path]]:
    """The valid start of the latest round, and the other files."""
    opening, others = None, []
    for path in files:
        try:
            message = protocol.read_start(read_file(path, _limit(study)), study)
        except DanielError:
            others.append(path)
            continue
        if opening is None or message.manifest.round > opening.manifest.round:
            opening = message
    return opening, others


def _used(folder: Path, opening: Message) -> set[str] | None:
    """SHA-256 of the answers in the model of this start, None if there is no such model."""
    for path in sorted(folder.rglob(REPORT)):
        try:
            report = read_report(path.parent)
        except FormatError:
            continue
        if report.start == opening.sha256:
            return {site.sha256 for site in report.sites if site.sha256}
    return None


def _state(
    path: Path, study: Study, opening: Message, key: SiteKey | None, used: set[str] | None
) -> State:
    try:
        data = read_file(path, _limit(study))
        if is_sealed(data) and key is None:
            return State("–", "–", "refused", path.name, "sealed: give the hub's key with --key")
        message = read_answer(data, study, opening, key)
    except DanielError as error:
        return State("–", "–", "refused", path.name, str(error))
    m = message.manifest
    if used is None:
        return State(m.site, m.role, "valid", path.name)
    if message.sha256 in used:
        return State(m.site, m.role, "used", path.name)
    return State(m.site, m.role, "late", path.name, "not in the model: run `daniel finish` again")
