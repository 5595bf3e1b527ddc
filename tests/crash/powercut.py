"""Cuts the power after every step of a verb, and looks what a spool is then: python powercut.py.

Each verb is carried out once on a real spool and recorded; every disk that a cut after any of its
steps may leave (disk.py says which) is written out, opened by the real store, recovered and rescued
as a worker does, and held to what had been answered before the cut. Prints how many there were.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from engine import policy, rescuer, verbs
from engine.files import Refused
from engine.model import Move, Outcome, State, Task
from engine.stores.nftban import NftbanStore, Spool, form
from tests.crash.disk import Disk, Recording, Said, read_in, recorded, remains, write_out

NOW = time.time()
"""Files have real times, so the clock of the stores agrees with them; it stands still."""
LATER = NOW + 3600
"""By then whatever waits to be tidied up or tried again has waited long enough."""
SHM = Path("/dev/shm")
PLACE = str(SHM) if SHM.is_dir() and os.access(SHM, os.W_OK) else None
"""Where the disks are written out: in memory, where there is such a place."""

WORDS = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"} | {
    State.HELD: ".spooldeck/held",
    State.TRASH: ".spooldeck/trash",
}
"""Where the tasks of a state stand in a spool."""
CORRUPT = ".spooldeck/corrupt"
"""Where files stand that are none."""

Stands: TypeAlias = Mapping[str, tuple[str, bytes]]
"""Tasks by id: in which folder each stands, and what its file holds."""


class Step(NamedTuple):
    """One call of a verb, on the tasks as they are seen just before."""

    act: Callable[[NftbanStore, list[Task]], Iterator[object]]
    """Carried out as it is iterated; the step counts as answered from the first item on."""
    promised: bool = True
    """Whether its answer says that it holds through a power cut."""


class Verb(NamedTuple):
    """What is cut: how the tasks stand before, and what is done to them."""

    start: State | None
    """None: there are none yet."""
    steps: tuple[Step, ...]
    tasks: int = 1
    foreign: bool = False
    """Whether another program put the tasks there, so that there is no desk yet."""
    prepare: Callable[[Spool], None] = lambda spool: None
    now: float = NOW
    """What the store's clock says."""


def a_task(number: int) -> Task:
    """One of several tasks that nobody has seen yet."""
    ident = f"20261120T094115Z-job-{number:08x}"
    return Task(ident, "job", State.PENDING, float(int(NOW)), attempts=1, description="before")


def _each(change: Callable[[Task], Task | None]) -> Step:
    return Step(lambda store, tasks: (store.swap(task, change(task)) for task in tasks))


def _together(change: Callable[[Task], Task | None]) -> Step:
    return Step(lambda store, tasks: store.swap_all([Move(task, change(task)) for task in tasks]))


def _enqueue(*numbers: int) -> Step:
    moves = [Move(None, a_task(number)) for number in numbers]
    return Step(lambda store, tasks: store.swap_all(moves))


def _nack(task: Task) -> Task:
    return verbs.nack(task, int(NOW) + 60, "failed")


# Losing a claim or a completion costs a repeat, and no fsync is spent on either.
_TAKE = Step(lambda store, tasks: store.take(NOW, "me", len(tasks)), promised=False)
_ACK = _each(lambda task: None)._replace(promised=False)
_ENQUEUE = Step(lambda store, tasks: (store.swap(None, a_task(1)) for _ in range(1)))
_RECOVER = Step(lambda store, tasks: iter(store.recover()))


def _leave(end: State, *, fits: bool) -> Callable[[Spool], None]:
    """Withdraw the pending task as a process does that dies while it moves it."""

    def prepare(spool: Spool) -> None:
        (path,) = Path(spool.pending).iterdir()
        crc = zlib.crc32(path.read_bytes()) ^ (not fits)
        word = Path(WORDS[end]).name
        path.rename(Path(spool.desk, f"D.{path.stem}.pending.{word}.{crc:08x}.1-0-1"))
        Path(spool.desk, f"T.{path.stem}.1-0-2").write_bytes(b"half a dr")

    return prepare


