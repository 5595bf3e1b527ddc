"""`doctor`: check a place and print each problem with the command that repairs it."""

from __future__ import annotations

import os
import shlex
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import chain

from engine.config.queue_config import PLACES_VARIABLE
from engine.delivery.delivery_parts import open_registry
from engine.doctor.finding import Finding, Grade, bad, format_finding, needs_action, warn
from engine.formats.base.format import Setup
from engine.formats.known_formats import foreign_formats
from engine.monitor.alerts import describe_disk, describe_limit, is_nearly_full
from engine.places.alert_facts import limits_of_tasks
from engine.places.place_watcher import limit_open_files, read_lock, read_queue_figures
from engine.places.recent_events import RecentTaskEvents
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.cli.queue.deliver_handlers import INSTALL, missing_library
from tui.cli.setup.output import print_json, show_progress
from tui.cli.setup.places import make_place

OK, ATTENTION = 0, 1


def doctor(setup: Setup, *, json: bool) -> int:
    """Check a place of any format and print the findings; changes nothing."""
    passwords = (("password", finding) for finding in _open_passwords(setup))
    missing = missing_library(setup)
    library = [("handlers", bad(missing, INSTALL))] if missing else []
    named_findings = chain(
        passwords, library, _check_formats(), setup.findings(), _check_limits(setup)
    )
    deliveries = chain(_check_deliveries(setup), _check_lacks(setup))
    return print_findings(chain(named_findings, deliveries), as_json=json)


def print_findings(named_findings: Iterable[tuple[str, Finding]], *, as_json: bool = False) -> int:
    """Print named findings, each as soon as it is known; return 1 if one needs an action."""
    findings = []
    if not sys.stdout.isatty():
        named_findings = show_progress(named_findings, "checks done")
    for name, finding in named_findings:
        if as_json:
            print_json({"check": name, **finding._asdict(), "grade": finding.grade.name.lower()})
        else:
            print("\n".join(format_finding(name, finding)))
        findings.append(finding)
    return ATTENTION if needs_action(findings) else OK


def _check_formats() -> Iterator[tuple[str, Finding]]:
    """The formats of other packages that cannot be used, and with them all of their places."""
    for why in foreign_formats().broken.values():
        yield "formats", warn(why, "install another version of the package, or uninstall it")


def _check_limits(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """The limits that make other programs fail: free space of each disk that is written to, pending
    tasks, trash, and open files of the workers."""
    place = make_place(setup, setup.place, setup.words)
    has_check = place.max_pending is not None  # `room` compares the disk of the tasks with it
    for disk in place.disks():
        if disk.is_full and not (has_check and disk.folder == setup.queue.pending):
            where = shlex.quote(disk.mount)
            what = describe_disk(disk)
            yield "limits", bad(what, f"df -h {where}; df -i {where}  # make room")
    if setup.address.is_url:
        return  # neither trash nor workers of this host; to ask a server again is expensive
    workers = read_queue_figures(place).workers
    limits = [*limit_open_files(read_lock(place), workers)]
    # Without the store, a check of the place reports why.
    with suppress(Unavailable), closing(setup.open_store()) as store:
        limits += limits_of_tasks(place, store.count_tasks(), store.trash_bytes())
    command = shlex.join(setup.command_words)
    for one in limits:
        if is_nearly_full(one):
            grade = Grade.BAD if one.used >= one.limit else Grade.WARN
            fix = _FIXES.get(one.name, _MORE_FILES).format(command)
            yield "limits", Finding(grade, describe_limit(one), fix)


_FIXES = {"queue": "{} queue work", "trash": "{} trash list  # then expunge some"}
"""What makes room below a limit, with the words of the command that selects the place."""
_MORE_FILES = "set LimitNOFILE= higher in the unit of its service, then restart it"


def _check_lacks(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """What the workers themselves lack, by the last hour of their logs."""
    with closing(RecentTaskEvents(make_place(setup, setup.place).logs)) as events:
        now = time.time()
        events.read_new(now)
        while not events.is_read:
            events.read_new(now)
        for one in events.current_lacks(now):
            what = f"{safe_line(one.kind)} not tried: {safe_line(one.error)}"
            yield "worker", warn(what, "mend it; the worker then goes on by itself")


def _check_deliveries(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """The checks of the registry of destinations and of the outbox, if they are configured."""
    config = setup.config
    if config.destinations is None and config.outbox is None:
        return
    from engine.destinations.outbox import Outbox
    from engine.doctor import deliveries

    with ExitStack() as stack:
        registry = open_registry(config)
        if registry is not None:
            stack.callback(registry.close)
            yield "registry", deliveries.check_registry(registry)
        if config.outbox is None:
            return
        try:
            store = stack.enter_context(closing(setup.open_store()))
        except Unavailable:
            return  # a check of the place reports it
        outbox = stack.enter_context(closing(Outbox(config.outbox)))
        for finding in deliveries.check_outbox(outbox, store, config.outbox.field):
            yield "outbox", finding


def _open_passwords(setup: Setup) -> Iterator[Finding]:
    """A finding if other users may read the configuration with a password."""
    config = setup.config
    path, outbox = config.path, config.outbox
    place = None if os.environ.get(PLACES_VARIABLE) else setup.address
    addresses = (place, config.destinations, outbox.database if outbox else None)
    has_password = any(one is not None and one.has_password for one in addresses)
    if has_password and os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        what = f"{path} contains a password, other users may read it"
        yield bad(what, f"chmod go= {shlex.quote(path)}")
