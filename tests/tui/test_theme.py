"""Themes: what a file may say, what is said about one that cannot be read, and what can be seen."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from textual.color import Color

from tests.tui.spools import (
    a_console,
    a_memory,
    a_place,
    loaded,
    queue_of,
    some_tasks,
    task_list,
    until,
)
from tui import keys
from tui import theme as themes
from tui.app import Console
from tui.present import LOOKS

SHIPPED = ("high-contrast", "mono", "night", "paper", "terminal")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's own folder of themes."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    folder = tmp_path / "spooldeck" / "themes"
    folder.mkdir(parents=True)
    return folder


def test_what_comes_with_the_console() -> None:
    """These are the themes there are, where the operator has none."""
    assert themes.names({}) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_theme_says_what_each_look_is(name: str) -> None:
    """Each look has a colour, a background and a weight in each theme."""
    variables = themes.load(name, {}).theme.variables
    assert {f"{look}-{part}" for look in LOOKS for part in ("color", "background", "text")} <= set(
        variables
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_what_has_to_be_told_apart_can_be(name: str) -> None:
    """Cursor, tab, armed, stake, and plain text look different from one another, in each theme."""
    looks = themes.looks(themes.load(name, {}).theme)
    apart = ("cursor", "tab", "armed", "stake", "bad", "warning", "strong", "dim", "gone")
    same = {("tab", "stake"), ("warning", "strong")} if name == "mono" else set()
    for at, one in enumerate(apart):
        assert looks[one].render("x") != "x", one
        for other in apart[at + 1 :]:
            assert looks[one] != looks[other] or (one, other) in same, (one, other)


@pytest.mark.parametrize(("name", "least"), [("night", 4.5), ("paper", 4.5), ("high-contrast", 7)])
def test_every_text_can_be_read(name: str, least: float) -> None:
    """Each look has at least this contrast (WCAG 2) with what it stands on."""
    theme = themes.load(name, {}).theme
    said = theme.variables
    lacking = {}
    for look in LOOKS:
        background = said[f"{look}-background"]
        on = theme.background if background == "transparent" else background
        contrast = contrast_of(said[f"{look}-color"], str(on))
        if contrast < least:
            lacking[look] = round(contrast, 2)

    assert not lacking


def contrast_of(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, as WCAG 2 reckons it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """How bright a colour is, from 0 to 1."""
    parts = (value / 255 for value in Color.parse(colour).rgb)
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_default_is_the_terminals_own() -> None:
    """Without a word about it, the terminal's own palette and background are used."""
    dress = themes.load("", {})
    assert dress.theme.ansi
    assert dress.theme.background == "ansi_default"


@pytest.mark.parametrize(("old", "new"), themes.ALIASES.items())
def test_names_of_before_still_work(old: str, new: str) -> None:
    """A configuration with a name that a theme had before means that theme."""
    assert themes.load(old, {}).theme.variables == themes.load(new, {}).theme.variables


@pytest.mark.parametrize("name", ["", *SHIPPED])
def test_no_color_is_heeded(name: str) -> None:
    """Under NO_COLOR a theme without colours is used, whatever was asked for."""
    assert themes.is_colourless(themes.load(name, {"NO_COLOR": "1"}).theme)
    assert themes.load(name, {"NO_COLOR": ""}).theme.name == (name or themes.DEFAULT)


def test_a_theme_without_colours_stays_under_no_color(own: Path) -> None:
    """A theme of one's own that names no colour is what is used under NO_COLOR."""
    (own / "mine.yaml").write_text("{based_on: mono, looks: {good: {style: italic}}}")
    dress = themes.load("mine", {**os.environ, "NO_COLOR": "1"})
    assert dress.theme.variables["good-text"] == "italic"


def test_only_mono_has_no_colour() -> None:
    """The theme without colours names none, and the others do."""
    assert [n for n in SHIPPED if themes.is_colourless(themes.load(n, {}).theme)] == ["mono"]


