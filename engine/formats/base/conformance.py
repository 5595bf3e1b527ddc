"""What every store promises: one suite of tests, for the stores of other packages too.

A test file of a format has it by three names, of which two are fixtures that it fills in:

    from spooldeck import conformance

    globals().update(conformance.suite())

    @pytest.fixture
    def open_store(tmp_path):  # what opens a further instance of the store, on the same tasks
        return lambda: JobStore(tmp_path)

    @pytest.fixture
    def shape():  # what the tasks of the format look like
        return conformance.Shape(...)

It needs pytest, which the extra `conformance` brings, and a store that can add a task: for one that
cannot, the test file makes a subclass that can, as the other program does. Moves are tested along
the edges that a store has. Tests of what the format does not have at all, such as claims, are
excluded by name.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Protocol

import pytest

from engine import verbs
from engine.model import Edge, Missing, Move, Problem, State, Task
from engine.store import DATA_PART, GUARDED_FIELDS, Gone, Store, Unsupported
from engine.values import NamedTuple


def tasks_in(store: Store) -> dict[str, Task]:
    """Every task by its id."""
    return {item.id: item for item in store.scan() if isinstance(item, Task)}


def found(store: Store, ident: str) -> Task:
    """The one task of an id in its present state."""
    (item,) = store.scan({ident})
    assert isinstance(item, Task)
    return item


Opener = Callable[[], Store]

NOW = 1_795_170_000.0

FOLLOWING = {"destination": {"group", "description", "recipients"}}
"""What may change with a field because a store makes it of that."""

PLACES: tuple[State | None, ...] = (None, *State)

CHANGES = {
    "attempts": 2,
    "due": NOW + 50.0,
    "error": "it broke",
    "description": "another one",
    "id": "20261120T094115Z-job-ffffffff",
    "kind": "other",
    "created": 1_795_160_001.0,
    "queue": "elsewhere",
    "group": "slow",
    "priority": 7,
    "destination": "example.net",
    "payload": "/somewhere/else",
    "data": '{"a":1}',
    "sender": "dan@example.net",
    "recipients": ("eve@example.net",),
    "account": "dan",
    "bytes": 5_400,
}
"""Another value for each field that a swap is not free to change."""


class Shape(NamedTuple):
    """The tasks of a format, where formats differ."""

    ident: Callable[[int, str], str]
    """The id of a task, from its number and kind; ids have the order of the numbers."""
    description: Callable[[int, str], str]
    """The description of a new task, from the same."""
    kinds: tuple[str, ...]
    """Kinds in the order in which their tasks are claimed, if added in that order."""
    kind: str
    """The kind of a new task."""
    filled: Callable[[Task], Task]
    """A new task -> the same with the text "all of it" in one of its fields."""
    claim_order: Callable[[list[Task]], list[Task]]
    """Tasks in the order in which they were added -> in the order of their claims."""
    can_renew: bool = False
    """True if a lease can be extended."""
    claim_rev: Callable[[Task], str] = lambda task: task.rev
    """A claimed task, as a scan finds it -> its revision as its worker has it."""
    destination: str = ""
    """The destination of a new task."""
    own_fields: frozenset[str] = frozenset()
    """Fields that the store sets by itself, or has no place for."""


class Factory(Protocol):
    """Makes tasks that are not stored yet, in the shape of the store under test."""

    def __call__(self, number: int = 1, kind: str = "", **changes: object) -> Task:
        """A task that is due now; numbers are in the order of ids."""
        ...


def factory(shape: Shape) -> Factory:
    """What makes tasks of a shape."""

    def a_task(number: int = 1, kind: str = "", **changes: object) -> Task:
        kind = kind or shape.kind
        task = Task(
            id=shape.ident(number, kind),
            kind=kind,
            state=State.PENDING,
            created=1_795_160_000.0,
            description=shape.description(number, kind),
            destination=shape.destination,
        )
        return task._replace(**changes)  # type: ignore[arg-type]

    return a_task


@pytest.fixture
def payload() -> str:
    """The payload of a new task: "" for a format without one; to be replaced where it has."""
    return ""


@pytest.fixture
def a_task(shape: Shape) -> Factory:
    """Make a task in that shape."""
    return factory(shape)


def put(store: Store, task: Task, state: State = State.PENDING) -> Task:
    """The task, stored and moved to a state along the store's own edges, as it is seen there."""
    store.swap(None, task)
    stored_task = found(store, task.id)
    if state in (State.ACTIVE, State.DEAD, State.DONE):
        (stored_task,) = store.take(NOW, "me", 1)
        assert stored_task.id == task.id
    steps: dict[State, Callable[[Task], Task]] = {
        State.HELD: lambda task: verbs.hold(task, NOW),
        State.DEAD: lambda task: verbs.give_up_task(task, "gave up", 1),
        State.DONE: lambda task: task._replace(state=State.DONE, lease=None),
        State.TRASH: lambda task: verbs.purge(task, NOW),
    }
    if state in steps:
        store.swap(stored_task, steps[state](stored_task))
    return found(store, task.id)


