"""The store over Kannader's spool: what it may do, in which order, and beside whom."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from engine import files, verbs
from engine.model import Missing, Move, Problem, State, Task
from engine.store import Gone, Store, Unavailable, Unsupported
from engine.stores import open_store as open_place
from engine.stores.kannader import KannaderStore, form, make_spool
from engine.stores.kannader.store import EDGES
from tests.mail.letters import unwired
from tests.stores.children import TAKER, asked, at_once, running
from tests.stores.nobody import NOBODY, by_nobody, nobodys_folder
from tests.stores.seen import naming, problems_in

NOW = 1_795_170_000.0
Opener = Callable[..., KannaderStore]
TO = ("bar@example.net", "baz@example.org")
TEXT = b"Subject: hi\n\n.dot, \xff and \x80\n"


def tasks_in(store: Store) -> dict[str, Task]:
    """Every task by its recipient."""
    return {item.destination: item for item in store.look() if isinstance(item, Task)}


def send(store: KannaderStore, *to: str) -> Task:
    """The mail to the first of some recipients, waiting."""
    ids = store.enqueue("foo@example.org", to or TO[:1], [TEXT])
    (task,) = (item for item in store.look({ids[0]}) if isinstance(item, Task))
    return task


def again(store: Store, task: Task) -> Task:
    """The task as it stands now."""
    (found,) = store.look({task.id})
    assert isinstance(found, Task)
    return found


def names(folder: Path) -> set[str]:
    """What lies in a folder."""
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


# ---- what may be done

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
    ("queue", "trash"),  # delete, to be had back
    ("hold", "trash"),
    ("trash", "queue"),
    ("trash", "hold"),
    ("trash", None),  # delete
}
"""Kannader spool, sections 3 and 6, by the folders' names; send_start is `take`."""


def test_the_edges_are_those_of_the_format() -> None:
    """What the format can do, and what we do beside it, each is an edge; and nothing else is."""
    words = KannaderStore.states

    named = {(start and words[start], end and words[end]) for start, end in EDGES}
    assert named == WAYS


def test_only_what_can_be_had_back_is_undoable() -> None:
    """What is being erased, or is erased, does not come back."""
    final = {way for way, edge in EDGES.items() if not edge.undoable}

    assert final == {way for way in EDGES if way[1] in (None, State.DONE)}


def test_a_kannader_spool_is_recognised(kannader: Path) -> None:
    """A folder with the four of Kannader is one of its spools."""
    store = open_place(str(kannader), lambda: NOW)

    store.swap(None, Task("x", "mail", State.PENDING, NOW, destination=TO[0]))

    assert [*names(kannader / "queue")] == ["x"]
    store.close()


def test_a_new_spool_is_made_as_kannader_makes_it(kannader: Path) -> None:
    """Four folders, each its owner's alone; what is ours is made when it is needed."""
    assert names(kannader) == {"data", "queue", "inflight", "cleanup"}
    assert {path.stat().st_mode & 0o777 for path in kannader.iterdir()} == {0o700}


def test_a_spool_without_a_folder_is_not_opened(kannader: Path) -> None:
    """A missing folder, or a link in its place, is named."""
    for missing in ("data", "queue", "inflight", "cleanup"):
        (kannader / missing).rmdir()
        with pytest.raises(Unavailable, match=missing):
            KannaderStore(str(kannader))

        (kannader / missing).symlink_to("/tmp")
        with pytest.raises(Unavailable, match=missing):
            KannaderStore(str(kannader))
        (kannader / missing).unlink()
        (kannader / missing).mkdir()


# ---- enqueuing


def test_recipients_share_one_text(kannader: Path, open_kannader: Opener) -> None:
    """One mail, one text byte for byte on the wire, and for each recipient a folder and a link of
    their own, under names of their own.
    """
    store = open_kannader()

    ids = store.enqueue("foo@example.org", TO, [TEXT[:9], TEXT[9:]])

    (mail,) = (kannader / "data").iterdir()
    dests = names(mail) - {"contents"}
    assert (mail / "contents").read_bytes() == form.wire(TEXT)
    assert names(kannader / "queue") == set(ids)
    assert len({*ids, *dests, mail.name}) == 5
    for ident, address in zip(ids, TO, strict=True):
        link = str((kannader / "queue" / ident).readlink())
        assert link.startswith(f"../data/{mail.name}/") and link.rpartition("/")[2] in dests
        dest = kannader / "queue" / link
        assert (dest / "metadata").read_bytes() == form.metadata_bytes("foo@example.org", address)
        assert (dest / "schedule").read_bytes() == b'{"at":"%s","last_attempt":null}' % (
            form.format_time(int(NOW) * form.SECOND).encode()
        )
    modes = {path.lstat().st_mode & 0o777 for path in mail.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (mail, *mail.iterdir()) if path.is_dir()} == {
        0o700
    }
    assert names(kannader / ".spooldeck") == {".lock", "enqueuing"}
    assert names(kannader / ".spooldeck" / "enqueuing") == set()


def test_nothing_is_visible_before_all_of_it_is_there(
    kannader: Path, open_kannader: Opener
) -> None:
    """While the text still comes, and when it never comes to its end, no link stands."""
    store, other = open_kannader(), open_kannader()
    seen: list[object] = []

    def text() -> Iterator[bytes]:
        yield TEXT
        seen.append([*tasks_in(other), *problems_in(other), *other.recover()])
        raise OSError(28, "No space left on device")

    with pytest.raises(Unavailable, match="No space left"):
        store.enqueue("", TO, text())

    assert seen == [[]]
    assert names(kannader / "queue") == names(kannader / "data") == set()
    assert names(kannader / ".spooldeck" / "enqueuing") == set()


