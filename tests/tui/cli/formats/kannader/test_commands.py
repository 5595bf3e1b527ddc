"""`spooldeck kannader`: the command on spools on disk, sending to an SMTP server."""

from __future__ import annotations

import email
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.config.validators import ConfigError, ConfigLocation
from engine.formats.kannader import facts as kannader_facts
from engine.formats.kannader.facts import spool_facts
from engine.formats.kannader.mail_format import encode_wire
from engine.formats.kannader.settings import (
    KannaderSettings,
    destination,
    parse_settings,
    retry_policy,
)
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.locks import lock_file
from engine.logs.task_events import EventKind
from engine.mail.host import Host
from engine.mail.send.smtp_client import SmtpDestination, UnreadableMessage
from engine.model import State, Task
from engine.monitor import prometheus
from engine.monitor.metrics_check import LAST_RUN
from engine.monitor.prometheus import QueueGauges
from engine.policy import DAY_SECONDS, RetryPolicy
from engine.store import Unavailable, Unsupported
from engine.work import worker_files
from engine.work.metrics_writer import MetricsWriter
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.engine.formats.kannader.conftest import DAEMON
from tests.mail_queue_commands import ALSO, FROM, PATIENCE, TEXT, TO, Spool, names, soon
from tests.rival_processes import running
from tests.smtp_server import DROP, HOST, Server, refusing, silent
from tests.store_contents import found
from tests.tables import each
from tests.unprivileged_user import as_other_user, other_users_folder
from tui.cli.formats.kannader.commands import bounce_handler, message_opener, recover_at_start
from tui.task import lookup, parts_lines

SEEN = TEXT.replace(b"\n", b"\r\n")


@pytest.fixture
def place(tmp_path: Path) -> Spool:
    """An empty spool."""
    return Spool(tmp_path)


@pytest.fixture
def store(place: Spool) -> Iterator[KannaderStore]:
    """The spool as a store."""
    with closing(place.store()) as store:
        yield store


def warnings_of(place: Spool) -> tuple[str, ...]:
    """The warnings about a spool, as status and the console show them."""
    return tuple(spool_facts(place.setup()).warnings)


@pytest.fixture
def kannader(place: Spool) -> Iterator[int]:
    """The PID of a process that holds the spool's folders as Kannader does."""
    with running(DAEMON, str(place.path)) as process:
        yield process.pid


def has_whole_lines(log: str) -> bool:
    """Whether each line has a time, a level and a text."""
    form = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \[[A-Z]+\] \S.*").fullmatch
    return all(map(form, log.splitlines()))


# ---- init and enqueue


def test_init_makes_the_four_folders_once(place: Spool, tmp_path: Path) -> None:
    """A second `init` changes nothing."""
    made, again = (place.run("kannader", "init", str(tmp_path / "new")) for _ in range(2))
    assert made.returncode == again.returncode == 0
    assert names(tmp_path / "new") == ["cleanup", "data", "inflight", "queue"]
    assert "nothing was changed" in again.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--from {0} --to {1} {2} {file} {place}", TEXT),
        ("--from {0} --to {1} --to {2} --to {1} {file} {place}", SEEN),
        ("--to {1} {2} --from {0} {file} --root {place}", TEXT),
        ("{file} --from {0} --to {1} --to {2} {place}", TEXT),
        ("{file} {place} --from {0} --to {1} --to {2}", TEXT),
    ],
)
def test_enqueue_prints_an_id_for_each_recipient(place: Spool, words: str, text: bytes) -> None:
    """Recipients and file come in any order; LF and CRLF are the same mail; stderr is empty."""
    file = place.folder / "mail.eml"
    file.write_bytes(text)
    argv = words.format(FROM, TO, ALSO, file=file, place=place.path).split()
    done = place.run("kannader", "enqueue", *argv)
    assert (done.returncode, done.stderr) == (0, "")
    (contents,) = place.path.glob("data/*/contents")
    assert contents.read_bytes() == encode_wire(TEXT)
    ids = done.stdout.split()
    destinations = {task.id: task.destination for task in place.tasks()}
    assert destinations == dict(zip(ids, (TO, ALSO), strict=True))
    assert has_whole_lines(place.log) and all(ident in place.log for ident in ids)


