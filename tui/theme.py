"""Themes: YAML files that say what each look of the console is; read at run time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

import themes
from tui.present import LOOKS

DEFAULT = "ansi"
"""The terminal's own 16 colours and background: it is readable wherever the terminal is."""

MONO = "mono"
"""No colour at all: what `NO_COLOR` asks for."""

_KNOWN = {"about", "ansi", "dark", "foreground", "background", "looks"}
_LOOK = {"color", "background", "style"}


class BadTheme(Exception):
    """A theme that cannot be read; the message says which, where, and what was expected."""


def names() -> tuple[str, ...]:
    """The themes that come with the console."""
    return tuple(sorted(file.stem for file in _folder().glob("*.yaml")))


def _folder() -> Path:
    return Path(themes.__file__).parent


def chosen(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Which theme to use: the one asked for, else one without colour if `NO_COLOR` is set."""
    return name or (MONO if environ.get("NO_COLOR") else DEFAULT)


def load(name: str) -> Theme:
    """A theme by its name, or by the path of a YAML file.

    Raises:
        BadTheme: there is none of that name, or its file is not what a theme is.
    """
    import yaml

    # The one written in C takes a tenth of the time, and is not there everywhere.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(_text(name), loader)
    except (OSError, UnicodeDecodeError) as error:
        raise BadTheme(f"theme {name}: {error}; there are {', '.join(names())}") from error
    except yaml.YAMLError as error:
        raise BadTheme(f"theme {name}: no YAML: {' '.join(str(error).split())}") from error
    return _theme(name, content)


def _text(name: str) -> str:
    own = "/" in name or name.endswith(".yaml")
    path = Path(name) if own else _folder() / f"{name}.yaml"
    return path.read_text(encoding="utf-8")


def _theme(name: str, content: Any) -> Theme:
    if not isinstance(content, dict) or not isinstance(content.get("looks", {}), dict):
        raise BadTheme(f"theme {name}: expected a mapping with `looks`")
    _only(name, content, _KNOWN)
    looks = content.get("looks", {})
    _only(f"{name}, looks", looks, set(LOOKS))
    foreground = str(content.get("foreground", "ansi_default"))
    background = str(content.get("background", "ansi_default"))
    # The terminal library's own sheets ask for these two, which it has for its own themes only.
    variables = {"ansi-background": background, "ansi-foreground": foreground}
    for look in LOOKS:
        said = looks.get(look) or {}
        _only(f"{name}, looks, {look}", said, _LOOK)
        variables[f"{look}-color"] = str(said.get("color", foreground))
        variables[f"{look}-background"] = str(said.get("background", "transparent"))
        variables[f"{look}-text"] = str(said.get("style", "none"))
    return Theme(
        name=name,
        primary=foreground,
        foreground=foreground,
        background=background,
        surface=background,
        panel=background,
        boost=background,
        dark=bool(content.get("dark", True)),
        ansi=bool(content.get("ansi", False)),
        variables=variables,
    )


def _only(where: str, mapping: Any, known: set[str]) -> None:
    if not isinstance(mapping, dict):
        raise BadTheme(f"theme {where}: expected a mapping")
    unknown = sorted(set(map(str, mapping)) - known)
    if unknown:
        raise BadTheme(
            f"theme {where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )


def looks(theme: Theme) -> dict[str, Style]:
    """The style of each look in a theme, without what it leaves to the screen."""
    said = theme.variables
    return {
        look: Style(
            color=_color(said[f"{look}-color"], theme.foreground),
            bgcolor=_color(said[f"{look}-background"], "transparent"),
        )
        + Style.parse(said[f"{look}-text"])
        for look in LOOKS
    }


@cache
def _color(text: str, usual: str | None) -> RichColor | None:
    return None if text == usual else Color.parse(text).rich_color
