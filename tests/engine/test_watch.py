"""Hearing of folders: what is told, what is not, and what happens when the kernel loses count."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from engine import watch
from engine.inotify import Ear, Heard
from engine.model import Doorbell
from engine.store import Store, Unavailable
from engine.stores.memory import MemoryStore
from engine.watch import Watch

PATIENCE = 60.0
EVERYTHING = "everything"
NO_TEXT = os.fsdecode(b"\xff\n")
MOST = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be heard, by watches that end soon."""
    monkeypatch.setattr(watch, "CHECK", 0.1)
    made = tmp_path / "pending"
    made.mkdir()
    return made


def heard_of(folder: Path, act: Callable[[], object]) -> Heard:
    """What is heard of a folder while something is done."""
    with closing(Ear([str(folder)])) as ear:
        act()
        return ear.hear()


def moved(folder: Path) -> None:
    """One task's way: in by a rename, written in place, out by a rename."""
    (folder.parent / "new").write_text("1")
    (folder.parent / "new").rename(folder / "task")
    (folder / "task").write_text("2")
    (folder / "task").rename(folder.parent / "old")


def read(folder: Path) -> None:
    """What everybody who looks does."""
    for path in folder.iterdir():
        path.stat()
        path.read_bytes()


HEARD: dict[str, tuple[Callable[[Path], object], set[str] | None]] = {
    "moved": (moved, {"task"}),
    "removed": (lambda folder: (folder / "one").unlink(), {"one"}),
    "chmod": (lambda folder: (folder / "one").chmod(0), {"one"}),
    "linked": (lambda folder: os.link(folder / "one", folder / "two"), {"two"}),
    "no name of text": (lambda folder: (folder / NO_TEXT).touch(), {NO_TEXT}),
    "read": (read, None),
}


@pytest.mark.parametrize("what", HEARD)
def test_what_is_heard(folder: Path, what: str) -> None:
    """Whatever changes a task is heard by its name; that somebody looks and reads is not. Who may
    look into a folder changes without a name, so it is news of everything; a folder that is removed
    is named."""
    act, names = HEARD[what]
    (folder / "one").write_text("1")
    heard = heard_of(folder, lambda: act(folder))
    assert heard == Heard({str(folder): names} if names else {})
    assert heard_of(folder, lambda: folder.chmod(0o700)).lost
    for path in folder.iterdir():
        path.unlink()
    assert heard_of(folder, folder.rmdir).ended == {str(folder)}


