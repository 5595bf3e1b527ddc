"""A plan carried out: each row looked at again, swapped, written down, and accounted for.

The order of things is what makes it safe to be killed anywhere: the intent is in the journal before
the first task moves, what a task was is kept before it is changed, and an outcome is written down
only once it is durable. What is then left open, `settle` finds out from where the tasks stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, Protocol

from engine import plans
from engine.model import Move, State, Task
from engine.plans import Plan, Row
from engine.store import Gone, Store, StoreError, Unavailable
from engine.verbs import VERBS

GROUP = 500
"""Rows looked at again and swapped together: few enough that what was seen is still fresh."""


class End(StrEnum):
    """What became of a row: exactly one of these."""

    DONE = "done"
    GONE = "gone"
    """Its task was not as it had been seen; left alone."""
    FAILED = "failed"
    """Its task could not be changed."""
    EXCLUDED = "excluded"


class Ended(NamedTuple):
    """What became of one row."""

    row: Row
    end: End
    words: str = ""
    """Why, where it is not done."""
    rev: str = ""
    """The revision in which a task that was changed stands now; "" once it has left."""


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


class Pen(Protocol):
    """What an operation is written down with (`engine.journal.Pen`)."""

    op: str

    def keep(self, images: Sequence[tuple[str, bytes]]) -> None:
        """Keep what tasks are before they are changed, by their ids; durable when it returns."""
        ...

    def say(self, what: str, **words: object) -> None:
        """Write down that something happened meanwhile."""
        ...

    def outcomes(self, ended: Sequence[Ended]) -> None:
        """Write down what became of some rows; durable when it returns."""
        ...

    def end(self, report: Report) -> None:
        """Write down that it is over."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


Allowed = Callable[[], str]
"""Why nothing may be done now; "" when it may."""


def freely() -> str:
    """Nothing stands against it."""
    return ""