def moved(task: Task, end: State | None, **changes: object) -> Task | None:
    """What a task becomes by going somewhere else, and by nothing but that."""
    if end is None:
        return None
    return task._replace(state=end, lease=None, **changes)  # type: ignore[arg-type]


@contextmanager
def case(store: Store, *words: object) -> Iterator[None]:
    """One of several cases of a test on one place: a failure names it; then the place is empty."""
    try:
        yield
    except BaseException as error:
        error.add_note("case: " + " ".join(str(word or "nothing") for word in words))
        raise
    for task in tasks_in(store).values():
        if (task.state, None) not in store.edges:
            store.swap(task, moved(task, State.TRASH))
            task = found(store, task.id)
        store.swap(task, None)


def ways_of(store: Store) -> Iterator[tuple[State, State | None]]:
    """The edges of a store that start from a state."""
    yield from ((start, end) for start, end in store.edges if start is not None)


def states_of(store: Store, *wanted: State) -> list[State]:
    """Those of some states to which a store has an edge."""
    return [state for state in wanted if any(state in edge for edge in store.edges)]


def test_a_task_that_is_still_as_it_was_seen(open_store: Opener, a_task: Factory) -> None:
    """Looked at again before a swap: the unchanged task, whole; one that moved, changed, left or
    never existed is omitted. One that is not swapped then is free for others afterwards."""
    first, theirs = open_store(), open_store()
    for number in range(1, 5):
        first.swap(None, a_task(number))
    same, held, edited, left = tasks_in(first).values()
    theirs.swap(held, verbs.hold(held, NOW))
    theirs.swap(edited, verbs.edit(edited, NOW, due=NOW + 9))
    theirs.swap(left, verbs.purge(left, NOW))
    revisions = [(task.id, task.state, task.rev) for task in (same, held, edited, left)]
    strange = [(same.id, State.HELD, same.rev), ("../../etc/passwd", State.PENDING, "x")]
    strange += [("", State.TRASH, ""), ("a\0b", State.DEAD, "")]

    assert list(first.verify([*revisions, *strange])) == [same]
    rev = first.swap(same, verbs.hold(same, NOW))

    assert list(first.verify([(same.id, State.HELD, rev)])) == [found(first, same.id)]
    assert list(first.swap_all(())) == []
    held = found(theirs, same.id)
    assert theirs.swap(held, verbs.release(held, NOW))


def test_an_edge_leads_where_it_says(open_store: Opener, a_task: Factory) -> None:
    """A swap along an edge moves the task there, under its id, with all its other fields."""
    store = open_store()
    for start, end in ways_of(store):
        with case(store, start, end):
            stored_task = put(store, a_task(), start)
            rev = store.swap(stored_task, moved(stored_task, end))
            after = tasks_in(open_store())
            assert set(after) == (set() if end is None else {stored_task.id})
            for task in after.values():
                assert (task.state, task.rev) == (end, rev)
                assert all(getattr(task, f) == getattr(stored_task, f) for f in GUARDED_FIELDS)
            assert (rev == "") == (end is None)


