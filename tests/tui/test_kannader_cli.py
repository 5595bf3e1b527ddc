"""`spooldeck kannader`: the real command on real spools, sending to a real server."""

from __future__ import annotations

import email
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine import metrics, verbs
from engine.checks import At, ConfigError
from engine.config import load
from engine.events import What
from engine.gauges import LAST_RUN, OLDEST
from engine.mail.host import Host
from engine.mail.smtp import Destination, Unreadable
from engine.metrics import QueueGauges
from engine.model import State, Task
from engine.policy import DAY, RetryPolicy
from engine.store import Unavailable, Unsupported
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.kannader.form import wire
from engine.stores.kannader.settings import Settings, retry_policy, said
from engine.worker import Services, Worker
from tests import command
from tests.mail.smtpd import DROP, HOST, STALL, Server, refusing
from tests.stores.nobody import by_nobody, nobodys_folder
from tui import looking
from tui.cli import unlocked
from tui.cli.kannader import destination, letters_of, returning, spool_facts
from tui.cli.sites import setup_for
from tui.cli.unlocked import Published
from tui.present import Line
from tui.views import parts

FROM, TO, ALSO = "foo@example.org", "bar@example.net", "baz@example.org"
TEXT = b"Subject: hi\n\n.dot, caf\xe9 and \xff\n"
WIRE = wire(TEXT)
SEEN = TEXT.replace(b"\n", b"\r\n")
PATIENCE = 60.0
"""Seconds within which a process starts or ends on a machine however busy."""

DAEMON = """
import os, sys
flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
kept = [os.open(f"{sys.argv[1]}/{word}", flags) for word in ("queue", "inflight", "cleanup")]
print("ready", flush=True)
sys.stdin.readline()
"""
"""Holds the folders of a spool as Kannader does while it runs."""

Answer: TypeAlias = "subprocess.CompletedProcess[bytes]"


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


class Place:
    """A spool, and the command run on it with settings of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "spool"
        self.config = folder / "some.yaml"
        self.home = folder / "home"
        self.home.mkdir()
        self.config.write_text("{}\n")
        make_spool(str(self.path))

    def settle(self, server: Server | None = None, **settings: Any) -> None:
        """What the configuration says of the spool: JSON is YAML."""
        if server is not None:
            settings = {"host": HOST, "port": server.port, **settings}
        self.config.write_text(json.dumps({"stores": {"kannader": settings}}))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Run the command, and let it run."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        argv = ["--config", str(self.config), *words]
        pipe = subprocess.PIPE
        return command.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env)

    def run(self, *words: str, stdin: bytes = b"") -> Answer:
        """Run the command to its end."""
        with self.start(*words) as process:
            out, err = process.communicate(stdin, timeout=PATIENCE)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def enqueue(self, *to: str, text: bytes = TEXT, sender: str = FROM) -> list[str]:
        """The ids of a mail to these, enqueued by the command."""
        named = [word for address in to or (TO,) for word in ("--to", address)]
        words = ["kannader", "enqueue", "--from", sender, *named, "-", str(self.path)]
        done = self.run(*words, stdin=text)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().split()

    def work(self, *words: str) -> Answer:
        """Work until nothing is due."""
        return self.run("kannader", "work", str(self.path), "--until-idle", *words)

    def store(self) -> KannaderStore:
        """The spool as a store, for given and then."""
        return KannaderStore(str(self.path))

    def tasks(self) -> list[Task]:
        """Every mail that is there."""
        with closing(self.store()) as store:
            return [item for item in store.look(store.states.values()) if isinstance(item, Task)]

    @property
    def log(self) -> str:
        """All that was logged."""
        return (self.path / ".spooldeck" / "log" / "queue.log").read_text()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left of any mail."""
        words = ("data", "queue", "inflight", "cleanup")
        return not any(names(self.path / word) for word in words)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty spool."""
    return Place(tmp_path)


@contextmanager
def working(place: Place, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that works until it is told to stop, or is killed."""
    process = place.start("kannader", "work", str(place.path), *words)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


@pytest.fixture
def kannader(place: Place) -> Iterator[int]:
    """A process that holds the spool's folders as Kannader does; its number."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(place.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate(b"\n", timeout=PATIENCE)


def whole_lines(log: str) -> bool:
    """Whether each line is one of the contract's form."""
    form = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \[[A-Z]+\] \S.*").fullmatch
    return all(map(form, log.splitlines()))


# ---- making, and putting in


def test_a_spool_is_made_once(place: Place, tmp_path: Path) -> None:
    """The four folders are made where they are missing; a second time nothing is changed."""
    made = place.run("kannader", "init", str(tmp_path / "new"))
    again = place.run("kannader", "init", str(tmp_path / "new"))

    assert made.returncode == again.returncode == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        *("data", "queue", "inflight", "cleanup")
    }
    assert b"nothing was changed" in again.stdout


def test_no_spool_is_made_in_another_programs_queue(place: Place, tmp_path: Path) -> None:
    """A folder whose queue/ holds something else stays what it is."""
    (tmp_path / "data" / "queue" / "pending").mkdir(parents=True)

    refused = place.run("kannader", "init", str(tmp_path / "data"))

    assert refused.returncode == 64
    assert names(tmp_path / "data") == ["queue"]


@pytest.mark.parametrize("text", [TEXT, SEEN], ids=["LF", "CRLF"])
def test_a_mail_is_put_into_wire_form(place: Place, text: bytes) -> None:
    """Its recipients share its contents, and each has an id, which is printed."""
    ids = place.enqueue(TO, ALSO, TO, text=text)

    (contents,) = place.path.glob("data/*/contents")
    assert contents.read_bytes() == WIRE
    assert {task.id: task.destination for task in place.tasks()} == dict(
        zip(ids, (TO, ALSO), strict=True)
    )
    assert whole_lines(place.log) and all(ident in place.log for ident in ids)