def test_a_theme_of_ones_own(own: Path) -> None:
    """A theme is any YAML file, by its path, or by its name in the configuration folder."""
    path = own / "mine.yaml"
    path.write_text("foreground: '#ffffff'\nlooks: {bad: {color: '#ff0000'}}\n")
    assert themes.load(str(path)).theme.variables["bad-color"] == "#ff0000"
    assert themes.load("mine").theme.variables["bad-color"] == "#ff0000"
    assert "mine" in themes.names()


def test_a_theme_may_change_only_some_looks(own: Path) -> None:
    """What a theme does not say is as in the one it is based on."""
    (own / "mine.yaml").write_text("{based_on: night, looks: {bad: {color: '#ff0000'}}}")
    mine, night = (themes.load(name).theme.variables for name in ("mine", "night"))
    assert {key for key in mine if mine[key] != night[key]} == {"bad-color"}


def test_a_theme_may_be_based_on_the_one_it_replaces(own: Path) -> None:
    """One's own `night` is based on the `night` that comes with the console."""
    (own / "night.yaml").write_text("{based_on: night, looks: {bad: {color: '#ff0000'}}}")
    mine, night = themes.load("night").theme, themes.load("night", {}).theme
    assert mine.variables["bad-color"] == "#ff0000"
    assert mine.background == night.background


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("looks: {worse: {color: red}}", "unknown worse"),
        ("looks: {bad: {colour: red}}", "unknown colour"),
        ("color: red", "unknown color"),
        ("[1, 2]", "expected a mapping"),
        ("looks: 3", "expected a mapping"),
        ("looks: {bad: red}", "looks, bad: expected a mapping"),
        ("a: [", "expected YAML"),
        ("looks: {bad: {color: reddish}}", "looks, bad, color: expected a colour"),
        ("looks: {bad: {color: 3}}", "looks, bad, color: expected a colour"),
        ("background: greenish", "background: expected"),
        ("looks: {bad: {style: bold blink}}", "looks, bad, style: expected words of bold"),
        ("looks: {bad: {style: [bold]}}", "looks, bad, style: expected words of bold"),
        ("ansi: maybe", "ansi: expected true or false"),
        ("based_on: nowhere", "based_on nowhere: no such theme; there are high-contrast, mine, mo"),
        ("based_on: mine", "is based on itself"),
        ("looks: {bad: {color: '\\e]52;c;eA==\\a'}}", "expected a colour"),
        ("#" * (themes.LIMIT + 1), "expected at most 65,536 bytes"),
    ],
)
def test_what_is_wrong_with_a_theme_is_said(own: Path, text: str, words: str) -> None:
    """What cannot be meant is refused in one line, with the theme's name and what was expected."""
    (own / "mine.yaml").write_text(text)
    with pytest.raises(themes.BadTheme, match=re.escape(words)) as said:
        themes.load("mine")
    assert str(said.value).startswith("theme mine")
    assert str(said.value).isprintable()


def test_bytes_that_are_no_text_are_refused(own: Path) -> None:
    """A theme that is not UTF-8 is refused like any other that cannot be read."""
    (own / "mine.yaml").write_bytes(b"about: \xff")
    with pytest.raises(themes.BadTheme, match="theme mine: expected YAML"):
        themes.load("mine")


def test_a_pipe_in_the_place_of_a_theme(own: Path) -> None:
    """A pipe that nobody writes to keeps nobody waiting."""
    os.mkfifo(own / "mine.yaml")
    assert themes.load("mine").theme.variables["bad-color"] == "ansi_default"


def test_a_theme_that_is_not_there() -> None:
    """A name that is none is answered with those there are."""
    with pytest.raises(themes.BadTheme, match=", ".join(SHIPPED)):
        themes.load("nowhere", {})


