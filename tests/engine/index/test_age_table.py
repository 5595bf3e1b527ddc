"""How old tasks are: the table, and the sentence that reads it."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.index import age_table, backlog, error_clusters
from engine.index.age_table import BOUNDS_MINUTES, MAX_AGE_ROWS, AgeRow, Ages, summarize_ages
from engine.index.backlog import BacklogSummary
from engine.index.error_clusters import Cluster
from engine.index.filter_language import parse_filter
from engine.index.reader import Reader
from engine.index.schema import Query
from engine.index.writer import Writer
from engine.model import State, Task, attempts_allowed
from engine.system.temp_dir import TempDir
from engine.text import error_pattern
from tests.engine.task_builders import NOW, a_row
from tests.examples import examples

MINUTE = 60.0


def a_task(number: int = 1, minutes: float = 0.0, **changes: object) -> Task:
    """A pending task that is so many minutes old."""
    return a_row(number, **{"created": NOW - minutes * MINUTE, **changes})


def dead_task(number: int, error: str, died: float | None = None, **changes: object) -> Task:
    """A dead task with its error and perhaps its time of death."""
    extra = {} if died is None else {"dead_since": str(died)}
    fields = {"kind": "mail", "state": State.DEAD, "error": error, "extra": extra}
    return a_row(number, **{**fields, **changes})


Indexed = Callable[[Sequence[Task]], Reader]


def ages_of(reader: Reader, by: str = "destination", words: str = "") -> Ages:
    """The ages of the tasks that a filter finds."""
    return age_table.query_ages(reader, Query(filter=parse_filter(words)), by, NOW)


def totals(table: Ages) -> dict[str, int]:
    """The number of tasks in each row."""
    return {row.name: row.total for row in table.rows}


@pytest.fixture(params=[False, True], ids=["plain", "arranged"])
def indexed(request: pytest.FixtureRequest, writer: Writer, reader: Reader) -> Indexed:
    """Makes an index of some tasks, with the indexes of a first whole look or without."""

    def make(tasks: Sequence[Task]) -> Reader:
        fill(writer, tasks, request.param)
        return reader

    return make


def fill(writer: Writer, tasks: Sequence[Task], arranged: bool) -> None:
    """Take in a whole look."""
    writer.begin_scan()
    for at in range(0, len(tasks), 500):
        writer.add_scanned(tasks[at : at + 500])
    writer.end_scan()
    if arranged:
        assert list(writer.build_indexes())


def test_rows_are_by_what_was_asked(indexed: Indexed) -> None:
    """Tasks are told apart by destination, group, kind or pattern of their error, most first."""
    fields: list[dict[str, Any]] = [
        {"destination": "a@a.example", "kind": "mail", "error": "timeout after 30 s"},
        {"destination": "b.example", "group": "mx", "kind": "mail", "error": "timeout after 31 s"},
        {"destination": "b.example", "group": "mx", "kind": "feed", "error": ""},
    ]
    reader = indexed([a_task(n, **f) for n, f in enumerate(fields)])
    rows = {
        "destination": [("b.example", 2), ("a.example", 1)],
        "group": [("mx", 2), ("", 1)],
        "kind": [("mail", 2), ("feed", 1)],
        "error": [(error_pattern.fold_error("timeout after 30 s"), 2), ("", 1)],
        **{by: [("", 3)] for by in ("sender", "sender-domain", "account")},
    }
    for by in age_table.GROUPINGS:
        assert [*totals(ages_of(reader, by)).items()] == rows[by]


def test_a_mail_of_unread_account_is_in_no_row_of_accounts(indexed: Indexed) -> None:
    """It is not one without an account, and the total is that of the rows."""
    accounts = ("ann", "", None, None)
    reader = indexed([a_task(n, sender="a@b", account=a) for n, a in enumerate(accounts)])
    table = ages_of(reader, "account")
    assert (totals(table), table.total.total) == ({"ann": 1, "": 1}, 2)


def test_a_bucket_ends_where_the_next_begins_and_is_a_filter(indexed: Indexed) -> None:
    """A task of five minutes is in the second; the filter of a bucket finds exactly its tasks."""
    minutes = [-3, 0, 4.9, 5, 9.9, 10, 39, 40, 1279, 1280, 99_999]
    reader = indexed([a_task(n, m) for n, m in enumerate(minutes)])
    table = ages_of(reader)
    assert table.total == AgeRow("TOTAL", (3, 2, 1, 1, 1, 0, 0, 0, 1, 2))
    assert table.rows == (AgeRow("", table.total.counts),)
    texts = map(age_table.bucket_filter, range(len(BOUNDS_MINUTES) + 1))
    buckets = [Query(filter=parse_filter(text)) for text in texts]
    assert [reader.count(query, NOW) for query in buckets] == list(table.total.counts)


@pytest.mark.parametrize("text", ["", "kind=job"])
def test_what_has_no_age_is_counted_apart(indexed: Indexed, text: str) -> None:
    """It is in no bucket, but in the total and the rest, and never the oldest."""
    tasks = [a_task(n, 7, destination=f"{n % 3}.example") for n in range(6)]
    reader = indexed([*tasks, a_task(9, created=0.0, destination="0.example")])
    table = ages_of(reader, words=text)
    assert (table.total.counts, table.total.unknown) == ((0, 6, *[0] * 8), 1)
    first = table.rows[0]
    assert (first, first.total) == (AgeRow("0.example", (0, 2, *[0] * 8), 1), 3)
    assert table._replace(rows=table.rows[1:]).rest == first._replace(name="")
    assert backlog.summarize_backlog(reader, NOW) == BacklogSummary(NOW - 420, 7, NOW - 420)


def test_without_a_state_it_is_pending_held_and_dead_tasks(indexed: Indexed) -> None:
    """Pending, held and dead tasks count, unless a state is asked for, or named in the filter."""
    reader = indexed([a_task(n, state=state) for n, state in enumerate(State)])
    for words, total in (("", 3), ("id:00000", 3), ("state=active|state=done", 2)):
        assert ages_of(reader, "kind", words).total.total == total
    assert age_table.query_ages(reader, Query(State.ACTIVE), "kind", NOW).total.total == 1


def test_addresses_of_one_domain_are_one_row(indexed: Indexed) -> None:
    """As in the table of qshape; and a row's name as a filter finds exactly its tasks."""
    to = ["a@one.example", "b@one.example", '"q@uo"@one.example', "one.example", "c@two.example"]
    reader = indexed([a_task(n, destination=t) for n, t in enumerate(to)])
    assert [*totals(ages_of(reader)).items()] == [("one.example", 4), ("two.example", 1)]
    for name, amount in [("one.example", 4), ("a@one.example", 1), ("example", 0)]:
        assert ages_of(reader, words=f"dest={name}").total.total == amount


