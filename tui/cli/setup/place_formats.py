"""The table of formats, and the `Setup` of a place in any of them.

Each format is one row of `FORMATS`. Commands use `Setup.store` and the fields of a `Queue`; for the
other programs' formats the folders of logs and metrics are below our own folder, where the other
program never looks.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from engine.config.queue_config import Config, Queue, queue_settings_for
from engine.policy import RetryPolicy
from engine.store import Store
from engine.stores import detect
from engine.system import files
from tui.cli.setup.format import ForeignFormat, ForeignPlace
from tui.cli.setup.setup import Setup

if TYPE_CHECKING:
    from engine.stores.zgb import ZgbStore
    from engine.stores.zgb.place import ZgbSettings


def _kannader_settings(said: Any, at: Any) -> Any:
    from engine.stores.kannader import settings

    return settings.parse_settings(said, at)


def _kannader(path: str, settings: Any) -> Store:
    from engine.stores.kannader import KannaderStore

    return KannaderStore(path)


def _kannader_retry(settings: Any) -> RetryPolicy:
    from engine.stores.kannader.settings import retry_policy

    return retry_policy(settings)


def _zgb_settings(said: Any, at: Any) -> Any:
    from engine.stores.zgb import place

    return place.parse_settings(said, at)


def _zgb(path: str, settings: Any) -> Store:
    return open_zgb(path, settings)


def open_zgb(path: str, settings: ZgbSettings) -> ZgbStore:
    """Open a ZGB store that logs its changes to the queue's log, like the ZGB worker.

    Raises:
        Unavailable: it cannot be reached.
    """
    from engine.stores.zgb import ZgbStore
    from engine.stores.zgb.log import Log, find_log

    where = find_log(settings.log, path, os.environ, os.getcwd())
    # A line that cannot be written is in the journal too, and a screen has no room for it.
    log = Log(where.path, secrets.token_hex(4), path, time.time, lambda text: None)
    return ZgbStore(settings.place(path), tell=log.write)


FORMATS: Mapping[str, ForeignFormat] = {
    detect.KANNADER: ForeignFormat(
        "a Kannader spool",
        _kannader_settings,
        _kannader,
        state_folder=lambda path: f"{path}/.spooldeck",
        required_folders=lambda path: (f"{path}/queue", f"{path}/inflight", f"{path}/cleanup"),
        work_command=("kannader", "work"),
        retry_policy=_kannader_retry,
        why_unworkable=lambda settings: settings.work_refusal,
        doctor="formats.kannader_doctor:doctor",
        facts="formats.kannader:spool_facts",
    ),
    detect.ZGB: ForeignFormat(
        "a ZGB mail queue",
        _zgb_settings,
        _zgb,
        # One folder per database, whatever link leads to it: its workers share a lock there.
        state_folder=lambda path: f"{files.real_path(path)}.spooldeck.d",
        required_folders=lambda path: (os.path.dirname(files.real_path(path)),) * 3,
        work_command=("zgb", "work", "--loop"),
        retry_policy=lambda settings: settings.place("").retry,
        why_unworkable=lambda settings: settings.work_refusal,
        doctor="formats.zgb_doctor:doctor",
        facts="formats.zgb:queue_facts",
        tokens="formats.zgb:queue_tokens",
        why_paused="formats.zgb:queue_shut",
        logs="formats.zgb:queue_logs",
        sends_mail=True,
        claim_order="due",
    ),
}
"""The formats other than the contract's, by name."""


def setup_for(
    config: Config, place: str, environ: Mapping[str, str], words: tuple[str, ...] = ()
) -> Setup:
    """The setup of a place, from command line and configuration; "" is the configured place.

    Raises:
        ConfigError: a value is invalid.
    """
    queue = queue_settings_for(config, place, environ)
    name = detect.detect_format(place) if place else ""
    if config.stores:
        _check_settings(config)
    if name not in FORMATS:
        return Setup(config, queue, words)
    site = ForeignPlace(name, os.path.abspath(place), FORMATS[name], _settings(config, name))
    return Setup(config, _foreign_queue(queue, site), words, site)


def _foreign_queue(queue: Queue, site: ForeignPlace) -> Queue:
    """A `Queue` for a foreign place: our folders and metrics are below our own folder there."""
    desk, folders = site.state_folder, site.format.required_folders(site.path)
    return queue._replace(
        root=site.path if os.path.isdir(site.path) else os.path.dirname(site.path),
        pending=folders[0],
        work=folders[1],
        dlq=folders[2],
        run_dir=f"{desk}/run",
        log_dir=f"{desk}/log",
        queue_metrics=f"{desk}/metrics/queue.prom",
        mail_metrics=f"{desk}/metrics/mail.prom",
        counters=f"{desk}/metrics/counters",
        mail_spool=f"{desk}/mailspool",
        retention_days=inf,  # no task there is deleted because of its age
    )


def _check_settings(config: Config) -> None:
    for name, (_, at) in config.stores.items():
        if name not in FORMATS:
            raise at.error(f"no such format, expected one of {', '.join(FORMATS)}")
        _settings(config, name)


def _settings(config: Config, name: str) -> Any:
    from engine.config.validators import ConfigLocation

    said, at = config.stores.get(name, (None, ConfigLocation(config.path, f"stores.{name}")))
    return FORMATS[name].parse_settings(said, at)
