"""Kills a process at every step of one verb on a Kannader spool: run by test_kannader_killed.py.

`python -m tests.stores.killed_kannader FOLDER VERB` does what killed.py does, and says the same.
"""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine import verbs
from engine.model import Move, Problem, State, Task
from engine.stores.kannader import KannaderStore, enqueuing, form, make_spool, note
from engine.stores.kannader.desk import Desk
from engine.stores.kannader.enqueuing import Recipient
from engine.stores.kannader.form import Schedule, Target
from engine.stores.kannader.spool import ASIDE, DESK, Spool
from tests.stores.children import end_everywhere, ended

NOW = 1_795_170_000.0
TEXT = b"Subject: hi\r\n\r\n.dot and \xff\r\n"
DESTS = ("aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002")
IDS = ("cccccccc-0000-4000-8000-000000000001", "cccccccc-0000-4000-8000-000000000002")
ADDED = Task("added", "mail", State.PENDING, NOW, attempts=1, destination="c@example.org")

Act = Callable[[KannaderStore, Task], object]

NOTED = ((b"before", b"after!"),)
BOTH = (*NOTED, (b'"b0"', b'"x0"'))
"""What an image says of the mail other than it is, in as many bytes."""

VERBS: dict[str, tuple[State | None, Act]] = {
    "enqueue": (None, lambda store, task: send(store)),
    "add": (None, lambda store, task: store.swap(None, ADDED)),
    "take": (State.PENDING, lambda store, task: list(store.take(NOW, "me", 1, to_first))),
    "ack": (State.ACTIVE, lambda store, task: store.swap(task, None)),
    "nack": (State.ACTIVE, lambda s, t: s.swap(t, verbs.nack(t, NOW + 60, "failed"))),
    "unclaim": (State.ACTIVE, lambda store, task: store.swap(task, verbs.unclaim(task))),
    "give up": (State.ACTIVE, lambda store, task: store.swap(task, given_up(task))),
    "put back": (State.PENDING, lambda store, task: put_back(store, task, NOTED)),
    "readdress": (State.PENDING, lambda s, t: s.swap(t, replace(t, destination="x@y.org"))),
    "postpone": (State.PENDING, lambda s, t: s.swap(t, replace(t, due=NOW + 60))),
    "hold": (State.PENDING, lambda store, task: store.swap(task, verbs.hold(task, NOW))),
    "release": (State.HELD, lambda store, task: store.swap(task, verbs.release(task, NOW))),
    "purge": (State.PENDING, lambda store, task: store.swap(task, verbs.purge(task, NOW))),
    "restore": (State.TRASH, lambda s, t: s.swap(t, replace(t, state=State.PENDING))),
    "drop": (State.PENDING, lambda store, task: store.swap(task, given_up(task))),
    "undo": (State.PENDING, lambda store, task: do_and_undo(store, task)),
    "undo a hold": (State.HELD, lambda store, task: put_back(store, task, BOTH)),
    "undo a purge": (State.TRASH, lambda store, task: put_back(store, task, BOTH)),
    "hold in flight": (State.ACTIVE, lambda s, t: s.swap(t, moved(t, State.HELD))),
    "readdress the held": (State.HELD, lambda s, t: s.swap(t, replace(t, destination="x@y.org"))),
    "purge the held": (State.HELD, lambda s, t: s.swap(t, moved(t, State.TRASH))),
    "restore to hold": (State.TRASH, lambda s, t: s.swap(t, moved(t, State.HELD))),
    "expunge": (State.TRASH, lambda store, task: store.swap(task, None)),
    "erase": (State.DONE, lambda store, task: store.swap(task, None)),
    "recover": (State.ACTIVE, lambda store, task: store.recover()),
    "settle": (State.PENDING, lambda store, task: store.recover()),
    "finish": (State.PENDING, lambda store, task: store.recover()),
    "take away": (State.PENDING, lambda store, task: store.recover()),
    "delete orphans": (State.PENDING, lambda store, task: store.recover()),
    "repair": (State.PENDING, lambda store, task: repair(store)),
    "adopt": (State.PENDING, lambda store, task: decide(store, "adopt")),
    "discard": (State.PENDING, lambda store, task: decide(store, "discard")),
    "discard the last": (State.PENDING, lambda store, task: decide(store, "discard")),
    "discard a mail": (State.PENDING, lambda store, task: decide(store, "discard")),
    "let stand": (State.PENDING, lambda store, task: let_stand(store)),
    "dismiss": (State.PENDING, lambda store, task: dismiss(store)),
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


def put_back(store: KannaderStore, task: Task, said: tuple[tuple[bytes, bytes], ...]) -> None:
    """Have a mail wait in the queue as something else was once said of it."""
    image = store.read(task)
    for now, then in said:
        image = image.replace(now, then)
    was = store.recall(task, image, State.PENDING)
    (outcome,) = store.swap_all([Move(task, was, image)])
    if outcome.error is not None:
        raise outcome.error


def moved(task: Task, state: State) -> Task:
    """The same mail somewhere else."""
    return replace(task, state=state, lease=None)


def repair(store: KannaderStore) -> None:
    """Give the mail to the first recipient a schedule."""
    store.control("repair", f"queue/{IDS[0]}")


def let_stand(store: KannaderStore) -> None:
    """Put the link to the first recipient back where it stood."""
    store.control("put-back", f"{ASIDE}/queue.{IDS[0]}")


def dismiss(store: KannaderStore) -> None:
    """Discard the quarantined link to the first recipient, and with it the mail to that one."""
    store.control("discard", f"{ASIDE}/queue.{IDS[0]}")


def decide(store: KannaderStore, control: str) -> None:
    """Say what becomes of the one thing that nothing leads to."""
    (orphan,) = orphans(store)
    store.control(control, orphan)


def orphans(store: KannaderStore) -> list[str]:
    """Where something lies that nothing leads to."""
    strange = (item for item in store.look() if isinstance(item, Problem))
    return [item.where for item in strange if item.where.startswith("data/")]


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
        store.swap(task, moved(task, state))
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


def dest_of(root: Path, number: int = 0) -> Target:
    """Where a recipient of the mail lies."""
    (path,) = (root / "data").glob(f"*/{DESTS[number]}")
    return Target(path.parent.name, path.name)


def stage(root: Path) -> None:
    """Leave an attempt that counts, and one whose mail never moved, noted but not settled."""
    notes = root / DESK / "notes"
    for number, staged in enumerate(
        (
            note.Note(2, "failed", description="before", start="inflight", since=1),
            note.Note(9, "never", start="queue", since=link_of(root, 1).lstat().st_ctime_ns),
        )
    ):
        name = note.name_of(dest_of(root, number)) + note.STAGED
        (notes / name).write_bytes(note.render(staged))


def link_of(root: Path, number: int) -> Path:
    """The link to a recipient of the mail."""
    return root / "queue" / IDS[number]


def half_linked(root: Path) -> None:
    """Leave the mail as a process leaves it that dies between the links of its two recipients."""
    link_of(root, 1).unlink()
    begun = enqueuing.Begun(dest_of(root).mail, tuple(zip(IDS, DESTS, strict=True)))
    write_down(root, begun, enqueuing.LINKING)


def half_built(root: Path) -> None:
    """Leave a second mail as a process leaves it that dies before its first link."""
    ident, target = another(root)
    write_down(root, enqueuing.Begun(target.mail, ((ident, target.dest),)), b"")


def write_down(root: Path, begun: enqueuing.Begun, rest: bytes) -> None:
    """Say on the desk that a mail is being enqueued."""
    (root / DESK / "enqueuing" / begun.mail).write_bytes(begun.render() + rest)


def another(root: Path) -> tuple[str, Target]:
    """A second, whole mail, to one recipient whose link is gone: its id, and where it lies."""
    with closing(KannaderStore(str(root), lambda: NOW)) as store:
        (ident,) = store.enqueue("a@example.org", ["d@example.org"], [b"another"])
    link = root / "queue" / ident
    target = form.target_of(str(link.readlink()))
    link.unlink()
    (root / DESK / "notes" / note.name_of(target)).write_bytes(note.render(note.Note(1, "no")))
    return ident, target


def orphan(root: Path) -> None:
    """Let nothing lead to the first recipient."""
    link_of(root, 0).unlink()


def orphan_another(root: Path) -> None:
    """Let a second mail lie there to which nothing leads."""
    another(root)


def orphan_a_mail(root: Path) -> None:
    """Leave a second mail as a process leaves it that dies over its text."""
    mail = root / "data" / DESTS[0]
    mail.mkdir()
    (mail / "contents").write_bytes(b"torn")


def orphan_many(root: Path) -> None:
    """Leave a torn mail that nothing leads to, and notes of nobody."""
    _, target = another(root)
    (root / "data" / target.path / "metadata").unlink()
    for name in (note.name_of(Target(*DESTS)), ".draft"):
        (root / DESK / "notes" / name).write_bytes(b"{}")


def set_aside(root: Path) -> None:
    """Let the link to the first recipient lie where recovery puts one that leads nowhere."""
    aside = root / ASIDE
    aside.mkdir(mode=0o700)
    link_of(root, 0).rename(aside / f"queue.{IDS[0]}")


FIRST = {
    "recover": damage,
    "repair": tear,
    "settle": stage,
    "finish": half_linked,
    "take away": half_built,
    "delete orphans": orphan_many,
    "adopt": orphan,
    "discard": orphan,
    "discard the last": orphan_another,
    "discard a mail": orphan_a_mail,
    "let stand": set_aside,
    "dismiss": set_aside,
}
"""What happens to the spool before the verb, where that is not by the store."""

LATER = ("recover", "delete orphans", "adopt", "discard", "discard the last", "discard a mail")
"""Verbs that have to do with what has been as it is for more than an hour."""


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

    def begin() -> Callable[[], object]:
        return partial(act, KannaderStore(folder, later if verb in LATER else lambda: NOW), task)

    return ended(begin, step, how)


MAKE = "make"
"""What makes a spool, where there is none."""


def make(folder: str, step: int, how: str) -> str:
    """The same of making a spool."""
    return ended(lambda: partial(make_spool, folder), step, how)


if __name__ == "__main__":
    root, verb = sys.argv[1:]
    end_everywhere(
        root,
        verb,
        make if verb == MAKE else lambda folder, step, how: run(folder, verb, step, how),
    )
