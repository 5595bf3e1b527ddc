"""Regular expressions that an operator types: only those that cannot run away.

A match holds the interpreter and cannot be ended from outside. So what could take exponential time
is refused, and the more repetitions can compete for the same characters, the fewer characters of a
text are looked at: no single match takes longer than about a second, whatever the text.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable
from functools import lru_cache
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

LONGEST = 200
"""Characters of a pattern."""
REACH = (16_384, 4_096, 600, 200)
"""Characters of a text that are looked at, by how many endless repetitions a pattern has.

About 10^8 steps at worst: with three of them and the start of the match, 200^4/4! of them.
"""
WAYS = 100
"""In how many ways the bounded parts of a pattern may match one place."""
FEW = 16
"""A repetition that may be this much longer or shorter is bounded; beyond, it counts as endless."""


class _Cost(NamedTuple):
    endless: int = 0
    """Repetitions without a bound, in a row."""
    ways: int = 1
    """In how many ways the rest can match."""

    def then(self, other: _Cost) -> _Cost:
        return _Cost(self.endless + other.endless, min(self.ways * other.ways, WAYS + 1))

    def either(self, other: _Cost) -> _Cost:
        return _Cost(max(self.endless, other.endless), min(self.ways + other.ways, WAYS + 1))


_ONCE = _Cost()
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)


class Pattern(NamedTuple):
    """A pattern that is safe to search for."""

    search: Any
    reach: int

    def found_in(self, text: str) -> bool:
        """Whether it matches anywhere in the part of the text that is looked at, in any case."""
        return self.search(text, 0, self.reach) is not None


@lru_cache(64)
def compiled(text: str) -> Pattern:
    """A pattern as typed, made ready.

    Raises:
        ValueError: it is none, or could run away; the message says why.
    """
    if len(text) > LONGEST:
        raise ValueError(f"expected a pattern of at most {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python will read differently
            cost = _cost(parser.parse(text))
            search = re.compile(text, re.IGNORECASE).search
    except re.error as error:
        raise ValueError(f"no pattern: {error.msg}") from None
    except (OverflowError, RecursionError):
        raise ValueError("no pattern: it is too deep, or its numbers are too large") from None
    if cost.endless >= len(REACH) or cost.ways > WAYS:
        few = len(REACH) - 1
        raise ValueError(f"expected a pattern with at most {few} of * + {{n,}} and few choices")
    return Pattern(search, REACH[cost.endless])


def word(text: str) -> Pattern:
    """This very text, where no letter and no digit stands right before or behind it."""
    whole = rf"(?<![^\W_]){re.escape(text)}(?![^\W_])"
    return Pattern(re.compile(whole, re.IGNORECASE).search, sys.maxsize)


def regexp(pattern: str, text: str | None) -> bool:
    """SQL's `text REGEXP pattern`."""
    return text is not None and compiled(pattern).found_in(text)


def _cost(items: Iterable[tuple[Any, Any]]) -> _Cost:
    """What parts in a row can cost."""
    whole = _ONCE
    for op, about in items:
        whole = whole.then(_part(op, about))
    return whole


def _part(op: Any, about: Any) -> _Cost:
    if op in _REPEATS:
        return _repeated(*about)
    if op is ops.BRANCH:
        first, *others = map(_cost, about[1])
        for other in others:
            first = first.either(other)
        return first
    if op is ops.SUBPATTERN:
        return _cost(about[-1])
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return _cost(about[1])
    if op is ops.ATOMIC_GROUP:
        return _cost(about)
    if op in (ops.GROUPREF, ops.GROUPREF_EXISTS, ops.GROUPREF_IGNORE):
        raise ValueError("expected a pattern without references to groups")
    return _ONCE


def _repeated(least: int, most: int, items: Any) -> _Cost:
    inner = _cost(items)
    if inner != _ONCE:
        if most <= 1:
            return inner.either(_ONCE)
        raise ValueError("expected no * + ? {} or | inside a group that is repeated")
    if most - least > FEW:
        return _Cost(1)
    return _Cost(0, most - least + 1)
