"""Notes on tasks in a file: add, delete, sweep, rival writers, full disks, planted files."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore
from engine.model import State, Task
from engine.operations import notes as notes_module
from engine.operations.notes import NOTES_FILE_NAME, Note, Notes, notes_of
from engine.store import Unavailable
from engine.system import files
from tests.engine.task_builders import NOW, a_task, clock, new_spool, tasks_in
from tests.store_contents import found

WRITER = """
import sys
from engine.operations.notes import Notes
folder, name, amount = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(amount):
    Notes(folder).add(f"{name}-{number}", f"note {number} of {name}", name)
"""


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """The notes of a spool that has none yet."""
    return Notes(str(tmp_path / "journal"), str(tmp_path), clock)


def file_of(notes: Notes) -> Path:
    """Where they lie."""
    return Path(notes.folder, NOTES_FILE_NAME)


def line(**changes: object) -> bytes:
    """A line of the file, in the form of a whole one."""
    return json.dumps({"when": NOW, "who": "ana", "id": "a", "text": "hm", **changes}).encode()


def test_a_note_on_an_earlier_task_with_the_same_id_is_not_shown() -> None:
    """Ids come again: an older note is of another task, unless its time is unknown."""
    written = {"a": (Note(NOW, "ana", "hm"), Note(NOW + 900, "ana", "now"))}
    made = Task("a", "job", State.PENDING, NOW + 600)
    assert [note.text for note in notes_of(written, made, NOW + 1000)] == ["now"]
    recorded = {"a": (Note(NOW, "ana", "hm", NOW - 9),)}
    assert notes_of(recorded, made._replace(created=NOW + 1), NOW + 1000) == ()
    assert len(notes_of(recorded, made._replace(created=NOW - 9), NOW + 1000)) == 1
    for created in (0.0, NOW + 30, NOW + 5000):
        assert len(notes_of(written, made._replace(created=created), NOW + 1000)) == 2


def test_a_note_is_read_by_other_processes(notes: Notes) -> None:
    """The oldest is first, an empty one deletes those before it, and reading makes no file."""
    assert notes.noted_ids() == frozenset()
    assert not Path(notes.folder).exists()
    notes.add("a", "asked the postmaster", "ana")
    notes.add("a", "he says purge", "bob")
    assert notes.noted_ids() == {"a"}
    others = Notes(notes.folder)
    others.add("b", "mine", "ana")
    first, second = Note(NOW, "ana", "asked the postmaster"), Note(NOW, "bob", "he says purge")
    assert others.read_all().get("a", ()) == (first, second)
    assert notes.noted_ids() == {"a", "b"}
    assert others.read_all().get("c", ()) == ()
    notes.add("a", "  ", "bob")
    assert notes.noted_ids() == {"b"}
    notes.add("a", "wait after all", "ana")
    assert [note.text for note in notes.read_all().get("a", ())] == ["wait after all"]


@pytest.mark.parametrize(("typed", "kept"), [
    ("tell ana@example.net, not a@example.org", "tell ...@example.net, not ...@example.org"),
    ("two\nlines\tand a tab", "two lines and a tab"),
    ("x" * 10_000, "x" * notes_module.MAX_NOTE_CHARS),
    ('\x1b]0;x\x07 "} {"id": "b" \u202e \udcff', None),
])  # fmt: skip
def test_a_note_is_one_line_without_addresses(notes: Notes, typed: str, kept: str | None) -> None:
    """However it was typed, nothing in the file could act on a terminal."""
    notes.add("1\n", typed, "a\x1b[na")
    (note,) = notes.read_all().get("1\n", ())
    data = file_of(notes).read_bytes()
    assert kept is None or note.text == kept
    assert data.count(b"\n") == 1
    assert all(32 <= byte < 127 or byte == 10 for byte in data)


def test_a_line_that_is_no_note_is_passed_by(notes: Notes) -> None:
    """It spoils none around it; a torn last line counts for nothing."""
    wrong: list[dict[str, object]] = [{"id": 7}, {"text": ["x"]}, {"who": None}]
    wrong += [{"when": when} for when in ("now", -1, 10**400)]
    hostile = [line().replace(b"1795170000.0", when) for when in (b"NaN", b"Infinity")]
    hostile += [b"junk", b"\xff\xfe", b"[" * 100_000, b"null", b"{}"]
    for strange in (*hostile, *(line(**fields) for fields in wrong)):
        noted = notes_module.parse_notes(b"\n".join([line(id="b"), strange, line(id="c"), b""]))
        assert set(noted) == {"b", "c"}, strange[:40]
    notes.add("a", "whole", "ana")
    with file_of(notes).open("ab") as file:
        file.write(line(id="torn"))  # all but its end
    assert notes.noted_ids() == {"a"}
    notes.add("b", "next", "bob")
    assert notes.noted_ids() == {"a", "b"}


def test_on_a_full_disk_no_note_is_half(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that did not fit counts for nothing; a failed sweep leaves the old file."""
    notes.add("a", "whole", "ana")

    def full(room: int) -> Callable[[int, bytes], int]:
        def write(fd: int, data: bytes) -> int:
            if len(data) <= 1 or not room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.write(fd, data[:-1])

        return write

    with monkeypatch.context() as disk:
        disk.setattr(files, "write", full(1))
        with pytest.raises(Unavailable, match="No space left"):
            notes.add("b", "all but its end", "bob")
    assert notes.noted_ids() == {"a"}
    notes.add("c", "next", "bob")
    assert notes.noted_ids() == {"a", "c"}

    before = file_of(notes).read_bytes()
    with monkeypatch.context() as disk:
        disk.setattr(files, "write", full(0))
        with pytest.raises(Unavailable, match="cannot sweep the notes"):
            notes.remove_notes({"a"})
    assert (file_of(notes).read_bytes(), notes.remove_notes({"a"})) == (before, 1)
    assert notes.noted_ids() == {"c"}


