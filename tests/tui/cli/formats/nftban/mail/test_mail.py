"""`spooldeck mail`: send, test, status, suspend, setup, the worker and the doctor's lines on mail.

Mail goes by real programs to a real server on loopback.
"""

import email
import email.policy
import io
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from email.message import EmailMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import verbs
from engine.config import nftban_variables, queue_config
from engine.config.mail_config import MailSettings
from engine.formats.known_formats import setup_for
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.live.shared_watch import FolderEventSource
from engine.mail.model import Cause, Unused
from engine.mail.send.suspensions import Suspensions
from engine.mail.send.transport_chooser import TransportChooser, describe_no_transport
from engine.model import State, Task
from engine.places.mail_setup import RECHECK_SECONDS, MailHandler
from engine.system import files
from engine.work.handlers import Context
from tests import command
from tests.nftban_queues import COMMAND, GOLDEN, clean_environment, masked
from tests.programs import a_script, needs, needs_root
from tests.smtp_server import DROP, HOST, Server, refusing
from tests.tables import each
from tui.cli import main
from tui.cli.formats.nftban.mail import send as mail_command

YAML = f"mail: {{plain_hosts: ['{HOST}']}}\n"
US = pwd.getpwuid(os.geteuid()).pw_name
TO = "a@example.com"
TASK = "TIME-mail_send-RAND"


