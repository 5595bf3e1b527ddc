"""Mail for the router: whole and durable, once or not at all."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.formats.zmailer.spool.control_file import parse_control_file
from engine.formats.zmailer.spool.marks import Commit, LineChange
from engine.formats.zmailer.submit import Router, resubmission
from engine.store import Unavailable
from engine.system import files


class RoutedSpool(NamedTuple):
    """A spool with the folders that mail is written to, and the way to its router."""

    root: Path
    router: Router

    def staged(self) -> list[Path]:
        """The files of mails that are not sent yet."""
        return list((self.root / ".spooldeck/staged").iterdir())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RoutedSpool]:
    """An empty one."""
    for name in ("router", "postman"):
        (tmp_path / name).mkdir()
    fd = os.open(tmp_path, os.O_RDONLY)
    yield RoutedSpool(tmp_path, Router(fd))
    os.close(fd)


LINES = (LineChange(91, b" ", b"-killed"), LineChange(130, b" ", b"-killed"))
COMMIT = Commit("1001-x", LINES, 200, b"d\xff")


def test_a_mail_has_its_inode_number_as_its_name(spool: RoutedSpool) -> None:
    """It is in router/ or postman/, mode 0600, with all bytes, and nothing is left behind. A folder
    that others can rename in is refused with the command that helps."""
    for words, text in (
        (([b"one\n", b"two\n"],), b"one\ntwo\n"),
        (([b"x"], "postman", ":e"), b"x"),
    ):
        path = spool.root / spool.router.submit(*words)
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (text, 0o600)
        assert path.name.removesuffix(":e") == str(path.stat().st_ino)
    assert spool.staged() == []

    folder = spool.root / "router"
    folder.chmod(0o777)
    with pytest.raises(Unavailable, match=r"router is world-writable: run chmod o-w,\+t"):
        spool.router.submit([b"x"])
    folder.chmod(0o1777)
    assert spool.router.submit([b"x"]).startswith("router/")
    folder.rename(spool.root / "gone")
    with pytest.raises(Unavailable, match="No such file"):
        spool.router.submit([b"x"])


def test_an_old_mail_is_not_replaced(spool: RoutedSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored router/ may have names that new inodes have: another inode is taken then."""
    create, old = files.create_file, list[Path]()

    def creating(*args: Any) -> int:
        fd = create(*args)
        if not old:
            old.append(spool.root / "router" / str(os.fstat(fd).st_ino))
            old[0].write_bytes(b"old")
        return fd

    monkeypatch.setattr(files, "create_file", creating)
    path = spool.root / spool.router.submit([b"new"])
    assert (old[0].read_bytes(), path.read_bytes()) == (b"old", b"new")


def test_the_lines_of_a_change_decide_about_a_mail_that_was_left(spool: RoutedSpool) -> None:
    """Made: it is sent; not made: it is removed; not known, or its process is running: it stays."""
    commits: list[Commit] = []

    def settle(commit: Commit) -> bool:
        commits.append(commit)
        return len(commits) > 1

    def leave() -> None:
        with spool.router.stage(COMMIT, [b"mail"]):
            assert not spool.router.recover(lambda commit: True)

    leave()
    assert not spool.router.recover(lambda commit: None)
    assert len(spool.staged()) == 2
    assert not spool.router.recover(settle)
    assert spool.staged() == []
    leave()
    (path,) = spool.router.recover(settle)
    assert (commits, (spool.root / path).read_bytes()) == ([COMMIT, COMMIT], b"mail")
    assert spool.staged() == []
    with spool.router.stage(COMMIT, [b"more"]) as send:
        assert (spool.root / send()).read_bytes() == b"more"
    assert spool.staged() == []


def test_a_mail_whose_lines_were_not_durable_is_removed(spool: RoutedSpool) -> None:
    """The lines are fsynced before the change begins: torn, it has not begun."""
    staged = spool.root / ".spooldeck/staged"
    staged.mkdir(parents=True)
    for lines in (None, b"", b"[1, 2]", b'["1001", [[9, "zz", ""]], 0, ""]', b'["1001"'):
        (staged / "mail.1").write_bytes(b"x")
        (staged / "mail.2.lines").write_bytes(b"of a mail that was sent")
        if lines is not None:
            (staged / "mail.1.lines").write_bytes(lines)
        assert not spool.router.recover(lambda commit: True)
        assert spool.staged() == [], lines


def test_a_resubmission_has_the_envelope_of_the_hold_agent() -> None:
    """As the original agent writes it."""
    line = b"i 1\nr  hold ns:x x@y 1\nN NOTIFY=NEVER INRCPT=z\nr  hold ns:x z 1\n"
    first, second = parse_control_file(line).recipients
    assert resubmission("vm", b"alice@local.test", [second]) == (
        b'rcvdfrom STDIN ("??"@vm)\nvia suspension\nfrom <alice@local.test>\nto <z>\nenv-end\n'
    )
    of_report = resubmission("vm", b"", [first])
    assert b"channel error\ntodsn NOTIFY=NEVER\nto <x@y>\n" in of_report
