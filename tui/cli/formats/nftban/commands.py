"""`init`, `queue add` and `queue metrics`. With --batch, tasks are added in group commits: one for
each line of a file or stdin."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice

from engine import verbs
from engine.config.nftban_variables import RUN_DIR
from engine.formats.base.format import Setup
from engine.formats.nftban.detect import has_queue_folders
from engine.formats.nftban.queue_folders import (
    FORMAT,
    TITLE,
    folder_owner,
    make_queue,
    open_spool,
    spool_folders,
)
from engine.formats.nftban.staging import KeyWaits
from engine.formats.nftban.store import (
    COMMIT_GROUP_SIZE,
    DATA_NAME,
    NftbanStore,
    describe_bad_value,
    make_spool,
)
from engine.formats.nftban.task_format import (
    KEY_FIELD,
    mark_of_key,
    new_record,
    require_key,
    whole_seconds,
)
from engine.model import EMPTY, MAIL_SEND_KIND, State, Task
from engine.store import Full, Gone, StoreError, Unavailable, Unsupported, enqueue_all
from engine.system.command_errors import (
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    print_error,
    print_result,
)
from engine.system.files import Refused
from engine.text.durations import parse_duration
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.cli.setup.output import Answer

QUEUE_FULL, KEY_WAITS = 1, 2
"""Exit codes of `queue add`: the queue is full; a task with the key waits already."""


def init(setup: Setup, place: str, *, exclusive: bool) -> Answer:
    """Make the missing folders of an NFTBan queue and print the next steps."""
    if setup.format_name != FORMAT:
        title = setup.format.title
        fail(EX_UNAVAILABLE, f"{safe_line(setup.place)} is {title}: nothing was changed")
    queue = setup.queue
    if exclusive and queue.run_dir == RUN_DIR:
        text = f"{safe_line(queue.root)} is NFTBan's own data folder"
        fail(EX_USAGE, f"{text}: --exclusive is for a queue that no other program uses")
    try:
        owner = folder_owner(queue.root)
        made = make_spool(spool_folders(setup), exclusive=exclusive, owner=owner)
    except OSError as error:
        error.filename = queue.root  # the system names only the last folder of the path
        raise
    for path in (queue.run_dir, queue.log_dir, queue.counters, queue.mail_spool):
        if not os.path.isdir(path):
            setup.make_folder(path)
            made.append(path)
    none = f"{safe_line(queue.root)} is already a complete queue; nothing was changed"
    where = shlex.quote(place)
    return Answer(
        lambda: {"place": queue.root, "made": made},
        lambda: [
            *([f"made {safe_line(path)}" for path in made] or [none]),
            f"next: spooldeck --root {where} queue add TYPE   adds a task",
            f"      spooldeck --root {where} queue work       runs tasks until stopped",
            f"      spooldeck {where}                         opens the console",
        ],
    )


class NewTask(NamedTuple):
    """What the words of `queue add`, or a line of a batch, say."""

    kind: str
    description: str = ""
    payload: str = ""
    batch: str = ""
    data: Iterable[bytes] | None = None
    due: float = 0.0
    key: str = ""


def add(
    setup: Setup,
    place: str | None,
    *,
    root: str,
    kind: str,
    description: str,
    payload: str,
    data: str,
    delay: float | None,
    at: str,
    key: str,
    batch: str,
    strict: bool,
    json: bool,
) -> int:
    """Add a task, or with --batch those of standard input; print the id of each.

    Exit 0 means that they are on the disk (fsync).
    """
    new = NewTask(kind, description, payload, batch, key=key)
    if not place:
        setup, new = _find_place(setup, root, new)
    if bool(new.kind) is bool(new.batch) or strict > bool(new.batch):
        fail(EX_USAGE, "expected either TYPE, or --batch FILE with the tasks (-: stdin; --strict)")
    if new.batch and (data or delay is not None or at or key):
        words = "--data, --delay, --at and --key"
        fail(EX_USAGE, f"{words} are for one task: with --batch expected in the JSON of its line")
    if at and delay is not None:
        fail(EX_USAGE, "--delay and --at: expected one of them")
    setup.require_format(FORMAT, TITLE)
    setup.require_writable()
    make_queue(setup)
    store = open_spool(setup)
    refused = store.edges[None, State.PENDING].refusal
    if refused:
        fail(EX_NOPERM, refused)
    try:
        if new.batch:
            return add_batch(setup, store, new.batch, strict=strict, as_json=json)
        now = time.time()
        new = new._replace(due=_due(now, delay, at))
        with _opened_data(data) as chunks:
            task = _make_task(store, new._replace(data=chunks), now)
        try:
            store.swap(None, task)
        except BaseException as error:
            _drop_data(store, task, error)
            raise
    except (Unsupported, Refused) as error:
        fail(EX_USAGE, str(error))
    except KeyWaits as error:
        print_error(f"there already: {error}; nothing was added")
        return KEY_WAITS
    except Full:
        # The contract's text, which callers search for.
        print("ERROR: Queue full", file=sys.stderr)
        most = f"{setup.queue.max_pending} tasks"
        what = new.kind or "the rest of a batch"
        setup.log_if_allowed("ERROR", f"Queue at capacity ({most}). Rejecting task: {what}")
        return QUEUE_FULL
    finally:
        store.close()
    output = task.id
    if json:
        from tui.text.task_row import added_line

        output = added_line(task)
    code = print_result(output)
    setup.log_queued(task)
    return code


def _find_place(setup: Setup, root: str, new: NewTask) -> tuple[Setup, NewTask]:
    """The setup of the place, also if words before it are missing: it is never another queue; and
    the task without the place.

    Behind `--`, which scripts use, a description and a payload may be any text.
    """
    place = ""
    if new.batch and not new.description:
        if new.kind:  # the only word beside --batch
            place, new = new.kind, new._replace(kind="")
        elif os.path.isdir(new.batch):  # no FILE
            place, new = new.batch, new._replace(batch="-")
    elif "--" in setup.words:
        return setup, new
    elif has_queue_folders(new.payload):
        # The path of a payload is absolute, so `q` is a place.
        place, new = new.payload, new._replace(payload="")
    elif "/" in new.description and has_queue_folders(new.description) and not new.payload:
        kind, place = safe_line(new.kind), safe_line(new.description)
        fail(EX_USAGE, f"{place} is a queue, not a description: queue add {kind} '' {place}")
    if not place:
        return setup, new
    from tui.cli.plans.plan_command import setup_at  # not for each task that a script adds

    return setup_at(setup, root, [place]), new


@contextmanager
def _opened_data(path: str) -> Iterator[Iterable[bytes] | None]:
    """The data of a task, in chunks; None if there is none.

    Raises:
        CommandError: the file cannot be read.
    """
    if not path:
        yield None
        return
    try:
        with open(path if path != "-" else 0, "rb", closefd=path != "-") as file:
            file.peek(1)  # a folder is found before a task is made
            yield iter(partial(file.read, 1 << 20), b"")
    except OSError as error:
        fail(EX_USAGE, f"--data {safe_line(path)}: {error_text(error)}")


def _due(now: float, delay: float | None, at: str) -> float:
    """The time of `--delay` or `--at`, in whole seconds; 0.0 if it has passed.

    Raises:
        Unsupported: it is no time, or too late.
    """
    due = now + (delay or 0.0)
    if at:
        from engine.text.time_expressions import parse_future_time

        try:
            due = parse_future_time(at, now)
        except ValueError as error:
            raise Unsupported(f"at {at[:40]!r}: {error}") from None
    if why := describe_bad_value("due", due, now):
        raise Unsupported(why)
    return float(whole_seconds(due)) if due > now else 0.0


def _make_task(store: NftbanStore, new: NewTask, now: float) -> Task:
    """The new task, due and marked, with its data written.

    Raises:
        Unsupported, Refused: no task can be made of it; with the reason.
        Unavailable: its payload cannot be checked, or its data cannot be written now.
    """
    if new.key:
        require_key(new.key)
    mark = mark_of_key(new.key) if new.key else ""
    # The payload unchanged: a cleaned or absolute path could name another file.
    token = os.urandom(4).hex()
    task = verbs.enqueue(new.kind, now, token, new.description, new.payload, mark=mark)
    task = task._replace(due=new.due, extra={KEY_FIELD: new.key} if new.key else EMPTY)
    if new.data is not None:
        if new.payload:
            raise Unsupported("a payload and data: expected one of them")
        if new.kind == MAIL_SEND_KIND:
            raise Unsupported(f"{new.kind} takes a mail of the mail spool: use `mail send`")
        new_record(task)  # refuses it before the data is written
        return store.write_data(task, new.data)
    if not store.has_payload(task.payload):
        expected = "expected the absolute path of a file in the mail spool"
        raise Unsupported(f"payload path {task.payload!r}: no such file, {expected}")
    return task


def _drop_data(store: NftbanStore, task: Task | None, error: BaseException) -> None:
    """Remove the data of a task that was not added; after an error that leaves this open, only if
    no task names it, for which all are read."""
    if task is not None and task.payload.endswith(f"/{DATA_NAME}/{task.id}"):
        is_refused = isinstance(error, Full | Gone | Unsupported)
        (store.discard if is_refused else store.remove_unnamed)([task.payload])


def show_metrics(setup: Setup) -> Answer:
    """Print the current text of queue.prom, or its values by name."""
    from tui.cli.formats.nftban.worker_parts import render_metrics  # loads the parts of a worker

    store = open_spool(setup, "status --json")
    text = render_metrics(setup, store, time.time()).decode()
    store.close()

    def values() -> dict[str, object]:
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in ("#", ""))
        metrics = {name.partition("{")[0]: float(value) for name, value in rows}
        return {"place": setup.place, "metrics": metrics}

    return Answer(values, lambda: [text.removesuffix("\n")])


FIELDS = ("kind", "description", "payload")
"""Fields of a line, in the order of the tab-separated form."""

KEYS = (*FIELDS, "data", "delay", "at", "key")
"""Keys of the JSON object of a line."""


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
    from tui.text.task_row import added_line

    unreported: deque[tuple[int, object]] = deque()
    """Line numbers in order, each with the reason if the line is refused, None if it is a task."""
    refused = known = False
    ending: StoreError | None = None
    code = 0

    def report_refused() -> None:
        while unreported and unreported[0][1] is not None:
            number, why = unreported.popleft()
            print_error(f"line {number}: {why}")

    def read_tasks(lines: Iterable[str]) -> Iterator[Task]:
        nonlocal refused, ending
        step = 0
        for number, line in enumerate(lines, 1):
            if ending is not None or (refused and strict):
                return
            if not line.strip():
                continue
            try:
                # Each line gets a later moment, and so a later id: they run in their order.
                step = max(int(time.time() * verbs.MOMENTS_PER_SECOND), step + 1)
                task = _parse_line(line, store, step / verbs.MOMENTS_PER_SECOND)
                if strict:
                    new_record(task)  # else the store checks it when the next lines are read
            except (Unsupported, Refused) as error:
                refused = True
                unreported.append((number, error))
                continue
            except Unavailable as error:
                ending = error  # the lines before this one are added
                return
            unreported.append((number, None))
            yield task

    is_file = path != "-"
    with open(path, errors="surrogateescape") if is_file else nullcontext(sys.stdin) as lines:
        outcomes = enqueue_all(store, read_tasks(lines))
        while group := list(islice(outcomes, COMMIT_GROUP_SIZE)):
            added = []
            for (_, task, *_), _, error, _ in group:
                report_refused()
                number, _ = unreported.popleft()
                if error is not None:
                    _drop_data(store, task, error)
                if isinstance(error, Full | Unavailable):
                    ending = ending or error
                elif isinstance(error, KeyWaits):
                    known = True
                    print_error(f"line {number}: there already: {error}")
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
    return EX_USAGE if refused else code or (KEY_WAITS if known else 0)


def _parse_line(line: str, store: NftbanStore, now: float) -> Task:
    """Return the task of one line, added at `now` (epoch seconds UTC).

    Raises:
        Unsupported, Refused: no task can be made of it; with the reason.
        Unavailable: its payload cannot be checked, or its data cannot be written now.
    """
    if line.lstrip().startswith("{"):
        return _make_task(store, _parse_object(line, now), now)
    fields = line.removesuffix("\n").split("\t")
    if len(fields) > len(FIELDS):
        raise Unsupported(f"{len(fields)} fields: expected TYPE, DESCRIPTION and PAYLOAD")
    kind, description, payload = (*fields, "", "")[:3]
    return _make_task(store, NewTask(kind, description, payload), now)


def _parse_object(line: str, now: float) -> NewTask:
    """The task of a JSON object.

    Raises:
        Unsupported: it is not valid, or has another key or value.
    """
    import json  # not for each task that a script adds

    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise Unsupported(f"invalid JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise Unsupported("invalid JSON: nested too deeply") from error
    for key, value in values.items():
        if key not in KEYS:
            expected = ", ".join(KEYS)
            raise Unsupported(f"key {safe_line(key)!r}: expected one of {expected}")
        if not isinstance(value, str):
            raise Unsupported(f"{key}: expected a text")
    if "delay" in values and "at" in values:
        raise Unsupported("delay and at: expected one of them")
    try:
        delay = parse_duration(values["delay"]) if "delay" in values else None
    except ValueError as error:
        raise Unsupported(f"delay {values['delay'][:40]!r}: {error}") from None
    try:
        data = values["data"].encode() if "data" in values else None
    except UnicodeEncodeError:
        raise Unsupported("data: expected UTF-8; `--data FILE` takes any bytes") from None
    return NewTask(
        values.get("kind", ""),
        values.get("description", ""),
        values.get("payload", ""),
        data=None if data is None else [data],
        due=_due(now, delay, values.get("at", "")),
        key=values.get("key", ""),
    )
