"""The panes of the overview: their widgets with the age table, and the room that each has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip

from engine.index.age_table import Ages, summarize_ages
from engine.logs.log_filter import WARN
from engine.model import State
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from tui.overview import age_lines as view
from tui.overview import painters, side_panes, snapshot
from tui.overview.age_lines import AgeCell
from tui.overview.division import MAX_GRAPHS, NO_TABLE, OverviewFrame, PaneNeeds, divide_screen
from tui.overview.freeze import (
    NOTHING_LOGGED,
    NOTHING_RUN,
    PastValues,
    past_values,
    with_unknown_places,
)
from tui.overview.parts import AGES, ALERTS, QUEUES, OverviewParts
from tui.overview.place_lines import DrawnRow, count_rows
from tui.overview.reads import HISTOGRAM_SECONDS, PlaceReads
from tui.overview.side_panes import (
    HISTOGRAM_LINES,
    MAX_PANE_ROWS,
    WALL_PANES,
    WIDE_PANES,
    OverviewData,
    PaneRow,
    PaneRows,
)
from tui.overview.time_line import draw_time_line
from tui.screens.graph_pane import GRAPH_LINES
from tui.session.place_session import PlaceSession
from tui.terminal.render_cache import Across, Down
from tui.text.frames import BOX_FRAME_CELLS, Frame
from tui.text.graphs import AXIS_CELLS, LatestFlow, time_axis
from tui.text.lines import BLANK_LINE, Line, cells_of, cut_line, fold_long_lines
from tui.text.table import Choice
from tui.text.times import format_clock
from tui.widgets.line_widgets import Lines, Painted, changed_lines
from tui.widgets.picker import Picker


class AgeTable(Painted, can_focus=True):
    """The cursor is a row name and an age class, not a position."""

    key, is_gone = "", False
    """No row has the cursor; see `Pane`."""
    rows: Sequence[Choice] = ()

    class CellChanged(Message):
        """The cursor is on another cell."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ages: Ages | None = None
        self._below: Line = BLANK_LINE
        self._active = False
        self._cell = AgeCell()
        self._painted: tuple[Line, ...] = ()

    @property
    def name_lines(self) -> int:
        """Lines for names and others: the height without titles, total and the sentence below."""
        return max(0, self.size.height - 3)

    @property
    def count(self) -> int | None:
        """The number under the cursor; None if there is no table or the row no longer exists."""
        if self._ages is None:
            return None
        row = view.row_at(self._ages, self._cell, self.name_lines)
        return None if row is None else view.cell_count(row, self._cell.column)

    @property
    def filter(self) -> str:
        return (
            "" if self._ages is None else view.cell_filter(self._ages, self._cell, self.name_lines)
        )

    @property
    def cell_text(self) -> str:
        if self._ages is None:
            return ""
        label = view.row_label(self._ages, self._cell, self.name_lines)
        return f"{label}, {view.describe_age(self._cell.column)}"

    @property
    def line_of_cursor(self) -> int:
        """Line of the cell under the cursor, from the top of the table."""
        rows = [] if self._ages is None else view.row_cells(self._ages, self.name_lines)
        cell = self._cell._replace(column=0)
        return 1 + (rows.index(cell) if cell in rows else 0)  # below the titles

    def show_ages(self, ages: Ages | None, below: Line) -> None:
        """Show a table with a sentence below; without a table only the sentence."""
        if (ages, below) == (self._ages, self._below):
            return
        self._ages, self._below = ages, below
        if self.count is None:
            self._cell = AgeCell(column=self._cell.column)
        self._paint()

    def activate(self, active: bool) -> None:
        self._active = active
        self._paint()

    def move(self, how: str) -> None:
        if self._ages is None:
            return
        rows = view.row_cells(self._ages, self.name_lines)
        first_cell = self._cell._replace(column=0)
        at = rows.index(first_cell) if first_cell in rows else 0
        far = len(rows)
        half = max(1, far // 2)
        steps = {"down": 1, "up": -1, "half_down": half, "half_up": -half}
        to = at + steps.get(how, far if how in ("last", "page_down") else -far)
        row = rows[max(0, min(to, far - 1))]
        self._move_to(row._replace(column=self._cell.column))

    def shift(self, by: int) -> None:
        self._move_to(
            self._cell._replace(column=max(0, min(self._cell.column + by, view.AGE_CLASSES)))
        )

    def _move_to(self, cell: AgeCell) -> None:
        if cell != self._cell:
            self._cell = cell
            self._paint()
            self.post_message(self.CellChanged())

    def on_resize(self) -> None:
        """Repaint; another height shows other rows."""
        if self.count is None:
            self._cell = AgeCell(column=self._cell.column)
        self._paint()

    def _paint(self) -> None:
        before, self._painted = self._painted, tuple(self._lines())
        self.repaint_lines(changed_lines(before, self._painted))

    def _lines(self) -> list[Line]:
        if self._ages is None:
            return fold_long_lines([self._below], *self.size)
        cursor = self._cell if self._active else None
        table = view.table_lines(self._ages, cursor, self.size.width, self.name_lines)
        return [*table, self._below]

    def render_line(self, y: int) -> Strip:
        return self.strip_of(self._painted[y] if y < len(self._painted) else BLANK_LINE)


GRAPH, OTHER_AGES, KINDS, OUTLOOK, LOG = "graph", "other-ages", "kinds", "outlook", "warnings"
ROW_PANES = (KINDS, LOG, *WALL_PANES)
"""The panes of rows below and beside alerts, queues and ages, in the order of Tab."""

FRAME_ENDS_CELLS = 12
"""Cells of a title that neither its words nor those at its right end can have."""

SHOW_AGE_SECONDS = 1.0
"""Seconds after which a table that is older than the rows above shows its age."""


class PaneTurns:
    """On a slow link side panes are painted one after the other, the one that is behind most."""

    def __init__(self) -> None:
        self.painted_at: dict[str, float] = {}
        """When each pane was last painted, epoch seconds UTC."""
        self._due: set[str] | None = None
        self._is_slow = False

    def begin(self, seconds: float, now: float, shown: str) -> None:
        """Begin a paint, with so many seconds between two of a pane; 0 paints all. `shown`: the
        pane with the cursor, which is painted each time."""
        self._is_slow, self._due = seconds > 0, None
        if seconds > 0 and self.painted_at:
            name = min(self.painted_at, key=lambda name: self.painted_at[name])
            is_due = not 0 <= now - self.painted_at[name] < seconds
            self._due = {shown, name} if is_due else {shown}

    def resize(self, names: Iterable[str]) -> None:
        """Paint these panes: they have another size."""
        for name in names:
            self.painted_at.pop(name, None)

    def waits(self, name: str) -> bool:
        """True if a pane stays as it is in this paint; a new one does not."""
        return self._due is not None and name in self.painted_at and name not in self._due

    def takes(self, name: str, now: float) -> bool:
        """True if a pane is painted now, which is noted."""
        if self.waits(name):
            return False
        self.painted_at[name] = now
        return True

    def stamp(self, frame: Frame, now: float) -> Frame:
        """The frame of a pane that is painted now: on a slow link with the time."""
        if not self._is_slow:
            return frame
        return frame._replace(right=(*frame.right, (f" {format_clock(now)}", "warn")))


class OverviewPanes:
    """Makes the widgets, gives them the lines of a frame, and shows what they hold."""

    def __init__(self, sessions: Sequence[PlaceSession]) -> None:
        self.frame = OverviewFrame()
        self.ages = AgeTable(id=AGES)
        self.rows = {name: Picker(id=name) for name in (ALERTS, QUEUES, *ROW_PANES)}
        order = (ALERTS, QUEUES, AGES, *ROW_PANES)
        self.focusable = {name: self.rows.get(name, self.ages) for name in order}
        """The panes that take the focus, in the order of Tab."""
        self.lines = {name: Lines(id=name) for name in (OTHER_AGES, OUTLOOK, GRAPH)}
        self.graphs = [Lines(id=f"graph-{session.number}") for session in sessions[:MAX_GRAPHS]]
        self.needed: dict[str, int] = {}
        """Most lines that each pane at the right has had at this size: frames do not move while
        rows come and go."""
        self._drawn: dict[Painted, tuple[int, float, int, int]] = {}
        """Place, time, width and height of each graph as last drawn."""
        self._turns, self._needs = PaneTurns(), PaneNeeds()
        self._drawn_rows: dict[int, DrawnRow] = {}
        self._drawn_alerts: tuple[object, Sequence[PaneRow]] = (None, ())
        """The rows of the alerts, after all that they were made from."""

    def compose(self) -> ComposeResult:
        yield self.rows[ALERTS]
        with Across(id="panes"):
            with Down(id="main") as self._main:
                with Across(id="upper") as self._upper:
                    with Down(id="left") as self._left:
                        yield from (self.rows[QUEUES], self.ages)
                        yield from (self.lines[OTHER_AGES], self.lines[OUTLOOK], self.rows[KINDS])
                    with Down(id="middle") as self._middle:
                        yield from self.graphs
                yield self.rows[LOG]
            with Down(id="right") as self._right:
                yield self.lines[GRAPH]
                yield from (self.rows[name] for name in WALL_PANES)
        for part in self._heights:
            part.add_class("pane", update=False)  # styled when mounted

    @property
    def _heights(self) -> dict[Painted, int]:
        frame, lines, rows = self.frame, self.lines, self.rows
        graphs = (*frame.graphs, *[0] * len(self.graphs))
        return {
            rows[ALERTS]: frame.alerts,
            rows[QUEUES]: frame.queues,
            self.ages: frame.ages,
            lines[OTHER_AGES]: frame.other_ages,
            lines[OUTLOOK]: frame.outlook,
            rows[KINDS]: frame.kinds,
            rows[LOG]: frame.log,
            lines[GRAPH]: frame.sides.get(GRAPH, 0),
            **{rows[name]: frame.sides.get(name, 0) for name in WALL_PANES},
            **dict(zip(self.graphs, graphs, strict=False)),
        }

    def _lines_needed(
        self, sides: Mapping[str, PaneRows], *, is_wall: bool, is_past: bool
    ) -> dict[str, int]:
        """The lines of the panes at the right; those of the past do not count later."""
        needed = {} if is_wall or not sides else {GRAPH: GRAPH_LINES}
        if is_past:
            return needed | {name: pane_rows.height for name, pane_rows in sides.items()}
        for name, pane_rows in sides.items():
            needed[name] = max(pane_rows.height, self.needed.get(name, 0))
        self.needed = needed
        return needed

    def paint(self, parts: OverviewParts, screen: Screen[None]) -> None:
        """Divide the screen by what the panes have to show, and paint them; a pane that has lost
        its rows, or its place on screen, loses the cursor."""
        width, freeze = screen.size.width, parts.freeze
        parts.look()
        sized = divide_screen(*screen.size, PaneNeeds())
        left_width = _inner_width(sized)
        boxed = sized.left_width - left_width
        frozen, past = freeze.time, None
        if frozen is not None and freeze.is_past:
            past = past_values(parts.sessions, frozen, parts.live_values)
        data = OverviewData(
            parts.sessions,
            parts.selected,
            parts.snapshots,
            live_values=parts.live_values if past is None else past.live_values,
            clusters={session.number: read.clusters for session, read in parts.all_reads},
            clusters_age=_outdated(parts, *(parts.sessions if sized.is_wall else [parts.selected])),
            now=freeze.shown_at,
            can_start=any(map(parts.can_start_worker, parts.sessions)),
            is_wall=sized.is_wall,
        )
        sides = side_panes.side_rows(data, width - sized.left_width - sized.middle_width - boxed)
        unrecorded = side_panes.unrecorded_panes(sides) if past is not None else []
        for name in unrecorded:
            del sides[name]
        kinds_frame, kinds = side_panes.kind_pane(data, left_width)
        if past is not None:
            names = {one.name for one in (data.sessions if data.is_wall else [data.selected])}
            late = {name: known for name, known in past.late_kinds.items() if name in names}
            kinds = with_unknown_places(kinds, late, NOTHING_RUN, left_width)
        outlook = snapshot.outlook_lines(data.moment, left_width, brief=not sized.is_wide)
        outlook = [] if data.is_wall else outlook  # it has a pane for all places
        other = painters.other_place(parts, data) if data.is_wall and past is None else None
        now, turns, before = parts.clock(), self._turns, self._sizes()
        turns.begin(
            0.0 if frozen is not None else parts.context.pane_seconds(), now, parts.focus.pane
        )
        needs = PaneNeeds(
            count_rows(moment.queue for moment in parts.snapshots),
            len(parts.alerts),
            painters.age_rows(parts.table) if past is None else NO_TABLE,
            outlook=len(outlook),
            kinds=kinds.height - 1,  # below the titles
            other_ages=0 if other is None else painters.age_rows(parts.reads.of(other)),
            sides=self._lines_needed(sides, is_wall=data.is_wall, is_past=past is not None),
            graphs=len(painters.graph_places(parts.sessions, data.selected)),
            filler="" if data.is_wall else GRAPH,
            places=len(parts.sessions),
        )
        # What is painted later keeps its lines until then.
        fields = {AGES: "ages", KINDS: "kinds", OTHER_AGES: "other_ages"}
        kept = [field for name, field in fields.items() if turns.waits(name)]
        needs = needs._replace(**{field: getattr(self._needs, field) for field in kept})
        self._needs = needs
        self._divide(parts, divide_screen(*screen.size, needs), screen)
        frame = self.frame
        turns.resize(name for name, size in self._sizes().items() if size != before.get(name))
        self._show_alerts(parts, width - boxed)
        queues = painters.queue_rows(parts, left_width, self._drawn_rows)
        queues = queues if frame.inside(frame.queues) > 1 else queues._replace(head=())
        places = Frame("Queues", amount=self._queue_amount(parts, queues))
        if frozen is not None:
            room = left_width - cells_of(f"{places.name} {places.amount}") - FRAME_ENDS_CELLS
            right = draw_time_line(frozen.line, frozen.at, frozen.since, room)
            places = places._replace(right=right)
        self._show_rows(parts, QUEUES, places, queues)
        if turns.takes(AGES, now):
            self._show_ages(parts, left_width, unrecorded)
        if other is not None and turns.takes(OTHER_AGES, now):
            self._show_other_ages(parts, other, left_width)
        self._show(OUTLOOK, Frame(side_panes.title_of(data, "Outlook")), outlook)
        room, amount = frame.inside(frame.kinds) - 1, kinds_frame.amount  # below the titles
        if amount and room < int(amount):
            kinds_frame = kinds_frame._replace(amount=f"{room} of {amount}")
        if turns.takes(KINDS, now):
            self._show_rows(parts, KINDS, turns.stamp(kinds_frame, now), kinds)
        if turns.takes(LOG, now):
            self._show_log(parts, data, past, frame.left_width + frame.middle_width - boxed)
        for name, pane_rows in sides.items():
            if not turns.takes(name, now):
                continue
            words = (WALL_PANES if data.is_wall else WIDE_PANES)[name].frame(data)
            words = words if past is None else words._replace(amount="")
            self._show_rows(parts, name, turns.stamp(words, now), pane_rows)
        if frame.is_wide:
            self._show_graphs(parts, width - frame.left_width - boxed)
        if parts.focus.pane != QUEUES and not parts.can_focus(parts.focus.pane):
            parts.focus.activate(QUEUES)
            self.paint(parts, screen)  # titles and values of the place that is under the cursor now
        elif not (part := self.focusable[parts.focus.pane]).has_focus:
            part.focus()

    def _sizes(self) -> Mapping[str, tuple[int, ...]]:
        """Lines of each pane by its name, with the widths of the columns."""
        widths = self.frame.left_width, self.frame.middle_width, self._main.app.size.width
        return {f"{part.id}": (lines, *widths) for part, lines in self._heights.items()}

    def _divide(self, parts: OverviewParts, frame: OverviewFrame, screen: Screen[None]) -> None:
        before, self.frame = self.frame, frame
        if frame == before:
            return
        if (frame.is_wide, frame.is_wall) != (before.is_wide, before.is_wall):
            parts.reads.request()  # the panes at the right have no data yet
        word, hints = screen.query_one("#word"), screen.query_one("#hints")
        for part, amount in (*self._heights.items(), (word, frame.next), (hints, frame.hints)):
            part.styles.height = amount
            part.display = amount > 0
        self._right.display, self._middle.display = frame.is_wide, frame.is_wall
        self._upper.styles.height = frame.upper
        self._left.styles.width = frame.left_width if frame.is_wall else "1fr"
        columns = frame.left_width + frame.middle_width
        self._main.styles.width = columns if frame.is_wide else "1fr"

    def _show(self, name: str, words: Frame, lines: Sequence[Line]) -> None:
        """Show lines in a pane without a cursor, as far as it has room."""
        part = self.lines[name]
        part.show(lines[: self.frame.inside(self._heights[part])])
        part.show_frame(words)

    def _show_rows(
        self, parts: OverviewParts, name: str, words: Frame, pane_rows: PaneRows
    ) -> None:
        """Show rows in a pane; one without rows loses the cursor. A pane of the right shows its
        first rows while it has not the cursor, those of the kinds too."""
        part, focused = self.rows[name], parts.focus.pane == name
        if not pane_rows.rows:
            part.activate(False)
        part.rests_at_top = name in (KINDS, *WALL_PANES)
        if name in WALL_PANES:
            lines, width = self.frame.inside(self._heights[part]), part.size.width
            pane_rows = pane_rows.fitted(lines, width, starts_at_top=not focused)
        part.show_rows(
            [Choice(row.key, row.line) for row in pane_rows.rows], pane_rows.head, pane_rows.foot
        )
        part.show_frame(words, focused=focused)
        parts.focus.set_targets(name, {row.key: row.target for row in pane_rows.rows})

    def _queue_amount(self, parts: OverviewParts, queues: PaneRows) -> str:
        """How many places there are, and how many rows of places and queues are not on screen."""
        room = self.frame.inside(self.frame.queues) - len(queues.head)
        hidden = len(queues.rows) - room
        key = "j" if parts.focus.pane == QUEUES else "Tab"
        more = f", +{format_count(hidden, 'row')}: {key}" if hidden > 0 else ""
        return f"{len(parts.sessions)}{more}"

    def _show_alerts(self, parts: OverviewParts, width: int) -> None:
        """The alerts; until the operator chooses a pane, they have the cursor if there are any."""
        focus, frame = parts.focus, self.frame
        if parts.alerts and frame.alerts and not focus.is_chosen and focus.pane != ALERTS:
            focus.activate(ALERTS)
        elif not parts.alerts and focus.pane == ALERTS:
            focus.activate(QUEUES)
        steps = [*map(parts.alert_step, parts.alerts)]
        made_from = parts.alerts, width, steps
        if self._drawn_alerts[0] != made_from:
            self._drawn_alerts = made_from, painters.alert_rows(parts, width, steps)
        _, rows = self._drawn_alerts
        room, amount, picker = frame.inside(frame.alerts), len(rows), self.rows[ALERTS]
        head: tuple[Line, ...] = () if rows else (painters.no_alerts(parts),)
        # There is no title to say it.
        has_count = not frame.border and 1 < room < amount + picker.is_gone
        room -= has_count
        for _ in range(1 + has_count):  # again, as the rows are scrolled now
            if has_count:
                shown, more = self._shown_alerts(room, amount, focus.pane)
                head = (((f" {shown} of {amount} alerts{more}", "muted"),),)
            self._show_rows(parts, ALERTS, Frame("Alerts"), PaneRows(rows, head))
            if rows and (focus.pane != ALERTS or not focus.is_chosen):
                picker.select_key(rows[0].key)  # the most urgent one, as they come in
        shown, more = self._shown_alerts(room, amount, focus.pane)
        count = f"{shown} of {amount}" if more else f"{amount or ''}"
        picker.show_frame(Frame("Alerts", amount=count + more), focused=focus.pane == ALERTS)
        if (frozen := parts.freeze.time) is not None:
            selected = parts.snapshots[parts.selected.number - 1]
            words = f" {count}" if more else "", more
            notice = snapshot.freeze_notice(frozen.at, parts.clock(), selected, width - 4, words)
            self.rows[ALERTS].set_frame(notice)

    def _shown_alerts(self, room: int, amount: int, pane: str) -> tuple[str, str]:
        """Which alerts are on screen, and the keys that lead to the others. A kept row of an alert
        that has ended is not counted."""
        top, last = self.rows[ALERTS].top, self.rows[ALERTS].top + room - self.rows[ALERTS].is_gone
        ways = [key for key, is_more in (("k", top), ("j", last < amount)) if is_more]
        keys = " ".join(ways) if pane == ALERTS else "Tab"
        return f"{top + 1}-{last}" if top else f"{last}", f", more: {keys}" if ways else ""

    def _show_ages(self, parts: OverviewParts, width: int, unrecorded: Sequence[str]) -> None:
        """The age table of the place under the cursor, or why there is none; for a past time with
        the names of the panes of which nothing is recorded either."""
        session, read, freeze = parts.selected, parts.table, parts.freeze
        frame, ages = Frame(f"Ages: {session.name}"), None
        if freeze.time is not None and freeze.is_past:
            frame = Frame(", ".join(["ages", *unrecorded]).capitalize())
            below = side_panes.unknown_then_line(side_panes.NOT_RECORDED, freeze.time.since)
        elif freeze.time is not None and read is None:
            below = (("   not counted before the freeze", "muted"),)
        elif why := parts.snapshots[session.number - 1].queue.unavailable:
            below = ((f"  {UNKNOWN} cannot be read: {safe_line(why)}", "unknown"),)
        elif read is None:
            below = (("   counting ...", "muted"),)
        else:
            right = _outdated(parts, session) or (("minutes", "muted"),)
            frame = self._turns.stamp(Frame(_age_title(session, read), right=right), parts.clock())
            ages, below = read.ages, _age_sentence(read, width)
        self.ages.show_frame(frame, focused=parts.focus.pane == AGES)
        self.ages.show_ages(ages, below)

    def _show_log(
        self, parts: OverviewParts, data: OverviewData, past: PastValues | None, width: int
    ) -> None:
        """The latest warnings; on a wall all lines, and a histogram of the last hour. Without the
        focus, the newest lines."""
        name, level, axis, focused = "Recent warnings", WARN, "", parts.focus.pane == LOG
        room = self.frame.inside(self.frame.log)
        foot: list[Line] = []
        if self.frame.is_wall:
            name, level = "Log of all places", 0
            axis = time_axis(data.now, HISTOGRAM_SECONDS, width - 4)
            # Events are counted up to now.
            events = [read.events for _, read in parts.all_reads if past is None]
            foot = side_panes.histogram_lines(events, width - 4, HISTOGRAM_LINES)
        late = {} if past is None else past.late_logs
        most = MAX_PANE_ROWS if focused else room - len(foot) - len(late)
        names = [session.name for session in data.sessions]
        logs = list(zip(names, data.live_values.logs, strict=True))
        pane_rows = side_panes.log_rows(logs, width, most, level)._replace(foot=foot)
        if past is not None:
            pane_rows = with_unknown_places(pane_rows, late, NOTHING_LOGGED, width)
        self._show_rows(parts, LOG, Frame(name, "7", bottom=axis), pane_rows)
        if pane_rows.rows and not focused:
            self.rows[LOG].select_key(pane_rows.rows[-1].key)

    def _show_other_ages(self, parts: OverviewParts, session: PlaceSession, width: int) -> None:
        """The second age table of a wall, without a cursor; empty while nothing is read."""
        if (read := parts.reads.of(session)) is None:
            self._show(OTHER_AGES, Frame(f"Ages: {session.name}"), [])
            return
        names = max(0, self.frame.inside(self.frame.other_ages) - 3)
        lines = [*view.table_lines(read.ages, None, width, names), _age_sentence(read, width)]
        right = _outdated(parts, session) or (("minutes", "muted"),)
        self._show(OTHER_AGES, Frame(_age_title(session, read), right=right), lines)

    def _show_graphs(self, parts: OverviewParts, width: int) -> None:
        """The graph of one place at the right; on a wall, those of all places."""
        frame, right = self.frame, (("z", "key"), (" range", "muted"))
        graph, frozen, now = parts.graph, parts.freeze.time, parts.freeze.shown_at
        places = [parts.selected]
        graphs: Sequence[tuple[Lines, int]] = [(self.lines[GRAPH], frame.sides.get(GRAPH, 0))]
        if frame.is_wall:
            width = frame.middle_width - BOX_FRAME_CELLS
            graphs = list(zip(self.graphs, frame.graphs, strict=False))
            places = painters.graph_places(parts.sessions, parts.selected)
        for (part, lines), session in zip(graphs, places, strict=False):
            if frozen is None and not self._turns.takes(f"{part.id}", now):
                continue
            drawn = (session.number, now, width, lines)
            if frozen is not None and self._drawn.get(part) == drawn:
                continue  # samples that came after the freeze would change its end
            self._drawn[part] = drawn
            # The present course, up to the time of the freeze, is also that of a frozen screen.
            is_past = frozen is not None and parts.freeze.is_past
            past = frozen.histories[session.number] if frozen is not None and is_past else None
            height, latest = frame.inside(lines), None
            if frozen is not None:
                queue = parts.snapshots[session.number - 1].queue
                waiting, rates = queue.counts.get(State.PENDING), queue.rates
                is_unknown = waiting is None and rates is None
                latest = LatestFlow(rates, None, waiting, is_unknown=is_unknown)
            part.show(graph.lines(session, now, width, height, past, latest=latest))
            axis = time_axis(now, graph.seconds, width - AXIS_CELLS)
            title = f"{session.name}, last {graph.range}"
            part.show_frame(self._turns.stamp(Frame(title, right=right, bottom=axis), now))


def _age_title(session: PlaceSession, read: PlaceReads) -> str:
    word = session.inspector.states.get(read.state, read.state)
    return view.table_heading(read.ages, session.name, word, session.place)


def _age_sentence(read: PlaceReads, width: int) -> Line:
    """Since when tasks wait, and whether they become fewer."""
    sentence = f"   Backlog {safe_line(summarize_ages(read.ages))}" if read.ages.total.total else ""
    return cut_line(((sentence, "muted"),), width)


def _outdated(parts: OverviewParts, *sessions: PlaceSession) -> Line:
    """The age of the oldest read of some places since which the tasks have changed; () if none."""
    age = 0.0
    for session, read in parts.all_reads if not parts.freeze.is_past else ():
        has_changed = read.generation != session.inspector.latest.generation
        if parts.freeze.time is not None:  # what came since the freeze is not shown
            shown = parts.snapshots[session.number - 1].queue.counts
            has_changed = any(read.counts.get(state, 0) != shown.get(state, 0) for state in State)
        if has_changed and session in sessions:
            age = max(age, parts.freeze.shown_at - read.when)
    return ((f"{format_rough_duration(age)} old", "warn"),) if age >= SHOW_AGE_SECONDS else ()


def _inner_width(frame: OverviewFrame) -> int:
    return frame.left_width - (BOX_FRAME_CELLS if frame.is_wide else 0)
