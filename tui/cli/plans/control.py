"""`control`: list the controls of a whole queue; preview or apply one."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from contextlib import closing

from engine.config.place_address import is_url
from engine.formats.base.format import Setup
from engine.operations import controls
from engine.operations.controls import Order
from engine.operations.journal import Intent
from engine.places.place import WholeQueueFigures
from engine.store import Control, Unsupported
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from tui.cli.plans import plan_command
from tui.cli.setup.one_look import scan_place
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.operations import control_lines as view
from tui.session.place_session import PlaceSession

NOT_DONE = 1


def control(
    setup: Setup,
    words: list[str],
    *,
    root: str,
    target: str,
    value: str,
    reason: str,
    dry_run: bool,
    apply: int,
) -> Answer:
    """List the controls of a queue, or preview or apply one; exit 1 if it is refused or unknown."""
    if not (dry_run or apply):
        if len(words) > 1 or target or value:
            fail(EX_USAGE, "expected --dry-run or --apply N with the NAME of a control")
        if words and not (is_url(words[0]) or os.path.exists(words[0])):
            no_place = f"{safe_line(words[0])}: no such place"
            fail(EX_USAGE, f"{no_place}; a control needs --dry-run or --apply N")
        return _list(setup, words or [root] * bool(root))
    plan_command.require_one(dry_run, apply)
    if not 1 <= len(words) <= 2:
        fail(EX_USAGE, "expected the NAME of a control, then optionally a PLACE")
    setup = plan_command.setup_at(setup, root, words[1:])
    order = Order(words[0], target, value, amount=apply or None)
    try:
        return (_show if dry_run else _do)(setup, order, reason)
    except Unsupported as refusal:
        fail(NOT_DONE, f"{safe_line(str(refusal))}; nothing was changed")


# ---- listing


def _list(setup: Setup, names: Sequence[str]) -> Answer:
    place = open_places(setup, names)[0]

    async def ask(session: PlaceSession) -> tuple[WholeQueueFigures, dict[str, Control], str]:
        inspector = session.inspector
        known = dict(inspector.controls)
        return session.readings.queue_figures, known, inspector.latest.unavailable

    figures, known, unavailable = scan_place(place, ask)
    if unavailable:
        fail(NOT_DONE, unavailable)
    return Answer(
        lambda: {
            "place": place.name,
            "facts": dict(figures.rows),
            "warnings": list(figures.warnings),
            "facts_unknown": figures.unknown or None,
            "controls": [view.control_values(name, each) for name, each in known.items()],
        },
        lambda: view.page_lines(figures, known, columns()),
    )


# ---- one of them


def _show(setup: Setup, order: Order, reason: str) -> Answer:
    with closing(setup.open_store()) as store:
        known = controls.checked_control(store, order)
        forecast = controls.forecast_control(store, order)
    count = controls.confirmation_count(known, forecast)
    command = shlex.join(_control_command(setup, order, reason, count)) if count else ""
    ended = f"to apply: {safe_line(command)}" if count else "nothing to do"
    return Answer(
        lambda: {
            **view.control_values(order.name, known),
            "order": {"target": order.target, "value": order.value},
            "would": forecast.words,
            "count": count,
            "command": command or None,
        },
        lambda: [
            *view.preview_lines(order, known, forecast.words, columns()),
            f"nothing was changed; {ended}",
        ],
    )


def _control_command(setup: Setup, order: Order, reason: str, count: int) -> list[str]:
    words = [*setup.command_words, "control", order.name]
    words += ["--target", order.target] if order.target else []
    words += ["--value", order.value] if order.value else []
    words += ["--reason", reason] if reason else []
    return [*words, "--apply", str(count)]


def _do(setup: Setup, order: Order, reason: str) -> Answer:
    plan_command.require_reason(setup, reason)
    setup.require_writable()
    user = setup.current_user()
    intent = Intent(controls.CONTROL_VERB, user, reason, scope="the whole queue")
    with closing(setup.open_store()) as store:
        done = controls.run_control(store, setup.journal(), order, intent, time.time)
    if done.trouble:
        print_error(done.trouble)
    lines = done.answer.splitlines()
    answer = safe_line("; ".join(lines))
    setup.log_if_allowed("INFO", f"Control {order.name} by {user.name}: {answer}")
    return Answer(
        lambda: {"control": order.name, "said": lines, "op": done.op or None},
        lambda: map(safe_line, lines or ["done"]),
    )
