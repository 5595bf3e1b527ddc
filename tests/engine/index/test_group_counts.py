"""Tasks by queue, kind, group or destination: the counts, the last error, and the filter of one."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from operator import attrgetter
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.destinations.watch import DestinationTasks, add_task
from engine.index import group_counts
from engine.index.age_table import UNFINISHED_STATES, query_ages
from engine.index.filter_language import equality_filter, parse_filter
from engine.index.mail_columns import mail_domain
from engine.index.reader import Reader
from engine.index.schema import STATES, Query
from engine.index.writer import Writer
from engine.model import NULL_SENDER, State, Task, attempts_allowed
from engine.policy import died_at
from tests.engine.task_builders import NOW, a_row
from tests.examples import examples

ODD = ['say "x"', "a b", "a|b", "!a", "@a", "%_\\", "", "\x1b[2J", "ü", "x" * 2000, "kind=b"]


@contextmanager
def an_index() -> Iterator[tuple[Writer, Reader]]:
    """A new index's writer and its reader."""
    with (
        TemporaryDirectory() as folder,
        closing(Writer(f"{folder}/index", attempts_allowed)) as writer,
        closing(Reader(f"{folder}/index")) as reader,
    ):
        yield writer, reader


VALUE_OF: dict[str, Callable[[Task], str | None]] = {
    **{by: attrgetter(by) for by in ("queue", "kind", "group", "sender", "account")},
    "destination": lambda task: task.destination.rpartition("@")[2],
    "sender-domain": lambda task: mail_domain(task.sender) if task.sender else "",
}
SOME_TASKS: st.SearchStrategy[list[dict[str, object]]] = st.lists(
    st.builds(
        dict,
        state=st.sampled_from(STATES),
        kind=st.sampled_from(ODD),
        queue=st.sampled_from(("", "fast", "slow")),
        destination=st.sampled_from(("", "a@x.example", "b@x.example", "y.example")),
        created=st.sampled_from((0.0, NOW - 900, NOW - 60)),
        due=st.sampled_from((None, 0.0, NOW - 5, NOW + 30)),
        sender=st.sampled_from(("", "", "a@x", "b@X", NULL_SENDER)),
        account=st.sampled_from(("", "ann", None)),
    ),
    max_size=30,
)


@given(SOME_TASKS, st.sampled_from(tuple(group_counts.GROUP_COLUMNS)))
@examples(60)
def test_groups_are_those_of_the_tasks(some: list[dict[str, object]], by: str) -> None:
    """A group counts its tasks by state; its filter finds exactly these, with any name."""
    mail = {"sender": ""} if by == "destination" else {}  # else recipients are counted
    tasks = [a_row(number, **{**fields, **mail}) for number, fields in enumerate(some)]
    expected: dict[str, list[Task]] = {}
    for task in tasks:
        if (name := VALUE_OF[by](task)) is not None:
            expected.setdefault(name, []).append(task)
    with an_index() as (writer, reader):
        writer.add_scanned(tasks)
        table = group_counts.query_groups(reader, Query(), by, NOW)
        assert {group.name for group in table.groups} == set(expected)
        for group in table.groups:
            its = expected[group.name]
            counts = [sum(task.state is state for task in its) for state in STATES]
            assert [group.count(state) for state in STATES] == counts
            assert group.oldest == min((t.created for t in its if t.created), default=None)
            waiting = [t.due for t in its if t.state is State.PENDING and t.due is not None]
            assert group.next_due == min(waiting, default=None)
            narrowed = Query(filter=equality_filter(group_counts.FILTER_FIELDS[by], group.name))
            assert reader.count(narrowed, NOW) == len(its)


RECIPIENTS = st.sampled_from(("a@x", "b@X", "c@y..z.", 'd@"', "e@y", "root"))
MAIL: st.SearchStrategy[dict[str, object]] = st.builds(
    dict,
    state=st.sampled_from(STATES),
    sender=st.sampled_from(("", "a@x", NULL_SENDER)),
    recipients=st.lists(RECIPIENTS, max_size=4).map(tuple),
    error=st.sampled_from(("", "421 later")),
)
MAILS: st.SearchStrategy[list[dict[str, object]]] = st.lists(MAIL, max_size=20)


