"""Facts about one Exim for the console: its daemon, frozen mail, the trash queue, its settings and
disk; and the warnings that become alerts."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterator, Mapping

from engine.formats.exim import lines, rules
from engine.formats.exim.parts import zone_there
from engine.formats.exim.programs import Exim
from engine.logs.log_line import parse_head
from engine.model import State
from engine.places.place import ServerState, WholeQueueFigures
from engine.programs.server_watch import LastCounts, ServerWatch, count_free_bytes
from engine.store import Unavailable
from engine.text.figures import format_bytes, format_count
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.values import NamedTuple

SERVER = "Exim"
LOG_BYTES = 1 << 18
"""Bytes at the end of the main log that are read for the last queue run."""
MAX_PROCESSES = 50
"""Processes of Exim whose command lines are read."""
SPACE_FACTOR = 1.5
MAX_NAMED = 3
"""Names in one fact."""


class QueueCounts(NamedTuple):
    """What the last listing of this process has shown."""

    waiting: int = 0
    frozen: int = 0
    bounces: int = 0
    """Those of the frozen ones that are reports to a sender."""
    ending: int = 0
    """Frozen ones that Exim cancels or thaws within 24 h."""
    trashed: int = 0
    overdue: int = 0
    """Those in the trash queue that may be deleted."""
    by_hand: int = 0
    """Those in the trash queue that we did not move there."""


class LastListing(LastCounts[QueueCounts]):
    """The counts of the last listing of a place in this process."""

    def count(
        self, records: Mapping[str, bytes], limits: rules.HoldLimits, hours: float, now: float
    ) -> None:
        """Count the records of a listing."""
        numbers = dict.fromkeys(QueueCounts._fields, 0)
        for ident, record in records.items():
            extra, _, rest = record.partition(b"\n")
            flag = rest[:1]
            if flag == b"q":
                numbers["waiting"] += 1
            elif flag == b"f":
                is_bounce = rest.partition(b"\n")[0].endswith(b"\t")
                numbers["frozen"] += 1
                numbers["bounces"] += is_bounce
                end = limits.end(lines.arrival_time(ident), "" if is_bounce else "a sender")
                numbers["ending"] += end is not None and end[0] - now < rules.DAY_SECONDS
            else:
                _, since, by, *_ = [*extra.decode("utf-8", "replace").split("\t"), "", "", ""]
                moment = rules.to_time(since)
                is_old = moment is not None and now - moment > hours * 3600
                numbers["trashed"] += 1
                numbers["by_hand"] += by not in ("", "spooldeck")
                numbers["overdue"] += by == "spooldeck" and is_old
        self.counts = QueueCounts(**numbers)


class Daemon(NamedTuple):
    """The processes of Exim that deliver by themselves."""

    pids: tuple[int, ...]
    interval: str
    """Time between queue runs, as it was given to `-q`; "" if no process has one."""
    is_known: bool


def find_daemon(exim: Exim) -> Daemon:
    """The daemon by its PID file; if there is none, the processes of its program."""
    path = exim.settings.get("pid_file_path") or f"{exim.spool}/exim-daemon.pid"
    named = exim.other("cat", path)
    pids = [one.strip().decode("utf-8", "replace") for one in named[:1]]
    found = _command_lines(exim, [pid for pid in pids if pid.isdecimal()])
    is_known = True
    if not any(map(_is_daemon, found.values())):
        name = posixpath.basename(exim.words[0])
        links = ("-maxdepth", "2", "-name", "exe", "-lname", f"*/{name}*", "-printf", "%h\\n")
        out, end = exim.helpers.run(("find", "/proc", *links))
        # Links of other users' processes cannot be read without root; some end meanwhile.
        user = exim.other("stat", "-L", "-c", "%u", "/proc/self")[-1:]
        can_read = user == [b"0"] and exim.helpers == exim.prefix
        is_known = can_read and not exim.helpers.why_failed(end)
        pids = [line.decode("utf-8", "replace").rpartition("/")[2] for line in out]
        found = _command_lines(exim, _with_our_root(exim, pids[:MAX_PROCESSES]))
    daemons = {pid: words for pid, words in found.items() if _is_daemon(words)}
    interval = next(filter(None, map(_interval_of, daemons.values())), "")
    return Daemon(tuple(map(int, daemons)), interval, is_known or bool(daemons))


def _interval_of(words: list[str]) -> str:
    """The time between queue runs in the words of a daemon: `-q30m`, or `-q` and `30m`."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("-q"):
            time_text = word.lstrip("-qfil") or following
            return time_text if lines.parse_time(time_text) else ""
    return ""


