"""Themes: YAML files that say what each look of the console is; read at run time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import Theme

import themes
from engine.config import yaml_file
from engine.system.files import open_file
from engine.text.safe import shown
from tui.format.present import LOOKS

DEFAULT = "terminal"
"""The terminal's own 16 colours and background: it is readable wherever the terminal is."""

MONO = "mono"
"""No colour at all: what `NO_COLOR` asks for."""

ALIASES = {"ansi": DEFAULT, "dark": "night"}
"""Names that themes had before."""

LIMIT = 1 << 16
"""Bytes of a theme that are read; ours have a thousand."""

STYLES = frozenset({"none", "bold", "dim", "italic", "underline", "reverse", "strike"})
"""What a look may be besides coloured. No blinking: it never stops asking for attention."""

OWN = "ansi_default"
"""The terminal's own colour, whatever that is."""

_KNOWN = {"about", "based_on", "ansi", "dark", "foreground", "background", "looks"}
_LOOK = {"color", "background", "style"}

Stamp: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The files a theme was read from, and how each of them looked; () for one that was not there."""


class BadTheme(Exception):
    """A theme that cannot be read; the message says which, where, and what was expected."""


class Dress(NamedTuple):
    """A theme as it was read."""

    name: str
    """As it was asked for, a name or a path."""
    theme: Theme
    files: Stamp
    """Its own file first, then those it is based on."""


def folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where themes lie: the operator's own first, then those that come with the console."""
    config = environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):  # the base directory specification: a relative one is ignored
        config = f"{environ['HOME']}/.config" if environ.get("HOME") else ""
    own = (Path(config, "spooldeck", "themes"),) if config else ()
    return (*own, Path(themes.__file__).parent)


