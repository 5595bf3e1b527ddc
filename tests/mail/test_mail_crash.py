"""Mail under crashes: whoever is killed at any step of spooling or delivering loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.mail.killed_mail import KILLS, Result

ROOT = Path(__file__).resolve().parents[2]
SHM = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """A folder in memory where there is one: a kill does not ask for a disk."""
    with TemporaryDirectory(dir=SHM if os.access(SHM, os.W_OK) else tmp_path) as path:
        yield path


def swept(folder: str, way: str) -> list[Result]:
    """Every step of a way, and what came of it."""
    said = subprocess.run(
        [sys.executable, "-P", "-m", "tests.mail.killed_mail", folder, way],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert said.returncode == 0, said.stderr[-2000:]
    return [Result(*json.loads(line)) for line in said.stdout.splitlines()]


def test_spooling_is_all_or_nothing(folder: str) -> None:
    """Killed or refused by the disk at any step of spooling and queueing, a mail is in the spool as
    a whole or not at all, and no task names what is not there. Who said that it was spooled has it
    delivered, once; what is in the spool without a task is given one by the next housekeeping.
    """
    results = swept(folder, "spool")

    assert {result.ended for result in results} == {"killed", "done"}
    for result in results:
        assert result.half == [], result
        assert result.queued <= result.visible <= 1, result
        assert result.finally_accepted == result.visible, result
        assert result.left == [], result
        if result.code in (1, 5):
            assert result.visible == 1, result
        if result.code == 4:
            assert result.visible == result.queued == 0, result


def test_a_mail_in_doubt_is_never_in_the_spool_without_its_doubt(folder: str) -> None:
    """Killed at any step of spooling a mail that was accepted without a word of it, whoever comes
    after finds it in doubt, and says so before it is sent once more.
    """
    results = swept(folder, "doubt")

    assert {result.ended for result in results} == {"killed", "done"}
    for result in results:
        assert result.doubtful == bool(result.visible), result
        assert result.said == result.visible, result
        assert result.finally_accepted == result.accepted + result.visible, result
        assert result.same, result
        assert result.half == result.left == [], result


@pytest.mark.deep
def test_a_killed_worker_loses_no_mail_and_doubles_only_what_was_in_hand(folder: str) -> None:
    """Killed or refused by the disk at any step of a run that delivers a mail, the worker leaves a
    mail that the next one delivers: at least once, the same to the byte, and a second time only if
    it ended between the acceptance and the mark that says so; then the log has said it.
    """
    results = swept(folder, "deliver")

    assert {result.ended for result in results} == {"killed", "done"}
    for result in results:
        assert result.half == [], result
        window = result.accepted == 1 and result.doubtful
        assert result.finally_accepted == 1 + window, result
        assert result.same, result
        assert result.said == int(result.doubtful), result
        assert result.left == [], result
        if result.code == 0:
            assert result.accepted == 1, result
    killed = [result.name.split("-") for result in results if result.finally_accepted == 2]
    assert len({step for _, how, step in killed if how in KILLS}) == 1, "the window is one step"


@pytest.mark.deep
def test_a_worker_killed_while_a_mail_is_refused_loses_nothing(folder: str) -> None:
    """Killed or refused by the disk at any step of a run in which the mail is refused, the worker
    leaves one that is delivered later, once; what had no known end then is said to be in doubt.
    """
    results = swept(folder, "fail")

    assert {result.ended for result in results} == {"killed", "done"}
    for result in results:
        assert (result.accepted, result.finally_accepted) == (0, 1), result
        assert result.half == result.left == [], result
        assert result.queued == result.visible == 1, result
        assert result.said == int(result.doubtful), result


def test_killed_housekeeping_queues_a_mail_once(folder: str) -> None:
    """Killed or refused by the disk at any step of making the task of a mail that has none, the
    next housekeeping ends it: one task, one delivery."""
    results = swept(folder, "queue")

    assert {result.ended for result in results} == {"killed", "done"}
    for result in results:
        assert (result.visible, result.finally_accepted) == (1, 1), result
        assert result.queued <= 1, result
        assert result.half == result.left == [], result
