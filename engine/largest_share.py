"""The sender or account that most of the waiting mail is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.model import State


class LargestShare(NamedTuple):
    """The sender or account with the most waiting mails."""

    by: str
    """`sender` or `account`, as keys of `group_counts.GROUP_COLUMNS`."""
    name: str
    mails: int
    total: int
    """Number of all waiting mails, in the states `WAITING_STATES`."""


WAITING_STATES = (State.PENDING, State.ACTIVE)
"""Mail waits in these for its delivery: a mail server may claim thousands, and deliver some."""


def find_largest(senders: Mapping[str, int], accounts: Mapping[str, int]) -> LargestShare | None:
    """The largest share, from the number of waiting mails by sender and by account, "" for those
    without; None without any. An account may use several senders."""
    total = sum(senders.values())
    shares = [
        LargestShare(by, name, number, total)
        for by, numbers in (("sender", senders), ("account", accounts))
        for name, number in numbers.items()
        if name
    ]
    return max(shares, key=lambda share: share.mails, default=None)
