"""What a whole look at a store shows, as the tests ask for it, and which case of a test failed."""

from collections.abc import Iterator
from contextlib import contextmanager

from engine.model import Problem, Task
from engine.store import Store


def tasks_in(store: Store) -> dict[str, Task]:
    """Every task by its id."""
    return {item.id: item for item in store.look() if isinstance(item, Task)}


def problems_in(store: Store) -> dict[str, str]:
    """What is wrong, by where it lies."""
    return {item.where: item.what for item in store.look() if isinstance(item, Problem)}


@contextmanager
def naming(*words: object) -> Iterator[None]:
    """One of several cases of a test: a failure in it names it."""
    try:
        yield
    except BaseException as error:
        error.add_note("case: " + " ".join(str(word) for word in words))
        raise
