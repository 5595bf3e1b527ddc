"""The sender or account that most of the waiting mail is of."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model import State
from engine.values import NamedTuple


class LargestShare(NamedTuple):
    """The sender or account with the most waiting mails."""

    by: str
    """`sender` or `account`, as keys of `group_counts.GROUP_COLUMNS`."""
    name: str
    mails: int
    total: int
    """Number of all waiting mails, in the states `WAITING_STATES`."""
    is_partial: bool = False
    """True if there may be more `mails`: the accounts of some are not read yet."""


WAITING_STATES = (State.PENDING, State.ACTIVE)
"""Mail waits in these for its delivery: a mail server may claim thousands, and deliver some."""


def find_largest(
    senders: Mapping[str, int], accounts: Mapping[str | None, int]
) -> LargestShare | None:
    """The largest share, from the number of waiting mails by sender and by account, "" for those
    without, None for those whose account is not read; None without any. An account may use several
    senders."""
    total, is_partial = sum(senders.values()), None in accounts
    shares = [LargestShare("sender", *one, total) for one in senders.items() if one[0]]
    shares += [
        LargestShare("account", name, number, total, is_partial)
        for name, number in accounts.items()
        if name
    ]
    return max(shares, key=lambda share: share.mails, default=None)
