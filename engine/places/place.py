"""A place: one spool or queue, with the functions and paths that the console needs for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from engine.config.queue_config import Thresholds, Trash
from engine.destinations.destination import Destination
from engine.locks.process_stats import ProcessStats
from engine.locks.token_buckets import BucketState
from engine.logs.kept_output import KeptOutput
from engine.logs.log_line import LogLine
from engine.model import (
    AttemptLimit,
    ConnectedWorker,
    LockEvidence,
    State,
    Task,
    attempts_allowed,
)
from engine.monitor.latency import KindFigures
from engine.monitor.recorder import RecorderLocation
from engine.monitor.transport_health import MailBacklog, MailRoutes, TransportSuspension
from engine.operations.journal import Journal, Who
from engine.operations.notes import Notes
from engine.places.schedules import PlaceSchedules
from engine.store import Store
from engine.system.host import DiskSpace, HostFigures
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.values import NamedTuple

NO_WORKER = "no worker running"
"""Next step if due tasks wait for a worker."""


class PlaceMail(NamedTuple):
    """Functions on the mail transports of one place; all of them block. Each raises `Unavailable`,
    with the reason, if it cannot do its work."""

    suspended: Callable[[], Mapping[str, TransportSuspension]]
    """Returns the suspended transports, by name."""
    routes: Callable[[Mapping[str, TransportSuspension]], MailRoutes]
    """Returns the routes of mail while these transports are suspended."""
    suspend: Callable[[str, str], str]
    """Suspend a transport: name, reason. Returns what could not be recorded, "" if all was."""
    resume: Callable[[str], str]
    """Resume a transport; returns the same."""
    records: Callable[[], tuple[str, int]] = lambda: ("", 0)
    """Returns the path of the delivery records and how many are kept; "" if there are none."""
    backlog: Callable[[], MailBacklog | None] = lambda: None
    """Returns the backlog of the mail spool; None if missing."""
    obstacle: Callable[[], str] = lambda: ""
    """Returns why no mail can be sent, and time alone will not change it; "" if it can."""
    find_unqueued: Callable[[Collection[str], float], int] = lambda payloads, now: 0
    """Returns how many spooled mails have no task, given the payloads of all tasks and the time."""
    uses_transports: bool = True
    """True if mail tasks use these transports, not a program of the configuration."""
    test_command: tuple[str, ...] = ()
    """Command that sends a test mail, before `--transport`, name and address; empty without one."""


class PlaceDestinations(NamedTuple):
    """Functions on the registry of destinations; all of them block.

    Each raises `StoreError`, with one line: `Unavailable` if the registry cannot be used, `Gone` if
    others have changed the destination."""

    read: Callable[[], Sequence[Destination]]
    """Returns all destinations."""
    change: Callable[[str, Destination, str], str]
    """Runs a verb of `engine.destinations.watch.ACTIONS`: verb, the destination as it was seen, and
    the reason. Returns what could not be recorded about it, "" if all was."""
    close: Callable[[], None]
    tasks_unknown: str = ""
    """Why tasks of the place do not name their destination; "" if they do."""


class GroupFacts(NamedTuple):
    """What a format knows of the tasks with the same queue, besides the tasks."""

    ring: str = ""
    """The group of queues that it belongs to."""
    agents: int | None = None
    """How many processes work on it; None if unknown."""
    wakeup: float | None = None
    """When it is tried next, epoch seconds UTC; None if unknown."""
    pending: str = ""
    """Why it cannot start now; "" if it can, or that is unknown."""
    rows: tuple[tuple[str, str], ...] = ()
    """Further names and values."""


class PlaceGroups(NamedTuple):
    """How a format calls the groups of its tasks, and what it knows of them."""

    titles: Mapping[str, str]
    """Names of groupings that differ from those of the index."""
    read: Callable[[Sequence[str]], Mapping[str, GroupFacts]]
    """Reads the facts of these queues, by name; blocks."""
    ring: str = "ring"
    """What a group of queues is called."""
    share_payloads: bool = False
    """True if several tasks may have the same payload: different ones are counted."""


class ServerState(NamedTuple):
    """Whether the server of a place runs, which delivers by itself: no worker is started here."""

    name: str
    stopped: str
    """That it does not run, in its own words."""
    is_running: bool | None
    """None: unknown."""
    pid: int | None = None
    since: float | None = None
    """Epoch seconds UTC of its start; None if unknown."""
    why: str = ""
    """Why it is unknown whether it runs."""

    def describe(self, waiting: int | None, now: float) -> str:
        """In one line: which server delivers and whether it runs; `waiting` tasks wait for it."""
        if self.is_running is False:
            return self.stopped + (f": {waiting:,} wait" if waiting else "")
        if self.is_running is None:
            reason = f": {safe_line(self.why)}" if self.why else ""
            return f"{self.name} delivers: running or not is unknown{reason}"
        who = "" if self.pid is None else f", PID {self.pid}"
        since = "" if self.since is None else f", since {_brief_time(self.since, now)}"
        return f"{self.name} delivers: running{who}{since}"


def _brief_time(moment: float, now: float) -> str:
    """A past time without seconds, and without its date if that is today's: `06:25Z`."""
    text, today = format_time(moment), format_time(now)[:11]
    return f"{text.removeprefix(today)[:-4]}Z" if text.endswith("Z") else text


