"""Which signs a terminal can show: those beyond ASCII only where the locale says UTF-8.

`present` writes the UTF-8 signs; where the locale has no UTF-8, each is replaced as it is painted,
and so is every other character beyond ASCII, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

CURSOR, MARK, GONE, MORE = "▶", "●", "✗", "…"
"""The row under the cursor, a marked row, one that has left, and where a text was cut."""

RISING, FALLING = "▲", "▼"
"""What a list is ordered by: from the least up, or from the greatest down."""

SPARKS = "▁▂▃▄▅▆▇█"
"""From little to much: what a sparkline is made of."""

Glyphs: TypeAlias = Mapping[int, str]
"""By what each character is replaced, as `str.translate` takes it; the cells stay as many."""


class _AsciiTable(dict[int, str]):
    """Leaves ASCII as it is; what has no twin in it becomes a question mark for each cell."""

    def __missing__(self, code: int) -> str:
        from rich.cells import cell_len  # most never meet such a character

        self[code] = text = chr(code) if code < 128 else "?" * cell_len(chr(code))
        return text


UTF8: Glyphs = {}
ASCII: Glyphs = _AsciiTable(
    str.maketrans(
        {
            **{CURSOR: ">", MARK: "*", GONE: "x", MORE: "~", RISING: "^", FALLING: "v"},
            **dict(zip(SPARKS, ".:-=+*#@", strict=True)),
        }
    )
)

_COERCED = {"C.UTF-8", "C.utf8"}
_PLAIN = {"", "C", "POSIX"}


def chosen(environ: Mapping[str, str]) -> Glyphs:
    """The signs for the locale that LC_ALL, LC_CTYPE or LANG names, in that order."""
    everything, ctype, language = (environ.get(k, "") for k in ("LC_ALL", "LC_CTYPE", "LANG"))
    # In a C locale Python sets this LC_CTYPE itself (PEP 538); the terminal knows nothing of it.
    if not everything and ctype in _COERCED and language in _PLAIN:
        return ASCII
    codeset = (everything or ctype or language).partition("@")[0].rpartition(".")[2]
    return UTF8 if codeset.lower().replace("-", "") == "utf8" else ASCII
