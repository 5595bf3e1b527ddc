"""The command line: what every command keeps, and the queue, status, init and help commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine import verbs
from engine.live.shared_watch import FolderEventSource
from engine.system import files
from tests import command
from tests.nftban_queues import (
    Run,
    add_task,
    bury_one,
    clean_environment,
    store_at,
    tasks_at,
    write_config,
)
from tests.tables import each
from tui import cli
from tui.cli.command_help import COMMAND_HELP
from tui.cli.commands import COMMAND_WORDS, parse_table

TRUE = "handlers: {report: {command: ['true']}}"
FALSE = "handlers: {report: {command: [sh, -c, 'echo out of paper; exit 1']}}"


def in_queue(root: str, settings: str = "{}") -> tuple[str, ...]:
    """The words before those of a `queue` command."""
    return ("--config", write_config(root, settings), "--root", root, "queue")


# ---- what every command keeps

COMMANDS = {" ".join(word.path): word for word in COMMAND_WORDS if word.function}


def test_what_every_command_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown option is 64; an option takes one value; a change does not end with its reader."""
    monkeypatch.chdir(tmp_path)
    for name in COMMANDS.keys() - {"console"}:
        code = cli.main([*name.split(), "--frob"])
        captured = capsys.readouterr()
        assert (code, captured.out, captured.err.count("\n")) == (64, "", 1), name
        assert "--frob" in captured.err or "required: " in captured.err, name
        arguments = COMMANDS[name].arguments
        options = [given for names, given in arguments if names[0][0] == "-"]
        assert not any(given.get("nargs") not in (None, "?") for given in options), name
        acts = any({"--apply", "--dry-run"} & set(names) for names, _ in arguments)
        assert not (acts and COMMANDS[name].is_listing), name
    assert list(tmp_path.iterdir()) == []


@each(
    ("row", "expected"),
    [
        ("log", "WORDS | MODULE:FUNCTION | SUMMARY"),
        ("log | print | a summary", "MODULE:FUNCTION, or - for a group"),
        ("log | print.log:log +lists | a summary", "no mark but +listing"),
        ("mail send | formats.nftban.mail.send:send | a summary", "the row of its group above it"),
        ("    @place @json", "@place above it"),
        ("    place", "NAME VALUE | HELP"),
        ("    --to A +must | a text", "+required, +rest or +dest:NAME"),
        ("    --to [A...]", "X, or [X] if no option"),
        ("    --to N:float", "no type but count, number, wait, duration"),
        ("    --to N:count=x", "a number after ="),
    ],
)
def test_a_wrong_row_of_the_command_table_is_named(row: str, expected: str) -> None:
    """The error for a wrong row of the command table shows the row and what was expected."""
    table = f"status | queue.status:status | a summary\n{row}"
    with pytest.raises(ValueError, match="row ") as refused:
        _ = [word.arguments for word in parse_table(table)]
    text = f"row {row.strip()!r} of the command table: expected {expected}"
    assert str(refused.value) == text


def test_every_command_has_an_example_that_it_accepts() -> None:
    """The help of each command ends with an example, which its parser takes, and exit codes."""
    assert COMMAND_HELP.keys() == COMMANDS.keys() - {"console"}
    for name, help_text in COMMAND_HELP.items():
        words = shlex.split(help_text.example)[1:]
        arguments, left = cli.make_parser(words).parse_known_args(words)
        assert left == [], name
        assert hasattr(arguments, "command"), name