class WholeQueueFigures(NamedTuple):
    """State of a queue as a whole, in the store's words."""

    rows: tuple[tuple[str, str], ...] = ()
    """Names and values: tokens, time of the next token, time to drain the backlog."""
    warnings: tuple[str, ...] = ()
    """Warnings; each becomes an alert."""
    warned_states: Mapping[str, State] = {}
    """The state of the tasks that a warning is about, by its text, if it is about tasks."""
    unknown: str = ""
    """Why the state is unknown now; "" if known."""
    workers: tuple[int, ...] = ()
    """PIDs of the running workers, as far as known; only for a place without a lock."""
    workers_unknown: str = ""
    """Why there may be other workers; "" if the PIDs are known."""
    has_worker: bool | None = None
    """True if a worker of any program runs here; None if unknown, or for a place with a lock."""
    server: ServerState | None = None
    """The state of `Place.server`; None if there is none, or it is not known yet."""
    connected: tuple[ConnectedWorker, ...] = ()
    """The workers that a server lists, which may be on other hosts."""
    failed: int | None = 0
    """Tasks that failed and left the store, since any moment; None: unknown, 0: they stay."""
    gone_failures: Mapping[str, int] = {}
    """Those of the last ones that ended, by the group that they had, the most first."""
    queues: tuple[tuple[str, Mapping[State, int]], ...] = ()
    """Each queue of a server with its counts; () if the place is one queue."""
    kinds: tuple[KindFigures, ...] | None = None
    """Figures of each kind of task by its finished tasks; None: only the logs have them."""
    abandoned: frozenset[str] = frozenset()
    """Ids of claimed tasks whose worker has ended, as far as known; only without a lock."""


class CopiedLog(NamedTuple):
    """The end of a log that is elsewhere, in a file here."""

    path: str
    fetch: Callable[[], str]
    """Copies what is new, at most every few seconds; returns "" or why it cannot be copied."""