class Applying:
    """A plan that is being carried out, some rows at a time."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        now: Callable[[], float],
        pen: Pen | None = None,
        *,
        allowed: Allowed = freely,
        images: Mapping[str, bytes] | None = None,
    ) -> None:
        """`allowed` is asked again before each batch; `images` are what is taken back, by ids.

        The rows that are left out are accounted for at once.
        """
        self.plan = plan
        self._store, self._now, self._pen, self._allowed = store, now, pen, allowed
        self._images = images or {}
        self._open = dict.fromkeys(plan.included)
        self._ended: dict[End, list[Ended]] = {end: [] for end in End}
        self.trouble = ""
        excluded = [Ended(row, End.EXCLUDED, why) for row, why in plan.excluded]
        self._close(excluded)
        self._write(excluded)

    @property
    def waiting(self) -> tuple[Row, ...]:
        """The rows that nothing was done about yet, in the order of the plan."""
        return tuple(self._open)

    @property
    def counts(self) -> dict[End, int]:
        """How many rows ended how, so far."""
        return {end: len(ended) for end, ended in self._ended.items()}

    def step(self, rows: Iterable[Row]) -> tuple[Ended, ...]:
        """Carry the plan out on some rows that wait; durable, and written down, when it returns.

        Rivals may do what they like meanwhile: a row they were faster with is gone.
        """
        batch = [row for row in dict.fromkeys(rows) if row in self._open]
        ended: list[Ended] = []
        try:
            why = self.trouble or self._allowed()
            ended = [Ended(r, End.FAILED, why) for r in batch] if why else self._carry_out(batch)
        except Unavailable as error:
            known = {one.row for one in ended}
            ended += [Ended(row, End.FAILED, str(error)) for row in batch if row not in known]
        self._close(ended)
        if not self.trouble:
            self._write(ended)
        return tuple(ended)

    def finish(self, why: str) -> Report:
        """End it: what still waits has failed for that reason. Everything is accounted for."""
        rest = [Ended(row, End.FAILED, why) for row in self._open]
        self._close(rest)
        if not self.trouble:
            self._write(rest)
        report = self.report()
        if self._pen is not None and not self.trouble:
            try:
                self._pen.end(report)
            except Unavailable as error:
                self.trouble = str(error)
                report = report._replace(trouble=self.trouble)
        return report

    def report(self) -> Report:
        """What became of the rows so far."""
        return Report(
            self.plan,
            tuple(one.row.id for one in self._ended[End.DONE]),
            tuple(one.row.id for one in self._ended[End.GONE]),
            tuple((one.row.id, one.words) for one in self._ended[End.FAILED]),
            tuple((one.row.id, one.words) for one in self._ended[End.EXCLUDED]),
            self.trouble,
            self._pen.op if self._pen is not None else "",
        )

    def _close(self, ended: Iterable[Ended]) -> None:
        for one in ended:
            self._open.pop(one.row, None)
            self._ended[one.end].append(one)

    def _write(self, ended: Sequence[Ended]) -> None:
        if self._pen is None or not ended:
            return
        try:
            self._pen.outcomes(ended)
        except Unavailable as error:
            # What was done is done; nothing more is, so that the journal leaves no more open.
            self.trouble = str(error)

    def _carry_out(self, batch: list[Row]) -> list[Ended]:
        there = _looked_at(self._store, batch)
        ended: list[Ended] = []
        moves: list[Move] = []
        rows: dict[tuple[str, str], Row] = {}
        for row in batch:
            task = there.get((row.id, row.state, row.rev))
            if task is None:
                ended.append(Ended(row, End.GONE, "not as it was seen"))
            elif why := plans.refusal(self._store.edges, self.plan.verb, row):
                ended.append(Ended(row, End.FAILED, why))
            else:
                try:
                    moves.append(self._move(task, row))
                    rows[task.id, task.rev] = row
                except StoreError as error:
                    ended.append(Ended(row, End.FAILED, str(error)))
        moves, lost = self._keep(moves)
        ended += [Ended(rows[m.old.id, m.old.rev], e, w) for m, e, w in lost if m.old]
        return [*ended, *self._swap(moves, rows)]

    def _move(self, task: Task, row: Row) -> Move:
        if row.end is None:
            verb = VERBS[self.plan.verb]
            return Move(task, verb.act(task, self._now(), **self.plan.values))
        image = self._images.get(row.id, b"")
        if image:
            return Move(task, self._store.recall(task, image, row.end), image)
        return Move(task, replace(task, state=row.end, lease=None))

    def _keep(self, moves: list[Move]) -> tuple[list[Move], list[tuple[Move, End, str]]]:
        """Keep what these tasks are; those of which that cannot be had are not changed."""
        if self._pen is None or VERBS[self.plan.verb].keeps:
            return moves, []
        images: list[tuple[str, bytes]] = []
        kept: list[Move] = []
        lost: list[tuple[Move, End, str]] = []
        for move in moves:
            assert move.old is not None
            try:
                images.append((move.old.id, self._store.read(move.old)))
                kept.append(move)
            except Gone:
                lost.append((move, End.GONE, "not as it was seen"))
            except StoreError as error:
                lost.append((move, End.FAILED, str(error)))
        try:
            self._pen.keep(images)
        except Unavailable as error:
            self.trouble = str(error)
            return [], [*lost, *((move, End.FAILED, str(error)) for move in kept)]
        return kept, lost

    def _swap(self, moves: list[Move], rows: Mapping[tuple[str, str], Row]) -> Iterator[Ended]:
        left = dict(rows)
        kept = {(m.old.id, m.old.rev) for m in moves if m.old is not None}
        for move, rev, error in self._store.swap_all(moves):
            assert move.old is not None
            row = left.pop((move.old.id, move.old.rev))
            if error is None:
                yield Ended(row, End.DONE, rev=rev)
            elif isinstance(error, Gone):
                yield Ended(row, End.GONE, str(error))
            else:
                yield Ended(row, End.FAILED, str(error))
        for key in left.keys() & kept:
            yield Ended(left[key], End.FAILED, "its store gave no answer")


def apply(
    store: Store,
    plan: Plan,
    now: Callable[[], float],
    pen: Pen | None = None,
    *,
    told: Callable[[Mapping[End, int]], None] = lambda counts: None,
    halted: Callable[[], bool] = lambda: False,
    allowed: Allowed = freely,
    images: Mapping[str, bytes] | None = None,
) -> Report:
    """Carry a whole plan out; blocks until all of it is durable and written down.

    `told` gets the counts after each batch; once `halted` says so, the rest is left as it is. When
    the store becomes unavailable, the rows not yet carried out have failed for that reason.
    """
    applying = Applying(store, plan, now, pen, allowed=allowed, images=images)
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
