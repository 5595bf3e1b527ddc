"""`federation doctor`: keys, own origin and known servers; then the checks of place and outbox."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from itertools import chain

from engine.delivery.delivery_parts import open_registry
from engine.doctor.finding import Finding, Grade
from engine.formats.base.format import Setup
from engine.formats.bullmq.federation.shared_tables import settings_of
from engine.store import Unavailable
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from tui.cli.formats.bullmq import federation
from tui.cli.queue.doctor import doctor as check_place
from tui.cli.queue.doctor import print_findings


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Print the findings of all checks; the exit code says whether one needs action."""
    federation.require_packages()
    code = print_findings(chain(_check_own(setup), _check_servers(setup)), as_json=arguments.json)
    return max(code, check_place(setup, arguments))


def _check_own(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Our keys and our origin."""
    from engine.formats.bullmq.federation.envelope import fingerprint
    from engine.formats.bullmq.federation.keys import BadKeys

    settings = settings_of(setup)
    try:
        keys = federation.read_own_keys(settings)
    except BadKeys as error:
        yield "keys", Finding(Grade.BAD, safe_line(str(error)), "spooldeck federation keys")
    else:
        yield "keys", Finding(Grade.OK, f"fingerprint {fingerprint(keys.public.signing)}")
    origin = federation.own_origin(settings)
    if not origin:
        fix = f"set federation.origin, or ${federation.ORIGIN_VARIABLE} of the worker"
        yield "origin", Finding(Grade.BAD, "our own origin is not known", fix)
    else:
        unsafe = " (not encrypted)" if origin.startswith("http://") else ""
        yield (
            "origin",
            Finding(Grade.OK, f"{safe_line(origin)}{unsafe}, profile {settings.profile}"),
        )


def _check_servers(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Servers of the registry that get no deliveries and are not probed any more."""
    from engine.formats.bullmq.federation.health import OVERDUE_SECONDS
    from engine.formats.bullmq.federation.parts import keys_of

    registry = open_registry(setup.config)
    if registry is None:
        what = "no registry of destinations is configured"
        yield "servers", Finding(Grade.BAD, what, "set destinations, such as sqlite:///PATH")
        return
    with closing(registry):
        try:
            known = registry.all()
        except Unavailable:
            return  # the check of destinations reports it
    with_keys = sum(bool(keys_of(one).signing) for one in known)
    yield "servers", Finding(Grade.OK, f"{with_keys:,} servers with known keys")
    now = time.time()
    for one in known:
        if one.healthy or one.blocked:
            continue
        if one.next_probe is None:
            what = f"{one.origin}: unhealthy ({one.reason}), {one.probes} probes have failed"
            yield "servers", Finding(Grade.WARN, what, "probe it, or wait for a delivery")
        elif one.next_probe < now - OVERDUE_SECONDS:
            late = format_rough_duration(now - one.next_probe)
            what = f"{one.origin}: its probe is overdue by {late}"
            yield "servers", Finding(Grade.WARN, what, "start spooldeck federation work")