@pytest.mark.parametrize(
    "words",
    [
        "--from {0} --to {1} {2} {file} {place}",
        "--from {0} --to {1} --to {2} {file} {place}",
        "--to {1} {2} --from {0} {file} --root {place}",
        "{file} --from {0} --to {1} --to {2} {place}",
        "{file} {place} --from {0} --to {1} --to {2}",
    ],
)
def test_recipients_and_file_may_be_named_in_any_order(
    place: Place, tmp_path: Path, words: str
) -> None:
    """Those behind the first need no --to of their own: what is no address is the mail's file."""
    file = tmp_path / "mail.eml"
    file.write_bytes(TEXT)
    said = words.format(FROM, TO, ALSO, file=file, place=place.path)

    done = place.run("kannader", "enqueue", *said.split())

    assert done.returncode == 0, done.stderr
    assert {task.destination for task in place.tasks()} == {TO, ALSO}


@pytest.mark.parametrize("words", ["{1}", "{1} {2}", "one two three"])
def test_without_a_file_nothing_is_enqueued(place: Place, words: str) -> None:
    """One line says what was expected where."""
    said = words.format(FROM, TO, ALSO).split()

    done = place.run(
        *("kannader", "enqueue", "--root", str(place.path), "--from", FROM, "--to", TO, *said)
    )

    assert done.returncode == 64
    assert b"expected FILE behind the recipients" in done.stderr
    assert place.tasks() == []


def test_what_is_in_wire_form_is_kept_as_it_is(place: Place, tmp_path: Path) -> None:
    """Not a byte of it changes; what is not in that form is refused."""
    file = tmp_path / "mail"
    words = ("kannader", "enqueue", "--wire", "--from", "<>", "--to", TO, str(file))
    odd = b"A: 1\r\n\r\nbare\nline and \rreturn\r\n.\r\n"
    file.write_bytes(odd)

    taken = place.run(*words, "--root", str(place.path))
    file.write_bytes(b"A: 1\r\n\r\nfirst\r\n.\r\nMAIL FROM:<x@example.org>\r\n.\r\n")
    refused = place.run(*words, str(place.path))

    (contents,) = place.path.glob("data/*/contents")
    assert (taken.returncode, refused.returncode) == (0, 64)
    assert contents.read_bytes() == odd
    assert b"before its end" in refused.stderr


@pytest.mark.parametrize(
    ("sender", "to"),
    [("foo@", TO), (FROM, "a b@example.org"), (FROM, "<>"), (FROM, ""), ("a\nb@example.org", TO)],
)
def test_what_is_no_address_is_refused_before_anything_is_written(
    place: Place, sender: str, to: str
) -> None:
    """One line says which, and the spool stays empty."""
    words = ("enqueue", "--from", sender, "--to", to, "-", str(place.path))
    done = place.run("kannader", *words, stdin=TEXT)

    assert done.returncode == 64 and done.stderr.count(b"\n") == 1
    assert place.is_clean


@pytest.mark.parametrize(
    "words", [("work",), ("recover",), ("enqueue", "--from", "a", "--to", "b", "-")]
)
def test_what_is_no_spool_is_said_to_be_none(place: Place, words: tuple[str, ...]) -> None:
    """With the command that makes one."""
    done = place.run("kannader", *words, str(place.home))

    assert done.returncode == 69
    assert b"is no Kannader spool" in done.stderr and b"kannader init" in done.stderr


# ---- sending


def test_each_recipient_gets_the_mail_once(place: Place) -> None:
    """Byte for byte, each by a transaction of its own; then nothing of it is left."""
    place.enqueue(TO, ALSO)
    with Server() as server:
        place.settle(server)
        done = place.work()

    assert done.returncode == 0, done.stderr
    assert Counter(mail.recipients for mail in server.mails) == {(TO,): 1, (ALSO,): 1}
    assert {(mail.sender, mail.data) for mail in server.mails} == {(FROM, SEEN)}
    assert place.is_clean and not names(place.path / ".spooldeck" / "notes")
    assert whole_lines(place.log) and place.log.count("[SUCCESS] Task completed: ") == 2


def test_a_no_for_now_is_tried_again_after_its_wait(place: Place) -> None:
    """The new schedule stands in the spool, and the same worker sends when it has come."""
    place.enqueue(TO)
    with Server(rcpt=["451 4.7.1 later"]) as server:
        place.settle(server, first_wait=1)
        with working(place):
            assert server.wait_for(1)

    assert place.is_clean
    assert len(server.mails) == 1 and server.connections == 2
    assert "unavailable_451: 451 4.7.1 later" in place.log and "retry in 1s" in place.log


def test_a_mail_that_was_not_taken_waits_with_its_new_schedule(place: Place) -> None:
    """The time of the last attempt and of the next one are written; our count is beside them."""
    place.enqueue(TO)
    with Server(rcpt="451 4.7.1 later") as server:
        place.settle(server)
        assert place.work().returncode == 0
        assert place.work().returncode == 0

    (task,) = place.tasks()
    assert (task.state, task.attempts) == (State.PENDING, 1)
    assert task.due is not None and "last_attempt" in task.extra
    assert server.connections == 1, "the second run finds nothing due"
    assert task.error.startswith("unavailable_451")


