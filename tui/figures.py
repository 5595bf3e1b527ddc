"""The figures beside the list: what the metrics files say, next to what we count ourselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from engine.metrics import Samples
from engine.model import State
from engine.text import shown
from tui import present
from tui.glyphs import MORE
from tui.present import Line, Run

Reading: TypeAlias = Samples | str | None
"""What a metrics file held; why it could not be read, in words; None: there is none here."""

STALE = 180.0
"""Seconds after which a metrics file is called old: three runs of a processor that runs each minute
did not write it."""

GAUGES: Mapping[State, str] = {
    State.PENDING: "nftban_queue_tasks_pending",
    State.ACTIVE: "nftban_queue_tasks_working",
    State.DEAD: "nftban_queue_tasks_dlq",
}
"""Which gauge counts the tasks of a state."""

TOTALS = (
    ("processed", "nftban_queue_tasks_processed_total"),
    ("failed", "nftban_queue_tasks_failed_total"),
    ("retries", "nftban_queue_task_retries_total"),
    ("to dlq", "nftban_queue_dlq_total"),
)
OLDEST = "nftban_queue_oldest_pending_age_seconds"
LAST_RUN = "nftban_queue_last_run_timestamp"

ATTEMPTS = "nftban_mail_send_attempts_total"
SUCCESS = "nftban_mail_send_success_total"
FAILURES = "nftban_mail_send_failures_total"

SAME_MOMENT = 2.5
"""Seconds between our count and the writing of a file for the two to speak of one moment."""


class Ours(NamedTuple):
    """What the console counts itself."""

    states: Mapping[State, str]
    counts: Mapping[State, int]
    complete: bool
    before: Sequence[tuple[float, Mapping[State, int]]] = ()
    """Earlier counts, each with its time in epoch seconds UTC."""

    def around(self, moment: float) -> list[Mapping[State, int]]:
        """What was counted around a moment; where nothing was, what is counted now."""
        then = [counts for when, counts in self.before if abs(when - moment) <= SAME_MOMENT]
        return then or [self.counts]


class Transport(NamedTuple):
    """How one way of sending mail has done since the counters began."""

    name: str
    attempts: int
    success: int
    failures: int


def differences(samples: Samples, ours: Ours) -> list[str]:
    """Where the metrics file and our own count of that time disagree, in words.

    A queue that flows is always some tasks further than its last metrics; that is no disagreement.
    """
    if not ours.complete:
        return []
    rows = []
    for state, gauge in GAUGES.items():
        said = samples.get(gauge)
        then = [counts.get(state, 0) for counts in ours.around(samples.modified)]
        # We count once a second; what moves in between may go as far again.
        moved = max(then) - min(then)
        agree = said is None or min(then) - moved <= said <= max(then) + moved
        if state in ours.states and said is not None and not agree:
            rows.append(f"{shown(ours.states[state])} {int(said):,}, here {then[-1]:,}")
    return rows


def transports(samples: Samples) -> list[Transport]:
    """Each transport that the mail metrics name, in their order."""
    names = dict.fromkeys(
        value
        for metric, labels in samples.values
        if metric == ATTEMPTS
        for label, value in labels
        if label == "transport"
    )

    def figure(metric: str, name: str) -> int:
        return int(samples.get(metric, transport=name) or 0)

    return [
        Transport(n, figure(ATTEMPTS, n), figure(SUCCESS, n), figure(FAILURES, n)) for n in names
    ]


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
    idle = [way.name for way in transports(mail) if not (way.attempts or way.failures)]
    for way in transports(mail):
        if way.name in idle:
            continue
        name = present.fit(f" {shown(way.name)}", 14)
        failed: Run = (f"{way.failures:>7,}", "bad" if way.failures else "")
        rows.append(((name, "dim"), (f"{way.attempts:>7,}{way.success:>7,}", ""), failed))
    if idle:
        rows.append(((f" never tried: {shown(', '.join(idle))}", "dim"),))
    return [present.cut(row, width) for row in rows]


def _mail_line(mail: Reading, now: float, width: int) -> Line:
    if not isinstance(mail, Samples):
        return _absent("mail.prom", mail) if mail is not None else ()
    head: Line = ((f" {_head('mail.prom', mail, now)}: ", "title"),)
    parts: list[Line] = [
        (
            (f"{shown(way.name)} {way.attempts:,} tried {way.success:,} sent ", ""),
            (f"{way.failures:,} failed ", "bad" if way.failures else ""),
        )
        for way in transports(mail)
        if way.attempts or way.failures
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
