"""What a running scheduler knows of recipients, and their control files do not: read by MAILQ."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from engine.formats.zmailer.environment import SchedulerFiles
from engine.formats.zmailer.mailq import acl, queue_view
from engine.formats.zmailer.mailq.acl import Right
from engine.formats.zmailer.mailq.client import MailqClient
from engine.formats.zmailer.mailq.connection import ServerAddress
from engine.formats.zmailer.mailq.queue_view import GroupView, JobView, ThreadView, has_changed
from engine.formats.zmailer.mailq.server import LOOPBACK
from engine.formats.zmailer.scheduler.clauses import ClauseTable, find_mailq_socket
from engine.formats.zmailer.spool.scheduler_conf import SchedulerConf
from engine.formats.zmailer.spool.tasks import RecipientFacts
from engine.model import Task
from engine.store import StoreError, Unavailable
from engine.text.safe import clean_error
from engine.values import NamedTuple

ANSWER_SECONDS = 3.0
"""Seconds to wait for an answer: the screen shows `?` meanwhile."""

READ_SECONDS = 2.0
"""Seconds for which what a scheduler has shown is current."""
READ_COST_FACTOR = 10
"""It is current for at least so many times as long as it took to read."""
JOBS_SECONDS = 1.0
"""How long one reading asks for the jobs of threads; the others come with the next ones."""
FAILED_SECONDS = 10.0
"""A scheduler that did not answer is not asked again before."""

Threads = Mapping[tuple[str, str], ThreadView]
ThreadName = tuple[str, str]


def find_server(scheduler_files: SchedulerFiles) -> ServerAddress:
    """Where the scheduler of a configuration listens, with a user who may see its threads. Raises
    Unavailable: it is not known."""
    conf = _conf(scheduler_files)
    params = conf.params
    path, host, port = find_mailq_socket(conf, scheduler_files.environ)
    if host and ipaddress.ip_address(host).is_unspecified:
        host = LOOPBACK
    address = ServerAddress(path or f"{host}:{port}", path, host, port)
    if "authfile" not in params:
        return address
    users, _ = acl.read_users(str(params["authfile"].value))
    peer = ipaddress.ip_address(host) if host else None
    may_see = (one for one in users if {Right.TT, Right.QQ} & one.rights and one.fits(peer))
    user = next(may_see, None)
    if user is None:
        raise Unavailable(f"authfile {params['authfile'].value}: no user may see the threads")
    return address._replace(user=user.name, password=user.password)


class ShownQueue(NamedTuple):
    """What a scheduler shows of its threads and agents."""

    threads: Threads = {}
    agents: int = 0
    """All that run, also idle ones."""
    idle: Mapping[str, int] = {}
    """How many agents of each clause and channel have no thread now, by CHANNEL/HOST of the clause;
    0 is missing."""


def read_queue(scheduler_files: SchedulerFiles, clock: Callable[[], float]) -> ShownQueue:
    """Ask the running scheduler for its threads and agents. Raises StoreError: it does not answer,
    or the configuration has no way to it."""
    with closing(
        MailqClient(find_server(scheduler_files), clock, seconds=ANSWER_SECONDS)
    ) as client:
        if client.find_version() == 2:
            groups, totals = client.threads()
        else:
            view = client.dump()
            groups, totals = view.groups, view.totals
        idle = {f"{one.channel}/{one.host}": one.idle[0] for one in groups if one.idle[0]}
        return ShownQueue(
            _by_name(groups, ClauseTable(_conf(scheduler_files))), totals.agents, idle
        )


def _conf(scheduler_files: SchedulerFiles) -> SchedulerConf:
    if scheduler_files.conf is None or scheduler_files.conf.errors:
        raise Unavailable(scheduler_files.problem or f"{scheduler_files.conf_path}: has errors")
    return scheduler_files.conf


def _by_name(groups: Sequence[GroupView], clauses: ClauseTable) -> dict[ThreadName, ThreadView]:
    """The threads of some groups by channel and host. The original scheduler shows a next time of a
    queueonly thread, at which nothing happens."""
    threads = dict[ThreadName, ThreadView]()
    for thread in (thread for group in groups for thread in group.threads):
        settings = clauses.find(thread.channel, thread.host)
        if settings and settings.queueonly and not thread.agents and not thread.pending:
            thread = thread._replace(pending=queue_view.QUEUE_ONLY, wakeup=None)
        threads[thread.channel, thread.host] = thread
    return threads


class MailqFacts:
    """`SchedulerFacts` of one spool, by MAILQ. Used by one thread at a time."""

    def __init__(
        self,
        read_files: Callable[[], SchedulerFiles],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read_files` reads the configuration of the scheduler; `clock` is epoch seconds UTC."""
        self._read_files, self._clock, self._monotonic = read_files, clock, monotonic
        self._client: MailqClient | None = None
        self._clauses = ClauseTable(SchedulerConf((), {}, (), ()))
        self._due = float("-inf")
        self._problem = ""
        self._threads: dict[ThreadName, ThreadView] = {}
        self._read: dict[ThreadName, ThreadView] = {}
        """The threads as they were when their jobs were read."""
        self._jobs: dict[ThreadName, dict[str, JobView]] = {}
        """By the name of the control file."""

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def read(self) -> str:
        """Ask the scheduler, unless what it has shown is current; why it is not known, or ""."""
        began = self._monotonic()
        if began < self._due:
            return self._problem
        self._problem = ""
        try:
            self._ask(began + JOBS_SECONDS)
        except StoreError as error:
            self.close()
            self._problem = f"? {error}"
            self._due = self._monotonic() + FAILED_SECONDS
        else:
            took = self._monotonic() - began
            self._due = began + took + max(READ_SECONDS, READ_COST_FACTOR * took)
        return self._problem

    def _ask(self, until: float) -> None:
        if self._client is None:
            scheduler_files = self._read_files()
            self._client = MailqClient(
                find_server(scheduler_files), self._clock, seconds=ANSWER_SECONDS
            )
            self._clauses = ClauseTable(_conf(scheduler_files))
        client = self._client
        if client.find_version() == 1:
            view = client.dump()
            self._threads = _by_name(view.groups, self._clauses)
            self._jobs = {}
            for job in (queue_view.with_steady_times(one, self._clock()) for one in view.jobs):
                self._jobs.setdefault((job.channel, job.host), {})[_name(job)] = job
            return
        self._threads = _by_name(client.threads()[0], self._clauses)
        self._jobs = {name: jobs for name, jobs in self._jobs.items() if name in self._threads}
        for name, thread in self._threads.items():
            known = self._read.get(name)
            if known is not None and name in self._jobs and not has_changed(known, thread):
                continue
            if self._monotonic() >= until:
                self._jobs.pop(name, None)  # old ones would be wrong
                continue
            jobs = client.jobs(*name).jobs
            self._read[name], self._jobs[name] = thread, {_name(job): job for job in jobs}

    def find(self, name: str, task: Task) -> RecipientFacts:
        """What is known of a waiting or locked recipient of a control file."""
        if self._problem:
            return RecipientFacts(why=self._problem)
        thread = self._threads.get((task.kind, task.group))
        job = self._jobs.get((task.kind, task.group), {}).get(name)
        if thread is None or (job is None and (task.kind, task.group) in self._jobs):
            return RecipientFacts(why="its scheduler has not read it yet")
        known = job or JobView(name, task.kind, task.group)
        due, why, _ = queue_view.job_outlook(known, thread, self._clock())
        lines = [line for line in known.message.split("\r") if line.strip()]
        error = clean_error(lines[-1].removeprefix("->> ")) if lines else ""
        return RecipientFacts(due, known.attempts, error, why, known.expires_at)


def _name(job: JobView) -> str:
    return job.path.rpartition("/")[2]
