"""The ZGB store: each move is a guarded UPDATE, INSERT or DELETE of one row."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby, islice

from engine.formats.zgb import claims, control, log, queue_config, row_moves, schema
from engine.formats.zgb.change_detector import ChangeDetector
from engine.formats.zgb.claims import ClaimReport, ClaimRun
from engine.formats.zgb.connection import OwnerConnection
from engine.formats.zgb.control import Backlog, QueueFigures
from engine.formats.zgb.log import EventWriter, discard_event
from engine.formats.zgb.place import KINDS, Cell, ZgbDatabase
from engine.formats.zgb.queue_config import QueueConfig, RedirectDecision, load_config
from engine.formats.zgb.row import (
    FAILED_WORD,
    STATES,
    complete_image,
    image_of,
    parse_id,
    parse_image,
    restored_row,
    sidecar_task,
    task_of,
)
from engine.formats.zgb.row_moves import MoveBatch, TouchedDatabases
from engine.formats.zgb.scan import QueueScan
from engine.formats.zgb.schema import Database
from engine.formats.zgb.sidecar_database import SidecarDatabase, next_token
from engine.model import (
    ChangeSource,
    Edge,
    Edges,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    State,
    Task,
)
from engine.override import override
from engine.store import (
    MAX_PART_BYTES,
    PREVIEW_BYTES,
    ClaimFilter,
    Control,
    Gone,
    Outlook,
    SeenTask,
    Store,
    Unavailable,
    Unsupported,
    accept_all,
    refuse_all,
    require_edge,
)
from engine.values import NamedTuple

MOVES_PER_TRANSACTION = 100
"""Moves in one transaction; the write lock is held for so long."""

_OUTCOME_FIELDS = frozenset({"attempts", "due", "error"})

_CLAIMED_WARNING = "its worker may still be sending it: the result will not be stored"

EDGES: Edges = {
    (None, State.PENDING): Edge(),
    (State.ACTIVE, None): Edge(undoable=False),
    (State.ACTIVE, State.PENDING): Edge(_OUTCOME_FIELDS, warning=_CLAIMED_WARNING),
    (State.ACTIVE, State.DEAD): Edge(_OUTCOME_FIELDS, warning=_CLAIMED_WARNING),
    (State.ACTIVE, State.HELD): Edge(_OUTCOME_FIELDS, warning=_CLAIMED_WARNING),
    (State.PENDING, State.PENDING): Edge(frozenset({"due"})),
    (State.PENDING, State.DEAD): Edge(),
    (State.DEAD, State.HELD): Edge(),
    (State.HELD, State.DEAD): Edge(),
    (State.HELD, State.HELD): Edge(frozenset({"due"})),
    (State.PENDING, State.HELD): Edge(),
    (State.HELD, State.PENDING): Edge(frozenset({"due"})),
    # ZGB's retry button keeps the last error until there is another.
    (State.DEAD, State.PENDING): Edge(frozenset({"attempts", "due"})),
    (State.DEAD, State.TRASH): Edge(),
    (State.PENDING, State.TRASH): Edge(),
    (State.HELD, State.TRASH): Edge(),
    (State.TRASH, State.DEAD): Edge(),
    (State.TRASH, State.PENDING): Edge(),
    (State.TRASH, State.HELD): Edge(),
    (State.DEAD, None): Edge(undoable=False),
    (State.TRASH, None): Edge(undoable=False),
}


class Enqueued(NamedTuple):
    """The result of enqueueing one mail."""

    is_new: bool
    """False if the job existed already; the task has its state."""
    task: Task


class ClaimedJob(NamedTuple):
    """A claimed job, read just before its mail is sent."""

    job: int
    """The key of its row."""
    number: int
    kind: str
    attempt: int
    """The number of this attempt, from 1."""
    created: int
    """Epoch seconds UTC; 0 if the table has no such column."""
    identity: str
    """Distinguishes the job from every other job of its number: its creation time, or else its key
    if keys are never reused; "" if neither is known."""
    is_orphan: bool
    """True if its registration is gone."""
    registration: Mapping[str, Cell]
    """The row of its registration by column name; empty if none."""
    redirection: RedirectDecision
    is_test: bool
    """True if the test mode is switched on for it; the guard cannot change that."""


class ZgbStore(Store):
    """Jobs in the table "mail_queue"; held and trashed jobs in the sidecar database."""

    states: Mapping[State, str] = STATES

    def __init__(
        self,
        place: ZgbDatabase,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
        write_event: EventWriter = discard_event,
    ) -> None:
        """`pause` is called to sleep between two checks for changes; `write_event` receives each
        event after it has happened. Raises Unavailable: it is not a mail queue, or cannot be
        read."""
        self.place = place
        self.words = {FAILED_WORD: State.PENDING if place.auto_retry else State.DEAD}
        self._clock, self._write_event = clock, write_event
        self._database = Database(place)
        self._sidecar = SidecarDatabase(place, read_only=bool(self._database.refused))
        self.edges = refuse_all(EDGES, self._database.refused)
        self.claim_report = ClaimReport()
        """Side effects of the last take besides claiming."""
        try:
            self.controls = self._controls()
            self.changes = ChangeSource(
                wait=ChangeDetector(self._database, self._sidecar, pause).wait
            )
        except BaseException:
            self.close()
            raise

    @override
    def close(self) -> None:
        self._sidecar.close()
        self._database.close()

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        now = self._clock()
        self.controls = self._controls()
        walk = QueueScan(self._database, self._sidecar, now)
        if touched is None:
            yield from walk.preview()
            for item in walk.everything():
                self.expected_tasks = walk.expected_tasks
                yield item
            return
        by_word = {word: state for state, word in STATES.items()}
        for name in touched:
            if name in by_word:
                yield from walk.in_state(by_word[name])
            else:
                items = self._find_items(walk, name)
                yield from items
                # A row that was a job and is invalid now is missing as a task.
                if not items or (parse_id(name) and not any(isinstance(i, Task) for i in items)):
                    yield Missing(name)

    def _find_items(self, walk: QueueScan, name: str) -> list[Task | Problem]:
        its = parse_id(name)
        if its is not None:
            # A job that is moving from the sidecar database back to `mail_queue` is found by the
            # second try at the latest.
            return walk.find_job(*its) or QueueScan(
                self._database, self._sidecar, self._clock()
            ).find_job(*its)
        row = name.removeprefix("mail_queue/").removeprefix("row ")
        if row != name and row.isascii() and row.isdecimal() and int(row) < 1 << 63:
            return walk.find_row(int(row))
        return [problem for problem in walk.problems() if problem.where == name]

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        walk = QueueScan(self._database, self._sidecar, self._clock())
        for ident, state, rev in known_tasks:
            its = parse_id(ident)
            for item in walk.find_job(*its) if its is not None else ():
                if isinstance(item, Task) and (item.state, item.rev) == (state, rev):
                    yield item

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        data = self.read(task)
        yield Part("row", f"mail_queue/{task.id}", len(data))

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        if part not in ("", "row"):
            raise Gone(f"{task.id} has no part {part!r}")
        now, token = self._clock(), load_config(self._database.connection).move_token
        if task.state in row_moves.SIDECAR_STATES:
            sidecar_row = self._sidecar.find(task.id, token)
            if sidecar_row is None or (sidecar_row.state, sidecar_row.rev) != (
                task.state,
                task.rev,
            ):
                raise Gone(task.id)
            return sidecar_row.image[:MAX_PART_BYTES]
        db, shape = self._database.connection, self._database.shape
        row = row_moves.read_unchanged(db, self._database, task, now)
        with suppress(Unsupported):  # too large: without the columns of other programs, below
            return complete_image(row, shape, row_moves.read_foreign(db, self._database, row.key))
        return image_of(row, shape, {})

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        now, shape = self._clock(), self._database.shape
        was = parse_image(image, shape)
        if was.id != task.id:
            raise Unsupported(f"the image is not of {task.id}")
        row = restored_row(was, state, now, shape, self.place)
        if state in row_moves.SIDECAR_STATES:
            return sidecar_task(row, state, now, rev=task.rev, now=now, place=self.place)
        restored = task_of(row, now, self.place)
        return restored._replace(rev=task.rev)

    @override
    def preview_problem(self, problem: Problem) -> bytes:
        key = problem.where.removeprefix("mail_queue/row ")
        if key == problem.where or not key.isdecimal() or int(key) >= 1 << 63:
            raise Gone(problem.where)
        shape = self._database.shape
        db = self._database.connection
        names = (*shape.names, *schema.foreign_columns(db))
        cells = schema.select_values(db, "mail_queue", names, shape.key, int(key))
        if not cells:
            raise Gone(problem.where)
        lines = (f"{name}: {cells.get(name, '(too large)')!r:.1000}" for name in names)
        return "\n".join(lines).encode("utf-8", "backslashreplace")[:PREVIEW_BYTES]

    @override
    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        """Claim as many jobs as there are tokens. The first claim does the maintenance.

        Afterwards `changes.next_due` is the time when the next job can be claimed. `wants` is
        called under the write lock. Raises Unsupported: the database is read-only; Unavailable: it
        cannot be written now, or most of its jobs have no registration."""
        if self._database.refused:
            raise Unsupported(self._database.refused)
        run = ClaimRun(self._database, now, owner, wants)
        for turn in range(limit):
            task, report = run.claim()
            if turn == 0:
                self.claim_report = report
                log.log_claim(self._write_event, report)
            if task is None:
                self.changes = self.changes._replace(next_due=report.due)
                return
            yield task

    @override
    def renew(self, tasks: Iterable[Task], until: float) -> Iterator[Outcome]:
        with self._database.writing() as db:
            done = [self._renew_lease(db, task, float(int(until))) for task in tasks]
        for outcome in done:
            if outcome.error is not None:
                log.log_move(self._write_event, outcome)
            yield outcome

    def _renew_lease(self, db: OwnerConnection, task: Task, until: float) -> Outcome:
        now = self._clock()
        if task.lease is None:
            return Outcome(Move(task, task), error=Gone(f"{task.id} is not claimed"))
        try:
            row = row_moves.read_unchanged(db, self._database, task, now)
        except Gone as error:
            return Outcome(Move(task, task), error=error)
        form = self._database.shape.forms["locked_until"]
        claims.update_row(db, self._database, row, locked_until=form.format(until, now))
        rev = claims.fetch_row(db, self._database, row.key).rev
        lease = task.lease._replace(until=until, token=rev)
        return Outcome(Move(task, task._replace(rev=rev, lease=lease)), rev)

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        for _, alike in groupby(moves, row_moves.touched_databases):
            while lot := list(islice(alike, MOVES_PER_TRANSACTION)):
                yield from self._apply_batch(lot)

    def _apply_batch(self, moves: list[Move]) -> list[Outcome]:
        """Make moves that change the same databases; one that fails does not stop the others."""
        try:
            done = self._commit_batch(moves)
        except Unavailable as error:
            return [Outcome(move, error=error) for move in moves]
        for outcome in done:
            log.log_move(self._write_event, outcome)
        return done

    def _commit_batch(self, moves: list[Move]) -> list[Outcome]:
        reach = row_moves.touched_databases(moves[0])
        allowed = [self._move_refusal(move) for move in moves]
        if all(allowed):
            return [Outcome(move, error=why) for move, why in zip(moves, allowed, strict=True)]
        now = self._clock()
        sidecar_db: OwnerConnection | None = None
        try:
            with self._database.writing() as queue_db:
                known = load_config(queue_db).move_token
                token = next_token(known)
                if reach is not TouchedDatabases.QUEUE:
                    sidecar_db = self._sidecar.begin(known, token)
                lot = MoveBatch(
                    self._database,
                    self._sidecar,
                    queue_db,
                    sidecar_db=sidecar_db,
                    token=token,
                    current_token=known,
                    now=now,
                )
                done = [
                    Outcome(move, error=why) if why else _apply_move(lot, move)
                    for move, why in zip(moves, allowed, strict=True)
                ]
                moved = reach is TouchedDatabases.BOTH and any(
                    outcome.error is None for outcome in done
                )
                if moved:
                    queue_config.write_setting(queue_db, queue_config.MOVED_KEY, token)
                if sidecar_db is not None:
                    # Commit the sidecar first: without the other commit it has no effect.
                    sidecar_db.run("COMMIT")
        except BaseException:
            if sidecar_db is not None:
                sidecar_db.roll_back()
            raise
        if moved:
            with suppress(Unavailable):  # until the next move, the token in `config` decides
                self._sidecar.settle_committed(token)
        return done

    def count_other(self) -> int:
        """Count held and trashed jobs of other databases that had this path before."""
        token = load_config(self._database.connection).move_token
        return self._sidecar.count_other(token)

    def _move_refusal(self, move: Move) -> Unsupported | None:
        """Return why a move is not allowed; None if it may be tried."""
        try:
            require_edge(self.edges, move.old, move.new, self._clock(), whole=bool(move.image))
        except Unsupported as error:
            return error
        return None

    def _controls(self) -> Mapping[str, Control]:
        settings = load_config(self._database.connection)
        return control.list_controls(settings, self._database, self._clock())

    @override
    def control(self, name: str, target: str = "", value: str = "") -> str:
        answer = control.run_control(self._database, name, value, self._clock())
        log.log_control(self._write_event, name, value, answer)
        self.controls = self._controls()
        return answer

    @override
    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        return control.forecast(self._database, name, self._clock())

    # ---- beyond the Store protocol

    def enqueue(self, number: int, kinds: Iterable[str] = KINDS) -> list[Enqueued]:
        """Enqueue the mails of a registration; report each as created or existing.

        A mail is enqueued once while its job exists. After it is sent the job is gone, and another
        call sends it again. Raises Unsupported: no such kind, or no registration of that number;
        Unavailable: the database cannot be written now."""
        now = self._clock()
        enqueued = []
        for kind in kinds:
            ident = f"{number}-{kind}"
            new = Task(ident, kind, State.PENDING, float(int(now)), due=float(int(now)))
            try:
                self.swap(None, new)
                created = True
            except Gone:
                created = False
            tasks = [item for item in self.scan({ident}) if isinstance(item, Task)]
            # It may have been sent since: then it is gone, and the new task describes it.
            enqueued.append(Enqueued(created, tasks[0] if tasks else new))
            if not created:
                self._write_event("enqueue_duplicate", reg=number, type=kind)
        return enqueued

    def figures(self, now: float) -> QueueFigures:
        """Compute the figures of ZGB's page: registrations, rate, tokens, end of the backlog."""
        return control.compute_figures(self._database, now)

    def backlog(self, now: float) -> Backlog:
        """Count waiting and parked jobs in "mail_queue". Raises Unavailable: the database cannot be
        read now."""
        return control.count_backlog(self._database, now)

    def redirect_now(self, now: float) -> RedirectDecision:
        """Decide where the mail of a user's job goes that is enqueued and sent now."""
        return claims.decide_redirect_now(
            self._database, load_config(self._database.connection), now
        )

    def test_mode_resumes(self, now: float) -> float | None:
        """When test mode takes effect again, if it is on without effect in the registration period:
        epoch seconds UTC. None if it is off, or in effect now. Raises Unavailable: the database
        cannot be read now."""
        settings = load_config(self._database.connection)
        during = settings.period(self._database.shape)
        held_back = settings.is_redirected and during is not None and during.contains(now)
        return during.end if during is not None and held_back else None

    def settings(self) -> QueueConfig:
        """Read ZGB's settings. Raises Unavailable: the database cannot be read now."""
        return load_config(self._database.connection)

    def columns(self) -> tuple[str, ...]:
        """Return the columns of the registrations; none without such a table."""
        return schema.registration_columns(self._database)

    @property
    def can_identify_jobs(self) -> bool:
        """True if a job differs from earlier and later ones of its number: by its creation time, or
        by a key that is never reused."""
        return "created_at" in self._database.shape.forms or self._database.shape.never_reuses_keys

    @property
    def has_creation_times(self) -> bool:
        """True if the creation time of a job is known, from its row or its registration."""
        return self._database.shape.has_creation_times

    def describe_claim(self, task: Task, now: float) -> ClaimedJob:
        """Read everything that is needed just before the mail of a claimed job is sent. Raises
        Gone: the lease has expired and another worker has the job: send nothing; Unavailable: the
        database cannot be read now."""
        database, db = self._database, self._database.connection
        row = row_moves.read_unchanged(db, database, task, now)
        settings = load_config(db)
        redirect = claims.decide_redirect(db, database, row, settings, now)
        return ClaimedJob(
            row.key,
            row.number,
            row.kind,
            attempt=row.attempts,
            created=int(row.created),
            identity=str(
                int(row.created) or (f"j{row.key}" if database.shape.never_reuses_keys else "")
            ),
            is_orphan=claims.is_orphan(db, database, row),
            registration=schema.read_registration(database, row.number),
            redirection=redirect,
            is_test=settings.is_redirected and row.kind == "user",
        )


def _apply_move(lot: MoveBatch, move: Move) -> Outcome:
    try:
        return Outcome(move, lot.apply(move))
    except (Gone, Unsupported) as error:
        if not lot.queue_db.is_writing:
            # A later move would be committed without the earlier ones of the batch.
            raise Unavailable(
                f"{lot.queue_db.path}: a trigger rolled everything back: {error}"
            ) from error
        return Outcome(move, error=error)
