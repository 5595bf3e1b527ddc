"""Alerts as text: one line each, most urgent first, and the screen that each leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where
from engine.text.safe import safe_line
from tui.format import keys, present
from tui.format.present import Line
from tui.screens.target import Target

LOOKS = {Level.CRIT: "bad", Level.WARN: "warning"}

_ORDER = {what: number for number, what in enumerate(AlertKind)}


def sort_alerts(alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """Sort by urgency, then by kind of alert; stable."""
    return tuple(sorted(alerts, key=lambda alert: (alert.level, _ORDER[alert.kind])))


def alert_key(alert: Alert) -> str:
    """Identity of an alert while it lasts."""
    return f"{alert.kind} {alert.target.name} {alert.target.place}"


def alert_lines(
    alerts: Sequence[Alert], names: Mapping[str, str], width: int, height: int
) -> list[Line]:
    """One line per alert: `! CRIT  mail.out: ...`; the first also counts those that do not fit.

    `names` maps the place given by the operator to its display name.
    """
    found: list[Line] = []
    for alert in alerts:
        place = names.get(alert.target.place, safe_line(alert.target.place))
        narrow = width < present.NARROW_COLUMNS
        sign = f" ! {alert.level}" + ("" if narrow else "  ")
        text = f" {place}: {alert.text}" if narrow else f"{place}: {alert.text}"
        found.append(((sign, LOOKS[alert.level]), (text, "")))
    more = len(alerts) - height
    if found and height and more > 0:
        found[0] = present.join_ends(found[0], ((f"+{more} more", "dim"),), width)
    return [present.cut_line(line, width) for line in found]


def no_alerts_line(known: bool) -> Line:
    """ "No alerts", or "checking" as long as not all is read."""
    return ((" no alerts", "good"),) if known else ((" checking ...", "dim"),)


def alert_text(alert: Alert, now: float) -> str:
    """Full text of an alert: place as given by the operator, and start time."""
    since = f" (since {present.format_time(alert.since, now)})" if alert.since is not None else ""
    return f"{alert.level} {alert.target.place}: {alert.text}{since}"


def alert_target(goal: Goal, number: int) -> Target:
    """The screen for an alert's goal; `number` is the number of its place."""
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


def alert_row(alert: Alert) -> dict[str, object]:
    """An alert for JSON output; `since` in epoch seconds UTC."""
    return {
        "level": str(alert.level),
        "what": str(alert.kind),
        "place": alert.target.place,
        "words": alert.text,
        "since": alert.since,
        "where": str(alert.target.where),
        "state": None if alert.target.state is None else str(alert.target.state),
    }