def test_enqueue_wire_keeps_every_byte(place: Spool) -> None:
    """A mail in wire form is stored as it is; one that ends before its last line is refused."""
    words = ("kannader", "enqueue", "--wire", "--from", "<>", "--to", TO, "-", str(place.path))
    content = b"A: 1\r\n\r\nbare\nline and \rreturn\r\n.\r\n"
    longer = b"A: 1\r\n\r\nfirst\r\n.\r\nMAIL FROM:<x@example.org>\r\n.\r\n"
    taken, refused = (place.run(*words, stdin=data) for data in (content, longer))
    (contents,) = place.path.glob("data/*/contents")
    assert (taken.returncode, refused.returncode, contents.read_bytes()) == (0, 64, content)
    assert "before its end" in refused.stderr


def test_a_mail_is_shown_decoded_and_raw(place: Spool, store: KannaderStore) -> None:
    """The payload is decoded and without dots of the wire; the raw view has the stored bytes."""
    place.enqueue(text=b"Subject: =?utf-8?q?caf=C3=A9?=\n\n.x\n.\nbye \x1b[2J\n")
    (task,) = place.tasks()
    parts = list(store.parts(task))
    opened = [parts_lines.Opened(part, store.read(task, part.name)) for part in parts]
    stored = next(part.size for part in parts if part.is_wire_format)
    read, raw = (
        ["".join(text for text, _ in line).strip() for line in lines(opened, 0.0, 80)]
        for lines in (parts_lines.payload_lines, parts_lines.stored_lines)
    )
    at = read.index("Subject: café")
    assert f"contents: mail, {stored} bytes" in "\n".join(read)
    assert read[at : at + 6] == ["Subject: café", "", "--- text/plain", ".x", ".", "bye \ufffd[2J"]
    assert raw[-5:-1] == ["..x", "..", "bye \ufffd[2J", "."]


# ---- sending


def test_each_recipient_gets_the_mail_once(place: Spool) -> None:
    """Each has a transaction of its own; then no part of it is left, and the metrics count it."""
    place.enqueue(TO, ALSO)
    with Server() as server, Server(rcpt=["450 later"]) as busy:
        place.work(server)
        assert Counter(mail.recipients for mail in server.mails) == {(TO,): 1, (ALSO,): 1}
        assert {(mail.sender, mail.data) for mail in server.mails} == {(FROM, SEEN)}
        assert place.is_clean and not names(place.path / ".spooldeck" / "notes")
        assert has_whole_lines(place.log)
        assert place.log.count("[SUCCESS] Task completed: ") == 2
        place.enqueue()
        place.work(busy)
    counted = prometheus.read_metrics(str(place.path / ".spooldeck" / "metrics" / "queue.prom"))
    values = {name.removeprefix("nftban_queue_"): n for (name, _), n in counted.values.items()}
    assert values.pop("oldest_pending_age_seconds") is not None
    assert values.pop(LAST_RUN.removeprefix("nftban_queue_")) is not None
    assert values == {
        **{"tasks_pending": 1, "tasks_working": 0, "tasks_dlq": 0, "dlq_total": 0},
        **{"tasks_processed_total": 2, "tasks_failed_total": 1, "task_retries_total": 1},
    }
    none = place.run("transports", str(place.path))
    assert (none.returncode, none.stdout, none.stderr) == (
        0,
        "   no transports: what this place sends goes out without them\n",
        "",
    )


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"rcpt": "451 4.7.1 later"}, "unavailable_451"),
        ({"body": DROP}, "connect_lost: in doubt: it may have been accepted"),
    ],
    ids=["refused for now", "lost after the last dot"],
)
def test_a_failed_mail_waits_for_a_retry(place: Spool, answers: dict[str, Any], error: str) -> None:
    """A second run does not try it again; the log has the attempt, and when the error came."""
    (ident,) = place.enqueue(TO)
    with Server(**answers) as server:
        for _ in range(2):
            place.work(server)
    (task,) = place.tasks()
    assert (task.id, task.state, task.attempts) == (ident, State.PENDING, 1)
    assert task.due is not None and "last_attempt" in task.extra
    assert server.connections == 1 and task.error.startswith(error)
    log_findings = lookup.search_logs([f"{place.path}/.spooldeck/log/queue.log"], task)
    (attempt,) = log_findings.attempts
    assert (attempt.number, attempt.outcome) == (1, EventKind.WAITS)
    assert attempt.error.startswith(error.split(":")[0])
    kinds = [event.what for event in log_findings.history]
    assert kinds[:2] == [EventKind.QUEUED, EventKind.STARTED]
    (failed,) = [event.when for event in log_findings.history if event.what is EventKind.FAILED]
    answer = json.loads(place.run("clusters", str(place.path), "--json").stdout)
    assert (answer["first"], answer["last"]) == (None, failed)


