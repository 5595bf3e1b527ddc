"""Facts about one instance for the console: whether it runs, what its last listing and its settings
show; the warnings that become alerts; and the doctor's checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from engine.doctor.finding import Finding, bad, hidden, ok, warn
from engine.formats.postfix.instance import Instance
from engine.places.place import WholeQueueFigures
from engine.text.figures import format_bytes, format_count
from engine.text.safe import safe_line

WATCH_SECONDS = 20.0
"""Seconds for which facts are current."""
MANY_INCOMING = 1000
"""Messages in `incoming` that the queue manager has not taken yet."""
SPACE_FACTOR = 1.5
"""Postfix takes no mail with less free space than queue_minfree, or than this times the largest
message."""


class ListingFacts(NamedTuple):
    """What a listing has shown."""

    is_running: bool
    warnings: tuple[str, ...] = ()
    """What postqueue printed on standard error, though all was well."""
    waiting: int = 0
    incoming: int = 0
    active: int = 0
    delivering: int = 0
    suspended: int = 0
    """Messages for destinations that the queue manager has stopped to ask."""
    delivered: int = 0
    """Messages on hold that have no recipient any more."""
    held_pids: tuple[str, ...] = ()
    """The processes that still deliver messages on hold."""
    trashed: int = 0
    overdue: int = 0
    """Those in the trash that may be deleted."""
    lost: int = 0
    """Marks whose message is not in the trash: another operator has released or deleted it."""
    corrupt: tuple[str, ...] = ()
    has_times: bool = True
    can_look: bool = True


class LastListing:
    """The facts of the last listing of a place in this process; one thread sets them at a time."""

    def __init__(self) -> None:
        self.facts: ListingFacts | None = None

    def keep(self, facts: ListingFacts) -> None:
        """Replace the facts."""
        self.facts = facts


class PostfixWatch:
    """Facts about one instance, read at most once in `WATCH_SECONDS`, from any thread. It runs no
    program that writes into the mail log, as "postfix status" does."""

    def __init__(self, open_instance: Callable[[], Instance], listing: LastListing) -> None:
        """`open_instance` reads the settings, and is called once."""
        self._open, self._listing = open_instance, listing
        self._instance: Instance | None = None
        self._due, self._figures = float("-inf"), WholeQueueFigures()

    def figures(self) -> WholeQueueFigures:
        """The facts and warnings.

        Raises:
            engine.store.Unavailable: the settings cannot be read.
        """
        if time.monotonic() >= self._due:
            instance = self._instance = self._instance or self._open()
            self._figures = read_figures(instance, self._listing.facts)
            self._due = time.monotonic() + WATCH_SECONDS
        return self._figures


def read_figures(instance: Instance, facts: ListingFacts | None) -> WholeQueueFigures:
    """The facts of one moment; what is not known yet is named so."""
    settings = instance.settings
    rows = [("Postfix", f"{settings['mail_version']}, {instance.folder}")]
    warnings = [*setting_warnings(settings), *space_warnings(instance)]
    if facts is None:
        rows.append(("master", "? (not listed yet)"))
        return WholeQueueFigures(tuple(rows), tuple(warnings))
    pid = master_pid(instance) if facts.is_running else ""
    running = f"PID {pid}" if pid else "runs"
    rows.append(("master", running if facts.is_running else "stopped"))
    rows.append(("active", f"{facts.active:,}, in delivery {facts.delivering:,}"))
    rows.append(("trash", f"{facts.trashed:,}, deleted by nothing while no spooldeck runs"))
    return WholeQueueFigures(
        tuple(rows),
        (*listing_warnings(facts, settings), *warnings),
        workers=(int(pid),) if pid and instance.is_local else (),
        has_worker=facts.is_running,
    )


def listing_warnings(facts: ListingFacts, settings: Mapping[str, str]) -> Iterator[str]:
    """What of a listing an operator should know, the most urgent first."""
    if not facts.is_running:
        yield f"Postfix is stopped, {format_count(facts.waiting, 'message')} waiting: postfix start"
    limit = settings["qmgr_message_active_limit"]
    if facts.incoming > MANY_INCOMING or (limit.isdecimal() and facts.active >= int(limit) > 0):
        yield f"the queue manager is behind: incoming {facts.incoming:,}, active {facts.active:,}"
    if facts.suspended:
        words = format_count(facts.suspended, "message")
        yield f"{words} for destinations that Postfix has stopped to ask: see their reasons"
    if facts.corrupt:
        names = ", ".join(facts.corrupt[:3])
        yield f"{format_count(len(facts.corrupt), 'damaged file')} in queue corrupt: {names}"
    if facts.delivered:
        words = format_count(facts.delivered, "message")
        yield f"{words} on hold delivered before: L lets Postfix remove them"
    if facts.held_pids:
        yield f"held, but in delivery: PID {', '.join(facts.held_pids[:3])} goes on"
    if facts.overdue:
        yield f"{format_count(facts.overdue, 'message')} in the trash past 24h: expunge them"
    if facts.lost:
        words = format_count(facts.lost, "purged message")
        yield f"{words} released or deleted by another operator: not in the trash"
    yield from (safe_line(line) for line in facts.warnings if facts.is_running)


def setting_warnings(settings: Mapping[str, str]) -> Iterator[str]:
    """Settings by which mail waits, or failures do not end it."""
    if settings["soft_bounce"] == "yes":
        yield "soft_bounce = yes: mail that is refused for ever is tried again"
    if names := settings["defer_transports"]:
        yield f"defer_transports = {safe_line(names)}: mail of these transports is not tried"


def space_warnings(instance: Instance) -> Iterator[str]:
    """Little free space for the queue, by df(1)."""
    values = (instance.settings[name] for name in ("queue_minfree", "message_size_limit"))
    minimum, largest = (int(value) if value.isdecimal() else 0 for value in values)
    least = SPACE_FACTOR * (minimum or largest)
    answer = instance.ask("df", "-Pk", instance.queue_folder)
    fields = answer[-1].split() if len(answer) > 1 else []
    if least and len(fields) >= 4 and fields[3].isdigit():
        free = int(fields[3]) * 1024
        if free < least:
            yield f"{format_bytes(free)} free for the queue: below {format_bytes(int(least))}"


def master_pid(instance: Instance) -> str:
    """The PID of its master process, as its file has it; "" if that cannot be read."""
    answer = instance.ask("cat", f"{instance.queue_folder}/pid/master.pid")
    text = answer[0].strip().decode("ascii", "replace") if answer else ""
    return text if text.isdecimal() else ""


def check_instance(instance: Instance, facts: ListingFacts) -> Iterator[tuple[str, Finding]]:
    """Yield the name of each check of the doctor, and what it found."""
    settings = instance.settings
    yield "postfix", ok(f"Postfix {settings['mail_version']}, queue {instance.queue_folder}")
    if instance.uid in (0, None) and facts.can_look:
        yield "rights", ok("messages can be listed, looked at and changed")
    else:
        rule = f"in sudoers: {instance.sudo_rule}"
        yield "rights", hidden("only lists and flushes: not root", rule)
    if facts.has_times:
        yield "next attempts", ok("read from the times of the files")
    else:
        rule = f"in sudoers: {instance.sudo_rule}"
        yield "next attempts", hidden("unknown: find may not be run there", rule)
    for check, warnings in (
        ("queue", listing_warnings(facts, settings)),
        ("settings", setting_warnings(settings)),
        ("disk", space_warnings(instance)),
    ):
        texts = [*warnings]
        make = bad if check == "queue" and not facts.is_running else warn
        yield from ((check, make(text)) for text in texts)
        if not texts:
            yield check, ok("nothing to report")
    if settings["enable_long_queue_ids"] != "yes":
        remark = "queue ids are short: one may return for another message"
        yield "ids", ok(f"{remark} (enable_long_queue_ids); each act compares more than the id")
