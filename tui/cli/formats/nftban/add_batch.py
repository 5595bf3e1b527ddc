"""`queue add --batch`: add a task for each line of a file or stdin, in group commits."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice

from engine import verbs
from engine.formats.base.format import Setup
from engine.formats.nftban.store import COMMIT_GROUP_SIZE, NftbanStore
from engine.formats.nftban.task_format import new_record
from engine.model import Task
from engine.store import Full, StoreError, Unavailable, Unsupported, enqueue_all
from engine.system.command_errors import EX_USAGE, print_error, print_result
from engine.system.files import Refused
from engine.text.safe import safe_line
from tui.text.task_row import added_line

FIELDS = ("kind", "description", "payload")
"""Keys of the JSON object of a line, in the order of the tab-separated form."""


def add_batch(setup: Setup, store: NftbanStore, path: str, *, strict: bool, as_json: bool) -> int:
    """Add the tasks and print their ids in order, each when it is on the disk.

    A line is a JSON object with kind, description and payload, or these three separated by tabs;
    the last two may be missing. Empty lines are skipped. A line that is refused is reported with
    its number, and the others are added; with --strict no line behind it is. A full queue or a disk
    error ends the batch.

    Raises:
        Full: the queue is full.
        Unavailable: a disk error.
        OSError: the file cannot be opened.
    """
    unreported: deque[tuple[int, object]] = deque()
    """Line numbers in order, each with the reason if the line is refused, None if it is a task."""
    refused = False
    ending: StoreError | None = None
    code = 0

    def report_refused() -> None:
        while unreported and unreported[0][1] is not None:
            number, why = unreported.popleft()
            print_error(f"line {number}: {why}")

    def read_tasks(lines: Iterable[str]) -> Iterator[Task]:
        nonlocal refused
        step = 0
        for number, line in enumerate(lines, 1):
            if ending is not None or (refused and strict):
                return
            if not line.strip():
                continue
            try:
                # Each line gets a later moment, and so a larger token: they run in their order.
                step = max(int(time.time() * verbs.TOKENS_PER_SECOND), step + 1)
                task = _parse_line(line, store, step / verbs.TOKENS_PER_SECOND)
                if strict:
                    new_record(task)  # else the store checks it when the next lines are read
            except (Unsupported, Refused) as error:
                refused = True
                unreported.append((number, error))
                continue
            unreported.append((number, None))
            yield task

    is_file = path != "-"
    with open(path, errors="replace") if is_file else nullcontext(sys.stdin) as lines:
        outcomes = enqueue_all(store, read_tasks(lines))
        while group := list(islice(outcomes, COMMIT_GROUP_SIZE)):
            added = []
            for (_, task, *_), _, error in group:
                report_refused()
                number, _ = unreported.popleft()
                if isinstance(error, Full | Unavailable):
                    ending = ending or error
                elif error is not None:
                    refused = True
                    print_error(f"line {number}: {error}")
                elif task is not None:
                    added.append(task)
            if added:
                added_lines = (added_line(task) if as_json else task.id for task in added)
                code = print_result("\n".join(added_lines)) or code
                setup.log_queued(*added)
    report_refused()
    if ending is not None:
        raise ending
    return EX_USAGE if refused else code


def _parse_line(line: str, store: NftbanStore, now: float) -> Task:
    """Return the task of one line, added at `now` (epoch seconds UTC).

    Raises:
        Unsupported: no task can be made of it; with the reason.
        Unavailable: its payload cannot be checked now.
    """
    if line.lstrip().startswith("{"):
        fields = _parse_object(line)
    else:
        fields = line.removesuffix("\n").split("\t")
        if len(fields) > len(FIELDS):
            raise Unsupported(f"{len(fields)} fields: expected TYPE, DESCRIPTION and PAYLOAD")
    kind, description, payload = (*fields, "", "")[:3]
    if not store.has_payload(payload):
        raise Unsupported(f"payload path {payload!r}: no such file")
    return verbs.enqueue(kind, now, verbs.token_at(now, os.urandom(2)), description, payload)


def _parse_object(line: str) -> list[str]:
    """The fields of a JSON object.

    Raises:
        Unsupported: it is not valid, or has another key or value.
    """
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise Unsupported(f"invalid JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise Unsupported("invalid JSON: nested too deeply") from error
    for key, value in values.items():
        if key not in FIELDS:
            expected = ", ".join(FIELDS)
            raise Unsupported(f"key {safe_line(key)!r}: expected one of {expected}")
        if not isinstance(value, str):
            raise Unsupported(f"{key}: expected a text")
    return [values.get(name, "") for name in FIELDS]
