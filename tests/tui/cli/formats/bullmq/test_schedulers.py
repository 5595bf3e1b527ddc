"""`bullmq schedulers`: list, plan and apply; and `undo` of what it did."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.bullmq_jobs import HOUR, unchanged, write_schedule
from tests.nftban_queues import Run

LIST = ("bullmq", "schedulers")


def due() -> int:
    """In an hour, epoch milliseconds."""
    return round(time.time() * 1000) + HOUR


def test_an_act_is_planned_applied_and_undone(client: Any, on_redis: Run) -> None:
    """Each command prints the next one; the undo is listed until it is done."""
    write_schedule(client, due=due())
    with unchanged(client):
        planned = on_redis(*LIST, "edit", "tick", "--every", "2h", "--dry-run")
    assert "every 1h" in planned.stdout and "every 2h" in planned.stdout
    assert "bullmq schedulers edit mails/tick --every 2h --apply 1" in planned.stdout
    done = on_redis(*LIST, "edit", "tick", "--every", "2h", "--apply", "1", "--json")
    op = json.loads(done.stdout)["op"]
    assert client.hget("bull:mails:repeat:tick", "every") == str(2 * HOUR)
    assert f"undo {op} --dry-run" in on_redis("undo").stdout
    undo = json.loads(on_redis("undo", op, "--dry-run", "--json").stdout)
    assert undo["facts"]["effect"] == "the schedule is put back"
    assert on_redis("undo", op, "--apply", "1").returncode == 0
    assert client.hget("bull:mails:repeat:tick", "every") == str(HOUR)
    assert f"undo {op} --dry-run" not in on_redis("undo").stdout


def test_schedules_are_listed_with_what_is_wrong(client: Any, on_redis: Run) -> None:
    """A line for each; exit 1 and the reason below if one does not go on."""
    write_schedule(client, due=due())
    listed, titles = on_redis(*LIST), ["SCHEDULE", "RULE", "LAST", "NEXT"]
    assert (listed.returncode, listed.stdout.split()[:4]) == (0, titles)
    client.delete("bull:mails:delayed", *client.keys("bull:mails:repeat:tick:*"))
    listed = on_redis(*LIST, "--queue", "mails")
    assert (listed.returncode, "mails/tick: stopped: the job" in listed.stdout) == (1, True)
    (row,) = map(json.loads, on_redis(*LIST, "--json").stdout.splitlines())
    assert (row["id"], row["next"], row["rule"]) == ("mails/tick", None, "every 1h")


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("remove", "tick"), 64, "expected either --dry-run, or --apply N"),
        (("remove", "tick", "--apply", "2"), 1, "1 schedule, not 2; nothing was changed"),
        (("remove", "tock", "--apply", "1"), 1, "tock: no such schedule"),
        (("edit", "tick", "--dry-run"), 64, "expected with edit, which needs one of them"),
        (("edit", "tick", "--every", "x", "--apply", "1"), 1, "expected a duration"),
        (("stop", "tick"), 64, "expected run, remove, edit and a QUEUE/KEY"),
        (("--queue", "nix"), 64, "no queue nix here"),
    ],
)
def test_wrong_words_are_refused(
    client: Any, on_redis: Run, words: tuple[str, ...], code: int, why: str
) -> None:
    """In one line, with what was expected; nothing changes."""
    write_schedule(client, due=due())
    with unchanged(client):
        ran = on_redis(*LIST, *words)
    assert (ran.returncode, why in ran.stderr, len(ran.stderr.splitlines())) == (code, True, 1)