def test_the_log_tells_of_attempts_and_when_an_error_was_seen(place: Place) -> None:
    """The format keeps no time of a failure; our own log does, for the task and for its error."""
    place.settle(host="127.0.0.1", port=1, tls="none")
    (ident,) = place.enqueue()
    place.work()
    (task,) = place.tasks()

    told = looking.told([f"{place.path}/.spooldeck/log/queue.log"], task)
    seen = json.loads(place.run("clusters", str(place.path), "--json").stdout)

    (attempt,) = told.attempts
    assert (task.id, attempt.number, attempt.outcome) == (ident, 1, What.WAITS)
    assert "connect_refused" in attempt.error
    assert [event.what for event in told.history][:2] == [What.QUEUED, What.STARTED]
    (failed,) = [event.when for event in told.history if event.what is What.FAILED]
    assert (seen["first"], seen["last"]) == (None, failed)


def test_where_no_transport_is_ours_that_is_said(place: Place) -> None:
    """Mail goes to the one server of the spool: there is nothing to be told of ways."""
    told = place.run("transports", str(place.path))

    assert (told.returncode, told.stderr) == (0, b"")
    assert b"no mail figures are kept here" in told.stdout


def test_status_counts_links_that_cannot_be_sent(place: Place) -> None:
    """A link to contents that a power failure cut off, and a second link to one recipient, are
    problems in status, which exits 1."""
    torn, doubled = place.enqueue(TO)[0], place.enqueue(ALSO)[0]
    queue = place.path / "queue"
    (queue / "second").symlink_to(target := (queue / doubled).readlink())
    (queue / torn).resolve().parent.joinpath("contents").write_bytes(b"")

    done = place.run("status", str(place.path), "--json")

    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert "2 problems" in told["attention"]
    assert {one["where"] for one in told["problems"]} == {
        f"queue/{torn}",
        str(target).removeprefix("../"),
    }


def test_a_mail_opens_as_one_reads_it(place: Place) -> None:
    """Off the wire and decoded; its bytes as they are stored stand among what is raw."""
    text = b"Subject: =?utf-8?q?caf=C3=A9?=\n\n.x\n.\nbye \x1b[2J\n"
    place.enqueue(text=text)
    (task,) = place.tasks()
    with closing(place.store()) as store:
        opened = [parts.Opened(part, store.read(task, part.name)) for part in store.parts(task)]
        stored = next(part.size for part in store.parts(task) if part.wire)

    def said(lines: list[Line]) -> list[str]:
        return ["".join(text for text, _ in line).strip() for line in lines]

    read, raw = (said(lines) for lines in (parts.payload(opened, 0.0, 80), parts.raw(opened, 80)))
    at = read.index("Subject: café")
    assert f"contents: mail, {stored} bytes" in "\n".join(read)
    assert read[at : at + 6] == ["Subject: café", "", "--- text/plain", ".x", ".", "bye \ufffd[2J"]
    assert raw[-5:-1] == ["..x", "..", "bye \ufffd[2J", "."]


def test_a_no_for_ever_is_returned_to_the_sender(place: Place) -> None:
    """One bounce, from nobody, by the same way; it says who and why."""
    (ident,) = place.enqueue(TO)
    with Server(rcpt=["550 5.1.1 no such user"]) as server:
        place.settle(server)
        assert place.work().returncode == 0

    (returned,) = server.mails
    assert (returned.sender, returned.recipients) == ("<>", (FROM,))
    message = email.message_from_bytes(returned.data)
    assert message.get_content_type() == "multipart/report"
    assert message["Message-ID"].startswith(f"<{ident}.bounce@")
    assert b"Status: 5.1.1" in returned.data and b"Subject: hi" in returned.data
    assert place.is_clean
    assert "is returned to its sender" in place.log and "moving to cleanup" in place.log


def test_what_cannot_be_returned_is_returned_to_nobody(place: Place) -> None:
    """A bounce that is refused is let go of, and logged; no mail goes round for ever."""
    place.enqueue(TO)
    with Server(rcpt="550 5.1.1 no such user") as server:
        place.settle(server)
        assert place.work().returncode == 0

    assert place.is_clean and server.mails == []
    assert server.connections == 2, "the mail, and its bounce"
    assert "returned to nobody" in place.log


def test_as_upstream_a_mail_is_dropped_at_its_first_failure(place: Place) -> None:
    """As Kannader's own configuration has it: no second attempt, and no bounce."""
    place.enqueue(TO)
    with Server(rcpt="451 4.7.1 later") as server:
        place.settle(server, profile="upstream")
        assert place.work().returncode == 0

    assert place.is_clean and server.connections == 1
    assert "exhausted retries" in place.log


STRANGE = '"to":{"localpart":{"Secret":{"raw":"bar"}},'
"""An address in a form that nobody knows."""


def to_strangers(place: Place) -> None:
    """Let every mail be to an address of a form that is not known."""
    for metadata in place.path.glob("data/*/*/metadata"):
        said = metadata.read_text().replace('"to":{"localpart":{"Ascii":{"raw":"bar"}},', STRANGE)
        assert STRANGE in said
        metadata.write_text(said)


def stored(place: Place) -> list[bytes]:
    """Every text and every envelope in the spool."""
    found = [*place.path.glob("data/*/contents"), *place.path.glob("data/*/*/metadata")]
    return sorted(path.read_bytes() for path in found)


def twice(place: Place) -> None:
    """Let every text have a second name, as copies that share files give it."""
    for number, contents in enumerate(place.path.glob("data/*/contents")):
        os.link(contents, place.home / str(number))


