"""Themes: what a file may say, and what is said about one that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui import theme as themes
from tui.present import LOOKS


@pytest.mark.parametrize("name", themes.names())
def test_a_theme_says_what_each_look_is(name: str) -> None:
    """Each look has a colour, a background and a weight in each theme."""
    variables = themes.load(name).variables

    assert {f"{look}-{part}" for look in LOOKS for part in ("color", "background", "text")} <= set(
        variables
    )


def test_the_default_is_the_terminals_own() -> None:
    """Without a word about it, the terminal's own palette and background are used."""
    theme = themes.load(themes.chosen("", {}))

    assert theme.ansi
    assert theme.background == "ansi_default"


def test_no_color_is_heeded() -> None:
    """NO_COLOR chooses the theme without colours, unless a theme was asked for."""
    assert themes.chosen("", {"NO_COLOR": "1"}) == "mono"
    assert themes.chosen("dark", {"NO_COLOR": "1"}) == "dark"


def test_mono_has_no_colour() -> None:
    """The theme without colours names none."""
    variables = themes.load("mono").variables

    assert {v for k, v in variables.items() if k.endswith("-color")} == {"ansi_default"}
    assert {v for k, v in variables.items() if k.endswith("-background")} <= {
        "transparent",
        "ansi_default",
    }


def test_a_theme_of_ones_own(tmp_path: Path) -> None:
    """A theme may be any YAML file."""
    path = tmp_path / "mine.yaml"
    path.write_text("foreground: '#ffffff'\nlooks: {bad: {color: '#ff0000'}}\n")

    assert themes.load(str(path)).variables["bad-color"] == "#ff0000"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("looks: {worse: {color: red}}", "unknown worse"),
        ("looks: {bad: {colour: red}}", "unknown colour"),
        ("color: red", "unknown color"),
        ("[1, 2]", "expected a mapping"),
        ("a: [", "no YAML"),
    ],
)
def test_what_is_wrong_with_a_theme_is_said(tmp_path: Path, text: str, words: str) -> None:
    """A theme with something unknown in it is refused, with its name and what was expected."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)

    with pytest.raises(themes.BadTheme, match=words):
        themes.load(str(path))


def test_a_theme_that_is_not_there() -> None:
    """A name that is none is answered with those there are."""
    with pytest.raises(themes.BadTheme, match="ansi, dark, mono"):
        themes.load("nowhere")
