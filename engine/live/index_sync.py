"""Keeps an index like its store: looks at everything, then wherever something happens.

One thread, with two instances of the store: one for whole looks, one for looks at single names in
between, so that what happens during a long look is seen at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from itertools import islice
from queue import Empty, SimpleQueue
from typing import NamedTuple

from engine.index.schema import CHUNK
from engine.index.writer import Sighting, Writer
from engine.live.folder_watch import FolderWatch
from engine.model import Edges, Missing, Problem, State, Task
from engine.store import Control, Store, Unavailable
from engine.system.temp_dir import Scratch

FIRST_ROWS = 100
"""Rows a transaction at the beginning of a whole look, so that the first are seen at once."""
PEEK = 600
"""Rows at the beginning of a whole look that are shown at once, so few at a time."""
SLOW = 0.05
"""Seconds after which rows are shown although they are few."""
RETRY = 1.0
"""Seconds until an unavailable store is tried again."""
PATIENCE = 1.0
"""Seconds that the doorbell may take until it listens."""
TROUBLED = 200
"""Problems that are looked at again each second."""
AWAY = 0.25
"""Seconds that a task must be gone to count as left: until then it may be between two places."""
SPARING = 100
"""A whole look that nothing asked for comes no sooner than after so many times its own cost."""
EAGER = 4
"""One that the doorbell asked for, no sooner than after so many times its own cost."""
AGAIN = 5.0
"""Seconds after which what is on the screen is looked at again: what is rewritten in place rings no
bell, and what may be done can change with time alone."""
SELDOM = 400
"""No sooner than after so many times what that cost."""
NAMES = 20_000
"""Names touched and not yet looked at from which on a whole look is cheaper."""


class IndexChanged(NamedTuple):
    """What a store holds, as its index has it now."""

    generation: int = 0
    """Grows with each difference that anybody could see."""
    counts: Mapping[State, int] = {}
    problems: int = 0
    complete: bool = False
    """Whether a whole look has ended at least once."""
    unavailable: str = ""
    """Why the store cannot be reached now; "" when it can."""
    came: int = 0
    """How many tasks entered the store since the first whole look ended."""
    left: int = 0
    """How many left it since then."""
    expected: int = 0
    """How many tasks the first whole look will find, about; 0 while that is not known."""
    halted: bool = False
    """Whether the operator stopped the first whole look: what is shown is a part."""
    words: Mapping[str, int] = {}
    """Tasks by those of the store's words that are finer than a state."""


