"""Runs a program that takes a mail: no shell, an end by the clock, and whether it read the mail."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from engine.accounts import Account, login
from engine.mail.model import NotSent, Reason
from engine.text import shown

KEPT = 8192
"""Bytes of output that are remembered, the last ones; a program may print without end."""

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for a group that ran out of time; and as long may live what
a program left behind when it said that it took the mail."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for, by us and by those that we run: whoever starts us has no say."""

HANDED_ON = ("HOME", "LOGNAME", "TZ", "USER", "XDG_CONFIG_HOME")
"""Of our environment, what a program is given: where its own configuration lies, and the time zone.
All else stays here; among it is the relay's password."""

_TICK = 1.0
"""Seconds after which a running program is looked at again for being cancelled."""

_READS = 32
"""Pieces of 64 KiB that are read before the clock is looked at; a pipe holds 1 MiB at most."""


class Ran(NamedTuple):
    """What a program left behind."""

    status: int | None
    """Its exit status; the number of a signal that ended it, negative; None: nobody knows, or it
    could not be ended."""
    output: bytes
    """What it said last on standard output and standard error, together."""
    ended: str = ""
    """Why it was ended: `timeout after N s` or `stopped`; "" when it ended by itself."""
    unread: bool = False
    """Whether it left something of what it was given unread."""


def environment(
    environ: Mapping[str, str] = os.environ, account: Account | None = None
) -> dict[str, str]:
    """The whole environment of a program that we start: `HANDED_ON`, a fixed PATH, C.UTF-8.

    Mail programs and handlers get it. `account` is whom the program is run as; None: as we are.
    """
    ours = login(account, environ)
    kept = {name: ours[name] for name in HANDED_ON if name in ours}
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", **kept}


def found(name: str) -> str:
    """The path of an installed program; "" when there is none."""
    paths = (f"{folder}/{name}" for folder in PATH.split(":"))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


