"""What sends mail, put together: for the worker, and for the commands that send by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from engine.config.validators import ConfigError
from engine.model import Task
from engine.text.safe import shown
from engine.work.handlers import Context, Handler

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.mail.model import Unused
    from engine.mail.send.sender import Sender
    from engine.mail.send.suspensions import Suspension
    from engine.mail.transports.registry import TransportRegistry

SEND = "mail_send"
"""The kind of task that delivers a mail (contract, "Task types")."""

ON_ITS_WAY = 30.0
"""Seconds for which whoever spooled a mail may still be about to queue the task for it."""

LOOK_AGAIN = 60.0
"""Seconds after which a worker looks once more which transports are there, and how mail is to be
sent: what sends mail may be started after it, stopped or set up anew.
"""

PUBLISHING = 5.0
"""Seconds between two writings of the metrics: each looks at the whole spool."""


class _Built(NamedTuple):
    settings: MailSettings
    ways: TransportRegistry
    post: Sender
    handler: Handler
    at: float
    """When it was put together, or found to be as it should, by the clock."""


class Mailing:
    """Sends the mail of tasks; put together when the first of them is due: few runs have any."""

    def __init__(
        self,
        settings: Callable[[], MailSettings],
        ways: Callable[[MailSettings], TransportRegistry],
        post: Callable[[MailSettings, TransportRegistry], Sender],
        mail_spool: str,
        *,
        ours: bool,
        complain: Callable[[str], None],
        root: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings` says how mail is sent, `ways` by what; both raise ConfigError where that means
        nothing. `post` sends it; `root` is the data folder of `mail_spool`. With `ours` False a
        program does all that, and none is shut out.
        """
        self._settings, self._ways, self._post = settings, ways, post
        self._mail_spool, self._root, self._complain = mail_spool, root, complain
        self._ours, self._clock = ours, clock
        self._built: _Built | None = None
        self._published = float("-inf")
        self._complained = ""

    def gate(self, kind: str) -> tuple[str, float | None]:
        """Why no task of this kind may be claimed now, "" when one may; and when the token that it
        lacks is there, epoch seconds UTC, None where no time will mend it. Raises nothing.
        """
        if kind != SEND or not self._ours:
            return "", None
        try:
            return self._current().post.shut()
        except (ConfigError, OSError) as error:
            return f"no mail transport: {shown(str(error))}", None

    def shut(self, kind: str = SEND) -> str:
        """Why no task of this kind may be claimed now; "" when one may. Raises nothing."""
        return self.gate(kind)[0]

    def publish(self) -> None:
        """Write the metrics of mail, unless that was done just now; what goes wrong is told."""
        now = self._clock()
        if not self._ours or now - self._published < PUBLISHING:
            return
        self._published = now
        try:
            self._current().post.publish()
        except (ConfigError, OSError) as error:
            if self._complained != str(error):
                self._complained = str(error)
                self._complain(f"{shown(str(error))}; the metrics of mail are not written")

    def __call__(self, task: Task, context: Context) -> None:
        """Deliver the mail of a task, in one attempt.

        Raises:
            Failed: it was not accepted.
            Later: it was not tried.
        """
        built = self._built or self._build(self._settings())
        built.handler(task, context)

    def _current(self) -> _Built:
        """What sends mail as things stand, or stood a short while ago.

        Raises:
            ConfigError, OSError: nobody can say.
        """
        built = self._built
        if built is not None and self._clock() - built.at < LOOK_AGAIN:
            return built
        settings = self._settings()
        if built is None or settings != built.settings:
            return self._build(settings)
        ways = self._ways(settings)
        if any(ways.absence(name) != built.ways.absence(name) for name in ways.names()):
            return self._build(settings, ways)
        # The same one goes on: it knows whose turn it is where tokens are short.
        self._built = built._replace(at=self._clock())
        return self._built

    def _build(self, settings: MailSettings, ways: TransportRegistry | None = None) -> _Built:
        from engine.work.mail_send import MailSend
        from engine.work.payload import guarded

        ways = ways or self._ways(settings)
        post = self._post(settings, ways)
        handler = guarded(MailSend(post), self._mail_spool, self._root)
        self._built = _Built(settings, ways, post, handler, self._clock())
        return self._built


def why_none(
    settings: MailSettings, why_not: Mapping[str, Unused], suspended: Mapping[str, Suspension]
) -> str:
    """Why nothing can send mail, in a few words, from why each transport cannot."""
    from engine.config.mail_config import NOWHERE
    from engine.mail.model import Cause

    if settings.method == NOWHERE:
        return "no mail transport is set up: the method is none"
    whys = why_not.items()
    held = [n for n, why in whys if why.cause is Cause.SUSPENDED and n in suspended]
    if held:
        return f"no mail transport: {', '.join(f'{n} {held_by(suspended[n])}' for n in held)}"
    if why := why_not.get(settings.method):
        return f"no mail transport: {settings.method}: {shown(why.words)}"
    stopped = [f"{n}: {shown(why.words)}" for n, why in whys if why.cause is Cause.STOPPED]
    return f"no mail transport: {'; '.join(stopped)}" if stopped else "no mail transport is set up"


def held_by(own: Suspension) -> str:
    """That a transport is suspended, and by whom."""
    return f"suspended by {shown(own.who) or 'an operator'}"