@pytest.mark.parametrize("profile", ["default", "upstream"])
@pytest.mark.parametrize("spoil", [to_strangers, twice])
def test_what_cannot_be_read_as_a_mail_is_neither_returned_nor_erased(
    place: Place, spoil: Callable[[Place], None], profile: str
) -> None:
    """However old it is and whatever failures end in, it waits, uncounted, and says why."""
    (ident,) = place.enqueue(TO)
    spoil(place)
    os.utime(place.path / "queue" / ident, (10**9, 10**9), follow_symlinks=False)
    before = stored(place)
    with Server() as server:
        place.settle(server, profile=profile)
        assert place.work().returncode == 0

    (task,) = place.tasks()
    assert (task.id, task.state, task.attempts) == (ident, State.PENDING, 0)
    assert server.connections == 0
    assert "second hard link" in task.error or "a form that is not known" in task.error
    assert stored(place) == before
    assert f"Task {ident} waits: " in place.log
    assert "Secret" not in place.log and '{"' not in place.log


def test_what_we_may_not_read_has_no_letter() -> None:
    """Contents that belong to somebody else are no failure of the mail's."""

    with nobodys_folder() as folder:

        def open_letter() -> None:
            make_spool(str(folder / "spool"))
            with closing(KannaderStore(str(folder / "spool"))) as store:
                store.enqueue(FROM, [TO], [TEXT])
                (contents,) = folder.glob("spool/data/*/contents")
                contents.chmod(0)
                task = claimed(store, 4e9)
                with pytest.raises(Unreadable, match="Permission denied"):
                    letters_of(store)(task)
                with pytest.raises(Unavailable, match="Permission denied"):
                    returning(store, Host("host.example.org"), lambda *line: None)(task)
                assert len(names(folder / "spool" / "data")) == 1
                contents.chmod(0o600)
                letters_of(store)(task).contents.close()

        by_nobody(open_letter)


