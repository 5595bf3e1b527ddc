"""What concerns a queue as a whole, done once: judged, written down, done, and told.

A store says by its table of controls what there is; nothing here knows one by its name. In the
journal it is an operation of the verb `control` that has no rows: its intent names the control and
the value that it had before, and a note says what the store answered. One without such a note was
cut off by a crash, and what it did is not known. What no store keeps is written down alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Operation
from engine.operations.journal_writer import JournalWriter
from engine.operations.plans import Plan
from engine.store import Control, Outlook, Store, StoreError, Unavailable, Unsupported
from engine.text.safe import shown

VERB = "control"
"""What such an operation is called in the journal."""

SAID, REFUSED = "answered", "not done"
"""The notes that say what became of it."""


class Order(NamedTuple):
    """A control, and what it is to be done with."""

    name: str
    target: str = ""
    value: str = ""
    before: str | None = None
    """The value that it was seen to have: with another one now, nothing is done. None: any."""
    amount: int | None = None
    """How many things the plan counted that it would change: with another count now, nothing is
    done. None: any."""


class ControlResult(NamedTuple):
    """What came of it."""

    said: str
    """What happened, in the store's words; several lines where there is much to say."""
    op: str = ""
    """The operation in the journal; "" where there is none."""
    trouble: str = ""
    """Why what came of it could not be written down; "" where it was."""


def wrong(control: Control, order: Order) -> str:
    """What can be told to be wrong with target and value before the store is asked; "" if nothing.

    The store decides: it may refuse what looks right from here.
    """
    target, value = order.target, order.value
    if control.target and not target:
        return f"{order.name} needs a target: {control.target}"
    if target and not control.target:
        return f"{order.name} takes no target"
    if value and not control.value:
        return f"{order.name} takes no value"
    if control.choices:
        return "" if value in dict(control.choices) else _expected(control, order)
    if control.bounds is not None:
        least, most = control.bounds
        number = int(value[:20]) if value.isascii() and value.isdecimal() else None
        if number is None or not least <= number <= most:
            said = f"{value!r:.40}" if value else "nothing"
            return f"{order.name} is {said}, expected a whole number from {least} to {most}"
    return f"{order.name} needs a value: {control.value}" if control.value and not value else ""


def _expected(control: Control, order: Order) -> str:
    values = " or ".join(value or "nothing" for value, _ in control.choices)
    said = f"{order.value!r:.40}" if order.value else "nothing"
    return f"{order.name} is {said}, expected {values}"


def proposed(control: Control) -> str:
    """The value that is offered first: of a switch the one that it has not."""
    others = [value for value, _ in control.choices if value != control.now or not control.now]
    return others[0] if others else ""


def meaning(control: Control, value: str) -> str:
    """A value with what it means: `0 (pause)`."""
    means = dict(control.choices).get(value, "")
    if not means:
        return value
    return f"{value} ({means})" if value else means


def is_safe(control: Control) -> bool:
    """Whether it can be set back: it has a value, and takes that value now."""
    return bool(control.now) and control.now in dict(control.choices or [(control.now, "")])


def no_undo(values: Mapping[str, Any]) -> str:
    """Why the journal takes no control back, and what does, by what its intent says."""
    name, target, before = (str(values.get(key, "")) for key in ("control", "target", "before"))
    what = " ".join(filter(None, (name, target))) or "a control"
    if before:
        return f"a control is set back by itself: {what} was {before} before"
    return f"{what} cannot be taken back"


def outcome(operation: Operation) -> str | None:
    """What a control's operation says of its end: what the store answered, or why nothing was done.

    None where it says nothing: it was cut off, and what it did is not known.
    """
    for note in operation.notes:
        if note.get("what") in (SAID, REFUSED):
            return str(note.get("words", ""))
    return None


def failed(operation: Operation) -> bool:
    """Whether the store did not do it."""
    return any(note.get("what") == REFUSED for note in operation.notes)


