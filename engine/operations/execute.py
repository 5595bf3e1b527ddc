"""Apply a plan: re-check each row, swap it in the store, and write its outcome to the journal.

The order of the steps makes it safe to be killed at any point: the intent is in the journal before
the first task moves, the image of a task is saved before it is changed, and an outcome is written
only once it is durable. For rows that are still open after a crash,
`engine.operations.undo.settle_operation` finds the outcome from the present state of their tasks.

Raises, everywhere: Unavailable, if a temporary table cannot be read or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from typing import Any

from engine.model import Move, State, Task
from engine.operations import plans
from engine.operations.journal_writer import JournalWriter
from engine.operations.plan_rows import RowTable
from engine.operations.plans import Plan, Row, RowOutcome, RowResult
from engine.operations.temp_table import TableSequence, TempTable
from engine.store import ChangeableStore, Gone, StoreError, Unavailable, Unsupported
from engine.values import NamedTuple
from engine.verbs import VERBS, keep_error, with_state

NEW_ID_SECONDS = 1.0
"""Seconds for which a plan waits for the new ids of its tasks."""

JOURNAL_BATCH_ROWS = 500
"""Rows whose outcomes are written to the journal together, with one fsync."""


IMAGE_BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of task images that are saved together, with one fsync: a larger batch is saved in parts,
so that a plan for large mails does not hold a hundred of them in memory."""


class Report(NamedTuple):
    """The outcome of a plan: every row is in exactly one of the five groups."""

    plan: Plan
    done: Sequence[str]
    """Ids of the tasks that were changed; durable."""
    gone: Sequence[str]
    """Ids of the tasks that had changed since the plan was made; skipped."""
    failed: Sequence[tuple[str, str]]
    """Ids of the tasks that could not be changed, each with the reason."""
    excluded: Sequence[tuple[str, str]] = ()
    """Ids of the rows that were excluded, each with the reason."""
    trouble: str = ""
    """An error apart from the tasks, such as a journal that cannot be written; "" if none."""
    op: str = ""
    """The id of the operation in the journal; "" without a journal."""
    is_exact: bool = True
    """False if a change was sent as a request (`Edge.exact`): then the server decides."""
    has_way_back: bool = True
    """True if at least one change was made that can be undone (`Edge.undoable`)."""
    unapplied: Sequence[tuple[str, str]] = ()
    """Ids of the rows that were not tried, because the run was stopped; each with the reason."""
    new_ids: Mapping[str, str] = plans.NO_VALUES
    """The new ids of changed tasks that got one (`Edge.renames`), by the former id; "" for one that
    was not seen yet."""
    notes: Mapping[str, int] = {}
    """The notes of outcomes (`Outcome.note`), each with its number of tasks."""

    @property
    def is_undoable(self) -> bool:
        """True if an undo can change tasks back: a request to a server cannot be undone."""
        has_done = bool(self.done and self.op)
        is_undoable = self.is_exact and self.has_way_back and VERBS[self.plan.verb].is_undoable
        return has_done and is_undoable

    @property
    def accounted(self) -> int:
        """The number of rows in this report."""
        return sum(len(getattr(self, result)) for result in RowResult)


class OutcomeLists:
    """The outcomes of a run, counted; their ids and reasons in lists, or for a large plan in a
    temporary table."""

    def __init__(self, *, is_large: bool) -> None:
        self.counts = dict.fromkeys(RowResult, 0)
        self._lists: dict[RowResult, list[tuple[str, str]]] = {end: [] for end in RowResult}
        self._table = TempTable() if is_large else None
        if self._table is not None:
            self._table.read("CREATE TABLE ended(place INTEGER PRIMARY KEY, result, id, reason)")

    def add(self, ended: Collection[RowOutcome]) -> None:
        """Add some outcomes. After an error they are counted, and not listed."""
        for one in ended:
            self.counts[one.result] += 1
        if self._table is None:
            for one in ended:
                self._lists[one.result].append((one.row.id, one.reason))
        else:
            self._table.write(
                "INSERT INTO ended(result, id, reason) VALUES (?, ?, ?)",
                [(str(one.result), one.row.id, one.reason) for one in ended],
            )

    def ids(self, result: RowResult) -> Sequence[str]:
        """The ids of the rows with a result."""
        if self._table is None:
            return tuple(ident for ident, _ in self._lists[result])
        return self._listed(self._table, result, itemgetter(0))

    def reasons(self, result: RowResult) -> Sequence[tuple[str, str]]:
        """The ids of the rows with a result, each with the reason."""
        if self._table is None:
            return tuple(self._lists[result])
        return self._listed(self._table, result, tuple)

    def _listed(self, table: TempTable, result: RowResult, make: Any) -> TableSequence[Any]:
        query = f"SELECT place, id, reason FROM ended WHERE result='{result}'"
        return TableSequence(table, self.counts[result], query, make)


