"""The figures beside the list: what the metrics files say, next to what we count ourselves."""

from __future__ import annotations

from collections.abc import Sequence

from engine.monitor.metrics_check import GAUGES, LAST_RUN, OLDEST, Ours, Reading, differences
from engine.monitor.prometheus import Samples
from engine.monitor.transport_health import DeliveryCounts, totals
from engine.text.safe import shown
from tui.format import present
from tui.format.glyphs import MORE
from tui.format.present import Line, Run

STALE = 180.0
"""Seconds after which a metrics file is called old: three runs of a processor that runs each minute
did not write it."""

SHOWN = 20
"""Transports that are shown here at most; the rest are counted elsewhere."""

WHOLE = "the whole queue (C)"
"""The heading of what a queue says of itself, and the key that shows all of it."""

BRIEFLY = 3
"""Lines below that heading on the reference screen."""

TOTALS = (
    ("processed", "nftban_queue_tasks_processed_total"),
    ("failed", "nftban_queue_tasks_failed_total"),
    ("retries", "nftban_queue_task_retries_total"),
    ("to dlq", "nftban_queue_dlq_total"),
)


def lines(queue: Reading, mail: Reading, ours: Ours, now: float, width: int) -> list[Line]:
    """The pane beside a wide list: every figure on a line of its own."""
    return [*_queue(queue, ours, now, width), *_mail(mail, now, width)]


def compact(queue: Reading, mail: Reading, ours: Ours, now: float, width: int) -> list[Line]:
    """The same in at most three lines below a heading, for the reference screen."""
    warning = _warning(queue, ours, now)
    head = present.heading(_head("queue.prom", queue, now), width)
    if isinstance(queue, Samples):
        gauges = [(name, _whole(queue, gauge)) for name, gauge in _gauges(ours)]
        pairs = [*gauges, *((name, _whole(queue, total)) for name, total in TOTALS)]
        first = present.whole_ones([_pair(name, text) for name, text in pairs], width)
        said: Line = _warned(warning, width) if warning else _runs(queue, now, width)
    else:
        first, said = _absent("queue.prom", queue), ()
    mails = _mail_line(mail, now, width)
    return [present.cut(line, width) for line in (head, first, said, mails)]


