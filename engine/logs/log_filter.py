"""Which lines of a log are shown: from a level on, and by plain words."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from engine.logs.log_tail import parse
from engine.text import safe_regex
from engine.text.time_expressions import Clock, RelativeTime
from engine.text.time_expressions import moment as typed

RANKS = {
    **dict.fromkeys(("TRACE", "DEBUG"), 0),
    **dict.fromkeys(("WARN", "WARNING"), 2),
    **dict.fromkeys(("ERROR", "ERR", "CRITICAL", "CRIT", "ALERT", "FATAL", "EMERG", "PANIC"), 3),
}
"""How grave each level is; every other is `INFO`."""

DEBUG, INFO, WARN, ERROR = range(4)

LEVELS = ("all", "info", "warn", "error")
"""The words for what is shown from a rank on."""


def rank_of(level: str) -> int:
    """How grave a level is."""
    return RANKS.get(level, INFO)


def moment(text: str, now: float) -> float:
    """A time that was typed, in epoch seconds UTC; of a time of day, the last that has been.

    Raises:
        ValueError: it is no time; the message says what was expected.
    """
    found = typed(" ".join(text.split()), now)
    if isinstance(found, RelativeTime):
        return now - found.seconds
    return found.before(now) if isinstance(found, Clock) else found


class BadWords(ValueError):
    """Words that mean nothing; the message says what was expected."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at
        """Which character of the words it is about, from 0."""


class LogTerm(NamedTuple):
    """One thing that a line holds, or does not hold."""

    text: str = ""
    """In small letters; "" for any."""
    pattern: safe_regex.Pattern | None = None
    negated: bool = False

    def fits(self, text: str, small: str) -> bool:
        """Whether a text is so; `small` is the text in small letters."""
        there = self.text in small and (self.pattern is None or self.pattern.found_in(text))
        return there is not self.negated


Clause: TypeAlias = tuple[LogTerm, ...]
"""Terms of which one has to fit."""


class LineFilter(NamedTuple):
    """What lets a line through: its level, and one of the alternatives with all of its clauses."""

    level: int = DEBUG
    """The lowest rank that is let through."""
    alternatives: tuple[tuple[Clause, ...], ...] = ()

    def keeps(self, rank: int, text: str) -> bool:
        """Whether a line is let through."""
        if rank < self.level:
            return False
        if not self.alternatives:
            return True
        small = text.lower()
        return any(
            all(any(term.fits(text, small) for term in clause) for clause in clauses)
            for clauses in self.alternatives
        )

    def with_words(self, other: LineFilter) -> LineFilter:
        """What both let through."""
        pairs = [(a, b) for a in self.alternatives or ((),) for b in other.alternatives or ((),)]
        both = tuple((*a, *b) for a, b in pairs if a or b)
        return LineFilter(max(self.level, other.level), both)

    @property
    def is_open(self) -> bool:
        """Whether everything is let through."""
        return self.level <= DEBUG and not self.alternatives

    def maybe(self, data: bytes) -> bool:
        """Whether a line that begins in these bytes, which begin with a line, may be let through.

        False is certain: so most of a long log is passed by without a look at its lines.
        """
        if b"\0" in data or (b"{" in data and (data.startswith(b"{") or b"\n{" in data)):
            return True  # what such a line says is not what its bytes say
        if self.level <= DEBUG and not self.alternatives:
            return True
        small = data.lower()
        if self.level > INFO and not _HAS_LEVEL[self.level](small) and _says_level(data):
            return False
        if not self.alternatives:
            return True
        return any(all(_possible(c, small) for c in clauses) for clauses in self.alternatives)


_HAS_LEVEL = {
    rank: re.compile(
        rb"\] \[(?:%s)" % b"|".join(n.lower().encode() for n, r in RANKS.items() if r >= rank)
    ).search
    for rank in (WARN, ERROR)
}


def _says_level(data: bytes) -> bool:
    # A line that says none goes by the one before it, which may lie before these bytes.
    return bool(parse(data[:200].partition(b"\n")[0], "").level)


def _possible(clause: Clause, small: bytes) -> bool:
    if any(term.negated or not term.text or not term.text.isascii() for term in clause):
        return True
    return any(term.text.encode() in small for term in clause)


EVERYTHING = LineFilter()


def literally(text: str, level: int = DEBUG) -> LineFilter:
    """Lines that hold exactly this text, be letters capital or small."""
    return LineFilter(level, (((LogTerm(text.lower()),),),) if text else ())


def naming(id: str) -> LineFilter:
    """Lines that speak of a task: of `7-user`, but not of `17-user`."""
    return LineFilter(DEBUG, (((LogTerm(id.lower(), safe_regex.word(id)),),),) if id else ())


def sieve(words: str, level: int = DEBUG) -> LineFilter:
    """Lines from a level on that hold what these words say.

    Words are AND, `a|b` is one or the other, a `|` that stands alone parts whole alternatives, `!`
    is not; `"two words"`, `/pattern/` and `~pattern` are one word each. Capitals do not matter.

    Raises:
        BadWords: they mean nothing.
    """
    found: list[list[Clause]] = [[]]
    terms: list[LogTerm] = []
    at, joined = 0, False
    while at < len(words):
        if words[at].isspace():
            at += 1
        elif words[at] == "|":
            tight = at > 0 and not words[at - 1].isspace() and words[at + 1 : at + 2].strip() != ""
            if not tight:
                _close(found[-1], terms)
            if not (terms or found[-1]) or not words[at + 1 :].strip():
                raise BadWords("expected words on both sides of |", at)
            if not tight:
                found.append([])
            joined, at = tight, at + 1
        else:
            if not joined:
                _close(found[-1], terms)
            term, at = _term(words, at)
            terms.append(term)
            joined = False
    _close(found[-1], terms)
    return LineFilter(level, tuple(tuple(clauses) for clauses in found if clauses))


def _close(clauses: list[Clause], terms: list[LogTerm]) -> None:
    if terms:
        clauses.append(tuple(terms))
        terms.clear()


def _closing(words: str, sign: str, at: int) -> int:
    """Where a quote or a pattern ends; -1: it does not. A slash inside a word ends none."""
    if sign == '"':
        return words.find(sign, at)
    ends = re.compile(r"/(?=[\s|]|$)").search(words, at) if sign == "/" else None
    return ends.start() if ends else -1


def _term(words: str, at: int) -> tuple[LogTerm, int]:
    """The term that begins there, and where it ends."""
    negated = words[at] == "!"
    begin = at + negated
    sign = words[begin : begin + 1]
    closed = _closing(words, sign, begin + 1)
    if sign == '"' and closed < 0:
        raise BadWords('expected a closing "', begin)
    if closed > begin + 1:
        text, after = words[begin + 1 : closed], closed + 1
    else:
        begin += sign == "~"
        after = begin
        while after < len(words) and not words[after].isspace() and words[after] != "|":
            after += 1
        text = words[begin:after]
    if not text or text == '""':
        raise BadWords("expected a word", begin)
    if sign == "~" or (sign == "/" and closed > begin + 1):
        try:
            return LogTerm("", safe_regex.compiled(text), negated), after
        except ValueError as error:
            raise BadWords(str(error), begin) from None
    return LogTerm(text.lower(), None, negated), after
