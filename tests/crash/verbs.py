"""What is killed and refused: each command on a spool prepared for it, and what it may lead to.

A task's *stand* is where its file stands and how often it was tried. For each task of a scenario a
*fate* says where it stands before, which stands are right once the command has said a certain exit
code, and which after it was killed, in each case after the next worker's recovery.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.stores.nftban import NftbanStore, Spool, form, make_spool
from tests.crash.wrapper import CLOCK, MARK, fixed_random

CREATED = 1_700_000_000
"""When the tasks of the fixtures were made, epoch seconds: long ago for all who look."""

LATER = 100.0
"""Seconds after its spool was laid out at which a command runs: every file has been left alone for
longer than the 60 s for which it might be somebody's work."""

MUCH_LATER = 300.0
"""The same for the recovery; short of the 1200 s after which a lock is stuck."""

WAITS_LONG = 2_000_000_000

COUNTERS = ("processed_total", "failed_total", "retries_total", "dlq_total")
COUNTED = 9
"""What each counter stands at, so that one more is one digit more."""


class Stand(NamedTuple):
    """Where a task stands: the folder's word, and how many attempts have failed."""

    word: str
    attempts: int = 0


NOWHERE = Stand("nowhere")
"""It is not there: done, deleted, or never said to be there."""

Stands = frozenset[Stand]


class Fate(NamedTuple):
    """What may become of one task."""

    start: Stand
    may: Stands
    """Where it may stand when the command was killed or failed, and recovery is over."""
    said: Mapping[int, Stands] = {}
    """Where it may stand once the command has ended with this exit code."""
    end: Stand | None = None
    """Where it stands once its id was printed."""


class Scenario(NamedTuple):
    """One command on one spool."""

    name: str
    words: tuple[str, ...]
    """After `--root DIR`."""
    prepare: Callable[[Path], None]
    """Fills the data folder, in which a queue is made already."""
    fates: Mapping[str, Fate]
    code: int
    """What the command ends with when nothing goes wrong."""
    floor: int
    """Fewer points than this mean that something is not counted any more."""
    ran: int = 0
    """How often a handler is at work when nothing goes wrong."""
    counted: int = COUNTED
    """What its counters say before."""
    stuck: bool = False
    """Whether the lock is in the hand of a process that lives and gives no sign of life."""
    strange: bool = False
    """Whether something that is no task lies in pending/."""


def of(*stands: Stand) -> Stands:
    """A set of stands."""
    return frozenset(stands)


WAITING, FAILED_ONCE = Stand("pending"), Stand("pending", 1)
LAST_TRY, DEAD, DEAD_AT_ONCE = Stand("pending", 3), Stand("dlq", 3), Stand("dlq")
HELD, IN_HAND = Stand("held"), Stand("work")


def stays(stand: Stand) -> Fate:
    """A task that nobody has any business with."""
    return Fate(stand, of(stand), end=stand)


def attempt(start: Stand, code: int, outcome: Stand, crashed: Stand) -> Fate:
    """A task that a worker takes: its outcome with this exit code; `crashed` is where a rescue
    puts it. 3 may also mean that the outcome could not be stored, so that the rescue counted.
    """
    said = {0: of(), 1: of(start), 2: of(start), 3: of(crashed)}
    said[code] |= of(outcome)
    return Fate(start, of(start, outcome, crashed), said)


def moved(start: Stand, end: Stand) -> Fate:
    """A task that a command puts elsewhere; 0 says that it did."""
    return Fate(start, of(start, end), {0: of(end)}, end)


def rescued(start: Stand, end: Stand) -> Fate:
    """A task that was left half done: any recovery ends it in the same way."""
    return Fate(start, of(end), end=end)


# ---- files as commands and crashes leave them


def text_of(ident: str, stand: Stand, *, payload: str = "", due: int = 0) -> bytes:
    """A task file's text; the kind is the second part of the id."""
    dead_since = DIED[ident] if stand.word in ("dlq", "trash") else None
    return form.render(
        form.Record(
            ident,
            ident.split("-")[1],
            f"the work of {ident}",
            CREATED,
            stand.attempts,
            due,
            "it broke" if stand.attempts else "",
            payload,
            dead_since,
            "" if dead_since is None else form.DEAD_REASON,
        )
    )


