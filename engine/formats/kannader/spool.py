"""Read a Kannader spool: its folders, the links in them, and the files that each link leads to.

Each link is validated before anything behind it is opened: its text, and that every path component
is a folder and not a symbolic link (Kannader spool, section 5). This module changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import stat_result
from typing import TypedDict, TypeVar

from engine.formats.kannader import mail_format, sidecar
from engine.formats.kannader.folder import MailFolder
from engine.formats.kannader.mail_format import CONTENTS, METADATA, SCHEDULE, LinkTarget
from engine.formats.kannader.settings import INFLIGHT_CHECK_SECONDS
from engine.model import DUE_AS_STORED_KEY, Lease, State, Task
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

Parsed = TypeVar("Parsed")

STAGING_DIR = ".spooldeck"
QUARANTINE_DIR = f"{STAGING_DIR}/aside"
"""Quarantine folder for damaged and duplicate links."""

STATES: Mapping[State, str] = {
    State.PENDING: "queue",
    State.ACTIVE: "inflight",
    State.HELD: "hold",
    State.DONE: "cleanup",
    State.TRASH: "trash",
}

KANNADER_STATES = (State.PENDING, State.ACTIVE, State.DONE)
"""The states whose folders Kannader creates; the others are ours, created on demand."""

MAIL_KIND = "mail"
UNKNOWN_ENVELOPE = "envelope in an unknown format"
TRASH_SINCE = "trash_since"
"""Key in `extra` of a task in the trash: when it was moved there, epoch seconds UTC."""

NOT_A_LINK = "expected a symbolic link to ../data/<uuid>/<uuid>; Kannader ignores it"


class DanglingLink(Refused):
    """A link to a recipient folder that does not exist."""


class SpoolLink(NamedTuple):
    """One link, with its status when it was read."""

    id: str
    state: State
    target: LinkTarget
    file_stat: stat_result

    @property
    def where(self) -> str:
        """The path within the spool."""
        return f"{STATES[self.state]}/{self.id}"


class SpoolFile(NamedTuple):
    """One file of a recipient and its status; empty if there is no such file."""

    data: bytes = b""
    file_stat: stat_result | None = None
    staged: bool = False
    """For a note: True if it is in effect but not yet renamed to its final name."""

    @property
    def version(self) -> str:
        """A string that changes whenever the file is rewritten; a rename does not change it."""
        its = self.file_stat
        return f"{its.st_ino:x}.{its.st_mtime_ns:x}" if its else "0"


NO_FILE = SpoolFile()


class MailEntry(NamedTuple):
    """A link and the files behind it."""

    link: SpoolLink
    schedule: SpoolFile
    metadata: SpoolFile
    contents: stat_result | None
    contents_fault: str
    """Why the contents can never be sent; "" if they can."""
    note_file: SpoolFile
    note: sidecar.AttemptNote
    """The note that is in effect now."""
    broken_note: str = ""
    """Why the note cannot be read; "" if it can."""

    @property
    def rev(self) -> str:
        """A string that changes whenever the stored task changes.

        While a mail is in flight only its link counts: its worker may stage files that take effect
        when the link moves, and the task remains the same.
        """
        revision = files.file_revision(self.link.file_stat)
        if self.link.state is State.ACTIVE:
            return revision
        stored = (self.schedule, self.metadata, self.note_file)
        return "-".join((revision, *(file.version for file in stored)))


class KannaderSpool:
    """The folders of one spool."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        queue = MailFolder(f"{self.root}/queue", "queue")
        self.data = MailFolder(f"{self.root}/data", "data")
        self.staging = MailFolder(f"{self.root}/{STAGING_DIR}", STAGING_DIR, queue)
        self.states: Mapping[State, MailFolder] = {
            State.PENDING: queue,
            State.ACTIVE: MailFolder(f"{self.root}/inflight", "inflight"),
            State.HELD: MailFolder(f"{self.root}/hold", "hold", queue),
            State.DONE: MailFolder(f"{self.root}/cleanup", "cleanup"),
            State.TRASH: MailFolder(f"{self.staging.path}/trash", f"{STAGING_DIR}/trash", queue),
        }
        self.notes = MailFolder(f"{self.staging.path}/notes", f"{STAGING_DIR}/notes", queue)
        self.quarantine = MailFolder(f"{self.staging.path}/aside", QUARANTINE_DIR, queue)
        word = f"{STAGING_DIR}/enqueuing"
        self.enqueuing = MailFolder(f"{self.root}/{word}", word, queue)
        last = self.notes, self.quarantine, self.enqueuing
        self.folders = (self.data, self.staging, *self.states.values(), *last)
        """All folders; ours come after the folder that contains them."""

    def check(self) -> None:
        """Check that the open folders are those that the paths name; reopen replaced ones.

        Raises:
            engine.store.Unavailable: one is missing or cannot be opened.
        """
        for folder in self.folders:
            folder.reopen_if_replaced()

    def close(self) -> None:
        """Close all folder descriptors."""
        for folder in self.folders:
            folder.close()

    # ---- links

    def find_link(self, name: str, state: State) -> SpoolLink:
        """Read the link of this name in the folder of a state.

        Raises:
            FileNotFoundError: no such file.
            Refused: it is not a link, or its target is invalid.
        """
        folder = self.states[state]
        if not folder.exists():
            raise FileNotFoundError(name)
        link_stat, text = read_link(name, folder)
        ident = mail_format.require_id(name)
        return SpoolLink(ident, state, mail_format.parse_link_target(text), link_stat)

    def is_unchanged(self, link: SpoolLink) -> bool:
        """True if the link is unchanged since it was read."""
        try:
            link_stat, text = read_link(link.id, self.states[link.state])
        except (FileNotFoundError, Refused):
            return False
        before, after = map(files.file_revision, (link.file_stat, link_stat))
        return text == link.target.text and before == after

    def is_current(self, mail: MailEntry) -> bool:
        """True if neither the link nor a file behind it was replaced since they were read: lstat(2)
        instead of reading them again.

        Raises:
            OSError: that cannot be determined now.
        """
        link = mail.link
        for name, file in ((SCHEDULE, mail.schedule), (METADATA, mail.metadata)):
            path = f"{link.target.path}/{name}"
            if SpoolFile(file_stat=stat_if_exists(path, self.data.fd)).version != file.version:
                return False
        note_file = self.read_note(link)[0]
        return note_file.version == mail.note_file.version and self.is_unchanged(link)

    def iter_links(self, states: Iterable[State] = STATES) -> Iterator[SpoolLink]:
        """Yield every valid link in the folders of some states; skip anything else."""
        for state in states:
            for name in self.states[state].iter_names():
                try:
                    yield self.find_link(name, state)
                except (FileNotFoundError, Refused):
                    continue  # moved, or a problem that scan() reports

    # ---- behind a link

    @contextmanager
    def open_dest(self, target: LinkTarget) -> Iterator[int]:
        """Open the folder of a recipient; yield its descriptor.

        Raises:
            DanglingLink: it does not exist.
            Refused: a component of the path is not a folder.
            OSError: it cannot be opened now.
        """
        with self.open_mail_and_dest(target) as (_, fd):
            yield fd

    @contextmanager
    def open_mail_and_dest(self, target: LinkTarget) -> Iterator[tuple[int, int]]:
        """Open the folders of a mail and of one recipient; yield both descriptors.

        Raises:
            DanglingLink, Refused, OSError: as `open_dest`.
        """
        with (
            closing_fd(self._open(target.mail, self.data.fd, f"data/{target.mail}")) as fd,
            closing_fd(self._open(target.dest, fd, f"data/{target.path}")) as inner,
        ):
            yield fd, inner

    def _open(self, name: str, dir_fd: int, words: str) -> int:
        try:
            return files.open_folder(name, dir_fd)
        except FileNotFoundError as error:
            raise DanglingLink(f"leads to {words}, which does not exist") from error
        except NotADirectoryError as error:
            what = f"leads through {words}, which is a symbolic link or not a folder"
            raise Refused(what) from error

    def read_mail(self, link: SpoolLink) -> MailEntry:
        """Read everything behind a link.

        Raises:
            FileNotFoundError: the link has moved.
            Refused: it cannot be read as a mail; the message gives the reason.
            OSError: it cannot be read now.
        """
        try:
            with self.open_mail_and_dest(link.target) as (mail, dest):
                schedule = read_spool_file(SCHEDULE, dest)
                metadata = read_spool_file(METADATA, dest)
                contents, fault = check_contents(mail)
        except DanglingLink:
            if link.state is not State.DONE:
                if not self.is_unchanged(link):
                    raise FileNotFoundError(link.id) from None
                raise
            # An erase that was interrupted leaves a link in cleanup/ without data.
            schedule, metadata, contents, fault = NO_FILE, NO_FILE, None, ""
        note_file, note, broken = self.read_note(link)
        if not self.is_unchanged(link):
            raise FileNotFoundError(link.id)
        return MailEntry(
            link,
            schedule,
            metadata,
            contents=contents,
            contents_fault=fault,
            note_file=note_file,
            note=note,
            broken_note=broken,
        )

    def read_note(self, link: SpoolLink) -> tuple[SpoolFile, sidecar.AttemptNote, str]:
        """Read the note in effect: file, value, and why it cannot be read ("" if it can)."""
        if not self.notes.exists():
            return NO_FILE, sidecar.EMPTY_NOTE, ""
        name, fd = sidecar.note_name(link.target), self.notes.fd
        try:
            staged = read_spool_file(name + sidecar.STAGED_SUFFIX, fd)
            if staged.file_stat is not None:
                after = sidecar.parse_note(staged.data)
                if is_note_in_effect(after, link):
                    return staged._replace(staged=True), after, ""
            note_file = read_spool_file(name, fd)
            note = sidecar.parse_note(note_file.data) if note_file.data else sidecar.EMPTY_NOTE
            return note_file, note, ""
        except Refused as refusal:
            # The mail itself is intact, only its number of attempts is unknown.
            return NO_FILE, sidecar.EMPTY_NOTE, str(refusal)
        except PermissionError as error:
            return NO_FILE, sidecar.EMPTY_NOTE, error_text(error)

    def build_task(self, mail: MailEntry) -> Task:
        """Build the task for one recipient of a mail.

        Raises:
            Refused: its schedule or envelope cannot be read, or its contents can never be sent.
        """
        link, note = mail.link, mail.note
        if mail.contents_fault and link.state is not State.DONE:
            raise Refused(mail.contents_fault)
        extra: dict[str, str] = {}
        due: float | None = None
        envelope = mail_format.Envelope("", "", "", False)
        attempts = note.attempts
        if mail.schedule.file_stat is not None or link.state is not State.DONE:
            schedule = read_schedule(mail)
            due = schedule.due
            extra[DUE_AS_STORED_KEY] = mail_format.format_time(schedule.at)
            if schedule.last_attempt is not None:
                extra["last_attempt"] = mail_format.format_time(schedule.last_attempt)
            if not mail.broken_note:
                attempts = count_attempts(note, schedule)
        if mail.metadata.file_stat is not None or link.state is not State.DONE:
            envelope = parse_file(mail_format.parse_metadata, mail.metadata, METADATA)
        if mail.broken_note:
            extra["note"] = f"its note (attempts, last error) cannot be read: {mail.broken_note}"
        if not mail_format.is_uuid(link.id):
            extra["name"] = "not a UUID, as Kannader would use"
        lease = None
        if link.state is State.ACTIVE:
            since = link.file_stat.st_ctime
            lease = Lease("", since, since + INFLIGHT_CHECK_SECONDS)
        elif link.state is State.TRASH:
            extra[TRASH_SINCE] = repr(link.file_stat.st_ctime)
        return Task(
            link.id,
            note.kind or MAIL_KIND,
            link.state,
            _arrival_seconds(link.file_stat.st_mtime),
            group=envelope.host,
            due=due,
            attempts=attempts,
            description=note.description or describe_mail(envelope),
            destination=envelope.recipient,
            payload=f"{self.root}/data/{link.target.mail}/{CONTENTS}",
            **mail_fields(envelope),
            error=note.error,
            lease=lease,
            rev=mail.rev,
            extra=extra,
        )

    def list_mail_folder(self, mail: str) -> list[str]:
        """List the names in the folder of a mail.

        Raises:
            OSError: it does not exist or cannot be read.
        """
        with closing_fd(files.open_folder(mail, self.data.fd)) as fd:
            return sorted(os.listdir(fd))


