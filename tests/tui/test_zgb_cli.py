"""A ZGB mail queue from the command line, by a real program that takes its mail."""

from __future__ import annotations

import email
import email.policy
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from engine import config, metrics
from engine.flow import Course, Drain
from engine.forecast import drained
from engine.logtail import Tail
from engine.model import Task
from engine.stores.zgb import ZgbStore, create
from engine.stores.zgb.settings import Settings
from tests import command
from tests.mail.programs import a_script, needs
from tests.mail.smtpd import HOST, Server
from tests.stores.nobody import by_nobody, nobodys_folder
from tui import looking
from tui.cli.console import places_of
from tui.cli.sites import setup_for
from tui.cli.wiring import Hidden
from tui.cli.zgb import desk_of, queue_facts, queue_logs, queue_shut, queue_tokens
from tui.views import parts

COMMAND = [sys.executable, "-P", "-m", "tui.cli"]
ROOT = Path(__file__).parents[2]

PATIENCE = 60.0
"""Seconds within which a machine, however busy, gets something done."""


class Site:
    """A mail queue, its configuration, and a sendmail that keeps what it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "data" / "q.db")
        (folder / "data").mkdir()
        (folder / "mails").mkdir()
        (folder / "home" / "logs").mkdir(parents=True)
        self.log_path = folder / "home" / "logs" / "mail-queue.log"
        (folder / "user.txt").write_text("Hallo {name}, Nummer {number}.\n")
        (folder / "orga.html").write_text("<p>{name} ist dabei</p>\n")
        self.sendmail = a_script(
            folder / "sendmail",
            f"cat > '{folder}/mails/.'$$ && mv '{folder}/mails/.'$$ '{folder}/mails/'$$",
        )
        self.config = folder / "some.yaml"
        self.configure()
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    def configure(self, mail: str = "", own: str = "", user: str = "") -> None:
        """Write the configuration, with more of each section."""
        way = mail or f"method: sendmail, programs: {{sendmail: {self.sendmail}}}"
        template = "template: user.txt, subject: 'Anmeldung {number}'"
        self.config.write_text(
            f"mail: {{{way}, sender: fest@example.org}}\n"
            "stores:\n"
            f"  zgb:\n    {own or 'lease: 300'}\n"
            "    types:\n"
            f"      user: {{{user or template}}}\n"
            "      organizer: {template: orga.html, to: orga@example.org}\n"
        )

    def make(self, *numbers: int, tokens: float = 100.0) -> None:
        """The database, with these registrations, sending as fast as it may."""
        assert self.run("init", self.path).returncode == 0
        self.sql("ALTER TABLE registrations ADD COLUMN email TEXT")
        self.sql("ALTER TABLE registrations ADD COLUMN name TEXT")
        for number in numbers:
            self.sql(
                "INSERT INTO registrations VALUES (?, 0, ?, ?)",
                number,
                f"p{number}@example.org",
                f"Person {number}",
            )
        self.settle("mailQueueEnabled", "1")
        self.settle("mailMaxPerHour", "1")
        self.settle("mailTokens", str(tokens))
        # Far enough ahead that no token is gained while a test runs.
        self.settle("mailLastRefill", str(int(time.time())))

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """As a program of somebody else's."""
        with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as db, db:
            return db.execute(statement, values).fetchall()

    def settle(self, key: str, value: str) -> None:
        """Set one of theirs."""
        self.sql("INSERT OR REPLACE INTO config VALUES (?, ?)", key, value)

    def argv(self, *words: str, family: str = "zgb") -> list[str]:
        """The command line."""
        return [*COMMAND, "--config", str(self.config), *filter(None, [family]), *words]

    def run(self, *words: str, family: str = "zgb") -> subprocess.CompletedProcess[str]:
        """A command, as everybody starts it."""
        return command.run(
            self.argv(*words, family=family)[len(COMMAND) :],
            capture_output=True,
            text=True,
            env=self.environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )

    def patched(self, patch: str, *words: str) -> list[str]:
        """The command line of a command that finds something changed."""
        run = f"{patch}\nfrom tui.cli import main\nimport sys\nsys.exit(main(sys.argv[1:]))\n"
        return [sys.executable, "-c", run, *self.argv(*words)[len(COMMAND) :]]

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """A command line that goes on."""
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )

    def mails(self) -> list[EmailMessage]:
        """What was accepted."""
        found = []
        for path in sorted((self.folder / "mails").glob("[0-9]*")):
            mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
            assert isinstance(mail, EmailMessage)
            found.append(mail)
        return found

    def jobs(self) -> list[tuple[str, str]]:
        """Which jobs there are, and how they stand."""
        rows = "SELECT registration_number || '-' || mail_type, status FROM mail_queue ORDER BY id"
        return [(str(ident), str(status)) for ident, status in self.sql(rows)]

    def told(self, *events: str) -> list[dict[str, Any]]:
        """What the log says, of these events."""
        lines = map(json.loads, self.log_path.read_text().splitlines())
        return [line for line in lines if line["event"] in events or not events]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A place for a mail queue; the database is not made yet."""
    return Site(tmp_path)


def soon(is_so: Callable[[], bool]) -> bool:
    """Wait until something is so; whether it came to be."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


