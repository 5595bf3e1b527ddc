"""Payload guard: a task's payload is passed to its handler only if it is below the mail spool."""

from engine.model import Task
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.work.handlers import Context, Failed, Fatal, Handler


def guard_payload(handler: Handler, mail_spool: str, root: str = "") -> Handler:
    """Wrap a handler so that it never runs for a payload outside `check_mail_spool`, which itself
    is found below the data folder `root` without following a symbolic link.

    A task file may name any file of the system, and handlers read, send and delete the named file.
    A missing payload is left to the handler. The check runs right before the handler: a user with
    write access to the mail spool can still change the file afterwards."""

    def run(task: Task, context: Context) -> object:
        if task.payload:
            _require(task.payload, mail_spool, root)
        return handler(task, context)

    return run


def _require(path: str, mail_spool: str, root: str) -> None:
    try:
        files.is_file_below(mail_spool, path, root)
    except Refused as refusal:
        raise Fatal(f"payload not touched: it {refusal}") from refusal
    except FileNotFoundError:
        return
    except OSError as error:
        raise Failed(f"payload not touched: it cannot be checked: {error_text(error)}") from error
