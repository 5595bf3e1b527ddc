"""The index: a mirror of what looks say, in which every view is a query."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pytest import MonkeyPatch

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.index import filter_tasks, listed_rows
from engine.index.age_table import query_ages
from engine.index.filter_language import parse_filter
from engine.index.listed_rows import RowPositions
from engine.index.mail_columns import count_searched
from engine.index.reader import Reader
from engine.index.schema import ORDER_COLUMNS, Query, Window
from engine.index.writer import IndexDelta, Writer
from engine.model import (
    ATTEMPTS_ALLOWED_KEY,
    Lease,
    Missing,
    Problem,
    State,
    Task,
    attempts_allowed,
    count_recipients,
)
from engine.operations.plans import Row
from engine.store import Unavailable
from engine.system import temp_dir
from engine.system.temp_dir import TempDir
from engine.text import safe_regex
from tests.engine.task_builders import NOW
from tests.engine.task_builders import a_row as a_task
from tests.examples import examples
from tests.tables import each

CHUNK = 500
EVERYTHING = Query()


def look(writer: Writer, tasks: list[Task]) -> None:
    """Take in a whole look in which nothing moves."""
    writer.begin_scan()
    for at in range(0, len(tasks), CHUNK):
        writer.add_scanned(tasks[at : at + CHUNK])
    by_id = {task.id: task for task in tasks}
    while names := writer.unseen_ids():
        writer.apply_lookup(names, [by_id.get(name) or Missing(name) for name in names])
        writer.mark_seen(names)
    writer.end_scan()


def hosts(writer: Writer, count: int = 600) -> None:
    """Take in so many tasks with numbered names of hosts."""
    look(writer, [a_task(n, description=f"host{n}") for n in range(count)])


def all_of(reader: Reader, query: Query = EVERYTHING, generation: int = 0) -> list[Task]:
    """Every row of a result."""
    return list(reader.window(query, 0, 1_000_000, generation).tasks)


def test_a_task_comes_back_as_it_was(writer: Writer, reader: Reader) -> None:
    """Every field is in the index; what cannot be stored is shown in part and does no harm."""
    names = {"queue": "queue", "group": "group", "word": "sending", "rev": "1.2.3", "priority": -3}
    words = {"description": "what it is", "destination": "example.net", "error": "it broke"}
    more = {"lease": Lease("12", 3.5, 9.0, "t"), "extra": {"dead_since": "12", "more": "\u2603"}}
    mail = {"sender": "ann@a.example", "account": "ann", "bytes": 5_400, "payload": "/a/path"}
    recipients = ("bob@b.example", '"we\\"ird"@b.example', "")
    task = Task("an id", "mail_send", State.ACTIVE, 12.5, due=None, attempts=None)
    task = task._replace(**names, **words, **more, **mail, recipients=recipients)  # type: ignore[arg-type]
    writer.apply_lookup([task.id], [task])
    assert reader.task("an id") == task
    nasty = "'; DROP TABLE task; -- %_\\ \x1b[31m \0"
    stored = a_task(description=nasty, error="\udcff\ud800", attempts=1 << 80)
    writer.apply_lookup([stored.id], [stored])
    writer.add_scanned([stored, a_task(2, id="b\udcff"), Problem("pending/\udcfe", nasty)])
    (found,) = all_of(reader, Query(filter=parse_filter("DROP --")))
    assert (found.description, found.error, found.attempts) == (nasty, "??", (1 << 63) - 1)
    assert reader.problems() == (Problem("pending/?", nasty),)
    assert [task.id for task in all_of(reader)] == ["an id", "b?", "task-000001"]


def test_a_sender_that_cannot_be_stored_hides_no_other(writer: Writer, reader: Reader) -> None:
    """A lone surrogate in the first mails is a question mark, and all senders can be counted."""
    writer.add_scanned([a_task(1, sender="a\ud800@b"), a_task(2, sender="ann@a.example")])
    assert reader.has_mail()
    assert [task.sender for task in all_of(reader)] == ["a?@b", "ann@a.example"]


def test_only_the_first_of_very_many_recipients_are_found(writer: Writer, reader: Reader) -> None:
    """All are counted; the first 64 KiB are found, also without an index, and it is said so."""
    many = tuple(f"user{n:05}@{'late' if n == 5239 else 'b'}.example" for n in range(5240))
    mail = a_task(1, sender="ann@a.example", recipients=many)
    whole = a_task(2, sender="ann@a.example", recipients=many[:3])
    writer.add_scanned([mail, whole])
    stored = reader.task(mail.id)
    assert stored is not None
    searched = len(stored.recipients)
    assert 2_000 < searched < 5_240
    assert stored.recipients == many[:searched]
    assert (count_recipients(stored), count_recipients(mail)) == (5_240, 5_240)
    assert reader.count_searched(None) == (searched, 5_240)
    assert reader.count_searched(State.DEAD) == (0, 0)
    assert (count_searched(mail), count_searched(whole)) == (searched, 3)
    for text, number in (("to:user00002", 2), ("to:user05239", 0), ("dest=late.example", 1)):
        found = parse_filter(text)
        assert reader.count(Query(filter=found)) == number
        assert len(list(filter_tasks.select_matching([mail, whole], found, 0.0))) == number
    ages = query_ages(reader, EVERYTHING, "destination", 1e9)
    assert {row.name: row.total for row in ages.rows} == {"b.example": 5_242, "late.example": 1}
    words = f"searched {searched:,} of 5,240 recipients"
    assert reader.explain(Query(filter=parse_filter("to:user00002"))) == words
    assert reader.explain(Query(filter=parse_filter("zzz"))).endswith(f"; {words}")
    assert reader.explain(Query(State.DEAD, parse_filter("zzz"))) == ""
    assert reader.explain(Query(filter=parse_filter("from:ann"))) == ""
    huge = ("x" * 70_000 + "@b.example",)
    writer.add_scanned([a_task(3, sender="ann@a.example", recipients=huge)])
    assert reader.count_searched(None) == (searched, 5_241)


def test_recipients_leave_as_a_mail_is_delivered(writer: Writer, reader: Reader) -> None:
    """Another revision of a mail has fewer recipients, at last none; a task may become a mail."""
    task = a_task(1, rev="1")
    mail = task._replace(sender="ann@a.example", recipients=("a@b.example", "c@d.example"))
    writer.add_scanned([task])
    assert not reader.has_mail()
    for rev, recipients in enumerate((mail.recipients, mail.recipients[1:], ()), 2):
        writer.apply_lookup([task.id], [mail._replace(rev=f"{rev}", recipients=recipients)])
        assert reader.has_mail()
        ages = query_ages(reader, EVERYTHING, "destination", 1e9)
        assert {row.name for row in ages.rows} == {to[2:] for to in recipients}
        assert [stored.recipients for stored in all_of(reader)] == [recipients]
    writer.apply_lookup([task.id], [task._replace(rev="9")])
    assert reader.task(task.id) == task._replace(rev="9")


def test_what_has_no_age_is_of_none(writer: Writer, reader: Reader) -> None:
    """A task of unknown age stays so, and no filter by age or time finds it."""
    ageless = a_task(1, created=0.0)
    look(writer, [ageless, a_task(2)])
    assert reader.task(ageless.id) == ageless
    for text in ("age>1s", "age<=1s", "created<now", "created>=1970-01-01", "since:2000-01-01"):
        assert ageless not in all_of(reader, Query(filter=parse_filter(text, now=NOW + 60)))
    assert [row[3] for row in reader.plan_rows(Query())] == [0.0, NOW]


def test_a_task_is_where_the_latest_scan_found_it(writer: Writer, reader: Reader) -> None:
    """In two states it is shown twice; a missing one has left, and so have all below `NAME/`."""
    generations = count()

    def rows() -> list[tuple[str, State]]:
        return [(task.queue, task.state) for task in all_of(reader, EVERYTHING, next(generations))]

    writer.apply_lookup(["x"], [a_task(1)])
    writer.apply_lookup(["x"], [a_task(1, state=State.HELD, rev="new")])
    assert rows() == [("", State.HELD)]
    assert (writer.count(State.PENDING), writer.count(State.HELD)) == (0, 1)
    assert not writer.apply_lookup([a_task(1).id], []).changed
    assert rows() == [("", State.HELD)]
    writer.apply_lookup(["x"], [a_task(1), a_task(1, state=State.DEAD), a_task(1, queue="b")])
    assert sorted(rows()) == [("", State.DEAD), ("", State.PENDING), ("b", State.PENDING)]
    writer.apply_lookup(["y"], [a_task(1, id=ident) for ident in ("12/5", "12/70", "123/5")])
    assert writer.apply_lookup(["12"], [Missing("12/")]).departed == {"12/5", "12/70"}
    writer.apply_lookup(["123/5"], [Missing("123/5")])
    left = writer.apply_lookup([a_task(1).id], [Missing(a_task(1).id)])
    assert (left, rows()) == (IndexDelta(frozenset(), frozenset({a_task(1).id}), True), [])


def test_an_unreadable_task_becomes_a_problem(writer: Writer, reader: Reader) -> None:
    """It is a problem until it can be read, or a whole scan does not meet it."""
    task, name = a_task(1), "task-000001.task"
    one, two = Problem(f"pending/{name}", "torn", State.PENDING), Problem("dlq/two", "torn")
    writer.apply_lookup([task.id], [task])
    assert writer.apply_lookup([name], [one]).departed == {task.id}
    assert (reader.task(task.id), reader.problems()) == (None, (one,))
    assert writer.apply_lookup([name], [task]).appeared == {task.id}
    assert (reader.task(task.id), reader.problems()) == (task, ())
    items: list[Task | Missing | Problem] = [task, a_task(2), one, two]
    writer.begin_scan()
    assert writer.add_scanned(items).changed
    writer.end_scan()
    writer.begin_scan()
    assert writer.add_scanned(items) == IndexDelta()
    assert not writer.end_scan()
    writer.begin_scan()
    writer.add_scanned([task, a_task(2), two])
    assert writer.end_scan()
    assert (writer.problems, reader.problems()) == (1, (two,))


def test_finer_words_are_counted_as_tasks_come_change_and_leave(writer: Writer) -> None:
    """The index counts tasks by state and finer word, through every way they change."""
    writer.count_words()
    one, two, three = (a_task(number, word="failed") for number in (1, 2, 3))
    look(writer, [one, two, three, a_task(4)])
    assert writer.word_counts() == {(State.PENDING, "failed"): 3}
    held, named = two._replace(state=State.HELD, rev="new"), a_task(4, word="failed", rev="new")
    writer.apply_lookup([one.id, two.id, named.id], [a_task(1, rev="new"), held, named])
    assert writer.word_counts() == {(State.PENDING, "failed"): 2, (State.HELD, "failed"): 1}
    writer.apply_lookup([two.id, three.id], [Missing(two.id), Missing(three.id)])
    assert writer.word_counts() == {(State.PENDING, "failed"): 1}


@each(
    ("facts", "is_written"),
    [
        ({"due": NOW + 60}, True),
        ({"due": None}, True),
        ({"attempts": 4}, True),
        ({"word": "limited"}, True),
        ({"error": "450 mailbox busy"}, True),
        ({"extra": {"waits": "all agents are in use"}}, True),
        ({"due": NOW + 31}, False),  # a dump rounds it to other seconds
        ({"due": int(NOW + 31)}, False),
        ({}, False),
    ],
)
def test_facts_of_a_server_change_without_the_revision(
    writer: Writer, reader: Reader, facts: dict[str, Any], is_written: bool
) -> None:
    """The revision is that of a file, which no act of the scheduler has changed yet; due times that
    differ by their rounding are not written again."""
    before = a_task(1, rev="1", due=NOW + 30, attempts=3)
    look(writer, [before])
    after = before._replace(**facts)
    assert writer.apply_lookup([before.id], [after]).changed is is_written
    assert reader.task(before.id) == (after if is_written else before)


def test_each_death_counts_although_others_are_retried(writer: Writer) -> None:
    """In a lookup and in a scan, each task that is new among the dead counts; one that is seen
    there again does not."""
    look(writer, [a_task(1), a_task(2), a_task(3, state=State.DEAD)])
    dead = [a_task(1, state=State.DEAD, rev="new"), a_task(3, rev="new")]
    assert writer.apply_lookup([one.id for one in dead], dead).died == 1
    writer.begin_scan()
    again = [a_task(1, state=State.DEAD, rev="newer"), a_task(2, state=State.DEAD, rev="new")]
    assert writer.add_scanned(again).died == 1


def test_what_a_scan_misses_is_asked_for(writer: Writer, reader: Reader) -> None:
    """Rows that a whole scan missed are named at its end, and stay until that is settled."""
    look(writer, [a_task(1), a_task(2), a_task(3)])
    writer.begin_scan()
    delta = writer.add_scanned([a_task(2, state=State.DEAD, rev="new")])
    writer.apply_lookup(["x"], [a_task(3, state=State.DEAD, rev="new")])
    assert (delta.appeared, delta.departed) == (frozenset(), frozenset())
    assert writer.unseen_ids() == [a_task(1).id]
    assert reader.task(a_task(1).id) is not None
    assert (writer.count(State.PENDING), writer.count(State.DEAD)) == (1, 2)


def test_counts_do_not_flicker(writer: Writer) -> None:
    """During a second scan of everything, each state has as many tasks as before."""
    hosts(writer, 50)
    writer.begin_scan()
    for number in range(50):
        assert writer.count(State.PENDING) == 50
        writer.add_scanned([a_task(number, description=f"host{number}")])


VERBS = st.sampled_from(["add", "purge", "hold", "release", "gone"])
MEMORY_MOVES = st.lists(st.tuples(st.integers(0, 30), VERBS), max_size=12)


class IndexFollowsStore(RuleBasedStateMachine):
    """Any sequence of moves, scans of names and whole scans with moves during them."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryTasks()
        self.store = MemoryStore(self.memory)
        self.scratch = TempDir()
        self.writer = Writer(f"{self.scratch.path}/index", attempts_allowed)
        self.reader = Reader(f"{self.scratch.path}/index")
        self.rung: set[str] = set()
        self.came = self.left = self.generation = 0

    def move(self, number: int, what: str) -> None:
        """Do something to one task, if it can be done, and note the event of it."""
        ident = a_task(number).id
        task = self.memory.tasks.get(("", ident))
        goal = {"purge": State.TRASH, "hold": State.HELD, "release": State.PENDING}.get(what)
        with self.memory.condition:
            if what == "add" and task is None:
                self.memory.put(("", ident), a_task(number))
            elif what == "gone" and task is not None:
                self.memory.put(("", ident), None)
            elif goal and task is not None:
                self.memory.put(("", ident), task._replace(state=goal))
            else:
                return
        self.rung.add(ident)

    def account(self, delta: IndexDelta) -> None:
        """Count the tasks that came and left."""
        self.came += len(delta.appeared)
        self.left += len(delta.departed)

    def settle(self, names: set[str]) -> None:
        """Scan some names."""
        self.account(self.writer.apply_lookup(names, list(self.store.scan(names))))

    @rule(moves=MEMORY_MOVES)
    def moves(self, moves: list[tuple[int, str]]) -> None:
        """Other processes change the store."""
        for number, what in moves:
            self.move(number, what)

    @rule()
    def handle_events(self) -> None:
        """Scan the names of all events."""
        self.settle(self.rung)
        self.rung = set()

    @rule(moves=MEMORY_MOVES, size=st.integers(1, 5))
    def scan_everything(self, moves: list[tuple[int, str]], size: int) -> None:
        """Scan the whole store, which changes meanwhile."""
        self.writer.begin_scan()
        items = list(self.store.scan())
        for at in range(0, len(items), size):
            self.account(self.writer.add_scanned(items[at : at + size]))
            if moves:
                self.move(*moves.pop())
        while names := self.writer.unseen_ids():
            self.settle(set(names))
            self.writer.mark_seen(names)
        self.writer.end_scan()

    @rule()
    def make_the_other_indexes(self) -> None:
        """Make the indexes that come later, once."""
        if not self.generation:
            assert list(self.writer.build_indexes())
        self.generation += 1

    @invariant()
    def equals_the_store_without_open_events(self) -> None:
        """The index holds the tasks of the store, and has counted every arrival and departure."""
        if self.rung:
            return
        self.generation += 1
        tasks = sorted(self.memory.tasks.values(), key=lambda task: task.id)
        assert all_of(self.reader, EVERYTHING, self.generation) == tasks
        for state in State:
            stored_tasks = [task for task in tasks if task.state is state]
            assert self.writer.count(state) == len(stored_tasks)
            assert all_of(self.reader, Query(state)) == stored_tasks
        assert self.came - self.left == len(tasks)

    def teardown(self) -> None:
        """Close and remove everything."""
        self.reader.close()
        self.writer.close()
        self.scratch.remove()


