"""BullMQ's queues in Redis or Valkey: a place is a database, each queue a kind of tasks."""

from engine.stores.bullmq.place import RedisPlace, parse_place
from engine.stores.bullmq.store import BullmqStore

__all__ = ["BullmqStore", "RedisPlace", "parse_place"]