# ---- made and filled


def test_a_new_queue_is_made_once(site: Site) -> None:
    """It is paused; what is there already is left as it is."""
    first = site.run("init", site.path)
    site.sql("INSERT INTO registrations VALUES (7, 0)")
    second = site.run("init", site.path)

    made, *steps = first.stdout.splitlines()
    assert made == f"made {site.path}: paused, until mailQueueEnabled is 1 in its table config"
    assert (second.returncode, "is there already" in second.stderr) == (64, True)
    assert site.sql("SELECT number FROM registrations") == [(7,)]
    (on, add, *_) = [line.strip().split("   ")[0].split() for line in steps if "--root" in line]
    words = [word for word in on if word != "spooldeck"]
    assert site.run(*words, family="").returncode == 0
    assert site.sql("SELECT value FROM config WHERE key = 'mailQueueEnabled'") == [("1",)]
    words = [word.replace("NUMBER", "7") for word in add if word not in ("spooldeck", "zgb")]
    assert site.run(*words).stdout == "7-user created\n7-organizer created\n"
    assert any("* * * * * " in line and line.count(site.path) for line in steps)


def test_enqueuing_twice_makes_no_second_job(site: Site) -> None:
    """Both mails of a registration, once; the second time it says where they stand."""
    site.make(7)
    site.settle("mailQueueEnabled", "0")
    first = site.run("enqueue", "7", site.path)
    site.sql(
        "UPDATE mail_queue SET status = 'failed', attempts = 10, next_attempt_at = 253402300799,"
        " last_error = '550 no' WHERE mail_type = 'user'"
    )
    second = site.run("enqueue", "7", site.path)

    assert first.stdout == "7-user created\n7-organizer created\npaused, 2 waiting\n"
    assert second.stdout == (
        "7-user already there: parked, attempts 10, 550 no\n"
        "7-organizer already there: pending\npaused, 1 waiting\n"
    )
    assert len(site.jobs()) == 2
    assert [line["event"] for line in site.told()] == ["enqueue"] * 2 + ["enqueue_duplicate"] * 2


def test_only_what_is_asked_for_and_switched_on_is_enqueued(site: Site) -> None:
    """One kind by its name; one that is switched off not even then."""
    site.make(7)
    one = site.run("enqueue", "7", site.path, "--type", "organizer")
    site.configure(user="enabled: false")
    both = site.run("enqueue", "7", "--root", site.path)
    off = site.run("enqueue", "7", site.path, "--type", "user")

    assert one.stdout == "7-organizer created\n"
    assert both.stdout == "7-organizer already there: pending\n"
    assert (off.returncode, "user mails are switched off" in off.stderr) == (78, True)


def test_nobody_registered_has_no_mail(site: Site) -> None:
    """A number without a registration is refused, and nothing is made."""
    site.make(7)

    done = site.run("enqueue", "8", site.path)

    assert (done.returncode, done.stdout) == (64, "")
    assert "no registration 8" in done.stderr
    assert site.jobs() == []


