"""The inspector: follows a store through any change, and never blocks the event loop."""

import asyncio
import itertools
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import MonkeyPatch

from engine import verbs
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.nftban.task_format import new_record, render_task
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.index import backlog
from engine.index.backlog import BacklogSummary
from engine.index.filter_language import parse_filter
from engine.index.reader import Reader
from engine.index.schema import Query
from engine.live import index_sync, queries, shared_watch
from engine.live import inspector as inspector_module
from engine.live.inspector import IndexChanged, Inspector
from engine.model import ChangeSource, Missing, Problem, State, Task, attempts_allowed
from engine.store import Control, Gone, Store, Unavailable
from engine.system.temp_dir import PREFIX
from tests.engine.task_builders import NOW, Clock, a_task, clock
from tests.examples import examples
from tests.open_store import open_store
from tests.store_contents import found
from tests.zmailer_spool import Spool, recipient, write_lock

pytestmark = pytest.mark.usefixtures("nothing_blocks")
FOLDERS = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}
PATIENCE = 60
"""Seconds after which a test gives up; nothing here takes one when all is well."""

Seen = Iterator[Task | Missing | Problem]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty spool."""
    return a_spool(tmp_path / "spool")


def a_spool(place: Path, count: int = 0, word: str = "pending") -> Path:
    """Make a spool, if it is not there, and put so many tasks into one of its folders."""
    for name in FOLDERS.values():
        (place / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        write(place / word, a_task(number))
    return place


def write(folder: Path, task: Task) -> Path:
    """Put a task's file into a folder, whole, as another program would."""
    draft = folder.parent / "draft"
    draft.write_bytes(render_task(new_record(task)))
    return draft.rename(folder / f"{task.id}.task")


def file_of(place: Path, number: int, state: State = State.PENDING) -> Path:
    """Where a task's file is, or would be."""
    return place / FOLDERS[state] / f"{a_task(number).id}.task"


def listed(folder: Path) -> list[str]:
    """Names in a folder."""
    return [path.name for path in folder.iterdir()]


@asynccontextmanager
async def inspecting(
    opener: Path | Callable[[], Store],
    is_expected: Callable[[IndexChanged], bool] = lambda changed: True,
    folder: Path | None = None,
    clock: Callable[[], float] = clock,
) -> AsyncIterator[Inspector]:
    """An inspector from its start, or the changes that are waited for, to its close."""
    opened = (lambda: open_store(str(opener))) if isinstance(opener, Path) else opener
    inspector = Inspector(
        opened, clock=clock, folder=None if folder is None else str(folder), limit=attempts_allowed
    )
    async with asyncio.timeout(PATIENCE):
        await inspector.start()
        try:
            await until(inspector, is_expected)
            yield inspector
        finally:
            await inspector.close()


async def until(inspector: Inspector, is_expected: Callable[[IndexChanged], bool]) -> IndexChanged:
    """Wait for changes until they are as wanted."""
    changed = inspector.latest
    while not is_expected(changed):
        changed = await inspector.wait_for_change(changed.generation)
    return changed


def is_complete(changed: IndexChanged) -> bool:
    """Whether everything was seen and can be reached."""
    return changed.is_complete and not changed.unavailable


def is_unavailable(changed: IndexChanged) -> bool:
    """Whether the place or the index cannot be reached."""
    return bool(changed.unavailable)


def counts(**wanted_values: int) -> Callable[[IndexChanged], bool]:
    """Whether everything was seen, with so many tasks in these states and none in others."""
    expected = {State(word): count for word, count in wanted_values.items()}

    def is_so(changed: IndexChanged) -> bool:
        return is_complete(changed) and {s: n for s, n in changed.counts.items() if n} == expected

    return is_so


async def all_of(inspector: Inspector, words: str = "") -> list[Task]:
    """Every task, or every one that a filter finds."""
    query = Query(filter=parse_filter(words))
    return list((await inspector.queries.window(query, 0, 100_000)).tasks)


def stored(place: Path) -> list[Task]:
    """All tasks of a spool, as its store reads them."""
    store = open_store(str(place))
    tasks = {(task.id, task.state): task for task in store.scan() if isinstance(task, Task)}
    store.close()
    return [tasks[key] for key in sorted(tasks)]


