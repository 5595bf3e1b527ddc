"""What a parsed scheduler.conf means for the scheduler: the settings of its threads, its socket for
MAILQ; why an agent of a clause cannot be started on this host; what a new file would change."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from engine.formats.zmailer import diagnostics
from engine.formats.zmailer.diagnostics import Unreported
from engine.formats.zmailer.mailq.server import DEFAULT_PORT, LOOPBACK
from engine.formats.zmailer.scheduling.agent_process import agent_account, agent_program
from engine.formats.zmailer.scheduling.jobs import ClauseSettings
from engine.formats.zmailer.spool.scheduler_conf import (
    Match,
    Remark,
    SchedulerClause,
    SchedulerConf,
    Setting,
    Value,
    find_settings,
)
from engine.store import Unavailable
from engine.system.supervisor import CannotRun
from engine.text import decode
from engine.values import NamedTuple

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
    clause if the recipient has expired, else `deliveryform`."""
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


def format_value(value: Value) -> str:
    """The value of a setting, about as the file has it."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "on" if value is True else str(value)


def conf_changes(old: SchedulerConf, new: SchedulerConf) -> Iterator[str]:
    """Yield a line for each clause or PARAM that was added, removed or changed; none if both mean
    the same."""
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


def why_undeliverable(
    match: Match, channel: str, host: str, environ: Mapping[str, str], folder: str
) -> str:
    """Why no agent can be started for a channel and host; "" if one can. `environ` has the values
    of zmailer.conf, `folder` is transport/, in which agents work."""
    if not match.clauses:
        return "no clause of scheduler.conf matches"
    if "command" not in match.settings:
        return f"its clause {match.clauses[-1].pattern} has no command"
    user, group, command = (
        str(match.settings[name].value) for name in ("user", "group", "command")
    )
    try:
        agent_account(user, group)
    except CannotRun as error:
        return str(error)
    return _why_no_program(command, channel, host, environ, folder)


def _why_no_program(
    command: str, channel: str, host: str, environ: Mapping[str, str], folder: str
) -> str:
    words = [word for word in command.split() if "=" not in word]
    if "MAILBIN" not in environ and words and "/" not in words[0]:
        return ""  # no zmailer.conf here: its folder is not known
    try:
        program = agent_program(command, channel, host, environ, None).argv[0]
    except CannotRun as error:
        return str(error)
    path = os.path.join(folder, program)
    if not os.path.isfile(path):
        return f"{program}: no such program"
    return "" if os.access(path, os.X_OK) else f"{program}: is not executable"


def host_warnings(conf: SchedulerConf, environ: Mapping[str, str]) -> Iterator[Remark]:
    """A warning for each command whose program is not on this host."""
    for clause in conf.clauses:
        command = clause.settings.get("command")
        if command is None:
            continue
        if why := _why_no_program(str(command.value), "CHANNEL", "HOST", environ, "/"):
            yield Remark(command.line, 1, f"{clause.pattern}: never delivered on this host: {why}")


class MailqSocket(NamedTuple):
    """Where a scheduler serves MAILQ: a UNIX socket, or a TCP port."""

    path: str = ""
    """"" for TCP."""
    host: str = ""
    """An IP address; "" for a UNIX socket."""
    port: int = 0


def find_mailq_socket(conf: SchedulerConf, environ: Mapping[str, str]) -> MailqSocket:
    """The socket by PARAMmailqsock, `UNIX:/PATH`, `/PATH`, or `TCP:` with a port or a service
    (/etc/services). A port is on the address BINDADDR of zmailer.conf, by default only on the
    loopback one. Raises Unavailable: service or address are not known."""
    param = str(conf.params["mailqsock"].value) if "mailqsock" in conf.params else ""
    kind, colon, location = param.partition(":")
    if param.startswith("/") or kind.upper() == "UNIX":
        return MailqSocket(param if param.startswith("/") else location)
    word = location if colon else str(DEFAULT_PORT)
    try:
        port = decode.parse_digits(word, 65_535) or socket.getservbyname(word, "tcp")
    except OSError:
        raise Unavailable(f"mailqsock {param}: expected a path, or TCP: and a port") from None
    address = environ.get("BINDADDR", "")
    host = re.sub(r"(?i)^\[(?:ipv6[:.])?(.*)\]$", r"\1", address)  # ZMailer writes [192.0.2.1]
    try:
        return MailqSocket("", str(ipaddress.ip_address(host or LOOPBACK)), port)
    except ValueError:
        raise Unavailable(f"BINDADDR {address}: expected an IP address") from None
