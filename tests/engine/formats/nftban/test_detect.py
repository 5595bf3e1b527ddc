"""Finding out what a place is, and saying what is wrong when it is nothing that we know."""

from pathlib import Path

import pytest

from engine.formats.nftban.detect import find_queue_folder
from engine.formats.nftban.store import SpoolFolders
from engine.store import Unavailable
from tests.open_store import open_store


def test_a_data_folder_is_its_queue(spool: SpoolFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder and the queue folder in it lead to the same tasks, however they are written."""
    queue = Path(spool.pending).parent
    data = str(queue.parent)
    monkeypatch.chdir(queue)
    for spelling in (data, f"{data}/", f"{data}/queue", f"{data}/queue/", f"{data}//queue/.", "."):
        assert queue.samefile(find_queue_folder(spelling)), spelling
    assert find_queue_folder(data) == find_queue_folder(f"{data}/queue") == f"{data}/queue"


def test_what_is_no_place_is_unavailable(spool: SpoolFolders, tmp_path: Path) -> None:
    """What is missing, no folder, without a queue, or a link is named, with what was expected."""
    data, file = tmp_path / "data", tmp_path / "file"
    file.write_text("")

    def why(place: Path) -> str:
        with pytest.raises(Unavailable) as error:
            open_store(str(place))
        return str(error.value)

    assert why(tmp_path / "nowhere") == f"{tmp_path}/nowhere: no such folder"
    assert "file: not a SQLite database" in why(file)
    expected = f"{data}: no queue, expected pending, work and dlq here or in queue/"
    for folder in map(Path, (spool.pending, spool.work, spool.dlq)):
        folder.rmdir()
        assert why(data) == expected
        folder.symlink_to(tmp_path)
        assert folder.name in why(data)
        folder.unlink()
        folder.mkdir()
