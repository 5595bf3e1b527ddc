"""The format of ZGB's mail queues in SQLite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.formats.base.detect import begins_with
from engine.formats.base.format import Format, folders_apart
from engine.override import override
from engine.system import files

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.config.queue_config import Queue
    from engine.config.validators import ConfigLocation
    from engine.doctor.finding import Finding
    from engine.formats.base.format import Setup
    from engine.formats.zgb.place import ZgbSettings
    from engine.places.place import Place
    from engine.policy import RetryPolicy
    from engine.store import Store

SQLITE_HEADER = b"SQLite format 3\0"
"""The first bytes of every SQLite 3 database."""


class ZgbFormat(Format):
    """The mail queue in ZGB's database."""

    name = "zgb"
    title = "a ZGB mail queue"
    queue_settings = ("place_label", "syslog")
    suffixes = (".db", ".sqlite", ".sqlite3")
    init_command = "zgb init"
    commands = "zgb"
    work_command = ("zgb", "work", "--loop")
    mail_parts = ("transports",)
    demo_places = dict.fromkeys(
        ("", "redis", "zmailer"), "engine.formats.zgb.demo:DemoRegistrations"
    )

    @override
    def detects(self, at: Address) -> bool:
        """True for the path of a SQLite database."""
        return not at.is_url and begins_with(at.text, SQLITE_HEADER)

    @override
    def open(self, setup: Setup) -> Store:
        """Open a store that logs as ZGB's worker does. Raises Unavailable: it cannot be reached."""
        from engine.formats.zgb.queue_place import open_logged

        return open_logged(setup)

    @override
    def parse_settings(self, section: Any, at: ConfigLocation) -> ZgbSettings:
        from engine.formats.zgb.place import parse_settings

        return parse_settings(section, at)

    @override
    def retry_policy(self, setup: Setup) -> RetryPolicy:
        """The retries of its settings."""
        policy: RetryPolicy = setup.settings.place("").retry
        return policy

    @override
    def state_folder(self, at: Address, queue: Queue) -> str:
        """One folder per database, found by each link to it: its workers share a lock there."""
        return f"{files.real_path(at.text)}.spooldeck.d"

    @override
    def arrange(self, queue: Queue, at: Address, state_folder: str) -> Queue:
        """The folder of the database for all its mails, all our own files apart."""
        folder = os.path.dirname(files.real_path(at.text))
        root = os.path.dirname(at.text)
        apart = folders_apart(queue, at, state_folder)
        return apart._replace(root=root, pending=folder, work=folder, dlq=folder)

    @override
    def why_unworkable(self, settings: ZgbSettings) -> str:
        return settings.work_refusal

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        """The place with the facts about it, its tokens and its logs."""
        from engine.formats.zgb.queue_place import complete_place

        return complete_place(setup, place)

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        from engine.formats.zgb.doctor import check_queue

        return check_queue(setup)


FORMAT = ZgbFormat()
