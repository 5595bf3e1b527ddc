"""BullMQ's queues in Redis or Valkey: a place is a database, each queue a kind of tasks."""
