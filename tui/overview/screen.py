"""The overview screen: alerts, one line per place, ages, forecast, tokens, transports, warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from textual.app import ComposeResult

from engine.index.filter_language import format_term
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.overview import alert_lines as alert_view
from tui.overview import place_lines as view
from tui.overview import side_panes, snapshot
from tui.overview.actions import OverviewActions
from tui.overview.division import MAX_GRAPHS, PaneNeeds, divide_screen
from tui.overview.panes import (
    AGES,
    ALERTS,
    GRAPH,
    KINDS,
    LOG,
    OUTLOOK,
    QUEUES,
    GraphTime,
    LogPaneValues,
    age_sentence,
    age_title,
    ages_right,
    inner_width,
)
from tui.overview.past_values import NOTHING_RUN, past_values, with_unknown_places
from tui.overview.reads import OverviewReads, PlaceReads
from tui.overview.side_panes import LiveValues, OverviewData, live_values
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.base import key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ROW_HAS_LEFT
from tui.screens.target import Target
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession, lease_workers
from tui.text import keys
from tui.text.figures import format_count
from tui.text.hints import hint_lines, next_line
from tui.text.lines import Line, cells_of
from tui.text.progress_bar import first_scan_line
from tui.text.table import Choice
from tui.text.times import format_clock
from tui.widgets.line_widgets import Frame, Lines

UNCHANGED_PAINT_SECONDS = 5.0
"""Seconds between two paints of the panes while nothing changes but the time: then only graphs
move, by less than a cell."""

SHOW_AGE_SECONDS = 1.0
"""Seconds after which a table that is older than the rows above shows its age."""

LIVE_ONLY_ACTIONS = frozenset({"unlock", "rows_by", "reread", "worker"})
"""Actions that need live data; disabled while frozen."""


class SteadyOverview(OverviewActions):
    """Paints the panes only if they may have changed: with many places that takes most of the time
    of a console that is idle."""

    _top: TopLine

    def __init__(self, sessions: Sequence[PlaceSession], context: ConsoleContext) -> None:
        super().__init__(sessions, context)
        self._painted_values: object = None
        self._paint_due = 0.0
        """When the panes are painted even if nothing has changed, by the event loop's clock."""

    def _tick(self) -> None:
        if not (self.is_current and self._composed and self.is_paintable):
            return
        if self.context.skips_repaint():
            return
        now, values = asyncio.get_running_loop().time(), self._steady_values()
        if values is None or values != self._painted_values or now >= self._paint_due:
            self._painted_values, self._paint_due = values, now + UNCHANGED_PAINT_SECONDS
            self.paint()
        else:
            self._paint_ends()

    def _steady_values(self) -> object:
        """All that the panes are painted from, with those ages that may change each second as they
        are shown; None if other ages are shown, or a past time."""
        sessions, now, table = self._sessions, self._shown_at, self._table
        if self._frozen is not None or self._frame.is_wall or any(map(has_workers, sessions)):
            return None
        if (
            table is not None
            and table.generation != self._selected_place.inspector.latest.generation
        ):
            return None  # the table of ages shows its own age
        moments = [self._snapshot_of(session, 2 * view.SPARKLINE_CELLS) for session in sessions]
        return (
            self._pane,
            self._selected_place,
            moments,
            [self._reads.of(session) for session in sessions],
            [(n.inspector.latest, n.readings.log, n.history.operations) for n in sessions],
            [view.oldest_cell(moment.queue, now) for moment in moments],
            [alert_view.alert_text(alert, now) for moment in moments for alert in moment.alerts],
        )

    def _paint_ends(self) -> None:
        """Paint the lines above and below the panes."""
        context = self.context
        if (frozen := self._frozen) is not None:
            chip: Line = ((f" FROZEN {format_clock(frozen.at)} ", "chip-accent"),)
            totals = snapshot.totals(self._snapshots)
            context = context._replace(totals=lambda: totals, operations=lambda: chip)
        self._top.update_line(context, self.trail())
        self._show_message_line()
        self.show_hints()


