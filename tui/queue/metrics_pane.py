"""The metrics pane: values of the metrics files compared with the counts of the index."""

from __future__ import annotations

from collections.abc import Sequence

from engine.monitor.metrics_check import (
    GAUGES,
    LAST_RUN,
    OLDEST_AGE,
    MetricsReading,
    OwnCounts,
    find_differences,
)
from engine.monitor.prometheus import Samples
from engine.monitor.transport_health import DeliveryCounts, read_totals
from engine.text.safe import safe_line
from tui.format import present
from tui.format.glyphs import MORE
from tui.format.present import Line, Run

STALE_SECONDS = 180.0
"""Age in seconds from which a metrics file is outdated: three missed runs of a processor that
runs every minute.
"""

MAX_TRANSPORTS = 20
"""Maximum number of transports shown."""

FACTS_HEADING = "queue (C: controls)"
"""Heading of the queue's own facts, with the key of the screen that shows all."""

BRIEF_LINES = 3
"""Lines below that heading at 80x24."""

TOTAL_METRICS = (
    ("processed", "nftban_queue_tasks_processed_total"),
    ("failed", "nftban_queue_tasks_failed_total"),
    ("retries", "nftban_queue_task_retries_total"),
    ("to dlq", "nftban_queue_dlq_total"),
)


def side_lines(
    queue: MetricsReading, mail: MetricsReading, ours: OwnCounts, now: float, width: int
) -> list[Line]:
    """The pane beside a wide list: one line per value."""
    return [*_queue(queue, ours, now, width), *_mail(mail, now, width)]


def brief_lines(
    queue: MetricsReading, mail: MetricsReading, ours: OwnCounts, now: float, width: int
) -> list[Line]:
    """The pane below the list: at most three lines and a heading."""
    warning = _warning(queue, ours, now)
    head = present.heading_line(_head("queue.prom", queue, now), width)
    if isinstance(queue, Samples):
        gauges = [(name, _metric_text(queue, gauge)) for name, gauge in _gauges(ours)]
        pairs = [*gauges, *((name, _metric_text(queue, total)) for name, total in TOTAL_METRICS)]
        first = present.parts_that_fit([_pair(name, text) for name, text in pairs], width)
        said: Line = _warning_line(warning, width) if warning else _run_times(queue, now, width)
    else:
        first, said = _missing_file_line("queue.prom", queue), ()
    mails = _mail_line(mail, now, width)
    return [present.cut_line(line, width) for line in (head, first, said, mails)]


