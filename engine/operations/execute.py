"""A plan carried out: each row looked at again, swapped, written down, and accounted for.

The order of things is what makes it safe to be killed anywhere: the intent is in the journal before
the first task moves, what a task was is kept before it is changed, and an outcome is written down
only once it is durable. What is then left open, `settle` finds out from where the tasks stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, Protocol

from engine.model import Move, State, Task
from engine.operations import plans
from engine.operations.plans import Plan, Row
from engine.store import Gone, Store, StoreError, Unavailable, Unsupported
from engine.verbs import VERBS, along, moved

GROUP = 500
"""Rows whose outcomes are written down together."""


IN_HAND = 100
"""Of them those that the store has in hand together: each may cost it two open files."""


class RowResult(StrEnum):
    """What became of a row: exactly one of these."""

    DONE = "done"
    GONE = "gone"
    """Its task was not as it had been seen; left alone."""
    FAILED = "failed"
    """Its task could not be changed."""
    EXCLUDED = "excluded"


class RowOutcome(NamedTuple):
    """What became of one row."""

    row: Row
    end: RowResult
    words: str = ""
    """Why, where it is not done."""
    rev: str = ""
    """The revision in which a task that was changed stands now; "" once it has left."""
    sure: bool = True
    """Whether nothing more becomes of it. The store may be unable to say whether a task moved:
    then no outcome is written down, and `engine.operations.undo.settle` finds it out later."""


class Report(NamedTuple):
    """What became of a plan: every row is in exactly one of the four."""

    plan: Plan
    done: tuple[str, ...]
    """Ids of the tasks that the verb was carried out on; durable."""
    gone: tuple[str, ...]
    """Ids of those that were not as they had been seen; left alone."""
    failed: tuple[tuple[str, str], ...]
    """Ids of those that could not be changed, each with the reason."""
    excluded: tuple[tuple[str, str], ...] = ()
    """Ids of those that were left out, each with the reason."""
    trouble: str = ""
    """What went wrong beside the tasks: the journal that could not be written; "" where nothing."""
    op: str = ""
    """The operation in the journal; "" where there is none."""

    @property
    def accounted(self) -> int:
        """How many rows are in it."""
        return sum(map(len, (self.done, self.gone, self.failed, self.excluded)))


class OutcomeWriter(Protocol):
    """What an operation is written down with (`engine.operations.journal.Pen`)."""

    op: str

    def keep(self, images: Sequence[tuple[str, bytes]]) -> None:
        """Keep what tasks are before they are changed, by their ids; durable when it returns."""
        ...

    def say(self, what: str, **words: object) -> None:
        """Write down that something happened meanwhile."""
        ...

    def outcomes(self, ended: Sequence[RowOutcome]) -> None:
        """Write down what became of some rows; durable when it returns."""
        ...

    def end(self, report: Report) -> None:
        """Write down that it is over."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


CHANGED = "not as it was seen"
NOT_KEPT = "what it was is not kept any more"

Allowed = Callable[[], str]
"""Why nothing may be done now; "" when it may."""


def freely() -> str:
    """Nothing stands against it."""
    return ""


Fits = Callable[[Task], str]
"""Why there is no room for a task in the trash; "" when there is, and then it takes it."""


def any_room(task: Task) -> str:
    """There is room for everything."""
    return ""


