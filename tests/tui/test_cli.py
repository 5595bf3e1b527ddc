"""The command line: what each command prints, and the exit code it ends with."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from engine import verbs
from engine.inotify import Ear
from engine.model import State, Task
from engine.stores import open_store
from engine.stores.nftban import NftbanStore
from tests import command
from tui import cli

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def spooldeck(tmp_path: Path) -> Run:
    """Runs the command in a folder of its own, with no settings from outside."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    kept["NFTBAN_MAIL_METHOD"] = "none"  # nothing goes by what this machine happens to have

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return command.run(
            words,
            capture_output=True,
            text=True,
            cwd=home,
            env=kept | more,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def root(tmp_path: Path, spooldeck: Run) -> str:
    """A queue made by `init`."""
    made = spooldeck("init", str(tmp_path / "data"))
    assert made.returncode == 0, made.stderr
    return str(tmp_path / "data")


def until(condition: Callable[[], bool], folder: Path) -> None:
    """Wait for something to happen in a folder, or to a process that works there."""
    with closing(Ear([str(folder)])) as ear:
        while not condition():
            ear.wait(0.1)
            ear.hear()


def store_at(root: str) -> NftbanStore:
    """The store of a queue, for given and then."""
    store = open_store(root)
    assert isinstance(store, NftbanStore)
    return store


def tasks_at(root: str, word: str) -> list[Task]:
    """The tasks in one state."""
    store = store_at(root)
    found = [task for task in store.look({word}) if isinstance(task, Task)]
    store.close()
    return found


def bury_one(root: str, kind: str = "report", **changes: str) -> Task:
    """A dead task in the queue."""
    store = store_at(root)
    store.swap(None, verbs.enqueue(kind, 1_795_239_223, os.urandom(4).hex(), **changes))
    (taken,) = store.take(1_795_239_224, "test", 1)
    store.swap(taken, verbs.bury(taken, "no use"))
    store.close()
    (dead,) = (task for task in tasks_at(root, "dlq") if task.id == taken.id)
    return dead


def configured(tmp_path: Path, text: str) -> str:
    """A configuration file."""
    path = tmp_path / "some.yaml"
    path.write_text(text)
    return str(path)


def test_add_prints_the_id_of_a_file_that_is_there(root: str, spooldeck: Run) -> None:
    """What `queue add` prints is the name of the task file it made."""
    added = spooldeck("--root", root, "queue", "add", "feeds_sync", "Feed enabled: spamhaus")

    assert added.returncode == 0
    ident = added.stdout.strip()
    (task,) = tasks_at(root, "pending")
    assert (task.id, task.kind, task.description) == (ident, "feeds_sync", "Feed enabled: spamhaus")
    assert Path(root, "queue", "pending", f"{ident}.task").is_file()


def test_add_makes_the_folders_of_a_fresh_data_folder(tmp_path: Path, spooldeck: Run) -> None:
    """Mode 750, one line each on standard error; on standard output only the id."""
    root = tmp_path / "data"
    root.mkdir()

    added = spooldeck("--root", str(root), "queue", "add", "report")

    folders = [root / "queue" / word for word in ("pending", "work", "dlq")]
    assert added.stderr.splitlines() == [f"spooldeck: made {path}" for path in folders]
    assert [task.id for task in tasks_at(str(root), "pending")] == [added.stdout.strip()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o750}


@pytest.mark.parametrize("where", ["queue", "queue/dlq"])
def test_add_makes_no_folder_through_a_symbolic_link(
    tmp_path: Path, spooldeck: Run, where: str
) -> None:
    """A link below the data folder is refused, and nothing is made where it leads."""
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    (root / where).parent.mkdir(parents=True)
    (root / where).symlink_to(elsewhere)
    elsewhere.mkdir()
    if where != "queue":
        elsewhere.rmdir()  # a link to nothing is no folder that could be used

    added = spooldeck("--root", str(root), "queue", "add", "report")

    assert added.returncode == 69
    assert "is a symbolic link or no folder, and not entered" in added.stderr
    assert not elsewhere.exists() or not list(elsewhere.iterdir())


def test_global_options_stand_before_or_after_the_words(root: str, spooldeck: Run) -> None:
    """`--root` means the same wherever it stands."""
    spooldeck("--root", root, "queue", "add", "report")
    spooldeck("queue", "add", "report", "--root", root)

    counted = spooldeck("queue", "--root", root, "count")

    assert counted.stdout == "2\n"


def test_a_full_queue_is_said_in_the_contract_s_words(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """Above the most that may be pending, `add` prints "ERROR: Queue full" and ends with 1."""
    limited = ("--config", configured(tmp_path, "queue: {max_pending: 1}"), "--root", root)
    spooldeck(*limited, "queue", "add", "report")

    refused = spooldeck(*limited, "queue", "add", "report")

    assert refused.returncode == 1
    assert refused.stderr == "ERROR: Queue full\n"
    assert len(tasks_at(root, "pending")) == 1


TRUE = "handlers: {report: {command: ['true']}}"
FALSE = "handlers: {report: {command: [sh, -c, 'echo out of paper; exit 1']}}"


@pytest.mark.parametrize(
    ("settings", "code", "state", "error"),
    [(TRUE, 0, None, ""), (FALSE, 3, "pending", "out of paper")],
    ids=["done", "failed"],
)
def test_process_next_answers_by_the_contract_s_codes(
    root: str,
    spooldeck: Run,
    tmp_path: Path,
    settings: str,
    code: int,
    state: str | None,
    error: str,
) -> None:
    """0 when the task is done and gone, 3 when its handler failed and it waits to be retried.

    A failure is reported on standard error: which task, why, and where it is now.
    """
    added = spooldeck("--root", root, "queue", "add", "report")

    run = spooldeck(
        "--config", configured(tmp_path, settings), "--root", root, "queue", "process-next"
    )

    assert run.returncode == code, run.stderr
    said = f"{added.stdout.strip()} (report) failed: {error}; back in pending, attempt 1/4, retry"
    assert run.stderr == (f"spooldeck: {said} in 60s\n" if code else "")
    left = tasks_at(root, "pending")
    assert [task.error for task in left] == ([error] if state else [])
    assert [task.attempts for task in left] == ([1] if state else [])


def test_nothing_eligible_says_what_it_waits_for(root: str, spooldeck: Run) -> None:
    """1, and in words: empty, no handler, or until when."""
    empty = spooldeck("--root", root, "queue", "process-next")
    spooldeck("--root", root, "queue", "add", "feeds_sync")
    unhandled = spooldeck("--root", root, "queue", "process-next")

    assert (empty.returncode, unhandled.returncode) == (1, 1)
    assert empty.stderr == "spooldeck: nothing eligible: nothing is waiting\n"
    assert "no handler configured for feeds_sync" in unhandled.stderr
    assert len(tasks_at(root, "pending")) == 1


def test_a_file_in_place_of_run_is_reported_as_one(root: str, spooldeck: Run) -> None:
    """It is no read-only folder, and no mode would mend it."""
    Path(root, "run").rmdir()
    Path(root, "run").touch()

    run = spooldeck("--root", root, "queue", "process-next")

    assert run.returncode == 69
    assert run.stderr == f"spooldeck: {root}/run is a file, expected a folder: move it away\n"


def test_without_tokens_nothing_is_eligible_and_it_says_until_when(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """An empty bucket is exit 1 with the time of the next token; no task is lost over it."""
    settings = "handlers: {report: {command: ['true'], rate: {per_hour: 1, burst: 1}}}"
    here = ("--config", configured(tmp_path, settings), "--root", root)
    for _ in range(2):
        spooldeck(*here, "queue", "add", "report")

    first = spooldeck(*here, "queue", "process-next")
    second = spooldeck(*here, "queue", "process-next")

    assert (first.returncode, second.returncode) == (0, 1)
    assert "no token for report; next token 20" in second.stderr
    assert len(tasks_at(root, "pending")) == 1


def test_a_second_worker_is_refused_with_2(root: str, spooldeck: Run, tmp_path: Path) -> None:
    """While one worker holds the lock, another ends with 2, says who has it, and takes nothing."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    settings = f"handlers: {{report: {{command: [sh, -c, 'read x < {gate}']}}}}"
    here = ("--config", configured(tmp_path, settings), "--root", root)
    spooldeck(*here, "queue", "add", "report")
    first: command.Popen[str] = command.Popen(
        [*here, "queue", "work", "--until-idle"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    opened = os.open(gate, os.O_RDWR)  # for both ways, so that it never blocks
    work = Path(root, "queue", "work")
    until(lambda: any(work.iterdir()) or first.poll() is not None, work)
    second = spooldeck(*here, "queue", "process-next")
    os.write(opened, b"go\n")
    first.wait(30)
    os.close(opened)

    assert second.returncode == 2
    assert f"lock held: PID {first.pid} is at work" in second.stderr
    assert tasks_at(root, "pending") == []
    assert not Path(root, "run", "queue.lock").exists()


def test_interrupted_it_ends_after_what_it_has_in_hand(
    root: str, spooldeck: Run, tmp_path: Path
) -> None:
    """Ctrl-C at process-next frees no lock while the handler runs: another worker is refused."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    settings = f"handlers: {{report: {{command: [sh, -c, 'read x < {gate}']}}}}"
    here = ("--config", configured(tmp_path, settings), "--root", root)
    spooldeck(*here, "queue", "add", "report")
    first: command.Popen[str] = command.Popen(
        [*here, "queue", "process-next"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    opened = os.open(gate, os.O_RDWR)
    log = Path(root, "log")
    written = log / "queue.log"
    until(lambda: "Executing" in written.read_text() or first.poll() is not None, log)

    first.send_signal(signal.SIGINT)
    second = spooldeck(*here, "queue", "process-next")
    os.write(opened, b"go\n")
    first.wait(30)
    os.close(opened)

    assert second.returncode == 2
    assert first.returncode == 0
    assert tasks_at(root, "pending") == tasks_at(root, "work") == []


def test_what_is_too_long_to_be_read_again_is_not_added(root: str, spooldeck: Run) -> None:
    """A description that would make its file unreadable is refused, with what was expected."""
    refused = spooldeck("--root", root, "queue", "add", "report", "x" * 5000)

    assert refused.returncode == 64
    assert "5,000 characters: expected at most 4,096" in refused.stderr
    assert tasks_at(root, "pending") == []


def test_only_files_are_counted(root: str, spooldeck: Run) -> None:
    """A FIFO, a folder or a link named like a task is a problem, not a task that waits."""
    spooldeck("--root", root, "queue", "add", "report")
    pending = Path(root, "queue", "pending")
    os.mkfifo(pending / "fifo.task")
    (pending / "folder.task").mkdir()
    (pending / "link.task").symlink_to("/etc/hostname")

    counted = spooldeck("--root", root, "queue", "count")
    status = json.loads(spooldeck("status", root, "--json").stdout)

    assert counted.stdout == "1\n"
    assert status["tasks"]["pending"] == 1
    assert len(status["problems"]) == 3


def test_an_unreadable_file_in_the_dlq_is_named(root: str, spooldeck: Run) -> None:
    """The dead-letter list does not keep silent about what it cannot read."""
    Path(root, "queue", "dlq", "junk.task").write_text("junk")

    listed = spooldeck("--root", root, "queue", "dlq", "list")

    assert listed.stdout == ""
    assert "dlq/junk.task: no newline at its end" in listed.stderr


def test_a_stale_lock_is_taken_over_and_its_work_returned(root: str, spooldeck: Run) -> None:
    """A lock whose process is gone is taken; the task it had in hand counts one attempt."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    spooldeck("--root", root, "queue", "add", "feeds_sync")
    store = store_at(root)
    (orphan,) = store.take(2_000_000_000, "dead worker", 1)
    store.close()
    Path(root, "run", "queue.lock").write_text(f"{gone.pid}\n1795239223\n")

    run = spooldeck("--root", root, "queue", "process-next")

    assert run.returncode == 1, run.stderr
    (task,) = tasks_at(root, "pending")
    assert (task.id, task.attempts) == (orphan.id, 1)
    assert not Path(root, "run", "queue.lock").exists()


def test_work_until_idle_does_all_that_is_due(root: str, spooldeck: Run, tmp_path: Path) -> None:
    """`work --until-idle` ends with 0 when nothing due is left."""
    here = ("--config", configured(tmp_path, TRUE), "--root", root)
    for _ in range(5):
        spooldeck(*here, "queue", "add", "report")

    run = spooldeck(*here, "queue", "work", "--until-idle", "--concurrency", "3")

    assert run.returncode == 0
    assert "5 done, 0 failed" in run.stderr
    assert tasks_at(root, "pending") == tasks_at(root, "work") == []
    assert "nftban_queue_tasks_processed_total 5" in Path(root, "metrics", "queue.prom").read_text()


def test_the_dead_are_listed_shown_retried_and_purged(root: str, spooldeck: Run) -> None:
    """The dead-letter queue by hand, from the list to the purge."""
    first, second = bury_one(root), bury_one(root)
    here = ("--root", root, "queue")

    listed = spooldeck(*here, "dlq", "list")
    shown = spooldeck(*here, "dlq", "show", first.id)
    retried = spooldeck(*here, "dlq", "retry", first.id)
    would = spooldeck(*here, "dlq", "purge", "0", "--dry-run")

    assert [line.split(" | ")[0] for line in listed.stdout.splitlines()] == sorted(
        [first.id, second.id]
    )
    assert 'TASK_DLQ_REASON="max_retries_exceeded"' in shown.stdout
    assert retried.stdout == f"Task {first.id} moved from DLQ to pending queue\n"
    assert "nothing was changed" in would.stdout
    assert [task.id for task in tasks_at(root, "dlq")] == [second.id]
    (back,) = tasks_at(root, "pending")
    assert (back.attempts, back.error, back.due) == (0, "", 0.0)


def test_purge_deletes_only_what_died_before(root: str, spooldeck: Run) -> None:
    """A task that died today outlives `purge 1`; one that died eight days ago does not."""
    young = bury_one(root)
    old = bury_one(root)
    path = Path(root, "queue", "dlq", f"{old.id}.task")
    since = old.extra["dead_since"]
    path.write_text(path.read_text().replace(since, str(int(since) - 8 * 86400)))

    purged = spooldeck("--root", root, "queue", "dlq", "purge", "1")

    assert purged.stdout == "Purged 1 tasks from DLQ\n"
    assert [task.id for task in tasks_at(root, "dlq")] == [young.id]


def test_retry_all_dry_run_changes_nothing(root: str, spooldeck: Run) -> None:
    """A dry run names what would move and moves nothing; the real one moves it."""
    dead = bury_one(root)
    here = ("--root", root, "queue", "dlq", "retry-all")

    would = spooldeck(*here, "--dry-run")
    before = [task.id for task in tasks_at(root, "dlq")]
    did = spooldeck(*here)

    assert dead.id in would.stdout
    assert before == [dead.id]
    assert did.returncode == 0
    assert tasks_at(root, "dlq") == []


def test_a_task_that_is_not_dead_is_not_retried(root: str, spooldeck: Run) -> None:
    """An id that is not in the dead-letter queue is said so, even one that looks like a path."""
    unknown = spooldeck("--root", root, "queue", "dlq", "retry", "../../etc/passwd")

    assert unknown.returncode == 1
    assert unknown.stderr == "Task not found in DLQ: ../../etc/passwd\n"


def test_list_as_json_is_one_object_a_line(root: str, spooldeck: Run) -> None:
    """A program reads the list line by line."""
    bury_one(root, description="first")
    spooldeck("--root", root, "queue", "add", "report", "second")

    listed = spooldeck("--root", root, "queue", "list", "--json")

    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {(row["state"], row["description"]) for row in rows} == {
        ("dlq", "first"),
        ("pending", "second"),
    }


def test_status_says_how_a_queue_is(root: str, spooldeck: Run) -> None:
    """0 when all is well, 1 when somebody should look, 2 when it cannot be read."""
    well = spooldeck("status", root)
    Path(root, "queue", "pending", "broken.task").write_text("TASK_ID=$(id)\n")
    broken = spooldeck("status", root, "--json")
    nowhere = spooldeck("status", f"{root}/nothing")

    assert (well.returncode, broken.returncode, nowhere.returncode) == (0, 1, 2)
    assert "nothing needs attention" in well.stdout
    (problem,) = json.loads(broken.stdout)["problems"]
    assert problem["where"] == "pending/broken.task"
    assert len(nowhere.stderr.splitlines()) == 1


def test_status_names_a_task_that_stands_twice(root: str, spooldeck: Run) -> None:
    """One id in two states is a problem that somebody should look at."""
    dead = bury_one(root)
    file = Path(root, "queue", "dlq", f"{dead.id}.task")
    Path(root, "queue", "pending", file.name).write_bytes(file.read_bytes())

    status = spooldeck("status", root)

    assert status.returncode == 1
    assert f"dlq/{file.name}: stands in pending and dlq at once" in status.stdout


def test_status_wants_attention_for_eleven_dead(root: str, spooldeck: Run) -> None:
    """More than ten tasks in the dead-letter queue are a reason to look."""
    for _ in range(11):
        bury_one(root)

    status = spooldeck("status", root)

    assert status.returncode == 1
    assert "11 tasks in the dead-letter queue" in status.stdout


@pytest.mark.parametrize(
    ("kind", "why"), [("feeds_sync", "no handler"), ("mail_send", "no transport")]
)
def test_status_wants_attention_for_due_tasks_that_no_worker_can_run(
    root: str, spooldeck: Run, kind: str, why: str
) -> None:
    """Though a worker ran just now, due tasks without a handler or a transport are reported."""
    store = store_at(root)
    store.swap(None, verbs.enqueue(kind, time.time() - 43 * 60, os.urandom(4).hex()))
    store.close()
    spooldeck("--root", root, "queue", "process-next")

    status = spooldeck("status", root)

    assert status.returncode == 1
    assert f"attention 1 {kind} due for 43m: {why}: see `doctor`" in status.stdout.splitlines()


def test_status_wants_attention_for_a_full_disk(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without room for more tasks nothing can be changed safely."""
    full = os.statvfs_result((4096, 4096, 9000, 0, 0, 900, 500, 500, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)

    code = cli.main(["status", root])

    assert code == 1
    assert "attention disk full: room for no task: see `doctor`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["queue"], 64, "COMMAND"),
        (["queue", "frob"], 64, "invalid choice"),
        (["queue", "add"], 64, "TYPE"),
        (["queue", "add", "Bad Kind"], 64, "task type 'Bad Kind'"),
        (["queue", "add", "mail_send", "x", "/tmp/a$b"], 64, "payload path '/tmp/a$b': expected"),
        (["queue", "work", "--concurrency", "0"], 64, "concurrency"),
        (["queue", "dlq", "purge", "-1"], 64, "-1"),
        (["queue", "dlq", "purge", "many"], 64, "number of days"),
        (["queue", "list", "--state", "foo"], 64, "expected one of pending, work"),
        (["queue", "dlq", "show", "nothing"], 1, "not found in DLQ"),
        (["mail"], 64, "COMMAND"),
        (["mail", "send"], 64, "CONTENT"),
        (["mail", "setup"], 64, "EMAIL"),
        (["mail", "spool"], 64, "COMMAND"),
        (["mail", "suspend", "pigeon"], 64, "pigeon: expected one of postfix"),
        (["mail", "test", "--transport", "pigeon"], 64, "pigeon: expected one of postfix"),
        (["queue", "dlq", "purge", "99999999999999"], 64, "a number of days from 0 to 999999, not"),
        (["queue", "dlq", "purge", "nan"], 64, "a number of days from 0 to 999999, not"),
        (["init", "elsewhere"], 64, "elsewhere: expected only one of them"),
        (["status", "elsewhere"], 64, "elsewhere: expected only one of them"),
        (["--frob"], 64, "--frob"),
    ],
)
def test_a_wrong_word_is_one_line_and_its_code(
    root: str, spooldeck: Run, words: list[str], code: int, said: str
) -> None:
    """What was not understood is one line that says what was expected; never a traceback."""
    run = spooldeck(*words, "--root", root)

    assert run.returncode == code
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert run.stdout == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 69, "nothing to open"),
        (["nowhere"], 64, "no such command or place: 'nowhere' (see `spooldeck --help`)"),
        (
            ["staus", "--json"],
            64,
            "no such command or place: 'staus'; did you mean status or trash?",
        ),
        (["queue", "lst"], 64, "; did you mean list? (see `spooldeck queue --help`)"),
        (["help", "qeueu"], 64, "no such command or place: 'qeueu'; did you mean queue?"),
        (["./nowhere"], 69, "nowhere: no such folder (spooldeck init ./nowhere makes it)"),
        (["q.db"], 69, "q.db: no such file (spooldeck zgb init q.db makes it)"),
        (["status", "q.db"], 2, "/q.db: no such file (spooldeck zgb init "),
        (["--root", "nowhere", "queue", "count"], 69, "nowhere: no queue, expected"),
        (["--config", "nowhere.yaml", "queue", "count"], 78, "nowhere.yaml"),
        (["status", "--root", "nowhere"], 2, "nowhere"),
    ],
)
def test_a_place_that_is_not_there_is_said_in_one_line(
    spooldeck: Run, words: list[str], code: int, said: str
) -> None:
    """A missing place or file is named, with what was expected."""
    run = spooldeck(*words)

    assert run.returncode == code
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("zgb enqueue 7 --type user {place}", "no mail queue"),
        ("zgb enqueue --type user 7 {place}", "no mail queue"),
        ("zgb enqueue 7 {place} --type user", "no mail queue"),
        ("kannader enqueue - --from a@b.c --to d@e.f {place}", "no Kannader spool"),
        ("kannader enqueue - {place} --from a@b.c --to d@e.f --wire", "no Kannader spool"),
        ("edit 7 --due now --dry-run {place}", "no queue"),
        ("trash restore 7-8 --dry-run {place}/", "no queue"),
    ],
)
def test_a_place_may_stand_behind_options(
    tmp_path: Path, spooldeck: Run, words: str, said: str
) -> None:
    """The place is taken for the place wherever it stands among the words: none is left over."""
    (tmp_path / "place").mkdir()

    run = spooldeck(*words.format(place=tmp_path / "place").split())

    assert f"{tmp_path}/place" in run.stderr
    assert said in run.stderr
    assert run.returncode == 69


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("zgb enqueue 7 --type user q.db r.db", "unrecognized arguments: r.db"),
        ("zgb enqueue 7 --frob q.db", "unrecognized arguments: --frob q.db"),
        ("kannader enqueue - --from a@b.c q", "required: --to"),
        ("hold p --id 7 --reason why q", "unrecognized arguments: q"),
    ],
)
def test_what_is_one_word_too_many_is_said(spooldeck: Run, words: str, left: str) -> None:
    """In whatever order they stand, no word is passed over."""
    run = spooldeck(*words.split())

    assert run.returncode == 64
    assert left in run.stderr


