"""Text of the task screen: summary, fields, attempts and log."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from engine.locks.token_buckets import describe_bucket
from engine.logs.kept_output import KeptOutput
from engine.logs.merged_log import Mentions
from engine.logs.task_events import Attempt, EventKind, TaskEvent
from engine.model import Part, Relative, Relatives, State, Task
from engine.operations.notes import Note
from engine.policy import DAY_SECONDS, count_runs, died_at
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line, safe_lines, state_name
from engine.text.times import format_rough_duration
from engine.values import NamedTuple
from engine.verbs import WAITING_PREFIX
from tui.session.index_queries import CheckedCluster
from tui.task.why_waiting import NO_OUTLOOK, TaskOutlook
from tui.text import glyphs
from tui.text import lines as lines_text
from tui.text.graphs import FULL_CELL
from tui.text.lines import (
    BLANK_LINE,
    Line,
    Run,
    cells_of,
    cut_line,
    fit_text,
    fold_text,
    part_line,
    width_of,
)
from tui.text.log_line import log_line, shorten_ids
from tui.text.styles import STILL_LOOKS
from tui.text.table import Choice
from tui.text.task_fields import others_text, task_fields
from tui.text.task_list import MAX_ID_CELLS, short_id
from tui.text.times import format_clock, format_time_with_age

Text: TypeAlias = list[Line]


class LogFindings(NamedTuple):
    """What the logs contain about a task."""

    log: Mentions | None = None
    """Log lines that mention it; None until they were searched."""
    error: str = ""
    """Why the logs could not be searched."""
    note: str = ""
    """What was searched of the log of a server elsewhere; "" if it is here."""
    problem: str = ""
    """Why that log is not copied; "" if it is."""
    history: tuple[TaskEvent, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    outputs: tuple[KeptOutput, ...] = ()
    """What its handler printed in its last runs."""
    output_problem: str = ""
    """Why that could not be read; "" if it could."""


NOT_SEARCHED, NO_RELATIVES = LogFindings(), Relatives()


@dataclass(frozen=True, slots=True)
class TaskDetails:
    """A task with all facts known about it."""

    task: Task
    states: Mapping[State, str]
    gone: bool = False
    outlook: TaskOutlook = NO_OUTLOOK
    mark: str = ""
    """Fingerprint of its last error."""
    cluster: CheckedCluster | None = None
    """The tasks in its state with the same error, and whether it still happens; None if unknown."""
    max_runs: int | None = None
    command: tuple[str, ...] = ()
    findings: LogFindings = NOT_SEARCHED
    parts: tuple[Part, ...] = ()
    request: tuple[Run, ...] = ()
    """Names and values of the request that a delivery sends."""
    relatives: Relatives = NO_RELATIVES
    notes: tuple[Note, ...] = ()
    server_rows: tuple[Run, ...] = ()
    """Names and values that its server has, such as the next try of a mail."""
    notes_error: str = ""
    """Why the notes could not be read; "" if they could."""
    changed: str = ""
    """The last change that was seen, with its time."""

    @property
    def state_word(self) -> str:
        """Its state in the store's own word."""
        return safe_line(self.states.get(self.task.state, self.task.state))


def show_command(place: Sequence[str], task: Task, has_dlq: bool = True) -> tuple[str, ...]:
    """Command that shows a task; `has_dlq` if the place has the command for dead tasks."""
    if has_dlq and task.state is State.DEAD:
        return (*place, "queue", "dlq", "show", task.id)
    return (*place, "queue", "list", "--json", "--filter", f"id={task.id}")


def part_titles(
    details: TaskDetails | None, current: str, titles: Iterable[str]
) -> Mapping[str, str]:
    """The parts with something to show, and the open one, with their counts."""
    counts = {"summary": ""} if details is None else part_counts(details)
    return {title: counts.get(title, "") for title in titles if title in counts or title == current}


def part_counts(details: TaskDetails) -> dict[str, str]:
    """The parts that have something to show, with their counts; more follow as they are read."""
    findings, log = details.findings, details.findings.log
    counts = {"summary": ""} | ({"payload": ""} if details.parts else {})
    if findings.attempts or findings.history:
        counts["attempts"] = f"{len(findings.attempts):,}"
    if findings.error or findings.outputs or (log is not None and log.lines):
        counts["log"] = f"{len(log.lines) if log is not None else 0:,}"
    if details.parts:
        counts["files"] = f"{len(details.parts):,}"
    return counts


