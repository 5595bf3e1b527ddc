"""A plugin of pytest that lets what is read on threads come late, each time by another time:
`make test ARGS="-p tests.late_reads"` finds tests that depend on the order of reads.

`SPOOLDECK_LATE` is the seed (a number, 1 if not set): another one delays other reads.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from engine.live.call_thread import CallThread

MAX_SECONDS, SHARE = 0.3, 0.35
"""The longest delay, and which part of the reads is delayed."""

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
_NUMBERS = random.Random(f"{os.environ.get('SPOOLDECK_LATE', '1')} {_WORKER}")


def _delay() -> None:
    if _NUMBERS.random() < SHARE:
        time.sleep(_NUMBERS.random() ** 2 * MAX_SECONDS)


def _install() -> None:
    start, run = threading.Thread.run, CallThread.run

    def start_late(thread: threading.Thread) -> None:
        if thread.name.startswith("call"):  # those of `DaemonExecutor`, for `asyncio.to_thread`
            _delay()
        start(thread)

    async def run_late(thread: CallThread, make: Callable[[], Any]) -> Any:
        def make_late() -> Any:
            _delay()
            made = make()
            _delay()
            return made

        return await run(thread, make_late)

    patch.object(threading.Thread, "run", start_late).start()
    patch.object(CallThread, "run", run_late).start()


_install()
