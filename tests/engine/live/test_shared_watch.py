"""Folder events and their fallbacks: names, folders made again, names not UTF-8, polling."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pytest import MonkeyPatch

from engine.formats.base.memory import MemoryStore
from engine.live import folder_watch, shared_watch
from engine.live.folder_watch import FolderWatch
from engine.model import ChangeSource
from engine.store import Store, Unavailable
from engine.system import mounts

PATIENCE = 60.0
EVERYTHING = "everything"
NO_TEXT = os.fsdecode(b"\xff\n")
MOST = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """A folder to be heard, by watches that end soon."""
    monkeypatch.setattr(shared_watch, "CHECK_SECONDS", 0.1)
    made = tmp_path / "pending"
    made.mkdir()
    return made


def events_of(folder: Path, act: Callable[[], object]) -> shared_watch.FolderEvents:
    """The events of a folder while something is done."""
    with closing(shared_watch.FolderEventSource([str(folder)])) as events:
        act()
        return events.wait(0.3)


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


CHANGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "moved": (moved, {"task"}),
    "removed": (lambda folder: (folder / "one").unlink(), {"one"}),
    "chmod": (lambda folder: (folder / "one").chmod(0), {"one"}),
    "linked": (lambda folder: os.link(folder / "one", folder / "two"), {"two"}),
    "read": (read, set()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_file_is_reported_by_its_name(folder: Path, what: str) -> None:
    """Each change of a file is reported by its name; listing and reading is not a change."""
    act, names = CHANGES[what]
    (folder / "one").write_text("1")
    events = shared_watch.FolderEvents({str(folder): names} if names else {})
    assert events_of(folder, lambda: act(folder)) == events


def test_a_change_of_the_folder_itself_may_change_any_name(folder: Path) -> None:
    """A folder whose mode changed, or that was removed, is reported as lost."""
    assert events_of(folder, lambda: folder.chmod(0o700)).folders == {str(folder)}
    assert events_of(folder, folder.rmdir).folders == {str(folder)}


@pytest.mark.parametrize("all_read", [True, False])
def test_many_changes_together_may_lack_names(
    folder: Path, tmp_path: Path, monkeypatch: MonkeyPatch, all_read: bool
) -> None:
    """Changes that fill a good part of the kernel's event queue may not be all; a few are."""
    (tmp_path / "limit").write_text(f"{100 * shared_watch.EVENTS_PER_CHANGE}")
    monkeypatch.setattr(shared_watch, "QUEUE_LIMIT", str(tmp_path / "limit"))
    names, may_lack = set[str](), False
    expected = {str(number) for number in range(9 if all_read else 3000)}
    with closing(shared_watch.FolderEventSource([str(folder)])) as events:
        for name in expected:
            (folder / name).touch()
        while not expected <= names:  # on a busy machine they come in several answers
            answer = events.wait(10.0)
            assert answer.names, f"no event for {len(expected - names)} files"
            names |= answer.names.get(str(folder), set())
            may_lack |= answer.may_lack_names
    assert may_lack is not all_read


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


def test_a_refused_watch_is_an_oserror(folder: Path) -> None:
    """If the kernel refuses a watch an OSError is raised; a folder that is missing is skipped."""
    with no_more_files(), pytest.raises(OSError):
        shared_watch.FolderEventSource([str(folder)])
    with closing(shared_watch.FolderEventSource([str(folder / "none"), str(folder)])) as events:
        assert events.folders == {str(folder)}


class WatchReports(SimpleQueue[set[str] | str]):
    """The news of a watch, in its order."""

    def next(self) -> set[str] | str:
        """The next news; fails when there is none for long."""
        return self.get(timeout=PATIENCE)

    def until(self, expected: set[str] | str) -> None:
        """Wait for some news."""
        while self.next() != expected:
            pass