@pytest.mark.parametrize(
    ("names", "others"),
    [(MAX_AGE_ROWS, 0), (MAX_AGE_ROWS + 7, 7), (age_table.MAX_INDEXED_NAMES + 50, 1_850)],
)
def test_only_so_many_rows_are_shown(indexed: Indexed, names: int, others: int) -> None:
    """The rows are those with most tasks; the others are counted, and their tasks are the rest."""
    tasks = [a_task(n, destination=f"d{n % names}") for n in range(names + MAX_AGE_ROWS)]
    table = ages_of(indexed(tasks))
    assert (len(table.rows), table.others) == (MAX_AGE_ROWS, others)
    assert sum(totals(table).values()) == 2 * MAX_AGE_ROWS
    assert (table.rest.total, table.total.total) == (others, len(tasks))


ERRORS = st.sampled_from(["", "late 1", "late 2", "gone"])
AGED_STATES = st.sampled_from([State.PENDING, State.DEAD, State.ACTIVE])
NAMES = st.sampled_from(["", "a", "b", "A"])
AGED = st.lists(st.tuples(st.integers(0, 1400), NAMES, AGED_STATES, ERRORS), max_size=30)


@given(AGED, st.sampled_from(sorted(age_table.GROUPINGS)), st.booleans(), st.booleans())
@examples(30)
def test_every_task_is_in_one_cell(
    aged: list[tuple[int, str, State, str]], by: str, arranged: bool, filtered: bool
) -> None:
    """Each of any tasks is counted once, in its row and its bucket."""
    mail = () if by == "destination" else ("sender", "account")  # else recipients are counted
    same = ("destination", "group", "kind", *mail)
    tasks = [
        a_task(n, minutes, state=state, error=error, **dict.fromkeys(same, name))
        for n, (minutes, name, state, error) in enumerate(aged)
    ]
    folder = TempDir()
    path = f"{folder.path}/index"
    with closing(Writer(path, attempts_allowed)) as writer, closing(Reader(path)) as reader:
        fill(writer, tasks, arranged)
        table = ages_of(reader, by, "tries=0" if filtered else "")
    folder.remove()
    counted: Counter[tuple[str, int]] = Counter()
    for task in (one for one in tasks if one.state is not State.ACTIVE):
        name = error_pattern.fold_error(task.error) if by == "error" else task.destination
        bucket = sum((NOW - task.created) / MINUTE >= bound for bound in BOUNDS_MINUTES)
        counted[name.lower() if by == "sender-domain" else name, bucket] += 1
    cells = ((row.name, at, n) for row in table.rows for at, n in enumerate(row.counts) if n)
    assert {(name, at): n for name, at, n in cells} == dict(counted)