def tab_line(titles: Mapping[str, str], current: str, width: int) -> Line:
    """The tabs with their counts; other tabs are cut to three letters if they do not fit."""
    for gap, is_short in ((" ", False), ("", False), (" ", True)):
        line: Line = ((" ", ""),)
        for title, count in titles.items():
            if title == current:
                text = f"{title} {count}" if count else title
                line = (*line, (f" {text} ", "tab"), (gap, ""))
                continue
            name = title[:3] if is_short else title
            number = (f" {count}", "strong") if count and not is_short else ("", "")
            line = (*line, (f" {name}", "muted"), number, (f" {gap}", ""))
        if width_of(line) <= width + len(gap):
            break
    return cut_line(line, width)


# Summary


_LABELS: Mapping[State, str] = {
    State.PENDING: "waits",
    State.ACTIVE: "runs",
    State.HELD: "waits",
    State.DEAD: "stays",
}
"""Label of the reasons in a state."""

WAIT_NAMES = ("suspended", "next try")
"""Names of the rows of a server that say when a task is tried; the others are facts."""


def wait_rows(details: TaskDetails, now: float) -> list[Run]:
    """Why it is not running and when it will: the answer to look for first."""
    task, why = details.task, details.outlook.reasons(details.task, now)
    rows: list[Run] = []
    if details.gone:
        return [("gone", describe_departure(details))]
    if task.state is State.DEAD:
        died = died_at(task)
        when = UNKNOWN if died is None else format_time_with_age(died, now)
        runs = count_runs(task, details.max_runs)
        tries = f", after {format_count(runs, 'attempt')}" if runs else ""
        rows.append(("died", when + tries))
        why = tuple(reason.removeprefix("stays ") for reason in why[1:])
    label = _LABELS.get(task.state, "state")
    rows += [
        (label if not at else "", reason.removeprefix(f"{label} ")) for at, reason in enumerate(why)
    ]
    if (bucket := details.outlook.bucket) is not None and task.state is State.PENDING:
        rows.append(("rate limit", describe_bucket(bucket)))
    server_rows = [row for row in details.server_rows if row[0] in WAIT_NAMES]
    rows += server_rows
    if (start := details.outlook.start) is not None and not server_rows:
        words = start.sentence(now)
        unknown = f"? {words}" if start.when is None else words.removeprefix("runs ")
        rows.append(("runs", unknown))
    return rows


MIN_BAR_CELLS, MAX_BAR_CELLS, WHOLE_TIMES_CELLS = 10, 60, 76  # and 20 for each time between

PASSED, BACKOFF, QUEUED = FULL_CELL, "▒", "─"
"""Cells of the waiting bar: what has passed, what its due time or rate limit takes, and the rest;
`#`, `+` and `-` in ASCII."""


def waiting_bar(details: TaskDetails, now: float, width: int) -> Text:
    """How much of its wait has passed, and when what ends: `[###++----] now 00:37   token :32
    runs 00:50`; nothing if one of both ends is unknown."""
    start, since = details.outlook.start, _waits_since(details, now)
    if details.gone or start is None or start.when is None or start.when <= now + 1 or not since:
        return []
    task, known = details.task, details.outlook.circumstances
    first = task.attempts == 0 and not task.error
    ends = [("delay ends" if first else "backoff ends", task.due or 0.0)]
    ends += [("token", known.token_at)] if known is not None else []
    ends = [(name, min(at, start.when)) for name, at in ends if at > now]
    before = [(name, at) for name, at in ends if at < start.when]
    clock = partial(_short_clock, start.when, now, width < WHOLE_TIMES_CELLS + 20 * len(before))
    labels: list[Run] = [(" now ", "muted"), (clock(now), "strong")]
    for name, at in (*before, ("runs", start.when)):
        labels += [(f"   {name} ", "muted"), (clock(at), "ok" if at == start.when else "")]
    indent = " " * (lines_text.MARGIN_CELLS + NAME_CELLS + 2)
    room = width - len(indent) - 2
    beside = room - width_of(tuple(labels)) >= MIN_BAR_CELLS
    cells = max(MIN_BAR_CELLS, min(MAX_BAR_CELLS, room - width_of(tuple(labels)) * beside))
    share = cells / (start.when - since)
    passed = min(cells - 1, int((now - since) * share))
    held = max([passed, *(int((at - since) * share) for _, at in ends)])
    bar: Line = (
        (f"{indent}[", "muted"),
        (PASSED * passed, "warn"),
        (BACKOFF * (held - passed), "warn"),
        (QUEUED * (cells - held), "muted"),
        ("]", "muted"),
    )
    return [(*bar, *labels)] if beside else [bar, ((indent[:-1], ""), *labels)]