def test_a_first_word_that_is_a_command_is_the_command(spooldeck: Run) -> None:
    """A place named like a command is written with ./ in front."""
    command = spooldeck("queue")
    place = spooldeck("./queue")

    assert (command.returncode, place.returncode) == (64, 69)
    assert "./queue: no such folder" in place.stderr


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("help", "--help"),
        ("help help", "--help"),
        ("help purge", "purge --help"),
        ("help queue dlq retry", "queue dlq retry --help"),
    ],
)
def test_help_is_a_command(spooldeck: Run, words: str, asked: str) -> None:
    """`help` prints what `--help` prints, of the whole or of one command."""
    run = spooldeck(*words.split())

    assert (run.returncode, run.stdout) == (0, spooldeck(*asked.split()).stdout)
    assert "usage: " in run.stdout


def test_no_option_takes_more_than_one_word() -> None:
    """No option of any command takes the place behind its value for a second value."""
    greedy = [
        (word.path, names)
        for word in cli._WORDS
        for names, options in word.arguments
        if names[0].startswith("-") and options.get("nargs") is not None
    ]

    assert greedy == []


def test_the_console_without_a_terminal_says_what_to_do(root: str, spooldeck: Run) -> None:
    """Where nobody can see it, the console does not start."""
    run = spooldeck(root)

    assert run.returncode == 64
    assert "spooldeck status" in run.stderr


