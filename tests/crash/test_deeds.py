"""Killed, starved or refused at any step, a plan loses nothing, and its journal tells the truth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from engine import deeds, plans
from engine.journal import Journal
from engine.model import State, Task
from engine.stores.nftban import NftbanStore
from tests.crash import powercut
from tests.crash.deeds import DEEDS, US
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
        "            files.write_all(fd, begun(op, now, intent, plan))\n",
        "            pass\n",
        "retry",
        "moved without an intent",
    ),
    "what was left out is forgotten": (
        "engine/pen.py",
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


@pytest.mark.deep
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_journal_is_found(name: str, tmp_path: Path) -> None:
    """The sweep of a copy in which one line was spoiled reports failures."""
    file, right, wrong, deed, said = BREAKS[name]
    copy = copied(tmp_path, file, right, wrong)
    words = ("tests.crash.deeds", "--slice", "3")

    with Sweeper(tmp_path / "sweep", {}, copy, words) as sweeper:
        result = sweeper.sweep(deed)

    assert any(said in failure for failure in result.failures), result.failures


@pytest.mark.parametrize("verb", ["retry", "purge"])
def test_a_power_cut_leaves_what_tells_and_takes_back(verb: str, tmp_path: Path) -> None:
    """On every disk that a power cut leaves, a task that has moved is in a whole intent, with what
    it was; and one that is written down as done stands nowhere but where it should go.
    """
    root = tmp_path / "spool"
    end = {"retry": "pending", "purge": ".spooldeck/trash"}[verb]

    def carry_out(store: NftbanStore, tasks: list[Task]) -> Iterator[object]:
        journal = Journal(f"{root}/.spooldeck/journal")
        plan = plans.freeze(verb, tasks, powercut.NOW)
        plan = plan._replace(taken_in=frozenset(task.id for task in tasks))
        return iter(deeds.carry_out(store, journal, plan, US, lambda: powercut.NOW).done)

    cuts = powercut.record(powercut.Verb(State.DEAD, (powercut.Step(carry_out),), 2), str(root))
    (before, after) = cuts.stood
    left = list(powercut.disks(cuts.recording))

    for answered, contents in left:
        rows, done, images = _told(contents)
        for ident, (folder, data) in before.items():
            there = contents.get(f"{folder}/{ident}.task")
            if there != data:
                assert ident in rows, "moved, and the intent is not durable"
                assert verb == "purge" or data in images, "moved, and what it was is not durable"
            if ident in done or answered:
                assert there is None, "written down as done, and back where it was"
                moved = contents.get(f"{end}/{ident}.task")
                # A draft's name that is left is a second one, until recovery takes it away.
                assert contents.get(str(moved), moved) == after[ident][1]

    assert len(left) > 15


def _told(contents: Mapping[str, object]) -> tuple[set[str], set[str], bytes]:
    """Rows and outcomes of whole lines in a journal on such a disk, and what tasks were."""
    rows, done, images = set[str](), set[str](), b""
    for path, data in contents.items():
        if path.endswith(".before") and isinstance(data, bytes):
            images = data
        if path.endswith(".jsonl") and isinstance(data, bytes):
            for text in data.split(b"\n")[:-1]:
                line = json.loads(text) if text.startswith(b"{") else {}
                rows |= {ident for ident, *_ in line.get("rows", ())}
                done |= line["done"].keys() if line.get("line") == "ends" else set()
    return rows, done, images
