"""Every place on one line, what is wrong on top, and where to go from there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult

from engine.index.age_table import BY, Ages, reading
from engine.index.schema import Query
from engine.logs.log_tail import LogLine
from engine.model import State, Task
from engine.monitor.alerts import Alert
from engine.monitor.throughput import roughly
from engine.store import Unavailable
from engine.text.safe import shown
from tui.format import keys, present, table
from tui.format.present import Line
from tui.format.progress_bar import first_look
from tui.overview import age_lines as age_view
from tui.overview import alert_lines as alert_view
from tui.overview import lines as view
from tui.overview import side_panes, snapshot
from tui.overview.age_widget import AgeTable
from tui.overview.pausable import Freezing
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.base import PANES, Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.top_line import TopLine
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import Judged, judged
from tui.widgets.lines import Lines
from tui.widgets.picker import Choice, Picker
from tui.widgets.render_cache import Across

if TYPE_CHECKING:
    from tui.format.export import ExportTable, Take

AGED = 5.0
"""Seconds after which a table that is older than the rows above it shows its age."""

OFTEN, SELDOM = 2.0, 30.0
"""Seconds until ages and clusters are asked for again: when something has changed, and when only
time has passed."""

SPARING = 10
"""The same, in times of what asking took."""

ALERTS, QUEUES, AGES = "alerts", "queues", "ages"

REFUSED = frozenset({"unlock", "rows_by", "reread"})
"""Actions that mean what is now, not what was: not while the screen is frozen."""


class OverviewScreen(Freezing):
    """What the console opens on."""

    KIND = keys.OVERVIEW
    BINDINGS = keys.bindings(keys.OVERVIEW)

    def __init__(self, lives: Sequence[PlaceSession], around: ConsoleContext) -> None:
        super().__init__(lives, around)
        self._pane = QUEUES
        self._frame = view.Frame()
        self._alerts: tuple[Alert, ...] = ()
        self._tables: dict[int, tuple[State, Ages]] = {}
        self._counted: dict[int, tuple[int, float]] = {}
        """The generation and the time (epoch seconds UTC) of each table."""
        self._seen: tuple[PlaceSnapshot, ...] = ()
        self._logs: tuple[Sequence[LogLine], ...] = ()
        """The logs as the last live frame showed them, in the order of the places."""
        self._chosen: set[int] = set()
        self._judged: dict[int, tuple[Judged, ...]] = {}
        self._working: dict[int, Sequence[Task]] = {}
        self._asked: dict[int, tuple[int, float, float]] = {}
        self._wanted = asyncio.Event()

    def compose(self) -> ComposeResult:
        """Alerts, queues, ages, and around them what there is room for."""
        self._top = TopLine(id="top-line")
        # An alert that ends must not stay on screen, and no key acts on an alert.
        self._alert_list, self._queue_list = Picker(id=ALERTS, ghosts=False), Picker(id=QUEUES)
        self._rule, self._locks = Lines(id="alert-rule"), Lines(id="side-locks")
        self._age_table, self._clusters = AgeTable(id=AGES), Lines(id="side-clusters")
        self._tokens, self._ways, self._work = (Lines(id=n) for n in ("tokens", "ways", "at-work"))
        self._forecast = Lines(id="forecast")
        self._warnings = Lines(id="warnings")
        yield self._top
        yield self._alert_list
        yield self._rule
        with Across(id="upper") as self._upper:
            yield self._queue_list
            yield self._locks
        with Across(id="lower") as self._lower:
            yield self._age_table
            yield self._clusters
        yield self._forecast
        yield self._tokens
        with Across(id="third") as self._third:
            yield self._ways
            yield self._work
        yield self._warnings
        yield Lines(id="word")
        yield Lines(id="hints")

    def begin(self) -> None:
        """Keys go to the queues; what has to be counted is asked for."""
        self._activate(QUEUES)
        self.run_worker(self._ask(), name="ages")
        for live in self._lives:
            self.run_worker(self._first_look(live), name=f"first look {live.number}")

    async def _first_look(self, live: PlaceSession) -> None:
        """Show what comes while a place is looked at for the first time, as it comes."""
        change = live.inspector.latest
        while not change.complete:
            try:
                change = await live.inspector.changed(change.generation)
            except Unavailable:
                return  # closed: the console is being left
            self._wanted.set()
            self.paint()

    # What is asked, sparingly

    async def _ask(self) -> None:
        while True:
            live = self._here
            if self.is_current and self._frame.ages and self._is_time(live):
                began = asyncio.get_running_loop().time()
                try:
                    await self._ask_of(live)
                except Unavailable:
                    self._tables.pop(live.number, None)  # its line says why
                generation = live.inspector.latest.generation
                ended = asyncio.get_running_loop().time()
                earliest = ended + max(OFTEN, SPARING * (ended - began))
                self._asked[live.number] = (generation, earliest, ended + SELDOM)
                self._tick()
            self._wanted.clear()
            try:
                await asyncio.wait_for(self._wanted.wait(), 1.0)
            except TimeoutError:
                continue

    def _is_time(self, live: PlaceSession) -> bool:
        latest = live.inspector.latest
        if not latest.complete or self._frozen is not None:
            return False
        generation, earliest, in_any_case = self._asked.get(live.number, (-1, 0.0, 0.0))
        now = asyncio.get_running_loop().time()
        return now >= in_any_case or (latest.generation != generation and now >= earliest)

    async def _ask_of(self, live: PlaceSession) -> None:
        counted = self._count_of(live)
        state, ages = self._tables.get(live.number, (State.PENDING, None))
        still = live.number in self._chosen or live.inspector.latest.counts.get(state, 0)
        if ages is not None and still and (len(ages.rows) > 1 or live.number in self._chosen):
            found = await index_queries.ages(live, state, ages.by)
        else:
            state, found = await index_queries.first_telling(live)
        errors, tasks = self._judged.get(live.number, ()), self._working.get(live.number, ())
        if self._frame.wide:
            errors = await judged(live, Query(State.DEAD))
            size = max(1, self._frame.ways)
            tasks = (await live.inspector.window(Query(State.ACTIVE), 0, size)).tasks
        if self._frozen is None:  # all of it together, or what is held stays
            self._tables[live.number] = (state, found)
            self._judged[live.number], self._working[live.number] = errors, tasks
            self._counted[live.number] = counted

    def _count_of(self, live: PlaceSession) -> tuple[int, float]:
        """The generation and the time of a table that is counted from now on."""
        return live.inspector.latest.generation, self.around.clock()

    def _ask_anew(self, number: int) -> None:
        self._asked.pop(number, None)
        self._wanted.set()

    # What it shows

    def trail(self) -> tuple[str, ...]:
        """It is the outermost; frozen it says so first."""
        frozen = self._frozen
        return () if frozen is None else (f"FROZEN {present.clock(frozen.at)}",)

    @property
    def _here(self) -> PlaceSession:
        """The place under the cursor."""
        key = self._queue_list.key
        return self._lives[int(key) - 1] if key else self._lives[0]

    @property
    def _table(self) -> tuple[State, Ages] | None:
        return self._tables.get(self._here.number)

    def paint(self) -> None:
        """Divide the screen, and show what is known now."""
        if not self._composed or not self.stands or not self.size.width:
            return
        self._divide()
        self.lay_out(self.size.width)
        around = self.around
        if self._frozen is not None:
            many = len(self._alerts)
            around = around._replace(alerts=lambda: many)
        self._top.tell(around, self.trail())
        self._show_word()
        self.show_hints()

    def _divide(self) -> None:
        limited = any(live.place.tokens is not None for live in self._lives)
        width, height = self.size
        frame = view.frame(width, height, len(self._lives), limited)
        if frame == self._frame:
            return
        if frame.wide and not self._frame.wide:  # nothing was counted for the parts at the side
            self._asked.clear()
            self._wanted.set()
        self._frame = frame
        if not getattr(frame, self._pane):
            self._activate(QUEUES)
        parts = (
            *((self._alert_list, frame.alerts), (self._rule, frame.rule)),
            *((self._upper, frame.queues), (self._lower, frame.ages)),
            *((self._forecast, frame.forecast), (self._tokens, frame.tokens)),
            (self._third, frame.ways),
            *((self._warnings, frame.log), (self.query_one("#word"), frame.word)),
            (self.query_one("#hints"), frame.hints),
        )
        for part, lines in parts:
            part.styles.height = lines
            part.display = lines > 0
        self.set_class(frame.wide, "-wide")
        for part in (self._queue_list, self._age_table, self._ways):
            part.styles.width = view.left_width(width) if frame.wide else "1fr"

    def lay_out(self, width: int) -> None:
        """Alerts, queues, and the ages of the one under the cursor."""
        frozen, frame = self._frozen, self._frame
        now = self.around.clock() if frozen is None else frozen.at
        left = view.left_width(width) if frame.wide else width
        cells = view.shape((), left).spark or view.CELLS
        self._seen = tuple(self._moment(live, cells) for live in self._lives)
        self._show_alerts(width)
        queues = [moment.queue for moment in self._seen]
        head, rows = view.table(queues, now, left)
        choices = [Choice(str(q.number), line) for q, line in zip(queues, rows, strict=True)]
        self._queue_list.offer(choices, [head] if frame.queues > 1 else [])
        self._show_ages(left)
        here = self._seen[self._here.number - 1]
        if frame.forecast:
            self._forecast.show(snapshot.forecast_lines(here.forecasts, width, frame.forecast))
        if frame.tokens:
            self._tokens.show([view.tokens_line(here.tokens, width)])
        self._show_log(width, frame.log)
        self._show_sides(here, now, width, left)
        self._tell_of_recording()

    def _show_log(self, width: int, height: int) -> None:
        if self._is_past:
            self._warnings.show(side_panes.blank("last warnings of the logs", width, height))
            return
        if self._frozen is None:
            self._logs = tuple(live.signs.log for live in self._lives)
        logs = list(zip(self._names, self._logs, strict=True))
        self._warnings.show(view.warning_lines(logs, width, height))

    @property
    def _names(self) -> list[str]:
        return table.names([live.place.name for live in self._lives])

    def _show_alerts(self, width: int) -> None:
        self._alerts = alert_view.ordered([alert for m in self._seen for alert in m.alerts])
        if not self._alerts and self._pane == ALERTS:
            self._activate(QUEUES)
        called = dict(zip([n.place.name for n in self._lives], self._names, strict=True))
        lines = alert_view.lines(self._alerts, called, width, self._frame.alerts)
        choices = [
            Choice(alert_view.key(alert), line)
            for alert, line in zip(self._alerts, lines, strict=True)
        ]
        self._alert_list.offer(choices, [] if choices else [self._no_alert()])
        if choices and self._pane != ALERTS:
            self._alert_list.put_on(choices[0].key)
        self._rule.show([self._notice(width) or (("-" * width, "rule"),)])

    def _no_alert(self) -> Line:
        if self._frozen is not None:
            known = all(moment.queue.complete for moment in self._seen)
            return alert_view.none(True) if known else ((" not recorded", "dim"),)
        return alert_view.none(all(n.looked and n.inspector.latest.complete for n in self._lives))

    def _notice(self, width: int) -> Line:
        """That it is frozen, where it is; without it one is left to the first line."""
        frozen = self._frozen
        if frozen is None:
            return ()
        here = self._seen[self._here.number - 1]
        return snapshot.notice(frozen.at, self.around.clock(), here, width)

    def _show_ages(self, width: int) -> None:
        live, table = self._here, self._table
        name = self._names[live.number - 1]
        if self._is_past or (self._frozen is not None and table is None):
            heading, *below = side_panes.blank(f"{name}  ages", width, 2)
            self._age_table.tell(None, heading, below[0])
            return
        unavailable = self._seen[live.number - 1].queue.unavailable
        if table is None or unavailable:
            why = "cannot be read" if unavailable else "being counted"
            self._age_table.tell(
                None, present.heading(f"{name}  ages", width), ((f" {why}", "dim"),)
            )
            return
        state, ages = table
        word = live.inspector.states.get(state, state)
        heading = age_view.heading(ages, name, word, width)
        generation, when = self._counted.get(live.number, (-1, 0.0))
        age, is_live = self.around.clock() - when, self._frozen is None
        if is_live and generation != live.inspector.latest.generation and age >= AGED:
            heading = present.join(heading, ((f"{roughly(age)} old", "warning"),), width)
        says = f" reading: {shown(reading(ages))}" if ages.total.total else " nothing to be read"
        self._age_table.tell(ages, heading, present.cut(((says, "dim"),), width))

    def _show_sides(self, here: PlaceSnapshot, now: float, width: int, left: int) -> None:
        frame, live = self._frame, self._here
        if frame.ways:
            limit = live.place.alerts.transport_failures
            self._ways.show(side_panes.transports(here.sending, limit, now, left, frame.ways))
        if not frame.wide:
            return
        side = width - left - 2
        self._locks.show(side_panes.locks(self._seen, side, frame.queues))
        if self._is_past:
            self._clusters.show(side_panes.blank("errors of the dead", side, frame.ages))
            self._work.show(side_panes.blank("in work", side, frame.ways))
            return
        clusters = self._judged.get(live.number, ())
        self._clusters.show(side_panes.clusters(clusters, side, frame.ages))
        tasks = self._working.get(live.number, ())
        self._work.show(side_panes.work(here.queue, tasks, now, side, frame.ways))

    def word(self) -> Line:
        """What is under the cursor, in a sentence."""
        if self._pane == ALERTS:
            alert = self._alert
            words = "" if alert is None else alert_view.told(alert, self.around.clock())
        elif self._pane == AGES:
            table, count = self._age_table, self._age_table.count
            words = "" if count is None else f"{table.words}: {present.count(count, 'task')}"
        else:
            return self._told_of_queue()
        return ((f" {shown(words)}", ""),)

    def _told_of_queue(self) -> Line:
        live, now = self._here, self.around.clock()
        inspector = live.inspector
        far = first_look(inspector.latest, inspector.states, now - live.begun, self.size.width)
        if far and self._frozen is None:
            return far
        painted = (each for each in self._seen if each.queue.number == live.number)
        moment = next(painted, None) or self._moment(live, view.CELLS)
        queue, lock = moment.queue, moment.lock
        words = f" {self._names[live.number - 1]}: {shown(view.told(queue))}"
        if not queue.unavailable and moment.worker is not None:
            return ((words, ""), (f"; worker PID {moment.worker}, started here", "dim"))
        if queue.unavailable or lock is None:
            return ((words, "unknown" if queue.unavailable else ""),)
        was = "is" if self._frozen is None else "was"
        return ((f"{words}; the lock {was} {lock.verdict}: ", ""), (shown(lock.reason), "dim"))

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show which keys there are."""
        words = {"arm": keys.arm_words(self.around.arming.armed)}
        if self._frozen is not None:
            grey, words = {*grey, *REFUSED}, {**words, "freeze": "live"}
        hints = keys.hints(self.KIND, grey, self.without(), words)
        lines = max(1, self._frame.hints)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width, lines))

    def without(self) -> Collection[str]:
        """What is not offered here now."""
        without = {"arm", "unlock"} if self.around.arming.read_only else set()
        without |= {"unlock"} if all(live.place.leases for live in self._lives) else set()
        return without if any(live.is_told_of for live in self._lives) else {*without, "controls"}

    # Moving

    def _activate(self, pane: str) -> None:
        self._pane = pane
        for name, part in self._panes.items():
            part.activate(name == pane)
        self._panes[pane].focus()

    @property
    def _panes(self) -> dict[str, Picker | AgeTable]:
        return {ALERTS: self._alert_list, QUEUES: self._queue_list, AGES: self._age_table}

    def _hold_still(self) -> None:
        self._held = {moment.queue.number: moment for moment in self._seen}
        if self._pane == AGES:
            self._activate(QUEUES)

    def _step(self, by: int) -> None:
        there = [ALERTS] * bool(self._alerts and self._frame.alerts) + [QUEUES]
        there += [AGES] * bool(self._frame.ages and self._table and not self._frozen)
        at = there.index(self._pane) if self._pane in there else 0
        self._activate(there[(at + by) % len(there)])
        self.paint()

    def action_next_pane(self) -> None:
        """To the next part of the screen."""
        self._step(1)

    def action_previous_pane(self) -> None:
        """To the part before."""
        self._step(-1)

    def action_move(self, how: str) -> None:
        """Move in the part that has the cursor."""
        self._panes[self._pane].move(how)

    def action_left(self) -> None:
        """To the younger cell."""
        self._shift(-1)

    def action_right(self) -> None:
        """To the older cell."""
        self._shift(1)

    def _shift(self, by: int) -> None:
        if self._pane == AGES:
            self._age_table.shift(by)

    def on_picker_moved(self) -> None:
        """Another row is under the cursor."""
        self._wanted.set()

    def on_age_table_moved(self) -> None:
        """Another cell is under the cursor."""
        self._show_word()

    # Going somewhere

    @property
    def _alert(self) -> Alert | None:
        """The alert under the cursor."""
        key = self._alert_list.key
        return next((alert for alert in self._alerts if alert_view.key(alert) == key), None)

    def action_back(self) -> None:
        """Back to now; else stop the first look at the place under the cursor."""
        if self._frozen is not None:
            self._thaw()
            return
        latest = self._here.inspector.latest
        if latest.complete or latest.halted:
            self.say("nothing goes on here that could be stopped; q leaves")
        else:
            self._here.inspector.halt()

    def action_open(self) -> None:
        """The alert, the queue, or the tasks of the cell under the cursor."""
        if self._pane == ALERTS:
            self._open_alert()
        elif self._pane == AGES:
            self._open_cell()
        else:
            self.go(Target(keys.LIST, place=self._here.number))

    def _open_alert(self) -> None:
        alert = self._alert
        if alert is None:
            self.say("there is no alert any more")
            return
        number = next(n.number for n in self._lives if n.place.name == alert.leads_to.place)
        self.go(alert_view.target(alert.leads_to, number))

    def _open_cell(self) -> None:
        table = self._table
        if table is None or self._age_table.count is None:
            self.say("there is no cell to open")
            return
        state, _ = table
        words = self._age_table.filter
        self.go(Target(keys.LIST, place=self._here.number, state=state, filter=words))

    def action_pane(self, digit: str) -> None:
        """To the screen of that digit, of the queue under the cursor."""
        self.go(PANES[digit]._replace(place=self._here.number))

    def action_unlock(self) -> None:
        """Who has its lock, and a plan to free it."""
        if self._frozen is not None:
            self.say(f"what is shown is of {present.clock(self._frozen.at)}: p for now, then U")
            return
        live = self._here
        if refusal := live.place.no_unlock(self.around.arming.read_only):
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK, place=live.number))

    def action_controls(self) -> None:
        """What concerns the queue under the cursor as a whole."""
        self.go(Target(keys.CONTROLS, place=self._here.number))

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        self.say(self.around.arming.toggle())
        self.paint()

    def action_rows_by(self) -> None:
        """The age table of the next kind of rows that tells something."""
        self._turn_rows()

    @work(exclusive=True, group="rows by")
    async def _turn_rows(self) -> None:
        live, table = self._here, self._table
        if table is None or self._frozen is not None:
            return
        ways = [(state, by) for state in index_queries.TOLD_OF for by in BY]
        at = ways.index((table[0], table[1].by))
        for state, by in (*ways[at + 1 :], *ways[:at]):
            self._counted[live.number] = self._count_of(live)
            try:
                ages = await index_queries.ages(live, state, by)
            except Unavailable:
                return
            if any(row.name for row in ages.rows):
                self._tables[live.number] = (state, ages)
                self._chosen.add(live.number)
                self.paint()
                return
        self.say("there is nothing else to make rows of")

    def action_reread(self) -> None:
        """Look at everything again, where it is looked at."""
        if self._frozen is not None:
            self.say("the past is not looked at again: p for now")
            return
        self._reread()

    @work(exclusive=True, group="reread")
    async def _reread(self) -> None:
        await asyncio.gather(*(live.inspector.refresh() for live in self._lives))
        self._ask_anew(self._here.number)
        self.say("everything was looked at again")

    # Taking something along

    def copies(self) -> tuple[Copy, ...]:
        """The place under the cursor, its line, and the command that prints all of them."""
        import shlex

        live, now = self._here, self._shown_at
        queue = self._moment(live, view.CELLS).queue
        _, (line,) = view.table([queue], now, 100)
        alert, names = self._alert, [n.place.name for n in self._lives]
        return (
            Copy("i", "place", live.place.name),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            *((Copy("a", "alert", alert_view.told(alert, now)),) if alert is not None else ()),
            Copy(
                "c",
                "command",
                shlex.join(["spooldeck", "overview", *self._at_words, *names]),
            ),
        )

    def sheet(self) -> ExportTable | None:
        """A row for each queue."""
        from tui.format.export import ExportTable

        now, real = self._shown_at, self.around.clock()
        there = [self._moment(live, view.CELLS) for live in self._lives]
        values = [view.as_row(moment.queue, now) for moment in there]
        if self._frozen is not None:
            past = [snapshot.as_row(moment, now, real) for moment in there]
            values = [row | more for row, more in zip(values, past, strict=True)]

        async def hand(take: Take) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        return ExportTable("overview", tuple(values[0]), hand)