class PlanRun:
    """A plan that is being carried out, some rows at a time."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        now: Callable[[], float],
        pen: OutcomeWriter | None = None,
        *,
        allowed: Allowed = freely,
        images: Mapping[str, bytes] | None = None,
        fits: Fits = any_room,
    ) -> None:
        """`allowed` is asked again before each batch; `images` are what is taken back, by ids;
        `fits` is asked for each task that is to go into the trash. Where there are `images`, no row
        is taken back without its own.

        The rows that are left out are accounted for at once; the intent names them already.
        """
        self.plan = plan
        self._store, self._now, self._pen, self._allowed = store, now, pen, allowed
        self._fits = fits
        self._images = images
        self._open = dict.fromkeys(plan.included)
        self._ended: dict[RowResult, list[RowOutcome]] = {end: [] for end in RowResult}
        self._op = pen.op if pen is not None else ""
        self._unsure = False
        self._remark = ""
        self.trouble = ""
        """Why nothing more is done; "" while it goes on."""
        self._close(RowOutcome(row, RowResult.EXCLUDED, why) for row, why in plan.excluded)

    @property
    def waiting(self) -> tuple[Row, ...]:
        """The rows that nothing was done about yet, in the order of the plan."""
        return tuple(self._open)

    @property
    def counts(self) -> dict[RowResult, int]:
        """How many rows ended how, so far."""
        return {end: len(ended) for end, ended in self._ended.items()}

    def step(self, rows: Iterable[Row]) -> tuple[RowOutcome, ...]:
        """Carry the plan out on some rows that wait; durable, and written down, when it returns.

        Rivals may do what they like meanwhile: a row they were faster with is gone.
        """
        batch = [row for row in dict.fromkeys(rows) if row in self._open]
        ended: list[RowOutcome] = []
        try:
            if why := self.trouble or self._allowed():
                ended += (RowOutcome(row, RowResult.FAILED, why) for row in batch)
            else:
                for start in range(0, len(batch), IN_HAND):
                    self._carry_out(batch[start : start + IN_HAND], ended)
                    if self.trouble:
                        why = self.trouble
                        ended += (
                            RowOutcome(r, RowResult.FAILED, why) for r in batch[start + IN_HAND :]
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
        """End it: what still waits is left out for that reason, unless something is wrong: then it
        has failed. Everything is accounted for."""
        end = RowResult.FAILED if self.trouble else RowResult.EXCLUDED
        rest = [RowOutcome(row, end, why) for row in self._open]
        self._close(rest)
        if not self.trouble:
            self._write(rest)
        # Without an end it counts as interrupted, and is settled once it is known how it stands.
        if self._pen is not None and not (self.trouble or self._unsure):
            try:
                self._pen.end(self.report())
            except Unavailable as error:
                self._cannot_write(error)
        return self.report()

    def report(self) -> Report:
        """What became of the rows so far."""
        return Report(
            self.plan,
            tuple(one.row.id for one in self._ended[RowResult.DONE]),
            tuple(one.row.id for one in self._ended[RowResult.GONE]),
            tuple((one.row.id, one.words) for one in self._ended[RowResult.FAILED]),
            tuple((one.row.id, one.words) for one in self._ended[RowResult.EXCLUDED]),
            self.trouble or self._remark,
            self._op,
        )

    def _close(self, ended: Iterable[RowOutcome]) -> None:
        for one in ended:
            self._open.pop(one.row, None)
            self._ended[one.end].append(one)
            self._unsure |= not one.sure

    def _write(self, ended: Sequence[RowOutcome]) -> None:
        known = [one for one in ended if one.sure]
        if self._pen is None or not known:
            return
        try:
            self._pen.outcomes(known)
        except Unavailable as error:
            self._cannot_write(error)

    def _cannot_write(self, error: Unavailable) -> None:
        if VERBS[self.plan.verb].safe:
            # What was done is done; nothing more is, so that the journal leaves no more open.
            self.trouble = str(error)
        else:
            # A full disk may be the very reason why it is done.
            self._pen, self._remark = None, str(error)

    def _carry_out(self, batch: list[Row], ended: list[RowOutcome]) -> None:
        """Add to `ended` what becomes of each row, as it becomes known."""
        there: dict[tuple[str, State, str], Task] = {}
        unknown: dict[str, str] = {}
        for seen in self._store.still([(row.id, row.state, row.rev) for row in batch]):
            if isinstance(seen, Task):
                there[seen.id, seen.state, seen.rev] = seen
            else:
                unknown[seen.where] = seen.what
        moves: dict[Row, Move] = {}
        ways: dict[tuple[State, State | None], tuple[str, bool]] = {}
        for row in batch:
            task = there.get((row.id, row.state, row.rev))
            way = row.state, row.end
            if way not in ways:
                its = plans.way(self.plan.verb, row)
                refused = plans.refusal(self._store.edges, self.plan.verb, row)
                ways[way] = refused, its is not None and its[1] is State.TRASH
            refused, into_trash = ways[way]
            if task is None:
                why = unknown.get(row.id, "")
                ended.append(
                    RowOutcome(row, RowResult.FAILED if why else RowResult.GONE, why or CHANGED)
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
        if row.end is None:
            new = VERBS[self.plan.verb].act(task, self._now(), **self.plan.values)
            return Move(task, along(self._store.edges, task, new))
        if self._images is None:
            return Move(task, moved(task, row.end))
        image = self._images.get(row.id)
        if image is None:
            raise Unsupported(NOT_KEPT)
        return Move(task, self._store.recall(task, image, row.end), image)

    def _keep(self, moves: dict[Row, Move]) -> list[RowOutcome]:
        """Keep what these tasks are; takes out, and answers with, those of which that fails."""
        if self._pen is None or VERBS[self.plan.verb].keeps:
            return []
        images: list[tuple[str, bytes]] = []
        lost: list[RowOutcome] = []
        for row, move in moves.items():
            assert move.old is not None
            try:
                images.append((row.id, self._store.read(move.old)))
            except Gone:
                lost.append(RowOutcome(row, RowResult.GONE, CHANGED))
            except StoreError as error:
                lost.append(RowOutcome(row, RowResult.FAILED, str(error)))
        for one in lost:
            del moves[one.row]
        try:
            self._pen.keep(images)
        except Unavailable as error:
            self.trouble = str(error)
            lost += (RowOutcome(row, RowResult.FAILED, self.trouble) for row in moves)
            moves.clear()
        return lost

    def _swap(self, moves: Mapping[Row, Move], ended: list[RowOutcome]) -> None:
        left = {(row.id, row.rev): row for row in moves}
        refused: dict[Row, str] = {}
        why = "its store gave no answer"
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
        """What the store could not say for sure: failed, and settled later unless it is there."""
        try:
            there = _looked_at(self._store, list(rows)) if rows else {}
        except Unavailable:
            there = {}
        standing = {(ident, state) for ident, state, _ in there}
        for row, why in rows.items():
            its = plans.way(self.plan.verb, row)
            moves = its is not None and its[1] is not row.state
            stayed = (row.id, row.state, row.rev) in there
            sure = stayed or (moves and (row.id, row.state) in standing)
            yield RowOutcome(row, RowResult.FAILED, why, sure=sure)


def apply(
    store: Store,
    plan: Plan,
    now: Callable[[], float],
    pen: OutcomeWriter | None = None,
    *,
    told: Callable[[Mapping[RowResult, int]], None] = lambda counts: None,
    halted: Callable[[], bool] = lambda: False,
    allowed: Allowed = freely,
    images: Mapping[str, bytes] | None = None,
    fits: Fits = any_room,
) -> Report:
    """Carry a whole plan out; blocks until all of it is durable and written down.

    `told` gets the counts after each batch; once `halted` says so, the rest is left as it is. When
    the store becomes unavailable, the rows not yet carried out have failed for that reason.
    """
    applying = PlanRun(store, plan, now, pen, allowed=allowed, images=images, fits=fits)
    rows = iter(applying.waiting)
    why = ""
    while not applying.trouble and (batch := list(islice(rows, GROUP))):
        if halted():
            why = "stopped by the operator"
            break
        applying.step(batch)
        told(applying.counts)
    return applying.finish(applying.trouble or why)


def _looked_at(store: Store, rows: Sequence[Row]) -> dict[tuple[str, State, str], Task]:
    """The tasks of these rows as they are now."""
    seen = store.look({row.id for row in rows})
    return {(t.id, t.state, t.rev): t for t in seen if isinstance(t, Task)}
