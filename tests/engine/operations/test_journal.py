"""The journal's files: cut, noise, planted and foreign files, masked addresses, locks."""

import errno
import json
import os
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pytest import MonkeyPatch

from engine.formats.base.memory import MemoryStore
from engine.model import State, Task
from engine.operations import journal_format, plans, run_plan, undo
from engine.operations.journal import Intent, Journal, Operation, Who, mask_addresses
from engine.operations.journal_format import MAX_LINE_BYTES
from engine.operations.journal_writer import JournalWriter
from engine.operations.plans import Plan, Row, RowOutcome, RowResult
from engine.store import Unavailable
from engine.system import files
from engine.text import decode
from tests.engine.task_builders import NOW, clock, tasks_in
from tests.examples import examples
from tests.programs import needs_root

US = Intent("", Who("ana", host="mx1", pid=1))
SECRET = "kim@example.net"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in which nothing is written yet."""
    return Journal(f"{tmp_path}/journal", str(tmp_path), clock)


def a_plan(count: int = 4, verb: str = "retry") -> Plan:
    """A plan for so many dead tasks."""
    rows = (Row(f"20261120T094115Z-job-{n:08x}", State.DEAD, f"rev{n}") for n in range(count))
    return Plan(verb, tuple(rows), NOW)


def many_rows(count: int) -> Plan:
    """A plan for so many tasks with short ids."""
    rows = (Row(f"task-{n:06}", State.DEAD, f"r{n}") for n in range(count))
    return Plan("hold", tuple(rows), NOW)


def begin(journal: Journal, verb: str, plan: Plan) -> JournalWriter:
    """Begin an operation."""
    return journal.begin(US._replace(verb=verb, values=plan.values), plan)


def written(journal: Journal, plan: Plan, *, end: bool = True) -> tuple[Path, Path]:
    """An operation with an image and an outcome for each row: its two files."""
    record = begin(journal, plan.verb, plan)
    texts = [(row.id, f"what {row.id}\nwas\n") for row in plan.rows]
    record.save_images([(ident, text.encode("utf-8", "replace")) for ident, text in texts])
    done = [RowOutcome(row, RowResult.DONE, rev=f"new {row.rev}") for row in plan.included]
    record.write_outcomes(done[:2])
    record.write_outcomes(done[2:])
    if end:
        record.write_end(len(plan.rows), {RowResult.DONE: len(done)})
    record.close()
    return Path(f"{journal.folder}/{record.op}.jsonl"), Path(f"{journal.folder}/{record.op}.before")


def test_each_line_but_a_note_is_on_the_disk(journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """Intent, images, outcomes and end are fsynced, and so are the names of their files."""
    real, synced = files.fsync, dict[int, int]()

    def fsync(fd: int) -> None:
        real(fd)
        synced[os.fstat(fd).st_ino] = os.fstat(fd).st_size

    def unsynced() -> list[str]:
        folder = Path(journal.folder)
        stats = {path.name: path.stat() for path in folder.iterdir()}
        assert folder.stat().st_ino in synced
        return [name for name, at in stats.items() if synced.get(at.st_ino) != at.st_size]

    monkeypatch.setattr(files, "fsync", fsync)
    plan = a_plan(2)
    record = begin(journal, "retry", plan)
    assert unsynced() == []
    synced.clear()
    record.save_images([(row.id, b"as it was") for row in plan.rows])
    assert unsynced() == [f"{record.op}.jsonl"]  # cleared here, and unchanged since
    record.write_outcomes([RowOutcome(row, RowResult.DONE, rev="new") for row in plan.rows])
    assert unsynced() == []
    record.write_note("seen")
    assert unsynced() == [f"{record.op}.jsonl"]
    record.write_end(2, {RowResult.DONE: 2})
    assert unsynced() == []
    record.close()


def again(journal: Journal) -> Journal:
    """The same journal, with nothing remembered."""
    return Journal(journal.folder, clock=clock)


def believed(journal: Journal) -> list[Operation]:
    """Everything that can be read of it; what it says of itself must fit."""
    operations = list(again(journal).operations())
    for operation in operations:
        entries = list(journal.entries(operation.op))
        counted = [e.outcome.result for e in entries if e.outcome is not None]
        assert operation.open_rows >= 0 and len(entries) <= operation.planned
        assert {end: counted.count(end) for end in RowResult} == operation.counts or not entries
        images = {f"what {entry.row.id}\nwas\n".encode() for entry in entries}
        assert {*journal.images(operation.op).values()} <= images
    return operations


def test_cut_off_anywhere_it_says_no_more_than_was_durable(journal: Journal) -> None:
    """It is nothing before its rows are whole, then what its lines say; images are exact."""
    plan = a_plan()._replace(excluded_ids=frozenset({a_plan().rows[3].id}))
    path, before = written(journal, plan)
    data, was, whole = path.read_bytes(), before.read_bytes(), dict(journal.images(path.stem))
    began = data.index(b"\n", data.index(b'"rows":')) + 1
    for size in range(0, len(was), 3):
        before.write_bytes(was[:size])
        images = journal.images(path.stem)
        assert images.items() <= whole.items() and len(images) < len(whole)
    before.write_bytes(was)
    for size in {*range(0, len(data), 5), *range(began - 3, began + 3)}:
        path.write_bytes(data[:size])
        operations = believed(journal)
        assert len(operations) == (size >= began)
        for operation in operations:
            assert operation.counts[RowResult.EXCLUDED] == 1
            assert operation.counts[RowResult.DONE] in (0, 2, 3)
            assert operation.ended is None


NOISES = "insert", "overwrite", "line", "all", "before"


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40), st.floats(0, 1), st.sampled_from(NOISES))
def test_noise_is_not_believed(journal: Journal, noise: bytes, at: float, kind: str) -> None:
    """With any bytes in its files, reading them ends, and what is read fits together."""
    path, before = written(journal, a_plan(), end=False)
    target = before if kind == "before" else path
    data = target.read_bytes()
    place = int(at * len(data))
    if kind == "line":
        place = data.find(b"\n", place) + 1
        noise = noise.replace(b"\n", b" ") + b"\n"
    rest = data[place + len(noise) * (kind == "overwrite") :]
    target.write_bytes(noise if kind == "all" else data[:place] + noise + rest)
    operations = list(again(journal).operations())
    for operation in operations:
        entries = list(journal.entries(operation.op))
        known = [entry for entry in entries if entry.outcome is not None]
        assert operation.open_rows >= 0
        assert len(known) == sum(operation.counts.values()) <= operation.planned
        journal.images(operation.op)
    path.unlink(missing_ok=True)
    before.unlink(missing_ok=True)


NONSENSE = ["null", "[]", "7", '"ends"', "{}", '{"line": 7}', '{"line": "ends", "done": []}']
NONSENSE += [
    '{"line": "ends", "done": {"x": {}}, "gone": 7}',
    '{"line": "ends", "done": {"no-task": "rev"}}',
    '{"line": "rows", "rows": 7}',
    '{"line": "rows", "rows": [["a", "nowhere", "b"]]}',
    '{"line": "rows", "rows": [["a", "dead", 7]]}',
    '{"line": "rows", "rows": [["\\u001b[2J", "dead", "x", "dead", "more", "more"]]}',
    *(f'{{"line": "end", "when": {when}}}' for when in ("NaN", "1e999", '"soon"', "1e300")),
    '{"line": "intent", "when": 1, "verb": "purge", "planned": 9, "who": {"user": "eve"}}',
    '{"line": "note", "what": {"a": [1]}}',
    "[" * 100_000,
    '{"line": ' * 50_000,
    "9" * 10_000,
    "{" + " " * (MAX_LINE_BYTES + 10) + "}",
]

HEADS: list[Any] = [
    *({"planned": planned} for planned in (float("inf"), -1, "9" * 5000)),
    *({"who": who} for who in ("ana", {"user": ["a"]})),
    {"when": float("nan")}, {"verb": 7}, {"values": [1]},
]  # fmt: skip


def test_a_line_of_nonsense_changes_nothing(journal: Journal) -> None:
    """It leaves all other lines; a file that begins as no operation is not listed."""
    path, _ = written(journal, a_plan())
    (before,) = believed(journal)
    data = path.read_bytes()
    place = data.index(b"\n", data.index(b'"ends"')) + 1
    for line in NONSENSE:
        path.write_bytes(data[:place] + line.encode() + b"\n" + data[place:])
        (after,) = believed(journal)
        assert after._replace(notes=(), damaged_lines=0, planned=4) == before, line[:40]
    head, rest = data.split(b"\n", 1)
    for wrong in HEADS:
        path.write_bytes(json.dumps(json.loads(head) | wrong).encode() + b"\n" + rest)
        assert believed(journal) == [], wrong


def test_a_planted_file_is_named_and_not_opened(journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """A link, a FIFO, a socket or a folder is listed, with the reason."""
    written(journal, a_plan())
    folder = Path(journal.folder)
    monkeypatch.chdir(folder)  # of a socket's path 107 bytes count
    with socket.socket(socket.AF_UNIX) as server:
        for name in ("20261120T094115Z-00000000", "99999999T999999Z-00000000"):
            path = folder / f"{name}.jsonl"
            for plant in (lambda path: path.symlink_to("/etc/passwd"), os.mkfifo, Path.mkdir):
                plant(path)
                (strange,) = (o for o in again(journal).operations() if o.op == name)
                assert len(again(journal).operations()) == 2
                assert strange.intent.verb == "?" and name in strange.intent.reason
                with pytest.raises(Unavailable, match=name):
                    journal.resume(name)
                path.rmdir() if path.is_dir() else path.unlink()
        server.bind(f"{name}.jsonl")
        assert {o.intent.verb for o in again(journal).operations()} == {"retry", "?"}


@pytest.fixture
def owners_journal(tmp_path: Path) -> Journal:
    """A journal in a folder of another user."""
    needs_root("to give files away")
    os.chown(tmp_path, 65534, 65534)
    return Journal(f"{tmp_path}/.spooldeck/journal", clock=clock)


def test_the_journal_belongs_to_the_owner_of_its_folder(owners_journal: Journal) -> None:
    """Only the owner can read images; a file of a third user is named and not read."""
    path, before = written(owners_journal, a_plan())
    stats = [p.stat() for p in (path, before, path.parent)]
    owners_and_modes = [(status.st_uid, status.st_mode & 0o777) for status in stats]
    assert owners_and_modes == [(65534, 0o640), (65534, 0o600), (65534, 0o750)]
    os.chown(path, 65533, 65533)
    os.chown(before, 65533, 65533)
    (operation,) = again(owners_journal).operations()
    assert "belongs to user 65533" in operation.intent.reason
    with pytest.raises(Unavailable, match="belongs to user 65533"):
        owners_journal.images(path.stem)


def test_a_hard_link_to_anothers_file_is_not_read(tmp_path: Path, owners_journal: Journal) -> None:
    """Root names the link in the owner's journal, and shows none of its lines."""
    path, _ = written(owners_journal, a_plan())
    secret = tmp_path / "secret"
    secret.write_bytes(path.read_bytes())
    path.with_name("20261120T094115Z-00000000.jsonl").hardlink_to(secret)
    reasons = {o.op: o.intent.reason for o in again(owners_journal).operations()}
    assert "has a second hard link" in reasons["20261120T094115Z-00000000"]
    assert "hard link" not in reasons[path.stem]


