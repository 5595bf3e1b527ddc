"""The drop-in for the contract's engine: shell-init, log, syslog, install-units."""

import grp
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.system import files
from engine.system.command_errors import EX_IOERR
from tests import command
from tests.nftban_queues import (
    COMMAND,
    GOLDEN,
    bury_one,
    clean_environment,
    masked,
    store_at,
    tasks_at,
)
from tests.other_users import OTHER_UID, as_user, place_for_all
from tests.programs import a_script, needs, needs_root
from tests.smtp_server import Server
from tests.tui.cli.run_clock_records import record_runs

ONCE, TIMER, WORKER = UNITS = (
    "spooldeck-queue.service",
    "spooldeck-queue.timer",
    "spooldeck-worker.service",
)

HANDLERS = """\
queue: {{profile: shipped, syslog: "{folder}/log.socket"}}
mail: {{plain_hosts: [127.0.0.1]}}
handlers:
  feeds_sync: {{command: ["true"]}}
  geoban_apply:
    command: [sh, -c, 'test -e "{folder}/mended" || {{ cat "{folder}/said"; exit 1; }}']
"""

SAID = (
    'Error: set "blacklist_ipv4" does not exist; code=$(id) `x` [a|b] caf\xe9\n'
    "second line\ttab \\ back\n"
)
"""Output of the handler of the golden files, before it was cleaned."""

RECORDER = """\
printf '%s' "${NFTBAN_SMTP_PASS-}"; printf '<%s>' "$@"
for last; do :; done
if [ "$last" = --null ]; then tr '\\0' '|'; fi
printf '\\n'
exit "${CODE:-0}"
"""
"""In place of spooldeck: prints the password that it gets, its words, and what --null reads."""

Done = subprocess.CompletedProcess[str]


class Place:
    """A queue made by `init`, a configuration for it, and a shell beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.config = folder, folder / "data", folder / "some.yaml"
        self.functions, self.log_file = folder / "functions.sh", self.root / "log" / "queue.log"
        self.config.write_text(HANDLERS.format(folder=folder))
        (folder / "said").write_text(SAID)
        self.environ = clean_environment(folder)
        self.run("init", self.root)

    def run(self, *words: str | Path, **more: str) -> Done:
        """Run a command in this folder."""
        options = {"env": self.environ | more, "cwd": self.folder, "stdin": subprocess.DEVNULL}
        return command.run_text(*words, **options)

    def queue(self, *words: str, **more: str) -> Done:
        """Run `spooldeck queue` for this queue."""
        return self.run("--config", self.config, "--root", self.root, "queue", *words, **more)

    def bash(self, script: str, *words: str) -> Done:
        """Run a script that has the functions, as strict as the contract's own modules are.

        It runs in a folder with a module that must not be imported in place of ours.
        """
        elsewhere = self.folder / "elsewhere"
        (elsewhere / "tui").mkdir(parents=True, exist_ok=True)
        (elsewhere / "tui" / "__init__.py").write_text("open('pwned', 'w')")
        if not self.functions.exists():
            self.functions.write_text(self.run("--config", self.config, "shell-init").stdout)
        # As the contract's own: set by nftban.conf, readonly, and not exported.
        place = f"readonly NFTBAN_DATA_DIR='{self.root}' NFTBAN_RUN_DIR='{self.root}/run'\n"
        place += f"readonly NFTBAN_LOG_DIR='{self.root}/log'\n"
        strict = f"set -Eeuo pipefail\n. '{self.functions}'\n"
        argv = ["bash", "-c", strict + place + script, "bash", *words]
        done = output_of(argv, cwd=elsewhere, env=self.environ, stdin=subprocess.DEVNULL)
        assert not (elsewhere / "pwned").exists()
        return done

    def record(self, *words: str) -> None:
        """Let the functions run the recorder instead of spooldeck; `words` are for `shell-init`."""
        self.replace(shlex.quote(a_script(self.folder / "recorder", RECORDER)), *words)

    def replace(self, program: str, *words: str) -> None:
        """Let the functions run a program instead of spooldeck; `words` are for `shell-init`."""
        text = self.run(*words, "shell-init").stdout
        assert shlex.join(COMMAND) in text
        self.functions.write_text(text.replace(shlex.join(COMMAND), program))

    def hurry(self) -> None:
        """Let what waits to be retried be due now."""
        with store_at(self.root) as store:
            for task in tasks_at(self.root, "pending"):
                store.swap(task, verbs.promote(task, 0))

    def bury(self, days: int) -> str:
        """The id of a task that died a minute more than so many days ago."""
        return bury_one(self.root, days_ago=days + 1 / 1440).id

    def install(self, *settings: str, root: Path | None = None, **more: str) -> Path:
        """Write the units for the queue, or for that at `root`, into a folder of their own."""
        folder = self.folder / "units"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for text in settings:
            self.config.write_text(text)
        words = ("--config", self.config) if settings else ()
        done = self.run("--root", root or self.root, "install-units", folder, *words, **more)
        assert done.returncode == 0, done.stderr
        return folder

    @property
    def log(self) -> list[str]:
        """The lines of its log, without times and random ids."""
        return masked(self.log_file.read_text().splitlines())


def output_of(argv: list[str], **options: Any) -> Done:
    """Run another program."""
    return subprocess.run(argv, capture_output=True, text=True, **options)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A queue made by `init`."""
    return Place(tmp_path)


