"""Alerts as text: one line each, most urgent first, and the screen that each leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where
from engine.text.safe import safe_line
from tui.screens.target import Target
from tui.session.worker_rows import room_step
from tui.text import keys
from tui.text.frames import NARROW_COLUMNS
from tui.text.lines import Line, cells_of, cut_line, fit_text_end, join_ends, width_of
from tui.text.task_row import time_fields
from tui.text.times import format_clock, format_time_with_age

CHIPS = {Level.CRIT: "chip-error", Level.WARN: "chip-warn", Level.INFO: "muted"}

_ORDER = {what: number for number, what in enumerate(AlertKind)}


def sort_alerts(alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """Sort by urgency, then by kind of alert; stable."""
    return tuple(sorted(alerts, key=lambda alert: (alert.level, _ORDER[alert.kind])))


def alert_key(alert: Alert) -> str:
    """Identity of an alert while it lasts; more dead tasks become too many in the same row."""
    kind = AlertKind.DEAD if alert.kind is AlertKind.GROWING else alert.kind
    return f"{kind} {alert.target.name} {alert.target.place}"


def has_dead_alert(alerts: Sequence[Alert]) -> bool:
    """True if one of the alerts is about dead tasks, whose clusters it counts."""
    return any(alert.kind in (AlertKind.DEAD, AlertKind.GROWING) for alert in alerts)


def alert_lines(
    alerts: Sequence[Alert],
    names: Mapping[str, str],
    width: int,
    steps: Sequence[tuple[str, str, str]] = (),
) -> list[Line]:
    """One line per alert: level, place, text, and the key of its next step. `names` maps the place
    given by the operator to its display name."""
    place_names = [names.get(one.target.place, safe_line(one.target.place)) for one in alerts]
    narrow = width < NARROW_COLUMNS
    room = 0 if narrow else min(20, max(map(cells_of, place_names), default=0))
    lefts: list[Line] = []
    for alert, name in zip(alerts, place_names, strict=True):
        chip = (f" {alert.level} ", CHIPS[alert.level])
        if narrow:
            lefts.append(((" ", ""), chip, (f" {name}: {alert.text}", "")))
            continue
        place = fit_text_end(name, room)
        lefts.append((("   ", ""), chip, (f"  {place}  ", "strong"), (alert.text, "")))
    if not steps or narrow:
        return [cut_line(line, width) for line in lefts]
    hints = [(key, word) for key, word, _ in steps]
    keys_width = max((len(key) for key, _ in hints), default=0)
    words_width = max((len(word) for _, word in hints), default=0)
    lines: list[Line] = []
    for alert, alert_line, (key, word) in zip(alerts, lefts, hints, strict=True):
        room = width - width_of(alert_line) - keys_width - words_width - 4
        right: Line = ((f"{key:>{keys_width}}", "key"), (f" {word:<{words_width}} ", "muted"))
        if room < 0:  # out of line with the others: the text is cut, not the word
            right = ((f" {key}", "key"), (f" {word} ", "muted"))
        elif room >= _SINCE_CELLS:
            since = "" if alert.since is None else f"since {format_clock(alert.since)}"
            right = ((f"{since:<18}", "muted"), *right)
        lines.append(join_ends(alert_line, right, width))
    return lines


_SINCE_CELLS = 24
"""Cells that an alert and its key must leave free for the time since when it lasts."""

_NEXT: Mapping[Where, tuple[str, str, str]] = {
    Where.TRANSPORTS: ("6", "transports", "shows the server's replies and suspends or tests it"),
    Where.OPERATIONS: ("u", "operations", "shows who began it, and resumes or abandons it"),
    Where.CONTROLS: ("C", "controls", "shows the controls of the whole queue"),
    Where.PROBLEMS: ("Enter", "problems", "shows each file and what is wrong with it"),
    Where.STATE: ("Enter", "tasks", "lists these tasks; c there groups their errors"),
    Where.WORKERS: ("W", "start worker", "plans to start a worker"),
    Where.QUEUE: ("Enter", "queue", "opens the queue"),
    Where.GROUPS: ("Enter", "groups", "groups these tasks by sender or account"),
}
"""For each goal of an alert its key, a word, and what the key does."""

_BY_ERROR = ("c", "clusters", "groups these tasks by error, still happening or not")
_NEXT_OF_KIND: Mapping[AlertKind, tuple[str, str, str]] = {
    AlertKind.UNREADABLE: ("r", "re-read", "re-reads the place; first mount, restore or start it"),
    AlertKind.DEAD: _BY_ERROR,
    AlertKind.GROWING: _BY_ERROR,
    AlertKind.UNHEALTHY: ("Enter", "destination", "opens it; O there probes it, S blocks it"),
    AlertKind.RECOVERED: ("Enter", "destination", "opens it; R there sends what failed again"),
}
"""The same for alerts that have a better key than their goal."""

_WORKERS = ("Enter", "workers", "opens the workers")
"""The same where no worker can be started here."""
_LOCKS = ("5", "locks", "shows the locks")
"""The same where no lock can be freed here."""
_DESTINATION = ("Enter", "destination", "opens it")
"""The same for a destination in a console that only reads."""


def next_step(
    alert: Alert, lock_step: tuple[str, str, str], *, can_start: bool, read_only: bool
) -> tuple[str, str, str]:
    """The key of the next step for an alert, a word for it, and what it does. `lock_step` is that
    for the lock of its place, where the console can start a worker (`can_start`), for a full disk
    once there is room."""
    if alert.target.where is Where.WORKERS:
        return _NEXT[Where.WORKERS] if can_start else _WORKERS
    if alert.target.where is Where.LOCK:
        return lock_step if lock_step[1] else _LOCKS
    if alert.kind is AlertKind.FULL:
        return room_step(alert, can_start=can_start, read_only=read_only)
    if read_only and alert.kind in (AlertKind.UNHEALTHY, AlertKind.RECOVERED):
        return _DESTINATION
    return _NEXT_OF_KIND.get(alert.kind) or _NEXT[alert.target.where]


def no_alerts_line(known: bool) -> Line:
    """ "No alerts", or "checking" as long as not all is read."""
    return (("   no alerts", "ok"),) if known else (("   checking ...", "muted"),)


def alert_text(alert: Alert, now: float) -> str:
    """Full text of an alert: place as given by the operator, and start time."""
    since = f" (since {format_time_with_age(alert.since, now)})" if alert.since is not None else ""
    return f"{alert.level} {alert.target.place}: {alert.text}{since}"


_SCREENS: Mapping[Where, str] = {
    Where.LOCK: keys.LOCK,
    Where.TRANSPORTS: keys.TRANSPORTS,
    Where.OPERATIONS: keys.OPERATIONS,
    Where.WORKERS: keys.WORKERS,
    Where.CONTROLS: keys.CONTROLS,
    Where.GROUPS: keys.GROUPS,
}
"""The screens of goals; of all others the queue."""


def alert_target(goal: Goal, number: int) -> Target:
    """The screen for an alert's goal; `number` is the number of its place."""
    target = Target(_SCREENS.get(goal.where, keys.LIST), place=number)
    if goal.where in (Where.TRANSPORTS, Where.OPERATIONS):
        return target._replace(id=goal.name)
    if goal.where is Where.GROUPS:
        return target._replace(state=goal.state, id=goal.name)
    if goal.where is Where.STATE:
        return target._replace(state=goal.state, filter="")
    return target._replace(problems=goal.where is Where.PROBLEMS)


def alert_row(alert: Alert) -> dict[str, object]:
    """An alert for JSON output; `since` as `task_row.time_fields`."""
    return {
        "level": str(alert.level),
        "what": str(alert.kind),
        "place": alert.target.place,
        "words": alert.text,
        **time_fields("since", alert.since),
        "where": str(alert.target.where),
        "state": None if alert.target.state is None else str(alert.target.state),
    }