def a_table(*counts: int, **rows: int) -> Ages:
    """A table of these totals, with rows of so many tasks."""
    names = rows or {"": sum(counts)}
    age_rows = tuple(AgeRow(name.replace("_", "."), (n,) + (0,) * 9) for name, n in names.items())
    return Ages("destination", age_rows, AgeRow("TOTAL", counts), 0)


BEGUN = "new tasks, or trouble just begun"
LONG_AGO = "leftovers, almost none new"
DRAINS = "no new ones for"

READINGS: dict[tuple[int, ...], str] = {
    (0,) * 10: "",
    (9, 0, 0, 0, 0, 0, 0, 0, 0, 0): f"younger than 5m: {BEGUN}",
    (9, 9, 0, 0, 0, 0, 0, 0, 0, 0): f"younger than 10m: {BEGUN}",
    (99, 0, 0, 0, 0, 0, 0, 0, 0, 1): f"younger than 5m: {BEGUN}",
    (50, 50, 100, 200, 400, 0, 0, 0, 0, 0): "started 40m-1h20m ago and continues",
    (10, 12, 25, 60, 90, 300, 800, 0, 0, 0): "started 2h40m-5h20m ago and continues",
    (0, 0, 0, 10, 400, 800, 0, 0, 0, 0): f"started 1h20m-2h40m ago; {DRAINS} 40m",
    (0, 0, 30, 90, 0, 0, 0, 0, 0, 0): f"started 20m-40m ago; {DRAINS} 10m",
    (0, 0, 0, 0, 0, 0, 0, 0, 3, 40): f"older than 10h40m: {LONG_AGO}",
    (0, 0, 0, 0, 0, 0, 0, 9, 0, 0): f"older than 5h20m: {LONG_AGO}",
    (0, 0, 0, 0, 0, 0, 90, 90, 90, 90): f"started over 21h20m ago; {DRAINS} 2h40m",
    (9, 9, 18, 36, 72, 140, 280, 560, 1100, 2200): ("mostly older than 5h20m: leftovers, some new"),
    (90, 90, 9, 0, 0, 0, 0, 0, 0, 40): "mostly new tasks; 40 older than 5h20m: leftovers",
    (30, 30, 60, 90, 90, 90, 90, 30, 30, 60): "of every age: started over 21h20m ago and continues",
}


