"""Errors by what they have in common."""

import pytest

from engine import clusters, fingerprint
from engine.clusters import MOST, Cluster
from engine.filters import parse
from engine.index import Query
from engine.model import State, Task
from engine.reader import Reader
from engine.writer import Writer
from tests.engine.builders import NOW, a_row


def a_task(number: int, error: str, died: float | None = None, **changes: object) -> Task:
    """A dead task; numbers go by the order of ids."""
    extra = {} if died is None else {"dead_since": str(died)}
    fields = {"kind": "mail", "state": State.DEAD, "error": error, "extra": extra}
    return a_row(number, **{**fields, **changes})


TASKS = [
    a_task(1, "timeout after 30 s", NOW - 50),
    a_task(2, "timeout after 31 s", NOW - 90, kind="feed"),
    a_task(3, "timeout after 32 s", state=State.PENDING),
    a_task(4, "no such user", state=State.PENDING),
    a_task(5, ""),
]


@pytest.mark.parametrize("arranged", [False, True])
def test_errors_that_are_alike_are_one_cluster(
    writer: Writer, reader: Reader, arranged: bool
) -> None:
    """Count, first and last death, kinds and an example are told; no error is no cluster; a state
    and a filter leave their own errors; a mark, or a pattern, as a filter finds its tasks."""
    writer.see(TASKS)
    if arranged:
        assert list(writer.arrange())

    timeout, user = clusters.ask(reader, Query(), NOW)
    dead = clusters.ask(reader, Query(State.DEAD), NOW)
    fed = clusters.ask(reader, Query(filter=parse("kind=feed")), NOW)

    pattern = fingerprint.fold("timeout after 30 s")
    mark, kinds = fingerprint.mark(pattern), ("feed", "mail")
    assert timeout.example in {task.id for task in TASKS[:3]}
    assert timeout == Cluster(mark, pattern, 3, NOW - 90, NOW - 50, kinds, timeout.example)
    assert (user.count, user.first, user.last, user.example) == (1, None, None, TASKS[3].id)
    assert [cluster.count for cluster in dead] == [2]
    assert [(c.count, c.kinds, c.example) for c in fed] == [(1, ("feed",), TASKS[1].id)]
    assert clusters.ask(reader, Query(State.HELD), NOW) == ()
    for cluster in (timeout, user):
        for typed in (cluster.mark, f'"{cluster.pattern}"'):
            assert reader.count(Query(filter=parse(f"cluster={typed}")), NOW) == cluster.count


def test_what_our_smtp_writes_is_found_by_its_code(writer: Writer, reader: Reader) -> None:
    """A code behind our word for it is what a filter asks for, and tells clusters apart."""
    words = ("unavailable_450: 450 4.2.0 busy - RCPT", "unavailable_452: 452 4.2.0 busy - RCPT")
    writer.see([a_task(n, words[n % 2]) for n in range(5)])
    told = clusters.ask(reader, Query(), NOW)
    assert [(c.count, fingerprint.code(c.pattern)) for c in told] == [(3, "450"), (2, "452")]
    for cluster in told:
        query = Query(filter=parse(f"code={fingerprint.code(cluster.pattern)}"))
        assert reader.count(query, NOW) == cluster.count


def test_only_the_largest_are_told(writer: Writer, reader: Reader) -> None:
    """Where errors have little in common, those that most tasks share come first."""
    words = [f"{a}{b}{c}" for a in "abcdefgh" for b in "ghijklmn" for c in "opqrs"]
    tasks = [a_task(n, word) for n, word in enumerate(words)]
    writer.see([*tasks, a_task(9_999, words[-1])])
    told = clusters.ask(reader, Query(), NOW)
    assert (len(told), told[0].count, told[0].pattern) == (MOST, 2, words[-1])
