"""Apply a plan: re-check each row, swap it in the store, and write its outcome to the journal.

The order of the steps makes it safe to be killed at any point: the intent is in the journal before
the first task moves, the image of a task is saved before it is changed, and an outcome is written
only once it is durable. For rows that are still open after a crash,
`engine.operations.undo.settle_operation` finds the outcome from the present state of their tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Protocol

from engine.model import Move, State, Task
from engine.operations import plans
from engine.operations.plans import Plan, Row
from engine.store import ChangeableStore, Gone, ReadableStore, StoreError, Unavailable, Unsupported
from engine.values import NamedTuple
from engine.verbs import VERBS, keep_error, with_state

JOURNAL_BATCH_ROWS = 500
"""Rows whose outcomes are written to the journal together, with one fsync."""


MAX_OPEN_ROWS = 100
"""Rows that the store has open at the same time; each may need two file descriptors."""


class RowResult(StrEnum):
    """The outcome of a row: exactly one of these."""

    DONE = "done"
    GONE = "gone"
    """The task had changed since the plan was made; skipped."""
    FAILED = "failed"
    """The task could not be changed."""
    EXCLUDED = "excluded"
    UNAPPLIED = "unapplied"
    """The run was stopped before this row."""


class RowOutcome(NamedTuple):
    """The outcome of one row."""

    row: Row
    result: RowResult
    reason: str = ""
    """The reason, unless it is done."""
    rev: str = ""
    """The new revision of a changed task; "" if it has left the store."""
    is_final: bool = True
    """False if the store cannot tell whether the task moved. No outcome is then written, and
    `engine.operations.undo.settle_operation` finds it out later."""


class Report(NamedTuple):
    """The outcome of a plan: every row is in exactly one of the five groups."""

    plan: Plan
    done: tuple[str, ...]
    """Ids of the tasks that were changed; durable."""
    gone: tuple[str, ...]
    """Ids of the tasks that had changed since the plan was made; skipped."""
    failed: tuple[tuple[str, str], ...]
    """Ids of the tasks that could not be changed, each with the reason."""
    excluded: tuple[tuple[str, str], ...] = ()
    """Ids of the rows that were excluded, each with the reason."""
    trouble: str = ""
    """An error apart from the tasks, such as a journal that cannot be written; "" if none."""
    op: str = ""
    """The id of the operation in the journal; "" without a journal."""
    is_exact: bool = True
    """False if a change was sent as a request (`Edge.exact`): then the server decides."""
    unapplied: tuple[tuple[str, str], ...] = ()
    """Ids of the rows that were not tried, because the run was stopped; each with the reason."""

    @property
    def accounted(self) -> int:
        """The number of rows in this report."""
        return sum(len(getattr(self, result)) for result in RowResult)


class OutcomeWriter(Protocol):
    """Writes an operation to the journal (`engine.operations.journal_writer.JournalWriter`)."""

    op: str

    def save_images(self, images: Sequence[tuple[str, bytes]]) -> None:
        """Save the images of tasks before they are changed, by id; durable when it returns."""
        ...

    def write_note(self, what: str, **words: object) -> None:
        """Write a note."""
        ...

    def write_outcomes(self, ended: Sequence[RowOutcome]) -> None:
        """Write the outcomes of some rows; durable when it returns."""
        ...

    def write_end(self, report: Report) -> None:
        """Write that the operation has ended."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


REASON_CHANGED = "changed since the plan"
REASON_NO_IMAGE = "its saved image was deleted"

RefusalCheck = Callable[[], str]
"""Returns why nothing may be changed now; "" if it may."""


def always_allowed() -> str:
    """Always allow changes."""
    return ""


TrashCheck = Callable[[Task], str]
"""Returns why a task does not fit into the trash; "" if it does, and then reserves its size."""


def unlimited_trash(task: Task) -> str:
    """A trash without a size limit."""
    return ""


