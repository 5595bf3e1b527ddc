"""Claim one job in one transaction: recover expired leases, delete orphans, refill the token
bucket, select a due job, spend a token."""

from __future__ import annotations

from engine import policy
from engine.formats.zgb import queue_config, schema
from engine.formats.zgb.connection import OwnerConnection
from engine.formats.zgb.place import (
    KINDS,
    PARKED_DUE_SECONDS,
    Cell,
    ZgbDatabase,
    parse_creation_time,
    parse_time,
)
from engine.formats.zgb.queue_config import (
    UNDECIDABLE_ERROR,
    QueueConfig,
    RedirectDecision,
    load_config,
)
from engine.formats.zgb.row import InvalidRow, JobRow, is_parked_time, parse_row, task_of
from engine.formats.zgb.schema import Database
from engine.model import Lease, Task
from engine.policy import UNITS_PER_TOKEN, Bucket, Rate
from engine.store import ClaimFilter, Unavailable
from engine.values import NamedTuple

LEASE_EXPIRED = "lease expired"
"""The error of a job whose lease expired. It stays until an attempt ends: the mail may have been
sent, and the next attempt must log that."""

ORPHANS_WITHOUT_CONFIRMATION = 10
"""Up to so many orphans are deleted without confirmation, even if they are most of all jobs."""


class ClaimReport(NamedTuple):
    """Side effects of a claim and the state of the bucket, for the worker's log."""

    recovered: tuple[str, ...] = ()
    """Ids of the jobs whose lease had expired."""
    orphans: tuple[str, ...] = ()
    """Ids of the deleted jobs whose registration is gone."""
    enabled: bool = True
    rate: Rate = Rate(0, 0)
    tokens: int = 0
    """Whole tokens after the refill."""
    reset: bool = False
    """True if the bucket could not be read and was reset."""
    clock_went_back: bool = False
    """True if the clock was behind the last refill."""
    undecidable: bool = False
    """True if users' jobs wait because the test mode cannot be decided."""
    due: float | None = None
    """When the next job can be claimed, if known; epoch seconds UTC."""