def test_more_than_the_kernel_keeps_is_known_to_be_lost(folder: Path) -> None:
    """When events were lost it is said so, never passed over."""

    def storm() -> None:
        for _ in range(int(MOST.read_text()) // 2 + 1):
            (folder / "task").touch()
            (folder / "task").unlink()

    assert heard_of(folder, storm).lost


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process may open nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_hearing_is_an_error(folder: Path) -> None:
    """Where the kernel refuses, or a path cannot be one, an error is raised; a folder that is not
    there yet is no reason not to hear the rest."""
    with no_more_files(), pytest.raises(OSError, match="inotify"):
        Ear([str(folder)])
    with pytest.raises(OSError, match="too long"):
        Ear(["/" + "x" * 300])
    with closing(Ear([str(folder / "none"), str(folder)])) as ear:
        assert ear.folders == {str(folder)}


class Told:
    """What a watch tells, as it tells it."""

    def __init__(self) -> None:
        self.news: SimpleQueue[set[str] | str] = SimpleQueue()

    def next(self) -> set[str] | str:
        """The next thing told; fails when there is none for long."""
        return self.news.get(timeout=PATIENCE)

    def until(self, wanted: set[str] | str) -> list[set[str] | str]:
        """All that is told up to what is wanted."""
        told = [self.next()]
        while told[-1] != wanted:
            told.append(self.next())
        return told


@pytest.fixture
def told(folder: Path) -> Iterator[Told]:
    """What is told of the folder, and of one more that is not there yet."""
    yield from _watched(folder)


def _watched(folder: Path) -> Generator[Told]:
    yield from _following(Doorbell((str(folder), str(folder.with_name("held")))), _no_store)


def _following(doorbell: Doorbell, open_store: Callable[[], Store]) -> Generator[Told]:
    told = Told()
    watch = Watch(doorbell, open_store, told.news.put, lambda: told.news.put(EVERYTHING))
    watch.start(PATIENCE)
    try:
        yield told
    finally:
        watch.stop()
    for thread in threading.enumerate():
        if thread.name == "spooldeck-watch":
            thread.join(PATIENCE)


def _no_store() -> Store:
    raise AssertionError("a doorbell of folders needs no store")


def test_names_are_told(folder: Path, told: Told) -> None:
    """What happens in a folder is told by its name, and nothing is told when nothing happens."""
    read(folder)
    (folder / "task").touch()
    assert told.next() == {"task"}


def test_a_folder_made_anew_is_followed(folder: Path, told: Told) -> None:
    """After a folder was removed and made again everything is looked at, and then it is heard."""
    (folder / "old").touch()
    assert told.next() == {"old"}
    (folder / "old").unlink()
    folder.rmdir()
    folder.mkdir()
    told.until(EVERYTHING)
    _until_heard(folder, told)


def _until_heard(folder: Path, told: Told) -> None:
    """Touch names until one of them is told."""
    for number in range(1000):
        (folder / f"new{number}").touch()
        try:
            news = told.news.get(timeout=0.05)
        except Empty:
            continue
        if isinstance(news, set) and any(name.startswith("new") for name in news):
            return
    raise AssertionError("nothing new is told")


def test_a_folder_made_later_is_followed(folder: Path, told: Told) -> None:
    """A folder that is made later is listed, for what was in it before it was heard."""
    draft = folder.with_name("draft")
    draft.mkdir()
    (draft / "there").touch()
    draft.rename(folder.with_name("held"))
    told.until({"there"})


def test_without_the_kernels_help_the_times_of_folders_tell(folder: Path) -> None:
    """Where no watch is to be had a change is found all the same; all is looked at then."""
    watched = _watched(folder)
    with no_more_files():
        told = next(watched)
    (folder / "task").touch()
    assert told.next() == EVERYTHING
    watched.close()


# ---- a bell that waits


class Tower:
    """What a bell says, in turn, and how often a store had to be opened to hear it."""

    def __init__(self, *says: Collection[str] | Unavailable | None) -> None:
        self._says = list(says)
        self._silence = threading.Event()
        self.opened = 0

    def open(self) -> Store:
        """A store whose bell says the next of it, and then nothing more."""
        self.opened += 1
        store = MemoryStore()
        store.doorbell = Doorbell(wait=self._wait)
        return store

    def _wait(self, seconds: float) -> Collection[str] | None:
        if not self._says:
            self._silence.wait(seconds)
            return ()
        says = self._says.pop(0)
        if isinstance(says, Unavailable):
            raise says
        return says


def told_by(tower: Tower, count: int) -> list[set[str] | str]:
    """The first things that are told of what a bell says."""
    with contextmanager(_following)(tower.open().doorbell, tower.open) as told:
        return [told.next() for _ in range(count)]


def test_a_bell_that_names_what_changed_is_passed_on() -> None:
    """Names are told as they are; where a bell cannot name what has changed, it is everything."""
    tower = Tower((), {"one"}, (), None, ["two", "two"])
    assert told_by(tower, 3) == [{"one"}, EVERYTHING, {"two"}]
    assert tower.opened == 2


def test_what_happened_while_a_bell_was_deaf_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bell failed everything is looked at, and once more when it is heard again."""
    monkeypatch.setattr(watch, "RETRY", 0.0)
    tower = Tower((), {"one"}, Unavailable("locked"), (), {"two"})
    assert told_by(tower, 4) == [{"one"}, EVERYTHING, EVERYTHING, {"two"}]
    assert tower.opened == 3
