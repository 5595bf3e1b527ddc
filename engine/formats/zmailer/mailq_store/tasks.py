"""Make tasks of jobs: a task is one message in one thread."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b

from engine.formats.zmailer.mailq import queue_view
from engine.formats.zmailer.mailq.job_text import ThreadJobs
from engine.formats.zmailer.mailq.queue_view import JobView, JobWait, ThreadView
from engine.model import WAITS_KEY, Lease, Problem, State, Task
from engine.text.safe import clean_error, safe_line
from engine.values import NamedTuple
from engine.verbs import WAITING_PREFIX

STATES: Mapping[State, str] = {State.PENDING: "waiting", State.ACTIVE: "running"}
"""The states with their words."""
LIMITED, INACTIVE, QUEUEONLY = "limited", "inactive", "queueonly"
WORDS: Mapping[str, State] = dict.fromkeys((LIMITED, INACTIVE, QUEUEONLY), State.PENDING)
"""Finer words: due, but too many agents are running; due, and its thread has no agent; only ETRN
starts it."""
_ID = re.compile(r"([^/]+)/(.+?)/((?:[A-Z]/){0,2}\d[^/]*)", re.DOTALL)
"""A host may have slashes. It is in lower case, so it does not end like a path begins."""


class TaskName(NamedTuple):
    """The parts of a task id, CHANNEL/HOST/PATH."""

    channel: str
    host: str
    path: str
    """The control file of the message."""


def task_id(job: JobView) -> str:
    """The id of the task of a job; it stays while the message is in the thread."""
    return f"{job.channel}/{job.host}/{job.path}"


def parse_id(ident: str) -> TaskName | None:
    """The parts of a task id; None if it is none."""
    match = _ID.fullmatch(ident)
    return TaskName(match[1], match[2], match[3]) if match and "\0" not in ident else None


def named_jobs(thread_jobs: ThreadJobs) -> Iterator[JobView]:
    """The jobs of a thread that can be tasks: an id has no control characters and no bytes that are
    not UTF-8."""
    return (job for job in thread_jobs.jobs if task_id(job).isprintable())


def unnamed_jobs(thread_jobs: ThreadJobs) -> Iterator[Problem]:
    """The other ones."""
    for job in thread_jobs.jobs:
        if not task_id(job).isprintable():
            yield Problem(safe_line(task_id(job)), "control characters in its name: shown only")


def tasks_of(thread_jobs: ThreadJobs, now: float) -> Iterator[Task]:
    """Make the tasks of the named jobs of a thread, in their order."""
    active = _fed_jobs(thread_jobs)
    for job in named_jobs(thread_jobs):
        is_active = job.wait is JobWait.RUNNING or job.path in active
        yield _task_of(job, thread_jobs.thread, now, is_active=is_active)


def _fed_jobs(thread_jobs: ThreadJobs) -> frozenset[str]:
    """The control files of the jobs that agents have: of those that wait for nothing, the ones that
    were fed last, as many as the agents have not answered. Version 2 does not name them."""
    outstanding = (
        sum(agent.outstanding for agent in thread_jobs.thread.agents) if thread_jobs.thread else 0
    )
    fed = [job for job in thread_jobs.jobs if job.wait is JobWait.UNKNOWN and job.fed_at]
    fed.sort(key=lambda job: -job.fed_at)
    return frozenset(job.path for job in fed[:outstanding])


def revision(job: JobView) -> str:
    """A hash of what an attempt changes. Times that a dump rounds are not in it, nor what another
    job can change."""
    facts = job.offsets, job.attempts, job.fed_at, job.message, job.error_address
    times = (job.wakeup, job.expires_at) if job.fed_at or job.error_address else ()
    text = repr((facts, times, job.pid)).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=8).hexdigest()


def _word(job: JobView, thread: ThreadView | None, reason: str) -> str:
    """The finer word of a waiting job. Version 2 shows `channel` and `thread` also for a thread
    that waits for something else."""
    if reason == queue_view.QUEUE_ONLY:
        return QUEUEONLY
    if reason in queue_view.LIMITS or job.wait is JobWait.SLOT:
        return LIMITED
    if job.wait in (JobWait.CHANNEL, JobWait.THREAD):
        return LIMITED if thread is None or thread.agents else INACTIVE
    return INACTIVE if job.wait is JobWait.INACTIVE else ""


def _task_of(job: JobView, thread: ThreadView | None, now: float, *, is_active: bool) -> Task:
    amount, outlook = len(job.offsets), queue_view.job_outlook(job, thread, now)
    extra = {
        WAITS_KEY: "" if is_active else outlook.why,
        "recipients": str(amount),
        "errors to": safe_line(job.error_address),
        "expires": "" if job.expires_at is None else _stamp(job.expires_at),
        "last fed": _stamp(job.fed_at) if job.fed_at else "",
    }
    error = last_line(job.message)
    if not (error or is_active) and outlook.why:
        error = f"{WAITING_PREFIX}{outlook.why}"
    lease = None
    if is_active:
        lease = Lease(f"PID {job.pid}" if job.pid else "", job.fed_at or now)
    channel, host = safe_line(job.channel), safe_line(job.host)
    return Task(
        id=task_id(job),
        kind=channel,
        state=State.ACTIVE if is_active else State.PENDING,
        created=0.0,
        queue=f"{channel}/{host}",
        group=host,
        word="" if is_active else _word(job, thread, outlook.reason),
        due=job.wakeup if is_active else outlook.due,
        attempts=job.attempts,
        description=f"{amount} recipient{'s' * (amount != 1)}",
        destination=host,
        payload=safe_line(job.path),
        error=error,
        lease=lease,
        rev=revision(job),
        extra={name: value for name, value in extra.items() if value},
    )


def last_line(message: str) -> str:
    """The last line of a diagnostic that is not empty; its lines end with CR."""
    lines = [line for line in message.split("\r") if line.strip()]
    return clean_error(lines[-1]) if lines else ""


def job_lines(job: JobView) -> str:
    """All that is known of a job, to read: one fact a line, then the diagnostic."""
    facts = {
        "message": job.path,
        "thread": f"{job.channel}/{job.host}",
        "recipients at bytes": ", ".join(map(str, job.offsets)),
        "errors to": job.error_address,
        "state": job.wait or "unknown",
        "next attempt": _stamp(job.wakeup) if job.wakeup else "",
        "last fed": _stamp(job.fed_at) if job.fed_at else "",
        "expires": _stamp(job.expires_at) if job.expires_at else "",
        "attempts": "" if job.attempts is None else str(job.attempts),
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    return "\n".join([*lines, "", *job.message.split("\r")]) + "\n"


def _stamp(seconds: float) -> str:
    """A time as ISO 8601 in UTC; "" if no calendar has it."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return ""
