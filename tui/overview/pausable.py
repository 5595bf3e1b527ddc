"""Base class of screens that can be frozen and moved back through recorded history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual import work

from engine.monitor.recorded_history import RecordedHistory, step_seconds, step_time
from engine.monitor.recorder import DAY_SECONDS, Role, UnreadableRecording
from engine.monitor.sample_codec import RecordedSample
from engine.store import Unavailable
from tui.overview import snapshot
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session.place_session import PlaceSession
from tui.session.recent_events import NO_EVENTS, EventMemory

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
    """True if all recordings are loaded."""
    memories: Mapping[int, EventMemory] = {}
    """Log events in memory at the freeze by number of the place."""
    run: int = 0
    """Consecutive steps in one direction with the key held; negative: back."""
    pressed: float = float("-inf")
    """Monotonic time of the last step."""

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


class FreezableScreen(ListScreen):
    """While frozen, all values on screen are those of one point in time."""

    def __init__(self, sessions: Sequence[PlaceSession], context: ConsoleContext) -> None:
        super().__init__(sessions[0], context)
        self._sessions = sessions
        self._frozen: FrozenTime | None = None
        self._live_snapshots = snapshot.LiveSnapshots()
        self._freeze_snapshots: dict[int, PlaceSnapshot] = {}
        """The last live snapshot before the freeze, by number of the place."""
        self._reported: set[str] = set()

    def _before_freeze(self) -> None:
        """Called before freezing: leave parts that exist only live."""

    def _snapshot_of(self, session: PlaceSession, cells: int) -> PlaceSnapshot:
        """A place now, as held since the freeze, or as recorded."""
        frozen = self._frozen
        if frozen is None:
            return self._live_snapshots.of(session, self.context.clock(), cells)
        history = frozen.histories[session.number]
        snapshot_of_freeze = self._freeze_snapshots.get(session.number)
        if snapshot_of_freeze is not None and not self._is_past:
            return snapshot_of_freeze._replace(recorded=history.at(frozen.at))
        memory = frozen.memories.get(session.number, NO_EVENTS)
        return snapshot.recorded_snapshot(
            session.place, session.number, history, at=frozen.at, cells=cells, memory=memory
        )

    def _report_recording(self) -> None:
        """Report once the result of a recording by another process."""
        for session in self._sessions:
            words = session.recording.message if session.recording.role is Role.RECORDS else ""
            if words and words not in self._reported:
                self._reported.add(words)
                self.say(words)

    @property
    def _is_past(self) -> bool:
        """True if a time before the freeze is shown, for which only recorded data exists."""
        return self._frozen is not None and self._frozen.at < self._frozen.since

    @property
    def _later(self) -> float:
        """Seconds from the time shown until the freeze; 0.0 if live or at the freeze."""
        return 0.0 if self._frozen is None else self._frozen.since - self._frozen.at

    @property
    def _shown_at(self) -> float:
        """The time shown, in epoch seconds UTC."""
        return self.context.clock() if self._frozen is None else self._frozen.at

    @property
    def _at_words(self) -> tuple[str, ...]:
        """Command-line option for the time shown."""
        if self._frozen is None:
            return ()
        form = "%Y-%m-%dT%H:%M:%SZ"
        return ("--at", time.strftime(form, time.gmtime(self._frozen.at)))

    def action_freeze(self) -> None:
        """Freeze the screen, or return to live."""
        if self._frozen is not None:
            self._go_live()
            return
        self._before_freeze()
        histories = {
            n.number: RecordedHistory((), n.place.name, n.sample()._replace(by=""))
            for n in self._sessions
        }
        now = self.context.clock()
        self._frozen = FrozenTime(now, now, histories)
        self.paint()
        self._load_recordings(self._frozen)

    def _go_live(self) -> None:
        self._frozen = None
        self.say("live", "")
        self.paint()

    @work(exclusive=True, group="recorded")
    async def _load_recordings(self, frozen: FrozenTime) -> None:
        """Load the recorded day into memory, so that stepping needs no disk access."""
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
            except Unavailable:
                return
        if self._frozen is not None and self._frozen.since == since:
            self._frozen = self._frozen._replace(
                histories=histories, is_loaded=True, memories=memories
            )
            if messages:
                self.say(messages[0])
            self.paint()

    def action_earlier(self) -> None:
        """Step back in recorded time."""
        self._step_time(-1)

    def action_later(self) -> None:
        """Step forward in recorded time."""
        self._step_time(1)

    def _step_time(self, direction: int) -> None:
        frozen = self._frozen
        if frozen is None:
            self.say("not frozen: p freezes, then , and . step")
        elif not frozen.is_loaded:
            self.say("still reading the recording")
        elif (moved := frozen.stepped(direction, asyncio.get_running_loop().time())) is None:
            end = "end of the recording: p goes live" if direction > 0 else "start of the recording"
            self.say(end)
        else:
            self._frozen = moved
            self._clear_message()
            self.paint()
