"""A place: one spool or queue the console looks at, and all that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from engine.config.queue_config import Thresholds, Trash
from engine.locks.process_stats import Vitals
from engine.locks.token_buckets import Left
from engine.model import LockEvidence
from engine.monitor.recorder import RecorderSlot
from engine.monitor.transport_health import MailBacklog, Routes, Stopped
from engine.operations.journal import Journal, Who
from engine.operations.notes import Notes
from engine.store import Store

LEASES = "none here: each claim is a lease"
"""What is said of the lock where there is none because none is needed."""

NO_WORKER = "No worker is running here: W in the queue starts one."
"""The next step where due tasks wait for a worker."""


class MailDesk(NamedTuple):
    """What can be told, and done, about the ways mail is sent by from one place; all of it blocks.

    Each of these raises `Unavailable` where it cannot be told, or done, with the reason.
    """

    stopped: Callable[[], Mapping[str, Stopped]]
    """The transports that are suspended, by name."""
    routes: Callable[[Mapping[str, Stopped]], Routes]
    """By which way mail goes when these are suspended."""
    suspend: Callable[[str, str], str]
    """Hand no mail to a transport from now on; its name, and why. Answers with what could not be
    written down about it, "" when all was."""
    resume: Callable[[str], str]
    """Let mail go by it again; answers in the same way."""
    records: Callable[[], str] = lambda: ""
    """Path of the delivery records; "" where none are kept."""
    heap: Callable[[], MailBacklog | None] = lambda: None
    """What its mail spool holds; None where there is none."""
    delivers: bool = True
    """Whether its mail tasks are sent by these ways, and not by a program of the configuration."""
    test: tuple[str, ...] = ()
    """The command that sends a test mail; empty where there is none. `--transport`, its name and
    the address are to be added."""


class PlaceFigures(NamedTuple):
    """What is to be known of a queue as a whole, in its store's words."""

    rows: tuple[tuple[str, str], ...] = ()
    """Each with its name: tokens now, when the next comes, how long what waits will take."""
    warnings: tuple[str, ...] = ()
    """What somebody should see to; each becomes an alert."""
    unknown: str = ""
    """Why nothing of that can be told now; "" where it can."""


class Place(NamedTuple):
    """What the console must know about one place; everything it may call blocks."""

    name: str
    """As the operator gave it: shown in the header."""
    open: Callable[[], Store]
    """A new store instance, for the thread that asks."""
    lock: Callable[[], LockEvidence] | None = None
    """Looks at the queue's lock; None where there is none."""
    leases: bool = False
    """Whether each claim is a lease of its own, kept by the store: then its edges alone say what
    may be done to what is claimed."""
    takes_by: str = "id"
    """The order in which its workers claim due tasks (`engine.index.backlog`); "" if unknown."""
    has_dlq: bool = True
    """Whether `queue dlq` is for it: a command for queues of the contract."""
    queue_metrics: str = ""
    """Path of the queue's metrics file; "" where there is none."""
    mail_metrics: str = ""
    """Path of the mail metrics file; "" where there is none."""
    logs: tuple[str, ...] = ()
    """Paths of the logs to follow."""
    work: tuple[str, ...] = ()
    """The command that starts a worker for this place; empty where there is none."""
    recover: tuple[str, ...] = ()
    """The command that takes its lock from a holder that is stuck or gone, as it was seen; empty
    where there is none. `LockEvidence.seen` is to be added as its last word."""
    handled: Callable[[str], bool] | None = None
    """Whether a kind of task has a handler; None when the configuration is not known."""
    shut: Callable[[str], str] | None = None
    """Why no task of a kind would be claimed now, though it has a handler, "" when one would;
    blocks. None when that is not known."""
    token_at: Callable[[str], float] | None = None
    """When a kind's bucket holds a token, in epoch seconds UTC; blocks, and raises `StoreError` or
    `OSError` where it cannot be told. None without limits."""
    command: tuple[str, ...] = ("spooldeck",)
    """How this place is named on the command line: its words before the command's."""
    runs: int | None = None
    """How often a task is run at most here; None when the configuration is not known."""
    tokens: Callable[[], Sequence[Left]] | None = None
    """What each bucket holds; None without limits."""
    alerts: Thresholds = Thresholds()
    """From where on something there is worth a look."""
    recording: RecorderSlot | None = None
    """Where its flight recorder writes; None where nothing is recorded."""
    retention_days: float | None = None
    """Days after which a dead task is deleted for good; infinite where none ever is, None where no
    configuration is known."""
    vitals: Callable[[int], Vitals] | None = None
    """Reads what a process that has the lock does now; None where that cannot be told."""

    journal: Journal | None = None
    """Where what operators do there is written down; None where that is kept nowhere."""
    who: Who = Who("?")
    """Who we are, for that."""
    notes: Notes | None = None
    """What operators wrote down about its tasks; None where that is kept nowhere."""
    root: str = ""
    """The data folder, below which no symbolic link is followed; "" where there is none."""

    trash: Trash | None = None
    """What its trash may hold, and for how long; None where no configuration is known."""
    sweep: Callable[[], str] | None = None
    """Deletes for good what has lain in its trash for too long; answers with what went wrong, in
    words. None where nothing sweeps it."""

    mail: MailDesk | None = None
    """How mail is sent from there; None where that is not known."""

    facts: Callable[[], PlaceFigures] | None = None
    """Looks at what is to be known of the queue as a whole; raises `StoreError` or `OSError` where
    it cannot be told. None where there is nothing."""

    lingering: Callable[[], int | None] = lambda: None
    """A process that works there though its lock file was removed; it looks at every process."""

    def no_mail(self, read_only: bool) -> str:
        """Why no transport can be suspended or tried on screen; "" when one can."""
        if read_only:
            return "read only: this console was started with --read-only"
        return "" if self.mail is not None else "nothing is known here of how mail is sent"

    def no_unlock(self, read_only: bool) -> str:
        """Why its lock cannot be freed on screen; "" when it can."""
        if read_only:
            return "read only: no lock is freed from here"
        if self.lock is None:
            return LEASES if self.leases else "this place has no lock"
        return "" if self.recover else "no command is known that frees this place's lock"
