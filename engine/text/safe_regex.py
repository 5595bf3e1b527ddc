"""Regular expressions typed by an operator: RE2, which matches in linear time.

Python's `re` backtracks: a short pattern can take minutes on one text, and neither a signal nor an
interrupt ends it. RE2 has no backreferences and no lookaround for this reason. `\\d`, `\\w`, `\\s`
and `\\b` are ASCII in RE2; `\\pL` is any letter. The library is imported with the first pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

LONGEST = 200
"""Characters of a pattern."""
REACH = 16_384
"""Characters of a text that are searched."""
MAX_MEMORY_BYTES = 1 << 20
"""Memory of one compiled pattern; it bounds the size of its program."""

_NOT_IN_RE2 = ("invalid perl operator", "invalid escape sequence")


class Pattern(NamedTuple):
    """A compiled pattern."""

    search: Callable[[str], object]

    def found_in(self, text: str) -> bool:
        """Whether it matches anywhere in the first `REACH` characters, ignoring case."""
        return self.search(text[:REACH]) is not None


@lru_cache(64)
def compiled(text: str) -> Pattern:
    """Compile a pattern with RE2, ignoring case.

    A text is searched as UTF-8. A lone surrogate (an undecodable byte) counts as a question mark,
    as it does in the index.

    Raises:
        ValueError: it is not valid or too large; the message says why.
    """
    import re2  # type: ignore[import-untyped]  # 4 ms, which no start needs

    if len(text) > LONGEST:
        raise ValueError(f"expected a pattern of at most {LONGEST} characters")
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        search = re2.compile(text, options).search
    except UnicodeEncodeError:
        raise ValueError("invalid pattern: not valid UTF-8") from None
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        more = "; no backreferences, no lookaround" if reason.startswith(_NOT_IN_RE2) else ""
        raise ValueError(f"invalid pattern: {reason}{more}") from None
    return Pattern(lambda part: search(part.encode("utf-8", "replace")))


def word(text: str) -> Pattern:
    """This literal text, with no letter and no digit directly before or after it."""
    return Pattern(re.compile(rf"(?<![^\W_]){re.escape(text)}(?![^\W_])", re.IGNORECASE).search)
