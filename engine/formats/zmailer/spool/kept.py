"""Second hard links to messages with held or purged recipients, in `.spooldeck/kept/`.

A scheduler removes control and message file once all other recipients are finished. Our links keep
both: the same inodes, so tags written through any name are seen through all. As the inode of a kept
message is not free, no new message gets its number, and so its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from os import stat_result

from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.folders import (
    KEPT,
    QUEUE,
    TRANSPORT,
    OpenControl,
    PostofficeFolders,
)
from engine.store import Gone, Unavailable
from engine.system import files
from engine.text.error_text import error_text

FOLDER_MODE = 0o700


class KeptLinks:
    """Our links in one spool."""

    def __init__(self, folders: PostofficeFolders) -> None:
        self._folders = folders

    def keep(self, opened: OpenControl) -> None:
        """Link control and message file, the message first; durable on return. Raises Gone: the
        file is not at its path any more; Unavailable: one cannot be linked."""
        if opened.is_kept:
            return
        name, file_stat = opened.name, os.fstat(opened.fd)
        message, path = self._folders.find_message(name, likely=opened.folder)
        for word in (QUEUE, TRANSPORT):
            self._folders.make_below(f"{KEPT}/{word}", FOLDER_MODE)
        with self._lock():
            self._link(path, message, QUEUE)
            self._link(opened.where, file_stat, TRANSPORT)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the flock of our folder: a link without its other half is then of a dead process."""
        with self._folders.open_below(self._folders.fd, KEPT) as fd, files.Flock(fd):
            yield

    def _link(self, path: str, file_stat: stat_result, word: str) -> None:
        """Make a link in a folder of ours to a file that was seen, unless it is there."""
        above, name = os.path.split(path)
        with self._open(word) as kept_fd:
            with self._folders.open_below(self._folders.fd, above) as spool_fd:
                _link(name, spool_fd, kept_fd)
            link_stat = os.stat(name, dir_fd=kept_fd, follow_symlinks=False)
            if not os.path.samestat(link_stat, file_stat):
                raise Unavailable(
                    f"{KEPT}/{word}/{name}: is another file, expected a link to {path}"
                )
            files.fsync(kept_fd)

    def put_back(self, name: str) -> None:
        """Link a finished message back to where the router puts one, the message file first, so
        that the scheduler reads it as a new one; durable on return."""
        for word in (QUEUE, TRANSPORT):
            with (
                self._open(word) as kept_fd,
                self._folders.open_below(self._folders.fd, word) as spool_fd,
            ):
                _link(name, kept_fd, spool_fd)
                link_stat = os.stat(name, dir_fd=spool_fd, follow_symlinks=False)
                if not os.path.samestat(
                    link_stat, os.stat(name, dir_fd=kept_fd, follow_symlinks=False)
                ):
                    raise Unavailable(f"{word}/{name}: is another file, expected none")
                files.fsync(spool_fd)

    def drop(self, name: str) -> None:
        """Remove both links, the one of the control file first."""
        for word in (TRANSPORT, QUEUE):
            try:
                with self._open(word) as kept_fd:
                    files.unlink_quietly(name, kept_fd)
                    files.fsync(kept_fd)
            except FileNotFoundError:
                continue  # no folder, no links

    def lone_messages(self) -> set[str]:
        """Names of message links without one of their control file."""
        try:
            with self._open(QUEUE) as fd:
                message_names = {
                    name for name in os.listdir(fd) if names.message_number(name) is not None
                }
        except FileNotFoundError:
            return set()
        return message_names - self._folders.list_kept()

    def drop_lone(self) -> None:
        """Remove message links that a process has left when it was killed."""
        if self.lone_messages():
            with self._lock():
                for name in self.lone_messages():
                    self.drop(name)

    def _open(self, word: str) -> AbstractContextManager[int]:
        return self._folders.open_below(self._folders.fd, f"{KEPT}/{word}")


def _link(name: str, source: int, target: int) -> None:
    """Hard link a file under its own name into another folder, unless the name is taken. Raises
    Gone: it is not there; Unavailable: the system refuses it."""
    try:
        files.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except FileExistsError:
        return  # the caller compares it
    except FileNotFoundError:
        raise Gone(name) from None
    except OSError as error:
        raise Unavailable(f"{name}: cannot be linked: {error_text(error)}") from error
