"""Commands on a Redis place: controls with a queue as target, and paced verbs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from engine.destinations.request_facts import request_facts
from engine.formats.bullmq.watch import URL_FIELDS
from tests.bullmq_jobs import write_at, write_failed, write_hash, write_waiting
from tests.examples import deep_but
from tests.nftban_queues import Run


def write_done(client: Redis) -> None:
    """20 completed jobs."""
    for number in range(20):
        write_at(client, "completed", f"d{number}", score=5, finishedOn=5)


def configured(folder: Path, text: str) -> tuple[str, str]:
    """The option that names a configuration file with this text."""
    path = folder / "config.yaml"
    path.write_text(text)
    return "--config", str(path)


def test_a_control_has_queues_as_targets(client: Redis, on_redis: Run) -> None:
    """Only the named queue changes; the journal names it with the former value."""
    write_waiting(client, "1", "mails")
    write_waiting(client, "1", "sums")
    client.hset("bull:sums:meta", mapping={"concurrency": 7})

    answer = json.loads(on_redis("control", "--json").stdout)
    controls = {each["name"]: each for each in answer["controls"]}
    assert [*controls] == ["pause", "concurrency", "rate", "obliterate", "recover"]
    targets = [(one["name"], one["now"]) for one in controls["concurrency"]["targets"]]
    assert targets == [("mails", "0"), ("sums", "7")]
    assert "concurrency sums" in on_redis("control", COLUMNS="100").stdout

    listed = on_redis("control").stdout
    assert "pause can be set back for each" in listed and "obliterate can be set back" not in listed

    bare = on_redis("control", "pause", "--value", "1", "--apply", "1")
    wrong = on_redis("control", "pause", "--target", "sum", "--value", "1", "--apply", "1")
    assert "pause needs a target: queue" in bare.stderr
    assert "no target 'sum', expected one of mails, sums" in wrong.stderr
    assert client.hexists("bull:sums:meta", "paused") is False

    words = ("control", "pause", "--target", "sums", "--value", "1")
    output = on_redis(*words, "--dry-run").stdout
    assert "Now 0 (jobs run), then 1 (pause: jobs wait)." in output
    assert "--target sums --value 1 --apply 1" in output
    done = on_redis(*words, "--apply", "1")
    assert (done.returncode, done.stdout) == (0, "sums is paused: jobs wait\n")
    assert [client.hexists(f"bull:{q}:meta", "paused") for q in ("mails", "sums")] == [False, True]

    listed = on_redis("journal").stdout
    # The journal has those of other tests on this server, too; the newest is the first.
    last, *_ = [line for line in listed.splitlines() if "| control | pause " in line]
    assert listed.startswith(last) and last.endswith("control | pause sums 1 | done")
    back = on_redis("undo", last.split(" | ")[1], "--dry-run")
    assert "pause sums was 0 before" in back.stdout + back.stderr


def test_a_rerun_is_paced_as_a_replay_is(client: Redis, on_redis: Run) -> None:
    """Both take the options of a pace and say how the tasks are sent; done tasks cannot be held."""
    for number in range(20):
        write_failed(client, f"f{number}")
    write_done(client)
    for verb in ("replay", "rerun"):
        dry_run = on_redis(verb, "--dry-run", "--rate", "5", "--canary", "3")
        assert dry_run.returncode == 0, dry_run.stderr
        assert "first 3; waits for results" in dry_run.stdout
        assert f"{verb} --rate 5 --canary 3 --apply 20" in dry_run.stdout
    refused = on_redis("rerun", "--rest", "hold", "--dry-run")
    assert (refused.returncode, refused.stderr) == (
        64,
        "spooldeck: --rest hold: unsent tasks cannot be held: done tasks stay\n",
    )


def test_a_rerun_without_a_worker_stops_after_its_canary(client: Redis, on_redis: Run) -> None:
    """Nothing runs the first task: the others stay done. The journal has the pace."""
    write_done(client)
    ended = on_redis("rerun", "--canary", "1", "--timeout", "1", "--apply", "20")
    assert ended.returncode == 1
    first = "no worker running: sent tasks wait for the next worker; ends after 1s without an"
    assert ended.stderr.startswith(f"spooldeck: {first} outcome\n")
    assert (client.llen("bull:mails:wait"), client.zcard("bull:mails:completed")) == (1, 19)
    (line,) = (x for x in on_redis("journal").stdout.splitlines() if " | rerun | " in x)
    answer = json.loads(on_redis("journal", line.split(" | ")[1], "--json").stdout)
    assert answer["pace"]["canary"] == [1]


LISTS = ("queue list", "status", "doctor", "overview", "groups", "kinds", "replay --dry-run")


@pytest.mark.parametrize("words", deep_but(LISTS[:1], LISTS))
def test_a_name_that_the_locale_lacks_is_a_question_mark(
    client: Redis, redis_url: str, tmp_path: Path, words: str
) -> None:
    """Each command prints it so, on the streams that replace what cannot be encoded."""
    write_waiting(client, "1", "caf\u2603")
    write_failed(client, "2", "caf\u2603")
    argv = [sys.executable, "-m", "tui.cli", *words.split(), redis_url]
    variables = {"PYTHONIOENCODING": "ascii", "XDG_STATE_HOME": str(tmp_path)}
    ended = subprocess.run(argv, env={**os.environ, **variables}, capture_output=True)
    assert b"Traceback" not in ended.stderr and b"caf?" in ended.stdout


def test_doctor_compares_outbox_and_jobs(client: Redis, on_redis: Run, tmp_path: Path) -> None:
    """Rows without a job, jobs without a row, a registry not made, a password others can read."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as db, db:
        db.execute("CREATE TABLE jobs (id TEXT PRIMARY KEY)")
        db.executemany("INSERT INTO jobs VALUES (?)", [("here",), ("old",), ("\x1b[2J",)])
    write_waiting(client, "1", data='{"row": "here"}')
    write_waiting(client, "2", data='{"row": "lost"}')
    text = f"destinations: sqlite://{tmp_path}/destinations.db\n"
    text += f"outbox: {{table: jobs, field: row, database: 'sqlite://{tmp_path}/app.db'}}\n"
    doctor = on_redis(*configured(tmp_path, text), "doctor")
    assert doctor.returncode == 1
    assert f"?     registry  sqlite://{tmp_path}/destinations.db: no such file" in doctor.stdout
    assert "warn  outbox    2 rows of jobs without a task: \ufffd[2J, old\n" in doctor.stdout
    assert "warn  outbox    1 task without a row of jobs: mails/2\n" in doctor.stdout
    assert not (tmp_path / "destinations.db").exists()
    words = configured(tmp_path, "destinations: postgresql://me:secret@/x?host=/nowhere\n")
    Path(words[1]).chmod(0o644)
    doctor = on_redis(*words, "doctor")
    assert "contains a password, other users may read it" in doctor.stdout
    assert "not reachable" in doctor.stdout and "secret" not in doctor.stdout + doctor.stderr