def fact_lines(facts: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Facts that a queue reports about itself, beside a wide list."""
    names = min(16, 1 + max(len(safe_line(name)) for name, _ in facts))
    rows = present.labelled_lines(
        [(safe_line(name), safe_line(words)) for name, words in facts], width, names
    )
    return [present.heading_line(FACTS_HEADING, width), *rows]


def brief_fact_lines(facts: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """The same below the list: at most three lines and a heading."""
    left = [_pair(safe_line(name), safe_line(words)) for name, words in facts]
    rows: list[Line] = [present.heading_line(FACTS_HEADING, width)]
    while left and len(rows) <= BRIEF_LINES:
        fits = 1
        while fits < len(left) and sum(map(present.width_of, left[: fits + 1])) <= width:
            fits += 1
        rows.append(present.cut_line(tuple(run for pair in left[:fits] for run in pair), width))
        del left[:fits]
    return rows


def _warning_line(warning: str, width: int) -> Line:
    first, *rest = present.fold_text(warning, max(1, width - 3))
    return ((f" {first}{' ' + MORE if rest else ''}", "warn"),)


def _queue(queue: MetricsReading, ours: OwnCounts, now: float, width: int) -> list[Line]:
    head = present.heading_line(_head("queue.prom", queue, now), width)
    if not isinstance(queue, Samples):
        return [head, _missing_file_line("queue.prom", queue)] if queue is not None else []
    counts = [
        (safe_line(word), _metric_text(queue, GAUGES[state]), f"{ours.counts.get(state, 0):,}")
        for state, word in ours.states.items()
        if state in GAUGES
    ]
    wrong = bool(find_differences(queue, ours))
    rows: list[Line] = [head, (("               file       here", "muted"),)]
    rows += [_count_line(*count, wrong=wrong) for count in counts]
    totals = [_pair(name, _metric_text(queue, total)) for name, total in TOTAL_METRICS]
    rows += [(*first, *second) for first, second in zip(totals[::2], totals[1::2], strict=True)]
    rows.append(_run_times(queue, now, width))
    warning = _warning(queue, ours, now)
    rows += [((" " + piece, "warn"),) for piece in present.fold_text(warning, width - 1) if piece]
    return rows


def _count_line(name: str, said: str, here: str, *, wrong: bool) -> Line:
    look = "warn" if wrong and said != here else ""
    return (
        (present.fit_text(f" {name}", 11), "muted"),
        (said.rjust(8), look),
        (f"{here:>11}", look),
    )


def _mail(mail: MetricsReading, now: float, width: int) -> list[Line]:
    if mail is None:
        return []
    head = present.heading_line(_head("mail.prom", mail, now), width)
    if not isinstance(mail, Samples):
        return [head, _missing_file_line("mail.prom", mail)]
    rows: list[Line] = [head, (("                tried   sent failed", "muted"),)]
    tried, idle = _split_tried(mail)
    for name, way in tried.items():
        failed: Run = (f"{way.failures:>7,}", "error" if way.failures else "")
        counts = f"{way.attempts:>7,}{way.success:>7,}"
        rows.append(((present.fit_text(f" {safe_line(name)}", 14), "muted"), (counts, ""), failed))
    if idle:
        rows.append(((f" never tried: {safe_line(', '.join(idle))}", "muted"),))
    return [present.cut_line(row, width) for row in rows]


def _split_tried(mail: Samples) -> tuple[dict[str, DeliveryCounts], list[str]]:
    """Transports that were tried, at most `SHOWN`, and names of the others."""
    ways = read_totals(mail)
    tried = [(name, way) for name, way in ways.items() if way.attempts or way.failures]
    idle = [name for name, way in ways.items() if not (way.attempts or way.failures)]
    return dict(tried[:MAX_TRANSPORTS]), idle[:MAX_TRANSPORTS]


def _mail_line(mail: MetricsReading, now: float, width: int) -> Line:
    if not isinstance(mail, Samples):
        return _missing_file_line("mail.prom", mail) if mail is not None else ()
    head: Line = ((f" {_head('mail.prom', mail, now)}: ", "title"),)
    parts: list[Line] = [
        (
            (f"{safe_line(name)} {way.attempts:,} tried {way.success:,} sent ", ""),
            (f"{way.failures:,} failed ", "error" if way.failures else ""),
        )
        # Failing ones first: there is room for one or two.
        for name, way in sorted(_split_tried(mail)[0].items(), key=lambda found: -found[1].failures)
    ]
    return present.parts_that_fit([head, *(parts or [(("nothing sent yet", "muted"),)])], width)


def _gauges(ours: OwnCounts) -> list[tuple[str, str]]:
    return [(safe_line(ours.states[s]), gauge) for s, gauge in GAUGES.items() if s in ours.states]


def _head(name: str, reading: MetricsReading, now: float) -> str:
    if not isinstance(reading, Samples):
        return name
    return f"{name} written {present.format_age(now - reading.modified)}"


def _warning(queue: MetricsReading, ours: OwnCounts, now: float) -> str:
    if not isinstance(queue, Samples):
        return ""
    words = [f"differs: {difference}" for difference in find_differences(queue, ours)]
    age = now - queue.modified
    if age > STALE_SECONDS:
        words.append(f"not written for {present.format_duration(age)}")
    return f"! WARN queue.prom {'; '.join(words)}" if words else ""


def _run_times(queue: Samples, now: float, width: int) -> Line:
    oldest, last = queue.get(OLDEST_AGE), queue.get(LAST_RUN)
    parts: list[Line] = []
    if last:
        parts.append(_pair("last run", present.format_age(now - last)))
    if oldest:
        parts.append(_pair("oldest waiting", present.format_duration(oldest)))
    return present.parts_that_fit(parts, width)


def _pair(name: str, text: str) -> tuple[Run, Run]:
    return ((f" {name} ", "muted"), (f"{text} ", ""))


def _metric_text(samples: Samples, name: str) -> str:
    value = samples.get(name)
    return "?" if value is None else f"{value:,.0f}"


def _missing_file_line(name: str, reading: MetricsReading) -> Line:
    if reading is None:
        return ((f" {name}: none in this place", "muted"),)
    return ((f" {name}: {safe_line(str(reading))}", "unknown"),)
