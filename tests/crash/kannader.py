"""Every verb of a Kannader spool: no mail is lost, torn or doubled, wherever a process dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from engine import verbs
from engine.formats.kannader import enqueue, mail_format, sidecar
from engine.formats.kannader.enqueue import Recipient
from engine.formats.kannader.mail_format import LinkTarget, MailSchedule
from engine.formats.kannader.moves import MailMover, SpoolLock
from engine.formats.kannader.spool import QUARANTINE_DIR, STAGING_DIR, KannaderSpool
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.model import Move, Problem, State, Task
from engine.store import Gone, StoreError
from tests.crash.harness import Case, Ended, tasks_in

NOW = 1_795_170_000.0
TEXT = b"Subject: hi\r\n\r\n.dot and \xff\r\n"
DESTS = ("aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002")
IDS = ("cccccccc-0000-4000-8000-000000000001", "cccccccc-0000-4000-8000-000000000002")
NOTES = (sidecar.AttemptNote(description="before"), sidecar.EMPTY_NOTE)
ADDED = Task("added", "mail", State.PENDING, NOW, attempts=1, destination="c@example.org")
WAITING = ("queue", "inflight", "hold", "trash")
"""What a link in one of these leads to is whole at every moment: a Kannader may read it now."""

Act = Callable[[KannaderStore, Task], object]
Prepare = Callable[[Path], None]
Seen = tuple[State, int | None, str, str]
"""What is compared of a mail: state, attempts, description, recipient."""

P, A, H, D, T = State.PENDING, State.ACTIVE, State.HELD, State.DONE, State.TRASH


def seen_as(task: Task) -> Seen:
    """Return what is compared of a mail."""
    return task.state, task.attempts, task.description, task.destination


class _Verb(Case):
    """What is done to the mail to the first of two recipients; the other stays as it is."""

    def __init__(
        self,
        start: State | None,
        act: Act,
        end: Seen | State | None,
        *,
        first: Prepare | None = None,
        between: Seen | None = None,
        settled: bool = False,
    ) -> None:
        """Take where the first mail is before the verb, and once it is done.

        `first`: what happens to the spool before; `between`: what else a kill may leave; `settled`:
        the verb deals only with what has been as it is for more than an hour."""
        self._start, self._act, self._first, self._settled = start, act, first, settled
        self._between = () if between is None else (between,)
        name = ADDED.id if act is _add else "adopted" if act is _adopt else IDS[0]
        self.end = {} if start is None and act is not send else {IDS[1]: OTHER}
        if end is not None:
            mail = (end, 0, "before", "b0@h0.org") if isinstance(end, State) else end
            self.end[name] = mail
        self.atomic = act is send

    def lay_out(self, root: Path) -> None:
        make_spool(str(root))
        if self._start is not None:
            with closing(KannaderStore(str(root), lambda: NOW)) as store:
                send(store)
                if self._start in (State.ACTIVE, State.DONE):
                    (task,) = store.take(NOW, "me", 1, _to_first)
                else:
                    task = _first_of(store)
                if task.state is not self._start:
                    store.swap(task, _moved(task, self._start))

    def restored(self, root: Path, now: float) -> None:
        if self._first is not None:
            self._first(root)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        store = KannaderStore(str(root), later if self._settled else lambda: NOW)
        needed = self._start is not None and self._first is None
        task = _first_of(store) if needed else ADDED
        return lambda: self._act(store, task)

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report a mail that is not whole, and a decision that is still to be taken."""
        with closing(KannaderStore(str(root), self._clock)) as store:
            if self._first not in (damage, tear):
                strange = [s for s in store.scan(WAITING) if isinstance(s, Problem)]
                yield from (f"half of a mail is visible: {problem}" for problem in strange)
            if ended.done and self._undecided(store):
                yield "done, and there is still something to decide"
        if self._act in (send, _add) and _torn_next_to_a_whole_recipient(root):
            yield "a recipient is whole before the contents are: a torn mail could be adopted"

    def recover(self, root: Path, now: float) -> None:
        """Recover as the next process does; an operator decides again where that is open."""
        with closing(KannaderStore(str(root), self._clock)) as store:
            if self._undecided(store):
                self._act(store, ADDED)
            store.recover()

    def _clock(self) -> float:
        return later() if self._settled else time.time() + 61

    def _undecided(self, store: KannaderStore) -> bool:
        if self._act in (_adopt, _discard):
            return bool(_orphans(store))
        if self._act is dismiss:
            return bool(_problems(store, QUARANTINE_DIR))
        ids = {task.id for task in tasks_in(store)}
        return self._act in (repair, abandon) and IDS[0] not in ids

    def content(self, root: Path) -> Mapping[str, object]:
        with closing(KannaderStore(str(root), self._clock)) as store:
            tasks = [t for t in dict.fromkeys(store.scan()) if isinstance(t, Task)]
            # What was adopted has another id than it had.
            found = {t.id if t.id in (*IDS, ADDED.id) else "adopted": seen_as(t) for t in tasks}
            assert len(found) == len(tasks), tasks
            for task in tasks:
                text = mail_format.encode_wire(b"" if self._act is _add else TEXT)
                assert store.read(task, mail_format.CONTENTS) == text, f"{task.id} is not whole"
        return found

    def between(self, name: str) -> tuple[object, ...]:
        return self._between if name == IDS[0] else ()

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Report what is left over, and what a second recovery would still do."""
        aside = sorted(path.name for path in root.glob(f"{QUARANTINE_DIR}/*"))
        expected = ["inflight.double", "queue.strange"] if self._first is damage else []
        if aside != expected:
            yield f"quarantined: {aside}"
        with closing(KannaderStore(str(root), self._clock)) as store:
            problems = [item for item in dict.fromkeys(store.scan()) if isinstance(item, Problem)]
            if len(problems) != len(aside):
                yield f"problems: {problems}"
            if again := store.recover():
                yield f"there was still something to recover: {again}"
        known = {"contents", "schedule", "metadata", ".lock"}
        notes = {path.name for path in root.glob(f"{STAGING_DIR}/notes/*")}
        names = {p.name for p in root.rglob("*") if p.is_file() and not p.is_symlink()}
        over = names - known - notes | {n for n in notes if n.endswith(".next") or n[0] == "."}
        mails = list((root / "data").iterdir())
        if over or len(mails) != bool(content):
            yield f"left over: {over}, {mails}"


class _Make(Case):
    """The making of a spool, where there is none."""

    refusals = (StoreError, OSError)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        return lambda: make_spool(str(root))

    def recover(self, root: Path, now: float) -> None:
        """Make it again: it works, after the death of any process."""
        make_spool(str(root))

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report a spool that is not made though the process returned."""
        if ended.done and (lacking := make_spool(str(root))):
            yield f"made, and lacks {lacking}"

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Report a spool that is not empty and open."""
        with closing(KannaderStore(str(root))) as store:
            if list(store.scan()) or store.recover() or store.edges[None, P].refusal:
                yield "it is no empty spool"


# ---- verbs


def _to_first(kind: str, group: str) -> bool:
    return group == "h0.org"


def _first_of(store: KannaderStore) -> Task:
    (task,) = tasks_in(store, IDS[:1])
    return task


def _moved(task: Task, state: State) -> Task:
    return task._replace(state=state, lease=None)


def _changed(change: Callable[[Task], Task | None]) -> Act:
    return lambda store, task: store.swap(task, change(task))


def _to(state: State) -> Act:
    return _changed(lambda task: _moved(task, state))


_delete = _changed(lambda task: None)
_give_up = _changed(
    lambda task: task._replace(state=State.DONE, attempts=1, error="gave up", lease=None)
)
_nack = _changed(lambda task: verbs.nack(task, NOW + 60, "failed"))
_readdress = _changed(lambda task: task._replace(destination="x@y.org"))


def send(store: KannaderStore, _: Task = ADDED) -> None:
    """Enqueue a mail to two recipients, by ids that are known."""
    spool = KannaderSpool(str(Path(store.changes.paths[0]).parent))
    mover = MailMover(spool, SpoolLock(spool), durable=True)
    recipients = [
        Recipient(ident, dest, mail_format.render_metadata("a@example.org", f"b{n}@h{n}.org"), note)
        for n, (ident, dest, note) in enumerate(zip(IDS, DESTS, NOTES, strict=True))
    ]
    schedule = mail_format.render_schedule(MailSchedule(mail_format.to_nanoseconds(NOW)))
    enqueue.enqueue(spool, mover, recipients, enqueue.wire_chunks([TEXT]), schedule)


def _add(store: KannaderStore, task: Task) -> None:
    store.swap(None, task)


def take(store: KannaderStore, task: Task) -> None:
    """Claim the mail."""
    if not list(store.take(NOW, "me", 1, _to_first)):
        raise Gone("not taken")


def recalled(*said: tuple[bytes, bytes]) -> Act:
    """Return what has a mail wait as its image describes it, with these bytes changed."""

    def recall(store: KannaderStore, task: Task) -> None:
        image = store.read(task)
        for now, then in said:
            image = image.replace(now, then)
        restore_image(store, task, image)

    return recall


def restore_image(store: KannaderStore, task: Task, image: bytes) -> None:
    """Have a mail wait as its image describes it."""
    was = store.restore_image(task, image, State.PENDING)
    (outcome,) = store.swap_all([Move(task, was, image)])
    if outcome.error is not None:
        raise outcome.error


def do_and_undo(store: KannaderStore, task: Task) -> None:
    """Give a mail another recipient, and undo that by its image."""
    image = store.read(task)
    _readdress(store, task)
    restore_image(store, _first_of(store), image)


def recover(store: KannaderStore, task: Task) -> None:
    """Recover, as the first thing in a process."""
    store.recover()


def repair(store: KannaderStore, task: Task) -> None:
    """Give the mail to the first recipient a schedule."""
    store.control("repair", f"queue/{IDS[0]}")


def abandon(store: KannaderStore, task: Task) -> None:
    """Put the link to the first recipient back where it was."""
    store.control("put-back", f"{QUARANTINE_DIR}/queue.{IDS[0]}")


def _adopt(store: KannaderStore, task: Task) -> None:
    store.control("adopt", *_orphans(store))


def _discard(store: KannaderStore, task: Task) -> None:
    store.control("discard", *_orphans(store))


def dismiss(store: KannaderStore, task: Task) -> None:
    """Discard the quarantined link to the first recipient, and with it the mail to that one."""
    store.control("discard", f"{QUARANTINE_DIR}/queue.{IDS[0]}")


def _problems(store: KannaderStore, folder: str) -> list[str]:
    strange = (item.where for item in store.scan() if isinstance(item, Problem))
    return [where for where in strange if where.startswith(f"{folder}/")]


def _orphans(store: KannaderStore) -> list[str]:
    return _problems(store, "data")


def _torn_next_to_a_whole_recipient(root: Path) -> bool:
    for metadata in root.glob("data/*/*/metadata"):
        files = metadata, metadata.with_name("schedule")
        contents = metadata.parents[1] / "contents"
        if all(path.exists() and path.read_bytes().endswith(b"}") for path in files):
            return not contents.exists() or not mail_format.ends_mail(contents.read_bytes()[-5:])
    return False


def later() -> float:
    """Return a time at which everything until now has been as it is for more than an hour."""
    return time.time() + 7200


# ---- what happened to the spool before


def damage(root: Path) -> None:
    """Leave next to the mail in flight what recovery has to deal with."""
    mail = next(path for path in (root / "data").iterdir())
    (mail / DESTS[1] / f"schedule.{IDS[1]}").write_bytes(b"{")
    (root / "queue" / "strange").symlink_to("/nowhere")
    (root / "inflight" / "double").symlink_to(LinkTarget(mail.name, DESTS[0]).text)
    _orphan = root / "data" / DESTS[0]
    _orphan.mkdir()
    (_orphan / "contents").write_bytes(b"torn")
    erasing = root / "data" / DESTS[1] / DESTS[0]
    erasing.mkdir(parents=True)
    (erasing / "schedule").write_bytes(b"")
    (root / "cleanup" / "erasing").symlink_to(LinkTarget(DESTS[1], DESTS[0]).text)


def tear(root: Path) -> None:
    """Tear the schedule of the mail to the first recipient."""
    next((root / "data").glob(f"*/{DESTS[0]}/schedule")).write_bytes(b"")


def _dest_of(root: Path, number: int = 0) -> LinkTarget:
    (path,) = (root / "data").glob(f"*/{DESTS[number]}")
    return LinkTarget(path.parent.name, path.name)


def _link_of(root: Path, number: int) -> Path:
    return root / "queue" / IDS[number]


def stage(root: Path) -> None:
    """Leave an attempt that counts, and one whose mail never moved, noted but not settled."""
    counts = sidecar.AttemptNote(2, "failed", description="before", start="inflight", since=1)
    never = sidecar.AttemptNote(
        9, "never", start="queue", since=_link_of(root, 1).lstat().st_ctime_ns
    )
    for number, staged in enumerate((counts, never)):
        name = sidecar.note_name(_dest_of(root, number)) + sidecar.STAGED_SUFFIX
        (root / STAGING_DIR / "notes" / name).write_bytes(sidecar.render_note(staged))


def write_down(root: Path, mail: str, links: tuple[tuple[str, str], ...], rest: bytes) -> None:
    """Record in the staging folder that a mail is being enqueued."""
    begun = enqueue.EnqueueRecord(mail, links)
    (root / STAGING_DIR / "enqueuing" / mail).write_bytes(begun.render() + rest)


def half_linked(root: Path) -> None:
    """Leave the mail as a process does that dies between the links of its two recipients."""
    _link_of(root, 1).unlink()
    links = tuple(zip(IDS, DESTS, strict=True))
    write_down(root, _dest_of(root).mail, links, enqueue.LINKING_MARK)


def half_built(root: Path) -> None:
    """Leave a second mail as a process does that dies before its first link."""
    ident, target = _another(root)
    write_down(root, target.mail, ((ident, target.dest),), b"")


def _another(root: Path) -> tuple[str, LinkTarget]:
    with closing(KannaderStore(str(root), lambda: NOW)) as store:
        (ident,) = store.enqueue("a@example.org", ["d@example.org"], [b"another"])
    link = root / "queue" / ident
    target = mail_format.parse_link_target(str(link.readlink()))
    link.unlink()
    (root / STAGING_DIR / "notes" / sidecar.note_name(target)).write_bytes(
        sidecar.render_note(sidecar.AttemptNote(1, "no"))
    )
    return ident, target


def _orphan(root: Path) -> None:
    _link_of(root, 0).unlink()


def orphan_another(root: Path) -> None:
    """Add a second mail that no link leads to."""
    _another(root)


def orphan_a_mail(root: Path) -> None:
    """Leave a second mail as a process does that dies over its text."""
    mail = root / "data" / DESTS[0]
    mail.mkdir()
    (mail / "contents").write_bytes(b"torn")


def orphan_many(root: Path) -> None:
    """Leave a torn mail that no link leads to, and notes without a mail."""
    _, target = _another(root)
    (root / "data" / target.path / "metadata").unlink()
    for name in (sidecar.note_name(LinkTarget(*DESTS)), ".draft"):
        (root / STAGING_DIR / "notes" / name).write_bytes(b"{}")


def quarantine(root: Path) -> None:
    """Move the link to the first recipient where recovery puts one that leads nowhere."""
    (root / QUARANTINE_DIR).mkdir(mode=0o700)
    _link_of(root, 0).rename(root / QUARANTINE_DIR / f"queue.{IDS[0]}")


# ---- the table

OTHER: Seen = (P, 0, "a@example.org to b1@h1.org", "b1@h1.org")
_CHANGED: Seen = (P, 0, "after!", "x0@h0.org")
_NOTED = (b"before", b"after!")
_BOTH = (_NOTED, (b'"b0"', b'"x0"'))


def _once(*, attempts: int | None = 1, state: State = P) -> Seen:
    return (state, attempts, "before", "b0@h0.org")


def _readdressed(state: State) -> Seen:
    return (state, 0, "before", "x@y.org")


CASES: Mapping[str, Case] = {
    "enqueue": _Verb(None, send, P),
    "add": _Verb(None, _add, (P, 1, "<> to c@example.org", "c@example.org")),
    "take": _Verb(P, take, A),
    "ack": _Verb(A, _delete, None),
    # The schedule says that an attempt has failed, and the link has not moved: it counts later.
    "nack": _Verb(A, _nack, _once(), between=_once(attempts=None, state=A)),
    "unclaim": _Verb(A, _changed(verbs.unclaim), P),
    "give up": _Verb(A, _give_up, None),
    "put back": _Verb(P, recalled(_NOTED), (P, 0, "after!", "b0@h0.org")),
    "readdress": _Verb(P, _readdress, _readdressed(P)),
    "postpone": _Verb(P, _changed(lambda task: task._replace(due=NOW + 60)), P),
    "hold": _Verb(P, _to(H), H),
    "release": _Verb(H, _to(P), P),
    "purge": _Verb(P, _to(T), T),
    "restore": _Verb(T, _to(P), P),
    "drop": _Verb(P, _give_up, None),
    # What is to be undone is done; or its image is written, and its link has not moved.
    "undo": _Verb(P, do_and_undo, P, between=_readdressed(P)),
    "undo a hold": _Verb(H, recalled(*_BOTH), _CHANGED, between=(H, 0, "before", "x0@h0.org")),
    "undo a purge": _Verb(T, recalled(*_BOTH), _CHANGED, between=(T, 0, "before", "x0@h0.org")),
    "hold in flight": _Verb(A, _to(H), H),
    "readdress the held": _Verb(H, _readdress, _readdressed(H)),
    "purge the held": _Verb(H, _to(T), T),
    "restore to hold": _Verb(T, _to(H), H),
    "expunge": _Verb(T, _delete, None),
    "erase": _Verb(D, _delete, None),
    "recover": _Verb(A, recover, _once(), first=damage, settled=True),
    "settle": _Verb(P, recover, _once(attempts=2), first=stage),
    "finish": _Verb(P, recover, P, first=half_linked),
    "take away": _Verb(P, recover, P, first=half_built),
    "delete orphans": _Verb(P, recover, P, first=orphan_many, settled=True),
    "repair": _Verb(P, repair, P, first=tear),
    "adopt": _Verb(P, _adopt, P, first=_orphan, settled=True),
    "discard": _Verb(P, _discard, None, first=_orphan, settled=True),
    "discard the last": _Verb(P, _discard, P, first=orphan_another, settled=True),
    "discard a mail": _Verb(P, _discard, P, first=orphan_a_mail, settled=True),
    "abandon": _Verb(P, abandon, P, first=quarantine),
    "dismiss": _Verb(P, dismiss, None, first=quarantine),
    "make": _Make(),
}
