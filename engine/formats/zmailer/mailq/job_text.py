"""Render and parse the jobs of a ZMailer scheduler: the dump of MAILQ version 1, and the lines of
`SHOW THREAD` of version 2; list them as mailq(1zm), the client of the original, prints them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from engine.formats.zmailer.mailq.queue_view import (
    JobView,
    JobWait,
    KeyList,
    SchedulerView,
    ThreadView,
)
from engine.formats.zmailer.mailq.report_text import (
    NUMBER,
    SHORT_TIME,
    bad_line,
    parse_report,
    parse_short_time,
    parse_thread,
    report_lines,
    short_time,
    thread_details,
    whole,
)
from engine.values import NamedTuple

VERSION_1 = "version zmailer 1.0"
"""First line of a dump."""
VERSION_2 = "version zmailer 2.0"
"""First line of a server of version 2."""
THREAD_FIELDS = 10
"""Fields of a line of `SHOW THREAD`."""

_WAIT_TEXTS = {
    JobWait.SLOT: "waiting for slot",
    JobWait.CHANNEL: "waiting for channel slot",
    JobWait.THREAD: "waiting for thread slot",
    JobWait.INACTIVE: "activation pending, thread inactive",
}
_WAITS = {text: wait for wait, text in _WAIT_TEXTS.items()}
_V2_WAITS = {"channel": JobWait.CHANNEL, "thread": JobWait.THREAD, "": JobWait.UNKNOWN}
_LINE_BREAKS = {ord("\n"): "\r"}


# ---- version 1


def job_text(job: JobView, now: float) -> str:
    """The last diagnostic of a job and its state in brackets, as a dump has it."""
    if job.wait is JobWait.RETRY:
        wait = f"retry in {short_time(int((job.wakeup or now) - now))}"
    elif job.wait is JobWait.RUNNING:
        wait = f"running now, pid={job.pid}" + " NextFeed" * job.is_next_fed
    else:
        wait = _WAIT_TEXTS.get(job.wait, _WAIT_TEXTS[JobWait.INACTIVE])
    if job.expires_at is not None:
        expiry = short_time(int(job.expires_at - now))
        wait += f", expires in {expiry}, tries={job.attempts or 0}"
    message = job.message.translate(_LINE_BREAKS)
    return f"{message} ({wait})" if message else f"({wait})"


def dump_lines(view: SchedulerView, *, with_jobs: bool = True) -> Iterator[str]:
    """All that a server of version 1 writes."""
    yield VERSION_1
    yield "Vertices:"
    if with_jobs and view.jobs:
        for key, job in enumerate(view.jobs, 1):
            offsets = ",".join(map(str, job.offsets))
            text = job_text(job, view.now)
            yield f"{key}:\t{job.path}\t{len(job.offsets)}; {offsets}\t#{text}"
        channels = view.channel_keys or key_lists(job.channel for job in view.jobs)
        hosts = view.host_keys or key_lists(job.host for job in view.jobs)
        for title, lists in (("Channels:", channels), ("Hosts:", hosts)):
            yield title
            for name, keys in lists:
                yield f"{name}:\t" + "".join(f">{key}" for key in keys)
    yield "End:"
    yield from report_lines(view.groups, view.totals, view.now)


def key_lists(names: Iterable[str]) -> tuple[KeyList, ...]:
    """The keys of each name, where the n-th name is that of key n."""
    keys_by_name: dict[str, list[int]] = {}
    for key, name in enumerate(names, 1):
        keys_by_name.setdefault(name, []).append(key)
    return tuple(KeyList(name, tuple(keys)) for name, keys in keys_by_name.items())


_STATE = re.compile(
    rf"\((?:retry in (?P<retry>{SHORT_TIME})|running now, pid=(?P<pid>{NUMBER})(?P<next> NextFeed)?"
    rf"|(?P<wait>{'|'.join(_WAITS)}))"
    rf"(?:, expires in (?P<expires>{SHORT_TIME}), tries=(?P<tries>{NUMBER}))?\)$"
)
_VERTEX = re.compile(
    rf"({NUMBER}):\t([^\t]+)\t({NUMBER}); ({NUMBER}(?:,{NUMBER})*)\t#(.*)", re.DOTALL
)
_KEY_LIST = re.compile(rf"(.+):\t((?:>{NUMBER})+)")


def parse_dump(text: str, now: float) -> SchedulerView:
    """Parse a dump, as a server of version 1 or a rendezvous file has it, written at `now`. Raises
    BadReport: a line has another form, or the end is missing."""
    lines = text.split("\n")
    rows = list[tuple[int, JobView]]()
    lists: dict[str, list[KeyList]] = {"Channels:": [], "Hosts:": []}
    current: list[KeyList] | None = None
    if lines[:2] != [VERSION_1, "Vertices:"]:
        raise bad_line(1, lines[0], f"{VERSION_1!r} and a line 'Vertices:'")
    for number, line in enumerate(lines[2:], 3):
        if line == "End:":
            break
        if line in lists:
            current = lists[line]
        elif current is None:
            rows.append(_parse_vertex(line, number, now))
        else:
            current.append(_parse_key_list(line, number, len(rows)))
    else:
        raise bad_line(len(lines), lines[-1], "a line 'End:': the dump is cut")
    groups, totals = parse_report(lines[number:], now, number + 1)
    if [key for key, _ in rows] != [*range(1, len(rows) + 1)]:
        raise bad_line(3, lines[2], "keys counted from 1")
    channels, hosts = (_names(one, len(rows), number) for one in lists.values())
    jobs = (
        job._replace(channel=channel, host=host)
        for (_, job), channel, host in zip(rows, channels, hosts, strict=True)
    )
    keys = [tuple(one) for one in lists.values()]
    return SchedulerView(
        now, groups, totals, jobs=tuple(jobs), channel_keys=keys[0], host_keys=keys[1]
    )


def _names(lists: list[KeyList], amount: int, number: int) -> list[str]:
    names = {key: one.name for one in lists for key in one.keys}
    if len(names) != amount:
        raise bad_line(number, "End:", "each key in one list of Channels: and of Hosts:")
    return [names[key] for key in range(1, amount + 1)]


def _parse_key_list(line: str, number: int, amount: int) -> KeyList:
    match = _KEY_LIST.fullmatch(line)
    keys = tuple(map(int, match[2][1:].split(">"))) if match else ()
    if not match or not all(0 < key <= amount for key in keys):
        raise bad_line(number, line, f"NAME: and >KEY with keys from 1 to {amount}")
    return KeyList(match[1], keys)


def _parse_vertex(line: str, number: int, now: float) -> tuple[int, JobView]:
    match = _VERTEX.fullmatch(line)
    state = _STATE.search(match[5]) if match else None
    if not match or not state:
        raise bad_line(number, line, "KEY:, PATH, N; OFFSETS, #MESSAGE (STATE), with TABs")
    offsets = tuple(map(int, match[4].split(",")))
    if int(match[3]) != len(offsets):
        raise bad_line(number, line, f"{match[3]} offsets")
    wait = JobWait.RUNNING if state["pid"] else JobWait.RETRY
    if state["wait"]:
        wait = _WAITS[state["wait"]]
    retry, expires = state["retry"], state["expires"]
    try:
        job = JobView(
            match[2],
            "",
            "",
            offsets=offsets,
            message=match[5][: state.start()].removesuffix(" "),
            wait=wait,
            wakeup=None if retry is None else now + parse_short_time(retry),
            pid=int(state["pid"] or 0),
            is_next_fed=bool(state["next"]),
            expires_at=None if expires is None else now + parse_short_time(expires),
            attempts=None if state["tries"] is None else int(state["tries"]),
        )
    except ValueError as error:
        raise bad_line(number, line, f"other text: {error}") from None
    return int(match[1]), job


# ---- version 2


def thread_lines(thread: ThreadView, jobs: Iterable[JobView], now: float) -> Iterator[str]:
    """The answer to `SHOW THREAD`: one line for the thread, one for each recipient."""
    yield f"#{thread.channel}/{thread.host}/{thread.withhost}  {thread_details(thread, now)}"
    for job in jobs:
        wait = {JobWait.CHANNEL: "channel", JobWait.THREAD: "thread"}.get(job.wait, "")
        if job.wait is JobWait.RETRY:
            wait = f"retry in {short_time(int((job.wakeup or now) - now))}"
        times = f"{int(job.expires_at or 0)}\t{int(job.wakeup or 0)}\t{int(job.fed_at)}"
        details = f"{times}\t{job.attempts or 0}\t{wait}\t{job.message.translate(_LINE_BREAKS)}"
        for number, offset in enumerate(job.offsets):
            yield f"{job.path}\t{number}\t{job.error_address}\t{offset}\t{details}"


class ThreadJobs(NamedTuple):
    """The answer to `SHOW THREAD`."""

    thread: ThreadView | None
    """None if there is no such thread."""
    jobs: tuple[JobView, ...]


def parse_thread_jobs(lines: Iterable[str], channel: str, host: str, now: float) -> ThreadJobs:
    """Parse the answer to `SHOW THREAD` for one thread.

    Brackets around an error address, as scheduler(8zm) has them, are removed. Raises BadReport: a
    line has another form."""
    thread: ThreadView | None = None
    rows, jobs = list[JobView](), list[JobView]()
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            thread = parse_thread(f"    {line[1:]}", number, now)
        else:
            rows.append(_parse_recipient(line, number, channel, host))
    for job, same in groupby(rows, lambda row: row._replace(offsets=())):
        jobs.append(job._replace(offsets=tuple(one.offsets[0] for one in same)))
    return ThreadJobs(thread, tuple(jobs))


def _parse_recipient(line: str, number: int, channel: str, host: str) -> JobView:
    fields = line.split("\t", THREAD_FIELDS - 1)
    if len(fields) != THREAD_FIELDS:
        raise bad_line(number, line, f"{THREAD_FIELDS} fields with TABs, not {len(fields)}")
    path, _, address, offset, expires, wakeup, fed, attempts, wait, message = fields
    if address.startswith("<") and address.endswith(">"):
        address = address[1:-1]
    kind = JobWait.RETRY if wait.startswith("retry in ") else _V2_WAITS.get(wait)
    if kind is None or not path:
        raise bad_line(number, line, "'retry in TIME', 'channel', 'thread' or '' as field 9")
    try:
        return JobView(
            path,
            channel,
            host,
            offsets=(whole(offset),),
            message=message,
            wait=kind,
            wakeup=whole(wakeup) or None,
            expires_at=whole(expires) or None,
            attempts=whole(attempts),
            error_address=address,
            fed_at=whole(fed),
        )
    except ValueError:
        raise bad_line(number, line, "numbers as fields 4 to 8") from None


Details = Callable[[JobView], Iterable[str]]
"""Further lines on a job (`mailq -v`)."""


def no_details(job: JobView) -> Iterable[str]:
    """No lines."""
    return ()


def dump_listing(
    view: SchedulerView, wants: Callable[[str, str], bool], details: Details = no_details
) -> Iterator[str]:
    """The threads of a dump of version 1 that `wants(channel, host)`: channels in their order, the
    last job first."""
    for channel, keys in view.channel_keys:
        threads: dict[str, list[JobView]] = {}
        for key in reversed(keys):
            job = view.jobs[key - 1]
            threads.setdefault(job.host, []).append(job)
        for host, jobs in threads.items():
            if not wants(channel, host):
                continue
            yield f"{channel}/{host}:"
            for job in jobs:
                amount = f"/{len(job.offsets)}" if len(job.offsets) > 1 else ""
                yield f"\t{job.path}{amount}:\t{job_text(job, view.now)}"
                yield from details(job)


def thread_listing(
    channel: str, host: str, jobs: Iterable[JobView], now: float, details: Details = no_details
) -> Iterator[str]:
    """A thread of a server of version 2."""
    yield f"{channel}/{host}:"
    for job in jobs:
        expiry = ""
        if job.expires_at is not None:
            expiry = f", expires in {short_time(int(job.expires_at - now))}"
        yield f"\t{job.path}: ({job.attempts or 0} tries{expiry}) {job.message}"
        yield from details(job)


def message_details(identity: str, sender: str, recipients: Iterable[str]) -> Iterator[str]:
    """What `mailq -v` has of a control file: message id, sender, recipients that are to do."""
    yield f"\t  id\t{identity}"
    yield f"\t  from\t{sender}"
    for number, recipient in enumerate(recipients):
        yield f"\t{'' if number else '  to'}\t{recipient}"
