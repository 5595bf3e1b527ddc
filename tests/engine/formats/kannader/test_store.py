"""The store over Kannader's spool: its edges, its order of writes, and a live daemon beside it."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch

from engine import verbs
from engine.formats.kannader import mail_format
from engine.formats.kannader.permissions import EDGES
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.model import Missing, Problem, State, Task
from engine.store import Gone, Store, Unavailable, Unsupported
from engine.system import files
from tests.engine.formats.kannader.conftest import DAEMON, Opener
from tests.engine.sample_mails import unwired
from tests.open_store import open_store as open_place
from tests.rival_processes import TAKER, asked, at_once, running
from tests.store_contents import act, every_file, found, naming, problems_in, restore
from tests.unprivileged_user import OTHER_UID, as_other_user, other_users_folder

NOW = 1_795_170_000.0
TO = ("bar@example.net", "baz@example.org")
TEXT = b"Subject: hi\n\n.dot, \xff and \x80\n"
AT = mail_format.format_time(int(NOW) * mail_format.NANOSECONDS_PER_SECOND)
FOLDERS = ("data", "queue", "inflight", "cleanup")


def tasks_in(store: Store) -> dict[str, Task]:
    """Every task by its recipient."""
    return {item.destination: item for item in store.scan() if isinstance(item, Task)}


def send(store: KannaderStore, *to: str) -> Task:
    """Enqueue a mail; the task of its first recipient."""
    return found(store, store.enqueue("foo@example.org", to or TO[:1], [TEXT])[0])


@pytest.fixture
def task(store: KannaderStore) -> Task:
    """A mail to one recipient in the queue."""
    return send(store)


def move(store: KannaderStore, task: Task, state: State) -> None:
    """Move a mail as it is now to another state."""
    task = found(store, task.id)
    store.swap(task, task._replace(state=state))


def names(folder: Path) -> set[str]:
    """The names in a folder, none if it is missing."""
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def aside(root: Path) -> set[str]:
    """The names of the quarantined links."""
    return names(root / ".spooldeck" / "aside")


WAYS = {
    (None, "queue"),  # enqueue
    ("queue", "queue"),  # reschedule; retry now, postpone, edit recipient
    ("inflight", "cleanup"),  # send_done
    ("inflight", "queue"),  # send_cancel; requeue
    ("inflight", None),  # send_done and cleanup
    ("queue", "cleanup"),  # drop
    ("cleanup", None),  # cleanup
    ("queue", "hold"),  # hold
    ("hold", "queue"),  # release
    ("hold", "hold"),  # postpone, edit recipient
    ("inflight", "hold"),  # hold what was abandoned
    ("queue", "trash"),
    ("hold", "trash"),
    ("trash", "queue"),
    ("trash", "hold"),
    ("trash", None),  # delete
}
"""Kannader spool, sections 3 and 6, by the folders' names; send_start is `take`."""


def test_the_edges_are_those_of_the_format() -> None:
    """The edges are those of the format and ours; all but those that erase are undoable."""
    words = KannaderStore.states
    assert {(start and words[start], end and words[end]) for start, end in EDGES} == WAYS
    final = {transition for transition, edge in EDGES.items() if not edge.undoable}
    assert final == {transition for transition in EDGES if transition[1] in (None, State.DONE)}


def test_a_spool_is_the_four_folders_of_kannader(kannader: Path) -> None:
    """A new spool has four private folders; one that is missing or a link is refused by name."""
    assert names(kannader) == set(FOLDERS)
    assert {path.stat().st_mode & 0o777 for path in kannader.iterdir()} == {0o700}
    with closing(open_place(str(kannader), lambda: NOW)) as store:
        store.swap(None, Task("x", "mail", State.PENDING, NOW, destination=TO[0]))
        assert names(kannader / "queue") == {"x"}
        store.swap(found(store, "x"), found(store, "x")._replace(state=State.TRASH))
        store.swap(found(store, "x"), None)
    for word in FOLDERS:
        (kannader / word).rmdir()
        for make in (lambda path: None, lambda path: path.symlink_to("/tmp")):
            make(kannader / word)
            with pytest.raises(Unavailable, match=word):
                KannaderStore(str(kannader))
        (kannader / word).unlink()
        (kannader / word).mkdir()


