"""A ZMailer spool: what is shown of it, holds that outlast the scheduler, locks, bad input."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.zmailer.spool import marks
from engine.formats.zmailer.spool.folders import MAX_CONTROL_BYTES, read_span
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.model import STALLED_KEY, Missing, Move, Problem, State, Task
from engine.store import Gone, Unavailable, Unsupported
from tests.engine.formats.zmailer.spool.test_control_file import sample_files
from tests.store_contents import every_file, found, naming, problems_in, tasks_in
from tests.zmailer_spool import FIRST, HEADERS, Spool, dead_pid, recipient, write_lock

NOW = 1_795_170_000.0
Opener = Callable[[], ZmailerStore]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """An empty spool."""
    return Spool(tmp_path / "post").make()


@pytest.fixture
def open_store(spool: Spool) -> Iterator[Opener]:
    """Open a further instance on the spool; each reads the scheduler's PID again."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(ZmailerStore(str(spool.root), lambda: NOW)))


def states(store: ZmailerStore) -> list[str]:
    """The states of all tasks, in the order of their ids."""
    return [str(task.state) for _, task in sorted(tasks_in(store).items())]


def move(store: ZmailerStore, ident: str, state: State | None) -> Task:
    """Move a task to a state, or expunge it; returns it as it is then, or as it was."""
    task = found(store, ident)
    store.swap(task, task._replace(state=state) if state else None)
    return found(store, ident) if state else task


