"""The command line: what each common command prints, and the exit code it ends with."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.inotify import Ear
from tests import command
from tests.tui.queues import (
    Run,
    add_task,
    bury_one,
    clean_environment,
    root,
    spooldeck,
    store_at,
    tasks_at,
    write_config,
)
from tui import cli

__all__ = ["Run", "root", "spooldeck"]

TRUE = "handlers: {report: {command: ['true']}}"
FALSE = "handlers: {report: {command: [sh, -c, 'echo out of paper; exit 1']}}"


def in_queue(root: str, settings: str = "{}") -> tuple[str, ...]:
    """The words before those of a `queue` command."""
    return ("--config", write_config(root, settings), "--root", root, "queue")


# ---- add and count


def test_add_prints_the_id_of_a_new_task_file(root: str, spooldeck: Run) -> None:
    """`queue add` prints the name of the task file that it made."""
    added = spooldeck("--root", root, "queue", "add", "feeds_sync", "Feed enabled: spamhaus")

    ident = added.stdout.strip()
    (task,) = tasks_at(root, "pending")
    assert (added.returncode, added.stderr) == (0, "")
    assert (task.id, task.kind, task.description) == (ident, "feeds_sync", "Feed enabled: spamhaus")
    assert Path(root, "queue", "pending", f"{ident}.task").is_file()


def test_add_makes_the_folders_of_a_fresh_data_folder(tmp_path: Path, spooldeck: Run) -> None:
    """Folders get mode 750 and a line each on standard error; on standard output is only the id."""
    root = tmp_path / "data"
    root.mkdir()

    added = spooldeck("--root", root, "queue", "add", "report")

    folders = [root / "queue" / word for word in ("pending", "work", "dlq")]
    assert added.stderr.splitlines() == [f"spooldeck: made {path}" for path in folders]
    assert [task.id for task in tasks_at(root, "pending")] == [added.stdout.strip()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o750}


@pytest.mark.parametrize("where", ["queue", "queue/dlq"])
def test_add_makes_no_folder_through_a_symbolic_link(
    tmp_path: Path, spooldeck: Run, where: str
) -> None:
    """A link below the data folder is refused, and nothing is made in its target."""
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    (root / where).parent.mkdir(parents=True)
    (root / where).symlink_to(elsewhere)
    if where == "queue":
        elsewhere.mkdir()  # the other one is a link to nothing

    added = spooldeck("--root", root, "queue", "add", "report")

    assert added.returncode == 69
    assert "is a symbolic link or no folder, and not entered" in added.stderr
    assert not elsewhere.exists() or not list(elsewhere.iterdir())


def test_the_place_is_written_before_or_after_the_command(root: str, spooldeck: Run) -> None:
    """`--root` counts anywhere among the words, and may be the queue folder in the data folder."""
    add_task(root)

    for words in (
        ("--root", root, "queue", "count"),
        ("queue", "--root", root, "count"),
        ("queue", "count", "--root", f"{root}/queue"),
    ):
        assert spooldeck(*words).stdout == "1\n"


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

    assert counted.stdout == "1\n"
    assert listed.stdout == ""
    assert "dlq/junk.task: no newline at its end" in listed.stderr
    assert (status["tasks"]["pending"], len(status["problems"])) == (1, 4)


# ---- the worker


@pytest.mark.parametrize(
    ("kind", "settings", "code", "said"),
    [
        ("report", TRUE, 0, ""),
        (
            "report",
            FALSE,
            3,
            "{id} (report) failed: out of paper; back in pending, attempt 1/4, retry in 60s",
        ),
        ("", TRUE, 1, "nothing eligible: nothing is waiting"),
        ("feeds_sync", "{}", 1, "nothing eligible: no handler configured for feeds_sync"),
    ],
    ids=["done", "failed", "empty", "no handler"],
)
def test_process_next_ends_with_the_contracts_codes(
    root: str, spooldeck: Run, kind: str, settings: str, code: int, said: str
) -> None:
    """Code 0 for a task that is done, 3 for one that failed, 1 where none is eligible, and why."""
    ident = add_task(root, kind).id if kind else ""

    run = spooldeck(*in_queue(root, settings), "process-next")

    assert run.returncode == code, run.stderr
    assert run.stderr.startswith(f"spooldeck: {said.format(id=ident)}" if said else "")
    assert run.stderr.count("\n") == bool(said)
    left = [(task.error, task.attempts) for task in tasks_at(root, "pending")]
    assert left == {0: [], 3: [("out of paper", 1)], 1: [("", 0)] * bool(kind)}[code]


def test_without_tokens_nothing_is_eligible_until_the_next_one(root: str, spooldeck: Run) -> None:
    """An empty bucket is exit 1 with the time of the next token, and the task waits."""
    settings = "handlers: {report: {command: ['true'], rate: {per_hour: 1, burst: 1}}}"
    for _ in range(2):
        add_task(root)

    first, second = (spooldeck(*in_queue(root, settings), "process-next") for _ in range(2))

    assert (first.returncode, second.returncode) == (0, 1)
    assert "no token for report; next token 20" in second.stderr
    assert len(tasks_at(root, "pending")) == 1


def test_an_interrupted_worker_ends_after_its_task_and_keeps_its_lock_until_then(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """While a handler runs, also after Ctrl-C, another worker ends with 2, names the PID and takes
    nothing.
    """
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    here = in_queue(root, f"handlers: {{report: {{command: [sh, -c, 'read x < {gate}']}}}}")
    spooldeck(*here, "add", "report")
    first: command.Popen[str] = command.Popen(
        [*here, "process-next"], env=clean_environment(tmp_path), stderr=subprocess.DEVNULL
    )
    opened = os.open(gate, os.O_RDWR)  # for both ways, so that it never blocks
    log = Path(root, "log")
    with closing(Ear([str(log)])) as ear:
        while "Executing" not in (log / "queue.log").read_text() and first.poll() is None:
            ear.wait(0.1)
            ear.hear()

    before = spooldeck(*here, "process-next")
    first.send_signal(signal.SIGINT)
    after = spooldeck(*here, "work", "--until-idle")
    os.write(opened, b"go\n")
    first.wait(30)
    os.close(opened)

    assert (before.returncode, after.returncode, first.returncode) == (2, 2, 0)
    assert f"lock held: PID {first.pid} is at work" in before.stderr
    assert tasks_at(root) == []
    assert not Path(root, "run", "queue.lock").exists()


def test_work_until_idle_reports_and_counts_what_it_did(root: str, spooldeck: Run) -> None:
    """`work --until-idle` ends with 0 when nothing due is left, and writes its metrics."""
    for _ in range(5):
        add_task(root)

    run = spooldeck(*in_queue(root, TRUE), "work", "--until-idle", "--concurrency", "3")

    assert run.returncode == 0
    assert "5 done, 0 failed" in run.stderr
    assert tasks_at(root, "pending", "work") == []
    assert "nftban_queue_tasks_processed_total 5" in Path(root, "metrics", "queue.prom").read_text()


# ---- the dead-letter queue


def test_the_dead_are_listed_shown_retried_and_purged(root: str, spooldeck: Run) -> None:
    """The dead-letter commands print ids, task files and counts; a dry run changes nothing."""
    first, second = bury_one(root), bury_one(root)
    here = ("--root", root, "queue", "dlq")

    listed = spooldeck(*here, "list")
    shown = spooldeck(*here, "show", first.id)
    retried = spooldeck(*here, "retry", first.id)
    dry = [spooldeck(*here, *words, "--dry-run") for words in (("purge", "0"), ("retry-all",))]
    dead = [task.id for task in tasks_at(root, "dlq")]
    (back,) = tasks_at(root, "pending")
    rest = spooldeck(*here, "retry-all")

    assert [line.split(" | ")[0] for line in listed.stdout.splitlines()] == sorted(
        [first.id, second.id]
    )
    assert 'TASK_DLQ_REASON="max_retries_exceeded"' in shown.stdout
    assert retried.stdout == f"Task {first.id} moved from DLQ to pending queue\n"
    assert "nothing was changed" in dry[0].stdout
    assert second.id in dry[1].stdout
    assert dead == [second.id]
    assert (back.id, back.attempts, back.error, back.due) == (first.id, 0, "", 0.0)
    assert (rest.returncode, tasks_at(root, "dlq")) == (0, [])


# ---- status


def test_status_ends_with_0_where_all_is_well_and_2_where_nothing_can_be_read(
    root: str, spooldeck: Run
) -> None:
    """Held and purged tasks are counted too, so that none is out of sight."""
    dead = bury_one(root)
    with store_at(root) as store:
        store.swap(dead, verbs.purge(dead, 0))

    well = spooldeck("status", root)
    counts = json.loads(spooldeck("status", root, "--json").stdout)["tasks"]
    nowhere = spooldeck("status", f"{root}/nothing")

    assert (well.returncode, nowhere.returncode) == (0, 2)
    assert "nothing needs attention" in well.stdout
    assert counts == {"pending": 0, "work": 0, "held": 0, "dlq": 0, "trash": 1}
    assert nowhere.stderr.count("\n") == 1


def _break_a_file(root: str) -> None:
    Path(root, "queue", "pending", "broken.task").write_text("TASK_ID=$(id)\n")


def _copy_a_task(root: str) -> None:
    file = Path(root, "queue", "dlq", f"{bury_one(root).id}.task")
    Path(root, "queue", "pending", file.name).write_bytes(file.read_bytes())


def _bury_eleven(root: str) -> None:
    for _ in range(11):
        bury_one(root)


def _add_and_run(root: str, kind: str) -> None:
    """Though a worker runs now, the task stays: nothing is set up for it."""
    add_task(root, kind, time.time() - 43 * 60)
    cli.main(["--root", root, "queue", "process-next"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_break_a_file, "problem   pending/broken.task: "),
        (_copy_a_task, ".task: stands in pending and dlq at once"),
        (_bury_eleven, "11 tasks in the dead-letter queue"),
        (
            lambda root: _add_and_run(root, "feeds_sync"),
            "attention 1 feeds_sync due for 43m: no handler: see `doctor`\n",
        ),
        (
            lambda root: _add_and_run(root, "mail_send"),
            "attention 1 mail_send due for 43m: no transport: see `doctor`\n",
        ),
    ],
    ids=["broken", "twice", "dead", "no handler", "no transport"],
)
def test_status_ends_with_1_where_something_needs_attention(
    root: str, spooldeck: Run, make: Callable[[str], None], said: str
) -> None:
    """Each problem and each warning is a line of its own."""
    make(root)

    status = spooldeck("status", root)

    assert status.returncode == 1
    assert said in status.stdout


def test_status_wants_attention_for_a_full_disk(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without room for more tasks nothing can be changed safely."""
    full = os.statvfs_result((4096, 4096, 9000, 0, 0, 900, 500, 500, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)

    code = cli.main(["status", root])

    assert code == 1
    assert "attention disk full: room for no task: see `doctor`" in capsys.readouterr().out


# ---- words that mean nothing, and places that are not there

WRONG_WORDS = (
    ("queue", 64, "COMMAND"),
    ("queue frob", 64, "invalid choice"),
    ("queue add", 64, "TYPE"),
    ("queue add 'Bad Kind'", 64, "task type 'Bad Kind'"),
    (f"queue add report {'x' * 5000}", 64, "5,000 characters: expected at most 4,096"),
    ("queue add mail_send x '/tmp/a$b'", 64, "payload path '/tmp/a$b': expected"),
    ("queue work --concurrency 0", 64, "concurrency"),
    ("queue dlq purge -1", 64, "-1"),
    ("queue dlq purge many", 64, "number of days"),
    ("queue dlq purge nan", 64, "a number of days from 0 to 999999, not"),
    ("queue dlq purge 99999999999999", 64, "a number of days from 0 to 999999, not"),
    ("queue list --state foo", 64, "expected one of pending, work"),
    ("queue dlq show nothing", 1, "not found in DLQ"),
    ("queue dlq retry ../../etc/passwd", 1, "Task not found in DLQ: ../../etc/passwd\n"),
    ("mail", 64, "COMMAND"),
    ("mail send", 64, "CONTENT"),
    ("mail setup", 64, "EMAIL"),
    ("mail spool", 64, "COMMAND"),
    ("mail suspend pigeon", 64, "pigeon: expected one of postfix"),
    ("mail test --transport pigeon", 64, "pigeon: expected one of postfix"),
    ("init elsewhere", 64, "elsewhere: expected only one of them"),
    ("status elsewhere", 64, "elsewhere: expected only one of them"),
    ("--frob", 64, "--frob"),
    ("", 64, "spooldeck status"),  # the console, without a terminal
)
"""Words, exit code, and what is said of them."""


def test_a_wrong_word_is_one_line_and_its_code(root: str, spooldeck: Run) -> None:
    """What was not understood is one line with what was expected, never a traceback."""
    for words, code, said in WRONG_WORDS:
        run = spooldeck(*shlex.split(words), "--root", root)

        assert (run.returncode, run.stdout) == (code, ""), words
        assert said in run.stderr, words
        assert run.stderr.count("\n") == 1, words

    assert tasks_at(root) == []


def test_a_full_queue_takes_no_task(root: str, spooldeck: Run) -> None:
    """Above the most that may be pending, `add` ends with 1 and the contract's words."""
    add_task(root)

    refused = spooldeck("--root", root, "queue", "add", "report", NFTBAN_QUEUE_MAX_PENDING="1")

    assert (refused.returncode, refused.stderr) == (1, "ERROR: Queue full\n")
    assert len(tasks_at(root)) == 1


MISSING = (
    ("", 69, "nothing to open"),
    ("nowhere", 64, "no such command or place: 'nowhere' (see `spooldeck --help`)"),
    ("staus --json", 64, "no such command or place: 'staus'; did you mean status or trash?"),
    ("queue lst", 64, "; did you mean list? (see `spooldeck queue --help`)"),
    ("help qeueu", 64, "no such command or place: 'qeueu'; did you mean queue?"),
    ("./nowhere", 69, "nowhere: no such folder (spooldeck init ./nowhere makes it)"),
    ("./queue", 69, "./queue: no such folder"),
    ("q.db", 69, "q.db: no such file (spooldeck zgb init q.db makes it)"),
    ("status q.db", 2, "/q.db: no such file (spooldeck zgb init "),
    ("--root nowhere queue count", 69, "nowhere: no queue, expected"),
    ("--config nowhere.yaml queue count", 78, "nowhere.yaml"),
    ("status --root nowhere", 2, "nowhere"),
    # The place is taken for the place anywhere among the words.
    ("zgb enqueue 7 --type user {place}", 69, "no mail queue"),
    ("zgb enqueue --type user 7 {place}", 69, "no mail queue"),
    ("zgb enqueue 7 {place} --type user", 69, "no mail queue"),
    ("kannader enqueue - --from a@b.c --to d@e.f {place}", 69, "no Kannader spool"),
    ("kannader enqueue - {place} --from a@b.c --to d@e.f --wire", 69, "no Kannader spool"),
    ("edit 7 --due now --dry-run {place}", 69, "no queue"),
    ("trash restore 7-8 --dry-run {place}/", 69, "no queue"),
    # A word too many is not passed over.
    ("zgb enqueue 7 --type user q.db r.db", 64, "unrecognized arguments: r.db"),
    ("zgb enqueue 7 --frob q.db", 64, "unrecognized arguments: --frob q.db"),
    ("kannader enqueue - --from a@b.c q", 64, "required: --to"),
    ("hold p --id 7 --reason why q", 64, "unrecognized arguments: q"),
)
"""Words, exit code, and what is said of them in an empty folder."""


def test_a_place_that_is_not_there_is_one_line(tmp_path: Path, spooldeck: Run) -> None:
    """A missing place, file or command is named, with what was expected."""
    place = tmp_path / "place"
    place.mkdir()

    for words, code, said in MISSING:
        run = spooldeck(*words.format(place=place).split())

        assert (run.returncode, run.stdout) == (code, ""), words
        assert said in run.stderr, words
        assert ("{place}" in words) <= (f"{place}" in run.stderr), words
        assert run.stderr.count("\n") == 1, words


COMMANDS = [" ".join(word.path) for word in cli._WORDS if word.where and word.path != ("console",)]


def test_every_command_refuses_an_option_that_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each command it is exit 64 and one line, and no file is made."""
    monkeypatch.chdir(tmp_path)

    for words in COMMANDS:
        code = cli.main([*words.split(), "--frob"])
        said = capsys.readouterr()
        assert (code, said.out, said.err.count("\n")) == (64, "", 1), words
        assert "--frob" in said.err or "required: " in said.err, words

    assert list(tmp_path.iterdir()) == []


AS_JSON = [word for word in cli._WORDS if ("--json",) in (names for names, _ in word.arguments)]


def test_every_answer_for_programs_is_json(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command with --json prints an object a line, and no control character of a task."""
    bury_one(root, description="second")
    purged = Path(root, "queue", "dlq", f"{bury_one(root).id}.task")
    purged.write_text(purged.read_text().replace('"report"', '"\x1b[2J\u202e\\"', 1))
    cli.main(["--root", root, "purge", "--filter", "second", "--apply", "1"])
    task = add_task(root)
    cli.main(["--root", root, "note", task.id, "\x1b]0;x\x07 a note"])
    (trashed, *_) = tasks_at(root, "trash")
    capsys.readouterr()
    printed: dict[str, list[Any]] = {}
    more = {"expunge": ["--state", "dlq"], "trash restore": [trashed.id]}

    for word in AS_JSON:
        name = " ".join(word.path)
        acts = any("--dry-run" in names for names, _ in word.arguments)
        acts = acts and name not in ("control", "journal", "undo")
        dry = ["--dry-run"] if acts else []
        code = cli.main([*word.path, *more.get(name, []), "--json", *dry, "--root", root])
        said = capsys.readouterr()
        assert code in (0, 1), (name, said)
        printed[name] = [json.loads(line) for line in said.out.splitlines()]
        assert all(isinstance(one, dict) for one in printed[name])
        assert said.out.replace("\n", "").isprintable(), name

    assert len(printed) > 15
    rows = {(row["state"], row["id"]) for row in printed["queue list"]}
    assert rows == {("pending", task.id), ("trash", trashed.id)}


HELP = {"help": "--help", "help help": "--help", "help purge": "purge --help"}
HELP |= {"help queue dlq retry": "queue dlq retry --help"}


def test_help_and_version(spooldeck: Run) -> None:
    """`help` prints what `--help` prints, of all commands or of one; `--version` prints both."""
    for words, asked in HELP.items():
        run = spooldeck(*words.split())
        assert (run.returncode, run.stdout) == (0, spooldeck(*asked.split()).stdout)
        assert "usage: " in run.stdout

    assert spooldeck("--version").stdout.startswith("spooldeck 0.")


def test_no_option_takes_more_than_one_word() -> None:
    """No option of any command takes the place behind its value for a second value."""
    greedy = [
        (word.path, names)
        for word in cli._WORDS
        for names, options in word.arguments
        if names[0].startswith("-") and options.get("nargs") is not None
    ]

    assert greedy == []


# ---- init


def test_init_makes_what_is_missing_and_leaves_the_rest(spooldeck: Run, tmp_path: Path) -> None:
    """`init` makes folders of mode 750, and a second time changes nothing."""
    where = tmp_path / "new"

    first, second = spooldeck("init", where), spooldeck("init", where)

    assert "made" in first.stdout
    assert "nothing was changed" in second.stdout
    modes = {oct((where / "queue" / word).stat().st_mode & 0o777) for word in ("pending", "dlq")}
    assert modes == {"0o750"}
    assert tasks_at(where) == []


def test_only_an_operator_makes_a_queue_exclusive(root: str, spooldeck: Run) -> None:
    """Due times go into file times only after `init --exclusive`, of a new queue or an old one."""
    due = time.time() + 3600

    def written(token: str) -> float:
        task = replace(verbs.enqueue("report", time.time(), token), due=due)
        with store_at(root) as store:
            store.swap(None, task)
        return Path(root, f"queue/pending/{task.id}.task").stat().st_mtime

    shared = written("0000000a")
    marked = spooldeck("init", root, "--exclusive").stdout

    assert f"made {root}/queue/.spooldeck/exclusive" in marked
    assert shared < due - 1800 < written("0000000b")


def test_the_real_programs_own_queue_is_never_exclusive(spooldeck: Run, tmp_path: Path) -> None:
    """`init --exclusive` of the data folder that nftban.conf names is refused."""
    (tmp_path / "nftban.conf").write_text(f'NFTBAN_DATA_DIR="{tmp_path}"\n')

    run = spooldeck("init", tmp_path, "--exclusive", NFTBAN_CONFIG_DIR=str(tmp_path))

    assert run.returncode == 64
    assert "is NFTBan's own data folder: --exclusive is for a queue" in run.stderr
    assert not (tmp_path / "queue").exists()


# ---- outputs that cannot be written


def test_an_answer_that_cannot_be_written(root: str) -> None:
    """With a full disk behind its output, a command that reads ends with 74, and one that has added
    a task with 0 and the id on standard error: a script would add it again.
    """
    with Path("/dev/full").open("w") as full:

        def into_full(*words: str) -> subprocess.CompletedProcess[str]:
            argv = ["--root", root, "queue", *words]
            return command.run(argv, stdout=full, stderr=subprocess.PIPE, text=True)

        counted, added = into_full("count"), into_full("add", "report")
        silent = command.run(["--root", f"{root}2", "queue", "count"], stderr=full)

    (task,) = tasks_at(root, "pending")
    assert (counted.returncode, added.returncode, silent.returncode) == (74, 0, 69)
    assert counted.stderr.count("\n") == 1 and "No space left" in counted.stderr
    assert added.stderr.startswith("spooldeck: done, but the answer could not be written: No space")
    assert added.stderr.endswith(f": {task.id}\n")


def test_a_closed_pipe_is_no_error(root: str) -> None:
    """A command whose reader has enough, such as head, does its work and ends with its own code."""
    with store_at(root) as store:
        store.swap(None, verbs.enqueue("job", 0.0, "00000001"))
    (task,) = tasks_at(root, "pending")

    for words, code in {
        "queue list": 0,
        "queue list --json": 0,
        "log": 0,
        "queue metrics": 0,
        "status": 1,
        "--help": 0,
        "queue add job": 0,
        f"purge --id {task.id} --apply 1": 0,
    }.items():
        reading, writing = os.pipe()
        os.close(reading)
        argv = ["--root", root, *words.split()]
        run = command.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
        assert (run.returncode, "roken" in run.stderr, "Trace" in run.stderr) == (
            *(code, False, False),
        ), words

    assert (len(tasks_at(root, "pending")), len(tasks_at(root, "trash"))) == (1, 1)


def test_only_a_listing_ends_with_its_reader() -> None:
    """Each command that stops when its output is closed is one that changes nothing."""
    listings = [word for word in cli._WORDS if word.where in cli._LISTINGS]

    assert {word.where for word in listings} == cli._LISTINGS
    for word in listings:
        assert not any({"--apply", "--dry-run"} & set(names) for names, _ in word.arguments)


@pytest.mark.parametrize(
    "closed",
    [
        "<&- >&- 2>&-",
        *(pytest.param(one, marks=pytest.mark.deep) for one in ("<&-", ">&-", "2>&-")),
    ],
)
def test_closed_standard_streams_are_opened_on_nothing(root: str, closed: str) -> None:
    """Where its caller closed them, no file of the queue gets the number of a standard stream."""
    ours = f"{sys.executable} -m tui.cli --root {root} queue"
    line = f"{ours} add job {closed}; echo $?; {ours} process-next {closed}; echo $?"

    run = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60)

    (task,) = tasks_at(root, "pending")
    assert run.stdout.split()[-2:] == ["0", "3"] or run.stdout.split()[-1:] == ["3"]
    assert task.error == "Unknown task type: job"