def task(ident: str, stand: Stand, **more: str | int) -> Callable[[Path], None]:
    """Puts a task's file where it stands."""

    def put(root: Path) -> None:
        here = {k: str(root / str(v)) if k == "payload" else v for k, v in more.items()}
        place = root / "queue" / FOLDERS[stand.word]
        place.mkdir(exist_ok=True, mode=0o750)
        data = text_of(ident, stand, **here)  # type: ignore[arg-type]
        (place / f"{ident}.task").write_bytes(data)
        if "payload" in more:
            mail = root / str(more["payload"])
            mail.parent.mkdir(exist_ok=True, mode=0o750)
            mail.write_bytes(b"a mail\n")

    return put


FOLDERS = {
    **{word: word for word in ("pending", "work", "dlq")},
    **{word: f".spooldeck/{word}" for word in ("held", "trash")},
}


def left_on_desk(
    ident: str, was: Stand, then: Stand | None, *, committed: bool, due: int = 0
) -> Prepare:
    """A move in which a process died, before or after the rename that makes it count."""

    def put(root: Path) -> None:
        old = text_of(ident, was)
        new = b"" if then is None else text_of(ident, then, due=due)
        end = "gone" if then is None else then.word
        name = f"D.{ident}.{was.word}.{end}.{zlib.crc32(new):08x}.4-beef-1"
        (root / "queue/.spooldeck" / name).write_bytes(new if committed else old)
        if not committed and then is not None:
            (root / "queue/.spooldeck" / f"T.{ident}.4-beef-1").write_bytes(new)

    return put


def lock_of_the_dead(root: Path) -> None:
    """The lock of a process that is gone: no process ever has this number."""
    (root / "run/queue.lock").write_text(f"{2**22}\n{CREATED}\n")


def stranger(root: Path) -> None:
    """Something in pending/ that is no task."""
    (root / "queue/pending" / STRANGER).write_bytes(STRANGE)


STRANGER = "20231114T221300Z-report-00000000.task"
STRANGE = b'TASK_ID="20231114T221300Z-report-00000000"\nTASK_TYPE="$(id)"\n'


def aside_and_mended(root: Path) -> None:
    """A broken file was set aside, and an operator has put it right there."""
    queue, later = root / "queue", time.time() + 1000
    pending = queue / "pending" / f"{MENDED}.task"
    pending.write_bytes(b"not a task\n")
    spool = Spool(str(queue / "pending"), str(queue / "work"), str(queue / "dlq"))
    store = NftbanStore(spool, lambda: later)
    assert not list(store.take(later, "", 1)) and store.set_aside()
    (aside,) = store.corrupt()
    store.close()
    (queue / ".spooldeck/corrupt" / aside.name).write_bytes(text_of(MENDED, WAITING))


def impatient(root: Path) -> None:
    """A lock counts as stuck after a minute and a half, which is the least there is."""
    (root / "stuck.yaml").write_text("queue: {stuck_threshold: 90}\n")


def tokens(root: Path) -> None:
    """Five tokens for everybody, which is the most, and a rate at which none is added meanwhile."""
    (root / "slow.yaml").write_text("queue: {rate: {per_hour: 1, burst: 5}}\n")
    (root / "run/queue.buckets").write_text(f" {5 * 3600} {CREATED}\n")


def shared(root: Path) -> None:
    """Another program works here, too: nothing of ours may rely on modification times."""
    (root / "queue/.spooldeck/exclusive").unlink()


def bare(root: Path) -> None:
    """Nobody has worked here yet: what is not part of the queue itself is not there."""
    shared(root)
    for folder in ("queue/.spooldeck", "run", "log", "metrics/counters", "metrics"):
        path = root / folder
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


def another_s(root: Path) -> None:
    """Where we are root, the spool is not."""
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)


NOBODY = 65534

Prepare = Callable[[Path], None]


def prepared(*steps: Prepare) -> Prepare:
    """All of these, one after another."""

    def prepare(root: Path) -> None:
        for step in steps:
            step(root)

    return prepare