_LOOK = Step(lambda store, tasks: store.take(NOW, "me", 1), promised=False)
_SET_ASIDE = Step(lambda store, tasks: iter(store.set_aside()))
_PUT_BACK = Step(lambda store, tasks: (store.put_back(aside.name) for aside in store.corrupt()))


def _break(spool: Spool) -> None:
    """Put a file there that is no task."""
    Path(spool.pending, f"{a_task(1).id}.task").write_bytes(b'TASK_ID="half a')


def _mend(spool: Spool) -> None:
    """Have a file that is no task set aside, and make one of it there, as an operator does."""
    _break(spool)
    store = NftbanStore(spool._replace(durable=False), lambda: LATER)
    list(store.take(NOW, "me", 1))
    store.set_aside()
    (aside,) = store.corrupt()
    store.close()
    good = form.render(form.new_record(a_task(1)))
    Path(spool.desk, "corrupt", aside.name).write_bytes(good)


P, A, H, D, T = State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH
VERBS: Mapping[str, Verb] = {
    "enqueue": Verb(None, (_ENQUEUE,)),
    "enqueue, 3 together": Verb(None, (_enqueue(1, 2, 3),)),
    "take, ack": Verb(P, (_TAKE, _ACK)),
    "take, nack": Verb(P, (_TAKE, _each(_nack))),
    "take, nack, 2 together": Verb(P, (_TAKE, _together(_nack)), 2),
    "take, unclaim": Verb(P, (_TAKE, _each(verbs.unclaim))),
    "bury": Verb(A, (_each(lambda task: verbs.bury(task, "failed", 1)),)),
    "retry": Verb(D, (_each(lambda task: verbs.retry(task, NOW)),)),
    "retry, 3 together": Verb(D, (_together(lambda task: verbs.retry(task, NOW)),), 3),
    "edit": Verb(P, (_each(lambda task: replace(task, description="after")),)),
    "hold": Verb(P, (_each(lambda task: verbs.hold(task, NOW)),)),
    "hold, no desk yet": Verb(P, (_each(lambda task: verbs.hold(task, NOW)),), foreign=True),
    "release": Verb(H, (_each(lambda task: verbs.release(task, NOW)),)),
    "purge": Verb(D, (_each(lambda task: verbs.purge(task, NOW)),)),
    "restore": Verb(T, (_each(lambda task: replace(task, state=State.DEAD)),)),
    "expunge": Verb(D, (_each(lambda task: None),)),
    "recover, forward": Verb(P, (_RECOVER,), prepare=_leave(H, fits=True)),
    "recover, back": Verb(P, (_RECOVER,), prepare=_leave(H, fits=False)),
    "set aside": Verb(None, (_LOOK, _SET_ASIDE), prepare=_break, now=LATER),
    "put back": Verb(None, (_PUT_BACK,), prepare=_mend),
}


# ---- a verb, recorded


class Cuts(NamedTuple):
    """A verb, as it was recorded."""

    recording: Recording
    promised: tuple[bool, ...]
    """For each step, whether its answer holds through a cut."""
    stood: list[Stands]
    """The tasks before the first step and after each."""


def record(verb: Verb, root: str, lies: Callable[[str], bool] = lambda path: False) -> Cuts:
    """Carry a verb out in a folder that is made, and see everything that is done to files."""
    spool = _new_spool(root, verb)
    verb.prepare(spool)
    store = NftbanStore(spool, lambda: verb.now)
    with recorded(Recording(root, lies)) as recording:
        stood = [stands(read_in(root))]
        for at, step in enumerate(verb.steps, 1):
            # A whole look shows each task twice: once in its peek, once in its place.
            seen = {item.id: item for item in store.look() if isinstance(item, Task)}
            for answer in step.act(store, list(seen.values())):
                assert not isinstance(answer, Outcome) or answer.error is None, answer
                recording.said(at)
            recording.said(at)  # that nothing was to be done is an answer, too
            stood.append(stands(read_in(root)))
    store.close()
    # Otherwise something changes files past the names that the recording sees.
    assert recording.after().contents() == read_in(root).contents()
    return Cuts(recording, tuple(step.promised for step in verb.steps), stood)