class PlanRun:
    """The execution of a plan, some rows at a time."""

    def __init__(
        self,
        store: ChangeableStore,
        plan: Plan,
        now: Callable[[], float],
        pen: OutcomeWriter | None = None,
        *,
        allowed: RefusalCheck = always_allowed,
        images: Mapping[str, bytes] | None = None,
        fits: TrashCheck = unlimited_trash,
    ) -> None:
        """`allowed` is asked again before each batch; `images` are the images to restore, by id;
        `fits` is asked for each task that goes into the trash. If there are `images`, a row without
        its own is not restored.

        Excluded rows are accounted for immediately; the intent names them already.
        """
        self.plan = plan
        self._store, self._now, self._pen, self._allowed = store, now, pen, allowed
        self._fits = fits
        self._images = images
        self._open = dict.fromkeys(plan.included)
        self._ended: dict[RowResult, list[RowOutcome]] = {end: [] for end in RowResult}
        self._op = pen.op if pen is not None else ""
        self._unsure = False
        self._is_exact = True
        self._remark = ""
        self.trouble = ""
        """Why the run has stopped; "" while it runs."""
        self._close(RowOutcome(row, RowResult.EXCLUDED, why) for row, why in plan.excluded)

    @property
    def open_rows(self) -> tuple[Row, ...]:
        """The rows that have no outcome yet, in the order of the plan."""
        return tuple(self._open)

    @property
    def counts(self) -> dict[RowResult, int]:
        """The number of rows so far by result."""
        return {end: len(ended) for end, ended in self._ended.items()}

    def step(self, rows: Iterable[Row]) -> tuple[RowOutcome, ...]:
        """Apply the plan to some of the waiting rows; durable, and in the journal, when it returns.

        A row that another process changed first counts as gone.
        """
        batch = [row for row in dict.fromkeys(rows) if row in self._open]
        ended: list[RowOutcome] = []
        try:
            if why := self.trouble or self._allowed():
                ended += (RowOutcome(row, RowResult.FAILED, why) for row in batch)
            else:
                for start in range(0, len(batch), MAX_OPEN_ROWS):
                    self._carry_out(batch[start : start + MAX_OPEN_ROWS], ended)
                    if self.trouble:
                        why = self.trouble
                        ended += (
                            RowOutcome(r, RowResult.FAILED, why)
                            for r in batch[start + MAX_OPEN_ROWS :]
                        )
                        break
        except Unavailable as error:
            known = {one.row for one in ended}
            ended += [
                RowOutcome(row, RowResult.FAILED, str(error)) for row in batch if row not in known
            ]
        self._close(ended)
        if not self.trouble:
            self._write(ended)
        return tuple(ended)

    def finish(self, why: str) -> Report:
        """End the run. Waiting rows stay unapplied for that reason; after an error, they have
        failed.
        """
        end = RowResult.FAILED if self.trouble else RowResult.UNAPPLIED
        rest = [RowOutcome(row, end, why) for row in self._open]
        self._close(rest)
        if not self.trouble:
            self._write(rest)
        # Without an `end` line it counts as interrupted, and `settle` decides the open rows later.
        if self._pen is not None and not (self.trouble or self._unsure):
            try:
                self._pen.write_end(self.report())
            except Unavailable as error:
                self._cannot_write(error)
        return self.report()

    def report(self) -> Report:
        """The outcome of the rows so far."""
        return Report(
            self.plan,
            tuple(one.row.id for one in self._ended[RowResult.DONE]),
            tuple(one.row.id for one in self._ended[RowResult.GONE]),
            tuple((one.row.id, one.reason) for one in self._ended[RowResult.FAILED]),
            tuple((one.row.id, one.reason) for one in self._ended[RowResult.EXCLUDED]),
            self.trouble or self._remark,
            self._op,
            self._is_exact,
            tuple((one.row.id, one.reason) for one in self._ended[RowResult.UNAPPLIED]),
        )

    def _close(self, ended: Iterable[RowOutcome]) -> None:
        for one in ended:
            self._open.pop(one.row, None)
            self._ended[one.result].append(one)
            self._unsure |= not one.is_final

    def _write(self, ended: Sequence[RowOutcome]) -> None:
        known = [one for one in ended if one.is_final]
        if self._pen is None or not known:
            return
        try:
            self._pen.write_outcomes(known)
        except Unavailable as error:
            self._cannot_write(error)

    def _cannot_write(self, error: Unavailable) -> None:
        if VERBS[self.plan.verb].is_undoable:
            # Stop here, so that no more rows stay without an outcome in the journal.
            self.trouble = str(error)
        else:
            # Go on without a journal: a full disk may be the reason for this operation.
            self._pen, self._remark = None, str(error)

    def _carry_out(self, batch: list[Row], ended: list[RowOutcome]) -> None:
        """Append the outcome of each row to `ended` as soon as it is known."""
        there: dict[tuple[str, State, str], Task] = {}
        unknown: dict[str, str] = {}
        for seen in self._store.verify([(row.id, row.state, row.rev) for row in batch]):
            if isinstance(seen, Task):
                there[seen.id, seen.state, seen.rev] = seen
            else:
                unknown[seen.where] = seen.what
        moves: dict[Row, Move] = {}
        ways: dict[tuple[State, State | None], tuple[str, bool]] = {}
        for row in batch:
            task = there.get((row.id, row.state, row.rev))
            way = row.state, row.target
            if way not in ways:
                its = plans.transition_of(self.plan.verb, row)
                refused = plans.row_refusal(self._store.edges, self.plan.verb, row)
                ways[way] = refused, its is not None and its[1] is State.TRASH
                if not refused and its is not None:
                    self._is_exact &= self._store.edges[its].exact
            refused, into_trash = ways[way]
            if task is None:
                why = unknown.get(row.id, "")
                ended.append(
                    RowOutcome(
                        row, RowResult.FAILED if why else RowResult.GONE, why or REASON_CHANGED
                    )
                )
            elif why := refused or (self._fits(task) if into_trash else ""):
                ended.append(RowOutcome(row, RowResult.FAILED, why))
            else:
                try:
                    moves[row] = self._move(task, row)
                except StoreError as error:
                    ended.append(RowOutcome(row, RowResult.FAILED, str(error)))
        ended += self._keep(moves)
        self._swap(moves, ended)

    def _move(self, task: Task, row: Row) -> Move:
        if row.target is None:
            new = VERBS[self.plan.verb].function(task, self._now(), **self.plan.values)
            return Move(task, keep_error(self._store.edges, task, new))
        if self._images is None:
            return Move(task, with_state(task, row.target))
        image = self._images.get(row.id)
        if image is None:
            raise Unsupported(REASON_NO_IMAGE)
        return Move(task, self._store.restore_image(task, image, row.target), image)

    def _keep(self, moves: dict[Row, Move]) -> list[RowOutcome]:
        """Save the images of these tasks; remove from `moves`, and return, the rows where that
        fails.
        """
        if self._pen is None or VERBS[self.plan.verb].keeps_bytes:
            return []
        images: list[tuple[str, bytes]] = []
        lost: list[RowOutcome] = []
        for row, move in moves.items():
            assert move.old is not None
            try:
                images.append((row.id, self._store.read(move.old)))
            except Gone:
                lost.append(RowOutcome(row, RowResult.GONE, REASON_CHANGED))
            except StoreError as error:
                lost.append(RowOutcome(row, RowResult.FAILED, str(error)))
        for one in lost:
            del moves[one.row]
        try:
            self._pen.save_images(images)
        except Unavailable as error:
            self.trouble = str(error)
            lost += (RowOutcome(row, RowResult.FAILED, self.trouble) for row in moves)
            moves.clear()
        return lost

    def _swap(self, moves: Mapping[Row, Move], ended: list[RowOutcome]) -> None:
        left = {(row.id, row.rev): row for row in moves}
        refused: dict[Row, str] = {}
        why = "no answer from the store"
        try:
            for move, rev, error in self._store.swap_all(moves.values()):
                assert move.old is not None
                row = left.pop((move.old.id, move.old.rev))
                if error is None:
                    ended.append(RowOutcome(row, RowResult.DONE, rev=rev))
                elif isinstance(error, Gone):
                    ended.append(RowOutcome(row, RowResult.GONE, str(error)))
                elif isinstance(error, Unavailable):
                    refused[row] = str(error)
                else:
                    ended.append(RowOutcome(row, RowResult.FAILED, str(error)))
        except Unavailable as error:
            why = str(error)
        refused |= dict.fromkeys(left.values(), why)
        ended += self._refused(refused)

    def _refused(self, rows: Mapping[Row, str]) -> Iterator[RowOutcome]:
        """Rows without a clear answer: failed; final only if a re-read shows where the task is."""
        try:
            there = _read_tasks(self._store, list(rows)) if rows else {}
        except Unavailable:
            there = {}
        standing = {(ident, state) for ident, state, _ in there}
        for row, why in rows.items():
            its = plans.transition_of(self.plan.verb, row)
            moves = its is not None and its[1] is not row.state
            stayed = (row.id, row.state, row.rev) in there
            sure = stayed or (moves and (row.id, row.state) in standing)
            yield RowOutcome(row, RowResult.FAILED, why, is_final=sure)


