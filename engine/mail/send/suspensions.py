"""Transports suspended by an operator: one small JSON file, shared by all senders."""

from __future__ import annotations

import json
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.config.mail_config import MEMORY, METHODS
from engine.system import files
from engine.system.files import Refused
from engine.text import decode
from engine.text.safe import safe_line
from engine.text.typed_json import Epoch, from_json
from engine.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUSPENDABLE_NAMES = (*METHODS, MEMORY)
"""The transports that can be suspended."""

_MAX_TEXT_LENGTH = 500
"""Maximum characters of a name and of a reason; keeps the file far below its size limit."""


class Suspension(NamedTuple):
    """Who suspended a transport, when and why. From outside: make it safe before showing it."""

    name: str
    since: Epoch
    who: str
    why: str


def describe_suspender(suspension: Suspension) -> str:
    """Say by whom a transport is suspended."""
    return f"suspended by {safe_line(suspension.who) or 'an operator'}"


class Suspensions:
    """The file of suspended transports; changes are made under a flock. A method raises OSError if
    the file cannot be read or written now, and ValueError if its content is invalid, so that the
    suspensions are unknown."""

    def __init__(self, path: str, root: str = "") -> None:
        """`root` is the data folder; below it no symbolic link is followed."""
        self._path, self._root = path, root

    def read(self) -> Mapping[str, Suspension]:
        """Return the suspended transports by name; none if the file does not exist."""
        folder, name = os.path.split(self._path)
        try:
            folder_fd = files.open_dir(folder, self._root)
        except FileNotFoundError:
            return {}
        try:
            return self._read(name, folder_fd)
        finally:
            os.close(folder_fd)

    def suspend(self, name: str, since: float, who: str, why: str) -> bool:
        """Suspend a transport, durably; False if it was suspended already: nothing is changed.
        Raises ValueError also if there is no such transport."""
        if name not in SUSPENDABLE_NAMES:
            raise ValueError(
                f"no transport {name!r}: expected one of {', '.join(SUSPENDABLE_NAMES)}"
            )
        with self._changing() as suspended:
            if name in suspended:
                return False
            suspended[name] = Suspension(
                name, since, who[:_MAX_TEXT_LENGTH], why[:_MAX_TEXT_LENGTH]
            )
        return True

    def resume(self, name: str) -> bool:
        """Resume a transport; False if it was not suspended."""
        with self._changing() as suspended:
            return suspended.pop(name, None) is not None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Suspension]]:
        """Hold the lock and yield the suspensions; changes to the mapping are written at the
        end."""
        folder, name = os.path.split(self._path)
        folder_fd = files.open_dir(folder, self._root, make=True)
        try:
            lock = files.open_shared(f"{name}.lock", folder_fd, os.O_RDWR)
            try:
                with files.Flock(lock):
                    before = self._read(name, folder_fd)
                    after = dict(before)
                    yield after
                    if after != before:
                        files.replace_durably(name, folder_fd, _render_entries(after))
            finally:
                os.close(lock)
        finally:
            os.close(folder_fd)

    def _read(self, name: str, folder_fd: int) -> Mapping[str, Suspension]:
        try:
            fd = files.open_plain(name, folder_fd)
        except FileNotFoundError:
            return {}
        try:
            data, file_stat = files.read_guarded(fd, dir_fd=folder_fd)
            if why := _describe_fault(file_stat, os.fstat(folder_fd)):
                raise Refused(why)
            return _parse_entries(data)
        except (Refused, ValueError) as error:
            what_now = "remove it to send mail, then suspend again"
            raise ValueError(f"{self._path}: {error}: {what_now}") from error
        finally:
            os.close(fd)


def _describe_fault(file_stat: os.stat_result, folder: os.stat_result) -> str:
    if file_stat.st_mode & stat.S_IWOTH:
        return "writable by all users"
    return files.owner_problem(file_stat, folder)


def _render_entries(suspended: Mapping[str, Suspension]) -> bytes:
    entries = {
        name: {"since": s.since, "who": s.who, "why": s.why} for name, s in suspended.items()
    }
    return json.dumps(entries, indent=1).encode() + b"\n"


def _parse_entries(data: bytes) -> Mapping[str, Suspension]:
    """Parse the content of the file."""
    suspensions = {}
    for name, entry in decode.check_object(decode.load_json(data)).items():
        if name not in SUSPENDABLE_NAMES:
            raise ValueError(f"no transport {name[:40]!r}")
        entry = {"who": "", "why": "", **decode.check_object(entry, name), "name": name}
        suspensions[name] = from_json(Suspension, entry, name)
    return suspensions
