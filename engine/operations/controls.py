"""Run a control (an action on a whole queue, such as pause or flush), and write it to the journal.

The controls of a queue come from its store's table; nothing here depends on their names. In the
journal, a control is an operation with the verb `control` and no rows: the intent holds the control
and its former value, and a note holds the store's answer. An operation without that note was
interrupted by a crash, and its effect is unknown. Controls on things that no store keeps are
written down the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any

from engine.operations.journal import Intent, Journal, Operation
from engine.operations.journal_writer import JournalWriter
from engine.operations.plans import Plan, RowResult
from engine.store import (
    ChangeableStore,
    Control,
    Outlook,
    ReadableStore,
    StoreError,
    Unavailable,
    Unsupported,
)
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

CONTROL_VERB = "control"

TRANSPORT_CONTROL = "transport"
"""The control that suspends or resumes the mail transport that is its target; no store has it."""

SUSPENDED, RESUMED = "suspended", "resumed"
"""Its values."""

DESTINATION_CONTROL = "destination"
"""The control that blocks, unblocks or probes the destination that is its target; no store has it.
Its values are those of `engine.destinations.watch.ACTIONS`."""

SCHEDULE_CONTROL = "schedule"
"""The control that changes the schedule that is its target; no store has it. Its values are those
of `engine.places.schedules.SCHEDULE_VERBS`, and `undo`."""

UNLOCK_CONTROL = "unlock"
"""The control that takes a lock from its holder, the process that is its target; no store has it.
Its answer has the signals."""

WORKER_CONTROLS = START_WORKER_CONTROL, STOP_WORKER_CONTROL = "start worker", "stop worker"
"""The controls that start a worker, and stop the process that is their target; no store has them.
"""

SWITCHES: Mapping[str, tuple[str, str, str]] = {
    TRANSPORT_CONTROL: (SUSPENDED, "suspend", "resume"),
    DESTINATION_CONTROL: ("blocked", "block", "unblock"),
}
"""Controls on things that no store keeps: the value that stops something, the verb that sets it,
and the verb that sets it back."""

ANSWERED_NOTE, REFUSED_NOTE = "answered", "not done"
"""The `what` of the note that holds a control's answer, or the reason why it was not done."""

MAX_NAMED_TARGETS = 9


class Order(NamedTuple):
    """A control to run, with its target and value."""

    name: str
    target: str = ""
    value: str = ""
    before: str | None = None
    """The expected present value: with a different one, nothing is done. None: any value."""
    amount: int | None = None
    """How many things the plan would change: with a different number now, nothing is done. None:
    any number."""


class ControlRow(NamedTuple):
    """A control as it is for one of its targets, or as a whole."""

    name: str
    target: str
    """"" for a control without known targets."""
    control: Control

    @property
    def label(self) -> str:
        """Name and target."""
        return control_label(self.name, self.target)


def control_label(name: str, target: str) -> str:
    """Name and target of a control, as they are shown."""
    return f"{name} {target}" if target else name


def control_rows(controls: Mapping[str, Control]) -> tuple[ControlRow, ...]:
    """One row for each control, or for each of its targets."""
    return tuple(
        ControlRow(name, target, control.for_target(target))
        for name, control in controls.items()
        for target in ([one.name for one in control.targets] or [""])
    )


class EffectUnknown(Unavailable):
    """The connection was lost: it is not known whether an action was done."""


class ControlResult(NamedTuple):
    """The result of a control."""

    answer: str
    """The store's answer; it may have several lines."""
    op: str = ""
    """The id of the operation in the journal; "" without a journal."""
    trouble: str = ""
    """Why the result could not be written to the journal; "" if it was."""


def order_problem(control: Control, order: Order) -> str:
    """Why a target or value is invalid; "" if it looks valid. The store may still refuse it."""
    value = order.value
    if why := target_problem(control, order.name, order.target):
        return why
    if value and not control.value:
        return f"{order.name} takes no value"
    if control.choices:
        return "" if value in dict(control.choices) else _expected_choices(control, order)
    if control.bounds is not None:
        least, most = control.bounds
        number = int(value[:20]) if value.isascii() and value.isdecimal() else None
        if number is None or not least <= number <= most:
            expected = f"expected a whole number from {least} to {most}"
            return f"{order.name} is {_quoted(value)}, {expected}"
    return f"{order.name} needs a value: {control.value}" if control.value and not value else ""


