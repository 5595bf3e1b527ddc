"""Runs a program that mail is given to; whether it took it is for `reasons` to say."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from engine.mail.model import NotSent, Reason
from engine.system import supervisor
from engine.system.supervisor import GRACE, CannotRun, Program, Ran
from engine.system.users import Account, login
from engine.text.safe import shown

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for, by us and by those that we run: whoever starts us has no say."""

HANDED_ON = ("HOME", "LOGNAME", "TZ", "USER", "XDG_CONFIG_HOME")
"""Of our environment, what a program is given: where its own configuration lies, and the time zone.
All else stays here; among it is the relay's password."""


def environment(
    environ: Mapping[str, str] = os.environ, account: Account | None = None
) -> dict[str, str]:
    """The whole environment of a program that we start: `HANDED_ON`, a fixed PATH, C.UTF-8.

    Mail programs and handlers get it. `account` is whom the program is run as; None: as we are.
    """
    ours = login(account, environ)
    kept = {name: ours[name] for name in HANDED_ON if name in ours}
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", **kept}


def found(name: str) -> str:
    """The path of an installed program; "" when there is none."""
    paths = (f"{folder}/{name}" for folder in PATH.split(":"))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


def run(
    argv: Sequence[str],
    stdin: bytes,
    timeout: float,
    cancelled: Callable[[], bool],
    env: Mapping[str, str] | None = None,
    *,
    pass_fds: Collection[int] = (),
    grace: float = GRACE,
    account: Account | None = None,
) -> Ran:
    """Run a program that is given a mail on standard input, as `engine.system.supervisor.run` does.

    A program that cannot be killed is abandoned 2 x `grace` seconds after its timeout. What a
    program leaves behind when it ends well may go on for `grace` seconds, while it has the output
    open: a script that hands the mail on in the background has said that it was taken.

    Raises:
        NotSent: it cannot be started, or not be followed.
    """
    env = environment() if env is None else env
    program = Program(argv, env, stdin, "/", pass_fds, account, grace)
    try:
        return supervisor.run(program, timeout, cancelled, linger=grace, abandon=True)
    except CannotRun as error:
        verb = "follow" if error.started else "start"
        word = "unavailable_not_followed" if error.started else "unavailable_not_started"
        text = shown(f"cannot {verb} {argv[0]}: {error}")
        raise NotSent(Reason.UNAVAILABLE, word, text) from error
