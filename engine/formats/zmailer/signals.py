"""Signals of a scheduler: its loop reads them as requests from a descriptor (scheduler(8zm))."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Mapping
from enum import StrEnum


class SignalRequest(StrEnum):
    """What a signal asks for."""

    REOPEN_LOGS = "reopen the logs"
    EXIT = "exit"
    SLOW_STOP = "exit after all agents have ended"
    CHECK_NOW = "check the work now"
    REREAD = "read the configuration again"
    DUMP = "write the state to the rendezvous file"


REQUESTS: Mapping[int, SignalRequest] = {
    signal.SIGHUP: SignalRequest.REOPEN_LOGS,
    signal.SIGTERM: SignalRequest.EXIT,
    signal.SIGINT: SignalRequest.EXIT,
    signal.SIGQUIT: SignalRequest.SLOW_STOP,
    signal.SIGALRM: SignalRequest.CHECK_NOW,
    signal.SIGUSR1: SignalRequest.REREAD,
    signal.SIGUSR2: SignalRequest.DUMP,
}


class SignalReader:
    """Collects signals from its start to its `close`; only one may be open in a process."""

    def __init__(self) -> None:
        self._receiver, sender = socket.socketpair()
        self._sender = sender
        for one in (self._receiver, sender):
            one.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _note) for number in REQUESTS}

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._receiver.fileno()

    def read(self) -> Iterator[SignalRequest]:
        """Yield each request once, in the order of the first signals."""
        try:
            data = self._receiver.recv(4096)
        except BlockingIOError:
            return
        yield from dict.fromkeys(REQUESTS[number] for number in data if number in REQUESTS)

    def close(self) -> None:
        """Handle signals as before."""
        for number, old in self._old.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(self._old_fd)
        self._receiver.close()
        self._sender.close()


def _note(*_: object) -> None:
    """A handler that does nothing: the number is written to the descriptor."""
