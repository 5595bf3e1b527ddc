"""`status` of a place whose server delivers by itself: whether it runs, and what waits for it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import command
from tests.postfix_server import PostfixInstance, running_instance
from tests.programs import a_script


@pytest.fixture(scope="module")
def server() -> Iterator[PostfixInstance]:
    """A real server with three messages."""
    with running_instance() as instance:
        instance.deferred(3)
        yield instance


def output_of(*words: str) -> tuple[int, str]:
    """Exit code and standard output of a command, which prints no error."""
    run = command.run_text(*words)
    assert run.stderr == ""
    return run.returncode, run.stdout


def test_a_server_that_runs_and_one_that_is_stopped(server: PostfixInstance) -> None:
    """Its state has PID and start; stopped, it is the first alert with what waits."""
    place = str(server.config)
    _, running = output_of("status", place)
    server.stop()
    try:
        code, stopped = output_of("status", "--json", place)
        _, overview = output_of("overview", place)
    finally:
        server.start()
    assert "Postfix delivers: running, PID" in running and "queues    deferred 3" in running
    row, stops = json.loads(stopped), "Postfix is stopped: 3 wait"
    assert (code, row["attention"][0], row["facts"]["state"]) == (1, stops, stops)
    assert row["stalled"] is False
    assert stops in overview and "no worker running" not in overview


def listed(ident: str, sender: str, *reasons: tuple[str, str]) -> str:
    """A line of a listing: a deferred mail, its recipients and their reasons."""
    recipients = [{"address": to, "delay_reason": why} for to, why in reasons]
    fields = {"queue_name": "deferred", "queue_id": ident, "arrival_time": 1795822072}
    fields |= {"message_size": 300, "forced_expire": False, "sender": sender}
    return json.dumps({**fields, "recipients": recipients})


def test_a_planted_listing_harms_no_command(server: PostfixInstance, tmp_path: Path) -> None:
    """Surrogates, control bytes, U+202E, 20,000 recipients, lines of 17 MB, cut ones, garbage, and
    ids that are none: each mail that can be read is counted, the rest are problems, and no control
    byte is printed."""
    many = [(f"u{n}@many.test", "later") for n in range(20_000)]
    hostile = ("b\x07@x.test", "450 \x1b]0;x\x07\x9b\u202e")
    good = [
        listed("4EBEB2DA011", "sur\ud800@a.test", ("\ud800@x.test", "\udfff no")),
        listed("4EBEB2DA012", "e\x1b[2J\u202e@a.test", hostile),
        listed("4EBEB2DA013", "ann@a.test", *many),
    ]
    ids = ("4EBEB 5", "4EBEB2DA014\r", "../../etc/passwd", "ALL")
    bad = [*(listed(ident, "q@r") for ident in ids), good[0][:80], "garbage \x1b[2J"]
    bad += ["[" * 100_000, good[2][:30] + "x" * (17 << 20)]
    text = "\n".join([*bad[:4], *good, *bad[4:], ""])
    (tmp_path / "listing").write_bytes(text.encode("utf-8", "surrogatepass"))
    script = f'case "$1" in */postqueue) cat {tmp_path}/listing;; *) exec "$@";; esac'
    config = tmp_path / "spooldeck.yaml"
    config.write_text(f"via: {{far: [{a_script(tmp_path / 'far', script)}]}}\n")
    printed = {}
    for words in ("status --json", "groups --by sender", "mta ages", "queue list", "overview"):
        place = f"postfix://far{server.config}"
        code, output = output_of("--config", str(config), *words.split(), place)
        assert code in (0, 1)
        assert not [c for c in output if (c < " " and c != "\n") or c in "\x7f\x9b\u202e"]
        printed[words.split()[0]] = output
    answer = json.loads(printed["status"])
    assert (answer["tasks"]["deferred"], len(answer["problems"])) == (3, len(bad))
    assert printed["groups"].splitlines()[-1] == "3 tasks by sender, 3 groups"
    assert "many.test 20000" in printed["mta"]
    assert "ann@a.test to u0@many.test +19,999" in printed["queue"]
