"""The commands of `spooldeck zmailer`: check a scheduler.conf, explain a channel/host."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing

from engine.config.validators import ConfigLocation
from engine.formats.base.format import Setup
from engine.formats.zmailer.environment import ZmailerSettings, parse_settings, read_files
from engine.formats.zmailer.scheduler.clauses import conf_changes, format_value, host_warnings
from engine.formats.zmailer.spool.scheduler_conf import (
    Remark,
    SchedulerClause,
    SchedulerConf,
    Setting,
    find_settings,
)
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.model import State, Task
from engine.store import Unavailable
from engine.system.command_errors import EX_CONFIG, EX_USAGE, fail
from engine.text.safe import safe_line
from tui.cli.setup.output import print_json


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


def _print_remarks(path: str, remarks: tuple[Remark, ...], word: str) -> None:
    for one in remarks:
        print(f"{safe_line(path)}:{one.line}:{one.column}: {word}{safe_line(one.text)}")


def _show(setting: Setting) -> str:
    return safe_line(format_value(setting.value))


def check(setup: Setup, arguments: argparse.Namespace) -> int:
    """Print all errors of a file, or its clauses; exit 1 if there are errors."""
    path, conf = _read_conf(setup, arguments.conf)
    if arguments.json and not arguments.diff:
        print_json(_as_json(path, conf))
        return 1 if conf.errors else 0
    if not arguments.json:
        _print_remarks(path, conf.errors, "")
        _print_remarks(path, conf.warnings, "warning: ")
    if conf.errors:
        if arguments.json:
            print_json(_as_json(path, conf))
        else:
            count = len(conf.errors)
            print(f"{count} error{'s' if count > 1 else ''}: the scheduler would not start")
        return 1
    if arguments.diff:
        return _print_changes(setup, arguments, path, conf)
    if arguments.spool:
        fail(EX_USAGE, "--spool needs --diff OLD: it shows the threads that change")
    for clause in conf.clauses:
        words = (f"{name}={_show(one)}" for name, one in clause.settings.items())
        print(
            f"{clause.line:4}  {safe_line(clause.pattern)}  {'  '.join(words) or '(as the next)'}"
        )
    for name, one in conf.params.items():
        print(f"{one.line:4}  PARAM{name}={_show(one)}")
    warned = f", {len(conf.warnings)} warnings" if conf.warnings else ""
    print(f"{len(conf.clauses)} clauses, no errors{warned}")
    return 0


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


def _print_changes(
    setup: Setup, arguments: argparse.Namespace, path: str, new: SchedulerConf
) -> int:
    """Print what differs from another file, and which waiting threads it affects."""
    other, old = _read_conf(setup, arguments.diff)
    if old.errors:
        if arguments.json:
            print_json(_as_json(other, old))
        else:
            _print_remarks(other, old.errors, "")
        return 1
    changes = list(conf_changes(old, new))
    if arguments.json:
        affected = _changed_threads(arguments.spool, old, new) if arguments.spool else ()
        files = {"old": other, "new": path}
        print_json({**files, "changes": changes, "threads": list(affected)})
        return 0
    for line in changes:
        print(safe_line(line))
    print(f"{len(changes)} changes from {safe_line(other)} to {safe_line(path)}")
    if arguments.spool:
        threads = list(_changed_threads(arguments.spool, old, new))
        for line in threads:
            print(line)
        print(f"{len(threads)} waiting threads change")
    return 0


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


def why(setup: Setup, arguments: argparse.Namespace) -> int:
    """Print which clauses a channel/host gets its settings from; exit 1 if it has no command."""
    path, conf = _read_conf(setup, arguments.conf)
    if conf.errors:
        if arguments.json:
            print_json(_as_json(path, conf))
        else:
            _print_remarks(path, conf.errors, "")
        return 1
    channel, slash, host = arguments.target.partition("/")
    if not channel or not slash:
        fail(EX_USAGE, f"{safe_line(arguments.target)}: expected CHANNEL/HOST")
    match = find_settings(conf, channel, host)
    if arguments.json:
        settings = {name: {"value": _show(s), "line": s.line} for name, s in match.settings.items()}
        clauses = {"clauses": [_clause(one) for one in match.clauses], "settings": settings}
        print_json({"target": arguments.target, **clauses, "warning": match.warning or None})
        return 0 if "command" in match.settings else 1
    for clause in match.clauses:
        print(f"line {clause.line}: {safe_line(clause.pattern)}")
    for name, one in sorted(match.settings.items()):
        text = _show(one) + " (a day)" * (name == "expiry2" and one.value == 0)
        print(f"  {name:17} {text:40} {f'line {one.line}' if one.line else 'default'}")
    if match.warning:
        print(f"warning: {match.warning}")
    if "command" in match.settings:
        return 0
    print("no command: nothing delivers it")
    return 1
