"""Handler that sends a message stored in wire format: by SMTP, to one server, one attempt."""

import time
from collections.abc import Callable

from engine.mail.model import BadMail, NotSent
from engine.mail.run_program import NOT_STARTED
from engine.mail.send import smtp_client
from engine.model import Task
from engine.work.handlers import WORKER_ENDED, Context, Failed, Fatal, Lacking, Postponed

UNREADABLE_RETRY_SECONDS = 3600.0
"""Seconds until an unreadable mail is tried again: an operator has to repair it."""


class SmtpSend:
    """Sends the mail of a task."""

    def __init__(
        self,
        open_letter: Callable[[Task], smtp_client.WireMessage],
        destination: smtp_client.SmtpDestination,
        clock: Callable[[], float] = time.time,
        warn: Callable[[str], None] = lambda text: None,
        abandoned: str = WORKER_ENDED,
    ) -> None:
        """`open_letter` runs on the handler's own thread and raises UnreadableMessage if the
        message cannot be read. `warn` logs that a mail is sent again that may have been sent
        before. `abandoned` is the start of the error text that the store itself gives a task whose
        worker ended before its outcome was stored."""
        self._open, self._destination = open_letter, destination
        self._clock, self._warn = clock, warn
        self._abandoned = (WORKER_ENDED, abandoned)
        self._connections = smtp_client.Connections()

    def close(self) -> None:
        """Close the connections that are kept."""
        self._connections.close()

    def __call__(self, task: Task, context: Context) -> None:
        """Make one attempt. The text of a failure says whether its result is unknown."""
        try:
            letter = self._open(task)
            doubt = f": {smtp_client.IN_DOUBT_PREFIX}"
            if task.error.startswith(self._abandoned) or doubt in task.error:
                again = "an earlier attempt ended without a result, the mail may arrive twice"
                self._warn(f"MAIL_SEND_IN_DOUBT task_id={task.id}: {again}")
            smtp_client.send(letter, self._destination, context.is_cancelled, self._connections)
        except smtp_client.UnreadableMessage as failure:
            raise Postponed(self._clock() + UNREADABLE_RETRY_SECONDS, str(failure)) from failure
        except BadMail as error:
            raise Fatal(str(error)) from error
        except NotSent as failure:
            if failure.word == NOT_STARTED:
                raise Lacking(str(failure)) from failure
            failure_class = Fatal if failure.permanent else Failed
            raise failure_class(f"{failure.word}: {failure}") from failure
