"""The handler that delivers spooled mail: one attempt for each run of its task."""

from engine.mail.model import BadMail, MailError, NotSent, Waits
from engine.mail.send.sender import Sender
from engine.model import Task
from engine.work.handlers import Context, Failed, Fatal, Later


class MailSend:
    """Sends the mail that a task's payload, a `meta.sh` in the mail spool, is about.

    What the folder holds is removed with the task, by its store.
    """

    def __init__(self, post: Sender) -> None:
        self._post = post

    def __call__(self, task: Task, context: Context) -> None:
        """Make one attempt; return at once where an earlier one is known to have succeeded.

        Raises:
            Fatal: nobody may send this mail, or the server refused it for good.
            Failed: the attempt failed, or could not be made.
            Later: no transport may be used now, or no token is there.
        """
        attempt = (task.attempts or 0) + 1
        try:
            self._post.deliver(task.payload, task.id, attempt, context.cancelled)
        except BadMail as error:
            raise Fatal(str(error)) from error
        except Waits as wait:
            raise Later(wait.until, str(wait)) from wait
        except NotSent as failure:
            ends = Fatal if failure.permanent else Failed
            raise ends(f"{failure.word}: {failure}") from failure
        except MailError as error:
            raise Failed(str(error)) from error