def test_a_worker_reports_on_standard_error(client: Redis, on_redis: Run, tmp_path: Path) -> None:
    """Connection, missing queues and each failure; a handler named like a job is never used."""
    write_waiting(client, "1", name="report")
    write_waiting(client, "1", "sums", opts='{"attempts": 2, "backoff": 3600000}')
    text = "{mails: {command: ['true']}, sums: {command: ['false']}, report: {command: [cat]}}"
    words = configured(tmp_path, f"handlers: {text}\n")
    ran = on_redis(*words, "bullmq", "work", "--until-idle")
    first, second, failed, retried, end = ran.stderr.splitlines()
    assert first.endswith(": mails, sums, report")
    assert first.startswith("spooldeck: connected to redis")
    assert second == (
        "spooldeck: no queue report yet; queues here: mails, sums "
        "(handlers are named by queue, not by the name of a job)"
    )
    assert "Task failed: sums/1" in failed
    assert "attempt 1/2" in retried
    assert end == "spooldeck: 1 done, 1 failed"


def test_doctor_names_what_stops_jobs(client: Redis, on_redis: Run, tmp_path: Path) -> None:
    """Jobs in no list, with the control that mends it, and a schedule that closes a queue."""
    write_waiting(client, "1")
    write_hash(client, "bull:mails:lost")
    client.zadd("bull:mails:repeat", {"odd": 5})
    client.hset("bull:mails:repeat:odd", mapping={"name": "tick", "pattern": "H * Q", "ic": 1})
    text = "handlers: {mails: {command: [cat]}, sums: {command: [cat]}}\n"
    output = on_redis(*configured(tmp_path, text), "doctor").stdout
    assert "mails: 1 job is in no list and no set of the queue" in output
    assert "spooldeck control recover --target mails" in output
    assert "`bullmq work` takes no job of mails: schedule odd: our worker cannot count" in output
    assert "no job of sums" not in output
    printed = on_redis("status").stdout
    assert "attention mails: 1 job is in no list and no set of the queue" in printed
    on_redis("control", "recover", "--target", "mails", "--apply", "1")
    assert "no list" not in on_redis("status").stdout