class MailPlace:
    """A queue, and a command line beside it that sends mail to one server or to none."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.etc = folder, folder / "data", folder / "etc"
        self.log, self.staging = self.root / "log/mail.log", self.root / "queue/.spooldeck"
        self.config, self.mails = folder / "some.yaml", self.root / "mailspool"
        self.config.write_text(YAML)
        self.printed = f"spooldeck --root {self.root} --config {self.config}"
        """How a printed command begins."""
        self.environ = clean_environment(folder)
        self.environ["NFTBAN_MAIL_RETRY_BACKOFF"] = "0,0,0"
        self.environ["NFTBAN_SENDER"] = "queue@example.org"
        queue = f"{self.root}/queue"
        self.queue = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")
        make_spool(self.queue)
        for name in ("run", "log", "metrics/counters", "mailspool"):
            (self.root / name).mkdir(mode=0o750, parents=True)

    def goes_by(self, name: str, port: int) -> None:
        """Let mail go by curl or msmtp to a server at this port."""
        needs(name)
        smtp = {"NFTBAN_SMTP_HOST": HOST, "NFTBAN_SMTP_PORT": str(port)}
        self.environ |= {"NFTBAN_MAIL_METHOD": name, **smtp}
        account = self.folder / ".msmtprc"
        account.write_text(f"account default\nhost {HOST}\nport {port}\nfrom queue@example.org\n")
        account.chmod(0o600)

    @contextmanager
    def served(self, name: str = "curl", **script: Any) -> Iterator[Server]:
        """A server that answers by a script, to which mail goes."""
        with Server(**script) as server:
            self.goes_by(name, server.port)
            yield server

    @contextmanager
    def unserved(self, name: str = "curl") -> Iterator[int]:
        """A port that refuses connections, to which mail goes."""
        with refusing() as port:
            self.goes_by(name, port)
            yield port

    def words(self, *words: str) -> list[str]:
        """The words of a command for this place."""
        return ["--config", str(self.config), "--root", str(self.root), *words]

    def run(self, *words: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command for this place in this process, which is quicker."""
        data = (stdin.encode(), b"", b"")
        streams = [io.TextIOWrapper(io.BytesIO(text), "utf-8") for text in data]
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("NFTBAN_")]:
                patch.delenv(name)
            for name, value in (self.environ | more).items():
                patch.setenv(name, value)
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            code = main(self.words(*words))
        for stream in streams:
            stream.seek(0)
        _, out, err = (stream.read() for stream in streams)
        return subprocess.CompletedProcess(words, code, out, err)

    def run_apart(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command for this place in a process of its own."""
        options = {"capture_output": True, "stdin": subprocess.DEVNULL} | options
        return command.run(self.words(*words), text=True, env=self.environ, **options)

    def run_new(self, words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in a new interpreter or shell."""
        options = {"env": self.environ} | options
        return subprocess.run(words, capture_output=True, text=True, check=False, **options)

    def mail(self, *words: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run `spooldeck mail`."""
        return self.run("mail", *words, stdin=stdin, **more)

    def work(self, times: int = 1) -> subprocess.CompletedProcess[str]:
        """Run one task, so often; the last run is returned."""
        return [self.run("queue", "process-next") for _ in range(times)][-1]

    def json(self, *words: str, **more: str) -> Any:
        """What a command prints with --json."""
        return json.loads(self.run(*words, "--json", **more).stdout)

    def setup(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `spooldeck mail setup` for the configuration folder `etc`."""
        return self.mail("setup", *words, **({"NFTBAN_CONFIG_DIR": str(self.etc)} | more))

    def store(self) -> NftbanStore:
        """Its store."""
        return NftbanStore(self.queue)

    def tasks(self) -> list[Task]:
        """Its tasks, in any state."""
        with closing(self.store()) as store:
            return [t for t in store.scan(store.states.values()) if isinstance(t, Task)]

    def task(self) -> Task:
        """Its only task."""
        (task,) = self.tasks()
        return task

    def take(self) -> Task:
        """Claim the next task."""
        with closing(self.store()) as store:
            (task,) = store.take(2_000_000_000, "test", 1)
        return task

    def swap(self, old: Task | None, new: Task | None) -> None:
        """Change a task."""
        with closing(self.store()) as store:
            store.swap(old, new)

    def lines(self) -> list[str]:
        """The lines of the mail log, masked, without those that only this project writes."""
        lines = self.log.read_text().splitlines()
        return masked([line for line in lines if "MAIL_SEND_SAID" not in line])

    @property
    def spooled(self) -> list[Path]:
        """The folders in the mail spool."""
        return sorted(self.mails.iterdir())

    def break_spool(self) -> None:
        """Put a file in the place of the mail spool."""
        self.mails.rmdir()
        self.mails.write_text("in the way")

    def spool(self, text: str = "hello\n", task: bool = True, old: float = 3600) -> str:
        """Spool a mail, made so many seconds ago, with its task or without; returns its id."""
        made, token = time.time() - old, os.urandom(4).hex()
        ident = f"mail-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(made))}-{token}"
        folder = self.mails / ident
        folder.mkdir(mode=0o750)
        (folder / "body.txt").write_text(text)
        meta = {
            "MAIL_TO": "admin@example.com",
            "MAIL_SUBJECT": "[ALERT] Service failed",
            "MAIL_BODY_FILE": f"{folder}/body.txt",
            "MAIL_CREATED_EPOCH": str(int(made)),
        }
        (folder / "meta.sh").write_bytes(files.format_assignments(meta))
        for file in folder.iterdir():
            file.chmod(0o640)
        if task:
            self.swap(None, verbs.enqueue("mail_send", made, token, "", self.meta(ident)))
        return ident

    def meta(self, ident: str) -> str:
        """The payload of a spooled mail's task."""
        return f"{self.mails}/{ident}/meta.sh"

    def change(self, verb: str, **values: object) -> None:
        """Do a verb to its only task."""
        if verb == "bury":
            task = self.take()
            self.swap(task, verbs.give_up_task(task, "no use"))
        else:
            task = self.task()
            self.swap(task, verbs.VERBS[verb].function(task, 2_000_000_000, **values))


@pytest.fixture
def place(tmp_path: Path) -> MailPlace:
    """A queue with a mail spool, and no transport."""
    return MailPlace(tmp_path)


def golden(first: int, last: int, changes: dict[str, str] | None = None) -> list[str]:
    """Lines of the contract's mail log, counted from 1, with some words replaced."""
    text = "\n".join((GOLDEN / "mail.log").read_text().splitlines()[first - 1 : last])
    for old, new in (changes or {}).items():
        text = text.replace(old, new)
    return masked(text.splitlines())


def read(data: bytes) -> tuple[EmailMessage, str]:
    """A mail and its plain text, as its reader sees them."""
    message: Any = email.message_from_bytes(data, policy=email.policy.default)
    return message, message.get_body(("plain",)).get_content()


# ---- send, send-with-retry


@pytest.mark.parametrize("name", ["curl", "msmtp"])
def test_send_with_retry_delivers_or_spools(place: MailPlace, name: str) -> None:
    """Refused twice the mail is delivered at the third attempt; with the server down it is spooled
    and queued with exit 1, and a worker delivers it once. The log is the contract's."""
    words = ("mail", "send-with-retry")
    with place.served(name, rcpt=["450 4.2.1 try again later"] * 2) as server:
        run = place.run_apart(*words, "it is back", "admin@example.com", "Caf\xe9: [ALERT]")
    submitted = "Email submitted to transport for: admin@example.com (delivery not confirmed)\n"
    assert (run.returncode, run.stderr, run.stdout) == (0, "", f"✓ {submitted}")
    (mail,) = server.mails
    assert (mail.sender, mail.recipients) == ("queue@example.org", ("admin@example.com",))
    message, text = read(mail.data)
    assert (message["Subject"], message["To"]) == ("Caf\xe9: [ALERT]", "admin@example.com")
    assert "it is back" in text
    busy = {"sendmail": name, "send_failed_rc_1": "unavailable_450"}
    delivered = golden(14, 20, busy) + golden(2, 2, busy | {"attempt=1": "attempt=3"})
    assert (place.lines(), place.tasks(), place.spooled) == (delivered, [], [])

    with place.unserved(name) as port:
        run = place.run(*words, "it broke\n", "admin@example.com")
    task, (spooled,) = place.task(), place.spooled
    with Server(port=port) as server:
        works = [place.run_apart("queue", "work", "--until-idle").stderr for _ in range(2)]
    assert (run.returncode, run.stdout) == (1, f"Mail spooled for later delivery: {task.id}\n")
    assert task.payload == place.meta(spooled.name)
    assert task.description == "Spooled mail to admin_..."
    assert "1 done, 0 failed" in works[0] and "0 done, 0 failed" in works[1]
    (mail,) = server.mails
    message, _ = read(mail.data)
    assert message["Subject"] == "spooldeck Alert" and spooled.name in message["Message-ID"]
    assert (place.tasks(), place.spooled) == ([], [])
    down = {"sendmail": name, "send_failed_rc_1": "connect_refused"}
    ended = golden(14, 21, down) + golden(23, 24, down)
    by_task = golden(1, 2, {"inline": TASK, "sendmail": name})
    assert place.lines() == [*delivered, *ended, *by_task]
    prom = (place.root / "metrics" / "mail.prom").read_text()
    assert f'nftban_mail_send_success_total{{transport="{name}"}} 2' in prom
    assert "nftban_mail_spool_depth 0" in prom
    records = (place.root / "mail" / "delivery.jsonl").read_text().splitlines()
    entries = [json.loads(record) for record in records]
    assert [one["result"] for one in entries] == ["success", "failed", "spooled", "success"]
    assert {(one["transport"], one["recipient"]) for one in entries} == {(name, "admin@…")}


def test_without_a_transport_mail_is_spooled_and_waits(place: MailPlace) -> None:
    """No attempt is made; the task waits for a transport, unclaimed, and a worker says why."""
    run = place.mail("send-with-retry", "hello", "carol@example.com")
    worked = place.run_apart("queue", "process-next")
    task = place.task()
    assert (run.returncode, run.stdout) == (1, f"Mail spooled for later delivery: {task.id}\n")
    assert place.lines() == golden(25, 26)
    queued = masked((place.root / "log" / "queue.log").read_text().splitlines())[0]
    text = "Spooled mail to carol_..."
    assert queued == f"[STAMP] [INFO] Task queued: {TASK} (mail_send: {text})"
    assert (worked.returncode, "no mail transport" in worked.stderr) == (1, True)
    assert (task.state, task.attempts) == (State.PENDING, 0)


@each(
    ("name", "value"),
    [
        ("NFTBAN_MAIL_METHOD", "smtp"),
        ("NFTBAN_MAIL_METHOD", "memory"),
        ("NFTBAN_SMTP_PORT", "abc"),
        ("NFTBAN_MAIL_RETRY_BACKOFF", "5s"),
        ("NFTBAN_MAIL_ALLOWED_PATHS", "reports"),
    ],
    place=MailPlace,
)
def test_a_wrong_setting_loses_no_mail(place: MailPlace, name: str, value: str) -> None:
    """It is spooled, caller and log get the reason; with the setting corrected it is delivered."""
    run = place.mail("send-with-retry", "the disk is full", TO, **{name: value})
    waiting, task = place.run("queue", "process-next", **{name: value}), place.task()
    with place.served() as server:
        place.work()
    assert (run.returncode, run.stdout) == (1, f"Mail spooled for later delivery: {task.id}\n")
    assert re.fullmatch("spooldeck: not sent: .*expected.*\n", run.stderr)
    log = place.lines()
    assert log[0].endswith("[ERROR] No mail system available, spooling for later")
    assert "[WARN] Nothing was attempted: " in log[1] and value in log[1]
    assert (waiting.returncode, task.state) == (1, State.PENDING)
    assert [mail.recipients for mail in server.mails] == [(TO,)]


MEMORY = {"NFTBAN_MAIL_METHOD": "memory"}
NOT_SENT = "^✗ Failed to send email: .*"


@each(
    ("words", "settings", "code", "message"),
    [
        ("send -- hello a@b@example.com", {}, 1, f"{NOT_SENT}more than one @"),
        ("send -- /etc/hostname a@example.com", {}, 1, f"{NOT_SENT}outside the folders"),
        ("send -- hello", {}, 1, f"{NOT_SENT}no recipient is named, and none is configured"),
        *((f"{word}", {}, 64, "expected CONTENT") for word in ("send", "send-with-retry")),
        *((f"{word} --null x", {}, 64, "--null: ") for word in ("send", "send-with-retry")),
        *((f"{word} --null", {}, 64, "expected RECIPIENT") for word in ("send", "send-with-retry")),
        ("send hello bad", {"LC_ALL": "C"}, 1, "^Failed to send email: "),
        ("send x a@b.c", MEMORY, 78, "memory would lose every mail"),
        ("status", MEMORY, 78, "memory would lose every mail"),
    ],
    place=MailPlace,
)
def test_mail_that_may_not_be_sent_is_one_line(
    place: MailPlace, words: str, settings: dict[str, str], code: int, message: str
) -> None:
    """One attempt refuses a wrong address or a foreign file; nothing is attempted or spooled."""
    run = place.mail(*shlex.split(words), **settings)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (code, "", 1)
    assert re.search(message, run.stderr)
    assert (place.spooled, place.tasks()) == ([], [])


@each(
    ("words", "settings", "to", "state"),
    [
        ("hello a@b@example.com", {}, "a@b@example.com", State.DEAD),
        ("hello ''", {"NFTBAN_MAIL_RECIPIENT": "root@localhost"}, "root@localhost", State.DEAD),
        ("hello", {}, "", State.DEAD),
        ("/etc/hostname a@example.com", {}, TO, State.DEAD),
        ("hello a@example.com", {"NFTBAN_QUEUE_MAX_RETRIES": "abc"}, TO, State.PENDING),
        ("'' a@example.com", {}, TO, State.PENDING),
    ],
    place=MailPlace,
)
def test_send_with_retry_keeps_what_it_cannot_send(
    place: MailPlace, words: str, settings: dict[str, str], to: str, state: State
) -> None:
    """Exit 1 means kept; what no attempt can send becomes dead at its first run."""
    run = place.mail("send-with-retry", *shlex.split(words), **settings)
    with place.unserved():
        place.work()
    task, row = place.task(), place.json("mail", "spool", "list")
    assert (run.returncode, run.stderr.count("\n"), task.state) == (1, 1, state)
    assert (row["to"], row["task"]) == (to, task.id)


def test_a_broken_configuration_file_loses_no_mail(place: MailPlace) -> None:
    """It is kept by what is valid of the file, and sent later; another command is refused."""
    place.config.write_text(f"queue: {{mail_spool: {place.mails}, max_retries: x}}\n")
    kept = [place.mail("send-with-retry", "one", TO)]
    place.config.write_text("queue: [\n")
    kept.append(place.mail("send-with-retry", "two", TO))
    other = place.mail("send", "three", TO)
    place.config.write_text("nonsense: 1\n")
    place.config.chmod(0o666)
    kept.append(place.mail("send-with-retry", "four", TO))
    place.config.chmod(0o600)
    place.config.write_text(YAML)
    with place.served() as server:
        place.work(3)
    assert [run.returncode for run in (*kept, other)] == [1, 1, 1, 78]
    assert "queue.max_retries: expected " in kept[0].stderr
    text = f"spooldeck: mail is kept in {place.mails} and not sent: "
    assert all(run.stderr.startswith(text) for run in kept)
    assert "Nothing was attempted: " in "\n".join(place.lines())
    assert sorted(read(mail.data)[1].strip() for mail in server.mails) == ["four", "one", "two"]


def test_words_from_standard_input_have_no_limit(place: MailPlace) -> None:
    """With --null, recipients, subject and content come by standard input; exit 3: kept."""
    words = f"{TO},b@example.com\0Disk\0{'x' * 200_000}"
    with place.served(rcpt=["", "550 5.1.1 no"]) as server:
        run = place.mail("send-with-retry", "--null", stdin=words)
    ((headers, text),) = (read(mail.data) for mail in server.mails)
    assert (run.returncode, headers["To"], headers["Subject"]) == (3, TO, "Disk")
    assert text.count("x") >= 200_000
    assert len(place.tasks()) == 1


def test_a_closed_standard_input_is_an_empty_mail(place: MailPlace) -> None:
    """`mail send -` with its input closed by the shell sends a mail with a subject and no text."""
    argv = [*COMMAND, *place.words("mail", "send", "-", TO, "--subject", "alert")]
    with place.served() as server:
        closed = place.run_new(["bash", "-c", 'exec "$@" <&-', "bash", *argv])
    assert (closed.returncode, closed.stderr) == (0, "")
    assert [read(mail.data)[0]["Subject"] for mail in server.mails] == ["alert"]


def test_a_lost_mail_is_reported_and_in_syslog(place: MailPlace) -> None:
    """A file in the place of the spool is exit 74 (with --null 79) with the reason, and no task is
    made. What is neither sent nor kept becomes an alert with its subject, also without a place."""
    place.break_spool()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(path := str(place.folder / "log"))
        place.config.write_text(f"queue: {{root: {place.root}, syslog: {path}}}\n")
        run = place.mail("send-with-retry", "hello", TO, "disk full")
        line = syslog.recv(4096).decode()
        null = place.mail("send-with-retry", "--null", stdin=f"{TO}\0full\0hello")
        syslog.recv(4096)
        place.config.write_text(f"queue: {{root: {place.root}, syslog: {path}, x: 1}}\n")
        place.mail("send-with-retry", "hello", TO, "disk full")
        fault, lost = (syslog.recv(4096).decode() for _ in range(2))
    assert (run.returncode, run.stdout, place.tasks()) == (74, "", [])
    assert (null.returncode, null.stderr) == (79, run.stderr)
    assert run.stderr.startswith("✗ Failed to send email: no_transport_available: ")
    assert f"; mail to {TO} lost, cannot spool it: " in run.stderr
    assert f"{place.mails}: mailspool is a symbolic link or not a folder" in run.stderr
    assert "if the spool is elsewhere, set NFTBAN_MAIL_SPOOL_DIR" in run.stderr
    text = "mail lost, neither sent nor kept: disk full (to a@...): "
    assert line.startswith("<9>") and f"{text}no_transport_available: " in line
    assert "nftban-queue" in line and text in lost
    assert f"mail is kept in {place.mails} and not sent: " in fault
    assert "queue.x: unknown key" in fault


def test_unknown_refusals_are_not_shown_as_none(place: MailPlace) -> None:
    """If the delivery records cannot be read, `status` shows `?` with the reason, in JSON null."""
    place.mail("send-with-retry", "x", "root@localhost", NFTBAN_MAIL_METHOD="curl")
    (records,) = place.folder.rglob("delivery.jsonl")
    known = place.json("status")["mail"]["refused_or_lost"]
    records.unlink()
    records.symlink_to(records)
    assert (known, place.json("status")["mail"]["refused_or_lost"]) == (1, None)
    why = "delivery records cannot be read: Too many levels of symbolic links"
    assert f"mail      ? refused or lost: {why}\n" in place.run("status").stdout


@each("runs", [0, 1], place=MailPlace)
def test_a_mended_mail_is_no_refused_one(place: MailPlace, runs: int) -> None:
    """After `mail spool retry --to` the alert of a refused mail goes; that of another stays."""
    for _ in range(2):
        place.mail("send-with-retry", "x", "root@localhost", NFTBAN_MAIL_METHOD="curl")
    for _ in range(2 * runs):
        place.work()
    mended = place.mail("spool", "retry", place.spooled[0].name, "--to", "ops@example.com")
    left = place.json("status")["mail"]["refused_or_lost"]
    assert (mended.returncode, left) == (0, 1), mended.stderr


SECRET = "redis://user:secret@host/0"


@each(
    ("words", "is_refused"),
    [
        (f"send {SECRET} {TO}", False),
        (f"send --subject {SECRET} -- -x {TO}", False),
        (f"send --subject={SECRET} - {TO}", False),
        (f"send-with-retry {SECRET} {SECRET} {SECRET} --literal", False),
        (f"send x {SECRET}", True),
        (f"send --subject S x {TO} {SECRET}", True),
        (f"send-with-retry x {TO} S {SECRET}", True),
        (f"send-with-retry x {TO} S --root a --root={SECRET}", True),
        (f"send-with-retry x {TO} --frob={SECRET}", True),
        (f"send-with-retry x {TO} S -- {SECRET}", True),
    ],
    place=MailPlace,
)
def test_only_mail_texts_may_have_passwords(place: MailPlace, words: str, is_refused: bool) -> None:
    """In a mail a URL with a password is text; elsewhere it is refused and not repeated."""
    run = place.mail(*words.split())
    assert (run.returncode == 64) is is_refused, run.stderr
    assert ("password on the command line" in run.stderr) is is_refused
    assert not is_refused or "secret" not in run.stderr + run.stdout


def test_a_lost_mail_of_a_list_hides_no_other_result(place: MailPlace) -> None:
    """Each loss is printed and in syslog once: the caller knows which mails to repeat."""
    place.break_spool()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog,
        place.served(rcpt=["550 5.1.1 no", "", "550 5.1.1 no"]),
    ):
        syslog.bind(path := str(place.folder / "log"))
        place.config.write_text(f"queue: {{root: {place.root}, syslog: {path}}}\n{YAML}")
        run = place.mail("send-with-retry", "x", f"{TO},b@example.com,c@example.com", "full")
        json_run = place.mail("send-with-retry", "x", "d@example.com", "full", "--json")
        lines = [syslog.recv(4096).decode() for _ in range(2)]
    assert (run.returncode, json_run.returncode) == (74, 0)
    assert run.stdout.count("\n") == 1 and "b@example.com" in run.stdout
    assert [f"mail to {to} lost" in run.stderr for to in (TO, "c@example.com")] == [True, True]
    assert ["full (to a@...): " in lines[0], "full (to c@...): " in lines[1]] == [True, True]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_the_mail_is_spooled(place: MailPlace, number: signal.Signals) -> None:
    """Interrupted between two attempts, `send-with-retry` spools and queues the mail."""
    place.environ["NFTBAN_MAIL_RETRY_BACKOFF"] = "3600"
    # A test process started in the background ignores SIGINT.
    argv = ["env", f"--default-signal={number.name[3:]}", *COMMAND]
    argv += place.words("mail", "send-with-retry", "hello", TO)
    with (
        place.unserved(),
        subprocess.Popen(argv, env=place.environ, stdout=-1, stderr=-1, text=True) as run,
    ):
        with closing(FolderEventSource([str(place.log.parent)])) as events:
            while run.poll() is None and not (
                place.log.exists() and "Retrying in" in place.log.read_text()
            ):
                events.wait(0.1)
        run.send_signal(number)
        out, _ = run.communicate(timeout=30)
    assert (run.returncode, len(place.spooled)) == (1, 1)
    assert out == f"Mail spooled for later delivery: {place.task().id}\n"


def test_a_signal_ends_a_pause_before_its_handler_runs() -> None:
    """A signal just before a pause, whose handler runs only after it, ends the pause."""

    def hung(*_: object) -> None:
        raise TimeoutError("the pause went on")

    with mail_command._interruptible() as stop:
        signal.signal(signal.SIGTERM, lambda *_: None)  # in place of a handler that has not run yet
        before = signal.signal(signal.SIGALRM, hung)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.alarm(20)
        try:
            stop.pause(3600)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)


