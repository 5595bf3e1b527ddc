"""The URLs of a Redis or Valkey server."""

from __future__ import annotations

from engine.config.place_address import Address

REDIS_SCHEMES = frozenset({"redis", "rediss", "redis+unix", "unix"})
"""Schemes of the URL of a Redis or Valkey server; rediss is TLS."""


def is_server(at: Address) -> bool:
    """True for the URL of a Redis or Valkey server."""
    return at.scheme in REDIS_SCHEMES