def _with_our_root(exim: Exim, pids: list[str]) -> list[str]:
    """Those of these processes whose `/` is the one of our programs: others are in containers."""
    paths = {f"/proc/{pid}/root": pid for pid in pids if pid.isdecimal()}
    out, _ = exim.helpers.run(("stat", "-L", "-c", "%d:%i %n", "/", *paths))
    pairs = (line.decode("utf-8", "replace").split(" ") for line in out)
    places = dict(pair[::-1] for pair in pairs if len(pair) == 2)  # a shell may greet before
    return [pid for path, pid in paths.items() if places.get(path, "") == places.get("/")]


def _command_lines(exim: Exim, pids: list[str]) -> Mapping[str, list[str]]:
    lines_by_pid = {}
    for pid in pids:
        text = b"\n".join(exim.other("cat", f"/proc/{pid}/cmdline")).decode("utf-8", "replace")
        lines_by_pid[pid] = text.split("\0")
    return lines_by_pid


def _is_daemon(words: list[str]) -> bool:
    is_listening = any(word.startswith("-bd") for word in words)  # -bdf: in the foreground
    return "exim" in posixpath.basename(words[0]) and (is_listening or bool(_interval_of(words)))


class HostFacts(NamedTuple):
    """What programs of its host show of an Exim."""

    daemon: Daemon
    warnings: tuple[str, ...] = ()
    hosts: str = ""
    """The hosts in trouble, or why they are unknown; "" if they were not asked for."""


def read_host(exim: Exim, counts: QueueCounts | None) -> HostFacts:
    """Read the facts of one moment. Exim itself is not run: with `+arguments` each call of it would
    write a line into the main log."""
    daemon, warnings = find_daemon(exim), list[str]()
    hosts, is_trouble = read_hosts(exim) if counts is not None and counts.waiting else ("", False)
    if is_trouble:
        warnings.append(hosts)
    warnings += log_warnings(exim, lines.parse_time(daemon.interval), exim.now(time.time()))
    warnings += [*setting_warnings(exim), *panic_warnings(exim), *space_warnings(exim)]
    return HostFacts(daemon, tuple(warnings), hosts)


def read_hosts(exim: Exim) -> tuple[str, bool]:
    """The hosts, and domains of addresses, that were tried in vain in the last day, in a few words,
    and True if there are any. Times are compared with the local time there, as they are printed."""
    program = posixpath.join(posixpath.dirname(exim.words[0]), "exim_dumpdb")
    has_sudo = exim.prefix.plain != exim.prefix
    try:
        if has_sudo and exim.prefix.run(("-l", program))[1].status:  # a refusal sends root a mail
            return f"? (sudo does not allow {program})", False
        out, end = exim.prefix.run((program, exim.spool, "retry"))
    except Unavailable as error:
        return f"? ({error})", False
    ahead = zone_there(exim)
    why = safe_line(b"".join(out[-1:]).decode("utf-8", "replace")) if end.status else ""
    if why.endswith("No such file or directory"):
        return "none", False  # no host was tried yet
    if why or ahead is None:
        return f"? ({why or 'no zone there'})", False
    there = exim.now(time.time()) + ahead
    names, next_try = dict[str, None](), None
    for record in lines.parse_retry_dump(out):
        tried, tries = lines.parse_retry_time(record.last_tried), record.next_try_at
        if tried is not None and tries is not None and there - tried < rules.DAY_SECONDS:
            names[safe_line(record.what)] = None
            next_try = min(tries, next_try or tries)
    if next_try is None:
        return "none", False
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    left = next_try - there
    when = f"in {format_rough_duration(left)}" if left > 0 else "at the next queue run"
    some = ", ".join([*names][:MAX_NAMED])
    return f"{format_count(len(names), 'host')} in trouble: {some}{more}; next try {when}", True


def describe_facts(exim: Exim, host: HostFacts, counts: QueueCounts | None) -> WholeQueueFigures:
    """The facts as rows, and the warnings; what cannot be read is unknown, and named so."""
    daemon = host.daemon
    rows = [("Exim", f"{exim.version}, {' '.join(exim.words)}")]
    warnings, about_tasks = list[str](), dict[str, State]()
    if daemon.pids:
        rows.append(("daemon", f"PID {daemon.pids[0]}"))
        rows.append(("queue run", f"every {daemon.interval}" if daemon.interval else "none"))
        if not daemon.interval:
            warnings.append("no queue runner (-q with a time): deferred mail waits")
    elif daemon.is_known:
        rows.append(("daemon", "none"))
    else:
        rows.append(("daemon", "? (its processes cannot be read)"))
    if counts is None:
        rows.append(("frozen", "? (not listed yet)"))
    else:
        rows += _count_rows(counts)
        about_tasks = {text: state for state, text in _count_warnings(counts)}
    if host.hosts:
        rows.append(("hosts", host.hosts))
    state = server_state(daemon)
    return WholeQueueFigures(
        tuple(rows),
        (*warnings, *about_tasks, *host.warnings),
        warned_states=about_tasks,
        workers=() if exim.prefix.words else daemon.pids,
        has_worker=state.is_running,
        server=state,
    )


