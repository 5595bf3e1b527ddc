"""The flight recorder's SQLite file: one process records, all read, and no content is trusted."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import State
from engine.monitor import recorder
from engine.monitor.recorder import Recorder, RecorderLocation, Role, read_samples
from engine.monitor.sample_codec import MAX_SAMPLE_BYTES, RecordedSample, decode_sample
from tests.engine.task_builders import ROOT
from tests.examples import examples
from tests.recorder_samples import NOW, a_sample, a_spot
from tests.sqlite_hot_journals import plant
from tests.tables import each

ALWAYS = (0.0, 4e9)


@pytest.fixture
def spot(tmp_path: Path) -> RecorderLocation:
    """Where a new spool is recorded."""
    return a_spot(tmp_path)


def pending(location: RecorderLocation) -> list[int]:
    """What was recorded to wait, in the order of time."""
    samples = [decode_sample(m.data, "x") for m in read_samples(location, *ALWAYS)]
    return [sample.counts[State.PENDING] for sample in samples]


def the_sample(number: int) -> RecordedSample:
    """The moment of this number: so many tasks wait."""
    return a_sample(NOW + recorder.SAMPLE_INTERVAL_SECONDS * number, number)


def role(writer: Recorder, number: int) -> Role:
    """What a recorder is when it is given the moment of this number."""
    return writer.write(the_sample(number)).role


def test_one_process_records_and_all_read(spot: RecorderLocation) -> None:
    """Each moment is there in its order; another process watches, and takes over at the end."""
    first, second = Recorder(spot), Recorder(spot)
    for number in (2, 0, 1):
        assert role(first, number) is Role.RECORDS
        assert len(read_samples(spot, *ALWAYS)) > 0
    assert role(second, 3) is Role.WATCHES
    first.close()
    assert pending(spot) == [0, 1, 2]
    assert [m.at for m in read_samples(spot, NOW + 5, NOW + 10)] == [NOW + 10]
    assert (role(second, 4), role(first, 5)) == (Role.RECORDS, Role.WATCHES)
    second.close()
    assert pending(spot) == [0, 1, 2, 4]
    ring = Path(spot.folder, recorder.RING_FILE)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (ring, ring.parent)] == [0o640, 0o750]


@examples(20)
@given(st.lists(st.floats(0, 4e9, allow_nan=False), min_size=1, max_size=25))
def test_a_slot_holds_one_moment_with_any_clock(times: list[float]) -> None:
    """Of the moments of one slot the last one written stays; nothing else is lost or added."""
    with tempfile.TemporaryDirectory() as folder:
        location = a_spot(Path(folder))
        with closing(Recorder(location)) as writer:
            for when in times:
                assert writer.write(a_sample(when)).role is Role.RECORDS
        left = {recorder.slot_number(when): when for when in times}
        assert [m.at for m in read_samples(location, *ALWAYS)] == sorted(left.values())
    for when in times:
        begin = recorder.SAMPLE_INTERVAL_SECONDS * (when // recorder.SAMPLE_INTERVAL_SECONDS)
        assert 0 <= recorder.slot_number(when) < recorder.SLOTS
        assert recorder.slot_number(begin + recorder.DAY_SECONDS) == recorder.slot_number(begin)


@pytest.mark.deep
def test_a_full_day_of_the_largest_fits(spot: RecorderLocation) -> None:
    """With every slot filled to its bound the file stays below its own, and is written on."""
    with closing(Recorder(spot)) as writer:
        writer.write(a_sample())
        file = writer._file
        assert file is not None
        rows = ((slot, NOW + slot, os.urandom(MAX_SAMPLE_BYTES)) for slot in range(recorder.SLOTS))
        with file:
            file.executemany("INSERT OR REPLACE INTO moment VALUES(?, ?, ?)", rows)
        assert writer.write(a_sample(NOW + recorder.DAY_SECONDS)).role is Role.RECORDS
    assert len(read_samples(spot, *ALWAYS)) == recorder.SLOTS
    assert (
        Path(spot.folder, recorder.RING_FILE).stat().st_size
        <= 4 << 20
        < recorder.PAGE_BYTES * recorder.MAX_PAGES
    )


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that records there, one moment after another."""
    argv = [sys.executable, "-m", "tests.engine.monitor.recorder_process", str(folder)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def written(process: subprocess.Popen[str], amount: int) -> int:
    """Wait until it has written so many more; answers with the number of the last."""
    assert process.stdout is not None
    number = -1
    for _ in range(amount):
        number, role, *_ = process.stdout.readline().split()  # type: ignore[assignment]
        assert role == Role.RECORDS
    return int(number)


@pytest.mark.parametrize("after", [7, pytest.param(30, marks=pytest.mark.deep)])
def test_when_one_is_killed_another_takes_over(tmp_path: Path, after: int) -> None:
    """Killed wherever it was, all that it had written is there, and the other goes on from it."""
    location = a_spot(tmp_path)
    sample = a_sample(NOW - recorder.SAMPLE_INTERVAL_SECONDS, 999)
    with another(tmp_path) as process, closing(Recorder(location)) as other:
        last = written(process, after)
        assert other.write(sample).role is Role.WATCHES
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert other.write(sample) == (Role.RECORDS, "")
    assert pending(location)[: last + 2] == [999, *range(last + 1)]


def test_reading_never_sees_half_of_a_moment(tmp_path: Path) -> None:
    """Read while another process writes, what is there is whole and in order."""
    location = a_spot(tmp_path)
    with another(tmp_path) as process:
        for _ in range(6):
            last = written(process, 2)
            pending_samples = pending(location)
            assert pending_samples == list(range(len(pending_samples)))
            assert len(pending_samples) > last


def a_database(path: Path, *orders: str) -> None:
    """A database like ours, and what else is done to it."""
    numbers = f"application_id={recorder.APPLICATION_ID}", f"user_version={recorder.SCHEMA_VERSION}"
    ours = "PRAGMA page_size=512", recorder._TABLE, recorder._INDEX
    with closing(sqlite3.connect(path)) as file:
        for order in (*ours, *(f"PRAGMA {number}" for number in numbers), *orders):
            file.execute(order)
        file.commit()


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON moment BEGIN DELETE FROM moment; END"


def torn(path: Path) -> None:
    """A file of ours of which the end is lost."""
    a_database(path, *(f"INSERT INTO moment VALUES({n}, {NOW}, zeroblob(200))" for n in range(50)))
    os.truncate(path, 600)


def huge(path: Path) -> None:
    """A file larger than any of ours."""
    path.touch()
    os.truncate(path, 1 << 33)


def foreign(path: Path) -> None:
    """A database of another program."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE mail_queue(id)")


@each("spoil", [
    lambda path: path.write_bytes(b"no database\n" * 1000), torn, foreign, huge,
    lambda path: a_database(path, TRIGGER), lambda path: path.symlink_to("theirs"),
    Path.mkdir, os.mkfifo,
], spot=a_spot)  # fmt: skip
def test_a_bad_file_is_quarantined(spot: RecorderLocation, spoil: Callable[[Path], object]) -> None:
    """It is refused by who reads, and renewed by who writes, with one line; no link is followed."""
    folder = Path(spot.folder)
    folder.mkdir(parents=True)
    (folder / "theirs").write_bytes(b"")
    spoil(folder / recorder.RING_FILE)
    before = os.lstat(folder / recorder.RING_FILE).st_ino

    with pytest.raises(recorder.UnreadableRecording):
        read_samples(spot, *ALWAYS)
    with closing(Recorder(spot)) as writer:
        result, again = writer.write(the_sample(0)), writer.write(the_sample(1))

    assert (result.role, again) == (Role.RECORDS, (Role.RECORDS, ""))
    end = f"; quarantined as {recorder.QUARANTINED_RING}, new recording started"
    assert result.message.startswith(f"{spot.folder}/{recorder.RING_FILE}: ")
    assert result.message.endswith(end)
    assert "\n" not in result.message
    assert pending(spot) == [0, 1]
    assert os.lstat(folder / recorder.QUARANTINED_RING).st_ino == before
    assert (folder / "theirs").read_bytes() == b""


def test_a_folder_that_is_a_link_is_refused(spot: RecorderLocation, tmp_path: Path) -> None:
    """With one line, and nothing is written behind the link."""
    elsewhere, folder = tmp_path / "elsewhere", Path(spot.folder)
    elsewhere.mkdir()
    folder.parent.mkdir()
    folder.symlink_to(elsewhere)
    with closing(Recorder(spot)) as writer:
        result = writer.write(a_sample())
    assert result.role is Role.IDLE
    assert result.message.startswith("recording not possible from here: ")
    assert list(elsewhere.iterdir()) == []
    with pytest.raises(recorder.UnreadableRecording):
        read_samples(spot, *ALWAYS)


def test_a_folder_that_is_lost_is_made_again(spot: RecorderLocation, tmp_path: Path) -> None:
    """By a recorder, not by a reader; while the whole spool is lost, one line says so."""
    with pytest.raises(recorder.UnreadableRecording, match="no recording yet"):
        read_samples(spot, *ALWAYS)
    assert not Path(spot.folder).parent.exists()
    queue, away = tmp_path / "queue", tmp_path / "away"
    with closing(Recorder(spot)) as writer:
        writer.write(the_sample(0))
        shutil.rmtree(Path(spot.folder).parent)
        assert role(writer, 1) is Role.RECORDS
        queue.rename(away)
        lost = writer.write(the_sample(2))
        away.rename(queue)
        assert role(writer, 3) is Role.RECORDS
    assert lost == (Role.IDLE, "recording not possible from here: No such file or directory")
    assert pending(spot) == [1, 3]


@pytest.fixture
def foreign_spot() -> Iterator[RecorderLocation]:
    """Where the spool of another user is recorded."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        location = a_spot(folder)
        for path in (folder / "queue", folder / "queue" / "pending"):
            os.chown(path, 65534, 65534)
        yield location


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is redirected by others")
def test_a_planted_journal_removes_nothing(foreign_spot: RecorderLocation, tmp_path: Path) -> None:
    """Root records and reads with the rights of the owner, to the end of the connection."""
    victim, ring = tmp_path / "victim", Path(foreign_spot.folder, "ring.db")
    victim.write_text("kept")
    with closing(Recorder(foreign_spot)) as writer:
        writer.write(a_sample())
        plant(ring, victim, 65534)
        writer.write(a_sample(NOW + recorder.SAMPLE_INTERVAL_SECONDS))
    plant(ring, victim, 65534)
    with suppress(recorder.UnreadableRecording):
        read_samples(foreign_spot, *ALWAYS)
    plant(ring, victim, 65534)
    with closing(Recorder(foreign_spot)) as writer:
        writer.write(a_sample(NOW + 2 * recorder.SAMPLE_INTERVAL_SECONDS))
    assert victim.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is led astray by others")
def test_root_records_as_the_spools_owner(foreign_spot: RecorderLocation, tmp_path: Path) -> None:
    """The owner gets all files, and where only root could write nothing is written."""
    with closing(Recorder(foreign_spot)) as writer:
        assert writer.write(a_sample()).role is Role.RECORDS
    folder = Path(foreign_spot.folder)
    made = [folder, folder.parent, *folder.rglob("*")]
    assert {(p.stat().st_uid, p.stat().st_gid) for p in made} == {(65534, 65534)}
    os.chown(folder, 0, 0)
    with closing(Recorder(foreign_spot)) as writer:
        result = writer.write(a_sample(NOW + recorder.SAMPLE_INTERVAL_SECONDS))
    assert result == (Role.IDLE, "recording not possible from here: Permission denied")
    (tmp_path / "roots").touch()  # we are who we were
    assert (tmp_path / "roots").stat().st_uid == 0
