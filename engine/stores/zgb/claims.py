"""One claim: what lapsed is given back, orphans leave, the bucket is refilled, a job is taken and
its token spent, all in one transaction of which another worker sees everything or nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from engine import policy
from engine.model import Lease, Task
from engine.policy import HOUR, Bucket, Rate
from engine.store import Unavailable, Wants
from engine.stores.zgb import connections_config, redirect, schema, token_bucket
from engine.stores.zgb.connection import Connection
from engine.stores.zgb.connections_config import QueueConfig
from engine.stores.zgb.place import KINDS, PARKED, ZgbDatabase
from engine.stores.zgb.row import InvalidRow, JobRow, is_far, parse, task_of
from engine.stores.zgb.schema import Database
from engine.stores.zgb.times import Cell, made, read

LAPSED = "lease expired"
"""The error of a job whose worker did not come back. It stays until an attempt ends: the job's mail
may have been sent, which the next attempt has to log."""

ORPHANS = 10
"""So many orphans at most go without being asked about when they are more than half of all."""


class KeptResult(NamedTuple):
    """What a claim did besides, and how it found the bucket; for the worker's log."""

    recovered: tuple[str, ...] = ()
    """Jobs whose lease had lapsed, by their ids."""
    orphans: tuple[str, ...] = ()
    """Jobs that left because their registration is gone."""
    enabled: bool = True
    rate: Rate = Rate(0, 0)
    tokens: int = 0
    """Whole tokens after the refill."""
    reset: bool = False
    """Whether the bucket could not be read, and began anew."""
    turned_back: bool = False
    """Whether the clock was behind the last refill."""
    undecidable: bool = False
    """Whether users' jobs wait because nobody can tell if they are a test."""
    due: float | None = None
    """When the next job can be claimed, as far as is known; epoch seconds UTC."""


class JobClaims(NamedTuple):
    """What came of one transaction."""

    task: Task | None
    kept: KeptResult


