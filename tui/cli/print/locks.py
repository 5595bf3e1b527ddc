"""`locks`: print the locks, the evidence about their holders, and the waiting tasks."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import NamedTuple

from engine.index.age_table import Ages
from engine.locks import process_stats
from engine.monitor import lock_diagnosis
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.cli.queue.status import ATTENTION, OK, UNREADABLE
from tui.cli.setup.one_look import chosen_places, contains_words, print_lines, scan_once
from tui.cli.setup.setup import Setup
from tui.format import present
from tui.format.present import BLANK_LINE, Line
from tui.format.table import short_names
from tui.format.task_row import time_fields
from tui.locks import list_lines as view
from tui.locks.examination import ActiveTask, LockExaminer, LockReport, ProcessSample
from tui.locks.lines import accepted_ids
from tui.locks.list_lines import PlaceLock
from tui.session import index_queries
from tui.session.place_session import PlaceSession

SAMPLE_INTERVAL_SECONDS = 0.5
"""Seconds between two samples of a process, to measure its CPU and I/O."""


class LockSummary(NamedTuple):
    """What was read about one lock."""

    lock: PlaceLock
    kinds: Ages | None
    """Due tasks by kind; None if the place cannot be read."""
    command: Sequence[str]
    """The command that names the place; empty if nothing frees its lock."""
    case: LockReport | None
    """The examination of the lock; None if the place has no lock."""


def locks(setup: Setup, arguments: Namespace) -> int:
    """Print every lock; exit 0 OK, 1 one needs attention, 2 a place cannot be read."""
    places = [
        p for p in chosen_places(setup, arguments.places) if p.lock is not None or p.has_leases
    ]

    async def ask(lives: Sequence[PlaceSession]) -> list[LockSummary]:
        return [await _look(live) for live in lives]

    looks = [
        look for look in scan_once(places, ask) if contains_words(_words(look), arguments.filter)
    ]
    now = time.time()
    if arguments.json:
        print(json.dumps({"locks": [_as_row(look, now) for look in looks]}))
    else:
        print_lines(_page(looks, now, shutil.get_terminal_size((100, 24)).columns))
    if any(look.kinds is None for look in looks):
        return UNREADABLE
    alarming = [
        look.lock.evidence is not None and look.lock.evidence.verdict in present.ALARMING_VERDICTS
        for look in looks
    ]
    return ATTENTION if any(alarming) else OK


def _words(look: LockSummary) -> str:
    evidence = look.lock.evidence
    said: tuple[str, ...] = (look.lock.why_no_lock,)
    if evidence is not None:
        said = (evidence.verdict, str(evidence.pid or ""), evidence.reason)
    return " ".join((look.lock.name, *said))


async def _look(live: PlaceSession) -> LockSummary:
    kinds = None
    try:
        if not live.inspector.latest.unavailable:
            await live.query_backlog()
            kinds = await index_queries.query_due_kinds(live)
    except Unavailable:
        kinds = None  # shown by the exit code and by question marks
    command = live.place.command if live.place.recovery_command else ()
    case = None if live.place.lock is None else await _examined(live)
    return LockSummary(view.place_lock(live), kinds, command, case)


async def _examined(live: PlaceSession) -> LockReport:
    exam = LockExaminer(live)
    if (await exam.examine()).processes:
        await asyncio.sleep(SAMPLE_INTERVAL_SECONDS)  # CPU and I/O are differences of two samples
        await exam.examine()
    await exam.read_logs()
    return await exam.examine()


def _page(looks: Sequence[LockSummary], now: float, width: int) -> list[Line]:
    order = view.worst_first([look.lock for look in looks])
    head, rows = view.lock_table(order, now, width)
    lines, called = [head, *rows], short_names([look.lock.name for look in looks])
    for look, name in zip(looks, called, strict=True):
        lines += [BLANK_LINE, present.heading_line(name, width)]
        lines += view.detail_lines(look.lock, look.kinds, now, width, look.case)
        lines += [free] if (free := _free(look)) else []
    return lines


def _free(look: LockSummary) -> Line:
    if not look.command or look.case is None or not present.is_freeable(look.case.evidence):
        return ()
    hold = [word for id in accepted_ids(look.case) for word in ("--hold", id)]
    words = shlex.join([*look.command, "queue", "recover", *hold])
    return (
        (f" {safe_line(words)}", "key"),
        (" asks, then frees the lock", ""),
    )


def _as_row(look: LockSummary, now: float) -> dict[str, object]:
    lock, evidence, waiting = look.lock, look.lock.evidence, look.lock.backlog
    case = look.case
    kinds = None if look.kinds is None else {row.name: row.total for row in look.kinds.rows}
    return {
        "place": lock.name,
        "verdict": None if evidence is None else str(evidence.verdict),
        "pid": None if evidence is None else evidence.pid,
        **time_fields("heartbeat", None if evidence is None else evidence.since),
        "reason": lock.why_no_lock if evidence is None else evidence.reason,
        "doubt": "" if evidence is None else evidence.signal_refusal,
        "evidence": {} if evidence is None else dict(evidence.facts),
        "certainty": None if case is None else str(case.finding.certainty),
        "finding": lock.why_no_lock if case is None else case.finding.sentence,
        "processes": [] if case is None else [_process(life) for life in case.processes],
        "in_work": []
        if case is None
        else [_in_work(work, case, now) for work in case.active_tasks],
        "ran_per_second_before": None if case is None else case.rate_before,
        "due": None if waiting is None else waiting.due,
        **time_fields("oldest_due", None if waiting is None else waiting.oldest_due),
        "due_by_kind": kinds,
    }


def _process(life: ProcessSample) -> dict[str, object]:
    now, done = life
    return {
        "pid": now.pid,
        "unknown": now.unknown,
        "state": now.state,
        "does": process_stats.describe_state(now),
        "waits_in": safe_line(now.waits),
        "seconds": None if done is None else done.seconds,
        "cpu_seconds": None if done is None else done.cpu,
        "bytes_moved": None if done is None else done.io_bytes,
        "files_below": None if isinstance(now.files, str) else list(now.files.below),
        "children": None
        if isinstance(now.descendants, str)
        else [child.pid for child in now.descendants],
    }


def _in_work(work: ActiveTask, case: LockReport, now: float) -> dict[str, object]:
    told = work.log_summary
    return {
        "id": safe_line(work.task.id),
        "kind": safe_line(work.task.kind),
        "abandoned": case.is_abandoned,
        "accepted": None if told.unknown else told.accepted is not None,
        "log": lock_diagnosis.describe_task_log(told, now),
        "recommended": None if told.unknown else told.advice,
    }
