"""The file of suspended transports: shared by all processes, refused if damaged."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.mail.send.suspensions import Suspension, Suspensions
from tests.programs import start_rivals
from tests.tables import each

NOW = 1_795_170_000.0


def suspended_file(folder: Path) -> Path:
    """The path of the file; its folder does not exist."""
    return folder / "queue" / ".spooldeck" / "suspended"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file; its folder does not exist."""
    return suspended_file(tmp_path)


def opened(path: Path) -> Suspensions:
    """One process's view of it."""
    return Suspensions(str(path), str(path.parents[2]))


def test_a_suspension_is_seen_by_all_processes(path: Path) -> None:
    """Who, when and why are read until it is resumed; the first operator stays named."""
    first, theirs = opened(path), opened(path)
    assert theirs.read() == {}
    assert first.suspend("curl", NOW, "op", 'Wartung "über\n$(id)"')
    assert first.suspend("exim", NOW + 1, "op", "")
    assert not theirs.suspend("curl", NOW + 9, "second", "")
    assert dict(theirs.read()) == {
        "curl": Suspension("curl", NOW, "op", 'Wartung "über\n$(id)"'),
        "exim": Suspension("exim", NOW + 1, "op", ""),
    }
    assert theirs.resume("curl")
    assert not theirs.resume("curl")
    assert set(first.read()) == {"exim"}
    assert json.loads(path.read_text()) == {"exim": {"since": NOW + 1, "who": "op", "why": ""}}
    assert path.stat().st_mode & 0o137 == 0
    assert {entry.name for entry in path.parent.iterdir()} == {"suspended", "suspended.lock"}


@each("name", ["", "smtp", "../x", "none"], path=suspended_file)
def test_only_a_transport_can_be_suspended(path: Path, name: str) -> None:
    """A name that none has is refused, with those that there are."""
    with pytest.raises(ValueError, match="expected one of postfix, sendmail"):
        opened(path).suspend(name, NOW, "op", "")
    assert not opened(path).resume(name)


@each("content", [
    b"", b"{", b"[]", b"1", b'"curl"', b"\xff\xfe", b"[" * 60_000, b"{}" + b" " * 70_000,
    b'{"smtp": {"since": 1}}', b'{"curl": 1}', b'{"curl": {}}', b'{"curl": {"since": "x"}}',
    b'{"curl": {"since": true}}', b'{"curl": null}', b'{"curl": {"since": 1, "why": 1}}',
    *(b'{"curl": {"since": 1%s}}' % (b"0" * n) for n in (12, 400, 5000)),
    *(b'{"curl": {"since": %s}}' % n for n in (b"NaN", b"-1", b"Infinity", b"1e300", b"1e999")),
], path=suspended_file)  # fmt: skip
def test_a_damaged_file_stops_all_mail_and_is_kept(path: Path, content: bytes) -> None:
    """Reading, suspending and resuming raise an error, and the file is not written over."""
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    suspensions = opened(path)
    for ask in (
        suspensions.read,
        lambda: suspensions.suspend("curl", NOW, "op", ""),
        lambda: suspensions.resume("curl"),
    ):
        with pytest.raises(ValueError, match=r"suspended: .*: remove it to send mail") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


@each("make", [
    Path.mkdir, lambda path: path.symlink_to("/dev/null"), os.mkfifo,
    lambda path: opened(path).suspend("curl", NOW, "op", "") and path.chmod(0o666),
], path=suspended_file)  # fmt: skip
def test_an_odd_file_or_owner_is_not_believed(path: Path, make: Callable[[Path], object]) -> None:
    """A folder, a link, a FIFO and a file that any user may write raise an error."""
    path.parent.mkdir(parents=True)
    make(path)
    error, why = (ValueError, "writable by all users") if path.is_file() else (OSError, ".")
    with pytest.raises(error, match=why):
        opened(path).read()


RIVAL = """
import sys
from engine.mail.send.suspensions import Suspensions
suspensions = Suspensions(sys.argv[1])
sys.stdin.readline()
for n in range(20):
    assert suspensions.suspend(sys.argv[2], n, "op", "")
    assert sys.argv[2] in suspensions.read()
    if n < 19:
        assert suspensions.resume(sys.argv[2])
"""


def test_rivals_do_not_undo_one_another(path: Path) -> None:
    """Two processes suspend and resume one transport each; neither touches the other's."""
    rivals = start_rivals(RIVAL, str(path), ("curl", "exim"))
    assert [rival.wait() for rival in rivals] == [0, 0]
    assert set(opened(path).read()) == {"curl", "exim"}