NO_QUEUE = (
    ("nowhere", 64, "unknown command or place: 'nowhere' (see `spooldeck --help`)"),
    ("staus", 64, "did you mean status?"),
    ("destination", 64, "did you mean destinations or federation?"),
    ("reply", 64, "did you mean replay?"),
    ("relase", 64, "did you mean release"),
    ("qeue count", 64, "did you mean queue?"),
    ("maill status", 64, "did you mean mail or"),
    ("queue dql list", 64, "unknown command: 'queue dql'; did you mean dlq?"),
    ("queue dlq retyr 7", 64, "unknown command: 'queue dlq retyr'; did you mean retry?"),
    ("mail spool lst", 64, "did you mean list?"),
    ("queue list --jsn", 64, "unrecognized arguments: --jsn; did you mean --json? (see `sp"),
    ("queue count --rot x", 64, "did you mean --root?"),
    ("log --folow", 64, "did you mean --follow or"),
    ("wait --until dne", 64, "invalid choice: 'dne' (choose from"),
    ("queue list --state", 64, "argument --state: expected one argument"),
    ("queue work --concurrency x", 64, "must be a whole number from 1"),
    ("status --color blue", 64, "argument --color: invalid choice: 'blue'"),
    ("add job", 64, "unknown command or place: 'add'; did you mean queue add or bullmq add?"),
    ("queue retry 7", 64, "unknown command: 'queue retry'; did you mean queue dlq retry?"),
    ("mail list", 64, "unknown command: 'mail list'; did you mean mail spool list?"),
    ("completion", 64, "the following arguments are required: shell (see"),
    ("queue add job --strict", 64, "expected either TYPE, or --batch FILE"),
    ("./nowhere", 69, "nowhere: no such folder (spooldeck init ./nowhere makes it)"),
    ("./queue", 69, "./queue: no such folder"),
    ("q.db", 69, "q.db: no such file (spooldeck zgb init q.db makes it)"),
    ("status q.db", 2, "/q.db: no such file (spooldeck zgb init "),
    ("--root nowhere queue count", 69, "nowhere: no such folder"),
    ("--config nowhere.yaml queue count", 78, "nowhere.yaml"),
    ("status --root nowhere", 2, "nowhere"),
    # The place is taken for the place anywhere among the words.
    ("zgb enqueue 7 --type user {place}", 69, "no mail queue"),
    ("zgb enqueue --type user 7 {place}", 69, "no mail queue"),
    ("zgb enqueue 7 {place} --type user", 69, "no mail queue"),
    ("kannader enqueue - --from a@b.c --to d@e.f {place}", 69, "no Kannader spool"),
    ("kannader enqueue - {place} --from a@b.c --to d@e.f --wire", 69, "no Kannader spool"),
    ("edit 7 --due now --dry-run {place}", 69, "no queue"),
    ("--root a queue count --root=b", 64, "--root a and --root b: expected only one of them"),
    ("status --config a --config b", 64, "--config a and --config b: expected only one of them"),
    ("notes nope", 69, "nope: no such folder"),
    ("statuss .", 64, "'statuss'; did you mean status?"),
    ("wait --id ''", 64, "argument --id: expected a value, not an empty text"),
    ("undo nope", 64, "nope: neither an operation (an OP of `spooldeck journal`) nor a"),
    ("trash restore 7-8 --dry-run {place}/", 69, "no queue"),
    # A word too many is not passed over.
    ("zgb enqueue 7 --type user q.db r.db", 64, "unrecognized arguments: r.db"),
    ("zgb enqueue 7 --frob q.db", 64, "unrecognized arguments: --frob; did"),
    ("kannader enqueue - --from a@b.c q", 64, "required: --to"),
    ("hold p --id 7 --reason why q", 64, "unrecognized arguments: q"),
)
"""Words, exit code, and what standard error contains in an empty folder."""

IN_QUEUE = (
    ("queue", 64, "COMMAND"),
    ("queue frob", 64, "unknown command: 'queue frob' (see `spooldeck queue --help`)"),
    ("queue add", 64, "expected either TYPE, or --batch"),
    ("queue add job --batch", 64, "expected either TYPE, or --batch"),
    ("queue add 'Bad Kind'", 64, "task type 'Bad Kind'"),
    (f"queue add report {'x' * 5000}", 64, "5,000 characters: expected at most 4,096"),
    ("queue add mail_send x '/tmp/a$b'", 64, "payload path '/tmp/a$b': expected"),
    ("queue work --concurrency 0", 64, "concurrency"),
    ("queue dlq purge -1", 64, "-1"),
    ("queue dlq purge many", 64, "number of days"),
    ("queue dlq purge nan", 64, "a number of days from 0 to 999999, not"),
    ("queue list --state foo", 64, "expected one of pending, work"),
    ("queue dlq show nothing", 1, "not found in DLQ"),
    ("queue dlq retry ../../etc/passwd", 1, "Task not found in DLQ: ../../etc/passwd\n"),
    ("mail", 64, "COMMAND"),
    ("mail setup", 64, "EMAIL"),
    ("mail test --transport pigeon", 64, "pigeon: expected one of postfix"),
    ("init elsewhere", 64, "elsewhere: expected only one of them"),
    ("status elsewhere", 64, "elsewhere: expected only one of them"),
    ("--frob", 64, "--frob"),
    ("", 64, "spooldeck status"),  # the console, without a terminal
)
"""Words, exit code, and what standard error contains for a queue."""


