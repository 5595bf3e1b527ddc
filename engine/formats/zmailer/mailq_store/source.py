"""Where the threads of a scheduler are read from: a server of version 2, or a dump of version 1.

Also its address, and its changes by polling: list all threads, compare the jobs of changed ones.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Mapping

from engine.config.place_address import Address
from engine.formats.zmailer.mailq import job_text
from engine.formats.zmailer.mailq.acl import Right
from engine.formats.zmailer.mailq.client import MailqClient
from engine.formats.zmailer.mailq.connection import ANONYMOUS, MAX_ANSWER_BYTES, ServerAddress
from engine.formats.zmailer.mailq.job_text import ThreadJobs
from engine.formats.zmailer.mailq.queue_view import JobView, SchedulerView, ThreadView, has_changed
from engine.formats.zmailer.mailq.report_text import BadReport, decode
from engine.formats.zmailer.mailq.server import DEFAULT_PORT
from engine.formats.zmailer.mailq_store.tasks import tasks_of
from engine.model import Problem
from engine.store import Unavailable, Unsupported
from engine.system import files
from engine.text.error_text import error_text

OLD_SECONDS = 60.0
"""Seconds after which a dump in a file is shown as old."""


class ServerSource:
    """A server of version 2."""

    def __init__(self, client: MailqClient) -> None:
        self._client = client
        self.rights = client.find_rights()
        if Right.TT not in self.rights:
            raise Unavailable(
                f"{client.address.text}: user {client.address.user} may not see threads (TT)"
            )
        self.jobs, self.request, self.close = client.jobs, client.request, client.close

    def threads(self) -> tuple[ThreadView, ...]:
        """Ask for all threads."""
        groups, _ = self._client.threads()
        return tuple(thread for group in groups for thread in group.threads)

    def problems(self, now: float) -> list[Problem]:
        """None: it shows the present."""
        return []


class DumpSource:
    """A dump, read again for each `threads`; nothing can be changed."""

    rights: frozenset[Right] = frozenset()

    def __init__(self, read: Callable[[], SchedulerView], where: str) -> None:
        """`where` is the file or server, for a problem."""
        self._read, self._where = read, where
        self._last: SchedulerView | None = None
        self._jobs_by_thread: dict[tuple[str, str], ThreadJobs] = {}

    def threads(self) -> tuple[ThreadView, ...]:
        """Read the dump, unless it is the same as before."""
        view = self._read()
        if view is not self._last:
            self._last = view
            threads = [thread for group in view.groups for thread in group.threads]
            jobs: dict[tuple[str, str], list[JobView]] = {}
            for job in view.jobs:
                jobs.setdefault((job.channel, job.host), []).append(job)
            known = {(thread.channel, thread.host): thread for thread in threads}
            # Jobs without a thread in the report, which another program may have written.
            keys = dict.fromkeys((*known, *jobs))
            self._jobs_by_thread = {
                key: ThreadJobs(known.get(key), tuple(jobs.get(key, ()))) for key in keys
            }
        return tuple(
            thread_jobs.thread
            or ThreadView(*key, len(thread_jobs.jobs), len(thread_jobs.jobs), 0, view.now)
            for key, thread_jobs in self._jobs_by_thread.items()
        )

    def jobs(self, channel: str, host: str) -> ThreadJobs:
        """A thread of the dump that was read last."""
        if self._last is None:
            self.threads()
        return self._jobs_by_thread.get((channel, host), ThreadJobs(None, ()))

    def request(self, command: str) -> str:
        """Refuse: a dump is only shown."""
        raise Unsupported("a dump cannot be changed")

    def problems(self, now: float) -> list[Problem]:
        """The age of an old dump."""
        if self._last is None or now - self._last.now < OLD_SECONDS:
            return []
        return [Problem(self._where, "an old dump: the queue has changed", since=self._last.now)]

    def close(self) -> None:
        """Nothing is open."""


class RendezvousFile:
    """A dump in a file, which a scheduler writes at SIGUSR2; as of the time of the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity: tuple[int, ...] = ()
        self._view: SchedulerView | None = None

    def read(self) -> SchedulerView:
        """Read the file, unless it is the same as before. Raises Unavailable: it cannot be read, or
        is no dump."""
        try:
            fd = files.open_file(self._path)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error_text(error)}") from None
        try:
            file_stat = os.fstat(fd)
            if not stat.S_ISREG(file_stat.st_mode):
                raise Unavailable(f"{self._path}: expected a plain file")
            if file_stat.st_size > MAX_ANSWER_BYTES:
                raise Unavailable(f"{self._path}: more than {MAX_ANSWER_BYTES >> 20} MiB")
            identity = file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns
            if self._view is None or identity != self._identity:
                with open(fd, "rb", closefd=False) as file:
                    text = decode(file.read(MAX_ANSWER_BYTES))
                self._view = job_text.parse_dump(text.removesuffix("\n"), file_stat.st_mtime)
                self._identity = identity
        except BadReport as error:
            raise Unavailable(f"{self._path}: {error}") from None
        except OSError as error:
            raise Unavailable(f"{self._path}: {error_text(error)}") from None
        finally:
            os.close(fd)
        return self._view


