"""The handler that sends what a store keeps in wire form: by SMTP, to one server, one attempt."""

import time
from collections.abc import Callable

from engine.mail.model import BadMail, NotSent
from engine.mail.send import smtp_client
from engine.mail.send.smtp_client import IN_DOUBT, Destination, UnreadableMessage, WireMessage
from engine.model import Task
from engine.work.handlers import WORKER_ENDED, Context, Failed, Fatal, Later

AGAIN = 3600.0
"""Seconds after which a mail that could not be read is looked at again: somebody has to mend it."""


class SmtpSend:
    """Sends the mail that a task is."""

    def __init__(
        self,
        open_letter: Callable[[Task], WireMessage],
        destination: Destination,
        clock: Callable[[], float] = time.time,
        warn: Callable[[str], None] = lambda text: None,
        abandoned: str = WORKER_ENDED,
    ) -> None:
        """`open_letter` is asked on the handler's own thread, and raises Unreadable where there is
        no letter to be had. `warn` logs that a mail is sent again that may have been sent.
        `abandoned` begins the error that the store itself gives a task whose worker ended before
        its outcome was stored.
        """
        self._open, self._destination = open_letter, destination
        self._clock, self._warn = clock, warn
        self._abandoned = (WORKER_ENDED, abandoned)

    def __call__(self, task: Task, context: Context) -> None:
        """Make one attempt.

        Raises:
            Later: it cannot be read, so nobody could tell what is to become of it.
            Fatal: nobody may send this mail, or the server refused it for good.
            Failed: it was not accepted this time; or nobody knows, and the text says so.
        """
        try:
            letter = self._open(task)
            if task.error.startswith(self._abandoned) or f": {IN_DOUBT}" in task.error:
                again = "an earlier attempt ended without a result, the mail may arrive twice"
                self._warn(f"MAIL_SEND_IN_DOUBT task_id={task.id}: {again}")
            smtp_client.send(letter, self._destination, context.cancelled)
        except UnreadableMessage as failure:
            raise Later(self._clock() + AGAIN, str(failure)) from failure
        except BadMail as error:
            raise Fatal(str(error)) from error
        except NotSent as failure:
            ends = Fatal if failure.permanent else Failed
            raise ends(f"{failure.word}: {failure}") from failure
