"""Connect settings, transports and sender into the handler of `mail_send` tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from engine.config.validators import ConfigError
from engine.model import Task
from engine.text.safe import safe_line
from engine.work.handlers import Context, Handler

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.mail.model import Unused
    from engine.mail.send.sender import Sender
    from engine.mail.send.suspensions import Suspension
    from engine.mail.transports.registry import TransportRegistry

MAIL_SEND_KIND = "mail_send"
"""The kind of task that delivers a mail (contract, "Task types")."""

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
    sender: Sender
    handler: Handler
    checked_at: float
    """When it was built or last checked, by the clock."""


class MailHandler:
    """Delivers the mail of tasks. Builds its parts on first use, because few runs send mail."""

    def __init__(
        self,
        settings: Callable[[], MailSettings],
        make_registry: Callable[[MailSettings], TransportRegistry],
        post: Callable[[MailSettings, TransportRegistry], Sender],
        mail_spool: str,
        *,
        is_ours: bool,
        complain: Callable[[str], None],
        root: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings` and `make_registry` read the mail settings and transports; both raise
        ConfigError. `post` makes the sender; `root` is the data folder of `check_mail_spool`.
        `is_ours` is False if a program is configured for `mail_send`: then nothing is blocked here.
        """
        self._settings, self._make_registry, self._post = settings, make_registry, post
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
            return self._current().sender.blocking_reason()
        except (ConfigError, OSError) as error:
            return f"no mail transport: {safe_line(str(error))}", None

    def why_closed(self, kind: str = MAIL_SEND_KIND) -> str:
        """Why no task of this kind may be claimed now; "" if one may. Raises nothing."""
        return self.claim_gate(kind)[0]

    def publish_metrics(self) -> None:
        """Write the mail metrics, unless that was done within `PUBLISH_INTERVAL_SECONDS` seconds;
        errors are reported."""
        now = self._clock()
        if not self._is_ours or now - self._published < PUBLISH_INTERVAL_SECONDS:
            return
        self._published = now
        try:
            self._current().sender.publish()
        except (ConfigError, OSError) as error:
            if self._complained != str(error):
                self._complained = str(error)
                self._complain(f"{safe_line(str(error))}; mail metrics not written")

    def __call__(self, task: Task, context: Context) -> None:
        """Deliver the mail of a task, in one attempt.

        Raises:
            Failed: the transport did not accept it.
            Postponed: it was not tried.
        """
        built = self._built or self._build(self._settings())
        built.handler(task, context)

    def _current(self) -> _MailParts:
        """The current parts, checked again after `RECHECK_SECONDS` seconds.

        Raises:
            ConfigError, OSError: the settings or transports cannot be read.
        """
        built = self._built
        if built is not None and self._clock() - built.checked_at < RECHECK_SECONDS:
            return built
        settings = self._settings()
        if built is None or settings != built.settings:
            return self._build(settings)
        registry = self._make_registry(settings)
        if any(registry.absence(name) != built.registry.absence(name) for name in registry.names()):
            return self._build(settings, registry)
        # Keep the sender: it knows which recipient is next when tokens are short.
        self._built = built._replace(checked_at=self._clock())
        return self._built

    def _build(
        self, settings: MailSettings, registry: TransportRegistry | None = None
    ) -> _MailParts:
        from engine.work.mail_send import MailSend
        from engine.work.payload import guard_payload

        registry = registry or self._make_registry(settings)
        post = self._post(settings, registry)
        handler = guard_payload(MailSend(post), self._mail_spool, self._root)
        self._built = _MailParts(settings, registry, post, handler, self._clock())
        return self._built


def describe_no_transport(
    settings: MailSettings, why_not: Mapping[str, Unused], suspended: Mapping[str, Suspension]
) -> str:
    """Say in a few words why no mail can be sent, from the reason of each transport."""
    from engine.config.mail_config import NOWHERE
    from engine.mail.model import Cause

    if settings.method == NOWHERE:
        return "no mail transport is set up: the method is none"
    whys = why_not.items()
    suspended_names = [n for n, why in whys if why.cause is Cause.SUSPENDED and n in suspended]
    if suspended_names:
        names = ", ".join(
            f"{name} {describe_suspender(suspended[name])}" for name in suspended_names
        )
        return f"no mail transport: {names}"
    if why := why_not.get(settings.method):
        return f"no mail transport: {settings.method}: {safe_line(why.reason)}"
    stopped = [f"{n}: {safe_line(why.reason)}" for n, why in whys if why.cause is Cause.STOPPED]
    return f"no mail transport: {'; '.join(stopped)}" if stopped else "no mail transport is set up"


def describe_suspender(suspension: Suspension) -> str:
    """Say by whom a transport is suspended."""
    return f"suspended by {safe_line(suspension.who) or 'an operator'}"
