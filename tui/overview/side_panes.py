"""Side panes of a wide overview: locks, error clusters, transports, active tasks."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model import State, Task
from engine.monitor.recurrence import StillHappens
from engine.monitor.transport_health import MailHealth
from engine.text.safe import safe_line
from tui.format import present
from tui.format.human import format_count
from tui.format.present import BLANK_LINE, Line, Run
from tui.format.table import short_names
from tui.overview.lines import PlaceLine
from tui.overview.snapshot import PlaceSnapshot
from tui.session.recurrence_check import CheckedCluster
from tui.transports import lines as ways

_RECURRENCE_LOOKS = {
    StillHappens.YES: "bad",
    StillHappens.NO: "good",
    StillHappens.UNKNOWN: "unknown",
}


def lock_lines(moments: Sequence[PlaceSnapshot], width: int, height: int) -> list[Line]:
    """The lock state of each place."""
    lines: list[Line] = [_title("LOCKS", width)]
    for moment, name in zip(moments, short_names([m.queue.name for m in moments]), strict=True):
        verdict: Run = ("?", "unknown")
        if moment.lock is not None:
            verdict = present.lock_verdict(moment.lock)
        elif not moment.has_lock and not moment.queue.unavailable:
            who = "" if moment.worker is None else f"; worker PID {moment.worker}"
            verdict = (f"no lock file{who}", "dim")
        lines.append(present.cut_line(((f" {name}  ", ""), verdict), width))
    return lines[:height]


def cluster_lines(judged: Sequence[CheckedCluster], width: int, height: int) -> list[Line]:
    """Error clusters of dead tasks, and whether they still happen."""
    lines: list[Line] = [present.heading_line("failures (still happening?)", width)]
    room = max(8, width - 25)
    for cluster, now in judged[: max(0, height - 1)]:
        error = present.fit_text(safe_line(cluster.pattern), room)
        lines.append(
            present.cut_line(
                (
                    (f" {cluster.mark:<7}", "strong"),
                    (f"{format_count(cluster.count, 6):>6} ", ""),
                    (error + " ", ""),
                    (now.text, _RECURRENCE_LOOKS[now.answer]),
                ),
                width,
            )
        )
    return lines if judged else [*lines, ((" none", "dim"),)]


def transport_lines(
    sending: MailHealth | None, limit: float, now: float, width: int, height: int
) -> list[Line]:
    """Transports of a place; one is failing from a failure rate of `limit` on."""
    if sending is None:
        return not_recorded_lines("transports", width, height)
    # The transports screen lists unused transports and why they are unused.
    spoken_of = tuple(way for way in sending.transports if way.is_mentioned)
    titles, rows = ways.transport_rows(sending._replace(transports=spoken_of), limit, now, width)
    below = [line for _, line in rows] or [ways.no_transports_line(sending)]
    lines = [present.heading_line("transports", width), titles, *below]
    more = len(lines) - height
    if more > 0:
        return [*lines[: height - 1], ((f"   +{more + 1} more (press 6)", "dim"),)]
    return [*lines, *[BLANK_LINE] * -more]


def active_task_lines(
    queue: PlaceLine, tasks: Sequence[Task], now: float, width: int, height: int
) -> list[Line]:
    """Active tasks: how long they run, and the owner."""
    word = queue.words.get(State.ACTIVE, "work")
    amount = queue.counts.get(State.ACTIVE, 0)
    lines = [
        present.heading_line(f"{safe_line(word)}: {present.format_count(amount, 'task')}", width)
    ]
    for task in tasks[: max(0, height - 1)]:
        lease = task.lease
        since = "?" if lease is None else present.format_duration(now - lease.since)
        who = "" if lease is None else f"  {safe_line(lease.owner)}"
        name = present.fit_text_end(safe_line(task.id), max(8, width - 24))
        lines.append(present.cut_line(((f" {name} ", ""), (f"{since:>6}{who}", "dim")), width))
    return lines if tasks else [*lines, ((" nothing", "dim"),)]


def not_recorded_lines(title: str, width: int, height: int) -> list[Line]:
    """A part of which no history is recorded."""
    lines = [present.heading_line(title, width), ((" not recorded", "dim"),)]
    return [*lines, *[BLANK_LINE] * max(0, height - 2)][:height]


def _title(text: str, width: int) -> Line:
    return ((present.fit_text(f" {text}", width), "title"),)
