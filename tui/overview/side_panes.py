"""Panes of a wide overview: error clusters, transports, active tasks."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model import State, Task
from engine.monitor.recurrence import StillHappens
from engine.monitor.transport_health import TEN_MINUTES, Health, MailHealth
from engine.text.safe import safe_line
from tui.format import present
from tui.format.graphs import bar
from tui.format.human import format_count
from tui.format.present import Line
from tui.overview.lines import PlaceLine
from tui.session.recurrence_check import CheckedCluster
from tui.transports import lines as ways

_RECURRENCE_LOOKS = {
    StillHappens.YES: "warn",
    StillHappens.NO: "ok",
    StillHappens.UNKNOWN: "unknown",
}


def cluster_lines(judged: Sequence[CheckedCluster], width: int, height: int) -> list[Line]:
    """Error clusters of dead tasks, the share of each, and whether they still happen."""
    lines: list[Line] = []
    most = max((cluster.count for cluster, _ in judged), default=1)
    still = max((present.cells_of(now.text) for _, now in judged), default=0)
    room = max(8, width - 19 - still)
    for cluster, now in judged[: max(0, height)]:
        error = present.fit_text(safe_line(cluster.pattern), room)
        runs: Line = (
            (f"  {cluster.mark:<7}", "accent"),
            (f"{format_count(cluster.count, 4):>4} ", ""),
            (bar(cluster.count / most, 3), "muted"),
            (f" {error} ", ""),
            (f"{now.text:>{still}}", _RECURRENCE_LOOKS[now.answer]),
        )
        lines.append(present.cut_line(runs, width))
    return lines or [(("  none", "muted"),)]


def transport_lines(
    sending: MailHealth | None, limit: float, now: float, width: int, height: int
) -> list[Line]:
    """Transports of a place; one is failing from a failure rate of `limit` on."""
    if sending is None:
        return not_recorded_lines()
    # The transports screen lists unused transports and why they are unused.
    used = [way for way in sending.transports if way.is_mentioned]
    if not used:
        return [present.cut_line(ways.no_transports_line(sending), width)]
    name = min(12, max(present.cells_of(safe_line(way.name)) for way in used))
    lines: list[Line] = []
    for way in used[:height]:
        health, window = way.health(limit), way.windows[TEN_MINUTES]
        word = _CHIPS.get(health, ways.LOOKS[health])
        tally = window.tally
        text = "?" if tally is None else f"{tally.failures:,} of {tally.attempts:,} failed"
        left: Line = (
            (f"  {present.fit_text(safe_line(way.name), name)} ", ""),
            (f" {health.value.upper()} ", word),
            (f" {text}", "unknown" if tally is None else "muted"),
        )
        rate, look = ways.attempts_per_minute(window)
        lines.append(present.join_ends(left, ((f"{rate}/min", look or "muted"),), width))
    return lines


_CHIPS = {Health.FAILING: "chip-error", Health.SUSPENDED: "chip-warn"}
"""States that need a hand."""


def active_task_lines(
    queue: PlaceLine, tasks: Sequence[Task], now: float, width: int, height: int
) -> list[Line]:
    """Active tasks: how long they run, and the owner."""
    lines = []
    for task in tasks[: max(0, height)]:
        lease = task.lease
        since = "?" if lease is None else present.format_duration(now - lease.since)
        who = "" if lease is None else safe_line(lease.owner)
        left: Line = (
            (f"  {present.short_id(task.id):<9}", "accent"),
            (f" {safe_line(task.kind)}", ""),
        )
        lines.append(present.join_ends(left, ((f"{who}  ", "muted"), (f"{since:>6}", "")), width))
    running = queue.counts.get(State.ACTIVE, 0)
    return lines or [(("  reading ..." if running else "  nothing is running", "muted"),)]


def not_recorded_lines() -> list[Line]:
    """A pane of which no history is recorded."""
    return [(("  not recorded", "muted"),)]
