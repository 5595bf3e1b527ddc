"""Text of a replay: progress while it runs, and the outcome of each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.model import State
from engine.policy import describe_duration
from engine.replay.outcomes import KnownOutcome, ReplayOutcome
from engine.replay.progress import Phase, ProgressText, ReplayProgress
from engine.replay.replay import ReplayResult
from engine.replay.scheduler import RATE_REASON
from engine.replay.settings import RemainderPolicy, ReplayPace
from engine.text.safe import safe_line
from tui.format import present
from tui.format.present import BLANK_LINE, Line, Run
from tui.plan.lines import SENT_AS_REQUEST

MAX_LISTED_TASKS = 1000
"""Tasks listed one by one; the counts include all."""

NAME_CELLS, NUMBER_CELLS = 16, 9
"""Widths of a count's name and number in cells."""

PHASES: Mapping[Phase, Run] = {
    Phase.STARTING: ("STARTING", "strong"),
    Phase.SENDING: ("RUNNING", "ok"),
    Phase.WAITING: ("WAITING", "ok"),
    Phase.PAUSED: ("PAUSED", "chip-warn"),
    Phase.ASKING: ("CONFIRM", "chip-warn"),
    Phase.ENDING: ("ENDING", "ok"),
    Phase.OVER: ("DONE", "strong"),
    Phase.LEFT: ("INTERRUPTED", "warn"),
}


class OutcomeCount(NamedTuple):
    """Number of tasks with one outcome."""

    name: str
    amount: int
    look: str = ""
    about: str = ""
    """Explanation of the count."""
    always: bool = False
    """Shown even if it is 0."""


def outcome_counts(now: ReplayProgress, states: Mapping[State, str]) -> tuple[OutcomeCount, ...]:
    """Counts by outcome; they add up to the planned number."""
    tally = now.tally
    dead = safe_line(states.get(State.DEAD, "the dead-letter queue"))
    failures = ", ".join(
        f"{safe_line(mark) or 'no error'} {n:,}" for mark, n in now.failures.items()
    )
    to_come = not now.stopped and not now.is_over
    rest = OutcomeCount("not sent yet", now.unsent, "muted", "", True)
    if not to_come:
        why = safe_line(now.stopped) or "detached"
        rest = OutcomeCount("never sent", now.unsent, "warn", f"stay in {dead}: {why}", True)
    over = now.is_over
    return (
        OutcomeCount("delivered", tally.delivered, "ok", "", True),
        OutcomeCount("failed again", tally.failed, "error", failures, True),
        OutcomeCount("running", tally.running, "", "unfinished at the end" if over else ""),
        OutcomeCount("waiting", tally.waiting, "", "not run at the end" if over else "to run"),
        OutcomeCount("unknown", tally.unknown, "unknown", "left the queue, no result found"),
        OutcomeCount("moved by others", tally.taken, "warn", "before they ran"),
        OutcomeCount("undone", now.pulled_back, "", "back in their former state"),
        OutcomeCount("skipped", now.skipped, "warn", "changed since the plan"),
        OutcomeCount("refused", now.refused, "error", "could not be changed"),
        OutcomeCount("excluded", now.excluded, "muted", "from the plan"),
        OutcomeCount("held", now.held, "", f"not sent, held: {safe_line(now.stopped)}"),
        rest,
    )


def progress_lines(
    now: ReplayProgress, states: Mapping[State, str], at: float, width: int, height: int
) -> list[Line]:
    """Progress in `height` lines; `at` is the time in epoch seconds UTC."""
    told = [*_head(now, at, width), *_counts(now, states, width, bars=True)]
    told += [present.heading_line("stop rules", width), *_rules(now, states, width)]
    told += [present.heading_line("latest", width)]
    room = max(3, height - len(told))
    return [*told, *(event_line(line, width) for line in reversed(now.lines[-room:]))]


def _head(now: ReplayProgress, at: float, width: int) -> list[Line]:
    word, look = PHASES[now.phase]
    sign = f" {word} " if look == "chip-warn" else word
    began = (
        f"  {present.format_countdown(max(0.0, at - now.began))}   started "
        f"{present.format_clock(now.began)}"
    )
    goes_on = "" if now.phase in (Phase.PAUSED, Phase.ASKING) else "   Esc: continues in background"
    found: list[Line] = [((" ", ""), (sign, look), (began, ""), (goes_on, "muted"))]
    found.append(progress_bar(now, width))
    why = now.stopped if now.why in ("", RATE_REASON) else now.why
    if why:
        look = "warn" if now.phase in (Phase.PAUSED, Phase.ASKING) or now.stopped else "muted"
        found += [((f"   {p}", look),) for p in _folded(why, width - 4)]
    if now.trouble:
        found += [((f" ! {p}", "error"),) for p in _folded(now.trouble, width - 4)]
    found.append(_phases(now, width))
    return [present.cut_line(line, width) for line in found]


