"""Mail for the router: whole and durable, once or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zmailer.spool.control_file import parse_control_file
from engine.formats.zmailer.spool.marks import Commit, LineChange
from engine.formats.zmailer.submit import Router, resubmission
from engine.store import Unavailable
from engine.system import files


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


COMMIT = Commit(
    "1001-x", (LineChange(91, b" ", b"-killed"), LineChange(130, b" ", b"-killed")), 200, b"d\xff"
)


def test_a_mail_has_its_inode_number_as_its_name(router: Router, spool: Path) -> None:
    """It is in router/ or postman/, mode 0600, with all bytes, and nothing is left behind."""
    paths = [router.submit([b"one\n", b"two\n"])]
    paths.append(router.submit([b"x"], "postman", ":error-on-error"))
    for path, text in zip(paths, (b"one\ntwo\n", b"x"), strict=True):
        stat = (spool / path).stat()
        assert (spool / path).read_bytes() == text
        assert (spool / path).name.removesuffix(":error-on-error") == str(stat.st_ino)
        assert stat.st_mode & 0o777 == 0o600
    assert not list((spool / ".spooldeck/staged").iterdir())


def test_an_old_mail_with_the_same_number_is_not_replaced(
    router: Router, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored router/ may have names that new inodes have: another inode is taken then."""
    create, old = files.create_file, list[Path]()

    def creating(*args: Any) -> int:
        fd = create(*args)
        if not old:
            old.append(spool / "router" / str(os.fstat(fd).st_ino))
            old[0].write_bytes(b"old")
        return fd

    monkeypatch.setattr(files, "create_file", creating)
    path = router.submit([b"new"])
    assert old[0].read_bytes() == b"old"
    assert (spool / path).read_bytes() == b"new"


def test_the_lines_of_the_change_decide_about_what_a_killed_process_left(
    router: Router, spool: Path
) -> None:
    """Made: it is sent; not made: it is removed; not known, or its process is running: it stays."""
    commits: list[Commit] = []

    def settle(commit: Commit) -> bool:
        commits.append(commit)
        return len(commits) > 1

    def leave() -> None:
        with router.stage(COMMIT, [b"mail"]):
            assert not router.recover(lambda commit: True)

    leave()
    assert not router.recover(lambda commit: None)
    assert len(list((spool / ".spooldeck/staged").iterdir())) == 2
    assert not router.recover(settle)
    assert not list((spool / ".spooldeck/staged").iterdir())
    leave()
    (path,) = router.recover(settle)
    assert commits == [COMMIT, COMMIT]
    assert (spool / path).read_bytes() == b"mail"
    assert not list((spool / ".spooldeck/staged").iterdir())
    with router.stage(COMMIT, [b"more"]) as send:
        assert (spool / send()).read_bytes() == b"more"
    assert not list((spool / ".spooldeck/staged").iterdir())


@pytest.mark.parametrize(
    "lines", [None, b"", b"[1, 2]", b'["1001", [[9, "zz", ""]], 0, ""]', b'["1001"']
)
def test_a_mail_whose_lines_were_not_durable_is_removed(
    lines: bytes | None, router: Router, spool: Path
) -> None:
    """The lines are fsynced before the change begins: torn, it has not begun."""
    staged = spool / ".spooldeck/staged"
    staged.mkdir(parents=True)
    (staged / "mail.1").write_bytes(b"x")
    (staged / "mail.2.lines").write_bytes(b"of a mail that was sent")
    if lines is not None:
        (staged / "mail.1.lines").write_bytes(lines)
    assert not router.recover(lambda commit: True)
    assert not list(staged.iterdir())


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
    line = b"i 1\nr  hold ns:x x@y 1\nN NOTIFY=NEVER INRCPT=z\nr  hold ns:x z 1\n"
    first, second = parse_control_file(line).recipients
    assert resubmission("vm", b"alice@local.test", [second]) == (
        b'rcvdfrom STDIN ("??"@vm)\nvia suspension\nfrom <alice@local.test>\nto <z>\nenv-end\n'
    )
    of_report = resubmission("vm", b"", [first])
    assert b"channel error\ntodsn NOTIFY=NEVER\nto <x@y>\n" in of_report
