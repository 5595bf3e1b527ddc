"""The application's tables of blocked and of known servers, which Sipher's own worker uses too: a
registry that obeys them, and the health of their rows; its table of follows, with the decisions of
other servers; and which of them the configuration names."""

from __future__ import annotations

from engine.config.place_address import Address
from engine.destinations.database import PATIENCE_SECONDS, NoTable, SqlDatabase
from engine.destinations.destination import Destination, Registry, origin_of
from engine.formats.base.format import Setup
from engine.formats.bullmq.federation.keys import ENCRYPTION, SIGNING
from engine.formats.bullmq.federation.settings import FederationConfig, parse_federation
from engine.text.safe import safe_line
from engine.values import NamedTuple

NOT_PROBED = frozenset({"DNS_BLOCKED", "INVALID_RESPONSE_FROM_TARGET"})
"""Codes of Sipher after which a server is not probed."""
MAX_SERVERS = 10_000
"""Rows of the table of servers that are listed."""
BLOCKED_THERE = "in "
"""Begins why a server is blocked by the application's table."""


class ServerRow(NamedTuple):
    """A server in the application's table."""

    url: str
    signing: str
    encryption: str
    is_healthy: bool
    reason: str

    @property
    def wants_probe(self) -> bool:
        """True if a probe may make it healthy."""
        return not self.is_healthy and self.reason not in NOT_PROBED


class SharedTables:
    """The two tables, with the columns of Sipher; each may be missing ("").

    Each method raises Unavailable if the database or a table cannot be used.
    """

    def __init__(self, database: SqlDatabase, blocked: str = "", servers: str = "") -> None:
        """Names with or without a schema, which were checked (`validators.check_table`)."""
        self._database, self._name = database, blocked
        self._blocked, self.servers = _quoted(blocked), _quoted(servers)

    def why_blocked(self, *origins: str) -> dict[str, str]:
        """Why servers are blocked, by origin, of those that are. A row may have a URL in any
        spelling, or a host alone."""
        if not self._blocked:
            return {}
        rows = self._database.run(f"SELECT server_url, reason FROM {self._blocked}").rows
        reasons = dict[str, str]()
        for url, reason in rows:
            why = f"{BLOCKED_THERE}{self._name}: {safe_line(str(reason or 'no reason'))}"
            for text in (str(url), f"https://{url}", f"http://{url}"):
                try:
                    reasons.setdefault(origin_of(text.strip()), why)
                except ValueError:
                    continue
        return {origin: reasons[origin] for origin in origins if origin in reasons}

    def server(self, origin: str) -> ServerRow | None:
        """The row of a server; None without one."""
        rows = self._rows("LOWER(RTRIM(url, '/')) = ?", origin)
        return rows[0] if rows else None

    def with_signing_key(self, key: str) -> list[ServerRow]:
        """The rows of the servers that have this key."""
        return self._rows("public_key = ?", key)

    def all_servers(self) -> list[ServerRow]:
        """The rows of all servers by URL, at most `MAX_SERVERS`."""
        return self._rows(f"url IS NOT NULL ORDER BY url LIMIT {MAX_SERVERS}")

    def _rows(self, where: str, *values: str) -> list[ServerRow]:
        if not self.servers:
            return []
        names = "url, public_key, encryption_public_key, is_healthy, unhealthy_reason"
        sql = f"SELECT {names} FROM {self.servers} WHERE {where}"
        return [
            ServerRow(str(url), str(signing or ""), str(box or ""), bool(healthy), str(why or ""))
            for url, signing, box, healthy, why in self._database.run(sql, values).rows
        ]

    def mark_healthy(self, row: ServerRow) -> None:
        """After a probe that was answered."""
        values = "is_healthy = TRUE, health_check_attempts = 0, unhealthy_reason = NULL"
        self._database.run(f"UPDATE {self.servers} SET {values} WHERE url = ?", (row.url,))

    def count_probe(self, row: ServerRow) -> int:
        """Add 1 to the probes of a server in one statement; return the new number."""
        sql = (
            f"UPDATE {self.servers} SET health_check_attempts = health_check_attempts + 1 "
            "WHERE url = ? RETURNING health_check_attempts"
        )
        rows = self._database.run(sql, (row.url,)).rows
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _quoted(table: str) -> str:
    return ".".join(f'"{name}"' for name in table.split(".")) if table else ""


