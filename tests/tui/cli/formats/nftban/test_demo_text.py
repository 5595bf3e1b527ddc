"""The demo without a terminal, as an operator's commands."""

import re
import tempfile
from pathlib import Path

import pytest

from tests import command


@pytest.mark.deep
def test_without_a_terminal_the_demo_is_shown_as_commands(tmp_path: Path) -> None:
    """Each command has its expected exit code, the lock is freed, and nothing is left behind."""
    before = {*Path(tempfile.gettempdir()).glob("spooldeck-demo-*")}
    ended = command.run(["demo", "--tasks", "40"], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    # A replay that takes some seconds prints its progress.
    progress = re.compile(r"spooldeck: \d+ of (\d+) sent, (.+ waiting.*|\1 delivered)")
    assert all(map(progress.fullmatch, ended.stderr.splitlines())), ended.stderr
    assert "the lock is stuck: PID" in ended.stdout
    assert "lock      free" in ended.stdout.rpartition("$ spooldeck ")[2]
    assert "demo places removed" in ended.stdout
    assert {*Path(tempfile.gettempdir()).glob("spooldeck-demo-*")} <= before