def progress_bar(now: ReplayProgress, width: int) -> Line:
    """Progress bar of settled tasks, and the time until all are sent."""
    total = now.planned - now.excluded
    handled = total - now.tally.unsettled - (0 if now.stopped else now.unsent)
    left = f"  {describe_duration(now.eta)} to send" if now.eta and now.unsent else ""
    share = 100 * handled // total if total else 100
    words = f"  {handled:,} of {total:,}  {share}%{left}"
    room = max(4, min(50, width - len(words) - 4))
    filled = room * handled // total if total else room
    return ((f" [{'#' * filled}{'.' * (room - filled)}]", "strong"), (words, ""))


def _phases(now: ReplayProgress, width: int) -> Line:
    parts: list[Line] = []
    for size, canary in zip(now.pace.canary, now.canaries, strict=False):
        if size:
            known = f"canary of {size}: {canary.known} of {min(size, now.planned)} finished"
            good = canary.known >= min(size, now.planned) and canary.delivered
            parts.append(((f"   {known}", "ok" if good else ""),))
    parts.append(((f"   then {format_rate(now.pace)}", ""),))
    return present.parts_that_fit(parts, width)


def format_rate(pace: ReplayPace) -> str:
    """The rate as text: `2/s`, `one each 10 s`, `no rate limit`."""
    if pace.rate is None:
        return "no rate limit"
    return f"{pace.rate:g}/s" if pace.rate >= 1 else f"one each {describe_duration(1 / pace.rate)}"


