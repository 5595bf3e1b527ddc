"""Run a program that gets a mail on standard input; `failure_reasons` interprets its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.mail.model import NotSent, Reason
from engine.system.run_program import environment
from engine.system.users import Account
from engine.text.safe import safe_line

if TYPE_CHECKING:
    from engine.system.supervisor import ProgramResult

NOT_STARTED = "unavailable_not_started"
"""The word of `NotSent` if no instruction of the program has run."""


def run(
    argv: Sequence[str],
    stdin: bytes,
    timeout: float,
    cancelled: Callable[[], bool],
    env: Mapping[str, str] | None = None,
    *,
    pass_fds: Collection[int] = (),
    grace: float | None = None,
    account: Account | None = None,
) -> ProgramResult:
    """Run a program with a mail on standard input, as `engine.system.supervisor.run` does.

    A program that cannot be killed is abandoned 2 x `grace` (5) seconds after its timeout. After a
    successful end, child processes that keep the output open may run for `grace` more seconds: a
    script may pass the mail on in the background.

    Raises:
        NotSent: it cannot be started or supervised.
    """
    from engine.system import supervisor  # many commands only ask which programs there are

    env = environment() if env is None else env
    grace = supervisor.KILL_DELAY_SECONDS if grace is None else grace
    program = supervisor.Program(
        argv, env, stdin, cwd="/", pass_fds=pass_fds, account=account, grace=grace
    )
    try:
        return supervisor.run_supervised(program, timeout, cancelled, linger=grace, abandon=True)
    except supervisor.CannotRun as error:
        verb = "follow" if error.started else "start"
        word = NOT_STARTED if error.is_lack else "unavailable_usage"  # a fault of this mail
        if error.started:
            word = "unavailable_not_followed"
        text = safe_line(f"cannot {verb} {argv[0]}: {error}")
        raise NotSent(Reason.UNAVAILABLE, word, text) from error