def names(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The themes there are by name: those that come with the console, and the operator's own."""
    return tuple(sorted({f.stem for folder in folders(environ) for f in folder.glob("*.yaml")}))


def load(name: str, environ: Mapping[str, str] = os.environ) -> Dress:
    """A theme by its name, or by the path of a YAML file; under `NO_COLOR` one without colours.

    "" is the default one.

    Raises:
        BadTheme: there is none of that name, or its file is not what a theme is.
    """
    dress = _read(name or DEFAULT, environ)
    if environ.get("NO_COLOR") and not is_colourless(dress.theme):
        return _read(MONO, environ)
    return dress


def _read(name: str, environ: Mapping[str, str]) -> Dress:
    files: list[Path] = []
    layers = [_content(name, name, environ, files)]
    while base := layers[-1].get("based_on", ""):
        layers.append(_content(name, str(base), environ, files))
    said: dict[str, Any] = {"looks": {}}
    for layer in reversed(layers):
        said |= {key: value for key, value in layer.items() if key != "looks"}
        for look, parts in layer.get("looks", {}).items():
            said["looks"][look] = said["looks"].get(look, {}) | parts
    return Dress(name, _theme(name, said), stamp(files))


def _content(asked: str, name: str, environ: Mapping[str, str], files: list[Path]) -> Any:
    """What the file of a theme says, checked; the file is added to `files`.

    A theme may be based on one of its own name: that is the next one of it, as the folders go.
    """
    if "/" in name or name.endswith(".yaml"):
        candidates = [Path(name)]
    else:
        file = f"{ALIASES.get(name, name)}.yaml"
        candidates = [folder / file for folder in folders(environ)]
    # Of a path only the end: what is wrong has to stand in the same line of a screen.
    where = f"theme {shown(Path(asked).name)}" + (f", based_on {shown(name)}" if files else "")
    path = next((path for path in candidates if path not in files and path.exists()), None)
    if path is None:
        known = f"there are {', '.join(names(environ))}, and any YAML file by its path"
        loop = any(path in files for path in candidates)
        raise BadTheme(f"{where}: {'is based on itself' if loop else f'no such theme; {known}'}")
    files.append(path)
    try:
        content = yaml_file.load(_read_bytes(path))
    except OSError as error:
        raise BadTheme(f"{where}: {shown(str(path))}: {error.strerror}") from error
    except ValueError as error:
        raise BadTheme(f"{where}: {shown(str(error))}") from error
    return _checked(where, content)


def _read_bytes(path: Path) -> bytes:
    # A pipe or a terminal in its place must not keep us waiting.
    fd = open_file(str(path))
    with os.fdopen(fd, "rb") as file:
        data = file.read(LIMIT + 1)
    if len(data or b"") > LIMIT:
        raise ValueError(f"expected at most {LIMIT:,} bytes")
    return data or b""


def stamp(files: list[Path]) -> Stamp:
    """How these files look now: another stamp, another content."""
    return tuple((str(path), _seen(path)) for path in files)


def _seen(path: Path) -> tuple[int, ...]:
    try:
        state = path.stat()
    except OSError:
        return ()
    return (state.st_ino, state.st_mtime_ns, state.st_size)


# What a file may say


def _checked(where: str, content: Any) -> dict[str, Any]:
    content = {} if content is None else content
    _only(where, content, _KNOWN)
    looks = content.get("looks", {})
    _only(f"{where}, looks", looks, set(LOOKS))
    for key in ("based_on", "foreground", "background"):
        if not isinstance(content.get(key, ""), str):
            raise BadTheme(f"{where}, {key}: expected text")
    for key in ("ansi", "dark"):
        if not isinstance(content.get(key, True), bool):
            raise BadTheme(f"{where}, {key}: expected true or false")
    for key in ("foreground", "background"):
        _check_color(f"{where}, {key}", content.get(key, OWN))
    for look, parts in looks.items():
        at = f"{where}, looks, {look}"
        _only(at, parts, _LOOK)
        for key in ("color", "background"):
            _check_color(f"{at}, {key}", parts.get(key, OWN))
        style = parts.get("style", "none")
        if not isinstance(style, str) or not STYLES.issuperset(style.split()):
            raise BadTheme(f"{at}, style: expected words of {', '.join(sorted(STYLES))}")
    return dict(content)


def _only(where: str, mapping: Any, known: set[str]) -> None:
    if not isinstance(mapping, dict):
        raise BadTheme(f"{where}: expected a mapping of {', '.join(sorted(known))}")
    unknown = sorted(set(map(str, mapping)) - known)
    if unknown:
        raise BadTheme(
            f"{where}: unknown {shown(', '.join(unknown))[:60]}; "
            f"known are {', '.join(sorted(known))}"
        )


def _check_color(where: str, said: Any) -> None:
    try:
        Color.parse(said if isinstance(said, str) else "")
    except ColorParseError as error:
        found = f"not {shown(said)[:40]!r}" if isinstance(said, str) else "as text"
        raise BadTheme(f"{where}: expected a colour like ansi_red or '#ff8800', {found}") from error


def _theme(name: str, said: Mapping[str, Any]) -> Theme:
    foreground, background = said.get("foreground", OWN), said.get("background", OWN)
    # The terminal library's own sheets ask for these two, which it has for its own themes only.
    variables = {"ansi-background": background, "ansi-foreground": foreground}
    for look in LOOKS:
        parts = said["looks"].get(look, {})
        variables[f"{look}-color"] = parts.get("color", foreground)
        variables[f"{look}-background"] = parts.get("background", "transparent")
        variables[f"{look}-text"] = str(parts.get("style", "none"))
    return Theme(
        name=name,
        primary=foreground,
        foreground=foreground,
        background=background,
        surface=background,
        panel=background,
        boost=background,
        dark=said.get("dark", True),
        ansi=said.get("ansi", False),
        variables=variables,
    )


# What a theme makes of the looks


def is_colourless(theme: Theme) -> bool:
    """Whether it names no colour but the terminal's own."""
    said = theme.variables
    parts = {said[f"{look}-{part}"] for look in LOOKS for part in ("color", "background")}
    return parts | {theme.foreground, theme.background} <= {OWN, "transparent"}


def looks(theme: Theme) -> dict[str, Style]:
    """The style of each look in a theme, and of plain text, without what the terminal has itself.

    Each holds the theme's own background: nothing else would paint it behind the text.
    """
    said = theme.variables
    plain = Style(color=_color(theme.foreground, OWN), bgcolor=_color(theme.background, OWN))
    return {"": plain} | {
        look: plain
        + Style(
            color=_color(said[f"{look}-color"], theme.foreground),
            bgcolor=_color(said[f"{look}-background"], "transparent"),
        )
        + Style.parse(said[f"{look}-text"])
        for look in LOOKS
    }


@cache
def _color(text: str | None, usual: str | None) -> RichColor | None:
    return None if text is None or text == usual else Color.parse(text).rich_color