def test_a_wrong_word_or_place_is_one_line_and_its_code(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """A wrong word, or a missing place, file or command is named with what was expected."""
    place = tmp_path / "place"
    place.mkdir()
    lines = [(f"{words} --root {root}", code, text) for words, code, text in IN_QUEUE]
    lines += [(words.format(place=place), code, text) for words, code, text in NO_QUEUE]
    for words, code, message in lines:
        run = spooldeck(*shlex.split(words))
        assert (run.returncode, run.stdout) == (code, ""), words
        assert message in run.stderr, words
        assert code != 64 or "makes it" not in run.stderr, words
        assert str(place) not in words or str(place) in run.stderr, words
        assert run.stderr.count("\n") == 1, words
    assert tasks_at(root) == []


def test_without_a_queue_it_is_said_how_to_name_one(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """The queue of the settings is missing: no other one of this host is opened for it."""
    run = spooldeck("--config", write_config(root, f"queue: {{root: {tmp_path}/nowhere}}"))
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (69, "", 1)
    assert "no queue to open" in run.stderr


def test_the_last_of_several_ids_is_the_place_if_it_is_a_queue(root: str, spooldeck: Run) -> None:
    """The name of a queue in this folder is the place; a folder with the name of an id is none."""
    parent, name = os.path.split(root)
    Path(parent, "an-id").mkdir()
    place = spooldeck("queue", "dlq", "retry", "x", name, cwd=parent)
    ids = spooldeck("queue", "dlq", "retry", "x", "an-id", "--root", root, cwd=parent)
    missing = "Task not found in DLQ: {}\n"
    assert (place.returncode, place.stderr) == (1, missing.format("x"))
    assert (ids.returncode, ids.stderr) == (1, missing.format("x") + missing.format("an-id"))


@each(
    ("words", "reason"),
    [("zgb", "expected a COMMAND: init"), ("zgb q", "unknown command: 'zgb q'")],
)
def test_a_place_with_the_name_of_a_command_is_opened_by_its_path(
    spooldeck: Run, tmp_path: Path, words: str, reason: str
) -> None:
    """The error of the command says how to open the place, if there is one of this name."""
    hint = "; for the place: spooldeck ./zgb"
    (tmp_path / "zgb").mkdir()
    for cwd, is_named in ((tmp_path, True), (tmp_path / "zgb", False)):
        run = spooldeck(*words.split(), cwd=cwd)
        assert (run.returncode, reason in run.stderr) == (64, True)
        assert (hint in run.stderr) is is_named


HELP = {"help": "--help", "help help": "--help", "help purge": "purge --help"}
HELP |= {"help queue dlq retry": "queue dlq retry --help"}


def test_help_and_version(spooldeck: Run) -> None:
    """`help` prints what `--help` prints; of a command it ends with an example and exit codes."""
    for words, asked in HELP.items():
        run = spooldeck(*words.split())
        assert (run.returncode, run.stdout) == (0, spooldeck(*asked.split()).stdout)
        assert "usage: " in run.stdout
    output = spooldeck("help", "queue", "process-next").stdout
    assert "example: spooldeck queue process-next /srv/queue" in output
    assert "exit codes: 0 done, 1 nothing due, 2 locked, 3 the handler failed, 64 wrong" in output
    assert "    process-next " in spooldeck("queue", "help").stdout
    assert spooldeck("--version").stdout.startswith("spooldeck 0.")


# ---- add and count


def test_add_prints_the_id_of_a_new_task_file(spooldeck: Run, tmp_path: Path) -> None:
    """Missing folders are made with mode 750; a full queue is refused in the contract's words."""
    root = tmp_path / "data"
    root.mkdir()
    words = ("--root", root, "queue", "add")
    added = spooldeck(*words, "feeds_sync", "Feed enabled: spamhaus")
    refused = spooldeck(*words, "report", NFTBAN_QUEUE_MAX_PENDING="1")
    folders = [root / "queue" / word for word in ("pending", "work", "dlq")]
    assert added.stderr.splitlines() == [f"spooldeck: made {path}" for path in folders]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o750}
    ident = added.stdout.strip()
    (task,) = tasks_at(root, "pending")
    assert (task.id, task.kind, task.description) == (ident, "feeds_sync", "Feed enabled: spamhaus")
    assert (folders[0] / f"{ident}.task").is_file()
    assert (refused.returncode, refused.stderr) == (1, "ERROR: Queue full\n")


FRESH = {"queue process-next": 1, "queue count": 0, "queue count-dlq": 0, "queue dlq list": 0}
"""Exit codes of commands of the contract in a data folder without a queue."""


@pytest.mark.parametrize("words", [*FRESH, "queue process-next --timer"])
def test_a_fresh_data_folder_is_an_empty_queue(spooldeck: Run, tmp_path: Path, words: str) -> None:
    """The commands of the contract make its folders; a missing data folder is refused."""
    root = tmp_path / "data"
    missing = spooldeck("--root", root, *words.split())
    assert (missing.returncode, f"{root}: no such folder" in missing.stderr) == (69, True)
    root.mkdir()
    done = spooldeck("--root", root, *words.split())
    assert (done.returncode, done.stdout) == (FRESH.get(words, 0), "0\n" * ("count" in words))
    folders = [root / "queue" / word for word in ("pending", "work", "dlq")]
    assert all(folder.is_dir() for folder in folders)
    assert done.stderr.splitlines()[:3] == [f"spooldeck: made {path}" for path in folders]


def test_a_command_without_a_place_takes_the_first_configured_one(
    spooldeck: Run, tmp_path: Path, root: str
) -> None:
    """Only NFTBAN_DATA_DIR names another queue; mail commands take the first that sends mail."""
    add_task(root)
    nowhere = str(tmp_path / "nowhere")
    config = write_config(root, f"places: [{root}, {tmp_path}/other]")
    for words in ("status", "groups", "doctor", "queue list", "notes"):
        named = spooldeck("--config", config, *words.split(), root)
        taken = spooldeck("--config", config, *words.split())
        theirs = spooldeck("--config", config, *words.split(), NFTBAN_DATA_DIR=nowhere)
        assert taken.returncode == named.returncode, words
        assert len(taken.stdout) == len(named.stdout), words
        assert nowhere in theirs.stderr + theirs.stdout, words
    config = write_config(root, f"places: ['redis://127.0.0.1:1/0', {root}]")
    ended = spooldeck("--config", config, "mail", "status")
    assert ended.stdout == spooldeck("mail", "status", "--root", root).stdout


def test_a_queue_root_beside_the_places_is_refused(spooldeck: Run, tmp_path: Path) -> None:
    """Without a place in the command one line names it, and no folder is made."""
    one, two, config = tmp_path / "q1", tmp_path / "q2", tmp_path / "c.yaml"
    one.mkdir()
    two.mkdir()
    commands = ("queue count", "queue dlq list", "status", "overview")
    config.write_text(f"queue: {{root: {one}}}\nplaces: [{two}]\n")
    for words in commands:
        refused = spooldeck("--config", config, *words.split())
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (78, "", 1)
        assert f"queue.root: {one} is not among `places`" in refused.stderr
    assert [*one.iterdir(), *two.iterdir()] == []
    assert spooldeck("--config", config, "queue", "count", two).returncode == 0
    config.write_text(f"queue: {{root: {one}}}\nplaces: [{two}, {one}/]\n")
    for words in commands:
        assert spooldeck("--config", config, *words.split()).returncode != 78, words


def test_files_have_their_modes_under_any_umask(spooldeck: Run, root: str) -> None:
    """With umask 077 the group can read tasks and logs, and node_exporter the metrics."""
    config, before = write_config(root, TRUE), os.umask(0o077)
    try:
        for words in ("queue add report", "queue add report", "queue process-next"):
            assert spooldeck("--config", config, "--root", root, *words.split()).returncode == 0
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in Path(root).rglob("*")}
    (task,) = (mode for name, mode in modes.items() if name.endswith(".task"))
    assert (task, modes["queue.log"], modes["queue.prom"]) == (0o640, 0o640, 0o644)
    assert {name: oct(mode) for name, mode in modes.items() if mode < 0o640} == {}


