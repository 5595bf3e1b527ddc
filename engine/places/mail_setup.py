"""The mail side of one place: settings, spool, transports, sender, and the handler of its tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from engine.config import queue_config
from engine.config.queue_config import Config, Queue
from engine.system import files, users
from engine.system.command_errors import print_error

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.mail.send.delivery_log import Ledger
    from engine.mail.send.mail_spool import MailSpool
    from engine.mail.send.sender import Sender
    from engine.mail.send.suspensions import Suspensions
    from engine.mail.transports.registry import TransportRegistry
    from engine.places.mail_parts import MailHandler


class MailSetup:
    """Makes the parts that send and spool the mail of one place when a command needs them."""

    def __init__(
        self, config: Config, queue: Queue, state_folder: str, root_command: Callable[[], str]
    ) -> None:
        """`root_command` returns the typed command line with sudo, for error texts."""
        self._config, self._queue, self._state_folder = config, queue, state_folder
        self._root_command = root_command

    @property
    def is_ours(self) -> bool:
        """True if we send `mail_send` tasks; False if a program is configured for them."""
        handler = self._config.handlers.get("mail_send")
        return handler is None or not handler.command

    def handler(self) -> MailHandler:
        """The handler of `mail_send` tasks; it reads no file before the first use."""
        from engine.places.mail_parts import MailHandler

        return MailHandler(
            self.settings,
            self.registry,
            self.sender,
            self._queue.mail_spool,
            is_ours=self.is_ours,
            complain=print_error,
            root=self._queue.root,
        )

    def settings(self, planned: Mapping[str, str] = {}) -> MailSettings:
        """The mail settings; `planned` as in `mail_config.mail_settings_for`.

        Raises:
            ConfigError: a value in the environment or in mail.conf is invalid.
        """
        from engine.config import mail_config

        queue, mail_handler = self._queue, self._config.handlers.get("mail_send")
        environ = os.environ
        settings = mail_config.mail_settings_for(
            self._config.mail, queue.root, queue.log_dir, environ, planned
        )
        if mail_handler is None or mail_handler.command:
            return settings
        return settings._replace(max_time=min(settings.max_time, mail_handler.timeout))

    def lenient_settings(self) -> MailSettings:
        """The mail settings without the invalid values: enough to spool a mail, not to send one."""
        from engine.config import mail_config

        queue = self._queue
        return mail_config.lenient_mail_settings(
            self._config.mail, queue.root, queue.log_dir, os.environ
        )

    def spool(self) -> MailSpool:
        """The spool of mail that could not be sent."""
        from engine.mail.send.mail_spool import MailSpool

        return MailSpool(self._queue.mail_spool, self._queue.root, time.time)

    def suspensions(self) -> Suspensions:
        """The file of suspended transports."""
        from engine.mail.send.suspensions import Suspensions

        return Suspensions(f"{self._state_folder}/suspended", self._queue.root)

    def registry(self, settings: MailSettings) -> TransportRegistry:
        """The mail transports of this machine; their programs run as the user of the queue.

        Raises:
            ConfigError: we cannot run them as that user, or the method would lose all mail.
        """
        from engine.config.mail_config import MEMORY, METHODS
        from engine.mail.transports.installed import System
        from engine.mail.transports.registry import TransportRegistry

        if settings.method == MEMORY:
            # The memory transport is for tests: no other process can read its mail.
            why = "method memory would lose every mail with the process that sends it"
            raise queue_config.ConfigError(f"mail: {why}, expected one of {', '.join(METHODS)}")

        try:
            account = users.task_account(self._queue.run_as, os.stat(self._queue.pending))
        except users.NotRoot as error:
            text = f"queue.run_as is {error}: only root can, use {self._root_command()}"
            raise queue_config.ConfigError(text) from error
        except OSError:
            account = None  # no queue, or not readable: mail programs run as our user
        return TransportRegistry(settings, system=System(account=account))

    def delivery_log(
        self, settings: MailSettings, complain: Callable[[str], None] | None = None
    ) -> Ledger:
        """Record of mail results: log, counters, metrics, delivery records.

        `complain` gets a text for each record that cannot be written; default: standard error."""
        from engine.mail.send.delivery_log import DeliveryPaths, Ledger

        queue = self._queue
        places = DeliveryPaths(
            log=f"{queue.log_dir}/mail.log",
            metrics=queue.mail_metrics,
            counters=queue.counters,
            deliveries=settings.delivery_log,
            max_records=settings.delivery_log_max,
            root=queue.root,
            place_label=queue.place_label,
        )
        return Ledger(places, complain or print_error, time.time)

    def sender(
        self,
        settings: MailSettings,
        registry: TransportRegistry,
        pause: Callable[[float], object] = time.sleep,
        *,
        suspended: bool = True,
        unmeant: str = "",
        complain: Callable[[str], None] | None = None,
    ) -> Sender:
        """The sender of mail by these transports.

        With `suspended` False, suspended transports may be used too. `unmeant` names the invalid
        settings: mail is then spooled, not sent. `complain` as for `delivery_log`."""
        from engine.locks.token_buckets import TokenBuckets
        from engine.mail.host import this_host
        from engine.mail.send.sender import Sender

        rates = {f"transport:{name}": rate for name, rate in settings.rates.items()}
        rates |= {f"domain:{name}": rate for name, rate in settings.domains.items()}
        path = f"{self._queue.run_dir}/queue.buckets"
        return Sender(
            settings,
            this_host(),
            self.spool(),
            ledger=self.delivery_log(settings, complain),
            transports=registry,
            suspensions=self.suspensions().read if suspended else dict,
            limits=TokenBuckets(path, rates, time.time, self._queue.root) if rates else None,
            clock=time.time,
            pause=pause,
            complain=complain or print_error,
            settings_fault=unmeant,
        )

    def has_files(self) -> bool:
        """True if the spool has mail, or if mail metrics exist, which must stay fresh."""
        try:
            return self.has_spooled() or os.path.exists(self._queue.mail_metrics)
        except OSError:
            return True  # the reader of the spool reports the error

    def has_spooled(self) -> bool:
        """True if anything is in the mail spool; raises `OSError` if it cannot be read."""
        try:
            fd = files.open_dir(self._queue.mail_spool, self._queue.root)
        except FileNotFoundError:
            return False
        with files.closing(fd), os.scandir(fd) as entries:
            return any(entries)
