"""The format of an Exim spool: a folder with input, msglog and db, or exim://NAME/SPOOL with the
prefix NAME."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.formats.base.detect import has_folders
from engine.formats.base.format import Format, InstalledPlace, Lookup
from engine.override import override
from engine.policy import RetryPolicy, retries_of
from engine.schedules import fixed

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.config.queue_config import Config
    from engine.config.validators import ConfigLocation
    from engine.doctor.finding import Finding
    from engine.formats.base.format import Setup
    from engine.model import Task
    from engine.places.place import Place
    from engine.programs.mail_log import MailLog
    from engine.store import Store

SPOOL_FOLDERS = ("input", "msglog", "db")
SPOOL_NAMES = ("exim", "exim4")
"""Names of spools that a normal user cannot look into."""


class EximFormat(Format):
    """The spool of an Exim; it delivers by itself."""

    name = "exim"
    title = "an Exim spool"
    queue_settings = ("syslog",)
    claims = "Exim's locks"
    is_mail_server = True
    no_destinations = "Exim has the retry times of its hosts"

    @override
    def detects(self, at: Address) -> bool:
        """True for its URL, for a spool, and for a closed folder that is named like one."""
        if at.is_url:
            return at.scheme == "exim"
        if has_folders(at.text, SPOOL_FOLDERS):
            return True
        is_named = os.path.basename(at.text) in SPOOL_NAMES and os.path.isdir(at.text)
        return is_named and not os.access(at.text, os.R_OK | os.X_OK)

    @override
    def lookups(self, config: Config, environ: Mapping[str, str]) -> Sequence[Lookup]:
        def find() -> Sequence[InstalledPlace]:
            from engine.formats.exim.instances import find_instances

            return find_instances()

        return (Lookup("exim -bP spool_directory", find),)

    @override
    def open(self, setup: Setup) -> Store:
        from engine.formats.exim.place import open_store

        return open_store(setup)

    @override
    def parse_settings(self, section: Any, at: ConfigLocation) -> Any:
        from engine.formats.exim.place import parse_settings

        return parse_settings(section, at)

    @override
    def retry_policy(self, setup: Setup) -> RetryPolicy:
        """Attempts have no number: the limit of a retry rule is an age."""
        return retries_of(fixed(0.0))

    @override
    def why_unworkable(self, settings: Any) -> str:
        return "Exim delivers its own mail"

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        """The place with the facts of its Exim."""
        from engine.formats.exim.place import complete_place

        return complete_place(setup, place)

    @override
    def mail_log(self, setup: Setup) -> MailLog | None:
        from engine.formats.exim.place import find_log

        return find_log(setup)

    @override
    def describe_next_tries(
        self, setup: Setup, tasks: Sequence[Task], now: float
    ) -> Mapping[str, str]:
        from engine.formats.exim.place import describe_next_tries

        return describe_next_tries(setup, tasks)

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        from engine.formats.exim.place import check_place

        if (yield from check_place(setup)):
            yield from super().findings(setup)


FORMAT = EximFormat()
