"""`spooldeck zgb`: a ZGB mail queue on the command line, and a sendmail that takes its mails."""

import json
import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from engine.formats.zgb import queue_place
from engine.formats.zgb.place import ZgbSettings
from engine.formats.zgb.queue_place import queue_facts, queue_shut
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.logs.log_line import SharedLog
from engine.model import State
from engine.monitor import prometheus
from engine.monitor.forecast import ForecastInputs, forecast_drain
from engine.monitor.throughput import Drain, Trend
from engine.store import Unavailable
from engine.system.command_errors import EX_UNAVAILABLE, NotReadable
from tests.mail_queue_commands import PATIENCE, Site, soon
from tests.programs import a_script
from tests.store_contents import found
from tests.unprivileged_user import as_other_user, other_users_folder
from tui.cli import main
from tui.cli.setup.places import open_places
from tui.task import parts_lines

FAILED = "UPDATE mail_queue SET status = 'failed', attempts = 10, next_attempt_at = 253402300799"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A place for a mail queue; the database is not made yet."""
    return Site(tmp_path)


@pytest.fixture
def queued(site: Site) -> Site:
    """A queue with the user's mail of registration 7."""
    site.make(7)
    site.enqueue(7)
    return site


# ---- init and enqueue


def test_cron_lines_keep_percent_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """cron ends a command at each % that has no backslash: the lines of init and doctor have it."""
    path = tmp_path / "50%" / "z.db"
    path.parent.mkdir()
    assert main(["zgb", "init", str(path)]) == 0
    main(["zgb", "doctor", str(path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if "* * * * *" in line]
    assert [line.count("50\\%/z.db") for line in lines] == [1, 1]


def test_init_prints_the_next_steps(site: Site) -> None:
    """A new queue is paused; the commands that it prints switch it on and enqueue a mail."""
    made, *steps = site.zgb("init", site.path).stdout.splitlines()
    site.sql("INSERT INTO registrations VALUES (7, 0)")
    assert made == f"made {site.path}: paused until mailQueueEnabled is 1 in its table config"
    (on, add, *_) = [line.strip().split("   ")[0].split() for line in steps if "--root" in line]
    assert site.run(*on[on[0] == "spooldeck" :]).returncode == 0
    assert site.sql("SELECT value FROM config WHERE key = 'mailQueueEnabled'") == [("1",)]
    words = [word.replace("NUMBER", "7") for word in add if word != "spooldeck"]
    assert site.run(*words).stdout == "7-user created\n7-organizer created\n"
    assert any("* * * * * " in line and line.count(site.path) for line in steps)


def test_enqueue_makes_no_second_job(site: Site) -> None:
    """Enqueued again, a mail is printed with its state; a kind that is switched off is not made."""
    site.make(7, 8)
    site.settle(mailQueueEnabled="0")
    first = site.zgb("enqueue", "7", site.path)
    site.sql(f"{FAILED}, last_error = '550 no' WHERE mail_type = 'user'")
    second = site.zgb("enqueue", "7", site.path)
    assert first.stdout == "7-user created\n7-organizer created\npaused, 2 waiting\n"
    assert second.stdout == (
        "7-user already exists: parked, attempts 10, 550 no\n"
        "7-organizer already exists: pending\npaused, 1 waiting\n"
    )
    assert len(site.jobs()) == 2
    assert [line["event"] for line in site.logged()] == ["enqueue"] * 2 + ["enqueue_duplicate"] * 2
    site.settle(mailQueueEnabled="1")
    one = site.zgb("enqueue", "8", site.path, "--type", "organizer")
    site.configure(user="enabled: false")
    both = site.zgb("enqueue", "8", "--root", site.path)
    off = site.zgb("enqueue", "8", site.path, "--type", "user")
    assert one.stdout == "8-organizer created\n"
    assert both.stdout == "8-organizer already exists: pending\n"
    assert (off.returncode, "user mails are disabled" in off.stderr) == (78, True)


def test_queued_mails_are_printed_if_the_database_cannot_be_read_after_that(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """New ids are printed though the waiting ones cannot be counted; with --json none is."""
    site.make(7, 8)
    site.settle(mailQueueEnabled="0")

    def refuse(store: ZgbStore, now: float) -> None:
        raise Unavailable("disk I/O error")

    monkeypatch.setattr(ZgbStore, "backlog", refuse)
    words = ["--config", str(site.config), "zgb", "enqueue", "--root", site.path]
    code, printed = main([*words, "7"]), capsys.readouterr()
    assert (code, printed.err) == (EX_UNAVAILABLE, "spooldeck: disk I/O error\n")
    assert printed.out == "7-user created\n7-organizer created\n"
    assert main([*words, "8", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["is_new"] for row in rows] == [True, True]


def test_a_job_is_shown_by_its_row(queued: Site) -> None:
    """A job has no payload before it is sent: its row is shown as JSON."""
    with closing(ZgbStore(ZgbSettings().place(queued.path))) as store:
        task = found(store, "7-user")
        parts = [
            parts_lines.Opened(part, store.read(task, part.name)) for part in store.parts(task)
        ]
    lines = ["".join(text for text, _ in one) for one in parts_lines.payload_lines(parts, 0.0, 80)]
    assert lines[0].endswith("no payload; task file:") and "row: JSON" in lines[1]
    assert '      "mail_type": "user",' in lines


# ---- one run


def test_one_run_sends_what_the_tokens_allow(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One token is one mail; output, log, metrics, facts and transports report the run."""
    site.make(7, 8, tokens=1)
    site.enqueue(7, 8)
    done = site.work()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 sent, 0 failed, 1 waiting; next token in ")
    (mail,) = site.mails()
    assert (mail["To"], mail["Subject"]) == ("p7@example.org", "Anmeldung 7")
    assert mail["Message-ID"].startswith("<zgb-7-user-")
    assert mail.get_content() == "Hallo Person 7, Nummer 7.\n"
    assert site.jobs() == [("8-user", "pending")]

    start, end = site.logged("run_start", "run_end")
    counted = {"allowed": 1, "claimed": 1, "sent": 1, "failed": 0, "recovered": 0, "orphans": 0}
    assert {"rate": 1, "cap": 1, "tokens_before": 1.0, "run": end["run"]}.items() <= start.items()
    assert counted.items() <= end.items() and end["tokens_after"] < 1
    gauges = prometheus.read_metrics(f"{site.path}.spooldeck.d/metrics/queue.prom")
    for name, value in (("pending", 1), ("working", 0), ("processed_total", 1)):
        assert gauges.get(f"nftban_queue_tasks_{name}") == value

    monkeypatch.setenv("HOME", site.environ["HOME"])
    facts = queue_facts(site.setup())
    rows = dict(facts.rows)
    assert (rows["registrations"], facts.warnings) == ("2", ())
    assert rows["backlog"].startswith("1 waiting, 1 due; at least ")
    assert rows["last run"].endswith(": 1 sent")
    assert rows["worker"] == "not running; sends by sendmail"
    assert facts.has_worker  # cron starts it each minute
    (log,) = queue_place.queue_logs(site.setup())
    assert isinstance(log, SharedLog) and (log, log.db) == (str(site.log_path), site.path)

    sending = json.loads(site.run("transports", site.path, "--json").stdout)
    (sent,) = [transport for transport in sending["transports"] if transport["totals"]["attempts"]]
    assert (sent["transport"], sent["totals"]["success"]) == ("sendmail", 1)
    assert {each["problem"] for each in sending["sources"]} == {""}
    lines = map(json.loads, site.run("log", site.path, "--json").stdout.splitlines())
    own = [line for line in lines if line["log"] == str(site.log_path)]
    (logged,) = [line for line in own if line["text"].startswith("sent ")]
    text = rf"sent 7-user job=\d+ attempt=1 to=p\*\*\*@example\.org .* db={site.path}$"
    assert re.match(text, logged["text"])
    assert (logged["level"], logged["when"] > 1e9) == ("INFO", True)


def test_a_paused_queue_sends_nothing(site: Site) -> None:
    """A run deletes orphans and keeps its tokens; no next token is known; both doctors warn."""
    site.make(7, 8, tokens=0)
    for number in ("7", "8"):
        site.zgb("enqueue", number, site.path)
    site.settle(mailQueueEnabled="0")
    site.sql("DELETE FROM registrations WHERE number = 8")
    before = site.sql("SELECT * FROM config ORDER BY key")
    done = site.work()
    assert (done.returncode, done.stdout) == (0, "paused, 2 waiting\n")
    assert site.sql("SELECT * FROM config ORDER BY key") == before
    assert [ident for ident, _ in site.jobs()] == ["7-user", "7-organizer"]
    (skipped,) = site.logged("run_skipped", "run_start", "run_end")
    assert (skipped["event"], skipped["orphans"], site.mails()) == ("run_skipped", 2, [])

    own, any_place = site.doctor(), site.run("doctor", site.path)
    assert re.search(r"\nwarn  switch    paused.*\n {16}fix: spooldeck control ", own.stdout)
    assert {line.split()[0] for line in own.stdout.splitlines()} == {"ok", "warn", "fix:"}
    assert (any_place.stdout, any_place.returncode, own.returncode) == (own.stdout, 1, 1)

    (paused,) = queue_place.queue_tokens(site.setup())
    assert (paused.paused, paused.next) == (True, None)
    known = ForecastInputs(
        {State.PENDING: 3},
        {},
        Drain(Trend.UNKNOWN),
        None,
        None,
        has_arrivals=False,
        tokens=(paused,),
    )
    assert forecast_drain(known, 0.0).brief == "paused"
    for setting, has_next in (({"mailQueueEnabled": "1"}, True), ({"mailTokens": "1"}, False)):
        site.settle(**setting)
        (bucket,) = queue_place.queue_tokens(site.setup())
        assert (bucket.paused, bucket.next is not None) == (False, has_next)
        assert bucket.tokens == int(not has_next)


def test_a_failed_mail_waits_and_the_run_is_silent(queued: Site) -> None:
    """With --quiet such a run prints nothing, for cron, and is code 0; the job has the reason."""
    a_script(queued.folder / "sendmail", "cat > /dev/null; echo 'no such user' >&2; exit 67")
    before, done = int(time.time()), queued.work("--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    fields = "status, attempts, next_attempt_at, last_error"
    ((*failed, due, error),) = queued.sql(f"SELECT {fields} FROM mail_queue")
    assert (failed, due >= before + 60, "rejected" in error) == (["failed", 1], True, True)
    assert [line["attempt"] for line in queued.logged("failed")] == [1]


def test_mails_wait_for_a_missing_template(site: Site) -> None:
    """A kind without its template is not claimed, with a warning; the other kind is sent."""
    site.make(7)
    (site.folder / "user.txt").unlink()
    site.zgb("enqueue", "7", site.path)
    done = site.work()
    assert (done.returncode, done.stdout.count("user: template")) == (0, 1)
    assert "No such file" in done.stdout
    assert [mail["To"] for mail in site.mails()] == ["orga@example.org"]
    assert site.sql("SELECT attempts, status FROM mail_queue") == [(0, "pending")]
    site.settle(mailLastRefill="1000")
    assert any(line.startswith("user mails wait: ") for line in queue_facts(site.setup()).warnings)
    assert "user.txt" in queue_shut(site.setup(), "user")
    # Without any configuration it is ZGB's own worker that sends, if one runs.
    setup, none = setup_for(queue_config.Config(), site.path, {}), "no template is set"
    for runs in (False, True):
        site.settle(mailLastRefill=str(int(time.time())) if runs else "1000")
        facts = queue_facts(setup)
        assert dict(facts.rows)["worker"].startswith(f"sends nothing: {none}")
        assert any(none in line for line in facts.warnings) is not runs
        assert queue_shut(setup, "user").startswith(none) is not runs
    assert queue_shut(setup, "user") == ""
    site.config.write_text("{}\n")
    letters = "\nok    letters   ZGB's own worker sends them: no template"
    assert letters in site.doctor().stdout


def test_workers_that_cannot_be_read_are_unknown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the worker files cannot be read, the facts say so, and not that none runs."""
    monkeypatch.setenv("HOME", site.environ["HOME"])
    site.make()
    run = Path(site.setup().queue.run_dir)
    run.parent.mkdir(exist_ok=True)
    run.touch()  # a file in place of the folder
    facts = queue_facts(site.setup())
    assert facts.workers_unknown.startswith("running workers unknown: ")
    assert dict(facts.rows)["worker"].startswith(f"? {facts.workers_unknown}; sends by ")


def test_a_log_that_cannot_be_written_goes_to_stderr(queued: Site) -> None:
    """The mail is sent all the same."""
    queued.environ["MAIL_QUEUE_LOG"] = str(queued.folder / "no" / "folder.log")
    done = queued.work()
    assert (done.returncode, len(queued.mails()), '"event":"sent"' in done.stderr) == (0, 1, True)


# ---- what the other commands show of it


def test_failed_jobs_are_distinguished_from_pending_ones(site: Site) -> None:
    """Status, overview and list count and select jobs by the words of the format itself."""
    site.make(7, 8)
    site.enqueue(7, 8)
    site.sql("UPDATE mail_queue SET status = 'failed' WHERE registration_number = 8")
    root = ("--root", site.path)
    tasks = {"pending": 1, "failed": 1, "sending": 0, "held": 0, "parked": 0, "trash": 0}
    status = json.loads(site.run("status", site.path, "--json").stdout)
    overview = json.loads(site.run("overview", site.path, "--json").stdout)
    assert status["tasks"] == overview["places"][0]["tasks"] == tasks
    assert "FAILED" in site.run("overview", site.path).stdout
    for words, numbers in (
        ("", "78"),
        ("--state failed", "8"),
        ("--filter state=failed", "8"),
        ("--state pending", "7"),
        ("--state pending,failed", "78"),
    ):
        lines = site.run("queue", "list", *words.split(), *root).stdout.splitlines()
        assert [line.split(" | ")[1] for line in lines] == [f"{n}-user" for n in numbers], words
    replay = site.run("replay", "--id", "8-user", "--dry-run", *root)
    assert "8-user: failed, expected parked; promote makes it due now" in replay.stderr
    promote = site.run("promote", "--state", "failed", "--apply", "1", *root)
    assert (promote.returncode, promote.stderr) == (0, "")


def test_a_suspended_transport_is_reported_everywhere(queued: Site) -> None:
    """Status, doctor and each job have the command that resumes it."""
    site = queued
    site.work()
    site.enqueue(7)
    site.run("mail", "suspend", "sendmail", "--root", site.path)
    resume = f"spooldeck mail resume sendmail --root {site.path}"
    status, setup = site.status().stdout, site.setup()
    (attention,) = [line for line in status.splitlines() if line.startswith("attention")]
    held = "attention spooldeck's worker sends nothing: no mail transport: sendmail suspended by "
    assert attention.startswith(held) and attention.endswith(f"({resume})")
    assert f"fix: {resume}\n" in site.doctor().stdout
    (place,) = open_places(setup, [site.path])
    assert place.claim_obstacle is not None
    assert place.claim_obstacle("user") == queue_shut(setup, "user")
    assert all(queue_shut(setup, kind).endswith(f"({resume})") for kind in ("user", "guest"))
    site.run(*resume.split()[1:])
    shut = queue_shut(setup, "user"), queue_shut(setup, "guest")
    assert (shut, site.status().returncode) == (("", "unknown kind of mail: guest"), 0)


def test_two_names_of_one_database_are_one_queue(queued: Site) -> None:
    """A symbolic link has the same staging directory: one lock and one journal."""
    link = queued.folder / "link.db"
    link.symlink_to(queued.path)
    words = ("--id", "7-user", "--apply", "1", "--reason", "by the link")
    assert queued.run("hold", str(link), *words).returncode == 0
    assert "by the link" in queued.run("journal", queued.path).stdout
    setups = [queued.setup(path) for path in (str(link), queued.path)]
    assert {setup.state_folder for setup in setups} == {f"{queued.path}.spooldeck.d"}
    assert {setup.queue.pending for setup in setups} == {str(Path(queued.path).parent)}


# ---- interrupted, or refused by the database


def test_of_two_runs_one_works(site: Site) -> None:
    """The second run is code 2 and names the first unless --quiet; each mail is sent once."""
    site.make(7)
    gate, script = site.folder / "gate", Path(site.sendmail)
    os.mkfifo(gate)
    script.write_text(script.read_text().replace("cat >", f"read x < '{gate}'\ncat >", 1))
    site.enqueue(7)
    with site.start("zgb", "work", site.path) as first:
        assert soon(lambda: site.jobs() == [("7-user", "sending")])
        second, loop, quiet = site.work(), site.work("--loop"), site.work("--quiet")
        gate.write_text("go\n")
        output, _ = first.communicate(timeout=PATIENCE)
    assert [done.returncode for done in (second, loop, quiet)] == [2, 2, 2]
    assert second.stdout == quiet.stdout + quiet.stderr == ""
    assert re.search(rf"another run is active on .* \(PID {first.pid}\)", second.stderr)
    assert (first.returncode, output) == (0, b"1 sent, 0 failed, 0 waiting\n")
    assert len(site.mails()) == 1


LOOP = """
import sys, time
from pathlib import Path
from tui.cli.formats.zgb import commands as zgb
zgb.RUN_INTERVAL_SECONDS, zgb._SIGNAL_POLL_SECONDS = 3600.0, 0.05
"""


def test_a_loop_sends_new_jobs_immediately(site: Site) -> None:
    """A change of the database ends the wait for the minute, also one while a run ends."""
    site.make(7, 8, tokens=5, hourly=60)
    ended, added = site.home / "ended", site.home / "added"
    slow_end = (
        f"{LOOP}run = zgb._SingleRun.run\n"
        "def run_and_wait(self):\n"
        "    ran = run(self)\n"
        f"    Path({str(ended)!r}).touch()\n"
        f"    while not Path({str(added)!r}).exists():\n"
        "        time.sleep(0.01)\n"
        "    return ran\n"
        "zgb._SingleRun.run = run_and_wait\n"
    )
    with site.looping(slow_end, []):
        assert soon(ended.exists)
        for count, number in enumerate((7, 8), 1):
            site.enqueue(number)
            added.touch()
            assert soon(lambda count=count: len(site.mails()) == count and site.jobs() == [])  # type: ignore[misc]
    assert len(site.logged("run_end")) == len(site.logged("run_start"))


def test_a_loop_outlives_a_refusal_of_the_database(site: Site) -> None:
    """A trigger that aborts each run is reported once; the loop goes on until it is gone."""
    site.make(7, tokens=5)
    site.enqueue(7)
    site.sql("CREATE TRIGGER no BEFORE UPDATE ON config BEGIN SELECT RAISE(ABORT, 'not now'); END")
    delay = "lambda refusals: print('refused', refusals, file=sys.stderr) or 0.01"
    often = f"{LOOP}zgb.refusal_delay_seconds = {delay}"

    def refused() -> int:
        runs = site.logged("run_end") if site.log_path.exists() else []
        return sum("not now" in str(run.get("error")) for run in runs)

    outputs: list[str] = []
    with site.looping(often, outputs):
        assert soon(lambda: refused() > 2)
        site.sql("DROP TRIGGER no")
        assert soon(lambda: len(site.mails()) == 1 and site.jobs() == [])
    (message,) = outputs
    assert message.count("not now") == message.count("not now, retry in 0s") == 1
    assert re.search("refused 0\n(.*\n)*refused 1\n(.*\n)*refused 2\n", message)
    log = Path(f"{site.path}.spooldeck.d/log/queue.log").read_text()
    assert re.search(r"\[ERROR\] Queue cannot be reached: .*not now, retry in 0s", log)


def test_a_run_whose_claims_are_refused_is_a_failure(site: Site) -> None:
    """It is code 69, and bad in log, doctor and status until a later run has succeeded."""
    site.make(7, tokens=5, hourly=40)
    site.zgb("enqueue", "7", site.path)
    refuse = "BEFORE UPDATE ON mail_queue BEGIN SELECT RAISE(ABORT, 'not today'); END"
    site.sql(f"CREATE TRIGGER no {refuse}")
    ran, doctor, status = site.work(), site.doctor(), site.status()
    assert (ran.returncode, ran.stdout, "not today" in ran.stderr) == (69, "", True)
    (end,) = site.logged("run_end")
    assert (end["level"], "not today" in end["error"], end["sent"]) == ("error", True, 0)
    cron = r"^bad +cron +the last run failed: .*not today"
    assert len(re.findall(cron, doctor.stdout, re.MULTILINE)) == doctor.stdout.count(" cron ") == 1
    assert f"fix: read the queue's log: spooldeck log {site.path}" in doctor.stdout
    assert doctor.returncode == 1
    assert re.search(r"^attention the last run failed: .*not today", status.stdout, re.MULTILINE)
    site.sql("DROP TRIGGER no")
    assert site.work().stdout == "2 sent, 0 failed, 0 waiting\n"
    assert "failed:" not in site.doctor().stdout + site.status().stdout
    assert [line["level"] for line in site.logged("run_end")] == ["error", "info"]


def test_a_run_counts_rows_that_cannot_be_read(site: Site) -> None:
    """Rows that are no jobs wait for ever: the run names them and the command that explains."""
    site.make(7, 8, tokens=5, hourly=40)
    site.enqueue(7, 8)
    site.sql("UPDATE mail_queue SET next_attempt_at = 'soon' WHERE registration_number = 8")
    why = f"1 row is damaged (spooldeck zgb doctor {site.path})"
    assert site.work().stdout == f"1 sent, 0 failed, 1 waiting; {why}\n"
    site.sql("UPDATE mail_queue SET next_attempt_at = 0")
    assert site.work().stdout == "1 sent, 0 failed, 0 waiting\n"


# ---- doctor


@pytest.mark.parametrize("closed", ["", "q.db"])
def test_a_hidden_database_is_not_called_missing(closed: str) -> None:
    """Without read permission for a database or its folder, no command to make another is named."""
    with other_users_folder() as folder:
        inside = folder / "in"
        shut, database = inside / closed, inside / "q.db"

        def look() -> None:
            inside.mkdir()
            create(str(database))
            shut.chmod(0)
            why = f"permission denied: cannot read {shut}: chmod u"
            with pytest.raises(NotReadable, match=why):
                queue_place.zgb_place(setup_for(queue_config.Config(), str(database), {}))
            shut.chmod(0o700)

        as_other_user(look)


def test_doctor_names_everything_that_is_wrong(site: Site) -> None:
    """A healthy queue has no finding and is code 0; each thing that keeps mails back is one."""
    site.make(7)
    site.work()
    assert site.findings() == (0, {})
    site.zgb("enqueue", "7", site.path)
    site.sql(f"{FAILED} WHERE mail_type = 'organizer'")
    site.sql("DELETE FROM registrations")
    site.settle(mailQueueEnabled="0", mailMaxPerHour="160")
    site.settle(mailRedirectToSchumbi="1", mailLastRefill="1000")
    site.environ["MAIL_QUEUE_LOG"] = str(site.folder / "no" / "x.log")
    (site.folder / "user.txt").write_text("{price}")
    site.configure(mail="method: none", own="lease: 50")
    code, problems = site.findings()
    warned = ("switch", "jobs", "rows", "rate", "redirect", "log")
    grades = {name: ["warn"] for name in warned} | {"lease": ["bad"], "transport": ["bad"]}
    assert {
        name: [word.partition(":")[0] for word in words] for name, words in problems.items()
    } == {**grades, "letters": ["bad", "bad"]}
    assert "1 parked" in problems["jobs"][0]
    assert "2 jobs have no registration" in problems["rows"][0]
    assert (code, "the method is none" in problems["transport"][0]) == (1, True)


def test_doctor_warns_of_a_silent_cron_and_a_public_log(site: Site) -> None:
    """Runs that are missing, with the line for the crontab; a log below a web root."""
    site.make(7)
    for key, value, words in (
        ("mailLastRefill", "1000", "the last run was"),
        ("mailTokens", "", "no run is recorded"),
    ):
        site.settle(**{key: value})
        done = site.doctor()
        assert done.returncode == 1 and "* * * * * " in done.stdout
        assert f"warn  cron      {words}" in done.stdout
    site.work()
    site.environ["HOME"] = "/nonexistent"
    assert "log" not in site.findings()[1]
    (site.folder / "htdocs").mkdir()
    site.environ["MAIL_QUEUE_LOG"] = str(site.folder / "htdocs" / "x.log")
    assert "below a web root" in site.findings()[1]["log"][0]


def test_doctor_names_missing_columns(site: Site) -> None:
    """The test mode needs days and a time of creation; without a key a mail may go twice."""
    site.make(7)
    site.work()
    site.zgb("enqueue", "7", site.path)
    site.settle(mailRedirectToSchumbi="1")
    drop = [f"ALTER TABLE {one} DROP COLUMN created_at" for one in ("mail_queue", "registrations")]
    newer = "UPDATE registrations SET created_at = strftime('%s') + 900000"
    older = ("2 jobs are older than the registration", "to delete them now: spooldeck control")
    for changes, *texts in (
        ([], "YYYY-MM-DD, or disable it"),
        ([newer], *older),
        (drop, "add a created_at to mail_queue or registrations"),
    ):
        for change in changes:
            site.sql(change)
        output = site.doctor().stdout
        assert all(text in output for text in texts), output
    site.settle(mailRedirectToSchumbi="0")
    assert site.findings() == (0, {})
    columns = "registration_number, mail_type, status, attempts, next_attempt_at, locked_until"
    site.sql("DROP TABLE mail_queue")
    site.sql(f"CREATE TABLE mail_queue (id INTEGER PRIMARY KEY, {columns}, last_error)")
    code, problems = site.findings()
    assert (code, list(problems)) == (1, ["log"]) and "may be sent twice" in problems["log"][0]


def test_doctor_explains_an_unreadable_database(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lock, a missing table, a damaged database and another file each have a remedy."""
    site.make(7)
    real, path = ZgbSettings.place, Path(site.path)

    def place(*own: Any, **more: Any) -> Any:
        return real(*own, **more)._replace(patience=0.05)

    monkeypatch.setattr(ZgbSettings, "place", place)
    with closing(sqlite3.connect(site.path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert main(["--config", str(site.config), "zgb", "doctor", site.path]) == 1
    locked = capsys.readouterr().out
    assert "locked by another process" in locked
    assert f"fix: wait, or find the process: fuser -v {site.path}" in locked

    whole = path.read_bytes()
    lacks = "fix: give the path of the database, or make a new one: "
    for spoil, *texts in (
        (lambda: site.sql("DROP TABLE config"), "expected a table config", lacks),
        (
            lambda: path.write_bytes(whole[:100] + bytes(len(whole) - 100)),
            f"fix: stop its other programs, then: sqlite3 {site.path} .recover",
        ),
        (
            lambda: path.write_text("hello\n"),
            "bad   database  no mail queue, expected a SQLite database",
        ),
    ):
        spoil()
        done = site.doctor()
        assert done.returncode == 1 and all(text in done.stdout for text in texts), done.stdout
