"""Facts about one Postfix instance for the console: its master process, its queues, suspended
destinations, the trash, damaged files, settings, disk and log; and the warnings that become alerts.

What a listing shows is counted when the store lists; `postfix status` is never run, as it writes
into the mail log."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from itertools import islice

from engine.formats.postfix.acts import KEPT_SECONDS
from engine.formats.postfix.instance import Instance
from engine.formats.postfix.lines import SUSPENDED_PREFIX, domain_of
from engine.formats.postfix.log_lines import mail_log
from engine.formats.postfix.marks import MARGIN_SECONDS, Mark
from engine.model import State
from engine.places.place import ServerState, WholeQueueFigures
from engine.programs.mail_log import MailLog
from engine.programs.server_watch import (
    TAIL_BYTES,
    LastCounts,
    LogEnd,
    ServerProcess,
    ServerWatch,
    count_free_bytes,
    find_process,
    read_log_end,
)
from engine.text.figures import format_bytes, format_count
from engine.text.safe import safe_line
from engine.text.times import describe_limit, format_rough_duration
from engine.values import NamedTuple

SERVER = "Postfix"
_NONE_OPEN, _EXPIRED = b'"recipients": []}', b'"forced_expire": true'
QUEUES = {"m": "maildrop", "i": "incoming", "a": "active", "d": "deferred", "h": "hold"}
"""By the first letter of a queue in a record."""

MANY_INCOMING = 1000
"""Messages in `incoming` from which the queue manager is the bottleneck."""
SPACE_FACTOR = 1.5
SILENT_SECONDS = 900.0
"""Seconds without a line of the queue manager after which it is silent, if mail is due."""
EXAMINED = 2000
"""Suspended messages whose destinations are counted."""
MAX_NAMED = 3
"""Names in one fact."""

SUSPENDED_REASON = b'"delay_reason": "%b' % SUSPENDED_PREFIX.encode()
"""In the record of a message with a destination that the queue manager has stopped to ask."""
_ADDRESS = rb'\{"address": "([^"\\]*(?:\\.[^"\\]*)*)", '
_find_suspended = re.compile(_ADDRESS + SUSPENDED_REASON).findall


class ListingCounts(NamedTuple):
    """What the last listing of this process has shown."""

    queues: Mapping[str, int]
    """Messages by queue."""
    suspended: int = 0
    """Messages with a destination that the queue manager has stopped to ask."""
    suspended_state: State | None = None
    """PENDING if all these are; else None."""
    destinations: tuple[tuple[str, int], ...] = ()
    """The domains of the first `EXAMINED` of them with their recipients, the most first."""
    delivered: int = 0
    """Held ones without an open recipient: they were delivered all the same."""
    held_pids: tuple[str, ...] = ()
    """The processes that still deliver messages on hold."""
    trashed_at: tuple[float, ...] = ()
    """When each message in the trash was purged, epoch seconds UTC."""
    released_at: tuple[float, ...] = ()
    """When each purged message was purged that another operator has released or deleted since."""
    damaged: tuple[str, ...] = ()
    """Ids of files in the queue `corrupt`."""
    oldest_due: float | None = None
    """The earliest time of a next attempt, epoch seconds UTC; None if there is none, or unknown."""
    is_running: bool = True
    warnings: tuple[str, ...] = ()
    """What the listing wrote to standard error."""

    @property
    def waiting(self) -> int:
        """Messages that Postfix is to deliver."""
        return sum(number for queue, number in self.queues.items() if queue != "hold")


def count_listing(
    records: Mapping[str, bytes], others: Collection[str], suspended: Collection[str]
) -> ListingCounts:
    """Count the records of a listing by queue; `others` are the ids in other queues than
    `deferred`, `suspended` those with suspended destinations."""
    letters = Counter([records[ident][0] for ident in others])
    letters[ord("d")] = len(records) - len(others)
    domains = Counter[str]()
    for ident in islice(suspended, EXAMINED):
        found = _find_suspended(records[ident])
        domains.update(domain_of(one.decode("utf-8", "replace")) for one in found)
    some = (records[ident] for ident in suspended)
    is_pending = all(record[:1] in b"dim" and _EXPIRED not in record for record in some)
    return ListingCounts(
        {name: letters[ord(letter)] for letter, name in QUEUES.items()},
        suspended=len(suspended),
        suspended_state=State.PENDING if is_pending else None,
        destinations=tuple(domains.most_common()),
        delivered=sum(
            records[ident][:1] == b"h" and _NONE_OPEN in records[ident] for ident in others
        ),
    )


def count_marks(
    marks: Mapping[str, Mark], trash: Container[str]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The times of the marks of messages that are in the trash, and of all others: another operator
    has released or deleted those."""
    others = tuple(mark.at for ident, mark in marks.items() if ident not in trash)
    return tuple(mark.at for ident, mark in marks.items() if ident in trash), others


