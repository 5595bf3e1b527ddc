"""How the next task of a spool is found: by name, by kind, and by what was learnt before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import verbs
from engine.stores.nftban import NftbanStore, Spool, make_spool
from engine.stores.nftban.hint import BELIEVED, NextDue
from engine.stores.nftban.line import Line, kind_of

NOW = 1_795_239_223.0


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool of our own, in which modification times say when tasks are due."""
    queue = tmp_path / "queue"
    made = Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")
    make_spool(made)
    return made


@pytest.fixture
def store(spool: Spool) -> Iterator[NftbanStore]:
    """Its store, at a time of its own."""
    opened = NftbanStore(spool, clock=lambda: NOW)
    yield opened
    opened.close()


def add(store: NftbanStore, kind: str = "report", token: str = "0a0a0a0a") -> None:
    """One task, due at once."""
    store.swap(None, verbs.enqueue(kind, NOW, token))


def fail_one(store: NftbanStore, due: float) -> None:
    """The next task waits until `due`."""
    (task,) = store.take(NOW, "test", 1)
    store.swap(task, verbs.nack(task, due, "no use"))


def names(spool: Spool) -> set[str]:
    """What lies on the desk."""
    return {path.name for path in Path(spool.desk).iterdir()}


def settle(spool: Spool) -> None:
    """As if the folder had been changed some time ago."""
    os.utime(spool.pending, (NOW - 60, NOW - 60))


def test_a_folder_where_nothing_is_due_is_remembered(spool: Spool, store: NftbanStore) -> None:
    """The second run that finds nothing due does not look at the tasks, and knows when to."""
    add(store)
    fail_one(store, NOW + 60)
    settle(spool)
    assert list(store.take(NOW, "test", 1)) == []
    assert "next-due" in names(spool)
    for path in Path(spool.pending).iterdir():
        path.write_text("not looked at")

    fresh = NftbanStore(spool, clock=lambda: NOW)

    assert list(fresh.take(NOW + 1, "test", 1)) == []
    assert fresh.doorbell.due == NOW + 60
    fresh.close()


def test_a_task_that_arrives_is_found_in_spite_of_the_hint(
    spool: Spool, store: NftbanStore
) -> None:
    """Whatever changes the folder makes the hint void."""
    add(store)
    fail_one(store, NOW + 60)
    settle(spool)
    list(store.take(NOW, "test", 1))

    add(store, token="0b0b0b0b")

    (task,) = store.take(NOW + 1, "test", 1)
    assert task.id.endswith("0b0b0b0b")


def test_when_its_time_has_come_a_task_is_found(spool: Spool, store: NftbanStore) -> None:
    """At the remembered time the folder is looked at again."""
    add(store)
    fail_one(store, NOW + 60)
    settle(spool)
    list(store.take(NOW, "test", 1))

    assert len(list(store.take(NOW + 60, "test", 1))) == 1


def test_due_but_unwanted_tasks_leave_no_hint(spool: Spool, store: NftbanStore) -> None:
    """ "Nothing due" is not remembered when something was only not wanted."""
    add(store)
    settle(spool)

    assert list(store.take(NOW, "test", 1, lambda kind, group: False)) == []

    assert "next-due" not in names(spool)


@pytest.mark.parametrize(
    ("text", "now"),
    [
        (b"", NOW),
        (b"garbage", NOW),
        (b"1 2", NOW),
        (b"{stamp} {later} {now}", NOW + BELIEVED),
        (b"{stamp} {later} {now}", NOW - 1),
        (b"1 {later} {now}", NOW),
        (b"{stamp} {now} {now}", NOW),
    ],
    ids=["empty", "garbage", "torn", "too old", "clock back", "folder changed", "due"],
)
def test_a_hint_in_doubt_is_no_hint(tmp_path: Path, text: bytes, now: float) -> None:
    """A hint that is torn, old, from the future or for another state of the folder is ignored."""
    folder = os.open(tmp_path, os.O_RDONLY)
    path = tmp_path / "hint"
    path.touch()
    values = {"stamp": os.fstat(folder).st_mtime_ns, "later": int(NOW) + 999, "now": int(NOW)}
    path.write_bytes(text.decode().format(**values).encode())

    answer = NextDue(str(path)).read(folder, now)

    os.close(folder)
    assert answer is None


def test_a_kind_that_is_not_wanted_keeps_its_place(store: NftbanStore) -> None:
    """Passed by while it is not wanted, the older kind comes first once it is."""
    add(store, "alpha", "00000001")
    add(store, "beta", "00000002")
    add(store, "beta", "00000003")
    wanted = {"beta"}
    taking = store.take(NOW, "test", 9, lambda kind, group: kind in wanted)

    first = next(taking)
    wanted.add("alpha")
    rest = [task.kind for task in taking]

    assert first.kind == "beta"
    assert rest == ["alpha", "beta"]


kinds = st.sampled_from(["alpha", "beta", "mail_send"])


@given(st.lists(st.tuples(kinds, st.integers(0, 99))), st.sets(kinds))
def test_the_line_is_in_the_order_of_names(rows: list[tuple[str, int]], wanted: set[str]) -> None:
    """Whatever kinds are wanted, theirs come in order, and the others stay."""
    line = sorted((f"20261121T0533{n:02}Z-{kind}-0a0a0a0a.task", n) for kind, n in set(rows))
    waiting = Line(line)

    came = []
    while (candidate := waiting.next(lambda kind, group: kind in wanted)) is not None:
        came.append(candidate)

    assert came == [candidate for candidate in line if kind_of(candidate[0]) in wanted]
    assert len(waiting) == len(line) - len(came)
