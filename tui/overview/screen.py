"""The overview screen: alerts, one line per place, ages, forecast, tokens, transports, warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult

from engine.index.age_table import GROUPINGS, Ages, summarize_ages
from engine.index.schema import Query
from engine.logs.log_tail import LogLine
from engine.model import State, Task
from engine.monitor.alerts import Alert
from engine.monitor.throughput import format_rough_duration
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.format import keys, present
from tui.format.flow_graph import time_axis
from tui.format.present import Line
from tui.format.progress_bar import first_scan_line
from tui.format.table import Choice
from tui.overview import age_lines as age_view
from tui.overview import alert_lines as alert_view
from tui.overview import lines as view
from tui.overview import side_panes, snapshot
from tui.overview.age_widget import AgeTable
from tui.overview.pausable import FreezableScreen
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane
from tui.screens.target import PANE_TARGETS, Target
from tui.screens.top_line import TopLine
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.terminal.render_cache import Across, Down
from tui.widgets.lines import Frame, Lines, Painted
from tui.widgets.picker import Picker

if TYPE_CHECKING:
    from tui.format.export import ExportTable, RowSink

SHOW_AGE_SECONDS = 5.0
"""Seconds after which a table that is older than the rows above shows its age."""

CHANGED_READ_SECONDS, UNCHANGED_READ_SECONDS = 2.0, 30.0
"""Seconds until ages and clusters are read again: after a change, and without one."""

READ_COST_FACTOR = 10
"""Minimum pause between reads, as a multiple of their duration."""

ALERTS, QUEUES, AGES = "alerts", "queues", "ages"

LIVE_ONLY_ACTIONS = frozenset({"unlock", "rows_by", "reread"})
"""Actions that need live data; disabled while frozen."""


class OverviewScreen(FreezableScreen):
    """The first screen of the console."""

    KIND = keys.OVERVIEW
    BINDINGS = key_bindings(keys.OVERVIEW)

    def __init__(self, lives: Sequence[PlaceSession], around: ConsoleContext) -> None:
        super().__init__(lives, around)
        self._pane = QUEUES
        self._chosen_pane = False
        """True once the operator has chosen a pane, or moved in one."""
        self._graph_pane = GraphPane()
        self._frame = view.OverviewFrame()
        self._alerts: tuple[Alert, ...] = ()
        self._tables: dict[int, tuple[State, Ages]] = {}
        self._counted: dict[int, tuple[int, float]] = {}
        """Generation and time (epoch seconds UTC) of each table."""
        self._seen: tuple[PlaceSnapshot, ...] = ()
        self._logs: tuple[Sequence[LogLine], ...] = ()
        """The logs of the last live snapshot, in the order of the places."""
        self._chosen: set[int] = set()
        self._judged: dict[int, tuple[CheckedCluster, ...]] = {}
        self._working: dict[int, Sequence[Task]] = {}
        self._asked: dict[int, tuple[int, float, float]] = {}
        self._wanted = asyncio.Event()

    def compose(self) -> ComposeResult:
        """Alerts, queues and ages, and the optional panes around them."""
        self._top = TopLine(id="top-line")
        # A resolved alert must disappear, and no key acts on an alert.
        self._alert_list, self._queue_list = Picker(id=ALERTS, ghosts=False), Picker(id=QUEUES)
        self._age_table, self._outlook = AgeTable(id=AGES), Lines(id="outlook")
        self._warnings, self._graph = Lines(id="warnings"), Lines(id="graph")
        self._clusters, self._work = Lines(id="side-clusters"), Lines(id="at-work")
        self._ways = Lines(id="ways")
        yield self._top
        yield self._alert_list
        with Across(id="panes"):
            with Down(id="left") as self._left:
                yield self._queue_list
                yield self._age_table
                yield self._outlook
                yield self._warnings
            with Down(id="right"):
                yield self._graph
                yield self._clusters
                yield self._work
                yield self._ways
        yield Lines(id="word")
        yield Lines(id="hints")
        for part in self._parts:
            part.add_class("pane")

    @property
    def _parts(self) -> dict[Painted, int]:
        """The panes, each with its lines in the present frame."""
        frame = self._frame
        return {
            self._alert_list: frame.alerts,
            self._queue_list: frame.queues,
            self._age_table: frame.ages,
            self._outlook: frame.outlook,
            self._warnings: frame.log,
            self._graph: frame.graph,
            self._clusters: frame.clusters,
            self._work: frame.work,
            self._ways: frame.transports,
        }

    def begin(self) -> None:
        """Focus the first alert, else the queues, and start the background reads."""
        self._activate(QUEUES)
        self._chosen_pane = False
        self.run_worker(self._read_in_turn(), name="ages")
        for live in self._lives:
            self.run_worker(self._follow_first_scan(live), name=f"first look {live.number}")

    async def _follow_first_scan(self, live: PlaceSession) -> None:
        """Repaint during the first scan of a place."""
        change = live.inspector.latest
        while not change.is_complete:
            try:
                change = await live.inspector.wait_for_change(change.generation)
            except Unavailable:
                return  # closed: the console is being left
            self._wanted.set()
            self.paint()

    # Background reads

    async def _read_in_turn(self) -> None:
        while True:
            live = self._here
            if self.is_current and self._frame.ages and self._is_read_due(live):
                began = asyncio.get_running_loop().time()
                try:
                    await self._read_place(live)
                except Unavailable:
                    self._tables.pop(live.number, None)  # its line says why
                generation = live.inspector.latest.generation
                ended = asyncio.get_running_loop().time()
                earliest = ended + max(CHANGED_READ_SECONDS, READ_COST_FACTOR * (ended - began))
                self._asked[live.number] = (generation, earliest, ended + UNCHANGED_READ_SECONDS)
                self._tick()
            self._wanted.clear()
            try:
                await asyncio.wait_for(self._wanted.wait(), 1.0)
            except TimeoutError:
                continue

    def _is_read_due(self, live: PlaceSession) -> bool:
        latest = live.inspector.latest
        if not latest.is_complete or self._frozen is not None:
            return False
        generation, earliest, in_any_case = self._asked.get(live.number, (-1, 0.0, 0.0))
        now = asyncio.get_running_loop().time()
        return now >= in_any_case or (latest.generation != generation and now >= earliest)

    async def _read_place(self, live: PlaceSession) -> None:
        counted = (live.inspector.latest.generation, self.around.clock())
        state, ages = self._tables.get(live.number, (State.PENDING, None))
        still = live.number in self._chosen or live.inspector.latest.counts.get(state, 0)
        if ages is not None and still and (len(ages.rows) > 1 or live.number in self._chosen):
            found = await index_queries.query_ages(live, state, ages.by)
        else:
            state, found = await index_queries.first_useful_ages(live)
        errors, tasks = self._judged.get(live.number, ()), self._working.get(live.number, ())
        if self._frame.wide:
            errors = await check_clusters(live, Query(State.DEAD))
            size = max(1, self._frame.inside(self._frame.work))
            tasks = (await live.inspector.queries.window(Query(State.ACTIVE), 0, size)).tasks
            await self._graph_pane.read(live, self.around.clock())
        if self._frozen is None:  # update all parts together, or none while frozen
            self._tables[live.number] = (state, found)
            self._judged[live.number], self._working[live.number] = errors, tasks
            self._counted[live.number] = counted

    def _request_read(self, number: int) -> None:
        self._asked.pop(number, None)
        self._wanted.set()

    # Painting

    def trail(self) -> tuple[str, ...]:
        """No trail on the outermost screen; the shown time while frozen."""
        frozen = self._frozen
        return () if frozen is None else (f"FROZEN {present.format_clock(frozen.at)}",)

    @property
    def _here(self) -> PlaceSession:
        """The place under the cursor: of the alert, or in the list of queues."""
        if self._pane == ALERTS and (alert := self._alert) is not None:
            named = (one for one in self._lives if one.place.name == alert.target.place)
            if (found := next(named, None)) is not None:
                return found
        key = self._queue_list.key
        return self._lives[int(key) - 1] if key else self._lives[0]

    @property
    def _table(self) -> tuple[State, Ages] | None:
        return self._tables.get(self._here.number)

    def paint(self) -> None:
        """Divide the screen into its parts and paint them."""
        if not self._composed or not self.is_paintable or not self.size.width:
            return
        self.lay_out(self.size.width)
        around = self.around
        if self._frozen is not None:
            around = around._replace(totals=tuple)  # they are those of now
        self._top.update_line(around, self.trail())
        self._show_message_line()
        self.show_hints()

    def _divide(self) -> None:
        width, height = self.size
        brief = height < view.HIGH_LINES
        here = self._seen[self._here.number - 1]
        lines = snapshot.outlook_lines(here, width, brief=brief)
        self._alerts = alert_view.sort_alerts([alert for m in self._seen for alert in m.alerts])
        table = self._table
        rows = 0 if table is None else 1 + len(table[1].rows) + bool(table[1].others)
        frame = view.divide_screen(
            *(width, height, len(self._lives), len(self._alerts), rows, len(lines))
        )
        if frame == self._frame:
            return
        if frame.wide and not self._frame.wide:  # the panes at the right have no data yet
            self._asked.clear()
            self._wanted.set()
        self._frame = frame
        if not getattr(frame, self._pane):
            self._activate(QUEUES)
        word, hints = self.query_one("#word"), self.query_one("#hints")
        for part, amount in (*self._parts.items(), (word, frame.next), (hints, frame.hints)):
            part.styles.height = amount
            part.display = amount > 0
        self.query_one("#right").display = frame.wide
        self.frame_panes(frame.border)
        self._left.styles.width = view.left_width(width) if frame.wide else "1fr"

    def lay_out(self, width: int) -> None:
        """Paint all panes."""
        frozen = self._frozen
        now = self.around.clock() if frozen is None else frozen.at
        cells = 2 * view.SPARKLINE_CELLS
        self._seen = tuple(self._snapshot_of(live, cells) for live in self._lives)
        self._divide()
        frame = self._frame
        boxed = 3 if frame.wide else 0  # the box and the cell at its right end
        left = (view.left_width(width) if frame.wide else width) - boxed
        self._show_alerts(width - boxed)
        queues = [moment.queue for moment in self._seen]
        head, rows = view.place_table(queues, now, left)
        choices = [Choice(str(q.number), line) for q, line in zip(queues, rows, strict=True)]
        self._queue_list.show_rows(choices, [head] if frame.inside(frame.queues) > 1 else [])
        self._show_frame(self._queue_list, Frame("Queues", amount=f"{len(queues)}"), QUEUES)
        self._show_ages(left)
        if frame.outlook:
            here, brief = self._seen[self._here.number - 1], not frame.wide
            lines = snapshot.outlook_lines(here, left, brief=brief)
            self._outlook.show(lines[: frame.inside(frame.outlook)])
            self._outlook.show_frame(Frame("Outlook"))
        self._show_log(left, frame.inside(frame.log))
        if frame.wide:
            side = width - view.left_width(width) - boxed
            self._show_sides(self._seen[self._here.number - 1], now, side)
        self._report_recording()

    def _show_frame(self, part: Painted, frame: Frame, pane: str) -> None:
        part.show_frame(frame, focused=pane == self._pane)

    def _show_log(self, width: int, height: int) -> None:
        self._warnings.show_frame(Frame("Recent warnings", "7"))
        if self._is_past:
            self._warnings.show(side_panes.not_recorded_lines())
            return
        if self._frozen is None:
            self._logs = tuple(live.readings.log for live in self._lives)
        logs = list(zip(self._names, self._logs, strict=True))
        self._warnings.show(view.warning_lines(logs, width, height))

    @property
    def _names(self) -> list[str]:
        return [live.name for live in self._lives]

    def _show_alerts(self, width: int) -> None:
        if not self._chosen_pane and self._alerts and self._frame.alerts:
            self._activate(ALERTS)  # until the operator chooses a pane
        elif not self._alerts and self._pane == ALERTS:
            self._activate(QUEUES)
        called = dict(zip([n.place.name for n in self._lives], self._names, strict=True))
        lines = alert_view.alert_lines(self._alerts, called, width)
        choices = [
            Choice(alert_view.alert_key(alert), line)
            for alert, line in zip(self._alerts, lines, strict=True)
        ]
        self._alert_list.show_rows(choices, [] if choices else [self._no_alerts()])
        if choices and (self._pane != ALERTS or not self._chosen_pane):
            self._alert_list.select_key(choices[0].key)  # the most urgent one, as they come in
        count = f"{len(choices)}" if choices else ""
        self._show_frame(self._alert_list, Frame("Alerts", amount=count), ALERTS)
        if self._frozen is not None:
            frozen, here = self._frozen, self._seen[self._here.number - 1]
            now = self.around.clock()
            self._alert_list.set_frame(snapshot.freeze_notice(frozen.at, now, here, width - 4))

    def _no_alerts(self) -> Line:
        if self._frozen is not None:
            known = all(moment.queue.complete for moment in self._seen)
            return alert_view.no_alerts_line(True) if known else ((" not recorded", "muted"),)
        return alert_view.no_alerts_line(
            all(n.has_readings and n.inspector.latest.is_complete for n in self._lives)
        )

    def _show_ages(self, width: int) -> None:
        live, table = self._here, self._table
        name = self._names[live.number - 1]
        part = self._age_table
        if self._is_past or (self._frozen is not None and table is None):
            self._show_frame(part, Frame(f"Ages: {name}"), AGES)
            part.show_ages(None, side_panes.not_recorded_lines()[0])
            return
        unavailable = self._seen[live.number - 1].queue.unavailable
        if table is None or unavailable:
            self._show_frame(part, Frame(f"Ages: {name}"), AGES)
            why = "cannot be read" if unavailable else "counting ..."
            part.show_ages(None, ((f"   {why}", "muted"),))
            return
        state, ages = table
        word = live.inspector.states.get(state, state)
        generation, when = self._counted.get(live.number, (-1, 0.0))
        age, is_live = self.around.clock() - when, self._frozen is None
        is_old = is_live and generation != live.inspector.latest.generation
        right: Line = (("minutes", "muted"),)
        if is_old and age >= SHOW_AGE_SECONDS:
            right = ((f"{format_rough_duration(age)} old", "warn"),)
        heading = age_view.table_heading(ages, name, word)
        self._show_frame(part, Frame(heading, right=right), AGES)
        says = f"   backlog: {safe_line(summarize_ages(ages))}" if ages.total.total else ""
        part.show_ages(ages, present.cut_line(((says, "muted"),), width))

    def _show_sides(self, here: PlaceSnapshot, now: float, width: int) -> None:
        frame, live = self._frame, self._here
        inside = frame.inside
        name = self._names[live.number - 1]
        if self._frozen is None or self._is_past:  # else it stays as it was painted
            pane = self._graph_pane
            past = None if self._frozen is None else self._frozen.histories[live.number]
            self._graph.show(pane.lines(live, now, width, inside(frame.graph), past))
            right: Line = (("z", "key"), (" range", "muted"))
            title, axis = f"{name}, last {pane.range}", time_axis(now, pane.seconds)
            self._graph.show_frame(Frame(title, right=right, bottom=axis))
        limit = live.place.alerts.transport_failures
        room = inside(frame.transports)
        self._ways.show(side_panes.transport_lines(here.sending, limit, now, width, room))
        self._ways.show_frame(Frame("Transports", "6"))
        clusters = self._judged.get(live.number, ())
        count = f"{len(clusters)}" if clusters and not self._is_past else ""
        self._clusters.show_frame(Frame("Clusters", "4", count, (("STILL?", "muted"),)))
        amount = here.queue.counts.get(State.ACTIVE, 0)
        self._work.show_frame(Frame("Running", "3", f"{amount:,}" if amount else ""))
        if self._is_past:
            self._clusters.show(side_panes.not_recorded_lines())
            self._work.show(side_panes.not_recorded_lines())
            return
        self._clusters.show(side_panes.cluster_lines(clusters, width, inside(frame.clusters)))
        tasks = self._working.get(live.number, ())
        room = inside(frame.work)
        self._work.show(side_panes.active_task_lines(here.queue, tasks, now, width, room))

    def default_message(self) -> Line:
        """The next step for the item under the cursor, and what a key acts on."""
        live = self._frozen is None
        if live and self._pane == ALERTS and (alert := self._alert) is not None:
            key, does = alert_view.next_step(alert)
            called = self._names[self._here.number - 1]
            return present.next_line(key, does, called, self.size.width)
        if self._pane == AGES:
            table, count = self._age_table, self._age_table.count
            words = (
                "" if count is None else f"{table.cell_text}: {present.format_count(count, 'task')}"
            )
            return ((f" {safe_line(words)}", ""),)
        return self._place_message()

    def _place_message(self) -> Line:
        live, now = self._here, self.around.clock()
        inspector = live.inspector
        far = first_scan_line(
            inspector.latest, inspector.states, now - live.opened_at, self.size.width
        )
        if far and self._frozen is None:
            return far
        painted = (each for each in self._seen if each.queue.number == live.number)
        moment = next(painted, None) or self._snapshot_of(live, view.SPARKLINE_CELLS)
        queue, lock = moment.queue, moment.lock
        words = f" {self._names[live.number - 1]}: {safe_line(view.describe_place(queue))}"
        if not queue.unavailable and moment.worker is not None:
            return ((words, ""), (f"; worker PID {moment.worker}, started here", "muted"))
        if queue.unavailable or lock is None:
            return ((words, "unknown" if queue.unavailable else ""),)
        was = "" if self._frozen is None else "was "
        return ((f"{words}; lock {was}{lock.verdict}: ", ""), (safe_line(lock.reason), "muted"))

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show the available keys."""
        words = {"arm": keys.arm_hint(self.around.arming.is_armed)}
        if self._frozen is not None:
            grey, words = {*grey, *LIVE_ONLY_ACTIONS}, {**words, "freeze": "live"}
        hints = keys.hints_of(self.KIND, grey, self.without(), words)
        lines = max(1, self._frame.hints)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width, lines))

    def without(self) -> Collection[str]:
        """Actions that are hidden now."""
        without = {"arm", "unlock"} if self.around.arming.read_only else set()
        without |= {"unlock"} if all(live.place.has_leases for live in self._lives) else set()
        return (
            without
            if any(live.has_queue_figures for live in self._lives)
            else {*without, "controls"}
        )

    # Moving

    def _activate(self, pane: str) -> None:
        self._pane = pane
        for name, part in self._panes.items():
            part.activate(name == pane)
        self._panes[pane].focus()

    @property
    def _panes(self) -> dict[str, Picker | AgeTable]:
        return {ALERTS: self._alert_list, QUEUES: self._queue_list, AGES: self._age_table}

    def _before_freeze(self) -> None:
        self._held = {moment.queue.number: moment for moment in self._seen}
        if self._pane == AGES:
            self._activate(QUEUES)

    def _step(self, by: int) -> None:
        self._chosen_pane = True
        there = [ALERTS] * bool(self._alerts and self._frame.alerts) + [QUEUES]
        there += [AGES] * bool(self._frame.ages and self._table and not self._frozen)
        at = there.index(self._pane) if self._pane in there else 0
        self._activate(there[(at + by) % len(there)])
        self.paint()

    def action_next_pane(self) -> None:
        """Go to the next part of the screen."""
        self._step(1)

    def action_previous_pane(self) -> None:
        """Go to the previous part."""
        self._step(-1)

    def action_move(self, how: str) -> None:
        """Move the cursor in the focused part."""
        self._chosen_pane = True
        self._panes[self._pane].move(how)

    def action_age_cell(self, by: int) -> None:
        """Move to a younger or older age class."""
        if self._pane == AGES:
            self._age_table.shift(by)

    def on_picker_cursor_moved(self) -> None:
        """Another row is under the cursor: read its ages."""
        self._wanted.set()

    def on_age_table_cell_changed(self) -> None:
        """Describe the new cell in the message line."""
        self._show_message_line()

    # Navigation

    @property
    def _alert(self) -> Alert | None:
        """The alert under the cursor."""
        key = self._alert_list.key
        return next((alert for alert in self._alerts if alert_view.alert_key(alert) == key), None)

    def action_back(self) -> None:
        """Return to live; otherwise stop the first scan of the place under the cursor."""
        if self._frozen is not None:
            self._go_live()
            return
        latest = self._here.inspector.latest
        if latest.is_complete or latest.is_stopped:
            self.say("nothing to stop; q quits")
        else:
            self._here.inspector.stop_first_scan()

    def action_open(self) -> None:
        """Open the alert, the place, or the tasks of the cell under the cursor."""
        if self._pane == ALERTS:
            self._open_alert()
        elif self._pane == AGES:
            self._open_cell()
        else:
            self.go(Target(keys.LIST, place=self._here.number))

    def _open_alert(self) -> None:
        alert = self._alert
        if alert is None:
            self.say("alert resolved")
            return
        number = next(n.number for n in self._lives if n.place.name == alert.target.place)
        self.go(alert_view.alert_target(alert.target, number))

    def _open_cell(self) -> None:
        table = self._table
        if table is None or self._age_table.count is None:
            self.say("no cell to open")
            return
        state, _ = table
        words = self._age_table.filter
        self.go(Target(keys.LIST, place=self._here.number, state=state, filter=words))

    def action_pane(self, digit: str) -> None:
        """Open the screen with that digit for the place under the cursor."""
        self.go(PANE_TARGETS[digit]._replace(place=self._here.number))

    def action_unlock(self) -> None:
        """Open the lock screen of the place."""
        if self._frozen is not None:
            self.say(f"frozen at {present.format_clock(self._frozen.at)}: p goes live, then U")
            return
        live = self._here
        if refusal := live.place.why_no_unlock(self.around.arming.read_only):
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK, place=live.number))

    def action_controls(self) -> None:
        """Open the controls of the place under the cursor."""
        self.go(Target(keys.CONTROLS, place=self._here.number))

    def action_arm(self) -> None:
        """Switch write mode."""
        self.say(self.around.arming.toggle())
        self.paint()

    def action_range(self) -> None:
        """Show the next range of the graph."""
        self._graph_pane.next_range()
        self._request_read(self._here.number)
        self.paint()

    def action_rows_by(self) -> None:
        """Show the age table by the next field or state that has data."""
        self._next_age_rows()

    @work(exclusive=True, group="rows by")
    async def _next_age_rows(self) -> None:
        live, table = self._here, self._table
        if table is None or self._frozen is not None:
            return
        ways = [(state, by) for state in index_queries.AGE_TABLE_STATES for by in GROUPINGS]
        at = ways.index((table[0], table[1].by))
        for state, by in (*ways[at + 1 :], *ways[:at]):
            self._counted[live.number] = (live.inspector.latest.generation, self.around.clock())
            try:
                ages = await index_queries.query_ages(live, state, by)
            except Unavailable:
                return
            if any(row.name for row in ages.rows):
                self._tables[live.number] = (state, ages)
                self._chosen.add(live.number)
                self.paint()
                return
        self.say("no other field has data")

    def action_reread(self) -> None:
        """Scan all places again."""
        if self._frozen is not None:
            self.say("frozen: p goes live, then r")
            return
        self._reread()

    @work(exclusive=True, group="reread")
    async def _reread(self) -> None:
        await asyncio.gather(*(live.inspector.scan_now() for live in self._lives))
        self._request_read(self._here.number)
        self.say("all places scanned again")

    # Copy and export

    def copies(self) -> tuple[Copy, ...]:
        """The place under the cursor, its line, and the command that prints all places."""
        import shlex

        live, now = self._here, self._shown_at
        queue = self._snapshot_of(live, view.SPARKLINE_CELLS).queue
        _, (line,) = view.place_table([queue], now, 100)
        alert, names = self._alert, [n.place.name for n in self._lives]
        return (
            Copy("i", "place", live.place.name),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            *(
                (Copy("a", "alert", alert_view.alert_text(alert, now)),)
                if alert is not None
                else ()
            ),
            Copy(
                "c",
                "command",
                shlex.join(["spooldeck", "overview", *self._at_words, *names]),
            ),
        )

    def export_table(self) -> ExportTable | None:
        """Export: one row per place."""
        from tui.format.export import ExportTable

        now, real = self._shown_at, self.around.clock()
        there = [self._snapshot_of(live, view.SPARKLINE_CELLS) for live in self._lives]
        values = [view.place_values(moment.queue, now) for moment in there]
        if self._frozen is not None:
            past = [snapshot.recorded_values(moment, now, real) for moment in there]
            values = [row | more for row, more in zip(values, past, strict=True)]

        async def hand(take: RowSink) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        return ExportTable("overview", tuple(values[0]), hand)
