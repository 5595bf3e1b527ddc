"""Kill, tear or refuse a process at each point where it changes a file, by forks of this process.

A *point* is a call of `os`, `fcntl` or `engine.system.files` that changes a file, or SQL.
A *case* prepares a folder once. Each run restores it, forks and acts with one fault, recovers
(after a kill, a first recovery is killed as well, each time further on) and checks what is there.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import signal
import sqlite3
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import time as wall_clock
from types import BuiltinFunctionType
from typing import Any, NamedTuple

from engine.model import Task
from engine.store import Store, StoreError
from engine.system import files

# ---- points and faults

CHANGING = re.compile(
    "write|pwrite|writev|sendfile|copy_file_range|truncate|ftruncate|posix_fallocate|rename|replace"
    "|link|symlink|unlink|remove|mkdir|rmdir|mkfifo|mknod|chmod|fchmod|chown|fchown|lchown|utime"
    "|fsync|fdatasync|sync|setxattr|removexattr"
)
"""The calls of `os` that change a file; `open` is a point where it may create or truncate, and
`flock` where it may lock."""
ADD_DATA = {"write", "create", "mkdir", "link", "symlink", "rename", "fsync", "ftruncate", "stdout"}
"""What a full disk refuses: it unlinks and locks as ever."""
NOT_RETRIED = {"rename", "link", "symlink", "unlink", "mkdir", "utime"}
"""What Python does not call again when a signal interrupts it (PEP 475 excludes these)."""
CHANGE_NOTHING = {"flock", "fsync", "fdatasync", "sync"}
"""A lock ends with its process, and a kill loses nothing that was written."""

KILLS = ("before", "torn")
ERRORS = ("EIO", "EACCES", "EINTR", "EMFILE", "EIO+", "ENOSPC+")
"""With `+`: from that point on, as a broken or a full disk does. EIO once means ENOSPC once:
to Python both are a plain OSError."""

_pwrite, _write, _connect = os.pwrite, os.write, sqlite3.connect


class Fault(NamedTuple):
    """What goes wrong, and at which point."""

    step: int = 0
    """1 is the first point; 0: there is no fault."""
    how: str = "before"
    """`before` or `torn`: killed before the call, or with half of its data written; else an
    error."""

    def __str__(self) -> str:
        return f"{self.how} at point {self.step}"


def applies(how: str, point: str) -> bool:
    """Whether an error can happen at a point of this kind."""
    error = how.rstrip("+")
    kinds = {"ENOSPC": ADD_DATA, "EINTR": NOT_RETRIED, "EMFILE": {"create"}}
    return point != "sql" and (error not in kinds or point in kinds[error])


def faults(points: Sequence[str], errors: Iterable[str] = ERRORS) -> list[Fault]:
    """Return all faults of a run with these points.

    A kill after a point is a kill before the next one, as nothing between two points changes a
    file; the last one is the end of the process."""
    killed = [Fault(s) for s, last in enumerate(["", *points], 1) if last not in CHANGE_NOTHING]
    numbered = list(enumerate(points, 1))
    torn = [Fault(step, "torn") for step, point in numbered if point == "write"]
    return killed + torn + [Fault(s, how) for how in errors for s, p in numbered if applies(how, p)]


class Points:
    """Counts the points of this process from `counting` on and causes one fault; for a fork."""

    def __init__(self, fault: Fault, sql: bool = False) -> None:
        """`sql`: count the statements that SQLite carries out instead of changes of files."""
        self._fault = fault
        self.counting = False
        self.passed: list[str] = []
        self.struck = False
        if sql:
            sqlite3.connect = self._connect  # type: ignore[assignment]
            return
        for module in (os, files):
            for name, call in list(vars(module).items()):
                if CHANGING.fullmatch(name) and isinstance(call, BuiltinFunctionType):
                    setattr(module, name, self._counted(name, call))
        opens, flock = os.open, fcntl.flock
        creates, locks = self._counted("create", opens), self._counted("flock", flock)

        def open_or_create(path: Any, flags: int, *rest: Any, **more: Any) -> Any:
            call = creates if flags & (os.O_CREAT | os.O_TRUNC) else opens
            return call(path, flags, *rest, **more)

        os.open = open_or_create
        fcntl.flock = lambda fd, how: (flock if how & fcntl.LOCK_UN else locks)(fd, how)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Out(self._counted("stdout", _write))))

    def end(self) -> None:
        """Pass the last point: the process has done everything, and ends."""
        if self._fault == Fault(len(self.passed) + 1):
            os.kill(os.getpid(), signal.SIGKILL)

    def _connect(self, *args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = _connect(*args, **options)
        connection.set_trace_callback(lambda statement: self._pass("sql", _write, ()))
        return connection

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if self.counting:
                overwrites = name == "write" and _overwrites(args[0])
                self._pass("overwrite" if overwrites else name, call, args)
            return call(*args, **options)

        return counted

    def _pass(self, point: str, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not self.counting:
            return
        self.passed.append(point)
        step, how = self._fault
        at, sticky = len(self.passed), how.endswith("+")
        if not step or not (at == step or (sticky and at > step)):
            return
        if how == "torn" and point == "write":
            call(args[0], args[1][: len(args[1]) // 2])
        if how in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if at == step or applies(how, point):
            self.struck = True
            number = getattr(errno, how.rstrip("+"))
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
            return len(data)  # redirected to /dev/null, where nothing fails
        return self._write(1, bytes(data))


def _overwrites(fd: int) -> bool:
    """Whether a write changes a few bytes that are there: within one page, which no kill tears."""
    return os.lseek(fd, 0, os.SEEK_CUR) < os.fstat(fd).st_size and not (
        fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
    )


# ---- a folder as a value


class Entry(NamedTuple):
    """A file or folder of a tree."""

    path: str
    content: bytes | str | None
    """Bytes of a file, target of a symbolic link; None: a folder."""
    mode: int
    owner: tuple[int, int]
    times: tuple[int, int]
    """Access and modification, nanoseconds."""


def read_tree(root: str, under: str = "") -> Iterator[Entry]:
    """Return everything below `root`, folders before what is in them."""
    for dir_entry in sorted(os.scandir(f"{root}/{under}"), key=lambda entry: entry.name):
        status = dir_entry.stat(follow_symlinks=False)
        content: bytes | str | None = None
        if dir_entry.is_symlink():
            content = str(Path(dir_entry.path).readlink())
        elif dir_entry.is_file():
            content = Path(dir_entry.path).read_bytes()
        owner, times = (status.st_uid, status.st_gid), (status.st_atime_ns, status.st_mtime_ns)
        yield Entry(f"{under}{dir_entry.name}", content, stat.S_IMODE(status.st_mode), owner, times)
        if content is None:
            yield from read_tree(root, f"{under}{dir_entry.name}/")


def write_tree(root: Path, entries: Iterable[Entry]) -> None:
    """Make `root`, which must not exist, with everything in it."""
    root.mkdir()
    us = os.geteuid(), os.getegid()
    for entry in entries:
        path = root / entry.path
        if entry.content is None:
            path.mkdir(entry.mode)
        elif isinstance(entry.content, str):
            path.symlink_to(entry.content)
        else:
            path.write_bytes(entry.content)
            path.chmod(entry.mode)
        if entry.content is not None:
            os.utime(path, ns=entry.times, follow_symlinks=False)
        if entry.owner != us:
            os.chown(path, *entry.owner, follow_symlinks=False)


def remove_tree(root: Path) -> None:
    """Remove `root` and everything in it."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()
    root.rmdir()