def apply_plan(
    store: ChangeableStore,
    plan: Plan,
    now: Callable[[], float],
    pen: OutcomeWriter | None = None,
    *,
    told: Callable[[Mapping[RowResult, int]], None] = lambda counts: None,
    halted: Callable[[], bool] = lambda: False,
    allowed: RefusalCheck = always_allowed,
    images: Mapping[str, bytes] | None = None,
    fits: TrashCheck = unlimited_trash,
) -> Report:
    """Apply a whole plan; blocks until every outcome is durable and in the journal.

    `told` gets the counts after each batch; once `halted` returns True, the remaining rows stay
    unapplied. If the store becomes unavailable, they fail with that reason.
    """
    applying = PlanRun(store, plan, now, pen, allowed=allowed, images=images, fits=fits)
    rows = iter(applying.open_rows)
    why = ""
    while not applying.trouble and (batch := list(islice(rows, JOURNAL_BATCH_ROWS))):
        if halted():
            why = "stopped by the operator"
            break
        applying.step(batch)
        told(applying.counts)
    return applying.finish(applying.trouble or why)


def _read_tasks(store: ReadableStore, rows: Sequence[Row]) -> dict[tuple[str, State, str], Task]:
    """Read the present state of the tasks of these rows."""
    seen = store.scan({row.id for row in rows})
    return {(t.id, t.state, t.rev): t for t in seen if isinstance(t, Task)}
