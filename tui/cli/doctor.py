"""`doctor`: everything that is wrong with a place, each with the command that mends it."""

from __future__ import annotations

import os
import shlex
import time
from argparse import Namespace

from engine import doctor as checks
from engine import patient
from tui.cli.wiring import Fail, Setup

WELL, ATTENTION = 0, 1


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Look, and say what was found; exit 0 when nobody has to act, else 1. Changes nothing."""
    findings = []
    for name, finding in checks.examine(_patient(setup)):
        print("\n".join(checks.line(name, finding)))
        findings.append(finding)
    return ATTENTION if checks.needs_act(findings) else WELL


def _patient(setup: Setup) -> patient.Patient:
    now = time.time()
    queue = setup.queue
    return patient.Patient(
        queue=queue,
        handlers={kind: _program(setup, kind) for kind in setup.config.handlers},
        claimed=setup.handled,
        spooldeck=_spooldeck(setup),
        config=setup.config.path,
        lock=setup.examine_lock(),
        now=now,
        sight=patient.walk(setup.open, now),
        seen=patient.found_at(patient.paths_of(queue)),
    )


def _program(setup: Setup, kind: str) -> patient.Program:
    argv = setup.config.handlers[kind].command
    try:
        return patient.Program(argv, setup.account(kind))
    except Fail as failure:
        return patient.Program(argv, None, str(failure))
    except OSError:
        return patient.Program(argv, None)  # whose queue it is cannot be seen; other checks say so


def _spooldeck(setup: Setup) -> str:
    words = ["spooldeck", "--root", setup.queue.root]
    if setup.config.path:
        words += ["--config", os.path.abspath(setup.config.path)]
    return shlex.join(words)
