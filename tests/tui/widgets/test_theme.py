"""Themes: their files, errors, contrast and NO_COLOR, on screen and in the style sheet."""

from __future__ import annotations

import os
import re
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import combinations, product
from pathlib import Path

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.color import Color
from textual.css.stylesheet import StylesheetParseError

from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import a_memory, a_place, some_tasks, task_list
from tests.tables import each
from tui.terminal.render_cache import CachedStylesheet
from tui.text.styles import mark_words
from tui.widgets import theme as themes

SHIPPED = ("high-contrast", "mono", "night", "paper", "terminal", "terminal-light")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's own folder of themes."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    folder = tmp_path / "spooldeck" / "themes"
    folder.mkdir(parents=True)
    return folder


@each("name", SHIPPED)
def test_a_shipped_theme_has_every_style(name: str) -> None:
    """Each look has a colour, a background and a weight; those that mean something else differ."""
    theme = themes.load_theme(name, {}).theme
    parts = product(themes.STYLE_NAMES, ("color", "background", "text"))
    assert {"-".join(part) for part in parts} <= set(theme.variables)

    styles = themes.theme_styles(theme)
    apart = ("cursor", "tab", "chip-warn", "error", "warn", "muted", "unknown", "ghost")
    same = {("cursor", "error"), ("chip-warn", "warn")} if name == "mono" else set()
    assert all(styles[one].render("x") != "x" for one in apart)
    assert {pair for pair in combinations(apart, 2) if styles[pair[0]] == styles[pair[1]]} <= same


