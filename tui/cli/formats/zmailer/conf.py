"""The commands of `spooldeck zmailer`: check a scheduler.conf, explain a channel/host."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from engine.config.validators import ConfigLocation
from engine.formats.base.format import Setup
from engine.formats.zmailer.conf_changes import conf_changes, format_value
from engine.formats.zmailer.environment import ZmailerSettings, parse_settings, read_files
from engine.formats.zmailer.spool.scheduler_conf import (
    Remark,
    SchedulerClause,
    SchedulerConf,
    Setting,
    find_settings,
)
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.undeliverable import host_warnings
from engine.model import State, Task
from engine.store import Unavailable
from engine.system.command_errors import EX_CONFIG, EX_USAGE, fail
from engine.text.safe import safe_line
from tui.cli.setup.output import Answer


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
        return _changes(setup, diff, spool, path, parsed, lines)
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