IndexFollowsStore.TestCase.settings = examples(40, stateful_step_count=12)
TestIndexFollowsStore = IndexFollowsStore.TestCase
TestIndexFollowsStore.__doc__ = "After any sequence of moves and scans the index equals the store."


@pytest.mark.parametrize("arranged", [False, True])
def test_a_window_is_a_slice_of_the_result(writer: Writer, reader: Reader, arranged: bool) -> None:
    """A window anywhere in many rows, in any order of changes, is the slice there."""
    dice = random.Random(1)
    tasks = [a_task(n, state=State.DEAD if n % 3 else State.PENDING) for n in range(4_500)]
    dice.shuffle(tasks)
    look(writer, tasks)
    if arranged:
        assert list(writer.build_indexes())
    tasks = tasks[1_500:]
    look(writer, tasks)
    for state, descending in product((State.PENDING, State.DEAD, None), (False, True)):
        query = Query(state, descending=descending)
        rows = [task for task in tasks if state in (None, task.state)]
        rows.sort(key=lambda task: task.id, reverse=descending)
        last = len(rows) - 50
        for start in [0, 1, last, *(dice.randrange(last) for _ in range(10))]:
            window = reader.window(query, start, 50, 7)
            assert window == Window(tuple(rows[start : start + 50]), start, len(rows), 7)
            assert reader.find(query, rows[start].id, 7) == start
        assert reader.window(query, len(rows), 50, 7).start == last
    for query in (Query(State.HELD), Query(filter=parse_filter("absent"))):
        assert reader.find(query, tasks[0].id, 7) is None


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ["id", "attempts"])
def test_a_search_is_the_same_however_it_is_made(
    writer: Writer, reader: Reader, monkeypatch: MonkeyPatch, order: str, descending: bool
) -> None:
    """Words typed on give the rows of a plain search, in any order of windows and counts."""
    monkeypatch.setattr("engine.index.reader.COUNTED_ROWS", 0)
    names = ((n, f"host{n}") for n in range(2_500))
    tasks = [a_task(n, description=text, attempts=n % 3, queue="ab"[n % 2]) for n, text in names]
    look(writer, tasks)
    tasks.sort(key=lambda t: (t.attempts if order == "attempts" else 0, t.id), reverse=descending)
    typed = ("h", "ho", "host", "host1", "host13", "host13 id:a", "host130", "host", "x", "xy")
    for words in typed:
        query = Query(State.PENDING, parse_filter(words), order, descending)
        text = words.split()[0]
        rows = [t for t in tasks if text in t.description and (text == words or "a" in t.id)]
        first = reader.window(query, 0, 40, 1, counts=False)
        assert first.tasks == tuple(rows[:40])
        assert first.total == (len(rows) if first.is_counted else 40)
        last = max(0, len(rows) - 40)
        for generation, start in product((1, 2, 1), dict.fromkeys((0, last // 2, last, 0))):
            window = reader.window(query, start, 40, generation)
            assert window == Window(tuple(rows[start : start + 40]), start, len(rows), generation)
        for place in (0, len(rows) // 2, len(rows) - 1)[: len(rows)]:
            assert reader.find(query, rows[place].id, 3) == place
        assert reader.find(query, "absent", 3) is None


def test_tasks_are_ordered_by_the_tries_that_a_list_shows(writer: Writer, reader: Reader) -> None:
    """The file of a task that used up its retries lacks the last run; the order has it."""
    spent = {"dead_reason": "max_retries_exceeded", ATTEMPTS_ALLOWED_KEY: "4"}
    given_up = {"dead_reason": "permanent"}
    tasks = [
        a_task(n, state=State.DEAD, attempts=tries, extra=extra)
        for n, (tries, extra) in enumerate([(3, spent), (2, given_up), (3, given_up), (4, {})])
    ]
    look(writer, tasks)
    found = reader.window(Query(State.DEAD, order="attempts"), 0, 9, 1).tasks
    assert found == tuple(tasks[n] for n in (1, 2, 0, 3))


def test_a_search_is_counted_though_its_last_known_row_has_left(
    writer: Writer, reader: Reader, monkeypatch: MonkeyPatch
) -> None:
    """The index may be newer than the generation that was reported: the search is made again."""
    monkeypatch.setattr("engine.index.reader.COUNTED_ROWS", 0)
    hosts(writer)
    query = Query(State.PENDING, parse_filter("host"))
    last = reader.window(query, 0, 40, 1, counts=False).tasks[-1]
    writer.apply_lookup([last.id], [Missing(last.id)])
    window = reader.window(query, 0, 40, 1)
    assert (window.total, window.is_counted, last in window.tasks) == (599, True, False)


@each(("words", "order", "most", "is_counted", "total"), [
    ("host", "id", 599, False, 40),
    ("host59", "id", 599, True, 11),
    ("no", "id", 599, True, 0),
    ("host", "id", 600, True, 600),  # among few tasks
    ("host", "error", 600, True, 600),
])  # fmt: skip
def test_a_search_for_the_first_rows_is_not_counted(
    writer: Writer, reader: Reader, monkeypatch: MonkeyPatch, words: str, order: str, **row: int
) -> None:
    """A search whose first rows are found stops there; one with fewer rows is counted."""
    monkeypatch.setattr("engine.index.reader.COUNTED_ROWS", row["most"])
    hosts(writer)
    query = Query(State.PENDING, parse_filter(words), order)
    window = reader.window(query, 0, 40, 1, counts=False)
    assert (window.is_counted, window.total) == (row["is_counted"], row["total"])


def test_a_result_is_in_its_order(writer: Writer, reader: Reader) -> None:
    """A result is ordered by the wanted column, then by id; tasks without a value are last."""
    dice = random.Random(2)
    values: dict[str, Sequence[Any]] = {
        **{"kind": "abc", "created": [float(n) for n in range(9)], "due": [None, 0.0, 7.0, 8.0]},
        **{"attempts": [None, 0, 1, 10], "destination": "xyz", "error": ["", "late", "broken"]},
        **{"description": "pq", "lease": [None, Lease("1", 5.0), Lease("1", 50.0)]},
        "extra": [{}, {"dead_since": "9"}, {"dead_since": "10"}, {"dead_since": "?"}],
    }
    thrown = ({name: dice.choice(choices) for name, choices in values.items()} for _ in range(200))
    tasks = [a_task(n, **fields) for n, fields in enumerate(thrown)]
    look(writer, tasks)

    def value(task: Task, order: str) -> Any:
        if order == "since":
            return task.lease.since if task.lease else None
        if order == "died":
            died = task.extra.get("dead_since", "?")
            return None if died == "?" else int(died)
        return task.created or None if order == "created" else getattr(task, order)

    for order in sorted(ORDER_COLUMNS):
        keyed = sorted((value(t, order), t.id, t) for t in tasks if value(t, order) is not None)
        lack = sorted((t.id, t) for t in tasks if value(t, order) is None)
        for step in (1, -1):
            rows = [t for *_, t in keyed[::step]] + [t for _, t in lack[::step]]
            query = Query(order=order, descending=step < 0)
            assert all_of(reader, query) == rows, order
            assert reader.find(query, rows[7].id, 0) == 7, order


def test_a_result_changes_with_time_and_with_the_index(writer: Writer, reader: Reader) -> None:
    """What is not older than an hour now is so later; another generation is searched again."""
    writer.add_scanned([a_task(1)])
    query = Query(filter=parse_filter("age>1h"))
    assert reader.window(query, 0, 9, 1, NOW + 3600).tasks == ()
    assert reader.window(query, 0, 9, 1, NOW + 3601).tasks == (a_task(1),)
    assert reader.find(query, a_task(1).id, 1, NOW) is None
    assert reader.rows(query, None, NOW + 3601) == (Row(a_task(1).id, State.PENDING, "r1"),)
    search = Query(filter=parse_filter("job"))
    assert all_of(reader, search, 1) == [a_task(1)]
    writer.add_scanned([a_task(2)])
    assert all_of(reader, search, 2) == [a_task(1), a_task(2)]


def test_nothing_left_is_explained(writer: Writer, reader: Reader) -> None:
    """The part of a filter without which most would be left is named, with how many."""
    errors = ("late", "")
    look(writer, [a_task(n, error=errors[n % 2], attempts=2 - n % 2) for n in range(12)])
    explained = {
        "kind=job tries>9": '"tries>9" matches none; 12 without it',
        "late tries>=3": '"tries>=3" matches none; 6 without it',
        "kind=job id:x": '"id:x" matches none; 12 without it',
        "kind=job none tries>9": '"none" matches none of the 12 left by the words before',
        "nowhere kind=job state=work": '"nowhere" matches none of the 12 left by the words before',
        "kind=job": "",
        "": "",
    }

    def explain(text: str) -> str:
        return reader.explain(Query(State.PENDING, parse_filter(text, {State.ACTIVE: "work"})))

    assert {text: explain(text) for text in explained} == explained
    assert reader.explain(Query(State.HELD, parse_filter("kind=job"))) == ""


def test_a_result_is_harvested_as_it_was(writer: Writer, reader: Reader) -> None:
    """All rows of a moment come in order, even if deleted meanwhile, until the caller says no."""
    tasks = [a_task(n, error="late" if n % 2 else "") for n in range(2_600)]
    look(writer, tasks)
    got: list[Task] = []
    progress = []

    def take(some: Sequence[Task], done: int, total: int) -> bool:
        got.extend(some)
        progress.append((done, total))
        writer.apply_lookup({task.id for task in tasks}, [Missing(task.id) for task in tasks])
        return True

    assert reader.export(EVERYTHING, lambda *_: False) == 500
    query = Query(filter=parse_filter("late"), descending=True)
    assert reader.export(query, take) == 1_300
    assert got == [task for task in reversed(tasks) if task.error]
    assert progress == [(500, 1_300), (1_000, 1_300), (1_300, 1_300)]
    assert reader.export(query, take) == 0


def test_a_search_can_be_ended(writer: Writer, reader: Reader, monkeypatch: MonkeyPatch) -> None:
    """An interrupt from another thread ends a search between two matches."""
    hosts(writer, 400)
    texts = []

    def search(text: str) -> None:
        texts.append(text)
        other = threading.Thread(target=reader.interrupt)
        other.start()
        other.join()

    monkeypatch.setattr(filter_tasks, "compile_pattern", lambda _: safe_regex.Pattern(search))
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        reader.count(Query(filter=parse_filter("desc~a")))
    assert len(texts) < 10
    assert reader.count(EVERYTHING) == 400


def test_a_plan_is_made_of_what_matches(writer: Writer, reader: Reader) -> None:
    """The rows of a plan are all that a query matches, or the named ones among them."""
    one, two = a_task(1, error="late"), a_task(2, state=State.DEAD, error="late")
    first, second = Row(one.id, State.PENDING, "r1"), Row(two.id, State.DEAD, "r2")
    look(writer, [one, two, a_task(3)])
    assert reader.rows(Query(filter=parse_filter("late"))) == (first, second)
    dead_late, dead_other = (Query(State.DEAD, parse_filter(word)) for word in ("late", "other"))
    for query, rows in ((dead_late, (second,)), (Query(State.DEAD), (second,)), (dead_other, ())):
        assert reader.rows(query, [one.id, two.id, "absent"]) == rows


@pytest.mark.parametrize("early", [0, 5000])
def test_a_row_that_the_first_scan_shows_twice_is_one_row(
    early: int, writer: Writer, reader: Reader, monkeypatch: MonkeyPatch
) -> None:
    """A task of the sample, or one that a lookup read before, comes again: its row is replaced."""
    monkeypatch.setattr("engine.index.writer.MAX_EARLY_ROWS", early)
    writer.begin_scan()
    writer.add_scanned([a_task(1, rev="sample"), a_task(3, rev="sample")])
    writer.apply_lookup([a_task(2).id], [a_task(2, rev="lookup")])
    writer.add_scanned([a_task(n, rev="scan") for n in range(4)])
    assert not writer.unseen_ids()
    writer.end_scan()
    assert writer.count(State.PENDING) == 4
    assert {row.rev for row in reader.rows(Query(State.PENDING))} == {"scan"}


def test_questions_leave_no_snapshot_open(writer: Writer, reader: Reader, index_path: str) -> None:
    """After a question the reader has no snapshot: the whole WAL can be removed."""
    writer.add_scanned([a_task(n) for n in range(200)])
    for query in (Query(State.PENDING), Query(filter=parse_filter("job"))):
        reader.window(query, 0, 40, 1)
    writer.add_scanned([a_task(n, rev="new") for n in range(200)])
    with closing(sqlite3.connect(index_path)) as other:
        busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy


@given(
    names=st.lists(st.integers(0, 400), max_size=400),
    gone=st.lists(st.integers(0, 400), max_size=200),
)
@examples(50)
def test_blocks_know_every_place(names: list[int], gone: list[int]) -> None:
    """After any arrivals and departures, the stored blocks give the number of names before each."""
    rows: list[str] = []
    blocks: dict[str, int] = {}
    listed = RowPositions()

    def split(first: str, count: int) -> tuple[str, int] | None:
        after = [name for name in rows if name >= first]
        before = after.index(after[count])
        return (after[count], before) if before else None

    with MonkeyPatch.context() as patch:
        patch.setattr(listed_rows, "BLOCK_ROWS", 8)
        half = len(names) // 2
        for name in sorted(f"{n:03}" for n in names[:half]):
            rows.append(name)
            listed.add(name, 1)
        blocks.update(listed.take_changes(split))
        listed.add_sorted(sorted(f"{n:03}" for n in names[half:]))
        rows = sorted(f"{n:03}" for n in names)
        blocks.update(listed.take_changes(split))
        for name in (f"{n:03}" for n in gone):
            if name in rows:
                rows.remove(name)
                listed.add(name, -1)
        blocks.update(listed.take_changes(split))
    assert listed.total == len(rows) == sum(blocks.values())
    for first in (first for first, size in blocks.items() if size):
        before = sum(size for name, size in blocks.items() if name < first)
        assert before == sum(name < first for name in rows)
    assert all(size < 16 or len(set(rows)) < len(rows) for size in blocks.values())


def test_a_scratch_folder_is_private_removed_and_swept(tmp_path: Path) -> None:
    """A sweep spares links, files, other names, claimed folders and those of this minute."""
    held = TempDir(str(tmp_path))
    assert Path(held.path).stat().st_mode & 0o777 == 0o700
    (Path(held.path) / "index").write_text("rows")
    os.utime(held.path, (0, 0))
    elsewhere, new = tmp_path / "elsewhere", tmp_path / f"{temp_dir.PREFIX}new"
    elsewhere.mkdir()
    (elsewhere / temp_dir.OWNER_FILE).touch()
    (tmp_path / f"{temp_dir.PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{temp_dir.PREFIX}file").touch()
    new.mkdir()
    assert (temp_dir.remove_abandoned(str(tmp_path)), len(list(tmp_path.iterdir()))) == ([], 5)
    os.utime(new, (0, 0))
    assert temp_dir.remove_abandoned(str(tmp_path)) == [str(new)]
    held.remove()
    assert not Path(held.path).exists()
    with pytest.raises(Unavailable, match=f"{tmp_path}/{temp_dir.PREFIX}file: Not a directory"):
        TempDir(f"{tmp_path}/{temp_dir.PREFIX}file")


def test_two_threads_remove_a_scratch_folder_once(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """A second thread that removes the folder meanwhile closes no descriptor a second time."""
    held, real = TempDir(str(tmp_path)), shutil.rmtree

    def remove_twice(path: str, ignore_errors: bool) -> None:
        monkeypatch.setattr(shutil, "rmtree", real)
        second = threading.Thread(target=held.remove)
        second.start()
        second.join()
        real(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", remove_twice)
    held.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_crashed_owner_is_swept(tmp_path: Path) -> None:
    """What a killed process left is removed by the next that makes one there."""
    code = "import sys, signal; from engine.system.temp_dir import TempDir; "
    code += "folder = TempDir(sys.argv[1]); print(folder.path, flush=True); signal.pause()"
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        alive = temp_dir.remove_abandoned(str(tmp_path))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (alive, temp_dir.remove_abandoned(str(tmp_path))) == ([], [path])
    assert not Path(path).exists()
