"""Give a message to the router: fsync it in a folder of ours, then rename it to router/INODE.

As "mail_open" and "mail_close" of the ZMailer library do it; they use public/ instead of our
folder. A mail that belongs to a change of a control file is staged first, with the lines that the
change writes. If its process is killed, the control file decides: once one line was written, the
next process writes the others and sends the mail; before, it removes the mail.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO

from engine.formats.zmailer.spool.control_file import RecipientLine
from engine.formats.zmailer.spool.marks import Commit, LineChange, Settle
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

ROUTER, POSTMAN = "router", "postman"
ERROR_ON_ERROR = ":error-on-error"
"""Suffix of a report that cannot be sent, in postman/."""

STAGED = ".spooldeck/staged"
_LINES = ".lines"
"""Suffix of the file with the lines of a staged mail."""
_RESUBMITTED = (b"NOTIFY=", b"ORCPT=")
"""DSN parameters of a recipient that the router shall see again."""

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_TRIES = 100
_COPY_BYTES = 1 << 20


def _format_commit(commit: Commit) -> bytes:
    lines = [(one.offset, one.before.hex(), one.after.hex()) for one in commit.lines]
    return json.dumps([commit.name, lines, commit.size, commit.text.hex()]).encode()


def _parse_commit(data: bytes) -> Commit | None:
    """Parse a commit; None if it is torn."""
    try:
        name, lines, size, text = json.loads(data)
        changes = (LineChange(at, bytes.fromhex(a), bytes.fromhex(b)) for at, a, b in lines)
        return Commit(str(name), tuple(changes), int(size), bytes.fromhex(text))
    except (ValueError, TypeError):
        return None


class Router:
    """The way from a spool to its router."""

    def __init__(self, spool: int) -> None:
        """`spool` is the open folder of the spool; the caller closes it."""
        self._spool = spool

    def submit(self, chunks: Iterable[bytes], folder: str = ROUTER, suffix: str = "") -> str:
        """Write a mail; return its path below the spool. It is durable then. Raises Unavailable: it
        cannot be written now."""
        name = f"new.{os.urandom(6).hex()}"
        with _unavailable(f"{STAGED}/{name}"), self._open_staged() as staged_fd:
            try:
                with self._write(name, chunks, staged_fd) as fd:
                    return self._send(name, staged_fd, fd, folder, suffix)
            finally:
                files.unlink_quietly(name, staged_fd)  # there is none if it was sent

    @contextmanager
    def stage(self, commit: Commit, chunks: Iterable[bytes]) -> Iterator[Callable[[], str]]:
        """Write and fsync a mail that belongs to a change, and yield what sends it once the change
        is durable, which returns its path. If that is not called, `recover` decides. Raises
        Unavailable: it cannot be written, or sent, now."""
        name = f"mail.{os.urandom(6).hex()}"
        with (
            _unavailable(f"{STAGED}/{name}"),
            self._open_staged() as staged_fd,
            self._write(name, chunks, staged_fd) as fd,
        ):
            lines = files.create_file(name + _LINES, staged_fd, None, _FILE_MODE)
            with closing_fd(lines):
                files.write_all(lines, _format_commit(commit))
                files.fsync(lines)
            files.fsync(staged_fd)
            yield partial(self._send, name, staged_fd, fd)

    @contextmanager
    def _write(self, name: str, chunks: Iterable[bytes], staged_fd: int) -> Iterator[int]:
        with closing_fd(self._create(name, staged_fd)) as fd:
            if not files.claim_flock(fd):
                raise Unavailable(f"{STAGED}/{name}: another process recovers it")
            for chunk in chunks:
                files.write_all(fd, chunk)
            files.fsync(fd)
            yield fd

    def _create(self, name: str, staged_fd: int) -> int:
        """Create a file whose inode number is not the name of a mail in router/."""
        with _open_folder(self._spool, ROUTER) as router:
            owner = files.new_file_owner(os.fstat(router))
            spare: list[int] = []
            try:
                for _ in range(_TRIES):
                    fd = files.create_file(name, staged_fd, owner, _FILE_MODE)
                    if not _exists(str(os.fstat(fd).st_ino), router):
                        return fd
                    spare.append(fd)  # it keeps its number until another one is found
                    files.unlink_quietly(name, staged_fd)
            finally:
                for fd in spare:
                    os.close(fd)
        raise Unavailable(f"{ROUTER}: has old files with the numbers of all new ones")

    def _send(
        self, name: str, staged_fd: int, fd: int, folder: str = ROUTER, suffix: str = ""
    ) -> str:
        target = f"{os.fstat(fd).st_ino}{suffix}"
        with _unavailable(f"{folder}/{target}"), _open_folder(self._spool, folder) as router:
            files.rename(name, target, src_dir_fd=staged_fd, dst_dir_fd=router)
            files.fsync(router)
        files.unlink_quietly(name + _LINES, staged_fd)
        return f"{folder}/{target}"

    def recover(self, settle: Settle) -> list[str]:
        """Send or remove what ended processes have staged; return the paths of what was sent.
        Raises Unavailable: one cannot be sent now."""
        sent = []
        try:
            with _open_folder(self._spool, STAGED) as staged_fd:
                staged_names = set(os.listdir(staged_fd))
                for name in sorted(one for one in staged_names if not one.endswith(_LINES)):
                    with suppress(FileNotFoundError):
                        if path := self._recover_one(name, staged_fd, settle):
                            sent.append(path)
                for name in staged_names:
                    if name.endswith(_LINES) and name.removesuffix(_LINES) not in staged_names:
                        files.unlink_quietly(name, staged_fd)  # its mail was sent
        except FileNotFoundError:
            return sent
        except OSError as error:
            raise Unavailable(f"{STAGED}: {error_text(error)}") from error
        return sent

    def _recover_one(self, name: str, staged_fd: int, settle: Settle) -> str:
        with closing_fd(files.open_plain(name, staged_fd)) as fd:
            if not files.claim_flock(fd):
                return ""  # its process works on it
            os.stat(name, dir_fd=staged_fd, follow_symlinks=False)  # not sent meanwhile
            commit = _read_commit(name, staged_fd)
            is_made = settle(commit) if commit else False
            if is_made:
                return self._send(name, staged_fd, fd)
            if is_made is False:
                files.unlink_quietly(name, staged_fd)
                files.unlink_quietly(name + _LINES, staged_fd)
            return ""

    @contextmanager
    def _open_staged(self) -> Iterator[int]:
        owner = files.new_file_owner(os.fstat(self._spool))
        path = ""
        for name in STAGED.split("/"):
            with _open_folder(self._spool, path) as above:
                files.make_folder(name, above, _FOLDER_MODE, owner)
            path = f"{path}/{name}"
        with _open_folder(self._spool, STAGED) as fd:
            yield fd


def _read_commit(name: str, staged_fd: int) -> Commit | None:
    """The change of a staged mail; None if it has none: then none was begun."""
    try:
        fd = files.open_plain(name + _LINES, staged_fd)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        return _parse_commit(file.read())


def copy_file(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file, in pieces."""
    while piece := file.read(_COPY_BYTES):
        yield piece


