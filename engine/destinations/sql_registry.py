"""The registry of destinations as one table, in SQLite or Postgres."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from engine.config.place_address import Address
from engine.destinations.database import PATIENCE_SECONDS, NoTable, SqlAnswer, SqlDatabase, Value
from engine.destinations.destination import Destination
from engine.store import Gone, Unavailable
from engine.text.safe import safe_line
from engine.values import NamedTuple

TABLE = "destinations"


class RegistryColumn(NamedTuple):
    """A column: its type in both databases, and how its value is written and read."""

    type: str
    write: Callable[[Any], Value] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value


def _read_extra(value: Any) -> Mapping[str, object]:
    extra = json.loads(value)
    if not isinstance(extra, dict):
        raise TypeError("expected a JSON object")
    return extra


_TEXT = RegistryColumn("TEXT NOT NULL", read=str)
_TIME = RegistryColumn(
    "DOUBLE PRECISION", read=lambda value: None if value is None else float(value)
)
_COUNT = RegistryColumn("BIGINT NOT NULL", read=int)

COLUMNS: Mapping[str, RegistryColumn] = {
    "origin": RegistryColumn("TEXT PRIMARY KEY", read=str),
    "blocked": _TEXT,
    "blocked_since": _TIME,
    "healthy": RegistryColumn("SMALLINT NOT NULL", int, bool),
    "reason": _TEXT,
    "since": _TIME,
    "probes": _COUNT,
    "next_probe": _TIME,
    "last_seen": _TIME,
    "last_success": _TIME,
    "last_failure": _TIME,
    "extra": RegistryColumn(
        "TEXT NOT NULL", lambda extra: json.dumps(dict(extra), separators=(",", ":")), _read_extra
    ),
    "rev": _COUNT,
}
"""By the field of `Destination` of the same name."""

MAX_REASON_LENGTH = 200
"""Maximum characters that are shown of a row that is not ours."""

_NAMES = ", ".join(COLUMNS)
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} "
    f"({', '.join(f'{name} {column.type}' for name, column in COLUMNS.items())})"
)
_SELECT = f"SELECT {_NAMES} FROM {TABLE}"
_INSERT = (
    f"INSERT INTO {TABLE} ({_NAMES}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    "ON CONFLICT (origin) DO NOTHING"
)
_IF_CURRENT = "WHERE origin = ? AND rev = ?"
_UPDATE = f"UPDATE {TABLE} SET {', '.join(f'{name} = ?' for name in COLUMNS)} {_IF_CURRENT}"
_DELETE = f"DELETE FROM {TABLE} {_IF_CURRENT}"
_COUNT_PROBE = (
    f"UPDATE {TABLE} SET probes = probes + 1, rev = rev + 1 WHERE origin = ? RETURNING probes"
)


class SqlRegistry:
    """The destinations of one database; the table is created by the first write of a worker."""

    def __init__(
        self, address: Address, *, creates: bool = False, patience: float = PATIENCE_SECONDS
    ) -> None:
        """With `creates`, for a worker, a missing file or table counts as empty and is created by
        the first write; else each call raises Unavailable."""
        self._database, self._creates = SqlDatabase(address, patience), creates

    def get(self, origin: str) -> Destination:
        """See `Registry`."""
        destinations = self._read(f"{_SELECT} WHERE origin = ?", origin)
        return destinations[0] if destinations else Destination(origin)

    def all(self) -> list[Destination]:
        """See `Registry`."""
        return self._read(f"{_SELECT} ORDER BY origin")

    def extra_with(self, key: str, value: object) -> list[Destination]:
        """See `Registry`; the rows are compared here, as the databases differ in JSON."""
        return [one for one in self.all() if one.extra.get(key) == value]

    def swap(self, old: Destination | None, new: Destination | None) -> Destination:
        """See `Registry`."""
        known = old if old is not None and old.rev else None
        origin = (new or old or Destination("")).origin
        no_values: tuple[Value, ...] = ()
        if new is None:
            stored, sql, values = Destination(origin), _DELETE, no_values
        elif known is None:
            # A random first revision: an old one never fits a row that was deleted and added again.
            stored = new._replace(rev=1 + int.from_bytes(os.urandom(5), "big"))
            sql, values = _INSERT, _row_of(stored)
        else:
            stored = new._replace(rev=known.rev + 1)
            sql, values = _UPDATE, _row_of(stored)
        guard = () if sql is _INSERT else (origin, 0 if known is None else known.rev)
        if not self._change(sql, *values, *guard).changed:
            raise Gone(f"{origin}: changed by another process")
        return stored

    def count_probe(self, origin: str) -> int:
        """See `Registry`."""
        rows = self._change(_COUNT_PROBE, origin).rows
        if not rows:
            raise Gone(f"{origin}: not registered")
        return int(rows[0][0])

    def close(self) -> None:
        """See `Registry`."""
        self._database.close()

    def _read(self, sql: str, *values: Value) -> list[Destination]:
        try:
            rows = self._database.run(sql, values).rows
        except NoTable as error:
            if self._creates:
                return []
            raise NoTable(f"{error}: a worker creates it") from error
        return [_parse_row(row) for row in rows]

    def _change(self, sql: str, *values: Value) -> SqlAnswer:
        try:
            return self._database.run(sql, values)
        except NoTable as error:
            if not self._creates:
                raise NoTable(f"{error}: a worker creates it") from error
        failure: Unavailable | None = None
        try:
            self._database.run(_CREATE, creates=True)
        except Unavailable as error:
            failure = error  # or, in Postgres, another worker creates it in this moment
        try:
            return self._database.run(sql, values)
        except NoTable as error:
            raise failure or error from error


def _parse_row(row: tuple[Any, ...]) -> Destination:
    """The destination of a row; blocked, with the reason, if it is not one of ours."""
    try:
        fields = zip(COLUMNS.items(), row, strict=True)
        return Destination(**{name: column.read(value) for (name, column), value in fields})
    except (TypeError, ValueError) as error:
        why = f"not a row of ours: {safe_line(str(error))}"[:MAX_REASON_LENGTH]
        return Destination(safe_line(str(row[0]))[:MAX_REASON_LENGTH], blocked=why)


def _row_of(destination: Destination) -> tuple[Value, ...]:
    return tuple(column.write(getattr(destination, name)) for name, column in COLUMNS.items())
