"""A task in full, as lines: in words, by its fields, its attempts, and what the logs say of it."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from engine.logs.merged_log import Mentions
from engine.logs.task_events import Attempt, Event, EventKind
from engine.model import Lease, Part, State, Task
from engine.operations.notes import Note
from engine.policy import lasting
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line, Run

Text: TypeAlias = list[Line]

LAST = 160
"""Characters of the last line of the log that stand in the summary."""


class LogFindings(NamedTuple):
    """What the logs tell of a task."""

    log: Mentions | None = None
    """The lines that speak of it; None until they were searched."""
    trouble: str = ""
    """Why they could not be."""
    history: tuple[Event, ...] = ()
    attempts: tuple[Attempt, ...] = ()


UNTOLD = LogFindings()
"""Before they were searched."""


@dataclass(frozen=True, slots=True)
class TaskScene:
    """A task, and all that is known around it."""

    task: Task
    states: Mapping[State, str]
    gone: bool = False
    """Whether it is not there any more."""
    reasons: tuple[str, ...] = ()
    """Why it is not running, the first reason first."""
    mark: str = ""
    """The fingerprint of its last error."""
    alike: int | None = None
    """How many others in its state have an error like it; None when that is not known."""
    runs: int | None = None
    """How often a task is run here at most."""
    command: tuple[str, ...] = ()
    """What shows it on the command line."""
    told: LogFindings = UNTOLD
    parts: tuple[Part, ...] = ()
    notes: tuple[Note, ...] = ()
    """What operators wrote down about it, the oldest first."""
    unread: str = ""
    """Why that could not be read; "" when it was."""

    @property
    def word(self) -> str:
        """Where it stands, by the store's own word."""
        return shown(self.states.get(self.task.state, self.task.state))


def show_command(place: Sequence[str], task: Task, has_dlq: bool = True) -> tuple[str, ...]:
    """What shows a task on the command line, as its place is named there; `has_dlq` where the
    command for dead tasks is for such a place."""
    if has_dlq and task.state is State.DEAD:
        return (*place, "queue", "dlq", "show", task.id)
    return (*place, "queue", "list", "--json", "--filter", f"id={task.id}")


def tabs(titles: Sequence[str], current: int, width: int) -> Line:
    """The parts by their numbers; where they do not all fit, the others are their numbers alone."""
    for gap, is_short in ((" ", False), ("", False), (" ", True)):
        line: Line = ((" ", ""),)
        for at, title in enumerate(titles):
            text = f"{at + 1}" if is_short and at != current else f"{at + 1} {title}"
            tab = (f"[{text}]", "tab") if at == current else (f" {text} ", "")
            line = (*line, tab, (gap, ""))
        if present.width_of(line) <= width + len(gap):
            break
    return present.cut(line, width)


# In words


def in_words(scene: TaskScene, now: float) -> tuple[str, ...]:
    """What there is to say of it first: where it stands, and its last error."""
    task = scene.task
    said = _STANDS[task.state](task, now)
    if task.state is State.DEAD and task.attempts:
        is_all = scene.runs is None or task.attempts >= scene.runs
        noun = "attempt" if is_all else "counted attempt"
        said += f": gave up after {present.count(task.attempts, noun)}"
    if not task.error:
        return (f"{said}.",)
    kin = [scene.mark] if scene.mark else []
    if scene.alike is not None:
        kin.append(f"{scene.alike:,} {'other' if scene.alike == 1 else 'others'}")
    about = f" ({', '.join(kin)})" if kin else ""
    return f"{said}.", f"Last error: {shown(task.error).strip()}{about}."


def _since(words: str, when: float | None, now: float) -> str:
    return words if when is None else f"{words} since {present.moment(when, now)}"


def _pending(task: Task, now: float) -> str:
    if task.due is None:
        return "Waits; when it is due is not known"
    if task.due > now:
        return f"Waits until {present.moment(task.due, now)}"
    created = task.created if task.created > 0 else None
    return _since("Due", task.due or created, now)


def _claimed(lease: Lease | None, now: float) -> str:
    """A claim that ends by itself says when, and not that anybody is at it."""
    if lease is None or lease.until is None:
        return _since("Being worked on", lease.since if lease else None, now)
    lapsed = ", lapsed meanwhile" if lease.until <= now else ""
    owner = f" by {shown(lease.owner)}" if lease.owner else ""
    return _since(f"Claimed{owner}", lease.since or None, now) + lapsed


def _lease(task: Task, now: float) -> str:
    """When a claim ends by itself, or did; "" where none does."""
    until = task.lease.until if task.lease is not None else None
    if until is None:
        return ""
    if until <= 0:
        return "lapsed"  # it never had a time to end at
    return f"{'lapses' if until > now else 'lapsed'} at {present.moment(until, now)}"


