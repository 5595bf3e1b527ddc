"""The real commands on a spool of our format: what each may lead to, and what is wrong otherwise.

A task's *place* is its folder and its number of failed attempts. For each task of a scenario, a
*fate* names where it is before, which places are right after a certain exit code, and which after a
kill; in each case after the next worker's recovery. All is read from disk by no part of a store."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine import verbs
from engine.formats.nftban import hint, task_format
from engine.formats.nftban.store import SpoolFolders, make_spool
from engine.locks import lock_file, queue_lock
from engine.system.files import Refused
from tests.crash import wrapper
from tests.crash.harness import Case, Ended

CREATED = 1_700_000_000
"""When the tasks were made, epoch seconds."""
WAITS_LONG = 2_000_000_000
COUNTERS = ("processed_total", "failed_total", "retries_total", "dlq_total")
COUNTED = 9
"""The value of each counter, so that one more is one digit more."""
METRICS = (
    "tasks_pending tasks_working tasks_dlq oldest_pending_age_seconds tasks_processed_total"
    " tasks_failed_total task_retries_total dlq_total last_run_timestamp"
)
CODES = {0, 1, 2, 3, 4, 64, 69, 71, 74, 75, 77, 78}
"""The contract's, 4 for an id that was not printed, and those of sysexits.h that are documented."""
STAGING = {".lock", "held", "trash", "twice", "corrupt", "exclusive", "next-due"}
STAGING |= {"journal", "swept", "swept-mail", "queued-mail", "run-times"}
"""What may be in `.spooldeck/` with nothing under way."""
RECOVERED = 1
"""Exit code of `@recover`: it found no token to go on with."""
OTHER_UID = 65534


class Place(NamedTuple):
    """Where a task is: the folder's word, and how many attempts have failed."""

    word: str
    attempts: int = 0


Places = frozenset[Place]
NOWHERE = Place("nowhere")
"""It does not exist: done, deleted, or never acknowledged."""


class TaskOutcome(NamedTuple):
    """What may become of one task."""

    start: Place
    may: Places
    """Where it may be when the command was killed or failed, and recovery has ended."""
    after: Mapping[int, Places] = {}
    """Where it may be once the command has ended with this exit code."""
    end: Place | None = None
    """Where it is once its id was printed."""


def _of(*places: Place) -> Places:
    return frozenset(places)


def _stays(place: Place) -> TaskOutcome:
    return TaskOutcome(place, _of(place), end=place)


def attempt(start: Place, code: int, outcome: Place, crashed: Place) -> TaskOutcome:
    """Return the fate of a task that a worker takes: its outcome with this exit code.

    `crashed` is where a rescue puts it. 3 may also mean that the outcome could not be stored, so
    that the rescue counted."""
    after = {0: _of(), 1: _of(start), 2: _of(start), 3: _of(crashed)}
    after[code] |= _of(outcome)
    return TaskOutcome(start, _of(start, outcome, crashed), after)


def _moved(start: Place, end: Place) -> TaskOutcome:
    return TaskOutcome(start, _of(start, end), {0: _of(end)}, end)


def _rescued(start: Place, end: Place) -> TaskOutcome:
    return TaskOutcome(start, _of(end), end=end)


# ---- files as commands and crashes leave them

Prepare = Callable[[Path], None]
FOLDERS = {
    **{word: word for word in ("pending", "work", "dlq")},
    **{word: f".spooldeck/{word}" for word in ("held", "trash")},
}


def _prepared(*steps: Prepare) -> Prepare:
    def prepare(root: Path) -> None:
        for step in steps:
            step(root)

    return prepare


def _make_place(root: Path) -> None:
    make_spool(spool_at(root), exclusive=True)
    for folder in ("run", "log", "metrics", "metrics/counters"):
        (root / folder).mkdir(mode=0o750)
    for name in COUNTERS:
        (root / "metrics/counters" / name).write_text(f"{COUNTED}\n")
        (root / "metrics/counters" / f"{name}.lock").touch()