def test_the_console_is_told_of_the_queue(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of the place that the command line names, and of the log that is written."""
    site.make(7)
    site.run("enqueue", "7", site.path)
    site.run("work", site.path)
    monkeypatch.setenv("HOME", site.environ["HOME"])
    setup = setup_for(config.load(str(site.config), {}), site.path, {})

    found = queue_facts(setup)

    rows = dict(found.rows)
    assert rows["registrations"] == "1"
    assert rows["backlog"].startswith("1 waiting, 1 due; empty in ")
    assert rows["last run"].endswith(": 1 sent")
    assert rows["our worker"] == "not at work now; sends by sendmail"
    assert found.warnings == ()
    assert queue_logs(setup) == (str(site.log_path),)


def test_failed_jobs_are_told_from_pending_ones(site: Site) -> None:
    """Status, overview and list count and select jobs by the words of the format itself."""
    site.make(7, 8)
    for number in ("7", "8"):
        site.run("enqueue", number, site.path, "--type", "user")
    site.sql("UPDATE mail_queue SET status = 'failed' WHERE registration_number = 8")
    root = ("--root", site.path)

    def listed(*words: str) -> list[str]:
        ended = site.run("queue", "list", *words, *root, family="")
        return [line.split(" | ")[1] for line in ended.stdout.splitlines()]

    tasks = {"pending": 1, "failed": 1, "sending": 0, "held": 0, "parked": 0, "trash": 0}
    status = json.loads(site.run("status", site.path, "--json", family="").stdout)
    overview = json.loads(site.run("overview", site.path, "--json", family="").stdout)
    assert status["tasks"] == overview["places"][0]["tasks"] == tasks
    assert "FAILED" in site.run("overview", site.path, family="").stdout
    assert listed() == ["7-user", "8-user"]
    assert listed("--state", "failed") == listed("--filter", "state=failed") == ["8-user"]
    assert listed("--state", "pending") == ["7-user"]
    assert listed("--state", "pending,failed") == ["7-user", "8-user"]
    replay = site.run("replay", "--id", "8-user", "--dry-run", *root, family="")
    assert "8-user: failed, expected parked; promote makes it due now" in replay.stderr
    promote = site.run("promote", "--state", "failed", "--apply", "1", *root, family="")
    assert (promote.returncode, promote.stderr) == (0, "")


def test_of_a_shared_log_each_database_shows_its_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queues of one user write one log, each of its own job 7-user: one was sent, the other is
    claimed by a worker that is gone. Of that one nothing says that it was sent: not its screen, and
    no line that comes while one watches.
    """
    site.make(7)
    site.run("enqueue", "7", site.path, "--type", "user")
    left = str(site.folder / "data" / "left.db")
    with closing(sqlite3.connect(site.path)) as theirs, closing(sqlite3.connect(left)) as copy:
        theirs.backup(copy)
    monkeypatch.setenv("HOME", site.environ["HOME"])
    setup = setup_for(config.load(str(site.config), {}), left, {})
    (place,) = places_of(setup, [left])
    tails = [Tail(path) for path in place.logs]
    assert not [line for tail in tails for line in tail.poll() if "7-user" in line.text]

    with closing(place.open()) as store:
        (task,) = store.take(time.time(), "gone", 1)
    desk_of(setup).log().tell("claimed", job=1, reg=7, type="user", attempt=1)
    site.run("work", site.path)

    events = [line["event"] for line in site.told("claimed", "sent")]
    assert events == ["claimed", "claimed", "sent"]
    mentions = looking.told(place.logs, task).log
    assert mentions is not None
    mentioned = mentions.lines
    shown = [line for tail in tails for line in tail.poll()]
    assert [line.text.split(" job=")[0] for line in mentioned] == ["claimed 7-user"]
    assert [line for line in shown if site.path in line.text] == []
    assert [line.text for line in shown if "7-user" in line.text] == [mentioned[0].text]
    for tail in tails:
        tail.close()


def test_a_suspended_transport_is_told_wherever_one_asks(site: Site) -> None:
    """With the command that has it go on: by status, in full, by the doctor, and of each job."""
    site.make(7)
    site.run("enqueue", "7", site.path, "--type", "user")
    site.run("work", site.path)
    site.run("enqueue", "7", site.path, "--type", "user")
    site.run("mail", "suspend", "sendmail", "--root", site.path, family="")
    resume = f"spooldeck mail resume sendmail --root {site.path}"

    status = site.run("status", site.path, family="")
    doctor = site.run("doctor", site.path)
    setup = setup_for(config.load(str(site.config), {}), site.path, {})

    held = "sends nothing: no mail transport: sendmail suspended by "
    (attention,) = [line for line in status.stdout.splitlines() if line.startswith("attention")]
    assert attention.startswith(f"attention our worker {held}")
    assert attention.endswith(f"({resume})")
    assert f"our worker {held}" in status.stdout
    assert f"mend: {resume}\n" in doctor.stdout
    assert queue_shut(setup, "user").endswith(f"({resume})")
    assert queue_shut(setup, "guest").endswith(f"({resume})")
    (place,) = places_of(setup, [site.path])
    assert place.shut is not None
    assert place.shut("user") == queue_shut(setup, "user")

    site.run(*resume.split()[1:], family="")
    assert queue_shut(setup, "user") == ""
    assert queue_shut(setup, "guest") == "no mail is known as guest"
    assert site.run("status", site.path, family="").returncode == 0


def test_without_a_template_our_worker_sends_nothing_which_is_told(site: Site) -> None:
    """Unless somebody else's runs there, who needs none of ours; a lacking file keeps its kind."""
    site.make(7)
    site.settle("mailLastRefill", "1000")
    site.run("enqueue", "7", site.path)
    (site.folder / "user.txt").unlink()
    setup = setup_for(config.load(str(site.config), {}), site.path, {})
    assert any(said.startswith("user mails wait: ") for said in queue_facts(setup).warnings)
    assert "user.txt" in queue_shut(setup, "user")

    setup = setup_for(config.Config(), site.path, {})
    told, shut = queue_facts(setup), queue_shut(setup, "user")
    site.settle("mailLastRefill", str(int(time.time())))
    beside = queue_facts(setup)
    site.config.write_text("{}\n")
    letters = [line for line in site.run("doctor", site.path).stdout.splitlines() if "let" in line]

    assert dict(told.rows)["our worker"].startswith("sends nothing: no template is set")
    assert any("no template is set" in said for said in told.warnings)
    assert dict(beside.rows)["our worker"] == dict(told.rows)["our worker"]
    assert not any("no template is set" in said for said in beside.warnings)
    assert shut.startswith("no template is set")
    assert queue_shut(setup, "user") == ""
    assert letters[0].startswith("ok    letters   somebody else's worker sends them: no template")


def test_while_it_is_paused_nobody_says_when_it_is_done(site: Site) -> None:
    """There is no next token to wait for, and no end to be foretold."""
    site.make(7, tokens=0)
    site.settle("mailQueueEnabled", "0")
    setup = setup_for(config.load(str(site.config), {}), site.path, {})

    (paused,) = queue_tokens(setup)
    site.settle("mailQueueEnabled", "1")
    (empty,) = queue_tokens(setup)
    site.settle("mailTokens", "1")
    (ready,) = queue_tokens(setup)

    assert (paused.paused, paused.next) == (True, None)
    assert drained(3, Drain(Course.UNKNOWN), (paused,)).brief == "paused"
    assert empty.paused is False and empty.next is not None
    assert (ready.tokens, ready.next) == (1, None)


def test_what_is_no_mail_queue_is_said(site: Site) -> None:
    """A folder is none, nor is a file of something else."""
    (site.folder / "text").write_text("hello")
    for place in (site.folder, site.folder / "text", site.folder / "missing"):
        done = site.run("work", str(place))
        assert (done.returncode, "no mail queue" in done.stderr) == (69, True)


# ---- one run


def test_one_run_sends_what_the_tokens_allow(site: Site) -> None:
    """One token is one mail; the rest waits, and the log says what the run came to."""
    site.make(7, 8, tokens=1)
    for number in ("7", "8"):
        site.run("enqueue", number, site.path, "--type", "user")

    done = site.run("work", site.path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 sent, 0 failed, 1 waiting; next token in ")
    (mail,) = site.mails()
    assert (mail["To"], mail["Subject"]) == ("p7@example.org", "Anmeldung 7")
    assert mail["Message-ID"].startswith("<zgb-7-user-")
    assert mail.get_content() == "Hallo Person 7, Nummer 7.\n"
    assert site.jobs() == [("8-user", "pending")]
    start, end = site.told("run_start", "run_end")
    assert start["run"] == end["run"]
    assert {"rate": 1, "cap": 1, "tokens_before": 1.0}.items() <= start.items()
    counted = {"allowed": 1, "claimed": 1, "sent": 1, "failed": 0, "recovered": 0, "orphans": 0}
    assert counted.items() <= end.items()
    assert end["tokens_after"] < 1


def test_what_a_run_did_is_told_where_mail_and_logs_are_looked_at(site: Site) -> None:
    """How the transport fared, and the queue's own log with what matters first."""
    site.make(7, 17)
    site.run("enqueue", "7", site.path)
    site.run("enqueue", "17", site.path, "--type", "user")
    site.run("work", site.path)

    sending = json.loads(site.run("transports", site.path, "--json", family="").stdout)
    lines = site.run("log", site.path, "--json", family="").stdout.splitlines()

    (sent,) = [way for way in sending["transports"] if way["totals"]["attempts"]]
    assert (sent["transport"], sent["totals"]["success"]) == ("sendmail", 1)
    assert {each["problem"] for each in sending["sources"]} == {""}
    own = [line for line in map(json.loads, lines) if line["log"] == str(site.log_path)]
    (done,) = [line for line in own if line["text"].startswith("sent ")]
    assert re.match(r"sent 7-user job=\d+ attempt=1 to=p\*\*\*@example\.org ", done["text"])
    assert done["text"].endswith(f" db={site.path}")
    assert (done["level"], done["when"] > 1e9) == ("INFO", True)


def test_a_job_that_is_nothing_but_its_row_is_shown_by_it(site: Site) -> None:
    """The mail is made of it when it is sent: until then there is no other payload."""
    site.make(7)
    site.run("enqueue", "7", site.path, "--type", "user")
    with closing(ZgbStore(Settings().place(site.path))) as store:
        (task,) = [item for item in store.look({"7-user"}) if isinstance(item, Task)]
        opened = [parts.Opened(part, store.read(task, part.name)) for part in store.parts(task)]

    said = ["".join(text for text, _ in line) for line in parts.payload(opened, 0.0, 80)]

    assert said[0].endswith("it has no payload; this is all there is of it")
    assert "row: JSON" in said[1]
    assert '      "mail_type": "user",' in said


def test_a_paused_run_keeps_house_and_spends_nothing(site: Site) -> None:
    """Orphans go, the bucket stays untouched, and the log says that it was skipped."""
    site.make(7, 8)
    for number in ("7", "8"):
        site.run("enqueue", number, site.path)
    site.settle("mailQueueEnabled", "0")
    site.sql("DELETE FROM registrations WHERE number = 8")
    before = site.sql("SELECT * FROM config ORDER BY key")

    done = site.run("work", site.path)

    assert (done.returncode, done.stdout) == (0, "paused, 2 waiting\n")
    assert site.sql("SELECT * FROM config ORDER BY key") == before
    assert [ident for ident, _ in site.jobs()] == ["7-user", "7-organizer"]
    (skipped,) = site.told("run_skipped", "run_start", "run_end")
    assert (skipped["event"], skipped["orphans"]) == ("run_skipped", 2)
    assert site.mails() == []


def test_a_failed_mail_waits_and_cron_hears_nothing(site: Site) -> None:
    """The run ends well, and quietly; the job says why and waits for its minute."""
    site.make(7)
    a_script(site.folder / "sendmail", "cat > /dev/null; echo 'no such user' >&2; exit 67")
    site.run("enqueue", "7", site.path, "--type", "user")
    before = int(time.time())

    done = site.run("work", site.path, "--quiet")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    ((status, attempts, due, error),) = site.sql(
        "SELECT status, attempts, next_attempt_at, last_error FROM mail_queue"
    )
    assert (status, attempts) == ("failed", 1)
    assert due >= before + 60
    assert "rejected" in error
    assert [line["attempt"] for line in site.told("failed")] == [1]


def test_what_cannot_be_sent_is_not_claimed(site: Site) -> None:
    """Without its template a kind waits and costs no token; the other one goes on."""
    site.make(7)
    (site.folder / "user.txt").unlink()
    site.run("enqueue", "7", site.path)

    done = site.run("work", site.path)

    assert done.returncode == 0
    assert "user: template" in done.stdout
    assert "No such file" in done.stdout
    assert [mail["To"] for mail in site.mails()] == ["orga@example.org"]
    assert site.sql("SELECT attempts, status FROM mail_queue") == [(0, "pending")]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("lease: 60", "stores.zgb.lease: the lease of 60 s may lapse"),
        ("lease: x", "stores.zgb.lease: expected a whole number"),
    ],
)
def test_settings_that_cannot_work_send_nothing(site: Site, own: str, words: str) -> None:
    """It says which one, and claims nothing."""
    site.make(7)
    site.run("enqueue", "7", site.path, "--type", "user")
    site.configure(own=own)

    done = site.run("work", site.path)

    assert (done.returncode, words in done.stderr) == (78, True)
    assert site.jobs() == [("7-user", "pending")]