class Taking:
    """One take: its first claim keeps house, and each spends a token."""

    def __init__(self, book: Database, now: float, owner: str, wants: Wants) -> None:
        self._book, self._now, self._owner, self._wants = book, now, owner, wants
        self._place: ZgbDatabase = book.place
        self._passed: set[int] = set()
        """Keys of rows that are due and no jobs."""
        self._begun = False
        """Whether the house is kept, and the bucket refilled."""
        self._held_back = False
        """Whether a job was passed over that nobody can tell to be a test or not."""

    def claim(self) -> JobClaims:
        """The next job, claimed; `wants` is asked under the queue's write lock.

        Raises:
            Unavailable: the database cannot be written, or has orphans that must be asked about.
        """
        with self._book.writing() as wire:
            settings = connections_config.load(wire)
            task, kept = None, KeptResult(enabled=settings.enabled)
            if not self._begun:
                recovered = tuple(self._recovered(wire))
                orphans = tuple(delete_orphans(wire, self._book))
                kept = kept._replace(recovered=recovered, orphans=orphans)
            if settings.enabled:
                task, kept = self._next(wire, settings, kept)
        self._begun = True
        return JobClaims(task, kept)

    def _next(self, wire: Connection, settings: QueueConfig, kept: KeptResult) -> JobClaims:
        current, kept = self._refilled(wire, settings, kept)
        waiting = self._undecidable(wire, settings)
        kept = kept._replace(undecidable=bool(waiting))
        spent = policy.spend(current)
        row = None if spent is None else self._first(wire, waiting, settings)
        kept = kept._replace(undecidable=kept.undecidable or self._held_back)
        if spent is None or row is None:
            return JobClaims(None, kept._replace(due=self._due(wire, current, kept.rate)))
        self._write(wire, spent)
        return JobClaims(self._claimed(wire, row), kept)

    # ---- the bucket

    def _refilled(
        self, wire: Connection, settings: QueueConfig, kept: KeptResult
    ) -> tuple[Bucket, KeptResult]:
        rate = token_bucket.rate(settings.rate, self._place.pace)
        found, reset = token_bucket.read(settings.tokens, settings.refilled, self._now)
        if self._begun:
            # A take that goes on has the time of its beginning: by that, what a rival refilled
            # since would be refilled once more.
            current = found._replace(units=min(found.units, rate.burst * HOUR))
            return current, kept._replace(rate=rate, tokens=current.tokens)
        current = policy.refill(found, rate, self._now)
        self._write(wire, current)
        turned_back = found.stamp > int(self._now)
        return current, kept._replace(
            rate=rate, tokens=current.tokens, reset=reset, turned_back=turned_back
        )

    def _write(self, wire: Connection, current: Bucket) -> None:
        tokens, refilled = token_bucket.written(current)
        connections_config.put(wire, connections_config.TOKENS, tokens)
        connections_config.put(wire, connections_config.REFILLED, refilled)

    # ---- keeping house

    def _recovered(self, wire: Connection) -> list[str]:
        """Give back what nobody works on; it counts as a failed attempt, or would go on for ever
        with a mail that ends its worker each time."""
        shape, now = self._book.shape, self._now
        form = shape.forms["locked_until"]
        rows = wire.run(
            f"SELECT {shape.columns} FROM mail_queue WHERE status = 'sending'"
            " AND (locked_until IS NULL OR locked_until <= ?)",
            (form.write(int(now)),),
        )
        said = []
        for values in rows:
            try:
                row = parse(values, shape)
            except InvalidRow:
                continue  # a look says what is wrong with it
            wait = self._place.retry.backoff(max(0, row.attempts - 1))
            status, due = ("failed", float(PARKED)) if wait is None else ("pending", now + wait)
            write(
                wire,
                self._book,
                row,
                status=status,
                next_attempt_at=shape.forms["next_attempt_at"].write(due, now),
                locked_until=None,
                last_error=LAPSED,
                **stamp(self._book, now),
            )
            said.append(row.id)
        return said

    # ---- the next job

    def _first(self, wire: Connection, unwanted: set[str], settings: QueueConfig) -> JobRow | None:
        """The first due job of a wanted kind; none of a kind in `unwanted`."""
        while (row := self._candidate(wire, unwanted)) is not None:
            if self._must_wait(wire, row, settings):
                self._passed.add(row.key)
            elif self._wants(row.kind, ""):
                return row
            else:
                unwanted = {*unwanted, row.kind}
        return None

    def _undecidable(self, wire: Connection, settings: QueueConfig) -> set[str]:
        """The kinds that must wait because the test mode's guard cannot decide."""
        if way_of_all(self._book, settings, self._now) is not redirect.RedirectDecision.UNDECIDABLE:
            return set()
        wire.change(
            "UPDATE mail_queue SET last_error = ? WHERE mail_type = 'user'"
            " AND status IN ('pending', 'failed')"
            " AND last_error IS NOT ? AND last_error IS NOT ?",
            (redirect.UNDECIDABLE, redirect.UNDECIDABLE, LAPSED),
        )
        return {"user"}

    def _must_wait(self, wire: Connection, row: JobRow, settings: QueueConfig) -> bool:
        """Whether a due job is not to be sent now; it costs no token."""
        # An orphan is one since the house was kept: the next run deletes it, if they are not too
        # many. That of another's registration waits until somebody sees to it.
        return (
            is_orphan(wire, self._book, row)
            or _is_strangers(wire, self._book, row)
            or self._is_held_back(wire, row, settings)
        )

    def _is_held_back(self, wire: Connection, row: JobRow, settings: QueueConfig) -> bool:
        """Whether nobody can tell if this one is a test; then it says so."""
        where = way_of(wire, self._book, row, settings, self._now)
        if where is not redirect.RedirectDecision.UNDECIDABLE:
            return False
        self._held_back = True
        if row.error not in (redirect.UNDECIDABLE, LAPSED):
            write(wire, self._book, row, last_error=redirect.UNDECIDABLE)
        return True

    def _candidate(self, wire: Connection, unwanted: set[str]) -> JobRow | None:
        """The first due job of a wanted kind: by when it is due, then by arrival."""
        shape, kinds = self._book.shape, [kind for kind in KINDS if kind not in unwanted]
        marks = ", ".join("?" * len(kinds))
        while True:
            found = [
                values
                for status in self._statuses
                for values in wire.run(
                    f"SELECT next_attempt_at, {shape.columns} FROM mail_queue"
                    f" WHERE status = ? AND next_attempt_at <= ? AND mail_type IN ({marks})"
                    f" {self._passing} ORDER BY next_attempt_at, {shape.key} LIMIT 1",
                    (status, shape.forms["next_attempt_at"].write(int(self._now)), *kinds),
                )
            ]
            if not found:
                return None
            first = min(found, key=lambda values: (_order(values[0]), values[1]))
            try:
                return parse(first[1:], shape)
            except InvalidRow:
                assert isinstance(first[1], int)
                self._passed.add(first[1])  # a look says what is wrong with it

    @property
    def _statuses(self) -> tuple[str, ...]:
        return ("pending", "failed") if self._place.auto_retry else ("pending",)

    @property
    def _passing(self) -> str:
        keys = ", ".join(map(str, sorted(self._passed)))
        return f"AND {self._book.shape.key} NOT IN ({keys})" if keys else ""

    def _claimed(self, wire: Connection, row: JobRow) -> Task:
        shape = self._book.shape
        until = int(self._now) + self._place.lease
        write(
            wire,
            self._book,
            row,
            status="sending",
            locked_until=shape.forms["locked_until"].write(until, self._now),
            attempts=row.attempts + 1,
            **stamp(self._book, self._now),
        )
        task = task_of(fetch(wire, self._book, row.key), self._now, self._place)
        return replace(task, lease=Lease(self._owner, self._now, float(until), task.rev))

    def _due(self, wire: Connection, current: Bucket, rate: Rate) -> float | None:
        """When to come again: a token is lacking, a job comes due, or a claim lapses."""
        shape, now = self._book.shape, self._now
        found: list[float] = []
        if current.tokens <= 0 and self._candidate(wire, set()) is not None:
            found.append(policy.next_token(current, rate))
        waits = ", ".join(f"'{status}'" for status in self._statuses)
        for name, where, bound in (
            ("next_attempt_at", f"status IN ({waits})", int(now)),
            ("locked_until", "status = 'sending'", 0),
        ):
            form = shape.forms[name]
            alike = f"typeof({name}) {'=' if form.text else '<>'} 'text'"  # others are no job's
            ((cell,),) = wire.run(
                f"SELECT min({name}) FROM mail_queue WHERE {where} AND {name} > ? AND {alike}",
                (form.write(bound),),
            )
            found += [at for at in moments(name, cell, self._book) if not is_far(at, now)]
        return min(found, default=None)


