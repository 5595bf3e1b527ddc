"""Mail from the command line, by real programs to a real server on loopback."""

from __future__ import annotations

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
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine import config, files, verbs
from engine.inotify import Ear
from engine.mail.model import Cause, Unused
from engine.mail.suspended import Suspensions
from engine.mailconf import MailSettings
from engine.model import State, Task
from engine.stores.nftban import NftbanStore, Spool, make_spool
from tests import command
from tests.mail.programs import needs, needs_root
from tests.mail.smtpd import DROP, HOST, Server, refusing
from tui.cli import mail as mail_command
from tui.cli import main
from tui.cli.mailing import LOOK_AGAIN, Mailing, why_none
from tui.cli.wiring import Setup

COMMAND = [sys.executable, "-P", "-m", "tui.cli"]
GOLDEN = Path(__file__).parents[1] / "golden" / "nftban"
YAML = f"mail: {{plain_hosts: ['{HOST}']}}\n"


class Ran(NamedTuple):
    """What a command came to."""

    returncode: int
    stdout: str
    stderr: str


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


class Office:
    """A queue, and a command line beside it that sends mail to one server or to none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "data"
        self.config = folder / "some.yaml"
        self.config.write_text(YAML)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "NFTBAN_MAIL_METHOD": "none",
            "NFTBAN_MAIL_RETRY_BACKOFF": "0,0,0",
            "NFTBAN_SENDER": "queue@example.org",
        }
        queue = f"{self.root}/queue"
        make_spool(Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
        for name in ("run", "log", "metrics/counters", "mailspool"):
            (self.root / name).mkdir(mode=0o750, parents=True)

    def goes_by(self, name: str, port: int) -> None:
        """Mail goes by curl or msmtp to a server at this port."""
        needs(name)
        self.environ |= {
            "NFTBAN_MAIL_METHOD": name,
            "NFTBAN_SMTP_HOST": HOST,
            "NFTBAN_SMTP_PORT": str(port),
        }
        account = self.folder / ".msmtprc"
        account.write_text(f"account default\nhost {HOST}\nport {port}\nfrom queue@example.org\n")
        account.chmod(0o600)

    def argv(self, *words: str) -> list[str]:
        """The command line for this place."""
        return [*COMMAND, "--config", str(self.config), "--root", str(self.root), *words]

    def run(self, *words: str, stdin: str = "", **more: str) -> Ran:
        """The command, for this place, in this very process: a start for each takes its time."""
        argv = self.argv(*words)[len(COMMAND) :]
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        said = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("NFTBAN_")]:
                patch.delenv(name)
            for name, value in (self.environ | more).items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", said)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(argv)
        return Ran(code, _written(out), _written(err))

    def run_apart(self, *words: str) -> Ran:
        """The same as a process of its own, as everybody else starts it."""
        done = command.run(
            self.argv(*words)[len(COMMAND) :],
            capture_output=True,
            text=True,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def mail(self, *words: str, stdin: str = "", **more: str) -> Ran:
        """`spooldeck mail`."""
        return self.run("mail", *words, stdin=stdin, **more)

    def store(self) -> NftbanStore:
        """Its store, for given and then."""
        queue = f"{self.root}/queue"
        return NftbanStore(Spool(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))

    def tasks(self) -> list[Task]:
        """Its tasks, in any state."""
        with closing(self.store()) as store:
            found = store.look(store.states.values())
            return [task for task in found if isinstance(task, Task)]

    def task(self) -> Task:
        """Its only task."""
        (task,) = self.tasks()
        return task

    def lines(self, name: str) -> list[str]:
        """The lines of a log, with what differs from run to run taken out of them."""
        lines = (self.root / "log" / name).read_text().splitlines()
        return masked(lines)

    @property
    def spooled(self) -> list[Path]:
        """What lies in the mail spool."""
        return sorted((self.root / "mailspool").iterdir())

    def spool(self, text: str = "hello\n", task: bool = True, old: float = 3600) -> str:
        """A spooled mail, so many seconds old; its id. With a task, or without."""
        made = time.time() - old
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(made))
        ident = f"mail-{stamp}-{os.urandom(4).hex()}"
        folder = self.root / "mailspool" / ident
        folder.mkdir(mode=0o750)
        (folder / "body.txt").write_text(text)
        meta = {
            "MAIL_TO": "admin@example.com",
            "MAIL_SUBJECT": "[ALERT] Service failed",
            "MAIL_BODY_FILE": f"{folder}/body.txt",
            "MAIL_CREATED_EPOCH": str(int(made)),
        }
        (folder / "meta.sh").write_bytes(files.assignments(meta))
        for file in folder.iterdir():
            file.chmod(0o640)
        if task:
            with closing(self.store()) as store:
                token, payload = os.urandom(4).hex(), self.meta(ident)
                store.swap(None, verbs.enqueue("mail_send", made, token, "", payload))
        return ident

    def meta(self, ident: str) -> str:
        """The payload of a spooled mail's task."""
        return f"{self.root}/mailspool/{ident}/meta.sh"

    def change(self, verb: str, error: str = "no use", **values: object) -> None:
        """Do something to its only task."""
        task = self.task()
        with closing(self.store()) as store:
            if verb == "bury":
                (task,) = store.take(2_000_000_000, "test", 1)
                store.swap(task, verbs.bury(task, error))
            else:
                store.swap(task, verbs.VERBS[verb].act(task, 2_000_000_000, **values))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A queue made by `init`."""
    return Office(tmp_path)


def masked(lines: Sequence[str]) -> list[str]:
    """Lines without what differs from run to run, and without what only we say besides."""
    lines = [line for line in lines if "MAIL_SEND_SAID" not in line]
    said = [re.sub(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]", "[STAMP]", line) for line in lines]
    return [re.sub(r"\d{8}T\d{6}Z-mail_send-[0-9a-f]{8}", "TASK", line) for line in said]


def theirs(first: int, last: int, **changes: str) -> list[str]:
    """Lines of the contract's own mail log, counted from 1, with their words for ours."""
    lines = masked((GOLDEN / "mail.log").read_text().splitlines()[first - 1 : last])
    for old, new in changes.items():
        lines = [line.replace(old, new) for line in lines]
    return lines


