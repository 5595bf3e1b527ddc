"""What deserves a look: one line each, the most urgent first, and where it leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import Line
from tui.screens.base import Target

LOOKS = {Level.CRIT: "bad", Level.WARN: "warning"}

_ORDER = {what: number for number, what in enumerate(AlertKind)}


def ordered(alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """The most urgent first; those that are alike in the order of their places."""
    return tuple(sorted(alerts, key=lambda alert: (alert.level, _ORDER[alert.what])))


def key(alert: Alert) -> str:
    """What tells one from all others, for as long as it lasts."""
    return f"{alert.what} {alert.leads_to.name} {alert.leads_to.place}"


def lines(alerts: Sequence[Alert], names: Mapping[str, str], width: int, height: int) -> list[Line]:
    """A line for each: `! CRIT  mail.out: ...`. The first one says how many there is no room for.

    `names` are what places are called, by what the operator gave.
    """
    found: list[Line] = []
    for alert in alerts:
        place = names.get(alert.leads_to.place, shown(alert.leads_to.place))
        narrow = width < present.NARROW
        sign = f" ! {alert.level}" + ("" if narrow else "  ")
        text = f" {place}: {alert.words}" if narrow else f"{place}: {alert.words}"
        found.append(((sign, LOOKS[alert.level]), (text, "")))
    more = len(alerts) - height
    if found and height and more > 0:
        found[0] = present.join(found[0], ((f"+{more} more", "dim"),), width)
    return [present.cut(line, width) for line in found]


def none(known: bool) -> Line:
    """That nothing needs attention; or that this is not known yet."""
    return ((" nothing needs attention", "good"),) if known else ((" looking ...", "dim"),)


def told(alert: Alert, now: float) -> str:
    """One in full, with its place as the operator gave it, and since when."""
    since = f" (since {present.moment(alert.since, now)})" if alert.since is not None else ""
    return f"{alert.level} {alert.leads_to.place}: {alert.words}{since}"


def target(goal: Goal, number: int) -> Target:
    """The screen that shows more of it; `number` is which of the places it is about."""
    if goal.where is Where.LOCK:
        return Target(keys.LOCK, place=number)
    if goal.where is Where.TRANSPORTS:
        return Target(keys.TRANSPORTS, place=number, id=goal.name)
    if goal.where is Where.OPERATIONS:
        return Target(keys.OPERATIONS, place=number, id=goal.name)
    if goal.where is Where.CONTROLS:
        return Target(keys.CONTROLS, place=number)
    if goal.where is Where.PROBLEMS:
        return Target(keys.LIST, place=number, problems=True)
    if goal.where is Where.STATE:
        return Target(keys.LIST, place=number, state=goal.state, filter="")
    return Target(keys.LIST, place=number)


def as_row(alert: Alert) -> dict[str, object]:
    """The same for programs; `since` in epoch seconds UTC."""
    return {
        "level": str(alert.level),
        "what": str(alert.what),
        "place": alert.leads_to.place,
        "words": alert.words,
        "since": alert.since,
        "where": str(alert.leads_to.where),
        "state": None if alert.leads_to.state is None else str(alert.leads_to.state),
    }
