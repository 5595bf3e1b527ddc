"""Write a crash report: error types and code lines, without messages or values.

An error's message and the variables may contain task contents, addresses and paths. So a report has
only the errors' types, their errno numbers, and the lines of code in their tracebacks, also for our
own errors."""

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

from engine.system import files, users
from engine.text.error_text import error_text
from engine.values import NamedTuple

EX_SOFTWARE = 70
"""Exit code for an internal software error (sysexits.h)."""

MAX_FRAMES = 40
"""Maximum traceback lines per error, half from either end: a recursion has thousands."""

MAX_ERRORS = 16

TERMINAL_VARIABLES = (
    "TERM",
    "COLORTERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "NO_COLOR",
    "TMUX",
    "STY",
    "SSH_TTY",
)
"""Environment variables that describe the terminal; of the last three only whether they are set."""

_HIDDEN = frozenset({"TMUX", "STY", "SSH_TTY"})

ROOT = Path(__file__).resolve().parents[2]


class CrashReport(NamedTuple):
    """A crash report without private data."""

    headline: str
    """Type of the error and the line of code that raised it."""
    text: str


def make_report(error: BaseException, environ: Mapping[str, str], now: float) -> CrashReport:
    """The report of an error at `now` (epoch seconds UTC)."""
    while isinstance(inner := getattr(error, "error", None), BaseException):
        error = inner  # Textual wraps errors of workers
    errors = list(_chain(error))[:MAX_ERRORS]
    where = _innermost(errors[0])
    lines = [
        "spooldeck crash report",
        "Contains no task data: no error messages and no values of variables.",
        "",
        f"when       {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now))}",
        *(f"{name:<10} {words}" for name, words in _versions()),
        *(f"{name:<10} {words}" for name, words in terminal_facts(environ)),
    ]
    for number, each in enumerate(errors):
        lines += [
            "",
            ("" if number == 0 else "caused by, or raised while handling: ") + _name(each),
        ]
        lines += [f"  {frame}" for frame in _frames(each)]
    return CrashReport(f"{_name(error)} at {where}", "\n".join(lines) + "\n")


def save_report(text: str, environ: Mapping[str, str], now: float, pid: int) -> str:
    """Write a report, mode 0600; return its path. Raises OSError: no folder is writable."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name = f"crash-{stamp}-{pid}.txt"
    try:
        folder = users.state_folder(environ)
        path = f"{folder}/{name}"
        files.make_folders(folder, 0o700)
        passed = files.open_path(folder)
        try:
            fd = files.create_file(name, passed, None, 0o600)
        finally:
            os.close(passed)
    except OSError:
        fd, path = tempfile.mkstemp(".txt", f"spooldeck-{name.removesuffix('.txt')}-")
    with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def report_crash(error: BaseException, environ: Mapping[str, str], now: float) -> str:
    """Write a report of an error; return a one-line message for the operator."""
    made = make_report(error, environ, now)
    try:
        path = save_report(made.text, environ, now, os.getpid())
    except OSError as trouble:
        return f"console crashed: {made.headline}; no report written: {error_text(trouble)}"
    return f"console crashed: {made.headline}; report (without task data): {path}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, each once, including members of exception groups."""
    known_ids: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop(0)
        if id(each) in known_ids:
            continue
        known_ids.add(id(each))
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
    if len(frames) > MAX_FRAMES:
        omitted = f"... {len(frames) - MAX_FRAMES:,} more ..."
        frames = [*frames[: MAX_FRAMES // 2], omitted, *frames[-MAX_FRAMES // 2 :]]
    return frames


def _innermost(error: BaseException) -> str:
    """The last line of our own code in the traceback, else its last line."""
    frames = traceback.extract_tb(error.__traceback__)
    under_root = [f for f in frames if Path(f.filename).is_relative_to(ROOT)]
    own_frames = [f for f in under_root if "site-packages" not in f.filename] or list(frames)
    last = own_frames[-1] if own_frames else None
    return "an unknown line" if last is None else f"{_short(last.filename)}:{last.lineno}"


def _short(filename: str) -> str:
    for folder in sorted((str(ROOT), *filter(None, sys.path)), key=len, reverse=True):
        if filename.startswith(f"{folder}/"):
            return filename.removeprefix(f"{folder}/")
    return filename


def terminal_facts(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that describe the terminal, and its size."""
    for name in TERMINAL_VARIABLES:
        if name in environ:
            yield name, "is set" if name in _HIDDEN else ascii(environ[name])[:60]
    yield "size", _size()


def _versions() -> Iterator[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    for package in ("spooldeck", "textual", "rich"):
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    yield "python", platform.python_version()
    yield "system", f"{platform.system()} {platform.release()}"


def _size() -> str:
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return "no terminal"
    return f"{size.columns}x{size.lines}"
