"""Open a ZGB mail queue: its store, retries and folders."""

from __future__ import annotations

import os
import time

from engine.config.place_address import Address
from engine.config.queue_config import Queue
from engine.policy import RetryPolicy
from engine.store import Store
from engine.system import files
from tui.cli.setup.setup import Setup, folders_apart


def open_queue(setup: Setup) -> Store:
    """Open a store that logs its changes to the queue's log, like the ZGB worker.

    Raises:
        Unavailable: it cannot be reached.
    """
    from engine.formats.zgb.log import Log, find_log
    from engine.formats.zgb.store import ZgbStore

    path = setup.place
    where = find_log(setup.settings.log, path, os.environ, os.getcwd())
    # A line that cannot be written is in the journal too, and a screen has no room for it.
    log = Log(where.path, os.urandom(4).hex(), path, time.time, lambda text: None)
    return ZgbStore(setup.settings.place(path), write_event=log.write)


def retry_policy(setup: Setup) -> RetryPolicy:
    """The retries of its settings."""
    policy: RetryPolicy = setup.settings.place("").retry
    return policy


def arrange_folders(queue: Queue, at: Address, state_folder: str) -> Queue:
    """The folder of the database for all its mails, all our own files apart."""
    folder = os.path.dirname(files.real_path(at.text))
    root = os.path.dirname(at.text)
    apart = folders_apart(queue, at, state_folder)
    return apart._replace(root=root, pending=folder, work=folder, dlq=folder)


def state_folder(at: Address, queue: Queue) -> str:
    """One folder per database, found by each link to it: its workers share a lock there."""
    return f"{files.real_path(at.text)}.spooldeck.d"
