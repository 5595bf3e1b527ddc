"""The ZMailer store: recipient lines of control files; a state change is one tag byte in place.

A scan reads all control files, or what some names mean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice

from engine.formats.zmailer.spool import lock_process, names, permissions
from engine.formats.zmailer.spool.changes import LineChanges, MailActions, MoreControls
from engine.formats.zmailer.spool.control_file import FileVersion, last_sum, recipients_in
from engine.formats.zmailer.spool.folders import (
    FREEZER,
    KEPT,
    TRANSPORT,
    Changing,
    FolderCache,
    LargeFile,
    PostofficeFolders,
    SpoolEntry,
    VersionCache,
    problem_at,
)
from engine.formats.zmailer.spool.reading import PREVIEWED, MessageReader
from engine.formats.zmailer.spool.tasks import (
    STATES,
    SchedulerFacts,
    items_of,
    join,
    revision_prefix,
    tasks_of,
)
from engine.model import ChangeSource, Edges, Missing, Move, Outcome, Part, Problem, State, Task
from engine.override import override
from engine.store import Control, Outlook, SeenTask, Store, StoreError, Unsupported, require_edge
from engine.system.files import Refused

SAMPLE_FILES = 100
"""Control files of which a full scan shows tasks first, in any order."""
SAMPLE_TASKS = 500
"""The most of these tasks."""

TIDY_HINT = "finished since its recipients were released: control tidy removes our links"


class SpoolScan:
    """Scans of one spool."""

    def __init__(self, folders: PostofficeFolders, reader: MessageReader) -> None:
        self._folders = folders
        self._sample_versions = VersionCache()
        """The versions of large files that were yielded."""
        self._read, self._has_ended = reader.read, reader.has_ended
        self._read_parked = reader.read_parked

    def scan_all(self, expect: Callable[[int], None]) -> Iterator[Task | Problem]:
        """Yield a sample, then all tasks in the order of their ids, then problems. Each file is
        read once, but those of the sample twice. Raises Unavailable: a folder cannot be read."""
        expect(0)
        listed, twice = self._folders.list_controls()
        linked = self._folders.list_kept()
        with closing(FolderCache()) as opened:
            some = dict(islice(listed.items(), SAMPLE_FILES))
            sample_size, names_shown = 0, set[str]()
            for item in islice(self._scan_files(some, opened), SAMPLE_TASKS):
                if isinstance(item, Task):
                    yield item
                    sample_size += 1
                    names_shown.add(item.payload)
            of_a_file = sample_size / (len(names_shown) or 1)
            expect(round(len({*listed, *linked}) * of_a_file))
            problems: list[Problem] = []
            all_names = dict.fromkeys(linked, "") | listed
            for item in self._scan_files(all_names, opened, is_full=True):
                if isinstance(item, Task):
                    yield item
                elif isinstance(item, Problem):
                    problems.append(item)
        yield from problems
        for path in twice:
            yield problem_at(f"{TRANSPORT}/{path}", "is in another folder too")
        yield from self._hidden_links(linked & listed.keys())
        yield from filter(None, map(self._read_parked, self._folders.list_parked()))

    def _scan_files(
        self, likely: Mapping[str, str], opened: FolderCache, *, is_full: bool = False
    ) -> Iterator[Task | Missing | Problem]:
        """Yield what is in some control files, in the order of ids; `likely` has the folder of
        each. With `is_full`, later lookups of a large one yield what has changed since."""
        for name in sorted(likely, key="{}/".format):
            entry = self._read(name, None, opened, likely[name])
            yield from self._items(entry)
            if is_full and isinstance(entry, SpoolEntry) and entry.large is not None:
                self._sample_versions.keep(_file_key(entry), entry.file_stat, entry.large.version)

    def _items(
        self, entry: SpoolEntry | Problem | None, offsets: Collection[int] | None = None
    ) -> Iterator[Task | Missing | Problem]:
        """Yield what is in one control file, of the recipients at some offsets or of all."""
        if isinstance(entry, Problem):
            yield entry
        elif entry is not None:
            try:
                yield from items_of(entry, self._has_ended, offsets)
            except Changing:
                yield problem_at(entry.where, "changed while it was read", entry.file_stat)
                return
            for what in entry.layout.damage:
                yield problem_at(entry.where, what, entry.file_stat)
            if entry.is_kept and offsets is None and not any(tasks_of(entry, self._has_ended)):
                yield problem_at(entry.where, TIDY_HINT, entry.file_stat)

    def _changed_items(
        self, entry: SpoolEntry | Problem | None
    ) -> Iterator[Task | Missing | Problem]:
        """Yield what is in one control file; of a large one only what has changed since this was
        last called for it."""
        if not isinstance(entry, SpoolEntry) or entry.large is None:
            yield from self._items(entry)
            return
        version = entry.large.version
        key = _file_key(entry)
        before = self._sample_versions.get(key)
        try:
            offsets = before and _changed_offsets(before.version, entry.large)
        except Changing:
            offsets = None
        yield from self._items(entry, offsets)
        self._sample_versions.keep(key, entry.file_stat, version)

    def _hidden_links(self, some: Iterable[str]) -> Iterator[Problem]:
        """Our links that name another file than the one in transport/."""
        for name in sorted(some):
            try:
                with (
                    self._folders.open_below(self._folders.fd, f"{KEPT}/{TRANSPORT}") as kept_fd,
                    self._folders.open_control(name) as opened,
                ):
                    link_stat = os.stat(name, dir_fd=kept_fd, follow_symlinks=False)
                    if not os.path.samestat(link_stat, os.fstat(opened.fd)):
                        what = f"held recipients, but {opened.where} is another file of this name"
                        yield problem_at(f"{KEPT}/{TRANSPORT}/{name}", what, link_stat)
            except (OSError, Refused):
                continue  # it moved meanwhile, or is shown as a problem itself

    def scan_touched(self, touched: Collection[str]) -> Iterator[Task | Missing | Problem]:
        """Yield the tasks in the states with these words, and what the other names mean."""
        by_word = {word: state for state, word in STATES.items()}
        if states := {by_word[name] for name in touched if name in by_word}:
            yield from self.scan_states(states)
        yield from self.scan_names(name for name in touched if name not in by_word)

    def scan_states(self, states: Collection[State]) -> Iterator[Task]:
        """Yield all tasks in some states; each file is read once."""
        listed, _ = self._folders.list_controls()
        listed = dict.fromkeys(self._folders.list_kept(), "") | listed
        with closing(FolderCache()) as opened:
            for item in self._scan_files(listed, opened):
                if isinstance(item, Task) and item.state in states:
                    yield item

    def scan_names(self, touched: Iterable[str]) -> Iterator[Task | Missing | Problem]:
        """Yield the tasks that some names mean: task ids, control files, hash folders, spool ids,
        paths of problems. A control file that is gone is `Missing` with a final slash, for all its
        tasks."""
        offsets_by_name: dict[str, set[int]] = {}
        for name in touched:
            if parsed := names.parse_task_id(name):
                offsets_by_name.setdefault(parsed[0], set()).add(parsed[1])
            elif names.message_number(name) is not None:
                yield from self._look_up_file(name)
            elif names.is_hash_folder(name):
                for one, folder in self._folders.list_controls()[0].items():
                    if name in folder.split("/"):
                        yield from self._look_up_file(one)
            elif (number := names.spool_id_number(name)) is not None:
                yield from self._look_up_message(name, str(number))
            elif name.startswith(PREVIEWED):
                yield from self._look_up_file(name.rpartition("/")[2])
            else:
                yield Missing(name)
        for name, offsets in offsets_by_name.items():
            yield from self._look_up_tasks(name, offsets)

    def _look_up_tasks(self, name: str, offsets: set[int]) -> Iterator[Task | Missing | Problem]:
        entry = self._read(name, offsets)
        if isinstance(entry, Problem):
            yield entry
            return
        tasks_and_problems = [] if entry is None else [*items_of(entry, self._has_ended, offsets)]
        yield from tasks_and_problems
        known_ids = {item.id for item in tasks_and_problems if not isinstance(item, Problem)}
        ids = (names.task_id(name, offset) for offset in sorted(offsets))
        yield from (Missing(ident) for ident in ids if ident not in known_ids)

    def _look_up_file(self, name: str) -> Iterator[Task | Missing | Problem]:
        entry = self._read(name)
        if entry is None:
            yield Missing(f"{name}/")
        else:
            yield from self._changed_items(entry)
        if parked := self._read_parked(name):
            yield parked

    def _look_up_message(self, spool_id: str, name: str) -> Iterator[Task | Missing]:
        entry = self._read(name)
        if (
            isinstance(entry, SpoolEntry)
            and names.spool_id(int(name), entry.message.st_mtime_ns) == spool_id
        ):
            yield from tasks_of(entry, self._has_ended)
        else:
            yield Missing(spool_id)


def _file_key(entry: SpoolEntry) -> str:
    """The values that all tasks of a control file have."""
    return f"{entry.where} {entry.message_path} {revision_prefix(entry.file_stat, entry.message)}"


def _changed_offsets(old: FileVersion, file: LargeFile) -> set[int] | None:
    """The offsets of the recipients of a file that have changed since a version; None for all."""
    now = file.version
    if now.layout.size < old.layout.size or not now.layout.has_lines_of(old.layout):
        return None
    spans = old.changed_spans(now, last_sum(old, file.read))
    return recipients_in(now.layout, spans, file.read)


MOVES_PER_BATCH = 100
"""Changes that are grouped by control file: one fsync for each file of a batch."""

RECHECK_SECONDS = 1.0
"""Seconds for which the PID of the scheduler is current."""

RESCAN_SECONDS = 30.0
"""Seconds between full scans."""

CONTROLS: Mapping[str, Control] = {
    "tidy": Control("remove our links to finished messages", has_forecast=True)
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
        rerouted or woken; `facts` asks a running scheduler for tries and due times. Raises
        Unavailable: one is missing or cannot be opened."""
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