def test_an_edge_changes_the_fields_it_names(open_store: Opener, a_task: Factory) -> None:
    """A field that an edge names is stored with the move, and nothing else changes with it."""
    store = open_store()
    for start, end in ways_of(store):
        # A dead task becomes due when it is retried; a store need not keep its time before.
        unkept = {"due"} if end is State.DEAD else set()
        for name in sorted(store.edges[start, end].fields - unkept):
            with case(store, start, end, name):
                task = put(store, a_task(), start)
                store.swap(task, moved(task, end, **{name: CHANGES[name]}))
                after = found(open_store(), task.id)
                if name == "data":
                    assert open_store().read(after, DATA_PART).decode() == CHANGES[name]
                else:
                    assert getattr(after, name) == CHANGES[name]
                guarded_fields = set(GUARDED_FIELDS) - {name} - FOLLOWING.get(name, set())
                assert all(getattr(after, f) == getattr(task, f) for f in guarded_fields)


def test_a_swap_outside_of_the_edges_is_refused(open_store: Opener, a_task: Factory) -> None:
    """A swap that changes a field that its edge does not name, or along no edge, from any state, is
    Unsupported and changes nothing."""
    store = open_store()
    for start in PLACES:
        with case(store, start):
            here = start if start is not None and start in store.states else State.PENDING
            task = put(store, a_task(), here)
            before = tasks_in(store)
            old = None if start is None else task._replace(state=start)
            for end in PLACES:
                if (start, end) not in store.edges:
                    stays = a_task(2) if old is None else task
                    with pytest.raises(Unsupported):
                        store.swap(old, None if end is None else stays._replace(state=end))
                elif start is not None and end is not None:
                    for name in sorted(set(GUARDED_FIELDS) - store.edges[start, end].fields):
                        with pytest.raises(Unsupported, match=name):
                            store.swap(task, moved(task, end, **{name: CHANGES[name]}))
            assert tasks_in(open_store()) == before


def test_an_edge_bars_one_task(open_store: Opener, a_task: Factory) -> None:
    """A swap of a task that its edge bars is Unsupported with the reason, and changes nothing; the
    other tasks of a batch move."""
    store = open_store()
    guarded, free = put(store, a_task(1)), put(store, a_task(2))

    def bar(task: Task, now: float) -> str:
        return f"barred at {now:.0f}" if task == guarded else ""

    store.edges = {transition: edge._replace(bars=bar) for transition, edge in store.edges.items()}
    moves = [Move(task, verbs.hold(task, NOW)) for task in (guarded, free)]
    with pytest.raises(Unsupported, match=f"barred at {NOW:.0f}"):
        store.swap(*moves[0][:2])
    errors = {outcome.move: outcome.error for outcome in store.swap_all(moves)}
    assert isinstance(errors[moves[0]], Unsupported) and errors[moves[1]] is None
    assert (found(store, guarded.id), found(store, free.id).state) == (guarded, State.HELD)


def test_the_edges_of_a_store_are_sound(open_store: Opener) -> None:
    """Every state can be entered and left; edges name fields that a swap is not free to change
    anyway, and none is refused; a control that is not listed is Unsupported."""
    store = open_store()
    entered = {end for _, end in store.edges} | {State.ACTIVE}  # claimed by take, not by swap
    assert set(store.states) <= entered & {start for start, _ in store.edges}
    known = set(Task._fields) & set(GUARDED_FIELDS)
    edges = store.edges.values()
    assert all(isinstance(e, Edge) and e.fields <= known and not e.refusal for e in edges)
    assert "no such thing" not in store.controls
    with pytest.raises(Unsupported):
        store.control("no such thing")


def test_what_is_added_can_be_seen(
    open_store: Opener, payload: str, a_task: Factory, shape: Shape
) -> None:
    """An added task has every field as given, in the revision answered,
    but for what its store says of it by itself."""
    store = open_store()
    task = shape.filled(a_task(payload=payload, due=NOW + 60))
    rev = store.swap(None, task)
    tasks = tasks_in(open_store())
    own_fields = {name: getattr(tasks[task.id], name) for name in shape.own_fields}
    assert tasks == {task.id: task._replace(rev=rev, **own_fields)}
    assert rev


def test_an_id_is_given_only_once(open_store: Opener, a_task: Factory) -> None:
    """Adding a task whose id is there, in any state, is Gone and changes nothing; once the task has
    left, its id is free again."""
    store = open_store()
    for state in states_of(store, *(s for s in State if s is not State.DONE)):
        with case(store, state):
            put(store, a_task(), state)
            before = tasks_in(store)
            with pytest.raises(Gone):
                open_store().swap(None, a_task(due=NOW + 9))
            assert tasks_in(store) == before
    store.swap(put(store, a_task(), State.ACTIVE), None)
    store.swap(None, a_task(due=NOW + 9))
    assert found(store, a_task().id).due == NOW + 9


