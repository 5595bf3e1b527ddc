"""Handler that runs a program for a task: no shell, killed on timeout or cancellation."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Container, Mapping, Sequence

from engine.model import Task
from engine.system import run_program, supervisor
from engine.system.supervisor import CannotRun, Program, ProgramResult, run_supervised
from engine.system.users import Account
from engine.text.safe import ERROR_LIMIT
from engine.work.handlers import Context, Failed, Fatal, Lacking

TRACE_BYTES = 8192
"""Bytes of the output of a failed run, the last ones, for stores that keep a trace of each."""


class CommandHandler:
    """Runs one program per task; the task's fields are in its environment as TASK_*, and its data
    is its standard input."""

    def __init__(
        self,
        argv: Sequence[str],
        timeout: float,
        account: Account | None = None,
        environ: Mapping[str, str | None] = {},
        run: Callable[[Program, float, Callable[[], bool]], ProgramResult] = run_supervised,
        fatal_statuses: Container[int] = (),
        keep: Callable[[Task, bytes, str], None] = lambda task, output, how: None,
    ) -> None:
        """`account` is the user to run it as; None: the present user. `environ` is added to the
        clean environment of `run_program.environment`; a value of None passes on our own variable,
        if set. `run` runs the program: a worker passes that of its `SupervisorPool`. An exit
        status of `fatal_statuses` means that no further attempt can succeed. `keep` gets the
        output of each run that was started, and how it ended."""
        self._argv = tuple(argv)
        self._timeout = timeout
        self._account = account
        added = {k: os.environ.get(k) if v is None else v for k, v in environ.items()}
        self._environ = run_program.environment(os.environ, account) | {
            name: value for name, value in added.items() if value is not None
        }
        self._run, self._fatal_statuses, self._keep = run, fatal_statuses, keep

    def __call__(self, task: Task, context: Context) -> bytes:
        """Run the program until it ends, even if it cannot be killed; return its output.

        Raises:
            Fatal: it has an exit status that excludes further attempts.
            Lacking: no process could be made, or there is no such program.
            Failed: it cannot be started, has an exit status other than 0, or times out; the
                text is its output, shortened by `shorten_output`."""
        program = Program(
            self._argv,
            {**self._environ, **task_environment(task)},
            context.data,
            stdin_fd=context.data_fd,
            kept_fds=context.kept_fds,
            account=self._account,
            grace=supervisor.KILL_DELAY_SECONDS,
        )
        try:
            ran = self._run(program, self._timeout, context.is_cancelled)
        except CannotRun as error:
            verb = "follow" if error.started else "start"
            raises = Lacking if error.is_lack else Failed
            raise raises(f"cannot {verb} {self._argv[0]}: {error}") from error
        self._keep(task, ran.output, ran.end_reason or _status(ran.status))
        if ran.status == 0 and not ran.end_reason:
            return ran.output
        output = shorten_output(ran.output)
        trace = ran.output[-TRACE_BYTES:].decode("utf-8", "replace").strip()
        if ran.end_reason:
            raise Failed(f"{ran.end_reason}: {output}" if output else ran.end_reason, trace)
        failure_class = Fatal if ran.status in self._fatal_statuses else Failed
        raise failure_class(output or _status(ran.status), trace)


def task_environment(task: Task) -> Mapping[str, str]:
    """Environment variables with the task's fields, named as in the contract."""
    return {
        "TASK_ID": task.id,
        "TASK_TYPE": task.kind,
        "TASK_DESCRIPTION": task.description,
        "TASK_CREATED_EPOCH": str(int(task.created)),
        "TASK_RETRIES": str(task.attempts or 0),
        "TASK_PAYLOAD_FILE": task.payload,
    }


def shorten_output(output: bytes) -> str:
    """Return the first 200 characters of the output, as the contract's program stores them. If the
    output has more than `KEPT` bytes, its beginning is lost; then return the last lines."""
    if len(output) >= supervisor.MAX_OUTPUT_BYTES:
        return last_lines(output)
    return output.decode("utf-8", "replace").strip()[:ERROR_LIMIT]


def last_lines(output: bytes) -> str:
    """The last whole lines that fit into an error text, or the start of a longer last line."""
    lines = output.decode("utf-8", "replace").strip().split("\n")
    joined = lines[-1][:ERROR_LIMIT]
    for line in reversed(lines[:-1]):
        if len(line) + 1 + len(joined) > ERROR_LIMIT:
            break
        joined = f"{line}\n{joined}"
    return joined


def _status(code: int | None) -> str:
    if code is None:
        return "its supervisor was killed, exit status unknown"
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)  # most real-time signals have no name
    return f"ended by signal {name}"
