"""Load themes (colours, text styles) from YAML files; apply one, again when its file changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from rich.color import Color as RichColor
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

import themes
from engine.config import yaml_file
from engine.system.files import open_file
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.text.styles import BARE, DERIVED_STYLES, ON_BAR, ON_CURSOR, TOKENS
from tui.widgets.line_widgets import Painted

DEFAULT_THEME = "terminal"
"""Default theme where there are few colours: the terminal's own 16 and its background."""

LIGHT_THEME = "terminal-light"

MONO_THEME = "mono"
"""Theme without colours, for `NO_COLOR`."""

FEW_COLORS, PALETTE = "standard", "256"
"""What Rich calls a terminal with 16 colours, and one with 256 that no program may mix."""

FORMER_NAMES = {"ansi": DEFAULT_THEME, "dark": "night"}
"""Former names of themes."""

MAX_THEME_BYTES = 1 << 16
"""Maximum size of a theme file; ours have about 1,000 bytes."""

TEXT_STYLES = frozenset({"none", "bold", "dim", "italic", "underline", "reverse", "strike"})
"""Allowed text styles. No blinking: it would distract all the time."""

STYLE_NAMES = (*TOKENS, *DERIVED_STYLES)
"""All names that a theme file may define below `looks`."""

FORMER_STYLES = {
    **{"dim": "muted", "good": "ok", "warning": "warn", "bad": "error", "rule": "line"},
    **{"gone": "ghost", "grey": "muted", "armed": "chip-warn", "stake": "chip-error"},
}
"""Former names of styles: files with them are still read."""

TERMINAL_COLOR = "ansi_default"

_LOOKS, _LOOKS_256 = "looks", "looks_256"
_THEME_KEYS = {"about", "based_on", "ansi", "dark", "foreground", "background", _LOOKS, _LOOKS_256}
_STYLE_KEYS = {"color", "background", "style"}

FileStamps: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Files that a theme was read from, with their stat values; () for a missing file."""


class BadTheme(Exception):
    """A theme cannot be read; the message says which, where, and what was expected."""


class LoadedTheme(NamedTuple):
    """A loaded theme."""

    name: str
    """Name or path as requested."""
    theme: Theme
    files: FileStamps
    """Its own file first, then those it is based on."""
    note: str = ""
    """Former style names in these files, and how they are read; "" if there are none."""


def theme_folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Theme folders: the operator's own first, then the package's."""
    config = environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):  # the base directory specification: a relative one is ignored
        config = f"{environ['HOME']}/.config" if environ.get("HOME") else ""
    own_folders = (Path(config, "spooldeck", "themes"),) if config else ()
    return (*own_folders, Path(themes.__file__).parent)


