"""The format of NFTBan's queues, our engine's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.config import queue_config
from engine.formats.base.detect import folder_lookups
from engine.formats.base.format import Format, Lookup
from engine.formats.nftban.detect import has_queue_folders
from engine.override import override

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.config.queue_config import Config, Queue
    from engine.doctor.finding import Finding
    from engine.formats.base.format import Setup
    from engine.model import LockEvidence
    from engine.places.place import Place
    from engine.policy import RetryPolicy
    from engine.store import Store


class NftbanFormat(Format):
    """The NFTBan queue and mail contract."""

    name = "nftban"
    title = "an NFTBan queue"
    init_command = "init"
    commands = "queue"
    work_command = ("queue", "work")
    has_lock = True
    mail_parts = ("transports", "mail spool")
    no_destinations = ""
    demo_places = dict.fromkeys(
        ("", "redis", "federation", "zmailer"), "engine.formats.nftban.demo:DemoQueues"
    )

    @override
    def detects(self, at: Address) -> bool:
        # A path that no format detects is opened by this one too: its error says what was expected.
        return not at.is_url and has_queue_folders(at.text)

    @override
    def lookups(self, config: Config, environ: Mapping[str, str]) -> Sequence[Lookup]:
        """The data folder of the settings, /var/lib/nftban without any."""
        root = queue_config.queue_settings_for(config, "", environ).root
        return folder_lookups([root], has_queue_folders)

    @override
    def has_queue(self, path: str) -> bool:
        return has_queue_folders(path)

    @override
    def open(self, setup: Setup) -> Store:
        from engine.formats.nftban.queue_folders import open_spool

        return open_spool(setup)

    @override
    def retry_policy(self, setup: Setup) -> RetryPolicy:
        return queue_config.retry_policy(setup.queue)

    @override
    def state_folder(self, at: Address, queue: Queue) -> str:
        return f"{os.path.dirname(queue.pending)}/.spooldeck"

    @override
    def arrange(self, queue: Queue, at: Address, state_folder: str) -> Queue:
        return queue  # the configuration and NFTBan's variables name its folders

    @override
    def why_unworkable(self, settings: Any) -> str:
        return ""

    @override
    def make_queue(self, setup: Setup) -> None:
        from engine.formats.nftban.queue_folders import make_queue

        make_queue(setup)

    @override
    def examine_lock(self, setup: Setup) -> LockEvidence:
        from engine.formats.nftban.queue_folders import examine_lock

        return examine_lock(setup)

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        from engine.formats.nftban.queue_folders import complete_place

        return complete_place(setup, place)

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        from engine.formats.nftban.doctor.run import check_queue

        return check_queue(setup)


FORMAT = NftbanFormat()
