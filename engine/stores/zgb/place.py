"""Where a mail queue lies and what is settled there: lease, waits, pace, redirect, zones.

The format's document leaves many values open (how long a lease lasts, in which zone times are
written as text); each of them is a setting here, and its default says why.
"""

from typing import NamedTuple

from engine.policy import RetryPolicy, stepped
from engine.system import files

KINDS = ("user", "organizer")
"""The two mails of a registration, in the order in which they are enqueued."""

LEASE = 300
"""Seconds after which a claim lapses; the document gives none. Long enough for the five mails that
a run may send at once, each with a minute to be handed over."""

WAITS = (60.0, 300.0, 900.0, 3600.0)
"""Seconds after the first failure, the second, the third, and each one after that (the document's
table of waits)."""

RUNS = 10
"""How often a mail is tried before it is parked; the document says "about 10"."""

PARKED = 253_402_300_799
"""When a parked job is due: the last second of the year 9999, epoch seconds UTC."""

FAR = 365 * 86_400.0
"""Seconds ahead from where on a failed job counts as parked, whoever parked it."""

ERROR_LIMIT = 500
"""Characters of an error that are kept; the document says only that it is cut."""


def schedule() -> RetryPolicy:
    """The document's waits: 60, 300, 900, then 3600 s; the tenth failure parks."""
    # The format counts an attempt when it is claimed, so the one that parks is counted as well.
    return RetryPolicy(stepped(WAITS, RUNS - 1), last_counts=1, runs=RUNS)


class RateLimit(NamedTuple):
    """What bounds the pace that is set in the database; mails an hour."""

    most: int = 60
    """The highest rate that counts; what is set above it is taken for it."""
    burst: int = 5
    """Mails at once after a rest; never more than an hour's."""
    default: int = 40
    """The rate where none is set: the document's own example."""


class ZgbDatabase(NamedTuple):
    """A database, and what its own settings leave open."""

    path: str
    read_only: bool = False
    rolls_back: bool = False
    """Whether a write that another user's program left unfinished is rolled back (hot journal); one
    of our own always is. For a worker; an operator who only looks is told of it."""
    zone: str = "UTC"
    """In which zone times stand that are written as text."""
    patience: float = 5.0
    """Seconds to wait for somebody else's lock."""
    durable: bool = True
    """Whether an answer waits until the disk has it."""
    lease: int = LEASE
    """Seconds."""
    retry: RetryPolicy = schedule()
    """What a lapsed lease costs; the worker is handed the same."""
    auto_retry: bool = True
    """Whether failed jobs are claimed again when they are due. The document reads as if only an
    operator could bring them back, but then its waits would mean nothing."""
    pace: RateLimit = RateLimit()
    redirect_to: str = "schumbi.de"
    """Where the test mode sends users' mails: a domain, or a whole address."""
    period_zone: str = "Europe/Berlin"
    """In which zone the days of the registration period begin and end."""
    registrations: str = "registrations"
    """The table by whose `number` a job is told to be an orphan; "": none is ever looked for."""

    @property
    def aside(self) -> str:
        """Our own database beside it: what is held, and what is in the trash.

        One for each database, by whatever link it is reached.
        """
        return f"{files.real_path(self.path)}.spooldeck"