class Place(NamedTuple):
    """One place; all its functions block."""

    name: str
    """Name as the operator typed it, shown in the header."""
    open: Callable[[], Store]
    """Opens a new store instance for the calling thread."""
    lock: Callable[[], LockEvidence] | None = None
    """Examines the queue's lock; None if missing."""
    has_leases: bool = False
    """Claims are leases, without a queue lock; edges alone decide what may be done with these."""
    claims: str = "directory"
    """How a task is claimed, for the screen: `row leases`, `link renames`."""
    claim_order: str = "created"
    """Order in which workers claim due tasks (`engine.index.backlog`); "" if unknown."""
    has_dlq: bool = True
    """`queue dlq` works here: the queue follows the file contract."""
    queue_metrics: str = ""
    """Path of the queue's metrics file; "" if none."""
    task_folders: tuple[str, ...] = ()
    """Folders whose mtime changes with each task that comes, leaves or moves; () if none tells."""
    mail_metrics: str = ""
    """Path of the mail metrics file; "" if none."""
    logs: tuple[str, ...] = ()
    """Paths of the logs to follow."""
    server_logs: tuple[str, ...] = ()
    """Paths of logs of the server that works here: shown and searched, but no events are read."""
    no_server_log: str = ""
    """Why no log of its server is known; "" if one is, or it has none."""
    log_copy: CopiedLog | None = None
    """The copied end of the server's log, if the server is elsewhere."""
    worker_command: tuple[str, ...] = ()
    """Command that starts a worker; empty if none."""
    no_worker: str = ""
    """Why no worker can be started; "" if one can, or that is unknown."""
    listed_at: Callable[[], float | None] = lambda: None
    """Returns when its tasks were last listed, epoch seconds UTC, if they are not watched."""
    moved_in_listing: Callable[[], int] = lambda: 0
    """Returns how many of its tasks moved while they were last listed."""
    unread_accounts: Callable[[], str] = lambda: ""
    """Returns, of how many of its mails the accounts are read, in words; "" if of all."""
    server: str = ""
    """The server that delivers its tasks by itself: no worker is expected; "" if workers do."""
    recovery_command: tuple[str, ...] = ()
    """Command that frees the lock of a stuck or dead holder, before `LockEvidence.identity`."""
    has_handler: Callable[[str], bool] | None = None
    """Tells whether a kind of task has a handler; None if the configuration is unknown."""
    own_slots: Callable[[], Mapping[str, int]] = dict
    """Returns the most tasks of a kind that run at the same time, of kinds with a known limit."""
    claim_obstacle: Callable[[str], str] | None = None
    """Returns why no task of a kind with a handler is claimed, "" if one is; None: unknown."""
    token_at: Callable[[str], float] | None = None
    """Returns when a kind's next token comes, epoch seconds UTC; raises `StoreError`, `OSError`;
    None without rate limits."""
    location: str = ""
    """Where its tasks are, as `status` prints it: a path, or a URL without password."""
    disks: Callable[[], tuple[DiskSpace, ...]] = tuple
    """Reads the file systems that it writes to, that of its tasks first."""
    url_fields: tuple[str, ...] = ("url",)
    """Fields of a task's JSON data that may have the URL of its request."""
    max_pending: int | None = None
    """Number of pending tasks from which no more are added; None without such a limit."""
    clock_step: Callable[[], str] = str
    """Describes the last step of the clock, if it was a short time ago; "" if not; blocks."""
    host: Callable[[], HostFigures | None] = lambda: None
    """Reads the disk that has its tasks and the load of its host; None if unknown."""
    argv: tuple[str, ...] = ()
    """Words that start this program again on this place, before the command's own."""
    command: tuple[str, ...] = ("spooldeck",)
    """Words that select this place on the command line, before the command's own."""
    max_attempts: AttemptLimit = attempts_allowed
    """Returns the maximum attempts of a task; the default knows only a task's own."""
    tokens: Callable[[], Sequence[BucketState]] | None = None
    """Returns the tokens of each rate limit; None without limits."""
    alerts: Thresholds = Thresholds()
    recording: RecorderLocation | None = None
    """Where the flight recorder writes; None if nothing is recorded."""
    retention_days: float | None = None
    """Days after which a dead task is deleted; infinite: never, None: unknown."""
    time_limits: Mapping[str, float] = {}
    """Seconds after which the run of a kind is ended, of kinds with a known limit."""
    vitals: Callable[[int], ProcessStats] | None = None
    """Reads CPU, IO and wait state of the lock's holder; None if impossible."""
    journal: Journal | None = None
    who: Who = Who(UNKNOWN)
    """The operator, for the journal."""
    notes: Notes | None = None
    root: str = ""
    """Data folder, below which no symbolic link is followed; "" if none."""
    trash: Trash | None = None
    """Retention of the trash; None if the configuration is unknown."""
    sweep: Callable[[], str] | None = None
    """Deletes expired tasks from the trash; returns errors as text. None: there is none."""

    mail: PlaceMail | None = None
    """Mail transports of the place; None if unknown."""

    groups: PlaceGroups | None = None
    """What its groups are called, and what is known of them; None: no more than of their tasks."""

    destinations: PlaceDestinations | None = None
    """The destinations of deliveries; None if no registry is configured."""

    schedules: PlaceSchedules | None = None
    """The schedules by which its server adds tasks; None if there are none."""

    queue_figures: Callable[[], WholeQueueFigures] | None = None
    """Reads the state of the queue as a whole, if it has one; raises `StoreError` or `OSError`."""

    task_rows: Callable[[Task, Sequence[LogLine]], Sequence[tuple[str, str]]] = lambda *_: ()
    """Reads names and values of what only the server knows of a task, given the log lines that
    mention it; blocks, and raises `StoreError`."""

    outputs: Callable[[str], Sequence[KeptOutput]] = lambda ident: ()
    """Reads what the handler of a task printed in its last runs, by its id; blocks, and raises
    `OSError`."""

    find_lingering_worker: Callable[[], int | None] = lambda: None
    """Finds a process that still works although its lock file was removed; scans all processes."""

    def why_no_mail(self, read_only: bool) -> str:
        """Why no transport can be suspended or tested on screen; "" if it can."""
        if read_only:
            return "read only: this console was started with --read-only"
        return "" if self.mail is not None else "no transport here can be suspended or tested"

    def why_no_destinations(self, read_only: bool) -> str:
        """Why no destination can be changed on screen; "" if it can."""
        if read_only:
            return "read only: this console was started with --read-only"
        return "" if self.destinations is not None else "no registry of destinations here"

    @property
    def all_logs(self) -> tuple[str, ...]:
        """Paths of all logs of this host that mention its tasks."""
        return tuple(dict.fromkeys((*self.logs, *self.server_logs)))

    @property
    def shown_logs(self) -> tuple[str, ...]:
        """Paths of the logs that are shown and searched on request, after `fetch_log`."""
        return self.all_logs if self.log_copy is None else (*self.all_logs, self.log_copy.path)

    def fetch_log(self) -> str:
        """Copy what is new in the server's log, if it is elsewhere; blocks. Return "" or why it
        cannot be copied."""
        return "" if self.log_copy is None else self.log_copy.fetch()

    @property
    def group_titles(self) -> Mapping[str, str]:
        """Names of groupings that differ from those of the index."""
        return {} if self.groups is None else self.groups.titles

    def describe_server(self, figures: WholeQueueFigures, waiting: int | None, now: float) -> str:
        """What delivers here and whether it runs, or why no worker can; "" if a worker can."""
        if figures.server is not None:
            return figures.server.describe(waiting, now)
        if self.server:
            return f"{self.server} delivers" + f": {figures.unknown}" * bool(figures.unknown)
        is_none = self.no_worker and self.lock is None  # a lock shows whether another program works
        return f"no worker here: {self.no_worker}" if is_none else ""

    @property
    def why_no_start(self) -> str:
        """Why no worker can be started on screen; "" if one can."""
        if self.worker_command:
            return ""
        return "no worker to start here" + (f": {self.no_worker}" if self.no_worker else "")

    @property
    def no_lock(self) -> str:
        """Text shown instead of a lock."""
        if not self.has_leases:
            return "this place has no lock"
        return f"no {'queue lock' if '://' in self.location else 'lock file'} ({self.claims})"

    def why_no_unlock(self, read_only: bool) -> str:
        """Why the lock cannot be freed on screen; "" if it can."""
        if read_only:
            return "read only: locks cannot be freed here"
        if self.lock is None:
            return self.no_lock
        return "" if self.recovery_command else "no recovery command for this place's lock"
