"""A model of a disk whose power may fail: what was done to files, and what of it may be left.

The model is `atomic`: each change of a folder (create, rename, link, unlink, mkdir) is kept whole
or lost whole, in any order, until one of the folders that it touches is fsynced; a file's data is
kept, lost, half there or there as zeros until the file is fsynced; of a file that was only added
to, that holds for the addition. This is less than any journaling file system promises. Not
modelled: modes, owners, times, writing by mmap."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from engine.system import files

Name: TypeAlias = tuple[int, str]
"""A name in a folder: the folder's inode and the name."""
Call: TypeAlias = Callable[..., Any]

FEW = 5
"""So many undurable changes of folders are lost and kept in every combination; of more, only none,
all, every prefix, each one, all but each one, and each pair."""


class Changed(NamedTuple):
    """Names that came, went or were exchanged in one step; None: removed."""

    entries: Mapping[Name, int | None]


class Written(NamedTuple):
    """The whole content of a file, once it was written to or truncated."""

    inode: int
    data: bytes


class Synced(NamedTuple):
    """A file or folder of which everything so far is durable."""

    inode: int


class Answered(NamedTuple):
    """A step was reported as done."""

    step: int


Event: TypeAlias = Changed | Written | Synced | Answered


class Disk(NamedTuple):
    """All names, and the content of all files."""

    root: int
    entries: Mapping[Name, int]
    data: Mapping[int, bytes]
    folders: frozenset[int]

    def contents(self) -> dict[str, object]:
        """Return what can be reached, by path: bytes, None for a folder, a path for a hard link."""
        by_name: dict[str, object] = {}
        first: dict[int, str] = {}

        def visit(folder: int, path: str) -> None:
            for (parent, name), inode in sorted(self.entries.items()):
                child = f"{path}{name}"
                if parent != folder:
                    continue
                if inode in self.folders:
                    by_name[child] = None
                    visit(inode, f"{child}/")
                elif inode in first:
                    by_name[child] = Path(first[inode])
                else:
                    first[inode] = child
                    by_name[child] = self.data.get(inode, b"")

        visit(self.root, "")
        return by_name


def write_out(contents: Mapping[str, object], root: str) -> None:
    """Make real folders and files of it, in a new folder."""
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
    """Return what is below a real folder."""
    entries: dict[Name, int] = {}
    data: dict[int, bytes] = {}
    folders = {Path(root).stat().st_ino}
    for path, below, names in os.walk(root):
        here = Path(path).stat().st_ino
        for name in below + names:
            entry = Path(path, name)
            entries[here, name] = inode = entry.stat().st_ino
            if entry.is_dir():
                folders.add(inode)
            else:
                data[inode] = entry.read_bytes()
    return Disk(Path(root).stat().st_ino, entries, data, frozenset(folders))


