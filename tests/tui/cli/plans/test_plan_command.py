"""Commands that act on many tasks, by a plan: dry run, apply, undo."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from engine import verbs
from engine.config import queue_config
from engine.formats.known_formats import setup_for
from engine.locks import queue_lock
from engine.operations import plan_rows, plans
from engine.operations.execute import Report
from engine.system.command_errors import EX_NOPERM
from tests import command
from tests.json_answers import parse_answers
from tests.nftban_queues import ids_at, journal_at, store_at, write_config
from tests.postfix_server import PostfixInstance, running_instance
from tests.tui.cli.plans.queue_of_plans import LONG_AGO, Command, act, objects, root, setup_of, tree
from tui.cli.plans.plan_command import print_report
from tui.cli.setup.places import make_place

__all__ = ["act", "root"]  # fixtures

PLANS = {
    "purge": 6,
    "purge --state pending": 3,
    "purge --filter kind=report": 3,
    "hold": 3,
    "hold --state dlq --filter paper": 6,
    "promote": 3,
    "retry": 6,
    "replay --rate now": 6,
}
"""Commands, and to how many tasks they apply."""


def test_a_plan_is_applied_and_undone_by_its_count(root: Path, act: Command) -> None:
    """The dry run prints the number that applies it; undone, every file is as it was."""
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
    output = act("purge", "--filter", "kind=report n1|n3", "--reason", "it's old", "--dry-run")
    (doing,) = [line for line in output[1].splitlines() if line.startswith("to apply: ")]
    name, *words = shlex.split(doing.removeprefix("to apply: "))
    code, out, _ = act(*words)
    assert (name, code, len(ids_at(root, "trash"))) == ("spooldeck", 0, 2)
    (operation,) = journal_at(root).operations()
    assert (operation.intent.filter, operation.intent.reason) == ("kind=report n1|n3", "it's old")
    assert f"to undo: spooldeck --root {root} undo {operation.op} --dry-run" in out.splitlines()


ONE_WORD = {
    "retry": "retry",
    "replay --rate now": "retry",
    "replay --filter n1": "retry",
    "replay --rate 3": "replay --rate 3",
}
"""What is typed for dead tasks, and the command that is printed for it."""


def test_a_command_and_its_result_have_the_word_of_the_act(root: Path, act: Command) -> None:
    """Without a rate, and of a single task, a replay is a retry, in the printed command too."""
    for typed, named in ONE_WORD.items():
        command = act(f"{typed} --dry-run")[1].rpartition(f"--root {root} ")[2]
        assert command.startswith(named.partition(" ")[0]), typed
        assert ("--rate" in command) == ("--rate" in named)
        past = {"retry": "retried", "replay": "replayed"}[command.split()[0]]
        assert f"would be {past}; nothing was changed" in act(f"{typed} --dry-run")[1]
        assert objects(act(f"{typed} --dry-run --json"))[0]["verb"] == named.split()[0]
    output = act("replay --rate now --filter n1 --apply 1")[1]
    assert "1  retried" in output
    assert objects(act("replay --rate now --filter n3 --apply 1 --json"))[0]["verb"] == "retry"


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


def test_a_limit_takes_the_oldest_tasks_that_can_change(root: Path, act: Command) -> None:
    """The N oldest are named by their ids; what a plan excludes is none of them."""
    done = []
    for left in (6, 4):
        foreseen = act("purge --filter paper --limit 2 --dry-run")[1]
        assert f"the oldest 2 of {left} matching in dlq" in foreseen
        command = foreseen[foreseen.index("purge --filter") :].splitlines()[0]
        assert command.count("--id ") == 2 and "--limit" not in command
        (result,) = objects(act(f"{command} --json"))
        done += [ident[-8:] for ident in result["done"]]
    assert done == [f"{number:08x}" for number in range(4)]
    (noted, free) = sorted(ids_at(root, "dlq"))
    assert act("note", noted, "keep")[0] == 0
    output = act("purge --limit 1 --dry-run")[1]
    assert f"--id {free} --apply 1" in output
    assert "1 excluded: " in output and "(--include-all)" in output
    for wrong in ("--limit 0 --dry-run", "--limit 1 --apply 1", "--limit 1001 --dry-run"):
        assert act(f"purge {wrong}")[0] == 64
    assert len(ids_at(root, "dlq")) == 2


def test_a_filter_reads_what_tasks_carry(root: Path, act: Command) -> None:
    """`data:` searches payloads; a task whose payload cannot be read is named and never listed."""
    spool = root / "mailspool"
    spool.mkdir(exist_ok=True)
    (spool / "kept").write_text("Subject: \0invoice 7\n")
    with store_at(root) as store:
        for name in ("kept", "lost"):
            task = verbs.enqueue("mail_send", LONG_AGO + 60, name)
            store.swap(None, task._replace(payload=f"{spool}/{name}"))
    for text, ids in (("data:INVOICE", ["kept"]), (r"!data~invoice\s7", [])):
        code, output, complaints = act("queue", "list", "--filter", f"kind=mail_send {text}")
        assert (code, [name for name in ("kept", "lost") if f"-{name} |" in output]) == (0, ids)
        assert "lost: not searched: " in complaints
    assert "purge --filter data:invoice --apply 1" in act(
        "purge --state pending --filter data:invoice --dry-run"
    )[1].replace(" --state pending", "")


def test_a_plan_that_is_wrong_is_refused(root: Path, act: Command) -> None:
    """Wrong words are 64, a wrong operation or number is 1, and nothing is done."""
    before = tree(root)
    for words, message in REFUSED.items():
        code, out, complaint = act(words)
        assert (code, out, complaint.count("\n")) == (64, "", 1), words
        assert message in complaint, words
    for op in ("20261121T000000Z-00000000", "00000000"):
        code, out, complaint = act(f"undo {op} --apply 1")
        assert (code, out) == (1, "")
        assert complaint.startswith(f"spooldeck: {op}: no such operation in ")
    wrong = (1, "", "spooldeck: 6 would be purged now, not 5: nothing was changed\n")
    assert act("purge --apply 5") == wrong
    hold = f"--config {write_config(root, 'require_reason: true')} hold"
    assert [act(f"{hold} {words}")[0] for words in ("--dry-run", "--apply 3")] == [0, 64]
    assert journal_at(root).operations() == ()
    assert (tree(root), act(f"{hold} --apply 3 --reason because")[0]) == (before, 0)


def test_a_plan_names_its_tasks(root: Path, act: Command) -> None:
    """Young and noted tasks are purged only if they are named, and with --id no other task."""
    with store_at(root) as store:
        young = verbs.enqueue("report", time.time(), "000000ff")
        store.swap(None, young)
    (noted_id, *_) = sorted(ids_at(root, "pending"))
    setup_of(root).notes().add(noted_id, "legal hold? ask kim", "ana")
    pending = "purge --state pending --dry-run --json"

    ((plain,), (one,), (every,)) = (
        objects(act(f"{pending} {words}"))
        for words in ("", f"--include {young.id}", "--include-all")
    )

    assert [answer["acted_on"] for answer in (plain, one, every)] == [2, 3, 4]
    outcomes = {row["id"]: row["outcome"] for row in plain["rows"]}
    assert outcomes[young.id] == "excluded: younger than 15 minutes"
    assert outcomes[noted_id] == "excluded: has a note"
    assert f"--include {young.id} --apply 3" in one["twin"]
    hint = "for excluded tasks too: --include ID for one, --include-all for all"
    as_text = pending.removesuffix(" --json")
    outputs = [act(f"{as_text} {words}")[1] for words in ("", "--include-all")]
    assert [hint in text for text in outputs] == [True, False]

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
    """With names and rows in tables, and few tasks measured, it has the same rows and result."""
    line, before = "purge --state pending,dlq --dry-run --json", tree(root)
    (small,) = objects(act(line))
    for module in (plans, plan_rows):
        monkeypatch.setattr(module, "MAX_ROWS_IN_MEMORY", 2)
    monkeypatch.setattr(plans, "MAX_MEASURED_TASKS", 3)
    monkeypatch.setattr("engine.formats.nftban.store.MAX_NAMES_IN_MEMORY", 2)
    (large,) = objects(act(line))
    rows = [[{**row, "bytes": 0} for row in plan["rows"]] for plan in (small, large)]
    assert rows[0] == rows[1] and len(rows[0]) == 9
    assert (small["measured"], large["measured"]) == (9, 3)
    (done,) = objects(act("purge --state pending,dlq --apply 9 --json"))
    (undone,) = objects(act(f"undo {done['op']} --apply 9 --json"))
    assert (len(done["done"]), len(undone["done"]), tree(root)) == (9, 9, before)


def test_the_consoles_command_is_for_any_folder(root: Path) -> None:
    """The command that a plan on screen prints names the place and the configuration in full."""
    path = write_config(root, "require_reason: false\n")
    setup = setup_for(queue_config.load_config(os.path.relpath(path), {}), str(root), {})
    command = make_place(setup, os.path.relpath(root)).command
    assert command == ("spooldeck", "--root", str(root), "--config", path)


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


def test_the_notes_of_a_result_are_in_its_json(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How far requests have come is in the answer, with the number of tasks."""
    plan = plans.freeze_plan("promote", [], 0.0, edges={})
    report = Report(plan, ("a", "b"), (), (), notes={"still delivering": 2}, is_exact=False)
    print_report(setup_of(root), report, as_json=True)
    (answer,) = parse_answers(capsys.readouterr().out, "promote", "--apply")
    assert (answer["notes"], answer["exact"]) == ({"still delivering": 2}, False)


