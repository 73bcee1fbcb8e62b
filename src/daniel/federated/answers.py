"""How the hub reads answers: whose they are, and what they hold, one in memory at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from daniel.errors import FormatError, InputError
from daniel.federated import messages
from daniel.federated.keys import SiteKey
from daniel.federated.messages import ANSWER, Message
from daniel.federated.sealed import unseal
from daniel.federated.terms import clip_of, hub_of
from daniel.study import Study


class Answers(Protocol):
    """Bytes of answers by their place: a list, or files that are read when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> bytes: ...


@dataclass(frozen=True)
class Known(Message):
    """An answer that was verified, of whose arrays only `absent` is kept."""

    place: int = 0


def read_answers(
    answers: Answers, study: Study, opening: Message, key: SiteKey | None = None
) -> dict[str, Known]:
    """Verified answers by site; the same file twice counts once, anything else is refused."""
    found: dict[str, Known] = {}
    for place in range(len(answers)):
        known = _known(read_answer(answers[place], study, opening, key), place)
        name, payload = known.manifest.site, known.manifest.payload
        if name in found and found[name].manifest.payload != payload:
            raise FormatError(
                f"There are two different answers of {name!r}: ask the site which one is right, "
                "and leave the other out."
            )
        for other in found.values():
            if other.manifest.payload == payload and other.manifest.site != name:
                raise FormatError(
                    f"{other.manifest.site!r} and {name!r} sent the same numbers: one of them has "
                    "answered with the other's records."
                )
        found[name] = known
    return {site.name: found[site.name] for site in study.sites if site.name in found}


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


def _known(message: Message, place: int) -> Known:
    absent = message.arrays["absent"].copy()  # the others, and the file itself, may go
    return Known(message.manifest, {"absent": absent}, message.sha256, message.signature, place)


def read_again(
    known: Sequence[Known], answers: Answers, key: SiteKey | None = None
) -> Iterator[Message]:
    """The same answers with all their arrays, one by one."""
    for one in known:
        data = answers[one.place]
        message = messages.read(data if key is None else unseal(data, key))
        if message.sha256 != one.sha256:
            raise FormatError(
                f"The answer of {one.manifest.site!r} was changed while it was read: run the "
                "command again."
            )
        yield message


def check_complete(study: Study, used: Mapping[str, Message]) -> None:
    """Refuse to add up masked answers of some sites only."""
    missing = [site.name for site in study.sites if site.name not in used]
    if study.disclosure.release == "masked" and missing:
        raise InputError(
            f"The answer of {', '.join(missing)} is missing, and masks cancel only in the sum over "
            f"all {len(study.sites)} sites: wait for it and finish again with all answers; if it "
            "never comes, take the site off the roster, raise the study's epoch, and let every "
            "site answer a new start."
        )


def counting(study: Study, used: Mapping[str, Known]) -> list[Known]:
    """The answers that count: in an open study the hub's records stand for its own."""
    hub, masked = hub_of(study).name, study.disclosure.release == "masked"
    return [known for name, known in used.items() if masked or name != hub]


def contributors(study: Study, used: Mapping[str, Message]) -> list[str]:
    """The sites whose records are in the model; in an open study the hub is always one."""
    own = hub_of(study).name if study.disclosure.release == "open" else None
    return [site.name for site in study.sites if site.name in used or site.name == own]