def test_mail_goes_by_a_relay_with_its_own_headers(site: Site) -> None:
    """Through curl to a server, redirected: the Message-ID and the first address arrive."""
    needs("curl")
    site.make(7)
    site.settle("mailRedirectToSchumbi", "1")
    site.settle("startDate", "2001-01-01")
    site.settle("endDate", "2001-01-31")
    site.run("enqueue", "7", site.path, "--type", "user")
    with Server() as server:
        relay = f"relay: {{host: {HOST}, port: {server.port}}}"
        site.configure(mail=f"method: curl, plain_hosts: ['{HOST}'], {relay}")
        done = site.run("work", site.path)

    assert done.stdout.startswith("1 sent"), done
    (received,) = server.mails
    mail = email.message_from_bytes(received.data, policy=email.policy.default)
    assert received.recipients == ("p7=example.org@schumbi.de",)
    assert mail["Message-ID"].startswith("<zgb-7-user-")
    assert mail["X-Original-To"] == "p7@example.org"


def test_with_no_log_to_write_the_lines_are_heard(site: Site) -> None:
    """They go to standard error, and the mail goes out."""
    site.make(7)
    site.run("enqueue", "7", site.path, "--type", "user")
    site.environ["MAIL_QUEUE_LOG"] = str(site.folder / "no" / "folder.log")

    done = site.run("work", site.path)

    assert (done.returncode, len(site.mails())) == (0, 1)
    assert '"event":"sent"' in done.stderr


