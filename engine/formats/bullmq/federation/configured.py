"""The federation as the configuration of a place has it: its settings, and the tables it shares."""

from __future__ import annotations

from engine.config.place_address import Address
from engine.destinations.database import PATIENCE_SECONDS, SqlDatabase
from engine.destinations.registry import Registry
from engine.formats.base.format import Setup
from engine.formats.bullmq.federation.settings import FederationConfig, parse_federation
from engine.formats.bullmq.federation.shared_tables import SharedRegistry, SharedTables


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
