"""Laws of every store: nothing is lost, nothing is there twice, in any order of events."""

import itertools
import random
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine import verbs
from engine.config.place_address import parse_address
from engine.formats.base.conformance import Shape, factory
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.bullmq.place import BullmqSettings, parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.nftban.store import NftbanStore
from engine.formats.zgb.place import RateLimit, ZgbDatabase
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.model import Missing, Move, Problem, State, Task
from engine.store import Gone, Store, StoreError, Unsupported
from tests.conformance.test_conformance import SHAPES
from tests.examples import examples
from tests.nftban_spool import NOW, new_spool
from tests.redis_server import TestServer
from tests.store_contents import tasks_in

Act = Callable[[Task, float], Task | None]
Opener = Callable[[Callable[[], float]], Store]


ACTS: Mapping[str, Act] = {
    "ack": lambda task, now: None,
    "nack": lambda task, now: verbs.nack(task, now + 60, f"failed at {now:.0f}"),
    "unclaim": lambda task, now: verbs.unclaim(task),
    "bury": lambda task, now: verbs.give_up_task(task, "given up: on it", 1),
    "describe": lambda task, now: task._replace(description=f"seen at {now:.0f}"),
    "delay": lambda task, now: task._replace(due=now + 30),
    "restore": lambda task, now: task._replace(state=State.PENDING),
} | {name: verb.function for name, verb in verbs.VERBS.items()}
"""Any change of a task in any state: where no edge leads, it is refused."""


def _queues(folder: str) -> Opener:
    """A mail queue without a rate limit, whose leases do not lapse, with 3,000 registrations."""
    path = f"{folder}/zgb.db"
    create(path)
    config = {"mailQueueEnabled": 1, "mailMaxPerHour": 10**6, "mailTokens": 10**6}
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany("INSERT INTO registrations VALUES (?, 0)", ((n,) for n in range(3000)))
        db.executemany("INSERT INTO config VALUES (?, ?)", (config | {"mailLastRefill": 0}).items())
    pace = RateLimit(1_000_000, 1_000_000)
    place = ZgbDatabase(path, rate_limit=pace, lease=10_000_000, durable=False, patience=60.0)
    return lambda clock: ZgbStore(place, clock)


def _spools(folder: str) -> Opener:
    spool = new_spool(Path(folder))
    return lambda clock: NftbanStore(spool, clock)


def _memories(folder: str) -> Opener:
    memory = MemoryTasks()
    return lambda clock: MemoryStore(memory)


def _linked(folder: str) -> Opener:
    make_spool(folder)
    return lambda clock: KannaderStore(folder, clock, durable=False)


class World(NamedTuple):
    """A format under test: how it is opened, and what its tasks are like."""

    make: Callable[[str], Opener]  # makes an empty one in a folder; what opens it takes a clock
    shape: Shape
    kinds: tuple[str, str]
    order: Callable[[Task], object]  # by which due tasks are claimed, and then by arrival

    def task(self, number: int, kind: str, due: float = 0.0) -> Task:
        """A new task."""
        return factory(self.shape)(number, kind, due=due)


class Both(NamedTuple):
    """One operator or worker: the same actions on the reference and on the tested store."""

    memory: MemoryStore
    tested: Store
    seen: dict[str, tuple[Task, Task]]  # what it has seen last, in each; by id

    def done(self, name: str, task: Task, now: float) -> Task | None:
        """What an action makes of a task in these stores."""
        return verbs.keep_error(self.tested.edges, task, ACTS[name](task, now))


def _stamp_and_token(task: Task) -> tuple[str, ...]:
    return task.id[:17], task.id[-9:], task.id


WORLDS: Mapping[str, World] = {
    "memory": World(_memories, SHAPES["memory"], ("job", "other"), _stamp_and_token),
    "nftban": World(_spools, SHAPES["nftban"], ("job", "other"), _stamp_and_token),
    "zgb": World(_queues, SHAPES["zgb"], ("organizer", "user"), lambda task: task.due),
    "kannader": World(_linked, SHAPES["kannader"], ("job", "other"), _stamp_and_token),
}
"""Several threads work on all; not every one of them can say all that the reference does."""

_databases = itertools.count(1)


def _redis(server: TestServer, folder: str) -> Opener:
    """An empty database of the tests' server."""
    number = next(_databases) % 60 + 1
    with server.client(number) as client:
        client.flushdb()
    settings = BullmqSettings(lease=10_000_000.0)
    place = parse_place(parse_address(server.place(number)), settings)
    return lambda clock: BullmqStore(place, clock)