class OverviewScreen(SteadyOverview):
    """The first screen of the console."""

    KIND = keys.OVERVIEW
    BINDINGS = key_bindings(keys.OVERVIEW)

    def __init__(self, sessions: Sequence[PlaceSession], context: ConsoleContext) -> None:
        super().__init__(sessions, context)
        self._live_values = LiveValues()
        self._drawn_rows: dict[int, view.DrawnRow] = {}
        self._drawn_alerts: tuple[object, list[Choice], Mapping[str, Target]] = (None, [], {})
        """The lines of the alerts and where Enter leads, after all that they were made from."""

    def compose(self) -> ComposeResult:
        """Header, panes, next step and hints."""
        self._top = TopLine(id="top-line")
        yield self._top
        yield from self._pane_set.compose()
        yield Lines(id="word")
        yield Lines(id="hints")

    def begin(self) -> None:
        """Focus the first alert, else the queues, and start the background reads."""
        self._activate(QUEUES)
        self._chosen_pane = False
        self.run_worker(self._read_in_turn(), name="ages")
        for session in self._sessions:
            self.run_worker(self._follow_first_scan(session), name=f"first look {session.number}")

    async def _follow_first_scan(self, session: PlaceSession) -> None:
        """Repaint during the first scan of a place."""
        change = session.inspector.latest
        while not change.is_complete:
            try:
                change = await session.inspector.wait_for_change(change.generation)
            except Unavailable:
                return  # closed: the console is being left
            self._reads.read_due.set()
            self.paint()

    async def _read_in_turn(self) -> None:
        """Read the place under the cursor, those with an alert of dead tasks, which has their
        clusters, and on a wall all places, when a read is due.
        """
        while True:
            selected, is_wall = self._selected_place, self._frame.is_wall
            others = [n for n in self._sessions if is_wall or alert_view.has_dead_alert(n.alerts)]
            for session in (selected, *others):
                is_shown = self.is_current and self._frame.ages and self._frozen is None
                if is_shown and self._reads.is_due(session):
                    is_shown_wide = self._frame.is_wide and (is_wall or session is selected)
                    graph = self._graph_pane if is_shown_wide else None
                    await self._reads.read(session, graph, lambda: self._frozen is None)
                    self._tick()
            await self._reads.wait()

    # Painting

    def trail(self) -> tuple[str, ...]:
        """No trail on the outermost screen."""
        return ()

    def paint(self) -> None:
        """Divide the screen into its parts and paint them."""
        if not self._composed or not self.is_paintable or not self.size.width:
            return
        before = self._selected_place
        self.lay_out(self.size.width)
        if self._selected_place is not before:
            self._place_changed_at = self.context.clock()
        self._paint_ends()

    def on_resize(self) -> None:
        """Lay out for the current size."""
        self._pane_set.needed.clear()
        super().on_resize()

    def _divide(self, needs: PaneNeeds) -> None:
        frame, before = divide_screen(*self.size, needs), self._frame
        if frame == before:
            return
        if (frame.is_wide, frame.is_wall) != (before.is_wide, before.is_wall):
            self._reads.request()  # the panes at the right have no data yet
        self._pane_set.divide(frame, self)

    def lay_out(self, width: int) -> None:
        """Paint all panes."""
        now, cells, frozen = self._shown_at, 2 * view.SPARKLINE_CELLS, self._frozen
        self._snapshots = tuple(self._snapshot_of(session, cells) for session in self._sessions)
        if self._frozen is None:
            self._live_values = live_values(self._sessions, self._snapshots, now)
        self._alerts = alert_view.sort_alerts(
            [alert for m in self._snapshots for alert in m.alerts]
        )
        frame = divide_screen(*self.size, PaneNeeds())
        left_width = inner_width(frame)
        boxed = frame.left_width - left_width
        clusters = {
            session.number: read.clusters
            for session in self._sessions
            if (read := self._reads.of(session)) is not None
        }
        past = None
        if frozen is not None and self._is_past:
            past = past_values(self._sessions, frozen, self._live_values)
        shown_values = self._live_values if past is None else past.live_values
        data = OverviewData(
            self._sessions,
            self._selected_place,
            self._snapshots,
            live_values=shown_values,
            clusters=clusters,
            now=now,
            is_wall=frame.is_wall,
        )
        sides = side_panes.side_rows(
            data, width - frame.left_width - frame.middle_width - boxed, self._later
        )
        kinds_frame, kinds = side_panes.kind_pane(data, left_width)
        if past is not None:
            shown_names = {
                session.name
                for session in (self._sessions if frame.is_wall else [self._selected_place])
            }
            late = {name: later for name, later in past.late_kinds.items() if name in shown_names}
            kinds = with_unknown_places(kinds, late, NOTHING_RUN, left_width)
        selected = self._snapshots[self._selected_place.number - 1]
        outlook = snapshot.outlook_lines(selected, left_width, brief=not frame.is_wide)
        outlook = [] if frame.is_wall else outlook  # it has a pane for all places
        other = other_place(self._sessions, self._reads, data) if frame.is_wall else None
        needs = PaneNeeds(
            view.count_rows(moment.queue for moment in self._snapshots),
            len(self._alerts),
            age_rows(self._table),
            outlook=len(outlook),
            kinds=kinds.height - 1,  # below the titles
            other_ages=0 if other is None else age_rows(self._reads.of(other)),
            sides=self._pane_set.lines_needed(sides, is_wall=frame.is_wall),
            graphs=len(graph_places(self._sessions, self._selected_place)),
            filler="" if frame.is_wall else GRAPH,
        )
        self._divide(needs)
        frame = self._frame
        self._show_alerts(width - boxed)
        queues = [moment.queue for moment in self._snapshots]
        head, rows = view.place_table(queues, now, left_width, self._drawn_rows)
        choices, targets = list[Choice](), dict[str, Target]()
        for at, (queue, line) in enumerate(zip(queues, rows, strict=True)):
            choices.append(Choice(str(queue.number), line))
            targets[choices[-1].key] = Target(keys.LIST, place=queue.number)
            for name, part in view.part_lines(queues, at, now, left_width):
                choices.append(Choice(f"{queue.number}/{name}", part))
                only = format_term("kind", "=", name)
                targets[choices[-1].key] = Target(keys.LIST, place=queue.number, filter=only)
        self._queue_list.show_rows(choices, [head] if frame.inside(frame.queues) > 1 else [])
        self._pane_set.targets[QUEUES] = targets
        self._queue_list.show_frame(
            Frame("Queues", amount=f"{len(queues)}"), focused=self._pane == QUEUES
        )
        self._show_ages(left_width)
        if other is not None:
            read = None if self._is_past else self._reads.of(other)
            self._pane_set.show_other_ages(other, read, left_width)
        self._pane_set.show(OUTLOOK, Frame("Outlook"), outlook)
        room, amount = frame.inside(frame.kinds) - 1, kinds_frame.amount  # below the titles
        if amount and room < int(amount):
            kinds_frame = kinds_frame._replace(amount=f"{room} of {amount}")
        self._pane_set.show_rows(KINDS, kinds_frame, kinds, focused=self._pane == KINDS)
        place_names = [session.name for session in self._sessions]
        logs = list(zip(place_names, shown_values.logs, strict=True))
        events = [
            read.events
            for session in self._sessions
            if (read := self._reads.of(session)) is not None
        ]
        log_width = frame.left_width + frame.middle_width - boxed
        events = events if past is None else []  # counted up to now
        log = LogPaneValues(logs, events, now, None if past is None else past.late_logs)
        self._pane_set.show_log(log, log_width, focused=self._pane == LOG)
        self._pane_set.show_sides(data, sides, self._pane, counted=not self._is_past)
        if frame.is_wide:
            places = (
                graph_places(self._sessions, self._selected_place)
                if frame.is_wall
                else [self._selected_place]
            )
            # The present course, up to the time of the freeze, is also that of a frozen screen.
            histories = None if frozen is None or past is None else frozen.histories
            time = GraphTime(now, frozen is not None, histories)
            graph_width = width - frame.left_width - boxed
            self._pane_set.show_graphs(self._graph_pane, places, time, graph_width)
        if not self._can_focus(self._pane) and self._pane != QUEUES:
            self._activate(QUEUES)
            self.lay_out(width)  # titles and values of the place that is under the cursor now
            return
        self._report_recording()

    def _show_alerts(self, width: int) -> None:
        if not self._chosen_pane and self._alerts and self._frame.alerts:
            if self._pane != ALERTS:
                self._activate(ALERTS)  # until the operator chooses a pane
        elif not self._alerts and self._pane == ALERTS:
            self._activate(QUEUES)
        place_names = {session.place.name: session.name for session in self._sessions}
        startable = {
            session.place.name for session in self._sessions if self.can_start_worker(session)
        }
        made_from = self._alerts, place_names, width, startable
        if self._drawn_alerts[0] != made_from:
            lines = alert_view.alert_lines(self._alerts, place_names, width, startable=startable)
            named = [alert_view.alert_key(alert) for alert in self._alerts]
            choices = [Choice(key, line) for key, line in zip(named, lines, strict=True)]
            numbers = {session.place.name: session.number for session in self._sessions}
            leads = [
                alert_view.alert_target(a.target, numbers[a.target.place]) for a in self._alerts
            ]
            self._drawn_alerts = made_from, choices, dict(zip(named, leads, strict=True))
        _, choices, targets = self._drawn_alerts
        known = all(n.has_readings and n.inspector.latest.is_complete for n in self._sessions)
        none = alert_view.no_alerts_line(known)
        if self._frozen is not None and not all(
            moment.queue.complete for moment in self._snapshots
        ):
            none = ((" not recorded", "muted"),)
        self._alert_list.show_rows(choices, [] if choices else [none])
        self._pane_set.set_targets(ALERTS, targets)
        if choices and (self._pane != ALERTS or not self._chosen_pane):
            self._alert_list.select_key(choices[0].key)  # the most urgent one, as they come in
        room, amount = self._frame.inside(self._frame.alerts), len(choices)
        count = f"{room} of {amount}" if room < amount else f"{amount or ''}"
        self._alert_list.show_frame(Frame("Alerts", amount=count), focused=self._pane == ALERTS)
        if self._frozen is not None:
            frozen, selected = self._frozen, self._snapshots[self._selected_place.number - 1]
            now = self.context.clock()
            self._alert_list.set_frame(snapshot.freeze_notice(frozen.at, now, selected, width - 4))

    def _show_ages(self, width: int) -> None:
        session, read, part = self._selected_place, self._table, self._age_table
        focused = self._pane == AGES
        if self._is_past or (self._frozen is not None and read is None):
            part.show_frame(Frame(f"Ages: {session.name}"), focused=focused)
            part.show_ages(None, side_panes.unknown_then_line(side_panes.ONLY_COUNTS, self._later))
            return
        unavailable = self._snapshots[session.number - 1].queue.unavailable
        if read is None or unavailable:
            part.show_frame(Frame(f"Ages: {session.name}"), focused=focused)
            why = "cannot be read" if unavailable else "counting ..."
            part.show_ages(None, ((f"   {why}", "muted"),))
            return
        age = self.context.clock() - read.when
        is_old = self._frozen is None and read.generation != session.inspector.latest.generation
        right = ages_right(age if is_old and age >= SHOW_AGE_SECONDS else None)
        part.show_frame(Frame(age_title(session, read), right=right), focused=focused)
        part.show_ages(read.ages, age_sentence(read, width))

    def default_message(self) -> Line:
        """The next step for the item under the cursor, and what a key acts on."""
        is_live = self._frozen is None
        if self._pane_set.has_left(self._pane):
            return ((f" {ROW_HAS_LEFT}", "warn"),)
        if is_live and self._pane == ALERTS and (alert := self._alert) is not None:
            can_start = self.can_start_worker(self._selected_place)
            key, _, does = alert_view.next_step(alert, can_start=can_start)
            return next_line(key, does, self._selected_place.name, self.size.width)
        if self._pane not in (ALERTS, QUEUES, AGES) and (target := self._target) is not None:
            does = side_panes.TARGET_STEPS[target.pane]
            return next_line("Enter", does, self._selected_place.name, self.size.width)
        if self._pane == AGES:
            table, count = self._age_table, self._age_table.count
            words = "" if count is None else f"{table.cell_text}: {format_count(count, 'task')}"
            return ((f" {safe_line(words)}", ""),)
        matching = (
            each for each in self._snapshots if each.queue.number == self._selected_place.number
        )
        moment = next(matching, None) or self._snapshot_of(
            self._selected_place, view.SPARKLINE_CELLS
        )
        can_start = self.can_start_worker(self._selected_place)
        facts = (moment, self._selected_place, self.context.clock(), self.size.width)
        return place_message(*facts, is_live=is_live, can_start=can_start)

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show the available keys."""
        words = {"arm": keys.arm_hint(self.context.arming.is_armed)}
        if self._frozen is not None:
            grey, words = {*grey, *LIVE_ONLY_ACTIONS}, {**words, "freeze": "live"}
        hints = keys.hints_of(self.KIND, grey, self.without(), words)
        lines = max(1, self._frame.hints)
        self.query_one("#hints", Lines).show(hint_lines(hints, self.size.width, lines))

    def without(self) -> Collection[str]:
        """Actions that are hidden now."""
        without = {"arm", "unlock", "worker"} if self.context.arming.read_only else set()
        without |= (
            {"unlock"} if all(session.place.has_leases for session in self._sessions) else set()
        )
        return (
            without
            if any(session.has_queue_figures for session in self._sessions)
            else {*without, "controls"}
        )


def has_workers(session: PlaceSession) -> bool:
    """True if a worker or a task of a place is shown with a running time."""
    lock = session.readings.lock
    return bool(session.active or lease_workers(session)) or (
        lock is not None and lock.pid is not None
    )


def age_rows(read: PlaceReads | None) -> int:
    """The rows of an age table; 0 if it has no task, or was not read."""
    if read is None or not read.ages.total.total:
        return 0
    return 1 + len(read.ages.rows) + bool(read.ages.others)


def other_place(
    sessions: Sequence[PlaceSession], reads: OverviewReads, data: OverviewData
) -> PlaceSession | None:
    """The place of a wall's second age table: another one with a table, with alerts first."""
    others = [
        session
        for session in sessions
        if session is not data.selected and age_rows(reads.of(session))
    ]
    return min(
        others, key=lambda session: not data.moments[session.number - 1].alerts, default=None
    )


