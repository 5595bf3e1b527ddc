"""Errors, alike with alike: how many, since when, and whether they still happen."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from engine.monitor.recurrence import StillHappens
from engine.text.error_pattern import code
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line
from tui.session.recurrence_check import Judged
from tui.widgets.picker import Choice

"""Before the logs were asked."""

_LOOKS = {StillHappens.YES: "bad", StillHappens.NO: "good", StillHappens.UNKNOWN: "unknown"}


def head(width: int) -> Line:
    """The titles above the rows."""
    room = _room(width)
    if width < present.NARROW:
        return ((present.fit(f"   COUNT {present.fit('ERROR', room)} NOW?", width), "title"),)
    titles = f"   {'CLUSTER':<7} {'COUNT':>7} {'CODE':<4} {present.fit('ERROR', room)} "
    return ((present.fit(titles + "FIRST  LAST   SAME NOW?", width), "title"),)


def rows(clusters: Sequence[Judged], now: float, width: int) -> list[Choice]:
    """A row for each, biggest first."""
    return [Choice(judged.cluster.mark, row(judged, now, width)) for judged in clusters]


def row(judged: Judged, now: float, width: int) -> Line:
    """One of them; its first cell is left for the cursor."""
    cluster, answer = judged
    error = present.fit(shown(cluster.pattern), _room(width))
    same = (answer.words, _LOOKS[answer.answer])
    if width < present.NARROW:
        return present.cut(((f"   {cluster.count:>5,} ", ""), (f"{error} ", "bad"), same), width)
    return present.cut(
        (
            ("   ", ""),
            (f"{cluster.mark:<7} ", "strong"),
            (f"{cluster.count:>7,} ", ""),
            (f"{code(cluster.pattern):<4} ", ""),
            (f"{error} ", "bad"),
            (f"{_day(cluster.first, now)}  {_day(judged.last, now)}  ", "dim"),
            same,
        ),
        width,
    )


def evidence(judged: Judged, width: int) -> list[Line]:
    """What the answer rests on, and what the error is in full."""
    cluster, answer = judged
    lines = [present.heading(f"{cluster.mark}  same now? {answer.words}", width)]
    for sentence in answer.evidence:
        lines += [((f"   {piece}", ""),) for piece in present.folded(sentence, width - 4)]
    about = [
        ("error", shown(cluster.pattern)),
        ("of kind", shown(", ".join(cluster.kinds))),
        ("for example", shown(cluster.example)),
    ]
    return [*lines, BLANK, *present.labelled([row for row in about if row[1]], width)]


def summary(clusters: Sequence[Judged]) -> str:
    """How many tasks have errors, of how many sorts, and which of them are over."""
    tasks = sum(judged.cluster.count for judged in clusters)
    over = [judged.cluster.mark for judged in clusters if judged.now.answer is StillHappens.NO]
    kinds = f"{present.count(tasks, 'task')} with an error, {len(clusters)} sorts"
    return f"{kinds}; no more: {', '.join(over)}" if over else kinds


def as_rows(clusters: Sequence[Judged]) -> list[Mapping[str, object]]:
    """The same for programs; times in epoch seconds UTC."""
    return [
        {
            "mark": each.cluster.mark,
            "count": each.cluster.count,
            "code": code(each.cluster.pattern),
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


def _room(width: int) -> int:
    return max(8, width - (19 if width < present.NARROW else 50))


def _day(when: float | None, now: float) -> str:
    """A time of day, or the date of another day, in five cells."""
    if when is None:
        return "  ?  "
    form = "%H:%M" if now - when < 86400 else "%m-%d"
    return time.strftime(form, time.gmtime(when))
