"""An empty database of each kind, and its registries."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine.config.place_address import Address, parse_address
from engine.destinations.database import SqlDatabase
from engine.destinations.sql_registry import SqlRegistry

OpenRegistry: TypeAlias = Callable[..., SqlRegistry]
Sql: TypeAlias = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, memory_path: Path) -> Address:
    """The address of a database without a table; with SQLite there is no file either."""
    if request.param == "sqlite":
        return parse_address(f"sqlite://{memory_path}/destinations.db")
    return parse_address(request.getfixturevalue("postgres_url"))


@pytest.fixture
def sql(address: Address) -> Iterator[Sql]:
    """Run a statement on the test's database as another program does."""
    with closing(SqlDatabase(address)) as database:
        yield lambda sql, *values: database.run(sql, values, creates=True).rows


@pytest.fixture
def open_registry(address: Address) -> Iterator[OpenRegistry]:
    """Open the registry once more: for a worker, which creates its table, or a reader."""
    with ExitStack() as opened:

        def opener(*, creates: bool = True, patience: float = 5.0) -> SqlRegistry:
            registry = SqlRegistry(address, creates=creates, patience=patience)
            return opened.enter_context(closing(registry))

        yield opener