def test_an_id_is_given_only_once_in_a_group(open_store: Opener, a_task: Factory) -> None:
    """Of many tasks added together, each whose id is there, in any state or earlier in the group,
    is Gone; all others are added."""
    store = open_store()
    for state in states_of(store, *(s for s in State if s is not State.DONE)):
        with case(store, state):
            put(store, a_task(), state)
            before = tasks_in(store)
            group = [a_task(), *(a_task(number) for number in (*range(11, 31), 11, 30))]
            errors = [o.error for o in open_store().swap_all(Move(None, task) for task in group)]
            assert [at for at, why in enumerate(errors) if why] == [0, 21, 22]
            assert all(isinstance(why, Gone) for why in errors if why)
            after = tasks_in(store)
            assert {ident: after[ident] for ident in before} == before
            assert len(after) == len(before) + 20


def test_of_two_rivals_one_wins(open_store: Opener, a_task: Factory) -> None:
    """A swap of a task that another process has moved raises Gone and changes nothing."""
    first, theirs = open_store(), open_store()
    for start, end in ways_of(first):
        with case(first, start, end):
            task = put(first, a_task(), start)
            also_seen = found(theirs, task.id)
            names = [min(first.edges[start, end].fields)] if start is end else []
            changed = {name: CHANGES[name] for name in names}
            theirs.swap(also_seen, moved(also_seen, end, **changed))
            after = tasks_in(theirs)
            with pytest.raises(Gone):
                first.swap(task, moved(task, end))
            assert tasks_in(open_store()) == after


def test_a_stale_revision_is_gone(open_store: Opener, a_task: Factory) -> None:
    """A task in the same state, but changed since it was seen, is gone, and stays as it is."""
    store = open_store()
    task = put(store, a_task())
    store.swap(task, task._replace(due=NOW + 9))
    before = tasks_in(store)
    with pytest.raises(Gone):
        store.swap(task, task._replace(due=NOW + 8))
    with pytest.raises(Gone):
        store.read(task)
    assert tasks_in(store) == before


def test_an_outcome_needs_the_claim(open_store: Opener, a_task: Factory, shape: Shape) -> None:
    """A claimed task cannot be held by a console that saw it waiting, and a worker that lost its
    claim can neither finish nor fail it."""
    first, theirs = open_store(), open_store()
    task = put(first, a_task())
    (mine,) = first.take(NOW, "me", 1)
    with pytest.raises(Gone):
        theirs.swap(task, verbs.hold(task, NOW))
    assert found(theirs, task.id).state is State.ACTIVE
    first.swap(mine, verbs.unclaim(mine))
    (claimed,) = theirs.take(NOW, "they", 1)
    for end in (end for start, end in ways_of(first) if start is State.ACTIVE):
        with pytest.raises(Gone):
            first.swap(mine._replace(rev="0"), moved(mine, end))
    assert shape.claim_rev(found(first, mine.id)) == claimed.rev
    theirs.swap(claimed, None)


def test_what_is_taken_is_claimed(open_store: Opener, a_task: Factory, shape: Shape) -> None:
    """A taken task is active, leased to its taker since now, and otherwise as it was."""
    store = open_store()
    waiting = put(store, shape.filled(a_task()))
    (task,) = store.take(NOW, "me", 1)
    assert task.state is State.ACTIVE
    assert task.lease is not None
    assert (task.lease.owner, task.lease.since) == ("me", NOW)
    assert set(task.extra) - set(waiting.extra) <= {"attempt"}, "the number of the one under way"
    assert task._replace(state=State.PENDING, lease=None, rev=waiting.rev, extra=waiting.extra) == (
        waiting
    )
    assert shape.claim_rev(found(open_store(), task.id)) == task.rev


