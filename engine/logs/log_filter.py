"""Filter log lines by level and by words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from engine.logs.log_line import parse_log_line
from engine.text import safe_regex
from engine.text.folding import LETTERS_LIKE_ASCII, fold_case
from engine.text.time_expressions import Clock, RelativeTime, parse_time
from engine.values import NamedTuple

LEVEL_RANKS = {
    **dict.fromkeys(("TRACE", "DEBUG"), 0),
    **dict.fromkeys(("WARN", "WARNING"), 2),
    **dict.fromkeys(("ERROR", "ERR", "CRITICAL", "CRIT", "ALERT", "FATAL", "EMERG", "PANIC"), 3),
}
"""The severity of each level; all others are `INFO`."""

DEBUG, INFO, WARN, ERROR = range(4)

LEVELS = ("all", "info", "warn", "error")
"""The names of the minimum levels, by severity."""


def level_rank(level: str) -> int:
    """The severity of a level."""
    return LEVEL_RANKS.get(level, INFO)


def parse_typed_time(text: str, now: float) -> float:
    """Parse a typed time to epoch seconds UTC; a time of day is the latest one that has passed.
    Raises `ValueError`: it is not a time; the message contains what was expected."""
    moment = parse_time(" ".join(text.split()), now)
    if isinstance(moment, RelativeTime):
        return now - moment.seconds
    return moment.before(now) if isinstance(moment, Clock) else moment


class BadWords(ValueError):
    """The words are not a valid filter; the message contains what was expected."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at
        """Position in the words, from 0."""


class LogTerm(NamedTuple):
    """A text or pattern that a line contains, or does not contain."""

    text: str = ""
    """Folded (`engine.text.folding`); "" for any."""
    pattern: safe_regex.Pattern | None = None
    negated: bool = False

    def is_match(self, text: str, small: str) -> bool:
        """True if a text matches; `small` is the text folded."""
        is_found = self.text in small and (self.pattern is None or self.pattern.is_found_in(text))
        return is_found is not self.negated


Clause: TypeAlias = tuple[LogTerm, ...]
"""Alternative terms; one must match."""