def _waits_since(details: TaskDetails, now: float) -> float:
    """When its wait began: at its last event, or when it came due or was created; 0 if unknown."""
    task, history = details.task, details.findings.history
    last = history[-1].when if history else None
    since = max(last or 0.0, task.created, task.due or 0.0 if (task.due or now) < now else 0.0)
    return since if since <= now else 0.0


def _short_clock(last: float, now: float, is_narrow: bool, moment: float) -> str:
    """A time beside others up to `last`: `00:37`, with seconds if these are less than ten minutes
    away or in the minute of `now`; then only `:32` in a narrow line. One that is more than a day
    away by its distance."""
    if moment - now >= DAY_SECONDS:
        return f"in {format_rough_duration(moment - now)}"
    clock = format_clock(moment).removesuffix("Z")
    if now < moment and moment // 60 == now // 60:
        return clock[-3:] if is_narrow else clock
    return clock if last - now < 600 else clock[:5]


def error_rows(details: TaskDetails, now: float) -> list[Run]:
    """The last error, how many tasks have it, and whether it still happens."""
    if not details.task.error or details.task.error.startswith(WAITING_PREFIX):
        return []  # what it waits for is said already
    rows = [("error", safe_line(details.task.error).strip())]
    if details.cluster is not None:
        cluster, check = details.cluster
        also = others_text(max(0, cluster.count - 1), details.task.state, details.states)
        evidence = f", {check.evidence[0]}" if check.evidence else ""
        rows += [("cluster", f"{details.mark}, {also}"), ("still?", f"{check.text}{evidence}")]
    elif details.mark:
        rows.append(("cluster", details.mark))
    return rows


def fact_rows(details: TaskDetails, now: float) -> list[Run]:
    """All fields of the task, and operators' notes."""
    task = details.task
    server_rows = {name: text for name, text in details.server_rows if name not in WAIT_NAMES}
    with_own_row = {"last error", "payload", "attempts", "revision", *server_rows}
    fields = [row for row in task_fields(task, details.states, now) if row[0] not in with_own_row]
    rows: list[Run] = [
        *fields,
        *((name, safe_line(value)) for name, value in details.request),
        ("lease", _lease_expiry(task, now)),
        *({"attempts": _attempts_text(details)} | server_rows).items(),
        ("payload", _payload_words(details)),
        *_note_rows(details, now),
        ("cli", safe_line(shlex.join(details.command))),
        ("revision", safe_line(task.rev)),
    ]
    return [row for row in rows if row[1]]


def head_lines(details: TaskDetails, now: float, width: int) -> Text:
    """Why it does not run, and when it will."""
    lines = lines_text.fact_lines(wait_rows(details, now), width, NAME_CELLS)
    return [*lines, *waiting_bar(details, now, width)]


def error_lines(details: TaskDetails, now: float, width: int) -> Text:
    """The last error and its cluster."""
    return lines_text.fact_lines(error_rows(details, now), width, NAME_CELLS, _error_looks(details))


def _error_looks(details: TaskDetails) -> Mapping[str, str]:
    styles = {"cluster": "accent"}
    if details.cluster is not None:
        styles["still?"] = STILL_LOOKS[details.cluster[1].answer]
    return styles


def fact_lines(details: TaskDetails, now: float, width: int, without: Collection[str] = ()) -> Text:
    """The fields of the task, except those that another pane has."""
    rows = [row for row in fact_rows(details, now) if row[0] not in without]
    return lines_text.fact_lines(rows, width, NAME_CELLS)


NAME_CELLS = 11


def summary_lines(details: TaskDetails, now: float, width: int) -> Text:
    """The most important facts first; all other fields below."""
    last = [("changed", details.changed or _last_event(details))]
    rows = [*error_rows(details, now), *(row for row in last if row[1])]
    return [
        *head_lines(details, now, width),
        *lines_text.fact_lines(rows, width, NAME_CELLS, _error_looks(details)),
        BLANK_LINE,
        *fact_lines(details, now, width),
    ]


def _last_event(details: TaskDetails) -> str:
    """The last event in the logs: `14:29:29 failed, will retry`."""
    event = details.findings.history[-1] if details.findings.history else None
    if event is None or event.when is None:
        return ""
    return f"{format_clock(event.when)} {_EVENT_WORDS[event.what][0]}"