def target_problem(control: Control, name: str, target: str) -> str:
    """Why a control does not take a target; "" if it seems to."""
    if control.target and not target:
        return f"{name} needs a target: {control.target}"
    if target and not control.target:
        return f"{name} takes no target"
    known = [one.name for one in control.targets]
    if known and target not in known:
        more = f" (+{len(known) - MAX_NAMED_TARGETS:,})" if len(known) > MAX_NAMED_TARGETS else ""
        named = ", ".join(known[:MAX_NAMED_TARGETS])
        return f"{name}: no target {target!r:.40}, expected one of {named}{more}"
    return ""


def _expected_choices(control: Control, order: Order) -> str:
    values = " or ".join(value or "nothing" for value, _ in control.choices)
    return f"{order.name} is {_quoted(order.value)}, expected {values}"


def _quoted(value: str) -> str:
    return f"{value!r:.40}" if value else "nothing"


def suggested_value(control: Control) -> str:
    """The value to suggest first; for a switch, the one that it does not have now."""
    others = (value for value, _ in control.choices if value != control.now or not control.now)
    return next(others, "")


def describe_value(control: Control, value: str) -> str:
    """Format a value with its meaning, if it has one: `0 (pause)`."""
    means = dict(control.choices).get(value, "")
    if value and value == control.no_limit:
        means = "no limit"
    if not means:
        return value
    return f"{value} ({means})" if value else means


def is_reversible(control: Control) -> bool:
    """True if the control can be set back: it has a value now, and accepts that value."""
    return bool(control.now) and control.now in dict(control.choices or [(control.now, "")])


def undo_refusal(values: Mapping[str, Any]) -> str:
    """Why a control cannot be undone, and what sets it back, from the `values` of its intent."""
    name, target, before = (str(values.get(key, "")) for key in ("control", "target", "before"))
    what = control_label(name, target) or "a control"
    if before:
        return f"run the control to set it back: {what} was {before} before"
    return f"{what} cannot be undone"


def control_outcome(operation: Operation) -> str | None:
    """The store's answer, or the reason why nothing was done, from the notes of an operation. None
    if the operation was interrupted; its effect is then unknown."""
    for note in operation.notes:
        if note.get("what") in (ANSWERED_NOTE, REFUSED_NOTE):
            return str(note.get("words", ""))
    return None


def has_control_failed(operation: Operation) -> bool:
    """True if the store did not run the control."""
    return any(note.get("what") == REFUSED_NOTE for note in operation.notes)


def is_schedule_change(operation: Operation) -> bool:
    """True for a change of a schedule, the one control that has an undo."""
    intent = operation.intent
    return intent.verb == CONTROL_VERB and intent.values.get("control") == SCHEDULE_CONTROL


def count_done(operation: Operation, if_unknown: int = 1) -> int:
    """How many things that an undo can put back it has changed: tasks, or one schedule; of a
    change whose effect is not known, the number given."""
    if not is_schedule_change(operation):
        return operation.counts.get(RowResult.DONE, 0)
    if operation.is_running or has_control_failed(operation):
        return 0
    return if_unknown if control_outcome(operation) is None else 1


def forecast_control(store: ChangeableStore, order: Order) -> Outlook:
    """Forecast the effect of a control; an empty text if the store cannot tell. Changes nothing.

    Raises:
        Unsupported: no such control, it is refused now, or its target or value is invalid.
        Unavailable: the store cannot be reached."""
    control = checked_control(store, order)
    if not control.has_forecast:
        return Outlook("")
    return store.forecast(order.name, order.target, order.value)