def test_version_is_the_distribution_s(spooldeck: Run) -> None:
    """`--version` prints name and version."""
    assert spooldeck("--version").stdout.startswith("spooldeck 0.")


def test_a_spool_with_two_formats_of_place_is_one(root: str, spooldeck: Run) -> None:
    """The data folder and the bare queue folder in it lead to the same tasks."""
    spooldeck("--root", root, "queue", "add", "report")

    assert spooldeck("--root", f"{root}/queue", "queue", "count").stdout == "1\n"


def test_held_and_trashed_tasks_are_counted_in_status(root: str, spooldeck: Run) -> None:
    """What is parked or purged is never out of sight."""
    dead = bury_one(root)
    store = store_at(root)
    store.swap(dead, verbs.purge(dead, 0))
    store.close()

    counts = json.loads(spooldeck("status", root, "--json").stdout)["tasks"]

    assert counts == {"pending": 0, "work": 0, "held": 0, "dlq": 0, "trash": 1}
    assert [task.state for task in tasks_at(root, "trash")] == [State.TRASH]


def test_init_makes_what_is_missing_and_leaves_the_rest(spooldeck: Run, tmp_path: Path) -> None:
    """`init` makes folders of mode 750, and a second time changes nothing."""
    where = tmp_path / "new"
    first = spooldeck("init", str(where))
    second = spooldeck("init", str(where))

    assert "made" in first.stdout
    assert "nothing was changed" in second.stdout
    modes = {oct((where / "queue" / word).stat().st_mode & 0o777) for word in ("pending", "dlq")}
    assert modes == {"0o750"}
    store_at(str(where)).close()


