"""Signals to a scheduler."""

from __future__ import annotations

import signal

from engine.formats.zmailer.signals import SignalReader, SignalWish


def test_each_signal_is_a_wish() -> None:
    """Several of one kind are one wish; their handlers are restored at the end."""
    before = signal.getsignal(signal.SIGUSR1)
    reader = SignalReader()
    try:
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
            signal.raise_signal(number)
        assert list(reader.read()) == [
            SignalWish.REREAD,
            SignalWish.REOPEN_LOGS,
            SignalWish.SLOW_STOP,
        ]
        assert list(reader.read()) == []
    finally:
        reader.close()
    assert signal.getsignal(signal.SIGUSR1) is before
