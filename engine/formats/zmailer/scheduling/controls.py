"""What operators do to threads: try them now, give them the settings of a new configuration."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from engine.formats.zmailer.scheduling import retry
from engine.formats.zmailer.scheduling.jobs import ClauseSettings, ring_key, thread_key
from engine.formats.zmailer.scheduling.table import ThreadTable
from engine.formats.zmailer.scheduling.threads import Thread


def kick(table: ThreadTable, thread: Thread) -> bool:
    """Try all jobs of a thread now, also if it waits or is started only by ETRN. False if its other
    rules refuse that."""
    thread.wake = 0.0
    if not thread.agents:
        thread.unfed = None
    return thread.lane is not None or table.start(thread, is_etrn=True)


def etrn(table: ThreadTable, host: str) -> int:
    """Kick the threads of a host; return how many could start."""
    return sum(kick(table, one) for one in list(table.threads.values()) if one.key.host == host)


def reconfigure(
    table: ThreadTable, find: Callable[[str, str], ClauseSettings | None], now: float
) -> None:
    """Give all threads the settings of a new configuration; those without any keep theirs."""
    for thread in list(table.threads.values()):
        _, channel, host = thread.key
        settings = find(channel, host) or thread.settings
        if settings == thread.settings:
            continue
        was_ready = thread.lane is not None
        table.ready.drop(thread)
        del table.numbers[thread.key]
        thread.settings, thread.key = settings, thread_key(settings, channel, host)
        thread.ring = ring_key(settings, channel, host)
        table.numbers[thread.key] = thread.number
        for job in thread.jobs():
            job.expires = retry.expires_at(settings, job.message.modified)
        heapq.heapify(thread.heap)
        table.timers.set_expiry(thread, now)
        if was_ready or thread.pending:
            table.start(thread)
