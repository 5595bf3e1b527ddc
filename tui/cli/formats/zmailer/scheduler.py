"""The command `spooldeck zmailer scheduler`: the queue scheduler of a ZMailer spool."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress

from engine.formats.base.format import Setup
from engine.formats.zmailer.options import WrongOption, parse_options
from engine.formats.zmailer.scheduler.process import Clocks, SchedulerProcess
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import EX_CONFIG, EX_USAGE, fail
from engine.system.run_clock import RunClock
from engine.version import VERSION
from tui.cli.formats.zmailer.conf import zmailer_settings

EX_SOFTWARE = 70
"""The scheduler was killed at its start (sysexits.h)."""


def scheduler(setup: Setup, words: list[str]) -> int:
    """Run the scheduler, in the background unless an option keeps it in the foreground."""
    try:
        options = parse_options(words)
    except WrongOption as wrong:
        fail(EX_USAGE, str(wrong))
    if options.shows_version:
        print(f"spooldeck zmailer scheduler {VERSION}", flush=True)
    ready = _detach() if options.detaches else None
    try:
        process = SchedulerProcess(
            options,
            zmailer_settings(setup),
            os.environ,
            Clocks(time.time, time.monotonic, _ages),
            random.Random(),
        )
    except Unavailable as error:
        fail(EX_CONFIG, str(error))
    try:
        if ready is not None:
            _leave_terminal(process.log_fd, ready)
        process.run()
    finally:
        process.close()
    return 0


def _ages(root: str, log: Callable[[str], None]) -> Callable[[float, float], float]:
    """The ages that runs have seen at a spool; this one is noted."""

    def make_folder(path: str) -> None:
        owner = files.new_file_owner(os.stat(root))
        os.close(files.open_dir_path(path, root, make=True, owner=owner))

    clock = RunClock(f"{root}/.spooldeck", root, lambda _, text: log(text), make_folder)
    clock.age(0.0, time.time())
    return clock.age


def _detach() -> int:
    """Go on in a new process, in a session of its own and without descriptors of the caller. The
    old one ends once a byte is written to the descriptor that is returned, or with the exit status
    of the new one if that ends before.
    """
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_fd)
        os.setsid()
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # that of the listing is closed already
                if int(name) > 2 and os.get_inheritable(int(name)):
                    os.close(int(name))
        return write_fd
    os.close(write_fd)
    if os.read(read_fd, 1):
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(code if code > 0 else EX_SOFTWARE)


def _leave_terminal(log_fd: int, ready: int) -> None:
    """Write what is printed from now on to the log, and let the old process end."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd, target in ((0, null), (1, log_fd), (2, log_fd)):
        os.dup2(target, fd)
    os.close(null)
    os.write(ready, b"1")
    os.close(ready)
