"""What the screens beside the list are: a title, something to move through, a word, and hints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from textual import work
from textual.app import ComposeResult

from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import Line
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.widgets.lines import Lines, LongText
from tui.widgets.picker import Picker

NO_LONGER_HERE = "the row under the cursor is no longer here: move the cursor first"
"""Why no key acts on a ghost row."""

SAID = 6.0
"""Seconds for which a word to the operator stays."""


class Page(BaseScreen):
    """A full screen of text; nothing in the text can be acted on."""

    def compose(self) -> ComposeResult:
        """Title, text, a line that speaks, hints."""
        yield Lines(id="title")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints", classes="-short")

    def on_mount(self) -> None:
        """It is there now."""
        self.begin()

    def begin(self) -> None:
        """Give the keys to the part that they are for. (Each class's own `on_mount` is called.)"""
        self.query_one(LongText).focus()

    def on_resize(self) -> None:
        """Lay everything out for the width there is."""
        self.lay_out(self.size.width)

    def lay_out(self, width: int) -> None:
        """Put what the page shows into its lines."""
        raise NotImplementedError

    def show(self, title: Line, text: Sequence[Line], word: Line) -> None:
        """Show these."""
        width = self.size.width
        badge = self.badge
        line = present.join(title, badge, width) if badge else present.cut(title, width)
        self.query_one("#title", Lines).show([line])
        self.query_one("#text", LongText).show(text)
        self.query_one("#word", Lines).show([present.cut(word, width)])

    def show_hints(
        self,
        grey: Collection[str] = (),
        without: Collection[str] = (),
        words: Mapping[str, str] | None = None,
    ) -> None:
        """Show which keys there are."""
        hints = keys.hints(self.KIND, grey, without, words)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width, 1))

    def say(self, text: str, look: str = "warning") -> None:
        """Say something to the operator."""
        word = self.query_one_optional("#word", Lines)
        if word is not None:  # there is none while it is taken down
            word.show([present.cut(((f" {shown(text)}", look),), self.size.width)])

    def action_move(self, how: str) -> None:
        """Move through the text."""
        self.query_one(LongText).move(how)

    def action_back(self) -> None:
        """Close the page."""
        self.dismiss()


class ListScreen(BaseScreen):
    """Rows to choose from, and below them what there is to say of the one under the cursor."""

    def __init__(self, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__()
        self.live, self.around = live, around
        self._said: tuple[str, str, float] = ("", "", 0.0)
        self._composed = False

    def compose(self) -> ComposeResult:
        """Title, rows, what is under the cursor, a line that speaks, hints."""
        yield TopLine(id="top-line")
        yield Picker(id="rows")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints")

    def on_mount(self) -> None:
        """Keys go to the rows; once a second everything is laid out anew."""
        self._composed = True
        self.begin()
        self.set_interval(1.0, self._tick)

    def begin(self) -> None:
        """Give the keys to the part that they are for. (Each class's own `on_mount` is called.)"""
        self.query_one(Picker).focus()

    def on_resize(self) -> None:
        """Lay everything out for the size there is, once the parts know theirs."""
        self.call_after_refresh(self.paint)

    def on_screen_resume(self) -> None:
        """Back on top: show what changed meanwhile."""
        self.paint()

    def on_picker_moved(self) -> None:
        """Another row is under the cursor."""
        self.paint()

    def _tick(self) -> None:
        if self.is_current and not self.around.still():
            self.paint()

    def paint(self) -> None:
        """Show what is known now; what did not change is not painted again."""
        if not self._composed or not self.stands or not self.size.width:
            return  # it can be resumed before its parts are there, and asked again when it is gone
        self.query_one(TopLine).tell(self.around, self.trail())
        self.lay_out(self.size.width)
        self._show_word()
        self.show_hints()

    def trail(self) -> tuple[str, ...]:
        """Where one is, from the outside in."""
        return (self.live.place.name, self.KIND)

    @property
    def picked(self) -> str:
        """The key of the row under the cursor; "" where there is none, or none any more."""
        return self.query_one(Picker).key if self.stands else ""

    def missing(self, otherwise: str) -> str:
        """Why there is no row to act on: the cursor is on a ghost row, else `otherwise`."""
        return NO_LONGER_HERE if self.query_one(Picker).gone else otherwise

    def lay_out(self, width: int) -> None:
        """Offer the rows, and say what there is to say of the one under the cursor."""
        raise NotImplementedError

    def word(self) -> Line:
        """What stands above the hints while nobody speaks."""
        return ()

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show which keys there are."""
        words = {"arm": keys.arm_words(self.around.arming.armed)}
        hints = keys.hints(self.KIND, grey, self.without(), words)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    def say(self, text: str, look: str = "warning") -> None:
        """Say something to the operator, for a few seconds."""
        self._said = (text, look, self.around.clock())
        self._show_word()

    def _say_nothing(self) -> None:
        """Let what was said be over."""
        self._said = ("", "", 0.0)

    def _show_word(self) -> None:
        text, look, when = self._said
        if text and not 0 <= self.around.clock() - when < SAID:
            self._said = ("", "", 0.0)
        if not self._composed:
            return  # it is painted as soon as its parts are there
        line: Line = ((f" {shown(self._said[0])}", look),) if self._said[0] else self.word()
        word = self.query_one_optional("#word", Lines)
        if word is not None:  # there is none while it is taken down
            word.show([present.cut(line, self.size.width)])

    def action_move(self, how: str) -> None:
        """Move the cursor; where nothing can be chosen, the text."""
        picker = self.query_one(Picker)
        if picker.rows:
            picker.move(how)
        else:
            self.query_one(LongText).move(how)

    def action_reread(self) -> None:
        """Look at everything again."""
        self._reread()

    @work(exclusive=True, group="reread")
    async def _reread(self) -> None:
        await self.live.inspector.refresh()
        self.say("everything was looked at again")

    def action_back(self) -> None:
        """Close the board."""
        self.dismiss()
