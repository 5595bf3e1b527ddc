"""The trash: listed, restored, swept, expunged."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.queue_folders import open_spool
from engine.places.place import Place
from tests.console_places import a_console, loaded, until
from tests.nftban_queues import ids_at, journal_at, store_at
from tests.tui.cli.plans.queue_of_plans import (
    HOUR,
    LONG_AGO,
    Command,
    act,
    objects,
    root,
    setup_of,
    tree,
)
from tests.tui.cli.run_clock_records import agree_with_clock
from tui.cli.setup.places import make_place

__all__ = ["act", "root"]  # fixtures


def test_the_trash_is_listed_and_restored(root: Path, act: Command) -> None:
    """Each task is restored to where it was, and as held if there is no journal."""
    before = tree(root)
    act("purge --state pending --apply 3")
    (operation,) = journal_at(root).operations()
    listed, rows = act("trash list")[1].splitlines(), objects(act("trash list --json"))
    assert listed[-1] == "3 tasks, 633 B of 512.0 MB; each is kept for 24 hours"
    assert {(row["from"], row["op"]) for row in rows} == {("pending", operation.op)}
    assert {row["id"] for row in rows} == ids_at(root, "trash")
    assert all(row["bytes"] > 0 and row["trash_since"] > LONG_AGO for row in rows)
    act("purge --apply 6")
    trashed = sorted(ids_at(root, "trash"))
    foreseen = act("trash restore --dry-run " + " ".join(trashed))
    some, rest = (act("trash", "restore", *ids) for ids in (trashed[:4], trashed[3:]))
    assert (foreseen[0], some[0], rest[0]) == (0, 0, 1)
    assert f"{trashed[3]}: dlq, expected trash" in rest[2]
    assert tree(root) == before
    act("purge --state pending --apply 3")
    shutil.rmtree(journal_at(root).folder)
    assert act("trash list")[1].count("held: former state unknown") == 3


def test_after_a_day_the_trash_is_swept(
    root: Path, act: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purged tasks are deleted for good a day later, with their images, and not before."""
    agree_with_clock(monkeypatch)
    act("replay --rate now --filter kind=report --apply 3")
    act("purge --apply 3")
    setup, now = setup_of(root), time.time()
    foreseen, swept = act("trash sweep --dry-run"), act("trash sweep")
    with closing(open_spool(setup)) as store:
        early = setup.housekeeping().sweep_trash(store, now + 23 * HOUR)
        late = setup.housekeeping().sweep_trash(store, now + 25 * HOUR)
        again = setup.housekeeping().sweep_trash(store, now + 25 * HOUR, always=True)
    assert foreseen[:2] == (0, "0 purged more than 24 hours ago; nothing was changed\n")
    assert swept[:2] == (0, "0 tasks deleted permanently\n")
    assert [tuple(one) for one in (early, late, again)] == [(0, 0, 0), (3, 0, 1), (0, 0, 0)]
    assert ids_at(root, "trash") == set()
    assert len(journal_at(root).operations()) == 2


def test_a_run_sweeps_once_an_hour(root: Path, act: Command) -> None:
    """`process-next` sweeps when its mark is an hour old; never without trash."""
    mark = root / "queue" / ".spooldeck" / "swept"
    act("queue process-next --quiet")
    assert not mark.exists()
    act("purge --apply 6")
    for ago, sweeps in ((0.0, False), (2 * HOUR, True)):
        act("queue process-next --quiet")
        then = int(time.time() - ago) - 1
        os.utime(mark, (then, then))
        act("queue process-next --quiet")
        assert (mark.stat().st_mtime > then) == sweeps
    assert len(ids_at(root, "trash")) == 6


@pytest.fixture
def full(root: Path, act: Command) -> Place:
    """That queue with tasks in its trash, as the console gets it."""
    act("purge --apply 6")
    return make_place(setup_of(root), str(root))


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_console_sweeps_when_it_starts(root: Path, full: Place, read_only: bool) -> None:
    """On a thread of its own, and only a console that may write."""
    swept = threading.Event()

    def sweep() -> str:
        try:
            assert full.sweep is not None
            return full.sweep()
        finally:
            swept.set()

    console = a_console(full._replace(sweep=sweep), clock=time.time, read_only=read_only)
    async with console.run_test() as pilot:
        await loaded(pilot)
        if not read_only:
            await until(pilot, swept.is_set)
    names = await asyncio.to_thread(os.listdir, root / "queue" / ".spooldeck")
    assert swept.is_set() is not read_only
    assert ("swept" in names) is not read_only
    assert len(await asyncio.to_thread(ids_at, root, "trash")) == 6


def test_expunge_cannot_be_undone(root: Path, act: Command) -> None:
    """The dry run warns and names `hold` instead; the payload is deleted too."""
    payload = root / "mailspool" / "body"
    payload.parent.mkdir(exist_ok=True)
    payload.write_text("hello")
    with store_at(root) as store:
        task = verbs.enqueue("mail_send", LONG_AGO, "000000ff", "", str(payload))
        store.swap(None, task)
    act(f"purge --id {task.id} --apply 1")
    is_kept = payload.exists()
    foreseen = act("expunge --state trash --dry-run")[1]
    code, out, _ = act("expunge --state trash --apply 1")
    assert "cannot be undone" in foreseen and "`hold` instead" in foreseen
    assert (is_kept, code, payload.exists()) == (True, 0, False)
    assert "to take it back" not in out
    assert act("undo")[1].count("purge") == 1