class IndexSync:
    """Follows one store on a thread of its own; what it found is in its attributes."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        place: str | None,
        tell: Callable[[], None],
    ) -> None:
        """`tell` is called on the mirror's thread when `latest` or `crash` is new."""
        self._open_store = open_store
        self._place = place
        self._tell = tell
        self.latest = IndexChanged()
        self.states: Mapping[State, str] = {}
        self.words: Mapping[str, State] = {}
        self.edges: Edges = {}
        self.controls: Mapping[str, Control] = {}
        self.path = ""
        """The index's file, once it can be read; "" while there is none."""
        self.crash: BaseException | None = None
        """The bug that ended the thread."""
        self.ended = False
        self._news: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stopping = self._halted = False
        self._scratch: Scratch | None = None
        self._index: Writer | None = None
        self._arranged = False
        self._dirty = False
        self._names: set[str] = set()
        self._meanwhile: set[str] | None = None
        self._whole_wanted = True
        self._whole_earliest = 0.0
        self._whole_latest = 0.0
        self._whole_waiters: list[Callable[[], None]] = []
        self._trouble_due = 0.0
        self._shown: tuple[str, ...] = ()
        self._again_due = 0.0
        self._away: dict[str, float] = {}

    # ---- from any thread

    def start(self) -> None:
        """Begin; returns at once."""
        threading.Thread(target=self._run, name="spooldeck-mirror", daemon=True).start()

    def stop(self) -> None:
        """Make an end soon; `ended` says when. Does not wait."""
        self._stopping = True
        index = self._index
        if index is not None:
            index.interrupt()
        self._news.put(lambda: None)

    def touch(self, names: Iterable[str]) -> None:
        """Look at these names."""
        touched = set(names)
        self._news.put(lambda: self._names.update(touched))

    def show(self, names: Iterable[str]) -> None:
        """Say what is on the screen; no more names of it are needed than a screen has rows."""
        self._shown = tuple(names)

    def everything(self) -> None:
        """Look at everything, as soon as that is no burden."""
        self._news.put(self._want_whole)

    def refresh(self, done: Callable[[], None]) -> None:
        """Look at everything now; `done` is called when that has ended, well or not."""

        def ask() -> None:
            self._want_whole()
            self._halted = False
            self._whole_earliest = 0.0
            self._whole_waiters.append(done)

        self._news.put(ask)

    def halt(self) -> None:
        """End the first whole look where it is; `refresh` begins it again. Does not wait."""

        def end() -> None:
            self._halted = not self.latest.complete

        self._news.put(end)  # heard by the look itself, between two parts of it

    def remove_scratch(self) -> None:
        """Remove the index's folder, even from under a thread that hangs."""
        if self._scratch is not None:
            self._scratch.remove()

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._live()
                except Unavailable as error:
                    self._lose(str(error))
                except OSError as error:
                    self._lose(f"{error.filename or 'the store'}: {error.strerror}")
                except sqlite3.Error as error:
                    assert self._scratch is not None  # only what lies there raises that
                    self._lose(f"the index in {self._scratch.path}: {error}")
                    self._drop_index()
                self._hear(RETRY)
        except Exception as error:
            # A bug: it is raised where somebody waits for what changes.
            self.crash = error
        finally:
            self._answer_waiters(self._whole_waiters)
            self._drop_index()
            self.ended = True
            self._tell()

    def _live(self) -> None:
        """Follow the store for as long as it is available."""
        with ExitStack() as stack:
            index = self._index or self._make_index()
            wide = self._open_store()
            stack.callback(wide.close)
            near = self._open_store()
            stack.callback(near.close)
            self._know(wide)
            if self.words:
                index.count_words()
            watch = FolderWatch(near.doorbell, self._open_store, self.touch, self.everything)
            stack.callback(watch.stop)
            watch.start(PATIENCE)
            self._whole_wanted, self._whole_earliest = True, 0.0
            while not self._stopping:
                self._round(index, wide, near)
                self._hear(self._rest())

    def _round(self, index: Writer, wide: Store, near: Store) -> None:
        """Do what is due."""
        now = time.monotonic()
        self._serve(index, near)
        wanted = self._whole_wanted and now >= self._whole_earliest
        if (wanted or now >= self._whole_latest) and not self._halted:
            self._look(index, wide, near)
        if index.problems and now >= self._trouble_due:
            self._look_at_trouble(index, near)
            self._trouble_due = time.monotonic() + 1.0
        if self.latest.complete and now >= self._again_due:
            self._look_again(index, near)
        self._settle_away()
        self._publish()

    def _rest(self) -> float:
        """Seconds until something is due by itself."""
        due = [self._whole_latest] if not self._halted else [time.monotonic() + RETRY]
        if self._whole_wanted and not self._halted:
            due.append(self._whole_earliest)
        if self.latest.problems:
            due.append(self._trouble_due)
        if self.latest.complete:
            due.append(self._again_due)
        if self._away:
            due.append(next(iter(self._away.values())) + AWAY)
        return max(0.0, min(due) - time.monotonic())

    def _hear(self, seconds: float) -> None:
        """Take in all that was asked for, waiting so long for the first of it."""
        if self._stopping:
            return
        try:
            self._news.get(timeout=seconds)()
            while True:
                self._news.get_nowait()()
        except Empty:
            pass
        if len(self._names) > NAMES:
            self._names.clear()
            self._want_whole()

    def _want_whole(self) -> None:
        self._whole_wanted = True

    # ---- looking at names

    def _serve(self, index: Writer, near: Store) -> None:
        """Look wherever something happened since the last time."""
        self._hear(0.0)
        names, self._names = self._names, set()
        waiting = iter(names)
        while not self._stopping and (some := list(islice(waiting, CHUNK))):
            self._settle(index, near, some)
        self._publish()

    def _settle(self, index: Writer, near: Store, names: list[str]) -> None:
        seen = list(near.look(set(names)))
        self._know(near)
        if self._meanwhile is not None:
            self._meanwhile.update(i.id for i in seen if isinstance(i, (Task, Missing)))
        self._account(index.settle(names, seen))

    def _look_again(self, index: Writer, near: Store) -> None:
        """See whether what is on the screen, and what may be done, is as it was."""
        began, shown = time.thread_time(), self._shown
        # With no name at all a store still finds out what may be done.
        self._settle(index, near, list(shown))
        cost = time.thread_time() - began
        self._again_due = time.monotonic() + max(AGAIN, SELDOM * cost)

    def _look_at_trouble(self, index: Writer, near: Store) -> None:
        """See whether what was wrong still is: a rewrite in place changes no folder."""
        names = set(index.troubled(TROUBLED))
        seen = list(near.look(names))
        self._know(near)
        # That no task goes by a name does not say that nothing else does: a whole look will.
        names -= {item.id for item in seen if isinstance(item, Missing)}
        self._account(index.settle(names, seen))

    # ---- looking at everything

    def _look(self, index: Writer, wide: Store, near: Store) -> None:
        """Look at everything once."""
        began, cost = time.monotonic(), time.thread_time()
        self._whole_wanted = False
        self._tell_halted()
        waiters, self._whole_waiters = self._whole_waiters, []
        self._meanwhile = set()
        try:
            index.begin_look()
            whole = self._walk(index, wide, near)
            self._tell_halted()
            if not whole:
                return
            self._look_for_unseen(index, near)
            if self._stopping:
                return
            self._dirty |= index.end_look()
            self._reach()
            self._publish()
            self._arrange(index, near)
        finally:
            self._meanwhile = None
            self._answer_waiters(waiters)
        cost, ended = time.thread_time() - cost, time.monotonic()
        unwatched = wide.doorbell.unwatched
        self._whole_earliest = 0.0 if self._whole_waiters else ended + EAGER * cost
        self._whole_latest = max(began + unwatched, ended + SPARING * cost)

    def _walk(self, index: Writer, wide: Store, near: Store) -> bool:
        """Take in everything there is; whether it came to the end of it."""
        assert self._meanwhile is not None
        some: list[Task | Missing | Problem] = []
        rows, shown, whole = 0, time.monotonic(), False
        for item in wide.look():
            if self._stopping or self._halted:
                break
            if isinstance(item, Task) and item.id in self._meanwhile:
                # Seen since by a look at it alone; this may be older.
                self._names.add(item.id)
                continue
            some.append(item)
            rows += 1
            enough = FIRST_ROWS if rows <= PEEK else CHUNK
            if len(some) >= enough or time.monotonic() - shown > SLOW:
                self._expect(wide.expected)
                self._account(index.see(some))
                some = []
                self._serve(index, near)
                shown = time.monotonic()
        else:
            whole = True
        self._account(index.see(some))
        self._know(wide)
        self._serve(index, near)
        return whole

    def _expect(self, count: int) -> None:
        """Say how far the first whole look has to go."""
        if not self.latest.complete and count != self.latest.expected:
            self.latest = self.latest._replace(expected=count)
            self._dirty = True

    def _tell_halted(self) -> None:
        if self.latest.halted != self._halted:
            self.latest = self.latest._replace(halted=self._halted)
            self._dirty = True

    def _look_for_unseen(self, index: Writer, near: Store) -> None:
        """Make sure of what the look missed: it may have moved behind its back."""
        while not self._stopping and (names := index.unseen()):
            self._settle(index, near, names)
            index.keep(names)
            self._publish()

    def _arrange(self, index: Writer, near: Store) -> None:
        if self._arranged:
            return
        for _ in index.arrange():
            if self._stopping:
                return
            self._serve(index, near)
        self._arranged = True

    def _answer_waiters(self, waiters: list[Callable[[], None]]) -> None:
        for done in waiters:
            done()

    # ---- telling

    def _account(self, sighting: Sighting) -> None:
        """Count who came and who left; one that comes back at once has done neither."""
        self._dirty |= sighting.changed
        if not self.latest.complete:
            return
        came = sum(self._away.pop(ident, None) is None for ident in sighting.came)
        now = time.monotonic()
        self._away.update((ident, now) for ident in sighting.left)
        if came:
            self.latest = self.latest._replace(came=self.latest.came + came)

    def _settle_away(self) -> None:
        long_ago = time.monotonic() - AWAY
        gone = []
        for ident, since in self._away.items():
            if since > long_ago:
                break
            gone.append(ident)
        for ident in gone:
            del self._away[ident]
        if gone:
            self._dirty = True
            self.latest = self.latest._replace(left=self.latest.left + len(gone))

    def _know(self, store: Store) -> None:
        """What the store is and allows now: it finds that out when it looks."""
        if store.edges != self.edges or store.states != self.states:
            self.states, self.edges = dict(store.states), dict(store.edges)
            self.words = dict(store.words)
            self._dirty = True
        if store.controls != self.controls:
            self.controls = dict(store.controls)
            self._dirty = True

    def _reach(self) -> None:
        """Everything was seen: only now is what kept us from it known to be over."""
        if self.latest.unavailable or not self.latest.complete:
            self._halted = False
            self.latest = self.latest._replace(unavailable="", complete=True, halted=False)
            self._dirty = True

    def _publish(self) -> None:
        """Tell, if there is something to tell."""
        if not self._dirty or self._index is None:
            return
        self._dirty = False
        index, latest = self._index, self.latest
        counts = {s: index.count(s) for s in State if s in self.states or index.count(s)}
        self.latest = latest._replace(
            generation=latest.generation + 1,
            counts=counts,
            words={
                word: tasks
                for (state, word), tasks in (index.words() if self.words else {}).items()
                if self.words.get(word) is state
            },
            problems=index.problems,
        )
        self._tell()

    def _lose(self, why: str) -> None:
        """Say why the store cannot be reached, once; all of it is looked at when it is back."""
        self._halted = False
        if why != self.latest.unavailable and not self._stopping:
            generation = self.latest.generation + 1
            self.latest = self.latest._replace(generation=generation, unavailable=why, halted=False)
            self._tell()
        self._answer_waiters(self._whole_waiters)
        self._whole_waiters = []

    # ---- the index

    def _make_index(self) -> Writer:
        self._scratch = Scratch(self._place)
        path = os.path.join(self._scratch.path, "index")
        self._arranged = False
        self._index = Writer(path)
        self.path = path  # only now: whoever knows it may ask at once
        return self._index

    def _drop_index(self) -> None:
        """Throw the index away; the next one is filled from the beginning."""
        self.path = ""  # before it goes: whom it fails then knows why
        if self._index is not None:
            self._index.close()
        if self._scratch is not None:
            self._scratch.remove()
        self._index = self._scratch = None
