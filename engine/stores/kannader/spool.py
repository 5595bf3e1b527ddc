"""What lies in a Kannader spool: links by their folders, and what stands behind each.

Every link is checked strictly before anything behind it is opened: its text, and that each folder
on its way is one, not a link (Kannader spool, section 5). Nothing here changes anything.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import stat_result
from typing import NamedTuple, TypeVar

from engine.model import Lease, State, Task
from engine.stores.kannader import mail_format, sidecar
from engine.stores.kannader.folder import MailFolder
from engine.stores.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, LinkTarget
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import shown

Said = TypeVar("Said")

DESK = ".spooldeck"
ASIDE = f"{DESK}/aside"
"""Where links are kept that must not stay where they were."""

STATES: Mapping[State, str] = {
    State.PENDING: "queue",
    State.ACTIVE: "inflight",
    State.HELD: "hold",
    State.DONE: "cleanup",
    State.TRASH: "trash",
}

KANNADERS = (State.PENDING, State.ACTIVE, State.DONE)
"""The states whose folders Kannader itself makes; the others are ours, made on demand."""

INFLIGHT_DELAY = 3600.0
"""Seconds after which Kannader believes that a mail it finds in flight is nobody's
(`found_inflight_check_delay`; Kannader spool, section 4)."""

KIND = "mail"
UNKNOWN = "an envelope in a form that is not known"
TRASHED = "trash_since"
"""In the `extra` of a task in the trash: when it came there, epoch seconds UTC."""

NOT_A_LINK = "expected a symbolic link to ../data/<uuid>/<uuid>; Kannader passes it by"


class Dangling(Refused):
    """A link to a recipient that is not there."""


class Link(NamedTuple):
    """One link as it was seen."""

    id: str
    state: State
    target: LinkTarget
    seen: stat_result

    @property
    def where(self) -> str:
        """Its place in the spool."""
        return f"{STATES[self.state]}/{self.id}"


class SpooledMail(NamedTuple):
    """One file of a recipient, or none: what it says, and as what it was seen."""

    data: bytes = b""
    seen: stat_result | None = None
    staged: bool = False
    """Of a note: whether it is one that counts already and is not in its place yet."""

    @property
    def mark(self) -> str:
        """Changes whenever the file does; a rename is no change."""
        return f"{self.seen.st_ino:x}.{self.seen.st_mtime_ns:x}" if self.seen else "0"


NO_FILE = SpooledMail()


class MailEntry(NamedTuple):
    """A link and what stands behind it."""

    link: Link
    schedule: SpooledMail
    metadata: SpooledMail
    contents: stat_result | None
    contents_fault: str
    """Why the contents can never be sent; "" where they can be."""
    noted: SpooledMail
    note: sidecar.AttemptNote
    """What counts now."""
    broken_note: str = ""
    """Why what was noted cannot be read; "" where it can."""

    @property
    def rev(self) -> str:
        """Changes whenever the stored task does.

        Whoever has claimed it owns it until its link moves: what they write before that, to be
        found after it, makes it no other task.
        """
        own = files.revision(self.link.seen)
        if self.link.state is State.ACTIVE:
            return own
        return f"{own}-{self.schedule.mark}-{self.metadata.mark}-{self.noted.mark}"


class KannaderSpool:
    """The folders of one spool."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        queue = MailFolder(f"{self.root}/queue", "queue")
        self.data = MailFolder(f"{self.root}/data", "data")
        self.desk = MailFolder(f"{self.root}/{DESK}", DESK, queue)
        self.states: Mapping[State, MailFolder] = {
            State.PENDING: queue,
            State.ACTIVE: MailFolder(f"{self.root}/inflight", "inflight"),
            State.HELD: MailFolder(f"{self.root}/hold", "hold", queue),
            State.DONE: MailFolder(f"{self.root}/cleanup", "cleanup"),
            State.TRASH: MailFolder(f"{self.desk.path}/trash", f"{DESK}/trash", queue),
        }
        self.notes = MailFolder(f"{self.desk.path}/notes", f"{DESK}/notes", queue)
        self.aside = MailFolder(f"{self.desk.path}/aside", ASIDE, queue)
        self.begun = MailFolder(f"{self.desk.path}/enqueuing", f"{DESK}/enqueuing", queue)

    @property
    def folders(self) -> tuple[MailFolder, ...]:
        """All of them, those of ours behind the one that they lie in."""
        return (self.data, self.desk, *self.states.values(), self.notes, self.aside, self.begun)

    def check(self) -> None:
        """Make sure that these are the folders that everybody sees.

        Raises:
            Unavailable: one is missing or cannot be opened.
        """
        for folder in self.folders:
            folder.check()

    def close(self) -> None:
        """Let go of the folders."""
        for folder in self.folders:
            folder.close()

    # ---- links

    def link(self, name: str, state: State) -> Link:
        """The link of this name in a state's folder.

        Raises:
            FileNotFoundError: there is none.
            Refused: something else lies there, or it leads elsewhere.
        """
        folder = self.states[state]
        if not folder.exists():
            raise FileNotFoundError(name)
        seen, text = read_link(name, folder)
        return Link(mail_format.require_id(name), state, mail_format.target_of(text), seen)

    def still_stands(self, link: Link) -> bool:
        """Whether nothing has moved a link since it was seen."""
        try:
            seen, text = read_link(link.id, self.states[link.state])
        except (FileNotFoundError, Refused):
            return False
        return text == link.target.text and files.revision(seen) == files.revision(link.seen)

    def links(self, states: Iterable[State] = STATES) -> Iterator[Link]:
        """Every link in the folders of some states that leads where it may; the others and what is
        no link are left out.
        """
        for state in states:
            for name in self.states[state].names():
                try:
                    yield self.link(name, state)
                except (FileNotFoundError, Refused):
                    continue  # moved on, or a problem: look() names it

    # ---- behind a link

    @contextmanager
    def dest(self, target: LinkTarget) -> Iterator[int]:
        """A recipient's folder as a descriptor.

        Raises:
            Dangling: it is not there.
            Refused: something on the way to it is no folder.
            OSError: it cannot be opened now.
        """
        with self.both(target) as (_, fd):
            yield fd

    @contextmanager
    def both(self, target: LinkTarget) -> Iterator[tuple[int, int]]:
        """The folders of a mail and of its recipient, as descriptors.

        Raises:
            Dangling, Refused, OSError: as `dest`.
        """
        fd = self._open(target.mail, self.data.fd, f"data/{target.mail}")
        try:
            inner = self._open(target.dest, fd, f"data/{target.path}")
            try:
                yield fd, inner
            finally:
                os.close(inner)
        finally:
            os.close(fd)

    def _open(self, name: str, dir_fd: int, words: str) -> int:
        try:
            return files.open_folder(name, dir_fd)
        except FileNotFoundError as error:
            raise Dangling(f"leads to {words}, which is not there") from error
        except NotADirectoryError as error:
            raise Refused(f"leads through {words}, a symbolic link or no folder") from error

    def mail(self, link: Link) -> MailEntry:
        """What stands behind a link.

        Raises:
            FileNotFoundError: it has moved on.
            Refused: it cannot be read as a mail, with the reason.
            OSError: it cannot be read now.
        """
        try:
            with self.both(link.target) as (mail, dest):
                schedule, metadata = kept(SCHEDULE, dest), kept(METADATA, dest)
                contents, fault = contents_in(mail)
        except Dangling:
            if link.state is not State.DONE:
                if not self.still_stands(link):
                    raise FileNotFoundError(link.id) from None
                raise
            # That is what is left of one that is being erased.
            schedule, metadata, contents, fault = NO_FILE, NO_FILE, None, ""
        noted, ours, broken = self.noted(link)
        if not self.still_stands(link):
            raise FileNotFoundError(link.id)
        return MailEntry(link, schedule, metadata, contents, fault, noted, ours, broken)

    def noted(self, link: Link) -> tuple[SpooledMail, sidecar.AttemptNote, str]:
        """The file of what counts of what was noted, that, and why it cannot be read, if so."""
        if not self.notes.exists():
            return NO_FILE, sidecar.NOTHING, ""
        name, fd = sidecar.name_of(link.target), self.notes.fd
        try:
            staged = kept(name + sidecar.STAGED, fd)
            if staged.seen is not None:
                after = sidecar.parse(staged.data)
                if counts(after, link):
                    return staged._replace(staged=True), after, ""
            noted = kept(name, fd)
            return noted, sidecar.parse(noted.data) if noted.data else sidecar.NOTHING, ""
        except Refused as refusal:
            # The mail is as good as it was, but nobody knows how often it was tried.
            return NO_FILE, sidecar.NOTHING, str(refusal)
        except PermissionError as error:
            return NO_FILE, sidecar.NOTHING, f"{error.strerror}"

    def task(self, mail: MailEntry) -> Task:
        """A mail to one recipient, as the seam has it.

        Raises:
            Refused: its schedule or its envelope cannot be read, or its contents never be sent.
        """
        link, ours = mail.link, mail.note
        if mail.contents_fault and link.state is not State.DONE:
            raise Refused(mail.contents_fault)
        extra: dict[str, str] = {}
        due: float | None = None
        envelope = mail_format.Envelope("", "", "", False)
        attempts = ours.attempts
        if mail.schedule.seen is not None or link.state is not State.DONE:
            schedule = schedule_of(mail)
            due = schedule.due
            extra["at"] = mail_format.format_time(schedule.at)
            if schedule.last_attempt is not None:
                extra["last_attempt"] = mail_format.format_time(schedule.last_attempt)
            if not mail.broken_note:
                attempts = attempts_of(ours, schedule)
        if mail.metadata.seen is not None or link.state is not State.DONE:
            envelope = envelope_of(mail)
            extra["from"] = shown(envelope.sender)
        if mail.broken_note:
            extra["note"] = f"what we noted of it cannot be read: {mail.broken_note}"
        if not mail_format.is_uuid(link.id):
            extra["name"] = "no UUID, as Kannader itself would give it"
        lease = None
        if link.state is State.ACTIVE:
            since = link.seen.st_ctime
            lease = Lease("", since, since + INFLIGHT_DELAY)
        elif link.state is State.TRASH:
            extra[TRASHED] = repr(link.seen.st_ctime)
        return Task(
            link.id,
            ours.kind or KIND,
            link.state,
            _created(link.seen.st_mtime),
            group=envelope.host,
            due=due,
            attempts=attempts,
            description=ours.description or described(envelope),
            destination=envelope.recipient,
            payload=f"{self.root}/data/{link.target.mail}/{CONTENTS}",
            error=ours.error,
            lease=lease,
            rev=mail.rev,
            extra=extra,
        )

    def shared(self, mail: str) -> list[str]:
        """The names in a mail's folder.

        Raises:
            OSError: it is not there, or cannot be read.
        """
        fd = files.open_folder(mail, self.data.fd)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)


