"""Study: what all sites agree on, as a frozen dataclass and as a commented file `study.toml`.

    study = Study.load("study.toml")        unknown keys and other versions are refused
    study.hash                              SHA-256 of its content, in every file made from it
    study.write("study.toml")               the same study as a commented file

Comments, paths and the layout of files are not content: two sites that keep the same maps in
different folders hold the same study.  The names in a code file are content.
"""

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from daniel import studyfile
from daniel.errors import FormatError, InputError, ParameterError

VERSION = 1
SITE_NAME = re.compile(r"[\w.\- ]{1,80}")
HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")
LOCAL = ("file", "columns", "vocabulary")  # where and how a site keeps a map: not in the hash


def about(help: str, example: Any = None) -> dict[str, Any]:
    """What the file says about a key: a comment, and what to show where it has no value."""
    return {"help": help, "example": example}


def key(default: Any, help: str, example: Any = None) -> Any:
    """A key of the study file with its default."""
    return field(default=default, metadata=about(help, example))


@dataclass(frozen=True)
class Codes:
    """The columns: a list that all sites share, or the rule that makes one from a site's data."""

    file: str | None = key(
        None,
        "The code list, one code a line (VOCABULARY:code): it fixes the columns and their order.",
        "codes.tsv",
    )
    names: tuple[str, ...] = key((), "The same list, written here.", ("PheCode:290.1", "CCS:47"))
    minimum_patients: int = key(
        11,
        "Without a list, `daniel prepare` makes one: the codes of at least so many patients. Adopt "
        "the codes.tsv that it writes as `file`.",
    )
    vocabularies: tuple[str, ...] = key(
        (),
        "Without a list: codes of these vocabularies only. Empty: of every vocabulary that is not "
        "the source of a map.",
        ("PheCode", "CCS", "RxNorm"),
    )


@dataclass(frozen=True)
class Window:
    """How the events of a patient become records."""

    months: int = key(6, "A record holds the codes of one patient in so many months.")
    start: Literal["patient", "calendar"] = key(
        "patient",
        "patient: windows start at the patient's first event. calendar: at the same dates for "
        "everyone, such as January 1 and July 1.",
    )

    def __str__(self) -> str:
        return f"{self.months} months, start {self.start}"


@dataclass(frozen=True)
class Omop:
    """Which tables of an OMOP database are read, and which of their codes."""

    condition: Literal["standard", "source", "no"] = key(
        "standard", "standard: codes of the standard concepts. source: those the hospital recorded."
    )
    procedure: Literal["standard", "source", "no"] = key("standard", "As for conditions.")
    drug: Literal["ingredient", "era", "standard", "source", "no"] = key(
        "ingredient",
        "ingredient: drug_exposure, rolled up by concept_ancestor. era: ingredients of drug_era.",
    )
    measurement: Literal["standard", "source", "no"] = key("no", "Presence only, not the value.")
    observation: Literal["standard", "source", "no"] = key("no", "Presence only, not the value.")


@dataclass(frozen=True)
class CodeMap:
    """A file that turns codes of some vocabularies into codes of another."""

    source: tuple[str, ...] = key((), "Vocabularies that the map reads.", ("ICD9CM", "ICD10CM"))
    target: str = key("", "The vocabulary that it writes.", "PheCode")
    file: str = key("", "CSV, TSV or Parquet, .gz too: two columns, code and target.", "map.csv")
    columns: tuple[str, ...] = key(
        (), "Names of the two columns, where the file has more.", ("code", "phecode")
    )
    vocabulary: str | None = key(
        None, "Name of the column that holds each row's vocabulary, if there is one.", "vocabulary"
    )
    parents: str | None = key(
        None, "A second file, code and parent: an event has the parents of its code too.", "up.csv"
    )
    many: Literal["all", "first"] = key(
        "all", "A code with several targets gets all of them, or the first in alphabetical order."
    )
    sha256: str | None = key(
        None, "Hash of the content, as the summary of `daniel prepare` shows it: pins the map.", "…"
    )

    def check(self) -> None:
        complete = bool(self.source and self.target and self.file)
        _need(complete, "maps", "each needs source, target and file")
        _need(len(self.columns) in {0, 2}, "maps.columns", "name two columns: code and target")


@dataclass(frozen=True)
class SiteMaps:
    """The content of a site's own file of maps."""

    maps: tuple[CodeMap, ...] = key((), "Maps of local codes, applied before those of the study.")