def make_place(root: Path) -> None:
    """A queue of ours with all that workers need, and counters that have counted already."""
    queue = root / "queue"
    make_spool(Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"), exclusive=True)
    for folder in ("run", "log", "metrics", "metrics/counters"):
        (root / folder).mkdir(mode=0o750)
    for name in COUNTERS:
        (root / "metrics/counters" / name).write_text(f"{COUNTED}\n")
        (root / "metrics/counters" / f"{name}.lock").touch()


def _id(kind: str, number: int = 1) -> str:
    return f"20231114T22130{number}Z-{kind}-0000000{number}"


DONE, FAILS, HOPELESS, UNKNOWN, PATIENT = (
    _id(kind) for kind in ("done", "fails", "hopeless", "unheard", "patient")
)
DEAD_1, DEAD_2, DEAD_3 = (_id("report", number) for number in (1, 2, 3))
PARKED, MENDED = _id("fails"), _id("mended")
ORPHAN, MOVED, TAKEN_BACK, HALF_DELETED, UNSAID = (
    _id(kind, 5) for kind in ("orphan", "moved", "back", "deleted", "unsaid")
)
_NOW = int(time.time())
DIED = {DEAD_3: _NOW, HALF_DELETED: _NOW} | dict.fromkeys(
    (DEAD_1, DEAD_2, PARKED), _NOW - 3 * 86400
)
"""When those died that are dead, epoch seconds: within the retention, which deletes the others."""


def added_at(now: float) -> str:
    """The id that `queue add report` gives at this time."""
    CLOCK.now = now
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    return f"{stamp}-report-{fixed_random(4).hex()}"


def name_of(ident: str) -> str:
    """What an id is called in a scenario's fates."""
    return NEW if f"-{MARK.hex()}" in ident else ident


NEW = "new"
"""Stands for the id that `queue add` gives."""

_added = Fate(NOWHERE, of(NOWHERE, WAITING), {0: of(WAITING), 1: of(NOWHERE)}, WAITING)
_waits = {PATIENT: stays(WAITING)}
_patient = task(PATIENT, WAITING, due=WAITS_LONG)
_next = ("queue", "process-next")
_dead = prepared(*(task(i, DEAD) for i in (DEAD_1, DEAD_2, DEAD_3)))

_leftovers = prepared(
    _patient,
    task(ORPHAN, IN_HAND),
    left_on_desk(MOVED, IN_HAND, FAILED_ONCE, committed=True, due=WAITS_LONG),
    left_on_desk(TAKEN_BACK, IN_HAND, FAILED_ONCE, committed=False),
    left_on_desk(HALF_DELETED, DEAD, None, committed=False),
)
_rescues = {
    **_waits,
    ORPHAN: rescued(IN_HAND, FAILED_ONCE),
    MOVED: rescued(NOWHERE, FAILED_ONCE),
    TAKEN_BACK: rescued(NOWHERE, FAILED_ONCE),
    HALF_DELETED: rescued(NOWHERE, DEAD),
}

_SUCCESS = {DONE: attempt(WAITING, 0, NOWHERE, FAILED_ONCE), **_waits}
_FAILURE = {FAILS: attempt(WAITING, 3, FAILED_ONCE, FAILED_ONCE), **_waits}


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "add-first",
            ("queue", "add", "report", "the work of new"),
            prepared(bare, another_s),
            {NEW: _added},
            code=0,
            floor=20,
            counted=0,
        ),
        Scenario(
            "add",
            ("queue", "add", "report", "the work of new"),
            _patient,
            {NEW: _added, **_waits},
            code=0,
            floor=12,
        ),
        Scenario(
            "next-first",
            _next,
            prepared(bare, task(DONE, WAITING), another_s),
            {DONE: attempt(WAITING, 0, NOWHERE, FAILED_ONCE)},
            code=0,
            floor=36,
            ran=1,
            counted=0,
        ),
        Scenario(
            "next-done",
            _next,
            prepared(_patient, task(DONE, WAITING, payload="mailspool/a-mail")),
            _SUCCESS,
            code=0,
            floor=26,
            ran=1,
        ),
        Scenario(
            "next-failed",
            _next,
            prepared(_patient, task(FAILS, WAITING)),
            _FAILURE,
            code=3,
            floor=41,
            ran=1,
        ),
        Scenario(
            "next-failed-shared",
            _next,
            prepared(shared, _patient, task(FAILS, WAITING)),
            _FAILURE,
            code=3,
            floor=40,
            ran=1,
        ),
        Scenario(
            "next-buried",
            _next,
            prepared(_patient, task(FAILS, LAST_TRY)),
            {FAILS: attempt(LAST_TRY, 3, DEAD, DEAD), **_waits},
            code=3,
            floor=40,
            ran=1,
        ),
        Scenario(
            "next-fatal",
            _next,
            prepared(_patient, task(HOPELESS, WAITING)),
            {HOPELESS: attempt(WAITING, 3, DEAD_AT_ONCE, FAILED_ONCE), **_waits},
            code=3,
            floor=40,
            ran=1,
        ),
        Scenario(
            "next-unknown",
            _next,
            prepared(_patient, task(UNKNOWN, WAITING)),
            {UNKNOWN: attempt(WAITING, 3, FAILED_ONCE, FAILED_ONCE), **_waits},
            code=3,
            floor=40,
        ),
        Scenario("next-nothing", _next, _patient, _waits, code=1, floor=18),
        Scenario(
            "next-limited",
            ("--config", "{root}/slow.yaml", *_next),
            prepared(_patient, tokens, task(DONE, WAITING)),
            _SUCCESS,
            code=0,
            floor=29,
            ran=1,
        ),
        Scenario(
            "next-broken",
            _next,
            prepared(_patient, stranger, task(DONE, WAITING)),
            _SUCCESS,
            code=0,
            floor=40,
            ran=1,
            strange=True,
        ),
        Scenario(
            "next-leftovers",
            _next,
            prepared(_leftovers, lock_of_the_dead, task(DONE, WAITING)),
            {DONE: attempt(WAITING, 0, NOWHERE, FAILED_ONCE), **_rescues},
            code=0,
            floor=66,
            ran=1,
        ),
        Scenario(
            "dlq-retry",
            ("queue", "dlq", "retry", DEAD_1),
            _dead,
            {DEAD_1: moved(DEAD, WAITING), DEAD_2: stays(DEAD), DEAD_3: stays(DEAD)},
            code=0,
            floor=15,
        ),
        Scenario(
            "dlq-retry-all",
            ("queue", "dlq", "retry-all"),
            _dead,
            dict.fromkeys((DEAD_1, DEAD_2, DEAD_3), moved(DEAD, WAITING)),
            code=0,
            floor=31,
        ),
        Scenario(
            "dlq-purge",
            ("queue", "dlq", "purge", "1"),
            _dead,
            {**dict.fromkeys((DEAD_1, DEAD_2), moved(DEAD, NOWHERE)), DEAD_3: stays(DEAD)},
            code=0,
            floor=11,
        ),
        Scenario(
            "hold",
            ("@hold", PARKED),
            task(PARKED, WAITING),
            {PARKED: moved(WAITING, HELD)},
            code=0,
            floor=11,
        ),
        Scenario(
            "release",
            ("@release", PARKED),
            task(PARKED, HELD),
            {PARKED: moved(HELD, WAITING)},
            code=0,
            floor=10,
        ),
        Scenario(
            "trash",
            ("@purge", PARKED),
            task(PARKED, DEAD),
            {PARKED: moved(DEAD, Stand("trash", 3))},
            code=0,
            floor=11,
        ),
        Scenario(
            "restore",
            ("@restore", PARKED),
            task(PARKED, Stand("trash", 3)),
            {PARKED: moved(Stand("trash", 3), Stand("pending", 3))},
            code=0,
            floor=11,
        ),
        Scenario(
            "promote",
            ("@promote", PATIENT),
            _patient,
            {PATIENT: moved(WAITING, WAITING)},
            code=0,
            floor=11,
        ),
        Scenario(
            "expunge",
            ("@expunge", PARKED),
            task(PARKED, DEAD),
            {PARKED: moved(DEAD, NOWHERE)},
            code=0,
            floor=7,
        ),
        Scenario(
            "next-worker",
            ("@recover",),
            prepared(_leftovers, lock_of_the_dead),
            _rescues,
            code=1,
            floor=58,
        ),
        Scenario("recover", ("queue", "recover", "--yes"), _leftovers, _rescues, code=0, floor=68),
        Scenario(
            "recover-stale",
            ("queue", "recover", "--yes"),
            prepared(_leftovers, lock_of_the_dead),
            _rescues,
            code=0,
            floor=75,
        ),
        Scenario(
            "recover-stuck",
            ("--config", "{root}/stuck.yaml", "queue", "recover", "--yes"),
            prepared(_leftovers, impatient),
            _rescues,
            code=0,
            floor=94,
            stuck=True,
        ),
        Scenario(
            "put-back",
            ("queue", "corrupt", "put-back", "{aside}"),
            aside_and_mended,
            {MENDED: moved(Stand("corrupt"), WAITING)},
            code=0,
            floor=13,
        ),
    )
}
"""By name."""
