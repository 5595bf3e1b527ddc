"""Commands that act on many tasks: purge, hold, kill, replay, undo, trash, journal."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine import verbs
from engine.config import queue_config
from engine.locks import queue_lock
from engine.model import Task
from engine.operations import plan_rows, plans, run_plan, sizes, undo
from engine.operations.execute import RowResult
from engine.operations.journal import Intent, Who
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules, pace_to_json
from engine.system import files
from tests import command
from tests.console_places import a_console, loaded, until
from tests.nftban_queues import ids_at, journal_at, store_at, tasks_at, write_config
from tests.tui.cli.run_clock_records import agree_with_clock
from tui.cli import main, make_parser
from tui.cli.formats.nftban.spool import open_spool
from tui.cli.plans import replay_options
from tui.cli.setup.place_formats import setup_for
from tui.cli.setup.places import make_place
from tui.cli.setup.setup import Setup
from tui.plan import planning
from tui.session.place import Place

HOUR = 3600.0
LONG_AGO = 1_795_000_000.0
"""Epoch seconds: a task made then is old enough to be purged without a question."""

Command: TypeAlias = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue with three pending tasks, one of them due, and six dead ones."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name in [name for name in os.environ if name.startswith(("NFTBAN_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    data = tmp_path / "data"
    assert main(["init", str(data)]) == 0
    with store_at(data) as store:
        for number in range(6):
            kind = "report" if number % 2 else "feeds_sync"
            store.swap(None, verbs.enqueue(kind, LONG_AGO + number, f"{number:08x}", f"n{number}"))
        for task in list(store.take(LONG_AGO + 60, "a worker", 6)):
            store.swap(task, verbs.give_up_task(task, "out of paper", 4))
        for number in range(6, 9):
            later = 0.0 if number == 6 else time.time() + HOUR
            task = verbs.enqueue("report", LONG_AGO + number, f"{number:08x}")
            store.swap(None, task._replace(due=float(int(later))))
    return data


@pytest.fixture
def act(root: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command, given as a line or as words, on that queue: exit code, output, complaints."""

    def run(line: str, *words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["--root", str(root), *((line, *words) if words else line.split())])
        return (code, *capsys.readouterr())

    return run


