"""Plans on a spool of our format, the journal's own files included: killed or refused anywhere.

Recovery is what a worker does and then a console, which settles what was interrupted. Then the
journal must agree with where the tasks are, the rest can be carried out, and all can be undone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from engine.formats.nftban import task_format
from engine.formats.nftban.store import NftbanStore, make_spool
from engine.model import State, Task
from engine.operations import plans as engine_plans
from engine.operations import run_plan, undo
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Operation, Who
from engine.operations.plans import Plan, RowResult
from tests.crash.commands import spool_at
from tests.crash.harness import ERRORS, Case, Ended

NOW = float(int(time.time()))
"""The time of the stores; files have times of their own, which agree with it."""
LATER = NOW + 6 * 3600
"""By then all that waits to be cleaned up has waited long enough."""

FOLDERS = {
    **{State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"},
    **{State.HELD: ".spooldeck/held", State.TRASH: ".spooldeck/trash"},
}
STAGING = {".lock", "held", "trash", "journal", "exclusive", "next-due"}
"""What may be in `.spooldeck/` with nothing under way."""

IDS = tuple(f"20231114T22131{n}Z-report-0000000{n}" for n in range(1, 6))
ACTED, EXCLUDED, CHANGED = IDS[:3], IDS[3], IDS[4]
"""What is acted on; excluded by the operator; and changed since it was seen."""
SECRET = "kim@example.net"
US = Intent("", Who("ana", host="mx1", pid=1), reason=f"ask {SECRET}", filter=f"to:{SECRET}")
FOLLOWED = "continued by another operation"

Place = tuple[str, bytes, int, int, int]
"""Folder, bytes, mode and owner of a task's file."""