def would(store: Store, order: Order) -> Outlook:
    """What it would do now; without words where the store cannot tell. Changes nothing.

    Raises:
        Unsupported: there is no such control, it is refused now, or not with this target or value.
        Unavailable: the store cannot be reached.
    """
    control = judged(store, order)
    if not control.foretells:
        return Outlook("")
    return store.forecast(order.name, order.target, order.value)


def judged(store: Store, order: Order) -> Control:
    """The control of an order that may be done now, as far as can be told before.

    Raises:
        Unsupported: it may not, with the reason.
    """
    control = store.controls.get(order.name)
    if control is None:
        named = ", ".join(store.controls)
        known = f"expected one of {named}" if named else "this queue has none"
        raise Unsupported(f"no control {shown(order.name)!r} here: {known}")
    if why := control.refused or wrong(control, order):
        raise Unsupported(why)
    if order.before is not None and order.before != control.now:
        raise Unsupported(f"{order.name} has changed since it was seen: {control.now} now")
    return control


def asked_for(control: Control, forecast: Outlook) -> int:
    """The number to type, or to give to --apply: how many things it would change."""
    return forecast.amount if control.foretells else 1


def _require_count(store: Store, order: Order) -> None:
    """Make sure that it would change as many things as its plan counted.

    Raises:
        Unsupported: it would change more or fewer now, or nothing.
    """
    if order.amount is None:
        return
    now = would(store, order).amount
    if now != order.amount:
        raise Unsupported(f"{order.name} would change {now:,} now, not {order.amount:,}")
    if not now:
        raise Unsupported(f"{order.name} would change nothing")


def carry_out(
    store: Store,
    journal: Journal | None,
    order: Order,
    intent: Intent | None,
    clock: Callable[[], float],
) -> ControlResult:
    """Write the intent down, do it, write down what the store answered.

    Without a journal or an intent nothing is written down.

    Raises:
        Unsupported: there is no such control, it is refused now, or not with this target or value.
        Unavailable: the intent cannot be written down, and nothing was done; or the store could
            not do it.
    """
    control = judged(store, order)
    _require_count(store, order)
    if journal is None or intent is None:
        return ControlResult(store.control(order.name, order.target, order.value))
    seen = order._replace(before=control.now)
    act = partial(store.control, order.name, order.target, order.value)
    return written_down(journal, intent, seen, act, clock)


def written_down(
    journal: Journal,
    intent: Intent,
    order: Order,
    act: Callable[[], str],
    clock: Callable[[], float],
) -> ControlResult:
    """Write the intent down, do it, write down what was answered; no store is asked.

    `order` says what is done, and which value was there before.

    Raises:
        Unavailable: the intent cannot be written down, and nothing was done.
        StoreError, OSError: as `act` does, which did nothing then.
    """
    values = {"control": order.name, "target": order.target, "value": order.value}
    said = intent._replace(verb=VERB, values={**values, "before": order.before or ""})
    pen = journal.begin(said, Plan(VERB, (), clock()))
    try:
        return _carried_out(act, pen, clock)
    finally:
        pen.close()


def _carried_out(
    act: Callable[[], str], pen: JournalWriter, clock: Callable[[], float]
) -> ControlResult:
    try:
        said = act()
    except (StoreError, OSError) as error:
        words = error.strerror if isinstance(error, OSError) else ""
        with suppress(Unavailable):  # what kept it from being done is what is told
            _end(pen, REFUSED, words or str(error), clock())
        raise
    trouble = ""
    try:
        _end(pen, SAID, said, clock())
    except Unavailable as error:
        trouble = str(error)  # it is done, whatever is written down of it
    return ControlResult(said, pen.op, trouble)


def _end(pen: JournalWriter, what: str, words: str, now: float) -> None:
    pen.say(what, words=words)
    pen.end(Report(Plan(VERB, (), now), (), (), ()))
