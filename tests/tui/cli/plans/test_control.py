"""`spooldeck control`: switches of a whole queue, listed, shown by a dry run, and applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.nftban_queues import Run
from tests.zgb_console_place import ORPHANS, PAUSE, RATE, REDIRECT, RETRY, ZgbConsolePlace


@pytest.fixture
def whole(tmp_path: Path) -> ZgbConsolePlace:
    """A ZGB database with two jobs."""
    return ZgbConsolePlace(tmp_path)


def test_the_controls_are_listed(whole: ZgbConsolePlace, root: str, spooldeck: Run) -> None:
    """Each control has its value, its effect and a reason if it is refused; without one, code 0."""
    answer = json.loads(spooldeck("control", "--root", whole.path, "--json").stdout)
    whole.in_earnest()
    ended = spooldeck("control", whole.path, COLUMNS="100")
    without = spooldeck("control", root)

    assert (ended.returncode, ended.stderr) == (0, "")
    table = [line for line in ended.stdout.splitlines() if line.startswith("   ") and line.strip()]
    rows = {line.split()[0]: line for line in table}
    assert "1 (send)" in rows[PAUSE]
    assert " 60 " in rows[RATE]
    assert "refused: registration period 2026-11-01" in rows[REDIRECT]
    assert "make every failed and parked job due now" in rows[RETRY]
    assert ORPHANS in rows
    assert "it cannot be undone" in ended.stdout

    controls = {each["name"]: each for each in answer["controls"]}
    assert (answer["place"], [*controls]) == (whole.path, [PAUSE, RATE, REDIRECT, RETRY, ORPHANS])
    assert controls[PAUSE]["now"] == "1"
    assert controls[PAUSE]["choices"] == {"1": "send", "0": "pause: jobs wait"}
    assert (controls[PAUSE]["pauses"], controls[PAUSE]["undoable"]) == (True, True)
    assert controls[RATE]["bounds"][0] == 1
    assert (controls[RETRY]["now"], controls[RETRY]["undoable"]) == (None, False)

    assert (without.returncode, without.stderr) == (0, "")
    assert "this queue has no controls" in without.stdout


def test_a_control_is_shown_then_applied(whole: ZgbConsolePlace, spooldeck: Run) -> None:
    """A dry run changes nothing and names the command that applies it; the journal records it."""
    words = ("control", PAUSE, whole.path, "--value", "0", "--reason", "mx7 is down")
    dry_run = spooldeck(*words, "--dry-run")
    assert (dry_run.returncode, dry_run.stderr) == (0, "")
    assert "Now 1 (send), then 0 (pause: jobs wait)." in dry_run.stdout
    apply_command = f"control {PAUSE} --value 0 --reason 'mx7 is down' --apply 1"
    assert apply_command in dry_run.stdout.splitlines()[-1]
    assert whole.setting(PAUSE) == "1"
    done = spooldeck(*words, "--apply", "1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "paused: jobs wait\n", "")
    assert whole.setting(PAUSE) == "0"
    (line,) = spooldeck("journal", whole.path).stdout.splitlines()
    assert f"control | {PAUSE} 0 | done" in line and "reason mx7 is down" in line
    assert "paused: jobs wait" in spooldeck("journal", line.split(" | ")[1], whole.path).stdout
