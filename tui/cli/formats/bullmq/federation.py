"""`federation work`, `enqueue`, `keys`: deliveries to other servers by two BullMQ queues. `doctor`:
keys, own origin and known servers, then the checks of place and outbox."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING

from engine.delivery.delivery_parts import open_registry
from engine.doctor.finding import Finding, bad, ok, warn
from engine.formats.base.format import Setup
from engine.formats.bullmq.federation.probe_jobs import JobAdder, add_probe
from engine.formats.bullmq.federation.settings import FederationConfig
from engine.formats.bullmq.federation.shared_tables import (
    application_database,
    settings_of,
    shared_tables,
)
from engine.formats.bullmq.place import RedisPlace, parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.store import StoreError, Unavailable
from engine.system import files
from engine.system.command_errors import (
    EX_CONFIG,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    print_error,
    print_result,
)
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.work.handlers import Handler
from engine.work.services import WorkerServices
from tui.cli.formats.bullmq.worker import FORMAT, run_worker
from tui.cli.queue.doctor import doctor as check_place
from tui.cli.queue.doctor import print_findings
from tui.cli.queue.run_records import print_run
from tui.cli.setup.output import Answer
from tui.text.task_row import added_line

if TYPE_CHECKING:
    from engine.destinations.destination import Destination, Registry
    from engine.formats.bullmq.federation.keys import OwnKeys
    from engine.formats.bullmq.federation.parts import FederationParts
    from engine.formats.bullmq.federation.profile import Policy


ORIGIN_VARIABLE = "BETTER_AUTH_URL"
"""Environment variable with our own origin, as Sipher reads it."""
PROGRAM_TIMEOUT_SECONDS = 120.0
"""Longest time of a delivery: discovery, direct attempt, sweep and relay."""
INSTALL = "pip install 'spooldeck[federation]'"


def require_packages() -> None:
    """Refuse a command without the packages of the federation."""
    if missing := [name for name in ("cryptography", "nacl", "httpx") if find_spec(name) is None]:
        fail(EX_CONFIG, f"federation: {' and '.join(missing)} not installed: {INSTALL}")


def read_own_keys(settings: FederationConfig) -> OwnKeys:
    """Our keys, from the configured folder or the environment.

    Raises:
        BadKeys: they cannot be used.
    """
    from engine.formats.bullmq.federation.keys import read_keys

    return read_keys(os.environ, settings.keys)


# ---- work


def work(setup: Setup, *, until_idle: bool, json: bool) -> int:
    """Run deliveries and probes until a signal."""
    setup.require_format(FORMAT, "a server of BullMQ queues")
    require_packages()
    from engine.formats.bullmq.federation.jobs import SLOTS

    run = run_worker(
        setup,
        partial(_handlers, setup),
        slots=SLOTS,
        timeouts=dict.fromkeys(SLOTS, PROGRAM_TIMEOUT_SECONDS),
        until_idle=until_idle,
    )
    return print_run(run, as_json=json)


def _handlers(
    setup: Setup, store: BullmqStore, services: WorkerServices, stack: ExitStack
) -> Mapping[str, Handler]:
    from engine.destinations.database import SqlDatabase
    from engine.destinations.outbox import Outbox
    from engine.formats.bullmq.federation.delivery import DeliveryHandler
    from engine.formats.bullmq.federation.health import ProbeHandler, plan_missing_probes
    from engine.formats.bullmq.federation.jobs import DELIVERY_QUEUE, HEALTH_QUEUE
    from engine.formats.bullmq.federation.shared_tables import SqlFollows

    parts = _parts(setup, store.place, services.log, stack)
    config, settings = setup.config, settings_of(setup)
    outbox, address = None, application_database(setup)
    if config.outbox is not None:
        outbox = Outbox(config.outbox)
        stack.callback(outbox.close)
    if settings.follows and address is not None:
        database = stack.enter_context(closing(SqlDatabase(address)))
        parts = parts._replace(follows=SqlFollows(database, settings.follows))
    try:
        plan_missing_probes(parts)
    except StoreError as error:
        services.log("WARN", f"Probes not checked: {error}")
    return {DELIVERY_QUEUE: DeliveryHandler(parts, outbox), HEALTH_QUEUE: ProbeHandler(parts)}


def _parts(
    setup: Setup, place: RedisPlace, log: Callable[[str, str], None], stack: ExitStack
) -> FederationParts:
    from engine.delivery.http_client import HttpClient, trusted_certificates
    from engine.delivery.url_guard import UrlGuard
    from engine.destinations.destination import origin_of
    from engine.formats.bullmq.federation.keys import BadKeys
    from engine.formats.bullmq.federation.parts import PROBES, FederationParts
    from engine.formats.bullmq.federation.profile import PROFILES
    from engine.formats.bullmq.federation.shared_tables import SharedRegistry

    settings = settings_of(setup)
    registry = open_registry(setup.config, creates=True)
    if registry is None:
        fail(EX_CONFIG, "federation: needs destinations, such as sqlite:///PATH")
    stack.callback(registry.close)
    try:
        keys = read_own_keys(settings)
    except BadKeys as error:
        why = safe_line(str(error))
        fail(EX_CONFIG, f"federation: {why}: see spooldeck federation keys --help")
    origin = own_origin(settings)
    if not origin:
        print_error(f"federation: neither federation.origin nor ${ORIGIN_VARIABLE} is set")
    else:
        try:
            origin_of(origin)
        except ValueError as error:
            fail(EX_CONFIG, f"federation: our own origin {safe_line(origin)}: {error}")
    try:
        tls = trusted_certificates(settings.ca_file)
    except OSError as error:
        fail(EX_CONFIG, f"federation.ca_file: {settings.ca_file}: {error}")
    client = HttpClient(UrlGuard(settings.allow), tls)
    stack.callback(client.close)
    adder = JobAdder(place)
    stack.callback(adder.close)
    shared = shared_tables(setup)
    if shared is not None:
        stack.callback(shared.close)
    return FederationParts(
        keys,
        origin,
        registry if shared is None else SharedRegistry(registry, shared),
        send=client.send,
        add_probe=partial(add_probe, adder),
        profile=PROFILES[settings.profile],
        policies=policies_of(settings),
        probes=settings.probes or PROBES,
        gates=settings.breaker,
        log=log,
        shared=shared,
    )


def own_origin(settings: FederationConfig) -> str:
    """Our own origin; "" if it is not known."""
    return settings.origin or os.environ.get(ORIGIN_VARIABLE, "").strip().rstrip("/")


def policies_of(settings: FederationConfig) -> Mapping[str, Policy]:
    """The policies of error codes, with those of the configuration."""
    from engine.formats.bullmq.federation.profile import POLICIES

    policies = dict(POLICIES)
    for code, changes in settings.policies.items():
        if code not in POLICIES:
            fail(EX_CONFIG, f"federation.policies.{code}: expected one of {', '.join(POLICIES)}")
        policies[code] = POLICIES[code]._replace(**changes)
    return policies


# ---- enqueue


def enqueue(
    setup: Setup, server: str, name: str, *, json: bool, payload: str, path: str, row: str
) -> int:
    """Add a delivery and print its id."""
    setup.require_format(FORMAT, "a server of BullMQ queues")
    require_packages()
    from engine.destinations.destination import origin_of
    from engine.formats.bullmq.federation.jobs import PATHS, BadJob, delivery_job, parse_method

    server = server.rstrip("/")
    if payload == "-":
        payload = sys.stdin.read().strip()
    try:
        origin = origin_of(server)
        parse_method(payload)
    except (BadJob, ValueError) as error:
        fail(EX_USAGE, str(error))
    path = path or PATHS.get(name, "")
    if not path.startswith("/"):
        fail(EX_USAGE, f"--path: expected /PATH at {safe_line(origin)}")
    job = delivery_job(name, server, f"{server}{path}", payload, row)
    with closing(JobAdder(parse_place(setup.address, setup.settings))) as adder:
        try:
            task = adder.add(job)
        except Unavailable:
            raise
        except StoreError as error:
            fail(EX_UNAVAILABLE, str(error))
    code = print_result(added_line(task) if json else task.id)
    setup.log_if_allowed("INFO", f"Task queued: {task.id} ({task.kind})")
    return code


# ---- keys


def keys(setup: Setup, *, forget: str) -> Answer | int:
    """Print public keys and fingerprints; make ours if there are none in the configured folder."""
    require_packages()
    from engine.formats.bullmq.federation.envelope import fingerprint
    from engine.formats.bullmq.federation.keys import ENCRYPTION_PUBLIC, PUBLIC, BadKeys
    from engine.formats.bullmq.federation.parts import keys_of

    registry = open_registry(setup.config)
    with closing(registry) if registry is not None else nullcontext():
        if forget:
            return _forget(registry, forget)
        try:
            public = _own_keys(settings_of(setup)).public
        except BadKeys as error:
            fail(EX_CONFIG, str(error))
        known: Sequence[Destination] = []
        unread = None
        try:
            known = [] if registry is None else registry.all()
        except Unavailable as error:
            unread = error
    servers = {}
    for one in known:
        with suppress(ValueError):  # a key of another form: none that is used
            servers[one.origin] = fingerprint(keys_of(one).signing)
    public_keys, own = (
        dict(zip((PUBLIC, ENCRYPTION_PUBLIC), public, strict=True)),
        fingerprint(public.signing),
    )

    def values() -> dict[str, object]:
        if unread is not None:
            raise unread
        return {"keys": public_keys, "fingerprint": own, "servers": servers}

    def lines() -> Iterator[str]:
        yield from (f"{name}={key}" for name, key in public_keys.items())
        yield f"fingerprint {own}"
        if unread is not None:
            print_error(str(unread))
        yield from (f"{safe_line(origin)} {mark}" for origin, mark in servers.items())

    return Answer(values, lines)


def _own_keys(settings: FederationConfig) -> OwnKeys:
    from engine.formats.bullmq.federation.keys import make_keys, write_keys

    if settings.keys and _is_empty(settings.keys):
        try:
            write_keys(settings.keys, make_keys())
        except OSError as error:
            where = safe_line(error.filename or settings.keys)
            fail(EX_UNAVAILABLE, f"{where}: {error_text(error)}")
        print_error(f"new keys made in {safe_line(settings.keys)}")
    return read_own_keys(settings)


def _is_empty(folder: str) -> bool:
    """True if there are no keys, once what a killed process has left is finished."""
    from engine.formats.bullmq.federation.keys import finish_keys

    try:
        finish_keys(folder)
        return not files.list_names(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # the reader of the keys says why


def _forget(registry: Registry | None, server: str) -> int:
    """Forget the keys of a server, so that its new ones are learned with the next delivery."""
    from engine.destinations.destination import origin_of, update
    from engine.formats.bullmq.federation.envelope import fingerprint
    from engine.formats.bullmq.federation.keys import ENCRYPTION, SIGNING
    from engine.formats.bullmq.federation.parts import keys_of

    if registry is None:
        fail(EX_CONFIG, "federation: needs destinations, such as sqlite:///PATH")
    try:
        origin = origin_of(server)
        old = fingerprint(keys_of(registry.get(origin)).signing)
    except ValueError:
        fail(EX_USAGE, f"--forget {safe_line(server)}: expected a server with known keys")
    update(
        registry,
        origin,
        lambda one: one._replace(
            extra={k: v for k, v in one.extra.items() if k not in (SIGNING, ENCRYPTION)}
        ),
    )
    print_result(f"{origin} {old} forgotten")
    return 0


def doctor(setup: Setup, *, json: bool) -> int:
    """Print the findings of all checks; the exit code says whether one needs action."""
    require_packages()
    code = print_findings(chain(_check_own(setup), _check_servers(setup)), as_json=json)
    return max(code, check_place(setup, json=json))


def _check_own(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Our keys and our origin."""
    from engine.formats.bullmq.federation.envelope import fingerprint
    from engine.formats.bullmq.federation.keys import BadKeys

    settings = settings_of(setup)
    try:
        keys = read_own_keys(settings)
    except BadKeys as error:
        yield "keys", bad(safe_line(str(error)), "spooldeck federation keys")
    else:
        yield "keys", ok(f"fingerprint {fingerprint(keys.public.signing)}")
    origin = own_origin(settings)
    if not origin:
        fix = f"set federation.origin, or ${ORIGIN_VARIABLE} of the worker"
        yield "origin", bad("our own origin is not known", fix)
    else:
        unsafe = " (not encrypted)" if origin.startswith("http://") else ""
        yield "origin", ok(f"{safe_line(origin)}{unsafe}, profile {settings.profile}")


def _check_servers(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Servers of the registry that get no deliveries and are not probed any more."""
    from engine.formats.bullmq.federation.health import OVERDUE_SECONDS
    from engine.formats.bullmq.federation.parts import keys_of

    registry = open_registry(setup.config)
    if registry is None:
        what = "no registry of destinations is configured"
        yield "servers", bad(what, "set destinations, such as sqlite:///PATH")
        return
    with closing(registry):
        try:
            known = registry.all()
        except Unavailable:
            return  # the check of destinations reports it
    with_keys = sum(bool(keys_of(one).signing) for one in known)
    yield "servers", ok(f"{with_keys:,} servers with known keys")
    now = time.time()
    for one in known:
        if one.healthy or one.blocked:
            continue
        if one.next_probe is None:
            what = f"{one.origin}: unhealthy ({one.reason}), {one.probes} probes have failed"
            yield "servers", warn(what, "probe it, or wait for a delivery")
        elif one.next_probe < now - OVERDUE_SECONDS:
            late = format_rough_duration(now - one.next_probe)
            what = f"{one.origin}: its probe is overdue by {late}"
            yield "servers", warn(what, "start spooldeck federation work")
