"""The registry of destinations for the console and `destinations`: read it, and change it."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.delivery.delivery_parts import open_registry
from engine.destinations.destination import Destination, Registry
from engine.destinations.watch import ACTIONS, change_destination
from engine.formats.base.format import Setup
from engine.operations import controls
from engine.operations.controls import DESTINATION_CONTROL, ControlResult, Order
from engine.operations.journal import Intent
from engine.places.place import PlaceDestinations
from engine.text.safe import safe_line

CONSOLE_PATIENCE_SECONDS = 1.0
"""Longest wait of the console for the registry: other readings of a place wait for it."""


def open_seen_registry(setup: Setup, patience: float | None = None) -> Registry | None:
    """The registry of destinations as workers of the place see it; None if none is configured."""
    registry = open_registry(setup.config, patience=patience)
    if registry is None:
        return None
    return setup.format.complete_registry(setup, registry, patience)


def place_destinations(
    setup: Setup, clock: Callable[[], float] = time.time
) -> PlaceDestinations | None:
    """The destinations of a place for the console; None without a registry. Opens nothing yet."""
    registry = open_seen_registry(setup, CONSOLE_PATIENCE_SECONDS)
    if registry is None:
        return None

    def change(verb: str, destination: Destination, reason: str) -> str:
        return run_action(
            setup, registry, verb, destination=destination, reason=reason, clock=clock
        ).trouble

    return PlaceDestinations(registry.all, change, registry.close, setup.format.no_destinations)


def run_action(
    setup: Setup,
    registry: Registry,
    verb: str,
    destination: Destination,
    reason: str,
    clock: Callable[[], float] = time.time,
) -> ControlResult:
    """Change a destination, with a record in the journal of the place and in its log.

    Raises:
        engine.system.command_errors.CommandError: permission denied.
        Gone, Unsupported, Unavailable: as `change_destination`; or the journal cannot be written.
    """
    setup.require_writable()
    setup.make_folder(setup.state_folder)
    action, who, reason = ACTIONS[verb], setup.current_user(), safe_line(reason)
    undoable = action.fact(destination) if action.opposite else None
    order = Order(DESTINATION_CONTROL, destination.origin, action.value, before=undoable)
    done_by = f"{action.value} by {safe_line(who.name)}{f': {reason}' if reason else ''}"
    message = f"Destination {safe_line(destination.origin)} {done_by}"

    def act(_: object) -> str:
        changed = change_destination(registry, verb, destination, reason, clock())
        if action.has_job:
            setup.format.probe_now(setup, changed)
        return message

    intent = Intent(controls.CONTROL_VERB, who, reason, scope="all deliveries to it")
    done = controls.run_journaled_action(setup.journal(), intent, order, act, clock)
    setup.log_if_allowed("INFO", message)
    return done
