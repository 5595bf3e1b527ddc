"""Our side of a federation in tests: keys, registry, outbox and follows in SQLite, an HTTP client
that may use loopback; deliveries are run without a queue.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.config.deliver_config import parse_allowed
from engine.config.place_address import parse_address
from engine.config.queue_config import OutboxConfig
from engine.delivery.http_client import HttpClient, trusted_certificates
from engine.delivery.url_guard import UrlGuard, resolve_name
from engine.destinations.database import SqlDatabase, Value
from engine.destinations.destination import Destination, origin_of, update
from engine.destinations.outbox import Outbox
from engine.destinations.sql_registry import SqlRegistry
from engine.formats.bullmq.federation.delivery import DeliveryHandler
from engine.formats.bullmq.federation.health import ProbeHandler
from engine.formats.bullmq.federation.jobs import (
    DELIVERY_QUEUE,
    HEALTH_QUEUE,
    PATHS,
    POST,
    delivery_job,
    probe_id,
)
from engine.formats.bullmq.federation.keys import ENCRYPTION, SIGNING, PeerKeys
from engine.formats.bullmq.federation.parts import FederationParts, Timeouts
from engine.formats.bullmq.federation.profile import PROFILES
from engine.formats.bullmq.federation.shared_tables import SqlFollows
from engine.model import State, Task
from engine.work.handlers import Context, Failed, Fatal, HandlerResult, Postponed, Retry
from tests.federation_peers import Peer

LONG, SHORT = Timeouts(*[60.0] * 4), Timeouts(*[0.2] * 4)
"""For answers that come, and for those that never do."""
TLS = trusted_certificates()
TABLES = (
    "CREATE TABLE delivery_jobs (id TEXT PRIMARY KEY, target_url TEXT, payload TEXT,"
    " attempts INTEGER DEFAULT 0, last_attempted_at {time})",
    "CREATE TABLE follows (id TEXT PRIMARY KEY, follower_id TEXT, following_id TEXT,"
    " accepted BOOLEAN DEFAULT FALSE, follower_server_url TEXT,"
    " acknowledged BOOLEAN DEFAULT FALSE)",
)
"""The tables of the application, as far as they are used."""
TIME_TYPES = {"sqlite": "REAL", "postgresql": "TIMESTAMPTZ"}
OUTBOX = OutboxConfig("delivery_jobs", "id", "deliveryJobId", "attempts", "last_attempted_at")


class Ran(NamedTuple):
    """What a handler made of a job."""

    kind: str
    """done, retry or fatal."""
    text: str
    """The result or the error."""
    row: str
    """kept or deleted."""
    after: float | None = None
    """The seconds that the handler asked for."""


class Sender:
    """Our server. `home` is its /discover, which peers ask when we register."""

    def __init__(
        self, folder: Path, profile: str = "default", database: str = "", **more: Any
    ) -> None:
        self.home = Peer()
        self.names: dict[str, Sequence[str] | OSError] = {}
        """Answers of the resolver for names."""
        self.database = parse_address(database or f"sqlite://{folder}/app.db")
        self.application = SqlDatabase(self.database)
        for table in TABLES:
            kind = TIME_TYPES[self.database.scheme]
            self.application.run(table.format(time=kind), creates=True)
        self.registry = SqlRegistry(self.database, creates=True)
        self.outbox = Outbox(OUTBOX._replace(database=self.database))
        guard = UrlGuard([parse_allowed("127.0.0.0/8")], self._resolve)
        self.client = HttpClient(guard, TLS)
        self.probes: list[tuple[str, int, float]] = []
        """Probes that were planned."""
        self.lines: list[str] = []
        self.now = time.time()
        self.parts = FederationParts(
            self.home.keys,
            self.home.url,
            self.registry,
            send=self.client.send,
            add_probe=lambda *probe: self.probes.append(probe),
            profile=PROFILES[profile],
            timeouts=LONG,
            log=lambda level, text: self.lines.append(f"{level} {text}"),
            clock=lambda: self.now,
            follows=SqlFollows(self.application),
        )._replace(**more)

    def close(self) -> None:
        """Close everything."""
        self.client.close()
        self.registry.close()
        self.outbox.close()
        self.application.close()
        self.home.close()

    def _resolve(self, host: str, port: int) -> Sequence[str]:
        address = self.names.get(host)
        if isinstance(address, OSError):
            raise address
        return address if address is not None else resolve_name(host, port)

    def hide(self, host: str = "peer.test") -> str:
        """A name that cannot be resolved."""
        self.names[host] = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return host

    def know(self, peer: Peer, server: str = "", keys: PeerKeys | None = None, **more: Any) -> None:
        """Register a peer here, and us there."""
        signing, encryption = keys or peer.public
        extra = {SIGNING: signing, ENCRYPTION: encryption}
        self.change(server or peer.url, extra=extra, last_seen=self.now, **more)
        peer.known[self.home.url] = self.home.public

    def change(self, server: str, **fields: Any) -> None:
        """Change fields of a destination."""
        update(self.registry, origin_of(server), lambda old: old._replace(**fields))

    def destination(self, server: str) -> Destination:
        """The registered destination."""
        return self.registry.get(origin_of(server))

    def sql(self, text: str, *values: Value) -> list[tuple[Any, ...]]:
        """Run a statement on the application's tables."""
        return self.application.run(text, values).rows

    def add_row(self, key: str) -> None:
        """Add a row of the outbox."""
        self.sql("INSERT INTO delivery_jobs (id, attempts) VALUES (?, 0)", key)

    def deliver(
        self,
        server: str,
        payload: Mapping[str, Any] | str | None = None,
        *,
        name: str = POST,
        attempts: int = 0,
        error: str = "",
        data: Mapping[str, object] = {},
        is_cancelled: bool = False,
    ) -> Ran:
        """Run one delivery; `data` replaces fields of its data."""
        text = payload if isinstance(payload, str) else json.dumps(payload or post())
        job = delivery_job(name, server, f"{server}{PATHS[name]}", text, "row-1")
        self.sql("DELETE FROM delivery_jobs")
        self.add_row("row-1")
        merged_data = json.dumps(json.loads(job.data) | data).encode()
        handler = DeliveryHandler(self.parts, self.outbox)
        context = Context(data=merged_data, is_cancelled=lambda: is_cancelled)
        return self._run(
            handler, f"{DELIVERY_QUEUE}/1", name, context=context, attempts=attempts, error=error
        )

    def probe(self, server: str, number: int, *, is_cancelled: bool = False) -> Ran:
        """Run one probe."""
        ident = f"{HEALTH_QUEUE}/{probe_id(server, number)}"
        data = json.dumps({"serverUrl": server}).encode()
        context = Context(data=data, is_cancelled=lambda: is_cancelled)
        return self._run(ProbeHandler(self.parts), ident, "health-check", context)

    def _run(
        self,
        handler: Callable[[Task, Context], object],
        ident: str,
        name: str,
        context: Context,
        attempts: int = 0,
        error: str = "",
    ) -> Ran:
        queue = ident.partition("/")[0]
        task = Task(ident, queue, State.ACTIVE, self.now, group=name, attempts=attempts)
        task = task._replace(error=error)
        try:
            result = handler(task, context)
        except Fatal as error:
            return Ran("fatal", str(error), "deleted" if error.row else "kept")
        except Retry as error:
            return Ran("retry", str(error), "kept", error.after)
        except Failed as error:
            return Ran("retry", str(error), "kept")
        except Postponed as error:
            return Ran("postponed", str(error), "kept", error.due - self.now)
        if isinstance(result, HandlerResult):
            return Ran("done", str(result.result), "deleted" if result.row else "kept")
        return Ran("done", str(result), "kept")


