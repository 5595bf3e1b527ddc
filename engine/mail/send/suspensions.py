"""Which transports an operator has suspended: one small file, shared by all who send."""

from __future__ import annotations

import json
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from engine.config.mail_config import MEMORY, METHODS
from engine.system import files
from engine.system.files import Refused
from engine.text import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMES = (*METHODS, MEMORY)
"""What may be suspended."""

_WORDS = 500
"""Characters of a name and of a reason that are kept: the file stays far below its limit."""


class Suspension(NamedTuple):
    """By whom, when and why a transport was suspended. Foreign text: make it safe to show it."""

    name: str
    since: float
    """Epoch seconds UTC."""
    who: str
    why: str


class Suspensions:
    """The transports that nobody may send by until an operator resumes them."""

    def __init__(self, path: str, root: str = "") -> None:
        """`root` is the data folder below which no symbolic link is followed."""
        self._path, self._root = path, root

    def read(self) -> Mapping[str, Suspension]:
        """What is suspended now, by name; a file that is not there suspends nothing.

        Raises:
            OSError: it cannot be read now.
            ValueError: it does not say what is suspended, so nobody knows.
        """
        folder, name = os.path.split(self._path)
        try:
            here = files.enter(folder, self._root)
        except FileNotFoundError:
            return {}
        try:
            return self._read(name, here)
        finally:
            os.close(here)

    def suspend(self, name: str, since: float, who: str, why: str) -> bool:
        """Have a transport used no more; False when it was suspended already, and stays so.

        On the disk when it returns.

        Raises:
            OSError: it could not be written.
            ValueError: there is no such transport, or the file does not say what is suspended.
        """
        if name not in NAMES:
            raise ValueError(f"no transport {name!r}: expected one of {', '.join(NAMES)}")
        with self._changing() as suspended:
            if name in suspended:
                return False
            suspended[name] = Suspension(name, since, who[:_WORDS], why[:_WORDS])
        return True

    def resume(self, name: str) -> bool:
        """Have a transport used again; False when it was not suspended.

        Raises:
            OSError: it could not be written.
            ValueError: the file does not say what is suspended.
        """
        with self._changing() as suspended:
            return suspended.pop(name, None) is not None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Suspension]]:
        """What is suspended, to be changed by nobody else meanwhile; written where it was."""
        folder, name = os.path.split(self._path)
        here = files.enter(folder, self._root, make=True)
        try:
            lock = files.open_shared(f"{name}.lock", here, os.O_RDWR)
            try:
                with files.Flock(lock):
                    before = self._read(name, here)
                    after = dict(before)
                    yield after
                    if after != before:
                        files.replace(name, here, _written(after))
            finally:
                os.close(lock)
        finally:
            os.close(here)

    def _read(self, name: str, here: int) -> Mapping[str, Suspension]:
        try:
            fd = files.open_plain(name, here)
        except FileNotFoundError:
            return {}
        try:
            data, seen = files.read_guarded(fd)
            if why := _distrust(seen, os.fstat(here)):
                raise Refused(why)
            return _said(data)
        except (Refused, ValueError) as error:
            what_now = "no mail is sent until it is removed; then suspend again"
            raise ValueError(f"{self._path}: {error}: {what_now}") from error
        finally:
            os.close(fd)


def _distrust(seen: os.stat_result, folder: os.stat_result) -> str:
    if seen.st_mode & stat.S_IWOTH:
        return "may be written by everybody"
    return files.stranger(seen, folder)


def _written(suspended: Mapping[str, Suspension]) -> bytes:
    said = {name: {"since": s.since, "who": s.who, "why": s.why} for name, s in suspended.items()}
    return json.dumps(said, indent=1).encode() + b"\n"


def _said(data: bytes) -> Mapping[str, Suspension]:
    """The entries of a file, by transport.

    Raises:
        ValueError: it holds anything else.
    """
    found = {}
    for name, entry in decode.mapping(decode.load_json(data)).items():
        if name not in NAMES:
            raise ValueError(f"no transport {name[:40]!r}")
        entry = decode.mapping(entry, name)
        since = decode.epoch(entry.get("since"), f"{name}: since")
        who, why = (decode.text(entry.get(key, ""), f"{name}: {key}") for key in ("who", "why"))
        found[name] = Suspension(name, since, who, why)
    return found