def test_a_running_worker_retries_when_the_wait_is_over(place: Spool) -> None:
    """Woken by a new mail, it sends it at the second attempt; SIGTERM ends it with a report."""
    with Server(rcpt=["451 4.7.1 later"]) as server:
        place.settle(server, first_wait=1)
        with place.working() as process:
            place.enqueue(TO)
            assert server.wait_for(1)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and b"1 done, 1 failed" in err
    assert place.is_clean and len(server.mails) == 1 and server.connections == 2
    assert "unavailable_451: 451 4.7.1 later" in place.log and "retry in 1s" in place.log


NO = "550 5.1.1 no such user"
LATER = "451 4.7.1 later"
GIVEN_UP: dict[str, tuple[Any, ...]] = {
    "refused for good": ([NO], {}, 0, 2, b"Status: 5.1.1", "was returned to its sender"),
    "bounce refused": (NO, {}, 0, 2, b"", "is not returned"),
    "profile upstream": (LATER, {"profile": "upstream"}, 0, 1, b"", "exhausted retries"),
    "no year so late": (["550 no"], {}, 10**13, 2, b"Status: 5.", "moving to cleanup"),
    "no year so early": (["550 no"], {}, -(10**12), 2, b"Status: 5.", "moving to cleanup"),
}
"""Answers to RCPT, settings, time of arrival, connections, text of the bounce, text of the log."""


