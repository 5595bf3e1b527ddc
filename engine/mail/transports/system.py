"""What of mail is installed on this machine and runs: looked at, never run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.accounts import Account

PLACES: Mapping[str, tuple[str, ...]] = {
    "postfix": ("/usr/sbin/postfix",),
    "sendmail": ("/usr/sbin/sendmail", "/usr/lib/sendmail"),
    "exim": ("/usr/sbin/exim",),
    "exim4": ("/usr/sbin/exim4",),
    "msmtp": ("/usr/bin/msmtp", "/usr/local/bin/msmtp"),
    "mailx": ("/usr/bin/mailx", "/bin/mailx"),
}
"""By the name of a program, where it is when nobody says."""


class Program(NamedTuple):
    """A program that is installed, or not."""

    path: str
    """"" when it is not."""
    absence: str
    """Why it cannot be run; "" when it can."""


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
        self.environ = environ
        if account is not None:
            theirs = {key: value for key, value in environ.items() if key != "XDG_CONFIG_HOME"}
            self.environ = {**theirs, **account.environment}

    def environment(self) -> dict[str, str]:
        """All that a program finds in its environment."""
        from engine.mail import running  # what starts processes is for whoever sends

        return running.environment(self.environ)

    def program(self, said: Mapping[str, str], *names: str) -> Program:
        """The first of these programs that may be run; `said` tells where some of them are."""
        paths = [path for name in names for path in self._places(said, name)]
        for path in paths:
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return Program(path, "")
        return Program("", f"not installed: no {' or '.join(paths)} that may be run")

    def _places(self, said: Mapping[str, str], name: str) -> Iterator[str]:
        if name in said:
            yield said[name]
        else:
            yield from (self._root + path for path in PLACES[name])

    def readable(self, path: str) -> bool:
        """Whether a file is there that we may read."""
        path = self._root + path
        return os.path.isfile(path) and os.access(path, os.R_OK)

    def runs(self, names: Collection[str], pid_file: str = "") -> bool:
        """Whether a process of one of these names lives, or the one that a file names."""
        if not self._names.isdisjoint(names):
            return True
        pid = self._pid(pid_file) if pid_file else ""
        return bool(pid) and (self.blind or os.path.exists(f"{self._root}/proc/{pid}"))

    @cached_property
    def blind(self) -> bool:
        """Whether the processes of others are hidden from us (hidepid, ProtectProc)."""
        return not os.path.exists(f"{self._root}/proc/1")

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self._name_of(pid) for pid in os.listdir(f"{self._root}/proc"))

    def _name_of(self, pid: str) -> str:
        if not pid.isdecimal():
            return ""
        try:
            with open(f"{self._root}/proc/{pid}/comm", "rb") as file:
                return file.read(64).decode("utf-8", "replace").rstrip("\n")
        except OSError:
            return ""  # it has ended since we listed them, or is hidden from us

    def _pid(self, path: str) -> str:
        try:
            fd = os.open(self._root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ""  # it is not there, or not for us
        try:
            word = os.read(fd, 64).split(maxsplit=1)[:1]
        finally:
            os.close(fd)
        return word[0].decode("ascii", "replace") if word and word[0].isdigit() else ""