def test_recipients_share_one_text(kannader: Path, open_kannader: Opener) -> None:
    """One mail has one text in wire form, and for each recipient a private folder and a link."""
    ids = open_kannader().enqueue("foo@example.org", TO, [TEXT[:9], TEXT[9:]])
    (mail,) = (kannader / "data").iterdir()
    dests = names(mail) - {"contents"}
    assert (mail / "contents").read_bytes() == mail_format.encode_wire(TEXT)
    assert names(kannader / "queue") == set(ids) and len({*ids, *dests, mail.name}) == 5
    for ident, address in zip(ids, TO, strict=True):
        link = str((kannader / "queue" / ident).readlink())
        assert link.startswith(f"../data/{mail.name}/") and link.rpartition("/")[2] in dests
        dest = kannader / "queue" / link
        envelope = mail_format.render_metadata("foo@example.org", address)
        assert (dest / "metadata").read_bytes() == envelope
        assert (dest / "schedule").read_bytes() == b'{"at":"%s","last_attempt":null}' % AT.encode()
    modes = {(p.is_dir(), p.lstat().st_mode & 0o777) for p in (mail, *mail.rglob("*"))}
    assert modes == {(False, 0o600), (True, 0o700)}
    assert names(kannader / ".spooldeck") == {".lock", "enqueuing"}
    assert names(kannader / ".spooldeck" / "enqueuing") == set()


def test_a_failed_enqueue_leaves_nothing(
    kannader: Path, open_kannader: Opener, monkeypatch: MonkeyPatch
) -> None:
    """A text that fails, or a full disk at the second link, leaves neither link nor mail."""
    store, other, symlink = open_kannader(), open_kannader(), files.symlink
    observed, made = list[object](), list[object]()

    def text() -> Iterator[bytes]:
        yield TEXT
        observed.append([*tasks_in(other), *problems_in(other), *other.recover()])
        raise OSError(28, "No space left on device")

    def full(*args: object, **options: object) -> None:
        if made:
            raise OSError(28, "No space left on device")
        made.append(args)
        symlink(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "symlink", full)
    for data in (text(), iter([TEXT])):
        with pytest.raises(Unavailable, match="No space left"):
            store.enqueue("", TO, data)
        assert names(kannader / "queue") == names(kannader / "data") == set()
    assert (observed, len(made)) == ([[]], 1)
    assert names(kannader / ".spooldeck" / "enqueuing") == set()


def test_what_the_format_cannot_hold_is_refused(kannader: Path, open_kannader: Opener) -> None:
    """A wrong address, and a field that the format has no place for, is refused."""
    store, task = open_kannader(), Task("x", "mail", State.PENDING, NOW, destination=TO[0])
    mails = (("", ()), ("no address @", TO), ("", ("a\nb@example.org",)), ("", ("",)))
    values = {"queue": "x", "group": "x", "priority": 1, "payload": "/x", "destination": ""}
    fields: list[dict[str, Any]] = [{name: value} for name, value in values.items()]
    fields += [{"id": ident} for ident in ("a/b", "..", "a\nb", "x" * 256)]
    fields += [{"due": float("nan")}]
    acts: list[Callable[[], object]] = [
        *(partial(store.enqueue, sender, to, [TEXT]) for sender, to in mails),
        *(partial(store.swap, None, task._replace(**given)) for given in fields),
    ]
    for attempt in acts:
        with naming(attempt):
            with pytest.raises(Unsupported):
                attempt()
            assert names(kannader / "data") == names(kannader / "queue") == set()


def test_fsync_precedes_each_step_that_others_see(
    kannader: Path, open_kannader: Opener, monkeypatch: MonkeyPatch
) -> None:
    """A mail is durable before its link is made or moved, and the link before the call returns."""
    store, calls = open_kannader(durable=True), list[str]()
    fsync, symlink, rename = files.fsync, files.symlink, files.rename

    def note(path: str) -> None:
        calls.append(re.sub("[-0-9a-f]{12,}", "*", path))

    def synced(fd: int) -> None:
        fsync(fd)
        note(str(Path(f"/proc/self/fd/{fd}").readlink().relative_to(kannader)))

    def linked(target: str, name: str, *, dir_fd: int) -> None:
        symlink(target, name, dir_fd=dir_fd)
        note(f"made {name}")

    def renamed(source: str, target: str, **folders: int) -> None:
        rename(source, target, **folders)
        note(f"moved {target}")

    send(store)
    for name, call in (("fsync", synced), ("symlink", linked), ("rename", renamed)):
        monkeypatch.setattr(files, name, call)
    send(store)
    assert ", ".join(calls) == (
        ".spooldeck/enqueuing/*, .spooldeck/enqueuing, data, data/*/contents, data/*, "
        "data/*/*/schedule, data/*/*/metadata, data/*/*, data/*, .spooldeck/enqueuing/*, "
        "made *, queue"
    )

    (task,) = store.take(NOW, "me", 1)
    calls.clear()
    store.swap(task, verbs.nack(task, NOW + 900, "550 no"))
    # The note of the attempt is staged before the link moves, and put in its place after it.
    assert ", ".join(calls) == (
        "data/*/*/schedule.*, .spooldeck, .spooldeck/notes/.*.*.next.*.tmp, moved *.*.next, "
        ".spooldeck/notes, moved schedule, data/*/*, moved *, moved *.*, inflight, queue"
    )
    after = found(store, task.id)
    assert (after.state, after.attempts, after.error) == (State.PENDING, 1, "550 no")
    assert (after.due, after.extra["last_attempt"]) == (NOW + 900, AT)