def test_only_its_own_names_are_opened(journal: Journal) -> None:
    """A name that is no operation's leads nowhere."""
    written(journal, a_plan())
    for op in ("../../etc/passwd", "", "a", "20261120T094115Z-0000000/", "x\0y"):
        assert journal.operation(op) is None
        assert list(journal.entries(op)) == [] and journal.images(op) == {}
        with pytest.raises(Unavailable, match="no operation has such a name"):
            journal.resume(op)


def test_the_first_line_about_a_row_holds(journal: Journal) -> None:
    """A second intent, row or outcome for the same is passed by."""
    path, _ = written(journal, a_plan())
    (before,) = believed(journal)
    data = path.read_bytes()
    twice = data.replace(b'"done"', b'"failed"').replace(b'"dead"', b'"held"')
    path.write_bytes(data + twice.replace(b'"ana"', b'"eve"'))
    (after,) = believed(journal)
    assert (after._replace(damaged_lines=0), after.damaged_lines) == (before, 1)
    assert {entry.row for entry in journal.entries(path.stem)} == set(a_plan().rows)


def test_an_outcome_that_was_written_twice_counts_once(journal: Journal) -> None:
    """Also in a large file without its end: the first one of each row counts."""
    path, _ = written(journal, many_rows(2000))
    lines = path.read_bytes().splitlines(keepends=True)
    twice = [line.replace(b'"done"', b'"failed"') for line in lines if b'"ends"' in line]
    path.write_bytes(b"".join([*(line for line in lines if b'"end"' not in line), *twice]))
    (operation,) = again(journal).operations()
    assert operation.ended is None
    assert (operation.counts[RowResult.DONE], operation.counts[RowResult.FAILED]) == (2000, 0)


