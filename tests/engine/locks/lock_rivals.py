"""Holders and breakers of one lock, in processes of their own, over as many rounds as it takes.

    unshare --pid --fork --mount-proc --kill-child .venv/bin/python -m
    tests.engine.locks.lock_rivals GAME ...

`rivals LOCKFILE COUNT`: two breakers at once, COUNT times.
`twists LOCKFILE [TWIST ...]`: one breaker, stopped before each system call that it makes, while
things take another turn; every TWIST at each call, or those joined by a comma by turns.
`"numbered one" LOCKFILE`: locks that name PID 1.

Best played in a PID namespace of its own, as above: there numbers can be given to others. It ends
with "N rounds", or with what went wrong.
"""

import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TextIO

from engine.locks import lock_breaker, lock_file, queue_lock
from tests.lock_processes import AN_HOUR_ON, THRESHOLD, Impatient, later, true_claim, written

SYSTEM_CALLS = ("posix", "fcntl", "_signal", "select", "time")
"""Modules whose functions are system calls,"""

NO_CALLS = ("fspath", "sysconf", "fsencode", "_exit", "time", "clock_gettime")
"""but for these."""


class Actor:
    """A child that does one thing for each line. It blocks all signals, so that one which it gets
    stays on record, or ends it if it is SIGKILL."""

    def __init__(self) -> None:
        our_end, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            try:
                _play(theirs)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        with our_end:
            self._line = our_end.makefile("rw")
        self._is_there = True
        self.last: list[str] = []

    def tell(self, *words: str) -> None:
        """Let it begin, or go on."""
        _say(self._line, *words)

    def hear(self) -> list[str]:
        """What it says next; [] once it has ended."""
        line = self._line.readline()
        return [str(word) for word in json.loads(line)] if line else []

    def ask(self, *words: str) -> list[str]:
        """Have it do something; what came of it stays in `last`."""
        self.tell(*words)
        self.last = self.hear()
        return self.last

    @property
    def has_it(self) -> bool:
        """Whether it got the lock when it was asked to take it."""
        return self.last[:1] == ["lock"]

    def is_unharmed(self) -> bool:
        """Whether it lives and has got no signal."""
        try:
            self.tell("signals")
            return self.hear() == ["none"]
        except (BrokenPipeError, ConnectionResetError):
            return False

    def die(self) -> None:
        """End it, and do not wait for it: a zombie."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        """End it, if it is still there; then its number is free."""
        if self._is_there:
            self.die()
            os.waitpid(self.pid, 0)
            self._is_there = False


def _say(line: TextIO, *words: str) -> None:
    line.write(json.dumps(words) + "\n")
    line.flush()


def _play(peer: socket.socket) -> None:
    """Be an actor, as long as a process listens."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    # No other process has the line, or its other end would not be missed; and nothing that our
    # parent left unused may close a number later that is another file's by then.
    gc.freeze()
    os.closerange(3, peer.fileno())
    os.closerange(peer.fileno() + 1, 256)
    line = peer.makefile("rw")
    lock: queue_lock.PidLock | None = None
    while told := line.readline():
        act, *words = json.loads(told)
        if act == "signals":
            got = sorted(signal.sigpending())
            _say(line, *(map(str, got) if got else ["none"]))
        elif act == "be two":
            _number_next(int(words[0]))
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            _say(line, "two")
        elif act == "release":
            assert lock is not None
            lock.release()
            _say(line, "released")
        else:
            lock = _hold(line, *words) if act == "hold" else _break(line, *words)


def _hold(line: TextIO, path: str, manner: str, seconds: str) -> queue_lock.PidLock | None:
    """Take the lock, so many seconds from now; be plain, deaf or polite when SIGTERM comes."""
    try:
        lock = queue_lock.acquire_lock(path, THRESHOLD, **later(float(seconds)))
    except queue_lock.LockBusy as busy:
        _say(line, "LockBusy", str(busy))
        return None
    if manner == "polite":

        def leave(*_: object) -> None:
            lock.release()
            os._exit(0)

        signal.signal(signal.SIGTERM, leave)
    if manner != "deaf":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    _say(line, "lock")
    return lock


def _break(line: TextIO, path: str, at: str) -> queue_lock.PidLock | None:
    """Free the lock, an hour on; say so before the system call of that number, and wait then."""
    calls = 0

    def stop(frame: FrameType, event: str, function: object) -> None:
        nonlocal calls
        if event != "c_call" or not _is_system_call(function):
            return
        calls += 1
        if calls == int(at):
            _say(line, "stopped", getattr(function, "__name__", ""))
            line.readline()

    lines: list[str] = []
    how = {"say": lines.append, "wait": Impatient(), **AN_HOUR_ON}
    sys.setprofile(stop if at != "0" else None)
    try:
        lock = lock_breaker.free_lock(path, THRESHOLD, **how)  # type: ignore[arg-type]
    except (queue_lock.LockBusy, lock_breaker.UnsafeToSignal) as why:
        sys.setprofile(None)
        _say(line, type(why).__name__, str(why), *lines)
        return None
    finally:
        sys.setprofile(None)
    _say(line, "lock", lock.taken_over, *lines)
    return lock


def _is_system_call(function: object) -> bool:
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or type(owner).__module__
    return module in SYSTEM_CALLS and getattr(function, "__name__", "") not in NO_CALLS


