"""The commands of `spooldeck zmailer`: check a scheduler.conf, explain a channel/host."""

from __future__ import annotations

import argparse
import os

from engine.stores.zmailer.scheduler_conf import (
    Remark,
    SchedulerConf,
    Setting,
    find_settings,
    parse_conf,
)
from engine.system import files
from engine.text.safe import safe_line
from tui.cli.setup.errors import EX_CONFIG, EX_USAGE, fail
from tui.cli.setup.setup import Setup

NAMES = ("scheduler.conf", "scheduler.cf")
"""The file below $MAILSHARE: the name that the program uses, then that of the man page."""

MAX_CONF_BYTES = 1 << 20


def _read_conf(path: str) -> tuple[str, SchedulerConf]:
    """Read and parse a file; without a path, the one below $MAILSHARE."""
    if not path:
        share = os.environ.get("MAILSHARE", "")
        paths = [f"{share}/{name}" for name in NAMES if share]
        path = next(filter(os.path.exists, paths), "")
        if not path:
            where = " or ".join(paths) or "MAILSHARE is not set"
            fail(EX_USAGE, f"no scheduler.conf: {safe_line(where)}; name one with --conf")
    try:
        fd = files.open_file(path)
        try:
            data = os.read(fd, MAX_CONF_BYTES + 1)
        finally:
            os.close(fd)
    except OSError as error:
        fail(EX_CONFIG, f"{safe_line(path)}: {error.strerror}")
    if len(data) > MAX_CONF_BYTES:
        fail(EX_CONFIG, f"{safe_line(path)}: more than {MAX_CONF_BYTES:,} bytes")
    return path, parse_conf(data.decode("utf-8", "replace"), os.environ)


def _print_remarks(path: str, remarks: tuple[Remark, ...], word: str) -> None:
    for one in remarks:
        print(f"{safe_line(path)}:{one.line}:{one.column}: {word}{safe_line(one.text)}")


def _show(setting: Setting) -> str:
    value = setting.value
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "on" if value is True else safe_line(str(value))


def check(setup: Setup, arguments: argparse.Namespace) -> int:
    """Print all errors of a file, or its clauses; exit 1 if there are errors."""
    path, conf = _read_conf(arguments.conf)
    _print_remarks(path, conf.errors, "")
    _print_remarks(path, conf.warnings, "warning: ")
    if conf.errors:
        print(f"{len(conf.errors)} errors: the scheduler would not start")
        return 1
    for clause in conf.clauses:
        own = (f"{name}={_show(one)}" for name, one in clause.settings.items())
        print(f"{clause.line:4}  {safe_line(clause.pattern)}  {'  '.join(own) or '(as the next)'}")
    for name, one in conf.params.items():
        print(f"{one.line:4}  PARAM{name}={_show(one)}")
    print(f"{len(conf.clauses)} clauses, no errors")
    return 0


def why(setup: Setup, arguments: argparse.Namespace) -> int:
    """Print which clauses a channel/host gets its settings from; exit 1 if it has no command."""
    path, conf = _read_conf(arguments.conf)
    if conf.errors:
        _print_remarks(path, conf.errors, "")
        return 1
    channel, slash, host = arguments.target.partition("/")
    if not channel or not slash:
        fail(EX_USAGE, f"{safe_line(arguments.target)}: expected CHANNEL/HOST")
    match = find_settings(conf, channel, host)
    for clause in match.clauses:
        print(f"line {clause.line}: {safe_line(clause.pattern)}")
    for name, one in sorted(match.settings.items()):
        print(f"  {name:17} {_show(one):40} {f'line {one.line}' if one.line else 'default'}")
    if match.warning:
        print(f"warning: {match.warning}")
    if "command" in match.settings:
        return 0
    print("no command: nothing delivers it")
    return 1
