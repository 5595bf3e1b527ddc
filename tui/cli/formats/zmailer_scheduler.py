"""The command `spooldeck zmailer scheduler`: the queue scheduler of a ZMailer spool."""

from __future__ import annotations

import argparse
import os
import random
import time

from engine.store import Unavailable
from engine.text.safe import safe_line
from engine.version import VERSION
from engine.zmailer.environment import ZmailerSettings
from engine.zmailer.options import WrongOption, parse_options
from engine.zmailer.scheduler.process import Clocks, SchedulerProcess
from tui.cli.setup.errors import EX_CONFIG, EX_USAGE, fail
from tui.cli.setup.setup import Setup

_MAX_TEXT_BYTES = 4096


def scheduler(setup: Setup, arguments: argparse.Namespace) -> int:
    """Run the scheduler, in the background unless an option keeps it in the foreground."""
    try:
        options = parse_options(arguments.words)
    except WrongOption as wrong:
        fail(EX_USAGE, safe_line(str(wrong)))
    if options.shows_version:
        print(f"spooldeck zmailer scheduler {VERSION}", flush=True)
    report = _detach() if options.detaches else None
    try:
        clocks = Clocks(time.time, time.monotonic)
        environ = dict(os.environ)
        process = SchedulerProcess(options, ZmailerSettings(), environ, clocks, random.Random())
    except Unavailable as error:
        if report is None:
            fail(EX_CONFIG, safe_line(str(error)))
        os.write(report, safe_line(str(error)).encode())
        return EX_CONFIG
    try:
        if report is not None:
            _end_detaching(report)
        process.run()
    finally:
        process.close()
    return 0


def _detach() -> int:
    """Go on in a new process in a session of its own. The old one ends when the descriptor that is
    returned is closed: with an error if a text was written to it."""
    theirs, ours = os.pipe()
    if os.fork() == 0:
        os.close(theirs)
        os.setsid()
        return ours
    os.close(ours)
    text = os.read(theirs, _MAX_TEXT_BYTES).decode()
    if text:
        fail(EX_CONFIG, text)
    os._exit(0)


def _end_detaching(report: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    os.close(report)