def test_with_a_full_queue_the_mail_is_kept_in_the_spool(place: MailPlace) -> None:
    """The path of the mail is printed, and a command that queues it from any folder."""
    place.run("queue", "add", "report")
    run = place.mail("send-with-retry", "hello", TO, NFTBAN_QUEUE_MAX_PENDING="1")
    (folder,) = place.spooled
    assert (run.returncode, run.stdout) == (1, "")
    assert f"Queue not available, mail saved to spool: {folder}" in run.stderr
    match = re.search(r"`spooldeck (.*)` queues it", run.stderr)
    assert match and match[1].endswith(f"mail spool retry {folder.name}")
    words = shlex.split(match[1])
    queued = command.run(words, env=place.environ, capture_output=True, text=True)
    assert (queued.returncode, queued.stderr) == (0, "")
    assert place.meta(folder.name) in [task.payload for task in place.tasks()]
    assert not (folder / "unqueued").exists()


@each("words", ["queue process-next", "queue recover"], place=MailPlace)
def test_a_mail_whose_sender_was_killed_gets_its_task(place: MailPlace, words: str) -> None:
    """A mail spooled by a sender that never made its task is queued and logged by the next run."""
    ident = place.spool(task=False)
    mark = Path(place.meta(ident)).with_name("queuing")
    mark.write_text("SINCE='1'\n")
    os.utime(mark, (1, 1))
    place.run(*words.split())
    task, log = place.task(), (place.root / "log/queue.log").read_text()
    assert (task.payload, mark.exists()) == (place.meta(ident), False)
    assert f"[INFO] Task queued: {task.id} (mail_send: " in log
    assert f"[WARN] Mail spool: {ident} had no task, queued as {task.id}\n" in log