class ClaimRun:
    """One `take`: its first claim does the maintenance; each claim spends a token."""

    def __init__(self, database: Database, now: float, owner: str, wants: ClaimFilter) -> None:
        self._database, self._now, self._owner, self._wants = database, now, owner, wants
        self._place: ZgbDatabase = database.place
        self._skipped_keys: set[int] = set()
        """Keys of due rows that are invalid or must wait."""
        self._is_maintained = False
        """True once maintenance and refill are done."""
        self._skipped_undecidable = False
        """True if a job was skipped because its redirect could not be decided."""

    def claim(self) -> tuple[Task | None, ClaimReport]:
        """Claim the next job; `wants` is called under the write lock. Raises Unavailable: the
        database cannot be written, or has so many orphans that an operator must confirm."""
        with self._database.writing() as db:
            settings = load_config(db)
            task, report = None, ClaimReport(enabled=settings.is_enabled)
            if not self._is_maintained:
                recovered = tuple(self._recover_expired(db))
                orphans = tuple(delete_orphans(db, self._database))
                report = report._replace(recovered=recovered, orphans=orphans)
            if settings.is_enabled:
                task, report = self._claim_next(db, settings, report)
        self._is_maintained = True
        return task, report

    def _claim_next(
        self, db: OwnerConnection, settings: QueueConfig, report: ClaimReport
    ) -> tuple[Task | None, ClaimReport]:
        current, report = self._refill(db, settings, report)
        waiting = self._undecidable_kinds(db, settings)
        report = report._replace(undecidable=bool(waiting))
        spent = policy.spend_tokens(current)
        row = None if spent is None else self._first_sendable(db, waiting, settings)
        report = report._replace(undecidable=report.undecidable or self._skipped_undecidable)
        if spent is None or row is None:
            return None, report._replace(due=self._next_due(db, current, report.rate))
        self._write_bucket(db, spent)
        return self._claim_row(db, row), report

    # ---- the bucket

    def _refill(
        self, db: OwnerConnection, settings: QueueConfig, report: ClaimReport
    ) -> tuple[Bucket, ClaimReport]:
        rate = queue_config.parse_rate(settings.rate, self._place.rate_limit)
        bucket, reset = queue_config.read_bucket(settings.tokens, settings.refilled, self._now)
        if self._is_maintained:
            # A later claim uses the time at which the take began: with that time it would refill
            # again what another worker has refilled since.
            current = bucket._replace(units=min(bucket.units, rate.burst * UNITS_PER_TOKEN))
            return current, report._replace(rate=rate, tokens=current.tokens)
        current = policy.refill_bucket(bucket, rate, self._now)
        self._write_bucket(db, current)
        turned_back = bucket.stamp > int(self._now)
        return current, report._replace(
            rate=rate, tokens=current.tokens, reset=reset, clock_went_back=turned_back
        )

    def _write_bucket(self, db: OwnerConnection, current: Bucket) -> None:
        tokens, refilled = queue_config.render_bucket(current)
        queue_config.write_setting(db, queue_config.TOKENS_KEY, tokens)
        queue_config.write_setting(db, queue_config.REFILLED_KEY, refilled)

    # ---- maintenance

    def _recover_expired(self, db: OwnerConnection) -> list[str]:
        """Give back jobs with an expired lease. This counts as a failed attempt: otherwise a mail
        that kills its worker would be retried without end."""
        shape, now = self._database.shape, self._now
        form = shape.forms["locked_until"]
        rows = schema.select_jobs(
            db,
            shape,
            "WHERE status = 'sending' AND (locked_until IS NULL OR locked_until <= ?)",
            (form.format(int(now)),),
        )
        recovered = []
        for values in rows:
            try:
                row = parse_row(values, shape)
            except InvalidRow:
                continue  # a scan reports it
            wait = self._place.retry.schedule.wait(row.attempts - 1)
            status, due = (
                ("failed", float(PARKED_DUE_SECONDS)) if wait is None else ("pending", now + wait)
            )
            update_row(
                db,
                self._database,
                row,
                status=status,
                next_attempt_at=shape.forms["next_attempt_at"].format(due, now),
                locked_until=None,
                last_error=LEASE_EXPIRED,
                **updated_at(self._database, now),
            )
            recovered.append(row.id)
        return recovered

    # ---- the next job

    def _first_sendable(
        self, db: OwnerConnection, unwanted: set[str], settings: QueueConfig
    ) -> JobRow | None:
        """Return the first due job of a wanted kind that is not in `unwanted`."""
        while (row := self._candidate(db, unwanted)) is not None:
            if self._must_wait(db, row, settings):
                self._skipped_keys.add(row.key)
            elif self._wants(row.kind, ""):
                return row
            else:
                unwanted = {*unwanted, row.kind}
        return None

    def _undecidable_kinds(self, db: OwnerConnection, settings: QueueConfig) -> set[str]:
        """Return the kinds that must wait because the test mode cannot be decided."""
        if (
            decide_redirect_now(self._database, settings, self._now)
            is not RedirectDecision.UNDECIDABLE
        ):
            return set()
        db.change(
            "UPDATE mail_queue SET last_error = ? WHERE mail_type = 'user'"
            " AND status IN ('pending', 'failed')"
            " AND last_error IS NOT ? AND last_error IS NOT ?",
            (UNDECIDABLE_ERROR, UNDECIDABLE_ERROR, LEASE_EXPIRED),
        )
        return {"user"}

    def _must_wait(self, db: OwnerConnection, row: JobRow, settings: QueueConfig) -> bool:
        """True if a due job must not be sent now; it costs no token."""
        # It became an orphan after the maintenance; the next run deletes it, unless there are too
        # many. A job of another registration waits for an operator.
        return (
            is_orphan(db, self._database, row)
            or _meets_condition(db, self._database, row, self._database.shape.reused)
            or self._is_undecidable(db, row, settings)
        )

    def _is_undecidable(self, db: OwnerConnection, row: JobRow, settings: QueueConfig) -> bool:
        """True if the redirect of this job cannot be decided; that is stored as its error."""
        where = decide_redirect(db, self._database, row, settings, self._now)
        if where is not RedirectDecision.UNDECIDABLE:
            return False
        self._skipped_undecidable = True
        if row.error not in (UNDECIDABLE_ERROR, LEASE_EXPIRED):
            update_row(db, self._database, row, last_error=UNDECIDABLE_ERROR)
        return True

    def _candidate(self, db: OwnerConnection, unwanted: set[str]) -> JobRow | None:
        """Return the first due job of a wanted kind: by due time, then by arrival."""
        shape, kinds = self._database.shape, [kind for kind in KINDS if kind not in unwanted]
        marks = ", ".join("?" * len(kinds))
        while True:
            skipped = ", ".join(map(str, sorted(self._skipped_keys)))
            is_not_skipped = f"AND {shape.key} NOT IN ({skipped})" if skipped else ""
            rows = [
                values
                for status in self._statuses
                for values in db.run(
                    f"SELECT next_attempt_at, {shape.key} FROM mail_queue"
                    f" WHERE status = ? AND next_attempt_at <= ? AND mail_type IN ({marks})"
                    f" {is_not_skipped} ORDER BY next_attempt_at, {shape.key} LIMIT 1",
                    (status, shape.forms["next_attempt_at"].format(int(self._now)), *kinds),
                )
            ]
            if not rows:
                return None
            _, key = min(rows, key=lambda values: (_sort_key(values[0]), values[1]))
            assert isinstance(key, int)
            try:
                return fetch_row(db, self._database, key)
            except InvalidRow:
                self._skipped_keys.add(key)  # a scan reports it

    @property
    def _statuses(self) -> tuple[str, ...]:
        return ("pending", "failed") if self._place.auto_retry else ("pending",)

    def _claim_row(self, db: OwnerConnection, row: JobRow) -> Task:
        shape = self._database.shape
        until = int(self._now) + self._place.lease
        update_row(
            db,
            self._database,
            row,
            status="sending",
            locked_until=shape.forms["locked_until"].format(until, self._now),
            attempts=row.attempts + 1,
            **updated_at(self._database, self._now),
        )
        task = task_of(fetch_row(db, self._database, row.key), self._now, self._place)
        return task._replace(lease=Lease(self._owner, self._now, float(until), task.rev))

    def _next_due(self, db: OwnerConnection, current: Bucket, rate: Rate) -> float | None:
        """When to try again: a token becomes available, a job comes due, or a lease expires."""
        shape, now = self._database.shape, self._now
        times: list[float] = []
        if current.tokens <= 0 and self._candidate(db, set()) is not None:
            times.append(policy.next_token_time(current, rate))
        waits = ", ".join(f"'{status}'" for status in self._statuses)
        for name, where, bound in (
            ("next_attempt_at", f"status IN ({waits})", int(now)),
            ("locked_until", "status = 'sending'", 0),
        ):
            form = shape.forms[name]
            # A value of the other type is not a valid time.
            alike = f"typeof({name}) {'=' if form.is_text else '<>'} 'text'"
            ((cell,),) = db.run(
                f"SELECT min({name}) FROM mail_queue WHERE {where} AND {name} > ? AND {alike}",
                (form.format(bound),),
            )
            times += [
                at
                for at in parse_time_cell(name, cell, self._database)
                if not is_parked_time(at, now)
            ]
        return min(times, default=None)


