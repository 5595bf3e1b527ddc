"""Every verb of our own format's store: killed or refused anywhere, and cut off by a power failure.

A `Verb` is a case of the harness. A `PowerCut` records it once on a real spool, writes out each
disk that a cut after any step may leave (`disk.py` has the model), and makes the same checks there.
"""

from __future__ import annotations

import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from engine import policy, verbs
from engine.formats.nftban import task_format
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Move, Outcome, State, Task
from engine.store import StoreError
from engine.system.files import Refused
from engine.work import outcomes
from tests.crash.disk import Answered, Disk, Recording, read_in, recorded, remains, write_out
from tests.crash.harness import Case, Ended, Result, tasks_in

NOW = time.time()
"""Files have real times, so the fixed clock of the stores agrees with them."""
LATER = NOW + 6 * 3600
"""By then all that waits to be cleaned up or tried again has waited long enough."""
P, A, H, D, T = State.PENDING, State.ACTIVE, State.HELD, State.DEAD, State.TRASH
FOLDERS = {P: "pending", A: "work", D: "dlq", H: ".spooldeck/held", T: ".spooldeck/trash"}
CORRUPT = ".spooldeck/corrupt"
WAY = {None: (), P: (), A: (A,), D: (A, D), T: (A, D, T), H: (H,)}
"""The states by which a new task comes to a state."""

Lies = Callable[[str], bool]
"""Of which paths an fsync is not carried out, though it reports success."""
Tasks = Mapping[str, tuple[str, bytes]]
"""Tasks by id: the folder of each, and its file."""


class Step(NamedTuple):
    """One call of a verb, on the tasks as they are seen just before."""

    act: Callable[[NftbanStore, list[Task]], Iterable[object]]
    """Carried out as it is iterated; the step counts as answered from the first item on."""
    promised: bool = True
    """Whether its answer promises that it survives a power cut."""


class Verb(Case):
    """What is done to tasks that are in a state; None: there are none yet."""

    def __init__(
        self,
        start: State | None,
        *steps: Step,
        tasks: int = 1,
        foreign: bool = False,
        prepare: Callable[[SpoolFolders], None] = lambda spool: None,
        now: float = NOW,
        data: bool = False,
    ) -> None:
        """`foreign`: another program put the tasks there, so that there is no `.spooldeck` yet.
        `data`: each task has data."""
        self._start, self.steps, self._count = start, steps, tasks
        self._foreign, self._prepare, self.now, self._data = foreign, prepare, now, data
        self._stages: list[Tasks] = []
        self._answers: object = None

    def lay_out(self, root: Path) -> None:
        """Put the tasks where the verb finds them."""
        for word in ("pending", "work", "dlq"):
            (root / word).mkdir(parents=True)
        tasks = [_a_task(number) for number in range(1, self._count + 1)] if self._start else []
        if self._foreign:
            for task in tasks:
                data = task_format.render_task(task_format.new_record(task))
                (root / "pending" / f"{task.id}.task").write_bytes(data)
        else:
            with closing(NftbanStore(spool_at(root, durable=False), lambda: NOW)) as store:
                for task in tasks:
                    store.swap(None, _with_data(store, task) if self._data else task)
                    _lead(store, task.id, WAY[self._start])
        self._prepare(spool_at(root))

    def act(self, store: NftbanStore, after: Callable[[int, object], None]) -> None:
        """Carry out all steps; call `after` with each step's number and answer, None at its end."""
        for number, step in enumerate(self.steps, 1):
            # A whole scan shows each task twice: once in its preview, once in its place.
            for answer in step.act(store, tasks_in(store)):
                if isinstance(answer, Outcome) and answer.error is not None:
                    raise answer.error
                after(number, answer)
            after(number, None)

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        """Open the store."""
        store = NftbanStore(spool_at(root), lambda: self.now)
        answers: list[str] = []

        def after(number: int, answer: object) -> None:
            answers.append(f"{number} {answer if isinstance(answer, str) else ''}")

        def act() -> object:
            self.act(store, after)
            return answers

        return act

    def restored(self, root: Path, now: float) -> None:
        """Record the verb once, to know how its tasks are after each step."""
        if not self._stages:
            self._stages = record(self, root.parent / "recorded").stages

    def recover(self, root: Path, now: float) -> None:
        """Recover now, and when everything has waited long enough."""
        _recover(root, NOW)
        _recover(root, LATER)

    def content(self, root: Path) -> Tasks:
        """Return the tasks."""
        return tasks_of(read_in(str(root)))

    def promises(self, ended: Ended) -> bool:
        """Whether each step was answered as it is when nothing goes wrong."""
        if not ended.fault.step:
            self._answers = ended.answer
        return ended.done and ended.answer == self._answers

    def between(self, name: str) -> tuple[object, ...]:
        """Return the task as it is after each step."""
        return tuple(stage.get(name) for stage in self._stages)

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, Any]) -> Iterator[str]:
        """Recover again; orphans fail once; then what is pending can be taken, and nothing else."""
        if again := _recover(root, LATER):
            yield f"there was still something to recover: {again}"
        if left := [path.name for path in root.glob(".spooldeck/[DT].*")]:
            yield f"left in .spooldeck: {left}"
        due = {}
        for ident, (folder, data) in content.items():
            path = root / "data" / ident
            if b"/data/" in data and (not path.exists() or path.read_bytes() != DATA):
                yield f"{ident} is in {folder} without its data"
            with suppress(Refused):
                if folder in (FOLDERS[P], FOLDERS[A]):
                    failed = task_format.parse_task(data, ident).retries
                    due[ident] = failed + (folder == FOLDERS[A])
        with closing(NftbanStore(spool_at(root, durable=False), lambda: LATER)) as store:
            if not all(aside.former_name for aside in store.list_quarantined()):
                yield "quarantined without its reason"
            retries = policy.contract_retries()
            for outcome in outcomes.rescue_tasks(store, retries, LATER, "it was cut off"):
                assert outcome.error is None, outcome.error
            taken = {task.id: task.attempts for task in store.take(LATER + 3600, "me", 99)}
        if taken != due:
            yield f"taken with attempts {taken}, expected {due}"


