"""What the key of a verb is called in a state, and where a place has no such verb."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.formats.bullmq.moves import EDGES
from engine.formats.zmailer.spool.permissions import MAIL_EDGES
from engine.model import Edge, Edges, State
from tui.plan.planning import help_words
from tui.task.screen import ROWS


def a_task_in(state: State, edges: Edges) -> Any:
    """The parts of a screen with a task in that state."""
    session = SimpleNamespace(inspector=SimpleNamespace(edges=edges))
    context = SimpleNamespace(arming=SimpleNamespace(read_only=False))
    return SimpleNamespace(
        session=session, context=context, verb_state=state, verb_amount=(1, True)
    )


def labels(state: State, edges: Edges) -> dict[str, str]:
    """The verbs that have a hint, and its words."""
    parts = a_task_in(state, edges)
    rows = ((row.key, row.label(parts)) for row in ROWS if row.key.verb)
    return {key.verb: key.hint if label is None else label for key, label in rows if label != ""}


def absent_verbs(edges: Edges) -> set[str]:
    """The verbs that no help lists."""
    parts = a_task_in(State.PENDING, edges)
    return {row.key.verb for row in ROWS if row.key.verb and row.is_absent(parts)}


def test_a_task_offers_the_verbs_that_its_store_has_for_its_state() -> None:
    """Of an active job only what its store has an edge for; of a done one, retry is a rerun."""
    assert set(labels(State.ACTIVE, EDGES)) == {"release", "kill"}
    assert labels(State.DONE, EDGES)["retry"] == "rerun"


def test_a_verb_that_a_store_has_in_no_state_has_no_key() -> None:
    """Keys of another format's verbs are in no help; before the edges are known all are."""
    edges: Edges = {(State.PENDING, State.HELD): Edge(), (State.PENDING, State.DEAD): Edge()}
    assert "hold" not in absent_verbs(edges)
    assert {"reroute", "expire", "release"} <= absent_verbs(edges)
    assert absent_verbs({}) == set()
    assert help_words(edges) == {}
    assert not absent_verbs(MAIL_EDGES) & {"reroute", "expire", "kill"}
    assert "bounce" in help_words(MAIL_EDGES)["plan('kill')"]
