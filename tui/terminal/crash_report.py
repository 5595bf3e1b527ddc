"""What is kept of a crash: which error, and where in the program; nothing of what it worked on.

An error's message and the values around it may hold task contents, addresses and paths. So a
report has neither, for errors of ours as little as for others: it has their types, the numbers that
systems give them, and the lines of code that they passed through.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.system import files

EX_SOFTWARE = 70
"""The exit code of a program that failed by its own fault (sysexits.h)."""

FRAMES = 40
"""Lines of code that are kept of each error, half from either end: a recursion has thousands."""

ERRORS = 16
"""Errors that are kept: each one may have come up while another one was handled."""

TERMINAL = ("TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "NO_COLOR", "TMUX", "STY", "SSH_TTY")
"""What the environment says about the terminal; of the last three only that they are set."""

_HIDDEN = frozenset({"TMUX", "STY", "SSH_TTY"})

ROOT = Path(__file__).resolve().parents[2]


class CrashReport(NamedTuple):
    """A crash, in words that may be handed on."""

    headline: str
    """The error's type and where it came up."""
    text: str


def report(error: BaseException, environ: Mapping[str, str], now: float) -> CrashReport:
    """What is to be kept of an error that came up at `now` (epoch seconds UTC)."""
    while isinstance(inner := getattr(error, "error", None), BaseException):
        error = inner  # the library wraps what fails in a worker
    errors = list(_chain(error))[:ERRORS]
    where = _innermost(errors[0])
    lines = [
        "spooldeck crash report",
        "It holds no task contents: neither messages of errors nor values of variables.",
        "",
        f"when       {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now))}",
        *(f"{name:<10} {words}" for name, words in _versions()),
        *(f"{name:<10} {_about(name, environ)}" for name in TERMINAL if name in environ),
        f"{'size':<10} {_size()}",
    ]
    for number, each in enumerate(errors):
        lines += ["", ("" if number == 0 else "while or because of: ") + _name(each)]
        lines += [f"  {frame}" for frame in _frames(each)]
    return CrashReport(f"{_name(error)} at {where}", "\n".join(lines) + "\n")


def keep(text: str, environ: Mapping[str, str], now: float, pid: int) -> str:
    """Write a report where only we can read it; answers with its path.

    Raises:
        OSError: it could be written nowhere.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name = f"crash-{stamp}-{pid}.txt"
    try:
        folder = _folder(environ)
        path = str(folder / name)
        files.make_folders(str(folder), 0o700)
        passed = files.walk(str(folder))
        try:
            fd = files.create(name, passed, None, 0o600)
        finally:
            os.close(passed)
    except OSError:
        fd, path = tempfile.mkstemp(".txt", f"spooldeck-{name.removesuffix('.txt')}-")
    with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def told(error: BaseException, environ: Mapping[str, str], now: float) -> str:
    """Keep a report of an error; what the operator is told, on one line."""
    made = report(error, environ, now)
    try:
        path = keep(made.text, environ, now, os.getpid())
    except OSError as trouble:
        return f"the console has failed: {made.headline}; no report was written: {trouble.strerror}"
    return f"the console has failed: {made.headline}; report, without task contents: {path}"


def _folder(environ: Mapping[str, str]) -> Path:
    """Where programs keep what outlives them.

    Raises:
        PermissionError: that is somebody else's, whose home we were given: root under sudo.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the base directory specification: a relative one is ignored
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            raise FileNotFoundError(errno.ENOENT, "no home")
        state = f"{home}/.local/state"
    folder = Path(state, "spooldeck")
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EACCES, "not ours", str(there))
    return folder


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it came from, each once; a group's parts too."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        parts = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        nearby = (each.__cause__, each.__context__, *parts)
        waiting += [e for e in nearby if isinstance(e, BaseException)]


def _name(error: BaseException) -> str:
    kind = type(error)
    home = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    number = error.errno if isinstance(error, OSError) else None
    code = errno.errorcode.get(number, str(number)) if number is not None else ""
    code = code or getattr(error, "sqlite_errorname", "")
    return f"{home}{kind.__qualname__}" + (f" ({code})" if code else "")


def _frames(error: BaseException) -> list[str]:
    summary = traceback.extract_tb(error.__traceback__)
    frames = [f"{_short(f.filename)}:{f.lineno} in {f.name}" for f in summary]
    if len(frames) > FRAMES:
        left_out = f"... {len(frames) - FRAMES:,} more ..."
        frames = [*frames[: FRAMES // 2], left_out, *frames[-FRAMES // 2 :]]
    return frames


def _innermost(error: BaseException) -> str:
    """The last line of our own code that an error passed through, else the last of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if Path(f.filename).is_relative_to(ROOT)]
    here = [f for f in ours if "site-packages" not in f.filename] or list(frames)
    return f"{_short(here[-1].filename)}:{here[-1].lineno}" if here else "an unknown place"


def _short(filename: str) -> str:
    """A source file without the folder that the program is installed in."""
    for folder in sorted((str(ROOT), *filter(None, sys.path)), key=len, reverse=True):
        if filename.startswith(f"{folder}/"):
            return filename.removeprefix(f"{folder}/")
    return filename


def _versions() -> Iterator[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    for package in ("spooldeck", "textual", "rich"):
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    yield "python", platform.python_version()
    yield "system", f"{platform.system()} {platform.release()}"


def _about(name: str, environ: Mapping[str, str]) -> str:
    return "is set" if name in _HIDDEN else ascii(environ[name])[:60]


def _size() -> str:
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return "no terminal"
    return f"{size.columns}x{size.lines}"
