"""How a worker finds its next task in a spool, and makes it its own by a rename."""

import os
from collections.abc import Callable, Iterator, Mapping

from engine import files, policy
from engine.files import Refused
from engine.model import Lease, State, Task
from engine.store import Wants
from engine.stores.nftban import form
from engine.stores.nftban.desk import Desk
from engine.stores.nftban.folder import Folder
from engine.stores.nftban.hint import NextDue
from engine.stores.nftban.line import Line

REVALIDATE = 60.0
"""Seconds for which a waiting file is believed to wait while its name and inode stay."""


class Claims:
    """Takes tasks from pending/ to work/, and remembers which of them wait, and until when."""

    def __init__(
        self,
        folders: Mapping[State, Folder],
        desk: Desk,
        hint: NextDue | None,
        clock: Callable[[], float],
    ) -> None:
        """`hint` is for a spool of our own, where modification times, too, say what is due."""
        self._folders, self._desk = folders, desk
        self._hint, self._clock = hint, clock
        self._waiting: dict[str, tuple[int, float]] = {}
        self._validated = 0.0
        self.due: float | None = None
        """When the next of those that wait comes due, as far as the last take saw."""

    def take(self, now: float, owner: str, limit: int, wants: Wants) -> Iterator[Task]:
        """Due tasks in the order of their file names, each claimed by a rename as it is asked for.

        Afterwards `due` says when the next of those that wait comes due.
        """
        pending = self._folders[State.PENDING]
        pending.check()
        self._folders[State.ACTIVE].check()
        self.due = self._hint.read(pending.fd, now) if self._hint is not None else None
        if self.due is not None:
            return
        seen = os.fstat(pending.fd)
        line = Line(self._candidates(pending, now))
        claimed = passed_over = 0
        while claimed < limit:
            candidate = line.next(wants)
            if candidate is None:
                break
            task = self._claim(*candidate, now, owner, wants)
            if task is not None:
                claimed += 1
                yield task
            elif candidate[0] not in self._waiting:
                passed_over += 1
        self.due = min((due for _, due in self._waiting.values()), default=None)
        nothing_is_due = not claimed + passed_over + len(line)
        if self._hint is not None and self.due is not None and nothing_is_due:
            self._hint.write(seen, self.due, now)

    def _candidates(self, pending: Folder, now: float) -> list[tuple[str, int]]:
        """Names and inodes of pending files that may be due, in the order of names."""
        if now - self._validated >= REVALIDATE:
            self._waiting, self._validated = {}, now
        with os.scandir(pending.fd) as entries:
            listed = sorted(
                (entry.name, entry.inode()) for entry in entries if entry.name.endswith(form.SUFFIX)
            )
        known, waiting = self._waiting, {}
        # One id in two places is left: moving it would destroy the other.
        in_hand = set(os.listdir(self._folders[State.ACTIVE].fd))
        candidates = []
        for candidate in listed:
            name, inode = candidate
            before = known.get(name)
            if before is not None and before[0] == inode and before[1] > now:
                waiting[name] = before
            elif self._hint is not None and (hint := _hinted(name, pending.fd, now)):
                waiting[name] = inode, hint
            elif name not in in_hand:
                candidates.append(candidate)
        self._waiting = waiting
        return candidates

    def _claim(self, name: str, inode: int, now: float, owner: str, wants: Wants) -> Task | None:
        pending, work = self._folders[State.PENDING], self._folders[State.ACTIVE]
        try:
            ident = form.id_of(name)
            if ident is None:
                return None
            fd = files.open_guarded(name, pending.fd)
            try:
                data, seen = files.read_guarded(fd)
            finally:
                os.close(fd)
            record = form.parse(data, ident)
            if record.due > now:
                due = form.trusted_due(record, seen, self._clock())
                if due > now:
                    self._waiting[name] = inode, due
                    return None
            if not wants(record.kind, ""):
                return None
            files.rename(name, name, src_dir_fd=pending.fd, dst_dir_fd=work.fd)
            there = os.stat(name, dir_fd=work.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None  # somebody else was faster
        except Refused:
            return None  # look() says what is wrong with it
        if not files.same_file(seen, there):
            # Rewritten between reading and claiming: it may not be due any more.
            self._desk.give_back(ident)
            return None
        return form.as_task(record, State.ACTIVE, there, Lease(owner, now), self._clock())


def _hinted(name: str, pending: int, now: float) -> float:
    """When a file is due by its modification time, if that is after now; else 0.

    A wrong time costs at most a read, or REVALIDATE seconds more of waiting.
    """
    try:
        hint = os.stat(name, dir_fd=pending, follow_symlinks=False)
    except FileNotFoundError:
        return 0.0
    due = hint.st_mtime
    # A time not ahead of ctime was not set by us, however the clock has jumped since.
    return due if due > hint.st_ctime and now < due <= now + policy.FURTHEST else 0.0