def spool_at(root: Path) -> SpoolFolders:
    """Return the spool in a data folder."""
    return SpoolFolders(f"{root}/queue/pending", f"{root}/queue/work", f"{root}/queue/dlq")


def _text_of(ident: str, place: Place, *, payload: str = "", due: int = 0) -> bytes:
    died = DIED[ident] if place.word in ("dlq", "trash") else None
    return task_format.render_task(
        task_format.Record(
            ident,
            ident.split("-")[1],
            f"the work of {ident}",
            created=CREATED,
            retries=place.attempts,
            due=due,
            error="it broke" if place.attempts else "",
            payload=payload,
            dead_since=died,
            dead_reason="" if died is None else task_format.DEAD_REASON,
        )
    )


def _task(ident: str, place: Place, *, payload: str = "", due: int = 0) -> Prepare:
    def write(root: Path) -> None:
        path = str(root / payload) if payload else ""
        data = _text_of(ident, place, payload=path, due=due)
        (root / "queue" / FOLDERS[place.word] / f"{ident}.task").write_bytes(data)
        if payload:
            (root / payload).parent.mkdir(mode=0o750)
            (root / payload).write_bytes(b"a mail\n")

    return write


def interrupted(
    ident: str, was: Place, then: Place | None, *, committed: bool, due: int = 0
) -> Prepare:
    """Return a move in which a process died, before or after the rename that makes it count."""

    def write(root: Path) -> None:
        old = _text_of(ident, was)
        new = b"" if then is None else _text_of(ident, then, due=due)
        end = "gone" if then is None else then.word
        name = f"D.{ident}.{was.word}.{end}.{zlib.crc32(new):08x}.4-beef-1"
        (root / "queue/.spooldeck" / name).write_bytes(new if committed else old)
        if not committed and then is not None:
            (root / "queue/.spooldeck" / f"T.{ident}.4-beef-1").write_bytes(new)

    return write


def _lock_of_the_dead(root: Path) -> None:
    (root / "run/queue.lock").write_text(f"{2**22}\n{CREATED}\n")


def _impatient(root: Path) -> None:
    (root / "stuck.yaml").write_text("queue: {stuck_threshold: 90}\n")


def tokens(root: Path) -> None:
    """Add five tokens, which is the most, and a rate at which none is added meanwhile."""
    (root / "slow.yaml").write_text("queue: {rate: {per_hour: 1, burst: 5}}\n")
    (root / "run/queue.buckets").write_text(f" {5 * 3600} {CREATED}\n")


def _shared(root: Path) -> None:
    (root / "queue/.spooldeck/exclusive").unlink()


def bare(root: Path) -> None:
    """Leave only the folders of the queue itself, as before any of our commands ran."""
    _shared(root)
    for folder in ("queue/.spooldeck", "run", "log", "metrics/counters", "metrics"):
        for path in (root / folder).iterdir():
            path.rmdir() if path.is_dir() else path.unlink()
        (root / folder).rmdir()


def another_s(root: Path) -> None:
    """Give the spool to another user, where we are root."""
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID)