def test_a_large_operation_is_read_in_windows(journal: Journal) -> None:
    """Its rows and images take no memory for each task, and are complete."""
    rows = (plan := many_rows(10_000)).rows
    path, _ = written(journal, plan)
    tracemalloc.start()
    try:
        (operation,) = again(journal).operations()
        entries, images = journal.entries(path.stem), journal.images(path.stem)
        right = sum(
            entry == (row, RowOutcome(row, RowResult.DONE, rev=f"new {row.rev}"))
            and images[row.id] == f"what {row.id}\nwas\n".encode()
            for entry, row in zip(entries, rows, strict=True)
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert right == len(entries) == len(images) == operation.counts[RowResult.DONE] == len(rows)
    assert peak < 150 * len(rows)


def test_an_image_cut_off_after_it_was_found_is_an_error(journal: Journal) -> None:
    """No image is returned in part; an id without one is a missing key."""
    path, before = written(journal, a_plan())
    images = journal.images(path.stem)
    first, *_, last = (row.id for row in a_plan().rows)
    os.truncate(before, before.stat().st_size - 3)
    assert images[first] == f"what {first}\nwas\n".encode()
    with pytest.raises(Unavailable, match="cut off"):
        images[last]
    with pytest.raises(KeyError):
        images["another"]


def test_ids_that_are_no_valid_text_are_read_as_written(journal: Journal) -> None:
    """A lone surrogate or a NUL in an id, a revision or a reason is in the entry, too."""
    rows = tuple(Row(f"n{end}", State.DEAD, f"r{end}") for end in ("\udc80", "\0", "\u00e9"))
    path, _ = written(journal, Plan("hold", rows, NOW))
    assert [entry.row for entry in journal.entries(path.stem)] == [*rows]
    revisions = [entry.outcome.rev for entry in journal.entries(path.stem) if entry.outcome]
    assert revisions == [f"new {row.rev}" for row in rows]
    assert set(journal.images(path.stem)) == {row.id for row in rows}


def test_unknown_ids_find_no_operation(journal: Journal) -> None:
    """Ids that no task has, however they are written, are accounted for and touch nothing."""
    ids = ("\x1b[2J", "../../../etc/passwd", "", "\u202e", "a" * 5000, "no\nbody")
    plan = Plan("purge", tuple(Row(ident, State.DEAD, "x") for ident in ids), NOW)
    begin(journal, "purge", plan).close()
    (operation,) = journal.operations()
    store = MemoryStore()
    report = run_plan.run_journaled_plan(store, journal, plan, US, clock)
    assert (len(report.gone), report.accounted) == (6, 6)
    assert undo.plan_rest(store, journal, operation, NOW).rows == ()


def test_two_of_one_second_are_two(journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """Each has its own files; the last one comes first, also after a clock set back."""
    monkeypatch.setattr(os, "urandom", lambda size: b"\xff" * size)
    times = iter(NOW + n / 100 for n in range(100))
    steady = Journal(journal.folder, clock=lambda: next(times))
    pens = [begin(steady, "retry", a_plan(n)) for n in (1, 2, 3)]
    ops = [(record.op, n) for n, record in enumerate(pens, 1)]
    operations = journal.operations()
    assert [(o.op, o.planned) for o in operations] == ops[::-1]
    assert all(operation.is_running for operation in operations)
    for record in pens:
        record.close()
    earlier = Journal(journal.folder, clock=lambda: NOW - 7200)
    last, _ = written(earlier, a_plan(), end=False)
    listed = {operation.op for operation in earlier.operations(NOW - 7200 - 86400)}
    assert listed == {last.stem, *(op for op, _ in ops)}


def test_no_other_process_writes_while_it_runs(journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """It is neither settled nor dropped then; once it has ended, that changes nothing."""
    monkeypatch.setattr("engine.operations.journal.LOCK_WAIT_SECONDS", 0.05)
    record, store = begin(journal, "retry", a_plan()), MemoryStore()
    (running,) = again(journal).operations()
    path = Path(f"{journal.folder}/{record.op}.jsonl")
    written_so_far = path.read_bytes()
    settled = undo.settle_operation(store, again(journal), running)
    for call in (
        lambda: undo.abandon_operation(store, again(journal), running, "left as it is"),
        lambda: undo.plan_rest(store, again(journal), running, NOW),
    ):
        with pytest.raises(Unavailable, match="another process is running it"):
            call()
    assert running.is_running and settled.operation is None
    assert path.read_bytes() == written_so_far
    record.write_end(len(a_plan().rows), {RowResult.DONE: len(a_plan().rows)})
    record.close()
    data = path.read_bytes()
    undo.settle_operation(store, journal, running._replace(ended=None))
    undo.abandon_operation(store, journal, running._replace(ended=None), "left as it is")
    assert path.read_bytes() == data


@pytest.mark.parametrize("end", [True, False])
def test_no_flock_leaves_it_unknown(end: bool, journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """If the file system gives no lock, an operation is shown with that, not as interrupted."""
    written(journal, a_plan(), end=end)

    def refuse(fd: int) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr(files, "is_unclaimed", refuse)
        (unknown,) = journal.operations()
    (known,) = journal.operations()

    assert unknown.intent.verb == "?" and "No locks available" in unknown.intent.reason
    assert known.intent.verb == "retry"


@pytest.mark.parametrize("lose", ["file", "folder", "replaced"])
def test_a_journal_that_is_removed_is_noticed(lose: str, journal: Journal) -> None:
    """Nothing is reported as written to a file that was removed or replaced."""
    record, folder = begin(journal, "retry", a_plan()), Path(journal.folder)
    if lose == "file":
        (folder / f"{record.op}.jsonl").unlink()
    else:
        folder.rename(folder.with_name("elsewhere"))
    if lose == "replaced":
        folder.mkdir()
        (folder / f"{record.op}.jsonl").write_text("")
    with pytest.raises(Unavailable, match="was removed or replaced"):
        record.write_outcomes([RowOutcome(a_plan().rows[0], RowResult.DONE)])
    with pytest.raises(Unavailable, match="was removed or replaced"):
        record.save_images([("x", b"y")])
    record.close()


MASKED = {
    "kim@example.net": "...@example.net",
    "to:kim@example.net,ana@example.org": "to:...@example.net,...@example.org",
    '"kim k."@example.net': "...@example.net", "<kim+tag@[192.0.2.1]>": "<...@[192.0.2.1]>",
    "kim@example.net@example.org": "...@...@example.org",
    "k\u00efm@example.net": "...@example.net", "ops @ home": "ops @ home",
}  # fmt: skip


def test_no_address_and_no_content_in_the_journal(journal: Journal) -> None:
    """Of an address only the domain is in the file that others may read, of tasks nothing."""
    assert {text: mask_addresses(text) for text in MASKED} == MASKED
    store = MemoryStore()
    task = Task("a", "job", State.PENDING, NOW, description=f"for {SECRET}", payload="/a/mail")
    store.swap(None, task._replace(error="the body of a mail"))
    plan = plans.freeze_plan("edit", tasks_in(store), NOW, filter=f"to:{SECRET}")
    plan = plan._replace(values={"description": f"now for {SECRET}"})
    intent = US._replace(reason=f"ask {SECRET}", pace={"who": [SECRET, {"a": (SECRET,)}]})
    report = run_plan.run_journaled_plan(store, journal, plan, intent, clock)
    data = Path(f"{journal.folder}/{report.op}.jsonl").read_bytes()
    assert report.done == ("a",)
    assert b"example.net" in data
    assert not any(secret in data for secret in (b"kim", b"a mail", b"job"))


@pytest.mark.parametrize(("values", "why"), [
    ({"description": f"for {SECRET}"}, "mail addresses are masked"),
    ({"description": "another", "group": "x"}, "new group is invalid: abandon the operation"),
])  # fmt: skip
def test_no_partial_edit_continues(values: dict[str, object], why: str, journal: Journal) -> None:
    """Neither an edit with an address or a later value, nor an unknown verb, is repeated."""
    store = MemoryStore()
    begin(journal, "edit", a_plan(1, "edit")._replace(values=values)).close()
    (operation,) = journal.operations()
    with pytest.raises(Unavailable, match=why):
        undo.plan_rest(store, journal, operation, NOW)
    begin(journal, "sublimate", a_plan()).close()
    (operation,) = (o for o in journal.operations() if o.intent.verb == "sublimate")
    for call in (
        lambda: undo.settle_operation(store, journal, operation),
        lambda: undo.plan_undo(store, journal, operation, NOW, 7.0),
        lambda: undo.plan_rest(store, journal, operation, NOW),
    ):
        with pytest.raises(Unavailable, match="has an unknown verb: sublimate"):
            call()


def write_large(journal: Journal, end: bool, notes: int = 0) -> str:
    """An operation on 3,000 tasks of which half have an outcome, or all with `end`."""
    plan = many_rows(3000)
    record = begin(journal, "retry", plan)
    done = [RowOutcome(row, RowResult.DONE) for row in plan.rows]
    record.write_outcomes(done[: 3000 if end else 1500])
    for number in range(notes):
        record.write_note("stopped", number=number, text="x" * 100)
    if end:
        record.write_end(3000, {RowResult.DONE: 3000})
    record.close()
    return record.op


@pytest.mark.parametrize("end", [True, False])
def test_a_large_file_is_summed_up(end: bool, journal: Journal, monkeypatch: MonkeyPatch) -> None:
    """Of an ended operation only the first line and the last part are parsed."""
    op = write_large(journal, end, notes=3)
    whole = journal_format.OperationLines(journal.lines(op))
    parsed: list[bytes] = []
    load = decode.load_json

    def count(text: bytes, most: int) -> object:
        parsed.append(text)
        return load(text, most)

    monkeypatch.setattr(decode, "load_json", count)
    if end:
        monkeypatch.setattr(journal_format, "TempTable", None)
    operation = journal.operation(op)

    assert operation is not None
    assert operation.counts == whole.counts() and operation.ended == whole.ended
    assert operation.notes == tuple(whole.notes) and operation.planned == 3000
    assert any(b'"rows"' in text for text in parsed) is not end


def test_notes_and_files_are_bounded(journal: Journal) -> None:
    """Of notes the last thousand are kept, none above 16 KiB; a file has at most a gibibyte."""
    op = write_large(journal, True, notes=1500)
    whole = journal_format.OperationLines(journal.lines(op))
    assert [note["number"] for note in whole.notes] == [*range(500, 1500)]
    operation = journal.operation(op)
    assert operation is not None and operation.notes[-1]["number"] == 1499
    with Path(journal.folder, f"{op}.jsonl").open("ab") as file:
        file.write(b'{"line": "note", "when": 1, "what": "' + b"x" * 40_000 + b'"}\n')
    whole = journal_format.OperationLines(journal.lines(op))
    assert (whole.notes[-1]["number"], whole.damaged) == (1499, 1)
    os.truncate(f"{journal.folder}/{op}.jsonl", 4 << 30)
    operation = again(journal).operation(op)
    assert operation is not None and "4,294,967,296 bytes are not read" in operation.intent.reason