def test_on_a_terminal_each_failed_attempt_is_shown(place: MailPlace) -> None:
    """A line for each attempt that another one follows; without a terminal only the last."""
    words = ("mail", "send-with-retry", "hello", TO)
    our_end, terminal = os.openpty()
    with place.unserved():
        quiet = place.run(*words)
        place.run_apart(*words, capture_output=False, stderr=terminal)
    os.close(terminal)
    lines = os.read(our_end, 65536).decode().splitlines()
    os.close(our_end)
    assert quiet.stderr.count("\n") == 1
    shown = "spooldeck: attempt {} of 3 by curl failed: connect_refused; again in 0 s"
    assert lines[:-1] == [shown.format(n) for n in (1, 2)]


def test_a_permanent_refusal_is_tried_once_and_ends_in_the_dlq(place: MailPlace) -> None:
    """A 5xx is not repeated: one attempt, and the first run of its task ends in the DLQ."""
    with place.served(rcpt="550 5.1.1 no such user") as server:
        run = place.mail("send-with-retry", "hello", "gone@example.com")
        connections = server.connections
        place.work()
    task = place.task()
    assert (run.returncode, connections, server.connections) == (1, 1, 1)
    assert "refused permanently: " in run.stderr and "no such user" in run.stderr
    assert run.stdout == f"Mail kept in the spool, its task goes to the DLQ: {task.id}\n"
    assert (task.state, task.error[:12]) == (State.DEAD, "rejected_550")


