"""Kills and refuses a plan at each call by which it changes a file, the journal's own included.

`deeds.py [--slice N] FOLDER` reads names of scenarios from standard input and answers each with a
line of JSON, the fields of a `Result`; without a folder it sweeps everything and prints a table. A
run is: lay the spool out anew; fork, and carry the plan out with one fault; recover as a worker
does, and settle what was interrupted, which where it was killed is itself killed first; hold the
journal to where the tasks stand; go on with the rest; take everything back.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from engine import deeds, plans, undo
from engine.journal import Intent, Journal, Operation, Who
from engine.model import State, Task
from engine.operations import End, Report
from engine.plans import Plan
from engine.store import StoreError, Unavailable
from engine.stores.nftban import NftbanStore, Spool, form, make_spool
from tests.crash import tree
from tests.crash.points import KILLS, Fault, Points, faults
from tests.crash.swept import Result

NOW = float(int(time.time()))
"""What the stores are told; files have times of their own, which agree with it."""
LATER = NOW + 3600
"""By then whatever waits to be tidied up has waited long enough."""
HANGS = 20
"""Seconds after which a plan that is not carried out never will be."""

FOLDERS = {
    State.PENDING: "pending",
    State.ACTIVE: "work",
    State.DEAD: "dlq",
    State.HELD: ".spooldeck/held",
    State.TRASH: ".spooldeck/trash",
}
AT_HOME = {".lock", "held", "trash", "journal", "exclusive", "next-due"}
"""What may lie on the desk with nothing under way."""

IDS = tuple(f"20231114T22131{n}Z-report-0000000{n}" for n in range(1, 6))
ACTED, LEFT_OUT, CHANGED = IDS[:3], IDS[3], IDS[4]
"""What is acted on; left out by the operator; and changed since it was seen."""

SECRET = "kim@example.net"
US = Intent("", Who("ana", host="mx1", pid=1), reason=f"ask {SECRET}", filter=f"to:{SECRET}")

LEFT = "gone on with by another operation"

Stand = tuple[str, bytes, int, int, int]
"""Folder, bytes, mode and owner of a task's file."""


class Deed(NamedTuple):
    """A plan that is killed and refused."""

    verb: str
    start: State
    floor: int
    """Fewer points than this mean that something is not counted any more."""
    values: Mapping[str, Any] = {}
    undone: bool = False
    """Whether what is swept is not the plan but its undo."""


DEEDS: Mapping[str, Deed] = {
    "retry": Deed("retry", State.DEAD, 40),
    "purge": Deed("purge", State.DEAD, 28),
    "purge, waiting": Deed("purge", State.PENDING, 28),
    "hold": Deed("hold", State.PENDING, 28),
    "release": Deed("release", State.HELD, 28),
    "promote": Deed("promote", State.PENDING, 40),
    "edit": Deed("edit", State.PENDING, 40, {"description": "another", "due": NOW + 600.5}),
    "kill": Deed("kill", State.ACTIVE, 40),
    "expunge": Deed("expunge", State.DEAD, 20),
    "retry, undone": Deed("retry", State.DEAD, 40, undone=True),
    "purge, undone": Deed("purge", State.DEAD, 24, undone=True),
    "edit, undone": Deed("edit", State.PENDING, 40, {"description": "another"}, undone=True),
}


def spool_at(root: Path) -> Spool:
    """The spool in a folder."""
    return Spool(f"{root}/queue/pending", f"{root}/queue/work", f"{root}/queue/dlq")


def text_of(ident: str, state: State, description: str) -> bytes:
    """A task file's text, as somebody left it who writes comments."""
    died = int(NOW) - 60 if state is State.DEAD else None
    record = form.Record(
        *(ident, "report", description, int(NOW) - 3600, 2, int(NOW) + 300, f"550 {SECRET}", ""),
        *(died, form.DEAD_REASON if died else ""),
    )
    return b"# by hand\n" + form.render(record)


class Told(NamedTuple):
    """What a plan said of itself; all empty when it was killed."""

    report: Report | None
    refused: str
    points: list[str]
    struck: bool
    first: str
    """The operation that came before the one that was swept; "" where none did."""


