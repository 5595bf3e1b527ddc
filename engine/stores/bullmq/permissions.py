"""Which changes the user of a connection may make (Redis ACL), so that the others are refused."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model import Edges, State
from engine.store import StoreError
from engine.stores.bullmq.connection import Connection, ScriptCall, script
from engine.stores.bullmq.moves import ACTIONS, Action
from engine.stores.bullmq.place import RedisPlace

_BULLMQ_COMMANDS = (
    "EVALSHA x 0",
    "HSET {base}1 a b",
    "HDEL {base}1 a",
    "DEL {base}1",
    "LPUSH {base}wait 1",
    "LREM {base}wait 1 1",
    "ZADD {base}failed 1 1",
    "ZREM {base}failed 1",
    "XADD {base}events * a b",
    "RENAME {base}paused {base}wait",
    "LMOVE {base}paused {base}wait LEFT RIGHT",
)
"""Commands of BullMQ's own scripts, and of ours that open a queue for them, each as it is used."""
_OUR_COMMANDS = (
    "COPY {base}1 {kept}job:1",
    "RENAME {kept}job:1 {base}1",
    "SADD {queues} x",
    "LTRIM {base}wait 0 1",
    "RPUSH {base}wait 1",
)
"""Commands of our scripts besides."""

_PACKAGE = tuple(text.partition(" ")[0] for text in _BULLMQ_COMMANDS)
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "package": _PACKAGE,
    "keep": (*_PACKAGE, "COPY", "SADD"),
    "return": (*_PACKAGE, "LTRIM", "RPUSH"),
    "move": (*_PACKAGE, "LTRIM", "RPUSH"),
    "forget": ("EVALSHA", "DEL", "ZREM", "HDEL", "XADD"),
}
"""The commands that each action of `relocate.lua` needs, and BullMQ's script with it."""


def permitted_edges(edges: Edges, connection: Connection, place: RedisPlace) -> Edges:
    """The edges, with a refusal for each that needs a command which the user may not run."""
    texts = [
        text.format(base=place.base("x"), kept=place.kept("x"), queues=place.queues_key)
        for text in (*_BULLMQ_COMMANDS, *_OUR_COMMANDS)
    ]
    try:
        refused = connection.run(ScriptCall(script("permissions", reads_only=True), [], texts))
    except StoreError:
        return edges  # unknown: a change says it
    if not refused:
        return edges
    return {
        way: edge._replace(refusal=_refusal(way, refused) or edge.refusal)
        for way, edge in edges.items()
    }


def _refusal(way: tuple[State | None, State | None], refused: list[str]) -> str:
    start, end = way
    action = Action("package") if start is None else ACTIONS.get((start, end), Action("package"))
    missing = [command for command in _NEEDED[action.name] if command in refused]
    return f"the server does not permit {', '.join(missing)}" if missing else ""
