"""`control`: list the controls of a whole queue; preview or apply one."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing

from engine.config.place_address import is_url
from engine.formats.base.format import Setup
from engine.operations import controls
from engine.operations.controls import ControlResult, Order
from engine.operations.journal import Intent
from engine.places.place import WholeQueueFigures
from engine.store import Control, Unsupported
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from tui.cli.plans import plan_command
from tui.cli.setup.one_look import chosen_places, print_lines, scan_once
from tui.operations import control_lines as view
from tui.session.place_session import PlaceSession

DONE, NOT_DONE = 0, 1


def control(setup: Setup, arguments: Namespace) -> int:
    """List the controls of a queue; with a name, preview or apply that control.

    Exit 0 listed, previewed or applied; 1 refused, or no such control.
    """
    words: Sequence[str] = arguments.words
    if not (arguments.dry_run or arguments.apply):
        return _list(setup, arguments, words)
    plan_command.require_one(arguments)
    if not 1 <= len(words) <= 2:
        fail(EX_USAGE, "expected the NAME of a control, then optionally a PLACE")
    setup = plan_command.setup_at(setup, arguments, words[1:])
    order = Order(words[0], arguments.target, arguments.value, amount=arguments.apply or None)
    try:
        return (_show if arguments.dry_run else _do)(setup, order, arguments)
    except Unsupported as refusal:
        fail(NOT_DONE, f"{safe_line(str(refusal))}; nothing was changed")


# ---- listing


def _list(setup: Setup, arguments: Namespace, words: Sequence[str]) -> int:
    if len(words) > 1 or arguments.target or arguments.value:
        fail(EX_USAGE, "expected --dry-run or --apply N with the NAME of a control")
    root = getattr(arguments, "root", "")
    if words and not (is_url(words[0]) or os.path.exists(words[0])):
        fail(
            EX_USAGE,
            f"{safe_line(words[0])}: no such place; a control needs --dry-run or --apply N",
        )
    (place, *_) = chosen_places(setup, [*words, *([root] if root and not words else [])])

    async def ask(
        sessions: Sequence[PlaceSession],
    ) -> tuple[WholeQueueFigures, dict[str, Control], str]:
        (session,) = sessions
        inspector = session.inspector
        return (
            session.readings.queue_figures,
            dict(inspector.controls),
            inspector.latest.unavailable,
        )

    queue_figures, controls_by_name, unavailable = scan_once([place], ask)
    if unavailable:
        fail(NOT_DONE, unavailable)
    if arguments.json:
        print(json.dumps(_as_json(place.name, queue_figures, controls_by_name)))
    else:
        print_lines(
            view.page_lines(
                queue_figures, controls_by_name, shutil.get_terminal_size((100, 24)).columns
            )
        )
    return DONE


def _as_json(
    place: str, queue_figures: WholeQueueFigures, controls_by_name: dict[str, Control]
) -> dict[str, object]:
    return {
        "place": place,
        "facts": dict(queue_figures.rows),
        "warnings": list(queue_figures.warnings),
        "facts_unknown": queue_figures.unknown or None,
        "controls": [view.control_values(name, each) for name, each in controls_by_name.items()],
    }


# ---- one of them


def _show(setup: Setup, order: Order, arguments: Namespace) -> int:
    with closing(setup.open_store()) as store:
        known = controls.checked_control(store, order)
        forecast = controls.forecast_control(store, order)
    count = controls.confirmation_count(known, forecast)
    command = shlex.join(_control_command(setup, order, arguments.reason, count)) if count else ""
    if arguments.json:
        row = view.control_values(order.name, known)
        order_fields = {"target": order.target, "value": order.value}
        preview_fields = {"order": order_fields, "would": forecast.words, "count": count}
        print(json.dumps({**row, **preview_fields, "command": command or None}))
        return DONE
    width = shutil.get_terminal_size((100, 24)).columns
    print_lines(view.preview_lines(order, known, forecast.words, width))
    print(f"nothing was changed; {f'to apply: {safe_line(command)}' if count else 'nothing to do'}")
    return DONE


def _control_command(setup: Setup, order: Order, reason: str, count: int) -> list[str]:
    words = [*setup.command_words, "control", order.name]
    words += ["--target", order.target] if order.target else []
    words += ["--value", order.value] if order.value else []
    words += ["--reason", reason] if reason else []
    return [*words, "--apply", str(count)]


def _do(setup: Setup, order: Order, arguments: Namespace) -> int:
    plan_command.require_reason(setup, arguments.reason)
    setup.require_writable()
    intent = Intent(
        controls.CONTROL_VERB, setup.current_user(), arguments.reason, scope="the whole queue"
    )
    with closing(setup.open_store()) as store:
        done = controls.run_control(store, setup.journal(), order, intent, time.time)
    _report_result(setup, order, done, as_json=arguments.json)
    return DONE


def _report_result(setup: Setup, order: Order, done: ControlResult, *, as_json: bool) -> None:
    if done.trouble:
        print_error(done.trouble)
    lines = done.answer.splitlines()
    if as_json:
        print(json.dumps({"control": order.name, "said": lines, "op": done.op or None}))
    else:
        for line in lines or ["done"]:
            print(safe_line(line))
    answer = "; ".join(lines)
    setup.log_if_allowed(
        "INFO", f"Control {order.name} by {setup.current_user().name}: {safe_line(answer)}"
    )
