"""Run the `spooldeck` command in a process forked from one that has imported it already.

A new interpreter needs most of a second of CPU to import the command; a fork of one that has done
so needs some milliseconds. `Popen` and `run` take what those of `subprocess` take. The command
still has a process of its own: its own working directory, environment, user, descriptors and
signals. Tests of the start itself, of terminals and of locales start a new interpreter.

The server is one process per test process. It gets a request and four descriptors (the three
standard streams and a socket) over a socket, forks, and answers on that socket with the PID, and
with the wait status once the process has ended and was reaped."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import inspect
import json
import os
import pkgutil
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, AnyStr, NoReturn, cast

REQUEST_BYTES = 1 << 20
SECONDS_AHEAD = "SPOOLDECK_TEST_SECONDS_AHEAD"
"""Environment variable of a command: how many seconds ahead of now it finds the clocks."""
_INTEGER = struct.Struct("q")


class Popen(subprocess.Popen[AnyStr]):
    """A running `spooldeck` command. `args` are its words, without an interpreter before them."""

    _answers: socket.socket

    def _execute_child(self, *args: object) -> None:
        # The one method of subprocess that forks and executes; the streams are made before it.
        call = inspect.signature(subprocess.Popen._execute_child).bind(self, *args)  # type: ignore[attr-defined]
        given = call.arguments
        streams: list[int] = [
            own if given[name] == -1 else given[name]
            for own, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        environment = os.environ if given["env"] is None else given["env"]
        request = {
            "words": [os.fspath(word) for word in given["args"]],
            "cwd": str(Path(given["cwd"] or ".").absolute()),
            "environment": dict(environment),
            "groups": given["gids"],
            "gid": given["gid"],
            "uid": given["uid"],
            "new_session": given["start_new_session"],
        }
        self._answers, theirs = socket.socketpair()
        with theirs:
            data = json.dumps(request).encode()
            socket.send_fds(_server(), [data], [theirs.fileno(), *streams])
        self.pid = self._receive()
        self._child_created = True
        devnull = self.__dict__.pop("_devnull", -1)
        pipes = (("p2cread", "p2cwrite"), ("c2pwrite", "c2pread"), ("errwrite", "errread"))
        for fd in {given[theirs] for theirs, own_fd in pipes if given[own_fd] != -1} | {devnull}:
            if fd != -1:
                os.close(fd)

    def _receive(self) -> int:
        data = self._answers.recv(_INTEGER.size, socket.MSG_WAITALL)
        if len(data) < _INTEGER.size:
            raise ChildProcessError("the server of the command line has ended")
        return cast(int, _INTEGER.unpack(data)[0])

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        """Return the exit code, after at most `timeout` seconds; None while it runs."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                status = self._receive()
            except (BlockingIOError, TimeoutError):
                return None
            self.returncode = os.waitstatus_to_exitcode(status)
            self._answers.close()
        return self.returncode


def run(
    words: Sequence[str | os.PathLike[str]],
    *,
    input: str | bytes | None = None,
    capture_output: bool = False,
    timeout: float | None = 60,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, as `subprocess.run` does; what it prints with --json is checked."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process: Popen[Any] = Popen(words, **options)
    with process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    if "--json" in words and out:
        from tests.json_answers import check_run

        text = out if isinstance(out, str) else out.decode()
        check_run([os.fspath(word) for word in words], text)
    return done


def run_text(*words: str | os.PathLike[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; its output and its errors are text."""
    return run(words, capture_output=True, text=True, **options)


@functools.cache
def _server() -> socket.socket:
    """Start the server of this test process; it ends when this end of the socket is closed."""
    our_end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.command", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            | {"LC_ALL": "C.UTF-8"},
        )

    def end() -> None:
        our_end.close()
        server.wait()

    atexit.register(end)
    return our_end


# ---- in the server


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request. Returns the words of a command, in the process that is to run it."""
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not requests:
                answers, pid = key.data
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                _answer(answers, status)
                answers.close()
                continue
            data, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
            if not data:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                # An object that still owned a descriptor would close that number later.
                for key in list(waiting.get_map().values()):
                    if key.data:
                        key.data[0].close()
                waiting.close()
                requests.close()
                return become(json.loads(data), fds[1:])
            for fd in fds[1:]:
                os.close(fd)
            answers = socket.socket(fileno=fds[0])
            _answer(answers, pid)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (answers, pid))


def _answer(answers: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):  # the test no longer waits for it
        answers.send(_INTEGER.pack(number))


def become(request: dict[str, Any], streams: Sequence[int]) -> list[str]:
    """Turn this fork into the process that was asked for; returns the words of its command."""
    global _ahead
    _ahead = float(request["environment"].pop(SECONDS_AHEAD, 0))
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["new_session"]:
        os.setsid()
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    random.seed()
    if request["groups"] is not None:
        os.setgroups(request["groups"])
    if request["gid"] is not None:
        os.setresgid(request["gid"], request["gid"], request["gid"])
    if request["uid"] is not None:
        os.setresuid(request["uid"], request["uid"], request["uid"])
    for name, mode, errors in (
        ("stdin", "r", "surrogateescape"),
        ("stdout", "w", "surrogateescape"),
        ("stderr", "w", "backslashreplace"),
    ):
        fd = getattr(sys, f"__{name}__").fileno()
        stream = open(fd, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        if stream.writable():
            stream.reconfigure(line_buffering=name == "stderr" or stream.isatty())  # type: ignore[attr-defined]
        setattr(sys, name, stream)
    return cast(list[str], request["words"])


_ahead = 0.0
"""Seconds by which the clocks of this process are ahead."""


def put_clocks_ahead() -> None:
    """Let the clocks be `_ahead`; to be called before the engine is imported and binds them."""
    now = time.time
    time.time = lambda: now() + _ahead
    from engine.locks import lock_file

    uptime, slept = lock_file.boot_seconds, lock_file.suspended_seconds
    lock_file.boot_seconds = lambda: uptime() + _ahead
    lock_file.suspended_seconds = lambda: slept() - _ahead


def load() -> None:
    """Import the engine and every command, and what they import only when it is needed."""
    put_clocks_ahead()
    import engine
    import tui.cli

    for package in (engine, tui.cli):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in ("difflib", "encodings.ascii", "grp", "prometheus_client.parser", "pwd", "yaml"):
        importlib.import_module(name)
    gc.freeze()


def main() -> NoReturn:
    """Serve until the other end of the socket is closed; run the command in each fork."""
    load()
    words = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv[1:] = words
    from tui.cli import main as spooldeck

    try:
        code = spooldeck(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    # As the interpreter ends, without freeing each module: that is half of the time.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