def theme_names(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Names of all themes, the package's and the operator's own."""
    return tuple(
        sorted({f.stem for folder in theme_folders(environ) for f in folder.glob("*.yaml")})
    )


def default_theme(environ: Mapping[str, str] = os.environ, color_system: str | None = None) -> str:
    """The theme for what a terminal can show, by Rich's name for its colours: with 256 or more one
    of ours, which looks the same everywhere, else the terminal's own; for the background that it
    reports in `COLORFGBG` (`0;15`). It is not asked for it: the answer could come late, over a slow
    line, and be typed into the shell."""
    is_light = environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    if color_system in (PALETTE, "truecolor"):
        return "paper" if is_light else "night"
    return LIGHT_THEME if is_light else DEFAULT_THEME


def load_theme(
    name: str, environ: Mapping[str, str] = os.environ, color_system: str | None = None
) -> LoadedTheme:
    """Load a theme by name or by the path of a YAML file, for a terminal with these colours (Rich's
    name; None: all); "" is the default theme. Under `NO_COLOR` one without colours; where there are
    16 colours, one that uses no others. Raises BadTheme: no such theme, or its file is invalid."""
    loaded = _read(name or default_theme(environ, color_system), environ, color_system)
    if environ.get("NO_COLOR") and not is_colourless(loaded.theme):
        return _read(MONO_THEME, environ, color_system)
    if color_system == FEW_COLORS and not str(loaded.theme.background).startswith("ansi_"):
        return _read(DEFAULT_THEME if loaded.theme.dark else LIGHT_THEME, environ, color_system)
    return loaded


def _read(name: str, environ: Mapping[str, str], color_system: str | None) -> LoadedTheme:
    files: list[Path] = []
    layers = [_read_content(name, name, environ, files)]
    while base := layers[-1].get("based_on", ""):
        layers.append(_read_content(name, str(base), environ, files))
    values: dict[str, Any] = {_LOOKS: {}}
    former = sorted({old for layer in layers for old in layer.get(_LOOKS, {})} & {*FORMER_STYLES})
    of_palette = (_LOOKS_256,) if color_system == PALETTE else ()
    for layer in reversed(layers):
        values |= {key: value for key, value in layer.items() if key not in (_LOOKS, _LOOKS_256)}
        for looks in (_LOOKS, *of_palette):
            for style_name, parts in layer.get(looks, {}).items():
                now = FORMER_STYLES.get(style_name, style_name)
                values[_LOOKS][now] = values[_LOOKS].get(now, {}) | parts
    read_as = ", ".join(f"{old} is now {FORMER_STYLES[old]}" for old in former)
    note = f"theme {safe_line(Path(name).name)}: {read_as}" if former else ""
    return LoadedTheme(name, _build_theme(name, values), file_stamps(files), note)


def _read_content(asked: str, name: str, environ: Mapping[str, str], files: list[Path]) -> Any:
    """Read and check a theme file; append it to `files`. A theme may be based on its own name: that
    is the theme of that name in the next folder."""
    if "/" in name or name.endswith(".yaml"):
        candidates = [Path(name)]
    else:
        file = f"{FORMER_NAMES.get(name, name)}.yaml"
        candidates = [folder / file for folder in theme_folders(environ)]
    # Of a path only the end, so that the error fits on the same line of the screen.
    where = f"theme {safe_line(Path(asked).name)}" + (
        f", based_on {safe_line(name)}" if files else ""
    )
    path = next((path for path in candidates if path not in files and path.exists()), None)
    if path is None:
        known = f"available: {', '.join(theme_names(environ))}, or the path of a YAML file"
        loop = any(path in files for path in candidates)
        raise BadTheme(f"{where}: {'is based on itself' if loop else f'no such theme; {known}'}")
    files.append(path)
    try:
        content = yaml_file.load_yaml(_read_bytes(path))
    except OSError as error:
        raise BadTheme(f"{where}: {safe_line(str(path))}: {error_text(error)}") from error
    except ValueError as error:
        raise BadTheme(f"{where}: {safe_line(str(error))}") from error
    return _check_content(where, content)


def _read_bytes(path: Path) -> bytes:
    # Do not block on a pipe or a terminal in its place.
    fd = open_file(str(path))
    with os.fdopen(fd, "rb") as file:
        data = file.read(MAX_THEME_BYTES + 1)
    if len(data or b"") > MAX_THEME_BYTES:
        raise ValueError(f"expected at most {MAX_THEME_BYTES:,} bytes")
    return data or b""


def file_stamps(files: list[Path]) -> FileStamps:
    """Inode, mtime and size of these files."""
    return tuple((str(path), _file_stamp(path)) for path in files)


def _file_stamp(path: Path) -> tuple[int, ...]:
    try:
        state = path.stat()
    except OSError:
        return ()
    return (state.st_ino, state.st_mtime_ns, state.st_size)


# Checking a file


def _check_content(where: str, content: Any) -> dict[str, Any]:
    content = {} if content is None else content
    _check_keys(where, content, _THEME_KEYS)
    for key in ("based_on", "foreground", "background"):
        if not isinstance(content.get(key, ""), str):
            raise BadTheme(f"{where}, {key}: expected text")
    for key in ("ansi", "dark"):
        if not isinstance(content.get(key, True), bool):
            raise BadTheme(f"{where}, {key}: expected true or false")
    for key in ("foreground", "background"):
        _check_color(f"{where}, {key}", content.get(key, TERMINAL_COLOR))
    for looks in (_LOOKS, _LOOKS_256):
        _check_looks(f"{where}, {looks}", content.get(looks, {}))
    return dict(content)


def _check_looks(where: str, styles: Any) -> None:
    _check_keys(where, styles, {*STYLE_NAMES}, {*FORMER_STYLES})
    for style_name, parts in styles.items():
        at = f"{where}, {style_name}"
        _check_keys(at, parts, _STYLE_KEYS)
        for key in ("color", "background"):
            _check_color(f"{at}, {key}", parts.get(key, TERMINAL_COLOR))
        style = parts.get("style", "none")
        if not isinstance(style, str) or not TEXT_STYLES.issuperset(style.split()):
            raise BadTheme(f"{at}, style: expected words of {', '.join(sorted(TEXT_STYLES))}")


def _check_keys(where: str, mapping: Any, known: set[str], former: Set[str] = frozenset()) -> None:
    if not isinstance(mapping, dict):
        raise BadTheme(f"{where}: expected a mapping of {', '.join(sorted(known))}")
    unknown = sorted(set(map(str, mapping)) - known - former)
    if unknown:
        raise BadTheme(
            f"{where}: unknown {safe_line(', '.join(unknown))[:60]}; "
            f"expected {', '.join(sorted(known))}"
        )


def _check_color(where: str, color: Any) -> None:
    try:
        Color.parse(color if isinstance(color, str) else "")
    except ColorParseError as error:
        problem = f"not {safe_line(color)[:40]!r}" if isinstance(color, str) else "as text"
        raise BadTheme(
            f"{where}: expected a colour like ansi_red or '#ff8800', {problem}"
        ) from error


def _build_theme(name: str, values: Mapping[str, Any]) -> Theme:
    foreground, background = (
        values.get("foreground", TERMINAL_COLOR),
        values.get("background", TERMINAL_COLOR),
    )
    # Textual's own style sheets use these two variables and define them for its own themes only.
    variables = {"ansi-background": background, "ansi-foreground": foreground}
    styles = values[_LOOKS]
    for style_name in STYLE_NAMES:
        parts = styles.get(style_name) or _derived_parts(style_name, styles, background)
        variables[f"{style_name}-color"] = parts.get("color", foreground)
        variables[f"{style_name}-background"] = parts.get("background", "transparent")
        variables[f"{style_name}-text"] = str(parts.get("style", "none"))
    return Theme(
        name=name,
        primary=foreground,
        foreground=foreground,
        background=background,
        surface=background,
        panel=background,
        boost=background,
        dark=values.get("dark", True),
        ansi=values.get("ansi", False),
        variables=variables,
    )


def _derived_parts(
    style_name: str, styles: Mapping[str, Any], background: str
) -> Mapping[str, str]:
    """A style that the theme does not define, made of its tokens."""
    accent = styles.get("accent", {})
    if style_name == "strong":
        return {"style": "bold"}
    if style_name in ("title", "key", "mark"):
        return {**accent, "style": "bold"}
    if style_name == "tab":
        style_name = "chip-accent"
    if not style_name.startswith("chip-"):
        return {}
    color = styles.get(style_name.removeprefix("chip-"), {}).get("color")
    if color is None:  # no colours: the chip has brackets, see `Painted.strip_of`
        return {"style": "reverse" if style_name == "chip-error" else "bold"}
    # Words on a filled chip have the colour of the ground, or are black on one of the 16 colours.
    words = "ansi_black" if background == TERMINAL_COLOR else background
    return {"color": words, "background": color, "style": "bold"}


# Using a theme


def is_colourless(theme: Theme) -> bool:
    """True if the theme uses no colour but the terminal's own."""
    values = theme.variables
    parts = {
        values[f"{style_name}-{part}"]
        for style_name in STYLE_NAMES
        for part in ("color", "background")
    }
    return parts | {theme.foreground, theme.background} <= {TERMINAL_COLOR, "transparent"}


def theme_styles(theme: Theme) -> dict[str, Style]:
    """The style of each style name in a theme, and of plain text, without the terminal's defaults.
    Each contains the theme's background: nothing else would paint it behind the text."""
    values = theme.variables
    plain = Style(
        color=_parse_color(theme.foreground, TERMINAL_COLOR),
        bgcolor=_parse_color(theme.background, TERMINAL_COLOR),
    )
    styles = {"": plain} | {
        style_name: plain
        + Style(
            color=_parse_color(values[f"{style_name}-color"], theme.foreground),
            bgcolor=_parse_color(values[f"{style_name}-background"], "transparent"),
        )
        + Style.parse(values[f"{style_name}-text"])
        for style_name in STYLE_NAMES
    }
    bare = {
        name: style + Style(underline=False, reverse=False, strike=False)
        for name, style in styles.items()
        if name not in ("cursor", "tab") and not name.startswith("chip")
        if style.underline or style.reverse or style.strike
    }
    bar = Style(bgcolor=styles["chip"].bgcolor)
    grounds: Mapping[str, Callable[[Style], Style]] = {
        "": lambda style: style,
        ON_CURSOR: lambda style: _on_cursor(style, styles),
        ON_BAR: lambda style: style if _is_filled(style, styles) else style + bar,
    }
    return {
        f"{name}{ground}{end}": put(style)
        for ground, put in grounds.items()
        for end, some in (("", styles), (BARE, bare))
        for name, style in some.items()
    }


def _is_filled(style: Style, styles: Mapping[str, Style]) -> bool:
    return style.bgcolor not in (None, styles[""].bgcolor)


def _on_cursor(style: Style, styles: Mapping[str, Style]) -> Style:
    """A style on the row under the cursor: it keeps its colour, on the ground of the cursor. A
    cursor that is shown by reversing has no colours but those of filled chips, and shows a reversed
    style by not reversing it."""
    cursor = styles["cursor"]
    if _is_filled(style, styles):
        return style
    if cursor.reverse:
        # Faint text on a bright ground could not be read.
        return style.without_color + Style(reverse=not style.reverse, dim=False)
    return style + Style(bgcolor=cursor.bgcolor)


@cache
def _parse_color(text: str | None, usual: str | None) -> RichColor | None:
    return None if text is None or text == usual else Color.parse(text).rich_color


CHECK_SECONDS = 1.0
"""Seconds between two checks of the theme files."""


class ThemeLoader:
    """Applies themes to an app and watches their files; a theme with an error is not applied."""

    def __init__(self, app: App[Any], name: str) -> None:
        """Apply that theme now; blocks: no event loop runs yet. Raises BadTheme: no such theme."""
        self._app = app
        self._color_system = app.console.color_system
        self._loaded = self._load(name)
        self._stamps = self._loaded.files
        self._apply_count = 0
        self._apply(self._loaded)

    @property
    def name(self) -> str:
        """Current theme, as requested."""
        return self._loaded.name

    @property
    def note(self) -> str:
        """Former style names in the files of the theme; "" if there are none."""
        return self._loaded.note

    async def use_theme(self, name: str) -> str:
        """Apply another theme; return a message."""
        try:
            loaded = await asyncio.to_thread(self._load, name)
        except BadTheme as error:
            return f"{error}; {self.name} unchanged"
        self._apply(loaded)
        asked = name or default_theme(color_system=self._color_system)
        if loaded.name == asked:
            return loaded.note or f"theme {asked}"
        colourless = is_colourless(loaded.theme)
        why = "NO_COLOR is set, {} has colours" if colourless else "{} needs more than 16 colours"
        return f"theme {loaded.name}: {why.format(asked)}"

    def _load(self, name: str) -> LoadedTheme:
        return load_theme(name, color_system=self._color_system)

    async def follow_files(self, say: Callable[[str], None]) -> None:
        """Apply the theme again whenever its files change; `say` shows messages."""
        if self.note:
            say(self.note)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if words := await self.reload_if_changed():
                say(words)

    async def reload_if_changed(self) -> str:
        """Apply the theme again if its file has changed; return a message, "" if unchanged."""
        before = self._stamps
        stamps = await asyncio.to_thread(file_stamps, [Path(path) for path, _ in before])
        if stamps == before or self._stamps is not before:
            return ""  # unchanged, or another theme was applied
        self._stamps = stamps  # report an error only once
        return await self._reload(self._loaded.name)

    async def _reload(self, name: str) -> str:
        before = self._stamps
        try:
            loaded = await asyncio.to_thread(self._load, name)
        except BadTheme as error:
            return f"{error}; theme unchanged"
        if self._stamps is not before:
            return ""  # another theme was applied
        self._apply(loaded)
        return f"theme {Path(loaded.name).name} reloaded"

    def _apply(self, loaded: LoadedTheme) -> None:
        app = self._app
        self._loaded, self._stamps = loaded, loaded.files
        self._apply_count += 1
        # Textual restyles nothing for a theme of the same name, even if its colours changed.
        worn = replace(loaded.theme, name=f"worn-{self._apply_count}")
        app.register_theme(worn)
        app.theme = worn.name
        app.unregister_theme(f"worn-{self._apply_count - 1}")
        self.looks: Mapping[str, Style] = theme_styles(worn)
        self.is_colorless = is_colourless(worn)
        for screen in app.screen_stack if app.is_running else ():
            for widget in screen.walk_children(Painted):
                widget.rewrite_frame()
                widget.refresh()