def read(data: bytes) -> EmailMessage:
    """A mail as its reader sees it."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def until(office: Office, said: str, child: subprocess.Popen[str]) -> None:
    """Wait until the mail log says something, or the child has ended."""
    log = office.root / "log" / "mail.log"
    with closing(Ear([str(log.parent)])) as ear:
        while child.poll() is None and not (log.exists() and said in log.read_text()):
            ear.wait(0.1)
            ear.hear()


LATER = ["450 4.2.1 try again later", "450 4.2.1 try again later"]
REFUSED = "send_failed_rc_1"


# ---- send-with-retry


@pytest.mark.parametrize("name", ["curl", "msmtp"])
def test_refused_twice_it_is_delivered_the_third_time(office: Office, name: str) -> None:
    """By the real program, once; log, metrics and records are as the contract has them."""
    with Server(rcpt=LATER) as server:
        office.goes_by(name, server.port)
        run = office.run_apart(
            "mail", "send-with-retry", "it is back", "admin@example.com", "Caf\xe9: [ALERT]"
        )

    assert (run.returncode, run.stderr) == (0, "")
    submitted = "Email submitted to transport for: admin@example.com (delivery not confirmed)\n"
    assert run.stdout == f"✓ {submitted}"
    (mail,) = server.mails
    assert (mail.sender, mail.recipients) == ("queue@example.org", ("admin@example.com",))
    message = read(mail.data)
    assert (message["Subject"], message["To"]) == ("Caf\xe9: [ALERT]", "admin@example.com")
    plain = message.get_body(("plain",))
    assert plain is not None and "it is back" in plain.get_content()
    ours = {"sendmail": name, REFUSED: "unavailable_450"}
    expected = [*theirs(14, 20, **ours), *theirs(2, 2, **ours, **{"attempt=1": "attempt=3"})]
    assert office.lines("mail.log") == expected
    assert office.tasks() == [] and office.spooled == []
    prom = (office.root / "metrics" / "mail.prom").read_text()
    assert figures(prom) == figures_of(name, attempts=3, success=1)
    (record,) = (office.root / "mail" / "delivery.jsonl").read_text().splitlines()
    told = json.loads(record)
    told = {key: told[key] for key in told if key not in ("ts", "reason")}
    expected_record = {"transport": name, "recipient": "admin@…", "result": "success"}
    assert told == expected_record


def figures(text: str) -> list[str]:
    """The lines of a metrics file, times masked."""
    return re.sub(r"(timestamp) [1-9]\d+", r"\1 TIME", text).splitlines()


def figures_of(name: str, attempts: int, success: int) -> list[str]:
    """The contract's own metrics after one success, if this transport had made it."""
    text = (GOLDEN / "mail.after-success.prom").read_text()
    text = re.sub(
        r'(transport="sendmail"}) 1', r"\1 0", text.split("# HELP nftban_mail_transport")[0]
    )
    text = text.replace(
        f'attempts_total{{transport="{name}"}} 0',
        f'attempts_total{{transport="{name}"}} {attempts}',
    )
    text = text.replace(
        f'success_total{{transport="{name}"}} 0', f'success_total{{transport="{name}"}} {success}'
    )
    rest = (
        (GOLDEN / "mail.after-success.prom").read_text().partition("# HELP nftban_mail_transport")
    )
    return figures(text + rest[1] + rest[2].replace("sendmail", name))


@pytest.mark.parametrize("name", ["curl", "msmtp"])
def test_with_the_server_down_it_is_spooled_and_delivered_once_when_it_is_up(
    office: Office, name: str
) -> None:
    """Spooled and queued with exit 1; a worker delivers it once, and the spool is empty."""
    with refusing() as port:
        office.goes_by(name, port)
        run = office.run_apart("mail", "send-with-retry", "it broke\n", "admin@example.com")
        task = office.task()
        spooled = [path.name for path in office.spooled]
    with Server(port=port) as server:
        worked = office.run_apart("queue", "work", "--until-idle")
        again = office.run_apart("queue", "work", "--until-idle")

    assert run.returncode == 1
    assert run.stdout == f"Mail spooled for later delivery: {task.id}\n"
    assert task.payload == office.meta(spooled[0])
    assert task.description == "Spooled mail to admin_..."
    assert "1 done, 0 failed" in worked.stderr and "0 done, 0 failed" in again.stderr
    (mail,) = server.mails
    message = read(mail.data)
    assert message["Subject"] == "NFTBan Alert"
    assert spooled[0] in message["Message-ID"]
    assert office.tasks() == [] and office.spooled == []
    ours = {"sendmail": name, REFUSED: "connect_refused"}
    by_task = {"inline": "TASK", "sendmail": name}
    given_up = [*theirs(14, 21, **ours), *theirs(23, 24, **ours)]
    delivered = theirs(1, 2, **by_task)
    assert office.lines("mail.log") == [*given_up, *delivered]
    prom = (office.root / "metrics" / "mail.prom").read_text()
    assert f'nftban_mail_send_success_total{{transport="{name}"}} 1' in prom
    assert "nftban_mail_spool_depth 0" in prom


def test_without_a_transport_it_is_spooled_at_once(office: Office) -> None:
    """No attempt is made where nothing can send; the task waits for a transport, unclaimed."""
    run = office.mail("send-with-retry", "hello", "carol@example.com")
    worked = office.run_apart("queue", "process-next")

    task = office.task()
    assert (run.returncode, run.stdout) == (1, f"Mail spooled for later delivery: {task.id}\n")
    assert office.lines("mail.log") == theirs(25, 26)
    said = "[STAMP] [INFO] Task queued: TASK (mail_send: Spooled mail to carol_...)"
    assert office.lines("queue.log")[0] == said
    assert worked.returncode == 1
    assert "no mail transport" in worked.stderr
    assert (task.state, task.attempts) == (State.PENDING, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NFTBAN_MAIL_METHOD", "smtp"),
        ("NFTBAN_MAIL_METHOD", "emulate"),
        ("NFTBAN_MAIL_METHOD", "memory"),
        ("NFTBAN_SMTP_PORT", "abc"),
        ("NFTBAN_MAIL_RETRY_ATTEMPTS", "0"),
        ("NFTBAN_MAIL_RETRY_BACKOFF", "5s"),
        ("NFTBAN_MAIL_MAX_FILE_SIZE", "10M"),
        ("NFTBAN_MAIL_ALLOWED_PATHS", "reports"),
    ],
)
def test_a_setting_that_cannot_be_meant_loses_no_mail(
    office: Office, name: str, value: str
) -> None:
    """The mail is spooled and queued, as exit 1 says, and both the caller and the log are told why;
    corrected, it is delivered.
    """
    run = office.mail("send-with-retry", "the disk is full", "a@example.com", **{name: value})
    bad, office.environ[name] = office.environ.get(name), value
    waiting = office.run("queue", "process-next")
    task = office.task()
    with Server() as server:
        office.environ.pop(name) if bad is None else office.environ.update({name: bad})
        office.goes_by("curl", server.port)
        office.run("queue", "process-next")

    assert (run.returncode, run.stdout) == (1, f"Mail spooled for later delivery: {task.id}\n")
    assert run.stderr.startswith("spooldeck: not sent: ") and len(run.stderr.splitlines()) == 1
    assert "expected" in run.stderr
    log = office.lines("mail.log")
    assert log[0].endswith("[ERROR] No mail system available, spooling for later")
    assert "[WARN] Nothing was attempted: " in log[1] and value in log[1]
    assert waiting.returncode == 1 and task.state is State.PENDING
    assert [mail.recipients for mail in server.mails] == [("a@example.com",)]


def test_nobody_known_to_send_to_is_told_and_no_success(office: Office) -> None:
    """Where what names the recipient cannot be meant nobody can tell that nobody wants mail."""
    run = office.mail("send-with-retry", "hello", NFTBAN_MAIL_RECIPIENT="a@example.com\nb")

    assert run.returncode == 64
    assert "NFTBAN_MAIL_RECIPIENT: expected text on one line" in run.stderr
    (line,) = office.lines("mail.log")
    assert "status=failed retries=0 last_error=rejected_bad_mail: " in line
    assert office.spooled == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_spools(office: Office, number: signal.Signals) -> None:
    """Interrupted while it waits to try again, it loses nothing: the mail is spooled and queued."""
    with refusing() as port:
        office.goes_by("curl", port)
        office.environ["NFTBAN_MAIL_RETRY_BACKOFF"] = "3600"
        words = office.argv("mail", "send-with-retry", "hello", "admin@example.com")
        # Whoever started us in the background may have us ignore one of them.
        argv = ["env", f"--default-signal={number.name[3:]}", *words]
        with subprocess.Popen(
            argv, env=office.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            until(office, "Retrying in", child)
            child.send_signal(number)
            said, _ = child.communicate(timeout=30)

    assert child.returncode == 1
    assert said == f"Mail spooled for later delivery: {office.task().id}\n"
    assert len(office.spooled) == 1


def test_a_signal_ends_a_pause_before_its_handler_runs() -> None:
    """A signal that arrives just before a pause begins, so that its handler runs only after it,
    ends the pause.
    """

    def hung(*_: object) -> None:
        raise TimeoutError("the pause went on")

    with mail_command._interruptible() as stop:
        signal.signal(signal.SIGTERM, lambda *_: None)  # stands for a handler that has not run yet
        before = signal.signal(signal.SIGALRM, hung)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.alarm(20)
        try:
            stop.pause(3600)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)