def _lease_expiry(task: Task, now: float) -> str:
    """When the lease expires or expired; "" without an expiry."""
    until = task.lease.until if task.lease is not None else None
    if until is None:
        return ""
    if until <= 0:
        return "expired"  # stored without an expiry time
    return f"{'expires' if until > now else 'expired'} at {format_time_with_age(until, now)}"


def _note_rows(details: TaskDetails, now: float) -> list[Run]:
    texts = [f"? {safe_line(details.notes_error)}"] if details.notes_error else []
    texts += [
        f"{safe_line(note.text)} ({safe_line(note.who)}, {format_time_with_age(note.when, now)})"
        for note in reversed(details.notes)
    ]
    return [("" if at else "note", words) for at, words in enumerate(texts)]


def _attempts_text(details: TaskDetails) -> str:
    task = details.task
    if (runs := count_runs(task, details.max_runs)) is None:
        return UNKNOWN
    return f"{runs:,}" if details.max_runs is None else f"{runs:,} of {details.max_runs:,}"


def _payload_words(details: TaskDetails) -> str:
    payload = details.task.payload
    payload_part = next((part for part in details.parts if part.where == payload), None)
    if not payload or payload_part is None:
        return safe_line(payload)
    if payload_part.refusal:
        return f"{safe_line(payload)}: not read: {safe_line(payload_part.refusal)}"
    return f"{safe_line(payload)}, {payload_part.size or 0:,} bytes"


# Parent and children


def relative_rows(details: TaskDetails, width: int) -> list[Choice]:
    """A row for the parent, then one for each listed child: id, state, return value or error."""
    parent, children, _ = details.relatives
    family = [("parent", parent)] if parent is not None else []
    family += [("  " * (child.depth - 1) + "child", child) for child in children]
    ids = (cells_of(_relative_name(one)) for _, one in family)
    room = max(ids, default=0)
    longest = max((len(role) for role, _ in family), default=0)
    return [
        Choice(one.id, _relative_line(f"{role:<{longest}}", one, room, width))
        for role, one in family
    ]


def _relative_name(one: Relative) -> str:
    return short_id(one.id, MAX_ID_CELLS)


def _relative_line(role: str, one: Relative, room: int, width: int) -> Line:
    word = state_name(one.word) if one.word else "gone"
    style = "warn" if one.word == "failed" else "" if one.word else "muted"
    name = fit_text(_relative_name(one), room)
    runs: Line = (
        (f"  {role:<6}  ", "muted"),
        (f"{name}  ", "accent" if one.is_here else "muted"),
        (f"{word:<16}  ", style),
        (safe_line(one.text), ""),
    )
    return cut_line(runs, width)


def relatives_amount(relatives: Relatives) -> str:
    """The number of children: `250, first 100`; "" without any."""
    listed = sum(child.depth == 1 for child in relatives.children)
    first = f", first {listed:,}" if listed < relatives.total else ""
    return f"{relatives.total:,}{first}" if relatives.total else ""


# Attempts


_ATTEMPT_RESULTS: Mapping[EventKind | None, Run] = {
    None: ("running or interrupted", "warn"),
    EventKind.SUCCEEDED: ("succeeded", "ok"),
    EventKind.FAILED: ("failed", "warn"),
    EventKind.WAITS: ("failed, will retry", "warn"),
    EventKind.BURIED: ("failed, no more retries", "error"),
    EventKind.RECOVERED: ("worker died", "warn"),
    EventKind.UNSETTLED: ("result not stored", "warn"),
}


def attempt_lines(details: TaskDetails, now: float, width: int) -> Text:
    """The attempts and other events found in the logs."""
    lines: Text = []
    for each in details.findings.attempts:
        words, style = _ATTEMPT_RESULTS.get(each.outcome, ("ended", ""))
        when = each.began if each.began is not None else each.ended
        began = format_time_with_age(when, now) if when is not None else UNKNOWN
        began = began if width >= 72 else began.partition(" (")[0]
        took = ""
        if each.began is not None and each.ended is not None:
            took = f" after {format_rough_duration(each.ended - each.began)}"
        result, comma, after = words.partition(",")
        words = f"{result}{took}{comma}{after}"
        lines.append(((f" {each.number:>3}  {began}  ", ""), (words, style)))
        pieces = fold_text(safe_line(each.error), max(8, width - 7)) if each.error else []
        lines += [(("      ", ""), (piece, "muted")) for piece in pieces]
    coverage = _search_coverage(details)
    pieces = fold_text(coverage, width - 2) if coverage else []
    lines += [((f" {piece}", "muted"),) for piece in pieces]
    kinds = (EventKind.QUEUED, EventKind.RETRIED, EventKind.RECOVERED)
    other = [event for event in details.findings.history if event.what in kinds]
    if other:
        lines += [BLANK_LINE, part_line("other events")]
    for event in other:
        at = format_time_with_age(event.when, now) if event.when is not None else UNKNOWN
        lines.append(((f" {at}  ", ""), (_EVENT_WORDS[event.what][0], "")))
    return lines