def test_a_table_is_read_as_its_manual_has_it() -> None:
    """The last full bucket is the beginning, the first the end; unknown ages come behind."""
    assert {counts: summarize_ages(a_table(*counts)) for counts in READINGS} == READINGS
    assert (summarize_ages(age_table.NO_AGES), age_table.NO_AGES.rest.total) == ("", 0)
    for known, sentence in ((0, ""), (9, f"younger than 5m: {BEGUN}; ")):
        row = AgeRow("TOTAL", (known,) + (0,) * 9, 12)
        assert summarize_ages(Ages("destination", (row,), row, 0)) == f"{sentence}12 of unknown age"


TEN = (10,) + (0,) * 9


def test_what_most_of_it_is_about_is_named() -> None:
    """Of several rows, one with at least half of the tasks and a name is named."""
    assert summarize_ages(a_table(*TEN, gmail_com=6, outlook_com=4)).endswith("; 60% gmail.com")
    for rows in ({"": 6, "a": 4}, {"a": 4, "b": 3, "c": 3}, {"a": 10}):
        assert "%" not in summarize_ages(a_table(*TEN, **rows))


@pytest.mark.parametrize(("rows", "expected"), [
    ({"a": 10}, False), ({"": 10}, False), ({"a": 6, "b": 4}, True), ({"": 6, "a": 4}, False),
    ({"": 5, "a": 5}, True), ({"": 2, "a": 7, "b": 1}, True),
])  # fmt: skip
def test_a_table_of_tasks_without_a_name_says_nothing(rows: dict[str, int], expected: bool) -> None:
    """A table is informative with several rows, of which at most half are tasks without a name."""
    assert a_table(*TEN, **rows).is_informative == expected


@given(st.lists(st.integers(0, 10_000), min_size=10, max_size=10))
def test_every_table_can_be_read(counts: list[int]) -> None:
    """Of any counts there is one sentence that fits a line of 80 cells."""
    sentence = summarize_ages(a_table(*counts))
    assert bool(sentence) == bool(sum(counts))
    assert len(sentence) < 80


OLD, OLDER = NOW - 60 * MINUTE, NOW - 90 * MINUTE
LATER = NOW + 60
WAITING = [a_task(2, 60, due=NOW), a_task(3, 30), a_task(4, 400, state=State.DEAD)]


@pytest.mark.parametrize(("tasks", "now", "summary"), [
    ([a_task(1, 90, due=LATER), *WAITING], NOW, BacklogSummary(OLDER, 2, OLD)),
    ([a_task(1, 90, due=LATER), *WAITING], LATER, BacklogSummary(OLDER, 3, OLDER)),
    ([a_task(1, 90, due=None), *WAITING], NOW, BacklogSummary(OLDER, None, OLD)),
    ([a_task(created=0.0)], NOW, BacklogSummary(None, 1, None)),
    ([], NOW, BacklogSummary(None, 0, None)),
])  # fmt: skip
def test_what_waits_has_an_oldest(
    indexed: Indexed, tasks: list[Task], now: float, summary: BacklogSummary
) -> None:
    """And a number of due ones, which is unknown if the time of one is; dead ones do not wait."""
    found = backlog.summarize_backlog(indexed(tasks), now)
    assert (found.oldest, found.due, found.oldest_due) == summary[:3]


def test_what_comes_before_a_task_is_counted(indexed: Indexed) -> None:
    """First come due tasks of its queue that were created earlier, or have a smaller token; if the
    order is unknown, any other due one may."""
    dead, task = a_task(4, state=State.DEAD), a_task(5)
    others = [a_task(1), a_task(2, due=None), a_task(3, due=NOW + 1), dead, a_task(6)]
    reader = indexed([*others, a_task(0, queue="other"), task])
    assert backlog.count_ahead(reader, task, NOW) == {"job": 2}
    assert backlog.count_ahead(reader, task, NOW + 1) == {"job": 3}
    assert backlog.count_ahead(reader, task, NOW, "") == {"job": 3}


