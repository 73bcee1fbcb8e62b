"""A study's files in plain words: what each is, who made it, from what, what it does not hold."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from daniel.data.sitefolder import INFO, read_info
from daniel.errors import DanielError, FormatError
from daniel.federated import folder, messages
from daniel.federated.files import read_file
from daniel.federated.messages import ANSWER, Manifest, Message, rounded
from daniel.federated.release import Parcel
from daniel.federated.sealed import is_sealed
from daniel.study import Study

LIMIT = 1 << 31
MESSAGE = ".daniel"  # how the files of messages end, unless somebody has renamed them
EXPLAINED = "messages, studies, site folders, model folders, and the files in or beside them"
WORDS = {
    "absent": "codes that no record of this site has (1), or that its floor left out",
    "masked": "all numbers of the answer, masked: random to everyone but in the sum of all sites",
    "triangle": "sums over records for each pair of codes, upper triangle",
    "sketch": "sums over records for each code and each direction of the start",
    "b": "sums over records for each code: intercepts",
    "counts": "records with each code",
    "patients": "patients with each code",
    "totals": "number of records, number of patients",
    "center": "share of the hub's records with each code",
    "scale": "scale of each code",
    "U": "factor of the starting dependence matrix",
    "signs": "signs of its columns",
    "directions": "directions along which sites answer, from the correlations of the hub's codes",
}
INTERCEPTS = "the hub's intercepts"  # `b` of a start
# Files that stand beside others, by name.
BESIDE = {
    "embedding.tsv": "Part of a model folder: one vector a code, and no record.",
    "embedding.parquet": "Part of a model folder: one vector a code, and no record.",
    "report.md": "Part of a model folder: who contributed, under which terms.",
    "codes.tsv": "A code list, one code a line; a study can adopt it as codes.file.",
    "summary.txt": "The summary of a site folder: rounded numbers, the part that may leave.",
    "records.safetensors": "Part of a site folder: patients' records, which must not leave.",
    "patients.parquet": "Part of a site folder: patients' ids, which must not leave.",
    "codes.parquet": "Part of a site folder: exact counts of codes, which must not leave.",
}


def describe(path: Path, study: Study | None = None) -> str:
    """What a file or folder is; with the study, whether its signature is right."""
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".toml":
        return _study(Study.load(path))
    data = read_file(path, LIMIT)
    if path.name in BESIDE:
        return BESIDE[path.name]
    if is_sealed(data):
        return f"A sealed message of {len(data):,} bytes: only its receiver's key opens it."
    if data[:1] == b"{":
        return _json(path, data)
    if path.name == folder.MODEL:
        return _model(path)
    try:
        return _message(messages.read(data), study)
    except FormatError:
        try:
            return _model(path)
        except DanielError:
            pass
        if path.suffix == MESSAGE:
            raise
        raise _unknown(path) from None


def _unknown(path: Path) -> FormatError:
    return FormatError(f"{path} is none of what can be explained ({EXPLAINED}), or damaged.")


def describe_parcel(parcel: Parcel) -> str:
    """Exactly what would leave: the manifest, and every array with its size."""
    lines = [_headline(parcel.manifest), "", "Manifest:"]
    lines += [f"  {k} = {v}" for k, v in parcel.manifest.content().items() if k != "payload"]
    lines += ["", "Numbers:", *_arrays(parcel.manifest, parcel.arrays)]
    lines += ["", *_promises(parcel.manifest)]
    return "\n".join(lines)


def _message(message: Message, study: Study | None) -> str:
    m = message.manifest
    if study is None:
        checked = "not checked: name the study with --study"
    else:
        messages.verify(message, study, m.kind)
        checked = f"valid: it is from {m.site!r}, and for this study"
    facts = {
        "Made": f"{m.created} by daniel {m.daniel}, message format {m.format}",
        "Study": f"{m.study_name!r}, epoch {m.epoch}, round {m.round}, {m.study}",
        "Records": f"about {m.records:,}" if m.records else "not told",
        "Codes": f"{m.codes:,}",
        "Thresholds": f"at least {m.minimum_patients} patients and {m.minimum_records} records a "
        f"site; floor {m.floor} patients a code",
        "SHA-256": message.sha256,
        "Signature": checked,
    }
    if m.start:
        facts["Answer to"] = f"start {m.start}"
    lines = [_headline(m), "", *_listed(facts), "", "Numbers:", *_arrays(m, message.arrays)]
    return "\n".join([*lines, "", *_promises(m)])


def _headline(m: Manifest) -> str:
    what = f"An answer ({m.release})" if m.kind == ANSWER else "A start"
    return f"{what} of {m.site!r} ({m.role})."


def _arrays(m: Manifest, arrays: Mapping[str, np.ndarray]) -> list[str]:
    size = max(len(name) for name in arrays)
    words = WORDS if m.kind == ANSWER else WORDS | {"b": INTERCEPTS}
    return [
        f"  {name:{size}}  {'×'.join(map(str, a.shape))} {a.dtype}, {a.nbytes:,} bytes: "
        f"{words[name]}"
        for name, a in sorted(arrays.items())
    ]


def _promises(m: Manifest) -> list[str]:
    """What the numbers do and do not tell."""
    lines = ["It holds no record, no patient and no date of a patient."]
    if m.kind != ANSWER:
        lines.append(
            f"Codes of fewer than {m.floor} patients at the hub stand in it as if nobody had them."
        )
    elif m.release == "masked":
        lines.append(
            "Alone it is random; with the answers of all sites of the roster the hub learns their "
            "sum, and can take its own numbers off."
        )
        if m.epsilon is None:
            lines.append(
                f"The hub then drops codes of fewer than {m.floor} patients in all. Of few records "
                "in all a sum still tells about single ones (docs/privacy.md)."
            )
    elif m.epsilon is None:
        lines.append(
            f"Codes of fewer than {m.floor} patients at the site are left out, which costs small "
            "sites their rare codes. Pairs of the others are told as they are, also where few "
            "patients have both: send it only to a hub that is trusted with that."
        )
    if m.sketch and m.kind == ANSWER:
        lines.append(
            f"It is a sketch: pairs of codes are told along {m.sketch:,} directions that the start "
            "names, and no further. That is smaller, and not by itself safer."
        )
    elif m.sketch:
        lines.append(
            f"It asks for sketches along {m.sketch:,} directions, which tell how the hub's codes "
            "go together."
        )
    if m.clip is not None:
        whose = "No patient's share has" if m.kind == ANSWER else "No share of an answer may have"
        lines.append(f"{whose} a norm above {m.clip:g}.")
    if m.epsilon is not None:
        lines.append(
            f"Gaussian noise of standard deviation {m.noise:.4g} was added: epsilon {m.epsilon:g}, "
            f"delta {m.delta:g} for a patient. It protects rare codes too, and no floor is used."
        )
    return lines


def _folder(path: Path) -> str:
    if (path / INFO).is_file():
        return _site(read_info(path))
    if (path / folder.REPORT).is_file():
        return f"A model folder.\n\n{folder.read_report(path).to_markdown()}"
    raise _unknown(path)


def _site(info: dict[str, Any]) -> str:
    facts = {
        "Site": info["site"],
        "Study": f"{info['study_name']!r}, epoch {info['epoch']}, {info['study']}",
        "Made": f"{info['made']} by daniel {info['versions']['daniel']}",
    }
    for name in ("records", "patients"):
        count = info["facts"].get(name)
        if isinstance(count, int):
            facts[name.capitalize()] = f"about {rounded(count):,}"
    warning = "It holds patients' data and must not leave the site; only summary.txt may."
    return "\n".join(["A site folder.", "", *_listed(facts), "", warning])


def _json(path: Path, data: bytes) -> str:
    if b'"previous"' in data.split(b"\n", 1)[0]:
        return f"A release log of {data.count(bytes([10]))} lines: what left this site, and when."
    try:
        content = json.loads(data)
        kind = content.get("kind")
    except (AttributeError, ValueError, RecursionError):
        raise _unknown(path) from None
    if kind == "daniel key":
        return (
            f"The private keys of {str(content.get('name'))!r}. They must not leave the site, and "
            "are not shown."
        )
    if kind == "daniel site":
        return _site(read_info(path.parent))
    if path.name == folder.REPORT:
        return folder.read_report(path.parent).to_markdown()
    if {"loss", "calibration"} <= set(content):
        return "A validation: how a model fits a site's records, in aggregate numbers only."
    if "disclosure" in content:
        return f"The content of study {str(content.get('name'))!r}, as its hash is taken of it."
    raise _unknown(path)


def _study(study: Study) -> str:
    d = study.disclosure
    facts = {
        "Name": f"{study.name!r}, epoch {study.epoch}, {study.rounds} round(s)",
        "Hash": study.hash,
        "Codes": f"{len(study.codes.names):,}" if study.has_list else "by rule, no list yet",
        "Release": d.release,
        "Thresholds": f"at least {d.minimum_patients} patients and {d.minimum_records} records a "
        f"site; floor {d.floor} patients a code",
        "Clip, epsilon": f"{d.clip}, {d.epsilon}",
        "Answers": f"a sketch along {d.sketch} directions" if d.sketch else "every pair of codes",
        "Roster": ", ".join(f"{s.name} ({s.role})" for s in study.sites) or "none yet",
    }
    return "\n".join(["A study: what all sites agree on.", "", *_listed(facts)])


def _model(path: Path) -> str:
    model = folder.read_model(path)
    facts = {
        "Codes": f"{model.n_features_in_:,}",
        "Rank": str(model.rank_),
        "Sites": str(len(getattr(model, "sites_", []) or [None])),
    }
    note = "It holds one vector a code, and no record."
    return "\n".join(["A model.", "", *_listed(facts), "", note])


def _listed(facts: Mapping[str, str]) -> list[str]:
    size = max(map(len, facts))
    return [f"  {name:{size}}  {value}" for name, value in facts.items()]