def test_a_task_with_the_required_fields_only_runs_after_seconds(spooldeck: Run, root: str) -> None:
    """Its last, optional field may still be written for five seconds: until then a line says so."""
    ident = "20261120T094115Z-report-0a0a0a0a"
    path = Path(root, "queue", "pending", f"{ident}.task")
    fields = {"ID": ident, "TYPE": "report", "DESCRIPTION": "x", "CREATED_EPOCH": "1795239223"}
    path.write_text("".join(f'TASK_{key}="{value}"\n' for key, value in fields.items()))
    words = ("--config", write_config(root, TRUE), "queue", "process-next", root)
    early = spooldeck(*words)
    os.utime(path, (time.time() - 6, time.time() - 6))
    assert (early.returncode, spooldeck(*words).returncode) == (1, 0)
    assert "nothing eligible: 1 task may still be being written; next task due " in early.stderr


def test_a_linked_queue_folder_is_refused_by_every_command(
    spooldeck: Run, tmp_path: Path, root: str
) -> None:
    """Each names the link in the same words; a linked data folder is followed."""
    Path(root, "queue").rename(tmp_path / "disk2")
    Path(root, "queue").symlink_to(tmp_path / "disk2")
    line = f"{root}/queue: {files.LINKED_FOLDER}"
    for words in ("queue process-next", "queue list", "queue add report", "queue count"):
        refused = spooldeck("--root", root, *words.split())
        assert (refused.returncode, refused.stderr.count("\n")) == (69, 1), refused.stderr
        assert refused.stderr == f"spooldeck: {line}\n"
    config = write_config(root, "mail: {sender: a@example.com, method: curl}")
    mailed = spooldeck("--config", config, "--root", root, "mail", "send", "x", "b@example.com")
    assert mailed.stderr.endswith(f": suspended transports cannot be read: {line}\n")
    lines = spooldeck("--config", config, "--root", root, "doctor").stdout.splitlines()
    assert f"bad   mail      {line}" in lines
    Path(root, "queue").unlink()
    (tmp_path / "disk2").rename(Path(root, "queue"))
    (tmp_path / "link").symlink_to(root)
    assert spooldeck("--root", tmp_path / "link", "queue", "process-next").returncode == 1