def test_what_is_taken_as_it_comes_due_is_counted_so(indexed: Indexed) -> None:
    """First come those that came due earlier; of one moment, the older ones, and half of those
    that were created in the same."""
    first, same = NOW - 30, NOW - 20
    task = a_task(5, due=same, created=NOW - 100)
    others = [a_task(4, due=first, state=State.DEAD), a_task(6, due=None), a_task(3, due=NOW - 10)]
    others += [a_task(1, due=first, created=NOW), a_task(9, due=first, created=NOW - 200)]
    others += [a_task(2, due=same, created=NOW - 99), a_task(8, due=same, created=NOW - 101)]
    others += [a_task(n, kind="twin", due=same, created=NOW - 100) for n in (10, 11, 12, 13)]
    reader = indexed([*others, a_task(0, due=first, queue="other"), task])
    assert backlog.count_ahead(reader, task, NOW, backlog.BY_DUE) == {"job": 4, "twin": 2}
    assert backlog.count_ahead(reader, task, NOW - 25, backlog.BY_DUE) == {"job": 3}


def test_what_runs_before_the_last_task_of_a_plan_is_counted(indexed: Indexed) -> None:
    """The older due ones by kind, or in the order of due times all; and those of the plan."""
    dead = [a_task(n, state=State.DEAD, created=NOW - 100 * n) for n in range(1, 4)]
    waiting = [
        a_task(11, created=NOW - 150),
        a_task(12, created=NOW - 50, kind="mail"),
        a_task(13, created=NOW - 500, kind="mail"),
        a_task(14, created=NOW - 500, due=NOW + 9),
    ]
    reader, ids = indexed([*dead, *waiting]), [task.id for task in dead[1:]]
    planned = {"job": 2}
    assert backlog.count_planned(reader, ids, NOW) == (planned, {"mail": 1})
    both = backlog.count_planned(reader, ids, NOW, backlog.BY_DUE)
    assert both == (planned, {"job": 1, "mail": 2})
    sent = [*ids, waiting[0].id]  # a replay has made it due already: it is not before itself
    assert backlog.count_planned(reader, sent, NOW, backlog.BY_DUE) == ({"job": 3}, {"mail": 2})


CLUSTERED = [
    dead_task(1, "timeout after 30 s", NOW - 50),
    dead_task(2, "timeout after 31 s", NOW - 90, kind="feed"),
    dead_task(3, "timeout after 32 s", state=State.PENDING),
    dead_task(4, "no such user", state=State.PENDING),
    dead_task(5, ""),
]


def test_a_cluster_names_the_destinations_of_its_tasks(indexed: Indexed) -> None:
    """Each once; none if they are more than a few, or the index is not sorted by cluster."""
    urls = [f"https://p{n // 251}.x" for n in range(1, 252)]
    some = [dead_task(n, "refused", NOW, destination=url) for n, url in enumerate(urls, 1)]
    many = [dead_task(n, "no user", NOW, destination=f"me@d{n}.example") for n in range(303, 330)]
    reader = indexed([*some, *many])
    refused, users = error_clusters.query_clusters(reader, Query(State.DEAD), NOW)
    assert (users.count, users.destinations) == (27, ())
    named = ("https://p0.x", "https://p1.x") if reader.has_index("by_cluster") else ()
    assert refused.destinations == named
    ids = (some[-1].id, many[0].id, "gone")
    destinations = error_clusters.find_destinations(reader, ids)
    assert destinations == {some[-1].id: "https://p1.x", many[0].id: "d303.example"}


