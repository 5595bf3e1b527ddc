"""An empty database of each kind, and its registries."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine.config.place_address import Address, parse_address
from engine.destinations.database import SqlDatabase
from engine.destinations.sql_registry import SqlRegistry

OpenRegistry: TypeAlias = Callable[..., SqlRegistry]


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, memory_path: Path) -> Address:
    """The address of a database without a table; with SQLite there is no file either."""
    if request.param == "sqlite":
        return parse_address(f"sqlite://{memory_path}/destinations.db")
    return parse_address(request.getfixturevalue("postgres_url"))


@contextmanager
def database_of(address: Address) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Statements on a database as another program runs them."""
    with closing(SqlDatabase(address)) as database:
        yield lambda sql, *values: database.run(sql, values, creates=True).rows


@pytest.fixture
def sql(address: Address) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Run a statement on the test's database as another program does."""
    with database_of(address) as run:
        yield run


@pytest.fixture
def open_registry(address: Address) -> Iterator[OpenRegistry]:
    """Open the registry once more: for a worker, which creates its table, or a reader."""
    opened: list[SqlRegistry] = []

    def opener(*, creates: bool = True, patience: float = 5.0) -> SqlRegistry:
        opened.append(SqlRegistry(address, creates=creates, patience=patience))
        return opened[-1]

    yield opener
    for one in opened:
        one.close()