def test_files_that_are_no_tasks_are_problems_and_not_counted(root: str, spooldeck: Run) -> None:
    """`count` counts plain task files; `status` and `dlq list` name all others."""
    add_task(root)
    pending = Path(root, "queue", "pending")
    os.mkfifo(pending / "fifo.task")
    (pending / "folder.task").mkdir()
    (pending / "link.task").symlink_to("/etc/hostname")
    Path(root, "queue", "dlq", "junk.task").write_text("junk")
    counted = spooldeck("--root", root, "queue", "count")
    listed = spooldeck("--root", root, "queue", "dlq", "list")
    status = json.loads(spooldeck("status", root, "--json").stdout)
    assert (counted.stdout, listed.stdout) == ("1\n", "")
    assert "dlq/junk.task: no newline at its end" in listed.stderr
    assert (status["tasks"]["pending"], len(status["problems"])) == (1, 4)


# ---- the worker

RETRIED = "{id} (report) failed: out of paper; back in pending, attempt 1/4, retry in 60s"
FALSE_ONCE = FALSE.replace("command:", "retry: fixed 5s limit 1, command:")
NO_HANDLER = "nothing eligible: no handler configured for feeds_sync"


@pytest.mark.parametrize(
    ("kind", "settings", "code", "message"),
    [
        ("report", TRUE, 0, ""),
        ("report", FALSE, 3, RETRIED),
        ("report", FALSE_ONCE, 3, RETRIED.replace("1/4, retry in 60s", "1/2, retry in 5s")),
        ("", TRUE, 1, "nothing eligible: no pending tasks"),
        ("feeds_sync", "{}", 1, NO_HANDLER),
    ],
    ids=["done", "failed", "retry of the kind", "empty", "no handler"],
)
def test_process_next_ends_with_the_contracts_codes(
    root: str, spooldeck: Run, kind: str, settings: str, code: int, message: str
) -> None:
    """Code 0 for a task that is done, 3 for one that failed, 1 where none is eligible, and why."""
    ident = add_task(root, kind).id if kind else ""
    run = spooldeck(*in_queue(root, settings), "process-next")
    assert run.returncode == code, run.stderr
    assert run.stderr.startswith(f"spooldeck: {message.format(id=ident)}" if message else "")
    assert run.stderr.count("\n") == bool(message)
    left = [(task.error, task.attempts) for task in tasks_at(root, "pending")]
    assert left == {0: [], 3: [("out of paper", 1)], 1: [("", 0)] * bool(kind)}[code]