def test_a_lease_is_extended(open_store: Opener, a_task: Factory, shape: Shape) -> None:
    """A renewed claim lasts until the given time and goes on in its new revision; one that was lost
    is Gone and changes nothing. Where leases cannot be extended, each claim is unchanged."""
    first, theirs = open_store(), open_store()
    for number in (1, 2):
        first.swap(None, a_task(number))
    lost, stored_task = first.take(NOW, "me", 2)
    theirs.swap(found(theirs, lost.id), None)

    gone, renewed = first.renew([lost, stored_task], NOW + 999)

    assert (gone.move.old, renewed.move.old, renewed.error) == (lost, stored_task, None)
    assert isinstance(gone.error, Gone if shape.can_renew else type(None))
    new = renewed.move.new
    assert new is not None and new.lease is not None and stored_task.lease is not None
    assert new.lease.until == (NOW + 999 if shape.can_renew else stored_task.lease.until)
    task = found(open_store(), stored_task.id)
    assert (shape.claim_rev(task), set(tasks_in(theirs))) == (new.rev, {stored_task.id})
    if shape.can_renew:
        assert task.lease is not None and task.lease.until == NOW + 999
        with pytest.raises(Gone):
            first.swap(stored_task, None)
    first.swap(new, None)
    assert tasks_in(theirs) == {}


def test_no_more_than_the_limit_is_taken(open_store: Opener, a_task: Factory, shape: Shape) -> None:
    """As many tasks are claimed as were asked for, in the store's own order; a taker that stops
    half-way has claimed only what was handed out."""
    store, added = open_store(), [a_task(number) for number in (3, 1, 2)]
    for limit, handed in ((4, 9), (3, 9), (2, 9), (1, 9), (0, 9), (3, 1)):
        with case(store, limit, handed):
            for task in added:
                store.swap(None, task)
            taking = store.take(NOW, "me", limit)
            taken = [task.id for task in itertools.islice(taking, handed)]
            del taking
            assert len(taken) == min(limit, handed, 3)
            if limit == 4:
                assert taken == [task.id for task in shape.claim_order(added)]
            active = {t.id for t in tasks_in(store).values() if t.state is State.ACTIVE}
            assert active == set(taken)


def test_waiting_ends_with_time_or_a_promotion(open_store: Opener, a_task: Factory) -> None:
    """The same instance that passed a task over claims it once its time has come, or once another
    instance has promoted it."""
    store = open_store()
    store.swap(None, a_task(due=NOW + 30))
    stored_task = put(store, a_task(2, due=NOW + 900))
    assert list(store.take(NOW, "me", 1)) == []
    assert list(store.take(NOW + 29, "me", 1)) == []
    assert [task.id for task in store.take(NOW + 30, "me", 2)] == [a_task().id]
    open_store().swap(stored_task, verbs.promote(stored_task, NOW))
    assert [task.id for task in store.take(NOW, "me", 1)] == [stored_task.id]


def test_only_pending_tasks_are_taken(open_store: Opener, a_task: Factory) -> None:
    """A task that is claimed, held, dead or in the trash is never claimed."""
    store = open_store()
    for state in states_of(store, State.ACTIVE, State.HELD, State.DEAD, State.TRASH):
        with case(store, state):
            put(store, a_task(), state)
            assert list(open_store().take(NOW, "me", 1)) == []


def test_wants_is_asked_before_each_claim(
    open_store: Opener, a_task: Factory, shape: Shape
) -> None:
    """A claim may stop between two tasks, and the tasks it refuses stay."""
    store = open_store()
    for number in (1, 2, 3):
        store.swap(None, a_task(number))
    asked: list[str] = []
    mood = [True]

    def wants(kind: str, group: str) -> bool:
        asked.append(kind)
        return mood[-1]

    taking = store.take(NOW, "me", 3, wants)
    first = next(taking)
    before = len(asked)
    mood.append(False)

    assert before > 0
    assert list(taking) == []
    assert len(asked) > before
    assert set(asked) == {shape.kind}
    assert {t.id for t in tasks_in(store).values() if t.state is State.ACTIVE} == {first.id}


def test_an_unwanted_kind_is_passed_over(open_store: Opener, a_task: Factory, shape: Shape) -> None:
    """A taker that wants no second task of a kind gets the first of each, in their order."""
    store, running, taken = open_store(), set[str](), list[str]()
    last, *others = shape.kinds[::-1]
    added = [a_task(number, kind) for kind in (last, *others[::-1]) for number in (2, 1)]
    for task in added:
        store.swap(None, task)
    for task in store.take(NOW, "me", 9, lambda kind, group: kind not in running):
        running.add(task.kind)
        taken.append(task.id)
    first = {task.kind: task.id for task in reversed(shape.claim_order(added))}
    assert taken == [task.id for task in shape.claim_order(added) if task.id in first.values()]


