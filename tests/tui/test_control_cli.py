"""`spooldeck control`: what concerns a queue as a whole, listed, shown and done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tui.queues import Run
from tests.tui.wholes import ORPHANS, PAUSE, RATE, REDIRECT, RETRY, Whole


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    """A mail queue in a database, with two jobs."""
    return Whole(tmp_path)


def test_the_controls_are_listed(whole: Whole, spooldeck: Run) -> None:
    """Each with its value and what it does; what is refused now says why."""
    whole.in_earnest()

    ended = spooldeck("control", whole.path, COLUMNS="100")

    assert (ended.returncode, ended.stderr) == (0, "")
    table = [line for line in ended.stdout.splitlines() if line.startswith("   ") and line.strip()]
    rows = {line.split()[0]: line for line in table}
    assert "1 (send)" in rows[PAUSE]
    assert " 60 " in rows[RATE]
    assert "refused: registration period 2026-11-01" in rows[REDIRECT]
    assert "make every failed and parked job due now" in rows[RETRY]
    assert ORPHANS in rows
    assert "it cannot be taken back" in ended.stdout


def test_the_controls_for_programs(whole: Whole, spooldeck: Run) -> None:
    """With --json each control is an object, and what it does not have is null."""
    ended = spooldeck("control", "--root", whole.path, "--json")

    told = json.loads(ended.stdout)
    found = {each["name"]: each for each in told["controls"]}
    assert told["place"] == whole.path
    assert [*found] == [PAUSE, RATE, REDIRECT, RETRY, ORPHANS]
    assert found[PAUSE]["now"] == "1"
    assert found[PAUSE]["choices"] == {"1": "send", "0": "pause: jobs wait"}
    assert (found[PAUSE]["pauses"], found[PAUSE]["undoable"]) == (True, True)
    assert found[RATE]["bounds"][0] == 1
    assert (found[RETRY]["now"], found[RETRY]["undoable"]) == (None, False)


def test_a_queue_without_any_says_so(root: str, spooldeck: Run) -> None:
    """A queue of the contract has no controls: that is an answer, and asking for one is refused."""
    listed = spooldeck("control", root)
    asked = spooldeck("control", "pause", root, "--apply", "1")

    assert (listed.returncode, listed.stderr) == (0, "")
    assert "nothing can be done here to the queue as a whole" in listed.stdout
    assert asked.returncode == 1
    assert "no control 'pause' here: this queue has none; nothing was changed" in asked.stderr


def test_shown_first_then_done(whole: Whole, spooldeck: Run) -> None:
    """A dry run changes nothing and names the command that does it; the journal tells of it."""
    words = ("control", PAUSE, whole.path, "--value", "0", "--reason", "mx7 is down")

    shown = spooldeck(*words, "--dry-run")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert "It is 1 (send) now, and would be 0 (pause: jobs wait)." in shown.stdout
    twin = f"control {PAUSE} --value 0 --reason 'mx7 is down' --apply 1"
    assert twin in shown.stdout.splitlines()[-1]
    assert whole.setting(PAUSE) == "1"

    done = spooldeck(*words, "--apply", "1")

    assert (done.returncode, done.stdout, done.stderr) == (0, "paused: jobs wait\n", "")
    assert whole.setting(PAUSE) == "0"
    (line,) = spooldeck("journal", whole.path).stdout.splitlines()
    assert f"control | {PAUSE} 0 | over" in line
    assert "reason mx7 is down" in line
    assert "paused: jobs wait" in spooldeck("journal", line.split(" | ")[1], whole.path).stdout


def test_the_answer_for_programs(whole: Whole, spooldeck: Run) -> None:
    """The dry run counts what it would change; the answer comes as lines, with the operation."""
    whole.fail_all()
    shown = spooldeck("control", RETRY, whole.path, "--dry-run", "--json")
    done = spooldeck("control", RETRY, whole.path, "--apply", "2", "--json")

    told = json.loads(shown.stdout)
    assert (told["order"], told["count"]) == ({"target": "", "value": ""}, 2)
    assert told["command"].endswith("--apply 2")
    said = json.loads(done.stdout)
    assert (said["control"], said["said"]) == (RETRY, ["2 jobs failed or parked: due now"])
    assert json.loads(spooldeck("journal", whole.path, "--json").stdout)["op"] == said["op"]


def test_what_is_refused_says_why(whole: Whole, spooldeck: Run) -> None:
    """The dry run refuses what the deed would: with the reason, and 1."""
    whole.in_earnest()
    before = whole.sql("SELECT * FROM config ORDER BY key")
    for words, why in (
        ((RATE, "--value", "0"), "mailMaxPerHour is '0', expected a whole number from 1 to"),
        ((PAUSE,), "mailQueueEnabled is nothing, expected 1 or 0"),
        ((PAUSE, "--value", "1", "--target", "x"), "mailQueueEnabled takes no target"),
        (("halt",), "no control 'halt' here: expected one of mailQueueEnabled, "),
        ((REDIRECT, "--value", "1"), "registration period 2026-11-01 to"),
    ):
        for how in (("--dry-run",), ("--apply", "1")):
            ended = spooldeck("control", *words, *how, "--root", whole.path)
            assert (ended.returncode, ended.stdout) == (1, ""), words
            assert why in ended.stderr
    assert whole.sql("SELECT * FROM config ORDER BY key") == before


def test_words_that_make_no_sense(whole: Whole, spooldeck: Run, tmp_path: Path) -> None:
    """What is missing is said in one line, with 64: also the reason that the configuration asks
    for.
    """
    settings = tmp_path / "settings.yaml"
    settings.write_text("require_reason: true\n")
    reasoned = ("--config", str(settings))
    place = whole.path
    for words, why in (
        ((PAUSE,), "no such place; a control takes --dry-run or --apply N"),
        ((PAUSE, place), "expected --dry-run or --apply N beside the NAME"),
        ((PAUSE, place, "--dry-run", "--apply", "1"), "expected either --dry-run, or --apply N"),
        (("--dry-run",), "expected the NAME of a control"),
        ((PAUSE, place, place, "--dry-run"), "expected the NAME of a control"),
        ((PAUSE, place, "--value", "0", "--apply", "1", *reasoned), "expected --reason TEXT"),
    ):
        ended = spooldeck("control", *words)
        assert ended.returncode == 64, words
        assert why in ended.stderr
    assert whole.setting(PAUSE) == "1"
