"""The handlers that send tasks as HTTP requests (`handlers.KIND.deliver`), for the workers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

from engine.config.queue_config import Config, HandlerConfig
from engine.doctor.finding import Finding, Grade
from engine.work.handlers import Handler
from tui.cli.setup.errors import EX_CONFIG, fail
from tui.cli.setup.setup import Setup

INSTALL = "pip install 'spooldeck[deliver]'"
"""How to install what deliveries need."""


def delivered_kinds(config: Config) -> Mapping[str, HandlerConfig]:
    """The handlers that send HTTP requests, by kind of task."""
    return {kind: h for kind, h in config.handlers.items() if h.deliver is not None}


def missing_library(config: Config) -> Finding | None:
    """A finding if a handler needs httpx and it is not installed."""
    kinds = delivered_kinds(config)
    if not kinds or find_spec("httpx") is not None:
        return None
    said = f"handlers.{next(iter(kinds))}.deliver: httpx is not installed"
    return Finding(Grade.BAD, said, INSTALL)


def deliver_handlers(setup: Setup, closing: ExitStack) -> dict[str, Handler]:
    """The handler of each kind that is sent by HTTP; `closing` closes their connections.

    Raises:
        CommandError: httpx is not installed, or a file of certificates cannot be used.
    """
    config = setup.config
    if not (kinds := delivered_kinds(config)):
        return {}
    if missing := missing_library(config):
        fail(EX_CONFIG, f"{missing.problem}: {missing.fix}")
    return {kind: _handler(setup, kind, handler, closing) for kind, handler in kinds.items()}


def _handler(setup: Setup, kind: str, handler: HandlerConfig, closing: ExitStack) -> Handler:
    from engine.delivery.deliver import DeliverHandler
    from engine.delivery.http_client import HttpClient, trusted_certificates
    from engine.delivery.status_table import make_outcomes
    from engine.delivery.url_guard import UrlGuard

    said: Any = handler.deliver
    try:
        tls = trusted_certificates(said.ca_file)
    except OSError as error:
        fail(EX_CONFIG, f"handlers.{kind}.deliver.ca_file: {said.ca_file}: {error}")
    client = HttpClient(UrlGuard(said.allow), tls)
    closing.callback(client.close)
    return DeliverHandler(client, make_outcomes(said.profile, said.statuses), handler.timeout, None)
