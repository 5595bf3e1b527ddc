"""Learn of changed jobs by polling: list all threads, and compare the jobs of changed ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from engine.formats.zmailer.mailq.queue_view import ThreadView, has_changed
from engine.formats.zmailer.mailq_store.source import ThreadSource
from engine.formats.zmailer.mailq_store.tasks import tasks_of

POLL_SECONDS = 1.0
"""Seconds between two polls."""
COST_FACTOR = 10
"""The pause after a poll is at least so many times as long as the poll."""


class ThreadPoller:
    """The changes of a scheduler's threads since the first call."""

    def __init__(
        self,
        source: ThreadSource,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._pause, self._clock = source, pause, clock
        self._threads: dict[tuple[str, str], ThreadView] | None = None
        self._jobs: dict[tuple[str, str], dict[str, str]] = {}
        """State and revision of each task, by thread."""
        self._next_poll = 0.0

    def wait(self, seconds: float) -> Collection[str]:
        """See `ChangeSource.wait`. The first call reads all jobs, to compare later.

        Raises:
            Unavailable: the server cannot be reached.
        """
        until = self._clock() + seconds
        while self._threads is not None and (now := self._clock()) < self._next_poll:
            if now >= until:
                return ()
            self._pause(min(until, self._next_poll) - now)
        began, old = self._clock(), self._threads
        new = {(thread.channel, thread.host): thread for thread in self._source.threads()}
        cost = self._clock() - began
        names = self._compare(old or {}, new)
        self._threads, ended = new, self._clock()
        if old is not None:  # the first call costs much more than the others
            cost = ended - began
        self._next_poll = ended + max(POLL_SECONDS, COST_FACTOR * cost)
        return () if old is None else names

    def _compare(
        self,
        old: Mapping[tuple[str, str], ThreadView],
        new: Mapping[tuple[str, str], ThreadView],
    ) -> set[str]:
        """The names of the tasks that differ, in threads that do."""
        changed = {
            key
            for key in (*old, *new)
            if key not in old or key not in new or has_changed(old[key], new[key])
        }
        names = set[str]()
        for key in changed:
            before, after = self._jobs.pop(key, {}), dict[str, str]()
            if key in new:
                thread_jobs = self._source.jobs(*key)
                after = {t.id: f"{t.state} {t.word} {t.rev}" for t in tasks_of(thread_jobs, 0.0)}
                self._jobs[key] = after
            names |= {ident for ident, _ in before.items() ^ after.items()}
        return names