def _created(moment: float) -> float:
    """When a mail came in, by its link; 0, which is unknown, for a time that no calendar has."""
    return moment if mail_format.EARLIEST <= moment <= mail_format.LATEST else 0.0


def attempts_of(ours: sidecar.AttemptNote, schedule: mail_format.Schedule) -> int | None:
    """How many attempts are counted: by us, since the format has no place for it; None where one
    has failed that we have not seen.
    """
    if ours.attempts is None and schedule.last_attempt is None:
        return 0
    return ours.attempts


def described(envelope: mail_format.Envelope) -> str:
    """A mail in a line, where nobody has given it another."""
    if not envelope.recipient:
        return "erased"
    # What it says cannot be told from an address, and must not come where none may stand.
    return shown(f"{envelope.sender} to {envelope.recipient}") if envelope.known else UNKNOWN


def counts(staged: sidecar.AttemptNote, link: Link) -> bool:
    """Whether a staged note is what counts: its link has moved since."""
    stood = staged.start == STATES[link.state] and staged.since == link.seen.st_ctime_ns
    return not stood


def read_link(name: str, folder: MailFolder) -> tuple[stat_result, str]:
    """A link as it is, and what it says.

    Raises:
        FileNotFoundError: nothing of that name.
        Refused: something else has that name.
    """
    seen = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    if not stat.S_ISLNK(seen.st_mode):
        raise Refused(f"{_KINDS.get(stat.S_IFMT(seen.st_mode), 'a device')}, {NOT_A_LINK}")
    try:
        return seen, os.readlink(name, dir_fd=folder.fd)
    except OSError as error:
        if error.errno == errno.EINVAL:  # something else has taken its place
            raise FileNotFoundError(name) from error
        raise


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def seen_as(name: str, fd: int) -> stat_result | None:
    """The state of whatever has this name in an open folder; None where there is nothing."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_guarded(name: str, fd: int) -> int:
    """As `files.open_guarded`; but that we may not read a plain file says nothing about it.

    Raises:
        FileNotFoundError, Refused: as there.
        OSError: it cannot be opened now, or not by us.
    """
    try:
        return files.open_guarded(name, fd)
    except Refused as refusal:
        seen = seen_as(name, fd)
        if seen is None or not isinstance(refusal.__cause__, PermissionError):
            raise
        if stat.S_ISREG(seen.st_mode):
            raise refusal.__cause__ from None
        raise


def kept(name: str, fd: int, limit: int = files.TASK_LIMIT) -> SpooledMail:
    """What a file says in an open folder, if it is a plain file; nothing where there is none.

    Raises:
        Refused: it is something else, or too big.
        OSError: it cannot be read now, or not by us.
    """
    try:
        opened = open_guarded(name, fd)
    except FileNotFoundError:
        return NO_FILE
    except Refused as refusal:
        raise Refused(f"{name}: {_plainly(refusal)}") from refusal
    try:
        return SpooledMail(*files.read_guarded(opened, limit))
    except Refused as refusal:
        raise Refused(f"{name}: {_plainly(refusal)}") from refusal
    finally:
        os.close(opened)


def contents_in(mail: int) -> tuple[stat_result | None, str]:
    """The contents in an open mail folder: their status (None if missing), and why no server can
    be sent them ("" if one can be). Reads only the last bytes.

    Contents without their end line were cut off by a power failure: Kannader writes them without
    fsync. Sent as they are, the server would wait for the rest until it times out. Of contents that
    this user may not open nothing is known: each attempt reports that.

    Raises:
        OSError: they cannot be read now.
    """
    seen = seen_as(CONTENTS, mail)
    if seen is None:
        return None, f"{CONTENTS}: missing"
    if not stat.S_ISREG(seen.st_mode):
        return seen, f"{CONTENTS}: {files.oddity(seen).replace(*_TASK_FILE)}"
    try:
        fd = open_guarded(CONTENTS, mail)
    except PermissionError:
        return seen, ""
    try:
        tail = os.pread(fd, mail_format.END_BYTES, max(0, seen.st_size - mail_format.END_BYTES))
    finally:
        os.close(fd)
    if mail_format.ends_mail(tail):
        return seen, ""
    return seen, f"{CONTENTS}: cut off, expected a line with only a dot at the end"


def _plainly(refusal: Refused) -> str:
    return str(refusal).replace(*_TASK_FILE)


_TASK_FILE = ("not a task file", "not a plain file")
"""The checks of the engine's own task files name what they expected; here it is something else."""


def schedule_of(mail: MailEntry) -> mail_format.Schedule:
    """When a mail is to be sent.

    Raises:
        Refused: its schedule is missing or cannot be read.
    """
    return _parsed(mail_format.parse_schedule, mail.schedule, SCHEDULE)


def envelope_of(mail: MailEntry) -> mail_format.Envelope:
    """From whom to whom a mail goes.

    Raises:
        Refused: its envelope is missing or cannot be read.
    """
    return _parsed(mail_format.parse_metadata, mail.metadata, METADATA)


def _parsed(parse: Callable[[bytes], Said], found: SpooledMail, name: str) -> Said:
    if found.seen is None:
        raise Refused(f"{name}: missing")
    try:
        return parse(found.data)
    except Refused as refusal:
        raise Refused(f"{name}: {refusal}") from refusal