class OpenRows:
    """The rows of a run that have no outcome yet, in order; those of a large plan are read when
    they are needed."""

    def __init__(self, plan: Plan) -> None:
        self._unread, self._read = plan.included, dict[Row, None]()
        if not isinstance(plan.rows, RowTable):
            self.first(len(plan.rows))

    def first(self, limit: int) -> tuple[Row, ...]:
        """Up to `limit` rows."""
        self._read.update(dict.fromkeys(islice(self._unread, max(0, limit - len(self._read)))))
        return tuple(islice(self._read, limit))

    def __contains__(self, row: object) -> bool:
        """True if a row was returned, and has no outcome yet."""
        return row in self._read

    def remove(self, row: Row) -> None:
        """Remove a row that has an outcome."""
        self._read.pop(row, None)


REASON_CHANGED = "changed since the plan"
REASON_NO_IMAGE = "its saved image was deleted"

RefusalCheck = Callable[[], str]
"""Returns why nothing may be changed now; "" if it may."""


def always_allowed() -> str:
    """Always allow changes."""
    return ""


TrashCheck = Callable[[Task], str]
"""Returns why a task does not fit into the trash; "" if it does, and then reserves its size."""


class PlanRun:
    """The execution of a plan, some rows at a time."""

    def __init__(
        self,
        store: ChangeableStore,
        plan: Plan,
        now: Callable[[], float],
        recorder: JournalWriter | None = None,
        *,
        allowed: RefusalCheck = always_allowed,
        images: Mapping[str, bytes] | None = None,
        fits: TrashCheck = lambda task: "",
    ) -> None:
        """`allowed` is asked again before each batch; `images` are the images to restore, by id;
        `fits` is asked for each task that goes into the trash. If there are `images`, a row without
        its own is not restored.

        Excluded rows are accounted for immediately; the intent names them already."""
        self.plan = plan
        self._store, self._now, self._recorder, self._allowed = store, now, recorder, allowed
        self._fits, self._images = fits, images
        self._open = OpenRows(plan)
        self._ended = OutcomeLists(is_large=isinstance(plan.rows, RowTable))
        self._op = recorder.op if recorder is not None else ""
        self._unsure, self._is_exact, self._remark = False, True, ""
        self._has_way_back = self._renames = False
        self._new_ids: dict[str, str] = {}
        self._amounts = plans.count_by_transition(plan)
        self._notes = Counter[str]()
        self._counted: set[tuple[State, State | None]] = set()
        self.trouble = ""
        """Why the run has stopped; "" while it runs."""
        excluded = plan.excluded
        while batch := list(islice(excluded, JOURNAL_BATCH_ROWS)):
            self._close([RowOutcome(row, RowResult.EXCLUDED, why) for row, why in batch])

    @property
    def open_rows(self) -> tuple[Row, ...]:
        """The rows that have no outcome yet, in the order of the plan."""
        return self._open.first(len(self.plan.rows))

    def next_rows(self, limit: int) -> tuple[Row, ...]:
        """The first rows that have no outcome yet; none if they cannot be read, see `trouble`."""
        try:
            return self._open.first(limit)
        except Unavailable as error:
            self.trouble = self.trouble or str(error)
            return ()

    @property
    def counts(self) -> dict[RowResult, int]:
        """The number of rows so far by result."""
        return dict(self._ended.counts)

    def step(self, rows: Iterable[Row]) -> tuple[RowOutcome, ...]:
        """Apply the plan to some of the waiting rows; durable, and in the journal, when it returns.
        A row that another process changed first counts as gone."""
        batch = [row for row in dict.fromkeys(rows) if row in self._open]
        ended: list[RowOutcome] = []
        try:
            if why := self.trouble or self._allowed():
                ended += _failed(batch, why)
            else:
                most = self._store.max_verified
                for start in range(0, len(batch), most):
                    self._carry_out(batch[start : start + most], ended)
                    if self.trouble:
                        ended += _failed(batch[start + most :], self.trouble)
                        break
        except Unavailable as error:
            known = {one.row for one in ended}
            ended += _failed([row for row in batch if row not in known], str(error))
        if not self.trouble:
            self._write(ended)
        self._close(ended)
        return tuple(ended)

    def finish(self, why: str) -> Report:
        """End the run. Waiting rows stay unapplied for that reason; after an error, they have
        failed."""
        end = RowResult.FAILED if self.trouble else RowResult.UNAPPLIED
        while rows := self.next_rows(JOURNAL_BATCH_ROWS):
            outcomes = [RowOutcome(row, end, why) for row in rows]
            if not self.trouble:
                self._write(outcomes)
            self._close(outcomes)
        # Rows that cannot be read any more have no id in the report; the journal has them.
        self._ended.counts[RowResult.FAILED] += len(self.plan.rows) - sum(self.counts.values())
        # Without an `end` line it counts as interrupted, and `settle` decides the open rows later.
        if self._recorder is not None and not (self.trouble or self._unsure):
            try:
                self._recorder.write_end(len(self.plan.rows), self.counts)
            except Unavailable as error:
                self._cannot_write(error)
        self._find_new_ids(0.0 if why else NEW_ID_SECONDS)
        return self.report()

    def report(self) -> Report:
        """The outcome of the rows so far."""
        return Report(
            self.plan,
            self._ended.ids(RowResult.DONE),
            self._ended.ids(RowResult.GONE),
            failed=self._ended.reasons(RowResult.FAILED),
            excluded=self._ended.reasons(RowResult.EXCLUDED),
            trouble=self.trouble or self._remark,
            op=self._op,
            is_exact=self._is_exact,
            has_way_back=self._has_way_back,
            unapplied=self._ended.reasons(RowResult.UNAPPLIED),
            new_ids=self._new_ids,
            notes=self._notes,
        )

    def _find_new_ids(self, seconds: float) -> None:
        """Look for the new ids of tasks, and note them. No outcome depends on them: those that are
        not seen or noted are looked for again when the operation is shown."""
        with suppress(Unavailable):
            ids = self._ended.ids(RowResult.DONE) if self._renames else ()
            self._new_ids = dict.fromkeys(ids, "")
            if self._new_ids and seconds:
                seen = self._store.find_new_ids(self._new_ids.keys(), seconds)
                self._new_ids |= seen
                if self._recorder is not None:
                    self._recorder.write_new_ids(seen)

    def _close(self, ended: Collection[RowOutcome]) -> None:
        for one in ended:
            self._open.remove(one.row)
            self._unsure |= not one.is_final
        try:
            self._ended.add(ended)
        except Unavailable as error:
            self.trouble = self.trouble or str(error)

    def _write(self, ended: Sequence[RowOutcome]) -> None:
        known = [one for one in ended if one.is_final]
        if self._recorder is None or not known:
            return
        try:
            if self._renames:
                done = (one.row.id for one in known if one.result is RowResult.DONE)
                self._recorder.write_new_ids(dict.fromkeys(done, ""))
            self._recorder.write_outcomes(known)
        except Unavailable as error:
            self._cannot_write(error)

    def _cannot_write(self, error: Unavailable) -> None:
        if VERBS[self.plan.verb].is_undoable:
            # Stop here, so that no more rows stay without an outcome in the journal.
            self.trouble = str(error)
        else:
            # Go on without a journal: a full disk may be the reason for this operation.
            self._recorder, self._remark = None, str(error)

    def _carry_out(self, batch: list[Row], ended: list[RowOutcome]) -> None:
        """Append the outcome of each row to `ended` as soon as it is known."""
        by_transition: dict[tuple[State, State | None], tuple[str, bool]] = {}
        for row in batch:  # first, as it may verify others
            transition = row.state, row.target
            if transition not in by_transition:
                its = plans.transition_of(self.plan.verb, row)
                amount = self._count_present(row)
                refused = plans.row_refusal(self._store.edges, self.plan.verb, row, amount)
                by_transition[transition] = refused, its is not None and its[1] is State.TRASH
                if not refused and its is not None:
                    self._is_exact &= self._store.edges[its].exact
                    self._has_way_back |= self._store.edges[its].undoable
                    self._renames |= self._store.edges[its].renames
        present_tasks: dict[tuple[str, State, str], Task] = {}
        unknown: dict[str, str] = {}
        for answer in self._store.verify([(row.id, row.state, row.rev) for row in batch]):
            if isinstance(answer, Task):
                present_tasks[answer.id, answer.state, answer.rev] = answer
            else:
                unknown[answer.where] = answer.what
        moves: dict[Row, Move] = {}
        for row in batch:
            task = present_tasks.get((row.id, row.state, row.rev))
            refused, into_trash = by_transition[row.state, row.target]
            if task is None:
                why = unknown.get(row.id, "")
                result = RowResult.FAILED if why else RowResult.GONE
                ended.append(RowOutcome(row, result, why or REASON_CHANGED))
            elif why := refused or (self._fits(task) if into_trash else ""):
                ended.append(RowOutcome(row, RowResult.FAILED, why))
            else:
                try:
                    moves[row] = self._move(task, row)
                except StoreError as error:
                    ended.append(RowOutcome(row, RowResult.FAILED, str(error)))
        ended += self._keep(moves)
        self._swap(moves, ended)

    def _count_present(self, row: Row) -> int:
        """The number of rows with the transition of a row; if its edge allows fewer, of those whose
        tasks are as they were seen, counted once, up to one batch more than it allows."""
        transition = row.state, row.target
        its = plans.transition_of(self.plan.verb, row)
        edge = self._store.edges.get(its) if its is not None else None
        limit = edge.limit if edge is not None else None
        if limit is None or transition in self._counted:
            return self._amounts[transition]
        if self._amounts[transition] > limit:
            self._counted.add(transition)
            rows = (each for each in self.plan.included if (each.state, each.target) == transition)
            self._amounts[transition] = 0
            while batch := list(islice(rows, self._store.max_verified)):
                answers = self._store.verify([(r.id, r.state, r.rev) for r in batch])
                self._amounts[transition] += sum(isinstance(one, Task) for one in answers)
                if self._amounts[transition] > limit:
                    break
        return self._amounts[transition]

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
        fails."""
        if self._recorder is None or VERBS[self.plan.verb].keeps_bytes:
            return []
        images: list[tuple[str, bytes]] = []
        waiting_bytes = 0
        lost: dict[Row, RowOutcome] = {}
        read = self._store.read_all([move.old for move in moves.values() if move.old is not None])
        for row, image in zip(moves, read, strict=True):
            if isinstance(image, Gone):
                lost[row] = RowOutcome(row, RowResult.GONE, REASON_CHANGED)
            elif isinstance(image, StoreError):
                lost[row] = RowOutcome(row, RowResult.FAILED, str(image))
            elif not self.trouble:
                images.append((row.id, image))
                waiting_bytes += len(image)
                if waiting_bytes >= IMAGE_BATCH_BYTES:
                    self._save_images(images)
                    images, waiting_bytes = [], 0
        if not self.trouble:
            self._save_images(images)
        if self.trouble:
            left = _failed((row for row in moves if row not in lost), self.trouble)
            lost |= {one.row: one for one in left}
        for row in lost:
            del moves[row]
        return [*lost.values()]

    def _save_images(self, images: Sequence[tuple[str, bytes]]) -> None:
        assert self._recorder is not None
        try:
            self._recorder.save_images(images)
        except Unavailable as error:
            self.trouble = str(error)

    def _swap(self, moves: Mapping[Row, Move], ended: list[RowOutcome]) -> None:
        unmoved = {(row.id, row.rev): row for row in moves}
        refused: dict[Row, str] = {}
        why = "no answer from the store"
        try:
            for move, rev, error, note in self._store.swap_all(moves.values()):
                assert move.old is not None
                row = unmoved.pop((move.old.id, move.old.rev))
                if error is None:
                    ended.append(RowOutcome(row, RowResult.DONE, rev=rev))
                    self._notes.update([note] if note else ())
                elif isinstance(error, Gone):
                    ended.append(RowOutcome(row, RowResult.GONE, str(error)))
                elif isinstance(error, Unavailable):
                    refused[row] = str(error)
                else:
                    ended.append(RowOutcome(row, RowResult.FAILED, str(error)))
        except Unavailable as error:
            why = str(error)
        refused |= dict.fromkeys(unmoved.values(), why)
        ended += self._refused(refused)

    def _refused(self, rows: Mapping[Row, str]) -> Iterator[RowOutcome]:
        """Rows without a clear answer: failed; final only if a re-read shows where the task is."""
        try:
            scanned = [*self._store.scan({row.id for row in rows})] if rows else []
        except Unavailable:
            scanned = []
        tasks = {(t.id, t.state, t.rev) for t in scanned if isinstance(t, Task)}
        standing = {(ident, state) for ident, state, _ in tasks}
        for row, why in rows.items():
            its = plans.transition_of(self.plan.verb, row)
            moves = its is not None and its[1] is not row.state
            stayed = (row.id, row.state, row.rev) in tasks
            sure = stayed or (moves and (row.id, row.state) in standing)
            yield RowOutcome(row, RowResult.FAILED, why, is_final=sure)


def _failed(rows: Iterable[Row], why: str) -> list[RowOutcome]:
    return [RowOutcome(row, RowResult.FAILED, why) for row in rows]