class LineFilter(NamedTuple):
    """Selects lines by level, and by alternatives: of one of them, all clauses must match."""

    level: int = DEBUG
    """The minimum severity."""
    alternatives: tuple[tuple[Clause, ...], ...] = ()

    def is_match(self, rank: int, text: str) -> bool:
        """True if a line matches."""
        if rank < self.level:
            return False
        if not self.alternatives:
            return True
        small = fold_case(text)
        return any(
            all(any(term.is_match(text, small) for term in clause) for clause in clauses)
            for clauses in self.alternatives
        )

    def combine_with(self, other: LineFilter) -> LineFilter:
        """A filter for lines that match both."""
        pairs = [(a, b) for a in self.alternatives or ((),) for b in other.alternatives or ((),)]
        both = tuple((*a, *b) for a, b in pairs if a or b)
        return LineFilter(max(self.level, other.level), both)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of which a matching line contains some, folded."""
        terms = (term for clauses in self.alternatives for clause in clauses for term in clause)
        return tuple(dict.fromkeys(t.text for t in terms if t.text and not t.negated))

    @property
    def matches_all(self) -> bool:
        """True if every line matches."""
        return self.level <= DEBUG and not self.alternatives

    def may_match(self, data: bytes, begin: int = 0) -> bool:
        """False if certainly no line in these bytes matches; a line begins at `begin`. Most of a
        long log is skipped this way without parsing its lines."""
        if b"\0" in data or (b"{" in data and (data.startswith(b"{", begin) or b"\n{" in data)):
            return True  # escapes in the line may hide a matching text
        if self.matches_all:
            return True
        # Words first: they are rarer than levels.
        if self.alternatives and not any(
            all((p := _clause_pattern(c)) is None or p.search(data) for c in clauses)
            for clauses in self.alternatives
        ):
            return False
        if self.level <= INFO:
            return True
        marks = safe_regex.compile_bytes_pattern(rb"\] \[(?:%s)" % level_names(self.level))
        # A line without a level has that of the line before, which may be before these bytes.
        first = data[begin : begin + 200].partition(b"\n")[0]
        return marks.search(data) is not None or not parse_log_line(first, "").level


def level_names(lowest: int, highest: int = ERROR) -> bytes:
    """The names of the levels of a range of severities, as alternatives of a pattern."""
    names = (name for name, rank in LEVEL_RANKS.items() if lowest <= rank <= highest)
    return "|".join(names).encode()


@lru_cache(64)
def _clause_pattern(clause: Clause) -> safe_regex.BytesPattern | None:
    if any(term.negated or not term.text or not term.text.isascii() for term in clause):
        return None
    return safe_regex.any_of_literals(needles_of(clause))


def needles_of(terms: Sequence[LogTerm]) -> list[bytes]:
    """Bytes of which each line that contains one of these texts, all of ASCII, has at least one, in
    any case: the texts, and letters that may be a part of one when folded."""
    texts = [term.text for term in terms]
    letters = (each for each in LETTERS_LIKE_ASCII if any(_overlaps(each, t) for t in texts))
    return [text.encode() for text in (*texts, *letters)]


def _overlaps(letter: str, text: str) -> bool:
    """True if a part of a text that begins or ends it, or all of it, may be in a folded letter."""
    folded = fold_case(letter)
    ends = any(folded[at:] and text.startswith(folded[at:]) for at in range(len(folded)))
    begins = any(text.endswith(folded[:at]) for at in range(1, len(folded) + 1))
    return ends or begins or folded in text or text in folded


ALL_LINES = LineFilter()


def lines_containing(text: str) -> LineFilter:
    """Match lines that contain exactly this text, in any case."""
    return LineFilter(DEBUG, (((LogTerm(fold_case(text)),),),) if text else ())


def lines_naming_task(id: str) -> LineFilter:
    """Match lines that mention a task: `7-user`, but not `17-user` or `7-User`: ids of mail servers
    may differ by case alone."""
    return LineFilter(
        DEBUG, (((LogTerm(fold_case(id), safe_regex.whole_word_pattern(id)),),),) if id else ()
    )


def parse_line_filter(words: str, level: int = DEBUG) -> LineFilter:
    """Parse words to a filter for lines from a level on.

    Words are AND, `a|b` is either, a separate `|` divides whole alternatives, `!` is not; `"two
    words"`, `/pattern/` and `~pattern` are one word each. Case is ignored.

    Raises:
        BadWords: the words are not a valid filter."""
    alternatives: list[list[Clause]] = [[]]
    terms: list[LogTerm] = []
    at, joined = 0, False
    while at < len(words):
        if words[at].isspace():
            at += 1
        elif words[at] == "|":
            tight = at > 0 and not words[at - 1].isspace() and words[at + 1 : at + 2].strip() != ""
            if not tight:
                _close(alternatives[-1], terms)
            if not (terms or alternatives[-1]) or not words[at + 1 :].strip():
                raise BadWords("expected words on both sides of |", at)
            if not tight:
                alternatives.append([])
            joined, at = tight, at + 1
        else:
            if not joined:
                _close(alternatives[-1], terms)
            term, at = _term(words, at)
            terms.append(term)
            joined = False
    _close(alternatives[-1], terms)
    return LineFilter(level, tuple(tuple(clauses) for clauses in alternatives if clauses))


def _close(clauses: list[Clause], terms: list[LogTerm]) -> None:
    if terms:
        clauses.append(tuple(terms))
        terms.clear()


def _closing(words: str, sign: str, at: int) -> int:
    """The position of a closing quote, or of a slash at the end of a word; -1 if none."""
    if sign == '"':
        return words.find(sign, at)
    closing = re.compile(r"/(?=[\s|]|$)").search(words, at) if sign == "/" else None
    return closing.start() if closing else -1


def _term(words: str, at: int) -> tuple[LogTerm, int]:
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
            return LogTerm("", safe_regex.compile_pattern(text), negated), after
        except ValueError as error:
            raise BadWords(str(error), begin) from None
    return LogTerm(fold_case(text), None, negated), after
