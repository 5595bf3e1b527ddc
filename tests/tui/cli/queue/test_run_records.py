"""What a worker writes about its own run."""

import os
import pty
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.operations import controls
from tests import command
from tests.journaled_places import ANA
from tests.mail_queue_commands import PATIENCE, Site, Spool, soon
from tests.nftban_queues import clean_environment, journal_at
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


@pytest.mark.parametrize("format", ["nftban", "kannader", "zgb", "bullmq"])
def test_the_worker_of_each_format_records_its_start(
    tmp_path: Path, request: pytest.FixtureRequest, format: str
) -> None:
    """In any format a worker that an operator starts on a terminal is in the journal."""
    config = tmp_path / "some.yaml"
    if format == "nftban":
        words, place = ["queue", "work"], str(tmp_path / "data")
        command.run_text("init", place)
    elif format == "kannader":
        spool = Spool(tmp_path)
        spool.settle(host="127.0.0.1", port=9)
        words, place = ["kannader", "work"], str(spool.path)
    elif format == "zgb":
        site = Site(tmp_path)
        site.make(7)
        words, place = ["zgb", "work", "--loop"], site.path
    else:
        words, place = ["bullmq", "work"], request.getfixturevalue("redis_url")
        config.write_text("handlers: {mails: {command: ['true']}}\n")
    options = ["--config", str(config)] if config.exists() else []
    env = clean_environment(tmp_path) | {"XDG_STATE_HOME": str(tmp_path / "state")}

    def is_recorded() -> bool:
        return "start worker" in command.run_text(*options, "journal", place, env=env).stdout

    terminal, stdin = pty.openpty()
    with command.Popen([*options, *words, place], stdin=stdin, env=env) as process:
        recorded = soon(is_recorded)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    os.close(terminal)
    os.close(stdin)
    assert recorded
