"""The notify socket of a scheduler."""

import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from engine.formats.zmailer import notify
from engine.formats.zmailer.notify import NotifySocket


def test_a_notice_names_a_new_file(tmp_path: Path) -> None:
    """A datagram `NEW path`; the socket has mode 0200 and is removed at the end. One of an ended
    scheduler disturbs no sender and is replaced; another kind of file stays."""
    path = tmp_path / ".scheduler.notify"
    assert not notify.send(str(path), "I/F/3276785")
    notify_socket = NotifySocket(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o200
    names = ["I/F/3276785", "77", "A/9-x"]
    assert all(notify.send(str(path), name) for name in names)
    assert [list(notify_socket.receive()) for _ in range(2)] == [names, []]

    notify_socket._socket.close()
    assert not notify.send(str(path), "7")
    second = NotifySocket(str(path))
    assert notify.send(str(path), "7")
    notify_socket.close()
    assert path.exists()
    second.close()
    assert not path.exists()
    path.write_text("a file")
    with pytest.raises(FileExistsError, match="expected a socket"):
        NotifySocket(str(path))
    assert path.read_text() == "a file"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_any_other_datagram_is_ignored(tmp_path: Path) -> None:
    """Only exactly `NEW` and the path of a control file counts; at most ten are read at a time."""
    wrong = (b"", b"NEW ", b"new 7", b"NEW 7\n", b"NEW 0", b"NEW ../7", b"NEW A/B/C/7", b"NEW 7\0")
    for number, data in enumerate((*wrong, b"OLD 7")):
        path = str(tmp_path / str(number))
        notify_socket = NotifySocket(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            with suppress(BlockingIOError):
                for one in (data, b"x" * 5000, *[b"NEW 8"] * 9):
                    sock.sendto(one, path)
        names = list(notify_socket.receive())
        assert (set(names), len(names) <= 8) == ({"8"}, True), data
        notify_socket.close()
