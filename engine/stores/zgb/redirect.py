"""The test mode that sends users' mails elsewhere, but only outside the registration period."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import NamedTuple

LONGEST = 64
"""Characters that an address may have before its @ (RFC 5321, 4.5.3.1.1)."""

UNDECIDABLE = "redirect guard undecidable"
"""What stands as the error of a user's job that waits until somebody can tell if it is a test."""


class Period(NamedTuple):
    """When registrations are taken in earnest; epoch seconds UTC."""

    start: float
    end: float
    """The first moment after it."""

    def holds(self, moment: float) -> bool:
        """Whether a moment lies in it; both of its days count in full."""
        return self.start <= moment < self.end


class RedirectDecision(StrEnum):
    """Where a mail goes."""

    PLAIN = "plain"
    """To whom it is meant for."""
    REDIRECTED = "redirected"
    UNDECIDABLE = "undecidable"
    """Nowhere now: nobody can know whether it is a test."""


def period(start: str | None, end: str | None, zone: tzinfo) -> Period | None:
    """The period from the first of two days (YYYY-MM-DD) to the end of the second.

    None where one is missing or unreadable, or they stand in the wrong order: nobody may guess.
    """
    try:
        first, last = date.fromisoformat(start or ""), date.fromisoformat(end or "")
        after = last + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
    if first > last:
        return None
    begins, ends = (datetime.combine(day, time(), zone).timestamp() for day in (first, after))
    return Period(begins, ends)


def way(
    switched: bool, kind: str, created: float | None, now: float, during: Period | None
) -> RedirectDecision:
    """Where a mail goes that was enqueued at `created` and is sent `now` (epoch seconds UTC).

    Both must lie outside the period: by the time of sending alone a confirmation that is still
    being retried when the period ends would go to the test address. Of what was `created` nobody
    knows when (None) that is to be feared.
    """
    if not switched or kind != "user":
        return RedirectDecision.PLAIN
    if during is None:
        return RedirectDecision.UNDECIDABLE
    if during.holds(now):
        return RedirectDecision.PLAIN
    if created is None:
        return RedirectDecision.UNDECIDABLE
    return RedirectDecision.PLAIN if during.holds(created) else RedirectDecision.REDIRECTED


def address(to: str, target: str) -> str:
    """Where a redirected mail goes: `target`, or in a bare domain a local part that tells who it
    was for: `a@b.org` becomes `a=b.org@schumbi.de`. What is too long for that is cut.
    """
    if "@" in target:
        return target
    return f"{to.replace('@', '=')[:LONGEST].rstrip('.')}@{target}"
