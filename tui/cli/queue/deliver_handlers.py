"""The handlers that send tasks as HTTP requests (`handlers.KIND.deliver`), for the workers."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from engine.config.queue_config import HandlerConfig
from engine.delivery.delivery_parts import open_registry
from engine.formats.base.format import Setup
from engine.model import Task
from engine.schedules import NO_RETRY
from engine.system.command_errors import EX_CONFIG, fail
from engine.work.handlers import Context, Handler, HandlerResult

if TYPE_CHECKING:
    from engine.destinations.destination import Registry

PROBE_GRACE_SECONDS = 5.0
"""Seconds after the timeout of a probe from which it counts as lost."""

INSTALL = "pip install 'spooldeck[deliver]'"
"""How to install what deliveries need."""


def missing_library(setup: Setup) -> str:
    """What is wrong if a handler needs httpx and it is not installed, else "" (see `INSTALL`)."""
    if not setup.delivered or find_spec("httpx") is not None:
        return ""
    return f"handlers.{next(iter(setup.delivered))}.deliver: httpx is not installed"


def deliver_handlers(setup: Setup, closing: ExitStack) -> dict[str, Handler]:
    """The handler of each kind that is sent by HTTP; `closing` closes their connections.

    Raises:
        CommandError: httpx is not installed, or a file of certificates cannot be used.
    """
    config = setup.config
    if not (kinds := setup.delivered):
        return {}
    if missing := missing_library(setup):
        fail(EX_CONFIG, f"{missing}: {INSTALL}")
    registry = open_registry(config, creates=True)
    if registry is not None:
        closing.callback(registry.close)
    field = config.outbox.field if config.outbox is not None else ""
    made = {k: _handler(setup, k, h, registry, closing) for k, h in kinds.items()}
    return {kind: _name_row(each, field) for kind, each in made.items()} if field else made


def _handler(
    setup: Setup,
    kind: str,
    handler: HandlerConfig,
    registry: Registry | None,
    closing: ExitStack,
) -> Handler:
    from engine.delivery.breaker import Breaker
    from engine.delivery.deliver import DeliverHandler
    from engine.delivery.http_client import HttpClient, trusted_certificates
    from engine.delivery.status_table import make_outcomes
    from engine.delivery.url_guard import UrlGuard

    delivery_config: Any = handler.deliver
    try:
        tls = trusted_certificates(delivery_config.ca_file)
    except OSError as error:
        fail(EX_CONFIG, f"handlers.{kind}.deliver.ca_file: {delivery_config.ca_file}: {error}")
    client = HttpClient(UrlGuard(delivery_config.allow), tls)
    closing.callback(client.close)
    breaker = None
    if registry is not None:
        breaker = Breaker(
            registry,
            delivery_config.probes if delivery_config.breaker else NO_RETRY,
            is_gating=delivery_config.breaker,
            patience=handler.timeout + PROBE_GRACE_SECONDS,
            warn=lambda text: setup.log("WARN", text),
        )
    outcomes = make_outcomes(delivery_config.profile, delivery_config.statuses)
    return DeliverHandler(client, outcomes, handler.timeout, breaker)


def _name_row(handler: Handler, field: str) -> Handler:
    """Wrap a handler so that a task that was delivered names its database row."""
    from engine.destinations.outbox import row_key

    def run(task: Task, context: Context) -> object:
        result = handler(task, context)
        row = row_key(context.data or b"", field)
        return HandlerResult(result, row) if row else result

    return run