def test_work_until_idle_reports_and_counts(root: str, spooldeck: Run) -> None:
    """It ends with 0 and writes its metrics; without a token a task waits."""
    for _ in range(5):
        add_task(root)
    run = spooldeck(*in_queue(root, TRUE), "work", "--until-idle", "--concurrency", "3")
    assert run.returncode == 0
    assert "5 done, 0 failed" in run.stderr
    assert tasks_at(root, "pending", "work") == []
    assert "nftban_queue_tasks_processed_total 5" in Path(root, "metrics", "queue.prom").read_text()
    settings = "handlers: {report: {command: ['true'], rate: {per_hour: 1, burst: 1}}}"
    for _ in range(2):
        add_task(root)
    first, second = (spooldeck(*in_queue(root, settings), "process-next") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 1)
    assert "no token for report; next token 20" in second.stderr
    assert len(tasks_at(root, "pending")) == 1


def test_the_metrics_of_a_place_have_its_label(spooldeck: Run, root: str) -> None:
    """With `place_label` each sample has the label, the JSON the names alone."""
    settings = f"queue: {{root: {root}, place_label: out}}\n{TRUE.replace('report', 't')}"
    named = ("--config", write_config(root, settings))
    spooldeck(*named, "queue", "add", "t", "one")
    spooldeck(*named, "queue", "process-next")
    text = Path(root, "metrics", "queue.prom").read_text()
    assert 'nftban_queue_tasks_processed_total{place="out"} 1\n' in text
    shown = spooldeck(*named, "queue", "metrics").stdout
    assert 'nftban_queue_tasks_pending{place="out"} 0' in shown
    values = json.loads(spooldeck(*named, "queue", "metrics", "--json").stdout)["metrics"]
    assert values["nftban_queue_tasks_processed_total"] == 1