@each("word", ["send", "send-with-retry"], place=MailPlace)
def test_a_mail_that_may_have_arrived_is_not_called_unsent(place: MailPlace, word: str) -> None:
    """If the connection breaks after the mail was handed over, a second copy is warned of."""
    with place.served(body=DROP):
        run = place.mail(word, "hello", TO, NFTBAN_MAIL_RETRY_ATTEMPTS="1")
    assert run.returncode == 1
    assert "may have been accepted; another attempt may deliver it twice" in run.stderr
    assert "not sent:" not in run.stderr


def test_an_accepted_mail_is_exit_0_though_output_fails(place: MailPlace) -> None:
    """With a full disk behind standard output, or a locale without ✓, it is not sent again."""
    words = ("mail", "send", "hello", TO)
    with place.served() as server, Path("/dev/full").open("w") as full:
        lost = place.run_apart(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        place.environ["PYTHONIOENCODING"] = "ascii"
        plain = place.run_new([*COMMAND, *place.words(*words)])
    assert (lost.returncode, plain.returncode, len(server.mails)) == (0, 0, 2)
    assert "cannot write the output: No space left on device" in lost.stderr
    assert (plain.stderr, plain.stdout[:16]) == ("", "Email submitted ")


def test_send_makes_one_attempt(place: MailPlace) -> None:
    """Failure is one line and exit 1; `-` reads a text, never a path, up to the largest size."""
    with place.served(rcpt=["450 4.2.1 later"]) as server:
        failed = place.mail("send", "hello", "admin@example.com")
        sent = place.mail("send", "hello", "--subject", "mine", NFTBAN_MAIL_RECIPIENT=TO)
        typed = place.mail("send", "-", TO, stdin="/etc/hostname\n")
        much = place.mail("send", "-", TO, stdin="x" * 1025, NFTBAN_MAIL_MAX_FILE_SIZE="1")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("✗ Failed to send email: unavailable_450: ")
    assert (sent.returncode, sent.stderr, typed.returncode, much.returncode) == (0, "", 0, 1)
    assert "expected at most 1,024" in much.stderr
    first, second = server.mails
    assert (read(first.data)[0]["Subject"], first.recipients) == ("mine", (TO,))
    assert "/etc/hostname" in read(second.data)[1]
    assert (place.tasks(), place.spooled) == ([], [])


def test_root_sends_as_the_owner_of_the_queue() -> None:
    """A mail of another user's queue is handed over with that user's rights, not root's."""
    needs_root("only root can give a folder away")
    with tempfile.TemporaryDirectory() as name:  # other users cannot enter a test's own folder
        (folder := Path(name)).chmod(0o755)
        place, who = MailPlace(folder), folder / "who"
        program = a_script(folder / "sendmail", f"cat >/dev/null; id -u >>{who}")
        who.touch()
        who.chmod(0o666)
        place.config.write_text(f"mail: {{programs: {{sendmail: {program}}}}}\n")
        os.chown(place.root / "queue" / "pending", 65534, 65534)
        run = place.mail("send", "hello", TO, NFTBAN_MAIL_METHOD="sendmail")
        assert (run.returncode, who.read_text()) == (0, "65534\n"), run.stderr


# ---- test, status


def test_a_test_mail_prints_each_step(place: MailPlace) -> None:
    """Recipient, transport, subject and result; a dry run sends nothing."""
    with place.served(rcpt=["", "450 4.2.1 later"]) as server:
        runs = [place.mail("test", TO, *words) for words in (["--dry-run"], [], [])]
    steps = [[line.split()[0] for line in run.stdout.splitlines()] for run in runs]
    same = ["recipient", "transport", "subject"]
    assert steps == [[*same, "dry"], [*same, "accepted"], [*same, "failed"]]
    assert [run.returncode for run in runs] == [0, 0, 1]
    assert "unavailable_450" in runs[2].stdout
    (mail,) = server.mails
    assert read(mail.data)[0]["Subject"].startswith("spooldeck test from ")


def test_mail_status(place: MailPlace) -> None:
    """Exit 1 without a transport, 2 if it is suspended; `mail test --transport` tries that one."""
    nothing = place.mail("status")
    with place.served() as server:
        place.mail("send", "hello", TO)
        place.spool()
        healthy = place.mail("status")
        place.mail("suspend", "curl", "full")
        shut = place.mail("status", "--json")
        tried = place.mail("test", TO, "--transport", "curl", NFTBAN_MAIL_METHOD="")
    assert (nothing.returncode, healthy.returncode, shut.returncode) == (1, 0, 2)
    assert f"transport  curl to {HOST}:{server.port}" in healthy.stdout
    assert "spool      1 mail, the oldest for 1h00m" in healthy.stdout
    answer = json.loads(shut.stdout)
    curl = answer["transports"]["curl"]
    assert (answer["transport"], curl["attempts"], curl["success"]) == (None, 1, 1)
    assert curl["suspended"]["why"] == "full"
    for name in ("msmtp", "mailx"):
        assert answer["transports"][name]["why_not"] == "another method is forced: curl"
    assert (tried.returncode, len(server.mails)) == (0, 2), tried.stdout
    assert f"though suspended by {US} since" in tried.stdout


def test_mail_status_with_files_missing_or_replaced(place: MailPlace) -> None:
    """No link is followed, no FIFO waited for; the rest is printed, with the way out."""
    counters = place.root / "metrics" / "counters"
    (place.folder / "secret").write_text("hunter2\n")
    (counters / "mail_last_failure_ts").write_text("1795170000\n")
    reason = counters / "mail_last_failure_reason"
    reason.symlink_to(place.folder / "secret")
    link = place.mail("status")
    reason.unlink()
    os.mkfifo(reason)
    fifo = place.mail("status")
    reason.unlink()
    reason.write_text("timeout\n")
    plain = place.mail("status")
    assert "hunter2" not in link.stdout + link.stderr
    assert "mail_last_failure_reason: " in link.stderr and "not a regular file" in fifo.stderr
    assert ": timeout" in plain.stdout and plain.stderr == ""

    elsewhere = place.mails.rename(place.folder / "elsewhere")
    place.mails.symlink_to(elsewhere)
    with place.served():
        run, answer = place.mail("status"), place.json("mail", "status")
        named = place.mail("status", NFTBAN_MAIL_SPOOL_DIR=str(elsewhere))
    assert run.returncode == 2
    assert "transport  curl" in run.stdout and "attempts" in run.stdout
    assert f"spool      cannot be read: {place.mails}: " in run.stdout
    assert "NFTBAN_MAIL_SPOOL_DIR" in run.stdout
    assert (answer["spool"], list(answer["problems"])) == (None, ["spool"])
    assert (named.returncode, "spool      empty" in named.stdout) == (0, True)

    shutil.rmtree(place.root / "queue")
    gone = f"queue      {place.root}: no queue, expected the folders"
    assert place.mail("status").stdout.startswith(gone)
    assert place.json("mail", "status")["queue_problem"]


def test_a_transport_that_does_not_run_is_exit_2(place: MailPlace) -> None:
    """An installed transport that is stopped is named, in words and in the exit code of status."""
    why = {"curl": Unused(Cause.ABSENT, "no relay is configured")}
    both = why | {"postfix": Unused(Cause.STOPPED, "Postfix is not running")}
    reasons = [describe_no_transport(MailSettings(), unused, {}) for unused in (both, why)]
    stopped = "no mail transport: postfix: Postfix is not running"
    assert reasons == [stopped, "no mail transport is set up"]
    program = a_script(place.folder / "sendmail", "")
    place.config.write_text(f"mail: {{programs: {{postfix: {program}, sendmail: {program}}}}}\n")
    place.environ["NFTBAN_MAIL_METHOD"] = ""
    chosen = place.json("mail", "status")["transport"]
    assert place.mail("status").returncode == (0 if chosen else 2)


# ---- suspend, resume


def test_a_suspended_transport_sends_nothing_until_it_is_resumed(place: MailPlace) -> None:
    """New mail is spooled and tasks wait with the reason; the metrics follow each step."""
    prom = place.root / "metrics" / "mail.prom"
    selected = []

    def note_selected() -> None:
        matches = re.findall(r'_transport_selected{transport="(\w+)"} 1', prom.read_text())
        selected.append(set(matches) - {"none"})
        assert f"nftban_mail_spool_depth {len(place.spooled)}\n" in prom.read_text()

    with place.served() as server:
        place.spool()
        suspended = place.mail("suspend", "curl", "relay moves")
        again = place.mail("suspend", "curl")
        note_selected()
        ended = place.mail("send-with-retry", "hello", TO)
        prom.unlink()
        waits = place.run_apart("queue", "process-next")
        note_selected()
        attempts, before = {task.attempts for task in place.tasks()}, list(server.mails)
        resumed = place.mail("resume", "curl")
        note_selected()
        place.run_apart("queue", "work", "--until-idle")
    assert suspended.stdout.startswith("curl suspended: nothing is sent, spooled mail waits")
    assert re.match(rf"curl was already suspended by {US} since .*: relay moves: ", again.stdout)
    assert (ended.returncode, waits.returncode, attempts, before) == (1, 1, {0}, [])
    assert f"no mail transport: curl suspended by {US}" in waits.stderr
    assert resumed.stdout == "curl resumed: mail goes by curl\n"
    assert (len(server.mails), place.tasks()) == (2, [])
    assert place.lines()[0] == f"[STAMP] [INFO] Transport curl suspended by {US}: relay moves"
    assert selected == [set(), set(), {"curl"}]


def test_suspend_and_resume_are_in_the_journal(place: MailPlace) -> None:
    """With user, time, reason and the state before; a command that changed nothing is not there."""
    for words in ("suspend curl 'ask bob@example.com'", "suspend curl again", *["resume curl"] * 2):
        place.mail(*shlex.split(words))
    resumed, suspended = map(json.loads, place.run("journal", "--json").stdout.splitlines())
    for one, value in ((suspended, "suspended"), (resumed, "resumed")):
        assert (one["verb"], one["who"]["user"], one["standing"]) == ("control", US, "done")
        assert one["values"].items() >= {"target": "curl", "value": value}.items()
        assert (one["planned"], one["when"] <= one["ended"]) == (0, True)
    assert (suspended["reason"], resumed["reason"]) == ("ask ...@example.com", "")
    undone = [place.run("undo", one["op"], "--dry-run").stderr for one in (suspended, resumed)]
    assert "run the control to set it back: transport curl was not suspended before" in undone[0]
    text = rf"transport curl was suspended by {US} since .* \(ask ...@example.com\) before"
    assert re.search(text, undone[1])
    lines = place.run("journal").stdout.splitlines()
    assert "| control | resume curl | done" in lines[0]
    assert "| control | suspend curl | done | reason ask ...@example.com" in lines[1]
    assert f"Transport curl resumed by {US}" in place.run("journal", resumed["op"]).stdout


def test_suspend_that_is_refused(place: MailPlace) -> None:
    """Without a required reason 64; without a file or a journal nothing is suspended."""
    place.config.write_text("require_reason: true\n")
    without = place.mail("suspend", "curl")
    given = [place.mail(*words.split()).returncode for words in ("suspend curl x", "resume curl")]
    place.config.write_text(YAML)
    (place.staging / "suspended.lock").unlink(missing_ok=True)
    (place.staging / "suspended.lock").mkdir()
    unwritable = place.mail("suspend", "curl")
    last = json.loads(place.run("journal", "--json").stdout.splitlines()[0])
    shutil.rmtree(place.staging / "journal")
    (place.staging / "journal").write_text("in the way")
    unrecorded = place.mail("suspend", "curl")
    assert (without.returncode, given) == (64, [0, 0])
    assert "expected a REASON" in without.stderr
    assert unwritable.returncode in (74, 77)
    assert unwritable.stderr.startswith(f"spooldeck: {place.staging}/suspended: ")
    (note,) = last["notes"]
    assert (note["what"], last["values"]["target"]) == ("not done", "curl")
    assert (unrecorded.returncode, "the journal in " in unrecorded.stderr) == (69, True)
    assert Suspensions(f"{place.staging}/suspended").read() == {}


def test_a_damaged_list_of_suspensions_suspends_all_and_loses_no_mail(place: MailPlace) -> None:
    """Nothing is sent, mail is spooled, and each command names the file."""
    path = place.staging / "suspended"
    path.write_text('{"curl": {"since": NaN}}')
    with place.served() as server:
        send, mail_status = place.mail("send", "hello", TO), place.mail("status")
        spooled = place.mail("send-with-retry", "hello", TO)
    doctor, status = place.run("doctor"), place.run("status")
    assert (send.returncode, mail_status.returncode, server.mails) == (1, 78, [])
    assert "suspended" in send.stderr
    assert "Mail spooled for later delivery" in spooled.stderr + spooled.stdout
    assert len(place.spooled) == 1
    assert f"{path}: " in doctor.stdout and f"fix: rm {path}" in doctor.stdout
    assert "no mail is sent: suspensions unreadable" in status.stdout
    for run in (send, mail_status, spooled, doctor, status):
        assert "Traceback" not in run.stderr


# ---- setup

NEW = "new@example.com"
BOTH = f'NFTBAN_MAIL_ENABLED="YES"\nNFTBAN_MAIL_RECIPIENT="{NEW}"\n'


@pytest.fixture
def local(place: MailPlace) -> Path:
    """The file that `mail setup` writes, in an empty folder."""
    (place.etc / "conf.d").mkdir(parents=True)
    return place.etc / "conf.d" / "mail.conf.local"


def test_mail_setup_writes_the_contracts_lines(place: MailPlace, local: Path) -> None:
    """Enabled, the recipient, with --all the four triggers; mode 640, and no other file."""
    run = place.setup(TO, "--all")
    lines = [line for line in local.read_text().splitlines() if not line.startswith("#")]
    assert (run.returncode, run.stderr, run.stdout) == (0, "", f"wrote {local}\n")
    triggers = ("ON_HEALTH_CRITICAL", "DAILY_REPORT", "ON_BAN", "ON_LOGIN_ALERT")
    assert lines == [
        'NFTBAN_MAIL_ENABLED="YES"',
        f'NFTBAN_MAIL_RECIPIENT="{TO}"',
        *(f'NFTBAN_MAIL_{name}="YES"' for name in triggers),
    ]
    assert (local.stat().st_mode & 0o777, list(local.parent.iterdir())) == (0o640, [local])


def test_mail_setup_keeps_other_lines_modes_and_a_copy(place: MailPlace, local: Path) -> None:
    """Only two values change; the old file is kept for its owner; no password is printed."""
    secret = 'NFTBAN_SMTP_PASS="hunter2"\n'
    before = f"{secret}export NFTBAN_MAIL_RECIPIENT=old@example.com # who\n"
    local.write_text(before)
    local.chmod(0o600)
    dry, untouched = place.setup(NEW, "--dry-run"), local.read_text()
    run, again = place.setup(NEW), place.setup(NEW)
    (copy,) = local.parent.glob("mail.conf.local.bak-*")
    assert (dry.returncode, run.returncode) == (0, 0)
    assert untouched == copy.read_text() == before
    assert "hunter2" not in dry.stdout and "(other lines that are kept: 1)" in dry.stdout
    assert f"backup: {copy}" in run.stdout
    assert local.read_text() == secret + BOTH
    assert "nothing was changed" in again.stdout
    modes = {path.stat().st_mode & 0o777 for path in (local, copy)}
    local.write_text("OTHER_PASS=$'a\\'b\nhunter2'\n")
    local.chmod(0o644)
    quoted = place.setup("other@example.com", "--dry-run")
    assert (quoted.returncode, "hunter2" in quoted.stdout + quoted.stderr) == (0, False)
    place.setup("other@example.com")
    copies = list(local.parent.glob("mail.conf.local.bak-*"))
    assert (modes, local.stat().st_mode & 0o777, len(copies)) == ({0o600}, 0o644, 2)
    assert {path.stat().st_mode & 0o777 for path in copies} == {0o600}


SHELL = 'eval "$(</dev/stdin)" >/dev/null 2>&1; echo $NFTBAN_MAIL_ENABLED,$NFTBAN_MAIL_RECIPIENT'


@pytest.mark.parametrize(
    "before",
    [
        "# a comment\u2028touch x\x0ctouch y\x85touch z\n",
        "if true; then\n NFTBAN_MAIL_ENABLED=NO\nfi\n",
        "if true; then\nNFTBAN_MAIL_ENABLED=NO\nfi",
        "NFTBAN_MAIL_RECIPIENT=old\\\ntouch\\ x\n",
        'FOO="a\nNFTBAN_MAIL_ENABLED=NO\nb"\n',
        "FOO=(\nNFTBAN_MAIL_ENABLED=NO\n)\n",
        "cat <<END\nNFTBAN_MAIL_ENABLED=NO\nEND\n",
        "A=1 \\\n",
        "A=1\u2028# x\nNFTBAN_MAIL_ENABLED=NO\n",
    ],
)
def test_mail_setup_appends_to_shell_code(place: MailPlace, local: Path, before: str) -> None:
    """Each line stays, the new lines are last and count for bash; the same again adds nothing."""
    local.write_bytes(before.encode())
    codes, files = [], []
    for _ in range(2):
        codes.append(place.setup(NEW).returncode)
        files.append(local.read_bytes().decode())
    after, bash = files[0], ["bash", "--norc", "-c", SHELL]
    means = place.run_new(bash, input=after, cwd=place.folder, env=None)
    assert codes == [0, 0]
    assert after.startswith(before) and after.endswith(BOTH)
    assert means.stdout == f"YES,{NEW}\n"
    assert after == files[1] or before.startswith("#")
    assert not (place.folder / "x").exists()


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ('OTHER="open\n', "syntax error"),
        (': "${A:=x\\}"\nNFTBAN_MAIL_ENABLED=NO\n: "${B:=}"\n', "syntax error"),
        ("cat <<END\nNFTBAN_MAIL_ENABLED=NO\n", "syntax error"),
        ("readonly X=1 NFTBAN_MAIL_RECIPIENT=old\n", "line 1: readonly"),
        ("A=$(id)\nreturn 0\n", "line 2: ends the file"),
    ],
)
def test_mail_setup_refuses_a_file_in_which_its_lines_would_not_count(
    place: MailPlace, local: Path, before: str, message: str
) -> None:
    """The file is not changed, and the one line on standard error quotes nothing of it."""
    local.write_text(before)
    run = place.setup(NEW)
    assert (run.returncode, run.stdout, local.read_text()) == (78, "", before)
    assert message in run.stderr and "repair it by hand first" in run.stderr
    assert run.stderr.count("\n") == 1