def golden(name: str) -> list[str]:
    """The masked lines of a file that the contract's own program wrote."""
    return masked((GOLDEN / name).read_text().splitlines())


def setting(unit: Path, key: str) -> str:
    """The value of a key in a unit."""
    (value,) = re.findall(f"^{key}=(.*)$", unit.read_text(), re.MULTILINE)
    return str(value)


# ---- shell-init

CALLS = {
    "nftban_queue_add feeds_sync 'Feed enabled: x' /p more": (
        "<queue><add><--><feeds_sync><Feed enabled: x></p>"
    ),
    "nftban_queue_process_next": "secret<queue><process-next><--quiet>",
    "nftban_queue_process_batch 1": "secret<queue><process-next><--quiet>",
    "nftban_queue_count": "<queue><count>",
    "nftban_queue_count_dlq": "<queue><count-dlq>",
    "nftban_queue_dlq_list": "<queue><dlq><list>",
    "nftban_queue_dlq_retry --help": "<queue><dlq><retry><--><--help>",
    "nftban_queue_dlq_purge": "<queue><dlq><purge><--><7>",
    "nftban_queue_dlq_purge 5": "<queue><dlq><purge><--><5>",
    "nftban_mail_send hello a@b.c": "secret<mail><send><--null>a@b.c||hello",
    "nftban_mail_send ''": "secret<mail><send><--null>||",
    "nftban_mail_send_with_retry - '' '--it failed'": (
        "secret<mail><send-with-retry><--null>|--it failed|-"
    ),
    "nftban_mail_spool_status": "secret<mail><spool><list>",
    "nftban_mail_send_test": "secret<mail><test>",
    "nftban_mail_send_test a@b.c": "secret<mail><test><a@b.c>",
    # As the contract's own, the functions are exported.
    "bash -c 'nftban_queue_count'": "<queue><count>",
}
"""What is called, and what of it arrives: the relay's password is for what may send mail."""

USAGE = [
    *(("queue_add", word, " <task_type> [description] [payload_file]") for word in ("", "''")),
    *(("queue_dlq_retry", word, " <task_id>") for word in ("", "''")),
    *(("queue_dlq_purge", word, " [days]") for word in ("--", "1.5")),
    ("mail_send", "", " <content> [recipient]"),
    ("mail_send_with_retry", "", " <content> [recipient] [subject]"),
]
"""A function, with which word it is called wrongly, and the words that it expects."""