def test_of_several_kinds_only_the_wanted_are_claimed(
    open_store: Opener, a_task: Factory, shape: Shape
) -> None:
    """A task that is not wanted is passed over; the next one that is wanted is claimed."""
    store, (_, *wanted) = open_store(), shape.kinds
    for kind, number in itertools.product(shape.kinds, (1, 2)):
        store.swap(None, a_task(number, kind))
    claimed = store.take(NOW, "me", 9, lambda kind, group: kind in wanted)
    kinds = sorted(task.kind for task in claimed)
    assert kinds == [kind for kind in wanted for _ in (1, 2)]


def test_two_takers_in_turns_share_nothing(open_store: Opener, a_task: Factory) -> None:
    """Two instances that take in turns get every task, and none of them both."""
    for number in range(20):
        open_store().swap(None, a_task(number))
    one, other = open_store().take(NOW, "one", 20), open_store().take(NOW, "other", 20)
    taken = [task.id for task in in_turns(one, other)]
    assert sorted(taken) == [a_task(number).id for number in range(20)]


def in_turns(*sources: Iterator[Task]) -> Iterator[Task]:
    """One from each while there are any."""
    for turn in itertools.zip_longest(*sources):
        yield from (task for task in turn if task is not None)


def test_threads_share_no_task(open_store: Opener, a_task: Factory) -> None:
    """Threads with an instance each get every task, and none of them twice."""
    filler = open_store()
    list(filler.swap_all(Move(None, a_task(number)) for number in range(32)))
    start = threading.Barrier(4)
    taken: list[str] = []

    def worker(store: Store, name: str) -> None:
        start.wait(30)
        while batch := list(store.take(NOW, name, 3)):
            taken.extend(task.id for task in batch)

    stores = [open_store() for _ in range(4)]
    named = [(store, str(number)) for number, store in enumerate(stores)]
    threads = [threading.Thread(target=worker, args=each) for each in named]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(taken) == [a_task(number).id for number in range(32)]


def test_many_moves_answer_one_by_one(open_store: Opener, a_task: Factory) -> None:
    """A mixed lot of moves yields an outcome for each, in order; one that fails harms no other, and
    of two moves of one task the second is Gone."""
    store = open_store()
    held = put(store, a_task(1), State.HELD)
    stale = put(store, a_task(2))
    current = put(open_store(), a_task(3))
    store.swap(stale, stale._replace(due=NOW + 9))
    moves = [
        Move(None, a_task(4)),
        Move(held, verbs.release(held, NOW)),
        Move(stale, verbs.hold(stale, NOW)),
        Move(current, current._replace(state=State.ACTIVE)),
        Move(None, a_task(3)),
        Move(current, verbs.purge(current, NOW)),
        Move(current, verbs.hold(current, NOW)),
    ]
    outcomes = list(store.swap_all(moves))

    assert [outcome.move for outcome in outcomes] == moves
    errors = [type(outcome.error) for outcome in outcomes]
    assert errors == [type(None), type(None), Gone, Unsupported, Gone, type(None), Gone]
    after = tasks_in(open_store())
    p, t = State.PENDING, State.TRASH
    assert {task.id: task.state for task in after.values()} == {
        a_task(number).id: state for number, state in ((1, p), (2, p), (3, t), (4, p))
    }
    revs = [after[a_task(4).id].rev, after[held.id].rev, "", "", "", after[current.id].rev, ""]
    assert [outcome.rev for outcome in outcomes] == revs
    assert list(store.swap_all([])) == []