# ---- ended in between


def test_killed_after_sending_it_is_sent_once(site: Site) -> None:
    """A worker is killed when the mail is out and its row is still there; the next run that comes
    after the lease finds the line, and has the row go."""
    site.make(7)
    site.run("enqueue", "7", site.path, "--type", "user")
    dying = (
        "import os, signal\n"
        "from engine.stores.zgb import ZgbStore\n"
        "ZgbStore.swap = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = site.start(*site.patched(dying, "work", site.path))
    killed.communicate(timeout=PATIENCE)
    assert (killed.returncode, len(site.mails())) == (-signal.SIGKILL, 1)
    assert site.jobs() == [("7-user", "sending")]
    site.settle("mailTokens", "1")
    site.sql("UPDATE mail_queue SET locked_until = 1")
    site.run("work", site.path)
    assert site.jobs() == [("7-user", "pending")]  # it waits, as after any failure
    site.sql("UPDATE mail_queue SET next_attempt_at = 1")
    site.settle("mailTokens", "1")

    done = site.run("work", site.path)

    assert (done.returncode, site.jobs(), len(site.mails())) == (0, [], 1)
    assert len(site.told("sent")) == len(site.told("already_sent")) == 1
    assert [line["recovered"] for line in site.told("run_end")] == [1, 0]


def test_of_two_runs_one_works(site: Site) -> None:
    """While a mail is being handed over a second run ends with 2, and says so unless --quiet; each
    mail goes once."""
    site.make(7)
    gate = site.folder / "gate"
    os.mkfifo(gate)
    script = Path(site.sendmail)
    script.write_text(script.read_text().replace("cat >", f"read x < '{gate}'\ncat >", 1))
    site.run("enqueue", "7", site.path, "--type", "user")
    first = site.start(*site.argv("work", site.path))
    assert soon(lambda: site.jobs() == [("7-user", "sending")])

    second = site.run("work", site.path)
    loop = site.run("work", site.path, "--loop")
    quiet = site.run("work", site.path, "--quiet")
    gate.write_text("go\n")
    said, _ = first.communicate(timeout=PATIENCE)

    assert (second.returncode, second.stdout) == (2, "")
    assert (quiet.returncode, quiet.stdout + quiet.stderr) == (2, "")
    assert re.search(rf"another run is at work on .* \(PID {first.pid}\)", second.stderr)
    assert loop.returncode == 2
    assert (first.returncode, said) == (0, "1 sent, 0 failed, 0 waiting\n")
    assert len(site.mails()) == 1


def test_a_loop_sends_what_comes_and_ends_when_told(site: Site) -> None:
    """It does not wait for the minute to be over: the database changes, and it looks."""
    site.make(7, 8)
    site.settle("mailMaxPerHour", "60")
    site.settle("mailTokens", "5")
    hourly = "from tui.cli import zgb\nzgb.EVERY = 3600.0"
    loop = site.start(*site.patched(hourly, "work", site.path, "--loop"))
    try:
        assert soon(lambda: site.log_path.exists() and len(site.told("run_end")) > 0)
        site.run("enqueue", "7", site.path, "--type", "user")
        assert soon(lambda: len(site.mails()) == 1 and site.jobs() == [])
        site.run("enqueue", "8", site.path, "--type", "user")
        assert soon(lambda: len(site.mails()) == 2 and site.jobs() == [])
    finally:
        loop.send_signal(signal.SIGTERM)
        said, _ = loop.communicate(timeout=PATIENCE)

    assert loop.returncode == 0, said
    assert len(site.told("run_end")) == len(site.told("run_start"))


def test_a_loop_outlives_what_the_database_refuses(site: Site) -> None:
    """A rule of theirs against what a run does may be gone at the next: it is said once, and the
    loop goes on.
    """
    site.make(7)
    site.settle("mailTokens", "5")
    site.run("enqueue", "7", site.path, "--type", "user")
    site.sql("CREATE TRIGGER no BEFORE UPDATE ON config BEGIN SELECT RAISE(ABORT, 'not now'); END")
    often = (
        "import sys\nfrom tui.cli import zgb\n"
        "zgb.again = lambda refusals: print('refused', refusals, file=sys.stderr) or 0.1"
    )
    loop = site.start(*site.patched(often, "work", site.path, "--loop"))
    try:

        def refused() -> int:
            runs = site.told("run_end") if site.log_path.exists() else []
            return sum("not now" in str(run.get("error")) for run in runs)

        assert soon(lambda: refused() > 2)
        site.sql("DROP TRIGGER no")
        assert soon(lambda: len(site.mails()) == 1 and site.jobs() == [])
    finally:
        loop.send_signal(signal.SIGTERM)
        said, _ = loop.communicate(timeout=PATIENCE)

    assert loop.returncode == 0, said
    assert said.count("not now") == 1
    assert "not now, retry in 0s" in said
    assert said.index("refused 0\n") < said.index("refused 1\n") < said.index("refused 2\n")
    log = Path(f"{site.path}.spooldeck.d/log/queue.log").read_text()
    assert re.search(r"\[ERROR\] Queue cannot be reached: .*not now, retry in 0s", log)


def test_a_run_that_was_refused_its_claims_says_so(site: Site) -> None:
    """A rule of theirs refuses each claim: that is no run in which there was nothing to send. It
    is said in a line, by the exit code, in the log, by the doctor and by status, until a later run
    has done all that it should.
    """
    site.make(7)
    site.settle("mailMaxPerHour", "40")
    site.settle("mailTokens", "5")
    site.run("enqueue", "7", site.path)
    refuse = "BEFORE UPDATE ON mail_queue BEGIN SELECT RAISE(ABORT, 'not today'); END"
    site.sql(f"CREATE TRIGGER no {refuse}")

    ran = site.run("work", site.path)
    doctor, status = site.run("doctor", site.path), site.run("status", site.path, family="")

    assert (ran.returncode, ran.stdout) == (69, "")
    assert "not today" in ran.stderr
    (end,) = site.told("run_end")
    assert (end["level"], "not today" in end["error"], end["sent"]) == ("error", True, 0)
    (cron,) = [line for line in doctor.stdout.splitlines() if " cron " in f"{line} "]
    assert re.match(r"bad +cron +the last run failed: .*not today", cron), doctor.stdout
    assert f"mend: read the queue's log: spooldeck log {site.path}" in doctor.stdout
    assert doctor.returncode == 1
    assert re.search(r"^attention the last run failed: .*not today", status.stdout, re.MULTILINE)

    site.sql("DROP TRIGGER no")
    assert site.run("work", site.path).stdout == "2 sent, 0 failed, 0 waiting\n"
    assert "failed:" not in site.run("doctor", site.path).stdout
    assert "last run failed" not in site.run("status", site.path, family="").stdout
    assert [line["level"] for line in site.told("run_end")] == ["error", "info"]


def test_a_run_says_which_jobs_nobody_could_claim(site: Site) -> None:
    """Rows that are no jobs wait for ever: without a reason, nobody would look why."""
    site.make(7, 8)
    site.settle("mailMaxPerHour", "40")
    site.settle("mailTokens", "5")
    for number in ("7", "8"):
        site.run("enqueue", number, site.path, "--type", "user")
    site.sql("UPDATE mail_queue SET next_attempt_at = 'soon' WHERE registration_number = 8")

    said = f"1 row cannot be read (spooldeck zgb doctor {site.path})"
    assert site.run("work", site.path).stdout == f"1 sent, 0 failed, 1 waiting; {said}\n"
    site.sql("UPDATE mail_queue SET next_attempt_at = 0")
    assert site.run("work", site.path).stdout == "1 sent, 0 failed, 0 waiting\n"


def test_a_run_tells_of_itself_in_numbers(site: Site) -> None:
    """It writes the same metrics file as a worker of a queue of the contract, on our desk."""
    site.make(7, 8)
    site.settle("mailTokens", "1")
    site.run("enqueue", "7", site.path, "--type", "user")
    site.run("enqueue", "8", site.path, "--type", "user")

    site.run("work", site.path)

    told = metrics.read(f"{site.path}.spooldeck.d/metrics/queue.prom")
    assert told.get("nftban_queue_tasks_pending") == 1
    assert told.get("nftban_queue_tasks_working") == 0
    assert told.get("nftban_queue_tasks_processed_total") == 1


def test_two_names_of_one_database_are_one_queue(site: Site) -> None:
    """By a link there is the same desk: one lock keeps two runs apart, and there is one journal."""
    site.make(7)
    site.run("enqueue", "7", site.path, "--type", "user")
    link = site.folder / "link.db"
    link.symlink_to(site.path)
    reason = ("--reason", "by the link")

    held = site.run("hold", str(link), "--id", "7-user", "--apply", "1", *reason, family="")

    assert held.returncode == 0, held.stderr
    assert "by the link" in site.run("journal", site.path, family="").stdout
    setups = [setup_for(config.load(str(site.config), {}), str(p), {}) for p in (link, site.path)]
    assert {setup.desk for setup in setups} == {f"{site.path}.spooldeck.d"}
    assert {setup.queue.pending for setup in setups} == {str(Path(site.path).parent)}


# ---- what is wrong


@pytest.mark.parametrize("closed", ["", "q.db"])
def test_what_is_hidden_is_not_said_to_be_none(tmp_path: Path, closed: str) -> None:
    """A database, or a folder with one, that we may not look at is hidden from us: no advice to
    make another one there.
    """
    with nobodys_folder() as folder:
        inside = folder / "in"
        shut, database = inside / closed, inside / "q.db"

        def look() -> None:
            inside.mkdir()
            create(str(database))
            shut.chmod(0)
            setup = setup_for(config.Config(), str(database), {})
            with pytest.raises(Hidden, match=f"{shut} is hidden from us: chmod u"):
                desk_of(setup)
            shut.chmod(0o700)

        by_nobody(look)


def doctored(site: Site) -> tuple[int, dict[str, list[str]]]:
    """What somebody has to see to, each with how bad it is, by the check."""
    done = site.run("doctor", site.path)
    assert done.stderr == ""
    bad: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith(("warn ", "bad ")):
            grade, name, words = line.split(maxsplit=2)
            bad.setdefault(name, []).append(f"{grade}: {words}")
    return done.returncode, bad


def test_a_healthy_queue_needs_nothing(site: Site) -> None:
    """After a run, with a log in the home, the doctor finds nothing."""
    site.make(7)
    site.run("work", site.path)

    assert doctored(site) == (0, {})


def test_every_doctor_says_it_alike(site: Site) -> None:
    """A row for each finding: how bad, what of, what; and what mends it below. Paused is no damage,
    and the command that asks of any place says what the queue's own does."""
    site.make(7)
    site.settle("mailQueueEnabled", "0")

    own = site.run("doctor", site.path)
    any_place = site.run("doctor", site.path, family="")

    assert "\nwarn  switch    paused\n                mend: spooldeck control " in own.stdout
    assert {line.split()[0] for line in own.stdout.splitlines()} == {"ok", "warn", "mend:"}
    assert any_place.stdout == own.stdout
    assert (own.returncode, any_place.returncode) == (1, 1)


def test_the_doctor_names_what_is_wrong(site: Site) -> None:
    """Each thing that keeps mails from arriving, all at once."""
    site.make(7)
    site.run("enqueue", "7", site.path)
    site.run("enqueue", "7", site.path)
    site.sql(
        "UPDATE mail_queue SET status = 'failed', next_attempt_at = 253402300799, attempts = 10"
        " WHERE mail_type = 'organizer'"
    )
    site.sql("DELETE FROM registrations")
    for key, value in {
        "mailQueueEnabled": "0",
        "mailMaxPerHour": "160",
        "mailRedirectToSchumbi": "1",
        "mailLastRefill": "1000",
    }.items():
        site.settle(key, value)
    site.environ["MAIL_QUEUE_LOG"] = str(site.folder / "no" / "x.log")
    (site.folder / "user.txt").write_text("{price}")
    site.configure(mail="method: none", own="lease: 50")

    code, bad = doctored(site)

    assert code == 1
    assert {name: len(words) for name, words in bad.items()} == {
        "switch": 1,
        "jobs": 1,
        "rows": 1,
        "rate": 1,
        "lease": 1,
        "transport": 1,
        "letters": 2,
        "redirect": 1,
        "log": 1,
    }
    assert {name for name, words in bad.items() if words[0].startswith("bad: ")} == {
        *("lease", "transport", "letters"),
    }
    assert "1 parked" in bad["jobs"][0]
    assert "2 jobs have no registration" in bad["rows"][0]
    assert "the method is none" in bad["transport"][0]


@pytest.mark.parametrize(
    ("key", "value", "name", "words"),
    [
        ("mailLastRefill", "1000", "cron", "the last run was"),
        ("mailTokens", "", "cron", "no run is known of"),
    ],
)
def test_the_doctor_hears_that_cron_is_silent(
    site: Site, key: str, value: str, name: str, words: str
) -> None:
    """With the line that belongs into the crontab."""
    site.make(7)
    site.settle(key, value)

    done = site.run("doctor", site.path)

    assert done.returncode == 1
    assert f"warn  {name:<9} {words}" in done.stdout
    assert "* * * * * " in done.stdout


def test_the_doctor_says_when_a_log_may_be_public(site: Site) -> None:
    """Wherever a web server looks; beside the database it is as safe as that."""
    site.make(7)
    site.run("work", site.path)
    site.environ["HOME"] = "/nonexistent"
    _, beside = doctored(site)
    public = site.folder / "htdocs"
    public.mkdir()
    site.environ["MAIL_QUEUE_LOG"] = str(public / "x.log")
    _, below = doctored(site)

    assert "log" not in beside
    assert "below a web root" in below["log"][0]


def test_the_doctor_says_what_the_test_mode_lacks(site: Site) -> None:
    """Readable days, and a time of making where nothing has one; strangers are left to somebody."""
    site.make(7)
    site.run("enqueue", "7", site.path)
    site.settle("mailRedirectToSchumbi", "1")
    dated = site.run("doctor", site.path).stdout
    site.sql("UPDATE registrations SET created_at = strftime('%s') + 900000")
    strangers = site.run("doctor", site.path).stdout
    site.sql("ALTER TABLE mail_queue DROP COLUMN created_at")
    site.sql("ALTER TABLE registrations DROP COLUMN created_at")
    undated = site.run("doctor", site.path).stdout

    assert "YYYY-MM-DD, or switch it off" in dated
    assert "2 jobs are older than the registration" in strangers
    assert "if they are to go, at once: spooldeck control" in strangers
    assert "add a created_at to mail_queue or registrations" in undated


def test_the_doctor_says_when_a_mail_may_go_twice(site: Site) -> None:
    """With neither a time of making nor a key that is given out once, one mail is not told from the
    next of its number.
    """
    site.make(7)
    site.run("work", site.path)
    site.sql("ALTER TABLE mail_queue DROP COLUMN created_at")
    assert doctored(site) == (0, {})
    columns = "registration_number, mail_type, status, attempts, next_attempt_at, locked_until"
    site.sql("DROP TABLE mail_queue")
    site.sql(f"CREATE TABLE mail_queue (id INTEGER PRIMARY KEY, {columns}, last_error)")

    code, bad = doctored(site)

    assert (code, list(bad)) == (1, ["log"])
    assert "may be sent twice" in bad["log"][0]


def test_the_doctor_says_why_a_database_cannot_be_read(site: Site) -> None:
    """A table that is missing is named; and what is no database is told from what is damaged."""
    site.make(7)
    whole = Path(site.path).read_bytes()
    site.sql("DROP TABLE config")
    lacks = site.run("doctor", site.path)
    said = doctored(site)
    Path(site.path).write_bytes(whole[:100] + bytes(len(whole) - 100))
    damaged = site.run("doctor", site.path)
    Path(site.path).write_text("hello\n")
    text = site.run("doctor", site.path)

    assert (said[0], "expected a table config" in said[1]["database"][0]) == (1, True)
    assert "mend: name the database itself, or make a new one: " in lacks.stdout
    assert f"mend: stop all that write to it, then: sqlite3 {site.path} .recover" in damaged.stdout
    assert "bad   database  no mail queue, expected a SQLite database" in text.stdout
    assert {done.returncode for done in (lacks, damaged, text)} == {1}


def test_the_doctor_says_that_a_database_is_locked(site: Site) -> None:
    """And how one sees by whom, when even looking at it is kept up."""
    site.make(7)
    with closing(sqlite3.connect(site.path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        done = site.run("doctor", site.path)

    assert done.returncode == 1
    assert "locked by another process" in done.stdout
    assert f"mend: wait, or see who has it: fuser -v {site.path}" in done.stdout
