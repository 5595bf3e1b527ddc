"""The suite of all stores on a ZMailer spool: its router adds recipients, and agents lock them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.formats.base import conformance
from engine.formats.base.conformance import NOW, Shape
from engine.store import Store
from tests.zmailer_spool import Spool, WorkedStore, dead_pid, suite_id

_OF_CLAIMS = """\
what_is_taken_is_claimed a_lease_is_extended no_more_than_the_limit_is_taken
only_pending_tasks_are_taken wants_is_asked_before_each_claim an_unwanted_kind_is_passed_over
of_several_kinds_only_the_wanted_are_claimed two_takers_in_turns_share_nothing threads_share_no_task
waiting_ends_with_time_or_a_promotion a_place_in_use_keeps_the_rules"""
_OF_DUE_TIMES = """\
a_task_that_is_still_as_it_was_seen an_edge_changes_the_fields_it_names a_stale_revision_is_gone
many_moves_answer_one_by_one"""
_OF_NEW_TASKS = "an_id_is_given_only_once an_id_is_given_only_once_in_a_group"
_EXCLUDED = {f"test_{name}" for name in f"{_OF_CLAIMS} {_OF_DUE_TIMES} {_OF_NEW_TASKS}".split()}
globals().update(conformance.suite(_EXCLUDED))


@pytest.fixture
def shape() -> Shape:
    """The tasks of this format."""
    return Shape(
        ident=lambda number, kind: suite_id(number),
        description=lambda number, kind: "a report",
        kinds=("smtp",),
        kind="smtp",
        filled=lambda task: task._replace(destination="all of it"),
        claim_order=list,
        destination="c@d.example",
        own_fields=frozenset({"queue", "group", "due", "attempts", "payload", "extra"}),
    )


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Open a further instance on the same spool."""
    spool, pid = Spool(tmp_path / "post").make(), dead_pid()
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(WorkedStore(str(spool.root), pid, NOW)))
