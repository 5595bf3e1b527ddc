"""Text of the task screen: summary, fields, attempts and log."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from engine.logs.merged_log import Mentions
from engine.logs.task_events import Attempt, EventKind, TaskEvent
from engine.model import Lease, Part, State, Task
from engine.operations.notes import Note
from engine.policy import describe_duration
from engine.text.safe import safe_line
from tui.format import present
from tui.format.present import BLANK_LINE, Line, Run

Text: TypeAlias = list[Line]

MAX_LAST_LOG_CHARS = 160
"""Characters of the last log line in the summary."""


class LogFindings(NamedTuple):
    """What the logs contain about a task."""

    log: Mentions | None = None
    """Log lines that mention it; None until they were searched."""
    error: str = ""
    """Why the logs could not be searched."""
    history: tuple[TaskEvent, ...] = ()
    attempts: tuple[Attempt, ...] = ()


NOT_SEARCHED = LogFindings()
"""The logs were not searched yet."""


@dataclass(frozen=True, slots=True)
class TaskScene:
    """A task with all facts known about it."""

    task: Task
    states: Mapping[State, str]
    gone: bool = False
    """True if it no longer exists."""
    reasons: tuple[str, ...] = ()
    """Why it is not running, most important first."""
    mark: str = ""
    """Fingerprint of its last error."""
    same_error_count: int | None = None
    """Number of other tasks in its state with the same fingerprint; None if unknown."""
    max_runs: int | None = None
    """Maximum number of runs of a task here."""
    command: tuple[str, ...] = ()
    """Command that shows the task."""
    findings: LogFindings = NOT_SEARCHED
    parts: tuple[Part, ...] = ()
    notes: tuple[Note, ...] = ()
    """Operators' notes, oldest first."""
    notes_error: str = ""
    """Why the notes could not be read; "" if they could."""

    @property
    def state_word(self) -> str:
        """Its state in the store's own word."""
        return safe_line(self.states.get(self.task.state, self.task.state))


def show_command(place: Sequence[str], task: Task, has_dlq: bool = True) -> tuple[str, ...]:
    """Command that shows a task; `has_dlq` if the place has the command for dead tasks."""
    if has_dlq and task.state is State.DEAD:
        return (*place, "queue", "dlq", "show", task.id)
    return (*place, "queue", "list", "--json", "--filter", f"id={task.id}")


def tab_line(titles: Sequence[str], current: int, width: int) -> Line:
    """The tabs; the titles of the other tabs are cut to three letters if they do not fit."""
    for gap, is_short in ((" ", False), ("", False), (" ", True)):
        line: Line = ((" ", ""),)
        for at, title in enumerate(titles):
            other = f" {title[:3] if is_short else title} "
            tab = (f"[{title}]", "tab") if at == current else (other, "")
            line = (*line, tab, (gap, ""))
        if present.width_of(line) <= width + len(gap):
            break
    return present.cut_line(line, width)


# Summary


def state_sentences(scene: TaskScene, now: float) -> tuple[str, ...]:
    """State and last error in one or two sentences."""
    task = scene.task
    said = _STATE_TEXTS[task.state](task, now)
    if task.state is State.DEAD and task.attempts:
        is_all = scene.max_runs is None or task.attempts >= scene.max_runs
        noun = "attempt" if is_all else "counted attempt"
        said += f": gave up after {present.format_count(task.attempts, noun)}"
    if not task.error:
        return (f"{said}.",)
    kin = [scene.mark] if scene.mark else []
    if scene.same_error_count is not None:
        kin.append(
            f"{scene.same_error_count:,} {'other' if scene.same_error_count == 1 else 'others'}"
        )
    about = f" ({', '.join(kin)})" if kin else ""
    return f"{said}.", f"Last error: {safe_line(task.error).strip()}{about}."


def _since(words: str, when: float | None, now: float) -> str:
    return words if when is None else f"{words} since {present.format_time(when, now)}"


def _pending_text(task: Task, now: float) -> str:
    if task.due is None:
        return "Pending, due time unknown"
    if task.due > now:
        return f"Pending until {present.format_time(task.due, now)}"
    created = task.created if task.created > 0 else None
    return _since("Due", task.due or created, now)


def _claim_text(lease: Lease | None, now: float) -> str:
    """A claim; one that expires shows its owner, since the owner may have died."""
    if lease is None or lease.until is None:
        return _since("Running", lease.since if lease else None, now)
    lapsed = ", lease expired" if lease.until <= now else ""
    owner = f" by {safe_line(lease.owner)}" if lease.owner else ""
    return _since(f"Claimed{owner}", lease.since or None, now) + lapsed


def _lease_expiry(task: Task, now: float) -> str:
    """When the lease expires or expired; "" without an expiry."""
    until = task.lease.until if task.lease is not None else None
    if until is None:
        return ""
    if until <= 0:
        return "expired"  # stored without an expiry time
    return f"{'expires' if until > now else 'expired'} at {present.format_time(until, now)}"


