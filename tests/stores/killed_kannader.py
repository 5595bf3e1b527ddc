"""Kills a process at every step of one verb on a Kannader spool: run by test_kannader_killed.py.

`python -m tests.stores.killed_kannader FOLDER VERB` does what killed.py does, and says the same.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine import verbs
from engine.model import Move, State, Task
from engine.store import StoreError
from engine.stores.kannader import KannaderStore, enqueuing, form, make_spool, note
from engine.stores.kannader.desk import Desk
from engine.stores.kannader.enqueuing import Recipient
from engine.stores.kannader.form import Schedule, Target
from engine.stores.kannader.spool import Spool
from tests.stores.killed import ERRORS, deadly

NOW = 1_795_170_000.0
TEXT = b"Subject: hi\r\n\r\n.dot and \xff\r\n"
DESTS = ("aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002")
IDS = ("cccccccc-0000-4000-8000-000000000001", "cccccccc-0000-4000-8000-000000000002")
ADDED = Task("added", "mail", State.PENDING, NOW, attempts=1, destination="c@example.org")

Act = Callable[[KannaderStore, Task], object]

VERBS: dict[str, tuple[State | None, Act]] = {
    "enqueue": (None, lambda store, task: send(store)),
    "add": (None, lambda store, task: store.swap(None, ADDED)),
    "take": (State.PENDING, lambda store, task: list(store.take(NOW, "me", 1, to_first))),
    "ack": (State.ACTIVE, lambda store, task: store.swap(task, None)),
    "nack": (State.ACTIVE, lambda s, t: s.swap(t, verbs.nack(t, NOW + 60, "failed"))),
    "unclaim": (State.ACTIVE, lambda store, task: store.swap(task, verbs.unclaim(task))),
    "give up": (State.ACTIVE, lambda store, task: store.swap(task, given_up(task))),
    "put back": (State.PENDING, lambda store, task: put_back(store, task)),
    "readdress": (State.PENDING, lambda s, t: s.swap(t, replace(t, destination="x@y.org"))),
    "postpone": (State.PENDING, lambda s, t: s.swap(t, replace(t, due=NOW + 60))),
    "hold": (State.PENDING, lambda store, task: store.swap(task, verbs.hold(task, NOW))),
    "release": (State.HELD, lambda store, task: store.swap(task, verbs.release(task, NOW))),
    "purge": (State.PENDING, lambda store, task: store.swap(task, verbs.purge(task, NOW))),
    "restore": (State.TRASH, lambda s, t: s.swap(t, replace(t, state=State.PENDING))),
    "drop": (State.PENDING, lambda store, task: store.swap(task, given_up(task))),
    "undo": (State.PENDING, lambda store, task: do_and_undo(store, task)),
    "expunge": (State.TRASH, lambda store, task: store.swap(task, None)),
    "erase": (State.DONE, lambda store, task: store.swap(task, None)),
    "recover": (State.ACTIVE, lambda store, task: store.recover()),
    "repair": (State.PENDING, lambda store, task: store.control("repair", f"queue/{IDS[0]}")),
}
"""Where the mail to the first recipient stands before, and what is done to it."""


def to_first(kind: str, group: str) -> bool:
    """Whether a mail goes to the first recipient."""
    return group == "h0.org"


def do_and_undo(store: KannaderStore, task: Task) -> None:
    """Give a mail another recipient, and take that back by its image."""
    image = store.read(task)
    store.swap(task, replace(task, destination="x@y.org"))
    (seen,) = (item for item in store.look({task.id}) if isinstance(item, Task))
    was = store.recall(seen, image, State.PENDING)
    (outcome,) = store.swap_all([Move(seen, was, image)])
    if outcome.error is not None:
        raise outcome.error


def put_back(store: KannaderStore, task: Task) -> None:
    """Put something else that was once noted of a mail back, where it stands."""
    image = store.read(task).replace(b"before", b"after!")
    was = store.recall(task, image, State.PENDING)
    (outcome,) = store.swap_all([Move(task, was, image)])
    if outcome.error is not None:
        raise outcome.error


def given_up(task: Task) -> Task:
    """A mail that is not tried again."""
    return replace(task, state=State.DONE, attempts=1, error="gave up", lease=None)


def send(store: KannaderStore) -> None:
    """Enqueue a mail to two recipients, by ids that are known."""
    spool = Spool(str(Path(store.doorbell.paths[0]).parent))
    desk = Desk(spool, durable=True)
    to = [
        Recipient(ident, dest, form.metadata_bytes("a@example.org", f"b{n}@h{n}.org"), note)
        for n, (ident, dest, note) in enumerate(zip(IDS, DESTS, NOTES, strict=True))
    ]
    schedule = form.schedule_bytes(Schedule(form.instant(NOW)))
    enqueuing.enqueue(spool, desk, to, enqueuing.wired([TEXT]), schedule)


NOTES = (note.Note(description="before"), note.NOTHING)


def prepare(store: KannaderStore, state: State) -> Task:
    """The mail to the first recipient where the verb finds it."""
    send(store)
    if state in (State.ACTIVE, State.DONE):
        (task,) = store.take(NOW, "me", 1)
    else:
        (task,) = (item for item in store.look({IDS[0]}) if isinstance(item, Task))
    if state is not task.state:
        store.swap(task, replace(task, state=state, lease=None))
        (task,) = (item for item in store.look({IDS[0]}) if isinstance(item, Task))
    return task


def later() -> float:
    """A time at which whatever was made until now has been in flight for more than an hour."""
    return time.time() + 7200


def damage(root: Path) -> None:
    """Leave beside the mail in flight what recovery has to do with."""
    mail = next(path for path in (root / "data").iterdir())
    (mail / DESTS[1] / f"schedule.{IDS[1]}").write_bytes(b"{")
    (root / "queue" / "strange").symlink_to("/nowhere")
    (root / "inflight" / "double").symlink_to(Target(mail.name, DESTS[0]).text)
    orphan = root / "data" / DESTS[0]
    orphan.mkdir()
    (orphan / "contents").write_bytes(b"torn")
    erasing = root / "data" / DESTS[1] / DESTS[0]
    erasing.mkdir(parents=True)
    (erasing / "schedule").write_bytes(b"")
    (root / "cleanup" / "erasing").symlink_to(Target(DESTS[1], DESTS[0]).text)


def tear(root: Path) -> None:
    """Tear the schedule of the mail to the first recipient."""
    next((root / "data").glob(f"*/{DESTS[0]}/schedule")).write_bytes(b"")


FIRST = {"recover": damage, "repair": tear}
"""What happens to the spool before the verb, where that is not by the store."""


def run(folder: str, verb: str, step: int, how: str) -> str:
    """One spool, one child, one death; how it ended."""
    state, act = VERBS[verb]
    make_spool(folder)
    task = ADDED
    if state is not None:
        store = KannaderStore(folder, lambda: NOW)
        task = prepare(store, state)
        store.close()
    if verb in FIRST:
        FIRST[verb](Path(folder))
    child = os.fork()
    if child == 0:
        store = KannaderStore(folder, later if verb == "recover" else lambda: NOW)
        count = deadly(step, how)
        try:
            act(store, task)
        except StoreError:
            os._exit(1)
        except OSError:
            os._exit(4)
        os._exit(2 if count[0] < step else 3)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    return {1: "refused", 2: "over", 3: "done", 4: "raw"}[os.WEXITSTATUS(status)]


def main(root: str, verb: str) -> None:
    """Every step in every manner, until the verb is over before it comes to that step."""
    for how in ("before", "torn", "after", *ERRORS):
        step, ended = 0, ""
        while ended != "over":
            step += 1
            name = f"{verb}-{how}-{step}".replace(" ", "_")
            ended = run(f"{root}/{name}", verb, step, how)
            sys.stdout.write(f"{name} {'done' if ended == 'over' else ended}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