_EVENT_WORDS: Mapping[EventKind, Run] = {
    EventKind.QUEUED: ("created", "ok"),
    EventKind.STARTED: ("started", "ok"),
    EventKind.SUCCEEDED: ("succeeded", "ok"),
    EventKind.FAILED: ("failed", "warn"),
    EventKind.WAITS: ("failed, will retry", "warn"),
    EventKind.BURIED: ("failed, given up", "error"),
    EventKind.RETRIED: ("retried by an operator", "ok"),
    EventKind.RECOVERED: ("worker died, pending again", "warn"),
    EventKind.UNSETTLED: ("result not stored", "warn"),
    EventKind.PUT_OFF: ("postponed", ""),
    EventKind.LACKING: ("not tried", "warn"),
}
"""An event in the timeline, and the colour of its dot."""


def timeline_lines(details: TaskDetails, now: float, width: int) -> Text:
    """What happened to it by the logs, and what comes next."""
    end_kinds = (EventKind.WAITS, EventKind.BURIED)
    # Lines about sending a mail belong to a run, which has lines of its own.
    history = details.findings.history
    events = [event for event in history if not event.transport] or history
    decided = {event.when for event in events if event.what in end_kinds}
    rows: list[tuple[float | None, Run]] = [
        (event.when, _EVENT_WORDS[event.what])
        for event in events
        if event.what is not EventKind.FAILED or event.when not in decided
    ]
    task, start = details.task, details.outlook.start
    since = None if task.lease is None else task.lease.since or None
    if since and not any(event.what is EventKind.STARTED for event in events):
        rows.append((since, _EVENT_WORDS[EventKind.STARTED]))
    died = died_at(task)
    has_end = bool(died) and not any(e.what in (*end_kinds, EventKind.FAILED) for e in events)
    if has_end:
        number = f", attempt {runs:,}" if (runs := count_runs(task, details.max_runs)) else ""
        rows.append((died, (f"failed, given up{number}", "error")))
    if not any(event.what is EventKind.QUEUED for event in events):
        rows.insert(0, (task.created or None, _EVENT_WORDS[EventKind.QUEUED]))
    dated = sum(one.outcome is not None for one in details.findings.attempts) or has_end
    rows[1:1] = [(None, (text, "warn")) for text in _undated_attempts(details, dated)]
    if task.state is State.PENDING and task.due is not None and task.due > now:
        ends = "delay ends" if task.attempts == 0 and not task.error else "backoff ends"
        rows.append((task.due, (ends, "line")))
    if start is not None and start.when is not None and not details.gone:
        rows.append((start.when, ("runs at about this time", "line")))
    lines: Text = []
    for when, (words, style) in rows:
        clock = UNKNOWN if when is None else format_clock(when)
        sign, text = (".", "muted") if style == "line" else (glyphs.MARK, "")
        lines.append(((f"   {clock:<9}", "muted"), (f" {sign} ", style), (f" {words}", text)))
    return [cut_line(line, width) for line in lines]


MAX_UNDATED_ATTEMPTS = 10
"""Attempts that a timeline lists one by one with their errors, the latest ones."""


def _undated_attempts(details: TaskDetails, dated: int) -> list[str]:
    """The attempts that the task counts without a time in logs or store, but for the `dated` last
    ones; each with its error if the store keeps one of each."""
    runs = count_runs(details.task, details.max_runs) or 0
    number = runs - max(dated, details.task.state is State.DONE)  # that one has succeeded
    if number < 1 or (details.findings.log is None and not details.findings.error):
        return []
    errors = [error for part in details.parts for error in part.errors][-runs:][:number]
    if len(errors) < number:
        errors = []  # a job may keep only some: which attempts they are of is unknown
    first = max(0, number - MAX_UNDATED_ATTEMPTS) if errors else number
    name = "attempt 1" if first == 1 else f"attempts 1 to {first:,}"
    lines = [f"{name} ended, time not recorded"] if first else []
    return lines + [
        f"attempt {at:,} failed, time not recorded: {safe_line(errors[at - 1])}"
        for at in range(first + 1, number + 1)
    ]


