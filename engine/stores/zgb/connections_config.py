"""Their settings: a table of keys and values beside the queue."""

from __future__ import annotations

from typing import NamedTuple

from engine.stores.zgb import redirect
from engine.stores.zgb.connection import Connection
from engine.stores.zgb.redirect import Period
from engine.stores.zgb.schema import TableShape

ENABLED = "mailQueueEnabled"
RATE = "mailMaxPerHour"
REDIRECT = "mailRedirectToSchumbi"
TOKENS = "mailTokens"
REFILLED = "mailLastRefill"
START = "startDate"
END = "endDate"

MOVED = "spooldeckMove"
"""The one key of ours: which of our moves between the two databases was the last to be committed.
Two files cannot be committed in one step in every journal mode, so it is theirs that decides."""

_KEYS = (ENABLED, RATE, REDIRECT, TOKENS, REFILLED, START, END, MOVED)


class QueueConfig(NamedTuple):
    """The settings as they stood when they were read; None where one is not set."""

    enabled: bool
    rate: str | None
    redirected: bool
    tokens: str | None
    refilled: str | None
    start: str | None
    end: str | None
    moved: str
    """"" when nothing of ours ever moved."""

    def period(self, shape: TableShape) -> Period | None:
        """The registration period; None when it cannot be told."""
        return redirect.period(self.start, self.end, shape.period_zone)


def load(wire: Connection) -> QueueConfig:
    """The settings as they stand now; raises as `Wire.run`."""
    marks = ", ".join("?" * len(_KEYS))
    rows = wire.run(f"SELECT key, value FROM config WHERE key IN ({marks})", _KEYS)
    said = {str(key): None if value is None else str(value) for key, value in rows}
    return QueueConfig(
        _is_on(said.get(ENABLED)),
        said.get(RATE),
        _is_on(said.get(REDIRECT)),
        said.get(TOKENS),
        said.get(REFILLED),
        said.get(START),
        said.get(END),
        said.get(MOVED) or "",
    )


def _is_on(value: str | None) -> bool:
    return (value or "").strip() == "1"


def put(wire: Connection, key: str, value: str) -> None:
    """Set one; within a transaction. No unique key is relied on."""
    if not wire.change("UPDATE config SET value = ? WHERE key = ?", (value, key)):
        wire.change("INSERT INTO config (key, value) VALUES (?, ?)", (key, value))