def test_each_function_is_one_command(place: Place) -> None:
    """Its words arrive as they are, behind `--` or with NUL; called wrongly it prints its usage and
    ends with 1, or with 2 where 1 means kept; the caller's variables and options stay."""
    place.record()
    run = place.bash("readonly NFTBAN_SMTP_PASS=secret\n" + "\n".join(CALLS))
    wrong = [f"nftban_{name} {word}" for name, word, _ in USAGE]
    usage = place.bash("".join(f"rc=0; {words} || rc=$?; echo $rc\n" for words in wrong))
    traces = place.bash(f"""
        readonly code=mine other=mine days=mine id=mine text=mine
        before=$(set | grep -v ^_=; set +o)
        . '{place.functions}'
        nftban_queue_count; CODE=64 nftban_queue_dlq_retry none >/dev/null || true
        after=$(set | grep -v ^_=; set +o)
        diff <(echo "$before") <(echo "$after" | grep -v ^before=)
    """)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == list(CALLS.values())
    assert usage.stderr.splitlines() == [f"Usage: nftban_{name}{words}" for name, _, words in USAGE]
    assert usage.stdout.splitlines() == [*["1"] * (len(USAGE) - 1), "2"]
    assert (traces.stdout, traces.returncode) == ("<queue><count>\n", 0)


def test_a_batch_ends_when_nothing_is_due(place: Place) -> None:
    """Nothing more due is no failure; nftban_mail_detect_mta prints the transport or is 1."""
    for _ in range(3):
        place.bash("nftban_queue_add feeds_sync")
    done = place.bash("nftban_queue_process_batch 2; nftban_queue_count")
    rest = place.bash("nftban_queue_process_batch; nftban_queue_count; nftban_mail_detect_mta")
    assert (done.stdout, rest.stdout, rest.returncode) == ("1\n", "0\n", 1)


def test_the_functions_end_with_codes_of_the_contract(place: Place) -> None:
    """Codes beyond the contract's become 1, of process_next 3, and nothing waits then; 4, added but
    not printed, is no failure; a plain call ends a strict caller. `--root` at shell-init is found
    from any folder."""
    text = "it's an $odd place"
    place.record("--root", text)
    script = """
        cd /; nftban_queue_count
        for CODE in 0 1 2 3 4 64 69 130; do
            export CODE
            for name in add process_next has_pending; do
                rc=0; nftban_queue_$name x >/dev/null || rc=$?; printf '%s ' $rc
            done
            echo
        done
        cd FOLDER
        logger() { printf '%s ' "${@:1:4}"; }
        for CODE in 0 1 2 3 4 74 79 127 130; do
            rc=0; nftban_mail_send_with_retry x y z >codes || rc=$?
            tail -n +2 codes; echo $rc
        done
        CODE=1
        nftban_queue_count >/dev/null
        echo not reached
    """
    run = place.bash(script.replace("FOLDER", shlex.quote(str(place.folder))))
    first, *lines = run.stdout.splitlines()
    assert first == f"<--root><{place.folder}/{text}><queue><count>"
    codes = ["0 0 1", "1 1 1", "2 2 1", "3 3 1", "0 0 1", "1 3 1", "1 3 1", "130 130 1"]
    alert = "-p user.alert -t nftban-queue 2"
    codes += ["0", alert, alert, "1", "0", alert, "2", alert, alert]
    assert ([line.strip() for line in lines], run.returncode) == (codes, 1)


def test_a_mail_without_a_program_is_an_alert(place: Place) -> None:
    """If spooldeck is missing, cannot run or takes no such word, a lost mail is sent to syslog."""
    call = "rc=0; nftban_mail_send_with_retry x y full || rc=$?; echo $rc"
    alert = "-p user.alert -t nftban-queue mail lost, neither sent nor kept: full"
    nowhere = "/nowhere/spooldeck"
    frob = f"{shlex.join(COMMAND)} --frob"
    for program in (nowhere, "/etc/passwd", f"{sys.executable} {nowhere}", frob):
        place.replace(program)
        done = place.bash('logger() { echo "$@"; }; ' + call)
        assert done.stdout.splitlines() == [alert, "2"], program


