"""One word for one act: the verb's table names it in plans, results, journal and commands."""

from __future__ import annotations

import pytest

from engine.live import queries
from engine.locks.token_buckets import BucketState
from engine.model import State
from engine.operations.journal import Intent, Who
from engine.operations.plans import Plan, Row
from engine.places.place_watcher import PlaceReadings
from engine.verbs import VERBS, Verb, VerbWords
from tests.console_places import NOW, Clock, a_memory, a_place, a_task
from tests.documents import ROOT
from tests.tables import each
from tui.cli.commands import COMMAND_WORDS
from tui.plan import planning
from tui.plan.plan_lines import EFFECTS
from tui.session.history import operation_words
from tui.session.place_session import PlaceSession
from tui.text import keys

COMMANDS = {" ".join(word.path) for word in COMMAND_WORDS}
WORDS = [
    (one, paced, one.words(is_paced=paced)) for one in VERBS.values() for paced in (False, True)
]


@each(("verb", "paced", "words"), WORDS)
def test_an_act_has_one_word(verb: Verb, paced: bool, words: VerbWords) -> None:
    """A retry is now and a replay is paced: journal, command and manual have the word of the plan,
    also for an intent of an earlier version, whose pace tells them apart."""
    pace = {"rate": 2.0} if paced else {}
    assert operation_words(Intent(verb.name, Who("ana"), "", pace=pace)) == words
    assert words.name in EFFECTS
    assert words.name in COMMANDS
    assert words.name in (ROOT / "MANUAL.md").read_text()


def test_the_words_of_the_paced_acts() -> None:
    """Only what runs tasks again has words of its own when it is paced."""
    paced = {verb.name: verb.paced for verb in VERBS.values() if verb.paced}
    assert paced == {"retry": ("replay", "replayed"), "rerun": ("rerun", "rerun")}


def test_keys_are_named_like_their_verbs() -> None:
    """Each key that plans a verb has its word, until the tasks say that it means another."""
    assert [key.hint for key in keys.verb_keys()] == [key.verb for key in keys.verb_keys()]


def test_few_picked_tasks_are_retried_and_others_replayed() -> None:
    """Eleven tasks picked by hand, or a single one, are retried now; all of a filter replayed."""
    usual = planning.is_usually_paced
    assert [usual("retry", n, picked=True) for n in (1, 11, 12)] == [False, False, True]
    assert [usual("retry", n, picked=False) for n in (0, 1, 2)] == [False, False, True]
    assert not usual("purge", 100, picked=False)


async def test_the_last_run_of_a_plan_is_without_the_excluded_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan from which a task was excluded is counted again, not answered from the cache."""
    monkeypatch.setattr(queries, "ANSWER_COST_FACTOR", 1e9)
    tasks = [a_task(number, State.DEAD, kind="mail") for number in range(4)]
    live = PlaceSession(a_place(a_memory(tasks)), Clock())
    live.readings = PlaceReadings(tokens=(BucketState("mail", 0, 5, NOW + 60, 60),))
    try:
        await live.inspector.start()
        await live.inspector.scan_now()
        plan = Plan("retry", [Row(task.id, State.DEAD, task.rev) for task in tasks], NOW)
        for excluded, terms in ((0, "4 x 1m at 60/h"), (1, "3 x 1m at 60/h")):
            ids = frozenset(task.id for task in tasks[:excluded])
            runs = await planning.forecast_plan(live, plan._replace(excluded_ids=ids))
            assert runs.terms == terms, runs
        runs = await planning.forecast_plan(live, plan, {task.id for task in tasks[:2]})
        assert runs.terms == "2 x 1m at 60/h"  # two have run
    finally:
        await live.close(keep_worker=False)
