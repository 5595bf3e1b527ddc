"""The suite of all stores on the store of mail servers, which have no workers, claims and edits,
report no changes, and whose formats have the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from engine.formats.base import conformance
from engine.formats.base.conformance import NOW, Shape
from engine.model import Edge, Edges, Move, Outcome, State
from engine.override import override
from engine.programs.mail_store import MailStore
from engine.store import Store
from tests.engine.programs.test_mail_store import FakeServer

P, H, T = State.PENDING, State.HELD, State.TRASH

_TESTS = """\
an_edge_leads_where_it_says an_edge_changes_the_fields_it_names an_edge_bars_one_task
a_swap_outside_of_the_edges_is_refused the_edges_of_a_store_are_sound of_two_rivals_one_wins
a_great_many_moves_keep_their_order a_full_scan_ends_in_order a_sample_counts_all_and_has_some
a_scan_for_names_shows_only_those a_scan_of_a_states_word_shows_that_state
a_scan_goes_on_while_tasks_move what_was_purged_comes_back_as_it_was"""
_shared = conformance.suite()
for _name in ("a_task", *(f"test_{name}" for name in _TESTS.split())):
    globals()[_name] = _shared[_name]


class SoundServer(FakeServer):
    """A server all of whose messages can be moved, and are read only where they are."""

    def __init__(self) -> None:
        super().__init__()
        pairs = ((P, H), (H, P), (P, T), (H, T), (T, P), (T, H))
        self.edges: Edges = {pair: Edge() for pair in pairs} | {(T, None): Edge(undoable=False)}


class FilledStore(MailStore):
    """A store that can also add a message, as its server does, for the suite of all stores."""

    def __init__(self, server: SoundServer) -> None:
        self._mails = server.mails
        super().__init__(server, lambda: NOW)

    @override
    def _copy_facts(self) -> None:
        super()._copy_facts()
        self.edges = {**self.edges, (None, P): Edge()}

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        for move in moves:
            if move.old is None and move.new is not None and move.new.state is P:
                self._mails[move.new.id] = ["queue", "1", "a"]
                yield Outcome(move, rev="1.queue.a")
            else:
                yield from super().swap_all([move])


@pytest.fixture
def shape() -> Shape:
    """The tasks of this store."""
    return Shape(
        ident=lambda number, kind: f"M{number:04}",
        description=lambda number, kind: "",
        kinds=("mail",),
        kind="mail",
        filled=lambda task: task,
        claim_order=list,
    )


@pytest.fixture
def open_store() -> Callable[[], Store]:
    """Open a further instance on the same server."""
    server = SoundServer()
    return lambda: FilledStore(server)