@pytest.mark.parametrize(
    ("rcpt", "settings", "arrived", "connections", "bounce", "logged"),
    GIVEN_UP.values(),
    ids=GIVEN_UP,
)
def test_a_mail_that_is_given_up_leaves_the_spool(
    rcpt: Any, settings: dict[str, Any], arrived: int, connections: int, bounce: bytes, logged: str
) -> None:
    """Its sender gets one bounce by the same server; a bounce itself is not returned."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Server(rcpt=rcpt) as server:
        place = Spool(Path(folder))
        (ident,) = place.enqueue(TO)
        if arrived and place.age(ident, arrived).lstat().st_mtime != arrived:
            pytest.skip("no such time on this file system")
        place.work(server, **settings)
        assert place.is_clean and logged in place.log
    assert (server.connections, len(server.mails)) == (connections, bool(bounce))
    for mail in server.mails:
        message = email.message_from_bytes(mail.data)
        assert (mail.sender, mail.recipients) == ("<>", (FROM,))
        assert message.get_content_type() == "multipart/report"
        assert message["Message-ID"].startswith(f"<{ident}.bounce@")
        assert bounce in mail.data and b"Subject: hi" in mail.data


STRANGE = '"to":{"localpart":{"Secret":{"raw":"bar"}},'
"""A recipient in an unknown form."""


def give_unknown_address(place: Spool) -> None:
    """Write a recipient of unknown form into every envelope."""
    for metadata in place.path.glob("data/*/*/metadata"):
        text = metadata.read_text().replace('"to":{"localpart":{"Ascii":{"raw":"bar"}},', STRANGE)
        assert STRANGE in text
        metadata.write_text(text)


def give_second_name(place: Spool) -> None:
    """Give every text a second hard link, as copies that share files have."""
    for number, contents in enumerate(place.path.glob("data/*/contents")):
        os.link(contents, place.home / str(number))
        contents.parent.chmod(0o777)  # any user may have made it


unreadable = pytest.mark.parametrize("spoil", [give_unknown_address, give_second_name])


@unreadable
@pytest.mark.parametrize("profile", ["default", "upstream"])
def test_an_unreadable_mail_is_neither_returned_nor_erased(
    place: Spool, spoil: Callable[[Spool], None], profile: str
) -> None:
    """However old, it waits with the reason, and no attempt is counted."""

    def stored() -> list[bytes]:
        paths = [*place.path.glob("data/*/contents"), *place.path.glob("data/*/*/metadata")]
        return sorted(path.read_bytes() for path in paths)

    (ident,) = place.enqueue(TO)
    spoil(place)
    place.age(ident, 10**9)
    before = stored()
    with Server() as server:
        place.work(server, profile=profile)
    (task,) = place.tasks()
    assert (task.id, task.state, task.attempts) == (ident, State.PENDING, 0)
    assert (server.connections, stored()) == (0, before)
    assert "second hard link" in task.error or "unknown format" in task.error
    assert f"Task {ident} waits: " in place.log
    assert "Secret" not in place.log and '{"' not in place.log


def test_contents_of_another_user_are_no_failure_of_the_mail() -> None:
    """A text without read permission is reported, and the mail is not returned."""

    def open_letter() -> None:
        make_spool(str(folder / "spool"))
        with closing(KannaderStore(str(folder / "spool"))) as store:
            store.enqueue(FROM, [TO], [TEXT])
            (contents,) = folder.glob("spool/data/*/contents")
            contents.chmod(0)
            task = claimed(store)
            with pytest.raises(UnreadableMessage, match="Permission denied"):
                message_opener(store)(task)
            with pytest.raises(Unavailable, match="Permission denied"):
                give_up_by(store, [])(task)
            assert len(names(folder / "spool" / "data")) == 1
            contents.chmod(0o600)
            message_opener(store)(task).contents.close()

    with other_users_folder() as folder:
        as_other_user(open_letter)


# ---- which workers there are


def test_slow_metrics_are_counted_seldom(place: Spool, capsys: pytest.CaptureFixture[str]) -> None:
    """A count of one second is repeated after twenty and at the end; a failure is reported once."""
    counted: list[float] = []
    timer = iter([0.0, 1.0, 20.9, 21.0, 22.0])

    def gauges(now: float) -> QueueGauges:
        counted.append(now)
        raise Unavailable("no folder")

    setup = place.setup()
    queue, counters = setup.queue, setup.counters()
    published = MetricsWriter(queue, counters, gauges, lambda: 5.0, lambda: next(timer))
    for expected in (1, 1, 2):
        published.write_if_due()
        assert len(counted) == expected
    published.write()
    assert counted == [5.0] * 3 and capsys.readouterr().err.count("no folder") == 1


HIDDEN = "Kannader processes of other users and containers are not visible"


def test_every_running_worker_is_known(place: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers run side by side, and both are known; a killed one is not, nor one that ended.
    That none runs is known only where all processes of the host can be seen."""
    place.settle(host=HOST, port=1)
    setup = place.setup()

    def are_known(*workers: subprocess.Popen[bytes]) -> bool:
        expected = tuple(sorted(worker.pid for worker in workers))
        return soon(lambda: worker_files.running_pids(setup.queue) == expected)

    assert are_known()
    with place.working() as first:
        assert are_known(first)
        with place.working() as second:
            assert are_known(first, second)
            facts = spool_facts(setup)
            assert dict(facts.rows)["worker"].startswith("running (PID ") and facts.has_worker
            second.kill()
            second.wait()
            assert are_known(first)
    assert are_known()
    for namespace, has_worker, hidden in (
        (lock_file.pid_namespace(), False, ""),
        (0, None, HIDDEN),
    ):
        monkeypatch.setattr(kannader_facts, "INITIAL_PID_NAMESPACE", namespace)
        facts = spool_facts(setup)
        assert dict(facts.rows)["worker"].startswith("not running; sends to ")
        assert (facts.has_worker, facts.workers_unknown) == (has_worker, hidden)


