"""`doctor`: check a place and print each problem with the command that repairs it."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Iterator

from engine.doctor import store_checks
from engine.doctor.finding import Finding, Grade, format_finding, needs_action
from engine.store import Unavailable
from tui.cli.plans import plan_command
from tui.cli.setup.setup import Setup

OK, ATTENTION = 0, 1


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Check a place of any format and print the findings; exit 0 if none needs an action, else 1.

    Changes nothing.
    """
    return print_findings(setup.format.load_doctor()(setup))


def print_findings(found: Iterable[tuple[str, Finding]]) -> int:
    """Print findings with the names of their checks; exit 0 if none needs an action, else 1."""
    findings = []
    for name, finding in found:
        print("\n".join(format_finding(name, finding)))
        findings.append(finding)
    return ATTENTION if needs_action(findings) else OK


def check_store(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """The checks that fit any store, for a format without its own."""
    command = plan_command.shell_command(plan_command.command_base(setup))
    try:
        store = setup.open_store()
    except Unavailable as error:
        yield "store", Finding(Grade.BAD, str(error))
        return
    try:
        yield from store_checks.check_store(store, time.time(), command)
    finally:
        store.close()