def test_only_an_operator_makes_a_queue_exclusive(spooldeck: Run, tmp_path: Path) -> None:
    """Due times go into file times only after `init --exclusive`, of a new queue or an old one."""
    where = tmp_path / "new"
    due = time.time() + 3600

    def written(token: str) -> float:
        task = replace(verbs.enqueue("report", time.time(), token), due=due)
        with closing(store_at(str(where))) as store:
            store.swap(None, task)
        return (where / f"queue/pending/{task.id}.task").stat().st_mtime

    spooldeck("init", str(where))
    shared = written("0000000a")
    marked = spooldeck("init", str(where), "--exclusive").stdout

    assert f"made {where}/queue/.spooldeck/exclusive" in marked
    assert shared < due - 1800 < written("0000000b")


def test_the_real_programs_own_queue_is_never_exclusive(spooldeck: Run, tmp_path: Path) -> None:
    """`init --exclusive` of the data folder that nftban.conf names is refused."""
    (tmp_path / "nftban.conf").write_text(f'NFTBAN_DATA_DIR="{tmp_path}"\n')

    run = spooldeck("init", str(tmp_path), "--exclusive", NFTBAN_CONFIG_DIR=str(tmp_path))

    assert run.returncode == 64
    assert "is NFTBan's own data folder: --exclusive is for a queue" in run.stderr
    assert not (tmp_path / "queue").exists()