def test_workers_that_cannot_be_read_are_unknown(place: Spool) -> None:
    """If the worker files cannot be read, status says so, and not that none runs."""
    place.settle(host=HOST, port=1)
    run = Path(place.setup().queue.run_dir)
    run.parent.mkdir()
    run.touch()  # a file in place of the folder
    figures = spool_facts(place.setup())
    why = "running workers unknown: run is a symbolic link or not a folder: refused"
    assert (figures.workers, figures.workers_unknown) == ((), why)
    assert f"\nworker    ? {why}; sends to " in place.run("status", str(place.path)).stdout


def test_a_killed_workers_file_is_removed(place: Spool, capsys: pytest.CaptureFixture[str]) -> None:
    """A later worker removes it; a worker that cannot make its own file warns and works."""
    setup = place.setup()
    with worker_files.registered_worker(setup.queue):
        assert worker_files.running_pids(setup.queue) == ()
    assert "this worker is not listed as running" in capsys.readouterr().err
    setup.make_folders()
    run = Path(setup.queue.run_dir)
    for name, age in (("worker.1.aa", 120), ("worker.2.bb", 0)):
        (run / name).touch()
        os.utime(run / name, (time.time() - age,) * 2)
    with worker_files.registered_worker(setup.queue):
        assert worker_files.running_pids(setup.queue) == (os.getpid(),)
        assert len(names(run)) == 2
    assert names(run) == ["worker.2.bb"]


def test_mail_in_flight_without_its_sender_is_a_warning(place: Spool, store: KannaderStore) -> None:
    """Those of a killed worker and of others are counted apart; doctor's command releases all."""
    first, *_ = sorted(place.enqueue("a@x.example", "b@x.example", "c@x.example"))
    place.put_in_flight(first)
    with silent() as port:
        place.settle(host=HOST, port=port)
        with place.working("--concurrency", "2") as worker:
            run = Path(place.setup().queue.run_dir)
            assert soon(lambda: sum(path.stat().st_size for path in run.glob("worker.*")) >= 66)
            assert warnings_of(place) == ()
            worker.kill()
            worker.wait()

    in_flight = {task.id for task in place.tasks() if task.state is State.ACTIVE}
    assert spool_facts(place.setup()).abandoned == in_flight
    killed, other = warnings_of(place)
    text = "no sender is running, but 1 mail is in inflight, and may have arrived; back in the"
    hand = rf"2 mails were claimed when a spooldeck worker \(PID {worker.pid}\) was killed"
    assert re.match(f"{hand}, and may have arrived; back in the queue after .*, now with", killed)
    status, lines = place.run("status", str(place.path)), "\n".join(place.doctor()[1])
    assert status.returncode == 1 and other.startswith(text)
    for warning, pattern in ((killed, hand), (other, text)):
        assert f"attention {warning}" in status.stdout
        assert re.search(rf"warn +inflight +{pattern}", lines)
    (command,) = set(re.findall(r"fix: spooldeck (.* release .*) --dry-run", lines))
    assert place.run(*shlex.split(command), "--dry-run").returncode == 0

    setup = place.setup()
    with worker_files.registered_worker(setup.queue):
        assert warnings_of(place) == (killed,)
    claims = [task for task in place.tasks() if task.state is State.ACTIVE]
    (left,) = worker_files.find_killed_claims(setup.queue, claims).values()
    assert (len(claims), len(left)) == (3, 2)
    store.swap(left[0], verbs.release(left[0], time.time()))
    assert warnings_of(place)[0].startswith("1 mail was claimed") and len(warnings_of(place)) == 2
    assert place.run(*shlex.split(command), "--apply", "2").returncode == 0
    assert (len(names(place.path / "queue")), warnings_of(place)) == (3, ())


# ---- beside a running Kannader


