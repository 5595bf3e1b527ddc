"""The commands and the console on a ZMailer scheduler that is reached by MAILQ."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import queue_config
from engine.config.place_address import parse_address, places_folder
from engine.formats.known_formats import setup_for
from engine.formats.zmailer.mailq import job_text
from engine.formats.zmailer.mailq.queue_view import JobView
from engine.formats.zmailer.mailq_store.source import parse_place
from engine.formats.zmailer.mailq_store.store import MailqStore
from engine.operations.notes import Notes
from engine.system.run_clock import RunClock
from engine.work.housekeeping import Housekeeping
from tests.console_operator import an_operator
from tests.engine.formats.zmailer.spool.test_control_file import sample_files
from tests.mailq_samples import FOLDER, NOW, client_report, read_dump
from tests.mailq_server import RunningServer, SampleQueue, serving, waiting_job
from tests.nftban_queues import Run
from tui.cli.setup.places import open_places

PASSWORD = "s3cret"
MESSAGE = "I/F/3276785"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    """A server of version 2 with a message in two threads, and the configuration of its place."""
    now = time.time()
    hosts = [(MESSAGE, "a.test"), (MESSAGE, "b.test"), ("G/W/3268638", "a.test")]
    jobs = [waiting_job(path, host, wakeup=now + 900) for path, host in hosts]
    with serving(tmp_path, SampleQueue(jobs, now)) as server:
        config = tmp_path / "config.yaml"
        config.write_text(f"places: [mailq+unix://root:{PASSWORD}@{server.path}]\n")
        config.chmod(0o600)
        yield server
        state = places_folder(parse_address(server.url), os.environ, os.geteuid())
        shutil.rmtree(state, ignore_errors=True)  # root's is not in the home folder


def test_a_listing_of_version_1_is_that_of_the_original() -> None:
    """Threads and messages of a dump are in the order of the original's client."""
    view = job_text.parse_dump(read_dump(), NOW)
    made = [*job_text.dump_listing(view, lambda channel, host: True)]
    titles, printed = (
        [line.partition(":\t")[0] for line in lines]
        for lines in (made, client_report("client-v1.txt", ""))
    )
    assert titles == printed
    error = "smtp; 466 (No DNS response for host: example.com; h_errno=0) "
    assert f"\tI/F/3276785/2:\t{error}" in "\n".join(made)
    first, *_ = job_text.dump_listing(view, lambda channel, host: host == "uucphost")
    assert first == "uucp/uucphost:"


def test_a_listing_of_version_2_is_that_of_the_original() -> None:
    """A thread of version 2 is printed with the tries, the expiry and the last diagnostic."""
    lines = (FOLDER / "client-v2-agents.txt").read_text().split("\n")
    start = lines.index("byhost/relay.example.net:")
    message = "<smtp connect to relay.example.net: Connection timed out>"
    job = JobView("A/3312478", "byhost", "relay.example.net", message=message, attempts=1)
    job = job._replace(expires_at=NOW + 255_700)
    made = job_text.thread_listing("byhost", "relay.example.net", [job], NOW)
    assert [*made] == lines[start : start + 2]
    empty = job._replace(path="L/3312437", message="", attempts=0)
    assert lines[start + 3] in [*job_text.thread_listing("fake", "x", [empty], NOW)]


def test_verbose_listings_read_the_control_files(tmp_path: Path, spooldeck: Run) -> None:
    """With -v each message has its id, its sender and the recipients that are to do."""
    dump = tmp_path / "dump"
    dump.write_text(read_dump())
    path = tmp_path / "transport" / MESSAGE
    path.parent.mkdir(parents=True)
    path.write_bytes(sample_files()[f"snap2/{MESSAGE}"])
    words = ("zmailer", "mailq", "-v", "-h", "example.com", str(dump))
    done, printed = (
        spooldeck(*words, POSTOFFICE=str(tmp_path)),
        client_report("client-v1.txt", "-v"),
    )
    at = next(n for n, line in enumerate(printed) if f"{MESSAGE}/2:" in line)
    assert done.stdout.split("\n")[2:6] == printed[at + 1 : at + 5]
    assert spooldeck("zmailer", "mailq", "-v", str(dump)).returncode == 64


def test_reports_are_those_of_the_server(running: RunningServer, spooldeck: Run) -> None:
    """-Q, -QQ, -QQQ and -QQQQ print the reports; without them all threads are listed."""
    socket = ("-p", running.path)
    for option, words in (
        ("-Q", "    smtp/a.test/0"),
        ("-QQ", "\tThreads:    2 Msgs:     3"),
        ("-QQQ", "Uptime: 76 sec"),
        ("-QQQQ", "ZMailer SHM segment dump"),
    ):
        done = spooldeck("zmailer", "mailq", option, *socket)
        assert (done.returncode, words in done.stdout) == (0, True), done
    done = spooldeck("zmailer", "mailq", *socket, "-c", "smtp", "-h", "b.test")
    lines = [line.partition(" (")[0] for line in done.stdout.split("\n")]
    assert lines == ["smtp/b.test:", f"\t{MESSAGE}:", ""]


