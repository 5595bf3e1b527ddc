"""Parse the command table: the commands, their arguments and their help."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from engine.text.decode import parse_digits
from engine.text.durations import parse_duration
from engine.values import NamedTuple
from tui.cli.command_table import COMMAND_TABLE

Argument: TypeAlias = tuple[tuple[str, ...], Mapping[str, Any]]
"""The name and the options of an argument, as for `ArgumentParser.add_argument`."""

_MAX_COUNT = 10**9
"""Largest count of an option."""


def _count(text: str) -> int:
    number = parse_digits(text, _MAX_COUNT)
    if not number:
        raise ArgumentTypeError(f"must be a whole number from 1 to {_MAX_COUNT}, not {text!r}")
    return number


def _limit(text: str) -> int:
    number = parse_digits(text)
    if number is None:
        raise ArgumentTypeError(f"must be a whole number, not {text!r}")
    return number


def _duration(text: str) -> float:
    try:
        return parse_duration(text, "s")
    except ValueError as error:
        raise ArgumentTypeError(f"{error}, not {text[:40]!r}") from None


def _long_duration(text: str) -> float:
    if (seconds := _duration(text)) < 1:
        raise ArgumentTypeError(f"must be at least 1s, not {text[:40]!r}")
    return seconds


_TYPES = {"count": _count, "number": _limit, "wait": _duration, "duration": _long_duration}


class CommandWord(NamedTuple):
    """A word of the command line that names a command or a group of commands."""

    path: tuple[str, ...]
    """The words up to this one."""
    function: str
    """Module and function of the command; "" for a group, which needs another word."""
    is_listing: bool
    """It only prints: it ends quietly when the reader of its output closes the pipe."""
    summary: str
    rows: Sequence[str]
    """The rows of its arguments. They are parsed when needed: a run needs those of one command."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its arguments and options, as for `add_argument`."""
        return tuple(map(_parse_argument, self.rows))


def parse_table(table: str) -> Iterator[CommandWord]:
    """Parse the command table.

    Raises:
        ValueError: a row is wrong.
    """
    shared: dict[str, list[str]] = {}
    groups: set[tuple[str, ...]] = {()}
    joined = table.strip().replace("\n        ", " ").replace("\n    ", "\t")
    for head, *rows in (entry.split("\t") for entry in joined.split("\n")):
        name, _, row = head.partition(" ")
        if name.startswith("@"):
            shared[name] = _insert_shared([row, *rows] if row else rows, shared)
            continue
        columns = head.split(" | ")
        _check(len(columns) == 3, head, "WORDS | MODULE:FUNCTION | SUMMARY")
        words, (function, *marks) = columns[0].split(), columns[1].split()
        _check(function == "-" or ":" in function, head, "MODULE:FUNCTION, or - for a group")
        _check(marks in ([], ["+listing"]), head, "no mark but +listing")
        names = [word for word in words if word.startswith("@")]
        path = tuple(words[: len(words) - len(names)])
        _check(path[:-1] in groups, head, "the row of its group above it")
        if function == "-":
            groups.add(path)
            function = ""
        arguments = _insert_shared([*names, *rows], shared)
        yield CommandWord(path, function, bool(marks), columns[2], arguments)


def _insert_shared(rows: Sequence[str], shared: Mapping[str, list[str]]) -> list[str]:
    expanded = []
    for row in rows:
        for name in row.split() if row.startswith("@") else ():
            _check(name in shared, row, f"{name} above it")
            expanded += shared[name]
        if not row.startswith("@"):
            expanded.append(row)
    return expanded


def _parse_argument(row: str) -> Argument:
    spec, _, text = row.partition(" | ")
    name, *words = spec.split()
    names = tuple(name.split(","))
    is_option = names[-1].startswith("--")
    options: dict[str, Any] = {"help": text} if text else {}
    if is_option and not words:
        return names, {"action": "store_true", **options}
    _check(bool(words), row, "NAME VALUE | HELP")
    value, *marks = words
    for mark in marks:
        key, _, other = mark.partition(":")
        is_known = mark in ("+required", "+rest") or (key == "+dest" and other)
        _check(is_known, row, "+required, +rest or +dest:NAME")
        options[key[1:]] = other or True
    if options.pop("rest", False):
        return names, options | {"metavar": value.removesuffix("..."), "nargs": REMAINDER}
    return names, options | _parse_value(value, is_option, "required" in options, row)


def _parse_value(value: str, is_option: bool, is_required: bool, row: str) -> dict[str, Any]:
    shape, has_default, default = value.partition("=")
    inner = shape.removeprefix("[").removesuffix("]")
    is_optional, is_repeated = shape != inner, inner.endswith("...")
    if is_option and is_optional and not is_repeated:
        return {"metavar": inner, "nargs": "?", "const": "-", "default": ""}
    _check(shape in (inner, "" if is_option else f"[{inner}]"), row, "X, or [X] if no option")
    metavar, _, kind = inner.removesuffix("...").partition(":")
    _check(kind in ("", *_TYPES), row, f"no type but {', '.join(_TYPES)}")
    _check(not (kind and has_default) or default.isdigit(), row, "a number after =")
    is_choice = metavar.startswith("{")
    options: dict[str, Any] = (
        {"choices": tuple(metavar.strip("{}").split(","))} if is_choice else {"metavar": metavar}
    )
    if kind:
        options["type"] = _TYPES[kind]
    if is_option and is_repeated:
        options["action"] = "append"
    elif is_optional or is_repeated:
        options["nargs"] = "+" if not is_optional else "*" if is_repeated else "?"
        if options["nargs"] == "*":
            options["default"] = []  # without one, argparse names it among the required words
    if has_default:
        options["default"] = int(default) if kind else None if default == "None" else default
    elif (is_option or (is_optional and not is_repeated)) and not (kind or is_required):
        options["default"] = [] if is_repeated else ""
    return options


def _check(is_right: object, row: str, expected: str) -> None:
    if not is_right:
        raise ValueError(f"row {row!r} of the command table: expected {expected}")


COMMAND_WORDS = tuple(parse_table(COMMAND_TABLE))
"""All commands and groups, in the order of the help."""

COMMANDS = tuple(
    word.path[0] for word in COMMAND_WORDS if len(word.path) == 1 and word.path != ("console",)
)
"""First words that are commands; a place with such a name is written `./queue`."""
