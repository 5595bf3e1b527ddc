"""What a place is: a queue of the contract, or one of another program, in its own format.

A format brings one row of `FORMATS`; what a command does with a place of any format goes through
`Setup.store` and the fields of a `Queue`, whose folders for logs and metrics are our own there,
where the other program never looks.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from engine.config.queue_config import Config, Queue, queue_for
from engine.policy import RetryPolicy
from engine.store import Store
from engine.stores import detect
from engine.system import files
from tui.cli.setup.format import Format, Site
from tui.cli.setup.setup import Setup

if TYPE_CHECKING:
    from engine.stores.zgb import ZgbStore
    from engine.stores.zgb.settings import ZgbSettings


def _kannader_settings(said: Any, at: Any) -> Any:
    from engine.stores.kannader import settings

    return settings.said(said, at)


def _kannader(path: str, settings: Any) -> Store:
    from engine.stores.kannader import KannaderStore

    return KannaderStore(path)


def _kannader_retry(settings: Any) -> RetryPolicy:
    from engine.stores.kannader.settings import retry_policy

    return retry_policy(settings)


def _zgb_settings(said: Any, at: Any) -> Any:
    from engine.stores.zgb import settings

    return settings.said(said, at)


def _zgb(path: str, settings: Any) -> Store:
    return open_zgb(path, settings)


def open_zgb(path: str, settings: ZgbSettings) -> ZgbStore:
    """Open a ZGB store whose changes are written to the queue's log, like those of its worker.

    Raises:
        Unavailable: it cannot be reached.
    """
    from engine.stores.zgb import ZgbStore
    from engine.stores.zgb.log import Log, spot

    where = spot(settings.log, path, os.environ, os.getcwd())
    # A line that cannot be written is in the journal too, and a screen has no other place for it.
    log = Log(where.path, secrets.token_hex(4), path, time.time, lambda text: None)
    return ZgbStore(settings.place(path), tell=log.tell)


FORMATS: Mapping[str, Format] = {
    detect.KANNADER: Format(
        "a Kannader spool",
        _kannader_settings,
        _kannader,
        desk=lambda path: f"{path}/.spooldeck",
        folders=lambda path: (f"{path}/queue", f"{path}/inflight", f"{path}/cleanup"),
        work=("kannader", "work"),
        retry=_kannader_retry,
        unworkable=lambda settings: settings.unworkable,
        doctor="formats.kannader_doctor:doctor",
        facts="formats.kannader:spool_facts",
    ),
    detect.ZGB: Format(
        "a ZGB mail queue",
        _zgb_settings,
        _zgb,
        # One for each database, by whatever link it is reached: its workers meet at a lock there.
        desk=lambda path: f"{files.real_path(path)}.spooldeck.d",
        folders=lambda path: (os.path.dirname(files.real_path(path)),) * 3,
        work=("zgb", "work", "--loop"),
        retry=lambda settings: settings.place("").retry,
        unworkable=lambda settings: settings.unworkable,
        doctor="formats.zgb_doctor:doctor",
        facts="formats.zgb:queue_facts",
        tokens="formats.zgb:queue_tokens",
        shut="formats.zgb:queue_shut",
        logs="formats.zgb:queue_logs",
        mails=True,
        takes_by="due",
    ),
}
"""The formats besides the contract's, by their names."""


def setup_for(
    config: Config, place: str, environ: Mapping[str, str], words: tuple[str, ...] = ()
) -> Setup:
    """All that the command line and the configuration mean by a place; "" is the configured one.

    Raises:
        ConfigError: a value that cannot be meant.
    """
    queue = queue_for(config, place, environ)
    name = detect.format_of(place) if place else ""
    if config.stores:
        _check_all(config)
    if name not in FORMATS:
        return Setup(config, queue, words)
    site = Site(name, os.path.abspath(place), FORMATS[name], _settings(config, name))
    return Setup(config, _laid_out(queue, site), words, site)


def _laid_out(queue: Queue, site: Site) -> Queue:
    """Everything of ours on the desk: a queue's folders and figures, as they are called there."""
    desk, folders = site.desk, site.format.folders(site.path)
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
        retention_days=inf,  # nothing there is deleted because it is old
    )


def _check_all(config: Config) -> None:
    for name, (_, at) in config.stores.items():
        if name not in FORMATS:
            raise at.error(f"no such format, expected one of {', '.join(FORMATS)}")
        _settings(config, name)


def _settings(config: Config, name: str) -> Any:
    from engine.config.validators import ConfigLocation

    said, at = config.stores.get(name, (None, ConfigLocation(config.path, f"stores.{name}")))
    return FORMATS[name].check(said, at)
