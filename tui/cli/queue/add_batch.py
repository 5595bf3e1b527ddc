"""`queue add --batch`: add a task for each line of standard input, in group commits."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

from engine import verbs
from engine.model import Task
from engine.store import Full, StoreError, Unavailable, Unsupported, enqueue_all
from engine.stores.nftban import COMMIT_GROUP_SIZE, NftbanStore
from tui.cli.setup.errors import EX_USAGE, print_error, print_result
from tui.cli.setup.setup import Setup


def add_batch(setup: Setup, store: NftbanStore) -> int:
    """Add the tasks and print their ids in order, each when it is on the disk.

    A line is TYPE, DESCRIPTION and PAYLOAD, separated by tabs; the last two may be missing. A line
    that is refused is reported with its number, and the others are added. A full queue or a disk
    error ends the batch.

    Raises:
        Full: the queue is full.
        Unavailable: a disk error.
    """
    numbers: deque[int] = deque()
    """Line numbers of the tasks whose outcome is not known yet."""
    refused = False
    ending: StoreError | None = None

    def refuse(number: int, why: object) -> None:
        nonlocal refused
        refused = True
        print_error(f"line {number}: {why}")

    def read_tasks() -> Iterator[Task]:
        for number, line in enumerate(sys.stdin, 1):
            if ending is not None:
                return
            try:
                task = _parse_line(line, store)
            except Unsupported as error:
                refuse(number, error)
                continue
            numbers.append(number)
            yield task

    outcomes = enqueue_all(store, read_tasks())
    while group := list(islice(outcomes, COMMIT_GROUP_SIZE)):
        added = []
        for (_, task, *_), _, error in group:
            number = numbers.popleft()
            if isinstance(error, Full | Unavailable):
                ending = ending or error
            elif error is not None:
                refuse(number, error)
            elif task is not None:
                added.append(task)
        if added:
            print_result("\n".join(task.id for task in added))
            setup.log_queued(*added)
    if ending is not None:
        raise ending
    return EX_USAGE if refused else 0


def _parse_line(line: str, store: NftbanStore) -> Task:
    """Return the task of one line.

    Raises:
        Unsupported: no task can be made of it; with the reason.
        Unavailable: its payload cannot be checked now.
    """
    kind, *rest = line.removesuffix("\n").split("\t")
    if len(rest) > 2:
        raise Unsupported(f"{len(rest) + 1} fields: expected TYPE, DESCRIPTION and PAYLOAD")
    description, payload = (*rest, "", "")[:2]
    if not store.has_payload(payload):
        raise Unsupported(f"payload path {payload!r}: no such file")
    return verbs.enqueue(kind, time.time(), os.urandom(4).hex(), description, payload)
