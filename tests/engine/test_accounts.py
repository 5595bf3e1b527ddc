"""With whose rights root reaches a path: who can redirect it, and what those rights are."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import accounts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has the rights of others")

ONE, OTHER = 65534, 4_000_001


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of root's that every user reaches."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def made(path: Path, owner: int, mode: int, *, is_folder: bool = False) -> Path:
    """An empty file, or a folder, of this owner and mode."""
    if is_folder:
        path.mkdir()
    else:
        path.touch()
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


@pytest.mark.parametrize(
    ("around", "mode", "file", "expected"),
    [
        (0, 0o755, 0, None),
        (0, 0o755, ONE, ONE),
        (ONE, 0o755, ONE, ONE),
        (ONE, 0o755, 0, ONE),
        (0, 0o1777, ONE, ONE),
        (OTHER, 0o755, 0, OTHER),
    ],
)
def test_who_can_redirect_a_file_decides(
    folder: Path, around: int, mode: int, file: int, expected: int | None
) -> None:
    """The file's owner, and where that is root, the owner of the folder."""
    inner = made(folder / "inner", around, mode, is_folder=True)
    path = made(inner / "file", file, 0o644)
    found = accounts.owner_at(str(path))
    assert (found and found.uid) == expected


def test_an_outer_folder_or_a_link_of_another_user_decides(folder: Path) -> None:
    """Root's rights are not used on a path that another user can redirect further up."""
    outer = made(folder / "outer", ONE, 0o755, is_folder=True)
    inner = made(outer / "inner", 0, 0o755, is_folder=True)
    path = made(inner / "file", 0, 0o644)
    own = made(folder / "own", 0, 0o755, is_folder=True)
    link = own / "link"
    link.symlink_to(path)
    found = [accounts.owner_at(str(p)) for p in (path, link, inner, inner / "missing")]
    assert [account and account.uid for account in found] == [ONE] * 4


@pytest.mark.parametrize(
    ("around", "mode", "file", "words"),
    [
        (OTHER, 0o755, ONE, f"belongs to nobody in a folder of {OTHER}.*sudo -u nobody"),
        (0, 0o1777, 0, "other users can write to the folder .*inner .mode 1777"),
        (0, 0o777, 0, "other users can write to the folder .*inner .mode 777"),
    ],
)
def test_where_no_rights_are_safe_the_path_is_refused(
    folder: Path, around: int, mode: int, file: int, words: str
) -> None:
    """The message says whose it is, and what was expected."""
    inner = made(folder / "inner", around, mode, is_folder=True)
    path = made(inner / "file", file, 0o644)
    with pytest.raises(accounts.Unsafe, match=words):
        accounts.owner_at(str(path))


def test_a_folder_that_a_group_can_write_is_refused_to_root(folder: Path) -> None:
    """Members of the group could put a journal beside a file of root's."""
    inner = made(folder / "inner", 0, 0o775, is_folder=True)
    os.chown(inner, 0, ONE)
    with pytest.raises(accounts.Unsafe, match=f"group {ONE}"):
        accounts.owner_at(str(made(inner / "file", 0, 0o644)))


def test_the_rights_of_a_user_are_without_roots_groups(folder: Path) -> None:
    """What root's group may read or write is closed; afterwards, and on other threads, all is as
    before."""
    secret = made(folder / "secret", 0, 0o640)
    shared = made(folder / "shared", 0, 0o770, is_folder=True)
    before, elsewhere = os.getgroups(), []
    with accounts.files_as(accounts.owner_at(str(made(folder / "file", ONE, 0o600)))):
        other = threading.Thread(target=lambda: elsewhere.append(1))
        for path, flags in ((secret, os.O_RDONLY), (shared / "new", os.O_CREAT)):
            with pytest.raises(PermissionError):
                os.open(path, flags)
        assert os.getgroups() == [ONE]

    other.start()
    other.join()
    assert os.getgroups() == before
    secret.read_bytes()


def test_other_threads_keep_their_groups(folder: Path) -> None:
    """The groups are switched for one thread alone."""
    account = accounts.owner_at(str(made(folder / "file", ONE, 0o600)))
    asked, answered = threading.Event(), threading.Event()
    seen: list[list[int]] = []

    def other() -> None:
        asked.wait(10)
        seen.append(os.getgroups())
        answered.set()

    thread = threading.Thread(target=other)
    thread.start()
    with accounts.files_as(account):
        asked.set()
        answered.wait(10)
    thread.join()

    assert seen == [os.getgroups()]


def test_rights_that_cannot_be_switched_are_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine whose call is not known nothing is done, and root's rights are back."""
    account = accounts.owner_at(str(made(folder / "file", ONE, 0o600)))
    monkeypatch.setattr(accounts, "_SETGROUPS", {})
    with pytest.raises(PermissionError, match="cannot change groups"), accounts.files_as(account):
        pytest.fail("not reached")
    assert made(folder / "roots", 0, 0o600).stat().st_uid == 0
