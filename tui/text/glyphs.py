"""Signs for UTF-8 locales, and their replacements for the Linux text console and, in ASCII, for all
other locales.

The other modules write the UTF-8 signs. If the locale has no UTF-8, each one, and every other
non-ASCII character of any text, is replaced when it is painted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

CURSOR, MARK, GONE, MORE = "▶", "●", "✗", "…"
"""The row under the cursor, a marked row, a row that has left, and the end of a cut text."""

RISING, FALLING = "▲", "▼"

SPARKS = "▁▂▃▄▅▆▇█"

Glyphs: TypeAlias = Mapping[int, str]
"""Replacement of each character, for `str.translate`; the width in cells is kept."""


class _AsciiTable(dict[int, str]):
    """Keeps ASCII; replaces a character without an ASCII equivalent by one `?` per cell."""

    def __missing__(self, code: int) -> str:
        from rich.cells import cell_len  # imported late: most runs need it never

        self[code] = text = chr(code) if code < 128 else "?" * cell_len(chr(code))
        return text


def _ascii_dots(bits: int) -> str:
    """The ASCII equivalent of a braille character: where its dots are, above, below or both."""
    above, below = bool(bits & 0x1B), bool(bits & 0xE4)
    return ":" if above and below else "'" if above else "." if below else " "


UTF8: Glyphs = {}
ASCII: Glyphs = _AsciiTable(
    str.maketrans(
        {
            **{CURSOR: ">", MARK: "*", GONE: "x", MORE: "~", RISING: "^", FALLING: "v"},
            **dict(zip(SPARKS, ".:-=+*#@", strict=True)),
            **dict(zip("▏▎▍▌▋▊▉─│▓▒░", "   ####-|=+.", strict=True)),
            **{chr(0x2800 + bits): _ascii_dots(bits) for bits in range(256)},
        }
    )
)

LINUX_CONSOLE: Glyphs = str.maketrans(
    {
        **{MARK: "*", GONE: "x", MORE: "~", "▓": "#"},
        **dict(zip(SPARKS[:-1], ".:-=+*#", strict=True)),
        **dict(zip("▏▎▍▌▋▊▉", "   ████", strict=True)),
        **dict(zip("╭╮╰╯", "┌┐└┘", strict=True)),
        **{chr(0x2800 + bits): _ascii_dots(bits) for bits in range(256)},
    }
)
"""For the Linux text console, whose fonts have 256 or 512 signs. Foreign text is kept."""

CONSOLE_FONT = frozenset("─│┌┐└┘█░▒▲▶▼")
"""Signs beyond ASCII that its fonts have: those of 8x16 in Debian's console-setup (Fixed, Terminus,
VGA, for each script), and the kernel's own (`drivers/tty/vt/cp437.uni`)."""

_COERCED = {"C.UTF-8", "C.utf8"}
_PLAIN = {"", "C", "POSIX"}


def is_linux_console(environ: Mapping[str, str]) -> bool:
    """True on the Linux text console, also inside GNU screen: `linux`, `linux-16color`,
    `screen.linux`."""
    return "linux" in re.split("[.-]", environ.get("TERM", ""))


def describe_glyphs(glyphs: Glyphs) -> str:
    """Which signs they are, for the help."""
    names = ((ASCII, "ASCII"), (LINUX_CONSOLE, "of the Linux console"))
    return next((name for known, name in names if glyphs == known), "UTF-8")


def glyphs_of_locale(environ: Mapping[str, str]) -> Glyphs:
    """The signs for the locale in LC_ALL, LC_CTYPE or LANG, in that order, and the terminal."""
    everything, ctype, language = (environ.get(k, "") for k in ("LC_ALL", "LC_CTYPE", "LANG"))
    # In a C locale Python sets this LC_CTYPE itself (PEP 538); the terminal does not know.
    if not everything and ctype in _COERCED and language in _PLAIN:
        return ASCII
    codeset = (everything or ctype or language).partition("@")[0].rpartition(".")[2]
    if codeset.lower().replace("-", "") != "utf8":
        return ASCII
    return LINUX_CONSOLE if is_linux_console(environ) else UTF8