@dataclass(frozen=True)
class Model:
    """The parameters of `daniel.Daniel`."""

    recipe: Literal["natural", "paper"] = key("natural", "natural, or the paper's Algorithm 1.")
    n_components: int | Literal["auto"] = key("auto", "Columns of the embedding.")
    penalty: float | Literal["auto"] = key("auto", "Weight of the nuclear norm.")
    intercept: Literal["site", "shared", "tied"] = key("site", "Whose intercepts.")
    surrogate: Literal["hub", "model"] = key("hub", "Whose curvature the hub uses.")
    damping: float | Literal["auto"] = key("auto", "How strongly the fit is held to its start.")
    step_size: float = key(0.1, "The paper recipe's fixed step.")
    max_iter: int = key(200, "At most so many iterations.")
    tol: float = key(1e-5, "When to stop.")
    random_state: int = key(0, "Seed of everything random in the fit.")


@dataclass(frozen=True)
class Disclosure:
    """What may leave a site."""

    release: Literal["masked", "open"] = key(
        "masked",
        "masked: the hub sees only the sum over sites (three or more). open: it sees each answer, "
        "without codes of fewer than `floor` patients at the site.",
    )
    minimum_patients: int = key(11, "A site with fewer patients sends nothing.")
    minimum_records: int = key(11, "A site with fewer records sends nothing.")
    floor: int = key(11, "Codes of fewer patients are dropped: in total (masked), or per site.")
    clip: float | Literal["auto"] | None = key(
        None, "Largest norm of one patient's share; auto: twice the median of the hub's.", "auto"
    )
    sketch: int | None = key(
        None,
        "Answer along so many directions, which the start brings, instead of for every pair of "
        "codes: for thousands of codes. Three times n_components loses little.",
        300,
    )
    epsilon: float | None = key(None, "Differential privacy, with `delta`; needs `clip`.", 4.0)
    delta: float = key(1e-6, "Used with `epsilon`.")


@dataclass(frozen=True)
class Site:
    """One site of the roster."""

    name: str = key("", "Name of the site.", "north")
    role: Literal["hub", "site"] = key("site", "One site is the hub: it starts and finishes.")
    signing_key: str | None = key(None, "Public Ed25519 key, 64 hexadecimal digits.", "…")
    masking_key: str | None = key(None, "Public X25519 key, 64 hexadecimal digits.", "…")


@dataclass(frozen=True)
class Study:
    """What all sites agree on.  `folder` is where its relative paths start."""

    version: int = key(VERSION, "Version of this file's format.")
    name: str = key("my study", "Name of the study.")
    epoch: int = key(1, "A site releases once in an epoch; raise it to run the study again.")
    rounds: int = key(1, "Exchanges between hub and sites.")
    codes: Codes = field(default_factory=Codes, metadata=about("The columns of all records."))
    window: Window = field(default_factory=Window, metadata=about("From events to records."))
    omop: Omop = field(default_factory=Omop, metadata=about("For OMOP sources."))
    model: Model = field(default_factory=Model, metadata=about("The parameters of daniel.Daniel."))
    disclosure: Disclosure = field(
        default_factory=Disclosure, metadata=about("What may leave a site.")
    )
    maps: tuple[CodeMap, ...] = key((), "Maps between vocabularies, applied in this order.")
    sites: tuple[Site, ...] = key((), "The roster.")
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a study file, and the code file that it names."""
        path = Path(path)
        table = studyfile.read(path)
        if table.get("version") != VERSION:
            found = f"study version {table['version']!r}" if "version" in table else "no version"
            raise FormatError(
                f"{path.name} has {found}, and this daniel reads version {VERSION}: "
                "write it anew with `daniel new`, or install the daniel that wrote it."
            )
        study = studyfile.build(cls, table, path.name)
        study = replace(study, folder=path.parent)
        if study.codes.file is None:
            return study
        if study.codes.names:
            raise FormatError(f"{path.name} has codes.file and codes.names: keep one of them.")
        names = studyfile.read_codes(study.path(study.codes.file))
        return replace(study, codes=replace(study.codes, names=names))

    def path(self, name: str) -> Path:
        """A file that the study names, relative to the folder of the study file."""
        return self.folder / os.path.expanduser(name)

    @cached_property
    def canonical(self) -> bytes:
        """The content as JSON with sorted keys and no blanks: what the hash is taken of."""
        content = {k: v for k, v in asdict(self).items() if k != "folder"}
        content["codes"].pop("file")
        if self.disclosure.sketch is None:  # other versions of daniel give it the same hash
            content["disclosure"].pop("sketch")
        for m in content["maps"]:
            for name in LOCAL:
                m.pop(name)
            m["parents"] = m["parents"] is not None
        return json.dumps(_plain(content), sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content, 64 hexadecimal digits."""
        return hashlib.sha256(self.canonical).hexdigest()

    @property
    def has_list(self) -> bool:
        """Whether the code list is fixed; otherwise a rule makes it."""
        return bool(self.codes.names)

    def site(self, name: str) -> Site:
        """The roster's entry; a study without a roster knows every name."""
        if not name.strip():
            raise InputError("The site has no name: give one, such as 'north'.")
        if not self.sites:
            return Site(name=name)
        for site in self.sites:
            if site.name == name:
                return site
        names = [site.name for site in self.sites]
        raise InputError(
            f"The study has no site {name!r}{studyfile.nearest(name, names)}: its roster is "
            f"{', '.join(names)}."
        )

    def to_toml(self) -> str:
        """The study as a commented file."""
        return studyfile.render(self)

    def write(self, path: str | Path) -> None:
        """Write the commented file; an existing one stays."""
        path = Path(path)
        if path.exists():
            raise InputError(f"{path} exists already: remove it first, or choose another name.")
        studyfile.write_text(path, self.to_toml())


