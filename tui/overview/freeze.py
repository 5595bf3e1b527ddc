"""The time that the overview shows: live, or frozen and moved through recorded history; what the
log in memory and the journal show of a time before the freeze."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from engine.logs.log_line import LogLine
from engine.monitor.latency import NO_RUNS
from engine.monitor.recorded_history import RecordedHistory, step_seconds, step_time
from engine.monitor.recorder import DAY_SECONDS, Role, UnreadableRecording
from engine.monitor.sample_codec import RecordedSample
from engine.monitor.throughput import HISTORY_SECONDS
from engine.places.recent_events import NO_EVENTS, EventMemory
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.overview import snapshot
from tui.overview.side_panes import (
    LOG_TOO_SHORT,
    LiveValues,
    PaneRows,
    latest_operations,
    unknown_then_line,
)
from tui.overview.snapshot import PlaceSnapshot
from tui.overview.time_line import TimeLine, read_time_line
from tui.session.place_session import PlaceSession
from tui.text.lines import Line, cut_line
from tui.text.times import format_clock

KEY_REPEAT_SECONDS = 0.4
"""Seconds between two key presses from which on the key does not count as held."""


class FrozenTime(NamedTuple):
    """The time shown while frozen."""

    since: float
    """Time of the freeze in epoch seconds UTC; nothing later is shown."""
    at: float
    """The time shown, in epoch seconds UTC."""
    histories: Mapping[int, RecordedHistory]
    """Recorded history by number of the place."""
    is_loaded: bool = False
    memories: Mapping[int, EventMemory] = {}
    """Log events in memory at the freeze by number of the place."""
    run: int = 0
    """Consecutive steps in one direction with the key held; negative: back."""
    pressed: float = float("-inf")
    """Monotonic time of the last step."""
    line: TimeLine = TimeLine()
    """What is recorded; empty until it is read."""

    def stepped(self, direction: int, pressed: float) -> FrozenTime | None:
        """One step back (-1) or forward (1); None at the end. A held key makes longer steps."""
        is_repeat = pressed - self.pressed < KEY_REPEAT_SECONDS and self.run * direction > 0
        run = self.run + direction if is_repeat else direction
        after = self._replace(run=run, pressed=pressed)
        histories = list(self.histories.values())
        at = step_time(histories, self.at, direction * step_seconds(abs(run)))
        if at is None and abs(run) > 1:
            at = step_time(
                histories, self.at, direction * step_seconds(1)
            )  # a shorter step reaches the very end
        if at is None or at > self.since:
            return None if self.at == self.since or direction < 0 else after._replace(at=self.since)
        return after._replace(at=at)


class Freeze:
    """While frozen, all values on screen are those of one point in time."""

    def __init__(self, sessions: Sequence[PlaceSession], clock: Callable[[], float]) -> None:
        """`clock` returns epoch seconds."""
        self._sessions, self._clock = sessions, clock
        self.time: FrozenTime | None = None
        """None if live."""
        self._live_snapshots = snapshot.LiveSnapshots()
        self._held: Mapping[int, PlaceSnapshot] = {}
        """The last live snapshot before the freeze, by number of the place."""

    @property
    def is_past(self) -> bool:
        """True if a time before the freeze is shown, for which only recorded data exists."""
        return self.later > 0

    @property
    def later(self) -> float:
        """Seconds from the time shown until the freeze; 0.0 if live or at the freeze."""
        return 0.0 if self.time is None else self.time.since - self.time.at

    @property
    def shown_at(self) -> float:
        """The time shown, in epoch seconds UTC."""
        return self._clock() if self.time is None else self.time.at

    @property
    def at_words(self) -> tuple[str, ...]:
        """Command-line option for the time shown."""
        if self.time is None:
            return ()
        return ("--at", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.time.at)))

    def snapshot_of(self, session: PlaceSession, cells: int) -> PlaceSnapshot:
        """A place now, as held since the freeze, or as recorded."""
        frozen = self.time
        if frozen is None:
            return self._live_snapshots.of(session, self._clock(), cells)
        history = frozen.histories[session.number]
        held = self._held.get(session.number)
        if held is not None and not self.is_past:
            return held._replace(recorded=history.at(frozen.at))
        return snapshot.recorded_snapshot(
            session.place,
            session.number,
            history,
            at=frozen.at,
            cells=cells,
            memory=frozen.memories.get(session.number, NO_EVENTS),
            parts=[part.name for part in held.queue.parts] if held else (),
        )

    def begin(self, snapshots: Iterable[PlaceSnapshot]) -> None:
        """Freeze at these snapshots, the last live ones."""
        self._held = {moment.queue.number: moment for moment in snapshots}
        histories = {
            n.number: RecordedHistory((), n.place.name, n.sample()._replace(by=""))
            for n in self._sessions
        }
        now = self._clock()
        self.time = FrozenTime(now, now, histories)

    async def load(self) -> Sequence[str]:
        """Load the recorded day into memory, so that stepping needs no disk access; returns what is
        missing, and why.

        Raises:
            Unavailable: a place was closed.
        """
        if (frozen := self.time) is None:
            return ()
        since, histories, messages = frozen.since, dict(frozen.histories), []
        memories: dict[int, EventMemory] = {}
        for session in self._sessions:
            if session.recording.role is Role.IDLE and session.recording.message:
                messages.append(session.recording.message)
            last = histories[session.number].at(since)
            try:
                memories[session.number] = await asyncio.to_thread(session.recent_events.copy)
                known = last if isinstance(last, RecordedSample) else None
                histories[session.number] = await session.recorded_history(
                    since - DAY_SECONDS, since, known
                )
            except UnreadableRecording as error:
                messages.append(str(error))
        if self.time is None or self.time.since != since:
            return ()  # live again
        self.time = self.time._replace(histories=histories, is_loaded=True, memories=memories)
        named = [(one.name, histories[one.number]) for one in self._sessions]
        line = await asyncio.to_thread(read_time_line, named)
        if self.time is not None and self.time.since == since:
            self.time = self.time._replace(line=line)
        return messages

    def step(self, direction: int, pressed: float) -> str:
        """Step back (-1) or forward (1) in recorded time by a key that was pressed at this
        monotonic time; returns why not, or ""."""
        if self.time is None:
            return "not frozen: p freezes, then , and . step"
        if not self.time.is_loaded:
            return "still reading the recording"
        if (moved := self.time.stepped(direction, pressed)) is None:
            back = "start of the recording"
            return "end of the recording: p goes live" if direction > 0 else back
        self.time = moved
        return ""

    def jump(self, direction: int) -> str:
        """Go to the last alert that began before the time shown (-1), or to the next one (1);
        returns what it says, or why there is none."""
        if self.time is None:
            return "not frozen: p freezes, then < and > go to alerts"
        if not self.time.line.times:
            return "still reading the recording"
        start = self.time.line.next_start(self.time.at, direction)
        if start is None or start.when > self.time.since:
            return "no later alert: p goes live" if direction > 0 else "no earlier alert recorded"
        self.time = self.time._replace(at=start.when, run=0)
        since = "already at" if start.is_first else "since"
        return f"{start.text}, {since} {format_clock(start.when)}"


NOTHING_LOGGED: Line = (("   none until then", "muted"),)
NOTHING_RUN: Line = ((f"   {NO_RUNS}", "muted"),)


class PastValues(NamedTuple):
    """Lines, kinds and operations of all places at a past time, in the order of the places."""

    live_values: LiveValues
    """The values of the freeze, with the known ones of then."""
    late_logs: Mapping[str, float]
    """Time of the first known line, epoch seconds UTC, by name of a place without one then."""
    late_kinds: Mapping[str, float]
    """Time of the first known figures, in the same way."""


def past_values(
    sessions: Sequence[PlaceSession], frozen: FrozenTime, frozen_values: LiveValues
) -> PastValues:
    """The values at `frozen.at`; `frozen_values` are those of the freeze."""
    memories = [frozen.memories.get(session.number, NO_EVENTS) for session in sessions]
    logs, kinds, late_logs, late_kinds = [], [], {}, {}
    for session, log, memory in zip(sessions, frozen_values.logs, memories, strict=True):
        lines, since = _lines_until(log, memory, frozen.at)
        logs.append(lines)
        if since > frozen.at:
            late_logs[session.name] = min(since, frozen.since)
        since = memory.since + HISTORY_SECONDS
        is_known = since <= frozen.at
        kinds.append(memory.latency.figures(frozen.at, frozen.at, memory.began) if is_known else ())
        if not is_known:
            late_kinds[session.name] = min(since, frozen.since)
    ran = latest_operations(sessions, frozen.at)
    known = frozen_values._replace(logs=tuple(logs), kinds=tuple(kinds), operations=ran)
    return PastValues(known, late_logs, late_kinds)


def _lines_until(
    log: Sequence[LogLine], memory: EventMemory, at: float
) -> tuple[Sequence[LogLine], float]:
    """The lines up to a time, and the time from which on lines are known: those of the log, or if
    they do not reach back so far, those of the task events."""
    first = next((line.when for line in log if line.when is not None), inf)
    if first <= at:
        return _until(log, at), first
    if memory.since <= at:
        return _until((event.line for event in memory.events), at), memory.since
    return (), min(first, memory.since)


def _until(lines: Iterable[LogLine], at: float) -> Sequence[LogLine]:
    """The lines up to a time; one without a time belongs to the line before it."""
    past_lines, when = [], -inf
    for line in lines:
        when = when if line.when is None else line.when
        if when <= at:
            past_lines.append(line)
    return past_lines


def with_unknown_places(
    pane_rows: PaneRows, late: Mapping[str, float], nothing: Line, width: int
) -> PaneRows:
    """Add a line for each place of which nothing is known; without rows and without any, show
    `nothing`."""
    several = len(late) > 1 or bool(pane_rows.rows)
    unknown = [
        cut_line(unknown_then_line(LOG_TOO_SHORT, known, f"{safe_line(name)}: " * several), width)
        for name, known in late.items()
    ]
    if pane_rows.rows:
        return pane_rows._replace(foot=[*pane_rows.foot, *unknown])
    return pane_rows._replace(head=unknown or [nothing])
