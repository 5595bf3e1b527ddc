"""A disk whose power may fail: what was done to some files, and what of it may be left.

The model is `atomic`: each change of a folder (create, rename, link, unlink, mkdir) is kept whole
or lost whole, in any order, until one of the folders that it touches is fsynced; a file's data is
kept, lost, half there or there as zeros until the file is fsynced; where it was only added to, what
was added is. Nothing else is promised, which is less than any journaling file system gives. Not
modelled: modes, owners, times, writing by mmap.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from engine import files

Entry: TypeAlias = tuple[int, str]
"""A name in a folder: the folder's inode and the name."""
Call: TypeAlias = Callable[..., Any]

FEW = 5
"""So many undurable changes of folders are lost and kept in every combination; of more, only none,
all, every prefix, each one, all but each one, and each pair."""


class Changed(NamedTuple):
    """Entries that came, went or were exchanged in one step; None: there is none any more."""

    entries: Mapping[Entry, int | None]

    @property
    def folders(self) -> set[int]:
        """The folders whose fsync makes it durable."""
        return {folder for folder, _ in self.entries}


class Written(NamedTuple):
    """All that a file holds, once it was written to or cut off."""

    inode: int
    data: bytes


class Synced(NamedTuple):
    """A file or folder of which everything so far is durable."""

    inode: int


class Said(NamedTuple):
    """Somebody was told that what he asked for is done."""

    step: int


Event: TypeAlias = Changed | Written | Synced | Said


class Disk(NamedTuple):
    """What is there: every entry, and what every file holds."""

    root: int
    entries: Mapping[Entry, int]
    data: Mapping[int, bytes]
    folders: frozenset[int]

    def contents(self) -> dict[str, object]:
        """What can be reached, by path: bytes, or None for a folder; a second name says of what."""
        found: dict[str, object] = {}
        first: dict[int, str] = {}

        def visit(folder: int, path: str) -> None:
            for (parent, name), inode in sorted(self.entries.items()):
                if parent != folder:
                    continue
                here = f"{path}{name}"
                if inode in self.folders:
                    found[here] = None
                    visit(inode, f"{here}/")
                elif inode in first:
                    found[here] = Path(first[inode])
                else:
                    first[inode] = here
                    found[here] = self.data.get(inode, b"")

        visit(self.root, "")
        return found


def write_out(contents: Mapping[str, object], root: str) -> None:
    """Make real folders and files of it, in a folder that is made."""
    os.mkdir(root)  # noqa: PTH102 - thousands of these; Path takes twice as long
    for path, what in contents.items():
        if what is None:
            os.mkdir(f"{root}/{path}")  # noqa: PTH102
        elif isinstance(what, bytes):
            with open(f"{root}/{path}", "wb") as file:  # noqa: PTH123
                file.write(what)
        else:
            os.link(f"{root}/{what}", f"{root}/{path}")


def read_in(root: str) -> Disk:
    """What lies below a real folder."""
    entries: dict[Entry, int] = {}
    data: dict[int, bytes] = {}
    folders = {Path(root).stat().st_ino}
    for path, below, names in os.walk(root):
        here = Path(path).stat().st_ino
        for name in below + names:
            there = Path(path, name)
            inode = there.stat().st_ino
            entries[here, name] = inode
            if there.is_dir():
                folders.add(inode)
            else:
                data[inode] = there.read_bytes()
    return Disk(Path(root).stat().st_ino, entries, data, frozenset(folders))


