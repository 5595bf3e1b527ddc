"""A spool at the limits of its format: broken files, long names, huge errors, one due second."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from engine.formats.nftban.task_format import new_record, render_task
from engine.model import State, Task

CREATED = 1_795_239_223
ERROR_BYTES = 60_000
"""Bytes of an error in a file that is only just read: the limit of a task file is 64 KiB."""


class OddTasks(NamedTuple):
    """What is in pending/."""

    tasks: int
    """Files that are tasks: each with its own host in its error, all due in the same second."""
    broken: int
    """Files that end in the middle: one of 100."""
    misnamed: int
    """Files with names of 255 bytes: one of 100."""


def ident_of(number: int) -> str:
    """An id of 160 characters, the longest there is."""
    return f"20261121T053343Z-report-{number:08x}-".ljust(160, "a")


def write_odd_tasks(pending: Path, count: int, huge: int) -> OddTasks:
    """Write `count` files, of which every so many-th (`huge`) has an error of `ERROR_BYTES`."""
    folder = os.open(pending, os.O_RDONLY)
    made = {"": 0, "broken": 0, "misnamed": 0}
    for number in range(count):
        kind = {0: "broken", 1: "misnamed"}.get(number % 100, "")
        made[kind] += 1
        task = Task(
            ident_of(number),
            "report",
            State.PENDING,
            float(CREATED),
            due=float(CREATED),
            attempts=1,
            description=f"report {number}",
            error="to replace",
        )
        error = f"421 mx{number}.example.net said no ".ljust(ERROR_BYTES * (not number % huge), "e")
        data = render_task(new_record(task)).replace(b"to replace", error.encode())
        name = f"{task.id}.task" if kind != "misnamed" else f"{number}.".ljust(250, "b") + ".task"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=folder)
        os.write(fd, data[: len(data) // 2] if kind == "broken" else data)
        os.close(fd)
    os.close(folder)
    return OddTasks(made[""], made["broken"], made["misnamed"])