def tree(root: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Bytes, mode and owner of every task file, by its path."""
    found = {}
    for path in sorted((root / "queue").rglob("*.task")):
        seen = path.stat()
        found[str(path)] = (path.read_bytes(), seen.st_mode, seen.st_uid, seen.st_gid)
    return found


def objects(ran: tuple[int, str, str]) -> list[dict[str, Any]]:
    """The objects that a command printed with --json."""
    return [json.loads(line) for line in ran[1].splitlines()]


# ---- dry run, apply, undo

PLANS = {
    "purge": 6,
    "purge --state pending": 3,
    "purge --filter kind=report": 3,
    "hold": 3,
    "hold --state dlq --filter paper": 6,
    "promote": 3,
    "replay --rate now": 6,
}
"""Commands, and to how many tasks they apply."""


def test_a_plan_is_applied_and_undone_by_its_count(root: Path, act: Command) -> None:
    """The dry run prints the number, which applies it; undone, every file is as it was. The end of
    an operation's id names it as well.
    """
    for path in (root / "queue").rglob("*.task"):
        path.write_bytes(b"# by hand\n" + path.read_bytes())
    before = tree(root)

    for words, amount in PLANS.items():
        (foreseen,) = objects(act(f"{words} --dry-run --json"))
        unchanged = tree(root)
        (done,) = objects(act(f"{words} --apply {amount} --json"))
        after = tree(root)
        op = done["op"] if amount > 3 else done["op"][-8:]
        (undone,) = objects(act(f"undo {op} --apply {amount} --json"))

        assert foreseen["acted_on"] == len(done["done"]) == len(undone["done"]) == amount, words
        assert unchanged == before != after
        assert tree(root) == before


def test_a_dry_run_prints_the_command_that_applies_it(root: Path, act: Command) -> None:
    """Its last line can be typed as it is, and the result prints the command that undoes it."""
    said = act("purge", "--filter", "kind=report n1|n3", "--reason", "it's old", "--dry-run")
    (doing,) = [line for line in said[1].splitlines() if line.startswith("to apply: ")]
    name, *words = shlex.split(doing.removeprefix("to apply: "))
    code, out, _ = act(*words)

    assert (name, code) == ("spooldeck", 0)
    assert len(ids_at(root, "trash")) == 2
    (operation,) = journal_at(root).operations()
    assert (operation.intent.filter, operation.intent.reason) == ("kind=report n1|n3", "it's old")
    back = f"to undo: spooldeck --root {root} undo {operation.op} --dry-run"
    assert back in out.splitlines()


REFUSED = {
    "purge": "expected either --dry-run, or --apply N",
    "purge --dry-run --apply 6": "expected either --dry-run, or --apply N",
    "purge --apply 0": "whole number from 1",
    "purge --state work --dry-run": "expected one of dlq, pending, held",
    "purge --filter age> --dry-run": "--filter: ",
    "purge --include x --dry-run": "expected the id of a task that this plan excludes",
    "expunge --dry-run": "expected --state with one of dlq, trash",
    "replay --rate fast --dry-run": "expected tasks per second, up to 128, or `now`",
    f"replay --canary {'9' * 5000} --dry-run": "expected numbers such as 1,10",
    f"replay --timeout {'9' * 10} --dry-run": "a duration of at most 1,000,000,000 seconds",
    "replay --timeout 0 --dry-run": "must be at least 1s, not '0'",
    f"replay --stop-share {'9' * 5000} --dry-run": "expected percent/tasks",
    "replay --canary 1,x --dry-run": "expected numbers such as 1,10, or `none`",
    "replay --stop-share 110/20 --dry-run": "expected percent/tasks such as 10/20",
    "undo --apply 3": "expected the operation to undo",
    "journal --abandon": "expected an operation, and either --resume or --abandon",
    "journal --apply 3": "expected with --resume",
}
"""Commands, and what standard error contains."""


def test_a_plan_that_is_wrong_is_refused(root: Path, act: Command) -> None:
    """Wrong words are exit code 64 and one line; an operation that is not found, or another number
    of tasks than there are, is 1. With `require_reason: true` only a dry run needs no reason.
    Nothing is done.
    """
    before = tree(root)

    for words, said in REFUSED.items():
        code, out, complaint = act(words)
        assert (code, out, complaint.count("\n")) == (64, "", 1), words
        assert said in complaint, words
    for op in ("20261121T000000Z-00000000", "00000000"):
        code, out, complaint = act(f"undo {op} --apply 1")
        assert (code, out) == (1, "")
        assert complaint.startswith(f"spooldeck: {op}: no such operation in ")
    wrong = (1, "", "spooldeck: 6 would be purged now, not 5: nothing was changed\n")
    assert act("purge --apply 5") == wrong
    hold = f"--config {write_config(root, 'require_reason: true')} hold"
    assert [act(f"{hold} {words}")[0] for words in ("--dry-run", "--apply 3")] == [0, 64]
    assert journal_at(root).operations() == ()
    assert tree(root) == before
    assert act(f"{hold} --apply 3 --reason because")[0] == 0


def test_a_plan_names_its_tasks(root: Path, act: Command) -> None:
    """Young and noted tasks are purged only if they are named, one by one or all together. With
    --id no other task is in the plan, and a missing one is complained of.
    """
    with store_at(root) as store:
        young = verbs.enqueue("report", time.time(), "000000ff")
        store.swap(None, young)
    (noted, *_) = sorted(ids_at(root, "pending"))
    setup_of(root).notes().add(noted, "legal hold? ask kim", "ana")
    pending = "purge --state pending --dry-run --json"

    ((plain,), (one,), (every,)) = (
        objects(act(f"{pending} {words}"))
        for words in ("", f"--include {young.id}", "--include-all")
    )

    assert [answer["acted_on"] for answer in (plain, one, every)] == [2, 3, 4]
    outcomes = {row["id"]: row["outcome"] for row in plain["rows"]}
    assert outcomes[young.id] == "excluded: younger than 15 minutes"
    assert outcomes[noted] == "excluded: has a note"
    assert f"--include {young.id} --apply 3" in one["twin"]
    hint = "for excluded tasks too: --include ID for one, --include-all for all"
    as_text = pending.removesuffix(" --json")
    shown = [act(f"{as_text} {words}")[1] for words in ("", "--include-all")]
    assert [hint in text for text in shown] == [True, False]

    refused = act("purge --state pending --apply 70")
    assert refused[2] == (
        "spooldeck: 2 would be purged now, not 70: 1 excluded: has a note (--include-all): "
        "1 excluded: younger than 15 minutes (--include-all): nothing was changed\n"
    )

    first, second, *_ = sorted(ids_at(root, "dlq"))
    none = "20261120T094115Z-x-00000000"
    code, out, complaint = act(f"purge --id {first} --id {second} --id {none} --apply 2")
    assert code == 0, out
    assert ids_at(root, "trash") == {first, second}
    assert f"{none}: not found" in complaint


def test_a_large_plan_is_the_same_as_a_small_one(
    root: Path, act: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its rows and names in tables and few tasks measured, a dry run has the same rows, counts
    and command, and the size of the first tasks; it is applied and undone in full.
    """
    with store_at(root) as store:
        store.swap(None, verbs.enqueue("report", time.time(), "000000ff"))
    (noted, *_) = sorted(ids_at(root, "pending"))
    setup_of(root).notes().add(noted, "legal hold? ask kim", "ana")
    line, before = "purge --state pending,dlq --dry-run --json", tree(root)
    (small,), (every,) = objects(act(line)), objects(act(f"{line} --include-all"))
    for module in (plans, plan_rows):
        monkeypatch.setattr(module, "MAX_ROWS_IN_MEMORY", 2)
    monkeypatch.setattr(sizes, "MAX_MEASURED_TASKS", 3)
    monkeypatch.setattr("engine.formats.nftban.store.MAX_NAMES_IN_MEMORY", 2)
    (large,), (large_every,) = objects(act(line)), objects(act(f"{line} --include-all"))

    measured = [row["bytes"] for row in large["rows"] if row["bytes"] is not None]
    assert [row["bytes"] for row in small["rows"]][:3] == measured
    assert (small["measured"], large["measured"]) == (10, 3)
    assert sum(measured) == large["bytes"] < small["bytes"]
    for plan in (small, every, large, large_every):
        del plan["bytes"], plan["measured"], plan["facts"]
        for row in plan["rows"]:
            del row["bytes"]
    assert (small, every) == (large, large_every)
    assert (small["acted_on"], every["acted_on"]) == (8, 10)

    (done,) = objects(act("purge --state pending,dlq --apply 8 --json"))
    assert (len(done["done"]), len(done["excluded"])) == (8, 2)
    (undone,) = objects(act(f"undo {done['op']} --apply 8 --json"))
    assert len(undone["done"]) == 8
    assert tree(root) == before


# ---- the trash


def setup_of(root: Path, text: str = "") -> Setup:
    """A queue as the commands see it."""
    loaded = queue_config.load_config(write_config(root, text), {})
    return setup_for(loaded, str(root), {})


def test_the_trash_is_listed_and_restored(root: Path, act: Command) -> None:
    """The list has times, sizes, origin and operation. Each task is restored to where it was; one
    that is not in the trash is exit 1. Without a journal a pending task would come back as held.
    """
    before = tree(root)
    act("purge --state pending --apply 3")
    (operation,) = journal_at(root).operations()
    listed, rows = act("trash list")[1].splitlines(), objects(act("trash list --json"))
    assert listed[-1] == "3 tasks, 633 B of 512.0 MB; each is kept for 24 hours"
    assert {(row["from"], row["op"]) for row in rows} == {("pending", operation.op)}
    assert {row["id"] for row in rows} == ids_at(root, "trash")
    assert all(row["bytes"] > 0 and row["trash_since"] > LONG_AGO for row in rows)

    act("purge --apply 6")
    trashed = sorted(ids_at(root, "trash"))
    foreseen = act("trash restore --dry-run " + " ".join(trashed))
    some, rest = (act("trash", "restore", *ids) for ids in (trashed[:4], trashed[3:]))
    assert (foreseen[0], some[0], rest[0]) == (0, 0, 1)
    assert f"{trashed[3]}: dlq, expected trash" in rest[2]
    assert tree(root) == before

    act("purge --state pending --apply 3")
    shutil.rmtree(journal_at(root).folder)
    assert act("trash list")[1].count("held: former state unknown") == 3


def test_after_a_day_the_trash_is_swept(
    root: Path, act: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purged tasks are deleted for good a day later, with their images, and not before, however
    often the trash is swept by hand.
    """
    agree_with_clock(monkeypatch)
    act("replay --rate now --filter kind=report --apply 3")
    act("purge --apply 3")
    setup, now = setup_of(root), time.time()

    foreseen, swept = act("trash sweep --dry-run"), act("trash sweep")
    with closing(open_spool(setup)) as store:
        early = setup.housekeeping().sweep_trash(store, now + 23 * HOUR)
        late = setup.housekeeping().sweep_trash(store, now + 25 * HOUR)
        again = setup.housekeeping().sweep_trash(store, now + 25 * HOUR, always=True)

    assert foreseen[:2] == (0, "0 purged more than 24 hours ago; nothing was changed\n")
    assert swept[:2] == (0, "0 tasks deleted permanently\n")
    assert [tuple(one) for one in (early, late, again)] == [(0, 0, 0), (3, 0, 1), (0, 0, 0)]
    assert ids_at(root, "trash") == set()
    assert len(journal_at(root).operations()) == 2


def test_a_run_sweeps_once_an_hour(root: Path, act: Command) -> None:
    """`process-next` sweeps when its mark is an hour old; never without trash."""
    mark = root / "queue" / ".spooldeck" / "swept"
    act("queue process-next --quiet")
    assert not mark.exists()
    act("purge --apply 6")

    for ago, sweeps in ((0.0, False), (2 * HOUR, True)):
        act("queue process-next --quiet")
        then = int(time.time() - ago) - 1
        os.utime(mark, (then, then))
        act("queue process-next --quiet")
        assert (mark.stat().st_mtime > then) == sweeps
    assert len(ids_at(root, "trash")) == 6


@pytest.fixture
def full(root: Path, act: Command) -> Place:
    """That queue with tasks in its trash, as the console gets it."""
    act("purge --apply 6")
    return make_place(setup_of(root), str(root))


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_console_sweeps_when_it_starts(root: Path, full: Place, read_only: bool) -> None:
    """On a thread of its own, and only a console that may write."""
    swept = threading.Event()

    def sweep() -> str:
        try:
            assert full.sweep is not None
            return full.sweep()
        finally:
            swept.set()

    console = a_console(full._replace(sweep=sweep), clock=time.time, read_only=read_only)
    async with console.run_test() as pilot:
        await loaded(pilot)
        if not read_only:
            await until(pilot, swept.is_set)

    names = await asyncio.to_thread(os.listdir, root / "queue" / ".spooldeck")
    assert swept.is_set() is not read_only
    assert ("swept" in names) is not read_only
    assert len(await asyncio.to_thread(ids_at, root, "trash")) == 6


def test_the_consoles_command_is_for_any_folder(root: Path) -> None:
    """The command that a plan on screen prints names the place and the configuration in full."""
    path = write_config(root, "require_reason: false\n")
    loaded = queue_config.load_config(os.path.relpath(path), {})
    setup = setup_for(loaded, str(root), {})

    command = make_place(setup, os.path.relpath(root)).command

    assert command == ("spooldeck", "--root", str(root), "--config", path)


def test_expunge_cannot_be_undone(root: Path, act: Command) -> None:
    """The dry run warns and names `hold` instead; the payload is deleted too."""
    payload = root / "mailspool" / "body"
    payload.parent.mkdir(exist_ok=True)
    payload.write_text("hello")
    with store_at(root) as store:
        task = verbs.enqueue("mail_send", LONG_AGO, "000000ff", "", str(payload))
        store.swap(None, task)
    act(f"purge --id {task.id} --apply 1")
    kept = payload.exists()

    foreseen = act("expunge --state trash --dry-run")[1]
    code, out, _ = act("expunge --state trash --apply 1")

    assert "cannot be undone" in foreseen and "`hold` instead" in foreseen
    assert (kept, code, payload.exists()) == (True, 0, False)
    assert "to take it back" not in out
    assert act("undo")[1].count("purge") == 1


def test_tasks_in_work_are_changed_only_while_no_worker_runs(root: Path, act: Command) -> None:
    """While the lock is held none is killed, held or released; once it is free they can be."""
    with store_at(root) as store:
        (mine,) = store.take(time.time(), "a worker", 1)
    (root / "run").mkdir(exist_ok=True)
    lock = queue_lock.acquire_lock(str(root / "run" / "queue.lock"), 1200)

    foreseen = act("kill --dry-run")
    for words in ("kill", "hold --state work", "release --state work"):
        code, _, complaint = act(f"{words} --apply 1")
        assert (code, "nothing was changed" in complaint) == (2, True)
    assert "active tasks are not abandoned" in foreseen[1]
    assert ids_at(root, "work") == {mine.id}
    lock.release()
    assert act("kill --apply 1")[0] == 0
    assert mine.id in ids_at(root, "dlq")


# ---- the journal


def test_the_journal_is_listed(root: Path, act: Command) -> None:
    """A line for each operation, also those of `queue dlq retry` and `purge`; one of them in full,
    with each of its tasks.
    """
    act("purge", "--filter", "kind=report", "--reason", "for kim@example.net", "--apply", "3")
    (operation,) = journal_at(root).operations()

    listed = act("journal")[1]
    (told,) = objects(act(f"journal {operation.op} {root} --json"))

    assert "| purge | 3 done | done | filter kind=report | reason for ...@example.net" in listed
    assert act(f"journal {operation.op}")[1].count("  dead  done\n") == 3
    assert (told["op"], told["done"], told["standing"]) == (operation.op, 3, "done")
    assert {row["outcome"] for row in told["rows"]} == {"done"}
    assert act("journal --since 2001-01-01")[1] == listed
    assert act("journal --since 2999-01-01")[1] == ""

    before, first = tree(root), min(ids_at(root, "dlq"))
    retried = act(f"queue dlq retry {first}")
    undone = act(f"undo {journal_at(root).operations()[0].op} --apply 1")
    assert retried[:2] == (0, f"Task {first} moved from DLQ to pending queue\n")
    assert (undone[0], tree(root) == before) == (0, True)
    status, planned, _ = act("queue dlq purge 0 --dry-run")
    assert status == 0
    assert planned.splitlines()[-1] == "3 would be deleted permanently; nothing was changed"
    assert planned.count("would delete permanently ") == 3
    assert act("queue dlq purge 0")[:2] == (0, "Purged 3 tasks from DLQ\n")
    verbs_done = [one.intent.verb for one in journal_at(root).operations()][::-1]
    assert verbs_done == ["purge", "retry", "undo", "expunge"]


def interrupted(root: Path, moved: int) -> str:
    """A purge that was killed after so many of the dead tasks were moved."""
    with store_at(root) as store:
        dead = [task for task in store.scan({"dlq"}) if isinstance(task, Task)]
        plan = plans.freeze_plan("purge", dead, time.time())
        pen = journal_at(root).begin(Intent("purge", Who("ana"), "old"), plan)
        for task in dead[:moved]:
            store.swap(task, verbs.purge(task, time.time()))
        pen.close()
        return pen.op


def test_an_interrupted_operation_is_completed(root: Path, act: Command) -> None:
    """The journal finds which tasks were moved; --resume does the rest and ends the first one."""
    op = interrupted(root, 2)

    settled = act(f"journal {op}")[1]
    codes = [act(f"journal {op} --resume --apply {count}")[0] for count in (6, 4)]

    assert "2 done, 4 open | interrupted" in settled
    assert f"journal {op} --resume --apply 4" in settled
    assert (codes, len(ids_at(root, "trash"))) == ([1, 0], 6)
    last, first = journal_at(root).operations()
    assert (last.intent.follows, last.intent.reason, last.counts[RowResult.DONE]) == (op, "old", 4)
    left = first.counts[RowResult.UNAPPLIED]
    assert (first.is_interrupted, first.open_rows, left) == (False, 0, 4)


def test_an_interrupted_operation_is_dropped_and_undone(root: Path, act: Command) -> None:
    """Dropped it is over and moves nothing more; its moved tasks can be undone, and then the undo
    is offered in its place.
    """
    before = tree(root)
    op = interrupted(root, 2)

    dropped, again = act(f"journal {op} --abandon"), act(f"journal {op} --abandon")
    listed, undone = act("undo")[1], act(f"undo {op} --apply 2")

    assert dropped[:2] == (0, f"{op} abandoned; 4 tasks unchanged\n")
    assert (again[0], undone[0]) == (1, 0)
    assert f"undo {op} --dry-run" in listed
    assert [one["undoes"] for one in objects(act("undo --json"))] == [op]
    assert tree(root) == before


def test_an_operation_undone_in_part_is_still_offered(root: Path, act: Command) -> None:
    """While some of its tasks are as it left them it is listed, with the number undone."""
    act("purge --apply 6")
    kept = journal_at(root)
    (purged,) = kept.operations()
    op = purged.op
    with store_at(root) as store:
        plan = undo.plan_undo(store, kept, purged, time.time(), 7.0).plan
        some = plan._replace(rows=plan.rows[:2])
        run_plan.run_journaled_plan(store, kept, some, Intent("undo", Who("ana")), time.time)

    listed = act("undo")[1]
    told = {one["op"]: one for one in objects(act("undo --json"))}
    code = act(f"undo {op} --apply 4")[0]

    assert "2 of 6 undone" in listed and f"undo {op} --dry-run" in listed
    assert (told[op]["undone"], code) == (2, 0)
    assert op not in {one["op"] for one in objects(act("undo --json"))}


def test_the_rest_of_a_replay_goes_at_its_first_pace(root: Path, act: Command) -> None:
    """The dry run of --resume prints the pace that the replay was begun with."""
    plan = plans.freeze_plan("retry", tasks_at(root, "dlq"), time.time())
    pen = journal_at(root).begin(
        Intent("retry", Who("ana"), pace=pace_to_json(ReplayPace(3.0, (1,)))), plan
    )
    pen.close()

    said = act(f"journal {pen.op} --resume --dry-run")[1]

    assert "at 3/s: 6 in 2s" in said
    assert "first 1; waits for results after each step" in said


def test_without_room_for_the_journal_nothing_is_done(
    root: Path, act: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk the message names `expunge`, which makes room."""
    before = tree(root)

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_all", full)
    code, _, complaint = act("purge --apply 6")

    assert (code, tree(root) == before) == (69, True)
    assert "nothing was done: the journal in " in complaint
    assert "No space left on device; expunge (permanent) works without" in complaint


def test_an_unknown_verb_in_the_journal_is_only_listed(root: Path, act: Command) -> None:
    """It is shown without control characters, and neither undone nor continued."""
    op = interrupted(root, 2)
    path = Path(journal_at(root).folder, f"{op}.jsonl")
    path.write_text(path.read_text().replace('"verb": "purge"', '"verb": "levi\\u001b[2Jtate"'))

    ran = [act("journal"), act(f"undo {op} --apply 2"), act(f"journal {op} --resume")]

    assert [code for code, _, _ in ran] == [0, 69, 64]
    assert "tate | 6 open | interrupted" in ran[0][1]
    assert "\x1b" not in "".join(said for _, *both in ran for said in both)


def test_the_contracts_commands_work_without_a_journal(root: Path, act: Command) -> None:
    """Where nothing can be recorded they complain in one line, and work; the others do not."""
    folder = root / "queue" / ".spooldeck"
    folder.mkdir(exist_ok=True)
    (folder / "journal").write_text("in the way")
    first, before = min(ids_at(root, "dlq")), tree(root)

    for verb in ("purge", "replay"):
        code, out, complaint = act(f"{verb} --apply 6")
        assert (code, out, "journal" in complaint.splitlines()[-1]) == (69, "", True)
    assert tree(root) == before
    for words in (f"retry {first}", "purge 0"):
        code, _, complaint = act(f"queue dlq {words}")
        assert (code, complaint.count("\n")) == (0, 1)
        assert "continued without the journal" in complaint
    assert ids_at(root, "dlq") == set()
    assert first in ids_at(root, "pending")


# ---- a replay, with a worker


@contextmanager
def started(root: Path, *words: str, text: str = "{}") -> Iterator[subprocess.Popen[str]]:
    """A command that runs beside the test on that queue, and is ended with the block."""
    pipe, argv = (
        subprocess.PIPE,
        ["--config", write_config(root, text), "--root", str(root), *words],
    )
    process: command.Popen[str] = command.Popen(
        argv, stdout=pipe, stderr=pipe, text=True, stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


WORKING = "handlers: {report: {command: ['true']}, feeds_sync: {command: ['true']}}"


@pytest.mark.deep
def test_a_replay_goes_on_as_long_as_it_goes_well(root: Path, act: Command) -> None:
    """A canary, then the rest at the rate; each task delivered, as the log says."""
    with started(root, "queue", "work", text=WORKING):
        code, out, said = act("replay --rate 100 --canary 1,2 --apply 6 --json")

    answer = json.loads(out)
    assert code == 0, said
    assert (answer["outcome"]["delivered"], len(answer["done"])) == (6, 6)
    assert ids_at(root, "dlq") == set()
    assert "6 of 6 sent, 6 delivered" in said
    (operation,) = journal_at(root).operations()
    assert operation.intent.pace["canary"] == [1, 2]


def test_a_replay_that_is_stopped_by_hand_leaves_the_rest(root: Path) -> None:
    """After a Ctrl-C nothing more is sent, after a second one no outcome is waited for."""
    with started(root, "replay", "--rate", "100", "--apply", "6") as replay:
        assert replay.stderr is not None
        for sign in ("1 of 6 sent", "stopping:"):
            while sign not in replay.stderr.readline():
                assert replay.poll() is None
            replay.send_signal(signal.SIGINT)
        out, _ = replay.communicate(timeout=30)

    assert replay.returncode == 1
    assert len(ids_at(root, "dlq")) == 5
    assert "= 6" in out
    (operation,) = journal_at(root).operations()
    assert (operation.counts[RowResult.DONE], operation.counts[RowResult.UNAPPLIED]) == (1, 5)
    assert not operation.is_interrupted


@pytest.mark.parametrize(
    "pace",
    [
        ReplayPace(),
        ReplayPace(rate=0.5, canary=(3,), timeout=60.0),
        ReplayPace(canary=(), stops=StopRules(same=None, share=None)),
        ReplayPace(
            stops=StopRules(same=5, share=0.25, last=8, pending=900, rest=RemainderPolicy.HOLD)
        ),
    ],
)
def test_a_pace_means_the_same_on_the_command_line(pace: ReplayPace) -> None:
    """The command that a plan on screen prints goes as fast and stops as early as the plan."""
    words = planning.pace_options(pace)
    assert words is not None

    parsed = make_parser(["replay", *words]).parse_args(["replay", *words])

    assert replay_options.parse_pace(parsed) == pace._replace(attended=False)
