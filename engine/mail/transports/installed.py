"""What of mail is installed on this machine and runs: looked at, never run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from engine.system.users import Account, login

PLACES: Mapping[str, tuple[str, ...]] = {
    "postfix": ("/usr/sbin/postfix",),
    "sendmail": ("/usr/sbin/sendmail", "/usr/lib/sendmail"),
    "exim": ("/usr/sbin/exim",),
    "exim4": ("/usr/sbin/exim4",),
    "msmtp": ("/usr/bin/msmtp", "/usr/local/bin/msmtp"),
    "mailx": ("/usr/bin/mailx", "/bin/mailx"),
}
"""By the name of a program, where it is when nobody says."""


class MailProgram(NamedTuple):
    """A program that is installed, or not."""

    path: str
    """"" when it is not."""
    absence: str
    """Why it cannot be run; "" when it can."""


class _MailProcess(NamedTuple):
    """A process that lives, as /proc shows it."""

    name: str
    uid: int


class System:
    """This machine, as far as it matters for mail; its processes are looked at once."""

    def __init__(
        self,
        root: str = "",
        environ: Mapping[str, str] = os.environ,
        account: Account | None = None,
    ) -> None:
        """`root` is the folder that stands for `/`; `account` whom programs are run as, None: as
        we are."""
        self._root = root
        self.account = account
        self.environ = login(account, environ)

    def environment(self) -> dict[str, str]:
        """All that a program finds in its environment."""
        from engine.mail import run_program  # what starts processes is for whoever sends

        return run_program.environment(self.environ)

    def program(self, said: Mapping[str, str], *names: str) -> MailProgram:
        """The first of these programs that may be run; `said` tells where some of them are."""
        paths = [path for name in names for path in self._places(said, name)]
        for path in paths:
            if os.path.isfile(path) and self._permits(path, os.X_OK):
                return MailProgram(path, "")
        return MailProgram("", f"not installed: no {' or '.join(paths)} that may be run")

    def _places(self, said: Mapping[str, str], name: str) -> Iterator[str]:
        if name in said:
            yield said[name]
        else:
            yield from (self._root + path for path in PLACES[name])

    def readable(self, path: str) -> bool:
        """Whether a file is there that may be read by whom programs are run as."""
        path = self._root + path
        return os.path.isfile(path) and self._permits(path, os.R_OK)

    def _permits(self, path: str, need: int) -> bool:
        """Whether whom programs are run as may read or run a file.

        Root may do all, and asks for somebody else: so the mode bits are read, of the file and of
        each folder above it, and access lists are not.
        """
        who = self.account
        if who is None or who.uid == 0:
            return os.access(path, need)
        path, top = os.path.realpath(path), os.path.realpath(self._root or "/")
        try:
            while _grants(os.stat(path), who, need):
                path, need = os.path.dirname(path), os.X_OK
                if path in (top, "/"):
                    return True
        except OSError:
            return False  # it has gone since it was seen, or is hidden from us
        return False

    def opened(self, path: str, more: int = 0) -> int:
        """A descriptor for a file of the machine, for reading; it is the caller's to close.
        `more` are flags beside those that keep us from being held up.

        Raises:
            OSError: it is not there, or not for us.
        """
        return os.open(self._root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | more)

    def text(self, path: str, most: int = 65536) -> str:
        """What a file of the machine begins with, `most` bytes of it; "" when it cannot be read."""
        try:
            fd = self.opened(path)
        except OSError:
            return ""  # it is not there, or not for us
        try:
            return os.read(fd, most).decode("utf-8", "replace")
        except OSError:
            return ""  # a folder, or a process that has ended since it was opened
        finally:
            os.close(fd)

    def runs(self, names: Collection[str], uid: int | None = None) -> bool:
        """Whether a process of one of these names lives, under `uid` if that is said."""
        return any(each.name in names and uid in (None, each.uid) for each in self._processes)

    @cached_property
    def blind(self) -> bool:
        """Whether the processes of others are hidden from us (hidepid, ProtectProc), or all are."""
        return not self.text("/proc/1/status", 64)

    @cached_property
    def _processes(self) -> Collection[_MailProcess]:
        try:
            pids = os.listdir(f"{self._root}/proc")
        except OSError:
            return ()  # there is no /proc: `blind` says so
        seen = (_alive(self.text(f"/proc/{pid}/status", 4096)) for pid in pids if pid.isdecimal())
        return [process for process in seen if process]


def _alive(status: str) -> _MailProcess | None:
    """A process by its /proc/PID/status; None when it is dead, or lives in a container of its own,
    whose mail is not ours. Source: proc(5)."""
    said = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.split("\n")}
    name, uid = " ".join(said.get("Name", ())), said.get("Uid", ())
    if not name or not uid or said.get("State", ["Z"])[0] in "ZX" or len(said.get("NSpid", ())) > 1:
        return None
    return _MailProcess(name, int(uid[0]))


def _grants(seen: os.stat_result, who: Account, need: int) -> bool:
    """Whether the mode bits of a file let somebody read or run it."""
    if seen.st_uid == who.uid:
        return bool(seen.st_mode >> 6 & need)
    if seen.st_gid in (who.gid, *who.groups):
        return bool(seen.st_mode >> 3 & need)
    return bool(seen.st_mode & need)
