"""Jobs of a mail queue and its settings, as the tests of that format need them."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from engine import verbs
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.model import Task

Sql = Callable[..., list[tuple[Any, ...]]]
Opener = Callable[..., ZgbStore]

NOW = 1_795_170_000.0
USER, ORGANIZER = "1001-user", "1001-organizer"


def there(store: ZgbStore, ident: str = USER) -> Task:
    """One job as it stands now."""
    (task,) = (item for item in store.scan({ident}) if isinstance(item, Task))
    return task


def change(store: ZgbStore, ident: str = USER, **fields: Any) -> Task:
    """Change fields of a job; returns it as it is then."""
    task = there(store, ident)
    store.swap(task, task._replace(**fields))
    return there(store, ident)


def fail(store: ZgbStore, now: float = NOW, *, due: float | None = None, error: str = "no") -> Task:
    """Claim a job that fails: it is due again at a time, else parked; returns it as it is then."""
    (task,) = store.take(now, "me", 1)
    store.swap(task, verbs.nack(task, due, error) if due else verbs.give_up_task(task, error, 1))
    return there(store, task.id)


def taken(store: ZgbStore, now: float = NOW, limit: int = 9) -> list[str]:
    """The ids of what a worker claims."""
    return [task.id for task in store.take(now, "me", limit)]


def sql_in(path: str | Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Carry out a statement on a database as another program does."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement, values).fetchall()


def make_queue(path: Path) -> None:
    """Make a mail queue with the job 7-user."""
    create(str(path))
    sql_in(path, "INSERT INTO registrations VALUES (7, 0)")
    sql_in(path, "INSERT INTO mail_queue (registration_number, mail_type) VALUES (7, 'user')")


def config(sql: Sql) -> dict[str, str]:
    """Their settings."""
    return dict(sql("SELECT key, value FROM config"))


def settle(sql: Sql, **values: object) -> None:
    """Put settings of theirs."""
    for key, value in values.items():
        sql("INSERT OR REPLACE INTO config VALUES (?, ?)", key, value)
