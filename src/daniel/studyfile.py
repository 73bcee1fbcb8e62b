"""The study as a file: TOML to dataclasses, and dataclasses to a commented TOML.

The dataclasses of `daniel.study` say everything: names, types, defaults and comments.
"""

import dataclasses
import difflib
import json
import math
import os
import textwrap
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from daniel.errors import FormatError, InputError

T = TypeVar("T")
WIDTH = 100
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FormatError(f"There is no study file {path}: `daniel new` writes one.") from None
    except (OSError, UnicodeDecodeError):
        raise FormatError(f"The study file {path} cannot be read as text.") from None
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"The study file {path} is not TOML: {error}.") from None


def read_codes(path: Path) -> tuple[str, ...]:
    """Code names, one a line: what stands before the first tab; # starts a comment line."""
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # a description may hold U+2028
    except FileNotFoundError:
        raise FormatError(f"There is no code file {path}, which the study names.") from None
    except (OSError, UnicodeDecodeError):
        raise FormatError(f"The code file {path} cannot be read as text.") from None
    names = [line.split("\t")[0].strip() for line in lines if not line.startswith("#")]
    names = [name for name in names if name]
    if names and names[0].lower() == "code":
        names = names[1:]
    if not names:
        raise FormatError(f"The code file {path} holds no code: expected one a line.")
    return tuple(names)


def nearest(name: str, known: list[str]) -> str:
    """' (did you mean ...?)', or nothing when no known name is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def write_text(path: Path, text: str) -> None:
    """Write to a temporary name beside the target, then rename."""
    if not path.parent.is_dir():
        raise InputError(f"The folder {path.parent} does not exist; make it first.")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}): free some space, or choose a place that "
            "this user may write to."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


# --- reading --------------------------------------------------------------------------------------


def keys_of(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """The fields that stand in the file: those with a comment."""
    return {f.name: f for f in dataclasses.fields(cls) if f.metadata}


def build(cls: type[T], table: dict[str, Any], where: str, prefix: str = "") -> T:
    """A dataclass from a TOML table; unknown keys and wrong types are refused."""
    known = keys_of(cls)
    for name in table:
        if name not in known:
            raise FormatError(
                f"{where} has the unknown key {prefix + name!r}{nearest(name, list(known))}; known "
                f"here are {', '.join(known)}."
            )
    hints = typing.get_type_hints(cls)
    return cls(**{k: _value(v, hints[k], where, prefix + k) for k, v in table.items()})


def _value(value: Any, hint: Any, where: str, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(typing.cast(type, hint), value, where, f"{name}.")
    if origin is tuple and isinstance(value, list):
        return tuple(_value(v, arguments[0], where, name) for v in value)
    if origin in {types.UnionType, typing.Union}:
        for option in arguments:
            if _fits(value, option):
                return _value(value, option, where, name)
    if _fits(value, hint):
        return float(value) if hint is float else value
    raise FormatError(f"{where}: {name!r} must be {_words(hint)}.")


def _fits(value: Any, hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint) and isinstance(value, str)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(hint, type) and isinstance(value, hint)


def _words(hint: Any) -> str:
    """A type in words: 'text', 'one of 'a', 'b'', 'a list of text'."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(repr(a) for a in arguments)
    if origin is tuple:
        return "a list of tables" if dataclasses.is_dataclass(arguments[0]) else "a list of text"
    if dataclasses.is_dataclass(hint):
        return "a table"
    if arguments:
        return " or ".join(_words(a) for a in arguments if a is not type(None))
    return WORDS.get(hint, str(hint))


# --- writing --------------------------------------------------------------------------------------


def render(study: Any) -> str:
    """The commented TOML text: plain keys, then tables, then lists of tables."""
    lines = ["# A daniel study: what all sites agree on. Remove a # before a key to set it.", ""]
    tables, lists = [], []
    hints = typing.get_type_hints(type(study))
    for name, f in keys_of(type(study)).items():
        value = getattr(study, name)
        if dataclasses.is_dataclass(value):
            tables += ["", *_comment(f), f"[{name}]", *_rendered(value)]
        elif isinstance(value, tuple):
            example = typing.get_args(hints[name])[0]()
            lists += ["", *_comment(f), *_list_of_tables(name, value, example)]
        else:
            lines += [*_comment(f), f"{name} = {_toml(value)}"]
    return "\n".join([*lines, *tables, *lists, ""])


def _rendered(item: Any, *, example: bool = False) -> list[str]:
    lines: list[str] = []
    for name, f in keys_of(type(item)).items():
        value = getattr(item, name)
        if name == "names" and getattr(item, "file", None):
            value = ()  # they stand in that file
        lines += _comment(f)
        if value is None or value == ():
            lines.append(f"#{name} = {_toml(f.metadata['example'])}")
        else:
            shown = f.metadata["example"] if example and value == "" else value
            lines.append(f"{name} = {_toml(shown)}")
    return lines


def _list_of_tables(name: str, values: tuple[Any, ...], example: Any) -> list[str]:
    """Each as [[name]]; an example, commented out, where there is none."""
    if values:
        return "\n\n".join("\n".join([f"[[{name}]]", *_rendered(v)]) for v in values).split("\n")
    shown = _rendered(example, example=True)
    return [f"#[[{name}]]", *(line if line.startswith("#") else f"#{line}" for line in shown)]


def _comment(f: dataclasses.Field[Any]) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(f.metadata["help"], WIDTH - 2)]


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        inner = [_toml(v) for v in value]
        short = f"[{', '.join(inner)}]"
        return short if len(short) < WIDTH else "[\n    " + ",\n    ".join(inner) + ",\n]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
