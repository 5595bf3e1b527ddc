"""Every call by which a process changes a file, counted; at one of them it is killed or refused."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import stat
import sys
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, NamedTuple

from engine import files

CHANGING = (
    *("write", "pwrite", "writev", "sendfile", "copy_file_range", "truncate", "ftruncate"),
    *("posix_fallocate", "rename", "replace", "link", "symlink", "unlink", "remove", "mkdir"),
    *("rmdir", "mkfifo", "mknod", "chmod", "fchmod", "chown", "fchown", "lchown", "utime"),
    *("fsync", "fdatasync", "sync", "setxattr", "removexattr"),
)
"""What `os` has to change a file with. `open` is a point where it may create or cut off."""

NEED_ROOM = {"write", "create", "mkdir", "link", "rename", "fsync", "ftruncate", "stdout"}
"""What a full disk refuses; it unlinks and locks as ever."""

NOT_RETRIED = {"rename", "link", "unlink", "mkdir", "utime"}
"""What Python does not call again when a signal interrupts it (PEP 475 leaves these out)."""

NEED_DESCRIPTOR = {"create"}
"""What a process at its limit of open files is refused."""

_write = os.write

KILLS = ("before", "torn")
ERRORS = ("EIO", "EACCES", "EINTR", "EMFILE", "EIO+", "ENOSPC+")
"""With `+`: from that point on, as a broken or a full disk does. EIO once stands for ENOSPC once:
to Python both are a plain OSError."""


class Fault(NamedTuple):
    """What goes wrong, and at which point."""

    step: int = 0
    """1 is the first point; 0: nowhere."""
    how: str = "before"
    """`before` or `torn`: killed before the call, or with half of it written; else an error."""

    def __str__(self) -> str:
        return f"{self.how} at point {self.step}"


class Points:
    """The points of this process, once installed; there is no way back."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.passed: list[str] = []
        """The kind of each point so far."""
        self.struck = 0
        """How often the fault was of any effect."""

    def install(self) -> None:
        """Stand between this process and the system."""
        for module in (os, files):
            for name, call in list(vars(module).items()):
                if name in CHANGING and isinstance(call, BuiltinFunctionType):
                    setattr(module, name, self._wrapped(name, call))
        opens: Callable[..., int] = os.open
        creates = self._wrapped("create", opens)

        def choose(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            making = flags & (os.O_CREAT | os.O_TRUNC)
            descriptor: int = (creates if making else opens)(path, flags, *rest, **more)
            return descriptor

        os.open = choose
        fcntl.flock = self._wrapped("flock", fcntl.flock)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Out(self._wrapped("stdout", _write))))

    def end(self) -> None:
        """The process has done all that it does, and ends."""
        if self._fault == Fault(len(self.passed) + 1):
            os.kill(os.getpid(), signal.SIGKILL)

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            kind = "overwrite" if name == "write" and _stays_long(args[0]) else name
            self.passed.append(kind)
            self._strike(kind, call, args)
            return call(*args, **options)

        return wrapper

    def _strike(self, name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        step, how = self._fault
        at, sticky = len(self.passed), how.endswith("+")
        if not step or not (at == step or (sticky and at > step)):
            return
        if how == "torn" and name == "write":
            call(args[0], args[1][: len(args[1]) // 2])
        if how in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, how.rstrip("+"))
        if at == step or _strikes(how, name):
            self.struck += 1
            raise OSError(number, os.strerror(number))


class _Out(io.RawIOBase):
    """Standard output as a file is: what is printed arrives when the buffer is flushed."""

    def __init__(self, write: Callable[[int, bytes], int]) -> None:
        super().__init__()
        self._write = write

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        if stat.S_ISCHR(os.fstat(1).st_mode):
            return len(data)  # led away to /dev/null, where nothing fails
        return self._write(1, bytes(data))


def _stays_long(fd: int) -> bool:
    """Whether a write goes into what is there: a few bytes of one page, which no kill divides."""
    return os.lseek(fd, 0, os.SEEK_CUR) < os.fstat(fd).st_size and not (
        fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
    )


def _strikes(how: str, name: str) -> bool:
    return {
        "ENOSPC": name in NEED_ROOM,
        "EINTR": name in NOT_RETRIED,
        "EMFILE": name in NEED_DESCRIPTOR,
    }.get(how.rstrip("+"), True)


def faults(points: list[str]) -> list[Fault]:
    """Everything that can go wrong on a way with these points.

    Killed after a point is killed before the next one, because nothing between two points changes
    a file; the one that follows the last point is the end of the process. And killed after what
    leaves every file as it was is killed before it.
    """
    numbered = list(enumerate(points, 1))
    before = ["", *points]
    killed = [Fault(step) for step, last in enumerate(before, 1) if last not in LEAVES_AS_IT_WAS]
    torn = [Fault(step, "torn") for step, name in numbered if name == "write"]
    refused = [Fault(step, how) for how in ERRORS for step, name in numbered if _strikes(how, name)]
    return killed + torn + refused


LEAVES_AS_IT_WAS = {"flock", "fsync", "fdatasync", "sync"}
"""A lock ends with its process, and a kill loses nothing that was written."""