class Recording:
    """Everything that is done below a folder through `engine.files`, while in `recorded`."""

    def __init__(self, root: str, lies: Callable[[str], bool] = lambda path: False) -> None:
        """`lies`: of which paths an fsync is not carried out, though it says that it is."""
        self.before = read_in(root)
        self.events: list[Event] = []
        self._lies = lies
        self._entries = dict(self.before.entries)
        self._data = dict(self.before.data)
        self._folders = set(self.before.folders)
        # While it is held, no inode's number is given to another; O_PATH disturbs no flock.
        self._held = [
            os.open(Path(path, name), os.O_PATH | os.O_NOFOLLOW)
            for path, below, names in os.walk(root)
            for name in below + names
        ]

    def close(self) -> None:
        """Let go of the files that it held."""
        for fd in self._held:
            os.close(fd)
        self._held = []

    def after(self) -> Disk:
        """What is there now, as the events tell it."""
        return Disk(self.before.root, self._entries, self._data, frozenset(self._folders))

    def said(self, step: int) -> None:
        """Note that a step was answered."""
        self.events.append(Said(step))

    # ---- the calls

    def rename(self, call: Call, old: str, new: str, **options: Any) -> None:
        """Note a rename."""
        start = self._entry(old, options.get("src_dir_fd"))
        end = self._entry(new, options.get("dst_dir_fd"))
        call(old, new, **options)
        self._change({end: self._entries.get(start), start: None})

    def link(self, call: Call, old: str, new: str, **options: Any) -> None:
        """Note a second name."""
        start = self._entry(old, options.get("src_dir_fd"))
        call(old, new, **options)
        self._change({self._entry(new, options.get("dst_dir_fd")): self._entries.get(start)})

    def unlink(self, call: Call, path: str, **options: Any) -> None:
        """Note that a name went."""
        call(path, **options)
        self._change({self._entry(path, options.get("dir_fd")): None})

    def mkdir(self, call: Call, path: str, *rest: Any, **options: Any) -> None:
        """Note a new folder."""
        call(path, *rest, **options)
        inode = self._hold(os.open(path, os.O_PATH, dir_fd=options.get("dir_fd")))
        self._folders.add(inode)
        self._change({self._entry(path, options.get("dir_fd")): inode})

    def open(self, call: Call, path: str, flags: int, *rest: Any, **options: Any) -> int:
        """Note a file that comes to be, or is emptied, by being opened."""
        entry = self._entry(path, options.get("dir_fd")) if flags & os.O_CREAT else (0, "")
        fd: int = call(path, flags, *rest, **options)
        if entry[0] in self._folders:
            known = self._entries.get(entry)
            if known is None:
                inode = self._hold(call(f"/proc/self/fd/{fd}", os.O_PATH))
                self._data[inode] = b""
                self._change({entry: inode})
            elif flags & os.O_TRUNC:
                self._wrote(fd)
        return fd

    def write(self, call: Call, fd: int, data: bytes) -> int:
        """Note what a file holds now."""
        done: int = call(fd, data)
        self._wrote(fd)
        return done

    def ftruncate(self, call: Call, fd: int, size: int) -> None:
        """Note what a file holds now."""
        call(fd, size)
        self._wrote(fd)

    def fsync(self, call: Call, fd: int) -> None:
        """Note that a file or folder is durable, unless the disk lies about it."""
        call(fd)
        if not self._lies(str(Path(f"/proc/self/fd/{fd}").readlink())):
            self.events.append(Synced(os.fstat(fd).st_ino))

    def _hold(self, fd: int) -> int:
        self._held.append(fd)
        return os.fstat(fd).st_ino

    def _entry(self, path: str, dir_fd: int | None) -> Entry:
        folder, name = os.path.split(path)
        return os.stat(folder or ".", dir_fd=dir_fd).st_ino, name

    def _change(self, entries: Mapping[Entry, int | None]) -> None:
        ours = {entry: inode for entry, inode in entries.items() if entry[0] in self._folders}
        for entry, inode in ours.items():
            if inode is None:
                self._entries.pop(entry, None)
            else:
                self._entries[entry] = inode
        if ours:
            self.events.append(Changed(ours))

    def _wrote(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        if inode in self._data:
            data = Path(f"/proc/self/fd/{fd}").read_bytes()
            self._data[inode] = data
            self.events.append(Written(inode, data))


SEEN = ("rename", "link", "unlink", "mkdir", "write", "ftruncate", "fsync")
"""The names of engine.files that a recording sees; creation it sees in os.open."""


@contextmanager
def recorded(recording: Recording) -> Iterator[Recording]:
    """See every change of a file in this process."""
    before = {(files, name): getattr(files, name) for name in SEEN} | {(os, "open"): os.open}

    def seen(note: Call, call: Call) -> Call:
        return lambda *args, **options: note(call, *args, **options)

    for (module, name), call in before.items():
        setattr(module, name, seen(getattr(recording, name), call))
    try:
        yield recording
    finally:
        for (module, name), call in before.items():
            setattr(module, name, call)
        recording.close()


def remains(before: Disk, events: list[Event], folders: frozenset[int]) -> Iterator[Disk]:
    """Every disk that a power cut after these events may leave."""
    durable, loose = _split(events)
    for kept in _subsets(len(loose)):
        entries = dict(before.entries)
        for _, change in sorted(durable + [loose[at] for at in kept]):
            for entry, inode in change.entries.items():
                if inode is None:
                    entries.pop(entry, None)
                else:
                    entries[entry] = inode
        for data in _data(before, events):
            yield Disk(before.root, entries, data, folders)


def _split(events: list[Event]) -> tuple[list[tuple[int, Changed]], list[tuple[int, Changed]]]:
    """The changes of folders that are durable, and those that are not, each with its place."""
    durable: list[tuple[int, Changed]] = []
    loose: list[tuple[int, Changed]] = []
    synced: set[int] = set()
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if isinstance(event, Synced):
            synced.add(event.inode)
        elif isinstance(event, Changed):
            (durable if event.folders & synced else loose).append((at, event))
    return durable, loose[::-1]


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    everything = tuple(range(count))
    if count <= FEW:
        for size in range(count + 1):
            yield from combinations(everything, size)
        return
    yield from (everything[:end] for end in range(count + 1))
    yield from (everything[:at] + everything[at + 1 :] for at in range(count - 1))
    yield from ((at,) for at in range(1, count))
    yield from combinations(everything, 2)


def _data(before: Disk, events: list[Event]) -> Iterator[Mapping[int, bytes]]:
    """What the files may hold: all in one way, or one in its way and the others whole."""
    durable, newest = dict(before.data), dict(before.data)
    for event in events:
        if isinstance(event, Written):
            newest[event.inode] = event.data
        elif isinstance(event, Synced) and event.inode in newest:
            durable[event.inode] = newest[event.inode]
    loose = [inode for inode, data in newest.items() if data != durable.get(inode, b"")]
    yield newest
    groups = [[inode] for inode in loose] + ([loose] if len(loose) > 1 else [])
    for group in groups:
        for harm in (_lost, _torn, _zeros):
            harmed = {i: harm(durable.get(i, b""), newest[i]) for i in group}
            yield {**newest, **harmed}


def _lost(before: bytes, after: bytes) -> bytes:
    return before


def _torn(before: bytes, after: bytes) -> bytes:
    kept = _kept(before, after)
    return after[: kept + (len(after) - kept) // 2]


def _zeros(before: bytes, after: bytes) -> bytes:
    kept = _kept(before, after)
    return after[:kept] + bytes(len(after) - kept)


def _kept(before: bytes, after: bytes) -> int:
    """Bytes that stay: what was durable, where the file was only added to."""
    return len(before) if after.startswith(before) else 0
