"""Parse the plain assignments of another program's shell file, without running anything.

Supported, one per line: `NAME="value"`, `NAME='value'`, `NAME=value`, with optional `export` or
`readonly` before and a comment after, and `: "${NAME:=value}"`, which sets unset variables. In a
value without single quotes, `$NAME`, `${NAME}` and `${NAME:-value}` are replaced by earlier values.
A value that only a shell could evaluate becomes a problem of its variable; all other lines are
ignored, because the file is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.values import NamedTuple


class Variable(NamedTuple):
    """The value that a line assigns."""

    text: str
    line: int = 0
    """Line number, from 1; 0 is a default."""
    problem: str = ""
    """Why its text cannot be known without running a shell; "" if it is known."""


def parse_variables(
    text: str, before: Mapping[str, Variable], environ: Mapping[str, str]
) -> dict[str, Variable]:
    """Parse the file. `before`: values set earlier; the environment overrides both."""
    variables: dict[str, Variable] = {}
    known = dict(before)
    for number, line in enumerate(text.split("\n"), 1):
        default = _default_assignment(line)
        name, word = default or _assignment(line)
        if not name or (default and _is_set(name, known, environ)):
            continue
        try:
            variable = Variable(_expand(word, bool(default), known, environ), number)
        except ValueError as problem:
            variable = Variable("", number, str(problem))
        known[name] = variables[name] = variable
    return variables


def _is_set(name: str, known: Mapping[str, Variable], environ: Mapping[str, str]) -> bool:
    """True if `:=` does not change it; a default (line 0) may still be changed."""
    variable = known.get(name, Variable(""))
    return bool(environ.get(name) or (variable.line and (variable.text or variable.problem)))


def _default_assignment(line: str) -> tuple[str, str] | None:
    line = line.strip()
    if not (line.startswith(': "${') and line.endswith('}"')):
        return None
    name, assigned, word = line[5:-2].partition(":=")
    return (name, word) if assigned and _is_name(name) else None


def _assignment(line: str) -> tuple[str, str]:
    """The name and the text after the equals sign; ("", "") if the line is no assignment."""
    name, equals, assigned = line.strip().partition("=")
    for word in ("export ", "readonly ", "declare -r ", "declare -x ", "declare -rx "):
        name = name.removeprefix(word)
    return (name, assigned) if equals and _is_name(name) else ("", "")


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()


def _expand(
    word: str, quoted: bool, known: Mapping[str, Variable], environ: Mapping[str, str]
) -> str:
    """Expand a word as a shell does; `quoted`: treat it as if between double quotes. Raises
    ValueError: it would run a command, or uses unsupported syntax."""
    if ("$(" in word or "`" in word) and not word.startswith("'"):
        raise ValueError("expected a plain value; commands are never run")
    if not quoted:
        word, literal = _unquote(word)
        if literal:
            return word
    done: list[str] = []
    remaining = word
    while remaining:
        plain, dollar, remaining = remaining.partition("$")
        done.append(plain)
        if dollar:
            value, remaining = _variable(remaining, known, environ)
            done.append(value)
    return "".join(done)


_SPECIAL = {"'": "", '"': "\\", "": "\\'\";&|<>*?~[{"}
"""Quote character -> characters that have a special meaning inside it."""


def _unquote(word: str) -> tuple[str, bool]:
    """The word without quotes and comment; True if it must not be expanded."""
    quote = word[:1] if word[:1] in ("'", '"') else ""
    if quote:
        inner, closed, tail = word[1:].partition(quote)
        if not closed:
            raise ValueError("expected a closing quote on the same line")
    else:
        inner = word.split(maxsplit=1)[0] if word[:1].strip() else ""
        tail = word[len(inner) :]
    if any(c in inner.replace("${", "") for c in _SPECIAL[quote]) or _has_more(tail):
        raise ValueError('expected only NAME="value" on the line')
    return inner, quote == "'"


def _has_more(tail: str) -> bool:
    """True if anything but a comment follows the value."""
    words = tail.split(maxsplit=1)
    return bool(words) and not (tail[0].isspace() and words[0].startswith("#"))


def _variable(
    text: str, known: Mapping[str, Variable], environ: Mapping[str, str]
) -> tuple[str, str]:
    """The value of the variable named after a `$`, and the rest of the text."""
    name, text, default = _name_behind_dollar(text)
    before = known.get(name, Variable(""))
    value = environ.get(name) or before.text
    if before.problem and not value:
        raise ValueError(f"the value of {name} is unknown (line {before.line})")
    if not value and default is None:
        raise ValueError(f"{name} is not set")
    return value or default or "", text


def _name_behind_dollar(text: str) -> tuple[str, str, str | None]:
    """The variable name, the rest of the text, and the default value, if any."""
    if not text.startswith("{"):
        end = next((i for i, c in enumerate(text) if not (c.isalnum() or c == "_")), len(text))
        name, text, default = text[:end], text[end:], None
    else:
        inner, closed, text = text[1:].partition("}")
        name, other, word = inner.partition(":-")
        default = word if other else None
        if not closed or "$" in word:
            raise ValueError(f"expected ${{NAME}} or ${{NAME:-value}}, not ${{{inner}")
    if not _is_name(name):
        raise ValueError("expected a variable name after $")
    return name, text, default
