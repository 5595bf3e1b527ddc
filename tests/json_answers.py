"""Check what a command printed with `--json` against its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tui.cli import _command_words
from tui.cli.command_help import JsonSchema, json_objects, json_schemas

TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "number": (int, float), "flag": (bool,)}
TYPES |= {"list": (list,), "object": (dict,)}

VARIANTS = ("--show", "--at", "--diff", "--dry-run", "--apply")
"""Options that may have a schema of their own."""

EPOCH_SECONDS = (1e9, 1e10)
"""Numbers between these are taken for times: from 2001 to 2286."""


def schema_of(name: str, *options: str) -> JsonSchema:
    """The schema of a command with these options."""
    found = json_schemas()
    if {"block", "unblock", "probe"} & {*options} and "--apply" not in options:
        options = ("--dry-run",)  # these show what they would do without it too
    given = [f"{name} {word}" for word in VARIANTS if word in options]
    named = next((word for word in given if word in found), name)
    applies = "--apply" in options and named == name and "planned" in found[name].keys
    return found["--apply" if applies else named]


def check_run(words: Sequence[str], text: str) -> None:
    """Check what a command line printed."""
    parse_answers(text, " ".join(_command_words(words)), *words)


def parse_answers(text: str, name: str, *options: str) -> list[dict[str, Any]]:
    """The objects that a command printed; each is checked, and so are its control characters."""
    assert text.replace("\n", "").isprintable(), name
    answers = [json.loads(line) for line in text.splitlines()]
    for values in answers:
        wrong = [*wrong_keys(values, schema_of(name, *options)), *times_without_text(values)]
        assert (name, wrong) == (name, [])
    return answers


def wrong_keys(values: dict[str, Any], schema: JsonSchema, where: str = "") -> list[str]:
    """The keys of an object that its schema does not have, that are missing, or of another type."""
    unknown = [] if schema.is_open else [name for name in values if name not in schema.keys]
    wrong = [f"{where}{name} is not documented" for name in unknown]
    for name, kind in schema.keys.items():
        wrong += _wrong_type(values.get(name, ...), kind, f"{where}{name}")
    return wrong


def _wrong_type(value: object, kind: str, where: str) -> list[str]:
    if value is None and kind.endswith("?"):
        return []
    one = kind.removesuffix("?")
    each = one.removesuffix("[]").removesuffix("{}")
    if one.endswith("[]") and isinstance(value, list):
        return [text for item in value for text in _wrong_type(item, each, f"{where}[].")]
    if one.endswith("{}") and isinstance(value, dict):
        return [
            text for item in value.values() for text in _wrong_type(item, each, f"{where}{{}}.")
        ]
    if each == one and each in json_objects() and isinstance(value, dict):
        return wrong_keys(value, json_objects()[each], f"{where.removesuffix('.')}.")
    known = TYPES.get(one, ())
    if isinstance(value, known) and (bool in known or not isinstance(value, bool)):
        return []
    return [f"{where.removesuffix('.')} is {value!r}, expected {kind}"]


def times_without_text(values: object, where: str = "") -> Iterator[str]:
    """The keys, at any depth, of numbers that are a time and have no `..._at` beside them."""
    if isinstance(values, list):
        for item in values:
            yield from times_without_text(item, f"{where}[]")
    if isinstance(values, dict):
        for name, value in values.items():
            if name == "metrics" or name.endswith("bytes"):
                continue
            least, most = EPOCH_SECONDS
            is_time = isinstance(value, int | float) and least < value < most
            if is_time and f"{name}_at" not in values:
                yield f"{where}{name}"
            yield from times_without_text(value, f"{where}{name}.")