@given(MAILS, st.booleans())
@examples(60)
def test_each_open_recipient_is_counted(some: list[dict[str, object]], is_arranged: bool) -> None:
    """A mail counts once for each open recipient of a domain; its filter counts it once."""
    tasks = [a_row(number, **fields) for number, fields in enumerate(some)]
    expected: dict[str, Counter[Task]] = {}
    for task in tasks:
        domains = list(map(mail_domain, task.recipients))
        for name in domains if task.sender or task.recipients else [""]:
            expected.setdefault(name, Counter())[task] += 1
    with an_index() as (writer, reader):
        writer.add_scanned(tasks)
        if is_arranged:
            writer.end_scan()
            list(writer.build_indexes())
        table = group_counts.query_groups(reader, Query(), "destination", NOW)
        ages = query_ages(reader, Query(), "destination", NOW)
        assert {group.name for group in table.groups} == set(expected)
        for group in table.groups:
            its = expected[group.name]
            for state in STATES:
                assert group.count(state) == sum(n for t, n in its.items() if t.state is state)
                assert group.count_tasks(state) == sum(t.state is state for t in its)
            narrowed = Query(filter=equality_filter("dest", group.name))
            assert reader.count(narrowed, NOW) == group.count_tasks(None) == len(its)
    counted = {bool(t.sender or t.recipients) for its in expected.values() for t in its}
    units = {(): "tasks", (False,): "tasks", (True,): "recipients"}
    assert table.unit == units.get(tuple(counted), "recipients and other tasks")
    groups = expected.values()
    waiting = [{t: n for t, n in its.items() if t.state in UNFINISHED_STATES} for its in groups]
    rows = {name: sum(its.values()) for name, its in zip(expected, waiting, strict=True) if its}
    assert {row.name: row.total for row in ages.rows} == rows
    assert ages.total.total == sum(rows.values())


def test_the_last_error_is_that_of_the_latest_death(writer: Writer, reader: Reader) -> None:
    """The error of the task that died last; of one that did not die, its creation counts."""
    died = {"dead_since": str(NOW - 5)}
    tasks = [
        a_row(1, kind="mail", error="old", created=NOW - 50),
        a_row(2, kind="mail", error="last", created=NOW - 90, state=State.DEAD, extra=died),
        a_row(3, kind="mail", error="", created=NOW - 1),
        a_row(4, kind="feed", error="", created=NOW - 1),
    ]
    assert died_at(tasks[1]) == NOW - 5
    writer.add_scanned(tasks)
    mail, feed = group_counts.query_groups(reader, Query(), "kind", NOW).groups
    assert (mail.name, mail.error, mail.error_at) == ("mail", "last", NOW - 5)
    assert (feed.name, feed.error, feed.error_at) == ("feed", "", None)


def test_the_last_error_is_one_of_an_attempt(writer: Writer, reader: Reader) -> None:
    """Not what a newer task waits for that was not tried yet, unless none was."""
    waits = "waits: its scheduler has not read it yet"
    tried = a_row(1, kind="smtp", error="450 busy", created=NOW - 50, attempts=2)
    new = [a_row(n, kind=k, error=waits, created=NOW - n) for n, k in ((2, "smtp"), (3, "uucp"))]
    writer.add_scanned([tried, *(row._replace(attempts=None) for row in new)])
    groups = group_counts.query_groups(reader, Query(), "kind", NOW).groups
    assert [(g.name, g.error, g.error_at) for g in groups] == [
        ("smtp", "450 busy", None),  # the time of an error is that of a death
        ("uucp", waits, None),
    ]
    assert [group.waits for group in groups] == ["", waits.removeprefix("waits: ")]


def test_the_largest_groups_are_listed_the_others_counted(writer: Writer, reader: Reader) -> None:
    """At most `MAX_GROUPS` groups; those with the most tasks in the wanted state come first."""
    tasks = [a_row(n, kind=f"k{n:03}") for n in range(group_counts.MAX_GROUPS + 7)]
    tasks += [a_row(900 + n, kind="large") for n in range(3)]
    tasks += [a_row(950, kind="broken", state=State.DEAD)]
    writer.add_scanned(tasks)
    table = group_counts.query_groups(reader, Query(), "kind", NOW)
    assert (len(table.groups), table.others, table.other_tasks) == (group_counts.MAX_GROUPS, 9, 9)
    assert (table.groups[0].name, table.total) == ("large", len(tasks))
    wanted = group_counts.query_groups(reader, Query(), "kind", NOW, State.DEAD)
    assert wanted.groups[0].name == "broken"
    dead = group_counts.query_groups(reader, Query(State.DEAD), "kind", NOW)
    assert [(group.name, group.total) for group in dead.groups] == [("broken", 1)]