def test_a_great_many_moves_keep_their_order(open_store: Opener, a_task: Factory) -> None:
    """However many moves there are, outcomes come in their order and account for each."""
    store = open_store()
    list(store.swap_all(Move(None, a_task(number)) for number in range(80)))
    tasks = sorted(tasks_in(store).values(), key=lambda task: task.id)
    gone = set(range(0, 80, 7))
    for number in gone:
        store.swap(tasks[number], verbs.purge(tasks[number], NOW))

    outcomes = list(store.swap_all(Move(task, verbs.hold(task, NOW)) for task in tasks))

    assert [outcome.move.old for outcome in outcomes] == tasks
    assert {n for n, outcome in enumerate(outcomes) if outcome.error is not None} == gone
    after = tasks_in(store)
    assert [after[task.id].state for task in tasks[:8]] == [
        State.TRASH,
        *[State.HELD] * 6,
        State.TRASH,
    ]


def test_a_full_scan_ends_in_order(open_store: Opener, a_task: Factory) -> None:
    """A whole look shows, after its first peek, each state's tasks in the order of their ids."""
    store = open_store()
    for number in (5, 4):
        put(store, a_task(number), State.HELD)
    for number in (3, 1, 2):
        put(store, a_task(number))
    tasks = [item for item in store.scan() if isinstance(item, Task)]
    assert {len(task) for task in tasks} == {len(Task._fields)}
    last = {task.id: at for at, task in enumerate(tasks)}
    order = sorted(last, key=lambda ident: last[ident])
    assert order == [a_task(number).id for number in (1, 2, 3, 4, 5)]


def test_a_sample_counts_all_and_has_some(open_store: Opener, a_task: Factory) -> None:
    """A sample has the number of all tasks by state, and at least as many tasks as asked for."""
    store = open_store()
    for number in (5, 4):
        put(store, a_task(number), State.HELD)
    for number in (3, 1, 2):
        put(store, a_task(number))
    counts, words, read, _ = store.sample(2)
    assert not any((words or {}).values())
    assert counts == dict.fromkeys(store.states, 0) | {State.PENDING: 3, State.HELD: 2}
    tasks = {item.id: item for item in read if isinstance(item, Task)}
    assert len(tasks) >= 2
    assert tasks.items() <= tasks_in(store).items()


def test_a_scan_for_names_shows_only_those(open_store: Opener, a_task: Factory) -> None:
    """A scan for some ids shows these tasks, each other one as missing, under any name, and for no
    ids nothing. What an instance stored is there after it was closed."""
    store = open_store()
    for number in (1, 2, 3):
        put(store, a_task(number))
    store.close()
    store = open_store()
    tasks = set(store.scan({a_task(1).id, a_task(3).id, a_task(9).id}))
    assert {item.id for item in tasks if isinstance(item, Task)} == {a_task(1).id, a_task(3).id}
    assert tasks - set(tasks_in(store).values()) == {Missing(a_task(9).id)}
    assert list(store.scan(set())) == []
    for name in ("nonsense", "no such", "../../etc/passwd", "", "a/b", "\udcff", "\0"):
        assert list(store.scan({name})) == [Missing(name)]


def test_a_scan_of_a_states_word_shows_that_state(open_store: Opener, a_task: Factory) -> None:
    """Asked for a state by the store's own word, a scan shows all tasks in it."""
    store = open_store()
    for number, state in enumerate(store.states):
        if state is State.ACTIVE:
            continue
        put(store, a_task(number, due=NOW + 60 if state is State.PENDING else 0.0), state)
    before = tasks_in(store)
    for state, word in store.states.items():
        tasks = {task for task in before.values() if task.state is state}
        assert set(store.scan({word})) == tasks
    failed = {task for task in before.values() if task.error}
    assert failed <= set(store.scan_failed(store.states.values())) <= set(before.values())


def test_a_scan_goes_on_while_tasks_move(open_store: Opener, a_task: Factory) -> None:
    """A task that moves during a whole look neither ends it nor makes a Problem of itself."""
    store, other = open_store(), open_store()
    for number in range(5):
        put(store, a_task(number))
    looking = store.scan()
    tasks = [next(looking)]
    for task in tasks_in(other).values():
        other.swap(task, verbs.hold(task, NOW))
    tasks += looking
    assert not [item for item in tasks if isinstance(item, Problem | Missing)]


def test_what_was_purged_comes_back_as_it_was(
    open_store: Opener, a_task: Factory, shape: Shape
) -> None:
    """Restored from the trash, a task is what it was before it was purged."""
    store = open_store()
    for state in states_of(store, State.PENDING, State.HELD, State.DEAD):
        with case(store, state):
            before = put(store, shape.filled(a_task(due=0.0)), state)
            store.swap(before, verbs.purge(before, NOW))
            trashed = found(store, before.id)
            rev = store.swap(trashed, trashed._replace(state=state))
            assert found(open_store(), before.id) == before._replace(rev=rev)