def hooked(
    hook: Callable[[Seen, Collection[str] | None], Seen], memory: MemoryTasks | None = None
) -> MemoryStore:
    """A store whose look goes through a hook, which also gets the names that were asked for."""
    store = MemoryStore(memory or MemoryTasks())
    scan = store.scan
    store.scan = lambda touched=None: hook(scan(touched), touched)  # type: ignore[method-assign]
    return store


async def test_a_spool_is_counted_listed_and_searched_by_id(place: Path) -> None:
    """Tasks are counted in the store's words; one is found by id until its file is deleted."""
    a_spool(place, 600)
    write(place / "dlq", a_task(5_000))
    ident = a_task(30).id
    async with inspecting(place, counts(pending=600, dead=1)) as inspector:
        assert inspector.states[State.DEAD] == "dlq"
        assert (State.DEAD, State.PENDING) in inspector.edges
        assert await all_of(inspector) == await asyncio.to_thread(stored, place)
        task = await inspector.queries.task(ident)
        assert task is not None
        newest_first = Query(State.PENDING, order="created", descending=True)
        for query, position in ((Query(), 30), (newest_first, 569), (Query(State.DEAD), None)):
            assert await inspector.queries.find(query, ident) == position
        assert await inspector.queries.task("absent") is None
        assert await inspector.queries.matching_ids(Query(), {ident, "absent"}) == {ident}
        assert await inspector.actions.read(task) == file_of(place, 30).read_bytes()
        file_of(place, 30).unlink()
        with pytest.raises(Gone):
            await inspector.actions.read(task)


def slow_scans(going: threading.Semaphore) -> Callable[[], Store]:
    """Opens stores of 300 tasks, whose full scans wait for the semaphore before each."""
    memory = MemoryTasks()
    with memory.condition:
        for at in range(300):
            memory.put(("", f"t{at:04}"), a_task(at, id=f"t{at:04}"))

    def slowly(seen: Seen, touched: Collection[str] | None) -> Seen:
        for item in seen:
            if touched is None:
                going.acquire()
            yield item

    return lambda: hooked(slowly, memory)


async def test_rows_are_shown_before_a_first_scan_ends_and_it_can_be_stopped() -> None:
    """A stopped scan shows a part; started again, it ends with all tasks."""
    going = threading.Semaphore(120)
    async with inspecting(slow_scans(going)) as inspector:
        first = await until(inspector, lambda changed: sum(changed.counts.values()) > 0)
        assert not first.is_complete
        assert (await inspector.queries.window(Query(State.PENDING), 0, 40)).tasks
        inspector.stop_first_scan()
        going.release(110)  # the halt is seen after at most 100 rows
        stopped = await until(inspector, lambda changed: changed.is_stopped)
        assert 0 < sum(stopped.counts.values()) < 300
        assert not stopped.is_complete
        going.release(1000)
        await inspector.scan_now()
        latest = inspector.latest
        assert (latest.is_complete, latest.is_stopped, latest.appeared) == (True, False, 0)
        assert sum(latest.counts.values()) == 300


async def test_the_first_rows_wait_for_no_period(monkeypatch: MonkeyPatch) -> None:
    """A report before them, of the facts of the store, does not delay them."""
    monkeypatch.setattr("engine.live.inspector.FIRST_SCAN_PERIOD_SECONDS", 3600.0)
    going = threading.Semaphore(0)
    async with inspecting(slow_scans(going), lambda changed: changed.generation > 0) as inspector:
        assert inspector.latest.indexed == 0
        going.release(120)
        first = await until(inspector, lambda changed: changed.indexed > 0)
        assert not first.is_complete
        going.release(1000)


async def test_changes_of_a_spool_are_counted(place: Path) -> None:
    """A task comes, moves and leaves; a broken file is a problem until it is repaired."""
    write(place / "pending", a_task(1))
    async with inspecting(place, counts(pending=1)) as inspector:
        file_of(place, 1).rename(file_of(place, 1, State.ACTIVE))
        changed = await until(inspector, counts(active=1))
        assert (changed.appeared, changed.departed) == (0, 0)
        path = write(place / "pending", a_task(2))
        write(place / "pending", a_task(3))
        await until(inspector, counts(pending=2, active=1))
        file_of(place, 2).rename(file_of(place, 2, State.DEAD))
        await until(inspector, lambda changed: changed.died == 1)
        file_of(place, 2, State.DEAD).rename(file_of(place, 2))
        file_of(place, 1, State.ACTIVE).unlink()
        changed = await until(inspector, lambda changed: changed.departed == 1)
        assert changed.died == 1
        assert (changed.appeared, changed.counts[State.PENDING]) == (2, 2)
        await inspector.scan_now()
        assert (inspector.latest.appeared, inspector.latest.departed) == (2, 1)

        (place / "dlq" / "stranger").write_bytes(b"")
        await until(inspector, lambda changed: changed.problems == 1)
        good = path.read_bytes()
        path.write_bytes(good[:40])
        await until(inspector, lambda changed: changed.problems == 2)
        where = [problem.where for problem in await inspector.queries.problems()]
        assert where == ["dlq/stranger", f"pending/{path.name}"]
        path.write_bytes(good)
        await until(inspector, lambda changed: changed.problems == 1)
        assert [task.id for task in await all_of(inspector)] == [a_task(n).id for n in (2, 3)]


