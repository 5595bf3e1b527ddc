"""What a wide overview shows beside queues and ages: locks, errors, transports, work in hand."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model import State, Task
from engine.monitor.recurrence import StillHappens
from engine.monitor.transport_health import Sending
from engine.text.safe import shown
from tui.format import present
from tui.format.human import format_count
from tui.format.present import BLANK, Line, Run
from tui.format.table import names
from tui.overview.lines import PlaceLine
from tui.overview.snapshot import PlaceSnapshot
from tui.session.recurrence_check import Judged
from tui.transports import lines as ways

_SAME = {StillHappens.YES: "bad", StillHappens.NO: "good", StillHappens.UNKNOWN: "unknown"}


def locks(moments: Sequence[PlaceSnapshot], width: int, height: int) -> list[Line]:
    """Who has which lock."""
    lines: list[Line] = [_title("LOCKS", width)]
    for moment, name in zip(moments, names([m.queue.name for m in moments]), strict=True):
        verdict: Run = ("?", "unknown")
        if moment.lock is not None:
            verdict = present.lock_verdict(moment.lock)
        elif not moment.has_lock and not moment.queue.unavailable:
            who = "" if moment.worker is None else f"; PID {moment.worker} is at work"
            verdict = (f"has none{who}", "dim")
        lines.append(present.cut(((f" {name}  ", ""), verdict), width))
    return lines[:height]


def clusters(judged: Sequence[Judged], width: int, height: int) -> list[Line]:
    """Errors of dead tasks, and whether they still happen."""
    lines: list[Line] = [present.heading("errors of the dead; same now?", width)]
    room = max(8, width - 25)
    for cluster, now in judged[: max(0, height - 1)]:
        error = present.fit(shown(cluster.pattern), room)
        lines.append(
            present.cut(
                (
                    (f" {cluster.mark:<7}", "strong"),
                    (f"{format_count(cluster.count, 6):>6} ", ""),
                    (error + " ", ""),
                    (now.words, _SAME[now.answer]),
                ),
                width,
            )
        )
    return lines if judged else [*lines, ((" none", "dim"),)]


def transports(
    sending: Sending | None, limit: float, now: float, width: int, height: int
) -> list[Line]:
    """How mail is sent from a place; a share of failures of `limit` means that a way fails."""
    if sending is None:
        return blank("transports", width, height)
    # Which others there are, and why they are not used, the transports' own screen says.
    spoken_of = tuple(way for way in sending.transports if way.spoken_of)
    titles, rows = ways.rows(sending._replace(transports=spoken_of), limit, now, width)
    below = [line for _, line in rows] or [ways.nothing(sending)]
    lines = [present.heading("transports", width), titles, *below]
    more = len(lines) - height
    if more > 0:
        return [*lines[: height - 1], ((f"   and {more + 1} more: 6", "dim"),)]
    return [*lines, *[BLANK] * -more]


def work(
    queue: PlaceLine, tasks: Sequence[Task], now: float, width: int, height: int
) -> list[Line]:
    """What is in work, for how long, and by whom."""
    word = queue.words.get(State.ACTIVE, "work")
    amount = queue.counts.get(State.ACTIVE, 0)
    lines = [present.heading(f"{shown(word)}: {present.count(amount, 'task')}", width)]
    for task in tasks[: max(0, height - 1)]:
        lease = task.lease
        since = "?" if lease is None else present.span(now - lease.since)
        who = "" if lease is None else f"  {shown(lease.owner)}"
        name = present.fit_end(shown(task.id), max(8, width - 24))
        lines.append(present.cut(((f" {name} ", ""), (f"{since:>6}{who}", "dim")), width))
    return lines if tasks else [*lines, ((" nothing", "dim"),)]


def blank(title: str, width: int, height: int) -> list[Line]:
    """A part of which nothing is written down, where the past is shown."""
    lines = [present.heading(title, width), ((" not recorded", "dim"),)]
    return [*lines, *[BLANK] * max(0, height - 2)][:height]


def _title(text: str, width: int) -> Line:
    return ((present.fit(f" {text}", width), "title"),)
