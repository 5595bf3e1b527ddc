"""The URLs of a Redis or Valkey server."""

from __future__ import annotations

REDIS_SCHEMES = frozenset({"redis", "rediss", "redis+unix", "unix"})
"""Schemes of the URL of a Redis or Valkey server; rediss is TLS."""
