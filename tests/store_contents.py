"""What a full scan of a store shows, and which case of a looping test failed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.model import Move, Problem, State, Task
from engine.store import Store
from engine.verbs import VERBS

NOW = 1_795_170_000.0


def tasks_in(store: Store) -> dict[str, Task]:
    """Every task by its id."""
    return {item.id: item for item in store.scan() if isinstance(item, Task)}


def problems_in(store: Store) -> dict[str, str]:
    """Every problem by the place that it names."""
    return {item.where: item.what for item in store.scan() if isinstance(item, Problem)}


def found(store: Store, ident: str) -> Task:
    """The one task of an id in its present state."""
    (item,) = store.scan({ident})
    assert isinstance(item, Task)
    return item


def act(store: Store, verb: str, ident: str, **values: Any) -> str:
    """Change a task by a verb, as an operator does; its new revision."""
    task = found(store, ident)
    return store.swap(task, VERBS[verb].function(task, NOW, **values))


def restore(store: Store, ident: str, image: bytes, state: State) -> str:
    """Restore a task by its image, as an undo does; its new revision."""
    task = found(store, ident)
    (outcome,) = store.swap_all([Move(task, store.restore_image(task, image, state), image)])
    if outcome.error:
        raise outcome.error
    return outcome.rev


def every_file(root: Path) -> dict[str, tuple[int, ...]]:
    """Everything below a folder, itself included, with all that betrays a change."""
    # Path.rglob of Python 3.11.2 fails at a link whose target is too long.
    inside = [Path(at, name) for at, *names in os.walk(root) for name in (*names[0], *names[1])]
    return {
        str(path): (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_mode)
        for path in (root, *inside)
        for seen in [path.lstat()]
    }


@contextmanager
def naming(*words: object) -> Iterator[None]:
    """Add the name of a case to a failure in it."""
    try:
        yield
    except BaseException as error:
        error.add_note("case: " + " ".join(str(word) for word in words))
        raise