def _counts(
    now: ReplayProgress, states: Mapping[State, str], width: int, *, bars: bool = False
) -> list[Line]:
    told = [count for count in outcome_counts(now, states) if count.amount or count.always]
    most = max(1, now.planned)
    room = min(30, max(0, width - NAME_CELLS - NUMBER_CELLS - 24)) if bars else 0
    found = []
    for name, amount, look, about, _ in told:
        filled = -(-room * amount // most)
        runs: list[Run] = [
            (present.fit_text(f"   {name}", NAME_CELLS + 2), look if amount else "muted"),
            (
                present.fit_text(f"{amount:,}", NUMBER_CELLS, right=True),
                look if amount else "muted",
            ),
            (f"  {'#' * filled}" + " " * (room - filled) if room else "", look),
        ]
        if about and amount:
            runs.append((f"  {about}", ""))
        found.append(present.cut_line(tuple(runs), width))
    return found


def _rules(now: ReplayProgress, states: Mapping[State, str], width: int) -> list[Line]:
    found: list[Line] = []
    for rule in now.rules:
        look = "error" if rule.why else ""
        found += [((f"   {piece}", look),) for piece in _folded(rule.words, width - 4)]
    if not now.rules:
        found.append((("   none: errors do not stop it", "warn"),))
    dead = safe_line(states.get(State.DEAD, "the dead-letter queue"))
    held = now.pace.stops.rest is RemainderPolicy.HOLD
    found.append(((f"   on stop: rest {'held' if held else f'stays in {dead}'}", "muted"),))
    return found


RESULT_LOOKS: Mapping[str, str] = {
    ReplayOutcome.DELIVERED: "ok",
    ReplayOutcome.FAILED: "error",
    ReplayOutcome.UNKNOWN: "unknown",
    "gone": "warn",
    ReplayOutcome.TAKEN: "warn",
}


def event_line(line: ProgressText, width: int) -> Line:
    """One event line."""
    ident = present.fit_text_end(line.id, 38 if width >= 100 else 10)
    runs = (
        (f" {present.format_clock(line.when)}  ", "muted"),
        (f"{ident}  ", "strong"),
        (f"{present.fit_text(line.result, 10)}  ", RESULT_LOOKS.get(line.result, "")),
        (safe_line(line.detail), "muted"),
    )
    return present.cut_line(runs, width)


# Result


def result_lines(came: ReplayResult, states: Mapping[State, str], width: int) -> list[Line]:
    """Result with all counts; says so if they do not add up."""
    now = came.progress
    word, look = PHASES[now.phase]
    if now.stopped and now.phase is Phase.OVER:
        word = "STOPPED"
    # rounded like the times shown, so that they agree
    took = describe_duration(int(now.now) - int(now.began))
    times = f"  {present.format_clock(now.began)} to {present.format_clock(now.now)} ({took})"
    found: list[Line] = [present.cut_line(((f" {word}", look), (times, "")), width)]
    if now.stopped:
        found += [((f"   {p}", "warn"),) for p in _folded(now.stopped, width - 4)]
    if now.trouble:
        found += [((f" ! {p}", "error"),) for p in _folded(now.trouble, width - 4)]
    found += [present.heading_line("results", width), *_counts(now, states, width)]
    found += [total_line(now)]
    if came.report is not None and not came.report.is_exact:
        found += [((f"   {p}", "warn"),) for p in _folded(SENT_AS_REQUEST, width - 4)]
    found += [present.heading_line("undo", width), *_undo(came, states, width)]
    return [*found, *_undelivered_lines(came, width)]


def total_line(now: ReplayProgress) -> Line:
    """The sum of the counts, compared with the planned number."""
    name = present.fit_text("   total", NAME_CELLS + 2) + present.fit_text(
        f"{now.accounted:,}", NUMBER_CELLS, True
    )
    if now.accounted == now.planned:
        return ((name, ""), (f"  {now.planned:,} planned: all accounted for", ""))
    return ((name, "error"), (f"  {now.planned:,} planned: NOT all accounted for", "error"))


def _undo(came: ReplayResult, states: Mapping[State, str], width: int) -> list[Line]:
    now, found = came.progress, []
    waits = now.tally.waiting
    if not now.op:
        words = "not recorded: undo not possible"
    elif now.phase is Phase.LEFT:
        words = "u lists it: R there sends the rest"
    elif now.sent - now.pulled_back <= 0:
        words = "nothing to undo: no task is pending"
    elif waits:
        words = f"u undoes the {waits:,} tasks that have not run; others cannot be undone"
    elif now.tally.failed:
        words = "tasks that ran cannot be undone; failed ones retry by the queue's rules"
    else:
        words = "no task pending; tasks that ran cannot be undone"
    found += [((f"   {piece}", ""),) for piece in _folded(words, width - 4)]
    if now.op:
        found.append(((f"   journal: {safe_line(now.op)}", "muted"),))
    return [present.cut_line(line, width) for line in found]


def _undelivered_lines(came: ReplayResult, width: int) -> list[Line]:
    """Tasks that were not delivered, grouped by outcome and error."""
    found: list[Line] = []
    by: dict[tuple[str, str], list[tuple[str, KnownOutcome]]] = {}
    for ident, known in came.known_outcomes.items():
        mark = known.mark if known.outcome is ReplayOutcome.FAILED else ""
        by.setdefault((str(known.outcome), mark), []).append((ident, known))
    for (fate, mark), some in sorted(by.items(), key=lambda item: -len(item[1])):
        words = f"{len(some):,} {fate}" + (f" with {safe_line(mark)}" if mark else "")
        found += [BLANK_LINE, present.heading_line(words, width)]
        found += [
            _task_line(ident, known.reason, width) for ident, known in some[:MAX_LISTED_TASKS]
        ]
    report = came.report
    if report is not None:
        why = [(i, w) for i, w in report.failed if not w.startswith("not sent: ")]
        found += _reasons("refused", why, width)
        gone = [(ident, "changed since the plan") for ident in report.gone]
        found += _reasons("skipped", gone, width) + _reasons("excluded", report.excluded, width)
    return found


def _task_line(ident: str, why: str, width: int) -> Line:
    name = present.fit_text_end(safe_line(ident), 38 if width >= 100 else 20)
    return present.cut_line(((f"   {name}  ", ""), (safe_line(why), "muted")), width)


def _reasons(title: str, some: Sequence[tuple[str, str]], width: int) -> list[Line]:
    if not some:
        return []
    reasons = Counter(why for _, why in some)
    words = f"{len(some):,} {title}: " + ", ".join(safe_line(why) for why in reasons)
    found = [BLANK_LINE, present.cut_line(present.heading_line(words, width), width)]
    return [*found, *(_task_line(ident, why, width) for ident, why in some[:MAX_LISTED_TASKS])]


def _folded(text: str, width: int) -> list[str]:
    return present.fold_text(safe_line(text), max(8, width))