def server_state(daemon: Daemon) -> ServerState:
    """Whether a daemon runs."""
    is_running = True if daemon.pids else (False if daemon.is_known else None)
    pid = daemon.pids[0] if daemon.pids else None
    why = "" if daemon.is_known else "its processes cannot be read"
    return ServerState(SERVER, "no Exim daemon runs", is_running, pid, why=why)


def _count_rows(counts: QueueCounts) -> Iterator[tuple[str, str]]:
    yield "frozen", f"{counts.frozen:,}, of these {format_count(counts.bounces, 'bounce')}"
    yield "trash queue", f"{counts.trashed:,}, {counts.by_hand:,} of them moved by hand"


def _count_warnings(counts: QueueCounts) -> Iterator[tuple[State, str]]:
    if others := counts.frozen - counts.bounces:
        messages = format_count(others, "message")
        yield State.HELD, f"{messages} frozen, bounces not counted: L releases"
    if counts.ending:
        ending = f"{counts.ending:,} frozen, ended by Exim within 24h"
        yield State.HELD, f"{ending}: X to its trash queue"
    if counts.overdue:
        messages = format_count(counts.overdue, "message")
        yield State.TRASH, f"{messages} in the trash past its time: expunge them"
    if counts.by_hand:
        yield State.TRASH, f"{counts.by_hand:,} in the trash queue moved by hand: never deleted"


def watch_exim(
    open_exim: Callable[[], Exim], listing: LastListing
) -> ServerWatch[Exim, HostFacts, WholeQueueFigures]:
    """Watch an Exim; `open_exim` finds the program and its settings."""
    return ServerWatch(
        open_exim,
        lambda exim: read_host(exim, listing.counts),
        lambda exim, host: describe_facts(exim, host, listing.counts),
    )


def setting_warnings(exim: Exim) -> Iterator[str]:
    """Settings by which mail waits."""
    if exim.is_set("queue_only"):
        yield "queue_only is set: mail waits for the next queue run"
    load = exim.other("cat", "/proc/loadavg")
    words = load[-1].decode("utf-8", "replace").split() if load else []
    now = rules.to_time(words[0]) if words else None
    for name in ("queue_only_load", "deliver_queue_load_max"):
        limit = rules.to_time(exim.settings.get(name, ""))
        if now is not None and limit is not None and now > limit:
            yield f"load {now:g} is above {name} = {limit:g}: mail waits"


def panic_warnings(exim: Exim) -> Iterator[str]:
    """The last line of the panic log, if it has one."""
    for path in exim.log_paths("panic")[:1]:
        if last := exim.other("tail", "-n", "1", path):
            text = safe_line(last[0].decode("utf-8", "replace"))[:200]
            yield f"{path} is not empty: {text}"


def log_warnings(exim: Exim, interval: float | None, now: float) -> Iterator[str]:
    """The main log cannot be read; or it has no queue run for two intervals. Its local times are
    only compared with each other; `now` is the time there."""
    path = next(iter(exim.log_paths()), "")
    most = LOG_BYTES if interval and exim.has_queue_run_log else 1
    if not path:
        return  # syslog has it, or a container
    tail, end = exim.helpers.run(("tail", "-c", str(most), path))
    if end.status and not end.last_error.endswith("No such file or directory"):
        yield f"log unreadable: {safe_line(end.last_error)}"
    if not interval or most == 1:
        return
    changed = exim.other("stat", "-L", "-c", "%Y", path)
    written = rules.to_time(changed[0].decode("utf-8", "replace")) if changed else None
    times = [(when, line) for line in tail if (when := _time_of(line)) is not None]
    if written is None or not times:
        return
    runs = [when for when, line in times if b" Start queue run: " in line]
    silent = now - written + times[-1][0] - (runs[-1] if runs else times[0][0])
    if silent > 2 * interval:
        since = format_rough_duration(silent)
        yield f"no queue run for {since}, expected one each {format_rough_duration(interval)}"


def _time_of(line: bytes) -> float | None:
    head = parse_head(line[:80].decode("utf-8", "replace"))
    return None if head is None else head[0]


def space_warnings(exim: Exim) -> Iterator[str]:
    """Little free space for the spool, compared with check_spool_space."""
    least = lines.parse_bytes(exim.settings.get("check_spool_space", ""))
    free = count_free_bytes(exim.helpers, exim.spool) if least else None
    if least and free is not None and free < SPACE_FACTOR * least:
        limit = format_bytes(least)
        yield f"{format_bytes(free)} free for the spool: below {limit} Exim takes no mail"


def hold_facts(exim: Exim) -> Iterator[tuple[str, str]]:
    """The settings by which Exim ends that mail is frozen, as names and texts."""
    for name in ("timeout_frozen_after", "ignore_bounce_errors_after", "auto_thaw"):
        seconds = exim.seconds(name)
        yield name, format_rough_duration(seconds) if seconds else "never"
