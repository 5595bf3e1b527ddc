"""A process on a Kannader spool may die anywhere: no mail is lost, torn or there twice."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine.model import Problem, State, Task
from engine.stores.kannader import KannaderStore, form, make_spool
from engine.stores.kannader.spool import ASIDE
from tests.examples import deep_but
from tests.stores.children import ends
from tests.stores.killed_kannader import (
    ADDED,
    IDS,
    LATER,
    MAKE,
    TEXT,
    VERBS,
    decide,
    dismiss,
    later,
    let_stand,
    orphans,
    repair,
)

Seen = tuple[State, int | None, str, str]

WAITS: Seen = (State.PENDING, 0, "before", "b0@h0.org")
OTHER: Seen = (State.PENDING, 0, "a@example.org to b1@h1.org", "b1@h1.org")


def in_state(state: State, attempts: int | None = 0) -> Seen:
    """The mail to the first recipient somewhere else."""
    return (state, attempts, *WAITS[2:])


OUTCOMES: dict[str, tuple[Seen | None, Seen | None]] = {
    "enqueue": (None, WAITS),
    "add": (None, (State.PENDING, 1, "<> to c@example.org", "c@example.org")),
    "take": (WAITS, in_state(State.ACTIVE)),
    "ack": (in_state(State.ACTIVE), None),
    "nack": (in_state(State.ACTIVE), in_state(State.PENDING, 1)),
    "unclaim": (in_state(State.ACTIVE), WAITS),
    "give up": (in_state(State.ACTIVE), None),
    "put back": (WAITS, (State.PENDING, 0, "after!", "b0@h0.org")),
    "readdress": (WAITS, (State.PENDING, 0, "before", "x@y.org")),
    "postpone": (WAITS, WAITS),
    "hold": (WAITS, in_state(State.HELD)),
    "release": (in_state(State.HELD), WAITS),
    "purge": (WAITS, in_state(State.TRASH)),
    "restore": (in_state(State.TRASH), WAITS),
    "drop": (WAITS, None),
    "undo": (WAITS, WAITS),
    "undo a hold": (in_state(State.HELD), (State.PENDING, 0, "after!", "x0@h0.org")),
    "undo a purge": (in_state(State.TRASH), (State.PENDING, 0, "after!", "x0@h0.org")),
    "hold in flight": (in_state(State.ACTIVE), in_state(State.HELD)),
    "readdress the held": (in_state(State.HELD), (State.HELD, 0, "before", "x@y.org")),
    "purge the held": (in_state(State.HELD), in_state(State.TRASH)),
    "restore to hold": (in_state(State.TRASH), in_state(State.HELD)),
    "expunge": (in_state(State.TRASH), None),
    "erase": (None, None),
    "recover": (in_state(State.PENDING, 1), in_state(State.PENDING, 1)),
    "settle": (in_state(State.PENDING, 2), in_state(State.PENDING, 2)),
    "finish": (WAITS, WAITS),
    "take away": (WAITS, WAITS),
    "delete orphans": (WAITS, WAITS),
    "repair": (WAITS, WAITS),
    "adopt": (WAITS, WAITS),
    "discard": (None, None),
    "discard the last": (WAITS, WAITS),
    "discard a mail": (WAITS, WAITS),
    "let stand": (WAITS, WAITS),
    "dismiss": (None, None),
}
"""What each verb of killed_kannader.py starts from and leads to, once recovered: state, attempts,
description, recipient; None where the mail to the first recipient is nowhere.
"""


BETWEEN: dict[str, Seen] = {
    "nack": in_state(State.ACTIVE, None),
    "undo": (*WAITS[:3], "x@y.org"),
    "undo a hold": (State.HELD, 0, "before", "x0@h0.org"),
    "undo a purge": (State.TRASH, 0, "before", "x0@h0.org"),
}
"""Where neither is right: the schedule says that an attempt has failed, and the link has not moved,
so that it counts once the mail is given back; what is to be taken back is done; or what the mail
was is written, and its link has not moved.
"""


AGAIN: dict[str, tuple[Callable[[KannaderStore], bool], Callable[[KannaderStore], None]]] = {
    "repair": (lambda store: IDS[0] not in there(store), repair),
    "adopt": (lambda store: bool(orphans(store)), lambda store: decide(store, "adopt")),
    "discard": (lambda store: bool(orphans(store)), lambda store: decide(store, "discard")),
    "discard the last": (
        lambda store: bool(orphans(store)),
        lambda store: decide(store, "discard"),
    ),
    "discard a mail": (lambda store: bool(orphans(store)), lambda store: decide(store, "discard")),
    "let stand": (lambda store: IDS[0] not in there(store), let_stand),
    "dismiss": (lambda store: any(quarantined(store)), dismiss),
}
"""What an operator decides: whether it is to be done still, and how it is then done again."""


WAITING = ("queue", "inflight", "hold", "trash")
"""Whatever a link in one of these leads to is whole, at every moment: a Kannader may read it now,
and nothing of a mail is to be seen there before all of it is there.
"""


def test_every_verb_has_an_outcome() -> None:
    """No verb is killed without being judged."""
    assert OUTCOMES.keys() == VERBS.keys()


QUICK = {"hold", "purge", "take"}


@pytest.mark.parametrize("verb", deep_but(QUICK, OUTCOMES))
def test_a_killed_process_loses_nothing(verb: str, tmp_path: Path) -> None:
    """Killed before, within or after any step, or refused by the disk there, a verb is done or not
    done once the next process has recovered: the mail is whole, under one link, the other
    recipient's as well, and nothing is left to recover. Where it said that it was done, it is.
    While a mail is enqueued, no recipient is whole before its contents are: no torn mail could be
    adopted.
    """
    before, after = OUTCOMES[verb]
    points = ends("killed_kannader", str(tmp_path), verb)
    if verb in ("enqueue", "add"):
        assert not [name for name, _ in points if torn_beside_a_whole_recipient(tmp_path / name)]

    assert {"killed", "done"} <= {how for _, how in points} <= {"killed", "done", "refused"}
    for name, how in points:
        root = tmp_path / name
        clock = later if verb in LATER else lambda: time.time() + 61
        with closing(KannaderStore(str(root), clock)) as store:
            if verb not in ("recover", "repair"):
                strange = [s for s in store.look(WAITING) if isinstance(s, Problem)]
                assert strange == [], (name, strange)
            lacks, act = AGAIN.get(verb, (lambda store: False, repair))
            if lacks(store):
                assert how != "done", name
                act(store)
            store.recover()
            shown = list(dict.fromkeys(store.look()))
            again = store.recover()
            tasks = [item for item in shown if isinstance(item, Task)]
            for task in tasks:
                with store.contents(task) as contents:
                    text = form.wire(b"") if verb == "add" else form.wire(TEXT)
                    assert contents.read() == text, name

        aside = [path.name for path in root.glob(".spooldeck/aside/*")]
        assert sorted(aside) == (["inflight.double", "queue.strange"] if verb == "recover" else [])
        assert len(shown) - len(tasks) == len(aside), (name, shown)
        first = ADDED.id if verb == "add" else IDS[0]
        # What was adopted has another id than it had.
        ids = [IDS[0] if verb == "adopt" and t.id != IDS[1] else t.id for t in tasks]
        stands = dict(zip(ids, map(seen_as, tasks), strict=True))
        assert len(stands) == len(tasks), name
        assert set(stands) <= {first} | ({IDS[1]} if verb != "add" else set()), name
        if verb not in ("enqueue", "add"):
            assert stands[IDS[1]] == OTHER, name
        allowed = [after] if how == "done" else [before, after, BETWEEN.get(verb, before)]
        assert stands.get(first) in allowed, (name, how, stands)
        assert verb != "enqueue" or (IDS[1] in stands) == (first in stands), name
        assert again == [], name
        assert left_over(root, bool(tasks)) == [], name


def test_whoever_dies_making_a_spool_keeps_nobody_from_it(tmp_path: Path) -> None:
    """Killed or refused by the disk at any step, it is made by whoever makes it then."""
    points = ends("killed_kannader", str(tmp_path), MAKE)

    assert {"killed", "raw", "done"} == {how for _, how in points}
    for name, how in points:
        lacking = make_spool(str(tmp_path / name))
        assert how != "done" or lacking == [], name
        with closing(KannaderStore(str(tmp_path / name))) as store:
            assert list(store.look()) == []
            assert store.recover() == []
            assert not store.edges[None, State.PENDING].refused, name


def seen_as(task: Task) -> Seen:
    """What of a task an outcome tells."""
    return task.state, task.attempts, task.description, task.destination


def torn_beside_a_whole_recipient(root: Path) -> bool:
    """Whether a recipient has a whole envelope and schedule, and its mail no whole contents."""
    for metadata in root.glob("data/*/*/metadata"):
        files = metadata, metadata.with_name("schedule")
        contents = metadata.parents[1] / "contents"
        if all(path.exists() and path.read_bytes().endswith(b"}") for path in files):
            return not contents.exists() or not form.ends_mail(contents.read_bytes()[-5:])
    return False


def there(store: KannaderStore) -> set[str]:
    """The ids of all mails."""
    return {item.id for item in store.look() if isinstance(item, Task)}


def quarantined(store: KannaderStore) -> list[str]:
    """The links in quarantine."""
    strange = (item.where for item in store.look() if isinstance(item, Problem))
    return [where for where in strange if where.startswith(ASIDE)]


def left_over(root: Path, whole: bool) -> list[str]:
    """Files that belong to no mail, and mails that belong to nobody."""
    known = {"contents", "schedule", "metadata", ".lock"}
    found = [path.name for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    notes = [path.name for path in root.glob(".spooldeck/notes/*")]
    strange = [name for name in found if name not in known and name not in notes]
    strange += [name for name in notes if name.endswith(".next") or name.startswith(".")]
    mails = list((root / "data").iterdir())
    return strange + ([] if len(mails) == whole else [str(mail) for mail in mails])
