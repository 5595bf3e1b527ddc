"""Accounts of the messages of a mail server whose listings do not have them: which are known, and
which messages to look at next. They are read in the background, some at a time, newest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

IDS_PER_LOOK = 500
"""Messages of one look: one run of a program."""
LOOKS_PER_POLL = 4
"""Looks in the least time from one listing to the next, at most."""
RETRY_SECONDS = 600.0
"""Seconds until a look that failed is tried again: a sudo that refuses may send a mail to root."""


class MailAccounts:
    """What this process knows of one place. The stores of the place share it, on any thread: each
    step is one operation on a dict."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        """Key and account, by id."""
        self._listed: Mapping[str, bytes] = {}
        self._ordered: Mapping[str, bytes] = {}
        """The listing that `_waiting` is of."""
        self._waiting: list[str] = []
        """Messages to look at, the next one last."""
        self._described: tuple[object, str] = (None, "")
        self.why = ""
        """Why none can be read now."""

    def get(self, ident: str, identity: str) -> str | None:
        """The account of a message, "" if it has none; None: not read yet."""
        known = self._known.get(ident)
        if known is None:
            return None
        if identity.startswith(known[0]):
            return known[1]
        self._known.pop(ident, None)  # the id has returned
        return None

    def note(self, ident: str, key: str, account: str) -> None:
        """Note the account of a message. `key` is the beginning of its identity that deliveries do
        not change; another message with the same id has another one."""
        self._known[ident] = key, account
        self.why = ""

    def note_listing(self, records: Mapping[str, bytes]) -> None:
        """Note all messages of a whole listing, by id; the mapping does not change any more."""
        self._listed = records

    def take(self, order: Callable[[bytes], int]) -> list[str]:
        """Ids to look at: of the last listing, those whose account is not known, and which no call
        since then has returned; those with the largest `order` of their records first."""
        records, known = self._listed, self._known
        if self._ordered is not records:
            if len(known) > 2 * len(records):  # most are of messages that have left
                known = known.copy()  # in one step: `get` may remove one meanwhile
                self._known = known = {each: known[each] for each in records if each in known}
            self._waiting = [ident for ident in records if ident not in known]
            self._waiting.sort(key=lambda ident: order(records[ident]))
            self._ordered = records
        ids = self._waiting[: -IDS_PER_LOOK - 1 : -1]
        del self._waiting[-IDS_PER_LOOK:]
        return ids

    def describe(self) -> str:
        """What is missing, as `accounts of 500 of 20,030 read`; "" if nothing is."""
        records, known = self._listed, self._known
        state = (id(records), id(known), len(known), self.why)
        if self._described[0] != state:
            number, words = sum(ident in known for ident in records), ""
            if number < len(records):
                why = f": {self.why}" if self.why else ""
                words = f"accounts of {number:,} of {len(records):,} read{why}"
            self._described = state, words
        return self._described[1]
