"""The handler that sends what a store keeps in wire form: by SMTP, to one server, one attempt."""

from collections.abc import Callable

from engine.handlers import Context, Failed, Fatal
from engine.mail import smtp
from engine.mail.model import BadMail, NotSent
from engine.mail.smtp import Destination, Letter
from engine.model import Task


class SmtpSend:
    """Sends the mail that a task is."""

    def __init__(self, open_letter: Callable[[Task], Letter], destination: Destination) -> None:
        """`open_letter` is asked on the handler's own thread, and raises Failed or Fatal where
        there is no letter to be had.
        """
        self._open, self._destination = open_letter, destination

    def __call__(self, task: Task, context: Context) -> None:
        """Make one attempt.

        Raises:
            Fatal: nobody may send this mail, or the server refused it for good.
            Failed: it was not accepted this time; or nobody knows, and the text says so.
        """
        letter = self._open(task)
        try:
            smtp.send(letter, self._destination, context.cancelled)
        except BadMail as error:
            raise Fatal(str(error)) from error
        except NotSent as failure:
            ends = Fatal if failure.permanent else Failed
            raise ends(f"{failure.word}: {failure}") from failure