def graph_places(sessions: Sequence[PlaceSession], selected: PlaceSession) -> list[PlaceSession]:
    """The places with a graph on a wall: the readable ones; that under the cursor first if they
    are too many.
    """
    places = [session for session in sessions if not session.inspector.latest.unavailable]
    if len(places) > MAX_GRAPHS:
        places.sort(key=lambda session: session is not selected)
    return places or [selected]


def place_message(
    moment: PlaceSnapshot,
    session: PlaceSession,
    now: float,
    width: int,
    *,
    is_live: bool,
    can_start: bool,
) -> Line:
    """The next step for a place: the first scan, the key of its worst alert, or Enter."""
    latest, states = session.inspector.latest, session.inspector.states
    far = first_scan_line(latest, states, now - session.opened_at, width)
    if far and is_live:
        return far
    if moment.alerts and is_live:
        worst = alert_view.sort_alerts(moment.alerts)[0]
        key, _, does = alert_view.next_step(worst, can_start=can_start)
        if key != "Enter":  # here, Enter opens the queue
            return next_line(key, does, session.name, width)
    queue, lock = moment.queue, moment.lock
    words = safe_line(view.describe_place(queue))
    notes = [words]
    if not queue.unavailable and moment.worker is not None:
        notes = [f"{words}; worker PID {moment.worker}, started here"]
    elif not queue.unavailable and lock is not None:
        words += f"; lock {'' if is_live else 'was '}{lock.verdict}"
        notes = [f"{words}: {safe_line(lock.reason)}", words]
    room = width - cells_of(f" next  Enter  acts on {session.name} ")
    texts = [*(f"opens the queue ({note})" for note in notes), "opens the queue"]
    does = next((text for text in texts if cells_of(text) <= room), texts[-1])
    return next_line("Enter", does, session.name, width)
