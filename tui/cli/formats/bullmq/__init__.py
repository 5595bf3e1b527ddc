"""The commands of a server of BullMQ queues, and of the federation on it."""
