"""Screen of the workers of all places: who works on what, for how long, and what frees it; the plan
to start a worker, or to stop the one started here."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from functools import partial

from engine.model import State, Verdict
from engine.operations import controls
from engine.operations.journal import Intent
from engine.text.figure import Figure
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.confirm.action_screen import Action, Fact, Reason, show_action
from tui.operations import worker_lines as view
from tui.screens.base import PASTED, BaseScreen, Copy
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import WorkerRow, all_worker_rows, count_workers
from tui.text import keys
from tui.text.frames import Frame, more_below
from tui.text.hints import next_line
from tui.text.lines import Line, Run, folded_lines
from tui.text.table import Choice, ShownRows
from tui.widgets.background import run_in_background
from tui.widgets.line_widgets import Lines

CHECK_SECONDS = 1.0


def show_worker_plan(screen: BaseScreen, session: PlaceSession, context: ConsoleContext) -> None:
    """Open the plan to start a worker, or to stop the one started here; else say why not."""
    if context.arming.read_only:
        screen.say(READ_ONLY)
    elif why := session.place.why_no_start:
        screen.say(why)
    elif screen.is_pasted:
        screen.say(PASTED)
    else:
        action = WorkerAction(session)

        def follow() -> None:
            if action.starts:
                reporting = partial(_report_end, session)
                run_in_background(screen.app, reporting, name="worker", group="worker")

        show_action(screen, action, session, context, follow)


async def _report_end(session: PlaceSession) -> None:
    """Report the end of a worker that was started here."""
    worker = session.worker
    while worker.pid is not None:
        await asyncio.sleep(CHECK_SECONDS)
        if worker.has_ended and (words := await asyncio.to_thread(worker.describe_end)):
            session.messages.append(words)


class WorkerAction(Action):
    """The command to run, or the process to stop, as of opening."""

    kind = keys.WORKER
    digits_name = "PID"

    def __init__(self, session: PlaceSession) -> None:
        self._session = session
        self._stops = session.worker.pid
        """The worker to stop; None starts one."""
        self.starts = self._stops is None
        self._ends = self._pid_to_end()
        """The stuck holder that a started worker ends."""
        stops = self._stops
        self.hint = "start a worker" if stops is None else f"stop worker PID {stops}"
        ends = "" if self._ends is None else f", end PID {self._ends}"
        self.acts_on = safe_line(session.name)
        self.title = ((self.hint + ends, "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        return self.hint

    @property
    def expected_digits(self) -> str:
        return "" if self._ends is None else f"{self._ends}"

    def _pid_to_end(self) -> int | None:
        """The stuck lock holder that a started worker signals; None if there is none."""
        lock = self._session.readings.lock
        if self._stops is not None or lock is None or lock.verdict is not Verdict.STUCK:
            return None
        return None if lock.signal_refusal else lock.pid

    def facts(self) -> tuple[Fact, ...]:
        worker = Fact(self._session.worker.pid, "the worker changed")
        return worker, Fact(self._pid_to_end(), "the lock changed")

    def refusal(self) -> str:
        lock = self._session.readings.lock
        if self._stops is None and lock is not None and lock.verdict is Verdict.HELD:
            holder = "" if lock.pid is None else f" by PID {lock.pid}"
            return f"nothing to start: the lock is held{holder}"
        return ""

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        stopped = f"SIGTERM to PID {self._stops}: it finishes its claimed tasks and exits"
        words = self._start_words() if self._stops is None else [stopped]
        full = self._session.full_disk if self._stops is None else None
        warned = f"! {full.text}: a worker may end at its first write" if full else ""
        return [
            *(folded_lines(warned, width, "warn") if warned else ()),
            *(line for sentence in words for line in folded_lines(sentence, width)),
        ]

    def _start_words(self) -> list[str]:
        session, lock = self._session, self._session.readings.lock
        waiting = session.inspector.latest.counts.get(State.PENDING, 0)
        words = [
            f"runs: {safe_line(shlex.join(session.place.worker_command))}",
            f"runs {format_count(waiting, 'pending task')} and sends due mail until "
            "W stops it; quit asks whether to stop it",
        ]
        if lock is not None and lock.verdict is Verdict.STUCK:
            effect = f"the worker ends its holder, PID {lock.pid}"
            effect = f"not signalled: {lock.signal_refusal}" if lock.signal_refusal else effect
            words.append(f"the lock is stuck: {safe_line(effect)}")
        return words

    async def apply(self, reason: str) -> Run:
        session, worker = self._session, self._session.worker
        if self._stops is None:
            act, ends = worker.start, "" if self._ends is None else f"(ends PID {self._ends})"
            order = controls.Order(controls.START_WORKER_CONTROL, value=ends)
        else:
            act, order = (
                worker.stop,
                controls.Order(controls.STOP_WORKER_CONTROL, f"PID {self._stops}"),
            )
        intent = Intent(controls.CONTROL_VERB, session.place.who, reason)
        run = partial(controls.run_recorded_action, session.place.journal, intent, order)
        done = await asyncio.to_thread(run, act, session.clock)
        if done.trouble:
            return f"{done.answer}; not recorded: {safe_line(done.trouble)}", "warn"
        return done.answer, "ok"


class WorkersParts(RowsParts):
    """A row for each task in work, and for each place without a worker."""

    is_of_one_place = False

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: RowsActions,
        sessions: Sequence[PlaceSession],
    ) -> None:
        """`session` is the place that the cursor starts on, if no row needs a hand."""
        super().__init__(session, context, screen)
        self.sessions = sessions
        self._rows: dict[str, WorkerRow] = {}
        self._has_destinations = False
        """True once a task had one: the column stays."""

    @property
    def selected(self) -> tuple[WorkerRow, PlaceSession] | None:
        """The row under the cursor and its place; None if it has left."""
        row = self._rows.get(self.screen.cursor.key)
        return None if row is None else (row, self.sessions[row.number - 1])

    @property
    def selected_session(self) -> PlaceSession:
        """Its place, or the one that was open before."""
        return self.selected[1] if self.selected else self.session

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return ("workers",)

    def rows(self, width: int) -> ShownRows:
        """The worst first; the cursor follows it, or the first worker of a place without one."""
        rows = all_worker_rows(self.sessions, self.context.clock())
        key, before, self._rows = self.screen.cursor.key, self.selected, view.keyed_rows(rows)
        if before and key not in self._rows and before[0].pid is None and not before[0].owner:
            self.aim = self._first_of(before[0].number)  # its first worker has come
        if rows:
            self.lead(self._first_of(rows[0].number if rows[0].is_stuck else self.session.number))
        self._has_destinations |= any(row.destination for row in rows)
        head, lines = view.worker_table(rows, width, has_destinations=self._has_destinations)
        return ShownRows(head, [Choice(*row) for row in zip(self._rows, lines, strict=True)])

    def _first_of(self, number: int) -> str:
        """The key of the first row of a place; "" if it has none."""
        return next((key for key, row in self._rows.items() if row.number == number), "")

    def details(self, width: int) -> list[Line]:
        if (selected := self.selected) is None:
            return []
        return view.detail_lines(*selected, self.context.clock(), width)

    def kinds(self, width: int) -> tuple[Frame, list[Line]]:
        """The kinds of task with rate, failures and latency."""
        kinds = view.place_kinds(self.sessions, self.context.clock())
        frame = Frame("Kinds", amount=f"{len(kinds)}", right=(("last 10m", "muted"),))
        several = len({kind.place for kind in kinds}) > 1
        head, lines = view.kind_table(kinds, width, places=several, sources=True)
        return frame, [head, *lines] if lines else []

    def rows_frame(self) -> Frame:
        workers = count_workers(self._rows.values())
        tasks = sum(bool(row.task) for row in self._rows.values())
        running: Line = ((f"running {format_count(tasks, 'task')}", "muted"),)
        amount = "none" if workers == Figure(0) else workers.text()
        return Frame("Workers", "3", amount, running if tasks else ())

    def details_frame(self, below: int) -> Frame:
        if (selected := self.selected) is None:
            return Frame("no worker under the cursor")
        row, _ = selected
        who = f"PID {row.pid}" if row.pid is not None else row.owner
        return Frame(f"{who} on {row.name}" if who else row.name, right=more_below(below))

    def next_step(self, width: int) -> Line:
        if (selected := self.selected) is None:
            return next_line("", "move the cursor to a worker", "", width)
        row, session = selected
        acts_on = (row.owner or row.name) if row.pid is None else f"PID {row.pid}"
        step = view.next_step(row, session, read_only=self.context.arming.read_only)
        return next_line(*step, acts_on, width)

    def copies(self) -> tuple[Copy, ...]:
        if (selected := self.selected) is None:
            return ()
        row, _ = selected
        pid = (Copy("p", "PID", f"{row.pid}"),) if row.pid is not None else ()
        task = (Copy("i", "task", row.task),) if row.task else ()
        command = Copy("c", "command", view.print_command(self.sessions))
        return (*task, *pid, Copy("l", "place", row.place), command)


MIN_KIND_LINES = 24
"""Height of the screen in lines from which the table of kinds is shown."""

make = RowMaker[WorkersParts, Change](keys.WORKERS, Change.NOTHING)
own, key = make.own, make.key


def _why_no_task(parts: WorkersParts) -> str:
    starts = False
    if (selected := parts.selected) is not None:
        row, session = selected
        if row.task:
            return ""
        starts = row.pid is None and bool(session.place.worker_command)
        starts = starts and not is_read_only(parts) and session.full_disk is None
    return parts.no_row_reason("no task here" + (": W starts a worker" if starts else ""))


def _open_task(parts: WorkersParts) -> Change:
    assert parts.selected is not None  # else it is refused
    row, _ = parts.selected
    parts.screen.go(Target(keys.TASK, place=row.number, id=row.task))
    return Change.NOTHING


def _why_no_unlock(parts: WorkersParts) -> str:
    if (selected := parts.selected) is None:
        return parts.no_row_reason("no worker here")
    return selected[1].place.why_no_unlock(is_read_only(parts))


def _unlock(parts: WorkersParts) -> Change:
    assert parts.selected is not None  # else it is refused
    parts.screen.go(Target(keys.LOCK, place=parts.selected[1].number))
    return Change.NOTHING


def _why_no_place(parts: WorkersParts) -> str:
    return "" if parts.selected else parts.no_row_reason("no place here")


def _why_no_start(parts: WorkersParts) -> str:
    if (why := _why_no_place(parts)) or parts.selected is None:
        return why
    place = parts.selected[1].place
    return place.why_no_start if place.no_worker else ""


def _worker(parts: WorkersParts) -> Change:
    assert parts.selected is not None  # else it is refused
    _, session = parts.selected
    parts.screen.open(lambda screen: show_worker_plan(screen, session, parts.context))
    return Change.NOTHING


ROWS: tuple[KeyRow[WorkersParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    own(
        "open | enter | Enter | task | View | the task of this worker",
        _open_task,
        refusal=_why_no_task,
    ),
    KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
    KeyRow(key("reread"), WorkersParts.reread),
    *make.views(),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    KeyRow(
        key("unlock"),
        _unlock,
        _why_no_unlock,
        is_absent=lambda parts: (
            is_read_only(parts) or all(one.place.lock is None for one in parts.sessions)
        ),
    ),
    make.arm(Change.EDGES),
    KeyRow(key("worker"), _worker, _why_no_start, is_absent=is_read_only),
    *make.ends(),
)


class WorkersScreen(RowsScreen):
    """The workers, and below them the kinds of task."""

    KIND = keys.WORKERS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: WorkersParts

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
        super().__init__()
        self.kinds, self._kinds_frame = Lines(id="kinds", classes="pane"), Frame("Kinds")
        self.panes = ListPanes(page_keys_scroll=True, below_details=[self.kinds])
        self.parts = WorkersParts(session, context, self, sessions)

    def paint_panes(self) -> None:
        """Paint the kinds, too."""
        self._kinds_frame, lines = self.parts.kinds(self.panes.details_width(self.size))
        self.kinds.show(lines if self.size.height >= MIN_KIND_LINES else [])
        super().paint_panes()

    def paint_frames(self) -> None:
        super().paint_frames()
        frame = self._kinds_frame
        if (hidden := int(frame.amount or 0) + 1 - self.kinds.size.height) > 0:  # below their head
            frame = frame._replace(right=((f"{hidden:,} more", "muted"),))
        self.kinds.show_frame(frame)
