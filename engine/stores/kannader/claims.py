"""How a worker finds its next mail in the queue and makes it its own."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator

from engine import policy
from engine.model import State, Task
from engine.store import Unavailable, Wants
from engine.stores.kannader.mail_format import SCHEDULE
from engine.stores.kannader.moves import MailMover
from engine.stores.kannader.spool import KannaderSpool, Link, MailEntry
from engine.system.files import Refused

HOPELESS = 10
"""Mails that the system could not read, one after the other, before it is the system's fault."""


def _from(names: list[str], last: str) -> list[str]:
    """Names in their order, those behind the last one first."""
    at = bisect_right(names, last)
    return [*names[at:], *names[:at]]


class MailClaims:
    """Takes mails from queue/ to inflight/, and remembers which of them wait, and until when."""

    def __init__(self, spool: KannaderSpool, desk: MailMover) -> None:
        self._spool, self._desk = spool, desk
        self._waiting: dict[str, tuple[str, float]] = {}
        self.due: float | None = None
        """When the next of those that wait comes due, as far as the last take saw."""
        self._last = ""
        """The id that was claimed last."""

    def take(self, now: float, owner: str, limit: int, wants: Wants) -> Iterator[Task]:
        """Due mails in the order of their ids, each claimed as it is asked for; the next take goes
        on from there, and begins anew behind the last: ids say nothing about who came first, and
        where more comes than goes, those at the end would wait for ever.

        Raises:
            Unavailable: the folders cannot be read; or of all that may be due, nothing could.
        """
        self._spool.check()
        queue = self._spool.states[State.PENDING]
        known, self._waiting = self._waiting, {}
        claimed = failures = 0
        failure: Unavailable | None = None
        # Two links to one recipient: only the first is sent, and none that is in hand already.
        met = {link.target for link in self._spool.links((State.ACTIVE, State.DONE))}
        for name in _from(sorted(queue.names()), self._last):
            if claimed >= limit:
                break
            try:
                link = self._spool.link(name, State.PENDING)
                if link.target in met:
                    continue
                met.add(link.target)
                found = self._due(link, known, now)
                if found is None or not wants(found[1].kind, found[1].group):
                    continue
                task = self._desk.claim(*found, now, owner)
            except (FileNotFoundError, Refused):
                continue  # moved on, or a problem: look() names it
            except PermissionError:
                continue  # not ours to read; look() names it
            except OSError as error:
                # One unreadable block must not stop a queue; a system out of descriptors does.
                failures += 1
                failure = Unavailable(f"{queue.path}/{name}: {error.strerror}")
                if failures >= HOPELESS:
                    raise failure from error
                continue
            if task is not None:
                claimed, self._last = claimed + 1, name
                yield task
        if failure is not None and not claimed:
            raise failure
        self.due = min((due for _, due in self._waiting.values()), default=None)

    def _due(
        self, link: Link, known: dict[str, tuple[str, float]], now: float
    ) -> tuple[MailEntry, Task] | None:
        """A mail that is due; None for one that waits."""
        mark = self._mark(link)  # before it is read: a change in between is seen the next time
        before = known.get(link.id)
        if before is not None and before[1] > now and before[0] == mark:
            self._waiting[link.id] = before
            return None
        mail = self._spool.mail(link)
        task = self._spool.task(mail)
        if policy.is_due(task, now):
            return mail, task
        self._waiting[link.id] = mark, task.due or 0.0
        return None

    def _mark(self, link: Link) -> str:
        """Changes whenever a mail's schedule is replaced; nothing is opened."""
        path = f"{link.target.path}/{SCHEDULE}"
        try:
            seen = os.stat(path, dir_fd=self._spool.data.fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        return f"{seen.st_ino:x}.{seen.st_mtime_ns:x}"