async def test_reports_keep_their_distance(place: Path) -> None:
    """However many changes happen, two reports are at least 0.1 s apart."""
    async with inspecting(place, is_complete) as inspector:
        changed, times = inspector.latest, []
        for number in range(6):
            write(place / "pending", a_task(number))
            changed = await inspector.wait_for_change(changed.generation)
            times.append(inspector._reported_at)  # the test itself may be scheduled late
    assert min(after - before for before, after in itertools.pairwise(times)) >= 0.099


A_MOVE = st.tuples(st.integers(0, 6), st.sampled_from([*FOLDERS, None]))
MOVES = st.lists(A_MOVE, min_size=1, max_size=25)


@pytest.mark.deep
@given(rounds=st.lists(MOVES, min_size=1, max_size=3), initially=st.integers(0, 5))
@examples(8)
def test_any_change_by_others_is_followed(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[tuple[int, State | None]]],
    initially: int,
) -> None:
    """After any moves, arrivals and deletions, the index equals the store."""
    place = a_spool(tmp_path_factory.mktemp("moves") / "spool", initially)

    def move(number: int, goal: State | None) -> None:
        paths = [file_of(place, number, state) for state in FOLDERS]
        file_path = next((path for path in paths if path.exists()), None)
        if goal is None and file_path is not None:
            file_path.unlink()
        elif goal is not None and file_path is not None:
            file_path.rename(file_of(place, number, goal))
        elif goal is not None:
            write(place / FOLDERS[goal], a_task(number))

    async def follow() -> None:
        async with inspecting(place, is_complete) as inspector:
            for moves in rounds:
                for number, goal in moves:
                    move(number, goal)
                truth = await asyncio.to_thread(stored, place)
                before = inspector.latest.generation
                while await all_of(inspector) != truth:
                    before = (await inspector.wait_for_change(before)).generation
            expected = sum(inspector.latest.counts.values()) - initially
            await until(inspector, lambda changed: changed.appeared - changed.departed == expected)

    asyncio.run(follow())


SCRIPT = """
import asyncio, resource, sys
from engine.live.inspector import Inspector
from engine.model import attempts_allowed
from tests.open_store import open_store

async def main():
    folder = sys.argv[2]
    inspector = Inspector(lambda: open_store(sys.argv[1]), folder=folder, limit=attempts_allowed)
    limit, infinity = int(sys.argv[3]), resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit or infinity, infinity))
    await inspector.start()
    changed = inspector.latest
    async def until(wanted):
        nonlocal changed
        while not wanted():
            changed = await inspector.wait_for_change(changed.generation)
        counts = {str(state): count for state, count in changed.counts.items() if count}
        print(changed.unavailable or counts, flush=True)
    if limit:
        await until(lambda: changed.unavailable)
        resource.setrlimit(resource.RLIMIT_FSIZE, (infinity, infinity))
    await until(lambda: changed.is_complete and not changed.unavailable)
    if not limit:
        await until(lambda: "pending" not in {str(s) for s, n in changed.counts.items() if n})
    await inspector.close()

asyncio.run(main())
"""
"""A console of a spool, with an index folder and a limit of bytes a file that is lifted later."""


