"""`destinations`: print the destinations of deliveries; block, unblock or probe one."""

from __future__ import annotations

import json
import shlex
import shutil
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from engine.destinations.destination import Destination, Registry, origin_of
from engine.destinations.watch import ACTIONS, DestinationState, SeenDestination
from engine.formats.base.destination_controls import open_seen_registry, run_action
from engine.formats.base.format import Setup
from engine.monitor.transport_health import MailHealth
from engine.store import StoreError, Unavailable, Unsupported
from engine.system.command_errors import EX_CONFIG, EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from tui.cli.plans import plan_command
from tui.cli.setup.one_look import chosen_places, print_lines, scan_once
from tui.session.place_session import PlaceSession, seen_destinations
from tui.transports import destination_lines as view
from tui.transports import mixed_table

DONE, NOT_DONE = 0, 1
NO_REGISTRY = "no registry: set destinations, such as sqlite:///PATH, in the configuration"
NO_DELIVERIES = "nothing is delivered here: no handler of the configuration has deliver"


class _Listed(NamedTuple):
    rows: tuple[SeenDestination, ...]
    unknown: str
    now: float


def destinations(setup: Setup, arguments: Namespace) -> int:
    """List the destinations of a place; with block, unblock or probe and an ORIGIN, preview or
    apply that.

    Exit 0 all fine, previewed or applied; 1 a destination is unhealthy, unknown or refused.
    """
    words: Sequence[str] = arguments.words
    if words and words[0] in ACTIONS:
        return _change(setup, arguments, words)
    if len(words) > 1 or arguments.apply or arguments.reason:
        fail(EX_USAGE, f"expected {', '.join(ACTIONS)} and an ORIGIN, or only a PLACE")
    return _list(setup, arguments, words)


# ---- listing


def _list(setup: Setup, arguments: Namespace, words: Sequence[str]) -> int:
    root = getattr(arguments, "root", "")
    (place, *_) = chosen_places(setup, [*words, *([root] if root and not words else [])])

    async def ask(sessions: Sequence[PlaceSession]) -> _Listed:
        (session,) = sessions
        await session.query_backlog()
        unknown = session.readings.destinations.unknown
        return _Listed(seen_destinations(session), unknown, session.clock())

    listed = scan_once([place], ask)
    tasks_unknown = "" if place.destinations is None else place.destinations.tasks_unknown
    if arguments.json:
        rows = [view.json_row(one) for one in listed.rows]
        place_fields = {"place": place.name, "unknown": listed.unknown or None}
        print(json.dumps({**place_fields, "destinations": rows}))
    else:
        why_none = "" if setup.config.destinations is not None else NO_REGISTRY
        if not why_none and place.destinations is None:
            why_none = NO_DELIVERIES
        _print(listed, tasks_unknown, why_none)
    is_wrong = any(one.state is DestinationState.UNHEALTHY for one in listed.rows)
    return int(bool(listed.unknown) or is_wrong)


def _print(listed: _Listed, tasks_unknown: str, why_none: str) -> None:
    width = shutil.get_terminal_size((120, 24)).columns
    if listed.unknown:
        print_error(listed.unknown)
    if not listed.rows and not listed.unknown:
        print(why_none or "no destinations: nothing was delivered yet")
    if not listed.rows:
        return
    rows = mixed_table.sending_rows(MailHealth(), listed.rows, 1.0, listed.now, None, most=None)
    titles, lines = mixed_table.table(rows, width)
    more = view.page_lines(listed.rows, tasks_unknown, listed.now, width)
    print_lines([titles, *(line for _, line in lines), *more])


# ---- one of them


def _change(setup: Setup, arguments: Namespace, words: Sequence[str]) -> int:
    if not 2 <= len(words) <= 3:
        fail(EX_USAGE, f"expected {words[0]} ORIGIN, then optionally a PLACE")
    try:
        origin = origin_of(words[1])
    except ValueError as error:
        fail(EX_USAGE, f"{safe_line(words[1])}: {error}")
    setup = plan_command.setup_at(setup, arguments, words[2:])
    registry = open_seen_registry(setup)
    if registry is None:
        fail(EX_CONFIG, NO_REGISTRY)
    with closing(registry):
        try:
            destination = registry.get(origin)
            if why := ACTIONS[words[0]].refusal(destination):
                raise Unsupported(why)
            act = _apply if arguments.apply else _preview
            return act(setup, registry, words[0], destination, arguments)
        except Unavailable:
            raise
        except StoreError as refusal:
            fail(NOT_DONE, f"{safe_line(str(refusal))}; nothing was changed")


def _preview(
    setup: Setup, registry: Registry, verb: str, destination: Destination, arguments: Namespace
) -> int:
    reason = ["--reason", arguments.reason] if arguments.reason else []
    action, origin = ACTIONS[verb], destination.origin
    command = [*setup.command_words, "destinations", verb, origin, *reason]
    to_apply = safe_line(shlex.join([*command, "--apply", "1"]))
    if arguments.json:
        facts = {"effect": action.effect, "now": action.fact(destination), "count": 1}
        print(json.dumps({"verb": verb, "destination": origin, **facts, "command": to_apply}))
        return DONE
    print_lines(view.plan_lines(action, destination, shutil.get_terminal_size((100, 24)).columns))
    print(f"nothing was changed; to apply: {to_apply}")
    return DONE


def _apply(
    setup: Setup, registry: Registry, verb: str, destination: Destination, arguments: Namespace
) -> int:
    if arguments.apply != 1:
        fail(NOT_DONE, f"1 destination, not {arguments.apply:,}; nothing was changed")
    plan_command.require_reason(setup, arguments.reason)
    done = run_action(setup, registry, verb, destination, arguments.reason)
    if done.trouble:
        print_error(done.trouble)
    if arguments.json:
        value = ACTIONS[verb].value
        print(json.dumps({"destination": destination.origin, "done": value, "op": done.op or None}))
    else:
        print(safe_line(done.answer))
    return DONE
