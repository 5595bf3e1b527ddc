"""The plain assignments of a shell file that belongs to another program; nothing in it is ever run.

Understood, one to a line: `NAME="value"`, `NAME='value'`, `NAME=value`, with or without `export`
or `readonly` before and a comment behind, and `: "${NAME:=value}"`, which sets what is not set.
In a value that is not between single quotes, `$NAME`, `${NAME}` and `${NAME:-value}` stand for
what was set before. What only a shell could know is kept as a problem of that variable; any other
line is passed over, since the file is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Variable(NamedTuple):
    """What a line sets a variable to."""

    text: str
    line: int = 0
    """Counted from 1."""
    problem: str = ""
    """Why its text cannot be known without running a shell; "" when it is known."""


def variables(
    text: str, before: Mapping[str, Variable], environ: Mapping[str, str]
) -> dict[str, Variable]:
    """What the file sets. `before` was set earlier; the environment goes before both."""
    found: dict[str, Variable] = {}
    known = dict(before)
    for number, line in enumerate(text.split("\n"), 1):
        default = _default_assignment(line)
        name, word = default or _assignment(line)
        if not name or (default and _is_set(name, known, environ)):
            continue
        try:
            variable = Variable(_expanded(word, bool(default), known, environ), number)
        except ValueError as problem:
            variable = Variable("", number, str(problem))
        known[name] = found[name] = variable
    return found


def _is_set(name: str, known: Mapping[str, Variable], environ: Mapping[str, str]) -> bool:
    """Whether `:=` leaves it alone; what no line has set (line 0) may still be set."""
    said = known.get(name, Variable(""))
    return bool(environ.get(name) or (said.line and (said.text or said.problem)))


def _default_assignment(line: str) -> tuple[str, str] | None:
    line = line.strip()
    if not (line.startswith(': "${') and line.endswith('}"')):
        return None
    name, assigned, word = line[5:-2].partition(":=")
    return (name, word) if assigned and _is_name(name) else None


def _assignment(line: str) -> tuple[str, str]:
    """The name and the rest of the line behind the equals sign; ("", "") if it is none."""
    name, equals, rest = line.strip().partition("=")
    for word in ("export ", "readonly ", "declare -r ", "declare -x ", "declare -rx "):
        name = name.removeprefix(word)
    return (name, rest) if equals and _is_name(name) else ("", "")


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()


def _expanded(
    word: str, quoted: bool, known: Mapping[str, Variable], environ: Mapping[str, str]
) -> str:
    """What a shell makes of the word; `quoted`: as if it stood between double quotes.

    Raises:
        ValueError: it would run something, or it is written in a way that is not understood here.
    """
    if ("$(" in word or "`" in word) and not word.startswith("'"):
        raise ValueError("expected a plain value; commands in it are never run")
    if not quoted:
        word, literal = _unquoted(word)
        if literal:
            return word
    done: list[str] = []
    rest = word
    while rest:
        plain, dollar, rest = rest.partition("$")
        done.append(plain)
        if dollar:
            value, rest = _variable(rest, known, environ)
            done.append(value)
    return "".join(done)


_ODD = {"'": "", '"': "\\", "": "\\'\";&|<>*?~[{"}
"""By the quote around a value, what in it would mean more than itself."""


def _unquoted(word: str) -> tuple[str, bool]:
    """The word without its quotes and its comment, and whether it is to be taken literally."""
    quote = word[:1] if word[:1] in ("'", '"') else ""
    if quote:
        inner, closed, tail = word[1:].partition(quote)
        if not closed:
            raise ValueError("expected a closing quote in the same line")
    else:
        inner = word.split(maxsplit=1)[0] if word[:1].strip() else ""
        tail = word[len(inner) :]
    if any(c in inner.replace("${", "") for c in _ODD[quote]) or _goes_on(tail):
        raise ValueError('expected nothing but NAME="value" in a line')
    return inner, quote == "'"


def _goes_on(tail: str) -> bool:
    """Whether something else than a comment follows a value."""
    words = tail.split(maxsplit=1)
    return bool(words) and not (tail[0].isspace() and words[0].startswith("#"))


def _variable(
    rest: str, known: Mapping[str, Variable], environ: Mapping[str, str]
) -> tuple[str, str]:
    """The value of the variable that is named behind a `$`, and what follows it."""
    name, rest, default = _name_behind_dollar(rest)
    before = known.get(name, Variable(""))
    value = environ.get(name) or before.text
    if before.problem and not value:
        raise ValueError(f"expected a variable that is known, not {name} (line {before.line})")
    if not value and default is None:
        raise ValueError(f"expected a variable that is set, not {name}")
    return value or default or "", rest


def _name_behind_dollar(rest: str) -> tuple[str, str, str | None]:
    """The name, what follows, and what stands for it when it is not set."""
    if not rest.startswith("{"):
        end = next((i for i, c in enumerate(rest) if not (c.isalnum() or c == "_")), len(rest))
        name, rest, default = rest[:end], rest[end:], None
    else:
        inner, closed, rest = rest[1:].partition("}")
        name, other, word = inner.partition(":-")
        default = word if other else None
        if not closed or "$" in word:
            raise ValueError(f"expected ${{NAME}} or ${{NAME:-value}}, not ${{{inner}")
    if not _is_name(name):
        raise ValueError("expected the name of a variable behind $")
    return name, rest, default
