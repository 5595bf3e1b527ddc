"""A lock in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model import LockEvidence, Verdict
from engine.text.safe import safe_line
from tui.text.frames import NARROW_COLUMNS
from tui.text.lines import UNKNOWN_RUN, Line, StyleName, fact_line, join_ends, width_of
from tui.text.times import format_age, format_minutes

_LOCK_LOOKS = {
    Verdict.FREE: "",
    Verdict.HELD: "ok",
    Verdict.STALE: "warn",
    Verdict.STUCK: "error",
    Verdict.UNKNOWN: "unknown",
}

ALARMING_VERDICTS = frozenset({Verdict.STALE, Verdict.STUCK, Verdict.UNKNOWN})
"""Lock verdicts that are shown on every screen size."""


def lock_part(evidence: LockEvidence | None, now: float) -> Line:
    """The lock in a few words: its holder and heartbeat, or what is wrong with it."""
    if evidence is None:
        return (("lock ", "muted"), UNKNOWN_RUN, (" not examined yet", "muted"))
    verdict, pid = evidence.verdict, evidence.pid
    holder = f"PID {pid}" if pid is not None else ""
    heartbeat = f"heartbeat {format_age(now - evidence.since)}" if evidence.since else ""
    if verdict is Verdict.HELD:
        return (("lock ", "muted"), (", ".join(filter(None, [holder, heartbeat])) or "held", ""))
    if verdict is Verdict.FREE:
        return (("lock ", "muted"), ("free", ""))
    seconds = now - evidence.since if evidence.since else 0.0
    silent = f" {format_minutes(seconds)}" if seconds >= 60 else ""  # the reason has them exactly
    style = "chip-error" if verdict is Verdict.STUCK else "chip-warn"
    chip = (f" {verdict.value.upper()}{silent} ", style)
    reason = safe_line(evidence.reason)
    if not holder or not reason.startswith(f"{holder} "):
        reason = ", ".join(filter(None, [holder, reason]))
    if verdict is Verdict.UNKNOWN:
        return (("lock ", "muted"), ("? ", "unknown"), (reason or "unknown", ""))
    return (("lock ", "muted"), chip, (f" {reason}", ""))


def lock_line(
    evidence: LockEvidence | None,
    now: float,
    width: int,
    step: tuple[str, str] = ("", ""),
    more: Sequence[Line] = (),
) -> Line:
    """The lock, then the parts of `more` that fit, and the key of the next step with its word."""
    lead: Line = ((" ", ""), *lock_part(evidence, now))
    key, word = step
    if not key:
        return fact_line([lead, *more], width)
    right: Line = ((f" {key}", "key"), (f" {word} " if width >= NARROW_COLUMNS else " ", ""))
    room = width - width_of(right) - 1
    return join_ends(fact_line([lead, *more], room), right, width)


def verdict_style(verdict: Verdict) -> StyleName:
    """Style of a lock verdict."""
    return _LOCK_LOOKS[verdict]


def is_freeable(evidence: LockEvidence) -> bool:
    """True if a plan can free the lock: its holder is certainly stuck or gone."""
    return evidence.verdict in (Verdict.STUCK, Verdict.STALE) and not evidence.signal_refusal