@contextmanager
def process_in(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works in a folder."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=folder) as process:
        yield process
        process.communicate(b"\n")


def mark(path: Path, offset: int, tag: bytes) -> None:
    """Write the tag of a recipient without a lock, as an agent does."""
    with path.open("r+b") as file:
        marks.write_mark(file.fileno(), offset, tag.ljust(11))


def test_a_recipient_is_a_task(spool: Spool, open_store: Opener) -> None:
    """With channel, host, thread and address, the time of the message, and its last diagnostic."""
    notary = "\1".join(("a@b", "failed", "5.1.1", "smtp; 550 (no)", "dns; mx"))
    diagnostic = f"d 91:160:-1::1795168644\t{notary}\t\rMAIL\r550 5.1.1 no such user\n"
    spool.put(1001, "r-          smtp MX.Example c@d.example 65534\n", recipient(), more=diagnostic)
    failed, waiting = (found(open_store(), ident) for ident in ("1001/91", "1001/137"))
    fields: dict[str, Any] = {"state": State.PENDING, "kind": "smtp", "group": "mx.example"}
    fields |= {
        "created": FIRST,
        "queue": "smtp/mx.example",
        "destination": "c@d.example",
        "description": "a report",
    }
    assert waiting == waiting._replace(**fields, due=None, attempts=None)
    assert (failed.state, failed.error) == (State.DEAD, "550 5.1.1 no such user")
    extra = {"dead_since": "1795168644", "status": "5.1.1", "remote host": "dns; mx"}
    assert extra.items() <= failed.extra.items()
    (same, _) = list(open_store().scan({failed.extra["spool id"]}))
    assert isinstance(same, Task) and same.id == "1001/137"


def test_the_samples_are_shown_whole(spool: Spool, open_store: Opener) -> None:
    """Each recipient in the real router's files is a task, in all hash folders, none a problem."""
    for name, data in sample_files().items():
        tree, _, path = name.partition("/")
        for folder, text in (("transport", data), ("queue", b"")):
            if tree == "snap2":
                (spool.root / folder / path).parent.mkdir(parents=True, exist_ok=True)
                (spool.root / folder / path).write_bytes(text)
    store = open_store()
    assert (problems_in(store), len(tasks_in(store))) == ({}, 61)
    assert store.count_tasks()[State.PENDING] == 60
    locked = found(store, "3276785/458")
    assert (locked.state, locked.lease and locked.lease.owner) == (State.ACTIVE, "PID 20394")


def test_a_held_recipient_outlasts_its_message(spool: Spool, open_store: Opener) -> None:
    """A scheduler that has finished all other recipients removes both files; the held one stays,
    and is released as a new message with the others done, or expunged, which leaves no file; it
    cannot be given the state of a failed one before."""
    path = spool.put(1001, recipient(), recipient(user="e@f.example"), folder="M/N/")
    other = spool.put(1002, recipient())
    store = open_store()
    for ident in ("1001/137", "1002/91"):
        move(store, ident, State.HELD)
    assert spool.lines(path)[1].startswith("r+held      smtp")
    mark(path, 91, b"+")
    spool.finish(path)
    spool.finish(other)
    assert states(store) == ["held", "held"]
    assert b"all of it" in store.read(found(store, "1001/137"), "message")

    move(store, "1001/137", State.PENDING)
    new = spool.root / "transport" / "1001"
    assert [line[:2] for line in spool.lines(new)] == ["r+", "r "]
    assert (spool.root / "queue" / "1001").read_text().endswith("all of it\n")
    assert states(store) == ["pending", "done", "held"]
    assert new.stat().st_nlink == 1, "our links are removed"

    with pytest.raises(Unsupported, match="removed the message"):
        move(store, "1002/91", State.DEAD)
    for state in (State.TRASH, None):
        move(store, "1002/91", state)
    assert states(store) == ["pending", "done"]
    assert list(spool.root.rglob("1002")) == []


@pytest.mark.parametrize("released", ["1001/91", "1001/137"])
def test_our_links_stay_for_the_other_one(spool: Spool, open_store: Opener, released: str) -> None:
    """Of two held recipients one is released, the one before the other or the one after it."""
    path = spool.put(1001, recipient(), recipient())
    store = open_store()
    for ident in ("1001/91", "1001/137"):
        move(store, ident, State.HELD)
    move(store, released, State.PENDING)
    spool.finish(path)
    assert states(store) == ["held", "held"], "the released one waits for its scheduler"


def test_what_a_running_scheduler_ignores_is_not_lost(spool: Spool, open_store: Opener) -> None:
    """Released while it runs, a recipient keeps our links: removed, it is held again."""
    path, other = spool.put(1001, recipient()), spool.put(1002, recipient())
    with process_in(path.parent) as scheduler:
        (spool.root / ".pid.scheduler").write_text(f"{scheduler.pid}\n")
        store = open_store()
        assert f"(PID {scheduler.pid})" in store.edges[State.HELD, State.PENDING].warning
        for ident in ("1001/91", "1002/91"):
            move(store, ident, State.HELD)
            move(store, ident, State.PENDING)
        assert states(store) == ["pending", "pending"]
        spool.finish(path)
        mark(other, 91, b"+")
        spool.finish(other)
        assert states(store) == ["held"]
        assert [*problems_in(store)] == [".spooldeck/kept/transport/1002"]
        assert store.forecast("tidy").words == "1002"
        assert store.control("tidy") == "links removed: 1"
        assert (states(store), problems_in(store)) == (["held"], {})


def test_a_stale_pid_file_is_no_scheduler(spool: Spool, open_store: Opener) -> None:
    """Neither a PID without a process, nor a process that works elsewhere, nor a folder."""
    pid_file = spool.root / ".pid.scheduler"
    for pid in (dead_pid(), os.getppid(), 0, -1, 10**30, None):
        if pid is None:
            pid_file.unlink()
            pid_file.mkdir()
        else:
            pid_file.write_text(f"{pid}\n")
        assert open_store().edges[State.HELD, State.PENDING].warning == ""


def test_other_recipients_of_a_changed_file_are_unchanged(spool: Spool, open_store: Opener) -> None:
    """A plan of several recipients of one message reaches each of them, also in later batches."""
    spool.put(1001, *(recipient() for _ in range(4)))
    store = open_store()
    moves = [Move(task, verbs.hold(task, NOW)) for task in tasks_in(store).values()]
    for each, batch in ((store, moves[:2]), (open_store(), moves[2:])):
        assert [one.error for one in each.swap_all(batch)] == [None, None]
    assert states(store) == ["held"] * 4


def test_only_a_dead_agents_lock_is_cleared(spool: Spool, open_store: Opener) -> None:
    """A recipient with a running agent is barred, and gone for who has seen it before; one whose
    agent is gone can be released. A process that started after the lock and works elsewhere is no
    agent, one in transport/ is."""
    path = spool.put(1001, recipient(), recipient())
    store = open_store()
    task = found(store, "1001/91")
    write_lock(path, 91, os.getpid())
    write_lock(path, 137, dead_pid())
    with pytest.raises(Gone):
        store.swap(task, verbs.hold(task, NOW))
    lock = f"r~{os.getpid():6d}".ljust(12)  # a PID of 7 digits reaches into the blanks behind it
    assert spool.lines(path)[0].startswith(f"{lock}smtp")
    busy, left = (found(store, ident) for ident in ("1001/91", "1001/137"))
    bars = store.edges[State.ACTIVE, State.PENDING].bars
    running = f"its agent (PID {os.getpid()}) is running and may be delivering it"
    assert (bars(busy, NOW), bars(left, NOW)) == (running, "")
    with pytest.raises(Unsupported, match="is running"):
        store.swap(busy, verbs.release(busy, NOW))
    assert left.extra[STALLED_KEY] == "its agent is gone"
    store.swap(left, verbs.release(left, NOW))
    assert states(store) == ["pending", "active"]
    assert spool.lines(path)[1] == recipient().rstrip()
    with process_in(Path("/")) as stranger, process_in(path.parent) as agent:
        write_lock(path, 91, stranger.pid)
        write_lock(path, 137, agent.pid)
        os.utime(path, (FIRST, FIRST))
        stalled = [one.id for one in tasks_in(open_store()).values() if STALLED_KEY in one.extra]
    assert stalled == ["1001/91"]


def test_lines_without_a_pid_slot_are_only_shown(spool: Spool, open_store: Opener) -> None:
    """Those of an older form, and the alternatives that the scheduler ignores."""
    path = spool.put(1001, "X 7 smtp mx.example c@d.example 65534\n")
    old = spool.put(1002, "r local - c 7\n")
    old.write_text(old.read_text().partition("\n")[2])
    before, store = (path.read_text(), old.read_text()), open_store()
    for ident in tasks_in(store):
        with pytest.raises(Unsupported, match="shown only"):
            move(store, ident, State.HELD)
    assert len(states(store)) == 2
    assert (path.read_text(), old.read_text()) == before


def test_broken_files_are_problems_and_stay(spool: Spool, open_store: Opener) -> None:
    """Each is named with what is wrong, its bytes can be read; none is changed or waited for."""
    transport = spool.root / "transport"
    for number in range(1001, 1007):
        spool.put(number, recipient())
    torn = (transport / "1001").read_text()[:-1]
    (transport / "1001").write_text(torn)
    (transport / "1002").write_text((transport / "1002").read_text().replace("0x00000007", "0x70"))
    (spool.root / "queue" / "1003").unlink()
    (transport / "1004").rename(transport / "2004")
    with (transport / "1005").open("a") as file:
        file.write("d 99999:1:-1::5\t\tno\n")
    os.truncate(transport / "1006", MAX_CONTROL_BYTES + 1)
    os.mkfifo(transport / "3001")
    (transport / "3002").mkdir()
    (transport / "3003").symlink_to("/etc/passwd")
    os.link(transport / "1005", spool.root / "elsewhere")
    transport.chmod(0o777)
    spool.put(3005, recipient())
    (transport / "M").mkdir()
    for name, text in {"3004": "", "M/3005": "a copy\n", ".4002": "a draft\n"}.items():
        (transport / name).write_text(text)
    (transport / "4001-etrn").write_text("T mx.example\n")
    (transport / "README").write_text("no control file\n")
    before = every_file(spool.root)

    store = open_store()
    assert problems_in(store) == {
        "transport/1001": f"torn: a block without an end at offset {torn.index(HEADERS[:4])}",
        "transport/1002": "unknown format bits 0x70",
        "transport/1003": "no message file: queue/1003 is missing",
        "transport/2004": "its i line names 1004",
        "transport/1005": "has a second hard link",
        "transport/1006": "268,435,457 bytes, expected at most 268,435,456",
        "transport/3001": "a FIFO, not a task file",
        "transport/3002": "a folder, not a task file",
        "transport/3003": "a symbolic link, not followed",
        "transport/3004": "no i line with the name of the message file",
        "transport/M/3005": "is in another folder too",
    }
    assert states(store) == ["pending"]
    assert store.preview_problem(Problem("transport/1001", "")) == torn.encode()
    for where in ("transport/3001", "transport/../router", "/etc/passwd"):
        with pytest.raises(Unsupported):
            store.preview_problem(Problem(where, ""))
    assert every_file(spool.root) == before


def test_a_damaged_line_is_a_problem_beside_its_tasks(spool: Spool, open_store: Opener) -> None:
    """A diagnostic of an offset past the end leaves the recipients; a lookup shows it again."""
    spool.put(1001, recipient(), more="d 99999:1:-1::5\t\tno\n")
    for names in (None, {"1001"}, {"transport/1001"}):
        items = list(open_store().scan(names))
        problems = [item.what for item in items if isinstance(item, Problem)]
        assert problems == ["diagnostic of offset 99999, no recipient there"]
        assert {item.id for item in items if isinstance(item, Task)} == {"1001/91"}


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    spool: Spool, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown is the file at the path; one that changes each time is a problem."""
    spool.put(1001, recipient())
    store, read = open_store(), read_span
    left = [2]

    def replacing(fd: int, start: int, end: int) -> bytes:
        result = read(fd, start, end)
        if left[0]:
            left[0] -= 1
            spool.put(1001, recipient(user=f"new{left[0]}@d.example"))
        return result

    monkeypatch.setattr("engine.formats.zmailer.spool.reading.read_span", replacing)
    assert found(store, "1001/91").destination == "new0@d.example"
    left[0] = 9
    (problem,) = store.scan({"1001"})
    assert isinstance(problem, Problem) and problem.what.endswith("it changes all the time")


def test_a_file_name_means_its_tasks(spool: Spool, open_store: Opener) -> None:
    """As events name files: all its tasks, expunged ones as missing; a folder all its files."""
    path = spool.put(1001, recipient(), recipient())
    spool.put(1013, recipient(), folder="Z/")
    store = open_store()
    for state in (State.TRASH, None):
        move(store, "1001/91", state)
    ids = {item.id for item in store.scan({"1001"}) if not isinstance(item, Problem)}
    assert ids == {"1001/91", "1001/137"}
    assert list(store.scan({"1001/91"})) == [Missing("1001/91")]
    spool.finish(path)
    assert list(store.scan({"1001"})) == [Missing("1001/")]
    assert [item.id for item in store.scan({"Z"}) if isinstance(item, Task)] == ["1013/91"]
    watched = {"transport", "transport/Z", "transport/A/Z", "freezer"}
    assert {f"{spool.root}/{one}" for one in watched} < set(store.changes.paths)


def test_what_the_scheduler_has_parked_is_a_problem(spool: Spool, open_store: Opener) -> None:
    """With the reason, if it is seen in the file, and its bytes; nothing is changed."""
    freezer = spool.root / "freezer"
    (freezer / "folder").mkdir(parents=True)
    spool.put(1001, recipient()).rename(freezer / "1001")
    (freezer / "1002").write_bytes(b"i 1002\nr torn")
    store, end = open_store(), "; move it back to transport/ once mended"
    assert problems_in(store) == {
        "freezer/1001": f"parked: the scheduler could not use it{end}",
        "freezer/1002": f"parked: torn: a line without an end at offset 7{end}",
    }
    assert next(iter(store.scan({"freezer/1001"}))) == Missing("1001/")
    assert store.preview_problem(Problem("freezer/1002", "")) == b"i 1002\nr torn"


def test_a_message_of_this_name_hides_no_held_recipient(spool: Spool, open_store: Opener) -> None:
    """Put there by a copy: a problem names it; neither `tidy` nor a change removes our links."""
    path = spool.put(1001, recipient())
    store = open_store()
    move(store, "1001/91", State.HELD)
    spool.finish(path)
    spool.put(1001, recipient())
    (what,) = problems_in(store).values()
    assert what == "held recipients, but transport/1001 is another file of this name"
    with pytest.raises(Unavailable, match="is another file"):
        move(store, "1001/91", State.HELD)
    assert store.control("tidy") == "links removed: 0"
    spool.finish(path)
    assert states(store) == ["held"]


def test_a_spool_that_others_can_write_to_is_only_shown(spool: Spool, open_store: Opener) -> None:
    """With the command that ends it; a spool that is gone or replaced is unavailable."""
    transport = spool.put(1001, recipient()).parent
    transport.chmod(0o777)
    store, why = open_store(), f"{transport} is world-writable: run chmod o-w {transport}"
    assert {edge.refusal for edge in store.edges.values()} == {why}
    with pytest.raises(Unsupported, match="world-writable"):
        store.control("tidy")
    assert states(store) == ["pending"]
    transport.rename(spool.root / "old")
    with pytest.raises(Unavailable, match="transport: No such file"):
        open_store()
    transport.mkdir()
    with pytest.raises(Unavailable, match="replaced"):
        list(store.scan())


def test_lookups_of_a_large_file_show_what_changed(
    spool: Spool, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full scan and all lookups since are a new full scan; few tasks are shown again."""
    for name, value in (  # any control file is a large one, of many blocks
        ("reading.LARGE_BYTES", 1),
        ("control_file.BLOCK_BYTES", 256),
        ("control_file.CHUNK_BYTES", 1024),
        ("reading.CHUNK_BYTES", 1024),
        ("folders.WINDOW_BYTES", 64),
        ("tasks.MAX_SORTED", 10),
    ):
        monkeypatch.setattr(f"engine.formats.zmailer.spool.{name}", value)
    lines = [f"r           smtp mx{at}.example user@d.example 1\n" for at in range(300)]
    for at in (7, 150, 299):
        lines[at] += "N NOTIFY=NEVER\n"
    path = spool.put(1001, *lines, folder="N/")
    changer, store = open_store(), open_store()
    view = tasks_in(store)
    assert [*view] == sorted(view) and len(view) == 300
    offsets = [int(ident.partition("/")[2]) for ident in view]

    def overwrite(at: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    def append(text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def change(at: int, *states: State | None) -> None:
        for state in states:
            move(changer, f"1001/{offsets[at]}", state)

    subject = path.read_bytes().index(b"a report")
    diagnostic = f"d {offsets[60]}:1:-1::5\tx\t"
    changes: list[tuple[Callable[[], object], int]] = [
        (lambda: overwrite(offsets[0] + 1, b"~%6d" % os.getpid()), 20),
        (lambda: overwrite(offsets[299] + 1, b"-      "), 20),
        (lambda: append(diagnostic + "no\r"), 300),  # torn
        (lambda: append("such user\n"), 300),
        (lambda: append(diagnostic + "yes\n"), 20),
        (lambda: append("d 1:1:-1::5\tx\tof no recipient\n"), 20),
        (lambda: change(40, State.HELD), 20),
        (lambda: change(41, State.TRASH, None), 20),
        (lambda: overwrite(offsets[100] + 12, b"uucp"), 20),
        (lambda: overwrite(offsets[101], b"?"), 300),
        (lambda: overwrite(offsets[101], b"r"), 300),
        (lambda: overwrite(subject, b"A"), 300),
        (lambda: overwrite(91 - 20, b"x"), 300),
        (lambda: append("r           smtp mx.example late@d.example 1\n"), 301),
        (lambda: path.rename(spool.root / "transport" / path.name), 301),
    ]
    for number, (act, most) in enumerate(changes):
        act()
        items = list(store.scan({"1001"}))
        new = open_store()
        with naming(number):
            assert len(items) <= most + 2
            for item in items:
                if isinstance(item, Task):
                    view[item.id] = item._replace(lease=None)  # it begins with the file's time
                elif isinstance(item, Missing):
                    view.pop(item.id, None)
            torn = any(isinstance(item, Problem) and "torn" in item.what for item in items)
            expected = {at: one._replace(lease=None) for at, one in tasks_in(new).items()}
            assert torn or {**view, **expected} == view
            some = [(task.id, task.state, task.rev) for task in expected.values()]
            assert [one.id for one in new.verify(some) if isinstance(one, Task)] == [*expected]
    assert list(store.scan({"1001"})) == [item for item in items if isinstance(item, Problem)]


def test_a_batch_reads_only_its_lines_of_a_large_file(
    spool: Spool, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither `verify` nor a change of some recipients reads the others again."""
    path = spool.put(1001, *(recipient() for _ in range(4000)))
    store = open_store()
    tasks = [*tasks_in(store).values()][:20]
    seen = [(task.id, task.state, task.rev) for task in tasks]
    assert len([*store.verify(seen[:1])]) == 1
    read, total = os.pread, [0]

    def counting(fd: int, size: int, offset: int) -> bytes:
        data = read(fd, size, offset)
        total[0] += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    assert len([*store.verify(seen)]) == 20
    moves = [Move(task, verbs.hold(task, NOW)) for task in tasks]
    assert {one.error for one in store.swap_all(moves)} == {None}
    assert total[0] < path.stat().st_size / 2