def _arrival_seconds(moment: float) -> float:
    """Return the link's mtime as arrival time; 0 (unknown) if the format cannot hold it."""
    return moment if mail_format.EARLIEST_SECONDS <= moment <= mail_format.LATEST_SECONDS else 0.0


def count_attempts(note: sidecar.AttemptNote, schedule: mail_format.MailSchedule) -> int | None:
    """Number of attempts, from our note, because the format has no field for it; None if Kannader
    has recorded an attempt and we have no count."""
    if note.attempts is None and schedule.last_attempt is None:
        return 0
    return note.attempts


class MailFields(TypedDict):
    """The fields of a task that are of mails only."""

    sender: str
    recipients: tuple[str, ...]


def mail_fields(envelope: mail_format.Envelope) -> MailFields:
    """Sender and recipient of a mail, as fields of its task."""
    recipients = (envelope.recipient,) if envelope.recipient else ()
    return {"sender": envelope.sender, "recipients": recipients}


def describe_mail(envelope: mail_format.Envelope) -> str:
    """Return "SENDER to RECIPIENT", for a mail without a description of its own."""
    if not envelope.recipient:
        return "erased"
    if not envelope.is_known_format:
        return UNKNOWN_ENVELOPE  # only addresses may be shown
    return safe_line(f"{envelope.sender} to {envelope.recipient}")