def test_where_the_queue_takes_none_the_mail_is_safe_and_it_says_where(office: Office) -> None:
    """A full queue: the mail lies in the spool, and the command that queues it is said."""
    office.run("queue", "add", "report")

    run = office.mail("send-with-retry", "hello", "admin@example.com", NFTBAN_QUEUE_MAX_PENDING="1")

    (folder,) = office.spooled
    assert (run.returncode, run.stdout) == (1, "")
    assert f"Queue not available, mail saved to spool: {folder}" in run.stderr
    found = re.search(r"`spooldeck (.*)` queues it", run.stderr)
    assert found and found[1].endswith(f"mail spool retry {folder.name}")
    # Typed at once, and from anywhere, it does what was said: nobody is about to queue it.
    again = Ran(*typed_as(office, found[1]))
    assert (again.returncode, again.stderr) == (0, "")
    assert office.meta(folder.name) in [task.payload for task in office.tasks()]
    assert not (folder / "unqueued").exists()


@pytest.mark.parametrize("words", ["queue process-next", "queue recover"])
def test_a_mail_whose_sender_was_killed_gets_its_task(office: Office, words: str) -> None:
    """A mail that was spooled a while ago, and whose sender never made the task, is queued by the
    next run, which logs it."""
    ident = office.spool(task=False)
    mark = Path(office.meta(ident)).with_name("queuing")
    mark.write_text("SINCE='1'\n")
    os.utime(mark, (1, 1))

    office.run(*words.split())

    assert office.task().payload == office.meta(ident)
    assert not mark.exists()
    log = (office.root / "log/queue.log").read_text()
    assert f"[INFO] Task queued: {office.task().id} (mail_send: " in log
    assert f"[WARN] Mail spool: {ident} had no task, queued as {office.task().id}\n" in log


def typed_as(office: Office, command: str) -> Ran:
    """What comes of a command line that was printed, whatever place it names."""
    words = shlex.split(command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(office, "argv", lambda *more: [*COMMAND, *more])
        return office.run(*words)


def test_whoever_looks_on_is_told_of_each_attempt(office: Office) -> None:
    """On a terminal a line for each attempt that another one follows; a log has them anyway."""
    argv = office.argv("mail", "send-with-retry", "hello", "a@example.com")
    ours, terminal = os.openpty()
    with refusing() as port:
        office.goes_by("curl", port)
        quiet = office.run_apart("mail", "send-with-retry", "hello", "a@example.com")
        subprocess.run(argv, stderr=terminal, env=office.environ, timeout=60, check=False)
    os.close(terminal)
    seen = os.read(ours, 65536).decode().splitlines()
    os.close(ours)

    assert len(quiet.stderr.splitlines()) == 1
    assert seen[:-1] == [
        f"spooldeck: attempt {n} of 3 by curl failed: connect_refused; again in 0 s" for n in (1, 2)
    ]


def test_a_mail_that_cannot_be_spooled_is_said_to_be_lost(office: Office) -> None:
    """Where the spool cannot be written it is exit 74 with the reason, and nothing is left."""
    (office.root / "mailspool").rmdir()
    (office.root / "mailspool").write_text("in the way")

    run = office.mail("send-with-retry", "hello", "admin@example.com")

    assert (run.returncode, run.stdout) == (74, "")
    assert run.stderr.startswith("✗ Failed to send email: no_transport_available: ")
    assert "; the mail is lost, it could not be spooled: " in run.stderr
    assert f"{office.root}/mailspool: mailspool is a symbolic link or no folder" in run.stderr
    assert "where it lies elsewhere, name that: NFTBAN_MAIL_SPOOL_DIR" in run.stderr
    assert office.tasks() == []


def test_what_is_refused_for_good_is_tried_once_and_lies_in_the_dlq(office: Office) -> None:
    """A 5xx is not repeated: one attempt, and the first run of its task ends in the DLQ."""
    with Server(rcpt="550 5.1.1 no such user") as server:
        office.goes_by("curl", server.port)
        run = office.mail("send-with-retry", "hello", "gone@example.com")
        connections = server.connections
        office.run_apart("queue", "process-next")

    task = office.task()
    assert (run.returncode, connections, server.connections) == (1, 1, 1)
    assert "refused for good: " in run.stderr and "no such user" in run.stderr
    said = "Mail kept in the spool, its task will be given up on: "
    assert run.stdout == f"{said}{task.id}\n"
    assert (task.state, task.error[:12]) == (State.DEAD, "rejected_550")


@pytest.mark.parametrize("word", ["send", "send-with-retry"])
def test_what_may_have_been_accepted_is_not_said_to_be_unsent(office: Office, word: str) -> None:
    """The line breaks after the mail was handed over: nobody knows, and whoever sends it again is
    told what may come of it.
    """
    with Server(body=DROP) as server:
        office.goes_by("curl", server.port)
        run = office.mail(word, "hello", "a@example.com", NFTBAN_MAIL_RETRY_ATTEMPTS="1")

    assert run.returncode == 1
    assert "may have been accepted; sent again, it may arrive twice" in run.stderr
    assert "not sent:" not in run.stderr


def test_what_was_accepted_is_a_success_though_nobody_can_be_told(office: Office) -> None:
    """With a full disk behind standard output, or signs that it cannot show, the mail has gone out,
    and whoever takes the exit code for the truth does not send it again.
    """
    with Server() as server, Path("/dev/full").open("w") as full:
        office.goes_by("curl", server.port)
        argv = office.argv("mail", "send", "hello", "a@example.com")
        lost = subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, text=True, env=office.environ, check=False
        )
        environ = office.environ | {"PYTHONIOENCODING": "ascii"}
        plain = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)

    assert (lost.returncode, plain.returncode, len(server.mails)) == (0, 0, 2)
    assert "the answer could not be written: No space left on device" in lost.stderr
    assert (plain.stderr, plain.stdout[:16]) == ("", "Email submitted ")


# ---- send


def test_one_attempt_is_made_and_its_reason_said(office: Office) -> None:
    """Failure is one line on standard error and exit 1; nothing is spooled or queued."""
    with Server(rcpt=["450 4.2.1 later"]) as server:
        office.goes_by("curl", server.port)
        failed = office.mail("send", "hello", "admin@example.com")
        sent = office.mail(
            "send", "hello", "--subject", "mine", NFTBAN_MAIL_RECIPIENT="a@example.com"
        )

    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("✗ Failed to send email: unavailable_450: ")
    assert (sent.returncode, sent.stderr) == (0, "")
    (mail,) = server.mails
    assert (read(mail.data)["Subject"], mail.recipients) == ("mine", ("a@example.com",))
    assert office.tasks() == [] and office.spooled == []


