"""Render and parse the reports of a ZMailer scheduler: threads, groups, totals, counters.

Text has surrogates for bytes that are not UTF-8 (`decode`, `encode`). The forms are those of
ZMailer 3.0.1, byte for byte; what a report has as seconds from now becomes epoch seconds UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from engine.formats.zmailer.mailq.queue_view import (
    AgentView,
    CounterView,
    GroupView,
    ThreadView,
    TotalsView,
)
from engine.text.safe import safe_line

TAB_STOPS = (15, 23, 31)
"""A thread's label gets one TAB for each of these that its columns, plus 7, are below."""
LAST_STOP = 39
"""Below it the label gets a last TAB, else a blank."""
COUNTERS_TITLE = "ZMailer SHM segment dump; Magic=0x33120006"
"""First line of the counters."""
_SHOWN = 60
"""Characters of a bad line that its message repeats."""


class BadReport(ValueError):
    """Text is not what a ZMailer scheduler writes; the text has the line and what was expected."""


def bad_line(number: int, line: str, expected: str) -> BadReport:
    """The error of a line, counted from 1."""
    return BadReport(f"line {number}: {safe_line(line[:_SHOWN])!r}, expected {expected}")


def decode(data: bytes) -> str:
    """Bytes of a server or file as text that `encode` makes the same bytes of."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Text as bytes for a server, client or file."""
    return text.encode("utf-8", "surrogateescape")


NUMBER = "[0-9]{1,15}"
"""Regular expression of a number: longer ones are no number, as times with them would be none."""


def whole(text: str) -> int:
    """Parse a number; raises ValueError if it has another form."""
    if not re.fullmatch(f"-?{NUMBER}", text):
        raise ValueError(f"{safe_line(text[:_SHOWN])!r}, expected a number of at most 15 digits")
    return int(text)


# ---- times


def short_time(seconds: int) -> str:
    """Seconds as the original writes them: 2d23h, 13m18s, 4d1m6s, -1d28s, 0s.

    Minutes and seconds are there only if days or hours are 0."""
    if seconds <= 0:
        return f"-{short_time(-seconds)}" if seconds else "0s"
    days, remaining = divmod(seconds, 86400)
    hours, remaining = divmod(remaining, 3600)
    text = (f"{days}d" if days else "") + (f"{hours}h" if hours else "")
    if days and hours:
        return text
    minutes, remaining = divmod(remaining, 60)
    return text + (f"{minutes}m" if minutes else "") + (f"{remaining}s" if remaining else "")


SHORT_TIME = f"-?(?:{NUMBER}d)?(?:{NUMBER}h)?(?:{NUMBER}m)?(?:{NUMBER}s)?"
"""Regular expression of a short time; it also matches an empty text."""
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_short_time(text: str) -> int:
    """Seconds of a short time, or of "N sec". Raises ValueError: it is no such time."""
    if text.endswith(" sec"):
        return whole(text[:-4])
    if not re.fullmatch(SHORT_TIME, text) or not text.strip("-"):
        raise ValueError(f"{text!r}, expected a time such as 2d23h")
    total = sum(int(n) * _UNITS[unit] for n, unit in re.findall("([0-9]+)([dhms])", text))
    return -total if text.startswith("-") else total


# ---- threads


@lru_cache(1 << 16)
def thread_label(channel: str, host: str, withhost: int) -> str:
    """The name of a thread with the blanks before it and the TABs behind it."""
    label = f"    {channel}/{host}/{withhost}"
    width = len(encode(label)) + 7
    tabs = "\t" * sum(width < stop for stop in TAB_STOPS)
    return label + tabs + ("\t" if width < LAST_STOP else " ")


def thread_details(thread: ThreadView, now: float) -> str:
    """The numbers of a thread, as they follow its label."""
    t = thread
    start = f"N={t.jobs:<3d} R={t.recipients:<3d} A={t.attempts:<2d} "
    if t.agents or t.wakeup is None or t.wakeup <= now:
        start += " ".join(_words(t, now))
    else:  # most threads
        start += f"W={int(t.wakeup - now)}s QA={short_time(int(now - t.oldest_at))}"
    if t.is_channel_wait or t.is_thread_wait:
        start += " channelwait" * t.is_channel_wait + " threadwait" * t.is_thread_wait
    return start


def _words(thread: ThreadView, now: float) -> Iterator[str]:
    """The words of a thread after its numbers, in order."""
    if thread.agents:
        if thread.kids is not None:
            yield "Kids={}/{}".format(*thread.kids)
        agents = thread.agents
        yield _listed("P", (str(a.pid) for a in agents))
        yield _listed("HA", (_age(a.hungry_at, now) for a in agents)) + "s"
        yield _listed("FA", (_age(a.fed_at, now) for a in agents)) + "s"
        yield _listed("OF", (str(a.outstanding) for a in agents))
        yield _listed("S", (a.state for a in agents))
        yield f"UF={thread.unfed}"
    elif thread.wakeup is not None and thread.wakeup > now:
        yield f"W={int(thread.wakeup - now)}s"
    elif thread.pending:
        yield f"pend={thread.pending}"
    yield f"QA={short_time(int(now - thread.oldest_at))}"