@pytest.mark.parametrize("color_system", [None, "256"])
@pytest.mark.parametrize(("name", "least"), [("night", 4.5), ("paper", 4.5), ("high-contrast", 7)])
def test_every_text_can_be_read(name: str, least: float, color_system: str | None) -> None:
    """Each look has at least this contrast (WCAG 2) with its ground, on the row under the cursor
    and on the bar of a confirmation too, in all colours and in those of the palette of 256; the
    five steps of heat, the cursor and the plain ground differ."""

    def shown(colour: RichColor | None) -> RichColor:
        assert colour is not None
        return colour.downgrade(ColorSystem.EIGHT_BIT) if color_system else colour

    def luminance(colour: RichColor) -> float:
        parts = (value / 255 for value in colour.get_truecolor())
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    theme = themes.load_theme(name, {}, color_system).theme
    styles = {
        look: (shown(style.color), shown(style.bgcolor))
        for look, style in themes.theme_styles(theme).items()
        if look.partition("@")[0] != "line"  # it has no words
    }
    for look, pair in styles.items():
        lighter, darker = sorted(map(luminance, pair), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= least, look
    grounds = ("", "cursor", "heat1", "heat2", "heat3", "heat4", "heat5")
    assert len({styles[look][1] for look in grounds}) == len(grounds)


@each(
    ("name", "used"),
    [("night", "terminal"), ("paper", "terminal-light"), ("mono", "mono"), ("", "terminal")],
)
def test_where_there_are_16_colours_no_others_are_used(name: str, used: str) -> None:
    """The nearest of the 16 to a mixed colour may have no contrast with the nearest to its ground:
    the theme with the terminal's own colours is used, for a dark or a light ground."""
    assert themes.load_theme(name, {}, "standard").name == used


@each("ground", ["", "@cursor", "@bar"])
def test_without_colours_only_words_stand_out(ground: str) -> None:
    """Without colours a wrong state differs from a right one, but blanks and graphs never do."""
    styles = themes.theme_styles(themes.load_theme("mono", {}).theme)
    row = ((" ! ", f"error{ground}"), ("STUCK", f"error{ground}"), (" ⠤⠤", ground))
    marked = mark_words((*row, ("     ?  ", f"unknown{ground}"), ("⠤⠤", f"error{ground}")), styles)

    assert "".join(text for text, _ in marked) == " ! STUCK ⠤⠤     ?  ⠤⠤"
    plain = bool(styles[ground].reverse)
    looks = {name for name, s in styles.items() if s.underline or bool(s.reverse) != plain}
    assert [text for text, look in marked if look in looks] == ["! STUCK", "?"]


@each(
    ("reported", "few", "many"),
    [("", "terminal", "night"), ("15;0", "terminal", "night")]
    + [(reported, "terminal-light", "paper") for reported in ("0;15", "0;7")],
)
def test_the_default_is_for_what_the_terminal_shows(reported: str, few: str, many: str) -> None:
    """With 256 colours or more it is one of ours, else the terminal's own colours; a terminal that
    reports a light background gets colours that can be read on it."""
    environ = {"COLORFGBG": reported}
    systems = {None: few, "standard": few, "256": many, "truecolor": many}
    assert {system: themes.load_theme("", environ, system).name for system in systems} == systems
    assert themes.load_theme("night", environ).name == "night"


def test_the_default_is_the_palette_of_the_terminal() -> None:
    """Six themes come with the console; where colours are few, the default has the terminal's own
    colours and background."""
    assert themes.theme_names({}) == SHIPPED
    theme = themes.load_theme("", {}).theme
    assert theme.ansi and theme.background == "ansi_default"
    for names in themes.FORMER_NAMES.items():
        old, new = (themes.load_theme(name, {}).theme.variables for name in names)
        assert old == new


@each("name", ["", *SHIPPED])
def test_no_color_is_heeded(name: str) -> None:
    """Under NO_COLOR a theme without colours is used, as only `mono` is, for any name."""
    assert themes.is_colourless(themes.load_theme(name, {"NO_COLOR": "1"}).theme)
    theme = themes.load_theme(name, {"NO_COLOR": ""}).theme
    assert theme.name == (name or themes.DEFAULT_THEME)
    assert themes.is_colourless(theme) is (name == "mono")


def test_a_theme_of_ones_own(own: Path) -> None:
    """It is a YAML file by path or name; its other looks are those of the theme it is based on."""
    red = "looks: {error: {color: '#ff0000'}}"
    (own / "mine.yaml").write_text(f"foreground: '#ffffff'\n{red}\n")
    for name in (str(own / "mine.yaml"), "mine"):
        assert themes.load_theme(name).theme.variables["error-color"] == "#ff0000"
    assert "mine" in themes.theme_names()

    shipped = themes.load_theme("night", {}).theme
    for name in ("mine", "night"):  # one's own may replace the theme that it is based on
        (own / f"{name}.yaml").write_text(f"{{based_on: night, {red}}}")
        theme = themes.load_theme(name).theme
        before = shipped.variables
        changed = {key for key, value in theme.variables.items() if before[key] != value}
        assert changed == {"error-color", "chip-error-background"}
        assert theme.background == shipped.background
        assert theme.variables["error-color"] == "#ff0000"
        (own / f"{name}.yaml").unlink()

    (own / "mine.yaml").write_text("{based_on: mono, looks: {ok: {style: italic}}}")
    dress = themes.load_theme("mine", {**os.environ, "NO_COLOR": "1"})
    assert dress.theme.variables["ok-text"] == "italic"


def test_a_theme_with_former_names_is_read(own: Path) -> None:
    """Each former name is read as the present one, and a note says so."""
    (own / "mine.yaml").write_text("looks: {bad: {color: '#ff0000'}, dim: {style: italic}}")
    loaded = themes.load_theme("mine", {"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]})
    assert loaded.theme.variables["error-color"] == "#ff0000"
    assert loaded.theme.variables["muted-text"] == "italic"
    assert loaded.note == "theme mine: bad is now error, dim is now muted"
    assert themes.load_theme("night", {}).note == ""


@each("name", ["night", "paper", "high-contrast", "terminal", "terminal-light"])
def test_the_row_under_the_cursor_keeps_its_colours(name: str) -> None:
    """On the ground of the cursor; where that is shown by reversing, it has none."""
    styles = themes.theme_styles(themes.load_theme(name, {}).theme)
    plain, error = styles["@cursor"], styles["error@cursor"]
    if styles["cursor"].reverse:
        assert plain.reverse and error.reverse and error.color is None
    else:
        assert error.color == styles["error"].color
        assert error.bgcolor == plain.bgcolor == styles["cursor"].bgcolor
        assert styles["chip-error@cursor"].bgcolor == styles["chip-error"].bgcolor


@each(("text", "words"), [
    ("looks: {worse: {color: red}}", "unknown worse"),
    ("looks: {error: {colour: red}}", "unknown colour"),
    ("color: red", "unknown color"),
    ("[1, 2]", "expected a mapping"),
    ("looks: 3", "expected a mapping"),
    ("looks: {error: red}", "looks, error: expected a mapping"),
    ("a: [", "expected YAML"),
    ("about: \udcff", "theme mine: expected YAML"),
    ("looks: {error: {color: reddish}}", "looks, error, color: expected a colour"),
    ("looks: {error: {color: 3}}", "looks, error, color: expected a colour"),
    ("background: greenish", "background: expected"),
    ("looks: {error: {style: bold blink}}", "looks, error, style: expected words of bold"),
    ("looks: {error: {style: [bold]}}", "looks, error, style: expected words of bold"),
    ("ansi: maybe", "ansi: expected true or false"),
    ("based_on: nowhere", "based_on nowhere: no such theme; available: high-contrast, mine, mo"),
    ("based_on: mine", "is based on itself"),
    ("looks: {error: {color: '\\e]52;c;eA==\\a'}}", "expected a colour"),
    ("#" * (themes.MAX_THEME_BYTES + 1), "expected at most 65,536 bytes"),
])  # fmt: skip
def test_a_wrong_theme_is_refused_in_one_line(own: Path, text: str, words: str) -> None:
    """The error has the theme's name and the expected value; escape codes of it are not shown."""
    (own / "mine.yaml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(themes.BadTheme, match=re.escape(words)) as caught:
        themes.load_theme("mine")
    assert str(caught.value).startswith("theme mine") and str(caught.value).isprintable()


def test_a_missing_theme_or_a_pipe(own: Path) -> None:
    """The error of an unknown name lists the known ones; a pipe without a writer does not block."""
    with pytest.raises(themes.BadTheme, match=", ".join(SHIPPED)):
        themes.load_theme("nowhere", {})
    os.mkfifo(own / "mine.yaml")
    assert themes.load_theme("mine").theme.variables["error-color"] == "ansi_default"


@each("change", ["looks: {error: {style: bold}}", "", None])
def test_a_file_that_changed_has_another_stamp(own: Path, change: str | None) -> None:
    """The stamp changes when the file or the one that it is based on is written or removed."""
    mine, base = own / "mine.yaml", own / "base.yaml"
    mine.write_text("based_on: base")
    base.write_text("ansi: true")
    before = themes.load_theme("mine").files
    if change is None:
        base.unlink()
    else:
        base.write_text(change)
    assert [path for path, _ in before] == [str(mine), str(base)]
    assert themes.file_stamps([Path(path) for path, _ in before]) != before


# While the console runs


def dressed(theme: str) -> AbstractAsyncContextManager[ConsoleOperator]:
    """A console in that theme, on a queue of an ordinary day."""
    return an_operator(a_place(a_memory(some_tasks())), theme=theme)


def colours(operator: ConsoleOperator) -> tuple[str, str]:
    """The colours of the row under the cursor as it is painted, and of the screen behind."""
    row = task_list(operator.console).render_line(1)
    style = next(part.style for part in row if part.style and part.text.strip())
    assert style.bgcolor is not None
    return style.bgcolor.name, operator.console.screen.styles.background.hex.lower()


async def test_a_changed_theme_is_shown_and_a_wrong_one_explained(own: Path) -> None:
    """A changed file is on screen a moment later; a wrong or missing one is reported once."""
    file = own / "mine.yaml"

    def write(based_on: str, colour: str) -> None:
        """Replace the file at once, so that no look finds a half of it."""
        text = f"{{based_on: {based_on}, looks: {{cursor: {{background: '{colour}'}}}}}}"
        (own / "new").write_text(text)
        (own / "new").replace(file)

    write("night", "#010203")
    async with dressed("mine") as operator:
        assert colours(operator) == ("#010203", "#10141b")
        write("paper", "#040506")
        await operator.until(lambda: "reloaded" in said(operator))
        await operator.pilot.pause()
        assert colours(operator) == ("#040506", "#faf9f5")

        for wrong, words in (
            (partial(write, "night", "nocolour"), "expected a colour"),
            (file.unlink, "no such theme"),
        ):
            wrong()
            await operator.until(lambda words=words: words in said(operator))  # type: ignore[misc]
            assert "theme mine" in said(operator)
            assert await operator.console.theme_loader.reload_if_changed() == ""
            assert colours(operator)[1] == "#faf9f5"
            for colour in ("#070809", "#040506"):
                write("paper", colour)
                await operator.until(lambda it=colour: colours(operator)[0] == it)  # type: ignore[misc]


async def test_another_theme_is_put_on(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A theme is used when asked for; with an unknown name or NO_COLOR the old one stays."""
    async with dressed("night") as operator:
        loader = operator.console.theme_loader
        assert await loader.use_theme("paper") == "theme paper"
        await operator.pilot.pause()
        assert colours(operator) == ("#d9e6f2", "#faf9f5")
        words = await loader.use_theme("nowhere")
        assert words.startswith("theme nowhere: no such theme; available: high-contrast")
        assert words.endswith("; paper unchanged")
        assert colours(operator) == ("#d9e6f2", "#faf9f5")

    monkeypatch.setenv("NO_COLOR", "1")
    async with dressed("night") as operator:
        loader = operator.console.theme_loader
        assert "NO_COLOR is set" in await loader.use_theme("paper")
        assert loader.name == "mono"


def said(operator: ConsoleOperator) -> str:
    """The message to the operator on the screen."""
    return operator.queue.parts.message.text


# The style sheet


def test_the_style_sheet_is_parsed_only_for_new_values() -> None:
    """The same variables and a new source keep the parsed rules, a new value makes others. A source
    that is no style sheet is refused, and no rule is lost by it."""
    sheet = CachedStylesheet(variables={"look": "#ff0000"})
    sheet.add_source("Label { color: $look; }", ("here", ""))
    (first,) = sheet.rules
    assert first.styles.color == Color.parse("#ff0000")
    sheet.set_variables({"look": "#ff0000"})
    sheet.reparse()
    (same,) = sheet.rules
    assert same is first

    sheet.add_source("Input { color: $look; }", ("there", ""))
    before, added = sheet.rules
    assert before is first and added.styles.color == Color.parse("#ff0000")
    sheet.set_variables({"look": "#0000ff"})
    sheet.reparse()
    assert [rule.styles.color for rule in sheet.rules] == [Color.parse("#0000ff")] * 2
    kept = [*sheet.rules]
    sheet.add_source("Input { colour: red; }", ("elsewhere", ""))
    with pytest.raises(StylesheetParseError):
        sheet.reparse()
    assert all(rule is old for rule, old in zip(sheet.rules, kept, strict=True))
