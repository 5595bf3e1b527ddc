"""With whose rights root reaches a path: who can redirect it, and what those rights are."""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from engine.system import users
from tests.tables import each

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has the rights of others")
ONE, OTHER = 65534, 4_000_001


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of root's that every user reaches."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def made(path: Path, owner: int, mode: int, group: int | None = None) -> Path:
    """An empty file, or a folder if its mode has an x for the owner, of this owner and mode."""
    if mode & 0o100:
        path.mkdir()
    else:
        path.touch()
    path.chmod(mode)
    os.chown(path, owner, owner if group is None else group)
    return path


@each(("folder_owner", "mode", "file", "expected"), [
    (0, 0o755, 0, None), (0, 0o755, ONE, ONE), (ONE, 0o755, ONE, ONE), (ONE, 0o755, 0, ONE),
    (0, 0o1777, ONE, ONE), (OTHER, 0o755, 0, OTHER),
    (OTHER, 0o755, ONE, f"belongs to nobody in a folder of {OTHER}.*sudo -u nobody"),
    (0, 0o1777, 0, "other users can write to the folder .*inner .mode 1777"),
    (0, 0o777, 0, "other users can write to the folder .*inner .mode 777"),
    (0, 0o775, 0, f"group {ONE}"),
], folder=lambda _: tempfile.TemporaryDirectory())  # fmt: skip
def test_the_owner_of_a_file_or_of_its_folder_decides(
    folder: str, folder_owner: int, mode: int, file: int, expected: int | str | None
) -> None:
    """Root's file has the rights of its folder's owner; where none are safe it is refused."""
    Path(folder).chmod(0o755)
    inner = made(Path(folder, "inner"), folder_owner, mode, ONE if mode == 0o775 else folder_owner)
    path = made(inner / "file", file, 0o644)
    if isinstance(expected, str):
        with pytest.raises(users.Unsafe, match=expected):
            users.safe_account(str(path))
    else:
        account = users.safe_account(str(path))
        assert (account and account.uid) == expected


def test_an_outer_folder_or_a_link_of_another_user_decides(folder: Path) -> None:
    """Root's rights are not used on a path that another user can redirect further up."""
    inner = made(made(folder / "outer", ONE, 0o755) / "inner", 0, 0o755)
    path = made(inner / "file", 0, 0o644)
    link = made(folder / "own", 0, 0o755) / "link"
    link.symlink_to(path)
    accounts = [users.safe_account(str(p)) for p in (path, link, inner, inner / "missing")]
    assert [account and account.uid for account in accounts] == [ONE] * 4


def test_a_file_that_appears_meanwhile_does_not_move_its_folder(monkeypatch: MonkeyPatch) -> None:
    """It counts as missing: the sticky folder above is not its folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/database"
        real_lstat = os.lstat

        def create_afterwards(at: str) -> os.stat_result:
            try:
                return real_lstat(at)
            finally:
                if at == path:
                    Path(path).touch()

        with monkeypatch.context() as patch:
            patch.setattr(os, "lstat", create_afterwards)
            assert users.safe_account(path) is None
        assert Path(path).exists()


def test_the_rights_of_a_user_are_without_roots_groups(folder: Path) -> None:
    """The groups are switched for one thread alone, and back afterwards."""
    secret = made(folder / "secret", 0, 0o640)
    shared = made(folder / "shared", 0, 0o770)
    account, before = users.safe_account(str(made(folder / "file", ONE, 0o600))), os.getgroups()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(os.getgroups).result() == before
        with users.files_as(account):
            for path, flags in ((secret, os.O_RDONLY), (shared / "new", os.O_CREAT)):
                with pytest.raises(PermissionError):
                    os.open(path, flags)
            assert (os.getgroups(), other.submit(os.getgroups).result()) == ([ONE], before)
    assert os.getgroups() == before
    secret.read_bytes()


def test_rights_that_cannot_be_switched_are_errors(folder: Path, monkeypatch: MonkeyPatch) -> None:
    """On a machine whose call is not known nothing is done, and root's rights are back."""
    account = users.safe_account(str(made(folder / "file", ONE, 0o600)))
    monkeypatch.setattr(users, "_SETGROUPS_NUMBERS", {})
    with pytest.raises(PermissionError, match="cannot change groups"), users.files_as(account):
        pytest.fail("not reached")
    assert made(folder / "roots", 0, 0o600).stat().st_uid == 0
