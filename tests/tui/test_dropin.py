"""Our engine where the contract's own would be: bash functions, log, syslog, systemd units."""

from __future__ import annotations

import importlib.resources
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from engine import verbs
from engine.model import State, Task
from engine.stores.nftban import NftbanStore, Spool
from tests import command
from tests.mail.programs import needs
from tests.mail.smtpd import Server

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

COMMAND = [sys.executable, "-P", "-m", "tui.cli"]
GOLDEN = Path(__file__).parents[1] / "golden" / "nftban"
UNITS = ("spooldeck-queue.service", "spooldeck-queue.timer", "spooldeck-worker.service")

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
"""What the handler of the golden files said, before it was cleaned."""


def _environment(folder: Path) -> dict[str, str]:
    kept = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    return kept | {"NFTBAN_MAIL_METHOD": "none"}  # no mail program of this machine is used


class Place:
    """A queue, a configuration for it, and a shell beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "data"
        self.config = folder / "some.yaml"
        self.config.write_text(HANDLERS.format(folder=folder))
        (folder / "said").write_text(SAID)
        self.run("init", str(self.root))

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """The command, for this place."""
        return command.run(
            words,
            capture_output=True,
            text=True,
            env=_environment(self.folder) | more,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )

    def queue(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`spooldeck queue`, for this queue."""
        return self.run("--config", str(self.config), "--root", str(self.root), "queue", *words)

    def bash(self, script: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A script that has the functions, as strict as the contract's own modules are.

        It runs in a folder of its own, in which something waits to be imported in place of us.
        """
        elsewhere = self.folder / "elsewhere"
        (elsewhere / "tui").mkdir(parents=True, exist_ok=True)
        (elsewhere / "tui" / "__init__.py").write_text("open('pwned', 'w')")
        functions = self.folder / "functions.sh"
        if not functions.exists():
            functions.write_text(self.run("--config", str(self.config), "shell-init").stdout)
        # As the contract's own: set by nftban.conf, readonly, and not exported.
        place = f"readonly NFTBAN_DATA_DIR='{self.root}' NFTBAN_RUN_DIR='{self.root}/run'\n"
        place += f"readonly NFTBAN_LOG_DIR='{self.root}/log'\n"
        strict = f"set -Eeuo pipefail\n. '{functions}'\n"
        argv = ["bash", "-c", strict + place + script, "bash", *words]
        done = self._run(argv, more, elsewhere)
        assert not (elsewhere / "pwned").exists()
        return done

    @staticmethod
    def _run(
        argv: list[str], more: dict[str, str], folder: Path
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            cwd=folder,
            env=_environment(folder) | more,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )

    def store(self) -> NftbanStore:
        """Its store, for given and then."""
        queue = f"{self.root}/queue"
        return NftbanStore(Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))

    def tasks(self, state: State) -> list[Task]:
        """Its tasks in a state."""
        store = self.store()
        found = [task for task in store.look({store.states[state]}) if isinstance(task, Task)]
        store.close()
        return found

    def bury(self, days: int) -> str:
        """The id of a task that died so many days ago, in a file written just now."""
        store = self.store()
        store.swap(None, verbs.enqueue("report", 1_700_000_000, os.urandom(4).hex()))
        (taken,) = store.take(1_700_000_001, "test", 1)
        store.swap(taken, verbs.bury(taken, "no use"))
        store.close()
        (task,) = (task for task in self.tasks(State.DEAD) if task.id == taken.id)
        file = self.root / "queue" / "dlq" / f"{task.id}.task"
        died = task.extra["dead_since"]
        then = int(died) - days * 86400 - 60
        file.write_text(file.read_text().replace(died, str(then)))
        return task.id

    def hurry(self) -> None:
        """Let what waits to be retried be due now."""
        store = self.store()
        for task in self.tasks(State.PENDING):
            store.swap(task, verbs.promote(task, 0))
        store.close()

    @property
    def log(self) -> list[str]:
        """The lines of its log."""
        return (self.root / "log" / "queue.log").read_text().splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A queue made by `init`."""
    return Place(tmp_path)


def masked(lines: list[str]) -> list[str]:
    """Lines with what differs from run to run taken out of them."""
    for pattern, mask in (
        (r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]", "[STAMP]"),
        (r"\d{8}T\d{6}Z-(\w+)-[0-9a-f]{8}", r"TIME-\1-RAND"),
        (r"completed in \d+s", "completed in Ns"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d", "MINUTE"),
    ):
        lines = [re.sub(pattern, mask, line) for line in lines]
    return lines


def golden(name: str) -> list[str]:
    """What the contract's own program wrote."""
    return (GOLDEN / name).read_text().splitlines()


# ---- bash functions


def test_a_task_s_life_by_the_functions_is_the_contract_s(place: Place) -> None:
    """Add, process, retry, give up, list, retry by hand: each prints and answers as it should."""
    first = place.bash("""
        if nftban_queue_has_pending; then echo waits; fi
        id=$(nftban_queue_add feeds_sync 'Feed enabled: spamhaus')
        [[ -f $NFTBAN_DATA_DIR/queue/pending/$id.task ]]
        nftban_queue_has_pending
        echo "$(nftban_queue_count) $(nftban_queue_count_dlq)"
        nftban_queue_process_next
        rc=0; nftban_queue_process_next || rc=$?; echo "nothing $rc"
        nftban_queue_add geoban_apply >/dev/null
        rc=0; nftban_queue_process_next || rc=$?; echo "failed $rc"
        rc=0; nftban_queue_process_next || rc=$?; echo "waits $rc"
    """)
    for _ in range(2):
        place.hurry()
        place.queue("process-next")
    then = place.bash("""
        nftban_queue_dlq_list
        id=$(nftban_queue_dlq_list | cut -d' ' -f1)
        nftban_queue_dlq_retry "$id"
        nftban_queue_count_dlq
        nftban_queue_dlq_purge
    """)

    assert (first.stderr, first.returncode) == ("", 0)
    assert first.stdout.splitlines() == ["1 0", "nothing 1", "failed 3", "waits 1"]
    assert (then.stderr, then.returncode) == ("", 0)
    assert masked(then.stdout.splitlines()) == masked(
        [
            *golden("dlq_list.stdout.txt"),
            *golden("dlq_retry.stdout.txt"),
            "0",
            "Purged 0 tasks from DLQ",
        ]
    )


def test_purge_takes_what_died_more_than_seven_days_ago(place: Place) -> None:
    """Without a number it is 7 days, whatever the retention is; with one it is that."""
    place.bury(6)
    place.bury(8)

    run = place.bash(
        "nftban_queue_dlq_purge; nftban_queue_dlq_purge 5",
        NFTBAN_QUEUE_DLQ_AUTO_RETENTION_DAYS="99",
    )

    assert run.stdout == "Purged 1 tasks from DLQ\nPurged 1 tasks from DLQ\n", run.stderr
    assert place.tasks(State.DEAD) == []


WORDS_OF_FAILURE = {
    "nftban_queue_add": "Usage: nftban_queue_add <task_type> [description] [payload_file]",
    "nftban_queue_add ''": "Usage: nftban_queue_add <task_type> [description] [payload_file]",
    "nftban_queue_add full": "ERROR: Queue full",
    "nftban_queue_dlq_retry": "Usage: nftban_queue_dlq_retry <task_id>",
    "nftban_queue_dlq_retry ''": "Usage: nftban_queue_dlq_retry <task_id>",
    "nftban_queue_dlq_retry ../../x": "Task not found in DLQ: ../../x",
    "nftban_queue_dlq_retry --help": "Task not found in DLQ: --help",
    "nftban_queue_dlq_purge --": "Usage: nftban_queue_dlq_purge [days]",
    "nftban_queue_dlq_purge 1.5": "Usage: nftban_queue_dlq_purge [days]",
    "nftban_queue_dlq_purge 99999999999999": "spooldeck: expected a number of days "
    "from 0 to 999999, not '99999999999999'",
}


def test_what_fails_says_so_in_the_contract_s_words(place: Place) -> None:
    """Each ends with 1 and one line on standard error, and nothing on standard output."""
    place.queue("add", "report")
    script = "".join(f"rc=0; {words} || rc=$?; echo $rc\n" for words in WORDS_OF_FAILURE)

    run = place.bash(script, NFTBAN_QUEUE_MAX_PENDING="1")

    assert run.stderr.splitlines() == list(WORDS_OF_FAILURE.values())
    assert run.stdout.splitlines() == ["1"] * len(WORDS_OF_FAILURE)
    assert len(place.tasks(State.PENDING)) == 1


def test_a_queue_that_is_not_there_is_one_line_and_a_code_of_the_contract(place: Place) -> None:
    """Codes beyond the contract's become 1, of process_next 3; nothing pretends to be empty."""
    shutil.rmtree(place.root)

    run = place.bash("""
        rc=0; nftban_queue_add feeds_sync || rc=$?; echo $rc
        rc=0; nftban_queue_process_next || rc=$?; echo $rc
        rc=0; nftban_queue_has_pending || rc=$?; echo $rc
    """)

    assert run.stdout.splitlines() == ["1", "3", "1"]
    assert [": no queue, expected" in line for line in run.stderr.splitlines()] == [True] * 3


def test_mail_is_sent_by_the_functions(place: Place) -> None:
    """Once, or with retries and the spool behind it: output and exit codes are the contract's, and
    variables count as they are, exported or not.
    """
    with Server(rcpt=["450 4.2.1 later", "", "450 4.2.1 later"]) as server:
        needs("curl")
        run = place.bash(f"""
            NFTBAN_MAIL_METHOD=curl NFTBAN_SMTP_HOST=127.0.0.1 NFTBAN_SMTP_PORT={server.port}
            NFTBAN_MAIL_RETRY_BACKOFF=0,0,0
            readonly NFTBAN_MAIL_RECIPIENT=all@example.com NFTBAN_SMTP_PASS=hunter2
            rc=0; nftban_mail_send 'first' || rc=$?; echo $rc
            nftban_mail_send 'second' 'a@example.com'
            nftban_mail_send_with_retry 'third' '' '--it failed'
            while read -r to; do nftban_mail_send - "$to"; done <<<$'c@example.com\nd@example.com'
            NFTBAN_MAIL_METHOD=none
            rc=0; nftban_mail_send_with_retry 'fourth' 'b@example.com' || rc=$?; echo $rc
            rc=0; nftban_mail_send || rc=$?; echo $rc
            rc=0; nftban_mail_send_with_retry '' || rc=$?; echo $rc
            declare -F -x nftban_mail_send >/dev/null
        """)

    (task,) = place.tasks(State.PENDING)
    sent = "✓ Email submitted to transport for: {} (delivery not confirmed)"
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "1",
        *(sent.format(f"{name}@example.com") for name in ("a", "all", "c", "d")),
        f"Mail spooled for later delivery: {task.id}",
        *("1", "1", "1"),
    ]
    first, *rest = run.stderr.splitlines()
    assert first.startswith("✗ Failed to send email: unavailable_450")
    assert rest[-2:] == [
        "Usage: nftban_mail_send <content> [recipient]",
        "Usage: nftban_mail_send_with_retry <content> [recipient] [subject]",
    ]
    assert [mail.recipients for mail in server.mails] == [
        ("a@example.com",),
        ("all@example.com",),
        # A dash is a text like any other: the rest of a loop's input is nobody's mail.
        *(("c@example.com",), ("d@example.com",)),
    ]
    assert b"Subject: --it failed" in server.mails[1].data


def test_the_relay_s_password_is_only_for_what_sends_mail(place: Place) -> None:
    """Set and not exported by the caller, it is handed on by no function that has no use for it."""
    script = place.folder / "environment.py"
    script.write_text("import os, sys; print('NFTBAN_SMTP_PASS' in os.environ, *sys.argv[1:3])")
    text = place.run("shell-init").stdout.replace(
        shlex.join(COMMAND), shlex.join([sys.executable, str(script)])
    )
    (place.folder / "functions.sh").write_text(text)

    run = place.bash("""
        readonly NFTBAN_SMTP_PASS=hunter2
        nftban_queue_count; nftban_queue_add report; nftban_queue_process_next
        nftban_mail_send hello; nftban_mail_send_with_retry hello
    """)

    assert run.stdout.splitlines() == [
        "False queue count",
        "False queue add",
        "True queue process-next",
        "True mail send",
        "True mail send-with-retry",
    ]


def test_a_failing_function_ends_a_strict_caller_that_does_not_ask(place: Place) -> None:
    """Under errexit a plain call that finds nothing ends the caller with the contract's code."""
    run = place.bash("nftban_queue_count; nftban_queue_process_next; echo not reached")

    assert (run.stdout, run.returncode) == ("0\n", 1)


VALUES = {
    "a b  c": "a b  c",
    'it\'s "so"': "it_s _so_",
    "$(touch pwned) `touch pwned` $HOME": "__touch pwned_ _touch pwned_ _HOME",
    "--": "--",
    "-h": "-h",
    "--config=x": "--config_x",
    "two\nlines\there": "two_lines_here",
    "caf\xe9 \\ *": "caf_ _ _",
    "; touch pwned #": "_ touch pwned _",
    "": "report",
}
"""What is added, and what is stored of it: the contract's character set."""


def test_any_text_arrives_cleaned_and_nothing_of_it_runs(place: Place) -> None:
    """Spaces, quotes, substitutions, dashes and newlines are text, for the shell and for us."""
    odd = "IFS=', 1a'; for text; do nftban_queue_add report \"$text\" >/dev/null; done"

    run = place.bash(odd, *VALUES)

    assert (run.returncode, run.stderr, run.stdout) == (0, "", "")
    stored = sorted(task.description for task in place.tasks(State.PENDING))
    assert stored == sorted(VALUES.values())
    assert [line for line in place.log if not line.isprintable()] == []


def test_a_payload_is_stored_as_it_was_named(place: Place) -> None:
    """A third word is a file below the mail spool, by its absolute path, and any other is refused
    with the contract's code for an error; an empty text is the type.
    """
    mail = place.root / "mailspool" / "mail-1"
    mail.mkdir(parents=True)
    (mail / "meta.sh").touch()

    run = place.bash(f"nftban_queue_add mail_send '' '{mail}/meta.sh'")
    bad = place.bash(f"cd '{mail}'; nftban_queue_add mail_send '' meta.sh")

    (task,) = place.tasks(State.PENDING)
    assert run.stdout == f"{task.id}\n"
    assert (task.description, task.payload) == ("mail_send", f"{mail}/meta.sh")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert f"below {place.root}/mailspool: expected the absolute path of a file there" in bad.stderr


def test_the_functions_leave_nothing_behind(place: Place) -> None:
    """Loaded twice, called, failed: the caller's variables and options are what they were."""
    run = place.bash(f"""
        readonly code=mine other=mine days=mine id=mine text=mine
        before=$(set | grep -v ^_=; set +o)
        . '{place.folder}/functions.sh'
        nftban_queue_count; nftban_queue_dlq_retry nobody || true
        after=$(set | grep -v ^_=; set +o)
        diff <(echo "$before") <(echo "$after" | grep -v ^before=)
    """)

    assert run.stdout == "0\n"


def test_child_scripts_have_the_functions_too(place: Place) -> None:
    """As the contract's own, they are exported: `command -v` finds them in a script."""
    run = place.bash("""
        export NFTBAN_DATA_DIR NFTBAN_RUN_DIR NFTBAN_LOG_DIR
        bash -c 'command -v nftban_queue_add && nftban_queue_count'
    """)

    assert run.stdout == "nftban_queue_add\n0\n", run.stderr


def test_a_held_lock_is_2_without_a_word(place: Place) -> None:
    """While somebody works, process_next answers 2 and is silent; the log says who it is."""
    lock = place.root / "run" / "queue.lock"
    lock.write_text(f"{os.getpid()}\n{int(lock.parent.stat().st_mtime)}\n")

    run = place.bash("nftban_queue_process_next || exit $?")

    assert (run.returncode, run.stdout, run.stderr) == (2, "", "")
    assert f"[DEBUG] Queue processor running (PID: {os.getpid()}, age: " in place.log[-1]


def test_root_named_at_shell_init_is_kept(place: Place, tmp_path: Path) -> None:
    """`--root` is made absolute and quoted, so that the functions find it from anywhere."""
    odd = tmp_path / "it's an $odd place"
    place.run("init", odd.name)
    functions = place.run("--root", odd.name, "shell-init").stdout

    run = place.bash(f"cd /\n{functions}\nnftban_queue_add report")

    assert (odd / "queue" / "pending" / f"{run.stdout.strip()}.task").is_file(), run.stderr


# ---- the log


def test_the_log_is_the_contract_s_line_by_line(place: Place) -> None:
    """A day of the contract's own program, done by ours, leaves the same words in the log."""
    dead = []
    place.queue("add", "feeds_sync", "Feed enabled: spamhaus")
    place.queue("add", "geoban_apply")
    for _ in range(4):
        place.queue("process-next")
        place.hurry()
    (task,) = place.tasks(State.DEAD)
    place.queue("dlq", "retry", task.id)
    (place.folder / "mended").touch()
    place.queue("process-next")
    place.queue("add", "bogus_type", "x y")
    place.queue("process-next")
    dead += [place.bury(8), place.bury(6)]
    for days in ("7", "5", "0"):
        place.queue("dlq", "purge", days)

    assert len(dead) == 2
    assert masked(place.log) == masked(golden("queue.log"))


def test_a_timer_s_run_logs_as_the_contract_s_processor(place: Place) -> None:
    """Its start, its end and why there was nothing to do; each ordinary end is exit 0."""
    (place.folder / "said").write_text("boom\n")
    codes = [place.queue("process-next", "--timer").returncode]
    place.queue("add", "geoban_apply", "x")
    codes += [place.queue("process-next", "--timer").returncode for _ in range(2)]
    (place.folder / "mended").touch()
    place.hurry()
    codes.append(place.queue("process-next", "--timer").returncode)

    theirs = [
        line.replace("feeds_sync", "geoban_apply") for line in golden("queue.processor-run.log")
    ]
    theirs = [line.replace("Executing: x", "Executing: geoban apply") for line in theirs]
    # Theirs answers 1 where a handler failed, and so says of the task just tried that it waits.
    theirs[8] = "[STAMP] [WARN] Task processing returned error (rc=3), retry scheduled"
    ours = masked(place.log)
    assert ours[: len(theirs)] == masked(theirs)
    assert ours[-1] == "[STAMP] [INFO] Queue cycle completed successfully"
    assert codes == [0, 0, 0, 0]


def test_what_a_run_purges_by_itself_is_logged_as_the_contract_does(place: Place) -> None:
    """Past the retention, the dead are deleted with every run; a line says how many."""
    place.bury(8)
    kept = place.bury(6)

    place.queue("process-next")

    assert [task.id for task in place.tasks(State.DEAD)] == [kept]
    assert masked(place.log) == ["[STAMP] [INFO] Auto-purged 1 DLQ tasks older than 7 days"]


def test_a_timer_s_run_that_cannot_work_does_fail(place: Place) -> None:
    """What is no ordinary end keeps its exit code, so that systemd hears of it."""
    shutil.rmtree(place.root / "queue")

    assert place.queue("process-next", "--timer").returncode == 69


def test_errors_and_alerts_are_copied_to_syslog(place: Place) -> None:
    """A failure, giving a task up, a full queue: user.error, and user.alert for the move itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(f"{place.folder}/log.socket")
        syslog.setblocking(False)
        place.queue("add", "geoban_apply")
        for _ in range(3):
            place.queue("process-next")
            place.hurry()
        place.queue("add", "report")
        place.run(
            "--config",
            str(place.config),
            "--root",
            str(place.root),
            "queue",
            "add",
            "full",
            NFTBAN_QUEUE_MAX_PENDING="1",
        )
        said = list(received(syslog))

    (task,) = place.tasks(State.DEAD)
    failed = [line.split("] ", 2)[2] for line in place.log if "Task failed" in line]
    assert len(failed) == 3
    assert said == [
        *(("11", text) for text in failed),
        ("11", f"Task {task.id} exhausted retries (3/3), moving to DLQ"),
        ("9", f"Task moved to DLQ: {task.id} (geoban_apply) after 3 retries"),
        ("11", "Queue at capacity (1 tasks). Rejecting task: full"),
    ]


def received(syslog: socket.socket) -> Iterator[tuple[str, str]]:
    """Priority and text of what has come."""
    while True:
        try:
            said = syslog.recv(4096).decode()
        except BlockingIOError:
            return
        found = re.fullmatch(r"<(\d+)>\w{3} [ \d]\d \d\d:\d\d:\d\d nftban-queue\[\d+\]: (.*)", said)
        assert found, said
        yield found[1], found[2]


def test_who_may_add_need_not_be_one_who_may_log() -> None:
    """A log that may not be written costs no task and no word; the id is printed all the same."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else for a moment")
    # The interpreter may lie where nobody else may go, so it changes its user once all is loaded.
    code = (
        "import os, sys, tui.cli.queue, engine.syslogging; from tui.cli import main;"
        "main(['--root', '/nowhere', 'queue', 'count']);"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.exit(main(sys.argv[1:]))"
    )
    with tempfile.TemporaryDirectory() as folder:  # the test's own lets nobody else in
        Path(folder).chmod(0o755)
        place = Place(Path(folder))
        for path in (place.root, *(place.root / "queue").rglob("*"), place.root / "queue"):
            os.chown(path, 65534, 65534)
        added = subprocess.run(
            [*COMMAND[:2], "-c", code, "--root", str(place.root), "queue", "add", "report"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={"HOME": "/"},
        )
        tasks = place.tasks(State.PENDING)

        assert [task.id for task in tasks] == added.stdout.split()
        assert (added.returncode, len(tasks)) == (0, 1)
        assert len(added.stderr.splitlines()) == 1  # of the first, which was to load everything
        assert list((place.root / "log").iterdir()) == []


# ---- systemd


def install(place: Place, root: Path, *words: str, **more: str) -> Path:
    """The folder that the units for a queue are written into."""
    folder = place.folder / "units"
    folder.mkdir(exist_ok=True)
    done = place.run("--root", str(root), "install-units", str(folder), *words, **more)
    assert done.returncode == 0, done.stderr
    return folder


def setting(unit: Path, key: str) -> str:
    """The value of a key in a unit."""
    (value,) = re.findall(f"^{key}=(.*)$", unit.read_text(), re.MULTILINE)
    return str(value)


ODD = "an odd 'place' $HOME %h \"q\" \\x \N{SNOWMAN}; # @user@"


@pytest.mark.parametrize("name", ["data", ODD], ids=["plain", "odd"])
def test_systemd_finds_nothing_wrong_with_the_units(place: Place, name: str) -> None:
    """`systemd-analyze verify` has not a word to say, wherever the queue and its settings lie."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze to ask")
    place.run("init", name)
    (place.folder / f"{name}.yaml").write_text("handlers: {}")
    words = ("--config", f"{name}.yaml")
    units = install(place, place.folder / name, *words, NFTBAN_LOG_DIR=f"{place.folder}/{name}/log")

    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(units / unit for unit in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_the_command_in_a_unit_is_this_very_queue_s(place: Place) -> None:
    """Undone as systemd undoes it, the command of the unit runs on the queue with the odd name."""
    place.run("init", ODD)
    root = place.folder / ODD
    unit = install(place, root) / UNITS[0]
    line = setting(unit, "ExecStart").replace("%%", "%").replace("$$", "\\$")

    run = place.bash(f"cd /; {line}")

    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    assert "Queue processor started" in (root / "log" / "queue.log").read_text()


def test_tmpfiles_makes_the_folders_anew(place: Place) -> None:
    """After a boot has emptied /run, the snippet brings back the folders as they were."""
    if shutil.which("systemd-tmpfiles") is None:
        pytest.skip("there is no systemd-tmpfiles to ask")
    place.run("init", ODD)
    root = place.folder / ODD
    (root / "run").chmod(0o751)
    snippet = install(place, root) / "spooldeck.tmpfiles.conf"
    shutil.rmtree(root / "queue")
    (root / "run").rmdir()

    made = subprocess.run(
        ["systemd-tmpfiles", "--create", snippet], capture_output=True, text=True, check=False
    )

    assert (made.returncode, made.stderr) == (0, "")
    found = {path.name: oct(path.stat().st_mode & 0o7777) for path in root.glob("**/*/")}
    assert found["run"] == "0o751"
    assert {found[name] for name in ("queue", "pending", "work", "dlq", "log")} == {"0o750"}


@pytest.mark.parametrize(
    ("timeout", "stop"), [("300", "335"), ("0.5", "36"), ("1000000000", "1000000035")]
)
def test_a_stop_waits_for_the_longest_handler(place: Place, timeout: str, stop: str) -> None:
    """No unit cuts short a handler that may still take its time, nor mail that is being sent."""
    settings = f"handlers: {{a: {{command: [x], timeout: {timeout}}}}}\nmail: {{max_time: 0.2}}\n"
    place.config.write_text(settings)

    units = install(place, place.root, "--config", str(place.config))

    once, worker = units / UNITS[0], units / UNITS[2]
    assert setting(once, "TimeoutStopSec") == setting(worker, "TimeoutStopSec") == stop
    assert int(setting(once, "TimeoutStartSec")) > int(stop)


def test_what_is_written_is_exactly_the_queue_s_folders(place: Place) -> None:
    """Folders that are set elsewhere are writable too; nothing else is, neither the data folder."""
    place.config.write_text(
        f"queue: {{root: {place.root}, run_dir: {place.folder}/away/run, dlq: {place.root}/dlq}}"
    )
    (place.root / "dlq").mkdir()
    units = install(place, place.root, "--config", str(place.config))

    writable = setting(units / UNITS[0], "ReadWritePaths").split()

    assert writable == [
        f"{place.folder}/away/run",
        *(
            f"{place.root}/{name}"
            for name in ("dlq", "log", "mail", "mailspool", "metrics", "queue")
        ),
    ]
    assert setting(units / UNITS[0], "PrivateTmp") == (
        "no" if str(place.folder).startswith(("/tmp/", "/var/tmp/")) else "yes"
    )


def test_a_worker_for_another_user_s_queue_runs_as_that_user(place: Place) -> None:
    """User and group are the spool's, with no capability; `run_as` somebody else takes root."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(place.root / "queue" / "pending", 65534, 65534)
    place.folder.chmod(0o700)

    own = install(place, place.root) / UNITS[2]
    again = place.run("--root", str(place.root), "install-units", str(own.parent))
    user, capabilities = setting(own, "User"), setting(own, "CapabilityBoundingSet")
    shutil.rmtree(own.parent)
    place.config.write_text("handlers: {a: {command: [x], run_as: root}}")
    other = install(place, place.root, "--config", str(place.config)) / UNITS[2]

    assert (user, capabilities) == ("nobody", "")
    assert "nobody cannot enter it" in again.stderr
    assert setting(other, "User") == "root"
    assert "CAP_SETUID" in setting(other, "CapabilityBoundingSet")


def test_what_found_the_queue_goes_into_the_unit(place: Place) -> None:
    """Variables that said where folders are would be missing later: the lock would be another."""
    run_dir = f"{place.folder}/run 50%"

    unit = install(place, place.root, NFTBAN_RUN_DIR=run_dir, NFTBAN_SMTP_PASS="secret") / UNITS[0]

    said = re.findall("^Environment=(.*)$", unit.read_text(), re.MULTILINE)
    assert said == [f'"NFTBAN_RUN_DIR={place.folder}/run 50%%"', "NFTBAN_MAIL_METHOD=none"]
    assert f'"{place.folder}/run 50%%"' in setting(unit, "ReadWritePaths")
    assert "secret" not in unit.read_text()


def test_the_password_of_a_relay_is_never_written_into_a_unit(place: Place) -> None:
    """Units are read by everybody: it is said instead where it belongs."""
    (place.folder / "units").mkdir()

    run = place.run(
        *("--root", str(place.root), "install-units", "units"),
        NFTBAN_SMTP_USER="queue",
        NFTBAN_SMTP_PASS="hunter2",
    )

    units = [path.read_text() for path in (place.folder / "units").iterdir()]
    assert run.returncode == 0, run.stderr
    assert "hunter2" not in "".join([*units, run.stdout, run.stderr])
    assert all("NFTBAN_SMTP_USER=queue" in text for text in units if "ExecStart" in text)
    assert "NFTBAN_SMTP_PASS is not written into the units" in run.stderr


def test_where_mail_goes_by_a_local_program_the_unit_lets_it(place: Place) -> None:
    """Such a program changes its group and writes into its own spool; a relay needs neither."""
    program = place.folder / "sendmail"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = "mail: {{method: {}, relay: {{host: mx.example.com}}, programs: {{sendmail: {}}}}}"
    found = {}
    for method in ("sendmail", "curl"):
        place.config.write_text(settings.format(method, program))
        unit = install(place, place.root, "--config", str(place.config)) / UNITS[0]
        writable = "/maildrop" in setting(unit, "ReadWritePaths")
        found[method] = (setting(unit, "NoNewPrivileges"), writable)
        shutil.rmtree(unit.parent)

    assert found == {"sendmail": ("no", True), "curl": ("yes", False)}


def test_a_file_that_differs_is_never_overwritten(place: Place) -> None:
    """A second time nothing changes; what somebody edited stays, with ours beside it."""
    units = install(place, place.root)
    before = {path.name: path.read_bytes() for path in units.iterdir()}
    edited = units / UNITS[1]
    edited.write_text("mine")

    again = place.run("--root", str(place.root), "install-units", str(units))

    assert edited.read_text() == "mine"
    assert {path.name: path.read_bytes() for path in units.iterdir()} == before | {
        edited.name: b"mine",
        f"{edited.name}.new": before[edited.name],
    }
    assert f"kept {edited}, which differs; wrote {edited}.new" in again.stdout.splitlines()
    assert len([line for line in again.stdout.splitlines() if "unchanged" in line]) == 4


@pytest.mark.parametrize(
    ("root", "folder", "code", "said"),
    [
        ("data", "nowhere", 64, "nowhere: expected a folder to write into"),
        ("nowhere", ".", 69, "nowhere: no queue, expected"),
    ],
)
def test_where_nothing_can_be_written_it_is_one_line(
    place: Place, root: str, folder: str, code: int, said: str
) -> None:
    """A missing folder or queue is named, and no file is made."""
    run = place.run("--root", root, "install-units", folder)

    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (code, "", 1)
    assert said in run.stderr
    assert list(place.folder.glob("spooldeck*")) == []


def test_a_log_that_logrotate_would_take_for_a_pattern_is_left_out(place: Place) -> None:
    """Rather than a snippet that rotates other files, there is none, and it is said."""
    place.run("init", "data*")

    run = place.run("--root", "data*", "install-units", ".")

    assert "spooldeck.logrotate not written" in run.stderr
    assert not (place.folder / "spooldeck.logrotate").exists()


def test_texts_are_package_data() -> None:
    """Whatever is filled in at run time is carried by the package, beside its module."""
    texts = importlib.resources.files("tui.cli") / "texts"

    names = {text.name for text in texts.iterdir()}

    assert {*UNITS, "shell-init.sh", "spooldeck.tmpfiles.conf", "spooldeck.logrotate"} <= names


def test_the_functions_are_there_whatever_is_configured(place: Place) -> None:
    """A configuration that means nothing, or is not there, is said by each function called; it
    does not leave a login shell without them.
    """
    (place.folder / "spooldeck.yaml").write_text("queue: {frob: 1}\n")
    broken = {"NFTBAN_DATA_DIR": "nowhere", "NFTBAN_QUEUE_MAX_PENDING": "many"}

    for words in ((), ("--config", "none.yaml")):
        run = place.run(*words, "shell-init", **broken)
        assert (run.returncode, run.stderr) == (0, "")
        (place.folder / "functions.sh").write_text(run.stdout)
        called = place.bash("rc=0; nftban_queue_count || rc=$?; echo $rc", **broken)
        assert called.stdout == "1\n"
        assert len(called.stderr.splitlines()) == 1


def test_the_functions_are_printed_without_the_console(place: Place) -> None:
    """`eval "$(spooldeck shell-init)"` stands in login files: it loads no screen, no database."""
    code = "import sys; from tui.cli import main; main(['shell-init']); print(*sys.modules)"

    run = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )

    loaded = set(run.stdout.splitlines()[-1].split())
    assert "tui.cli.dropin" in loaded
    assert loaded.isdisjoint({"textual", "rich", "sqlite3", "asyncio", "ctypes", "subprocess"})