def test_the_functions_are_always_printed_and_quickly(place: Place) -> None:
    """No wrong configuration leaves a login shell without them; no screen is loaded for them."""
    (place.folder / "spooldeck.yaml").write_text("queue: {frob: 1}\n")
    broken = {"NFTBAN_DATA_DIR": "nowhere", "NFTBAN_QUEUE_MAX_PENDING": "many"}
    for words in ((), ("--config", "none.yaml")):
        run = place.run(*words, "shell-init", **broken)
        assert (run.returncode, run.stderr) == (0, "")
        assert "nftban_mail_send_with_retry()" in run.stdout
    code = "import sys; from tui.cli import main; main(['shell-init']); print(*sys.modules)"
    loaded = output_of([sys.executable, "-P", "-c", code], check=True, cwd="/").stdout
    modules = set(loaded.splitlines()[-1].split())
    assert "tui.cli.formats.nftban.shell_and_units" in modules
    assert modules.isdisjoint({"textual", "rich", "sqlite3", "asyncio", "ctypes", "subprocess"})
    # dash, which is sh on Debian, defines no function, says so, and goes on with its script.
    script = 'eval "$1"; echo "after $?"'
    done = output_of([needs("dash"), "-c", script, "dash", run.stdout])
    assert (done.returncode, done.stdout) == (0, "after 1\n")
    assert done.stderr.startswith("spooldeck: the functions need bash")


def test_a_function_takes_a_dash_for_a_text(place: Place) -> None:
    """With --literal the text `-` is not read from stdin, and a subject may begin with dashes."""
    needs("curl")
    config = ("--config", place.config, "--root", place.root, "mail")
    with Server() as server:
        place.environ |= {"NFTBAN_MAIL_METHOD": "curl", "NFTBAN_SMTP_HOST": "127.0.0.1"}
        place.environ |= {"NFTBAN_SMTP_PORT": str(server.port)}
        sent = [
            place.run(*config, word, "--literal", "--", *more).stdout
            for word, *more in (
                ("send", "-", "a@example.com"),
                ("send-with-retry", "third", "b@example.com", "--it failed"),
            )
        ]
    submitted = "✓ Email submitted to transport for: {}@example.com (delivery not confirmed)\n"
    assert sent == [submitted.format("a"), submitted.format("b")]
    assert [mail.recipients for mail in server.mails] == [("a@example.com",), ("b@example.com",)]
    assert b"\n-\r\n" in server.mails[0].data
    assert b"Subject: --it failed" in server.mails[1].data


VALUES = {
    "a b  c": "a b  c",
    'it\'s "so"': "it's _so_",
    "$(touch pwned) `touch pwned` $HOME": "_(touch pwned) _touch pwned_ _HOME",
    "--": "--",
    "-h": "-h",
    "--config=x": "--config=x",
    "two\nlines\there": "two lines here",
    "caf\xe9 \\ *": "caf\xe9 _ *",
    "; touch pwned #": "; touch pwned #",
    "": "report",
}
"""What is added, and what is stored of it."""


def test_any_text_arrives_cleaned_and_nothing_of_it_runs(place: Place) -> None:
    """Quotes, substitutions, dashes and newlines are text, for the shell and for us."""
    for text in VALUES:
        place.queue("add", "--", "report", text)
    stored = [task.description for task in tasks_at(place.root)]
    real = place.bash("nftban_queue_add feeds_sync 'Feed enabled: spamhaus'")
    (task,) = (task for task in tasks_at(place.root) if task.kind == "feeds_sync")
    place.record()
    script = "IFS=', 1a'; for text; do nftban_queue_add report \"$text\"; done"
    passed = place.bash(script, *VALUES)
    assert sorted(stored) == sorted(VALUES.values())
    assert [line for line in place.log if not line.isprintable()] == []
    assert (real.stdout, real.stderr) == (f"{task.id}\n", "")
    assert task.description == "Feed enabled: spamhaus"
    assert passed.stdout == "".join(f"<queue><add><--><report><{text}>\n" for text in VALUES)


# ---- the log


def test_a_held_lock_is_exit_2_and_quiet(place: Place) -> None:
    """While another process works, `--quiet` prints nothing; the log names the process."""
    lock = place.root / "run" / "queue.lock"
    lock.write_text(f"{os.getpid()}\n{int(lock.parent.stat().st_mtime)}\n")
    run = place.queue("process-next", "--quiet")
    assert (run.returncode, run.stdout, run.stderr) == (2, "", "")
    assert f"[DEBUG] Queue processor running (PID: {os.getpid()}, age: " in place.log[-1]