_STANDS: Mapping[State, Callable[[Task, float], str]] = {
    State.PENDING: _pending,
    State.ACTIVE: lambda task, now: _claimed(task.lease, now),
    State.HELD: lambda task, now: "Held until released",
    State.DEAD: lambda task, now: _since("Dead", died(task), now),
    State.DONE: lambda task, now: "Done",
    State.TRASH: lambda task, now: "In the trash",
}


def died(task: Task) -> float | None:
    """When it was given up on, epoch seconds UTC; None when it does not say."""
    text = task.extra.get("dead_since", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None


def summary(scene: TaskScene, now: float, width: int) -> Text:
    """What one needs within seconds: it fits the reference screen."""
    task = scene.task
    lines: Text = []
    for sentence, look in zip(in_words(scene, now), ("strong", "bad"), strict=False):
        lines += [((f" {piece}", look),) for piece in present.folded(sentence, width - 2)]
    rows: list[Run] = [
        ("what", f"{shown(task.kind)}: {shown(task.description)}"),
        ("to", shown(task.destination)),
        ("created", present.moment(task.created, now) if task.created > 0 else "?"),
        ("state", scene.word + (f" ({shown(task.word)})" if task.word else "")),
        ("lease", _lease(task, now)),
        ("attempts", _tries(scene)),
        *_why(scene),
        *_notes(scene, now),
        ("payload", _payload_words(scene)),
        ("last log", _last_log(scene, now)),
        ("cli", shown(shlex.join(scene.command))),
        ("rev", f"{shown(task.rev)} (acting is refused if it moves)"),
    ]
    return [*lines, BLANK, *present.labelled([row for row in rows if row[1]], width)]


def _why(scene: TaskScene) -> list[Run]:
    """Why it does not run; that it was given up on is said above."""
    said = scene.reasons[1:] if scene.task.state is State.DEAD else scene.reasons
    label = _ASKED.get(scene.task.state, "why")
    return [("" if at else label, why) for at, why in enumerate(() if scene.gone else said)]


_ASKED = {State.PENDING: "why not run", State.HELD: "why not run"}


def _notes(scene: TaskScene, now: float) -> list[Run]:
    """What operators wrote down about it, the latest first."""
    said = [f"? {shown(scene.unread)}"] if scene.unread else []
    said += [
        f"{shown(note.text)} ({shown(note.who)}, {present.moment(note.when, now)})"
        for note in reversed(scene.notes)
    ]
    return [("" if at else "note", words) for at, words in enumerate(said)]


def _tries(scene: TaskScene) -> str:
    task = scene.task
    if task.attempts is None:
        return "?"
    if scene.runs is None:
        return f"{task.attempts:,}"
    counted = f"{task.attempts:,} of {scene.runs:,}"
    if task.state is State.DEAD and task.attempts == scene.runs - 1:
        return f"{counted}: the failure that buries is not counted"
    return counted


def _payload_words(scene: TaskScene) -> str:
    payload = scene.task.payload
    found = next((part for part in scene.parts if part.where == payload), None)
    if not payload or found is None:
        return shown(payload)
    if found.refused:
        return f"{shown(payload)}: not read, it {shown(found.refused)}"
    return f"{shown(payload)}, {found.size or 0:,} bytes"


def _last_log(scene: TaskScene, now: float) -> str:
    if scene.told.trouble:
        return f"? {shown(scene.told.trouble)}"
    if scene.told.log is None or not scene.told.log.lines:
        return ""
    last = scene.told.log.lines[-1]
    when = f"{present.moment(last.when, now)}: " if last.when is not None else ""
    return when + shown(last.text)[:LAST]


def beside(left: Text, right: Text, left_width: int, width: int) -> Text:
    """Two texts side by side."""
    room = width - left_width - 2
    lines: Text = []
    for at in range(max(len(left), len(right))):
        start = present.cut(left[at] if at < len(left) else BLANK, left_width)
        lines.append((*start, ("  ", ""), *present.cut(right[at] if at < len(right) else (), room)))
    return lines


def wide(scene: TaskScene, now: float, width: int, height: int) -> Text:
    """The summary, and beside it the attempts and the end of the log, as far as there is room."""
    left = width * 55 // 100
    room = width - left - 2
    right = [*attempts(scene, now, room), BLANK, present.heading("log", room)]
    lines = log(scene, room)[-max(5, height - len(right)) :]
    while lines and lines[0][0][0].startswith(_BELOW):  # of a line that begins further up
        lines.pop(0)
    right += lines
    return beside(summary(scene, now, left), right, left, width)


# Fields


def fields(scene: TaskScene, now: float, width: int) -> Text:
    """Everything that its store says of it."""
    return present.labelled(present.fields(scene.task, scene.states, now), width)


# Attempts


_ENDED: Mapping[EventKind | None, Run] = {
    None: ("not ended", "warning"),
    EventKind.SUCCEEDED: ("succeeded", "good"),
    EventKind.FAILED: ("failed", "bad"),
    EventKind.WAITS: ("failed, again later", "bad"),
    EventKind.BURIED: ("failed, given up on", "bad"),
    EventKind.RECOVERED: ("its worker ended", "warning"),
    EventKind.UNSETTLED: ("not stored", "warning"),
}
"""How an attempt ended, in words."""


def attempts(scene: TaskScene, now: float, width: int) -> Text:
    """Each run that the logs tell of, and what else happened to it."""
    lines: Text = [present.heading("attempts", width)]
    for each in scene.told.attempts:
        words, look = _ENDED.get(each.outcome, ("ended", ""))
        when = each.began if each.began is not None else each.ended
        began = present.moment(when, now) if when is not None else "?"
        began = began if width >= 72 else began.partition(" (")[0]
        took = (
            f" after {lasting(each.ended - each.began)}"
            if each.began is not None and each.ended is not None
            else ""
        )
        lines.append(((f" {each.number:>3}  {began}  ", ""), (words + took, look)))
        pieces = present.folded(shown(each.error), max(8, width - 7)) if each.error else []
        lines += [(("      ", ""), (piece, "dim")) for piece in pieces]
    lines += [((f" {piece}", "dim"),) for piece in present.folded(_how_far(scene), width - 2)]
    other = [event for event in scene.told.history if event.what in _OTHER]
    if other:
        lines += [BLANK, present.heading("besides", width)]
    for event in other:
        at = present.moment(event.when, now) if event.when is not None else "?"
        lines.append(((f" {at}  ", ""), (_OTHER[event.what], "")))
    return lines


_OTHER = {
    EventKind.QUEUED: "queued",
    EventKind.RETRIED: "brought back from the dead-letter queue",
    EventKind.RECOVERED: "given back, its worker had ended",
}


def _how_far(scene: TaskScene) -> str:
    """How much of its life the logs tell."""
    if scene.told.trouble:
        return f"the logs could not be searched: {shown(scene.told.trouble)}"
    if scene.told.log is None:
        return "searching the logs ..."
    missing = os.strerror(errno.ENOENT)  # a place need not have every log
    troubles = scene.told.log.troubles.items()
    said = [f"{shown(path)}: {shown(why)}" for path, why in troubles if why != missing]
    counted, told = scene.task.attempts or 0, len(scene.told.attempts)
    if scene.told.log.early:
        said.append("there may be more, further back in the logs than was searched")
    elif told < counted:
        said.append(
            f"the logs tell of {told} of {present.count(counted, 'attempt')} that the task counts: "
            "they do not reach back far enough"
        )
    elif not told:
        said.append("the logs tell of no attempt")
    return "; ".join(said)


# The log


_BELOW = " " * 18
"""What stands before the rest of a line: the width of its time and its level."""


def log(scene: TaskScene, width: int) -> Text:
    """The lines that speak of it, the newest last, nothing of them cut."""
    lines: Text = []
    for line in () if scene.told.log is None else scene.told.log.lines:
        first, *rest = present.folded(shown(line.text), max(8, width - 19))
        lines.append(present.log_line(line.when, line.level, first, width))
        lines += [((_BELOW + piece, "dim"),) for piece in rest]
    if not lines:
        nothing = "the logs say nothing of it" if scene.told.log is not None else _how_far(scene)
        lines.append(((f" {nothing}", "dim"),))
    return lines


# What became of it

GONE = "it is not there any more"

_LEFT = {
    EventKind.SUCCEEDED: "the log says that it succeeded",
    EventKind.BURIED: "the log says that it was given up on",
    EventKind.WAITS: "the log last said that it failed, to be tried again",
    EventKind.FAILED: "the log last said that it failed",
    EventKind.RETRIED: "the log last said that it was brought back",
    EventKind.PUT_OFF: "the log last said that it waits, unattempted",
    EventKind.UNSETTLED: "the log says that it was not where it was claimed",
}


def left(scene: TaskScene, now: float) -> str:
    """That it is gone, and where to, as far as the log says."""
    last = scene.told.history[-1] if scene.told.history else None
    if last is None or last.what not in _LEFT:
        return f"{GONE}; this is what was seen last"
    at = f" at {present.clock(last.when)}" if last.when is not None else ""
    return f"{GONE}: {_LEFT[last.what]}{at}"


_TOLD = ("attempts", "due", "error", "description", "destination", "payload", "priority")


def changes(before: Task, after: Task, states: Mapping[State, str], now: float) -> str:
    """What became another between two looks; "" when nothing did."""
    if before.rev == after.rev and before == after:
        return ""
    said = []
    if before.state is not after.state:
        words = [shown(states.get(task.state, task.state)) for task in (before, after)]
        said.append(f"{words[0]} to {words[1]}")
    said += [f"another {name}" for name in _TOLD if getattr(before, name) != getattr(after, name)]
    return f"changed at {present.clock(now)}: {', '.join(said) or 'its file was written anew'}"
