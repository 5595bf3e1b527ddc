"""The notify socket: an AF_UNIX datagram `NEW I/F/3276785` names a new control file.

The router sends it after it has put the file there; a scan finds the file too, only later. So a
sender ignores that the socket is missing, and a receiver all that is not exactly this.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engine.system import files
from engine.system.cleanup import closing_fd

SOCKET_MODE = 0o200
"""Only its owner may send."""

MESSAGES_PER_ROUND = 10
"""Datagrams that are read before the scheduler goes on with its other work."""

_MAX_BYTES = 1024
_match = re.compile(rb"NEW ((?:[A-Z]/){0,2}[1-9][0-9]{0,19}(?:-[A-Za-z0-9_.-]{1,40})?)").fullmatch


def send(path: str, control_file: str, seconds: float = 0.0) -> bool:
    """Name a new control file, below transport/; False if no scheduler takes it within so many
    seconds: it finds the file by a scan. Raises OSError: the socket cannot be used."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(seconds)
        try:
            with _open_folder(path) as (folder_fd, name):
                address = f"/proc/self/fd/{folder_fd}/{name}"  # a path may have only 107 bytes
                sock.sendto(f"NEW {control_file}".encode(), address)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError, TimeoutError):
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return False
            raise
    return True


@contextmanager
def _open_folder(path: str) -> Iterator[tuple[int, str]]:
    """The open folder of a socket, and its name there."""
    folder, name = os.path.split(path)
    with closing_fd(files.open_dir_path(folder or ".")) as folder_fd:
        yield folder_fd, name


class NotifySocket:
    """The socket of a scheduler; it replaces the one that an ended scheduler has left."""

    def __init__(self, path: str) -> None:
        """Bind it. Raises OSError: it cannot be made, or another kind of file is there."""
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            with _open_folder(path) as (folder_fd, name):
                self._socket_stat = self._bind(folder_fd, name)
        except OSError:
            self._socket.close()
            raise

    def _bind(self, folder_fd: int, name: str) -> os.stat_result:
        with suppress(FileNotFoundError):
            socket_stat = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            if not stat.S_ISSOCK(socket_stat.st_mode):
                raise FileExistsError(errno.EEXIST, "expected a socket or no file", self._path)
        draft = f"{name}.{os.urandom(6).hex()}"
        files.bind_socket(self._socket, draft, folder_fd, SOCKET_MODE)
        try:
            socket_stat = os.stat(draft, dir_fd=folder_fd, follow_symlinks=False)
            files.rename(draft, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        except OSError:
            files.unlink_quietly(draft, folder_fd)
            raise
        return socket_stat

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._socket.fileno()

    def receive(self) -> Iterator[str]:
        """Yield the paths of at most `MESSAGES_PER_ROUND` datagrams, without waiting."""
        for _ in range(MESSAGES_PER_ROUND):
            try:
                data = self._socket.recv(_MAX_BYTES)
            except BlockingIOError:
                return
            if match := _match(data):
                yield match[1].decode("ascii")

    def close(self) -> None:
        """Close it, and remove it unless another process has put its own there."""
        self._socket.close()
        with suppress(FileNotFoundError), _open_folder(self._path) as (folder_fd, name):
            current_stat = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            if os.path.samestat(current_stat, self._socket_stat):
                os.unlink(name, dir_fd=folder_fd)
