"""Text of destinations: their cells in the table, details, and plans to change one."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence

from engine.destinations.destination import Destination
from engine.destinations.watch import (
    DestinationAction,
    DestinationState,
    DestinationTasks,
    SeenDestination,
)
from engine.text.figure import UNKNOWN
from engine.text.figures import fit_count, format_count
from engine.text.safe import safe_line
from tui.text.lines import (
    BLANK_LINE,
    UNKNOWN_RUN,
    Line,
    Run,
    cells_of,
    fact_lines,
    fit_text_middle,
    heading_line,
    join_ends,
)
from tui.text.task_row import time_fields
from tui.text.times import format_age, format_seconds, format_time_with_age
from tui.transports.detail_lines import dialog_lines

STATE_RUNS: Mapping[DestinationState, Run] = {
    DestinationState.OK: (" OK", "ok"),
    DestinationState.UNHEALTHY: (" UNHEALTHY ", "chip-error"),
    DestinationState.BLOCKED: (" BLOCKED ", "chip-warn"),
    DestinationState.UNUSED: (" unused", "muted"),
    DestinationState.UNKNOWN: (" ?", "unknown"),
}
"""The states as words; those that need an operator are chips."""

WHY, BY_CODE = "WHY", "FAILED BY CODE"
"""Titles of the columns that have the free width."""

LABEL_CELLS, SHOWN_DIGITS = 11, 16
KEY_NAMES: Mapping[str, str] = {"publicKey": "signing key", "encryptionPublicKey": "encryption"}
"""Keys of the free JSON that are public keys in base64, and their labels."""


def state_run(one: SeenDestination) -> Run:
    """The state as a word or a chip."""
    return STATE_RUNS[one.state]


def format_codes(tasks: DestinationTasks, most: int = 3) -> str:
    """The dead tasks by the code of their error: `REFUSED 150, HTTP_503 50`."""
    listed = sorted(tasks.failed.items(), key=lambda row: -row[1])
    words = [f"{safe_line(code) or 'other'} {number:,}" for code, number in listed[:most]]
    more = len(listed) - most
    return ", ".join(words) + (f", +{more}" if more > 0 else "")


def describe_why(one: SeenDestination, now: float) -> str:
    """Why it is in its state and since when, in a few words; "" if there is nothing to say."""
    destination = one.destination
    if one.state is DestinationState.BLOCKED:
        return f"{_since(destination.blocked_since, now)}{safe_line(destination.blocked)}"
    if one.state is DestinationState.UNHEALTHY:
        age = "" if destination.since is None else f" {format_age(now - destination.since)}"
        return f"{safe_line(destination.reason)}{age}, {_next_probe(destination, now)}"
    return "send again: R" if one.can_recover else ""


def _since(when: float | None, now: float) -> str:
    return "" if when is None else f"{format_seconds(now - when)}: "


def _next_probe(destination: Destination, now: float) -> str:
    until_probe = (destination.next_probe or now) - now
    if until_probe > 0:
        return f"probe in {format_seconds(until_probe)}"
    if destination.probe_skipped or destination.next_probe is None:
        return "not probed"
    return "probe now"


def cells(one: SeenDestination, now: float) -> Mapping[str, Run]:
    """Its cells by the title of the column."""
    destination, tasks = one.destination, one.tasks
    waiting = failed = oldest = UNKNOWN_RUN
    if tasks is not None:
        waiting = _count(tasks.waiting, 6)
        failed = _count(tasks.all_failed, 6)
        is_old = tasks.oldest is not None
        oldest = (format_seconds(now - (tasks.oldest or now)), "") if is_old else _NONE
    last = destination.last_success
    return {
        "WAIT": waiting,
        "FAILED": failed,
        "OLDEST": oldest,
        "LAST": _NONE if last is None else (format_seconds(now - last), ""),
        WHY: (describe_why(one, now), ""),
        BY_CODE: ("" if tasks is None else format_codes(tasks), ""),
    }


_NONE: Run = ("-", "muted")


def _count(number: int, width: int) -> Run:
    return fit_count(number, width), "" if number else "muted"


def short_origin(origin: str) -> str:
    """The host and port of a destination, safe to show: what tells two apart."""
    return safe_line(origin.removeprefix("https://").removeprefix("http://"))


def brief_lines(listed: Sequence[SeenDestination], now: float, width: int) -> list[Line]:
    """A short line for each: name, state, why, and the tasks that wait and that failed."""
    names = [short_origin(one.destination.origin) for one in listed]
    room = max(8, min(width // 2, max(map(cells_of, names), default=0)))
    lines: list[Line] = []
    for one, name in zip(listed, names, strict=True):
        why, tasks, numbers = describe_why(one, now), one.tasks, UNKNOWN
        state_part: Line = (
            ("! " if one.state is DestinationState.UNHEALTHY else "  ", "error"),
            (f"{fit_text_middle(name, room)} ", ""),
            state_run(one),
            (f" {why}" if why else "", "muted"),
        )
        if tasks is not None:
            numbers = f"{tasks.waiting:,} wait, {tasks.all_failed:,} failed"
        lines.append(join_ends(state_part, ((numbers, "muted"),), width))
    return lines


# ---- details


def detail_lines(
    one: SeenDestination,
    tasks_unknown: str,
    now: float,
    width: int,
    registry_unknown: str = "",
    *,
    has_full_keys: bool = True,
) -> list[Line]:
    """State, probes, tasks and keys of a destination; on a screen the start of each key, which is
    longer than the error."""
    destination, tasks = one.destination, one.tasks
    word, style = one.state.value, STATE_RUNS[one.state][1].removeprefix("chip-")
    rows: list[tuple[str, Run]] = [("state", (word, style))]
    if registry_unknown:
        rows.append(("registry", (f"? {safe_line(registry_unknown)}", "unknown")))
    if destination.blocked:
        blocked = f"{_when(destination.blocked_since, now)}: {destination.blocked}"
        rows.append(("blocked", (blocked, "warn")))
    if not destination.healthy:
        since = f"since {_when(destination.since, now)}: {destination.reason}"
        rows.append(("unhealthy", (since, "")))
        after = f", after {format_count(destination.probes, 'probe')}"
        planned = _when(destination.next_probe, now, "none planned")
        if destination.probe_skipped and (destination.next_probe or 0.0) <= now:
            planned = f"none: {destination.probe_skipped}"
        rows.append(("next probe", (planned + after, "")))
    elif destination.since is not None:
        rows.append(("healthy", (f"since {_when(destination.since, now)}", "ok")))
    rows.append(("last sent", (_when(destination.last_success, now, "never"), "")))
    failed = _when(destination.last_failure, now, "never")
    # A probe leaves no log line.
    failed += "" if destination.last_failure is None else ", a task or a probe"
    rows.append(("last failed", (failed, "")))
    rows += _task_rows(tasks, tasks_unknown, now)
    prints = dict(fingerprints(destination))
    cut = [label for label, digits in prints.items() if not digits.startswith(UNKNOWN)]
    cut = [] if has_full_keys else cut
    for label, digits in prints.items():
        short = f"{digits[:SHOWN_DIGITS]}..."
        if label in cut[-1:]:
            short += " (y copies both)" if len(cut) > 1 else " (y copies it)"
        rows.append((label, (short if label in cut else digits, "muted")))
    facts = [(label, safe_line(text)) for label, (text, _) in rows]
    return fact_lines(facts, width, LABEL_CELLS, {label: r[1] for label, r in rows if r[1]})


def _task_rows(
    tasks: DestinationTasks | None, why_unknown: str, now: float
) -> list[tuple[str, Run]]:
    if tasks is None:
        return [("tasks", ("? not counted yet", "unknown"))]
    if why_unknown and not (tasks.waiting or tasks.failed):
        return [("tasks", (f"? {why_unknown}", "unknown"))]
    oldest = "" if tasks.oldest is None else f", oldest {_when(tasks.oldest, now)}"
    failed = f"{tasks.all_failed:,}"
    failed += f": {format_codes(tasks, 9)}" if tasks.failed else ""
    return [("waiting", (f"{tasks.waiting:,}{oldest}", "")), ("failed", (failed, ""))]


def fingerprints(destination: Destination) -> list[tuple[str, str]]:
    """Label and SHA-256 of each public key that is known of it."""
    prints = []
    for name, label in KEY_NAMES.items():
        key = destination.extra.get(name)
        if not isinstance(key, str) or not key:
            continue
        try:
            prints.append((label, hashlib.sha256(base64.b64decode(key, validate=True)).hexdigest()))
        except (binascii.Error, ValueError):
            prints.append((label, "? not a key in base64"))
    return prints


def _when(when: float | None, now: float, otherwise: str = UNKNOWN) -> str:
    return otherwise if when is None else format_time_with_age(when, now)


def page_lines(
    listed: Sequence[SeenDestination], tasks_unknown: str, now: float, width: int
) -> list[Line]:
    """The details of all that need an operator, for printing."""
    lines: list[Line] = []
    for one in listed:
        if one.state is DestinationState.OK and not one.can_recover:
            continue
        lines += [BLANK_LINE, heading_line(safe_line(one.destination.origin), width)]
        lines += detail_lines(one, tasks_unknown, now, width)
    return lines


def next_step(one: SeenDestination) -> tuple[str, str]:
    """The key of the next step for a destination, and what it does."""
    failed = 0 if one.tasks is None else one.tasks.all_failed
    if one.state is DestinationState.BLOCKED:
        return "S", "unblocks it"
    if one.state is DestinationState.UNHEALTHY:
        return "O", "probes it now; S blocks it"
    if failed:
        return "R", f"sends {failed:,} failed again; Enter lists them"
    return "Enter", "lists its tasks; S blocks it"


# ---- plans


def plan_lines(action: DestinationAction, destination: Destination, width: int) -> list[Line]:
    """What a change does."""
    undo = f"u undoes it ({action.opposite})" if action.opposite else "it cannot be undone"
    rows = [
        ("effect", f"{safe_line(destination.origin)}: {action.effect}", "strong"),
        ("now", safe_line(action.fact(destination)), ""),
        ("undo", undo, ""),
    ]
    return [line for row in rows for line in dialog_lines(*row, width)]


def describe_result(action: DestinationAction, origin: str) -> str:
    """The result of a change."""
    undo = "; next: u undo" if action.opposite else ""
    return f"{safe_line(origin)} {action.value}{undo}"


def json_row(one: SeenDestination) -> dict[str, object]:
    """A destination as JSON; times as `task_row.time_fields`, unknown values are null."""
    destination, tasks = one.destination, one.tasks
    return {
        "destination": destination.origin,
        "state": one.state.value,
        "blocked": destination.blocked or None,
        **time_fields("blocked_since", destination.blocked_since),
        "healthy": destination.healthy,
        "reason": destination.reason or None,
        **time_fields("since", destination.since),
        "probes": destination.probes,
        "probe_skipped": destination.probe_skipped or None,
        **time_fields("next_probe", destination.next_probe),
        **time_fields("last_success", destination.last_success),
        **time_fields("last_failure", destination.last_failure),
        "waiting": None if tasks is None else tasks.waiting,
        **time_fields("oldest", None if tasks is None else tasks.oldest),
        "failed": None if tasks is None else dict(tasks.failed),
        "fingerprints": dict(fingerprints(destination)),
    }