def test_unchanged_bytes_stay_as_they_are(kannader: Path, store: KannaderStore, task: Task) -> None:
    """Foreign fields and another form keep their bytes on every way that changes neither."""
    dest = (kannader / "queue" / task.id).resolve()
    schedule = b' {"last_attempt":null, "at":"2026-11-20T09:36:59.058373202Z","more":1}\n'
    metadata = mail_format.render_metadata("", TO[0]).replace(b"}", b"} ")
    (dest / "schedule").write_bytes(schedule)
    (dest / "metadata").write_bytes(metadata)
    for state in (State.HELD, State.TRASH, State.HELD, State.PENDING):
        move(store, task, state)
    (claimed,) = store.take(NOW, "me", 1)
    store.swap(claimed, verbs.unclaim(claimed))
    move(store, task, State.PENDING)
    assert (dest / "schedule").read_bytes() == schedule
    assert (dest / "metadata").read_bytes() == metadata
    assert found(store, task.id).extra["at"] == "2026-11-20T09:36:59.058373202Z"


def test_a_change_is_undone_byte_for_byte(kannader: Path, store: KannaderStore, task: Task) -> None:
    """A before-image restores schedule, envelope and notes; a wrong image is refused."""
    schedule = b'["2026-11-20T09:36:59.058373202Z",null]'
    (kannader / "queue" / task.id / "schedule").write_bytes(schedule)
    task = found(store, task.id)
    image = store.read(task)
    store.swap(task, task._replace(due=NOW + 60, destination="x@y.org"))
    (claimed,) = store.take(NOW + 60, "me", 1)
    store.swap(claimed, verbs.nack(claimed, NOW + 120, "no"))
    assert found(store, task.id).description == "foo@example.org to x@y.org"
    restore(store, task.id, image, State.HELD)
    after = found(store, task.id)
    assert store.read(after) == image
    assert after._replace(state=task.state, rev="", extra={}) == task._replace(rev="", extra={})
    other = after._replace(id="another")
    for wrong, data in ((after, image[:-5]), (other, image), (after, b"id %s\n" % (b"9" * 5000))):
        with pytest.raises(Unsupported):
            store.restore_image(wrong, data, State.HELD)


def test_a_last_recipient_takes_the_mail_along(kannader: Path, store: KannaderStore) -> None:
    """Done for one recipient, the text stays for the other; done for both, the mail is erased."""
    send(store, *TO)
    first, second = store.take(NOW, "me", 2)
    assert store.size(first) == len(store.read(first))
    store.swap(first, None)
    (mail,) = (kannader / "data").iterdir()
    assert len(names(mail)) == 2
    assert store.size(second) == len(store.read(second)) + len(mail_format.encode_wire(TEXT))
    store.swap(second, None)
    assert list(store.scan()) == []
    assert names(kannader / "data") == names(kannader / "cleanup") == set()


def test_what_is_in_the_trash_keeps_its_mail(open_kannader: Opener) -> None:
    """A recipient in the trash or on hold is linked, so recovery leaves its mail."""
    store = open_kannader(lambda: NOW + 1e7)
    act(store, "purge", send(store, *TO).id)
    act(store, "hold", tasks_in(store)[TO[1]].id)
    assert (store.recover(), problems_in(store)) == ([], {})
    assert {task.state for task in tasks_in(store).values()} == {State.TRASH, State.HELD}
    assert float(tasks_in(store)[TO[0]].extra["trash_since"]) > 0


def test_a_foreign_file_in_a_mail_is_not_erased(kannader: Path, store: Store, task: Task) -> None:
    """A foreign file beside a recipient's own keeps all of them, and is named until it goes."""
    dest = (kannader / "queue" / task.id).resolve()
    (dest / "README").write_text("precious")
    store.swap(task, task._replace(state=State.DONE))
    with pytest.raises(Unavailable, match="README"):
        store.swap(found(store, task.id), None)
    assert names(dest) == {"README", "schedule", "metadata"}
    (dest / "README").unlink()
    store.swap(found(store, task.id), None)
    assert names(kannader / "data") == set()


def test_an_unknown_count_of_attempts_is_none(kannader: Path, store: Store, task: Task) -> None:
    """After an attempt of the real program the count is unknown, and our own count begins with
    ours; a broken note is reported with the mail, which is claimed all the same."""
    schedule = mail_format.render_schedule(mail_format.MailSchedule(0, 0))
    (kannader / "queue" / task.id / "schedule").write_bytes(schedule)
    assert found(store, task.id).attempts is None
    (claimed,) = store.take(NOW, "me", 1)
    store.swap(claimed, verbs.nack(claimed, NOW, "no"))
    assert found(store, task.id).attempts == 1
    (note,) = (kannader / ".spooldeck" / "notes").iterdir()
    note.write_bytes(b"{")
    stored_task = found(store, task.id)
    assert stored_task.attempts is None and "cannot be read" in stored_task.extra["note"]
    assert [t.id for t in store.take(NOW, "me", 1)] == [task.id]