def test_an_interrupted_worker_finishes_its_task_under_its_lock(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """Also after Ctrl-C another worker ends with 2 and names the PID."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    settings = f"handlers: {{report: {{command: [sh, -c, 'read x < {gate}']}}}}"
    place_options = in_queue(root, settings)
    spooldeck(*place_options, "add", "report")
    first: command.Popen[str] = command.Popen(
        [*place_options, "process-next"], env=clean_environment(tmp_path), stderr=subprocess.DEVNULL
    )
    opened = os.open(gate, os.O_RDWR)  # for both ways, so that it never blocks
    log = Path(root, "log")
    with closing(FolderEventSource([str(log)])) as events:
        while "Executing" not in (log / "queue.log").read_text() and first.poll() is None:
            events.wait(0.1)

    before = spooldeck(*place_options, "process-next")
    first.send_signal(signal.SIGINT)
    after = spooldeck(*place_options, "work", "--until-idle")
    os.write(opened, b"go\n")
    first.wait(30)
    os.close(opened)

    assert (before.returncode, after.returncode, first.returncode) == (2, 2, 0)
    assert f"lock held: PID {first.pid} is running" in before.stderr
    assert tasks_at(root) == []
    assert not Path(root, "run", "queue.lock").exists()


# ---- the dead-letter queue


def test_dead_tasks_are_listed_shown_retried_and_purged(root: str, spooldeck: Run) -> None:
    """The dead-letter commands print ids, task files and counts; a dry run changes nothing."""
    first, second = bury_one(root), bury_one(root)
    place_options = ("--root", root, "queue", "dlq")
    listed = spooldeck(*place_options, "list").stdout.splitlines()
    shown = spooldeck(*place_options, "show", first.id)
    retried = spooldeck(*place_options, "retry", first.id)
    purged, retried_all = (
        spooldeck(*place_options, *words.split(), "--dry-run").stdout
        for words in ("purge 0", "retry-all")
    )
    dead = [task.id for task in tasks_at(root, "dlq")]
    (back,) = tasks_at(root, "pending")
    rest = spooldeck(*place_options, "retry-all")
    assert [line.split(" | ")[0] for line in listed] == sorted([first.id, second.id])
    assert 'TASK_DLQ_REASON="max_retries_exceeded"' in shown.stdout
    assert retried.stdout == f"Task {first.id} moved from DLQ to pending queue\n"
    assert "nothing was changed" in purged and second.id in retried_all
    assert dead == [second.id]
    assert (back.id, back.attempts, back.error, back.due) == (first.id, 0, "", 0.0)
    assert (rest.returncode, tasks_at(root, "dlq")) == (0, [])


# ---- status


PENDING = "queue/pending"


def status_of(root: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """What runs `status` of a queue, or of a folder below it: exit code, output and errors."""

    def status(*words: str, below: str = "") -> tuple[int, str, str]:
        capsys.readouterr()
        return (cli.main(["status", f"{root}{below}", *words]), *capsys.readouterr())

    return status


def test_status_of_a_quiet_queue(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 0 where nothing is wrong, 2 where nothing can be read, 1 with a full disk."""
    status = status_of(root, capsys)
    dead = bury_one(root)
    with store_at(root) as store:
        store.swap(dead, verbs.purge(dead, 0))
    code, out, _ = status()
    assert (code, "nothing needs attention" in out) == (0, True)
    counts = {"pending": 0, "work": 0, "held": 0, "dlq": 0, "trash": 1}
    assert json.loads(status("--json")[1])["tasks"] == counts
    code, _, err = status(below="/nothing")
    assert (code, err.count("\n")) == (2, 1)
    full = os.statvfs_result((4096, 4096, 9000, 0, 0, 900, 500, 500, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    code, out, _ = status()
    assert code == 1
    assert re.search("attention disk full: /.* 36.9 of 36.9 MB", out)


def test_status_of_many_tasks_reads_a_sample(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts are exact, what was read is said, and with --exact all are read."""
    status = status_of(root, capsys)
    for age in range(260):
        add_task(root, "feeds_sync", time.time() - 60 * age)
    bury_one(root)
    whole = json.loads(status("--json")[1])
    monkeypatch.setattr("tui.cli.queue.status.MAX_READ_TASKS", 250)
    monkeypatch.setattr("tui.cli.queue.status.ORDERED_SAMPLE_TASKS", 5)
    answer = json.loads(status("--json")[1])
    assert answer["tasks"] == whole["tasks"] and answer["tasks"]["pending"] == 260
    assert whole["sampled"] is None and 200 < answer["sampled"] < 261
    assert answer["mail"]["without_task"] is None
    assert answer["oldest_pending_age"] == pytest.approx(whole["oldest_pending_age"], abs=60)
    assert f"sampled   {answer['sampled']} of 261 tasks read" in status()[1]
    assert "sampled" not in status("--exact")[1]


def _copy_a_task(root: str) -> None:
    file = Path(root, "queue", "dlq", f"{bury_one(root).id}.task")
    Path(root, "queue", "pending", file.name).write_bytes(file.read_bytes())


def _add_and_run(root: str, kind: str) -> None:
    """Though a worker runs now, the task stays: no handler or transport is set up for it."""
    add_task(root, kind, time.time() - 43 * 60)
    cli.main(["--root", root, "queue", "process-next"])


def _open_tasks_to_all(root: str) -> None:
    for task in (add_task(root), add_task(root)):
        Path(root, "queue", "pending", f"{task.id}.task").chmod(0o666)


NOTED: dict[str, Callable[[str], object]] = {
    ".task: is in pending and dlq at the same time": _copy_a_task,
    "attention no task can be changed or run: ": lambda root: Path(root, PENDING).chmod(0o777),
    ".task and 1 more: is writable by all users, expected mode 640": _open_tasks_to_all,
    "1 feeds_sync due for 43m: no handler": lambda root: _add_and_run(root, "feeds_sync"),
    "1 mail_send due for 43m: no transport": lambda root: _add_and_run(root, "mail_send"),
}


@pytest.mark.parametrize("alert", NOTED)
def test_status_ends_with_1_where_something_needs_attention(
    root: str, spooldeck: Run, alert: str
) -> None:
    """Each problem and each warning is a line of its own."""
    NOTED[alert](root)
    status = spooldeck("status", root)
    assert status.returncode == 1
    assert alert in status.stdout
    assert " due " not in alert or f"attention {alert}: see `doctor`\n" in status.stdout


# ---- init


def test_init_makes_what_is_missing_and_leaves_the_rest(spooldeck: Run, tmp_path: Path) -> None:
    """--exclusive puts due times into file times, never in NFTBan's own data folder."""
    root = tmp_path / "new"
    due = time.time() + 3600

    def written(token: str) -> float:
        task = verbs.enqueue("report", time.time(), token)._replace(due=due)
        with store_at(root) as store:
            store.swap(None, task)
        return (root / f"queue/pending/{task.id}.task").stat().st_mtime

    first, second = spooldeck("init", root), spooldeck("init", root)
    modes = {oct((root / "queue" / word).stat().st_mode & 0o777) for word in ("pending", "dlq")}
    assert "made" in first.stdout
    assert "nothing was changed" in second.stdout
    assert (modes, tasks_at(root)) == ({"0o750"}, [])

    shared = written("0000000a")
    marked = spooldeck("init", root, "--exclusive").stdout
    assert f"made {root}/queue/.spooldeck/exclusive" in marked
    assert shared < due - 1800 < written("0000000b")

    (tmp_path / "nftban.conf").write_text(f'NFTBAN_DATA_DIR="{tmp_path}"\n')
    run = spooldeck("init", tmp_path, "--exclusive", NFTBAN_CONFIG_DIR=str(tmp_path))
    assert run.returncode == 64
    assert "is NFTBan's own data folder: --exclusive is for a queue" in run.stderr
    assert not (tmp_path / "queue").exists()


# ---- outputs that cannot be written


def test_an_answer_that_cannot_be_written(root: str) -> None:
    """On a full disk a read is 74; a task that was added is 4, with its id."""
    with Path("/dev/full").open("w") as full:

        def into_full(*words: str) -> subprocess.CompletedProcess[str]:
            argv = ["--root", root, "queue", *words]
            return command.run(argv, stdout=full, stderr=subprocess.PIPE, text=True)

        counted, added = into_full("count"), into_full("add", "report")
        silent = command.run(["--root", f"{root}2", "queue", "count"], stderr=full)
    (task,) = tasks_at(root, "pending")
    assert (counted.returncode, added.returncode, silent.returncode) == (74, 4, 69)
    assert counted.stderr.count("\n") == 1 and "No space left" in counted.stderr
    assert added.stderr.startswith("spooldeck: done, but cannot write the output: No space")
    assert added.stderr.endswith(f": {task.id}\n")


def test_a_closed_pipe_is_no_error(root: str) -> None:
    """A command whose reader has enough, such as head, does its work and ends with its own code."""
    task = add_task(root, "job", 0.0)
    reads = ("queue list", "queue list --json", "log", "queue metrics", "--help", "queue add job")
    for words in (*reads, "status", f"purge --id {task.id} --apply 1"):
        reading, writing = os.pipe()
        os.close(reading)
        argv = ["--root", root, *words.split()]
        run = command.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
        assert run.returncode == (words == "status"), words
        assert "roken" not in run.stderr and "Trace" not in run.stderr, words
    assert (len(tasks_at(root, "pending")), len(tasks_at(root, "trash"))) == (1, 1)


EACH_CLOSED = [pytest.param(one, marks=pytest.mark.deep) for one in ("<&-", ">&-", "2>&-")]


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", *EACH_CLOSED])
def test_closed_standard_streams_are_opened_on_nothing(root: str, closed: str) -> None:
    """No file of the queue gets the number of a standard stream."""
    command = f"{sys.executable} -m tui.cli --root {root} queue"
    line = f"{command} add job {closed}; echo $?; {command} process-next {closed}; echo $?"
    run = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60)
    (task,) = tasks_at(root, "pending")
    assert run.stdout.split()[-2:] == ["4" if ">&-" in closed.split() else "0", "3"]
    assert task.error == "Unknown task type: job"


def test_the_places_of_the_environment_are_used_unless_one_is_named(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """Also instead of those of the file; a missing one is shown."""
    other = str(tmp_path / "other")
    assert spooldeck("init", other).returncode == 0
    add_task(other)
    config = write_config(root, f"places: [{root}]")
    environ = {"SPOOLDECK_PLACES": f"{other} {tmp_path}/missing"}
    count = spooldeck("--config", config, "queue", "count", **environ)
    named = spooldeck("--config", config, "queue", "count", root, **environ)
    overview = spooldeck("--config", config, "overview", **environ)
    assert (count.stdout, named.stdout, overview.returncode) == ("1\n", "0\n", 2)
    assert "missing" in overview.stdout


def test_a_password_of_the_environment_is_in_no_output(spooldeck: Run) -> None:
    """Neither of a check nor of an error; no file is said to have it."""
    url = "redis://:not-for-eyes@localhost:1/0"
    for words in (("doctor",), ("status",), ("overview",), ("doctor", "--json")):
        run = spooldeck(*words, SPOOLDECK_PLACES=url)
        assert "localhost:1" in run.stdout + run.stderr
        assert "not-for-eyes" not in run.stdout + run.stderr
        assert "contains a password" not in run.stdout
