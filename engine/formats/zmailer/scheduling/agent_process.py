"""Start an agent and talk with it: a socket pair as its standard input and output, read and written
without blocking. Its end is seen by pidfd, so that only this process is ever signalled."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Generic

from engine.formats.zmailer.scheduling.agent_lines import AgentText
from engine.formats.zmailer.scheduling.agent_talk import AgentTalk, Answered, J, NothingToDo, Ready
from engine.system import supervisor
from engine.system.supervisor import CannotRun, Program
from engine.system.users import Account, account_named
from engine.text.error_text import error_text

READ_BYTES = 64 << 10
"""Bytes that are read from one agent before the others get their turn."""

LAST_READ_BYTES = 256 << 10
"""Bytes that are read after the end of an agent: the socket holds less. A child of the agent may
still have the socket, and write without end."""

MAX_ERROR_LINE = 4096
"""Bytes of a line on standard error that are waited for."""

PIPE_BYTES = 1 << 20
"""Bytes of errors that an agent can write between two turns of the scheduler."""

MAX_STARTS_PER_SECOND = 30
OPEN_FILES = 32
"""Limit of open files of an agent (options -R and -N of scheduler(8zm))."""

PASSED_VARIABLES = ("TZ", "PATH", "ZCONFIG")
_DEFAULT_PATH = "/usr/bin:/bin"


# ---- what to start


def agent_program(
    command: str, channel: str, host: str, zenv: Mapping[str, str], account: Account | None
) -> Program:
    """Make the program of a `command`: leading NAME=VALUE words are its environment, a name without
    a slash is a file in $MAILBIN/ta, and $host, $channel, ${host}, ${channel} and ${NAME} of `zenv`
    are replaced. Words are split at blanks; there are no quotes. Raises CannotRun: no program, an
    unknown name, a host that would be read as an option."""
    names = {**zenv, "host": host, "channel": channel}
    words = [_expand(word, names) for word in command.split()]
    count = next((at for at, raw in enumerate(command.split()) if "=" not in raw), len(words))
    env = {"PATH": _DEFAULT_PATH, **{name: zenv[name] for name in PASSED_VARIABLES if name in zenv}}
    env |= dict(word.split("=", 1) for word in words[:count])
    argv = words[count:]
    if not argv:
        raise CannotRun(f"command={command}: names no program")
    if "/" not in argv[0]:
        if "MAILBIN" not in zenv:
            raise CannotRun(f"{argv[0]}: is a file in $MAILBIN/ta, and MAILBIN is not set")
        argv[0] = f"{zenv['MAILBIN']}/ta/{argv[0]}"
    if any("\0" in word for word in (*argv, *env.values())):
        raise CannotRun(f"{argv[0]}: a NUL byte in its arguments")
    return Program(argv, env, account=account)


_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def _expand(word: str, names: Mapping[str, str]) -> str:
    """Replace the names in a word of a command; a name without braces counts only alone."""
    if word in ("$host", "$channel"):
        word = f"${{{word[1:]}}}"
    for name in _VARIABLE.findall(word):
        if name not in names:
            raise CannotRun(f"{word}: ${{{name}}} is not set")
    expanded = _VARIABLE.sub(lambda match: names[match[1]], word)
    if expanded.startswith("-") and not word.startswith("-"):
        raise CannotRun(f"{word}: {expanded} would be read as an option")
    return expanded


def agent_account(user: str, group: str) -> Account | None:
    """The user and group of an agent, by name or number, without other groups; None if we are not
    root, which cannot change them. Raises CannotRun: there is no such user or group."""
    if os.geteuid() != 0:
        return None
    import grp

    try:
        uid = int(user) if user.isdecimal() else account_named(user).uid
        gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise CannotRun(f"user={user} group={group}: {error.args[0]}") from None
    return Account(uid, gid, (gid,), user, "/")


class StartRate:
    """At most so many starts in any second."""

    def __init__(self, limit: int = MAX_STARTS_PER_SECOND) -> None:
        self._times: deque[float] = deque(maxlen=max(1, limit))

    def allow(self, now: float) -> bool:
        """True if one more may start now; it is counted."""
        if len(self._times) == self._times.maxlen and now - self._times[0] < 1:
            return False
        self._times.append(now)
        return True


# ---- a running agent


def start_agent(
    program: Program,
    errors: int,
    now: float,
    *,
    open_files: int = OPEN_FILES,
    nice: int = 0,
    priority: int | None = None,
) -> Agent[J]:
    """Start an agent, in our working directory; it writes its errors to the descriptor `errors`.
    `nice` is added to our niceness, `priority` is the niceness itself. We must have no other
    threads. Raises CannotRun: it cannot be started."""
    parent_socket, child_socket = socket.socketpair()
    current = os.getpriority(os.PRIO_PROCESS, 0)
    niceness = max(-20, min(19, current + nice if priority is None else priority))

    def limit_ourselves() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
        if niceness > current:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)

    try:
        with child_socket:
            end = child_socket.fileno()
            pid = supervisor.spawn(program, end, end, errors, limit_ourselves)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        parent_socket.close()
        why = error_text(error)
        raise CannotRun(f"{program.argv[0]}: {why}") from error
    parent_socket.setblocking(False)
    agent: Agent[J] = Agent(pid, parent_socket, now)
    if niceness < current:
        try:
            os.setpriority(os.PRIO_PROCESS, pid, niceness)  # its user may not
        except OSError as error:
            agent.warning = f"{program.argv[0]}: its niceness cannot be set: {error_text(error)}"
    return agent


class ErrorOutput:
    """What an agent writes as errors: a pipe that is read without blocking, so that one that floods
    fills no disk. The agent's end is open for reading too: if this process is killed, an agent that
    writes an error is neither signalled (SIGPIPE) nor blocked. What does not fit into the pipe
    between two turns of the scheduler is lost: the write of the agent fails (EAGAIN)."""

    def __init__(self) -> None:
        """Raises OSError: no descriptor is free."""
        self.fd, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """Where to read."""
        os.close(writer)
        try:
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            self.agent_end = os.open(f"/proc/self/fd/{self.fd}", flags)
            """What the agent gets. It stays open here: else an agent that closes its own would end
            the pipe, and an end can be read all the time."""
            with suppress(PermissionError):  # beyond the user's share of pipes it keeps 64 KiB
                fcntl.fcntl(self.agent_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            os.close(self.fd)
            raise
        self._rest = b""

    def read_lines(self) -> list[bytes]:
        """The lines that were written since the last call, at most `READ_BYTES`; the beginning of a
        line counts as one from `MAX_ERROR_LINE` bytes on."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= MAX_ERROR_LINE:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def close(self) -> list[bytes]:
        """Close it; returns the last lines."""
        lines = self.read_lines()
        os.close(self.fd)
        os.close(self.agent_end)
        return [*lines, self._rest] if self._rest else lines