@pytest.mark.parametrize("word", ["send", "send-with-retry"])
def test_nobody_to_send_it_to_is_a_warning_and_success(office: Office, word: str) -> None:
    """The contract's pattern: modules must not fail because nobody wants mail."""
    run = office.mail(word, "hello")

    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr == "Warning: No recipient configured\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hello", "a@b@example.com"], "more than one @"),
        (["hello", "-C/tmp/evil@example.com"], "begins with a dash"),
        (["hello", "a@example.com\nb@example.com"], "a space, a control character"),
        (["/etc/hostname", "a@example.com"], "outside of the folders"),
    ],
)
@pytest.mark.parametrize(("word", "code"), [("send", 1), ("send-with-retry", 64)])
def test_what_nobody_may_send_is_refused_in_one_line(
    office: Office, word: str, code: int, words: list[str], said: str
) -> None:
    """A bad address or a foreign file is no attempt, and no mail in the spool.

    Of send-with-retry 1 means that the mail is spooled, so this is another code.
    """
    run = office.mail(word, "--", *words)

    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (code, "", 1)
    assert run.stderr.startswith("✗ Failed to send email: ") and said in run.stderr
    assert office.spooled == []


def test_a_dash_is_standard_input_and_never_a_path(office: Office) -> None:
    """What comes by standard input is text, whatever it looks like, up to the largest file."""
    with Server() as server:
        office.goes_by("curl", server.port)
        sent = office.mail("send", "-", "a@example.com", stdin="/etc/hostname\n")
        much = office.mail(
            "send", "-", "a@example.com", stdin="x" * 1025, NFTBAN_MAIL_MAX_FILE_SIZE="1"
        )

    assert (sent.returncode, much.returncode) == (0, 64)
    assert "more than 1,024 bytes" in much.stderr
    plain = read(server.mails[0].data).get_body(("plain",))
    assert plain is not None and "/etc/hostname" in plain.get_content()


@pytest.mark.parametrize("word", ["send", "send-with-retry"])
def test_nothing_at_all_is_not_sent(office: Office, word: str) -> None:
    """Neither an empty text nor an empty or closed standard input is a mail."""
    office.environ["NFTBAN_MAIL_RECIPIENT"] = "a@example.com"
    text, stream = office.mail(word, ""), office.mail(word, "-", stdin="\n")
    argv = ["bash", "-c", 'exec "$@" <&-', "bash", *office.argv("mail", word, "-")]
    closed = subprocess.run(argv, capture_output=True, text=True, env=office.environ, check=False)

    assert text.stderr.startswith("spooldeck: CONTENT is empty")
    assert (text.returncode, stream.returncode, closed.returncode) == (64, 64, 64)
    assert stream.stderr == closed.stderr
    assert stream.stderr.startswith("spooldeck: standard input is empty or closed")
    assert office.spooled == []


def test_a_mail_kept_in_memory_only_is_none(office: Office) -> None:
    """A method that loses every mail with its process is refused before one is handed to it."""
    run = office.mail("send", "hello", "a@example.com", NFTBAN_MAIL_METHOD="memory")
    status = office.mail("status", NFTBAN_MAIL_METHOD="memory")

    assert (run.returncode, status.returncode) == (78, 78)
    assert "method memory would lose every mail" in run.stderr


def test_where_the_locale_has_no_sign_there_is_none(office: Office) -> None:
    """In a plain locale the words stand alone."""
    run = office.mail("send", "hello", "bad", LC_ALL="C")

    assert run.stderr.startswith("Failed to send email: ")


# ---- test, status


def test_a_test_mail_says_each_step(office: Office) -> None:
    """To whom, by what, what came of it and how long it took; a dry run sends nothing."""
    with Server(rcpt=["", "450 4.2.1 later"]) as server:
        office.goes_by("curl", server.port)
        dry = office.mail("test", "a@example.com", "--dry-run")
        none = len(server.mails)
        sent = office.mail("test", "a@example.com")
        failed = office.mail("test", "a@example.com")

    steps = [[line.split()[0] for line in run.stdout.splitlines()] for run in (dry, sent, failed)]
    same = ["recipient", "transport", "subject"]
    assert steps == [[*same, "dry"], [*same, "accepted"], [*same, "failed"]]
    assert (dry.returncode, none) == (0, 0)
    assert (sent.returncode, failed.returncode) == (0, 1)
    assert "unavailable_450" in failed.stdout
    assert read(server.mails[0].data)["Subject"].startswith("spooldeck test from ")


def test_a_named_transport_is_tried_though_it_is_suspended(office: Office) -> None:
    """Before it is resumed one wants to know whether it works."""
    with Server() as server:
        office.goes_by("curl", server.port)
        office.mail("suspend", "curl", "it is full")
        office.environ["NFTBAN_MAIL_METHOD"] = ""
        run = office.mail("test", "a@example.com", "--transport", "curl")

    assert run.returncode == 0, run.stdout
    assert "though suspended by root since" in run.stdout.replace(_us(), "root")
    assert len(server.mails) == 1


def test_status_says_by_what_mail_goes_and_why_not_by_others(office: Office) -> None:
    """0 by something, 1 by nothing, 2 by what an operator suspended; the same for programs."""
    nothing = office.mail("status")
    with Server() as server:
        office.goes_by("curl", server.port)
        office.mail("send", "hello", "a@example.com")
        office.spool()
        well = office.mail("status")
        office.mail("suspend", "curl", "full")
        shut = office.mail("status", "--json")

    assert (nothing.returncode, well.returncode, shut.returncode) == (1, 0, 2)
    assert f"transport  curl to {HOST}:{server.port}" in well.stdout
    assert "spool      1 mail, the oldest for 1 h" in well.stdout
    told = json.loads(shut.stdout)
    assert told["transport"] is None
    assert told["transports"]["curl"]["attempts"] == told["transports"]["curl"]["success"] == 1
    assert told["transports"]["curl"]["suspended"]["why"] == "full"
    assert told["transports"]["msmtp"]["why_not"] == "another method is forced: curl"
    assert told["transports"]["mailx"]["why_not"] == "another method is forced: curl"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"NFTBAN_MAIL_RECIPIENT": "foo,bar@x.de"}, "recipient  foo,bar@x.de: 'foo,bar@...' holds"),
        ({"NFTBAN_SENDER": "foo bar@x.de"}, "sender     'foo bar@...' holds a space"),
    ],
)
def test_status_says_which_address_keeps_mail_from_being_sent(
    office: Office, said: dict[str, str], line: str
) -> None:
    """An address that is none is no place where all is well, whatever transport is there."""
    with Server() as server:
        office.goes_by("curl", server.port)
        run = office.mail("status", **said)
        told = json.loads(office.mail("status", "--json", **said).stdout)

    assert run.returncode == 2
    assert line in run.stdout and "transport  curl" in run.stdout
    assert list(told["problems"]) == [line.split()[0]]


def test_status_says_all_it_knows_beside_a_spool_that_cannot_be_read(office: Office) -> None:
    """A link in the place of the spool is not followed; its path and the way out are said."""
    spool = office.root / "mailspool"
    spool.rename(office.folder / "elsewhere")
    spool.symlink_to(office.folder / "elsewhere")
    with Server() as server:
        office.goes_by("curl", server.port)
        run = office.mail("status")
        told = json.loads(office.mail("status", "--json").stdout)
        named = office.mail("status", NFTBAN_MAIL_SPOOL_DIR=str(office.folder / "elsewhere"))

    assert run.returncode == 2
    assert "transport  curl" in run.stdout and "attempts" in run.stdout
    assert f"spool      cannot be read: {spool}: " in run.stdout
    assert "NFTBAN_MAIL_SPOOL_DIR" in run.stdout
    assert told["spool"] is None and list(told["problems"]) == ["spool"]
    assert (named.returncode, "spool      empty" in named.stdout) == (0, True)


