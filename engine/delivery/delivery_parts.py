"""The registry of destinations and the outbox of the configuration, as working parts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from engine.config.queue_config import Config
from engine.model import Task
from engine.work.services import WorkerServices

if TYPE_CHECKING:
    from engine.destinations.destination import Registry
    from engine.destinations.outbox import RowRemover


def open_registry(
    config: Config, *, creates: bool = False, patience: float | None = None
) -> Registry | None:
    """The registry of destinations; None if none is configured. With `creates`, for a worker, its
    table is created by the first write. `patience`: as that of `SqlRegistry`."""
    if config.destinations is None:
        return None
    from engine.destinations.database import PATIENCE_SECONDS
    from engine.destinations.sql_registry import SqlRegistry

    seconds = PATIENCE_SECONDS if patience is None else patience
    return SqlRegistry(config.destinations, creates=creates, patience=seconds)


def with_outbox(config: Config, services: WorkerServices, closing: ExitStack) -> WorkerServices:
    """The services of a worker that also removes the rows that its handlers name; `closing` waits
    for the last ones. Nothing is loaded or opened before the first one."""
    settings = config.outbox
    if settings is None:
        return services
    opened: list[RowRemover] = []

    def remove(task: Task, row: str) -> None:
        if not opened:
            from engine.destinations.outbox import Outbox, RowRemover

            outbox = Outbox(settings)
            closing.callback(outbox.close)
            closing.callback(services.write_log)
            opened.append(RowRemover(outbox, services.log))
            closing.callback(opened[0].close)
        opened[0].add(row)

    return services._replace(after_outcome=remove)