def is_note_in_effect(staged: sidecar.AttemptNote, link: SpoolLink) -> bool:
    """True if a staged note is in effect: the link has moved since the note was written."""
    is_unmoved = staged.start == STATES[link.state] and staged.since == link.file_stat.st_ctime_ns
    return not is_unmoved


def read_link(name: str, folder: MailFolder) -> tuple[stat_result, str]:
    """Return the status and the target text of a link.

    Raises:
        FileNotFoundError: nothing of that name.
        Refused: it is not a symbolic link.
    """
    link_stat = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    if not stat.S_ISLNK(link_stat.st_mode):
        raise Refused(f"{_KINDS.get(stat.S_IFMT(link_stat.st_mode), 'a device')}, {NOT_A_LINK}")
    try:
        return link_stat, os.readlink(name, dir_fd=folder.fd)
    except OSError as error:
        if error.errno == errno.EINVAL:  # another file has replaced it
            raise FileNotFoundError(name) from error
        raise


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def stat_if_exists(name: str, fd: int) -> stat_result | None:
    """lstat a name in an open folder; None if it does not exist."""
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_guarded(name: str, fd: int, place: stat_result | None = None) -> int:
    """Open as `files.open_guarded` does, but raise PermissionError for an unreadable plain file.

    With the stat of the `data` folder as `place`, as `files.open_outgoing` does.

    Raises:
        FileNotFoundError, Refused: as there.
        OSError: it cannot be opened now, or not by this user.
    """
    try:
        if place is not None:
            return files.open_outgoing(name, fd, place)
        return files.open_guarded(name, fd)
    except Refused as refusal:
        file_stat = stat_if_exists(name, fd)
        if file_stat is None or not isinstance(refusal.__cause__, PermissionError):
            raise
        if stat.S_ISREG(file_stat.st_mode):
            raise refusal.__cause__ from None
        raise