def checked_control(store: ReadableStore, order: Order) -> Control:
    """Look up the control of an order and check the order against it.

    Raises:
        Unsupported: the order is invalid or not allowed now, with the reason."""
    control = store.controls.get(order.name)
    if control is None:
        named = ", ".join(store.controls)
        known = f"expected one of {named}" if named else "this queue has none"
        raise Unsupported(f"no control {safe_line(order.name)!r} here: {known}")
    control = control.for_target(order.target)
    if why := control.refusal or order_problem(control, order):
        raise Unsupported(why)
    if order.before is not None and order.before != control.now:
        what = control_label(order.name, order.target)
        raise Unsupported(f"{what} has changed: it is {control.now} now")
    return control


def confirmation_count(control: Control, forecast: Outlook) -> int:
    """The number to type, or to pass to --apply: how many things the control would change."""
    return forecast.amount if control.has_forecast else 1


def _require_count(store: ChangeableStore, order: Order) -> None:
    """Check that the control would still change as many things as its plan counted.

    Raises:
        Unsupported: the number has changed, or is 0."""
    if order.amount is None:
        return
    now = forecast_control(store, order).amount
    if now != order.amount:
        raise Unsupported(f"{order.name} would change {now:,} now, not {order.amount:,}")
    if not now:
        raise Unsupported(f"{order.name} would change nothing")


def run_control(
    store: ChangeableStore,
    journal: Journal | None,
    order: Order,
    intent: Intent | None,
    clock: Callable[[], float],
) -> ControlResult:
    """Write the intent to the journal, run the control, and write down the store's answer.

    Without a journal or an intent, nothing is written.

    Raises:
        Unsupported: no such control, it is refused now, or its target or value is invalid.
        Unavailable: the intent cannot be written and nothing was done; or the store failed."""
    control = checked_control(store, order)
    _require_count(store, order)
    if journal is None or intent is None:
        return ControlResult(store.control(order.name, order.target, order.value))
    full_order = order._replace(before=control.now)
    return run_journaled_action(
        journal,
        intent,
        full_order,
        lambda _: store.control(order.name, order.target, order.value),
        clock,
    )


def run_journaled_action(
    journal: Journal,
    intent: Intent,
    order: Order,
    act: Callable[[JournalWriter], str],
    clock: Callable[[], float],
    *,
    refusals: tuple[type[Exception], ...] = (StoreError, OSError),
) -> ControlResult:
    """Write the intent to the journal, call `act`, and write down its answer. Uses no store.

    `order` holds the action, and the former value. `act` may save images for an undo.

    Raises:
        Unavailable: the intent cannot be written, and nothing was done.
        EffectUnknown: raised by `act`; the journal has no result then, as after a crash.
        One of `refusals`: raised by `act`, which then has done nothing."""
    values = {"control": order.name, "target": order.target, "value": order.value}
    intent = intent._replace(verb=CONTROL_VERB, values={**values, "before": order.before or ""})
    with closing(journal.begin(intent, Plan(CONTROL_VERB, (), clock()))) as writer:
        try:
            answer = act(writer)
        except EffectUnknown:
            raise
        except refusals as error:
            with suppress(Unavailable):  # report the first error, not this one
                _write_result(writer, REFUSED_NOTE, error_text(error))
            raise
        trouble = ""
        try:
            _write_result(writer, ANSWERED_NOTE, answer)
        except Unavailable as error:
            trouble = str(error)  # the control was done: only its record is missing
        return ControlResult(answer, writer.op, trouble)


def run_recorded_action(
    journal: Journal | None,
    intent: Intent,
    order: Order,
    act: Callable[[], str],
    clock: Callable[[], float],
    *,
    refusals: tuple[type[Exception], ...] = (StoreError, OSError),
) -> ControlResult:
    """As `run_journaled_action`, but `act` is called also if the intent cannot be written: a full
    disk must not keep an operator from freeing a lock. The result has that as its `trouble`."""
    has_begun = False

    def begin(_: JournalWriter) -> str:
        nonlocal has_begun
        has_begun = True
        return act()

    trouble = ""
    if journal is not None:
        try:
            return run_journaled_action(journal, intent, order, begin, clock, refusals=refusals)
        except Unavailable as error:
            if has_begun:
                raise
            trouble = str(error)
    return ControlResult(act(), "", trouble)


def _write_result(writer: JournalWriter, what: str, words: str) -> None:
    writer.write_note(what, words=words)
    writer.write_end(0, {})