def test_status_says_first_that_there_is_no_queue(office: Office) -> None:
    """A place that is not there looks like one in which all is quiet."""
    shutil.rmtree(office.root / "queue")

    run = office.mail("status")

    assert run.stdout.startswith(f"queue      {office.root}: no queue, expected the folders")
    assert json.loads(office.mail("status", "--json").stdout)["queue_problem"]


def test_status_says_what_would_only_have_to_be_started(office: Office) -> None:
    """Its words say what its exit code says: it is there, and does not run."""
    postfix = Unused(Cause.STOPPED, "Postfix does not run")
    why = {"postfix": postfix, "curl": Unused(Cause.ABSENT, "no relay is configured")}

    assert why_none(MailSettings(), why, {}) == "no mail transport: postfix: Postfix does not run"
    assert why_none(MailSettings(), {"curl": why["curl"]}, {}) == "no mail transport is set up"


def test_status_opens_nothing_that_is_no_plain_file(office: Office) -> None:
    """Whoever owns the counters cannot have root show another file, or wait for them."""
    counters = office.root / "metrics" / "counters"
    (office.folder / "secret").write_text("hunter2\n")
    (counters / "mail_last_failure_ts").write_text("1795170000\n")
    reason = counters / "mail_last_failure_reason"
    reason.symlink_to(office.folder / "secret")
    link = office.mail("status")
    reason.unlink()
    os.mkfifo(reason)
    fifo = office.mail("status")
    reason.unlink()
    reason.write_text("timeout\n")
    plain = office.mail("status")

    assert "hunter2" not in link.stdout + link.stderr
    assert "mail_last_failure_reason: " in link.stderr and "no plain file" in fifo.stderr
    assert ": timeout" in plain.stdout and plain.stderr == ""


def test_status_tells_what_only_has_to_be_started(office: Office) -> None:
    """2 where a transport is installed and does not run, as the real one answers."""
    program = office.folder / "sendmail"
    program.write_text("")
    program.chmod(0o755)
    office.config.write_text(f"mail: {{programs: {{postfix: {program}, sendmail: {program}}}}}\n")

    run = office.mail("status", NFTBAN_MAIL_METHOD="")

    chosen = json.loads(office.mail("status", "--json", NFTBAN_MAIL_METHOD="").stdout)["transport"]
    assert run.returncode == (0 if chosen else 2)


def test_root_sends_as_whoever_the_queue_belongs_to() -> None:
    """What is in another user's spool is handed over with that user's rights, never with root's."""
    needs_root("only root can give a folder away")
    with tempfile.TemporaryDirectory() as name:  # a test's own folder lets nobody else in
        folder = Path(name)
        folder.chmod(0o755)
        office = Office(folder)
        program = folder / "sendmail"
        program.write_text(f"#!/bin/sh\ncat >/dev/null; id -u >>{folder}/who\n")
        program.chmod(0o755)
        (folder / "who").touch()
        (folder / "who").chmod(0o666)
        office.config.write_text(f"mail: {{programs: {{sendmail: {program}}}}}\n")
        os.chown(office.root / "queue" / "pending", 65534, 65534)

        run = office.mail("send", "hello", "a@example.com", NFTBAN_MAIL_METHOD="sendmail")
        who = (folder / "who").read_text()

    assert run.returncode == 0, run.stderr
    assert who == "65534\n"


# ---- suspend, resume


def test_what_is_suspended_sends_nothing_until_it_is_resumed(office: Office) -> None:
    """Tasks wait unclaimed and say why, new mail is spooled; resumed, all of it goes out."""
    with Server() as server:
        office.goes_by("curl", server.port)
        suspended = office.mail("suspend", "curl", "relay moves")
        again = office.mail("suspend", "curl")
        kept = office.mail("send-with-retry", "hello", "a@example.com")
        waits = office.run_apart("queue", "process-next")
        attempts, before = office.task().attempts, list(server.mails)
        resumed = office.mail("resume", "curl")
        office.run_apart("queue", "work", "--until-idle")

    assert suspended.stdout.startswith("curl suspended: nothing is sent, and what is spooled waits")
    assert re.match(r"curl was suspended by \w+ since .*: relay moves already: ", again.stdout)
    assert (kept.returncode, waits.returncode, attempts, before) == (1, 1, 0, [])
    assert f"no mail transport: curl suspended by {_us()}" in waits.stderr
    assert resumed.stdout == "curl resumed: mail goes by curl\n"
    assert len(server.mails) == 1 and office.tasks() == []
    log = office.lines("mail.log")
    assert re.match(r"\[STAMP\] \[INFO\] Transport curl suspended by \w+: relay moves$", log[0])


def journal_of(office: Office) -> list[dict[str, Any]]:
    """Its operations, the latest first."""
    return [json.loads(line) for line in office.run("journal", "--json").stdout.splitlines()]


def test_who_suspends_and_who_resumes_stands_in_the_journal(office: Office) -> None:
    """Like a control: who, when, why and what was before; what changed nothing is not there."""
    office.mail("suspend", "curl", "ask bob@example.com")
    office.mail("suspend", "curl", "once more")
    office.mail("resume", "curl")
    office.mail("resume", "curl")

    resumed, suspended = journal_of(office)
    for one, value in ((suspended, "suspended"), (resumed, "resumed")):
        assert (one["verb"], one["who"]["user"], one["standing"]) == ("control", _us(), "over")
        assert one["values"].items() >= {"target": "curl", "value": value}.items()
        assert (one["planned"], one["when"] <= one["ended"]) == (0, True)
    assert (suspended["reason"], resumed["reason"]) == ("ask ...@example.com", "")
    undone = [office.run("undo", one["op"], "--dry-run").stderr for one in (suspended, resumed)]
    assert "set back by itself: transport curl was not suspended before" in undone[0]
    said = rf"transport curl was suspended by {_us()} since .* \(ask ...@example.com\) before"
    assert re.search(said, undone[1])
    lines = office.run("journal").stdout.splitlines()
    assert "| control | transport curl resumed | over" in lines[0]
    assert "| control | transport curl suspended | over | reason ask ...@example.com" in lines[1]
    whole = office.run("journal", resumed["op"])
    assert f"Transport curl resumed by {_us()}" in whole.stdout


def test_nothing_is_suspended_that_cannot_be_written_down(office: Office) -> None:
    """As for any control: without the journal's word before it nothing is done."""
    (office.root / "queue" / ".spooldeck" / "journal").write_text("in the way")

    run = office.mail("suspend", "curl")

    assert run.returncode == 69
    assert "the journal in " in run.stderr
    assert Suspensions(str(office.root / "queue" / ".spooldeck" / "suspended")).read() == {}


def test_a_reason_is_asked_for_where_the_configuration_says_so(office: Office) -> None:
    """On the command line as on the screen; to resume needs none."""
    office.config.write_text("require_reason: true\n")

    without = office.mail("suspend", "curl")
    given = office.mail("suspend", "curl", "relay moves")
    resumed = office.mail("resume", "curl")

    assert (without.returncode, given.returncode, resumed.returncode) == (64, 0, 0)
    assert "expected a REASON" in without.stderr