@pytest.mark.parametrize("moment", [10**13, -(10**12)])
def test_a_time_that_no_calendar_has_ends_no_worker(moment: int) -> None:
    """A mail from such a time is returned without a date, and those behind it are sent."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Server(rcpt=["550 no"]) as server:
        place = Place(Path(folder))
        place.settle(server)
        (ident,) = place.enqueue(TO)
        link = place.path / "queue" / ident
        os.utime(link, (moment, moment), follow_symlinks=False)
        if link.lstat().st_mtime != moment:
            pytest.skip("no such time on this file system")
        done = place.work()

        assert done.returncode == 0, done.stderr
        assert [mail.recipients for mail in server.mails] == [(FROM,)]
        assert place.is_clean


def test_a_mail_that_is_too_old_is_returned_at_its_next_failure(place: Place) -> None:
    """Its age counts from when it came into the spool."""
    (ident,) = place.enqueue(TO)
    old = 1_700_000_000
    os.utime(place.path / "queue" / ident, (old, old), follow_symlinks=False)
    with Server(rcpt=["451 4.7.1 later"]) as server:
        place.settle(server)
        assert place.work().returncode == 0

    (returned,) = server.mails
    assert returned.recipients == (FROM,) and b"Status: 4.7.1" in returned.data


def test_a_worker_that_is_killed_leaves_its_mail_in_flight(place: Place) -> None:
    """Whether it was accepted nobody knows: it is not sent again before the delay of the format."""
    (ident,) = place.enqueue(TO)
    with Server(body=[STALL]) as server:
        place.settle(server)
        with working(place) as process:
            assert server.stalled.wait(PATIENCE)
            process.kill()
        again = place.work()
        said = place.run("kannader", "recover", str(place.path), "--dry-run")

        assert (again.returncode, server.connections) == (0, 1)
    assert names(place.path / "inflight") == [ident]
    assert said.stdout == b"nothing to recover\n"


def test_a_connection_lost_after_the_last_dot_is_said_to_be_in_doubt(place: Place) -> None:
    """The mail waits for its next attempt, and its error says that it may have arrived."""
    place.enqueue(TO)
    with Server(body=DROP) as server:
        place.settle(server)
        place.work()

    (task,) = place.tasks()
    assert task.state is State.PENDING
    assert task.error.startswith("connect_lost: in doubt: it may have been accepted")


def test_a_signal_ends_a_worker_after_what_is_in_hand(place: Place) -> None:
    """It says what it did; the mail in hand is sent, or stands where it stood."""
    with Server() as server:
        place.settle(server)
        with working(place) as process:
            place.enqueue(TO)  # woken by what comes into the spool
            assert server.wait_for(1)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0 and b"1 done, 0 failed" in err
    assert place.is_clean


def test_two_workers_send_each_of_120_mails_once(place: Place) -> None:
    """Whoever wins the rename of a link sends it; none is left, and none goes twice."""
    with closing(KannaderStore(str(place.path), durable=False)) as store:
        for number in range(120):
            store.enqueue(FROM, [f"b{number}@example.net"], [b"Subject: %d\n\nx\n" % number])
    with Server() as server:
        place.settle(server)
        both = [place.start("kannader", "work", str(place.path), "--until-idle") for _ in range(2)]
        for process in both:
            _, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err

    sent = Counter(mail.recipients for mail in server.mails)
    assert sent == {(f"b{number}@example.net",): 1 for number in range(120)}
    assert place.is_clean
    assert server.connections == 120


# ---- what is told of a worker


def test_a_worker_tells_of_itself_in_numbers(place: Place) -> None:
    """It writes the same metrics file as a worker of a queue of the contract, on our desk."""
    with Server() as server, Server(rcpt=["450 later"]) as busy:
        place.settle(server)
        place.enqueue(TO, ALSO)
        assert place.work().returncode == 0
        place.settle(busy)
        place.enqueue()
        assert place.work().returncode == 0

    told = metrics.read(str(place.path / ".spooldeck" / "metrics" / "queue.prom"))
    said = {
        name.removeprefix("nftban_queue_"): value
        for (name, _), value in told.values.items()
        if name not in (LAST_RUN, OLDEST)
    }
    assert said == {
        **{"tasks_pending": 1, "tasks_working": 0, "tasks_dlq": 0, "dlq_total": 0},
        **{"tasks_processed_total": 2, "tasks_failed_total": 1, "task_retries_total": 1},
    }
    assert told.get(LAST_RUN) is not None


def test_metrics_are_counted_sparingly(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """What took a second is counted again after twenty, and at the end; a failure is told once."""
    setup = setup_for(load(str(place.config), {}), str(place.path), {})
    counted: list[float] = []
    timer = iter([0.0, 1.0, 20.9, 21.0, 22.0])

    def gauges(now: float) -> QueueGauges:
        counted.append(now)
        raise Unavailable("no folder")

    published = Published(setup, gauges, lambda: 5.0, lambda: next(timer))
    published.sparingly()
    published.sparingly()
    assert len(counted) == 1
    published.sparingly()
    assert len(counted) == 2
    published.write()

    assert counted == [5.0] * 3
    assert capsys.readouterr().err.count("no folder") == 1


def test_every_worker_is_known_while_it_is_there(place: Place) -> None:
    """Two work side by side, and both are told of; none that was killed is, nor one that ended."""
    place.settle(host=HOST, port=1)
    setup = setup_for(load(str(place.config), {}), str(place.path), {})

    def wait_for(*workers: subprocess.Popen[bytes]) -> None:
        expected = tuple(sorted(worker.pid for worker in workers))
        deadline = time.monotonic() + PATIENCE
        while unlocked.at_work(setup) != expected:
            assert time.monotonic() < deadline, unlocked.at_work(setup)
            time.sleep(0.02)

    wait_for()
    with working(place) as first:
        wait_for(first)
        with working(place) as second:
            wait_for(first, second)
            rows = dict(spool_facts(setup).rows)
            assert rows["our worker"].startswith("at work (PID ")
            second.kill()
            second.wait()
            wait_for(first)
    wait_for()
    assert dict(spool_facts(setup).rows)["our worker"].startswith("not at work now; sends to ")


def test_what_a_killed_worker_leaves_is_cleared_away(place: Place) -> None:
    """Its file tells of nobody, and a worker that comes a minute later removes it."""
    setup = setup_for(load(str(place.config), {}), str(place.path), {})
    setup.make_folders()
    run = Path(setup.queue.run_dir)
    for name, age in (("worker.1.aa", 120), ("worker.2.bb", 0)):
        (run / name).touch()
        os.utime(run / name, (time.time() - age,) * 2)

    with unlocked.signed_on(setup):
        assert unlocked.at_work(setup) == (os.getpid(),)
        assert len(names(run)) == 2

    assert names(run) == ["worker.2.bb"]


def test_what_a_killed_worker_had_in_hand_is_said(place: Place) -> None:
    """Its mails lie in inflight as if they were being sent: that nobody does is said by status and
    the doctor, whoever comes to work there since, until they are back.
    """
    setup = setup_for(load(str(place.config), {}), str(place.path), {})
    first, *_ = sorted(place.enqueue("a@x.example", "b@x.example", "c@x.example"))
    queue, inflight = place.path / "queue", place.path / "inflight"
    os.rename(queue / first, inflight / first)  # noqa: PTH104 - by another sender
    with closing(socket.socket()) as silent:  # connections are made, and never answered
        silent.bind((HOST, 0))
        silent.listen()
        place.settle(host=HOST, port=silent.getsockname()[1])
        with working(place, "--concurrency", "2") as worker:
            deadline = time.monotonic() + PATIENCE
            run = Path(setup.queue.run_dir)
            while sum(path.stat().st_size for path in run.glob("worker.*")) < 66:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert spool_facts(setup).warnings == ()
            worker.kill()
            worker.wait()

    killed, other = spool_facts(setup).warnings
    assert other.startswith("no sender is running, but 1 mail is in inflight, and may have arrived")
    hand = rf"2 mails were claimed when our worker \(PID {worker.pid}\) was killed"
    assert re.match(
        rf"{hand}, and may have arrived; back in the queue from .* on, now with", killed
    )
    status, doctor = place.run("status", str(place.path)), place.run("doctor", str(place.path))
    assert (status.returncode, f"attention {killed}" in status.stdout.decode()) == (1, True)
    assert re.search(rf"warn +inflight +{hand}", doctor.stdout.decode())
    (command,) = set(re.findall(r"mend: (.* release .*)", doctor.stdout.decode()))
    assert place.run(*shlex.split(command)[1:]).returncode == 0

    with unlocked.signed_on(setup):
        assert spool_facts(setup).warnings == (killed,)
    claims = [task for task in place.tasks() if task.state is State.ACTIVE]
    (left,) = unlocked.left_in_hand(setup, claims).values()
    assert (len(claims), len(left)) == (3, 2)
    with closing(place.store()) as store:
        store.swap(left[0], verbs.release(left[0], time.time()))
    assert spool_facts(setup).warnings[0].startswith("1 mail was claimed")
    assert len(spool_facts(setup).warnings) == 2


def test_mail_in_flight_without_any_sender_is_said_at_once(place: Place) -> None:
    """A mail that a sender left in inflight is a warning as soon as no Kannader and no worker is at
    work; doctor has the command that puts it back."""
    (ident,) = place.enqueue(TO)
    link = place.path / "queue" / ident
    link.rename(place.path / "inflight" / ident)
    setup = setup_for(load(str(place.config), {}), str(place.path), {})
    said = (
        "no sender is running, but 1 mail is in inflight, and may have arrived; "
        "back in the queue from "
    )

    status, doctor = place.run("status", str(place.path)), place.run("doctor", str(place.path))
    assert (status.returncode, f"attention {said}" in status.stdout.decode()) == (1, True)
    assert re.search(rf"warn +inflight +{said}", doctor.stdout.decode())
    setup.make_folders()
    with unlocked.signed_on(setup):
        assert spool_facts(setup).warnings == ()
    (command,) = re.findall(r"mend: (.* release .*) --dry-run", doctor.stdout.decode())
    assert place.run(*shlex.split(command)[1:], "--apply", "1").returncode == 0
    assert link.is_symlink() and spool_facts(setup).warnings == ()


def test_beside_a_kannader_mail_in_flight_is_being_sent(place: Place, kannader: int) -> None:
    """While a Kannader is at work, what is in inflight is its own."""
    (ident,) = place.enqueue(TO)
    (place.path / "queue" / ident).rename(place.path / "inflight" / ident)
    setup = setup_for(load(str(place.config), {}), str(place.path), {})

    assert spool_facts(setup).warnings == ()


def test_a_worker_that_cannot_be_known_works(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where its file cannot be made it complains, and goes on."""
    setup = setup_for(load(str(place.config), {}), str(place.path), {})

    with unlocked.signed_on(setup):
        assert unlocked.at_work(setup) == ()

    assert "nobody is told that this worker is there" in capsys.readouterr().err