_STATE_TEXTS: Mapping[State, Callable[[Task, float], str]] = {
    State.PENDING: _pending_text,
    State.ACTIVE: lambda task, now: _claim_text(task.lease, now),
    State.HELD: lambda task, now: "Held until released",
    State.DEAD: lambda task, now: _since("Dead", death_time(task), now),
    State.DONE: lambda task, now: "Done",
    State.TRASH: lambda task, now: "In the trash",
}


def death_time(task: Task) -> float | None:
    """Time of death in epoch seconds UTC; None if it is not stored."""
    text = task.extra.get("dead_since", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None


def summary_lines(scene: TaskScene, now: float, width: int) -> Text:
    """The most important facts; fits 80x24."""
    task = scene.task
    lines: Text = []
    for sentence, look in zip(state_sentences(scene, now), ("strong", "error"), strict=False):
        lines += [((f" {piece}", look),) for piece in present.fold_text(sentence, width - 2)]
    rows: list[Run] = [
        ("what", f"{safe_line(task.kind)}: {safe_line(task.description)}"),
        ("to", safe_line(task.destination)),
        ("created", present.format_time(task.created, now) if task.created > 0 else "?"),
        ("state", scene.state_word + (f" ({safe_line(task.word)})" if task.word else "")),
        ("lease", _lease_expiry(task, now)),
        ("attempts", _attempts_text(scene)),
        *_reason_rows(scene),
        *_note_rows(scene, now),
        ("payload", _payload_words(scene)),
        ("last log", _last_log(scene, now)),
        ("cli", safe_line(shlex.join(scene.command))),
        ("revision", safe_line(task.rev)),
    ]
    return [*lines, BLANK_LINE, *present.labelled_lines([row for row in rows if row[1]], width)]


def _reason_rows(scene: TaskScene) -> list[Run]:
    """Why it is not running; a dead task's first reason is in the sentence above."""
    said = scene.reasons[1:] if scene.task.state is State.DEAD else scene.reasons
    label = _REASON_LABELS.get(scene.task.state, "why")
    return [("" if at else label, why) for at, why in enumerate(() if scene.gone else said)]


_REASON_LABELS = {State.PENDING: "why not run", State.HELD: "why not run"}


def _note_rows(scene: TaskScene, now: float) -> list[Run]:
    """Operators' notes, newest first."""
    said = [f"? {safe_line(scene.notes_error)}"] if scene.notes_error else []
    said += [
        f"{safe_line(note.text)} ({safe_line(note.who)}, {present.format_time(note.when, now)})"
        for note in reversed(scene.notes)
    ]
    return [("" if at else "note", words) for at, words in enumerate(said)]


def _attempts_text(scene: TaskScene) -> str:
    task = scene.task
    if task.attempts is None:
        return "?"
    if scene.max_runs is None:
        return f"{task.attempts:,}"
    counted = f"{task.attempts:,} of {scene.max_runs:,}"
    if task.state is State.DEAD and task.attempts == scene.max_runs - 1:
        return f"{counted}: the final failure is not counted"
    return counted


def _payload_words(scene: TaskScene) -> str:
    payload = scene.task.payload
    found = next((part for part in scene.parts if part.where == payload), None)
    if not payload or found is None:
        return safe_line(payload)
    if found.refusal:
        return f"{safe_line(payload)}: not read: {safe_line(found.refusal)}"
    return f"{safe_line(payload)}, {found.size or 0:,} bytes"


def _last_log(scene: TaskScene, now: float) -> str:
    if scene.findings.error:
        return f"? {safe_line(scene.findings.error)}"
    if scene.findings.log is None or not scene.findings.log.lines:
        return ""
    last = scene.findings.log.lines[-1]
    when = f"{present.format_time(last.when, now)}: " if last.when is not None else ""
    return when + safe_line(last.text)[:MAX_LAST_LOG_CHARS]


def wide_summary(scene: TaskScene, now: float, width: int, height: int) -> Text:
    """The summary, with attempts and the end of the log at the right."""
    left = width * 55 // 100
    room = width - left - 2
    right = [*attempt_lines(scene, now, room), BLANK_LINE, present.heading_line("log", room)]
    lines = log_lines(scene, room)[-max(5, height - len(right)) :]
    while lines and lines[0][0][0].startswith(_CONTINUED):  # of a line that begins further up
        lines.pop(0)
    right += lines
    return present.join_columns(summary_lines(scene, now, left), right, left, width)


# Fields


def field_lines(scene: TaskScene, now: float, width: int) -> Text:
    """All fields from the store."""
    return present.labelled_lines(present.task_fields(scene.task, scene.states, now), width)


# Attempts


_ATTEMPT_RESULTS: Mapping[EventKind | None, Run] = {
    None: ("running or interrupted", "warn"),
    EventKind.SUCCEEDED: ("succeeded", "ok"),
    EventKind.FAILED: ("failed", "error"),
    EventKind.WAITS: ("failed, will retry", "error"),
    EventKind.BURIED: ("failed, no more retries", "error"),
    EventKind.RECOVERED: ("worker died", "warn"),
    EventKind.UNSETTLED: ("result not stored", "warn"),
}
"""Result of an attempt."""


def attempt_lines(scene: TaskScene, now: float, width: int) -> Text:
    """The attempts and other events found in the logs."""
    lines: Text = [present.heading_line("attempts", width)]
    for each in scene.findings.attempts:
        words, look = _ATTEMPT_RESULTS.get(each.outcome, ("ended", ""))
        when = each.began if each.began is not None else each.ended
        began = present.format_time(when, now) if when is not None else "?"
        began = began if width >= 72 else began.partition(" (")[0]
        took = (
            f" after {describe_duration(each.ended - each.began)}"
            if each.began is not None and each.ended is not None
            else ""
        )
        result, comma, after = words.partition(",")
        words = f"{result}{took}{comma}{after}"
        lines.append(((f" {each.number:>3}  {began}  ", ""), (words, look)))
        pieces = present.fold_text(safe_line(each.error), max(8, width - 7)) if each.error else []
        lines += [(("      ", ""), (piece, "muted")) for piece in pieces]
    lines += [
        ((f" {piece}", "muted"),) for piece in present.fold_text(_search_coverage(scene), width - 2)
    ]
    other = [event for event in scene.findings.history if event.what in _OTHER_EVENTS]
    if other:
        lines += [BLANK_LINE, present.heading_line("other events", width)]
    for event in other:
        at = present.format_time(event.when, now) if event.when is not None else "?"
        lines.append(((f" {at}  ", ""), (_OTHER_EVENTS[event.what], "")))
    return lines


_OTHER_EVENTS = {
    EventKind.QUEUED: "queued",
    EventKind.RETRIED: "retried from the dead-letter queue",
    EventKind.RECOVERED: "recovered, its worker had died",
}


def _search_coverage(scene: TaskScene) -> str:
    """How complete the log search is."""
    if scene.findings.error:
        return f"logs not searched: {safe_line(scene.findings.error)}"
    if scene.findings.log is None:
        return "searching the logs ..."
    missing = os.strerror(errno.ENOENT)  # a place need not have every log
    troubles = scene.findings.log.troubles.items()
    said = [f"{safe_line(path)}: {safe_line(why)}" for path, why in troubles if why != missing]
    counted, told = scene.task.attempts or 0, len(scene.findings.attempts)
    if scene.findings.log.has_more:
        said.append("older log lines were not searched")
    elif told < counted:
        said.append(
            f"{told} of {present.format_count(counted, 'attempt')} in the logs: "
            "the logs do not go back far enough"
        )
    elif not told:
        said.append("no attempts yet")
    return "; ".join(said)


# Log


_CONTINUED = " " * 18
"""Indent of a continued line: width of time and level."""


def log_lines(scene: TaskScene, width: int) -> Text:
    """Log lines that mention the task, newest last, in full."""
    lines: Text = []
    for line in () if scene.findings.log is None else scene.findings.log.lines:
        first, *rest = present.fold_text(safe_line(line.text), max(8, width - 19))
        lines.append(present.log_line(line.when, line.level, first, width))
        lines += [((_CONTINUED + piece, "muted"),) for piece in rest]
    if not lines:
        nothing = "no log lines yet" if scene.findings.log is not None else _search_coverage(scene)
        lines.append(((f" {nothing}", "muted"),))
    return lines


# Outcome

TASK_GONE = "task is gone"

_LAST_EVENTS = {
    EventKind.SUCCEEDED: "log: succeeded",
    EventKind.BURIED: "log: failed, no more retries",
    EventKind.WAITS: "log: failed, will retry",
    EventKind.FAILED: "log: failed",
    EventKind.RETRIED: "log: retried",
    EventKind.PUT_OFF: "log: postponed",
    EventKind.UNSETTLED: "log: result not stored",
}


def describe_departure(scene: TaskScene, now: float) -> str:
    """That the task is gone, with its last event in the log."""
    last = scene.findings.history[-1] if scene.findings.history else None
    if last is None or last.what not in _LAST_EVENTS:
        return f"{TASK_GONE}; last known values"
    at = f" at {present.format_clock(last.when)}" if last.when is not None else ""
    return f"{TASK_GONE}: {_LAST_EVENTS[last.what]}{at}"


_COMPARED_FIELDS = ("attempts", "due", "error", "description", "destination", "payload", "priority")


def describe_changes(before: Task, after: Task, states: Mapping[State, str], now: float) -> str:
    """Which fields changed between two reads; "" if none."""
    if before.rev == after.rev and before == after:
        return ""
    said = []
    if before.state is not after.state:
        words = [safe_line(states.get(task.state, task.state)) for task in (before, after)]
        said.append(f"moved {words[0]} -> {words[1]}")
    said += [
        f"new {name}" for name in _COMPARED_FIELDS if getattr(before, name) != getattr(after, name)
    ]
    return f"{present.format_clock(now)} {', '.join(said) or 'file rewritten'}"