def log_of(instance: Instance) -> MailLog:
    """The log that its settings name."""
    settings, prefix = instance.settings, instance.log_prefix or instance.prefix
    return mail_log(settings["maillog_file"], settings["syslog_name"], prefix)


def find_master(instance: Instance) -> ServerProcess:
    """The master process, which starts all others. A sudo that refuses a program may send a mail to
    root each time: what only reads, and is no program of Postfix, is run without it."""
    return find_process(instance.prefix.plain, f"{instance.queue_folder}/pid/master.pid", "master")


def server_state(master: ServerProcess, counts: ListingCounts | None) -> ServerState:
    """Whether Postfix runs: by its PID file, else by what the last listing has shown."""
    is_running, why = master.is_running, master.why
    if is_running is None and counts is not None:
        is_running, why = counts.is_running, ""
    return ServerState(
        SERVER, f"{SERVER} is stopped", is_running, master.pid, master.since, why=why
    )


class HostFacts(NamedTuple):
    """What programs of its host show of an instance."""

    master: ServerProcess
    warnings: tuple[str, ...] = ()


def read_host(instance: Instance, counts: ListingCounts | None, now: float) -> HostFacts:
    """Read the facts of one moment. None of these programs writes into the mail log."""
    master, warnings = find_master(instance), list[str]()
    if server_state(master, counts).is_running is not False:
        warnings += silence_warnings(due_log_end(instance, counts, now), now)
    return HostFacts(master, (*warnings, *space_warnings(instance)))


def watch_instance(
    open_instance: Callable[[], Instance],
    listing: LastCounts[ListingCounts],
    unread: Callable[[], str] = str,
) -> ServerWatch[Instance, HostFacts, WholeQueueFigures]:
    """Watch an instance; `open_instance` reads its settings, `unread` is why accounts cannot be
    read, and of how many mails they are; "" if they can."""
    return ServerWatch(
        open_instance,
        lambda instance: read_host(instance, listing.counts, time.time()),
        lambda instance, host: describe_facts(
            instance, host, listing.counts, time.time(), unread()
        ),
    )


def describe_facts(
    instance: Instance,
    host: HostFacts,
    counts: ListingCounts | None,
    now: float,
    unread: str = "",
) -> WholeQueueFigures:
    """The facts as rows, and the warnings; what cannot be read is unknown, and named so."""
    server, pid = server_state(host.master, counts), host.master.pid
    rows = [("Postfix", f"{instance.settings['mail_version']}, {instance.folder}")]
    rows.append(("state", server.describe(None if counts is None else counts.waiting, now)))
    delay = instance.seconds("queue_run_delay")
    rows.append(("queue run", f"each {describe_limit(delay)}"))
    warnings, about_tasks = list[str](), dict[str, State]()
    if counts is None:
        rows.append(("queues", "? (not listed yet)"))
    else:
        rows += _count_rows(counts)
        found = [*count_warnings(instance, counts, now)]
        warnings += (text for _, text in found)
        about_tasks = {text: state for state, text in found if state is not None}
    if unread:
        rows.append(("accounts", unread.removeprefix("accounts of ")))
    return WholeQueueFigures(
        tuple(rows),
        (*warnings, *setting_warnings(instance), *host.warnings),
        warned_states=about_tasks,
        workers=(pid,) if pid is not None and instance.is_local else (),
        has_worker=server.is_running,
        server=server,
    )


def _count_rows(counts: ListingCounts) -> Iterator[tuple[str, str]]:
    queues = (f"{name} {number:,}" for name, number in counts.queues.items() if number)
    yield "queues", ", ".join(queues) or "all empty"
    if counts.suspended:
        yield "suspended", describe_suspended(counts)
    if counts.trashed_at:
        yield "trash", f"{format_count(len(counts.trashed_at), 'message')} on hold by our marks"


def other_warnings(counts: ListingCounts) -> Sequence[str]:
    """What the listing wrote to standard error, but that Postfix is stopped."""
    return [line for line in counts.warnings if "Mail system is down" not in line]