ThreadSource = ServerSource | DumpSource
"""Threads and their jobs, as they are now."""


def open_source(address: ServerAddress, clock: Callable[[], float]) -> ThreadSource:
    """Connect, or read the file. Raises Unavailable: it cannot be used."""
    if not address.path and not address.host:
        source = DumpSource(RendezvousFile(address.text).read, address.text)
        source.threads()
        return source
    client = MailqClient(address, clock)
    try:
        is_old = client.find_version() == 1
        return DumpSource(client.dump, address.text) if is_old else ServerSource(client)
    except BaseException:
        client.close()
        raise


def parse_place(address: Address) -> ServerAddress:
    """Parse the URL of a server, mailq://USER@HOST:PORT or mailq+unix://USER@/PATH; a path is that
    of a rendezvous file, and has neither host nor socket.

    Without a user, it logs in as the client of the original does. Raises Unavailable: a part is
    invalid or unknown, or the password of the user is missing."""
    if not address.is_url:
        return ServerAddress(address.text)
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address.text)
    is_socket = parts.scheme == "mailq+unix"
    if parts.query:
        raise Unavailable(f"{address.text}: expected no parameters")
    if is_socket and (parts.hostname or not parts.path):
        raise Unavailable(f"{address.text}: expected mailq+unix:///PATH/OF/SOCKET")
    if not is_socket and (parts.path or not parts.hostname):
        raise Unavailable(f"{address.text}: expected mailq://HOST:PORT")
    user = unquote(parts.username or "")
    if any(not c.isprintable() or c.isspace() for c in user):
        raise Unavailable(f"{address.text}: blanks or control characters in the user")
    if user and user != ANONYMOUS and not address.password:
        raise Unavailable(
            f"{address.text}: no password of user {user}: write the URL with it into places"
        )
    return ServerAddress(
        address.text,
        unquote(parts.path) if is_socket else "",
        parts.hostname or "",
        port=parts.port or DEFAULT_PORT,
        user=user or ANONYMOUS,
        password=address.password or ANONYMOUS,
    )


POLL_SECONDS = 1.0
"""Seconds between two polls."""
COST_FACTOR = 10
"""The pause after a poll is at least so many times as long as the poll."""


class ThreadPoller:
    """The changes of a scheduler's threads since the first call."""

    def __init__(
        self,
        source: ThreadSource,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._pause, self._clock = source, pause, clock
        self._threads: dict[tuple[str, str], ThreadView] | None = None
        self._jobs: dict[tuple[str, str], dict[str, str]] = {}
        """State and revision of each task, by thread."""
        self._next_poll = 0.0

    def wait(self, seconds: float) -> Collection[str]:
        """See `ChangeSource.wait`. The first call reads all jobs, to compare later. Raises
        Unavailable: the server cannot be reached."""
        until = self._clock() + seconds
        while self._threads is not None and (now := self._clock()) < self._next_poll:
            if now >= until:
                return ()
            self._pause(min(until, self._next_poll) - now)
        began, old = self._clock(), self._threads
        new = {(thread.channel, thread.host): thread for thread in self._source.threads()}
        cost = self._clock() - began
        names = self._compare(old or {}, new)
        self._threads, ended = new, self._clock()
        if old is not None:  # the first call costs much more than the others
            cost = ended - began
        self._next_poll = ended + max(POLL_SECONDS, COST_FACTOR * cost)
        return () if old is None else names

    def _compare(
        self, old: Mapping[tuple[str, str], ThreadView], new: Mapping[tuple[str, str], ThreadView]
    ) -> set[str]:
        """The names of the tasks that differ, in threads that do."""
        changed = {
            key
            for key in (*old, *new)
            if key not in old or key not in new or has_changed(old[key], new[key])
        }
        names = set[str]()
        for key in changed:
            before, after = self._jobs.pop(key, {}), dict[str, str]()
            if key in new:
                thread_jobs = self._source.jobs(*key)
                after = {t.id: f"{t.state} {t.word} {t.rev}" for t in tasks_of(thread_jobs, 0.0)}
                self._jobs[key] = after
            names |= {ident for ident, _ in before.items() ^ after.items()}
        return names
