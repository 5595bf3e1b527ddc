"""Error clusters as text: count, code, first and last time, and whether they still happen."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from engine.model import AttemptLimit, State, Task, attempts_allowed
from engine.monitor.recurrence import StillHappens
from engine.text.error_pattern import reply_code
from engine.text.figures import fit_count, format_count
from engine.text.safe import safe_error, safe_line
from tui.groups.group_lines import task_lines
from tui.plan.planning import usual_name
from tui.session.index_queries import CheckedCluster
from tui.text.frames import NARROW_COLUMNS
from tui.text.graphs import bar, braille_line, resample
from tui.text.lines import MARGIN_CELLS, Line, Run, cut_line, fact_lines, fit_text, width_of
from tui.text.styles import STILL_LOOKS
from tui.text.table import REST, Choice, Column, Table
from tui.text.task_row import time_fields
from tui.text.times import format_time_with_age

EVIDENCE_NAME_CELLS = 10

DEATHS_MINUTES = 120
"""Range of the graph of deaths."""

STILL_CELLS = 11
"""Width of the answer with its age, `no (23h59m)`, in cells."""

SHARE_CELLS = 6
"""Cells of the bar of a cluster's share; the largest cluster fills it."""


def cluster_table(
    clusters: Sequence[CheckedCluster], now: float, width: int
) -> tuple[Line, list[Choice]]:
    """Titles and one row per cluster, largest first."""
    counts = [each.cluster.count for each in clusters]
    total, most, is_wide = sum(counts), max(counts, default=0), width >= NARROW_COLUMNS

    def share(each: CheckedCluster) -> list[Run]:
        count = each.cluster.count
        percent = f"{100 * count / total:.0f}%" if total else ""
        return [(bar(count / most if most else 0.0, SHARE_CELLS), "muted"), (f" {percent:>4}", "")]

    def error(each: CheckedCluster) -> Run:
        pattern = safe_error(each.cluster.pattern)
        if is_wide:  # it has a column for the code
            pattern = pattern.removeprefix(reply_code(pattern)).lstrip()
        return pattern, ""

    def count(each: CheckedCluster) -> Run:
        return fit_count(each.cluster.count, 5), "strong"

    def code(each: CheckedCluster) -> Run:
        return reply_code(each.cluster.pattern) or "-", "muted"

    def last(each: CheckedCluster) -> Run:
        return _time_or_date(each.last, now), "muted"

    def still(each: CheckedCluster) -> Run:
        return each.now.text, STILL_LOOKS[each.now.answer]

    columns: tuple[Column[CheckedCluster], ...] = (
        Column("CLUSTER", 7, lambda each: (each.cluster.mark, "accent"), least=NARROW_COLUMNS),
        Column("COUNT", 5, count, right=True),
        Column("SHARE", SHARE_CELLS + 5, share, least=NARROW_COLUMNS),
        Column("CODE", 4, code, right=True, least=NARROW_COLUMNS),
        Column("ERROR", 8, error, grows=REST),
        Column("LAST", 5, last, least=NARROW_COLUMNS),
        Column("STILL?", STILL_CELLS, still),
    )
    head, lines = Table(columns).lines(clusters, width)
    rows = zip(clusters, lines, strict=True)
    return head, [Choice(each.cluster.mark, line) for each, line in rows]


def evidence_lines(
    judged: CheckedCluster,
    tasks: Sequence[Task],
    now: float,
    width: int,
    *,
    state: State | None,
    limit: AttemptLimit = attempts_allowed,
    deaths: Sequence[int] = (),
) -> list[Line]:
    """The full error, the evidence for "still happening", and some of the tasks. `state`: that of
    all tasks, None if they differ. `limit`: maximum attempts of each task. `deaths`: their number
    in each of the last `DEATHS_MINUTES`."""
    cluster, answer = judged
    first, last = cluster.first, judged.last
    since = "" if first is None else format_time_with_age(first, now)
    last_text = "" if last is None else f"last {format_time_with_age(last, now)}"
    fields = [
        ("error", safe_error(cluster.pattern)),
        *(("" if at else "now", sentence) for at, sentence in enumerate(answer.evidence)),
        ("since", "; ".join(filter(None, [since, last_text]))),
        ("kind", safe_line(", ".join(cluster.kinds))),
        ("example", "" if tasks else safe_line(cluster.example)),
    ]
    rows = [row for row in fields if row[1]]
    lines = fact_lines(rows, width, EVIDENCE_NAME_CELLS)
    if any(deaths):
        lines.append(_deaths_line(deaths, now, width))
    if not tasks:
        return lines
    title = f"Tasks in {cluster.mark} {cluster.count:,}"
    return [*lines, *task_lines(title, tasks, state, now=now, width=width, limit=limit)]


def _deaths_line(deaths: Sequence[int], now: float, width: int) -> Line:
    """The deaths over time as one line of braille, with its range and the largest number."""
    times = now - 60 * DEATHS_MINUTES, now
    period = "-".join(time.strftime("%H:%M", time.gmtime(when)) for when in times)
    text: Line = ((f"  {period}, max ", "muted"), (f"{max(deaths):,}/min", ""))
    names = MARGIN_CELLS + EVIDENCE_NAME_CELLS
    cells = max(8, min(60, width - names - 3 - width_of(text)))
    (graph,) = braille_line(resample(deaths, 2 * cells), 0, max(deaths), 1)
    label = fit_text(" " * MARGIN_CELLS + "deaths", names)
    return cut_line(((f"{label}  ", "muted"), (graph, "warn"), *text), width)


def next_step(judged: CheckedCluster, *, read_only: bool) -> tuple[str, str]:
    """The key for the next step on a cluster, and what it does."""
    answer, amount = judged.now.answer, format_count(judged.cluster.count, "task")
    if judged.has_left:
        return "9", "shows where they failed: they have left the spool"
    if read_only or answer is StillHappens.UNKNOWN:
        return "Enter", f"shows its {amount}"
    if answer is StillHappens.YES:
        return "X", "purges them, or fix first: still failing"
    name = usual_name("retry", judged.cluster.count, picked=False)
    return "R", f"plans to {name} {amount}: it stopped"


def summary(clusters: Sequence[CheckedCluster]) -> str:
    """Number of failed tasks and clusters, and which clusters stopped."""
    tasks = sum(judged.cluster.count for judged in clusters)
    over = [judged.cluster.mark for judged in clusters if judged.now.answer is StillHappens.NO]
    kinds = f"{tasks:,} failed, {format_count(len(clusters), 'cluster')}"
    return f"{kinds}; stopped happening: {', '.join(over)}" if over else kinds


def cluster_values(clusters: Sequence[CheckedCluster]) -> list[Mapping[str, object]]:
    """Clusters for JSON output; times as `task_row.time_fields`."""
    return [
        {
            "mark": each.cluster.mark,
            "count": each.cluster.count,
            "code": reply_code(each.cluster.pattern),
            "error": each.cluster.pattern,
            "kinds": list(each.cluster.kinds),
            **time_fields("first", each.cluster.first),
            **time_fields("last", each.last),
            "example": each.cluster.example,
            "same_now": str(each.now.answer),
            "evidence": list(each.now.evidence),
        }
        for each in clusters
    ]


def _time_or_date(when: float | None, now: float) -> str:
    """Time of day, or the date if it is older than a day, in five cells."""
    if when is None:
        return "  ?  "
    form = "%H:%M" if now - when < 86400 else "%m-%d"
    return time.strftime(form, time.gmtime(when))
