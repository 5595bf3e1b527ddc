"""The handler that runs a program: no shell, a process group of its own, an end by the clock."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from engine.accounts import Account
from engine.handlers import Context, Failed
from engine.mail import running
from engine.model import Task
from engine.text import ERROR_LIMIT

KEPT = 8192
"""Bytes of output that are remembered, the last ones; a program may print without end."""

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for a group that ran out of time (contract, "Lock file")."""

READS = 32
"""Pieces of 64 KiB that are read before the clock is looked at; a pipe holds 1 MiB at most."""

_TICK = 1.0
"""Seconds after which a running program is looked at again for being cancelled."""


class Command:
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
        """Run it to its end.

        Raises:
            Failed: it cannot be started, ends with another status than 0, or takes too long;
                the text is its output, as `error_text` cuts it.
        """
        account = self._account
        added = {k: os.environ.get(k) if v is None else v for k, v in self._environ.items()}
        env = {
            **running.environment(os.environ, account),
            **{name: value for name, value in added.items() if value is not None},
            **environment(task),
        }
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=context.inherit,
                start_new_session=True,
                user=account and account.uid,
                group=account and account.gid,
                extra_groups=account and account.groups,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Failed(f"cannot start {self._argv[0]}: {error}") from error
        with process:
            try:
                output, ended = self._follow(process, context)
            except OSError as error:
                raise Failed(f"cannot follow {self._argv[0]}: {error}") from error
            finally:
                # Whoever it left behind in its group ends with it: the task is over. Its number is
                # still ours, because it has not been waited for.
                _signal_group(process, signal.SIGKILL)
        said = error_text(output)
        if ended:
            raise Failed(f"{ended}: {said}" if said else ended)
        if process.returncode:
            raise Failed(said or _status(process.returncode))

    def _follow(self, process: subprocess.Popen[bytes], context: Context) -> tuple[bytes, str]:
        """Its last output once it has ended, and why it was ended, if it was."""
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        os.set_blocking(pipe, False)
        pidfd = os.pidfd_open(process.pid)
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        deadline = time.monotonic() + self._timeout
        output, ended, killing = b"", "", False
        try:
            while True:
                left = deadline - time.monotonic()
                if not ended and (left <= 0 or context.cancelled()):
                    ended = f"timeout after {self._timeout:g} s" if left <= 0 else "stopped"
                    _signal_group(process, signal.SIGTERM)
                    deadline = time.monotonic() + GRACE
                elif ended and left <= 0 and not killing:
                    killing = True
                    _signal_group(process, signal.SIGKILL)
                ready = dict(poll.poll(1000 * min(_TICK, max(left, 0.01))))
                if pipe in ready:
                    output, open_still = _read(pipe, output)
                    if not open_still:
                        poll.unregister(pipe)
                if pidfd in ready:
                    output, _ = _read(pipe, output)
                    return output, ended
        finally:
            os.close(pidfd)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody left, or it became another user's and is beyond our reach


def _read(pipe: int, output: bytes) -> tuple[bytes, bool]:
    """What is there to read, and whether more can come."""
    # Not until nothing is there: a program may write faster than we read, and must end in time.
    for _ in range(READS):
        try:
            more = os.read(pipe, 65536)
        except BlockingIOError:
            return output, True
        if not more:
            return output, False
        output = (output + more)[-KEPT:]
    return output, True


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


def _status(code: int) -> str:
    if code > 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)  # most real-time signals have no name
    return f"ended by signal {name}"