def test_a_theme_that_is_not_there_is_one_line(root: str) -> None:
    """A wrong theme ends the command before the screen is touched, and names those there are."""
    ours, terminal = pty.openpty()

    run = subprocess.run(
        [sys.executable, "-m", "tui.cli", "--theme", "nosuch", root],
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "TERM": "xterm"},
        check=False,
    )
    os.close(terminal)
    os.close(ours)

    assert run.returncode == 64
    (line,) = run.stderr.decode().splitlines()
    assert "theme nosuch" in line
    assert "high-contrast, mono, night, paper, terminal" in line


def shell(root: str, line: str) -> subprocess.CompletedProcess[str]:
    """A command line as a shell runs it, with `$spooldeck` for the command on this queue."""
    command = f"{sys.executable} -m tui.cli --root {root}"
    return subprocess.run(
        ["/bin/sh", "-c", line.replace("$spooldeck", command)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_answer_that_cannot_be_written_is_an_error(root: str) -> None:
    """With a full disk behind its output, a command that reads ends with 74."""
    run = shell(root, "$spooldeck queue count >/dev/full")

    assert (run.returncode, run.stdout) == (74, "")
    assert run.stderr.count("\n") == 1 and "No space left" in run.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("queue list", 0),
        ("queue list --json", 0),
        ("log", 0),
        ("queue metrics", 0),
        ("status", 1),
        ("--help", 0),
        ("queue add job", 0),
        ("purge --id 20231114T221320Z-none-00000001 --apply 1", 1),
    ],
)
def test_a_closed_pipe_is_no_error(root: str, words: str, code: int) -> None:
    """A command whose reader has enough, such as head, does its work and ends with its own code."""
    store = store_at(root)
    store.swap(None, verbs.enqueue("job", 0.0, "00000001"))
    store.close()
    reading, writing = os.pipe()
    os.close(reading)

    argv = ["--root", root, *words.split()]
    run = command.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)

    assert (run.returncode, "roken" in run.stderr, "Trace" in run.stderr) == (code, False, False)
    assert len(tasks_at(root, "pending")) == 1 + words.startswith("queue add")


