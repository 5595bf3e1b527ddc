"""What sends mail, put together: for the worker, and for the commands that send by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from engine.checks import ConfigError
from engine.handlers import Context, Handler
from engine.model import Task
from engine.text import shown

if TYPE_CHECKING:
    from engine.mail.post import Post
    from engine.mail.transports import Ways
    from engine.mailconf import MailSettings

SEND = "mail_send"
"""The kind of task that delivers a mail (contract, "Task types")."""

ON_ITS_WAY = 30.0
"""Seconds for which whoever spooled a mail may still be about to queue the task for it."""

LOOK_AGAIN = 60.0
"""Seconds after which a worker that found no transport looks once more: one that starts together
with the system may start before what sends its mail does.
"""


class _Built(NamedTuple):
    post: Post
    handler: Handler
    at: float
    """When it was put together, by the clock."""


class Mailing:
    """Sends the mail of tasks; put together when the first of them is due: few runs have any."""

    def __init__(
        self,
        settings: Callable[[], MailSettings],
        ways: Callable[[MailSettings], Ways],
        post: Callable[[MailSettings, Ways], Post],
        mail_spool: str,
        *,
        ours: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings` says how mail is sent, `ways` by what; both raise ConfigError where that means
        nothing. `post` sends it. With `ours` False a program does all that, and none is shut out.
        """
        self._settings, self._ways, self._post = settings, ways, post
        self._mail_spool = mail_spool
        self._ours, self._clock = ours, clock
        self._built: _Built | None = None

    def shut(self, kind: str = SEND) -> str:
        """Why no task of this kind may be claimed now; "" when one may. Raises nothing."""
        if kind != SEND or not self._ours:
            return ""
        try:
            built = self._built or self._build()
            why = built.post.closed()
            if why and self._clock() - built.at >= LOOK_AGAIN:
                why = self._build().post.closed()
        except (ConfigError, OSError) as error:
            return f"no mail transport: {shown(str(error))}"
        return why

    def __call__(self, task: Task, context: Context) -> None:
        """Deliver the mail of a task, in one attempt.

        Raises:
            Failed: it was not accepted.
            Later: it was not tried.
        """
        built = self._built or self._build()
        built.handler(task, context)

    def _build(self) -> _Built:
        from engine.handlers.mail_send import MailSend
        from engine.handlers.payload import guarded

        settings = self._settings()
        post = self._post(settings, self._ways(settings))
        handler = guarded(MailSend(post), self._mail_spool)
        self._built = _Built(post, handler, self._clock())
        return self._built


def why_none(settings: MailSettings, why_not: Mapping[str, str]) -> str:
    """Why nothing can send mail, in a few words, from why each transport cannot."""
    from engine.mailconf import NOWHERE

    if settings.method == NOWHERE:
        return "no mail transport: the method is none"
    if settings.method:
        return f"no mail transport: {settings.method}: {shown(why_not.get(settings.method, ''))}"
    suspended = [name for name, why in why_not.items() if is_suspended(why)]
    if suspended:
        return f"no mail transport: {', '.join(suspended)} suspended by an operator"
    return "no mail transport is installed and set up here"


def is_suspended(why: str) -> bool:
    """Whether this is why a transport is not used that could be."""
    return why.startswith("suspended")
