"""The rows of ZMailer spools: control files beside bare reads of the same files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from engine import verbs
from engine.formats.zmailer.spool.control_file import layout_of, parse_control_file, split_fields
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.model import Move, Task
from tests.bench.measure import (
    PREPARE_SECONDS,
    PYTHON,
    Bench,
    Figure,
    Figures,
    Ways,
    compare,
    cpu_seconds,
    interleave,
    measured,
    per_task,
    scratch,
)
from tests.zmailer_spool import Spool, recipient

FIRST_NUMBER = 3_200_000
"""The name of the first control file: an inode number."""
OF_A_MESSAGE = 10
"""Recipients of each message, except for a large one."""
BATCH = 100
"""Tasks that a plan verifies and changes at a time."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _recipients(number: int, count: int) -> Iterator[str]:
    """The lines of recipients as the router writes them, each with its N line."""
    for at in range(number * count, number * count + count):
        host = f"host{at % 200}.example.net"
        user = f"user{at % 5000}@{host}"
        yield recipient(host=host, user=user) + (
            f"N ORCPT=rfc822;{user} INRCPT=rfc822;{user} INFROM=rfc822;alice@local.test\n"
        )


@contextmanager
def _spool(bench: Bench, messages: int, recipients: int) -> Iterator[str]:
    """A spool hashed on one level, with so many messages of so many recipients each."""
    with scratch(2 * messages) as root:
        with bench.outside_budget(PREPARE_SECONDS):
            spool = Spool(Path(root)).make()
            for number in range(FIRST_NUMBER, FIRST_NUMBER + messages):
                lines = _recipients(number, recipients)
                spool.put(number, *lines, folder=_LETTERS[number % 26])
        yield root


def _paths(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(f"{root}/transport"):
        yield from (f"{folder}/{name}" for name in names)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    data = os.read(fd, os.fstat(fd).st_size)
    os.close(fd)
    return data


def _read_all(root: str) -> None:
    for path in _paths(root):
        _read(path)


def _make_tuples(root: str) -> None:
    """Make a tuple of 22 values for each recipient: the least that any scan in Python does."""
    for path in _paths(root):
        name, values, at = os.path.basename(path), (None,) * 16, 0
        for line in _read(path).split(b"\n"):
            if line[:1] == b"r":
                words = line[12:].decode().split(" ")
                tuple.__new__(Task, (f"{name}/{at}", *words, line[1:12].hex(), *values))
            at += len(line) + 1


def _scan(root: str) -> None:
    with closing(ZmailerStore(root)) as store:
        for _ in store.scan():
            pass


def codec(bench: Bench) -> Figures:
    """CPU to find the fields of a control file and write it again, a recipient."""
    number = 10_000 if bench.quick else 100_000
    with _spool(bench, 1, number) as root:
        (path,) = _paths(root)

        def emit() -> None:
            runs = list(split_fields(_read(path)))
            layout_of(runs)
            b"".join(b"".join(fields) for _, fields in runs)

        variants: Ways = {
            "bare": partial(cpu_seconds, lambda: _read(path).split(b"\n")),
            "fields": partial(cpu_seconds, emit),
            "all": partial(cpu_seconds, lambda: parse_control_file(_read(path))),
        }
        costs = interleave(variants, bench.rounds)
    a_line = per_task(costs, number)
    baseline, what = "read and split", "split, layout and re-emit, a recipient"
    yield compare(what, "us CPU", (a_line["fields"], a_line["bare"]), baseline, 3.0)
    both = a_line["all"], a_line["bare"]
    yield compare("all recipients as values", "us CPU", both, baseline, None)


def recipients(bench: Bench) -> Figures:
    """CPU of a full scan, a recipient: many messages, and one with all recipients."""
    number = 10_000 if bench.quick else 100_000
    for messages in (number // OF_A_MESSAGE, 1):
        with _spool(bench, messages, number // messages) as root:
            variants: Ways = {
                "read": partial(cpu_seconds, partial(_read_all, root)),
                "tuples": partial(cpu_seconds, partial(_make_tuples, root)),
                "ours": partial(cpu_seconds, partial(_scan, root)),
            }
            costs = interleave(variants, bench.rounds)
        a_task = per_task(costs, number)
        what = f"{number:,} recipients in {messages:,} file{'s' * (messages > 1)}"
        baseline = f"tuples by {PYTHON}"
        yield compare(what, "us CPU", (a_task["ours"], a_task["tuples"]), baseline, 5.0)
        yield compare("the same", "us CPU", (a_task["ours"], a_task["read"]), "reading", None)


def tag_change(bench: Bench) -> Figures:
    """Time by the clock until a changed tag in a large file is looked up, and of a plan's batch."""
    sizes = ((10_000, 30.0),) if bench.quick else ((100_000, 30.0), (1_000_000, None))
    for number, limit in sizes:
        with _spool(bench, 1, number) as root, closing(ZmailerStore(root)) as store:
            (path,) = _paths(root)
            scanned = (item for item in store.scan() if isinstance(item, Task))
            tasks = list(islice(scanned, 30 * BATCH))
            tags = [measured(partial(_change_tag, store, path, tasks[at])).wall for at in range(9)]
            yield Figure(f"{number:,} recipients in a file: a tag", median(tags), "ms", limit)
            yield Figure("the same: a batch of a plan", _batch(store, tasks), "ms")


def _change_tag(store: ZmailerStore, path: str, task: Task) -> None:
    with open(path, "r+b") as file:
        file.seek(int(task.id.rpartition("/")[2]) + 1)
        file.write(b"+")
    ids = [item.id for item in store.scan({os.path.basename(path)}) if isinstance(item, Task)]
    assert task.id in ids


def _batch(store: ZmailerStore, tasks: list[Task]) -> float:
    """Milliseconds to verify and hold tasks, a batch."""
    some = tasks[-20 * BATCH :]

    def change() -> None:
        for at in range(0, len(some), BATCH):
            revisions = [(task.id, task.state, task.rev) for task in some[at : at + BATCH]]
            tasks = [item for item in store.verify(revisions) if isinstance(item, Task)]
            moves = [Move(task, verbs.hold(task, time.time())) for task in tasks]
            assert sum(one.error is None for one in store.swap_all(moves)) == len(revisions)

    return measured(change).wall * BATCH / len(some)
