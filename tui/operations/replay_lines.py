"""Text of a running or ended operation: state, counts, steps, results of its tasks, its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from engine.model import State
from engine.monitor.throughput import FlowSeries
from engine.operations.execute import Report
from engine.operations.plans import RowResult
from engine.replay.outcomes import ReplayOutcome
from engine.replay.progress import Phase, ReplayProgress, TaskProgress
from engine.replay.scheduler import RATE_REASON
from engine.replay.settings import ReplayPace
from engine.text.figure import UNKNOWN
from engine.text.figures import format_rate
from engine.text.safe import safe_line, state_name
from engine.text.times import format_rough_duration
from engine.values import NamedTuple
from tui.operations.worker_lines import format_seconds
from tui.plan.plan_lines import requests_text
from tui.plan.result_rows import TaskStates, state_now
from tui.session.running_operations import RunningOperation
from tui.text.graphs import LAST_OF_LINES, LatestFlow, braille_line, flow_graph
from tui.text.lines import Line, Run, cut_line, folded_lines, join_ends, parts_that_fit, width_of
from tui.text.table import REST, Choice, Column, Table
from tui.text.task_list import SHORT_ID_CELLS, short_id
from tui.text.times import format_clock

FLOW_SECONDS = 600.0
SPARKLINE_CELLS = 10

GRAPH_ROWS = 10
"""Minimum number of lines for the graphs of the queue in place of sparklines."""

_PHASES: Mapping[Phase, Run] = {
    Phase.PAUSED: ("PAUSED", "chip-warn"),
    Phase.ASKING: ("PAUSED", "chip-warn"),
    Phase.OVER: ("DONE", "ok"),
    Phase.LEFT: ("INTERRUPTED", "chip-warn"),
}
"""First word of a replay in each phase; of all others RUNNING."""


class OutcomeCount(NamedTuple):
    """Number of tasks with one outcome."""

    name: str
    amount: int
    style: str = ""
    always: bool = False
    """Shown even if it is 0."""
    is_open: bool = False
    """True for tasks without a result: they wait, or were never sent."""


class OperationView(NamedTuple):
    """What the screen shows of an operation at one moment."""

    state: Run
    counts: tuple[OutcomeCount, ...]
    """They add up to `planned`."""
    planned: int
    began: float
    """Epoch seconds UTC."""
    ended: float | None
    """End time; None while it runs."""
    eta: float | None = None
    sending: float | None = None
    """Seconds until all tasks of a replay are sent; None if not known."""
    pace: ReplayPace | None = None
    """The pace of a replay; None for an operation without one."""
    failures: Mapping[str, int] = {}
    """Failures by fingerprint, the most frequent first."""
    reasons: tuple[Run, ...] = ()
    """Why it waits, is paused or stopped, and problems apart from its tasks."""
    tasks: tuple[TaskProgress, ...] = ()
    sent: int | None = None
    """Number of sent tasks, of which some have no outcome yet; None if it is no replay."""

    @property
    def settled(self) -> int:
        """Number of tasks with a result."""
        return self.planned - sum(count.amount for count in self.counts if count.is_open)

    @property
    def waiting(self) -> int:
        """Number of tasks that still get a result."""
        return next((n for name, n, *_ in self.counts if name == "waiting"), 0)


def operation_view(
    work: RunningOperation, states: Mapping[State, str], now: float
) -> OperationView:
    """The operation now, in epoch seconds UTC."""
    progress, report = work.progress, work.report
    view = _direct_view(work, now) if progress is None else replay_view(progress, states)
    if report is None:
        return view
    reasons = view.reasons if report.is_exact else (*view.reasons, (requests_text(report), "warn"))
    if report.trouble and progress is None:
        reasons += ((f"! {report.trouble}", "error"),)
    return view._replace(reasons=reasons, tasks=_with_report(view.tasks, report, work.words.past))


def _with_report(
    tasks: Sequence[TaskProgress], report: Report, done: str
) -> tuple[TaskProgress, ...]:
    """The results with those of the report that are not among them; problems first."""
    known = {task.id for task in tasks}
    more = [
        *(TaskProgress(0.0, i, "failed", safe_line(why)) for i, why in report.failed),
        *(TaskProgress(0.0, i, "skipped", "changed since the plan") for i in report.gone),
        *(TaskProgress(0.0, i, "excluded", safe_line(why)) for i, why in report.excluded),
        *(TaskProgress(0.0, i, "not applied", safe_line(why)) for i, why in report.unapplied),
        *(TaskProgress(0.0, i, "" if tasks else done, "") for i in report.done),
    ]
    unsent = "not sent: "
    more = [t for t in more if t.result and t.id not in known and not t.detail.startswith(unsent)]
    order = {"failed": 0, "refused": 0, done: 3}
    return tuple(sorted((*tasks, *more), key=lambda t: order.get(t.result, 1 + (not t.is_problem))))


def replay_view(now: ReplayProgress, states: Mapping[State, str]) -> OperationView:
    """A replay as of its progress."""
    word, style = _PHASES.get(now.phase, ("RUNNING", "ok"))
    if now.phase is not Phase.LEFT and (now.stopped or (now.is_over and now.unsent)):
        word, style = "STOPPED", "chip-error"
    why = now.why if now.why not in ("", RATE_REASON, now.stopped) else ""
    reasons: list[Run] = [(now.stopped, "")] if now.stopped else []
    reasons += [(why, "")] if why else []
    reasons += [(f"! {now.trouble}", "error")] if now.trouble else []
    return OperationView(
        (word, style),
        outcome_counts(now, states),
        now.planned,
        began=now.began,
        ended=now.now if now.is_over else None,
        sending=None if now.is_over else now.eta,
        pace=now.pace,
        failures=now.failures,
        reasons=tuple(reasons),
        tasks=now.results,
        sent=now.sent,
    )


def outcome_counts(now: ReplayProgress, states: Mapping[State, str]) -> tuple[OutcomeCount, ...]:
    """Counts by outcome; they add up to the planned number."""
    tally, is_final = now.tally, bool(now.stopped) or now.is_over
    source = state_name(states.get(now.source, now.source))
    return (
        OutcomeCount("done", tally.delivered, "ok", True),
        OutcomeCount("failed", tally.failed, "error", True),
        OutcomeCount("skipped", now.skipped, "", True),
        OutcomeCount("refused", now.refused, "error"),
        OutcomeCount("unknown", tally.unknown, "unknown"),
        OutcomeCount("moved by others", tally.taken),
        OutcomeCount("undone", now.pulled_back),
        OutcomeCount("excluded", now.excluded),
        OutcomeCount(
            "not run yet" if now.is_over else "waiting",
            tally.unsettled + (0 if is_final else now.unsent),
            "",
            not is_final,
            is_open=True,
        ),
        OutcomeCount("held", now.held, is_open=True),
        OutcomeCount(f"not sent (still in {source})", now.unsent if is_final else 0, is_open=True),
    )


def _direct_view(work: RunningOperation, now: float) -> OperationView:
    """An operation without a pace."""
    done, skipped, failed, excluded, unapplied = (work.counts[end] for end in RowResult)
    waiting = work.planned - done - failed - skipped - excluded - unapplied
    counts = (
        OutcomeCount(work.words.past, done, "ok", True),
        OutcomeCount("failed", failed, "error", True),
        OutcomeCount("skipped", skipped, "", True),
        OutcomeCount("excluded", excluded),
        OutcomeCount("not applied", unapplied),
        OutcomeCount("waiting", waiting, always=work.ended is None, is_open=True),
    )
    has_ended = work.ended is not None
    state = ("STOPPED", "chip-error") if has_ended and work.is_stopped else ("DONE", "ok")
    took, settled = now - work.began, sum(work.counts.values())
    eta = took * (work.planned - settled) / settled if settled and not has_ended else None
    return OperationView(
        state if has_ended else ("RUNNING", "ok"),
        counts,
        work.planned,
        began=work.began,
        ended=work.ended,
        eta=eta,
    )


# Head: state, bar, counts


def head_lines(view: OperationView, width: int) -> list[Line]:
    """State and numbers, the bar, the counts with their sum, and the reasons."""
    lines = [_state_line(view, width), _bar(view, width), counts_line(view, width)]
    for words, style in view.reasons:
        lines += folded_lines(words, width, style, (("   ", ""),))
    return lines


def _state_line(view: OperationView, width: int) -> Line:
    word, style = view.state
    chip = f" {word} " if style.startswith("chip") else word
    share = 100 * view.settled // view.planned if view.planned else 100
    parts: list[Line] = [
        (("  " if chip != word else "   ", ""), (chip, style)),
        (("   ", ""), (f"{view.settled:,}", "strong"), (f"/{view.planned:,}", "muted")),
        (("   ", ""), (f"{share}%", "ok")),
    ]
    if view.sent is not None and view.ended is None:
        parts.append((("   ", ""), (f"{view.sent:,} sent", "")))
    if view.ended is not None:
        times = f"{format_clock(view.began)} to {format_clock(view.ended)}"
        seconds = view.ended - view.began
        took = "<0.1s" if seconds < 0.05 else format_seconds(seconds)
        parts.append((("   ", ""), ("took ", "muted"), (took, "strong"), (f"  {times}", "muted")))
    elif view.eta is not None:
        parts.append((("   ETA ", "muted"), (format_seconds(view.eta), "strong")))
    elif view.sending:
        parts.append((("   all sent in ", "muted"), (format_seconds(view.sending), "strong")))
    if view.pace is not None and view.ended is None:
        parts.append((("   rate ", "muted"), (format_pace(view.pace), "")))
    failing = (f"{safe_line(mark) or 'no error'} {n:,}" for mark, n in view.failures.items())
    if view.failures:
        parts.append((("   failing ", "muted"), (", ".join(failing), "accent")))
    return cut_line(parts_that_fit(parts, width), width)


def _bar(view: OperationView, width: int) -> Line:
    """All tasks as one bar: done, failed, other results, and what is open."""
    room = max(4, width - 6)
    done = view.counts[0].amount
    failed = sum(n for name, n, *_ in view.counts if name in ("failed", "refused"))
    bounds = [0, *accumulate((done, failed, view.settled - done - failed))]
    total = max(1, view.planned)
    # A part above zero shows at least one cell, so that one failure of thousands is seen.
    edges = [-(-room * end // total) for end in bounds]
    runs: list[Run] = [("   ", "")]
    for (start, end), style in zip(pairwise(edges), ("ok", "error", "muted"), strict=True):
        runs.append(("█" * (end - start), style))
    return cut_line((*runs, ("░" * (room - edges[-1]), "line")), width)


def counts_line(view: OperationView, width: int) -> Line:
    """The counts and their sum: `15 done   1 failed   17 waiting   15 + 1 + 17 = 33`."""
    listed = [count for count in view.counts if count.amount or count.always]
    some = [count for count in listed if count.amount] or listed[:1]
    total = sum(count.amount for count in view.counts)
    exact = total == view.planned
    equals = "" if exact and len(some) == 1 else f" = {total:,}"
    equals += "" if exact else f", NOT {view.planned:,} planned"
    if view.ended is not None:
        plus = [(" + " * bool(at) + f"{n.amount:,} {n.name}", n.style) for at, n in enumerate(some)]
        return cut_line((("   ", ""), *plus, (equals, "strong" if exact else "error")), width)
    runs: list[Run] = [("   ", "")]
    for count in listed:
        style = count.style if count.amount else "muted"
        runs.append((f"{count.amount:,} {count.name}   ", style))
    figures = " + ".join(f"{count.amount:,}" for count in some) if equals else ""
    right: Line = ((figures + equals, "muted" if exact else "error"), ("   ", ""))
    if exact and width_of((*runs, *right)) >= width:
        return cut_line(tuple(runs), width)
    return join_ends(tuple(runs), right, width)


# Steps of a replay


class _Step(NamedTuple):
    name: str
    sent: int
    size: int
    done: int
    failed: int
    began: float | None
    ended: float | None


def step_lines(now: ReplayProgress, width: int) -> list[Line]:
    """One line for each canary and one for the rest, with the state of the stop rules."""
    steps = _steps(now)
    current = next((at for at, step in enumerate(steps) if step.ended is None), len(steps) - 1)

    def state(at: int) -> Run:
        if at != current:
            return (" DONE", "ok") if at < current else (" -", "muted")
        if now.stopped or (now.is_over and now.unsent):
            return " STOPPED", "error"
        if now.is_over:
            return " DONE", "ok"
        is_paused = now.phase in (Phase.PAUSED, Phase.ASKING)
        return (" PAUSED", "warn") if is_paused else (" RUNNING", "ok")

    def sent(at: int) -> Run:
        return f"{steps[at].sent:,}/{steps[at].size:,}", ""

    def rule(at: int) -> Run:
        return " passed" if at < current else f" {rules[0]}" if at == current else "", "muted"

    def time(at: int) -> Run:
        began, until = steps[at].began, steps[at].ended or now.now
        return ("-", "muted") if began is None else (format_seconds(until - began), "")

    def skipped(at: int) -> Run:
        return _amount(now.skipped if at == len(steps) - 1 else 0, "warn")  # not in its size

    table = Table[int](
        (
            Column("STEP", 8, lambda at: (f"{at + 1} {steps[at].name}", "")),
            Column("SENT", 7, sent, right=True, most=21),
            Column(" STATE", 9, state),
            Column("TIME", 6, time, right=True),
            Column("DONE", 6, lambda at: _amount(steps[at].done, ""), right=True, most=10),
            Column("FAILED", 6, lambda at: _amount(steps[at].failed, "error"), right=True, most=10),
            Column("SKIPPED", 7, skipped, right=True, most=10),
            Column(" STOP RULE", 0, rule, grows=REST),
        ),
        gaps=(1,),
    ).fitted(range(len(steps)), width)
    room = table.columns[-1].width - 1
    rules = _stop_rules(now, room)
    lines = [table.titles(width), *(table.line(at, width) for at in range(len(steps)))]
    more = [cut_line(((" " * (width - room) + text, "muted"),), width) for text in rules[1:]]
    return [*lines[: current + 2], *more, *lines[current + 2 :]]


def _stop_rules(now: ReplayProgress, room: int) -> list[str]:
    """The state of the stop rules, in one line if `room` cells hold it, else each in its own."""
    if now.is_over and not now.stopped and not now.unsent:
        return ["passed"]
    words = ", ".join(rule.why or rule.words for rule in now.rules)
    brief = [safe_line(rule.short) for rule in now.rules]
    if now.stopped or len(words) <= room or any(rule.why for rule in now.rules):
        return [safe_line(now.stopped or words or "none: errors do not stop it")]
    return (
        brief if room >= len("STOP RULE") and len(", ".join(brief)) > room else [", ".join(brief)]
    )


def _amount(number: int, style: str) -> Run:
    return f"{number:,}", style if number else "muted"


def _steps(now: ReplayProgress) -> list[_Step]:
    tally, included = now.tally, now.planned - now.excluded
    steps: list[_Step] = []
    for size, canary in zip(now.pace.canary, now.canaries, strict=False):
        its, size = canary.tally, min(size, included - sum(step.size for step in steps))
        if size > 0:
            name = "batch" if steps else "canary"
            ended = canary.ended if canary.delivered else None
            counts = its.sent, size, its.delivered, its.failed
            steps.append(_Step(name, *counts, began=canary.began, ended=ended))
    size = included - sum(step.size for step in steps) - now.skipped - now.refused
    sent = tally.sent - sum(step.sent for step in steps)
    if size > 0 or not steps:
        began = steps[-1].ended if steps else now.began
        done = tally.delivered - sum(step.done for step in steps)
        failed = tally.failed - sum(step.failed for step in steps)
        counts, name = (sent, max(0, size), done, failed), "rest" if steps else "all"
        steps.append(_Step(name, *counts, began=began, ended=None))
    return steps


def format_pace(pace: ReplayPace) -> str:
    """The rate as text: `2 per second`, `one each 10 s`, `no rate limit`."""
    if pace.rate is None:
        return "no rate limit"
    if pace.rate >= 1:
        return f"{pace.rate:g} per second"
    return f"one each {format_rough_duration(1 / pace.rate)}"


# Results of its tasks

RESULT_LOOKS: Mapping[str, str] = {
    "done": "ok",
    ReplayOutcome.FAILED: "error",
    "refused": "error",
    ReplayOutcome.UNKNOWN: "unknown",
}

_RESULT_WORDS: Mapping[str, str] = {
    ReplayOutcome.DELIVERED: "done",
    ReplayOutcome.TAKEN: "moved",
    "gone": "skipped",
}


def task_table(
    tasks: Sequence[TaskProgress],
    past: str,
    width: int,
    now: TaskStates,
    words: Mapping[State, str],
) -> tuple[Line, list[Choice]]:
    """Titles and one row for each task, with where it is now; `past` is the word of a task that the
    verb changed, `words` are the store's own words of states."""
    timed = any(task.when for task in tasks)

    def result(task: TaskProgress) -> Run:
        word = _RESULT_WORDS.get(task.result, task.result)
        return word, "ok" if word == past else RESULT_LOOKS.get(word, "muted")

    def took(task: TaskProgress) -> Run:
        return ("-", "muted") if task.seconds is None else (format_seconds(task.seconds), "")

    columns: list[Column[TaskProgress]] = [
        Column("ID", SHORT_ID_CELLS, lambda task: (short_id(task.id), "accent"), keeps_end=True),
        Column("AT", 9, lambda task: (format_clock(task.when)[:8], "muted")),
        Column("RESULT", 11 - timed, result),
        Column("TOOK", 6, took, right=True),
        Column("NOW", 4, lambda task: state_now(task.id, now, words), most=12),
        Column(
            "REPLY" if timed else "REASON", 0, lambda task: (safe_line(task.detail), ""), grows=REST
        ),
    ]
    table = Table([column for column in columns if timed or column.title not in ("AT", "TOOK")])
    head, lines = table.lines(tasks, width)
    return head, [Choice(task.id, line) for task, line in zip(tasks, lines, strict=True)]