def everything(store: Store) -> list[Task | Missing | Problem]:
    """What a whole look shows, each once: its peek comes again in place."""
    return list(dict.fromkeys(store.scan()))


def attempted(action: Callable[[], object]) -> type[Exception] | None:
    """The kind of error that an action ends with, if it is one of a store."""
    try:
        action()
    except StoreError as error:
        return type(error)
    return None


class Rivals(RuleBasedStateMachine):
    """Three instances of each store, with views of their own, do everything in any order."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.now = NOW
        self.present: set[str] = set()
        """What was added and has not left, by the answers alone."""
        memory, opener = MemoryTasks(), self.world.make(self._folder.name)
        self.hands = [
            Both(MemoryStore(memory, self.world.order), opener(lambda: self.now), {})
            for _ in range(3)
        ]
        for hand in self.hands:
            # What the format cannot do, the reference shall not do either.
            hand.memory.edges = hand.tested.edges

    def teardown(self) -> None:
        """Close what was opened."""
        for hand in self.hands:
            hand.tested.close()
        self._folder.cleanup()

    def _refresh(self, hand: Both) -> None:
        hand.seen.clear()
        memory, tested = tasks_in(hand.memory), tasks_in(hand.tested)
        hand.seen.update({i: (memory[i], tested[i]) for i in memory})

    @rule(
        who=st.integers(0, 2),
        number=st.integers(0, 2),
        which=st.integers(0, 1),
        ahead=st.sampled_from([0, 0, 30]),
    )
    def enqueue(self, who: int, number: int, which: int, ahead: int) -> None:
        """Add a task; of an id that is there, it is refused alike."""
        due = self.now + ahead if ahead else 0.0
        task = self.world.task(number, self.world.kinds[which], due)
        hand = self.hands[who]
        outcome = attempted(lambda: hand.memory.swap(None, task))
        assert attempted(lambda: hand.tested.swap(None, task)) is outcome
        assert (outcome is Gone) == (task.id in self.present)
        self.present.add(task.id)

    @rule(who=st.integers(0, 2))
    def look(self, who: int) -> None:
        """See what is there now."""
        self._refresh(self.hands[who])

    @rule(seconds=st.sampled_from([1, 30, 61]))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.now += seconds

    @rule(who=st.integers(0, 2), limit=st.integers(1, 3), which=st.sets(st.integers(0, 1)))
    def take(self, who: int, limit: int, which: set[int]) -> None:
        """Claim what is due: the same tasks in the same order."""
        hand, kinds = self.hands[who], {self.world.kinds[index] for index in which}

        def wants(kind: str, group: str) -> bool:
            return kind in kinds

        taken = list(hand.memory.take(self.now, "me", limit, wants))
        theirs = list(hand.tested.take(self.now, "me", limit, wants))
        assert [task.id for task in taken] == [task.id for task in theirs]
        hand.seen.update({a.id: (a, b) for a, b in zip(taken, theirs, strict=True)})

    @precondition(lambda self: any(hand.seen for hand in self.hands))
    @rule(who=st.integers(0, 2), pick=st.integers(0, 99), name=st.sampled_from(sorted(ACTS)))
    def act(self, who: int, pick: int, name: str) -> None:
        """Do something to a task as it was seen, however long ago."""
        hand = self.hands[who]
        if not hand.seen:
            return
        ident = sorted(hand.seen)[pick % len(hand.seen)]
        now = tasks_in(self.hands[0].memory).get(ident)
        if now is not None and now.state is hand.seen[ident][0].state:
            # Within one tick of an old kernel's clock a file that went and came back is the same.
            self._refresh(hand)
        memory, tested = hand.seen[ident]
        new = hand.done(name, memory, self.now)

        outcome = attempted(lambda: hand.memory.swap(memory, new))
        theirs = hand.done(name, tested, self.now)
        assert attempted(lambda: hand.tested.swap(tested, theirs)) is outcome

        if outcome is None and new is None:
            self.present.discard(ident)

    @precondition(lambda self: any(hand.seen for hand in self.hands))
    @rule(who=st.integers(0, 2), name=st.sampled_from(sorted(ACTS)))
    def act_on_all(self, who: int, name: str) -> None:
        """Do something to all that is there now, in one lot."""
        hand = self.hands[who]
        self._refresh(hand)
        moves = [Move(a, hand.done(name, a, self.now)) for a, _ in hand.seen.values()]
        theirs = [Move(b, hand.done(name, b, self.now)) for _, b in hand.seen.values()]
        errors = [type(outcome.error) for outcome in hand.memory.swap_all(moves)]
        assert [type(outcome.error) for outcome in hand.tested.swap_all(theirs)] == errors
        assert set(errors) <= {type(None), Unsupported}
        for move, error in zip(moves, errors, strict=True):
            if error is type(None) and move.new is None:
                assert move.old is not None
                self.present.discard(move.old.id)

    @invariant()
    def nothing_is_lost_and_nothing_is_there_twice(self) -> None:
        """What was added and did not leave is in exactly one place, and nothing else is."""
        tasks = everything(self.hands[0].tested)
        assert all(isinstance(item, Task) for item in tasks)
        assert sorted(item.id for item in tasks if isinstance(item, Task)) == sorted(self.present)

    @invariant()
    def both_stores_say_the_same(self) -> None:
        """Every task reads alike in both stores."""
        tested, memory = (
            {ident: said_of(task) for ident, task in tasks_in(store).items()}
            for store in (self.hands[1].tested, self.hands[0].memory)
        )
        assert tested == memory


def said_of(task: Task) -> tuple[object, ...]:
    """What both stores have to agree on."""
    texts = (task.kind, task.state, task.created, task.attempts, task.description, task.error)
    # Where a dead task waits until is forgotten when it dies; elsewhere it counts.
    due = 0.0 if task.state is State.DEAD else task.due
    return (*texts, due, task.lease is not None)


class RivalsOnFiles(Rivals):
    """On the spool of files."""

    world = WORLDS["nftban"]


class RivalsOnRows(Rivals):
    """On the database."""

    world = WORLDS["zgb"]


TestRivals = RivalsOnFiles.TestCase
TestRivals.settings = examples(25, stateful_step_count=15)
TestRivalsOnRows = RivalsOnRows.TestCase
TestRivalsOnRows.settings = examples(25, stateful_step_count=15)


@pytest.fixture(params=[*WORLDS, "bullmq"])
def world(request: pytest.FixtureRequest) -> World:
    """Each format in turn, the reference among them."""
    if request.param == "bullmq":  # only then a server is needed
        server: TestServer = request.getfixturevalue("redis_server")
        make = partial(_redis, server)
        return World(make, SHAPES["bullmq"], ("a", "b"), _stamp_and_token)
    return WORLDS[request.param]


@pytest.fixture
def open_some(world: World, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Open a further instance on the same tasks; each for a thread of its own."""
    opener, opened = world.make(str(tmp_path)), ExitStack()
    with opened:
        yield lambda: opened.enter_context(closing(opener(lambda: NOW)))


