"""The store over a mail queue's database: each move a guarded change of one row."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, islice
from typing import NamedTuple

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
from engine.store import (
    GLIMPSE,
    SHOWN,
    Control,
    Gone,
    Outlook,
    Seen,
    Unavailable,
    Unsupported,
    Wants,
    anything,
    permit,
)
from engine.stores.zgb import (
    claims,
    connections_config,
    control,
    log_summary,
    page,
    redirect,
    row_moves,
    schema,
)
from engine.stores.zgb.change_detector import ChangeDetector
from engine.stores.zgb.claims import KeptResult, Taking
from engine.stores.zgb.connection import Connection
from engine.stores.zgb.connections_config import QueueConfig
from engine.stores.zgb.log import Tell, silent
from engine.stores.zgb.page import Backlog, QueueFigures
from engine.stores.zgb.place import KINDS, ZgbDatabase
from engine.stores.zgb.row import (
    FAILED,
    STATES,
    from_image,
    image_of,
    parsed_id,
    stood,
    task_aside,
    task_of,
)
from engine.stores.zgb.row_moves import MoveBatch, TouchedDatabases
from engine.stores.zgb.scan import Walk
from engine.stores.zgb.schema import Database
from engine.stores.zgb.sidecar_database import SidecarDatabase
from engine.stores.zgb.times import Cell

GROUP = 100
"""Moves that are made durable together; their write lock is held for so long."""

_outcome = frozenset({"attempts", "due", "error"})

_CLAIMED = "whoever has its lease may be sending it: what comes of that is not stored any more"

EDGES: Edges = {
    (None, State.PENDING): Edge(),
    (State.ACTIVE, None): Edge(undoable=False),
    (State.ACTIVE, State.PENDING): Edge(_outcome, warning=_CLAIMED),
    (State.ACTIVE, State.DEAD): Edge(_outcome, warning=_CLAIMED),
    (State.ACTIVE, State.HELD): Edge(_outcome, warning=_CLAIMED),
    (State.PENDING, State.PENDING): Edge(frozenset({"due"})),
    (State.PENDING, State.DEAD): Edge(),
    (State.DEAD, State.HELD): Edge(),
    (State.HELD, State.DEAD): Edge(),
    (State.HELD, State.HELD): Edge(frozenset({"due"})),
    (State.PENDING, State.HELD): Edge(),
    (State.HELD, State.PENDING): Edge(frozenset({"due"})),
    # Their button leaves the last error where it is, until there is another.
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
    """What came of asking for one mail."""

    created: bool
    """False when there was such a job already; where it stands, the task says."""
    task: Task


class ClaimedJob(NamedTuple):
    """A claimed job as it stands just before its mail is sent."""

    job: int
    """The key of its row."""
    number: int
    kind: str
    attempt: int
    """Which one this is, from 1 on."""
    created: int
    """Epoch seconds UTC; 0 where the table does not say."""
    mark: str
    """What tells it from every other job of its number, earlier or later: when it was made, or else
    its key, where that is never given out again; "" where nothing does."""
    orphan: bool
    """Whether its registration is gone."""
    registration: Mapping[str, Cell]
    """The row of its registration by column; empty where there is none."""
    way: redirect.RedirectDecision
    test: bool
    """Whether the switch of the test mode is on for it, whatever the guard says."""


class ZgbStore:
    """Jobs as rows of theirs, and those that are held or in the trash in a database of ours."""

    states: Mapping[State, str] = STATES

    def __init__(
        self,
        place: ZgbDatabase,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
        tell: Tell = silent,
    ) -> None:
        """`pause` is what the doorbell spends its time with between two glances; `tell` is told
        what happens here, once it has.

        Raises:
            Unavailable: it is no mail queue, or cannot be read.
        """
        self.place = place
        self.words: Mapping[str, State] = {
            FAILED: State.PENDING if place.auto_retry else State.DEAD
        }
        self._clock, self._tell = clock, tell
        self._book = Database(place)
        self._aside = SidecarDatabase(place, read_only=bool(self._book.refused))
        why = self._book.refused
        self.edges: Edges = (
            {way: edge._replace(refused=why) for way, edge in EDGES.items()} if why else EDGES
        )
        self.expected = 0
        self.kept = KeptResult()
        """What the last take did besides claiming."""
        try:
            self.controls: Mapping[str, Control] = self._controls()
            self.doorbell = ChangeSource(wait=ChangeDetector(self._book, self._aside, pause).wait)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of both files."""
        self._aside.close()
        self._book.close()

    # ---- looking

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Everything as a stream, or what is named: ids, rows as problems name them, or a word for
        all in a state.

        Raises:
            Unavailable: the database is locked, damaged, or not there.
        """
        now = self._clock()
        self.controls = self._controls()
        walk = Walk(self._book, self._aside, now)
        if touched is None:
            yield from walk.peek()
            for item in walk.everything():
                self.expected = walk.expected
                yield item
            return
        by_word = {word: state for state, word in STATES.items()}
        for name in touched:
            if name in by_word:
                yield from walk.standing(by_word[name])
            else:
                found = self._look_for(walk, name)
                yield from found
                # What was a job and cannot be read as one any more is none.
                if not found or (parsed_id(name) and not any(isinstance(i, Task) for i in found)):
                    yield Missing(name)

    def _look_for(self, walk: Walk, name: str) -> list[Task | Problem]:
        its = parsed_id(name)
        if its is not None:
            # What moves from ours to theirs just now is found by the second time at the latest.
            return walk.named(*its) or Walk(self._book, self._aside, self._clock()).named(*its)
        row = name.removeprefix("mail_queue/").removeprefix("row ")
        if row != name and row.isascii() and row.isdecimal() and int(row) < 1 << 63:
            return walk.row(int(row))
        return [problem for problem in walk.problems() if problem.where == name]

    def still(self, seen: Iterable[Seen]) -> Iterator[Task | Problem]:
        """Those that stand there in this state and revision."""
        walk = Walk(self._book, self._aside, self._clock())
        for ident, state, rev in seen:
            its = parsed_id(ident)
            for item in walk.named(*its) if its is not None else ():
                if isinstance(item, Task) and (item.state, item.rev) == (state, rev):
                    yield item

    # ---- reading

    def parts(self, task: Task) -> Iterator[Part]:
        """There is nothing but the row."""
        data = self.read(task)
        yield Part("row", f"mail_queue/{task.id}", len(data))

    def size(self, task: Task) -> int:
        """What the row takes as text."""
        return len(self.read(task))

    def read(self, task: Task, part: str = "") -> bytes:
        """The row as text: every column by its name, and foreign ones too."""
        if part not in ("", "row"):
            raise Gone(f"{task.id} has no part {part!r}")
        now, token = self._clock(), connections_config.load(self._book.wire).moved
        if task.state in row_moves.OURS:
            kept = self._aside.find(task.id, token)
            if kept is None or (kept.state, kept.rev) != (task.state, task.rev):
                raise Gone(task.id)
            return kept.image[:SHOWN]
        row = row_moves.current(self._book.wire, self._book, task, now)
        return image_of(row, self._book.shape)[:SHOWN]

    def recall(self, task: Task, image: bytes, state: State) -> Task:
        """The row that the text told of, in nobody's hand."""
        now, shape = self._clock(), self._book.shape
        was = from_image(image, shape)
        if was.id != task.id:
            raise Unsupported(f"these bytes are not of {task.id}")
        row = stood(was, state, now, shape, self.place)
        if state in row_moves.OURS:
            return task_aside(row, state, now, task.rev, now, self.place)
        there = task_of(row, now, self.place)
        return replace(there, rev=task.rev)

    def glimpse(self, problem: Problem) -> bytes:
        """The columns of a row that is no job."""
        key = problem.where.removeprefix("mail_queue/row ")
        if key == problem.where or not key.isdecimal() or int(key) >= 1 << 63:
            raise Gone(problem.where)
        shape = self._book.shape
        found = self._book.wire.run(
            f"SELECT {shape.columns} FROM mail_queue WHERE {shape.key} = ?", (int(key),)
        )
        if not found:
            raise Gone(problem.where)
        lines = (
            f"{name}: {value!r}" for name, value in zip(shape.names, found[0][1:], strict=True)
        )
        return "\n".join(lines).encode("utf-8", "backslashreplace")[:GLIMPSE]

    # ---- taking

    def take(self, now: float, owner: str, limit: int, wants: Wants = anything) -> Iterator[Task]:
        """Due jobs by when they are due and then by arrival, as many as there are tokens.

        The first claim keeps house; what it did is in `kept`. Afterwards `doorbell.due` says when
        there will be something to claim. `wants` is asked under the queue's write lock.

        Raises:
            Unsupported: the database may not be written.
            Unavailable: it cannot be written now, or most of its jobs have no registration.
        """
        if self._book.refused:
            raise Unsupported(self._book.refused)
        run = Taking(self._book, now, owner, wants)
        for turn in range(limit):
            claim = run.claim()
            if turn == 0:
                self.kept = claim.kept
                log_summary.kept(self._tell, claim.kept)
            if claim.task is None:
                self.doorbell = self.doorbell._replace(due=claim.kept.due)
                return
            yield claim.task

    # ---- changing

    def swap(self, old: Task | None, new: Task | None) -> str:
        """One change, durable when it returns.

        Raises:
            Gone: the job is not there as `old` says; nothing changed.
            Unsupported: no such edge here, a value that a row cannot hold, or a registration that
                is gone or another one by now.
            Unavailable: the database cannot be written now; nothing changed.
        """
        (outcome,) = self._lot([Move(old, new)])
        if outcome.error is not None:
            raise outcome.error
        return outcome.rev

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """Many changes, up to a hundred in one transaction."""
        for _, alike in groupby(moves, row_moves.reach):
            while lot := list(islice(alike, GROUP)):
                yield from self._lot(lot)

    def _lot(self, moves: list[Move]) -> list[Outcome]:
        """Moves of one reach, together; one that cannot be made leaves the others be."""
        try:
            done = self._committed(moves)
        except Unavailable as error:
            return [Outcome(move, error=error) for move in moves]
        for outcome in done:
            log_summary.moved(self._tell, outcome)
        return done

    def _committed(self, moves: list[Move]) -> list[Outcome]:
        reach = row_moves.reach(moves[0])
        allowed = [self._forbidden(move) for move in moves]
        if all(allowed):
            return [Outcome(move, error=why) for move, why in zip(moves, allowed, strict=True)]
        now, token = self._clock(), secrets.token_hex(8)
        ours: Connection | None = None
        try:
            with self._book.writing() as theirs:
                known = connections_config.load(theirs).moved
                if reach is not TouchedDatabases.THEIRS:
                    ours = self._aside.begin(known)
                lot = MoveBatch(self._book, self._aside, theirs, ours, token, known, now)
                done = [
                    Outcome(move, error=why) if why else _made(lot, move)
                    for move, why in zip(moves, allowed, strict=True)
                ]
                moved = reach is TouchedDatabases.BOTH and any(
                    outcome.error is None for outcome in done
                )
                if moved:
                    connections_config.put(theirs, connections_config.MOVED, token)
                if ours is not None:
                    # Ours first: until theirs follows, nothing of it counts.
                    ours.run("COMMIT")
        except BaseException:
            if ours is not None:
                ours.abandon()
            raise
        if moved:
            with suppress(Unavailable):  # the token in theirs says so until the next move does
                self._aside.finish(token)
        return done

    def _forbidden(self, move: Move) -> Unsupported | None:
        """Why a move leads nowhere; None when it may be tried."""
        try:
            permit(self.edges, move.old, move.new, whole=bool(move.image))
        except Unsupported as error:
            return error
        return None

    def renew(self, task: Task, now: float) -> Task:
        """A claimed job with its lease begun anew; to be done before each mail.

        Raises:
            Gone: the claim has lapsed, and somebody else has seen to it: send nothing.
        """
        with self._book.writing() as wire:
            row = row_moves.current(wire, self._book, task, now)
            until = int(now) + self.place.lease
            form = self._book.shape.forms["locked_until"]
            claims.write(wire, self._book, row, locked_until=form.write(until, now))
            after = claims.fetch(wire, self._book, row.key)
        lease = None if task.lease is None else task.lease._replace(until=until, token=after.rev)
        return replace(task, rev=after.rev, lease=lease)

    # ---- the queue as a whole

    def _controls(self) -> Mapping[str, Control]:
        settings = connections_config.load(self._book.wire)
        return control.controls(settings, self._book, self._clock())

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Set one of theirs, or press their button.

        Raises:
            Unsupported: there is no such control, it is refused now, or not with this value.
            Unavailable: the database cannot be written now.
        """
        said = control.act(self._book, name, value, self._clock())
        log_summary.pressed(self._tell, name, value, said)
        self.controls = self._controls()
        return said

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """How many jobs a control would change now.

        Raises:
            Unsupported: there is no such control, it is refused now, or it changes no jobs.
            Unavailable: the database cannot be read now.
        """
        return control.forecast(self._book, name, self._clock())

    # ---- beside the seam

    def enqueue(self, number: int, kinds: Iterable[str] = KINDS) -> list[Enqueued]:
        """Both mails of a registration, or some of them: created, or there already.

        It is the same only while the job is there: once a mail is sent, its job is gone, and
        enqueuing it once more sends it once more.

        Raises:
            Unsupported: no such kind, or no registration of that number.
            Unavailable: the database cannot be written now.
        """
        now = self._clock()
        said = []
        for kind in kinds:
            ident = f"{number}-{kind}"
            new = Task(ident, kind, State.PENDING, float(int(now)), due=float(int(now)))
            try:
                self.swap(None, new)
                created = True
            except Gone:
                created = False
            tasks = [item for item in self.look({ident}) if isinstance(item, Task)]
            # It may have been sent since: then it is there no more, and was as we left it.
            said.append(Enqueued(created, tasks[0] if tasks else new))
            if not created:
                self._tell("enqueue_duplicate", reg=number, type=kind)
        return said

    def figures(self, now: float) -> QueueFigures:
        """What their page shows: registrations, the pace, tokens, and when the backlog is sent."""
        return page.figures(self._book, now)

    def backlog(self, now: float) -> Backlog:
        """How many jobs wait among theirs.

        Raises:
            Unavailable: the database cannot be read now.
        """
        return page.backlog(self._book, now)

    def way_now(self, now: float) -> redirect.RedirectDecision:
        """Where a user's mail would go that is enqueued and sent now."""
        return claims.way_of_all(self._book, connections_config.load(self._book.wire), now)

    def test_mode_from(self, now: float) -> float | None:
        """When the test mode, which is on without effect in the registration period, has its effect
        again: epoch seconds UTC. None where it is off, or no period holds it back.

        Raises:
            Unavailable: the database cannot be read now.
        """
        settings = connections_config.load(self._book.wire)
        during = settings.period(self._book.shape)
        held_back = settings.redirected and during is not None and during.holds(now)
        return during.end if during is not None and held_back else None

    def settings(self) -> QueueConfig:
        """Their settings as they stand now.

        Raises:
            Unavailable: the database cannot be read now.
        """
        return connections_config.load(self._book.wire)

    def columns(self) -> tuple[str, ...]:
        """What is known of each registration, by the names of its columns; none without a table."""
        return schema.registration_columns(self._book)

    @property
    def tells_jobs_apart(self) -> bool:
        """Whether a job is told from an earlier or later one of its number: by when it was made, or
        by a key that is never given out again."""
        return "created_at" in self._book.shape.forms or self._book.shape.numbered

    @property
    def dates(self) -> bool:
        """Whether it can be told when a job was made: by itself, or by its registration."""
        return self._book.shape.dates

    def errand(self, task: Task, now: float) -> ClaimedJob:
        """All that is to be known of a claimed job just before its mail is sent.

        Raises:
            Gone: the claim has lapsed, and somebody else has seen to it: send nothing.
            Unavailable: the database cannot be read now.
        """
        book, wire = self._book, self._book.wire
        row = row_moves.current(wire, book, task, now)
        settings = connections_config.load(wire)
        way = claims.way_of(wire, book, row, settings, now)
        return ClaimedJob(
            row.key,
            row.number,
            row.kind,
            row.attempts,
            int(row.created),
            str(int(row.created) or (f"j{row.key}" if book.shape.numbered else "")),
            claims.is_orphan(wire, book, row),
            schema.registration(book, row.number),
            way,
            settings.redirected and row.kind == "user",
        )

    def is_orphan(self, task: Task) -> bool:
        """Whether a claimed job's registration has gone since: to be asked just before sending."""
        wire = self._book.wire
        row = row_moves.current(wire, self._book, task, self._clock())
        return claims.is_orphan(wire, self._book, row)

    def way(self, task: Task, now: float) -> redirect.RedirectDecision:
        """Where the mail of a job goes that is sent now: as meant, redirected, or nobody knows.

        Raises:
            Gone: it is not there as it was seen.
        """
        wire = self._book.wire
        row = row_moves.current(wire, self._book, task, now)
        return claims.way_of(wire, self._book, row, connections_config.load(wire), now)


def _made(lot: MoveBatch, move: Move) -> Outcome:
    try:
        return Outcome(move, lot.carry_out(move))
    except (Gone, Unsupported) as error:
        if not lot.theirs.is_writing:
            # Whatever followed would hold by itself, without the others of the lot.
            raise Unavailable(
                f"{lot.theirs.path}: a rule there undid everything: {error}"
            ) from error
        return Outcome(move, error=error)