class Agent(Generic[J]):
    """A running agent. The caller waits for `sock` (and to write, if `wants_write`) and `pidfd`."""

    def __init__(self, pid: int, sock: socket.socket, now: float) -> None:
        self.pid, self.sock = pid, sock
        self.pidfd = os.pidfd_open(pid)
        self.talk: AgentTalk[J] = AgentTalk(now)
        self.warning = ""
        """What did not work at its start."""
        self.status: int | None = None
        """Its exit status, or the negative number of a signal; None while it runs."""
        self.is_closed = False
        """True once it has closed its end of the socket: no more answers come."""
        self._is_shut = False

    @property
    def wants_write(self) -> bool:
        """True if lines wait until the socket takes them."""
        return bool(self.talk.output)

    @property
    def is_over(self) -> bool:
        """True if the process has ended and its last lines are handled: close it."""
        return self.status is not None and not self.talk.has_lines

    def read(self, now: float) -> Iterator[Answered[J] | NothingToDo[J] | Ready | AgentText]:
        """Read what there is, up to the bounds, and yield what it means."""
        if not self.talk.has_lines and not self.is_closed:
            self._receive(READ_BYTES)
        yield from self.talk.events(now)

    def _receive(self, limit: int) -> None:
        try:
            data = self.sock.recv(limit)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if data:
            self.talk.receive(data)
        else:
            self.is_closed = True

    def write(self, now: float) -> None:
        """Write what the socket takes; after the last line of an ended agent, shut it down. If the
        agent has closed its end, nothing more is given to it."""
        output = self.talk.output
        try:
            while output:
                del output[: self.sock.send(output)]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            output.clear()
            self.talk.feed = self.talk.feed.after_end(now)
        if self.talk.feed.ended_at is not None and not self._is_shut:
            self._is_shut = True
            with suppress(OSError):  # the other end is closed
                self.sock.shutdown(socket.SHUT_WR)

    def end(self, now: float) -> None:
        """Ask it to end: an empty line, and the end of its input."""
        self.talk.end(now)
        self.write(now)

    def stop(self, now: float) -> None:
        """Ask it to end now, at the stop of the scheduler: two empty lines, the end of its input,
        and SIGQUIT if it has no job. With one it finishes that first."""
        has_jobs = self.talk.feed.has_jobs
        self.talk.end(now, is_slow_stop=True)
        self.write(now)
        if not has_jobs:
            self.signal(signal.SIGQUIT)

    def signal(self, number: signal.Signals) -> None:
        """Signal the process, if it has not ended."""
        if self.status is None:
            with suppress(ProcessLookupError, PermissionError):  # ended; of another user
                signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> bool:
        """Take its exit status, and the lines that it left; False if it is running."""
        if self.status is None:
            end = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
            if end is None:
                return False
            self.status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
            remaining = LAST_READ_BYTES
            while remaining > 0 and not self.is_closed and self._has_input():
                self._receive(READ_BYTES)
                remaining -= READ_BYTES
            self.is_closed = True
        return True

    def _has_input(self) -> bool:
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            self.is_closed = True
            return False
        return True

    def close(self) -> None:
        """Close our descriptors."""
        self.sock.close()
        os.close(self.pidfd)
