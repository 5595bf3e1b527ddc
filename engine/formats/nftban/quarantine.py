"""Quarantine broken task files, with the reason for each; restore a file after repair.

A broken file is never deleted or copied. It is renamed into `corrupt/` of the staging directory,
with a name that is safe to show and type; `NAME.why` contains its former name and the reason.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress

from engine.formats.base.folder import name_exists
from engine.formats.nftban import task_format
from engine.formats.nftban.folder import TaskFolder
from engine.formats.nftban.hint import FileState
from engine.formats.nftban.recovery import (
    DRAFT_MAX_AGE_SECONDS,
    MIN_UNCHANGED_SECONDS,
    describe_untrusted,
)
from engine.formats.nftban.staging import StagingDir
from engine.model import Problem, State
from engine.store import Gone, Unavailable, Unsupported
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused, Untrusted
from engine.text.error_text import error_text
from engine.values import NamedTuple

REASON_SUFFIX = ".why"
"""Suffix of the file with the reason."""

QUARANTINED_AT_ONCE = 100
"""Files moved as one group; each keeps a descriptor of its reason open."""

_MAX_NAME_LENGTH = 100
"""Maximum characters of the original name in the new one."""

_RESTORE_STATES = {State.PENDING: State.PENDING, State.ACTIVE: State.PENDING}
"""Where a repaired file goes, by its former state: a claimed task is attempted again."""


class QuarantinedFile(NamedTuple):
    """A quarantined file, as described by its reason file."""

    name: str
    """Its name in `corrupt/`."""
    former_name: str
    """Its former name; bytes that are not printable ASCII as `\\xNN`."""
    state_word: str
    """The folder word of its former state; "" if unknown."""
    since: float
    """When it was quarantined, epoch seconds UTC."""
    by: str
    reason: str


class _BrokenFile(NamedTuple):
    """A file whose content is broken, on its way into `corrupt/`."""

    name: str
    folder: TaskFolder
    file_stat: os.stat_result
    reason: str
    aside: str = ""
    """Its name in `corrupt/`; "" until its reason is written."""


class Quarantine:
    """The quarantine of one spool; `token` returns unique text for file names."""

    def __init__(
        self,
        staging_dir: StagingDir,
        folders: Mapping[State, TaskFolder],
        token: Callable[[], str] = lambda: os.urandom(4).hex(),
    ) -> None:
        self._staging, self._folders, self._token = staging_dir, folders, token
        self._folder = staging_dir.corrupt
        self._reported: set[tuple[State, str, int]] = set()

    # ---- quarantine

    def quarantine_files(
        self,
        met: dict[tuple[State, str], FileState | None],
        now: float,
        count: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> list[str]:
        """Take files from `met`, and quarantine those with a broken content that have not changed
        for a minute, as one group: at most `QUARANTINED_AT_ONCE`, none after `is_over`.

        Return one line for each moved file, once for a file that cannot be moved, and once for all
        files with the same fault in mode, owner, access or links: these stay. Call `count` for each
        moved file. The caller must hold the queue lock.
        """
        lines: list[str] = []
        untrusted: dict[tuple[State, str], list[str]] = {}
        with ExitStack() as reasons:
            group: list[_BrokenFile] = []
            while met and len(group) < QUARANTINED_AT_ONCE and not is_over():
                state, name = next(iter(met))
                del met[state, name]
                where = f"{self._folders[state].word}/{escape_name(name)}"
                try:
                    broken = self._find_broken(state, name, now)
                    if broken is not None:
                        group.append(self._write_reason(broken, now, reasons))
                except FileNotFoundError:
                    continue  # another process has moved it
                except (OSError, Unavailable) as error:
                    text = f"{where}: cannot be quarantined: {error_text(error)}"
                    lines += self._report_once(state, name, 0, text)
                except Untrusted as why:
                    what = describe_untrusted(self._folders[state], why)
                    untrusted.setdefault((state, what), []).append(where)
                except Refused as refusal:
                    lines += self._report_once(state, name, 1, f"{where}: {refusal}; not moved")
            lines = self._move_group(group, count) + lines
        for (state, what), names in untrusted.items():
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            lines += self._report_once(state, what, 2, f"{names[0]}{more}: {what}")
        return lines

    def _report_once(self, state: State, name: str, what: int, text: str) -> list[str]:
        if (state, name, what) in self._reported:
            return []
        self._reported.add((state, name, what))
        return [text]

    def _find_broken(self, state: State, name: str, now: float) -> _BrokenFile | None:
        """Check one file again; None if it is valid, or changed less than `MIN_UNCHANGED_SECONDS`
        seconds ago.

        Raises:
            Refused: it may not be moved.
        """
        folder = self._folders[state]
        self._staging.reopen_if_replaced(state)
        file_stat = _lstat(name, folder)
        # Every change sets ctime; mtime can be set to any time.
        if now - file_stat.st_ctime < MIN_UNCHANGED_SECONDS:
            return None
        if stat.S_ISDIR(file_stat.st_mode):
            raise Refused("a folder, not a task file")
        reason = self._find_fault(name, folder)
        return _BrokenFile(name, folder, file_stat, reason) if reason else None

    def _find_fault(self, name: str, folder: TaskFolder) -> str:
        """Return what is wrong with the content or the name of a file; "" if it is valid.

        Raises:
            Untrusted: its content is not known.
        """
        ident = task_format.id_in_name(name)
        try:
            if ident is None:
                raise Refused(task_format.NOT_A_TASK_NAME)
            task_format.parse_task(folder.read(name)[0], ident)
        except Untrusted:
            raise
        except Refused as refusal:
            return str(refusal)
        return ""

    def _write_reason(self, broken: _BrokenFile, now: float, reasons: ExitStack) -> _BrokenFile:
        """Write the reason durably under a unique name, before the file is renamed: then a crash
        leaves no file without one.

        Its flock protects the reason from `sweep` until the file arrives, or `reasons` is closed;
        that also removes the reason of a file that has not arrived.
        """
        _ = self._staging.folder.fd  # creates the parent of corrupt/
        self._folder.reopen_if_replaced()
        former, word = escape_name(broken.name), broken.folder.word
        while True:
            aside = f"{_safe_name(former)}.{word}.{self._token()}"
            with suppress(FileExistsError):
                fd = files.create_file(aside + REASON_SUFFIX, self._folder.fd, self._folder.owner)
                break
        reasons.callback(os.close, fd)
        reasons.callback(self._remove_reason, aside)
        by = f"PID {os.getpid()}"
        entry = QuarantinedFile(aside, former, word, since=now, by=by, reason=broken.reason)
        files.claim_flock(fd)
        files.write_all(fd, _render_reason(entry))
        files.fsync(fd)
        return broken._replace(aside=aside)

    def _remove_reason(self, aside: str) -> None:
        """Remove the reason of a file that has not arrived."""
        with suppress(OSError):  # otherwise swept later
            if not self._has(aside):
                files.unlink_quietly(aside + REASON_SUFFIX, self._folder.fd)

    def _move_group(self, group: list[_BrokenFile], count: Callable[[], None]) -> list[str]:
        """Rename files whose reasons are written; one fsync of each folder for all of them. Return
        one line for each."""
        moved: list[_BrokenFile] = []
        lines: list[str] = []
        if not group:
            return lines
        try:
            self._folder.sync()
            for one in group:
                where = f"{one.folder.word}/{escape_name(one.name)}"
                try:
                    if self._move_aside(one):
                        moved.append(one)
                except FileNotFoundError:
                    continue  # another process has moved it
                except (OSError, Unavailable) as error:
                    lines.append(f"{where}: cannot be quarantined: {error_text(error)}")
        except OSError as error:
            return [f"{len(group):,} files cannot be quarantined: {error_text(error)}"]
        doubt = self._confirm(moved)
        for one in moved:
            count()
            where = f"{one.folder.word}/{escape_name(one.name)}"
            lines.append(f"{where}: {one.reason}{doubt}; quarantined as {one.aside}")
        return lines

    def _move_aside(self, one: _BrokenFile) -> bool:
        """Rename a file into `corrupt/`; False if it was rewritten meanwhile, and is back."""
        start, aside = one.folder.fd, self._folder.fd
        files.rename(one.name, one.aside, src_dir_fd=start, dst_dir_fd=aside)
        if not files.is_same_file(one.file_stat, _lstat(one.aside, self._folder)):
            # Rewritten between check and rename. If the way back fails, it stays here with its
            # reason.
            with suppress(OSError, Gone):
                self._move_back(one.aside, one.name, one.folder)
                return False
        return True

    def _confirm(self, moved: list[_BrokenFile]) -> str:
        """Make the renames durable; return why that is not certain, "" if it is."""
        try:
            if moved:
                self._folder.sync()
            for folder in {one.folder.word: one.folder for one in moved}.values():
                folder.sync()
        except OSError as error:
            return f" (not confirmed: {error_text(error)})"
        return ""

    def _move_back(self, name: str, target: str, folder: TaskFolder) -> None:
        """Rename a file of `corrupt/` to a free name.

        Raises:
            Gone: the name is in use.
        """
        with self._staging.placing_lock():
            if name_exists(target, folder.fd):
                raise Gone(f"{folder.word}/{escape_name(target)} is there already")
            files.rename(name, target, src_dir_fd=self._folder.fd, dst_dir_fd=folder.fd)

    def sweep(self, now: float) -> None:
        """Remove reasons whose file never arrived or was restored."""
        if not self._folder.exists():
            return
        self._folder.reopen_if_replaced()
        listed = set(os.listdir(self._folder.fd))
        for why in sorted(name for name in listed if name.endswith(REASON_SUFFIX)):
            if why.removesuffix(REASON_SUFFIX) in listed:
                continue
            with (
                suppress(FileNotFoundError, Refused),
                closing_fd(files.open_guarded(why, self._folder.fd)) as fd,
            ):
                is_old = now - os.fstat(fd).st_ctime > DRAFT_MAX_AGE_SECONDS
                is_ours = is_old and files.claim_flock(fd)
                if is_ours and not self._has(why.removesuffix(REASON_SUFFIX)):
                    self._folder.sync()  # make the departure of its file durable
                    files.unlink_quietly(why, self._folder.fd)

    def _has(self, name: str) -> bool:
        return name_exists(name, self._folder.fd)

    # ---- listing

    def list_files(self) -> Iterator[QuarantinedFile]:
        """Yield every file in `corrupt/`, by name.

        Raises:
            Unavailable: it cannot be read.
        """
        if not self._folder.exists():
            return
        self._folder.reopen_if_replaced()
        try:
            names = sorted(os.listdir(self._folder.fd))
        except OSError as error:
            raise Unavailable(f"{self._folder.path}: {error_text(error)}") from error
        for name in names:
            if not name.endswith(REASON_SUFFIX):
                yield self._read_entry(name)

    def _read_entry(self, name: str) -> QuarantinedFile:
        try:
            data, _ = self._folder.read(name + REASON_SUFFIX)
            values = files.parse_assignments(data, lambda key: key.startswith("CORRUPT_"))
            since = values["CORRUPT_EPOCH"]
            return QuarantinedFile(
                name,
                values["CORRUPT_NAME"],
                values["CORRUPT_STATE"],
                since=float(since) if task_format.is_number(since) else 0.0,
                by=values["CORRUPT_BY"],
                reason=values["CORRUPT_REASON"],
            )
        except FileNotFoundError:
            why = "no reason file"
        except (Refused, OSError, KeyError) as error:
            why = f"reason file cannot be read: {error}"
        return QuarantinedFile(name, "", "", since=0.0, by="", reason=why)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem for every file in `corrupt/`."""
        for aside in self.list_files():
            # Only the command line knows how the operator named this place.
            back = f"; repair it, then run `queue corrupt put-back {aside.name}`"
            what = aside.reason + (back if self._may_go_back(aside) else "")
            yield Problem(f"{self._folder.word}/{aside.name}", what, None, aside.since or None)

    def _may_go_back(self, aside: QuarantinedFile) -> bool:
        """True if `restore` accepts it after repair: a plain file that had the name of a task."""
        if not aside.state_word or task_format.id_in_name(aside.former_name) is None:
            return False
        try:
            return stat.S_ISREG(_lstat(aside.name, self._folder).st_mode)
        except FileNotFoundError:
            return False  # moved in between

    # ---- restore

    def restore(self, name: str) -> str:
        """Move a repaired file back to its former state, or to pending/ if it was claimed; return
        its path.

        Raises:
            Refused: it is still not a valid task file; nothing was moved.
            Gone: a task with its id exists; nothing was moved.
            Unsupported: there is no such file, or its former name is unknown.
            Unavailable: a disk error; the file is in one of the two places.
        """
        plain = not name.startswith((".", "-")) and not name.strip(_SAFE_CHARACTERS + ".")
        if not plain or name.endswith(REASON_SUFFIX) or not 0 < len(name) <= _MAX_NAME_LENGTH * 2:
            raise Unsupported(f"not a file name in {self._folder.path}")
        if not self._folder.exists() or not self._folder.has_name(name):
            raise Unsupported(f"no such file in {self._folder.path}")
        aside = self._read_entry(name)
        ident = task_format.id_in_name(aside.former_name)
        state = next((s for s, f in self._folders.items() if f.word == aside.state_word), None)
        if state not in _RESTORE_STATES:
            raise Unsupported(f"former state unknown: {aside.reason}")
        if ident is None:
            raise Refused(f"its former name is {aside.former_name}, {task_format.NOT_A_TASK_NAME}")
        try:
            self._restore_file(name, ident, self._folders[_RESTORE_STATES[state]])
        except FileNotFoundError:
            raise Gone("moved by another process") from None
        except OSError as error:
            raise Unavailable(error_text(error)) from error
        return f"{_RESTORE_STATES[state]}/{ident}{task_format.SUFFIX}"

    def _restore_file(self, name: str, ident: str, folder: TaskFolder) -> None:
        target = ident + task_format.SUFFIX
        # Keep the reason open and locked: `sweep` must not remove it before the file is restored
        # durably.
        with (
            closing_fd(files.open_guarded(name + REASON_SUFFIX, self._folder.fd)) as why,
            closing_fd(files.open_guarded(name, self._folder.fd)) as fd,
        ):
            if not files.claim_flock(why) or not files.claim_flock(fd):
                raise Gone("another process is moving it")
            self._staging.reopen_if_replaced()
            folder.reopen_if_replaced()
            data, file_stat = files.read_guarded(fd, folder=folder.trusted_stat)
            task_format.parse_task(data, ident)
            if folder.owner is not None and (file_stat.st_uid, file_stat.st_gid) != folder.owner:
                # An editor run by root changed the owner to root; the worker could not read the
                # file.
                files.fchown(fd, *folder.owner)
            files.fsync(fd)
            if self._staging.has_task(ident):
                raise Gone(f"a task {ident} is there already")
            self._move_back(name, target, folder)
            if not files.is_same_file(file_stat, _lstat(target, folder)):
                files.rename(target, name, src_dir_fd=folder.fd, dst_dir_fd=self._folder.fd)
                raise Gone("changed while it was read")
            folder.sync()
            self._folder.sync()
            files.unlink_quietly(name + REASON_SUFFIX, self._folder.fd)


def _lstat(name: str, folder: TaskFolder) -> os.stat_result:
    return os.stat(name, dir_fd=folder.fd, follow_symlinks=False)


def escape_name(name: str) -> str:
    """Return a file name as printable ASCII, from which its bytes can be recovered."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}"
        for byte in os.fsencode(name)
    )


_SAFE_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_:-"


def _safe_name(was: str) -> str:
    stem = was.removesuffix(task_format.SUFFIX)[:_MAX_NAME_LENGTH]
    return "".join(c if c in _SAFE_CHARACTERS else "_" for c in stem).lstrip("_:-") or "file"


def _render_reason(aside: QuarantinedFile) -> bytes:
    return files.format_assignments(
        {
            "CORRUPT_NAME": aside.former_name,
            "CORRUPT_STATE": aside.state_word,
            "CORRUPT_EPOCH": str(int(aside.since)),
            "CORRUPT_BY": aside.by,
            "CORRUPT_REASON": aside.reason,
        }
    )
