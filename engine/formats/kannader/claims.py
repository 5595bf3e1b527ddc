"""Claim due mails: choose the next link in queue/ and rename it to inflight/."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator

from engine import policy
from engine.formats.kannader.mail_format import SCHEDULE
from engine.formats.kannader.moves import MailMover
from engine.formats.kannader.spool import KannaderSpool, MailEntry, SpoolLink
from engine.model import State, Task
from engine.store import ClaimFilter, Unavailable
from engine.system.files import Refused
from engine.text.error_text import error_text

MAX_CONSECUTIVE_ERRORS = 10
"""Consecutive mails that cannot be read before `take` gives up: then the system is at fault."""


def _rotated_after(names: list[str], last: str) -> list[str]:
    """Sort order that starts after `last` and wraps around."""
    at = bisect_right(names, last)
    return [*names[at:], *names[:at]]


class MailClaims:
    """Claims mails for a worker, and caches the due times of mails that wait."""

    def __init__(self, spool: KannaderSpool, mover: MailMover) -> None:
        self._spool, self._mover = spool, mover
        self._waiting: dict[str, tuple[str, float]] = {}
        self.due: float | None = None
        """When the next waiting mail is due, as of the last take; None if none waits."""
        self._last = ""
        """The id claimed last."""

    def take(self, now: float, owner: str, limit: int, wants: ClaimFilter) -> Iterator[Task]:
        """Claim due mails in the order of their ids, each when the caller asks for it.

        The next take continues after the last id and wraps around. Ids do not show the order of
        arrival, so a fixed start would let mails with late ids starve while new mail keeps
        arriving.

        Raises:
            Unavailable: the folders cannot be read, or no mail could be claimed and at least one
                not read.
        """
        self._spool.check()
        queue = self._spool.states[State.PENDING]
        known, self._waiting = self._waiting, {}
        claimed = failures = 0
        failure: Unavailable | None = None
        # Of two links to one recipient only the first is sent, and none that is in flight.
        met = {link.target for link in self._spool.iter_links((State.ACTIVE, State.DONE))}
        for name in _rotated_after(sorted(queue.iter_names()), self._last):
            if claimed >= limit:
                break
            try:
                link = self._spool.find_link(name, State.PENDING)
                if link.target in met:
                    continue
                met.add(link.target)
                due_mail = self._read_if_due(link, known, now)
                if due_mail is None or not wants(due_mail[1].kind, due_mail[1].group):
                    continue
                task = self._mover.claim(*due_mail, now, owner)
            except (FileNotFoundError, PermissionError, Refused):
                continue  # moved, or a problem that scan() reports
            except OSError as error:
                # One unreadable block must not stop the queue; running out of descriptors must.
                failures += 1
                failure = Unavailable(f"{queue.path}/{name}: {error_text(error)}")
                if failures >= MAX_CONSECUTIVE_ERRORS:
                    raise failure from error
                continue
            if task is not None:
                claimed, self._last = claimed + 1, name
                yield task
        if failure is not None and not claimed:
            raise failure
        self.due = min((due for _, due in self._waiting.values()), default=None)

    def _read_if_due(
        self, link: SpoolLink, known: dict[str, tuple[str, float]], now: float
    ) -> tuple[MailEntry, Task] | None:
        """Read a mail if it is due; None if it waits."""
        mark = self._schedule_version(link)  # before reading: a later change shows in the next take
        before = known.get(link.id)
        if before is not None and before[1] > now and before[0] == mark:
            self._waiting[link.id] = before
            return None
        mail = self._spool.read_mail(link)
        task = self._spool.build_task(mail)
        if policy.is_due(task, now):
            return mail, task
        self._waiting[link.id] = mark, task.due or 0.0
        return None

    def _schedule_version(self, link: SpoolLink) -> str:
        """A string that changes when the schedule file is replaced; opens nothing."""
        path = f"{link.target.path}/{SCHEDULE}"
        try:
            file_stat = os.stat(path, dir_fd=self._spool.data.fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        return f"{file_stat.st_ino:x}.{file_stat.st_mtime_ns:x}"
