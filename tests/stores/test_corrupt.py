"""Files that were set aside: never without their reason, never in two places, and back again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import files, verbs
from engine.files import Refused
from engine.model import State, Task
from engine.store import Gone, Unsupported
from engine.stores.nftban import NftbanStore, Spool, form
from tests.stores.spooled import IDENT, NAME, later, names

Opener = Callable[..., NftbanStore]

NEW = Task(IDENT, "job", State.PENDING, 1_795_170_000.0, description="before")
FILE = form.render(form.new_record(NEW))
TORN = b'TASK_ID="'


@pytest.fixture
def set_aside(spool: Spool, open_spool: Opener) -> Callable[..., Path]:
    """Set a broken file aside; where it lies now."""

    def aside(word: str = "pending", name: str = NAME) -> Path:
        Path(spool.pending).with_name(word).joinpath(name).write_bytes(TORN)
        store = open_spool(later)
        list(store.take(later(), "me", 9))
        (said,) = store.set_aside()
        return Path(spool.desk, "corrupt", said.rpartition(" ")[2])

    return aside


@pytest.mark.parametrize("word", ["pending", "work"])
def test_a_mended_file_is_a_task_again(
    spool: Spool, open_spool: Opener, set_aside: Callable[..., Path], word: str
) -> None:
    """It goes back into pending/ under its own name, byte for byte, and its reason goes."""
    path = set_aside(word)
    path.write_bytes(FILE)
    store = open_spool()
    where = store.put_back(path.name)
    assert where == f"pending/{NAME}"
    assert Path(spool.pending, NAME).read_bytes() == FILE
    assert names(path.parent) == []
    assert [task.id for task in store.take(later(), "me", 1)] == [IDENT]


def test_what_is_still_broken_stays(
    spool: Spool, open_spool: Opener, set_aside: Callable[..., Path]
) -> None:
    """What is wrong with it and in which line is said, and nothing moves."""
    path = set_aside()
    path.write_bytes(FILE.replace(b"before", b"$(id)"))
    with pytest.raises(Refused, match=r"^line 3: TASK_DESCRIPTION holds an unescaped \$"):
        open_spool().put_back(path.name)
    assert names(path.parent) == [path.name, f"{path.name}.why"]
    assert names(spool.pending) == []


def test_over_a_task_of_its_id_nothing_is_put(
    spool: Spool, open_spool: Opener, set_aside: Callable[..., Path]
) -> None:
    """A task that has taken its id since stays, wherever it stands, and so does the file."""
    path = set_aside()
    path.write_bytes(FILE)
    store = open_spool()
    store.swap(None, NEW)
    (held,) = (item for item in store.look({IDENT}) if isinstance(item, Task))
    store.swap(held, verbs.hold(held, later()))
    with pytest.raises(Gone, match="is there already"):
        store.put_back(path.name)
    assert path.read_bytes() == FILE
    assert Path(f"{path}.why").exists()


def test_an_editor_may_replace_the_file(
    spool: Spool, open_spool: Opener, set_aside: Callable[..., Path]
) -> None:
    """Mended by root with an editor that writes a new file, it is its folder's owner's again."""
    path = set_aside()
    (path.parent / "new").write_bytes(FILE)
    (path.parent / "new").rename(path)
    if os.geteuid() == 0:
        for folder in (spool.pending, spool.work, spool.dlq, spool.desk, path.parent):
            os.chown(folder, 65534, 65534)
    open_spool().put_back(path.name)
    there, owner = Path(spool.pending, NAME).stat(), Path(spool.pending).stat()
    assert (there.st_uid, there.st_gid) == (owner.st_uid, owner.st_gid)


def test_only_a_name_in_corrupt_is_a_name(
    spool: Spool, open_spool: Opener, set_aside: Callable[..., Path]
) -> None:
    """A name that leads elsewhere, or nowhere, is refused, and nothing moves."""
    path = set_aside()
    path.write_bytes(FILE)
    Path(spool.pending, "good.task").write_bytes(FILE)
    leading = ("../pending/good.task", "..", ".", "", "/etc/passwd", "a/b", "../corrupt/{}")
    strange = ("nowhere", "-rf", "a\nb", "a\0b", "\udcff", "\x1b[2J", "{}.why", "x" * 300)
    for name in (*leading, *strange):
        with pytest.raises(Unsupported):
            open_spool().put_back(name.format(path.name))
        assert path.exists(), name
        assert names(spool.pending) == ["good.task"], name


def test_a_file_that_no_task_can_be_called_stays(
    open_spool: Opener, set_aside: Callable[..., Path]
) -> None:
    """A file that had a hostile name has none to go back to, and that is said."""
    path = set_aside(name="a b.task")
    path.write_bytes(FILE)
    with pytest.raises(Refused, match=r"it was called a b\.task, not named like a task"):
        open_spool().put_back(path.name)
    assert path.exists()


def test_without_a_good_reason_nothing_goes_back(
    open_spool: Opener, set_aside: Callable[..., Path], tmp_path: Path
) -> None:
    """Where nothing tells where it came from, the file is listed and stays."""
    path = set_aside()
    path.write_bytes(FILE)
    why = Path(f"{path}.why")
    said = why.read_bytes()
    (tmp_path / "elsewhere").write_bytes(said)
    store = open_spool()

    for reason in (None, said[:-9], said.replace(b'"pending"', b'"../../x"'), tmp_path):
        why.unlink(missing_ok=True)
        if isinstance(reason, bytes):
            why.write_bytes(reason)
        elif reason:
            why.symlink_to(tmp_path / "elsewhere")

        (aside,) = store.corrupt()
        with pytest.raises(Unsupported, match="not known where it came from"):
            store.put_back(path.name)

        assert aside.name == path.name
        assert path.exists()


@pytest.mark.parametrize(("age", "in_hand", "kept"), [(0, 0, 1), (61, 0, 0), (61, 1, 1)])
def test_a_reason_whose_file_never_came_is_swept(
    spool: Spool, open_spool: Opener, age: int, in_hand: int, kept: int
) -> None:
    """Left by a process that ended there, it goes after a minute; one in somebody's hand stays."""
    corrupt = Path(spool.desk, "corrupt")
    corrupt.mkdir(parents=True)
    (corrupt / "x.pending.1.why").write_bytes(b"half")
    with (corrupt / "x.pending.1.why").open("rb") as file:
        if in_hand:
            assert files.claim_flock(file.fileno())
        open_spool(lambda: time.time() + age).recover()
    assert len(names(corrupt)) == kept
