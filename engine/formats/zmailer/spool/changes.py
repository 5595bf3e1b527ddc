"""Change recipient lines in place: compare and overwrite tag and PID slot under the fcntl lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from os import stat_result
from typing import Protocol

from engine.formats.zmailer.spool import lock_process, marks, names
from engine.formats.zmailer.spool.control_file import FileLayout, RecipientLine, parse_recipient
from engine.formats.zmailer.spool.folders import (
    Changing,
    OpenControl,
    PostofficeFolders,
    has_our_link,
    read_line,
    read_whole,
)
from engine.formats.zmailer.spool.kept import KeptLinks
from engine.formats.zmailer.spool.marks import Commit, LineChange, Settle
from engine.formats.zmailer.spool.reading import MessageReader, find_layout
from engine.formats.zmailer.spool.tasks import FINISHED, revision, revision_prefix, task_state
from engine.model import STALLED_KEY, Move, Outcome, State, Task
from engine.store import Control, Gone, Outlook, StoreError, Unavailable, Unsupported
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.values import NamedTuple
from engine.verbs import BOUNCED, EXPIRED, REROUTED

WINDOW_BYTES = 256 << 10
"""Bytes that are searched for held recipients at a time."""


class MailActions(Protocol):
    """What gives mail to the router of a spool, and asks its scheduler for deliveries."""

    def stage(
        self,
        opened: OpenControl,
        data: bytes,
        layout: FileLayout,
        verb: str,
        lines: Sequence[LineChange],
    ) -> AbstractContextManager[Callable[[], object]]:
        """Write the mail of a verb (`marks.ENDINGS`) that ends some recipients of a control file
        with these bytes, and yield what sends it once their lines are durable. Raises Unavailable:
        it cannot be written now."""

    def recover(self, settle: Settle) -> object:
        """Send or remove the mail of processes that were killed. Raises Unavailable: it cannot be
        sent now."""

    def wake(self, hosts: Collection[str]) -> None:
        """Ask the scheduler to try these hosts now. Raises Unavailable: it cannot be asked now."""

    def notify(self, control_file: str) -> object:
        """Let the scheduler read a control file now; else it does so at its next scan."""


class MoreControls(Protocol):
    """Controls of a spool beside those that only change our own folder."""

    def describe(self, scheduler: int | None) -> Mapping[str, Control]:
        """The controls as they are now; `scheduler` is the PID of a running one."""

    def run(self, name: str, target: str, value: str, hosts: Callable[[], Collection[str]]) -> str:
        """As `Store.control`; `hosts` finds those with waiting recipients."""

    def forecast(
        self, name: str, target: str, value: str, hosts: Callable[[], Collection[str]]
    ) -> Outlook:
        """As `Store.forecast`."""


_VERBS = {BOUNCED: "bounce", EXPIRED: "expire", REROUTED: "reroute"}


def ending_verb(move: Move) -> str:
    """The verb that ends a recipient with a mail; "" for any other change."""
    old, new = move.old, move.new
    if old is None or new is None or move.image or new.error == old.error:
        return ""
    return _VERBS.get(new.error, "")


class LineChanges:
    """Changes the recipient lines of one spool."""

    def __init__(
        self, folders: PostofficeFolders, reader: MessageReader, mail: MailActions | None = None
    ) -> None:
        """Without `mail`, no change may need one."""
        self._folders, self._reader, self._mail = folders, reader, mail
        self.links = KeptLinks(folders)

    def apply(self, name: str, moves: Sequence[Move], scheduler: int | None) -> list[Outcome]:
        """Make some changes of one control file with one fsync; they are durable on return.

        Only the tags decide, so a process that is killed leaves nothing half done. `scheduler` is
        the PID of a running one."""
        try:
            with self._open_locked(name) as opened:
                outcomes = self._apply_locked(opened, moves, scheduler)
            if scheduler is not None and any(map(_is_released, outcomes)):
                self._notify(opened)
            return self._wake(outcomes)
        except FileNotFoundError:
            error: StoreError = Gone(name)
        except StoreError as refusal:
            error = refusal
        except Refused as refusal:
            error = Gone(f"{name}: {refusal}")
        except OSError as failure:
            error = Unavailable(f"{name}: {error_text(failure)}")
        return [Outcome(move, error=error) for move in moves]

    @contextmanager
    def _open_locked(self, name: str) -> Iterator[OpenControl]:
        with self._folders.open_control(name, os.O_RDWR) as opened, marks.write_lock(opened.fd):
            yield opened

    def _apply_locked(
        self, opened: OpenControl, moves: Sequence[Move], scheduler: int | None
    ) -> list[Outcome]:
        file = self._open_lines(opened)
        heads, outcomes = dict[int, bytes](), list[Outcome]()
        ended: dict[str, list[LineChange]] = {}
        for move in moves:
            try:
                one = self._check(move, file, heads)
            except StoreError as error:
                outcomes.append(Outcome(move, error=error))
                continue
            end = move.new.state if move.new else None
            if verb := ending_verb(move):
                heads[one.offset] = marks.with_mark(one.head, marks.ENDINGS[verb])
                line = LineChange(one.offset, one.head, heads[one.offset])
                ended.setdefault(verb, []).append(line)
            elif move.old is not None and move.old.state is end:
                outcomes.append(Outcome(move, move.old.rev))  # its host is woken after the lock
                continue
            else:
                heads[one.offset] = marks.marked(one.head, end)
            changed = one._replace(head=heads[one.offset])
            outcomes.append(Outcome(move, file.revision(changed, False) if move.new else ""))
        if ended:
            self._end(file, ended, heads, scheduler)
            outcomes = self._with_revisions(opened, outcomes)  # of their new diagnostics
        elif heads:
            self._write(opened, file.file_stat, heads, scheduler)
            self._drop_links(opened, heads, scheduler)
        return outcomes

    def _wake(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Wake the hosts of the recipients that wait as before; the outcomes, those of them with
        an error if that fails."""
        hosts = {host for host in map(_host_to_wake, outcomes) if host is not None}
        if not hosts or self._mail is None:
            return outcomes
        try:
            self._mail.wake(hosts)
        except StoreError as error:
            return [
                outcome if _host_to_wake(outcome) is None else Outcome(outcome.move, error=error)
                for outcome in outcomes
            ]
        return outcomes

    def _notify(self, opened: OpenControl) -> None:
        """Let the scheduler read a file with released recipients. That of ZMailer reads none again,
        only one that was linked back as a new one."""
        if self._mail is not None and (opened.is_kept or lock_process.is_ours(self._folders.fd)):
            self._mail.notify(opened.name)

    def _end(
        self,
        file: _OpenLines,
        ended: Mapping[str, Sequence[LineChange]],
        heads: Mapping[int, bytes],
        scheduler: int | None,
    ) -> None:
        """Write heads, with the mail of those that a verb ends."""
        assert self._mail is not None  # else no edge names these verbs
        opened = file.opened
        data, _ = read_whole(opened.fd)
        self.links.keep(opened)  # after a kill both files are needed, to settle it
        with ExitStack() as staged:
            sends = [
                staged.enter_context(self._mail.stage(opened, data, file.layout, verb, lines))
                for verb, lines in ended.items()
            ]
            self._write(opened, file.file_stat, heads, scheduler)
            if _send_all(sends):
                self._drop_links(opened, heads, scheduler)

    def _with_revisions(self, opened: OpenControl, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Outcomes with the revisions that a scan has now."""
        file = self._open_lines(opened)
        revised = []
        for outcome in outcomes:
            parsed = names.parse_task_id(outcome.move.old.id) if outcome.move.old else None
            if outcome.error is None and outcome.move.new is not None and parsed is not None:
                line_at = partial(read_line, opened.fd)
                one = parse_recipient(file.layout, parsed[1], line_at)
                outcome = outcome._replace(rev=file.revision(one, False))
            revised.append(outcome)
        return revised

    def _open_lines(self, opened: OpenControl) -> _OpenLines:
        """The lines of an open control file; it is read in whole only if its layout is unknown."""
        try:
            file_stat, layout = find_layout(self._folders.versions, opened.name, opened.fd)
        except Changing as error:
            raise Unavailable(f"{opened.name}: cut while it was read") from error
        message, _ = self._folders.find_message(opened.name, opened.is_kept, likely=opened.folder)
        return _OpenLines(opened, file_stat, revision_prefix(file_stat, message), layout)

    def _check(self, move: Move, file: _OpenLines, heads: Mapping[int, bytes]) -> RecipientLine:
        """The line of a task, if it is unchanged and can be changed. `heads` are those that earlier
        moves of the same batch will write."""
        old, new = move.old, move.new
        assert old is not None  # the edges have no way for a new task
        parsed = names.parse_task_id(old.id)
        if parsed is None or not file.layout.has_recipient(parsed[1]):
            raise Gone(old.id)
        one = parse_recipient(file.layout, parsed[1], partial(read_line, file.opened.fd))
        one = one._replace(head=heads.get(one.offset, one.head))
        is_kept, state = file.opened.is_kept, task_state(file.opened.is_kept, one.head)
        if state is not old.state or (file.revision(one, STALLED_KEY in old.extra) != old.rev):
            raise Gone(old.id)
        if is_kept and new is not None and new.state in (State.DEAD, State.DONE):
            raise Unsupported(FINISHED)
        if old.state is State.ACTIVE:
            self._require_ended(old, one.head, file.file_stat)
        return one

    def _require_ended(self, old: Task, head: bytes, file_stat: stat_result) -> None:
        """Its PID may be in use again since the scan, by an agent."""
        pid = marks.lock_pid(head)
        if STALLED_KEY not in old.extra or (
            pid is not None and not self._reader.has_ended(pid, file_stat.st_mtime)
        ):
            raise Unsupported(f"its agent (PID {pid}) is running and may be delivering it")

    def _write(
        self,
        opened: OpenControl,
        file_stat: stat_result,
        heads: Mapping[int, bytes],
        scheduler: int | None,
    ) -> None:
        """Write heads. First come our links, so that the scheduler can remove nothing that is held;
        a message that it has finished is linked back last, when its recipient waits."""
        wakes = any(marks.state_of(head) is State.PENDING for head in heads.values())
        if any(marks.needs_links(head, scheduler is not None) for head in heads.values()):
            self.links.keep(opened)
        for offset, head in heads.items():
            marks.write_mark(opened.fd, offset, head)
        # So that layouts that were kept stay valid.
        files.utime(opened.fd, ns=(file_stat.st_atime_ns, file_stat.st_mtime_ns))
        files.fsync(opened.fd)
        if opened.is_kept and wakes:
            self.links.put_back(opened.name)

    def _drop_links(
        self, opened: OpenControl, heads: Mapping[int, bytes], scheduler: int | None
    ) -> None:
        """Drop our links if the message needs none any more."""
        wakes = any(marks.state_of(head) is State.PENDING for head in heads.values())
        is_finished = opened.is_kept and not wakes
        may_vanish = scheduler is not None or is_finished
        has_links = has_our_link(self._folders, opened.name, os.fstat(opened.fd))
        if not has_links and not is_finished:
            return
        # The changed ones first: then a large file is not read.
        if any(marks.needs_links(head, may_vanish) for head in heads.values()):
            return
        if not needs_links(opened.fd, may_vanish, min(heads)):
            self.links.drop(opened.name)

    def recover(self, scheduler: int | None) -> None:
        """Complete or remove what killed processes have begun. Raises Unavailable: a mail cannot be
        sent now."""
        if self._mail is None:
            return
        settled = set[str]()

        def settle(commit: Commit) -> bool | None:
            settled.add(commit.name)
            return self._settle(commit)

        self._mail.recover(settle)
        for name in settled:
            self._tidy_one(name, scheduler)

    def _settle(self, commit: Commit) -> bool | None:
        """Write the lines that a killed process has not written, if it has written one; else remove
        what it has appended."""
        try:
            with self._open_locked(commit.name) as opened:
                data, file_stat = read_whole(opened.fd)
                heads = {
                    one.offset: data[one.offset + 1 :][: len(one.after)] for one in commit.lines
                }
                is_made = any(heads[one.offset] == one.after for one in commit.lines)
                if is_made:
                    for one in commit.lines:
                        if heads[one.offset] == one.before:
                            marks.write_mark(opened.fd, one.offset, one.after)
                elif commit.text.startswith(data[commit.size :]):
                    os.ftruncate(opened.fd, commit.size)
                files.utime(opened.fd, ns=(file_stat.st_atime_ns, file_stat.st_mtime_ns))
                files.fsync(opened.fd)
                return is_made
        except (OSError, Refused):
            return None

    def tidy(self, scheduler: int | None, *, is_dry: bool = False) -> list[str]:
        """Remove our links to messages that need none; return their names. `is_dry`: only list
        them."""
        unneeded = sorted(self.links.lone_messages())
        link_names = sorted(self._folders.list_kept())
        unneeded += [name for name in link_names if self._tidy_one(name, scheduler, is_dry=is_dry)]
        if not is_dry:
            self.links.drop_lone()
        return unneeded

    def _tidy_one(self, name: str, scheduler: int | None, *, is_dry: bool = False) -> bool:
        """Remove our links to a message if it needs none; True if it does not."""
        try:
            with self._open_locked(name) as opened:
                is_ours = has_our_link(self._folders, opened.name, os.fstat(opened.fd))
                if not opened.is_kept and not is_ours:
                    return False  # our links are to another file, which cannot be judged
                if needs_links(opened.fd, scheduler is not None or opened.is_kept):
                    return False
                if not is_dry:
                    self.links.drop(name)
        except (OSError, Refused):
            return False  # a scan shows it as a problem
        return True


def _is_released(outcome: Outcome) -> bool:
    """True if a recipient waits now that did not wait before."""
    (old, new), error = outcome.move[:2], outcome.error
    is_waiting = new is not None and new.state is State.PENDING
    return error is None and is_waiting and old is not None and old.state is not State.PENDING


def _host_to_wake(outcome: Outcome) -> str | None:
    """The host of a recipient whose change is to be tried now; None for any other change."""
    move, error = outcome.move, outcome.error
    if error is not None or move.old is None or move.new is None or ending_verb(move):
        return None
    return move.old.group if move.old.state is move.new.state else None


def _send_all(sends: Iterable[Callable[[], object]]) -> bool:
    """Send mail whose change is durable; False if one could not be sent: `recover` does it."""
    is_sent = True
    for send in sends:
        try:
            send()
        except StoreError:
            is_sent = False
    return is_sent


class _OpenLines(NamedTuple):
    """An open control file whose lines are read one by one."""

    opened: OpenControl
    file_stat: stat_result
    prefix: str
    """Of the revisions."""
    layout: FileLayout

    def revision(self, one: RecipientLine, is_stalled: bool) -> str:
        """The revision of a recipient."""
        last = self.layout.diagnostics.get(one.offset)
        return revision(self.prefix, one, last, is_stalled=is_stalled)


def needs_links(fd: int, may_vanish: bool, first: int = 0) -> bool:
    """True if our links to an open control file must stay: a recipient is held or in the trash, or
    it waits and a scheduler could remove its file without knowing it (`may_vanish`).

    The file is read only as far as one is found, beginning at the line at offset `first`: in a file
    with very many recipients, those that a plan changes next are near the last ones."""
    size, overlap = os.fstat(fd).st_size, marks.MARK_BYTES
    begin = max(0, first - 1)
    spans = ((begin, size), (0, min(begin + overlap, size)))
    for start, end in spans:
        for at in range(start, end, WINDOW_BYTES):
            window = os.pread(fd, min(WINDOW_BYTES, end - at) + overlap, at)
            if marks.has_needing(window, may_vanish):
                return True
    return False