def test_mail_setup_refuses_or_warns(place: MailPlace) -> None:
    """A wrong address or folder is one line; a recipient of the environment is a warning."""
    for words in ([NEW], [NEW, "--dry-run"]):
        run = place.setup(*words)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (69, "", 1)
        assert "no such folder, expected the configuration of NFTBan" in run.stderr
    place.etc.mkdir()
    wrong, dry_run = place.setup("a$(id)@example.com"), place.setup(NEW, "--dry-run")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (64, "", 1)
    assert "expected one address" in wrong.stderr
    assert (dry_run.returncode, dry_run.stderr) == (0, "")
    for words in ([NEW, "--dry-run"], [NEW]):
        assert list(place.etc.iterdir()) == []
        run = place.setup(*words, NFTBAN_MAIL_RECIPIENT="old@example.com")
        assert (run.returncode, "still goes to old@example.com" in run.stderr) == (0, True)


# ---- the worker


def test_a_rate_limits_mail(place: MailPlace) -> None:
    """One token sends one of two mails; the worker knows when a transport gets its next token."""
    rates = "rates: {curl: {per_hour: 1, burst: 1}}"
    place.config.write_text(f"mail: {{plain_hosts: ['{HOST}'], {rates}}}\n")
    for _ in range(2):
        place.spool()
    with place.served() as server:
        run = place.run_apart("queue", "work", "--until-idle")
    message = "no token for transport curl for mail_send; next token "
    assert (run.returncode, message in run.stderr) == (0, True)
    assert len(server.mails) == len(place.tasks()) == len(place.spooled) == 1