# ---- what keeps a worker from its work


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, b"stores.kannader.host is not set"),
        ({"host": "relay.example.org", "user": "me", "password_file": "/nowhere"}, b"/nowhere"),
        (
            {"host": "192.0.2.1", "tls": "none", "user": "me", "password_file": "/nowhere"},
            b"without TLS",
        ),
        ({"host": HOST, "ca_file": "/nowhere"}, b"/nowhere"),
        ({"hots": HOST}, b"did you mean host?"),
    ],
)
def test_a_worker_that_can_send_nothing_claims_nothing(
    place: Place, settings: dict[str, Any], why: bytes
) -> None:
    """One line says why, and no mail is touched."""
    (ident,) = place.enqueue(TO)
    before = (place.path / "queue" / ident).lstat()
    place.settle(**settings)

    done = place.work()

    assert done.returncode == 78
    assert why in done.stderr and done.stderr.count(b"\n") == 1
    assert (place.path / "queue" / ident).lstat() == before


def test_beside_a_kannader_no_worker_of_ours_works(place: Place, kannader: int) -> None:
    """It is refused with the number of the process, and recovery too, unless one insists."""
    place.enqueue(TO)
    with refusing() as port:
        place.settle(host=HOST, port=port)
        done = place.work()
    refused = place.run("kannader", "recover", str(place.path))
    anyway = place.run("kannader", "recover", str(place.path), "--anyway")

    assert done.returncode == refused.returncode == 77
    assert f"PID {kannader}".encode() in done.stderr
    assert f"PID {kannader}".encode() in refused.stderr
    assert anyway.returncode == 0
    assert len(names(place.path / "queue")) == 1


def test_beside_a_kannader_it_is_said_when_a_mail_will_be_seen(place: Place, kannader: int) -> None:
    """The ids alone are told as ids; that nobody sends it yet stands beside them."""
    words = ("kannader", "enqueue", "--from", FROM, "--to", TO, "-", str(place.path))

    done = place.run(*words, stdin=TEXT)

    assert done.returncode == 0
    assert done.stdout.decode().split() == [task.id for task in place.tasks()]
    assert f"PID {kannader}".encode() in done.stderr and b"at its next start only" in done.stderr


def test_without_a_kannader_nothing_is_said_of_one(place: Place) -> None:
    """A mail that is enqueued is told by its id alone."""
    words = ("kannader", "enqueue", "--from", FROM, "--to", TO, "-", str(place.path))

    assert place.run(*words, stdin=TEXT).stderr == b""


@pytest.mark.parametrize("own", [0, 1])
def test_what_a_kannader_may_be_sending_is_not_returned(
    place: Place, own: int, request: pytest.FixtureRequest
) -> None:
    """A worker that works when one is started leaves its mails in flight alone, however old."""
    lines: list[str] = []
    with closing(KannaderStore(str(place.path), lambda: time.time() + 7200)) as store:
        for _ in range(own):
            store.enqueue(FROM, [ALSO], [TEXT])
            claimed(store, 4e9)
        (ident,) = place.enqueue(TO)
        (place.path / "queue" / ident).rename(place.path / "inflight" / ident)
        os.utime(place.path / "inflight" / ident, (10**9, 10**9), follow_symlinks=False)
        request.getfixturevalue("kannader")

        def log(level: str, text: str) -> None:
            lines.append(text)

        worker = Worker(
            store,
            {},
            retry_policy(Settings()),
            services=Services(log=log, giving_up=returning(store, Host("host.example.org"), log)),
            clock=lambda: time.time() + 7200,
        )
        worker._ours.update(found.id for found in place.tasks() if found.id != ident)
        worker.rescue()

    assert names(place.path / "queue") == []
    assert ident in names(place.path / "inflight")
    assert len(names(place.path / "inflight")) == 1 + own
    assert len(lines) == 1 and "may be sending it" in lines[0] and "returned" not in lines[0]


