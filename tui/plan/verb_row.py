"""The key row of a verb: what its key is called in the present state, and why it is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from engine.model import State
from engine.verbs import edges_of
from tui.plan import planning
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow
from tui.session.place_session import PlaceSession
from tui.text.keys import Key

C = TypeVar("C")


class VerbParts(Protocol):
    """What the parts of a screen with verbs have."""

    session: PlaceSession
    context: ConsoleContext

    @property
    def verb_state(self) -> State | None:
        """State of the tasks that a verb would act on; None if there are none."""
        ...

    def verb_refusal(self, verb: str) -> str:
        """Why a verb is not available for them; "" if it is."""
        ...


P = TypeVar("P", bound=VerbParts)


def verb_row(key: Key, act: Callable[..., C], advice: Callable[[P], str]) -> KeyRow[P, C]:
    """A key that plans a verb, or what that means in this state and store.

    `act` gets the parts, and the verb of the key as `verb`; `advice` is said behind a refusal.
    """

    def label(parts: P) -> str | None:
        edges, state = parts.session.inspector.edges, parts.verb_state
        meant = planning.verb_in_state(key.verb, state, edges)
        if state is None or not edges_of(edges, meant, state):
            return ""  # for tasks in other states: it would displace those that work here
        return None if meant == key.verb else meant

    def is_absent(parts: P) -> bool:
        has_verb = planning.has_verb(parts.session.inspector.edges, key.verb)
        return parts.context.arming.read_only or not has_verb

    return KeyRow(
        key,
        partial(act, verb=key.verb),
        refusal=lambda parts: parts.verb_refusal(key.verb),
        advice=advice,
        is_absent=is_absent,
        label=label,
    )
