"""What is typed into the filter line (`engine.index.filter_language`), and the filter in effect.

If the last clause is incomplete, the clauses before it apply and the error says what was expected.
An error further left leaves the previous filter in place."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from engine.config.saved_filters import SavedFilterError, SavedTexts, find_filter, read_filters
from engine.index.filter_language import NO_FILTER, BadFilter, Filter


class FilterText:
    """The typed words, the filter that they make, and what is wrong with them."""

    def __init__(self, parse: Callable[[str], Filter]) -> None:
        """`parse` parses a filter with the words of the store; it raises BadFilter."""
        self._parse = parse
        self._error: BadFilter | None = None
        self.words = ""
        self.filter = NO_FILTER
        """The filter in effect: the complete clauses of the text."""
        self.is_open = False
        """True while the line is on screen."""
        self.is_replaced = False
        """True until the line shows a text that was not typed: more may have been typed since."""
        self.takes_keys = False
        """True while it is typed into."""

    @property
    def error(self) -> str:
        """The error in the text, which it may quote; "" if none. More tasks may match then."""
        return self._error.message if self._error is not None else ""

    def replace(self, words: str) -> bool:
        """Take a text that was not typed, and have it shown."""
        self.is_replaced = True
        return self.take(words)

    def take(self, words: str) -> bool:
        """Take what is typed; True if filter or error changed."""
        before = self.filter, self._error
        self.words = words
        try:
            self.filter, self._error = self._parse(words.rstrip()), None
        except BadFilter as error:
            self._error = error
            self._apply_complete_clauses(words, error.at)
        return (self.filter, self._error) != before

    def _apply_complete_clauses(self, words: str, at: int) -> None:
        clause_text = words[at:]
        if clause_text.startswith('"') or not clause_text.strip() or len(clause_text.split()) == 1:
            with suppress(BadFilter):
                self.filter = self._parse(words[: words.rfind(" ", 0, at) + 1].rstrip())


class SavedFilters:
    """The saved filters by name, read when a text first mentions one."""

    def __init__(self, begin_reading: Callable[[], None]) -> None:
        """`begin_reading` calls `read` in the background; the text is taken again after it."""
        self._begin_reading = begin_reading
        self._known: SavedTexts | SavedFilterError | None = None

    def find(self, name: str) -> str:
        """The text of a saved filter. Raises SavedFilterError: there is none, or not read yet."""
        if isinstance(self._known, SavedFilterError):
            raise self._known
        if self._known is not None:
            return find_filter(self._known, name)
        self._begin_reading()
        raise SavedFilterError("reading the saved filters ...")

    def forget(self) -> None:
        """Read them again when the next text mentions one."""
        self._known = None

    async def read(self) -> None:
        """Read them, or keep why there are none."""
        try:
            self._known = await asyncio.to_thread(read_filters, os.environ)
        except SavedFilterError as error:
            self._known = error
