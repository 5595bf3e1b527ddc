"""The keeper process of the demo: makes the demo places, starts their workers, adds traffic.

Nothing is faked: the stores of the formats add and claim the tasks, and real workers run real
programs. The keeper works until the process that started it exits; when the keeper has ended, for
any reason, its workers end and the demo's folder is deleted. What is in it is asked of the formats:
each has a `DemoPlace`, named "MODULE:CLASS" on the keeper's command line.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Protocol

from engine import verbs
from engine.demo.demo import CONFIG_FILE, FAILED, READY, describe_exit, place_address
from engine.model import Task
from engine.policy import RetryPolicy
from engine.store import Store
from engine.system import files
from engine.text.error_text import error_text
from engine.values import NamedTuple
from engine.work.outcomes import task_after_failure

MINUTE, HOUR = 60.0, 3600.0

CONFIG_HEADER = "# Settings of the demo; delays are short, so that changes are visible soon.\n"

TRAFFIC_INTERVAL_SECONDS = 0.4
"""Seconds after which more traffic is added, if the interval of a place is not longer."""

MAX_PENDING = 2000
"""Number of pending tasks at which the traffic pauses."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent has ended."""


class DemoSettings(NamedTuple):
    """What a demo place is made for."""

    folder: str
    """The demo's folder, an absolute path."""
    tasks: int
    """Number of tasks that the operator wants at the start."""
    program: Sequence[str]
    """The command line that starts this program."""
    now: float
    """Start of the demo; epoch seconds UTC."""


class DemoPlace(Protocol):
    """The places of the demo in one format, and their traffic; most formats have one place."""

    name: str
    """What messages call it."""
    interval: float
    """Seconds between two calls of `add`, at least."""
    work: Mapping[str, Sequence[str]]
    """Its places, known after `make`: path below the demo's folder, or URL, without blanks -> the
    arguments of the command that works it; () if no worker is started."""

    def make(self, settings: DemoSettings) -> Mapping[str, str]:
        """Create it in the demo's folder, with tasks from before now. Returns its configuration:
        lines of YAML by section."""
        ...

    def open(self) -> None:
        """Start its other activity; called when all other processes are running."""
        ...

    def add(self, now: float) -> None:
        """Add some traffic."""
        ...


class PastTraffic:
    """A clock that is set by the caller."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time that was set."""
        return self.now


def live_through(
    store: Store, clock: PastTraffic, retry: RetryPolicy, fate: Callable[[Task], str], until: float
) -> None:
    """Run a worker in past time: claim due tasks, then finish or fail them. `fate` returns the
    error of a task; "" if it succeeded."""
    end = verbs.given_up_state(store.edges)
    while True:
        for task in list(store.take(clock.now, "demo", MAX_PENDING)):
            error = fate(task)
            failed = task_after_failure(task, error, retry, clock.now, end)
            state = store.claim_rules.done_state
            done = None if state is None else verbs.complete(task, state)
            store.swap(task, failed if error else done)
        due = store.changes.next_due
        if due is None or due >= until:
            return
        clock.now = max(due, clock.now + 1)


def main() -> None:
    """Run as the keeper process, with the arguments from `Demo`."""
    folder, tasks, leave, names, *program = sys.argv[1:]
    try:
        run_keeper(
            DemoSettings(folder, int(tasks), program, time.time()),
            [load_demo_place(name) for name in names.split(",")],
            leave=leave == "keep",
        )
    except BaseException as error:
        _say(FAILED, _describe(error))
        raise


def load_demo_place(name: str) -> DemoPlace:
    """Import the class that a "MODULE:CLASS" text names, and return a new object of it."""
    module, class_name = name.split(":")
    place: DemoPlace = getattr(import_module(module), class_name)()
    return place


def _describe(error: BaseException) -> str:
    text = error_text(error) if isinstance(error, OSError) else repr(error)
    return " ".join(text.split())


def _say(*words: str) -> None:
    """Write a line to the process that started the demo."""
    os.write(1, f"{' '.join(words)}\n".encode("utf-8", "replace"))


def run_keeper(settings: DemoSettings, places: Sequence[DemoPlace], *, leave: bool) -> None:
    """Set the demo up, add traffic until standard input ends, then end all processes."""
    for number in ENDING_SIGNALS:
        # Only the end of standard input ends the keeper. The signals are caught, not ignored:
        # child processes would inherit ignored signals.
        signal.signal(number, lambda *_: None)
    folder = settings.folder
    alive = -1 if leave else _clear_after(folder)
    sections: dict[str, str] = {}
    for place in places:
        _say("making", place.name)
        for section, lines in place.make(settings).items():
            sections[section] = sections.get(section, "") + lines
    work = {name: arguments for place in places for name, arguments in place.work.items()}
    sections["places"] = "".join(f"  - {json.dumps(place_address(folder, n))}\n" for n in work)
    config = CONFIG_HEADER + "".join(f"{name}:\n{lines}" for name, lines in sections.items())
    config_path = f"{folder}/{CONFIG_FILE}"
    files.replace_file(config_path, config.encode())
    _say("starting workers")
    command = [*settings.program, "--config", config_path, "--root"]
    workers = {
        name: start_process([*command, place_address(folder, name), *arguments], alive)
        for name, arguments in work.items()
        if arguments
    }
    try:
        for place in places:
            place.open()
        _say(READY, *work)
        _run(places, workers)
    finally:
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _clear_after(folder: str) -> int:
    """Fork a process that deletes the folder once all copies of the descriptor are closed: by the
    keeper, which may be killed, and by the workers, which may still be writing there."""
    ended, alive = os.pipe()
    if os.fork():
        os.close(ended)
        return alive
    try:
        os.close(alive)
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.read(ended, 1)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def start_process(argv: Sequence[str], alive: int = -1) -> subprocess.Popen[bytes]:
    """Start a worker or server that gets SIGTERM when the keeper ends."""
    prctl, keeper = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:  # it has ended already: no signal will come
            os._exit(1)

    # It writes to the log, and keeps the keeper's standard output open: that ends with the last of
    # all processes.
    output = os.dup(1)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            pass_fds=(output,) if alive < 0 else (output, alive),
            preexec_fn=bind,
        )
    finally:
        os.close(output)


def _run(places: Sequence[DemoPlace], workers: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Add traffic until standard input ends, and report each worker that ends."""
    import select

    poll, reported, added_at = select.poll(), set[str](), [time.time()] * len(places)
    poll.register(0, select.POLLIN | select.POLLHUP)
    while not poll.poll(1000 * TRAFFIC_INTERVAL_SECONDS):
        now = time.time()
        for name, worker in workers.items():
            if worker.poll() is not None and name not in reported:
                reported.add(name)
                _say(FAILED, f"the worker of {name} ended: {describe_exit(worker)}")
        for number, place in enumerate(places):
            if not 0 <= now - added_at[number] < place.interval:  # or the clock was set back
                added_at[number] = now
                _try(f"traffic of {place.name}", place.add, now)


def _try(name: str, act: Callable[..., None], *arguments: object) -> None:
    """Do one act of the traffic; if it fails, report it, log the traceback, and go on. Any error:
    it must not end the other places and their workers."""
    try:
        act(*arguments)
    except Exception as error:
        _say(FAILED, f"{name}: {_describe(error)}")
        with contextlib.suppress(OSError):  # the disk is full: the line above is shown
            sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {name}\n")
            traceback.print_exc()


if __name__ == "__main__":
    main()