def test_beside_a_kannader_no_worker_of_ours_works(place: Spool, kannader: int) -> None:
    """Work and recovery name its PID and are code 77; enqueue warns; recovery has --anyway."""
    words = ("kannader", "enqueue", "--from", FROM, "--to", TO, "-", str(place.path))
    added = place.run(*words, stdin=TEXT)
    assert (added.returncode, added.stdout.split()) == (0, [task.id for task in place.tasks()])
    assert "at its next start" in added.stderr
    with refusing() as port:
        place.settle(host=HOST, port=port)
        done = place.work()
    refused, forced = place.recover(), place.recover("--anyway")
    assert (done.returncode, refused.returncode, forced.returncode) == (77, 77, 0)
    assert all(f"PID {kannader}" in each.stderr for each in (added, done, refused))
    place.settle()
    code, lines = place.doctor()
    (server,) = [line for line in lines if " server " in line]
    assert code == 0 and server.startswith("ok    server    Kannader sends from here; spooldeck's ")
    assert len(names(place.path / "queue")) == 1


def test_a_mail_that_a_kannader_may_be_sending_is_not_returned(place: Spool, kannader: int) -> None:
    """A worker leaves it in flight, however old, and logs the reason once; it is no warning."""
    lines: list[tuple[str, str]] = []
    (ident,) = place.enqueue(TO)
    place.age(ident, 10**9)
    place.put_in_flight(ident)
    assert warnings_of(place) == ()
    clock = partial(float, time.time() + 7200)
    with closing(KannaderStore(str(place.path), clock)) as store:
        services = WorkerServices(
            log=lambda *line: lines.append(line), before_giving_up=give_up_by(store, lines)
        )
        worker = Worker(store, {}, retry_policy(KannaderSettings()), services=services, clock=clock)
        for _ in range(2):
            worker.rescue()
    assert (names(place.path / "inflight"), names(place.path / "queue")) == ([ident], [])
    ((_, text),) = lines
    assert "may be sending it" in text


# ---- status, doctor and recover


def test_doctor_counts_overdue_mails(place: Spool) -> None:
    """Without a sender one mail is counted as one, two as two."""
    since = "overdue, the first since 1970-01-01 00:16:40Z: no process sends"
    for address, words in ((TO, f"1 mail is {since} it"), (ALSO, f"2 mails are {since} them")):
        (ident,) = place.enqueue(address)
        with closing(place.store()) as store:
            task = found(store, ident)
            store.swap(task, task._replace(due=1000.0))
        code, lines = place.doctor()
        assert (code, any("spooldeck's worker cannot send" in line for line in lines)) == (1, True)
        assert [line.split(maxsplit=2)[2] for line in lines if "overdue, the" in line] == [words]


def test_the_commands_of_doctor_repair_a_spool(place: Spool) -> None:
    """The commands run as they are printed: an orphan is adopted, a torn schedule is repaired."""
    lost, torn = place.enqueue(TO)[0], place.enqueue(ALSO)[0]
    (place.path / "queue" / lost).unlink()
    then = time.time() - 7200
    for path in (*(place.path / "data").rglob("*"), place.path / "data"):
        os.utime(path, (then, then), follow_symlinks=False)
    (place.path / "queue" / torn / "schedule").write_bytes(b"torn")
    code, lines = place.doctor()
    mends = [line.split("fix: ")[1] for line in lines if "fix: " in line and "control" in line]
    assert (code, len(mends)) == (1, 2), lines
    assert sum(" or: spooldeck " in fix for fix in mends) == 1
    for fix in mends:
        words = shlex.split(fix.split(", or: ")[0])
        assert (words[0], place.run(*words[1:]).returncode) == ("spooldeck", 0)
    assert {task.destination for task in place.tasks()} == {TO, ALSO}
    assert not any("fix: " in line and "control" in line for line in place.doctor()[1])