def on_server(server: PostfixInstance, *words: str) -> tuple[int, str]:
    """Run a command at the place of a mail server: its exit code and output."""
    run = command.run_text("--root", server.config, *words)
    return run.returncode, run.stdout + run.stderr


def test_a_plan_at_a_mail_server() -> None:
    """Too many attempts are refused, a release counts old mail, a requeued mail has its new id."""
    with running_instance() as server:
        ids = server.deferred(101)
        code, text = on_server(server, "promote", "--dry-run")
        why = "at most 100 in a plan; for more: control flush"
        text = " ".join(text.split())  # lines are folded at the width of the terminal
        assert f"101 refused, stays in deferred: {why}" in text
        assert code == EX_NOPERM
        assert any(f"{ident} refused: {why}" in text for ident in ids)
        assert f"no task would be promoted: {why}" in text
        assert on_server(server, "promote", "--apply", "101") == (
            EX_NOPERM,
            f"spooldeck: {why}: nothing was changed\n",
        )

        held, requeued = ids[:2]
        server.run("postsuper", "-h", "-", "deferred", stdin=f"{held}\n")
        server.configure("maximal_queue_lifetime = 0\n")
        code, text = on_server(server, "release", "--dry-run", "--json")
        (plan,) = parse_answers(text, "release", "--dry-run")
        now, past = plan["warnings"]
        assert now == "tried at the next queue run, within 5m; O: now"
        assert past.startswith("1 past the lifetime of 0s: returned after one attempt")

        code, text = on_server(server, "reroute", "--id", requeued, "--apply", "1", "--json")
        (report,) = parse_answers(text, "reroute", "--apply")
        assert (report["done"], [*report["new_ids"]]) == ([requeued], [requeued])
        server.await_log(f"> orig_id={requeued}\n")
        new = server.log().partition(f"> orig_id={requeued}\n")[0].split(": ")[-2]
        code, text = on_server(server, "journal", report["op"], "--json")
        (operation,) = parse_answers(text, "journal")
        assert [row["words"] for row in operation["rows"]] == [f"new id {new}"]
        text = on_server(server, "journal", report["op"])[1]
        assert f"{requeued}  pending  done new id {new}\n" in text