def _twist(name: str, path: str, worker: Actor, other: Actor) -> tuple[Actor, ...]:
    """Change the holder while a breaker is stopped; the actors that joined."""
    if name == "another breaker":  # which does all of it meanwhile
        other.ask("break", path, "0")
        return (other,)
    if name == "zombie":
        worker.die()
        return ()
    if name == "releases":  # in good order, if it is not dead yet: its lock file is gone
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.tell("release")
            worker.hear()
    worker.end()
    if name in ("ends", "releases"):
        return ()
    if name.endswith("given away"):
        _number_next(worker.pid)
    newcomer = Actor()
    assert newcomer.pid == worker.pid or not name.endswith("given away"), "not given away"
    if name in ("replaced", "number and lock given away"):  # to a holder, running an hour on
        newcomer.ask("hold", path, "deaf", "3600")
    if name == "number given to a thread":  # there is no process of that number any more
        assert newcomer.ask("be two", str(worker.pid)) == ["two"]
        newcomer.last = []
        thread = Path(f"/proc/{newcomer.pid}/task/{worker.pid}")
        assert thread.exists(), "the number was not given away"
    return (newcomer,)


def _number_next(pid: int) -> None:
    """Have the kernel give this number to what is started next, in this PID namespace."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))


TWISTS = ["ends", "releases", "zombie", "replaced", "another breaker", "number given away"]
TWISTS += ["number and lock given away", "number given to a thread"]


def rivals(path: str, count: int) -> int:
    """Two breakers at once: in each round one of them wins, and only the holder is signalled."""
    bystander, *both = (Actor() for _ in range(3))
    for number in range(count):
        worker = Actor()
        worker.ask("hold", path, ("plain", "deaf", "polite")[number % 3], "0")
        assert worker.has_it, worker.last
        for one in both[:: 1 - number % 2 * 2]:
            one.tell("break", path, "0")
        for one in both:
            one.last = one.hear()
        winner = _winner(both, worker.pid, path)
        assert all(actor.is_unharmed() for actor in (bystander, *both)), both
        winner.ask("release")
        worker.end()
    return count


def numbered_one(path: str) -> int:
    """Locks that name PID 1, which is this process and has every signal of its own on record."""
    assert os.getpid() == 1, "only in a PID namespace of its own"
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    one, now, alone = Actor(), int(time.time()), ["UnsafeToSignal", "PID 1 is never signalled"]
    claim, gone = lock_file.format_claim(true_claim(1)), f"1\n{now - 7200}\n"
    rounds = (
        # a lock file, whether PID 1 has its flock, and the result
        (f"1\n{now}\n", False, alone),
        (f"1\n{now}\n", True, alone),
        (claim, False, ["lock", "PID 1 released it"]),
        (claim, True, alone),
        (gone, False, ["lock", "PID 1 is gone"]),  # of an earlier run of this container
    )
    for text, flocked, outcome in rounds:
        written(Path(path), text, age=7200 if text == gone else 0)
        with Path(path).open("rb") as file:
            if flocked:
                fcntl.flock(file, fcntl.LOCK_EX)
            assert one.ask("break", path, "0") == outcome, (text, flocked, one.last)
        if one.has_it:
            one.ask("release")
    assert not signal.sigpending(), signal.sigpending()
    return len(rounds)


def twists(path: str, *names: str) -> int:
    """One breaker, and at each of its system calls each twist; those joined by "," take turns."""
    breaker, other, bystander = Actor(), Actor(), Actor()
    played = 0
    for name in names or TWISTS:
        turns = name.split(",")
        for at in count(1):
            if not _twisted(path, turns[at % len(turns)], at, (breaker, other, bystander)):
                break
        assert at > 100, f"no more than {at} system calls: they are not seen"
        played += at
    return played


def _twisted(path: str, name: str, at: int, actors: tuple[Actor, Actor, Actor]) -> bool:
    """Play one round; whether the breaker made so many system calls."""
    worker, (breaker, other, _) = Actor(), actors
    worker.ask("hold", path, "deaf", "0")
    assert worker.has_it, worker.last
    stopped = breaker.ask("break", path, str(at))
    is_stopped, newcomers = stopped[:1] == ["stopped"], tuple[Actor, ...]()
    if is_stopped:
        newcomers = _twist(name, path, worker, other)
        breaker.ask("go on")
    where = f"{name} at {at}, {stopped}: {breaker.last}, {[one.last for one in newcomers]}"
    winner = _winner([breaker, *newcomers], worker.pid, path, where)
    for actor in (*actors, *newcomers):
        assert actor.is_unharmed(), f"PID {actor.pid} was signalled; {where}"
    winner.ask("release")
    for actor in (worker, *newcomers):
        if actor is not other:
            actor.end()
    assert not Path(path).exists(), where
    return is_stopped


def _winner(actors: list[Actor], pid: int, path: str, where: str = "") -> Actor:
    """Who has the lock, by their own words and by the file's; the others must say why not, and none
    reports a signal to another process than that of this PID."""
    outcomes = f"{[actor.last for actor in actors]}; {where}"
    winners = [actor for actor in actors if actor.has_it]
    assert len(winners) == 1, outcomes
    assert Path(path).read_text().split()[0] == str(winners[0].pid), outcomes
    for actor in actors:
        assert not actor.last or actor.last[0] in ("lock", "LockBusy", "UnsafeToSignal"), outcomes
        for step in actor.last[2:]:
            assert step.endswith(f"PID {pid}") or step == f"PID {pid} has ended", outcomes
    return winners[0]


GAMES: dict[str, Callable[..., int]] = {
    "rivals": lambda path, count: rivals(path, int(count)),
    "twists": twists,
    "numbered one": numbered_one,
}

if __name__ == "__main__":
    sys.stdout.write(f"{GAMES[sys.argv[1]](*sys.argv[2:])} rounds\n")