def _order(value: Cell) -> tuple[bool, float | str]:
    """As SQLite sorts: numbers before text."""
    text = isinstance(value, str)
    return text, value if isinstance(value, int | float | str) else 0.0


def moments(name: str, cell: Cell, book: Database) -> list[float]:
    """The moment that a column says, if it is one."""
    try:
        return [] if cell is None else [read(cell, book.shape.forms[name].zone)]
    except (ValueError, OverflowError):
        return []  # a look says what is wrong with it


# ---- rows


def fetch(wire: Connection, book: Database, key: int) -> JobRow:
    """One row as it stands now.

    Raises:
        Odd: it is no job.
        Unavailable: there is none of that key.
    """
    shape = book.shape
    found = wire.run(f"SELECT {shape.columns} FROM mail_queue WHERE {shape.key} = ?", (key,))
    if not found:
        raise Unavailable(f"{wire.path}: the row {key} is not there any more")
    return parse(found[0], shape)


def write(wire: Connection, book: Database, row: JobRow, **values: Cell) -> None:
    """Change some columns of a row."""
    sets = ", ".join(f"{name} = ?" for name in values)
    wire.change(
        f"UPDATE mail_queue SET {sets} WHERE {book.shape.key} = ?", (*values.values(), row.key)
    )


def stamp(book: Database, now: float) -> dict[str, Cell]:
    """That a row was touched, where it has a column for it."""
    form = book.shape.forms.get("updated_at")
    return {} if form is None else {"updated_at": form.write(int(now))}


# ---- the test mode


def way_of(
    wire: Connection, book: Database, row: JobRow, settings: QueueConfig, now: float
) -> redirect.RedirectDecision:
    """Where the mail of a job goes that is sent now."""
    if not settings.redirected or row.kind != "user":
        return redirect.RedirectDecision.PLAIN  # as nearly always: no registration is asked
    shape = book.shape
    stood = dict(zip(shape.names, row.cells, strict=True)).get("created_at")
    created = made(stood, shape.zone)
    if created is None and shape.identity == "created_at":
        found = schema.registration(book, row.number)
        created = made(found.get("created_at"), shape.zone)
    return redirect.way(settings.redirected, row.kind, created, now, settings.period(shape))