def check_site_name(name: str) -> None:
    """Refuse a name that could not be that of the site's key file, NAME.key."""
    if not SITE_NAME.fullmatch(name) or name.startswith("."):
        raise InputError(
            f"{name!r} cannot be the name of a site: use letters, digits, blanks, dots, - and _."
        )


def load_maps(path: str | Path) -> tuple[CodeMap, ...]:
    """The [[maps]] of a site's own file: its local codes, which no other site has.

    They are not part of the study, nor of its hash.
    """
    path = Path(path)
    maps = studyfile.build(SiteMaps, studyfile.read(path), path.name).maps
    here = path.absolute().parent
    return tuple(
        replace(m, file=str(here / m.file), parents=m.parents and str(here / m.parents))
        for m in maps
    )


def _plain(value: Any) -> Any:
    """4.0 as 4: the same number must give the same hash, however it was written."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- what cannot work -----------------------------------------------------------------------------


def _check(study: Study) -> None:
    """Values that no site could work with, each with one sentence."""
    _check_numbers(study)
    for m in study.maps:
        m.check()
    _check_codes(study.codes.names)
    _check_sites(study)


def _check_numbers(study: Study) -> None:
    d = study.disclosure
    _need(bool(study.name.strip()), "name", "it is empty")
    _need(study.epoch >= 1, "epoch", "it starts at 1")
    _need(study.rounds >= 1, "rounds", "at least one is needed")
    _need(1 <= study.window.months <= 1200, "window.months", "expected 1 to 1200")
    _need(study.codes.minimum_patients >= 1, "codes.minimum_patients", "expected 1 or more")
    for name in ("minimum_patients", "minimum_records", "floor"):
        _need(getattr(d, name) >= 1, f"disclosure.{name}", "expected 1 or more")
    for name in ("clip", "epsilon"):
        value = getattr(d, name)
        sane = value in (None, "auto") or 0 < value < float("inf")
        _need(sane, f"disclosure.{name}", "expected above 0")
    _need(0 < d.delta < 1, "disclosure.delta", "expected between 0 and 1")
    _need(d.epsilon is None or d.clip is not None, "disclosure.epsilon", "it needs disclosure.clip")
    _need(d.sketch is None or d.sketch >= 1, "disclosure.sketch", "expected 1 or more")
    plain = d.sketch is None or d.epsilon is None
    _need(plain, "disclosure.sketch", "with disclosure.epsilon noise has directions of its own")


def _check_codes(names: tuple[str, ...]) -> None:
    _need(all(n.strip() == n != "" for n in names), "codes", "a name is empty or has outer blanks")
    _need(len(set(names)) == len(names), "codes", "a code appears more than once")


def _check_sites(study: Study) -> None:
    names = [site.name for site in study.sites]
    _need(all(name.strip() for name in names), "sites", "a site has no name")
    _need(len(set(names)) == len(names), "sites", "two sites have the same name")
    if not names:
        return
    hubs = sum(site.role == "hub" for site in study.sites)
    _need(hubs == 1, "sites", f"expected one site with role 'hub', found {hubs}")
    two_masked = len(names) == 2 and study.disclosure.release == "masked"
    _need(not two_masked, "disclosure.release", "masks need three sites; with two use 'open'")
    for site in study.sites:
        for value in (site.signing_key, site.masking_key):
            valid = value is None or bool(HEX_KEY.fullmatch(value))
            _need(valid, "sites", f"a key of {site.name!r} is not 64 hexadecimal digits")


def _need(holds: bool, where: str, why: str) -> None:
    if not holds:
        raise ParameterError(f"The study's {where} cannot be used: {why}.")
