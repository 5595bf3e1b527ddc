"""`locks`: who has the locks, the evidence, and what waits behind them; once and plainly."""

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
from engine.text.safe import shown
from tui.cli.queue.status import ATTENTION, UNREADABLE, WELL
from tui.cli.setup.one_look import glance, holds, named, print_lines
from tui.cli.setup.setup import Setup
from tui.format import present
from tui.format.present import BLANK, Line
from tui.format.table import names
from tui.locks import list_lines as view
from tui.locks.examination import ActiveTask, LockExaminer, LockReport, ProcessSample
from tui.locks.lines import accepted
from tui.locks.list_lines import Lock
from tui.session import index_queries
from tui.session.place_session import PlaceSession

APART = 0.5
"""Seconds between two looks at a process, to tell what it does."""


class LockSummary(NamedTuple):
    """What was seen of one lock."""

    lock: Lock
    kinds: Ages | None
    """What is due, by kind; None where the place cannot be read."""
    command: Sequence[str]
    """How a person names the place on the command line; empty where nothing frees its lock."""
    case: LockReport | None
    """What an examination of it found; None where there is no lock, and none is needed."""


def locks(setup: Setup, arguments: Namespace) -> int:
    """Print every lock; exit 0 well, 1 one needs attention, 2 a place cannot be read."""
    places = [p for p in named(setup, arguments.places) if p.lock is not None or p.leases]

    async def ask(lives: Sequence[PlaceSession]) -> list[LockSummary]:
        return [await _look(live) for live in lives]

    looks = [look for look in glance(places, ask) if holds(_words(look), arguments.filter)]
    now = time.time()
    if arguments.json:
        print(json.dumps({"locks": [_as_row(look, now) for look in looks]}))
    else:
        print_lines(_page(looks, now, shutil.get_terminal_size((100, 24)).columns))
    if any(look.kinds is None for look in looks):
        return UNREADABLE
    alarming = [
        look.lock.evidence is not None and look.lock.evidence.verdict in present.ALARMING
        for look in looks
    ]
    return ATTENTION if any(alarming) else WELL


def _words(look: LockSummary) -> str:
    evidence = look.lock.evidence
    said: tuple[str, ...] = (look.lock.none,)
    if evidence is not None:
        said = (evidence.verdict, str(evidence.pid or ""), evidence.reason)
    return " ".join((look.lock.name, *said))


async def _look(live: PlaceSession) -> LockSummary:
    kinds = None
    try:
        if not live.inspector.latest.unavailable:
            await live.count_what_waits()
            kinds = await index_queries.due_kinds(live)
    except Unavailable:
        kinds = None  # said by the exit code, and by the question marks
    command = live.place.command if live.place.recover else ()
    case = None if live.place.lock is None else await _examined(live)
    return LockSummary(view.of(live), kinds, command, case)


async def _examined(live: PlaceSession) -> LockReport:
    exam = LockExaminer(live)
    if (await exam.look()).lives:
        await asyncio.sleep(APART)  # what it does is what lies between two looks
        await exam.look()
    await exam.read_logs()
    return await exam.look()


def _page(looks: Sequence[LockSummary], now: float, width: int) -> list[Line]:
    head, rows = view.table([look.lock for look in looks], now, width)
    lines, called = [head, *rows], names([look.lock.name for look in looks])
    for look, name in zip(looks, called, strict=True):
        lines += [BLANK, present.heading(name, width)]
        lines += view.about(look.lock, look.kinds, _free(look), now, width, look.case)
    return lines


def _free(look: LockSummary) -> Line:
    if not look.command or look.case is None:
        return ()
    hold = [word for id in accepted(look.case) for word in ("--hold", id)]
    words = shlex.join([*look.command, "queue", "recover", *hold])
    return (
        (f" {shown(words)}", "key"),
        (" asks, and does it", ""),
    )


def _as_row(look: LockSummary, now: float) -> dict[str, object]:
    lock, evidence, waiting = look.lock, look.lock.evidence, look.lock.standing
    case = look.case
    kinds = None if look.kinds is None else {row.name: row.total for row in look.kinds.rows}
    return {
        "place": lock.name,
        "verdict": None if evidence is None else str(evidence.verdict),
        "pid": None if evidence is None else evidence.pid,
        "last_sign_of_life": None if evidence is None else evidence.since,
        "reason": lock.none if evidence is None else evidence.reason,
        "doubt": "" if evidence is None else evidence.doubt,
        "evidence": {} if evidence is None else dict(evidence.facts),
        "certainty": None if case is None else str(case.finding.certainty),
        "finding": lock.none if case is None else case.finding.words,
        "processes": [] if case is None else [_process(life) for life in case.lives],
        "in_work": [] if case is None else [_in_work(work, case, now) for work in case.works],
        "ran_per_second_before": None if case is None else case.before,
        "due": None if waiting is None else waiting.due,
        "oldest_due": None if waiting is None else waiting.oldest_due,
        "due_by_kind": kinds,
    }


def _process(life: ProcessSample) -> dict[str, object]:
    now, done = life
    return {
        "pid": now.pid,
        "unknown": now.unknown,
        "state": now.state,
        "does": process_stats.doing(now),
        "waits_in": shown(now.waits),
        "seconds": None if done is None else done.seconds,
        "cpu_seconds": None if done is None else done.cpu,
        "bytes_moved": None if done is None else done.moved,
        "files_below": None if isinstance(now.files, str) else list(now.files.below),
        "children": None if isinstance(now.kin, str) else [child.pid for child in now.kin],
    }


def _in_work(work: ActiveTask, case: LockReport, now: float) -> dict[str, object]:
    told = work.told
    return {
        "id": shown(work.task.id),
        "kind": shown(work.task.kind),
        "abandoned": case.abandoned,
        "accepted": None if told.unknown else told.accepted is not None,
        "log": lock_diagnosis.on_record(told, now),
        "recommended": None if told.unknown else told.advice,
    }
