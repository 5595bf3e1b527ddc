"""Controls of an Exim queue: queue runs. They deliver mail, so they are never ended by us."""

from __future__ import annotations

import re

from engine.formats.exim.programs import Exim
from engine.formats.exim.rules import RUN
from engine.store import Control, Unavailable, Unsupported

RUN_DOMAIN = "run-queue-domain"
START_SECONDS = 2.0
"""A queue run that is refused has ended by then."""

CONTROLS = {
    RUN: Control(
        "try all waiting messages now, also those whose retry time has not come",
        has_forecast=True,
    ),
    RUN_DOMAIN: Control(
        "try the waiting messages for a domain now", target="DOMAIN", has_forecast=True
    ),
}

_is_domain = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}").fullmatch


def run_control(exim: Exim, name: str, target: str) -> str:
    """Start a queue run, and leave it running.

    Raises:
        Unsupported: the target is no domain.
        Unavailable: it ended with an error.
    """
    if name == RUN_DOMAIN and _is_domain(target) is None:
        raise Unsupported("expected a domain: letters, digits, dots and hyphens")
    options = ("-R", target) if name == RUN_DOMAIN else ("-qf",)
    end = exim.prefix.start_detached((*exim.words, *options), START_SECONDS)
    if end is None:
        return "queue run started: it goes on by itself"
    if why := exim.prefix.why_failed(end) or (end.last_error if end.status else ""):
        raise Unavailable(why)
    return "queue run ended"
