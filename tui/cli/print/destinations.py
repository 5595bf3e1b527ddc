"""`destinations`: print the destinations of deliveries; block, unblock or probe one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing

from engine.destinations.destination import Destination, Registry, origin_of
from engine.destinations.watch import ACTIONS, DestinationState, SeenDestination
from engine.formats.base.destination_controls import open_seen_registry, run_action
from engine.formats.base.format import Setup
from engine.monitor.transport_health import MailHealth
from engine.store import StoreError, Unavailable, Unsupported
from engine.system.command_errors import EX_CONFIG, EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from tui.cli.plans import plan_command
from tui.cli.setup.one_look import scan_place
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.session.place_session import PlaceSession, seen_destinations
from tui.text.lines import Line
from tui.transports import destination_lines as view
from tui.transports import mixed_table

NOT_DONE = 1
NO_REGISTRY = "no registry: set destinations, such as sqlite:///PATH, in the configuration"
NO_DELIVERIES = "nothing is delivered here: no handler of the configuration has deliver"


def destinations(
    setup: Setup, words: list[str], *, root: str, reason: str, dry_run: bool, apply: int
) -> Answer:
    """List the destinations of a place, or preview or apply a verb; exit 1 if one is unhealthy,
    unknown or refused."""
    if words and words[0] in ACTIONS:
        return _change(setup, words, root, reason, apply)
    if len(words) > 1 or apply or reason:
        fail(EX_USAGE, f"expected {', '.join(ACTIONS)} and an ORIGIN, or only a PLACE")
    return _list(setup, words or [root] * bool(root))


# ---- listing


def _list(setup: Setup, names: Sequence[str]) -> Answer:
    place = open_places(setup, names)[0]

    async def ask(session: PlaceSession) -> tuple[tuple[SeenDestination, ...], str, float]:
        await session.query_backlog()
        unknown = session.readings.destinations.unknown
        return seen_destinations(session), unknown, session.clock()

    rows, unknown, now = scan_place(place, ask)

    def lines() -> Iterator[Line | str]:
        if unknown:
            print_error(unknown)
        if rows:
            width = columns(120)
            mixed = mixed_table.sending_rows(MailHealth(), rows, 1.0, now, None, most=None)
            titles, table = mixed_table.table(mixed, width)
            tasks_unknown = "" if place.destinations is None else place.destinations.tasks_unknown
            yield from [titles, *(line for _, line in table)]
            yield from view.page_lines(rows, tasks_unknown, now, width)
        elif not unknown and setup.config.destinations is None:
            yield NO_REGISTRY
        elif not unknown:
            none = "no destinations: nothing was delivered yet"
            yield NO_DELIVERIES if place.destinations is None else none

    return Answer(
        lambda: {
            "place": place.name,
            "unknown": unknown or None,
            "destinations": [view.json_row(one) for one in rows],
        },
        lines,
        int(bool(unknown) or any(one.state is DestinationState.UNHEALTHY for one in rows)),
    )


# ---- one of them


def _change(setup: Setup, words: Sequence[str], root: str, reason: str, count: int) -> Answer:
    if not 2 <= len(words) <= 3:
        fail(EX_USAGE, f"expected {words[0]} ORIGIN, then optionally a PLACE")
    try:
        origin = origin_of(words[1])
    except ValueError as error:
        fail(EX_USAGE, f"{safe_line(words[1])}: {error}")
    setup = plan_command.setup_at(setup, root, words[2:])
    registry = open_seen_registry(setup)
    if registry is None:
        fail(EX_CONFIG, NO_REGISTRY)
    with closing(registry):
        try:
            destination = registry.get(origin)
            if why := ACTIONS[words[0]].refusal(destination):
                raise Unsupported(why)
            if count:
                return _apply(setup, registry, words[0], destination, reason, count=count)
            return _preview(setup, words[0], destination, reason)
        except Unavailable:
            raise
        except StoreError as refusal:
            fail(NOT_DONE, f"{safe_line(str(refusal))}; nothing was changed")


def _preview(setup: Setup, verb: str, destination: Destination, reason: str) -> Answer:
    action, origin = ACTIONS[verb], destination.origin
    command = [*setup.command_words, "destinations", verb, origin]
    command += ["--reason", reason] if reason else []
    to_apply = safe_line(shlex.join([*command, "--apply", "1"]))
    facts = {"effect": action.effect, "now": action.fact(destination), "count": 1}
    return Answer(
        lambda: {"verb": verb, "destination": origin, **facts, "command": to_apply},
        lambda: [
            *view.plan_lines(action, destination, columns()),
            f"nothing was changed; to apply: {to_apply}",
        ],
    )


def _apply(
    setup: Setup, registry: Registry, verb: str, destination: Destination, reason: str, count: int
) -> Answer:
    if count != 1:
        fail(NOT_DONE, f"1 destination, not {count:,}; nothing was changed")
    plan_command.require_reason(setup, reason)
    done = run_action(setup, registry, verb, destination, reason)
    if done.trouble:
        print_error(done.trouble)
    value, op = ACTIONS[verb].value, done.op or None
    return Answer(
        lambda: {"destination": destination.origin, "done": value, "op": op},
        lambda: [safe_line(done.answer)],
    )
