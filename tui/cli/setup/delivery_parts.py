"""The registry of destinations and the outbox of the configuration, as working parts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from engine.config.queue_config import Config
from engine.work.services import WorkerServices

if TYPE_CHECKING:
    from engine.destinations.registry import Registry


def open_registry(config: Config, *, creates: bool = False) -> Registry | None:
    """The registry of destinations; None if none is configured. With `creates`, for a worker, its
    table is created by the first write."""
    if config.destinations is None:
        return None
    from engine.destinations.sql_registry import SqlRegistry

    return SqlRegistry(config.destinations, creates=creates)


def with_outbox(config: Config, services: WorkerServices, closing: ExitStack) -> WorkerServices:
    """The services of a worker that also removes the rows that its handlers name; `closing` waits
    for the last ones."""
    if config.outbox is None:
        return services
    from engine.destinations.outbox import Outbox, RowRemover

    outbox = Outbox(config.outbox)
    closing.callback(outbox.close)
    remover = RowRemover(outbox, services.log)
    closing.callback(services.write_log)
    closing.callback(remover.close)
    return services._replace(after_outcome=lambda task, row: remover.add(row))
