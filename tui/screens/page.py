"""Base classes of screens with a title, text or rows, a message line and hints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from textual import work
from textual.app import ComposeResult

from engine.text.safe import safe_line
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.edge_lines import EdgeLines
from tui.screens.list_panes import frame_panes
from tui.screens.message import Message
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.screens.two_panes import TwoPanes
from tui.session.place_session import PlaceSession
from tui.terminal.render_cache import Box
from tui.text import keys
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.text.hints import hint_lines
from tui.text.lines import Line, cut_line, join_ends
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker


class Page(BaseScreen):
    """A full screen of read-only text."""

    def compose(self) -> ComposeResult:
        """Title, text, message line, hints."""
        yield Lines(id="title")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints")

    def on_mount(self) -> None:
        """Focus the part that takes the keys."""
        self.begin()

    def begin(self) -> None:
        """Focus the part that takes the keys. (Textual calls `on_mount` of every base class.)"""
        self.query_one(LongText).focus()

    def on_resize(self) -> None:
        """Lay out for the current width."""
        frame_panes(self, frame_border(*self.size))
        self.lay_out(self.size.width)

    @property
    def text_width(self) -> int:
        """Cells for the text inside its frame."""
        is_box = self.text_frame() and frame_border(*self.size) == BOX
        return self.size.width - (BOX_FRAME_CELLS if is_box else 0)

    def text_frame(self) -> Frame | None:
        """The frame of the text; None for none."""
        return None

    def lay_out(self, width: int) -> None:
        """Fill the page for this width."""
        raise NotImplementedError

    def show(self, title: Line, text: Sequence[Line], word: Line) -> None:
        """Show a title, the text and the message line."""
        width = self.size.width
        badge = self.badge
        line = join_ends(title, badge, width) if badge else cut_line(title, width)
        self.query_one("#title", Lines).show([line])
        part = self.query_one("#text", LongText)
        if (frame := self.text_frame()) is not None:
            part.add_class("pane")
            part.show_frame(frame, focused=True)
        part.show(text)
        self.query_one("#word", Lines).show([cut_line(word, width)])

    def show_hints(
        self,
        grey: Collection[str] = (),
        without: Collection[str] = (),
        words: Mapping[str, str] | None = None,
    ) -> None:
        """Show the hints."""
        hints = keys.hints_of(self.KIND, grey, without, words)
        self.query_one("#hints", Lines).show(hint_lines(hints, self.size.width))

    def say(self, text: str, style: str = "warn") -> None:
        """Show a message to the operator."""
        word = self.query_one_optional("#word", Lines)
        if word is not None:  # it is missing while the screen is removed
            word.show([cut_line(((f" {safe_line(text)}", style),), self.size.width)])

    def action_move(self, how: str) -> None:
        """Scroll the text."""
        self.query_one(LongText).move(how)

    def action_back(self) -> None:
        """Close the page."""
        self.dismiss()


class ListPage(TwoPanes):
    """Paints a list of rows, details of the row under the cursor, a message line and hints."""

    hint_words: Mapping[str, str] = {}
    """Words that replace those of the hints, by action."""

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.session, self.context = session, context
        self.edges, self.message = EdgeLines(), Message(context.clock)
        self._composed = False

    def compose(self) -> ComposeResult:
        """Title, rows, details, message line, hints."""
        yield self.edges.top
        with Box(id="body"):
            yield Picker(id="rows")
            yield LongText(id="text")
            if self.BOARD is not None:
                yield self.BOARD()
        yield self.edges.message
        yield self.edges.hints

    def on_mount(self) -> None:
        """Focus the rows; lay everything out again each second."""
        self._composed = True
        self.begin()
        self.set_interval(1.0, self._tick)

    def begin(self) -> None:
        """Focus the part that takes the keys. (Textual calls `on_mount` of every base class.)"""
        self.query_one(Picker).focus()

    def on_resize(self) -> None:
        """Lay out for the current size, once the parts have theirs."""
        frame_panes(self, frame_border(*self.size))
        self.call_after_refresh(self.paint)

    def on_screen_resume(self) -> None:
        """Repaint when the screen is on top again."""
        self.paint()

    def _tick(self) -> None:
        if self.is_current and not self.context.skips_repaint():
            self.paint()

    def paint(self) -> None:
        """Show the current data; unchanged lines are not repainted."""
        if not self._composed or not self.is_paintable or not self.size.width:
            return  # resumed before it has parts, or after it was removed
        self.edges.top.update_line(self.context, self.trail())
        self.lay_out(self.size.width)
        self.show_frames()
        self.edges.show_message(self.message, self.default_message, self.size.width)
        self.show_hints()

    def trail(self) -> tuple[str, ...]:
        """Path to this screen, outermost first."""
        return (self.session.name, self.KIND)

    def lay_out(self, width: int) -> None:
        """Fill the rows, and the details of the row under the cursor."""
        raise NotImplementedError

    def default_message(self) -> Line:
        """Text of the message line while there is no message."""
        return ()

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show the hints."""
        words = {"arm": keys.arm_hint(self.context.arming.is_armed)}
        hints = keys.hints_of(self.KIND, grey, self.without(), {**words, **self.hint_words})
        self.edges.show_hints(hints, self.size.width)

    def say(self, text: str, style: str = "warn") -> None:
        """Show a message to the operator for some seconds."""
        self.message.say(text, style)
        if self._composed:  # else the first paint will show it
            self.edges.show_message(self.message, self.default_message, self.size.width)


class ListScreen(ListPage):
    """A list of rows with a cursor, and details of the row under it: below, or at the right."""

    def on_picker_cursor_moved(self) -> None:
        """Repaint when the cursor moved to another row."""
        self.paint()

    @property
    def selected_key(self) -> str:
        """Key of the row under the cursor; "" if none or it has left."""
        return self.query_one(Picker).key if self.is_paintable else ""

    def no_row_reason(self, otherwise: str) -> str:
        """Why there is no row to act on: the row has left, else `otherwise`."""
        return ROW_HAS_LEFT if self.query_one(Picker).is_gone else otherwise

    def action_move(self, how: str) -> None:
        """Move the cursor, or scroll the details; without rows there is only the text."""
        picker = self.query_one(Picker)
        if picker.rows and not self.scrolls_details(how):
            picker.move(how)
        else:
            self.query_one(LongText).move(how)
            self.show_frames()  # they count the lines below

    def action_arm(self) -> None:
        """Arm or disarm."""
        self.say(PASTED if self.is_pasted else self.context.arming.toggle())
        self.paint()

    def action_reread(self) -> None:
        """Scan everything again."""
        self._reread()

    @work(exclusive=True, group="reread")
    async def _reread(self) -> None:
        await self.session.inspector.scan_now()
        self.say("scan complete")

    def action_back(self) -> None:
        """Close the screen."""
        self.dismiss()
