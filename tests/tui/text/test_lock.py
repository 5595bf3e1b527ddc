"""The lock line."""

from __future__ import annotations

from typing import Any

from engine.model import LockEvidence, Verdict
from tests.console_operator import words
from tests.console_places import NOW
from tests.tables import each
from tui.text.lock import lock_line
from tui.text.styles import bracket_chips


@each(("evidence", "text"), [
    ((Verdict.FREE,), "free"),
    ((Verdict.HELD, 42, NOW - 60), "PID 42, heartbeat 1m ago"),
    ((Verdict.HELD, 42, NOW - 2), "PID 42, heartbeat 2s ago"),
    ((Verdict.STUCK, 42, NOW - 7200, 7200, "too old"), "[STUCK 2h00m] PID 42, too old"),
    ((Verdict.STUCK, 42, NOW - 46, 30, "PID 42 is silent for 46s (limit 30s)"),
     "[STUCK] PID 42 is silent for 46s (limit 30s)"),
    ((Verdict.STALE, 42, None, 0, "its owner is gone"), "[STALE] PID 42, its owner is gone"),
    ((Verdict.STUCK, 42, None, 0, "PID 42 is alive"), "[STUCK] PID 42 is alive"),
    ((Verdict.UNKNOWN, None, None, None, "EACCES\x1b[2J"), "? EACCES\ufffd[2J"),
    ((), "? not examined yet"),
])  # fmt: skip
def test_the_lock_is_described_in_words(evidence: Any, text: str) -> None:
    """The lock line has the verdict, its holder and since when, and the reason of the verdict."""
    lock = LockEvidence(*evidence) if evidence else None
    assert words([bracket_chips(lock_line(lock, NOW, 100))]) == f" lock {text}"
