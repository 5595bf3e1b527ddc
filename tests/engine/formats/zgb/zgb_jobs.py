"""Jobs of a mail queue and its settings, as the tests of that format need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.formats.zgb.store import ZgbStore
from engine.model import Task

Sql = Callable[..., list[tuple[Any, ...]]]

NOW = 1_795_170_000.0
USER, ORGANIZER = "1001-user", "1001-organizer"


def there(store: ZgbStore, ident: str = USER) -> Task:
    """One job as it stands now."""
    (task,) = (item for item in store.scan({ident}) if isinstance(item, Task))
    return task


def config(sql: Sql) -> dict[str, str]:
    """Their settings."""
    return dict(sql("SELECT key, value FROM config"))


def settle(sql: Sql, **values: object) -> None:
    """Put settings of theirs."""
    for key, value in values.items():
        sql("INSERT OR REPLACE INTO config VALUES (?, ?)", key, value)