def _search_coverage(details: TaskDetails) -> str:
    if details.findings.error:
        return f"logs not searched: {safe_line(details.findings.error)}"
    if details.findings.log is None:
        return "searching the logs ..."
    missing = os.strerror(errno.ENOENT)  # a place need not have every log
    troubles = details.findings.log.troubles.items()
    sentences = [f"{safe_line(path)}: {safe_line(why)}" for path, why in troubles if why != missing]
    counted = count_runs(details.task, details.max_runs) or 0
    logged = len(details.findings.attempts)
    if details.findings.log.has_more:
        sentences.append("older log lines were not searched")
    elif logged < counted:
        sentences.append(
            f"{logged} of {format_count(counted, 'attempt')} in the logs: "
            "the logs do not go back far enough"
        )
    elif not logged:
        sentences.append("no attempts yet")
    return "; ".join(sentences)


# Log


_CONTINUED = " " * 18
"""Indent of a continued line: width of time and level."""


def log_lines(details: TaskDetails, width: int) -> Text:
    """Log lines that mention the task, newest last, whole but for ids."""
    lines: Text = []
    for line in () if details.findings.log is None else details.findings.log.lines:
        text = safe_line(shorten_ids(line.text))
        first, *other_pieces = fold_text(text, max(8, width - 19))
        lines.append(log_line(line.when, line.level, first, width))
        lines += [((_CONTINUED + piece, "muted"),) for piece in other_pieces]
    if lines and (problem := details.findings.problem):
        lines.insert(0, ((f" {safe_line(problem)}; older lines:", "warn"),))
    if not lines:
        is_read = details.findings.log is not None
        findings = details.findings
        found_none = safe_line(findings.problem or findings.note) or "no log lines yet"
        nothing = found_none if is_read else _search_coverage(details)
        lines.append(((f" {nothing}", "muted"),))
    return lines


MAX_OUTPUT_LINES = 200
"""Lines shown of the output of one run: the last ones."""


def output_lines(findings: LogFindings, width: int) -> Text:
    """What the handler printed in each run, the end of it."""
    lines: Text = []
    if findings.output_problem:
        lines.append(((f" output not read: {safe_line(findings.output_problem)}", "warn"),))
    for output in findings.outputs:
        lines += [BLANK_LINE, part_line(output.describe(format_clock(output.ended)))]
        printed = safe_lines(output.data)
        if (more := len(printed) - MAX_OUTPUT_LINES) > 0:
            lines.append(((f" {more:,} lines before these: spooldeck log --id", "muted"),))
        for line in printed[-MAX_OUTPUT_LINES:]:
            lines += [((f" {piece}", ""),) for piece in fold_text(line, max(8, width - 2))]
    return lines


def last_lines(lines: Text, room: int) -> Text:
    """The last lines, without the rest of a line that begins further up."""
    tail = lines[-room:]
    while tail and tail[0][0][0].startswith(_CONTINUED):
        tail.pop(0)
    return tail


# Outcome


def describe_departure(details: TaskDetails) -> str:
    """That the task is gone, with its last event in the log."""
    last = details.findings.history[-1] if details.findings.history else None
    beginnings = (EventKind.QUEUED, EventKind.STARTED, EventKind.RECOVERED)
    if last is None or last.what in beginnings:
        return "task is gone; last known values"
    at = f" at {format_clock(last.when)}" if last.when is not None else ""
    return f"task is gone: log: {_EVENT_WORDS[last.what][0]}{at}"


_COMPARED_FIELDS = ("attempts", "due", "error", "description", "destination", "payload", "priority")


def describe_changes(before: Task, after: Task, states: Mapping[State, str], now: float) -> str:
    """Which fields changed between two reads; "" if none."""
    if before.rev == after.rev and before == after:
        return ""
    changes = []
    if before.state is not after.state:
        words = [state_name(states.get(t.state, t.state)) for t in (before, after)]
        changes.append(f"moved {words[0]} -> {words[1]}")
    changes += [
        f"new {name}" for name in _COMPARED_FIELDS if getattr(before, name) != getattr(after, name)
    ]
    return f"{format_clock(now)} {', '.join(changes) or 'file rewritten'}"