class _PlanCase(Case):
    """A plan, or its undo."""

    errors = (*ERRORS, "EROFS+")

    def __init__(
        self, verb: str, start: State, floor: int, *, undone: bool = False, **values: object
    ) -> None:
        """`undone`: what is swept is not the plan but its undo."""
        self._verb, self._start, self.floor = verb, start, floor
        self._undone, self._values = undone, values

    # ---- the run

    def lay_out(self, root: Path) -> None:
        make_spool(spool_at(root), exclusive=True)
        folder = root / "queue" / FOLDERS[self._start]
        folder.mkdir(exist_ok=True, mode=0o750)
        died = int(NOW) - 60 if self._start is State.DEAD else None
        for number, ident in enumerate(IDS):
            created, due = int(NOW) - 3600, int(NOW) + 300
            record = task_format.Record(
                ident,
                "report",
                f"the work of {ident}",
                created=created,
                retries=2,
                due=due,
                error=f"550 {SECRET}",
                payload="",
                dead_since=died,
                dead_reason=task_format.DEAD_REASON if died else "",
            )
            path = folder / f"{ident}.task"
            path.write_bytes(b"# by hand\n" + task_format.render_task(record))
            path.chmod((0o600, 0o640, 0o644)[number % 3])

    def begin(self, root: Path, now: float) -> Callable[[], object]:
        store, journal = NftbanStore(spool_at(root), lambda: NOW), _journal(root)
        tasks = [task for task in store.scan(IDS) if isinstance(task, Task)]
        plan = engine_plans.freeze_plan(self._verb, tasks, NOW)._replace(
            values=self._values, included_ids=frozenset(IDS), excluded_ids=frozenset({EXCLUDED})
        )
        _first(root).unlink(missing_ok=True)
        if self._undone:
            first = run_plan.run_journaled_plan(store, journal, plan, US, lambda: NOW).op
            operation = journal.operation(first)
            assert operation is not None
            plan = undo.plan_undo(store, journal, operation, NOW, 7.0).plan
            assert len(plan.rows) == 4
            plan = plan._replace(excluded_ids=frozenset({EXCLUDED}))
            _first(root).write_text(first)
        (path,) = (root / "queue").rglob(f"{CHANGED}.task")
        path.write_bytes(path.read_bytes().replace(b"the work", b"other work"))

        def act() -> object:
            report = run_plan.run_journaled_plan(store, journal, plan, US, lambda: NOW)
            lists = report.done, report.gone, report.failed, report.excluded
            return [*lists, report.trouble, report.op, report.is_exact, report.unapplied]

        return act

    def recover(self, root: Path, now: float) -> None:
        """Recover as a worker and then a console does at its start."""
        with closing(NftbanStore(spool_at(root), lambda: LATER)) as worker:
            worker.recover()
        with _opened(root) as (store, journal):
            for operation in journal.operations():
                if operation.is_interrupted:
                    undo.settle_operation(store, journal, operation)

    def content(self, root: Path) -> Mapping[str, Place]:
        places: dict[str, Place] = {}
        for word in FOLDERS.values():
            for path in (root / "queue" / word).glob("*"):
                assert path.stem not in places, f"{path.stem} is there twice"
                stat = path.stat()
                places[path.stem] = (
                    word,
                    path.read_bytes(),
                    stat.st_mode,
                    stat.st_uid,
                    stat.st_gid,
                )
        return places

    # ---- what must hold

    def promises(self, ended: Ended) -> bool:
        return False

    def undisturbed(self) -> Iterator[str]:
        """Report tasks that were acted on though they were not to be, or the other way round."""
        changed = {ident for ident in IDS if self.before.get(ident) != self.after.get(ident)}
        if changed != set(ACTED):
            yield f"acted on {changed}"

    def wrong(self, root: Path, ended: Ended, content: Mapping[str, object]) -> Iterator[str]:
        """Compare the journal with the tasks; then carry out the rest, and undo all."""
        first = _first(root).read_text() if _first(root).exists() else ""
        operations, written = _operations(root, first), _written(root)
        self.recover(root, 0)
        assert operations == _operations(root, first), "settled twice, it differs"
        assert written == _written(root), "settled twice, the files differ"
        left = {path.name for path in (root / "queue/.spooldeck").iterdir()} - STAGING
        assert not {name for name in left if not name.startswith("next-due.")}, f"left: {left}"
        if ended.answer is not None:
            self._check_report(ended.answer, content)
        elif ended.refused is not None:
            assert content == self.before, f"refused, and something moved: {ended.refused}"
        assert len(operations) <= 1
        if operations:
            self._check_journal(root, operations, content)
            self._carry_on(root, operations[0])
            self._undo(root, first)
        else:
            unsafe = self._verb == "expunge"
            assert unsafe or content == self.before, "moved without an intent"
        yield from ()

    def _check_report(self, answer: list[Any], content: Mapping[str, object]) -> None:
        report = Report(Plan("", (), NOW), *answer)
        assert report.accounted == (4 if self._undone else 5), f"accounted: {report}"
        for ident in report.done:
            assert content.get(ident) == self.after.get(ident), f"reported as done: {ident}"
        for ident in report.gone:
            assert content[ident] == self.before[ident], f"reported as gone: {ident}"
        for ident, why in report.failed:
            assert why and "\n" not in why and ident != EXCLUDED, (ident, why)
        assert "\n" not in report.trouble

    def _check_journal(
        self, root: Path, operations: list[Operation], content: Mapping[str, object]
    ) -> None:
        """Require that the journal records of each row what is so."""
        done: Counter[str] = Counter()
        unknown: set[str] = set()
        with _opened(root) as (store, journal):
            revs = {(t.id, t.state): t.rev for t in store.scan(IDS) if isinstance(t, Task)}
            for operation in operations:
                assert operation.damaged_lines <= 1, operation
                for row, ended in journal.entries(operation.op):
                    if ended is not None and ended.result is RowResult.DONE:
                        done[row.id] += 1
                        content_now = content.get(row.id)
                        is_so = content_now == self.after.get(row.id)
                        assert is_so, f"written down as done: {row.id}"
                        its = engine_plans.transition_of(operation.intent.verb, row)
                        if its and its[1]:
                            assert revs[row.id, its[1]] == ended.rev, f"revision of {row.id}"
                    elif ended is not None and ended.reason == undo.REASON_MISSING:
                        assert self._verb == "expunge" and row.id not in content, ended
                        unknown.add(row.id)
                    elif ended is None or ended.reason != FOLLOWED:
                        assert content[row.id] == self.before[row.id], f"not done, says {ended}"
                    if ended is None:
                        assert revs[row.id, row.state] == row.rev, f"open, and changed: {row}"
        assert max(done.values(), default=0) <= 1, f"done twice: {done}"
        moved = {ident for ident in IDS if content.get(ident) != self.before[ident]}
        recorded = set(done) | unknown
        assert moved == recorded, f"{moved} moved, {recorded} are written down"

    def _carry_on(self, root: Path, operation: Operation) -> None:
        """Carry out what an interrupted operation did not; each row is then accounted for once."""
        if operation.ended is not None:
            return
        with _opened(root) as (store, journal):
            plan = undo.plan_rest(store, journal, operation, NOW)
            assert len(plan.rows) == operation.open_rows
            intent = US._replace(follows=operation.op)
            report = run_plan.run_journaled_plan(store, journal, plan, intent, lambda: NOW)
            undo.abandon_operation(store, journal, operation, FOLLOWED)
            both = [one for one in journal.operations() if one.op in (operation.op, report.op)]
            assert set(report.done) | set(report.gone) == {row.id for row in plan.rows}, report
            assert all(one.ended is not None and not one.open_rows for one in both), both
            self._check_journal(root, both, self.content(root))
            counts = Counter(
                ident
                for one in both
                for (ident, *_), ended in journal.entries(one.op)
                if ended is not None and ended.reason != FOLLOWED
            )
            assert set(counts.values()) == {1}, f"accounted for: {counts}"

    def _undo(self, root: Path, first: str) -> None:
        if self._verb == "expunge":
            return
        done = set()
        with _opened(root) as (store, journal):
            for operation in journal.operations():
                if operation.op != first:
                    plan = undo.plan_undo(store, journal, operation, NOW, 7.0).plan
                    report = run_plan.run_journaled_plan(store, journal, plan, US, lambda: NOW)
                    assert len(report.done) == len(plan.rows), report
                    done |= set(report.done)
        # A task that no worker works on any more is not put where workers work.
        home = {FOLDERS[State.ACTIVE]: FOLDERS[State.HELD]}
        for ident, (word, *rest) in self.content(root).items():
            was, *before = self.before[ident]
            right = home.get(was, was) if ident in done else was
            assert (word, rest) == (right, before), f"undone, {ident} is not as it was"