def _listed(name: str, values: Iterable[str]) -> str:
    return f"{name}={{{','.join(values)}}}"


def _age(at: float | None, now: float) -> str:
    return "never" if at is None else str(int(now - at))


def threads2_line(thread: ThreadView, now: float) -> str:
    """A thread as `SHOW QUEUE THREADS2` has it: fields with TABs between them."""
    t = thread
    head = (t.channel, t.host, f"N={t.jobs}", f"R={t.recipients}", f"A={t.attempts}")
    return "\t".join((*head, *_words(t, now)))


_LINE = re.compile(rf" {{4}}([^/]+)/(.+)/({NUMBER})[ \t]+(N={NUMBER} .*)", re.DOTALL)


def parse_thread(line: str, number: int, now: float) -> ThreadView:
    """Parse a line of the thread report. Raises BadReport: it has another form."""
    match = _LINE.fullmatch(line)
    if not match:
        raise bad_line(number, line, "a thread as CHANNEL/HOST/0 N=1 R=1 A=0 QA=1s")
    channel, host, withhost, words = match.groups()
    values = {name: value for name, _, value in (word.partition("=") for word in words.split())}
    try:
        wakeup = values.get("W")
        kids = values["Kids"].split("/") if "Kids" in values else None
        return ThreadView(
            channel,
            host,
            whole(values["N"]),
            recipients=whole(values["R"]),
            attempts=whole(values["A"]),
            oldest_at=now - parse_short_time(values["QA"]),
            withhost=int(withhost),
            kids=None if kids is None else (whole(kids[0]), whole(kids[1])),
            agents=tuple(_agents_of(values, now)) if "P" in values else (),
            unfed=whole(values.get("UF", "0")),
            wakeup=None if wakeup is None else now + whole(wakeup.removesuffix("s")),
            pending=values.get("pend", ""),
            is_channel_wait="channelwait" in values,
            is_thread_wait="threadwait" in values,
        )
    except (KeyError, ValueError, IndexError):
        raise bad_line(number, line, "the numbers N=, R=, A= and QA= of a thread") from None


def _agents_of(values: dict[str, str], now: float) -> Iterator[AgentView]:
    columns = [values[name].removesuffix("s")[1:-1].split(",") for name in ("P", "HA", "FA", "OF")]
    states = values["S"][1:-1].split(",")
    for pid, hungry, fed, outstanding, state in zip(*columns, states, strict=True):
        hungry_at, fed_at = (None if age == "never" else now - whole(age) for age in (hungry, fed))
        yield AgentView(whole(pid), hungry_at, fed_at, whole(outstanding), state)


# ---- groups and totals


def _pair(pair: tuple[int, int], width: int) -> str:
    return f"{pair[0]:{width}d}" + (f"/{pair[1]}" if pair[1] != pair[0] else "")


def group_lines(group: GroupView, now: float, *, with_threads: bool) -> Iterator[str]:
    """The lines of a group: its clause, its threads if they are wanted, its totals."""
    g = group
    yield f"{g.channel}/{g.host}/{g.withhost}"
    if with_threads:
        for thread in g.threads:
            label = thread_label(thread.channel, thread.host, thread.withhost)
            yield label + thread_details(thread, now)
    yield (
        f"\tThreads: {_pair(g.thread_count, 4)} Msgs: {g.messages:5d} Procs: {_pair(g.agents, 3)}"
        f" Idle: {_pair(g.idle, 3)} Plim: {g.max_agents:3d} Flim: {g.overfeed:3d}"
        f" Tlim: {g.max_thread_agents}"
    )


def totals_lines(totals: TotalsView, *, in_seconds: bool = False) -> list[str]:
    """The two lines of the totals; `in_seconds`: the time as "N sec" (`SHOW SNMP`)."""
    t = totals
    uptime = f"{t.uptime} sec" if in_seconds else short_time(t.uptime)
    return [
        f"Kids: {t.agents}  Idle: {t.idle:2d}  Msgs: {t.messages:3d}  Thrds: {t.threads:3d}"
        f"  Rcpnts: {t.recipients:4d}  Uptime: {uptime}",
        f"Msgs in {t.messages_in} out {t.messages_out} stored {_recount(t.messages_stored)}"
        f" Rcpnts in {t.recipients_in} out {t.recipients_out}"
        f" stored {_recount(t.recipients_stored)}",
    ]


