"""The help: every key of a screen, from the one table; typing searches it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input

from engine.index.filter_language import FIELDS
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.screens.page import Page
from tui.widgets.lines import Lines, LongText
from tui.widgets.text_input import Words

TITLES = {
    keys.OVERVIEW: "the overview",
    keys.LIST: "the task list",
    keys.TASK: "a task",
    keys.PROBLEMS: "the problems",
    keys.CLUSTERS: "the errors",
    keys.LOCKS: "the locks",
    keys.TRANSPORTS: "the transports",
    keys.LOG: "the log",
    keys.PLAN: "a plan",
    keys.LOCK: "the lock",
    keys.OPERATIONS: "the operations",
    keys.OPERATION: "an operation that runs",
    keys.RECORD: "an operation that is written down",
    keys.DROP: "an operation that is let be",
    keys.FAILURES: "a transport's errors",
    keys.SUSPEND: "a transport that is suspended",
    keys.TRIAL: "a test mail",
    keys.CONTROLS: "the queue as a whole",
    keys.CONTROL: "a control of the queue",
    keys.WORKER: "starting or stopping a worker",
}


FILTER = "filter"
"""The action for which words are typed that the help explains."""

WORDS = (
    ("words", 'each somewhere in a task; a|b either, !a not, "a b" with its blank'),
    ("fields", " ".join(FIELDS)),
    ("compared by", "= != exactly; : a part; ~ !~ a pattern; > >= < <= numbers, times"),
)
"""What a filter of tasks is made of, each with its name."""


def lines(screen: str, without: Collection[str], width: int, search: str = "") -> list[Line]:
    """The keys of a screen under their headings; with a search, those that hold its words, or where
    there are such keys when none are here.
    """
    wanted = search.casefold().split()
    here = [key for key in keys.on(screen, without) if _holds(key, wanted)]
    groups = [(group, [key for key in here if key.group == group]) for group in keys.GROUPS]
    rows = _under_headings(groups, width)
    typed = _filter_words(screen, without, width, wanted)
    both = [*rows, BLANK, *typed] if rows and typed else rows + typed
    return both or _under_headings(_elsewhere(screen, wanted), width)


def _under_headings(groups: Iterable[tuple[str, Sequence[keys.Key]]], width: int) -> list[Line]:
    rows: list[Line] = []
    for heading, found in groups:
        if found:
            rows += [BLANK] if rows else []
            rows.append(present.heading(heading, width))
            rows += [((f"  {key.shown:<9}", "key"), (key.about, "")) for key in found]
    return rows


def _filter_words(
    screen: str, without: Collection[str], width: int, wanted: list[str]
) -> list[Line]:
    """How a filter is typed, where one can be."""
    said = " ".join((FILTER, *(f"{name} {words}" for name, words in WORDS))).casefold()
    can = any(key.action == FILTER for key in keys.on(screen, without))
    if not can or not all(word in said for word in wanted):
        return []
    return [present.heading("Words of a filter", width), *present.labelled(WORDS, width)]


def _elsewhere(screen: str, wanted: list[str]) -> Iterator[tuple[str, Sequence[keys.Key]]]:
    """What other screens have, each key once, under the screen's name."""
    told = set[keys.Key]()
    for other, title in TITLES.items():
        found = [key for key in keys.on(other) if _holds(key, wanted) and key not in told]
        told.update(found)
        if other != screen:
            yield f"not here, but on {title}", found


def _holds(key: keys.Key, wanted: list[str]) -> bool:
    text = f"{key.shown} {key.hint} {key.about} {' '.join(key.keys)}".casefold()
    return all(word in text for word in wanted)


class HelpScreen(Page):
    """What can be pressed on the screen that it was opened from, and what the terminal is."""

    KIND = keys.HELP
    BINDINGS = keys.bindings(keys.HELP)

    def __init__(
        self, about: str, without: Collection[str] = (), terminal: tuple[str, ...] = ()
    ) -> None:
        """`terminal` says in words what the terminal was found to be."""
        super().__init__()
        self._about, self._without, self._terminal = about, without, terminal

    def compose(self) -> ComposeResult:
        """Besides what every page has, the line that is typed into."""
        yield Lines(id="title")
        with Horizontal(id="ask-line"):
            yield Lines(id="search-label")
            yield Words(compact=True, select_on_focus=False)
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints", classes="-short")

    def begin(self) -> None:
        """Letters go to the search."""
        self.query_one("#search-label", Lines).show([((" search: ", "title"),)])
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what is found while it is typed."""
        event.stop()
        self.lay_out(self.size.width)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """There is nothing to be done with it."""
        event.stop()

    def lay_out(self, width: int) -> None:
        """The keys, for this width."""
        search = self.query_one(Input).value
        title = ((f" Keys of {TITLES[self._about]}", "strong"), ("   type to search them", "dim"))
        found = lines(self._about, self._without, width, search)
        if not search and self._terminal:
            found += [BLANK, present.heading("this terminal", width)]
            found += [((f"  {shown(text)}", ""),) for text in self._terminal]
        nothing: list[Line] = [BLANK, (("   no key here has these words; Esc closes", "dim"),)]
        self.show(title, found or nothing, ())
        self.show_hints()