def test_the_priority_of_a_job_can_be_edited(client: Redis, on_redis: Run) -> None:
    """A dry run changes nothing; a word, or a value that BullMQ cannot sort by, is refused."""
    write_waiting(client, "1")
    words = ("edit", "mails/1", "--priority")
    assert "priority     0 -> 7" in on_redis(*words, "7", "--dry-run").stdout
    assert client.lrange("bull:mails:wait", 0, -1) == ["1"]
    assert "expected a whole number" in on_redis(*words, "high", "--dry-run").stderr
    assert "expected 0 (first)" in on_redis(*words, "9999999", "--dry-run").stderr
    assert on_redis(*words, "7", "--apply", "1").returncode == 0
    assert client.zrange("bull:mails:prioritized", 0, -1) == ["1"]
    assert client.hget("bull:mails:1", "priority") == "7"


def test_the_data_of_a_job_can_be_edited_and_the_edit_undone(
    client: Redis, on_redis: Run, tmp_path: Path
) -> None:
    """A dry run shows the first difference; what is no JSON is refused with line and column."""
    write_waiting(client, "1", data='{"to":"a@x.example","n":1}')
    file = tmp_path / "data.json"
    words = ("edit", "mails/1", "--data", str(file))
    file.write_text('{\n "to": "a@x.example",\n "n": }')
    refused = on_redis(*words, "--apply", "1")
    assert refused.returncode == 64 and "no JSON: line 3, column 7" in refused.stderr
    file.write_text('{\n "to": "a@x.example",\n "n": 1e5\n}\n')
    output = on_redis(*words, "--dry-run").stdout
    assert "data         26 B -> 28 B, first difference at 26: " in output
    assert '"n":1} -> ' in output
    assert client.hget("bull:mails:1", "data") == '{"to":"a@x.example","n":1}'
    assert on_redis(*words, "--apply", "1").returncode == 0
    assert client.hget("bull:mails:1", "data") == '{"to":"a@x.example","n":1e5}'
    assert "nothing to change" in on_redis(*words, "--dry-run").stderr
    op = on_redis("journal").stdout.split(" | ")[1]
    assert on_redis("undo", op, "--apply", "1").returncode == 0
    assert client.hget("bull:mails:1", "data") == '{"to":"a@x.example","n":1}'


def test_the_request_of_a_delivery_is_found_by_the_fields_of_its_format() -> None:
    """Data of a delivery to a federation and of any other request have their URL elsewhere."""
    for field in ("targetUrl", "url"):
        data = json.dumps({field: "https://a.example/x"}).encode()
        assert request_facts(data, URL_FIELDS)[0] == ("url", "https://a.example/x")
