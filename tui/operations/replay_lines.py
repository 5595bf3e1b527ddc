"""A replay in words: how it stands while it runs, and what really became of each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.model import State
from engine.policy import lasting
from engine.replay.outcomes import Known, ReplayOutcome
from engine.replay.progress import Phase, ProgressText, ReplayProgress
from engine.replay.replay import Result
from engine.replay.scheduler import RATE
from engine.replay.settings import RemainderPolicy, ReplayPace
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line, Run

LISTED = 1000
"""Tasks that are listed one by one; all of them are counted."""

NAMES, FIGURES = 16, 9
"""Cells for the name of a count, and for the count."""

PHASES: Mapping[Phase, Run] = {
    Phase.STARTING: ("STARTING", "strong"),
    Phase.SENDING: ("RUNNING", "good"),
    Phase.WAITING: ("WAITING", "good"),
    Phase.PAUSED: ("PAUSED", "armed"),
    Phase.ASKING: ("ASKS", "armed"),
    Phase.ENDING: ("ENDING", "good"),
    Phase.OVER: ("OVER", "strong"),
    Phase.LEFT: ("INTERRUPTED", "warning"),
}


class Count(NamedTuple):
    """How many stand how."""

    name: str
    amount: int
    look: str = ""
    about: str = ""
    """What that means."""
    always: bool = False
    """Whether it is told even when there is none."""


def counts(now: ReplayProgress, states: Mapping[State, str]) -> tuple[Count, ...]:
    """Where every planned task stands: the amounts add up to what was planned."""
    tally = now.tally
    dead = shown(states.get(State.DEAD, "the dead-letter queue"))
    failures = ", ".join(f"{shown(mark) or 'no error'} {n:,}" for mark, n in now.failures.items())
    to_come = not now.stopped and not now.is_over
    rest = Count("to be sent", now.rest, "dim", "", True)
    if not to_come:
        why = shown(now.stopped) or "it was let go of"
        rest = Count("never sent", now.rest, "warning", f"stay in {dead}: {why}", True)
    over = now.is_over
    return (
        Count("delivered", tally.delivered, "good", "", True),
        Count("failed again", tally.failed, "bad", failures, True),
        Count("running", tally.running, "", "not over when it ended" if over else ""),
        Count("waiting", tally.waiting, "", "not run yet when it ended" if over else "to be run"),
        Count("unknown", tally.unknown, "unknown", "left, and nothing says how"),
        Count("moved by others", tally.taken, "warning", "before they were run"),
        Count("taken back", now.pulled, "", "stand where they stood"),
        Count("gone", now.gone, "warning", "had changed or left since the plan; left alone"),
        Count("refused", now.refused, "bad", "could not be changed"),
        Count("left out", now.excluded, "dim", "of the plan"),
        Count("held", now.held, "", f"not sent, and held now: {shown(now.stopped)}"),
        rest,
    )


def lines(
    now: ReplayProgress, states: Mapping[State, str], at: float, width: int, height: int
) -> list[Line]:
    """How it stands while it runs, for so many lines; `at` is the time, epoch seconds UTC."""
    told = [*_head(now, at, width), *_counts(now, states, width, bars=True)]
    told += [present.heading("stop rules", width), *_rules(now, states, width)]
    told += [present.heading("last", width)]
    room = max(3, height - len(told))
    return [*told, *(said(line, width) for line in reversed(now.lines[-room:]))]


def _head(now: ReplayProgress, at: float, width: int) -> list[Line]:
    word, look = PHASES[now.phase]
    sign = f" {word} " if look == "armed" else word
    began = f"  {present.countdown(max(0.0, at - now.began))}   began {present.clock(now.began)}"
    goes_on = "" if now.phase in (Phase.PAUSED, Phase.ASKING) else "   goes on when you leave"
    found: list[Line] = [((" ", ""), (sign, look), (began, ""), (goes_on, "dim"))]
    found.append(bar(now, width))
    why = now.stopped if now.why in ("", RATE) else now.why
    if why:
        look = "warning" if now.phase in (Phase.PAUSED, Phase.ASKING) or now.stopped else "dim"
        found += [((f"   {p}", look),) for p in _folded(why, width - 4)]
    if now.trouble:
        found += [((f" ! {p}", "bad"),) for p in _folded(now.trouble, width - 4)]
    found.append(_phases(now, width))
    return [present.cut(line, width) for line in found]


def bar(now: ReplayProgress, width: int) -> Line:
    """How many of those that are acted on were dealt with, and the time until all is sent."""
    total = now.planned - now.excluded
    handled = total - now.tally.unsettled - (0 if now.stopped else now.rest)
    left = f"  {lasting(now.eta)} to send" if now.eta and now.rest else ""
    share = 100 * handled // total if total else 100
    words = f"  {handled:,} of {total:,}  {share}%{left}"
    room = max(4, min(50, width - len(words) - 4))
    filled = room * handled // total if total else room
    return ((f" [{'#' * filled}{'.' * (room - filled)}]", "strong"), (words, ""))


def _phases(now: ReplayProgress, width: int) -> Line:
    parts: list[Line] = []
    for size, canary in zip(now.pace.canary, now.canaries, strict=False):
        if size:
            known = f"canary of {size}: {canary.known} of {min(size, now.planned)} known"
            good = canary.known >= min(size, now.planned) and canary.delivered
            parts.append(((f"   {known}", "good" if good else ""),))
    parts.append(((f"   then {rate(now.pace)}", ""),))
    return present.whole_ones(parts, width)


def rate(pace: ReplayPace) -> str:
    """How fast, in words: `2/s`, `one each 10 s`, `all at once`."""
    if pace.rate is None:
        return "all at once"
    return f"{pace.rate:g}/s" if pace.rate >= 1 else f"one each {lasting(1 / pace.rate)}"


def _counts(
    now: ReplayProgress, states: Mapping[State, str], width: int, *, bars: bool = False
) -> list[Line]:
    told = [count for count in counts(now, states) if count.amount or count.always]
    most = max(1, now.planned)
    room = min(30, max(0, width - NAMES - FIGURES - 24)) if bars else 0
    found = []
    for name, amount, look, about, _ in told:
        filled = -(-room * amount // most)
        runs: list[Run] = [
            (present.fit(f"   {name}", NAMES + 2), look if amount else "dim"),
            (present.fit(f"{amount:,}", FIGURES, right=True), look if amount else "dim"),
            (f"  {'#' * filled}" + " " * (room - filled) if room else "", look),
        ]
        if about and amount:
            runs.append((f"  {about}", ""))
        found.append(present.cut(tuple(runs), width))
    return found


def _rules(now: ReplayProgress, states: Mapping[State, str], width: int) -> list[Line]:
    found: list[Line] = []
    for rule in now.rules:
        look = "bad" if rule.why else ""
        found += [((f"   {piece}", look),) for piece in _folded(rule.words, width - 4)]
    if not now.rules:
        found.append((("   none: it goes on whatever happens", "warning"),))
    dead = shown(states.get(State.DEAD, "the dead-letter queue"))
    held = now.pace.stops.rest is RemainderPolicy.HOLD
    found.append(((f"   on stop the rest {'is held' if held else f'stays in {dead}'}", "dim"),))
    return found


SAID_LOOKS: Mapping[str, str] = {
    ReplayOutcome.DELIVERED: "good",
    ReplayOutcome.FAILED: "bad",
    ReplayOutcome.UNKNOWN: "unknown",
    "gone": "warning",
    ReplayOutcome.TAKEN: "warning",
}


def said(line: ProgressText, width: int) -> Line:
    """One line of what happened."""
    ident = present.fit_end(line.id, 38 if width >= 100 else 10)
    runs = (
        (f" {present.clock(line.when)}  ", "dim"),
        (f"{ident}  ", "strong"),
        (f"{present.fit(line.result, 10)}  ", SAID_LOOKS.get(line.result, "")),
        (shown(line.detail), "dim"),
    )
    return present.cut(runs, width)


# When it is over


def result(came: Result, states: Mapping[State, str], width: int) -> list[Line]:
    """What it came to; planned is accounted for, or it says that it is not."""
    now = came.progress
    word, look = PHASES[now.phase]
    # Of the whole seconds that are shown: a part of one would contradict them.
    took = lasting(int(now.now) - int(now.began))
    times = f"  {present.clock(now.began)} to {present.clock(now.now)} ({took})"
    found: list[Line] = [present.cut(((f" {word}", look), (times, "")), width)]
    if now.stopped:
        found += [((f"   {p}", "warning"),) for p in _folded(now.stopped, width - 4)]
    if now.trouble:
        found += [((f" ! {p}", "bad"),) for p in _folded(now.trouble, width - 4)]
    found += [present.heading("what became of them", width), *_counts(now, states, width)]
    found += [total(now)]
    found += [present.heading("undo", width), *_undo(came, states, width)]
    return [*found, *_others(came, width)]


def total(now: ReplayProgress) -> Line:
    """Whether every task is in exactly one of the counts."""
    name = present.fit("   total", NAMES + 2) + present.fit(f"{now.accounted:,}", FIGURES, True)
    if now.accounted == now.planned:
        return ((name, ""), (f"  {now.planned:,} planned: all accounted for", ""))
    return ((name, "bad"), (f"  {now.planned:,} planned: NOT all accounted for", "bad"))


def _undo(came: Result, states: Mapping[State, str], width: int) -> list[Line]:
    now, found = came.progress, []
    waits = now.tally.waiting
    if not now.op:
        words = "nothing was written down, so nothing can be taken back"
    elif now.phase is Phase.LEFT:
        words = "u shows it: R there goes on with what was not sent"
    elif now.sent - now.pulled <= 0:
        words = "nothing to take back: nothing of it is on its way"
    elif waits:
        words = f"T takes back what has not run: {waits:,} wait; what ran cannot be called back"
    elif now.tally.failed:
        words = (
            "what ran cannot be called back; what failed is tried again as the queue's rules say"
        )
    else:
        words = "nothing waits any more; what ran cannot be called back"
    found += [((f"   {piece}", ""),) for piece in _folded(words, width - 4)]
    if now.op:
        found.append(((f"   journal: {shown(now.op)}", "dim"),))
    return [present.cut(line, width) for line in found]


def _others(came: Result, width: int) -> list[Line]:
    """Each that was not simply delivered, alike with alike."""
    found: list[Line] = []
    by: dict[tuple[str, str], list[tuple[str, Known]]] = {}
    for ident, known in came.became.items():
        mark = known.mark if known.fate is ReplayOutcome.FAILED else ""
        by.setdefault((str(known.fate), mark), []).append((ident, known))
    for (fate, mark), some in sorted(by.items(), key=lambda item: -len(item[1])):
        words = f"{len(some):,} {fate}" + (f" with {shown(mark)}" if mark else "")
        found += [BLANK, present.heading(words, width)]
        found += [_one(ident, known.why, width) for ident, known in some[:LISTED]]
    report = came.report
    if report is not None:
        why = [(i, w) for i, w in report.failed if not w.startswith("not sent: ")]
        found += _reasons("could not be changed", why, width)
        gone = [(ident, "not as it was seen") for ident in report.gone]
        found += _reasons("gone", gone, width) + _reasons("left out", report.excluded, width)
    return found


def _one(ident: str, why: str, width: int) -> Line:
    name = present.fit_end(shown(ident), 38 if width >= 100 else 20)
    return present.cut(((f"   {name}  ", ""), (shown(why), "dim")), width)


def _reasons(title: str, some: Sequence[tuple[str, str]], width: int) -> list[Line]:
    if not some:
        return []
    reasons = Counter(why for _, why in some)
    words = f"{len(some):,} {title}: " + ", ".join(shown(why) for why in reasons)
    found = [BLANK, present.cut(present.heading(words, width), width)]
    return [*found, *(_one(ident, why, width) for ident, why in some[:LISTED])]


def _folded(text: str, width: int) -> list[str]:
    return present.folded(shown(text), max(8, width))