def test_a_worker_checks_each_minute_how_mail_is_sent(place: MailPlace) -> None:
    """It sees a transport that was removed, one that was installed, and a changed setting."""
    program = place.folder / "sendmail"
    setup = setup_for(queue_config.Config(), str(place.root), {})
    settings = [MailSettings(method="sendmail", programs={"sendmail": str(program)})]
    now, messages = [0.0], list[str]()
    mailing = MailHandler(
        lambda: settings[0],
        setup.mail.registry,
        setup.mail.chooser,
        setup.mail.sender,
        setup.queue.mail_spool,
        is_ours=True,
        complain=messages.append,
        clock=lambda: now[0],
    )

    def check(seconds: float) -> None:
        now[0] += seconds
        messages.append(mailing.why_closed())

    a_script(program, "")
    check(0)
    program.unlink()
    check(RECHECK_SECONDS - 1)
    check(1)
    a_script(program, "")
    check(RECHECK_SECONDS)
    settings[0] = MailSettings(method="none")
    check(RECHECK_SECONDS)
    none = "no mail transport"
    assert [why[: len(none)] for why in messages] == ["", "", none, "", none]
    assert messages[-1].endswith("the method is none")


def test_mail_goes_by_the_settings_that_the_gate_has_seen(place: MailPlace) -> None:
    """Also if they changed while another thread made the sender for its first mail."""
    setup = setup_for(queue_config.Config(), str(place.root), {})
    settings, now, sent = [MailSettings(method="sendmail")], [0.0], list[str]()
    begun, may_end = threading.Event(), threading.Event()

    def post(chooser: TransportChooser) -> Any:
        begun.set()
        assert may_end.wait(30)
        return SimpleNamespace(deliver=lambda *args: sent.append(chooser.settings.method))

    mailing = MailHandler(
        lambda: settings[0],
        setup.mail.registry,
        setup.mail.chooser,
        post,
        setup.queue.mail_spool,
        is_ours=True,
        complain=pytest.fail,
        clock=lambda: now[0],
    )
    task = verbs.enqueue("mail_send", 0.0, "00000001")
    mailing.why_closed()
    first = threading.Thread(target=mailing, args=(task, Context()))
    first.start()
    assert begun.wait(30)
    settings[0], now[0] = MailSettings(method="mailx"), RECHECK_SECONDS
    mailing.why_closed()
    may_end.set()
    first.join()
    mailing(task, Context())
    assert sent == ["sendmail", "mailx"]


