"""A board that can be held still, and led back through what was recorded of its places."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from textual import work

from engine.monitor.recorded_history import RecordedHistory
from engine.monitor.recorder import DAY, Role, UnreadableRecording
from engine.monitor.sample_codec import RecordedSample
from engine.store import Unavailable
from tui.overview import snapshot
from tui.overview.paused_time import Frozen
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session.place_session import PlaceSession


class Freezing(ListScreen):
    """While it is frozen, what it says of its places is of one moment, and of nothing else."""

    def __init__(self, lives: Sequence[PlaceSession], around: ConsoleContext) -> None:
        super().__init__(lives[0], around)
        self._lives = lives
        self._frozen: Frozen | None = None
        self._held: dict[int, PlaceSnapshot] = {}
        """The last live frame before the freeze, by the number of the place."""
        self._told: set[str] = set()

    def _hold_still(self) -> None:
        """It is about to freeze: leave what is of now only."""

    def _moment(self, live: PlaceSession, cells: int) -> PlaceSnapshot:
        """What is known of a place: now, on the frame that is held, or as it was recorded."""
        frozen = self._frozen
        if frozen is None:
            return snapshot.now_of(live, self.around.clock(), cells)
        tape = frozen.tapes[live.number]
        held = self._held.get(live.number)
        if held is not None and not self._is_past:
            return held._replace(found=tape.at(frozen.at))
        return snapshot.then_of(live.place, live.number, tape, frozen.at, cells)

    def _tell_of_recording(self) -> None:
        """Say once what became of a recording that was not ours."""
        for live in self._lives:
            words = live.recording.words if live.recording.role is Role.RECORDS else ""
            if words and words not in self._told:
                self._told.add(words)
                self.say(words)

    @property
    def _is_past(self) -> bool:
        """Whether a moment before the freeze is shown: then only what was recorded is known."""
        return self._frozen is not None and self._frozen.at < self._frozen.since

    @property
    def _shown_at(self) -> float:
        """The moment that is shown, epoch seconds UTC."""
        return self.around.clock() if self._frozen is None else self._frozen.at

    @property
    def _at_words(self) -> tuple[str, ...]:
        """What asks the command for the moment that is shown."""
        if self._frozen is None:
            return ()
        form = "%Y-%m-%dT%H:%M:%SZ"
        return ("--at", time.strftime(form, time.gmtime(self._frozen.at)))

    def action_freeze(self) -> None:
        """Hold the screen as it is now, to go back from there; again: let it go on."""
        if self._frozen is not None:
            self._thaw()
            return
        self._hold_still()
        tapes = {
            n.number: RecordedHistory((), n.place.name, n.sample()._replace(by=""))
            for n in self._lives
        }
        now = self.around.clock()
        self._frozen = Frozen(now, now, tapes)
        self.paint()
        self._read(self._frozen)

    def _thaw(self) -> None:
        self._frozen = None
        self.say("live again", "")
        self.paint()

    @work(exclusive=True, group="recorded")
    async def _read(self, frozen: Frozen) -> None:
        """Have all that was written down at hand, so that no step waits for a disk."""
        since, tapes, said = frozen.since, dict(frozen.tapes), []
        for live in self._lives:
            if live.recording.role is Role.IDLE and live.recording.words:
                said.append(live.recording.words)
            last = tapes[live.number].at(since)
            try:
                known = last if isinstance(last, RecordedSample) else None
                tapes[live.number] = await live.tape(since - DAY, since, known)
            except UnreadableRecording as error:
                said.append(str(error))
            except Unavailable:
                return
        if self._frozen is not None and self._frozen.since == since:
            self._frozen = self._frozen._replace(tapes=tapes, read=True)
            if said:
                self.say(said[0])
            self.paint()

    def action_earlier(self) -> None:
        """Back in recorded time."""
        self._go(-1)

    def action_later(self) -> None:
        """On in recorded time."""
        self._go(1)

    def _go(self, way: int) -> None:
        frozen = self._frozen
        if frozen is None:
            self.say("only while frozen: p freezes, then , and . go through recorded time")
        elif not frozen.read:
            self.say("what was recorded is still being read")
        elif (there := frozen.stepped(way, asyncio.get_running_loop().time())) is None:
            end = "then it was frozen; p is live" if way > 0 else "nothing was recorded before"
            self.say(end)
        else:
            self._frozen = there
            self._say_nothing()
            self.paint()