@pytest.mark.deep
def test_lost_events_are_made_up_for(tmp_path: Path) -> None:
    """A console that was stopped while the kernel's event queue overflowed sees every change."""
    # Each of them moves once: the names of the last moves are only in events that were dropped.
    place = a_spool(tmp_path / "spool", 9_000)
    argv = [sys.executable, "-c", SCRIPT, str(place), str(tmp_path), "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "{'pending': 9000}\n"
        process.send_signal(signal.SIGSTOP)
        for path in sorted((place / "pending").iterdir()):
            path.rename(place / "dlq" / path.name)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read().splitlines()[-1] == "{'dead': 9000}"
        assert process.wait(PATIENCE) == 0


@pytest.mark.deep
def test_a_full_disk_is_reported_in_words(tmp_path: Path) -> None:
    """If the index cannot grow, a report says so; once there is space it is filled again."""
    place, folder = a_spool(tmp_path / "spool", 3_000), tmp_path / "temporary"
    folder.mkdir()
    argv = [sys.executable, "-c", SCRIPT, str(place), str(folder), "400000"]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE)
    report, total = ran.stdout.splitlines()
    assert report.startswith(f"the index in {folder}")
    assert (total, list(folder.iterdir())) == ("{'pending': 3000}", [])


async def test_a_place_that_is_missing_or_vanishes_is_reported_and_followed_later(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """Acting on it meanwhile changes nothing and raises Unavailable."""
    monkeypatch.setattr(index_sync, "RETRY_SECONDS", 0.1)
    place = tmp_path / "spool"
    async with inspecting(place, is_unavailable) as inspector:
        assert str(place) in inspector.latest.unavailable
        empty = await inspector.queries.window(Query(), 0, 10)
        assert (empty.tasks, empty.total) == ((), 0)
        a_spool(place, 3)
        await until(inspector, counts(pending=3))
        plan = await inspector.queries.make_plan("purge", None, Query())
        place.rename(tmp_path / "aside")
        with pytest.raises(Unavailable):
            await inspector.actions.apply_plan(plan)
        await until(inspector, is_unavailable)
        a_spool(place, 5)
        await until(inspector, counts(pending=5))
        write(place / "pending", a_task(7))
        await until(inspector, counts(pending=6))


async def test_a_missing_temporary_folder_is_reported_in_words(
    place: Path, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """If the index cannot be made, a report says so, and it is made once that is repaired."""
    monkeypatch.setattr(index_sync, "RETRY_SECONDS", 0.1)
    write(place / "pending", a_task(1))
    folder = tmp_path / "temporary"
    folder.write_text("in the way")
    async with inspecting(place, is_unavailable, folder) as inspector:
        assert str(folder) in inspector.latest.unavailable
        folder.unlink()
        folder.mkdir()
        await until(inspector, counts(pending=1))


async def test_a_bug_is_raised_to_who_waits() -> None:
    """An unexpected exception of a store reaches the caller that waits for changes."""

    def broken(seen: Seen, touched: Collection[str] | None) -> Seen:
        raise ZeroDivisionError("a mistake")

    async with inspecting(lambda: hooked(broken)) as inspector:
        with pytest.raises(ZeroDivisionError):
            await until(inspector, is_complete)


async def test_the_close_leaves_nothing_and_ends_every_wait(
    place: Path, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """There is no folder and no thread; waiting and asking raise Unavailable."""
    monkeypatch.setattr(shared_watch, "CHECK_SECONDS", 0.1)
    folder = tmp_path / "temporary"
    folder.mkdir()
    others = set(threading.enumerate())
    async with inspecting(place, is_complete, folder) as inspector:
        await all_of(inspector, "job")
        assert [name.startswith(PREFIX) for name in listed(folder)] == [True]
        waiting = asyncio.ensure_future(inspector.wait_for_change(1_000_000))
    assert listed(folder) == []
    await asyncio.to_thread(_join, others)
    for call in (waiting, inspector.queries.window(Query(), 0, 10)):
        with pytest.raises(Unavailable, match="closed"):
            await call


def _join(others: Collection[threading.Thread]) -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("spooldeck") and thread not in others:
            thread.join()


async def test_a_scan_is_ended_by_the_close(tmp_path: Path) -> None:
    """A scan that is still running stops at the next row."""
    endless = lambda *_: (a_task(number, rev="1") for number in itertools.count())  # noqa: E731
    async with inspecting(
        lambda: hooked(endless), lambda changed: sum(changed.counts.values()) > 1_000, tmp_path
    ):
        pass
    assert listed(tmp_path) == []


async def test_a_hanging_store_blocks_no_other(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """The close does not wait for a store that hangs in its opening; that thread ends later."""
    monkeypatch.setattr(inspector_module, "CLOSE_TIMEOUT_SECONDS", 0.1)
    opening, released = threading.Event(), threading.Event()
    others = set(threading.enumerate())

    def hang() -> Store:
        opening.set()
        released.wait()
        return MemoryStore()

    async with inspecting(hang, folder=tmp_path) as inspector:
        await asyncio.to_thread(opening.wait)
        assert inspector.latest.generation == 0
    assert listed(tmp_path) == []
    released.set()
    await asyncio.to_thread(_join, others)


async def test_an_abandoned_query_ends(place: Path) -> None:
    """A cancelled search does not delay the ones after it."""
    a_spool(place, 1_000)
    async with inspecting(place, counts(pending=1_000)) as inspector:
        words = ("j", "jo", "job", "job 0", "job 00", "job 000")
        searches = [asyncio.ensure_future(all_of(inspector, text)) for text in words]
        await asyncio.wait(searches[:1])
        for search in searches[1:-1]:
            search.cancel()
        assert (len(await searches[-1]), len(await all_of(inspector, "0000002a"))) == (1_000, 1)


@pytest.mark.parametrize("statement", ["PRAGMA journal_mode=WAL", "CREATE TABLE block"])
async def test_a_question_before_there_is_an_index_is_answered(
    place: Path, statement: str, monkeypatch: MonkeyPatch
) -> None:
    """While the index is being made, be it as far as it may, a question finds nothing in it."""
    write(place / "dlq", a_task(1))
    reached, go_on = threading.Event(), threading.Event()

    class Slow(sqlite3.Connection):
        """A database on a disk that takes its time before one statement."""

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith(statement):
                reached.set()
                assert go_on.wait(PATIENCE)
            return super().execute(sql, *values)

        def executescript(self, script: str) -> sqlite3.Cursor:
            for sql in script.split(";"):
                self.execute(sql.strip())
            return self.cursor()

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Slow))
    async with inspecting(place) as inspector:
        assert await asyncio.to_thread(reached.wait, PATIENCE)
        assert await inspector.queries.count(Query()) == 0
        assert await inspector.queries.find(Query(), a_task(1).id) is None
        go_on.set()
        await until(inspector, counts(dead=1))
        assert await inspector.queries.count(Query()) == 1


async def test_ages_go_along_with_the_clock(place: Path) -> None:
    """A result by age changes with time alone, and a plan made of it does."""
    write(place / "pending", a_task(1))
    clock, query = Clock(), Query(State.PENDING, parse_filter("age>61m"))
    async with inspecting(place, counts(pending=1), clock=clock) as inspector:
        assert await inspector.queries.count(query) == 0
        clock.now += 66
        assert await inspector.queries.count(query) == 1
        assert len((await inspector.queries.make_plan("hold", None, query)).rows) == 1


async def test_a_whole_queue_is_tallied(place: Path) -> None:
    """Ages, clusters, what waits and the number ahead come from the index, empty before it."""
    for number in range(3):
        write(place / "pending", a_task(number, created=NOW - 600 * number))
    write(place / "dlq", a_task(9, error="timeout after 30 s"))
    # Not started: it has no index.
    before = Inspector(lambda: open_store(str(place)), clock=clock, limit=attempts_allowed)
    early = await before.tallies.ages(Query(), "kind", NOW)
    assert (early.by, await before.tallies.clusters(Query())) == ("kind", ())
    await before.close()
    async with inspecting(place, counts(pending=3, dead=1)) as inspector:
        tallies = inspector.tallies
        await inspector.scan_now()
        last = await inspector.queries.task(a_task(0).id)
        assert last is not None
        table = await tallies.ages(Query(State.PENDING), "kind", NOW)
        assert [(row.name, row.total) for row in table.rows] == [("job", 3)]
        (cluster,) = await tallies.clusters(Query(State.DEAD))
        assert (cluster.count, cluster.example) == (1, a_task(9).id)
        assert await tallies.summarize_backlog(NOW) == BacklogSummary(NOW - 1200, 3, NOW - 1200)
        assert await tallies.count_ahead(last, NOW) == {"job": 2}
        old = Query(State.DEAD, parse_filter("age>9d job"))
        assert await inspector.queries.count(old) == 0
        assert await inspector.queries.explain(old) == '"age>9d" matches none; 1 without it'


async def test_a_tally_is_made_sparingly() -> None:
    """An answer is reused for 20 times as long as it took; a different question is asked now."""
    asked, slow = [], threading.Event()

    def question(reader: Reader) -> int:
        asked.append(reader)
        slow.wait(0.2)
        return len(asked)

    async with inspecting(MemoryStore, is_complete) as inspector:
        ask = inspector.tallies.ask
        assert [await ask("one", question, 0) for _ in range(5)] == [1] * 5
        assert await ask("other", question, 0) == 2


async def test_the_backlog_is_asked_again_after_a_change_or_when_a_task_becomes_due(
    place: Path, monkeypatch: MonkeyPatch
) -> None:
    """While no task comes, goes or becomes due, the backlog is answered without a query."""
    asked: list[float] = []
    monkeypatch.setattr(queries, "ANSWER_COST_FACTOR", 0)
    summarize = backlog.summarize_backlog

    def noted(reader: Reader, now: float, kinds: Collection[str]) -> BacklogSummary:
        asked.append(now)
        return summarize(reader, now, kinds)

    monkeypatch.setattr(backlog, "summarize_backlog", noted)
    write(place / "pending", a_task(1, due=NOW + 60))
    async with inspecting(place, counts(pending=1)) as inspector:
        await inspector.scan_now()
        ask = inspector.tallies.summarize_backlog
        due_times = [(await ask(NOW + more)).due for more in (0, 59, 60, 3600, 0)]
        write(place / "pending", a_task(2, due=NOW))
        await until(inspector, counts(pending=2))
        due_times.append((await ask(NOW)).due)
    assert (due_times, asked) == ([0, 0, 1, 1, 0, 1], [NOW, NOW + 60, NOW, NOW])


async def test_an_answer_before_a_change_is_counted(place: Path, monkeypatch: MonkeyPatch) -> None:
    """While it still serves, a caller that asks only after a change learns that it is old."""
    monkeypatch.setattr(queries, "ANSWER_COST_FACTOR", 1e9)
    write(place / "pending", a_task(1))
    async with inspecting(place, counts(pending=1)) as inspector:
        tallies = inspector.tallies
        assert await tallies.ask("all", lambda reader: reader.count(Query(), NOW), 0) == 1
        write(place / "pending", a_task(2))
        await until(inspector, counts(pending=2))
        before = tallies.old_answers
        assert await tallies.ask("all", lambda reader: reader.count(Query(), NOW), 0) == 1
        assert tallies.old_answers == before + 1


async def test_a_harvest_runs_beside_everything_else(place: Path) -> None:
    """It has a thread of its own; a cancel ends it, and what `take` raises is raised."""
    a_spool(place, 1_100, "dlq")
    harvested_ids: list[str] = []
    threads, calls = set(), []
    go, begun = threading.Event(), threading.Event()
    dead = Query(State.DEAD)

    def take(tasks: Sequence[Task], done: int, total: int) -> bool:
        harvested_ids.extend(task.id for task in tasks)
        calls.append(done)
        threads.add(threading.current_thread().name)
        begun.set()
        go.wait()
        return True

    def broken(tasks: Sequence[Task], done: int, total: int) -> bool:
        raise OSError(28, "No space left on device")

    async with inspecting(place, counts(dead=1_100)) as inspector:
        harvest = asyncio.ensure_future(inspector.queries.export(dead, take))
        assert len(await all_of(inspector, "job")) == 1_100
        go.set()
        assert await harvest == 1_100
        assert harvested_ids == sorted(a_task(number).id for number in range(1_100))
        assert threads == {"spooldeck-export"}

        go.clear()
        begun.clear()
        calls.clear()
        harvest = asyncio.ensure_future(inspector.queries.export(dead, take))
        await asyncio.to_thread(begun.wait)
        harvest.cancel()
        asyncio.get_running_loop().call_later(0.1, go.set)
        with pytest.raises(asyncio.CancelledError):
            await harvest
        with pytest.raises(OSError, match="No space"):
            await inspector.queries.export(dead, broken)
    assert calls == [500]


async def test_what_was_seen_is_acted_on(place: Path) -> None:
    """A plan is frozen from what the operator saw, applied to that, and its result is followed."""
    a_spool(place, 8, "dlq")
    async with inspecting(place, counts(dead=8)) as inspector:
        plan = await inspector.queries.make_plan("retry", None, Query(State.DEAD))
        file_of(place, 3, State.DEAD).unlink()
        write(place / "dlq", a_task(9))
        report = await inspector.actions.apply_plan(plan)
        await until(inspector, counts(pending=7, dead=1))
    assert (len(report.done), report.gone, plan.made_at) == (7, (a_task(3).id,), NOW)


async def test_only_what_the_change_source_names_is_read() -> None:
    """A change in a store without folders costs a scan of the changed names, not of everything."""
    memory = MemoryTasks()
    scans: list[Collection[str] | None] = []
    rival = MemoryStore(memory)
    for number in range(3):
        rival.swap(None, a_task(number))

    def noted(seen: Seen, touched: Collection[str] | None) -> Seen:
        scans.append(touched)
        return seen

    async with inspecting(lambda: hooked(noted, memory), counts(pending=3)) as inspector:
        assert scans.count(None) == 1
        task = found(rival, a_task(1).id)
        rival.swap(task, verbs.hold(task, NOW))
        await until(inspector, counts(pending=2, held=1))
    assert {task.id} in scans and scans.count(None) == 1


async def test_lost_changes_are_found_by_revisions(place: Path, monkeypatch: MonkeyPatch) -> None:
    """If a full scan costs much, exactly the tasks whose revisions differ are read."""
    monkeypatch.setattr(index_sync, "CHEAP_SCAN_SECONDS", 0.0)
    a_spool(place, 6)
    scans: list[Collection[str] | None] = []
    lost = threading.Event()

    def wait(seconds: float) -> Collection[str] | None:
        if not lost.wait(seconds):
            return ()
        lost.clear()
        return None

    def deaf() -> Store:
        store = open_store(str(place))
        scan = store.scan

        def noted(touched: Collection[str] | None = None) -> Seen:
            scans.append(touched)
            return scan(touched)

        store.scan = noted  # type: ignore[method-assign]
        store.changes = store.changes._replace(paths=(), wait=wait)
        return store

    async with inspecting(deaf, counts(pending=6)) as inspector:
        scans.clear()
        file_of(place, 1).rename(file_of(place, 1, State.DEAD))
        write(place / "pending", a_task(2, description="rewritten"))
        file_of(place, 3).unlink()
        write(place / "pending", a_task(7))
        lost.set()
        await until(inspector, counts(pending=5, dead=1))
        assert sorted(await all_of(inspector)) == sorted(await asyncio.to_thread(stored, place))
        assert None not in scans
        names = {name for some in scans for name in some or ()}
        assert names == {a_task(number).id for number in (1, 2, 3, 7)}


async def test_what_is_on_the_screen_is_read_again(monkeypatch: MonkeyPatch) -> None:
    """A task that is rewritten in place without an event is re-read where it is shown."""
    monkeypatch.setattr(index_sync, "RECHECK_SECONDS", 0.05)
    memory = MemoryTasks()
    rival = MemoryStore(memory)
    rival.swap(None, a_task(1))

    def silent() -> Store:
        store = MemoryStore(memory)
        store.changes = ChangeSource()
        return store

    async with inspecting(silent, counts(pending=1)) as inspector:
        (task,) = await all_of(inspector)
        rival.swap(task, task._replace(due=NOW + 60))
        generation = inspector.latest.generation
        while (await all_of(inspector))[0].due != NOW + 60:
            generation = (await inspector.wait_for_change(generation)).generation


class Server:
    """A server whose changes a test reports; its scans are noted at their end."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        self.news: SimpleQueue[Collection[str] | None] = SimpleQueue()
        self.scans: list[Collection[str] | None] = []
        self._looked_up: SimpleQueue[str] = SimpleQueue()

    def open(self) -> Store:
        """A store of the server, with these facts about its changes."""
        store = hooked(self._note)
        wait = lambda seconds: self.news.get() if seconds else ()  # noqa: E731
        store.changes = ChangeSource(wait=wait, **self.facts)
        return store

    def _note(self, seen: Seen, touched: Collection[str] | None) -> Seen:
        yield from seen
        self.scans.append(touched)
        for name in touched or ():
            self._looked_up.put(name)

    async def report(self, count: int, *before: None) -> None:
        """Report so many changed names, each of which is looked up before the next."""
        for number in range(count):
            for change in (*before, {f"task {number}"}):
                self.news.put(change)
            name = await asyncio.to_thread(self._looked_up.get, timeout=PATIENCE)
            assert name == f"task {number}"


@pytest.mark.parametrize("is_costly", [False, True])
async def test_a_scan_that_cost_the_server_much_is_not_soon_repeated(is_costly: bool) -> None:
    """A change without a name requests a full scan, after a multiple of its cost."""
    server = Server(scan_cost=1000.0 if is_costly else 0.0)
    async with inspecting(server.open, is_complete):
        server.news.put(None)
        await server.report(50)
        while not is_costly and server.scans.count(None) == 1:
            await server.report(1)
    server.news.put(())  # only now: the thread that waits for it ends, and does not wait again
    assert (server.scans.count(None) == 1) is is_costly


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
async def test_a_store_sets_the_recheck_interval(seconds: float, monkeypatch: MonkeyPatch) -> None:
    """Rows without a reported change are looked up no more often than the store allows."""
    monkeypatch.setattr(index_sync, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(index_sync, "RECHECK_COST_FACTOR", 0.0)
    server = Server(recheck_seconds=seconds)
    async with inspecting(server.open, is_complete):
        await server.report(9)
    server.news.put(())
    rechecks = [names for names in server.scans if names is not None and not names]
    assert (len(rechecks) <= 1) is (seconds > 0.0)


async def test_a_comparison_that_cost_the_server_much_is_not_soon_repeated() -> None:
    """Revisions are compared again only after a multiple of that time."""
    compared: list[None] = []

    def revisions() -> Iterator[tuple[str, State, str]]:
        compared.append(None)
        yield from ()

    server = Server(scan_cost=1000.0, revisions=revisions)
    async with inspecting(server.open, is_complete):
        await server.report(50, None)
    server.news.put(())
    assert len(compared) == 1


class PausableStore(MemoryStore):
    """A store that finds out which controls it has when it is scanned."""

    pausable = False

    def scan(self, touched: Collection[str] | None = None) -> Seen:
        """Scan, and then know it."""
        yield from super().scan(touched)
        self.controls = {"pause": Control("stop")} if self.pausable else {}


@pytest.mark.parametrize("happens", ["nothing", "a task comes"])
async def test_the_controls_are_of_the_latest_scan(happens: str, monkeypatch: MonkeyPatch) -> None:
    """A lookup finds the controls of now, an older one undoes none; so does time alone."""
    if happens == "nothing":
        monkeypatch.setattr(index_sync, "RECHECK_SECONDS", 0.05)
    memory = MemoryTasks()
    async with inspecting(lambda: PausableStore(memory), is_complete) as inspector:
        assert inspector.controls == {}
        monkeypatch.setattr(PausableStore, "pausable", True)
        if happens == "nothing":
            await until(inspector, lambda changed: bool(inspector.controls))
        else:
            MemoryStore(memory).swap(None, a_task(1))
            changed = await until(inspector, counts(pending=1))
            assert set(inspector.controls) == {"pause"}
            MemoryStore(memory).swap(None, a_task(2))
            await inspector.wait_for_change(changed.generation)
        assert set(inspector.controls) == {"pause"}


async def test_a_folder_that_is_made_later_is_watched(tmp_path: Path) -> None:
    """Hash folders and that of held messages are followed without a full scan."""
    spool = Spool(tmp_path / "post").make()
    spool.put(1001, recipient())

    def open_post() -> ZmailerStore:
        store = ZmailerStore(str(spool.root), clock)
        store.changes = store.changes._replace(rescan_seconds=1e9)
        return store

    def change(verb: Callable[[Task, float], Task | None]) -> None:
        with closing(open_post()) as other:
            task = found(other, "1004/91")
            other.swap(task, verb(task, NOW))

    async with inspecting(open_post, counts(pending=1)) as inspector:
        spool.put(1002, recipient(), folder="O/")
        await until(inspector, counts(pending=2))
        spool.put(1003, recipient(), folder="M/P/")
        path = spool.put(1004, recipient(), folder="M/Q/")
        await until(inspector, counts(pending=4))
        await asyncio.to_thread(change, verbs.hold)
        await until(inspector, counts(pending=3, held=1))
        spool.finish(path)
        await asyncio.to_thread(change, verbs.purge)
        await until(inspector, counts(pending=3, trash=1))


async def test_a_name_of_many_tasks_is_divided(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A file of many recipients is shown whole; then a change of one shows that one."""
    monkeypatch.setattr(index_sync, "MAX_LOOKUP_ROWS", 7)
    spool = Spool(tmp_path / "post").make()
    async with inspecting(lambda: ZmailerStore(str(spool.root), clock), counts()) as inspector:
        path = spool.put(1001, *[recipient()] * 30, more="d 9:1:-1::5\tx\tof none\n")
        await until(inspector, counts(pending=30))
        assert inspector.latest.problems == 1
        write_lock(path, 91, 1)
        await until(inspector, counts(pending=29, active=1))