def spool_at(root: str, *, durable: bool = True) -> Spool:
    """The spool in a folder."""
    return Spool(f"{root}/pending", f"{root}/work", f"{root}/dlq", durable=durable)


def _new_spool(root: str, verb: Verb) -> Spool:
    for word in ("pending", "work", "dlq"):
        Path(root, word).mkdir(parents=True)
    tasks = [a_task(number) for number in range(1, verb.tasks + 1)] if verb.start else []
    if verb.foreign:
        for task in tasks:
            path = Path(root, "pending", f"{task.id}.task")
            path.write_bytes(form.render(form.new_record(task)))
        return spool_at(root)
    store = NftbanStore(spool_at(root, durable=False), lambda: NOW)
    for task in tasks:
        store.swap(None, task)
        _lead(store, task.id, verb.start)
    store.close()
    return spool_at(root)


_WAY = {A: (A,), D: (A, D), T: (A, D, T), H: (H,), P: ()}


def _lead(store: NftbanStore, ident: str, end: State | None) -> None:
    for state in _WAY[end or P]:
        if state is State.ACTIVE:
            list(store.take(NOW, "me", 1))
            continue
        (seen,) = (item for item in store.look({ident}) if isinstance(item, Task))
        new = verbs.bury(seen, "it broke") if state is State.DEAD else replace(seen, state=state)
        store.swap(seen, new)


def stands(disk: Disk) -> Stands:
    """Every task file in a place for tasks, or set aside; each must have one place only."""
    found: dict[str, tuple[str, bytes]] = {}
    contents = disk.contents()
    for path, what in contents.items():
        folder, _, name = path.rpartition("/")
        ident, _, rest = name.partition(".")
        if (
            rest == "task"
            if folder in WORDS.values()
            else folder == CORRUPT and rest[-4:] != ".why"
        ):
            if isinstance(what, Path):
                what = contents[str(what)]
            assert isinstance(what, bytes), f"{path} is no file"
            assert ident not in found, f"{ident} stands in {folder} and in {found[ident][0]}"
            found[ident] = folder, what
    return found


# ---- the power cut