class Recording:
    """Everything that is done below a folder through `engine.system.files`, while in `recorded`."""

    def __init__(self, root: str, lies: Callable[[str], bool] = lambda path: False) -> None:
        """`lies`: of which paths an fsync is not carried out, though it reports success."""
        self.before = read_in(root)
        self.events: list[Event] = []
        self._lies = lies
        self._entries = dict(self.before.entries)
        self._data = dict(self.before.data)
        self._folders = set(self.before.folders)
        # While it is open, no inode's number is reused; O_PATH disturbs no flock.
        self._held = [
            os.open(Path(path, name), os.O_PATH | os.O_NOFOLLOW)
            for path, below, names in os.walk(root)
            for name in below + names
        ]

    def close(self) -> None:
        """Close the files that it holds open."""
        for fd in self._held:
            os.close(fd)
        self._held = []

    def after(self) -> Disk:
        """Return what is there now, by the events."""
        return Disk(self.before.root, self._entries, self._data, frozenset(self._folders))

    # What notes each call of `engine.system.files`, and `os.open`.

    def _rename(self, call: Call, old: str, new: str, **options: Any) -> None:
        start = self._name(old, options.get("src_dir_fd"))
        end = self._name(new, options.get("dst_dir_fd"))
        call(old, new, **options)
        self._change({end: self._entries.get(start), start: None})

    def _link(self, call: Call, old: str, new: str, **options: Any) -> None:
        start = self._name(old, options.get("src_dir_fd"))
        call(old, new, **options)
        self._change({self._name(new, options.get("dst_dir_fd")): self._entries.get(start)})

    def _unlink(self, call: Call, path: str, **options: Any) -> None:
        call(path, **options)
        self._change({self._name(path, options.get("dir_fd")): None})

    def _mkdir(self, call: Call, path: str, *rest: Any, **options: Any) -> None:
        call(path, *rest, **options)
        inode = self._hold(os.open(path, os.O_PATH, dir_fd=options.get("dir_fd")))
        self._folders.add(inode)
        self._change({self._name(path, options.get("dir_fd")): inode})

    def _open(self, call: Call, path: str, flags: int, *rest: Any, **options: Any) -> int:
        name = self._name(path, options.get("dir_fd")) if flags & os.O_CREAT else (0, "")
        fd: int = call(path, flags, *rest, **options)
        if name[0] in self._folders:
            if name not in self._entries:
                inode = self._hold(call(f"/proc/self/fd/{fd}", os.O_PATH))
                self._data[inode] = b""
                self._change({name: inode})
            elif flags & os.O_TRUNC:
                self._wrote(fd)
        return fd

    def _write(self, call: Call, fd: int, data: bytes) -> int:
        done: int = call(fd, data)
        self._wrote(fd)
        return done

    def _ftruncate(self, call: Call, fd: int, size: int) -> None:
        call(fd, size)
        self._wrote(fd)

    def _fsync(self, call: Call, fd: int) -> None:
        call(fd)
        if not self._lies(str(Path(f"/proc/self/fd/{fd}").readlink())):
            self.events.append(Synced(os.fstat(fd).st_ino))

    def _hold(self, fd: int) -> int:
        self._held.append(fd)
        return os.fstat(fd).st_ino

    def _name(self, path: str, dir_fd: int | None) -> Name:
        folder, name = os.path.split(path)
        return os.stat(folder or ".", dir_fd=dir_fd).st_ino, name

    def _change(self, entries: Mapping[Name, int | None]) -> None:
        inodes = {name: inode for name, inode in entries.items() if name[0] in self._folders}
        _apply(inodes, self._entries)
        if inodes:
            self.events.append(Changed(inodes))

    def _wrote(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        if inode in self._data:
            self._data[inode] = data = Path(f"/proc/self/fd/{fd}").read_bytes()
            self.events.append(Written(inode, data))


def _apply(change: Mapping[Name, int | None], entries: dict[Name, int]) -> None:
    for name, inode in change.items():
        if inode is None:
            entries.pop(name, None)
        else:
            entries[name] = inode


SEEN = ("rename", "link", "unlink", "mkdir", "write", "ftruncate", "fsync")
"""The names of engine.system.files that a recording sees; creation it sees in os.open."""


@contextmanager
def recorded(recording: Recording) -> Iterator[Recording]:
    """Record every change of a file in this process."""
    before = {(files, name): getattr(files, name) for name in SEEN} | {(os, "open"): os.open}

    def noted(name: str, call: Call) -> Call:
        note = getattr(recording, f"_{name}")
        return lambda *args, **options: note(call, *args, **options)

    for (module, name), call in before.items():
        setattr(module, name, noted(name, call))
    try:
        yield recording
    finally:
        for (module, name), call in before.items():
            setattr(module, name, call)
        recording.close()


def remains(before: Disk, events: list[Event], folders: frozenset[int]) -> Iterator[Disk]:
    """Return every disk that a power cut after these events may leave."""
    durable: list[tuple[int, Changed]] = []
    loose: list[tuple[int, Changed]] = []
    synced: set[int] = set()
    for at, event in reversed(list(enumerate(events))):
        if isinstance(event, Synced):
            synced.add(event.inode)
        elif isinstance(event, Changed):
            touched = {folder for folder, _ in event.entries}
            (durable if touched & synced else loose).insert(0, (at, event))
    for subset in _subsets(len(loose)):
        entries = dict(before.entries)
        for _, change in sorted(durable + [loose[at] for at in subset]):
            _apply(change.entries, entries)
        for data in _data(before, events):
            yield Disk(before.root, entries, data, folders)


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
    """Return what files may hold: all or one lost, torn or zeros, and the others whole."""
    durable, newest = dict(before.data), dict(before.data)
    for event in events:
        if isinstance(event, Written):
            newest[event.inode] = event.data
        elif isinstance(event, Synced) and event.inode in newest:
            durable[event.inode] = newest[event.inode]
    loose = [inode for inode, data in newest.items() if data != durable.get(inode, b"")]
    yield newest
    for group in [[inode] for inode in loose] + ([loose] if len(loose) > 1 else []):
        harms = [_harmed(durable.get(inode, b""), newest[inode]) for inode in group]
        for harm in zip(*harms, strict=True):
            yield {**newest, **dict(zip(group, harm, strict=True))}


def _harmed(before: bytes, after: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a file whose write was lost, torn, or left as zeros."""
    kept_bytes = len(before) if after.startswith(before) else 0
    size = len(after) - kept_bytes
    return before, after[: kept_bytes + size // 2], after[:kept_bytes] + bytes(size)