def test_a_full_disk_at_the_second_link_takes_back_the_first(
    kannader: Path, open_kannader: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other than with the real program, no link is left dangling and no mail half enqueued."""
    store, symlink = open_kannader(), files.symlink
    made: list[object] = []

    def full(*args: object, **options: object) -> None:
        if made:
            raise OSError(28, "No space left on device")
        made.append(args)
        symlink(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "symlink", full)
    with pytest.raises(Unavailable, match="No space left"):
        store.enqueue("", TO, [TEXT])

    assert made
    assert names(kannader / "queue") == names(kannader / "data") == set()


def test_a_mail_to_nobody_is_refused(kannader: Path, open_kannader: Opener) -> None:
    """Who is no sender or no recipient is refused, with nothing written."""
    for sender, to in (("", []), ("no address @", TO), ("", ["a\nb@example.org"]), ("", [""])):
        with naming(sender, to):
            with pytest.raises(Unsupported):
                open_kannader().enqueue(sender, to, [TEXT])

            assert names(kannader / "data") == set()


def test_what_the_format_cannot_hold_is_refused(kannader: Path, open_kannader: Opener) -> None:
    """A task that says what neither the format nor our notes have a place for is never stored."""
    for given in (
        {"queue": "x"},
        {"group": "x"},
        {"priority": 1},
        {"payload": "/x"},
        {"destination": ""},
        {"id": "a/b"},
        {"id": ".."},
        {"id": "a\nb"},
        {"id": "x" * 256},
        {"due": float("nan")},
    ):
        with naming(given):
            task = Task("x", "mail", State.PENDING, NOW, destination=TO[0])

            with pytest.raises(Unsupported):
                open_kannader().swap(None, replace(task, **given))

            assert names(kannader / "data") == names(kannader / "queue") == set()


# ---- changing


def test_the_new_schedule_is_written_before_the_link_moves_back(
    kannader: Path, open_kannader: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed attempt: its draft, the schedule, then the link; `last_attempt` is its end."""
    store = open_kannader()
    send(store)
    (task,) = store.take(NOW, "me", 1)
    calls: list[str] = []
    rename = files.rename

    def renamed(source: str, target: str, **folders: int) -> None:
        rename(source, target, **folders)
        calls.append(target)

    monkeypatch.setattr(files, "rename", renamed)
    store.swap(task, verbs.nack(task, NOW + 900, "550 no"))

    # What is noted of the attempt is staged before the link moves, and in its place behind it.
    assert [c.rpartition(".")[2] for c in calls if not c.startswith(".")][:2] == [
        "next",
        "schedule",
    ]
    assert calls.index("schedule") < calls.index(task.id) < len(calls) - 1
    after = again(store, task)
    assert (after.state, after.attempts, after.error, after.due) == (
        *(State.PENDING, 1, "550 no", NOW + 900),
    )
    assert after.extra["last_attempt"] == form.format_time(int(NOW) * form.SECOND)


def test_what_is_not_changed_stays_byte_for_byte(kannader: Path, open_kannader: Opener) -> None:
    """A schedule with fields that are not ours, and an envelope in another order, stay as they are
    on every way that changes neither.
    """
    store = open_kannader()
    task = send(store)
    dest = kannader / "queue" / task.id
    schedule = b' {"last_attempt":null, "at":"2026-11-20T09:36:59.058373202Z","more":1}\n'
    metadata = form.metadata_bytes("", TO[0]).replace(b"}", b"} ")
    (dest / "schedule").write_bytes(schedule)
    (dest / "metadata").write_bytes(metadata)
    files_of = next((kannader / "data").glob("*/*-*"))

    for state in (State.HELD, State.TRASH, State.HELD, State.PENDING):
        seen = again(store, task)
        store.swap(seen, replace(seen, state=state))
    (claimed,) = store.take(NOW, "me", 1)
    store.swap(claimed, verbs.unclaim(claimed))
    seen = again(store, task)
    store.swap(seen, replace(seen))

    assert (files_of / "schedule").read_bytes() == schedule
    assert (files_of / "metadata").read_bytes() == metadata
    assert again(store, task).extra["at"] == "2026-11-20T09:36:59.058373202Z"


def test_a_change_is_taken_back_byte_for_byte(kannader: Path, open_kannader: Opener) -> None:
    """With the image that was kept, schedule, envelope and notes are what they were."""
    store = open_kannader()
    task = send(store)
    dest = kannader / "queue" / task.id
    (dest / "schedule").write_bytes(b'["2026-11-20T09:36:59.058373202Z",null]')
    task = again(store, task)
    image = store.read(task)
    store.swap(task, replace(task, due=NOW + 60, destination="x@y.org"))
    (claimed,) = store.take(NOW + 60, "me", 1)
    store.swap(claimed, verbs.nack(claimed, NOW + 120, "no"))
    seen = again(store, task)
    assert seen.description == "foo@example.org to x@y.org"

    was = store.recall(seen, image, State.HELD)
    (outcome,) = store.swap_all([Move(seen, was, image)])

    assert outcome.error is None
    after = again(store, task)
    assert store.read(after) == image
    assert replace(after, state=task.state, rev="", extra={}) == replace(task, rev="", extra={})
    with pytest.raises(Unsupported):
        store.recall(after, image[:-5], State.HELD)
    with pytest.raises(Unsupported):
        store.recall(replace(after, id="another"), image, State.HELD)
    with pytest.raises(Unsupported):
        store.recall(after, b"id " + b"9" * 5000 + b"\n", State.HELD)


def test_a_last_recipient_takes_the_mail_along(kannader: Path, open_kannader: Opener) -> None:
    """Done for one, the text stays for the other; done for both, nothing of the mail is left."""
    store = open_kannader()
    send(store, *TO)
    first, second = store.take(NOW, "me", 2)
    assert store.size(first) == len(store.read(first))

    store.swap(first, None)

    (mail,) = (kannader / "data").iterdir()
    assert len(names(mail)) == 2
    assert store.size(second) == len(store.read(second)) + len(form.wire(TEXT))
    store.swap(second, None)
    assert list(store.look()) == []
    assert names(kannader / "data") == names(kannader / "cleanup") == set()


def test_what_is_in_the_trash_keeps_its_mail(kannader: Path, open_kannader: Opener) -> None:
    """A recipient in the trash or on hold is linked, and no orphan; its mail waits for it."""
    store = open_kannader(lambda: NOW + 1e7)
    trashed = send(store, *TO)
    held = tasks_in(store)[TO[1]]
    store.swap(trashed, verbs.purge(trashed, NOW))
    store.swap(held, verbs.hold(held, NOW))

    assert store.recover() == []
    assert problems_in(store) == {}
    assert {task.state for task in tasks_in(store).values()} == {State.TRASH, State.HELD}
    assert float(tasks_in(store)[TO[0]].extra["trash_since"]) > 0


def test_what_is_nobodys_is_not_erased(kannader: Path, open_kannader: Opener) -> None:
    """A strange file beside a recipient's own keeps all of them, and is named until it goes."""
    store = open_kannader()
    task = send(store)
    dest = next((kannader / "data").glob("*/*-*"))
    (dest / "README").write_text("precious")
    store.swap(task, replace(task, state=State.DONE))

    done = again(store, task)
    with pytest.raises(Unavailable, match="README"):
        store.swap(done, None)

    assert names(dest) == {"README", "schedule", "metadata"}
    (dest / "README").unlink()
    store.swap(again(store, task), None)
    assert names(kannader / "data") == set()


def test_an_unknown_count_is_no_count(kannader: Path, open_kannader: Opener) -> None:
    """Where the real program has tried, nobody knows how often: our own count begins with ours."""
    store = open_kannader()
    task = send(store)
    schedule = form.schedule_bytes(form.Schedule(0, 0))
    (kannader / "queue" / task.id / "schedule").write_bytes(schedule)

    assert again(store, task).attempts is None
    (claimed,) = store.take(NOW, "me", 1)
    store.swap(claimed, verbs.nack(claimed, NOW + 60, "no"))
    assert again(store, task).attempts == 1


def test_a_broken_note_stops_no_mail(kannader: Path, open_kannader: Opener) -> None:
    """What we noted and cannot read is said with the mail, which is sent all the same."""
    store = open_kannader()
    task = send(store)
    (claimed,) = store.take(NOW, "me", 1)
    store.swap(claimed, verbs.nack(claimed, NOW, "no"))
    (noted,) = (kannader / ".spooldeck" / "notes").iterdir()
    noted.write_bytes(b"{")

    seen = again(store, task)

    assert seen.attempts is None
    assert "cannot be read" in seen.extra["note"]
    assert [t.id for t in store.take(NOW, "me", 1)] == [task.id]


def test_a_lost_race_against_the_daemon_changes_nothing(
    kannader: Path, open_kannader: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds at the rename that Kannader has the mail puts back what was written."""
    store = open_kannader()
    task = send(store)
    store.swap(task, verbs.hold(task, NOW))
    held = again(store, task)
    dest = next((kannader / "data").glob("*/*-*"))
    before = (dest / "schedule").read_bytes()
    rename = files.rename

    def lost(source: str, target: str, **folders: int) -> None:
        if source == task.id:
            (kannader / "hold" / task.id).rename(kannader / "inflight" / task.id)
        rename(source, target, **folders)

    monkeypatch.setattr(files, "rename", lost)
    with pytest.raises(Gone):
        store.swap(held, replace(held, state=State.PENDING, due=NOW + 60))

    assert (dest / "schedule").read_bytes() == before
    assert names(dest) == {"schedule", "metadata"}


def test_two_links_to_one_recipient_are_sent_once(kannader: Path, open_kannader: Opener) -> None:
    """A doubled link is a problem, and never claimed beside the other one."""
    store = open_kannader()
    task = send(store)
    link = (kannader / "queue" / task.id).readlink()
    (kannader / "queue" / "zz").symlink_to(link)

    dest = f"data/{link.parent.name}/{link.name}"
    assert list(problems_in(store)) == [dest]
    assert problems_in(store)[dest].startswith("queue/zz leads to the same recipient as queue/")
    assert [t.id for t in store.take(NOW, "me", 9)] == [task.id]
    assert list(store.take(NOW, "me", 9)) == []
    store.recover()
    assert names(kannader / ".spooldeck" / "aside") == {"queue.zz"}


# ---- beside a living Kannader

DAEMON = """
import os, sys
flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
words = ("data", "queue", "inflight", "cleanup")
kept = [os.open(f"{sys.argv[1]}/{word}", flags) for word in words]
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def daemon(kannader: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the spool's folders as Kannader does."""
    with running(DAEMON, str(kannader)) as process:
        yield process


LATER, COPY, TWICE = "at its next start only", "its own copy of the schedule", "sent twice"
BESIDE: dict[tuple[State | None, State | None], tuple[str, str]] = {
    (None, State.PENDING): (LATER, ""),
    (State.HELD, State.PENDING): (LATER, ""),
    (State.TRASH, State.PENDING): (LATER, ""),
    (State.PENDING, State.PENDING): (COPY, ""),
    (State.ACTIVE, State.PENDING): ("", TWICE),
    (State.ACTIVE, State.HELD): ("", TWICE),
    (State.ACTIVE, State.DONE): ("", TWICE),
    (State.ACTIVE, None): ("", TWICE),
}
"""Kannader spool, section 6: of which edge it is warned, and which is refused; no other is."""


def test_what_changes_beside_a_living_kannader(
    daemon: subprocess.Popen[str], open_kannader: Opener
) -> None:
    """Each edge says what the daemon makes of it, and names its process."""
    for way in EDGES:
        with naming(way):
            edge = open_kannader().edges[way]

            warning, refused = BESIDE.get(way, ("", ""))
            assert warning in edge.warning and (warning or edge.warning == EDGES[way].warning)
            assert refused in edge.refused and bool(refused) == bool(edge.refused)
            assert (
                edge == EDGES[way] or f"Kannader (PID {daemon.pid})" in edge.warning + edge.refused
            )


def test_a_kannader_comes_and_goes(kannader: Path, open_kannader: Opener) -> None:
    """An open store notices that one was started, and that it has ended."""
    times = itertools.count(NOW, 5)
    store = open_kannader(lambda: next(times))
    task = send(store)
    assert not store.kannaders

    with running(DAEMON, str(kannader)) as process:
        again(store, task)
        beside = store.kannaders
        with pytest.raises(Unsupported, match="running"):
            store.recover()
        assert store.recover(dry=True) == store.recover(anyway=True) == []
    again(store, task)

    assert beside == (process.pid,)
    assert store.kannaders == ()


def test_what_a_living_kannader_may_be_sending_is_left(
    kannader: Path, daemon: subprocess.Popen[str], open_kannader: Opener
) -> None:
    """Its mail in flight is moved by nobody else; what a worker of ours has claimed is its own."""
    store = open_kannader()
    send(store, *TO)
    first, second = tasks_in(store).values()
    (kannader / "queue" / second.id).rename(kannader / "inflight" / second.id)
    theirs = again(store, second)

    with pytest.raises(Unsupported, match="running"):
        store.swap(theirs, verbs.release(theirs, NOW))
    (ours,) = store.take(NOW, "me", 9)
    with pytest.raises(Unsupported, match="running"):
        store.swap(theirs, verbs.release(theirs, NOW))
    with pytest.raises(Unsupported, match="running"):
        open_kannader().swap(ours, verbs.unclaim(ours))
    store.swap(ours, verbs.nack(ours, NOW + 60, "no"))

    assert again(store, first).attempts == 1
    assert again(store, second) == theirs


SENDER = """
import os, sys
flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
words = ("data", "queue", "inflight", "cleanup")
data, queue, inflight, cleanup = [os.open(f"{sys.argv[1]}/{word}", flags) for word in words]
print("ready", flush=True)
for line in sys.stdin:
    try:
        os.rename(line.strip(), line.strip(), src_dir_fd=queue, dst_dir_fd=inflight)
    except FileNotFoundError:
        print("vanished", flush=True)
    else:
        print(os.listdir(f"{sys.argv[1]}/inflight/{line.strip()}/.."), flush=True)
"""


def test_what_we_hold_no_kannader_sends(kannader: Path, open_kannader: Opener) -> None:
    """A mail on hold, or in our trash, has vanished for a Kannader whose timer fires; it needs no
    warning, and released, the same link leads to the same mail again.
    """
    store = open_kannader()
    task = send(store)
    with running(SENDER, str(kannader)) as daemon:
        for state in (State.HELD, State.TRASH, State.HELD):
            seen = again(store, task)
            assert not store.edges[seen.state, state].warning
            store.swap(seen, replace(seen, state=state))
            assert asked(daemon, task.id) == "vanished\n"
            seen_by_it = {*names(kannader / "queue"), *names(kannader / "inflight")}
            assert not seen_by_it | names(kannader / "cleanup")
        seen = again(store, task)
        store.swap(seen, verbs.release(seen, NOW))
        seen = again(store, task)
        assert "contents" in asked(daemon, task.id)

        with pytest.raises(Gone):
            store.swap(seen, verbs.hold(seen, NOW))


def test_ours_are_no_kannader(kannader: Path, open_kannader: Opener) -> None:
    """Another process of ours, or a shell that stands in the spool, holds its folders otherwise."""
    with running(TAKER, str(kannader), str(NOW), cwd=kannader / "inflight"):
        assert open_kannader().kannaders == ()


# ---- rivals


def test_two_engines_send_each_mail_once(kannader: Path, open_kannader: Opener) -> None:
    """Two processes on one spool of 24 mails send each of them, and none of them twice."""
    filler = open_kannader()
    ids = {
        ident
        for number in range(8)
        for ident in filler.enqueue("", [f"{n}@{number}.example" for n in range(3)], [TEXT])
    }

    said = at_once(2, TAKER, str(kannader), str(NOW), "done")

    assert sorted(itertools.chain(*said)) == sorted(ids)
    assert list(filler.look()) == []
    assert names(kannader / "data") == set()


def test_no_mail_waits_because_of_its_id(kannader: Path, open_kannader: Opener) -> None:
    """Where a new mail comes for each that goes, those with the last ids have their turn as well:
    ids are made at random.
    """
    store = open_kannader()

    def arrives(ident: str) -> None:
        (made,) = store.enqueue("", ["a@one.example"], [TEXT])
        os.rename(kannader / "queue" / made, kannader / "queue" / ident)  # noqa: PTH104

    for ident in ("m", "n", "o"):
        arrives(ident)
    taken = []
    for number in range(4):
        (task,) = store.take(NOW, "me", 1)
        store.swap(task, None)
        taken.append(task.id)
        arrives(f"a{number}")

    assert taken == ["m", "n", "o", "a0"]


# ---- whatever somebody puts there


def every_file(root: Path) -> dict[str, tuple[int, ...]]:
    """Everything below a folder, itself included, with what betrays a change."""
    return {
        str(path): (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_mode)
        for path in (root, *root.rglob("*"))
        for seen in [path.lstat()]
    }


def loop(path: Path) -> None:
    """A link to itself."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def fifo(path: Path) -> None:
    """A FIFO that nobody writes to."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def huge(path: Path) -> None:
    """A gigabyte of nothing."""
    os.truncate(path, 1 << 30)


def deep(path: Path) -> None:
    """More brackets than any parser has a stack for."""
    path.write_bytes(b"[" * 60_000)


def doubled(path: Path) -> None:
    """A file with a second name."""
    os.link(path, path.parents[3] / f"other-{path.name}")


def folder(path: Path) -> None:
    """A folder in the place of a file."""
    path.unlink()
    path.mkdir()


def binary(path: Path) -> None:
    """No text at all."""
    path.write_bytes(b"\xff\xfe\x00")


def test_a_hostile_file_is_a_problem(tmp_path: Path, open_kannader: Opener) -> None:
    """Whatever lies in a recipient's folder neither blocks nor ends a look, is never claimed, and
    the mail behind it comes all the same.
    """
    makers = (loop, fifo, huge, deep, doubled, folder, binary)
    for name, make in itertools.product(("schedule", "metadata"), makers):
        root = tmp_path / f"{name}-{make.__name__}"
        make_spool(str(root))
        with naming(name, make.__name__):
            store = open_kannader(root=root)
            bad, good = send(store), send(store)
            make(root / "queue" / bad.id / name)

            shown = problems_in(store)

            assert [w for w in shown if w.startswith("queue/")] == [f"queue/{bad.id}"]
            assert name in shown[f"queue/{bad.id}"]
            assert [task.id for task in store.take(NOW, "me", 9)] == [good.id]
            with pytest.raises(Gone):
                store.swap(bad, verbs.hold(bad, NOW))
            store.recover()
            assert (name == "metadata") == (names(root / ".spooldeck" / "aside") != set())
            assert not any(word in "".join(store.recover()) for word in ("aside", "deleted"))


@pytest.mark.parametrize("which", ["mail", "dest"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    kannader: Path, open_kannader: Opener, tmp_path: Path, which: str
) -> None:
    """A mail's folder that leads out of the spool is neither read nor erased through."""
    store = open_kannader()
    task = send(store)
    mail = next((kannader / "data").iterdir())
    moved = mail if which == "mail" else next(mail.glob("*-*"))
    outside = tmp_path / "outside"
    moved.rename(outside)
    moved.symlink_to(outside)
    before = every_file(outside)

    assert "a symbolic link or no folder" in problems_in(store)[f"queue/{task.id}"]
    (kannader / "queue" / task.id).rename(kannader / "cleanup" / task.id)
    store.recover()

    assert every_file(outside) == before


def test_a_link_that_leads_elsewhere_is_set_aside(kannader: Path, open_kannader: Opener) -> None:
    """It is named for what it says, in printable characters, never followed, and kept aside."""
    (kannader / "hold").mkdir(exist_ok=True)
    texts = {
        "outside": "/etc",
        "up": "../data/../../outside",
        "loop": "loop",
        "mail": "../data/11111111-1111-4111-8111-111111111111",
        "long": "../data/" + "x" * 3000,
        "control": "../data/\x1b[2J",
    }
    for word, name in itertools.product(("queue", "inflight", "cleanup", "hold"), texts):
        (kannader / word / f"{word}-{name}").symlink_to(texts[name])
        store = open_kannader()

        with naming(word, name):
            ((where, what),) = problems_in(store).items()
            assert where == f"{word}/{word}-{name}" and what.isprintable()
            store.recover()

            kept = kannader / ".spooldeck" / "aside" / f"{word}.{word}-{name}"
            assert os.fspath(kept.readlink()) == texts[name]
            (problem,) = (item for item in store.look() if isinstance(item, Problem))
            assert store.glimpse(problem) == os.fsencode(texts[name])
            kept.unlink()


def test_a_link_that_cannot_be_named_is_left(kannader: Path, open_kannader: Opener) -> None:
    """A whole mail under a name that nobody could type is shown, and not claimed or moved."""
    store = open_kannader()
    for strange in map(os.fsdecode, (b"\xff\xfe", b"new\nline", b"\x1b[2J")):
        task = send(store)
        (kannader / "queue" / task.id).rename(kannader / "queue" / strange)

        (where,) = problems_in(store)

        assert where.isprintable()
        assert list(store.take(NOW, "me", 9)) == []
        store.recover()
        assert names(kannader / "queue") == {strange}
        (kannader / "queue" / strange).unlink()


def test_something_in_the_place_of_our_folder_is_named(
    kannader: Path, open_kannader: Opener
) -> None:
    """A link where hold/ should be is named and not entered."""
    (kannader / "hold").symlink_to("/tmp")
    store = open_kannader()
    task = send(store)

    assert "hold" in problems_in(store)
    with pytest.raises(Unavailable, match="hold"):
        store.swap(task, verbs.hold(task, NOW))
    assert again(store, task) == task


def test_a_spool_open_to_everybody_is_refused(kannader: Path, open_kannader: Opener) -> None:
    """Where anybody may put links, nothing is done, and the way out is said."""
    (kannader / "queue").chmod(0o777)

    refused = {edge.refused for edge in open_kannader().edges.values()}

    assert refused == {
        f"{kannader}/queue may be written by everybody: use chmod o-w {kannader}/queue"
    }


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """An empty spool of the user of `by_nobody`."""
    with nobodys_folder() as folder:
        root = folder / "kannader"
        by_nobody(lambda: make_spool(str(root)))
        yield root


CLOSED = ("schedule", "metadata", "", "..")
"""What of a mail may be closed to us, from its link."""


def test_what_may_not_be_read_is_a_problem(nobodys: Path) -> None:
    """A file or a folder closed to us is named, and the mail behind it comes all the same."""

    def look() -> None:
        with closing(KannaderStore(str(nobodys), lambda: NOW)) as store:
            for name in CLOSED:
                bad, good = send(store), send(store)
                closed = (nobodys / "queue" / bad.id / name).resolve()
                closed.chmod(0)

                shown = problems_in(store)
                taken = list(store.take(NOW, "me", 9))
                closed.chmod(0o700)

                assert f"queue/{bad.id}" in shown, name
                assert [task.id for task in taken] == [good.id], name
                for task in (*taken, *store.take(NOW, "me", 9)):
                    store.swap(task, None)

    by_nobody(look)


def test_what_may_not_be_read_is_left_by_recovery(nobodys: Path) -> None:
    """A right that is missing is no damage: it is said, dry or not, and nothing is moved."""

    def recover(name: str, word: str) -> None:
        root = nobodys.with_name(f"{word}{CLOSED.index(name)}")
        make_spool(str(root))
        with naming(name, word), closing(KannaderStore(str(root), lambda: NOW)) as store:
            store.swap(task := send(store), verbs.hold(task, NOW))
            where = f"{word}/{task.id}"
            (root / "hold" / task.id).rename(root / where)
            closed = (root / where / name).resolve()
            closed.chmod(0)

            dry, done = store.recover(dry=True), store.recover()
            seen = problems_in(store)
            closed.chmod(0o700)

            for said in (dry, done):
                assert [f"{where}: " in line and "Permission" in line for line in said] == [True]
            assert "cannot be read now" in seen[where]
            assert again(store, task).destination == TO[0] and store.recover() == []

    def recover_each() -> None:
        for name, word in itertools.product(CLOSED, ("queue", "inflight", "hold")):
            recover(name, word)

    by_nobody(recover_each)


def test_what_may_not_be_read_is_neither_orphan_nor_note(nobodys: Path) -> None:
    """Nothing in a mail that is closed to us is deleted, and recovery comes to its end."""

    def recover() -> None:
        with closing(KannaderStore(str(nobodys), lambda: NOW + 9e9)) as store:
            send(store)
            (task,) = store.take(NOW + 9e9, "me", 1)
            store.swap(task, verbs.nack(task, NOW, "no"))
            link = nobodys / "queue" / next(iter(names(nobodys / "queue")))
            metadata = (link / "metadata").resolve()
            link.unlink()
            for closed in (metadata, metadata.parent.parent):
                mode = closed.stat().st_mode
                closed.chmod(0)
                store.recover()
                closed.chmod(mode)
            assert metadata.read_bytes()
            assert names(nobodys / ".spooldeck" / "notes")

    by_nobody(recover)


def test_ten_mails_of_others_stop_no_queue(nobodys: Path) -> None:
    """However many are closed to us, they are not the system's fault: the next one comes."""

    def take() -> None:
        with closing(KannaderStore(str(nobodys), lambda: NOW)) as store:
            for _ in range(12):
                (nobodys / "queue" / send(store).id / "metadata").resolve().chmod(0)
            good = send(store)
            assert [task.id for task in store.take(NOW, "me", 99)] == [good.id]
            assert list(store.take(NOW, "me", 99)) == []

    by_nobody(take)


@pytest.mark.parametrize("word", ["queue", "hold"])
def test_what_was_set_aside_is_put_back(kannader: Path, open_kannader: Opener, word: str) -> None:
    """Once it is mended it stands where it stood, under its own id, and is as it was."""
    store = open_kannader()
    task = send(store)
    if word == "hold":
        store.swap(task, verbs.hold(task, NOW))
    before = again(store, task)
    metadata = (kannader / word / task.id / "metadata").resolve()
    whole = metadata.read_bytes()
    metadata.write_bytes(b"torn")
    store.recover()
    where = f".spooldeck/aside/{word}.{task.id}"
    assert "metadata: no JSON" in problems_in(store)[where]

    with pytest.raises(Unsupported, match="can never be sent"):
        store.control("put-back", where)
    metadata.write_bytes(whole)
    assert problems_in(store)[where] == "quarantined link: mended; put it back, or discard it"
    said = store.control("put-back", where)

    after = again(store, task)
    assert said == f"{where}: put back as {word}/{task.id}"
    assert replace(after, rev="") == replace(before, rev="")
    assert problems_in(store) == {} and store.recover() == []
    with pytest.raises(Unsupported, match="no such quarantined link"):
        store.control("put-back", where)


def test_discarding_a_second_link_keeps_the_mail(kannader: Path, open_kannader: Opener) -> None:
    """A quarantined link whose recipient another link leads to is deleted alone; the mail stays."""
    store = open_kannader()
    task = send(store)
    (kannader / "queue" / "zz").symlink_to((kannader / "queue" / task.id).readlink())
    store.recover()
    where = ".spooldeck/aside/queue.zz"

    assert store.forecast("discard", where).words == f"{where}: would be deleted, for good"
    assert store.control("discard", where) == f"{where}: deleted"

    assert problems_in(store) == {} and again(store, task) == task


@pytest.mark.parametrize(
    ("target", "keeps", "why"),
    [
        (".spooldeck/aside/../../queue/{id}", None, "no such quarantined link"),
        (".spooldeck/aside/{id}", None, "no such quarantined link"),
        ("queue/{id}", None, "no mail that no link leads to"),
        ("data/{mail}", None, "no mail that no link leads to"),
        (".spooldeck/aside/queue.{id}", "notes.txt", "not a file of Kannader: move it away"),
    ],
)
def test_what_is_not_to_be_discarded_stays(
    kannader: Path, open_kannader: Opener, target: str, keeps: str | None, why: str
) -> None:
    """A linked mail, a path out of the quarantine, and a mail with another program's file are not
    discarded, and the forecast refuses them too."""
    store = open_kannader()
    task = send(store)
    dest = (kannader / "queue" / task.id).resolve()
    if keeps:
        (dest / keeps).write_text("mine")
        (dest / "metadata").write_bytes(b"torn")
        store.recover()
    before = sorted(kannader.rglob("*"))
    where = target.format(id=task.id, mail=dest.parent.name)

    for act in (store.forecast, store.control):
        with pytest.raises(Unsupported, match=why):
            act("discard", where)
    assert sorted(kannader.rglob("*")) == before


def test_of_two_links_to_one_recipient_none_is_put_back(
    kannader: Path, open_kannader: Opener
) -> None:
    """A mail is not sent twice because somebody put a link back; one that leads nowhere stays."""
    store = open_kannader()
    task = send(store)
    aside = kannader / ".spooldeck" / "aside"
    aside.mkdir()
    (aside / f"queue.{task.id}.2").symlink_to((kannader / "queue" / task.id).readlink())
    (aside / "queue.x").symlink_to("/etc/passwd")
    (aside / "y").symlink_to("../data")

    for name in (f"queue.{task.id}.2", "queue.x", "y", "../../queue", "", "."):
        with pytest.raises(Unsupported):
            store.control("put-back", f".spooldeck/aside/{name}")
    (kannader / "queue" / task.id).rename(kannader / "queue" / "other")
    with pytest.raises(Unsupported, match="another link leads to the same recipient"):
        store.control("put-back", f".spooldeck/aside/queue.{task.id}.2")
    (kannader / "queue" / "other").unlink()
    (kannader / "queue" / task.id).symlink_to("nowhere")
    store.control("put-back", f".spooldeck/aside/queue.{task.id}.2")

    assert names(aside) == {"queue.x", "y"}
    (new,) = names(kannader / "queue") - {task.id}
    assert form.is_uuid(new) and tasks_in(store)[TO[0]].id == new


@pytest.mark.parametrize("moment", [10**13, -(10**12)])
def test_a_time_that_no_calendar_has_is_no_time(open_kannader: Opener, moment: int) -> None:
    """A link that says to be from such a time came in nobody knows when."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        make_spool(f"{place}/spool")
        store = open_kannader(lambda: NOW, Path(place) / "spool")
        task = send(store)
        link = Path(place) / "spool" / "queue" / task.id
        os.utime(link, (moment, moment), follow_symlinks=False)
        if link.lstat().st_mtime != moment:
            pytest.skip("no such time on this file system")

        assert again(store, task).created == 0


def test_what_is_not_known_is_in_no_description(kannader: Path, open_kannader: Opener) -> None:
    """It is shown where an address is shown; a line about the mail names the form alone."""
    store = open_kannader()
    task = send(store)
    metadata = (kannader / "queue" / task.id / "metadata").resolve()
    metadata.write_bytes(metadata.read_bytes().replace(b'"to":{', b'"to":{"new":1,'))

    seen = again(store, task)

    assert seen.description == "an envelope in a form that is not known"
    assert seen.destination.startswith('{"new":1,')


def test_what_may_not_be_written_is_refused(nobodys: Path) -> None:
    """A spool that we may only read is shown; every edge says why it is closed."""

    def change() -> None:
        with closing(KannaderStore(str(nobodys), lambda: NOW)) as store:
            task = send(store)
        for word in ("data", "queue", "inflight", "cleanup"):
            (nobodys / word).chmod(0o500)

            with closing(KannaderStore(str(nobodys), lambda: NOW)) as other:
                refused = {edge.refused for edge in other.edges.values()}
                seen = again(other, task)
                with pytest.raises(Unsupported, match="not writable"):
                    other.swap(seen, verbs.hold(seen, NOW))
            (nobodys / word).chmod(0o700)

            assert refused == {f"{nobodys / word} is not writable for us"}

    by_nobody(change)


def test_a_spool_of_somebody_else_is_refused(nobodys: Path) -> None:
    """What we made in another user's spool that user could not read: it is only shown."""
    if os.geteuid() != 0:
        # Nobody but root gives a folder away; whose it is is all that is asked.
        assert open_place(str(nobodys)).edges == EDGES
        return
    with closing(KannaderStore(str(nobodys), lambda: NOW)) as store:
        task = send(store)
    for path in (nobodys, *nobodys.rglob("*")):
        os.chown(path, NOBODY + 1 if path.name == "queue" else NOBODY, -1, follow_symlinks=False)
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o770)
            os.chown(path, -1, NOBODY)

    def change() -> None:
        with closing(KannaderStore(str(nobodys), lambda: NOW)) as store:
            why = f"{nobodys}/queue belongs to user {NOBODY + 1}, not to us"
            assert {edge.refused for edge in store.edges.values()} == {why}
            assert again(store, task).destination == TO[0]

    by_nobody(change)


def test_an_id_in_two_places_is_a_problem(kannader: Path, open_kannader: Opener) -> None:
    """One id in two folders is said, in a whole look and when it is asked for, and neither moves
    over the other.
    """
    store = open_kannader()
    one, other = send(store), send(store)
    (kannader / "hold").mkdir(exist_ok=True)
    (kannader / "queue" / other.id).rename(kannader / "hold" / one.id)

    assert list(problems_in(store).values()) == ["stands in hold and queue at once"]
    asked = list(store.look({one.id}))
    assert [type(item) for item in asked] == [Task, Task, Problem]
    with pytest.raises(Gone):
        store.swap(one, verbs.hold(one, NOW))
    assert list(store.look({other.id})) == [Missing(other.id)]


def test_a_view_of_the_text_is_what_was_given(open_kannader: Opener) -> None:
    """What is sent is the wire form, to the byte; undone, it is what was enqueued."""
    store = open_kannader()
    task = send(store)

    with store.contents(task) as contents:
        sent = contents.read()

    assert sent == form.wire(TEXT) == store.read(task, "contents")
    assert unwired(sent) == TEXT.replace(b"\n", b"\r\n")
    assert store.envelope(task).recipient == TO[0]


def test_a_whole_look_shows_each_folder_in_order(open_kannader: Opener, kannader: Path) -> None:
    """After the peek each state's mails come in the order of their ids, whatever they are called;
    what is no text is a problem all the same."""
    store = open_kannader()
    first = kannader / "queue" / send(store).id
    for name in ("zebra", "a", "ä", "Z", "10", "9"):
        (kannader / "queue" / name).symlink_to(
            store._spool.link(first.name, State.PENDING).target.text
        )
    (kannader / "queue" / os.fsdecode(b"\xff")).symlink_to("nowhere")

    seen = list(store.look())
    ids = [item.id for item in seen if isinstance(item, Task)]

    there = len(names(kannader / "queue")) - 1
    assert ids[there:] == sorted(ids[:there]) == sorted(names(kannader / "queue") - {"\udcff"})
    assert [item.what for item in seen if isinstance(item, Problem) and "UTF-8" in item.what]


def _folder(contents: Path) -> None:
    contents.unlink()
    contents.mkdir()


def _link(contents: Path) -> None:
    contents.rename(contents.with_name("elsewhere"))
    contents.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (Path.unlink, "contents: missing"),
        (_folder, "contents: a folder, not a plain file"),
        (_link, "contents: a symbolic link, not followed"),
        (lambda path: path.write_bytes(b""), "contents: cut off, expected a line with only a dot"),
        (lambda path: path.write_bytes(b"A\r\n.\r"), "contents: cut off"),
        (lambda path: path.write_bytes(b"A.\r\n"), "contents: cut off"),
    ],
)
@pytest.mark.parametrize("word", ["queue", "inflight", "hold"])
def test_contents_that_no_server_can_be_sent_are_a_problem(
    kannader: Path,
    open_kannader: Opener,
    broken: Callable[[Path], object],
    why: str,
    word: str,
) -> None:
    """A link to a mail whose contents are missing, cut off or no plain file is a problem: it is no
    task, no worker claims it, and recovery quarantines it."""
    store = open_kannader()
    task = send(store)
    (kannader / word).mkdir(exist_ok=True)
    (kannader / "queue" / task.id).rename(kannader / word / task.id)
    broken(next((kannader / "data").glob("*/contents")))

    assert problems_in(store)[f"{word}/{task.id}"].startswith(f"can never be sent: {why}")
    assert [p.where for p in store.look({task.id}) if isinstance(p, Problem)] == [
        f"{word}/{task.id}"
    ]
    assert not tasks_in(store) and not list(store.take(NOW, "me", 9))
    store.recover()
    assert names(kannader / ".spooldeck" / "aside") == {f"{word}.{task.id}"}


def test_of_many_links_the_doubled_are_named(open_kannader: Opener, kannader: Path) -> None:
    """Two links to one recipient are a problem of that recipient, an id in two folders one of its
    link; no other mail has a problem."""
    store = open_kannader()
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
        f"queue/{twice.id}": "stands in hold and queue at once",
    }


def test_what_others_of_ours_keep_on_the_desk_is_left_alone(
    open_kannader: Opener, kannader: Path
) -> None:
    """Journal, notes of operators, log and recordings beside the trash are no problem, and neither
    looking, changing nor recovering touches them."""
    desk = kannader / ".spooldeck"
    for word in ("journal", "log", "run", "metrics", "recorder", "mailspool", "suspended"):
        (desk / word).mkdir(parents=True)
        (desk / word / "queue.log").write_text("ours")
    (desk / "journal" / "op").symlink_to("../../queue")
    before = {path: path.lstat().st_mtime_ns for path in desk.rglob("*")}
    store = open_kannader()

    task = send(store)
    store.swap(task, verbs.purge(task, NOW))
    said = store.recover()

    assert problems_in(store) == {}
    assert said == []
    assert {path: path.lstat().st_mtime_ns for path in before} == before