def test_the_metrics_of_mail_go_on_while_none_is_sent(office: Office) -> None:
    """What waits, and by what mail would go, is told by each run of a worker and by whoever
    suspends or resumes: not only by an attempt.
    """
    prom = office.root / "metrics" / "mail.prom"
    with Server() as server:
        office.goes_by("curl", server.port)
        office.spool()
        office.mail("suspend", "curl")
        selected = [_selected(prom)]
        prom.unlink()
        office.run("queue", "process-next")
        selected.append(_selected(prom))
        depth = "nftban_mail_spool_depth 1\n" in prom.read_text()
        office.mail("resume", "curl")
        selected.append(_selected(prom))

    assert (selected, depth) == ([set(), set(), {"curl"}], True)
    assert server.mails == []


def _selected(prom: Path) -> set[str]:
    found = re.findall(r'_transport_selected{transport="(\w+)"} 1', prom.read_text())
    return {name for name in found if name != "none"}


def _us() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def test_what_cannot_be_suspended_says_where(office: Office) -> None:
    """A disk that takes nothing is named by the file that was to be written."""
    desk = office.root / "queue" / ".spooldeck"
    (desk / "suspended.lock").mkdir()

    run = office.mail("suspend", "curl")

    assert run.returncode in (74, 77)
    assert run.stderr.startswith(f"spooldeck: {desk}/suspended: ")
    (told,) = journal_of(office)
    (note,) = told["notes"]
    assert (note["what"], told["values"]["target"]) == ("not done", "curl")


def test_a_transport_that_is_none_is_refused(office: Office) -> None:
    """Its name is one of six."""
    run = office.mail("suspend", "pigeon")

    assert run.returncode == 64
    assert "pigeon: expected one of postfix, sendmail" in run.stderr


def test_what_nobody_can_read_suspends_everything(office: Office) -> None:
    """A damaged list of suspensions is not taken for an empty one."""
    (office.root / "queue" / ".spooldeck" / "suspended").write_text("junk")

    with Server() as server:
        office.goes_by("curl", server.port)
        run = office.mail("send", "hello", "a@example.com")
        status = office.mail("status")

    assert (run.returncode, status.returncode) == (1, 78)
    assert "suspended" in run.stderr and server.mails == []


@pytest.mark.parametrize("since", ["1" + "0" * 400, "NaN", "1e300"])
def test_a_wrong_number_stops_no_command_and_loses_no_mail(office: Office, since: str) -> None:
    """An impossible time in the list of suspensions: mail is spooled, each command says why."""
    path = office.root / "queue" / ".spooldeck" / "suspended"
    path.write_text(f'{{"curl": {{"since": {since}}}}}')

    run = office.mail("send-with-retry", "hello", "a@example.com")
    doctor = office.run("doctor")
    status = office.run("status")

    assert "Mail spooled for later delivery" in run.stderr + run.stdout
    assert len(office.spooled) == 1
    assert f"{path}: " in doctor.stdout and f"mend: rm {path}" in doctor.stdout
    assert "no mail is sent: suspensions unreadable" in status.stdout
    assert not any("Traceback" in each.stderr for each in (run, doctor, status))


# ---- the spool


def test_the_spool_is_listed_in_the_real_one_s_words(office: Office) -> None:
    """Its header, one line for each mail with a shortened address, and which task sends it."""
    first, second = office.spool(), office.spool(task=False)
    (office.root / "mailspool" / "mail-20260107T120102Z-broken").mkdir()

    run = office.mail("spool", "list")

    sample = (GOLDEN / "mail_spool_status.stdout.txt").read_text().splitlines()
    lines = run.stdout.splitlines()
    folder = f"{office.root}/mailspool"
    head = [line.replace("/var/lib/nftban/mailspool", folder) for line in sample[:6]]
    assert lines[:6] == [line.replace("mails: 2", "mails: 3 (2 pending, 1 empty)") for line in head]
    tasks = {line.split(" | ")[0].strip(): line.split(" | ") for line in lines[6:]}
    assert {id: row[1] for id, row in tasks.items()} == dict.fromkeys(
        [first, second], "To: admin@..."
    )
    assert tasks[first][3] == f"Task: {office.task().id} (pending)"
    assert tasks[second][3] == "Task: none"
    assert "mail-20260107T120102Z-broken: " in run.stderr


def test_a_spooled_mail_is_shown_as_inert_text(office: Office) -> None:
    """Its fields and its body, with nothing in it that a terminal would act on."""
    ident = office.spool("first\x1b[2Jline\nand \u202eback\n")

    run = office.mail("spool", "show", ident)

    assert run.returncode == 0
    assert "to       admin@example.com" in run.stdout
    assert f"task     {office.task().id} (pending)" in run.stdout
    assert all(line.isprintable() for line in run.stdout.splitlines())


@pytest.mark.parametrize("ident", ["../../etc", "nothing", "mail-nothing"])
def test_what_is_no_spooled_mail_is_said(office: Office, ident: str) -> None:
    """Also a name that leads elsewhere."""
    shown = office.mail("spool", "show", ident)
    retried = office.mail("spool", "retry", ident)

    assert (shown.returncode, retried.returncode) == (1, 1)
    assert ident in shown.stderr and ident in retried.stderr


def test_a_hostile_meta_is_shown_and_never_run(office: Office) -> None:
    """What a shell would run is refused, said, and shown as text."""
    ident = office.spool(task=False)
    Path(office.meta(ident)).write_text(f'MAIL_TO="$(touch {office.folder}/pwned)"\n')

    run = office.mail("spool", "show", ident)

    assert run.returncode == 1
    assert "unescaped $" in run.stderr and "touch" in run.stdout
    assert not (office.folder / "pwned").exists()


def test_a_retry_never_makes_a_second_task(office: Office) -> None:
    """Queued where no task is, else made due, or fetched from the DLQ: always one, now due."""
    ident = office.spool(task=False)

    queued = office.mail("spool", "retry", ident)
    same = office.mail("spool", "retry", ident)
    office.change("edit", due=2_000_000_000.0)
    due = office.mail("spool", "retry", ident)
    state_due = office.task().due
    office.change("bury")
    dead = office.mail("spool", "retry", ident)

    task = office.task()
    assert queued.stdout == f"{ident}: task {task.id} queued\n"
    assert same.stdout == f"{ident}: task {task.id} is due already\n"
    assert (due.stdout, state_due) == (f"{ident}: task {task.id} is due now\n", 0)
    assert dead.stdout == f"{ident}: task {task.id} moved from DLQ to pending queue\n"
    assert (task.state, task.payload) == (State.PENDING, office.meta(ident))


def test_what_an_operator_parked_is_not_retried_behind_their_back(office: Office) -> None:
    """A held or purged task keeps its mail; the command that has it back is said."""
    ident = office.spool()
    office.change("hold")
    held = office.mail("spool", "retry", ident)
    office.change("purge")
    trashed = office.mail("spool", "retry", ident)

    assert (held.returncode, trashed.returncode) == (1, 1)
    place = f"spooldeck --root {office.root} --config {office.config}"
    assert f"{place} release --id {office.task().id}" in held.stderr
    assert f"{place} restore --id {office.task().id}" in trashed.stderr


def test_a_mail_spooled_just_now_is_left_to_whoever_spooled_it(office: Office) -> None:
    """Its task may be on its way: a second one would send it twice."""
    ident = office.spool(task=False, old=0)

    run = office.mail("spool", "retry", ident)

    assert run.returncode == 1
    assert "may be on its way" in run.stderr
    assert office.tasks() == []


# ---- setup


