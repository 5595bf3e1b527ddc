"""`zmailer scheduler`: the queue scheduler of a ZMailer spool. `check`, `why`: its scheduler.conf.
`statistics`: its statistics log by channel and host."""

from __future__ import annotations

import os
import random
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from engine.config.validators import ConfigLocation
from engine.formats.base.format import Setup
from engine.formats.zmailer.environment import ZmailerSettings, parse_settings, read_files
from engine.formats.zmailer.options import WrongOption, parse_options
from engine.formats.zmailer.scheduler.clauses import conf_changes, format_value, host_warnings
from engine.formats.zmailer.scheduler.process import Clocks, SchedulerProcess
from engine.formats.zmailer.spool.scheduler_conf import (
    Remark,
    SchedulerClause,
    SchedulerConf,
    Setting,
    find_settings,
)
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.statistics_log import STATES, StatisticsLine, parse_line
from engine.model import State, Task
from engine.monitor.latency import percentile
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import EX_CONFIG, EX_IOERR, EX_USAGE, fail
from engine.system.run_clock import RunClock
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.version import VERSION
from tui.cli.setup.output import Answer

EX_SOFTWARE = 70
"""The scheduler was killed at its start (sysexits.h)."""


def scheduler(setup: Setup, words: list[str]) -> int:
    """Run the scheduler, in the background unless an option keeps it in the foreground."""
    try:
        options = parse_options(words)
    except WrongOption as wrong:
        fail(EX_USAGE, str(wrong))
    if options.shows_version:
        print(f"spooldeck zmailer scheduler {VERSION}", flush=True)
    ready = _detach() if options.detaches else None
    try:
        process = SchedulerProcess(
            options,
            zmailer_settings(setup),
            os.environ,
            Clocks(time.time, time.monotonic, _ages),
            random.Random(),
        )
    except Unavailable as error:
        fail(EX_CONFIG, str(error))
    try:
        if ready is not None:
            _leave_terminal(process.log_fd, ready)
        process.run()
    finally:
        process.close()
    return 0


def _ages(root: str, log: Callable[[str], None]) -> Callable[[float, float], float]:
    """The ages that runs have seen at a spool; this one is noted."""

    def make_folder(path: str) -> None:
        owner = files.new_file_owner(os.stat(root))
        os.close(files.open_dir_path(path, root, make=True, owner=owner))

    clock = RunClock(f"{root}/.spooldeck", root, lambda _, text: log(text), make_folder)
    clock.age(0.0, time.time())
    return clock.age


def _detach() -> int:
    """Go on in a new process, in a session of its own and without descriptors of the caller. The
    old one ends once a byte is written to the descriptor that is returned, or with the exit status
    of the new one if that ends before."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_fd)
        os.setsid()
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # that of the listing is closed already
                if int(name) > 2 and os.get_inheritable(int(name)):
                    os.close(int(name))
        return write_fd
    os.close(write_fd)
    if os.read(read_fd, 1):
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(code if code > 0 else EX_SOFTWARE)


def _leave_terminal(log_fd: int, ready: int) -> None:
    """Write what is printed from now on to the log, and let the old process end."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd, target in ((0, null), (1, log_fd), (2, log_fd)):
        os.dup2(target, fd)
    os.close(null)
    os.write(ready, b"1")
    os.close(ready)


def zmailer_settings(setup: Setup) -> ZmailerSettings:
    """The section of our configuration."""
    section, at = setup.config.stores.get("zmailer", (None, ConfigLocation("", "stores.zmailer")))
    return parse_settings(section, at)


def _read_conf(setup: Setup, path: str) -> tuple[str, SchedulerConf]:
    """Read and parse a file; without a path, the configured one or that below MAILSHARE. It has
    warnings also of what is missing on this host."""
    files = read_files(zmailer_settings(setup), os.environ, path)
    if files.conf is None:
        hint = "" if files.conf_path else "; name one with --conf"
        fail(EX_CONFIG if files.conf_path else EX_USAGE, f"{safe_line(files.problem)}{hint}")
    missing = tuple(host_warnings(files.conf, files.environ))
    return files.conf_path, files.conf._replace(warnings=(*files.conf.warnings, *missing))