def test_only_a_listing_ends_with_its_reader() -> None:
    """Each command that stops when its output is closed is one that changes nothing."""
    assert {word.where for word in cli._WORDS} >= cli._LISTINGS
    assert not any(_acts(word) for word in cli._WORDS if word.where in cli._LISTINGS)


def _acts(word: cli._Word) -> bool:
    return any({"--apply", "--dry-run"} & set(names) for names, _ in word.arguments)


def test_a_task_that_is_queued_is_exit_0_though_its_id_cannot_be_written(root: str) -> None:
    """A script would add it again; the id is on standard error."""
    run = shell(root, "$spooldeck queue add report >/dev/full")

    (task,) = tasks_at(root, "pending")
    assert run.returncode == 0
    assert run.stderr.startswith("spooldeck: done, but the answer could not be written: No space")
    assert run.stderr.endswith(f": {task.id}\n")


def test_complaints_that_cannot_be_written_change_no_exit_code(root: str) -> None:
    """With a full disk behind its standard error, a command ends as it would have."""
    assert shell(root, "$spooldeck queue process-next 2>/dev/full").returncode == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_outputs_are_stood_in_for(root: str, closed: str) -> None:
    """Where its caller closed standard streams, no file of the queue is taken for one of them."""
    added = shell(root, f"$spooldeck queue add job {closed}")
    ran = shell(root, f"$spooldeck queue process-next {closed}")

    assert (added.returncode, ran.returncode) == (0, 3)
    (task,) = tasks_at(root, "pending")
    assert task.error == "Unknown task type: job"
