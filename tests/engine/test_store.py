"""A store that says only what it can do: all else is true of any store."""

from collections.abc import Collection, Iterator, Mapping

import pytest

from engine.model import Missing, Part, Problem, Relatives, State, Task
from engine.override import override
from engine.store import Gone, Store, Unavailable, Unsupported, accept_all

SIZES: Mapping[str, int | None] = {"a": 3, "b": 5, "c": None}
TASKS = [
    Task("a", "mail", State.PENDING, 1.0, rev="1"),
    Task("b", "mail", State.TRASH, 2.0, rev="1"),
    Task("c", "mail", State.PENDING, 3.0, rev="1", error="550"),
]


class ListedStore(Store):
    """Tasks in a list, without edges."""

    states: Mapping[State, str] = {State.PENDING: "deferred", State.TRASH: "trash"}

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        for task in TASKS:
            if touched is None or {task.id, self.states[task.state]} & {*touched}:
                yield task

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        yield Part("", task.id, SIZES[task.id])
        yield Part("body", task.id, 10)

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        if task.id == "c":
            raise Gone(task.id)
        return task.id.encode()


def test_a_store_that_only_lists_is_read() -> None:
    """Counts, samples, sizes and many reads follow from the scan, the parts and the read."""
    store = ListedStore()
    assert store.count_tasks() == {State.PENDING: 2, State.TRASH: 1}
    sample = store.sample(2)
    assert (sample.counts, sample.words) == (store.count_tasks(), {})
    assert [task.id for task in sample.tasks if isinstance(task, Task)] == ["a", "b", "c"]
    assert [*store.scan_failed({"deferred"})] == [TASKS[0], TASKS[2]]
    assert [store.size(task) for task in TASKS[:2]] == [13, 15]
    with pytest.raises(Unavailable, match="c: the size of a part is not known"):
        store.size(TASKS[2])
    read = [each if isinstance(each, bytes) else str(each) for each in store.read_all(TASKS)]
    assert read == [b"a", b"b", "c"]
    assert store.trash_bytes() == 15
    assert store.read_trash(0)
    assert store.relatives(TASKS[0], 9) == Relatives()
    with pytest.raises(Unsupported):
        store.preview_problem(Problem("x", "y"))
    store.close()


def test_only_an_unchanged_task_is_verified() -> None:
    """A task of another state or revision is not yielded, nor one that is not there."""
    known = [("a", State.PENDING, "1"), ("b", State.TRASH, "2"), ("x", State.PENDING, "1")]
    assert [*ListedStore().verify([*known, ("c", State.TRASH, "1")])] == [TASKS[0]]


def test_a_swap_is_one_of_many() -> None:
    """Its error is raised; controls, which it has none of, are refused; and it claims nothing."""
    store = ListedStore()
    with pytest.raises(Unsupported, match="only shows its tasks"):
        store.swap(TASKS[0], None)
    with pytest.raises(Unsupported, match="a: this store restores no task"):
        store.restore_image(TASKS[0], b"", State.PENDING)
    for run in (store.control, store.forecast):
        with pytest.raises(Unsupported, match="no control 'pause'"):
            run("pause")
    assert [*store.take(5.0, "a worker", 9, accept_all)] == []
    assert [outcome.move.new for outcome in store.renew(TASKS, 9.0)] == TASKS


class UnreadableStore(Store):
    """A store without a scan."""

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        return iter(())


def test_a_store_must_scan() -> None:
    """What no default can do is named when the store is opened."""
    with pytest.raises(TypeError, match="scan"):
        UnreadableStore()  # type: ignore[abstract]