def _remark_lines(path: str, remarks: Iterable[Remark], word: str = "") -> Iterator[str]:
    for one in remarks:
        yield f"{safe_line(path)}:{one.line}:{one.column}: {word}{safe_line(one.text)}"


def _show(setting: Setting) -> str:
    return safe_line(format_value(setting.value))


def check(setup: Setup, conf: str, *, diff: str, spool: str) -> Answer:
    """Print all errors of a file, or its clauses; exit 1 if there are errors."""
    path, parsed = _read_conf(setup, conf)
    lines = [
        *_remark_lines(path, parsed.errors),
        *_remark_lines(path, parsed.warnings, "warning: "),
    ]
    if parsed.errors:
        count = len(parsed.errors)
        end = f"{count} error{'s' if count > 1 else ''}: the scheduler would not start"
        return Answer(lambda: _as_json(path, parsed), lambda: [*lines, end], 1)
    if diff:
        return _changes(setup, diff, spool, path, parsed, warnings=lines)
    return Answer(lambda: _as_json(path, parsed), lambda: [*lines, *_clause_lines(parsed, spool)])


def _clause_lines(conf: SchedulerConf, spool: str) -> Iterator[str]:
    if spool:
        fail(EX_USAGE, "--spool needs --diff OLD: it shows the threads that change")
    for clause in conf.clauses:
        words = (f"{name}={_show(one)}" for name, one in clause.settings.items())
        settings = "  ".join(words) or "(as the next)"
        yield f"{clause.line:4}  {safe_line(clause.pattern)}  {settings}"
    for name, one in conf.params.items():
        yield f"{one.line:4}  PARAM{name}={_show(one)}"
    warned = f", {len(conf.warnings)} warnings" if conf.warnings else ""
    yield f"{len(conf.clauses)} clauses, no errors{warned}"


def _as_json(path: str, conf: SchedulerConf) -> dict[str, object]:
    """A file with its errors; values of settings as text, as they are written."""
    return {
        "file": path,
        "errors": [one._asdict() for one in conf.errors],
        "warnings": [one._asdict() for one in conf.warnings],
        "clauses": [_clause(one) for one in conf.clauses],
        "params": {name: _show(one) for name, one in conf.params.items()},
    }


def _clause(clause: SchedulerClause) -> dict[str, object]:
    settings = {name: _show(one) for name, one in clause.settings.items()}
    return {"line": clause.line, "pattern": clause.pattern, "settings": settings}


def _changes(
    setup: Setup, diff: str, spool: str, path: str, new: SchedulerConf, warnings: Sequence[str]
) -> Answer:
    """What differs from another file, and which waiting threads it affects."""
    other, old = _read_conf(setup, diff)
    if old.errors:
        errors = [*warnings, *_remark_lines(other, old.errors)]
        return Answer(lambda: _as_json(other, old), lambda: errors, 1)
    changes = list(conf_changes(old, new))
    threads = list(_changed_threads(spool, old, new)) if spool else []
    return Answer(
        lambda: {"old": other, "new": path, "changes": changes, "threads": threads},
        lambda: [
            *warnings,
            *map(safe_line, changes),
            f"{len(changes)} changes from {safe_line(other)} to {safe_line(path)}",
            *threads,
            *([f"{len(threads)} waiting threads change"] if spool else []),
        ],
    )


def _changed_threads(spool: str, old: SchedulerConf, new: SchedulerConf) -> Iterator[str]:
    """A line for each waiting thread of a spool whose settings differ."""
    try:
        store = ZmailerStore(spool)
    except Unavailable as error:
        fail(EX_CONFIG, str(error))
    with closing(store):
        waiting = store.scan({store.states[State.PENDING]})
        threads = Counter((one.kind, one.group) for one in waiting if isinstance(one, Task))
    for (channel, host), count in sorted(threads.items()):
        before, after = (find_settings(conf, channel, host).settings for conf in (old, new))
        changed = [
            f"{name}: {_value(before, name)} -> {_value(after, name)}"
            for name in sorted(before.keys() | after.keys())
            if _value(before, name) != _value(after, name)
        ]
        if changed:
            yield f"thread {safe_line(f'{channel}/{host}')}, R={count:,}: {'; '.join(changed)}"


def _value(settings: Mapping[str, Setting], name: str) -> str:
    return _show(settings[name]) if name in settings else "not set"


