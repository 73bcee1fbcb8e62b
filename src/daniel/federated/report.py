"""The report of a finish: who contributed, under which terms, and what came of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version

from daniel.errors import FormatError
from daniel.estimator import Daniel
from daniel.federated.messages import Message, rounded
from daniel.federated.terms import clip_of
from daniel.study import Site, Study


@dataclass(frozen=True)
class Contribution:
    """One site of the roster; records are rounded to two digits."""

    site: str
    role: str
    state: str  # used, own records or missing
    records: int | None = None
    created: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Report:
    """What a model folder says about its model."""

    study: str
    study_name: str
    epoch: int
    round: int
    start: str
    release: str
    floor: int
    epsilon: float | None
    delta: float | None
    clip: float | None
    records: int  # of all sites, rounded to two digits
    codes: int
    codes_dropped: int
    rank: int
    penalty: float
    converged: bool
    daniel: str
    sites: list[Contribution] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sketch: int = 0  # directions; 0: answers told every pair of codes
    window: str = ""  # how records were made; "" in older reports

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        try:
            content = json.loads(text)
            content["sites"] = [Contribution(**site) for site in content["sites"]]
            return cls(**content)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise FormatError("The report is damaged: run `daniel finish` again.") from None

    def to_markdown(self) -> str:
        lines = [
            f"# {self.study_name}, epoch {self.epoch}, round {self.round}",
            "",
            f"{self.codes:,} codes, rank {self.rank}, about {self.records:,} records.",
            "",
            "| site | role | state | records, about | created |",
            "|---|---|---|---|---|",
            *(
                f"| {s.site} | {s.role} | {s.state} | {_number(s.records)} | {s.created or '–'} |"
                for s in self.sites
            ),
            "",
            *(f"- {note}" for note in (*self.terms(), *self.notes)),
            "",
            f"Study {self.study}",
            f"Start {self.start}",
            f"daniel {self.daniel}, penalty {self.penalty:.4g}, "
            f"{'converged' if self.converged else 'stopped before it converged'}",
        ]
        return "\n".join(lines) + "\n"

    def terms(self) -> list[str]:
        masked = self.release == "masked"
        yes = [
            "Masked: the hub saw the sum over all sites, and no single answer."
            if masked
            else "Open: the hub saw every answer."
        ]
        if self.epsilon is None:
            if not masked:
                yes.append(
                    f"Codes of fewer than {self.floor} patients at a site left it as absent, which "
                    "costs small sites their rare codes (docs/privacy.md)."
                )
            among = "in all sites together" if masked else "among the answers and the hub's own"
            yes.append(
                f"{self.codes_dropped:,} codes of fewer than {self.floor} patients {among} were "
                "dropped."
            )
        if self.sketch:
            yes.append(
                f"Answers were sketches along {self.sketch:,} directions: what two codes have in "
                "common besides is the start's alone."
            )
        if self.clip is not None:
            yes.append(f"No patient's share of an answer has a norm above {self.clip:g}.")
        if self.epsilon is not None:
            yes.append(
                f"Gaussian noise: ({self.epsilon:g}, {self.delta:g})-differential privacy for the "
                "patients of every site but the hub, whose records the start and the fit use. It "
                "protects rare codes too: answers had no floor, and no code was dropped."
            )
        return yes


def _number(count: int | None) -> str:
    return f"{count:,}" if count else "–"


def report_of(
    study: Study, opening: Message, used: Mapping[str, Message], model: Daniel, records: float
) -> Report:
    """The report of a model; used: the answers by site, records: of all of them."""
    d = study.disclosure
    sites = [_contribution(site, used.get(site.name), d.release) for site in study.sites]
    notes = []
    if any(site.state == "missing" for site in sites):
        notes.append(
            "Some sites are missing; run `daniel finish` again with their answers when they come."
        )
    return Report(
        study=study.hash,
        study_name=study.name,
        epoch=study.epoch,
        round=opening.manifest.round,
        start=opening.sha256,
        release=d.release,
        floor=d.floor,
        epsilon=d.epsilon,
        delta=None if d.epsilon is None else d.delta,
        clip=clip_of(study, opening.manifest),
        records=rounded(records),
        codes=model.n_features_in_,
        codes_dropped=len(study.codes.names) - model.n_features_in_,
        rank=model.rank_,
        penalty=model.penalty_,
        converged=bool(model.converged_),
        daniel=version("daniel"),
        sites=sites,
        notes=notes,
        sketch=opening.manifest.sketch,
        window=str(study.window),
    )


def _contribution(site: Site, message: Message | None, release: str) -> Contribution:
    own = site.role == "hub" and release == "open"
    if message is None:
        return Contribution(site.name, site.role, "own records" if own else "missing")
    m = message.manifest
    return Contribution(site.name, site.role, "used", m.records, m.created, message.sha256)