def read_spool_file(name: str, fd: int) -> SpoolFile:
    """Read a plain file in an open folder; `NO_FILE` if it does not exist.

    Raises:
        Refused: it is not a plain file, or too large.
        OSError: it cannot be read now, or not by this user.
    """
    try:
        with closing_fd(open_guarded(name, fd)) as file:
            return SpoolFile(*files.read_guarded(file, dir_fd=fd))
    except FileNotFoundError:
        return NO_FILE
    except Refused as refusal:
        raise type(refusal)(f"{name}: {str(refusal).replace(*_TASK_FILE)}") from refusal


def check_contents(mail: int) -> tuple[stat_result | None, str]:
    """Check the contents in an open mail folder: return their status (None if missing) and why they
    can never be sent ("" if they can). Reads only the last bytes.

    Contents without their end line were truncated by a power failure: Kannader writes them without
    fsync. Sent as they are, the server would wait for the rest until it times out. If this user may
    not open the contents they count as complete: each attempt then reports the error.

    Raises:
        OSError: they cannot be read now.
    """
    contents_stat = stat_if_exists(CONTENTS, mail)
    if contents_stat is None:
        return None, f"{CONTENTS}: missing"
    if not stat.S_ISREG(contents_stat.st_mode):
        why = files.file_problem(contents_stat).replace(*_TASK_FILE)
        return contents_stat, f"{CONTENTS}: {why}"
    try:
        fd = open_guarded(CONTENTS, mail)
    except PermissionError:
        return contents_stat, ""
    with closing_fd(fd):
        start = max(0, contents_stat.st_size - mail_format.END_BYTES)
        tail = os.pread(fd, mail_format.END_BYTES, start)
    if mail_format.ends_mail(tail):
        return contents_stat, ""
    return contents_stat, f"{CONTENTS}: cut off, expected a line with only a dot at the end"


_TASK_FILE = ("not a task file", "not a plain file")
"""The file checks name the engine's own task files; here the file is another one."""


def read_schedule(mail: MailEntry) -> mail_format.MailSchedule:
    """Parse the schedule of a mail.

    Raises:
        Refused: it is missing or cannot be read.
    """
    return parse_file(mail_format.parse_schedule, mail.schedule, SCHEDULE)


def parse_file(parse: Callable[[bytes], Parsed], stored: SpoolFile, name: str) -> Parsed:
    """Parse a file of a recipient.

    Raises:
        Refused: it is missing or cannot be read; with its name.
    """
    if stored.file_stat is None:
        raise Refused(f"{name}: missing")
    try:
        return parse(stored.data)
    except Refused as refusal:
        raise Refused(f"{name}: {refusal}") from refusal