def disks(recording: Recording) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Every distinct disk that a cut may leave, with the number of steps answered before it."""
    events, folders = recording.events, recording.after().folders
    seen = set()
    for end in range(len(events) + 1):
        answered = max((e.step for e in events[:end] if isinstance(e, Said)), default=0)
        for disk in remains(recording.before, events[:end], folders):
            contents = disk.contents()
            key = answered, tuple(contents.items())
            if key not in seen:
                seen.add(key)
                yield answered, contents


def allowed(cuts: Cuts, answered: int, ident: str) -> list[tuple[str, bytes] | None]:
    """How a task may stand after a cut: as the last promise has it, or anything begun since."""
    kept = max((at for at in range(1, answered + 1) if cuts.promised[at - 1]), default=0)
    return [cuts.stood[at].get(ident) for at in range(kept, min(answered + 2, len(cuts.stood)))]


def harm(cuts: Cuts, answered: int, root: str) -> str:
    """What is wrong with a spool after a cut, once it was recovered; "" when nothing is."""
    try:
        _judge(cuts, answered, root)
    except AssertionError as error:
        return str(error).split("\n", 1)[0]
    return ""


def _judge(cuts: Cuts, answered: int, root: str) -> None:
    may_stand = {
        ident: allowed(cuts, answered, ident) for ident in {i for at in cuts.stood for i in at}
    }
    _recover(root, NOW)
    _recover(root, LATER)
    assert not _recover(root, LATER), "there is still something to recover"
    there = stands(read_in(root))
    assert there.keys() <= may_stand.keys(), "a task that nobody made"
    for ident, may in may_stand.items():
        assert there.get(ident) in may, f"{ident} is {there.get(ident)}, not one of {may}"
    left = [path.name for path in Path(root).glob(".spooldeck/[DT].*")]
    assert not left, f"left on the desk: {left}"

    store = NftbanStore(spool_at(root, durable=False), lambda: LATER)
    try:
        _rescue_and_take(store, there)
    finally:
        store.close()


def _recover(root: str, now: float) -> list[str]:
    store = NftbanStore(spool_at(root, durable=False), lambda: now)
    try:
        eligible = [item for item in store.look({"pending"}) if isinstance(item, Task)]
        for task in eligible:
            assert form.parse(store.read(task), task.id).description, f"{task.id} is not whole"
        return store.recover()
    finally:
        store.close()


def _rescue_and_take(store: NftbanStore, there: Stands) -> None:
    """Orphans are failed once; then everything pending can be taken, whole, and nothing else."""
    assert all(aside.was for aside in store.corrupt()), "set aside without its reason"
    due = {}
    for ident, (folder, data) in there.items():
        with suppress(Refused):
            if folder in (WORDS[P], WORDS[A]):
                due[ident] = form.parse(data, ident).retries + (folder == WORDS[A])
    for outcome in rescuer.rescue(store, policy.contract(), LATER, "power cut"):
        assert outcome.error is None, outcome.error
    taken = {task.id: task.attempts for task in store.take(LATER + 3600, "me", 99)}
    assert taken == due, f"taken with attempts {taken}, expected {due}"


class Result(NamedTuple):
    """What became of one verb."""

    steps: int
    disks: int
    harms: list[str]


def cut(verb: Verb, root: str, lies: Callable[[str], bool] = lambda path: False) -> Result:
    """Cut the power after every step of a verb; everything below `root`, which is empty."""
    cuts = record(verb, f"{root}/spool", lies)
    left = list(disks(cuts.recording))
    return Result(len(cuts.recording.events), len(left), list(_harms(left, cuts, f"{root}/cut")))


def cut_again(verb: Verb, root: str) -> Result:
    """Cut the power after every step of a verb, and then after every step of each recovery."""
    cuts = record(verb, f"{root}/spool")
    steps, left = 0, {}
    for answered, first in disks(cuts.recording):
        write_out(first, f"{root}/first")
        with recorded(Recording(f"{root}/first")) as recovery:
            _recover(f"{root}/first", LATER)
        shutil.rmtree(f"{root}/first")
        steps += len(recovery.events)
        for _, contents in disks(recovery):
            left[answered, tuple(contents.items())] = answered, contents
    return Result(steps, len(left), list(_harms(left.values(), cuts, f"{root}/cut")))


def _harms(
    left: Iterable[tuple[int, Mapping[str, object]]], cuts: Cuts, place: str
) -> Iterator[str]:
    for answered, contents in left:
        write_out(contents, place)
        wrong = harm(cuts, answered, place)
        shutil.rmtree(place)
        if wrong:
            yield f"{wrong}; answered {answered}; left {sorted(contents)}"


def main(names: Iterable[str]) -> int:
    """Cut all verbs, or those named; a line for each."""
    worst = 0
    for name in names or VERBS:
        with tempfile.TemporaryDirectory(prefix="powercut-", dir=PLACE) as root:
            start = time.process_time()
            result = cut(VERBS[name], root)
        spent = time.process_time() - start
        sys.stdout.write(
            f"{name:24} {result.steps:3} steps {result.disks:5} disks "
            f"{len(result.harms):4} harmed {spent:5.2f} s\n"
        )
        sys.stdout.writelines(f"    {wrong}\n" for wrong in result.harms[:3])
        worst |= bool(result.harms)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
