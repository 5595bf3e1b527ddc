"""Killed, starved or refused at any step, a plan loses nothing, and its journal tells the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.deeds import DEEDS
from tests.crash.swept import Sweeper
from tests.crash.test_crash import copied


@pytest.mark.parametrize("name", DEEDS)
def test_at_every_point_the_journal_tells_the_truth(name: str, deed_sweeper: Sweeper) -> None:
    """Wherever a plan is killed or refused, and its settling killed as well: each task stands whole
    in one place, the journal says where, what was left out stays, the rest can be gone on with, and
    all comes back byte for byte.
    """
    result = deed_sweeper.sweep(name)

    assert result.failures == []
    assert result.points >= DEEDS[name].floor
    assert result.runs > result.points / 2


BREAKS = {
    "the intent follows the first move": (
        "engine/journal.py",
        "            files.write_all(fd, _begun(op, now, intent, plan))\n",
        "            pass\n",
        "retry",
        "moved without an intent",
    ),
    "what was left out is forgotten": (
        "engine/journal.py",
        "    excluded = [Ended(row, End.EXCLUDED, why) for row, why in plan.excluded]\n    lines",
        "    excluded: list[Ended] = []\n    lines",
        "purge",
        "written down as done",
    ),
    "an interruption counts as done": (
        "engine/undo.py",
        '        return "" if is_so else "interrupted, and changed since"',
        '        return ""',
        "promote",
        "written down as done",
    ),
}
"""File, what is replaced by what, the plan that finds it and what it says."""


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_journal_is_found(name: str, tmp_path: Path) -> None:
    """The sweep of a copy in which one line was spoiled reports failures."""
    file, right, wrong, deed, said = BREAKS[name]
    copy = copied(tmp_path, file, right, wrong)
    words = ("tests.crash.deeds", "--slice", "3")

    with Sweeper(tmp_path / "sweep", {}, copy, words) as sweeper:
        result = sweeper.sweep(deed)

    assert any(said in failure for failure in result.failures), result.failures
