"""Scan a spool: all control files, or what some names mean."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from engine.model import Missing, Problem, State, Task
from engine.stores.zmailer import names
from engine.stores.zmailer.folders import KEPT, TRANSPORT, PostofficeFolders, SpoolEntry, problem_at
from engine.stores.zmailer.reading import MessageReader
from engine.stores.zmailer.tasks import STATES, expunged_ids, tasks_of
from engine.system.files import Refused

SAMPLE_FILES = 100
"""Control files that a full scan shows first, in any order."""

TIDY_HINT = "finished since its recipients were released: control tidy removes our links"


class SpoolScan:
    """Scans of one spool."""

    def __init__(self, folders: PostofficeFolders, reader: MessageReader) -> None:
        self._folders = folders
        self._read, self._has_ended = reader.read, reader.has_ended
        self.expected_files = 0

    def scan_all(self) -> Iterator[Task | Problem]:
        """Yield a sample, then all tasks of each state in the order of their ids, then problems.

        Each file is read once; one with tasks of further states is read again for each of them.

        Raises:
            Unavailable: a folder cannot be read.
        """
        self.expected_files = 0
        listed, twice = self._folders.list_controls()
        kept = self._folders.list_kept()
        for name in islice(listed, SAMPLE_FILES):
            if isinstance(entry := self._read(name), SpoolEntry):
                yield from tasks_of(entry, self._has_ended)
        ordered = sorted({*listed, *kept}, key=lambda name: f"{name}/")
        self.expected_files = len(ordered)
        later: dict[State, list[str]] = {state: [] for state in STATES}
        problems: list[Problem] = []
        for name in ordered:
            states = set[State]()
            for item in self._scan_file(name):
                if isinstance(item, Problem):
                    problems.append(item)
                elif item.state is State.PENDING:
                    yield item
                else:
                    states.add(item.state)
            for state in states:
                later[state].append(name)
        for state, those in later.items():
            for name in those:
                tasks = (item for item in self._scan_file(name) if isinstance(item, Task))
                yield from (task for task in tasks if task.state is state)
        yield from problems
        for path in twice:
            yield problem_at(f"{TRANSPORT}/{path}", "is in another folder too")
        yield from self._hidden_links(kept & listed.keys())

    def _hidden_links(self, some: Iterable[str]) -> Iterator[Problem]:
        """Our links that name another file than the one in transport/."""
        for name in sorted(some):
            try:
                with (
                    self._folders.open_below(self._folders.fd, f"{KEPT}/{TRANSPORT}") as ours,
                    self._folders.open_control(name) as opened,
                ):
                    seen = os.stat(name, dir_fd=ours, follow_symlinks=False)
                    if not os.path.samestat(seen, os.fstat(opened.fd)):
                        what = f"held recipients, but {opened.where} is another file of this name"
                        yield problem_at(f"{KEPT}/{TRANSPORT}/{name}", what, seen)
            except (OSError, Refused):
                continue  # it moved meanwhile, or is shown as a problem itself

    def _scan_file(self, name: str) -> Iterator[Task | Problem]:
        entry = self._read(name)
        if isinstance(entry, Problem):
            yield entry
        elif entry is not None:
            yield from tasks_of(entry, self._has_ended)
            for what in entry.control.damage:
                yield problem_at(entry.where, what, entry.seen)
            if entry.is_kept and not any(tasks_of(entry, self._has_ended)):
                yield problem_at(entry.where, TIDY_HINT, entry.seen)

    def scan_states(self, wanted: Collection[State]) -> Iterator[Task]:
        """Yield all tasks in some states; each file is read once."""
        for name in self._all_names():
            for item in self._scan_file(name):
                if isinstance(item, Task) and item.state in wanted:
                    yield item

    def _all_names(self) -> list[str]:
        listed, _ = self._folders.list_controls()
        return sorted({*listed, *self._folders.list_kept()}, key=lambda name: f"{name}/")

    def scan_names(self, touched: Iterable[str]) -> Iterator[Task | Missing | Problem]:
        """Yield the tasks that some names mean: task ids, control files, hash folders, spool ids,
        paths of problems. A control file that is gone is `Missing` with a final slash, for all its
        tasks.
        """
        wanted: dict[str, set[int]] = {}
        for name in touched:
            if parsed := names.parse_task_id(name):
                wanted.setdefault(parsed[0], set()).add(parsed[1])
            elif names.message_number(name) is not None:
                yield from self._look_up_file(name)
            elif names.is_hash_folder(name):
                for one in self._names_in(name):
                    yield from self._look_up_file(one)
            elif (number := names.spool_id_number(name)) is not None:
                yield from self._look_up_message(name, str(number))
            elif name.startswith((f"{TRANSPORT}/", f"{KEPT}/")):
                yield from self._look_up_file(name.rpartition("/")[2])
            else:
                yield Missing(name)
        for name, offsets in wanted.items():
            yield from self._look_up_tasks(name, offsets)

    def _look_up_tasks(self, name: str, offsets: set[int]) -> Iterator[Task | Missing | Problem]:
        entry = self._read(name)
        if isinstance(entry, Problem):
            yield entry
            return
        found = [] if entry is None else list(tasks_of(entry, self._has_ended, offsets))
        yield from found
        there = {task.id for task in found}
        ids = (names.task_id(name, offset) for offset in sorted(offsets))
        yield from (Missing(ident) for ident in ids if ident not in there)

    def _look_up_file(self, name: str) -> Iterator[Task | Missing | Problem]:
        entry = self._read(name)
        if entry is None:
            yield Missing(f"{name}/")
            return
        yield from self._scan_file(name)
        if isinstance(entry, SpoolEntry):
            yield from map(Missing, expunged_ids(entry))

    def _names_in(self, letter: str) -> Iterator[str]:
        listed, _ = self._folders.list_controls()
        return (name for name, folder in listed.items() if letter in folder.split("/"))

    def _look_up_message(self, spool_id: str, name: str) -> Iterator[Task | Missing]:
        entry = self._read(name)
        if (
            isinstance(entry, SpoolEntry)
            and names.spool_id(int(name), entry.message.st_mtime_ns) == spool_id
        ):
            yield from tasks_of(entry, self._has_ended)
        else:
            yield Missing(spool_id)