@pytest.mark.parametrize(("fields", "by", "groupings"), [
    ([], "kind", ("kind",)),
    ([{"kind": "a"}, {"kind": "a"}], "kind", ("kind",)),
    ([{"kind": "a"}, {"kind": "b"}], "kind", ("kind",)),
    ([{"queue": "q"}, {"queue": "q", "kind": "b"}], "kind", ("queue", "kind")),
    ([{"queue": "q", "kind": "b"}, {"queue": "r"}], "queue", ("queue", "kind")),
    ([{"group": ""}, {"group": "smtp"}], "group", ("kind", "group")),
    ([{"destination": "a@x"}, {"destination": "b@y"}], "destination", ("kind", "destination")),
])  # fmt: skip
def test_the_first_grouping_with_several_groups_is_used(
    writer: Writer, reader: Reader, fields: list[dict[str, object]], by: str, groupings: object
) -> None:
    """Without a wish: the first with more than one group; those without values are not offered."""
    writer.add_scanned([a_row(number, **some) for number, some in enumerate(fields)])
    table = group_counts.query_groups(reader, Query(), "", NOW)
    assert (table.by, table.groupings) == (by, groupings)


def test_a_filter_narrows_the_groups(writer: Writer, reader: Reader) -> None:
    """Counts, errors and the default grouping are those of the tasks that match."""
    first, second = a_row(1, queue="q", kind="a", error="550 no"), a_row(2, queue="q", kind="b")
    writer.add_scanned([first, second, a_row(3, queue="r", kind="c")])
    query = Query(filter=parse_filter("queue=q"))
    table = group_counts.query_groups(reader, query, "", NOW)
    assert [(g.name, g.total, g.error) for g in table.groups] == [("a", 1, "550 no"), ("b", 1, "")]
    assert table.by == "kind"
    nothing = group_counts.query_groups(reader, Query(filter=parse_filter("kind=z")), "", NOW)
    assert nothing == group_counts.GroupTable() and nothing.total == 0


def test_tasks_of_destinations_are_counted_by_code() -> None:
    """By the code in brackets of an error; beyond a maximum they are unknown, not none."""
    peer, other = "https://peer.example", "http://other.example:8080"
    young = "http://young.example"
    dead = ("[DNS] a", "[DNS] b", "DNS", f"[{'x' * 99}]", "_HTTP_503_ c_ d", "_DNS_ e")
    rows = [
        *(a_row(n, destination=peer, created=NOW - age) for n, age in enumerate((9, 30))),
        a_row(2, destination=other, error="[RESET] once", created=NOW - 5),
        *(a_row(n, state=State.DEAD, destination=peer, error=e) for n, e in enumerate(dead, 3)),
        a_row(9, state=State.DONE, destination=peer),
        *(a_row(n, destination=to) for n, to in enumerate(("ann@http.example", "httpd"), 10)),
        *(a_row(n, destination=to, created=0.0) for n, to in enumerate((other, young), 12)),
    ]
    scanned: dict[str, DestinationTasks] = {}
    for task in rows:
        add_task(scanned, task)
    with an_index() as (writer, reader):
        writer.add_scanned(rows)
        counts = group_counts.count_destinations(reader)
        cut = group_counts.count_destinations(reader, 6)

    assert (counts.unknown_from, counts.of("https://unknown.example")) == ("", DestinationTasks())
    assert counts.by_origin == {
        peer: DestinationTasks(2, {"DNS": 3, "": 1, "x" * 40: 1, "HTTP_503": 1}, NOW - 30),
        other: DestinationTasks(2, {}, NOW - 5),
        young: DestinationTasks(1),
    }
    assert (scanned, cut.of(other)) == (counts.by_origin, DestinationTasks(2, {}, NOW - 5))
    assert cut.of(peer) is None
