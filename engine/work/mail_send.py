"""Handler that delivers spooled mail: one attempt per run of its task."""

from engine.mail.model import BadMail, MailError, NotSent, Waits
from engine.mail.run_program import NOT_STARTED
from engine.mail.send.sender import Sender
from engine.model import Task
from engine.work.handlers import Context, Failed, Fatal, Lacking, Postponed


class MailSend:
    """Sends the mail of a task's payload, a `meta.sh` in the mail spool. The store removes the
    mail's folder together with the task."""

    def __init__(self, post: Sender) -> None:
        self._post = post

    def __call__(self, task: Task, context: Context) -> None:
        """Make one attempt; return immediately if an earlier one is known to have succeeded."""
        attempt = (task.attempts or 0) + 1
        try:
            self._post.deliver(task.payload, task.id, attempt, context.is_cancelled)
        except BadMail as error:
            raise Fatal(str(error)) from error
        except Waits as wait:
            raise Postponed(wait.retry_at, str(wait)) from wait
        except NotSent as failure:
            if failure.word == NOT_STARTED:
                raise Lacking(str(failure)) from failure
            failure_class = Fatal if failure.permanent else Failed
            raise failure_class(f"{failure.word}: {failure}") from failure
        except MailError as error:
            raise Failed(str(error)) from error