@contextmanager
def following(
    changes: ChangeSource, open_store: Callable[[], Store] = Store, **how: Any
) -> Iterator[WatchReports]:
    """The news of a watch of this source of changes; one of folders needs no store."""
    reports, is_shown = WatchReports(), how.pop("is_shown", True)
    how |= {"everything": lambda: reports.put(EVERYTHING), "is_shown": lambda: is_shown}
    watch = FolderWatch(changes, open_store, reports.put, **how)
    watch.start(PATIENCE)
    try:
        yield reports
    finally:
        watch.stop()
    if "shared" not in how:
        join_threads()


def join_threads() -> None:
    """Wait for the threads that watch."""
    for thread in watch_threads():
        thread.join(PATIENCE)


def watching(folder: Path, **how: Any) -> AbstractContextManager[WatchReports]:
    """The news of the folder, and of one more that is not there yet."""
    return following(ChangeSource((str(folder), str(folder.with_name("held")))), **how)


def watch_threads() -> list[threading.Thread]:
    """The threads that watch."""
    return [thread for thread in threading.enumerate() if thread.name == "spooldeck-watch"]


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_folder_is_followed_by_names(folder: Path, is_shown: bool) -> None:
    """A change has its name; a folder removed and made again is scanned, then followed."""
    with watching(folder, is_shown=is_shown) as reports:
        read(folder)
        (folder / "old").touch()
        assert reports.next() == {"old"}
        (folder / "old").unlink()
        folder.rmdir()
        folder.mkdir()
        reports.until(EVERYTHING)
        for number in range(1000):
            (folder / f"new{number}").touch()
            with suppress(Empty):
                news = reports.get(timeout=0.05)
                if isinstance(news, set) and any(name.startswith("new") for name in news):
                    return
        raise AssertionError("nothing new is reported")


def test_places_share_one_thread_until_the_last(folder: Path, monkeypatch: MonkeyPatch) -> None:
    """Each gets its own changes; a name not UTF-8 ends the names of its own folder only."""
    monkeypatch.setattr(mounts, "may_hang", lambda path: False)  # as on a local disk
    shared, other = shared_watch.SharedFolderWatch(), folder / "other"
    other.mkdir()
    with watching(folder, shared=shared) as reports:
        with watching(other, shared=shared) as others:
            (folder / "one").touch()
            (other / "two").touch()
            assert (reports.next(), others.next()) == ({"one"}, {"two"})
            assert len(watch_threads()) == 1
            (other / NO_TEXT).touch()
            others.until(EVERYTHING)
            (other / "task").touch()
            others.until(EVERYTHING)
            (folder / "three").touch()
            reports.until({"three"})
        (folder / "four").touch()
        reports.until({"four"})
    join_threads()
    assert watch_threads() == []


def test_a_change_right_after_a_report_is_not_lost_with_its_event(folder: Path) -> None:
    """A name not UTF-8 ends the watch, and is found even if the folder's time was read after it."""
    reports, shared = SimpleQueue[str](), shared_watch.SharedFolderWatch()

    def touched(names: set[str]) -> None:
        (folder / NO_TEXT).touch()
        reports.put(names.pop())

    place = shared_watch.WatchedFolders(
        [str(folder)], touched, lambda: reports.put(EVERYTHING), lambda: True
    )
    leave = shared.follow(place, PATIENCE)
    (folder / "one").touch()
    assert [reports.get(timeout=PATIENCE) for _ in range(2)] == ["one", EVERYTHING]
    leave()
    join_threads()


def test_folders_in_a_folder_made_later_are_followed(folder: Path) -> None:
    """Missing folders in a missing one are found when that one appears, and each after it."""
    above = folder / "A"
    source = ChangeSource(tuple(map(str, (folder, above, above / "B", above / "C"))))
    with following(source) as reports:
        above.mkdir()
        (above / "B").mkdir()
        (above / "B" / "there").touch()
        reports.until({"there"})
        (above / "C").mkdir()
        (above / "C" / "later").touch()
        reports.until({"later"})


def test_a_folder_made_during_the_start_is_followed(folder: Path, monkeypatch: MonkeyPatch) -> None:
    """It has no event; it is followed also if the time of the folder above is old."""
    made = iter([folder / "made"])
    begin_thread = shared_watch._require_thread

    def make_folder() -> None:
        for path in made:
            path.mkdir()
            os.utime(folder, (0, 0))
        begin_thread()

    monkeypatch.setattr(shared_watch, "_require_thread", make_folder)
    source = ChangeSource((str(folder), str(folder / "made")))
    with following(source) as reports:
        (folder / "made" / "new").touch()
        reports.until({"new"})