# ---- what is wrong


def doctored(place: Place) -> tuple[int, list[str]]:
    """The doctor's exit code, and its lines."""
    done = place.run("doctor", str(place.path))
    assert done.stderr == b""
    return done.returncode, done.stdout.decode().splitlines()


def aged(folder: Path) -> None:
    """As if it had been written two hours ago."""
    then = time.time() - 7200
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then), follow_symlinks=False)


def test_our_worker_need_not_send_where_a_kannader_does(place: Place, kannader: int) -> None:
    """That it could not is no news while somebody else is at work."""
    code, said = doctored(place)

    assert code == 0, said
    (server,) = [line for line in said if " server " in line]
    assert server.startswith("ok    server    Kannader sends from here; our own worker could not: ")


def test_where_nobody_sends_that_is_said_of_each_mail(place: Place) -> None:
    """Of one as of one, of two as of two."""

    def after(address: str) -> list[str]:
        (ident,) = place.enqueue(address)
        with closing(place.store()) as store:
            (task,) = [each for each in store.look({ident}) if isinstance(each, Task)]
            store.swap(task, replace(task, due=1000.0))
        code, said = doctored(place)
        assert (code, any("our worker cannot send" in line for line in said)) == (1, True)
        return [line.split(maxsplit=2)[2] for line in said if "overdue" in line]

    since = "overdue, the first since 1970-01-01 00:16:40Z: nobody sends"
    assert after(TO) == [f"1 mail is {since} it"]
    assert after(ALSO) == [f"2 mails are {since} them"]


def test_the_doctor_has_the_command_for_what_is_damaged(place: Place) -> None:
    """To be copied as it stands: adopted, a mail that nothing led to is sent; repaired, it is due;
    put back, a quarantined link is in its former folder.
    """
    lost, torn = place.enqueue(TO)[0], place.enqueue(ALSO)[0]
    (place.path / "queue" / lost).unlink()
    aged(place.path / "data")
    schedule = place.path / "queue" / torn / "schedule"
    schedule.write_bytes(b"torn")

    code, said = doctored(place)
    mends = [line.split("mend: ")[1] for line in said if "mend: " in line and "control" in line]

    assert (code, len(mends)) == (1, 2), said
    assert sum(" or: spooldeck " in mend for mend in mends) == 1
    for mend in mends:
        words = shlex.split(mend.split(", or: ")[0])
        assert (words[0], place.run(*words[1:]).returncode) == ("spooldeck", 0)
    assert {task.destination for task in place.tasks()} == {TO, ALSO}
    assert not any("mend: " in line and "control" in line for line in doctored(place)[1])


def test_a_quarantined_link_can_be_discarded(place: Place) -> None:
    """The command that doctor names for a quarantined link works: dry run and --apply agree, and
    afterwards nothing of the mail is left, and no problem either."""
    (ident,) = place.enqueue(TO)
    (place.path / "queue" / ident / "metadata").write_bytes(b"torn")
    place.run("kannader", "recover", str(place.path))
    (mend,) = (line for line in doctored(place)[1] if "control discard" in line)
    words = shlex.split(mend.split("mend: ")[1])[1:]

    dry = place.run(*words[:-2], "--dry-run", "--json")
    assert (place.path / ".spooldeck" / "aside" / f"queue.{ident}").is_symlink()
    done = place.run(*words)

    assert (words[-2:], dry.returncode, done.returncode) == (["--apply", "1"], 0, 0)
    assert "would be deleted with data/" in json.loads(dry.stdout)["would"]
    assert b": deleted with data/" in done.stdout
    assert names(place.path / "data") == names(place.path / ".spooldeck" / "aside") == []
    assert json.loads(place.run("status", str(place.path), "--json").stdout)["problems"] == []
    again = place.run(*words[:-2], "--dry-run")
    assert again.returncode == 1 and b"there is no such quarantined link" in again.stderr


def test_a_spool_of_mails_has_no_mail_spool_of_ours(place: Place) -> None:
    """Nothing is listed, not even that nothing is there."""
    done = place.run("mail", "spool", "list", "--root", str(place.path))

    assert (done.returncode, done.stdout) == (69, b"")
    assert done.stderr.decode().endswith("is a Kannader spool: no mail spool\n")


# ---- recovering


def test_recovery_says_what_it_would_do_and_then_does_it(place: Place) -> None:
    """Nothing is changed by a dry run, and nothing more by a second pass."""
    (ident,) = place.enqueue(TO)
    (place.path / "queue" / "dangling").symlink_to(f"../data/{ident}/{ident}")
    words = ("kannader", "recover", str(place.path))

    dry = place.run(*words, "--dry-run")
    assert b"queue/dangling" in dry.stdout and b"would be quarantined" in dry.stdout
    assert (place.path / "queue" / "dangling").is_symlink()
    done, again = place.run(*words), place.run(*words)

    assert b"quarantined as" in done.stdout
    assert again.stdout == b"nothing to recover\n"
    assert names(place.path / "queue") == [ident]
    assert "Recovered queue/dangling" in place.log


def test_a_worker_recovers_before_it_sends(place: Place) -> None:
    """What was being erased is erased, and not sent once more."""
    (ident,) = place.enqueue(TO)
    (place.path / "queue" / ident).rename(place.path / "cleanup" / ident)
    with Server() as server:
        place.settle(server)
        place.work()

    assert place.is_clean and server.connections == 0
    assert f"Recovered cleanup/{ident}" in place.log


# ---- returning, once


