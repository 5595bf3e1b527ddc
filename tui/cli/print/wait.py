"""`wait`: wait until tasks, or all of a queue, are done, failed or idle, for scripts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from engine.formats.base.format import Setup
from engine.logs.merged_log import find_mentions
from engine.model import State, Task, own_word
from engine.store import ReadableStore
from engine.system.command_errors import EX_TIMEOUT, print_error
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.cli.setup.output import Answer

REACHED, NOT_REACHED = 0, 1

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
"""The pause between two scans doubles from the first to the second."""

SCAN_COST_FACTOR = 5
"""The pause is at least so many times as long as the scan took."""

ENDED = {State.DONE: "done", State.DEAD: "failed", State.HELD: "held", State.TRASH: "purged"}
"""What became of a task in a state that it does not leave by itself."""


class Observed(NamedTuple):
    """What one scan found of the tasks that are waited for."""

    pending: int = 0
    active: int = 0
    dead: int = 0
    is_due: bool = False
    """True if one of the pending tasks is due."""
    ended: Mapping[str, str] = {}
    """With ids: what became of each task that has ended."""
    words: Mapping[str, str | None] = {}
    """With ids: the store's word for the state of each task; None: it is no longer there."""


def result_of(observed: Observed, until: str, dead_before: int) -> tuple[str, int] | None:
    """The result and exit code of a wait; None while it goes on."""
    if until == "failed" and observed.dead:
        return "failed", REACHED
    is_idle = not observed.active and not observed.is_due
    if until == "idle" and is_idle:
        return "idle", REACHED
    if observed.pending or observed.active:
        return None
    if until == "failed":
        # A queue may get more tasks; named ones have all ended.
        return ("done", NOT_REACHED) if observed.words else None
    others = sorted({word for word in observed.ended.values() if word != "done"})
    if others:
        return others[0], NOT_REACHED
    return ("failed", NOT_REACHED) if observed.dead > dead_before else ("done", REACHED)


def wait(
    setup: Setup,
    *,
    id: list[str],
    until: str,
    timeout: float | None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Answer | int:
    """Scan until the result is reached or the time is over, and print the result."""
    until, ids = until or "done", list(dict.fromkeys(id))
    began = clock()
    with closing(setup.open_store()) as store:
        if unknown := _unknown_ids(setup, store, ids):
            print_error(f"{safe_line(unknown)}: no such task, and the log does not mention it")
            return NOT_REACHED
        dead_before, length, outcome = -1, SHORTEST_PAUSE_SECONDS, None
        missed: set[str] = set()
        while True:
            started = clock()
            observed = _observe_ids(store, ids, missed) if ids else _observe_queue(store)
            dead_before = observed.dead if dead_before < 0 else dead_before
            outcome = result_of(observed, until, dead_before)
            now = clock()
            remaining = math.inf if timeout is None else began + timeout - now
            if outcome is not None or (remaining <= 0 and not missed - observed.ended.keys()):
                break
            length = min(LONGEST_PAUSE_SECONDS, 2 * length)
            next_pause = max(length, SCAN_COST_FACTOR * (now - started))
            pause(min(next_pause, max(remaining, SHORTEST_PAUSE_SECONDS)))
    result, code = outcome or ("timeout", EX_TIMEOUT)
    seconds = clock() - began
    counts = {"pending": observed.pending, "active": observed.active, "dead": observed.dead}

    def values() -> dict[str, object]:
        ended = {"place": setup.place, "result": result, "seconds": round(seconds, 3)}
        return {**ended, **counts, "tasks": dict(observed.words)}

    def lines() -> Iterator[str]:
        for ident, word in observed.words.items():
            yield f"{safe_line(ident)} {word or 'done'}"
        counts_text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        yield f"{result} after {seconds:.1f} s: {counts_text}"

    return Answer(values, lines, code)


def _observe_queue(store: ReadableStore) -> Observed:
    counts = store.count_tasks()
    pending, active = counts.get(State.PENDING, 0), counts.get(State.ACTIVE, 0)
    is_due = bool(pending and not active) and _has_due(store)
    return Observed(pending, active, counts.get(State.DEAD, 0), is_due)


def _has_due(store: ReadableStore) -> bool:
    now = time.time()
    tasks = store.scan([store.states[State.PENDING]])
    return any(_is_due(task, now) for task in tasks if isinstance(task, Task))


def _is_due(task: Task, now: float) -> bool:
    return task.state is State.PENDING and task.due is not None and task.due <= now


def _observe_ids(store: ReadableStore, ids: Sequence[str], missed: set[str]) -> Observed:
    """Scan these tasks. One that is missing in two scans has ended: a scan may miss one that is
    being moved. `missed` has those of the last scan."""
    tasks = _scan(store, ids)
    now, ended = time.time(), {}
    words: dict[str, str | None] = {}
    for ident in ids:
        task = tasks.get(ident)
        words[ident] = None if task is None else own_word(task, store.states, store.words)
        if task is not None and task.state in ENDED:
            ended[ident] = ENDED[task.state]
        elif task is None and ident in missed:
            ended[ident] = "done"
    states = [task.state for task in tasks.values()]
    missed.clear()
    missed.update(ident for ident in ids if ident not in tasks)
    return Observed(
        sum(ident not in ended for ident in ids) - states.count(State.ACTIVE),
        states.count(State.ACTIVE),
        states.count(State.DEAD),
        is_due=any(_is_due(task, now) for task in tasks.values()),
        ended=ended,
        words=words,
    )


def _scan(store: ReadableStore, ids: Iterable[str]) -> dict[str, Task]:
    return {task.id: task for task in store.scan(list(ids)) if isinstance(task, Task)}


def _unknown_ids(setup: Setup, store: ReadableStore, ids: Sequence[str]) -> str:
    """The first id that neither the store nor the log has; "" if none: a task may have
    been done before the wait began."""
    known = _scan(store, ids)
    missing = [ident for ident in ids if ident not in known]
    if not missing:
        return ""
    logs = [setup.log_path]
    return next((ident for ident in missing if not find_mentions(logs, ident, 1).lines), "")
