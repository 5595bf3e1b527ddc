"""Files that are no tasks, out of the way: each with its reason beside it, and the way back.

A broken file is never deleted or copied. It is renamed into `corrupt/` on the desk under a name
that is safe to show and to type; `NAME.why` beside it says what it was called and what is wrong.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from engine.model import Problem, State
from engine.store import Gone, Unavailable, Unsupported
from engine.stores.nftban import staging, task_format
from engine.stores.nftban.folder import TaskFolder
from engine.stores.nftban.recovery import LITTER_AGE, UNCHANGED
from engine.stores.nftban.staging import StagingDir, there
from engine.system import files
from engine.system.files import Refused

NAME = "corrupt"
WHY = ".why"
"""What the name of a reason ends in."""

_NAME_KEPT = 100
"""Characters of the original name that show in the new one."""

_BACK = {State.PENDING: State.PENDING, State.ACTIVE: State.PENDING}
"""Where a mended file goes, by where it lay: what was claimed is attempted anew."""


class QuarantinedFile(NamedTuple):
    """One file that was set aside, as its reason tells."""

    name: str
    """What it is called now, in `corrupt/`."""
    was: str
    """What it was called; bytes that are not printable ASCII as `\\xNN`."""
    word: str
    """The state in whose folder it lay, by its word; "" when nothing tells."""
    since: float
    """Epoch seconds UTC when it was set aside."""
    by: str
    reason: str


class Quarantine:
    """The broken files of one spool; `token` gives text that is new each time."""

    def __init__(
        self,
        desk_: StagingDir,
        folders: Mapping[State, TaskFolder],
        token: Callable[[], str] = lambda: os.urandom(4).hex(),
    ) -> None:
        self._desk, self._folders, self._token = desk_, folders, token
        path = f"{desk_.folder.path}/{NAME}"
        pending = folders[State.PENDING]
        self._folder = TaskFolder(path, f"{staging.NAME}/{NAME}", pending, make=True)
        self._told: set[tuple[State, str, int]] = set()

    def close(self) -> None:
        """Let go of its descriptor."""
        self._folder.close()

    # ---- out of the way

    def set_aside(
        self, met: Iterable[tuple[State, str]], now: float, count: Callable[[], None]
    ) -> list[str]:
        """Move broken files out of the way that have been as they are for a minute.

        Says for each what was done, or once that it cannot be moved; calls `count` for each that
        was. For whoever holds the queue's lock.
        """
        said = []
        for state, name in met:
            where = f"{self._folders[state].word}/{escaped(name)}"
            try:
                done = self._set_aside(state, name, now)
            except FileNotFoundError:
                continue  # somebody else has moved it
            except (OSError, Unavailable) as error:
                words = error.strerror if isinstance(error, OSError) else error
                said += self._tell(state, name, 0, f"{where}: cannot be set aside: {words}")
            except Refused as refusal:
                said += self._tell(state, name, 1, f"{where}: {refusal}; left where it is")
            else:
                if done is not None:
                    count()
                    said.append(f"{where}: {done.reason}; set aside as {done.name}")
        return said

    def _tell(self, state: State, name: str, what: int, text: str) -> list[str]:
        if (state, name, what) in self._told:
            return []
        self._told.add((state, name, what))
        return [text]

    def _set_aside(self, state: State, name: str, now: float) -> QuarantinedFile | None:
        """Rename one file into `corrupt/`; None when it is in order, or too young to be sure.

        Its reason is durable before it goes: no crash leaves a file without one.

        Raises:
            Refused: it is not for us to move.
        """
        folder = self._folders[state]
        self._desk.check(state)
        seen = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
        # Whatever changes a file sets its ctime; mtime can be set to any time, by anybody.
        if now - seen.st_ctime < UNCHANGED:
            return None
        if stat.S_ISDIR(seen.st_mode):
            raise Refused("a folder, not a task file")
        reason = self._judge(name, folder)
        if not reason:
            return None
        _ = self._desk.folder.fd  # where corrupt/ is made
        self._folder.check()
        aside, why = self._write_reason(
            QuarantinedFile("", escaped(name), folder.word, now, f"PID {os.getpid()}", reason)
        )
        try:
            self._rename(name, folder, aside.name, self._folder)
            if not files.same_file(seen, self._state_of(aside.name)):
                # Written anew between judging and renaming. Should it not get back, it is still
                # here with its reason.
                with suppress(OSError, Gone):
                    self._put(aside.name, name, folder)
                    return None
            return self._confirmed(aside, folder)
        finally:
            with suppress(OSError):  # else swept later
                if not self._has(aside.name):
                    files.forget(aside.name + WHY, self._folder.fd)
            os.close(why)

    def _confirmed(self, aside: QuarantinedFile, folder: TaskFolder) -> QuarantinedFile:
        try:
            self._folder.sync()
            folder.sync()
        except OSError as error:
            return aside._replace(reason=f"{aside.reason} (not confirmed: {error.strerror})")
        return aside

    def _judge(self, name: str, folder: TaskFolder) -> str:
        """What is wrong with a file; "" when nothing is."""
        ident = task_format.id_of(name)
        try:
            if ident is None:
                raise Refused(task_format.NO_TASK_NAME)
            task_format.parse(folder.read(name)[0], ident)
        except Refused as refusal:
            return str(refusal)
        return ""

    def _write_reason(self, aside: QuarantinedFile) -> tuple[QuarantinedFile, int]:
        """A durable reason under a name that nobody else uses, and the descriptor that keeps it
        from being swept while its file is on the way.
        """
        while True:
            aside = aside._replace(name=f"{_safe(aside.was)}.{aside.word}.{self._token()}")
            with suppress(FileExistsError):
                fd = files.create(aside.name + WHY, self._folder.fd, self._folder.owner)
                break
        try:
            files.claim_flock(fd)
            files.write_all(fd, _reason(aside))
            files.fsync(fd)
            self._folder.sync()
        except OSError:
            with suppress(OSError):
                files.forget(aside.name + WHY, self._folder.fd)
            os.close(fd)
            raise
        return aside, fd

    def _rename(self, name: str, source: TaskFolder, target: str, end: TaskFolder) -> None:
        files.rename(name, target, src_dir_fd=source.fd, dst_dir_fd=end.fd)

    def _put(self, name: str, target: str, folder: TaskFolder) -> None:
        """Rename a file of `corrupt/` to where nothing stands.

        Raises:
            Gone: something does.
        """
        with self._desk.placing():
            if there(target, folder.fd):
                raise Gone(f"{folder.word}/{escaped(target)} is there already")
            self._rename(name, self._folder, target, folder)

    def sweep(self, now: float) -> None:
        """Remove reasons whose file never came, or has gone back."""
        if not self._folder.exists():
            return
        self._folder.check()
        listed = set(os.listdir(self._folder.fd))
        for why in sorted(name for name in listed if name.endswith(WHY)):
            if why.removesuffix(WHY) in listed:
                continue
            with suppress(FileNotFoundError, Refused):
                fd = files.open_guarded(why, self._folder.fd)
                try:
                    old = now - os.fstat(fd).st_ctime > LITTER_AGE
                    if old and files.claim_flock(fd) and not self._has(why.removesuffix(WHY)):
                        self._folder.sync()  # its file has left for good
                        files.forget(why, self._folder.fd)
                finally:
                    os.close(fd)

    def _has(self, name: str) -> bool:
        return there(name, self._folder.fd)

    def _state_of(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._folder.fd, follow_symlinks=False)

    # ---- shown

    def all(self) -> Iterator[QuarantinedFile]:
        """Everything in `corrupt/`, in the order of names.

        Raises:
            Unavailable: it cannot be read.
        """
        if not self._folder.exists():
            return
        self._folder.check()
        try:
            names = sorted(os.listdir(self._folder.fd))
        except OSError as error:
            raise Unavailable(f"{self._folder.path}: {error.strerror}") from error
        for name in names:
            if not name.endswith(WHY):
                yield self._tells(name)

    def _tells(self, name: str) -> QuarantinedFile:
        try:
            data, _ = self._folder.read(name + WHY)
            said = files.parse_assignments(data, lambda key: key.startswith("CORRUPT_"))
            since = said["CORRUPT_EPOCH"]
            return QuarantinedFile(
                name,
                said["CORRUPT_NAME"],
                said["CORRUPT_STATE"],
                float(since) if task_format.is_number(since) else 0.0,
                said["CORRUPT_BY"],
                said["CORRUPT_REASON"],
            )
        except FileNotFoundError:
            why = "no reason lies beside it"
        except (Refused, OSError, KeyError) as error:
            why = f"its reason cannot be read: {error}"
        return QuarantinedFile(name, "", "", 0.0, "", why)

    def problems(self) -> Iterator[Problem]:
        """Everything in `corrupt/`, for the operator."""
        for aside in self.all():
            # Which place this is, and how it was named, only the command line knows.
            back = f"; mended, it goes back by `queue corrupt put-back {aside.name}` of this place"
            where = f"{staging.NAME}/{NAME}/{aside.name}"
            yield Problem(where, aside.reason + (back if self._may_go_back(aside) else ""))

    def _may_go_back(self, aside: QuarantinedFile) -> bool:
        """Whether `put_back` would take it once mended: a file, that had the name of a task."""
        if not aside.word or task_format.id_of(aside.was) is None:
            return False
        try:
            return stat.S_ISREG(self._state_of(aside.name).st_mode)
        except FileNotFoundError:
            return False  # moved meanwhile

    # ---- and back

    def put_back(self, name: str) -> str:
        """Put a mended file where it came from, or into pending/ if it was claimed; says where.

        Raises:
            Refused: it is still no task file, with line and expectation; nothing was moved.
            Gone: a task of its id stands there by now; nothing was moved.
            Unsupported: there is no such file, or nothing tells what it was called.
            Unavailable: the disk refused; it lies in one of the two places.
        """
        plain = not name.startswith((".", "-")) and not name.strip(_KEPT + ".")
        if not plain or name.endswith(WHY) or not 0 < len(name) <= _NAME_KEPT * 2:
            raise Unsupported(f"no name of a file in {self._folder.path}")
        if not self._folder.exists() or not self._folder.holds(name):
            raise Unsupported(f"there is none in {self._folder.path}")
        aside = self._tells(name)
        ident = task_format.id_of(aside.was)
        state = next((s for s, f in self._folders.items() if f.word == aside.word), None)
        if state not in _BACK:
            raise Unsupported(f"not known where it came from: {aside.reason}")
        if ident is None:
            raise Refused(f"it was called {aside.was}, {task_format.NO_TASK_NAME}")
        try:
            self._put_back(name, ident, self._folders[_BACK[state]])
        except FileNotFoundError:
            raise Gone("moved meanwhile") from None
        except OSError as error:
            raise Unavailable(f"{error.strerror}") from error
        return f"{_BACK[state]}/{ident}{task_format.SUFFIX}"

    def _put_back(self, name: str, ident: str, folder: TaskFolder) -> None:
        target = ident + task_format.SUFFIX
        # Its reason is kept in hand, so that nobody sweeps it before the file is back for good.
        why = files.open_guarded(name + WHY, self._folder.fd)
        fd = -1
        try:
            fd = files.open_guarded(name, self._folder.fd)
            if not files.claim_flock(why) or not files.claim_flock(fd):
                raise Gone("somebody else is moving it")
            self._desk.check()
            folder.check()
            data, seen = files.read_guarded(fd, folder=folder.judge)
            task_format.parse(data, ident)
            if folder.owner is not None and (seen.st_uid, seen.st_gid) != folder.owner:
                # Root's editor has made it root's; the worker could not read it.
                files.fchown(fd, *folder.owner)
            files.fsync(fd)
            if self._desk.stands(ident):
                raise Gone(f"a task {ident} is there already")
            self._put(name, target, folder)
            if not files.same_file(seen, os.stat(target, dir_fd=folder.fd, follow_symlinks=False)):
                self._rename(target, folder, name, self._folder)
                raise Gone("written while it was read")
            folder.sync()
            self._folder.sync()
            files.forget(name + WHY, self._folder.fd)
        finally:
            os.close(why)
            if fd >= 0:
                os.close(fd)


def escaped(name: str) -> str:
    """A file name in printable ASCII, from which the name can be had back byte by byte."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}"
        for byte in os.fsencode(name)
    )


_KEPT = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_:-"


def _safe(was: str) -> str:
    kept = was.removesuffix(task_format.SUFFIX)[:_NAME_KEPT]
    return "".join(c if c in _KEPT else "_" for c in kept).lstrip("_:-") or "file"


def _reason(aside: QuarantinedFile) -> bytes:
    return files.assignments(
        {
            "CORRUPT_NAME": aside.was,
            "CORRUPT_STATE": aside.word,
            "CORRUPT_EPOCH": str(int(aside.since)),
            "CORRUPT_BY": aside.by,
            "CORRUPT_REASON": aside.reason,
        }
    )
