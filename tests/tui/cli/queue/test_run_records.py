"""What a worker writes about its own run."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.operations import controls
from tests.journaled_places import ANA
from tests.nftban_queues import journal_at
from tui.cli.queue.run_records import record_start


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_worker_on_a_terminal_is_an_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """An operator who starts a worker by hand is in the journal; a service is not."""
    monkeypatch.setattr(os, "isatty", lambda _: is_terminal)
    journal = journal_at(tmp_path)
    setup: Any = SimpleNamespace(journal=lambda: journal, current_user=lambda: ANA)
    record_start(setup)
    outcomes = [(one.intent.who, controls.control_outcome(one)) for one in journal.operations()]
    assert outcomes == [(ANA, f"PID {os.getpid()}, on a terminal")] * is_terminal