TURNS = 40


def busy(
    world: World,
    store: Store,
    seed: int,
    start: threading.Barrier,
    added: Counter[str],
    left: Counter[str],
) -> None:
    """Do one thing after another, any of which may come too late."""
    chance = random.Random(seed)
    start.wait(30)
    for turn in range(TURNS):
        if chance.random() < 0.3:
            task = world.task(TURNS * seed + turn, world.kinds[0])
            store.swap(None, task)
            added[task.id] += 1
            continue
        if chance.random() < 0.4:
            tasks = list(store.take(NOW + 1e6, f"{seed}", 2))
        else:
            word = store.states[chance.choice(sorted(store.states))]
            tasks = [t for t in store.scan({word}) if isinstance(t, Task)][:3]
        for task in tasks:
            new = verbs.keep_error(store.edges, task, ACTS[chance.choice(sorted(ACTS))](task, NOW))
            if attempted(partial(store.swap, task, new)) is None and new is None:
                left[task.id] += 1


@pytest.mark.parametrize(
    "round_", (0, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 2, 3)))
)
def test_threads_lose_nothing(world: World, open_some: Callable[[], Store], round_: int) -> None:
    """In any order of threads each added task has left once, or is there once."""
    added, left, start = Counter[str](), Counter[str](), threading.Barrier(4)
    stores = [open_some() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        done = [
            threads.submit(busy, world, store, 4 * round_ + n, start=start, added=added, left=left)
            for n, store in enumerate(stores)
        ]
    assert [one.exception() for one in done] == [None] * 4
    tasks = everything(open_some())
    assert [item for item in tasks if not isinstance(item, Task)] == []
    assert Counter(item.id for item in tasks if isinstance(item, Task)) + left == added
