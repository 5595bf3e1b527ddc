"""A file that another program writes in place, line by line, is neither moved nor claimed half."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from engine import verbs
from engine.model import Move, State, Task
from engine.store import Gone
from engine.stores.nftban import NftbanStore, Spool, form

TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, 1_795_170_000.0)
LINES = form.render(form.new_record(TASK)).splitlines(keepends=True)
Opener = Callable[..., NftbanStore]


def test_a_new_file_is_claimed_only_whole(spool: Spool, open_spool: Opener) -> None:
    """Cut after any of its lines, a young file is neither claimed nor moved nor quarantined; once
    it is whole it is claimed."""
    path = Path(spool.pending, f"{TASK.id}.task")
    for count in range(len(LINES)):
        path.write_bytes(b"".join(LINES[:count]))
        now = time.time()  # as the file has it
        store = open_spool(lambda now=now: now)

        assert (list(store.take(now, "me", 1)), store.set_aside()) == ([], []), count
        for seen in {item.id: item for item in store.look() if isinstance(item, Task)}.values():
            try:
                store.swap(seen, verbs.hold(seen, now))
            except Gone:
                continue
            raise AssertionError(f"moved after {count} lines")
        assert path.read_bytes() == b"".join(LINES[:count])
    path.write_bytes(b"".join(LINES))

    (task,) = store.take(time.time(), "me", 1)

    assert task.id == TASK.id


def test_a_file_that_is_rewritten_in_place_keeps_its_state(
    spool: Spool, open_spool: Opener
) -> None:
    """No swap moves a claimed or dead task while its file is being rewritten."""
    changes: tuple[tuple[str, State, Callable[[Task], Task]], ...] = (
        (spool.work, State.ACTIVE, lambda task: verbs.nack(task, 0, "orphan")),
        (spool.dlq, State.DEAD, lambda task: verbs.retry(task, 0)),
    )
    for folder, state, change in changes:
        path = Path(folder, f"{TASK.id}.task")
        for count in range(len(LINES)):
            with path.open("wb") as writer:
                writer.write(b"".join(LINES[:count]))
                writer.flush()
                store = open_spool(time.time)
                seen = {item.id: item for item in store.look() if isinstance(item, Task)}
                moves = [Move(task, change(task)) for task in seen.values()]

                assert all(outcome.error for outcome in store.swap_all(moves)), (folder, count)

            path.write_bytes(b"".join(LINES))
            (task,) = (item for item in store.look({TASK.id}) if isinstance(item, Task))
            assert task.state is state
        path.unlink()