def test_a_place_in_use_keeps_the_rules(open_store: Opener, a_task: Factory) -> None:
    """While another program uses the place, or each change is synced, rivals still exclude each
    other, claims are not shared, and a lot of moves is answered one by one."""
    first, theirs = open_store(), open_store()
    for number in range(1, 7):
        first.swap(None, a_task(number))
    tasks = sorted(tasks_in(theirs).values(), key=lambda task: task.id)
    theirs.swap(tasks[5], verbs.hold(tasks[5], NOW))
    outcomes = list(first.swap_all(Move(task, verbs.purge(task, NOW)) for task in tasks[3:]))
    taken = [task.id for task in in_turns(first.take(NOW, "a", 2), theirs.take(NOW, "b", 2))]
    assert [type(outcome.error) for outcome in outcomes] == [type(None), type(None), Gone]
    assert sorted(taken) == [task.id for task in tasks[:3]]
    counted = Counter(task.state for task in tasks_in(open_store()).values())
    assert counted == {State.ACTIVE: 3, State.TRASH: 2, State.HELD: 1}


def test_a_task_is_read_by_its_parts(open_store: Opener, a_task: Factory, shape: Shape) -> None:
    """The first part is the task itself, whole, and `read` answers with it; the parts have names
    and sizes of their own; a part of another name, and the bytes of a problem that does not exist,
    are refused."""
    store = open_store()
    task = put(store, shape.filled(a_task()))
    data = store.read(task)
    assert b"all of it" in data and task.id.encode() in data

    first, *others = store.parts(task)

    assert len({part.name for part in (first, *others)}) == 1 + len(others), "named twice"
    assert (store.read(task, first.name), first.size, first.refusal) == (data, len(data), "")
    store.swap(task, task._replace(state=State.HELD))
    now = found(store, task.id)
    assert store.size(now) == sum(part.size or 0 for part in store.parts(now)) > 0
    for name in ("payload", "mail/x", "nonsense", "../task"):
        with pytest.raises(Gone):
            store.read(now, name)
    with pytest.raises((Gone, Unsupported)):
        store.preview_problem(Problem("dlq/nothing.task", "gone meanwhile"))


def test_a_task_that_has_moved_cannot_be_read(open_store: Opener, a_task: Factory) -> None:
    """Text, size and parts of a task that has left the state in which it was seen are Gone."""
    store = open_store()
    task = put(store, a_task(), State.HELD)
    store.swap(task, verbs.purge(task, NOW))
    for state in (State.PENDING, State.HELD, State.DEAD):
        for ask in (store.read, store.size, lambda task: list(store.parts(task))):
            with pytest.raises(Gone):
                ask(task._replace(state=state))


def test_the_change_source_names_what_to_scan(open_store: Opener, a_task: Factory) -> None:
    """It has folders to be watched, or waits, and names a task that another process moved."""
    store, other = open_store(), open_store()
    wait = store.changes.wait
    if wait is None:
        assert store.changes.paths
        return
    assert not wait(0.0)

    added = put(other, a_task())
    names = wait(60.0)
    assert names is not None
    assert added.id in names
    other.swap(added, verbs.hold(added, NOW))
    names = wait(60.0)

    assert names is not None
    assert added.id in names
    assert not wait(0.0)


_SHARED = {name: each for name, each in list(globals().items()) if name.startswith("test_")}


def suite(without: Collection[str] = ()) -> dict[str, object]:
    """The tests and the fixtures that they share, by name, for the globals of a test file.

    `without`: names of tests that have nothing to show for a format, such as those of claims.

    Raises:
        ValueError: there is no such test.
    """
    if unknown := {*without} - _SHARED.keys():
        raise ValueError(f"no such tests: {', '.join(sorted(unknown))}")
    # Copies: marks of one test file are not those of another.
    tests = {
        name: FunctionType(test.__code__, test.__globals__, name)
        for name, test in _SHARED.items()
        if name not in without
    }
    return {**tests, "a_task": a_task, "payload": payload}
