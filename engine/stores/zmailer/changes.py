"""Change recipient lines in place: compare and overwrite tag and PID slot under the fcntl lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from os import stat_result

from engine.model import STALLED_KEY, Move, Outcome, State, Task
from engine.store import Gone, StoreError, Unavailable, Unsupported
from engine.stores.zmailer import marks, names
from engine.stores.zmailer.control_file import parse_control_file
from engine.stores.zmailer.folders import OpenControl, PostofficeFolders, read_whole
from engine.stores.zmailer.kept import KeptLinks
from engine.stores.zmailer.reading import MessageReader
from engine.stores.zmailer.tasks import FINISHED, revision, task_state
from engine.system import files
from engine.system.files import Refused


class LineChanges:
    """Changes the recipient lines of one spool."""

    def __init__(self, folders: PostofficeFolders, reader: MessageReader) -> None:
        self._folders, self._reader = folders, reader
        self.links = KeptLinks(folders)

    def apply(self, name: str, moves: Sequence[Move], scheduler: int | None) -> list[Outcome]:
        """Make some changes of one control file with one fsync; they are durable on return.

        Only the tags decide, so a process that is killed leaves nothing half done. `scheduler` is
        the PID of a running one.
        """
        try:
            with (
                self._folders.open_control(name, os.O_RDWR) as opened,
                marks.write_lock(opened.fd),
            ):
                return self._apply_locked(opened, moves, scheduler)
        except FileNotFoundError:
            error: StoreError = Gone(name)
        except StoreError as refusal:
            error = refusal
        except Refused as refusal:
            error = Gone(f"{name}: {refusal}")
        except OSError as failure:
            error = Unavailable(f"{name}: {failure.strerror or failure}")
        return [Outcome(move, error=error) for move in moves]

    def _apply_locked(
        self, opened: OpenControl, moves: Sequence[Move], scheduler: int | None
    ) -> list[Outcome]:
        data, seen = read_whole(opened.fd)
        recipients = parse_control_file(data).recipients
        heads = {one.offset: one.head for one in recipients}
        before, outcomes = dict(heads), list[Outcome]()
        for move in moves:
            try:
                at = self._check(move, opened.is_kept, seen, heads)
            except StoreError as error:
                outcomes.append(Outcome(move, error=error))
                continue
            end = move.new.state if move.new else None
            heads[at] = marks.marked(heads[at], end)
            outcomes.append(Outcome(move, revision(seen, heads[at]) if move.new else ""))
        changed = {at: head for at, head in heads.items() if head != before[at]}
        if changed:
            self._write(opened, seen, changed, heads, scheduler)
        return outcomes

    def _check(
        self, move: Move, is_kept: bool, seen: stat_result, heads: Mapping[int, bytes]
    ) -> int:
        """The offset of a task's line, if it is unchanged and can be changed."""
        old, new = move.old, move.new
        assert old is not None  # the edges have no way for a new task
        parsed = names.parse_task_id(old.id)
        head = heads.get(parsed[1]) if parsed else None
        if parsed is None or head is None or revision(seen, head) != old.rev:
            raise Gone(old.id)
        if task_state(is_kept, head) is not old.state:
            raise Gone(old.id)
        if is_kept and new is not None and new.state in (State.DEAD, State.DONE):
            raise Unsupported(FINISHED)
        if old.state is State.ACTIVE:
            self._require_ended(old, head, seen)
        return parsed[1]

    def _require_ended(self, old: Task, head: bytes, seen: stat_result) -> None:
        """Its PID may be in use again since the scan, by an agent."""
        pid = marks.lock_pid(head)
        if STALLED_KEY not in old.extra or (
            pid is not None and not self._reader.has_ended(pid, seen.st_mtime)
        ):
            raise Unsupported(f"its agent (PID {pid}) is running and may be delivering it")

    def _write(
        self,
        opened: OpenControl,
        seen: stat_result,
        changed: Mapping[int, bytes],
        heads: Mapping[int, bytes],
        scheduler: int | None,
    ) -> None:
        """Write heads. First come our links, so that the scheduler can remove nothing that is held;
        a message that it has finished is linked back last, when its recipient waits.
        """
        wakes = any(marks.state_of(head) is State.PENDING for head in changed.values())
        if needs_links(heads.values(), scheduler is not None):
            self.links.keep(opened)
        for offset, head in changed.items():
            marks.write_mark(opened.fd, offset, head)
        # The time is part of each revision, and no other recipient of the file has changed.
        files.utime(opened.fd, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        files.fsync(opened.fd)
        if opened.is_kept and wakes:
            self.links.put_back(opened.name)
        is_finished = opened.is_kept and not wakes
        has_links = os.fstat(opened.fd).st_nlink > 1 or is_finished
        if has_links and not needs_links(heads.values(), scheduler is not None or is_finished):
            self.links.drop(opened.name)

    def tidy(self, scheduler: int | None, *, is_dry: bool = False) -> list[str]:
        """Remove our links to messages that need none; return their names. `is_dry`: only list
        them.
        """
        found = sorted(self.links.lone_messages())
        for name in sorted(self._folders.list_kept()):
            try:
                with (
                    self._folders.open_control(name, os.O_RDWR) as opened,
                    marks.write_lock(opened.fd),
                ):
                    if _has_use(opened, scheduler):
                        continue
                    if not is_dry:
                        self.links.drop(name)
            except (OSError, Refused):
                continue  # a scan shows it as a problem
            found.append(name)
        if not is_dry:
            self.links.drop_lone()
        return found


def _has_use(opened: OpenControl, scheduler: int | None) -> bool:
    """True if our links to an open control file must stay."""
    if not opened.is_kept and os.fstat(opened.fd).st_nlink < 2:
        return True  # another file of this name: our links are to one that cannot be judged
    heads = (one.head for one in parse_control_file(read_whole(opened.fd)[0]).recipients)
    return needs_links(heads, scheduler is not None or opened.is_kept)


def needs_links(heads: Iterable[bytes], may_vanish: bool) -> bool:
    """True if our links must stay: a recipient is held or in the trash, or it waits and a scheduler
    could remove its file without knowing it (`may_vanish`).
    """
    needing = {State.HELD, State.TRASH, *((State.PENDING, State.ACTIVE) if may_vanish else ())}
    return any(marks.state_of(head) in needing for head in heads)
