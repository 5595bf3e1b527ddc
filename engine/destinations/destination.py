"""A destination (an origin such as https://peer.example), what it becomes after a delivery, and the
protocol of the registry, which is changed by compare-and-swap.

Nothing here reads a clock or a database. Times are epoch seconds UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

from engine.model import EMPTY
from engine.schedules import Schedule
from engine.store import Gone, Unavailable
from engine.values import NamedTuple

RECORD_SECONDS = 10.0
"""A repeated success or failure is recorded again only after so many seconds, for its fsync."""

BLOCKED_WAIT_SECONDS = 300.0
"""Seconds after which a task for a blocked destination asks again."""

NOT_PROBED_KEY = "notProbedAfter"
"""Key in `Destination.extra`: the code of the failure for which a planned probe was skipped."""

CLOCK_SKEW_SECONDS = 300.0
"""A failure that is recorded further in the future comes from a wrong clock."""


class Destination(NamedTuple):
    """The state of one destination; a value of its own per revision."""

    origin: str
    """See `origin_of`."""
    blocked: str = ""
    """Why nothing is delivered to it; "" if it is not blocked."""
    blocked_since: float | None = None
    healthy: bool = True
    reason: str = ""
    """Code of the failure that made it unhealthy, or of the last one, such as REFUSED."""
    since: float | None = None
    """Since when it is healthy or unhealthy; None: always healthy."""
    probes: int = 0
    """Probes started since it became unhealthy."""
    next_probe: float | None = None
    """None: no probe is planned."""
    last_seen: float | None = None
    """When it last answered anything."""
    last_success: float | None = None
    last_failure: float | None = None
    extra: Mapping[str, object] = EMPTY
    """Free JSON, such as the public keys of a peer."""
    rev: int = 0
    """Revision for compare-and-swap; 0: not in the registry."""

    @property
    def probe_skipped(self) -> str:
        """Why its last planned probe was not made; "" if it was, or is to come."""
        code = self.extra.get(NOT_PROBED_KEY)
        return f"not probed after {code}" if code and code == self.reason else ""


def mark_success(old: Destination, now: float) -> Destination:
    """After a delivery or a probe that was answered: healthy, and no probe is planned."""
    if old.healthy and _is_recent(old.last_success, now):
        return old
    since = old.since if old.healthy else now
    return old._replace(
        healthy=True,
        reason="",
        since=since,
        probes=0,
        next_probe=None,
        last_seen=now,
        last_success=now,
    )


def mark_failure(old: Destination, code: str, now: float, schedule: Schedule) -> Destination:
    """After a delivery that failed with a code: unhealthy, with its first probe planned.

    While a probe is planned, another failure starts no second chain of probes. Once all probes have
    failed, a further failure starts them again."""
    if not old.healthy and old.next_probe is not None and not _was_clock_wrong(old, now):
        if old.reason == code and _is_recent(old.last_failure, now):
            return old
        return old._replace(reason=code, last_failure=now)
    return old._replace(
        healthy=False,
        reason=code,
        since=now if old.healthy else old.since,
        probes=0,
        next_probe=_after(now, schedule.wait(0)),
        last_failure=now,
    )


def start_probe(old: Destination, now: float, patience: float) -> Destination | None:
    """Claim the probe that is due: swap to this value, and of two workers one succeeds.

    It counts the probe. If the worker ends before `mark_probe`, the next probe is due after
    `patience` seconds. None: no probe is due."""
    if old.healthy or old.blocked or not _is_probe_due(old, now):
        return None
    failed = min(old.last_failure or now, now)
    return old._replace(probes=old.probes + 1, next_probe=now + patience, last_failure=failed)


def mark_probe(old: Destination, code: str, now: float, schedule: Schedule) -> Destination:
    """After a counted probe: healthy if `code` is "", else the schedule's next one is planned."""
    if not code:
        return mark_success(old, now)
    planned = _after(now, schedule.wait(old.probes))
    return old._replace(healthy=False, reason=code, next_probe=planned, last_failure=now)


def mark_skipped(old: Destination) -> Destination:
    """After a probe that was due and not made, because a probe cannot end such a failure."""
    return old._replace(extra={**old.extra, NOT_PROBED_KEY: old.reason})


def restart_probes(old: Destination, now: float, schedule: Schedule) -> Destination | None:
    """Claim the one delivery that is tried once all probes have failed: swap to this value, and of
    two workers one succeeds. The others wait for the first probe of a new chain.

    None: it is healthy, a probe is planned, or the schedule has none."""
    planned = _after(now, schedule.wait(0))
    if old.healthy or old.blocked or old.next_probe is not None or planned is None:
        return None
    return old._replace(probes=0, next_probe=planned)


def block(old: Destination, reason: str, now: float) -> Destination:
    """Deliver nothing to it until it is unblocked."""
    return old._replace(blocked=reason or "by an operator", blocked_since=now)


def unblock(old: Destination) -> Destination:
    """Deliver to it again."""
    return old._replace(blocked="", blocked_since=None)