def why(setup: Setup, target: str, *, conf: str) -> Answer:
    """Print which clauses a channel/host gets its settings from; exit 1 if it has no command."""
    path, parsed = _read_conf(setup, conf)
    if parsed.errors:
        return Answer(lambda: _as_json(path, parsed), lambda: _remark_lines(path, parsed.errors), 1)
    channel, slash, host = target.partition("/")
    if not channel or not slash:
        fail(EX_USAGE, f"{safe_line(target)}: expected CHANNEL/HOST")
    match = find_settings(parsed, channel, host)
    has_command = "command" in match.settings

    def values() -> dict[str, object]:
        settings = {name: {"value": _show(s), "line": s.line} for name, s in match.settings.items()}
        clauses = {"clauses": [_clause(one) for one in match.clauses], "settings": settings}
        return {"target": target, **clauses, "warning": match.warning or None}

    def lines() -> Iterator[str]:
        for clause in match.clauses:
            yield f"line {clause.line}: {safe_line(clause.pattern)}"
        for name, one in sorted(match.settings.items()):
            text = _show(one) + " (a day)" * (name == "expiry2" and one.value == 0)
            yield f"  {name:17} {text:40} {f'line {one.line}' if one.line else 'default'}"
        if match.warning:
            yield f"warning: {match.warning}"
        if not has_command:
            yield "no command: nothing delivers it"

    return Answer(values, lines, 0 if has_command else 1)


MAX_LINE = 1 << 16
"""Characters: a longer line is read in parts, none of which is a line of the log."""


class HostStatistics(NamedTuple):
    """How the recipients of one channel and host have ended. Delays are in seconds."""

    channel: str
    host: str
    states: dict[str, int]
    """Numbers by state."""
    queued_p50: float | None
    """DT1 of scheduler(8zm): from the message file to the control file."""
    queued_p95: float | None
    delivery_p50: float | None
    """DT2: from the control file to the end."""
    delivery_p95: float | None


def summarize(lines: Iterable[StatisticsLine]) -> Iterator[HostStatistics]:
    """The statistics of each channel and host, sorted."""
    by_host: dict[tuple[str, str], tuple[Counter[str], array[int], array[int]]] = {}
    for line in lines:
        where = line.channel, line.host
        states, queued, delivery = by_host.setdefault(where, (Counter(), array("q"), array("q")))
        states[line.state] += 1
        queued.append(line.queued)
        delivery.append(line.delivery)
    for (channel, host), (states, queued, delivery) in sorted(by_host.items()):
        delays = (percentile(one, share) for one in (queued, delivery) for share in (0.5, 0.95))
        yield HostStatistics(channel, host, dict(states), *delays)


def statistics(setup: Setup, file: str) -> Answer:
    """Print the numbers and delays in a file; lines of neither form are counted."""
    unread = 0

    def lines() -> Iterator[StatisticsLine]:
        nonlocal unread
        with open(files.open_file(file), encoding="utf-8", errors="replace") as log:
            for text in iter(lambda: log.readline(MAX_LINE), ""):
                if (line := parse_line(text)) is not None:
                    yield line
                else:
                    unread += 1

    try:
        rows = list(summarize(lines()))
    except OSError as error:
        fail(EX_IOERR, f"{safe_line(file)}: {error_text(error)}")
    total = sum(sum(one.states.values()) for one in rows)
    return Answer(
        lambda: {"file": file, "unread": unread, "hosts": [one._asdict() for one in rows]},
        lambda: [*_table(rows), f"recipients: {total:,}; other lines: {unread:,}"],
    )


def _table(rows: Sequence[HostStatistics]) -> Iterator[str]:
    """A line for each channel and host, with the states that occur in any of them."""
    occurring_states = {state for one in rows for state in one.states}
    states = [state for state in (*STATES, "expiry") if state in occurring_states]
    titles = [*(state.upper() for state in states), "DT1 p50", "p95", "DT2 p50", "p95"]
    yield "  ".join([*(f"{title:>7}" for title in titles), "CHANNEL/HOST"])
    for one in rows:
        numbers = [*(one.states.get(state, 0) for state in states), *one[3:]]
        where = safe_line(f"{one.channel}/{one.host}")
        yield "  ".join([*(f"{number:>7}" for number in numbers), where])