def test_a_password_is_no_argument(running: RunningServer, spooldeck: Run, tmp_path: Path) -> None:
    """A password is in the environment, a private file or the place, never an argument."""
    words = ("zmailer", "mailq", "-QQQ", "-p", running.path, "-U")
    done = spooldeck(*words, f"root/{PASSWORD}")
    assert (done.returncode, done.stdout, PASSWORD in done.stderr) == (64, "", False)
    private, public = tmp_path / "private", tmp_path / "public"
    for path, mode in ((private, 0o600), (public, 0o644)):
        path.write_text(f"{PASSWORD}\n")
        path.chmod(mode)
    name = "SPOOLDECK_MAILQ_PASSWORD"
    wrong = "refuses the login of user root: -BAD USER OR PASSWORD"
    for more, environ, refusal in (
        ((), {}, "no password of user root"),
        ((), {name: "wrong"}, wrong),
        (("--password-file", str(public)), {}, "chmod 600"),
        ((), {name: PASSWORD}, ""),
        (("--password-file", str(private)), {}, ""),
    ):
        done = spooldeck(*words, "root", *more, **environ)
        assert (done.returncode == 0, refusal in done.stderr) == (not refusal, True), done
    assert spooldeck("--config", str(tmp_path / "config.yaml"), *words, "root").returncode == 0


def test_a_deletion_adds_the_other_threads_of_the_message(
    running: RunningServer, spooldeck: Run, tmp_path: Path
) -> None:
    """The plan for one task shows and counts the other thread of its message; both are deleted."""
    url = f"mailq+unix://root@{running.path}"
    named = ("--state", "waiting", "--id", f"smtp/a.test/{MESSAGE}", url)
    words = ("--config", str(tmp_path / "config.yaml"), "expunge", *named)
    dry_run = spooldeck(*words, "--dry-run")
    assert "1 more affected: added to this plan" in dry_run.stdout
    assert "purge" not in dry_run.stdout, "a scheduler has neither trash nor hold"
    assert "--apply 2" in dry_run.stdout
    assert spooldeck(*words, "--apply", "1").returncode != 0
    done = spooldeck(*words, "--apply", "2", "--json")
    assert len(json.loads(done.stdout)["done"]) == 2, done.stderr
    assert [job.path for job in running.queue.all_jobs] == ["G/W/3268638"]
    assert PASSWORD not in dry_run.stdout + done.stdout
    done = spooldeck(*words[:2], "promote", "--id", "smtp/a.test/G/W/3268638", url, "--apply", "1")
    assert "1  promoted" in done.stdout, done.stderr
    assert "undo" not in done.stdout, "a request cannot be undone"


def test_commands_know_two_states(running: RunningServer, spooldeck: Run, tmp_path: Path) -> None:
    """Without a DLQ and a trash, commands show what is there, and refuse the rest in one line."""
    url = f"mailq+unix://root@{running.path}"
    base = ("--root", url, "--config", str(tmp_path / "config.yaml"))
    for words, code, message in (
        ("status", 0, "waiting 3"),
        ("doctor", 0, "3 waiting, 0 running"),
        ("groups", 0, "smtp/b.test"),
        ("workers", 0, ""),
        ("trash list", 0, "0 tasks"),
        ("trash sweep", 0, "0 tasks deleted"),
        ("hold --dry-run", 64, "not supported"),
        ("control start --target a.test --dry-run", 0, "threads to start: 1, with 2 messages"),
        ("control kill-thread --target smtp/a.test --apply 2", 0, "deleted in smtp/a.test: 2"),
    ):
        done = spooldeck(*base, *words.split())
        assert (done.returncode, message in done.stdout + done.stderr) == (code, True), done
        assert "oldest" not in done.stdout or "oldest    ? " in done.stdout, "MAILQ shows no ages"


def test_the_console_sweeps_a_place_without_a_trash(running: RunningServer, tmp_path: Path) -> None:
    """Its sweep of old files deletes notes on messages that are gone, and asks for no trash."""
    (tmp_path / "state" / "journal").mkdir(parents=True)
    state, root = str(tmp_path / "state"), str(tmp_path)
    notes = Notes(state, root)
    for ident in (f"smtp/a.test/{MESSAGE}", "smtp/gone.test/7"):
        notes.add(ident, "seen", "me")
    clock = RunClock(state, root, lambda level, text: None, lambda path: None)
    ignored: dict[str, Any] = dict.fromkeys(("log", "report", "make_folder"), lambda *_: None)
    keeping = Housekeeping(state, root, 24.0, run_clock=clock, **ignored)
    place = parse_place(parse_address(running.url))
    assert keeping.sweep_without_worker(lambda: MailqStore(place), notes) == ""
    assert notes.noted_ids() == {f"smtp/a.test/{MESSAGE}"}


async def test_the_console_shows_and_deletes(running: RunningServer) -> None:
    """The list, and a plan with the added row: X on one task of a message that has two."""
    address = parse_address(running.url)
    config = queue_config.Config(places=(address,))
    (place,) = await asyncio.to_thread(
        lambda: open_places(setup_for(config, address.text, {}), [address.text])
    )
    async with an_operator(place, size=(100, 30), clock=time.time) as operator:
        await operator.sees("3276785", "3268638", "waiting 3", "backoff until")
        await operator.press("down", "X")
        await operator.sees("EXPUNGE 2 TASKS", "1 more affected: added to this plan")
        await operator.sees("none: the server does it for good")
        await operator.press("2")
        await operator.sees("2 expunged")
        assert [job.path for job in running.queue.all_jobs] == ["G/W/3268638"]
