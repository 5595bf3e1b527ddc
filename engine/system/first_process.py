"""Be the first process (PID 1) of a container: start the program as a child, reap all others.

The kernel gives each orphan of a PID namespace to its first process. If that does not wait for
them, each stays a zombie until the container ends, and at last no process can be started."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

_PASSED_ON = tuple(
    getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
)

_FROM_TERMINAL = 0x80
"""si_code SI_KERNEL: the terminal has sent it to the child too."""


def exit_code_of_child() -> int | None:
    """Fork (fork(2)): None in the child, which goes on as the program. The first process passes
    signals on to it, reaps every child with waitpid(2), and returns its exit code."""
    waited = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return None
    while True:
        info = signal.sigwaitinfo(waited)
        if info.si_signo != signal.SIGCHLD:
            if info.si_code != _FROM_TERMINAL or info.si_signo == signal.SIGHUP:
                os.kill(child, info.si_signo)
            continue
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    code = os.waitstatus_to_exitcode(ended[1])
                    return code if code >= 0 else 128 - code
