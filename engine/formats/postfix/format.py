"""The format of a Postfix instance: a folder with main.cf and master.cf."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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


class PostfixFormat(Format):
    """A Postfix instance; its own queue manager delivers, and has the number of attempts."""

    name = "postfix"
    title = "a Postfix instance"
    queue_settings = ("syslog",)
    claims = "the queue manager"
    is_mail_server = True
    no_destinations = "Postfix has the state of its destinations"

    @override
    def detects(self, at: Address) -> bool:
        """True for postfix://NAME/PATH, and for a folder with both configuration files."""
        if at.is_url:
            return at.scheme == self.name
        return all(os.path.isfile(f"{at.text}/{name}") for name in ("main.cf", "master.cf"))

    @override
    def lookups(self, config: Config, environ: Mapping[str, str]) -> Sequence[Lookup]:
        def find() -> Sequence[InstalledPlace]:
            from engine.formats.postfix.instances import find_instances

            return find_instances()

        return (Lookup("postmulti -l", find),)

    @override
    def open(self, setup: Setup) -> Store:
        from engine.formats.postfix.place import open_store

        return open_store(setup)

    @override
    def parse_settings(self, section: Any, at: ConfigLocation) -> Any:
        """There are none to parse; the value has what this process shares of a place."""
        from engine.formats.postfix.place import parse_settings

        return parse_settings(super().parse_settings(section, at))

    @override
    def retry_policy(self, setup: Setup) -> RetryPolicy:
        """Attempts have no number: the limit is an age."""
        return retries_of(fixed(0.0))

    @override
    def why_unworkable(self, settings: Any) -> str:
        return "Postfix delivers its own mail"

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        """The place with the facts of its instance."""
        from engine.formats.postfix.place import complete_place

        return complete_place(setup, place)

    @override
    def mail_log(self, setup: Setup) -> MailLog:
        """The log that the settings of the instance name.

        Raises:
            Unavailable: its settings cannot be read.
        """
        from engine.formats.postfix.place import find_log

        return find_log(setup)

    @override
    def describe_next_tries(
        self, setup: Setup, tasks: Sequence[Task], now: float
    ) -> Mapping[str, str]:
        """The time of a message's file; the queue manager looks at it later, at its next run."""
        from engine.formats.postfix.place import describe_next_tries

        return describe_next_tries(setup, tasks)

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        from engine.formats.postfix.place import check_place

        if (yield from check_place(setup)):
            yield from super().findings(setup)


FORMAT = PostfixFormat()
