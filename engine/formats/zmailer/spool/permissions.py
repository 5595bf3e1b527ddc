"""Edges of a spool: what can be done now, by write permission and a running scheduler."""

from __future__ import annotations

import os
import shlex
import stat

from engine.formats.zmailer.spool import lock_process
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.tasks import FINISHED, FINISHED_KEY, FIXED_KEY
from engine.model import STALLED_KEY, Edge, Edges, State, Task, accept_only_now
from engine.store import refuse_all

_UNSTORED = frozenset({"attempts", "due"})
"""A control file has neither: the scheduler counts attempts in its memory. Verbs may reset them."""


_ENDED_FIELDS = _UNSTORED | {"error"}
"""An error tells the store which verb ends the recipient; its diagnostic has other words."""


def bar_fixed(task: Task, now: float) -> str:
    """Bar a line that cannot be changed in place."""
    return task.extra.get(FIXED_KEY, "")


def bar_running_agent(task: Task, now: float) -> str:
    """Bar a recipient whose agent is running: it may be delivering it."""
    if STALLED_KEY in task.extra:
        return bar_fixed(task, now)
    who = f"its agent ({task.lease.owner})" if task.lease and task.lease.owner else "its agent"
    return f"{who} is running and may be delivering it"


def bar_finished(task: Task, now: float) -> str:
    """Bar a recipient of a message that only our links hold: first it must be released."""
    return FINISHED if FINISHED_KEY in task.extra else bar_fixed(task, now)


_TWICE = "it may have been delivered already: then it is delivered twice"

EDGES: Edges = {
    (State.PENDING, State.HELD): Edge(bars=bar_fixed),
    (State.PENDING, State.TRASH): Edge(bars=bar_fixed),
    # Back from a retry or a rerun, with undo.
    (State.PENDING, State.DEAD): Edge(_UNSTORED, bars=bar_fixed),
    (State.PENDING, State.DONE): Edge(_UNSTORED, bars=bar_fixed),
    (State.ACTIVE, State.PENDING): Edge(_UNSTORED, warning=_TWICE, bars=bar_running_agent),
    (State.ACTIVE, State.HELD): Edge(_UNSTORED, bars=bar_running_agent),
    (State.ACTIVE, State.DEAD): Edge(_UNSTORED, bars=bar_running_agent),
    (State.HELD, State.PENDING): Edge(bars=bar_fixed),
    (State.HELD, State.DEAD): Edge(bars=bar_finished),
    (State.HELD, State.TRASH): Edge(bars=bar_fixed),
    (State.DEAD, State.PENDING): Edge(_UNSTORED, bars=bar_fixed),
    (State.DEAD, State.HELD): Edge(bars=bar_fixed),
    (State.DEAD, State.TRASH): Edge(bars=bar_fixed),
    (State.DONE, State.PENDING): Edge(
        _UNSTORED, warning="it was delivered: it is delivered twice", bars=bar_fixed
    ),
    (State.TRASH, State.PENDING): Edge(bars=bar_fixed),
    (State.TRASH, State.HELD): Edge(bars=bar_fixed),
    (State.TRASH, State.DEAD): Edge(bars=bar_finished),
    (State.TRASH, None): Edge(undoable=False, bars=bar_fixed),
}

_REPORTED = "its sender gets a report, also if it is undone"
_ENDED = (("bounce", _REPORTED), ("expire", _REPORTED))
_REROUTED = (("reroute", ""),)
_WAKES = "asks the scheduler to try all waiting recipients of its host now (ETRN)"
NO_SCHEDULER = "no scheduler is running: it tries all when it starts"

MAIL_EDGES: Edges = {
    **EDGES,
    (State.PENDING, State.PENDING): Edge(
        frozenset({"due"}),
        warning=_WAKES,
        undoable=False,
        value_problem=accept_only_now,
        exact=False,
        bars=bar_fixed,
    ),
    (State.PENDING, State.DEAD): Edge(_ENDED_FIELDS, bars=bar_fixed, verbs=_ENDED),
    (State.HELD, State.DEAD): Edge(_ENDED_FIELDS, bars=bar_finished, verbs=_ENDED),
    (State.PENDING, State.DONE): Edge(_ENDED_FIELDS, bars=bar_fixed, verbs=_REROUTED),
    (State.HELD, State.DONE): Edge(_ENDED_FIELDS, bars=bar_finished, verbs=_REROUTED),
    (State.DEAD, State.DONE): Edge(_ENDED_FIELDS, bars=bar_finished, verbs=_REROUTED),
}
"""With what also gives mail to the router, and asks the scheduler for deliveries."""

_LATER = "the scheduler (PID {}) delivers it only after it reads the file again, at its next start"
"""Of the original scheduler; that of spooldeck gets a notice."""


def current_edges(edges: Edges, folders: PostofficeFolders, scheduler: int | None) -> Edges:
    """The edges as they are now; `edges` are those of a spool that can be written, without a
    scheduler."""
    if why := write_refusal(folders):
        return refuse_all(edges, why)
    is_ours = scheduler is not None and lock_process.is_ours(folders.fd)
    return {
        states: _with_scheduler(states, edge, scheduler, is_ours) for states, edge in edges.items()
    }


def _with_scheduler(
    states: tuple[State | None, State | None], edge: Edge, scheduler: int | None, is_ours: bool
) -> Edge:
    start, end = states
    if scheduler is None:
        return edge._replace(refusal=NO_SCHEDULER) if start is end else edge
    if is_ours or end is not State.PENDING or start is end:
        return edge
    words = [_LATER.format(scheduler), *([edge.warning] if edge.warning else [])]
    return edge._replace(warning="; ".join(words))


def write_refusal(folders: PostofficeFolders) -> str:
    """Why this user must not change the spool; "" if it may."""
    for path, fd in ((folders.root, folders.fd), (f"{folders.root}/transport", folders.transport)):
        if os.fstat(fd).st_mode & stat.S_IWOTH:
            return f"{path} is world-writable: run chmod o-w {shlex.quote(path)}"
        if not os.access(f"/proc/self/fd/{fd}", os.W_OK | os.X_OK):
            return f"Permission denied: cannot write to {path}"
    return ""