def _a_task(number: int) -> Task:
    ident = f"20261120T094115Z-job-{number:08x}"
    return Task(ident, "job", P, float(int(NOW)), attempts=1, description="before")


DATA = b"some data\n" * 9


def _with_data(store: NftbanStore, task: Task) -> Task:
    return store.write_data(task, [DATA[:40], DATA[40:]])


def spool_at(root: Path, *, durable: bool = True) -> SpoolFolders:
    """Return the spool in a folder."""
    return SpoolFolders(f"{root}/pending", f"{root}/work", f"{root}/dlq", durable=durable)


def _lead(store: NftbanStore, ident: str, states: tuple[State, ...]) -> None:
    for state in states:
        if state is A:
            list(store.take(NOW, "me", 1))
            continue
        (task,) = tasks_in(store, [ident])
        is_dead, other = state is D, task._replace(state=state)
        store.swap(task, verbs.give_up_task(task, "it broke") if is_dead else other)


def _recover(root: Path, now: float) -> list[str]:
    with closing(NftbanStore(spool_at(root, durable=False), lambda: now)) as store:
        for task in (item for item in store.scan({"pending"}) if isinstance(item, Task)):
            record = task_format.parse_task(store.read(task), task.id)
            assert record.description, f"{task.id} is not whole"
        return store.recover()


_DATA_FOLDER = re.compile(rb'(TASK_PAYLOAD_FILE=")[^"]*/data/')
"""The part of a path that differs from run to run."""


def tasks_of(disk: Disk) -> Tasks:
    """Return every task file in a folder for tasks, or quarantined; each has one place only."""
    by_name: dict[str, tuple[str, bytes]] = {}
    contents = disk.contents()
    for path, what in contents.items():
        folder, _, name = path.rpartition("/")
        ident, _, rest = name.partition(".")
        quarantined = folder == CORRUPT and not rest.endswith(".why")
        if (folder in FOLDERS.values() and rest == "task") or quarantined:
            data = contents[str(what)] if isinstance(what, Path) else what
            assert isinstance(data, bytes), f"{path} is no file"
            assert ident not in by_name, f"{ident} is in {folder} and in {by_name[ident][0]}"
            by_name[ident] = folder, _DATA_FOLDER.sub(rb"\1/data/", data)
    return by_name


# ---- power cuts


class Cuts(NamedTuple):
    """A verb, as it was recorded."""

    recording: Recording
    stages: list[Tasks]
    """The tasks before the first step and after each."""


def record(verb: Verb, root: Path, lies: Lies = lambda path: False) -> Cuts:
    """Carry a verb out in a new folder, and record everything that is done to files."""
    verb.lay_out(root)
    with (
        closing(NftbanStore(spool_at(root), lambda: verb.now)) as store,
        recorded(Recording(str(root), lies)) as recording,
    ):
        stages = [tasks_of(read_in(str(root)))]

        def after(number: int, answer: object) -> None:
            recording.events.append(Answered(number))
            if answer is None:  # that nothing was to be done is an answer, too
                stages.append(tasks_of(read_in(str(root))))

        verb.act(store, after)
    # Otherwise something changes files by other names than the recording sees.
    assert recording.after().contents() == read_in(str(root)).contents()
    return Cuts(recording, stages)