# The queue meanwhile


def flow_lines(
    series: FlowSeries,
    before: FlowSeries,
    width: int,
    rows: int,
    wait_p95: tuple[float | None, float | None] = (None, None),
    latest: LatestFlow = LAST_OF_LINES,
) -> list[Line]:
    """What the queue does meanwhile: in, out, backlog, each with its value before the start.
    `before`: the series that ended at the start. `wait_p95`: waiting time of the slowest kind in
    seconds, now and at the start. `latest`: the present values."""
    if rows >= GRAPH_ROWS:
        return [*flow_graph(series, width, rows, latest)]
    in_rate, out_rate = latest.rates or (None, None)
    inward = _figure("in", series.inward, in_rate, before.inward, style="accent")
    out = _figure("out", series.outward, out_rate, before.outward, style="ok")
    backlog = _figure(
        "backlog", series.backlog, latest.backlog, before.backlog, "warn", form="{:,.0f}".format
    )
    if latest.is_unknown:  # the values before the start stay
        inward, out, backlog = map(_without_present, (inward, out, backlog))
    now, then = wait_p95
    wait: Line = (
        ("wait p95", "muted"),
        (f"{format_seconds(now):>6}", "strong"),
        (f"  {'':{SPARKLINE_CELLS}} was {format_seconds(then)}", "muted"),
    )
    half = (width - 3) // 2
    pairs = ((inward, out), (backlog, () if now is None else wait))
    return [
        (("   ", ""), *cut_line(left, half - 2), ("  ", ""), *cut_line(right, half))
        for left, right in pairs
    ]


def _without_present(figure: Line) -> Line:
    """A figure of a place that cannot be read now."""
    name, _, *rest = figure
    return (name, (f"{UNKNOWN:>6}", "unknown"), *rest)


def _figure(
    name: str,
    values: Sequence[float | None],
    latest: float | None,
    before: Sequence[float | None],
    style: str,
    form: Callable[[float], str] = format_rate,
) -> Line:
    """Name, present value, sparkline, and the value before the start."""

    def words(some: Sequence[float | None]) -> str:
        last = next((value for value in reversed(some) if value is not None), None)
        return UNKNOWN if last is None else form(last)

    known = [value for value in values if value is not None]
    now = words(values[-3:]) if latest is None else words((latest,))
    (spark,) = braille_line(values, min(known, default=0), max(known, default=0), 1)
    return (
        (f"{name:<8}", "muted"),
        (f"{now:>6}", "strong" if known else "unknown"),
        (f"  {spark}", style),
        (f" was {words(before)}", "muted"),
    )
