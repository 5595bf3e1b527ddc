"""The format of Kannader's spools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.formats.base.detect import folder_lookups, has_folders
from engine.formats.base.format import Format, Lookup, folders_apart
from engine.override import override

if TYPE_CHECKING:
    from engine.config.place_address import Address
    from engine.config.queue_config import Config, Queue
    from engine.config.validators import ConfigLocation
    from engine.doctor.finding import Finding
    from engine.formats.base.format import Setup
    from engine.formats.kannader.settings import KannaderSettings
    from engine.places.place import Place
    from engine.policy import RetryPolicy
    from engine.store import Store

KANNADER_FOLDERS = ("data", "queue", "inflight", "cleanup")
"""The folders of a Kannader spool; an nftban data folder has none of them."""

USUAL_FOLDERS = ("/var/spool/kannader", "/var/lib/kannader", "/var/lib/kannader/queue")
"""Where a spool may be: Kannader has no default. Its example is below /tmp, where any user could
make a folder for us to find."""


class KannaderFormat(Format):
    """Kannader's mail spool."""

    name = "kannader"
    title = "a Kannader spool"
    queue_settings = ("syslog",)
    commands = "kannader"
    work_command = ("kannader", "work")
    claims = "link renames"
    is_mail_server = True
    demo_places = dict.fromkeys(
        ("", "redis", "zmailer"), "engine.formats.kannader.demo:DemoMailSpool"
    )

    @override
    def detects(self, at: Address) -> bool:
        return not at.is_url and has_folders(at.text, KANNADER_FOLDERS)

    @override
    def lookups(self, config: Config, environ: Mapping[str, str]) -> Sequence[Lookup]:
        return folder_lookups(USUAL_FOLDERS, partial(has_folders, names=KANNADER_FOLDERS))

    @override
    def open(self, setup: Setup) -> Store:
        from engine.formats.kannader.store import KannaderStore

        return KannaderStore(setup.place, age=lambda at, now: setup.run_clock().age(at, now))

    @override
    def parse_settings(self, section: Any, at: ConfigLocation) -> KannaderSettings:
        from engine.formats.kannader.settings import parse_settings

        return parse_settings(section, at)

    @override
    def retry_policy(self, setup: Setup) -> RetryPolicy:
        from engine.formats.kannader.settings import retry_policy

        return retry_policy(setup.settings)

    @override
    def state_folder(self, at: Address, queue: Queue) -> str:
        return f"{at.text}/.spooldeck"

    @override
    def arrange(self, queue: Queue, at: Address, state_folder: str) -> Queue:
        pending, work, dlq = (f"{at.text}/{name}" for name in ("queue", "inflight", "cleanup"))
        apart = folders_apart(queue, at, state_folder)
        return apart._replace(pending=pending, work=work, dlq=dlq)

    @override
    def why_unworkable(self, settings: KannaderSettings) -> str:
        return settings.work_refusal

    @override
    def complete(self, setup: Setup, place: Place) -> Place:
        from engine.formats.kannader.facts import spool_facts

        return place._replace(queue_figures=lambda: spool_facts(setup))

    @override
    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        from engine.formats.kannader.doctor import check_spool

        return check_spool(setup)


FORMAT = KannaderFormat()
