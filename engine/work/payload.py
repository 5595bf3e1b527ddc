"""A task's payload: it is handed on only where it lies plainly below the mail spool."""

from engine.model import Task
from engine.system import files
from engine.system.files import Refused
from engine.work.handlers import Context, Failed, Fatal, Handler


def guarded(handler: Handler, mail_spool: str, root: str = "") -> Handler:
    """The handler, never started for a task whose payload lies elsewhere than below `mail_spool`,
    which itself is found below the data folder `root` through no symbolic link.

    A task file may name any file of the system, and handlers read, send and delete what they are
    named. One that is merely missing is the handler's to judge. Looked at right before the start:
    who may write into the mail spool can still change what lies there afterwards.
    """

    def run(task: Task, context: Context) -> None:
        if task.payload:
            _require(task.payload, mail_spool, root)
        handler(task, context)

    return run


def _require(path: str, mail_spool: str, root: str) -> None:
    try:
        files.is_below(mail_spool, path, root)
    except Refused as refusal:
        raise Fatal(f"payload not touched: it {refusal}") from refusal
    except FileNotFoundError:
        return
    except OSError as error:
        raise Failed(f"payload not touched: it cannot be looked at: {error.strerror}") from error
