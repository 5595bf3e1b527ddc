"""Detect installed mail programs and running mail daemons, without running any program."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from engine.system.users import Account, login_environment
from engine.values import NamedTuple

DEFAULT_PATHS: Mapping[str, tuple[str, ...]] = {
    "postfix": ("/usr/sbin/postfix",),
    "sendmail": ("/usr/sbin/sendmail", "/usr/lib/sendmail"),
    "exim": ("/usr/sbin/exim",),
    "exim4": ("/usr/sbin/exim4",),
    "msmtp": ("/usr/bin/msmtp", "/usr/local/bin/msmtp"),
    "mailx": ("/usr/bin/mailx", "/bin/mailx"),
}
"""Default paths of the programs."""

EXIM_NAMES = ("exim", "exim4")
"""Names of Exim's program and process; Debian uses exim4."""


class MailProgram(NamedTuple):
    """A program, installed or not."""

    path: str
    """"" if it is not installed."""
    absence: str
    """Why it cannot be run; "" if it can."""


class _MailProcess(NamedTuple):
    name: str
    uid: int


class System:
    """The programs, files and processes of this machine that matter for mail; processes are read
    once."""

    def __init__(
        self,
        root: str = "",
        environ: Mapping[str, str] = os.environ,
        account: Account | None = None,
    ) -> None:
        """`root` is the folder to use as `/`; `account` is the user that runs programs, None is our
        own."""
        self._root = root
        self.account = account
        self.environ = login_environment(account, environ)

    def environment(self) -> dict[str, str]:
        """Return the environment of a program."""
        from engine.system import run_program  # only senders need the code that starts processes

        return run_program.environment(self.environ)

    def find_program(self, configured: Mapping[str, str], *names: str) -> MailProgram:
        """Return the first of these programs that can be run; `configured` are paths by name."""
        paths = [path for name in names for path in self._candidate_paths(configured, name)]
        for path in paths:
            if os.path.isfile(path) and self._permits(path, os.X_OK):
                return MailProgram(path, "")
        return MailProgram("", f"not installed: no {' or '.join(paths)} that can be run")

    def _candidate_paths(self, configured: Mapping[str, str], name: str) -> Iterator[str]:
        if name in configured:
            yield configured[name]
        else:
            yield from (self._root + path for path in DEFAULT_PATHS[name])

    def is_readable(self, path: str) -> bool:
        """True if the file exists and the user that runs programs can read it."""
        path = self._root + path
        return os.path.isfile(path) and self._permits(path, os.R_OK)

    def _permits(self, path: str, need: int) -> bool:
        """True if the user that runs programs can read or run a file. If we are root and the user
        is another one, the mode bits of the file and of each folder above it are checked; access
        lists are not."""
        who = self.account
        if who is None or who.uid == 0:
            return os.access(path, need)
        path, top = os.path.realpath(path), os.path.realpath(self._root or "/")
        try:
            while _permits_account(os.stat(path), who, need):
                path, need = os.path.dirname(path), os.X_OK
                if path in (top, "/"):
                    return True
        except OSError:
            return False  # removed in between, or hidden from us
        return False

    def open_file(self, path: str, more: int = 0) -> int:
        """Open a file of the machine for reading; the caller closes the descriptor.

        `more` are flags added to those that prevent blocking.

        Raises:
            OSError: it does not exist, or we may not read it.
        """
        return os.open(self._root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | more)

    def read_text(self, path: str, most: int = 65536) -> str:
        """Read at most `most` bytes of a file of the machine; "" if it cannot be read."""
        try:
            fd = self.open_file(path)
        except OSError:
            return ""  # missing, or no permission
        try:
            return os.read(fd, most).decode("utf-8", "replace")
        except OSError:
            return ""  # a folder, or a process that has ended
        finally:
            os.close(fd)

    def has_process(self, names: Collection[str], uid: int | None = None) -> bool:
        """True if a process with one of these names is running, under `uid` if given."""
        return any(each.name in names and uid in (None, each.uid) for each in self._processes)

    @cached_property
    def hides_processes(self) -> bool:
        """True if the processes of other users are hidden from us (hidepid, ProtectProc), or all
        are."""
        return not self.read_text("/proc/1/status", 64)

    @cached_property
    def _processes(self) -> Collection[_MailProcess]:
        try:
            pids = os.listdir(f"{self._root}/proc")
        except OSError:
            return ()  # no /proc: `hides_processes` reports it
        statuses = (
            _parse_status(self.read_text(f"/proc/{pid}/status", 4096))
            for pid in pids
            if pid.isdecimal()
        )
        return [process for process in statuses if process]


def _parse_status(status: str) -> _MailProcess | None:
    """Parse /proc/PID/status; None if the process is dead, or in a container with its own mail
    system. Source: proc(5)."""
    values = {line.partition(":")[0]: line.partition(":")[2].split() for line in status.split("\n")}
    name, uid = " ".join(values.get("Name", ())), values.get("Uid", ())
    if (
        not name
        or not uid
        or values.get("State", ["Z"])[0] in "ZX"
        or len(values.get("NSpid", ())) > 1
    ):
        return None
    return _MailProcess(name, int(uid[0]))


def _permits_account(file_stat: os.stat_result, who: Account, need: int) -> bool:
    if file_stat.st_uid == who.uid:
        return bool(file_stat.st_mode >> 6 & need)
    if file_stat.st_gid in (who.gid, *who.groups):
        return bool(file_stat.st_mode >> 3 & need)
    return bool(file_stat.st_mode & need)