# ---- cases and their runs

HANGS_SECONDS = 20
"""A process that has not ended by then never will."""
ACT_AFTER_SECONDS, RECOVER_AFTER_SECONDS = 100, 300
"""When a case acts and recovers, after its folder was restored: each file was unchanged for longer
than the 60 s for which a process might be working on it, and no lock is stuck (1200 s) yet."""


class Ended(NamedTuple):
    """How a run ended, and what it reported."""

    fault: Fault = Fault()
    killed: bool = False
    """By the fault; then nothing else is known but what it printed."""
    signal: int = 0
    """Of another signal that ended it: it hung or crashed."""
    answer: Any = None
    """What the act returned."""
    refused: str | None = None
    """The error by which it refused."""
    out: str = ""
    err: str = ""
    points: Sequence[str] = ()
    struck: bool = False

    @property
    def done(self) -> bool:
        """Whether it reported that it did what it was asked for."""
        return not self.killed and not self.signal and self.refused is None


def tasks_in(store: Store, ids: Iterable[str] | None = None) -> list[Task]:
    """Return all tasks of a store, or some; of one that is shown twice, the later one."""
    scans = [store.scan()] if ids is None else [store.scan({ident}) for ident in ids]
    return [*{t.id: t for scan in scans for t in scan if isinstance(t, Task)}.values()]