class Sweep:
    """All runs of one deed in one folder."""

    def __init__(self, folder: Path, deed: Deed, every: int = 1) -> None:
        """Of the runs only each so many-th is made."""
        self._root, self._deed, self._every = folder / "place", deed, every
        folder.mkdir(parents=True, exist_ok=True)
        self._root.mkdir()
        self._prepare()
        self._fixture = tree.taken(self._root)
        tree.remove(self._root)
        self._said = os.memfd_create("said")
        self._settle_points = 1
        self._turn = 0
        self.runs = 0

    def _prepare(self) -> None:
        make_spool(spool_at(self._root), exclusive=True)
        folder = self._root / "queue" / FOLDERS[self._deed.start]
        folder.mkdir(exist_ok=True, mode=0o750)
        for number, ident in enumerate(IDS):
            path = folder / f"{ident}.task"
            path.write_bytes(text_of(ident, self._deed.start, f"the work of {ident}"))
            path.chmod((0o600, 0o640, 0o644)[number % 3])

    def result(self) -> Result:
        """Every run there is."""
        with self._laid():
            store = self._open()
            self._plan(store, self._journal())
            store.close()
            self.before = self._stands()
        with self._laid():
            told = self._carried_out(Fault())
            wrong = [told.refused] if told.report is None else list(self._undisturbed(told))
            self.after = self._stands()
            wrong += self._judged(told)
        failures = [f"undisturbed: {what}" for what in wrong]
        points = told.points
        more = [Fault(step, "EROFS+") for step in range(1, len(points) + 1)]
        for fault in (faults(points) + more)[:: self._every] if not failures else ():
            where = (["", *points, "its end"])[fault.step]
            failures += [f"{fault} ({where}): {what}" for what in self._with(fault)]
        return Result(len(points), self.runs, failures)

    @contextmanager
    def _laid(self) -> Iterator[None]:
        self.runs += 1
        tree.lay(self._root, self._fixture)
        yield
        tree.remove(self._root)

    def _with(self, fault: Fault) -> list[str]:
        with self._laid():
            told = self._carried_out(fault)
            if fault.how in KILLS:
                if told.report is not None:
                    return ["was not killed"]
                self._kill_settling()
            elif not told.struck:
                return [f"never came to this point: {told.refused}"]
            return self._judged(told)

    # ---- the plan, in a process of its own

    def _carried_out(self, fault: Fault) -> Told:
        def carry_out() -> dict[str, Any]:
            store, journal = self._open(), self._journal()
            plan, first = self._plan(store, journal)
            said: dict[str, Any] = {"first": first}
            os.pwrite(self._said, json.dumps(said).encode(), 0)
            points = Points(fault)
            points.install()
            try:
                report = deeds.carry_out(store, journal, plan, US, lambda: NOW)
                said["report"] = [report.done, report.gone, report.failed, report.excluded]
                said["report"] += [report.trouble, report.op]
            except Unavailable as error:
                said["refused"] = str(error)
            points.end()
            return said | {"points": points.passed, "struck": bool(points.struck)}

        said = self._forked(carry_out)
        lists = said.get("report")
        plan = Plan("", (), NOW)
        return Told(
            None if lists is None else Report(plan, *lists),
            said.get("refused", said.get("crashed", "")),
            said.get("points", []),
            said.get("struck", False),
            said.get("first", ""),
        )

    def _plan(self, store: NftbanStore, journal: Journal) -> tuple[Plan, str]:
        deed = self._deed
        tasks = [found for found in store.look(IDS) if isinstance(found, Task)]
        frozen = plans.freeze(deed.verb, tasks, NOW)
        plan = frozen._replace(
            values=deed.values, taken_in=frozenset(IDS), left_out=frozenset({LEFT_OUT})
        )
        first = ""
        if deed.undone:
            first = deeds.carry_out(store, journal, plan, US, lambda: NOW).op
            operation = journal.operation(first)
            assert operation is not None
            plan = undo.undo(store, journal, operation, NOW, 7.0).plan
            assert len(plan.rows) == 4
            plan = plan._replace(left_out=frozenset({LEFT_OUT}))
        (path,) = (self._root / "queue").rglob(f"{CHANGED}.task")
        path.write_bytes(path.read_bytes().replace(b"the work", b"other work"))
        return plan, first

    def _kill_settling(self) -> None:
        """A first recovery that is killed as well, each time further on."""
        self._turn += 1
        fault = Fault(1 + self._turn % self._settle_points)

        def settle() -> dict[str, Any]:
            points = Points(fault)
            points.install()
            self._settle()
            points.end()
            return {"points": points.passed}

        said = self._forked(settle)
        self._settle_points = len(said["points"]) if "points" in said else self._settle_points + 1

    def _forked(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        os.ftruncate(self._said, 0)
        child = os.fork()
        if child == 0:
            signal.alarm(HANGS)
            pwrite = os.pwrite
            said: dict[str, Any] = {}
            try:
                said = make()
            except BaseException:
                said = {"crashed": traceback.format_exc()}
            finally:
                pwrite(self._said, json.dumps(said).encode(), 0)
                os._exit(0)
        os.waitpid(child, 0)
        told = os.pread(self._said, 1 << 20, 0)
        return dict(json.loads(told)) if told else {}

    # ---- what must hold

    def _open(self) -> NftbanStore:
        return NftbanStore(spool_at(self._root), lambda: NOW)

    def _journal(self) -> Journal:
        return Journal(f"{spool_at(self._root).desk}/journal", str(self._root))

    def _settle(self) -> list[Operation]:
        """As a worker and then a console do at their start."""
        worker = NftbanStore(spool_at(self._root), lambda: LATER)
        worker.recover()
        worker.close()
        store, journal = self._open(), self._journal()
        for operation in journal.operations():
            if operation.interrupted:
                undo.settle(store, journal, operation)
        store.close()
        return list(journal.operations())

    def _stands(self) -> dict[str, Stand]:
        found: dict[str, Stand] = {}
        for word in FOLDERS.values():
            place = self._root / "queue" / word
            for path in place.iterdir() if place.is_dir() else ():
                assert path.stem not in found, f"{path.stem} stands twice"
                seen = path.stat()
                found[path.stem] = (word, path.read_bytes(), seen.st_mode, seen.st_uid, seen.st_gid)
        return found

    def _undisturbed(self, told: Told) -> Iterator[str]:
        assert told.report is not None
        if set(told.report.done) != set(ACTED):
            yield f"not carried out: {told.report}"

    def _judged(self, told: Told) -> list[str]:
        try:
            self._judge(told)
        except (AssertionError, StoreError):
            return [traceback.format_exc()[-900:]]
        return []

    def _judge(self, told: Told) -> None:
        operations = [one for one in self._settle() if one.op != told.first]
        written = self._written()
        again = [one for one in self._settle() if one.op != told.first]
        assert operations == again and self._written() == written, "settled twice, it differs"
        self._judge_desk()
        stands = self._stands()
        for ident in IDS:
            whole = (self.before.get(ident), self.after.get(ident))
            assert stands.get(ident) in whole, f"{ident} is {stands.get(ident)}"
        for ident in (LEFT_OUT, CHANGED):
            assert stands[ident] == self.before[ident], f"{ident} was acted on"
        if told.report is not None:
            self._judge_report(told.report, stands)
        elif told.refused:
            assert "Traceback" not in told.refused, told.refused
            assert stands == self.before, f"refused, and something moved: {told.refused}"
        assert len(operations) <= 1
        if not operations:
            unsafe = self._deed.verb == "expunge"
            assert unsafe or stands == self.before, "moved without an intent"
            return
        self._judge_account(operations, stands)
        self._go_on(operations[0])
        self._take_back(told.first)

    def _judge_report(self, report: Report, stands: dict[str, Stand]) -> None:
        assert report.accounted == (4 if self._deed.undone else 5), f"accounted: {report}"
        for ident in report.done:
            assert stands.get(ident) == self.after.get(ident), f"told to be done: {ident}"
        for ident in report.gone:
            assert stands[ident] == self.before[ident], f"told to be gone: {ident}"
        for ident, why in report.failed:
            assert why and "\n" not in why and ident != LEFT_OUT, (ident, why)
        assert "\n" not in report.trouble

    def _judge_account(self, operations: list[Operation], stands: dict[str, Stand]) -> None:
        """The journal says of each row what is so."""
        store, journal = self._open(), self._journal()
        revs = {(t.id, t.state): t.rev for t in store.look(IDS) if isinstance(t, Task)}
        done: Counter[str] = Counter()
        unknown: set[str] = set()
        for operation in operations:
            assert operation.damaged <= 1, operation
            for row, ended in journal.entries(operation.op):
                if ended is not None and ended.end is End.DONE:
                    done[row.id] += 1
                    stand = stands.get(row.id)
                    assert stand == self.after.get(row.id), f"written down as done: {row.id}"
                    its = plans.way(operation.intent.verb, row)
                    if its and its[1]:
                        assert revs[row.id, its[1]] == ended.rev, f"another revision: {row.id}"
                elif ended is not None and ended.words == undo.NOWHERE:
                    assert self._deed.verb == "expunge" and row.id not in stands, ended
                    unknown.add(row.id)
                elif ended is None or ended.words != LEFT:
                    assert stands[row.id] == self.before[row.id], f"not done, says {ended}"
                if ended is None:
                    assert revs[row.id, row.state] == row.rev, f"open, and changed: {row}"
        assert max(done.values(), default=0) <= 1, f"done twice: {done}"
        moved = {i for i in IDS if stands.get(i) != self.before[i]}
        told = set(done) | unknown
        assert moved == told, f"{moved} moved, {told} are written down"
        store.close()

    def _go_on(self, operation: Operation) -> None:
        if operation.ended is not None:
            return
        store, journal = self._open(), self._journal()
        plan = undo.rest(store, journal, operation, NOW)
        assert len(plan.rows) == operation.open
        intent = US._replace(follows=operation.op)
        report = deeds.carry_out(store, journal, plan, intent, lambda: NOW)
        undo.drop(store, journal, operation, LEFT)
        told = [one for one in journal.operations() if one.op in (operation.op, report.op)]
        assert set(report.done) | set(report.gone) == {row.id for row in plan.rows}, report
        assert all(one.ended is not None and not one.open for one in told), told
        stands = self._stands()
        self._judge_account(told, stands)
        ends = Counter(
            ident
            for one in told
            for (ident, *_), ended in journal.entries(one.op)
            if ended is not None and ended.words != LEFT
        )
        assert set(ends.values()) == {1}, f"accounted for: {ends}"
        store.close()

    def _take_back(self, first: str) -> None:
        if self._deed.verb == "expunge":
            return
        store, journal = self._open(), self._journal()
        done = set()
        for operation in journal.operations():
            if operation.op != first:
                plan = undo.undo(store, journal, operation, NOW, 7.0).plan
                report = deeds.carry_out(store, journal, plan, US, lambda: NOW)
                assert len(report.done) == len(plan.rows), report
                done |= set(report.done)
        store.close()
        # What nobody works on any more is not put where workers work.
        home = {FOLDERS[State.ACTIVE]: FOLDERS[State.HELD]}
        for ident, (word, *rest) in self._stands().items():
            was, *before = self.before[ident]
            right = home.get(was, was) if ident in done else was
            assert (word, rest) == (right, before), f"taken back, {ident} is not as it was"

    def _written(self) -> dict[str, bytes]:
        """The journal, byte for byte; no address is in full in what everybody may read of it."""
        folder = self._root / "queue/.spooldeck/journal"
        written = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            written[path.name] = path.read_bytes()
            secret = path.suffix == ".before"
            assert path.stat().st_mode & 0o777 == (0o600 if secret else 0o640)
            assert secret or SECRET.encode() not in written[path.name]
        return written

    def _judge_desk(self) -> None:
        left = {path.name for path in (self._root / "queue/.spooldeck").iterdir()} - AT_HOME
        left = {name for name in left if not name.startswith("next-due.")}
        assert not left, f"left on the desk: {left}"


def main() -> int:
    """Sweep what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--slice", type=int, default=1, metavar="N", help="every N-th run only")
    parser.add_argument("--verb", help="this one only; nothing where there is no plan of that name")
    parser.add_argument("folder", nargs="?")
    options = parser.parse_args()
    sys.dont_write_bytecode = True
    gc.freeze()
    if options.folder:
        for line in sys.stdin:
            name = line.strip()
            result = Sweep(Path(options.folder) / name, DEEDS[name], options.slice).result()
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
        return 0
    worst = 0
    sys.stdout.write(f"{'plan':20} {'points':>7} {'runs':>7} {'failures':>9}\n")
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="spooldeck-deeds-", dir=shm) as folder:
        for name in DEEDS.keys() & {options.verb} if options.verb else DEEDS:
            result = Sweep(Path(folder) / name, DEEDS[name], options.slice).result()
            sys.stdout.writelines(f"{name}: {failure}\n" for failure in result.failures[:10])
            numbers = f"{result.points:7} {result.runs:7} {len(result.failures):9}"
            sys.stdout.write(f"{name:20} {numbers}\n")
            sys.stdout.flush()
            worst |= bool(result.failures or result.points < DEEDS[name].floor)
    return worst


if __name__ == "__main__":
    sys.exit(main())