def _recount(pair: tuple[int, int]) -> str:
    return str(pair[0]) + (f" ({pair[1]})" if pair[1] != pair[0] else "")


def report_lines(
    groups: Iterable[GroupView], totals: TotalsView, now: float, *, with_threads: bool = True
) -> Iterator[str]:
    """The thread report; without threads it is that of `SHOW QUEUE SHORT`."""
    for group in groups:
        yield from group_lines(group, now, with_threads=with_threads)
    yield from totals_lines(totals)


_N = rf"({NUMBER})(?:/({NUMBER}))?"
_GROUP_TOTALS = re.compile(
    rf"\tThreads: +{_N} Msgs: +({NUMBER}) Procs: +{_N} Idle: +{_N} Plim: *(-?{NUMBER})"
    rf" Flim: *(-?{NUMBER}) Tlim: *(-?{NUMBER})"
)
_KIDS = re.compile(
    rf"Kids: ({NUMBER})  Idle: +({NUMBER})  Msgs: +({NUMBER})  Thrds: +({NUMBER})"
    rf"  Rcpnts: +({NUMBER})  Uptime: (.+)"
)
_FLOW = rf"in ({NUMBER}) out ({NUMBER}) stored ({NUMBER})(?: \(({NUMBER})\))?"
_MESSAGES = re.compile(rf"Msgs {_FLOW} Rcpnts {_FLOW}")


def parse_report(
    lines: Iterable[str], now: float, first_number: int = 1
) -> tuple[tuple[GroupView, ...], TotalsView]:
    """Parse a thread report, or that of `SHOW QUEUE SHORT`; the first line has `first_number`.
    Raises BadReport: a line has another form, or the totals are missing."""
    groups = list[GroupView]()
    title, threads, number = "", list[ThreadView](), first_number
    numbered = enumerate(lines, first_number)
    for number, line in numbered:
        if line.startswith("    "):
            threads.append(parse_thread(line, number, now))
        elif line.startswith("\t"):
            groups.append(_parse_group(title, tuple(threads), line, number))
            title, threads = "", []
        elif _KIDS.fullmatch(line):
            return tuple(groups), _parse_totals(line, next(numbered, (number, "")), number)
        else:
            title = line
    raise bad_line(number, "", "the line with Kids: and Uptime:")


def _parse_group(title: str, threads: tuple[ThreadView, ...], line: str, number: int) -> GroupView:
    name, _, withhost = title.rpartition("/")
    channel, slash, host = name.partition("/")
    match = _GROUP_TOTALS.fullmatch(line)
    if not slash or not withhost.isdecimal():
        raise bad_line(number, title, "a group as CHANNEL/HOST/0 before these totals")
    if not match:
        raise bad_line(number, line, "the totals of a group: Threads: 1 Msgs: 1 Procs: 0 ...")
    counted, recount, messages, procs, recount2, idle, recount3, *limits = match.groups()
    max_agents, overfeed, max_thread_agents = map(int, limits)
    return GroupView(
        channel,
        host,
        threads,
        thread_count=(int(counted), int(recount or counted)),
        messages=int(messages),
        agents=(int(procs), int(recount2 or procs)),
        idle=(int(idle), int(recount3 or idle)),
        max_agents=max_agents,
        overfeed=overfeed,
        max_thread_agents=max_thread_agents,
        withhost=int(withhost),
    )


def _parse_totals(line: str, following: tuple[int, str], number: int) -> TotalsView:
    kids, flow = _KIDS.fullmatch(line), _MESSAGES.fullmatch(following[1])
    if not kids:
        raise bad_line(number, line, "the totals: Kids: 1  Idle:  1 ...")
    if not flow:
        raise bad_line(*following, "the totals: Msgs in 1 out 0 stored 1 Rcpnts in ...")
    try:
        uptime = parse_short_time(kids[6])
    except ValueError:
        raise bad_line(number, line, "Uptime: with a time such as 1m16s") from None
    agents, idle, messages, threads, recipients = map(int, kids.groups()[:5])
    messages_in, out, stored, recount, recipients_in, out2, stored2, recount2 = flow.groups()
    return TotalsView(
        agents,
        idle,
        messages,
        threads=threads,
        recipients=recipients,
        uptime=uptime,
        messages_in=int(messages_in),
        messages_out=int(out),
        messages_stored=(int(stored), int(recount or stored)),
        recipients_in=int(recipients_in),
        recipients_out=int(out2),
        recipients_stored=(int(stored2), int(recount2 or stored2)),
    )


# ---- counters


def counter_lines(counters: Iterable[CounterView]) -> Iterator[str]:
    """The lines of `SHOW COUNTERS`."""
    yield COUNTERS_TITLE
    for one in counters:
        text = f"{one.name:<31s} {one.value:>10s}" if one.name else ""
        yield f"{text} {one.note}" if one.note else text