def _sort_key(value: Cell) -> tuple[bool, float | str]:
    """Sort key in SQLite's order: numbers before text."""
    text = isinstance(value, str)
    return text, value if isinstance(value, int | float | str) else 0.0


def parse_time_cell(name: str, cell: Cell, database: Database) -> list[float]:
    """Return the time in a column as a list of one; empty if it is not a time."""
    try:
        return [] if cell is None else [parse_time(cell, database.shape.forms[name].zone)]
    except (ValueError, OverflowError):
        return []  # a scan reports it


# ---- rows


def fetch_row(db: OwnerConnection, database: Database, key: int) -> JobRow:
    """Read one row by its key. Raises InvalidRow: it is not a job; Unavailable: the row does not
    exist."""
    shape = database.shape
    rows = schema.select_jobs(db, shape, f"WHERE {shape.key} = ?", (key,))
    if not rows:
        raise Unavailable(f"{db.path}: the row {key} no longer exists")
    return parse_row(rows[0], shape)


def update_row(db: OwnerConnection, database: Database, row: JobRow, **values: Cell) -> None:
    """Update some columns of a row."""
    sets = ", ".join(f"{name} = ?" for name in values)
    db.change(
        f"UPDATE mail_queue SET {sets} WHERE {database.shape.key} = ?", (*values.values(), row.key)
    )


def updated_at(database: Database, now: float) -> dict[str, Cell]:
    """Return the new value of `updated_at`, if the table has that column."""
    form = database.shape.forms.get("updated_at")
    return {} if form is None else {"updated_at": form.format(int(now))}


# ---- the test mode


def decide_redirect(
    db: OwnerConnection, database: Database, row: JobRow, settings: QueueConfig, now: float
) -> RedirectDecision:
    """Decide where the mail of a job goes if it is sent now."""
    if not settings.is_redirected or row.kind != "user":
        return RedirectDecision.UNCHANGED  # the usual case: no query for the registration
    shape = database.shape
    created_cell = dict(zip(shape.names, row.cells, strict=True)).get("created_at")
    created = parse_creation_time(created_cell, shape.zone)
    if created is None and shape.identity == "created_at":
        registration = schema.read_registration(database, row.number)
        created = parse_creation_time(registration.get("created_at"), shape.zone)
    return queue_config.decide(
        settings.is_redirected, row.kind, created, now, settings.period(shape)
    )


