"""One code, written in several ways: the study's spelling is the one that counts."""

import re
from collections.abc import Callable, Iterable, Sequence


def spelling(codes: Iterable[str]) -> Callable[[str], str]:
    """What turns a code into the study's spelling of it; one that the study lacks stays."""
    ours = {_key(code): code for code in codes} | {code: code for code in codes}
    return lambda code: ours.get(code, ours.get(_key(code), code))


def spelled(code: str, codes: Sequence[str]) -> list[str]:
    """Those of `codes` that `code` may mean, as `daniel prepare` would find them.

    In any letter case, and only if there is none, without regard to signs and leading zeros too.
    """
    for key in (lambda text: _key(text.replace("//", ":")).upper(), _loose_key):
        found = [own for own in codes if key(own) == key(code)]
        if found:
            return found
    return []


def _key(code: str) -> str:
    """A code with its vocabulary in capitals, without signs."""
    vocabulary, colon, rest = str(code).partition(":")
    return capitals(vocabulary) + colon + rest


def capitals(vocabulary: str) -> str:
    return re.sub(r"[\W_]", "", vocabulary).upper()


def _loose_key(code: str) -> tuple[str, str]:
    """Vocabulary and code in capitals, without signs, and the code without leading zeros."""
    *vocabulary, rest = re.split("[:/]+", code.upper())
    return re.sub(r"[\W_]", "", "".join(vocabulary)), re.sub(r"[\W_]", "", rest).lstrip("0")