def test_without_due_mail_no_module_of_mail_is_imported(place: MailPlace) -> None:
    """A timer's run on other tasks costs no start of the mail transports."""
    code = "import sys; from tui.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    place.run("queue", "add", "feeds_sync")
    words = place.words("queue", "process-next")
    run = place.run_new([sys.executable, "-P", "-c", code, *words])
    assert run.returncode == 0 and "engine.work.worker" in run.stdout.split()
    mail = ("engine.mail.", "tui.cli.formats.nftban.mail.send.")
    assert not [name for name in run.stdout.split() if name.startswith(mail)]


def test_the_password_is_in_no_printed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line that another user is to type has the variables of mail, but no password."""
    monkeypatch.setenv("NFTBAN_SMTP_USER", "queue")
    monkeypatch.setenv("NFTBAN_SMTP_PASS", "hunter2")
    setup = setup_for(queue_config.Config(), "/nowhere", {}, ("status",))
    typed = setup.sudo_command("nftban")
    assert "NFTBAN_SMTP_USER=queue" in typed and "hunter2" not in typed


# ---- the doctor


def test_the_doctor_checks_mail(place: MailPlace) -> None:
    """Waiting mail without transport or task, a broken mail, a password others may read."""
    place.spool()
    environ = dict(place.environ)
    with place.served():
        output = place.run("doctor").stdout
    place.environ = environ
    states = {line.split()[1]: line.split()[0] for line in output.splitlines() if line[0] != " "}
    assert (states["mail"], states["spool"], states["kinds"]) == ("ok", "ok", "ok")
    lost, broken = place.spool(task=False), "mail-20260107T120102Z-broken"
    (place.mails / broken).mkdir()
    secret = place.folder / "secret"
    secret.write_text("x\n")
    secret.chmod(0o644)
    place.config.write_text(f"mail: {{relay: {{host: mx.example.com, password_file: {secret}}}}}\n")
    run = place.run("doctor")
    assert run.returncode == 1
    for text in (
        "warn  mail      1 mail waits, none can be sent: no mail transport",
        f"others may read {secret} (mode 0644)",
        f"{lost}: no task sends this mail",
        f"mail spool retry -- {lost}",
        f"{broken}: not a mail: ",
    ):
        assert text in run.stdout


def test_setup_without_nftban_writes_our_own_configuration(
    place: MailPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command sets the recipient of every queue, for every user; a dry run writes nothing."""
    own = tmp_path / "etc" / "spooldeck"
    own.parent.mkdir(mode=0o755)
    monkeypatch.setattr(nftban_variables, "CONFIG_DIR", str(tmp_path / "nftban"))
    monkeypatch.setattr(nftban_variables, "OWN_CONFIG_DIR", str(own))
    file = own / "conf.d" / "mail.conf.local"
    dry = place.mail("setup", "ops@example.com", "--dry-run")
    assert (dry.returncode, f"would write {file}" in dry.stdout) == (0, True)
    assert not own.exists()
    done = place.mail("setup", "ops@example.com")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"wrote {file}\n", "")
    modes = [oct(path.stat().st_mode & 0o777) for path in (own, file.parent, file)]
    assert modes == ["0o755", "0o755", "0o644"]
    assert "recipient  ops@example.com\n" in place.mail("status").stdout


def test_a_wrong_address_is_named_with_its_source(place: MailPlace, local: Path) -> None:
    """`status` is exit 2 with any transport; the doctor has the file with its line, the variable of
    the environment, or the key of the configuration."""
    with place.served():
        for name, value, line in (
            ("NFTBAN_MAIL_RECIPIENT", "foo,bar@x.de", "recipient  foo,bar@x.de: 'foo' has no dom"),
            ("NFTBAN_SENDER", "foo bar@x.de", "sender     'foo bar@...' contains a space"),
        ):
            run = place.mail("status", **{name: value})
            answer = place.json("mail", "status", **{name: value})
            assert (run.returncode, list(answer["problems"])) == (2, [line.split()[0]])
            assert line in run.stdout and "transport  curl" in run.stdout
    conf = local.with_name("mail.conf")
    conf.write_text('# mail\nNFTBAN_MAIL_RECIPIENT="foo,bar@x.de"\n')
    etc = {"NFTBAN_CONFIG_DIR": str(place.etc)}
    file = place.run("doctor", **etc).stdout
    environment = place.run("doctor", NFTBAN_MAIL_RECIPIENT="a b", **etc).stdout
    place.config.write_text("mail: {recipient: 'foo,bar@x.de'}\n")
    key = place.run("doctor").stdout
    assert f"{conf}: line 2: NFTBAN_MAIL_RECIPIENT: 'foo' has no domain" in file
    assert "environment: NFTBAN_MAIL_RECIPIENT: 'a b' contains" in environment
    assert "mail.recipient: 'foo' has no domain" in key and "correct mail.recipient" in key