def test_the_log_is_the_contracts_line_by_line(place: Place) -> None:
    """A day of the contract's own program, done by ours, prints and logs the same words."""
    place.queue("add", "feeds_sync", "Feed enabled: spamhaus")
    place.queue("add", "geoban_apply")
    for _ in range(4):
        place.queue("process-next")
        place.hurry()
    (task,) = tasks_at(place.root, "dlq")
    listed = place.queue("dlq", "list").stdout
    retried = place.queue("dlq", "retry", task.id).stdout
    (place.folder / "mended").touch()
    place.queue("process-next")
    place.queue("add", "bogus_type", "x y")
    place.queue("process-next")
    for days in (8, 6):
        place.bury(days)
    for limit in ("7", "5", "0"):
        place.queue("dlq", "purge", limit)
    assert masked(listed.splitlines()) == golden("dlq_list.stdout.txt")
    assert masked(retried.splitlines()) == golden("dlq_retry.stdout.txt")
    assert place.log == golden("queue.log")


def test_functions_use_nftbans_queue_with_any_places_configured(place: Place) -> None:
    """The places of the console are none of the contract's callers: their queue stays the same."""
    other = place.folder / "other"
    place.run("init", other)
    place.config.write_text(f"queue: {{root: {place.root}}}\nplaces: [{other}]\n")
    done = place.bash("nftban_queue_add report; nftban_queue_count")
    script = f". {place.functions}\nnftban_queue_add report >/dev/null; nftban_queue_count"
    plain = output_of(["bash", "-c", script], env=place.environ, check=True)
    assert (done.stdout.splitlines()[1], plain.stdout) == ("1", "2\n")
    assert tasks_at(str(other), "pending") == []


def test_a_timers_run_logs_as_the_contracts_processor(place: Place) -> None:
    """Each ordinary end is exit 0; a missing data folder keeps its code, for systemd."""
    (place.folder / "said").write_text("boom\n")

    def run() -> int:
        return place.queue("process-next", "--timer").returncode

    codes = [run()]
    place.queue("add", "geoban_apply", "x")
    codes += [run(), run()]
    (place.folder / "mended").touch()
    place.hurry()
    codes.append(run())
    ours = place.log
    shutil.rmtree(place.root)
    assert [*codes, run()] == [0, 0, 0, 0, 69]
    theirs = "\n".join(golden("queue.processor-run.log")).replace("feeds_sync", "geoban_apply")
    lines = theirs.replace("Executing: x", "Executing: geoban apply").splitlines()
    # Theirs answers 1 where a handler failed, and so logs that the task just tried waits.
    lines[8] = "[STAMP] [WARN] Task processing returned error (rc=3), retry scheduled"
    assert ours[: len(lines)] == lines
    assert ours[-1] == "[STAMP] [INFO] Queue cycle completed successfully"


def test_a_run_purges_dead_tasks_past_the_retention(place: Place) -> None:
    """Into the trash, if runs have seen their age pass; the log has their number."""
    old, kept_id = place.bury(8), place.bury(6)
    place.queue("process-next")
    assert len(tasks_at(place.root, "dlq")) == 2
    staging, now = place.root / "queue" / ".spooldeck", time.time()
    record_runs(staging, now - 9 * 86400, now)
    place.queue("process-next")
    assert [task.id for task in tasks_at(place.root, "dlq")] == [kept_id]
    assert [path.stem for path in (staging / "trash").iterdir()] == [old]
    assert place.log == ["[STAMP] [INFO] Auto-purged 1 DLQ tasks older than 7 days"]


