"""`clusters`: the errors of a place, printed once."""

from __future__ import annotations

import shutil
import time
from argparse import Namespace
from collections.abc import Sequence

from engine.index.schema import Query
from engine.model import words_of
from engine.store import Unavailable
from engine.text.safe import shown
from tui.cli.setup.one_look import glance, named, print_lines, wanted
from tui.cli.setup.setup import EX_USAGE, Setup, fail
from tui.format import task_row
from tui.queue import cluster_lines as view
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import Judged, judged


def clusters(setup: Setup, arguments: Namespace) -> int:
    """Errors, alike with alike, and whether they still happen."""
    places = named(setup, [arguments.place] if arguments.place else [])[:1]

    async def ask(lives: Sequence[PlaceSession]) -> tuple[Judged, ...]:
        (live,) = lives
        if live.inspector.latest.unavailable:
            raise Unavailable(live.inspector.latest.unavailable)
        return await judged(live, _query(live, arguments))

    found = glance(places, ask)
    if arguments.json:
        for values in view.as_rows(found):
            print(task_row.json_line(values), end="")
        return 0
    width, now = shutil.get_terminal_size((100, 24)).columns, time.time()
    print_lines([view.head(width), *(view.row(judged, now, width) for judged in found)])
    for judged_one in found:
        print_lines([(), *view.evidence(judged_one, width)])
    print(view.summary(found))
    return 0


def _query(live: PlaceSession, arguments: Namespace) -> Query:
    states, words = live.inspector.states, live.inspector.words
    named_states = {word: state for state in states for word in words_of(state, states, words)}
    if arguments.state and arguments.state not in named_states:
        expected = ", ".join(named_states)
        fail(EX_USAGE, f"--state {shown(arguments.state)}: expected {expected}")
    state = named_states.get(arguments.state)
    part = f" state={arguments.state}" if state in words.values() else ""
    return Query(state, wanted(f"{arguments.filter}{part}", live))
