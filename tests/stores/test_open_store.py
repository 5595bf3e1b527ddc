"""Finding out what a place is, and saying what is wrong when it is nothing that we know."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.model import State, Task
from engine.store import Store, Unavailable
from engine.stores import open_store, queue_folder
from engine.stores.nftban import Spool
from tests.stores.seen import tasks_in

NOW = 1_795_170_000.0
TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, NOW)


@pytest.fixture
def opened() -> Iterator[Callable[[Path | str], Store]]:
    """Open a place; closed again when the test is over."""
    with ExitStack() as stores:
        yield lambda place: stores.enter_context(closing(open_store(str(place), lambda: NOW)))


def test_a_data_folder_and_a_bare_queue_are_one_place(
    spool: Spool, opened: Callable[[Path | str], Store], tmp_path: Path
) -> None:
    """A data folder and the queue folder in it lead to the same tasks, however they are written."""
    opened(tmp_path / "data").swap(None, TASK)

    for way in ("data", "data/", "data/queue", "data/queue/", "data//queue/."):
        assert set(tasks_in(opened(f"{tmp_path}/{way}"))) == {TASK.id}, way


def test_a_place_may_be_written_relatively(
    spool: Spool,
    opened: Callable[[Path | str], Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A place named relative to where we are is found."""
    monkeypatch.chdir(tmp_path / "data" / "queue")

    opened(".").swap(None, TASK)

    assert Path(spool.pending, f"{TASK.id}.task").exists()


def test_a_places_clock_is_handed_on(spool: Spool, opened: Callable[[Path | str], Store]) -> None:
    """What a store needs to know of the time it asks the clock that it was opened with."""
    store = opened(Path(spool.pending).parent)
    store.swap(None, TASK)
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, Task(TASK.id, "job", State.DEAD, NOW, attempts=0))

    (dead,) = store.look({TASK.id})

    assert isinstance(dead, Task)
    assert dead.extra["dead_since"] == str(int(NOW))


def test_a_payload_below_the_data_folder_goes_with_its_task(
    spool: Spool, opened: Callable[[Path | str], Store], tmp_path: Path
) -> None:
    """The mail spool of a data folder is `mailspool` in it."""
    payload = tmp_path / "data" / "mailspool" / "meta.sh"
    payload.write_text("")
    store = opened(tmp_path / "data")
    store.swap(None, Task(TASK.id, "job", State.PENDING, NOW, payload=str(payload)))

    (task,) = store.take(NOW, "me", 1)
    store.swap(task, None)

    assert not payload.exists()


def test_a_missing_place_is_said_to_be_missing(tmp_path: Path) -> None:
    """A place that is not there is unavailable, and the message names it."""
    with pytest.raises(Unavailable) as error:
        open_store(str(tmp_path / "nowhere"))

    assert str(error.value) == f"{tmp_path}/nowhere: no such folder"


def test_a_place_without_a_queue_says_what_was_expected(spool: Spool, tmp_path: Path) -> None:
    """A folder that lacks one of the three is no queue; the message says what was looked for."""
    expected = "no queue in it, expected pending, work and dlq here or in queue/"
    for missing in (spool.pending, spool.work, spool.dlq):
        Path(missing).rmdir()

        with pytest.raises(Unavailable) as error:
            open_store(str(tmp_path / "data"))

        assert str(error.value) == f"{tmp_path}/data: {expected}"
        Path(missing).mkdir()


def test_a_file_is_no_place(tmp_path: Path) -> None:
    """A file in the place of a folder is no queue."""
    (tmp_path / "file").write_text("")

    with pytest.raises(Unavailable, match="file: a file, and no SQLite database"):
        open_store(str(tmp_path / "file"))


def test_a_linked_state_folder_is_not_opened(spool: Spool, tmp_path: Path) -> None:
    """A state folder that is a symbolic link is named, and not followed."""
    Path(spool.work).rmdir()
    Path(spool.work).symlink_to(tmp_path)

    with pytest.raises(Unavailable, match="work"):
        open_store(str(tmp_path / "data"))


def test_the_queue_folder_of_a_place(spool: Spool, tmp_path: Path) -> None:
    """A data folder's queue is found in it; a bare queue folder is itself."""
    data = str(tmp_path / "data")

    assert queue_folder(data) == f"{data}/queue"
    assert queue_folder(f"{data}/queue") == f"{data}/queue"
