"""The ZMailer store: recipient lines of control files; a state change is one tag byte in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

from engine.formats.zmailer.spool import lock_process, names, permissions
from engine.formats.zmailer.spool.changes import LineChanges, MailActions, MoreControls
from engine.formats.zmailer.spool.folders import FREEZER, KEPT, TRANSPORT, PostofficeFolders
from engine.formats.zmailer.spool.joined import SchedulerFacts, join
from engine.formats.zmailer.spool.reading import MessageReader
from engine.formats.zmailer.spool.scan import SpoolScan
from engine.formats.zmailer.spool.tasks import STATES
from engine.model import ChangeSource, Edges, Missing, Move, Outcome, Part, Problem, State, Task
from engine.override import override
from engine.store import (
    Control,
    Outlook,
    SeenTask,
    Store,
    StoreError,
    Unsupported,
    require_edge,
)

MOVES_PER_BATCH = 100
"""Changes that are grouped by control file: one fsync for each file of a batch."""

RECHECK_SECONDS = 1.0
"""Seconds for which the PID of the scheduler is current."""

RESCAN_SECONDS = 30.0
"""Seconds between full scans."""

CONTROLS: Mapping[str, Control] = {
    "tidy": Control("remove our links to finished messages", has_forecast=True),
}


class ZmailerStore(Store):
    """Recipients of the messages in transport/, and in our links below .spooldeck/."""

    states: Mapping[State, str] = STATES

    def __init__(
        self,
        root: str,
        clock: Callable[[], float] = time.time,
        mail: Callable[[PostofficeFolders], MailActions] | None = None,
        more_controls: Callable[[PostofficeFolders], MoreControls] | None = None,
        facts: SchedulerFacts | None = None,
    ) -> None:
        """Open the folders of a spool, POSTOFFICE. Without `mail`, nothing can be bounced, expired,
        rerouted or woken; `facts` asks a running scheduler for tries and due times.

        Raises:
            Unavailable: one is missing or cannot be opened.
        """
        self._clock = clock
        self._folders, self._facts = PostofficeFolders(root), facts
        reader = self._reader = MessageReader(self._folders)
        self._scan = SpoolScan(self._folders, reader)
        self._changes = LineChanges(self._folders, reader, mail and mail(self._folders))
        self._more_controls = more_controls and more_controls(self._folders)
        self._all_edges = permissions.MAIL_EDGES if mail else permissions.EDGES
        self._checked = float("-inf")
        self._scheduler: int | None = None
        self.edges, self.controls = permissions.EDGES, CONTROLS
        self._refresh()
        # Also those that are made later: a watch follows them then.
        below = (f"{TRANSPORT}/{folder}" for folder in names.all_hash_folders())
        watched = (TRANSPORT, *below, f"{KEPT}/{TRANSPORT}", FREEZER)
        paths = tuple(f"{root}/{folder}" for folder in watched)
        self.changes = ChangeSource(paths, rescan_seconds=RESCAN_SECONDS, can_interleave=True)

    @override
    def close(self) -> None:
        self._folders.close()
        if self._facts is not None:
            self._facts.close()

    def _expect(self, tasks: int) -> None:
        self.expected_tasks = tasks

    def _refresh(self) -> None:
        """Compute the edges again: they depend on whether a scheduler is running."""
        now = self._clock()
        if 0 <= now - self._checked < RECHECK_SECONDS:
            return
        self._checked = now
        self._scheduler = lock_process.find_scheduler(
            self._folders.fd, self._folders.transport_status
        )
        self.edges = permissions.current_edges(self._all_edges, self._folders, self._scheduler)
        why = permissions.write_refusal(self._folders)
        controls = dict(CONTROLS)
        if self._more_controls is not None:
            controls |= self._more_controls.describe(self._scheduler)
        self.controls = {n: one._replace(refusal=why or one.refusal) for n, one in controls.items()}

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        self._folders.check()
        self._refresh()
        facts = self._facts if self._scheduler is not None else None
        scan = self._scan
        items = scan.scan_all(self._expect) if touched is None else scan.scan_touched(touched)
        yield from items if facts is None else join(facts, items)

    @override
    def count_tasks(self) -> dict[State, int]:
        self._folders.check()
        counts = dict.fromkeys(STATES, 0)
        for task in self._scan.scan_states(STATES):
            counts[task.state] += 1
        return counts

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        return self._reader.parts(task)

    @override
    def size(self, task: Task) -> int:
        return self._reader.size(task)

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        return self._reader.read_part(task, part)

    @override
    def preview_problem(self, problem: Problem) -> bytes:
        return self._reader.preview_problem(problem)

    # ---- changing

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        self._changes.recover(self._scheduler)
        yield from self._reader.verify(known_tasks)

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        waiting = iter(moves)
        while batch := list(islice(waiting, MOVES_PER_BATCH)):
            self._refresh()
            self._changes.recover(self._scheduler)
            yield from self._apply(batch)

    def _apply(self, batch: list[Move]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        by_file: dict[str, list[int]] = {}
        for number, move in enumerate(batch):
            try:
                _require_open_edge(self.edges, move, self._clock())
            except StoreError as error:
                outcomes[number] = Outcome(move, error=error)
            else:
                ident = move.old.id if move.old else ""
                by_file.setdefault(ident.rpartition("/")[0], []).append(number)
        for name, numbers in by_file.items():
            some = [batch[number] for number in numbers]
            done = self._changes.apply(name, some, self._scheduler)
            outcomes |= zip(numbers, done, strict=True)
        return [outcomes[number] for number in range(len(batch))]

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        """Return the task of an image in a state: all else in its line is never changed."""
        ident, newline, line = image.partition(b"\n")
        if ident != task.id.encode() or not newline or line[:1] not in (b"r", b"X"):
            raise Unsupported(f"{task.id}: not an image of this task")
        return task._replace(state=state, lease=None)

    @override
    def control(self, name: str, target: str = "", value: str = "") -> str:
        self._require_control(name)
        if name not in CONTROLS and self._more_controls is not None:
            answer = self._more_controls.run(name, target, value, self._waiting_hosts)
            self._checked = float("-inf")  # it may have changed what can be done
            self._refresh()
            return answer
        removed = self._changes.tidy(self._scheduler)
        return f"links removed: {len(removed)}"

    @override
    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        self._require_control(name)
        if name not in CONTROLS and self._more_controls is not None:
            return self._more_controls.forecast(name, target, value, self._waiting_hosts)
        names = self._changes.tidy(self._scheduler, is_dry=True)
        return Outlook("\n".join(names) or "nothing to remove", len(names))

    def _waiting_hosts(self) -> set[str]:
        return {task.group for task in self._scan.scan_states({State.PENDING})}

    def _require_control(self, name: str) -> None:
        self._refresh()
        if name not in self.controls:
            raise Unsupported(f"no control {name}")
        if why := self.controls[name].refusal:
            raise Unsupported(why)


def _require_open_edge(edges: Edges, move: Move, now: float) -> None:
    old, new = move.old, move.new
    edge = require_edge(edges, old, new, now, whole=bool(move.image))
    is_new_due = old is not None and new is not None and new.due != old.due
    if new is not None and is_new_due and (why := edge.value_problem("due", new.due, now)):
        raise Unsupported(why)