def test_a_lost_race_against_the_daemon_changes_nothing(
    kannader: Path, store: KannaderStore, monkeypatch: MonkeyPatch, task: Task
) -> None:
    """A change that finds at the rename that Kannader has the mail restores what was written."""
    act(store, "hold", task.id)
    held, rename = found(store, task.id), files.rename
    dest = (kannader / "hold" / task.id).resolve()
    before = (dest / "schedule").read_bytes()

    def lost(source: str, target: str, **folders: int) -> None:
        if source == task.id:
            (kannader / "hold" / task.id).rename(kannader / "inflight" / task.id)
        rename(source, target, **folders)

    monkeypatch.setattr(files, "rename", lost)
    with pytest.raises(Gone):
        store.swap(held, held._replace(state=State.PENDING, due=NOW + 60))
    assert ((dest / "schedule").read_bytes(), names(dest)) == (before, {"schedule", "metadata"})


def test_a_mail_postponed_meanwhile_waits(kannader: Path, store: KannaderStore, task: Task) -> None:
    """A schedule that is replaced after the mail was read is seen under the lock: no claim."""
    schedule = (kannader / "queue" / task.id / "schedule").resolve()

    def postponed(kind: str, group: str) -> bool:
        later = schedule.with_name("later")
        later.write_bytes(schedule.read_bytes())
        later.rename(schedule)
        return True

    assert not list(store.take(NOW, "me", 1, postponed))
    assert [t.id for t in store.take(NOW, "me", 1)] == [task.id]