def hold_stuck_lock(path: str) -> int:
    """Return the PID of a process that takes a lock and sends no heartbeat: it is stuck later."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            queue_lock.acquire_lock(path, 1200, time.time, lock_file.boot_seconds)
            os.write(done, b"!")
            signal.pause()
        finally:
            os._exit(1)
    os.close(done)
    held = os.read(ready, 1)
    os.close(ready)
    assert held, "it could not take the lock"
    return child


# ---- a scenario and its check


class _Scenario(Case):
    """One command on one spool."""

    def __init__(
        self,
        words: str,
        prepare: Prepare,
        fates: Mapping[str, TaskOutcome],
        code: int,
        floor: int,
        *,
        ran: int = 0,
        counted: int = COUNTED,
        stuck: bool = False,
        lines: str = "",
    ) -> None:
        """Take a command and its exit code when nothing goes wrong.

        `ran`: how often a handler runs then; `counted`: the value of its counters before; `stuck`:
        a process that sends no heartbeat holds the lock; `lines`: its standard input."""
        self._words, self._prepare, self.fates = words.split(), prepare, fates
        self.code, self.floor, self._ran, self._counted = code, floor, ran, counted
        self._stuck = stuck
        self.lines = lines
        self._holder, self._now = 0, 0.0

    def words(self, root: Path) -> list[str]:
        """Return the command's words."""
        values = {"root": root, "description": f"the work of {NEW}"}
        return ["--root", str(root), *(word.format(**values) for word in self._words)]

    def lay_out(self, root: Path) -> None:
        _make_place(root)
        self._prepare(root)

    def restored(self, root: Path, now: float) -> None:
        self._now = now
        (root.parent / wrapper.RAN).unlink(missing_ok=True)
        if self._stuck:
            self._holder = hold_stuck_lock(f"{root}/run/queue.lock")

    def ended(self, root: Path) -> None:
        if self._holder:
            os.kill(self._holder, signal.SIGKILL)
            os.waitpid(self._holder, 0)
            self._holder = 0

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        wrapper.CLOCK.fixed = now
        sys.stdin = io.StringIO(self.lines)
        return partial(_exit_code, self.words(root))

    def left(self, root: Path, ended: Ended) -> Iterator[str]:
        """Report an exit code that is not documented, or not right."""
        if ended.done:
            if ended.answer not in CODES:
                yield f"exit code {ended.answer}, which no manual knows: {ended.err[-200:]!r}"
            if not ended.fault.step and ended.answer != self.code:
                yield f"exit code {ended.answer}, expected {self.code}: {ended.err!r}"

    def recover(self, root: Path, now: float) -> None:
        """Recover as the next worker does."""
        wrapper.CLOCK.fixed = now
        printed = io.StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(printed), _signals_kept():
                code = wrapper.run(["--root", str(root), "@recover"])
        finally:
            wrapper.CLOCK.fixed = None
        assert code == RECOVERED, f"recovery ended with {code}: {printed.getvalue()!r}"

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Compare where each task is with its fate."""
        there, ran = _tasks_in(root), _ran(root)
        code = ended.answer if ended.done else None
        fates = {_added_at(self._now, n): fate for n, fate in self.fates.items()}
        for ident, fate in fates.items():
            places = there.pop(ident, [])
            if len(places) > 1:
                yield f"{ident} is in {' and '.join(place.word for place in places)}"
            yield from (f"{ident} in {p.word} is not whole" for p in places if p.attempts < 0)
            place = places[0] if places else NOWHERE
            may = fate.may if code is None else fate.after.get(code, fate.may)
            if ident in ended.out and fate.end is not None:
                may = _of(fate.end)
            if place not in may:
                right = " or ".join(f"{each.word}/{each.attempts}" for each in sorted(may))
                after = "it was killed" if code is None else f"exit code {code}"
                yield f"{ident} is at {place.word}/{place.attempts} after {after}, not {right}"
            if ran[ident] > 1:
                yield f"{ident} ran {ran[ident]} times in one run"
            if ran[ident] and self._ran and place == fate.start:
                yield f"{ident} ran, and its attempt was not counted"
        yield from (f"{ident} is at {places}: unexpected" for ident, places in there.items())
        # A worker of many tasks goes on with the others when one cannot be claimed.
        is_exact = self._ran < 2 or not ended.fault.step
        if code == self.code and is_exact and ran.total() != self._ran:
            yield f"handlers ran {ran.total()} times before exit code {code}, not {self._ran}"
        yield from _of_staging(root)
        yield from _of_numbers(root, self._counted, max(1, self._ran))
        if ended.killed and (unlogged := ran.keys() - _logged(root)):
            yield f"ran, and the log does not show it: {unlogged}"
        if not ended.fault.step and (count := _counted_runs(root, self._counted)) < self._ran:
            yield f"{count} of {self._ran} runs are counted"
        yield from _of_tokens(root, ran.total())


def _exit_code(words: list[str]) -> int:
    try:
        code = wrapper.run(words)
    except BaseException:
        # As the interpreter does with what is not caught.
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # what the interpreter ends with then
    return code


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the signal handlers that a worker replaces until its process ends."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def _added_at(now: float, name: str) -> str:
    """Return the id of a new task by its kind and number, or of another one its name."""
    new, _, rest = name.partition(" ")
    if new != NEW:
        return name
    kind, nth = rest.split()
    at = int(now) + int(nth) / verbs.MOMENTS_PER_SECOND
    token = (wrapper.MARK + int(now).to_bytes(8)[-2:]).hex()
    return verbs.enqueue(kind, at, token).id


def _tasks_in(root: Path) -> dict[str, list[Place]]:
    places: dict[str, list[Place]] = {}
    for word, folder in FOLDERS.items():
        for path in sorted((root / "queue" / folder).glob("*")):
            ident = path.name.removesuffix(".task")
            places.setdefault(ident, []).append(_place(path, ident, word))
    return places


def _place(path: Path, ident: str, word: str) -> Place:
    try:
        record = task_format.parse_task(path.read_bytes(), ident)
    except Refused:
        return Place(word, -1)
    name = NEW if ident.rpartition("-")[2].startswith(wrapper.MARK.hex()) else ident
    whole = record.description == f"the work of {name}"
    payload = not record.payload or Path(record.payload).exists()
    return Place(word, record.retries if whole and payload else -1)


def _ran(root: Path) -> Counter[str]:
    path = root.parent / wrapper.RAN
    return Counter(path.read_text().split() if path.exists() else ())


def _of_staging(root: Path) -> Iterator[str]:
    staging = root / "queue/.spooldeck"
    # A draft of a hint: rewritten by the next who looks, believed by none under this name.
    drafts = ("next-due.", "run-times.")
    left = {p.name for p in staging.glob("*") if not p.name.startswith(drafts)} - STAGING
    left |= {f"twice/{path.name}" for path in (staging / "twice").glob("*")}
    left |= {f"corrupt/{path.name}" for path in (staging / "corrupt").glob("*")}
    if left:
        yield f"left in .spooldeck: {', '.join(sorted(left))}"
    if (root / "run/queue.lock").exists():
        yield "the lock was not released"


def _logged(root: Path) -> set[str]:
    """Return the ids of the tasks whose start is in the log."""
    path = root / "log/queue.log"
    text = path.read_text() if path.exists() else ""
    return set(re.findall(r"Processing task: (\S+) ", text))


def _counted_runs(root: Path, counted: int) -> int:
    paths = [root / "metrics/counters" / name for name in ("processed_total", "failed_total")]
    return sum(int(path.read_text()) - counted for path in paths if path.exists())


def _of_numbers(root: Path, counted: int, most: int) -> Iterator[str]:
    for name in COUNTERS:
        path = root / "metrics/counters" / name
        text = path.read_text() if path.exists() else "0"
        # Created and not yet written to, it counts as 0.
        if not (text or "0").strip().isdigit() or not 0 <= int(text or 0) - counted <= most:
            yield f"counter {name} is {text!r} and was {counted}"
    path = root / "metrics/queue.prom"
    if path.exists():
        lines = [x.split(" ") for x in path.read_text().split("\n") if x and x[0] != "#"]
        values = {line[0]: line[-1] for line in lines}
        metric_names = {f"nftban_queue_{name}" for name in METRICS.split()}
        if set(values) != metric_names or not all(value.isdigit() for value in values.values()):
            yield f"queue.prom is not whole: {path.read_text()!r}"


def _of_tokens(root: Path, ran: int) -> Iterator[str]:
    if (root / "slow.yaml").exists():
        text = (root / "run/queue.buckets").read_text()
        name, units, stamp = text.rstrip("\n").split(" ")
        left = int(units) // 3600
        if name or not stamp.isdigit() or left not in (4, 5) or (ran and left != 4):
            yield f"{left} tokens are left of 5 after {ran} runs: {text!r}"


# ---- the table


def _id(kind: str, number: int = 1) -> str:
    return f"20231114T22130{number}Z-{kind}-0000000{number}"


WAITING, FAILED_ONCE = Place("pending"), Place("pending", 1)
LAST_TRY, DEAD, DEAD_AT_ONCE = Place("pending", 3), Place("dlq", 3), Place("dlq")
ACTIVE = Place("work")

DONE, FAILS, HOPELESS, UNKNOWN, PATIENT = (
    _id(kind) for kind in ("done", "fails", "hopeless", "unheard", "patient")
)
DEAD_1, DEAD_2, DEAD_3 = (_id("report", number) for number in (1, 2, 3))
ORPHAN, MOVED = _id("orphan", 5), _id("moved", 5)
UNDONE, HALF_DELETED = _id("back", 5), _id("deleted", 5)
_now = int(time.time())
DIED = dict.fromkeys((DEAD_1, DEAD_2), _now - 3 * 86400)
DIED |= dict.fromkeys((DEAD_3, HALF_DELETED), _now)
"""When the dead tasks died, epoch seconds: within the retention, which deletes others."""
NEW = "new"
"""In fates, `new KIND` is the id of a new task of a kind; each command adds one of a kind."""
"""In fates, the id that `queue add` gives."""

_add, _next = "queue add report {description}", "queue process-next"
_batch = {f"{NEW} {kind} {n}": kind for n, kind in enumerate(("alpha", "beta", "gamma", "report"))}
"""So many that the folders are listed once for all of a group, by id the kind of each."""
_added = TaskOutcome(NOWHERE, _of(NOWHERE, WAITING), {0: _of(WAITING), 1: _of(NOWHERE)}, WAITING)
_added_of_many = _added._replace(after={0: _of(WAITING)})
_waits = {PATIENT: _stays(WAITING)}
_patient = _task(PATIENT, WAITING, due=WAITS_LONG)
_dead = _prepared(*(_task(ident, DEAD) for ident in (DEAD_1, DEAD_2, DEAD_3)))


def _given(root: Path) -> None:
    (root / "given").write_bytes(b"data of a task\n" * 9)


_leftovers = _prepared(
    _patient,
    _task(ORPHAN, ACTIVE),
    interrupted(MOVED, ACTIVE, FAILED_ONCE, committed=True, due=WAITS_LONG),
    interrupted(UNDONE, ACTIVE, FAILED_ONCE, committed=False),
    interrupted(HALF_DELETED, DEAD, None, committed=False),
)
_stale = _prepared(_leftovers, _lock_of_the_dead)
_rescues = {
    **_waits,
    **{i: _rescued(NOWHERE, FAILED_ONCE) for i in (MOVED, UNDONE)},
    ORPHAN: _rescued(ACTIVE, FAILED_ONCE),
    HALF_DELETED: _rescued(NOWHERE, DEAD),
}
_done = {DONE: attempt(WAITING, 0, NOWHERE, FAILED_ONCE)}
_success = {**_done, **_waits}
_failure = {FAILS: attempt(WAITING, 3, FAILED_ONCE, FAILED_ONCE), **_waits}
_buried = {FAILS: attempt(LAST_TRY, 3, DEAD, DEAD), **_waits}
_fatal = {HOPELESS: attempt(WAITING, 3, DEAD_AT_ONCE, FAILED_ONCE), **_waits}
_unknown = {UNKNOWN: attempt(WAITING, 3, FAILED_ONCE, FAILED_ONCE), **_waits}
_retry, _purge = _moved(DEAD, WAITING), _moved(DEAD, NOWHERE)
_rest = dict.fromkeys((DEAD_2, DEAD_3), _stays(DEAD))


def _with(*more: Prepare) -> Prepare:
    """Return a spool with a task that waits, and more."""
    return _prepared(_patient, *more)


_waiting = _task(DONE, WAITING)
_fails = _task(FAILS, WAITING)


def _stale_hint(root: Path) -> None:
    """Leave the hint of a timer run that found nothing due, in a folder that has changed since."""
    line = f"1 {CREATED + 999_999_999} {CREATED} 1 1 1 1 {PATIENT}.task"
    (root / "queue/.spooldeck/next-due").write_text(f"{hint.seal(line)}\n")


_ids = [_id("done", number) for number in range(3)]
_several = (*(_task(ident, WAITING) for ident in _ids), _fails)
_several_end = {
    **{ident: TaskOutcome(WAITING, _of(WAITING, NOWHERE, FAILED_ONCE)) for ident in _ids},
    FAILS: TaskOutcome(WAITING, _of(WAITING, FAILED_ONCE)),
}

CASES: Mapping[str, _Scenario] = {
    "add-first": _Scenario(
        _add, _prepared(bare, another_s), {f"{NEW} report 0": _added}, 0, 20, counted=0
    ),
    "add": _Scenario(_add, _patient, {f"{NEW} report 0": _added, **_waits}, 0, 11),
    "add-data": _Scenario(
        f"{_add} --data {{root}}/given", _given, {f"{NEW} report 0": _added_of_many}, 0, 18
    ),
    "add-batch": _Scenario(
        "queue add --batch",
        _with(_task(DEAD_1, DEAD)),
        {**dict.fromkeys(_batch, _added_of_many), **_waits, DEAD_1: _stays(DEAD)},
        code=0,
        floor=22,
        lines="".join(f"{kind}\tthe work of {NEW}\n" for kind in _batch.values()),
    ),
    "next-first": _Scenario(
        _next, _prepared(bare, _waiting, another_s), _done, 0, 38, ran=1, counted=0
    ),
    "next-done": _Scenario(
        _next, _with(_task(DONE, WAITING, payload="mailspool/a-mail")), _success, 0, 24, ran=1
    ),
    "next-failed": _Scenario(_next, _with(_fails), _failure, 3, 36, ran=1),
    "next-failed-shared": _Scenario(_next, _with(_shared, _fails), _failure, 3, 36, ran=1),
    "next-buried": _Scenario(_next, _with(_task(FAILS, LAST_TRY)), _buried, 3, 36, ran=1),
    "next-fatal": _Scenario(_next, _with(_task(HOPELESS, WAITING)), _fatal, 3, 36, ran=1),
    "next-unknown": _Scenario(_next, _with(_task(UNKNOWN, WAITING)), _unknown, 3, 36),
    "next-nothing": _Scenario(_next, _patient, _waits, 1, 16),
    "next-wrong-hint": _Scenario(_next, _with(_stale_hint, _waiting), _success, 0, 22, ran=1),
    "work": _Scenario(
        "queue work --until-idle", _with(*_several), {**_several_end, **_waits}, 0, 40, ran=4
    ),
    "next-limited": _Scenario(
        f"--config {{root}}/slow.yaml {_next}", _with(tokens, _waiting), _success, 0, 24, ran=1
    ),
    "next-leftovers": _Scenario(
        _next, _prepared(_stale, _waiting), {**_done, **_rescues}, 0, 62, ran=1
    ),
    "dlq-retry": _Scenario(f"queue dlq retry {DEAD_1}", _dead, {DEAD_1: _retry, **_rest}, 0, 30),
    "dlq-retry-all": _Scenario(
        "queue dlq retry-all", _dead, dict.fromkeys((DEAD_1, *_rest), _retry), 0, 50
    ),
    "dlq-purge": _Scenario(
        "queue dlq purge 1", _dead, {**_rest, **dict.fromkeys((DEAD_1, DEAD_2), _purge)}, 0, 22
    ),
    "next-worker": _Scenario("@recover", _stale, _rescues, 1, 55),
    "recover": _Scenario("queue recover --yes", _leftovers, _rescues, 0, 62),
    "recover-stale": _Scenario("queue recover --yes", _stale, _rescues, 0, 61),
    "recover-stuck": _Scenario(
        "--config {root}/stuck.yaml queue recover --yes",
        _prepared(_leftovers, _impatient),
        _rescues,
        code=0,
        floor=72,
        stuck=True,
    ),
}