@pytest.mark.parametrize("change", ["looks: {bad: {style: bold}}", "", None])
def test_a_file_that_changed_has_another_stamp(own: Path, change: str | None) -> None:
    """Whether the file or one that it is based on is written or removed: the stamp tells."""
    (own / "mine.yaml").write_text("based_on: base")
    (own / "base.yaml").write_text("ansi: true")
    before = themes.load("mine").files

    if change is None:
        (own / "base.yaml").unlink()
    else:
        (own / "base.yaml").write_text(change)

    assert [path for path, _ in before] == [str(own / "mine.yaml"), str(own / "base.yaml")]
    assert themes.stamp([Path(path) for path, _ in before]) != before


# While the console runs


def a_dressed(theme: str) -> Console:
    """A console in that theme, on a queue of an ordinary day."""
    return a_console(a_place(a_memory(some_tasks())), theme=theme, first=keys.LIST)


def colour_of_cursor(console: Console) -> tuple[str, str]:
    """The colours of the row under the cursor as it is painted, and of the screen behind."""
    style = next(s.style for s in task_list(console).render_line(1) if s.style and s.text.strip())
    assert style.bgcolor is not None
    return style.bgcolor.name, console.screen.styles.background.hex.lower()


async def test_a_theme_is_put_on_anew_when_its_file_changes(own: Path) -> None:
    """What is written into the file is on screen a moment later, and is said to be."""
    file = own / "mine.yaml"
    file.write_text("{based_on: night, looks: {cursor: {background: '#010203'}}}")
    console = a_dressed("mine")
    async with console.run_test() as pilot:
        await loaded(pilot)
        assert colour_of_cursor(console) == ("#010203", "#14171c")

        file.write_text("{based_on: paper, looks: {cursor: {background: '#040506'}}}")
        await until(pilot, lambda: "was changed" in said(console))
        await pilot.pause()

        assert colour_of_cursor(console) == ("#040506", "#faf8f2")


@pytest.mark.parametrize("change", ["looks: {cursor: {background: nocolour}}", None])
async def test_a_wrong_theme_is_explained_and_the_old_one_stays(
    own: Path, change: str | None
) -> None:
    """A file that cannot be meant, or is gone, is told of once; what is worn stays as it is."""
    file = own / "mine.yaml"
    file.write_text("{based_on: night, looks: {cursor: {background: '#010203'}}}")
    console = a_dressed("mine")
    async with console.run_test() as pilot:
        await loaded(pilot)

        if change is None:
            file.unlink()
        else:
            file.write_text(change)
        await until(pilot, lambda: "theme mine" in said(console))
        words = said(console)
        again = await console.dressing.look_after()
        file.write_text("{based_on: night, looks: {cursor: {background: '#070809'}}}")
        await until(pilot, lambda: colour_of_cursor(console)[0] == "#070809")

        assert again == ""
        assert "expected a colour" in words if change else "no such theme" in words


async def test_another_theme_is_put_on(own: Path) -> None:
    """A theme is used when asked for; one that is none is explained, and the old one stays."""
    console = a_dressed("night")
    async with console.run_test() as pilot:
        await loaded(pilot)

        assert await console.use_theme("paper") == "theme paper"
        await pilot.pause()
        assert colour_of_cursor(console) == ("#1f4e79", "#faf8f2")

        words = await console.use_theme("nowhere")
        assert words.startswith("theme nowhere: no such theme; there are high-contrast")
        assert words.endswith("; paper stays")
        assert colour_of_cursor(console) == ("#1f4e79", "#faf8f2")


async def test_no_color_stays_without_colour(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under NO_COLOR a theme with colours is not put on, and it is said why."""
    monkeypatch.setenv("NO_COLOR", "1")
    console = a_dressed("night")
    async with console.run_test() as pilot:
        await loaded(pilot)
        assert "NO_COLOR is set" in await console.use_theme("paper")
        assert console.dressing.name == "mono"


def said(console: Console) -> str:
    """What the screen tells the operator."""
    return queue_of(console)._said[0]
