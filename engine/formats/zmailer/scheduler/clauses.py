"""The settings of clauses for the scheduling, from a parsed scheduler.conf."""

from __future__ import annotations

import os
from typing import Any

from engine.formats.zmailer import diagnostics
from engine.formats.zmailer.diagnostics import Unreported
from engine.formats.zmailer.scheduling.jobs import ClauseSettings
from engine.formats.zmailer.spool.scheduler_conf import Match, SchedulerConf, find_settings

DELIVERY_FORM = "delivery"
"""The form of a report if the clause names none."""

_MAX_CACHED = 100_000

_SAME_NAMES = frozenset(ClauseSettings._fields) - {"pattern", "skew", "expiry", "idlemax"}


class ClauseTable:
    """The settings of each channel and host by one configuration."""

    def __init__(self, conf: SchedulerConf) -> None:
        self.conf = conf
        self._by_name: dict[tuple[str, str], ClauseSettings | None] = {}
        self._shared: dict[ClauseSettings, ClauseSettings] = {}
        """Each value once, as 100,000 threads have it."""

    def find(self, channel: str, host: str) -> ClauseSettings | None:
        """The settings of a channel and host; None if no clause matches."""
        key = channel, host
        if key not in self._by_name:
            if len(self._by_name) >= _MAX_CACHED:
                self._by_name.clear()
            match = find_settings(self.conf, channel, host)
            settings = clause_settings(match) if match.clauses else None
            self._by_name[key] = self._shared.setdefault(settings, settings) if settings else None
        return self._by_name[key]


def scheduler_niceness(conf: SchedulerConf, current: int) -> int:
    """The niceness that the scheduler itself gets: `syspriority`, or `sysnice` more than its
    `current` one. The last of the file counts."""
    niceness = current
    for clause in conf.clauses:
        for name, one in clause.settings.items():
            if name in ("sysnice", "syspriority") and isinstance(one.value, int):
                niceness = one.value if name == "syspriority" else current + one.value
    return max(-20, min(19, niceness))


def find_form(table: ClauseTable, row: Unreported) -> str:
    """The name of the form for a report that begins with this diagnostic: `expiryform` of its
    clause if the recipient has expired, else `deliveryform`.
    """
    channel, host = map(os.fsdecode, row.recipient.quad[:2])
    settings = table.find(channel, host) or ClauseSettings()
    is_expired = row.status == diagnostics.EXPIRED_STATUS.decode()
    return (is_expired and settings.expiryform) or settings.deliveryform or DELIVERY_FORM


def clause_settings(match: Match) -> ClauseSettings:
    """The settings of matching clauses, named by the last of them, which has the command."""
    values: dict[str, Any] = {name: one.value for name, one in match.settings.items()}
    copied = {name: values[name] for name in _SAME_NAMES & values.keys()}
    # The man page calls skew a leftover: threads are only rounded if the file asks for it.
    skew = values["skew"] if match.settings["skew"].line else 0
    return ClauseSettings(
        pattern=match.clauses[-1].pattern,
        skew=skew,
        expiry=values["expiry"] or None,
        idlemax=values["idlemax"],
        **copied,
    )
