"""The listings of mailq(1zm): threads with their messages, as the original's client prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from engine.formats.zmailer.mailq.job_text import job_text
from engine.formats.zmailer.mailq.queue_view import JobView, SchedulerView
from engine.formats.zmailer.mailq.report_text import short_time

Details = Callable[[JobView], Iterable[str]]
"""Further lines on a job (`mailq -v`)."""


def no_details(job: JobView) -> Iterable[str]:
    """No lines."""
    return ()


def dump_listing(
    view: SchedulerView,
    wants: Callable[[str, str], bool],
    details: Details = no_details,
) -> Iterator[str]:
    """The threads of a dump of version 1 that `wants(channel, host)`: channels in their order, the
    last job first."""
    for channel, keys in view.channel_keys:
        threads: dict[str, list[JobView]] = {}
        for key in reversed(keys):
            job = view.jobs[key - 1]
            threads.setdefault(job.host, []).append(job)
        for host, jobs in threads.items():
            if not wants(channel, host):
                continue
            yield f"{channel}/{host}:"
            for job in jobs:
                amount = f"/{len(job.offsets)}" if len(job.offsets) > 1 else ""
                yield f"\t{job.path}{amount}:\t{job_text(job, view.now)}"
                yield from details(job)


def thread_listing(
    channel: str, host: str, jobs: Iterable[JobView], now: float, details: Details = no_details
) -> Iterator[str]:
    """A thread of a server of version 2."""
    yield f"{channel}/{host}:"
    for job in jobs:
        expiry = ""
        if job.expires_at is not None:
            expiry = f", expires in {short_time(int(job.expires_at - now))}"
        yield f"\t{job.path}: ({job.attempts or 0} tries{expiry}) {job.message}"
        yield from details(job)


def message_details(identity: str, sender: str, recipients: Iterable[str]) -> Iterator[str]:
    """What `mailq -v` has of a control file: message id, sender, recipients that are to do."""
    yield f"\t  id\t{identity}"
    yield f"\t  from\t{sender}"
    for number, recipient in enumerate(recipients):
        yield f"\t{'' if number else '  to'}\t{recipient}"