def way_of_all(book: Database, settings: QueueConfig, now: float) -> redirect.RedirectDecision:
    """Where a user's mail would go that is enqueued and sent now."""
    created = now if book.shape.dates else None
    during = settings.period(book.shape)
    return redirect.way(settings.redirected, "user", created, now, during)


def unsaid(book: Database, settings: QueueConfig) -> str:
    """What is lacking where it is undecidable for all, in words."""
    if settings.period(book.shape) is not None:
        return "neither jobs nor registrations have a column created_at; users' mails wait"
    return (
        f"startDate is {settings.start!r:.40}, endDate is {settings.end!r:.40}, expected two days "
        "as YYYY-MM-DD; users' mails wait"
    )


# ---- orphans


def is_orphan(wire: Connection, book: Database, row: JobRow) -> bool:
    """Whether a job's registration is gone."""
    return _holds(wire, book, row, book.shape.orphans)


def _is_strangers(wire: Connection, book: Database, row: JobRow) -> bool:
    """Whether a job's number seems to have been given out again since it was made."""
    return _holds(wire, book, row, book.shape.strangers)


def _holds(wire: Connection, book: Database, row: JobRow, condition: str) -> bool:
    where = f"{book.shape.key} = ? AND {condition}"
    return bool(condition and wire.run(f"SELECT 1 FROM mail_queue WHERE {where}", (row.key,)))


class Orphans(NamedTuple):
    """How many jobs have no registration, of all."""

    orphans: int
    jobs: int
    strangers: int
    """Those whose number seems to have been given out again since they were made."""

    @property
    def told(self) -> str:
        """What is to be said of them; "" when there are none."""
        words = []
        if self.orphans:
            gone = f"{self.orphans:,} jobs have no registration: the next run deletes them"
            if self.orphans == 1:
                gone = "1 job has no registration: the next run deletes it"
            words.append(self.too_many or gone)
        if self.strangers:
            # By age alone none is deleted: of two times that two programs wrote, one may be wrong.
            many = f"{self.strangers:,} jobs are older than the registration that has their number"
            if self.strangers == 1:
                many = "1 job is older than the registration that has its number"
            words.append(
                f"{many}: not sent; if the number was given out again, delete, and enqueue anew"
            )
        return "; ".join(words)

    @property
    def too_many(self) -> str:
        """Why they must be asked about; "" when they may go."""
        if self.orphans <= ORPHANS or self.orphans * 2 <= self.jobs:
            return ""
        return (
            f"{self.orphans:,} of {self.jobs:,} jobs have no registration: nothing is sent until "
            "somebody has seen to that, or has them deleted"
        )


def count_orphans(wire: Connection, book: Database) -> Orphans | None:
    """How many there are; None where there is no table of registrations to tell by."""
    if not book.shape.orphans:
        return None
    ((orphans, jobs, strangers),) = wire.run(
        f"SELECT count(*) FILTER (WHERE status <> 'sending' AND {book.shape.orphans}), count(*),"
        f" count(*) FILTER (WHERE status <> 'sending' AND {book.shape.strangers or '0'})"
        " FROM mail_queue"
    )
    assert isinstance(orphans, int) and isinstance(jobs, int) and isinstance(strangers, int)
    return Orphans(orphans, jobs, strangers)


def no_registrations(book: Database) -> str:
    """That orphans cannot be told from others, in words."""
    return (
        f"no table {book.place.registrations} with a column number: it cannot be told which jobs "
        "are orphans"
    )


def delete_orphans(wire: Connection, book: Database, *, asked: bool = False) -> list[str]:
    """Delete the jobs whose registration is gone, before they cost a token; says which. When
    somebody `asked` for it, also those of a number that seems to have been given out again.

    Raises:
        Unavailable: that table is missing, or they are so many that somebody must have `asked`.
    """
    if not book.place.registrations:
        return []
    counted = count_orphans(wire, book)
    if counted is None:
        raise Unavailable(f"{wire.path}: {no_registrations(book)}")
    if counted.too_many and not asked:
        raise Unavailable(f"{wire.path}: {counted.too_many}")
    which = [book.shape.orphans, book.shape.strangers if asked else ""]
    if not counted.orphans and not (asked and counted.strangers):
        return []
    where = f"status <> 'sending' AND ({' OR '.join(filter(None, which))})"
    gone = wire.run(f"SELECT registration_number, mail_type FROM mail_queue WHERE {where}")
    wire.change(f"DELETE FROM mail_queue WHERE {where}")
    return ["-".join(map(str, values)) for values in gone]
