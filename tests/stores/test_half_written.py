"""What another program writes in place, a line at a time, is left alone until it is whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import verbs
from engine.model import State, Task
from engine.store import Gone
from engine.stores.nftban import NftbanStore, Spool, form

TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, 1_795_170_000.0)
LINES = form.render(form.new_record(TASK)).splitlines(keepends=True)
Opener = Callable[..., NftbanStore]


@pytest.mark.parametrize("lines", range(len(LINES)))
def test_a_file_that_is_being_written_is_nobodys(
    spool: Spool, open_spool: Opener, lines: int
) -> None:
    """Cut after any of its lines, a young file is neither taken nor moved, and stays as it is."""
    path = Path(spool.pending, f"{TASK.id}.task")
    path.write_bytes(b"".join(LINES[:lines]))
    now = time.time()  # as the file has it
    store = open_spool(lambda: now)

    taken = list(store.take(now, "me", 1))
    for seen in {item.id: item for item in store.look() if isinstance(item, Task)}.values():
        with pytest.raises(Gone):
            store.swap(seen, verbs.hold(seen, now))

    assert (taken, store.set_aside()) == ([], [])
    assert path.read_bytes() == b"".join(LINES[:lines])


def test_a_file_that_says_no_more_is_taken_in_the_end(spool: Spool, open_spool: Opener) -> None:
    """The contract's fields that are not required may be missing for good."""
    Path(spool.pending, f"{TASK.id}.task").write_bytes(b"".join(LINES[:4]))
    later = time.time() + 3600

    (task,) = open_spool(lambda: later).take(later, "me", 1)

    assert (task.id, task.payload) == (TASK.id, "")
