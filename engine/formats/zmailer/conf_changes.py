"""What differs between two readings of scheduler.conf: shown before a new one takes effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from engine.formats.zmailer.spool.scheduler_conf import (
    SchedulerClause,
    SchedulerConf,
    Setting,
    Value,
)


def format_value(value: Value) -> str:
    """The value of a setting, about as the file has it."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "on" if value is True else str(value)


def conf_changes(old: SchedulerConf, new: SchedulerConf) -> Iterator[str]:
    """Yield a line for each clause or PARAM that was added, removed or changed; none if both mean
    the same.
    """
    before, after = _by_name(old.clauses), _by_name(new.clauses)
    for name in before:
        if name not in after:
            yield f"clause {name}: removed"
    for name, clause in after.items():
        if name not in before:
            yield f"clause {name}: added"
        old_settings = before[name].settings if name in before else {}
        for setting, change in _changes(old_settings, clause.settings):
            yield f"clause {name}: {setting}: {change}"
    if [one for one in before if one in after] != [one for one in after if one in before]:
        yield f"order of the clauses: {', '.join(after)}"
    for name, change in _changes(old.params, new.params):
        later = " (from the next start)" if name in _FROM_START else ""
        yield f"PARAM {name}: {change}{later}"


_FROM_START = ("mailqsock", "notifysock")
"""Sockets of a running scheduler, which stay where they are."""


def _by_name(clauses: tuple[SchedulerClause, ...]) -> dict[str, SchedulerClause]:
    """Clauses by their pattern; a pattern that occurs again has its number."""
    counts: Counter[str] = Counter()
    by_name = {}
    for clause in clauses:
        counts[clause.pattern] += 1
        count = counts[clause.pattern]
        by_name[clause.pattern if count == 1 else f"{clause.pattern} ({count})"] = clause
    return by_name


def _changes(old: Mapping[str, Setting], new: Mapping[str, Setting]) -> Iterator[tuple[str, str]]:
    for name in sorted(old.keys() | new.keys()):
        before, after = (
            format_value(one[name].value) if name in one else "not set" for one in (old, new)
        )
        if before != after:
            yield name, f"{before} -> {after}"