class Result(NamedTuple):
    """The result of all runs of one case."""

    points: int
    runs: int
    failures: list[str]
    """Each with the fault, the point and what does not hold."""


class Case:
    """One action in one folder; a format's table holds subclasses or objects of this."""

    floor = 1
    """Fewer points than this mean that something is not counted any more."""
    sql = False
    errors: tuple[str, ...] = ERRORS
    refusals: tuple[type[Exception], ...] = (StoreError,)
    """The errors by which the action may refuse."""
    atomic = False
    """Whether all that `content` returns changes together or not at all."""
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    """The recovered content without the action, and after it."""
    end: Mapping[str, Any] | None = None
    """What the content is to be after it, if its row says so."""

    def lay_out(self, root: Path) -> None:
        """Fill the folder, once."""

    def restored(self, root: Path, now: float) -> None:
        """Add what no copy keeps, each time the folder was restored."""

    def ended(self, root: Path) -> None:
        """End what `restored` began, before anything is recovered; may be called again."""

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        """Return the action, with everything open that it needs; called in a fork."""
        raise NotImplementedError

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report what is wrong before recovery."""
        return iter(())

    def recover(self, root: Path, now: float) -> None:
        """Recover as the next process does."""

    def content(self, root: Path) -> Mapping[str, object]:
        """Return what must be as before the action, or as after it, by name."""
        return {}

    def promises(self, ended: Ended) -> bool:
        """Whether the content must be as after the action."""
        return ended.done

    def between(self, name: str) -> tuple[object, ...]:
        """Return what else a killed or refused action may leave under a name."""
        return ()

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Report what else is wrong after recovery; may go on with the work to find out."""
        return iter(())

    def undisturbed(self) -> Iterator[str]:
        """Report what is wrong with `before` and `after`."""
        if self.end is not None and self.after != self.end:
            yield f"leads to {self.after}, not {self.end}"

    def sweep(self, folder: Path, every: int = 1) -> Result:
        """Make all runs, or each so many-th."""
        return Sweep(self, folder).result(every)