def test_setup_writes_what_the_real_one_writes(office: Office) -> None:
    """Enabled, the recipient, with --all the four triggers; mode 640, and nothing else."""
    conf = office.folder / "etc"
    conf.mkdir()

    run = office.mail("setup", "admin@example.com", "--all", NFTBAN_CONFIG_DIR=str(conf))

    written = conf / "conf.d" / "mail.conf.local"
    lines = [line for line in written.read_text().splitlines() if not line.startswith("#")]
    assert (run.returncode, run.stderr, run.stdout) == (0, "", f"wrote {written}\n")
    assert lines == [
        'NFTBAN_MAIL_ENABLED="YES"',
        'NFTBAN_MAIL_RECIPIENT="admin@example.com"',
        'NFTBAN_MAIL_ON_HEALTH_CRITICAL="YES"',
        'NFTBAN_MAIL_DAILY_REPORT="YES"',
        'NFTBAN_MAIL_ON_BAN="YES"',
        'NFTBAN_MAIL_ON_LOGIN_ALERT="YES"',
    ]
    assert written.stat().st_mode & 0o777 == 0o640
    assert list(written.parent.iterdir()) == [written]


def test_setup_keeps_other_lines_and_a_copy(office: Office) -> None:
    """Only its own values change; how it was stays beside it. The same again changes nothing."""
    folder = office.folder / "etc" / "conf.d"
    folder.mkdir(parents=True)
    before = 'NFTBAN_SMTP_PASS="hunter2"\nexport NFTBAN_MAIL_RECIPIENT=old@example.com # who\n'
    (folder / "mail.conf.local").write_text(before)
    where = {"NFTBAN_CONFIG_DIR": str(office.folder / "etc")}

    dry = office.mail("setup", "new@example.com", "--dry-run", **where)
    untouched = (folder / "mail.conf.local").read_text()
    run = office.mail("setup", "new@example.com", **where)
    again = office.mail("setup", "new@example.com", **where)

    (copy,) = folder.glob("mail.conf.local.bak-*")
    assert untouched == copy.read_text() == before
    assert "hunter2" not in dry.stdout and "(other lines that stay: 1)" in dry.stdout
    assert f"kept what was there: {copy}" in run.stdout
    assert (folder / "mail.conf.local").read_text() == (
        'NFTBAN_SMTP_PASS="hunter2"\nNFTBAN_MAIL_ENABLED="YES"\n'
        'NFTBAN_MAIL_RECIPIENT="new@example.com"\n'
    )
    assert "nothing was changed" in again.stdout


def setup_beside(office: Office, before: str, email: str = "new@example.com") -> tuple[Ran, str]:
    """What `mail setup` says to a file that is there, and what the file is then."""
    folder = office.folder / "etc" / "conf.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mail.conf.local").write_bytes(before.encode())
    run = office.mail("setup", email, NFTBAN_CONFIG_DIR=str(office.folder / "etc"))
    return run, (folder / "mail.conf.local").read_bytes().decode()


OURS = 'NFTBAN_MAIL_ENABLED="YES"\nNFTBAN_MAIL_RECIPIENT="new@example.com"\n'


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
def test_setup_changes_nothing_of_what_only_a_shell_understands(
    office: Office, before: str
) -> None:
    """Each line of it stays, ours come last and count; the same again adds nothing."""
    run, after = setup_beside(office, before)
    again, same = setup_beside(office, after)

    shell = (
        'eval "$(</dev/stdin)" >/dev/null 2>&1; echo $NFTBAN_MAIL_ENABLED,$NFTBAN_MAIL_RECIPIENT'
    )
    argv = ["bash", "--norc", "-c", shell]
    means = subprocess.run(
        argv, input=after, capture_output=True, text=True, cwd=office.folder, check=True
    )
    assert (run.returncode, again.returncode) == (0, 0), run.stderr
    assert after.startswith(before) and after.endswith(OURS)
    assert means.stdout == "YES,new@example.com\n"
    assert after == same or before.startswith("#")
    assert not (office.folder / "x").exists()


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ('OTHER="open\n', "bash cannot read it"),
        (': "${A:=x\\}"\nNFTBAN_MAIL_ENABLED=NO\n: "${B:=}"\n', "bash cannot read it"),
        ("cat <<END\nNFTBAN_MAIL_ENABLED=NO\n", "bash cannot read it"),
        ("readonly X=1 NFTBAN_MAIL_RECIPIENT=old\n", "line 1: readonly"),
        ("A=$(id)\nreturn 0\n", "line 2: ends the file"),
    ],
)
def test_setup_refuses_a_file_in_which_its_lines_would_not_count(
    office: Office, before: str, said: str
) -> None:
    """It is left as it is, in one line that quotes nothing of it."""
    run, after = setup_beside(office, before)

    assert (run.returncode, run.stdout, after) == (78, "", before)
    assert said in run.stderr and "mend it by hand first" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_setup_opens_a_file_to_nobody_else(office: Office) -> None:
    """A file that only its owner reads stays so, and copies are for nobody but the owner; a
    password is not shown, however it is written.
    """
    folder = office.folder / "etc" / "conf.d"
    folder.mkdir(parents=True)
    own = folder / "mail.conf.local"
    own.write_text("OTHER_PASS=$'a\\'b\nhunter2'\n")
    own.chmod(0o600)
    where = {"NFTBAN_CONFIG_DIR": str(office.folder / "etc")}

    dry = office.mail("setup", "new@example.com", "--dry-run", **where)
    run = office.mail("setup", "new@example.com", **where)
    own.chmod(0o644)
    office.mail("setup", "other@example.com", **where)

    modes = {f.name[:20]: f.stat().st_mode & 0o777 for f in folder.iterdir()}
    assert (dry.returncode, run.returncode) == (0, 0)
    assert "hunter2" not in dry.stdout + dry.stderr
    assert modes == {"mail.conf.local": 0o644, "mail.conf.local.bak-": 0o600}


def test_a_dry_run_of_setup_promises_nothing_that_fails(office: Office) -> None:
    """It is refused where the real one would be, and says beforehand what overrules the file."""
    nowhere = {"NFTBAN_CONFIG_DIR": str(office.folder / "etc")}
    refused = office.mail("setup", "new@example.com", "--dry-run", **nowhere)
    (office.folder / "etc").mkdir()
    old = {"NFTBAN_MAIL_RECIPIENT": "old@example.com"}
    dry = office.mail("setup", "new@example.com", "--dry-run", **nowhere, **old)
    well = office.mail("setup", "new@example.com", "--dry-run", **nowhere)

    assert (refused.returncode, refused.stdout) == (69, "")
    assert "goes to old@example.com all the same" in dry.stderr
    assert (dry.returncode, well.returncode, well.stderr) == (0, 0, "")
    assert list((office.folder / "etc").iterdir()) == []


@pytest.mark.parametrize(
    ("email", "folder", "code", "said"),
    [
        ("a$(id)@example.com", "etc", 64, "expected one address"),
        ("a@example.com", "nowhere", 69, "no such folder, expected the configuration of NFTBan"),
    ],
)
def test_setup_refuses_what_cannot_be_meant(
    office: Office, email: str, folder: str, code: int, said: str
) -> None:
    """A bad address, or no installation: one line, and nothing is written."""
    (office.folder / "etc").mkdir()

    run = office.mail("setup", email, NFTBAN_CONFIG_DIR=str(office.folder / folder))

    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (code, "", 1)
    assert said in run.stderr
    assert list((office.folder / "etc").iterdir()) == []