def post(ident: str = "1") -> dict[str, Any]:
    """The payload of a post."""
    content = {"id": ident, "content": "Grüße 世界", "authorId": "ann", "isPrivate": False}
    return {"method": "FEDERATE_POST", "federationUrl": "x", "post": content}


def follow(follower: str = "ann", following: str = "bob") -> dict[str, Any]:
    """The payload of a follow."""
    row: dict[str, Any] = {
        "id": "f1",
        "createdAt": "2026-01-07T12:00:00.000Z",
        "followerServerUrl": None,
    }
    row |= {"followerId": follower, "followingId": following, "accepted": False}
    return {"method": "FEDERATE", "federationUrl": "x", "following": row}


def add_follow(sender: Sender, server: str, follower: str = "ann", following: str = "bob") -> None:
    """A follow in the application's table, as the peer of this server acknowledges it."""
    sender.sql(
        "INSERT INTO follows (id, follower_id, following_id, follower_server_url) VALUES (?,?,?,?)",
        f"{follower}-{following}",
        follower,
        following,
        server,
    )


def decision(sender: Sender, follower: str = "ann", following: str = "bob") -> tuple[bool, bool]:
    """Accepted and acknowledged, of a follow in the table."""
    sql = "SELECT accepted, acknowledged FROM follows WHERE id = ?"
    ((accepted, acknowledged),) = sender.sql(sql, f"{follower}-{following}")
    return bool(accepted), bool(acknowledged)