def test_a_clock_set_ahead_deletes_nothing(place: Place) -> None:
    """A run a week later by the clock alone keeps dead tasks; log and doctor say why."""
    kept_id = place.bury(0)
    place.queue("process-next")
    record = place.root / "queue" / ".spooldeck" / "run-times"
    at, rest = record.read_text().split(" ", 1)
    record.write_text(f"{float(at) - 8 * 86400} {rest}")
    place.queue("process-next")
    assert [task.id for task in tasks_at(place.root, "dlq")] == [kept_id]
    (line,) = place.log
    assert "[WARN] clock set ahead by 8d00h before " in line
    output = place.run("--root", place.root, "doctor").stdout
    assert "clock     clock set ahead by 8d00h before " in output


def test_errors_and_alerts_are_copied_to_syslog(place: Place) -> None:
    """A failure, giving a task up, a full queue: user.error, and user.alert for the move itself."""
    pattern = r"<(\d+)>\w{3} [ \d]\d \d\d:\d\d:\d\d nftban-queue\[\d+\]: (.*)"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(f"{place.folder}/log.socket")
        syslog.setblocking(False)
        place.queue("add", "geoban_apply")
        for _ in range(3):
            place.queue("process-next")
            place.hurry()
        place.queue("add", "report")
        place.queue("add", "full", NFTBAN_QUEUE_MAX_PENDING="1")
        outputs = [re.findall(pattern, syslog.recv(4096).decode())[0] for _ in range(6)]
        with pytest.raises(BlockingIOError):
            syslog.recv(4096)
    (task,) = tasks_at(place.root, "dlq")
    lines = place.log_file.read_text().splitlines()
    failed = [line.split("] ", 2)[2] for line in lines if "Task failed" in line]
    assert len(failed) == 3
    assert outputs == [
        *(("11", text) for text in failed),
        ("11", f"Task {task.id} exhausted retries (3/3), moving to DLQ"),
        ("9", f"Task moved to DLQ: {task.id} (geoban_apply) after 3 retries"),
        ("11", "Queue at capacity (1 tasks). Rejecting task: full"),
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_log_that_may_not_be_written_costs_no_task() -> None:
    """A user who may add but not log gets the id all the same, and no complaint."""
    with place_for_all() as root:
        for path in (root, *(root / "queue").rglob("*"), root / "queue"):
            os.chown(path, OTHER_UID, OTHER_UID)
        added = as_user(OTHER_UID, "--root", str(root), "queue", "add", "report", HOME="/")
        (task,) = tasks_at(root)
        assert (added.returncode, added.stdout, added.stderr) == (0, f"{task.id}\n", "")
        assert list((root / "log").iterdir()) == []


# ---- install-units

ODD = "an odd 'place' $HOME %h \"q\" \\x \N{SNOWMAN}; # @user@"


@pytest.mark.parametrize("name", [pytest.param("data", marks=pytest.mark.deep), ODD])
def test_systemd_finds_nothing_wrong_with_the_units(place: Place, name: str) -> None:
    """`systemd-analyze verify` is silent, wherever the queue and its settings are, and `security`
    gives the service of the timer 3.0 at most; after a boot has emptied /run, `systemd-tmpfiles`
    makes the folders with their modes."""
    if shutil.which("systemd-analyze") is None or shutil.which("systemd-tmpfiles") is None:
        pytest.skip("there is no systemd to ask")
    root = place.folder / name
    place.run("init", name)
    (root / "run").chmod(0o751)
    place.config = place.folder / f"{name}.yaml"
    units = place.install("handlers: {}", root=root, NFTBAN_LOG_DIR=f"{root}/log")
    shutil.rmtree(root / "queue")
    (root / "run").rmdir()
    paths = [str(units / unit) for unit in UNITS]
    verified = output_of(["systemd-analyze", "verify", "--man=no", *paths])
    argv = ["systemd-analyze", "security", "--offline=yes", "--threshold=30", paths[0]]
    secured = output_of(argv)
    made = output_of(["systemd-tmpfiles", "--create", str(units / "spooldeck.tmpfiles.conf")])
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    assert secured.returncode == 0, secured.stdout
    assert (made.returncode, made.stderr) == (0, "")
    modes = {path.name: oct(path.stat().st_mode & 0o7777) for path in root.glob("**/*/")}
    assert modes["run"] == "0o751"
    assert {modes[name] for name in ("queue", "pending", "work", "dlq", "log")} == {"0o750"}


def test_the_command_in_a_unit_is_for_this_queue(place: Place) -> None:
    """Unquoted as systemd does it, the command of the unit runs on the queue with the odd name."""
    place.run("init", ODD)
    root = place.folder / ODD
    line = setting(place.install(root=root) / ONCE, "ExecStart")
    line = line.replace("%%", "%").replace("$$", "\\$")
    argv = output_of(["bash", "-c", f"printf '%s\\0' {line}"]).stdout.split("\0")[:-1]
    run = place.run(*argv[len(COMMAND) :])
    assert argv[: len(COMMAND)] == COMMAND
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    assert "Queue processor started" in (root / "log" / "queue.log").read_text()


def test_a_stop_waits_for_the_longest_handler(place: Place) -> None:
    """No unit cuts short a handler that may still take its time, nor mail that is being sent."""
    for timeout, stop in (("300", "335"), ("0.5", "36"), ("1000000000", "1000000035")):
        handler = f"a: {{command: [x], timeout: {timeout}}}"
        units = place.install(f"handlers: {{{handler}}}\nmail: {{max_time: 0.2}}\n")
        assert {setting(units / unit, "TimeoutStopSec") for unit in (ONCE, WORKER)} == {stop}
        assert int(setting(units / ONCE, "TimeoutStartSec")) > int(stop)


def test_only_the_folders_of_the_queue_are_writable(place: Place) -> None:
    """Also those configured elsewhere and that of the registry, not the data folder itself."""
    (place.root / "dlq").mkdir()
    where = f"root: {place.root}, run_dir: {place.folder}/away/run, dlq: {place.root}/dlq"
    unit = place.install(f"queue: {{{where}}}") / ONCE
    folder_names = ("dlq", "log", "mail", "mailspool", "metrics", "queue")
    folders = [f"{place.folder}/away/run", *(f"{place.root}/{name}" for name in folder_names)]
    assert setting(unit, "ReadWritePaths").split() == folders
    in_tmp = str(place.folder).startswith(("/tmp/", "/var/tmp/"))
    assert setting(unit, "PrivateTmp") == ("no" if in_tmp else "yes")
    deliver = "handlers: {a: {deliver: {}, timeout: 100}}\n"
    unit = place.install(f"{deliver}destinations: sqlite:///srv/shared/destinations.db\n") / WORKER
    assert "-/srv/shared" in setting(unit, "ReadWritePaths").split()
    assert setting(unit, "TimeoutStopSec") == "135"


def test_a_worker_for_another_users_queue_runs_as_that_user(place: Place) -> None:
    """User and group are the spool's, with no capability; another `run_as` takes root."""
    needs_root("only root can give a folder away")
    os.chown(place.root / "queue" / "pending", OTHER_UID, grp.getgrnam("daemon").gr_gid)
    place.folder.chmod(0o700)
    for folder in ("log", "run"):
        (place.root / folder).mkdir(exist_ok=True)
    own = place.install() / WORKER
    again = place.run("--root", str(place.root), "install-units", str(own.parent))
    user, capabilities = setting(own, "User"), setting(own, "CapabilityBoundingSet")
    assert setting(own, "Group") == "daemon"
    other = place.install("handlers: {a: {command: [x], run_as: root}}") / WORKER
    assert (user, capabilities) == ("nobody", "")
    assert "nobody cannot enter it" in again.stderr
    for folder in ("log", "run"):
        why = f"{place.root}/{folder}: belongs to root, the units write there as nobody: chown"
        assert why in again.stderr
    assert setting(other, "User") == "root"
    assert "CAP_SETUID" in setting(other, "CapabilityBoundingSet")


def test_the_environment_goes_into_the_unit_but_for_the_password(place: Place) -> None:
    """Variables with folders or for mail; a warning names where the password belongs."""
    (units := place.folder / "units").mkdir()
    more = {"NFTBAN_SMTP_USER": "queue", "NFTBAN_SMTP_PASS": "hunter2"}
    more["NFTBAN_RUN_DIR"] = f"{place.folder}/run 50%"
    run = place.run("--root", place.root, "install-units", "units", **more)
    texts = {unit.name: unit.read_text() for unit in units.iterdir()}
    assert run.returncode == 0, run.stderr
    assert "hunter2" not in "".join([*texts.values(), run.stdout, run.stderr])
    assert "NFTBAN_SMTP_PASS is not written into the units" in run.stderr
    for unit in (ONCE, WORKER):
        assert sorted(re.findall("^Environment=(.*)$", texts[unit], re.MULTILINE)) == [
            f'"NFTBAN_RUN_DIR={place.folder}/run 50%%"',
            "NFTBAN_MAIL_METHOD=none",
            "NFTBAN_SMTP_USER=queue",
        ]
        assert f'"{place.folder}/run 50%%"' in setting(units / unit, "ReadWritePaths")


def test_a_unit_for_a_local_mail_program_lets_it_change_its_group(place: Place) -> None:
    """Such a program also writes into its own spool; a relay needs neither."""
    program = a_script(place.folder / "sendmail", "")
    rest = f"relay: {{host: mx.example.com}}, programs: {{sendmail: {program}}}"
    for method, expected in {"sendmail": ("no", True), "curl": ("yes", False)}.items():
        unit = place.install(f"mail: {{method: {method}, {rest}}}") / ONCE
        writable = "/maildrop" in setting(unit, "ReadWritePaths")
        assert (setting(unit, "NoNewPrivileges"), writable) == expected


def test_install_units_overwrites_nothing(place: Place) -> None:
    """A second time nothing changes; an edited file stays, with the new one beside it."""
    units = place.install()
    before, edited = {path.name: path.read_bytes() for path in units.iterdir()}, units / TIMER
    edited.write_text("mine")
    again = place.run("--root", str(place.root), "install-units", str(units)).stdout.splitlines()
    after = before | {edited.name: b"mine", f"{edited.name}.new": before[edited.name]}
    assert {path.name: path.read_bytes() for path in units.iterdir()} == after
    assert f"kept {edited}, which differs; wrote {edited}.new" in again
    assert len([line for line in again if "unchanged" in line]) == 4


def test_no_line_is_lost_when_a_log_is_rotated(place: Place) -> None:
    """logrotate renames it: a process that has the old one open writes to the new one."""
    snippet = (place.install() / "spooldeck.logrotate").read_text()
    assert "\n    create\n" in snippet and "copytruncate" not in snippet
    log = place.log_file
    files.append(str(log), b"one\n", root=str(place.root))
    assert any(path.samefile(log) for path in Path("/proc/self/fd").iterdir() if path.exists())
    old = log.rename(log.with_suffix(".log.1"))
    log.touch()
    files.append(str(log), b"two\n", root=str(place.root))
    assert old.read_bytes().endswith(b"one\n") and log.read_bytes() == b"two\n"


def test_install_units_without_a_folder_or_queue_is_one_line(place: Place) -> None:
    """A log that logrotate would take for a pattern gets no snippet; what was written before an
    error is printed."""
    for root, folder, code, message in (
        ("data", "nowhere", 64, "nowhere: expected a folder to write into"),
        ("nowhere", ".", 69, "nowhere: no such folder"),
    ):
        run = place.run("--root", root, "install-units", folder)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (code, "", 1)
        assert message in run.stderr
        assert list(place.folder.glob("spooldeck*")) == []
    place.run("init", "data*")
    ended = place.run("--root", "data*", "install-units", ".")
    assert "spooldeck.logrotate not written" in ended.stderr
    assert "logrotate" not in ended.stdout  # the next steps name files that exist
    assert not (place.folder / "spooldeck.logrotate").exists()
    units = place.folder / "units"
    (units / TIMER).mkdir(parents=True)
    run = place.run("--root", place.root, "install-units", units)
    assert (run.returncode, run.stdout) == (EX_IOERR, f"wrote {units}/{ONCE}\n")
    assert run.stderr == f"spooldeck: {units}/{TIMER}: Is a directory\n"