def resubmission(host: str, sender: bytes, recipients: Iterable[RecipientLine]) -> bytes:
    """The envelope of a message that goes through the router again, as agent `hold` writes it; an
    empty sender is that of a report."""
    lines = [b'rcvdfrom STDIN ("??"@%b)' % host.encode("ascii", "replace"), b"via suspension"]
    lines.append(b"from <%b>" % sender if sender else b"channel error")
    for one in recipients:
        dsn_words = [word for word in one.dsn.split() if word.upper().startswith(_RESUBMITTED)]
        lines += [b"todsn " + b" ".join(dsn_words)] if dsn_words else []
        lines.append(b"to <%b>" % one.quad.user)
    return b"".join(line + b"\n" for line in [*lines, b"env-end"])


@contextmanager
def _unavailable(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{where}: {error_text(error)}") from error


@contextmanager
def _open_folder(spool: int, path: str) -> Iterator[int]:
    """Open a folder below the spool, each component without following a link. Raises OSError: one
    is missing, or no folder; Unavailable: another user may rename files in it."""
    fd = os.dup(spool)
    try:
        for name in filter(None, path.split("/")):
            below = files.open_folder(name, fd)
            os.close(fd)
            fd = below
        mode = os.fstat(fd).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Unavailable(f"{path} is world-writable: run chmod o-w,+t on it")
        yield fd
    finally:
        os.close(fd)


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
