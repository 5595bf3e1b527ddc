"""Jobs of BullMQ as another program writes them, key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.model import Problem, Task
from engine.store import Store

NOW = 1_795_170_000.0
CREATED_MS = 1_795_160_000_000
HOUR, NOON = 3_600_000, 1_795_176_000_000
"""Milliseconds; 2026-11-20 12:00:00 UTC."""
LISTS = ("wait", "paused", "active")


def write_hash(client: Any, key: str, **fields: Any) -> None:
    """Write the hash of a job, with the fields that every job has."""
    values = {"name": "report", "data": "{}", "opts": "{}", "timestamp": CREATED_MS}
    values |= {"delay": 0, "priority": 0, **fields}
    client.hset(key, mapping=values)


def write_at(
    client: Any,
    place: str,
    ident: str,
    queue: str = "mails",
    score: float = CREATED_MS,
    **fields: Any,
) -> None:
    """Write a job at the head of a list, or in a sorted set, of its queue."""
    client.hset(f"bull:{queue}:meta", mapping={"opts.maxLenEvents": 10000})
    write_hash(client, f"bull:{queue}:{ident}", **fields)
    if place in LISTS:
        client.lpush(f"bull:{queue}:{place}", ident)
    else:
        client.zadd(f"bull:{queue}:{place}", {ident: score})


def write_waiting(client: Any, ident: str, queue: str = "mails", **fields: Any) -> None:
    """Write a waiting job."""
    write_at(client, "wait", ident, queue, **fields)


def write_failed(client: Any, ident: str, queue: str = "mails", **fields: Any) -> None:
    """Write a job that failed after three attempts."""
    defaults = {"failedReason": "it broke", "atm": 3, "ats": 3, "finishedOn": CREATED_MS + 5000}
    write_at(client, "failed", ident, queue, CREATED_MS + 5000, **(defaults | fields))


def write_schedule(
    client: Any, key: str = "tick", due: int = NOON + HOUR, count: int = 2, **fields: object
) -> None:
    """Write a job scheduler of a queue of BullMQ 6, of each hour, and the job of its next run."""
    meta = {"version": "bullmq:6.7.0", "opts.maxLenEvents": 10000}
    client.hset("bull:mails:meta", mapping=meta)
    client.zadd("bull:mails:repeat", {key: due})
    own = {"name": "tick", "every": HOUR, "ic": count, "data": '{"n":1}'}
    client.hset(f"bull:mails:repeat:{key}", mapping=own | fields)
    job = f"repeat:{key}:{due}"
    options = {"repeat": {"every": HOUR, "count": count, **fields}, "prevMillis": due}
    times = {"timestamp": NOON - 60_000, "delay": due - NOON + 60_000}
    texts = {"name": "tick", "data": '{"n":1}', "opts": json.dumps(options), "rjk": key}
    write_hash(client, f"bull:mails:{job}", **texts, **times)
    client.zadd("bull:mails:delayed", {job: due * 0x1000})


def everything(client: Any) -> dict[str, Any]:
    """Each key with its content, as it is compared; streams and our own list of queues omitted."""
    readers = {"hash": client.hgetall, "string": client.get, "set": client.smembers}
    readers["list"] = lambda key: client.lrange(key, 0, -1)
    readers["zset"] = lambda key: client.zrange(key, 0, -1, withscores=True)
    by_name: dict[str, Any] = {}
    for key in sorted(client.scan_iter(count=1000)):
        kind = client.type(key)
        if kind != "stream" and key != "spooldeck:bull:queues":
            by_name[key] = readers[str(kind)](key)
    return by_name


@contextmanager
def unchanged(client: Any) -> Iterator[None]:
    """Check that no key was changed."""
    before = everything(client)
    yield
    assert everything(client) == before


def unmarked(client: Any) -> dict[str, Any]:
    """The same without what a retry leaves in any case: markers and the priority counter."""
    keys = everything(client)
    return {key: keys[key] for key in keys if key.rpartition(":")[2] not in ("marker", "pc")}


def scanned(store: Store) -> tuple[dict[str, Task], dict[str, str]]:
    """The tasks by id and the problems by place of a full scan."""
    items = list(store.scan())
    tasks = {item.id: item for item in items if isinstance(item, Task)}
    return tasks, {item.where: item.what for item in items if isinstance(item, Problem)}