@pytest.fixture
def daemon(kannader: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the spool's folders open as Kannader does."""
    with running(DAEMON, str(kannader)) as process:
        yield process


LATER, COPY, TWICE = "only at its next start", "its own copy of the schedule", "sent twice"
BESIDE: dict[tuple[State | None, State | None], tuple[str, str]] = {
    (None, State.PENDING): (LATER, ""),
    (State.HELD, State.PENDING): (LATER, ""),
    (State.TRASH, State.PENDING): (LATER, ""),
    (State.PENDING, State.PENDING): (COPY, ""),
    **{(State.ACTIVE, end): ("", TWICE) for end in (State.PENDING, State.HELD, State.DONE, None)},
}
"""Kannader spool, section 6: the warning of an edge, and why it bars mails that are not ours; all
others have neither."""


def test_edges_beside_a_live_kannader(daemon: subprocess.Popen[str], open_kannader: Opener) -> None:
    """Each edge warns of what the daemon makes of it, or bars mails, and names its process."""
    mail, edges = Task("a", "mail", State.ACTIVE, NOW), open_kannader().edges
    for transition, usual in EDGES.items():
        with naming(transition):
            edge = edges[transition]
            warning, refusal = BESIDE.get(transition, ("", ""))
            why = edge.bars(mail, NOW)
            assert warning in edge.warning and (warning or edge.warning == usual.warning)
            assert refusal in why and (bool(refusal), edge.refusal) == (bool(why), "")
            assert edge == usual or f"Kannader (PID {daemon.pid})" in edge.warning + why
    assert open_kannader().edges == edges


def test_a_kannader_comes_and_goes(kannader: Path, open_kannader: Opener) -> None:
    """An open store notices a Kannader that comes and goes; a process of ours is none."""
    times = itertools.count(NOW, 5)
    store = open_kannader(lambda: next(times))
    task = send(store)
    with running(TAKER, str(kannader), str(NOW), cwd=kannader / "inflight"):
        assert store.kannaders == open_kannader().kannaders == ()
    with running(DAEMON, str(kannader)) as process:
        found(store, task.id)
        assert list(store.kannaders) == [process.pid]
        with pytest.raises(Unsupported, match="running"):
            store.recover()
        assert store.recover(dry=True) == store.recover(anyway=True) == []
    found(store, task.id)
    assert not store.kannaders


def test_what_a_live_kannader_may_be_sending_stays(
    kannader: Path, daemon: subprocess.Popen[str], open_kannader: Opener
) -> None:
    """Its mail in flight is moved by no other process; a claim of our worker is our own."""
    store = open_kannader()
    send(store, *TO)
    first, second = tasks_in(store).values()
    (kannader / "queue" / second.id).rename(kannader / "inflight" / second.id)
    theirs = found(store, second.id)
    release = partial(store.swap, theirs, verbs.release(theirs, NOW))
    with pytest.raises(Unsupported, match="running"):
        release()
    (taken,) = store.take(NOW, "me", 9)
    for change in (release, partial(open_kannader().swap, taken, verbs.unclaim(taken))):
        with pytest.raises(Unsupported, match="running"):
            change()
    store.swap(taken, verbs.nack(taken, NOW + 60, "no"))
    assert found(store, first.id).attempts == 1
    assert found(store, second.id) == theirs


def test_no_kannader_sends_a_held_mail(
    kannader: Path, daemon: subprocess.Popen[str], store: KannaderStore, task: Task
) -> None:
    """A held or trashed mail has vanished for a Kannader whose timer fires."""
    for state in (State.HELD, State.TRASH, State.HELD):
        assert not store.edges[found(store, task.id).state, state].warning
        move(store, task, state)
        assert asked(daemon, task.id) == "vanished\n"
        assert not set().union(*(names(kannader / word) for word in FOLDERS[1:]))
    act(store, "release", task.id)
    stored_task = found(store, task.id)
    assert "contents" in asked(daemon, task.id)
    with pytest.raises(Gone):
        store.swap(stored_task, verbs.hold(stored_task, NOW))


def test_two_engines_send_each_mail_once(kannader: Path, open_kannader: Opener) -> None:
    """Two processes on one spool of 24 mails send each of them, and none of them twice."""
    filler = open_kannader()
    to = [[f"{n}@{number}.example" for n in range(3)] for number in range(8)]
    ids = [ident for three in to for ident in filler.enqueue("", three, [TEXT])]
    claims = at_once(2, TAKER, str(kannader), str(NOW), "done")
    assert sorted(itertools.chain(*claims)) == sorted(ids)
    assert list(filler.scan()) == []
    assert names(kannader / "data") == set()


def test_no_mail_waits_because_of_its_id(kannader: Path, store: KannaderStore) -> None:
    """Ids are made at random: those with the last ids have their turn as well."""

    def arrives(ident: str) -> None:
        (kannader / "queue" / send(store).id).rename(kannader / "queue" / ident)

    for ident in ("m", "n", "o"):
        arrives(ident)
    taken = []
    for number in range(4):
        (task,) = store.take(NOW, "me", 1)
        store.swap(task, None)
        taken.append(task.id)
        arrives(f"a{number}")
    assert taken == ["m", "n", "o", "a0"]


def test_a_backup_by_hard_links_changes_nothing(tmp_path: Path, open_kannader: Opener) -> None:
    """With a second hard link of each file, made by their owner, a mail is claimed as before."""
    make_spool(str(tmp_path / "spool"))
    store = open_kannader(root=tmp_path / "spool")
    mail = send(store)
    shutil.copytree(tmp_path / "spool", tmp_path / "backup", symlinks=True, copy_function=os.link)
    assert problems_in(store) == {}
    assert [task.id for task in store.take(NOW, "me", 9)] == [mail.id]


@pytest.mark.parametrize("which", ["mail", "dest"])
def test_a_link_in_place_of_a_mails_folder_is_not_followed(
    kannader: Path, store: KannaderStore, tmp_path: Path, which: str, task: Task
) -> None:
    """It is neither read nor erased through, nor is the end of one that was claimed before."""
    mail = next((kannader / "data").iterdir())
    moved, outside = mail if which == "mail" else next(mail.glob("*-*")), tmp_path / "outside"
    (claimed,) = store.take(NOW, "me", 1)
    moved.rename(outside)
    moved.symlink_to(outside)
    before = every_file(outside)
    with pytest.raises(Gone, match="not a folder"):
        store.swap(claimed, None)
    (kannader / "inflight" / task.id).rename(kannader / "queue" / task.id)
    assert "a symbolic link or not a folder" in problems_in(store)[f"queue/{task.id}"]
    (kannader / "queue" / task.id).rename(kannader / "cleanup" / task.id)
    store.recover()
    assert every_file(outside) == before


def test_a_link_that_cannot_be_named_stays(kannader: Path, store: KannaderStore) -> None:
    """A whole mail under a name that cannot be typed is shown, and not claimed or moved."""
    for strange in map(os.fsdecode, (b"\xff\xfe", b"new\nline", b"\x1b[2J")):
        (kannader / "queue" / send(store).id).rename(kannader / "queue" / strange)
        (where,) = problems_in(store)
        assert where.isprintable()
        assert list(store.take(NOW, "me", 9)) == []
        store.recover()
        assert names(kannader / "queue") == {strange}
        (kannader / "queue" / strange).unlink()


def test_a_link_in_place_of_our_folder_is_named(kannader: Path, store: KannaderStore) -> None:
    """A link in place of hold/ is named and not entered."""
    (kannader / "hold").symlink_to("/tmp")
    task = send(store)
    assert "hold" in problems_in(store)
    with pytest.raises(Unavailable, match="hold"):
        store.swap(task, verbs.hold(task, NOW))
    assert found(store, task.id) == task


@pytest.mark.parametrize("depth", [1, 2])
def test_a_mail_in_a_subfolder_is_queued(kannader: Path, open_kannader: Opener, depth: int) -> None:
    """Kannader sends what is in it: no orphan, not discarded; a problem names the folder."""
    later = time.time() + 7200
    store = open_kannader(lambda: later)
    task = send(store)
    link = kannader / "queue" / task.id
    below = kannader / "queue" / "/".join(["sub", "deep"][:depth])
    below.mkdir(parents=True)
    (below / task.id).symlink_to("../" * depth + str(link.readlink()))
    mail = link.resolve().parent
    link.unlink()
    assert problems_in(store) == {
        "queue/sub": "a folder with links to a mail, which Kannader sends: move them to queue"
    }
    assert store.recover() == []
    with pytest.raises(Unsupported, match="not an orphaned mail"):
        store.control("discard", f"data/{mail.name}")
    (below / task.id).unlink()
    assert "orphaned mail (complete)" in str(problems_in(store))


def test_a_doubled_link_is_sent_once(kannader: Path, store: KannaderStore, task: Task) -> None:
    """Two links to one recipient are a problem; one is claimed, the other is quarantined."""
    link = (kannader / "queue" / task.id).readlink()
    (kannader / "queue" / "zz").symlink_to(link)
    ((where, what),) = problems_in(store).items()
    assert where == f"data/{link.parent.name}/{link.name}"
    assert what.startswith("queue/zz leads to the same recipient as queue/")
    (claimed,) = store.take(NOW, "me", 9)
    assert (claimed.id, list(store.take(NOW, "me", 9))) == (task.id, [])
    store.swap(claimed, verbs.unclaim(claimed))
    store.recover()
    assert aside(kannader) == {"queue.zz"}
    where = ".spooldeck/aside/queue.zz"
    assert store.forecast("discard", where).words == f"{where}: would be deleted permanently"
    assert store.control("discard", where) == f"{where}: deleted"
    assert problems_in(store) == {} and found(store, task.id).destination == TO[0]


def test_of_many_links_only_the_doubled_are_problems(store: KannaderStore, kannader: Path) -> None:
    """A doubled link and an id in two folders are named, each once; asked for by its id, a task in
    two folders is shown with its problem, and neither moves over the other."""
    _, doubled, twice, other = (send(store, to) for to in ("a@b.c", "d@e.f", "g@h.i", "j@k.l"))
    queue, hold = kannader / "queue", kannader / "hold"
    hold.mkdir(mode=0o700)
    (queue / "second").symlink_to((queue / doubled.id).readlink())
    (hold / twice.id).symlink_to((queue / other.id).readlink())
    shared = {task.id: f"data{task.payload.rpartition('/data')[2]}" for task in (doubled, other)}
    wrong = {
        where.rpartition("/")[0] if where.startswith("data/") else where: what.split(" leads ")[0]
        for where, what in problems_in(store).items()
    }
    assert wrong == {
        shared[doubled.id].rpartition("/")[0]: f"queue/{max(doubled.id, 'second')}",
        shared[other.id].rpartition("/")[0]: f"queue/{other.id}",
        f"queue/{twice.id}": "is in hold and queue at the same time",
    }
    (queue / other.id).unlink()
    assert [type(item) for item in store.scan({twice.id})] == [Task, Task, Problem]
    with pytest.raises(Gone):
        store.swap(twice, verbs.hold(twice, NOW))
    assert list(store.scan({other.id})) == [Missing(other.id)]


@pytest.fixture
def other_users_spool() -> Iterator[Path]:
    """An empty spool of the user of `as_other_user`."""
    with other_users_folder() as folder:
        root = folder / "kannader"
        as_other_user(lambda: make_spool(str(root)))
        yield root


CLOSED = ("schedule", "metadata", "", "..")
"""The parts of a mail that can be closed to us, by their path from its link."""


def test_a_mail_that_may_not_be_read_is_a_problem(other_users_spool: Path) -> None:
    """What is closed to us is named, and the next mail is claimed, behind twelve as well."""

    def look() -> None:
        with closing(KannaderStore(str(other_users_spool), lambda: NOW)) as store:
            for name in CLOSED:
                broken, good = send(store), send(store)
                closed = (other_users_spool / "queue" / broken.id / name).resolve()
                closed.chmod(0)
                problems, taken = problems_in(store), list(store.take(NOW, "me", 9))
                closed.chmod(0o700)

                assert f"queue/{broken.id}" in problems, name
                assert [task.id for task in taken] == [good.id], name
                for task in (*taken, *store.take(NOW, "me", 9)):
                    store.swap(task, None)
            for _ in range(12):
                (other_users_spool / "queue" / send(store).id / "metadata").resolve().chmod(0)
            good = send(store)
            assert [task.id for task in store.take(NOW, "me", 99)] == [good.id]
            assert list(store.take(NOW, "me", 99)) == []

    as_other_user(look)


def test_what_may_not_be_read_is_left_by_recovery(other_users_spool: Path) -> None:
    """A missing right is no damage: it is reported, and nothing is moved."""

    def recover(name: str, word: str) -> None:
        root = other_users_spool.with_name(f"{word}{CLOSED.index(name)}")
        make_spool(str(root))
        with naming(name, word), closing(KannaderStore(str(root), lambda: NOW)) as store:
            store.swap(task := send(store), verbs.hold(task, NOW))
            where = f"{word}/{task.id}"
            (root / "hold" / task.id).rename(root / where)
            closed = (root / where / name).resolve()
            closed.chmod(0)
            dry, done, problems = store.recover(dry=True), store.recover(), problems_in(store)
            closed.chmod(0o700)
            for (line,) in (dry, done):
                assert f"{where}: " in line and "Permission" in line
            assert "cannot be read now" in problems[where]
            assert found(store, task.id).destination == TO[0] and store.recover() == []

    def recover_each() -> None:
        for name, word in itertools.product(CLOSED, ("queue", "inflight", "hold")):
            recover(name, word)
        with closing(KannaderStore(str(other_users_spool), lambda: NOW + 9e9)) as store:
            send(store)
            (task,) = store.take(NOW + 9e9, "me", 1)
            store.swap(task, verbs.nack(task, NOW, "no"))
            metadata = (other_users_spool / "queue" / task.id / "metadata").resolve()
            (other_users_spool / "queue" / task.id).unlink()
            for closed in (metadata, metadata.parent.parent):
                mode = closed.stat().st_mode
                closed.chmod(0)
                store.recover()
                closed.chmod(mode)
            assert metadata.read_bytes()
            assert names(other_users_spool / ".spooldeck" / "notes")

    as_other_user(recover_each)


def test_a_spool_that_is_not_ours_to_write_is_only_shown(other_users_spool: Path) -> None:
    """In a spool that we must not write every edge is refused, and mails are shown."""

    def refused(why: str, ident: str) -> None:
        with closing(KannaderStore(str(other_users_spool), lambda: NOW)) as other:
            assert {edge.refusal for edge in other.edges.values()} == {why}
            task = found(other, ident)
            with pytest.raises(Unsupported, match=why):
                other.swap(task, verbs.hold(task, NOW))

    def change() -> None:
        with closing(KannaderStore(str(other_users_spool), lambda: NOW)) as store:
            ident = send(store).id
        for word in FOLDERS:
            (other_users_spool / word).chmod(0o500)
            refused(f"Permission denied: cannot write to {other_users_spool / word}", ident)
            (other_users_spool / word).chmod(0o700)
        queue = other_users_spool / "queue"
        queue.chmod(0o777)
        refused(f"{queue} is world-writable: run chmod o-w {queue}", ident)

    as_other_user(change)
    if os.geteuid() != 0:  # only root gives a folder away
        return
    (ident,) = names(other_users_spool / "queue")
    for path in (other_users_spool, *other_users_spool.rglob("*")):
        owner = OTHER_UID + 1 if path.name == "queue" else OTHER_UID
        os.chown(path, owner, OTHER_UID, follow_symlinks=False)
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o770)
    theirs = f"{other_users_spool}/queue belongs to UID {OTHER_UID + 1}, not to this user"
    as_other_user(lambda: refused(theirs, ident))


