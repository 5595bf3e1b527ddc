"""Finding out what a place is, and saying what is wrong when it is nothing that we know."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.formats.nftban.detect import find_queue_folder
from engine.formats.nftban.store import SpoolFolders
from engine.model import State, Task
from engine.store import Store, Unavailable
from tests.open_store import open_store
from tests.store_contents import found, tasks_in

NOW = 1_795_170_000.0
TASK = Task("20261120T094115Z-job-00000001", "job", State.PENDING, NOW)


@pytest.fixture
def opened() -> Iterator[Callable[[Path | str], Store]]:
    """Open a place; closed again when the test is over."""
    with ExitStack() as stores:
        yield lambda place: stores.enter_context(closing(open_store(str(place), lambda: NOW)))


def test_a_data_folder_and_a_bare_queue_are_one_place(
    spool: SpoolFolders,
    opened: Callable[[Path | str], Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A data folder and the queue folder in it lead to the same tasks, however they are written."""
    data = str(tmp_path / "data")
    opened(data).swap(None, TASK)
    monkeypatch.chdir(f"{data}/queue")
    for spelling in (data, f"{data}/", f"{data}/queue", f"{data}/queue/", f"{data}//queue/.", "."):
        assert set(tasks_in(opened(spelling))) == {TASK.id}, spelling
    assert find_queue_folder(data) == find_queue_folder(f"{data}/queue") == f"{data}/queue"


def test_a_data_folder_has_a_mail_spool(
    spool: SpoolFolders, opened: Callable[[Path | str], Store], tmp_path: Path
) -> None:
    """A payload in `mailspool` of a data folder is removed with its task; a store asks the clock
    that it was opened with."""
    payload = tmp_path / "data" / "mailspool" / "meta.sh"
    payload.write_text("")
    store = opened(tmp_path / "data")
    store.swap(None, TASK._replace(payload=str(payload)))
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, task._replace(state=State.DEAD, lease=None))
    dead = found(store, TASK.id)
    assert dead.extra["dead_since"] == str(int(NOW))
    store.swap(dead, None)
    assert not payload.exists()


def test_what_is_no_place_is_unavailable(spool: SpoolFolders, tmp_path: Path) -> None:
    """A missing folder, a file, a folder without a queue or with a symbolic link for one of its
    states is named, with what was expected."""
    data = tmp_path / "data"
    (tmp_path / "file").write_text("")

    def why(place: Path) -> str:
        with pytest.raises(Unavailable) as error:
            open_store(str(place))
        return str(error.value)

    assert why(tmp_path / "nowhere") == f"{tmp_path}/nowhere: no such folder"
    assert "file: not a SQLite database" in why(tmp_path / "file")
    for word in ("pending", "work", "dlq"):
        folder = data / "queue" / word
        folder.rmdir()
        expected = "no queue, expected pending, work and dlq here or in queue/"
        assert why(data) == f"{data}: {expected}"
        folder.symlink_to(tmp_path)
        assert word in why(data)
        folder.unlink()
        folder.mkdir()