def test_setup_says_when_something_else_goes_before_it(office: Office) -> None:
    """A recipient in the environment wins, and whoever just changed the file is told."""
    (office.folder / "etc").mkdir()

    run = office.mail(
        "setup",
        "new@example.com",
        NFTBAN_CONFIG_DIR=str(office.folder / "etc"),
        NFTBAN_MAIL_RECIPIENT="old@example.com",
    )

    assert run.returncode == 0
    assert "goes to old@example.com all the same" in run.stderr


# ---- the worker


def test_a_rate_without_a_program_is_the_built_in_handler_s(office: Office) -> None:
    """`handlers.mail_send` may say how often, and leave the sending to us."""
    office.config.write_text(
        f"{YAML}handlers: {{mail_send: {{rate: {{per_hour: 1, burst: 1}}}}}}\n"
    )
    for _ in range(2):
        office.spool()
    with Server() as server:
        office.goes_by("curl", server.port)
        run = office.run_apart("queue", "work", "--until-idle")

    assert run.returncode == 0
    assert len(server.mails) == len(office.tasks()) == len(office.spooled) == 1


def test_where_a_transport_lacks_a_token_the_worker_knows_when_it_comes(office: Office) -> None:
    """It goes on at that moment, and not whenever it happens to look again."""
    office.config.write_text(
        f"mail: {{plain_hosts: ['{HOST}'], rates: {{curl: {{per_hour: 1, burst: 1}}}}}}\n"
    )
    for _ in range(2):
        office.spool()
    with Server() as server:
        office.goes_by("curl", server.port)
        run = office.run_apart("queue", "work", "--until-idle")

    assert len(server.mails) == len(office.tasks()) == 1
    assert "no token for transport curl for mail_send; next token " in run.stderr


def test_a_worker_looks_again_at_how_mail_is_sent(office: Office) -> None:
    """A transport that goes while one is believed to be there, one that comes, another setting: a
    worker that runs for weeks knows each a minute later.
    """
    program = office.folder / "sendmail"
    setup = Setup(config.Config(), config.queue_for(config.Config(), str(office.root), {}))
    settings = [MailSettings(method="sendmail", programs={"sendmail": str(program)})]
    now, said = [0.0], []

    def look(seconds: float) -> None:
        now[0] += seconds
        said.append(mailing.shut())

    mailing = Mailing(
        lambda: settings[0],
        setup.ways,
        setup.post,
        setup.queue.mail_spool,
        ours=True,
        complain=said.append,
        clock=lambda: now[0],
    )
    program.write_text("")
    program.chmod(0o755)
    look(0)
    program.unlink()
    look(LOOK_AGAIN - 1)
    look(1)
    program.write_text("")
    program.chmod(0o755)
    look(LOOK_AGAIN)
    settings[0] = MailSettings(method="none")
    look(LOOK_AGAIN)

    none = "no mail transport"
    assert [why[: len(none)] for why in said] == ["", "", none, "", none]
    assert said[-1].endswith("the method is none")


def test_a_program_named_for_mail_is_run_as_before(office: Office) -> None:
    """With a command of its own, no transport is looked for."""
    office.config.write_text("handlers: {mail_send: {command: ['true']}}\n")
    office.spool()

    run = office.run_apart("queue", "process-next")

    assert (run.returncode, office.tasks()) == (0, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("handlers: {mail_send: {run_as: root}}", "run_as: expected a command beside it"),
        ("handlers: {report: {timeout: 3}}", "handlers.report.command: expected a list"),
    ],
)
def test_only_mail_needs_no_program(office: Office, text: str, said: str) -> None:
    """And it is sent by the worker as it is."""
    office.config.write_text(text)

    run = office.run("queue", "count")

    assert run.returncode == 78
    assert said in run.stderr


def test_where_no_mail_is_due_nothing_of_mail_is_loaded(office: Office) -> None:
    """A timer's run costs what it cost before, also where mail waits for later."""
    code = "import sys; from tui.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    office.run("queue", "add", "feeds_sync")

    words = office.argv("queue", "process-next")[len(COMMAND) :]
    argv = [sys.executable, "-P", "-c", code, *words]
    run = subprocess.run(argv, capture_output=True, text=True, check=True, env=office.environ)

    loaded = set(run.stdout.split())
    assert "engine.worker" in loaded
    assert not {name for name in loaded if name.startswith(("engine.mail.", "tui.cli.mail."))}


def test_the_password_is_in_no_command_line_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another user is to type has our variables in it, but not the one that is secret."""
    monkeypatch.setenv("NFTBAN_SMTP_USER", "queue")
    monkeypatch.setenv("NFTBAN_SMTP_PASS", "hunter2")
    setup = Setup(config.Config(), config.queue_for(config.Config(), "/nowhere", {}), ("status",))

    told = setup.as_typed("nftban")

    assert "NFTBAN_SMTP_USER=queue" in told
    assert "hunter2" not in told


# ---- the doctor


def test_the_doctor_says_what_keeps_mail_from_being_sent(office: Office) -> None:
    """Mail that waits and cannot go, mail without a task, what is no mail, an open password."""
    office.spool()
    lost = office.spool(task=False)
    (office.root / "mailspool" / "mail-20260107T120102Z-broken").mkdir()
    secret = office.folder / "secret"
    secret.write_text("x\n")
    secret.chmod(0o644)
    office.config.write_text(
        f"mail: {{relay: {{host: mx.example.com, password_file: {secret}}}}}\n"
    )

    run = office.run("doctor")

    assert run.returncode == 1
    assert "warn  mail      1 mail waits, and none can be sent: no mail transport" in run.stdout
    assert f"others may read {secret} (mode 0644)" in run.stdout
    assert f"{lost}: no task sends this mail" in run.stdout
    assert f"mail spool retry -- {lost}" in run.stdout
    assert "mail-20260107T120102Z-broken: no mail: " in run.stdout


def test_the_doctor_says_where_a_wrong_address_stands(office: Office) -> None:
    """Who has to correct it is told the file, the line and the variable; or the key of ours."""
    folder = office.folder / "etc" / "conf.d"
    folder.mkdir(parents=True)
    (folder / "mail.conf").write_text('# mail\nNFTBAN_MAIL_RECIPIENT="foo,bar@x.de"\n')
    etc = str(office.folder / "etc")
    theirs = office.run("doctor", NFTBAN_CONFIG_DIR=etc).stdout
    environment = office.run("doctor", NFTBAN_MAIL_RECIPIENT="a b", NFTBAN_CONFIG_DIR=etc).stdout
    office.config.write_text("mail: {recipient: 'foo,bar@x.de'}\n")
    ours = office.run("doctor").stdout

    assert f"{folder}/mail.conf: line 2: NFTBAN_MAIL_RECIPIENT: 'foo,bar@...' holds" in theirs
    assert "environment: NFTBAN_MAIL_RECIPIENT: 'a b' holds" in environment
    assert "mail.recipient: 'foo,bar@...' holds" in ours and "correct mail.recipient" in ours


def test_the_doctor_finds_nothing_where_all_mail_can_go(office: Office) -> None:
    """A mail with its task, and a transport for it, are nothing to mend."""
    office.spool()
    with Server() as server:
        office.goes_by("curl", server.port)
        run = office.run("doctor")

    said = {line.split()[1]: line.split()[0] for line in run.stdout.splitlines() if line[0] != " "}
    assert (said["mail"], said["spool"], said["kinds"]) == ("ok", "ok", "ok")
