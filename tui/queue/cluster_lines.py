"""Error clusters as text: count, code, first and last time, and whether they still happen."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from engine.monitor.recurrence import StillHappens
from engine.text.error_pattern import reply_code
from engine.text.safe import safe_line
from tui.format import present
from tui.format.present import BLANK_LINE, Line
from tui.format.table import Choice
from tui.session.recurrence_check import CheckedCluster

"""Shown until the logs were read."""

_LOOKS = {StillHappens.YES: "error", StillHappens.NO: "ok", StillHappens.UNKNOWN: "unknown"}


def head_line(width: int) -> Line:
    """Column titles."""
    room = _error_cells(width)
    if width < present.NARROW_COLUMNS:
        return (
            (
                present.fit_text(f"   COUNT {present.fit_text('ERROR', room)} STILL?", width),
                "title",
            ),
        )
    titles = f"   {'CLUSTER':<7} {'COUNT':>7} {'CODE':<4} {present.fit_text('ERROR', room)} "
    return ((present.fit_text(titles + "FIRST  LAST   STILL?", width), "title"),)


def cluster_rows(clusters: Sequence[CheckedCluster], now: float, width: int) -> list[Choice]:
    """One row per cluster, largest first."""
    return [Choice(judged.cluster.mark, cluster_line(judged, now, width)) for judged in clusters]


def cluster_line(judged: CheckedCluster, now: float, width: int) -> Line:
    """The row of a cluster; the first cells are for the cursor."""
    cluster, answer = judged
    error = present.fit_text(safe_line(cluster.pattern), _error_cells(width))
    same = (answer.text, _LOOKS[answer.answer])
    if width < present.NARROW_COLUMNS:
        return present.cut_line(
            ((f"   {cluster.count:>5,} ", ""), (f"{error} ", "error"), same), width
        )
    return present.cut_line(
        (
            ("   ", ""),
            (f"{cluster.mark:<7} ", "strong"),
            (f"{cluster.count:>7,} ", ""),
            (f"{reply_code(cluster.pattern):<4} ", ""),
            (f"{error} ", "error"),
            (f"{_time_or_date(cluster.first, now)}  {_time_or_date(judged.last, now)}  ", "muted"),
            same,
        ),
        width,
    )


def evidence_lines(judged: CheckedCluster, width: int) -> list[Line]:
    """The evidence for "still happening", and the full error."""
    cluster, answer = judged
    lines = [present.heading_line(f"{cluster.mark}  still happening? {answer.text}", width)]
    for sentence in answer.evidence:
        lines += [((f"   {piece}", ""),) for piece in present.fold_text(sentence, width - 4)]
    about = [
        ("error", safe_line(cluster.pattern)),
        ("kind", safe_line(", ".join(cluster.kinds))),
        ("example", safe_line(cluster.example)),
    ]
    return [*lines, BLANK_LINE, *present.labelled_lines([row for row in about if row[1]], width)]


def summary(clusters: Sequence[CheckedCluster]) -> str:
    """Number of failed tasks and clusters, and which clusters stopped."""
    tasks = sum(judged.cluster.count for judged in clusters)
    over = [judged.cluster.mark for judged in clusters if judged.now.answer is StillHappens.NO]
    kinds = (
        f"{present.format_count(tasks, 'task')} failed, "
        f"{present.format_count(len(clusters), 'cluster')}"
    )
    return f"{kinds}; stopped happening: {', '.join(over)}" if over else kinds


def cluster_values(clusters: Sequence[CheckedCluster]) -> list[Mapping[str, object]]:
    """Clusters for JSON output; times in epoch seconds UTC."""
    return [
        {
            "mark": each.cluster.mark,
            "count": each.cluster.count,
            "code": reply_code(each.cluster.pattern),
            "error": each.cluster.pattern,
            "kinds": list(each.cluster.kinds),
            "first": each.cluster.first,
            "last": each.last,
            "example": each.cluster.example,
            "same_now": str(each.now.answer),
            "evidence": list(each.now.evidence),
        }
        for each in clusters
    ]


def _error_cells(width: int) -> int:
    return max(8, width - (19 if width < present.NARROW_COLUMNS else 50))


def _time_or_date(when: float | None, now: float) -> str:
    """Time of day, or the date if it is older than a day, in five cells."""
    if when is None:
        return "  ?  "
    form = "%H:%M" if now - when < 86400 else "%m-%d"
    return time.strftime(form, time.gmtime(when))