def run(
    argv: Sequence[str],
    stdin: bytes,
    timeout: float,
    cancelled: Callable[[], bool],
    env: Mapping[str, str] | None = None,
    *,
    pass_fds: Collection[int] = (),
    grace: float = GRACE,
    account: Account | None = None,
) -> Ran:
    """Run a program to its end, at most `timeout` seconds; `cancelled` ends it as well. One that
    cannot be ended is left to itself two graces later.

    `account` is whom to run it as, which only root can; None: as we are.

    What is left in its process group then is killed: nobody sends a mail that we told of as not
    sent. Only what it left when it ended well may go on for `grace` seconds, while it holds on to
    its output: a script that hands the mail on in the background has said that it was taken.

    Raises:
        NotSent: it cannot be started, or not be followed.
    """
    # A pipe: a program that is confined (AppArmor, SELinux) may not read a file that we opened.
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise _not_started(argv[0], error) from error
    try:
        try:
            process = subprocess.Popen(
                argv,
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment() if env is None else env,
                cwd="/",
                pass_fds=tuple(pass_fds),
                start_new_session=True,
                user=account and account.uid,
                group=account and account.gid,
                extra_groups=account and account.groups,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _not_started(argv[0], error) from error
        given = _Given(reading, writing, stdin)
        writing = -1
        try:
            return _Following(process, given, grace).to_its_end(timeout, cancelled)
        except OSError as error:
            text = shown(f"cannot follow {argv[0]}: {error.strerror}")
            raise NotSent(Reason.UNAVAILABLE, "unavailable_not_followed", text) from error
        finally:
            given.close()
            # Its number is still its own, because it has not been waited for.
            _signal_group(process, signal.SIGKILL)
            _let_go(process)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def _not_started(program: str, error: Exception) -> NotSent:
    why = error.strerror if isinstance(error, OSError) else error
    text = shown(f"cannot start {program}: {why}")
    return NotSent(Reason.UNAVAILABLE, "unavailable_not_started", text)


class _Given:
    """What a program is given on standard input, as far as the pipe has taken it.

    Our own end for reading stays open, only to be asked how much lies there unread; that is also
    why writing never breaks, whatever the program does with its end.
    """

    def __init__(self, reading: int, writing: int, data: bytes) -> None:
        self._reading, self.pipe = reading, writing
        self._left = memoryview(data)

    def write(self) -> bool:
        """Write what fits; whether there is more to write."""
        try:
            while self._left:
                self._left = self._left[os.write(self.pipe, self._left) :]
        except BlockingIOError:
            return True
        self.close()  # so that the program sees the end of its input
        return False

    def unread(self) -> bool:
        """Whether something was not taken, or lies in the pipe still."""
        lying = fcntl.ioctl(self._reading, termios.FIONREAD, bytes(4))
        return bool(self._left) or any(lying)

    def close(self) -> None:
        """Let it have no more."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1


class _Following:
    """A program that runs, up to its end."""

    def __init__(self, process: subprocess.Popen[bytes], given: _Given, grace: float) -> None:
        assert process.stdout is not None
        self._process, self._given, self._grace = process, given, grace
        self._pipe = process.stdout.fileno()
        self._output = b""

    def to_its_end(self, timeout: float, cancelled: Callable[[], bool]) -> Ran:
        """What it left behind."""
        os.set_blocking(self._pipe, False)
        os.set_blocking(self._given.pipe, False)
        pidfd = os.pidfd_open(self._process.pid)
        try:
            ended, left = self._follow(pidfd, timeout, cancelled)
            status = self._status(pidfd)
        finally:
            os.close(pidfd)
        self._read_on(min(self._grace, left) if status == 0 and not ended else 0.0)
        return Ran(status, self._output, ended, self._given.unread())

    def _follow(
        self, pidfd: int, timeout: float, cancelled: Callable[[], bool]
    ) -> tuple[str, float]:
        """Why it was ended, if it was, and the seconds that it had left."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        if self._given.write():
            poll.register(self._given.pipe, select.POLLOUT)
        deadline = time.monotonic() + timeout
        ended, killing = "", False
        while True:
            left = deadline - time.monotonic()
            if not ended and (left <= 0 or cancelled()):
                ended = f"timeout after {timeout:g} s" if left <= 0 else "stopped"
                _signal_group(self._process, signal.SIGTERM)
                deadline = time.monotonic() + self._grace
            elif left <= 0 and killing:
                # Beyond our reach: it became another user's (setuid), or hangs in the system.
                return ended, 0.0
            elif left <= 0:
                killing = True
                _signal_group(self._process, signal.SIGKILL)
                deadline = time.monotonic() + self._grace
            ready = dict(poll.poll(1000 * min(_TICK, max(left, 0.01))))
            pipe = self._given.pipe
            if pipe in ready and not self._given.write():
                poll.unregister(pipe)
            if self._pipe in ready and not self._read():
                poll.unregister(self._pipe)
            if pidfd in ready:
                return ended, left

    def _status(self, pidfd: int) -> int | None:
        try:
            end = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            # Where SIGCHLD is ignored the system waits for it and keeps its status to itself;
            # once that is noted, nobody signals what may be another's number by now.
            self._process.poll()
            return None
        if end is None:
            return None  # it goes on, and we do not wait
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def _read_on(self, seconds: float) -> None:
        """Read what is there, and go on while somebody whom it left behind holds its output."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        deadline = time.monotonic() + seconds
        while self._read() and (left := deadline - time.monotonic()) > 0:
            poll.poll(1000 * left)

    def _read(self) -> bool:
        """Read what is there; whether more can come."""
        # Not until nothing is there: a program may write faster than we read, and must end in time.
        for _ in range(_READS):
            try:
                more = os.read(self._pipe, 65536)
            except BlockingIOError:
                return True
            if not more:
                return False
            self._output = (self._output + more)[-KEPT:]
        return True


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody left, or it became another user's and is beyond our reach


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Take note that it ended, whenever that is."""
    assert process.stdout is not None
    process.stdout.close()
    if process.poll() is None:
        threading.Thread(target=process.wait, daemon=True).start()
