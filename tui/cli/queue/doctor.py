"""`doctor`: check a place and print each problem with the command that repairs it."""

from __future__ import annotations

import os
import shlex
import stat
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator

from engine.doctor import store_checks
from engine.doctor.finding import Finding, Grade, format_finding, needs_action
from engine.store import Unavailable
from tui.cli.plans import plan_command
from tui.cli.queue.deliver_handlers import missing_library
from tui.cli.setup.setup import Setup, load_function

OK, ATTENTION = 0, 1


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Check a place of any format and print the findings; exit 0 if none needs an action, else 1.

    Changes nothing.
    """
    checks = load_function(setup.format.doctor or "queue.doctor:check_store")
    passwords = (("password", finding) for finding in _open_passwords(setup))
    missing = missing_library(setup.config)
    library = [] if missing is None else [("handlers", missing)]
    return print_findings([*passwords, *library, *checks(setup)])


def print_findings(found: Iterable[tuple[str, Finding]]) -> int:
    """Print findings with the names of their checks; exit 0 if none needs an action, else 1."""
    findings = []
    for name, finding in found:
        print("\n".join(format_finding(name, finding)))
        findings.append(finding)
    return ATTENTION if needs_action(findings) else OK


def check_store(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """The checks that fit any store, for a format without its own."""
    base, form = plan_command.command_base(setup), setup.format
    command = plan_command.shell_command(base)
    workable = form.work_command and not form.why_unworkable(setup.settings)
    work = plan_command.shell_command([*base, *form.work_command]) if workable else ""
    try:
        store = setup.open_store()
    except Unavailable as error:
        yield "store", Finding(Grade.BAD, f"{setup.place}: {error}")
        return
    try:
        yield from store_checks.check_store(store, time.time(), command, work)
    finally:
        store.close()


def _open_passwords(setup: Setup) -> Iterator[Finding]:
    """A finding if other users may read the configuration with the password of the place."""
    path = setup.config.path
    if setup.address.password and os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        what = f"{path} contains a password, other users may read it"
        yield Finding(Grade.BAD, what, f"chmod go= {shlex.quote(path)}")