class SharedRegistry:
    """Our registry, in which a server is blocked too if the application's table has it, and has the
    keys of that table. The block is not written to ours. Servers of the table that only it has are
    listed, with the health that it has."""

    def __init__(self, registry: Registry, tables: SharedTables) -> None:
        self._registry, self._tables = registry, tables
        self.count_probe = registry.count_probe

    def get(self, origin: str) -> Destination:
        """See `Registry`."""
        (destination,) = self._completed([self._registry.get(origin)])
        row = self._tables.server(destination.origin)
        if row is None or not row.signing:
            return destination
        return destination._replace(extra={**destination.extra, **_keys(row)})

    def all(self) -> list[Destination]:
        """See `Registry`; with the keys of our own. At most `MAX_SERVERS` of the table's."""
        try:
            destinations = self._registry.all()
        except NoTable:  # no worker has recorded anything yet
            destinations = []
        known = {one.origin for one in destinations}
        for row in self._tables.all_servers():
            origin = _origin(row.url)
            if origin not in known:
                known.add(origin)
                one = Destination(origin, healthy=row.is_healthy, reason=safe_line(row.reason))
                destinations.append(one._replace(extra=_keys(row)))
        return self._completed(sorted(destinations, key=lambda one: one.origin))

    def extra_with(self, key: str, value: object) -> list[Destination]:
        """See `Registry`."""
        destinations = self._registry.extra_with(key, value)
        rows = self._tables.with_signing_key(str(value)) if key == SIGNING else []
        return [*destinations, *(Destination(_origin(row.url), extra={key: value}) for row in rows)]

    def swap(self, old: Destination | None, new: Destination | None) -> Destination:
        """See `Registry`."""
        if new is not None and new.blocked.startswith(BLOCKED_THERE):
            new = new._replace(blocked="", blocked_since=None)
        return self._registry.swap(old, new)

    def close(self) -> None:
        """See `Registry`."""
        self._registry.close()
        self._tables.close()

    def _completed(self, destinations: list[Destination]) -> list[Destination]:
        reasons = self._tables.why_blocked(*(one.origin for one in destinations))
        return [
            one._replace(blocked=one.blocked or reasons.get(one.origin, "")) for one in destinations
        ]


def _keys(row: ServerRow) -> dict[str, object]:
    keys = {SIGNING: row.signing, ENCRYPTION: row.encryption}
    return {name: key for name, key in keys.items() if key}


def _origin(url: str) -> str:
    try:
        return origin_of(url)
    except ValueError:
        return safe_line(url)


class Follow(NamedTuple):
    """Who follows whom, from which server, and the decision on it."""

    follower: str
    following: str
    server: str | None
    accepted: bool | None
    """None: the follow was received, and not decided."""


class SqlFollows:
    """Our follows in SQLite or Postgres, in a table with the columns of Sipher.

    Each method raises Unavailable if the database cannot be used.
    """

    def __init__(self, database: SqlDatabase, table: str = "follows") -> None:
        """`table`, with or without a schema, was checked (`validators.check_table`)."""
        self._database, self._table = database, _quoted(table)

    def decide(self, follow: Follow) -> bool:
        """Accepted: set `accepted`; rejected or not decided: set `acknowledged`. False if there is
        no such follow."""
        column = "accepted" if follow.accepted else "acknowledged"
        sql = f"UPDATE {self._table} SET {column} = TRUE WHERE {_IS_FOLLOW}"
        values = follow.follower, follow.following, follow.server
        return self._database.run(sql, values).changed > 0

    def is_undecided(self, follower: str, following: str, server: str) -> bool:
        """True if there is such a follow, neither `accepted` nor `acknowledged`."""
        decided = "COALESCE(accepted, FALSE) OR COALESCE(acknowledged, FALSE)"
        sql = f"SELECT 1 FROM {self._table} WHERE {_IS_FOLLOW} AND NOT ({decided})"
        return bool(self._database.run(sql, (follower, following, server)).rows)


_IS_FOLLOW = "follower_id = ? AND following_id = ? AND follower_server_url = ?"


def settings_of(setup: Setup) -> FederationConfig:
    """The section of the configuration, or its defaults."""
    return parse_federation(setup.config.federation)


def application_database(setup: Setup) -> Address | None:
    """The address of the database with the tables of the application."""
    config = setup.config
    return config.destinations if config.outbox is None else config.outbox.database


def shared_tables(setup: Setup, patience: float | None = None) -> SharedTables | None:
    """The application's tables that the configuration names; None without any."""
    settings, address = settings_of(setup), application_database(setup)
    if address is None or not (settings.blocked or settings.servers):
        return None
    database = SqlDatabase(address, PATIENCE_SECONDS if patience is None else patience)
    return SharedTables(database, settings.blocked, settings.servers)


def with_shared_tables(setup: Setup, registry: Registry, patience: float | None) -> Registry:
    """The registry as a worker uses it: with the application's blocked and known servers."""
    shared = shared_tables(setup, patience)
    return registry if shared is None else SharedRegistry(registry, shared)