def decide_redirect_now(database: Database, settings: QueueConfig, now: float) -> RedirectDecision:
    """Decide where the mail of a user's job goes that is enqueued and sent now."""
    created = now if database.shape.has_creation_times else None
    during = settings.period(database.shape)
    return queue_config.decide(settings.is_redirected, "user", created, now, during)


def undecidable_reason(database: Database, settings: QueueConfig) -> str:
    """Return the reason why the redirect is undecidable for all users' jobs."""
    if settings.period(database.shape) is not None:
        return "neither jobs nor registrations have a column created_at; users' mails wait"
    dates = (("startDate", settings.start), ("endDate", settings.end))
    words = (f"{n} is {'not set' if day is None else f'{day!r:.40}'}" for n, day in dates)
    return f"{', '.join(words)}, expected two days as YYYY-MM-DD; users' mails wait"


# ---- orphans


def is_orphan(db: OwnerConnection, database: Database, row: JobRow) -> bool:
    """True if the registration of a job is gone."""
    return _meets_condition(db, database, row, database.shape.orphans)


def _meets_condition(db: OwnerConnection, database: Database, row: JobRow, condition: str) -> bool:
    where = f"{database.shape.key} = ? AND {condition}"
    return bool(condition and db.run(f"SELECT 1 FROM mail_queue WHERE {where}", (row.key,)))


class OrphanCount(NamedTuple):
    """Numbers of jobs without a matching registration."""

    orphans: int
    jobs: int
    reused: int
    """Jobs whose number was probably reused since they were created."""

    @property
    def description(self) -> str:
        """Describe them for the operator; "" if there are none."""
        words = []
        if self.orphans:
            orphan_note = f"{self.orphans:,} jobs have no registration: the next run deletes them"
            if self.orphans == 1:
                orphan_note = "1 job has no registration: the next run deletes it"
            words.append(self.confirmation_reason or orphan_note)
        if self.reused:
            # Age alone deletes none: with times from two programs, one may be wrong.
            many = f"{self.reused:,} jobs are older than the registration that has their number"
            if self.reused == 1:
                many = "1 job is older than the registration that has its number"
            words.append(f"{many}: not sent; if the number was reused, delete and enqueue again")
        return "; ".join(words)

    @property
    def confirmation_reason(self) -> str:
        """Return why deletion needs a confirmation; "" if it does not."""
        if self.orphans <= ORPHANS_WITHOUT_CONFIRMATION or self.orphans * 2 <= self.jobs:
            return ""
        return (
            f"{self.orphans:,} of {self.jobs:,} jobs have no registration: nothing is sent until "
            "an operator restores the registrations or deletes the jobs"
        )


def count_orphans(db: OwnerConnection, database: Database) -> OrphanCount | None:
    """Count orphans; None if there is no table of registrations."""
    if not database.shape.orphans:
        return None
    ((orphans, jobs, strangers),) = db.run(
        f"SELECT count(*) FILTER (WHERE status <> 'sending' AND {database.shape.orphans}),"
        " count(*),"
        f" count(*) FILTER (WHERE status <> 'sending' AND {database.shape.reused or '0'})"
        " FROM mail_queue"
    )
    assert isinstance(orphans, int) and isinstance(jobs, int) and isinstance(strangers, int)
    return OrphanCount(orphans, jobs, strangers)


def no_registrations_message(database: Database) -> str:
    """Return the message that orphans cannot be detected."""
    return (
        f"no table {database.place.registrations} with a column number: orphaned jobs cannot "
        "be detected"
    )


def delete_orphans(db: OwnerConnection, database: Database, *, asked: bool = False) -> list[str]:
    """Delete jobs whose registration is gone, before they cost a token; return their ids. If an
    operator `asked` for it, also delete jobs whose number was probably reused. Raises Unavailable:
    the table of registrations is missing, or there are so many orphans that an operator must
    confirm."""
    if not database.place.registrations:
        return []
    counted = count_orphans(db, database)
    if counted is None:
        raise Unavailable(f"{db.path}: {no_registrations_message(database)}")
    if counted.confirmation_reason and not asked:
        raise Unavailable(f"{db.path}: {counted.confirmation_reason}")
    which = [database.shape.orphans, database.shape.reused if asked else ""]
    if not counted.orphans and not (asked and counted.reused):
        return []
    where = f"status <> 'sending' AND ({' OR '.join(filter(None, which))})"
    deleted = db.run(f"SELECT registration_number, mail_type FROM mail_queue WHERE {where}")
    db.change(f"DELETE FROM mail_queue WHERE {where}")
    return ["-".join(map(str, values)) for values in deleted]