def waits_until(destination: Destination, now: float) -> float | None:
    """The circuit breaker: the time until which tasks wait; None if one may be delivered now. One
    whose probes have all failed gets one delivery again, see `restart_probes`."""
    if destination.blocked:
        return now + BLOCKED_WAIT_SECONDS
    planned = destination.next_probe
    waits = not destination.healthy and not _is_probe_due(destination, now)
    return planned if waits else None


def seconds_to_probe(destination: Destination, now: float) -> float | None:
    """Seconds until its planned probe, None without one; 0 if due, also by a wrong clock."""
    if destination.next_probe is None:
        return None
    return 0.0 if _is_probe_due(destination, now) else destination.next_probe - now


def _is_probe_due(destination: Destination, now: float) -> bool:
    planned = destination.next_probe
    return planned is not None and (planned <= now or _was_clock_wrong(destination, now))


def _was_clock_wrong(destination: Destination, now: float) -> bool:
    """True after a failure in the future: then the time that was planned for a probe is wrong."""
    return (destination.last_failure or 0.0) > now + CLOCK_SKEW_SECONDS


def _after(now: float, wait: float | None) -> float | None:
    return None if wait is None else now + wait


def _is_recent(moment: float | None, now: float) -> bool:
    return moment is not None and 0 <= now - moment < RECORD_SECONDS


_DEFAULT_PORTS = {"http": 80, "https": 443}

_is_name = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*").fullmatch
_is_number = re.compile(r"[0-9]+|0x[0-9a-f]*").fullmatch
"""The last label of an IPv4 address, in any form of inet_aton(3) such as 127.1 or 0x7f.1."""
_has_control = re.compile(r"[\x00-\x1f\x7f]").search


@lru_cache(4096)
def normal_host(host: str) -> str:
    """The one spelling of a host, without brackets: a name in lower case and ASCII without a dot at
    its end, an IPv4 address as four decimal numbers, also in IPv6 (::ffff:0:0/96), any other IPv6
    address as in RFC 5952.

    Raises:
        ValueError: it is no host, or a name that IDNA 2003 and IDNA 2008 read differently."""
    import ipaddress  # both slow to load, as below
    import socket

    text = host.lower().removesuffix(".")
    if ":" in text and "%" not in text:
        address = ipaddress.IPv6Address(text)
        return str(address.ipv4_mapped or address.compressed)
    name = text if text.isascii() else text.encode("idna").decode()
    if not _is_name(name) or (name != text and name.encode().decode("idna") != text):
        raise ValueError(f"expected a host name or an address, not {host[:80]!r}")
    if not _is_number(name.rpartition(".")[2]):
        return name
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except OSError:
        raise ValueError(f"expected an IPv4 address, not {host[:80]!r}") from None


def origin_of(url: str) -> str:
    """The origin of a URL, as `scheme://host[:port]` with its `normal_host`, without the default
    port. Registry, blocks, ids of probes and the HTTP client use this one spelling.

    Raises:
        ValueError: it is no http or https URL with a host and a port from 1 to 65535."""
    from urllib.parse import urlsplit  # slow to load, and not every worker delivers

    parts = urlsplit(url)
    # urlsplit ignores tabs and ends of lines, which would hide another host.
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or _has_control(url):
        raise ValueError("expected a URL that begins with http://HOST or https://HOST")
    port = parts.port  # raises ValueError above 65535
    if port == 0:
        raise ValueError("expected a port from 1 to 65535, not 0")
    host = normal_host(parts.hostname)
    name = f"[{host}]" if ":" in host else host
    port_suffix = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{name}{port_suffix}"


class Registry(Protocol):
    """Destinations by origin. Any thread may call it; each call may block for some seconds.

    Each method raises Unavailable, with one line, if the registry is locked, missing, read-only,
    damaged or unreachable."""

    def get(self, origin: str) -> Destination:
        """The destination of an origin; a healthy one with `rev` 0 if it is not registered."""

    def all(self) -> list[Destination]:
        """All destinations, by origin."""

    def swap(self, old: Destination | None, new: Destination | None) -> Destination:
        """Replace `old` by `new` if its revision is unchanged; return `new` with its new revision.

        An `old` of None, or with `rev` 0, is added; a `new` of None is deleted, and the answer is
        then the unregistered destination.

        Raises:
            Gone: it has changed, or is registered already; nothing changed."""

    def count_probe(self, origin: str) -> int:
        """Add 1 to the probes in one statement; return the number. `Gone`: not registered."""

    def extra_with(self, key: str, value: object) -> list[Destination]:
        """The destinations whose free JSON has this value for this key."""

    def close(self) -> None:
        """Close the connections."""


MAX_TRIES = 20
"""Compare-and-swaps after which `update` gives up."""


def update(
    registry: Registry, origin: str, change: Callable[[Destination], Destination]
) -> Destination:
    """Apply a change to the newest revision, again while another worker is faster; write nothing if
    it changes nothing. Raises `Unavailable`: see `Registry`, or others changed it each time."""
    for _ in range(MAX_TRIES):
        old = registry.get(origin)
        new = change(old)
        if new == old:
            return old
        try:
            return registry.swap(old, new)
        except Gone:
            continue
    raise Unavailable(f"{origin}: changed by others {MAX_TRIES} times, try again later")