def test_a_folder_whose_path_is_not_utf8_is_followed_by_its_time(folder: Path) -> None:
    """watchfiles cannot watch such a path; each change in it causes a full scan."""
    inside = folder / NO_TEXT
    inside.mkdir()
    with watching(inside) as reports:
        (inside / "task").touch()
        assert reports.next() == EVERYTHING


def test_events_that_the_kernel_dropped_cost_one_full_scan(folder: Path) -> None:
    """More changes than the kernel's event queue holds are found by the folder's time."""
    with watching(folder) as reports:
        for number in range(int(MOST.read_text()) + 1):
            (folder / str(number)).touch()
        (folder / "0").unlink()
        names: set[str] = set()
        while len(names) <= int(MOST.read_text()):
            news = reports.next()
            if news == EVERYTHING:
                news = {path.name for path in folder.iterdir()} | {"0"}
            names |= set(news)


def test_without_inotify_the_times_of_folders_count(folder: Path) -> None:
    """Where no watch can be had a change is found all the same; all is scanned then."""
    with ExitStack() as stack, no_more_files():
        reports = stack.enter_context(watching(folder))
        os.utime(folder, (1, 1))  # as a change does; needs no descriptor
        assert reports.next() == EVERYTHING


def test_a_watch_loads_only_what_it_uses() -> None:
    """It loads the compiled part of watchfiles without the package, which can still be imported."""
    program = """if True:
        import sys
        from engine.live.shared_watch import FolderEventSource
        FolderEventSource(["/"]).close()
        assert not {"watchfiles", "multiprocessing"} & sys.modules.keys()
        import watchfiles
        assert watchfiles.main.RustNotify is sys.modules["watchfiles._rust_notify"].RustNotify"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("other", [ModuleType("other"), None])
def test_an_unknown_watchfiles_is_replaced_by_polling(
    folder: Path, other: ModuleType | None, monkeypatch: MonkeyPatch
) -> None:
    """A version without the names that are used, or none at all, costs only the events."""
    monkeypatch.setitem(sys.modules, "watchfiles._rust_notify", other)
    monkeypatch.setattr(shared_watch, "PathFinder", SimpleNamespace(find_spec=lambda *_: None))
    with watching(folder) as reports:
        (folder / "new").touch()
        assert reports.next() == EVERYTHING


class Tower:
    """What a bell says, in turn, and how often a store had to be opened to hear it."""

    def __init__(self, *answers: Collection[str] | Unavailable | None) -> None:
        self._says = list(answers)
        self._silence = threading.Event()
        self.opened = 0

    def open(self) -> Store:
        """A store whose bell says the next of it, and then nothing more."""
        self.opened += 1
        store = MemoryStore()
        store.changes = ChangeSource(wait=self._wait)
        return store

    def _wait(self, seconds: float) -> Collection[str] | None:
        if not self._says:
            self._silence.wait(seconds)
            return ()
        answer = self._says.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer


@pytest.mark.parametrize(("answers", "news", "opened"), [
    (((), {"one"}, (), None, ["two", "two"]), [{"one"}, EVERYTHING, {"two"}], 2),
    (((), {"one"}, Unavailable("locked"), (), {"two"}),
     [{"one"}, EVERYTHING, EVERYTHING, {"two"}], 3),
], ids=["unnamed", "failed"])  # fmt: skip
def test_names_of_a_change_source_are_passed_on(
    monkeypatch: MonkeyPatch, answers: Any, news: list[set[str] | str], opened: int
) -> None:
    """What a bell cannot name is everything; so it is after it failed, and when it is back."""
    monkeypatch.setattr(folder_watch, "RETRY_SECONDS", 0.0)
    tower = Tower(*answers)
    with following(tower.open().changes, tower.open) as reports:
        assert [reports.next() for _ in news] == news
    assert tower.opened == opened
