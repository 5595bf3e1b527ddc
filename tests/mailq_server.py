"""A queue that a MAILQ server shows, and the server in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from engine.formats.zmailer.mailq.acl import MailqUser, parse_users
from engine.formats.zmailer.mailq.queue_view import (
    AgentView,
    CounterView,
    GroupView,
    JobView,
    JobWait,
    SchedulerView,
    ThreadView,
    TotalsView,
)
from engine.formats.zmailer.mailq.server import MailqServer, listen_unix

USERS, _ = parse_users("root:s3cret:ALL:\nnobody:nobody:SNMP QQ TT ETRN:\nqonly:pw:QQ:\n")
NOW = 1_795_168_178.0


def waiting_job(path: str, host: str, **values: object) -> JobView:
    """A job of the channel smtp that failed once and waits."""
    job = JobView(path, "smtp", host, (169,), "<smtp connect: Connection timed out>")
    job = job._replace(wait=JobWait.RETRY, wakeup=NOW + 60, expires_at=NOW + 255_600, attempts=1)
    job = job._replace(error_address="alice@local.test", fed_at=NOW - 30)
    return job._replace(**values)  # type: ignore[arg-type]


TOTALS = TotalsView(
    0, 0, 0, 0, 0, uptime=76, messages_in=0, messages_out=0, messages_stored=(0, 0),
    recipients_in=9, recipients_out=0, recipients_stored=(9, 9),
)  # fmt: skip
GROUP = GroupView(
    "", "*", (), (0, 0), 0, agents=(0, 0), idle=(0, 0), max_agents=20, overfeed=3,
    max_thread_agents=1,
)  # fmt: skip


SAMPLE_JOBS = (
    waiting_job("I/F/3276785", "a.test"),
    waiting_job("I/F/3276785", "b.test", offsets=(200, 300)),
    waiting_job("G/W/3268638", "a.test", message="first\rlast line", attempts=4),
    waiting_job("S/O/3268942", "ns:c.test/any", channel="hold"),
)


class SampleQueue:
    """Jobs in memory, as a scheduler has them; a killed message is gone from all threads."""

    def __init__(self, jobs: Iterable[JobView] = SAMPLE_JOBS, now: float = NOW) -> None:
        self.all_jobs = [*jobs]
        self.now = now
        self.is_lying = False
        """True: it answers that it killed and started, and does nothing."""
        self.asked: list[str] = []
        self._view: SchedulerView | None = None

    def _thread(self, channel: str, host: str, jobs: Sequence[JobView]) -> ThreadView:
        running = [job for job in jobs if job.wait is JobWait.RUNNING]
        agents = [AgentView(job.pid, self.now, job.fed_at, 1, "STUFF") for job in running]
        recipients = sum(len(job.offsets) for job in jobs)
        attempts = sum(job.attempts or 0 for job in jobs)
        thread = ThreadView(
            channel, host, len(jobs), recipients, attempts, oldest_at=self.now - 120
        )
        return thread._replace(agents=tuple(agents), wakeup=jobs[0].wakeup)

    def view(self, *, with_jobs: bool) -> SchedulerView:
        """All threads of one clause for each channel."""
        by_key: dict[tuple[str, str], list[JobView]] = {}
        for job in self.all_jobs:
            by_key.setdefault((job.channel, job.host), []).append(job)
        threads = [self._thread(*key, jobs) for key, jobs in by_key.items()]
        groups = []
        for channel in sorted({channel for channel, _ in by_key}):
            own = tuple(thread for thread in threads if thread.channel == channel)
            counts, messages = (len(own), len(own)), sum(thread.jobs for thread in own)
            group = GROUP._replace(channel=channel, threads=own, thread_count=counts)
            groups.append(group._replace(messages=messages))
        amount, recipients = len({job.path for job in self.all_jobs}), len(self.all_jobs)
        totals = TOTALS._replace(messages=amount, threads=len(threads), recipients=recipients)
        totals = totals._replace(messages_in=amount, messages_stored=(amount, amount))
        jobs_shown = tuple(self.all_jobs) if with_jobs else ()
        new = SchedulerView(self.now, tuple(groups), totals, jobs_shown)
        if self._view != new:
            self._view = new
        return self._view or new

    def jobs(self, channel: str, host: str) -> Sequence[JobView]:
        """The jobs of a thread."""
        return [job for job in self.all_jobs if (job.channel, job.host) == (channel, host)]

    def counters(self) -> Iterable[CounterView]:
        """Two counters."""
        return [CounterView("SYS.SchedulerMasterPID", "7", "NOT PRESENT!"), CounterView()]

    def etrn(self, host: str) -> bool:
        """Make the jobs of a host due."""
        self.asked.append(f"ETRN {host}")
        due = {"wait": JobWait.INACTIVE, "wakeup": None}
        return self._change([
            job._replace(fed_at=job.fed_at + 1, **due) if job.host == host else job  # type: ignore[arg-type]
            for job in self.all_jobs
        ])  # fmt: skip

    def kill_message(self, name: str) -> str:
        """Remove a message from all threads."""
        self.asked.append(f"KILL MSG {name}")
        done = self._change([job for job in self.all_jobs if job.path != name])
        return "" if done else "no such message"

    def kill_thread(self, channel: str, host: str) -> str:
        """Remove a thread."""
        self.asked.append(f"KILL THREAD {channel} {host}")
        key = channel, host
        done = self._change([job for job in self.all_jobs if (job.channel, job.host) != key])
        return "" if done else "no such thread"

    def _change(self, jobs: list[JobView]) -> bool:
        if self.is_lying:
            return True
        is_changed, self.all_jobs = jobs != self.all_jobs, jobs
        return is_changed


class RunningServer(NamedTuple):
    """A server in a thread, and what it shows."""

    path: str
    queue: SampleQueue
    server: MailqServer

    @property
    def url(self) -> str:
        """The address of the place, with the password of the user root."""
        return f"mailq+unix://root:s3cret@{self.path}"


@contextmanager
def serving(
    folder: Path,
    queue: SampleQueue | None = None,
    users: Sequence[MailqUser] | None = USERS,
    *,
    is_exact: bool = False,
) -> Iterator[RunningServer]:
    """Serve a queue on a UNIX socket in a folder, until the block ends."""
    path, queue = str(folder / "mailq.sock"), queue or SampleQueue()
    server = MailqServer([listen_unix(path)], queue, users, is_exact=is_exact)
    over = threading.Event()

    def run() -> None:
        with suppress(ValueError, OSError):  # closed
            while not over.is_set():
                server.step(0.05)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield RunningServer(path, queue, server)
    finally:
        over.set()
        thread.join()
        server.close()