@pytest.mark.parametrize("word", ["queue", "hold"])
def test_a_mended_mail_is_restored_from_quarantine(
    kannader: Path, store: KannaderStore, word: str, task: Task
) -> None:
    """A broken mail is not put back; a mended one is, in its folder, under its id, unchanged."""
    if word == "hold":
        act(store, "hold", task.id)
    before, metadata = found(store, task.id), (kannader / word / task.id / "metadata").resolve()
    whole = metadata.read_bytes()
    metadata.write_bytes(b"torn")
    store.recover()
    where = f".spooldeck/aside/{word}.{task.id}"
    assert "metadata: no JSON" in problems_in(store)[where]
    with pytest.raises(Unsupported, match="can never be sent"):
        store.control("put-back", where)
    metadata.write_bytes(whole)
    assert problems_in(store)[where] == "quarantined link: repaired; put it back, or discard it"
    assert store.control("put-back", where) == f"{where}: put back as {word}/{task.id}"
    assert found(store, task.id)._replace(rev="") == before._replace(rev="")
    assert problems_in(store) == {} and store.recover() == []
    with pytest.raises(Unsupported, match="no such quarantined link"):
        store.control("put-back", where)


@pytest.mark.parametrize(
    ("target", "keeps", "why"),
    [
        (".spooldeck/aside/../../queue/{id}", None, "no such quarantined link"),
        (".spooldeck/aside/{id}", None, "no such quarantined link"),
        ("queue/{id}", None, "not an orphaned mail"),
        ("data/{mail}", None, "not an orphaned mail"),
        (".spooldeck/aside/queue.{id}", "notes.txt", "not a file of Kannader: move it away"),
    ],
)
def test_only_a_quarantined_link_or_an_orphan_is_discarded(
    kannader: Path, store: KannaderStore, target: str, keeps: str | None, why: str, task: Task
) -> None:
    """A linked mail, a path out of the quarantine and foreign files are not discarded."""
    dest = (kannader / "queue" / task.id).resolve()
    if keeps:
        (dest / keeps).write_text("mine")
        (dest / "metadata").write_bytes(b"torn")
        store.recover()
    before = sorted(kannader.rglob("*"))
    for ask in (store.forecast, store.control):
        with pytest.raises(Unsupported, match=why):
            ask("discard", target.format(id=task.id, mail=dest.parent.name))
    assert sorted(kannader.rglob("*")) == before


