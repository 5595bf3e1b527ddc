"""`control`: the controls of a queue as a whole, listed; one of them shown first, then used."""

from __future__ import annotations

import json
import os
import shutil
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing

from engine.operations import controls
from engine.operations.controls import ControlResult, Order
from engine.operations.journal import Intent
from engine.store import Control, Unsupported
from engine.text.safe import shown
from tui.cli.plans import plan_command
from tui.cli.setup.one_look import glance, named, print_lines
from tui.cli.setup.setup import EX_USAGE, Setup, complain, fail
from tui.operations import control_lines as view
from tui.session.place import PlaceFigures
from tui.session.place_session import PlaceSession

DONE, NOT_DONE = 0, 1


def control(setup: Setup, arguments: Namespace) -> int:
    """List the controls of a queue; with a name, say what one would do, or do it.

    Exit 0 listed, shown or done; 1 it was refused, or there is no such control.
    """
    words: Sequence[str] = arguments.words
    if not (arguments.dry_run or arguments.apply):
        return _list(setup, arguments, words)
    plan_command.require_one(arguments)
    if not 1 <= len(words) <= 2:
        fail(EX_USAGE, "expected the NAME of a control, and a PLACE behind it if need be")
    setup = plan_command.placed(setup, arguments, words[1:])
    order = Order(words[0], arguments.target, arguments.value, amount=arguments.apply or None)
    try:
        return (_show if arguments.dry_run else _do)(setup, order, arguments)
    except Unsupported as refusal:
        fail(NOT_DONE, f"{shown(str(refusal))}; nothing was changed")


# ---- listing


def _list(setup: Setup, arguments: Namespace, words: Sequence[str]) -> int:
    if len(words) > 1 or arguments.target or arguments.value:
        fail(EX_USAGE, "expected --dry-run or --apply N beside the NAME of a control")
    root = getattr(arguments, "root", "")
    if words and not os.path.exists(words[0]):
        fail(
            EX_USAGE,
            f"{shown(words[0])}: no such place; a control takes --dry-run or --apply N",
        )
    (place, *_) = named(setup, [*words, *([root] if root and not words else [])])

    async def ask(lives: Sequence[PlaceSession]) -> tuple[PlaceFigures, dict[str, Control], str]:
        (live,) = lives
        inspector = live.inspector
        return live.signs.facts, dict(inspector.controls), inspector.latest.unavailable

    told, found, unavailable = glance([place], ask)
    if unavailable:
        fail(NOT_DONE, shown(unavailable))
    if arguments.json:
        print(json.dumps(_as_json(place.name, told, found)))
    else:
        print_lines(view.page(told, found, shutil.get_terminal_size((100, 24)).columns))
    return DONE


def _as_json(place: str, told: PlaceFigures, found: dict[str, Control]) -> dict[str, object]:
    return {
        "place": place,
        "facts": dict(told.rows),
        "warnings": list(told.warnings),
        "facts_unknown": told.unknown or None,
        "controls": [view.as_row(name, each) for name, each in found.items()],
    }


# ---- one of them


def _show(setup: Setup, order: Order, arguments: Namespace) -> int:
    with closing(setup.store()) as store:
        known = controls.judged(store, order)
        forecast = controls.would(store, order)
    count = controls.asked_for(known, forecast)
    twin = plan_command.typed(_twin(setup, order, arguments.reason, count)) if count else ""
    if arguments.json:
        row = view.as_row(order.name, known)
        order_told = {"target": order.target, "value": order.value}
        told = {"order": order_told, "would": forecast.words, "count": count}
        print(json.dumps({**row, **told, "command": twin or None}))
        return DONE
    width = shutil.get_terminal_size((100, 24)).columns
    print_lines(view.plan(order, known, forecast.words, width))
    print(f"nothing was changed; {f'this does it: {shown(twin)}' if count else 'nothing to do'}")
    return DONE


def _twin(setup: Setup, order: Order, reason: str, count: int) -> list[str]:
    words = [*plan_command.base(setup), "control", order.name]
    words += ["--target", order.target] if order.target else []
    words += ["--value", order.value] if order.value else []
    words += ["--reason", reason] if reason else []
    return [*words, "--apply", str(count)]


def _do(setup: Setup, order: Order, arguments: Namespace) -> int:
    plan_command.require_reason(setup, arguments.reason)
    setup.require_change()
    intent = Intent(controls.VERB, setup.who(), arguments.reason, scope="the whole queue")
    with closing(setup.store()) as store:
        done = controls.carry_out(store, setup.journal(), order, intent, time.time)
    _tell(setup, order, done, as_json=arguments.json)
    return DONE


def _tell(setup: Setup, order: Order, done: ControlResult, *, as_json: bool) -> None:
    if done.trouble:
        complain(shown(done.trouble))
    lines = done.said.splitlines()
    if as_json:
        print(json.dumps({"control": order.name, "said": lines, "op": done.op or None}))
    else:
        for line in lines or ["done"]:
            print(shown(line))
    said = "; ".join(lines)
    setup.log_if_allowed("INFO", f"Control {order.name} by {setup.who().name}: {shown(said)}")