def describe_suspended(counts: ListingCounts) -> str:
    """The number of messages with suspended destinations, and the first of these."""
    some = [safe_line(name) for name, _ in counts.destinations[:MAX_NAMED]]
    others = len(counts.destinations) - len(some)
    is_whole = counts.suspended <= EXAMINED
    more = f" and {others:,}{'' if is_whole else '+'} more" if others > 0 else ""
    return f"{format_count(counts.suspended, 'message')}: {', '.join(some)}{more}"


def count_warnings(
    instance: Instance, counts: ListingCounts, now: float
) -> Iterator[tuple[State | None, str]]:
    """What of a listing an operator should know, the most urgent first; each with the state of the
    messages that it is about, or None."""
    if counts.suspended:
        yield counts.suspended_state, f"suspended, {describe_suspended(counts)}"
    if (incoming := counts.queues["incoming"]) > MANY_INCOMING:
        yield None, f"{incoming:,} incoming: the queue manager is the bottleneck"
    limit = instance.settings["qmgr_message_active_limit"]
    if limit.isdecimal() and (active := counts.queues["active"]) >= int(limit) > 0:
        yield None, f"active queue full: {active:,} of {int(limit):,}, new mail waits too"
    if counts.delivered:
        words = format_count(counts.delivered, "message")
        them = _pronoun(counts.delivered)
        yield State.HELD, f"{words} delivered while held: L lets Postfix remove {them}"
    if counts.held_pids:
        pids = ", ".join(counts.held_pids[:MAX_NAMED])
        yield State.HELD, f"held, but in delivery: PID {pids} goes on"
    if overdue := sum(now - at > KEPT_SECONDS for at in counts.trashed_at):
        words = format_count(overdue, "message")
        yield State.TRASH, f"{words} in the trash for over 24h: expunge {_pronoun(overdue)}"
    if released := sum(at + MARGIN_SECONDS < now for at in counts.released_at):
        words = format_count(released, "purged message")
        how = "released, deleted, delivered, or never held"
        yield None, f"{words} not in the trash any more: {how}"
    for line in other_warnings(counts)[:MAX_NAMED]:
        text = line.removeprefix("postqueue: ").removeprefix("warning: ")
        yield None, safe_line(text.removeprefix(f"{instance.folder}/"))
    if counts.damaged:
        names = ", ".join(counts.damaged[:MAX_NAMED])
        more = len(counts.damaged) - MAX_NAMED
        yield None, f"corrupt: {names}" + (f" and {more:,} more" if more > 0 else "")


def _pronoun(number: int) -> str:
    return "it" if number == 1 else "them"


def due_log_end(instance: Instance, counts: ListingCounts | None, now: float) -> LogEnd:
    """The last line of the queue manager, if mail is due for so long that there must be one; else
    only whether the log can be read."""
    if not log_of(instance).paths:
        return LogEnd()  # the output of a container
    limit = SILENT_SECONDS + instance.seconds("queue_run_delay")
    if counts is None or counts.oldest_due is None or now - counts.oldest_due <= limit:
        return LogEnd(problem=log_end(instance, 1).problem)
    return log_end(instance)


def log_end(instance: Instance, most: int = TAIL_BYTES) -> LogEnd:
    """The last bytes of its log, with the last line of the queue manager."""
    return read_log_end(log_of(instance), f"{instance.settings['syslog_name']}/qmgr", most)


def silence_warnings(end: LogEnd, now: float) -> Iterator[str]:
    """No line of the queue manager although mail is due; or a log that cannot be read."""
    if end.problem:
        yield f"log unreadable: {end.problem}"
    seen = end.since if end.last is None else end.last
    if seen is not None and now - seen > SILENT_SECONDS:
        age = format_rough_duration(now - seen)
        yield f"queue manager silent for {age}{'+' * (end.last is None)}, mail is due"


def setting_warnings(instance: Instance) -> Iterator[str]:
    """Settings by which mail stays in the queue."""
    if instance.settings["soft_bounce"] == "yes":
        yield "soft_bounce = yes: mail that failed for good is tried again"
    if names := instance.settings["defer_transports"]:
        yield f"defer_transports = {safe_line(names)}: not tried until a flush"


def space_warnings(instance: Instance) -> Iterator[str]:
    """Little free space for the queue, compared with queue_minfree."""
    least = instance.settings["queue_minfree"]
    if least == "0":
        least = instance.settings["message_size_limit"]
    if not least.isdecimal() or not int(least):
        return
    free = count_free_bytes(instance.prefix.plain, instance.queue_folder)
    if free is not None and free < SPACE_FACTOR * int(least):
        limit = format_bytes(int(SPACE_FACTOR * int(least)))
        yield f"{format_bytes(free)} free for the queue: below {limit} mail is refused"