def _first(root: Path) -> Path:
    """Return the file with the name of the operation that was carried out before the swept one."""
    return root.parent / "first"


def _journal(root: Path) -> Journal:
    return Journal(f"{spool_at(root).staging_dir}/journal", str(root))


@contextmanager
def _opened(root: Path) -> Iterator[tuple[NftbanStore, Journal]]:
    with closing(NftbanStore(spool_at(root), lambda: NOW)) as store:
        yield store, _journal(root)


def _operations(root: Path, first: str) -> list[Operation]:
    return [one for one in _journal(root).operations() if one.op != first]


def _written(root: Path) -> dict[str, bytes]:
    """Return the journal's files; no address is in full in what every user may read of it."""
    written = {}
    for path in sorted((root / "queue/.spooldeck/journal").glob("*")):
        written[path.name] = path.read_bytes()
        secret = path.suffix == ".before"
        # 0600 also where the umask is 077 and fchmod failed.
        assert path.stat().st_mode & 0o777 in ((0o600,) if secret else (0o640, 0o600))
        assert secret or SECRET.encode() not in written[path.name]
    return written


CASES: Mapping[str, _PlanCase] = {
    "retry": _PlanCase("retry", State.DEAD, 40),
    "purge": _PlanCase("purge", State.DEAD, 28),
    "purge, waiting": _PlanCase("purge", State.PENDING, 28),
    "hold": _PlanCase("hold", State.PENDING, 28),
    "release": _PlanCase("release", State.HELD, 28),
    "promote": _PlanCase("promote", State.PENDING, 40),
    "edit": _PlanCase("edit", State.PENDING, 40, description="another", due=NOW + 600.5),
    "kill": _PlanCase("kill", State.ACTIVE, 40),
    "expunge": _PlanCase("expunge", State.DEAD, 20),
    "retry, undone": _PlanCase("retry", State.DEAD, 40, undone=True),
    "purge, undone": _PlanCase("purge", State.DEAD, 24, undone=True),
    "edit, undone": _PlanCase("edit", State.PENDING, 40, undone=True, description="another"),
}