def disks(recording: Recording) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Return each distinct disk that a cut may leave, with the number of steps answered before."""
    events, folders = recording.events, recording.after().folders
    checked = set()
    for end in range(len(events) + 1):
        answered = max((e.step for e in events[:end] if isinstance(e, Answered)), default=0)
        for disk in remains(recording.before, events[:end], folders):
            contents = disk.contents()
            key = answered, tuple(contents.items())
            if key not in checked:
                checked.add(key)
                yield answered, contents


class PowerCut(Case):
    """A power cut after each step of a verb."""

    def __init__(self, verb: Verb, lies: Lies = lambda path: False, *, again: bool = False) -> None:
        """`again`: a second cut after each step of the recovery."""
        self._verb, self._lies, self._again = verb, lies, again

    def sweep(self, folder: Path, every: int = 1) -> Result:
        """Check each so many-th disk that a cut leaves."""
        folder.mkdir()
        cuts = record(self._verb, folder / "recorded", self._lies)
        left = list(disks(cuts.recording))
        if self._again:
            left = list(self._cut_again(left, folder / "first"))
        failures = []
        for answered, contents in left[::every]:
            write_out(contents, str(folder / "cut"))
            wrong = self._harm(cuts, answered, folder / "cut")
            shutil.rmtree(folder / "cut")
            failures += [f"{what}; answered {answered}; left {sorted(contents)}" for what in wrong]
        if len(left) <= 2:
            failures.append("a cut that leaves only the beginning and the end cuts nothing")
        return Result(len(cuts.recording.events), len(left), failures)

    def _cut_again(
        self, left: list[tuple[int, Mapping[str, object]]], root: Path
    ) -> Iterator[tuple[int, Mapping[str, object]]]:
        checked = set()
        for answered, first in left:
            write_out(first, str(root))
            with recorded(Recording(str(root))) as recovery:
                _recover(root, LATER)
            shutil.rmtree(root)
            for _, contents in disks(recovery):
                key = answered, tuple(contents.items())
                if key not in checked:
                    checked.add(key)
                    yield answered, contents

    def _harm(self, cuts: Cuts, answered: int, root: Path) -> list[str]:
        try:
            self._verb.recover(root, 0)
            content = self._verb.content(root)
            wrong = list(self._verb.wrong(root, Ended(), content))
        except (AssertionError, StoreError, OSError) as error:
            return [str(error).partition("\n")[0] or repr(error)]
        steps = self._verb.steps
        kept = max((at for at in range(1, answered + 1) if steps[at - 1].promised), default=0)
        # As the last promise has it, or anything begun since.
        stages = cuts.stages[kept : answered + 2]
        for ident in {*content, *(ident for stage in cuts.stages for ident in stage)}:
            may = [stage.get(ident) for stage in stages]
            if content.get(ident) not in may:
                wrong.append(f"{ident} is {content.get(ident)}, not one of {may}")
        return wrong


# ---- the tables


def _each(change: Callable[[Task], Task | None]) -> Step:
    return Step(lambda store, tasks: (store.swap(task, change(task)) for task in tasks))


def _together(change: Callable[[Task], Task | None]) -> Step:
    return Step(lambda store, tasks: store.swap_all([Move(task, change(task)) for task in tasks]))


def _enqueue(*numbers: int) -> Step:
    moves = [Move(None, _a_task(number)) for number in numbers]
    return Step(lambda store, tasks: store.swap_all(moves))


def _nack(task: Task) -> Task:
    return verbs.nack(task, int(NOW) + 60, "failed")


# Losing a claim or a completion costs a repeat, and no fsync is spent on either.
_TAKE = Step(lambda store, tasks: store.take(NOW, "me", len(tasks)), promised=False)
_ACK = _each(lambda task: None)._replace(promised=False)
_LOOK = Step(lambda store, tasks: store.take(NOW, "me", 1), promised=False)
_ENQUEUE = Step(lambda store, tasks: (store.swap(None, _a_task(1)) for _ in range(1)))
_ADD_DATA = Step(
    lambda store, tasks: (store.swap(None, _with_data(store, _a_task(1))) for _ in "1")
)
_RECOVER = Step(lambda store, tasks: store.recover())
_QUARANTINE = Step(lambda store, tasks: store.quarantine_broken())
_PUT_BACK = Step(
    lambda store, tasks: (
        store.restore_quarantined(aside.name) for aside in store.list_quarantined()
    )
)


def _interrupt(end: State, *, fits: bool) -> Callable[[SpoolFolders], None]:
    """Return what withdraws the pending task as a process does that dies while it moves it."""

    def prepare(spool: SpoolFolders) -> None:
        (path,) = Path(spool.pending).iterdir()
        crc = zlib.crc32(path.read_bytes()) ^ (not fits)
        word = Path(FOLDERS[end]).name
        path.rename(Path(spool.staging_dir, f"D.{path.stem}.pending.{word}.{crc:08x}.1-0-1"))
        Path(spool.staging_dir, f"T.{path.stem}.1-0-2").write_bytes(b"half a dr")

    return prepare


def _break(spool: SpoolFolders) -> None:
    """Put a file there that is no task."""
    Path(spool.pending, f"{_a_task(1).id}.task").write_bytes(b'TASK_ID="half a')


def _mend(spool: SpoolFolders) -> None:
    """Have a file that is no task quarantined, and make a task of it there, as an operator does."""
    _break(spool)
    with closing(NftbanStore(spool._replace(durable=False), lambda: LATER)) as store:
        list(store.take(NOW, "me", 1))
        store.quarantine_broken()
        (aside,) = store.list_quarantined()
    good = task_format.render_task(task_format.new_record(_a_task(1)))
    Path(spool.staging_dir, "corrupt", aside.name).write_bytes(good)


_hold = _each(lambda task: verbs.hold(task, NOW))
VERBS: Mapping[str, Verb] = {
    "enqueue": Verb(None, _ENQUEUE),
    "enqueue, 3 together": Verb(None, _enqueue(1, 2, 3)),
    "enqueue with data": Verb(None, _ADD_DATA),
    "take, ack": Verb(P, _TAKE, _ACK),
    "take, ack with data": Verb(P, _TAKE, _ACK, data=True),
    "take, nack with data": Verb(P, _TAKE, _each(_nack), data=True),
    "expunge with data": Verb(D, _each(lambda task: None), data=True),
    "take, nack": Verb(P, _TAKE, _each(_nack)),
    "take, nack, 2 together": Verb(P, _TAKE, _together(_nack), tasks=2),
    "take, unclaim": Verb(P, _TAKE, _each(verbs.unclaim)),
    "bury": Verb(A, _each(lambda task: verbs.give_up_task(task, "failed", 1))),
    "retry": Verb(D, _each(lambda task: verbs.retry(task, NOW))),
    "retry, 3 together": Verb(D, _together(lambda task: verbs.retry(task, NOW)), tasks=3),
    "edit": Verb(P, _each(lambda task: task._replace(description="after"))),
    "hold": Verb(P, _hold),
    "hold, no staging yet": Verb(P, _hold, foreign=True),
    "release": Verb(H, _each(lambda task: verbs.release(task, NOW))),
    "purge": Verb(D, _each(lambda task: verbs.purge(task, NOW))),
    "restore": Verb(T, _each(lambda task: task._replace(state=D))),
    "expunge": Verb(D, _each(lambda task: None)),
    "recover, forward": Verb(P, _RECOVER, prepare=_interrupt(H, fits=True)),
    "recover, back": Verb(P, _RECOVER, prepare=_interrupt(H, fits=False)),
    "quarantine": Verb(None, _LOOK, _QUARANTINE, prepare=_break, now=LATER),
    "put back": Verb(None, _PUT_BACK, prepare=_mend),
}


def _in(word: str) -> Lies:
    """Return lies of one folder, not of what is in it."""
    return lambda path: path.endswith(f"/{word}")


def _drafts(path: str) -> bool:
    return path.rpartition("/")[2].startswith("T.")


LIES: Mapping[str, tuple[str, Lies]] = {
    "no fsync at all: a new task": ("enqueue", lambda path: True),
    "no fsync at all: a failed one": ("take, nack", lambda path: True),
    "no fsync at all: a changed one": ("edit", lambda path: True),
    "of the file": ("enqueue", _drafts),
    "of the file, changed": ("edit", _drafts),
    "of the folder it comes to": ("enqueue", _in("pending")),
    "of the folder it comes to, moved": ("retry", _in("pending")),
    "of the folder it leaves": ("take, nack", _in("work")),
    "of the folder that holds a new one": ("hold, no staging yet", _in("recorded")),
    "of the staging folder": ("expunge", _in(".spooldeck")),
    "of the reason": ("quarantine", lambda path: path.endswith(".why")),
    "of the folder of reasons": ("quarantine", _in("corrupt")),
    "of both folders, put back": ("put back", lambda p: p.endswith(("/pending", "/corrupt"))),
}
"""A verb, and of which paths an fsync is skipped though it reports success: each does harm."""

CUTS: Mapping[str, PowerCut] = {
    **{name: PowerCut(verb) for name, verb in VERBS.items()},
    **{
        f"{name}, again": PowerCut(VERBS[name], again=True)
        for name in ("take, nack", "hold, no staging yet", "edit")
    },
}
LYING: Mapping[str, PowerCut] = {n: PowerCut(VERBS[verb], lies) for n, (verb, lies) in LIES.items()}
