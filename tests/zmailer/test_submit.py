"""Mail for the router: whole and durable, once or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.store import Unavailable
from engine.zmailer.submit import Commit, Router, parse_commit, resubmission


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool with the folders that mail is written to."""
    for name in ("router", "postman"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def router(spool: Path) -> Iterator[Router]:
    """The way to its router."""
    fd = os.open(spool, os.O_RDONLY)
    yield Router(fd)
    os.close(fd)


COMMIT = Commit("1001-x", 91, b"-killed")


def test_a_mail_has_its_inode_number_as_its_name(router: Router, spool: Path) -> None:
    """It is in router/ or postman/, mode 0600, with all bytes, and nothing is left behind."""
    paths = [router.submit([b"one\n", b"two\n"])]
    paths.append(router.submit([b"x"], "postman", ":error-on-error"))

    for path, text in zip(paths, (b"one\ntwo\n", b"x"), strict=True):
        seen = (spool / path).stat()
        assert (spool / path).read_bytes() == text
        assert (spool / path).name.removesuffix(":error-on-error") == str(seen.st_ino)
        assert seen.st_mode & 0o777 == 0o600
    assert not list((spool / ".spooldeck/staged").iterdir())


def test_an_old_mail_with_the_same_number_is_not_replaced(router: Router, spool: Path) -> None:
    """A restored router/ may have names that new inodes have: another inode is taken then."""
    first = spool / router.submit([b"1"])
    number = first.name
    first.unlink()  # its inode is free, and is the next one
    (spool / "router" / number).symlink_to("old")

    path = router.submit([b"2"])

    assert (spool / "router" / number).readlink() == Path("old")
    assert path != f"router/{number}"
    assert (spool / path).read_bytes() == b"2"


def test_the_bytes_of_the_change_decide_about_what_a_killed_process_left(
    router: Router, spool: Path
) -> None:
    """Made: it is sent; not made: it is removed; not known, or its process is running: it stays."""
    assert parse_commit(COMMIT.file_name) == COMMIT
    staged = spool / ".spooldeck/staged" / COMMIT.file_name

    def leave() -> None:
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(b"mail")

    leave()
    assert not router.recover(lambda commit: None)
    assert staged.exists()
    assert not router.recover(lambda commit: False)
    assert not staged.exists()
    leave()
    (path,) = router.recover(lambda commit: commit == COMMIT)
    assert (spool / path).read_bytes() == b"mail"
    assert not staged.exists()
    with router.stage(COMMIT, [b"mail"]) as send:
        assert not router.recover(lambda commit: False)
        assert (spool / send()).read_bytes() == b"mail"
    with router.stage(COMMIT, [b"mail"]):
        pass
    assert staged.exists()


def test_names_in_our_folder_that_are_no_commits_are_removed(router: Router, spool: Path) -> None:
    """A mail that was never part of a change was not acknowledged."""
    for name in ("new.12ab", "x.1.2d", "1.x.2d", "1.1.zz"):
        assert parse_commit(name) is None
        (spool / ".spooldeck/staged").mkdir(parents=True, exist_ok=True)
        (spool / ".spooldeck/staged" / name).touch()
    assert not router.recover(lambda commit: True)
    assert not list((spool / ".spooldeck/staged").iterdir())


def test_a_folder_that_others_can_rename_in_is_refused(router: Router, spool: Path) -> None:
    """World-writable without the sticky bit: refused with the command that helps; with it: used."""
    (spool / "router").chmod(0o777)
    with pytest.raises(Unavailable, match=r"router is world-writable: run chmod o-w,\+t"):
        router.submit([b"x"])
    (spool / "router").chmod(0o1777)
    assert router.submit([b"x"]).startswith("router/")
    (spool / "router").rename(spool / "gone")
    with pytest.raises(Unavailable, match="No such file"):
        router.submit([b"x"])


def test_a_resubmission_has_the_envelope_of_the_hold_agent() -> None:
    """As the original agent writes it."""
    said = resubmission("vm", b"alice@local.test", [b"x@y"])

    assert said == (
        b'rcvdfrom STDIN ("??"@vm)\nvia suspension\nfrom <alice@local.test>\nto <x@y>\nenv-end\n'
    )
