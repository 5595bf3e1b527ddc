"""Signals to a scheduler."""

from __future__ import annotations

import signal

from engine.formats.zmailer.scheduler.process import SignalReader, SignalRequest


def test_each_signal_is_a_request() -> None:
    """Several of one kind are one request; their handlers are restored at the end."""
    before = signal.getsignal(signal.SIGUSR1)
    reader = SignalReader()
    try:
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
            signal.raise_signal(number)
        assert list(reader.read()) == [
            SignalRequest.REREAD,
            SignalRequest.REOPEN_LOGS,
            SignalRequest.SLOW_STOP,
        ]
        assert list(reader.read()) == []
    finally:
        reader.close()
    assert signal.getsignal(signal.SIGUSR1) is before