def whole(facts: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """What a queue says of itself, beside a wide list: every fact by its name."""
    names = min(16, 1 + max(len(shown(name)) for name, _ in facts))
    rows = present.labelled([(shown(name), shown(words)) for name, words in facts], width, names)
    return [present.heading(WHOLE, width), *rows]


def whole_briefly(facts: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """The same in at most three lines below a heading: as many facts as there is room for."""
    left = [_pair(shown(name), shown(words)) for name, words in facts]
    rows: list[Line] = [present.heading(WHOLE, width)]
    while left and len(rows) <= BRIEFLY:
        fits = 1
        while fits < len(left) and sum(map(present.width_of, left[: fits + 1])) <= width:
            fits += 1
        rows.append(present.cut(tuple(run for pair in left[:fits] for run in pair), width))
        del left[:fits]
    return rows


def _warned(warning: str, width: int) -> Line:
    first, *rest = present.folded(warning, max(1, width - 3))
    return ((f" {first}{' ' + MORE if rest else ''}", "warning"),)


def _queue(queue: Reading, ours: Ours, now: float, width: int) -> list[Line]:
    head = present.heading(_head("queue.prom", queue, now), width)
    if not isinstance(queue, Samples):
        return [head, _absent("queue.prom", queue)] if queue is not None else []
    counts = [
        (shown(word), _whole(queue, GAUGES[state]), f"{ours.counts.get(state, 0):,}")
        for state, word in ours.states.items()
        if state in GAUGES
    ]
    wrong = bool(differences(queue, ours))
    rows: list[Line] = [head, (("               file       here", "dim"),)]
    rows += [_figure(*count, wrong=wrong) for count in counts]
    totals = [_pair(name, _whole(queue, total)) for name, total in TOTALS]
    rows += [(*first, *second) for first, second in zip(totals[::2], totals[1::2], strict=True)]
    rows.append(_runs(queue, now, width))
    warning = _warning(queue, ours, now)
    rows += [((" " + piece, "warning"),) for piece in present.folded(warning, width - 1) if piece]
    return rows


def _figure(name: str, said: str, here: str, *, wrong: bool) -> Line:
    look = "warning" if wrong and said != here else ""
    return (
        (present.fit(f" {name}", 11), "dim"),
        (said.rjust(8), look),
        (f"{here:>11}", look),
    )


def _mail(mail: Reading, now: float, width: int) -> list[Line]:
    if mail is None:
        return []
    head = present.heading(_head("mail.prom", mail, now), width)
    if not isinstance(mail, Samples):
        return [head, _absent("mail.prom", mail)]
    rows: list[Line] = [head, (("                tried   sent failed", "dim"),)]
    tried, idle = _tried(mail)
    for name, way in tried.items():
        failed: Run = (f"{way.failures:>7,}", "bad" if way.failures else "")
        counts = f"{way.attempts:>7,}{way.success:>7,}"
        rows.append(((present.fit(f" {shown(name)}", 14), "dim"), (counts, ""), failed))
    if idle:
        rows.append(((f" never tried: {shown(', '.join(idle))}", "dim"),))
    return [present.cut(row, width) for row in rows]


def _tried(mail: Samples) -> tuple[dict[str, DeliveryCounts], list[str]]:
    """The transports that were tried so far, as many as a screen can hold, and others' names."""
    ways = totals(mail)
    tried = [(name, way) for name, way in ways.items() if way.attempts or way.failures]
    idle = [name for name, way in ways.items() if not (way.attempts or way.failures)]
    return dict(tried[:SHOWN]), idle[:SHOWN]


def _mail_line(mail: Reading, now: float, width: int) -> Line:
    if not isinstance(mail, Samples):
        return _absent("mail.prom", mail) if mail is not None else ()
    head: Line = ((f" {_head('mail.prom', mail, now)}: ", "title"),)
    parts: list[Line] = [
        (
            (f"{shown(name)} {way.attempts:,} tried {way.success:,} sent ", ""),
            (f"{way.failures:,} failed ", "bad" if way.failures else ""),
        )
        # Those that fail first: there is room for one or two.
        for name, way in sorted(_tried(mail)[0].items(), key=lambda found: -found[1].failures)
    ]
    return present.whole_ones([head, *(parts or [(("nothing was sent yet", "dim"),)])], width)


def _gauges(ours: Ours) -> list[tuple[str, str]]:
    return [(shown(ours.states[s]), gauge) for s, gauge in GAUGES.items() if s in ours.states]


def _head(name: str, reading: Reading, now: float) -> str:
    if not isinstance(reading, Samples):
        return name
    return f"{name} written {present.ago(now - reading.modified)}"


def _warning(queue: Reading, ours: Ours, now: float) -> str:
    if not isinstance(queue, Samples):
        return ""
    words = [f"says {difference}" for difference in differences(queue, ours)]
    age = now - queue.modified
    if age > STALE:
        words.append(f"not written for {present.span(age)}")
    return f"! WARN queue.prom {'; '.join(words)}" if words else ""


def _runs(queue: Samples, now: float, width: int) -> Line:
    oldest, last = queue.get(OLDEST), queue.get(LAST_RUN)
    parts: list[Line] = []
    if last:
        parts.append(_pair("last run", present.ago(now - last)))
    if oldest:
        parts.append(_pair("oldest waiting", present.span(oldest)))
    return present.whole_ones(parts, width)


def _pair(name: str, text: str) -> tuple[Run, Run]:
    return ((f" {name} ", "dim"), (f"{text} ", ""))


def _whole(samples: Samples, name: str) -> str:
    value = samples.get(name)
    return "?" if value is None else f"{value:,.0f}"


def _absent(name: str, reading: Reading) -> Line:
    if reading is None:
        return ((f" {name}: this place has none", "dim"),)
    return ((f" {name}: {shown(str(reading))}", "unknown"),)
