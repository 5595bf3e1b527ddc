"""The format of BullMQ queues, all of a server as one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.formats.base.format import Format
from engine.override import override

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.config.queue_config import Config
    from engine.config.validators import ConfigLocation
    from engine.destinations.destination import Destination, Registry
    from engine.doctor.finding import Finding
    from engine.formats.base.format import Lookup, Setup
    from engine.places.place import Place
    from engine.places.schedules import PlaceSchedules
    from engine.store import Store

REDIS_SCHEMES = frozenset(
    {"redis", "rediss", "redis+unix", "unix", "redis+sentinel", "rediss+sentinel"}
)
"""Schemes of the URL of a Redis or Valkey server; rediss is TLS."""


class BullmqFormat(Format):
    """BullMQ queues in Redis or Valkey; a job has its own attempts and delays."""

    name = "bullmq"
    title = "a server of BullMQ queues"
    queue_settings = ("rate", "run_as", "syslog")
    commands = "bullmq"
    work_command = ("bullmq", "work")
    is_delivering = True
    no_destinations = ""
    claims = "job locks"
    demo_places = {
        "redis": "engine.formats.bullmq.demo:DemoJobs",
        "federation": "engine.formats.bullmq.federation.demo:DemoDeliveries",
    }

    @override
    def detects(self, at: Address) -> bool:
        return at.scheme in REDIS_SCHEMES

    @override
    def lookups(self, config: Config, environ: Mapping[str, str]) -> Sequence[Lookup]:
        from engine.formats.bullmq.servers import server_lookups

        return server_lookups(config.places)

    @override
    def identify(self, at: Address) -> str:
        """Run id and database of a server: it has an address, a socket, and names."""
        from engine.formats.bullmq.servers import identify_database

        return identify_database(at)

    @override
    def open(self, setup: Setup) -> Store:
        from engine.formats.bullmq.place import parse_place
        from engine.formats.bullmq.store import BullmqStore

        place = parse_place(setup.address, setup.settings)
        # Kinds that our own handler delivers have the URL in their data.
        delivered = dict.fromkeys(setup.delivered, "url")
        return BullmqStore(place._replace(fields={**delivered, **place.fields}))

    @override
    def parse_settings(self, section: Any, at: ConfigLocation) -> Any:
        from engine.formats.bullmq.place import parse_settings

        return parse_settings(section, at)

    @override
    def check_config(self, config: Config) -> None:
        if config.federation is not None:
            from engine.formats.bullmq.federation.settings import parse_federation

            parse_federation(config.federation)

    @override
    def why_unworkable(self, settings: Any) -> str:
        return ""

    @override
    def probe_now(self, setup: Setup, destination: Destination) -> None:
        from engine.formats.bullmq.federation.probe_jobs import run_probe_now

        run_probe_now(setup, destination)

    @override
    def complete_registry(
        self, setup: Setup, registry: Registry, patience: float | None
    ) -> Registry:
        from engine.formats.bullmq.federation.shared_tables import with_shared_tables

        return with_shared_tables(setup, registry, patience)

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        from engine.formats.bullmq.watch import complete_place

        return complete_place(setup, place)

    @override
    def route(self, setup: Setup) -> Iterator[tuple[str, str]]:
        from engine.formats.bullmq.facts import describe_sentinels
        from engine.formats.bullmq.place import parse_place

        yield from describe_sentinels(parse_place(setup.address))

    @override
    def schedules(self, setup: Setup) -> PlaceSchedules:
        from engine.formats.bullmq.schedule_acts import ScheduleActs

        return ScheduleActs(setup).place_schedules()

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        from engine.formats.bullmq.doctor import check_server

        if (yield from check_server(setup)):
            yield from super().findings(setup)

    @override
    def check_demo(self, option: str, folder: str) -> None:
        from engine.formats.bullmq.demo import check_demo

        check_demo(option, folder)


FORMAT = BullmqFormat()
