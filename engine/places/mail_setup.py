"""The mail side of one place: settings, spool, transports, sender, and the handler of its tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from engine.config.queue_config import Config, Queue
from engine.config.validators import ConfigError
from engine.model import MAIL_SEND_KIND, Task
from engine.system import files, users
from engine.system.cleanup import closing_fd
from engine.system.command_errors import print_error
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.work.handlers import Context

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.mail.send.delivery_log import Ledger
    from engine.mail.send.mail_spool import MailSpool
    from engine.mail.send.sender import Sender
    from engine.mail.send.suspensions import Suspensions
    from engine.mail.send.transport_chooser import TransportChooser
    from engine.mail.transports.registry import TransportRegistry


QUEUING_GRACE_SECONDS = 30.0
"""Seconds in which the program that spooled a mail may still queue its task."""

RECHECK_SECONDS = 60.0
"""Seconds after which a worker checks settings and transports again: a mail server may be started,
stopped or changed while the worker runs."""

PUBLISH_INTERVAL_SECONDS = 5.0
"""Minimum seconds between two writes of the mail metrics: each reads the whole spool."""


class _MailParts(NamedTuple):
    settings: MailSettings
    registry: TransportRegistry
    chooser: TransportChooser
    sender: Callable[[], Sender]
    """Makes it at the first mail: most runs only ask whether one may be sent. Threads that do so at
    the same time may each make one: all have the chooser of these parts."""
    checked_at: float
    """When it was built or last checked, by the clock."""


class MailHandler:
    """Delivers the mail of tasks. Builds its parts on first use, because few runs send mail."""

    def __init__(
        self,
        settings: Callable[[], MailSettings],
        make_registry: Callable[[MailSettings], TransportRegistry],
        make_chooser: Callable[[MailSettings, TransportRegistry], TransportChooser],
        post: Callable[[TransportChooser], Sender],
        mail_spool: str,
        *,
        is_ours: bool,
        complain: Callable[[str], None],
        root: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings` and `make_registry` read the mail settings and transports; both raise
        ConfigError. `post` makes the sender for the first mail; `root` is the data folder.
        `is_ours` is False if a program is configured for `mail_send`: then nothing is blocked here.
        """
        self._settings, self._make_registry = settings, make_registry
        self._make_chooser, self._post = make_chooser, post
        self._mail_spool, self._root, self._complain = mail_spool, root, complain
        self._is_ours, self._clock = is_ours, clock
        self._built: _MailParts | None = None
        self._published = float("-inf")
        self._complained = ""

    def claim_gate(self, kind: str) -> tuple[str, float | None]:
        """Why no task of this kind may be claimed now, "" if one may; and the time when the missing
        token will exist, epoch seconds UTC, None if time alone does not help. Raises nothing."""
        if kind != MAIL_SEND_KIND or not self._is_ours:
            return "", None
        try:
            return self._current().chooser.blocking_reason()
        except (ConfigError, OSError) as error:
            return f"no mail transport: {safe_line(str(error))}", None

    def why_closed(self, kind: str = MAIL_SEND_KIND) -> str:
        """Why no task of this kind may be claimed now; "" if one may. Raises nothing."""
        return self.claim_gate(kind)[0]

    def publish_metrics(self) -> None:
        """Write the mail metrics, at most every `PUBLISH_INTERVAL_SECONDS`; report errors."""
        now = self._clock()
        if not self._is_ours or now - self._published < PUBLISH_INTERVAL_SECONDS:
            return
        self._published = now
        try:
            self._current().sender().publish()
        except (ConfigError, OSError) as error:
            if self._complained != str(error):
                self._complained = str(error)
                self._complain(f"{safe_line(str(error))}; mail metrics not written")

    def __call__(self, task: Task, context: Context) -> None:
        """Deliver the mail of a task, in one attempt."""
        from engine.work.handlers import guard_payload
        from engine.work.mail_send import MailSend

        built = self._built or self._build(self._settings())
        guard_payload(MailSend(built.sender()), self._mail_spool, self._root)(task, context)

    def _current(self) -> _MailParts:
        """The current parts, checked again after `RECHECK_SECONDS` seconds."""
        built = self._built
        if built is not None and self._clock() - built.checked_at < RECHECK_SECONDS:
            return built
        settings = self._settings()
        if built is None or settings != built.settings:
            return self._build(settings)
        registry = self._make_registry(settings)
        if any(registry.absence(name) != built.registry.absence(name) for name in registry.names()):
            return self._build(settings, registry)
        # Keep the chooser: it knows which recipient is next when tokens are short.
        self._built = built._replace(checked_at=self._clock())
        return self._built

    def _build(
        self, settings: MailSettings, registry: TransportRegistry | None = None
    ) -> _MailParts:
        registry = registry or self._make_registry(settings)
        chooser = self._make_chooser(settings, registry)
        sender = cache(partial(self._post, chooser))
        self._built = _MailParts(settings, registry, chooser, sender, self._clock())
        return self._built


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
        return MailHandler(
            self.settings,
            self.registry,
            self.chooser,
            self.sender,
            self._queue.mail_spool,
            is_ours=self.is_ours,
            complain=print_error,
            root=self._queue.root,
        )

    def settings(self, planned: Mapping[str, str] = {}) -> MailSettings:
        """The mail settings; `planned` as in `mail_config.mail_settings_for`. Raises `ConfigError`:
        a value in the environment or in mail.conf is invalid."""
        from engine.config import mail_config

        queue, mail_handler = self._queue, self._config.handlers.get("mail_send")
        settings = mail_config.mail_settings_for(
            self._config.mail, queue.root, queue.log_dir, os.environ, planned
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
        """The mail transports of this machine; their programs run as the user of the queue. Raises
        `ConfigError`: we cannot run them as that user, or the method would lose all mail."""
        from engine.config.mail_config import MEMORY, METHODS
        from engine.mail.transports.installed import System
        from engine.mail.transports.registry import TransportRegistry

        if settings.method == MEMORY:
            # The memory transport is for tests: no other process can read its mail.
            why = "method memory would lose every mail with the process that sends it"
            raise ConfigError(f"mail: {why}, expected one of {', '.join(METHODS)}")

        try:
            account = users.task_account(self._queue.run_as, os.stat(self._queue.pending))
        except users.NotRoot as error:
            text = f"queue.run_as is {error}: only root can, use {self._root_command()}"
            raise ConfigError(text) from error
        except OSError:
            account = None  # no queue, or not readable: mail programs run as our user
        return TransportRegistry(settings, system=System(account=account))

    def delivery_log(
        self, settings: MailSettings, complain: Callable[[str], None] | None = None
    ) -> Ledger:
        """Record of mail results: log, counters, metrics, delivery records. `complain` gets a text
        for each record that cannot be written; default: standard error."""
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

    def chooser(
        self,
        settings: MailSettings,
        registry: TransportRegistry,
        *,
        suspended: bool = True,
        unmeant: str = "",
    ) -> TransportChooser:
        """What chooses among these transports.

        With `suspended` False, suspended transports may be used too. `unmeant` names the invalid
        settings: mail is then spooled, not sent."""
        from engine.locks.token_buckets import TokenBuckets
        from engine.mail.host import full_name
        from engine.mail.send.transport_chooser import TransportChooser

        rates = {f"transport:{name}": rate for name, rate in settings.rates.items()}
        rates |= {f"domain:{name}": rate for name, rate in settings.domains.items()}
        path = f"{self._queue.run_dir}/queue.buckets"
        return TransportChooser(
            settings,
            registry,
            self.suspensions().read if suspended else dict,
            TokenBuckets(path, rates, time.time, self._queue.root) if rates else None,
            time.time,
            host_name=full_name(os.uname().nodename),
            settings_fault=unmeant,
        )

    def sender(
        self,
        chooser: TransportChooser,
        pause: Callable[[float], object] = time.sleep,
        *,
        complain: Callable[[str], None] | None = None,
    ) -> Sender:
        """The sender of mail by the transports of a chooser; `complain` as for `delivery_log`."""
        from engine.mail.host import this_host
        from engine.mail.send.sender import Sender

        return Sender(
            chooser,
            this_host(),
            self.spool(),
            ledger=self.delivery_log(chooser.settings, complain),
            clock=time.time,
            pause=pause,
            complain=complain or print_error,
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
        with closing_fd(fd), os.scandir(fd) as entries:
            return any(entries)
