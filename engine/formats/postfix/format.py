"""The format of a Postfix instance: a folder with main.cf and master.cf."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.formats.base.format import Format
from engine.override import override
from engine.policy import RetryPolicy, retries_of
from engine.schedules import fixed
from engine.store import Unavailable
from engine.text.times import format_time

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.config.validators import ConfigLocation
    from engine.doctor.finding import Finding
    from engine.formats.base.format import InstalledPlace, Setup
    from engine.formats.postfix.facts import LastListing
    from engine.formats.postfix.instance import Instance
    from engine.model import Task
    from engine.places.place import Place
    from engine.programs.mail_log import MailLog
    from engine.store import Store


SUDO_PROGRAMS = tuple(
    f"/usr/sbin/{name}" for name in ("postconf", "postqueue", "postsuper", "postcat")
)
"""The programs that a rule of sudo on another host must allow."""


class PostfixFormat(Format):
    """A Postfix instance; its own queue manager delivers, and has the number of attempts."""

    name = "postfix"
    title = "a Postfix instance"
    claims = "the queue manager"
    no_destinations = "Postfix has the state of its destinations"

    @override
    def detects(self, at: Address) -> bool:
        """True for postfix://NAME/PATH, and for a folder with both configuration files."""
        if at.is_url:
            return at.scheme == self.name
        return all(os.path.isfile(f"{at.text}/{name}") for name in ("main.cf", "master.cf"))

    @override
    def instances(self) -> Sequence[InstalledPlace]:
        from engine.formats.postfix.instances import find_instances

        return find_instances()

    @override
    def open(self, setup: Setup) -> Store:
        from engine.formats.postfix.marks import Marks
        from engine.formats.postfix.server import PostfixServer
        from engine.programs.mail_store import MailStore

        marks, listing = Marks(setup.state_folder), setup.settings
        return MailStore(PostfixServer(_instance_of(setup), marks, listed=listing.keep))

    @override
    def parse_settings(self, section: Any, at: ConfigLocation) -> LastListing:
        """What this process shares of a place; the configuration has no settings."""
        from engine.formats.postfix.facts import LastListing

        super().parse_settings(section, at)
        return LastListing()

    @override
    def retry_policy(self, setup: Setup) -> RetryPolicy:
        """Attempts have no number: the limit is an age."""
        return retries_of(fixed(0.0))

    @override
    def why_unworkable(self, settings: Any) -> str:
        return "Postfix delivers its own mail"

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        """The place; no worker of ours is what a message waits for."""
        from engine.formats.postfix.facts import PostfixWatch
        from engine.programs.mail_log import local_paths

        log = None
        with suppress(Unavailable):  # the store has the reason
            log = None if setup.address.is_url else self.mail_log(setup)
        watch = PostfixWatch(partial(_instance_of, setup), setup.settings)
        return place._replace(
            claim_obstacle=lambda kind: "",
            server_logs=local_paths(log),
            queue_figures=watch.figures,
        )

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        """Check prefix, rights, settings and what a listing shows; then the tasks."""
        from engine.doctor.finding import bad
        from engine.formats.postfix.facts import check_instance
        from engine.programs.mail_log import check_log
        from engine.programs.prefix import prefix_of
        from engine.programs.prefix_checks import check_prefix

        try:
            with closing(self.open(setup)) as store:
                store.count_tasks()
        except Unavailable as error:
            yield "postfix", bad(str(error))
            with suppress(Unavailable):  # an unknown name: that is the reason above
                yield from check_prefix(prefix_of(setup.config, setup.address), SUDO_PROGRAMS)
            return
        instance = _instance_of(setup)
        yield from check_prefix(instance.prefix, SUDO_PROGRAMS)
        yield from check_instance(instance, setup.settings.facts)
        yield "mail log", check_log(self.mail_log(setup))
        yield from super().findings(setup)

    @override
    def mail_log(self, setup: Setup) -> MailLog:
        """The log that the settings of the instance name.

        Raises:
            Unavailable: its settings cannot be read.
        """
        from engine.formats.postfix.log_lines import mail_log

        one = _instance_of(setup)
        return mail_log(one.settings["maillog_file"], one.settings["syslog_name"], one.prefix)

    @override
    def describe_next_tries(
        self, setup: Setup, tasks: Sequence[Task], now: float
    ) -> Mapping[str, str]:
        """The time of a message's file; the queue manager looks at it later, at its next run."""
        delay = _instance_of(setup).seconds("queue_run_delay")
        run = f"queue run each {delay:.0f}s"
        due = {one.id: one.due for one in tasks if one.due}
        by = {id: format_time(when + delay).partition(" ")[2] for id, when in due.items()}
        waiting = {one.id: "now: it is not deferred" for one in tasks if one.due == 0}
        return waiting | {
            id: f"due {format_time(when)}, tried by {by[id]} ({run})" for id, when in due.items()
        }


def _instance_of(setup: Setup) -> Instance:
    from engine.formats.postfix.instance import open_instance
    from engine.programs.prefix import path_of, prefix_of

    return open_instance(path_of(setup.address), prefix_of(setup.config, setup.address))


FORMAT = PostfixFormat()