def test_a_second_link_is_not_put_back(kannader: Path, store: KannaderStore, task: Task) -> None:
    """A quarantined link is put back only if it leads to a recipient that no other link has."""
    queue, folder = kannader / "queue", kannader / ".spooldeck" / "aside"
    folder.mkdir()
    (folder / f"queue.{task.id}.2").symlink_to((queue / task.id).readlink())
    (folder / "queue.x").symlink_to("/etc/passwd")
    (folder / "y").symlink_to("../data")
    for name in (f"queue.{task.id}.2", "queue.x", "y", "../../queue", "", "."):
        with pytest.raises(Unsupported):
            store.control("put-back", f".spooldeck/aside/{name}")
    (queue / task.id).rename(queue / "other")
    with pytest.raises(Unsupported, match="another link leads to the same recipient"):
        store.control("put-back", f".spooldeck/aside/queue.{task.id}.2")
    (queue / "other").unlink()
    (queue / task.id).symlink_to("nowhere")
    store.control("put-back", f".spooldeck/aside/queue.{task.id}.2")
    assert names(folder) == {"queue.x", "y"}
    (new,) = names(queue) - {task.id}
    assert mail_format.is_uuid(new) and tasks_in(store)[TO[0]].id == new


def test_a_time_that_no_calendar_has_is_no_time(open_kannader: Opener) -> None:
    """A link with such a modification time was created at an unknown time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        root = Path(place) / "spool"
        make_spool(str(root))
        task = send(store := open_kannader(root=root))
        link = root / "queue" / task.id
        for moment in (10**13, -(10**12)):
            os.utime(link, (moment, moment), follow_symlinks=False)
            if link.lstat().st_mtime != moment:
                pytest.skip("no such time on this file system")
            assert found(store, task.id).created == 0


def test_an_unknown_envelope_has_its_form(kannader: Path, store: KannaderStore, task: Task) -> None:
    """An address in an unknown form is shown as the destination; the description names the form."""
    metadata = (kannader / "queue" / task.id / "metadata").resolve()
    metadata.write_bytes(metadata.read_bytes().replace(b'"to":{', b'"to":{"new":1,'))
    task = found(store, task.id)
    assert task.description == "envelope in an unknown format"
    assert task.destination.startswith('{"new":1,')


def test_the_contents_are_sent_in_wire_form(store: KannaderStore) -> None:
    """The text that is sent is the wire form, to the byte; decoded, it is what was enqueued."""
    send(store)
    (task,) = store.take(NOW, "me", 1)
    envelope, contents = store.open_message(task)
    with contents:
        sent = contents.read()
    assert sent == mail_format.encode_wire(TEXT) == store.read(task, "contents")
    assert unwired(sent) == TEXT.replace(b"\n", b"\r\n")
    assert envelope.recipient == TO[0]


def test_a_full_scan_orders_links_of_any_name(open_kannader: Opener, kannader: Path) -> None:
    """Mails come in the order of their ids, with any names; what is no text is a problem."""
    store, queue = open_kannader(), kannader / "queue"
    target = (queue / send(store).id).readlink()
    for name in ("zebra", "a", "ä", "Z", "10", "9"):
        (queue / name).symlink_to(target)
    (queue / os.fsdecode(b"\xff")).symlink_to("nowhere")
    items = list(store.scan())
    ids = [item.id for item in items if isinstance(item, Task)]
    others = len(names(queue)) - 1
    assert ids[others:] == sorted(ids[:others]) == sorted(names(queue) - {"\udcff"})
    assert [item.what for item in items if isinstance(item, Problem) and "UTF-8" in item.what]


def test_our_other_files_in_the_spool_stay(store: KannaderStore, kannader: Path) -> None:
    """They are no problem, and neither a scan, a change nor recovery touches them."""
    own_folder = kannader / ".spooldeck"
    for word in ("journal", "log", "run", "metrics", "recorder", "mailspool", "suspended"):
        (own_folder / word).mkdir(parents=True)
        (own_folder / word / "queue.log").write_text("ours")
    (own_folder / "journal" / "op").symlink_to("../../queue")
    before = {path: path.lstat().st_mtime_ns for path in own_folder.rglob("*")}
    act(store, "purge", send(store).id)
    assert (store.recover(), problems_in(store)) == ([], {})
    assert {path: path.lstat().st_mtime_ns for path in before} == before
