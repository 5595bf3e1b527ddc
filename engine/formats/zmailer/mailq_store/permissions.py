"""The edges of a scheduler, by the rights that it gave at the login."""

from __future__ import annotations

from collections.abc import Mapping

from engine.formats.zmailer.mailq.acl import Right
from engine.model import Edge, Edges, State, accept_only_now
from engine.store import refuse_all

_KILL = "the scheduler deletes the message for all its hosts, without a report to its sender"
_START = "the scheduler starts all threads of the host, for all their messages"

_EDGES: Mapping[Right, Edges] = {
    Right.KILL: {
        (State.PENDING, None): Edge(
            warning=_KILL, undoable=False, exact=False, shared_field="payload"
        ),
    },
    Right.ETRN: {
        (State.PENDING, State.PENDING): Edge(
            frozenset({"due"}),
            warning=_START,
            undoable=False,
            value_problem=accept_only_now,
            exact=False,
            shared_field="group",
        ),
    },
}


def permitted_edges(rights: frozenset[Right], user: str) -> Edges:
    """The edges; those without the right are refused. A dump, without any right, has none."""
    permitted = dict[tuple[State | None, State | None], Edge]()
    for right, edges in _EDGES.items():
        why = "" if right in rights else f"user {user} has no right {right} at this server"
        permitted |= refuse_all(edges, why)
    return permitted if rights else {}