class Sweep:
    """All runs of one case in one folder."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.root = folder / "place"
        self.root.mkdir(parents=True)
        self._case = case
        case.lay_out(self.root)
        self._tree = list(read_tree(str(self.root)))
        remove_tree(self.root)
        self._measured = False
        self._recovery_points = 1
        self._fds = tuple(map(os.memfd_create, ("out", "err", "report")))
        self.runs = 0

    def result(self, every: int = 1) -> Result:
        """Make each so many-th run there is."""
        points, failures = self._undisturbed()
        for fault in faults(points, self._case.errors)[::every] if not failures else ():
            where = ["", *points, "its end"][fault.step]
            failures += [f"{fault} ({where}): {what}" for what in self._with(fault)]
        if len(points) < self._case.floor:
            failures.append(f"{len(points)} points, expected {self._case.floor} or more")
        return Result(len(points), self.runs, failures)

    @contextmanager
    def restored(self) -> Iterator[float]:
        """Restore the folder; it exists within the block. Yields the time to act at."""
        self.runs += 1
        write_tree(self.root, self._tree)
        now = int(wall_clock()) + ACT_AFTER_SECONDS
        self._case.restored(self.root, now)
        yield now
        self._case.ended(self.root)
        remove_tree(self.root)

    def checked(self, ended: Ended, now: float) -> list[str]:
        """Recover, and return what is wrong then."""
        try:
            return list(self._checked(ended, now))
        except (AssertionError, StoreError, OSError) as error:
            return ["".join(traceback.format_exception(error, limit=-1))[:900]]

    def _undisturbed(self) -> tuple[Sequence[str], list[str]]:
        with self.restored() as now:
            begun = self._fork(self._begin_only, Fault(), now)
            self._case.ended(self.root)
            self._case.recover(self.root, _recovery(now))
            self._case.before = self._case.content(self.root)
        with self.restored() as now:
            ended = self._fork(self._case.begin, Fault(), now)
            wrong = [text for text in (begun.refused, ended.refused) if text is not None]
            wrong += self.checked(ended, now)
        wrong += self._case.undisturbed()
        return ended.points, [f"undisturbed: {what}" for what in wrong]

    def _begin_only(self, root: Path, now: float) -> Callable[[], object]:
        self._case.begin(root, now)
        return lambda: None

    def _with(self, fault: Fault) -> list[str]:
        with self.restored() as now:
            ended = self._fork(self._case.begin, fault, now)
            if fault.how in KILLS:
                if not ended.killed:
                    return [f"was not killed, but ended: {ended}"]
                self._case.ended(self.root)
                second = self._kill_recovery(now)
                return [f"(recovery {second}) {what}" for what in self.checked(ended, now)]
            missed = [] if ended.struck or ended.signal else ["never came to this point"]
            return missed + self.checked(ended, now)

    def _kill_recovery(self, now: float) -> Fault:
        """Kill a first recovery, each time further on."""
        fault = Fault(1 + self.runs % self._recovery_points)
        ended = self._fork(
            lambda root, now: partial(self._case.recover, root, now), fault, _recovery(now) - 1
        )
        self._recovery_points = self._recovery_points + 1 if ended.killed else len(ended.points) + 1
        return fault

    def _checked(self, ended: Ended, now: float) -> Iterator[str]:
        case = self._case
        case.ended(self.root)
        if ended.signal:
            yield f"hung or crashed: signal {ended.signal}"
        if "Traceback" in ended.err or "Exception ignored" in ended.err:
            yield f"crashed: {ended.err[-900:]}"
        yield from case.left(self.root, ended)
        case.recover(self.root, _recovery(now))
        content = case.content(self.root)
        if not self._measured:
            case.after, self._measured = content, True
        for name in {*case.before, *case.after, *content}:
            may = [case.after.get(name)]
            if not case.promises(ended):
                may += [case.before.get(name), *case.between(name)]
            if (there := content.get(name)) not in may:
                yield f"{name} is {there}, not one of {may}"
        if case.atomic and content not in (case.before, case.after):
            yield f"done in part: {content}"
        yield from case.wrong(self.root, ended, content)

    def _fork(
        self, begin: Callable[[Path, float], Callable[[], object]], fault: Fault, now: float
    ) -> Ended:
        """Begin and act in a fork, with one fault."""
        for fd in self._fds:
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        child = os.fork()
        if child == 0:
            try:
                os.dup2(self._fds[0], 1)
                os.dup2(self._fds[1], 2)
                signal.alarm(HANGS_SECONDS)
                report = json.dumps(self._reported(begin, fault, now), default=repr)
                _pwrite(self._fds[2], report.encode(), 0)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        killed = number == signal.SIGKILL and fault.how in KILLS
        out, err, report = (os.pread(fd, 1 << 24, 0).decode() for fd in self._fds)
        reported = json.loads(report) if report else {} if number else {"refused": "no report"}
        return Ended(fault, killed, 0 if killed else number, out=out, err=err, **reported)

    def _reported(
        self, begin: Callable[[Path, float], Callable[[], object]], fault: Fault, now: float
    ) -> dict[str, Any]:
        points = Points(fault, self._case.sql)
        answer, refused = None, None
        try:
            act = begin(self.root, now)
            points.counting = True
            answer = act()
        except self._case.refusals as error:
            refused = str(error)
        except BaseException:
            refused = "crashed"
            traceback.print_exc()
        points.end()
        points.counting = False
        passed, struck = points.passed, points.struck
        return {"answer": answer, "refused": refused, "points": passed, "struck": struck}


def _recovery(now: float) -> float:
    return now + RECOVER_AFTER_SECONDS - ACT_AFTER_SECONDS