def claimed(store: KannaderStore, now: float) -> Task:
    """A mail in hand."""
    (task,) = store.take(now, "me", 1)
    return task


def test_a_mail_is_returned_once_however_often_it_is_given_up(place: Place) -> None:
    """By the same process or another: there is one bounce, by an id made of the mail's."""
    lines: list[str] = []
    with closing(place.store()) as store:
        store.enqueue(FROM, [TO], [TEXT])
        task = claimed(store, 4e9)

        def give_up() -> Callable[[Task], None]:
            return returning(
                store, Host("host.example.org"), lambda level, text: lines.append(text)
            )

        first = give_up()
        first(task)
        first(task)
        give_up()(task)
        others = [found for found in place.tasks() if found.id != task.id]

    (bounce,) = others
    assert (bounce.destination, bounce.extra["from"], bounce.state) == (FROM, "<>", State.PENDING)
    assert [line.split()[2:4] for line in lines] == [["is", "returned"]] * 2


@pytest.mark.parametrize("bounces", [True, False])
@pytest.mark.parametrize("spoil", [to_strangers, twice])
def test_what_nobody_can_read_is_not_given_up(
    place: Place, spoil: Callable[[Place], None], bounces: bool
) -> None:
    """It was in flight when its sender ended: it stays there, and nobody is told that it failed."""
    with closing(place.store()) as store:
        store.enqueue(FROM, [TO], [TEXT])
        spoil(place)
        task = claimed(store, 4e9)
        give_up = returning(store, Host("host.example.org"), lambda *line: None, bounces=bounces)

        with pytest.raises(Unsupported, match=r"hard link|not known"):
            give_up(task)

    assert [found.id for found in place.tasks()] == [task.id]


def test_where_nothing_is_returned_a_mail_is_let_go_of(place: Place) -> None:
    """Without bounces whoever gives a mail up may do so, and nothing is enqueued."""
    with closing(place.store()) as store:
        store.enqueue(FROM, [TO], [TEXT])
        task = claimed(store, 4e9)
        give_up = returning(store, Host("host.example.org"), _never, bounces=False)

        give_up(task)
        store.swap(task, None)
        give_up(task)

    assert place.is_clean


def _never(level: str, text: str) -> None:
    raise AssertionError(f"{level} {text}")


def test_a_sender_who_is_none_is_no_reason_to_keep_a_mail(place: Place) -> None:
    """An envelope that nobody can answer is logged, and the mail is let go of."""
    lines: list[tuple[str, str]] = []
    with closing(place.store()) as store:
        store.enqueue(FROM, [TO], [TEXT])
        (metadata,) = place.path.glob("data/*/*/metadata")
        said = metadata.read_text().replace('{"raw":"foo"}', '{"raw":"f oo"}')
        metadata.write_text(said)
        task = claimed(store, 4e9)

        returning(store, Host("host.example.org"), lambda *line: lines.append(line))(task)

    assert len(place.tasks()) == 1
    ((level, text),) = lines
    assert level == "ERROR" and "cannot be returned" in text


# ---- settings


def settled(**settings: Any) -> Settings:
    """What the configuration says."""
    return said(settings, At("some.yaml", "stores.kannader"))


def test_without_a_word_everything_has_its_default() -> None:
    """Nothing said is the default of each, and no server."""
    assert settled() == said(None, At("some.yaml", "stores.kannader")) == Settings()
    assert Settings().unworkable and not settled(host="relay.example.org").unworkable


def test_what_is_said_comes_to_the_server_that_it_is_about() -> None:
    """Each setting of the server is one of the handler's, by the same name and default."""
    to = destination(settled(host="relay.example.org", helo="here.example.org"))

    assert to == Destination("relay.example.org", helo="here.example.org")


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "-x"},
        {"host": "a b"},
        {"host": "a\r\nb"},
        {"helo": "a\nb"},
        {"port": 0},
        {"port": 65536},
        {"tls": "sometimes"},
        {"user": "me"},
        {"user": "a\nb"},
        {"password_file": "relative"},
        {"max_time": 3300},
        {"max_time": "1h"},
        {"profile": "none"},
        {"lifetime": 0},
        {"concurrency": 0},
        {"bounce": "yes"},
        {"unknown": 1},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    """Each value is checked where it is said; an attempt ends before others may take the mail."""
    with pytest.raises(ConfigError, match=r"some\.yaml: stores\.kannader"):
        settled(**wrong)


def waits(policy: RetryPolicy, failures: int) -> list[float | None]:
    """What comes after so many failures, one after the other, of a mail that is new."""
    fresh = Task("x", "mail", State.ACTIVE, 0.0)
    return [policy.wait(replace(fresh, attempts=count), 0.0) for count in range(failures)]


def test_the_waits_double_from_a_quarter_of_an_hour_to_four() -> None:
    """For five days since the mail came; then a failure is the last (Kannader spool, section 4)."""
    policy = retry_policy(Settings())
    old = Task("x", "mail", State.ACTIVE, 1_795_170_000.0, attempts=3)

    assert waits(policy, 7) == [900, 1800, 3600, 7200, 14400, 14400, 14400]
    assert policy.wait(old, old.created + 5 * DAY - 1) == 7200
    assert policy.wait(old, old.created + 5 * DAY) is None
    assert waits(policy, 5000)[-1] == 14400


def test_as_upstream_there_is_no_second_attempt() -> None:
    """Nor a bounce, whatever else is said."""
    settings = settled(profile="upstream", bounce=True)

    assert waits(retry_policy(settings), 2) == [None, None]
    assert not settings.bounces and Settings().bounces and not settled(bounce=False).bounces
