"""The handler that runs a program: no shell, no input, killed when its time is up or we end."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from engine.mail import run_program
from engine.model import Task
from engine.system import supervisor
from engine.system.supervisor import GRACE, KEPT, CannotRun, Program
from engine.system.users import Account
from engine.text.safe import ERROR_LIMIT
from engine.work.handlers import Context, Failed


class CommandHandler:
    """Runs one program for each task; the task's fields are in its environment, as TASK_*."""

    def __init__(
        self,
        argv: Sequence[str],
        timeout: float,
        account: Account | None = None,
        environ: Mapping[str, str | None] = {},
    ) -> None:
        """`account` is whom to run it as; None: as we are. `environ` is added to the clean
        environment of `running.environment`; None passes on our own value, if there is one.
        """
        self._argv = tuple(argv)
        self._timeout = timeout
        self._account = account
        self._environ = environ

    def __call__(self, task: Task, context: Context) -> None:
        """Run the program to its end; wait for one that cannot be killed (`supervisor.run`).

        Raises:
            Failed: it cannot be started, ends with another status than 0, or takes too long;
                the text is its output, as `error_text` cuts it.
        """
        account = self._account
        added = {k: os.environ.get(k) if v is None else v for k, v in self._environ.items()}
        env = {
            **run_program.environment(os.environ, account),
            **{name: value for name, value in added.items() if value is not None},
            **environment(task),
        }
        program = Program(self._argv, env, pass_fds=context.inherit, account=account, grace=GRACE)
        try:
            ran = supervisor.run(program, self._timeout, context.cancelled)
        except CannotRun as error:
            verb = "follow" if error.started else "start"
            raise Failed(f"cannot {verb} {self._argv[0]}: {error}") from error
        said = error_text(ran.output)
        if ran.ended:
            raise Failed(f"{ran.ended}: {said}" if said else ran.ended)
        if ran.status is None or ran.status:
            raise Failed(said or _status(ran.status))


def environment(task: Task) -> Mapping[str, str]:
    """What a program is told about its task: the contract's fields by their own names."""
    return {
        "TASK_ID": task.id,
        "TASK_TYPE": task.kind,
        "TASK_DESCRIPTION": task.description,
        "TASK_CREATED_EPOCH": str(int(task.created)),
        "TASK_RETRIES": str(task.attempts or 0),
        "TASK_PAYLOAD_FILE": task.payload,
    }


def error_text(output: bytes) -> str:
    """The first 200 characters of all output, as the contract's program keeps them.

    Of more than `KEPT` bytes, whose beginning is not held, it is the last lines.
    """
    if len(output) >= KEPT:
        return last_lines(output)
    return output.decode("utf-8", "replace").strip()[:ERROR_LIMIT]


def last_lines(output: bytes) -> str:
    """The last whole lines that fit into an error; of a longer last line its beginning."""
    lines = output.decode("utf-8", "replace").strip().split("\n")
    kept = lines[-1][:ERROR_LIMIT]
    for line in reversed(lines[:-1]):
        if len(line) + 1 + len(kept) > ERROR_LIMIT:
            break
        kept = f"{line}\n{kept}"
    return kept


def _status(code: int | None) -> str:
    if code is None:
        return "its supervisor was killed, exit status unknown"
    if code > 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)  # most real-time signals have no name
    return f"ended by signal {name}"
