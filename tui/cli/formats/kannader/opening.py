"""Open a Kannader spool: its store, retries and folders."""

from __future__ import annotations

from engine.config.place_address import Address
from engine.config.queue_config import Queue
from engine.policy import RetryPolicy
from engine.store import Store
from tui.cli.setup.setup import Setup, folders_apart


def open_spool(setup: Setup) -> Store:
    """Open the store of a spool.

    Raises:
        Unavailable: it cannot be reached.
    """
    from engine.formats.kannader.store import KannaderStore

    return KannaderStore(setup.place, age=lambda moment, now: setup.run_clock().age(moment, now))


def retry_policy(setup: Setup) -> RetryPolicy:
    """The retries of its settings."""
    from engine.formats.kannader import settings

    return settings.retry_policy(setup.settings)


def arrange_folders(queue: Queue, at: Address, state_folder: str) -> Queue:
    """The folders of a spool with their mails, all our own files apart."""
    pending, work, dlq = (f"{at.text}/{name}" for name in ("queue", "inflight", "cleanup"))
    return folders_apart(queue, at, state_folder)._replace(pending=pending, work=work, dlq=dlq)
