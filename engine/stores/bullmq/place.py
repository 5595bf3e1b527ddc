"""The address of a place on a Redis server, and the names of the keys of its queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.config.place_address import Address
from engine.store import Unavailable

DEFAULT_PREFIX = "bull"
OUR_PREFIX = "spooldeck"
"""Begins every key that is ours, not BullMQ's."""

LEASE_SECONDS = 30.0
"""Length of a claim unless it is renewed (BullMQ: lockDuration)."""


class RedisPlace(NamedTuple):
    """A database of a server, with all queues whose keys begin with a prefix."""

    text: str
    """The URL without password."""
    options: Mapping[str, object] = {}
    """How redis-py connects: host and port or path, database, user."""
    password: str = ""
    prefix: str = DEFAULT_PREFIX
    lease_seconds: float = LEASE_SECONDS

    def __repr__(self) -> str:
        """Without the password."""
        return f"RedisPlace({self.text!r})"

    def base(self, queue: str) -> str:
        """Begins all keys of a queue."""
        return f"{self.prefix}:{queue}:"

    def kept(self, queue: str) -> str:
        """Begins our keys of the held and trashed jobs of a queue."""
        return f"{OUR_PREFIX}:{self.prefix}:{queue}:"

    @property
    def stream(self) -> str:
        """Our stream of changed jobs: BullMQ's events do not name what we hold or restore."""
        return f"{OUR_PREFIX}:{self.prefix}:changes"

    @property
    def queues_key(self) -> str:
        """Our set of the queues that have held or trashed jobs."""
        return f"{OUR_PREFIX}:{self.prefix}:queues"


def parse_place(address: Address) -> RedisPlace:
    """Parse redis://HOST:PORT/DB?prefix=P or redis+unix:///PATH?db=DB&prefix=P.

    Raises:
        Unavailable: a part is invalid or unknown.
    """
    from urllib.parse import parse_qs, unquote, urlsplit

    parts = urlsplit(address.text)
    fields = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    prefix = fields.pop("prefix", DEFAULT_PREFIX)
    is_socket = parts.scheme in ("unix", "redis+unix")
    database = (
        fields.pop("db", "0") if is_socket else parts.path.strip("/") or fields.pop("db", "0")
    )
    if fields:
        raise Unavailable(
            f"{address.text}: unknown parameter {min(fields)!r}, expected prefix or db"
        )
    if not database.isascii() or not database.isdecimal():
        raise Unavailable(f"{address.text}: database {database!r}, expected a number")
    options: dict[str, object] = {"db": int(database)}
    if parts.username:
        options["username"] = unquote(parts.username)
    if is_socket:
        options["unix_socket_path"] = unquote(parts.path)
    else:
        options |= {"host": parts.hostname or "localhost", "port": parts.port or 6379}
        options["ssl"] = parts.scheme == "rediss"
    return RedisPlace(address.text, options, address.password, prefix)


def task_id(queue: str, job: str) -> str:
    """The id of a task: QUEUE/JOB, with / and % in the queue's name as %2F and %25."""
    if "/" in queue or "%" in queue:
        queue = queue.replace("%", "%25").replace("/", "%2F")
    return f"{queue}/{job}"


def split_id(ident: str) -> tuple[str, str] | None:
    """Queue and job of a task id; None if it has no such form."""
    queue, slash, job = ident.partition("/")
    if not slash or not queue or not job or ":" in queue or "\0" in ident:
        return None
    if "%" in queue:
        queue = queue.replace("%2F", "/").replace("%25", "%")
    return (queue, job) if task_id(queue, job) == ident else None
