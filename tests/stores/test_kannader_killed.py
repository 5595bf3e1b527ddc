"""A process on a Kannader spool may die anywhere: no mail is lost, torn or there twice."""

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.model import Problem, State, Task
from engine.stores.kannader import KannaderStore, form
from tests.stores.killed_kannader import ADDED, IDS, TEXT, VERBS, later

ROOT = Path(__file__).parents[2]
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
    "expunge": (in_state(State.TRASH), None),
    "erase": (None, None),
    "recover": (in_state(State.PENDING, 1), in_state(State.PENDING, 1)),
    "repair": (WAITS, WAITS),
}
"""What each verb of killed_kannader.py starts from and leads to, once recovered: state, attempts,
description, recipient; None where the mail to the first recipient is nowhere.
"""


BETWEEN: dict[str, Seen] = {
    "nack": in_state(State.ACTIVE, None),
    "undo": (*WAITS[:3], "x@y.org"),
}
"""Where neither is right: the schedule says that an attempt has failed, and the link has not moved,
so that it counts once the mail is given back; or what is to be taken back is done.
"""


WAITING = ("queue", "inflight", "hold", "trash")
"""Whatever a link in one of these leads to is whole, at every moment: a Kannader may read it now,
and nothing of a mail is to be seen there before all of it is there.
"""


def test_every_verb_has_an_outcome() -> None:
    """No verb is killed without being judged."""
    assert OUTCOMES.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", OUTCOMES)
def test_a_killed_process_loses_nothing(verb: str, tmp_path: Path) -> None:
    """Killed before, within or after any step, or refused by the disk there, a verb is done or not
    done once the next process has recovered: the mail is whole, under one link, the other
    recipient's as well, and nothing is left to recover. Where it said that it was done, it is.
    """
    before, after = OUTCOMES[verb]
    said = subprocess.run(
        [sys.executable, "-m", "tests.stores.killed_kannader", str(tmp_path), verb],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert said.returncode == 0, said.stderr

    points = [line.rsplit(" ", 1) for line in said.stdout.splitlines()]
    assert {"killed", "done"} <= {how for _, how in points} <= {"killed", "done", "refused"}
    for name, how in points:
        root = tmp_path / name
        clock = later if verb == "recover" else lambda: time.time() + 61
        with closing(KannaderStore(str(root), clock)) as store:
            if verb == "repair":
                mend(store)
            else:
                strange = [s for s in store.look(WAITING) if isinstance(s, Problem)]
                assert verb == "recover" or strange == [], (name, strange)
            store.recover()
            shown = list(dict.fromkeys(store.look()))
            again = store.recover()
            tasks = {item.id: item for item in shown if isinstance(item, Task)}
            for task in tasks.values():
                with store.contents(task) as contents:
                    text = form.wire(TEXT) if task.id in IDS else form.wire(b"")
                    assert contents.read() == text, name

        aside = [path.name for path in root.glob(".spooldeck/aside/*")]
        assert sorted(aside) == (["inflight.double", "queue.strange"] if verb == "recover" else [])
        assert len(shown) - len(tasks) == len(aside), (name, shown)
        stands = {task.id: seen_as(task) for task in tasks.values()}
        first = ADDED.id if verb == "add" else IDS[0]
        rest = {first} | ({IDS[1]} if verb != "add" else set())
        assert set(stands) <= rest, name
        if verb not in ("enqueue", "add"):
            assert stands[IDS[1]] == OTHER, name
        allowed = [after] if how == "done" else [before, after, BETWEEN.get(verb, before)]
        assert stands.get(first) in allowed, (name, how, stands)
        assert verb != "enqueue" or (IDS[1] in stands) == (first in stands), name
        assert again == [], name
        assert left_over(root, bool(tasks)) == [], name


def seen_as(task: Task) -> Seen:
    """What of a task an outcome tells."""
    return task.state, task.attempts, task.description, task.destination


def mend(store: KannaderStore) -> None:
    """Repair what is not repaired yet."""
    if not any(isinstance(item, Task) for item in store.look({IDS[0]})):
        store.control("repair", f"queue/{IDS[0]}")


def left_over(root: Path, whole: bool) -> list[str]:
    """Files that belong to no mail, and mails that belong to nobody."""
    known = {"contents", "schedule", "metadata", ".lock"}
    found = [path.name for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    notes = [path.name for path in root.glob(".spooldeck/notes/*")]
    strange = [name for name in found if name not in known and name not in notes]
    strange += [name for name in notes if name.endswith(".next") or name.startswith(".")]
    mails = list((root / "data").iterdir())
    return strange + ([] if len(mails) == whole else [str(mail) for mail in mails])
