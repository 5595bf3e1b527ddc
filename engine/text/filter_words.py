"""The operators of filters that are words: `or`, `and` and `not`, in any case; and texts of filters
from before they were operators.

Versions before 0.4 searched these words, and before 0.3 parentheses, too."""

from __future__ import annotations

import re

OPERATORS = ("or", "and", "not")
"""Words that join or negate terms, unless in quotes."""

_OPERATOR = re.compile(rf"({'|'.join(OPERATORS)})(?=[\s|()]|$)", re.IGNORECASE)
_WORDS = re.compile(
    r"""(?P<head>[A-Za-z_]+(?:!=|!~|>=|<=|[=~><:]))?"""
    r"""(?:(?P<quoted>"(?:[^"]|"")*"?) | (?P<word>(?<!~)[^\s|!"][^\s|]* | (?<=~)\S+))""",
    re.VERBOSE,
)


def match_operator(text: str, at: int) -> str:
    """The operator that is at this column of a text, in small letters; "" if none."""
    found = _OPERATOR.match(text, at)
    return found[1].lower() if found else ""


def quote_value(value: str) -> str:
    """A word or value of a filter in quotes."""
    return f'"{value.replace(chr(34), chr(34) * 2)}"'


def quote_operators(text: str) -> str:
    """Put operators and words with parentheses in quotes: earlier versions searched them as words.
    A text without any stays the same."""
    return _WORDS.sub(_quote_word, text)


def _quote_word(found: re.Match[str]) -> str:
    head, word = found["head"] or "", found["word"]
    if found["quoted"] is not None or head.endswith("~"):
        return found[0]
    is_operator = not head and word.lower() in OPERATORS
    has_parentheses = word.startswith("(") or word.count("(") != word.count(")")
    return f"{head}{quote_value(word)}" if is_operator or has_parentheses else found[0]