def test_destinations_of_the_last_tasks_to_leave_are_known(writer: Writer, reader: Reader) -> None:
    """A task that was sent is gone when its success is read in the log."""
    tasks = [a_task(n)._replace(destination=f"https://p{n}.x") for n in range(3)]
    fill(writer, tasks, arranged=False)
    fill(writer, tasks[:1], arranged=False)
    destinations = error_clusters.find_destinations(reader, [task.id for task in tasks])
    assert destinations == {task.id: task.destination for task in tasks}


def test_errors_that_are_alike_are_one_cluster(indexed: Indexed) -> None:
    """It has count, deaths, kinds and example; its mark or pattern as a filter finds its tasks."""
    reader = indexed(CLUSTERED)
    timeout, user = error_clusters.query_clusters(reader, Query(), NOW)
    dead = error_clusters.query_clusters(reader, Query(State.DEAD), NOW)
    fed = error_clusters.query_clusters(reader, Query(filter=parse_filter("kind=feed")), NOW)
    pattern = error_pattern.fold_error("timeout after 30 s")
    mark, kinds = error_pattern.pattern_name(pattern), ("feed", "mail")
    assert timeout.example in {task.id for task in CLUSTERED[:3]}
    example, first, last = timeout.example, NOW - 90, NOW - 50
    assert timeout == Cluster(mark, pattern, 3, first, last, kinds=kinds, example=example)
    assert (user.count, user.first, user.last, user.example) == (1, None, None, CLUSTERED[3].id)
    assert [cluster.count for cluster in dead] == [2]
    assert [(c.count, c.kinds, c.example) for c in fed] == [(1, ("feed",), CLUSTERED[1].id)]
    assert error_clusters.query_clusters(reader, Query(State.HELD), NOW) == ()
    for cluster in (timeout, user):
        for typed in (cluster.mark, f'"{cluster.pattern}"'):
            query = Query(filter=parse_filter(f"cluster={typed}"))
            assert reader.count(query, NOW) == cluster.count


def test_the_deaths_of_a_cluster_are_counted_by_minute(indexed: Indexed) -> None:
    """The latest minute is the last; a task without a time of death is in none of them."""
    reader = indexed(CLUSTERED)
    assert error_clusters.count_deaths(reader, Query(), NOW, 3) == (0, 1, 1)
    assert error_clusters.count_deaths(reader, Query(), NOW - 40, 2) == (0, 2)
    assert error_clusters.count_deaths(reader, Query(State.HELD), NOW, 2) == (0, 0)


def test_errors_of_our_smtp_are_found_by_their_code(writer: Writer, reader: Reader) -> None:
    """A code behind our word for it is found by a filter, and separates clusters."""
    words = ("unavailable_450: 450 4.2.0 busy - RCPT", "unavailable_452: 452 4.2.0 busy - RCPT")
    writer.add_scanned([dead_task(n, words[n % 2]) for n in range(5)])
    clusters = error_clusters.query_clusters(reader, Query(), NOW)
    codes = [error_pattern.reply_code(cluster.pattern) for cluster in clusters]
    assert (codes, [cluster.count for cluster in clusters]) == (["450", "452"], [3, 2])
    for cluster in clusters:
        query = Query(filter=parse_filter(f"code={error_pattern.reply_code(cluster.pattern)}"))
        assert reader.count(query, NOW) == cluster.count


def test_only_the_largest_clusters_are_listed(writer: Writer, reader: Reader) -> None:
    """Where errors have little in common, those that most tasks share come first."""
    words = [f"{a}{b}{c}" for a in "abcdefgh" for b in "ghijklmn" for c in "opqrs"]
    tasks = [dead_task(n, word) for n, word in enumerate(words)]
    writer.add_scanned([*tasks, dead_task(9_999, words[-1])])
    clusters = error_clusters.query_clusters(reader, Query(), NOW)
    assert len(clusters) == error_clusters.MAX_CLUSTERS
    assert (clusters[0].count, clusters[0].pattern) == (2, words[-1])
