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

from engine import triage, vitals
from engine.ages import Ages
from engine.store import Unavailable
from engine.text import shown
from tui import present, telling
from tui.cli.glance import glance, holds, named, print_lines
from tui.cli.status import ATTENTION, UNREADABLE, WELL
from tui.cli.wiring import Setup
from tui.exam import Case, Exam, Life, Work
from tui.live import Live
from tui.present import BLANK, Line
from tui.table import names
from tui.views import locks as view
from tui.views.lock import accepted
from tui.views.locks import Lock

APART = 0.5
"""Seconds between two looks at a process, to tell what it does."""


class Look(NamedTuple):
    """What was seen of one lock."""

    lock: Lock
    kinds: Ages | None
    """What is due, by kind; None where the place cannot be read."""
    command: Sequence[str]
    """How a person names the place on the command line; empty where nothing frees its lock."""
    case: Case | None
    """What an examination of it found; None where there is no lock, and none is needed."""


def locks(setup: Setup, arguments: Namespace) -> int:
    """Print every lock; exit 0 well, 1 one needs attention, 2 a place cannot be read."""
    places = [p for p in named(setup, arguments.places) if p.lock is not None or p.leases]

    async def ask(lives: Sequence[Live]) -> list[Look]:
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


def _words(look: Look) -> str:
    evidence = look.lock.evidence
    said: tuple[str, ...] = (look.lock.none,)
    if evidence is not None:
        said = (evidence.verdict, str(evidence.pid or ""), evidence.reason)
    return " ".join((look.lock.name, *said))


async def _look(live: Live) -> Look:
    kinds = None
    try:
        if not live.inspector.latest.unavailable:
            await live.count_what_waits()
            kinds = await telling.due_kinds(live)
    except Unavailable:
        kinds = None  # said by the exit code, and by the question marks
    command = live.place.command if live.place.recover else ()
    case = None if live.place.lock is None else await _examined(live)
    return Look(view.of(live), kinds, command, case)


async def _examined(live: Live) -> Case:
    exam = Exam(live)
    if (await exam.look()).lives:
        await asyncio.sleep(APART)  # what it does is what lies between two looks
        await exam.look()
    await exam.read_logs()
    return await exam.look()


def _page(looks: Sequence[Look], now: float, width: int) -> list[Line]:
    head, rows = view.table([look.lock for look in looks], now, width)
    lines, called = [head, *rows], names([look.lock.name for look in looks])
    for look, name in zip(looks, called, strict=True):
        lines += [BLANK, present.heading(name, width)]
        lines += view.about(look.lock, look.kinds, _free(look), now, width, look.case)
    return lines


def _free(look: Look) -> Line:
    if not look.command or look.case is None:
        return ()
    hold = [word for id in accepted(look.case) for word in ("--hold", id)]
    words = shlex.join([*look.command, "queue", "recover", *hold])
    return (
        (f" {shown(words)}", "key"),
        (" asks, and does it", ""),
    )


def _as_row(look: Look, now: float) -> dict[str, object]:
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


def _process(life: Life) -> dict[str, object]:
    now, done = life
    return {
        "pid": now.pid,
        "unknown": now.unknown,
        "state": now.state,
        "does": vitals.doing(now),
        "waits_in": shown(now.waits),
        "seconds": None if done is None else done.seconds,
        "cpu_seconds": None if done is None else done.cpu,
        "bytes_moved": None if done is None else done.moved,
        "files_below": None if isinstance(now.files, str) else list(now.files.below),
        "children": None if isinstance(now.kin, str) else [child.pid for child in now.kin],
    }


def _in_work(work: Work, case: Case, now: float) -> dict[str, object]:
    told = work.told
    return {
        "id": shown(work.task.id),
        "kind": shown(work.task.kind),
        "abandoned": case.abandoned,
        "accepted": None if told.unknown else told.accepted is not None,
        "log": triage.on_record(told, now),
        "recommended": None if told.unknown else told.advice,
    }