def test_each_note_of_two_writers_is_kept(notes: Notes) -> None:
    """While they write, the file is rewritten without the notes of a third."""
    argv = [sys.executable, "-c", WRITER, notes.folder]
    writers = [subprocess.Popen([*argv, name, "50"]) for name in ("ana", "bob")]
    rounds = 0
    while any(process.poll() is None for process in writers):
        notes.add("gone", "never mind", "eve")
        rounds += notes.remove_notes({"gone"})
    inode = file_of(notes).stat().st_ino
    notes.remove_notes(())
    assert [process.returncode for process in writers] == [0, 0]
    assert rounds > 0
    assert file_of(notes).stat().st_ino != inode
    assert notes.noted_ids() == {f"{name}-{n}" for name in ("ana", "bob") for n in range(50)}


def test_dropping_keeps_mode_and_owner_and_only_what_counts(notes: Notes) -> None:
    """Rewritten, the file is as short as can be, and for the same people."""
    for text in ("one", "", "two"):
        notes.add("a", text, "ana")
    notes.add("b", "three", "bob")
    file_of(notes).chmod(0o600)
    Path(notes.folder, "notes.new").write_text("of one who was killed")
    assert notes.remove_notes({"b", "never there"}) == 1
    assert notes.read_all().get("a", ()) == (Note(NOW, "ana", "two"),)
    assert file_of(notes).read_bytes().count(b"\n") == 1
    assert file_of(notes).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in Path(notes.folder).iterdir()] == [NOTES_FILE_NAME]


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "a link": Path.symlink_to,
    "a FIFO": lambda path, other: os.mkfifo(path),
    "a second name": Path.hardlink_to,
    "too much": lambda path, other: path.write_bytes(bytes(notes_module.MAX_NOTES_BYTES + 1)),
}


@pytest.mark.parametrize("what", PLANTS)
def test_a_planted_file_is_not_touched(notes: Notes, tmp_path: Path, what: str) -> None:
    """A link, a FIFO, a second name or a huge file is neither read nor written."""
    other = tmp_path / "other"
    other.write_bytes(line() + b"\n")
    Path(notes.folder).mkdir()
    PLANTS[what](file_of(notes), other)
    Path(notes.folder).chmod(0o777)  # any user may have made it
    with pytest.raises(Unavailable, match=NOTES_FILE_NAME):
        notes.noted_ids()
    with pytest.raises(Unavailable, match=NOTES_FILE_NAME):
        notes.add("b", "x", "ana")
    assert other.read_bytes() == line() + b"\n"


def test_a_sweep_keeps_the_notes_of_tasks_that_are_somewhere(tmp_path: Path) -> None:
    """Pending, held, dead, in the trash or damaged: its note stays; of one that left it goes."""
    spool = new_spool(tmp_path)
    with closing(NftbanStore(spool, clock)) as store:
        for number in range(4):
            store.swap(None, a_task(number))
        pending, held, trashed, left = tasks_in(store)
        for task, verb in ((held, verbs.hold), (trashed, verbs.purge), (left, verbs.purge)):
            store.swap(task, verb(task, NOW))
        store.swap(found(store, left.id), None)
        Path(spool.pending, "damaged.task").write_text("torn")
        notes = Notes(f"{spool.staging_dir}/journal", str(tmp_path), clock)
        for ident in (pending.id, held.id, trashed.id, left.id, "damaged", "../../etc/passwd"):
            notes.add(ident, "wait", "ana")
        assert notes_module.sweep_notes(notes, store) == 2
    assert notes.noted_ids() == {pending.id, held.id, trashed.id, "damaged"}
