"""The references in the documents: settings, keys of JSON and exit codes, made from the code.

A document has them between a comment that names what is printed there, and `<!-- end -->`:

    <!-- settings MODULE:CLASS PREFIX -->   the keys of a section: its settings are the fields of a
                                            class, each with its check (`Annotated`, or `_SETTINGS`
                                            of the module), its default and its docstring
    <!-- exit codes -->                     `EXIT_CODES`
    <!-- schemas -->  <!-- objects -->      the tables of `--json`

What a setting takes is the text of its own error: each check is called with a value that no
setting takes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from textwrap import dedent

from engine.config.nftban_variables import ReadFrom
from engine.config.validators import Check, ConfigError, ConfigLocation, checks_of
from engine.schedules import Schedule
from engine.values import NamedTuple
from tui.cli.command_help import EXIT_CODES, OBJECTS, SCHEMAS, schema_rows

_PLACE = re.compile(
    r"(<!-- (settings|exit codes|schemas|objects)(.*?) -->)\n.*?(?=<!-- end -->)", re.S
)


def fill_references(document: str) -> str:
    """A document with all its references as the code has them now."""

    def fill(place: re.Match[str]) -> str:
        return "\n".join((place[1], "", *_PRINTERS[place[2]](*place[3].split()), "", ""))

    return _PLACE.sub(fill, document)


class Setting(NamedTuple):
    """A row of a reference."""

    name: str
    """The key with its sections."""
    check: Check
    default: object
    """None if it has none."""
    expected: str
    """What the check takes, as a sentence; "" if the default shows it."""
    meaning: str
    variables: Sequence[str]
    """What sets it too, in backquotes."""


def settings_of(where: str, prefix: str = "") -> Iterator[Setting]:
    """The settings of a class, MODULE:CLASS, that are keys of the section `prefix`."""
    module, name = where.split(":")
    settings = getattr(import_module(module), name)
    checks = getattr(import_module(module), "_SETTINGS", None) or checks_of(settings)
    texts = _field_texts(settings)
    for key, check in checks.items():
        notes = getattr(settings.__annotations__.get(key), "__metadata__", ())
        section = [prefix, *(note for note in notes if isinstance(note, str))]
        full = ".".join(filter(None, (*section, key)))
        variables = [f"`{note.name}`." for note in notes if isinstance(note, ReadFrom)]
        yield Setting(
            full,
            check,
            default=settings._field_defaults.get(key),
            expected=_expected(check, full),
            meaning=texts.get(key, ""),
            variables=variables,
        )


def _print_settings(where: str, prefix: str = "") -> Iterator[str]:
    yield "| setting | meaning |"
    yield "|---|---|"
    for row in settings_of(where, prefix):
        sentences = filter(None, (row.expected, row.meaning, *row.variables))
        yield f"| `{row.name}{_format_default(row.default)}` | {' '.join(sentences)} |"


def _expected(check: Check, key: str) -> str:
    """What a check takes, by its own words, as a sentence; "" if the default shows it."""
    try:
        check(object(), ConfigLocation("", key, base="/"))
    except ConfigError as error:
        text = str(error).removeprefix(f": {key}: ").removeprefix("expected ")
        for pattern, shorter in _SHORTER:
            text = re.sub(pattern, shorter, text)
        if text.startswith("one of "):
            text = f"one of `{text.removeprefix('one of ').replace(', ', '`, `')}`"
        return text and f"{text if '://' in text else text[:1].upper() + text[1:]}."
    return ""


_SHORTER = (
    (r",? not <?'?<object.*", ""),
    (r"a duration such as .* number of (\w+)", r"a duration (\1)"),
    (", at least 0$", ""),
    ("true or false|text$", ""),
    ("a mapping with keys of .*", "a section"),
    ("one of exponential, linear, .*", "a schedule"),
)
"""What an error says at length, and what the reference has."""


def _format_default(value: object) -> str:
    """`: VALUE` as YAML has it; "" for none."""
    if isinstance(value, bool):
        return f": {str(value).lower()}"
    if isinstance(value, int | float | str) and value != "":
        return f": {value:g}" if isinstance(value, float) else f": {value}"
    if type(value) is tuple and value and all(isinstance(x, int | float) for x in value):
        return f": {[*value]}"
    return f": {value}" if isinstance(value, Schedule) else ""


def _field_texts(settings: type) -> Mapping[str, str]:
    """The docstring below each field of a class, as one line."""
    (node,) = ast.parse(dedent(inspect.getsource(settings))).body
    texts, field = dict[str, str](), ""
    for part in getattr(node, "body", ()):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            field = part.target.id
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and field:
            text = " ".join(str(part.value.value).split())
            texts[field] = re.sub("^None:", "Without it:", text).replace("None:", "without it:")
        else:
            field = ""
    return texts


def _print_exit_codes() -> Iterator[str]:
    yield "| code | meaning |"
    yield "|---|---|"
    yield from (f"| {code} | {text} |" for code, text in EXIT_CODES.items())


def _print_schemas() -> Iterator[str]:
    yield "| command | keys |"
    yield "|---|---|"
    for names, keys in schema_rows(SCHEMAS):
        yield f"| `{names.replace(', ', '`, `')}` | {keys} |"


def _print_objects() -> Iterator[str]:
    yield "| object | keys |"
    yield "|---|---|"
    yield from (f"| {name} | {keys} |" for name, keys in schema_rows(OBJECTS))


_PRINTERS: Mapping[str, Callable[..., Iterator[str]]] = {
    "settings": _print_settings,
    "exit codes": _print_exit_codes,
    "schemas": _print_schemas,
    "objects": _print_objects,
}
