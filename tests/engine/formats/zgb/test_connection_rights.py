"""With whose rights a database of another user is opened, and what its side files can do."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.store import ZgbStore
from engine.model import State
from engine.store import StoreError, Unavailable
from tests.sqlite_hot_journals import plant
from tests.unprivileged_user import OTHER_UID, as_other_user, other_users_folder
from tests.zgb import NOW, change, make_queue, sql_in, there
from tui.cli import main

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has more rights than the owner")


@pytest.fixture
def database() -> Iterator[Path]:
    """A mail queue of another user, with one job."""
    with other_users_folder() as folder:
        path = folder / "zgb.db"
        as_other_user(lambda: make_queue(path))
        yield path


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of root's in a folder of root's."""
    path = tmp_path / "victim"
    path.write_text("kept")  # SQLite takes an empty one for none
    path.chmod(0o600)
    return path


def look(store: ZgbStore) -> None:
    """Read it."""
    assert there(store, "7-user").state is State.PENDING


def hold(store: ZgbStore) -> None:
    """Move its job to our own database."""
    change(store, "7-user", state=State.HELD)


@as_root
@pytest.mark.parametrize("database_name", ["zgb.db", "zgb.db.spooldeck"])
@pytest.mark.parametrize("rolls_back", [False, True])
@pytest.mark.parametrize("act", [look, hold], ids=["look", "hold"])
def test_a_planted_journal_removes_nothing_of_root(
    *, database: Path, victim: Path, database_name: str, rolls_back: bool, act: Callable[..., None]
) -> None:
    """What the owner of a database plants beside it, root carries out with the owner's rights."""
    place = ZgbDatabase(str(database), rolls_back=rolls_back)
    with closing(ZgbStore(place, lambda: NOW)) as store:
        for state in (State.HELD, State.PENDING):
            change(store, "7-user", state=state)
    plant(database.with_name(database_name), victim, OTHER_UID)
    with suppress(StoreError), closing(ZgbStore(place, lambda: NOW)) as store:
        act(store)
    assert victim.exists()


@as_root
@pytest.mark.parametrize("read_only", [False, True])
def test_a_journal_of_another_user_is_reported_not_rolled_back(
    database: Path, victim: Path, read_only: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root that only looks leaves a hot journal as it is, and names the command that ends it, in
    the doctor as well; a worker of root rolls it back with the owner's rights."""
    journal = plant(database, victim, OTHER_UID)
    before = journal.read_bytes()
    with pytest.raises(Unavailable, match=r"zgb\.db-journal.*sudo -u nobody spooldeck status"):
        ZgbStore(ZgbDatabase(str(database), read_only=read_only))
    assert main(["zgb", "doctor", str(database)]) == 1
    output = capsys.readouterr().out
    assert f"sudo -u nobody spooldeck status {database}" in output
    assert "fix: run that command: it rolls the unfinished write back" in output
    assert journal.read_bytes() == before
    with closing(ZgbStore(ZgbDatabase(str(database), rolls_back=True), lambda: NOW)) as store:
        look(store)
    assert not journal.exists() and victim.exists()


@as_root
def test_a_journal_planted_later_removes_nothing(database: Path, victim: Path) -> None:
    """A store that is open already meets a new journal with the owner's rights, too."""
    with closing(ZgbStore(ZgbDatabase(str(database)), lambda: NOW)) as store:
        hold(store)
        plant(database, victim, OTHER_UID)
        for act in (lambda: store.control("mailQueueEnabled", value="1"), lambda: [*store.scan()]):
            with suppress(StoreError):
                act()
    assert victim.exists()


def test_the_journal_of_a_dead_program_of_ours_is_rolled_back(tmp_path: Path) -> None:
    """What a program of the same user left is undone when the queue is opened."""
    path = tmp_path / "zgb.db"
    make_queue(path)
    journal = plant(path, tmp_path / "none")
    with closing(ZgbStore(ZgbDatabase(str(path)), lambda: NOW)) as store:
        look(store)
    assert not journal.exists()


@as_root
def test_what_root_makes_beside_it_is_the_owners(database: Path) -> None:
    """Our own database, and every side file, belongs to the owner of theirs."""
    made: set[str] = set()

    def clock() -> float:
        made.update(entry.name for entry in os.scandir(database.parent) if entry.stat().st_uid == 0)
        return NOW

    with closing(ZgbStore(ZgbDatabase(str(database)), clock)) as store:
        assert change(store, "7-user", state=State.HELD).state is State.HELD
    assert made == set()
    assert database.with_name("zgb.db.spooldeck").stat().st_uid == OTHER_UID


def test_a_side_file_that_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    """A FIFO beside a database does not stop its reader for ever."""
    path = tmp_path / "zgb.db"
    make_queue(path)
    for suffix in ("-journal", "-wal", "-shm"):
        side_file = Path(f"{path}{suffix}")
        for make in (os.mkfifo, lambda path: path.symlink_to("/etc/hostname")):
            make(side_file)
            with pytest.raises(Unavailable, match=f"zgb.db{suffix}: not a plain file"):
                ZgbStore(ZgbDatabase(str(path)))
            side_file.unlink()


def test_looking_opens_to_read_only(tmp_path: Path) -> None:
    """A look has only a descriptor to read, and leaves no side file; the first change opens one."""
    path = tmp_path / "zgb.db"
    make_queue(path)

    def modes() -> set[int]:
        access_modes = set()
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # the one by which they are listed
                if entry.readlink() == path:
                    info = Path(f"/proc/self/fdinfo/{entry.name}").read_text().split()
                    access_modes.add(int(info[info.index("flags:") + 1], 8) & os.O_ACCMODE)
        return access_modes

    with closing(ZgbStore(ZgbDatabase(str(path)), lambda: NOW)) as store:
        look(store)
        assert modes() == {os.O_RDONLY}
        store.control("mailQueueEnabled", value="1")
        assert modes() == {os.O_RDWR}
    sql_in(path, "PRAGMA journal_mode = WAL")
    with closing(ZgbStore(ZgbDatabase(str(path)), lambda: NOW)) as store:
        look(store)
    assert [entry.name for entry in tmp_path.iterdir()] == ["zgb.db"]


@as_root
def test_wal_mode_names_whose_rights_it_needs(database: Path) -> None:
    """In WAL mode a user who may not write cannot read either; the refusal has the command."""
    os.chown(database, 0, 0)
    os.chown(database.parent, 0, 0)
    sql_in(database, "PRAGMA journal_mode = WAL")
    for path in (database.parent, database):
        path.chmod(0o755)

    def read() -> None:
        with pytest.raises(Unavailable) as refusal:
            ZgbStore(ZgbDatabase(str(database)), lambda: NOW)
        text = "WAL mode is read with files beside it, and this user may not write there; run: "
        assert f"{text}sudo -u root spooldeck status {database}" in str(refusal.value)

    as_other_user(read)