def test_a_quarantined_link_can_be_discarded(place: Spool) -> None:
    """The command that doctor prints deletes the mail; its dry run agrees; no problem is left."""
    (ident,) = place.enqueue(TO)
    (place.path / "queue" / ident / "metadata").write_bytes(b"torn")
    place.recover()
    (mend,) = (line for line in place.doctor()[1] if "control discard" in line)
    *words, apply, number = shlex.split(mend.split("fix: ")[1])[1:]
    dry = place.run(*words, "--dry-run", "--json")
    assert (place.path / ".spooldeck" / "aside" / f"queue.{ident}").is_symlink()
    done, again = place.run(*words, apply, number), place.run(*words, "--dry-run")
    assert (apply, dry.returncode, done.returncode, again.returncode) == ("--apply", 0, 0, 1)
    assert "would be deleted permanently with data/" in json.loads(dry.stdout)["would"]
    assert ": deleted with data/" in done.stdout
    assert names(place.path / "data") == names(place.path / ".spooldeck" / "aside") == []
    assert json.loads(place.run("status", str(place.path), "--json").stdout)["problems"] == []
    assert "there is no such quarantined link" in again.stderr


def test_recover_is_shown_then_done(place: Spool) -> None:
    """A dry run and a second pass change nothing; a worker recovers before it sends."""
    (ident,) = place.enqueue(TO)
    dangling = place.path / "queue" / "dangling"
    dangling.symlink_to(f"../data/{ident}/{ident}")
    dry = place.recover("--dry-run")
    assert "queue/dangling" in dry.stdout and "would be quarantined" in dry.stdout
    assert dangling.is_symlink()
    assert "quarantined as" in place.recover().stdout
    assert place.recover().stdout == "nothing to recover\n"
    assert names(place.path / "queue") == [ident]
    assert "Recovered queue/dangling" in place.log
    (place.path / "queue" / ident).rename(place.path / "cleanup" / ident)
    with Server() as server:
        place.work(server)
    assert place.is_clean and server.connections == 0
    assert f"Recovered cleanup/{ident}" in place.log


def test_a_mail_in_cleanup_is_expunged(place: Spool) -> None:
    """Its link and data are erased as a recovery does; there is no way to run it again."""
    (ident,) = place.enqueue(TO)
    (place.path / "queue" / ident).rename(place.path / "cleanup" / ident)
    again = place.run("rerun", "--dry-run", str(place.path))
    assert (again.returncode, "not supported" in again.stderr) == (64, True)
    words = ("expunge", "--state", "cleanup", "--include-all", "--apply", "1")
    done = place.run(*words, str(place.path))
    assert (done.returncode, done.stderr) == (0, "")
    assert place.is_clean


# ---- bounces


def claimed(store: KannaderStore) -> Task:
    """Claim the one mail of a spool."""
    (task,) = store.take(4e9, "me", 1)
    return task


def give_up_by(
    store: KannaderStore, lines: list[tuple[str, str]], *, bounces: bool = True
) -> Callable[[Task], None]:
    """The act of a worker on a mail that it gives up; it logs into `lines`."""
    host = Host("host.example.org")
    return bounce_handler(store, host, lambda *line: lines.append(line), bounces=bounces)


def test_a_mail_is_returned_once(place: Spool, store: KannaderStore) -> None:
    """Given up several times by one process or another, it has one bounce with an id of its own."""
    lines: list[tuple[str, str]] = []
    store.enqueue(FROM, [TO], [TEXT])
    task, first = claimed(store), give_up_by(store, lines)
    for give_up in (first, first, give_up_by(store, lines)):
        give_up(task)
    (bounce,) = [stored_task for stored_task in place.tasks() if stored_task.id != task.id]
    assert (bounce.destination, bounce.sender, bounce.state) == (FROM, "<>", State.PENDING)
    assert [text.split()[2:4] for _, text in lines] == [["was", "returned"]] * 2


@pytest.mark.parametrize("bounces", [True, False])
@unreadable
def test_an_unreadable_mail_is_not_given_up(
    place: Spool, spoil: Callable[[Spool], None], bounces: bool, store: KannaderStore
) -> None:
    """A mail that was in flight when its sender ended stays there, without a bounce."""
    store.enqueue(FROM, [TO], [TEXT])
    spoil(place)
    task = claimed(store)
    with pytest.raises(Unsupported, match=r"hard link|unknown format"):
        give_up_by(store, [], bounces=bounces)(task)
    assert [task.id for task in place.tasks()] == [task.id]


