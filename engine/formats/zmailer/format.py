"""The formats of ZMailer: a spool, and a scheduler that is asked by MAILQ."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.formats.base.detect import begins_with, folder_lookups, has_folders
from engine.formats.base.format import Format, InstalledPlace, Lookup
from engine.override import override
from engine.policy import RetryPolicy, retries_of
from engine.schedules import fixed
from engine.store import Unavailable

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.config.queue_config import Config, Queue
    from engine.config.validators import ConfigLocation
    from engine.doctor.finding import Finding
    from engine.formats.base.format import Setup
    from engine.places.place import Place
    from engine.store import Store

ZMAILER_FOLDERS = ("transport", "queue", "router")
"""Folders of a ZMailer spool (POSTOFFICE)."""

MAILQ_SCHEMES = frozenset({"mailq", "mailq+unix"})
"""Schemes of the URL of a ZMailer scheduler that is reached by MAILQ."""

MAILQ_DUMP_HEADER = b"version zmailer 1."
"""The first bytes of a rendezvous file: a dump of MAILQ version 1."""


def is_dump(path: str) -> bool:
    """True for a rendezvous file."""
    return begins_with(path, MAILQ_DUMP_HEADER)


class ZmailerFormat(Format):
    """ZMailer's spool (POSTOFFICE); the clause of its scheduler has the retries."""

    name = "zmailer"
    title = "a ZMailer spool"
    queue_settings = ("syslog",)
    commands = "zmailer"
    claims = "tag bytes"
    is_mail_server = True
    task_folders = ("transport", "queue")
    demo_places = {"zmailer": "engine.formats.zmailer.demo:DemoPostoffice"}

    @override
    def detects(self, at: Address) -> bool:
        return not at.is_url and has_folders(at.text, ZMAILER_FOLDERS)

    @override
    def lookups(self, config: Config, environ: Mapping[str, str]) -> Sequence[Lookup]:
        """The POSTOFFICE of zmailer.conf, and the usual one."""
        from engine.formats.zmailer.environment import DEFAULT_ENVIRONMENT, DEFAULT_POSTOFFICE

        def find_configured() -> Iterator[InstalledPlace]:
            from engine.config.queue_config import describe_distrust
            from engine.formats.zmailer.environment import find_postoffice

            is_named = zconfig != DEFAULT_ENVIRONMENT and os.path.exists(zconfig)
            if is_named and (why := describe_distrust(os.stat(zconfig), os.geteuid())):
                raise Unavailable(f"{zconfig}: ZCONFIG names it: it {why}")
            if path := find_postoffice(zconfig, environ):
                for lookup in folder_lookups([path], is_spool):
                    yield from lookup.find()

        def is_spool(path: str) -> bool:
            return has_folders(path, ZMAILER_FOLDERS)

        zconfig = environ.get("ZCONFIG") or DEFAULT_ENVIRONMENT
        return (
            Lookup(zconfig, find_configured),
            *folder_lookups([DEFAULT_POSTOFFICE], is_spool),
        )

    @override
    def open(self, setup: Setup) -> Store:
        """Open the store of a spool, with all that an operator may do there. Raises Unavailable: it
        cannot be reached."""
        from engine.formats.zmailer.scheduler.spool_watch import open_spool

        return open_spool(setup)

    @override
    def parse_settings(self, section: Any, at: ConfigLocation) -> Any:
        from engine.formats.zmailer.environment import parse_settings

        return parse_settings(section, at)

    @override
    def state_folder(self, at: Address, queue: Queue) -> str:
        return f"{at.text}/.spooldeck"

    @override
    def why_unworkable(self, settings: Any) -> str:
        return "the agents of its scheduler deliver"

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        """The place with what its scheduler knows."""
        from engine.formats.zmailer.scheduler.spool_watch import complete_place

        return complete_place(setup, place)

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        from engine.formats.zmailer.scheduler.doctor import check_spool

        return check_spool(setup)


class MailqFormat(Format):
    """A ZMailer scheduler, by its MAILQ protocol or the dump that it writes."""

    name = "mailq"
    title = "a ZMailer scheduler"
    queue_settings = ("syslog",)
    commands = "zmailer"
    no_destinations = "the scheduler has the state of its hosts"
    claims = "agents"

    @override
    def detects(self, at: Address) -> bool:
        """True for the URL of a scheduler, and for a rendezvous file."""
        return at.scheme in MAILQ_SCHEMES if at.is_url else is_dump(at.text)

    @override
    def open(self, setup: Setup) -> Store:
        from engine.formats.zmailer.mailq_store.source import parse_place
        from engine.formats.zmailer.mailq_store.store import MailqStore

        return MailqStore(parse_place(setup.address))

    @override
    def retry_policy(self, setup: Setup) -> RetryPolicy:
        """The clause of its scheduler has the retries; the limit is an age."""
        return retries_of(fixed(0.0))

    @override
    def why_unworkable(self, settings: Any) -> str:
        return "the agents of its scheduler deliver"

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        """The place; each task has the reason why its agents do not start."""
        return place._replace(claim_obstacle=lambda kind: "", server="ZMailer's scheduler")


FORMAT, MAILQ_FORMAT = ZmailerFormat(), MailqFormat()
