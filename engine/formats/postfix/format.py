"""The format of a Postfix instance: a folder with main.cf and master.cf."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.formats.base.format import Format
from engine.override import override
from engine.policy import RetryPolicy, retries_of
from engine.schedules import fixed

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.formats.base.format import InstalledPlace, Setup
    from engine.places.place import Place
    from engine.store import Store


class PostfixFormat(Format):
    """A Postfix instance; its own queue manager delivers, and has the number of attempts."""

    name = "postfix"
    title = "a Postfix instance"
    claims = "the queue manager"
    no_destinations = "Postfix has the state of its destinations"
    has_prefixes = True
    sudo_programs = tuple(
        f"/usr/sbin/{name}" for name in ("postconf", "postqueue", "postsuper", "postcat")
    )

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
        from engine.formats.postfix.instance import open_instance
        from engine.formats.postfix.marks import Marks
        from engine.formats.postfix.server import PostfixServer
        from engine.programs.mail_store import MailStore
        from engine.programs.prefix import path_of, prefix_of

        prefix = prefix_of(setup.config, setup.address)
        instance = open_instance(path_of(setup.address), prefix)
        return MailStore(PostfixServer(instance, Marks(setup.state_folder)))

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
        return place._replace(claim_obstacle=lambda kind: "")


FORMAT = PostfixFormat()