def test_a_mail_may_be_given_up_without_a_bounce(place: Spool, store: KannaderStore) -> None:
    """With bounces off nothing is logged; a sender that cannot be answered is an error."""
    lines: list[tuple[str, str]] = []
    store.enqueue(FROM, [TO], [TEXT])
    task = claimed(store)
    give_up = give_up_by(store, lines, bounces=False)
    give_up(task)
    store.swap(task, None)
    give_up(task)
    assert place.is_clean and lines == []
    store.enqueue(FROM, [TO], [TEXT])
    (metadata,) = place.path.glob("data/*/*/metadata")
    metadata.write_text(metadata.read_text().replace('{"raw":"foo"}', '{"raw":"f oo"}'))
    give_up_by(store, lines)(claimed(store))
    assert len(place.tasks()) == 1
    ((level, text),) = lines
    assert level == "ERROR" and "cannot be returned" in text


# ---- settings


def settled(**settings: Any) -> KannaderSettings:
    """The settings as read from `stores.kannader`."""
    return parse_settings(settings, ConfigLocation("some.yaml", "stores.kannader"))


WRONG: dict[str, tuple[object, ...]] = {
    **{"host": ("-x", "a b", "a\r\nb"), "helo": ("a\nb",), "port": (0, 65536)},
    **{"tls": ("sometimes",), "user": ("me", "a\nb"), "password_file": ("relative",)},
    **{"max_time": (3300, "1h"), "profile": ("none",), "lifetime": (0,), "concurrency": (0,)},
    **{"bounce": ("yes",), "unknown": (1,)},
}


@each(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_a_wrong_setting_is_refused(key: str, value: object) -> None:
    """The error names the file and the key; an attempt must end before others may take the mail."""
    with pytest.raises(ConfigError, match=r"some\.yaml: stores\.kannader"):
        settled(**{key: value})


def waits(policy: RetryPolicy, failures: int) -> list[float | None]:
    """The waits of a new mail after each of so many failures."""
    fresh = Task("x", "mail", State.ACTIVE, 0.0)
    return [policy.retry_delay(fresh._replace(attempts=count), 0.0) for count in range(failures)]


def test_each_setting_has_a_default() -> None:
    """No server; waits double from 15 minutes to 4 hours, after five days a failure is the last
    (section 4); profile `upstream` has no retry."""
    none = parse_settings(None, ConfigLocation("some.yaml", "stores.kannader"))
    assert settled() == none == KannaderSettings()
    assert KannaderSettings().work_refusal and not settled(host="relay.example.org").work_refusal
    to = destination(settled(host="relay.example.org", helo="here.example.org"))
    assert to == SmtpDestination("relay.example.org", helo="here.example.org")
    policy, upstream = retry_policy(KannaderSettings()), settled(profile="upstream", bounce=True)
    assert waits(policy, 7) == [900, 1800, 3600, 7200, 14400, 14400, 14400]
    assert waits(policy, 5000)[-1] == 14400
    old = Task("x", "mail", State.ACTIVE, 1_795_170_000.0, attempts=3)
    assert policy.retry_delay(old, old.created + 5 * DAY_SECONDS - 1) == 7200
    assert policy.retry_delay(old, old.created + 5 * DAY_SECONDS) is None
    assert waits(retry_policy(upstream), 2) == [None, None]
    assert not upstream.bounces and KannaderSettings().bounces and not settled(bounce=False).bounces


def test_a_worker_that_stays_waits_for_a_locked_spool(capsys: pytest.CaptureFixture[str]) -> None:
    """At its start it says what is in the way and tries again; with --until-idle it ends."""
    locked, paused = [True], list[float]()

    def recover() -> Iterator[str]:
        if locked:
            raise Unavailable("locked by another process")
        yield "one mail"

    def unlock(seconds: float) -> None:
        paused.append(seconds)
        locked.clear()

    with pytest.raises(Unavailable):
        list(recover_at_start(recover, stays=False))
    assert list(recover_at_start(recover, stays=True, pause=unlock)) == ["one mail"]
    assert paused == [5]
    assert "locked by another process; trying again in 5 s" in capsys.readouterr().err
